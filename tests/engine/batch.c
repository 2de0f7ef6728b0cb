/* batch.c: several sequences at once: each must come out as it does alone, whatever runs beside it
 * (HD-07), to the byte in strict mode (HD-04). Reuse, forks and rewinds are random.c's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "tests/harness/bench.h"
#include "tests/harness/devices.h"
#include "tests/harness/test.h"

enum { N_CTX = 600, VOCAB = MICRO_RANKS };

struct fixture {
    struct test_bench at;
    struct test_rng rng;
    uint32_t vocab;
};

static int set_up(void **state) {
    static struct fixture f;
    f.rng.s = test_seed();
    test_bench_open(&f.at, test_device());
    f.vocab = f.at.model->config.vocab_size;
    *state = &f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    test_bench_close(&f->at);
    return 0;
}

static ebro_engine_options usual(uint32_t max_seqs) {
    return (ebro_engine_options){.size = sizeof(ebro_engine_options),
                                 .n_ctx = N_CTX,
                                 .n_chunk = 64,
                                 .cache_dtype = EBRO_F32,
                                 .max_seqs = max_seqs,
                                 .keep = EBRO_KEEP_NONE};
}

static ebro_engine *open_engine(struct fixture *f, const ebro_engine_options *o) {
    ebro_error err;
    ebro_engine *e = NULL;
    test_ok(ebro_engine_open(f->at.model, f->at.device, o, &e, &err), &err);
    return e;
}

static void random_ids(struct fixture *f, int32_t *ids, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)(test_u64(&f->rng) % VOCAB);
}

static ebro_seq *start(ebro_engine *e, const int32_t *ids, uint32_t n) {
    ebro_error err;
    ebro_seq *s = NULL;
    test_ok(ebro_seq_create(e, &s, &err), &err);
    if (n > 0) test_ok(ebro_seq_append(s, ids, n, 0, &err), &err);
    return s;
}

static void drain(ebro_engine *e) {
    ebro_error err;
    for (bool more = true; more;) {
        test_ok(ebro_engine_step(e, &err), &err);
        more = false;
        for (struct ebro_seq *s = e->seqs; s != NULL; s = s->next)
            more = more || ebro_seq_pending(s) > 0;
    }
}

static const float *logits_of(const ebro_seq *s) {
    ebro_error err;
    const float *logits = NULL;
    uint32_t rows = 0;
    test_ok(ebro_seq_logits(s, &logits, &rows, &err), &err);
    return logits + (size_t)(rows - 1) * s->engine->model->config.vocab_size;
}

static int32_t greedy(ebro_seq *s) {
    ebro_error err;
    int32_t id = -1;
    ebro_sampling g = {.size = sizeof g};
    test_ok(ebro_seq_sample(s, &g, &id, &err), &err);
    return id;
}

/* Goes on with each sequence's own greedy tokens, all of them in the same steps. */
static void generate(ebro_engine *e, ebro_seq **seqs, uint32_t n_seqs, uint32_t n, int32_t *out) {
    ebro_error err;
    for (uint32_t i = 0; i < n; i++) {
        drain(e);
        for (uint32_t k = 0; k < n_seqs; k++) {
            int32_t id = greedy(seqs[k]);
            if (out != NULL) out[k * n + i] = id;
            test_ok(ebro_seq_append(seqs[k], &id, 1, 0, &err), &err);
        }
    }
    drain(e);
}

/* What a prompt gives alone in an engine of its own: greedy tokens, and logits after them. */
static float *alone(struct fixture *f, const ebro_engine_options *like, const int32_t *ids,
                    uint32_t n, uint32_t n_new, int32_t *out) {
    ebro_engine_options o = *like;
    o.max_seqs = 1;
    o.keep = EBRO_KEEP_NONE;
    o.memory_bytes = 0;
    ebro_engine *e = open_engine(f, &o);
    ebro_seq *s = start(e, ids, n);
    generate(e, &s, 1, n_new, out);
    float *logits = malloc(f->vocab * sizeof *logits);
    memcpy(logits, logits_of(s), f->vocab * sizeof *logits);
    ebro_engine_close(&e);
    return logits;
}

/* Both computed in f32 by the same device: sums in another order alone. */
static void close_to(const float *a, const float *b, uint32_t n, const char *what) {
    double most = 0, scale = 0;
    for (uint32_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i] - b[i]));
        scale = fmax(scale, fabs((double)b[i]));
    }
    test_le(most / scale, 1e-4, "%s", what);
}

enum { MOST = 32, N_NEW = 12 };
static const uint32_t lengths[] = {5, 17, 64, 65, 1, 2, 130, 300};

static uint32_t length(uint32_t k) {
    return lengths[k % 8] + k / 8;
}

