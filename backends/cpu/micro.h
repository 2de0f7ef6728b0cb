/* micro.h: the inner loops that the KDA and MLA ops share: a small matrix product, dot products of
 * four rows at once, and an exponential that compilers can vectorise. Not a general linear algebra
 * library: op_linear has its own loops. Private to backends/cpu.
 *
 * Every output element is summed in an order that depends on the inner length alone, so a row's
 * value does not change with the rows around it, whatever the width of the vectors. */
#ifndef EB_CPU_MICRO_H
#define EB_CPU_MICRO_H

#include "vec.h"

enum {
    MICRO_ROWS = 4,
    MICRO_LANES = 16, /* partial sums of a dot product */
    /* Eight would fit the registers of SSE2 better, but GCC takes so short a loop apart before it
     * vectorises, at a quarter of the speed. */
    MICRO_COLS = 16,
    MICRO_PANEL = 128 /* inner elements summed before they join the output */
};

/* exp(-|x|) within two units in the last place; subnormal, then 0, as |x| grows. NaN stays NaN.
 * Selections are made on the bits: comparing floats would keep loops over this from vectorising. */
static inline float micro_exp_neg(float x) {
    uint32_t m = cpu_to_bits(x) & 0x7fffffffu;
    uint32_t nan = m > 0x7f800000u ? 0x7fc00000u : 0u;
    float y = cpu_from_bits(m > 0x42f00000u ? 0x42f00000u : m); /* 120 */
    /* Taking it from 1.5 * 2^23 leaves round(-y / ln 2) in the low bits of t. */
    float t = 12582912.0f - y * 1.44269504f;
    float n = t - 12582912.0f;
    float r = (n * -0.693359375f - y) + n * 2.12194440e-4f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = (p * r) * r + r + 1.0f;
    /* 2^n as two factors: n may lie below the smallest exponent. */
    uint32_t k = cpu_to_bits(t) - 0x4b400000u + 256u, half = k >> 1;
    float e = (p * cpu_from_bits((half - 1u) << 23)) * cpu_from_bits((k - half - 1u) << 23);
    return cpu_from_bits(cpu_to_bits(e) | nan);
}

/* All ones where x has its sign bit set. */
static inline uint32_t micro_sign_mask(float x) {
    return 0u - (cpu_to_bits(x) >> 31);
}

/* 1 / (1 + exp(-x)) */
static inline float micro_sigmoid(float x) {
    float e = micro_exp_neg(x);
    uint32_t negative = micro_sign_mask(x);
    float top = cpu_from_bits((cpu_to_bits(e) & negative) | (0x3f800000u & ~negative));
    return top / (1.0f + e);
}

static inline float micro_silu(float x) {
    return x * micro_sigmoid(x);
}

/* log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)), and log1p(y) = 2 atanh(y / (2 + y)), where the
 * argument of atanh is at most 1/3. */
static inline float micro_softplus(float x) {
    float e = micro_exp_neg(x);
    float s = e / (2.0f + e), z = s * s;
    float p = 1.0f / 17.0f;
    p = p * z + 1.0f / 15.0f;
    p = p * z + 1.0f / 13.0f;
    p = p * z + 1.0f / 11.0f;
    p = p * z + 1.0f / 9.0f;
    p = p * z + 1.0f / 7.0f;
    p = p * z + 0.2f;
    p = p * z + 1.0f / 3.0f;
    p = 2.0f * (s + s * (z * p));
    return cpu_from_bits(cpu_to_bits(x) & ~micro_sign_mask(x)) + p;
}

/* A left operand: element (r, k) at p[r * row + k * col]. */
struct micro_a {
    const float *p;
    size_t row, col;
};

/* A right operand in blocks of MICRO_COLS columns: element (k, j) at
 * p[j / MICRO_COLS * block + k * row + j % MICRO_COLS]. Plain rows have block = MICRO_COLS. */
struct micro_b {
    const float *p;
    size_t row, block;
};

/* What becomes of the old output: c = a b, c = c + a b, c = scale[row] c + a b. */
enum micro_mode { MICRO_SET, MICRO_ADD, MICRO_SCALE };

#if !CPU_VEC

static inline void micro_finish(float *restrict c, const float *acc, size_t n, enum micro_mode mode,
                                const float *scale) {
    if (mode == MICRO_SET) {
        for (size_t l = 0; l < n; l++) c[l] = acc[l];
    } else {
        float x = mode == MICRO_SCALE ? *scale : 1.0f;
        for (size_t l = 0; l < n; l++) c[l] = x * c[l] + acc[l];
    }
}

