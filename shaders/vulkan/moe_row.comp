#version 450
/* moe_row: products of few pairs per expert. A group takes a slot and those behind it that are of
 * the same expert, ROWS in all, and leaves where a slot before it has taken its own. A team
 * computes OUTS products: with an activation gate and up by turns, else neighbouring outputs. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_moe_args
#include "common/args_moe.h"
#include "common.glsl"
#include "math.glsl"
#include "quant.glsl"
#include "product_row.glsl"
#include "moe.glsl"

layout(constant_id = 6) const uint ACT = NO_ACT;

const uint PARTS = ACT == NO_ACT ? 1u : 2u; /* weights */
const uint DEPTH = 4u;                      /* experts that a thread looks at together */

/* The expert of the slot, n_experts where it has none, and where that one's slots begin and end. */
shared uint expert, begin, end;

/* For all threads. */
void find_expert(uint slot) {
    if (THREAD == 0u) expert = A.n_experts;
    barrier();
    PI32 offsets = PI32(A.offsets);
    for (uint e0 = THREAD; e0 < A.n_experts; e0 += DEPTH * THREADS) {
        uint begins[DEPTH], ends[DEPTH];
        [[unroll]] for (uint j = 0u; j < DEPTH; j++) {
            uint e = min(e0 + j * THREADS, A.n_experts - 1u);
            begins[j] = uint(offsets.v[e]);
            ends[j] = uint(offsets.v[e + 1u]);
        }
        [[unroll]] for (uint j = 0u; j < DEPTH; j++) {
            uint e = e0 + j * THREADS;
            if (e < A.n_experts && begins[j] <= slot && slot < ends[j]) {
                expert = e;
                begin = begins[j];
                end = ends[j];
            }
        }
    }
    barrier();
}

void main() {
    if (GROUP >= push.n_groups) return;
    uint g = GROUP, slot = g / A.blocks;
    uint out0 = (g % A.blocks * TEAMS + TEAM_INDEX) * (OUTS / PARTS);
    /* Asked for before it is known who needs them: one wait less. */
    uint pairs[ROWS];
    [[unroll]] for (uint r = 0u; r < ROWS; r++) pairs[r] = pair_of(min(slot + r, A.n_pairs - 1u));
    find_expert(slot);
    if (expert == A.n_experts || (slot - begin) % ROWS != 0u) return;
    uint bits = 0u;
    [[unroll]] for (uint o = 0u; o < OUTS; o++) {
        uint part = o % PARTS, r = min(out0 + o / PARTS, A.n_outs - 1u);
        uvec2 w = weight_of(expert, part);
        w_row[o] = w_row_of(w, r, DTYPE);
        bits |= w.x;
        if (DTYPE == MXFP4) w_scale[o] = plus_mul(scales_of(expert, part), r, A.n_in / 32u);
    }
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        if (slot + r >= end) pairs[r] = pairs[0];
        x_row[r] = x_row_of(pairs[r]);
    }
    row_products(A.n_in, ALIGNED != 0u && (bits & 15u) == 0u);
    for (uint v = LANE * PARTS; v < ROWS * OUTS; v += TEAM * PARTS) {
        uint r = v / OUTS, o = out0 + v % OUTS / PARTS, pair = 0u;
        float sum = 0.0, partner = 0.0;
        [[unroll]] for (uint i = 0u; i < ROWS * OUTS; i += PARTS) {
            if (i == v) {
                sum = sums[i];
                partner = sums[i + PARTS - 1u];
                pair = pairs[i / OUTS];
            }
        }
        if (slot + r >= end || o >= A.n_outs) continue;
        put(pair, o, ACT == NO_ACT ? sum : act(ACT, sum, partner));
    }
}
