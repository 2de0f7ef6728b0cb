#version 450
/* sample_weigh: the probabilities of each part of a row: their sum, and, where top_k or top_p cut,
 * bins of them. One workgroup per row and part; rows that are greedy or broken want nothing. */
#extension GL_GOOGLE_include_directive : require
#define EB_ORDER_REDUCE
#define EB_ARGS eb_sample_args
#include "common/args_sample.h"
#include "common.glsl"
#include "math.glsl"
#include "order.glsl"
#include "rows.glsl"
#include "sample.glsl"

void main() {
    if (GROUP >= push.n_groups) return;
    Row r = row_at(GROUP / A.n_parts);
    if (!(temperature(r) > 0.0)) return;
    Range g = range_of(r);
    if (g.low_key == 0u) return;
    uint first = GROUP % A.n_parts * A.part_size, n = min(A.part_size, A.vocab - first);
    bool cut = has_nucleus(r) || top_k(r) > 0u;
    clear_bins();
    uvec2 sum = uvec2(0u);
    for (uint i = THREAD * 4u; i < n; i += THREADS * 4u) {
        vec4 x = logits4(r, first + i);
        for (uint j = 0u; j < min(4u, n - i); j++) {
            float p = probability(r, g, x[j]);
            uvec2 mass = fixed_point(p);
            if (p >= least(r)) sum = plus(sum, mass);
            if (cut) add_to_bin(bin_of(g, x[j]), 1u, mass);
        }
    }
    sum = group_sum64(sum);
    if (THREAD == 0u) PUvec2(plus_mul(A.masses, GROUP, 8u)).v[0] = sum;
    if (!cut) return;
    PU32 to = PU32(plus_mul(A.bins, GROUP, 12u * EB_SAMPLE_BINS));
    for (uint b = THREAD; b < EB_SAMPLE_BINS; b += THREADS) {
        [[unroll]] for (uint w = 0u; w < 3u; w++) to.v[w * EB_SAMPLE_BINS + b] = bins[w][b];
    }
}
