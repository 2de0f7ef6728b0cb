#version 450
/* linear_row_t: linear for few rows with a transposed weight, [inputs][outputs]. A thread takes one
 * unit of neighbouring outputs for up to ROWS rows, OUT_LANES threads lie side by side, and the
 * slices of a group share the inputs. Not for MXFP4. */
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

layout(constant_id = 4) const uint ROWS = 1; /* of x, a power of two */

const uint OUT_LANES = EB_ROW_T_LANES;
const uint DEPTH = 4u; /* loads under way */
const uint N_JOINED = 8u;
#define SLICES (THREADS / OUT_LANES)
#define SLICE (THREAD / OUT_LANES)

shared float parts[N_JOINED * 257u];

uvec4 held[DEPTH];
float sums[ROWS * UNIT]; /* [row][output] */

/* The outputs col .. col + UNIT - 1 of input k; n_outs as they all are. */
uvec4 load_outputs(place p, uint k, uint col, uint n_outs) {
    uvec2 row = w_row_of(p, k, DTYPE);
    if (col + UNIT > n_outs) return load_part(row, col, n_outs);
    return load_unit(row, col / UNIT, ALIGNED != 0u);
}

void add_input(uint j, float x, uint r) {
    [[unroll]] for (uint i = 0u; i < QUADS; i++) {
        vec4 w = quad_of(held[j], i);
        [[unroll]] for (uint c = 0u; c < 4u; c++) sums[r * UNIT + 4u * i + c] += x * w[c];
    }
}

/* Adds up the slices and stores, N_JOINED values of each thread at a time. */
void join_slices(place p, uint row0, uint n_outs) {
    [[unroll]] for (uint v0 = 0u; v0 < ROWS * UNIT; v0 += N_JOINED) {
        barrier();
        [[unroll]] for (uint j = 0u; j < N_JOINED; j++) {
            if (v0 + j < ROWS * UNIT) parts[j * 257u + THREAD] = sums[v0 + j];
        }
        barrier();
        for (uint t = THREAD; t < OUT_LANES * N_JOINED; t += THREADS) {
            uint v = v0 + t % N_JOINED, lane = t / N_JOINED;
            uint r = row0 + v / UNIT, o = (p.block * OUT_LANES + lane) * UNIT + v % UNIT;
            if (v >= ROWS * UNIT || r >= A.n_rows || o >= n_outs) continue;
            float sum = 0.0;
            uint at = t % N_JOINED * 257u + lane;
            for (uint s = 0u; s < SLICES; s++) sum += parts[at + s * OUT_LANES];
            out_row_of(p, r).v[o] = start_of(p, r, o, n_outs) + sum;
        }
    }
}

void main() {
    if (GROUP >= push.n_groups) return;
    place p = place_of(GROUP);
    uint n_in = A.items[p.item].w.rows, n_outs = A.items[p.item].w.cols;
    uint row0 = p.row_block * ROWS, col = (p.block * OUT_LANES + THREAD % OUT_LANES) * UNIT;
    uvec2 x_row[ROWS];
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        x_row[r] = x_row_of(p, min(row0 + r, A.n_rows - 1u));
    }
    [[unroll]] for (uint v = 0u; v < ROWS * UNIT; v++) sums[v] = 0.0;
    for (uint k0 = SLICE; k0 < n_in && col < n_outs; k0 += DEPTH * SLICES) {
        if (ALIGNED != 0u && col + UNIT <= n_outs && k0 + (DEPTH - 1u) * SLICES < n_in) {
            /* Without a branch between them, so that all loads are under way together. */
            [[unroll]] for (uint j = 0u; j < DEPTH; j++) {
                held[j] = PUvec4(w_row_of(p, k0 + j * SLICES, DTYPE)).v[col / UNIT];
            }
        } else {
            [[unroll]] for (uint j = 0u; j < DEPTH; j++) {
                uint k = k0 + j * SLICES;
                held[j] = uvec4(0u);
                if (k < n_in) held[j] = load_outputs(p, k, col, n_outs);
            }
        }
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            [[unroll]] for (uint j = 0u; j < DEPTH; j++) {
                /* What is held past the last input is 0. */
                add_input(j, PF32(x_row[r]).v[min(k0 + j * SLICES, n_in - 1u)], r);
            }
        }
    }
    join_slices(p, row0, n_outs);
}
