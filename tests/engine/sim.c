/* sim.c: what `ebro cache-sim` counts is what an engine counts: the same trace through both, under
 * tight budgets, for each policy and several retention points. And the reader of traces by hand. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "tests/harness/bench.h"
#include "tests/harness/test.h"
#include "tools/ebro/sim.h"

enum { N_CTX = 700, N_CHUNK = 64 };

struct fixture {
    struct test_bench at;
    ebro_model *demo, *model; /* the one at hand */
};

static int set_up(void **state) {
    static struct fixture f;
    test_bench_open(&f.at, "cpu");
    ebro_model_options mo = {.size = sizeof mo, .path = test_demo_dir()};
    ebro_error err;
    test_ok(ebro_model_open(f.at.rt, &mo, &f.demo, &err), &err);
    f.model = f.at.model;
    *state = &f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    ebro_model_close(&f->demo);
    test_bench_close(&f->at);
    return 0;
}

/* ---- the same trace through both --------------------------------------------------------- */

static struct eb_sim_trace read_text(const char *text) {
    ebro_error err;
    struct eb_sim_trace t = {0};
    char *copy = strdup(text);
    FILE *f = fmemopen(copy, strlen(copy), "rb");
    test_ok(eb_sim_read(f, "text", &t, &err), &err);
    fclose(f);
    free(copy);
    return t;
}

static struct eb_sim_trace make_trace(const struct eb_sim_load *load) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    assert_true(eb_sim_generate(load, f));
    fclose(f);
    struct eb_sim_trace t = read_text(text);
    free(text);
    return t;
}

static int32_t evaluate(ebro_engine *e, ebro_seq *s, ebro_error *err) {
    int32_t st = EBRO_OK;
    while (st == EBRO_OK && ebro_seq_pending(s) > 0) st = ebro_engine_step(e, err);
    return st;
}

/* One request, as a program around the engine would make it. */
static int32_t ask(ebro_engine *e, const struct eb_sim_walk *w, ebro_error *err) {
    ebro_seq *s = NULL;
    test_ok(ebro_seq_create(e, &s, err), err);
    int32_t st = ebro_seq_append(s, w->ids, w->n_prompt, 0, err);
    for (uint32_t i = 0; st == EBRO_OK && i < w->request->n_keep; i++) {
        uint32_t at = w->trace->keeps[w->request->first_keep + i];
        if (at > ebro_seq_length(s) && at <= w->n_prompt) st = ebro_seq_keep(s, at, err);
    }
    if (st == EBRO_OK) st = evaluate(e, s, err);
    for (uint32_t i = 0; st == EBRO_OK && i < w->n_reply && w->n_prompt + i < N_CTX; i++) {
        st = ebro_seq_append(s, w->ids + w->n_prompt + i, 1, 0, err);
        if (st == EBRO_OK) st = evaluate(e, s, err);
    }
    ebro_seq_destroy(&s);
    return st;
}

static int32_t no_progress(void *user, const char *label, float fraction) {
    (void)user, (void)label, (void)fraction;
    return 0;
}

static uint64_t run_engine(struct fixture *f, const struct eb_sim_trace *t,
                           const ebro_engine_options *o, ebro_memory *out, uint32_t vocab,
                           struct eb_layout *layout) {
    ebro_error err;
    ebro_engine *e = NULL;
    uint64_t n_refused = 0;
    int32_t st = EBRO_OK;
    test_ok(ebro_engine_open(f->model, f->at.device, o, &e, &err), &err);
    struct eb_sim_walk w = {.trace = t, .vocab = vocab};
    while (eb_sim_step(&w, &st, &err)) {
        if (w.n_prompt > N_CTX) {
            n_refused++;
            continue;
        }
        st = ask(e, &w, &err);
        assert_true(st == EBRO_OK || st == EBRO_NOMEM_DEVICE);
        n_refused += st != EBRO_OK;
    }
    test_ok(st == EBRO_NOMEM_DEVICE ? EBRO_OK : st, &err);
    eb_sim_walk_free(&w);
    *layout = e->layout;
    *out = (ebro_memory){.size = sizeof *out};
    ebro_engine_get_memory(e, out);
    ebro_engine_close(&e);
    return n_refused;
}

