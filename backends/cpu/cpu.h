/* cpu.h: what the files of the CPU backend share: device and stream, memory access, row loads,
 * the fixed-order dot product and the ops' prototypes. Private to backends/cpu.
 *
 * Device memory is host memory, so an address is a pointer. An op runs to its end before it
 * returns. Arguments were checked by runtime/ops; here they are only asserted. Every reduction has
 * one order that depends on its length alone, never on the number of rows. */
#ifndef EB_CPU_H
#define EB_CPU_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ebro/backend.h"
#include "rung.h"
#include "threads.h"

enum {
    CPU_LANES = 8,    /* partial sums of a reduction; index i goes to lane i % 8 */
    CPU_ALIGN = 64,   /* of mem_alloc */
    CPU_MIN_ALIGN = 8 /* of mem_import: the widest element that ops read */
};

struct ebro_dev {
    const ebro_host *host;
    ebro_caps caps;
    const struct cpu_rung *rung;
    struct cpu_pool *pool;
    uint32_t n_threads; /* as the pool's */
};

struct ebro_stream {
    ebro_dev *dev;
    uint64_t ticket; /* of the last submit; all work before it is done */
};

/* ---- memory ----------------------------------------------------------------------------- */

static inline void *eb_at(ebro_span s) {
    return (uint8_t *)s.mem->host + s.offset;
}

/* For the u64 addresses that tables hold. */
static inline void *eb_address(uint64_t address) {
    return (void *)(uintptr_t)address;
}

/* Row of an f32 matrix. */
static inline float *eb_mat_row(const ebro_mat *m, uint64_t row) {
    return (float *)((uint8_t *)m->mem->host + m->offset) + row * m->stride;
}

/* Row of an i32 matrix. */
static inline int32_t *eb_mat_row_i32(const ebro_mat *m, uint64_t row) {
    return (int32_t *)((uint8_t *)m->mem->host + m->offset) + row * m->stride;
}

/* ---- numbers ---------------------------------------------------------------------------- */

static inline float cpu_from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t cpu_to_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float cpu_bf16_to_f32(uint16_t h) {
    return cpu_from_bits((uint32_t)h << 16);
}

/* Exact for every half, subnormals included; NaN stays NaN. */
static inline float cpu_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t special = (h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
    float f = cpu_from_bits((uint32_t)(h & 0x7fffu) << 13) * 0x1p112f;
    return cpu_from_bits(cpu_to_bits(f) | special | sign);
}

