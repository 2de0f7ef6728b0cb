/* devices.c: see devices.h. */
#include "tests/harness/devices.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "device/registry.h"

enum { MAX_DEVICES = 32 };

static const char *current = "CPU";

const char *test_device(void) {
    return current;
}

/* The names of the devices that the tests are for, of all backends or of one; returns how many, 0
 * where there is none of `wanted`, which it says, or of the backend; *elsewhere: `wanted` is of
 * another one. Where devices cannot be listed that is "CPU" alone, whose first test then says what
 * is wrong. */
static uint32_t list_devices(const char *wanted, const char *backend,
                             const char *names[MAX_DEVICES], bool *elsewhere) {
    static ebro_device_info infos[MAX_DEVICES];
    ebro_runtime_options options = {.size = sizeof options, .module_dir = test_module_dir()};
    ebro_runtime *rt = NULL;
    ebro_device *device = NULL;
    ebro_error err = {0};
    uint32_t n_infos = 0, n = 0;
    *elsewhere = false;
    if (wanted != NULL || backend == NULL || strcmp(backend, "cpu") == 0)
        names[n++] = wanted != NULL ? wanted : "CPU";
    if (ebro_runtime_open(&options, &rt, &err) == EBRO_OK && wanted != NULL) {
        if (ebro_device_open(rt, wanted, &device, &err) == EBRO_NO_DEVICE) n = 0;
        if (n == 0) print_error("EBRO_TEST_DEVICE: %s\n", err.text);
        *elsewhere =
            device != NULL && backend != NULL && strcmp(device->info.backend, backend) != 0;
        if (*elsewhere) n = 0;
    } else if (rt != NULL && ebro_device_list(rt, infos, MAX_DEVICES, &n_infos, &err) == EBRO_OK) {
        for (uint32_t i = 0; i < n_infos && i < MAX_DEVICES; i++) {
            if (strcmp(infos[i].backend, "null") == 0 || strcmp(infos[i].name, "CPU") == 0)
                continue;
            if (backend != NULL && strcmp(infos[i].backend, backend) != 0) continue;
            if (n < MAX_DEVICES) names[n++] = infos[i].name;
        }
    }
    ebro_device_close(&device);
    ebro_runtime_close(&rt);
    return n;
}

/* Those of the tests whose name fits the pattern (NULL: all), in new memory. */
static struct CMUnitTest *choose_tests(const char *pattern, const struct CMUnitTest *tests,
                                       size_t *n_tests) {
    struct CMUnitTest *chosen = calloc(*n_tests, sizeof *chosen);
    size_t n = 0;
    for (size_t i = 0; chosen != NULL && i < *n_tests; i++)
        if (pattern == NULL || fnmatch(pattern, tests[i].name, 0) == 0) chosen[n++] = tests[i];
    *n_tests = n;
    return chosen;
}

static void has_no_device(void **state) {
    (void)state;
    const char *wanted = getenv("EBRO_TEST_DEVICE");
    print_message("skipped: %s is no device of the backend %s\n", wanted ? wanted : "there",
                  getenv("EBRO_TEST_BACKEND"));
    skip();
}

static void takes_minutes(void **state) {
    (void)state;
    print_message(
        "skipped: %s is imitated by a processor and would take minutes; EBRO_TEST_FULL "
        "runs it\n",
        current);
    skip();
}

int test_group_on_fast_devices(const char *name, const struct CMUnitTest *tests, size_t n_tests,
                               CMFixtureFunction setup, CMFixtureFunction teardown) {
    const struct CMUnitTest slow[] = {cmocka_unit_test(takes_minutes)};
    const char *names[MAX_DEVICES];
    if (getenv("EBRO_TEST_FULL") == NULL && getenv("EBRO_TEST_DEVICE") == NULL) {
        bool elsewhere;
        uint32_t n = list_devices(NULL, getenv("EBRO_TEST_BACKEND"), names, &elsewhere);
        bool all_slow = n > 0;
        for (uint32_t i = 0; i < n; i++) {
            current = names[i];
            all_slow = all_slow && test_device_is_emulated();
        }
        if (all_slow) return _cmocka_run_group_tests(name, slow, 1, NULL, NULL);
    }
    return test_group_on_devices(name, tests, n_tests, setup, teardown);
}

int test_group_on_devices(const char *name, const struct CMUnitTest *tests, size_t n_tests,
                          CMFixtureFunction setup, CMFixtureFunction teardown) {
    const char *names[MAX_DEVICES], *pattern = getenv("EBRO_TEST_FILTER");
    const char *wanted = getenv("EBRO_TEST_DEVICE"), *backend = getenv("EBRO_TEST_BACKEND");
    const struct CMUnitTest none[] = {cmocka_unit_test(has_no_device)};
    bool elsewhere;
    uint32_t n = list_devices(wanted, backend, names, &elsewhere);
    if (elsewhere || (n == 0 && wanted == NULL && backend != NULL))
        return _cmocka_run_group_tests(name, none, 1, NULL, NULL);
    struct CMUnitTest *chosen = choose_tests(pattern, tests, &n_tests);
    int failed = n == 0 || n_tests == 0;
    if (n_tests == 0) print_error("EBRO_TEST_FILTER: no test of %s fits \"%s\"\n", name, pattern);
    for (uint32_t i = 0; i < n && n_tests > 0; i++) {
        char group[128];
        current = names[i];
        snprintf(group, sizeof group, "%s on %s", name, current);
        print_message("# %s\n", group);
        failed += _cmocka_run_group_tests(group, chosen, n_tests, setup, teardown);
    }
    free(chosen);
    return failed != 0;
}

bool test_device_is_emulated(void) {
    ebro_runtime_options options = {.size = sizeof options, .module_dir = test_module_dir()};
    ebro_runtime *rt = NULL;
    struct eb_found found;
    ebro_error err;
    test_ok(ebro_runtime_open(&options, &rt, &err), &err);
    test_ok(eb_registry_find(rt, current, &found, &err), &err);
    ebro_runtime_close(&rt);
    return (found.probe.flags & EBRO_PROBE_EMULATED) != 0;
}

void test_device_needs_named(uint64_t cap, const char *name) {
    ebro_runtime_options options = {.size = sizeof options, .module_dir = test_module_dir()};
    ebro_runtime *rt = NULL;
    ebro_device *device = NULL;
    ebro_error err;
    test_ok(ebro_runtime_open(&options, &rt, &err), &err);
    test_ok(ebro_device_open(rt, current, &device, &err), &err);
    uint64_t bits = device->caps.bits;
    ebro_device_close(&device);
    ebro_runtime_close(&rt);
    if (bits & cap) return;
    print_message("skipped: %s lacks %s\n", current, name);
    skip();
}
