/* selftest.c: ebro_device_open_tested (HD-20): what is wrong is done without, by name and as little
 * of it as will do; what cannot be done without keeps the device from being opened; and a result is
 * kept for as long as it holds. The device that is wrong is faulty/faulty.c. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "check/check.h"
#include "check/run.h"
#include "tests/harness/devices.h"
#include "tests/harness/failing.h"
#include "tests/harness/test.h"

static struct {
    char *modules, *cache;
    char warning[2000]; /* the last one */
    uint32_t n_tests, n_warnings;
} f;

static void listen(void *user, int32_t level, const char *text) {
    (void)user;
    if (strstr(text, ": self-test of ") != NULL) f.n_tests++;
    if (level > EBRO_LOG_WARN) return;
    f.n_warnings++;
    snprintf(f.warning, sizeof f.warning, "%s", text);
}

static int set_up(void **state) {
    (void)state;
    size_t bytes;
    f.modules = test_tmp_dir();
    f.cache = test_tmp_dir();
    void *module = test_read_file(TEST_FAULTY_DIR "/ebro_cpu.so", &bytes);
    test_write_file(f.modules, "ebro_cpu.so", module, bytes);
    free(module);
    f.n_tests = f.n_warnings = 0;
    f.warning[0] = '\0';
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    unsetenv("EBRO_FAULTY");
    unsetenv("EBRO_FAULTY_HOW");
    test_tmp_remove(&f.modules);
    test_tmp_remove(&f.cache);
    return 0;
}

static ebro_runtime *open_runtime(const char *modules, const char *cache) {
    const ebro_runtime_options o = {.size = sizeof o,
                                    .log = listen,
                                    .log_level = EBRO_LOG_INFO,
                                    .module_dir = modules,
                                    .cache_dir = cache};
    ebro_runtime *rt = NULL;
    ebro_error err = {0};
    test_ok(ebro_runtime_open(&o, &rt, &err), &err);
    return rt;
}

/* Opens the faulty device, whose rms_norm must then be right in that variant; NULL: it must be
 * refused. Returns how many tests that took. */
static uint32_t open_with(const char *avoid, const char *variant, ebro_error *err) {
    ebro_runtime *rt = open_runtime(f.modules, f.cache);
    const ebro_device_settings s = {.size = sizeof s, .n_threads = 1, .avoid = avoid};
    ebro_device *d = NULL;
    char is[EB_VARIANT_BYTES];
    uint32_t n = f.n_tests;
    int32_t st = ebro_device_open_tested(rt, "CPU", &s, &d, err);
    if (variant != NULL) {
        const struct eb_opcheck_options o = {.seed = 1, .op = EBRO_OP_RMS_NORM};
        struct eb_opcheck_tally tally = {0, 0, 0};
        test_ok(st, err);
        d->be->op_variant(d->dev, EBRO_OP_RMS_NORM, is, sizeof is);
        assert_string_equal(is, variant);
        test_ok(eb_opcheck_device(d, &o, &tally, err), err);
        assert_true(tally.n_ok > 0);
        assert_int_equal(tally.n_failed, 0);
    } else {
        assert_int_not_equal(st, EBRO_OK);
        assert_null(d);
    }
    ebro_device_close(&d);
    ebro_runtime_close(&rt);
    return f.n_tests - n;
}

/* The same, in so many tests. */
static void opens_as(const char *variant, uint32_t n_tests) {
    ebro_error err = {0};
    assert_int_equal(open_with(NULL, variant, &err), n_tests);
}

static void the_log_says(const char *part) {
    if (strstr(f.warning, part) == NULL) fail_msg("\"%s\" is not in: %s", part, f.warning);
}

/* ---- findings --------------------------------------------------------------------------- */

static void one_variant_is_replaced(void **state) {
    (void)state;
    setenv("EBRO_FAULTY", "b:fast", 1);
    opens_as("a:fast b:plain", 1);
    assert_int_equal(f.n_warnings, 1);
    the_log_says("CPU fails its self-test in b:fast, and uses b:plain instead");
    the_log_says("rms_norm, case \"odd width\": ");
    the_log_says("allowed are 1.");
}

