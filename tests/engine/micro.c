/* micro.c: the whole forward on models with random weights that reach every switch of the
 * architecture, against a float64 forward that shares no code with the product. */
#include "tests/harness/micro.h"

#include <stdlib.h>

#include "tests/harness/devices.h"
#include "tests/harness/reference.h"
#include "tests/harness/test.h"

enum { N_TOKENS = 150, N_LAST = 8 };

/* Float32 through four random layers lands near 3e-7; a wrong switch moves logits by 1e-2 or more.
 */
static const double bound = 2e-5;

static double forward_error(ebro_model *model, ebro_device *device, uint32_t chunk, int32_t form,
                            const int32_t *ids, const double *ref) {
    ebro_error err;
    ebro_engine *engine = NULL;
    ebro_seq *seq = NULL;
    const float *logits = NULL;
    uint32_t rows = 0;
    ebro_engine_options o = {.size = sizeof o,
                             .keep = EBRO_KEEP_NONE,
                             .n_ctx = 200,
                             .n_chunk = chunk,
                             .cache_dtype = EBRO_F32,
                             .prefill_form = form};
    test_ok(ebro_engine_open(model, device, &o, &engine, &err), &err);
    test_ok(ebro_seq_create(engine, &seq, &err), &err);
    /* In two appends, so that a chunk also starts where a prompt ended. */
    test_ok(ebro_seq_append(seq, ids, 100, 0, &err), &err);
    while (ebro_seq_pending(seq) > 0) test_ok(ebro_engine_step(engine, &err), &err);
    test_ok(ebro_seq_append(seq, ids + 100, N_TOKENS - 100, N_LAST, &err), &err);
    while (ebro_seq_pending(seq) > 0) test_ok(ebro_engine_step(engine, &err), &err);
    test_ok(ebro_seq_logits(seq, &logits, &rows, &err), &err);
    assert_int_equal(rows, N_LAST);
    double error = test_rel_fro(logits, ref, (uint64_t)N_LAST * MICRO_VOCAB);
    ebro_engine_close(&engine);
    return error;
}

static void check_case(ebro_runtime *rt, ebro_device *device, const struct micro_case *c,
                       const int32_t *ids) {
    static const struct {
        uint32_t chunk;
        int32_t form;
    } ways[] = {{1, EBRO_MLA_AUTO},
                {7, EBRO_MLA_ABSORBED},
                {17, EBRO_MLA_EXPANDED},
                {64, EBRO_MLA_AUTO},
                {200, EBRO_MLA_EXPANDED}};
    ebro_error err;
    ebro_model *model = NULL;
    size_t vocab = 0;
    char *dir = test_tmp_dir();
    micro_write(dir, &c->spec);
    double *ref = test_reference_logits(dir, ids, N_TOKENS, N_LAST, &vocab), worst = 0;
    assert_int_equal(vocab, MICRO_VOCAB);
    ebro_model_options mo = {.size = sizeof mo, .path = dir};
    test_ok(ebro_model_open(rt, &mo, &model, &err), &err);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        double error = forward_error(model, device, ways[i].chunk, ways[i].form, ids, ref);
        test_le(error, bound, "%s, chunk %u, form %d", c->name, ways[i].chunk, ways[i].form);
        if (error > worst) worst = error;
    }
    print_message("%s: relative error at most %.1e\n", c->name, worst);
    free(ref);
    ebro_model_close(&model);
    test_tmp_remove(&dir);
}

static void every_switch(void **state) {
    (void)state;
    ebro_error err;
    ebro_runtime *rt = NULL;
    ebro_device *device = NULL;
    struct test_rng rng = {20261130};
    int32_t ids[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) ids[i] = (int32_t)(test_u64(&rng) % MICRO_RANKS);
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&ro, &rt, &err), &err);
    test_ok(ebro_device_open(rt, test_device(), &device, &err), &err);
    size_t checked = 0;
    for (size_t i = 0; i < n_micro_cases; i++) {
        /* The reference reads one file, and packed experts only. */
        if (micro_cases[i].spec.n_shards > 0 || micro_cases[i].spec.mxfp4_all) continue;
        check_case(rt, device, &micro_cases[i], ids);
        checked++;
    }
    assert_true(checked >= 10);
    ebro_device_close(&device);
    ebro_runtime_close(&rt);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_switch)};
    return test_on_fast_devices("engine/micro", tests, NULL, NULL);
}
