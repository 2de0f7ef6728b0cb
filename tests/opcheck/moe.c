/* moe.c: moe_route and moe_experts against golden vectors and float64. */
#include "tests/opcheck/rig.h"

static const int32_t dtypes[4] = {EBRO_F32, EBRO_F16, EBRO_BF16, EBRO_MXFP4};

/* ---- route ------------------------------------------------------------------------------ */

struct routed {
    const int32_t *ids, *offsets, *pairs;
    const float *weights;
    /* The same as op arguments. */
    ebro_mat weights_mat;
    ebro_span offsets_span, pairs_span;
};

struct routing {
    const float *x, *bias;
    ebro_weight gate;
    uint32_t rows, hidden, experts, top_k;
    float scaling;
    bool renormalise, biased;
    const int32_t *forced; /* [rows][top_k]; NULL: chosen */
};

static struct routed route(const struct routing *q) {
    struct rig_mat x = rig_mat_from(q->x, q->rows, q->hidden, 3),
                   ids = rig_mat(q->rows, q->top_k, 1), weights = rig_mat(q->rows, q->top_k, 2);
    struct rig_buf offsets = rig_buf((q->experts + 1) * 4), pairs = rig_buf(q->rows * q->top_k * 4);
    ids.m.dtype = EBRO_I32;
    if (q->forced) rig_mat_put(&ids, q->forced);
    ebro_moe_route_args a = {.size = sizeof a, .x = x.m, .gate = q->gate, .n_rows = q->rows};
    if (q->bias) a.bias = rig_vec_from(q->bias, q->experts);
    a.n_experts = q->experts;
    a.top_k = q->top_k;
    a.scaling = q->scaling;
    a.renormalise = q->renormalise;
    a.biased_weights = q->biased;
    a.forced = q->forced != NULL;
    a.ids = ids.m;
    a.weights = weights.m;
    a.offsets = offsets.span;
    a.pairs = pairs.span;
    a.scratch = rig_scratch(EBRO_OP_MOE_ROUTE, &a);
    test_ok(eb_op_moe_route(&rig.s, &a, &rig.err), &rig.err);
    rig_sync();
    return (struct routed){.ids = rig_mat_get(&ids),
                           .offsets = rig_get(&offsets),
                           .pairs = rig_get(&pairs),
                           .weights = rig_mat_get(&weights),
                           .weights_mat = weights.m,
                           .offsets_span = offsets.span,
                           .pairs_span = pairs.span};
}

/* Every pair once, under its expert, rising. */
static void check_groups(const struct routing *q, const struct routed *r) {
    uint32_t n_pairs = q->rows * q->top_k;
    assert_int_equal(r->offsets[0], 0);
    for (uint32_t e = 0; e < q->experts; e++) {
        assert_true(r->offsets[e] <= r->offsets[e + 1] && r->offsets[e + 1] <= (int32_t)n_pairs);
        for (int32_t i = r->offsets[e]; i < r->offsets[e + 1]; i++) {
            assert_true(r->pairs[i] >= 0 && r->pairs[i] < (int32_t)n_pairs);
            assert_int_equal(r->ids[r->pairs[i]], e);
            if (i > r->offsets[e]) assert_true(r->pairs[i] > r->pairs[i - 1]);
        }
    }
    uint32_t known = 0;
    for (uint32_t i = 0; i < n_pairs; i++) {
        known += r->ids[i] >= 0 && r->ids[i] < (int32_t)q->experts;
    }
    assert_int_equal(r->offsets[q->experts], known);
}

/* Chosen ids are the best by float64 scores unless two are nearer than rounding; weights follow. */
static void check_route(const struct routing *q, const double *w, const struct routed *r) {
    double *s = rig_host(q->experts, sizeof *s), *best = rig_host(q->experts, sizeof *best);
    double *size = rig_host(q->experts, sizeof *size);
    for (uint32_t row = 0; row < q->rows; row++) {
        double error = 0, sum = 0;
        eb_ref_scores(q->x + (uint64_t)row * q->hidden, w, q->hidden, q->experts, q->bias, s, best,
                      size);
        for (uint32_t e = 0; e < q->experts; e++)
            error = fmax(error, eb_budget_score(q->hidden, size[e], best[e]));
        const int32_t *ids = r->ids + row * q->top_k;
        for (uint32_t k = 0; k < q->top_k; k++) {
            assert_true(ids[k] >= 0 && ids[k] < (int32_t)q->experts);
            for (uint32_t e = 0; e < q->experts && !q->forced; e++) {
                bool earlier = false;
                for (uint32_t j = 0; j < k; j++) earlier = earlier || ids[j] == (int32_t)e;
                if (!earlier)
                    test_le(best[e] - best[ids[k]], eb_budget_route(error).value,
                            "row %u choice %u", row, k);
            }
            for (uint32_t j = 0; j < k && !q->forced; j++) assert_true(ids[j] != ids[k]);
            sum += q->biased ? best[ids[k]] : s[ids[k]];
        }
        for (uint32_t k = 0; k < q->top_k; k++) {
            double want = (q->biased ? best[ids[k]] : s[ids[k]]) * (double)q->scaling;
            double bound = error * (double)q->scaling;
            if (q->renormalise) {
                want /= sum + 1e-20;
                bound = (bound + fabs(want) * error * q->top_k) / sum;
            }
            test_le(fabs((double)r->weights[row * q->top_k + k] - want),
                    eb_budget_route(bound).value, "weight");
        }
    }
    check_groups(q, r);
}

