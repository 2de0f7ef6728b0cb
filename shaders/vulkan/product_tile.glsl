/* product_tile.glsl: BM rows of x times 64 rows of weights, in shared memory: bound by arithmetic.
 * 128 threads, 16 along the outputs and 8 along the rows; a thread sums BM / 8 rows by 4 outputs.
 * Included after quant.glsl. The kernel says where rows lie; what lies past an edge is the
 * kernel's to clamp along rows and outputs, and is zero along the inputs.
 *
 * Tiles are 16 inputs deep and kept as vec4s of inputs, a row 5 of them apart, so that neither
 * storing nor reading meets a bank twice. The next tile is on its way while one is multiplied. */
layout(constant_id = 4) const uint BM = 64; /* 16, 32 or 64 */

const uint BN = EB_TILE_OUTS, BK = 16u;
const uint T = EB_TILE_THREADS, N_ALONG = 16u, M_ALONG = T / N_ALONG; /* threads */
const uint TM = BM / M_ALONG, TN = BN / N_ALONG;
const uint PITCH = 5u;
/* Weights of one load, and loads of a row of the tile. MXFP4: half a unit. */
const uint LOAD = DTYPE == F32 ? 4u : DTYPE == MXFP4 ? 16u : 8u;
const uint LOADS = BK / LOAD;
const uint W_SLOTS = DTYPE == F32 ? 2u : 1u, X_SLOTS = BM == 64u ? 2u : 1u; /* of a thread */

/* Row m of the tile of x; row n of that of weights, and its scales. */
uvec2 tile_x_row(uint m);
uvec2 tile_w_row(uint n);
uvec2 tile_scales(uint n);
#ifdef EB_TILE_TRANSPOSED
/* The weights of input k: output n of the tile is element first + n of `all`. */
uvec2 tile_w_input(uint k, out uint first, out uint all);
#endif
/* What the sum of row m and output n of the tile is added to. */
float tile_start(uint m, uint n);
/* Takes that sum; `partner` is that of the output PAIR_AT after it. */
void tile_put(uint m, uint n, float sum, float partner);
const uint PAIR_AT = BN / 2u; /* partners stand so far apart in 2 * PAIR_AT outputs */

shared vec4 x_tile[BM * PITCH];
shared vec4 w_tile[BN * PITCH];
shared uint scale_tile[BN];

vec4 sums[TM]; /* [row][output]: rows FIRST_M + i * 8, outputs FIRST_N + j * 16 */
#define FIRST_M (THREAD / N_ALONG)
#define FIRST_N (THREAD % N_ALONG)

uvec4 w_held[4];
vec4 x_held[X_SLOTS];
uint scale_held;
uvec2 w_at[W_SLOTS], x_at[X_SLOTS], scale_at;

/* ---- weights, one row per output -------------------------------------------------------- */

void locate_w() {
    [[unroll]] for (uint s = 0u; s < W_SLOTS; s++) {
        w_at[s] = tile_w_row((THREAD + s * T) / LOADS % BN);
    }
    if (DTYPE == MXFP4) scale_at = tile_scales(THREAD % BN);
}

uvec4 load_w(uvec2 row, uint first, uint n_in, bool aligned) {
    if (first >= n_in) return uvec4(0u);
    if (DTYPE == MXFP4) {
        if (aligned) return uvec4(PUvec2(row).v[first / 16u], 0u, 0u);
        uvec2 at = plus(row, first / 2u);
        return uvec4(word_at(at), word_at(plus(at, 4u)), 0u, 0u);
    }
    if (first + LOAD > n_in) return load_part(row, first, n_in);
    return load_unit(row, first / LOAD, aligned);
}

void fetch_w(uint k0, uint n_in, bool aligned) {
    [[unroll]] for (uint s = 0u; s < W_SLOTS; s++) {
        w_held[s] = load_w(w_at[s], k0 + (THREAD + s * T) % LOADS * LOAD, n_in, aligned);
    }
    if (DTYPE == MXFP4) scale_held = load_u8(scale_at, k0 / 32u);
}

void stow_w() {
    [[unroll]] for (uint s = 0u; s < W_SLOTS; s++) {
        uint i = THREAD + s * T;
        if (i >= BN * LOADS) continue;
        [[unroll]] for (uint q = 0u; q < LOAD / 4u; q++) {
            w_tile[i / LOADS * PITCH + i % LOADS * (LOAD / 4u) + q] = quad_of(w_held[s], q);
        }
    }
    if (DTYPE == MXFP4 && THREAD < BN) scale_tile[THREAD] = scale_held;
}

/* ---- weights, one row per input --------------------------------------------------------- */

#ifdef EB_TILE_TRANSPOSED
/* A thread takes a unit of outputs at four inputs. */
#define T_OUT (THREAD / 4u * UNIT)
#define T_IN (THREAD % 4u)

void fetch_w_t(uint k0, uint n_in, bool aligned) {
    [[unroll]] for (uint j = 0u; j < 4u; j++) {
        uint k = k0 + T_IN * 4u + j, first, all;
        w_held[j] = uvec4(0u);
        if (k >= n_in || T_OUT >= BN) continue;
        uvec2 row = tile_w_input(k, first, all);
        if (first + T_OUT + UNIT > all) {
            w_held[j] = load_part(row, first + T_OUT, all);
        } else {
            w_held[j] = load_unit(row, (first + T_OUT) / UNIT, aligned);
        }
    }
}

