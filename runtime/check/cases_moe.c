/* cases_moe.c: moe_route and moe_experts. What breaks them elsewhere: ties, biases that decide,
 * scores that are not finite and choose ids out of range, more experts than threads, one expert
 * that takes all rows and others that take none, forced ids. */
#include <string.h>

#include "check/cases.h"

/* ---- route ------------------------------------------------------------------------------ */

struct routing {
    float *x, *bias;
    struct eb_trial_weight gate;
    uint32_t rows, hidden, experts, top_k;
    bool renormalise, biased;
    const int32_t *forced; /* [rows][top_k]; NULL: chosen */
};
static const float scaling = 2.446f;

struct routed {
    ebro_moe_route_args a;
    struct eb_trial_mat ids, weights;
    struct eb_trial_buf offsets, pairs;
};

static struct routed prepare(struct eb_trial *t, const struct routing *q) {
    struct routed r = {.weights = eb_trial_out(t, NULL, q->rows, q->top_k, 2)};
    r.ids = q->forced != NULL ? eb_trial_mat(t, q->forced, q->rows, q->top_k, 1)
                              : eb_trial_out(t, NULL, q->rows, q->top_k, 1);
    r.ids.m.dtype = EBRO_I32;
    r.offsets = eb_trial_room(t, (q->experts + 1) * 4, EB_TRIAL_OUT);
    r.pairs = eb_trial_room(t, (uint64_t)q->rows * q->top_k * 4, EB_TRIAL_OUT);
    r.a = (ebro_moe_route_args){.size = sizeof r.a,
                                .x = eb_trial_mat(t, q->x, q->rows, q->hidden, 3).m,
                                .gate = q->gate.w,
                                .n_rows = q->rows,
                                .n_experts = q->experts,
                                .top_k = q->top_k,
                                .scaling = scaling,
                                .renormalise = q->renormalise,
                                .biased_weights = q->biased,
                                .forced = q->forced != NULL,
                                .ids = r.ids.m,
                                .weights = r.weights.m,
                                .offsets = r.offsets.span,
                                .pairs = r.pairs.span};
    if (q->bias != NULL) r.a.bias = eb_trial_vec_from(t, q->bias, q->experts);
    r.a.scratch = eb_trial_scratch(t, EBRO_OP_MOE_ROUTE, &r.a);
    return r;
}

/* Every pair once, under its expert, rising. */
static void check_groups(struct eb_trial *t, const struct routing *q, const struct routed *r,
                         const int32_t *ids) {
    uint32_t n_pairs = q->rows * q->top_k, known = 0;
    const uint8_t *o = eb_trial_after(t, &r->offsets), *p = eb_trial_after(t, &r->pairs);
    if (o == NULL || p == NULL) return;
    int32_t begin, end, pair, last;
    memcpy(&begin, o, 4);
    bool right = begin == 0;
    for (uint32_t e = 0; e < q->experts && right; e++, begin = end) {
        memcpy(&end, o + (e + 1) * 4, 4);
        right = begin <= end && end <= (int32_t)n_pairs;
        last = -1;
        for (int32_t i = begin; i < end && right; i++) {
            memcpy(&pair, p + (uint32_t)i * 4, 4);
            right = pair > last && pair < (int32_t)n_pairs && ids[pair] == (int32_t)e;
            last = pair;
        }
    }
    for (uint32_t i = 0; i < n_pairs; i++) known += ids[i] >= 0 && ids[i] < (int32_t)q->experts;
    if (!right || begin != (int32_t)known)
        eb_trial_fail(t, "the pairs are not grouped by expert, each once and rising");
}

/* One row, room: [3 * experts]: ids are the best unless two are nearer than rounding; weights
 * follow from them. */