static void route_golden(void **state) {
    static const char *const names[] = {"k3like",    "linearlike",   "small",          "ties",
                                        "all_equal", "bias_decides", "negative_choice"};
    struct test_golden *g = test_golden_open("op_router.safetensors");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct eb_tensor *x = test_tensor(g, "%s.x", names[i]);
        const struct eb_tensor *gate = test_tensor(g, "%s.gate", names[i]);
        const float *ks = rig_keep(test_f32(test_tensor(g, "%s.top_k_scaling", names[i])));
        struct routing q = {.x = rig_keep(test_f32(x)),
                            .bias = rig_keep(test_f32(test_tensor(g, "%s.bias", names[i]))),
                            .rows = (uint32_t)x->shape[0],
                            .hidden = (uint32_t)x->shape[1],
                            .experts = (uint32_t)gate->shape[0],
                            .top_k = (uint32_t)ks[0],
                            .scaling = ks[1],
                            .renormalise = true};
        struct rig_buf w = rig_data(rig_keep(test_f32(gate)), test_count(gate) * 4);
        q.gate = (ebro_weight){.mem = w.span.mem, .offset = w.span.offset, .stride = q.hidden};
        q.gate.rows = q.experts;
        q.gate.cols = q.hidden;
        struct routed r = route(&q);
        const int32_t *ids = rig_keep(test_i32(test_tensor(g, "%s.ids", names[i])));
        double *weights = rig_keep(test_f64(test_tensor(g, "%s.weights", names[i])));
        /* negative_choice has logits near 30 and -30: a sigmoid in f32 is 1 there, or is lost
         * beside the bias, and ties with its neighbours. Its choice is held to rounding only, and
         * its weights to the rounding of such a logit, which is a relative error of a small
         * sigmoid. */
        bool saturated = strcmp(names[i], "negative_choice") == 0;
        double bound = saturated ? 5e-6 : 1e-6;
        check_route(&q, rig_keep(test_f64(gate)), &r);
        if (!saturated) {
            assert_memory_equal(r.ids, ids, q.rows * q.top_k * 4);
            test_le(test_rel_max(r.weights, weights, q.rows * q.top_k), bound, "%s", names[i]);
        }
        q.forced = ids;
        struct routed again = route(&q);
        assert_memory_equal(again.ids, ids, q.rows * q.top_k * 4);
        test_le(test_rel_max(again.weights, weights, q.rows * q.top_k), bound, "%s", names[i]);
        check_groups(&q, &again);
        rig_reset(state);
    }
}

static void route_random(void **state) {
    for (uint32_t v = 0; v < 48; v++) {
        struct routing q = {.rows = v % 3 == 0 ? 1 : 11, .hidden = 96, .experts = 40};
        q.top_k = v % 5 == 0 ? 40 : v % 5 == 1 ? 1 : 8;
        q.scaling = 2.446f;
        q.renormalise = v & 1;
        q.biased = v & 2;
        q.x = rig_normal(q.rows * q.hidden, 0.3f);
        if (v & 4) {
            float *bias = rig_host(q.experts, sizeof *bias);
            for (uint32_t e = 0; e < q.experts; e++) bias[e] = test_uniform(&rig.rng, 0, 1);
            q.bias = bias;
        }
        int32_t forced[11 * 40];
        for (uint32_t i = 0; i < q.rows * q.top_k; i++) forced[i] = (int32_t)rig_below(q.experts);
        if (v & 8) q.forced = forced;
        struct rig_weight w = rig_weight(dtypes[v % 4], q.experts, q.hidden, 0);
        q.gate = w.w;
        struct routed r = route(&q);
        check_route(&q, w.v, &r);
        rig_reset(state);
    }
}

