/* kda_ref.h: KDA in float64, one token after the other, and the chunked ops run on the same data.
 * The reference is written from the formulas alone:
 *   S <- diag(exp g) S; e = v - S^T k; S <- S + beta k e^T; o = S^T q. */
#ifndef EB_TEST_KDA_REF_H
#define EB_TEST_KDA_REF_H

#include "tests/opcheck/seq_rig.h"

struct kda_case {
    uint32_t n_rows, n_heads, dim;
    float *q, *k, *v, *g_raw; /* [n_rows][n_heads * dim] */
    float *beta_raw;          /* [n_rows][n_heads] */
    float *a_log, *dt_bias;   /* [n_heads], [n_heads * dim] */
    int32_t form;
    float lower_bound, l2_eps;
};

static inline uint64_t kda_state_size(const struct kda_case *c) {
    return (uint64_t)c->n_heads * c->dim * c->dim;
}

/* Everything random: decays of all sizes, betas on both sides. */
static inline struct kda_case kda_random(uint32_t n_rows, uint32_t n_heads, uint32_t dim,
                                         int32_t form) {
    uint64_t n = (uint64_t)n_rows * n_heads * dim;
    struct kda_case c = {.n_rows = n_rows, .n_heads = n_heads, .dim = dim, .form = form};
    c.q = rig_normal(n, 1);
    c.k = rig_normal(n, 1);
    c.v = rig_normal(n, 1);
    c.g_raw = rig_normal(n, 2);
    c.beta_raw = rig_normal((uint64_t)n_rows * n_heads, 2);
    c.a_log = rig_normal(n_heads, 0.5f);
    c.dt_bias = rig_normal((uint64_t)n_heads * dim, 1);
    for (uint64_t i = 0; i < (uint64_t)n_heads * dim; i++) c.dt_bias[i] -= 3; /* some memory */
    c.lower_bound = -5.0f;
    c.l2_eps = 1e-6f;
    return c;
}

/* A random start state whose values fit BF16. */
static inline double *kda_random_state(uint64_t n) {
    double *s = rig_host(n, sizeof *s);
    for (uint64_t i = 0; i < n; i++) s[i] = (double)seq_bf16((double)test_normal(&rig.rng));
    return s;
}

static inline double kda_ref_decay(const struct kda_case *c, uint64_t row, uint32_t h, uint32_t i) {
    double a = exp((double)c->a_log[h]);
    double x = (double)c->g_raw[(row * c->n_heads + h) * c->dim + i] +
               (double)c->dt_bias[(uint64_t)h * c->dim + i];
    if (c->form == EBRO_GATE_BOUNDED) return exp((double)c->lower_bound * rig_sigmoid(a * x));
    return exp(-a * (fmax(x, 0.0) + log1p(exp(-fabs(x)))));
}

static inline double kda_ref_inverse_norm(const double *x, uint32_t n, double eps) {
    double sum = eps;
    for (uint32_t i = 0; i < n; i++) sum += x[i] * x[i];
    return 1.0 / sqrt(sum);
}

