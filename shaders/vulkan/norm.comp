#version 450
/* rms_norm: out = x / sqrt(mean(x^2) + eps) * weight * sigmoid(gate). One workgroup per row.
 * The row is divided by its largest magnitude before it is squared: the square of a large f32 is not
 * an f32. out may be x: a thread reads what it writes. */
#extension GL_GOOGLE_include_directive : require
#define EB_REDUCE
#define EB_ARGS eb_norm_args
#include "common/args_norm.h"
#include "common.glsl"
#include "math.glsl"

void main() {
    if (GROUP >= push.n_groups) return;
    uint row = GROUP;
    uvec2 x = row_of(A.x, row), out_row = row_of(A.dst, row), gate = row_of(A.gate, row);
    float largest = 0.0;
    for (uint c = THREAD; c < A.n_cols; c += THREADS) largest = max(largest, abs(PF32(x).v[c]));
    largest = group_max(largest);
    /* One over a power of two, so that the product rounds nothing. Its square must be an f32 too. */
    uint power = floatBitsToUint(clamp(largest, 1e-15, 1e30)) & 0x7f800000u;
    float scale = uintBitsToFloat((254u << 23u) - power);
    float sum = 0.0;
    for (uint c = THREAD; c < A.n_cols; c += THREADS) {
        float v = PF32(x).v[c] * scale;
        sum += v * v;
    }
    sum = group_sum(sum);
    /* sqrt(mean + eps) = sqrt(mean * scale^2 + eps * scale^2) / scale */
    float root = sqrt(sum / float(A.n_cols) + A.eps * scale * scale);
    for (uint c = THREAD; c < A.n_cols; c += THREADS) {
        /* precise: of scale / root taken first nothing may be left. */
        precise float v = PF32(x).v[c] * scale;
        v /= root;
        if (!absent(A.weight.at)) v *= load(A.weight.at, c, A.weight.dtype);
        if (!absent(A.gate.at)) v *= sigmoid(PF32(gate).v[c]);
        PF32(out_row).v[c] = v;
    }
}
