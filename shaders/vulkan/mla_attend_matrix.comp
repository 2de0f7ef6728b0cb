#version 450
/* mla_attend_matrix: mla_attend once more, on matrix units: 128 rows of one head over the tokens
 * that mla_expand has expanded in two bf16 parts, for keys of 128 + 64 columns and values of 128. 256
 * threads: 8 subgroups of 32, each with 16 rows, its queries and sums in registers.
 *
 * Tokens are taken in tiles of 32: first the keys pass through shared memory, then the values, each
 * read while the other is worked on. Scores and probabilities stay within a subgroup. All products
 * are of two bf16 parts each way with f32 sums, the smaller parts' product left out: off by 2^-16
 * at most. */
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_bfloat16 : require
#extension GL_KHR_memory_scope_semantics : require
#define EB_ARGS eb_mla_attend_args
#include "common/args_mla.h"
#include "common.glsl"
#include "mla.glsl"
#include "bf16_parts.glsl"

const uint ROWS = EB_MLA_MATRIX_ROW_BLOCK, TILE = 32u, NOPE = EB_MLA_MATRIX_NOPE;
const uint ROPE = EB_MLA_MATRIX_ROPE, V_DIM = EB_MLA_MATRIX_V_DIM;
const uint EDGE = 16u; /* of a fragment */

/* Units are 16 bytes, eight columns. A token has NOPE / 8 of the first part and as many of the
 * second, likewise ROPE and V_DIM; in shared memory all of the first part come first. */
const uint NOPE_UNITS = NOPE / 8u, ROPE_UNITS = ROPE / 8u, V_UNITS = V_DIM / 8u;
const uint K_REST = NOPE_UNITS + ROPE_UNITS;
const uint K_PITCH = 2u * K_REST + 1u, V_PITCH = 2u * V_UNITS + 1u; /* against bank conflicts */
const uint K_FRAGS = (NOPE + ROPE) / EDGE, V_FRAGS = V_DIM / EDGE, T_FRAGS = TILE / EDGE;

shared uvec4 tile_units[TILE * K_PITCH]; /* keys [token][K_PITCH] or values [token][V_PITCH] */

/* Of each subgroup: f32 [16][32]; or two parts of as many bf16, the second S_REST further on; or
 * [16][F_PITCH], what sums are to be multiplied by, [row][EDGE] alike. */
const uint S_PITCH = TILE / 4u + 1u, S_REST = TILE / 8u, F_PITCH = EDGE / 4u;
shared uvec4 own_units[ROWS * S_PITCH];

#define MATRIX(use, type) coopmat<type, gl_ScopeSubgroup, EDGE, EDGE, use>
#define LEFT MATRIX(gl_MatrixUseA, bfloat16_t)
#define RIGHT MATRIX(gl_MatrixUseB, bfloat16_t)
#define SUMS MATRIX(gl_MatrixUseAccumulator, float)

LEFT q_near[K_FRAGS], q_rest[K_FRAGS];
SUMS sums[V_FRAGS];
uvec4 held_k[6], held_v[4];

/* ---- what this workgroup works on -------------------------------------------------------- */

uint head, m;              /* rows */
uint seen;                 /* tokens that the first of them sees */
uint stop;                 /* one past the last token of this launch that any of them sees */
uvec2 keys, ropes, values; /* of the head, or of the sequence */

/* A subgroup's place in own_units; a thread has half a row of it: the row and the half. */
uint own_at, own_row, own_half;

/* The row of the workgroup. */
uint row_here() {
    return gl_SubgroupID * EDGE + own_row;
}

/* ---- queries and results, 32 columns at a time ------------------------------------------- */

/* Four quads of this thread's half row become both parts. */
void put_parts(vec4 x[4]) {
    [[unroll]] for (uint i = 0u; i < 2u; i++) {
        uint at = own_at + own_row * S_PITCH + own_half * 2u + i;
        vec4 a = x[2u * i], b = x[2u * i + 1u];
        own_units[at] = uvec4(pack_bf16(nearest_bf16(a)), pack_bf16(nearest_bf16(b)));
        own_units[at + S_REST] =
            uvec4(pack_bf16(nearest_bf16(bf16_rest(a))), pack_bf16(nearest_bf16(bf16_rest(b))));
    }
}

