/* linear_row.cu: linear for few rows. A wave computes OUTS outputs of up to ROWS rows; the waves of
 * a block take neighbouring outputs. What is past the last output or row repeats it and is not
 * stored. */
#include "linear.cuh"
#include "product_row.cuh"
#include "shapes.h"

template <unsigned DTYPE, unsigned ROWS, unsigned OUTS>
static EB_DEVICE void linear_rows(const eb_linear_args &a) {
    linear_place p = place_of(a);
    row_task<ROWS, OUTS> t;
    unsigned n_outs = p.item->w.rows;
    unsigned out0 = (p.block * n_waves() + wave_id()) * OUTS, row0 = p.row_block * ROWS;
    t.n_cols = p.item->w.cols;
    t.aligned = is_aligned<DTYPE>(a, p);
    EB_UNROLL
    for (unsigned o = 0; o < OUTS; o++) {
        unsigned r = out0 + o < n_outs ? out0 + o : n_outs - 1;
        t.w[o] = w_row_of<DTYPE>(p, r);
        t.scales[o] = scales_of(p, r);
    }
    EB_UNROLL
    for (unsigned r = 0; r < ROWS; r++)
        t.x[r] = x_row_of(a, p, row0 + r < a.n_rows ? row0 + r : a.n_rows - 1);
    row_products<DTYPE>(t);
    for (unsigned v = lane_id(); v < ROWS * OUTS; v += EB_WAVE) {
        unsigned r = row0 + v / OUTS, o = out0 + v % OUTS;
        float sum = sum_of(t, v);
        if (r < a.n_rows && o < n_outs) put_sum(p, r, o, sum);
    }
}

#define LINEAR_ROW(name, dtype, rows, outs)                                           \
    EB_KERNEL(eb_linear_row_##name##_plain, eb_linear_args, EB_PRODUCT_ROW_THREADS) { \
        linear_rows<dtype, rows, outs>(A);                                            \
    }
#define LINEAR_ROWS(name, dtype, outs)          \
    LINEAR_ROW(name##_1, dtype, 1, outs)        \
    LINEAR_ROW(name##_2, dtype, 2, EB_ROW_OUTS) \
    LINEAR_ROW(name##_4, dtype, 4, EB_ROW_OUTS) \
    LINEAR_ROW(name##_8, dtype, 8, EB_ROW_OUTS)
/* Codes of 4 bits want more outputs to a load of x than wider weights. */
LINEAR_ROWS(f32, EB_F32, EB_ROW_OUTS_FEW)
LINEAR_ROWS(f16, EB_F16, EB_ROW_OUTS_FEW)
LINEAR_ROWS(bf16, EB_BF16, EB_ROW_OUTS_FEW)
LINEAR_ROWS(mxfp4, EB_MXFP4, EB_ROW_OUTS)
