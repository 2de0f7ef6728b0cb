#version 450
/* sample_parts: a row's adjustments, and the largest and smallest logit of each of its parts. One
 * workgroup per row and part. A thread keeps to its own elements: it reads what it wrote. */
#extension GL_GOOGLE_include_directive : require
#define EB_ORDER_REDUCE
#define EB_ARGS eb_sample_args
#include "common/args_sample.h"
#include "common.glsl"
#include "math.glsl"
#include "order.glsl"
#include "rows.glsl"
#include "sample.glsl"

/* Four neighbours belong to one thread. */
bool is_own(uint i) {
    return i / 4u % THREADS == THREAD;
}

void adjust(uint row, uint first, uint n) {
    uvec2 from = row_of(A.logits, row), to = changed_row(row);
    for (uint i = THREAD * 4u; i < n; i += THREADS * 4u) {
        store4(to, first + i, A.vocab, load4(from, first + i, A.vocab, F32, A.wide != 0u), true);
    }
    int end = PI32(A.adjust_offsets).v[row + 1u];
    for (int j = PI32(A.adjust_offsets).v[row]; j < end; j++) {
        uvec2 entry = plus_mul(A.adjusts, uint(j), 12u); /* ebro_logit_adjust: id, repeat, add */
        uint id = PU32(entry).v[0], i = id - first;
        if (id >= A.vocab || id < first || i >= n || !is_own(i)) continue;
        float x = PF32(to).v[id], repeat = PF32(entry).v[1];
        PF32(to).v[id] = (x > 0.0 ? x / repeat : x * repeat) + PF32(entry).v[2];
    }
}

void main() {
    if (GROUP >= push.n_groups) return;
    uint row = GROUP / A.n_parts, first = GROUP % A.n_parts * A.part_size;
    uint n = min(A.part_size, A.vocab - first);
    if (is_adjusted(row)) adjust(row, first, n);
    Row r = row_at(row);
    uvec2 best = uvec2(0u);
    uint lowest = 0xffffffffu;
    for (uint i = THREAD * 4u; i < n; i += THREADS * 4u) {
        vec4 x = logits4(r, first + i);
        [[unroll]] for (uint j = 0u; j < 4u; j++) {
            if (i + j >= n) continue;
            bool finite = (floatBitsToUint(x[j]) & 0x7f800000u) != 0x7f800000u;
            uvec2 c = uvec2(order_key(x[j]), ~(first + i + j));
            if (ranks_above(c, best)) best = c;
            lowest = min(lowest, finite ? c.x : 0u);
        }
    }
    best = group_best(best);
    lowest = ~group_best(uvec2(~lowest, 0u)).x;
    if (THREAD == 0u) {
        PUvec4(plus_mul(A.parts, GROUP, 16u)).v[0] = uvec4(best, lowest, 0u);
    }
}
