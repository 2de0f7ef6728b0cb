/* args_act.h: arguments of act_mul's kernel. */
#ifndef EB_ARGS_ACT_H
#define EB_ARGS_ACT_H

#include "common/args.h"

struct eb_act_args {
    EB_T(eb_mat_arg) gate, up, dst;
    eb_u32 n_rows, n_cols;
    eb_u32 gate_group;
    eb_f32 beta, beta2;
    eb_u32 lanes, n_chunks; /* rows.glsl */
    eb_u32 wide;            /* not 0: rows of all three start at multiples of four elements */
};

#endif
