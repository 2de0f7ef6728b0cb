/* reuse.c: later prompts go on from what earlier ones left: a second turn of a long chat, changed
 * endings, a repeated prompt (HD-08, HD-10); what is reused is what a fresh run computes, and the
 * reason is said where it is not more. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "tests/harness/bench.h"
#include "tests/harness/devices.h"
#include "tests/harness/test.h"

enum { N_SHARED = 6000, N_OWN = 200, N_CTX = 8000, INTERVAL = 512, N_NEW = 24 };

struct fixture {
    struct test_bench at;
    struct test_rng rng;
    uint32_t vocab;
    uint32_t n_shared, n_cycles; /* fewer on an imitated device */
    int32_t shared[N_SHARED];
};

static int set_up(void **state) {
    static struct fixture f;
    f.rng.s = test_seed();
    test_bench_open(&f.at, test_device());
    f.vocab = f.at.model->config.vocab_size;
    bool slow = test_device_is_emulated();
    f.n_shared = slow ? 1100 : N_SHARED;
    f.n_cycles = slow ? 100 : 1000;
    for (int i = 0; i < N_SHARED; i++) f.shared[i] = (int32_t)(test_u64(&f.rng) % MICRO_RANKS);
    *state = &f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    test_bench_close(&f->at);
    return 0;
}

static ebro_engine *open_tiers(struct fixture *f, int32_t keep, uint64_t memory, uint64_t host) {
    ebro_error err;
    ebro_engine *e = NULL;
    ebro_engine_options o = {.size = sizeof o,
                             .n_ctx = N_CTX,
                             .cache_dtype = EBRO_F32,
                             .keep = keep,
                             .keep_interval = INTERVAL,
                             .memory_bytes = memory,
                             .host_bytes = host};
    test_ok(ebro_engine_open(f->at.model, f->at.device, &o, &e, &err), &err);
    return e;
}

static ebro_engine *open_engine(struct fixture *f, int32_t keep, uint64_t memory) {
    return open_tiers(f, keep, memory, 0);
}

/* A prompt that grows: tokens and how many. */
struct text {
    int32_t ids[N_CTX];
    uint32_t n;
};

static void add(struct text *t, const int32_t *ids, uint32_t n) {
    memcpy(t->ids + t->n, ids, n * sizeof *ids);
    t->n += n;
}

static void add_random(struct fixture *f, struct text *t, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) t->ids[t->n++] = (int32_t)(test_u64(&f->rng) % MICRO_RANKS);
}

/* Reads the prompt in a sequence of its own, answers greedily and destroys it. `answer` gets N_NEW
 * ids, `logits` the prompt's last row. */
static ebro_reuse ask(struct fixture *f, ebro_engine *e, const struct text *t, int32_t *answer,
                      float *logits) {
    ebro_error err;
    ebro_seq *s = NULL;
    const float *row = NULL;
    uint32_t rows = 0;
    const ebro_sampling greedy = {.size = sizeof greedy};
    ebro_reuse reuse = {.size = sizeof reuse};
    test_ok(ebro_seq_create(e, &s, &err), &err);
    test_ok(ebro_seq_append(s, t->ids, t->n, 0, &err), &err);
    ebro_seq_get_reuse(s, &reuse);
    assert_int_equal(reuse.n_prompt, t->n);
    assert_int_equal(ebro_seq_length(s), reuse.n_reused);
    for (int i = 0; i < N_NEW; i++) {
        while (ebro_seq_pending(s) > 0) test_ok(ebro_engine_step(e, &err), &err);
        if (i == 0) {
            test_ok(ebro_seq_logits(s, &row, &rows, &err), &err);
            memcpy(logits, row + (size_t)(rows - 1) * f->vocab, f->vocab * sizeof *row);
        }
        test_ok(ebro_seq_sample(s, &greedy, &answer[i], &err), &err);
        test_ok(ebro_seq_append(s, &answer[i], 1, 0, &err), &err);
    }
    ebro_seq_destroy(&s);
    const char *wrong = eb_manager_audit(&e->mem);
    if (wrong != NULL) fail_msg("%s", wrong);
    print_message("%u tokens: %u seen, %u reused: %s\n", reuse.n_prompt, reuse.n_matched,
                  reuse.n_reused, reuse.reason);
    return reuse;
}

/* Asks, and compares with an engine that has seen nothing. The logits differ by the order of sums
 * alone, since the rows are cut into other steps. */
