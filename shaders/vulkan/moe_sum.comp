#version 450
/* moe_sum: adds up what the experts of a row gave, in the order of its choices. A weight of 0
 * leaves its product out: a choice that is no expert has none. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_moe_sum_args
#include "common/args_moe.h"
#include "common.glsl"

const uint DEPTH = 8u; /* loads under way, without a branch between them */

void main() {
    if (GROUP >= push.n_groups) return;
    uint row = GROUP / A.n_chunks, c = GROUP % A.n_chunks * THREADS + THREAD;
    if (c >= A.n_cols) return;
    PF32 dst = PF32(row_of(A.dst, row)), weights = PF32(row_of(A.weights, row));
    float sum = dst.v[c];
    for (uint k0 = 0u; k0 < A.top_k; k0 += DEPTH) {
        float w[DEPTH], y[DEPTH];
        [[unroll]] for (uint j = 0u; j < DEPTH; j++) {
            uint k = min(k0 + j, A.top_k - 1u);
            w[j] = weights.v[k];
            y[j] = PF32(row_of(eb_mat_arg(A.y, A.n_cols, F32), row * A.top_k + k)).v[c];
        }
        [[unroll]] for (uint j = 0u; j < DEPTH; j++) {
            if (k0 + j < A.top_k && w[j] != 0.0) sum += w[j] * y[j];
        }
    }
    dst.v[c] = sum;
}
