#version 450
/* mla_decode_matrix: mla_decode once more, on matrix units: 32 heads of one row over one split of
 * its context, for latents of 512 columns and 64 rotated ones in bf16. 256 threads: 8 subgroups of
 * 32.
 *
 * The cache is taken in tiles of 32 tokens, each loaded while the one before is worked on, and every
 * row of it is read once. Scores are queries times tile: a subgroup has 16 heads and a quarter of
 * the columns, its queries in registers; quarters are joined in shared memory. Then softmax, and the
 * sums: a subgroup has 64 columns of all heads.
 *
 * Queries and probabilities are split into two bf16, what the first one leaves goes to the second:
 * a product is off by 2^-17 at most. */
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_bfloat16 : require
#extension GL_KHR_memory_scope_semantics : require
#define EB_ARGS eb_mla_decode_args
#include "common/args_mla.h"
#include "common.glsl"
#include "mla.glsl"
#include "bf16_parts.glsl"

const uint HEADS = EB_MLA_MATRIX_HEADS, TOKENS = 32u, LORA = EB_MLA_MATRIX_LORA;
const uint WIDTH = LORA + EB_MLA_MATRIX_ROPE;
const uint EDGE = 16u; /* of a fragment */
const uint UNITS = WIDTH / 8u; /* of a row of the cache: 16 bytes, eight columns */
const uint PITCH = UNITS + 1u; /* in shared memory, against bank conflicts */
const uint QUARTER = WIDTH / EDGE / 4u; /* fragments of a quarter of the columns */
const uint LOADS = UNITS / 8u;          /* of a thread: eight threads take a row */
const uint COLUMNS = LORA / 8u;         /* of a subgroup */
const uint N_HALVES = HEADS / EDGE, N_COLS = COLUMNS / EDGE, N_TOKENS = TOKENS / EDGE;

shared uvec4 tile[TOKENS * PITCH]; /* [token][unit]; before the first, queries [head][unit] */

/* Scores [2][head][S_PITCH], f32. Then probabilities as two bf16, [2][head][P_PITCH], and behind
 * them what older sums are to be multiplied by, [head][EDGE] alike. */
const uint S_PITCH = TOKENS / 4u + 1u, P_PITCH = TOKENS / 8u + 1u, F_PITCH = EDGE / 4u;
const uint P_REST = HEADS * P_PITCH, F_AT = 2u * P_REST;
shared uvec4 pool[2u * HEADS * S_PITCH];

#define MATRIX(use, type) coopmat<type, gl_ScopeSubgroup, EDGE, EDGE, use>
#define QUERY MATRIX(gl_MatrixUseA, bfloat16_t)
#define LATENT MATRIX(gl_MatrixUseB, bfloat16_t)
#define SUMS MATRIX(gl_MatrixUseAccumulator, float)

QUERY q_near[QUARTER], q_rest[QUARTER];
SUMS sums[N_HALVES * N_COLS];
uvec4 held[LOADS];

/* ---- queries ----------------------------------------------------------------------------- */

/* Part `rest` of all queries to the tile's place. Heads that are not there are zeros. */
void share_queries(uvec2 q_row, uint first_head, uint n_heads, bool rest) {
    uint h = THREAD / 8u;
    uvec2 from = plus(q_row, (first_head + h) * WIDTH * 4u);
    for (uint u = THREAD % 8u; u < UNITS; u += 8u) {
        vec4 a = vec4(0.0), b = vec4(0.0);
        if (h < n_heads) {
            [[unroll]] for (uint j = 0u; j < 4u; j++) {
                a[j] = PF32(from).v[u * 8u + j];
                b[j] = PF32(from).v[u * 8u + 4u + j];
            }
        }
        if (rest) {
            a = bf16_rest(a);
            b = bf16_rest(b);
        }
        tile[h * PITCH + u] = uvec4(pack_bf16(nearest_bf16(a)), pack_bf16(nearest_bf16(b)));
    }
}

void load_queries(uvec2 q_row, uint first_head, uint n_heads) {
    uint at = gl_SubgroupID / 4u * EDGE * PITCH + gl_SubgroupID % 4u * QUARTER * 2u;
    share_queries(q_row, first_head, n_heads, false);
    barrier();
    [[unroll]] for (uint k = 0u; k < QUARTER; k++) {
        coopMatLoad(q_near[k], tile, at + k * 2u, PITCH, gl_CooperativeMatrixLayoutRowMajor);
    }
    barrier();
    share_queries(q_row, first_head, n_heads, true);
    barrier();
    [[unroll]] for (uint k = 0u; k < QUARTER; k++) {
        coopMatLoad(q_rest[k], tile, at + k * 2u, PITCH, gl_CooperativeMatrixLayoutRowMajor);
    }
}

