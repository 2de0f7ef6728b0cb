/* args_norm.h: arguments of rms_norm's kernel. */
#ifndef EB_ARGS_NORM_H
#define EB_ARGS_NORM_H

#include "common/args.h"

struct eb_norm_args {
    EB_T(eb_mat_arg) x, gate, dst;
    EB_T(eb_vec_arg) weight;
    eb_u32 n_rows, n_cols;
    eb_f32 eps;
    eb_u32 reserved;
};

#endif
