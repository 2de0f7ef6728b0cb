/* args_token.h: arguments of embed's kernel. */
#ifndef EB_ARGS_TOKEN_H
#define EB_ARGS_TOKEN_H

#include "common/args.h"

struct eb_embed_args {
    eb_addr ids;
    EB_T(eb_weight_arg) table;
    EB_T(eb_mat_arg) dst;
    eb_u32 n_rows;
    eb_u32 lanes, n_chunks; /* rows.glsl */
    eb_u32 wide;            /* not 0: rows of both start at multiples of four elements */
    eb_u32 first_id, keep;  /* as ebro_embed_args */
};

#endif
