/* cases_kda.c: kda_conv, kda_prep with kda_recur, kda_step. What breaks them elsewhere: exponents
 * of a chunk that leave f32 where a gate forgets strongly, keys that repeat under beta = 1 (the
 * inverse of the chunk's triangle), lengths around a chunk, a state that is not carried over, a
 * layout swapped between keys and values, windows of an earlier sequence, padding taken for rows.
 */
#include <stdio.h>
#include <string.h>

#include "check/cases.h"
#include "check/seq.h"

/* ---- inputs ----------------------------------------------------------------------------- */

/* Everything random: decays of all sizes, betas on both sides. */
static struct eb_ref_kda random_kda(struct eb_trial *t, uint32_t n_rows, uint32_t n_heads,
                                    uint32_t dim, int32_t form) {
    uint64_t n = (uint64_t)n_rows * n_heads * dim;
    struct eb_ref_kda c = {.n_rows = n_rows, .n_heads = n_heads, .dim = dim, .form = form};
    c.q = eb_trial_normal(t, n, 1);
    c.k = eb_trial_normal(t, n, 1);
    c.v = eb_trial_normal(t, n, 1);
    c.g_raw = eb_trial_normal(t, n, 2);
    c.beta_raw = eb_trial_normal(t, (uint64_t)n_rows * n_heads, 2);
    c.a_log = eb_trial_normal(t, n_heads, 0.5f);
    c.dt_bias = eb_trial_normal(t, (uint64_t)n_heads * dim, 1);
    for (uint64_t i = 0; c.dt_bias != NULL && i < (uint64_t)n_heads * dim; i++)
        c.dt_bias[i] -= 3; /* some memory */
    c.lower_bound = -5.0f;
    c.l2_eps = 1e-6f;
    return c;
}

static void set_all(float *x, uint64_t n, float value) {
    for (uint64_t i = 0; i < n; i++) x[i] = value;
}

/* Raw gate values for which g = value, where A_log and dt_bias are 0. */
static float raw_for(int32_t form, double g, double lower_bound) {
    if (form == EBRO_GATE_SOFTPLUS) return (float)(g < -30 ? -g : log(expm1(-g)));
    double y = fmin(g / lower_bound, 1 - 1e-16);
    return (float)(log(y) - log1p(-y));
}

static void plain_gate(struct eb_ref_kda *c) {
    set_all(c->a_log, c->n_heads, 0);
    set_all(c->dt_bias, (uint64_t)c->n_heads * c->dim, 0);
}

static ebro_kda_gate gate_args(struct eb_trial *t, const struct eb_ref_kda *c,
                               const struct eb_ref_plan *p) {
    uint64_t channels = (uint64_t)c->n_heads * c->dim;
    return (ebro_kda_gate){.n_heads = c->n_heads,
                           .head_dim = c->dim,
                           .g_raw = eb_seq_in(t, p, c->g_raw, channels).m,
                           .beta_raw = eb_seq_in(t, p, c->beta_raw, c->n_heads).m,
                           .a_log = eb_trial_vec_from(t, c->a_log, c->n_heads),
                           .dt_bias = eb_trial_vec_from(t, c->dt_bias, channels),
                           .form = c->form,
                           .lower_bound = c->lower_bound,
                           .l2_eps = c->l2_eps};
}

/* ---- the chunked pair ------------------------------------------------------------------- */

/* kda_prep and kda_recur over the plan against the recurrence, states included. */
static void chunked(struct eb_trial *t, const struct eb_ref_kda *c, const struct eb_ref_plan *p,
                    int32_t dtype, struct eb_seq_layout layout) {
    uint64_t channels = (uint64_t)c->n_heads * c->dim, n = c->n_rows * channels;
    double *states, *o = eb_trial_host(t, n, sizeof *o);
    double *room = eb_trial_host(t, eb_ref_kda_size(c) + c->dim, sizeof *room);
    struct eb_seq_pool pool =
        eb_seq_pool(t, EB_SEQ_SLOTS, c->n_heads, (uint64_t)c->dim * c->dim, dtype, layout, &states);
    if (eb_trial_over(t)) return;
    double *qkv[3] = {eb_trial_widen(t, c->q, n), eb_trial_widen(t, c->k, n),
                      eb_trial_widen(t, c->v, n)};
    ebro_kda_prep_args prep = {.size = sizeof prep,
                               .rows = eb_seq_rows(t, p),
                               .q = eb_seq_in(t, p, c->q, channels).m,
                               .k = eb_seq_in(t, p, c->k, channels).m,
                               .v = eb_seq_in(t, p, c->v, channels).m,
                               .gate = gate_args(t, c, p)};
    ebro_kda_recur_args recur = {.size = sizeof recur,
                                 .rows = prep.rows,
                                 .v = prep.v,
                                 .n_heads = c->n_heads,
                                 .head_dim = c->dim,
                                 .state = eb_seq_io(t, p, &pool)};
    struct eb_trial_mat out = eb_seq_out(t, p, channels);
    prep.emit_rows = recur.state.emit_rows;
    prep.n_emit = p->n_emit;
    recur.work = prep.work = eb_trial_scratch(t, EBRO_OP_KDA_PREP, &prep);
    recur.out = out.m;
    const struct eb_trial_op ops[] = {{EBRO_OP_KDA_PREP, &prep}, {EBRO_OP_KDA_RECUR, &recur}};
    if (!eb_trial_calls(t, ops, 2)) return;
    eb_ref_kda_run(c, qkv, p, false, states, o, room);
    const float *got = eb_seq_get(t, p, &out);
    if (got != NULL) eb_trial_near(t, got, o, n, eb_budget_kda(), "output");
    eb_seq_pool_check(t, &pool, p, states, eb_budget_kda_state(dtype));
}

