#version 450
/* act: act(gate) * up. dst may be gate or up: a thread reads what it writes. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_act_args
#include "common/args_act.h"
#include "common.glsl"
#include "math.glsl"
#include "rows.glsl"

layout(constant_id = 2) const uint KIND = 0; /* EBRO_ACT_* */
#define SITU 1u
#define SIGMOID 2u

float act(float g, float u) {
    float first, second, s = sigmoid_parts(g, first, second);
    if (KIND == SITU) {
        s *= A.beta * exact_tanh(g / A.beta);
        u = A.beta2 * exact_tanh(u / A.beta2);
    } else if (KIND != SIGMOID) {
        s *= g;
    }
    /* The last factor comes last: what is small on the way need not be small in the end. */
    precise float before = s * first * u;
    return before * second;
}

void main() {
    if (GROUP >= push.n_groups) return;
    uint row, col, n = A.n_cols, gate_n = n / A.gate_group;
    if (!row_place(A.lanes, A.n_chunks, A.n_rows, n, row, col)) return;
    bool wide = A.wide != 0u;
    uvec2 gate = row_of(A.gate, row);
    vec4 g, v, u = load4(row_of(A.up, row), col, n, F32, wide);
    if (A.gate_group == 1u) {
        g = load4(gate, col, n, F32, wide);
    } else {
        [[unroll]] for (uint j = 0u; j < 4u; j++) {
            g[j] = PF32(gate).v[min((col + j) / A.gate_group, gate_n - 1u)];
        }
    }
    [[unroll]] for (uint j = 0u; j < 4u; j++) v[j] = act(g[j], u[j]);
    store4(row_of(A.dst, row), col, n, v, wide);
}