static void check_row(struct eb_trial *t, const struct routing *q, const float *x,
                      const int32_t *ids, const float *weights, double *room) {
    double *s = room, *best = s + q->experts, *size = best + q->experts, error = 0, sum = 0;
    eb_ref_scores(x, q->gate.v, q->hidden, q->experts, q->bias, s, best, size);
    for (uint32_t e = 0; e < q->experts; e++)
        error = fmax(error, eb_budget_score(q->hidden, size[e], best[e]));
    struct eb_budget b = eb_budget_route(error);
    for (uint32_t k = 0; k < q->top_k; k++) {
        if (ids[k] < 0 || ids[k] >= (int32_t)q->experts) {
            eb_trial_fail(t, "chose expert %d of %u", (int)ids[k], q->experts);
            return;
        }
        bool again = false;
        for (uint32_t e = 0; e < q->experts && q->forced == NULL; e++) {
            bool earlier = false;
            for (uint32_t j = 0; j < k; j++) earlier = earlier || ids[j] == (int32_t)e;
            again = again || (earlier && ids[k] == (int32_t)e);
            if (!earlier)
                eb_trial_note(t, fmax(0, best[e] - best[ids[k]]), b,
                              "choice %u is expert %d, expert %u is better", k, (int)ids[k], e);
        }
        if (again) eb_trial_fail(t, "chose expert %d twice", (int)ids[k]);
        sum += q->biased ? best[ids[k]] : s[ids[k]];
    }
    for (uint32_t k = 0; k < q->top_k; k++) {
        double want = (q->biased ? best[ids[k]] : s[ids[k]]) * (double)scaling;
        double bound = error * (double)scaling;
        if (q->renormalise) {
            want /= sum + 1e-20;
            bound = (bound + fabs(want) * error * q->top_k) / sum;
        }
        eb_trial_within(t, (double)weights[k], want, 1, eb_budget_route(bound), "weight", k);
    }
}

static void route(struct eb_trial *t, const struct routing *q) {
    struct routed r = prepare(t, q);
    double *room = eb_trial_host(t, 3 * (uint64_t)q->experts, sizeof *room);
    if (!eb_trial_call(t, EBRO_OP_MOE_ROUTE, &r.a)) return;
    const int32_t *ids = eb_trial_get(t, &r.ids);
    const float *weights = eb_trial_get(t, &r.weights);
    if (ids == NULL || weights == NULL) return;
    for (uint32_t row = 0; row < q->rows; row++)
        check_row(t, q, q->x + (uint64_t)row * q->hidden, ids + row * q->top_k,
                  weights + row * q->top_k, room);
    if (!t->failed) check_groups(t, q, &r, ids);
}

static void random_route(struct eb_trial *t, uint32_t which) {
    static const struct {
        uint32_t rows, hidden, experts, top_k;
        int32_t dtype;
        bool renormalise, biased, bias, forced;
    } v[] = {{11, 96, 40, 8, EBRO_BF16, true, false, true, false},
             {1, 61, 33, 33, EBRO_F32, false, false, true, false},
             {9, 96, 40, 6, EBRO_F16, true, false, false, true},
             {301, 40, 600, 9, EBRO_BF16, true, false, true, false},
             {5, 96, 40, 1, EBRO_MXFP4, false, true, true, false}};
    struct routing q = {.rows = v[which].rows,
                        .hidden = v[which].hidden,
                        .experts = v[which].experts,
                        .top_k = v[which].top_k,
                        .renormalise = v[which].renormalise,
                        .biased = v[which].biased};
    int32_t *forced = eb_trial_host(t, (uint64_t)q.rows * q.top_k, sizeof *forced);
    eb_trial_shape(t, "%u rows of %u, %u of %u experts, %s", q.rows, q.hidden, q.top_k, q.experts,
                   eb_dtype_name(v[which].dtype));
    q.x = eb_trial_normal(t, (uint64_t)q.rows * q.hidden, 0.3f);
    q.gate = eb_trial_weight(t, v[which].dtype, q.experts, q.hidden, 0);
    if (v[which].bias) q.bias = eb_trial_host(t, q.experts, sizeof *q.bias);
    if (eb_trial_over(t)) return;
    for (uint32_t e = 0; q.bias != NULL && e < q.experts; e++)
        q.bias[e] = eb_trial_uniform(t, 0, which == 3 ? 0.2f : 1.0f);
    for (uint32_t i = 0; i < q.rows * q.top_k; i++)
        forced[i] = (int32_t)eb_trial_below(t, q.experts);
    if (v[which].forced) q.forced = forced;
    route(t, &q);
}

