/* moe_row.cu: products of few pairs per expert. A block takes a slot and those behind it that are
 * of the same expert, ROWS in all, and leaves where a slot before it has taken its own. A wave
 * computes EB_ROW_OUTS products: with an activation gate and up by turns, else neighbouring
 * outputs. */
#include "moe.cuh"
#include "product_row.cuh"
#include "shapes.h"

/* Whose a slot is, n_experts where it is nobody's, and where that one's slots begin and end. */
struct slot_owner {
    unsigned expert, begin, end;
};

/* For all threads. */
static EB_DEVICE void find_owner(const eb_moe_args &a, unsigned slot, slot_owner &owner) {
    const unsigned *offsets = at<const unsigned>(a.offsets);
    if (thread_id() == 0) owner.expert = a.n_experts;
    sync_block();
    for (unsigned e = thread_id(); e < a.n_experts; e += n_threads()) {
        unsigned begin = offsets[e], end = offsets[e + 1];
        if (begin <= slot && slot < end) owner = {e, begin, end};
    }
    sync_block();
}

template <unsigned DTYPE, unsigned ROWS>
static EB_DEVICE void moe_rows(const eb_moe_round_args &args) {
    constexpr unsigned OUTS = EB_ROW_OUTS;
    EB_SHARED(slot_owner, owner, );
    const eb_moe_args &a = args.of;
    unsigned slot = block_id() / a.blocks, parts = args.act == EB_MOE_DOWN ? 1 : 2;
    unsigned out0 = (block_id() % a.blocks * n_waves() + wave_id()) * (OUTS / parts);
    unsigned pairs[ROWS];
    row_task<ROWS, OUTS> t;
    /* Asked for before it is known who needs them: one wait less. */
    EB_UNROLL
    for (unsigned r = 0; r < ROWS; r++)
        pairs[r] = pair_of(a, slot + r < a.n_pairs ? slot + r : a.n_pairs - 1);
    find_owner(a, slot, owner);
    unsigned expert = owner.expert, end = owner.end;
    if (expert == a.n_experts || (slot - owner.begin) % ROWS != 0) return;
    t.n_cols = a.n_in;
    t.lane = lane_id();
    t.n_lanes = EB_WAVE;
    t.aligned = is_aligned<DTYPE>(a, expert, parts == 2);
    EB_UNROLL
    for (unsigned o = 0; o < OUTS; o++) {
        unsigned part = o % parts, r = out0 + o / parts;
        if (r >= a.n_outs) r = a.n_outs - 1;
        t.w[o] = w_row_of<DTYPE>(a, weight_of(a, expert, part), r);
        t.scales[o] =
            DTYPE == EB_MXFP4 ? scale_row_of(a, scales_of(a, expert, part), r) : (eb_addr)0;
    }
    EB_UNROLL
    for (unsigned r = 0; r < ROWS; r++) {
        if (slot + r >= end) pairs[r] = pairs[0];
        t.x[r] = x_row_of(a, pairs[r]);
    }
    row_products<DTYPE>(t);
    for (unsigned v = lane_id() * parts; v < ROWS * OUTS; v += EB_WAVE * parts) {
        unsigned r = v / OUTS, o = out0 + v % OUTS / parts, pair = 0;
        float sum = sum_of(t, v), partner = sum_of(t, v + parts - 1);
        EB_UNROLL
        for (unsigned i = 0; i < ROWS; i++) pair = i == r ? pairs[i] : pair;
        if (slot + r < end && o < a.n_outs) put_pair(args, pair, o, sum, partner);
    }
}

#define MOE_ROW(name, dtype, rows)                                                    \
    EB_KERNEL(eb_moe_row_##name##_plain, eb_moe_round_args, EB_PRODUCT_ROW_THREADS) { \
        moe_rows<dtype, rows>(A);                                                     \
    }
MOE_ROW(f32_1, EB_F32, 1)
MOE_ROW(f32_4, EB_F32, 4)
MOE_ROW(f16_1, EB_F16, 1)
MOE_ROW(f16_4, EB_F16, 4)
MOE_ROW(bf16_1, EB_BF16, 1)
MOE_ROW(bf16_4, EB_BF16, 4)
MOE_ROW(mxfp4_1, EB_MXFP4, 1)
MOE_ROW(mxfp4_4, EB_MXFP4, 4)
