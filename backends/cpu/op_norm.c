/* op_norm.c: rms_norm with its optional weight and gate. */
#include "cpu.h"

enum { N_PART = 256 }; /* columns whose weights are widened at a time */

/* In double: the square of a large f32 is not an f32, and a row must not vanish for it. */
static double mean_square(const float *x, uint64_t n) {
    double acc[CPU_LANES] = {0};
    uint64_t i = 0;
    for (; i + CPU_LANES <= n; i += CPU_LANES) {
        for (uint64_t l = 0; l < CPU_LANES; l++) acc[l] += (double)x[i + l] * (double)x[i + l];
    }
    for (uint64_t l = 0; i + l < n; l++) acc[l] += (double)x[i + l] * (double)x[i + l];
    return (((acc[0] + acc[4]) + (acc[2] + acc[6])) + ((acc[1] + acc[5]) + (acc[3] + acc[7]))) /
           (double)n;
}

int32_t cpu_rms_norm(ebro_stream *s, const ebro_rms_norm_args *a, ebro_error *err) {
    (void)s;
    (void)err;
    float w[N_PART];
    for (uint32_t r = 0; r < a->n_rows; r++) {
        const float *x = eb_mat_row(&a->x, r); /* may be out */
        const float *gate = a->gate.mem ? eb_mat_row(&a->gate, r) : NULL;
        float *out = eb_mat_row(&a->out, r);
        float inv = (float)(1.0 / sqrt(mean_square(x, a->n_cols) + (double)a->eps));
        for (uint64_t c = 0; c < a->n_cols; c += N_PART) {
            uint64_t n = a->n_cols - c < N_PART ? a->n_cols - c : N_PART;
            if (a->weight.mem) {
                cpu_load_vec(w, &a->weight, c, n);
                for (uint64_t i = 0; i < n; i++) out[c + i] = x[c + i] * inv * w[i];
            } else {
                for (uint64_t i = 0; i < n; i++) out[c + i] = x[c + i] * inv;
            }
            if (gate) {
                for (uint64_t i = 0; i < n; i++) out[c + i] *= cpu_sigmoid(gate[c + i]);
            }
        }
    }
    return EBRO_OK;
}
