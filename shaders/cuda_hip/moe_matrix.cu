/* moe_matrix.cu: products of many pairs per expert on matrix units: a block computes one block of
 * the plan, 64 or 128 slots of an expert at most, by 128 products. */
#include "moe_place.cuh"
#include "product_matrix.cuh"

template <unsigned DTYPE, unsigned BM>
static EB_DEVICE void moe_products([[maybe_unused]] const eb_moe_round_args &a) {
#if EB_HAS_MMA
    typedef matrix_tile<DTYPE, BM> shape;
    moe_place<DTYPE, shape::BN, shape::PAIR_AT> place(a);
    if (place.block.n > 0) matrix_products<DTYPE, BM>(place);
#endif
}

/* What stands there for devices without such units; it is never launched. */
#define MATRIX(name, dtype, rows)                                                                \
    EB_KERNEL(eb_moe_matrix_##name##_absent, eb_moe_round_args, EB_WARP) {}                      \
    EB_KERNEL(eb_moe_matrix_##name##_bf16, eb_moe_round_args, EB_PRODUCT_MATRIX_THREADS(rows)) { \
        moe_products<dtype, rows>(A);                                                            \
    }
MATRIX(bf16_64, EB_BF16, 64)
MATRIX(bf16_128, EB_BF16, 128)
MATRIX(mxfp4_64, EB_MXFP4, 64)
MATRIX(mxfp4_128, EB_MXFP4, 128)
