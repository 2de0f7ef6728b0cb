/* session.c: a sequence that went out as a stream and came back goes on as if it had stayed (HD-09,
 * HD-15), into engines of other settings too; what is damaged, foreign or too large is refused by
 * name and changes nothing (HD-15 b to e). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "mem/store.h"
#include "tests/harness/failing.h"
#include "tests/harness/micro.h"
#include "tests/harness/test.h"

enum { N_CTX = 600 };

struct fixture {
    struct failing host;
    ebro_runtime *rt;
    ebro_device *device, *plain;
    ebro_model *model, *other;
    struct micro_files files, other_files;
    struct test_rng rng;
    uint32_t vocab;
    char log[4096];
};

static void keep_log(void *user, int32_t level, const char *text) {
    struct fixture *f = user;
    (void)level;
    size_t n = strlen(f->log);
    snprintf(f->log + n, sizeof f->log - n, "%s\n", text);
}

/* One KDA and one MLA layer: a stream of 50 KB. */
static ebro_model *open_model(struct fixture *f, uint64_t seed, struct micro_files *files) {
    ebro_error err;
    ebro_model *m = NULL;
    const struct micro_spec spec = {.seed = seed, .pattern = "KM"};
    *files = micro_make(&spec);
    ebro_model_options mo = {.size = sizeof mo, .files = files->files, .n_files = files->n};
    test_ok(ebro_model_open(f->rt, &mo, &m, &err), &err);
    return m;
}

static int set_up(void **state) {
    ebro_error err;
    static struct fixture f;
    f = (struct fixture){.host = {.fail_at = SIZE_MAX}, .rng = {test_seed()}};
    ebro_runtime_options ro = {.size = sizeof ro,
                               .module_dir = test_module_dir(),
                               .log = keep_log,
                               .log_user = &f,
                               .realloc = failing_realloc,
                               .realloc_user = &f.host};
    test_ok(ebro_runtime_open(&ro, &f.rt, &err), &err);
    ebro_device_settings one = {.size = sizeof one, .n_threads = 1};
    test_ok(ebro_device_open_with(f.rt, "cpu", &one, &f.device, &err), &err);
    ebro_device_settings plain = {.size = sizeof plain, .n_threads = 2, .caps_mask = 0xffff0000u};
    test_ok(ebro_device_open_with(f.rt, "cpu", &plain, &f.plain, &err), &err);
    f.model = open_model(&f, 1, &f.files);
    f.other = open_model(&f, 2, &f.other_files);
    f.vocab = f.model->config.vocab_size;
    *state = &f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    ebro_model_close(&f->model);
    ebro_model_close(&f->other);
    ebro_device_close(&f->device);
    ebro_device_close(&f->plain);
    ebro_runtime_close(&f->rt);
    micro_files_free(&f->files);
    micro_files_free(&f->other_files);
    assert_int_equal(f->host.n_held, 0);
    return 0;
}

static ebro_engine_options usual(void) {
    return (ebro_engine_options){.size = sizeof(ebro_engine_options),
                                 .n_ctx = N_CTX,
                                 .n_chunk = 64,
                                 .cache_dtype = EBRO_F32,
                                 .max_seqs = 3};
}

static ebro_engine *open_engine(ebro_model *model, ebro_device *device,
                                const ebro_engine_options *o) {
    ebro_error err;
    ebro_engine *e = NULL;
    test_ok(ebro_engine_open(model, device, o, &e, &err), &err);
    return e;
}

/* ---- streams in memory -------------------------------------------------------------------- */

struct bytes {
    uint8_t *data;
    size_t n, capacity, at;
    size_t largest;  /* call */
    size_t fail_at;  /* writing beyond this fails; 0: never */
    size_t trickle;  /* reading gives at most so many at once; 0: all */
    bool read_fails; /* at the end, instead of ending */
};

static int32_t write_bytes(void *user, const void *data, size_t n) {
    struct bytes *b = user;
    if (b->fail_at != 0 && b->n + n > b->fail_at) return 1;
    if (b->n + n > b->capacity) {
        b->capacity = 2 * (b->n + n);
        b->data = realloc(b->data, b->capacity);
        assert_non_null(b->data);
    }
    memcpy(b->data + b->n, data, n);
    b->n += n;
    if (n > b->largest) b->largest = n;
    return 0;
}

