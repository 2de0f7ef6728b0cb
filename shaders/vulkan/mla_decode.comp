#version 450
/* mla_decode: attention of a few heads of one row over one split of its context, in the absorbed
 * form: the latents are keys and values. The result is a part, joined by mla_merge. 128 threads.
 *
 * The cache is taken in tiles of 64 tokens. Scores are a product [HEADS][width] x [width][64] that
 * passes through shared memory in chunks of 32 columns: each warp-sized quarter of the workgroup
 * (a slice) takes eight of these, each thread a piece of 4 x 8 scores. Then softmax, and the sums:
 * each thread keeps four columns of all heads in registers and walks over the tile again, which the
 * nearest cache holds. Heads in neighbouring workgroups read the same tiles at the same time.
 *
 * For few columns several threads share one (slices of tokens) and leave their sums apart. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_mla_decode_args
#include "common/args_mla.h"
#include "common.glsl"
#include "mla.glsl"
#include "plant.glsl"

layout(constant_id = 2) const uint HEADS = 16; /* 4, 8 or 16 */
layout(constant_id = 3) const uint DTYPE = F32; /* of the cache */

const uint CHUNK = 8u;            /* quads of columns */
const uint ROW = CHUNK + 1u;      /* in shared memory, against bank conflicts */
const uint Q_AT = MLA_TOKENS * ROW;
const uint QUERIES = HEADS;
const uint TILE = MLA_TOKENS;

/* A chunk of the tile [token][ROW] and of the queries [head][ROW]; later scores [token][P_ROW]. */
shared vec4 pool[(MLA_TOKENS + 16u) * ROW];
shared uvec2 token_at[MLA_TOKENS];
shared uint unaligned;
#include "mla_softmax.glsl"

/* ---- what this workgroup works on -------------------------------------------------------- */

uint n_heads, first_head, width;
uvec2 q_row;
bool aligned; /* rows of the cache and of queries */
uint n;       /* tokens of the tile */

uvec4 held_c[4], held_q;
float scores[4][8]; /* heads q0 + 4 i, tokens t0 + 8 j */
vec4 sums[16];

/* Heads, tokens and columns that are not there repeat the last ones. */
void load_chunk(uint chunk, bool aligned) {
    uint last = (width + 3u) / 4u - 1u, quad = min(chunk * CHUNK + THREAD % CHUNK, last);
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        uvec2 at = token_at[min(THREAD / CHUNK + 16u * i, n - 1u)];
        if (aligned) {
            held_c[i] = load_quad(at, quad * 4u, DTYPE);
        } else {
            held_c[i] = load_odd_quad(at, quad * 4u, width, DTYPE);
        }
    }
    uint h = first_head + min(THREAD / CHUNK, n_heads - 1u);
    if (aligned) {
        held_q = load_quad(q_row, h * width + quad * 4u, F32);
    } else {
        held_q = load_odd_quad(plus(q_row, h * width * 4u), quad * 4u, width, F32);
    }
}

void load_any_chunk(uint chunk) {
    if (aligned) {
        load_chunk(chunk, true);
    } else {
        load_chunk(chunk, false);
    }
}

/* Columns behind the last one become zeros, of the queries: that is enough. */
void share_chunk(uint chunk) {
    uint at = THREAD / CHUNK * ROW + THREAD % CHUNK;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        pool[at + 16u * i * ROW] = widen_quad(held_c[i], DTYPE);
    }
    bool is_there = (chunk * CHUNK + THREAD % CHUNK) * 4u < width;
    if (THREAD < HEADS * CHUNK) {
        pool[Q_AT + at] = is_there ? uintBitsToFloat(held_q) : vec4(0.0);
    }
}

/* The slice's quads of the chunk. */
void add_products(uint slice, uint q0, uint t0) {
    [[unroll]] for (uint k = 0u; k < CHUNK / 4u; k++) {
        uint quad = slice * (CHUNK / 4u) + k;
        vec4 q[4];
        [[unroll]] for (uint i = 0u; i < HEADS / 4u; i++) {
            q[i] = pool[Q_AT + (q0 + 4u * i) * ROW + quad];
        }
        [[unroll]] for (uint j = 0u; j < 8u; j++) {
            vec4 c = pool[(t0 + 8u * j) * ROW + quad];
            [[unroll]] for (uint i = 0u; i < HEADS / 4u; i++) {
                scores[i][j] += q[i].x * c.x;
                scores[i][j] += q[i].y * c.y;
                scores[i][j] += q[i].z * c.z;
                scores[i][j] += q[i].w * c.w;
            }
        }
    }
}

/* The slices' scores become one, [token][head], scaled; those behind the last token are unseen. */
void join_scores(uint slice, uint q0, uint t0) {
    for (uint s = 4u; s-- > 0u;) {
        if (slice == s) {
            [[unroll]] for (uint i = 0u; i < HEADS / 4u; i++) {
                uint h = q0 + 4u * i;
                [[unroll]] for (uint j = 0u; j < 8u; j++) {
                    uint t = t0 + 8u * j, at = t * P_ROW + h / 4u;
                    float v = scores[i][j];
                    if (s < 3u) v += pool[at][h % 4u];
                    if (s == 0u) v = t < n ? v * A.scale : UNSEEN;
                    pool[at][h % 4u] = v;
                }
            }
        }
        barrier();
    }
}

