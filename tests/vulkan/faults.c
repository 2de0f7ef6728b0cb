/* faults.c: devices that fail: an allocation, whichever it is; a submission or a wait that loses
 * the device. The call says so, the process and other devices go on, nothing is left behind, and
 * what is opened again works. */
#include <stdio.h>
#include <stdlib.h>

#include "ops/ops.h"
#include "tests/vulkan/rig.h"

enum { N = 1000, BYTES = N * sizeof(float) };

/* ---- single operators ------------------------------------------------------------------- */

struct rows {
    struct ebro_device *device;
    struct eb_stream s;
    ebro_mem *in, *out;
    float x[N], y[N];
};

static void close_rows(struct rows *r) {
    eb_mem_free(r->device, &r->in);
    eb_mem_free(r->device, &r->out);
    eb_stream_close(&r->s);
}

static int32_t open_rows(struct rows *r, struct ebro_device *d, ebro_error *err) {
    *r = (struct rows){.device = d};
    for (int i = 0; i < N; i++) r->x[i] = 2.0f;
    int32_t st = eb_stream_open(d, &r->s, err);
    if (st == EBRO_OK) st = eb_mem_alloc(d, BYTES, EBRO_MEM_DEVICE, &r->in, err);
    if (st == EBRO_OK) st = eb_mem_alloc(d, BYTES, EBRO_MEM_DEVICE, &r->out, err);
    if (st != EBRO_OK) close_rows(r);
    return st;
}

/* Up, the norm, down: ones, for all elements are the same. */
static int32_t compute(struct rows *r, ebro_error *err) {
    const ebro_rms_norm_args norm = {.size = sizeof norm,
                                     .x = {.mem = r->in, .stride = N, .dtype = EBRO_F32},
                                     .out = {.mem = r->out, .stride = N, .dtype = EBRO_F32},
                                     .n_rows = 1,
                                     .n_cols = N};
    memset(r->y, 0x5a, sizeof r->y);
    int32_t st = eb_upload(&r->s, at(r->in, 0), r->x, BYTES, err);
    if (st == EBRO_OK) st = eb_op_rms_norm(&r->s, &norm, err);
    if (st == EBRO_OK) st = eb_download(&r->s, r->y, at(r->out, 0), BYTES, err);
    return st == EBRO_OK ? eb_stream_sync(&r->s, err) : st;
}

static void assert_computed(const struct rows *r) {
    for (int i = 0; i < N; i++)
        if (!(r->y[i] > 0.9999f && r->y[i] < 1.0001f))
            fail_msg("y[%d] = %g, not 1", i, (double)r->y[i]);
}

static void assert_works(struct ebro_device *d) {
    struct rows r;
    ebro_error err = {0};
    test_ok(open_rows(&r, d, &err), &err);
    test_ok(compute(&r, &err), &err);
    assert_computed(&r);
    close_rows(&r);
}

/* ---- allocations ------------------------------------------------------------------------ */

/* Each of them in turn, in a card's memory too, until none is left to fail. */
static void fail_each_allocation(uint32_t *n_failed) {
    struct shim *shim = shim_get();
    struct ebro_device *d = rig_device();
    for (uint32_t n = 1;; n++) {
        struct rows r;
        ebro_error err = {0};
        shim->faults.allocation = n;
        int32_t st = open_rows(&r, d, &err);
        if (st == EBRO_OK) {
            st = compute(&r, &err);
            if (st != EBRO_OK) {
                test_fails(st, EBRO_NOMEM_DEVICE, &err, "free");
                /* The same again, on the same stream. */
                test_ok(compute(&r, &err), &err);
            }
            assert_computed(&r);
            close_rows(&r);
        } else {
            test_fails(st, EBRO_NOMEM_DEVICE, &err, "free");
        }
        assert_int_equal(shim->seen.live_allocations, 0);
        assert_int_equal(shim->seen.live_buffers, 0);
        if (shim->faults.allocation != 0) break; /* none was the n-th */
        *n_failed = n;
    }
    shim->faults.allocation = 0;
    ebro_device_close(&d);
}

