/* rig.h: a runtime with every device that is listed, for tests of what each backend owes. For
 * cmocka's group fixtures. */
#ifndef EB_TEST_CONTRACT_RIG_H
#define EB_TEST_CONTRACT_RIG_H

#include "device/device.h"
#include "tests/harness/test.h"

enum { MAX_DEVICES = 32 };

static ebro_runtime *rt;
static ebro_device_info devices[MAX_DEVICES];
static uint32_t n_devices;
static struct test_rng rng;

static int rig_open(void **state) {
    (void)state;
    const ebro_runtime_options o = {.size = sizeof o, .module_dir = test_module_dir()};
    ebro_error err = {0};
    rng.s = test_seed();
    test_ok(ebro_runtime_open(&o, &rt, &err), &err);
    test_ok(ebro_device_list(rt, devices, MAX_DEVICES, &n_devices, &err), &err);
    assert_in_range(n_devices, 1, MAX_DEVICES);
    for (uint32_t i = 0; i < n_devices; i++) print_message("device %s\n", devices[i].name);
    return 0;
}

static int rig_close(void **state) {
    (void)state;
    ebro_runtime_close(&rt);
    return 0;
}

/* Runs a check on every device, each freshly opened with a stream. */
static void on_every_device(void (*check)(struct ebro_device *, struct eb_stream *)) {
    for (uint32_t i = 0; i < n_devices; i++) {
        ebro_device *d = NULL;
        struct eb_stream s;
        ebro_error err = {0};
        test_ok(ebro_device_open(rt, devices[i].name, &d, &err), &err);
        test_ok(eb_stream_open(d, &s, &err), &err);
        check(d, &s);
        eb_stream_close(&s);
        assert_null(s.impl);
        eb_stream_close(&s);
        ebro_device_close(&d);
        assert_null(d);
    }
}

static void fill_random(struct test_rng *r, unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++) p[i] = (unsigned char)(test_u64(r) >> 56);
}

static ebro_span at(ebro_mem *mem, uint64_t offset) {
    return (ebro_span){.mem = mem, .offset = offset};
}

#endif
