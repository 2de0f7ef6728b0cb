/* ops.c: the operator level of `ebro check`, as the library gives it: what it says of a device that
 * is right, of one that computes nothing, with too little memory, and twice. That it finds faults
 * is tested in planted.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check/check.h"
#include "tests/harness/devices.h"
#include "tests/harness/failing.h"
#include "tests/harness/test.h"

enum { MAX_RESULTS = 2000 };

struct result {
    ebro_op op;
    const char *name;
    double error, budget;
    enum eb_opcheck_verdict verdict;
    bool repeatable;
};

/* What a run handed out. */
static struct findings {
    struct result results[MAX_RESULTS];
    uint32_t n, stop_after; /* 0: never */
    bool seen[EBRO_N_OPS];
} found;

static bool note(void *user, const struct eb_opcheck_result *r) {
    (void)user;
    assert_true(found.n < MAX_RESULTS);
    assert_non_null(r->device);
    assert_true(r->name[0] != '\0' && r->shape[0] != '\0' && r->rung[0] != '\0');
    assert_true(r->seconds >= 0);
    if (r->verdict == EB_OPCHECK_OK) {
        assert_true(r->text[0] == '\0');
        assert_true(r->reason[0] != '\0' && r->measure[0] != '\0');
        assert_true(r->error <= r->budget);
    } else {
        assert_true(r->text[0] != '\0');
    }
    if (r->verdict == EB_OPCHECK_FAILED)
        print_message("%s, %s (%s): %s\n", eb_op_name(r->op), r->name, r->shape, r->text);
    found.results[found.n++] = (struct result){.op = r->op,
                                               .name = r->name,
                                               .error = r->error,
                                               .budget = r->budget,
                                               .verdict = r->verdict,
                                               .repeatable = r->repeatable};
    found.seen[r->op] = true;
    return found.stop_after == 0 || found.n < found.stop_after;
}

static struct eb_opcheck_options options_of(uint64_t seed) {
    memset(&found, 0, sizeof found);
    return (struct eb_opcheck_options){.seed = seed, .op = -1, .result = note};
}

static ebro_runtime *open_runtime(struct failing *host) {
    ebro_runtime_options o = {.size = sizeof o, .module_dir = test_module_dir()};
    ebro_runtime *rt = NULL;
    ebro_error err;
    if (host != NULL) {
        o.realloc = failing_realloc;
        o.realloc_user = host;
    }
    test_ok(ebro_runtime_open(&o, &rt, &err), &err);
    return rt;
}

/* A quick check of all rungs; returns what it came to. */
static struct eb_opcheck_tally check(const char *device, const struct eb_opcheck_options *o) {
    struct eb_opcheck_tally tally = {0, 0, 0};
    ebro_runtime *rt = open_runtime(NULL);
    ebro_error err;
    test_ok(eb_opcheck_rungs(rt, device, NULL, o, &tally, &err), &err);
    ebro_runtime_close(&rt);
    return tally;
}

static void devices_are_right(void **state) {
    (void)state;
    struct eb_opcheck_options o = options_of(test_seed());
    struct eb_opcheck_tally tally = check(test_device(), &o);
    assert_int_equal(tally.n_failed, 0);
    assert_int_equal(tally.n_refused, 0);
    assert_int_equal(tally.n_ok, found.n);
    for (int op = 0; op < EBRO_N_OPS; op++)
        if (!found.seen[op]) fail_msg("no case of %s", eb_op_name((ebro_op)op));
    for (uint32_t i = 0; i < found.n; i++) assert_true(found.results[i].repeatable);
}

/* One case alone sees what it saw among others, and another seed gives other inputs. */
static void seeds_repeat(void **state) {
    (void)state;
    static struct findings all;
    uint64_t seed = test_seed();
    uint32_t n_alike = 0, n_same = 0;
    struct eb_opcheck_options o = options_of(seed);
    (void)check("CPU", &o);
    all = found;
    for (uint32_t i = 0; i < all.n && i < 60; i += 3) {
        o = options_of(seed);
        o.op = (int32_t)all.results[i].op;
        o.name = all.results[i].name;
        (void)check("CPU", &o);
        assert_true(found.n > 0);
        assert_string_equal(found.results[0].name, all.results[i].name);
        assert_true(found.results[0].error == all.results[i].error);
        n_alike++;
    }
    assert_true(n_alike > 10);
    o = options_of(seed + 1);
    (void)check("CPU", &o);
    assert_int_equal(found.n, all.n);
    for (uint32_t i = 0; i < all.n; i++)
        n_same += all.results[i].error > 0 && found.results[i].error == all.results[i].error;
    assert_true(n_same < all.n / 10);
}

