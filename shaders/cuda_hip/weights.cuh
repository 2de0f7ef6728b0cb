/* weights.cuh: weights as they lie in memory, in units of 16 bytes along a row: load_unit gets one,
 * quad_of decodes four of its values. MXFP4 is decoded to quarters of its codes' values; mx_scaled
 * applies the group's scale, and that factor, to a finished sum of products: a scale of 2^127 meets
 * x before it meets the end of f32, and 2^-127 before it is lost. A unit of MXFP4 is one group. */
#ifndef EB_WEIGHTS_CUH
#define EB_WEIGHTS_CUH

#include "memory.cuh"

/* Values of a unit. */
template <unsigned DTYPE>
EB_DEVICE constexpr unsigned unit_of() {
    return DTYPE == EB_F32 ? 4 : DTYPE == EB_MXFP4 ? 32 : 8;
}

/* Bytes of n values in a row. */
template <unsigned DTYPE>
EB_DEVICE unsigned long long weight_bytes(unsigned long long n) {
    return DTYPE == EB_F32 ? n * 4 : DTYPE == EB_MXFP4 ? n / 2 : n * 2;
}

EB_DEVICE bool is_aligned16(unsigned long long bits) {
    return bits % 16 == 0;
}

/* 16 bytes at any address, from the aligned words that hold them. */
EB_DEVICE eb_words4 words_at(eb_addr address) {
    const unsigned *from = at<const unsigned>(address & ~(eb_addr)3);
    unsigned shift = (unsigned)(address & 3) * 8;
    eb_words4 v = {{from[0], from[1], from[2], from[3]}};
    if (shift == 0) return v;
    unsigned last = from[4];
    EB_UNROLL
    for (int i = 0; i < 4; i++)
        v.w[i] = v.w[i] >> shift | (i < 3 ? v.w[(i + 1) % 4] : last) << (32 - shift);
    return v;
}

/* Unit u of a row. */
EB_DEVICE eb_words4 load_unit(eb_addr row, unsigned u, bool aligned) {
    return aligned ? at<const eb_words4>(row)[u] : words_at(row + (eb_addr)u * 16);
}

/* The unit that begins with value `first` of a row of n, zeros behind the row's end. Not for MXFP4,
 * whose rows end with a unit. */
template <unsigned DTYPE>
EB_DEVICE eb_words4 load_part(eb_addr row, unsigned first, unsigned n) {
    eb_words4 v = {{0, 0, 0, 0}};
    EB_UNROLL
    for (unsigned j = 0; j < unit_of<DTYPE>(); j++) {
        if (first + j >= n) continue;
        if (DTYPE == EB_F32)
            v.w[j % 4] = at<const unsigned>(row)[first + j];
        else
            v.w[j / 2 % 4] |= (unsigned)at<const unsigned short>(row)[first + j] << j % 2 * 16;
    }
    return v;
}

/* A quarter of the value of an E2M1 code. Its three lower bits, put where f32 has the last bits of
 * its exponent and the first one of its mantissa, are its value times 2^-126, subnormal where the
 * code is. */
EB_DEVICE float e2m1(unsigned code) {
    return float_of((code & 7u) << 22 | (code & 8u) << 28) * float_of(0x7d800000u); /* 2^124 */
}

/* Values 4 i .. 4 i + 3 of a unit. */
template <unsigned DTYPE>
EB_DEVICE eb_vec4 quad_of(const eb_words4 &unit, unsigned i) {
    eb_vec4 v;
    EB_UNROLL
    for (unsigned j = 0; j < 4; j++) {
        unsigned half = unit.w[(2 * i + j / 2) % 4] >> j % 2 * 16;
        if (DTYPE == EB_F32)
            v.v[j] = float_of(unit.w[j]);
        else if (DTYPE == EB_MXFP4)
            v.v[j] = e2m1(unit.w[i / 2] >> (i % 2 * 16 + j * 4));
        else
            v.v[j] =
                DTYPE == EB_BF16 ? from_bf16((unsigned short)half) : from_f16((unsigned short)half);
    }
    return v;
}

/* 4 * 2^(scale - 127), with 255 for NaN, as the product of two factors, for it need not be an f32.
 */
EB_DEVICE float mx_factor(unsigned scale, unsigned which) {
    int power = (int)scale - 125, half_power = power >> 1;
    if (scale == 255) return float_of(0x7fc00000u);
    return float_of((unsigned)((which == 0 ? half_power : power - half_power) + 127) << 23);
}

EB_DEVICE float mx_scaled(float sum, unsigned scale) {
    return sum * mx_factor(scale, 0) * mx_factor(scale, 1);
}

/* Values 4 q .. 4 q + 3 of an f32 row. */
EB_DEVICE eb_vec4 x_quad(const float *x, unsigned q, bool aligned) {
    if (aligned) return ((const eb_vec4 *)x)[q];
    return {{x[4 * q], x[4 * q + 1], x[4 * q + 2], x[4 * q + 3]}};
}

/* The same of a row of n, zeros behind its end. */
EB_DEVICE eb_vec4 x_part(const float *x, unsigned q, unsigned n, bool aligned) {
    if (4 * q + 4 <= n) return x_quad(x, q, aligned);
    eb_vec4 v = {{0.0f, 0.0f, 0.0f, 0.0f}};
    EB_UNROLL
    for (unsigned j = 0; j < 4; j++)
        if (4 * q + j < n) v.v[j] = x[4 * q + j];
    return v;
}

/* sum + a . b */
EB_DEVICE float plus_dot(float sum, const eb_vec4 &a, const eb_vec4 &b) {
    EB_UNROLL
    for (int j = 0; j < 4; j++) sum += a.v[j] * b.v[j];
    return sum;
}

#endif
