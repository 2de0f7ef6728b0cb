/* soak.c: thousands of requests of every kind to one `ebro serve`, a third of them left at random
 * points, and clients that send garbage, or slowly, among them. Every other answer is the one that
 * its request gets alone (HD-07, HD-24). Afterwards nothing runs, nothing is lost count of, memory,
 * files and threads are what they were, and the server ends well.
 *
 * EBRO_TEST_SOAK: how many requests to each model, a few hundred where it is not set.
 * EBRO_TEST_SEED repeats what is asked, not when. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/micro.h"
#include "tests/harness/process.h"
#include "tests/harness/test.h"
#include "tests/load/client.h"
#include "tests/load/requests.h"
#include "tests/load/server.h"

enum {
    REQUESTS_DEMO = 200,
    REQUESTS_RANDOM = 1000,
    REQUESTS_SANITIZED = 150,
    LANES = 24, /* 8 are answered at once and 32 may wait: some are refused */
    GARBAGE = 4096,
    /* Fewer do not tell growth from what is still filled for the first time: the arena, pages of
     * the program and the model, memory of connections. */
    FLAT = 5000,
    /* Between a fifth of all requests and the end. 4 MiB is what heaps of a few threads may be torn
     * by; a request that left a kilobyte behind would be 8 MB after 8,000. */
    SLACK = 4 << 20
};

struct soak {
    /* options of the server; 8 replies of this context take more than that memory: some have to
     * wait for others' */
    const char *model, *context, *memory; /* model NULL: the demo */
    struct load_request *requests;
    uint32_t n_kinds;
    char **want; /* [n_kinds]: what each says alone */
    struct load_client *client;
    struct load_server server;
    struct test_rng rng;
    uint32_t n, n_started, n_left, n_busy, n_same, n_garbage, n_slow;
    int64_t resident; /* after a fifth of all */
};

struct visitor {
    struct soak *s;
    struct load_call call;
    const struct load_request *request; /* NULL: garbage */
    uint32_t lane;
    char garbage[GARBAGE];
};

static uint32_t below(struct soak *s, uint32_t n) {
    return (uint32_t)(test_u64(&s->rng) % n);
}

/* Strictly, and no reply longer than a few dozen tokens. */
static void start_server(struct soak *s, const char *const *more) {
    const char *options[20] = {"--strict", "-n", "48", "-c", s->context};
    size_t n = 5;
    if (s->model != NULL) {
        options[n++] = "-m";
        options[n++] = s->model;
    }
    for (; *more != NULL; more++) options[n++] = *more;
    load_server_start(&s->server, options);
}

/* ---- alone ------------------------------------------------------------------------------ */

static void keep_meaning(struct load_call *call, enum load_end how) {
    char **want = call->user;
    assert_int_equal(how, LOAD_DONE);
    *want = load_answer_meaning(call->status, call->body, call->is_stream);
    assert_non_null(*want);
}

/* A server that keeps nothing from one to the next. A stream says what the whole answer says. */
static void ask_alone(struct soak *s) {
    static const char *const options[] = {"--parallel", "1", "--keep", "none", NULL};
    start_server(s, options);
    s->client = load_client_open(s->server.port, 1);
    for (uint32_t i = 0; i < s->n_kinds; i++) {
        const struct load_request *r = &s->requests[i];
        struct load_call call = {.request = r->bytes,
                                 .n_request = r->n,
                                 .seconds = 300,
                                 .on_end = keep_meaning,
                                 .user = &s->want[i]};
        if (r->changes) continue;
        load_start(s->client, 0, &call);
        assert_true(load_run(s->client, 300));
        if (strcmp(s->want[i], s->want[r->same]) != 0)
            fail_msg("%s\nwhole: %s\nstreamed: %s", r->what, s->want[r->same], s->want[i]);
    }
    load_client_close(&s->client);
    assert_int_equal(load_server_stop(&s->server, 60), 0);
}

/* ---- all together ----------------------------------------------------------------------- */

static void check_answer(struct soak *s, const struct load_request *r, const struct load_call *call,
                         enum load_end how) {
    if (how == LOAD_LEFT) {
        s->n_left++;
        return;
    }
    if (how != LOAD_DONE)
        fail_msg("ended as %d with %d \"%s\": %s", (int)how, call->status, call->body, r->what);
    if (r->generates && call->status == 429) {
        s->n_busy++;
        return;
    }
    if (r->changes) {
        assert_int_equal(call->status, 200);
        return;
    }
    char *have = load_answer_meaning(call->status, call->body, call->is_stream);
    assert_non_null(have);
    if (strcmp(have, s->want[r->same]) != 0)
        fail_msg("%s\nalone: %s\nhere: %s", r->what, s->want[r->same], have);
    free(have);
    s->n_same++;
}

