/* args_product.h: arguments of products where the kernels of CUDA and HIP want more than
 * shaders/common/args_linear.h and args_moe.h say: they have no constants of a pipeline. */
#ifndef EB_CUDA_HIP_ARGS_PRODUCT_H
#define EB_CUDA_HIP_ARGS_PRODUCT_H

#include "common/args_linear.h"
#include "common/args_moe.h"

/* linear_row. */
struct eb_linear_row_args {
    struct eb_linear_args of;
    eb_u32 joint; /* not 0: all threads of a block share the inputs of the same outputs */
    eb_u32 reserved;
};

/* moe_row, moe_tile, moe_matrix. */
struct eb_moe_round_args {
    struct eb_moe_args of;
    eb_u32 act; /* 0: one weight, w2; else w1 and w3 and EBRO_ACT_SILU or EBRO_ACT_SITU + 1 */
    eb_u32 reserved;
};

#endif