static ebro_reuse ask_checked(struct fixture *f, ebro_engine *e, const struct text *t,
                              int32_t *answer) {
    int32_t fresh_answer[N_NEW];
    float *got = malloc(f->vocab * sizeof *got), *want = malloc(f->vocab * sizeof *want);
    ebro_engine *fresh = open_engine(f, EBRO_KEEP_NONE, 0);
    ebro_reuse reuse = ask(f, e, t, answer, got);
    ask(f, fresh, t, fresh_answer, want);
    ebro_engine_close(&fresh);
    double most = 0, scale = 0;
    for (uint32_t i = 0; i < f->vocab; i++) {
        most = fmax(most, fabs((double)got[i] - want[i]));
        scale = fmax(scale, fabs((double)want[i]));
    }
    test_le(most / scale, 1e-4, "logits after %u reused tokens", reuse.n_reused);
    assert_memory_equal(answer, fresh_answer, sizeof fresh_answer);
    free(got);
    free(want);
    return reuse;
}

/* The second turn of a chat of 6,000 tokens evaluates the new tokens alone. */
static void second_turn(void **state) {
    struct fixture *f = *state;
    struct text t = {0};
    int32_t answer[N_NEW];
    ebro_engine *e = open_engine(f, 0, 0);
    add(&t, f->shared, f->n_shared);
    ebro_reuse r = ask_checked(f, e, &t, answer);
    assert_int_equal(r.n_reused, 0);
    assert_int_equal(r.miss, EBRO_MISS_NEW);
    /* the last token of the answer was appended, but not evaluated */
    add(&t, answer, N_NEW - 1);
    add_random(f, &t, 40);
    r = ask_checked(f, e, &t, answer);
    assert_int_equal(r.n_reused, f->n_shared + N_NEW - 1);
    assert_int_equal(r.miss, EBRO_MISS_NONE);
    /* a client that drops part of the answer goes on from the prompt's end */
    t.n = f->n_shared + 2;
    add_random(f, &t, 40);
    r = ask_checked(f, e, &t, answer);
    assert_true(r.n_reused >= f->n_shared - 1);
    ebro_engine_close(&e);
}

/* HD-10: other endings of one long prompt, then a short chat and its next turn. */
static void other_endings(void **state) {
    struct fixture *f = *state;
    struct text one = {0}, two = {0}, chat = {0};
    int32_t answer[N_NEW];
    ebro_engine *e = open_engine(f, 0, 0);
    add(&one, f->shared, f->n_shared);
    two = one;
    add_random(f, &one, N_OWN);
    add_random(f, &two, N_OWN);
    ask_checked(f, e, &one, answer);
    ebro_reuse r = ask_checked(f, e, &two, answer);
    assert_true(r.n_matched >= f->n_shared && r.n_matched < f->n_shared + 20);
    assert_int_equal(r.n_reused, f->n_shared / INTERVAL * INTERVAL);
    assert_int_equal(r.miss, EBRO_MISS_EARLIER);
    one.n -= 31;
    uint32_t until = one.n;
    add_random(f, &one, 31);
    r = ask_checked(f, e, &one, answer);
    assert_true(r.n_matched >= until && r.n_reused >= until / INTERVAL * INTERVAL);
    /* now the junction is known: a third ending restarts exactly there */
    struct text three = {0};
    add(&three, f->shared, f->n_shared);
    add_random(f, &three, N_OWN);
    r = ask_checked(f, e, &three, answer);
    assert_true(r.n_reused >= f->n_shared && r.miss == EBRO_MISS_NONE);

    add_random(f, &chat, 40);
    ask_checked(f, e, &chat, answer);
    add(&chat, answer, N_NEW - 1);
    add_random(f, &chat, 30);
    r = ask_checked(f, e, &chat, answer);
    assert_int_equal(r.n_reused, 40 + N_NEW - 1);
    /* and the same again: the last token alone, for its logits */
    r = ask_checked(f, e, &chat, answer);
    assert_int_equal(r.n_reused, chat.n - 1);
    ebro_engine_close(&e);
}

/* With little memory snapshots go; the reason is said, and the answers stay right. */
static void little_memory(void **state) {
    struct fixture *f = *state;
    struct eb_layout l;
    ebro_error err;
    struct eb_shape shape = eb_engine_shape(f->at.model, EBRO_F32);
    test_ok(eb_layout_plan(&shape, &l, &err), &err);
    uint64_t budget = eb_manager_estimate(&l, 1, 700) + 4ull * l.slot_blocks * l.block_bytes;
    ebro_engine *e = open_engine(f, 0, budget);
    struct text texts[6] = {{{0}, 0}};
    int32_t answer[N_NEW];
    ebro_memory m = {.size = sizeof m};
    uint32_t n_evicted = 0;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 6; i++) {
            if (round == 0) add_random(f, &texts[i], 400);
            ebro_reuse r = ask_checked(f, e, &texts[i], answer);
            n_evicted += r.miss == EBRO_MISS_EVICTED;
            ebro_engine_get_memory(e, &m);
            assert_true(m.taken_bytes <= budget && m.peak_bytes <= budget);
        }
    }
    assert_true(n_evicted > 0 && m.evictions > 0);
    /* more than there is: refused with both numbers, and nothing is lost */
    ebro_seq *s = NULL;
    test_ok(ebro_seq_create(e, &s, &err), &err);
    test_fails(ebro_seq_append(s, f->shared, N_SHARED, 0, &err), EBRO_NOMEM_DEVICE, &err,
               "bytes of cache (");
    assert_int_equal(ebro_seq_pending(s), 0);
    test_ok(ebro_seq_append(s, f->shared, 300, 0, &err), &err);
    while (ebro_seq_pending(s) > 0) test_ok(ebro_engine_step(e, &err), &err);
    ebro_engine_close(&e);
}

