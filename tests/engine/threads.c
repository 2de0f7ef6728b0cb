/* threads.c: any number of threads gives the same bytes: logits of every tiny model, which between
 * them use every operator, and of the demo model, whose loops are long enough for all threads to
 * have work. Prompts in chunks, then single tokens. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/devices.h"
#include "tests/harness/micro.h"
#include "tests/harness/test.h"

enum { N_PROMPT = 75, CHUNK = 40, N_DECODE = 3 };

static const uint32_t thread_counts[] = {1, 2, 3, 7};

struct logits {
    float *v;
    size_t n;
};

static void add_logits(struct logits *l, const ebro_seq *seq, size_t vocab) {
    ebro_error err;
    const float *row = NULL;
    uint32_t rows = 0;
    test_ok(ebro_seq_logits(seq, &row, &rows, &err), &err);
    l->v = realloc(l->v, (l->n + rows * vocab) * sizeof *l->v);
    assert_non_null(l->v);
    memcpy(l->v + l->n, row, rows * vocab * sizeof *row);
    l->n += rows * vocab;
}

static struct logits run(ebro_model *model, ebro_device *device, bool strict, const int32_t *ids) {
    ebro_engine_options o = {.size = sizeof o,
                             .n_ctx = N_PROMPT + N_DECODE,
                             .n_chunk = CHUNK,
                             .cache_dtype = -1,
                             .strict = strict};
    ebro_engine *engine = NULL;
    ebro_seq *seq = NULL;
    ebro_error err;
    ebro_model_info info;
    struct logits out = {0};
    ebro_model_get_info(model, &info);
    test_ok(ebro_engine_open(model, device, &o, &engine, &err), &err);
    test_ok(ebro_seq_create(engine, &seq, &err), &err);
    for (int at = 0; at < N_PROMPT + N_DECODE; at++) {
        const uint32_t n = at == 0 ? N_PROMPT : 1;
        test_ok(ebro_seq_append(seq, ids + at, n, 4, &err), &err);
        while (ebro_seq_pending(seq) > 0) test_ok(ebro_engine_step(engine, &err), &err);
        add_logits(&out, seq, info.vocab);
        if (at == 0) at = N_PROMPT - 1;
    }
    ebro_engine_close(&engine);
    return out;
}

static void check_model(const ebro_model_options *mo, const char *name, int32_t n_ids, bool strict,
                        struct test_rng *rng) {
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    ebro_runtime *rt = NULL;
    ebro_model *model = NULL;
    ebro_error err;
    struct logits want = {0};
    int32_t ids[N_PROMPT + N_DECODE];
    for (int i = 0; i < N_PROMPT + N_DECODE; i++)
        ids[i] = (int32_t)(test_u64(rng) % (uint64_t)n_ids);
    test_ok(ebro_runtime_open(&ro, &rt, &err), &err);
    test_ok(ebro_model_open(rt, mo, &model, &err), &err);
    for (size_t i = 0; i < sizeof thread_counts / sizeof thread_counts[0]; i++) {
        ebro_device_settings s = {.size = sizeof s, .n_threads = thread_counts[i]};
        ebro_device *device = NULL;
        test_ok(ebro_device_open_with(rt, test_device(), &s, &device, &err), &err);
        struct logits got = run(model, device, strict, ids);
        if (i == 0) {
            want = got;
        } else {
            if (got.n != want.n || memcmp(got.v, want.v, want.n * sizeof *want.v) != 0)
                fail_msg("%s, strict %d: %u threads give other bytes than one", name, strict,
                         thread_counts[i]);
            free(got.v);
        }
        ebro_device_close(&device);
    }
    free(want.v);
    ebro_model_close(&model);
    ebro_runtime_close(&rt);
}

static struct test_rng new_rng(void) {
    struct test_rng r = {test_seed()};
    return r;
}

/* Every second model, so that both modes see half of them. */
static void check_operators(bool strict) {
    struct test_rng rng = new_rng();
    for (size_t i = strict ? 1 : 0; i < n_micro_cases; i += 2) {
        struct micro_files files = micro_make(&micro_cases[i].spec);
        ebro_model_options o = {.size = sizeof o, .files = files.files, .n_files = files.n};
        check_model(&o, micro_cases[i].name, MICRO_RANKS, strict, &rng);
        micro_files_free(&files);
    }
}

static void every_operator(void **state) {
    (void)state;
    check_operators(false);
}

static void every_operator_strict(void **state) {
    (void)state;
    test_device_needs(EBRO_CAP_STRICT);
    check_operators(true);
}

static void check_demo(bool strict) {
    struct test_rng rng = new_rng();
    ebro_model_options o = {.size = sizeof o, .path = test_demo_dir()};
    check_model(&o, "demo", 4096, strict, &rng);
}

static void demo(void **state) {
    (void)state;
    check_demo(false);
}

static void demo_strict(void **state) {
    (void)state;
    test_device_needs(EBRO_CAP_STRICT);
    check_demo(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator),
        cmocka_unit_test(every_operator_strict),
        cmocka_unit_test(demo),
        cmocka_unit_test(demo_strict),
    };
    return test_on_fast_devices("engine/threads", tests, NULL, NULL);
}
