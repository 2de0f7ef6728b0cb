/* Which snapshots are kept and found again: the manager without a device, whole requests one at a
 * time. Every token chain is made of named parts, so that what is shared is known exactly. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem/manager.h"
#include "tests/harness/test.h"

enum {
    ALL = EB_KEEP_PROMPT_END | EB_KEEP_TURN_END | EB_KEEP_INTERVAL | EB_KEEP_JUNCTION,
    CHUNK = 512,
    MOST = 8192
};

struct world {
    struct eb_manager m;
    size_t n_held; /* host allocations */
    uint32_t n_warnings;
    char warning[256];
    struct eb_log log;
};

static void *hook(void *user, void *p, size_t n) {
    struct world *w = user;
    if (n == 0) {
        w->n_held -= p != NULL;
        free(p);
        return NULL;
    }
    void *q = realloc(p, n);
    if (q != NULL && p == NULL) w->n_held++;
    return q;
}

static void sink(void *user, int32_t level, const char *text) {
    struct world *w = user;
    if (level != EBRO_LOG_WARN) return;
    w->n_warnings++;
    snprintf(w->warning, sizeof w->warning, "%s", text);
}

static void open_world(struct world *w, const struct eb_layout *l,
                       const struct eb_manager_options *o) {
    ebro_error err;
    struct eb_alloc alloc = {.user = w, .realloc = hook};
    struct eb_manager_options options = *o;
    w->log = (struct eb_log){.sink = sink, .user = w, .level = EBRO_LOG_WARN};
    options.log = &w->log;
    test_ok(eb_manager_open(&w->m, l, &alloc, &options, &err), &err);
}

static struct eb_manager_stats stats_of(const struct world *w) {
    struct eb_manager_stats s;
    eb_manager_get_stats(&w->m, &s);
    return s;
}

static void audit(const struct world *w) {
    const char *wrong = eb_manager_audit(&w->m);
    if (wrong != NULL) fail_msg("%s", wrong);
    struct eb_manager_stats s = stats_of(w);
    assert_true(s.peak_bytes <= s.budget_bytes && s.made_bytes <= s.budget_bytes);
}

static void close_world(struct world *w) {
    audit(w);
    eb_manager_close(&w->m);
    assert_int_equal(w->n_held, 0);
}

/* n tokens that part number `part` stands for; no two parts begin alike. */
static uint32_t spell(int32_t *ids, uint32_t at, uint32_t part, uint32_t n) {
    struct test_rng r = {part};
    for (uint32_t i = 0; i < n; i++)
        ids[at + i] = i == 0 ? (int32_t)part : (int32_t)(test_u64(&r) % 100000);
    return at + n;
}

static void evaluate(struct eb_seq *s) {
    ebro_error err;
    while (s->n_done < s->n_tokens) {
        struct eb_seq_step step;
        uint32_t n = s->n_tokens - s->n_done;
        test_ok(eb_seq_begin(s, eb_seq_fit(s, n < CHUNK ? n : CHUNK), true, &step, &err), &err);
        eb_seq_commit(s, &step);
    }
}

/* A whole request. n_new tokens of part `reply` are generated; ids has room for them. */
static struct eb_reuse ask(struct world *w, int32_t *ids, uint32_t n, uint32_t reply,
                           uint32_t n_new) {
    ebro_error err;
    struct eb_seq *s = NULL;
    test_ok(eb_seq_open(&w->m, &s, &err), &err);
    test_ok(eb_seq_push(s, ids, n, 1, &err), &err);
    evaluate(s);
    spell(ids, n, reply, n_new);
    for (uint32_t i = 0; i < n_new; i++) {
        test_ok(eb_seq_push(s, ids + n + i, 1, 1, &err), &err);
        evaluate(s);
    }
    struct eb_reuse r = s->reuse;
    eb_seq_close(&s);
    return r;
}

/* Where a new prompt of these tokens would be gone on from. */
static uint32_t snapshot_at(struct world *w, const int32_t *ids, uint32_t n) {
    struct eb_match m = eb_prefix_match(&w->m.prefix, ids, n, n);
    return m.snapshot == NULL ? 0 : eb_node_end(m.snapshot);
}

