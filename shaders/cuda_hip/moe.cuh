/* moe.cuh: where the rows of a pair and of its expert lie, and the activation. */
#ifndef EB_MOE_CUH
#define EB_MOE_CUH

#include "args_product.h"
#include "math.cuh"
#include "weights.cuh"

/* eb_moe_round_args.act */
enum { EB_MOE_DOWN = 0, EB_MOE_SILU = 1, EB_MOE_SITU = 2 };

EB_DEVICE unsigned pair_of(const eb_moe_args &a, unsigned slot) {
    return at<const unsigned>(a.pairs)[slot];
}

/* Weight `part` of an expert, and its scales. */
EB_DEVICE eb_addr weight_of(const eb_moe_args &a, unsigned expert, unsigned part) {
    return at<const eb_addr>(a.tables)[part * a.n_experts + expert];
}
EB_DEVICE eb_addr scales_of(const eb_moe_args &a, unsigned expert, unsigned part) {
    return at<const eb_addr>(a.scale_tables)[part * a.n_experts + expert];
}

/* Row r of such a weight; a row of its scales; the row of x of a pair. */
template <unsigned DTYPE>
EB_DEVICE eb_addr w_row_of(const eb_moe_args &a, eb_addr weight, unsigned r) {
    return weight + weight_bytes<DTYPE>((unsigned long long)r * a.n_in);
}
EB_DEVICE eb_addr scale_row_of(const eb_moe_args &a, eb_addr scales, unsigned r) {
    return scales + (eb_addr)r * (a.n_in / 32);
}
EB_DEVICE const float *x_row_of(const eb_moe_args &a, unsigned pair) {
    return at<const float>(a.x_at) + (unsigned long long)(pair / a.row_pairs) * a.x_stride;
}

/* Whether all of those start at multiples of 16 bytes; gated: of two weights. */
template <unsigned DTYPE>
EB_DEVICE bool is_aligned(const eb_moe_args &a, unsigned expert, bool gated) {
    unsigned long long bits = a.x_at | (unsigned long long)a.x_stride * 4 |
                              weight_bytes<DTYPE>(a.n_in) | weight_of(a, expert, 0);
    return is_aligned16(gated ? bits | weight_of(a, expert, 1) : bits);
}

/* The factor that is small where gate is very negative comes last. */
EB_DEVICE float moe_act(const eb_moe_round_args &a, float gate, float up) {
    float half, s = sigmoid_parts(gate, half);
    if (a.act == EB_MOE_SITU) {
        s *= a.of.beta * tanhf(gate / a.of.beta);
        up = a.of.beta2 * tanhf(up / a.of.beta2);
    } else {
        s *= gate;
    }
    return s * half * up * half;
}

/* What the products of a pair give: output o of it. */
EB_DEVICE void put_pair(const eb_moe_round_args &a, unsigned pair, unsigned o, float sum,
                        float partner) {
    float *row = at<float>(a.of.dst) + (unsigned long long)pair * a.of.n_outs;
    row[o] = a.act == EB_MOE_DOWN ? sum : moe_act(a, sum, partner);
}

#endif
