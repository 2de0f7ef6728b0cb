/* product.h: what linear and moe_experts share: the shapes of their blocks. */
#ifndef EB_CUDA_HIP_PRODUCT_H
#define EB_CUDA_HIP_PRODUCT_H

#include "backends/cuda_hip/cuda_hip.h"
#include "shaders/cuda_hip/shapes.h"

/* Waves of a block of product_row.cuh. */
static inline uint32_t gpu_row_waves(const ebro_dev *dev) {
    return EB_PRODUCT_ROW_THREADS / dev->caps.wave_min;
}

#endif
