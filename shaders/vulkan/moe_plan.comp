#version 450
/* moe_plan: cuts the slots of every expert into blocks of at most A.rows. One workgroup: experts
 * are taken THREADS at a time, and a running sum of their blocks says where each one's begin. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_moe_plan_args
#include "common/args_moe.h"
#include "common.glsl"

layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Plan {
    eb_moe_block v[];
};

shared uint ends[256];

void main() {
    if (GROUP >= push.n_groups) return;
    PI32 offsets = PI32(A.offsets);
    Plan plan = Plan(A.plan);
    uint done = 0u; /* blocks */
    for (uint e0 = 0u; e0 < A.n_experts; e0 += THREADS) {
        uint e = e0 + THREAD, begin = 0u, end = 0u;
        if (e < A.n_experts) {
            begin = uint(offsets.v[e]);
            end = uint(offsets.v[e + 1u]);
        }
        uint n = (end - begin + A.rows - 1u) / A.rows;
        barrier();
        ends[THREAD] = n;
        for (uint by = 1u; by < THREADS; by *= 2u) {
            barrier();
            uint before = THREAD >= by ? ends[THREAD - by] : 0u;
            barrier();
            ends[THREAD] += before;
        }
        barrier();
        uint at = done + ends[THREAD] - n;
        for (uint i = 0u; i < n && at + i < A.n_blocks; i++) {
            uint slot = begin + i * A.rows;
            plan.v[at + i] = eb_moe_block(e, slot, min(A.rows, end - slot), 0u);
        }
        done += ends[THREADS - 1u];
    }
    for (uint i = done + THREAD; i < A.n_blocks; i += THREADS) {
        plan.v[i] = eb_moe_block(0u, 0u, 0u, 0u);
    }
}
