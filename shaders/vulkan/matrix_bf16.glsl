/* matrix_bf16.glsl: how product_matrix.glsl puts its tiles into bf16: weights as they are, x as two
 * parts. MXFP4 below 2^-126 or above f32 is lost here. */
#include "bf16_parts.glsl"

/* Nothing is scaled. */
void find_scales(uint n_in, bool aligned) {}

#define UNSCALED(sum, m, n) (sum)

void stow_x() {
    [[unroll]] for (uint s = 0u; s < X_SLOTS; s++) {
        uint at = (THREAD + s * T) / 4u * PITCH + THREAD % 4u;
        vec4 a = x_held[2u * s], b = x_held[2u * s + 1u];
        uvec4 near_a = nearest_bf16(a), near_b = nearest_bf16(b);
        x_tile[at] = uvec4(pack_bf16(near_a), pack_bf16(near_b));
        /* Of an infinite x nothing is left. */
        a = mix(a - uintBitsToFloat(near_a), vec4(0.0), isinf(a));
        b = mix(b - uintBitsToFloat(near_b), vec4(0.0), isinf(b));
        x_rest[at] = uvec4(pack_bf16(nearest_bf16(a)), pack_bf16(nearest_bf16(b)));
    }
}

/* Four values of MXFP4 as bf16. */
uvec2 mx_bf16(vec4 v, uint scale) {
    vec4 w = vec4(mx_scaled(v.x, scale), mx_scaled(v.y, scale), mx_scaled(v.z, scale),
                  mx_scaled(v.w, scale));
    return pack_bf16(floatBitsToUint(w) & 0xffff0000u);
}

void stow_w() {
    [[unroll]] for (uint s = 0u; s < W_SLOTS; s++) {
        uint i = THREAD + s * T;
        if (i >= BN * LOADS) continue;
        uint at = i / LOADS * PITCH + i % LOADS;
        if (DTYPE == MXFP4) {
            [[unroll]] for (uint q = 0u; q < 4u; q++) {
                w_tile[at + q] = uvec4(mx_bf16(quad_of(w_held[s], 2u * q), scale_held[s]),
                                       mx_bf16(quad_of(w_held[s], 2u * q + 1u), scale_held[s]));
            }
        } else {
            w_tile[at] = w_held[s];
        }
    }
}
