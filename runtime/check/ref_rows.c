/* ref_rows.c: the operators that take rows one by one, in float64. */
#include <math.h>

#include "check/ref.h"

struct eb_ref_sum eb_ref_product(const float *x, const double *w, uint64_t w_step, uint64_t n,
                                 double start) {
    struct eb_ref_sum s = {start, fabs(start), 0};
    for (uint64_t i = 0; i < n; i++) {
        double p = (double)x[i] * w[i * w_step];
        s.sum += p;
        s.size += fabs(p);
        s.squares += p * p;
    }
    return s;
}

double eb_ref_inverse_rms(const float *x, uint64_t n, double eps) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return 1.0 / sqrt(sum / (double)n + eps);
}

void eb_ref_mix_probs(const float *const *sources, uint32_t n_sources, uint64_t n_cols,
                      const double *norm_weight, const double *proj, double eps, double *probs,
                      double *slack) {
    double max = -HUGE_VAL, sum = 0;
    *slack = 0;
    for (uint32_t s = 0; s < n_sources; s++) {
        double inv = eb_ref_inverse_rms(sources[s], n_cols, eps), dot = 0, size = 0;
        for (uint64_t c = 0; c < n_cols; c++) {
            double p = (double)sources[s][c] * norm_weight[c] * proj[c];
            dot += p;
            size += fabs(p);
        }
        probs[s] = dot * inv;
        max = fmax(max, probs[s]);
        *slack = fmax(*slack, size * inv);
    }
    for (uint32_t s = 0; s < n_sources; s++) sum += exp(probs[s] - max);
    for (uint32_t s = 0; s < n_sources; s++)
        probs[s] = n_sources == 1 ? 1.0 : exp(probs[s] - max) / sum;
}
