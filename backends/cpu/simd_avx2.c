/* simd_avx2.c: the vectors of the AVX2 rung (AVX2, FMA, F16C) for the product kernels. */
#include "simd.h"

#if CPU_SIMD

#include <immintrin.h>
#include <stdbool.h>

#define ALWAYS static inline __attribute__((always_inline))

typedef __m256 vector;

/* Twelve sums, and the registers to feed them. */
enum { LANES = 8, N_TILE_ROWS = 3, N_T_ROWS = 6 };

ALWAYS vector zero(void) {
    return _mm256_setzero_ps();
}

ALWAYS vector load(const float *p) {
    return _mm256_loadu_ps(p);
}

/* The first n < LANES; zeros behind them. */
ALWAYS vector load_part(const float *p, uint64_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane));
}

ALWAYS void store(float *p, vector v) {
    _mm256_storeu_ps(p, v);
}

ALWAYS vector add(vector a, vector b) {
    return _mm256_add_ps(a, b);
}

/* a b + c */
ALWAYS vector mul_add(vector a, vector b, vector c) {
    return _mm256_fmadd_ps(a, b, c);
}

ALWAYS vector spread(const float *p) {
    return _mm256_broadcast_ss(p);
}

/* Weights i, i + 1, ... of a row. */
ALWAYS vector wide(const uint8_t *p, uint64_t i, int32_t dtype) {
    if (dtype == EBRO_F32) return _mm256_loadu_ps((const float *)(const void *)p + i);
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(p + 2 * i));
    if (dtype == EBRO_F16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* The first n < LANES of them; zeros behind them. */
ALWAYS vector wide_part(const uint8_t *p, uint64_t i, uint64_t n, int32_t dtype) {
    uint8_t room[LANES * sizeof(float)] = {0};
    uint64_t size = dtype == EBRO_F32 ? 4 : 2;
    memcpy(room, p + i * size, n * size);
    return wide(room, 0, dtype);
}

/* 32 codes of one scale group. Twice a code's value is a small integer. */
ALWAYS void wide_codes(vector out[4], const uint8_t *codes, uint8_t scale) {
    const __m128i twice = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    const __m128i nibble = _mm_set1_epi8(15);
    vector half = _mm256_set1_ps(cpu_from_bits(((uint32_t)scale - 1u) << 23));
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)codes);
    __m128i lo = _mm_and_si128(b, nibble), hi = _mm_and_si128(_mm_srli_epi16(b, 4), nibble);
    __m128i first = _mm_shuffle_epi8(twice, _mm_unpacklo_epi8(lo, hi));
    __m128i second = _mm_shuffle_epi8(twice, _mm_unpackhi_epi8(lo, hi));
    __m256i part[4] = {_mm256_cvtepi8_epi32(first), _mm256_cvtepi8_epi32(_mm_srli_si128(first, 8)),
                       _mm256_cvtepi8_epi32(second),
                       _mm256_cvtepi8_epi32(_mm_srli_si128(second, 8))};
    for (int i = 0; i < 4; i++) out[i] = _mm256_mul_ps(_mm256_cvtepi32_ps(part[i]), half);
}

ALWAYS __m128 join4(const vector a[4]) {
    vector s = _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3]));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

#include "simd_body.h"

#endif