/* The same little memory, and room on the host: what went there comes back, and is right. */
static void host_copies(void **state) {
    struct fixture *f = *state;
    struct eb_layout l;
    ebro_error err;
    struct eb_shape shape = eb_engine_shape(f->at.model, EBRO_F32);
    test_ok(eb_layout_plan(&shape, &l, &err), &err);
    uint64_t budget = eb_manager_estimate(&l, 1, 700) + 4ull * l.slot_blocks * l.block_bytes;
    const uint64_t host = 64u << 20;
    ebro_engine *e = open_tiers(f, 0, budget, host);
    struct text texts[6] = {{{0}, 0}};
    int32_t answer[N_NEW];
    ebro_memory m = {.size = sizeof m};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 6; i++) {
            if (round == 0) add_random(f, &texts[i], 400);
            ebro_reuse r = ask_checked(f, e, &texts[i], answer);
            assert_int_equal(r.n_reused, round == 0 ? 0 : 399);
            ebro_engine_get_memory(e, &m);
            assert_true(m.taken_bytes <= budget && m.host_bytes <= host);
            assert_int_equal(m.host_budget_bytes, host);
        }
    }
    assert_true(m.host_saves > 0 && m.host_loads > 0);
    ebro_engine_close(&e);
}

/* An append that is refused for memory changes nothing: the logits of before are still there,
 * though more rows of them were asked for. */
static void refused_append(void **state) {
    struct fixture *f = *state;
    struct eb_layout l;
    ebro_error err;
    struct eb_shape shape = eb_engine_shape(f->at.model, EBRO_F32);
    test_ok(eb_layout_plan(&shape, &l, &err), &err);
    ebro_engine *e = open_engine(f, 0, eb_manager_estimate(&l, 1, 300));
    ebro_seq *s = NULL;
    const float *row = NULL, *again = NULL;
    uint32_t rows = 0;
    test_ok(ebro_seq_create(e, &s, &err), &err);
    test_ok(ebro_seq_append(s, f->shared, 40, 2, &err), &err);
    while (ebro_seq_pending(s) > 0) test_ok(ebro_engine_step(e, &err), &err);
    test_ok(ebro_seq_logits(s, &row, &rows, &err), &err);
    size_t bytes = 2 * f->vocab * sizeof *row;
    float *want = malloc(bytes);
    memcpy(want, row, bytes);
    test_fails(ebro_seq_append(s, f->shared, N_SHARED, 100, &err), EBRO_NOMEM_DEVICE, &err,
               "bytes of cache (");
    assert_int_equal(ebro_seq_pending(s), 0);
    test_ok(ebro_seq_logits(s, &again, &rows, &err), &err);
    assert_int_equal(rows, 2);
    assert_ptr_equal(again, row);
    assert_memory_equal(again, want, bytes);
    free(want);
    ebro_engine_close(&e);
}

/* HD-12: a thousand cycles hold no more than ten. */
static void cycles(void **state) {
    struct fixture *f = *state;
    ebro_error err;
    ebro_engine *e = open_engine(f, 0, 0);
    ebro_memory m = {.size = sizeof m};
    uint64_t after_ten = 0;
    for (uint32_t i = 1; i <= f->n_cycles; i++) {
        ebro_seq *s = NULL;
        test_ok(ebro_seq_create(e, &s, &err), &err);
        test_ok(ebro_seq_append(s, f->shared + i % 3, 30 + i % 4, 0, &err), &err);
        if (i % 5 != 0) test_ok(ebro_engine_step(e, &err), &err);
        if (i % 7 == 0) test_ok(ebro_seq_rewind(s, 10, &err), &err);
        ebro_seq_destroy(&s);
        if (i % 10 != 0) continue;
        ebro_engine_forget(e);
        ebro_engine_get_memory(e, &m);
        assert_int_equal(
            m.live_page_bytes + m.live_state_bytes + m.kept_page_bytes + m.kept_state_bytes, 0);
        if (i == 10) after_ten = m.taken_bytes;
    }
    assert_int_equal(m.taken_bytes, after_ten);
    ebro_engine_close(&e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_turn),   cmocka_unit_test(other_endings),
        cmocka_unit_test(little_memory), cmocka_unit_test(refused_append),
        cmocka_unit_test(host_copies),   cmocka_unit_test(cycles)};
    return test_on_fast_devices("engine/reuse", tests, set_up, tear_down);
}