void make_scores() {
    uint slice = THREAD / 32u, q0 = THREAD % 32u / 8u, t0 = THREAD % 8u;
    uint n_chunks = (width + CHUNK * 4u - 1u) / (CHUNK * 4u);
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        [[unroll]] for (uint j = 0u; j < 8u; j++) scores[i][j] = 0.0;
    }
    load_any_chunk(0u);
    for (uint chunk = 0u; chunk < n_chunks; chunk++) {
        share_chunk(chunk);
        barrier();
        if (chunk + 1u < n_chunks) load_any_chunk(chunk + 1u);
        add_products(slice, q0, t0);
        barrier();
    }
    join_scores(slice, q0, t0);
}

/* ---- sums of values ---------------------------------------------------------------------- */

void add_token(uint t, vec4 c) {
    [[unroll]] for (uint i = 0u; i < HEADS / 4u; i++) {
        vec4 p = pool[t * P_ROW + i];
        [[unroll]] for (uint k = 0u; k < 4u; k++) sums[4u * i + k] += p[k] * c;
    }
}

uvec4 value_quad(uint t, uint column, bool aligned) {
    uvec4 w;
    if (aligned) {
        w = load_quad(token_at[t], column, DTYPE);
    } else {
        w = load_odd_quad(token_at[t], column, A.kv_lora, DTYPE);
    }
    return w;
}

void add_values(uint column, uint slice, bool aligned) {
    uint t = slice, step = A.slices;
    for (; t + 3u * step < n; t += 4u * step) {
        uvec4 w[4];
        [[unroll]] for (uint u = 0u; u < 4u; u++) w[u] = value_quad(t + u * step, column, aligned);
        [[unroll]] for (uint u = 0u; u < 4u; u++) add_token(t + u * step, widen_quad(w[u], DTYPE));
    }
    for (; t < n; t += step) {
        add_token(t, widen_quad(value_quad(t, column, aligned), DTYPE));
    }
}

void scale_sums() {
    [[unroll]] for (uint i = 0u; i < HEADS / 4u; i++) {
        vec4 f = factors[i];
        [[unroll]] for (uint k = 0u; k < 4u; k++) sums[4u * i + k] *= f[k];
    }
}

/* ---- parts ------------------------------------------------------------------------------- */

void main() {
    if (GROUP >= push.n_groups) return;
    uint n_quads = (A.kv_lora + 3u) / 4u, threads = EB_MLA_THREADS / A.slices;
    uint n_blocks = (n_quads + threads - 1u) / threads; /* of columns */
    uint n_head_groups = (A.n_heads + HEADS - 1u) / HEADS;
    uint g = GROUP, head_group = g % n_head_groups;
    g /= n_head_groups;
    uint block = g % n_blocks;
    g /= n_blocks;
    uint split = g % A.n_splits, index = g / A.n_splits, row = A.first_row + index;
    if (row >= uint(PI32(A.row_offsets).v[A.n_seqs])) return;
    uint seq = mla_seq_of(A.row_offsets, A.n_seqs, row);
    uint end = mla_position(A.row_offsets, A.pages.context, seq, row);
    if (!PLANTED(EARLY_MASK)) end++;
    end = min(end, A.token_end);
    uint tokens = split_tokens(end, A.n_splits);
    uint begin = max(split * tokens, A.token_begin);
    end = min(split * tokens + tokens, end);
    if (begin >= end) return;

    first_head = head_group * HEADS;
    n_heads = min(HEADS, A.n_heads - first_head);
    width = A.kv_lora + A.rope_dim;
    q_row = row_of(A.q, row);
    bool may_align = quads_aligned(q_row, F32) && (width | A.kv_lora) % 4u == 0u;
    uint slice = THREAD / threads, quad = block * threads + THREAD % threads;
    float top = UNSEEN, total = 0.0;
    [[unroll]] for (uint h = 0u; h < 16u; h++) sums[h] = vec4(0.0);
    if (THREAD == 0u) unaligned = 0u;
    barrier();
    for (uint tile = begin; tile < end; tile += MLA_TOKENS) {
        n = min(end - tile, MLA_TOKENS);
        if (THREAD < n) {
            uvec2 at = token_of(A.pages, seq, tile + THREAD);
            token_at[THREAD] = at;
            if (!quads_aligned(at, DTYPE)) unaligned = 1u;
        }
        barrier();
        aligned = may_align && unaligned == 0u;
        make_scores();
        softmax_tile(top, total);
        scale_sums();
        if (quad < n_quads) {
            if (aligned) {
                add_values(quad * 4u, slice, true);
            } else {
                add_values(quad * 4u, slice, false);
            }
        }
        barrier();
    }

    uint part_quads = A.slices * n_quads + 1u;
    uint first_part = (index * A.n_splits + split) * A.n_heads + first_head;
    if (quad < n_quads) {
        [[unroll]] for (uint h = 0u; h < HEADS; h++) {
            uvec2 part = plus_mul(A.parts, first_part + h, part_quads * 16u);
            if (h < n_heads) PVec4(part).v[slice * n_quads + quad] = sums[h];
        }
    }
    if (block == 0u && THREAD < n_heads) {
        uvec2 part = plus_mul(A.parts, first_part + THREAD, part_quads * 16u);
        PVec4(part).v[part_quads - 1u] = vec4(top, total, 0.0, 0.0);
    }
}
