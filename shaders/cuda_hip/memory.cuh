/* memory.cuh: what lies behind the addresses of argument structs, in the types that it has there. */
#ifndef EB_MEMORY_CUH
#define EB_MEMORY_CUH

#include "common/args.h"
#include "wave.cuh"

/* ebro_dtype, as ebro.h numbers them. */
enum { EB_F32 = 0, EB_F16 = 1, EB_BF16 = 2, EB_MXFP4 = 3 };

template <class T> EB_DEVICE T *at(eb_addr address) { return (T *)address; }

/* 16 bytes that are moved at once. */
struct alignas(16) eb_vec4 {
    float v[4];
};
struct alignas(16) eb_words4 {
    unsigned w[4];
};

EB_DEVICE float from_bf16(unsigned short h) { return float_of((unsigned)h << 16); }

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

EB_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

#endif
