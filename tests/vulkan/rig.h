/* rig.h: a runtime over the shim of shim/shim.h, and its first Vulkan device. */
#ifndef EB_TEST_VULKAN_RIG_H
#define EB_TEST_VULKAN_RIG_H

#include <string.h>

#include "device/device.h"
#include "tests/harness/test.h"
#include "tests/vulkan/shim/shim.h"

static ebro_runtime *rt;

/* For cmocka: each test begins with a shim that changes nothing, and ends with nothing left. */
static int rig_open(void **state) {
    (void)state;
    const ebro_runtime_options o = {.size = sizeof o, .module_dir = test_module_dir()};
    ebro_error err = {0};
    memset(shim_get(), 0, sizeof *shim_get());
    test_ok(ebro_runtime_open(&o, &rt, &err), &err);
    return 0;
}

static int rig_close(void **state) {
    (void)state;
    const struct shim_seen *seen = &shim_get()->seen;
    ebro_runtime_close(&rt);
    assert_int_equal(seen->live_allocations, 0);
    assert_int_equal(seen->live_bytes, 0);
    assert_int_equal(seen->live_buffers, 0);
    assert_int_equal(seen->live_pipelines, 0);
    assert_int_equal(seen->live_devices, 0);
    /* The first one of the process stays (backends/vulkan/api.h). */
    assert_true(seen->live_instances <= 1);
    return 0;
}

/* Skips the test, saying why, where there is no device. */
static struct ebro_device *rig_device(void) {
    struct ebro_device *d = NULL;
    ebro_error err = {0};
    int32_t st = ebro_device_open(rt, "Vulkan0", &d, &err);
    if (st == EBRO_NO_DEVICE) {
        print_message("skipped: %s\n", err.text);
        skip();
    }
    test_ok(st, &err);
    return d;
}

static inline ebro_span at(ebro_mem *mem, uint64_t offset) {
    return (ebro_span){.mem = mem, .offset = offset};
}

#endif
