/* product.h: what the ops over shaders/vulkan/product_{row,tile,matrix}.glsl share: the shapes of
 * their groups. */
#ifndef EB_VULKAN_PRODUCT_H
#define EB_VULKAN_PRODUCT_H

#include "backends/vulkan/matrix.h"

enum {
    VK_ROW_THREADS = 128, /* of a group of product_row.glsl */
    VK_ROW_MOST = 8       /* rows of x that share the loads of a weight */
};

/* Teams of a group of `threads` in the variant that the ladder chose. */
static inline uint32_t vk_row_teams(const ebro_dev *dev, enum vk_kernel kernel, uint32_t threads) {
    bool subgroups = dev->variants[kernel]->needs & EBRO_CAP_SUBGROUP;
    return threads / (subgroups ? dev->subgroup : EB_ROW_TEAM);
}

/* The power of two at or above n, VK_ROW_MOST at most. */
static inline uint32_t vk_row_rows(uint64_t n) {
    uint32_t rows = 1;
    while (rows < n && rows < VK_ROW_MOST) rows *= 2;
    return rows;
}

/* Which of two kernels over product_matrix.glsl, of bf16 and of f16, takes a product; VK_N_KERNELS:
 * none. They want weights that they multiply without loss, and enough inputs for what splitting x
 * loses to be lost among the roundings of the sum. */
static inline enum vk_kernel vk_matrix_kernel(const ebro_dev *dev, enum vk_kernel of_bf16,
                                              enum vk_kernel of_f16, int32_t dtype, uint32_t n_in) {
    if (n_in < 128 || dtype == EBRO_F32) return VK_N_KERNELS;
    if (dev->variants[of_bf16]->needs != 0 && dtype != EBRO_F16) return of_bf16;
    return dev->variants[of_f16]->needs != 0 ? of_f16 : VK_N_KERNELS;
}

/* A group of such a kernel. */
struct vk_matrix_group {
    uint32_t threads, rows, outs;
};

static inline struct vk_matrix_group vk_matrix_group(const ebro_dev *dev, bool f16) {
    const struct vk_matrix_shape bf16 = {EB_BF16_EDGE, EB_BF16_EDGE, EB_BF16_EDGE, EB_MATRIX_OUTS};
    struct vk_matrix_shape s = f16 ? dev->f16_shape : bf16;
    return (struct vk_matrix_group){EB_MATRIX_SUBGROUPS * dev->subgroup, EB_MATRIX_ROWS * s.m,
                                    s.outs * s.n};
}

/* Sets the shape among the constants of an f16 kernel. Returns how many there are then. */
static inline uint32_t vk_matrix_specs(const ebro_dev *dev, uint32_t *specs) {
    const uint32_t shape[] = {dev->f16_shape.m, dev->f16_shape.n, dev->f16_shape.k,
                              dev->f16_shape.outs / 2};
    memcpy(&specs[VK_MATRIX_FIRST_SPEC], shape, sizeof shape);
    return VK_MATRIX_SPECS;
}

/* Rows of a tile for about n rows of x: 16, 32 or 64. */
static inline uint32_t vk_tile_rows(uint64_t n) {
    return n > 32 ? 64 : n > 16 ? 32 : 16;
}

#endif
