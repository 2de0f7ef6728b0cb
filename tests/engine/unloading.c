/* unloading.c: an application that loads and unloads a model for ever does not grow: after cycle
 * 1,000 it holds the memory, files and threads that it held after cycle 10. Each cycle opens
 * runtime, device, model and engine, reads a prompt, writes some tokens, saves the sequence and
 * loads it again, fails to open one model, and closes all. On the CPU; tests/contract/cycles.c does
 * the same to devices alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/failing.h"
#include "tests/harness/micro.h"
#include "tests/harness/process.h"
#include "tests/harness/test.h"

enum {
    WARM_UP = 10,
    CYCLES = 1000,
    CYCLES_SANITIZED = 40, /* each takes a hundred times as long; leaks are their own business */
    CYCLES_DEMO = 60,
    N_PROMPT = 30,
    N_NEW = 4,
    /* An allocator may split its heap worse by chance, once, and so may each thread's: 2 MiB. What
     * a cycle leaves behind adds up: the smallest thing of it that could, a page, would be 4 MB
     * after a thousand; the smallest model's weights 300. */
    SLACK = 2 << 20
};

/* What is mapped from a file counts too: the folder's model is mapped anew in each cycle. */
struct cycle {
    char *model_dir, *session;
    struct failing host;
};

static void write_tokens(ebro_engine *engine, ebro_seq *seq) {
    const ebro_sampling greedy = {.size = sizeof greedy};
    ebro_error err;
    int32_t id = 0;
    for (int i = 0; i < N_NEW; i++) {
        while (ebro_seq_pending(seq) > 0) test_ok(ebro_engine_step(engine, &err), &err);
        test_ok(ebro_seq_sample(seq, &greedy, &id, &err), &err);
        test_ok(ebro_seq_append(seq, &id, 1, 0, &err), &err);
    }
}

static void use_engine(const struct cycle *c, ebro_engine *engine) {
    int32_t ids[N_PROMPT];
    ebro_seq *seq = NULL;
    ebro_error err;
    for (int i = 0; i < N_PROMPT; i++) ids[i] = 1 + (i * 7) % 200;
    test_ok(ebro_seq_create(engine, &seq, &err), &err);
    test_ok(ebro_seq_append(seq, ids, N_PROMPT, 0, &err), &err);
    write_tokens(engine, seq);
    test_ok(ebro_seq_save(seq, c->session, NULL, NULL, &err), &err);
    ebro_seq_destroy(&seq);
    test_ok(ebro_seq_load(engine, c->session, &seq, NULL, &err), &err);
    write_tokens(engine, seq);
    ebro_seq_destroy(&seq);
}

static void run_cycle(struct cycle *c) {
    const ebro_runtime_options ro = {.size = sizeof ro,
                                     .module_dir = test_module_dir(),
                                     .realloc = failing_realloc,
                                     .realloc_user = &c->host};
    const ebro_model_options mo = {.size = sizeof mo, .path = c->model_dir};
    const ebro_model_options wrong = {.size = sizeof wrong, .path = test_golden_dir()};
    const ebro_engine_options eo = {
        .size = sizeof eo, .n_ctx = 100, .n_chunk = 16, .cache_dtype = -1};
    ebro_runtime *rt = NULL;
    ebro_device *device = NULL;
    ebro_model *model = NULL;
    ebro_engine *engine = NULL;
    ebro_error err;
    test_ok(ebro_runtime_open(&ro, &rt, &err), &err);
    test_ok(ebro_device_open(rt, "cpu", &device, &err), &err);
    test_fails(ebro_model_open(rt, &wrong, &model, &err), EBRO_INVALID, &err, "config.json");
    test_ok(ebro_model_open(rt, &mo, &model, &err), &err);
    test_ok(ebro_engine_open(model, device, &eo, &engine, &err), &err);
    use_engine(c, engine);
    ebro_engine_close(&engine);
    ebro_model_close(&model);
    ebro_device_close(&device);
    ebro_runtime_close(&rt);
    assert_int_equal(c->host.n_held, 0);
}

static void check_cycles(const char *model_dir, int n) {
    char *dir = test_tmp_dir();
    char session[512];
    snprintf(session, sizeof session, "%s/kept.session", dir);
    struct cycle c = {
        .model_dir = (char *)model_dir, .session = session, .host = {.fail_at = SIZE_MAX}};
    for (int i = 0; i < WARM_UP; i++) run_cycle(&c);
    const int64_t before = test_resident_bytes(0);
    const uint32_t files = test_open_files(0), threads = test_threads(0);
    for (int i = WARM_UP; i < n; i++) run_cycle(&c);
    const int64_t grown = test_resident_bytes(0) - before;
    print_message("cycles %d to %d: %lld bytes more\n", WARM_UP, n, (long long)grown);
    assert_int_equal(test_open_files(0), files);
    assert_int_equal(test_threads(0), threads);
    if (!test_is_sanitized())
        test_le((double)grown, SLACK, "growth from cycle %d to cycle %d", WARM_UP, n);
    test_tmp_remove(&dir);
}

static void small_model(void **state) {
    (void)state;
    const struct micro_spec spec = {.seed = 5, .ffn = MICRO_MOE, .n_shards = 2};
    char *dir = test_tmp_dir();
    micro_write(dir, &spec);
    check_cycles(dir, test_is_sanitized() ? CYCLES_SANITIZED : CYCLES);
    test_tmp_remove(&dir);
}

static void demo_model(void **state) {
    (void)state;
    if (test_is_sanitized()) {
        print_message("skipped: the demo model takes minutes under a sanitizer\n");
        skip();
    }
    check_cycles(test_demo_dir(), getenv("EBRO_TEST_FULL") != NULL ? CYCLES : CYCLES_DEMO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_model),
        cmocka_unit_test(demo_model),
    };
    return cmocka_run_group_tests_name("engine/unloading", tests, NULL, NULL);
}
