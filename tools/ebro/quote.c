/* quote.c: see quote.h. */
#include "quote.h"

#include <stdlib.h>
#include <string.h>

size_t eb_utf8_length(const char *s, size_t n) {
    const unsigned char *p = (const unsigned char *)s;
    if (n == 0) return 0;
    if (p[0] < 0x80) return 1;
    size_t length = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || length > n) return 0;
    for (size_t i = 1; i < length; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    /* too long for what it holds, a surrogate, or beyond U+10FFFF */
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return length;
}

bool eb_utf8_is(const char *s, size_t n) {
    while (n > 0) {
        size_t length = eb_utf8_length(s, n);
        if (length == 0) return false;
        s += length;
        n -= length;
    }
    return true;
}

char *eb_utf8_clean(const char *s, size_t n) {
    static const char replacement[] = "\xef\xbf\xbd";
    char *out = n < (size_t)-1 / 3 ? malloc(3 * n + 1) : NULL;
    size_t at = 0;
    if (!out) return NULL;
    for (size_t i = 0; i < n;) {
        size_t length = eb_utf8_length(s + i, n - i);
        bool good = length > 0 && s[i] != '\0';
        memcpy(out + at, good ? s + i : replacement, good ? length : 3);
        at += good ? length : 3;
        i += length > 0 ? length : 1;
    }
    out[at] = '\0';
    return out;
}

/* C1 controls (U+0080 to U+009F) would reach a terminal as well as C0 ones. */
static bool is_control(const char *s, size_t length) {
    const unsigned char *p = (const unsigned char *)s;
    return length == 1 ? p[0] < 0x20 || p[0] == 0x7f : length == 2 && p[0] == 0xc2 && p[1] < 0xa0;
}

void eb_quote(FILE *f, const char *s, size_t n) {
    fputc('"', f);
    for (size_t i = 0; i < n;) {
        static const char plain[] = "\"\\\n\r\t", letters[] = "\"\\nrt";
        size_t length = eb_utf8_length(s + i, n - i);
        const char *at = s[i] ? strchr(plain, s[i]) : NULL;
        if (at) {
            fprintf(f, "\\%c", letters[at - plain]);
        } else if (length > 0 && !is_control(s + i, length)) {
            fwrite(s + i, 1, length, f);
        } else {
            length = 1;
            fprintf(f, "\\x%02x", (unsigned)(unsigned char)s[i]);
        }
        i += length;
    }
    fputc('"', f);
}