static int64_t read_bytes(void *user, void *data, size_t n) {
    struct bytes *b = user;
    size_t left = b->n - b->at;
    if (left == 0 && b->read_fails) return -1;
    if (n > left) n = left;
    if (b->trickle != 0 && n > b->trickle) n = b->trickle;
    memcpy(data, b->data + b->at, n);
    b->at += n;
    return (int64_t)n;
}

static const char note[] = "what the application says";

static void export_to(const ebro_seq *s, struct bytes *b, ebro_transfer *t) {
    ebro_error err;
    ebro_export_options o = {
        .size = sizeof o, .application = note, .application_bytes = sizeof note};
    t->size = sizeof *t;
    test_ok(ebro_seq_export(s, write_bytes, b, &o, t, &err), &err);
    assert_int_equal(t->total_bytes, b->n);
}

static ebro_seq *import_from(ebro_engine *e, struct bytes *b, ebro_transfer *t) {
    ebro_error err;
    ebro_seq *s = NULL;
    b->at = 0;
    t->size = sizeof *t;
    test_ok(ebro_seq_import(e, read_bytes, b, &s, t, &err), &err);
    assert_int_equal(b->at, b->n);
    return s;
}

/* ---- sequences ---------------------------------------------------------------------------- */

static void append(struct fixture *f, ebro_seq *s, uint32_t n) {
    ebro_error err;
    int32_t ids[N_CTX];
    for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)(test_u64(&f->rng) % MICRO_RANKS);
    test_ok(ebro_seq_append(s, ids, n, 0, &err), &err);
}

static void drain(ebro_seq *s) {
    ebro_error err;
    while (ebro_seq_pending(s) > 0) test_ok(ebro_engine_step(s->engine, &err), &err);
}

/* A sequence of `done` evaluated tokens and `pending` more. */
static ebro_seq *make(struct fixture *f, ebro_engine *e, uint32_t done, uint32_t pending) {
    ebro_error err;
    ebro_seq *s = NULL;
    test_ok(ebro_seq_create(e, &s, &err), &err);
    if (done > 0) append(f, s, done);
    drain(s);
    if (pending > 0) append(f, s, pending);
    return s;
}

static void audit(ebro_engine *e) {
    const char *wrong = eb_manager_audit(&e->mem);
    if (wrong != NULL) fail_msg("%s", wrong);
}

/* Logits after these tokens, which the sequence has not seen. */
static const float *go_on(ebro_seq *s, const int32_t *ids, uint32_t n) {
    ebro_error err;
    const float *logits = NULL;
    uint32_t rows = 0;
    test_ok(ebro_seq_append(s, ids, n, 0, &err), &err);
    drain(s);
    test_ok(ebro_seq_logits(s, &logits, &rows, &err), &err);
    return logits + (size_t)(rows - 1) * s->engine->model->config.vocab_size;
}

static double distance(const float *a, const float *b, uint32_t n) {
    double most = 0, scale = 0;
    for (uint32_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        scale = fmax(scale, fabs((double)b[i]));
    }
    return most / scale;
}

static const int32_t more[] = {3, 141, 59, 26, 5, 35, 89, 79, 32, 38};
enum { N_MORE = sizeof more / sizeof *more };

/* ---- the tests ---------------------------------------------------------------------------- */

static void check_same(const ebro_seq *a, const ebro_seq *b) {
    uint32_t n = 0, m = 0;
    size_t bytes = 0;
    const int32_t *x = ebro_seq_tokens(a, &n), *y = ebro_seq_tokens(b, &m);
    assert_int_equal(ebro_seq_length(a), ebro_seq_length(b));
    assert_int_equal(ebro_seq_pending(a), ebro_seq_pending(b));
    assert_int_equal(n, m);
    if (n > 0) assert_memory_equal(x, y, n * sizeof *x);
    assert_memory_equal(ebro_seq_application(b, &bytes), note, sizeof note);
    assert_int_equal(bytes, sizeof note);
}

