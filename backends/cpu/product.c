/* product.c: products of f32 rows with weights of any dtype: the arithmetic under linear and the
 * MoE ops. Knows nothing of op arguments.
 *
 * Weights are widened to f32 a tile at a time and used for up to N_GROUP rows of x, which stay in
 * the second-level cache meanwhile. */
#include <stdbool.h>

#include "cpu.h"
#include "plant.h"
#include "simd.h"

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

/* The fault f16_accumulation. */
static void round_to_half(lanes acc) {
    for (uint64_t o = 0; o < N_OUT; o++) {
        uint16_t half[CPU_LANES];
        cpu_store(half, EBRO_F16, acc[o], CPU_LANES);
        cpu_load(acc[o], EBRO_F16, (const uint8_t *)half, CPU_LANES);
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
            if (PLANTED(f16_accumulation)) round_to_half(acc[r]);
        }
    }
    for (uint64_t r = 0; r < n_rows; r++) {
        for (uint64_t o = 0; o < n_out; o++) {
            for (uint64_t l = CPU_LANES / 2; PLANTED(wrong_wave_width) && l < CPU_LANES; l++)
                acc[r][o][l] = 0.0f;
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

/* ---- blocks ----------------------------------------------------------------------------- */

static void block(const struct cpu_product *p, uint64_t out0, uint64_t n_out) {
    for (uint64_t r = 0; r < p->n_rows; r += N_GROUP) {
        uint64_t n = p->n_rows - r < N_GROUP ? p->n_rows - r : N_GROUP;
        uint64_t step = p->w.transposed ? N_T_OUT : N_OUT;
        for (uint64_t o = 0; o < n_out; o += step) {
            (p->w.transposed ? transposed_block : product_block)(
                &p->w, out0 + o, n_out - o < step ? n_out - o : step, p->x + r * p->x_stride,
                p->x_stride, n, p->y + r * p->y_stride, p->y_stride, p->accumulate);
        }
    }
}

#if CPU_SIMD
/* Codes times these scales are exact in f32, and so is half a scale. Branch-free, so that it
 * vectorises. */
static bool plain_scales(const struct cpu_matrix *m, uint64_t out0, uint64_t n_out) {
    uint64_t n = m->cols / EBRO_MX_GROUP;
    const uint8_t *scale = m->scale + out0 * n;
    uint8_t odd = 0;
    for (uint64_t i = 0; i < n_out * n; i++) odd |= (uint8_t)((uint8_t)(scale[i] - 40) > 170);
    return odd == 0;
}

/* Whether a block of outputs has plain scales decides its order of sums, so blocks are looked at
 * one by one, however the outputs were split. */
static void codes_part(const struct cpu_product *p, uint64_t out0, uint64_t n_out) {
    for (uint64_t o = 0; o < n_out; o += SIMD_OUT) {
        uint64_t n = n_out - o < SIMD_OUT ? n_out - o : SIMD_OUT;
        if (plain_scales(&p->w, out0 + o, n)) {
            simd_part(p, out0 + o, n);
        } else {
            block(p, out0 + o, n);
        }
    }
}
#endif

void cpu_product_part(const struct cpu_product *p, uint64_t out0, uint64_t n_out) {
#if CPU_SIMD
    if (p->w.transposed) {
        simd_transposed(p, out0, n_out);
    } else if (p->w.dtype == EBRO_MXFP4) {
        codes_part(p, out0, n_out);
    } else {
        simd_part(p, out0, n_out);
    }
#else
    block(p, out0, n_out);
#endif
}

void cpu_product(const struct cpu_matrix *w, const float *x, uint64_t x_stride, uint64_t n_rows,
                 float *y, uint64_t y_stride, int32_t accumulate) {
    struct cpu_product p = {*w, x, x_stride, n_rows, y, y_stride, accumulate};
    cpu_product_part(&p, 0, cpu_outputs(w));
}

/* ---- on all threads --------------------------------------------------------------------- */

enum {
    N_ROW_GROUP = 96,      /* rows of one item */
    MIN_PARALLEL = 1 << 15 /* multiplications below which waking a thread takes longer */
};

struct split {
    const struct cpu_product *products;
    const struct cpu_batch *steps;
    uint32_t n_products;
    uint64_t n_batch, n_groups;
    uint64_t first[EBRO_MAX_LINEAR + 1]; /* items of product i: [first[i], first[i + 1]) */
};

static uint64_t n_parts(const struct cpu_matrix *w) {
    return (cpu_outputs(w) + CPU_PART_OUT - 1) / CPU_PART_OUT;
}

/* Items of a product: batch-major, then parts of the outputs, then groups of rows. */
static void split_item(void *user, uint64_t item, uint32_t thread) {
    const struct split *s = user;
    uint32_t i = 0;
    (void)thread;
    while (item >= s->first[i + 1]) i++;
    item -= s->first[i];
    struct cpu_product p = s->products[i];
    uint64_t row = item % s->n_groups * N_ROW_GROUP, parts = n_parts(&p.w);
    uint64_t part = item / s->n_groups % parts, batch = item / s->n_groups / parts;
    uint64_t out0 = part * CPU_PART_OUT, n_out = cpu_outputs(&p.w) - out0;
    p.w.data += batch * s->steps[i].w_bytes;
    p.x += batch * s->steps[i].x_elements + row * p.x_stride;
    p.y += batch * s->steps[i].y_elements + row * p.y_stride;
    p.n_rows = p.n_rows - row < N_ROW_GROUP ? p.n_rows - row : N_ROW_GROUP;
    cpu_product_part(&p, out0, n_out < CPU_PART_OUT ? n_out : CPU_PART_OUT);
}

void cpu_products(ebro_dev *dev, const struct cpu_product *products, const struct cpu_batch *steps,
                  uint32_t n_products, uint64_t n_batch) {
    struct split s = {.products = products,
                      .steps = steps,
                      .n_products = n_products,
                      .n_batch = n_batch,
                      .n_groups = (products[0].n_rows + N_ROW_GROUP - 1) / N_ROW_GROUP};
    uint64_t work = 0;
    for (uint32_t i = 0; i < n_products; i++) {
        const struct cpu_matrix *w = &products[i].w;
        s.first[i + 1] = s.first[i] + n_parts(w) * n_batch * s.n_groups;
        work += (uint64_t)w->rows * w->cols * n_batch * products[i].n_rows;
    }
    uint64_t n_items = s.first[n_products];
    if (work < MIN_PARALLEL) {
        for (uint64_t i = 0; i < n_items; i++) split_item(&s, i, 0);
    } else {
        cpu_parallel(dev->pool, n_items, split_item, &s);
    }
}
