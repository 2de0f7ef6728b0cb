/* mla_ref.h: latent attention in float64, and the two attention ops run on the same data over a
 * cache whose pages lie in random order. The reference is the formula: scores of the latent rows
 * themselves, a softmax over everything that is seen, the weighted sum. */
#ifndef EB_TEST_MLA_REF_H
#define EB_TEST_MLA_REF_H

#include "tests/opcheck/seq_rig.h"

struct mla_shape {
    uint32_t n_heads, nope, rope, v_dim, kv_lora;
    float scale;
};

static inline uint32_t mla_width(const struct mla_shape *s) {
    return s->kv_lora + s->rope;
}

/* ---- the cache -------------------------------------------------------------------------- */

struct mla_cache {
    struct rig_buf buf;
    uint8_t *before; /* what the buffer holds before the op */
    uint64_t *at;    /* [n_seqs][capacity]: bytes into the buffer */
    double *v;       /* [n_seqs][capacity][width] */
    ebro_pages pages;
    uint32_t n_seqs, capacity, width;
};

/* Room for `capacity` tokens of each sequence from token `first` on; the pages before that do not
 * exist. All is poison until mla_cache_put and mla_cache_upload. */
static inline struct mla_cache mla_cache(uint32_t n_seqs, uint32_t first, uint32_t capacity,
                                         uint32_t width, uint32_t page_tokens, int32_t dtype) {
    struct mla_cache c = {.n_seqs = n_seqs, .capacity = capacity, .width = width};
    uint64_t size = eb_dtype_size(dtype), row_bytes = (width + rig_below(2) * 8) * size;
    uint64_t lead = rig_below(3) * 24 * size; /* other layers */
    uint64_t page_bytes = lead + page_tokens * row_bytes + rig_below(2) * 16 * size;
    uint32_t begin = first / page_tokens, end = (first + capacity - 1) / page_tokens + 1;
    uint32_t n_pages = end - begin, stride = end + rig_below(3);
    uint32_t *order = seq_shuffled(n_seqs * n_pages);
    uint64_t *table = rig_host((uint64_t)n_seqs * stride, sizeof *table);
    memset(table, 0xff, (size_t)n_seqs * stride * sizeof *table);
    c.buf = rig_buf(n_seqs * n_pages * page_bytes);
    c.before = rig_host(c.buf.bytes, 1);
    memset(c.before, 0xff, c.buf.bytes);
    c.at = rig_host((uint64_t)n_seqs * capacity, sizeof *c.at);
    c.v = rig_host((uint64_t)n_seqs * capacity * width, sizeof *c.v);
    for (uint32_t s = 0; s < n_seqs; s++) {
        for (uint32_t i = 0; i < n_pages; i++) {
            table[s * stride + begin + i] =
                c.buf.span.mem->address + c.buf.span.offset + order[s * n_pages + i] * page_bytes;
        }
        for (uint32_t t = 0; t < capacity; t++) {
            uint64_t page = order[s * n_pages + (first + t) / page_tokens - begin] * page_bytes;
            c.at[s * capacity + t] = page + lead + (first + t) % page_tokens * row_bytes;
        }
    }
    c.pages = (ebro_pages){.table = rig_data(table, (uint64_t)n_seqs * stride * 8).span,
                           .table_stride = stride,
                           .page_tokens = page_tokens,
                           .layer_offset = lead,
                           .row_stride = (uint32_t)(row_bytes / size),
                           .dtype = dtype,
                           .max_context = first + capacity};
    return c;
}

/* A row from values that fit the dtype (F32, BF16). */
static inline void mla_cache_put(struct mla_cache *c, uint32_t seq, uint32_t token,
                                 const double *latent, uint32_t n_latent, const double *key) {
    uint64_t row = (uint64_t)seq * c->capacity + token;
    uint8_t *to = c->before + c->at[row];
    double *v = c->v + row * c->width;
    for (uint32_t i = 0; i < c->width; i++) {
        v[i] = i < n_latent ? latent[i] : key[i - n_latent];
        to += seq_to_bytes(c->pages.dtype, (float)v[i], to);
    }
}

