/* time.c: devices on which work takes long, and a submission that takes more than a second loses
 * the device. Their time is the shim's: so much a launch, so much a workgroup, of some kernels up
 * to 16 times as much; the backend knows of it what timestamps say. */
#include <inttypes.h>
#include <stdlib.h>

#include "engine/engine.h"
#include "ops/ops.h"
#include "tests/harness/micro.h"
#include "tests/vulkan/rig.h"

#define SECOND UINT64_C(1000000000)

/* What a batch is made to take at most (pace.h), and what one may take that was foreseen wrongly: a
 * kernel's groups take equally long here, however much each of them does. */
static const uint64_t target = SECOND / 4, bound = SECOND / 4 * 3;

static ebro_model *open_model(const struct micro_files *files) {
    const ebro_model_options o = {.size = sizeof o, .files = files->files, .n_files = files->n};
    ebro_model *model = NULL;
    ebro_error err = {0};
    test_ok(ebro_model_open(rt, &o, &model, &err), &err);
    return model;
}

static ebro_engine *open_engine(ebro_model *model, ebro_device *d, uint32_t n_ctx,
                                uint32_t n_chunk) {
    const ebro_engine_options o = {.size = sizeof o,
                                   .n_ctx = n_ctx,
                                   .n_chunk = n_chunk,
                                   .keep = EBRO_KEEP_NONE,
                                   .cache_dtype = EBRO_F32};
    ebro_engine *engine = NULL;
    ebro_error err = {0};
    test_ok(ebro_engine_open(model, d, &o, &engine, &err), &err);
    return engine;
}

static void evaluate(ebro_seq *seq, ebro_engine *engine, const int32_t *ids, size_t n,
                     uint32_t n_logits) {
    ebro_error err = {0};
    test_ok(ebro_seq_append(seq, ids, n, n_logits, &err), &err);
    while (ebro_seq_pending(seq) > 0) test_ok(ebro_engine_step(engine, &err), &err);
}

/* ---- long prompts ----------------------------------------------------------------------- */

/* What a prompt of n tokens takes from an empty sequence on; the longest submission is looked at.
 */
static uint64_t time_of(ebro_engine *engine, const int32_t *ids, size_t n) {
    struct shim_seen *seen = &shim_get()->seen;
    ebro_seq *seq = NULL;
    ebro_error err = {0};
    seen->longest_ns = 0;
    const uint64_t before = seen->all_ns;
    test_ok(ebro_seq_create(engine, &seq, &err), &err);
    evaluate(seq, engine, ids, n, 0);
    ebro_seq_destroy(&seq);
    return seen->all_ns - before;
}

/* A millisecond a token. 20,000 of them pass, in submissions as long as they are meant to be, and
 * cost as much each as 2,048 of them do. Nothing is computed: what is looked at is what is
 * submitted. */
static void a_long_prompt_passes(void **state) {
    (void)state;
    enum { LONG = 20000, MOST = 16384, LEAST = 2048 };
    static int32_t ids[LONG];
    struct shim *shim = shim_get();
    shim->clock = (struct shim_clock){
        .launch_ns = 1000, .group_ns = 1000, .uneven = true, .limit_ns = SECOND, .dry = true};
    const struct micro_spec spec = {.seed = test_seed(), .pattern = "KK", .context = 32768};
    struct micro_files files = micro_make(&spec);
    ebro_model *model = open_model(&files);
    struct ebro_device *d = rig_device();
    ebro_engine *engine = open_engine(model, d, LONG + 1, 512);
    struct test_rng rng = {spec.seed + 1};
    for (int i = 0; i < LONG; i++) ids[i] = (int32_t)(test_u64(&rng) % MICRO_VOCAB);
    /* So that the device is that slow. */
    uint64_t some = time_of(engine, ids, LEAST);
    shim->clock.group_ns = 1 + shim->clock.group_ns * LEAST * 1000000 / some;
    uint64_t least = time_of(engine, ids, LEAST), most = time_of(engine, ids, MOST);
    uint64_t all = time_of(engine, ids, LONG);
    print_message("%d tokens take %.3f s, %d %.3f s, %d %.3f s, a submission %.3f s at most\n",
                  LEAST, (double)least / 1e9, MOST, (double)most / 1e9, LONG, (double)all / 1e9,
                  (double)shim->seen.longest_ns / 1e9);
    assert_in_range(least, 800 * UINT64_C(1000000) * LEAST / 1000,
                    1200 * UINT64_C(1000000) * LEAST / 1000);
    double growth = (double)most / MOST / ((double)least / LEAST);
    assert_true(growth > 0.8 && growth < 1.2);
    assert_true(all > 19 * SECOND);
    assert_in_range(shim->seen.longest_ns, target / 2, bound);
    ebro_engine_close(&engine);
    ebro_device_close(&d);
    ebro_model_close(&model);
    micro_files_free(&files);
}

/* Latent attention, whose cost grows with the context, in large steps: on such a device too, where
 * the launches of one layer take longer than a submission may. */
