#version 450
/* fill: bytes of one value. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_fill_args
#include "common/args_copy.h"
#include "common.glsl"
#include "bytes.glsl"

void main() {
    if (GROUP >= push.n_groups) return;
    uint chunk_bytes = THREADS * EB_COPY_THREAD_BYTES;
    uvec2 part = chunk_part(A.dst, A.bytes, GROUP, chunk_bytes);
    uvec2 to = plus_mul(uvec2(A.dst.x & ~15u, A.dst.y), GROUP, chunk_bytes);
    uvec4 v = uvec4(A.value * 0x01010101u);
    for (uint u = part.x / 16u + THREAD; u * 16u < part.y; u += THREADS) {
        store_unit(plus(to, u * 16u), v, max(part.x, u * 16u) - u * 16u,
                   min(part.y - u * 16u, 16u));
    }
}