/* One block of four rows and MICRO_COLS columns. */
static inline void micro_block4(size_t k, struct micro_a a, const float *restrict b, size_t ldb,
                                float *restrict c, size_t ldc, enum micro_mode mode,
                                const float *scale) {
    float acc0[MICRO_COLS] = {0}, acc1[MICRO_COLS] = {0};
    float acc2[MICRO_COLS] = {0}, acc3[MICRO_COLS] = {0};
    const float *a0 = a.p, *a1 = a0 + a.row, *a2 = a1 + a.row, *a3 = a2 + a.row;
    for (size_t i = 0; i < k; i++) {
        const float *bi = b + i * ldb;
        float x0 = a0[i * a.col], x1 = a1[i * a.col], x2 = a2[i * a.col], x3 = a3[i * a.col];
        for (int l = 0; l < MICRO_COLS; l++) {
            acc0[l] += x0 * bi[l];
            acc1[l] += x1 * bi[l];
            acc2[l] += x2 * bi[l];
            acc3[l] += x3 * bi[l];
        }
    }
    micro_finish(c, acc0, MICRO_COLS, mode, scale);
    micro_finish(c + ldc, acc1, MICRO_COLS, mode, scale + 1);
    micro_finish(c + 2 * ldc, acc2, MICRO_COLS, mode, scale + 2);
    micro_finish(c + 3 * ldc, acc3, MICRO_COLS, mode, scale + 3);
}

/* One row of n <= MICRO_COLS columns. */
static inline void micro_block1(size_t k, struct micro_a a, const float *restrict b, size_t ldb,
                                float *restrict c, size_t n, enum micro_mode mode,
                                const float *scale) {
    float acc[MICRO_COLS] = {0};
    for (size_t i = 0; n == MICRO_COLS && i < k; i++) {
        const float *bi = b + i * ldb;
        float x = a.p[i * a.col];
        for (int l = 0; l < MICRO_COLS; l++) acc[l] += x * bi[l];
    }
    for (size_t i = 0; n < MICRO_COLS && i < k; i++) {
        float x = a.p[i * a.col];
        for (size_t l = 0; l < n; l++) acc[l] += x * b[i * ldb + l];
    }
    micro_finish(c, acc, n, mode, scale);
}

#endif

#if CPU_VEC

/* Rows of the register tile: 12 of 16 registers, or 12 of 32 with half as many for a row. */
#if defined(__AVX512F__)
enum { MICRO_TILE = 12 };
#else
enum { MICRO_TILE = 6 };
#endif

VEC_FN vec micro_load(const float *p, size_t n) {
    return n == VEC ? vec_load(p) : vec_load_part(p, n);
}

/* `rows` <= MICRO_TILE rows of one block of n <= MICRO_COLS columns; rows is a constant. */
VEC_FN void micro_tile(size_t rows, size_t k, struct micro_a a, const float *restrict b, size_t ldb,
                       float *restrict c, size_t ldc, size_t n, enum micro_mode mode,
                       const float *scale) {
    vec acc[MICRO_TILE];
    for (size_t r = 0; r < rows; r++) acc[r] = vec_all(0.0f);
    for (size_t i = 0; i < k; i++) {
        vec bi = micro_load(b + i * ldb, n);
        const float *ai = a.p + i * a.col;
        for (size_t r = 0; r < rows; r++) acc[r] = vec_fma(vec_all(ai[r * a.row]), bi, acc[r]);
    }
    for (size_t r = 0; r < rows; r++) {
        float *cr = c + r * ldc;
        if (mode == MICRO_ADD) acc[r] = vec_add(micro_load(cr, n), acc[r]);
        if (mode == MICRO_SCALE) acc[r] = vec_fma(vec_all(scale[r]), micro_load(cr, n), acc[r]);
        if (n == VEC) {
            vec_store(cr, acc[r]);
        } else {
            vec_store_part(cr, acc[r], n);
        }
    }
}

/* All rows of one block of columns. */
VEC_FN void micro_column(size_t m, size_t k, struct micro_a a, const float *restrict b, size_t ldb,
                         float *restrict c, size_t ldc, size_t n, enum micro_mode mode,
                         const float *scale) {
    size_t step = m >= MICRO_TILE ? MICRO_TILE : 6;
    for (; m > 0; m -= step) {
        if (m < step) step = m < 6 ? m : 6;
        switch (step) {
            case 1:
                micro_tile(1, k, a, b, ldb, c, ldc, n, mode, scale);
                break;
            case 2:
                micro_tile(2, k, a, b, ldb, c, ldc, n, mode, scale);
                break;
            case 3:
                micro_tile(3, k, a, b, ldb, c, ldc, n, mode, scale);
                break;
            case 4:
                micro_tile(4, k, a, b, ldb, c, ldc, n, mode, scale);
                break;
            case 5:
                micro_tile(5, k, a, b, ldb, c, ldc, n, mode, scale);
                break;
            case 6:
                micro_tile(6, k, a, b, ldb, c, ldc, n, mode, scale);
                break;
            default:
                micro_tile(MICRO_TILE, k, a, b, ldb, c, ldc, n, mode, scale);
        }
        a.p += step * a.row;
        c += step * ldc;
        if (mode == MICRO_SCALE) scale += step;
    }
}