static void a_long_context_passes(void **state) {
    (void)state;
    enum { LONG = 12288 };
    static int32_t ids[LONG];
    struct shim *shim = shim_get();
    shim->clock = (struct shim_clock){
        .launch_ns = 100000, .group_ns = 500000, .uneven = true, .limit_ns = SECOND, .dry = true};
    const struct micro_spec spec = {
        .seed = test_seed(), .pattern = "KM", .ffn = MICRO_MOE, .context = 32768};
    struct micro_files files = micro_make(&spec);
    ebro_model *model = open_model(&files);
    struct ebro_device *d = rig_device();
    ebro_engine *engine = open_engine(model, d, LONG + 1, 4096);
    struct test_rng rng = {spec.seed + 1};
    for (int i = 0; i < LONG; i++) ids[i] = (int32_t)(test_u64(&rng) % MICRO_VOCAB);
    uint64_t all = time_of(engine, ids, LONG);
    print_message("%d tokens take %.1f s, a submission %.3f s at most\n", LONG, (double)all / 1e9,
                  (double)shim->seen.longest_ns / 1e9);
    assert_true(all > 20 * SECOND);
    assert_in_range(shim->seen.longest_ns, target / 2, bound);
    ebro_engine_close(&engine);
    ebro_device_close(&d);
    ebro_model_close(&model);
    micro_files_free(&files);
}

/* ---- results ---------------------------------------------------------------------------- */

enum { N_TOKENS = 100, N_DECODED = 3 };

static double *widen(const float *v, size_t n) {
    double *out = malloc(n * sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < n; i++) out[i] = (double)v[i];
    return out;
}

/* Logits after a prompt and after each of some tokens more, [1 + N_DECODED][vocab]. */
static float *logits_on(ebro_device *d, ebro_model *model, const int32_t *ids) {
    ebro_engine *engine = open_engine(model, d, N_TOKENS + N_DECODED + 1, 64);
    float *out = malloc((1 + N_DECODED) * MICRO_VOCAB * sizeof *out);
    ebro_seq *seq = NULL;
    ebro_error err = {0};
    assert_non_null(out);
    test_ok(ebro_seq_create(engine, &seq, &err), &err);
    for (size_t i = 0; i <= N_DECODED; i++) {
        const float *logits = NULL;
        uint32_t rows = 0;
        evaluate(seq, engine, i == 0 ? ids : &ids[N_TOKENS + i - 1], i == 0 ? N_TOKENS : 1, 1);
        test_ok(ebro_seq_logits(seq, &logits, &rows, &err), &err);
        assert_int_equal(rows, 1);
        memcpy(&out[i * MICRO_VOCAB], logits, MICRO_VOCAB * sizeof *out);
    }
    ebro_engine_close(&engine);
    return out;
}

/* So slow that launches are cut, steps that were recorded too: the logits are what they are on a
 * fast one, bit by bit, for workgroups know nothing of each other; and they are the CPU's. */
static void results_do_not_depend_on_time(void **state) {
    (void)state;
    const struct micro_spec spec = {.seed = test_seed(), .ffn = MICRO_MOE};
    struct micro_files files = micro_make(&spec);
    ebro_model *model = open_model(&files);
    struct shim *shim = shim_get();
    /* The fast one too by the shim's clock: this machine's load is no part of the comparison. */
    shim->clock = (struct shim_clock){.launch_ns = 1000, .group_ns = 10};
    struct ebro_device *d = rig_device(), *cpu = NULL;
    struct test_rng rng = {spec.seed + 1};
    ebro_error err = {0};
    int32_t ids[N_TOKENS + N_DECODED];
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        ids[i] = (int32_t)(test_u64(&rng) % MICRO_VOCAB);
    test_ok(ebro_device_open(rt, "CPU", &cpu, &err), &err);
    float *want = logits_on(cpu, model, ids), *fast = logits_on(d, model, ids);
    const uint64_t fast_dispatches = shim->seen.dispatches, fast_submits = shim->seen.submits;
    ebro_device_close(&d);

    shim->clock = (struct shim_clock){.launch_ns = 1000000,
                                      .group_ns = 4000000,
                                      .copy_kib_ns = 100000,
                                      .uneven = true,
                                      .limit_ns = SECOND};
    d = rig_device();
    float *slow = logits_on(d, model, ids);
    const uint64_t dispatches = shim->seen.dispatches - fast_dispatches;
    const uint64_t submits = shim->seen.submits - fast_submits;
    print_message("%" PRIu64 " launches in %" PRIu64 " submissions, %" PRIu64 " in %" PRIu64
                  " on the fast one; %.1f s, a submission %.3f s at most\n",
                  dispatches, submits, fast_dispatches, fast_submits,
                  (double)shim->seen.all_ns / 1e9, (double)shim->seen.longest_ns / 1e9);
    assert_true(dispatches > fast_dispatches * 5 / 4 && submits > 3 * fast_submits);
    assert_in_range(shim->seen.longest_ns, target / 2, bound);
    assert_memory_equal(slow, fast, (1 + N_DECODED) * MICRO_VOCAB * sizeof *slow);
    /* Float32 on both sides, summed in another order. */
    for (size_t i = 0; i <= N_DECODED; i++) {
        double *ref = widen(&want[i * MICRO_VOCAB], MICRO_VOCAB);
        test_le(test_rel_fro(&slow[i * MICRO_VOCAB], ref, MICRO_VOCAB), 2e-5, "logits %zu", i);
        free(ref);
    }
    free(want);
    free(fast);
    free(slow);
    ebro_device_close(&d);
    ebro_device_close(&cpu);
    ebro_model_close(&model);
    micro_files_free(&files);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, rig_open, rig_close)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_long_prompt_passes),
        TEST(a_long_context_passes),
        TEST(results_do_not_depend_on_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