static const struct eb_seq_layout dense = {1, 0, 0, 0};

/* Lengths around chunks, from a state that is not empty. */
static void length(struct eb_trial *t, uint32_t which) {
    static const struct {
        uint32_t n, dim;
    } sizes[] = {{1, 64},  {15, 64}, {17, 128}, {33, 64},  {63, 128}, {64, 64},
                 {65, 64}, {96, 40}, {127, 64}, {129, 64}, {31, 8},   {70, 256}};
    uint32_t n = sizes[which].n, dim = sizes[which].dim;
    int32_t form = which % 2 == 0 ? EBRO_GATE_SOFTPLUS : EBRO_GATE_BOUNDED;
    struct eb_ref_kda c = random_kda(t, n, 2, dim, form);
    struct eb_ref_plan p = eb_seq_plan_one(n, 0, 1);
    eb_trial_shape(t, "%u rows, 2 heads of %u, %s gate", n, dim, form ? "bounded" : "softplus");
    if (!eb_trial_over(t)) chunked(t, &c, &p, EBRO_F32, dense);
}

enum { STATES = 0x100 }; /* of `which`: from a state, and to one */

/* kda_prep has no output that the interface describes: it is judged by what kda_recur makes of it.
 * So that a fault is laid at the right door, its cases read and write no state, and cases of
 * kda_recur do. */
static struct eb_ref_plan one_of(uint32_t n, uint32_t which) {
    return which & STATES ? eb_seq_plan_one(n, 0, 1) : eb_seq_plan_one(n, -1, -1);
}

/* g the same everywhere: -5 gives exponents of 160 inside a chunk of 32. */
static void even_gate(struct eb_trial *t, uint32_t which) {
    static const double values[] = {-5, -3, -1e-3, -1e-6};
    int32_t form = which & 4 ? EBRO_GATE_SOFTPLUS : EBRO_GATE_BOUNDED;
    struct eb_ref_kda c = random_kda(t, 65, 1, 128, form);
    struct eb_ref_plan p = one_of(65, which);
    eb_trial_shape(t, "65 rows, 1 head of 128, g = %g everywhere", values[which % 4]);
    if (eb_trial_over(t)) return;
    plain_gate(&c);
    set_all(c.g_raw, 65 * 128, raw_for(form, values[which % 4], -5));
    chunked(t, &c, &p, EBRO_F32, dense);
}

/* Next to each other, over channels and in time, -20 and -0.001; one token, or one channel of one,
 * that forgets everything. */
static void uneven_gate(struct eb_trial *t, uint32_t which) {
    enum { N = 70, DIM = 64 };
    static const char *const words[] = {"channels at -20 and -0.001", "tokens at -20 and -0.001",
                                        "one token at -1000", "one channel of one token at -1000"};
    struct eb_ref_kda c = random_kda(t, N, 1, DIM, EBRO_GATE_SOFTPLUS);
    struct eb_ref_plan p = one_of(N, which);
    eb_trial_shape(t, "%d rows, 1 head of %d, %s", N, DIM, words[which & 0xff]);
    which &= ~(uint32_t)STATES;
    if (eb_trial_over(t)) return;
    plain_gate(&c);
    float strong = raw_for(EBRO_GATE_SOFTPLUS, -20, 0);
    float weak = raw_for(EBRO_GATE_SOFTPLUS, -0.001, 0);
    for (uint32_t i = 0; i < N; i++) {
        for (uint32_t k = 0; k < DIM; k++) {
            float *raw = c.g_raw + i * DIM + k;
            bool special = which == 0   ? eb_trial_below(t, 2) != 0
                           : which == 1 ? i % 2 != 0
                                        : i == N / 2 && (which == 2 || k == 5);
            *raw = !special ? weak : which < 2 ? strong : 1000.0f;
        }
    }
    chunked(t, &c, &p, EBRO_F32, dense);
}

