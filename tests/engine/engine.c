/* engine.c: the rules of the engine's public calls, on the demo model: limits, errors that change
 * nothing, reuse of a slot, sampling that depends on seed and position alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

struct fixture {
    ebro_runtime *rt;
    ebro_device *device;
    ebro_model *model;
    ebro_engine *engine;
};

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    ebro_error err;
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&ro, &f->rt, &err), &err);
    test_ok(ebro_device_open(f->rt, "cpu", &f->device, &err), &err);
    ebro_model_options mo = {.size = sizeof mo, .path = test_demo_dir()};
    test_ok(ebro_model_open(f->rt, &mo, &f->model, &err), &err);
    ebro_engine_options eo = {.size = sizeof eo, .n_ctx = 100, .n_chunk = 16, .cache_dtype = -1};
    test_ok(ebro_engine_open(f->model, f->device, &eo, &f->engine, &err), &err);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    ebro_engine_close(&f->engine);
    ebro_model_close(&f->model);
    ebro_device_close(&f->device);
    ebro_runtime_close(&f->rt);
    free(f);
    return 0;
}

static ebro_seq *new_seq(struct fixture *f) {
    ebro_error err;
    ebro_seq *seq = NULL;
    test_ok(ebro_seq_create(f->engine, &seq, &err), &err);
    return seq;
}

static void drain(struct fixture *f, ebro_seq *seq) {
    ebro_error err;
    while (ebro_seq_pending(seq) > 0) test_ok(ebro_engine_step(f->engine, &err), &err);
}

static void context_limit(void **state) {
    struct fixture *f = *state;
    ebro_error err;
    int32_t ids[101] = {0};
    ebro_seq *seq = new_seq(f);
    test_ok(ebro_seq_append(seq, ids, 60, 0, &err), &err);
    test_fails(ebro_seq_append(seq, ids, 41, 0, &err), EBRO_INVALID, &err, "100");
    assert_non_null(strstr(err.text, "60"));
    assert_int_equal(ebro_seq_pending(seq), 60);
    test_ok(ebro_seq_append(seq, ids, 40, 0, &err), &err);
    drain(f, seq);
    assert_int_equal(ebro_seq_length(seq), 100);
    test_fails(ebro_seq_append(seq, ids, 1, 0, &err), EBRO_INVALID, &err, "context");
    ebro_seq_destroy(&seq);
    assert_null(seq);
}

static void bad_calls(void **state) {
    struct fixture *f = *state;
    ebro_error err;
    const float *logits = NULL;
    uint32_t rows = 0;
    int32_t id = 0, bad = 4352;
    ebro_sampling greedy = {.size = sizeof greedy};
    ebro_seq *seq = new_seq(f), *second = NULL;
    test_fails(ebro_seq_create(f->engine, &second, &err), EBRO_INVALID, &err, "1 of 1 sequences");
    test_fails(ebro_seq_logits(seq, &logits, &rows, &err), EBRO_INVALID, &err, "empty");
    test_fails(ebro_seq_append(seq, &bad, 1, 0, &err), EBRO_INVALID, &err, "4351");
    bad = -1;
    test_fails(ebro_seq_append(seq, &bad, 1, 0, &err), EBRO_INVALID, &err, "-1");
    test_fails(ebro_seq_append(seq, NULL, 1, 0, &err), EBRO_INVALID, &err, "NULL");
    assert_int_equal(ebro_seq_pending(seq), 0);
    test_ok(ebro_seq_append(seq, &id, 1, 0, &err), &err);
    test_fails(ebro_seq_sample(seq, &greedy, &id, &err), EBRO_INVALID, &err, "not evaluated");
    drain(f, seq);
    ebro_sampling s = {.size = sizeof s, .temperature = NAN};
    test_fails(ebro_seq_sample(seq, &s, &id, &err), EBRO_INVALID, &err, "temperature");
    s.temperature = -1.0f;
    test_fails(ebro_seq_sample(seq, &s, &id, &err), EBRO_INVALID, &err, "temperature");
    test_fails(ebro_seq_sample(seq, NULL, &id, &err), EBRO_INVALID, &err, "NULL");
    ebro_seq_destroy(&seq);
    ebro_engine *e = NULL;
    ebro_engine_options o = {.size = sizeof o, .cache_dtype = EBRO_MXFP4};
    test_fails(ebro_engine_open(f->model, f->device, &o, &e, &err), EBRO_INVALID, &err, "cache");
    o = (ebro_engine_options){.size = sizeof o, .prefill_form = 7};
    test_fails(ebro_engine_open(f->model, f->device, &o, &e, &err), EBRO_INVALID, &err, "form");
    o = (ebro_engine_options){.size = sizeof o, .n_ctx = 8193};
    test_fails(ebro_engine_open(f->model, f->device, &o, &e, &err), EBRO_INVALID, &err, "8192");
    test_fails(ebro_engine_open(NULL, f->device, NULL, &e, &err), EBRO_INVALID, &err, "NULL");
    assert_null(e);
}

/* A sequence must not see what the slot's and pages' last owner left there. */
static void slot_reuse(void **state) {
    struct fixture *f = *state;
    ebro_error err;
    int32_t a[40], b[70];
    for (int i = 0; i < 40; i++) a[i] = 17 * i % 4096;
    for (int i = 0; i < 70; i++) b[i] = 4095 - 31 * i % 4096;
    float *first = NULL;
    for (int round = 0; round < 3; round++) {
        ebro_seq *seq = new_seq(f);
        const float *logits = NULL;
        uint32_t rows = 0;
        if (round == 1) {
            test_ok(ebro_seq_append(seq, b, 70, 0, &err), &err);
            drain(f, seq);
        } else {
            test_ok(ebro_seq_append(seq, a, 40, 3, &err), &err);
            drain(f, seq);
            test_ok(ebro_seq_logits(seq, &logits, &rows, &err), &err);
            assert_int_equal(rows, 3);
            size_t bytes = 3 * 4352 * sizeof(float);
            if (first == NULL) {
                first = malloc(bytes);
                memcpy(first, logits, bytes);
            } else {
                assert_memory_equal(first, logits, bytes);
            }
        }
        ebro_seq_destroy(&seq);
    }
    free(first);
}