/* Inputs of zeros: all scores are alike, and the lower ids win. */
static void ties(struct eb_trial *t, uint32_t which) {
    enum { ROWS = 3, TOP = 5, EXPERTS = 70 };
    (void)which;
    struct routing q = {.rows = ROWS, .hidden = 32, .experts = EXPERTS, .top_k = TOP};
    eb_trial_shape(t, "%d rows of zeros, %d of %d experts", ROWS, TOP, EXPERTS);
    q.x = eb_trial_host(t, ROWS * 32, sizeof *q.x);
    q.gate = eb_trial_weight(t, EBRO_BF16, EXPERTS, 32, 0);
    struct routed r = prepare(t, &q);
    if (!eb_trial_call(t, EBRO_OP_MOE_ROUTE, &r.a)) return;
    const int32_t *ids = eb_trial_get(t, &r.ids);
    if (ids == NULL) return;
    struct eb_budget b = eb_budget_exact();
    b.measure = "choices";
    b.reason = "of equal scores the lower index is chosen";
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < ROWS * TOP; i++) wrong += ids[i] != (int32_t)(i % TOP);
    eb_trial_note(t, wrong, b, "of equal scores not the lower index was chosen");
    check_groups(t, &q, &r, ids);
}

/* NaN and infinite rows must not disturb the others, nor give ids out of range. */
static void broken_rows(struct eb_trial *t, uint32_t which) {
    enum { ROWS = 4, TOP = 5, EXPERTS = 9, HIDDEN = 32 };
    (void)which;
    struct routing q = {.rows = ROWS, .hidden = HIDDEN, .experts = EXPERTS, .top_k = TOP};
    eb_trial_shape(t, "%d rows, one of NaN, one with an infinity", ROWS);
    q.x = eb_trial_normal(t, ROWS * HIDDEN, 1);
    q.gate = eb_trial_weight(t, EBRO_BF16, EXPERTS, HIDDEN, 0);
    if (eb_trial_over(t)) return;
    for (uint32_t i = 0; i < HIDDEN; i++) q.x[HIDDEN + i] = NAN;
    q.x[2 * HIDDEN + 3] = INFINITY;
    struct routed r = prepare(t, &q);
    double *room = eb_trial_host(t, 3 * EXPERTS, sizeof *room);
    if (!eb_trial_call(t, EBRO_OP_MOE_ROUTE, &r.a)) return;
    const int32_t *ids = eb_trial_get(t, &r.ids);
    const float *weights = eb_trial_get(t, &r.weights);
    if (ids == NULL || weights == NULL) return;
    for (uint32_t row = 0; row < ROWS; row += 3)
        check_row(t, &q, q.x + row * HIDDEN, ids + row * TOP, weights + row * TOP, room);
    for (uint32_t i = 0; i < ROWS * TOP; i++) {
        if (ids[i] < 0 || ids[i] >= EXPERTS) eb_trial_fail(t, "chose expert %d", (int)ids[i]);
        if (i / TOP == 1 && !isnan(weights[i])) eb_trial_fail(t, "hides a row of NaN");
    }
    if (!t->failed) check_groups(t, &q, &r, ids);
}

/* ---- experts ---------------------------------------------------------------------------- */

enum { EXPERTS = 6 };

struct experts {
    uint32_t rows, top_k, in, inner;
    int32_t dtype, act;
    bool skewed; /* all rows go to two experts */
};

struct expert_weights {
    struct eb_trial_weight w[3][EXPERTS]; /* w1, w3, w2 */
    ebro_span tables, scale_tables;
};