/* beta = 1 and one key for all: the chunk's triangle is all ones, whose powers grow beyond measure
 * while the inverse stays within [-1, 1]; then nearly one key; then beta = 0, which writes nothing.
 */
static void hard_beta(struct eb_trial *t, uint32_t which) {
    enum { N = 66, DIM = 64 };
    static const char *const words[] = {"beta 1, one key", "beta 1, nearly one key", "beta 0"};
    struct eb_ref_kda c = random_kda(t, N, 1, DIM, EBRO_GATE_BOUNDED);
    struct eb_ref_plan p = one_of(N, which);
    eb_trial_shape(t, "%d rows, 1 head of %d, %s", N, DIM, words[which & 0xff]);
    which &= ~(uint32_t)STATES;
    if (eb_trial_over(t)) return;
    plain_gate(&c);
    set_all(c.g_raw, N * DIM, raw_for(EBRO_GATE_BOUNDED, -1e-4, -5));
    set_all(c.beta_raw, N, which == 2 ? -200.0f : 40.0f);
    for (uint32_t i = 1; i < N && which < 2; i++) {
        float *k = c.k + i * DIM;
        memcpy(k, c.k, DIM * sizeof *k);
        if (which == 1) k[i % DIM] *= 1.001f;
    }
    chunked(t, &c, &p, EBRO_F32, dense);
}

/* Zeros and the largest values that a projection in half precision can give. */
static void zeros_and_large(struct eb_trial *t, uint32_t which) {
    enum { N = 37, DIM = 64 };
    struct eb_ref_kda c = random_kda(t, N, 1, DIM, EBRO_GATE_BOUNDED);
    struct eb_ref_plan p = one_of(N, which);
    eb_trial_shape(t, "%d rows, 1 head of %d, %s", N, DIM,
                   which % 2 == 0 ? "rows of zeros" : "keys and values of 65504");
    which &= ~(uint32_t)STATES;
    if (eb_trial_over(t)) return;
    for (uint32_t i = 0; i < N * DIM; i++) {
        bool zero = which == 0 && i / DIM % 3 == 0;
        if (zero) c.q[i] = c.k[i] = c.v[i] = 0;
        if (which == 1 && i / DIM % 2 == 0) c.k[i] = c.k[i] < 0 ? -65504.0f : 65504.0f;
        if (which == 1) c.v[i] = c.v[i] < 0 ? -65504.0f : 65504.0f;
    }
    chunked(t, &c, &p, EBRO_F32, dense);
}

/* S is [key][value]: S[i][j] = 1000 i + j, nothing forgotten or written, q = e_3 reads row 3. */
static void state_layout(struct eb_trial *t, uint32_t which) {
    enum { DIM = 64, KEY = 3 };
    (void)which;
    struct eb_ref_kda c = random_kda(t, 1, 1, DIM, EBRO_GATE_BOUNDED);
    struct eb_ref_plan p = eb_seq_plan_one(1, 0, 1);
    eb_trial_shape(t, "1 row, 1 head of %d, S[i][j] = 1000 i + j", DIM);
    if (eb_trial_over(t)) return;
    plain_gate(&c);
    set_all(c.g_raw, DIM, -200);
    set_all(c.beta_raw, 1, -200);
    set_all(c.q, DIM, 0);
    c.q[KEY] = 1;
    double *unused, *s = eb_trial_host(t, DIM * DIM, sizeof *s), *want;
    struct eb_seq_pool pool = eb_seq_pool(t, 2, 1, (uint64_t)DIM * DIM, EBRO_F32, dense, &unused);
    want = eb_trial_host(t, DIM, sizeof *want);
    if (eb_trial_over(t)) return;
    for (uint32_t i = 0; i < DIM * DIM; i++) s[i] = 1000.0 * (i / DIM) + i % DIM;
    for (uint32_t j = 0; j < DIM; j++) want[j] = s[KEY * DIM + j] / sqrt((double)DIM);
    eb_seq_pool_put(t, &pool, 0, s);
    ebro_kda_prep_args prep = {.size = sizeof prep,
                               .rows = eb_seq_rows(t, &p),
                               .q = eb_seq_in(t, &p, c.q, DIM).m,
                               .k = eb_seq_in(t, &p, c.k, DIM).m,
                               .v = eb_seq_in(t, &p, c.v, DIM).m,
                               .gate = gate_args(t, &c, &p)};
    ebro_kda_recur_args recur = {.size = sizeof recur,
                                 .rows = prep.rows,
                                 .v = prep.v,
                                 .n_heads = 1,
                                 .head_dim = DIM,
                                 .state = eb_seq_io(t, &p, &pool)};
    struct eb_trial_mat out = eb_seq_out(t, &p, DIM);
    recur.work = prep.work = eb_trial_scratch(t, EBRO_OP_KDA_PREP, &prep);
    recur.out = out.m;
    const struct eb_trial_op ops[] = {{EBRO_OP_KDA_PREP, &prep}, {EBRO_OP_KDA_RECUR, &recur}};
    if (!eb_trial_calls(t, ops, 2)) return;
    const float *got = eb_seq_get(t, &p, &out);
    if (got != NULL) eb_trial_near(t, got, want, DIM, eb_budget_kda(), "what q reads of the state");
}

