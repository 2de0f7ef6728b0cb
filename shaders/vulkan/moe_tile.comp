#version 450
/* moe_tile: products of many pairs per expert: a group computes one block of the plan, BM slots of
 * an expert, by BN products: with an activation BN / 2 outputs, whose gate and up are partners. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_moe_args
#include "common/args_moe.h"
#include "common.glsl"
#include "math.glsl"
#include "quant.glsl"
#ifdef EB_MATRIX
#include "product_matrix.glsl"
#else
#include "product_tile.glsl"
#endif
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

/* Column n of the tile: a part of the expert's weights, and an output of the group. */
uint part_of(uint n) {
    return ACT == NO_ACT ? 0u : n / PAIR_AT % 2u;
}

uint output_of(uint n) {
    return out0 + (ACT == NO_ACT ? n : n / (2u * PAIR_AT) * PAIR_AT + n % PAIR_AT);
}

uvec2 tile_w_row(uint n) {
    return w_row_of(weight_of(block.expert, part_of(n)), min(output_of(n), A.n_outs - 1u), DTYPE);
}

uvec2 tile_scales(uint n) {
    uint r = min(output_of(n), A.n_outs - 1u);
    return plus_mul(scales_of(block.expert, part_of(n)), r, A.n_in / 32u);
}

float tile_start(uint m, uint n) {
    return 0.0;
}

void tile_put(uint m, uint n, float sum, float partner) {
    uint o = output_of(n);
    if (m >= block.n || o >= A.n_outs || part_of(n) != 0u) return;
    put(pair_of(block.slot + m), o, ACT == NO_ACT ? sum : act(ACT, sum, partner));
}

void main() {
    if (GROUP >= push.n_groups) return;
    uint g = GROUP;
    block = Plan(A.plan).v[g / A.blocks];
    if (block.n == 0u) return;
    out0 = g % A.blocks * N_OUTS;
    uint bits = weight_of(block.expert, 0u).x;
    if (ACT != NO_ACT) bits |= weight_of(block.expert, 1u).x;
    tile_products(A.n_in, false, ALIGNED != 0u && (bits & 15u) == 0u);
}