static struct expert_weights make_experts(struct eb_trial *t, const struct experts *x) {
    struct expert_weights r = {.tables = {NULL, 0}};
    uint64_t tables[3][EXPERTS], scales[3][EXPERTS];
    for (uint32_t part = 0; part < 3; part++) {
        for (uint32_t e = 0; e < EXPERTS; e++) {
            struct eb_trial_weight w = eb_trial_weight(t, x->dtype, part == 2 ? x->in : x->inner,
                                                       part == 2 ? x->inner : x->in, 0);
            if (eb_trial_over(t)) return r;
            r.w[part][e] = w;
            tables[part][e] = w.w.mem->address + w.w.offset;
            scales[part][e] = w.w.scale_mem != NULL ? w.w.scale_mem->address + w.w.scale_offset : 0;
        }
    }
    r.tables = eb_trial_data(t, tables, sizeof tables).span;
    if (x->dtype == EBRO_MXFP4) r.scale_tables = eb_trial_data(t, scales, sizeof scales).span;
    return r;
}

/* Which pairs are whose, as moe_route would say; weights random. */
struct pairs {
    int32_t *ids, *offsets, *list;
    float *weights;
};

static bool make_pairs(struct eb_trial *t, const struct experts *x, struct pairs *p) {
    uint32_t n = x->rows * x->top_k, at = 0;
    p->ids = eb_trial_host(t, n, sizeof *p->ids);
    p->list = eb_trial_host(t, n, sizeof *p->list);
    p->offsets = eb_trial_host(t, EXPERTS + 1, sizeof *p->offsets);
    p->weights = eb_trial_host(t, n, sizeof *p->weights);
    if (eb_trial_over(t)) return false;
    for (uint32_t row = 0; row < x->rows; row++) {
        uint32_t first = x->skewed ? 2 : eb_trial_below(t, EXPERTS);
        for (uint32_t k = 0; k < x->top_k; k++) {
            p->ids[row * x->top_k + k] = (int32_t)((first + k) % EXPERTS);
            p->weights[row * x->top_k + k] = eb_trial_uniform(t, 0.1f, 1.0f);
        }
    }
    for (uint32_t e = 0; e < EXPERTS; e++) {
        for (uint32_t i = 0; i < n; i++)
            if (p->ids[i] == (int32_t)e) p->list[at++] = (int32_t)i;
        p->offsets[e + 1] = (int32_t)at;
    }
    return true;
}

static ebro_moe_experts_args experts_args(struct eb_trial *t, const struct experts *x,
                                          const struct expert_weights *w, const struct pairs *p) {
    return (ebro_moe_experts_args){.size = sizeof(ebro_moe_experts_args),
                                   .n_rows = x->rows,
                                   .n_experts = EXPERTS,
                                   .top_k = x->top_k,
                                   .in_dim = x->in,
                                   .inner_dim = x->inner,
                                   .tables = w->tables,
                                   .scale_tables = w->scale_tables,
                                   .dtype = x->dtype,
                                   .act = x->act,
                                   .beta = 4,
                                   .beta2 = 25,
                                   .weights = eb_trial_mat(t, p->weights, x->rows, x->top_k, 2).m,
                                   .offsets = eb_trial_i32(t, p->offsets, EXPERTS + 1),
                                   .pairs = eb_trial_i32(t, p->list, (uint64_t)x->rows * x->top_k)};
}

/* Over all outputs; room: [inner + 2 * in]. */
static void compare_experts(struct eb_trial *t, const struct experts *x,
                            const struct expert_weights *w, const struct pairs *p,
                            const float *rows, const float *start, const float *got, double *room) {
    double *h = room, *out = room + x->inner, *size = out + x->in, worst = 0, total = 0;
    for (uint32_t row = 0; row < x->rows; row++) {
        memset(out, 0, 2 * x->in * sizeof *out);
        for (uint32_t k = 0; k < x->top_k; k++) {
            uint32_t i = row * x->top_k + k, e = (uint32_t)p->ids[i];
            const struct eb_ref_expert expert = {
                w->w[0][e].v, w->w[1][e].v, w->w[2][e].v, x->in, x->inner, x->act, 4, 25};
            eb_ref_expert(&expert, rows + row * x->in, (double)p->weights[i], h, out, size);
        }
        for (uint32_t c = 0; c < x->in; c++) {
            double error =
                fabs((double)got[row * x->in + c] - (out[c] + (double)start[row * x->in + c]));
            worst += error * error;
            total += size[c] * size[c];
        }
    }
    double error = total > 0 ? sqrt(worst / total) : sqrt(worst);
    eb_trial_note(t, error, eb_budget_experts(x->in, x->inner),
                  "outputs are %.3g of their magnitudes off", error);
}

