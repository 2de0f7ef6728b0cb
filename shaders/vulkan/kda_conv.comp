#version 450
/* kda_conv: the short causal convolution of q, k and v with SiLU. A workgroup takes 4 * THREADS
 * channels of one of the three and ROWS rows, a thread four channels. The windows that the call
 * leaves are kda_windows' job, after this one: they may be written in place. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_kda_conv_args
#include "common/args_kda.h"
#include "common.glsl"
#include "kda.glsl"

/* Inputs and outputs are aligned and the channels a multiple of 4. */
layout(constant_id = 2) const bool ALIGNED = false;

#define ROWS uint(EB_KDA_CONV_ROWS)

void main() {
    if (GROUP >= push.n_groups) return;
    uint n = A.n_channels, per = A.channel_groups * A.row_groups;
    uint unit = GROUP / per, rest = GROUP % per;
    /* Neighbouring workgroups read neighbouring channels of the same rows. */
    uint c = (rest % A.channel_groups * THREADS + THREAD) * 4u;
    uint row = rest / A.channel_groups * ROWS;
    uint end = min(row + ROWS, seq_begin(A.rows, A.rows.n_seqs));
    if (row >= end || c >= n) return;
    eb_mat_arg x = A.x[unit], dst = A.dst[unit];
    mat4 taps = conv_weights(A.weight[unit], c, n);
    uint s = seq_of_row(A.rows, row), begin = seq_begin(A.rows, s);
    uint next = seq_begin(A.rows, s + 1u);
    if (row >= begin + 3u && row + ROWS <= next) {
        vec4 in_rows[ROWS + 3u];
        [[unroll]] for (uint i = 0u; i < ROWS + 3u; i++)
            in_rows[i] = load4(row_of(x, row + i - 3u), c, n, ALIGNED);
        [[unroll]] for (uint i = 0u; i < ROWS; i++) {
            vec4 y = conv_line(taps, in_rows[i], in_rows[i + 1u], in_rows[i + 2u], in_rows[i + 3u]);
            store4(row_of(dst, row + i), c, n, ALIGNED, y);
        }
        return;
    }
    for (; row < end; row++) {
        while (row >= seq_begin(A.rows, s + 1u)) s++;
        begin = seq_begin(A.rows, s);
        uvec2 window = row - begin < 3u ? unit_in(A.state, s, unit) : uvec2(0u);
        vec4 x0 = conv_input(x, window, begin, row, 3u, c, n, ALIGNED);
        vec4 x1 = conv_input(x, window, begin, row, 2u, c, n, ALIGNED);
        vec4 x2 = conv_input(x, window, begin, row, 1u, c, n, ALIGNED);
        vec4 x3 = conv_input(x, window, begin, row, 0u, c, n, ALIGNED);
        store4(row_of(dst, row), c, n, ALIGNED, conv_line(taps, x0, x1, x2, x3));
    }
}
