/* kda_step.c: kda_conv and kda_step against a float64 chain: convolution and SiLU, gates,
 * recurrence, gated output norm. The chunked recurrence is tested in kda.c.
 *
 * Bounds: eb_budget_step and eb_budget_step_state (check/budget.h); windows are copies and must be
 * exact. */
#include "tests/opcheck/kda_ref.h"

#define bound (eb_budget_kda().value)
#define flip (eb_budget_step_state(EBRO_BF16).value)
#define bf16_bound (eb_budget_step(EBRO_BF16).value)

struct chain {
    struct eb_ref_kda c; /* q, k, v unused */
    float *x[3], *out_gate;
    ebro_vec weight[3], norm_weight;
    double *w[3], *norm; /* their values */
    float norm_eps;
};

static struct chain random_chain(uint32_t n_rows, uint32_t n_heads, uint32_t dim, int32_t form) {
    static const int32_t dtypes[3] = {EBRO_F32, EBRO_BF16, EBRO_F16};
    uint64_t channels = (uint64_t)n_heads * dim;
    struct chain s = {.c = kda_random(n_rows, n_heads, dim, form), .norm_eps = 1e-5f};
    for (uint32_t i = 0; i < 3; i++) {
        s.x[i] = rig_normal(n_rows * channels, 1);
        s.weight[i] = rig_vec(dtypes[rig_below(3)], (uint32_t)channels * 4, &s.w[i]);
    }
    s.out_gate = rig_normal(n_rows * channels, 2);
    s.norm_weight = rig_vec(dtypes[rig_below(3)], dim, &s.norm);
    return s;
}

static void chain_ref(const struct chain *s, const struct eb_ref_plan *p, bool rounded,
                      double *windows, double *states, double *o) {
    uint64_t channels = (uint64_t)s->c.n_heads * s->c.dim, n = eb_ref_rows(p) * channels;
    double *y[3] = {rig_host(n, 8), rig_host(n, 8), rig_host(n, 8)};
    eb_ref_conv(s->x, s->w, channels, p, windows, y, rig_host(9 * channels, 8));
    kda_ref_run(&s->c, y, p, rounded, states, o);
    for (uint64_t row = 0; row < eb_ref_rows(p); row++) {
        for (uint32_t h = 0; h < s->c.n_heads; h++) {
            uint64_t at = row * channels + (uint64_t)h * s->c.dim;
            eb_ref_gated_norm(o + at, s->c.dim, (double)s->norm_eps, s->norm, s->out_gate + at);
        }
    }
}

static float *run_step(const struct chain *s, const struct eb_ref_plan *p,
                       const struct seq_pool *windows, const struct seq_pool *states) {
    uint64_t channels = (uint64_t)s->c.n_heads * s->c.dim;
    struct rig_mat out = seq_mat(p, NULL, channels);
    ebro_kda_step_args a = {.size = sizeof a,
                            .rows = seq_rows(p),
                            .gate = kda_gate_args(&s->c, p),
                            .windows = seq_io(p, windows),
                            .state = seq_io(p, states),
                            .out_gate = seq_mat(p, s->out_gate, channels).m,
                            .norm_weight = s->norm_weight,
                            .norm_eps = s->norm_eps,
                            .out = out.m};
    for (int i = 0; i < 3; i++) {
        a.x[i] = seq_mat(p, s->x[i], channels).m;
        a.conv_weight[i] = s->weight[i];
    }
    struct rig_buf scratch = rig_buf(eb_op_scratch(rig.device, EBRO_OP_KDA_STEP, &a));
    a.scratch = scratch.span;
    test_ok(eb_op_kda_step(&rig.s, &a, &rig.err), &rig.err);
    rig_sync();
    (void)rig_get(&scratch);
    return seq_mat_get(p, &out);
}

/* A chain from `row` on. */
static struct chain chain_from(const struct chain *s, uint32_t row, uint32_t n) {
    struct chain r = *s;
    uint64_t at = (uint64_t)row * s->c.n_heads * s->c.dim;
    r.c = kda_from(&s->c, row, n);
    for (int i = 0; i < 3; i++) r.x[i] += at;
    r.out_gate += at;
    return r;
}

static double *fill_pool(struct seq_pool *pool) {
    uint64_t n = pool->units * pool->elements;
    double *v = kda_random_state(pool->n_slots * n);
    for (uint32_t s = 0; s < pool->n_slots; s++) seq_pool_put(pool, s, v + s * n);
    seq_pool_upload(pool);
    return v;
}

