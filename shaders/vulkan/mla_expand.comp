#version 450
/* mla_expand: keys and values of a tile of 64 tokens: latents times 64 rows of kv_b, all of them of
 * the keys or of the values of one head. 128 threads, each with a piece of 4 tokens x 8 rows; both
 * sides pass through shared memory in chunks of 16 columns. Results are f32, or bf16 in two parts. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_mla_expand_args
#include "common/args_mla.h"
#include "common.glsl"
#include "mla.glsl"
#include "quant.glsl" /* DTYPE: of kv_b */
#include "bf16_parts.glsl"

layout(constant_id = 4) const uint CACHE_DTYPE = F32;
/* Results in two bf16 parts, of each row all of the first one and then the second; sizes are whole
 * eights. */
layout(constant_id = 5) const bool PARTS = false;

const uint TILE = EB_MLA_EXPAND_TILE; /* tokens, and rows of kv_b */
const uint CHUNK = 4u;       /* quads of columns */
const uint ROW = CHUNK + 1u; /* in shared memory, against bank conflicts */
const uint W_AT = TILE * ROW;

shared vec4 pool[2u * TILE * ROW]; /* [token][ROW], then [row of kv_b][ROW] */
shared uvec2 token_at[TILE];
shared uint unaligned;

uint n;         /* tokens */
uint w_first;   /* row of kv_b */
uint n_w;       /* rows of it */
bool c_aligned, w_aligned;
uvec4 held_c[2], held_w[2]; /* MXFP4: widened */

uvec4 mx_quad(uint r, uint i) {
    uvec2 codes = plus_mul(A.kv_b.at, r, A.kv_lora / 2u);
    uint scale = load_u8(plus_mul(A.kv_b.scales, r, A.kv_lora / 32u), i / 32u);
    vec4 v = e2m1(load_u8(codes, i / 2u) | (load_u8(codes, i / 2u + 1u) << 8u));
    [[unroll]] for (uint j = 0u; j < 4u; j++) v[j] = mx_scaled(v[j], scale);
    return floatBitsToUint(v);
}

uvec4 any_quad(uvec2 at, uint i, uint dtype, bool aligned) {
    uvec4 w;
    if (aligned) {
        w = load_quad(at, i, dtype);
    } else {
        w = load_odd_quad(at, i, A.kv_lora, dtype);
    }
    return w;
}

/* Tokens, rows of kv_b and columns that are not there repeat the last ones. */
void load_chunk(uint chunk, bool aligned) {
    uint last = (A.kv_lora + 3u) / 4u - 1u;
    uint c = min(chunk * CHUNK + THREAD % CHUNK, last) * 4u;
    [[unroll]] for (uint i = 0u; i < 2u; i++) {
        uint r = THREAD / CHUNK + 32u * i, w = w_first + min(r, n_w - 1u);
        held_c[i] = any_quad(token_at[min(r, n - 1u)], c, CACHE_DTYPE, aligned);
        if (DTYPE == MXFP4) {
            held_w[i] = mx_quad(w, c);
        } else {
            uvec2 at = plus_mul(A.kv_b.at, w, A.kv_b.stride * size_of(DTYPE));
            held_w[i] = any_quad(at, c, DTYPE, aligned);
        }
    }
}

void load_any_chunk(uint chunk) {
    if (c_aligned && w_aligned) {
        load_chunk(chunk, true);
    } else {
        load_chunk(chunk, false);
    }
}

/* Row o of kv_b lies where a thread's eight neighbours are eight apart. Columns behind the last one
 * become zeros, of kv_b: that is enough. */
void share_chunk(uint chunk) {
    uint quad = THREAD % CHUNK;
    bool is_there = (chunk * CHUNK + quad) * 4u < A.kv_lora;
    [[unroll]] for (uint i = 0u; i < 2u; i++) {
        uint r = THREAD / CHUNK + 32u * i;
        vec4 w = widen_quad(held_w[i], DTYPE == MXFP4 ? F32 : DTYPE);
        pool[r * ROW + quad] = widen_quad(held_c[i], CACHE_DTYPE);
        pool[W_AT + (r / 8u + r % 8u * 8u) * ROW + quad] = is_there ? w : vec4(0.0);
    }
}

void share_ropes(uint slot, uint t0) {
    uint n_quads = (A.rope_dim + 3u) / 4u;
    uvec2 to = plus_mul(A.ropes, slot * A.n_tokens + t0, n_quads * 16u);
    bool aligned = c_aligned && A.rope_dim % 4u == 0u;
    for (uint i = THREAD; i < n * n_quads; i += THREADS) {
        uvec2 from = plus(token_at[i / n_quads], A.kv_lora * size_of(CACHE_DTYPE));
        uint c = i % n_quads * 4u;
        uvec4 w;
        if (aligned) {
            w = load_quad(from, c, CACHE_DTYPE);
        } else {
            w = load_odd_quad(from, c, A.rope_dim, CACHE_DTYPE);
        }
        vec4 x = widen_quad(w, CACHE_DTYPE);
        if (PARTS) {
            uint at = i / n_quads * 2u * n_quads + i % n_quads;
            PUvec2(to).v[at] = pack_bf16(nearest_bf16(x));
            PUvec2(to).v[at + n_quads] = pack_bf16(nearest_bf16(bf16_rest(x)));
        } else {
            PVec4(to).v[i] = x;
        }
    }
}