/* In one engine, at the positions where pages and chunks begin and end. */
static void stays_the_same(void **state) {
    struct fixture *f = *state;
    static const uint32_t done[] = {0, 1, 2, 16, 63, 64, 65, 129, 300}, pending[] = {0, 1, 2, 70};
    ebro_engine_options o = usual();
    ebro_engine *e = open_engine(f->model, f->device, &o);
    for (size_t i = 0; i < sizeof done / sizeof *done; i++) {
        for (size_t k = 0; k < sizeof pending / sizeof *pending; k++) {
            struct bytes b = {0}, again = {0};
            ebro_transfer t, u, v;
            ebro_seq *s = make(f, e, done[i], pending[k]);
            export_to(s, &b, &t);
            ebro_seq *r = import_from(e, &b, &u);
            audit(e);
            assert_memory_equal(&t, &u, offsetof(ebro_transfer, converted));
            assert_int_equal(t.n_tokens, done[i] + pending[k]);
            assert_int_equal(t.n_evaluated, done[i]);
            assert_int_equal(t.converted, 0);
            check_same(s, r);
            /* What came back goes out as the same bytes. */
            export_to(r, &again, &v);
            assert_int_equal(again.n, b.n);
            assert_memory_equal(again.data, b.data, b.n);
            ebro_seq_destroy(&r);
            /* One after the other: beside each other they would be cut into other steps. */
            float want[MICRO_VOCAB];
            drain(s);
            memcpy(want, go_on(s, more, N_MORE), sizeof want);
            ebro_seq_destroy(&s);
            ebro_engine_forget(e);
            r = import_from(e, &b, &u);
            drain(r);
            assert_memory_equal(go_on(r, more, N_MORE), want, sizeof want);
            ebro_seq_destroy(&r);
            ebro_engine_forget(e);
            audit(e);
            free(b.data);
            free(again.data);
        }
    }
    ebro_engine_close(&e);
}

/* Another device, dtype and therefore page size. A row of 16 bit is off by 2^-9 (bf16) or 2^-12
 * (f16) and goes through one softmax; the plain code sums in another order. */
static void other_engines(void **state) {
    struct fixture *f = *state;
    static const int32_t dtypes[] = {EBRO_F32, EBRO_F16, EBRO_BF16};
    static const double bounds[] = {1e-4, 5e-3, 3e-2};
    uint32_t page_tokens[3];
    for (int from = 0; from < 3; from++) {
        ebro_engine_options o = usual();
        o.cache_dtype = dtypes[from];
        ebro_engine *e = open_engine(f->model, f->device, &o);
        ebro_seq *s = make(f, e, 200, 3);
        struct bytes b = {0};
        ebro_transfer t, u;
        export_to(s, &b, &t);
        float want[MICRO_VOCAB];
        memcpy(want, go_on(s, more, N_MORE), sizeof want);
        page_tokens[from] = e->layout.page_tokens;
        for (int to = 0; to < 3; to++) {
            o.cache_dtype = dtypes[to];
            o.keep = EBRO_KEEP_NONE;
            o.max_seqs = 1;
            ebro_engine *other = open_engine(f->model, f->plain, &o);
            f->log[0] = '\0';
            b.trickle = 1 + (size_t)(test_u64(&f->rng) % 5000);
            ebro_seq *r = import_from(other, &b, &u);
            assert_int_equal(u.converted, from != to);
            assert_int_equal(u.cache_dtype, dtypes[from]);
            assert_int_equal(u.engine_dtype, dtypes[to]);
            assert_true((strstr(f->log, "this engine has ") != NULL) == (from != to));
            if (from != to) {
                bool rounds = dtypes[to] != EBRO_F32;
                assert_true((strstr(f->log, "rounded, so that results") != NULL) == rounds);
            }
            double bound = bounds[from] > bounds[to] ? bounds[from] : bounds[to];
            test_le(distance(go_on(r, more, N_MORE), want, f->vocab), bound, "dtype %d to %d",
                    dtypes[from], dtypes[to]);
            audit(other);
            ebro_engine_close(&other);
        }
        ebro_engine_close(&e);
        free(b.data);
    }
    assert_int_not_equal(page_tokens[0], page_tokens[1]);
}

