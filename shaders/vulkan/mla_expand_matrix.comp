#version 450
/* mla_expand_matrix: mla_expand once more, on matrix units: the 128 key or value columns of one head
 * for 64 tokens, of latents and a kv_b that are both bf16, so that every product is exact. 128
 * threads: 4 subgroups of 32, two along the tokens and two along the columns. Results are in two
 * bf16 parts, as mla_attend_matrix takes them. */
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_bfloat16 : require
#extension GL_KHR_memory_scope_semantics : require
#define EB_ARGS eb_mla_expand_args
#include "common/args_mla.h"
#include "common.glsl"
#include "mla.glsl"
#include "bf16_parts.glsl"

const uint TOKENS = EB_MLA_EXPAND_TILE, COLS = EB_MLA_MATRIX_NOPE; /* kv_lora in 32s */
const uint ROPE = EB_MLA_MATRIX_ROPE;
const uint EDGE = 16u;                            /* of a fragment */
const uint T_FRAGS = TOKENS / 2u / EDGE, C_FRAGS = COLS / 2u / EDGE; /* of a subgroup */

/* A step is 32 latent columns: four units of eight. In shared memory a row has five, against bank
 * conflicts. */
const uint STEP = 4u, PITCH = STEP + 1u, T = EB_MLA_THREADS;
const uint C_SLOTS = TOKENS * STEP / T, W_SLOTS = COLS * STEP / T; /* units of a thread */
shared uvec4 latents[TOKENS * PITCH], weights[COLS * PITCH];
shared uvec2 token_at[TOKENS];

#define MATRIX(use, type) coopmat<type, gl_ScopeSubgroup, EDGE, EDGE, use>
MATRIX(gl_MatrixUseAccumulator, float) sums[T_FRAGS * C_FRAGS];
uvec4 held_c[C_SLOTS], held_w[W_SLOTS];
uvec2 c_at[C_SLOTS], w_at[W_SLOTS];

/* Unit u of a row at any multiple of two bytes. */
uvec4 load_unit(uvec2 at, uint u) {
    uvec4 x;
    if ((at.x & 15u) == 0u) {
        x = PUvec4(at).v[u];
    } else {
        [[unroll]] for (uint j = 0u; j < 4u; j++) {
            uint low = uint(PU16(at).v[8u * u + 2u * j]);
            x[j] = low | (uint(PU16(at).v[8u * u + 2u * j + 1u]) << 16u);
        }
    }
    return x;
}

void fetch(uint first) {
    [[unroll]] for (uint i = 0u; i < C_SLOTS; i++) {
        held_c[i] = load_unit(c_at[i], first + THREAD % STEP);
    }
    [[unroll]] for (uint i = 0u; i < W_SLOTS; i++) {
        held_w[i] = load_unit(w_at[i], first + THREAD % STEP);
    }
}

void stow() {
    uint at = THREAD / STEP * PITCH + THREAD % STEP;
    [[unroll]] for (uint i = 0u; i < C_SLOTS; i++) latents[at + i * T / STEP * PITCH] = held_c[i];
    [[unroll]] for (uint i = 0u; i < W_SLOTS; i++) weights[at + i * T / STEP * PITCH] = held_w[i];
}

#define FIRST_T (gl_SubgroupID / 2u * (TOKENS / 2u)) /* of the subgroup */
#define FIRST_C (gl_SubgroupID % 2u * (COLS / 2u))

