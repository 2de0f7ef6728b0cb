/* kda.c: kda_prep and kda_recur against a float64 recurrence: every length around the chunks, gates
 * from one that forgets all to one that forgets nothing, states scattered over blocks. Golden
 * vectors are in kda_golden.c, the convolution and the fused step in kda_step.c.
 *
 * Bounds: eb_budget_kda and eb_budget_kda_state (check/budget.h).
 */
#include "tests/opcheck/kda_ref.h"

#define bound (eb_budget_kda().value)
#define bf16_bound (eb_budget_kda_state(EBRO_BF16).value)

/* One plan of a case against the reference; states random. */
static void check_plan(const struct eb_ref_kda *c, const struct eb_ref_plan *p, int32_t dtype,
                       struct seq_layout layout, const char *what) {
    uint64_t n = (uint64_t)c->n_rows * c->n_heads * c->dim, size = eb_ref_kda_size(c);
    struct seq_pool pool =
        seq_pool(SEQ_SLOTS, c->n_heads, (uint64_t)c->dim * c->dim, dtype, layout);
    double *states = kda_random_state(SEQ_SLOTS * size), *o = rig_host(n, sizeof *o);
    for (uint32_t s = 0; s < SEQ_SLOTS; s++) seq_pool_put(&pool, s, states + s * size);
    seq_pool_upload(&pool);
    double *qkv[3] = {kda_widen(c->q, n), kda_widen(c->k, n), kda_widen(c->v, n)};
    kda_ref_run(c, qkv, p, false, states, o);
    kda_near(kda_chunked(c, p, &pool), o, n, bound, what);
    seq_pool_check(&pool, p, states, dtype == EBRO_BF16 ? bf16_bound : bound, what);
}

static void set_all(float *x, uint64_t n, float value) {
    for (uint64_t i = 0; i < n; i++) x[i] = value;
}

/* Raw gate values for which g = value: A_log = 0, dt_bias = 0. */
static float raw_for(int32_t form, double g, double lower_bound) {
    if (form == EBRO_GATE_SOFTPLUS) return (float)(g < -30 ? -g : log(expm1(-g)));
    double y = fmin(g / lower_bound, 1 - 1e-16);
    return (float)(log(y) - log1p(-y));
}

static void plain_gate(struct eb_ref_kda *c) {
    set_all(c->a_log, c->n_heads, 0);
    set_all(c->dt_bias, (uint64_t)c->n_heads * c->dim, 0);
}

/* ---- lengths ---------------------------------------------------------------------------- */

static void every_length(uint32_t n_heads, uint32_t dim, int32_t form) {
    enum { MAX = 130 };
    struct eb_ref_kda c = kda_random(MAX, n_heads, dim, form);
    uint64_t channels = (uint64_t)n_heads * dim, size = eb_ref_kda_size(&c);
    struct seq_pool pool =
        seq_pool(2, n_heads, (uint64_t)dim * dim, EBRO_F32, (struct seq_layout){1, 0, 0, 0});
    double *start = kda_random_state(size), *o = rig_host(MAX * channels, sizeof *o);
    double *states = rig_host(2 * size, sizeof *states);
    double *qkv[3] = {kda_widen(c.q, MAX * channels), kda_widen(c.k, MAX * channels),
                      kda_widen(c.v, MAX * channels)};
    seq_pool_put(&pool, 0, start);
    seq_pool_upload(&pool);
    memcpy(states + size, start, size * sizeof *start);
    uint32_t phase = rig_first();
    for (uint32_t n = 1; n <= MAX; n++) {
        char what[64];
        snprintf(what, sizeof what, "T %u, %u heads of %u, gate %d", n, n_heads, dim, (int)form);
        struct seq_mark mark = seq_mark();
        struct eb_ref_kda last = kda_from(&c, n - 1, 1), first = kda_from(&c, 0, n);
        double *row[3] = {qkv[0] + (n - 1) * channels, qkv[1] + (n - 1) * channels,
                          qkv[2] + (n - 1) * channels};
        struct eb_ref_plan one = seq_one(1, 1, 1), p = seq_one(n, 0, 1);
        kda_ref_run(&last, row, &one, false, states, o + (n - 1) * channels);
        if (n % rig.stride == phase) {
            kda_near(kda_chunked(&first, &p, &pool), o, n * channels, bound, what);
            seq_pool_check(&pool, &p, states, bound, what);
        }
        seq_release(mark);
    }
}

static void lengths_64(void **state) {
    (void)state;
    every_length(2, 64, EBRO_GATE_SOFTPLUS);
    every_length(2, 64, EBRO_GATE_BOUNDED);
}

static void lengths_128(void **state) {
    (void)state;
    every_length(1, 128, EBRO_GATE_SOFTPLUS);
    every_length(1, 128, EBRO_GATE_BOUNDED);
}

