/* product_matrix.glsl: product_tile.glsl once more, on matrix units: 64 rows of x times 128 rows of
 * weights, bf16 16 x 16 x 16 with f32 sums. 4 subgroups, two along the rows and two along the
 * outputs. Same rules for the kernel as there; BF16 and MXFP4 weights, which a bf16 holds as they
 * are, one row per output.
 *
 * x is split into two bf16, what the first one leaves goes to the second: a product is off by 2^-17
 * at most, hundreds of times less than one bf16 would be, for twice the matrix work. No finite x
 * becomes infinite. MXFP4 below 2^-126 or above f32 is lost here.
 *
 * Tiles are 32 inputs deep, eight of them to a uvec4; a row takes 5 of those, so that eight rows
 * lie in different banks. Everything is of constant size, so that fragments stay in registers. */
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_bfloat16 : require
#extension GL_KHR_memory_scope_semantics : require

const uint BM = 64u, BN = 128u, BK = 32u;
const uint EDGE = 16u;                          /* of a fragment */
const uint FM = BM / 2u / EDGE, FN = BN / 2u / EDGE; /* fragments of a subgroup */
const uint PITCH = 5u;
const uint T = 128u; /* threads: subgroups of 32 */
const uint LOADS = BK / UNIT; /* loads of a row of the tile of weights */
const uint X_SLOTS = BM * BK / 8u / T;
const uint W_SLOTS = BN * LOADS / T > 0u ? BN * LOADS / T : 1u;
const uint PAIR_AT = EDGE / 2u;

uvec2 tile_x_row(uint m);
uvec2 tile_w_row(uint n);
uvec2 tile_scales(uint n);
float tile_start(uint m, uint n);
void tile_put(uint m, uint n, float sum, float partner);

shared uvec4 x_tile[BM * PITCH], x_rest[BM * PITCH]; /* the first and second part */
shared uvec4 w_tile[BN * PITCH];

#define MATRIX(use, type) coopmat<type, gl_ScopeSubgroup, EDGE, EDGE, use>
MATRIX(gl_MatrixUseAccumulator, float) sums[FM * FN];

vec4 x_held[2u * X_SLOTS]; /* eight inputs */
uvec4 w_held[W_SLOTS];
uint scale_held[W_SLOTS];
uvec2 x_at[X_SLOTS], w_at[W_SLOTS], scale_at[W_SLOTS];

/* ---- x ---------------------------------------------------------------------------------- */

/* The bf16 next to each value, as f32 bits; the largest one for what rounds beyond it. */
uvec4 nearest_bf16(vec4 x) {
    uvec4 u = floatBitsToUint(x), size = u & 0x7fffffffu;
    uvec4 near = min(size + 0x8000u, uvec4(0x7f7fffffu)) & 0xffff0000u;
    near = mix(near, size & 0xffff0000u, greaterThanEqual(size, uvec4(0x7f800000u)));
    return near | (u & 0x80000000u);
}

uvec2 pack_bf16(uvec4 bits) {
    return uvec2((bits.x >> 16u) | bits.y, (bits.z >> 16u) | bits.w);
}

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

