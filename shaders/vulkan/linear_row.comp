#version 450
/* linear_row: linear for few rows. A team computes OUTS outputs of up to ROWS rows; the teams of a
 * group take neighbouring outputs. What is past the last output or row repeats it and is not
 * stored. */
#extension GL_GOOGLE_include_directive : require
#include "common/args_linear.h"
#ifdef EB_ONE
#define EB_ARGS eb_linear_one_args
#else
#define EB_ARGS eb_linear_args
#endif
#include "common.glsl"
#include "linear.glsl"
#include "quant.glsl"
#include "product_row.glsl"

void main() {
    if (GROUP >= push.n_groups) return;
    place p = place_of(GROUP);
    uint n_outs = A.items[p.item].w.rows, n_cols = A.items[p.item].w.cols;
    uint out0 = (p.block * TEAMS + TEAM_INDEX) * OUTS, row0 = p.row_block * ROWS;
    [[unroll]] for (uint o = 0u; o < OUTS; o++) {
        uint r = min(out0 + o, n_outs - 1u);
        w_row[o] = w_row_of(p, r, DTYPE);
        if (DTYPE == MXFP4) w_scale[o] = plus_mul(A.items[p.item].w.scales, r, n_cols / 32u);
    }
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        x_row[r] = x_row_of(p, min(row0 + r, A.n_rows - 1u));
    }
    row_products(n_cols, ALIGNED != 0u);
    /* A thread puts one sum at a time, not each of them by turns: adding to what is there waits. */
    for (uint v = LANE; v < ROWS * OUTS; v += TEAM) {
        uint r = row0 + v / OUTS, o = out0 + v % OUTS;
        float sum = 0.0;
        [[unroll]] for (uint i = 0u; i < ROWS * OUTS; i++) sum = i == v ? sums[i] : sum;
        if (r < A.n_rows && o < n_outs) out_row_of(p, r).v[o] = start_of(p, r, o, n_outs) + sum;
    }
}
