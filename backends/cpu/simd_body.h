/* simd_body.h: the product kernels of the rungs that have vectors, written once. A file simd_*.c
 * gives the vector type and the operations below under these names, then includes this:
 *
 *   vector, LANES                 floats of one register
 *   zero, load, load_part, store, add, mul_add, spread
 *   wide, wide_part               LANES weights of a dtype, or the first n, as floats
 *   wide_codes                    the 32 codes of one MXFP4 group as GROUP_VECTORS vectors
 *   join4                         the sums of the lanes of four vectors
 *   N_TILE_ROWS, N_T_ROWS         rows whose sums fit the registers: 4 outputs; 2 vectors
 *
 * An output is one vector of partial sums over the inputs (input i in lane i % LANES), joined at
 * the end; transposed, one sum over the inputs. Either way its order does not depend on the number
 * of rows. Every product is fused with its sum.
 *
 * One row: weights are widened as they come. More rows: a tile of weights is widened once and
 * N_TILE_ROWS rows at a time pass over it. */
enum { N_TILE_OUT = 4, N_HALF_ROWS = N_TILE_ROWS / 2, GROUP_VECTORS = EBRO_MX_GROUP / LANES };

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
 * processor's own prefetcher to notice, so their lines are asked for N_AHEAD bytes early, one after
 * the other as they lie in memory: asked for row by row, lines of rows of 512 or 1024 bytes come at
 * half the speed. Long rows are left to the processor. */
enum { N_LINE = 64, N_SHORT_ROW = 1024, N_AHEAD = 2048 };

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
    vector acc[N_TILE_OUT];
    const uint8_t *w[N_TILE_OUT];
    uint64_t n = m->cols, size = dtype == EBRO_F32 ? 4 : 2, line = N_LINE / size, i = 0;
    uint64_t row_bytes = m->stride * size;
    bool is_short = row_bytes <= N_SHORT_ROW;
    for (uint64_t o = 0; o < N_TILE_OUT; o++) {
        acc[o] = zero();
        w[o] = m->data + row_of(out0, n_out, o) * row_bytes;
    }
    for (; i + line <= n; i += line) {
        for (uint64_t o = 0; is_short && o < N_TILE_OUT; o++) {
            prefetch(w[0], N_TILE_OUT * i * size + o * N_LINE + N_AHEAD);
        }
        for (uint64_t k = i; k < i + line; k += LANES) {
            vector xi = load(x + k);
            for (int o = 0; o < N_TILE_OUT; o++) {
                acc[o] = mul_add(xi, wide(w[o], k, dtype), acc[o]);
            }
        }
    }
    for (; i + LANES <= n; i += LANES) {
        vector xi = load(x + i);
        for (int o = 0; o < N_TILE_OUT; o++) {
            acc[o] = mul_add(xi, wide(w[o], i, dtype), acc[o]);
        }
    }
    if (i < n) {
        vector xi = load_part(x + i, n - i);
        for (int o = 0; o < N_TILE_OUT; o++) {
            acc[o] = mul_add(xi, wide_part(w[o], i, n - i, dtype), acc[o]);
        }
    }
    put(y + out0, join4(acc), n_out, accumulate);
}

static void one_row_codes(const struct cpu_matrix *m, uint64_t out0, uint64_t n_out, const float *x,
                          float *y, int32_t accumulate) {
    for (uint64_t o = 0; o < n_out; o += N_TILE_OUT) {
        uint64_t n = n_out - o < N_TILE_OUT ? n_out - o : N_TILE_OUT;
        vector acc[N_TILE_OUT];
        const uint8_t *w[N_TILE_OUT], *scale[N_TILE_OUT];
        for (uint64_t l = 0; l < N_TILE_OUT; l++) {
            uint64_t row = row_of(out0 + o, n, l);
            acc[l] = zero();
            w[l] = m->data + row * (m->cols / 2);
            scale[l] = m->scale + row * (m->cols / EBRO_MX_GROUP);
        }
        for (uint64_t i = 0; i < N_TILE_OUT * (m->cols / 2); i += N_LINE) {
            prefetch(w[0], i + N_AHEAD);
        }
        prefetch(scale[0], N_LINE * 2);
        for (uint64_t g = 0; g < m->cols / EBRO_MX_GROUP; g++) {
            const float *xg = x + g * EBRO_MX_GROUP;
            for (int l = 0; l < N_TILE_OUT; l++) {
                vector v[GROUP_VECTORS];
                wide_codes(v, w[l] + g * (EBRO_MX_GROUP / 2), scale[l][g]);
                for (int i = 0; i < GROUP_VECTORS; i++) {
                    acc[l] = mul_add(load(xg + LANES * i), v[i], acc[l]);
                }
            }
        }
        put(y + out0 + o, join4(acc), n, accumulate);
    }
}

