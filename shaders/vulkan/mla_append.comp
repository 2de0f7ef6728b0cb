#version 450
/* mla_append: a new row of the latent cache: rms_norm of the latent, and the key channels that do
 * not turn. One workgroup per row. Large f32 as in norm.comp. */
#extension GL_GOOGLE_include_directive : require
#define EB_REDUCE
#define EB_ARGS eb_mla_append_args
#include "common/args_mla.h"
#include "common.glsl"
#include "mla.glsl"

void main() {
    if (GROUP >= push.n_groups) return;
    uint row = GROUP;
    if (row >= uint(PI32(A.row_offsets).v[A.n_seqs])) return;
    uint seq = mla_seq_of(A.row_offsets, A.n_seqs, row);
    uvec2 to = token_of(A.pages, seq, mla_position(A.row_offsets, A.pages.context, seq, row));
    uvec2 kv = row_of(A.kv, row);
    float largest = 0.0;
    for (uint c = THREAD; c < A.kv_lora; c += THREADS) largest = max(largest, abs(PF32(kv).v[c]));
    largest = group_max(largest);
    /* As in norm.comp. */
    uint power = floatBitsToUint(clamp(largest, 1e-15, 1e30)) & 0x7f800000u;
    float scale = uintBitsToFloat((254u << 23u) - power);
    float sum = 0.0;
    for (uint c = THREAD; c < A.kv_lora; c += THREADS) {
        float v = PF32(kv).v[c] * scale;
        sum += v * v;
    }
    sum = group_sum(sum);
    float root = sqrt(sum / float(A.kv_lora) + A.eps * scale * scale);
    for (uint c = THREAD; c < A.kv_lora; c += THREADS) {
        precise float v = PF32(kv).v[c] * scale;
        v /= root;
        store(to, c, A.pages.dtype, v * load(A.norm_weight.at, c, A.norm_weight.dtype));
    }
    for (uint c = A.rotary_dim + THREAD; c < A.rope_dim; c += THREADS) {
        store(to, A.kv_lora + c, A.pages.dtype, PF32(kv).v[A.kv_lora + c]);
    }
}
