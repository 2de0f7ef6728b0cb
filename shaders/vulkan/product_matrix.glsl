/* product_matrix.glsl: product_tile.glsl once more, on matrix units: a group computes 4 rows of 8
 * matrices of sums, in f32: 64 rows of x times 128 rows of weights where a matrix has 16 of each. 4
 * subgroups, two along the rows and two along the outputs. Same rules for the kernel as there; one row
 * of weights per output. How values become elements of a matrix is told by matrix_bf16.glsl, for
 * BF16 and MXFP4 weights, and matrix_f16.glsl, for these and F16; x is split into two elements in
 * both.
 *
 * Tiles are 32 inputs deep, eight of them to a uvec4; a row takes 5 of those, so that eight rows
 * lie in different banks. Everything is of constant size, so that fragments stay in registers. */
#include "matrix.glsl"

/* Fragments of a subgroup: FM rows of FN. */
const uint FM = EB_MATRIX_ROWS / 2u;
#ifdef EB_MATRIX_F16
layout(constant_id = 9) const uint FN = 4; /* 1 where compiling takes longer than computing */
#else
const uint FN = EB_MATRIX_OUTS / 2u;
#endif
const uint BM = 2u * FM * EDGE_M, BN = 2u * FN * EDGE_N, BK = 32u;
const uint PITCH = 5u;
const uint T = EB_MATRIX_SUBGROUPS * LANES;
const uint LOADS = BK / UNIT; /* loads of a row of the tile of weights */
const uint X_SLOTS = BM * BK / 8u / T;
const uint W_SLOTS = BN * LOADS / T > 0u ? BN * LOADS / T : 1u;
const uint PAIR_AT = EDGE_N / 2u;

/* The row that a slot of this thread belongs to. */
#define X_ROW(s) ((THREAD + (s) * T) / 4u)
#define W_ROW(s) ((THREAD + (s) * T) / LOADS % BN)

uvec2 tile_x_row(uint m);
uvec2 tile_w_row(uint n);
uvec2 tile_scales(uint n);
float tile_start(uint m, uint n);
void tile_put(uint m, uint n, float sum, float partner);

shared uvec4 x_tile[BM * PITCH], x_rest[BM * PITCH]; /* the first and second part */
shared uvec4 w_tile[BN * PITCH];

MATRIX_SUM sums[FM * FN];

vec4 x_held[2u * X_SLOTS]; /* eight inputs */
uvec4 w_held[W_SLOTS];
uint scale_held[W_SLOTS];
uvec2 x_at[X_SLOTS], w_at[W_SLOTS], scale_at[W_SLOTS];

/* ---- x ---------------------------------------------------------------------------------- */

void fetch_x(uint k0, uint n_in, bool aligned) {
    [[unroll]] for (uint s = 0u; s < X_SLOTS; s++) {
        [[unroll]] for (uint h = 0u; h < 2u; h++) {
            uint q = k0 / 4u + THREAD % 4u * 2u + h;
            if (4u * q + 4u <= n_in) {
                x_held[2u * s + h] = x_quad(x_at[s], q, aligned);
            } else {
                x_held[2u * s + h] = x_part(x_at[s], q, n_in);
            }
        }
    }
}

/* ---- weights ---------------------------------------------------------------------------- */

void fetch_w(uint k0, uint n_in, bool aligned) {
    [[unroll]] for (uint s = 0u; s < W_SLOTS; s++) {
        uint first = k0 + (THREAD + s * T) % LOADS * UNIT;
        w_held[s] = uvec4(0u);
        if (first >= n_in) continue;
        if (DTYPE == MXFP4) {
            w_held[s] = load_unit(w_at[s], first / UNIT, aligned);
            scale_held[s] = load_u8(scale_at[s], first / UNIT);
        } else if (first + UNIT > n_in) {
            w_held[s] = load_part(w_at[s], first, n_in);
        } else {
            w_held[s] = load_unit(w_at[s], first / UNIT, aligned);
        }
    }
}

/* ---- both ------------------------------------------------------------------------------- */

/* A whole tile of aligned rows, as fetch_x and fetch_w would: without a branch, so that all loads
 * are under way together. */
void fetch_whole(uint k0) {
    [[unroll]] for (uint s = 0u; s < X_SLOTS; s++) {
        uint q = k0 / 4u + THREAD % 4u * 2u;
        x_held[2u * s] = PVec4(x_at[s]).v[q];
        x_held[2u * s + 1u] = PVec4(x_at[s]).v[q + 1u];
    }
    [[unroll]] for (uint s = 0u; s < W_SLOTS; s++) {
        uint u = k0 / UNIT + (THREAD + s * T) % LOADS;
        w_held[s] = PUvec4(w_at[s]).v[u];
        if (DTYPE == MXFP4) scale_held[s] = load_u8(scale_at[s], u);
    }
}

