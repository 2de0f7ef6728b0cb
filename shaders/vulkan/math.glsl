/* math.glsl: functions that are good to a few units in the last place on every device. The built-in
 * exp need not be: 3 + 2 |x| units are allowed, and some devices use them. */

/* 2^n for -126 <= n <= 127. */
float power_of_2(int n) {
    return uintBitsToFloat(uint(n + 127) << 23u);
}

/* exp(-a) as m * first * second for any a >= 0: each factor is a normal number, also where the
 * product is none. 0.7 <= m <= 1.5, first and second are powers of two; m = 0 beyond 170, where
 * nothing is left of a product with any f32. */
float exp_neg_parts(float a, out float first, out float second) {
    bool gone = a > 170.0;
    if (gone) a = 0.0;
    precise float t = floor(a * 1.44269504 + 0.5);
    /* ln 2 in two parts, of which the first has so few bits that t times it is exact. */
    precise float r = (t * 0.693359375 - a) - t * 2.12194440e-4;
    precise float p = 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = (p * r) * r + r + 1.0;
    int n = -int(t);
    first = power_of_2(n >> 1);
    second = power_of_2(n - (n >> 1));
    return gone ? 0.0 : p;
}

/* exp(-a), a >= 0. */
float exp_neg(float a) {
    float first, second, m = exp_neg_parts(a, first, second);
    return m * first * second;
}

/* exp(x), x <= 87. */
float exact_exp(float x) {
    return x < 0.0 ? exp_neg(-x) : 1.0 / exp_neg(x);
}

/* sigmoid(x) as m * first * second, as above. A factor that is large may come between the two. NaN
 * stays one. */
float sigmoid_parts(float x, out float first, out float second) {
    float p = exp_neg_parts(abs(x), first, second);
    float below = 1.0 + p * first * second;
    if (!(x < 0.0)) {
        p = isnan(x) ? x : 1.0;
        first = second = 1.0;
    }
    return p / below;
}

float sigmoid(float x) {
    float first, second, m = sigmoid_parts(x, first, second);
    return m * first * second;
}

/* log(1 + e^x): with e = e^-|x| it is max(x, 0) + log(1 + e), and log(1 + e) = 2 artanh(s) with
 * s = e / (2 + e) <= 1/3, whose series is cut where what follows is below 2^-29 of it. */
float softplus(float x) {
    float e = exp_neg(abs(x)), s = e / (2.0 + e), z = s * s;
    precise float p = 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    p = p * z + 1.0;
    return max(x, 0.0) + 2.0 * s * p;
}

/* tanh: a polynomial near 0, where 1 - exp would cancel. NaN stays one. */
float exact_tanh(float x) {
    float a = abs(x), e = exp_neg(a + a), z = x * x;
    if (isnan(x)) return x;
    if (a >= 0.625) return (x < 0.0 ? -1.0 : 1.0) * ((1.0 - e) / (1.0 + e));
    precise float p = -5.70498872745e-3;
    p = p * z + 2.06390887954e-2;
    p = p * z - 5.37397155531e-2;
    p = p * z + 1.33314422036e-1;
    p = p * z - 3.33332819422e-1;
    return p * z * x + x;
}