static void run_experts(struct eb_trial *t, uint32_t which) {
    static const struct experts v[] = {{7, 2, 75, 50, EBRO_BF16, EBRO_ACT_SILU, false},
                                       {40, 3, 96, 64, EBRO_MXFP4, EBRO_ACT_SITU, false},
                                       {60, 2, 64, 33, EBRO_F16, EBRO_ACT_SILU, true},
                                       {150, 3, 160, 133, EBRO_F32, EBRO_ACT_SILU, false},
                                       {150, 3, 160, 160, EBRO_BF16, EBRO_ACT_SITU, false},
                                       {1, 1, 130, 70, EBRO_F16, EBRO_ACT_SITU, false},
                                       {40, 2, 128, 144, EBRO_F16, EBRO_ACT_SILU, false}};
    const struct experts *x = &v[which];
    struct pairs p;
    eb_trial_shape(t, "%u rows of %u, %u of %d experts of %u, %s", x->rows, x->in, x->top_k,
                   EXPERTS, x->inner, eb_dtype_name(x->dtype));
    float *rows = eb_trial_normal(t, (uint64_t)x->rows * x->in, 0.5f);
    float *start = eb_trial_normal(t, (uint64_t)x->rows * x->in, 1);
    double *room = eb_trial_host(t, x->inner + 2 * (uint64_t)x->in, sizeof *room);
    struct expert_weights w = make_experts(t, x);
    if (!make_pairs(t, x, &p)) return;
    struct eb_trial_mat out = eb_trial_out(t, start, x->rows, x->in, 3);
    ebro_moe_experts_args a = experts_args(t, x, &w, &p);
    a.x = eb_trial_mat(t, rows, x->rows, x->in, 5).m;
    a.out = out.m;
    a.scratch = eb_trial_scratch(t, EBRO_OP_MOE_EXPERTS, &a);
    if (!eb_trial_call(t, EBRO_OP_MOE_EXPERTS, &a)) return;
    const float *got = eb_trial_get(t, &out);
    if (got != NULL) compare_experts(t, x, &w, &p, rows, start, got, room);
}

