/* sampler.c: ebro_seq_sample: checks the wishes, sums penalties and biases up to one adjustment per
 * token, and has the device choose. Not its job: the choice itself (the sample op). */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

enum { DEFAULT_WINDOW = 64 };
/* Lower than any bias that a caller may give: what is not allowed is never chosen. */
#define FORBIDDEN (-2e30f)

/* One reason to adjust a logit: a token of the window (seen 1) or a bias. After merging: all
 * reasons of one id. */
struct eb_adjust {
    int32_t id;
    uint32_t seen;
    float bias;
};

void eb_sampler_close(struct ebro_engine *e) {
    eb_free(&e->alloc, e->sampler.list);
    eb_mem_free(e->device, &e->sampler.adjusts);
    eb_mem_free(e->device, &e->sampler.scratch);
    e->sampler = (struct eb_sampler){0};
}

/* ---- wishes ----------------------------------------------------------------------------- */

/* Comparisons are written so that NaN fails too. */
static bool in_range(float x, float least, float most) {
    return x >= least && x <= most;
}

static int32_t check_penalties(ebro_sampling *s, ebro_error *err) {
    if (s->repeat_penalty == 0.0f) s->repeat_penalty = 1.0f;
    if (!in_range(s->repeat_penalty, 0.01f, 100.0f)) {
        return eb_fail(err, EBRO_INVALID, "repeat penalty %g: 0.01 to 100 can be used, 1 is off",
                       (double)s->repeat_penalty);
    }
    if (!in_range(s->presence_penalty, -100.0f, 100.0f) ||
        !in_range(s->frequency_penalty, -100.0f, 100.0f)) {
        return eb_fail(err, EBRO_INVALID,
                       "presence penalty %g or frequency penalty %g: -100 to 100 can be used",
                       (double)s->presence_penalty, (double)s->frequency_penalty);
    }
    return EBRO_OK;
}

static bool is_allowed(const ebro_sampling *s, uint32_t id) {
    return s->allowed == NULL || (s->allowed[id / 32] >> (id % 32) & 1u) != 0;
}

static int32_t check_biases(const ebro_sampling *s, uint32_t vocab, ebro_error *err) {
    if (s->n_biases > 0 && s->biases == NULL) {
        return eb_fail(err, EBRO_INVALID, "ebro_sampling: n_biases is %u, biases is NULL",
                       s->n_biases);
    }
    for (uint32_t i = 0; i < s->n_biases; i++) {
        const ebro_logit_bias *b = &s->biases[i];
        if (b->id < 0 || (uint32_t)b->id >= vocab) {
            return eb_fail(err, EBRO_INVALID, "logit bias for token %d: the vocabulary has 0 to %u",
                           b->id, vocab - 1);
        }
        if (!in_range(b->bias, -1e30f, 1e30f)) {
            return eb_fail(err, EBRO_INVALID,
                           "logit bias %g of token %d: -1e30 to 1e30 can be used", (double)b->bias,
                           b->id);
        }
    }
    return EBRO_OK;
}

/* Tokens that must not be chosen; *n of them. */
static int32_t check_allowed(const ebro_sampling *s, uint32_t vocab, uint32_t *n, ebro_error *err) {
    *n = 0;
    if (s->allowed == NULL) return EBRO_OK;
    for (uint32_t id = 0; id < vocab; id++) *n += !is_allowed(s, id);
    if (*n < vocab) return EBRO_OK;
    return eb_fail(err, EBRO_INVALID, "ebro_sampling: allowed has no token of the %u in it", vocab);
}

/* The caller's struct may be older and shorter than ours. */
static int32_t check_sampling(const ebro_sampling *in, uint32_t vocab, ebro_sampling *out,
                              ebro_error *err) {
    *out = (ebro_sampling){0};
    if (in == NULL || in->size < sizeof in->size) {
        return eb_fail(err, EBRO_INVALID, "ebro_sampling is NULL or its size is not set");
    }
    memcpy(out, in, in->size < sizeof *out ? in->size : sizeof *out);
    if (!in_range(out->temperature, 0.0f, 100.0f)) {
        return eb_fail(err, EBRO_INVALID, "temperature %g: 0 to 100 can be used",
                       (double)out->temperature);
    }
    if (!(out->top_p >= 0.0f) || !in_range(out->min_p, 0.0f, 1.0f)) {
        return eb_fail(err, EBRO_INVALID, "top-p %g or min-p %g: probabilities are 0 to 1",
                       (double)out->top_p, (double)out->min_p);
    }
    int32_t st = check_penalties(out, err);
    return st == EBRO_OK ? check_biases(out, vocab, err) : st;
}

