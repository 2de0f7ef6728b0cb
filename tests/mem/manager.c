/* The memory manager against a model of the device's memory: a million random operations. The model
 * knows, for each block, which token chain its rows and states belong to; after every step what the
 * sequence would read must be its own chain and nothing else. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem/manager.h"
#include "tests/harness/test.h"

enum { N_SEQS = 12, PAGE = 16, SLOT_BLOCKS = 3, VOCAB = 3, MAX_TOKENS = 400 };

/* ---- the model --------------------------------------------------------------------------- */

struct content {
    uint64_t rows[PAGE]; /* chain up to and including that row's token */
    uint64_t state;      /* chain up to the state's position */
};

struct world {
    struct eb_manager m;
    struct content *blocks;
    struct test_rng rng;
    struct eb_seq *seqs[N_SEQS];
    uint64_t fail_extent, fail_alloc; /* one in so many fails; 0: none */
    size_t n_held;                    /* host allocations */
    uint64_t made_bytes;
    uint32_t n_steps, n_refused, n_resumed, n_aborted, n_waited, n_restored;
};

static uint32_t below(struct world *w, uint32_t n) {
    return (uint32_t)(test_u64(&w->rng) % n);
}

static uint64_t chain(uint64_t before, int32_t token) {
    return (before ^ (uint64_t)(uint32_t)token) * 0x100000001b3u + 0x9e3779b97f4a7c15u;
}

static uint64_t chain_of(const struct eb_seq *s, uint32_t n) {
    uint64_t h = 0;
    for (uint32_t i = 0; i < n; i++) h = chain(h, s->tokens[i]);
    return h;
}

static void *hook(void *user, void *p, size_t n) {
    struct world *w = user;
    if (n == 0) {
        w->n_held -= p != NULL;
        free(p);
        return NULL;
    }
    if (w->fail_alloc != 0 && test_u64(&w->rng) % w->fail_alloc == 0) return NULL;
    void *q = realloc(p, n);
    if (q != NULL && p == NULL) w->n_held++;
    return q;
}

static int32_t make_extent(void *user, uint32_t extent, uint64_t bytes, ebro_error *err) {
    struct world *w = user;
    (void)extent;
    if (w->fail_extent != 0 && test_u64(&w->rng) % w->fail_extent == 0)
        return eb_fail(err, EBRO_NOMEM_DEVICE, "the test has no more memory");
    w->made_bytes += bytes;
    assert_true(w->made_bytes <= w->m.options.budget_bytes);
    return EBRO_OK;
}

/* Host copies: what the model knows of the blocks goes along. */
static int32_t save_blocks(void *user, const uint32_t *blocks, uint32_t n, void *host,
                           ebro_error *err) {
    struct world *w = user;
    if (w->fail_alloc != 0 && test_u64(&w->rng) % 10 == 0)
        return eb_fail(err, EBRO_DEVICE_LOST, "the test fails a copy");
    assert_true(w->m.host.used + n * w->m.blocks.block_bytes <= w->m.options.host_bytes);
    for (uint32_t i = 0; i < n; i++)
        memcpy((char *)host + i * w->m.blocks.block_bytes, &w->blocks[blocks[i]],
               sizeof *w->blocks);
    return EBRO_OK;
}

static int32_t load_blocks(void *user, const uint32_t *blocks, uint32_t n, const void *host,
                           ebro_error *err) {
    struct world *w = user;
    if (w->fail_alloc != 0 && test_u64(&w->rng) % 10 == 0)
        return eb_fail(err, EBRO_DEVICE_LOST, "the test fails a copy");
    for (uint32_t i = 0; i < n; i++)
        memcpy(&w->blocks[blocks[i]], (const char *)host + i * w->m.blocks.block_bytes,
               sizeof *w->blocks);
    return EBRO_OK;
}