/* ---- HD-13 --------------------------------------------------------------------------------- */

enum { SHARED = 1500, OWN = 700, N_GROUPS = 8, N_EACH = 8, PAGE = 528, SLOT = 16 };

/* Pages of 528 tokens; a state weighs as much as 16 of them. */
static struct eb_layout wide_layout(void) {
    return (struct eb_layout){.shape = {.n_mla_layers = 1, .n_kda_layers = 1},
                              .page_tokens = PAGE,
                              .block_bytes = 65536,
                              .row_bytes = 124,
                              .slot_blocks = SLOT};
}

static uint32_t group_prompt(int32_t *ids, uint32_t group, uint32_t request) {
    uint32_t n = spell(ids, 0, 1000 + group, SHARED);
    return spell(ids, n, 2000 + group * 100 + request, OWN);
}

static void flood(struct world *w, uint32_t n_prompts) {
    int32_t ids[MOST];
    for (uint32_t i = 0; i < n_prompts; i++) {
        uint32_t n = spell(ids, 0, 1000000 + i, 100 + i % 7 * 150);
        struct eb_reuse r = ask(w, ids, n, 0, 0);
        assert_int_equal(r.reused, 0);
    }
}

/* Of 8 groups of 8 requests, 6 of each group hit what they share; with 10,000 prompts that nobody
 * repeats after the third one of each, too. */
static void junctions(enum eb_policy_kind policy, uint32_t n_between) {
    struct world w = {0};
    struct eb_layout l = wide_layout();
    open_world(&w, &l,
               &(struct eb_manager_options){
                   .budget_bytes = 40 * (SLOT + 5) * l.block_bytes,
                   .keep = EB_KEEP_PROMPT_END | EB_KEEP_TURN_END | EB_KEEP_JUNCTION,
                   .policy = policy});
    int32_t ids[MOST];
    uint32_t hits = 0;
    for (uint32_t part = 0; part < 2; part++) {
        for (uint32_t g = 0; g < N_GROUPS; g++) {
            for (uint32_t i = part == 0 ? 0 : 3; i < (part == 0 ? 3 : N_EACH); i++) {
                uint32_t n = group_prompt(ids, g, i);
                struct eb_reuse r = ask(&w, ids, n, 5000 + g * 100 + i, 20);
                assert_int_equal(r.prompt, SHARED + OWN);
                assert_int_equal(r.matched, i == 0 ? 0 : SHARED);
                assert_int_equal(r.reused, i < 2 ? 0 : SHARED);
                assert_int_equal(r.miss, i == 0   ? EB_MISS_NEW
                                         : i == 1 ? EB_MISS_NO_SNAPSHOT
                                                  : EB_MISS_NONE);
                hits += r.reused > 0;
                /* before the last token of the prompt, and where the turn ended */
                assert_int_equal(snapshot_at(&w, ids, n), n - 1);
                assert_int_equal(snapshot_at(&w, ids, n + 20), n + 20);
            }
        }
        audit(&w);
        if (part == 0) flood(&w, n_between);
    }
    assert_int_equal(hits, 48);
    assert_true(stats_of(&w).evictions > 0);
    assert_int_equal(w.n_warnings, 0);
    close_world(&w);
}

static void hd13_junctions(void **state) {
    (void)state;
    junctions(EB_POLICY_LRU, 0);
    junctions(EB_POLICY_COST, 0);
}

static void hd13_one_offs_between(void **state) {
    (void)state;
    junctions(EB_POLICY_LRU, 10000);
    junctions(EB_POLICY_COST, 10000);
}

