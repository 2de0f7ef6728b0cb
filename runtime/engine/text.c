/* text.c: ebro_text_stream: bytes of tokens in, text that may be shown out. Holds back what may
 * turn out to be the start of a stop string, and a character whose last bytes are not there yet.
 * Works byte by byte, so that the result does not depend on how the bytes arrive.
 *
 * Each stop string is looked for by Knuth, Morris and Pratt's method: `matched` is the length of
 * the longest start of it that the text ends with. */
#include <string.h>

#include "device/runtime.h"

struct stop {
    const char *text;
    size_t n, matched;
    size_t *border; /* [n]: of text[0 .. i]: the longest start that is also an end, not all of it */
};

struct ebro_text_stream {
    struct eb_alloc alloc;
    struct stop *stops;
    size_t n_stops;
    char *texts;     /* of all stops */
    size_t *borders; /* of all stops */
    /* held[0 .. n_given) was handed out by the last call, held[n_given .. n_held) is held back. */
    char *held;
    size_t n_held, n_given, capacity;
    bool ended;
};

static void find_borders(struct stop *s) {
    size_t k = 0;
    s->border[0] = 0;
    for (size_t i = 1; i < s->n; i++) {
        while (k > 0 && s->text[i] != s->text[k]) k = s->border[k - 1];
        if (s->text[i] == s->text[k]) k++;
        s->border[i] = k;
    }
}

static int32_t measure(const char *const *stops, size_t n, size_t *total, ebro_error *err) {
    *total = 0;
    if (n > 0 && stops == NULL) {
        return eb_fail(err, EBRO_INVALID, "stops is NULL, n_stops is %zu", n);
    }
    for (size_t i = 0; i < n; i++) {
        if (stops[i] == NULL || stops[i][0] == '\0') {
            return eb_fail(err, EBRO_INVALID, "stops[%zu] is %s", i,
                           stops[i] == NULL ? "NULL" : "empty");
        }
        *total += strlen(stops[i]);
    }
    return EBRO_OK;
}

int32_t ebro_text_stream_create(ebro_runtime *runtime, const char *const *stops, size_t n_stops,
                                ebro_text_stream **out, ebro_error *err) {
    if (runtime == NULL || out == NULL) {
        return eb_fail(err, EBRO_INVALID,
                       "ebro_text_stream_create: runtime and out must not be NULL");
    }
    *out = NULL;
    size_t total, at = 0;
    int32_t st = measure(stops, n_stops, &total, err);
    if (st != EBRO_OK) return st;
    const struct eb_alloc *a = &runtime->alloc;
    ebro_text_stream *t = eb_calloc(a, 1, sizeof *t, err);
    if (t == NULL) return EBRO_NOMEM_HOST;
    t->alloc = *a;
    t->stops = eb_calloc(a, n_stops, sizeof *t->stops, err);
    if (t->stops != NULL) t->texts = eb_calloc(a, total, 1, err);
    if (t->texts != NULL) t->borders = eb_calloc(a, total, sizeof *t->borders, err);
    if (t->borders == NULL) {
        ebro_text_stream_destroy(&t);
        return EBRO_NOMEM_HOST;
    }
    t->n_stops = n_stops;
    for (size_t i = 0; i < n_stops; i++) {
        size_t n = strlen(stops[i]);
        memcpy(t->texts + at, stops[i], n);
        t->stops[i] = (struct stop){.text = t->texts + at, .n = n, .border = t->borders + at};
        find_borders(&t->stops[i]);
        at += n;
    }
    *out = t;
    return EBRO_OK;
}

void ebro_text_stream_destroy(ebro_text_stream **stream) {
    if (stream == NULL || *stream == NULL) return;
    ebro_text_stream *t = *stream;
    const struct eb_alloc a = t->alloc;
    *stream = NULL;
    eb_free(&a, t->held);
    eb_free(&a, t->borders);
    eb_free(&a, t->texts);
    eb_free(&a, t->stops);
    eb_free(&a, t);
}

/* Takes one more byte of text; returns the length of the longest stop that ends with it, 0: none.
 */
