/* linear_tile.cu: linear for many rows: a block computes a tile of 64 rows by 64 outputs, of
 * weights [outputs][inputs] or, transposed, [inputs][outputs]. Rows and outputs past the last one
 * repeat it and are not stored. */
#include "linear.cuh"
#include "product_tile.cuh"
#include "shapes.h"

template <unsigned DTYPE, bool TRANSPOSED>
static EB_DEVICE void linear_tiles(const eb_linear_args &a) {
    typedef tile<DTYPE, TRANSPOSED> shape;
    tile_products<DTYPE, TRANSPOSED>(linear_tile<DTYPE, TRANSPOSED, shape::BM, shape::BN>(a));
}

EB_KERNEL(eb_linear_tile_f32_plain, eb_linear_args, EB_TILE_THREADS) {
    linear_tiles<EB_F32, false>(A);
}
EB_KERNEL(eb_linear_tile_f16_plain, eb_linear_args, EB_TILE_THREADS) {
    linear_tiles<EB_F16, false>(A);
}
EB_KERNEL(eb_linear_tile_bf16_plain, eb_linear_args, EB_TILE_THREADS) {
    linear_tiles<EB_BF16, false>(A);
}
EB_KERNEL(eb_linear_tile_mxfp4_plain, eb_linear_args, EB_TILE_THREADS) {
    linear_tiles<EB_MXFP4, false>(A);
}
EB_KERNEL(eb_linear_tile_t_f32_plain, eb_linear_args, EB_TILE_THREADS) {
    linear_tiles<EB_F32, true>(A);
}
EB_KERNEL(eb_linear_tile_t_f16_plain, eb_linear_args, EB_TILE_THREADS) {
    linear_tiles<EB_F16, true>(A);
}
EB_KERNEL(eb_linear_tile_t_bf16_plain, eb_linear_args, EB_TILE_THREADS) {
    linear_tiles<EB_BF16, true>(A);
}