/* The interval alone: already the second request resumes, at most 512 tokens early. */
static void hd13_interval(void **state) {
    (void)state;
    for (int policy = EB_POLICY_LRU; policy <= EB_POLICY_COST; policy++) {
        struct world w = {0};
        struct eb_layout l = wide_layout();
        open_world(&w, &l,
                   &(struct eb_manager_options){.budget_bytes = 400 * (SLOT + 5) * l.block_bytes,
                                                .keep = EB_KEEP_PROMPT_END | EB_KEEP_INTERVAL,
                                                .interval = 512,
                                                .policy = (enum eb_policy_kind)policy});
        int32_t ids[MOST];
        for (uint32_t k = 0; k < N_GROUPS * N_EACH; k++) {
            uint32_t n = group_prompt(ids, k / N_EACH, k % N_EACH);
            struct eb_reuse r = ask(&w, ids, n, 0, 0);
            assert_int_equal(r.reused, k % N_EACH == 0 ? 0 : SHARED / 512 * 512);
            assert_true(r.matched - r.reused < 512 || k % N_EACH == 0);
            assert_int_equal(r.miss, k % N_EACH == 0 ? EB_MISS_NEW : EB_MISS_EARLIER);
        }
        close_world(&w);
    }
}

/* A budget that holds a sequence and no snapshot beside it: said once, counted each time. */
static void hd13_useless_warns_once(void **state) {
    (void)state;
    struct world w = {0};
    struct eb_layout l = wide_layout();
    open_world(&w, &l,
               &(struct eb_manager_options){.budget_bytes = (SLOT + 6) * l.block_bytes,
                                            .keep = EB_KEEP_PROMPT_END});
    int32_t ids[MOST];
    for (uint32_t i = 0; i < 5; i++) {
        struct eb_reuse r = ask(&w, ids, group_prompt(ids, 0, i), 0, 0);
        assert_int_equal(r.reused, 0);
    }
    assert_int_equal(w.n_warnings, 1);
    assert_non_null(strstr(w.warning, "no room for a snapshot"));
    assert_int_equal(stats_of(&w).snapshots_refused, 5);
    assert_int_equal(stats_of(&w).n_snapshots, 0);
    close_world(&w);
}

/* Where what is kept is worth more than a snapshot, it is refused without a warning: memory is not
 * what lacks. */
static void worth_less_is_no_warning(void **state) {
    (void)state;
    struct world w = {0};
    struct eb_layout l = wide_layout();
    /* Two prompts of two pages, each with a snapshot; then a step of a page and a state, and no
     * room for a state more. */
    open_world(&w, &l,
               &(struct eb_manager_options){.budget_bytes = (3 * SLOT + 8) * l.block_bytes,
                                            .keep = EB_KEEP_PROMPT_END,
                                            .policy = EB_POLICY_COST,
                                            .token_cost = 1.0});
    int32_t ids[MOST];
    ask(&w, ids, spell(ids, 0, 1, 2 * CHUNK), 0, 0);
    ask(&w, ids, spell(ids, 0, 2, 2 * CHUNK - 100), 0, 0);
    assert_int_equal(stats_of(&w).snapshots_refused, 0);
    ask(&w, ids, spell(ids, 0, 3, 20), 0, 0);
    assert_int_equal(stats_of(&w).snapshots_refused, 1);
    assert_int_equal(w.n_warnings, 0);
    close_world(&w);
}

/* ---- chats ---------------------------------------------------------------------------------- */

enum { N_CHATS = 8, N_TURNS = 10, N_ROUNDS = 12, USER = 90, REPLY = 30 };

/* Eight chats take turns, and new ones follow those that ended, in room for about four states of
 * each: turns that were gone on from, and chats that ended, make way for those that go on. */
