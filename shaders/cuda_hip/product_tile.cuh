/* product_tile.cuh: 64 rows of x times 64 outputs, in shared memory: bound by arithmetic. 128
 * threads, 16 along the outputs and 8 along the rows; a thread sums 8 rows by 4 outputs, each a
 * multiply-add of f32.
 *
 * Tiles are 16 inputs deep and kept in quads of inputs, a row 5 of them apart, so that neither
 * storing nor reading meets a bank twice. The next tile is on its way, in registers, while one is
 * multiplied.
 *
 * PLACE, for product_matrix.cuh too, says where rows lie:
 *   n_in, aligned          inputs; whether all rows start at multiples of 16 bytes
 *   x_row(m)               row m of the tile of x; past the last one any row
 *   w_row(n), scales(n)    the weights of output n of the tile, likewise; scales: of MXFP4
 *   put(m, n, sum, partner)  takes a sum; `partner` is that of the output `pair` after it
 * and for transposed weights, one row per input:
 *   w_input(k, first, all) the row of input k; output n of the tile is element first + n of `all`
 */
#ifndef EB_PRODUCT_TILE_CUH
#define EB_PRODUCT_TILE_CUH

#include "shapes.h"
#include "weights.cuh"

template <unsigned DTYPE, bool TRANSPOSED>
struct tile {
    static constexpr unsigned T = EB_TILE_THREADS, BM = EB_PRODUCT_TILE_ROWS, BN = EB_TILE_OUTS,
                              BK = 16, PITCH = 5;
    static constexpr unsigned N_ALONG = 16, M_ALONG = T / N_ALONG, TM = BM / M_ALONG,
                              TN = BN / N_ALONG;
    /* Weights of one load, and loads of a row of the tile. MXFP4: half a unit. */
    static constexpr unsigned LOAD = DTYPE == EB_MXFP4 ? 16 : unit_of<DTYPE>(), LOADS = BK / LOAD;
    static constexpr unsigned X_SLOTS = BM * BK / 4 / T;
    static constexpr unsigned W_SLOTS = TRANSPOSED ? 4 : DTYPE == EB_F32 ? BN * LOADS / T : 1;
    /* Partners stand so far apart in 2 * PAIR_AT outputs. */
    static constexpr unsigned PAIR_AT = BN / 2;

    struct shared {
        eb_vec4 x[BM * PITCH], w[BN * PITCH];
        unsigned scale[BN];
    };
    struct held {
        eb_vec4 x[X_SLOTS];
        eb_words4 w[W_SLOTS];
        unsigned scale;
    };
    const float *x_at[X_SLOTS];
    eb_addr w_at[W_SLOTS], scale_at;
    float sums[TM][TN]; /* rows first_m() + i * 8, outputs first_n() + j * 16 */
    shared &mem;

    EB_DEVICE explicit tile(shared &memory) : mem(memory) {
        EB_UNROLL
        for (unsigned i = 0; i < TM * TN; i++) sums[i / TN][i % TN] = 0.0f;
    }
    EB_DEVICE static unsigned first_m() {
        return thread_id() / N_ALONG;
    }
    EB_DEVICE static unsigned first_n() {
        return thread_id() % N_ALONG;
    }

    /* ---- weights, one row per output: slot s is load w_slot(s) of the tile ---- */

    EB_DEVICE static unsigned w_slot(unsigned s) {
        return thread_id() + s * T;
    }

    EB_DEVICE static eb_words4 load_w(eb_addr row, unsigned first, unsigned n_in, bool aligned) {
        if (first >= n_in) return {{0, 0, 0, 0}};
        if (DTYPE != EB_MXFP4) {
            return first + LOAD > n_in ? load_part<DTYPE>(row, first, n_in)
                                       : load_unit(row, first / LOAD, aligned);
        }
        eb_words4 unit = load_unit(row, first / 32, aligned);
        return first % 32 == 0 ? unit : eb_words4{{unit.w[2], unit.w[3], 0, 0}};
    }

    EB_DEVICE void stow_w(const held &h) {
        EB_UNROLL
        for (unsigned s = 0; s < W_SLOTS; s++) {
            unsigned i = w_slot(s);
            if (i >= BN * LOADS) continue;
            EB_UNROLL
            for (unsigned q = 0; q < LOAD / 4; q++)
                mem.w[i / LOADS * PITCH + i % LOADS * (LOAD / 4) + q] = quad_of<DTYPE>(h.w[s], q);
        }
        if (DTYPE == EB_MXFP4 && thread_id() < BN) mem.scale[thread_id()] = h.scale;
    }

    /* ---- weights, one row per input: a thread takes a unit of outputs at four inputs ---- */

    EB_DEVICE static unsigned t_out() {
        return thread_id() / 4 * unit_of<DTYPE>();
    }
    EB_DEVICE static unsigned t_in() {
        return thread_id() % 4 * 4;
    }

    template <class PLACE>
    EB_DEVICE static eb_words4 load_w_t(const PLACE &p, unsigned k) {
        unsigned first, all;
        if (k >= p.n_in || t_out() >= BN) return {{0, 0, 0, 0}};
        eb_addr row = p.w_input(k, first, all);
        return first + t_out() + unit_of<DTYPE>() > all
                   ? load_part<DTYPE>(row, first + t_out(), all)
                   : load_unit(row, (first + t_out()) / unit_of<DTYPE>(), p.aligned);
    }

