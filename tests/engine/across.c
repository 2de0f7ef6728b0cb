/* across.c: a sequence that was saved on one device goes on with another: to and from the CPU, for
 * each device that is there, with each type of cache. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/bench.h"
#include "tests/harness/devices.h"
#include "tests/harness/test.h"

enum { N_CTX = 400, N_DONE = 300, N_PENDING = 5, N_MORE = 8 };

struct fixture {
    struct test_bench here, cpu;
    struct test_rng rng;
    char *dir;
};

static int set_up(void **state) {
    static struct fixture f;
    f = (struct fixture){.rng = {test_seed()}, .dir = test_tmp_dir()};
    test_bench_open(&f.here, test_device());
    test_bench_open(&f.cpu, "CPU");
    *state = &f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    test_bench_close(&f->here);
    test_bench_close(&f->cpu);
    test_tmp_remove(&f->dir);
    return 0;
}

static ebro_engine *open_engine(const struct test_bench *b, int32_t dtype) {
    ebro_error err;
    ebro_engine *e = NULL;
    const ebro_engine_options o = {
        .size = sizeof o, .n_ctx = N_CTX, .n_chunk = 64, .cache_dtype = dtype};
    test_ok(ebro_engine_open(b->model, b->device, &o, &e, &err), &err);
    return e;
}

static void append(ebro_engine *e, ebro_seq *s, const int32_t *ids, uint32_t n, bool evaluate) {
    ebro_error err;
    test_ok(ebro_seq_append(s, ids, n, 0, &err), &err);
    while (evaluate && ebro_seq_pending(s) > 0) test_ok(ebro_engine_step(e, &err), &err);
}

/* Saved on one, loaded on the other, and gone on with on both. */
static double distance(struct fixture *f, const struct test_bench *from,
                       const struct test_bench *to, int32_t dtype) {
    ebro_error err;
    char path[600];
    int32_t ids[N_CTX];
    ebro_seq *s = NULL, *r = NULL;
    ebro_engine *a = open_engine(from, dtype), *b = open_engine(to, dtype);
    for (uint32_t i = 0; i < N_CTX; i++) ids[i] = (int32_t)(test_u64(&f->rng) % MICRO_RANKS);
    snprintf(path, sizeof path, "%s/sequence", f->dir);
    test_ok(ebro_seq_create(a, &s, &err), &err);
    append(a, s, ids, N_DONE, true);
    append(a, s, ids + N_DONE, N_PENDING, false);
    test_ok(ebro_seq_save(s, path, NULL, NULL, &err), &err);
    ebro_transfer t = {.size = sizeof t};
    test_ok(ebro_seq_load(b, path, &r, &t, &err), &err);
    assert_int_equal(t.n_evaluated, N_DONE);
    assert_int_equal(t.n_tokens, N_DONE + N_PENDING);
    assert_int_equal(t.converted, 0);
    append(a, s, ids + N_DONE + N_PENDING, N_MORE, true);
    append(b, r, ids + N_DONE + N_PENDING, N_MORE, true);
    const float *want = NULL, *got = NULL;
    uint32_t rows = 0;
    test_ok(ebro_seq_logits(s, &want, &rows, &err), &err);
    test_ok(ebro_seq_logits(r, &got, &rows, &err), &err);
    double most = 0, scale = 0;
    for (uint32_t i = 0; i < MICRO_VOCAB; i++) {
        /* a value that is not finite must not get lost */
        double off = fabs((double)got[i] - (double)want[i]);
        most = isfinite(off) ? fmax(most, off) : INFINITY;
        scale = fmax(scale, fabs((double)want[i]));
    }
    ebro_engine_close(&a);
    ebro_engine_close(&b);
    return most / scale;
}

/* In f32 sums in another order alone. In 16 bit the few rows that each device adds of its own may
 * be rounded the other way: off by 2^-8 (bf16) or 2^-11 (f16), and through one softmax. */
static void there_and_back(void **state) {
    struct fixture *f = *state;
    static const int32_t dtypes[] = {EBRO_F32, EBRO_F16, EBRO_BF16};
    static const double bounds[] = {1e-4, 5e-4, 4e-3};
    for (int i = 0; i < 3; i++) {
        test_le(distance(f, &f->here, &f->cpu, dtypes[i]), bounds[i], "to the CPU, %d", i);
        test_le(distance(f, &f->cpu, &f->here, dtypes[i]), bounds[i], "from the CPU, %d", i);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(there_and_back)};
    return test_on_devices("engine/across", tests, set_up, tear_down);
}
