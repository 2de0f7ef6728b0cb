/* experts.c: which experts the tokens of a sequence chose, kept for the caller, or taken from the
 * caller instead of the router. Runs of different precision can be compared that way without one
 * flipped choice drowning all else. Not its job: routing itself (ffn.c and the op). */
#include <string.h>

#include "engine/engine.h"

/* Arrays are [n_moe][n_ctx][top_k]: a layer's tokens follow each other, so that the rows of a step
 * are one range. */
struct eb_experts {
    uint32_t n_ctx, top_k, n_moe;
    uint32_t *numbers;  /* [n_layers]: which MoE layer this is */
    uint32_t *n_forced; /* [n_moe]: tokens from the first one whose choices are given */
    int32_t *ids, *forced;
    float *weights;
};

static size_t at(const struct eb_experts *x, uint32_t moe, uint32_t position) {
    return ((size_t)moe * x->n_ctx + position) * x->top_k;
}

int32_t eb_experts_open(struct ebro_engine *e, struct ebro_seq *s, ebro_error *err) {
    const struct ebro_model *m = e->model;
    uint64_t n = 0;
    struct eb_experts *x = eb_calloc(&e->alloc, 1, sizeof *x, err);
    s->experts = x;
    if (x == NULL) return EBRO_NOMEM_HOST;
    x->n_ctx = e->n_ctx;
    x->top_k = m->config.experts_per_token;
    x->numbers = eb_calloc(&e->alloc, m->config.n_layers, sizeof *x->numbers, err);
    if (x->numbers == NULL) return EBRO_NOMEM_HOST;
    for (uint32_t l = 0; l < m->config.n_layers; l++) {
        x->numbers[l] = x->n_moe;
        if (m->layers[l].is_moe) x->n_moe++;
    }
    if (!eb_mul_u64((uint64_t)x->n_moe * x->n_ctx, x->top_k, &n) || n > SIZE_MAX)
        return eb_fail(err, EBRO_INVALID, "the expert choices of %u tokens overflow", x->n_ctx);
    x->n_forced = eb_calloc(&e->alloc, x->n_moe, sizeof *x->n_forced, err);
    if (x->n_forced == NULL) return EBRO_NOMEM_HOST;
    x->ids = eb_calloc(&e->alloc, (size_t)n, sizeof *x->ids, err);
    if (x->ids == NULL) return EBRO_NOMEM_HOST;
    x->forced = eb_calloc(&e->alloc, (size_t)n, sizeof *x->forced, err);
    if (x->forced == NULL) return EBRO_NOMEM_HOST;
    x->weights = eb_calloc(&e->alloc, (size_t)n, sizeof *x->weights, err);
    return x->weights == NULL ? EBRO_NOMEM_HOST : EBRO_OK;
}

void eb_experts_close(struct ebro_seq *s) {
    struct eb_experts *x = s->experts;
    const struct eb_alloc *a = &s->engine->alloc;
    s->experts = NULL;
    if (x == NULL) return;
    eb_free(a, x->numbers);
    eb_free(a, x->n_forced);
    eb_free(a, x->ids);
    eb_free(a, x->forced);
    eb_free(a, x->weights);
    eb_free(a, x);
}

uint32_t eb_experts_limit(const struct ebro_seq *s, uint32_t n) {
    const struct eb_experts *x = s->experts;
    for (uint32_t i = 0; x != NULL && i < x->n_moe; i++) {
        uint32_t end = x->n_forced[i];
        if (end > s->mem->n_done && end - s->mem->n_done < n) n = end - s->mem->n_done;
    }
    return n;
}

int32_t eb_experts_force(struct ebro_engine *e, const struct eb_step *step, uint32_t layer,
                         bool *forced, ebro_error *err) {
    const struct eb_experts *x = step->parts[0].seq->experts;
    *forced = false;
    if (x == NULL) return EBRO_OK;
    uint32_t moe = x->numbers[layer], n = step->n_rows;
    if (x->n_forced[moe] < step->parts[0].mem.first + n) return EBRO_OK;
    *forced = true;
    ebro_span ids = {e->work.expert_ids.mem, e->work.expert_ids.offset};
    return eb_upload(&e->stream, ids, x->forced + at(x, moe, step->parts[0].mem.first),
                     (uint64_t)n * x->top_k * sizeof(int32_t), err);
}