static void chats_in_turn(void **state) {
    (void)state;
    for (int policy = EB_POLICY_LRU; policy <= EB_POLICY_COST; policy++) {
        struct world w = {0};
        struct eb_layout l = wide_layout();
        open_world(&w, &l,
                   &(struct eb_manager_options){.budget_bytes = 32 * (SLOT + 4) * l.block_bytes,
                                                .keep = ALL,
                                                .interval = 4096,
                                                .policy = (enum eb_policy_kind)policy});
        static int32_t ids[N_CHATS][MOST];
        uint32_t n_misses = 0;
        for (uint32_t round = 0; round < N_ROUNDS; round++) {
            uint32_t n[N_CHATS] = {0};
            for (uint32_t k = 0; k < N_TURNS * N_CHATS; k++) {
                uint32_t c = k % N_CHATS, part = 10 + 2 * (round * N_TURNS * N_CHATS + k);
                uint32_t before = n[c];
                n[c] = spell(ids[c], n[c], part, USER);
                struct eb_reuse r = ask(&w, ids[c], n[c], part + 1, REPLY);
                n[c] += REPLY;
                assert_int_equal(r.matched, before);
                n_misses += r.reused != before;
            }
            audit(&w);
        }
        assert_true(stats_of(&w).evictions > N_ROUNDS * N_TURNS * N_CHATS);
        struct eb_manager_stats st = stats_of(&w);
        print_message("%s: %llu of %llu tokens reused, %u turns not from where they could\n",
                      policy == EB_POLICY_COST ? "cost" : "lru",
                      (unsigned long long)st.reused_tokens, (unsigned long long)st.matched_tokens,
                      n_misses);
        /* by cost, the first turns of a chat weigh less than the last ones of those before it */
        if (policy == EB_POLICY_LRU) assert_int_equal(n_misses, 0);
        assert_true(10 * st.reused_tokens >= 9 * st.matched_tokens);
        close_world(&w);
    }
}

/* ---- HD-10 --------------------------------------------------------------------------------- */

static void hd10_where_to_resume(void **state) {
    (void)state;
    for (int policy = EB_POLICY_LRU; policy <= EB_POLICY_COST; policy++) {
        struct world w = {0};
        struct eb_layout l = wide_layout();
        open_world(&w, &l,
                   &(struct eb_manager_options){.budget_bytes = 200 * SLOT * l.block_bytes,
                                                .keep = ALL,
                                                .interval = 512,
                                                .policy = (enum eb_policy_kind)policy});
        int32_t ids[MOST];
        spell(ids, 0, 1, 6000);
        spell(ids, 6000, 2, 200);
        struct eb_reuse r = ask(&w, ids, 6200, 9, 30);
        assert_int_equal(r.reused, 0);
        assert_int_equal(r.miss, EB_MISS_NEW);
        /* Another end: the newest snapshot before 6,000 is that of the interval. */
        spell(ids, 6000, 3, 200);
        r = ask(&w, ids, 6200, 9, 30);
        assert_int_equal(r.matched, 6000);
        assert_int_equal(r.reused, 5632);
        assert_int_equal(r.miss, EB_MISS_EARLIER);
        /* The first one with its last 31 tokens changed. */
        spell(ids, 6000, 2, 200);
        spell(ids, 6169, 4, 31);
        r = ask(&w, ids, 6200, 9, 30);
        assert_int_equal(r.matched, 6169);
        assert_int_equal(r.reused, 6144);
        assert_int_equal(r.miss, EB_MISS_EARLIER);
        /* The second one again, with yet another end: now the junction is there. */
        spell(ids, 6000, 5, 200);
        r = ask(&w, ids, 6200, 9, 30);
        assert_int_equal(r.reused, 6000);
        assert_int_equal(r.miss, EB_MISS_NONE);
        /* The same prompt once more: all but the token whose logits are wanted. */
        r = ask(&w, ids, 6200, 9, 30);
        assert_int_equal(r.reused, 6199);
        assert_int_equal(r.miss, EB_MISS_NONE);
        /* A short chat, then one turn more. */
        spell(ids, 0, 6, 40);
        r = ask(&w, ids, 40, 7, 10);
        assert_int_equal(r.miss, EB_MISS_NEW);
        spell(ids, 50, 8, 20);
        r = ask(&w, ids, 70, 9, 10);
        assert_int_equal(r.matched, 50);
        assert_int_equal(r.reused, 50);
        assert_int_equal(r.miss, EB_MISS_NONE);
        close_world(&w);
    }
}

/* ---- HD-11 --------------------------------------------------------------------------------- */

enum { MIB = 1 << 20, N_SESSIONS = 40 };

