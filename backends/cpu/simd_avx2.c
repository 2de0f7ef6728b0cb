/* simd_avx2.c: product kernels for AVX2, FMA and F16C. An output is one vector of partial sums over
 * the inputs (input i in lane i % 8), joined at the end; transposed, one sum over the inputs.
 * Either way its order does not depend on the number of rows.
 *
 * One row: weights are widened as they come. More rows: a tile of weights is widened once and rows
 * pass over it three at a time, twelve sums in registers. */
#include "simd.h"

#if CPU_SIMD

#include <immintrin.h>
#include <stdbool.h>

#define ALWAYS static inline __attribute__((always_inline))

enum { N_TILE_OUT = 4, N_TILE_ROWS = 3, N_T_ROWS = 6, LANES = 8 };

/* ---- widening --------------------------------------------------------------------------- */

ALWAYS __m256 wide8(const uint8_t *p, uint64_t i, int32_t dtype) {
    if (dtype == EBRO_F32) return _mm256_loadu_ps((const float *)(const void *)p + i);
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(p + 2 * i));
    if (dtype == EBRO_F16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* The first n < 8 of eight; zeros behind them. */
ALWAYS __m256 wide_part(const uint8_t *p, uint64_t i, uint64_t n, int32_t dtype) {
    uint8_t room[LANES * sizeof(float)] = {0};
    uint64_t size = dtype == EBRO_F32 ? 4 : 2;
    memcpy(room, p + i * size, n * size);
    return wide8(room, 0, dtype);
}

ALWAYS __m256i first_lanes(uint64_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

/* 32 codes of one scale group. Twice a code's value is a small integer. */
ALWAYS void wide_codes(__m256 out[4], const uint8_t *codes, uint8_t scale) {
    const __m128i twice = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    const __m128i nibble = _mm_set1_epi8(15);
    __m256 half = _mm256_set1_ps(cpu_from_bits(((uint32_t)scale - 1u) << 23));
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)codes);
    __m128i lo = _mm_and_si128(b, nibble), hi = _mm_and_si128(_mm_srli_epi16(b, 4), nibble);
    __m128i first = _mm_shuffle_epi8(twice, _mm_unpacklo_epi8(lo, hi));
    __m128i second = _mm_shuffle_epi8(twice, _mm_unpackhi_epi8(lo, hi));
    __m256i part[4] = {_mm256_cvtepi8_epi32(first), _mm256_cvtepi8_epi32(_mm_srli_si128(first, 8)),
                       _mm256_cvtepi8_epi32(second),
                       _mm256_cvtepi8_epi32(_mm_srli_si128(second, 8))};
    for (int i = 0; i < 4; i++) out[i] = _mm256_mul_ps(_mm256_cvtepi32_ps(part[i]), half);
}

/* ---- sums ------------------------------------------------------------------------------- */

ALWAYS __m128 join4(const __m256 a[4]) {
    __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3]));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

ALWAYS void put(float *y, __m128 v, uint64_t n, int32_t accumulate) {
    if (n >= 4) {
        _mm_storeu_ps(y, accumulate ? _mm_add_ps(_mm_loadu_ps(y), v) : v);
        return;
    }
    float part[4];
    _mm_storeu_ps(part, v);
    for (uint64_t i = 0; i < n; i++) y[i] = accumulate ? y[i] + part[i] : part[i];
}

/* ---- one row ---------------------------------------------------------------------------- */

/* Reading weights is all that takes time here. Matrices of small models have rows too short for the
 * processor's own prefetcher to notice, so each line is asked for about two to four KB early: at
 * the same place of the next block of rows, or, in long rows, further on in the same row. Four rows
 * at a time ask for them in nearly the order in which they lie. */
enum { N_LINE = 64, N_LONG_ROW = 1024 };

/* Past the last output the last row stands in; its sums are not stored. */
static inline uint64_t row_of(uint64_t out0, uint64_t n_out, uint64_t o) {
    return out0 + (o < n_out ? o : n_out - 1);
}

/* An address that may lie behind the matrix: asking for it does nothing then. */
ALWAYS void prefetch(const uint8_t *p, uint64_t ahead) {
    _mm_prefetch((const char *)((uintptr_t)p + ahead), _MM_HINT_T0);
}

