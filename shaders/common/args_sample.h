/* args_sample.h: arguments of sample's kernels, and the layout of its scratch.
 *
 * A row of logits is cut into n_parts parts of part_size. Scratch, for every row and part:
 *   parts    u32 [4]: key of the largest logit (order.glsl), complement of its id, key of the
 *            smallest one or 0 where one is not finite, 0
 *   masses   u64: sum of the probabilities that min_p keeps, in fixed point
 *   bins     u32 [3][EB_SAMPLE_BINS]: how many, and the low and high words of their probabilities'
 *            sum, by distance from the row's largest
 * and `changed`, the rows with their adjustments. */
#ifndef EB_ARGS_SAMPLE_H
#define EB_ARGS_SAMPLE_H

#include "common/args.h"

#define EB_SAMPLE_BINS 256
#define EB_SAMPLE_MOST_PARTS 256

struct eb_sample_args {
    EB_T(eb_mat_arg) logits;
    eb_addr params, ids;
    eb_addr adjusts, adjust_offsets; /* absent: none */
    eb_addr changed;                 /* f32 [n_rows][changed_stride]; absent: none */
    eb_addr parts, masses, bins;
    eb_u32 vocab, n_parts, part_size;
    eb_u32 changed_stride;
    eb_u32 wide;     /* not 0: rows of logits start at multiples of four */
    eb_f32 one_high; /* probability 1 in fixed point, its high word: a row's sum fits 64 bits */
};

#endif