#else

/* All rows of one block of n columns. */
static inline void micro_column(size_t m, size_t k, struct micro_a a, const float *b, size_t ldb,
                                float *c, size_t ldc, size_t n, enum micro_mode mode,
                                const float *scale) {
    size_t r = 0;
    for (; n == MICRO_COLS && r + MICRO_ROWS <= m; r += MICRO_ROWS) {
        struct micro_a ar = {a.p + r * a.row, a.row, a.col};
        micro_block4(k, ar, b, ldb, c + r * ldc, ldc, mode,
                     mode == MICRO_SCALE ? scale + r : scale);
    }
    for (; r < m; r++) {
        struct micro_a ar = {a.p + r * a.row, a.row, a.col};
        micro_block1(k, ar, b, ldb, c + r * ldc, n, mode, mode == MICRO_SCALE ? scale + r : scale);
    }
}

#endif

/* c[m][n] from a[m][k] b[k][n], summed in one go: k is best at most MICRO_PANEL. A column block of
 * b stays in the nearest cache while all rows pass over it. `scale` is [m], for MICRO_SCALE. */
static inline void micro_panel(size_t m, size_t n, size_t k, struct micro_a a, struct micro_b b,
                               float *c, size_t ldc, enum micro_mode mode, const float *scale) {
    static const float none[12] = {0}; /* nothing is read, but compilers cannot know */
    if (!scale) scale = none;
    for (size_t j = 0; j < n; j += MICRO_COLS, b.p += b.block) {
        size_t w = n - j < MICRO_COLS ? n - j : MICRO_COLS;
        if (w == MICRO_COLS) {
            micro_column(m, k, a, b.p, b.row, c + j, ldc, MICRO_COLS, mode, scale);
        } else {
            micro_column(m, k, a, b.p, b.row, c + j, ldc, w, mode, scale);
        }
    }
}

/* c[m][n] = a[m][k] b[k][n] for any k, panel by panel. */
static inline void micro_gemm(size_t m, size_t n, size_t k, struct micro_a a, struct micro_b b,
                              float *c, size_t ldc) {
    for (size_t i = 0; i < k; i += MICRO_PANEL) {
        size_t inner = k - i < MICRO_PANEL ? k - i : MICRO_PANEL;
        struct micro_a ai = {a.p + i * a.col, a.row, a.col};
        struct micro_b bi = {b.p + i * b.row, b.row, b.block};
        micro_panel(m, n, inner, ai, bi, c, ldc, i ? MICRO_ADD : MICRO_SET, NULL);
    }
}

/* Sum of the lanes as a tree. */
static inline float micro_join(const float *a) {
    float half[8];
    for (int l = 0; l < 8; l++) half[l] = a[l] + a[l + 8];
    return cpu_join(half);
}

/* out[r] = <a + r lda, b> for four rows, by MICRO_LANES partial sums each. */
static inline void micro_dot4(const float *a, size_t lda, const float *restrict b, size_t n,
                              float *restrict out) {
    float acc0[MICRO_LANES] = {0}, acc1[MICRO_LANES] = {0};
    float acc2[MICRO_LANES] = {0}, acc3[MICRO_LANES] = {0};
    size_t whole = n - n % MICRO_LANES;
    for (size_t i = 0; i < whole; i += MICRO_LANES) {
        const float *p0 = a + i, *p1 = p0 + lda, *p2 = p1 + lda, *p3 = p2 + lda, *q = b + i;
        for (int l = 0; l < MICRO_LANES; l++) {
            acc0[l] += p0[l] * q[l];
            acc1[l] += p1[l] * q[l];
            acc2[l] += p2[l] * q[l];
            acc3[l] += p3[l] * q[l];
        }
    }
    float rest[MICRO_ROWS] = {0};
    for (size_t r = 0; whole < n && r < MICRO_ROWS; r++) {
        for (size_t i = whole; i < n; i++) rest[r] += a[r * lda + i] * b[i];
    }
    out[0] = micro_join(acc0) + rest[0];
    out[1] = micro_join(acc1) + rest[1];
    out[2] = micro_join(acc2) + rest[2];
    out[3] = micro_join(acc3) + rest[3];
}