/* Prompts of all lengths beside each other, 2, 8 and 32 at once. */
static void check_beside_others(struct fixture *f, int32_t strict) {
    static const uint32_t counts[] = {2, 8, MOST};
    for (size_t c = 0; c < 3; c++) {
        uint32_t n_seqs = counts[c];
        ebro_engine_options o = usual(n_seqs);
        o.strict = strict;
        ebro_engine *e = open_engine(f, &o);
        ebro_seq *seqs[MOST];
        int32_t ids[MOST][400], out[MOST * N_NEW], solo[N_NEW];
        for (uint32_t k = 0; k < n_seqs; k++) {
            random_ids(f, ids[k], length(k));
            seqs[k] = start(e, ids[k], length(k));
        }
        generate(e, seqs, n_seqs, N_NEW, out);
        for (uint32_t k = 0; k < n_seqs; k++) {
            float *want = alone(f, &o, ids[k], length(k), N_NEW, solo);
            assert_memory_equal(out + k * N_NEW, solo, sizeof solo);
            if (strict)
                assert_memory_equal(logits_of(seqs[k]), want, f->vocab * sizeof *want);
            else
                close_to(logits_of(seqs[k]), want, f->vocab, "beside others");
            free(want);
        }
        ebro_engine_close(&e);
    }
}

/* A prompt comes in steps of so many tokens while others go on, one token a step, and nothing that
 * is computed changes by it in strict mode. */
static void limited_prompts(void **state) {
    enum { LONG = 150, LIMIT = 20 };
    struct fixture *f = *state;
    ebro_error err;
    test_device_needs(EBRO_CAP_STRICT);
    ebro_engine_options o = usual(2);
    o.strict = 1;
    ebro_engine *e = open_engine(f, &o);
    int32_t ids[LONG], want_id = -1;
    random_ids(f, ids, LONG);
    float *want = alone(f, &o, ids, LONG, 1, &want_id);
    ebro_seq *decoding = start(e, ids, 3), *prompt = NULL;
    drain(e);
    ebro_engine_limit_prompts(e, LIMIT);
    prompt = start(e, ids, LONG);
    for (uint32_t done = 0; ebro_seq_pending(prompt) > 0;) {
        int32_t id = greedy(decoding);
        test_ok(ebro_seq_append(decoding, &id, 1, 0, &err), &err);
        test_ok(ebro_engine_step(e, &err), &err);
        assert_int_equal(ebro_seq_pending(decoding), 0);
        done += LIMIT;
        assert_int_equal(ebro_seq_length(prompt), done < LONG ? done : LONG);
    }
    int32_t id = greedy(prompt);
    assert_int_equal(id, want_id);
    test_ok(ebro_seq_append(prompt, &id, 1, 0, &err), &err);
    ebro_engine_limit_prompts(e, 0);
    drain(e);
    assert_memory_equal(logits_of(prompt), want, f->vocab * sizeof *want);
    free(want);
    ebro_engine_close(&e);
}

static void beside_others(void **state) {
    check_beside_others(*state, 0);
}

static void beside_others_strict(void **state) {
    test_device_needs(EBRO_CAP_STRICT);
    check_beside_others(*state, 1);
}

/* Four equal prompts: one answer. Then one leaves, and the gap changes nothing. */
static void equal_prompts_and_gaps(void **state) {
    struct fixture *f = *state;
    ebro_engine_options o = usual(4);
    ebro_engine *e = open_engine(f, &o);
    ebro_seq *seqs[4];
    int32_t ids[40], out[4 * N_NEW], more[2 * N_NEW], solo[2 * N_NEW];
    random_ids(f, ids, 40);
    for (int k = 0; k < 4; k++) seqs[k] = start(e, ids, 40);
    generate(e, seqs, 4, N_NEW, out);
    for (int k = 1; k < 4; k++) assert_memory_equal(out, out + k * N_NEW, N_NEW * sizeof *out);
    ebro_seq_destroy(&seqs[1]);
    ebro_seq_destroy(&seqs[3]);
    ebro_seq *left[2] = {seqs[0], seqs[2]};
    generate(e, left, 2, N_NEW, more);
    free(alone(f, &o, ids, 40, 2 * N_NEW, solo));
    for (int k = 0; k < 2; k++)
        assert_memory_equal(more + k * N_NEW, solo + N_NEW, sizeof solo / 2);
    ebro_engine_close(&e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limited_prompts), cmocka_unit_test(beside_others),
        cmocka_unit_test(beside_others_strict), cmocka_unit_test(equal_prompts_and_gaps)};
    return test_on_fast_devices("engine/batch", tests, set_up, tear_down);
}