/* What a sequence would read: every row of its pages and its state. */
static void check_reads(struct world *w, const struct eb_seq *s) {
    uint64_t h = 0;
    for (uint32_t i = 0; i < s->n_done; i++) {
        h = chain(h, s->tokens[i]);
        if (w->blocks[s->pages[i / PAGE]].rows[i % PAGE] != h)
            fail_msg("row %u of a sequence of %u is not its own", i, s->n_done);
    }
    if (s->n_done == 0) {
        assert_null(s->state);
        return;
    }
    assert_true(s->state->written && s->state->position == s->n_done);
    for (uint32_t i = 0; i < SLOT_BLOCKS; i++) {
        if (w->blocks[s->state->blocks[i]].state != h)
            fail_msg("the state at %u tokens is not the sequence's", s->n_done);
    }
}

/* Does on the model what the ops of a step do on a device, once pages are copied. */
static void run_ops(struct world *w, const struct eb_seq *s, const struct eb_seq_step *step) {
    uint64_t h = chain_of(s, step->first);
    if (step->in != NULL) assert_true(w->blocks[step->in->blocks[0]].state == h);
    uint32_t emit = 0;
    for (uint32_t r = 0; r < step->n; r++) {
        uint32_t at = step->first + r;
        h = chain(h, s->tokens[at]);
        w->blocks[s->pages[at / PAGE]].rows[at % PAGE] = h;
        if (emit < step->n_emits && step->emit_rows[emit] == r) {
            for (uint32_t i = 0; i < SLOT_BLOCKS; i++)
                w->blocks[step->emits[emit]->blocks[i]].state = h;
            emit++;
        }
    }
    assert_int_equal(emit, step->n_emits);
    for (uint32_t i = 0; i < SLOT_BLOCKS; i++) w->blocks[step->out->blocks[i]].state = h;
}

/* ---- what was promised ---------------------------------------------------------------------- */

/* All that can be given up. */
struct kept {
    uint64_t evictions, snapshots, pages, states;
};

static struct kept count_kept(const struct world *w) {
    struct eb_manager_stats s;
    eb_manager_get_stats(&w->m, &s);
    return (struct kept){s.evictions, s.n_snapshots, s.kept_page_bytes, s.kept_state_bytes};
}

static bool faults(const struct world *w) {
    return w->fail_alloc != 0 || w->fail_extent != 0;
}

/* A call that was refused for memory has given up nothing. */
static void check_refused(struct world *w, int32_t st, const struct kept *before) {
    assert_true(st == EBRO_NOMEM_DEVICE || (st == EBRO_NOMEM_HOST && w->fail_alloc != 0));
    struct kept now = count_kept(w);
    if (!faults(w)) assert_memory_equal(&now, before, sizeof now);
    w->n_refused++;
}

static bool is_broken(const struct eb_seq *s) {
    return s->state != NULL && !s->state->written;
}

/* As the engine chooses: a step that can be cut short does not write in place. */
static bool choose_in_place(struct world *w) {
    if (!w->m.options.cancellable) return true;
    for (int i = 0; i < N_SEQS; i++)
        if (w->seqs[i] != NULL && w->seqs[i]->n_tokens - w->seqs[i]->n_done > 1) return false;
    return true;
}

/* ---- operations ---------------------------------------------------------------------------- */

static void op_push(struct world *w, struct eb_seq *s) {
    int32_t ids[128];
    uint32_t n = below(w, 4) == 0 ? 1 : 1 + below(w, 90);
    if (s->n_tokens + n > MAX_TOKENS) return;
    /* Few different prompts, so that chains meet, part, and meet again. */
    uint32_t family = below(w, 6), own = below(w, 90);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = i < own ? (int32_t)(family * 7 + i * i) % VOCAB : (int32_t)below(w, VOCAB);
    uint32_t before = s->n_tokens, done = s->n_done;
    struct kept kept = count_kept(w);
    int32_t st = eb_seq_push(s, ids, n, 1 + below(w, n), NULL);
    if (st == EBRO_OK) {
        assert_int_equal(s->n_tokens, before + n);
        assert_true(s->n_done < s->n_tokens);
        w->n_resumed += before == 0 && s->n_done > 0;
        if (before == 0) check_reads(w, s);
    } else {
        assert_int_equal(s->n_tokens, before);
        assert_int_equal(s->n_done, done);
        check_refused(w, st, &kept);
    }
}

