#version 450
/* linear_tile: linear for many rows: a group computes a tile of BM rows by BN outputs. Rows and
 * outputs past the last one repeat it and are not stored. */
#extension GL_GOOGLE_include_directive : require
#include "common/args_linear.h"
#ifdef EB_ONE
#define EB_ARGS eb_linear_one_args
#else
#define EB_ARGS eb_linear_args
#endif
#ifndef EB_MATRIX
#define EB_TILE_TRANSPOSED
#endif
#include "common.glsl"
#include "linear.glsl"
#include "quant.glsl"
#ifdef EB_MATRIX
#include "product_matrix.glsl"
#else
#include "product_tile.glsl"
#endif

layout(constant_id = 5) const uint TRANSPOSED = 0;

place p;
uint n_outs;

uvec2 tile_x_row(uint m) {
    return x_row_of(p, min(p.row_block * BM + m, A.n_rows - 1u));
}

uvec2 tile_w_row(uint n) {
    return w_row_of(p, min(p.block * BN + n, n_outs - 1u), DTYPE);
}

uvec2 tile_scales(uint n) {
    uint r = min(p.block * BN + n, n_outs - 1u);
    return plus_mul(A.items[p.item].w.scales, r, A.items[p.item].w.cols / 32u);
}

#ifdef EB_TILE_TRANSPOSED
uvec2 tile_w_input(uint k, out uint first, out uint all) {
    first = p.block * BN;
    all = n_outs;
    return w_row_of(p, k, DTYPE);
}
#endif

float tile_start(uint m, uint n) {
    return start_of(p, p.row_block * BM + m, p.block * BN + n, n_outs);
}

void tile_put(uint m, uint n, float sum, float partner) {
    uint r = p.row_block * BM + m, o = p.block * BN + n;
    if (r < A.n_rows && o < n_outs) out_row_of(p, r).v[o] = sum;
}

void main() {
    if (GROUP >= push.n_groups) return;
    p = place_of(GROUP);
    bool transposed = TRANSPOSED != 0u;
    uint rows = A.items[p.item].w.rows, cols = A.items[p.item].w.cols;
    n_outs = transposed ? cols : rows;
    tile_products(transposed ? rows : cols, transposed, ALIGNED != 0u);
}
