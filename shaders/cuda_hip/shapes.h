/* shapes.h: the sizes of blocks that a kernel is written for and that the host launches it with.
 * Included by C and by the kernels, so that they are written once. */
#ifndef EB_CUDA_HIP_SHAPES_H
#define EB_CUDA_HIP_SHAPES_H

/* norm: threads; columns up to which a wave takes a row by itself. */
#define EB_NORM_THREADS 256
#define EB_NORM_WAVE_COLS 512

/* row, copy: threads. */
#define EB_ROW_THREADS 256

/* res: threads at most, each with four columns at a time. */
#define EB_RES_THREADS 512

/* route_select: threads at most, and the keys that each can hold; route_group: threads. */
#define EB_ROUTE_THREADS 256
#define EB_ROUTE_HELD 8
#define EB_ROUTE_GROUP_THREADS 128

/* linear_row, moe_row: threads; products of a row of x that a wave computes, and of linear where it
 * has one row and no codes of 4 bits. */
#define EB_PRODUCT_ROW_THREADS 128
#define EB_ROW_OUTS 4
#define EB_ROW_OUTS_FEW 2
/* linear_row_t: threads. */
#define EB_LINEAR_ROW_T_THREADS 256
/* linear_tile, moe_tile: rows. */
#define EB_PRODUCT_TILE_ROWS 64

/* linear_matrix, moe_matrix, for `rows`: outputs, threads, bytes of shared memory. */
#define EB_PRODUCT_MATRIX_OUTS 128
#define EB_PRODUCT_MATRIX_THREADS(rows) (2 * (rows))
#define EB_PRODUCT_MATRIX_BYTES(rows) (2 * (2 * 64 * (rows) + (64 + 8) * EB_PRODUCT_MATRIX_OUTS))

/* moe_plan: threads; moe_sum: threads, each with a column. */
#define EB_MOE_PLAN_THREADS 256
#define EB_MOE_SUM_THREADS 128

/* sample_parts and sample_weigh: threads; sample_pick: at most, and at least: as many as a row has
 * bins and parts. */
#define EB_SAMPLE_THREADS 256
#define EB_SAMPLE_PICK_THREADS 1024
#define EB_SAMPLE_PICK_FEWEST 256

/* kda_conv, kda_windows: threads, of four channels each; rows of a block of kda_conv. */
#define EB_KDA_CONV_THREADS 128
#define EB_KDA_CONV_BLOCK_ROWS 32
/* kda_plan, kda_prep: threads; bytes of shared memory of kda_prep. */
#define EB_KDA_PLAN_THREADS 256
#define EB_KDA_PREP_THREADS 256
#define EB_KDA_PREP_SHARED (54 << 10)
/* kda_recur: threads, value columns of a block, groups of threads among which the product's inner
 * dimension is split; floats behind each row of its factor where that is staged. */
#define EB_KDA_RECUR_THREADS 256
#define EB_KDA_RECUR_COLS 32
#define EB_KDA_RECUR_PARTS 4
#define EB_KDA_RECUR_PAD 4
/* kda_step: threads. */
#define EB_KDA_STEP_THREADS 256

/* KDA: the longest head. */
#define EB_KDA_MAX_DIM 256
/* mla_append and mla_rotate: threads; mla_decode: threads, heads of a block (of mla_decode_few,
 * where there are few), quads of columns of a block; mla_merge: threads, quads; mla_expand and
 * mla_attend: threads; of mla_attend quads of values of a block. */
#define EB_MLA_APPEND_THREADS 256
#define EB_MLA_ROTATE_THREADS 128
#define EB_MLA_DECODE_THREADS 256
#define EB_MLA_DECODE_HEADS 32
#define EB_MLA_DECODE_FEW_HEADS 8
#define EB_MLA_DECODE_QUADS 128
#define EB_MLA_MERGE_THREADS 256
#define EB_MLA_MERGE_QUADS 32
#define EB_MLA_PREFILL_THREADS 256
#define EB_MLA_VALUE_QUADS 32
/* mla_decode_matrix, beside EB_MLA_MATRIX_* of common/shapes.h: tokens of a tile, bytes of shared
 * memory. */
#define EB_MLA_DECODE_MATRIX_TOKENS 32
#define EB_MLA_DECODE_MATRIX_SHARED 100480

#endif