void fetch(uint k0, uint n_in, bool aligned) {
    if (aligned && k0 + BK <= n_in) {
        fetch_whole(k0);
    } else {
        fetch_x(k0, n_in, aligned);
        fetch_w(k0, n_in, aligned);
    }
}

#ifdef EB_MATRIX_F16
#include "matrix_f16.glsl"
#else
#include "matrix_bf16.glsl"
#endif

/* ---- products --------------------------------------------------------------------------- */

#define FIRST_M (gl_SubgroupID / 2u * (BM / 2u)) /* of the subgroup */
#define FIRST_N (gl_SubgroupID % 2u * (BN / 2u))

void multiply_tiles() {
    [[unroll]] for (uint k = 0u; k < BK / 8u; k += EDGE_K / 8u) {
        MATRIX_B w[FN];
        [[unroll]] for (uint j = 0u; j < FN; j++) {
            coopMatLoad(w[j], w_tile, (FIRST_N + j * EDGE_N) * PITCH + k, PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
        }
        [[unroll]] for (uint i = 0u; i < FM; i++) {
            MATRIX_A x, rest;
            uint at = (FIRST_M + i * EDGE_M) * PITCH + k;
            coopMatLoad(x, x_tile, at, PITCH, gl_CooperativeMatrixLayoutRowMajor);
            coopMatLoad(rest, x_rest, at, PITCH, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint j = 0u; j < FN; j++) {
                sums[i * FN + j] = coopMatMulAdd(rest, w[j], sums[i * FN + j]);
                sums[i * FN + j] = coopMatMulAdd(x, w[j], sums[i * FN + j]);
            }
        }
    }
}

const uint SHARE = EDGE_M * EDGE_N / LANES; /* elements of a fragment for each thread */

/* Fragment by fragment through shared memory, for nobody knows where a fragment's elements are. */
void put_sums() {
    uint at = gl_SubgroupID * EDGE_M * PITCH;
    barrier();
    [[unroll]] for (uint i = 0u; i < FM; i++) {
        [[unroll]] for (uint j = 0u; j < FN; j++) {
            coopMatStore(sums[i * FN + j], x_tile, at, PITCH, gl_CooperativeMatrixLayoutRowMajor);
            subgroupBarrier();
            float start[SHARE];
            [[unroll]] for (uint k = 0u; k < SHARE; k++) {
                uint e = gl_SubgroupInvocationID + k * LANES;
                start[k] = tile_start(FIRST_M + i * EDGE_M + e / EDGE_N,
                                      FIRST_N + j * EDGE_N + e % EDGE_N);
            }
            [[unroll]] for (uint k = 0u; k < SHARE; k++) {
                uint e = gl_SubgroupInvocationID + k * LANES;
                uint m = e / EDGE_N, n = e % EDGE_N, partner = (n + PAIR_AT) % EDGE_N;
                float a = uintBitsToFloat(x_tile[at + m * PITCH + n / 4u][n % 4u]);
                float b = uintBitsToFloat(x_tile[at + m * PITCH + partner / 4u][n % 4u]);
                tile_put(FIRST_M + i * EDGE_M + m, FIRST_N + j * EDGE_N + n,
                         start[k] + UNSCALED(a, FIRST_M + i * EDGE_M + m, FIRST_N + j * EDGE_N + n),
                         UNSCALED(b, FIRST_M + i * EDGE_M + m, FIRST_N + j * EDGE_N + partner));
            }
            subgroupBarrier();
        }
    }
}

void tile_products(uint n_in, bool transposed, bool aligned) {
    [[unroll]] for (uint f = 0u; f < FM * FN; f++) {
        sums[f] = MATRIX_SUM(0.0);
    }
    [[unroll]] for (uint s = 0u; s < X_SLOTS; s++) x_at[s] = tile_x_row(X_ROW(s));
    [[unroll]] for (uint s = 0u; s < W_SLOTS; s++) {
        uint n = W_ROW(s);
        w_at[s] = tile_w_row(n);
        if (DTYPE == MXFP4) scale_at[s] = tile_scales(n);
    }
    find_scales(n_in, aligned);
    fetch(0u, n_in, aligned);
    for (uint k0 = 0u; k0 < n_in; k0 += BK) {
        barrier();
        stow_x();
        stow_w();
        barrier();
        if (k0 + BK < n_in) fetch(k0 + BK, n_in, aligned);
        multiply_tiles();
    }
    put_sums();
}
