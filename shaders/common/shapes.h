/* shapes.h: the sizes of workgroups and of their shares of the work that a kernel is written for
 * and that the host launches it with. Included by C and by GLSL, so that they are written once; a
 * kernel made for so many threads is not launched with others. */
#ifndef EB_SHAPES_H
#define EB_SHAPES_H

/* product_row.glsl: threads that share a product, where no subgroup does. */
#define EB_ROW_TEAM 32
/* linear_row_t: threads side by side, each with one unit of outputs. */
#define EB_ROW_T_LANES 16

/* product_tile.glsl: threads, which every device has; outputs of a group. */
#define EB_TILE_THREADS 128
#define EB_TILE_OUTS 64

/* product_matrix.glsl: subgroups of a group; matrices of its sums, one below the other and, but
 * where the device says how many, side by side; M, N and K of those of bf16. */
#define EB_MATRIX_SUBGROUPS 4
#define EB_MATRIX_ROWS 4
#define EB_MATRIX_OUTS 8
#define EB_BF16_EDGE 16

/* mla.glsl: threads; tokens of a tile, of which splits are made; splits of a row at most. */
#define EB_MLA_THREADS 128
#define EB_MLA_TOKENS 64
#define EB_MLA_SPLITS 128
/* mla_expand: tokens, and rows of kv_b. */
#define EB_MLA_EXPAND_TILE 64
/* mla_attend: rows. */
#define EB_MLA_ROW_BLOCK 64

/* On matrix units: threads; mla_decode_matrix: heads, columns of a cache row's two parts;
 * mla_attend_matrix: rows, columns of a key's two parts and of a value. */
#define EB_MLA_MATRIX_THREADS 256
#define EB_MLA_MATRIX_HEADS 32
#define EB_MLA_MATRIX_LORA 512
#define EB_MLA_MATRIX_ROPE 64
#define EB_MLA_MATRIX_ROW_BLOCK 128
#define EB_MLA_MATRIX_NOPE 128
#define EB_MLA_MATRIX_V_DIM 128

#endif