int32_t eb_experts_keep(struct ebro_engine *e, const struct eb_step *step, uint32_t layer,
                        ebro_error *err) {
    struct eb_experts *x = step->parts[0].seq->experts;
    if (x == NULL) return EBRO_OK;
    const struct eb_workspace *w = &e->work;
    size_t first = at(x, x->numbers[layer], step->parts[0].mem.first);
    uint64_t bytes = (uint64_t)step->n_rows * x->top_k * 4;
    ebro_span ids = {w->expert_ids.mem, w->expert_ids.offset};
    ebro_span weights = {w->expert_weights.mem, w->expert_weights.offset};
    int32_t st = eb_download(&e->stream, x->ids + first, ids, bytes, err);
    return st == EBRO_OK ? eb_download(&e->stream, x->weights + first, weights, bytes, err) : st;
}

/* *moe: which MoE layer it is. */
static int32_t find_layer(const struct ebro_seq *s, uint32_t layer, uint32_t *moe,
                          ebro_error *err) {
    if (s == NULL) return eb_fail(err, EBRO_INVALID, "the sequence is NULL");
    if (s->experts == NULL) {
        return eb_fail(err, EBRO_INVALID,
                       "the engine keeps no expert choices: open it with expert_choices");
    }
    const struct ebro_model *m = s->engine->model;
    if (layer >= m->config.n_layers || !m->layers[layer].is_moe)
        return eb_fail(err, EBRO_INVALID, "layer %u of %u has no routed experts", layer,
                       m->config.n_layers);
    *moe = s->experts->numbers[layer];
    return EBRO_OK;
}

int32_t ebro_seq_experts(const ebro_seq *seq, uint32_t layer, const int32_t **ids,
                         const float **weights, uint32_t *n_tokens, ebro_error *err) {
    uint32_t moe = 0;
    int32_t st = find_layer(seq, layer, &moe, err);
    if (st != EBRO_OK) return st;
    if (ids == NULL || weights == NULL || n_tokens == NULL) {
        return eb_fail(err, EBRO_INVALID,
                       "ebro_seq_experts: ids, weights and n_tokens must not be NULL");
    }
    *ids = seq->experts->ids + at(seq->experts, moe, 0);
    *weights = seq->experts->weights + at(seq->experts, moe, 0);
    *n_tokens = seq->mem->n_done;
    return EBRO_OK;
}

/* A router chooses no expert twice, and the op trusts its caller. */
static int32_t check_choice(const int32_t *ids, uint32_t top_k, uint32_t n_experts, uint32_t token,
                            ebro_error *err) {
    for (uint32_t k = 0; k < top_k; k++) {
        if (ids[k] < 0 || (uint32_t)ids[k] >= n_experts) {
            return eb_fail(err, EBRO_INVALID, "token %u is to use expert %d: there are 0 to %u",
                           token, ids[k], n_experts - 1);
        }
        for (uint32_t j = 0; j < k; j++) {
            if (ids[j] == ids[k])
                return eb_fail(err, EBRO_INVALID, "token %u is to use expert %d twice", token,
                               ids[k]);
        }
    }
    return EBRO_OK;
}

int32_t ebro_seq_force_experts(ebro_seq *seq, uint32_t layer, const int32_t *ids, uint32_t n_tokens,
                               ebro_error *err) {
    uint32_t moe = 0;
    int32_t st = find_layer(seq, layer, &moe, err);
    if (st != EBRO_OK) return st;
    struct eb_experts *x = seq->experts;
    if (ids == NULL && n_tokens > 0)
        return eb_fail(err, EBRO_INVALID, "ebro_seq_force_experts: ids is NULL");
    if (n_tokens > x->n_ctx) {
        return eb_fail(err, EBRO_INVALID, "expert choices of %u tokens: the context has %u",
                       n_tokens, x->n_ctx);
    }
    for (uint32_t t = 0; t < n_tokens; t++) {
        st = check_choice(ids + (size_t)t * x->top_k, x->top_k,
                          seq->engine->model->config.n_experts, t, err);
        if (st != EBRO_OK) return eb_while(err, st, "forcing the experts of layer %u", layer);
    }
    if (n_tokens > 0)
        memcpy(x->forced + at(x, moe, 0), ids, (size_t)n_tokens * x->top_k * sizeof *ids);
    x->n_forced[moe] = n_tokens;
    return EBRO_OK;
}
