/* simd_avx512.c: the vectors of the AVX-512 rung (F, BW, DQ, VL) for the product kernels.
 *
 * The bf16 dot product of newer processors (vdpbf16ps) is not used. It takes activations in bf16,
 * whose rounding errors of 2^-9 are far beyond what this backend promises; activations split into
 * two bf16 halves would need two of them for each weight pair and a rounding of their own, while
 * widening a weight costs a shift, hidden behind its load. */
#include "simd.h"

#if CPU_SIMD

#include <immintrin.h>
#include <stdbool.h>

#define ALWAYS static inline __attribute__((always_inline))

typedef __m512 vector;

/* 24 sums, and the registers to feed them. */
enum { LANES = 16, N_TILE_ROWS = 6, N_T_ROWS = 12 };

ALWAYS vector zero(void) {
    return _mm512_setzero_ps();
}

ALWAYS vector load(const float *p) {
    return _mm512_loadu_ps(p);
}

ALWAYS __mmask16 first_lanes(uint64_t n) {
    return (__mmask16)((1u << n) - 1u);
}

/* The first n < LANES; zeros behind them. */
ALWAYS vector load_part(const float *p, uint64_t n) {
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
}

ALWAYS void store(float *p, vector v) {
    _mm512_storeu_ps(p, v);
}

ALWAYS vector add(vector a, vector b) {
    return _mm512_add_ps(a, b);
}

/* a b + c */
ALWAYS vector mul_add(vector a, vector b, vector c) {
    return _mm512_fmadd_ps(a, b, c);
}

ALWAYS vector spread(const float *p) {
    return _mm512_set1_ps(*p);
}

/* Halves or bf16 as floats. */
ALWAYS vector widen16(__m256i h, int32_t dtype) {
    if (dtype == EBRO_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* Weights i, i + 1, ... of a row. */
ALWAYS vector wide(const uint8_t *p, uint64_t i, int32_t dtype) {
    if (dtype == EBRO_F32) return _mm512_loadu_ps((const float *)(const void *)p + i);
    return widen16(_mm256_loadu_si256((const __m256i *)(const void *)(p + 2 * i)), dtype);
}

/* The first n < LANES of them; zeros behind them. */
ALWAYS vector wide_part(const uint8_t *p, uint64_t i, uint64_t n, int32_t dtype) {
    if (dtype == EBRO_F32) return load_part((const float *)(const void *)p + i, n);
    return widen16(_mm256_maskz_loadu_epi16(first_lanes(n), p + 2 * i), dtype);
}

/* 32 codes of one scale group. Twice a code's value is a small integer. */
ALWAYS void wide_codes(vector out[2], const uint8_t *codes, uint8_t scale) {
    const __m128i twice = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    const __m128i nibble = _mm_set1_epi8(15);
    vector half = _mm512_set1_ps(cpu_from_bits(((uint32_t)scale - 1u) << 23));
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)codes);
    __m128i lo = _mm_and_si128(b, nibble), hi = _mm_and_si128(_mm_srli_epi16(b, 4), nibble);
    __m128i first = _mm_shuffle_epi8(twice, _mm_unpacklo_epi8(lo, hi));
    __m128i second = _mm_shuffle_epi8(twice, _mm_unpackhi_epi8(lo, hi));
    out[0] = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(first)), half);
    out[1] = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(second)), half);
}

ALWAYS __m256 fold(vector v) {
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

ALWAYS __m128 join4(const vector a[4]) {
    __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(fold(a[0]), fold(a[1])),
                              _mm256_hadd_ps(fold(a[2]), fold(a[3])));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

#include "simd_body.h"

#endif
