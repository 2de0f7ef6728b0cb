/* op_act.c: the gated activations. */
#include "cpu.h"

float cpu_act(int32_t kind, float beta, float beta2, float g, float u) {
    switch (kind) {
        case EBRO_ACT_SITU:
            return beta * tanhf(g / beta) * cpu_sigmoid(g) * (beta2 * tanhf(u / beta2));
        case EBRO_ACT_SIGMOID:
            return cpu_sigmoid(g) * u;
        default:
            return cpu_silu(g) * u;
    }
}

int32_t cpu_act_mul(ebro_stream *s, const ebro_act_mul_args *a, ebro_error *err) {
    (void)s;
    (void)err;
    for (uint32_t r = 0; r < a->n_rows; r++) {
        const float *gate = eb_mat_row(&a->gate, r), *up = eb_mat_row(&a->up, r);
        float *out = eb_mat_row(&a->out, r); /* may be gate or up */
        for (uint64_t c = 0; c < a->n_cols; c++) {
            out[c] = cpu_act(a->kind, a->beta, a->beta2, gate[c / a->gate_group], up[c]);
        }
    }
    return EBRO_OK;
}
