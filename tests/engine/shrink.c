/* shrink.c: weight files that another program cuts while a model uses them: an error that names the
 * file, at every moment from opening the model to a step, and nothing of the step is kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/micro.h"
#include "tests/harness/test.h"

enum { N_TOKENS = 6 };

/* Cuts a file at call number cut_at (from 0) of a progress callback. */
struct cutter {
    const char *path;
    off_t length;
    size_t n_calls, cut_at;
};

static int32_t cut(void *user, const char *label, float fraction) {
    struct cutter *c = user;
    (void)label, (void)fraction;
    if (c->n_calls++ == c->cut_at) assert_int_equal(truncate(c->path, c->length), 0);
    return 0;
}

struct bench {
    ebro_runtime *rt;
    ebro_device *device;
    ebro_model *model;
    ebro_engine *engine;
    ebro_seq *seq;
};

static void open_device(struct bench *b, uint32_t n_threads) {
    ebro_error err;
    *b = (struct bench){0};
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    ebro_device_settings ds = {.size = sizeof ds, .n_threads = n_threads};
    test_ok(ebro_guard_install(&err), &err);
    test_ok(ebro_runtime_open(&ro, &b->rt, &err), &err);
    test_ok(ebro_device_open_with(b->rt, "cpu", &ds, &b->device, &err), &err);
}

static int32_t open_model(struct bench *b, const char *dir, struct cutter *c, ebro_error *err) {
    ebro_model_options o = {.size = sizeof o, .path = dir};
    if (c != NULL) o.progress = cut, o.progress_user = c;
    return ebro_model_open(b->rt, &o, &b->model, err);
}

static int32_t open_engine(struct bench *b, struct cutter *c, ebro_error *err) {
    ebro_engine_options o = {.size = sizeof o, .n_ctx = 64, .n_chunk = N_TOKENS, .cache_dtype = -1};
    if (c != NULL) o.progress = cut, o.progress_user = c;
    int32_t st = ebro_engine_open(b->model, b->device, &o, &b->engine, err);
    if (st == EBRO_OK) test_ok(ebro_seq_create(b->engine, &b->seq, err), err);
    return st;
}

static void close_model(struct bench *b) {
    ebro_engine_close(&b->engine);
    ebro_model_close(&b->model);
}

static void close_bench(struct bench *b) {
    ebro_error err;
    close_model(b);
    ebro_device_close(&b->device);
    ebro_runtime_close(&b->rt);
    test_ok(ebro_guard_remove(&err), &err);
}

static int32_t step(struct bench *b, ebro_error *err) {
    int32_t ids[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) ids[i] = i * 37 % 256;
    test_ok(ebro_seq_append(b->seq, ids, N_TOKENS, 1, err), err);
    return ebro_engine_step(b->engine, err);
}

static void copy_logits(const struct bench *b, float *out, size_t vocab) {
    ebro_error err;
    const float *logits = NULL;
    uint32_t rows = 0;
    test_ok(ebro_seq_logits(b->seq, &logits, &rows, &err), &err);
    assert_int_equal(rows, 1);
    memcpy(out, logits, vocab * sizeof *out);
}

/* A file of the folder with its bytes, to be cut and restored. */
struct weights {
    const char *dir, *name;
    char path[600];
    void *data;
    size_t bytes;
};

static void keep(struct weights *w, const char *from, const char *dir, const char *name) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", from, name);
    w->data = test_read_file(path, &w->bytes);
    snprintf(w->path, sizeof w->path, "%s/%s", dir, name);
    w->dir = dir;
    w->name = name;
}

static void restore(const struct weights *w) {
    test_write_file(w->dir, w->name, w->data, w->bytes);
}

static void check_cut_step(struct bench *b, const struct weights *w, size_t length, size_t vocab,
                           const float *want) {
    ebro_error err;
    float *got = malloc(vocab * sizeof *got);
    restore(w);
    test_ok(open_model(b, w->dir, NULL, &err), &err);
    test_ok(open_engine(b, NULL, &err), &err);
    test_ok(step(b, &err), &err);
    copy_logits(b, got, vocab);
    assert_memory_equal(got, want, vocab * sizeof *got);
    assert_int_equal(truncate(w->path, (off_t)length), 0);
    int32_t st = step(b, &err);
    test_fails(st, EBRO_IO, &err, "shrank while it was in use");
    assert_non_null(strstr(err.text, w->name));
    assert_int_equal(ebro_seq_length(b->seq), N_TOKENS);
    test_fails(ebro_engine_step(b->engine, &err), EBRO_INVALID, &err, "destroy");
    /* The model stays unusable, whatever becomes of the file. */
    ebro_engine_close(&b->engine);
    restore(w);
    test_fails(open_engine(b, NULL, &err), EBRO_IO, &err, w->name);
    assert_null(b->engine);
    close_model(b);
    free(got);
}