void stow_x() {
    [[unroll]] for (uint s = 0u; s < X_SLOTS; s++) {
        uint at = (THREAD + s * T) / 4u * PITCH + THREAD % 4u;
        vec4 a = x_held[2u * s], b = x_held[2u * s + 1u];
        uvec4 near_a = nearest_bf16(a), near_b = nearest_bf16(b);
        x_tile[at] = uvec4(pack_bf16(near_a), pack_bf16(near_b));
        /* Of an infinite x nothing is left. */
        a = mix(a - uintBitsToFloat(near_a), vec4(0.0), isinf(a));
        b = mix(b - uintBitsToFloat(near_b), vec4(0.0), isinf(b));
        x_rest[at] = uvec4(pack_bf16(nearest_bf16(a)), pack_bf16(nearest_bf16(b)));
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

/* Four values of MXFP4 as bf16. */
uvec2 mx_bf16(vec4 v, uint scale) {
    vec4 w = vec4(mx_scaled(v.x, scale), mx_scaled(v.y, scale), mx_scaled(v.z, scale),
                  mx_scaled(v.w, scale));
    return pack_bf16(floatBitsToUint(w) & 0xffff0000u);
}

void stow_w() {
    [[unroll]] for (uint s = 0u; s < W_SLOTS; s++) {
        uint i = THREAD + s * T;
        if (i >= BN * LOADS) continue;
        uint at = i / LOADS * PITCH + i % LOADS;
        if (DTYPE == MXFP4) {
            [[unroll]] for (uint q = 0u; q < 4u; q++) {
                w_tile[at + q] = uvec4(mx_bf16(quad_of(w_held[s], 2u * q), scale_held[s]),
                                       mx_bf16(quad_of(w_held[s], 2u * q + 1u), scale_held[s]));
            }
        } else {
            w_tile[at] = w_held[s];
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

/* ---- products --------------------------------------------------------------------------- */

#define FIRST_M (gl_SubgroupID / 2u * (BM / 2u)) /* of the subgroup */
#define FIRST_N (gl_SubgroupID % 2u * (BN / 2u))

void multiply_tiles() {
    [[unroll]] for (uint k = 0u; k < BK / 8u; k += EDGE / 8u) {
        MATRIX(gl_MatrixUseB, bfloat16_t) w[FN];
        [[unroll]] for (uint j = 0u; j < FN; j++) {
            coopMatLoad(w[j], w_tile, (FIRST_N + j * EDGE) * PITCH + k, PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
        }
        [[unroll]] for (uint i = 0u; i < FM; i++) {
            MATRIX(gl_MatrixUseA, bfloat16_t) x, rest;
            uint at = (FIRST_M + i * EDGE) * PITCH + k;
            coopMatLoad(x, x_tile, at, PITCH, gl_CooperativeMatrixLayoutRowMajor);
            coopMatLoad(rest, x_rest, at, PITCH, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint j = 0u; j < FN; j++) {
                sums[i * FN + j] = coopMatMulAdd(rest, w[j], sums[i * FN + j]);
                sums[i * FN + j] = coopMatMulAdd(x, w[j], sums[i * FN + j]);
            }
        }
    }
}

const uint SHARE = EDGE * EDGE / 32u; /* elements of a fragment for each thread */

/* Fragment by fragment through shared memory, for nobody knows where a fragment's elements are. */
void put_sums() {
    uint at = gl_SubgroupID * EDGE * PITCH;
    barrier();
    [[unroll]] for (uint i = 0u; i < FM; i++) {
        [[unroll]] for (uint j = 0u; j < FN; j++) {
            coopMatStore(sums[i * FN + j], x_tile, at, PITCH, gl_CooperativeMatrixLayoutRowMajor);
            subgroupBarrier();
            float start[SHARE];
            [[unroll]] for (uint k = 0u; k < SHARE; k++) {
                uint e = gl_SubgroupInvocationID + k * 32u;
                start[k] = tile_start(FIRST_M + i * EDGE + e / EDGE, FIRST_N + j * EDGE + e % EDGE);
            }
            [[unroll]] for (uint k = 0u; k < SHARE; k++) {
                uint e = gl_SubgroupInvocationID + k * 32u;
                uint m = e / EDGE, n = e % EDGE, partner = (n + PAIR_AT) % EDGE;
                float a = uintBitsToFloat(x_tile[at + m * PITCH + n / 4u][n % 4u]);
                float b = uintBitsToFloat(x_tile[at + m * PITCH + partner / 4u][n % 4u]);
                tile_put(FIRST_M + i * EDGE + m, FIRST_N + j * EDGE + n, start[k] + a, b);
            }
            subgroupBarrier();
        }
    }
}

void tile_products(uint n_in, bool transposed, bool aligned) {
    [[unroll]] for (uint f = 0u; f < FM * FN; f++) {
        sums[f] = MATRIX(gl_MatrixUseAccumulator, float)(0.0);
    }
    [[unroll]] for (uint s = 0u; s < X_SLOTS; s++) x_at[s] = tile_x_row((THREAD + s * T) / 4u);
    [[unroll]] for (uint s = 0u; s < W_SLOTS; s++) {
        uint n = (THREAD + s * T) / LOADS % BN;
        w_at[s] = tile_w_row(n);
        if (DTYPE == MXFP4) scale_at[s] = tile_scales(n);
    }
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
