/* cancel.c: progress and cancelling of every long call: what is told, that nothing is left behind,
 * and that a cancelled prefill goes on from its last whole chunk to the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "tests/harness/failing.h"
#include "tests/harness/micro.h"
#include "tests/harness/test.h"

enum { N_TOKENS = 70, CHUNK = 16 };

/* Cancels call number cancel_at (from 0). */
struct watch {
    size_t n_calls, cancel_at;
    float last;
};

static int32_t tell(void *user, const char *label, float fraction) {
    struct watch *w = user;
    assert_true(label != NULL && label[0] != '\0');
    assert_true(fraction >= 0.0f && fraction <= 1.0f);
    assert_true(fraction >= w->last);
    w->last = fraction;
    return w->n_calls++ == w->cancel_at;
}

static const struct micro_spec specs[] = {
    {.seed = 3, .n_shards = 3},
    {.seed = 4, .family = MICRO_K3, .ffn = MICRO_LATENT, .attn_res_block = 2, .shift = 1},
};

struct bench {
    struct failing host;
    ebro_runtime *rt;
    ebro_device *device;
    ebro_model *model;
    struct micro_files files;
};

static void open_bench(struct bench *b, const struct micro_spec *spec) {
    ebro_error err;
    *b = (struct bench){.host = {.fail_at = SIZE_MAX}};
    ebro_runtime_options ro = {.size = sizeof ro,
                               .module_dir = test_module_dir(),
                               .realloc = failing_realloc,
                               .realloc_user = &b->host};
    test_ok(ebro_runtime_open(&ro, &b->rt, &err), &err);
    test_ok(ebro_device_open(b->rt, "cpu", &b->device, &err), &err);
    b->files = micro_make(spec);
}

static int32_t open_model(struct bench *b, struct watch *w, ebro_error *err) {
    ebro_model_options o = {.size = sizeof o,
                            .files = b->files.files,
                            .n_files = b->files.n,
                            .progress = tell,
                            .progress_user = w};
    return ebro_model_open(b->rt, &o, &b->model, err);
}

static int32_t open_engine(struct bench *b, struct watch *w, ebro_engine **out, ebro_error *err) {
    ebro_engine_options o = {.size = sizeof o,
                             .keep = EBRO_KEEP_NONE,
                             .n_ctx = 100,
                             .n_chunk = CHUNK,
                             .cache_dtype = EBRO_F32,
                             .progress = w != NULL ? tell : NULL,
                             .progress_user = w};
    return ebro_engine_open(b->model, b->device, &o, out, err);
}

static void close_bench(struct bench *b) {
    ebro_model_close(&b->model);
    ebro_device_close(&b->device);
    ebro_runtime_close(&b->rt);
    assert_int_equal(b->host.n_held, 0);
    micro_files_free(&b->files);
}

static void opening(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct bench b;
        ebro_error err;
        ebro_engine *engine = NULL;
        size_t held;
        int32_t st = EBRO_CANCELLED;
        open_bench(&b, &specs[i]);
        held = b.host.n_held;
        size_t n = 0;
        for (; st != EBRO_OK; n++) {
            struct watch w = {.cancel_at = n};
            st = open_model(&b, &w, &err);
            if (st == EBRO_OK) {
                assert_int_equal(w.n_calls, n);
                assert_true(w.last == 1.0f);
                break;
            }
            test_fails(st, EBRO_CANCELLED, &err, "cancelled by the caller");
            assert_int_equal(w.n_calls, n + 1);
            assert_null(b.model);
            assert_int_equal(b.host.n_held, held);
        }
        assert_true(n >= 4);
        held = b.host.n_held;
        st = EBRO_CANCELLED;
        for (n = 0; st != EBRO_OK; n++) {
            struct watch w = {.cancel_at = n};
            st = open_engine(&b, &w, &engine, &err);
            if (st == EBRO_OK) {
                assert_int_equal(w.n_calls, n);
                assert_true(w.last == 1.0f);
                break;
            }
            test_fails(st, EBRO_CANCELLED, &err, "cancelled by the caller");
            assert_null(engine);
            assert_int_equal(b.host.n_held, held);
        }
        assert_true(n >= 2);
        ebro_engine_close(&engine);
        close_bench(&b);
    }
}

static void append(ebro_seq *seq) {
    ebro_error err;
    int32_t ids[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) ids[i] = i * 37 % 256;
    test_ok(ebro_seq_append(seq, ids, N_TOKENS, 3, &err), &err);
}

static void copy_logits(const ebro_seq *seq, float *out) {
    ebro_error err;
    const float *logits = NULL;
    uint32_t rows = 0;
    test_ok(ebro_seq_logits(seq, &logits, &rows, &err), &err);
    assert_int_equal(rows, 3);
    memcpy(out, logits, 3 * MICRO_VOCAB * sizeof *out);
}

/* The prefill and two decoded tokens, cancelled once at every call there is. */
static void stepping(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct bench b;
        ebro_error err;
        float want[3 * MICRO_VOCAB], got[3 * MICRO_VOCAB];
        size_t n_calls = 0;
        open_bench(&b, &specs[i]);
        struct watch w = {.cancel_at = SIZE_MAX};
        test_ok(open_model(&b, &w, &err), &err);
        for (size_t round = 0; round == 0 || round <= n_calls; round++) {
            ebro_engine *engine = NULL;
            ebro_seq *seq = NULL;
            w = (struct watch){.cancel_at = SIZE_MAX};
            /* The first round shows what comes out without a callback. */
            test_ok(open_engine(&b, round == 0 ? NULL : &w, &engine, &err), &err);
            w = (struct watch){.cancel_at = round < 2 ? SIZE_MAX : round - 2};
            test_ok(ebro_seq_create(engine, &seq, &err), &err);
            append(seq);
            size_t cancelled = 0;
            for (int part = 0; part < 3; part++) {
                int32_t one = 7 + part;
                w.last = 0.0f;
                if (part > 0) test_ok(ebro_seq_append(seq, &one, 1, 0, &err), &err);
                while (ebro_seq_pending(seq) > 0) {
                    uint32_t done = ebro_seq_length(seq);
                    int32_t st = ebro_engine_step(engine, &err);
                    if (st == EBRO_OK) continue;
                    test_fails(st, EBRO_CANCELLED, &err, "cancelled by the caller");
                    assert_int_equal(ebro_seq_length(seq), done);
                    assert_true(part > 0 || done % CHUNK == 0);
                    w.last = 0.0f;
                    cancelled++;
                }
                if (part == 0) copy_logits(seq, round == 0 ? want : got);
                if (part == 0 && round > 0) assert_memory_equal(got, want, sizeof got);
            }
            const float *logits = NULL;
            uint32_t rows = 0;
            static float last[MICRO_VOCAB];
            test_ok(ebro_seq_logits(seq, &logits, &rows, &err), &err);
            if (round == 0) memcpy(last, logits, sizeof last);
            assert_memory_equal(last, logits, sizeof last);
            if (round == 1) n_calls = w.n_calls + 1;
            if (round == 0) n_calls = 1;
            assert_int_equal(cancelled, round < 2 ? 0 : 1);
            ebro_seq_destroy(&seq);
            ebro_engine_close(&engine);
        }
        /* Four whole chunks and one of 6 rows, four layers each; two single tokens. */
        assert_int_equal(n_calls, 5 * 4 + 2 + 1);
        close_bench(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening),
        cmocka_unit_test(stepping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