/* Many sequences, some empty, with emitted states, scattered and padded. */
static void plan(struct eb_trial *t, uint32_t which) {
    char words[80];
    int32_t dtype = which % 2 == 1 ? EBRO_BF16 : EBRO_F32;
    uint32_t n_heads = 1 + eb_trial_below(t, which < 2 ? 2 : 4), dim = which < 2 ? 64 : 32;
    struct eb_ref_plan p = eb_seq_plan_random(t, which < 2 ? 34 : 100);
    eb_seq_plan_words(&p, words, sizeof words);
    eb_trial_shape(t, "%s, %u heads of %u, state %s", words, n_heads, dim, eb_dtype_name(dtype));
    struct eb_ref_kda c = random_kda(t, eb_ref_rows(&p), n_heads, dim, (int32_t)(which & 1));
    if (!eb_trial_over(t)) chunked(t, &c, &p, dtype, eb_seq_layout_random(t, n_heads));
}

enum { SMALL = 0x100 }; /* of `which`: a head of 16, for a quick check */

static void long_run(struct eb_trial *t, uint32_t which) {
    enum { N = 4000 };
    uint32_t dim = which & SMALL ? 16 : 64;
    int32_t form = (int32_t)(which & ~(uint32_t)SMALL);
    struct eb_ref_kda c = random_kda(t, N, 1, dim, form);
    struct eb_ref_plan p = eb_seq_plan_one(N, 0, 1);
    eb_trial_shape(t, "%d rows, 1 head of %u", N, dim);
    if (eb_trial_over(t)) return;
    if (form == EBRO_GATE_BOUNDED) set_all(c.dt_bias, dim, -9); /* g about -6e-4 */
    t->n_runs = t->n_runs < 2 ? t->n_runs : 2;
    chunked(t, &c, &p, EBRO_F32, dense);
}

static void no_head_of_12(struct eb_trial *t, uint32_t which) {
    (void)which;
    struct eb_ref_kda c = random_kda(t, 2, 1, 16, EBRO_GATE_BOUNDED);
    struct eb_ref_plan p = eb_seq_plan_one(2, 0, 1);
    eb_trial_shape(t, "1 head of 12, which is no multiple of 8");
    if (eb_trial_over(t)) return;
    ebro_kda_prep_args prep = {.size = sizeof prep,
                               .rows = eb_seq_rows(t, &p),
                               .q = eb_seq_in(t, &p, c.q, 16).m,
                               .k = eb_seq_in(t, &p, c.k, 16).m,
                               .v = eb_seq_in(t, &p, c.v, 16).m,
                               .gate = gate_args(t, &c, &p)};
    prep.work = eb_trial_scratch(t, EBRO_OP_KDA_PREP, &prep);
    prep.gate.head_dim = 12;
    eb_trial_must_refuse(t, EBRO_OP_KDA_PREP, &prep, "a head of 12 channels");
}

/* ---- convolution and step --------------------------------------------------------------- */

struct chain {
    struct eb_ref_kda c; /* q, k, v unused */
    float *x[3], *out_gate;
    ebro_vec weight[3], norm_weight;
    double *w[3], *norm; /* their values */
};

static const float norm_eps = 1e-5f;