/* The demo model is large enough for several threads to be at work. */
static void steps_of_many_threads(void **state) {
    (void)state;
    static const char *const small_files[] = {"config.json", "generation_config.json",
                                              "tokenizer_config.json", "tiktoken.model"};
    char *dir = test_tmp_dir();
    struct weights w;
    ebro_error err;
    ebro_model_info info;
    keep(&w, test_demo_dir(), dir, "model.safetensors");
    restore(&w);
    for (size_t i = 0; i < sizeof small_files / sizeof small_files[0]; i++) {
        struct weights small;
        keep(&small, test_demo_dir(), dir, small_files[i]);
        restore(&small);
        free(small.data);
    }
    for (uint32_t n_threads = 1; n_threads <= 4; n_threads += 3) {
        struct bench b, other;
        open_device(&b, n_threads);
        open_device(&other, 1);
        test_ok(open_model(&other, test_demo_dir(), NULL, &err), &err);
        test_ok(open_engine(&other, NULL, &err), &err);
        test_ok(open_model(&b, dir, NULL, &err), &err);
        ebro_model_get_info(b.model, &info);
        float *want = malloc(info.vocab * sizeof *want);
        test_ok(open_engine(&b, NULL, &err), &err);
        test_ok(step(&b, &err), &err);
        copy_logits(&b, want, info.vocab);
        close_model(&b);
        const size_t lengths[] = {0, w.bytes / 3, w.bytes / 2 + 4097, w.bytes - 5000};
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
            check_cut_step(&b, &w, lengths[i], info.vocab, want);
        /* Another model of the process has not noticed. */
        test_ok(step(&other, &err), &err);
        free(want);
        close_bench(&other);
        close_bench(&b);
    }
    free(w.data);
    test_tmp_remove(&dir);
}

/* At each call of the progress callbacks, one of three shards is cut. */
static void while_opening(void **state) {
    (void)state;
    static const char name[] = "model-00002-of-00003.safetensors";
    const struct micro_spec spec = {.seed = 5, .n_shards = 3, .shift = 1, .ffn = MICRO_MOE};
    char *dir = test_tmp_dir();
    struct weights w;
    struct bench b;
    ebro_error err;
    size_t n_model = 0, n_engine = 0, n_shrank = 0;
    micro_write(dir, &spec);
    keep(&w, dir, dir, name);
    open_device(&b, 2);
    for (size_t i = 0; i <= n_model + n_engine; i++) {
        /* The first round counts the calls. */
        struct cutter c = {.path = w.path, .length = (off_t)(w.bytes / 2), .cut_at = i - 1};
        restore(&w);
        int32_t st = open_model(&b, dir, &c, &err);
        if (i == 0) n_model = c.n_calls;
        if (st == EBRO_OK) st = open_engine(&b, &c, &err);
        if (i == 0) n_engine = c.n_calls - n_model;
        if (i == 0) test_ok(st, &err);
        if (st == EBRO_OK && i > 0) {
            /* Cut after the last look at it. */
            assert_int_equal(i, n_model + n_engine);
            st = step(&b, &err);
        }
        if (i > 0) {
            /* Before it was mapped it is a short file. */
            assert_true(st == EBRO_IO || st == EBRO_FORMAT);
            assert_non_null(strstr(err.text, name));
            assert_int_equal(st == EBRO_IO, strstr(err.text, "shrank while") != NULL);
            n_shrank += st == EBRO_IO;
        }
        close_model(&b);
    }
    print_message("%zu of %zu cuts came after the file was mapped\n", n_shrank, n_model + n_engine);
    assert_true(n_shrank >= 4);
    close_bench(&b);
    free(w.data);
    test_tmp_remove(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_of_many_threads),
        cmocka_unit_test(while_opening),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
