/* sample.c: the sampler against a brute-force float64 reference that sorts the whole vocabulary.
 *
 * Where a cut or a draw falls within rounding of a boundary two answers are right. The reference
 * says how near it came; f32 exp is good to 1e-6 of a probability and so the draw must agree unless
 * it lies within 1e-5 of an edge. */
#include "tests/opcheck/rig.h"

/* eb_ref_sample of f32 logits. */
static int32_t reference(const float *logits, uint32_t n, const ebro_sample_params *p,
                         struct eb_ref_choice *c, bool *unsure) {
    double *wide = rig_host(n, sizeof *wide);
    for (uint32_t i = 0; i < n; i++) wide[i] = (double)logits[i];
    return eb_ref_sample(wide, n, p, c, unsure);
}

static const int32_t *sample(const float *logits, uint32_t rows, uint32_t vocab,
                             const ebro_sample_params *params) {
    struct rig_mat lm = rig_mat_from(logits, rows, vocab, 3);
    struct rig_buf ids = rig_buf(rows * 4);
    ebro_sample_args a = {.size = sizeof a, .logits = lm.m, .n_rows = rows, .vocab = vocab};
    a.params = rig_data(params, rows * sizeof *params).span;
    a.ids = ids.span;
    a.scratch = rig_scratch(EBRO_OP_SAMPLE, &a);
    test_ok(eb_op_sample(&rig.s, &a, &rig.err), &rig.err);
    rig_sync();
    return rig_get(&ids);
}

static void greedy(void **state) {
    (void)state;
    const float logits[5][6] = {{0, 3, -1, 3, 2, 3},
                                {-5, -5, -5, -5, -5, -5},
                                {-3e38f, -3e38f, 1, 3e38f, 0, 0},
                                {-0.0f, 0.0f, 0, 0, -1, -1},
                                {1, 2, 3, 4, 5, 6}};
    const int32_t want[5] = {1, 0, 3, 0, 5};
    ebro_sample_params p[5];
    memset(p, 0, sizeof p);
    /* At temperature 0 nothing else counts. */
    p[4].top_k = 3;
    p[4].top_p = 0.5f;
    assert_memory_equal(sample(&logits[0][0], 5, 6, p), want, sizeof want);
}

static void not_finite(void **state) {
    (void)state;
    const float bad[3] = {NAN, INFINITY, -INFINITY};
    float logits[18][7];
    ebro_sample_params p[18];
    memset(p, 0, sizeof p);
    for (uint32_t r = 0; r < 18; r++) {
        for (uint32_t i = 0; i < 7; i++) logits[r][i] = (float)i;
        logits[r][r / 3 % 3 * 3] = bad[r % 3]; /* first, middle, last */
        p[r].temperature = r < 9 ? 0.0f : 1.0f;
        p[r].top_k = r % 2 * 3;
    }
    logits[17][6] = 6; /* one good row among bad ones */
    const int32_t *ids = sample(&logits[0][0], 18, 7, p);
    for (uint32_t r = 0; r < 17; r++) assert_int_equal(ids[r], -1);
    assert_true(ids[17] >= 0 && ids[17] < 7);
}

static float pick(const float *from, uint32_t n) {
    return from[rig_below(n)];
}

static void random_rows(void **state) {
    static const float temperatures[] = {0.0f, 0.1f, 0.7f, 1.0f, 3.0f, 1e-30f, 1e30f};
    static const float top_ps[] = {0.0f, 0.01f, 0.5f, 0.9f, 0.999f, 1.0f};
    static const float min_ps[] = {0.0f, 0.01f, 0.3f, 1.0f};
    static const uint32_t vocabs[] = {1, 2, 3, 17, 400, 4352};
    uint32_t unsure_rows = 0, drawn = 0;
    for (uint32_t v = 0; v < 60; v++) {
        const uint32_t rows = 20, vocab = vocabs[v % 6];
        float *logits = rig_normal(rows * vocab, v % 4 == 0 ? 0.3f : 3.0f);
        /* Coarse values: ties everywhere, also across the cuts. */
        for (uint32_t i = 0; v % 3 == 0 && i < rows * vocab; i++) logits[i] = roundf(logits[i]);
        ebro_sample_params p[20];
        for (uint32_t r = 0; r < rows; r++) {
            static const uint32_t top_ks[] = {0, 1, 2, 5, 40, 100000};
            p[r] =
                (ebro_sample_params){pick(temperatures, 7), pick(top_ps, 6),    pick(min_ps, 4),
                                     top_ks[rig_below(6)],  test_u64(&rig.rng), rig_below(10000)};
        }
        const int32_t *ids = sample(logits, rows, vocab, p);
        struct eb_ref_choice *c = rig_host(vocab, sizeof *c);
        for (uint32_t r = 0; r < rows; r++) {
            bool unsure = false;
            int32_t want = reference(logits + r * vocab, vocab, &p[r], c, &unsure);
            drawn++;
            unsure_rows += unsure;
            if (ids[r] != want && !unsure) {
                fail_msg("vocab %u t %g top_k %u top_p %g min_p %g: id %d, not %d", vocab,
                         (double)p[r].temperature, p[r].top_k, (double)p[r].top_p,
                         (double)p[r].min_p, ids[r], want);
            }
            assert_true(ids[r] >= 0 && ids[r] < (int32_t)vocab);
        }
        rig_reset(state);
    }
    printf("%u rows, %u too near an edge to tell\n", drawn, unsure_rows);
    assert_true(unsure_rows < drawn / 4);
}

