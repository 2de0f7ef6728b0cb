#version 450
/* kda_recur, for any device: the recurrence over prepared chunks (args_kda.h). A workgroup carries
 * 4 * COLS4 value columns of one head of one sequence through its chunks, in shared memory. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_kda_recur_args
#include "common/args_kda.h"
#include "common.glsl"
#include "kda.glsl"
#include "kda_walk.glsl"

layout(constant_id = 2) const bool ALIGNED = false; /* v and the output */
layout(constant_id = 3) const uint COLS4 = 1;       /* a multiple of 4 columns; 1 to 8 */

shared vec4 state[512]; /* [padded][COLS4] */
shared vec4 u[128], v[128]; /* [C][COLS4] */

uint col; /* the first one */

void load_state() {
    uint dtype, dim = work.dim;
    uvec2 from = walk_from(dtype);
    bool whole = aligned4(from, size_of(dtype));
    for (uint i = THREAD; i < work.padded * COLS4; i += THREADS) {
        uint k = i / COLS4, c = col + i % COLS4 * 4u;
        bool there = k < dim && c < dim && !absent(from);
        state[i] = there ? state_load(from, k * dim + c, dtype, whole) : vec4(0.0);
    }
}

void store_state(uvec2 to, uint dtype) {
    uint dim = work.dim;
    bool whole = aligned4(to, size_of(dtype));
    if (absent(to)) return;
    for (uint i = THREAD; i < dim * COLS4; i += THREADS) {
        uint k = i / COLS4, c = col + i % COLS4 * 4u;
        if (c < dim) state_store(to, k * dim + c, dtype, whole, state[i]);
    }
}

/* Columns of v's rows, absent ones as zeros. */
void load_v() {
    uint dim = work.dim;
    for (uint i = THREAD; i < C * COLS4; i += THREADS) {
        uint r = row + i / COLS4, c = col + i % COLS4 * 4u, at = head * dim + c;
        v[i] = r < end && c < dim ? load4(row_of(v_rows, r), at, at + 4u, ALIGNED) : vec4(0.0);
    }
}

/* U, and the rows of the output. */
void multiply(uvec2 from) {
    uint dim = work.dim, padded = work.padded;
    for (uint i = THREAD; i < 2u * C * COLS4; i += THREADS) {
        uint r = i / COLS4, x = i % COLS4, c = col + x * 4u;
        uvec2 line = plus(from, r * (padded + C) * 4u);
        vec4 sum = vec4(0.0);
        for (uint k = 0u; k < padded; k += 4u) {
            vec4 w = PVec4(line).v[k / 4u];
            [[unroll]] for (uint j = 0u; j < 4u; j++) sum += w[j] * state[(k + j) * COLS4 + x];
        }
        line = plus(line, padded * 4u);
        for (uint k = 0u; k < C; k += 4u) {
            vec4 w = PVec4(line).v[k / 4u];
            [[unroll]] for (uint j = 0u; j < 4u; j++) sum += w[j] * v[(k + j) * COLS4 + x];
        }
        if (r < C) {
            u[i] = sum;
        } else if (row + r - C < end && c < dim) {
            uint at = head * dim + c;
            store4(row_of(dst_rows, row + r - C), at, at + 4u, ALIGNED, sum);
        }
    }
}

void update(uvec2 from) {
    uint padded = work.padded;
    uvec2 star = plus(from, 2u * C * (padded + C) * 4u), decay = plus(star, C * padded * 4u);
    for (uint i = THREAD; i < work.dim * COLS4; i += THREADS) {
        uint k = i / COLS4, x = i % COLS4;
        vec4 s = PF32(decay).v[k] * state[i];
        for (uint t = 0u; t < end - row; t++) s += PF32(star).v[t * padded + k] * u[t * COLS4 + x];
        state[i] = s;
    }
}

void main() {
    if (GROUP >= push.n_groups) return;
    if (!walk_start(A.first_seq * A.work.n_heads + GROUP / A.n_blocks)) return;
    col = GROUP % A.n_blocks * COLS4 * 4u;
    load_state();
    while (walk_next()) {
        uvec2 from = walk_chunk();
        load_v();
        barrier();
        multiply(from);
        barrier();
        update(from);
        if (emitted >= 0) store_state(walk_slot(emitted), A.state.region.dtype);
    }
    uint dtype;
    uvec2 to = walk_to(dtype);
    store_state(to, dtype);
}