static size_t advance(ebro_text_stream *t, char byte) {
    size_t longest = 0;
    for (size_t i = 0; i < t->n_stops; i++) {
        struct stop *s = &t->stops[i];
        size_t k = s->matched;
        while (k > 0 && s->text[k] != byte) k = s->border[k - 1];
        if (s->text[k] == byte) k++;
        s->matched = k;
        if (k == s->n && k > longest) longest = k;
    }
    return longest;
}

static size_t longest_start(const ebro_text_stream *t) {
    size_t most = 0;
    for (size_t i = 0; i < t->n_stops; i++) {
        if (t->stops[i].matched > most) most = t->stops[i].matched;
    }
    return most;
}

static unsigned character_bytes(unsigned char first) {
    if (first >= 0xc2 && first <= 0xdf) return 2;
    if (first >= 0xe0 && first <= 0xef) return 3;
    if (first >= 0xf0 && first <= 0xf4) return 4;
    return 1; /* ASCII, or no start of a character: passed on as it is */
}

static bool continues(char byte) {
    return ((unsigned char)byte & 0xc0u) == 0x80u;
}

/* The largest end <= `end` of held[0 .. n_held) that does not cut a character that is, or may still
 * become, whole. A character that another byte has broken off is not waited for. */
static size_t whole_characters(const ebro_text_stream *t, size_t end) {
    if (end < t->n_held && !continues(t->held[end])) return end;
    for (size_t back = 1; back <= 3 && back <= end; back++) {
        char byte = t->held[end - back];
        if (continues(byte)) continue;
        return character_bytes((unsigned char)byte) > back ? end - back : end;
    }
    return end;
}

static void give(ebro_text_stream *t, size_t n, const char **text, size_t *text_bytes) {
    t->n_given = n;
    *text = n > 0 ? t->held : "";
    *text_bytes = n;
}

static int32_t check_call(const ebro_text_stream *t, const char **text, const size_t *text_bytes,
                          ebro_error *err) {
    if (t != NULL && text != NULL && text_bytes != NULL) return EBRO_OK;
    return eb_fail(err, EBRO_INVALID,
                   "ebro_text_stream: stream, text and text_bytes must not be NULL");
}

static void drop_given(ebro_text_stream *t) {
    if (t->n_given == 0) return;
    memmove(t->held, t->held + t->n_given, t->n_held - t->n_given);
    t->n_held -= t->n_given;
    t->n_given = 0;
}

int32_t ebro_text_stream_push(ebro_text_stream *stream, const char *bytes, size_t n,
                              const char **text, size_t *text_bytes, int32_t *stopped,
                              ebro_error *err) {
    int32_t st = check_call(stream, text, text_bytes, err);
    if (st != EBRO_OK) return st;
    *text = "";
    *text_bytes = 0;
    if (stopped == NULL || (bytes == NULL && n > 0)) {
        return eb_fail(err, EBRO_INVALID, "ebro_text_stream_push: %s is NULL",
                       stopped == NULL ? "stopped" : "bytes");
    }
    *stopped = stream->ended;
    drop_given(stream);
    if (stream->ended || n == 0) return EBRO_OK;
    if (n > SIZE_MAX - stream->n_held) {
        return eb_fail(err, EBRO_INVALID, "ebro_text_stream_push: %zu bytes are too many", n);
    }
    void *held = stream->held;
    st = eb_grow(&stream->alloc, &held, &stream->capacity, stream->n_held + n, 1, err);
    stream->held = held;
    if (st != EBRO_OK) return st;
    for (size_t i = 0; i < n; i++) {
        stream->held[stream->n_held++] = bytes[i];
        size_t match = advance(stream, bytes[i]);
        if (match == 0) continue;
        /* What is not held any more was no part of a start of this stop, so it lies before. */
        stream->n_held -= match;
        stream->ended = true;
        *stopped = 1;
        give(stream, stream->n_held, text, text_bytes);
        return EBRO_OK;
    }
    give(stream, whole_characters(stream, stream->n_held - longest_start(stream)), text,
         text_bytes);
    return EBRO_OK;
}

int32_t ebro_text_stream_finish(ebro_text_stream *stream, const char **text, size_t *text_bytes,
                                ebro_error *err) {
    int32_t st = check_call(stream, text, text_bytes, err);
    if (st != EBRO_OK) return st;
    drop_given(stream);
    stream->ended = true;
    give(stream, stream->n_held, text, text_bytes);
    return EBRO_OK;
}
