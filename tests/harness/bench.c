/* bench.c: see bench.h. */
#include "tests/harness/bench.h"

void test_bench_open(struct test_bench *b, const char *device) {
    ebro_error err;
    *b = (struct test_bench){0};
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&ro, &b->rt, &err), &err);
    test_ok(ebro_device_open(b->rt, device, &b->device, &err), &err);
    b->files = micro_make(&micro_cases[0].spec);
    ebro_model_options mo = {.size = sizeof mo, .files = b->files.files, .n_files = b->files.n};
    test_ok(ebro_model_open(b->rt, &mo, &b->model, &err), &err);
}

void test_bench_close(struct test_bench *b) {
    ebro_model_close(&b->model);
    ebro_device_close(&b->device);
    ebro_runtime_close(&b->rt);
    micro_files_free(&b->files);
}
