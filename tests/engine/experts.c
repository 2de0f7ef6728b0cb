/* experts.c: choices that are kept are the router's, forced ones give the same logits again or,
 * where they differ, others, and wrong ones are refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/failing.h"
#include "tests/harness/micro.h"
#include "tests/harness/test.h"

enum { N_TOKENS = 45, N_FORCED = 30, N_LAYERS = 4, CHOICES = N_TOKENS * MICRO_TOP_K };

static const struct micro_spec specs[] = {
    {.seed = 11, .ffn = MICRO_MOE},
    {.seed = 12, .family = MICRO_K3, .ffn = MICRO_LATENT, .mxfp4 = true, .attn_res_block = 2},
};

struct bench {
    struct failing host;
    ebro_runtime *rt;
    ebro_device *device;
    ebro_model *model;
    struct micro_files files;
    int32_t tokens[N_TOKENS];
};

static void open_bench(struct bench *b, const struct micro_spec *spec, struct test_rng *r) {
    ebro_error err;
    *b = (struct bench){.host = {.fail_at = SIZE_MAX}};
    ebro_runtime_options ro = {.size = sizeof ro,
                               .module_dir = test_module_dir(),
                               .realloc = failing_realloc,
                               .realloc_user = &b->host};
    test_ok(ebro_runtime_open(&ro, &b->rt, &err), &err);
    test_ok(ebro_device_open(b->rt, "cpu", &b->device, &err), &err);
    b->files = micro_make(spec);
    ebro_model_options mo = {.size = sizeof mo, .files = b->files.files, .n_files = b->files.n};
    test_ok(ebro_model_open(b->rt, &mo, &b->model, &err), &err);
    for (int i = 0; i < N_TOKENS; i++) b->tokens[i] = (int32_t)(test_u64(r) % MICRO_VOCAB);
}

static void close_bench(struct bench *b) {
    ebro_model_close(&b->model);
    ebro_device_close(&b->device);
    ebro_runtime_close(&b->rt);
    assert_int_equal(b->host.n_held, 0);
    micro_files_free(&b->files);
}

static ebro_engine *open_engine(struct bench *b, uint32_t chunk, ebro_seq **seq) {
    ebro_error err;
    ebro_engine *engine = NULL;
    ebro_engine_options o = {.size = sizeof o,
                             .n_ctx = 64,
                             .n_chunk = chunk,
                             .cache_dtype = EBRO_F32,
                             .strict = 1, /* other cuts, same bytes */
                             .expert_choices = 1};
    test_ok(ebro_engine_open(b->model, b->device, &o, &engine, &err), &err);
    test_ok(ebro_seq_create(engine, seq, &err), &err);
    return engine;
}

/* Logits of all tokens, [N_TOKENS][MICRO_VOCAB]. */
static float *evaluate(struct bench *b, ebro_engine *engine, ebro_seq *seq) {
    ebro_error err;
    const float *logits = NULL;
    uint32_t rows = 0;
    size_t bytes = (size_t)N_TOKENS * MICRO_VOCAB * sizeof(float);
    test_ok(ebro_seq_append(seq, b->tokens, N_TOKENS, N_TOKENS, &err), &err);
    while (ebro_seq_pending(seq) > 0) test_ok(ebro_engine_step(engine, &err), &err);
    test_ok(ebro_seq_logits(seq, &logits, &rows, &err), &err);
    assert_int_equal(rows, N_TOKENS);
    float *copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, logits, bytes);
    return copy;
}

static void get(const ebro_seq *seq, uint32_t layer, int32_t *ids, float *weights) {
    ebro_error err;
    const int32_t *i = NULL;
    const float *w = NULL;
    uint32_t n = 0;
    test_ok(ebro_seq_experts(seq, layer, &i, &w, &n, &err), &err);
    assert_int_equal(n, N_TOKENS);
    memcpy(ids, i, CHOICES * sizeof *ids);
    memcpy(weights, w, CHOICES * sizeof *weights);
}

static void check_choices(const int32_t *ids, const float *weights) {
    for (size_t t = 0; t < N_TOKENS; t++) {
        const int32_t *i = ids + t * MICRO_TOP_K;
        assert_in_range(i[0], 0, MICRO_EXPERTS - 1);
        assert_in_range(i[1], 0, MICRO_EXPERTS - 1);
        assert_int_not_equal(i[0], i[1]);
        assert_true(weights[t * MICRO_TOP_K] > 0.0f && weights[t * MICRO_TOP_K + 1] > 0.0f);
    }
}