/* More experts and more rows than a workgroup has threads. */
static void route_large(void **state) {
    (void)state;
    struct routing q = {.rows = 301, .hidden = 40, .experts = 600, .top_k = 9, .scaling = 2};
    q.renormalise = true;
    q.x = rig_normal(q.rows * q.hidden, 0.3f);
    float *bias = rig_host(q.experts, sizeof *bias);
    for (uint32_t e = 0; e < q.experts; e++) bias[e] = test_uniform(&rig.rng, 0, 0.2f);
    q.bias = bias;
    struct rig_weight w = rig_weight(EBRO_BF16, q.experts, q.hidden, 0);
    q.gate = w.w;
    struct routed r = route(&q);
    check_route(&q, w.v, &r);
}

/* NaN and infinite rows must not disturb the others, nor give ids out of range; forced ids out of
 * range weigh nothing and stand in no group. */
static void route_broken(void **state) {
    (void)state;
    struct routing q = {.rows = 4, .hidden = 32, .experts = 9, .top_k = 5, .scaling = 1};
    float *x = rig_normal(4 * 32, 1), *bias = rig_host(9, sizeof *bias);
    for (uint32_t i = 0; i < 32; i++) x[32 + i] = NAN;
    x[64 + 3] = INFINITY;
    bias[2] = NAN;
    q.x = x;
    q.bias = bias;
    q.renormalise = true;
    struct rig_weight w = rig_weight(EBRO_BF16, 9, 32, 0);
    q.gate = w.w;
    struct routed r = route(&q);
    check_groups(&q, &r);
    for (uint32_t i = 0; i < 20; i++) {
        assert_true(r.ids[i] >= 0 && r.ids[i] < 9);
        for (uint32_t k = i / 5 * 5; k < i; k++) assert_true(r.ids[k] != r.ids[i]);
        if (i / 5 == 1) assert_true(isnan(r.weights[i])); /* not hidden */
        if (i / 5 == 0 || i / 5 == 3) assert_true(r.ids[i] != 2 && isfinite(r.weights[i]));
    }
    const int32_t forced[20] = {0, 9, -1, 8, INT32_MAX, 1, 1, 1, 1, 1};
    q.forced = forced;
    q.bias = NULL;
    r = route(&q);
    check_groups(&q, &r);
    assert_true(r.weights[1] == 0 && r.weights[2] == 0 && r.weights[4] == 0);
    test_le(fabs((double)r.weights[0] + (double)r.weights[3] - 1), 1e-6, "what is left sums to 1");
    q.rows = 1;
    r = route(&q);
    check_groups(&q, &r);
    assert_int_equal(r.offsets[9], 2);
}

/* ---- experts ---------------------------------------------------------------------------- */

struct experts {
    uint32_t in, inner, n;
    int32_t dtype, act;
    struct rig_weight *w[3]; /* w1, w3, w2 */
    ebro_span tables, scale_tables;
};

static struct experts make_experts(uint32_t n, uint32_t in, uint32_t inner, int32_t dtype,
                                   int32_t act) {
    struct experts x = {.in = in, .inner = inner, .n = n, .dtype = dtype, .act = act};
    uint64_t *tables = rig_host(3 * n, 8), *scales = rig_host(3 * n, 8);
    for (uint32_t part = 0; part < 3; part++) {
        x.w[part] = rig_host(n, sizeof *x.w[part]);
        for (uint32_t e = 0; e < n; e++) {
            struct rig_weight w =
                rig_weight(dtype, part == 2 ? in : inner, part == 2 ? inner : in, 0);
            x.w[part][e] = w;
            tables[part * n + e] = w.w.mem->address + w.w.offset;
            if (w.w.scale_mem) scales[part * n + e] = w.w.scale_mem->address + w.w.scale_offset;
        }
    }
    x.tables = rig_data(tables, 24 * (uint64_t)n).span;
    if (dtype == EBRO_MXFP4) x.scale_tables = rig_data(scales, 24 * (uint64_t)n).span;
    return x;
}

static const float *run_experts(const struct experts *x, const struct routed *r, const float *rows,
                                const float *start, uint32_t n_rows, uint32_t top_k) {
    struct rig_mat xm = rig_mat_from(rows, n_rows, x->in, 5);
    struct rig_mat out = rig_mat_from(start, n_rows, x->in, 3);
    ebro_moe_experts_args a = {.size = sizeof a, .x = xm.m, .out = out.m, .n_rows = n_rows};
    a.n_experts = x->n;
    a.top_k = top_k;
    a.in_dim = x->in;
    a.inner_dim = x->inner;
    a.tables = x->tables;
    a.scale_tables = x->scale_tables;
    a.dtype = x->dtype;
    a.act = x->act;
    a.beta = 4;
    a.beta2 = 25;
    a.weights = r->weights_mat;
    a.offsets = r->offsets_span;
    a.pairs = r->pairs_span;
    a.scratch = rig_scratch(EBRO_OP_MOE_EXPERTS, &a);
    test_ok(eb_op_moe_experts(&rig.s, &a, &rig.err), &rig.err);
    rig_sync();
    return rig_mat_get(&out);
}