/* Neither alone makes the operator right. */
static void two_variants_are_replaced(void **state) {
    (void)state;
    setenv("EBRO_FAULTY", "a:fast b:fast", 1);
    opens_as("a:plain b:plain", 1);
    assert_int_equal(f.n_warnings, 1);
    the_log_says("in a:fast b:fast, and uses a:plain b:plain instead");
}

static void what_has_no_other_variant_is_refused(void **state) {
    (void)state;
    ebro_error err = {0};
    setenv("EBRO_FAULTY", "a:fast a:plain", 1);
    assert_int_equal(open_with(NULL, NULL, &err), 0);
    test_fails(err.status, EBRO_NUMERIC, &err, "CPU fails its self-test");
    test_fails(err.status, EBRO_NUMERIC, &err, "rms_norm, case \"odd width\": ");
    test_fails(err.status, EBRO_NUMERIC, &err, "a:plain");
    assert_int_equal(f.n_warnings, 0);
    /* It is tried again each time. */
    unsetenv("EBRO_FAULTY");
    opens_as("a:fast b:fast", 1);
}

static void what_does_not_repeat_itself_is_wrong(void **state) {
    (void)state;
    setenv("EBRO_FAULTY", "a:fast", 1);
    setenv("EBRO_FAULTY_HOW", "unsteady", 1);
    opens_as("a:plain b:fast", 1);
    the_log_says("gave other bytes");
}

static void what_loses_the_device_is_wrong(void **state) {
    (void)state;
    ebro_error err = {0};
    setenv("EBRO_FAULTY", "a:fast", 1);
    setenv("EBRO_FAULTY_HOW", "lost", 1);
    opens_as("a:plain b:fast", 1);
    the_log_says("the device is lost");
    setenv("EBRO_FAULTY", "b:fast b:plain", 1);
    assert_int_equal(open_with("a:fast", NULL, &err), 0);
    test_fails(err.status, EBRO_DEVICE_LOST, &err, "the device is lost");
}

/* What the caller takes away is taken away throughout. */
static void given_names_stay(void **state) {
    (void)state;
    ebro_error err = {0};
    setenv("EBRO_FAULTY", "b:fast", 1);
    assert_int_equal(open_with("a:fast", "a:plain b:plain", &err), 1);
    assert_int_equal(open_with("a:fast", "a:plain b:plain", &err), 0);
    assert_int_equal(open_with("b:plain", NULL, &err), 0);
    test_fails(err.status, EBRO_NUMERIC, &err, "b:fast");
    assert_int_equal(open_with("c:fast", NULL, &err), 0);
    test_fails(err.status, EBRO_INVALID, &err, "\"c:fast\"");
}

/* ---- results that are kept -------------------------------------------------------------- */

/* What is wrong by then would be found if it were looked for. */
static void results_are_used(void **state) {
    (void)state;
    ebro_error err = {0};
    ebro_device *d = NULL;
    opens_as("a:fast b:fast", 1);
    setenv("EBRO_FAULTY", "a:fast", 1);
    ebro_runtime *rt = open_runtime(f.modules, f.cache);
    test_ok(ebro_device_open_tested(rt, NULL, NULL, &d, &err), &err);
    ebro_device_close(&d);
    ebro_runtime_close(&rt);
    assert_int_equal(f.n_tests, 1);
    assert_int_equal(f.n_warnings, 0);
}

/* Told once, avoided from then on. */
static void wrong_variants_are_remembered(void **state) {
    (void)state;
    setenv("EBRO_FAULTY", "b:fast", 1);
    opens_as("a:fast b:plain", 1);
    opens_as("a:fast b:plain", 0);
    unsetenv("EBRO_FAULTY");
    opens_as("a:fast b:plain", 0);
    assert_int_equal(f.n_warnings, 1);
}