/* A later prompt that begins alike goes on from what was imported, and says so. */
static void is_reused(void **state) {
    struct fixture *f = *state;
    ebro_error err;
    ebro_engine_options o = usual();
    ebro_engine *e = open_engine(f->model, f->device, &o), *fresh = NULL;
    ebro_seq *s = make(f, e, 150, 0), *next = NULL;
    struct bytes b = {0};
    ebro_transfer t;
    export_to(s, &b, &t);
    fresh = open_engine(f->model, f->device, &o);
    ebro_seq *r = import_from(fresh, &b, &t);
    ebro_reuse reuse = {.size = sizeof reuse};
    ebro_seq_get_reuse(r, &reuse);
    assert_int_equal(reuse.n_prompt, 150);
    assert_int_equal(reuse.n_reused, 150);
    ebro_seq_destroy(&r);
    int32_t ids[150 + N_MORE];
    memcpy(ids, ebro_seq_tokens(s, NULL), 150 * sizeof *ids);
    memcpy(ids + 150, more, sizeof more);
    test_ok(ebro_seq_create(fresh, &next, &err), &err);
    test_ok(ebro_seq_append(next, ids, 150 + N_MORE, 0, &err), &err);
    ebro_seq_get_reuse(next, &reuse);
    assert_int_equal(reuse.n_reused, 150);
    drain(next);
    const float *got = NULL;
    uint32_t rows = 0;
    test_ok(ebro_seq_logits(next, &got, &rows, &err), &err);
    assert_memory_equal(got, go_on(s, more, N_MORE), f->vocab * sizeof *got);
    ebro_engine_close(&e);
    ebro_engine_close(&fresh);
    free(b.data);
}

/* The import fails with this text, and the engine is as before, but for blocks that were held a
 * while. */
static void refused_with(ebro_engine *e, struct bytes *b, int32_t status, const char *part) {
    ebro_error err;
    ebro_memory before = {.size = sizeof before}, after = {.size = sizeof after};
    ebro_seq *s = (ebro_seq *)(uintptr_t)1;
    ebro_engine_get_memory(e, &before);
    b->at = 0;
    int32_t st = ebro_seq_import(e, read_bytes, b, &s, NULL, &err);
    if (status == EBRO_OK)
        assert_int_not_equal(st, EBRO_OK);
    else
        test_fails(st, status, &err, part);
    assert_null(s);
    ebro_engine_get_memory(e, &after);
    assert_true(after.taken_bytes >= before.taken_bytes && after.peak_bytes >= before.peak_bytes);
    before.taken_bytes = after.taken_bytes;
    before.peak_bytes = after.peak_bytes;
    assert_memory_equal(&before, &after, sizeof before);
}

