/* product_matrix.cuh: BM rows of x times 128 rows of weights on matrix units for bf16, summed in
 * f32. A block is a warp for every 32 rows and 64 outputs. PLACE as in product_tile.cuh; weights
 * are BF16 or MXFP4, whose codes are bf16 too: the 32 products of a group are summed by themselves,
 * and then scaled, so that no scale is lost that f32 does not hold. x is split into two bf16, its
 * nearest and the rest's nearest: a product is off by 2^-17 at most.
 *
 * Tiles are 32 inputs deep: four units of 16 bytes a row, at places turned by the row so that eight
 * rows' units lie in different banks. There are two stages: while one is multiplied the next tiles
 * come into registers, and go to the other stage after. */
#ifndef EB_PRODUCT_MATRIX_CUH
#define EB_PRODUCT_MATRIX_CUH

#include "mma.cuh"
#include "shapes.h"
#include "weights.cuh"

/* A row's 32 bf16. */
struct matrix_row {
    eb_words4 units[4];
};

EB_DEVICE eb_words4 *unit_at(matrix_row *rows, unsigned row, unsigned u) {
    return &rows[row].units[u ^ (row / 2 % 4)];
}

/* From here on a bf16 near a value may be infinite. */
constexpr unsigned EB_BEYOND_BF16 = 0x7f7f8000u;

EB_DEVICE unsigned size_bits(float x) {
    return bits_of(x) & 0x7fffffffu;
}

/* The f32 bits of the bf16 next to x; of the largest one for what rounds beyond it. ORDINARY: x is
 * below EB_BEYOND_BF16. */
template <bool ORDINARY>
EB_DEVICE unsigned nearest_bf16(float x) {
    unsigned u = bits_of(x), size = size_bits(x);
    if (ORDINARY || size < EB_BEYOND_BF16) return (u + 0x8000u) & 0xffff0000u;
    if (size < 0x7f800000u) return (u & 0x80000000u) | 0x7f7f0000u;
    return size == 0x7f800000u ? u : (u | 0x400000u) & 0xffff0000u;
}

/* Eight values of x as two units: of the nearest bf16, and of what they leave, of an infinite x
 * nothing. */
template <bool ORDINARY>
EB_DEVICE void split(const eb_vec4 *x, eb_words4 &near, eb_words4 &rest) {
    unsigned n[8], r[8];
    EB_UNROLL
    for (unsigned i = 0; i < 8; i++) {
        float v = x[i / 4].v[i % 4];
        n[i] = nearest_bf16<ORDINARY>(v);
        bool leaves = ORDINARY || size_bits(v) != 0x7f800000u;
        r[i] = nearest_bf16<ORDINARY>(leaves ? v - float_of(n[i]) : 0.0f);
    }
    EB_UNROLL
    for (unsigned i = 0; i < 4; i++) {
        near.w[i] = n[2 * i] >> 16 | n[2 * i + 1];
        rest.w[i] = r[2 * i] >> 16 | r[2 * i + 1];
    }
}

template <unsigned DTYPE, unsigned BM_>
struct matrix_tile {
    static constexpr unsigned BM = BM_, BN = EB_PRODUCT_MATRIX_OUTS, BK = 32, UNITS = BK / 8;
    static constexpr unsigned T = EB_PRODUCT_MATRIX_THREADS(BM);
    /* Fragments of a warp: FM rows of FN, and its rows of x and outputs. */
    static constexpr unsigned FM = 2, FN = 8, WM = FM * 16, WN = FN * 8, PAIR_AT = 8;
    /* A load of x is eight values, one of weights 16 bytes; MXFP4: half of them is put by either of
     * two threads. */
    static constexpr unsigned LOADS = DTYPE == EB_MXFP4 ? 2 : UNITS;
    static constexpr unsigned X_SLOTS = BM * UNITS / T, W_SLOTS = BN * LOADS / T;

    struct stage {
        matrix_row x[BM], rest[BM], w[BN];
        float factors[BN][2]; /* of MXFP4: both halves of the scale */
    };
    struct held {
        eb_vec4 x[X_SLOTS][2];
        eb_words4 w[W_SLOTS];
        unsigned scale[W_SLOTS];
    };
    const float *x_at[X_SLOTS];
    eb_addr w_at[W_SLOTS], scale_at[W_SLOTS];
    mma_sum sums[FM][FN];