static struct chain random_chain(struct eb_trial *t, uint32_t n_rows, uint32_t n_heads,
                                 uint32_t dim, int32_t form) {
    static const int32_t dtypes[3] = {EBRO_F32, EBRO_BF16, EBRO_F16};
    uint64_t channels = (uint64_t)n_heads * dim;
    struct chain s = {.c = random_kda(t, n_rows, n_heads, dim, form)};
    for (uint32_t i = 0; i < 3; i++) {
        s.x[i] = eb_trial_normal(t, n_rows * channels, 1);
        s.weight[i] = eb_trial_vec(t, dtypes[i], (uint32_t)channels * 4, &s.w[i]);
    }
    s.out_gate = eb_trial_normal(t, n_rows * channels, 2);
    s.norm_weight = eb_trial_vec(t, EBRO_BF16, dim, &s.norm);
    return s;
}

static struct eb_seq_pool window_pool(struct eb_trial *t, uint64_t channels, double **values) {
    return eb_seq_pool(t, EB_SEQ_SLOTS, 3, 3 * channels, EBRO_F32, eb_seq_layout_random(t, 3),
                       values);
}

static void conv(struct eb_trial *t, uint32_t which) {
    static const uint32_t widths[] = {96, 1, 300, 256};
    uint32_t channels = widths[which];
    char words[80];
    struct eb_ref_plan p = eb_seq_plan_random(t, 40);
    eb_seq_plan_words(&p, words, sizeof words);
    eb_trial_shape(t, "%s, %u channels", words, channels);
    struct chain s = random_chain(t, eb_ref_rows(&p), 1, channels, EBRO_GATE_BOUNDED);
    uint64_t n = (uint64_t)eb_ref_rows(&p) * channels;
    double *windows, *y[3], *room = eb_trial_host(t, 9 * channels, sizeof *room);
    struct eb_seq_pool pool = window_pool(t, channels, &windows);
    ebro_kda_conv_args a = {.size = sizeof a,
                            .rows = eb_seq_rows(t, &p),
                            .n_channels = channels,
                            .state = eb_seq_io(t, &p, &pool)};
    struct eb_trial_mat out[3];
    for (int i = 0; i < 3; i++) {
        y[i] = eb_trial_host(t, n, sizeof *y[i]);
        out[i] = eb_seq_out(t, &p, channels);
        a.x[i] = eb_seq_in(t, &p, s.x[i], channels).m;
        a.out[i] = out[i].m;
        a.weight[i] = s.weight[i];
    }
    if (!eb_trial_call(t, EBRO_OP_KDA_CONV, &a)) return;
    eb_ref_conv(s.x, s.w, channels, &p, windows, y, room);
    for (int i = 0; i < 3; i++) {
        const float *got = eb_seq_get(t, &p, &out[i]);
        if (got != NULL)
            eb_trial_near(t, got, y[i], n, eb_budget_kda(), i == 0 ? "q" : i == 1 ? "k" : "v");
    }
    eb_seq_pool_check(t, &pool, &p, windows, eb_budget_exact());
}

/* Room of a chain's reference. */
struct chain_ref {
    double *y[3], *o, *windows, *states, *conv_room, *kda_room;
};

static void chain_reference(const struct chain *s, const struct eb_ref_plan *p, bool rounded,
                            struct chain_ref *r) {
    uint64_t dim = s->c.dim, channels = s->c.n_heads * dim;
    eb_ref_conv(s->x, s->w, channels, p, r->windows, r->y, r->conv_room);
    eb_ref_kda_run(&s->c, r->y, p, rounded, r->states, r->o, r->kda_room);
    for (uint64_t i = 0; i < (uint64_t)eb_ref_rows(p) * s->c.n_heads; i++)
        eb_ref_gated_norm(r->o + i * dim, dim, (double)norm_eps, s->norm, s->out_gate + i * dim);
}

