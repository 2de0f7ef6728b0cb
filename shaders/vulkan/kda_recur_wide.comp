#version 450
/* kda_recur by subgroups: the recurrence over prepared chunks (args_kda.h), the state in registers.
 *
 * A subgroup carries 4 * SUBGROUP / K_LANES value columns of one head of one sequence; a lane holds
 * K_ROWS rows of four of them. Sums over the rows of the state meet by shuffles: lane x takes the
 * eight output rows of a pass in the order i ^ x, so that each step halves what a lane holds and no
 * step has to choose.
 *
 * With STAGED a workgroup brings a chunk into shared memory once for all its subgroups, and reads
 * the next one into registers meanwhile, a whole chunk ahead; without, all read from memory as they
 * go. */
#extension GL_GOOGLE_include_directive : require
#define EB_SUBGROUP
#define EB_ARGS eb_kda_recur_args
#include "common/args_kda.h"
#include "common.glsl"
#include "kda.glsl"
#include "kda_walk.glsl"
#include "plant.glsl"

layout(constant_id = 2) const bool ALIGNED = false; /* v and the output */
layout(constant_id = 3) const uint K_LANES = 8;     /* 8 .. SUBGROUP */
layout(constant_id = 4) const uint K_ROWS = 4;      /* a multiple of 4; K_LANES * K_ROWS = padded */
layout(constant_id = 5) const uint V_ROWS = 2;      /* of v in a lane: C / K_LANES, at least 1 */
/* vec4 of U in shared memory; of the first and the second part of a chunk in shared memory, and of
 * each in a thread's registers (1: not STAGED). */
layout(constant_id = 6) const uint N_U = 1;
layout(constant_id = 7) const uint N_FIRST = 1;
layout(constant_id = 8) const uint N_SECOND = 1;
layout(constant_id = 9) const uint PER_FIRST = 1;
layout(constant_id = 10) const uint PER_SECOND = 1;

#define STAGED (N_FIRST > 1u)
#define PADDED (K_LANES * K_ROWS)
#define LINE ((PADDED + C) / 4u) /* of the first part, in vec4 */
#define LANES_V (SUBGROUP / K_LANES)

shared vec4 u[N_U];           /* [subgroups][C][LANES_V] */
shared vec4 first[N_FIRST];   /* [2 * C][LINE] */
shared vec4 second[N_SECOND]; /* K* [C][PADDED / 4], decay [PADDED / 4] */

vec4 s[K_ROWS]; /* rows 4 * (k_lane + K_LANES * (i / 4)) + i % 4 of columns col .. col + 3 */
vec4 v[V_ROWS]; /* rows k_lane + K_LANES * i */
vec4 next_first[PER_FIRST], next_second[PER_SECOND], next_v[V_ROWS];
uint k_lane, v_lane, col;
uvec2 chunk_at; /* of the chunk that is worked on */

/* ---- state ------------------------------------------------------------------------------ */

uint state_row(uint i) {
    return 4u * (k_lane + K_LANES * (i / 4u)) + i % 4u;
}

void load_state() {
    uint dtype, dim = work.dim;
    uvec2 from = walk_from(dtype);
    bool whole = aligned4(from, size_of(dtype));
    [[unroll]] for (uint i = 0u; i < K_ROWS; i++) {
        uint k = state_row(i);
        s[i] = vec4(0.0);
        if (PLANTED(DROPPED_CARRY)) continue;
        if (k < dim && col < dim && !absent(from))
            s[i] = state_load(from, k * dim + col, dtype, whole);
        if (PLANTED(SWAPPED_LAYOUT) && k < dim && col < dim && !absent(from))
            [[unroll]] for (uint j = 0u; j < 4u; j++) s[i][j] = load(from, (col + j) * dim + k, dtype);
    }
}

void store_state(uvec2 to, uint dtype) {
    uint dim = work.dim;
    bool whole = aligned4(to, size_of(dtype)), there = !absent(to) && col < dim;
    [[unroll]] for (uint i = 0u; i < K_ROWS; i++) {
        uint k = state_row(i);
        if (PLANTED(SWAPPED_LAYOUT) && there && k < dim) {
            for (uint j = 0u; j < 4u; j++) store(to, (col + j) * dim + k, dtype, s[i][j]);
        } else if (there && k < dim) {
            state_store(to, k * dim + col, dtype, whole, s[i]);
        }
    }
}

/* ---- chunks ----------------------------------------------------------------------------- */

/* Of the chunk that the walk is at. */
void fetch_first() {
    uvec2 from = walk_chunk();
    [[unroll]] for (uint i = 0u; i < PER_FIRST; i++) {
        uint x = THREAD + i * THREADS;
        if (STAGED && x < N_FIRST) next_first[i] = PVec4(from).v[x];
    }
}

void fetch_second() {
    uint dim = work.dim;
    uvec2 from = plus(walk_chunk(), 2u * C * LINE * 16u);
    [[unroll]] for (uint i = 0u; i < PER_SECOND; i++) {
        uint x = THREAD + i * THREADS;
        if (STAGED && x < N_SECOND) next_second[i] = PVec4(from).v[x];
    }
    [[unroll]] for (uint i = 0u; i < V_ROWS; i++) {
        uint r = k_lane + K_LANES * i, at = head * dim + col;
        next_v[i] = vec4(0.0);
        if (r < C && row + r < end && col < dim)
            next_v[i] = load4(row_of(v_rows, row + r), at, at + 4u, ALIGNED);
    }
}