/* ---- adjustments ------------------------------------------------------------------------ */

/* By id; biases of one id in one order, so that their sum does not depend on the sort. */
static int by_id(const void *a, const void *b) {
    const struct eb_adjust *x = a, *y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return x->bias < y->bias ? -1 : x->bias > y->bias;
}

/* The reasons as they come: tokens of the window, then biases. What must not be chosen anyway is
 * left out. */
static size_t gather(struct eb_adjust *list, const struct ebro_seq *seq, const ebro_sampling *s,
                     uint32_t window) {
    const int32_t *recent = seq->mem->tokens + (seq->mem->n_tokens - window);
    size_t n = 0;
    for (uint32_t i = 0; i < window; i++) {
        if (is_allowed(s, (uint32_t)recent[i]))
            list[n++] = (struct eb_adjust){.id = recent[i], .seen = 1};
    }
    for (uint32_t i = 0; i < s->n_biases; i++) {
        if (is_allowed(s, (uint32_t)s->biases[i].id))
            list[n++] = (struct eb_adjust){.id = s->biases[i].id, .bias = s->biases[i].bias};
    }
    return n;
}

/* One entry per id, by rising id; returns how many. */
static size_t merge(struct eb_adjust *list, size_t n) {
    size_t last = 0;
    if (n == 0) return 0;
    qsort(list, n, sizeof *list, by_id);
    for (size_t i = 1; i < n; i++) {
        if (list[last].id == list[i].id) {
            list[last].seen += list[i].seen;
            list[last].bias += list[i].bias;
        } else {
            list[++last] = list[i];
        }
    }
    return last + 1;
}

/* Adds an entry for each of the n_forbidden tokens that are not allowed, in order: from the back,
 * so that the list, which has room for them, is its own source. */
static void forbid(struct eb_adjust *list, size_t n, size_t n_forbidden, const ebro_sampling *s,
                   uint32_t vocab) {
    size_t to = n + n_forbidden;
    for (uint32_t id = vocab; id-- > 0 && to > n;) {
        if (!is_allowed(s, id))
            list[--to] = (struct eb_adjust){.id = (int32_t)id, .bias = FORBIDDEN};
        else if (n > 0 && list[n - 1].id == (int32_t)id)
            list[--to] = list[--n];
    }
}

/* Fills sampler.list with one entry per id, by rising id. */
static int32_t collect(struct ebro_engine *e, const struct ebro_seq *seq, const ebro_sampling *s,
                       uint32_t n_forbidden, size_t *n_out, ebro_error *err) {
    struct eb_sampler *sampler = &e->sampler;
    uint32_t window = s->penalty_last_n != 0 ? s->penalty_last_n : DEFAULT_WINDOW;
    bool penal =
        s->repeat_penalty != 1.0f || s->presence_penalty != 0.0f || s->frequency_penalty != 0.0f;
    if (!penal) window = 0;
    if (window > seq->mem->n_tokens) window = seq->mem->n_tokens;
    size_t n = (size_t)window + s->n_biases + n_forbidden;
    void *list = sampler->list;
    int32_t st = eb_grow(&e->alloc, &list, &sampler->capacity, n, sizeof *sampler->list, err);
    sampler->list = list;
    *n_out = 0;
    if (st != EBRO_OK || n == 0) return st;
    n = merge(sampler->list, gather(sampler->list, seq, s, window));
    forbid(sampler->list, n, n_forbidden, s, e->model->config.vocab_size);
    *n_out = n + n_forbidden;
    return EBRO_OK;
}

static ebro_logit_adjust adjust_of(const struct eb_adjust *a, const ebro_sampling *s) {
    ebro_logit_adjust out = {.id = a->id, .repeat = 1.0f, .add = a->bias};
    if (a->seen > 0) {
        out.repeat = s->repeat_penalty;
        out.add -= s->presence_penalty + s->frequency_penalty * (float)a->seen;
    }
    return out;
}

