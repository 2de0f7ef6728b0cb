/* bf16_parts.glsl: f32 as a sum of two bf16, for matrix units. A product is off by 2^-17 at most,
 * hundreds of times less than with one bf16, for twice the work. No finite number becomes infinite.
 */

/* The bf16 next to each value, as f32 bits; the largest one for what rounds beyond it. */
uvec4 nearest_bf16(vec4 x) {
    uvec4 u = floatBitsToUint(x), size = u & 0x7fffffffu;
    uvec4 near = min(size + 0x8000u, uvec4(0x7f7fffffu)) & 0xffff0000u;
    near = mix(near, size & 0xffff0000u, greaterThanEqual(size, uvec4(0x7f800000u)));
    return near | (u & 0x80000000u);
}

/* What it leaves: of an infinite value nothing. */
vec4 bf16_rest(vec4 x) {
    return mix(x - uintBitsToFloat(nearest_bf16(x)), vec4(0.0), isinf(x));
}

uvec2 pack_bf16(uvec4 bits) {
    return uvec2((bits.x >> 16u) | bits.y, (bits.z >> 16u) | bits.w);
}