void put_first() {
    [[unroll]] for (uint i = 0u; i < PER_FIRST; i++) {
        uint x = THREAD + i * THREADS;
        if (STAGED && x < N_FIRST) first[x] = next_first[i];
    }
}

void put_second() {
    [[unroll]] for (uint i = 0u; i < PER_SECOND; i++) {
        uint x = THREAD + i * THREADS;
        if (STAGED && x < N_SECOND) second[x] = next_second[i];
    }
}

vec4 first_at(uint i) {
    return STAGED ? first[i] : PVec4(chunk_at).v[i];
}

float first_element(uint i) {
    return STAGED ? first[i / 4u][i % 4u] : PF32(chunk_at).v[i];
}

vec4 second_at(uint i) {
    return STAGED ? second[i] : PVec4(chunk_at).v[2u * C * LINE + i];
}

/* ---- work ------------------------------------------------------------------------------- */

/* Eight rows of (U; O), from 8 * pass on: lane x gets row 8 * pass + x % 8. */
vec4 multiply(uint pass) {
    vec4 sum[8];
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        uint r = 8u * pass + (i ^ (k_lane & 7u));
        sum[i] = vec4(0.0);
        [[unroll]] for (uint j = 0u; j < K_ROWS / 4u; j++) {
            vec4 w = first_at(r * LINE + k_lane + K_LANES * j);
            sum[i] += w.x * s[4u * j];
            sum[i] += w.y * s[4u * j + 1u];
            sum[i] += w.z * s[4u * j + 2u];
            sum[i] += w.w * s[4u * j + 3u];
        }
        [[unroll]] for (uint j = 0u; j < V_ROWS; j++) {
            uint t = min(k_lane + K_LANES * j, C - 1u); /* behind C, v is 0 */
            sum[i] += first_element(r * LINE * 4u + PADDED + t) * v[j];
        }
    }
    [[unroll]] for (uint i = 0u; i < 4u; i++) sum[i] += subgroupShuffleXor(sum[i + 4u], 4u);
    [[unroll]] for (uint i = 0u; i < 2u; i++) sum[i] += subgroupShuffleXor(sum[i + 2u], 2u);
    sum[0] += subgroupShuffleXor(sum[1], 1u);
    [[unroll]] for (uint x = 8u; x < K_LANES; x *= 2u) sum[0] += subgroupShuffleXor(sum[0], x);
    return sum[0];
}

uint u_at(uint t) {
    return (gl_SubgroupID * C + t) * LANES_V + v_lane;
}

void update() {
    [[unroll]] for (uint j = 0u; j < K_ROWS / 4u; j++) {
        vec4 d = second_at(C * (PADDED / 4u) + k_lane + K_LANES * j);
        s[4u * j] *= d.x;
        s[4u * j + 1u] *= d.y;
        s[4u * j + 2u] *= d.z;
        s[4u * j + 3u] *= d.w;
    }
    [[unroll]] for (uint t = 0u; t < C; t++) {
        vec4 x = u[u_at(t)];
        [[unroll]] for (uint j = 0u; j < K_ROWS / 4u; j++) {
            vec4 k = second_at(t * (PADDED / 4u) + k_lane + K_LANES * j);
            s[4u * j] += k.x * x;
            s[4u * j + 1u] += k.y * x;
            s[4u * j + 2u] += k.z * x;
            s[4u * j + 3u] += k.w * x;
        }
    }
}

void main() {
    if (GROUP >= push.n_groups) return;
    if (!walk_start(A.first_seq * A.work.n_heads + GROUP / A.n_blocks)) return;
    uint dim = work.dim, n_subgroups = THREADS / SUBGROUP;
    k_lane = gl_SubgroupInvocationID % K_LANES;
    v_lane = gl_SubgroupInvocationID / K_LANES;
    col = ((GROUP % A.n_blocks * n_subgroups + gl_SubgroupID) * LANES_V + v_lane) * 4u;
    load_state();
    bool more = walk_next();
    if (more) {
        fetch_first();
        fetch_second();
        put_first();
    }
    barrier();
    while (more) {
        uint this_row = row, this_end = end, at = head * dim + col;
        int this_emitted = emitted;
        chunk_at = walk_chunk();
        [[unroll]] for (uint i = 0u; i < V_ROWS; i++) v[i] = next_v[i];
        put_second();
        more = walk_next();
        if (more) {
            fetch_first();
            fetch_second();
        }
        for (uint pass = 0u; pass < 2u; pass++) {
            vec4 sum = multiply(pass);
            if (k_lane < 8u) u[u_at(8u * pass + k_lane)] = sum;
        }
        for (uint pass = 2u; pass < 4u; pass++) {
            vec4 sum = multiply(pass);
            uint r = this_row + 8u * pass - C + k_lane;
            if (k_lane < 8u && r < this_end && col < dim)
                store4(row_of(dst_rows, r), at, at + 4u, ALIGNED, sum);
        }
        barrier();
        if (more) put_first();
        update();
        if (this_emitted >= 0) store_state(walk_slot(this_emitted), A.state.region.dtype);
        barrier();
    }
    uint dtype;
    uvec2 to = walk_to(dtype);
    store_state(to, dtype);
}
