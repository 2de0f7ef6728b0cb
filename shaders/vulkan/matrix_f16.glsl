/* matrix_f16.glsl: how product_matrix.glsl puts its tiles into f16. That holds 30 powers of two
 * without loss, so every row of x and of the weights is scaled by a power of two of its own: its
 * largest finite value comes to lie between 2^14 and 2^15. Sums, at most 2^31 times their number, are
 * scaled back. The rows are read once more for that, before the products.
 *
 * x is then split into two f16, what the first one leaves goes to the second: it is off by 2^-23 of
 * itself or 2^-28 of its row's largest value, whichever is more. Weights of 16 bits stay exact down to
 * 2^-28 of their row's largest, MXFP4 down to 2^-26 of the row's largest scale; what is smaller
 * goes wrong by as much as that. (Where matrix units keep subnormals, 2^-39 stands for 2^-28.) */

/* Exponents of the largest values, as f32 has them, and 15 at least, so that all factors are normal
 * numbers; 0 until they are found. */
shared uint x_top[BM], w_top[BN];

const uint LEAST_TOP = 15u;

float x_factor[X_SLOTS], w_factor[W_SLOTS]; /* of a row; for MXFP4 w_top, as a float */

/* The largest exponent of four values, infinite ones and NaN left out. */
uint top_of(vec4 v) {
    uvec4 e = (floatBitsToUint(v) >> 23u) & 0xffu;
    e = mix(e, uvec4(0u), equal(e, uvec4(255u)));
    return max(max(e.x, e.y), max(e.z, e.w));
}

/* 2^14 for the top's power of two. */
float factor_of(uint top) {
    return uintBitsToFloat((268u - top) << 23u);
}

/* Of a slot that holds a part of its row. */
uint w_top_of(uint s) {
    if (DTYPE == MXFP4) return scale_held[s] == 255u ? 0u : scale_held[s] + 1u;
    return max(top_of(quad_of(w_held[s], 0u)), top_of(quad_of(w_held[s], 1u)));
}

void find_scales(uint n_in, bool aligned) {
    for (uint i = THREAD; i < BM; i += T) x_top[i] = LEAST_TOP;
    for (uint i = THREAD; i < BN; i += T) w_top[i] = LEAST_TOP;
    uint x_most[X_SLOTS], w_most[W_SLOTS];
    [[unroll]] for (uint s = 0u; s < X_SLOTS; s++) x_most[s] = 0u;
    [[unroll]] for (uint s = 0u; s < W_SLOTS; s++) w_most[s] = 0u;
    for (uint k0 = 0u; k0 < n_in; k0 += BK) {
        fetch(k0, n_in, aligned);
        [[unroll]] for (uint s = 0u; s < X_SLOTS; s++) {
            x_most[s] = max(x_most[s], max(top_of(x_held[2u * s]), top_of(x_held[2u * s + 1u])));
        }
        [[unroll]] for (uint s = 0u; s < W_SLOTS; s++) w_most[s] = max(w_most[s], w_top_of(s));
    }
    barrier();
    [[unroll]] for (uint s = 0u; s < X_SLOTS; s++) atomicMax(x_top[X_ROW(s)], x_most[s]);
    [[unroll]] for (uint s = 0u; s < W_SLOTS; s++) atomicMax(w_top[W_ROW(s)], w_most[s]);
    barrier();
    [[unroll]] for (uint s = 0u; s < X_SLOTS; s++) x_factor[s] = factor_of(x_top[X_ROW(s)]);
    [[unroll]] for (uint s = 0u; s < W_SLOTS; s++) {
        uint top = w_top[W_ROW(s)];
        w_factor[s] = DTYPE == MXFP4 ? float(top) : factor_of(top);
    }
}

/* A sum of scaled products, of row m and output n of the tile. The factor is applied in halves, each a normal number. */
float unscaled(float sum, uint m, uint n) {
    int power = int(x_top[m] + w_top[n]) - 282, half_power = power >> 1;
    float a = uintBitsToFloat(uint(half_power + 127) << 23u);
    float b = uintBitsToFloat(uint(power - half_power + 127) << 23u);
    return sum * a * b;
}

#define UNSCALED(sum, m, n) unscaled(sum, m, n)

/* The f16 next to each value below 2^15, as f32; infinite values and NaN stay. */
vec4 nearest_f16(vec4 x) {
    uvec4 u = floatBitsToUint(x), near = (u + 0x1000u) & 0xffffe000u;
    return uintBitsToFloat(mix(near, u, greaterThanEqual(u & 0x7fffffffu, uvec4(0x7f800000u))));
}

uvec2 pack_f16(vec4 v) {
    return uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw));
}

void stow_x() {
    [[unroll]] for (uint s = 0u; s < X_SLOTS; s++) {
        uint at = X_ROW(s) * PITCH + THREAD % 4u;
        vec4 a = x_held[2u * s] * x_factor[s], b = x_held[2u * s + 1u] * x_factor[s];
        vec4 near_a = nearest_f16(a), near_b = nearest_f16(b);
        x_tile[at] = uvec4(pack_f16(near_a), pack_f16(near_b));
        /* Of an infinite x nothing is left. */
        a = mix(a - near_a, vec4(0.0), isinf(a));
        b = mix(b - near_b, vec4(0.0), isinf(b));
        x_rest[at] = uvec4(pack_f16(nearest_f16(a)), pack_f16(nearest_f16(b)));
    }
}

/* What quarters of MXFP4 are multiplied by: the largest code of the largest scale comes to
 * 1.5 * 2^15. */
float mx_factor(uint scale, float top) {
    if (scale == 255u) return uintBitsToFloat(0x7fc00000u);
    return uintBitsToFloat(uint(max(int(scale) + 143 - int(top), 0)) << 23u);
}

void stow_w() {
    [[unroll]] for (uint s = 0u; s < W_SLOTS; s++) {
        uint i = THREAD + s * T;
        if (i >= BN * LOADS) continue;
        uint at = i / LOADS * PITCH + i % LOADS;
        float f = DTYPE == MXFP4 ? mx_factor(scale_held[s], w_factor[s]) : w_factor[s];
        [[unroll]] for (uint q = 0u; q < UNIT / 8u; q++) {
            w_tile[at + q] = uvec4(pack_f16(quad_of(w_held[s], 2u * q) * f),
                                   pack_f16(quad_of(w_held[s], 2u * q + 1u) * f));
        }
    }
}
