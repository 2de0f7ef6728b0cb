/* product.c: products of f32 rows with weights of any dtype: the arithmetic under linear and the
 * MoE ops. Knows nothing of op arguments.
 *
 * Weights are widened to f32 a tile at a time and used for up to N_GROUP rows of x, which stay in
 * the second-level cache meanwhile. */
#include <stdbool.h>

#include "cpu.h"

enum {
    N_OUT = 4,      /* outputs computed together */
    N_CHUNK = 512,  /* inputs per tile; a multiple of EBRO_MX_GROUP and of CPU_LANES */
    N_GROUP = 32,   /* rows of x that share a widened tile */
    N_T_OUT = 64,   /* transposed: outputs and inputs of a tile */
    N_T_IN = 32,    /* transposed: inputs that are summed before they join the total */
    N_T_STRIP = 16, /* transposed: outputs whose sums stay in registers */
    MX_CHUNK = N_CHUNK / EBRO_MX_GROUP
};

/* clang-format off */
/* Both values of a byte of codes, [byte][low nibble, high nibble]. */
#define HIGH(h)                                         \
    {0.0f, h}, {0.5f, h}, {1.0f, h}, {1.5f, h},         \
    {2.0f, h}, {3.0f, h}, {4.0f, h}, {6.0f, h},         \
    {-0.0f, h}, {-0.5f, h}, {-1.0f, h}, {-1.5f, h},     \
    {-2.0f, h}, {-3.0f, h}, {-4.0f, h}, {-6.0f, h}
static const float e2m1[256][2] = {
    HIGH(0.0f), HIGH(0.5f), HIGH(1.0f), HIGH(1.5f),
    HIGH(2.0f), HIGH(3.0f), HIGH(4.0f), HIGH(6.0f),
    HIGH(-0.0f), HIGH(-0.5f), HIGH(-1.0f), HIGH(-1.5f),
    HIGH(-2.0f), HIGH(-3.0f), HIGH(-4.0f), HIGH(-6.0f)};
#undef HIGH
/* clang-format on */

void cpu_load_e2m1(float *restrict dst, const uint8_t *restrict codes, uint64_t col0, uint64_t n) {
    const uint8_t *c = codes + col0 / 2;
    for (uint64_t i = 0; i < n / 2; i++) memcpy(dst + 2 * i, e2m1[c[i]], sizeof e2m1[0]);
    if (n % 2) dst[n - 1] = e2m1[c[n / 2]][0];
}

void cpu_load_row(float *restrict dst, const ebro_weight *w, uint64_t row, uint64_t col0,
                  uint64_t n) {
    const uint8_t *data = (const uint8_t *)w->mem->host + w->offset;
    if (w->dtype != EBRO_MXFP4) {
        cpu_load(dst, w->dtype, data + (row * w->stride + col0) * cpu_dtype_size(w->dtype), n);
        return;
    }
    const uint8_t *scale = (const uint8_t *)w->scale_mem->host + w->scale_offset +
                           row * (w->cols / EBRO_MX_GROUP) + col0 / EBRO_MX_GROUP;
    cpu_load_e2m1(dst, data + row * (w->cols / 2), col0, n);
    for (uint64_t i = 0; i < n; i++) dst[i] *= cpu_e8m0(scale[i / EBRO_MX_GROUP]);
}

struct cpu_matrix cpu_matrix_of(const ebro_weight *w, uint64_t batch, uint64_t w_batch_bytes) {
    struct cpu_matrix m = {
        .data = (const uint8_t *)w->mem->host + w->offset + batch * w_batch_bytes,
        .stride = w->stride,
        .rows = w->rows,
        .cols = w->cols,
        .dtype = w->dtype,
        .transposed = w->transposed,
    };
    if (w->dtype == EBRO_MXFP4) m.scale = (const uint8_t *)w->scale_mem->host + w->scale_offset;
    return m;
}

/* Widened columns of N_OUT weight rows. MXFP4: codes, with one scale per 32 columns. */
struct tile {
    float w[N_OUT][N_CHUNK];
    float scale[N_OUT][MX_CHUNK];
};

typedef float lanes[N_OUT][CPU_LANES];

static void load_tile(struct tile *t, const struct cpu_matrix *m, uint64_t out0, uint64_t n_out,
                      uint64_t col0, uint64_t n) {
    for (uint64_t o = 0; o < N_OUT; o++) {
        /* Past the last output the last row stands in; its sums are not stored. */
        uint64_t row = out0 + (o < n_out ? o : n_out - 1);
        if (m->dtype != EBRO_MXFP4) {
            uint64_t at = (row * m->stride + col0) * cpu_dtype_size(m->dtype);
            cpu_load(t->w[o], m->dtype, m->data + at, n);
            continue;
        }
        const uint8_t *scale = m->scale + row * (m->cols / EBRO_MX_GROUP) + col0 / EBRO_MX_GROUP;
        cpu_load_e2m1(t->w[o], m->data + row * (m->cols / 2), col0, n);
        for (uint64_t g = 0; g * EBRO_MX_GROUP < n; g++) t->scale[o][g] = cpu_e8m0(scale[g]);
    }
}

