/* test.h: what every test program shares: finding data, comparing numbers, building temporary
 * folders. Unit tests themselves are cmocka's. */
#ifndef EB_TEST_H
#define EB_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ebro/ebro.h"
#include "model/safetensors.h"

/* Folders: set at configure time, each with an environment variable that overrides it.
 * EBRO_TEST_GOLDEN (tests/golden), EBRO_TEST_MODULES (the build folder), EBRO_TEST_MODELS (a folder
 * with the tiny models; NULL when not set). */
const char *test_golden_dir(void);
const char *test_module_dir(void);
const char *test_models_dir(void);
const char *test_demo_dir(void);

/* A safetensors file of tests/golden, opened for the life of the process; fails the test if absent
 * or broken. */
struct test_golden {
    struct eb_bytes bytes;
    struct eb_safetensors st;
};
struct test_golden *test_golden_open(const char *name);
/* A tensor by printf name; fails the test when missing. */
const struct eb_tensor *test_tensor(const struct test_golden *g, const char *fmt, ...);
/* NULL when missing. */
const struct eb_tensor *test_tensor_opt(const struct test_golden *g, const char *fmt, ...);
uint64_t test_count(const struct eb_tensor *t);
/* New arrays (free with free()): any of F32 F64 F16 BF16 widened; I32. */
float *test_f32(const struct eb_tensor *t);
double *test_f64(const struct eb_tensor *t);
int32_t *test_i32(const struct eb_tensor *t);

/* sqrt(sum (a - b)^2 / sum b^2); infinite when a holds a non-finite value. */
double test_rel_fro(const float *a, const double *ref, uint64_t n);
/* max |a - ref| / max |ref|; infinite when a holds a non-finite value. */
double test_rel_max(const float *a, const double *ref, uint64_t n);
/* Fails with figures unless value <= bound. */
#define test_le(value, bound, ...) test_le_at(__FILE__, __LINE__, (value), (bound), __VA_ARGS__)
void test_le_at(const char *file, int line, double value, double bound, const char *fmt, ...);
/* Fails with the error's text unless st == EBRO_OK. */
#define test_ok(st, err) test_status_at(__FILE__, __LINE__, (st), EBRO_OK, (err), NULL)
/* Fails unless st == want and the text holds `part` (NULL: any text). */
#define test_fails(st, want, err, part) \
    test_status_at(__FILE__, __LINE__, (st), (want), (err), (part))
void test_status_at(const char *file, int line, int32_t st, int32_t want, const ebro_error *err,
                    const char *part);

/* Reproducible random numbers. */
struct test_rng {
    uint64_t s;
};
/* A new seed, which it prints; EBRO_TEST_SEED repeats one. */
uint64_t test_seed(void);
uint64_t test_u64(struct test_rng *r);
float test_uniform(struct test_rng *r, float lo, float hi);
float test_normal(struct test_rng *r);

/* A new temporary folder, removed with its files by test_tmp_remove. */
char *test_tmp_dir(void);
void test_tmp_remove(char **dir);
void test_write_file(const char *dir, const char *name, const void *data, size_t bytes);
void *test_read_file(const char *path, size_t *bytes);

#endif
