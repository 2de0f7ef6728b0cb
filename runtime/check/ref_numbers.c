/* ref_numbers.c: numbers in memory and functions of one number, in float64. */
#include <math.h>
#include <string.h>

#include "check/ref.h"

static double half(uint16_t h) {
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double x = exponent > 0 ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    if (exponent == 31) x = mantissa != 0 ? (double)NAN : (double)INFINITY;
    return h & 0x8000 ? -x : x;
}

static double single(uint32_t bits) {
    int exponent = (int)(bits >> 23 & 255), mantissa = (int)(bits & 0x7fffff);
    double x = exponent > 0 ? ldexp(0x800000 + mantissa, exponent - 150) : ldexp(mantissa, -149);
    if (exponent == 255) x = mantissa != 0 ? (double)NAN : (double)INFINITY;
    return bits >> 31 ? -x : x;
}

double eb_ref_element(int32_t dtype, const uint8_t *p) {
    uint32_t bits;
    uint16_t h;
    if (dtype == EBRO_F32) {
        memcpy(&bits, p, sizeof bits);
        return single(bits);
    }
    memcpy(&h, p, sizeof h);
    return dtype == EBRO_F16 ? half(h) : single((uint32_t)h << 16);
}

double eb_ref_mx(uint32_t code, uint32_t scale) {
    static const double magnitude[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return (code & 8u ? -1.0 : 1.0) * ldexp(magnitude[code & 7u], (int)scale - 127);
}

float eb_ref_bf16(double x) {
    if (x == 0.0) return 0.0f;
    int e;
    (void)frexp(x, &e); /* 8 bits of precision, the least exponent -126 */
    int last = e - 8 < -133 ? -133 : e - 8;
    return (float)ldexp(nearbyint(ldexp(x, -last)), last);
}

double eb_ref_sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}

double eb_ref_act(int32_t kind, double beta, double beta2, double gate, double up) {
    double s = eb_ref_sigmoid(gate);
    if (kind == EBRO_ACT_SITU) return beta * tanh(gate / beta) * s * beta2 * tanh(up / beta2);
    return kind == EBRO_ACT_SILU ? gate * s * up : s * up;
}
