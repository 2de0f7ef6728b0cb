/* args_kda.h: arguments of the KDA kernels, and the layout of the chunked form's work memory. */
#ifndef EB_ARGS_KDA_H
#define EB_ARGS_KDA_H

#include "common/args.h"

/* Rows of a chunk. */
#define EB_KDA_CHUNK 16
/* Rows of a workgroup of the convolution. */
#define EB_KDA_CONV_ROWS 8

/* What kda_prep leaves for kda_recur.
 *
 * A sequence is cut into tiles of EB_KDA_CHUNK rows, counted from its first; an emitted row cuts
 * its tile once more. Chunk number t < n_tiles is the part of tile t behind its last emitted row;
 * chunk n_tiles + e is the part of a tile that ends with emitted row number e. Chunks without rows
 * are skipped.
 *
 * A chunk of one head is f32, with P = padded and S the state before it, [key][value]:
 *   [2 * 16][P + 16]  (U; O) = this times (S; V)
 *   [16][P]           K*, the keys decayed to the chunk's end
 *   [P]               the decay of the whole chunk
 * and S <- diag(decay) S + K*^T U. Rows and columns that are not there are zeros. */
struct eb_kda_work_arg {
    eb_addr tiles;  /* u32 [n_seqs + 1]: number of a sequence's first tile */
    eb_addr masks;  /* u32 [n_tiles]: bit i: row i of the tile is emitted */
    eb_addr marks;  /* u32 [n_rows]: the number of an emitted row; others are undefined */
    eb_addr chunks; /* f32 [n_tiles + n_emit][n_heads][chunk_floats] */
    eb_addr carry;  /* f32 [][n_heads][dim][dim]: states between two launches */
    eb_u32 n_heads, dim;
    eb_u32 padded; /* dim, rounded up to whole 32s */
    eb_u32 chunk_floats;
    eb_u32 n_tiles; /* at most */
    eb_u32 reserved;
};

/* ebro_kda_gate. */
struct eb_kda_gate_arg {
    EB_T(eb_mat_arg) g_raw, beta_raw;
    EB_T(eb_vec_arg) a_log, dt_bias;
    eb_u32 form; /* 0: softplus, 1: bounded */
    eb_f32 lower_bound;
    eb_f32 l2_eps;
    eb_f32 q_scale; /* dim^-1/2 */
};

/* Convolution: a workgroup takes 4 * THREADS channels of q, k or v and EB_KDA_CONV_ROWS rows. */
struct eb_kda_conv_args {
    EB_T(eb_rows_arg) rows;
    EB_T(eb_mat_arg) x[3];
    EB_T(eb_mat_arg) dst[3];
    EB_T(eb_vec_arg) weight[3];
    EB_T(eb_state_arg) state;
    eb_u32 n_channels;
    eb_u32 channel_groups, row_groups;
    eb_u32 reserved;
};

/* The windows that a step leaves: a workgroup takes 4 * THREADS channels of q, k or v of one
 * sequence. */
struct eb_kda_windows_args {
    EB_T(eb_rows_arg) rows;
    EB_T(eb_mat_arg) x[3];
    EB_T(eb_state_arg) state;
    eb_u32 n_channels;
    eb_u32 channel_groups;
};

/* One workgroup in all. */
struct eb_kda_plan_args {
    EB_T(eb_rows_arg) rows;
    EB_T(eb_kda_work_arg) work;
    eb_addr emit_rows;
    eb_u32 n_emit;
    eb_u32 reserved;
};

/* A workgroup takes one chunk of one head; group = chunk * n_heads + head, from first_group on. */
struct eb_kda_prep_args {
    EB_T(eb_rows_arg) rows;
    EB_T(eb_kda_work_arg) work;
    EB_T(eb_mat_arg) q, k;
    EB_T(eb_kda_gate_arg) gate;
    eb_addr emit_rows;
    eb_u32 n_emit;
    eb_u32 first_group;
};

/* A workgroup takes some value columns of one head of one sequence, tiles [first_tile, end_tile) of
 * it; group = (sequence * n_heads + head) * n_blocks + block. A state that goes on in the next
 * launch waits in work.carry, at the sequence's first row / carry_rows. */
struct eb_kda_recur_args {
    EB_T(eb_rows_arg) rows;
    EB_T(eb_kda_work_arg) work;
    EB_T(eb_mat_arg) v, dst;
    EB_T(eb_state_arg) state;
    eb_u32 n_blocks;
    eb_u32 first_tile, end_tile;
    eb_u32 carry_rows;
    eb_u32 first_seq;
    eb_u32 reserved;
};

/* A workgroup takes one head of one sequence; group = sequence * n_heads + head. */
struct eb_kda_step_args {
    EB_T(eb_rows_arg) rows;
    EB_T(eb_mat_arg) x[3];
    EB_T(eb_vec_arg) weight[3];
    EB_T(eb_kda_gate_arg) gate;
    EB_T(eb_state_arg) windows, state;
    EB_T(eb_mat_arg) out_gate, dst;
    EB_T(eb_vec_arg) norm_weight;
    eb_u32 n_heads;
    eb_f32 norm_eps;
};

/* On CUDA, for any size of head. */
struct eb_kda_step_any_args {
    EB_T(eb_kda_step_args) step;
    eb_u32 dim;
    eb_u32 reserved;
};

/* kda_recur on CUDA: a workgroup takes some value columns of one head of one sequence, all of its
 * tiles; group = (sequence * n_heads + head) * n_blocks + block. */
struct eb_kda_recur_all_args {
    EB_T(eb_rows_arg) rows;
    EB_T(eb_kda_work_arg) work;
    EB_T(eb_mat_arg) v, dst;
    EB_T(eb_state_arg) state;
    eb_u32 n_blocks;
    eb_u32 reserved;
};

#endif
