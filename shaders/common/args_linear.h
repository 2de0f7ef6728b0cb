/* args_linear.h: arguments of linear's kernels. */
#ifndef EB_ARGS_LINEAR_H
#define EB_ARGS_LINEAR_H

#include "common/args.h"

/* One weight and where its products go. The groups of a launch are numbered through: item by item,
 * in it batch by batch, in a batch one per block of outputs, and for each of them row_blocks. */
struct eb_linear_item_arg {
    EB_T(eb_weight_arg) w;
    eb_addr out_at;
    eb_addr w_batch, out_batch; /* bytes between batches */
    eb_u32 out_stride;
    eb_u32 accumulate;
    eb_u32 blocks; /* of outputs, in a batch */
    eb_u32 end;    /* blocks of this item and of those before it, all batches */
};

struct eb_linear_args {
    eb_addr x_at;
    eb_addr x_batch; /* bytes */
    eb_u32 x_stride, n_rows;
    eb_u32 row_blocks, reserved;
    EB_T(eb_linear_item_arg) items[8];
};

/* The same for one item: short enough for the push constants. */
struct eb_linear_one_args {
    eb_addr x_at;
    eb_addr x_batch;
    eb_u32 x_stride, n_rows;
    eb_u32 row_blocks, reserved;
    EB_T(eb_linear_item_arg) items[1];
};

#endif
