/* mla.cuh: what the kernels of latent attention share: the sequence and the position of a row,
 * where a token lies in the cache, how a context is split. */
#ifndef EB_MLA_CUH
#define EB_MLA_CUH

#include "common/args_mla.h"
#include "weights.cuh"

/* Less than any score: what maxima begin with. Not minus infinity, whose difference from itself is
 * NaN. */
static constexpr float MLA_UNSEEN = -3.402823466e38f;

/* The sequence of packed row `row`: the last one that starts at or before it and is not empty. In a
 * step of one row each, most often number `row` itself. */
static EB_DEVICE unsigned mla_seq_of(eb_addr row_offsets, unsigned n_seqs, unsigned row) {
    const int *offsets = at<const int>(row_offsets);
    if (row < n_seqs && (unsigned)offsets[row] == row && (unsigned)offsets[row + 1] > row)
        return row;
    unsigned low = 0, high = n_seqs;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if ((unsigned)offsets[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static EB_DEVICE unsigned mla_n_rows(eb_addr row_offsets, unsigned n_seqs) {
    return (unsigned)at<const int>(row_offsets)[n_seqs];
}

/* The cache token that packed row `row` of sequence `seq` is. */
static EB_DEVICE unsigned mla_position(eb_addr row_offsets, eb_addr context, unsigned seq,
                                       unsigned row) {
    return (unsigned)at<const int>(context)[seq] + row - (unsigned)at<const int>(row_offsets)[seq];
}

static EB_DEVICE eb_addr mla_token_of(const eb_pages_arg &p, unsigned seq, unsigned token) {
    unsigned page = token / p.page_tokens, slot = token - page * p.page_tokens;
    eb_addr base = at<const eb_addr>(p.table)[(eb_addr)seq * p.table_stride + page];
    return base + p.layer_offset + (eb_addr)slot * p.row_stride * (p.dtype == EB_F32 ? 4 : 2);
}

/* Whether a row of the cache begins where load4 may take it as wide. */
static EB_DEVICE bool mla_is_wide(eb_addr address, unsigned dtype) {
    return address % (dtype == EB_F32 ? 16 : 8) == 0;
}

/* Splits start at multiples of this for a row that sees tokens up to `end`: so many that none is
 * shorter than a tile, at most n_splits. */
static EB_DEVICE unsigned mla_split_tokens(unsigned end, unsigned n_splits) {
    return ((end > 1 ? end : 1) - 1) / (EB_MLA_TOKENS * n_splits) * EB_MLA_TOKENS + EB_MLA_TOKENS;
}

static EB_DEVICE unsigned least(unsigned a, unsigned b) {
    return a < b ? a : b;
}

static EB_DEVICE unsigned most(unsigned a, unsigned b) {
    return a > b ? a : b;
}

/* ---- quads ------------------------------------------------------------------------------ */

static EB_DEVICE void mla_add(eb_vec4 &sum, float factor, const eb_vec4 &v) {
    for (unsigned x = 0; x < 4; x++) sum.v[x] += factor * v.v[x];
}

static EB_DEVICE void mla_scale(eb_vec4 &v, float factor) {
    for (unsigned x = 0; x < 4; x++) v.v[x] *= factor;
}

#endif
