/* opening.h: a runtime and ways to open a model with it, for the tests that open many. For cmocka's
 * group fixtures. */
#ifndef EB_TEST_OPENING_H
#define EB_TEST_OPENING_H

#include "model/model.h"

#include <stdio.h>

#include "tests/harness/micro.h"
#include "tests/harness/test.h"

static ebro_runtime *rt;
static char last_log[1024];

static void on_log(void *user, int32_t level, const char *text) {
    (void)level;
    snprintf(user, 1024, "%s", text);
}

static int open_runtime(void **state) {
    (void)state;
    const ebro_runtime_options o = {.size = sizeof o,
                                    .log = on_log,
                                    .log_user = last_log,
                                    .log_level = EBRO_LOG_INFO,
                                    .module_dir = test_module_dir()};
    ebro_error err = {0};
    test_ok(ebro_runtime_open(&o, &rt, &err), &err);
    return 0;
}

static int close_runtime(void **state) {
    (void)state;
    ebro_runtime_close(&rt);
    return 0;
}

static inline int32_t open_path(const char *path, ebro_model **out, ebro_error *err) {
    const ebro_model_options o = {.size = sizeof o, .path = path};
    return ebro_model_open(rt, &o, out, err);
}

static inline int32_t open_files(const struct micro_files *f, ebro_model **out, ebro_error *err) {
    const ebro_model_options o = {.size = sizeof o, .files = f->files, .n_files = f->n};
    return ebro_model_open(rt, &o, out, err);
}

#endif
