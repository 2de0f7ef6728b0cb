/* faults.c: what the CUDA backend says where something is wrong, before the emulated driver of
 * tests/simt: an old driver, a GPU that no image fits, memory that runs out, a kernel that breaks
 * the device. The call says so, the process and other devices go on, nothing is left behind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"
#include "tests/harness/bench.h"

enum { N = 1000, BYTES = N * sizeof(float) };

static ebro_runtime *rt;

static int open_runtime(void **state) {
    (void)state;
    const ebro_runtime_options o = {.size = sizeof o, .module_dir = test_module_dir()};
    ebro_error err = {0};
    test_ok(ebro_runtime_open(&o, &rt, &err), &err);
    return 0;
}

static int close_runtime(void **state) {
    static const char *const settings[] = {"EBRO_SIMT_BYTES", "EBRO_SIMT_DRIVER", "EBRO_SIMT_FAIL",
                                           "EBRO_SIMT_GENERATION", "EBRO_SIMT_NO_IMAGE"};
    (void)state;
    ebro_runtime_close(&rt);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) unsetenv(settings[i]);
    return 0;
}

static ebro_device *open_device(const char *name) {
    ebro_device *d = NULL;
    ebro_error err = {0};
    test_ok(ebro_device_open(rt, name, &d, &err), &err);
    return d;
}

static ebro_span at(ebro_mem *mem) {
    return (ebro_span){.mem = mem};
}

/* Up, the norm in place, down: ones, for all elements are the same. */
static int32_t compute(struct ebro_device *d, ebro_error *err) {
    float x[N], y[N];
    struct eb_stream s;
    ebro_mem *mem = NULL;
    for (int i = 0; i < N; i++) x[i] = 2.0f;
    int32_t st = eb_stream_open(d, &s, err);
    if (st != EBRO_OK) return st;
    st = eb_mem_alloc(d, BYTES, EBRO_MEM_DEVICE, &mem, err);
    const ebro_mat m = {.mem = mem, .stride = N, .dtype = EBRO_F32};
    const ebro_rms_norm_args norm = {
        .size = sizeof norm, .x = m, .out = m, .n_rows = 1, .n_cols = N};
    if (st == EBRO_OK) st = eb_upload(&s, at(mem), x, BYTES, err);
    if (st == EBRO_OK) st = eb_op_rms_norm(&s, &norm, err);
    if (st == EBRO_OK) st = eb_download(&s, y, at(mem), BYTES, err);
    if (st == EBRO_OK) st = eb_stream_sync(&s, err);
    for (int i = 0; i < N && st == EBRO_OK; i++) assert_true(y[i] > 0.9999f && y[i] < 1.0001f);
    eb_mem_free(d, &mem);
    eb_stream_close(&s);
    return st;
}

static uint64_t free_bytes(struct ebro_device *d) {
    ebro_caps caps;
    d->be->device_caps(d->dev, &caps);
    return caps.free_bytes;
}

/* ---- opening ---------------------------------------------------------------------------- */

static void an_old_driver_is_no_device(void **state) {
    (void)state;
    ebro_device *d = NULL;
    ebro_error err = {0};
    setenv("EBRO_SIMT_DRIVER", "12040", 1);
    test_fails(ebro_device_open(rt, "CUDA0", &d, &err), EBRO_NO_DEVICE, &err,
               "the driver serves CUDA 12.4");
    assert_null(d);
}

static void a_gpu_without_an_image_is_named(void **state) {
    (void)state;
    ebro_device *d = NULL;
    ebro_error err = {0};
    setenv("EBRO_SIMT_NO_IMAGE", "1", 1);
    setenv("EBRO_SIMT_GENERATION", "6.1", 1);
    test_fails(ebro_device_open(rt, "CUDA0", &d, &err), EBRO_UNSUPPORTED, &err,
               "emulated GPU, waves of 32 is of generation 6.1");
    assert_null(d);
    unsetenv("EBRO_SIMT_NO_IMAGE");
    unsetenv("EBRO_SIMT_GENERATION");
    d = open_device("CUDA0");
    test_ok(compute(d, &err), &err);
    ebro_device_close(&d);
}

static void more_devices_than_there_are(void **state) {
    (void)state;
    ebro_device *d = NULL;
    ebro_error err = {0};
    test_fails(ebro_device_open(rt, "CUDA7", &d, &err), EBRO_NO_DEVICE, &err, "CUDA7");
}

/* ---- memory ----------------------------------------------------------------------------- */

static void an_allocation_names_what_is_free(void **state) {
    (void)state;
    ebro_error err = {0};
    ebro_mem *mem = NULL;
    ebro_device *d = open_device("CUDA0");
    setenv("EBRO_SIMT_BYTES", "1000000", 1);
    test_fails(d->be->mem_alloc(d->dev, 1000001, EBRO_MEM_DEVICE, &mem, &err), EBRO_NOMEM_DEVICE,
               &err, "has no 1000001 bytes: 1000000 of 1000000 are free");
    assert_null(mem);
    test_ok(compute(d, &err), &err);
    assert_int_equal(free_bytes(d), 1000000);
    ebro_device_close(&d);
}

/* A model that does not fit: whatever was placed before is given back. */
static void a_model_that_does_not_fit_leaves_nothing(void **state) {
    (void)state;
    struct test_bench b;
    ebro_engine *engine = NULL;
    ebro_error err = {0};
    uint32_t n_failed = 0;
    const ebro_engine_options o = {
        .size = sizeof o, .n_ctx = 64, .n_chunk = 16, .keep = EBRO_KEEP_NONE};
    test_bench_open(&b, "CUDA0");
    for (uint64_t bytes = 10000;; bytes *= 2) {
        char text[32];
        snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
        setenv("EBRO_SIMT_BYTES", text, 1);
        uint64_t before = free_bytes(b.device);
        int32_t st = ebro_engine_open(b.model, b.device, &o, &engine, &err);
        if (st == EBRO_OK) break;
        n_failed++;
        assert_int_equal(st, EBRO_NOMEM_DEVICE);
        assert_non_null(strstr(err.text, "are free"));
        assert_null(engine);
        assert_int_equal(free_bytes(b.device), before);
    }
    assert_in_range(n_failed, 2, 30);
    ebro_engine_close(&engine);
    test_bench_close(&b);
}

/* ---- loss ------------------------------------------------------------------------------- */

static void a_kernel_breaks_the_device(void **state) {
    (void)state;
    ebro_error err = {0};
    ebro_device *d = open_device("CUDA0"), *cpu = open_device("CPU");
    test_ok(compute(d, &err), &err);
    setenv("EBRO_SIMT_FAIL", "1", 1);
    test_fails(compute(d, &err), EBRO_DEVICE_LOST, &err, "was lost");
    unsetenv("EBRO_SIMT_FAIL");
    /* It stays lost; others go on; opened again it works. */
    test_fails(compute(d, &err), EBRO_DEVICE_LOST, &err, "CUDA0 was lost");
    test_ok(compute(cpu, &err), &err);
    ebro_device_close(&d);
    d = open_device("CUDA0");
    test_ok(compute(d, &err), &err);
    ebro_device_close(&d);
    ebro_device_close(&cpu);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_runtime, close_runtime)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_old_driver_is_no_device),
        TEST(a_gpu_without_an_image_is_named),
        TEST(more_devices_than_there_are),
        TEST(an_allocation_names_what_is_free),
        TEST(a_model_that_does_not_fit_leaves_nothing),
        TEST(a_kernel_breaks_the_device),
    };
    return cmocka_run_group_tests_name("cuda/faults", tests, NULL, NULL);
}
