/* memory.cuh: what lies behind the addresses of argument structs, in the types that it has there.
 */
#ifndef EB_MEMORY_CUH
#define EB_MEMORY_CUH

#include "common/args.h"
#include "wave.cuh"

/* ebro_dtype, as ebro.h numbers them. */
enum { EB_F32 = 0, EB_F16 = 1, EB_BF16 = 2, EB_MXFP4 = 3 };

template <class T>
EB_DEVICE T *at(eb_addr address) {
    return (T *)address;
}

/* 16 bytes that are moved at once. */
struct alignas(16) eb_vec4 {
    float v[4];
};
struct alignas(16) eb_words4 {
    unsigned w[4];
};
struct alignas(8) eb_halves4 {
    unsigned short h[4];
};

EB_DEVICE float from_bf16(unsigned short h) {
    return float_of((unsigned)h << 16);
}

/* Rounds to nearest, ties to even; NaN stays one. */
EB_DEVICE unsigned short to_bf16(float f) {
    unsigned u = bits_of(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (unsigned short)(u >> 16 | 0x40u);
    return (unsigned short)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

/* Exact, subnormals included: the exponent is moved by a product with a power of two. */
EB_DEVICE float from_f16(unsigned short h) {
    unsigned sign = (unsigned)(h & 0x8000u) << 16, rest = h & 0x7fffu;
    if (rest >= 0x7c00u) return float_of(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    float f = float_of(rest << 13) * float_of(0x77800000u); /* 2^112 */
    return float_of(sign | bits_of(f));
}

/* Rounds to nearest, ties to even; beyond 65,504 becomes infinite. */
EB_DEVICE unsigned short to_f16(float f) {
    unsigned u = bits_of(f), sign = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (unsigned short)(sign | 0x7e00u);
    if (u >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
    if (u < 0x38800000u) {
        /* Subnormal: the sum's last bit is worth 2^-24, so that the adder rounds. */
        float g = float_of(u) + 0.5f;
        return (unsigned short)(sign | (bits_of(g) - 0x3f000000u));
    }
    u += 0xfffu + (u >> 13 & 1u);
    return (unsigned short)(sign | (u - 0x38000000u) >> 13);
}

/* Element i of dtype F32, F16 or BF16. */
EB_DEVICE float load(eb_addr address, unsigned long long i, unsigned dtype) {
    if (dtype == EB_F32) return at<const float>(address)[i];
    unsigned short h = at<const unsigned short>(address)[i];
    return dtype == EB_BF16 ? from_bf16(h) : from_f16(h);
}

EB_DEVICE void store(eb_addr address, unsigned long long i, unsigned dtype, float v) {
    if (dtype == EB_F32)
        at<float>(address)[i] = v;
    else
        at<unsigned short>(address)[i] = dtype == EB_BF16 ? to_bf16(v) : to_f16(v);
}

/* Row r of a matrix of f32. */
EB_DEVICE float *row_of(const eb_mat_arg &m, unsigned long long r) {
    return at<float>(m.at) + r * m.stride;
}

/* Elements i .. i + 3 of a row of n, zeros behind its end. i is a multiple of 4; wide: the row
 * starts at a multiple of four elements. */
EB_DEVICE eb_vec4 load4(eb_addr address, unsigned i, unsigned n, unsigned dtype, bool wide) {
    eb_vec4 v = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (wide && i + 4 <= n) {
        if (dtype == EB_F32) return at<const eb_vec4>(address)[i / 4];
        eb_halves4 h = at<const eb_halves4>(address)[i / 4];
        for (int j = 0; j < 4; j++)
            v.v[j] = dtype == EB_BF16 ? from_bf16(h.h[j]) : from_f16(h.h[j]);
        return v;
    }
    for (unsigned j = 0; j < 4; j++)
        if (i + j < n) v.v[j] = load(address, i + j, dtype);
    return v;
}

/* The same to an f32 row. */
EB_DEVICE void store4(float *row, unsigned i, unsigned n, eb_vec4 v, bool wide) {
    if (wide && i + 4 <= n) {
        ((eb_vec4 *)row)[i / 4] = v;
        return;
    }
    for (unsigned j = 0; j < 4; j++)
        if (i + j < n) row[i + j] = v.v[j];
}

/* What this thread works on where rows are split by eb_split_rows for four elements a lane: columns
 * [col, col + 4) of a row. False: nothing. */
EB_DEVICE bool row_place(unsigned lanes, unsigned n_chunks, unsigned n_rows, unsigned n_cols,
                         unsigned &row, unsigned &col) {
    unsigned long long item =
        (unsigned long long)block_id() * (n_threads() / lanes) + thread_id() / lanes;
    row = (unsigned)(item / n_chunks);
    col = ((unsigned)(item % n_chunks) * lanes + (thread_id() & (lanes - 1))) * 4;
    return item / n_chunks < n_rows && col < n_cols;
}

#endif