/* Adds what expert e makes of a row to out, and the same with magnitudes to size. */
static void expert_reference(const struct experts *x, uint32_t e, const float *row, double weight,
                             double *out, double *size) {
    const struct eb_ref_expert expert = {
        x->w[0][e].v, x->w[1][e].v, x->w[2][e].v, x->in, x->inner, x->act, 4, 25};
    eb_ref_expert(&expert, row, weight, rig_host(x->inner, sizeof(double)), out, size);
}

static void experts_case(uint32_t n_rows, uint32_t top_k, uint32_t in, uint32_t inner,
                         int32_t dtype, int32_t act) {
    const uint32_t n = 6;
    struct experts x = make_experts(n, in, inner, dtype, act);
    struct routing q = {.rows = n_rows, .hidden = 32, .experts = n, .top_k = top_k, .scaling = 2};
    q.x = rig_normal(n_rows * 32, 1);
    q.gate = rig_weight(EBRO_F32, n, 32, 0).w;
    struct routed r = route(&q);
    float *rows = rig_normal(n_rows * in, 0.5f), *start = rig_normal(n_rows * in, 1);
    const float *got = run_experts(&x, &r, rows, start, n_rows, top_k);
    double worst = 0, total = 0;
    for (uint32_t row = 0; row < n_rows; row++) {
        double *out = rig_host(in, sizeof *out), *size = rig_host(in, sizeof *size);
        for (uint32_t k = 0; k < top_k; k++) {
            expert_reference(&x, (uint32_t)r.ids[row * top_k + k], rows + row * in,
                             (double)r.weights[row * top_k + k], out, size);
        }
        for (uint32_t c = 0; c < in; c++) {
            double error = fabs((double)got[row * in + c] - (out[c] + (double)start[row * in + c]));
            worst += error * error;
            total += size[c] * size[c];
        }
    }
    test_le(sqrt(worst), eb_budget_experts(in, inner).value * sqrt(total),
            "experts %s act %d rows %u", eb_dtype_name(dtype), act, n_rows);
}

static void experts_random(void **state) {
    for (uint32_t v = 0; v < 16; v++) {
        int32_t dtype = dtypes[v % 4], act = v & 4 ? EBRO_ACT_SITU : EBRO_ACT_SILU;
        bool mx = dtype == EBRO_MXFP4;
        /* 150 rows by 3 of 6: more pairs of an expert than a block of 64 holds. */
        if (v & 8) {
            experts_case(150, 3, 160, mx ? 160 : 133, dtype, act);
            experts_case(40, 3, 160, mx ? 160 : 133, dtype, act);
        } else {
            experts_case(7, 2, mx ? 96 : 75, mx ? 160 : 50, dtype, act);
        }
        rig_reset(state);
    }
}

/* A row gets the same bytes alone as among others. */
static void experts_splits(void **state) {
    (void)state;
    const uint32_t n_rows = 20, top_k = 3, in = 64;
    test_device_needs(EBRO_CAP_STRICT);
    for (int d = 0; d < 4; d++) {
        struct experts x = make_experts(6, in, 32, dtypes[d], EBRO_ACT_SILU);
        struct routing q = {.rows = n_rows, .hidden = in, .experts = 6, .top_k = top_k};
        float *rows = rig_normal(n_rows * in, 1), *zero = rig_host(n_rows * in, 4);
        q.scaling = 1;
        q.x = rows;
        q.gate = rig_weight(EBRO_BF16, 6, in, 0).w;
        struct routed r = route(&q);
        const float *together = run_experts(&x, &r, rows, zero, n_rows, top_k);
        q.rows = 1;
        for (uint32_t i = 0; i < n_rows; i++) {
            q.x = rows + i * in;
            r = route(&q);
            const float *alone = run_experts(&x, &r, q.x, zero, 1, top_k);
            assert_memory_equal(alone, together + i * in, in * 4);
        }
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_teardown(f, rig_reset)
    const struct CMUnitTest tests[] = {
        CASE(route_golden), CASE(route_random),   CASE(route_broken),
        CASE(route_large),  CASE(experts_random), CASE(experts_splits),
    };
    return rig_run("opcheck/moe", tests);
}