/* Committed, or cancelled or failed: the rows were perhaps written. */
static void settle(struct world *w, struct eb_seq *s, struct eb_seq_step *step) {
    if (below(w, 8) == 0) {
        eb_seq_abort(s, step, true);
        w->n_aborted++;
    } else {
        eb_seq_commit(s, step);
        w->n_steps++;
    }
    if (!is_broken(s)) check_reads(w, s);
}

/* A step of up to `most` sequences, from number i on. The first of them must find room. */
static void op_step(struct world *w, uint32_t i, uint32_t most) {
    struct eb_seq_step steps[N_SEQS];
    struct eb_seq *seqs[N_SEQS];
    bool in_place = choose_in_place(w);
    uint32_t n = 0;
    for (uint32_t k = 0; k < N_SEQS && n < most; k++) {
        struct eb_seq *s = w->seqs[(i + k) % N_SEQS];
        if (s == NULL || s->n_tokens == s->n_done || is_broken(s)) continue;
        uint32_t rows = eb_seq_fit(s, 1 + below(w, s->n_tokens - s->n_done));
        uint32_t done = s->n_done, pages = s->n_pages;
        struct kept kept = count_kept(w);
        int32_t st = eb_seq_begin(s, rows, in_place, &steps[n], NULL);
        if (st == EBRO_OK) {
            seqs[n++] = s;
            continue;
        }
        assert_int_equal(s->n_done, done);
        assert_int_equal(s->n_pages, pages);
        if (n == 0 && st == EBRO_NOMEM_DEVICE) fail_msg("a sequence that was admitted has no room");
        check_refused(w, st, &kept);
        w->n_waited += st == EBRO_NOMEM_DEVICE;
    }
    for (uint32_t k = 0; k < n; k++)
        if (steps[k].copy_from != steps[k].copy_to)
            w->blocks[steps[k].copy_to] = w->blocks[steps[k].copy_from];
    for (uint32_t k = 0; k < n; k++) run_ops(w, seqs[k], &steps[k]);
    for (uint32_t k = 0; k < n; k++) settle(w, seqs[k], &steps[k]);
}

static void op_copy(struct world *w, struct eb_seq *s) {
    uint32_t j = below(w, N_SEQS);
    if (w->seqs[j] != NULL) return;
    struct kept kept = count_kept(w);
    int32_t st = eb_seq_copy(s, &w->seqs[j], NULL);
    if (st == EBRO_OK)
        check_reads(w, w->seqs[j]);
    else if (st != EBRO_INVALID)
        check_refused(w, st, &kept);
}

static void op_cut(struct world *w, struct eb_seq *s) {
    uint32_t to = below(w, s->n_tokens + 1), before = s->n_tokens, done = s->n_done;
    if (is_broken(s) && below(w, 2) == 0) to = s->n_tokens; /* mends it */
    struct kept kept = count_kept(w);
    int32_t st = eb_seq_cut(s, to, NULL);
    assert_int_equal(s->n_tokens, st == EBRO_OK ? to : before);
    if (st != EBRO_OK) {
        assert_int_equal(s->n_done, done);
        check_refused(w, st, &kept);
    }
    if (st == EBRO_OK || !is_broken(s)) check_reads(w, s);
}

/* A sequence that was evaluated elsewhere. */
static void op_restore(struct world *w, struct eb_seq **s) {
    int32_t ids[MAX_TOKENS];
    uint32_t n = below(w, 200), done = below(w, n + 1);
    for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)below(w, VOCAB);
    struct kept kept = count_kept(w);
    int32_t st = eb_seq_restore(&w->m, ids, n, done, s, NULL);
    if (st != EBRO_OK) {
        check_refused(w, st, &kept);
        return;
    }
    uint64_t h = 0;
    for (uint32_t i = 0; i < done; i++) {
        h = chain(h, ids[i]);
        w->blocks[(*s)->pages[i / PAGE]].rows[i % PAGE] = h;
    }
    for (uint32_t i = 0; done > 0 && i < SLOT_BLOCKS; i++)
        w->blocks[(*s)->state->blocks[i]].state = h;
    eb_seq_restored(*s);
    check_reads(w, *s);
    w->n_restored++;
}