static struct seq_pool window_pool(uint64_t channels) {
    return seq_pool(SEQ_SLOTS, 3, 3 * channels, EBRO_F32, seq_random_layout(3));
}

static struct seq_pool state_pool(const struct chain *s, int32_t dtype) {
    return seq_pool(SEQ_SLOTS, s->c.n_heads, (uint64_t)s->c.dim * s->c.dim, dtype,
                    seq_random_layout(s->c.n_heads));
}

/* ---- convolution ------------------------------------------------------------------------ */

static void conv(void **state) {
    static const uint32_t widths[] = {1, 8, 96, 128, 256, 300, 640};
    for (int round = 0; round < 35; round++) {
        uint32_t channels = widths[round % 7];
        char what[64];
        struct eb_ref_plan p = seq_random_plan(40);
        snprintf(what, sizeof what, "conv, %u channels, %u rows", channels, eb_ref_rows(&p));
        struct chain s = random_chain(eb_ref_rows(&p), 1, channels, EBRO_GATE_BOUNDED);
        uint64_t n = (uint64_t)eb_ref_rows(&p) * channels;
        struct seq_pool pool = window_pool(channels);
        double *windows = fill_pool(&pool),
               *y[3] = {rig_host(n, 8), rig_host(n, 8), rig_host(n, 8)};
        eb_ref_conv(s.x, s.w, channels, &p, windows, y, rig_host(9 * channels, 8));
        ebro_kda_conv_args a = {.size = sizeof a,
                                .rows = seq_rows(&p),
                                .n_channels = channels,
                                .state = seq_io(&p, &pool)};
        struct rig_mat out[3];
        for (int i = 0; i < 3; i++) {
            out[i] = seq_mat(&p, NULL, channels);
            a.x[i] = seq_mat(&p, s.x[i], channels).m;
            a.out[i] = out[i].m;
            a.weight[i] = s.weight[i];
        }
        test_ok(eb_op_kda_conv(&rig.s, &a, &rig.err), &rig.err);
        rig_sync();
        for (int i = 0; i < 3; i++) kda_near(seq_mat_get(&p, &out[i]), y[i], n, bound, what);
        seq_pool_check(&pool, &p, windows, 0, what);
        rig_reset(state);
    }
}

/* ---- step ------------------------------------------------------------------------------- */

static void check_step(const struct chain *s, const struct eb_ref_plan *p, int32_t dtype,
                       const char *what) {
    uint64_t channels = (uint64_t)s->c.n_heads * s->c.dim, n = eb_ref_rows(p) * channels;
    struct seq_pool windows = window_pool(channels), states = state_pool(s, dtype);
    double *w = fill_pool(&windows), *v = fill_pool(&states), *o = rig_host(n, sizeof *o);
    bool rounded = dtype == EBRO_BF16;
    chain_ref(s, p, rounded, w, v, o);
    kda_near(run_step(s, p, &windows, &states), o, n, rounded ? bf16_bound : bound, what);
    seq_pool_check(&windows, p, w, 0, what);
    seq_pool_check(&states, p, v, rounded ? flip : bound, what);
}

static void step_plans(void **state) {
    static const uint32_t dims[] = {64, 128, 8, 200, 40};
    for (uint32_t i = rig_first(); i < 40; i += rig.stride) {
        char what[64];
        int32_t dtype = i % 3 == 2 ? EBRO_BF16 : EBRO_F32;
        uint32_t n_heads = 1 + rig_below(4);
        struct eb_ref_plan p = seq_random_plan(i % 4 ? 4 : 40);
        snprintf(what, sizeof what, "step plan %u, %u rows, %s", i, eb_ref_rows(&p),
                 eb_dtype_name(dtype));
        struct chain s = random_chain(eb_ref_rows(&p), n_heads, dims[i % 5], i & 1);
        check_step(&s, &p, dtype, what);
        rig_reset(state);
    }
}

/* Gates and betas at their ends. */
static void step_extremes(void **state) {
    static const float raws[] = {-200, -20, -7, 3, 20, 200, 1000};
    for (size_t i = 0; i < sizeof raws / sizeof raws[0]; i++) {
        for (int32_t form = 0; form < 2; form++) {
            char what[64];
            snprintf(what, sizeof what, "step, raw gate %g, form %d", (double)raws[i], (int)form);
            struct eb_ref_plan p = seq_one(24, 0, 5);
            struct chain s = random_chain(24, 2, 64, form);
            for (uint32_t k = 0; k < 24 * 128; k++) {
                /* every other head or token, so that something stays to be compared */
                if (k / 128 % 2 == 0 || k / 64 % 2 == 0) s.c.g_raw[k] = raws[i];
            }
            for (uint32_t k = 0; k < 48; k++) s.c.beta_raw[k] = (float)((int)(k % 3) - 1) * 100.0f;
            check_step(&s, &p, EBRO_F32, what);
            rig_reset(state);
        }
    }
}

