/* product.h: what the ops over shaders/vulkan/product_{row,tile,matrix}.glsl share: the shapes of
 * their groups. */
#ifndef EB_VULKAN_PRODUCT_H
#define EB_VULKAN_PRODUCT_H

#include "backends/vulkan/matrix.h"

enum {
    VK_ROW_THREADS = 128,  /* of a group of product_row.glsl */
    VK_ROW_TEAM = 32,      /* threads that share a product, where no subgroup does */
    VK_ROW_MOST = 8,       /* rows of x that share the loads of a weight */
    VK_TILE_THREADS = 128, /* of a group of product_tile.glsl: every device has as many */
    VK_TILE_OUTS = 64      /* outputs of such a group */
};

/* Multiply-adds of one launch at most, so that it is soon over on a slow device too. */
static const uint64_t vk_most_products = (uint64_t)1 << 35;

/* Teams of a group of `threads` in the variant that the ladder chose. */
static inline uint32_t vk_row_teams(const ebro_dev *dev, enum vk_kernel kernel, uint32_t threads) {
    bool subgroups = dev->variants[kernel]->needs & EBRO_CAP_SUBGROUP;
    return threads / (subgroups ? dev->subgroup : VK_ROW_TEAM);
}

/* The power of two at or above n, VK_ROW_MOST at most. */
static inline uint32_t vk_row_rows(uint64_t n) {
    uint32_t rows = 1;
    while (rows < n && rows < VK_ROW_MOST) rows *= 2;
    return rows;
}

/* Whether a product goes to a kernel of product_matrix.glsl: weights that it multiplies as they
 * are, and enough inputs for what splitting x loses to be lost among the roundings of the sum. */
static inline bool vk_on_matrix_units(const ebro_dev *dev, enum vk_kernel kernel, int32_t dtype,
                                      uint32_t n_in) {
    return (dev->variants[kernel]->needs & EBRO_CAP_MATRIX) != 0 && n_in >= 128 &&
           (dtype == EBRO_BF16 || dtype == EBRO_MXFP4);
}

/* Rows of a tile for about n rows of x: 16, 32 or 64. */
static inline uint32_t vk_tile_rows(uint64_t n) {
    return n > 32 ? 64 : n > 16 ? 32 : 16;
}

#endif
