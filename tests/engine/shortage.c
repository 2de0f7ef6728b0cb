/* shortage.c: steps for which memory is short: of a device that fails any one of its calls, nothing
 * is lost and the same bytes come out in the end; and a second state that is there once for several
 * sequences comes to each of them. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "tests/harness/bench.h"
#include "tests/harness/devices.h"
#include "tests/harness/test.h"

enum { N_CTX = 200, CHUNK = 32, N_PROMPT = 50, N_SINGLE = 3 };

struct fixture {
    struct test_bench at;
    uint32_t vocab;
};

/* ---- a device that fails ----------------------------------------------------------------- */

/* The device's own table, and one that fails call number fail_at (from 0), once. */
static struct {
    const ebro_backend *real;
    ebro_backend table;
    size_t n_calls, fail_at;
} faulty;

static int32_t fails(ebro_error *err) {
    if (faulty.n_calls++ != faulty.fail_at) return EBRO_OK;
    return eb_fail(err, EBRO_NOMEM_DEVICE, "the test has no memory for this call");
}

#define FAILING(N, name)                                                                          \
    static int32_t failing_##name(ebro_stream *s, const ebro_##name##_args *a, ebro_error *err) { \
        int32_t st = fails(err);                                                                  \
        return st == EBRO_OK ? faulty.real->name(s, a, err) : st;                                 \
    }
EBRO_OPS(FAILING)
#undef FAILING

static int32_t failing_copy(ebro_stream *s, const ebro_copy_args *a, ebro_error *err) {
    int32_t st = fails(err);
    return st == EBRO_OK ? faulty.real->copy(s, a, err) : st;
}

static int32_t failing_submit(ebro_stream *s, uint64_t *ticket, ebro_error *err) {
    int32_t st = fails(err);
    return st == EBRO_OK ? faulty.real->submit(s, ticket, err) : st;
}

static int32_t failing_launch(ebro_stream *s, ebro_graph *g, ebro_error *err) {
    int32_t st = fails(err);
    return st == EBRO_OK ? faulty.real->graph_launch(s, g, err) : st;
}

static void begin_faults(struct ebro_device *d, size_t fail_at) {
    faulty.real = d->be;
    faulty.table = *d->be;
#define FAILING(N, name) \
    if (faulty.table.name != NULL) faulty.table.name = failing_##name;
    EBRO_OPS(FAILING)
#undef FAILING
    faulty.table.copy = failing_copy;
    faulty.table.submit = failing_submit;
    if (faulty.table.graph_launch != NULL) faulty.table.graph_launch = failing_launch;
    faulty.n_calls = 0;
    faulty.fail_at = fail_at;
    d->be = &faulty.table;
}

static void end_faults(struct ebro_device *d) {
    d->be = faulty.real;
}

/* ---- running ----------------------------------------------------------------------------- */

static int set_up(void **state) {
    static struct fixture f;
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

static int32_t go_on(void *user, const char *label, float fraction) {
    (void)user, (void)label, (void)fraction;
    return 0;
}

static ebro_engine *open_engine(struct fixture *f, const ebro_engine_options *o) {
    ebro_error err;
    ebro_engine *e = NULL;
    test_ok(ebro_engine_open(f->at.model, f->at.device, o, &e, &err), &err);
    return e;
}

static ebro_seq *start(ebro_engine *e, int32_t first, uint32_t n) {
    ebro_error err;
    ebro_seq *s = NULL;
    int32_t ids[N_CTX];
    for (uint32_t i = 0; i < n; i++) ids[i] = (first + (int32_t)i * 7) % MICRO_RANKS;
    test_ok(ebro_seq_create(e, &s, &err), &err);
    test_ok(ebro_seq_append(s, ids, n, 0, &err), &err);
    return s;
}

/* A step; where it fails the sequences are as before, but for states that were written in place. */
static size_t step(ebro_engine *e, ebro_seq *const *seqs, bool in_place) {
    ebro_error err;
    uint32_t done[2], held[2];
    for (int i = 0; i < 2; i++) {
        done[i] = ebro_seq_length(seqs[i]);
        held[i] = done[i] + ebro_seq_pending(seqs[i]);
    }
    int32_t st = ebro_engine_step(e, &err);
    const char *wrong = eb_manager_audit(&e->mem);
    if (wrong != NULL) fail_msg("%s", wrong);
    if (st == EBRO_OK) return 0;
    test_fails(st, EBRO_NOMEM_DEVICE, &err, "the test has no memory for this call");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ebro_seq_status(seqs[i]), EBRO_OK);
        assert_int_equal(ebro_seq_length(seqs[i]) + ebro_seq_pending(seqs[i]), held[i]);
        if (in_place)
            assert_true(ebro_seq_length(seqs[i]) <= done[i]);
        else
            assert_int_equal(ebro_seq_length(seqs[i]), done[i]);
    }
    return 1;
}

