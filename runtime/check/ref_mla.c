/* ref_mla.c: latent attention in float64. The formula: scores of the latent rows themselves, a
 * softmax over everything that is seen, the weighted sum. */
#include <math.h>
#include <string.h>

#include "check/ref.h"

/* One row of one head over tokens [begin, end); score [end] is room. Returns the largest score. */
static double attend_row(const struct eb_ref_mla *s, const double *q, const double *cache,
                         uint32_t begin, uint32_t end, double *out, double *lse, double *score) {
    uint32_t width = eb_ref_mla_width(s);
    double max = -(double)INFINITY, largest = 0, sum = 0;
    for (uint32_t t = begin; t < end; t++) {
        score[t] = 0;
        for (uint32_t i = 0; i < width; i++) score[t] += q[i] * cache[(uint64_t)t * width + i];
        score[t] *= (double)s->scale;
        max = fmax(max, score[t]);
        largest = fmax(largest, fabs(score[t]));
    }
    memset(out, 0, s->kv_lora * sizeof *out);
    for (uint32_t t = begin; t < end; t++) {
        double p = exp(score[t] - max);
        sum += p;
        for (uint32_t i = 0; i < s->kv_lora; i++) out[i] += p * cache[(uint64_t)t * width + i];
    }
    for (uint32_t i = 0; i < s->kv_lora && sum > 0; i++) out[i] /= sum;
    *lse = sum > 0 ? max + log(sum) : -(double)INFINITY;
    return largest;
}

double eb_ref_attend(const struct eb_ref_mla *s, const struct eb_ref_plan *p,
                     const struct eb_ref_cache *c, uint32_t begin, uint32_t end, const double *q,
                     double *latent, double *lse, double *room) {
    uint64_t width = eb_ref_mla_width(s);
    double largest = 0;
    for (uint32_t k = 0; k < p->n_seqs; k++) {
        const double *cache = c->v + (uint64_t)k * c->capacity * width;
        for (int32_t row = p->offsets[k]; row < p->offsets[k + 1]; row++) {
            uint32_t last = (uint32_t)(c->context[k] + row - p->offsets[k] + 1);
            if (last > end) last = end;
            uint32_t first = begin < last ? begin : last;
            for (uint64_t i = (uint64_t)row * s->n_heads, h = 0; h < s->n_heads; h++, i++) {
                double score = attend_row(s, q + i * width, cache, first, last,
                                          latent + i * s->kv_lora, lse + i, room);
                largest = fmax(largest, score);
            }
        }
    }
    return largest;
}

void eb_ref_absorb(const struct eb_ref_mla *s, const float *q, uint64_t n_rows, const double *kv_b,
                   double *y) {
    uint64_t n = n_rows * s->n_heads, in = s->nope + s->rope, width = eb_ref_mla_width(s);
    memset(y, 0, n * width * sizeof *y);
    for (uint64_t i = 0; i < n; i++) {
        const double *w = kv_b + i % s->n_heads * (s->nope + s->v_dim) * s->kv_lora;
        for (uint64_t j = 0; j < s->nope; j++) {
            for (uint64_t c = 0; c < s->kv_lora; c++)
                y[i * width + c] += (double)q[i * in + j] * w[j * s->kv_lora + c];
        }
        for (uint64_t j = 0; j < s->rope; j++)
            y[i * width + s->kv_lora + j] = (double)q[i * in + s->nope + j];
    }
}

void eb_ref_values(const struct eb_ref_mla *s, const double *latent, uint64_t n_rows,
                   const double *kv_b, double *y) {
    uint64_t n = n_rows * s->n_heads, lora = s->kv_lora;
    for (uint64_t i = 0; i < n; i++) {
        const double *w = kv_b + (i % s->n_heads * (s->nope + s->v_dim) + s->nope) * lora;
        for (uint64_t j = 0; j < s->v_dim; j++) {
            double sum = 0;
            for (uint64_t c = 0; c < lora; c++) sum += w[j * lora + c] * latent[i * lora + c];
            y[i * s->v_dim + j] = sum;
        }
    }
}

/* ---- what is appended ------------------------------------------------------------------- */

void eb_ref_turn(double theta, uint32_t rotary, uint32_t c, uint32_t position, const float *x,
                 double *y) {
    double angle = position * pow(theta, -(double)c / rotary);
    y[0] = (double)x[0] * cos(angle) - (double)x[1] * sin(angle);
    y[1] = (double)x[0] * sin(angle) + (double)x[1] * cos(angle);
}

void eb_ref_append_row(const struct eb_ref_append *a, const float *kv, uint32_t position,
                       double *y) {
    double inv = eb_ref_inverse_rms(kv, a->kv_lora, a->eps);
    for (uint32_t i = 0; i < a->kv_lora; i++) y[i] = (double)kv[i] * inv * a->norm[i];
    const float *key = kv + a->kv_lora;
    for (uint32_t c = 0; c < a->rope; c++) y[a->kv_lora + c] = (double)key[c];
    for (uint32_t c = 0; c < a->rotary; c += 2)
        eb_ref_turn(a->theta, a->rotary, c, position, key + c, y + a->kv_lora + c);
}
