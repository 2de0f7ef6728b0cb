/* random.c: the public calls in random order over a few sequences that share too little memory:
 * each sequence must always hold its own tokens, and give the logits that a fresh engine gives for
 * them alone: to the byte in strict mode. What is reused, forked or rewound is the sequence's own
 * (HD-08, HD-10, HD-12, HD-13). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "tests/harness/bench.h"
#include "tests/harness/devices.h"
#include "tests/harness/test.h"

enum { N_CTX = 200, N_CHUNK = 32, N_SEQS = 5, MOST_ROWS = 4, MOST_BYTES = 1 << 20 };

/* Under sanitizers and on an imitated device, where an operation takes ten times as long, fewer. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { N_OPERATIONS = 1000 };
#else
enum { N_OPERATIONS = 10000 };
#endif

/* A sequence, and what it must hold. */
struct live {
    ebro_seq *s; /* NULL: none */
    int32_t ids[N_CTX];
    uint32_t n;
};

struct world {
    struct test_bench at;
    struct test_rng rng;
    char *dir;
    ebro_engine *e, *solo;
    struct live live[N_SEQS];
    struct live past;  /* a chain that others begin like; has no sequence */
    int32_t cancel_in; /* calls of the progress callback until one cancels; below 0: none does */
    uint8_t *stream;   /* [MOST_BYTES] */
    size_t n_stream, n_read;
    uint32_t n_checked, n_short, n_cancelled;
    bool slow; /* an imitated device */
};

static int set_up(void **state) {
    static struct world w;
    w = (struct world){.rng = {test_seed()}, .stream = malloc(MOST_BYTES), .dir = test_tmp_dir()};
    assert_non_null(w.stream);
    test_bench_open(&w.at, test_device());
    w.slow = test_device_is_emulated();
    *state = &w;
    return 0;
}

static int tear_down(void **state) {
    struct world *w = *state;
    ebro_engine_close(&w->e); /* there where a test has failed */
    ebro_engine_close(&w->solo);
    test_bench_close(&w->at);
    test_tmp_remove(&w->dir);
    free(w->stream);
    return 0;
}

static uint32_t below(struct world *w, uint32_t n) {
    return (uint32_t)(test_u64(&w->rng) % n);
}

static void spell(struct world *w, int32_t *ids, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)below(w, MICRO_RANKS);
}

/* True where a call worked, false where memory was short for it or it was cancelled. */
static bool worked(struct world *w, int32_t st, const ebro_error *err) {
    w->n_short += st == EBRO_NOMEM_DEVICE;
    w->n_cancelled += st == EBRO_CANCELLED;
    if (st != EBRO_NOMEM_DEVICE && st != EBRO_CANCELLED) test_ok(st, err);
    return st == EBRO_OK;
}

static void audit(const struct world *w) {
    const char *wrong = eb_manager_audit(&w->e->mem);
    if (wrong != NULL) fail_msg("%s", wrong);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        const struct live *l = &w->live[i];
        uint32_t n = 0;
        if (l->s == NULL) continue;
        const int32_t *ids = ebro_seq_tokens(l->s, &n);
        assert_int_equal(n, l->n);
        assert_int_equal(ebro_seq_length(l->s) + ebro_seq_pending(l->s), n);
        if (n > 0) assert_memory_equal(ids, l->ids, n * sizeof *ids);
        assert_int_equal(ebro_seq_status(l->s), EBRO_OK);
    }
    ebro_memory m = {.size = sizeof m};
    ebro_engine_get_memory(w->e, &m);
    assert_true(m.peak_bytes <= m.budget_bytes && m.taken_bytes <= m.budget_bytes);
}

/* ---- operations: on a sequence that is there ---------------------------------------------- */

static int32_t tell(void *user, const char *label, float fraction) {
    struct world *w = user;
    (void)label, (void)fraction;
    return w->cancel_in >= 0 && w->cancel_in-- == 0;
}