#define SAME(field) assert_int_equal(got.stats.field, want.field)

struct setting {
    int32_t keep; /* EBRO_KEEP_* */
    uint32_t interval;
    uint32_t states; /* of the budget, in states */
    bool cancellable;
    double depth_cost; /* with a token_cost of 1 */
};

/* Returns how many tokens were reused. */
static uint64_t compare(struct fixture *f, const struct eb_sim_trace *t, const struct setting *c,
                        int32_t policy) {
    ebro_error err;
    ebro_memory want;
    struct eb_layout layout;
    struct eb_shape shape = eb_engine_shape(f->model, EBRO_F32);
    test_ok(eb_layout_plan(&shape, &layout, &err), &err);
    ebro_engine_options o = {
        .size = sizeof o,
        .n_ctx = N_CTX,
        .n_chunk = N_CHUNK,
        .cache_dtype = EBRO_F32,
        .progress = c->cancellable ? no_progress : NULL,
        .memory_bytes = (uint64_t)c->states * layout.slot_blocks * layout.block_bytes,
        .keep = c->keep,
        .keep_interval = c->interval,
        .evict = policy,
        .token_cost = 1.0,
        .depth_cost = c->depth_cost};
    struct eb_sim_setting set = {
        .layout = layout,
        .options = {.budget_bytes = o.memory_bytes,
                    .keep = c->keep == EBRO_KEEP_NONE ? 0 : (uint32_t)c->keep,
                    .interval = c->interval,
                    .token_cost = 1.0,
                    .depth_cost = c->depth_cost,
                    .policy = policy == EBRO_EVICT_COST ? EB_POLICY_COST : EB_POLICY_LRU},
        .vocab = f->model->config.vocab_size,
        .n_chunk = N_CHUNK,
        .n_ctx = N_CTX,
        .cancellable = c->cancellable};
    struct eb_sim_result got;
    struct eb_layout real;
    uint64_t n_refused = run_engine(f, t, &o, &want, set.vocab, &real);
    test_ok(eb_sim_replay(t, &set, &got, &err), &err);
    assert_memory_equal(&real, &layout, sizeof layout);
    assert_int_equal(got.n_refused, n_refused);
    assert_true(got.saved_tokens <= got.stats.reused_tokens);
    if (n_refused == 0) {
        assert_int_equal(got.saved_tokens, got.stats.reused_tokens);
        assert_int_equal(got.asked_tokens, got.stats.prompt_tokens);
        assert_int_equal(got.refused_tokens, 0);
    } else {
        assert_true(got.refused_tokens > 0 && got.refused_tokens < got.asked_tokens);
        assert_true(got.asked_tokens <= got.stats.prompt_tokens + got.refused_tokens);
    }
    SAME(prompts);
    SAME(prompt_tokens);
    SAME(matched_tokens);
    SAME(reused_tokens);
    SAME(evaluated_tokens);
    SAME(snapshots_kept);
    SAME(snapshots_refused);
    SAME(evictions);
    SAME(copied_pages);
    SAME(peak_bytes);
    SAME(kept_page_bytes);
    SAME(kept_state_bytes);
    SAME(n_snapshots);
    for (int m = 0; m < EB_N_MISSES; m++) SAME(misses[m]);
    assert_int_equal(got.stats.made_bytes, want.taken_bytes);
    assert_true(want.peak_bytes <= o.memory_bytes);
    print_message(
        "keep 0x%x %s: %llu of %llu reused, %llu snapshots, %llu evictions, %llu "
        "refused\n",
        (unsigned)c->keep, policy == EBRO_EVICT_COST ? "cost" : "lru",
        (unsigned long long)want.reused_tokens, (unsigned long long)want.prompt_tokens,
        (unsigned long long)want.snapshots_kept, (unsigned long long)want.evictions,
        (unsigned long long)n_refused);
    if (c->keep == EBRO_KEEP_NONE)
        assert_int_equal(want.reused_tokens + want.snapshots_kept, 0);
    else
        assert_true(want.evictions > 0);
    return want.reused_tokens;
}

