/* moe_place.cuh: a tile of moe_experts' products, as product_tile.cuh and product_matrix.cuh want
 * it: one block of the plan, BM slots of an expert at most, by BN products; with an activation BN /
 * 2 outputs, whose gate and up are partners, PAIR_AT products apart. */
#ifndef EB_MOE_PLACE_CUH
#define EB_MOE_PLACE_CUH

#include "moe.cuh"

template <unsigned DTYPE, unsigned BN, unsigned PAIR_AT>
struct moe_place {
    const eb_moe_round_args &args;
    eb_moe_block block;
    unsigned n_in, parts, out0;
    bool aligned;

    EB_DEVICE explicit moe_place(const eb_moe_round_args &round) : args(round) {
        block = at<const eb_moe_block>(args.of.plan)[block_id() / args.of.blocks];
        n_in = args.of.n_in;
        parts = args.act == EB_MOE_DOWN ? 1 : 2;
        out0 = block_id() % args.of.blocks * (BN / parts);
        aligned = block.n > 0 && is_aligned<DTYPE>(args.of, block.expert, parts == 2);
    }
    EB_DEVICE unsigned part_of(unsigned n) const {
        return parts == 1 ? 0 : n / PAIR_AT % 2;
    }
    EB_DEVICE unsigned output_of(unsigned n) const {
        return out0 + (parts == 1 ? n : n / (2 * PAIR_AT) * PAIR_AT + n % PAIR_AT);
    }
    EB_DEVICE unsigned row_of_w(unsigned n) const {
        unsigned o = output_of(n);
        return o < args.of.n_outs ? o : args.of.n_outs - 1;
    }
    EB_DEVICE const float *x_row(unsigned m) const {
        unsigned slot = block.slot + (m < block.n ? m : block.n - 1);
        return x_row_of(args.of, pair_of(args.of, slot));
    }
    EB_DEVICE eb_addr w_row(unsigned n) const {
        return w_row_of<DTYPE>(args.of, weight_of(args.of, block.expert, part_of(n)), row_of_w(n));
    }
    EB_DEVICE eb_addr scales(unsigned n) const {
        return scale_row_of(args.of, scales_of(args.of, block.expert, part_of(n)), row_of_w(n));
    }
    EB_DEVICE void put(unsigned m, unsigned n, float sum, float partner) const {
        unsigned o = output_of(n);
        if (m < block.n && o < args.of.n_outs && part_of(n) == 0)
            put_pair(args, pair_of(args.of, block.slot + m), o, sum, partner);
    }
};

#endif