/* ---- many rows -------------------------------------------------------------------------- */

/* Rows lie a little more than 2 KB apart, so that they do not meet in the same cache sets. */
enum { TILE_STRIDE = SIMD_CHUNK + 16 };

struct tile {
    float w[SIMD_OUT][TILE_STRIDE]; /* zeros up to a multiple of LANES columns */
};

ALWAYS void widen(float *dst, const uint8_t *src, uint64_t col, uint64_t n, int32_t dtype) {
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES) store(dst + i, wide(src, col + i, dtype));
    if (i < n) store(dst + i, wide_part(src, col + i, n - i, dtype));
}

static void load_tile(struct tile *t, const struct cpu_matrix *m, uint64_t out0, uint64_t n_out,
                      uint64_t col, uint64_t n) {
    for (uint64_t o = 0; o < SIMD_OUT; o++) {
        uint64_t row = row_of(out0, n_out, o);
        if (m->dtype == EBRO_MXFP4) {
            const uint8_t *codes = m->data + row * (m->cols / 2) + col / 2;
            const uint8_t *scale = m->scale + (row * m->cols + col) / EBRO_MX_GROUP;
            for (uint64_t g = 0; g < n / EBRO_MX_GROUP; g++) {
                vector v[GROUP_VECTORS];
                wide_codes(v, codes + g * (EBRO_MX_GROUP / 2), scale[g]);
                float *dst = t->w[o] + g * EBRO_MX_GROUP;
                for (int i = 0; i < GROUP_VECTORS; i++) store(dst + LANES * i, v[i]);
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
ALWAYS void tile_sums(vector *acc, const float *w, const float *x, uint64_t x_stride, uint64_t n,
                      int n_rows) {
    uint64_t whole = n - n % LANES;
    for (uint64_t i = 0; i < whole; i += LANES) {
        vector xi[N_TILE_ROWS];
        for (int r = 0; r < n_rows; r++) xi[r] = load(x + (uint64_t)r * x_stride + i);
        for (int o = 0; o < N_TILE_OUT; o++) {
            vector wi = load(w + o * TILE_STRIDE + i);
            for (int r = 0; r < n_rows; r++) {
                acc[r * N_TILE_OUT + o] = mul_add(xi[r], wi, acc[r * N_TILE_OUT + o]);
            }
        }
    }
    if (whole == n) return;
    for (int r = 0; r < n_rows; r++) {
        vector xi = load_part(x + (uint64_t)r * x_stride + whole, n - whole);
        for (int o = 0; o < N_TILE_OUT; o++) {
            vector wi = load(w + o * TILE_STRIDE + whole);
            acc[r * N_TILE_OUT + o] = mul_add(xi, wi, acc[r * N_TILE_OUT + o]);
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
        vector acc[N_TILE_ROWS * N_TILE_OUT];
        for (int i = 0; i < n_rows * N_TILE_OUT; i++) {
            const float *sum =
                to->sums[row + (uint64_t)(i / N_TILE_OUT)][o + (uint64_t)(i % N_TILE_OUT)];
            acc[i] = to->first ? zero() : load(sum);
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
                store(to->sums[at][o + (uint64_t)l], acc[r * N_TILE_OUT + l]);
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
        for (; r + N_HALF_ROWS <= n_rows; r += N_HALF_ROWS) {
            tile_rows(&t, &to, x, p->x_stride, r, n, N_HALF_ROWS);
        }
        for (; r < n_rows; r++) tile_rows(&t, &to, x, p->x_stride, r, n, 1);
    }
}

ALWAYS void one_row(const struct cpu_product *p, uint64_t out0, uint64_t n_out, int32_t dtype) {
    for (uint64_t o = 0; o < n_out; o += N_TILE_OUT) {
        one_row4(&p->w, dtype, out0 + o, n_out - o, p->x, p->y, p->accumulate);
    }
}

void simd_part(const struct cpu_product *p, uint64_t out0, uint64_t n_out) {
    for (uint64_t o = 0; p->n_rows > 1 && o < n_out; o += SIMD_OUT) {
        uint64_t n = n_out - o < SIMD_OUT ? n_out - o : SIMD_OUT;
        for (uint64_t r = 0; r < p->n_rows; r += SIMD_GROUP) {
            uint64_t rows = p->n_rows - r < SIMD_GROUP ? p->n_rows - r : SIMD_GROUP;
            many_rows(p, out0 + o, n, r, rows);
        }
    }
    if (p->n_rows != 1) return;
    switch (p->w.dtype) {
        case EBRO_F32:
            one_row(p, out0, n_out, EBRO_F32);
            return;
        case EBRO_F16:
            one_row(p, out0, n_out, EBRO_F16);
            return;
        case EBRO_BF16:
            one_row(p, out0, n_out, EBRO_BF16);
            return;
        default:
            one_row_codes(&p->w, out0, n_out, p->x, p->y, p->accumulate);
            return;
    }
}

/* ---- transposed ------------------------------------------------------------------------- */

enum { N_T_AHEAD = 12 }; /* inputs by which one row asks for its weights early */

/* n_rows rows and n_vec vectors of outputs, sums in registers over all inputs. */
ALWAYS void transposed_rows(const struct cpu_product *p, uint64_t row, uint64_t out, int32_t dtype,
                            int n_rows, int n_vec) {
    vector acc[2 * N_T_ROWS];
    const struct cpu_matrix *m = &p->w;
    uint64_t size = dtype == EBRO_F32 ? 4 : 2;
    const float *x = p->x + row * p->x_stride;
    for (int i = 0; i < n_rows * n_vec; i++) acc[i] = zero();
    for (uint64_t in = 0; in < m->rows; in++) {
        const uint8_t *w = m->data + (in * m->stride + out) * size;
        for (uint64_t i = 0; n_rows == 1 && i < (uint64_t)n_vec * LANES * size; i += N_LINE) {
            prefetch(w + i, N_T_AHEAD * m->stride * size);
        }
        for (int v = 0; v < n_vec; v++) {
            vector wi = wide(w, (uint64_t)v * LANES, dtype);
            for (int r = 0; r < n_rows; r++) {
                vector xi = spread(x + (uint64_t)r * p->x_stride + in);
                acc[r * n_vec + v] = mul_add(xi, wi, acc[r * n_vec + v]);
            }
        }
    }
    for (int r = 0; r < n_rows; r++) {
        float *y = p->y + (row + (uint64_t)r) * p->y_stride + out;
        for (int v = 0; v < n_vec; v++, y += LANES) {
            vector s = acc[r * n_vec + v];
            store(y, p->accumulate ? add(load(y), s) : s);
        }
    }
}

/* One row and fewer than LANES outputs. */
ALWAYS void transposed_part(const struct cpu_product *p, uint64_t row, uint64_t out, uint64_t n,
                            int32_t dtype) {
    const struct cpu_matrix *m = &p->w;
    uint64_t size = dtype == EBRO_F32 ? 4 : 2;
    vector acc = zero();
    float sums[LANES], *y = p->y + row * p->y_stride + out;
    for (uint64_t in = 0; in < m->rows; in++) {
        vector w = wide_part(m->data + (in * m->stride + out) * size, 0, n, dtype);
        acc = mul_add(spread(p->x + row * p->x_stride + in), w, acc);
    }
    store(sums, acc);
    for (uint64_t i = 0; i < n; i++) y[i] = p->accumulate ? y[i] + sums[i] : sums[i];
}

ALWAYS void transposed(const struct cpu_product *p, uint64_t out0, uint64_t n_out, int32_t dtype) {
    uint64_t r = 0;
    for (; r + N_T_ROWS <= p->n_rows; r += N_T_ROWS) {
        uint64_t o = 0;
        for (; o + 2 * LANES <= n_out; o += 2 * LANES) {
            transposed_rows(p, r, out0 + o, dtype, N_T_ROWS, 2);
        };
        for (; o + LANES <= n_out; o += LANES) {
            transposed_rows(p, r, out0 + o, dtype, N_T_ROWS, 1);
        };
        for (uint64_t i = 0; o < n_out && i < N_T_ROWS; i++) {
            transposed_part(p, r + i, out0 + o, n_out - o, dtype);
        }
    }
    for (; r < p->n_rows; r++) {
        uint64_t o = 0;
        for (; o + SIMD_T_OUT <= n_out; o += SIMD_T_OUT) {
            transposed_rows(p, r, out0 + o, dtype, 1, SIMD_T_OUT / LANES);
        };
        for (; o + LANES <= n_out; o += LANES) {
            transposed_rows(p, r, out0 + o, dtype, 1, 1);
        };
        if (o < n_out) transposed_part(p, r, out0 + o, n_out - o, dtype);
    }
}

void simd_transposed(const struct cpu_product *p, uint64_t out0, uint64_t n_out) {
    for (uint64_t o = 0; o < n_out; o += SIMD_T_OUT) {
        uint64_t n = n_out - o < SIMD_T_OUT ? n_out - o : SIMD_T_OUT;
        if (p->w.dtype == EBRO_F32) {
            transposed(p, out0 + o, n, EBRO_F32);
        } else if (p->w.dtype == EBRO_F16) {
            transposed(p, out0 + o, n, EBRO_F16);
        } else {
            transposed(p, out0 + o, n, EBRO_BF16);
        }
    }
}