static void op_any(struct world *w, uint32_t i) {
    struct eb_seq **s = &w->seqs[i];
    if (*s == NULL && below(w, 8) == 0) {
        op_restore(w, s);
        return;
    }
    if (*s == NULL) {
        if (eb_seq_open(&w->m, s, NULL) != EBRO_OK) *s = NULL;
        if (*s != NULL) op_push(w, *s);
        return;
    }
    switch (below(w, 16)) {
        case 0:
            eb_seq_close(s);
            break;
        case 1:
            op_copy(w, *s);
            break;
        case 2:
            op_cut(w, *s);
            break;
        case 3:
            eb_seq_wish(*s, below(w, (*s)->n_tokens + 2), NULL);
            break;
        case 4:
        case 5:
        case 6:
            op_push(w, *s);
            break;
        case 7:
            op_step(w, i, N_SEQS);
            break;
        default:
            op_step(w, i, 1);
    }
}

/* ---- tests ---------------------------------------------------------------------------------- */

static struct eb_layout small_layout(void) {
    struct eb_layout l = {.shape = {.n_mla_layers = 1, .n_kda_layers = 1},
                          .page_tokens = PAGE,
                          .block_bytes = 256,
                          .row_bytes = 16,
                          .slot_blocks = SLOT_BLOCKS};
    return l;
}

static void open_world(struct world *w, uint32_t blocks, const struct eb_manager_options *o) {
    struct eb_alloc alloc = {.user = w, .realloc = hook};
    struct eb_layout l = small_layout();
    struct eb_manager_options options = *o;
    options.budget_bytes = blocks * l.block_bytes + 77;
    options.extent_bytes = 10 * l.block_bytes;
    options.make = make_extent;
    options.host = (struct eb_host_calls){save_blocks, load_blocks, w};
    options.user = w;
    w->blocks = calloc(blocks, sizeof *w->blocks);
    assert_non_null(w->blocks);
    memset(w->blocks, 0xa5, blocks * sizeof *w->blocks);
    assert_int_equal(eb_manager_open(&w->m, &l, &alloc, &options, NULL), EBRO_OK);
}

static void audit(struct world *w) {
    uint64_t fail = w->fail_alloc;
    w->fail_alloc = 0;
    const char *wrong = eb_manager_audit(&w->m);
    w->fail_alloc = fail;
    if (wrong != NULL) fail_msg("%s", wrong);
    struct eb_manager_stats st;
    eb_manager_get_stats(&w->m, &st);
    assert_true(st.made_bytes <= st.budget_bytes);
    assert_true(st.host_bytes <= w->m.options.host_bytes);
    assert_true(st.live_page_bytes + st.live_state_bytes + st.kept_page_bytes +
                    st.kept_state_bytes <=
                st.made_bytes);
    assert_true(st.noted_tokens <= (1u << 16) || st.kept_page_bytes > 0);
}

static void close_world(struct world *w) {
    w->fail_alloc = 0;
    for (int i = 0; i < N_SEQS; i++) eb_seq_close(&w->seqs[i]);
    audit(w);
    struct eb_manager_stats st;
    eb_manager_get_stats(&w->m, &st);
    assert_int_equal(st.live_page_bytes + st.live_state_bytes, 0);
    eb_manager_clear(&w->m);
    eb_manager_get_stats(&w->m, &st);
    assert_int_equal(st.kept_page_bytes + st.kept_state_bytes, 0);
    assert_int_equal(st.n_snapshots, 0);
    assert_int_equal(st.host_bytes, 0);
    assert_int_equal(st.n_nodes, 0);
    eb_manager_close(&w->m);
    assert_int_equal(w->n_held, 0);
    free(w->blocks);
}