/* One token of one head; q, k and v as they leave the convolution. */
static inline void kda_ref_token(const struct kda_case *c, uint64_t row, uint32_t h,
                                 const double *q, const double *k, const double *v, double *s,
                                 double *o) {
    uint32_t dim = c->dim;
    double nq = kda_ref_inverse_norm(q, dim, (double)c->l2_eps) / sqrt((double)dim);
    double nk = kda_ref_inverse_norm(k, dim, (double)c->l2_eps);
    double beta = rig_sigmoid((double)c->beta_raw[row * c->n_heads + h]), e[256];
    assert_true(dim <= 256);
    for (uint32_t j = 0; j < dim; j++) e[j] = v[j];
    for (uint32_t i = 0; i < dim; i++) {
        double decay = kda_ref_decay(c, row, h, i), ki = k[i] * nk;
        for (uint32_t j = 0; j < dim; j++) {
            s[i * dim + j] *= decay;
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

static inline double *kda_widen(const float *x, uint64_t n) {
    double *y = rig_host(n, sizeof *y);
    for (uint64_t i = 0; i < n; i++) y[i] = (double)x[i];
    return y;
}

/* All sequences of a plan. states [n_slots][n_heads][dim][dim] holds the start states and receives
 * what the plan writes; o [n_rows][n_heads * dim]. `rounded`: the state is BF16 after every token.
 */
static inline void kda_ref_run(const struct kda_case *c, double *const qkv[3],
                               const struct seq_plan *p, bool rounded, double *states, double *o) {
    uint64_t size = kda_state_size(c), head = (uint64_t)c->dim * c->dim;
    double *s = rig_host(size, sizeof *s);
    for (uint32_t q = 0; q < p->n_seqs; q++) {
        memset(s, 0, size * sizeof *s);
        if (p->in[q] >= 0) memcpy(s, states + (uint64_t)p->in[q] * size, size * sizeof *s);
        for (int32_t row = p->offsets[q]; row < p->offsets[q + 1]; row++) {
            for (uint32_t h = 0; h < c->n_heads; h++) {
                uint64_t at = ((uint64_t)row * c->n_heads + h) * c->dim;
                kda_ref_token(c, (uint64_t)row, h, qkv[0] + at, qkv[1] + at, qkv[2] + at,
                              s + h * head, o + at);
            }
            for (uint64_t i = 0; rounded && i < size; i++) s[i] = (double)seq_bf16(s[i]);
            for (uint32_t i = 0; i < p->n_emit; i++) {
                if (p->emit_rows[i] != row) continue;
                memcpy(states + (uint64_t)p->emit_slots[i] * size, s, size * sizeof *s);
            }
        }
        if (p->out[q] >= 0) memcpy(states + (uint64_t)p->out[q] * size, s, size * sizeof *s);
    }
}

static inline ebro_kda_gate kda_gate_args(const struct kda_case *c, const struct seq_plan *p) {
    uint64_t channels = (uint64_t)c->n_heads * c->dim;
    return (ebro_kda_gate){.n_heads = c->n_heads,
                           .head_dim = c->dim,
                           .g_raw = seq_mat(p, c->g_raw, channels).m,
                           .beta_raw = seq_mat(p, c->beta_raw, c->n_heads).m,
                           .a_log = rig_vec_from(c->a_log, c->n_heads),
                           .dt_bias = rig_vec_from(c->dt_bias, channels),
                           .form = c->form,
                           .lower_bound = c->lower_bound,
                           .l2_eps = c->l2_eps};
}

/* kda_prep and kda_recur over the plan; out [n_rows][n_heads * dim]. */
static inline float *kda_chunked(const struct kda_case *c, const struct seq_plan *p,
                                 const struct seq_pool *pool) {
    uint64_t channels = (uint64_t)c->n_heads * c->dim;
    ebro_kda_prep_args prep = {.size = sizeof prep,
                               .rows = seq_rows(p),
                               .q = seq_mat(p, c->q, channels).m,
                               .k = seq_mat(p, c->k, channels).m,
                               .v = seq_mat(p, c->v, channels).m,
                               .gate = kda_gate_args(c, p)};
    ebro_kda_recur_args recur = {.size = sizeof recur,
                                 .rows = prep.rows,
                                 .v = prep.v,
                                 .n_heads = c->n_heads,
                                 .head_dim = c->dim,
                                 .state = seq_io(p, pool)};
    struct rig_mat out = seq_mat(p, NULL, channels);
    prep.emit_rows = recur.state.emit_rows;
    prep.n_emit = p->n_emit;
    struct rig_buf work = rig_buf(eb_op_scratch(rig.device, EBRO_OP_KDA_PREP, &prep));
    recur.work = prep.work = work.span;
    recur.out = out.m;
    test_ok(eb_op_kda_prep(&rig.s, &prep, &rig.err), &rig.err);
    test_ok(eb_op_kda_recur(&rig.s, &recur, &rig.err), &rig.err);
    rig_sync();
    (void)rig_get(&work);
    return seq_mat_get(p, &out);
}

static inline void kda_near(const float *got, const double *ref, uint64_t n, double bound,
                            const char *what) {
    test_le(test_rel_fro(got, ref, n), bound, "%s: output", what);
    test_le(test_rel_max(got, ref, n), bound, "%s: output", what);
}

/* The part of a case that begins at `row`. */
static inline struct kda_case kda_from(const struct kda_case *c, uint32_t row, uint32_t n) {
    struct kda_case r = *c;
    uint64_t at = (uint64_t)row * c->n_heads * c->dim;
    r.n_rows = n;
    r.q += at;
    r.k += at;
    r.v += at;
    r.g_raw += at;
    r.beta_raw += (uint64_t)row * c->n_heads;
    return r;
}

#endif