    EB_DEVICE static unsigned x_row(unsigned s) {
        return (thread_id() + s * T) / UNITS;
    }
    EB_DEVICE static unsigned w_row(unsigned s) {
        return (thread_id() + s * T) / LOADS;
    }
    EB_DEVICE static unsigned w_load(unsigned s) {
        return (thread_id() + s * T) % LOADS;
    }
    EB_DEVICE static unsigned first_m() {
        return thread_id() / EB_WARP / (BN / WN) * WM;
    }
    EB_DEVICE static unsigned first_n() {
        return thread_id() / EB_WARP % (BN / WN) * WN;
    }

    template <class PLACE>
    EB_DEVICE explicit matrix_tile(const PLACE &p) {
        EB_UNROLL
        for (unsigned f = 0; f < FM * FN; f++) sums[f / FN][f % FN] = {{0.0f, 0.0f, 0.0f, 0.0f}};
        EB_UNROLL
        for (unsigned s = 0; s < X_SLOTS; s++) x_at[s] = p.x_row(x_row(s));
        EB_UNROLL
        for (unsigned s = 0; s < W_SLOTS; s++) {
            w_at[s] = p.w_row(w_row(s));
            if (DTYPE == EB_MXFP4) scale_at[s] = p.scales(w_row(s));
        }
    }

    EB_DEVICE static eb_words4 load_w(eb_addr row, unsigned first, unsigned n_in, bool aligned) {
        if (first >= n_in) return {{0, 0, 0, 0}};
        if (DTYPE == EB_BF16 && first + 8 > n_in) return load_part<DTYPE>(row, first, n_in);
        return load_unit(row, first / unit_of<DTYPE>(), aligned);
    }

    /* WHOLE: all of the tile is there and aligned, so that no load waits for a branch; else with
     * zeros behind the last input. */
    template <bool WHOLE, class PLACE>
    EB_DEVICE void fetch_tile(const PLACE &p, unsigned k0, held &h) {
        EB_UNROLL
        for (unsigned s = 0; s < X_SLOTS; s++) {
            EB_UNROLL
            for (unsigned i = 0; i < 2; i++) {
                unsigned q = k0 / 4 + thread_id() % UNITS * 2 + i;
                h.x[s][i] =
                    WHOLE ? x_quad(x_at[s], q, true) : x_part(x_at[s], q, p.n_in, p.aligned);
            }
        }
        EB_UNROLL
        for (unsigned s = 0; s < W_SLOTS; s++) {
            unsigned first = DTYPE == EB_MXFP4 ? k0 : k0 + w_load(s) * 8;
            h.w[s] = WHOLE ? load_unit(w_at[s], first / unit_of<DTYPE>(), true)
                           : load_w(w_at[s], first, p.n_in, p.aligned);
            if (DTYPE == EB_MXFP4) h.scale[s] = at<const unsigned char>(scale_at[s])[k0 / 32];
        }
    }

    template <class PLACE>
    EB_DEVICE void fetch(const PLACE &p, unsigned k0, held &h) {
        if (p.aligned && k0 + BK <= p.n_in)
            fetch_tile<true>(p, k0, h);
        else
            fetch_tile<false>(p, k0, h);
    }

    EB_DEVICE static void stow_x(stage &to, unsigned row, const eb_vec4 *x) {
        eb_words4 near, rest;
        unsigned most = 0;
        EB_UNROLL
        for (unsigned i = 0; i < 8; i++) {
            unsigned size = size_bits(x[i / 4].v[i % 4]);
            most = size > most ? size : most;
        }
        if (most < EB_BEYOND_BF16)
            split<true>(x, near, rest);
        else
            split<false>(x, near, rest);
        *unit_at(to.x, row, thread_id() % UNITS) = near;
        *unit_at(to.rest, row, thread_id() % UNITS) = rest;
    }

    /* Sixteen codes of a group, and its scale. */
    EB_DEVICE static void stow_codes(stage &to, unsigned row, unsigned half, const eb_words4 &codes,
                                     unsigned scale) {
        EB_UNROLL
        for (unsigned i = 0; i < 2; i++) {
            eb_words4 unit;
            unsigned word = half == 0 ? codes.w[i] : codes.w[2 + i];
            EB_UNROLL
            for (unsigned j = 0; j < 4; j++)
                unit.w[j] = bits_of(e2m1(word >> j * 8)) >> 16 | bits_of(e2m1(word >> (j * 8 + 4)));
            *unit_at(to.w, row, half * 2 + i) = unit;
        }
        to.factors[row][half] = mx_factor(scale, half);
    }

