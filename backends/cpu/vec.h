/* vec.h: sixteen floats as one value, so that a kernel is written once for every rung that has
 * vectors. CPU_VEC is 0 where the compiler was given none: then there is nothing here, and the
 * kernels have plain loops instead. Private to backends/cpu.
 *
 * Every operation is lane by lane, and a product that is added is always fused, so a lane holds the
 * same bits on all rungs. */
#ifndef EB_CPU_VEC_H
#define EB_CPU_VEC_H

#include "cpu.h"

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__) && defined(__F16C__))
#define CPU_VEC 1
#include <immintrin.h>
#else
#define CPU_VEC 0
#endif

enum { VEC = 16 };

#if CPU_VEC

#define VEC_FN static inline __attribute__((always_inline))

#if defined(__AVX512F__)

typedef __m512 vec;

VEC_FN vec vec_all(float x) {
    return _mm512_set1_ps(x);
}

VEC_FN vec vec_load(const float *p) {
    return _mm512_loadu_ps(p);
}

VEC_FN void vec_store(float *p, vec v) {
    _mm512_storeu_ps(p, v);
}

VEC_FN __mmask16 vec_mask(size_t n) {
    return (__mmask16)((1u << n) - 1u);
}

/* The first n <= VEC lanes; zeros behind them. */
VEC_FN vec vec_load_part(const float *p, size_t n) {
    return _mm512_maskz_loadu_ps(vec_mask(n), p);
}

VEC_FN void vec_store_part(float *p, vec v, size_t n) {
    _mm512_mask_storeu_ps(p, vec_mask(n), v);
}

/* The first n lanes of a, the others of b. */
VEC_FN vec vec_first(vec a, vec b, size_t n) {
    return _mm512_mask_blend_ps(vec_mask(n), b, a);
}

VEC_FN vec vec_load_bf16(const void *p) {
    __m256i h = _mm256_loadu_si256((const __m256i *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

VEC_FN vec vec_load_f16(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

VEC_FN vec vec_add(vec a, vec b) {
    return _mm512_add_ps(a, b);
}

VEC_FN vec vec_sub(vec a, vec b) {
    return _mm512_sub_ps(a, b);
}

VEC_FN vec vec_mul(vec a, vec b) {
    return _mm512_mul_ps(a, b);
}

/* a b + c */
VEC_FN vec vec_fma(vec a, vec b, vec c) {
    return _mm512_fmadd_ps(a, b, c);
}

/* b where either is NaN. */
VEC_FN vec vec_max(vec a, vec b) {
    return _mm512_max_ps(a, b);
}

/* v 2^n, n the integer in the low bits of t; 0 where x < floor. */
VEC_FN vec vec_scale_from(vec v, vec t, vec x, vec floor) {
    __m512i n = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    __m512 power = _mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_set1_epi32(0x3f800000)));
    return _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(x, floor, _CMP_NLT_UQ), v, power);
}

/* Lane i + lane i + 8, for i < 8. */
VEC_FN __m256 vec_half_sum(vec v) {
    __m512d d = _mm512_castps_pd(v);
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm256_castpd_ps(_mm512_extractf64x4_pd(d, 1)));
}

VEC_FN float vec_lane_max(vec v) {
    return _mm512_reduce_max_ps(v);
}

#else

typedef struct vec {
    __m256 lo, hi;
} vec;

VEC_FN vec vec_all(float x) {
    return (vec){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

VEC_FN vec vec_load(const float *p) {
    return (vec){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

VEC_FN void vec_store(float *p, vec v) {
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
}

/* All ones in lanes first .. first + 7 below n. */
VEC_FN __m256i vec_mask(size_t n, int first) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n - first), lane);
}

/* The first n <= VEC lanes; zeros behind them. */
VEC_FN vec vec_load_part(const float *p, size_t n) {
    return (vec){_mm256_maskload_ps(p, vec_mask(n, 0)), _mm256_maskload_ps(p + 8, vec_mask(n, 8))};
}

VEC_FN void vec_store_part(float *p, vec v, size_t n) {
    _mm256_maskstore_ps(p, vec_mask(n, 0), v.lo);
    _mm256_maskstore_ps(p + 8, vec_mask(n, 8), v.hi);
}

/* The first n lanes of a, the others of b. */
VEC_FN vec vec_first(vec a, vec b, size_t n) {
    return (vec){_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(vec_mask(n, 0))),
                 _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(vec_mask(n, 8)))};
}

