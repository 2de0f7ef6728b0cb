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

void eb_ref_scores(const float *x, const double *w, uint64_t hidden, uint32_t n_experts,
                   const float *bias, double *s, double *best, double *size) {
    for (uint32_t e = 0; e < n_experts; e++) {
        struct eb_ref_sum dot = eb_ref_product(x, w + e * hidden, 1, hidden, 0);
        s[e] = eb_ref_sigmoid(dot.sum);
        best[e] = s[e] + (bias != NULL ? (double)bias[e] : 0);
        size[e] = dot.size;
    }
}

void eb_ref_expert(const struct eb_ref_expert *e, const float *x, double weight, double *h,
                   double *out, double *size) {
    for (uint64_t i = 0; i < e->inner; i++) {
        double gate = eb_ref_product(x, e->w1 + i * e->in, 1, e->in, 0).sum;
        double up = eb_ref_product(x, e->w3 + i * e->in, 1, e->in, 0).sum;
        h[i] = eb_ref_act(e->act, e->beta, e->beta2, gate, up);
    }
    for (uint64_t o = 0; o < e->in; o++) {
        for (uint64_t i = 0; i < e->inner; i++) {
            double p = weight * e->w2[o * e->inner + i] * h[i];
            out[o] += p;
            size[o] += fabs(p);
        }
    }
}