/* A step that was cancelled leaves every sequence where it was. For none is memory short: what was
 * appended has its room. */
static void step(struct world *w) {
    uint32_t before[N_SEQS];
    ebro_error err;
    for (uint32_t i = 0; i < N_SEQS; i++) before[i] = ebro_seq_length(w->live[i].s);
    int32_t st = ebro_engine_step(w->e, &err);
    assert_int_not_equal(st, EBRO_NOMEM_DEVICE);
    if (worked(w, st, &err)) return;
    for (uint32_t i = 0; i < N_SEQS; i++)
        assert_int_equal(ebro_seq_length(w->live[i].s), before[i]);
}

static bool append(struct world *w, struct live *l, uint32_t n, uint32_t n_logits) {
    ebro_error err;
    spell(w, l->ids + l->n, n);
    if (!worked(w, ebro_seq_append(l->s, l->ids + l->n, n, n_logits, &err), &err)) return false;
    l->n += n;
    return true;
}

static void op_append(struct world *w, struct live *l) {
    uint32_t room = N_CTX - l->n, n = 1 + below(w, below(w, 2) ? 3 : 80);
    ebro_error err;
    if (n <= room)
        append(w, l, n, below(w, 3) ? 0 : 1 + below(w, n < MOST_ROWS ? n : MOST_ROWS));
    else
        test_fails(ebro_seq_append(l->s, w->past.ids, n, 0, &err), EBRO_INVALID, &err, "context");
}

/* One in four is cancelled, before it or before one of its layers. */
static void op_step(struct world *w, struct live *l) {
    (void)l;
    if (below(w, 4) == 0) w->cancel_in = (int32_t)below(w, 6);
    step(w);
    w->cancel_in = -1;
}

static void op_rewind(struct world *w, struct live *l) {
    ebro_error err;
    uint32_t to = below(w, l->n + 1);
    if (worked(w, ebro_seq_rewind(l->s, to, &err), &err)) l->n = to;
}

static void op_keep(struct world *w, struct live *l) {
    ebro_error err;
    uint32_t at = 1 + below(w, N_CTX);
    bool can = at >= ebro_seq_length(l->s) && at <= l->n;
    int32_t st = ebro_seq_keep(l->s, at, &err);
    if (can)
        test_ok(st, &err);
    else
        test_fails(st, EBRO_INVALID, &err, NULL);
}

static void op_destroy(struct world *w, struct live *l) {
    ebro_seq_destroy(&l->s);
    if (below(w, 8) == 0) ebro_engine_forget(w->e);
}

/* ---- operations that make a sequence: NULL where all places are taken ----------------------- */

static struct live *place(struct world *w) {
    uint32_t i = 0;
    while (i < N_SEQS && w->live[i].s != NULL) i++;
    return i < N_SEQS ? &w->live[i] : NULL;
}

/* Begins like another chain, mostly. */
static void create(struct world *w, struct live *l) {
    const struct live *like = below(w, 3) > 0 ? &w->past : &w->live[below(w, N_SEQS)];
    ebro_error err;
    uint32_t shared = below(w, 4) > 0 ? below(w, like->n + 1) : 0;
    uint32_t own = 1 + below(w, 30), n = shared + own < N_CTX ? shared + own : N_CTX;
    test_ok(ebro_seq_create(w->e, &l->s, &err), &err);
    l->n = 0;
    memmove(l->ids, like->ids, shared * sizeof *l->ids);
    spell(w, l->ids + shared, n - shared);
    if (worked(w, ebro_seq_append(l->s, l->ids, n, 0, &err), &err)) l->n = n;
    if (below(w, 20) == 0) spell(w, w->past.ids, w->past.n);
}

static void op_fork(struct world *w, struct live *l) {
    ebro_error err;
    struct live *to = place(w);
    if (to == NULL) return;
    if (!worked(w, ebro_seq_fork(l->s, &to->s, &err), &err)) return;
    memcpy(to->ids, l->ids, sizeof to->ids);
    to->n = l->n;
}