static inline void mla_cache_random(struct mla_cache *c, uint32_t seq, uint32_t n_tokens) {
    uint64_t size = eb_dtype_size(c->pages.dtype);
    for (uint64_t t = 0; t < n_tokens; t++) {
        uint64_t row = (uint64_t)seq * c->capacity + t;
        for (uint64_t i = 0; i < c->width; i++) {
            c->v[row * c->width + i] =
                rig_element(c->pages.dtype, c->before + c->at[row] + i * size);
        }
    }
}

static inline void mla_cache_upload(struct mla_cache *c, const int32_t *context) {
    c->pages.context = seq_i32(context, c->n_seqs);
    rig_put(&c->buf, 0, c->before, c->buf.bytes);
}

/* ---- reference -------------------------------------------------------------------------- */

/* Tokens [begin, end) of a cache. */
struct mla_range {
    uint32_t begin, end;
};

static const struct mla_range mla_all = {0, UINT32_MAX};

struct mla_result {
    double *latent; /* [n_rows][n_heads][kv_lora] */
    double *lse;    /* [n_rows][n_heads] */
    double largest; /* score, in magnitude */
};

/* One row of one head over tokens [begin, end). */
static inline double mla_ref_row(const struct mla_shape *s, const double *q, const double *cache,
                                 uint32_t begin, uint32_t end, double *out, double *lse) {
    uint32_t width = mla_width(s);
    double max = -(double)INFINITY, largest = 0, sum = 0;
    double *score = calloc((size_t)end + 1, sizeof *score);
    assert_non_null(score);
    for (uint32_t t = begin; t < end; t++) {
        for (uint32_t i = 0; i < width; i++) score[t] += q[i] * cache[(uint64_t)t * width + i];
        score[t] *= (double)s->scale;
        max = fmax(max, score[t]);
        largest = fmax(largest, fabs(score[t]));
    }
    memset(out, 0, s->kv_lora * sizeof *out);
    for (uint32_t t = begin; t < end; t++) {
        double p = exp(score[t] - max);
        sum += p;
        for (uint32_t i = 0; i < s->kv_lora; i++) out[i] += p * cache[(uint64_t)t * width + i];
    }
    for (uint32_t i = 0; i < s->kv_lora && sum > 0; i++) out[i] /= sum;
    *lse = sum > 0 ? max + log(sum) : -(double)INFINITY;
    free(score);
    return largest;
}

/* q [n_rows][n_heads][kv_lora + rope], absorbed. */
static inline struct mla_result mla_ref(const struct mla_shape *s, const struct seq_plan *p,
                                        const struct mla_cache *c, const int32_t *context,
                                        struct mla_range range, const double *q) {
    uint64_t n = (uint64_t)seq_rows_of(p) * s->n_heads;
    struct mla_result r = {rig_host(n * s->kv_lora, 8), rig_host(n, 8), 0};
    for (uint32_t k = 0; k < p->n_seqs; k++) {
        const double *cache = c->v + (uint64_t)k * c->capacity * c->width;
        for (int32_t row = p->offsets[k]; row < p->offsets[k + 1]; row++) {
            uint32_t end = (uint32_t)(context[k] + row - p->offsets[k] + 1);
            if (end > range.end) end = range.end;
            uint32_t begin = range.begin < end ? range.begin : end;
            for (uint64_t i = (uint64_t)row * s->n_heads, h = 0; h < s->n_heads; h++, i++) {
                double largest = mla_ref_row(s, q + i * mla_width(s), cache, begin, end,
                                             r.latent + i * s->kv_lora, r.lse + i);
                r.largest = fmax(r.largest, largest);
            }
        }
    }
    return r;
}

/* q [n][n_heads][nope + rope] to W_uk^T q_nope and q_pe; kv_b [n_heads][nope + v_dim][kv_lora]. */
static inline double *mla_absorb(const struct mla_shape *s, const float *q, uint64_t n_rows,
                                 const double *kv_b) {
    uint64_t n = n_rows * s->n_heads, in = s->nope + s->rope, width = mla_width(s);
    double *y = rig_host(n * width, sizeof *y);
    for (uint64_t i = 0; i < n; i++) {
        const double *w = kv_b + i % s->n_heads * (s->nope + s->v_dim) * s->kv_lora;
        for (uint64_t j = 0; j < s->nope; j++) {
            for (uint64_t c = 0; c < s->kv_lora; c++) {
                y[i * width + c] += (double)q[i * in + j] * w[j * s->kv_lora + c];
            }
        }
        for (uint64_t j = 0; j < s->rope; j++) {
            y[i * width + s->kv_lora + j] = (double)q[i * in + s->nope + j];
        }
    }
    return y;
}

