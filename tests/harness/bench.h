/* bench.h: what tests of an engine start from: a runtime, a device, and the first micro model open
 * on it. */
#ifndef EB_TEST_BENCH_H
#define EB_TEST_BENCH_H

#include "tests/harness/micro.h"
#include "tests/harness/test.h"

struct test_bench {
    ebro_runtime *rt;
    ebro_device *device;
    ebro_model *model;
    struct micro_files files; /* the model's bytes */
};

/* Fails the test where a part does not open. `device`: as ebro_device_open. */
void test_bench_open(struct test_bench *b, const char *device);
void test_bench_close(struct test_bench *b);

#endif
