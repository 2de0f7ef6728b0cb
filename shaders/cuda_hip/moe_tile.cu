/* moe_tile.cu: products of many pairs per expert: a block computes one block of the plan, 64 slots
 * of an expert at most, by 64 products. */
#include "moe_place.cuh"
#include "product_tile.cuh"

template <unsigned DTYPE>
static EB_DEVICE void moe_tiles(const eb_moe_round_args &a) {
    typedef tile<DTYPE, false> shape;
    moe_place<DTYPE, shape::BN, shape::PAIR_AT> place(a);
    if (place.block.n > 0) tile_products<DTYPE, false>(place);
}

EB_KERNEL(eb_moe_tile_f32_plain, eb_moe_round_args, EB_TILE_THREADS) {
    moe_tiles<EB_F32>(A);
}
EB_KERNEL(eb_moe_tile_f16_plain, eb_moe_round_args, EB_TILE_THREADS) {
    moe_tiles<EB_F16>(A);
}
EB_KERNEL(eb_moe_tile_bf16_plain, eb_moe_round_args, EB_TILE_THREADS) {
    moe_tiles<EB_BF16>(A);
}
EB_KERNEL(eb_moe_tile_mxfp4_plain, eb_moe_round_args, EB_TILE_THREADS) {
    moe_tiles<EB_MXFP4>(A);
}
