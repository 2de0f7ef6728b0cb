/* linear.cuh: which part of a linear call a block computes. */
#ifndef EB_LINEAR_CUH
#define EB_LINEAR_CUH

#include "args_product.h"
#include "weights.cuh"

struct linear_place {
    const eb_linear_item_arg *item;
    unsigned block, row_block;
    eb_addr w, x, dst; /* of the batch */
};

EB_DEVICE linear_place place_of(const eb_linear_args &a) {
    linear_place p;
    unsigned rest = block_id() / a.row_blocks, i = 0, begin = 0;
    p.row_block = block_id() % a.row_blocks;
    for (; rest >= a.items[i].end; i++) begin = a.items[i].end;
    p.item = &a.items[i];
    rest -= begin;
    eb_addr batch = rest / p.item->blocks;
    p.block = rest % p.item->blocks;
    p.w = p.item->w.at + batch * p.item->w_batch;
    p.x = a.x_at + batch * a.x_batch;
    p.dst = p.item->out_at + batch * p.item->out_batch;
    return p;
}

/* Whether all rows of x and of the weights start at multiples of 16 bytes. */
template <unsigned DTYPE>
EB_DEVICE bool is_aligned(const eb_linear_args &a, const linear_place &p) {
    return is_aligned16(p.w | p.x | weight_bytes<DTYPE>(p.item->w.stride) |
                        (unsigned long long)a.x_stride * 4);
}

/* Row r of weights, of their scales, of x. */
template <unsigned DTYPE>
EB_DEVICE eb_addr w_row_of(const linear_place &p, unsigned r) {
    return p.w + weight_bytes<DTYPE>((unsigned long long)r * p.item->w.stride);
}

EB_DEVICE eb_addr scales_of(const linear_place &p, unsigned r) {
    return p.item->w.scales + (eb_addr)r * (p.item->w.cols / 32);
}

EB_DEVICE const float *x_row_of(const eb_linear_args &a, const linear_place &p, unsigned r) {
    return at<const float>(p.x) + (unsigned long long)r * a.x_stride;
}

EB_DEVICE float *out_of(const linear_place &p, unsigned r, unsigned o) {
    return at<float>(p.dst) + (unsigned long long)r * p.item->out_stride + o;
}

/* A sum, where row and output are. */
EB_DEVICE void put_sum(const linear_place &p, unsigned r, unsigned o, float sum) {
    float *out = out_of(p, r, o);
    *out = p.item->accumulate != 0 ? *out + sum : sum;
}

/* A tile of products, as product_tile.cuh and product_matrix.cuh want it: BM rows by BN outputs. */
template <unsigned DTYPE, bool TRANSPOSED, unsigned BM, unsigned BN>
struct linear_tile {
    const eb_linear_args &a;
    linear_place p;
    unsigned n_in, n_outs;
    bool aligned;

    EB_DEVICE explicit linear_tile(const eb_linear_args &args) : a(args), p(place_of(args)) {
        n_in = TRANSPOSED ? p.item->w.rows : p.item->w.cols;
        n_outs = TRANSPOSED ? p.item->w.cols : p.item->w.rows;
        aligned = is_aligned<DTYPE>(args, p);
    }
    EB_DEVICE unsigned output_of(unsigned n) const {
        unsigned o = p.block * BN + n;
        return o < n_outs ? o : n_outs - 1;
    }
    EB_DEVICE const float *x_row(unsigned m) const {
        unsigned r = p.row_block * BM + m;
        return x_row_of(a, p, r < a.n_rows ? r : a.n_rows - 1);
    }
    EB_DEVICE eb_addr w_row(unsigned n) const {
        return w_row_of<DTYPE>(p, output_of(n));
    }
    EB_DEVICE eb_addr scales(unsigned n) const {
        return scales_of(p, output_of(n));
    }
    EB_DEVICE eb_addr w_input(unsigned k, unsigned &first, unsigned &all) const {
        first = p.block * BN;
        all = n_outs;
        return w_row_of<DTYPE>(p, k);
    }
    EB_DEVICE void put(unsigned m, unsigned n, float sum, float) const {
        unsigned r = p.row_block * BM + m, o = p.block * BN + n;
        if (r < a.n_rows && o < n_outs) put_sum(p, r, o, sum);
    }
};

#endif
