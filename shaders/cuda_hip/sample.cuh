/* sample.cuh: what the kernels of sample share: rows, their largest logit, probabilities.
 *
 * Probabilities are relative to the largest one, and sums of them are integers: a probability is
 * cut to 40 bits (32 for a vocabulary of millions) once, and then every order of adding and every
 * division into parts gives the same sum, to the last bit. */
#ifndef EB_SAMPLE_CUH
#define EB_SAMPLE_CUH

#include "common/args_sample.h"
#include "math.cuh"
#include "memory.cuh"
#include "order.cuh"
#include "shapes.h"

/* ebro_sample_params. */
struct sample_params {
    float temperature, top_p, min_p;
    unsigned top_k;
    eb_u64 seed, position;
};

/* ebro_logit_adjust. */
struct logit_adjust {
    int id;
    float repeat, add;
};

struct sample_row {
    unsigned row;
    eb_addr at; /* its logits, adjusted */
    bool wide;
    sample_params params;
};

static EB_DEVICE bool is_adjusted(const eb_sample_args &a, unsigned row) {
    const int *offsets = at<const int>(a.adjust_offsets);
    return a.adjusts != 0 && offsets[row] < offsets[row + 1];
}

static EB_DEVICE float *changed_row(const eb_sample_args &a, unsigned row) {
    return at<float>(a.changed) + (size_t)row * a.changed_stride;
}

static EB_DEVICE sample_row row_at(const eb_sample_args &a, unsigned row) {
    bool adjusted = is_adjusted(a, row);
    eb_addr logits = adjusted ? (eb_addr)changed_row(a, row) : (eb_addr)row_of(a.logits, row);
    return {row, logits, adjusted || a.wide != 0, at<const sample_params>(a.params)[row]};
}

static EB_DEVICE bool has_nucleus(const sample_row &r) {
    return r.params.top_p > 0.0f && r.params.top_p < 1.0f;
}

/* 0: off. */
static EB_DEVICE unsigned top_k_of(const eb_sample_args &a, const sample_row &r) {
    return r.params.top_k < a.vocab ? r.params.top_k : 0;
}

/* The smallest probability that min_p keeps. */
static EB_DEVICE float least_of(const sample_row &r) {
    float p = r.params.min_p;
    return p > 1.0f ? 1.0f : p > 0.0f ? p : 0.0f;
}

static EB_DEVICE eb_vec4 logits4(const eb_sample_args &a, const sample_row &r, unsigned first) {
    return load4(r.at, first, a.vocab, EB_F32, r.wide);
}

/* ---- of a whole row --------------------------------------------------------------------- */

struct sample_range {
    eb_u64 best; /* as in order.cuh */
    float largest;
    unsigned low_key; /* 0: a logit is not finite */
    float per_unit;   /* bins to a distance of 1 */
};

/* What sample_parts leaves of a part of a row. */
struct alignas(16) sample_part {
    eb_u64 best;
    unsigned low_key, unused;
};

/* From what sample_parts wrote. */
static EB_DEVICE sample_range range_of(const eb_sample_args &a, const sample_row &r,
                                       eb_u64 *parts) {
    eb_u64 best = 0, lowest = 0;
    for (unsigned p = thread_id(); p < a.n_parts; p += n_threads()) {
        sample_part part = at<const sample_part>(a.parts)[(size_t)r.row * a.n_parts + p];
        best = larger(best, part.best);
        lowest = larger(lowest, ~part.low_key);
    }
    best = block_largest(best, parts);
    sample_range g = {best, order_value(key_of(best)), ~(unsigned)block_largest(lowest, parts),
                      0.0f};
    /* Bins end with the row, or where nothing has a probability left. */
    float reach = fminf(28.0f * r.params.temperature, g.largest - order_value(g.low_key));
    g.per_unit = (float)EB_SAMPLE_BINS / fminf(fmaxf(reach, 1e-30f), 3e38f);
    return g;
}

/* Of a logit: 1 exactly for the largest. */
static EB_DEVICE float probability(const sample_row &r, const sample_range &g, float logit) {
    if (logit == g.largest) return 1.0f;
    return exp_neg((g.largest - logit) / r.params.temperature);
}

static EB_DEVICE eb_u64 fixed_point(const eb_sample_args &a, float p) {
    float high = p * a.one_high, whole = floorf(high);
    return (eb_u64)whole << 32 | (unsigned)((high - whole) * 4294967296.0f);
}

/* The bin of a logit, from 0 for the largest on: it rises as logits fall. */
static EB_DEVICE unsigned bin_of(const sample_range &g, float logit) {
    return (unsigned)fminf((g.largest - logit) * g.per_unit, (float)(EB_SAMPLE_BINS - 1));
}

/* ---- bins, in shared memory ------------------------------------------------------------- */

struct sample_bins {
    unsigned n[EB_SAMPLE_BINS];
    eb_u64 mass[EB_SAMPLE_BINS];
};

static EB_DEVICE void clear_bins(sample_bins &bins) {
    for (unsigned b = thread_id(); b < EB_SAMPLE_BINS; b += n_threads()) {
        bins.n[b] = 0;
        bins.mass[b] = 0;
    }
    sync_block();
}

static EB_DEVICE void add_to_bin(sample_bins &bins, unsigned b, unsigned n, eb_u64 mass) {
    atomic_add(&bins.n[b], n);
    atomic_add(&bins.mass[b], mass);
}

/* The sum over the block, for all its threads; `parts` as in block_sum. */
static EB_DEVICE eb_u64 block_sum64(eb_u64 x, eb_u64 *parts) {
    for (unsigned m = EB_WAVE / 2; m > 0; m /= 2) x += shuffle_xor(x, m);
    sync_block();
    if (lane_id() == 0) parts[wave_id()] = x;
    sync_block();
    x = 0;
    for (unsigned w = 0; w < n_waves(); w++) x += parts[w];
    return x;
}

#endif
