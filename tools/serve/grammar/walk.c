/* walk.c: a reply's way through its grammar, token by token. */
#include <stdlib.h>
#include <string.h>

#include "compiled.h"
#include "states.h"
#include "vocab.h"

struct eb_walk {
    const struct eb_vocab *vocab;
    /* Where the reply stands. The rest is what was learned on the way: asking changes that. */
    struct eb_states states;
    int32_t at;
    int32_t *path; /* [max_depth + 1] states along a branch of the vocabulary */
};

static int32_t explain(int32_t failure, ebro_error *err) {
    if (failure == EBRO_UNSUPPORTED)
        return eb_grammar_fail(err, EBRO_UNSUPPORTED,
                               "the grammar is more ambiguous than what is bounded: %d ways to go "
                               "on at once",
                               EB_MAX_PLACES);
    return eb_grammar_fail(err, EBRO_NOMEM_HOST, "no memory for the states of a grammar");
}

int32_t eb_walk_create(const struct eb_grammar *grammar, const struct eb_vocab *vocab,
                       struct eb_walk **out, ebro_error *err) {
    *out = NULL;
    struct eb_walk *w = calloc(1, sizeof *w);
    int32_t *path = malloc(((size_t)vocab->max_depth + 1) * sizeof *path);
    if (w == NULL || path == NULL) {
        free(w);
        free(path);
        return eb_grammar_fail(err, EBRO_NOMEM_HOST, "no memory for a walk through a grammar");
    }
    w->vocab = vocab;
    w->path = path;
    w->at = eb_states_begin(&w->states, &grammar->program);
    int32_t st = EBRO_OK;
    if (w->at == EB_STATE_FAILED) st = explain(w->states.failure, err);
    if (w->at == EB_STATE_DEAD)
        st = eb_grammar_fail(err, EBRO_INTERNAL, "a grammar that was linked leads nowhere");
    if (st == EBRO_OK)
        *out = w;
    else
        eb_walk_destroy(&w);
    return st;
}

void eb_walk_destroy(struct eb_walk **walk) {
    if (walk == NULL || *walk == NULL) return;
    eb_states_clear(&(*walk)->states);
    free((*walk)->path);
    free(*walk);
    *walk = NULL;
}

/* The state after a token; EB_STATE_DEAD, EB_STATE_FAILED as in states.h. */
static int32_t after(struct eb_walk *w, int32_t id) {
    size_t n = 0;
    int32_t special = 0, state = w->at;
    const char *bytes = ebro_token_bytes(w->vocab->model, id, &n, &special);
    bool stop = ebro_token_is_stop(w->vocab->model, id) != 0;
    if (bytes == NULL) return EB_STATE_DEAD;
    if (special || stop) {
        int32_t next = eb_states_control(&w->states, state, id, stop);
        if (special || next != EB_STATE_DEAD) return next;
    }
    for (size_t i = 0; i < n && state >= 0; i++)
        state = eb_states_byte(&w->states, state, (unsigned char)bytes[i]);
    return n > 0 ? state : EB_STATE_DEAD;
}

/* Whoever asks changes nothing but what is remembered. */
static struct eb_walk *thinking(const struct eb_walk *walk) {
    return (struct eb_walk *)walk;
}

bool eb_walk_allows(const struct eb_walk *walk, int32_t id) {
    struct eb_walk *w = thinking(walk);
    w->at = eb_states_tidy(&w->states, w->at);
    return after(w, id) >= 0;
}

int32_t eb_walk_accept(struct eb_walk *walk, int32_t id, ebro_error *err) {
    walk->at = eb_states_tidy(&walk->states, walk->at);
    int32_t next = after(walk, id);
    if (next == EB_STATE_FAILED) return explain(walk->states.failure, err);
    if (next == EB_STATE_DEAD)
        return eb_grammar_fail(err, EBRO_INVALID, "token %d may not come next", id);
    walk->at = next;
    return EBRO_OK;
}

bool eb_walk_is_over(const struct eb_walk *walk) {
    bool alone = false;
    return eb_states_may_stop(&walk->states, walk->at, &alone) && alone;
}

/* ---- all tokens at once ------------------------------------------------------------------- */

static bool allow(uint32_t *mask, int32_t id) {
    mask[id / 32] |= UINT32_C(1) << (id % 32);
    return true;
}

/* Text that begins alike is walked once; a branch that is dead is left out. */
static bool mask_text(struct eb_walk *w, uint32_t *mask, int32_t *failure) {
    const struct eb_vocab *v = w->vocab;
    bool any = false;
    w->path[0] = w->at;
    for (uint32_t i = 0; i < v->n_nodes;) {
        const struct eb_vocab_node *node = &v->nodes[i];
        int32_t next = eb_states_byte(&w->states, w->path[node->depth - 1], node->byte);
        if (next == EB_STATE_FAILED) *failure = w->states.failure;
        if (next < 0) {
            i = node->skip;
            continue;
        }
        w->path[node->depth] = next;
        if (node->token >= 0) any = allow(mask, node->token);
        i++;
    }
    return any;
}

/* Control tokens, and stop tokens whatever they are. */
static bool mask_control(struct eb_walk *w, uint32_t *mask, int32_t *failure) {
    const struct eb_vocab *v = w->vocab;
    bool any = false, alone = false;
    for (uint32_t i = 0; i < v->special.n; i++) {
        int32_t next = after(w, v->special.v[i]);
        if (next == EB_STATE_FAILED) *failure = w->states.failure;
        if (next >= 0) any = allow(mask, v->special.v[i]);
    }
    if (!eb_states_may_stop(&w->states, w->at, &alone)) return any;
    for (uint32_t i = 0; i < v->stops.n; i++) any = allow(mask, v->stops.v[i]);
    return any;
}

int32_t eb_walk_mask(const struct eb_walk *walk, uint32_t *mask, ebro_error *err) {
    struct eb_walk *w = thinking(walk);
    int32_t failure = EBRO_OK;
    w->at = eb_states_tidy(&w->states, w->at);
    memset(mask, 0, ((size_t)w->vocab->n_tokens + 31) / 32 * sizeof *mask);
    bool text = mask_text(w, mask, &failure);
    bool control = mask_control(w, mask, &failure);
    if (failure != EBRO_OK) return explain(failure, err);
    if (!text && !control) return eb_grammar_fail(err, EBRO_INTERNAL, "a grammar allows no token");
    return EBRO_OK;
}
