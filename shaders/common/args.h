/* args.h: what every kernel's arguments are made of, for host and device alike. Included by C and by
 * GLSL. The structs of a family of ops stand in args_<family>.h beside this file.
 *
 * Layout: only 32-bit fields and addresses, each aligned to its size, so that C's layout and GLSL's
 * std430 agree; an address comes first where there is one, and a struct with addresses has an even
 * number of 32-bit fields. EB_T(name) names a struct in both. Strides count elements unless a name says bytes. */
#ifndef EB_ARGS_H
#define EB_ARGS_H

#include "common/shapes.h"

#ifdef EB_GLSL
/* A device address as two words, low first: 64-bit integers are no part of the floor. */
#define eb_addr uvec2
#define eb_u32 uint
#define eb_i32 int
#define eb_f32 float
#define EB_T(name) name
#else
#include <stdint.h>
typedef uint64_t eb_addr;
typedef uint32_t eb_u32;
typedef int32_t eb_i32;
typedef float eb_f32;
#define EB_T(name) struct name
#endif

/* ebro_mat: element (r, c) lies r * stride + c elements behind `at`. at 0: absent. */
struct eb_mat_arg {
    eb_addr at;
    eb_u32 stride;
    eb_u32 dtype;
};

/* ebro_weight, with its scales (MXFP4). */
struct eb_weight_arg {
    eb_addr at;
    eb_addr scales;
    eb_u32 stride;
    eb_u32 rows, cols;
    eb_u32 dtype;
};

/* ebro_vec. */
struct eb_vec_arg {
    eb_addr at; /* 0: absent */
    eb_u32 dtype;
    eb_u32 reserved;
};

/* ebro_rows. */
struct eb_rows_arg {
    eb_addr row_offsets;
    eb_u32 n_seqs, n_rows;
    eb_u32 max_rows;
    eb_u32 reserved;
};

/* ebro_region. */
struct eb_region_arg {
    eb_addr table;
    eb_u32 table_stride, first_block;
    eb_u32 first_unit, units_per_block;
    eb_u32 unit_bytes, dtype;
    eb_addr block_offset;
};

/* ebro_state_io. */
struct eb_state_arg {
    EB_T(eb_region_arg) region;
    eb_addr state_in, state_out;
    eb_addr emit_rows, emit_slots;
    eb_u32 n_emit;
    eb_u32 reserved;
};

/* ebro_pages. */
struct eb_pages_arg {
    eb_addr table;
    eb_addr layer_offset;
    eb_addr context;
    eb_u32 table_stride, page_tokens;
    eb_u32 row_stride, dtype;
    eb_u32 max_context;
    eb_u32 reserved;
};

#endif