static void step(struct eb_trial *t, const struct chain *s, const struct eb_ref_plan *p,
                 int32_t dtype) {
    uint64_t dim = s->c.dim, channels = s->c.n_heads * dim, n = eb_ref_rows(p) * channels;
    struct chain_ref r = {.o = eb_trial_host(t, n, 8),
                          .conv_room = eb_trial_host(t, 9 * channels, 8),
                          .kda_room = eb_trial_host(t, eb_ref_kda_size(&s->c) + dim, 8)};
    struct eb_seq_pool windows = window_pool(t, channels, &r.windows);
    struct eb_seq_pool states = eb_seq_pool(t, EB_SEQ_SLOTS, s->c.n_heads, dim * dim, dtype,
                                            eb_seq_layout_random(t, s->c.n_heads), &r.states);
    struct eb_trial_mat out = eb_seq_out(t, p, channels);
    ebro_kda_step_args a = {.size = sizeof a,
                            .rows = eb_seq_rows(t, p),
                            .gate = gate_args(t, &s->c, p),
                            .windows = eb_seq_io(t, p, &windows),
                            .state = eb_seq_io(t, p, &states),
                            .out_gate = eb_seq_in(t, p, s->out_gate, channels).m,
                            .norm_weight = s->norm_weight,
                            .norm_eps = norm_eps,
                            .out = out.m};
    for (int i = 0; i < 3; i++) {
        r.y[i] = eb_trial_host(t, n, 8);
        a.x[i] = eb_seq_in(t, p, s->x[i], channels).m;
        a.conv_weight[i] = s->weight[i];
    }
    a.scratch = eb_trial_scratch(t, EBRO_OP_KDA_STEP, &a);
    if (!eb_trial_call(t, EBRO_OP_KDA_STEP, &a)) return;
    chain_reference(s, p, dtype == EBRO_BF16, &r);
    const float *got = eb_seq_get(t, p, &out);
    if (got != NULL) eb_trial_near(t, got, r.o, n, eb_budget_step(dtype), "output");
    eb_seq_pool_check(t, &windows, p, r.windows, eb_budget_exact());
    eb_seq_pool_check(t, &states, p, r.states, eb_budget_step_state(dtype));
}

static void step_plan(struct eb_trial *t, uint32_t which) {
    static const uint32_t dims[] = {64, 40, 128, 8};
    char words[80];
    int32_t dtype = which == 1 ? EBRO_BF16 : EBRO_F32;
    uint32_t n_heads = 1 + eb_trial_below(t, 3);
    struct eb_ref_plan p = eb_seq_plan_random(t, which == 2 ? 33 : 4);
    eb_seq_plan_words(&p, words, sizeof words);
    eb_trial_shape(t, "%s, %u heads of %u, state %s", words, n_heads, dims[which],
                   eb_dtype_name(dtype));
    struct chain s = random_chain(t, eb_ref_rows(&p), n_heads, dims[which], (int32_t)(which & 1));
    if (!eb_trial_over(t)) step(t, &s, &p, dtype);
}

/* Gates and betas at their ends, every other head or token, so that something stays. */
static void step_extreme(struct eb_trial *t, uint32_t which) {
    static const float raws[] = {-200, 1000, 20};
    enum { N = 24, HEADS = 2, DIM = 64 };
    int32_t form = which == 2 ? EBRO_GATE_BOUNDED : EBRO_GATE_SOFTPLUS;
    struct eb_ref_plan p = eb_seq_plan_one(N, 0, 5);
    struct chain s = random_chain(t, N, HEADS, DIM, form);
    eb_trial_shape(t, "%d rows, %d heads of %d, raw gates of %g, betas 0 and 1", N, HEADS, DIM,
                   (double)raws[which]);
    if (eb_trial_over(t)) return;
    for (uint32_t k = 0; k < N * HEADS * DIM; k++)
        if (k / (HEADS * DIM) % 2 == 0 || k / DIM % 2 == 0) s.c.g_raw[k] = raws[which];
    for (uint32_t k = 0; k < N * HEADS; k++) s.c.beta_raw[k] = (float)((int)(k % 3) - 1) * 100.0f;
    step(t, &s, &p, EBRO_F32);
}

/* Rows in one call and cut into two: the same bytes, states and windows included. One pool holds
 * both: the whole goes from slot 3 to 4, the parts from 3 to 5 and on to 6. */