static void any_allocation_may_fail(void **state) {
    (void)state;
    uint32_t shared = 0, card = 0;
    fail_each_allocation(&shared);
    shim_get()->heaps = (struct shim_heaps){256 << 20, 256 << 20, 0};
    fail_each_allocation(&card);
    /* A stream's own, and two of ours; staging where the host cannot see them. */
    assert_in_range(shared, 3, 20);
    assert_in_range(card, shared + 1, 20);
}

/* ---- loss ------------------------------------------------------------------------------- */

/* `lose` is to be due while d computes. */
static void check_loss(const struct shim_faults *lose) {
    struct shim *shim = shim_get();
    struct ebro_device *other = rig_device(), *cpu = NULL, *d = NULL;
    struct rows r, more;
    ebro_error err = {0};
    uint64_t ticket = 0;
    test_ok(ebro_device_open(rt, "CPU", &cpu, &err), &err);
    test_ok(ebro_device_open(rt, "Vulkan0", &d, &err), &err);
    test_ok(open_rows(&r, d, &err), &err);
    shim->faults = *lose;
    test_fails(compute(&r, &err), EBRO_DEVICE_LOST, &err, "the device was lost");
    assert_int_equal(shim->faults.submit + shim->faults.wait, 0);
    uint64_t submits = shim->seen.submits;
    /* Nothing more reaches it, and everything says what is the matter. */
    test_fails(compute(&r, &err), EBRO_DEVICE_LOST, &err, "Vulkan0 was lost");
    test_fails(eb_submit(&r.s, &ticket, &err), EBRO_DEVICE_LOST, &err, "open it again");
    test_fails(open_rows(&more, d, &err), EBRO_DEVICE_LOST, &err, "Vulkan0 was lost");
    assert_int_equal(shim->seen.submits, submits);
    /* Others, the same hardware opened before among them, go on. */
    assert_works(other);
    assert_works(cpu);
    close_rows(&r);
    ebro_device_close(&d);
    assert_int_equal(shim->seen.calls_after_loss, 0);
    test_ok(ebro_device_open(rt, "Vulkan0", &d, &err), &err);
    assert_works(d);
    ebro_device_close(&d);
    ebro_device_close(&other);
    ebro_device_close(&cpu);
}

static void a_submission_loses_the_device(void **state) {
    (void)state;
    check_loss(&(struct shim_faults){.submit = 1});
}

static void a_wait_loses_the_device(void **state) {
    (void)state;
    check_loss(&(struct shim_faults){.wait = 1});
}

/* ---- a model ---------------------------------------------------------------------------- */

enum { PROMPT = 40, KEPT = 16, CHUNK = 8 };

struct setup {
    ebro_device *device;
    ebro_engine *engine;
    ebro_seq *seq;
};

static void open_setup(struct setup *s, ebro_model *model, const char *device) {
    const ebro_engine_options o = {.size = sizeof o,
                                   .n_ctx = 64,
                                   .n_chunk = CHUNK,
                                   .keep = EBRO_KEEP_NONE,
                                   .cache_dtype = EBRO_F32};
    ebro_error err = {0};
    *s = (struct setup){0};
    test_ok(ebro_device_open(rt, device, &s->device, &err), &err);
    test_ok(ebro_engine_open(model, s->device, &o, &s->engine, &err), &err);
}

static void close_setup(struct setup *s) {
    ebro_seq_destroy(&s->seq);
    ebro_engine_close(&s->engine);
    ebro_device_close(&s->device);
}

static int32_t evaluate(struct setup *s, const int32_t *ids, size_t n, ebro_error *err) {
    int32_t st = s->seq == NULL ? ebro_seq_create(s->engine, &s->seq, err) : EBRO_OK;
    if (st == EBRO_OK) st = ebro_seq_append(s->seq, ids, n, 1, err);
    while (st == EBRO_OK && ebro_seq_pending(s->seq) > 0) st = ebro_engine_step(s->engine, err);
    return st;
}