static void start_visit(struct visitor *v);

static void on_end(struct load_call *call, enum load_end how) {
    struct visitor *v = call->user;
    struct soak *s = v->s;
    if (v->request != NULL) check_answer(s, v->request, call, how);
    if (v->request == NULL && how == LOAD_LATE)
        fail_msg("garbage that is neither answered nor closed");
    if (s->n_started == s->n / 5 && s->resident == 0)
        s->resident = test_resident_bytes(s->server.pid);
    if (s->n_started < s->n) start_visit(v);
}

/* Any bytes, or a request with some of them wrong or missing. Its client waits a moment. */
static void make_garbage(struct visitor *v) {
    struct soak *s = v->s;
    const struct load_request *r = &s->requests[below(s, s->n_kinds)];
    size_t n = r->n < GARBAGE ? r->n : GARBAGE;
    memcpy(v->garbage, r->bytes, n);
    if (below(s, 2)) n = 1 + below(s, (uint32_t)n);
    uint32_t n_wrong = below(s, 4) == 0 ? (uint32_t)n : 1 + below(s, 8);
    for (uint32_t i = 0; i < n_wrong; i++)
        v->garbage[below(s, (uint32_t)n)] = (char)test_u64(&s->rng);
    v->request = NULL;
    v->call.request = v->garbage;
    v->call.n_request = n;
    v->call.last = true;
    v->call.leave_after = 0.05 + 0.001 * below(s, 200);
    s->n_garbage++;
}

/* Before all is sent, while it waits or is read, while it is answered. */
static void leave_somewhere(struct visitor *v) {
    struct soak *s = v->s;
    switch (below(s, 4)) {
        case 0:
            v->call.leave_sent = 1 + below(s, (uint32_t)v->call.n_request);
            break;
        case 1:
            v->call.leave_after = 1e-6 + 1e-3 * below(s, 10);
            break;
        case 2:
            v->call.leave_after = 1e-6 + 1e-3 * below(s, 200);
            break;
        default:
            v->call.leave_event = 1 + below(s, 6);
    }
}

static void start_visit(struct visitor *v) {
    struct soak *s = v->s;
    v->request = &s->requests[below(s, s->n_kinds)];
    v->call = (struct load_call){.request = v->request->bytes,
                                 .n_request = v->request->n,
                                 .seconds = 300,
                                 .on_end = on_end,
                                 .user = v};
    const uint32_t what = below(s, 100); /* some that mean to leave are answered before */
    if (what < 50) {
        leave_somewhere(v);
    } else if (what < 54) {
        make_garbage(v);
    } else if (what < 58) {
        v->call.drip = 20 + below(s, 200);
        v->call.pause = 1e-3 * below(s, 10);
        s->n_slow++;
    }
    s->n_started++;
    load_start(s->client, v->lane, &v->call);
}

/* ---- afterwards ------------------------------------------------------------------------- */

static void keep_json(struct load_call *call, enum load_end how) {
    json_error_t e;
    assert_int_equal(how, LOAD_DONE);
    assert_int_equal(call->status, 200);
    *(json_t **)call->user = json_loads(call->body, 0, &e);
}

static json_t *get_slots(struct soak *s) {
    size_t n = 0;
    json_t *out = NULL;
    char *request = load_request("/slots", NULL, &n);
    struct load_client *client = load_client_open(s->server.port, 1);
    struct load_call call = {.request = request, .n_request = n, .on_end = keep_json, .user = &out};
    load_start(client, 0, &call);
    assert_true(load_run(client, 60));
    load_client_close(&client);
    free(request);
    assert_non_null(out);
    return out;
}

static json_int_t number(const json_t *o, const char *group, const char *name) {
    return json_integer_value(json_object_get(group ? json_object_get(o, group) : o, name));
}

