/* devices.c: see devices.h. */
#include "tests/harness/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"

enum { MAX_DEVICES = 32 };

static const char *current = "CPU";

const char *test_device(void) {
    return current;
}

/* The names of all devices that compute; returns how many. Where they cannot be listed that is
 * "CPU" alone, whose first test then says what is wrong. */
static uint32_t list_devices(const char *names[MAX_DEVICES]) {
    static ebro_device_info infos[MAX_DEVICES];
    ebro_runtime_options options = {.size = sizeof options, .module_dir = test_module_dir()};
    ebro_runtime *rt = NULL;
    ebro_error err = {0};
    uint32_t n_infos = 0, n = 0;
    names[n++] = "CPU";
    if (ebro_runtime_open(&options, &rt, &err) == EBRO_OK &&
        ebro_device_list(rt, infos, MAX_DEVICES, &n_infos, &err) == EBRO_OK) {
        for (uint32_t i = 0; i < n_infos && i < MAX_DEVICES; i++) {
            if (strcmp(infos[i].backend, "null") == 0 || strcmp(infos[i].name, "CPU") == 0)
                continue;
            if (n < MAX_DEVICES) names[n++] = infos[i].name;
        }
    }
    ebro_runtime_close(&rt);
    return n;
}

int test_group_on_devices(const char *name, const struct CMUnitTest *tests, size_t n_tests,
                          CMFixtureFunction setup, CMFixtureFunction teardown) {
    const char *names[MAX_DEVICES] = {getenv("EBRO_TEST_DEVICE")};
    uint32_t n = names[0] != NULL ? 1 : list_devices(names);
    int failed = 0;
    cmocka_set_test_filter(getenv("EBRO_TEST_FILTER"));
    for (uint32_t i = 0; i < n; i++) {
        char group[128];
        current = names[i];
        snprintf(group, sizeof group, "%s on %s", name, current);
        print_message("# %s\n", group);
        failed += _cmocka_run_group_tests(group, tests, n_tests, setup, teardown);
    }
    return failed != 0;
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
