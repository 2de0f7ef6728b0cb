#version 450
/* copy: rows of bytes, by number (rows_copy) or by address (state_copy). */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_copy_args
#include "common/args_copy.h"
#include "common.glsl"
#include "bytes.glsl"

/* Where row i of a side lies; 0 for none. */
uvec2 place(uvec2 at, uvec2 rows, uvec2 stride, uint i) {
    if (A.tables != 0u) return PUvec2(at).v[i];
    uint row = i;
    if (!absent(rows)) {
        int listed = PI32(rows).v[i];
        if (listed < 0) return uvec2(0u);
        row = uint(listed);
    }
    return plus(plus_mul(at, row, stride.x), uvec2(0u, row * stride.y));
}

void main() {
    if (GROUP >= push.n_groups) return;
    uint lanes = A.lanes, lane = THREAD & (lanes - 1u);
    /* lanes < THREADS only where a row is one chunk, so that this fits 32 bits. */
    uint item = GROUP * (THREADS / lanes) + THREAD / lanes;
    uint row = item / A.n_chunks, chunk = item % A.n_chunks;
    if (row >= A.n_rows) return;
    uvec2 src = place(A.src, A.src_rows, A.src_stride, row);
    uvec2 dst = place(A.dst, A.dst_rows, A.dst_stride, row);
    if (absent(dst)) return;
    uint chunk_bytes = lanes * EB_COPY_THREAD_BYTES;
    uvec2 part = chunk_part(dst, A.row_bytes, chunk, chunk_bytes);
    uvec2 to = plus_mul(uvec2(dst.x & ~15u, dst.y), chunk, chunk_bytes);
    /* The source's byte that goes to `to`: before src where dst is not aligned. */
    uvec2 from = plus_mul(src, chunk, chunk_bytes);
    uint borrow;
    from.x = usubBorrow(from.x, dst.x & 15u, borrow);
    from.y -= borrow;
    for (uint u = part.x / 16u + lane; u * 16u < part.y; u += lanes) {
        uint first = max(part.x, u * 16u) - u * 16u, end = min(part.y - u * 16u, 16u);
        uvec4 v = uvec4(0u);
        if (!absent(src)) v = load_unit(plus(from, u * 16u), first, end);
        store_unit(plus(to, u * 16u), v, first, end);
    }
}
