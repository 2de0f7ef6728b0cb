#version 450
/* mla_attend: 64 rows of one head over the tokens that mla_expand has expanded, 128 columns of
 * values at a time. 128 threads.
 *
 * Tokens are taken in tiles of 32. Scores are a product [64][width] x [width][32] that passes
 * through shared memory in chunks of 32 columns, each thread with a piece of 4 x 4; then softmax;
 * then each thread adds values to the 8 rows x 8 columns that it keeps. Between launches the result
 * of the tokens so far stands in dst, and maximum and sum of each row in `runs`. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_mla_attend_args
#include "common/args_mla.h"
#include "common.glsl"
#include "mla.glsl"
#include "plant.glsl"

layout(constant_id = 2) const uint V_QUADS = 2; /* of a thread: 1 for 64 columns */

const uint QUERIES = EB_MLA_ROW_BLOCK; /* rows */
const uint TILE = 32u;
const uint CHUNK = 8u;       /* quads of columns */
const uint ROW = CHUNK + 1u; /* in shared memory, against bank conflicts */
const uint K_AT = QUERIES * ROW;
const uint BLOCK = 16u * V_QUADS; /* quads of values */

/* A chunk of the queries [row][ROW] and of the keys [token][ROW]; later scores. */
shared vec4 pool[(QUERIES + TILE) * ROW];
#include "mla_softmax.glsl"

/* ---- what this workgroup works on -------------------------------------------------------- */

uint head, first_row, m;     /* packed rows [first_row, first_row + m) */
uint seen;                   /* tokens that the first of them sees */
uint stop;                   /* one past the last token of this launch that any of them sees */
uint nope_quads, rope_quads;
bool q_aligned;
uvec2 query;                 /* of the first row and the head */
uvec2 keys, ropes, values;   /* of the head, or of the sequence */

uvec4 held_q[4];
vec4 held_k[2];
float scores[4][4]; /* rows r0 + 16 i, tokens t0 + 8 j */
vec4 sums[8][2];    /* rows 8 r1 + r, quads c0 + 16 v of the block */

/* Of row r, where the two parts of a query need not be whole quads. */
uvec4 odd_query_quad(uint r, uint quad) {
    bool in_rope = quad >= nope_quads;
    uint skipped = in_rope ? nope_quads : 0u;
    uvec2 at = plus_mul(query, r, A.q.stride * 4u);
    at = plus(at, in_rope ? A.nope_dim * 4u : 0u);
    return load_odd_quad(at, (quad - skipped) * 4u, in_rope ? A.rope_dim : A.nope_dim, F32);
}

/* Of token `slot` of the launch. */
vec4 key_quad(uint slot, uint quad) {
    bool in_rope = quad >= nope_quads;
    uint at = in_rope ? slot * rope_quads + quad - nope_quads : slot * nope_quads + quad;
    return PVec4(in_rope ? ropes : keys).v[at];
}

/* Rows, tokens and columns that are not there repeat the last ones. */
void load_chunk(uint chunk, uint slot, uint n, bool aligned) {
    uint quad = min(chunk * CHUNK + THREAD % CHUNK, nope_quads + rope_quads - 1u);
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        uint r = min(THREAD / CHUNK + 16u * i, m - 1u);
        if (aligned) {
            held_q[i] = load_quad(query, r * A.q.stride + quad * 4u, F32);
        } else {
            held_q[i] = odd_query_quad(r, quad);
        }
    }
    [[unroll]] for (uint i = 0u; i < 2u; i++) {
        held_k[i] = key_quad(slot + min(THREAD / CHUNK + 16u * i, n - 1u), quad);
    }
}

void load_any_chunk(uint chunk, uint slot, uint n) {
    if (q_aligned) {
        load_chunk(chunk, slot, n, true);
    } else {
        load_chunk(chunk, slot, n, false);
    }
}

/* Columns behind the last one become zeros, of the queries: that is enough. */
void share_chunk(uint chunk) {
    uint at = THREAD / CHUNK * ROW + THREAD % CHUNK;
    bool is_there = chunk * CHUNK + THREAD % CHUNK < nope_quads + rope_quads;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        pool[at + 16u * i * ROW] = is_there ? uintBitsToFloat(held_q[i]) : vec4(0.0);
    }
    [[unroll]] for (uint i = 0u; i < 2u; i++) pool[K_AT + at + 16u * i * ROW] = held_k[i];
}

