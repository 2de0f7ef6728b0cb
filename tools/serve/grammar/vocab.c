/* vocab.c: the vocabulary as a tree of bytes. Control tokens are not in it: none of their bytes is
 * text. */
#include "vocab.h"

#include <stdlib.h>
#include <string.h>

#include "program.h"

struct token {
    const char *bytes;
    size_t n;
    int32_t id;
};

static int by_bytes(const void *a, const void *b) {
    const struct token *s = a, *t = b;
    int order = memcmp(s->bytes, t->bytes, s->n < t->n ? s->n : t->n);
    if (order != 0) return order;
    if (s->n != t->n) return s->n < t->n ? -1 : 1;
    return s->id < t->id ? -1 : s->id > t->id;
}

static int32_t out_of_memory(const struct eb_vocab *v, ebro_error *err) {
    return eb_grammar_fail(err, EBRO_NOMEM_HOST, "no memory for a tree of %u tokens", v->n_tokens);
}

static int32_t keep_id(struct eb_vocab *v, struct eb_vocab_ids *ids, int32_t id, ebro_error *err) {
    if (!eb_grammar_grow(&ids->v, &ids->room, (size_t)ids->n + 1, sizeof id))
        return out_of_memory(v, err);
    ids->v[ids->n++] = id;
    return EBRO_OK;
}

/* Tokens of text into list[*n]; control tokens into v. */
static int32_t read_tokens(struct eb_vocab *v, struct token *list, uint32_t *n, ebro_error *err) {
    *n = 0;
    for (uint32_t id = 0; id < v->n_tokens; id++) {
        struct token t = {.id = (int32_t)id};
        int32_t special = 0, st = EBRO_OK;
        t.bytes = ebro_token_bytes(v->model, t.id, &t.n, &special);
        if (t.bytes == NULL) continue;
        if (special)
            st = keep_id(v, &v->special, t.id, err);
        else if (t.n > UINT16_MAX)
            st = eb_grammar_fail(err, EBRO_UNSUPPORTED,
                                 "token %u of the vocabulary has %zu bytes; at most %d are known "
                                 "how to walk",
                                 id, t.n, UINT16_MAX);
        else if (t.n > 0)
            list[(*n)++] = t;
        if (st != EBRO_OK) return st;
    }
    return EBRO_OK;
}

/* Where no other token fits, one of a single byte does: so no walk ends for want of a token. */
static int32_t check_bytes(const struct token *list, uint32_t n, ebro_error *err) {
    bool seen[256] = {false};
    for (uint32_t i = 0; i < n; i++)
        if (list[i].n == 1) seen[(unsigned char)list[i].bytes[0]] = true;
    for (int c = 0; c < 256; c++)
        if (!seen[c])
            return eb_grammar_fail(err, EBRO_UNSUPPORTED,
                                   "the vocabulary has no token for the byte 0x%02x; a grammar "
                                   "needs one for each byte",
                                   (unsigned)c);
    return EBRO_OK;
}

static int32_t read_stops(struct eb_vocab *v, ebro_error *err) {
    int32_t st = EBRO_OK;
    for (uint32_t id = 0; id < v->n_tokens && st == EBRO_OK; id++)
        if (ebro_token_is_stop(v->model, (int32_t)id)) st = keep_id(v, &v->stops, (int32_t)id, err);
    if (st == EBRO_OK && v->stops.n == 0)
        st = eb_grammar_fail(err, EBRO_UNSUPPORTED,
                             "the model has no stop token; a grammar needs one to end a reply");
    return st;
}

static size_t common_bytes(const struct token *s, const struct token *t) {
    size_t n = 0;
    while (n < s->n && n < t->n && s->bytes[n] == t->bytes[n]) n++;
    return n;
}

static int32_t add_nodes(struct eb_vocab *v, const struct token *t, size_t from, ebro_error *err) {
    if (!eb_grammar_grow(&v->nodes, &v->nodes_room, v->n_nodes + (t->n - from), sizeof *v->nodes))
        return out_of_memory(v, err);
    for (size_t i = from; i < t->n; i++)
        v->nodes[v->n_nodes++] = (struct eb_vocab_node){.token = i + 1 == t->n ? t->id : -1,
                                                        .depth = (uint16_t)(i + 1),
                                                        .byte = (uint8_t)t->bytes[i]};
    if (t->n > v->max_depth) v->max_depth = (uint32_t)t->n;
    return EBRO_OK;
}

/* A node's subtree ends at the next node that is no deeper; open[d] is the last one of depth d + 1,
 * not ended yet. */
static int32_t find_skips(struct eb_vocab *v, ebro_error *err) {
    uint32_t *open = malloc(((size_t)v->max_depth + 1) * sizeof *open), n_open = 0;
    if (open == NULL) return out_of_memory(v, err);
    for (uint32_t i = 0; i < v->n_nodes; i++) {
        while (n_open >= v->nodes[i].depth) v->nodes[open[--n_open]].skip = i;
        open[n_open++] = i;
    }
    while (n_open > 0) v->nodes[open[--n_open]].skip = v->n_nodes;
    free(open);
    return EBRO_OK;
}

static int32_t make_tree(struct eb_vocab *v, struct token *list, uint32_t n, ebro_error *err) {
    int32_t st = EBRO_OK;
    qsort(list, n, sizeof *list, by_bytes);
    for (uint32_t i = 0; i < n && st == EBRO_OK; i++) {
        size_t from = i > 0 ? common_bytes(&list[i - 1], &list[i]) : 0;
        st = add_nodes(v, &list[i], from, err);
    }
    return st == EBRO_OK ? find_skips(v, err) : st;
}

static int32_t fill(struct eb_vocab *v, ebro_error *err) {
    ebro_model_info info;
    uint32_t n = 0;
    ebro_model_get_info(v->model, &info);
    v->n_tokens = info.vocab;
    struct token *list = calloc((size_t)v->n_tokens + 1, sizeof *list);
    if (list == NULL) return out_of_memory(v, err);
    int32_t st = read_tokens(v, list, &n, err);
    if (st == EBRO_OK) st = check_bytes(list, n, err);
    if (st == EBRO_OK) st = read_stops(v, err);
    if (st == EBRO_OK) st = make_tree(v, list, n, err);
    free(list);
    return st;
}

int32_t eb_vocab_create(const ebro_model *model, struct eb_vocab **out, ebro_error *err) {
    *out = NULL;
    struct eb_vocab *v = calloc(1, sizeof *v);
    if (v == NULL) return eb_grammar_fail(err, EBRO_NOMEM_HOST, "no memory for a vocabulary");
    v->model = model;
    int32_t st = fill(v, err);
    if (st == EBRO_OK)
        *out = v;
    else
        eb_vocab_destroy(&v);
    return st;
}

void eb_vocab_destroy(struct eb_vocab **vocab) {
    if (vocab == NULL || *vocab == NULL) return;
    free((*vocab)->nodes);
    free((*vocab)->special.v);
    free((*vocab)->stops.v);
    free(*vocab);
    *vocab = NULL;
}