/* Head sizes that fill no vector. */
static void odd_dims(void **state) {
    static const uint32_t dims[] = {8, 24, 40, 72, 136, 200, 256};
    for (size_t i = rig_first(); i < sizeof dims / sizeof dims[0]; i += rig.stride) {
        for (uint32_t n = 1; n < 80; n += 13) {
            char what[64];
            snprintf(what, sizeof what, "head_dim %u, T %u", dims[i], n);
            struct eb_ref_kda c = kda_random(n, 3, dims[i], (int32_t)(i & 1));
            struct eb_ref_plan p = seq_one(n, 0, 1);
            check_plan(&c, &p, EBRO_F32, seq_random_layout(3), what);
            rig_reset(state);
        }
    }
}

/* ---- gates ------------------------------------------------------------------------------ */

static const uint32_t gate_lengths[] = {1, 16, 17, 32, 33, 64, 65, 130};
enum { N_GATE_LENGTHS = sizeof gate_lengths / sizeof gate_lengths[0] };

/* g the same everywhere: -5 gives exponents of 160 inside a chunk of 32. */
static void even_gates(void **state) {
    static const double values[] = {-5, -3, -1, -1e-3, -1e-6};
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        for (uint32_t i = rig_first(); i < N_GATE_LENGTHS; i += rig.stride) {
            for (int32_t form = 0; form < 2; form++) {
                char what[64];
                uint32_t n = gate_lengths[i];
                snprintf(what, sizeof what, "g = %g, T %u, gate %d", values[v], n, (int)form);
                struct eb_ref_kda c = kda_random(n, 1, 128, form);
                plain_gate(&c);
                set_all(c.g_raw, (uint64_t)n * 128, raw_for(form, values[v], -5));
                struct eb_ref_plan p = seq_one(n, 0, 1);
                check_plan(&c, &p, EBRO_F32, (struct seq_layout){1, 0, 0, 0}, what);
                rig_reset(state);
            }
        }
    }
}

/* Next to each other, in time and over channels: -20 and -0.001; then one token, or one channel,
 * that forgets everything. */
static void uneven_gates(void **state) {
    for (int kind = 0; kind < 5; kind++) {
        for (uint32_t i = rig_first(); i < N_GATE_LENGTHS; i += rig.stride) {
            char what[64];
            uint32_t n = gate_lengths[i], dim = 128, special = n / 2;
            snprintf(what, sizeof what, "uneven gates %d, T %u", kind, n);
            struct eb_ref_kda c = kda_random(n, 1, dim, EBRO_GATE_SOFTPLUS);
            plain_gate(&c);
            float strong = raw_for(EBRO_GATE_SOFTPLUS, -20, 0);
            float weak = raw_for(EBRO_GATE_SOFTPLUS, -0.001, 0);
            for (uint32_t t = 0; t < n; t++) {
                for (uint32_t k = 0; k < dim; k++) {
                    float *raw = c.g_raw + (uint64_t)t * dim + k;
                    if (kind == 0) *raw = rig_below(2) ? strong : weak;
                    if (kind == 1) *raw = t % 2 ? strong : weak;
                    if (kind == 2) *raw = k % 2 ? strong : weak;
                    if (kind == 3) *raw = t == special ? 1000.0f : weak;
                    if (kind == 4) *raw = t == special && k == 5 ? 1000.0f : weak;
                }
            }
            struct eb_ref_plan p = seq_one(n, 0, 1);
            check_plan(&c, &p, EBRO_F32, (struct seq_layout){1, 0, 0, 0}, what);
            rig_reset(state);
        }
    }
}

/* beta = 1 and one key for all: A is all ones below the diagonal, whose powers grow beyond measure
 * while (I + A)^-1 stays within [-1, 1]. With beta = 0 nothing is ever written. */
static void hard_betas(void **state) {
    for (int kind = 0; kind < 3; kind++) {
        uint32_t stride = rig.stride;
        for (uint32_t n = 1 + 3 * rig_first(); n <= 130; n += (n < 70 ? 3 : 20) * stride) {
            char what[64];
            uint32_t dim = 64;
            snprintf(what, sizeof what, "beta kind %d, T %u", kind, n);
            struct eb_ref_kda c = kda_random(n, 1, dim, EBRO_GATE_BOUNDED);
            plain_gate(&c);
            set_all(c.g_raw, (uint64_t)n * dim, raw_for(EBRO_GATE_BOUNDED, -1e-4, -5));
            set_all(c.beta_raw, n, kind == 2 ? -200.0f : 40.0f);
            for (uint32_t t = 1; t < n && kind < 2; t++) {
                float *k = c.k + (uint64_t)t * dim;
                memcpy(k, c.k, dim * sizeof *k);
                if (kind == 1) k[t % dim] *= 1.001f; /* nearly one key */
            }
            struct eb_ref_plan p = seq_one(n, 0, 1);
            check_plan(&c, &p, EBRO_F32, (struct seq_layout){1, 0, 0, 0}, what);
            rig_reset(state);
        }
    }
}

/* ---- states ----------------------------------------------------------------------------- */

/* S is [key][value], without the reference: one token writes v = 2 e_5 under the key e_3, and one
 * query e_3 reads it back. */