/* The same bytes however the rows are cut into calls, states and windows included. */
static void step_splits(void **state) {
    for (uint32_t i = rig_first(); i < 12; i += rig.stride) {
        enum { N = 37 };
        int32_t dtype = i & 2 ? EBRO_BF16 : EBRO_F32;
        struct chain s = random_chain(N, 2, i % 3 ? 64 : 128, i & 1);
        uint64_t channels = 2 * (uint64_t)s.c.dim;
        struct seq_pool windows = window_pool(channels), states = state_pool(&s, dtype);
        (void)fill_pool(&windows);
        (void)fill_pool(&states);
        struct eb_ref_plan whole = seq_one(N, 0, 0);
        const float *want = run_step(&s, &whole, &windows, &states);
        const void *w = rig_get(&windows.buf), *v = rig_get(&states.buf);
        for (uint32_t most = 1; most < N; most += 5) {
            struct seq_mark mark = seq_mark();
            seq_pool_upload(&windows);
            seq_pool_upload(&states);
            for (uint32_t row = 0, n; row < N; row += n) {
                n = 1 + rig_below(most);
                if (n > N - row) n = N - row;
                struct chain part = chain_from(&s, row, n);
                struct eb_ref_plan p = seq_one(n, 0, 0);
                const float *got = run_step(&part, &p, &windows, &states);
                assert_memory_equal(got, want + row * channels, n * channels * sizeof *got);
            }
            assert_memory_equal(rig_get(&windows.buf), w, windows.buf.bytes);
            assert_memory_equal(rig_get(&states.buf), v, states.buf.bytes);
            seq_release(mark);
        }
        rig_reset(state);
    }
}

/* A sequence gives the same bytes alone and among others. */
static void step_company(void **state) {
    for (uint32_t i = rig_first(); i < 10; i += rig.stride) {
        struct eb_ref_plan all = seq_random_plan(6);
        struct chain s = random_chain(eb_ref_rows(&all), 2, 64, i & 1);
        uint64_t channels = 128;
        struct seq_pool windows = window_pool(channels), states = state_pool(&s, EBRO_F32);
        (void)fill_pool(&windows);
        (void)fill_pool(&states);
        const float *want = run_step(&s, &all, &windows, &states);
        const uint8_t *w = rig_get(&windows.buf), *v = rig_get(&states.buf);
        for (uint32_t q = 0; q < all.n_seqs; q++) {
            uint32_t row = (uint32_t)all.offsets[q], n = (uint32_t)all.offsets[q + 1] - row;
            struct eb_ref_plan p = seq_one(n, all.in[q], all.out[q]);
            struct chain part = chain_from(&s, row, n);
            seq_pool_upload(&windows);
            seq_pool_upload(&states);
            const float *got = run_step(&part, &p, &windows, &states);
            assert_memory_equal(got, want + row * channels, n * channels * sizeof *got);
            if (all.out[q] < 0) continue;
            uint32_t slot = (uint32_t)all.out[q];
            assert_memory_equal(seq_pool_get(&windows, rig_get(&windows.buf), slot),
                                seq_pool_get(&windows, w, slot), 9 * channels * 4);
            assert_memory_equal(seq_pool_get(&states, rig_get(&states.buf), slot),
                                seq_pool_get(&states, v, slot), eb_ref_kda_size(&s.c) * 4);
        }
        rig_reset(state);
    }
}

static void step_long_run(void **state) {
    for (int32_t form = 0; form < 2; form++) {
        struct eb_ref_plan p = seq_one(4000, 0, 0);
        struct chain s = random_chain(4000, 1, 64, form);
        for (uint32_t i = 0; i < 64 && form == EBRO_GATE_BOUNDED; i++) s.c.dt_bias[i] = -9;
        check_step(&s, &p, EBRO_F32, "step, 4000 tokens");
        rig_reset(state);
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_teardown(f, rig_reset)
    const struct CMUnitTest tests[] = {
        CASE(conv),        CASE(step_plans),   CASE(step_extremes),
        CASE(step_splits), CASE(step_company), CASE(step_long_run),
    };
    return rig_run("opcheck/kda_step", tests);
}
