/* op_res.c: attn_res_mix, the softmax mix of Attention Residuals. */
#include "cpu.h"

enum {
    N_PART = 256, /* columns at a time; a multiple of CPU_LANES */
    N_ROWS = 16   /* rows of an item */
};

/* score[s] = <rms_norm(source_s), norm_weight * proj> of one row. */
static void scores(const ebro_attn_res_mix_args *a, uint32_t row, float *score) {
    float norm[N_PART], proj[N_PART];
    float dot[EBRO_MAX_SOURCES][CPU_LANES] = {{0}};
    double square[EBRO_MAX_SOURCES] = {0};
    for (uint64_t c = 0; c < a->n_cols; c += N_PART) {
        uint64_t n = a->n_cols - c < N_PART ? a->n_cols - c : N_PART;
        cpu_load_vec(norm, &a->norm_weight, c, n);
        cpu_load_vec(proj, &a->proj, c, n);
        for (uint64_t i = 0; i < n; i++) proj[i] *= norm[i];
        for (uint32_t s = 0; s < a->n_sources; s++) {
            const float *x = eb_mat_row(&a->sources[s], row) + c;
            double part[CPU_LANES] = {0};
            for (uint64_t i = 0; i < n; i += CPU_LANES) {
                uint64_t width = n - i < CPU_LANES ? n - i : CPU_LANES;
                for (uint64_t l = 0; l < width; l++) {
                    dot[s][l] += x[i + l] * proj[i + l];
                    part[l] += (double)x[i + l] * (double)x[i + l];
                }
            }
            for (uint64_t l = 0; l < CPU_LANES; l++) square[s] += part[l];
        }
    }
    for (uint32_t s = 0; s < a->n_sources; s++) {
        double inv = 1.0 / sqrt(square[s] / (double)a->n_cols + (double)a->eps);
        score[s] = (float)((double)cpu_join(dot[s]) * inv);
    }
}

/* In place. Scores that are all -inf weigh the same. */
static void softmax(float *p, uint32_t n) {
    float max = p[0], sum = 0.0f;
    for (uint32_t i = 1; i < n; i++) max = p[i] > max ? p[i] : max;
    for (uint32_t i = 0; i < n; i++) {
        p[i] = max == -INFINITY ? (isnan(p[i]) ? NAN : 1.0f) : expf(p[i] - max);
        sum += p[i];
    }
    for (uint32_t i = 0; i < n; i++) p[i] /= sum;
}

static void mix(const ebro_attn_res_mix_args *a, uint32_t row, const float *p) {
    float sum[N_PART];
    for (uint64_t c = 0; c < a->n_cols; c += N_PART) {
        uint64_t n = a->n_cols - c < N_PART ? a->n_cols - c : N_PART;
        memset(sum, 0, sizeof sum);
        for (uint32_t s = 0; s < a->n_sources; s++) {
            cpu_axpy(sum, p[s], eb_mat_row(&a->sources[s], row) + c, n);
        }
        /* Only now: out may be one of the sources. */
        memcpy(eb_mat_row(&a->out, row) + c, sum, n * sizeof *sum);
    }
}

static void mix_row(const ebro_attn_res_mix_args *a, uint32_t r) {
    float p[EBRO_MAX_SOURCES] = {1.0f};
    if (a->n_sources > 1) {
        scores(a, r, p);
        softmax(p, a->n_sources);
        mix(a, r, p);
    } else {
        memmove(eb_mat_row(&a->out, r), eb_mat_row(&a->sources[0], r), a->n_cols * sizeof(float));
    }
    if (a->probs.mem) memcpy(eb_mat_row(&a->probs, r), p, a->n_sources * sizeof *p);
}

static void mix_item(void *user, uint64_t item, uint32_t thread) {
    const ebro_attn_res_mix_args *a = user;
    (void)thread;
    for (uint64_t r = item * N_ROWS; r < a->n_rows && r < (item + 1) * N_ROWS; r++) {
        mix_row(a, (uint32_t)r);
    }
}

int32_t cpu_attn_res_mix(ebro_stream *s, const ebro_attn_res_mix_args *a, ebro_error *err) {
    ebro_attn_res_mix_args args = *a;
    (void)err;
    cpu_parallel(s->dev->pool, ((uint64_t)a->n_rows + N_ROWS - 1) / N_ROWS, mix_item, &args);
    return EBRO_OK;
}
