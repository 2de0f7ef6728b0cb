/* cycles.c: a program that opens and closes a device for ever does not grow: neither in memory nor
 * in open files. Each cycle loads the module, opens the device, computes, and closes it all.
 * EBRO_TEST_FULL: a thousand cycles. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "ops/ops.h"
#include "tests/harness/devices.h"
#include "tests/harness/process.h"

enum {
    WARM_UP = 20, /* cycles in which drivers fill what they keep */
    CYCLES = 60,
    FULL_CYCLES = 1000,
    N = 1000,
    /* What an allocator may waste by chance; and a cycle. */
    SLACK = 2 << 20,
    SLACK_PER_CYCLE = 512,
    /* More where a processor compiles the kernels: what LLVM tears into its heap levels off (Mesa
     * 22.3: 4 MiB after 60 cycles, 9 after 1000). A stream that stays behind costs 20 KiB a cycle.
     */
    SLACK_OF_COMPILER = 16 << 20
};

/* Blocks that the library and the backend hold. */
static int64_t blocks;

static void *counted(void *user, void *p, size_t n) {
    (void)user;
    if (n == 0) {
        blocks -= p != NULL;
        free(p);
        return NULL;
    }
    void *q = realloc(p, n);
    blocks += p == NULL && q != NULL;
    return q;
}

/* The norm of a row of twos is a row of ones; without the norm it is what it was. */
static void work(struct ebro_device *d, bool computes) {
    static float x[N], y[N];
    struct eb_stream s;
    ebro_mem *mem[2];
    ebro_error err = {0};
    const float want = computes ? 1.0f : 2.0f;
    for (int i = 0; i < N; i++) x[i] = 2.0f;
    memset(y, 0x5a, sizeof y);
    test_ok(eb_stream_open(d, &s, &err), &err);
    for (int i = 0; i < 2; i++)
        test_ok(eb_mem_alloc(d, sizeof x, EBRO_MEM_DEVICE, &mem[i], &err), &err);
    const ebro_rms_norm_args norm = {
        .size = sizeof norm,
        .x = {.mem = mem[0], .stride = N, .dtype = EBRO_F32},
        .out = {.mem = mem[1], .stride = N, .dtype = EBRO_F32},
        .n_rows = 1,
        .n_cols = N,
    };
    const ebro_span in = {.mem = mem[0]}, out = {.mem = mem[1]};
    test_ok(eb_upload(&s, in, x, sizeof x, &err), &err);
    if (computes) {
        test_ok(eb_op_rms_norm(&s, &norm, &err), &err);
    } else {
        test_ok(eb_copy(&s, out, in, sizeof x, &err), &err);
    }
    test_ok(eb_download(&s, y, out, sizeof y, &err), &err);
    test_ok(eb_stream_sync(&s, &err), &err);
    for (int i = 0; i < N; i++)
        if (!(y[i] > want * 0.9999f && y[i] < want * 1.0001f))
            fail_msg("y[%d] = %g, not %g", i, (double)y[i], (double)want);
    for (int i = 0; i < 2; i++) eb_mem_free(d, &mem[i]);
    eb_stream_close(&s);
}

static void cycle(bool computes) {
    const ebro_runtime_options o = {
        .size = sizeof o, .module_dir = test_module_dir(), .realloc = counted};
    ebro_runtime *rt = NULL;
    ebro_device *d = NULL;
    ebro_error err = {0};
    test_ok(ebro_runtime_open(&o, &rt, &err), &err);
    test_ok(ebro_device_open(rt, test_device(), &d, &err), &err);
    work(d, computes);
    ebro_device_close(&d);
    ebro_runtime_close(&rt);
    assert_int_equal(blocks, 0);
}

static void check_cycles(bool computes, double slack) {
    int n = getenv("EBRO_TEST_FULL") != NULL ? FULL_CYCLES : CYCLES;
    for (int i = 0; i < WARM_UP; i++) cycle(computes);
    int64_t before = test_resident_bytes(0);
    uint32_t files = test_open_files(0);
    for (int i = 0; i < n; i++) cycle(computes);
    int64_t grown = test_resident_bytes(0) - before;
    print_message("%d cycles: %lld bytes more, %d files more\n", n, (long long)grown,
                  (int)test_open_files(0) - (int)files);
    assert_int_equal(test_open_files(0), files);
    if (!test_is_sanitized())
        test_le((double)grown, slack + (double)n * SLACK_PER_CYCLE, "growth over %d cycles", n);
}

static void cycles_that_copy_leave_nothing(void **state) {
    (void)state;
    check_cycles(false, SLACK);
}

static void cycles_that_compute_leave_nothing(void **state) {
    (void)state;
    check_cycles(true, test_device_is_emulated() ? SLACK_OF_COMPILER : SLACK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cycles_that_copy_leave_nothing),
        cmocka_unit_test(cycles_that_compute_leave_nothing),
    };
    return test_on_devices("cycles", tests, NULL, NULL);
}
