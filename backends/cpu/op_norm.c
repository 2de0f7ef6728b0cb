/* op_norm.c: rms_norm with its optional weight and gate. */
#include "micro.h"
#include "plant.h"

enum {
    N_PART = 256, /* columns whose weights are widened at a time */
    N_ROWS = 32   /* rows of an item */
};

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

static void norm_row(const ebro_rms_norm_args *a, uint64_t r) {
    float w[N_PART];
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
            for (uint64_t i = 0; i < n; i++) out[c + i] *= micro_sigmoid(gate[c + i]);
        }
    }
    if (PLANTED(stray_write)) out[a->n_cols] = 0.0f;
}

static void norm_item(void *user, uint64_t item, uint32_t thread) {
    const ebro_rms_norm_args *a = user;
    (void)thread;
    for (uint64_t r = item * N_ROWS; r < a->n_rows && r < (item + 1) * N_ROWS; r++) norm_row(a, r);
}

int32_t cpu_rms_norm(ebro_stream *s, const ebro_rms_norm_args *a, ebro_error *err) {
    ebro_rms_norm_args args = *a;
    (void)err;
    cpu_parallel(s->dev->pool, ((uint64_t)a->n_rows + N_ROWS - 1) / N_ROWS, norm_item, &args);
    return EBRO_OK;
}
