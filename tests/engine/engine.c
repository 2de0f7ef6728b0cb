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
    test_fails(ebro_seq_create(f->engine, &second, &err), EBRO_UNSUPPORTED, &err, "one sequence");
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
        cmocka_unit_test(context_limit),
        cmocka_unit_test(bad_calls),
        cmocka_unit_test(slot_reuse),
        cmocka_unit_test(sampling_repeats),
        cmocka_unit_test(engine_closes_its_sequence),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
