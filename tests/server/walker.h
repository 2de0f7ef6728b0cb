/* walker.h: for tests of grammars: models with their vocabularies, replies that are walked token by
 * token, and random ones that the masks allow. */
#ifndef EB_TEST_WALKER_H
#define EB_TEST_WALKER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"
#include "tools/serve/grammar.h"

struct world {
    const char *name;
    ebro_model *model;
    struct eb_vocab *vocab;
    uint32_t n_vocab, n_words;
};

enum { MAX_WORLDS = 2 };
static ebro_runtime *walker_runtime;
static struct world worlds[MAX_WORLDS];
static size_t n_worlds;

static inline void open_world(const char *name, const char *path) {
    ebro_error err = {0};
    ebro_model_info info;
    struct world *w = &worlds[n_worlds++];
    const ebro_model_options o = {.size = sizeof o, .path = path};
    test_ok(ebro_model_open(walker_runtime, &o, &w->model, &err), &err);
    test_ok(eb_vocab_create(w->model, &w->vocab, &err), &err);
    ebro_model_get_info(w->model, &info);
    w->name = name;
    w->n_vocab = info.vocab;
    w->n_words = (info.vocab + 31) / 32;
}

/* Kimi K3's format, and Kimi Linear's where the tiny models are. */
static inline int open_worlds(void **state) {
    (void)state;
    ebro_error err = {0};
    const ebro_runtime_options o = {.size = sizeof o, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&o, &walker_runtime, &err), &err);
    open_world("kimi-k3", test_demo_dir());
    if (test_models_dir() != NULL) {
        char path[1024];
        snprintf(path, sizeof path, "%s/kimi-linear-tiny", test_models_dir());
        open_world("kimi-linear", path);
    }
    return 0;
}

static inline int close_worlds(void **state) {
    (void)state;
    while (n_worlds > 0) {
        struct world *w = &worlds[--n_worlds];
        eb_vocab_destroy(&w->vocab);
        assert_null(w->vocab);
        ebro_model_close(&w->model);
    }
    ebro_runtime_close(&walker_runtime);
    return 0;
}

/* ---- texts -------------------------------------------------------------------------------- */

static inline json_t *parse(const char *text) {
    json_error_t why;
    json_t *value = json_loads(text, JSON_DECODE_ANY, &why);
    if (value == NULL) fail_msg("%s: %s", text, why.text);
    return value;
}

static inline struct eb_grammar *make_grammar(const struct eb_grammar_spec *spec) {
    ebro_error err = {0};
    struct eb_grammar *g = NULL;
    test_ok(eb_grammar_create(spec, &g, &err), &err);
    return g;
}

static inline struct eb_walk *make_walk(const struct world *w, const struct eb_grammar *g) {
    ebro_error err = {0};
    struct eb_walk *walk = NULL;
    test_ok(eb_walk_create(g, w->vocab, &walk, &err), &err);
    return walk;
}

/* Accepts what it may of the ids; false: one may not come. */
static inline bool accept_all(struct eb_walk *walk, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        ebro_error err = {0};
        bool may = eb_walk_allows(walk, ids[i]);
        int32_t st = eb_walk_accept(walk, ids[i], &err);
        assert_int_equal(st, may ? EBRO_OK : EBRO_INVALID);
        if (!may) return false;
    }
    return true;
}

static inline bool may_stop(const struct world *w, const struct eb_walk *walk) {
    for (uint32_t id = 0; id < w->n_vocab; id++)
        if (ebro_token_is_stop(w->model, (int32_t)id) && eb_walk_allows(walk, (int32_t)id))
            return true;
    return false;
}

/* True where the text, its control tokens written by name, is a whole reply. bytewise: not as the
 * model would cut it, but in tokens of one byte. */
static inline bool accepts(const struct world *w, const struct eb_grammar *g, const char *text,
                           bool bytewise) {
    size_t bytes = strlen(text), n = 0;
    int32_t *ids = calloc(bytes + 1, sizeof *ids);
    ebro_error err = {0};
    assert_non_null(ids);
    struct eb_walk *walk = make_walk(w, g);
    bool good = true;
    if (bytewise)
        for (size_t i = 0; i < bytes && good; i++) {
            test_ok(ebro_tokenize(w->model, text + i, 1, 0, ids, 1, &n, &err), &err);
            good = n == 1 && accept_all(walk, ids, n);
        }
    else {
        test_ok(ebro_tokenize(w->model, text, bytes, 1, ids, bytes, &n, &err), &err);
        good = accept_all(walk, ids, n);
    }
    good = good && may_stop(w, walk);
    eb_walk_destroy(&walk);
    free(ids);
    return good;
}

