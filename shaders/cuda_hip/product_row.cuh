/* product_row.cuh: a few rows of x times a few rows of weights, by a wave, or several, whose lanes
 * share the columns: bound by the bytes of the weights, each read once for all rows. The kernel
 * fills a row_task and calls row_products; every lane then has all sums of its wave.
 *
 * A lane has DEPTH * OUTS loads of 16 bytes under way, in registers. x comes from the block's
 * cache, where all its waves read the same. */
#ifndef EB_PRODUCT_ROW_CUH
#define EB_PRODUCT_ROW_CUH

#include "weights.cuh"

template <unsigned ROWS, unsigned OUTS>
struct row_task {
    const float *x[ROWS];
    eb_addr w[OUTS], scales[OUTS]; /* scales: of MXFP4 */
    unsigned n_cols;
    unsigned lane, n_lanes;  /* which this thread is of those that share the columns */
    bool aligned;            /* all rows start at multiples of 16 bytes */
    float sums[ROWS * OUTS]; /* [row][output] */
};

/* One unit of each row of weights. */
template <unsigned OUTS>
struct row_units {
    eb_words4 w[OUTS];
    unsigned scale[OUTS];
};

template <unsigned DTYPE, bool ALIGNED, unsigned ROWS, unsigned OUTS>
EB_DEVICE void load_units(const row_task<ROWS, OUTS> &t, unsigned u, row_units<OUTS> &held) {
    EB_UNROLL
    for (unsigned o = 0; o < OUTS; o++) {
        held.w[o] = load_unit(t.w[o], u, ALIGNED);
        held.scale[o] = DTYPE == EB_MXFP4 ? at<const unsigned char>(t.scales[o])[u] : 0;
    }
}

template <unsigned DTYPE, bool ALIGNED, unsigned ROWS, unsigned OUTS>
EB_DEVICE void add_units(row_task<ROWS, OUTS> &t, unsigned u, const row_units<OUTS> &held) {
    constexpr unsigned QUADS = unit_of<DTYPE>() / 4;
    float part[ROWS * OUTS];
    EB_UNROLL
    for (unsigned v = 0; v < ROWS * OUTS; v++) part[v] = DTYPE == EB_MXFP4 ? 0.0f : t.sums[v];
    EB_UNROLL
    for (unsigned i = 0; i < QUADS; i++) {
        eb_vec4 w[OUTS];
        EB_UNROLL
        for (unsigned o = 0; o < OUTS; o++) w[o] = quad_of<DTYPE>(held.w[o], i);
        EB_UNROLL
        for (unsigned r = 0; r < ROWS; r++) {
            eb_vec4 x = x_quad(t.x[r], u * QUADS + i, ALIGNED);
            EB_UNROLL
            for (unsigned o = 0; o < OUTS; o++)
                part[r * OUTS + o] = plus_dot(part[r * OUTS + o], x, w[o]);
        }
    }
    EB_UNROLL
    for (unsigned v = 0; v < ROWS * OUTS; v++) {
        t.sums[v] =
            DTYPE == EB_MXFP4 ? t.sums[v] + mx_scaled(part[v], held.scale[v % OUTS]) : part[v];
    }
}

/* What lies behind the last whole unit. */
template <unsigned DTYPE, unsigned ROWS, unsigned OUTS>
EB_DEVICE void add_tail(row_task<ROWS, OUTS> &t, unsigned begin) {
    for (unsigned c = begin + t.lane; c < t.n_cols; c += t.n_lanes) {
        EB_UNROLL
        for (unsigned v = 0; v < ROWS * OUTS; v++)
            t.sums[v] += t.x[v / OUTS][c] * load(t.w[v % OUTS], c, DTYPE);
    }
}

template <unsigned DTYPE, bool ALIGNED, unsigned ROWS, unsigned OUTS>
EB_DEVICE void add_columns(row_task<ROWS, OUTS> &t) {
    unsigned n = t.n_cols / unit_of<DTYPE>(), u = t.lane;
    /* Units that a lane asks for together; decoding F16 takes registers. */
    constexpr unsigned DEPTH = ROWS * OUTS <= 8 ? 4 : DTYPE == EB_F16 ? 1 : 2;
    row_units<OUTS> held[DEPTH];
    for (; u + (DEPTH - 1) * t.n_lanes < n; u += DEPTH * t.n_lanes) {
        EB_UNROLL
        for (unsigned d = 0; d < DEPTH; d++)
            load_units<DTYPE, ALIGNED>(t, u + d * t.n_lanes, held[d]);
        EB_UNROLL
        for (unsigned d = 0; d < DEPTH; d++)
            add_units<DTYPE, ALIGNED>(t, u + d * t.n_lanes, held[d]);
    }
    EB_UNROLL
    for (unsigned d = 0; d + 1 < DEPTH; d++)
        if (u + d * t.n_lanes < n) load_units<DTYPE, ALIGNED>(t, u + d * t.n_lanes, held[d]);
    EB_UNROLL
    for (unsigned d = 0; d + 1 < DEPTH; d++)
        if (u + d * t.n_lanes < n) add_units<DTYPE, ALIGNED>(t, u + d * t.n_lanes, held[d]);
    if (DTYPE != EB_MXFP4) add_tail<DTYPE>(t, n * unit_of<DTYPE>());
}

/* sums[r][o] = x[r] . w[o] */
template <unsigned DTYPE, unsigned ROWS, unsigned OUTS>
EB_DEVICE void row_products(row_task<ROWS, OUTS> &t) {
    EB_UNROLL
    for (unsigned v = 0; v < ROWS * OUTS; v++) t.sums[v] = 0.0f;
    if (t.aligned)
        add_columns<DTYPE, true>(t);
    else
        add_columns<DTYPE, false>(t);
    EB_UNROLL
    for (unsigned v = 0; v < ROWS * OUTS; v++) t.sums[v] = wave_sum(t.sums[v]);
}

/* sums[v], in registers. */
template <unsigned ROWS, unsigned OUTS>
EB_DEVICE float sum_of(const row_task<ROWS, OUTS> &t, unsigned v) {
    float sum = 0.0f;
    EB_UNROLL
    for (unsigned i = 0; i < ROWS * OUTS; i++) sum = i == v ? t.sums[i] : sum;
    return sum;
}

#endif
