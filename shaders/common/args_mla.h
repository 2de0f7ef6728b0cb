/* args_mla.h: arguments of the kernels of latent attention. */
#ifndef EB_ARGS_MLA_H
#define EB_ARGS_MLA_H

#include "common/args.h"

/* mla_append: the latents' norm, and the key channels from rotary_dim on. */
struct eb_mla_append_args {
    EB_T(eb_pages_arg) pages;
    EB_T(eb_mat_arg) kv;
    EB_T(eb_vec_arg) norm_weight;
    eb_addr row_offsets;
    eb_u32 n_seqs;
    eb_u32 kv_lora, rope_dim, rotary_dim;
    eb_f32 eps;
    eb_u32 reserved;
};

/* The turn that one position adds to a pair of channels, as a fraction of a full turn in units of
 * 2^-64: times a position it is exact, without the whole turns. */
struct eb_mla_turn {
    eb_u32 low, high;
};

#define EB_MLA_TURNS 64

/* mla_rotate: pairs [first_pair, first_pair + n_pairs) of the keys and of every head of q. */
struct eb_mla_rotate_args {
    EB_T(eb_pages_arg) pages;
    EB_T(eb_mat_arg) kv, q;
    eb_addr row_offsets;
    eb_u32 n_seqs, n_heads;
    eb_u32 q_head_stride, q_rope_offset;
    eb_u32 kv_lora, first_pair, n_pairs;
    eb_u32 reserved;
    EB_T(eb_mla_turn) turns[EB_MLA_TURNS];
};

/* mla_decode: splits [n_rows][n_splits] of rows from first_row on, to parts. A part of one head is
 * [slices][kv_lora / 4, rounded up] sums of four columns each, then (maximum, sum, 0, 0). */
struct eb_mla_decode_args {
    EB_T(eb_pages_arg) pages;
    EB_T(eb_mat_arg) q;
    eb_addr parts; /* [n_rows][n_splits][n_heads] */
    eb_addr row_offsets;
    eb_u32 n_seqs, first_row;
    eb_u32 n_heads, kv_lora, rope_dim;
    eb_f32 scale;
    eb_u32 token_begin, token_end;
    eb_u32 n_splits, slices;
};

/* mla_merge: the parts of each row to its result. */
struct eb_mla_merge_args {
    EB_T(eb_mat_arg) dst, lse;
    eb_addr parts;
    eb_addr row_offsets;
    eb_addr context;
    eb_u32 n_seqs, first_row;
    eb_u32 n_heads, kv_lora;
    eb_u32 token_begin, token_end;
    eb_u32 n_splits, slices;
};

/* mla_expand: keys and values of n_tokens tokens from first_token on, for sequences from first_seq
 * on, in quads of four columns:
 *   keys [seq][head][token][nope_dim / 4, rounded up], values the same with v_dim,
 *   ropes [seq][token][rope_dim / 4, rounded up]: the key channels that all heads share.
 * A row is f32, or of the same size with each element as the sum of two bf16, the first ones first. */
struct eb_mla_expand_args {
    EB_T(eb_pages_arg) pages;
    EB_T(eb_weight_arg) kv_b;
    eb_addr keys, values, ropes;
    eb_addr row_offsets;
    eb_u32 first_seq, n_heads;
    eb_u32 nope_dim, rope_dim, v_dim, kv_lora;
    eb_u32 first_token, n_tokens;
    eb_u32 token_end, reserved;
};

/* mla_attend: all rows of these sequences over those tokens. */
struct eb_mla_attend_args {
    EB_T(eb_mat_arg) q, dst, lse;
    eb_addr keys, values, ropes;
    eb_addr runs; /* (maximum, sum) of what a row of a head has seen [row][head][column block] */
    eb_addr row_offsets;
    eb_addr context;
    eb_u32 first_seq, n_heads;
    eb_u32 nope_dim, rope_dim, v_dim;
    eb_f32 scale;
    eb_u32 first_token, n_tokens;
    eb_u32 token_end;
    eb_u32 n_row_blocks; /* of a sequence, at most */
    eb_u32 is_first;     /* nothing has been seen before these tokens */
    eb_u32 reserved;
};

#endif