/* Rows that are not there repeat the last one. */
void load_queries(uint first_row) {
    uvec2 from = plus(row_of(A.q, first_row + min(row_here(), m - 1u)), head * (NOPE + ROPE) * 4u);
    [[unroll]] for (uint c = 0u; c < K_FRAGS / 2u; c++) {
        vec4 x[4];
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            x[i] = PVec4(from).v[c * 8u + own_half * 4u + i];
        }
        put_parts(x);
        subgroupBarrier();
        [[unroll]] for (uint k = 0u; k < 2u; k++) {
            coopMatLoad(q_near[2u * c + k], own_units, own_at + 2u * k, S_PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
            coopMatLoad(q_rest[2u * c + k], own_units, own_at + S_REST + 2u * k, S_PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
        }
        subgroupBarrier();
    }
}

/* What the tokens before gave, times its sum of weights. */
void load_sums(uvec2 result, float total) {
    [[unroll]] for (uint c = 0u; c < V_FRAGS / 2u; c++) {
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            vec4 x = vec4(0.0);
            if (total > 0.0) x = PVec4(result).v[c * 8u + own_half * 4u + i] * total;
            own_units[own_at + own_row * S_PITCH + own_half * 4u + i] = floatBitsToUint(x);
        }
        subgroupBarrier();
        [[unroll]] for (uint j = 0u; j < 2u; j++) {
            coopMatLoad(sums[2u * c + j], own_units, own_at + 4u * j, S_PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
        }
        subgroupBarrier();
    }
}

void store_sums(uvec2 result, float factor) {
    [[unroll]] for (uint c = 0u; c < V_FRAGS / 2u; c++) {
        [[unroll]] for (uint j = 0u; j < 2u; j++) {
            coopMatStore(sums[2u * c + j], own_units, own_at + 4u * j, S_PITCH,
                         gl_CooperativeMatrixLayoutRowMajor);
        }
        subgroupBarrier();
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            uvec4 x = own_units[own_at + own_row * S_PITCH + own_half * 4u + i];
            if (row_here() < m)
                PVec4(result).v[c * 8u + own_half * 4u + i] = uintBitsToFloat(x) * factor;
        }
        subgroupBarrier();
    }
}

/* ---- tiles -------------------------------------------------------------------------------- */

/* Eight threads take a token; those that are not there repeat the last one. */
uint token_here(uint tile) {
    return min(tile + THREAD / 8u, stop - 1u) - A.first_token;
}

void fetch_keys(uint tile) {
    uint token = token_here(tile), u = THREAD % 8u;
    uvec2 key = plus_mul(keys, token, NOPE * 4u), rope = plus_mul(ropes, token, ROPE * 4u);
    [[unroll]] for (uint i = 0u; i < 2u; i++) {
        held_k[i] = PUvec4(key).v[u + 8u * i];
        held_k[3u + i] = PUvec4(key).v[NOPE_UNITS + u + 8u * i];
    }
    held_k[2] = PUvec4(rope).v[u];
    held_k[5] = PUvec4(rope).v[ROPE_UNITS + u];
}

void fetch_values(uint tile) {
    uvec2 value = plus_mul(values, token_here(tile), V_DIM * 4u);
    [[unroll]] for (uint i = 0u; i < 4u; i++) held_v[i] = PUvec4(value).v[THREAD % 8u + 8u * i];
}

void stow_keys() {
    [[unroll]] for (uint i = 0u; i < 6u; i++) {
        tile_units[THREAD / 8u * K_PITCH + THREAD % 8u + 8u * i] = held_k[i];
    }
}

void stow_values() {
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        tile_units[THREAD / 8u * V_PITCH + THREAD % 8u + 8u * i] = held_v[i];
    }
}

/* To own_units, f32. */
void make_scores() {
    SUMS s[T_FRAGS];
    [[unroll]] for (uint t = 0u; t < T_FRAGS; t++) s[t] = SUMS(0.0);
    [[unroll]] for (uint k = 0u; k < K_FRAGS; k++) {
        [[unroll]] for (uint t = 0u; t < T_FRAGS; t++) {
            RIGHT near, rest;
            uint at = t * EDGE * K_PITCH + 2u * k;
            coopMatLoad(near, tile_units, at, K_PITCH, gl_CooperativeMatrixLayoutColumnMajor);
            coopMatLoad(rest, tile_units, at + K_REST, K_PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
            s[t] = coopMatMulAdd(q_rest[k], near, s[t]);
            s[t] = coopMatMulAdd(q_near[k], rest, s[t]);
            s[t] = coopMatMulAdd(q_near[k], near, s[t]);
        }
    }
    [[unroll]] for (uint t = 0u; t < T_FRAGS; t++) {
        coopMatStore(s[t], own_units, own_at + 4u * t, S_PITCH,
                     gl_CooperativeMatrixLayoutRowMajor);
    }
    subgroupBarrier();
}

/* Brings older sums to a new `top`, where one row has one. */
void scale_sums(float factor) {
    if (subgroupMin(factor) == 1.0) return;
    [[unroll]] for (uint i = 0u; i < 2u; i++) {
        own_units[own_at + own_row * F_PITCH + own_half * 2u + i] = uvec4(floatBitsToUint(factor));
    }
    subgroupBarrier();
    SUMS f;
    coopMatLoad(f, own_units, own_at, F_PITCH, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint j = 0u; j < V_FRAGS; j++) sums[j] = sums[j] * f;
    subgroupBarrier();
}

/* Scores of the tile become probabilities relative to about the row's largest score so far, in two
 * parts; the sums follow. Two neighbouring threads have a row, and its maximum and sum. */
void softmax_tile(uint tile, inout float top, inout float total) {
    vec4 s[4];
    uint first = tile + own_half * 16u, end = min(seen + row_here(), stop);
    float here = UNSEEN, sum = 0.0;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        vec4 x = uintBitsToFloat(own_units[own_at + own_row * S_PITCH + own_half * 4u + i]);
        bvec4 sees = lessThan(uvec4(0u, 1u, 2u, 3u) + (first + 4u * i), uvec4(end));
        s[i] = mix(vec4(UNSEEN), x * A.scale, sees);
        here = max(here, max(max(s[i].x, s[i].y), max(s[i].z, s[i].w)));
    }
    float old = top;
    here = max(here, subgroupShuffleXor(here, 1u));
    if (here > top + LAG) top = here;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        bvec4 sees = greaterThan(s[i], vec4(UNSEEN));
        s[i] = mix(vec4(0.0), exp(s[i] - top), sees);
        sum += (s[i].x + s[i].y) + (s[i].z + s[i].w);
    }
    sum += subgroupShuffleXor(sum, 1u);
    float factor = total > 0.0 ? exp(old - top) : 1.0; /* of nothing nothing changes */
    total = total * factor + sum;
    subgroupBarrier();
    scale_sums(factor);
    put_parts(s);
    subgroupBarrier();
}