static void layout(void **state) {
    (void)state;
    enum { DIM = 16, KEY = 3, VALUE = 5 };
    struct eb_ref_kda c = kda_random(2, 1, DIM, EBRO_GATE_BOUNDED);
    plain_gate(&c);
    set_all(c.g_raw, 2 * DIM, -200); /* g = 0 */
    c.beta_raw[0] = 200;
    c.beta_raw[1] = -200;
    set_all(c.q, 2 * DIM, 0);
    set_all(c.k, 2 * DIM, 0);
    set_all(c.v, 2 * DIM, 0);
    c.k[KEY] = 7;
    c.v[VALUE] = 2;
    c.q[DIM + KEY] = 3;
    c.k[DIM + 1] = 1;
    c.l2_eps = 0;
    /* A q or k of zeros has no direction: give the unused ones one. */
    c.q[0] = 1;
    struct eb_ref_plan p = seq_one(2, -1, 1);
    struct seq_pool pool = seq_pool(2, 1, DIM * DIM, EBRO_F32, (struct seq_layout){1, 0, 0, 0});
    const float *o = kda_chunked(&c, &p, &pool);
    const float *s = seq_pool_get(&pool, rig_get(&pool.buf), 1);
    for (uint32_t i = 0; i < DIM * DIM; i++) {
        test_le(fabs((double)s[i] - (i == KEY * DIM + VALUE ? 2.0 : 0.0)), 1e-6, "S[%u]", i);
    }
    for (uint32_t i = 0; i < DIM; i++) {
        /* q is scaled by dim^-1/2 */
        test_le(fabs((double)o[DIM + i] - (i == VALUE ? 0.5 : 0.0)), 1e-6, "o[%u]", i);
    }
}

/* Many sequences, some empty, with emitted states, scattered and padded. */
static void plans(void **state) {
    for (uint32_t i = rig_first(); i < 60; i += rig.stride) {
        char what[64];
        int32_t dtype = i % 3 == 2 ? EBRO_BF16 : EBRO_F32;
        uint32_t n_heads = 1 + rig_below(4), dim = i % 4 ? 64 : 32;
        struct eb_ref_plan p = seq_random_plan(100);
        snprintf(what, sizeof what, "plan %u: %u sequences, %u rows, %u emitted, %s", i, p.n_seqs,
                 eb_ref_rows(&p), p.n_emit, eb_dtype_name(dtype));
        struct eb_ref_kda c = kda_random(eb_ref_rows(&p), n_heads, dim, i & 1);
        check_plan(&c, &p, dtype, seq_random_layout(n_heads), what);
        rig_reset(state);
    }
}

/* A prompt cut anywhere gives what it gives in one piece. */
static void cuts(void **state) {
    for (uint32_t i = rig_first(); i < 12; i += rig.stride) {
        enum { N = 150 };
        struct eb_ref_kda c = kda_random(N, 2, 64, i & 1);
        uint64_t channels = 128, size = eb_ref_kda_size(&c);
        double *states = kda_random_state(2 * size), *o = rig_host(N * channels, sizeof *o);
        double *qkv[3] = {kda_widen(c.q, N * channels), kda_widen(c.k, N * channels),
                          kda_widen(c.v, N * channels)};
        struct seq_pool pool = seq_pool(2, 2, 64 * 64, EBRO_F32, seq_random_layout(2));
        struct eb_ref_plan whole = seq_one(N, 0, 0);
        seq_pool_put(&pool, 0, states);
        seq_pool_upload(&pool);
        kda_ref_run(&c, qkv, &whole, false, states, o);
        for (uint32_t row = 0, n; row < N; row += n) {
            n = 1 + rig_below(rig_below(2) ? 70 : 5);
            if (n > N - row) n = N - row;
            struct eb_ref_kda part = kda_from(&c, row, n);
            struct eb_ref_plan p = seq_one(n, 0, 0);
            kda_near(kda_chunked(&part, &p, &pool), o + row * channels, n * channels, bound, "cut");
        }
        seq_pool_check(&pool, &whole, states, bound, "after the last cut");
        rig_reset(state);
    }
}

/* Nothing builds up over 4,500 tokens, more than a launch may take at once. */
static void long_run(void **state) {
    (void)state;
    for (int32_t form = 0; form < 2; form++) {
        struct eb_ref_kda c = kda_random(4500, 1, 64, form);
        if (form == EBRO_GATE_BOUNDED) set_all(c.dt_bias, 64, -9); /* g about -6e-4 */
        struct eb_ref_plan p = seq_one(4500, 0, 1);
        check_plan(&c, &p, EBRO_F32, (struct seq_layout){1, 0, 0, 0}, "4500 tokens");
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_teardown(f, rig_reset)
    const struct CMUnitTest tests[] = {
        CASE(lengths_64), CASE(lengths_128), CASE(odd_dims), CASE(even_gates), CASE(uneven_gates),
        CASE(hard_betas), CASE(layout),      CASE(plans),    CASE(cuts),       CASE(long_run),
    };
    return rig_run("opcheck/kda", tests);
}