/* Each row alone adds to its output what it adds in company, byte for byte. */
static void experts_alone(struct eb_trial *t, uint32_t which) {
    enum { ROWS = 20, TOP = 3, IN = 64 };
    static const int32_t dtypes[] = {EBRO_BF16, EBRO_F32, EBRO_F16, EBRO_MXFP4};
    const struct experts x = {ROWS, TOP, IN, 32, dtypes[which], EBRO_ACT_SILU, false};
    const struct experts one = {1, TOP, IN, 32, dtypes[which], EBRO_ACT_SILU, false};
    struct pairs p;
    eb_trial_shape(t, "%d rows of %d, %d of %d experts, %s, one row again alone", ROWS, IN, TOP,
                   EXPERTS, eb_dtype_name(dtypes[which]));
    float *rows = eb_trial_normal(t, ROWS * IN, 1), *start = eb_trial_host(t, ROWS * IN, 4);
    struct expert_weights w = make_experts(t, &x);
    if (!make_pairs(t, &x, &p)) return;
    struct eb_trial_mat together = eb_trial_out(t, start, ROWS, IN, 0);
    struct eb_trial_mat apart = eb_trial_out(t, start, 1, IN, 0);
    ebro_moe_experts_args all = experts_args(t, &x, &w, &p);
    all.x = eb_trial_mat(t, rows, ROWS, IN, 0).m;
    all.out = together.m;
    all.scratch = eb_trial_scratch(t, EBRO_OP_MOE_EXPERTS, &all);
    const uint32_t row = 1 + eb_trial_below(t, ROWS - 1);
    struct pairs q = p;
    q.weights = p.weights + row * TOP;
    int32_t list[TOP], offsets[EXPERTS + 1] = {0}, n = 0;
    for (int32_t e = 0; e < EXPERTS; e++) {
        for (uint32_t k = 0; k < TOP; k++)
            if (p.ids[row * TOP + k] == e) list[n++] = (int32_t)k;
        offsets[e + 1] = n;
    }
    q.list = list;
    q.offsets = offsets;
    ebro_moe_experts_args alone = experts_args(t, &one, &w, &q);
    alone.x = all.x;
    alone.x.offset += row * IN * sizeof(float);
    alone.out = apart.m;
    alone.scratch = eb_trial_scratch(t, EBRO_OP_MOE_EXPERTS, &alone);
    const struct eb_trial_op ops[] = {{EBRO_OP_MOE_EXPERTS, &all}, {EBRO_OP_MOE_EXPERTS, &alone}};
    if (!eb_trial_calls(t, ops, 2)) return;
    const float *a = eb_trial_get(t, &together), *b = eb_trial_get(t, &apart);
    if (a != NULL && b != NULL)
        eb_trial_same(t, b, a + row * IN, IN * sizeof *a, eb_budget_strict(), "a row alone");
}

/* ---- the list --------------------------------------------------------------------------- */

#define CASE(op, name, part, f, which) \
    { EBRO_OP_##op, name, EB_CASE_##part, 0, f, which }

#define UNITS(name, part, which) \
    { EBRO_OP_MOE_EXPERTS, name, EB_CASE_##part, EBRO_CAP_MATRIX, run_experts, which }
#define ALONE(name, part, which) \
    { EBRO_OP_MOE_EXPERTS, name, EB_CASE_##part, EBRO_CAP_STRICT, experts_alone, which }

static const struct eb_opcheck_case cases[] = {
    CASE(MOE_ROUTE, "8 of 40, bf16", START, random_route, 0),
    CASE(MOE_ROUTE, "all of 33, one row", QUICK, random_route, 1),
    CASE(MOE_ROUTE, "forced", QUICK, random_route, 2),
    CASE(MOE_ROUTE, "600 experts, 301 rows", FULL, random_route, 3),
    CASE(MOE_ROUTE, "one of 40, mxfp4", FULL, random_route, 4),
    CASE(MOE_ROUTE, "ties", START, ties, 0),
    CASE(MOE_ROUTE, "rows that are not finite", QUICK, broken_rows, 0),
    CASE(MOE_EXPERTS, "odd sizes, bf16", START, run_experts, 0),
    CASE(MOE_EXPERTS, "mxfp4, SiTU", START, run_experts, 1),
    CASE(MOE_EXPERTS, "two experts take all, f16", START, run_experts, 2),
    CASE(MOE_EXPERTS, "150 rows, f32", FULL, run_experts, 3),
    CASE(MOE_EXPERTS, "150 rows, bf16, SiTU", FULL, run_experts, 4),
    CASE(MOE_EXPERTS, "one row, f16, SiTU", FULL, run_experts, 5),
    CASE(MOE_EXPERTS, "40 rows, f16", FULL, run_experts, 6),
    UNITS("on matrix units, bf16", START, 4),
    UNITS("on matrix units, f16", START, 6),
    ALONE("a row alone, bf16", QUICK, 0),
    ALONE("a row alone, f32", FULL, 1),
    ALONE("a row alone, f16", FULL, 2),
    ALONE("a row alone, mxfp4", FULL, 3),
};

const struct eb_opcheck_list eb_opcheck_moe = {cases, sizeof cases / sizeof cases[0]};