/* States of 4 MiB, pages of 64 tokens in 256 KiB. */
static struct eb_layout mib_layout(void) {
    return (struct eb_layout){.shape = {.n_mla_layers = 1, .n_kda_layers = 1},
                              .page_tokens = 64,
                              .block_bytes = MIB / 4,
                              .row_bytes = 4096,
                              .slot_blocks = 16};
}

static void hd11_one_after_another(void **state) {
    (void)state;
    for (int policy = EB_POLICY_LRU; policy <= EB_POLICY_COST; policy++) {
        struct world w = {0};
        struct eb_layout l = mib_layout();
        open_world(&w, &l,
                   &(struct eb_manager_options){.budget_bytes = 64 * MIB,
                                                .keep = ALL,
                                                .interval = 4096,
                                                .policy = (enum eb_policy_kind)policy});
        int32_t ids[MOST];
        for (uint32_t i = 0; i < N_SESSIONS; i++) {
            ask(&w, ids, spell(ids, 0, 1 + i, 300), 1000 + i, 5);
            audit(&w);
            struct eb_manager_stats s = stats_of(&w);
            assert_true(s.kept_page_bytes + s.kept_state_bytes <= 64 * MIB);
            assert_int_equal(s.live_page_bytes + s.live_state_bytes, 0);
        }
        assert_true(stats_of(&w).evictions > 0 && stats_of(&w).n_snapshots >= 10);
        /* the oldest are gone, the last is there */
        assert_int_equal(snapshot_at(&w, ids, spell(ids, 0, N_SESSIONS, 300)), 299);
        assert_int_equal(snapshot_at(&w, ids, spell(ids, 0, 1, 300)), 0);
        close_world(&w);
    }
}

static void hd11_all_at_once(void **state) {
    (void)state;
    struct world w = {0};
    struct eb_layout l = mib_layout();
    struct eb_seq *seqs[N_SESSIONS];
    ebro_error err;
    int32_t ids[MOST];
    uint32_t n_live = 0;
    open_world(
        &w, &l,
        &(struct eb_manager_options){.budget_bytes = 64 * MIB, .keep = ALL, .interval = 4096});
    for (uint32_t i = 0; i < N_SESSIONS; i++) {
        test_ok(eb_seq_open(&w.m, &seqs[i], &err), &err);
        uint32_t n = spell(ids, 0, 1 + i, 300);
        int32_t st = eb_seq_push(seqs[i], ids, n, 1, &err);
        if (st == EBRO_OK) {
            evaluate(seqs[i]);
            n_live++;
        } else {
            /* 5 pages and a state are 21 blocks: 13 * 21 of 256 */
            test_fails(st, EBRO_NOMEM_DEVICE, &err, "300 tokens beside 12 others needs 71565312");
            test_fails(st, EBRO_NOMEM_DEVICE, &err, "67108864 are allowed");
            assert_int_equal(seqs[i]->n_tokens, 0);
        }
        audit(&w);
    }
    assert_int_equal(n_live, 12);
    for (uint32_t i = 0; i < N_SESSIONS; i++) eb_seq_close(&seqs[i]);
    close_world(&w);
}

static void hd11_off_keeps_nothing(void **state) {
    (void)state;
    struct world w = {0};
    struct eb_layout l = mib_layout();
    open_world(&w, &l, &(struct eb_manager_options){.budget_bytes = 64 * MIB});
    int32_t ids[MOST];
    for (uint32_t i = 0; i < 6; i++) {
        struct eb_reuse r = ask(&w, ids, spell(ids, 0, 1, 300), 2, 5);
        assert_int_equal(r.reused, 0);
        assert_int_equal(r.miss, EB_MISS_OFF);
        struct eb_manager_stats s = stats_of(&w);
        assert_int_equal(s.kept_page_bytes + s.kept_state_bytes, 0);
        assert_int_equal(s.n_snapshots + s.n_nodes + s.noted_tokens, 0);
    }
    ebro_error err;
    struct eb_manager none;
    struct eb_manager_options o = {.budget_bytes = MIB};
    /* a state and a page are 17 blocks */
    test_fails(eb_manager_open(&none, &l, &w.m.alloc, &o, &err), EBRO_NOMEM_DEVICE, &err,
               "1048576 bytes holds no sequence: one of a single token needs 4456448");
    close_world(&w);
}