/* The same for one row, with the same order of sums. */
static inline float micro_dot(const float *restrict a, const float *restrict b, size_t n) {
    float acc[MICRO_LANES] = {0}, rest = 0.0f;
    size_t whole = n - n % MICRO_LANES;
    for (size_t i = 0; i < whole; i += MICRO_LANES) {
        for (int l = 0; l < MICRO_LANES; l++) acc[l] += a[i + (size_t)l] * b[i + (size_t)l];
    }
    for (size_t i = whole; i < n; i++) rest += a[i] * b[i];
    return micro_join(acc) + rest;
}

#if CPU_VEC

/* `rows` rows of a times `cols` rows of b, both constants: their sums fill the registers. */
VEC_FN void micro_dots_tile(size_t rows, size_t cols, size_t k, const float *a, size_t lda,
                            const float *b, size_t ldb, float *out, size_t ldo) {
    vec acc[6], bi[3];
    size_t whole = k - k % VEC;
    for (size_t i = 0; i < rows * cols; i++) acc[i] = vec_all(0.0f);
    for (size_t i = 0; i < whole; i += VEC) {
        for (size_t c = 0; c < cols; c++) bi[c] = vec_load(b + c * ldb + i);
        for (size_t r = 0; r < rows; r++) {
            vec ai = vec_load(a + r * lda + i);
            for (size_t c = 0; c < cols; c++) {
                acc[r * cols + c] = vec_fma(ai, bi[c], acc[r * cols + c]);
            }
        }
    }
    if (whole < k) {
        for (size_t c = 0; c < cols; c++) bi[c] = vec_load_part(b + c * ldb + whole, k - whole);
        for (size_t r = 0; r < rows; r++) {
            vec ai = vec_load_part(a + r * lda + whole, k - whole);
            for (size_t c = 0; c < cols; c++) {
                acc[r * cols + c] = vec_fma(ai, bi[c], acc[r * cols + c]);
            }
        }
    }
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < cols; c++) out[r * ldo + c] = vec_sum(acc[r * cols + c]);
    }
}

/* out[m][n] = a[m][k] b[n][k]^T */
static inline void micro_dots(size_t m, size_t n, size_t k, const float *a, size_t lda,
                              const float *b, size_t ldb, float *out, size_t ldo) {
    size_t j = 0;
    for (; j + 3 <= n; j += 3) {
        const float *bj = b + j * ldb;
        size_t i = 0;
        for (; i + 2 <= m; i += 2) {
            micro_dots_tile(2, 3, k, a + i * lda, lda, bj, ldb, out + i * ldo + j, ldo);
        }
        if (i < m) micro_dots_tile(1, 3, k, a + i * lda, lda, bj, ldb, out + i * ldo + j, ldo);
    }
    for (; j < n; j++) {
        const float *bj = b + j * ldb;
        size_t i = 0;
        for (; i + 4 <= m; i += 4) {
            micro_dots_tile(4, 1, k, a + i * lda, lda, bj, ldb, out + i * ldo + j, ldo);
        }
        for (; i < m; i++) {
            micro_dots_tile(1, 1, k, a + i * lda, lda, bj, ldb, out + i * ldo + j, ldo);
        }
    }
}

#else

/* out[m][n] = a[m][k] b[n][k]^T */
static inline void micro_dots(size_t m, size_t n, size_t k, const float *a, size_t lda,
                              const float *b, size_t ldb, float *out, size_t ldo) {
    size_t i = 0;
    for (; i + MICRO_ROWS <= m; i += MICRO_ROWS) {
        for (size_t j = 0; j < n; j++) {
            float x[MICRO_ROWS];
            micro_dot4(a + i * lda, lda, b + j * ldb, k, x);
            for (size_t r = 0; r < MICRO_ROWS; r++) out[(i + r) * ldo + j] = x[r];
        }
    }
    for (; i < m; i++) {
        for (size_t j = 0; j < n; j++) out[i * ldo + j] = micro_dot(a + i * lda, b + j * ldb, k);
    }
}

#endif

static inline float micro_sum_squares(const float *a, size_t n) {
    float acc[MICRO_LANES] = {0}, rest = 0.0f;
    size_t whole = n - n % MICRO_LANES;
    for (size_t i = 0; i < whole; i += MICRO_LANES) {
        for (int l = 0; l < MICRO_LANES; l++) acc[l] += a[i + (size_t)l] * a[i + (size_t)l];
    }
    for (size_t i = whole; i < n; i++) rest += a[i] * a[i];
    return micro_join(acc) + rest;
}

#endif