void add_values() {
    [[unroll]] for (uint t = 0u; t < T_FRAGS; t++) {
        LEFT p, p_rest;
        coopMatLoad(p, own_units, own_at + 2u * t, S_PITCH, gl_CooperativeMatrixLayoutRowMajor);
        coopMatLoad(p_rest, own_units, own_at + S_REST + 2u * t, S_PITCH,
                    gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint j = 0u; j < V_FRAGS; j++) {
            RIGHT near, rest;
            uint at = t * EDGE * V_PITCH + 2u * j;
            coopMatLoad(near, tile_units, at, V_PITCH, gl_CooperativeMatrixLayoutRowMajor);
            coopMatLoad(rest, tile_units, at + V_UNITS, V_PITCH, gl_CooperativeMatrixLayoutRowMajor);
            sums[j] = coopMatMulAdd(p_rest, near, sums[j]);
            sums[j] = coopMatMulAdd(p, rest, sums[j]);
            sums[j] = coopMatMulAdd(p, near, sums[j]);
        }
    }
}

void main() {
    if (GROUP >= push.n_groups) return;
    uint g = GROUP, row_block = A.n_row_blocks - 1u - g % A.n_row_blocks; /* longest first */
    g /= A.n_row_blocks;
    head = g % A.n_heads;
    uint slot = g / A.n_heads, seq = A.first_seq + slot;
    uint begin = uint(PI32(A.row_offsets).v[seq]), end = uint(PI32(A.row_offsets).v[seq + 1u]);
    uint first_row = begin + row_block * ROWS;
    if (first_row >= end) return;
    m = min(end - first_row, ROWS);
    seen = uint(PI32(A.context).v[seq]) + row_block * ROWS + 1u;
    stop = min(min(seen + m - 1u, A.token_end), A.first_token + A.n_tokens);
    if (stop <= A.first_token && A.is_first == 0u) return;
    own_at = gl_SubgroupID * EDGE * S_PITCH;
    own_row = gl_SubgroupInvocationID / 2u;
    own_half = gl_SubgroupInvocationID % 2u;

    uint first = (slot * A.n_heads + head) * A.n_tokens;
    keys = plus_mul(A.keys, first, NOPE * 4u);
    values = plus_mul(A.values, first, V_DIM * 4u);
    ropes = plus_mul(A.ropes, slot * A.n_tokens, ROPE * 4u);
    uint row = first_row + min(row_here(), m - 1u);
    uvec2 run = plus_mul(A.runs, row * A.n_heads + head, 8u);
    uvec2 result = plus(row_of(A.dst, row), head * V_DIM * 4u);
    float top = UNSEEN, total = 0.0;
    if (A.is_first == 0u) {
        top = PF32(run).v[0];
        total = PF32(run).v[1];
    }
    if (stop > A.first_token) fetch_keys(A.first_token);
    load_queries(first_row);
    load_sums(result, total);
    for (uint tile = A.first_token; tile < stop; tile += TILE) {
        barrier();
        stow_keys();
        barrier();
        fetch_values(tile);
        make_scores();
        softmax_tile(tile, top, total);
        barrier();
        stow_values();
        barrier();
        if (tile + TILE < stop) fetch_keys(tile + TILE);
        add_values();
    }
    store_sums(result, total > 0.0 ? 1.0 / total : 0.0);
    if (row_here() < m && own_half == 0u) {
        PF32(run).v[0] = top;
        PF32(run).v[1] = total;
        if (!absent(A.lse.at)) {
            float lse = total > 0.0 ? top + log(total) : NO_LSE;
            PF32(row_of(A.lse, row)).v[head] = lse;
        }
    }
}
