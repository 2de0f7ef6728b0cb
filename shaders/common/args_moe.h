/* args_moe.h: arguments of the kernels of moe_experts. A pair is row * top_k + choice; pairs are
 * grouped by expert, and a slot is a place in that order. */
#ifndef EB_ARGS_MOE_H
#define EB_ARGS_MOE_H

#include "common/args.h"

/* One block of slots of one expert, as moe_plan writes it. n 0: nothing. */
struct eb_moe_block {
    eb_u32 expert, slot, n;
    eb_u32 reserved;
};

/* Products of all pairs with their experts' weights: w1 and w3 with the activation, or w2. */
struct eb_moe_args {
    eb_addr x_at;                 /* f32; pair p uses row p / row_pairs */
    eb_addr dst;                  /* f32 [pair][n_outs], dense */
    eb_addr tables, scale_tables; /* from the first weight that is used on */
    eb_addr offsets, pairs;
    eb_addr plan; /* eb_moe_block per block (moe_tile) */
    eb_u32 x_stride, row_pairs;
    eb_u32 n_in, n_outs;
    eb_u32 n_experts, blocks; /* blocks of outputs: the groups of a slot or block of slots */
    eb_u32 n_pairs, reserved; /* bound */
    eb_f32 beta, beta2;
};

struct eb_moe_plan_args {
    eb_addr offsets, plan;
    eb_u32 n_experts, n_blocks; /* room in the plan: what is left over gets n = 0 */
    eb_u32 rows, reserved;      /* slots of a block at most */
};

/* out[r] += sum of weights[r][k] * y[r * top_k + k]. */
struct eb_moe_sum_args {
    EB_T(eb_mat_arg) weights, dst;
    eb_addr y;               /* f32 [pair][n_cols] */
    eb_u32 n_cols, n_chunks; /* of columns, as many as a group has threads */
    eb_u32 top_k, reserved;
};

#endif
