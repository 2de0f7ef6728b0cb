/* buf.c: see buf.h. */
#include "buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for n bytes more and a 0. */
static bool make_room(struct eb_buf *buf, size_t n) {
    if (n >= SIZE_MAX / 4 - buf->n) return false;
    size_t needed = buf->n + n + 1;
    if (needed <= buf->capacity) return true;
    size_t capacity = buf->capacity ? buf->capacity : 256;
    while (capacity < needed) capacity *= 2;
    char *data = realloc(buf->data, capacity);
    if (!data) return false;
    buf->data = data;
    buf->capacity = capacity;
    return true;
}

bool eb_buf_add(struct eb_buf *buf, const void *data, size_t n) {
    if (!make_room(buf, n)) return false;
    if (n > 0) memcpy(buf->data + buf->n, data, n);
    buf->n += n;
    buf->data[buf->n] = '\0';
    return true;
}

bool eb_buf_print(struct eb_buf *buf, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    bool good = n >= 0 && make_room(buf, (size_t)n);
    if (good) {
        vsnprintf(buf->data + buf->n, (size_t)n + 1, fmt, again);
        buf->n += (size_t)n;
    }
    va_end(again);
    va_end(ap);
    return good;
}

void eb_buf_free(struct eb_buf *buf) {
    free(buf->data);
    *buf = (struct eb_buf){0};
}

/* ---- UTF-8 -------------------------------------------------------------------------------- */

/* Bytes of the character at s, of which n > 0 are there; 0: none starts here. The table is that of
 * well-formed sequences in the Unicode Standard: only the second byte's range depends on the first.
 */
static size_t character(const unsigned char *s, size_t n) {
    static const struct {
        unsigned char first, last, low, high;
        size_t length;
    } forms[] = {
        {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    size_t i = 0;
    while (i < sizeof forms / sizeof *forms && s[0] > forms[i].last) i++;
    if (i == sizeof forms / sizeof *forms || s[0] < forms[i].first || n < forms[i].length) return 0;
    if (forms[i].length > 1 && (s[1] < forms[i].low || s[1] > forms[i].high)) return 0;
    for (size_t k = 2; k < forms[i].length; k++)
        if ((s[k] & 0xc0) != 0x80) return 0;
    return forms[i].length;
}

static json_t *text_with_marks(const unsigned char *s, size_t n) {
    static const char mark[] = "\xef\xbf\xbd";
    char *clean = n < SIZE_MAX / 3 ? malloc(3 * n) : NULL;
    size_t out = 0;
    if (!clean) return NULL;
    for (size_t i = 0; i < n;) {
        size_t length = character(s + i, n - i);
        memcpy(clean + out, length ? (const char *)s + i : mark, length ? length : 3);
        out += length ? length : 3;
        i += length ? length : 1;
    }
    json_t *text = json_stringn_nocheck(clean, out);
    free(clean);
    return text;
}

json_t *eb_json_text(const char *s, size_t n) {
    const unsigned char *bytes = (const unsigned char *)s;
    for (size_t i = 0; i < n;) {
        size_t length = character(bytes + i, n - i);
        if (length == 0) return text_with_marks(bytes, n);
        i += length;
    }
    return json_stringn_nocheck(n > 0 ? s : "", n);
}

size_t eb_json_text_length(const json_t *text) {
    const char *s = json_string_value(text);
    size_t n = json_string_length(text), characters = 0;
    for (size_t i = 0; i < n; i++) characters += ((unsigned char)s[i] & 0xc0) != 0x80;
    return characters;
}
