/* scan.c: the scanner of scan.h. Not its job: what the values mean. */
#include "model/scan.h"

#include <string.h>

int32_t eb_scan_fail(const struct eb_scan *s, const char *wanted, ebro_error *err) {
    if (s->p >= s->end)
        return eb_fail(err, EBRO_FORMAT, "%s: JSON ends at byte %zu where %s should be", s->label,
                       (size_t)(s->p - s->begin), wanted);
    return eb_fail(err, EBRO_FORMAT, "%s: byte %zu of the JSON: wanted %s, found 0x%02x", s->label,
                   (size_t)(s->p - s->begin), wanted, *s->p);
}

static void skip_space(struct eb_scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r'))
        s->p++;
}

bool eb_scan_accept(struct eb_scan *s, char c) {
    skip_space(s);
    if (s->p >= s->end || *s->p != (uint8_t)c) return false;
    s->p++;
    return true;
}

int32_t eb_scan_expect(struct eb_scan *s, char c, ebro_error *err) {
    if (eb_scan_accept(s, c)) return EBRO_OK;
    char wanted[4] = {'\'', c, '\'', 0};
    return eb_scan_fail(s, wanted, err);
}

int32_t eb_scan_next(struct eb_scan *s, size_t n, char close, bool *more, ebro_error *err) {
    *more = false;
    if (eb_scan_accept(s, close)) return EBRO_OK;
    if (n > 0 && !eb_scan_accept(s, ','))
        return eb_scan_fail(s, close == '}' ? "',' or '}'" : "',' or ']'", err);
    *more = true;
    return EBRO_OK;
}

static int hex_digit(uint8_t c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Four hex digits after "\u". */
static bool read_hex4(struct eb_scan *s, uint32_t *out) {
    if (s->end - s->p < 4) return false;
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        int d = hex_digit(s->p[i]);
        if (d < 0) return false;
        v = v << 4 | (uint32_t)d;
    }
    s->p += 4;
    *out = v;
    return true;
}

/* The character of an escape; s->p is behind the backslash. False: not a valid one. */
static bool read_escape(struct eb_scan *s, uint32_t *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (s->p >= s->end) return false;
    uint8_t c = *s->p++;
    if (c != 'u') {
        const char *at = c == 0 ? NULL : strchr(from, c);
        if (at == NULL) return false;
        *out = (uint8_t)to[at - from];
        return true;
    }
    uint32_t u, low;
    if (!read_hex4(s, &u)) return false;
    if (u >= 0xdc00 && u <= 0xdfff) return false;
    if (u >= 0xd800 && u <= 0xdbff) {
        if (s->end - s->p < 2 || s->p[0] != '\\' || s->p[1] != 'u') return false;
        s->p += 2;
        if (!read_hex4(s, &low) || low < 0xdc00 || low > 0xdfff) return false;
        u = 0x10000u + ((u - 0xd800u) << 10) + (low - 0xdc00u);
    }
    *out = u;
    return u != 0;
}

/* Bytes of the UTF-8 sequence at p; 0: not valid (overlong, surrogate, out of range, cut off). */
static size_t utf8_length(const uint8_t *p, const uint8_t *end) {
    uint8_t c = p[0];
    size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : (c & 0xf0) == 0xe0 ? 3 : 4;
    if (n == 4 && (c < 0xf0 || c > 0xf4)) return 0;
    if ((size_t)(end - p) < n) return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if ((c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f)) return 0;
    if ((c == 0xf0 && p[1] < 0x90) || (c == 0xf4 && p[1] > 0x8f)) return 0;
    return n;
}

static size_t utf8_write(uint32_t u, uint8_t out[4]) {
    if (u < 0x80) {
        out[0] = (uint8_t)u;
        return 1;
    }
    size_t n = u < 0x800 ? 2 : u < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; u >>= 6) out[i] = (uint8_t)(0x80u | (u & 0x3fu));
    out[0] = (uint8_t)((n == 2 ? 0xc0u : n == 3 ? 0xe0u : 0xf0u) | u);
    return n;
}

