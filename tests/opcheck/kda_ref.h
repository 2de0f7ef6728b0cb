/* kda_ref.h: data for the tests of KDA, its float64 reference (check/ref.h) and the chunked ops run
 * on them. */
#ifndef EB_TEST_KDA_REF_H
#define EB_TEST_KDA_REF_H

#include "tests/opcheck/seq_rig.h"

/* Everything random: decays of all sizes, betas on both sides. */
static inline struct eb_ref_kda kda_random(uint32_t n_rows, uint32_t n_heads, uint32_t dim,
                                           int32_t form) {
    uint64_t n = (uint64_t)n_rows * n_heads * dim;
    struct eb_ref_kda c = {.n_rows = n_rows, .n_heads = n_heads, .dim = dim, .form = form};
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
    for (uint64_t i = 0; i < n; i++) s[i] = (double)eb_ref_bf16((double)test_normal(&rig.rng));
    return s;
}

static inline double *kda_widen(const float *x, uint64_t n) {
    double *y = rig_host(n, sizeof *y);
    for (uint64_t i = 0; i < n; i++) y[i] = (double)x[i];
    return y;
}

/* eb_ref_kda_run, with room for it. */
static inline void kda_ref_run(const struct eb_ref_kda *c, double *const qkv[3],
                               const struct eb_ref_plan *p, bool rounded, double *states,
                               double *o) {
    double *room = rig_host(eb_ref_kda_size(c) + c->dim, sizeof *room);
    eb_ref_kda_run(c, qkv, p, rounded, states, o, room);
}

static inline ebro_kda_gate kda_gate_args(const struct eb_ref_kda *c, const struct eb_ref_plan *p) {
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
static inline float *kda_chunked(const struct eb_ref_kda *c, const struct eb_ref_plan *p,
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
static inline struct eb_ref_kda kda_from(const struct eb_ref_kda *c, uint32_t row, uint32_t n) {
    struct eb_ref_kda r = *c;
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