void multiply() {
    [[unroll]] for (uint k = 0u; k < STEP; k += EDGE / 8u) {
        MATRIX(gl_MatrixUseB, bfloat16_t) w[C_FRAGS];
        [[unroll]] for (uint j = 0u; j < C_FRAGS; j++) {
            coopMatLoad(w[j], weights, (FIRST_C + j * EDGE) * PITCH + k, PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
        }
        [[unroll]] for (uint i = 0u; i < T_FRAGS; i++) {
            MATRIX(gl_MatrixUseA, bfloat16_t) c;
            coopMatLoad(c, latents, (FIRST_T + i * EDGE) * PITCH + k, PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint j = 0u; j < C_FRAGS; j++) {
                sums[i * C_FRAGS + j] = coopMatMulAdd(c, w[j], sums[i * C_FRAGS + j]);
            }
        }
    }
}

/* A fragment of the first n tokens, whose rows start at `to`. Two neighbouring threads have a row. */
void put(MATRIX(gl_MatrixUseAccumulator, float) x, uvec2 to, uint first_t, uint first_c, uint n) {
    uint at = gl_SubgroupID * EDGE * PITCH, row = gl_SubgroupInvocationID / 2u;
    uint side = gl_SubgroupInvocationID % 2u, t = first_t + row;
    coopMatStore(x, latents, at, PITCH, gl_CooperativeMatrixLayoutRowMajor);
    subgroupBarrier();
    vec4 a = uintBitsToFloat(latents[at + row * PITCH + 2u * side]);
    vec4 b = uintBitsToFloat(latents[at + row * PITCH + 2u * side + 1u]);
    if (t < n) {
        uint u = t * COLS / 4u + first_c / 8u + side;
        PUvec4(to).v[u] = uvec4(pack_bf16(nearest_bf16(a)), pack_bf16(nearest_bf16(b)));
        PUvec4(to).v[u + COLS / 8u] =
            uvec4(pack_bf16(nearest_bf16(bf16_rest(a))), pack_bf16(nearest_bf16(bf16_rest(b))));
    }
    subgroupBarrier();
}

/* They are bf16: nothing is left for the second part. */
void put_ropes(uint slot, uint t0, uint n) {
    uvec2 to = plus_mul(A.ropes, slot * A.n_tokens + t0, ROPE * 4u);
    for (uint i = THREAD; i < n * ROPE / 8u; i += T) {
        uint t = i / (ROPE / 8u), u = i % (ROPE / 8u);
        PUvec4(to).v[t * ROPE / 4u + u] = load_unit(plus(token_at[t], A.kv_lora * 2u), u);
        PUvec4(to).v[t * ROPE / 4u + ROPE / 8u + u] = uvec4(0u);
    }
}

void main() {
    if (GROUP >= push.n_groups) return;
    uint n_token_tiles = (A.n_tokens + TOKENS - 1u) / TOKENS, g = GROUP / 2u;
    bool is_key = GROUP % 2u == 0u;
    uint head = g % A.n_heads;
    g /= A.n_heads;
    uint t0 = g % n_token_tiles * TOKENS, slot = g / n_token_tiles, seq = A.first_seq + slot;
    PI32 offsets = PI32(A.row_offsets);
    uint n_rows = uint(offsets.v[seq + 1u] - offsets.v[seq]);
    uint end = min(uint(PI32(A.pages.context).v[seq]) + n_rows, A.token_end);
    if (n_rows == 0u || A.first_token + t0 >= end) return;
    uint n = min(min(end - A.first_token, A.n_tokens) - t0, TOKENS);

    /* Tokens that are not there repeat the last one. */
    if (THREAD < TOKENS) {
        token_at[THREAD] = token_of(A.pages, seq, A.first_token + t0 + min(THREAD, n - 1u));
    }
    barrier();
    uint w_first = head * 2u * COLS + (is_key ? 0u : COLS);
    [[unroll]] for (uint i = 0u; i < C_SLOTS; i++) {
        c_at[i] = token_at[THREAD / STEP + i * T / STEP];
    }
    [[unroll]] for (uint i = 0u; i < W_SLOTS; i++) {
        w_at[i] = plus_mul(A.kv_b.at, w_first + THREAD / STEP + i * T / STEP, A.kv_b.stride * 2u);
    }
    [[unroll]] for (uint f = 0u; f < T_FRAGS * C_FRAGS; f++) {
        sums[f] = MATRIX(gl_MatrixUseAccumulator, float)(0.0);
    }
    fetch(0u);
    for (uint u = 0u; u < A.kv_lora / 8u; u += STEP) {
        barrier();
        stow();
        barrier();
        if (u + STEP < A.kv_lora / 8u) fetch(u + STEP);
        multiply();
    }
    barrier();
    uvec2 to = plus_mul(is_key ? A.keys : A.values, (slot * A.n_heads + head) * A.n_tokens + t0,
                        COLS * 4u);
    [[unroll]] for (uint i = 0u; i < T_FRAGS; i++) {
        [[unroll]] for (uint j = 0u; j < C_FRAGS; j++) {
            put(sums[i * C_FRAGS + j], to, FIRST_T + i * EDGE, FIRST_C + j * EDGE, n);
        }
    }
    if (head == 0u && is_key) put_ropes(slot, t0, n);
}