static void step_split(struct eb_trial *t, uint32_t which) {
    enum { N = 11, CUT = 4, HEADS = 2, DIM = 64, CHANNELS = HEADS * DIM };
    const int32_t dtype = which == 0 ? EBRO_F32 : EBRO_BF16;
    struct eb_ref_plan p[3] = {eb_seq_plan_one(N, 3, 4), eb_seq_plan_one(CUT, 3, 5),
                               eb_seq_plan_one(N - CUT, 5, 6)};
    const uint32_t first[3] = {0, 0, CUT};
    struct chain s = random_chain(t, N, HEADS, DIM, EBRO_GATE_SOFTPLUS);
    eb_trial_shape(t, "%d rows at once, and %d and then %d, state %s", N, CUT, N - CUT,
                   eb_dtype_name(dtype));
    double *unused;
    struct eb_seq_pool windows = window_pool(t, CHANNELS, &unused);
    struct eb_seq_pool states = eb_seq_pool(t, EB_SEQ_SLOTS, HEADS, DIM * DIM, dtype,
                                            eb_seq_layout_random(t, HEADS), &unused);
    struct eb_trial_mat out[3];
    ebro_kda_step_args a[3];
    if (eb_trial_over(t)) return;
    for (int i = 0; i < 3; i++) {
        struct eb_ref_kda c = s.c;
        c.g_raw += first[i] * CHANNELS;
        c.beta_raw += first[i] * HEADS;
        out[i] = eb_seq_out(t, &p[i], CHANNELS);
        a[i] = (ebro_kda_step_args){
            .size = sizeof a[i],
            .rows = eb_seq_rows(t, &p[i]),
            .gate = gate_args(t, &c, &p[i]),
            .windows = eb_seq_io(t, &p[i], &windows),
            .state = eb_seq_io(t, &p[i], &states),
            .out_gate = eb_seq_in(t, &p[i], s.out_gate + first[i] * CHANNELS, CHANNELS).m,
            .norm_weight = s.norm_weight,
            .norm_eps = norm_eps,
            .out = out[i].m};
        for (int k = 0; k < 3; k++) {
            a[i].x[k] = eb_seq_in(t, &p[i], s.x[k] + first[i] * CHANNELS, CHANNELS).m;
            a[i].conv_weight[k] = s.weight[k];
        }
        a[i].scratch = eb_trial_scratch(t, EBRO_OP_KDA_STEP, &a[i]);
    }
    const struct eb_trial_op ops[] = {
        {EBRO_OP_KDA_STEP, &a[0]}, {EBRO_OP_KDA_STEP, &a[1]}, {EBRO_OP_KDA_STEP, &a[2]}};
    if (!eb_trial_calls(t, ops, 3)) return;
    struct eb_budget same = eb_budget_strict();
    same.reason = "the same bytes for every split";
    const float *whole = eb_seq_get(t, &p[0], &out[0]);
    for (int i = 1; i < 3; i++) {
        const float *part = eb_seq_get(t, &p[i], &out[i]);
        if (whole != NULL && part != NULL)
            eb_trial_same(t, part, whole + first[i] * CHANNELS,
                          (uint64_t)eb_ref_rows(&p[i]) * CHANNELS * sizeof *part, same, "output");
    }
    const struct eb_seq_pool *pools[] = {&windows, &states};
    for (int i = 0; i < 2; i++) {
        const float *x = eb_seq_pool_get(t, pools[i], 4), *y = eb_seq_pool_get(t, pools[i], 6);
        if (x != NULL && y != NULL)
            eb_trial_same(t, y, x, pools[i]->units * pools[i]->elements * sizeof *x, same,
                          i == 0 ? "windows" : "state");
    }
}

static void step_long(struct eb_trial *t, uint32_t which) {
    enum { N = 4000, DIM = 64 };
    struct eb_ref_plan p = eb_seq_plan_one(N, 0, 0);
    struct chain s = random_chain(t, N, 1, DIM, (int32_t)which);
    eb_trial_shape(t, "%d rows, 1 head of %d", N, DIM);
    if (eb_trial_over(t)) return;
    if (which == EBRO_GATE_BOUNDED) set_all(s.c.dt_bias, DIM, -9);
    t->n_runs = t->n_runs < 2 ? t->n_runs : 2;
    step(t, &s, &p, EBRO_F32);
}

/* ---- the list --------------------------------------------------------------------------- */