static void another_module_is_tested_anew(void **state) {
    (void)state;
    char path[4096];
    opens_as("a:fast b:fast", 1);
    snprintf(path, sizeof path, "%s/ebro_cpu.so", f.modules);
    FILE *module = fopen(path, "ab");
    assert_non_null(module);
    assert_int_equal(fputc('x', module), 'x');
    assert_int_equal(fclose(module), 0);
    setenv("EBRO_FAULTY", "a:fast", 1);
    opens_as("a:plain b:fast", 1);
    opens_as("a:plain b:fast", 0);
}

static void is_no_result(const char *name, const char *data, size_t bytes) {
    test_write_file(f.cache, name, data, bytes);
    opens_as("a:fast b:fast", 1);
    opens_as("a:fast b:fast", 0);
}

/* Every byte of it counts, and so does its end. */
static void damaged_results_are_no_results(void **state) {
    (void)state;
    char pattern[4096];
    size_t bytes;
    glob_t files;
    opens_as("a:fast b:fast", 1);
    snprintf(pattern, sizeof pattern, "%s/selftest-*.txt", f.cache);
    assert_int_equal(glob(pattern, 0, NULL, &files), 0);
    assert_int_equal(files.gl_pathc, 1);
    const char *name = strrchr(files.gl_pathv[0], '/') + 1;
    char *kept = test_read_file(files.gl_pathv[0], &bytes);
    struct test_rng r = {test_seed()};
    for (size_t i = test_u64(&r) % 20; i < bytes; i += 20) {
        kept[i] ^= 1;
        is_no_result(name, kept, bytes);
        kept[i] ^= 1;
    }
    is_no_result(name, kept, 0);
    is_no_result(name, kept, bytes - 1);
    assert_int_equal(f.n_warnings, 0);
    globfree(&files);
    free(kept);
}

static void without_a_folder_it_runs_each_time(void **state) {
    (void)state;
    char *cache = f.cache, absent[4096];
    f.cache = NULL;
    opens_as("a:fast b:fast", 1);
    opens_as("a:fast b:fast", 1);
    assert_int_equal(f.n_warnings, 0);
    snprintf(absent, sizeof absent, "%s/absent", cache);
    f.cache = absent;
    opens_as("a:fast b:fast", 1);
    opens_as("a:fast b:fast", 1);
    assert_int_equal(f.n_warnings, 2);
    the_log_says("could not be kept");
    f.cache = cache;
}

/* ---- memory ----------------------------------------------------------------------------- */

/* Allocations fail, the first ones all, then ever fewer: an error that says so, or a device. */
static void memory_runs_out(void **state) {
    (void)state;
    struct failing host = {.fail_at = SIZE_MAX};
    const ebro_runtime_options o = {.size = sizeof o,
                                    .realloc = failing_realloc,
                                    .realloc_user = &host,
                                    .module_dir = f.modules,
                                    .cache_dir = f.cache};
    const ebro_device_settings s = {.size = sizeof s, .n_threads = 1};
    ebro_runtime *rt = NULL;
    ebro_error err = {0};
    size_t n_failures = 0;
    int32_t st = EBRO_NOMEM_HOST;
    setenv("EBRO_FAULTY", "a:fast", 1);
    test_ok(ebro_runtime_open(&o, &rt, &err), &err);
    const size_t held = host.n_held;
    for (size_t n = 0; st != EBRO_OK; n += 1 + n / 8) {
        ebro_device *d = NULL;
        memset(&err, 0, sizeof err);
        host.n_calls = 0;
        host.fail_at = n;
        st = ebro_device_open_tested(rt, "CPU", &s, &d, &err);
        host.fail_at = SIZE_MAX;
        if (st != EBRO_OK) {
            assert_null(d);
            if (st != EBRO_NOMEM_HOST && st != EBRO_NOMEM_DEVICE)
                fail_msg("allocation %zu: %s", n, err.text);
            assert_true(err.text[0] != '\0');
            n_failures++;
        }
        ebro_device_close(&d);
        if (host.n_held != held) fail_msg("allocation %zu: memory is kept", n);
    }
    print_message("%zu allocations failed in turn\n", n_failures);
    assert_true(n_failures > 20);
    ebro_runtime_close(&rt);
    assert_int_equal(host.n_held, 0);
}

