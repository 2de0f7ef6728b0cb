#version 450
/* route_group: the pairs of one expert, rising, behind those of the experts before it. One
 * workgroup per expert, and one for the end. A thread goes through neighbouring rows, so that its
 * pairs lie side by side; nothing depends on which thread is first. Ids out of range stand in no
 * group. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_route_group_args
#include "common/args_route.h"
#include "common.glsl"

shared uvec2 counts[256]; /* of a thread: pairs of this expert, pairs of those before it */

/* Sums over threads up to this one; .xy of the last one are the totals. */
uvec2 running_sum(uvec2 x) {
    counts[THREAD] = x;
    barrier();
    for (uint step = 1u; step < THREADS; step *= 2u) {
        uvec2 y = THREAD >= step ? counts[THREAD - step] : uvec2(0u);
        barrier();
        x += y;
        counts[THREAD] = x;
        barrier();
    }
    return x;
}

void main() {
    if (GROUP >= push.n_groups) return;
    uint expert = GROUP, each = (A.n_rows + THREADS - 1u) / THREADS;
    uint first = min(THREAD * each, A.n_rows), end = min(first + each, A.n_rows);
    uvec2 own = uvec2(0u);
    for (uint r = first; r < end; r++) {
        uvec2 ids = row_of(A.ids, r);
        for (uint k = 0u; k < A.top_k; k++) {
            uint id = PU32(ids).v[k];
            if (id < A.n_experts) own += uvec2(id == expert, id < expert);
        }
    }
    uint place = running_sum(own).x - own.x, before = counts[THREADS - 1u].y;
    if (THREAD == 0u) PI32(A.offsets).v[expert] = int(before);
    if (own.x == 0u || expert == A.n_experts) return;
    for (uint r = first; r < end; r++) {
        uvec2 ids = row_of(A.ids, r);
        for (uint k = 0u; k < A.top_k; k++) {
            if (PU32(ids).v[k] == expert) {
                PI32(A.pairs).v[before + place] = int(r * A.top_k + k);
                place++;
            }
        }
    }
}
