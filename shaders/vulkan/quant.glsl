/* quant.glsl: weights as they lie in memory, in units of 16 bytes, and f32 rows to go with them.
 * Knows nothing of products. Included after common.glsl.
 *
 * A row of weights is walked unit by unit: load_unit gets the 16 bytes, quad_of decodes four of
 * their values at a time. MXFP4 is decoded to a quarter of its code's value; mx_scaled applies the
 * group's scale, and that factor, to a finished sum of products: 2^127 meets x before it meets the
 * end of f32, and 2^-127 before it is lost. A unit of MXFP4 is one group. */

/* Of the weights. */
layout(constant_id = 2) const uint DTYPE = F32;
/* Not 0: rows of weights and of x start at multiples of 16 bytes. */
layout(constant_id = 3) const uint ALIGNED = 0;

/* Values of a unit, and groups of four values. */
const uint UNIT = DTYPE == F32 ? 4u : DTYPE == MXFP4 ? 32u : 8u;
const uint QUADS = UNIT / 4u;

/* Four bytes at any address. */
uint word_at(uvec2 at) {
    uint shift = (at.x & 3u) * 8u;
    PU32 words = PU32(uvec2(at.x & ~3u, at.y));
    uint low = words.v[0], high = words.v[shift == 0u ? 0u : 1u];
    return shift == 0u ? low : (low >> shift) | (high << (32u - shift));
}

/* 16 bytes at any address, all loads before the first branch, so that they overlap. */
uvec4 words_at(uvec2 at) {
    uint shift = (at.x & 3u) * 8u, back = 32u - shift;
    PU32 w = PU32(uvec2(at.x & ~3u, at.y));
    uvec4 low = uvec4(w.v[0], w.v[1], w.v[2], w.v[3]);
    uint last = w.v[shift == 0u ? 3u : 4u];
    if (shift == 0u) return low;
    return (low >> shift) | (uvec4(low.yzw, last) << back);
}

/* Unit u of a row. */
uvec4 load_unit(uvec2 row, uint u, bool aligned) {
    if (aligned) return PUvec4(row).v[u];
    return words_at(plus(row, u * 16u));
}

/* Two bytes of a row that has n of them, or zero. */
uint half_word(uvec2 row, uint i, uint n) {
    return i < n ? uint(PU16(row).v[i]) : 0u;
}

/* The unit that holds value `first` of a row of n, zeros behind its end. Not for MXFP4, whose rows
 * end with a unit. */
uvec4 load_part(uvec2 row, uint first, uint n) {
    uvec4 q = uvec4(0u);
    [[unroll]] for (uint j = 0u; j < 4u; j++) {
        if (DTYPE == F32) {
            if (first + j < n) q[j] = PU32(row).v[first + j];
        } else {
            uint i = first + 2u * j;
            q[j] = half_word(row, i, n) | (half_word(row, i + 1u, n) << 16u);
        }
    }
    return q;
}

/* Quarters of four E2M1 codes. A code's exponent and mantissa bits, put under an exponent of 124,
 * give a quarter of its value where its exponent is not 0, and else (value / 4 + 1 / 4) / 2: the
 * smaller one of both readings is right for all, without a subnormal on the way. */
vec4 e2m1(uint codes) {
    uvec4 c = uvec4(codes, codes >> 4u, codes >> 8u, codes >> 12u);
    vec4 v = uintBitsToFloat(((c << 22u) & 0x01c00000u) | 0x3e000000u);
    v = min(v, 2.0 * v - 0.25);
    return uintBitsToFloat(floatBitsToUint(v) | ((c << 28u) & 0x80000000u));
}

/* Values 4 i .. 4 i + 3 of a unit. */
vec4 quad_of(uvec4 unit, uint i) {
    if (DTYPE == F32) return uintBitsToFloat(unit);
    if (DTYPE == MXFP4) return e2m1(unit[i / 2u] >> (16u * (i & 1u)));
    uint a = unit[2u * i], b = unit[2u * i + 1u];
    if (DTYPE == F16) return vec4(unpackHalf2x16(a), unpackHalf2x16(b));
    return uintBitsToFloat(uvec4(a << 16u, a & 0xffff0000u, b << 16u, b & 0xffff0000u));
}

/* sum * 4 * 2^(scale - 127), with 255 for NaN: in two steps, for the factor need not be an f32. */
float mx_scaled(float sum, uint scale) {
    int power = int(scale) - 125, half_power = power >> 1;
    float a = uintBitsToFloat(uint(half_power + 127) << 23u);
    float b = uintBitsToFloat(uint(power - half_power + 127) << 23u);
    return scale == 255u ? uintBitsToFloat(0x7fc00000u) : sum * a * b;
}

/* Values 4 q .. 4 q + 3 of an f32 row. */
vec4 x_quad(uvec2 row, uint q, bool aligned) {
    if (aligned) return PVec4(row).v[q];
    PF32 x = PF32(row);
    return vec4(x.v[4u * q], x.v[4u * q + 1u], x.v[4u * q + 2u], x.v[4u * q + 3u]);
}

/* The same of a row of n, zeros behind its end. */
vec4 x_part(uvec2 row, uint q, uint n) {
    vec4 v = vec4(0.0);
    [[unroll]] for (uint j = 0u; j < 4u; j++) {
        if (4u * q + j < n) v[j] = PF32(row).v[4u * q + j];
    }
    return v;
}

/* sum + a . b, as multiply-adds. */
float plus_dot(float sum, vec4 a, vec4 b) {
    sum += a.x * b.x;
    sum += a.y * b.y;
    sum += a.z * b.z;
    sum += a.w * b.w;
    return sum;
}