VEC_FN __m256 vec_widen_bf16(const void *p) {
    __m128i h = _mm_loadu_si128((const __m128i *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

VEC_FN vec vec_load_bf16(const void *p) {
    return (vec){vec_widen_bf16(p), vec_widen_bf16((const uint8_t *)p + 16)};
}

VEC_FN vec vec_load_f16(const void *p) {
    const __m128i *h = (const __m128i *)p;
    return (vec){_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
}

VEC_FN vec vec_add(vec a, vec b) {
    return (vec){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}

VEC_FN vec vec_sub(vec a, vec b) {
    return (vec){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}

VEC_FN vec vec_mul(vec a, vec b) {
    return (vec){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}

/* a b + c */
VEC_FN vec vec_fma(vec a, vec b, vec c) {
    return (vec){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

/* b where either is NaN. */
VEC_FN vec vec_max(vec a, vec b) {
    return (vec){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}

VEC_FN __m256 vec_scale_half(__m256 v, __m256 t, __m256 x, __m256 floor) {
    __m256i n = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    __m256 power = _mm256_castsi256_ps(_mm256_add_epi32(n, _mm256_set1_epi32(0x3f800000)));
    return _mm256_and_ps(_mm256_cmp_ps(x, floor, _CMP_NLT_UQ), _mm256_mul_ps(v, power));
}

/* v 2^n, n the integer in the low bits of t; 0 where x < floor. */
VEC_FN vec vec_scale_from(vec v, vec t, vec x, vec floor) {
    return (vec){vec_scale_half(v.lo, t.lo, x.lo, floor.lo),
                 vec_scale_half(v.hi, t.hi, x.hi, floor.hi)};
}

/* Lane i + lane i + 8, for i < 8. */
VEC_FN __m256 vec_half_sum(vec v) {
    return _mm256_add_ps(v.lo, v.hi);
}

VEC_FN float vec_lane_max(vec v) {
    __m256 m = _mm256_max_ps(v.lo, v.hi);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}

#endif

/* Sum of the lanes, in the order of micro_join. */
VEC_FN float vec_sum(vec v) {
    __m256 s = vec_half_sum(v);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}

/* exp(x) for x <= 0, within two units in the last place; 0 below -87, where results would be
 * subnormal. NaN stays NaN. The reduction to |r| <= ln(2) / 2 and the Taylor polynomial are those
 * of micro_exp_neg. */
VEC_FN vec vec_exp_neg(vec x) {
    const vec magic = vec_all(12582912.0f); /* 1.5 * 2^23: leaves round(x / ln 2) in the low bits */
    vec t = vec_fma(x, vec_all(1.44269504f), magic);
    vec n = vec_sub(t, magic);
    vec r = vec_fma(n, vec_all(-0.693359375f), x);
    r = vec_fma(n, vec_all(2.12194440e-4f), r);
    vec p = vec_all(1.0f / 5040.0f);
    p = vec_fma(p, r, vec_all(1.0f / 720.0f));
    p = vec_fma(p, r, vec_all(1.0f / 120.0f));
    p = vec_fma(p, r, vec_all(1.0f / 24.0f));
    p = vec_fma(p, r, vec_all(1.0f / 6.0f));
    p = vec_fma(p, r, vec_all(0.5f));
    p = vec_add(vec_fma(vec_mul(p, r), r, r), vec_all(1.0f));
    return vec_scale_from(p, t, x, vec_all(-87.0f));
}

/* The first n elements of F32, F16 or BF16, at most VEC; zeros behind them. */
VEC_FN vec vec_load_as(int32_t dtype, const void *p, size_t n) {
    if (n < VEC) {
        float part[VEC] = {0};
        cpu_load(part, dtype, p, n);
        return vec_load(part);
    }
    if (dtype == EBRO_F32) return vec_load((const float *)p);
    return dtype == EBRO_F16 ? vec_load_f16(p) : vec_load_bf16(p);
}

/* The other way: the first n lanes, at most VEC, rounded to nearest. */
VEC_FN void vec_store_as(int32_t dtype, void *p, vec v, size_t n) {
    float part[VEC];
    if (dtype == EBRO_F32 && n >= VEC) {
        vec_store((float *)p, v);
        return;
    }
    vec_store(part, v);
    cpu_store(p, dtype, part, n < VEC ? n : VEC);
}

#endif
#endif