enum { ALL = EBRO_KEEP_PROMPT_END | EBRO_KEEP_TURN_END | EBRO_KEEP_INTERVAL | EBRO_KEEP_JUNCTION };

static struct eb_sim_load small_load(enum eb_sim_kind kind, uint32_t n_requests) {
    return (struct eb_sim_load){.kind = kind,
                                .n_requests = n_requests,
                                .n_sessions = 3,
                                .n_turns = 5,
                                .system = 90,
                                .user = 40,
                                .reply = 6,
                                .seed = test_seed()};
}

static void same_counters(void **state) {
    struct fixture *f = *state;
    static const struct setting settings[] = {
        {ALL, 50, 9, false, 1e-4},
        {ALL, 50, 9, true, 0.1},
        {EBRO_KEEP_PROMPT_END, 4096, 6, false, 1e-2},
        {EBRO_KEEP_TURN_END | EBRO_KEEP_JUNCTION, 1, 5, false, 0.0},
        {EBRO_KEEP_INTERVAL, 30, 7, true, 1e-4},
        {EBRO_KEEP_NONE, 1, 4, false, 1e-4}};
    for (int kind = EB_SIM_MULTI_TURN; kind <= EB_SIM_ONE_OFF; kind++) {
        struct eb_sim_load load = small_load((enum eb_sim_kind)kind, 30);
        struct eb_sim_trace t = make_trace(&load);
        assert_int_equal(t.n_requests, load.n_requests);
        /* Of prompts that nobody repeats nothing is reused: no place to compare policies. */
        size_t n = kind == EB_SIM_ONE_OFF ? 0 : sizeof settings / sizeof *settings;
        uint64_t reused = 0;
        for (size_t i = 0; i < n; i++) {
            reused += compare(f, &t, &settings[i], EBRO_EVICT_LRU);
            reused += compare(f, &t, &settings[i], EBRO_EVICT_COST);
        }
        assert_true(n == 0 || reused > 0);
        eb_sim_trace_free(&t);
    }
}

/* The same with the demo model: its block is another, its state weighs more, and what a simulation
 * knows of it is config.json alone. */
static void same_counters_demo(void **state) {
    struct fixture *f = *state;
    static const struct setting settings[] = {{ALL, 100, 6, false, 1e-4},
                                              {ALL, 100, 12, true, 0.1}};
    struct eb_sim_shape known;
    struct eb_shape shape = eb_engine_shape(f->demo, EBRO_F32);
    ebro_error err;
    test_ok(eb_sim_shape_read(test_demo_dir(), &known, &err), &err);
    known.shape.row_dtype = known.shape.state_dtype = EBRO_F32;
    assert_memory_equal(&known.shape, &shape, sizeof shape);
    assert_int_equal(known.vocab, f->demo->config.vocab_size);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    enum { REQUESTS = 12 }; /* each takes ten times as long */
#else
    enum { REQUESTS = 30 };
#endif
    f->model = f->demo;
    for (int kind = EB_SIM_MULTI_TURN; kind <= EB_SIM_SHARED_SYSTEM; kind++) {
        struct eb_sim_load load = small_load((enum eb_sim_kind)kind, REQUESTS);
        struct eb_sim_trace t = make_trace(&load);
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
            compare(f, &t, &settings[i], EBRO_EVICT_LRU);
            compare(f, &t, &settings[i], EBRO_EVICT_COST);
        }
        eb_sim_trace_free(&t);
    }
    f->model = f->at.model;
}