/* A prompt and a short one, then single tokens of both. Returns the calls that the device got. */
static size_t run(struct fixture *f, const ebro_engine_options *o, size_t fail_at, float *out) {
    ebro_error err;
    ebro_engine *e = open_engine(f, o);
    ebro_seq *seqs[2] = {start(e, 3, N_PROMPT), start(e, 100, 2)};
    size_t n_failed = 0;
    begin_faults(f->at.device, fail_at);
    for (int32_t part = 0; part <= N_SINGLE; part++) {
        for (int i = 0; i < 2 && part > 0; i++) {
            int32_t id = 5 * part + i;
            test_ok(ebro_seq_append(seqs[i], &id, 1, 0, &err), &err);
        }
        while (ebro_seq_pending(seqs[0]) + ebro_seq_pending(seqs[1]) > 0)
            n_failed += step(e, seqs, o->progress == NULL || part > 0);
        const float *logits = NULL;
        uint32_t rows = 0;
        for (int i = 0; i < 2; i++, out += f->vocab) {
            test_ok(ebro_seq_logits(seqs[i], &logits, &rows, &err), &err);
            assert_int_equal(rows, 1);
            memcpy(out, logits, f->vocab * sizeof *out);
        }
    }
    end_faults(f->at.device);
    assert_int_equal(n_failed, fail_at < faulty.n_calls);
    ebro_engine_close(&e);
    return faulty.n_calls;
}

static void every_call(struct fixture *f, const ebro_engine_options *o) {
    size_t n = 2 * (N_SINGLE + 1) * f->vocab;
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    size_t n_calls = run(f, o, SIZE_MAX, want);
    for (size_t at = 0; at < n_calls; at++) {
        memset(got, 0x55, n * sizeof *got);
        run(f, o, at, got);
        if (memcmp(got, want, n * sizeof *got) != 0)
            fail_msg("other logits after call %zu of %zu failed", at, n_calls);
    }
    print_message("%zu calls failed in turn\n", n_calls);
    assert_true(n_calls > 50);
    free(want);
    free(got);
}

static const ebro_engine_options usual = {.size = sizeof usual,
                                          .n_ctx = N_CTX,
                                          .n_chunk = CHUNK,
                                          .cache_dtype = EBRO_F32,
                                          .strict = 1,
                                          .max_seqs = 2};

static void with_a_callback(void **state) {
    test_device_needs(EBRO_CAP_STRICT);
    ebro_engine_options o = usual;
    o.progress = go_on;
    every_call(*state, &o);
}

static void in_place(void **state) {
    test_device_needs(EBRO_CAP_STRICT);
    every_call(*state, &usual);
}

static void nothing_kept(void **state) {
    test_device_needs(EBRO_CAP_STRICT);
    ebro_engine_options o = usual;
    o.keep = EBRO_KEEP_NONE;
    every_call(*state, &o);
}

/* ---- what is admitted --------------------------------------------------------------------- */

static struct eb_layout layout_of(const struct fixture *f) {
    struct eb_shape shape = eb_engine_shape(f->at.model, EBRO_F32);
    struct eb_layout l;
    ebro_error err;
    test_ok(eb_layout_plan(&shape, &l, &err), &err);
    return l;
}

static void drain(ebro_engine *e, const ebro_seq *s) {
    ebro_error err;
    while (ebro_seq_pending(s) > 0) test_ok(ebro_engine_step(e, &err), &err);
}

/* The budget holds exactly two pages of tokens, with the second state of a step that can be
 * cancelled, or without one. */