/* Within a few seconds: what was left is seen before the next step. */
static void wait_for_quiet(struct soak *s) {
    const double until = load_now() + (test_is_sanitized() ? 60 : 10);
    json_int_t busy = 1, live = 1;
    while ((busy != 0 || live != 0) && load_now() < until) {
        json_t *slots = get_slots(s);
        assert_string_equal(json_string_value(json_object_get(slots, "status")), "ok");
        busy = number(slots, NULL, "waiting") + number(slots, NULL, "running");
        live = number(slots, "memory", "live_page_bytes") +
               number(slots, "memory", "live_state_bytes");
        assert_true(number(slots, "memory", "peak_bytes") <=
                    number(slots, "memory", "budget_bytes"));
        if (busy == 0 && live == 0)
            print_message(
                "cache: %lld snapshots given up for memory, %lld of %lld prompt tokens "
                "reused\n",
                (long long)number(slots, "memory", "evictions"),
                (long long)number(slots, "reuse", "reused_tokens"),
                (long long)number(slots, "reuse", "prompt_tokens"));
        json_decref(slots);
    }
    assert_int_equal(busy, 0);
    assert_int_equal(live, 0);
}

/* A server closes what its clients have closed at its next look at it. */
static void wait_for_files(const struct soak *s, uint32_t files) {
    const double until = load_now() + 10;
    while (test_open_files(s->server.pid) != files && load_now() < until) continue;
    assert_int_equal(test_open_files(s->server.pid), files);
}

static void run_together(struct soak *s) {
    const char *const options[] = {"--parallel",     "8",  "--queue", "32", "--memory", s->memory,
                                   "--read-seconds", "60", NULL};
    static struct visitor visitors[LANES];
    start_server(s, options);
    const uint32_t files = test_open_files(s->server.pid), threads = test_threads(s->server.pid);
    s->client = load_client_open(s->server.port, LANES);
    for (uint32_t i = 0; i < LANES; i++) {
        visitors[i].s = s;
        visitors[i].lane = i;
        start_visit(&visitors[i]);
    }
    const double started = load_now();
    assert_true(load_run(s->client, 3000));
    print_message(
        "%u requests in %.0f s: %u answered as alone, %u left, %u refused for a full "
        "queue, %u of garbage, %u slow\n",
        s->n, load_now() - started, s->n_same, s->n_left, s->n_busy, s->n_garbage, s->n_slow);
    const int64_t grown = test_resident_bytes(s->server.pid) - s->resident;
    print_message("memory: %lld bytes after a fifth, %lld more after all\n", (long long)s->resident,
                  (long long)grown);
    load_client_close(&s->client);
    wait_for_quiet(s);
    wait_for_files(s, files);
    assert_int_equal(test_threads(s->server.pid), threads);
    if (!test_is_sanitized() && s->n >= FLAT) test_le((double)grown, SLACK, "growth of the server");
    assert_int_equal(load_server_stop(&s->server, 60), 0);
}

static void soak(const char *model, const char *context, const char *memory, uint32_t usual) {
    struct soak s = {.model = model, .context = context, .memory = memory};
    const char *n = getenv("EBRO_TEST_SOAK");
    s.rng.s = test_seed();
    s.n = n != NULL ? (uint32_t)strtoul(n, NULL, 10) : usual;
    assert_true(s.n >= LANES);
    s.requests = load_requests_make(&s.n_kinds);
    s.want = calloc(s.n_kinds, sizeof *s.want);
    assert_non_null(s.want);
    ask_alone(&s);
    run_together(&s);
    assert_true(s.n_same > 0 && s.n_left > 0);
    for (uint32_t i = 0; i < s.n_kinds; i++) free(s.want[i]);
    free(s.want);
    load_requests_free(&s.requests, s.n_kinds);
}

static void demo_model(void **state) {
    (void)state;
    if (test_is_sanitized()) {
        print_message("skipped: the demo model takes too long under a sanitizer\n");
        skip();
    }
    soak(NULL, "512", "24", REQUESTS_DEMO);
}

/* Random weights, a token for each byte: what it writes is mostly no UTF-8. */
static void random_model(void **state) {
    (void)state;
    const struct micro_spec spec = {
        .seed = 3, .family = MICRO_K3, .ffn = MICRO_LATENT, .attn_res_block = 2};
    char *dir = test_tmp_dir();
    micro_write(dir, &spec);
    soak(dir, "2048", "4", test_is_sanitized() ? REQUESTS_SANITIZED : REQUESTS_RANDOM);
    test_tmp_remove(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(demo_model),
        cmocka_unit_test(random_model),
    };
    return cmocka_run_group_tests_name("load/soak", tests, NULL, NULL);
}
