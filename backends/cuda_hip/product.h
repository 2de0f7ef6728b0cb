/* product.h: what linear and moe_experts share: the shapes of their blocks. */
#ifndef EB_CUDA_HIP_PRODUCT_H
#define EB_CUDA_HIP_PRODUCT_H

#include "backends/cuda_hip/cuda_hip.h"
#include "shaders/cuda_hip/shapes.h"

/* Waves of a block of product_row.cuh. */
static inline uint32_t gpu_row_waves(const ebro_dev *dev) {
    return EB_PRODUCT_ROW_THREADS / dev->caps.wave_min;
}

/* A kernel over product_matrix.cuh. */
struct gpu_matrix {
    enum gpu_kernel kernel; /* GPU_N_KERNELS: there is none for this product */
    uint32_t rows;
};

/* Which of those of BF16 and of MXFP4, each for 64 rows and for 128, takes a product. They
 * want enough inputs for what splitting x loses to be lost among the roundings of the sum. `full`:
 * there is work for every processor in blocks of 128 rows. */
static inline struct gpu_matrix gpu_matrix(const ebro_dev *dev, const enum gpu_kernel kernels[][2],
                                           int32_t dtype, uint32_t n_in, bool full) {
    const struct gpu_matrix none = {.kernel = GPU_N_KERNELS};
    if (n_in < 128 || (dtype != EBRO_BF16 && dtype != EBRO_MXFP4)) return none;
    const struct gpu_matrix m = {kernels[dtype == EBRO_MXFP4][full], full ? 128 : 64};
    return dev->kernels[m.kernel].needs != 0 ? m : none;
}

#endif