static void to_the_brim(void **state) {
    struct fixture *f = *state;
    struct eb_layout l = layout_of(f);
    ebro_error err;
    for (uint32_t n_states = 1; n_states <= 2; n_states++) {
        ebro_engine_options o = usual;
        o.strict = 0;
        o.progress = n_states == 2 ? go_on : NULL;
        o.memory_bytes = (2 + n_states * l.slot_blocks) * l.block_bytes;
        ebro_engine *e = open_engine(f, &o);
        ebro_seq *s = start(e, 3, 2 * l.page_tokens - 5), *t = NULL;
        int32_t ids[6] = {1, 2, 3, 4, 5, 6};
        test_fails(ebro_seq_append(s, ids, 6, 0, &err), EBRO_NOMEM_DEVICE, &err, "bytes of cache");
        drain(e, s);
        test_fails(ebro_seq_append(s, ids, 6, 0, &err), EBRO_NOMEM_DEVICE, &err, "bytes of cache");
        test_ok(ebro_seq_append(s, ids, 5, 0, &err), &err);
        drain(e, s);
        /* A twin needs a state of its own, and would copy the page, where rows were written. */
        test_ok(ebro_seq_rewind(s, 2 * l.page_tokens - 5, &err), &err);
        drain(e, s);
        test_ok(ebro_seq_fork(s, &t, &err), &err);
        test_fails(ebro_seq_append(t, ids, 1, 0, &err), EBRO_NOMEM_DEVICE, &err,
                   "beside 1 other needs");
        ebro_seq_destroy(&s);
        test_ok(ebro_seq_append(t, ids, 1, 0, &err), &err);
        drain(e, t);
        ebro_engine_close(&e);
    }
}

/* A page that only a snapshot holds, whose state a sequence stands at: it goes where another needs
 * it. */
static void behind_a_live_state(void **state) {
    struct fixture *f = *state;
    struct eb_layout l = layout_of(f);
    ebro_error err;
    ebro_engine_options o = usual;
    o.strict = 0;
    o.keep = EBRO_KEEP_PROMPT_END;
    o.memory_bytes = 2 * (1 + l.slot_blocks) * l.block_bytes;
    ebro_engine *e = open_engine(f, &o);
    ebro_seq *s = start(e, 3, 10);
    drain(e, s);
    for (int i = 0; i < 2; i++) {
        int32_t other = 250;
        test_ok(ebro_seq_rewind(s, 9, &err), &err);
        assert_int_equal(ebro_seq_pending(s), 0);
        if (i > 0) break;
        test_ok(ebro_seq_append(s, &other, 1, 0, &err), &err);
        drain(e, s);
    }
    ebro_memory m = {.size = sizeof m};
    ebro_engine_get_memory(e, &m);
    assert_int_equal(m.kept_page_bytes, l.block_bytes);
    assert_int_equal(m.kept_state_bytes, 0);
    ebro_seq *t = start(e, 100, 10);
    drain(e, t);
    ebro_engine_close(&e);
}

/* ---- one second state for two ------------------------------------------------------------- */

/* One generates for as long as it likes; the prompt of the other is read all the same. */
static void turns(void **state) {
    struct fixture *f = *state;
    struct eb_layout l = layout_of(f);
    ebro_error err;
    ebro_engine_options o = usual;
    o.strict = 0;
    o.keep = EBRO_KEEP_NONE;
    o.progress = go_on;
    uint64_t blocks = eb_layout_pages(&l, 40) + eb_layout_pages(&l, 100) + 3ull * l.slot_blocks;
    o.memory_bytes = blocks * l.block_bytes;
    ebro_engine *e = open_engine(f, &o);
    ebro_seq *a = start(e, 3, 10);
    while (ebro_seq_pending(a) > 0) test_ok(ebro_engine_step(e, &err), &err);
    ebro_seq *b = start(e, 9, 100);
    uint32_t n_steps = 0, n_alone = 0;
    for (; ebro_seq_pending(b) > 0; n_steps++) {
        int32_t id = 5;
        assert_true(n_steps < 20);
        if (ebro_seq_pending(a) == 0) test_ok(ebro_seq_append(a, &id, 1, 0, &err), &err);
        uint32_t before = ebro_seq_length(a) + ebro_seq_length(b);
        test_ok(ebro_engine_step(e, &err), &err);
        assert_true(ebro_seq_length(a) + ebro_seq_length(b) > before);
        n_alone += ebro_seq_pending(a) > 0;
    }
    /* Together while the prompt has no state yet, then each in its turn: 32 and 32, 32, 4 tokens.
     */
    assert_int_equal(n_alone, 3);
    assert_int_equal(n_steps, 7);
    ebro_engine_close(&e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_a_callback),     cmocka_unit_test(in_place),
        cmocka_unit_test(nothing_kept),        cmocka_unit_test(to_the_brim),
        cmocka_unit_test(behind_a_live_state), cmocka_unit_test(turns)};
    return test_on_fast_devices("engine/shortage", tests, set_up, tear_down);
}
