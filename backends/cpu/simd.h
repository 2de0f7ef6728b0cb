/* simd.h: product kernels of a rung that has its own (CPU_SIMD). product.c calls them. Private to
 * backends/cpu. */
#ifndef EB_CPU_SIMD_H
#define EB_CPU_SIMD_H

#include "cpu.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define CPU_SIMD 1
#else
#define CPU_SIMD 0
#endif

enum {
    SIMD_OUT = 8,    /* outputs of a block: where blocks begin is a multiple of it */
    SIMD_T_OUT = 64, /* the same for transposed matrices */
    SIMD_GROUP = 96, /* rows of x that share a widened tile */
    SIMD_CHUNK = 512 /* inputs per tile */
};

#define simd_part CPU_FN(simd_part)
#define simd_transposed CPU_FN(simd_transposed)

/* y (+)= x W^T for outputs [out0, out0 + n_out), out0 a multiple of SIMD_OUT, any number of rows.
 * MXFP4: all scales of these outputs lie in [2^-87, 2^83], so that a scaled code is exact. */
void simd_part(const struct cpu_product *p, uint64_t out0, uint64_t n_out);

/* The same for a transposed matrix. */
void simd_transposed(const struct cpu_product *p, uint64_t out0, uint64_t n_out);

#endif
