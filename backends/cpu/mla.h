/* mla.h: what the MLA ops share: rows of the paged cache, and one step of an online softmax.
 * Private to backends/cpu. Attention itself is in op_mla_expand.c and op_mla_absorb.c. */
#ifndef EB_CPU_MLA_H
#define EB_CPU_MLA_H

#include <stdbool.h>

#include "micro.h"

/* ---- costs ------------------------------------------------------------------------------ */

/* As in ebro_caps, from times of both ops with 4 heads, contexts of 512 to 4,608 and 2 to 512 rows
 * on one thread; AVX2 on Zen 3, the others on a Xeon with AVX-512. `ebro bench mla -t 1` shows what
 * a machine loses by the choice. The absorbed form pays
 * for memory that few heads cannot keep busy with. A short context costs the expanded form two
 * blocks of tokens at least: kv_b must be widened for it. */
enum {
#if defined(__AVX512F__)
    MLA_EXPANDED_PS = 18,
    MLA_ABSORBED_PS = 45,
#elif CPU_VEC
    MLA_EXPANDED_PS = 27,
    MLA_ABSORBED_PS = 45,
#else
    MLA_EXPANDED_PS = 80,
    MLA_ABSORBED_PS = 90,
#endif
    MLA_EXPANDED_TOKENS = 2 * MICRO_COLS
};

/* ---- the cache -------------------------------------------------------------------------- */

static inline uint8_t *mla_cache_row(const ebro_pages *p, uint32_t seq, uint32_t token) {
    const uint64_t *table = eb_at(p->table);
    uint64_t page = table[(uint64_t)seq * p->table_stride + token / p->page_tokens];
    uint64_t row_bytes = p->row_stride * cpu_dtype_size(p->dtype);
    return (uint8_t *)eb_address(page + p->layer_offset) + token % p->page_tokens * row_bytes;
}

/* Tokens of the sequence before the rows of this step. */
static inline uint32_t mla_context(const ebro_pages *p, uint32_t seq) {
    return (uint32_t)((const int32_t *)eb_at(p->context))[seq];
}

static inline uint32_t mla_min(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* ---- softmax ---------------------------------------------------------------------------- */

/* Running maximum and sum of one row of one head. */
struct mla_softmax {
    float max;
    float sum;
};

static const struct mla_softmax mla_softmax_start = {-INFINITY, 0.0f};

/* What brings sums under an old maximum to a new one. */
static inline float mla_rescale(float old, float new) {
    return old == new ? 1.0f : micro_exp_neg(old - new);
}

#if CPU_VEC

/* Scores [0, n) become exp(score scale - new maximum), the rest up to `room` zeros; n <= room, and
 * room a multiple of VEC. Returns the factor that brings what was summed before to the new maximum.
 */
static inline float mla_softmax_tile(struct mla_softmax *m, float *score, uint32_t n, uint32_t room,
                                     float scale) {
    const vec low = vec_all(-INFINITY);
    vec max = vec_all(m->max), sum = vec_all(0.0f);
    uint32_t t = 0;
    for (; t < n; t += VEC) {
        vec s = vec_mul(vec_load(score + t), vec_all(scale));
        if (n - t < VEC) s = vec_first(s, low, n - t);
        vec_store(score + t, s);
        max = vec_max(s, max);
    }
    for (; t < room; t += VEC) vec_store(score + t, sum);
    if (n == 0) return 1.0f;
    float top = vec_lane_max(max), factor = mla_rescale(m->max, top);
    for (t = 0; t < n; t += VEC) {
        vec e = vec_exp_neg(vec_sub(vec_load(score + t), vec_all(top)));
        vec_store(score + t, e);
        sum = vec_add(sum, e);
    }
    m->sum = m->sum * factor + vec_sum(sum);
    m->max = top;
    return factor;
}

#else

static inline float mla_softmax_tile(struct mla_softmax *m, float *restrict score, uint32_t n,
                                     uint32_t room, float scale) {
    float lanes[MICRO_LANES] = {0}, max = m->max;
    for (uint32_t t = 0; t < n; t++) {
        score[t] *= scale;
        if (score[t] > max) max = score[t];
    }
    for (uint32_t t = n; t < room; t++) score[t] = 0.0f;
    if (n == 0) return 1.0f;
    for (uint32_t t = 0; t < n; t++) score[t] = micro_exp_neg(score[t] - max);
    uint32_t whole = n - n % MICRO_LANES;
    for (uint32_t t = 0; t < whole; t += MICRO_LANES) {
        for (uint32_t l = 0; l < MICRO_LANES; l++) lanes[l] += score[t + l];
    }
    for (uint32_t t = whole; t < n; t++) lanes[t - whole] += score[t];
    float factor = mla_rescale(m->max, max);
    m->sum = m->sum * factor + micro_join(lanes);
    m->max = max;
    return factor;
}

#endif

/* Divides by the sum; a row that saw nothing (sum 0) stays zeros with lse -inf. */
static inline void mla_softmax_end(const struct mla_softmax *m, float *restrict out, uint32_t n,
                                   float *lse) {
    float inv = m->sum == 0.0f ? 0.0f : 1.0f / m->sum;
    for (uint32_t c = 0; c < n; c++) out[c] *= inv;
    if (lse) *lse = m->sum == 0.0f ? -INFINITY : m->max + logf(m->sum);
}

#endif