void main() {
    if (GROUP >= push.n_groups) return;
    uint n_key_tiles = (A.nope_dim + TILE - 1u) / TILE;
    uint n_tiles = n_key_tiles + (A.v_dim + TILE - 1u) / TILE;
    uint n_token_tiles = (A.n_tokens + TILE - 1u) / TILE;
    uint g = GROUP, tile = g % n_tiles;
    g /= n_tiles;
    uint head = g % A.n_heads;
    g /= A.n_heads;
    uint t0 = g % n_token_tiles * TILE, slot = g / n_token_tiles, seq = A.first_seq + slot;
    PI32 offsets = PI32(A.row_offsets);
    uint n_rows = uint(offsets.v[seq + 1u] - offsets.v[seq]);
    uint end = min(uint(PI32(A.pages.context).v[seq]) + n_rows, A.token_end);
    if (n_rows == 0u || A.first_token + t0 >= end) return;
    n = min(min(end - A.first_token, A.n_tokens) - t0, TILE);

    if (THREAD == 0u) unaligned = 0u;
    barrier();
    if (THREAD < n) {
        uvec2 at = token_of(A.pages, seq, A.first_token + t0 + THREAD);
        token_at[THREAD] = at;
        if (!quads_aligned(at, CACHE_DTYPE)) unaligned = 1u;
    }
    barrier();
    c_aligned = unaligned == 0u && A.kv_lora % 4u == 0u;
    w_aligned = DTYPE == MXFP4 || (quads_aligned(A.kv_b.at, DTYPE) && A.kv_b.stride % 4u == 0u);
    bool is_key = tile < n_key_tiles;
    uint first = (is_key ? tile : tile - n_key_tiles) * TILE, dim = is_key ? A.nope_dim : A.v_dim;
    w_first = head * (A.nope_dim + A.v_dim) + (is_key ? 0u : A.nope_dim) + first;
    n_w = min(dim - first, TILE);

    float y[4][8];
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        [[unroll]] for (uint j = 0u; j < 8u; j++) y[i][j] = 0.0;
    }
    uint token = THREAD / 8u, octet = THREAD % 8u;
    uint n_chunks = (A.kv_lora + CHUNK * 4u - 1u) / (CHUNK * 4u);
    load_any_chunk(0u);
    for (uint chunk = 0u; chunk < n_chunks; chunk++) {
        share_chunk(chunk);
        barrier();
        if (chunk + 1u < n_chunks) load_any_chunk(chunk + 1u);
        [[unroll]] for (uint k = 0u; k < CHUNK; k++) {
            vec4 c[4];
            [[unroll]] for (uint i = 0u; i < 4u; i++) c[i] = pool[(token + 16u * i) * ROW + k];
            [[unroll]] for (uint j = 0u; j < 8u; j++) {
                vec4 w = pool[W_AT + (octet + 8u * j) * ROW + k];
                [[unroll]] for (uint i = 0u; i < 4u; i++) {
                    y[i][j] += c[i].x * w.x;
                    y[i][j] += c[i].y * w.y;
                    y[i][j] += c[i].z * w.z;
                    y[i][j] += c[i].w * w.w;
                }
            }
        }
        barrier();
    }

    uint n_quads = (dim + 3u) / 4u, quad = first / 4u + octet * 2u;
    uvec2 to = plus_mul(is_key ? A.keys : A.values, (slot * A.n_heads + head) * A.n_tokens + t0,
                        n_quads * 16u);
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        uint t = token + 16u * i, at = t * n_quads + quad;
        vec4 a = vec4(y[i][0], y[i][1], y[i][2], y[i][3]);
        vec4 b = vec4(y[i][4], y[i][5], y[i][6], y[i][7]);
        if (PARTS) {
            at = t * n_quads + quad / 2u;
            if (t >= n || quad >= n_quads) continue;
            PUvec4(to).v[at] = uvec4(pack_bf16(nearest_bf16(a)), pack_bf16(nearest_bf16(b)));
            PUvec4(to).v[at + n_quads / 2u] = uvec4(pack_bf16(nearest_bf16(bf16_rest(a))),
                                                    pack_bf16(nearest_bf16(bf16_rest(b))));
        } else {
            if (t < n && quad < n_quads) PVec4(to).v[at] = a;
            if (t < n && quad + 1u < n_quads) PVec4(to).v[at + 1u] = b;
        }
    }
    if (head == 0u && tile == 0u) share_ropes(slot, t0);
}