/* Under sanitizers, where an import takes ten times as long, one in so many. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { EVERY = 11 };
#else
enum { EVERY = 1 };
#endif

/* Every bit of a stream, and every length of it that is too short. */
static void damage(void **state) {
    struct fixture *f = *state;
    ebro_engine_options o = usual();
    ebro_engine *e = open_engine(f->model, f->device, &o);
    ebro_seq *s = make(f, e, 5, 2);
    struct bytes b = {0};
    ebro_transfer t;
    export_to(s, &b, &t);
    size_t n = b.n;
    for (size_t i = 0; i < n * 8; i += EVERY) {
        b.data[i / 8] ^= (uint8_t)(1u << i % 8);
        refused_with(e, &b, EBRO_OK, NULL);
        b.data[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    for (b.n = 0; b.n < n; b.n += EVERY)
        refused_with(e, &b, EBRO_FORMAT, b.n < 8 ? "no stored sequence" : "too early");
    b.read_fails = true;
    for (b.n = 0; b.n < n; b.n += 977) refused_with(e, &b, EBRO_IO, "the sender failed");
    b.read_fails = false;
    b.n = n;
    print_message("%zu flips and %zu lengths refused\n", n * 8 / EVERY, n / EVERY);
    audit(e);
    ebro_seq *r = import_from(e, &b, &t);
    check_same(s, r);
    /* HD-15 e: the part is named. */
    static const char *const names[] = {"tokens", "KDA states", "conv windows", "latent rows",
                                        "application bytes"};
    uint64_t at = EB_STORE_HEADER_BYTES + t.identity_bytes + EB_STORE_SUM_BYTES;
    const uint64_t sizes[] = {t.token_bytes, t.state_bytes, t.window_bytes, t.row_bytes,
                              t.application_bytes};
    ebro_seq_destroy(&r);
    for (int i = 0; i < 5; i++) {
        uint64_t byte = at + test_u64(&f->rng) % sizes[i];
        b.data[byte] ^= 16;
        refused_with(e, &b, EBRO_FORMAT, names[i]);
        b.data[byte] ^= 16;
        at += sizes[i] + EB_STORE_SUM_BYTES;
    }
    ebro_engine_close(&e);
    free(b.data);
}

/* Where only what is kept could make room, a damaged stream makes none, wherever the damage is; a
 * whole one does, through host memory, and comes to the same. */
static void spares_what_is_kept(void **state) {
    struct fixture *f = *state;
    ebro_engine_options o = usual();
    o.cache_dtype = EBRO_F16; /* so that a conversion takes part */
    ebro_engine *e = open_engine(f->model, f->device, &o);
    ebro_seq *s = make(f, e, 200, 0), *r = NULL;
    struct bytes b = {0};
    ebro_transfer t;
    export_to(s, &b, &t);
    ebro_engine_options tight = usual();
    tight.memory_bytes = eb_manager_estimate(&e->layout, 1, 260) * 2;
    ebro_engine *full = open_engine(f->model, f->device, &tight), *roomy = NULL;
    for (int i = 0; i < 20; i++) {
        r = make(f, full, 100, 0);
        ebro_seq_destroy(&r);
    }
    assert_false(eb_manager_has_free(&full->mem, 200));
    for (int i = 0; i < 200; i++) {
        size_t at = (size_t)(test_u64(&f->rng) % b.n);
        b.data[at] ^= 32;
        refused_with(full, &b, EBRO_OK, NULL);
        b.data[at] ^= 32;
    }
    ebro_memory before = {.size = sizeof before}, after = {.size = sizeof after};
    ebro_engine_get_memory(full, &before);
    r = import_from(full, &b, &t);
    ebro_engine_get_memory(full, &after);
    assert_true(after.evictions > before.evictions);
    audit(full);
    o = usual();
    roomy = open_engine(f->model, f->device, &o);
    assert_true(eb_manager_has_free(&roomy->mem, 200));
    ebro_seq *q = import_from(roomy, &b, &t);
    float want[MICRO_VOCAB];
    memcpy(want, go_on(q, more, N_MORE), sizeof want);
    assert_memory_equal(go_on(r, more, N_MORE), want, sizeof want);
    ebro_engine_close(&e);
    ebro_engine_close(&full);
    ebro_engine_close(&roomy);
    free(b.data);
}

static void strangers(void **state) {
    struct fixture *f = *state;
    ebro_error err;
    ebro_engine_options o = usual(), small = usual(), tight = usual();
    ebro_engine *e = open_engine(f->model, f->device, &o);
    ebro_seq *s = make(f, e, 200, 0);
    struct bytes b = {0};
    ebro_transfer t;
    export_to(s, &b, &t);
    ebro_engine *other = open_engine(f->other, f->device, &o);
    refused_with(other, &b, EBRO_UNSUPPORTED, "another model of the same sizes: its fingerprint");
    ebro_engine_close(&other);
    small.n_ctx = 199;
    other = open_engine(f->model, f->device, &small);
    refused_with(other, &b, EBRO_INVALID, "holds 200 tokens, the context has 199");
    ebro_engine_close(&other);
    /* Room for a sequence of 20 tokens: refused with both numbers, also where it is full. */
    tight.memory_bytes = eb_manager_estimate(&e->layout, 1, 20);
    other = open_engine(f->model, f->device, &tight);
    refused_with(other, &b, EBRO_NOMEM_DEVICE, "allowed");
    audit(other);
    ebro_engine_close(&other);
    /* Kept snapshots go for it, live sequences do not. */
    tight.memory_bytes = eb_manager_estimate(&e->layout, 1, 260);
    other = open_engine(f->model, f->device, &tight);
    ebro_seq *r = make(f, other, 150, 0);
    refused_with(other, &b, EBRO_NOMEM_DEVICE, "200 tokens beside 1 other needs");
    ebro_seq_destroy(&r);
    r = import_from(other, &b, &t);
    audit(other);
    ebro_seq *twin = make(f, e, 0, 0);
    go_on(r, more, N_MORE);
    audit(other);
    ebro_seq_destroy(&twin);
    ebro_engine_close(&other);
    /* An engine that is full, and one that wants what the stream has not. */
    ebro_seq *a = make(f, e, 0, 0), *c = make(f, e, 0, 0);
    refused_with(e, &b, EBRO_INVALID, "holds 3 of 3 sequences");
    ebro_seq_destroy(&a);
    ebro_seq_destroy(&c);
    ebro_engine_options expert = usual();
    expert.max_seqs = 1;
    expert.expert_choices = 1;
    other = open_engine(f->model, f->device, &expert);
    refused_with(other, &b, EBRO_INVALID, "expert_choices");
    ebro_engine_close(&other);
    /* A receiver that takes no more. */
    struct bytes full = {.fail_at = b.n / 2};
    test_fails(ebro_seq_export(s, write_bytes, &full, NULL, NULL, &err), EBRO_IO, &err,
               "the receiver did not take");
    test_fails(ebro_seq_export(s, NULL, NULL, NULL, NULL, &err), EBRO_INVALID, &err, "write");
    test_fails(ebro_seq_export(NULL, write_bytes, &full, NULL, NULL, &err), EBRO_INVALID, &err,
               "NULL");
    ebro_export_options bad = {.size = sizeof bad, .application_bytes = 1};
    test_fails(ebro_seq_export(s, write_bytes, &full, &bad, NULL, &err), EBRO_INVALID, &err,
               "application is NULL");
    bad = (ebro_export_options){sizeof bad, note, (size_t)EB_STORE_MOST_APPLICATION + 1};
    test_fails(ebro_seq_export(s, write_bytes, &full, &bad, NULL, &err), EBRO_INVALID, &err,
               "at most");
    test_fails(ebro_seq_import(NULL, read_bytes, &b, &r, NULL, &err), EBRO_INVALID, &err, "NULL");
    test_fails(ebro_seq_import(e, NULL, &b, &r, NULL, &err), EBRO_INVALID, &err, "NULL");
    test_fails(ebro_seq_import(e, read_bytes, &b, NULL, NULL, &err), EBRO_INVALID, &err, "NULL");
    size_t bytes = 1;
    uint32_t n = 1;
    assert_null(ebro_seq_application(NULL, &bytes));
    assert_null(ebro_seq_tokens(NULL, &n));
    assert_int_equal(bytes + n, 0);
    free(full.data);
    ebro_engine_close(&e);
    free(b.data);
}

/* HD-05: S[i][j] = 1000 i + j of every head, and rows that say whose they are, written straight
 * into the blocks, come out at their canonical places; and an import writes them back to theirs. */
static void canonical_places(void **state) {
    struct fixture *f = *state;
    ebro_error err;
    struct micro_files files;
    const struct micro_spec spec = {.seed = 3, .pattern = "KKMKM"};
    enum { N = 100, HEADS = MICRO_KDA_HEADS, DIM = MICRO_KDA_DIM, KDA = 3, MLA = 2 };
    enum { ROW = MICRO_KV_LORA + MICRO_ROPE, S = DIM * DIM };
    ebro_model *model = NULL;
    files = micro_make(&spec);
    ebro_model_options mo = {.size = sizeof mo, .files = files.files, .n_files = files.n};
    test_ok(ebro_model_open(f->rt, &mo, &model, &err), &err);
    ebro_engine_options o = usual();
    ebro_engine *e = open_engine(model, f->device, &o);
    ebro_seq *s = make(f, e, N, 0);
    const struct eb_layout *l = &e->layout;
    float *one = malloc(S * sizeof *one);
    for (uint32_t u = 0; u < KDA * HEADS; u++) {
        for (uint32_t i = 0; i < S; i++)
            one[i] = 1000.0f * (float)(i / DIM) + (float)(i % DIM) + 1e6f * (float)u;
        ebro_span at = eb_block_span(e, s->mem->state->blocks[u / l->heads_per_block]);
        at.offset += u % l->heads_per_block * (uint64_t)sizeof(float) * S;
        test_ok(eb_upload(&e->stream, at, one, S * sizeof *one, &err), &err);
        test_ok(eb_stream_sync(&e->stream, &err), &err);
    }
    for (uint32_t layer = 0; layer < MLA; layer++) {
        for (uint32_t t = 0; t < N; t++) {
            for (uint32_t c = 0; c < ROW; c++)
                one[c] = (float)c + 100.0f * (float)t + 100000.0f * (float)layer;
            ebro_span at = eb_block_span(e, s->mem->pages[t / l->page_tokens]);
            at.offset += (layer * l->page_tokens + t % l->page_tokens) * sizeof(float) * ROW;
            test_ok(eb_upload(&e->stream, at, one, ROW * sizeof *one, &err), &err);
            test_ok(eb_stream_sync(&e->stream, &err), &err);
        }
    }
    struct bytes b = {0}, again = {0};
    ebro_transfer t;
    export_to(s, &b, &t);
    assert_int_equal(t.state_bytes, KDA * HEADS * S * sizeof(float));
    assert_int_equal(t.window_bytes, KDA * 3 * 3 * HEADS * DIM * sizeof(float));
    assert_int_equal(t.row_bytes, MLA * N * ROW * sizeof(float));
    size_t states = EB_STORE_HEADER_BYTES + t.identity_bytes + t.token_bytes + 16;
    size_t rows = states + t.state_bytes + t.window_bytes + 16;
    for (uint32_t i = 0; i < KDA * HEADS * S; i++) {
        float v;
        memcpy(&v, b.data + states + i * sizeof v, sizeof v);
        uint32_t key = i / DIM % DIM, value = i % DIM;
        assert_true(v == 1000.0f * (float)key + (float)value + 1e6f * (float)(i / S));
    }
    for (uint32_t i = 0; i < MLA * N * ROW; i++) {
        float v;
        memcpy(&v, b.data + rows + i * sizeof v, sizeof v);
        uint32_t layer = i / (N * ROW), token = i / ROW % N;
        assert_true(v == (float)(i % ROW) + 100.0f * (float)token + 100000.0f * (float)layer);
    }
    ebro_seq *r = import_from(e, &b, &t);
    ebro_seq_destroy(&s);
    export_to(r, &again, &t);
    assert_memory_equal(again.data, b.data, b.n);
    ebro_engine_close(&e);
    ebro_model_close(&model);
    micro_files_free(&files);
    free(one);
    free(b.data);
    free(again.data);
}

/* ---- out of host memory -------------------------------------------------------------------- */

struct nomem {
    ebro_seq *s, *made;
    ebro_engine *into;
    struct bytes in, out;
    char path[512];
};

static int32_t try_export(struct nomem *n, ebro_error *err) {
    n->out.n = 0;
    return ebro_seq_export(n->s, write_bytes, &n->out, NULL, NULL, err);
}

static int32_t try_import(struct nomem *n, ebro_error *err) {
    n->in.at = 0;
    return ebro_seq_import(n->into, read_bytes, &n->in, &n->made, NULL, err);
}

static int32_t try_save(struct nomem *n, ebro_error *err) {
    return ebro_seq_save(n->s, n->path, NULL, NULL, err);
}

static int32_t try_load(struct nomem *n, ebro_error *err) {
    return ebro_seq_load(n->into, n->path, &n->made, NULL, err);
}

/* The n-th allocation of each call fails, for every n. */
static void no_host_memory(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *name;
        int32_t (*run)(struct nomem *n, ebro_error *err);
        size_t least;
    } calls[] = {{"export", try_export, 1},
                 {"import", try_import, 8},
                 {"save", try_save, 3},
                 {"load", try_load, 8}};
    ebro_engine_options o = usual();
    ebro_engine *e = open_engine(f->model, f->device, &o);
    char *dir = test_tmp_dir();
    struct nomem n = {.s = make(f, e, 100, 5)};
    ebro_transfer t;
    export_to(n.s, &n.in, &t);
    snprintf(n.path, sizeof n.path, "%s/session", dir);
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        ebro_error err;
        o.cache_dtype = EBRO_F16; /* so that a conversion takes part */
        n.into = open_engine(f->model, f->device, &o);
        int32_t st = EBRO_NOMEM_HOST;
        size_t i = 0;
        for (; st != EBRO_OK; i++) {
            assert_true(i < 100);
            f->host.n_calls = 0;
            f->host.fail_at = i;
            st = calls[c].run(&n, &err);
            f->host.fail_at = SIZE_MAX;
            audit(n.into);
            if (st == EBRO_OK) break;
            assert_true(st == EBRO_NOMEM_HOST || st == EBRO_NOMEM_DEVICE);
            assert_true(err.text[0] != '\0' && n.made == NULL);
        }
        print_message("%s: %zu allocations failed in turn\n", calls[c].name, i);
        assert_true(i >= calls[c].least);
        if (n.made != NULL) assert_int_equal(ebro_seq_length(n.made), 100);
        n.made = NULL;
        ebro_engine_close(&n.into);
    }
    ebro_engine_close(&e);
    test_tmp_remove(&dir);
    free(n.in.data);
    free(n.out.data);
}