    EB_DEVICE void stow(stage &to, const held &h) {
        EB_UNROLL
        for (unsigned s = 0; s < X_SLOTS; s++) stow_x(to, x_row(s), h.x[s]);
        EB_UNROLL
        for (unsigned s = 0; s < W_SLOTS; s++) {
            if (DTYPE == EB_MXFP4)
                stow_codes(to, w_row(s), w_load(s), h.w[s], h.scale[s]);
            else
                *unit_at(to.w, w_row(s), w_load(s)) = h.w[s];
        }
    }

    /* Two columns of fragments with one tile's inputs. */
    EB_DEVICE void multiply_pair(stage &from, const mma_a (&x)[2][FM][2], unsigned j) {
        mma_sum part[FM][2];
        mma_b w[2][2]; /* [k][column] */
        auto unit = [&](unsigned row, unsigned u) { return unit_at(from.w, row, u); };
        EB_UNROLL
        for (unsigned k = 0; k < 2; k++) load_b(w[k], unit, first_n() + j * 8, k * 2);
        EB_UNROLL
        for (unsigned f = 0; f < FM * 2; f++)
            part[f / 2][f % 2] =
                DTYPE == EB_MXFP4 ? mma_sum{{0.0f, 0.0f, 0.0f, 0.0f}} : sums[f / 2][j + f % 2];
        EB_UNROLL
        for (unsigned step = 0; step < 4; step++) {
            unsigned k = step / 2, of_x = 1 - step % 2; /* the rest first: it is small */
            EB_UNROLL
            for (unsigned f = 0; f < FM * 2; f++)
                multiply_add(part[f / 2][f % 2], x[of_x][f / 2][k], w[k][f % 2]);
        }
        EB_UNROLL
        for (unsigned f = 0; f < FM * 2; f++) {
            mma_sum &sum = sums[f / 2][j + f % 2], &own = part[f / 2][f % 2];
            const float(*factors)[2] =
                &from.factors[first_n() + (j + f % 2) * 8 + thread_id() % 4 * 2];
            EB_UNROLL
            for (unsigned i = 0; i < 4; i++) {
                sum.v[i] = DTYPE == EB_MXFP4
                               ? sum.v[i] + own.v[i] * factors[i % 2][0] * factors[i % 2][1]
                               : own.v[i];
            }
        }
    }

    EB_DEVICE void multiply(stage &from) {
        mma_a x[2][FM][2]; /* [part][fragment][k] */
        EB_UNROLL
        for (unsigned part = 0; part < 2; part++) {
            auto unit = [&](unsigned row, unsigned u) {
                return unit_at(part == 0 ? from.x : from.rest, row, u);
            };
            EB_UNROLL
            for (unsigned f = 0; f < FM * 2; f++)
                x[part][f / 2][f % 2] = load_a(unit, first_m() + f / 2 * 16, f % 2 * 2);
        }
        EB_UNROLL
        for (unsigned j = 0; j < FN; j += 2) multiply_pair(from, x, j);
    }

    template <class PLACE>
    EB_DEVICE void put(const PLACE &p) const {
        unsigned lane = thread_id() % EB_WARP;
        EB_UNROLL
        for (unsigned f = 0; f < FM * FN; f++) {
            unsigned m = first_m() + f / FN * 16 + lane / 4;
            unsigned n = first_n() + f % FN * 8 + lane % 4 * 2;
            EB_UNROLL
            for (unsigned i = 0; i < 4; i++)
                p.put(m + i / 2 * 8, n + i % 2, sums[f / FN][f % FN].v[i],
                      sums[f / FN][f % FN ^ 1].v[i]);
        }
    }
};

/* Sums over all inputs, and puts them. Every thread of the block comes here. */
template <unsigned DTYPE, unsigned BM, class PLACE>
EB_DEVICE void matrix_products(const PLACE &p) {
    typedef matrix_tile<DTYPE, BM> tile_type;
    static_assert(2 * sizeof(typename tile_type::stage) == EB_PRODUCT_MATRIX_BYTES(BM),
                  "shapes.h says how much shared memory is asked for");
    EB_DYNAMIC_SHARED(typename tile_type::stage, stages);
    tile_type t(p);
    typename tile_type::held next;
    t.fetch(p, 0, next);
    t.stow(stages[0], next);
    for (unsigned k0 = 0, now = 0; k0 < p.n_in; k0 += tile_type::BK, now = 1 - now) {
        bool goes_on = k0 + tile_type::BK < p.n_in;
        sync_block();
        if (goes_on) t.fetch(p, k0 + tile_type::BK, next);
        t.multiply(stages[now]);
        if (goes_on) t.stow(stages[1 - now], next);
    }
    t.put(p);
}

#endif
