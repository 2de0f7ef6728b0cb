#version 450
/* moe_tile: products of many pairs per expert: a group computes one block of the plan, BM slots of
 * an expert, by 64 products: with an activation 32 outputs, gates in the first half of the tile and
 * ups in the second. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_moe_args
#include "common/args_moe.h"
#include "common.glsl"
#include "math.glsl"
#include "quant.glsl"
#include "product_tile.glsl"
#include "moe.glsl"

layout(constant_id = 5) const uint ACT = NO_ACT;

const uint N_OUTS = ACT == NO_ACT ? BN : BN / 2u; /* of a group */

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Plan {
    eb_moe_block v[];
};

eb_moe_block block;
uint out0;

uvec2 tile_x_row(uint m) {
    return x_row_of(pair_of(block.slot + min(m, block.n - 1u)));
}

uvec2 tile_w_row(uint n) {
    uint r = min(out0 + n % N_OUTS, A.n_outs - 1u);
    return w_row_of(weight_of(block.expert, n / N_OUTS), r, DTYPE);
}

uvec2 tile_scales(uint n) {
    uint r = min(out0 + n % N_OUTS, A.n_outs - 1u);
    return plus_mul(scales_of(block.expert, n / N_OUTS), r, A.n_in / 32u);
}

void main() {
    if (GROUP >= push.n_groups) return;
    uint g = GROUP + A.first;
    block = Plan(A.plan).v[g / A.blocks];
    if (block.n == 0u) return;
    out0 = g % A.blocks * N_OUTS;
    uint bits = weight_of(block.expert, 0u).x;
    if (ACT != NO_ACT) bits |= weight_of(block.expert, 1u).x;
    tile_products(A.n_in, false, ALIGNED != 0u && (bits & 15u) == 0u);
    [[unroll]] for (uint i = 0u; i < TM; i++) {
        uint m = TILE_M + i * M_ALONG;
        if (m >= block.n) continue;
        uint pair = pair_of(block.slot + m);
        [[unroll]] for (uint j = 0u; j < N_OUTS / N_ALONG; j++) {
            uint o = out0 + TILE_N + j * N_ALONG;
            if (o >= A.n_outs) continue;
            float v = tile_sums[i][j];
            if (ACT != NO_ACT) v = act(ACT, v, tile_sums[i][j + TN / 2u]);
            put(pair, o, v);
        }
    }
}