/* ---- devices ---------------------------------------------------------------------------- */

/* Every device of this machine that computes passes, with a case for every operator. */
static void devices_pass(void **state) {
    (void)state;
    ebro_runtime *rt = open_runtime(test_module_dir(), f.cache);
    ebro_device *d = NULL;
    ebro_error err = {0};
    f.n_tests = f.n_warnings = 0;
    test_ok(ebro_device_open_tested(rt, test_device(), NULL, &d, &err), &err);
    assert_int_equal(f.n_tests, 1);
    ebro_device_close(&d);
    f.n_warnings = 0; /* of kernels that are compiled for the first time */
    test_ok(ebro_device_open_tested(rt, test_device(), NULL, &d, &err), &err);
    assert_int_equal(f.n_tests, 1);
    assert_int_equal(f.n_warnings, 0);
    ebro_device_close(&d);
    ebro_runtime_close(&rt);
    for (int op = 0; op < EBRO_N_OPS; op++) {
        const struct eb_opcheck_options o = {.start = true, .op = op};
        if (eb_opcheck_count(&o) == 0) fail_msg("no case of %s", eb_op_name((ebro_op)op));
    }
}

/* Each variant alone is avoided: it is gone, and what takes its place is right beside the others.
 */
static void what_takes_a_place_is_right(void **state) {
    (void)state;
    ebro_runtime *rt = open_runtime(test_module_dir(), f.cache);
    ebro_error err = {0};
    uint32_t n_replaced = 0;
    for (int op = 0; op < EBRO_N_OPS; op++) {
        const struct eb_opcheck_options o = {.seed = 1, .start = true, .op = op, .n_runs = 1};
        struct eb_opcheck_tally tally = {0, 0, 0};
        struct ebro_device *d = NULL;
        char text[EB_VARIANT_BYTES], now[EB_VARIANT_BYTES];
        test_ok(ebro_device_open(rt, test_device(), &d, &err), &err);
        d->be->op_variant(d->dev, (ebro_op)op, text, sizeof text);
        ebro_device_close(&d);
        for (char *rest, *name = strtok_r(text, " ", &rest); name != NULL;
             name = strtok_r(NULL, " ", &rest)) {
            const ebro_device_options without = {.size = sizeof without, .avoid = name};
            if (eb_device_open(rt, test_device(), &without, &d, &err) != EBRO_OK) continue;
            d->be->op_variant(d->dev, (ebro_op)op, now, sizeof now);
            assert_false(eb_has_name(now, name, strlen(name)));
            test_ok(eb_opcheck_device(d, &o, &tally, &err), &err);
            if (tally.n_failed > 0)
                fail_msg("%s without %s is wrong", eb_op_name((ebro_op)op), name);
            assert_true(tally.n_ok > 0);
            ebro_device_close(&d);
            n_replaced++;
        }
    }
    print_message("%u variants replaced\n", n_replaced);
    ebro_runtime_close(&rt);
}

int main(void) {
#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest on_devices[] = {CASE(devices_pass), CASE(what_takes_a_place_is_right)};
    const struct CMUnitTest tests[] = {
        CASE(one_variant_is_replaced),
        CASE(two_variants_are_replaced),
        CASE(what_has_no_other_variant_is_refused),
        CASE(what_does_not_repeat_itself_is_wrong),
        CASE(what_loses_the_device_is_wrong),
        CASE(given_names_stay),
        CASE(results_are_used),
        CASE(wrong_variants_are_remembered),
        CASE(another_module_is_tested_anew),
        CASE(damaged_results_are_no_results),
        CASE(without_a_folder_it_runs_each_time),
        CASE(memory_runs_out),
    };
    int failed = test_on_devices("check/selftest", on_devices, NULL, NULL);
    return failed + cmocka_run_group_tests_name("check/selftest", tests, NULL, NULL);
}