/* Costs are what was given, or are learned from the steps; those that make no sense are refused. */
static void costs(void **state) {
    struct fixture *f = *state;
    ebro_error err;
    ebro_memory m = {.size = sizeof m};
    for (int given = 0; given < 2; given++) {
        ebro_engine *e = NULL;
        ebro_seq *s = NULL;
        ebro_engine_options o = {.size = sizeof o, .n_ctx = N_CTX, .n_chunk = N_CHUNK};
        if (given) o.token_cost = 7.0, o.depth_cost = 0.25;
        test_ok(ebro_engine_open(f->at.model, f->at.device, &o, &e, &err), &err);
        ebro_engine_get_memory(e, &m);
        double token = m.token_cost, depth = m.depth_cost;
        int32_t ids[N_CTX] = {0};
        test_ok(ebro_seq_create(e, &s, &err), &err);
        test_ok(ebro_seq_append(s, ids, N_CTX, 0, &err), &err);
        test_ok(evaluate(e, s, &err), &err);
        ebro_engine_get_memory(e, &m);
        bool same = m.token_cost == token && m.depth_cost == depth;
        assert_true(given ? same && token == 7.0 && depth == 0.25 : !same);
        assert_true(m.token_cost > 0.0 && m.depth_cost >= 0.0);
        ebro_engine_close(&e);
    }
    static const double bad[][2] = {{0.0, 1.0},  {-1.0, 0.0}, {1.0, -1.0},     {1e-13, 0.0},
                                    {1e13, 0.0}, {1.0, 1e13}, {INFINITY, 0.0}, {1.0, NAN},
                                    {NAN, 0.0},  {0.0, NAN}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ebro_engine *e = NULL;
        ebro_engine_options o = {
            .size = sizeof o, .token_cost = bad[i][0], .depth_cost = bad[i][1]};
        test_fails(ebro_engine_open(f->at.model, f->at.device, &o, &e, &err), EBRO_INVALID, &err,
                   "token_cost");
        assert_null(e);
    }
}

/* Requests that no budget holds are refused by both alike, and named snapshots are kept by both. */
static void refusals_and_names(void **state) {
    static const char text[] =
        "{\"parts\": [[\"a\", 100]], \"generate\": 3, \"keep\": [40, 77]}\n"
        "{\"parts\": [[\"a\", 60], [\"b\", 20]], \"generate\": 2}\n"
        "{\"parts\": [[\"huge\", 690]], \"generate\": 30}\n"
        "{\"parts\": [[\"longer than the context\", 701]]}\n"
        "{\"parts\": [[\"a\", 100], [\"c\", 5]], \"generate\": [\"d\", 4]}\n"
        "{\"parts\": [[\"a\", 77], [\"e\", 50]]}\n"
        "{\"parts\": [[\"a\", 50]], \"keep\": [50]}\n"
        "{\"parts\": [[\"a\", 100]]}\n";
    struct eb_sim_trace t = read_text(text);
    static const struct setting tight = {EBRO_KEEP_PROMPT_END, 1, 4, false, 1e-4};
    compare(*state, &t, &tight, EBRO_EVICT_LRU);
    compare(*state, &t, &tight, EBRO_EVICT_COST);
    eb_sim_trace_free(&t);
}

/* ---- the reader --------------------------------------------------------------------------- */