void stow_w_t() {
    if (T_OUT >= BN) return;
    [[unroll]] for (uint q = 0u; q < QUADS; q++) {
        vec4 a = quad_of(w_held[0], q), b = quad_of(w_held[1], q);
        vec4 c = quad_of(w_held[2], q), d = quad_of(w_held[3], q);
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            w_tile[(T_OUT + 4u * q + i) * PITCH + T_IN] = vec4(a[i], b[i], c[i], d[i]);
        }
    }
}
#endif

/* ---- x ---------------------------------------------------------------------------------- */

void locate_x() {
    [[unroll]] for (uint s = 0u; s < X_SLOTS; s++) {
        x_at[s] = tile_x_row((THREAD + s * T) / 4u % BM);
    }
}

void fetch_x(uint k0, uint n_in, bool aligned) {
    [[unroll]] for (uint s = 0u; s < X_SLOTS; s++) {
        uint q = k0 / 4u + THREAD % 4u;
        if (4u * q + 4u <= n_in) {
            x_held[s] = x_quad(x_at[s], q, aligned);
        } else {
            x_held[s] = x_part(x_at[s], q, n_in);
        }
    }
}

void stow_x() {
    [[unroll]] for (uint s = 0u; s < X_SLOTS; s++) {
        uint i = THREAD + s * T;
        if (i < BM * 4u) x_tile[i / 4u * PITCH + i % 4u] = x_held[s];
    }
}

/* ---- both ------------------------------------------------------------------------------- */

/* A whole tile of aligned rows, as fetch_x and fetch_w would: without a branch, so that all loads
 * are under way together. */
void fetch_whole(uint k0) {
    [[unroll]] for (uint s = 0u; s < X_SLOTS; s++) {
        x_held[s] = PVec4(x_at[s]).v[k0 / 4u + THREAD % 4u];
    }
    [[unroll]] for (uint s = 0u; s < W_SLOTS; s++) {
        uint i = k0 / LOAD + (THREAD + s * T) % LOADS;
        if (DTYPE == MXFP4) {
            w_held[s].xy = PUvec2(w_at[s]).v[i];
        } else {
            w_held[s] = PUvec4(w_at[s]).v[i];
        }
    }
    if (DTYPE == MXFP4) scale_held = load_u8(scale_at, k0 / 32u);
}

void fetch(uint k0, uint n_in, bool transposed, bool aligned) {
    if (aligned && !transposed && k0 + BK <= n_in) {
        fetch_whole(k0);
    } else {
        fetch_x(k0, n_in, aligned);
#ifdef EB_TILE_TRANSPOSED
        if (transposed) fetch_w_t(k0, n_in, aligned);
#endif
        if (!transposed) fetch_w(k0, n_in, aligned);
    }
}

void stow(bool transposed) {
    stow_x();
#ifdef EB_TILE_TRANSPOSED
    if (transposed) stow_w_t();
#endif
    if (!transposed) stow_w();
}

/* ---- products --------------------------------------------------------------------------- */

void multiply_tiles() {
    vec4 part[TM];
    [[unroll]] for (uint i = 0u; i < TM; i++) part[i] = DTYPE == MXFP4 ? vec4(0.0) : sums[i];
    [[unroll]] for (uint k = 0u; k < BK / 4u; k++) {
        vec4 w[TN];
        [[unroll]] for (uint j = 0u; j < TN; j++) {
            w[j] = w_tile[(FIRST_N + j * N_ALONG) * PITCH + k];
        }
        [[unroll]] for (uint i = 0u; i < TM; i++) {
            vec4 x = x_tile[(FIRST_M + i * M_ALONG) * PITCH + k];
            [[unroll]] for (uint j = 0u; j < TN; j++) part[i][j] = plus_dot(part[i][j], x, w[j]);
        }
    }
    [[unroll]] for (uint j = 0u; j < TN; j++) {
        uint scale = DTYPE == MXFP4 ? scale_tile[FIRST_N + j * N_ALONG] : 0u;
        [[unroll]] for (uint i = 0u; i < TM; i++) {
            if (DTYPE == MXFP4) {
                sums[i][j] += mx_scaled(part[i][j], scale);
            } else {
                sums[i][j] = part[i][j];
            }
        }
    }
}

/* Sums over n_in inputs and puts them. `aligned` as ALIGNED, for these rows. In uniform control
 * flow. */
void tile_products(uint n_in, bool transposed, bool aligned) {
    [[unroll]] for (uint i = 0u; i < TM; i++) {
        [[unroll]] for (uint j = 0u; j < TN; j++) {
            sums[i][j] = tile_start(FIRST_M + i * M_ALONG, FIRST_N + j * N_ALONG);
        }
    }
    locate_x();
    if (!transposed) locate_w();
    fetch(0u, n_in, transposed, aligned);
    for (uint k0 = 0u; k0 < n_in; k0 += BK) {
        barrier();
        stow(transposed);
        barrier();
        if (k0 + BK < n_in) fetch(k0 + BK, n_in, transposed, aligned);
        multiply_tiles();
    }
    [[unroll]] for (uint i = 0u; i < TM; i++) {
        [[unroll]] for (uint j = 0u; j < TN; j++) {
            float partner = sums[i][(j + TN / 2u) % TN];
            tile_put(FIRST_M + i * M_ALONG, FIRST_N + j * N_ALONG, sums[i][j], partner);
        }
    }
}