    EB_DEVICE void stow_w_t(const held &h) {
        if (t_out() >= BN) return;
        EB_UNROLL
        for (unsigned q = 0; q < unit_of<DTYPE>() / 4; q++) {
            eb_vec4 in[4];
            EB_UNROLL
            for (unsigned k = 0; k < 4; k++) in[k] = quad_of<DTYPE>(h.w[k % W_SLOTS], q);
            EB_UNROLL
            for (unsigned n = 0; n < 4; n++)
                mem.w[(t_out() + 4 * q + n) * PITCH + t_in() / 4] = {
                    {in[0].v[n], in[1].v[n], in[2].v[n], in[3].v[n]}};
        }
    }

    /* ---- both ---- */

    template <class PLACE>
    EB_DEVICE void locate(const PLACE &p) {
        EB_UNROLL
        for (unsigned s = 0; s < X_SLOTS; s++) x_at[s] = p.x_row((thread_id() + s * T) / 4);
        if constexpr (!TRANSPOSED) {
            EB_UNROLL
            for (unsigned s = 0; s < W_SLOTS; s++) w_at[s] = p.w_row(w_slot(s) / LOADS % BN);
            if (DTYPE == EB_MXFP4) scale_at = p.scales(thread_id() % BN);
        }
    }

    /* WHOLE: all of the tile is there and aligned, so that no load waits for a branch; else with
     * zeros behind the last input. */
    template <bool WHOLE, class PLACE>
    EB_DEVICE void fetch_tile(const PLACE &p, unsigned k0, held &h) {
        EB_UNROLL
        for (unsigned s = 0; s < X_SLOTS; s++) {
            unsigned q = k0 / 4 + thread_id() % 4;
            h.x[s] = WHOLE ? x_quad(x_at[s], q, true) : x_part(x_at[s], q, p.n_in, p.aligned);
        }
        EB_UNROLL
        for (unsigned s = 0; s < W_SLOTS; s++) {
            unsigned first = k0 + w_slot(s) % LOADS * LOAD;
            if constexpr (TRANSPOSED)
                h.w[s] = load_w_t(p, k0 + t_in() + s);
            else if constexpr (WHOLE && DTYPE != EB_MXFP4)
                h.w[s] = load_unit(w_at[s], first / LOAD, true);
            else
                h.w[s] = load_w(w_at[s], first, p.n_in, WHOLE || p.aligned);
        }
        if (DTYPE == EB_MXFP4) h.scale = at<const unsigned char>(scale_at)[k0 / 32];
    }

    template <class PLACE>
    EB_DEVICE void fetch(const PLACE &p, unsigned k0, held &h) {
        if (!TRANSPOSED && p.aligned && k0 + BK <= p.n_in)
            fetch_tile<true>(p, k0, h);
        else
            fetch_tile<false>(p, k0, h);
    }

    EB_DEVICE void stow(const held &h) {
        EB_UNROLL
        for (unsigned s = 0; s < X_SLOTS; s++) {
            unsigned i = thread_id() + s * T;
            mem.x[i / 4 * PITCH + i % 4] = h.x[s];
        }
        if constexpr (TRANSPOSED)
            stow_w_t(h);
        else
            stow_w(h);
    }

    EB_DEVICE void multiply() {
        float part[TM][TN];
        EB_UNROLL
        for (unsigned i = 0; i < TM * TN; i++)
            part[i / TN][i % TN] = DTYPE == EB_MXFP4 ? 0.0f : sums[i / TN][i % TN];
        EB_UNROLL
        for (unsigned k = 0; k < BK / 4; k++) {
            eb_vec4 w[TN];
            EB_UNROLL
            for (unsigned j = 0; j < TN; j++) w[j] = mem.w[(first_n() + j * N_ALONG) * PITCH + k];
            EB_UNROLL
            for (unsigned i = 0; i < TM; i++) {
                eb_vec4 x = mem.x[(first_m() + i * M_ALONG) * PITCH + k];
                EB_UNROLL
                for (unsigned j = 0; j < TN; j++) part[i][j] = plus_dot(part[i][j], x, w[j]);
            }
        }
        EB_UNROLL
        for (unsigned j = 0; j < TN; j++) {
            unsigned scale = DTYPE == EB_MXFP4 ? mem.scale[first_n() + j * N_ALONG] : 0;
            EB_UNROLL
            for (unsigned i = 0; i < TM; i++)
                sums[i][j] =
                    DTYPE == EB_MXFP4 ? sums[i][j] + mx_scaled(part[i][j], scale) : part[i][j];
        }
    }
};

/* Sums over all inputs, and puts them. Every thread of the block comes here. */
template <unsigned DTYPE, bool TRANSPOSED, class PLACE>
EB_DEVICE void tile_products(const PLACE &p) {
    typedef tile<DTYPE, TRANSPOSED> tile_type;
    EB_SHARED(typename tile_type::shared, memory, );
    tile_type t(memory);
    typename tile_type::held next;
    t.locate(p);
    t.fetch(p, 0, next);
    for (unsigned k0 = 0; k0 < p.n_in; k0 += tile_type::BK) {
        sync_block();
        t.stow(next);
        sync_block();
        if (k0 + tile_type::BK < p.n_in) t.fetch(p, k0 + tile_type::BK, next);
        t.multiply();
    }
    EB_UNROLL
    for (unsigned i = 0; i < tile_type::TM; i++) {
        EB_UNROLL
        for (unsigned j = 0; j < tile_type::TN; j++) {
            float partner = t.sums[i][(j + tile_type::TN / 2) % tile_type::TN];
            p.put(t.first_m() + i * tile_type::M_ALONG, t.first_n() + j * tile_type::N_ALONG,
                  t.sums[i][j], partner);
        }
    }
}

#endif