/* Logits so close, or so far from one that is alone, that cuts fall among many that are nearly or
 * exactly alike. */
static void crowds(void **state) {
    static const float temperatures[] = {1.0f, 1e-5f, 1e28f};
    uint32_t unsure_rows = 0;
    const uint32_t rows = 6, vocab = 9001;
    for (uint32_t v = 0; v < 6; v++) {
        float *logits = rig_host(rows * vocab, sizeof *logits);
        ebro_sample_params p[6];
        for (uint32_t i = 0; i < rows * vocab; i++) {
            logits[i] = (v % 2 ? 1.0f : -0.001f) * (1.0f + (float)rig_below(3000) * 0x1p-23f);
            /* One that is far below. */
            if (v % 3 == 2 && i % vocab == 8000) logits[i] = -1e30f;
        }
        for (uint32_t r = 0; r < rows; r++) {
            p[r] = (ebro_sample_params){.temperature = temperatures[v / 2],
                                        .top_k = r % 2 ? 1 + rig_below(vocab) : 0,
                                        .top_p = r % 3 ? test_uniform(&rig.rng, 0, 1) : 0.0f,
                                        .seed = test_u64(&rig.rng),
                                        .position = test_u64(&rig.rng)};
        }
        const int32_t *ids = sample(logits, rows, vocab, p);
        struct eb_ref_choice *c = rig_host(vocab, sizeof *c);
        for (uint32_t r = 0; r < rows; r++) {
            bool unsure = false;
            int32_t want = reference(logits + r * vocab, vocab, &p[r], c, &unsure);
            unsure_rows += unsure;
            if (ids[r] != want && !unsure) {
                fail_msg("crowd %u t %g top_k %u top_p %g: id %d, not %d", v,
                         (double)p[r].temperature, p[r].top_k, (double)p[r].top_p, ids[r], want);
            }
            assert_true(ids[r] >= 0 && ids[r] < (int32_t)vocab);
        }
        rig_reset(state);
    }
    assert_true(unsure_rows < 36 * 2 / 3);
}

/* Frequencies of 20,000 positions against the probabilities: chi square over the kept ids. */
static void distribution(void **state) {
    (void)state;
    enum { N = 20000, BATCH = 500 };
    const float logits[8] = {0.1f, 2.0f, -1.0f, 1.5f, 0.7f, -3.0f, 1.9f, 0.0f};
    float *many = rig_host(BATCH * 8, sizeof *many);
    ebro_sample_params p[BATCH];
    uint32_t count[8] = {0};
    uint64_t seed = test_u64(&rig.rng);
    for (uint32_t i = 0; i < BATCH; i++) memcpy(many + i * 8, logits, sizeof logits);
    for (uint32_t at = 0; at < N; at += BATCH) {
        for (uint32_t i = 0; i < BATCH; i++) {
            p[i] = (ebro_sample_params){.temperature = 0.8f, .top_k = 6, .seed = seed};
            p[i].position = at + i;
        }
        const int32_t *ids = sample(many, BATCH, 8, p);
        for (uint32_t i = 0; i < BATCH; i++) count[ids[i]]++;
    }
    struct eb_ref_choice c[8];
    bool unsure = false;
    double mass = 0, chi = 0;
    (void)reference(logits, 8, &p[0], c, &unsure);
    for (uint32_t i = 0; i < 8; i++) mass += c[i].kept ? c[i].p : 0;
    for (uint32_t i = 0; i < 8; i++) {
        if (!c[i].kept) {
            assert_int_equal(count[i], 0);
            continue;
        }
        double want = N * c[i].p / mass;
        chi += (count[i] - want) * (count[i] - want) / want;
    }
    /* Five degrees of freedom: beyond 37 once in two million runs. */
    test_le(chi, 37, "chi square");
}

/* A whole vocabulary, with a nucleus that is most of it. */
static void large(void **state) {
    (void)state;
    const uint32_t vocab = 163840, rows = 4;
    float *logits = rig_normal(rows * vocab, 1);
    ebro_sample_params p[4];
    for (uint32_t r = 0; r < rows; r++) {
        p[r] = (ebro_sample_params){.temperature = 1, .seed = test_u64(&rig.rng), .position = r};
        p[r].top_p = r == 1 ? 0.95f : 0.0f;
        p[r].top_k = r == 2 ? 50 : 0;
        p[r].min_p = r == 3 ? 0.2f : 0.0f;
    }
    const int32_t *ids = sample(logits, rows, vocab, p);
    struct eb_ref_choice *c = rig_host(vocab, sizeof *c);
    for (uint32_t r = 0; r < rows; r++) {
        bool unsure = false;
        int32_t want = reference(logits + r * vocab, vocab, &p[r], c, &unsure);
        /* Thousands of ids lie within 1e-5 of the draw here: the right one or close to it. */
        int32_t got = ids[r], lo = got < want ? got : want, hi = got < want ? want : got;
        double between = 0, mass = 0;
        for (int32_t i = 0; i < (int32_t)vocab; i++) {
            if (!c[i].kept) continue;
            mass += c[i].p;
            if (i > lo && i <= hi) between += c[i].p;
        }
        assert_true(got >= 0 && got < (int32_t)vocab && c[got].kept);
        test_le(between / mass, 1e-5 + 1.0 / 1e4, "row %u: %d or %d", r, got, want);
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_teardown(f, rig_reset)
    const struct CMUnitTest tests[] = {
        CASE(greedy), CASE(not_finite),   CASE(random_rows),
        CASE(crowds), CASE(distribution), CASE(large),
    };
    return rig_run("opcheck/sample", tests);
}