static void run_random(uint32_t n_ops, uint32_t blocks, const struct eb_manager_options *o,
                       uint64_t fail_extent, uint64_t fail_alloc) {
    struct world w = {.rng = {test_seed()}};
    open_world(&w, blocks, o);
    w.fail_extent = fail_extent;
    w.fail_alloc = fail_alloc;
    for (uint32_t i = 0; i < n_ops; i++) {
        op_any(&w, below(&w, N_SEQS));
        assert_true(eb_manager_committed(&w.m) <= w.m.blocks.n_made);
        if (i % 512 == 0) audit(&w);
    }
    print_message(
        "%u steps, %u refused, %u waited, %u resumed, %u aborted, %u restored, "
        "%llu evictions, %llu copies\n",
        w.n_steps, w.n_refused, w.n_waited, w.n_resumed, w.n_aborted, w.n_restored,
        (unsigned long long)w.m.stats.evictions, (unsigned long long)w.m.stats.copied_pages);
    print_message("%llu saved to the host, %llu brought back\n",
                  (unsigned long long)w.m.stats.host_saves,
                  (unsigned long long)w.m.stats.host_loads);
    assert_true(o->host_bytes == 0 || blocks < 100 || fail_extent != 0 ||
                (w.m.stats.host_saves > 100 && w.m.stats.host_loads > 100));
    /* An extent that cannot be made lowers the limit for good, perhaps to very little. */
    assert_true(w.n_steps > (fail_extent == 0 ? n_ops / (blocks < 100 ? 200 : 20) : 0));
    if (w.m.blocks.limit < 100) goto out;
    assert_true(w.n_resumed > 0 && w.n_aborted > 0 && w.n_restored > 0);
    assert_true(w.m.stats.evictions > 0 && w.m.stats.copied_pages > 0);
out:
    close_world(&w);
}

enum { ALL = EB_KEEP_PROMPT_END | EB_KEEP_TURN_END | EB_KEEP_INTERVAL | EB_KEEP_JUNCTION };

static void test_lru(void **state) {
    (void)state;
    run_random(400000, 120,
               &(struct eb_manager_options){.keep = ALL, .interval = 50, .max_noted = 1 << 16}, 0,
               0);
}

static void test_cost(void **state) {
    (void)state;
    run_random(300000, 140,
               &(struct eb_manager_options){.keep = ALL,
                                            .interval = 17,
                                            .policy = EB_POLICY_COST,
                                            .cancellable = true,
                                            .max_noted = 1 << 14},
               0, 0);
}

/* Hardly any memory: of what was admitted all is evaluated. */
static void test_tight(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 48; i++) {
        run_random(8000, 4 + i + i / 2,
                   &(struct eb_manager_options){.keep = i % 5 == 0 ? 0 : ALL,
                                                .interval = 20,
                                                .policy = (enum eb_policy_kind)(i % 2),
                                                .cancellable = i % 4 > 1,
                                                .host_bytes = i % 8 > 3 ? 20000 : 0,
                                                .max_noted = 1 << 14},
                   0, 0);
    }
}

/* Little memory on the device, more on the host: snapshots go there and come back. */
static void test_host(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        run_random(150000, 110,
                   &(struct eb_manager_options){.keep = ALL,
                                                .interval = 30,
                                                .policy = (enum eb_policy_kind)i,
                                                .host_bytes = 40000u * (1u + (unsigned)i),
                                                .max_noted = 1 << 14},
                   0, 0);
    }
}

/* Out of memory at any point, host's and device's. */
static void test_failing(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        run_random(50000, 150,
                   &(struct eb_manager_options){.keep = ALL,
                                                .interval = 40,
                                                .policy = (enum eb_policy_kind)(i % 2),
                                                .host_bytes = i < 4 ? 0 : 60000,
                                                .max_noted = 1 << 16},
                   40, 20);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lru), cmocka_unit_test(test_cost),
                                       cmocka_unit_test(test_tight), cmocka_unit_test(test_host),
                                       cmocka_unit_test(test_failing)};
    return cmocka_run_group_tests_name("mem/manager", tests, NULL, NULL);
}