static int32_t draw(ebro_seq *seq, float temperature, uint64_t seed) {
    ebro_error err;
    int32_t id = -1;
    ebro_sampling s = {.size = sizeof s, .temperature = temperature, .seed = seed};
    test_ok(ebro_seq_sample(seq, &s, &id, &err), &err);
    return id;
}

static void sampling_repeats(void **state) {
    struct fixture *f = *state;
    ebro_error err;
    int32_t ids[5] = {4096, 708, 443, 305, 3752};
    ebro_seq *seq = new_seq(f);
    test_ok(ebro_seq_append(seq, ids, 5, 0, &err), &err);
    drain(f, seq);
    const float *logits = NULL;
    uint32_t rows = 0;
    int32_t best = 0, differs = 0;
    test_ok(ebro_seq_logits(seq, &logits, &rows, &err), &err);
    for (int32_t i = 1; i < 4352; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    assert_int_equal(draw(seq, 0.0f, 1), best);
    for (uint64_t seed = 0; seed < 50; seed++) {
        int32_t id = draw(seq, 1.0f, seed);
        assert_in_range(id, 0, 4351);
        assert_int_equal(draw(seq, 1.0f, seed), id);
        differs += id != draw(seq, 1.0f, seed + 50);
    }
    assert_true(differs > 5);
    ebro_seq_destroy(&seq);
}

static int32_t choose(ebro_seq *seq, const ebro_sampling *s) {
    ebro_error err;
    int32_t id = -1;
    test_ok(ebro_seq_sample(seq, s, &id, &err), &err);
    return id;
}

/* The greedy choice with penalties, in float64 and token by token, as ebro.h documents it. */
static int32_t penalised(const float *logits, const int32_t *ids, int n, const ebro_sampling *s) {
    int32_t best = -1;
    double best_logit = -INFINITY;
    for (int32_t t = 0; t < 4352; t++) {
        int count = 0, window = s->penalty_last_n == 0 ? 64 : (int)s->penalty_last_n;
        for (int i = n > window ? n - window : 0; i < n; i++) count += ids[i] == t;
        double x = (double)logits[t], repeat = (double)s->repeat_penalty;
        if (count > 0 && repeat != 0.0) x = x > 0 ? x / repeat : x * repeat;
        if (count > 0) x -= (double)s->presence_penalty + count * (double)s->frequency_penalty;
        for (uint32_t i = 0; i < s->n_biases; i++) {
            if (s->biases[i].id == t) x += (double)s->biases[i].bias;
        }
        if (x > best_logit) best_logit = x, best = t;
    }
    return best;
}

static void penalties_and_biases(void **state) {
    struct fixture *f = *state;
    ebro_error err;
    /* The likeliest next token stands in the text: what it is follows from a first run. */
    int32_t ids[95] = {4096, 708, 443, 305, 3752};
    const float *logits = NULL;
    uint32_t rows = 0;
    ebro_sampling s = {.size = sizeof s};
    int n = 5, changed = 0;
    ebro_seq *seq = new_seq(f);
    test_ok(ebro_seq_append(seq, ids, 5, 0, &err), &err);
    for (; n < 95; n++) {
        drain(f, seq);
        test_ok(ebro_seq_logits(seq, &logits, &rows, &err), &err);
        int32_t plain = choose(seq, &(ebro_sampling){.size = sizeof s});
        float top = logits[plain];
        const ebro_logit_bias biases[3] = {
            {plain, -0.75f}, {(plain + 1) % 4352, 0.5f}, {plain, -0.25f}};
        const ebro_sampling cases[] = {
            {.size = sizeof s, .repeat_penalty = 1.3f},
            {.size = sizeof s, .repeat_penalty = 1.8f, .penalty_last_n = 3},
            {.size = sizeof s, .repeat_penalty = 0.7f, .penalty_last_n = 1000000},
            {.size = sizeof s, .presence_penalty = 4.0f},
            {.size = sizeof s, .frequency_penalty = 1.5f, .penalty_last_n = 80},
            {.size = sizeof s, .biases = biases, .n_biases = 3},
            {.size = sizeof s,
             .repeat_penalty = 1.1f,
             .presence_penalty = -0.5f,
             .frequency_penalty = 0.75f,
             .biases = biases,
             .n_biases = 3},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            int32_t id = choose(seq, &cases[i]);
            assert_int_equal(id, penalised(logits, ids, n, &cases[i]));
            changed += id != plain;
        }
        assert_true(logits[plain] == top);
        /* Half of the text repeats, so that there is something to be penalised. */
        ids[n] = n % 2 == 0 ? plain : ids[n - 3];
        test_ok(ebro_seq_append(seq, &ids[n], 1, 0, &err), &err);
    }
    assert_true(changed > 50);
    drain(f, seq);
    /* A struct of before the penalties: what it does not hold is off. */
    s = (ebro_sampling){.size = offsetof(ebro_sampling, repeat_penalty), .repeat_penalty = 50.0f};
    assert_int_equal(choose(seq, &s), choose(seq, &(ebro_sampling){.size = sizeof s}));
    ebro_seq_destroy(&seq);
}

/* The likeliest of the allowed tokens, whatever biases and penalties say of the others; drawn ones
 * too, for any share of tokens that are allowed. */
static void only_allowed_tokens(void **state) {
    enum { VOCAB = 4352, WORDS = VOCAB / 32, N = 6 };
    struct fixture *f = *state;
    ebro_error err;
    struct test_rng rng = {test_seed()};
    int32_t ids[N] = {4096, 708, 443, 305, 3752, 708};
    const float *logits = NULL;
    uint32_t rows = 0, mask[WORDS];
    ebro_seq *seq = new_seq(f);
    test_ok(ebro_seq_append(seq, ids, N, 0, &err), &err);
    drain(f, seq);
    test_ok(ebro_seq_logits(seq, &logits, &rows, &err), &err);
    for (int round = 0; round < 60; round++) {
        uint64_t one_in = 1 + (uint64_t)round * (uint64_t)round;
        for (int i = 0; i < WORDS; i++) mask[i] = 0;
        for (uint32_t t = 0; t < VOCAB; t++)
            if (test_u64(&rng) % one_in == 0) mask[t / 32] |= 1u << t % 32;
        uint32_t sure = (uint32_t)(test_u64(&rng) % VOCAB);
        mask[sure / 32] |= 1u << sure % 32;
        const ebro_logit_bias biases[2] = {{(int32_t)(sure ^ 1), 1e30f}, {(int32_t)sure, 0.5f}};
        ebro_sampling s = {.size = sizeof s,
                           .repeat_penalty = 1.3f,
                           .biases = biases,
                           .n_biases = 2,
                           .allowed = mask};
        int32_t want = -1;
        double best = -INFINITY;
        for (int32_t t = 0; t < VOCAB; t++) {
            double x = (double)logits[t];
            for (int i = 0; i < N; i++)
                if (ids[i] == t && (t != 708 || i == 1)) x = x > 0 ? x / 1.3 : x * 1.3;
            x += t == (int32_t)sure ? 0.5 : t == (int32_t)(sure ^ 1) ? 1e30 : 0.0;
            if ((mask[t / 32] >> t % 32 & 1u) != 0 && x > best) best = x, want = t;
        }
        assert_int_equal(choose(seq, &s), want);
        s.temperature = 3.0f;
        s.seed = test_u64(&rng);
        int32_t drawn = choose(seq, &s);
        assert_true((mask[drawn / 32] >> drawn % 32 & 1u) != 0);
    }
    for (int i = 0; i < WORDS; i++) mask[i] = 0;
    ebro_sampling none = {.size = sizeof none, .allowed = mask};
    int32_t id = 0;
    test_fails(ebro_seq_sample(seq, &none, &id, &err), EBRO_INVALID, &err, "no token");
    ebro_seq_destroy(&seq);
}

static void bad_penalties(void **state) {
    struct fixture *f = *state;
    ebro_error err;
    int32_t id = 0;
    ebro_seq *seq = new_seq(f);
    test_ok(ebro_seq_append(seq, &id, 1, 0, &err), &err);
    drain(f, seq);
    const ebro_logit_bias outside = {4352, 1.0f}, negative = {-1, 1.0f}, infinite = {1, INFINITY};
    const struct {
        ebro_sampling s;
        const char *part;
    } cases[] = {
        {{.repeat_penalty = -1.0f}, "repeat penalty -1"},
        {{.repeat_penalty = NAN}, "repeat penalty nan"},
        {{.repeat_penalty = 101.0f}, "repeat penalty 101"},
        {{.presence_penalty = NAN}, "presence penalty nan"},
        {{.frequency_penalty = -101.0f}, "frequency penalty -101"},
        {{.n_biases = 1}, "biases is NULL"},
        {{.n_biases = 1, .biases = &outside}, "0 to 4351"},
        {{.n_biases = 1, .biases = &negative}, "token -1"},
        {{.n_biases = 1, .biases = &infinite}, "logit bias inf"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ebro_sampling s = cases[i].s;
        s.size = sizeof s;
        test_fails(ebro_seq_sample(seq, &s, &id, &err), EBRO_INVALID, &err, cases[i].part);
    }
    /* An error leaves the sequence usable. */
    assert_in_range(draw(seq, 0.0f, 0), 0, 4351);
    ebro_seq_destroy(&seq);
}

static void engine_closes_its_sequence(void **state) {
    struct fixture *f = *state;
    ebro_error err;
    ebro_engine *e = NULL;
    ebro_seq *seq = NULL;
    test_ok(ebro_engine_open(f->model, f->device, NULL, &e, &err), &err);
    test_ok(ebro_seq_create(e, &seq, &err), &err);
    int32_t id = 1;
    test_ok(ebro_seq_append(seq, &id, 1, 0, &err), &err);
    ebro_engine_close(&e);
    assert_null(e);
    ebro_engine_close(&e);
    ebro_engine_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(context_limit),        cmocka_unit_test(bad_calls),
        cmocka_unit_test(slot_reuse),           cmocka_unit_test(sampling_repeats),
        cmocka_unit_test(penalties_and_biases), cmocka_unit_test(only_allowed_tokens),
        cmocka_unit_test(bad_penalties),        cmocka_unit_test(engine_closes_its_sequence),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