static void keep_and_force(struct bench *b) {
    ebro_error err;
    ebro_seq *seq = NULL;
    int32_t ids[N_LAYERS][CHOICES], again[CHOICES];
    float weights[N_LAYERS][CHOICES], weights_again[CHOICES];
    size_t row = MICRO_VOCAB, n = (size_t)N_TOKENS * row;
    ebro_engine *engine = open_engine(b, 16, &seq);
    float *first = evaluate(b, engine, seq);
    for (uint32_t l = 1; l < N_LAYERS; l++) {
        get(seq, l, ids[l], weights[l]);
        check_choices(ids[l], weights[l]);
    }
    ebro_engine_close(&engine);

    /* the same choices, in other cuts, forced for the first tokens alone, are the same run */
    engine = open_engine(b, 7, &seq);
    for (uint32_t l = 1; l < N_LAYERS; l++)
        test_ok(ebro_seq_force_experts(seq, l, ids[l], N_FORCED, &err), &err);
    float *second = evaluate(b, engine, seq);
    assert_memory_equal(first, second, n * sizeof *first);
    for (uint32_t l = 1; l < N_LAYERS; l++) {
        get(seq, l, again, weights_again);
        assert_memory_equal(again, ids[l], sizeof again);
        assert_memory_equal(weights_again, weights[l], sizeof weights_again);
    }
    ebro_engine_close(&engine);

    /* another expert for one token changes that token and later ones, and nothing before */
    enum { AT = 20 };
    int32_t *other = ids[2] + AT * MICRO_TOP_K, taken = other[0];
    while (other[0] == taken || other[0] == other[1]) other[0] = (other[0] + 1) % MICRO_EXPERTS;
    engine = open_engine(b, 64, &seq);
    test_ok(ebro_seq_force_experts(seq, 2, ids[2], N_TOKENS, &err), &err);
    float *third = evaluate(b, engine, seq);
    assert_memory_equal(first, third, AT * row * sizeof *first);
    assert_memory_not_equal(first + AT * row, third + AT * row, row * sizeof *first);
    get(seq, 2, again, weights_again);
    assert_memory_equal(again, ids[2], sizeof again);
    ebro_engine_close(&engine);
    free(first);
    free(second);
    free(third);
}

static void all(void **state) {
    (void)state;
    struct test_rng r = {test_seed()};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct bench b;
        open_bench(&b, &specs[i], &r);
        keep_and_force(&b);
        close_bench(&b);
    }
}

static void refused(void **state) {
    (void)state;
    struct bench b;
    struct test_rng r = {1};
    ebro_error err;
    ebro_seq *seq = NULL;
    ebro_engine *engine = NULL;
    const int32_t *ids = NULL;
    const float *weights = NULL;
    uint32_t n = 0;
    const int32_t good[] = {1, 2}, twice[] = {1, 2, 3, 3}, low[] = {-1, 2}, high[] = {0, 8};
    open_bench(&b, &specs[0], &r);
    engine = open_engine(&b, 8, &seq);
    test_fails(ebro_seq_force_experts(seq, 0, good, 1, &err), EBRO_INVALID, &err, "layer 0 of 4");
    test_fails(ebro_seq_force_experts(seq, 4, good, 1, &err), EBRO_INVALID, &err, "layer 4 of 4");
    test_fails(ebro_seq_force_experts(seq, 1, twice, 2, &err), EBRO_INVALID, &err,
               "token 1 is to use expert 3 twice");
    test_fails(ebro_seq_force_experts(seq, 1, low, 1, &err), EBRO_INVALID, &err, "expert -1");
    test_fails(ebro_seq_force_experts(seq, 1, high, 1, &err), EBRO_INVALID, &err, "0 to 7");
    test_fails(ebro_seq_force_experts(seq, 1, good, 65, &err), EBRO_INVALID, &err, "has 64");
    test_fails(ebro_seq_force_experts(seq, 1, NULL, 1, &err), EBRO_INVALID, &err, "NULL");
    test_fails(ebro_seq_experts(seq, 0, &ids, &weights, &n, &err), EBRO_INVALID, &err,
               "no routed experts");
    test_ok(ebro_seq_force_experts(seq, 1, good, 1, &err), &err);
    test_ok(ebro_seq_force_experts(seq, 1, NULL, 0, &err), &err);
    ebro_engine_close(&engine);

    ebro_engine_options o = {.size = sizeof o, .n_ctx = 64, .cache_dtype = EBRO_F32};
    test_ok(ebro_engine_open(b.model, b.device, &o, &engine, &err), &err);
    test_ok(ebro_seq_create(engine, &seq, &err), &err);
    test_fails(ebro_seq_experts(seq, 1, &ids, &weights, &n, &err), EBRO_INVALID, &err,
               "expert_choices");
    ebro_seq_destroy(&seq);
    ebro_engine_close(&engine);

    /* out of memory anywhere on the way to a sequence leaves nothing behind */
    o.expert_choices = 1;
    test_ok(ebro_engine_open(b.model, b.device, &o, &engine, &err), &err);
    size_t held = b.host.n_held;
    int32_t st = EBRO_NOMEM_HOST;
    for (size_t k = 1; st != EBRO_OK; k++) {
        assert_true(k < 30);
        b.host.fail_at = b.host.n_calls + k;
        st = ebro_seq_create(engine, &seq, &err);
        b.host.fail_at = SIZE_MAX;
        if (st == EBRO_OK) break;
        test_fails(st, EBRO_NOMEM_HOST, &err, "");
        assert_null(seq);
        assert_int_equal(b.host.n_held, held);
    }
    ebro_engine_close(&engine);
    close_bench(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
