/* format.h: scalar conversions of the number formats that weights and caches come in. */
#ifndef EB_FORMAT_H
#define EB_FORMAT_H

#include <stdint.h>
#include <string.h>

static inline float eb_bf16_to_f32(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Round to nearest, ties to even; NaN stays NaN. */
static inline uint16_t eb_f32_to_bf16(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static inline float eb_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = (h >> 10) & 0x1fu, man = h & 0x3ffu, u;
    if (exp == 0x1fu) {
        u = sign | 0x7f800000u | (man << 13);
    } else if (exp != 0) {
        u = sign | ((exp + 112u) << 23) | (man << 13);
    } else { /* zero or subnormal: man * 2^-24, exact in f32 */
        float f = (float)man * (1.0f / 16777216.0f);
        memcpy(&u, &f, sizeof u);
        u |= sign;
    }
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Round to nearest, ties to even; beyond 65,504 (after rounding) infinity. */
static inline uint16_t eb_f32_to_f16(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (u >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (u >= 0x38800000u) { /* normal */
        u += 0xfffu + ((u >> 13) & 1u);
        return (uint16_t)(sign | ((u - 0x38000000u) >> 13));
    }
    float a; /* subnormal: adding 0.5 lets the FPU round to a multiple of 2^-24 */
    memcpy(&a, &u, sizeof a);
    a += 0.5f;
    memcpy(&u, &a, sizeof u);
    return (uint16_t)(sign | (u - 0x3f000000u));
}

/* 2^(e - 127) with e = 0 as the subnormal 2^-127; 255 is NaN in e8m0. */
static inline float eb_e8m0_to_f32(uint8_t e) {
    uint32_t u = e == 0 ? 0x00400000u : e == 255 ? 0x7fc00000u : (uint32_t)e << 23;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* The 16 values of e2m1; bit 3 is the sign. */
static const float eb_e2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                  -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

#endif
