/* op_act.c: the gated activations. */
#include "micro.h"

enum { N_ROWS = 16 }; /* rows of an item */

/* tanh: a polynomial near 0, where 1 - exp would cancel. Selections are made on the bits, so that
 * loops over this vectorise. NaN stays NaN. */
static inline float act_tanh(float x) {
    uint32_t bits = cpu_to_bits(x), size = bits & 0x7fffffffu;
    float a = cpu_from_bits(size), z = x * x, e = micro_exp_neg(a + a);
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    p = p * z * x + x;
    float far = (1.0f - e) / (1.0f + e);
    uint32_t sign = bits & 0x80000000u, near = size < 0x3f200000u ? 0xffffffffu : 0u; /* 0.625 */
    return cpu_from_bits((cpu_to_bits(p) & near) | ((cpu_to_bits(far) | sign) & ~near));
}

float cpu_act(int32_t kind, float beta, float beta2, float g, float u) {
    switch (kind) {
        case EBRO_ACT_SITU:
            return beta * act_tanh(g / beta) * micro_sigmoid(g) * (beta2 * act_tanh(u / beta2));
        case EBRO_ACT_SIGMOID:
            return micro_sigmoid(g) * u;
        default:
            return micro_silu(g) * u;
    }
}

void cpu_act_row(int32_t kind, float beta, float beta2, const float *gate, const float *up,
                 float *out, uint64_t n) {
    if (kind == EBRO_ACT_SITU) {
        for (uint64_t c = 0; c < n; c++) {
            out[c] = cpu_act(EBRO_ACT_SITU, beta, beta2, gate[c], up[c]);
        }
    } else if (kind == EBRO_ACT_SIGMOID) {
        for (uint64_t c = 0; c < n; c++) out[c] = micro_sigmoid(gate[c]) * up[c];
    } else {
        for (uint64_t c = 0; c < n; c++) out[c] = micro_silu(gate[c]) * up[c];
    }
}

static void act_item(void *user, uint64_t item, uint32_t thread) {
    const ebro_act_mul_args *a = user;
    (void)thread;
    for (uint64_t r = item * N_ROWS; r < a->n_rows && r < (item + 1) * N_ROWS; r++) {
        const float *gate = eb_mat_row(&a->gate, r), *up = eb_mat_row(&a->up, r);
        float *out = eb_mat_row(&a->out, r); /* may be gate or up */
        if (a->gate_group == 1) {
            cpu_act_row(a->kind, a->beta, a->beta2, gate, up, out, a->n_cols);
            continue;
        }
        for (uint64_t c = 0; c < a->n_cols; c++) {
            out[c] = cpu_act(a->kind, a->beta, a->beta2, gate[c / a->gate_group], up[c]);
        }
    }
}

int32_t cpu_act_mul(ebro_stream *s, const ebro_act_mul_args *a, ebro_error *err) {
    ebro_act_mul_args args = *a;
    (void)err;
    cpu_parallel(s->dev->pool, ((uint64_t)a->n_rows + N_ROWS - 1) / N_ROWS, act_item, &args);
    return EBRO_OK;
}