#define CASE(op, name, part, f, which) \
    { EBRO_OP_##op, name, EB_CASE_##part, 0, f, which }

static const struct eb_opcheck_case cases[] = {
    CASE(KDA_CONV, "many sequences", START, conv, 0),
    CASE(KDA_CONV, "one channel", QUICK, conv, 1),
    CASE(KDA_CONV, "300 channels", FULL, conv, 2),
    CASE(KDA_CONV, "256 channels", FULL, conv, 3),
    CASE(KDA_PREP, "a head of 12", QUICK, no_head_of_12, 0),
    CASE(KDA_PREP, "gates at the floor of -5", START, even_gate, 0),
    CASE(KDA_PREP, "gates at -3", FULL, even_gate, 1),
    CASE(KDA_PREP, "gates near 0", FULL, even_gate, 2),
    CASE(KDA_PREP, "gates at -1e-6", FULL, even_gate, 3),
    CASE(KDA_PREP, "softplus gates at -5", FULL, even_gate, 4),
    CASE(KDA_PREP, "softplus gates at -1e-6", FULL, even_gate, 7),
    CASE(KDA_PREP, "uneven channels", QUICK, uneven_gate, 0),
    CASE(KDA_PREP, "uneven tokens", FULL, uneven_gate, 1),
    CASE(KDA_PREP, "a token that forgets all", START, uneven_gate, 2),
    CASE(KDA_PREP, "a channel that forgets all", FULL, uneven_gate, 3),
    CASE(KDA_PREP, "one key again and again", START, hard_beta, 0),
    CASE(KDA_PREP, "nearly one key", FULL, hard_beta, 1),
    CASE(KDA_PREP, "rows of zeros", QUICK, zeros_and_large, 0),
    CASE(KDA_PREP, "largest halves", FULL, zeros_and_large, 1),
    CASE(KDA_RECUR, "layout of the state", START, state_layout, 0),
    CASE(KDA_RECUR, "gates at the floor of -5", FULL, even_gate, 0 | STATES),
    CASE(KDA_RECUR, "gates near 0", FULL, even_gate, 2 | STATES),
    CASE(KDA_RECUR, "softplus gates at -5", FULL, even_gate, 4 | STATES),
    CASE(KDA_RECUR, "uneven channels", FULL, uneven_gate, 0 | STATES),
    CASE(KDA_RECUR, "uneven tokens", FULL, uneven_gate, 1 | STATES),
    CASE(KDA_RECUR, "a token that forgets all", FULL, uneven_gate, 2 | STATES),
    CASE(KDA_RECUR, "a channel that forgets all", FULL, uneven_gate, 3 | STATES),
    CASE(KDA_RECUR, "one key again and again", START, hard_beta, 0 | STATES),
    CASE(KDA_RECUR, "nearly one key", FULL, hard_beta, 1 | STATES),
    CASE(KDA_RECUR, "nothing written", QUICK, hard_beta, 2 | STATES),
    CASE(KDA_RECUR, "rows of zeros", FULL, zeros_and_large, 0 | STATES),
    CASE(KDA_RECUR, "largest halves", FULL, zeros_and_large, 1 | STATES),
    CASE(KDA_RECUR, "1 row", QUICK, length, 0),
    CASE(KDA_RECUR, "15 rows", FULL, length, 1),
    CASE(KDA_RECUR, "17 rows", FULL, length, 2),
    CASE(KDA_RECUR, "33 rows", START, length, 3),
    CASE(KDA_RECUR, "63 rows", FULL, length, 4),
    CASE(KDA_RECUR, "64 rows", FULL, length, 5),
    CASE(KDA_RECUR, "65 rows", FULL, length, 6),
    CASE(KDA_RECUR, "96 rows, heads of 40", FULL, length, 7),
    CASE(KDA_RECUR, "127 rows", FULL, length, 8),
    CASE(KDA_RECUR, "129 rows", FULL, length, 9),
    CASE(KDA_RECUR, "31 rows, heads of 8", FULL, length, 10),
    CASE(KDA_RECUR, "70 rows, heads of 256", FULL, length, 11),
    CASE(KDA_RECUR, "many sequences", QUICK, plan, 0),
    CASE(KDA_RECUR, "many sequences, bf16 state", QUICK, plan, 1),
    CASE(KDA_RECUR, "many long sequences", FULL, plan, 2),
    CASE(KDA_RECUR, "many long sequences, bf16", FULL, plan, 3),
    CASE(KDA_RECUR, "4000 rows, a head of 16", QUICK, long_run, EBRO_GATE_BOUNDED | SMALL),
    CASE(KDA_RECUR, "4000 rows", FULL, long_run, EBRO_GATE_SOFTPLUS),
    CASE(KDA_RECUR, "4000 rows, little forgotten", FULL, long_run, EBRO_GATE_BOUNDED),
    CASE(KDA_STEP, "many sequences", START, step_plan, 0),
    CASE(KDA_STEP, "many sequences, bf16 state", QUICK, step_plan, 1),
    CASE(KDA_STEP, "many rows, heads of 128", FULL, step_plan, 2),
    CASE(KDA_STEP, "heads of 8", FULL, step_plan, 3),
    CASE(KDA_STEP, "gates at 0, betas 0 and 1", QUICK, step_extreme, 0),
    CASE(KDA_STEP, "gates that forget all", FULL, step_extreme, 1),
    CASE(KDA_STEP, "gates at the floor", FULL, step_extreme, 2),
    CASE(KDA_STEP, "rows cut in two", QUICK, step_split, 0),
    CASE(KDA_STEP, "rows cut in two, bf16 state", FULL, step_split, 1),
    CASE(KDA_STEP, "4000 rows", FULL, step_long, EBRO_GATE_SOFTPLUS),
    CASE(KDA_STEP, "4000 rows, little forgotten", FULL, step_long, EBRO_GATE_BOUNDED),
};

const struct eb_opcheck_list eb_opcheck_kda = {cases, sizeof cases / sizeof cases[0]};
