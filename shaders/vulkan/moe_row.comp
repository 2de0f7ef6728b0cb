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

/* Of the slot: its expert, n_experts where it has none, and where that one's slots begin and end. */
shared uint expert, begin, end;

/* For all threads. */
void find_expert(uint slot) {
    if (THREAD == 0u) expert = A.n_experts;
    barrier();
    PI32 offsets = PI32(A.offsets);
    for (uint e = THREAD; e < A.n_experts; e += THREADS) {
        uint e_begin = uint(offsets.v[e]), e_end = uint(offsets.v[e + 1u]);
        if (e_begin <= slot && slot < e_end) {
            expert = e;
            begin = e_begin;
            end = e_end;
        }
    }
    barrier();
}

void main() {
    if (GROUP >= push.n_groups) return;
    uint g = GROUP + A.first, slot = g / A.blocks;
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
    [[unroll]] for (uint v = 0u; v < ROWS * OUTS; v += PARTS) {
        uint r = slot + v / OUTS, o = out0 + v % OUTS / PARTS;
        if (LANE != v / PARTS % TEAM || r >= end || o >= A.n_outs) continue;
        put(pairs[v / OUTS], o, ACT == NO_ACT ? sums[v] : act(ACT, sums[v], sums[v + PARTS - 1u]));
    }
}