/* A full check holds all of a quick one. */
static void quick_is_a_part(void **state) {
    (void)state;
    static struct findings quick;
    uint64_t seed = test_seed();
    struct eb_opcheck_options o = options_of(seed);
    o.op = EBRO_OP_LINEAR;
    (void)check("CPU", &o);
    quick = found;
    o = options_of(seed);
    o.op = EBRO_OP_LINEAR;
    o.full = true;
    o.n_runs = 2;
    (void)check("CPU", &o);
    assert_true(found.n > quick.n);
    for (uint32_t i = 0; i < quick.n; i++) {
        bool held = false;
        for (uint32_t k = 0; k < found.n && !held; k++)
            held = strcmp(quick.results[i].name, found.results[k].name) == 0;
        if (!held) fail_msg("a full check lacks \"%s\"", quick.results[i].name);
    }
}

/* A device that computes nothing is refused, and not blamed. */
static void null_is_refused(void **state) {
    (void)state;
    struct eb_opcheck_options o = options_of(test_seed());
    struct eb_opcheck_tally tally = check("Null0", &o);
    assert_int_equal(tally.n_failed, 0);
    assert_true(tally.n_refused > 50);
}

static void callers_stop_it(void **state) {
    (void)state;
    struct eb_opcheck_options o = options_of(test_seed());
    struct eb_opcheck_tally tally = {0, 0, 0};
    ebro_runtime *rt = open_runtime(NULL);
    ebro_error err;
    found.stop_after = 3;
    test_fails(eb_opcheck_rungs(rt, "CPU", NULL, &o, &tally, &err), EBRO_CANCELLED, &err,
               "stopped");
    assert_int_equal(found.n, 3);
    test_fails(eb_opcheck_rungs(rt, "CPU9", NULL, &o, &tally, &err), EBRO_NO_DEVICE, &err, "CPU9");
    ebro_runtime_close(&rt);
}

/* Allocations of every quick case fail, the first ones all, then ever fewer: an error that says so,
 * and nothing is kept. */
static void memory_runs_out(void **state) {
    (void)state;
    static struct findings all;
    struct failing host = {.fail_at = SIZE_MAX};
    struct eb_opcheck_tally tally = {0, 0, 0};
    struct eb_opcheck_options o = options_of(test_seed());
    const ebro_device_options settings = {.size = sizeof settings, .n_threads = 1};
    ebro_runtime *rt = open_runtime(&host);
    ebro_device *d = NULL;
    ebro_error err;
    size_t n_failures = 0;
    test_ok(eb_device_open(rt, "CPU", &settings, &d, &err), &err);
    o.n_runs = 2;
    test_ok(eb_opcheck_device(d, &o, &tally, &err), &err);
    all = found;
    const size_t held = host.n_held;
    for (uint32_t i = 0; i < all.n; i++) {
        int32_t st = EBRO_NOMEM_HOST;
        o = options_of(1);
        o.n_runs = 2;
        o.op = (int32_t)all.results[i].op;
        o.name = all.results[i].name;
        for (size_t n = 0; st != EBRO_OK; n += 1 + n / 16) {
            memset(&err, 0, sizeof err);
            host.n_calls = 0;
            host.fail_at = n;
            st = eb_opcheck_device(d, &o, &tally, &err);
            host.fail_at = SIZE_MAX;
            if (host.n_held != held) fail_msg("%s keeps memory", o.name);
            if (st == EBRO_OK) break;
            if (st != EBRO_NOMEM_HOST && st != EBRO_NOMEM_DEVICE)
                fail_msg("%s, allocation %zu: %s", o.name, n, err.text);
            if (err.text[0] == '\0') fail_msg("%s, allocation %zu: no text", o.name, n);
            n_failures++;
        }
    }
    assert_int_equal(tally.n_failed, 0);
    print_message("%zu allocations failed in turn\n", n_failures);
    assert_true(n_failures > 1000);
    ebro_device_close(&d);
    ebro_runtime_close(&rt);
    assert_int_equal(host.n_held, 0);
}

int main(void) {
    const struct CMUnitTest on_devices[] = {cmocka_unit_test(devices_are_right)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeds_repeat),    cmocka_unit_test(quick_is_a_part),
        cmocka_unit_test(null_is_refused), cmocka_unit_test(callers_stop_it),
        cmocka_unit_test(memory_runs_out),
    };
    int failed = test_on_devices("check/ops", on_devices, NULL, NULL);
    return failed + cmocka_run_group_tests_name("check/ops", tests, NULL, NULL);
}