static int32_t write_stream(void *user, const void *data, size_t bytes) {
    struct world *w = user;
    assert_true(bytes <= MOST_BYTES - w->n_stream);
    memcpy(w->stream + w->n_stream, data, bytes);
    w->n_stream += bytes;
    return 0;
}

static int64_t read_stream(void *user, void *data, size_t bytes) {
    struct world *w = user;
    size_t left = w->n_stream - w->n_read, n = bytes < left ? bytes : left;
    memcpy(data, w->stream + w->n_read, n);
    w->n_read += n;
    return (int64_t)n;
}

/* Out and in again, through a stream or a file; a damaged stream makes nothing. */
static void op_move(struct world *w, struct live *l) {
    ebro_error err;
    char path[600];
    struct live *to = place(w);
    if (to == NULL) return;
    snprintf(path, sizeof path, "%s/sequence", w->dir);
    w->n_stream = w->n_read = 0;
    bool in_file = below(w, 2) > 0, damaged = !in_file && below(w, 3) == 0;
    test_ok(in_file ? ebro_seq_save(l->s, path, NULL, NULL, &err)
                    : ebro_seq_export(l->s, write_stream, w, NULL, NULL, &err),
            &err);
    if (damaged) w->stream[below(w, (uint32_t)w->n_stream)] ^= 4;
    int32_t st = in_file ? ebro_seq_load(w->e, path, &to->s, NULL, &err)
                         : ebro_seq_import(w->e, read_stream, w, &to->s, NULL, &err);
    assert_true(!damaged || st != EBRO_OK);
    if (!damaged && worked(w, st, &err)) {
        memcpy(to->ids, l->ids, sizeof to->ids);
        to->n = l->n;
    }
}

/* ---- the check ---------------------------------------------------------------------------- */

/* A few tokens more, and the logits of all or the last of them. */
static void check(struct world *w, struct live *l, bool strict) {
    uint32_t n = 1 + below(w, MOST_ROWS), rows = 1 + below(w, n), n_got = 0, n_want = 0;
    const float *got = NULL, *want = NULL;
    size_t n_values = (size_t)rows * w->at.model->config.vocab_size;
    ebro_seq *fresh = NULL;
    ebro_error err;
    if (n > N_CTX - l->n || !append(w, l, n, rows)) return;
    while (ebro_seq_pending(l->s) > 0) step(w);
    test_ok(ebro_seq_create(w->solo, &fresh, &err), &err);
    test_ok(ebro_seq_append(fresh, l->ids, l->n, rows, &err), &err);
    while (ebro_seq_pending(fresh) > 0) test_ok(ebro_engine_step(w->solo, &err), &err);
    test_ok(ebro_seq_logits(l->s, &got, &n_got, &err), &err);
    test_ok(ebro_seq_logits(fresh, &want, &n_want, &err), &err);
    assert_true(n_got == rows && n_want == rows);
    if (strict) assert_memory_equal(got, want, n_values * sizeof *got);
    double most = 0, scale = 0;
    for (size_t i = 0; i < n_values; i++) {
        most = fmax(most, fabs((double)got[i] - (double)want[i]));
        scale = fmax(scale, fabs((double)want[i]));
    }
    /* Both computed in f32 by the same device: sums in another order alone. */
    test_le(most / scale, 1e-4, "%u tokens", l->n);
    ebro_seq_destroy(&fresh);
    w->n_checked++;
}

/* ---- the tests ---------------------------------------------------------------------------- */

static void (*const operations[])(struct world *, struct live *) = {
    op_append, op_append, op_append, op_step,    op_step, op_step, op_step,
    op_rewind, op_keep,   op_keep,   op_destroy, op_fork, op_move, op_move};

