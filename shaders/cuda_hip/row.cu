/* row.cu: elementwise work over rows, four columns a thread: embed, act_mul. */
#include "common/args_act.h"
#include "common/args_token.h"
#include "math.cuh"
#include "memory.cuh"
#include "shapes.h"

/* Rows of the table by id, widened. */
EB_KERNEL(eb_embed_plain, eb_embed_args, EB_ROW_THREADS) {
    unsigned row, col, n = A.table.cols;
    if (!row_place(A.lanes, A.n_chunks, A.n_rows, n, row, col)) return;
    /* Ids before the table wrap to beyond its end, and so do negative ones: first_id + rows is at
     * most 2^31. */
    unsigned id = at<const unsigned>(A.ids)[row] - A.first_id;
    eb_vec4 v = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (id < A.table.rows) {
        unsigned size = A.table.dtype == EB_F32 ? 4 : 2;
        eb_addr from = A.table.at + (eb_addr)id * A.table.stride * size;
        v = load4(from, col, n, A.table.dtype, A.wide != 0);
    } else if (A.keep != 0) {
        return;
    }
    store4(row_of(A.dst, row), col, n, v, A.wide != 0);
}

/* EBRO_ACT_*: SiLU, SiTU, sigmoid. */
template <int KIND>
static EB_DEVICE float act(const eb_act_args &a, float g, float u) {
    float half, s = sigmoid_parts(g, half);
    if (KIND == 1) {
        s *= a.beta * tanhf(g / a.beta);
        u = a.beta2 * tanhf(u / a.beta2);
    } else if (KIND == 0) {
        s *= g;
    }
    /* The last factor comes last: what is small on the way need not be small in the end. */
    return s * half * u * half;
}

/* act(gate) * up. dst may be gate or up: a thread reads what it writes. */
template <int KIND>
static EB_DEVICE void act_rows(const eb_act_args &a) {
    unsigned row, col, n = a.n_cols;
    if (!row_place(a.lanes, a.n_chunks, a.n_rows, n, row, col)) return;
    bool wide = a.wide != 0;
    const float *gate = row_of(a.gate, row);
    eb_vec4 g, v, u = load4((eb_addr)row_of(a.up, row), col, n, EB_F32, wide);
    if (a.gate_group == 1) {
        g = load4((eb_addr)gate, col, n, EB_F32, wide);
    } else {
        for (unsigned j = 0; j < 4; j++) {
            unsigned c = col + j < n ? col + j : n - 1;
            g.v[j] = gate[c / a.gate_group];
        }
    }
    for (unsigned j = 0; j < 4; j++) v.v[j] = act<KIND>(a, g.v[j], u.v[j]);
    store4(row_of(a.dst, row), col, n, v, wide);
}

EB_KERNEL(eb_act_silu_plain, eb_act_args, EB_ROW_THREADS) {
    act_rows<0>(A);
}
EB_KERNEL(eb_act_situ_plain, eb_act_args, EB_ROW_THREADS) {
    act_rows<1>(A);
}
EB_KERNEL(eb_act_sigmoid_plain, eb_act_args, EB_ROW_THREADS) {
    act_rows<2>(A);
}
