/* kda_golden.c: kda_prep and kda_recur against golden vectors: every case that the files hold, the
 * rows in one call and in calls of one row each. The convolution, kda_step and odd shapes are
 * tested in kda.c and kda_step.c.
 *
 * Bounds: eb_budget_kda and eb_budget_kda_state (check/budget.h).
 */
#include "tests/opcheck/kda_ref.h"

#define bound (eb_budget_kda().value)

enum { MIN_CASES = 8 }; /* of a file: what the tree holds at least */

static struct eb_ref_kda load(const struct test_golden *g, const char *name, int32_t form) {
    const struct eb_tensor *q = test_tensor(g, "%s.q", name);
    struct eb_ref_kda c = {.n_rows = (uint32_t)q->shape[0],
                           .n_heads = (uint32_t)q->shape[1],
                           .dim = (uint32_t)q->shape[2],
                           .form = form,
                           .lower_bound = -5.0f,
                           .l2_eps = 1e-6f};
    c.q = rig_keep(test_f32(q));
    c.k = rig_keep(test_f32(test_tensor(g, "%s.k", name)));
    c.v = rig_keep(test_f32(test_tensor(g, "%s.v", name)));
    c.g_raw = rig_keep(test_f32(test_tensor(g, "%s.g_raw", name)));
    c.beta_raw = rig_keep(test_f32(test_tensor(g, "%s.beta_raw", name)));
    c.a_log = rig_keep(test_f32(test_tensor(g, "%s.A_log", name)));
    c.dt_bias = rig_keep(test_f32(test_tensor(g, "%s.dt_bias", name)));
    return c;
}

static void run_case(const struct test_golden *g, const char *name, int32_t form) {
    struct eb_ref_kda c = load(g, name, form);
    uint64_t channels = (uint64_t)c.n_heads * c.dim, size = eb_ref_kda_size(&c);
    const struct eb_tensor *s0 = test_tensor_opt(g, "%s.S0", name);
    double *o = rig_keep(test_f64(test_tensor(g, "%s.o", name)));
    double *end = rig_keep(test_f64(test_tensor(g, "%s.S", name)));
    double *start = s0 ? rig_keep(test_f64(s0)) : NULL, *states = rig_host(2 * size, 8);
    struct seq_layout layout = {c.n_heads, 0, 0, 0};
    char what[96];

    memcpy(states + size, end, size * sizeof *end);
    struct eb_ref_plan p = seq_one(c.n_rows, start ? 0 : -1, 1);
    struct seq_pool pool = seq_pool(2, c.n_heads, (uint64_t)c.dim * c.dim, EBRO_F32, layout);
    if (start) seq_pool_put(&pool, 0, start);
    seq_pool_upload(&pool);
    snprintf(what, sizeof what, "%s", name);
    kda_near(kda_chunked(&c, &p, &pool), o, c.n_rows * channels, bound, what);
    seq_pool_check(&pool, &p, states, bound, what);

    snprintf(what, sizeof what, "%s row by row", name);
    struct eb_ref_plan one = seq_one(1, start ? 0 : -1, 1);
    seq_pool_upload(&pool);
    float *got = rig_host(c.n_rows * channels, sizeof *got);
    for (uint32_t row = 0; row < c.n_rows; row++) {
        struct seq_mark mark = seq_mark();
        struct eb_ref_kda r = kda_from(&c, row, 1);
        memcpy(got + row * channels, kda_chunked(&r, &one, &pool), channels * sizeof *got);
        one.in[0] = 1;
        seq_release(mark);
    }
    kda_near(got, o, c.n_rows * channels, bound, what);
    seq_pool_check(&pool, &one, states, bound, what);
}

static void run_file(const char *file, int32_t form) {
    struct test_golden *g = test_golden_open(file);
    int n_cases = 0;
    for (size_t i = 0; i < g->st.n_tensors; i++) {
        char name[64];
        const char *dot = strchr(g->st.tensors[i].name, '.');
        if (!dot || strcmp(dot, ".q") != 0) continue;
        size_t n = (size_t)(dot - g->st.tensors[i].name);
        assert_true(n < sizeof name);
        memcpy(name, g->st.tensors[i].name, n);
        name[n] = '\0';
        struct seq_mark mark = seq_mark();
        run_case(g, name, form);
        seq_release(mark);
        n_cases++;
    }
    printf("%s: %d cases\n", file, n_cases);
    assert_true(n_cases >= MIN_CASES);
}

static void softplus(void **state) {
    (void)state;
    run_file("op_kda_softplus.safetensors", EBRO_GATE_SOFTPLUS);
}

static void bounded(void **state) {
    (void)state;
    run_file("op_kda_lower.safetensors", EBRO_GATE_BOUNDED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(softplus, rig_reset),
        cmocka_unit_test_teardown(bounded, rig_reset),
    };
    return rig_run("opcheck/kda_golden", tests);
}