void add_products(uint r0, uint t0) {
    [[unroll]] for (uint k = 0u; k < CHUNK; k++) {
        vec4 q[4];
        [[unroll]] for (uint i = 0u; i < 4u; i++) q[i] = pool[(r0 + 16u * i) * ROW + k];
        [[unroll]] for (uint j = 0u; j < 4u; j++) {
            vec4 c = pool[K_AT + (t0 + 8u * j) * ROW + k];
            [[unroll]] for (uint i = 0u; i < 4u; i++) {
                scores[i][j] += q[i].x * c.x;
                scores[i][j] += q[i].y * c.y;
                scores[i][j] += q[i].z * c.z;
                scores[i][j] += q[i].w * c.w;
            }
        }
    }
}

/* Of the n tokens from `tile` on, to [token][row]. */
void make_scores(uint tile, uint n) {
    uint r0 = THREAD / 8u, t0 = THREAD % 8u;
    uint n_chunks = (nope_quads + rope_quads + CHUNK - 1u) / CHUNK;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        [[unroll]] for (uint j = 0u; j < 4u; j++) scores[i][j] = 0.0;
    }
    uint slot = tile - A.first_token;
    load_any_chunk(0u, slot, n);
    for (uint chunk = 0u; chunk < n_chunks; chunk++) {
        share_chunk(chunk);
        barrier();
        if (chunk + 1u < n_chunks) load_any_chunk(chunk + 1u, slot, n);
        add_products(r0, t0);
        barrier();
    }
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        uint r = r0 + 16u * i;
        [[unroll]] for (uint j = 0u; j < 4u; j++) {
            uint t = t0 + 8u * j;
            bool sees = t < n && tile + t < seen + r;
            pool[t * P_ROW + r / 4u][r % 4u] = sees ? scores[i][j] * A.scale : UNSEEN;
        }
    }
    barrier();
}

/* ---- values ------------------------------------------------------------------------------ */

void scale_sums(uint r1) {
    [[unroll]] for (uint i = 0u; i < 2u; i++) {
        vec4 f = factors[2u * r1 + i];
        [[unroll]] for (uint k = 0u; k < 4u; k++) {
            [[unroll]] for (uint v = 0u; v < V_QUADS; v++) sums[4u * i + k][v] *= f[k];
        }
    }
}

vec4 values_of[4][2]; /* of four tokens, whose loads are under way together */

/* Of token `slot` of the launch; c0 of its n_quads lie before the thread's. */
void load_values(uint which, uint slot, uint c0, uint n_quads) {
    [[unroll]] for (uint v = 0u; v < V_QUADS; v++) {
        uint c = min(c0 + 16u * v, n_quads - 1u);
        values_of[which][v] = PVec4(values).v[slot * n_quads + c];
    }
}

void add_token(uint which, uint t, uint r1) {
    [[unroll]] for (uint i = 0u; i < 2u; i++) {
        vec4 p = pool[t * P_ROW + 2u * r1 + i];
        [[unroll]] for (uint k = 0u; k < 4u; k++) {
            [[unroll]] for (uint v = 0u; v < V_QUADS; v++) {
                sums[4u * i + k][v] += p[k] * values_of[which][v];
            }
        }
    }
}

/* Of n tokens from `slot` of the launch on. */
void add_values(uint r1, uint slot, uint n, uint c0, uint n_quads) {
    uint t = 0u;
    for (; t + 4u <= n; t += 4u) {
        [[unroll]] for (uint u = 0u; u < 4u; u++) load_values(u, slot + t + u, c0, n_quads);
        [[unroll]] for (uint u = 0u; u < 4u; u++) add_token(u, t + u, r1);
    }
    for (; t < n; t++) {
        load_values(0u, slot + t, c0, n_quads);
        add_token(0u, t, r1);
    }
}

uvec2 result_at(uint r) {
    return plus(row_of(A.dst, first_row + r), head * A.v_dim * 4u);
}