/* HD-09: 6,000 tokens of the demo model. */
static void long_session(void **state) {
    struct fixture *f = *state;
    ebro_error err;
    ebro_model *demo = NULL;
    ebro_device *device = NULL;
    enum { N = 6000 };
    ebro_model_options mo = {.size = sizeof mo, .path = test_demo_dir()};
    test_ok(ebro_model_open(f->rt, &mo, &demo, &err), &err);
    test_ok(ebro_device_open(f->rt, "cpu", &device, &err), &err);
    ebro_engine_options o = {.size = sizeof o, .n_ctx = N + 100, .cache_dtype = EBRO_F32};
    ebro_engine *e = open_engine(demo, device, &o);
    ebro_seq *s = make(f, e, 500, 0);
    for (int i = 1; i < N / 500; i++) append(f, s, 500);
    drain(s);
    struct bytes b = {0};
    ebro_transfer t;
    export_to(s, &b, &t);
    print_message("%zu bytes, in pieces of up to %zu: states %llu, windows %llu, rows %llu\n", b.n,
                  b.largest, (unsigned long long)t.state_bytes, (unsigned long long)t.window_bytes,
                  (unsigned long long)t.row_bytes);
    size_t vocab = demo->config.vocab_size;
    float *want = malloc(vocab * sizeof *want);
    memcpy(want, go_on(s, more, N_MORE), vocab * sizeof *want);
    ebro_engine_close(&e);
    e = open_engine(demo, device, &o);
    ebro_seq *r = import_from(e, &b, &t);
    ebro_reuse reuse = {.size = sizeof reuse};
    ebro_seq_get_reuse(r, &reuse);
    assert_int_equal(reuse.n_reused, N);
    assert_memory_equal(go_on(r, more, N_MORE), want, vocab * sizeof *want);
    ebro_memory m = {.size = sizeof m};
    ebro_engine_get_memory(e, &m);
    assert_int_equal(m.evaluated_tokens, N_MORE);
    ebro_engine_close(&e);
    ebro_model_close(&demo);
    ebro_device_close(&device);
    free(b.data);
    free(want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stays_the_same),      cmocka_unit_test(other_engines),
        cmocka_unit_test(is_reused),           cmocka_unit_test(damage),
        cmocka_unit_test(spares_what_is_kept), cmocka_unit_test(strangers),
        cmocka_unit_test(canonical_places),    cmocka_unit_test(no_host_memory),
        cmocka_unit_test(long_session)};
    return cmocka_run_group_tests_name("engine/session", tests, set_up, tear_down);
}