/* ---- random replies ----------------------------------------------------------------------- */

struct reply {
    char *text; /* control tokens by name; the stop token is not in it */
    size_t n, room, n_tokens;
    bool over; /* ended with a stop token */
};

static inline void reply_add(struct reply *r, const char *p, size_t n) {
    while (r->n + n + 1 > r->room) r->room = r->room == 0 ? 256 : r->room * 2;
    r->text = realloc(r->text, r->room);
    assert_non_null(r->text);
    memcpy(r->text + r->n, p, n);
    r->n += n;
    r->text[r->n] = '\0';
}

static inline bool in_mask(const uint32_t *mask, int32_t id) {
    return (mask[id / 32] >> (id % 32) & 1) != 0;
}

static inline int32_t any_allowed(const struct world *w, const uint32_t *mask,
                                  struct test_rng *rng) {
    int32_t chosen = -1;
    uint64_t n = 0;
    /* the n-th takes the place with probability 1/n: in the end all are equally likely */
    for (uint32_t id = 0; id < w->n_vocab; id++)
        if (in_mask(mask, (int32_t)id) && test_u64(rng) % ++n == 0) chosen = (int32_t)id;
    assert_true(chosen >= 0);
    return chosen;
}

/* A token that is allowed and leads to an end where it can: stop and control tokens first, then
 * what closes a value; -1: none of those. */
static inline int32_t closing(const struct world *w, const uint32_t *mask) {
    static const char *const closers[] = {
        "<|close|>", "<|tool_call_end|>", "<|tool_calls_section_end|>", "\"", "}", "]", "n", "1"};
    for (uint32_t id = 0; id < w->n_vocab; id++)
        if (in_mask(mask, (int32_t)id) && ebro_token_is_stop(w->model, (int32_t)id))
            return (int32_t)id;
    for (size_t i = 0; i < sizeof closers / sizeof *closers; i++) {
        int32_t ids[24];
        size_t n = 0;
        int32_t st = ebro_tokenize(w->model, closers[i], strlen(closers[i]), 1, ids, 24, &n, NULL);
        if (st == EBRO_OK && n == 1 && in_mask(mask, ids[0])) return ids[0];
    }
    return -1;
}

static inline void check_mask(const struct world *w, const struct eb_walk *walk,
                              const uint32_t *mask) {
    for (uint32_t id = 0; id < w->n_vocab; id++)
        if (in_mask(mask, (int32_t)id) != eb_walk_allows(walk, (int32_t)id))
            fail_msg("%s: token %u: the mask says %d", w->name, id, in_mask(mask, (int32_t)id));
}

/* Goes on at random for n_free tokens, then towards the end; fails where that takes more than
 * n_most tokens. One mask in `every` is compared with what single tokens are told. */
static inline struct reply random_reply(const struct world *w, const struct eb_grammar *g,
                                        struct test_rng *rng, size_t n_free, size_t n_most,
                                        size_t every) {
    struct reply r = {0};
    ebro_error err = {0};
    struct eb_walk *walk = make_walk(w, g);
    uint32_t *mask = malloc(w->n_words * sizeof *mask);
    assert_non_null(mask);
    reply_add(&r, "", 0);
    while (!r.over && r.n_tokens < n_most) {
        size_t bytes = 0;
        memset(mask, 0xa5, w->n_words * sizeof *mask);
        test_ok(eb_walk_mask(walk, mask, &err), &err);
        if (r.n_tokens % every == 0) check_mask(w, walk, mask);
        int32_t id = r.n_tokens >= n_free ? closing(w, mask) : -1;
        if (id < 0) id = any_allowed(w, mask, rng);
        test_ok(eb_walk_accept(walk, id, &err), &err);
        r.over = ebro_token_is_stop(w->model, id) != 0;
        const char *p = ebro_token_bytes(w->model, id, &bytes, NULL);
        if (!r.over) reply_add(&r, p, bytes);
        r.n_tokens++;
    }
    if (!r.over) fail_msg("%s: no end after %zu tokens: %.200s", w->name, r.n_tokens, r.text);
    assert_true(eb_walk_is_over(walk));
    free(mask);
    eb_walk_destroy(&walk);
    return r;
}

#endif