ALWAYS void one_row4(const struct cpu_matrix *m, int32_t dtype, uint64_t out0, uint64_t n_out,
                     const float *x, float *y, int32_t accumulate) {
    __m256 acc[N_TILE_OUT];
    const uint8_t *w[N_TILE_OUT];
    uint64_t n = m->cols, size = dtype == EBRO_F32 ? 4 : 2, line = N_LINE / size, i = 0;
    uint64_t row_bytes = m->stride * size;
    uint64_t ahead = row_bytes > N_LONG_ROW ? N_LONG_ROW : row_bytes * N_TILE_OUT;
    for (uint64_t o = 0; o < N_TILE_OUT; o++) {
        acc[o] = _mm256_setzero_ps();
        w[o] = m->data + row_of(out0, n_out, o) * row_bytes;
    }
    for (; i + line <= n; i += line) {
        for (int o = 0; o < N_TILE_OUT; o++) prefetch(w[o] + i * size, ahead);
        for (uint64_t k = i; k < i + line; k += LANES) {
            __m256 xi = _mm256_loadu_ps(x + k);
            for (int o = 0; o < N_TILE_OUT; o++) {
                acc[o] = _mm256_fmadd_ps(xi, wide8(w[o], k, dtype), acc[o]);
            }
        }
    }
    for (; i + LANES <= n; i += LANES) {
        __m256 xi = _mm256_loadu_ps(x + i);
        for (int o = 0; o < N_TILE_OUT; o++) {
            acc[o] = _mm256_fmadd_ps(xi, wide8(w[o], i, dtype), acc[o]);
        }
    }
    if (i < n) {
        __m256 xi = _mm256_maskload_ps(x + i, first_lanes(n - i));
        for (int o = 0; o < N_TILE_OUT; o++) {
            acc[o] = _mm256_fmadd_ps(xi, wide_part(w[o], i, n - i, dtype), acc[o]);
        }
    }
    put(y + out0, join4(acc), n_out, accumulate);
}

ALWAYS void one_row(const struct cpu_matrix *m, int32_t dtype, uint64_t out0, uint64_t n_out,
                    const float *x, float *y, int32_t accumulate) {
    for (uint64_t o = 0; o < n_out; o += N_TILE_OUT) {
        one_row4(m, dtype, out0 + o, n_out - o, x, y, accumulate);
    }
}

static void one_row_codes(const struct cpu_matrix *m, uint64_t out0, uint64_t n_out, const float *x,
                          float *y, int32_t accumulate) {
    for (uint64_t o = 0; o < n_out; o += N_TILE_OUT) {
        uint64_t n = n_out - o < N_TILE_OUT ? n_out - o : N_TILE_OUT;
        __m256 acc[N_TILE_OUT];
        const uint8_t *w[N_TILE_OUT], *scale[N_TILE_OUT];
        for (uint64_t l = 0; l < N_TILE_OUT; l++) {
            uint64_t row = row_of(out0 + o, n, l);
            acc[l] = _mm256_setzero_ps();
            w[l] = m->data + row * (m->cols / 2);
            scale[l] = m->scale + row * (m->cols / EBRO_MX_GROUP);
        }
        for (uint64_t g = 0; g < m->cols / EBRO_MX_GROUP; g++) {
            const float *xg = x + g * EBRO_MX_GROUP;
            for (int l = 0; l < N_TILE_OUT; l++) {
                __m256 v[4];
                wide_codes(v, w[l] + g * (EBRO_MX_GROUP / 2), scale[l][g]);
                for (int i = 0; i < 4; i++) {
                    acc[l] = _mm256_fmadd_ps(_mm256_loadu_ps(xg + LANES * i), v[i], acc[l]);
                }
            }
        }
        put(y + out0 + o, join4(acc), n, accumulate);
    }
}

/* ---- many rows -------------------------------------------------------------------------- */

struct tile {
    float w[SIMD_OUT][SIMD_CHUNK]; /* zeros up to a multiple of 8 columns */
};

ALWAYS void widen(float *dst, const uint8_t *src, uint64_t col, uint64_t n, int32_t dtype) {
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES) _mm256_storeu_ps(dst + i, wide8(src, col + i, dtype));
    if (i < n) _mm256_storeu_ps(dst + i, wide_part(src, col + i, n - i, dtype));
}

static void load_tile(struct tile *t, const struct cpu_matrix *m, uint64_t out0, uint64_t n_out,
                      uint64_t col, uint64_t n) {
    for (uint64_t o = 0; o < SIMD_OUT; o++) {
        uint64_t row = row_of(out0, n_out, o);
        if (m->dtype == EBRO_MXFP4) {
            const uint8_t *codes = m->data + row * (m->cols / 2) + col / 2;
            const uint8_t *scale = m->scale + (row * m->cols + col) / EBRO_MX_GROUP;
            for (uint64_t g = 0; g < n / EBRO_MX_GROUP; g++) {
                __m256 v[4];
                wide_codes(v, codes + g * (EBRO_MX_GROUP / 2), scale[g]);
                float *dst = t->w[o] + g * EBRO_MX_GROUP;
                for (int i = 0; i < 4; i++) _mm256_storeu_ps(dst + LANES * i, v[i]);
            }
        } else if (m->dtype == EBRO_F32) {
            widen(t->w[o], m->data + row * m->stride * 4, col, n, EBRO_F32);
        } else if (m->dtype == EBRO_F16) {
            widen(t->w[o], m->data + row * m->stride * 2, col, n, EBRO_F16);
        } else {
            widen(t->w[o], m->data + row * m->stride * 2, col, n, EBRO_BF16);
        }
    }
}

