/* status.c: names of status codes, the version, and the text of errors. Does not decide what is an
 * error: callers do. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *ebro_status_name(int32_t status) {
    switch (status) {
        case EBRO_OK:
            return "OK";
        case EBRO_INVALID:
            return "INVALID";
        case EBRO_UNSUPPORTED:
            return "UNSUPPORTED";
        case EBRO_NOMEM_HOST:
            return "NOMEM_HOST";
        case EBRO_NOMEM_DEVICE:
            return "NOMEM_DEVICE";
        case EBRO_IO:
            return "IO";
        case EBRO_FORMAT:
            return "FORMAT";
        case EBRO_NO_DEVICE:
            return "NO_DEVICE";
        case EBRO_DEVICE_LOST:
            return "DEVICE_LOST";
        case EBRO_TIMEOUT:
            return "TIMEOUT";
        case EBRO_CANCELLED:
            return "CANCELLED";
        case EBRO_NUMERIC:
            return "NUMERIC";
        case EBRO_INTERNAL:
            return "INTERNAL";
        default:
            return "UNKNOWN";
    }
}

const char *ebro_version(void) {
    return EBRO_VERSION_TEXT;
}

/* Bytes of `s`, at most n, that do not end inside a UTF-8 sequence. */
static size_t whole_characters(const char *s, size_t n) {
    size_t lead = n;
    while (lead > 0 && n - lead < 3 && ((unsigned char)s[lead - 1] & 0xc0u) == 0x80u) lead--;
    if (lead == 0) return n;
    unsigned char c = (unsigned char)s[lead - 1];
    size_t want = c >= 0xf0u ? 4 : c >= 0xe0u ? 3 : c >= 0xc0u ? 2 : 1;
    return n - (lead - 1) < want ? lead - 1 : n;
}

/* Puts a formatted text at `at`. Formats aside first: an argument may be err->text itself. */
static void write_text(ebro_error *err, size_t at, const char *prefix, const char *fmt,
                       va_list args) {
    char text[sizeof err->text];
    size_t room = sizeof err->text - at;
    int head = snprintf(text, room, "%s", prefix);
    size_t used = head > 0 ? (size_t)head : 0;
    if (used < room) {
        int tail = vsnprintf(text + used, room - used, fmt, args);
        if (tail > 0) used += (size_t)tail;
    }
    if (used >= room) used = whole_characters(text, room - 1);
    memcpy(err->text + at, text, used);
    err->text[at + used] = '\0';
}

int32_t eb_fail(ebro_error *err, int32_t status, const char *fmt, ...) {
    if (err == NULL) return status;
    va_list args;
    va_start(args, fmt);
    write_text(err, 0, "", fmt, args);
    va_end(args);
    err->status = status;
    return status;
}

int32_t eb_while(ebro_error *err, int32_t status, const char *fmt, ...) {
    if (err == NULL) return status;
    size_t at = strnlen(err->text, sizeof err->text - 1);
    va_list args;
    va_start(args, fmt);
    write_text(err, at, "; while ", fmt, args);
    va_end(args);
    /* Whoever failed without a text still gives a status. */
    if (err->status == EBRO_OK) err->status = status;
    return err->status;
}