/* ---- HD-12 --------------------------------------------------------------------------------- */

enum { POOL = 8 };

/* Create, step, cancel, restore, fork, close. */
static void cycle(struct world *w) {
    ebro_error err;
    struct eb_seq *seqs[POOL + 1] = {0};
    int32_t ids[MOST];
    for (uint32_t i = 0; i < POOL; i++) {
        struct eb_seq_step step;
        spell(ids, 0, 1, 150);
        spell(ids, 150, 2 + i % 3, 60);
        test_ok(eb_seq_open(&w->m, &seqs[i], &err), &err);
        test_ok(eb_seq_push(seqs[i], ids, 210, 1, &err), &err);
        test_ok(eb_seq_begin(seqs[i], 1, false, &step, &err), &err);
        eb_seq_abort(seqs[i], &step, true);
        evaluate(seqs[i]);
        if (i % 3 == 1) test_ok(eb_seq_cut(seqs[i], 200, &err), &err);
    }
    test_ok(eb_seq_copy(seqs[0], &seqs[POOL], &err), &err);
    test_ok(eb_seq_push(seqs[POOL], ids, 10, 1, &err), &err);
    for (uint32_t i = 0; i <= POOL; i++) eb_seq_close(&seqs[i]);
}

struct counts {
    struct eb_manager_stats s;
    uint32_t n_made, n_free, n_live, n_kept;
    size_t n_held;
};

static struct counts count(struct world *w) {
    struct counts c = {.n_made = w->m.blocks.n_made,
                       .n_free = w->m.blocks.n_free,
                       .n_live = w->m.blocks.n_live,
                       .n_kept = w->m.blocks.n_kept,
                       .n_held = w->n_held};
    c.s = stats_of(w);
    /* what only grows */
    c.s.prompts = c.s.prompt_tokens = c.s.matched_tokens = c.s.reused_tokens = 0;
    c.s.evaluated_tokens = c.s.snapshots_kept = c.s.snapshots_refused = c.s.evictions = 0;
    c.s.copied_pages = 0;
    memset(c.s.misses, 0, sizeof c.s.misses);
    return c;
}

static void hd12_a_thousand_cycles(void **state) {
    (void)state;
    struct world w = {0};
    struct eb_layout l = mib_layout();
    open_world(
        &w, &l,
        &(struct eb_manager_options){.budget_bytes = (uint64_t)12 * (2 * 16 + 4) * l.block_bytes,
                                     .keep = ALL,
                                     .interval = 64});
    struct counts tenth[2], last[2];
    for (int i = 1; i <= 1000; i++) {
        cycle(&w);
        if (i == 10) tenth[0] = count(&w);
        if (i == 1000) last[0] = count(&w);
        if (i % 100 == 0) audit(&w);
        if (i != 10 && i != 1000) continue;
        eb_manager_clear(&w.m);
        *(i == 10 ? &tenth[1] : &last[1]) = count(&w);
        cycle(&w);
    }
    assert_memory_equal(&tenth[0], &last[0], sizeof *tenth);
    assert_memory_equal(&tenth[1], &last[1], sizeof *tenth);
    assert_int_equal(last[1].n_live + last[1].n_kept, 0);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(hd10_where_to_resume),
                                       cmocka_unit_test(hd11_one_after_another),
                                       cmocka_unit_test(hd11_all_at_once),
                                       cmocka_unit_test(hd11_off_keeps_nothing),
                                       cmocka_unit_test(hd12_a_thousand_cycles),
                                       cmocka_unit_test(hd13_junctions),
                                       cmocka_unit_test(hd13_one_offs_between),
                                       cmocka_unit_test(hd13_interval),
                                       cmocka_unit_test(hd13_useless_warns_once),
                                       cmocka_unit_test(worth_less_is_no_warning),
                                       cmocka_unit_test(chats_in_turn)};
    return cmocka_run_group_tests_name("mem/retention", tests, NULL, NULL);
}