/* sum[r][o] (+)= n_rows rows of x times four outputs of a tile. */
ALWAYS void tile_sums(__m256 *acc, const float *w, const float *x, uint64_t x_stride, uint64_t n,
                      int n_rows) {
    uint64_t whole = n - n % LANES;
    for (uint64_t i = 0; i < whole; i += LANES) {
        __m256 xi[N_TILE_ROWS];
        for (int r = 0; r < n_rows; r++) xi[r] = _mm256_loadu_ps(x + (uint64_t)r * x_stride + i);
        for (int o = 0; o < N_TILE_OUT; o++) {
            __m256 wi = _mm256_loadu_ps(w + o * SIMD_CHUNK + i);
            for (int r = 0; r < n_rows; r++) {
                acc[r * N_TILE_OUT + o] = _mm256_fmadd_ps(xi[r], wi, acc[r * N_TILE_OUT + o]);
            }
        }
    }
    if (whole == n) return;
    __m256i mask = first_lanes(n - whole);
    for (int r = 0; r < n_rows; r++) {
        __m256 xi = _mm256_maskload_ps(x + (uint64_t)r * x_stride + whole, mask);
        for (int o = 0; o < N_TILE_OUT; o++) {
            __m256 wi = _mm256_loadu_ps(w + o * SIMD_CHUNK + whole);
            acc[r * N_TILE_OUT + o] = _mm256_fmadd_ps(xi, wi, acc[r * N_TILE_OUT + o]);
        }
    }
}

/* Where the sums of a block of outputs go between chunks, and at the end. */
struct target {
    float (*sums)[SIMD_OUT][LANES]; /* [rows of the group] */
    float *y;                       /* first row of the group, first output of the block */
    uint64_t y_stride, n_out;
    int32_t accumulate;
    bool first, last;
};

ALWAYS void tile_rows(const struct tile *t, const struct target *to, const float *x,
                      uint64_t x_stride, uint64_t row, uint64_t n, int n_rows) {
    for (uint64_t o = 0; o < to->n_out; o += N_TILE_OUT) {
        __m256 acc[N_TILE_ROWS * N_TILE_OUT];
        for (int i = 0; i < n_rows * N_TILE_OUT; i++) {
            const float *sum =
                to->sums[row + (uint64_t)(i / N_TILE_OUT)][o + (uint64_t)(i % N_TILE_OUT)];
            acc[i] = to->first ? _mm256_setzero_ps() : _mm256_loadu_ps(sum);
        }
        tile_sums(acc, t->w[o], x + row * x_stride, x_stride, n, n_rows);
        for (int r = 0; r < n_rows; r++) {
            uint64_t at = row + (uint64_t)r;
            if (to->last) {
                put(to->y + at * to->y_stride + o, join4(acc + r * N_TILE_OUT), to->n_out - o,
                    to->accumulate);
                continue;
            }
            for (int l = 0; l < N_TILE_OUT; l++) {
                _mm256_storeu_ps(to->sums[at][o + (uint64_t)l], acc[r * N_TILE_OUT + l]);
            }
        }
    }
}

static void many_rows(const struct cpu_product *p, uint64_t out0, uint64_t n_out, uint64_t row0,
                      uint64_t n_rows) {
    struct tile t;
    float sums[SIMD_GROUP][SIMD_OUT][LANES];
    const struct cpu_matrix *m = &p->w;
    struct target to = {.sums = sums,
                        .y = p->y + row0 * p->y_stride + out0,
                        .y_stride = p->y_stride,
                        .n_out = n_out,
                        .accumulate = p->accumulate};
    for (uint64_t col = 0; col < m->cols; col += SIMD_CHUNK) {
        uint64_t n = m->cols - col < SIMD_CHUNK ? m->cols - col : SIMD_CHUNK, r = 0;
        const float *x = p->x + row0 * p->x_stride + col;
        load_tile(&t, m, out0, n_out, col, n);
        to.first = col == 0;
        to.last = col + n == m->cols;
        for (; r + N_TILE_ROWS <= n_rows; r += N_TILE_ROWS) {
            tile_rows(&t, &to, x, p->x_stride, r, n, N_TILE_ROWS);
        }
        for (; r < n_rows; r++) tile_rows(&t, &to, x, p->x_stride, r, n, 1);
    }
}

