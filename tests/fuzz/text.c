/* text.c: a text stream gives the same text however its bytes are cut: what stands before the first
 * stop string that is complete, found here by trying every place; and it shows no part of a
 * character while the rest may still come. The stop strings are the lines of the input but its
 * last, which is the text. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ebro/ebro.h"

enum { MAX_BYTES = 160, MAX_STOPS = 6 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void must(int condition) {
    if (!condition) abort();
}

struct input {
    char text[MAX_BYTES + 1];
    size_t n_text;
    char stop_bytes[MAX_BYTES + MAX_STOPS];
    const char *stops[MAX_STOPS];
    size_t n_stops;
};

static void split(const uint8_t *data, size_t bytes, struct input *in) {
    size_t at = 0, used = 0;
    in->n_stops = 0;
    while (in->n_stops < MAX_STOPS) {
        const uint8_t *end = memchr(data + at, '\n', bytes - at);
        if (end == NULL) break;
        size_t n = (size_t)(end - (data + at));
        /* A stop string is a C string with something in it. */
        if (n > 0 && memchr(data + at, 0, n) == NULL) {
            memcpy(in->stop_bytes + used, data + at, n);
            in->stop_bytes[used + n] = '\0';
            in->stops[in->n_stops++] = in->stop_bytes + used;
            used += n + 1;
        }
        at += n + 1;
    }
    in->n_text = bytes - at;
    memcpy(in->text, data + at, in->n_text);
}

/* Bytes before the stop that is complete first; of several that are, before the longest. */
static size_t shown_bytes(const struct input *in, int *stopped) {
    for (size_t end = 1; end <= in->n_text; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < in->n_stops; i++) {
            size_t n = strlen(in->stops[i]);
            if (n <= end && n > longest && memcmp(in->text + end - n, in->stops[i], n) == 0)
                longest = n;
        }
        if (longest > 0) {
            *stopped = 1;
            return end - longest;
        }
    }
    *stopped = 0;
    return in->n_text;
}

/* True where the last bytes are the start of a character and nothing else. */
static bool ends_inside_character(const char *s, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)s[n - back];
        if (c < 0x80) return false;
        if (c >= 0xc2 && c <= 0xf4) return (c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2) > (int)back;
        if (c >= 0xc0) return false;
    }
    return false;
}

/* Cuts where bit i of `cuts` (counted round and round) says so; 0: nowhere. */
static void check(ebro_runtime *rt, const struct input *in, uint64_t cuts, size_t want,
                  int want_stopped) {
    ebro_text_stream *t = NULL;
    char got[MAX_BYTES];
    size_t n_got = 0;
    int32_t stopped = 0;
    must(ebro_text_stream_create(rt, in->stops, in->n_stops, &t, NULL) == EBRO_OK);
    for (size_t at = 0; at < in->n_text;) {
        size_t n = 1, n_piece = 0;
        const char *piece = NULL;
        while (at + n < in->n_text && (cuts >> (at + n) % 64 & 1) == 0) n++;
        must(ebro_text_stream_push(t, in->text + at, n, &piece, &n_piece, &stopped, NULL) == 0);
        must(n_piece <= want - n_got);
        memcpy(got + n_got, piece, n_piece);
        n_got += n_piece;
        at += n;
        /* Unless the byte behind it is there and does not go on with it. */
        bool broken_off = n_got < at && ((unsigned char)in->text[n_got] & 0xc0u) != 0x80u;
        must(stopped || broken_off || !ends_inside_character(got, n_got));
    }
    const char *rest = NULL;
    size_t n_rest = 0;
    must(ebro_text_stream_finish(t, &rest, &n_rest, NULL) == EBRO_OK);
    must(n_rest == want - n_got && (!stopped || n_rest == 0));
    memcpy(got + n_got, rest, n_rest);
    must(stopped == want_stopped && memcmp(got, in->text, want) == 0);
    must(ebro_text_stream_finish(t, &rest, &n_rest, NULL) == EBRO_OK && n_rest == 0);
    ebro_text_stream_destroy(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static ebro_runtime *rt;
    struct input in;
    int stopped = 0;
    if (bytes < 1 || bytes > MAX_BYTES) return 0;
    if (rt == NULL) {
        const ebro_runtime_options o = {.size = sizeof o, .module_dir = "/"};
        must(ebro_runtime_open(&o, &rt, NULL) == EBRO_OK);
    }
    split(data, bytes, &in);
    size_t want = shown_bytes(&in, &stopped);
    check(rt, &in, 0, want, stopped);
    check(rt, &in, UINT64_MAX, want, stopped);
    check(rt, &in, 0x5555555555555555u, want, stopped);
    uint64_t cuts = 0x9e3779b97f4a7c15u * (data[bytes - 1] + bytes);
    check(rt, &in, cuts, want, stopped);
    check(rt, &in, cuts & cuts >> 7, want, stopped);
    for (size_t i = 0; i < 64 && i < in.n_text; i++)
        check(rt, &in, UINT64_C(1) << i, want, stopped);
    return 0;
}
