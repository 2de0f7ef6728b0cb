/* math.cuh: functions whose results are right also where a step on the way leaves the range of f32.
 * The compilers' own expf, tanhf and so on are good to two units in the last place. */
#ifndef EB_MATH_CUH
#define EB_MATH_CUH

#include "wave.cuh"

/* exp(-a / 2), a >= 0; its square is exp(-a), of which nothing is left beyond 170. */
EB_DEVICE float exp_neg_half(float a) {
    return a > 170.0f ? 0.0f : expf(-0.5f * a);
}

/* exp(-a), a >= 0, down to the smallest f32. */
EB_DEVICE float exp_neg(float a) {
    float h = exp_neg_half(a);
    return h * h;
}

/* sigmoid(x) as the product of the result and `half` twice, each a normal number also where the
 * product is none: a factor that is large may come between the two. NaN stays one. */
EB_DEVICE float sigmoid_parts(float x, float &half) {
    float h = exp_neg_half(fabsf(x)), part = 1.0f / (1.0f + h * h);
    half = x < 0.0f ? h : 1.0f;
    return x != x ? x : part;
}

EB_DEVICE float sigmoid(float x) {
    float half, part = sigmoid_parts(x, half);
    return part * half * half;
}

/* log(1 + e^x). */
EB_DEVICE float softplus(float x) {
    return fmaxf(x, 0.0f) + log1pf(exp_neg(fabsf(x)));
}

#endif
