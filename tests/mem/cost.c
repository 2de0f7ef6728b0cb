/* cost.c: the costs of recomputation that are learned from timed steps come close to the true ones,
 * whatever else the machine does meanwhile, and costs that are given stay. */
#include <math.h>

#include "mem/manager.h"
#include "tests/harness/test.h"

/* Prompts of up to 8,000 tokens in steps of 512, as a machine would take for them. */
static void read_prompts(struct eb_cost *c, struct test_rng *rng, uint32_t n, double token,
                         double depth, double noise, double pauses) {
    enum { CHUNK = 512 };
    for (uint32_t i = 0; i < n; i++) {
        uint32_t length = 1 + (uint32_t)(test_u64(rng) % 8000);
        for (uint32_t at = 0; at < length; at += CHUNK) {
            uint32_t rows = length - at < CHUNK ? length - at : CHUNK;
            double t = at + rows / 2.0, seconds = rows * (token + depth * t);
            seconds *= 1.0 + noise * (double)test_uniform(rng, -1.0f, 1.0f);
            if ((double)test_uniform(rng, 0.0f, 1.0f) < pauses) seconds *= 20.0;
            eb_cost_note(c, rows, t, seconds);
        }
    }
}

static double proportion(const struct eb_cost *c) {
    return c->depth / c->token;
}

static void learns(void **state) {
    (void)state;
    struct test_rng rng = {test_seed()};
    static const double tokens[] = {1e-5, 1e-3, 0.5}, slopes[] = {0.0, 1e-5, 1e-4, 1e-3};
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < 4; k++) {
            struct eb_cost c;
            double token = tokens[i], depth = token * slopes[k];
            eb_cost_open(&c, 0.0, 0.0);
            read_prompts(&c, &rng, 30, token, depth, 0.0, 0.0);
            /* What the usual slope still counts after 120,000 tokens: 1024^3 against some 10^11. */
            test_le(fabs(proportion(&c) - slopes[k]), 0.02 * slopes[k] + 5e-6, "exact %g", token);
            test_le(fabs(c.token / token - 1.0), 0.03, "exact %g", token);
            /* One step in 20 takes 20 times as long, and counts as twice as long: 1.05 times on
             * average. Some 300 steps count, each off by a quarter: 1.5% in the middle, three times
             * that at the ends, and more where pauses come together. */
            eb_cost_open(&c, 0.0, 0.0);
            read_prompts(&c, &rng, 60, token, depth, 0.1, 0.05);
            for (int n = 1; n <= 8; n *= 2) {
                double t = 1000.0 * n;
                double got = c.token + c.depth * t;
                test_le(fabs(got / (token + depth * t) - 1.0), 0.5, "noisy at %g", t);
            }
        }
    }
}

/* A machine that becomes four times slower, and the first step of all, which says nothing. */
static void follows(void **state) {
    (void)state;
    struct test_rng rng = {test_seed()};
    struct eb_cost c;
    eb_cost_open(&c, 0.0, 0.0);
    double usual = proportion(&c);
    eb_cost_note(&c, 512, 256, 1e6);
    assert_true(proportion(&c) == usual && c.rows == 0.0);
    read_prompts(&c, &rng, 30, 1e-3, 1e-7, 0.05, 0.0);
    test_le(fabs(c.token / 1e-3 - 1.0), 0.1, "before");
    read_prompts(&c, &rng, 200, 4e-3, 4e-7, 0.05, 0.0);
    test_le(fabs(c.token / 4e-3 - 1.0), 0.1, "after");
    /* Steps that say nothing change nothing. */
    struct eb_cost before = c;
    eb_cost_note(&c, 31, 0, 1.0);
    eb_cost_note(&c, 512, 0, 0.0);
    eb_cost_note(&c, 512, 0, -1.0);
    eb_cost_note(&c, 512, 0, NAN);
    assert_memory_equal(&c, &before, sizeof c);
}

/* Whatever it is told, both parts stay finite and are no less than nothing. */
static void stays_sane(void **state) {
    (void)state;
    struct test_rng rng = {test_seed()};
    struct eb_cost c;
    eb_cost_open(&c, 0.0, 0.0);
    for (int i = 0; i < 100000; i++) {
        double t = (double)(test_u64(&rng) % (1u << 31)) * (i % 3 == 0 ? 0.0 : 1.0);
        double seconds = exp((double)test_uniform(&rng, -30.0f, 30.0f));
        eb_cost_note(&c, (uint32_t)(test_u64(&rng) % 5000), t, seconds);
        assert_true(isfinite(c.token) && isfinite(c.depth));
        assert_true(c.token > 0.0 && c.depth >= 0.0);
        assert_true(eb_cost_between(&c, 10, 20) >= 10.0);
    }
}

static void given(void **state) {
    (void)state;
    struct eb_cost c;
    eb_cost_open(&c, 3.0, 0.5);
    for (int i = 0; i < 10; i++) eb_cost_note(&c, 512, 100, 7.0);
    assert_true(c.token == 3.0 && c.depth == 0.5);
    /* 10 + (0.5 / 3) * (0 + ... + 9.99) */
    test_le(fabs(eb_cost_between(&c, 0, 10) - (10.0 + 0.5 / 3.0 * 50.0)), 1e-9, "between");
}

/* Two snapshots: one after 100 tokens, which saves all of them, and one after 200, of which another
 * that is shared saves 160 anyway. Where depth costs nothing the second saves less for its blocks;
 * where a token costs as much for each before it as for itself, the first does. */
static void decides(void **state) {
    (void)state;
    const struct eb_alloc alloc = {0};
    for (int deep = 0; deep < 2; deep++) {
        struct eb_policy p;
        ebro_error err;
        struct eb_slot slot = {0};
        struct eb_node first = {.n = 100},
                       shared = {.n = 160, .snapshot = &slot, .segment = EB_PROTECTED},
                       second = {.parent = &shared, .start = 160, .n = 40};
        eb_policy_open(&p, EB_POLICY_COST, &alloc, 4, 16, 1.0, deep ? 1.0 : 0.0);
        test_ok(p.call->touch(&p, &first, false, &err), &err);
        test_ok(p.call->touch(&p, &second, false, &err), &err);
        /* 100 / (4 + 7.25) and 40 / (4 + 3.5); 100 * 51 and 40 * 181 over the same */
        test_le(fabs(first.score - (deep ? 5100.0 : 100.0) / 11.25), 1e-9, "first");
        test_le(fabs(second.score - (deep ? 7240.0 : 40.0) / 7.5), 1e-9, "second");
        assert_ptr_equal(p.call->victim(&p, NULL, NULL), deep ? &first : &second);
        p.call->destroy(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(learns), cmocka_unit_test(follows),
                                       cmocka_unit_test(stays_sane), cmocka_unit_test(given),
                                       cmocka_unit_test(decides)};
    return cmocka_run_group_tests_name("mem/cost", tests, NULL, NULL);
}
