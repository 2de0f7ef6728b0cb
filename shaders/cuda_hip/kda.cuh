/* kda.cuh: what the KDA kernels share: sequences and their slots, four elements at a time, the
 * gates, taps of the convolution. */
#ifndef EB_KDA_CUH
#define EB_KDA_CUH

#include "common/args_kda.h"
#include "math.cuh"
#include "memory.cuh"
#include "shapes.h"

/* ---- sequences -------------------------------------------------------------------------- */

static EB_DEVICE int int_at(eb_addr address, unsigned i) {
    return at<const int>(address)[i];
}
static EB_DEVICE unsigned uint_at(eb_addr address, unsigned i) {
    return at<const unsigned>(address)[i];
}

static EB_DEVICE unsigned seq_begin(const eb_rows_arg &rows, unsigned s) {
    return (unsigned)int_at(rows.row_offsets, s);
}

/* The last of n_seqs sequences that begins at or before x; begins[s] is where s begins. */
static EB_DEVICE unsigned seq_at(eb_addr begins, unsigned n_seqs, unsigned x) {
    unsigned low = 0, high = n_seqs;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (uint_at(begins, middle) <= x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Unit u of a slot (ebro_region); 0 for slot -1. */
static EB_DEVICE eb_addr slot_unit(const eb_region_arg &g, int slot, unsigned u) {
    if (slot < 0) return 0;
    unsigned unit = g.first_unit + u;
    unsigned long long entry = (unsigned long long)(unsigned)slot * g.table_stride + g.first_block +
                               unit / g.units_per_block;
    return at<const eb_addr>(g.table)[entry] + g.block_offset +
           (eb_addr)(unit % g.units_per_block) * g.unit_bytes;
}

static EB_DEVICE eb_addr unit_in(const eb_state_arg &io, unsigned s, unsigned u) {
    return slot_unit(io.region, int_at(io.state_in, s), u);
}

static EB_DEVICE eb_addr unit_out(const eb_state_arg &io, unsigned s, unsigned u) {
    return slot_unit(io.region, int_at(io.state_out, s), u);
}

/* ---- four elements ---------------------------------------------------------------------- */

/* Whether rows start at multiples of 16 bytes. */
static EB_DEVICE bool is_wide(const eb_mat_arg &m) {
    return m.at % 16 == 0 && m.stride % 4 == 0;
}

static EB_DEVICE eb_vec4 zeros4() {
    return eb_vec4{{0.0f, 0.0f, 0.0f, 0.0f}};
}

/* T: eb_vec4 of floats, eb_halves4 of BF16. `wide`: they start at a multiple of its size. */
template <class T, class E>
EB_DEVICE T load_four(const E *from, bool wide) {
    if (wide) return *(const T *)from;
    return T{{from[0], from[1], from[2], from[3]}};
}

template <class T, class E>
EB_DEVICE void store_four(E *to, bool wide, const T &x) {
    if (wide)
        *(T *)to = x;
    else
        for (unsigned j = 0; j < 4; j++) to[j] = ((const E *)&x)[j];
}

static EB_DEVICE eb_vec4 widen(const eb_vec4 &x) {
    return x;
}
static EB_DEVICE eb_vec4 widen(const eb_halves4 &x) {
    return eb_vec4{{from_bf16(x.h[0]), from_bf16(x.h[1]), from_bf16(x.h[2]), from_bf16(x.h[3])}};
}

static EB_DEVICE void narrow(const eb_vec4 &x, eb_vec4 &to) {
    to = x;
}
static EB_DEVICE void narrow(const eb_vec4 &x, eb_halves4 &to) {
    for (unsigned j = 0; j < 4; j++) to.h[j] = to_bf16(x.v[j]);
}

/* Elements i .. i + 3 of a state, F32 or BF16. `wide`: as state_is_wide says. */
static EB_DEVICE bool state_is_wide(eb_addr state, unsigned dtype) {
    return state % (dtype == EB_F32 ? 16 : 8) == 0;
}

static EB_DEVICE eb_vec4 state_load(eb_addr state, unsigned i, unsigned dtype, bool wide) {
    if (dtype == EB_F32) return load_four<eb_vec4>(at<const float>(state) + i, wide);
    return widen(load_four<eb_halves4>(at<const unsigned short>(state) + i, wide));
}

static EB_DEVICE void state_store(eb_addr state, unsigned i, unsigned dtype, bool wide,
                                  const eb_vec4 &x) {
    if (dtype == EB_F32) return store_four(at<float>(state) + i, wide, x);
    eb_halves4 h;
    narrow(x, h);
    store_four(at<unsigned short>(state) + i, wide, h);
}

/* ---- convolution ------------------------------------------------------------------------ */

/* Taps of channel c, [0] the oldest. */
static EB_DEVICE eb_vec4 conv_taps(const eb_vec_arg &w, unsigned c) {
    if (w.dtype != EB_F16 && state_is_wide(w.at, w.dtype))
        return state_load(w.at, 4 * c, w.dtype, true);
    return eb_vec4{{load(w.at, 4ull * c, w.dtype), load(w.at, 4ull * c + 1, w.dtype),
                    load(w.at, 4ull * c + 2, w.dtype), load(w.at, 4ull * c + 3, w.dtype)}};
}

/* silu of the taps' sum; x0 the oldest input. */
static EB_DEVICE float conv_sum(const eb_vec4 &taps, float x0, float x1, float x2, float x3) {
    float y = ((taps.v[0] * x0 + taps.v[1] * x1) + taps.v[2] * x2) + taps.v[3] * x3;
    return y / (1.0f + expf(-y));
}

/* ---- gates ------------------------------------------------------------------------------ */

/* exp(-a), a >= 0, to a unit in the last place and to either side: a function that is off always to
 * the same side adds up over thousands of decays near 1. 0 beyond 170, where nothing is left of a
 * product with any f32. */
static EB_DEVICE float even_exp_neg(float a) {
    if (a > 170.0f) return 0.0f;
    float t = floorf(a * 1.44269504f + 0.5f);
    /* ln 2 in two parts, of which the first has so few bits that t times it is exact. */
    float r = (t * 0.693359375f - a) - t * 2.12194440e-4f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = (p * r) * r + r + 1.0f;
    /* 2^-t by two factors, since it need not be a normal number. */
    int n = -(int)t, half = n >> 1;
    return p * float_of((unsigned)(half + 127) << 23) * float_of((unsigned)(n - half + 127) << 23);
}

/* exp(A_log) of a head. */
static EB_DEVICE float gate_scale(const eb_kda_gate_arg &gate, unsigned head) {
    return expf(load(gate.a_log.at, head, gate.a_log.dtype));
}

static EB_DEVICE float gate_bias(const eb_kda_gate_arg &gate, unsigned channel) {
    return load(gate.dt_bias.at, channel, gate.dt_bias.dtype);
}

/* What a row leaves of a channel of the state: exp(g), g <= 0. x: raw + bias. */
static EB_DEVICE float gate_decay(const eb_kda_gate_arg &gate, float scale, float x) {
    if (gate.form == 0) return even_exp_neg(scale * softplus(x));
    return even_exp_neg(-gate.lower_bound * sigmoid(scale * x));
}

static EB_DEVICE float gate_beta(const eb_kda_gate_arg &gate, unsigned row, unsigned head) {
    return sigmoid(row_of(gate.beta_raw, row)[head]);
}

#endif