/* acc[o] += x * w[o], lane by lane, in groups of 32 columns: a short sum of constant length stays
 * in registers. MXFP4: the scale multiplies the sum of its group, so that 2^127 meets x before it
 * meets f32's end, and 2^-127 is not lost before it meets x. */
static void dot_tile(const struct tile *t, bool scaled, const float *restrict x, uint64_t n,
                     lanes acc) {
    uint64_t at = 0;
    for (; at + EBRO_MX_GROUP <= n; at += EBRO_MX_GROUP) {
        for (uint64_t o = 0; o < N_OUT; o++) {
            const float *restrict w = t->w[o] + at;
            float scale = scaled ? t->scale[o][at / EBRO_MX_GROUP] : 1.0f;
            float sum[CPU_LANES] = {0};
            for (uint64_t i = 0; i < EBRO_MX_GROUP; i += CPU_LANES) {
                for (uint64_t l = 0; l < CPU_LANES; l++) sum[l] += x[at + i + l] * w[i + l];
            }
            for (uint64_t l = 0; l < CPU_LANES; l++) acc[o][l] += scale * sum[l];
        }
    }
    for (uint64_t i = at; i < n; i++) {
        for (uint64_t o = 0; o < N_OUT; o++) acc[o][i % CPU_LANES] += x[i] * t->w[o][i];
    }
}

/* Up to N_GROUP rows times up to N_OUT outputs. */
static void product_block(const struct cpu_matrix *m, uint64_t out0, uint64_t n_out, const float *x,
                          uint64_t x_stride, uint64_t n_rows, float *y, uint64_t y_stride,
                          int32_t accumulate) {
    struct tile t;
    lanes acc[N_GROUP];
    memset(acc, 0, n_rows * sizeof acc[0]);
    for (uint64_t col = 0; col < m->cols; col += N_CHUNK) {
        uint64_t n = m->cols - col < N_CHUNK ? m->cols - col : N_CHUNK;
        load_tile(&t, m, out0, n_out, col, n);
        for (uint64_t r = 0; r < n_rows; r++) {
            dot_tile(&t, m->dtype == EBRO_MXFP4, x + r * x_stride + col, n, acc[r]);
        }
    }
    for (uint64_t r = 0; r < n_rows; r++) {
        for (uint64_t o = 0; o < n_out; o++) {
            float *dst = y + r * y_stride + out0 + o, v = cpu_join(acc[r][o]);
            *dst = accumulate ? *dst + v : v;
        }
    }
}

/* sum[strip] = x[n] times a tile [n][N_T_OUT], one strip of outputs. */
static void strip(const float (*restrict w)[N_T_OUT], uint64_t out, const float *restrict x,
                  uint64_t n, float *restrict total) {
    float sum[N_T_STRIP] = {0};
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t l = 0; l < N_T_STRIP; l++) sum[l] += x[i] * w[i][out + l];
    }
    for (uint64_t l = 0; l < N_T_STRIP; l++) total[out + l] += sum[l];
}

/* Up to N_GROUP rows times up to N_T_OUT outputs of a transposed matrix. */
static void transposed_block(const struct cpu_matrix *m, uint64_t out0, uint64_t n_out,
                             const float *x, uint64_t x_stride, uint64_t n_rows, float *y,
                             uint64_t y_stride, int32_t accumulate) {
    float w[N_T_IN][N_T_OUT], total[N_GROUP][N_T_OUT];
    uint64_t element = cpu_dtype_size(m->dtype);
    memset(w, 0, sizeof w);
    memset(total, 0, n_rows * sizeof total[0]);
    for (uint64_t in = 0; in < m->rows; in += N_T_IN) {
        uint64_t n = m->rows - in < N_T_IN ? m->rows - in : N_T_IN;
        for (uint64_t i = 0; i < n; i++) {
            cpu_load(w[i], m->dtype, m->data + ((in + i) * m->stride + out0) * element, n_out);
        }
        for (uint64_t r = 0; r < n_rows; r++) {
            for (uint64_t o = 0; o < n_out; o += N_T_STRIP) {
                strip((const float(*)[N_T_OUT])w, o, x + r * x_stride + in, n, total[r]);
            }
        }
    }
    for (uint64_t r = 0; r < n_rows; r++) {
        float *dst = y + r * y_stride + out0;
        for (uint64_t o = 0; o < n_out; o++) {
            dst[o] = accumulate ? dst[o] + total[r][o] : total[r][o];
        }
    }
}

void cpu_product(const struct cpu_matrix *w, const float *x, uint64_t x_stride, uint64_t n_rows,
                 float *y, uint64_t y_stride, int32_t accumulate) {
    uint64_t outputs = w->transposed ? w->cols : w->rows;
    uint64_t step = w->transposed ? N_T_OUT : N_OUT;
    for (uint64_t r = 0; r < n_rows; r += N_GROUP) {
        uint64_t n = n_rows - r < N_GROUP ? n_rows - r : N_GROUP;
        for (uint64_t o = 0; o < outputs; o += step) {
            uint64_t n_out = outputs - o < step ? outputs - o : step;
            (w->transposed ? transposed_block : product_block)(
                w, o, n_out, x + r * x_stride, x_stride, n, y + r * y_stride, y_stride, accumulate);
        }
    }
}
