/* linear_matrix.cu: linear for many rows on matrix units: a block computes a tile of 64 or 128 rows
 * by 128 outputs. Rows and outputs past the last one repeat it and are not stored. */
#include "linear.cuh"
#include "product_matrix.cuh"

template <unsigned DTYPE, unsigned BM>
static EB_DEVICE void linear_products([[maybe_unused]] const eb_linear_args &a) {
#if EB_HAS_MMA
    typedef matrix_tile<DTYPE, BM> shape;
    matrix_products<DTYPE, BM>(linear_tile<DTYPE, false, BM, shape::BN>(a));
#endif
}

/* What stands there for devices without such units; it is never launched. */
#define MATRIX(name, dtype, rows)                                                                \
    EB_KERNEL(eb_linear_matrix_##name##_absent, eb_linear_args, EB_WARP) {}                      \
    EB_KERNEL(eb_linear_matrix_##name##_bf16, eb_linear_args, EB_PRODUCT_MATRIX_THREADS(rows)) { \
        linear_products<dtype, rows>(A);                                                         \
    }
MATRIX(bf16_64, EB_BF16, 64)
MATRIX(bf16_128, EB_BF16, 128)
MATRIX(mxfp4_64, EB_MXFP4, 64)
MATRIX(mxfp4_128, EB_MXFP4, 128)