void load_sums(uint r1, uint c0, bool aligned) {
    [[unroll]] for (uint r = 0u; r < 8u; r++) {
        [[unroll]] for (uint v = 0u; v < V_QUADS; v++) {
            uint c = (c0 + 16u * v) * 4u;
            uvec4 w = uvec4(0u);
            if (A.is_first == 0u && 8u * r1 + r < m && c < A.v_dim) {
                if (aligned) {
                    w = load_quad(result_at(8u * r1 + r), c, F32);
                } else {
                    w = load_odd_quad(result_at(8u * r1 + r), c, A.v_dim, F32);
                }
            }
            sums[r][v] = uintBitsToFloat(w);
        }
    }
}

void store_sums(uint r1, uint c0, bool aligned) {
    [[unroll]] for (uint r = 0u; r < 8u; r++) {
        [[unroll]] for (uint v = 0u; v < V_QUADS; v++) {
            uint c = (c0 + 16u * v) * 4u;
            if (8u * r1 + r < m && c < A.v_dim) {
                store_quad(result_at(8u * r1 + r), c, A.v_dim, aligned, sums[r][v]);
            }
        }
    }
}

void main() {
    if (GROUP >= push.n_groups) return;
    uint n_quads = (A.v_dim + 3u) / 4u, n_blocks = (n_quads + BLOCK - 1u) / BLOCK;
    uint g = GROUP, row_block = A.n_row_blocks - 1u - g % A.n_row_blocks; /* longest first */
    g /= A.n_row_blocks;
    uint block = g % n_blocks;
    g /= n_blocks;
    head = g % A.n_heads;
    uint slot = g / A.n_heads, seq = A.first_seq + slot;
    uint begin = uint(PI32(A.row_offsets).v[seq]), end = uint(PI32(A.row_offsets).v[seq + 1u]);
    first_row = begin + row_block * QUERIES;
    if (first_row >= end) return;
    m = min(end - first_row, QUERIES);
    seen = uint(PI32(A.context).v[seq]) + row_block * QUERIES + 1u;
    stop = min(min(seen + m - 1u, A.token_end), A.first_token + A.n_tokens);
    if (PLANTED(OFF_BY_ONE_MASK)) seen--;
    if (stop <= A.first_token && A.is_first == 0u) return;

    nope_quads = (A.nope_dim + 3u) / 4u;
    rope_quads = (A.rope_dim + 3u) / 4u;
    query = plus(row_of(A.q, first_row), head * (A.nope_dim + A.rope_dim) * 4u);
    q_aligned = quads_aligned(A.q.at, F32) && (A.q.stride | A.nope_dim | A.rope_dim) % 4u == 0u;
    bool aligned = quads_aligned(A.dst.at, F32) && (A.dst.stride | A.v_dim) % 4u == 0u;
    uint first = (slot * A.n_heads + head) * A.n_tokens;
    keys = plus_mul(A.keys, first, nope_quads * 16u);
    values = plus_mul(A.values, first, n_quads * 16u);
    ropes = plus_mul(A.ropes, slot * A.n_tokens, rope_quads * 16u);

    /* Of row `own`, as softmax deals them out. */
    uint own = THREAD % QUERIES, r1 = THREAD / 16u, c0 = block * BLOCK + THREAD % 16u;
    uvec2 run = plus_mul(A.runs, ((first_row + own) * A.n_heads + head) * n_blocks + block, 8u);
    float top = UNSEEN, total = 0.0;
    if (A.is_first == 0u && own < m) {
        top = PF32(run).v[0];
        total = PF32(run).v[1];
    }
    if (THREAD < QUERIES) factors[own / 4u][own % 4u] = total;
    barrier();
    load_sums(r1, c0, aligned);
    scale_sums(r1);
    for (uint tile = A.first_token; tile < stop; tile += TILE) {
        uint n = min(stop - tile, TILE);
        make_scores(tile, n);
        softmax_tile(top, total);
        scale_sums(r1);
        add_values(r1, tile - A.first_token, n, c0, n_quads);
        barrier();
    }
    barrier();
    if (THREAD < QUERIES) factors[own / 4u][own % 4u] = total > 0.0 ? 1.0 / total : 0.0;
    barrier();
    scale_sums(r1);
    store_sums(r1, c0, aligned);
    if (THREAD < m) {
        PF32(run).v[0] = top;
        PF32(run).v[1] = total;
        if (block == 0u && !absent(A.lse.at)) {
            float lse = total > 0.0 ? top + log(total) : NO_LSE;
            PF32(row_of(A.lse, first_row + own)).v[head] = lse;
        }
    }
}