static void spelled_out(void **state) {
    (void)state;
    ebro_error err;
    int32_t st;
    enum { VOCAB = 1000 };
    struct eb_sim_trace t = read_text(
        "{\"id\": 1, \"tokens\": [7, 8, 9], \"generate\": [5, 6]}\n"
        "\n"
        "{\"session\": \"s\", \"parts\": [[\"x\", 3], [1, 2]], \"generate\": [\"y\", 2]}\n"
        "{\"session\": \"s\", \"parts\": [[\"x\", 2, 1]]}\n"
        "{\"session\": \"s\", \"cut\": 4, \"parts\": [[3]], \"generate\": 2}\n");
    int32_t x[3], y[2];
    for (uint32_t i = 0; i < 3; i++) x[i] = eb_sim_token(eb_sim_name("x"), i, VOCAB);
    for (uint32_t i = 0; i < 2; i++) y[i] = eb_sim_token(eb_sim_name("y"), i, VOCAB);
    const int32_t want[4][10] = {{7, 8, 9, 5, 6},
                                 {x[0], x[1], x[2], 1, 2, y[0], y[1]},
                                 {x[0], x[1], x[2], 1, 2, y[0], y[1], x[1], x[2]},
                                 {x[0], x[1], x[2], 1, 3}};
    const uint32_t n_prompt[4] = {3, 5, 9, 5}, n_reply[4] = {2, 2, 0, 2};
    struct eb_sim_walk w = {.trace = &t, .vocab = VOCAB};
    for (int i = 0; i < 4; i++) {
        assert_true(eb_sim_step(&w, &st, &err));
        assert_int_equal(w.n_prompt, n_prompt[i]);
        assert_int_equal(w.n_reply, n_reply[i]);
        uint32_t known = i == 3 ? n_prompt[i] : n_prompt[i] + n_reply[i];
        assert_memory_equal(w.ids, want[i], known * sizeof *w.ids);
    }
    assert_false(eb_sim_step(&w, &st, &err));
    assert_int_equal(st, EBRO_OK);
    eb_sim_walk_free(&w);
    eb_sim_trace_free(&t);
}

static void refused_lines(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } bad[] = {{"{\"tokens\": [1]}\n[1]\n", "line 2: not a JSON object"},
               {"{\"tokens\": [1]", "line 1"},
               {"{\"tokens\": [1], \"tokens\": [1]}", "line 1"},
               {"{\"token\": [1]}", "\"token\" is none of"},
               {"{\"tokens\": [-1]}", "token id"},
               {"{\"tokens\": [1.5]}", "token id"},
               {"{\"tokens\": [1], \"parts\": []}", "not both"},
               {"{\"parts\": [\"a\"]}", "a part is"},
               {"{\"parts\": [[\"a\"]]}", "a part is"},
               {"{\"parts\": [[\"a\", 0]]}", "a part is"},
               {"{\"parts\": [[\"a\", 1, 2, 3]]}", "a part is"},
               {"{\"tokens\": [1], \"generate\": -1}", "\"generate\""},
               {"{\"tokens\": [1], \"cut\": 3}", "\"cut\""},
               {"{\"tokens\": [1], \"session\": 3}", "\"session\""},
               {"{\"tokens\": [1], \"keep\": [0]}", "\"keep\""}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ebro_error err;
        struct eb_sim_trace t = {0};
        char *copy = strdup(bad[i].text);
        FILE *f = fmemopen(copy, strlen(copy), "rb");
        test_fails(eb_sim_read(f, "text", &t, &err), EBRO_FORMAT, &err, bad[i].part);
        fclose(f);
        free(copy);
        eb_sim_trace_free(&t);
    }
}

static void refused_walks(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } bad[] = {{"{\"tokens\": []}", ", line 1: an empty prompt"},
               {"{\"tokens\": [1]}\n\n{\"tokens\": [50]}", ", line 3: token id 50"},
               {"{\"session\": \"a\", \"cut\": 1, \"tokens\": [1]}", "the session has 0"},
               {"{\"parts\": [[\"a\", 268435456], [\"a\", 1]]}", "more than"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ebro_error err;
        int32_t st = EBRO_OK;
        struct eb_sim_trace t = read_text(bad[i].text);
        struct eb_sim_walk w = {.trace = &t, .vocab = 50};
        while (eb_sim_step(&w, &st, &err)) continue;
        test_fails(st, EBRO_INVALID, &err, bad[i].part);
        eb_sim_walk_free(&w);
        eb_sim_trace_free(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spelled_out),        cmocka_unit_test(refused_lines),
        cmocka_unit_test(refused_walks),      cmocka_unit_test(same_counters),
        cmocka_unit_test(same_counters_demo), cmocka_unit_test(costs),
        cmocka_unit_test(refusals_and_names)};
    return cmocka_run_group_tests_name("engine/sim", tests, set_up, tear_down);
}
