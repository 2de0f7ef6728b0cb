/* linear_row.cu: linear for few rows. A wave computes OUTS outputs of up to ROWS rows, and the
 * waves of a block take neighbouring outputs; or, where that leaves processors without work, they
 * share the columns of the same outputs. What is past the last output or row repeats it and is not
 * stored. */
#include "linear.cuh"
#include "product_row.cuh"
#include "shapes.h"

/* Adds up what the waves of the block have. */
template <unsigned ROWS, unsigned OUTS>
static EB_DEVICE void put_joint(const eb_linear_args &a, const linear_place &p,
                                const row_task<ROWS, OUTS> &t, unsigned row0, unsigned out0) {
    constexpr unsigned SUMS = ROWS * OUTS;
    EB_SHARED(float, parts, [EB_PRODUCT_ROW_THREADS / EB_WAVE * SUMS]);
    for (unsigned v = lane_id(); v < SUMS; v += EB_WAVE) parts[wave_id() * SUMS + v] = sum_of(t, v);
    sync_block();
    for (unsigned v = thread_id(); v < SUMS; v += n_threads()) {
        unsigned r = row0 + v / OUTS, o = out0 + v % OUTS;
        float sum = 0.0f;
        for (unsigned w = 0; w < n_waves(); w++) sum += parts[w * SUMS + v];
        if (r < a.n_rows && o < p.item->w.rows) put_sum(p, r, o, sum);
    }
}

template <unsigned DTYPE, unsigned ROWS, unsigned OUTS>
static EB_DEVICE void linear_rows(const eb_linear_row_args &args) {
    const eb_linear_args &a = args.of;
    linear_place p = place_of(a);
    row_task<ROWS, OUTS> t;
    bool joint = args.joint != 0;
    unsigned n_outs = p.item->w.rows, row0 = p.row_block * ROWS;
    unsigned out0 = (joint ? p.block : p.block * n_waves() + wave_id()) * OUTS;
    t.n_cols = p.item->w.cols;
    t.lane = joint ? thread_id() : lane_id();
    t.n_lanes = joint ? n_threads() : EB_WAVE;
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
    if (joint) {
        put_joint(a, p, t, row0, out0);
        return;
    }
    for (unsigned v = lane_id(); v < ROWS * OUTS; v += EB_WAVE) {
        unsigned r = row0 + v / OUTS, o = out0 + v % OUTS;
        float sum = sum_of(t, v);
        if (r < a.n_rows && o < n_outs) put_sum(p, r, o, sum);
    }
}

#define LINEAR_ROW(name, dtype, rows, outs)                                               \
    EB_KERNEL(eb_linear_row_##name##_plain, eb_linear_row_args, EB_PRODUCT_ROW_THREADS) { \
        linear_rows<dtype, rows, outs>(A);                                                \
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