/* ---- the tile ----------------------------------------------------------------------------- */

/* A thread's units of its token's row, which lies at any multiple of 2 bytes. */
void fetch(uvec2 at) {
    if ((at.x & 15u) == 0u) {
        [[unroll]] for (uint i = 0u; i < LOADS; i++) {
            held[i] = PUvec4(at).v[THREAD % 8u + 8u * i];
        }
    } else {
        [[unroll]] for (uint i = 0u; i < LOADS; i++) {
            uint first = (THREAD % 8u + 8u * i) * 8u;
            [[unroll]] for (uint j = 0u; j < 4u; j++) {
                uint low = uint(PU16(at).v[first + 2u * j]);
                held[i][j] = low | (uint(PU16(at).v[first + 2u * j + 1u]) << 16u);
            }
        }
    }
}

void stow() {
    [[unroll]] for (uint i = 0u; i < LOADS; i++) {
        tile[THREAD / 8u * PITCH + THREAD % 8u + 8u * i] = held[i];
    }
}

/* ---- scores ------------------------------------------------------------------------------- */

/* To pool, as two halves that are still to be added. */
void make_scores() {
    SUMS s[N_TOKENS];
    uint quarter = gl_SubgroupID % 4u, column = quarter * QUARTER * 2u;
    [[unroll]] for (uint t = 0u; t < N_TOKENS; t++) s[t] = SUMS(0.0);
    [[unroll]] for (uint k = 0u; k < QUARTER; k++) {
        [[unroll]] for (uint t = 0u; t < N_TOKENS; t++) {
            LATENT c;
            coopMatLoad(c, tile, t * EDGE * PITCH + column + k * 2u, PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
            s[t] = coopMatMulAdd(q_rest[k], c, s[t]);
            s[t] = coopMatMulAdd(q_near[k], c, s[t]);
        }
    }
    uint at = (quarter % 2u * HEADS + gl_SubgroupID / 4u * EDGE) * S_PITCH;
    if (quarter >= 2u) {
        [[unroll]] for (uint t = 0u; t < N_TOKENS; t++) {
            coopMatStore(s[t], pool, at + t * EDGE / 4u, S_PITCH,
                         gl_CooperativeMatrixLayoutRowMajor);
        }
    }
    barrier();
    if (quarter < 2u) {
        [[unroll]] for (uint t = 0u; t < N_TOKENS; t++) {
            SUMS other;
            coopMatLoad(other, pool, at + t * EDGE / 4u, S_PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
            s[t] += other;
            coopMatStore(s[t], pool, at + t * EDGE / 4u, S_PITCH,
                         gl_CooperativeMatrixLayoutRowMajor);
        }
    }
    barrier();
}

/* ---- softmax ------------------------------------------------------------------------------ */

/* Eight neighbouring threads have a head, four tokens each, of which the tile has n. Scores become
 * probabilities relative to the largest score so far. */
void softmax_tile(uint n, inout float top, inout float total) {
    uint h = THREAD / 8u, part = THREAD % 8u;
    vec4 s = uintBitsToFloat(pool[h * S_PITCH + part]) +
             uintBitsToFloat(pool[(HEADS + h) * S_PITCH + part]);
    bvec4 seen = lessThan(uvec4(0u, 1u, 2u, 3u) + 4u * part, uvec4(n));
    s = mix(vec4(UNSEEN), s * A.scale, seen);
    float old = top, here = max(max(s.x, s.y), max(s.z, s.w));
    [[unroll]] for (uint m = 1u; m < 8u; m *= 2u) here = max(here, subgroupShuffleXor(here, m));
    top = max(top, here);
    vec4 e = mix(vec4(0.0), exp(s - top), seen);
    float sum = (e.x + e.y) + (e.z + e.w), factor = total > 0.0 ? exp(old - top) : 0.0;
    [[unroll]] for (uint m = 1u; m < 8u; m *= 2u) sum += subgroupShuffleXor(sum, m);
    total = total * factor + sum;
    barrier();
    uvec2 near = pack_bf16(nearest_bf16(e)), rest = pack_bf16(nearest_bf16(bf16_rest(e)));
    uint at = h * P_PITCH + part / 2u;
    if (part % 2u == 0u) {
        pool[at].xy = near;
        pool[P_REST + at].xy = rest;
    } else {
        pool[at].zw = near;
        pool[P_REST + at].zw = rest;
    }
    if (part < F_PITCH) pool[F_AT + h * F_PITCH + part] = uvec4(floatBitsToUint(factor));
    barrier();
}

/* ---- sums of values ----------------------------------------------------------------------- */

void add_values() {
    [[unroll]] for (uint i = 0u; i < N_HALVES; i++) {
        SUMS factor;
        coopMatLoad(factor, pool, F_AT + i * EDGE * F_PITCH, F_PITCH,
                    gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint j = 0u; j < N_COLS; j++) {
            sums[i * N_COLS + j] = sums[i * N_COLS + j] * factor;
        }
    }
    [[unroll]] for (uint t = 0u; t < N_TOKENS; t++) {
        QUERY near[N_HALVES], rest[N_HALVES];
        [[unroll]] for (uint i = 0u; i < N_HALVES; i++) {
            uint at = i * EDGE * P_PITCH + t * 2u;
            coopMatLoad(near[i], pool, at, P_PITCH, gl_CooperativeMatrixLayoutRowMajor);
            coopMatLoad(rest[i], pool, P_REST + at, P_PITCH, gl_CooperativeMatrixLayoutRowMajor);
        }
        [[unroll]] for (uint j = 0u; j < N_COLS; j++) {
            LATENT c;
            coopMatLoad(c, tile, t * EDGE * PITCH + (gl_SubgroupID * COLUMNS + j * EDGE) / 8u, PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint i = 0u; i < N_HALVES; i++) {
                sums[i * N_COLS + j] = coopMatMulAdd(rest[i], c, sums[i * N_COLS + j]);
                sums[i * N_COLS + j] = coopMatMulAdd(near[i], c, sums[i * N_COLS + j]);
            }
        }
    }
}

/* ---- parts -------------------------------------------------------------------------------- */

void main() {
    if (GROUP >= push.n_groups) return;
    uint n_head_groups = (A.n_heads + HEADS - 1u) / HEADS;
    uint g = GROUP, head_group = g % n_head_groups;
    g /= n_head_groups;
    uint split = g % A.n_splits, index = g / A.n_splits, row = A.first_row + index;
    if (row >= uint(PI32(A.row_offsets).v[A.n_seqs])) return;
    uint seq = mla_seq_of(A.row_offsets, A.n_seqs, row);
    uint end = mla_position(A.row_offsets, A.pages.context, seq, row) + 1u;
    end = min(end, A.token_end);
    uint tokens = split_tokens(end, A.n_splits);
    uint begin = max(split * tokens, A.token_begin);
    end = min(split * tokens + tokens, end);
    if (begin >= end) return;

    uint first_head = head_group * HEADS, n_heads = min(HEADS, A.n_heads - first_head);
    uint token = begin + THREAD / 8u; /* behind the last one: the last one */
    fetch(token_of(A.pages, seq, min(token, end - 1u)));
    uvec2 at = token_of(A.pages, seq, min(token + TOKENS, end - 1u));
    load_queries(row_of(A.q, row), first_head, n_heads);
    [[unroll]] for (uint i = 0u; i < N_HALVES * N_COLS; i++) sums[i] = SUMS(0.0);
    float top = UNSEEN, total = 0.0;
    for (uint first = begin; first < end; first += TOKENS) {
        barrier();
        stow();
        barrier();
        if (first + TOKENS < end) fetch(at);
        token += TOKENS;
        at = token_of(A.pages, seq, min(token + TOKENS, end - 1u));
        make_scores();
        softmax_tile(min(end - first, TOKENS), top, total);
        add_values();
    }

    const uint part_quads = LORA / 4u + 1u;
    uint first_part = (index * A.n_splits + split) * A.n_heads + first_head;
    uvec2 parts = plus_mul(A.parts, first_part, part_quads * 16u);
    [[unroll]] for (uint i = 0u; i < N_HALVES; i++) {
        if (i * EDGE >= n_heads) continue; /* n_heads is a multiple of EDGE */
        [[unroll]] for (uint j = 0u; j < N_COLS; j++) {
            uint at = i * EDGE * part_quads + (gl_SubgroupID * COLUMNS + j * EDGE) / 4u;
            coopMatStore(sums[i * N_COLS + j], PVec4(parts).v, at, part_quads,
                         gl_CooperativeMatrixLayoutRowMajor);
        }
    }
    uint h = THREAD / 8u;
    if (THREAD % 8u == 0u && h < n_heads) {
        PVec4(parts).v[(h + 1u) * part_quads - 1u] = vec4(top, total, 0.0, 0.0);
    }
}