int32_t eb_scan_string(struct eb_scan *s, char *buf, size_t capacity, ebro_error *err) {
    skip_space(s);
    if (s->p >= s->end || *s->p != '"') return eb_scan_fail(s, "a string", err);
    s->p++;
    size_t n = 0;
    while (s->p < s->end && *s->p != '"') {
        uint8_t utf8[4];
        const uint8_t *from = s->p;
        size_t length;
        if (*s->p < 0x20) return eb_scan_fail(s, "no control character in a string", err);
        if (*s->p == '\\') {
            uint32_t u;
            s->p++;
            if (!read_escape(s, &u)) {
                s->p = from;
                return eb_scan_fail(s, "a valid escape", err);
            }
            length = utf8_write(u, utf8);
            from = utf8;
        } else {
            length = utf8_length(s->p, s->end);
            if (length == 0) return eb_scan_fail(s, "valid UTF-8", err);
            s->p += length;
        }
        if (capacity - n <= length)
            return eb_fail(err, EBRO_FORMAT,
                           "%s: byte %zu of the JSON: string longer than %zu bytes", s->label,
                           (size_t)(s->p - s->begin), capacity - 1);
        memcpy(buf + n, from, length);
        n += length;
    }
    if (s->p >= s->end) return eb_scan_fail(s, "the end of a string", err);
    s->p++;
    buf[n] = 0;
    return EBRO_OK;
}

int32_t eb_scan_key(struct eb_scan *s, char *buf, size_t capacity, ebro_error *err) {
    int32_t st = eb_scan_string(s, buf, capacity, err);
    return st == EBRO_OK ? eb_scan_expect(s, ':', err) : st;
}

int32_t eb_scan_u64(struct eb_scan *s, uint64_t *out, ebro_error *err) {
    skip_space(s);
    const uint8_t *first = s->p;
    uint64_t v = 0;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9') {
        if (!eb_mul_u64(v, 10, &v) || !eb_add_u64(v, (uint64_t)(*s->p - '0'), &v))
            return eb_scan_fail(s, "an integer below 2^64", err);
        s->p++;
    }
    if (s->p == first) return eb_scan_fail(s, "a non-negative integer", err);
    if (*first == '0' && s->p - first > 1) {
        s->p = first;
        return eb_scan_fail(s, "an integer without leading zeros", err);
    }
    if (s->p < s->end && (*s->p == '.' || *s->p == 'e' || *s->p == 'E'))
        return eb_scan_fail(s, "an integer", err);
    *out = v;
    return EBRO_OK;
}

/* Skips a string without decoding it. */
static int32_t skip_string(struct eb_scan *s, ebro_error *err) {
    for (s->p++; s->p < s->end; s->p++) {
        if (*s->p == '"') {
            s->p++;
            return EBRO_OK;
        }
        if (*s->p == '\\' && ++s->p >= s->end) break;
    }
    return eb_scan_fail(s, "the end of a string", err);
}

static int32_t skip_value(struct eb_scan *s, int depth, ebro_error *err) {
    skip_space(s);
    if (s->p >= s->end) return eb_scan_fail(s, "a value", err);
    uint8_t open = *s->p;
    if (open == '"') return skip_string(s, err);
    if (open != '{' && open != '[') { /* a number or a word */
        const uint8_t *first = s->p;
        while (s->p < s->end && *s->p != 0 &&
               strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzE", *s->p))
            s->p++;
        return s->p == first ? eb_scan_fail(s, "a value", err) : EBRO_OK;
    }
    if (depth >= EB_SCAN_MAX_DEPTH) return eb_scan_fail(s, "no deeper nesting", err);
    s->p++;
    char close = open == '{' ? '}' : ']';
    for (size_t n = 0;; n++) {
        bool more;
        int32_t st = eb_scan_next(s, n, close, &more, err);
        if (st != EBRO_OK || !more) return st;
        if (open == '{') {
            skip_space(s);
            if (s->p >= s->end || *s->p != '"') return eb_scan_fail(s, "a key", err);
            if ((st = skip_string(s, err)) != EBRO_OK) return st;
            if ((st = eb_scan_expect(s, ':', err)) != EBRO_OK) return st;
        }
        if ((st = skip_value(s, depth + 1, err)) != EBRO_OK) return st;
    }
}

int32_t eb_scan_skip(struct eb_scan *s, ebro_error *err) {
    return skip_value(s, 0, err);
}

int32_t eb_scan_end(struct eb_scan *s, ebro_error *err) {
    skip_space(s);
    return s->p == s->end ? EBRO_OK : eb_scan_fail(s, "the end", err);
}
