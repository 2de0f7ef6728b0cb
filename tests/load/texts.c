#include "tests/load/texts.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

static const char *const beginnings[] = {
    "The whale is",       "Once upon a time", "In the year 1850 the", "A good meal begins",
    "The king said that", "My brother and I", "Nobody knew why the",  "The first machine to",
};
enum { N_BEGINNINGS = sizeof beginnings / sizeof beginnings[0] };

void load_text_make(struct load_text *t, uint32_t i, uint32_t n_tokens, uint64_t seed) {
    char body[512];
    snprintf(body, sizeof body,
             "{\"prompt\":\"Text %u. %s\",\"max_tokens\":%u,\"temperature\":%d,\"seed\":%llu,"
             "\"ignore_eos\":true,\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
             i, beginnings[i % N_BEGINNINGS], n_tokens, seed != 0, (unsigned long long)seed);
    memset(t, 0, sizeof *t);
    t->request = load_request("/v1/completions", body, &t->n_request);
}

void load_text_free(struct load_text *t) {
    free(t->request);
    t->request = NULL;
}

static void add_piece(struct load_text *t, const char *piece, size_t n) {
    const double now = load_now();
    if (n == 0) return;
    assert_true(t->n_text + n < TEXTS_BYTES);
    memcpy(t->text + t->n_text, piece, n);
    t->n_text += (uint32_t)n;
    if (t->first == 0) {
        t->first = now;
    } else if (t->n_gaps < TEXTS_GAPS) {
        t->gaps[t->n_gaps++] = (float)(now - t->last);
    }
    t->last = now;
}

static void on_event(struct load_call *call, const char *data, size_t n) {
    struct load_text *t = call->user;
    if (n == 6 && memcmp(data, "[DONE]", 6) == 0) return;
    json_error_t e;
    json_t *event = json_loadb(data, n, JSON_ALLOW_NUL, &e);
    if (event == NULL) fail_msg("an event is no JSON: %s: %.*s", e.text, (int)n, data);
    json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    json_t *text = json_object_get(choice, "text"), *usage = json_object_get(event, "usage");
    if (text != NULL) add_piece(t, json_string_value(text), json_string_length(text));
    if (json_is_object(usage))
        t->n_tokens = (uint32_t)json_integer_value(json_object_get(usage, "completion_tokens"));
    json_decref(event);
}

static void on_end(struct load_call *call, enum load_end how) {
    struct load_text *t = call->user;
    t->how = how;
    if (how != LOAD_DONE || call->status != 200)
        print_message("a stream ended as %d with %d: %s\n", (int)how, call->status, call->body);
}

void load_text_start(struct load_text *t, struct load_client *client, uint32_t lane) {
    t->call = (struct load_call){.request = t->request,
                                 .n_request = t->n_request,
                                 .seconds = 300,
                                 .on_event = on_event,
                                 .on_end = on_end,
                                 .user = t};
    t->n_text = t->n_tokens = t->n_gaps = 0;
    t->first = t->last = 0;
    load_start(client, lane, &t->call);
}

void load_text_check(const struct load_text *t) {
    assert_int_equal(t->how, LOAD_DONE);
    assert_int_equal(t->call.status, 200);
    assert_true(t->n_tokens > 0);
}
