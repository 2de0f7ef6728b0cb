/* args_res.h: arguments of attn_res_mix's kernel. */
#ifndef EB_ARGS_RES_H
#define EB_ARGS_RES_H

#include "common/args.h"

#define EB_MAX_SOURCES 32

struct eb_res_args {
    EB_T(eb_mat_arg) sources[EB_MAX_SOURCES];
    EB_T(eb_mat_arg) dst, probs; /* probs: may be absent */
    EB_T(eb_vec_arg) norm_weight, proj;
    eb_u32 n_sources, n_cols;
    eb_f32 eps;
    eb_u32 wide; /* not 0: rows of sources, dst and both vectors start at multiples of four */
};

#endif