/* The logits after the prompt, against those wanted; the greedy token is the same. Bounded by the
 * order of fp32 sums (1e-6); a token too many or too few changes more than 1e-2. */
static void check_logits(const struct setup *s, const double *want, uint32_t n_vocab) {
    const float *logits = NULL;
    uint32_t rows = 0, best = 0, want_best = 0;
    ebro_error err = {0};
    test_ok(ebro_seq_logits(s->seq, &logits, &rows, &err), &err);
    assert_int_equal(rows, 1);
    test_le(test_rel_fro(logits, want, n_vocab), 1e-4, "logits");
    for (uint32_t i = 1; i < n_vocab; i++) {
        if (logits[i] > logits[best]) best = i;
        if (want[i] > want[want_best]) want_best = i;
    }
    assert_int_equal(best, want_best);
}

/* Lost in the third submission after 16 tokens were saved: the step says so, the CPU goes on, and
 * the device that is opened again goes on from what was saved. */
static void a_prefill_loses_the_device(void **state) {
    (void)state;
    struct ebro_device *there = rig_device();
    ebro_device_close(&there);
    ebro_model *model = NULL;
    ebro_error err = {0};
    const ebro_model_options mo = {.size = sizeof mo, .path = test_demo_dir()};
    ebro_model_info info;
    struct test_rng rng = {test_seed()};
    struct setup cpu, vulkan;
    int32_t ids[PROMPT];
    const float *logits = NULL;
    uint32_t rows = 0;
    char *dir = test_tmp_dir(), path[512];
    snprintf(path, sizeof path, "%s/saved", dir);
    test_ok(ebro_model_open(rt, &mo, &model, &err), &err);
    ebro_model_get_info(model, &info);
    for (int i = 0; i < PROMPT; i++) ids[i] = (int32_t)(test_u64(&rng) % 1000);

    open_setup(&cpu, model, "CPU");
    test_ok(evaluate(&cpu, ids, PROMPT, &err), &err);
    test_ok(ebro_seq_logits(cpu.seq, &logits, &rows, &err), &err);
    double *want = malloc(info.vocab * sizeof *want);
    assert_non_null(want);
    for (uint32_t i = 0; i < info.vocab; i++) want[i] = (double)logits[i];

    open_setup(&vulkan, model, "Vulkan0");
    test_ok(evaluate(&vulkan, ids, KEPT, &err), &err);
    test_ok(ebro_seq_save(vulkan.seq, path, NULL, NULL, &err), &err);
    shim_get()->faults.submit = 3;
    test_fails(evaluate(&vulkan, ids + KEPT, PROMPT - KEPT, &err), EBRO_DEVICE_LOST, &err, "lost");
    assert_int_equal(shim_get()->faults.submit, 0);
    assert_int_equal(ebro_seq_status(vulkan.seq), EBRO_DEVICE_LOST);
    ebro_seq_destroy(&vulkan.seq);
    test_fails(evaluate(&vulkan, ids, KEPT, &err), EBRO_DEVICE_LOST, &err, "Vulkan0 was lost");
    ebro_seq_destroy(&cpu.seq);
    test_ok(evaluate(&cpu, ids, PROMPT, &err), &err);
    check_logits(&cpu, want, info.vocab);
    close_setup(&vulkan);
    assert_int_equal(shim_get()->seen.calls_after_loss, 0);

    open_setup(&vulkan, model, "Vulkan0");
    test_ok(ebro_seq_load(vulkan.engine, path, &vulkan.seq, NULL, &err), &err);
    test_ok(evaluate(&vulkan, ids + KEPT, PROMPT - KEPT, &err), &err);
    check_logits(&vulkan, want, info.vocab);
    close_setup(&vulkan);
    close_setup(&cpu);
    ebro_model_close(&model);
    free(want);
    test_tmp_remove(&dir);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, rig_open, rig_close)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(any_allocation_may_fail),
        TEST(a_submission_loses_the_device),
        TEST(a_wait_loses_the_device),
        TEST(a_prefill_loses_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
