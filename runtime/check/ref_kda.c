/* ref_kda.c: KDA in float64, one token after the other, written from the formulas alone. */
#include <math.h>
#include <string.h>

#include "check/ref.h"

static double decay(const struct eb_ref_kda *c, uint64_t row, uint32_t h, uint32_t i) {
    double a = exp((double)c->a_log[h]);
    double x = (double)c->g_raw[(row * c->n_heads + h) * c->dim + i] +
               (double)c->dt_bias[(uint64_t)h * c->dim + i];
    if (c->form == EBRO_GATE_BOUNDED) return exp((double)c->lower_bound * eb_ref_sigmoid(a * x));
    return exp(-a * (fmax(x, 0.0) + log1p(exp(-fabs(x)))));
}

static double inverse_norm(const double *x, uint32_t n, double eps) {
    double sum = eps;
    for (uint32_t i = 0; i < n; i++) sum += x[i] * x[i];
    return 1.0 / sqrt(sum);
}

void eb_ref_kda_token(const struct eb_ref_kda *c, uint64_t row, uint32_t h, const double *q,
                      const double *k, const double *v, double *s, double *o, double *e) {
    uint32_t dim = c->dim;
    double nq = inverse_norm(q, dim, (double)c->l2_eps) / sqrt((double)dim);
    double nk = inverse_norm(k, dim, (double)c->l2_eps);
    double beta = eb_ref_sigmoid((double)c->beta_raw[row * c->n_heads + h]);
    memcpy(e, v, dim * sizeof *e);
    for (uint32_t i = 0; i < dim; i++) {
        double left = decay(c, row, h, i), ki = k[i] * nk;
        for (uint32_t j = 0; j < dim; j++) {
            s[i * dim + j] *= left;
            e[j] -= s[i * dim + j] * ki;
        }
    }
    memset(o, 0, dim * sizeof *o);
    for (uint32_t i = 0; i < dim; i++) {
        double bk = beta * k[i] * nk, qi = q[i] * nq;
        for (uint32_t j = 0; j < dim; j++) {
            s[i * dim + j] += bk * e[j];
            o[j] += s[i * dim + j] * qi;
        }
    }
}

void eb_ref_kda_run(const struct eb_ref_kda *c, double *const qkv[3], const struct eb_ref_plan *p,
                    bool rounded, double *states, double *o, double *room) {
    uint64_t size = eb_ref_kda_size(c), head = (uint64_t)c->dim * c->dim;
    double *s = room, *e = room + size;
    for (uint32_t q = 0; q < p->n_seqs; q++) {
        memset(s, 0, size * sizeof *s);
        if (p->in[q] >= 0) memcpy(s, states + (uint64_t)p->in[q] * size, size * sizeof *s);
        for (int32_t row = p->offsets[q]; row < p->offsets[q + 1]; row++) {
            for (uint32_t h = 0; h < c->n_heads; h++) {
                uint64_t at = ((uint64_t)row * c->n_heads + h) * c->dim;
                eb_ref_kda_token(c, (uint64_t)row, h, qkv[0] + at, qkv[1] + at, qkv[2] + at,
                                 s + h * head, o + at, e);
            }
            for (uint64_t i = 0; rounded && i < size; i++) s[i] = (double)eb_ref_bf16(s[i]);
            for (uint32_t i = 0; i < p->n_emit; i++) {
                if (p->emit_rows[i] != row) continue;
                memcpy(states + (uint64_t)p->emit_slots[i] * size, s, size * sizeof *s);
            }
        }
        if (p->out[q] >= 0) memcpy(states + (uint64_t)p->out[q] * size, s, size * sizeof *s);
    }
}

/* ---- convolution ------------------------------------------------------------------------ */

/* Input t of a sequence, t from -3 on: what the window held, then the rows. */
static double conv_input(const float *x, const double *window, uint64_t channels, int32_t begin,
                         int32_t t, uint64_t c) {
    if (t >= 0) return (double)x[(uint64_t)(begin + t) * channels + c];
    return window[(uint64_t)(t + 3) * channels + c];
}

/* One of q, k, v for one sequence: outputs, then the windows that the plan wants. */
static void conv_part(const float *x, const double *w, uint64_t channels,
                      const struct eb_ref_plan *p, uint32_t q, const double *window, uint32_t part,
                      double *windows, double *y) {
    int32_t begin = p->offsets[q], n = p->offsets[q + 1] - begin;
    for (int32_t t = 0; t < n; t++) {
        for (uint64_t c = 0; c < channels; c++) {
            double sum = 0;
            for (int32_t tap = 0; tap < 4; tap++)
                sum += w[c * 4 + (uint64_t)tap] *
                       conv_input(x, window, channels, begin, t - 3 + tap, c);
            y[(uint64_t)(begin + t) * channels + c] = sum * eb_ref_sigmoid(sum);
        }
    }
    for (uint32_t e = 0; e <= p->n_emit; e++) {
        int32_t slot = e < p->n_emit ? p->emit_slots[e] : p->out[q];
        int32_t upto = e < p->n_emit ? p->emit_rows[e] - begin + 1 : n;
        bool mine = e == p->n_emit || (upto >= 1 && upto <= n);
        for (int32_t t = 0; mine && slot >= 0 && t < 3; t++) {
            double *to = windows + ((uint64_t)slot * 9 + part * 3 + (uint64_t)t) * channels;
            for (uint64_t c = 0; c < channels; c++)
                to[c] = conv_input(x, window, channels, begin, upto - 3 + t, c);
        }
    }
}

void eb_ref_conv(float *const x[3], double *const w[3], uint64_t channels,
                 const struct eb_ref_plan *p, double *windows, double *const y[3], double *room) {
    for (uint32_t q = 0; q < p->n_seqs; q++) {
        memset(room, 0, 9 * channels * sizeof *room);
        if (p->in[q] >= 0)
            memcpy(room, windows + (uint64_t)p->in[q] * 9 * channels, 9 * channels * sizeof *room);
        for (uint32_t i = 0; i < 3; i++)
            conv_part(x[i], w[i], channels, p, q, room + i * 3 * channels, i, windows, y[i]);
    }
}

void eb_ref_gated_norm(double *o, uint64_t n, double eps, const double *weight, const float *gate) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += o[i] * o[i];
    double inv = 1.0 / sqrt(sum / (double)n + eps);
    for (uint64_t i = 0; i < n; i++) o[i] *= inv * weight[i] * eb_ref_sigmoid((double)gate[i]);
}
