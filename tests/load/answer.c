#include "tests/load/answer.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tests/harness/test.h"

enum { HEAD_BYTES = 1 << 15, BODY_BYTES = 1 << 26 };

void load_answer_reset(struct load_answer *a) {
    const struct load_answer old = *a;
    *a = (struct load_answer){.in = old.in, .room = old.room};
    free(old.body);
}

void load_answer_free(struct load_answer *a) {
    free(a->in);
    free(a->body);
    *a = (struct load_answer){0};
}

static void hold(struct load_answer *a, const char *bytes, size_t n) {
    if (a->n_held > 0 && a->at > 0) memmove(a->in, a->in + a->at, a->n_held);
    a->at = 0;
    if (a->n_held + n + 1 > a->room) {
        a->room = 2 * (a->n_held + n + 1);
        a->in = realloc(a->in, a->room);
        assert_non_null(a->in);
    }
    memcpy(a->in + a->n_held, bytes, n);
    a->n_held += n;
    a->in[a->n_held] = '\0';
}

static void take(struct load_answer *a, size_t n) {
    a->at += n;
    a->n_held -= n;
}

static void append(struct load_answer *a, const char *bytes, size_t n) {
    /* by powers of two, from 256 on */
    size_t have = a->body != NULL ? 256 : 0, need = a->n_body + n + 1;
    while (have > 0 && have <= a->n_body) have *= 2;
    if (need > have) {
        size_t room = 256;
        while (room < need) room *= 2;
        a->body = realloc(a->body, room);
        assert_non_null(a->body);
    }
    memcpy(a->body + a->n_body, bytes, n);
    a->n_body += n;
    a->body[a->n_body] = '\0';
}

/* The value of a header of the head, or NULL. */
static const char *header(const char *head, const char *end, const char *name) {
    const size_t n = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line != NULL && line < end;
         line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, name, n) != 0 || line[2 + n] != ':') continue;
        const char *value = line + 3 + n;
        return value + strspn(value, " ");
    }
    return NULL;
}

static enum load_answer_state read_head(struct load_answer *a) {
    const char *head = a->in + a->at, *end = strstr(head, "\r\n\r\n"), *value;
    if (end == NULL) return a->n_held > HEAD_BYTES ? LOAD_ANSWER_BROKEN : LOAD_ANSWER_MORE;
    if (strncmp(head, "HTTP/1.1 ", 9) != 0 && strncmp(head, "HTTP/1.0 ", 9) != 0)
        return LOAD_ANSWER_BROKEN;
    long status = strtol(head + 9, NULL, 10);
    if (status < 100 || status > 599) return LOAD_ANSWER_BROKEN;
    if ((value = header(head, end, "Content-Length")) != NULL) {
        a->sized = true;
        a->rest = (size_t)strtoull(value, NULL, 10);
        if (a->rest > BODY_BYTES) return LOAD_ANSWER_BROKEN;
    }
    value = header(head, end, "Transfer-Encoding");
    a->chunked = value != NULL && strncasecmp(value, "chunked", 7) == 0;
    value = header(head, end, "Connection");
    a->closes = value != NULL && strncasecmp(value, "close", 5) == 0;
    value = header(head, end, "Content-Type");
    a->is_stream = value != NULL && strncasecmp(value, "text/event-stream", 17) == 0;
    take(a, (size_t)(end - head) + 4);
    if (status < 200) return LOAD_ANSWER_MORE; /* "100 Continue": another head follows */
    a->status = (int)status;
    return LOAD_ANSWER_MORE;
}

static enum load_answer_state read_sized(struct load_answer *a) {
    size_t n = a->n_held < a->rest ? a->n_held : a->rest;
    append(a, a->in + a->at, n);
    take(a, n);
    a->rest -= n;
    if (a->rest > 0) return LOAD_ANSWER_MORE;
    return a->n_held == 0 ? LOAD_ANSWER_WHOLE : LOAD_ANSWER_BROKEN;
}

/* One chunk, or part of one: "SIZE\r\n" bytes "\r\n"; the last has size 0. `rest` counts the bytes
 * and their line end. */
static enum load_answer_state read_chunk(struct load_answer *a, bool *more) {
    const char *in = a->in + a->at;
    *more = false;
    if (a->rest == 0) {
        char *stop;
        const char *line = strstr(in, "\r\n");
        if (line == NULL) return a->n_held > 32 ? LOAD_ANSWER_BROKEN : LOAD_ANSWER_MORE;
        size_t size = (size_t)strtoull(in, &stop, 16);
        if (stop == in || stop != line || size > BODY_BYTES) return LOAD_ANSWER_BROKEN;
        if (size == 0) {
            if (a->n_held < 5) return LOAD_ANSWER_MORE;
            return a->n_held == 5 && memcmp(in, "0\r\n\r\n", 5) == 0 ? LOAD_ANSWER_WHOLE
                                                                     : LOAD_ANSWER_BROKEN;
        }
        take(a, (size_t)(line - in) + 2);
        a->rest = size + 2;
    }
    size_t n = a->n_held < a->rest ? a->n_held : a->rest;
    size_t n_data = a->rest <= 2 ? 0 : (n < a->rest - 2 ? n : a->rest - 2);
    append(a, a->in + a->at, n_data);
    take(a, n);
    a->rest -= n;
    *more = a->rest == 0 && a->n_held > 0;
    return LOAD_ANSWER_MORE;
}

enum load_answer_state load_answer_push(struct load_answer *a, const char *bytes, size_t n) {
    enum load_answer_state state = LOAD_ANSWER_MORE;
    hold(a, bytes, n);
    a->n_in += n;
    while (a->status == 0) {
        const size_t held = a->n_held;
        state = read_head(a);
        if (state != LOAD_ANSWER_MORE || a->n_held == held) return state;
    }
    if (a->chunked) {
        bool more = a->n_held > 0;
        while (more && state == LOAD_ANSWER_MORE) state = read_chunk(a, &more);
        return state;
    }
    if (a->sized) return read_sized(a);
    append(a, a->in + a->at, a->n_held);
    take(a, a->n_held);
    return a->n_body > BODY_BYTES ? LOAD_ANSWER_BROKEN : LOAD_ANSWER_MORE;
}

enum load_answer_state load_answer_end(const struct load_answer *a) {
    return a->status != 0 && !a->chunked && !a->sized ? LOAD_ANSWER_WHOLE : LOAD_ANSWER_BROKEN;
}
