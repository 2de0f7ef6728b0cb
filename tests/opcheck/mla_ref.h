/* mla_ref.h: data for the tests of MLA: a cache whose pages lie in random order, and the two
 * attention ops and their float64 reference (check/ref.h) on it. */
#ifndef EB_TEST_MLA_REF_H
#define EB_TEST_MLA_REF_H

#include "tests/opcheck/seq_rig.h"

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

/* q [n_rows][n_heads][kv_lora + rope], absorbed. */
static inline struct mla_result mla_ref(const struct eb_ref_mla *s, const struct eb_ref_plan *p,
                                        const struct mla_cache *c, const int32_t *context,
                                        struct mla_range range, const double *q) {
    uint64_t n = (uint64_t)eb_ref_rows(p) * s->n_heads;
    struct mla_result r = {rig_host(n * s->kv_lora, 8), rig_host(n, 8), 0};
    const struct eb_ref_cache cache = {c->v, c->capacity, context};
    r.largest = eb_ref_attend(s, p, &cache, range.begin, range.end, q, r.latent, r.lse,
                              rig_host(c->capacity, 8));
    return r;
}

/* eb_ref_absorb and eb_ref_values into new memory. */
static inline double *mla_absorb(const struct eb_ref_mla *s, const float *q, uint64_t n_rows,
                                 const double *kv_b) {
    double *y = rig_host(n_rows * s->n_heads * eb_ref_mla_width(s), sizeof *y);
    eb_ref_absorb(s, q, n_rows, kv_b, y);
    return y;
}

static inline double *mla_values(const struct eb_ref_mla *s, const double *latent, uint64_t n_rows,
                                 const double *kv_b) {
    double *y = rig_host(n_rows * s->n_heads * s->v_dim, sizeof *y);
    eb_ref_values(s, latent, n_rows, kv_b, y);
    return y;
}

/* ---- the ops ---------------------------------------------------------------------------- */

/* lse: NULL: not asked for. */
static inline float *mla_prefill(const struct eb_ref_mla *s, const struct eb_ref_plan *p,
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

static inline float *mla_decode(const struct eb_ref_mla *s, const struct eb_ref_plan *p,
                                const struct mla_cache *c, struct mla_range range, const float *q,
                                float **lse) {
    struct rig_mat out = seq_mat(p, NULL, (uint64_t)s->n_heads * s->kv_lora);
    struct rig_mat l = seq_mat(p, NULL, s->n_heads);
    ebro_mla_decode_args a = {.size = sizeof a,
                              .rows = seq_rows(p),
                              .q = seq_mat(p, q, (uint64_t)s->n_heads * eb_ref_mla_width(s)).m,
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
