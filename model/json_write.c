/* json_write.c: JSON as Python writes it. Not its job: reading (json.c). */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/json.h"

struct json_writer {
    const struct eb_alloc *a;
    struct eb_chars *out;
    enum eb_json_style style;
    ebro_error *err;
    int32_t st; /* the first failure; later calls do nothing */
};

int32_t eb_chars_add(const struct eb_alloc *a, struct eb_chars *c, const char *p, size_t n,
                     ebro_error *err) {
    if (n > SIZE_MAX - c->n) return eb_fail(err, EBRO_NOMEM_HOST, "a text of too many bytes");
    if (n == 0) return EBRO_OK;
    void *v = c->v;
    int32_t st = eb_grow(a, &v, &c->capacity, c->n + n, 1, err);
    c->v = v;
    if (st != EBRO_OK) return st;
    memcpy(c->v + c->n, p, n);
    c->n += n;
    return EBRO_OK;
}

static void put(struct json_writer *w, const char *p, size_t n) {
    if (w->st == EBRO_OK) w->st = eb_chars_add(w->a, w->out, p, n, w->err);
}

static void put_text(struct json_writer *w, const char *text) {
    put(w, text, strlen(text));
}

static void put_escape(struct json_writer *w, unsigned char c) {
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    char text[8];
    const char *at = c != 0 ? strchr(plain, c) : NULL;
    if (at != NULL)
        snprintf(text, sizeof text, "\\%c", letters[at - plain]);
    else
        snprintf(text, sizeof text, "\\u%04x", c);
    put_text(w, text);
}

static void put_string(struct json_writer *w, const char *p, size_t n) {
    size_t from = 0;
    put(w, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        put(w, p + from, i - from);
        put_escape(w, c);
        from = i + 1;
    }
    put(w, p + from, n - from);
    put(w, "\"", 1);
}

/* The fewest decimal digits that read back as x, and the exponent of the first. Digits are picked
 * out one by one, since the point between them depends on the process's locale. */
static size_t shortest_digits(double x, char digits[20], int *exponent) {
    char text[48];
    int precision = 0;
    do snprintf(text, sizeof text, "%.*e", precision, x);
    while (strtod(text, NULL) != x && ++precision < 17);
    size_t n = 0;
    const char *p = text;
    for (; *p != 'e'; p++)
        if (*p >= '0' && *p <= '9' && n < 20) digits[n++] = *p;
    *exponent = (int)strtol(p + 1, NULL, 10);
    return n;
}

static void put_zeros(struct json_writer *w, int n) {
    for (int i = 0; i < n; i++) put(w, "0", 1);
}

static void put_real(struct json_writer *w, double x) {
    char digits[20], tail[16];
    int exponent;
    if (signbit(x)) put(w, "-", 1);
    size_t n = shortest_digits(x, digits, &exponent);
    if (exponent < -4 || exponent >= 16) {
        put(w, digits, 1);
        if (n > 1) put(w, ".", 1);
        put(w, digits + 1, n - 1);
        snprintf(tail, sizeof tail, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        put_text(w, tail);
    } else if (exponent < 0) {
        put_text(w, "0.");
        put_zeros(w, -exponent - 1);
        put(w, digits, n);
    } else {
        size_t whole = (size_t)exponent + 1;
        put(w, digits, n < whole ? n : whole);
        if (n < whole) put_zeros(w, (int)(whole - n));
        put(w, ".", 1);
        if (n <= whole)
            put(w, "0", 1);
        else
            put(w, digits + whole, n - whole);
    }
}

static void put_value(struct json_writer *w, const json_t *v);

static void put_comma(struct json_writer *w, bool first) {
    if (!first) put_text(w, w->style == EB_JSON_SPACED ? ", " : ",");
}

static void put_member(struct json_writer *w, const char *key, size_t n, const json_t *v,
                       bool first) {
    put_comma(w, first);
    put_string(w, key, n);
    put_text(w, w->style == EB_JSON_SPACED ? ": " : ":");
    put_value(w, v);
}

struct member {
    const char *key;
    const json_t *value;
};

static int compare_keys(const void *a, const void *b) {
    const struct member *x = a, *y = b;
    return strcmp(x->key, y->key);
}

static void put_sorted(struct json_writer *w, json_t *o) {
    size_t n = json_object_size(o), i = 0;
    if (w->st != EBRO_OK) return;
    struct member *members = eb_calloc(w->a, n, sizeof *members, w->err);
    if (members == NULL) {
        w->st = EBRO_NOMEM_HOST;
        return;
    }
    for (void *at = json_object_iter(o); at != NULL && i < n; at = json_object_iter_next(o, at))
        members[i++] = (struct member){json_object_iter_key(at), json_object_iter_value(at)};
    qsort(members, i, sizeof *members, compare_keys);
    for (size_t k = 0; k < i; k++)
        put_member(w, members[k].key, strlen(members[k].key), members[k].value, k == 0);
    eb_free(w->a, members);
}

static void put_object(struct json_writer *w, const json_t *v) {
    /* jansson's iterators want a mutable object though they only read it. */
    json_t *o = (json_t *)(uintptr_t)v;
    bool first = true;
    put(w, "{", 1);
    if (w->style == EB_JSON_COMPACT_SORTED) {
        put_sorted(w, o);
    } else {
        for (void *at = json_object_iter(o); at != NULL; at = json_object_iter_next(o, at)) {
            const char *key = json_object_iter_key(at);
            put_member(w, key, strlen(key), json_object_iter_value(at), first);
            first = false;
        }
    }
    put(w, "}", 1);
}

static void put_array(struct json_writer *w, const json_t *v) {
    put(w, "[", 1);
    for (size_t i = 0; i < json_array_size(v); i++) {
        put_comma(w, i == 0);
        put_value(w, json_array_get(v, i));
    }
    put(w, "]", 1);
}

static void put_value(struct json_writer *w, const json_t *v) {
    char number[32];
    switch (json_typeof(v)) {
        case JSON_OBJECT:
            put_object(w, v);
            return;
        case JSON_ARRAY:
            put_array(w, v);
            return;
        case JSON_STRING:
            put_string(w, json_string_value(v), json_string_length(v));
            return;
        case JSON_INTEGER:
            snprintf(number, sizeof number, "%lld", (long long)json_integer_value(v));
            put_text(w, number);
            return;
        case JSON_REAL:
            put_real(w, json_real_value(v));
            return;
        case JSON_TRUE:
            put_text(w, "true");
            return;
        case JSON_FALSE:
            put_text(w, "false");
            return;
        case JSON_NULL:
            break;
    }
    put_text(w, "null");
}

int32_t eb_json_write(const struct eb_alloc *a, const void *value, enum eb_json_style style,
                      struct eb_chars *out, ebro_error *err) {
    struct json_writer w = {.a = a, .out = out, .style = style, .err = err, .st = EBRO_OK};
    const size_t before = out->n;
    put_value(&w, value);
    if (w.st != EBRO_OK) out->n = before;
    return w.st;
}