/* W_uv times latents [n_rows][n_heads][kv_lora]. */
static inline double *mla_values(const struct mla_shape *s, const double *latent, uint64_t n_rows,
                                 const double *kv_b) {
    uint64_t n = n_rows * s->n_heads;
    double *y = rig_host(n * s->v_dim, sizeof *y);
    for (uint64_t i = 0; i < n; i++) {
        const double *w =
            kv_b + (i % s->n_heads * (s->nope + s->v_dim) + s->nope) * (uint64_t)s->kv_lora;
        for (uint64_t j = 0; j < s->v_dim; j++) {
            for (uint64_t c = 0; c < s->kv_lora; c++) {
                y[i * s->v_dim + j] += w[j * s->kv_lora + c] * latent[i * s->kv_lora + c];
            }
        }
    }
    return y;
}

/* ---- the ops ---------------------------------------------------------------------------- */

/* lse: NULL: not asked for. */
static inline float *mla_prefill(const struct mla_shape *s, const struct seq_plan *p,
                                 const struct mla_cache *c, struct mla_range range, const float *q,
                                 const ebro_weight *kv_b, float **lse) {
    struct rig_mat out = seq_mat(p, NULL, (uint64_t)s->n_heads * s->v_dim);
    struct rig_mat l = seq_mat(p, NULL, s->n_heads);
    ebro_mla_prefill_args a = {.size = sizeof a,
                               .rows = seq_rows(p),
                               .q = seq_mat(p, q, (uint64_t)s->n_heads * (s->nope + s->rope)).m,
                               .kv_b = *kv_b,
                               .n_heads = s->n_heads,
                               .nope_dim = s->nope,
                               .rope_dim = s->rope,
                               .v_dim = s->v_dim,
                               .kv_lora = s->kv_lora,
                               .scale = s->scale,
                               .pages = c->pages,
                               .token_begin = range.begin,
                               .token_end = range.end,
                               .out = out.m};
    if (lse) a.lse = l.m;
    struct rig_buf scratch = rig_buf(eb_op_scratch(rig.device, EBRO_OP_MLA_PREFILL, &a));
    a.scratch = scratch.span;
    test_ok(eb_op_mla_prefill(&rig.s, &a, &rig.err), &rig.err);
    rig_sync();
    (void)rig_get(&scratch);
    if (lse) *lse = seq_mat_get(p, &l);
    return seq_mat_get(p, &out);
}

static inline float *mla_decode(const struct mla_shape *s, const struct seq_plan *p,
                                const struct mla_cache *c, struct mla_range range, const float *q,
                                float **lse) {
    struct rig_mat out = seq_mat(p, NULL, (uint64_t)s->n_heads * s->kv_lora);
    struct rig_mat l = seq_mat(p, NULL, s->n_heads);
    ebro_mla_decode_args a = {.size = sizeof a,
                              .rows = seq_rows(p),
                              .q = seq_mat(p, q, (uint64_t)s->n_heads * mla_width(s)).m,
                              .n_heads = s->n_heads,
                              .kv_lora = s->kv_lora,
                              .rope_dim = s->rope,
                              .scale = s->scale,
                              .pages = c->pages,
                              .token_begin = range.begin,
                              .token_end = range.end,
                              .out = out.m};
    if (lse) a.lse = l.m;
    struct rig_buf scratch = rig_buf(eb_op_scratch(rig.device, EBRO_OP_MLA_DECODE, &a));
    a.scratch = scratch.span;
    test_ok(eb_op_mla_decode(&rig.s, &a, &rig.err), &rig.err);
    rig_sync();
    (void)rig_get(&scratch);
    if (lse) *lse = seq_mat_get(p, &l);
    return seq_mat_get(p, &out);
}

static inline float *mla_narrow(const double *x, uint64_t n) {
    float *y = rig_host(n, sizeof *y);
    for (uint64_t i = 0; i < n; i++) y[i] = (float)x[i];
    return y;
}

#endif