/* Round to nearest, ties to even. */
static inline uint16_t cpu_f32_to_bf16(float f) {
    uint32_t u = cpu_to_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* Round to nearest, ties to even; beyond 65504 gives infinity. */
static inline uint16_t cpu_f32_to_f16(float f) {
    uint32_t u = cpu_to_bits(f);
    uint32_t sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) { /* below 2^-14: adding 0.5 rounds to a multiple of 2^-24 */
        return (uint16_t)(sign | (cpu_to_bits(cpu_from_bits(a) + 0.5f) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13));
}

/* 2^(e - 127), exact for 0 too; 255 is NaN. */
static inline float cpu_e8m0(uint8_t e) {
    if (e == 0) return 0x1p-127f;
    if (e == 255) return NAN;
    return cpu_from_bits((uint32_t)e << 23);
}

static inline float cpu_sigmoid(float x) {
    float e = expf(-fabsf(x));
    return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

static inline float cpu_silu(float x) {
    return x * cpu_sigmoid(x);
}

/* ---- loads and stores ------------------------------------------------------------------- */

/* n elements of F32, F16 or BF16 widened to dst. */
static inline void cpu_load(float *restrict dst, int32_t dtype, const void *restrict src,
                            uint64_t n) {
    const uint16_t *h = src;
    if (dtype == EBRO_F32) {
        memcpy(dst, src, n * sizeof *dst);
    } else if (dtype == EBRO_BF16) {
        for (uint64_t i = 0; i < n; i++) dst[i] = cpu_bf16_to_f32(h[i]);
    } else {
        for (uint64_t i = 0; i < n; i++) dst[i] = cpu_f16_to_f32(h[i]);
    }
}

/* The other way: n floats narrowed to F32, F16 or BF16. */
static inline void cpu_store(void *restrict dst, int32_t dtype, const float *restrict src,
                             uint64_t n) {
    uint16_t *h = dst;
    if (dtype == EBRO_F32) {
        memcpy(dst, src, n * sizeof *src);
    } else if (dtype == EBRO_BF16) {
        for (uint64_t i = 0; i < n; i++) h[i] = cpu_f32_to_bf16(src[i]);
    } else {
        for (uint64_t i = 0; i < n; i++) h[i] = cpu_f32_to_f16(src[i]);
    }
}

static inline uint64_t cpu_dtype_size(int32_t dtype) {
    return dtype == EBRO_F32 || dtype == EBRO_I32 ? 4 : dtype == EBRO_U8 ? 1 : 2;
}

/* e2m1 codes of columns [col0, col0 + n) of one MXFP4 row, without their scales. col0 even. */
void cpu_load_e2m1(float *restrict dst, const uint8_t *restrict codes, uint64_t col0, uint64_t n);

/* Columns [col0, col0 + n) of one row as published (w->transposed plays no part). MXFP4: col0 is a
 * multiple of 32, and what exceeds f32 becomes infinite. */
void cpu_load_row(float *restrict dst, const ebro_weight *w, uint64_t row, uint64_t col0,
                  uint64_t n);

/* Elements [first, first + n) of a vector. */
static inline void cpu_load_vec(float *restrict dst, const ebro_vec *v, uint64_t first,
                                uint64_t n) {
    cpu_load(dst, v->dtype,
             (const uint8_t *)v->mem->host + v->offset + first * cpu_dtype_size(v->dtype), n);
}

/* ---- reductions ------------------------------------------------------------------------- */

/* Sum of the lanes as a tree: the one order in which lanes are joined. */
static inline float cpu_join(const float *a) {
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

static inline float cpu_dot(const float *restrict a, const float *restrict b, uint64_t n) {
    float acc[CPU_LANES] = {0};
    uint64_t i = 0;
    for (; i + CPU_LANES <= n; i += CPU_LANES) {
        for (uint64_t l = 0; l < CPU_LANES; l++) acc[l] += a[i + l] * b[i + l];
    }
    for (uint64_t l = 0; i + l < n; l++) acc[l] += a[i + l] * b[i + l];
    return cpu_join(acc);
}

static inline float cpu_sum_squares(const float *a, uint64_t n) {
    float acc[CPU_LANES] = {0};
    uint64_t i = 0;
    for (; i + CPU_LANES <= n; i += CPU_LANES) {
        for (uint64_t l = 0; l < CPU_LANES; l++) acc[l] += a[i + l] * a[i + l];
    }
    for (uint64_t l = 0; i + l < n; l++) acc[l] += a[i + l] * a[i + l];
    return cpu_join(acc);
}

/* y += s x */
static inline void cpu_axpy(float *restrict y, float s, const float *restrict x, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) y[i] += s * x[i];
}

/* One element of ebro_act_mul_args, and n of them; out may be gate or up. */
float cpu_act(int32_t kind, float beta, float beta2, float g, float u);
void cpu_act_row(int32_t kind, float beta, float beta2, const float *gate, const float *up,
                 float *out, uint64_t n);

/* ---- products --------------------------------------------------------------------------- */

/* A weight matrix by pointers, for ops whose weights come from tables. */
struct cpu_matrix {
    const uint8_t *data;
    const uint8_t *scale; /* MXFP4: u8 [rows][cols / 32] */
    uint64_t stride;      /* elements between rows */
    uint32_t rows, cols;
    int32_t dtype;
    int32_t transposed;
};

/* Batch b of a weight; w_batch_bytes as in ebro_linear_item. */
struct cpu_matrix cpu_matrix_of(const ebro_weight *w, uint64_t batch, uint64_t w_batch_bytes);

/* y = x W^T, or y += x W^T: x f32 [n_rows][inputs], y f32 [n_rows][outputs], no overlap. The order
 * in which an element is summed does not depend on n_rows, nor on how outputs are split. */
struct cpu_product {
    struct cpu_matrix w;
    const float *x;
    uint64_t x_stride, n_rows;
    float *y;
    uint64_t y_stride;
    int32_t accumulate;
};

enum { CPU_PART_OUT = 64 }; /* parts of a product start at a multiple of it */

/* Outputs of a product: rows of W, or its columns where it is transposed. */
static inline uint64_t cpu_outputs(const struct cpu_matrix *w) {
    return w->transposed ? w->cols : w->rows;
}

/* Outputs [out0, out0 + n_out) on the calling thread; out0 a multiple of CPU_PART_OUT. */
void cpu_product_part(const struct cpu_product *p, uint64_t out0, uint64_t n_out);

/* All outputs on the calling thread. */
void cpu_product(const struct cpu_matrix *w, const float *x, uint64_t x_stride, uint64_t n_rows,
                 float *y, uint64_t y_stride, int32_t accumulate);

/* Up to EBRO_MAX_LINEAR products on all threads, each repeated for n_batch batches: batch b adds b
 * times the steps (bytes, elements, elements) to w.data, x and y. */
struct cpu_batch {
    uint64_t w_bytes, x_elements, y_elements;
};
void cpu_products(ebro_dev *dev, const struct cpu_product *products, const struct cpu_batch *steps,
                  uint32_t n_products, uint64_t n_batch);

/* ---- ops -------------------------------------------------------------------------------- */

/* cpu_embed(s, args, err) and so on. */
#define CPU_OP(N, op) int32_t cpu_##op(ebro_stream *s, const ebro_##op##_args *a, ebro_error *err);
EBRO_OPS(CPU_OP)
#undef CPU_OP

/* cpu_scratch_sample(dev, args) and so on: bytes for these host numbers or smaller ones. */
#define CPU_OP(N, op) uint64_t cpu_scratch_##op(ebro_dev *dev, const ebro_##op##_args *a);
CPU_SCRATCH(CPU_OP)
#undef CPU_OP

#endif