/* A memory of at least `bytes`; grows by doubling. */
static int32_t reserve(struct ebro_engine *e, uint64_t bytes, uint32_t kind, ebro_mem **mem,
                       ebro_error *err) {
    if (bytes == 0 || (*mem != NULL && (*mem)->bytes >= bytes)) return EBRO_OK;
    uint64_t grown = *mem != NULL && 2 * (*mem)->bytes > bytes ? 2 * (*mem)->bytes : bytes;
    eb_mem_free(e->device, mem);
    return eb_mem_alloc(e->device, grown, kind, mem, err);
}

/* Puts the adjustments where the device reads them and points the call at them. */
static int32_t add_adjusts(struct ebro_engine *e, const struct ebro_seq *seq,
                           const ebro_sampling *s, ebro_sample_args *a, ebro_error *err) {
    size_t n = 0;
    uint32_t n_forbidden = 0;
    struct eb_sampler *sampler = &e->sampler;
    int32_t st = check_allowed(s, a->vocab, &n_forbidden, err);
    if (st == EBRO_OK) st = collect(e, seq, s, n_forbidden, &n, err);
    if (st != EBRO_OK) return st;
    if (n > 0) {
        const int32_t offsets[2] = {0, (int32_t)n};
        uint64_t bytes = sizeof offsets + n * sizeof(ebro_logit_adjust);
        if ((st = reserve(e, bytes, EBRO_MEM_UPLOAD, &sampler->adjusts, err)) != EBRO_OK) return st;
        char *host = sampler->adjusts->host;
        memcpy(host, offsets, sizeof offsets);
        for (size_t i = 0; i < n; i++) {
            ebro_logit_adjust one = adjust_of(&sampler->list[i], s);
            memcpy(host + sizeof offsets + i * sizeof one, &one, sizeof one);
        }
        a->adjust_offsets = (ebro_span){sampler->adjusts, 0};
        a->adjusts = (ebro_span){sampler->adjusts, sizeof offsets};
        a->n_adjusts = (uint32_t)n;
    }
    uint64_t scratch = eb_op_scratch(e->device, EBRO_OP_SAMPLE, a);
    if ((st = reserve(e, scratch, EBRO_MEM_DEVICE, &sampler->scratch, err)) != EBRO_OK) return st;
    a->scratch = (ebro_span){sampler->scratch, 0};
    return EBRO_OK;
}

/* ---- the call --------------------------------------------------------------------------- */

int32_t ebro_seq_sample(ebro_seq *seq, const ebro_sampling *sampling, int32_t *id,
                        ebro_error *err) {
    int32_t st = eb_seq_check_logits(seq, err);
    if (st != EBRO_OK) return st;
    if (id == NULL) return eb_fail(err, EBRO_INVALID, "ebro_seq_sample: id is NULL");
    struct ebro_engine *e = seq->engine;
    uint32_t vocab = e->model->config.vocab_size;
    ebro_sampling s;
    if ((st = check_sampling(sampling, vocab, &s, err)) != EBRO_OK) return st;
    ebro_sample_params p = {.temperature = s.temperature,
                            .top_p = s.top_p,
                            .min_p = s.min_p,
                            .top_k = s.top_k,
                            .seed = s.seed,
                            .position = seq->mem->n_done};
    memcpy((char *)e->step.mem->host + e->step.sampling.offset, &p, sizeof p);
    ebro_sample_args a = {
        .size = sizeof a,
        .logits = {.mem = seq->logits,
                   .offset = (uint64_t)(seq->logits_rows - 1) * vocab * sizeof(float),
                   .stride = vocab,
                   .dtype = EBRO_F32},
        .n_rows = 1,
        .vocab = vocab,
        .params = e->step.sampling,
        .ids = {e->readback, 0}};
    if ((st = add_adjusts(e, seq, &s, &a, err)) != EBRO_OK) return st;
    if ((st = eb_op_sample(&e->stream, &a, err)) != EBRO_OK) return st;
    if ((st = eb_stream_sync(&e->stream, err)) != EBRO_OK) return st;
    memcpy(id, e->readback->host, sizeof *id);
    if (*id < 0) {
        return eb_fail(err, EBRO_NUMERIC,
                       "no token can be drawn at position %u: a logit is not finite",
                       seq->mem->n_done);
    }
    return EBRO_OK;
}