/* n_full: full sequences that memory is for. */
static void open_engines(struct world *w, const ebro_engine_options *o, uint32_t n_full) {
    ebro_error err;
    struct eb_layout layout;
    struct eb_shape shape = eb_engine_shape(w->at.model, EBRO_F32);
    test_ok(eb_layout_plan(&shape, &layout, &err), &err);
    ebro_engine_options tight = *o, wide = *o;
    tight.memory_bytes = eb_manager_estimate(&layout, n_full, N_CTX);
    tight.max_seqs = N_SEQS;
    tight.progress = tell;
    tight.progress_user = w;
    wide.keep = EBRO_KEEP_NONE;
    w->cancel_in = -1;
    test_ok(ebro_engine_open(w->at.model, w->at.device, &tight, &w->e, &err), &err);
    test_ok(ebro_engine_open(w->at.model, w->at.device, &wide, &w->solo, &err), &err);
}

static void close_engines(struct world *w) {
    ebro_engine_close(&w->e);
    ebro_engine_close(&w->solo);
}

/* The run went where it should: everything that this test is for has happened in it. */
static bool went_everywhere(const struct world *w, const ebro_engine_options *o, uint32_t n_full,
                            uint32_t n) {
    ebro_memory m = {.size = sizeof m};
    ebro_engine_get_memory(w->e, &m);
    return w->n_checked > n / 30 && w->n_cancelled > 0 && (n_full > 2 || w->n_short > 0) &&
           m.evictions > 0 && m.copied_pages > 0 && m.reused_tokens > 0 &&
           (o->host_bytes == 0 || m.host_loads > 0);
}

static void operate(struct world *w, bool strict) {
    enum { N_KINDS = sizeof operations / sizeof *operations };
    struct live *l = &w->live[below(w, N_SEQS)];
    if (l->s == NULL)
        create(w, l);
    else if (l->n > 0 && below(w, 8) == 0)
        check(w, l, strict);
    else
        operations[below(w, N_KINDS)](w, l);
    audit(w);
}

/* n operations, and where chance has left something out, more of them until it has happened:
 * where little is kept, the first reused token may take some thousand. */
static void run(struct world *w, const ebro_engine_options *o, uint32_t n_full) {
    close_engines(w); /* of a test that failed */
    for (uint32_t i = 0; i < N_SEQS; i++) w->live[i].s = NULL;
    open_engines(w, o, n_full);
    w->past.n = N_CTX * 3 / 4;
    spell(w, w->past.ids, w->past.n);
    w->n_checked = w->n_short = w->n_cancelled = 0;
    uint32_t n = w->slow && N_OPERATIONS > 1000 ? 1000 : N_OPERATIONS, done = 0;
    while (done < n || (done < 100 * n && !went_everywhere(w, o, n_full, n))) {
        operate(w, o->strict != 0);
        done++;
    }
    ebro_memory m = {.size = sizeof m};
    ebro_engine_get_memory(w->e, &m);
    print_message(
        "%u operations: %u checked, %u short of memory, %u cancelled, %llu of %llu "
        "reused, %llu evicted\n",
        done, w->n_checked, w->n_short, w->n_cancelled, (unsigned long long)m.reused_tokens,
        (unsigned long long)m.prompt_tokens, (unsigned long long)m.evictions);
    assert_true(went_everywhere(w, o, n_full, n));
    close_engines(w);
}

static const ebro_engine_options usual = {
    .size = sizeof usual, .n_ctx = N_CTX, .n_chunk = N_CHUNK, .cache_dtype = EBRO_F32};

static void to_the_byte(void **state) {
    test_device_needs(EBRO_CAP_STRICT);
    ebro_engine_options o = usual;
    o.strict = 1;
    run(*state, &o, 8);
    o.evict = EBRO_EVICT_COST;
    o.keep_interval = 20;
    run(*state, &o, 2);
}

static void through_the_host(void **state) {
    ebro_engine_options o = usual;
    o.host_bytes = 2 << 20;
    o.keep_interval = 50;
    run(*state, &o, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(to_the_byte),
                                       cmocka_unit_test(through_the_host)};
    return test_on_fast_devices("engine/random", tests, set_up, tear_down);
}
