/* args_route.h: arguments of moe_route's kernels. Its logits are a product (linear). */
#ifndef EB_ARGS_ROUTE_H
#define EB_ARGS_ROUTE_H

#include "common/args.h"

/* Choices up to which a row that is alone is grouped where it is chosen. */
#define EB_ROUTE_SHORT 64

struct eb_route_args {
    eb_addr logits; /* [n_rows][n_experts], dense */
    EB_T(eb_vec_arg) bias;
    EB_T(eb_mat_arg) ids, weights;
    eb_addr offsets, pairs; /* of a row that is alone; else absent */
    eb_u32 n_experts, top_k;
    eb_f32 scaling;
    eb_u32 renormalise, biased_weights;
    eb_u32 forced;
};

struct eb_route_group_args {
    EB_T(eb_mat_arg) ids;
    eb_addr offsets, pairs;
    eb_u32 n_rows, n_experts, top_k;
    eb_u32 reserved;
};

#endif