void simd_block(const struct cpu_product *p, uint64_t out0, uint64_t n_out) {
    const struct cpu_matrix *m = &p->w;
    if (p->n_rows == 1) {
        switch (m->dtype) {
            case EBRO_F32:
                one_row(m, EBRO_F32, out0, n_out, p->x, p->y, p->accumulate);
                return;
            case EBRO_F16:
                one_row(m, EBRO_F16, out0, n_out, p->x, p->y, p->accumulate);
                return;
            case EBRO_BF16:
                one_row(m, EBRO_BF16, out0, n_out, p->x, p->y, p->accumulate);
                return;
            default:
                one_row_codes(m, out0, n_out, p->x, p->y, p->accumulate);
                return;
        }
    }
    for (uint64_t r = 0; r < p->n_rows; r += SIMD_GROUP) {
        many_rows(p, out0, n_out, r, p->n_rows - r < SIMD_GROUP ? p->n_rows - r : SIMD_GROUP);
    }
}

/* ---- transposed ------------------------------------------------------------------------- */

/* n_rows rows and n_vec vectors of outputs, sums in registers over all inputs. */
ALWAYS void transposed_rows(const struct cpu_product *p, uint64_t row, uint64_t out, int32_t dtype,
                            int n_rows, int n_vec) {
    __m256 acc[LANES * 2];
    const struct cpu_matrix *m = &p->w;
    uint64_t size = dtype == EBRO_F32 ? 4 : 2;
    const float *x = p->x + row * p->x_stride;
    for (int i = 0; i < n_rows * n_vec; i++) acc[i] = _mm256_setzero_ps();
    for (uint64_t in = 0; in < m->rows; in++) {
        const uint8_t *w = m->data + (in * m->stride + out) * size;
        for (int v = 0; v < n_vec; v++) {
            __m256 wi = wide8(w, (uint64_t)v * LANES, dtype);
            for (int r = 0; r < n_rows; r++) {
                __m256 xi = _mm256_broadcast_ss(x + (uint64_t)r * p->x_stride + in);
                acc[r * n_vec + v] = _mm256_fmadd_ps(xi, wi, acc[r * n_vec + v]);
            }
        }
    }
    for (int r = 0; r < n_rows; r++) {
        float *y = p->y + (row + (uint64_t)r) * p->y_stride + out;
        for (int v = 0; v < n_vec; v++, y += LANES) {
            __m256 s = acc[r * n_vec + v];
            _mm256_storeu_ps(y, p->accumulate ? _mm256_add_ps(_mm256_loadu_ps(y), s) : s);
        }
    }
}

/* One row and fewer than eight outputs. */
ALWAYS void transposed_part(const struct cpu_product *p, uint64_t row, uint64_t out, uint64_t n,
                            int32_t dtype) {
    const struct cpu_matrix *m = &p->w;
    uint64_t size = dtype == EBRO_F32 ? 4 : 2;
    __m256 acc = _mm256_setzero_ps();
    float sums[LANES], *y = p->y + row * p->y_stride + out;
    for (uint64_t in = 0; in < m->rows; in++) {
        __m256 w = wide_part(m->data + (in * m->stride + out) * size, 0, n, dtype);
        acc = _mm256_fmadd_ps(_mm256_broadcast_ss(p->x + row * p->x_stride + in), w, acc);
    }
    _mm256_storeu_ps(sums, acc);
    for (uint64_t i = 0; i < n; i++) y[i] = p->accumulate ? y[i] + sums[i] : sums[i];
}

ALWAYS void transposed(const struct cpu_product *p, uint64_t out0, uint64_t n_out, int32_t dtype) {
    uint64_t r = 0;
    for (; r + N_T_ROWS <= p->n_rows; r += N_T_ROWS) {
        uint64_t o = 0;
        for (; o + 16 <= n_out; o += 16) transposed_rows(p, r, out0 + o, dtype, N_T_ROWS, 2);
        for (; o + 8 <= n_out; o += 8) transposed_rows(p, r, out0 + o, dtype, N_T_ROWS, 1);
        for (uint64_t i = 0; o < n_out && i < N_T_ROWS; i++) {
            transposed_part(p, r + i, out0 + o, n_out - o, dtype);
        }
    }
    for (; r < p->n_rows; r++) {
        uint64_t o = 0;
        for (; o + 64 <= n_out; o += 64) transposed_rows(p, r, out0 + o, dtype, 1, 8);
        for (; o + 8 <= n_out; o += 8) transposed_rows(p, r, out0 + o, dtype, 1, 1);
        if (o < n_out) transposed_part(p, r, out0 + o, n_out - o, dtype);
    }
}

void simd_transposed(const struct cpu_product *p, uint64_t out0, uint64_t n_out) {
    if (p->w.dtype == EBRO_F32) {
        transposed(p, out0, n_out, EBRO_F32);
    } else if (p->w.dtype == EBRO_F16) {
        transposed(p, out0, n_out, EBRO_F16);
    } else {
        transposed(p, out0, n_out, EBRO_BF16);
    }
}

#endif
