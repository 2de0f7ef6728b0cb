/* sched.c: the scheduler with a real engine: many replies at once, each the same as alone (HD-07),
 * whatever is cancelled, refused or put back for want of memory beside it; text, tokens and
 * probabilities that end together (HD-23 e). */
#include "tools/serve/sched.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/harness/test.h"

enum { N_CTX = 512, N_SEQS = 4, MOST_TEXT = 8192, MOST_TOKENS = 512, VOCAB = 4352 };

struct fixture {
    ebro_runtime *rt;
    ebro_device *device;
    ebro_model *model;
    struct test_rng rng;
};

static int set_up(void **state) {
    static struct fixture f;
    ebro_error err;
    f.rng.s = test_seed();
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&ro, &f.rt, &err), &err);
    test_ok(ebro_device_open(f.rt, "cpu", &f.device, &err), &err);
    ebro_model_options mo = {.size = sizeof mo, .path = test_demo_dir()};
    test_ok(ebro_model_open(f.rt, &mo, &f.model, &err), &err);
    *state = &f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    ebro_model_close(&f->model);
    ebro_device_close(&f->device);
    ebro_runtime_close(&f->rt);
    return 0;
}

/* ---- a listener that writes down what it hears -------------------------------------------- */

struct heard {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    char text[MOST_TEXT];
    size_t n_text, n_reasoning; /* reasoning is counted, not kept */
    int32_t ids[MOST_TOKENS];
    float logprobs[MOST_TOKENS], best[MOST_TOKENS];
    uint32_t n_tokens, n_pieces, n_starts, n_ends;
    bool broken; /* it heard what it should not: looked at when it has ended, for no test can fail
                    from another thread */
    enum eb_finish how;
    struct eb_usage usage;
    ebro_error err;
    atomic_uint leave_after; /* gone once so many pieces were heard; UINT_MAX: stays */
    atomic_uint asked;       /* how often it was asked since it has gone */
};

static void hear_start(void *user, const struct eb_usage *usage) {
    struct heard *h = user;
    pthread_mutex_lock(&h->lock);
    h->n_starts++;
    h->usage = *usage;
    pthread_mutex_unlock(&h->lock);
}

static void hear_piece(void *user, const struct eb_piece *p) {
    struct heard *h = user;
    pthread_mutex_lock(&h->lock);
    h->broken = h->broken || h->n_starts != 1 || h->n_ends != 0 ||
                h->n_text + p->bytes > MOST_TEXT || h->n_tokens + p->n_tokens > MOST_TOKENS;
    if (p->kind == EB_PIECE_REASONING) h->n_reasoning += p->bytes;
    if (!h->broken && p->kind == EB_PIECE_CONTENT) {
        memcpy(h->text + h->n_text, p->text, p->bytes);
        h->n_text += p->bytes;
    }
    for (uint32_t i = 0; !h->broken && i < p->n_tokens; i++) {
        h->ids[h->n_tokens] = p->tokens[i].chosen.id;
        h->logprobs[h->n_tokens] = p->tokens[i].chosen.logprob;
        h->best[h->n_tokens] = p->tokens[i].n_top > 0 ? p->tokens[i].top[0].logprob : 1.0f;
        for (uint32_t k = 1; k < p->tokens[i].n_top; k++)
            h->broken = h->broken || p->tokens[i].top[k].logprob > p->tokens[i].top[k - 1].logprob;
        h->n_tokens++;
    }
    h->n_pieces++;
    pthread_mutex_unlock(&h->lock);
}

static void hear_finish(void *user, enum eb_finish how, const struct eb_usage *usage,
                        const ebro_error *err) {
    struct heard *h = user;
    pthread_mutex_lock(&h->lock);
    h->how = how;
    h->usage = *usage;
    if (err != NULL) h->err = *err;
    h->n_ends++;
    pthread_cond_broadcast(&h->wake);
    pthread_mutex_unlock(&h->lock);
}

static bool hear_gone(void *user) {
    struct heard *h = user;
    pthread_mutex_lock(&h->lock);
    bool gone = h->n_pieces >= h->leave_after;
    pthread_mutex_unlock(&h->lock);
    if (gone) atomic_fetch_add(&h->asked, 1);
    return gone;
}

static struct heard *heard_create(void) {
    struct heard *h = calloc(1, sizeof *h);
    assert_non_null(h);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->wake, NULL);
    h->leave_after = UINT32_MAX;
    return h;
}

static void heard_free(struct heard *h) {
    pthread_cond_destroy(&h->wake);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

static struct eb_listener listener(struct heard *h) {
    return (struct eb_listener){h, hear_start, hear_piece, hear_finish, hear_gone};
}

/* Waits for the end, which comes once. */
static void await(struct heard *h) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 600;
    pthread_mutex_lock(&h->lock);
    while (h->n_ends == 0) assert_int_equal(pthread_cond_timedwait(&h->wake, &h->lock, &until), 0);
    assert_int_equal(h->n_ends, 1);
    assert_false(h->broken);
    pthread_mutex_unlock(&h->lock);
}

/* ---- a scheduler on a strict engine ------------------------------------------------------- */

struct house {
    ebro_engine *engine;
    struct eb_sched *sched;
};

static void open_house(struct fixture *f, struct house *h, uint32_t n_seqs, uint32_t n_queue,
                       uint64_t memory_bytes) {
    ebro_error err;
    ebro_engine_options eo = {.size = sizeof eo,
                              .n_ctx = N_CTX,
                              .n_chunk = 64,
                              .cache_dtype = EBRO_F32,
                              .strict = 1,
                              .max_seqs = n_seqs,
                              .memory_bytes = memory_bytes};
    test_ok(ebro_engine_open(f->model, f->device, &eo, &h->engine, &err), &err);
    struct eb_sched_options so = {.runtime = f->rt,
                                  .model = f->model,
                                  .engine = h->engine,
                                  .n_seqs = n_seqs,
                                  .n_ctx = N_CTX,
                                  .n_chunk = 64,
                                  .n_queue = n_queue};
    test_ok(eb_sched_open(&so, &h->sched, &err), &err);
}

static void close_house(struct house *h) {
    eb_sched_close(&h->sched);
    ebro_engine_close(&h->engine);
}

static struct eb_sched_stats stats_of(struct house *h) {
    struct eb_sched_stats s;
    eb_sched_get_stats(h->sched, &s, NULL, 0);
    return s;
}

/* Ordinary tokens, so that text comes of them. */
static void random_prompt(struct fixture *f, int32_t *ids, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)(test_u64(&f->rng) % 4000);
}

/* Of tokens that have a text: a model that goes on past its end may write control tokens alone. */
static struct eb_job_spec long_reply(const int32_t *ids, uint32_t n, uint32_t n_new) {
    enum { FIRST_CONTROL = 4096, N_CONTROL = VOCAB - FIRST_CONTROL };
    static ebro_logit_bias never[N_CONTROL];
    for (int32_t i = 0; i < N_CONTROL; i++) never[i] = (ebro_logit_bias){FIRST_CONTROL + i, -1e9f};
    return (struct eb_job_spec){.ids = ids,
                                .n_ids = n,
                                .sampling = {.size = sizeof(ebro_sampling),
                                             .temperature = 0.8f,
                                             .biases = never,
                                             .n_biases = N_CONTROL},
                                .max_tokens = n_new,
                                .ignore_stop_tokens = true};
}

static void submit(struct house *h, const struct eb_job_spec *spec, struct heard *to) {
    ebro_error err;
    const struct eb_listener l = listener(to);
    test_ok(eb_sched_submit(h->sched, spec, &l, 1, &err), &err);
}

static struct heard *alone(struct fixture *f, const struct eb_job_spec *spec) {
    struct house h = {0};
    struct heard *heard = heard_create();
    open_house(f, &h, 1, 4, 0);
    submit(&h, spec, heard);
    await(heard);
    close_house(&h);
    return heard;
}

static void same_text(const struct heard *a, const struct heard *b) {
    assert_int_equal(a->how, b->how);
    assert_int_equal(a->n_text, b->n_text);
    assert_memory_equal(a->text, b->text, a->n_text);
    assert_int_equal(a->usage.completion_tokens, b->usage.completion_tokens);
}

/* ---- tests -------------------------------------------------------------------------------- */

/* The thread sanitizer makes every step take thirty times as long. */
#if defined(__SANITIZE_THREAD__)
enum { N_JOBS = 5, MOST_PROMPT = 40, STOP_STRIDE = 40 };
#else
enum { N_JOBS = 10, MOST_PROMPT = 200, STOP_STRIDE = 1 };
#endif

struct jobs {
    int32_t ids[N_JOBS][MOST_PROMPT];
    struct eb_job_spec spec[N_JOBS];
    struct heard *alone[N_JOBS], *beside[N_JOBS];
};

static void make_jobs(struct fixture *f, struct jobs *j) {
    for (uint32_t i = 0; i < N_JOBS; i++) {
        uint32_t n = 1 + (uint32_t)(test_u64(&f->rng) % MOST_PROMPT);
        random_prompt(f, j->ids[i], n);
        j->spec[i] = long_reply(j->ids[i], n, 1 + (uint32_t)(test_u64(&f->rng) % 60));
        j->spec[i].sampling.seed = test_u64(&f->rng);
        j->alone[i] = alone(f, &j->spec[i]);
        j->beside[i] = heard_create();
    }
}

static void free_jobs(struct jobs *j) {
    for (uint32_t i = 0; i < N_JOBS; i++) heard_free(j->alone[i]), heard_free(j->beside[i]);
}

static void beside_others(void **state) {
    struct fixture *f = *state;
    struct house h = {0};
    static struct jobs j;
    make_jobs(f, &j);
    open_house(f, &h, N_SEQS, N_JOBS, 0);
    for (uint32_t i = 0; i < N_JOBS; i++) submit(&h, &j.spec[i], j.beside[i]);
    for (uint32_t i = 0; i < N_JOBS; i++) {
        await(j.beside[i]);
        same_text(j.alone[i], j.beside[i]);
        assert_int_equal(j.beside[i]->usage.prompt_tokens, j.spec[i].n_ids);
    }
    struct eb_sched_stats s = stats_of(&h);
    assert_int_equal(s.submitted, N_JOBS);
    assert_true(s.step_sequences > s.steps);
    close_house(&h);
    free_jobs(&j);
}

/* Some leave at once, some while they are read, some in the middle of their reply: they end
 * cancelled, within a step, and the others are as they are alone. */
static void beside_some_that_leave(void **state) {
    struct fixture *f = *state;
    struct house h = {0};
    static struct jobs j;
    uint32_t n_left = 0;
    make_jobs(f, &j);
    open_house(f, &h, N_SEQS, N_JOBS, 0);
    for (uint32_t i = 0; i < N_JOBS; i++) {
        if (i % 3 == 1) j.beside[i]->leave_after = (uint32_t)(test_u64(&f->rng) % 5);
        submit(&h, &j.spec[i], j.beside[i]);
    }
    for (uint32_t i = 0; i < N_JOBS; i++) {
        await(j.beside[i]);
        if (j.beside[i]->how != EB_FINISH_CANCELLED) {
            same_text(j.alone[i], j.beside[i]);
            continue;
        }
        n_left++;
        assert_int_equal(j.beside[i]->asked, 1);
        assert_true(j.beside[i]->n_pieces >= j.beside[i]->leave_after);
        assert_true(j.beside[i]->n_pieces <= j.beside[i]->leave_after + 1);
    }
    assert_true(n_left > 0 || j.beside[1]->usage.completion_tokens < 5);
    close_house(&h);
    free_jobs(&j);
}

/* Too little memory for all that come in: the youngest is put back, goes on later, and nobody can
 * tell from what was written. */
static void with_little_memory(void **state) {
    enum { N = 4 };
    struct fixture *f = *state;
    struct house h = {0};
    ebro_error err;
    int32_t ids[N][60];
    struct eb_job_spec spec[N];
    struct heard *want[N], *got[N];
    ebro_estimate one = {.size = sizeof one}, two = {.size = sizeof two};
    ebro_engine_options eo = {.size = sizeof eo, .n_ctx = N_CTX, .cache_dtype = EBRO_F32};
    test_ok(ebro_model_estimate(f->model, f->device, &eo, &one, &err), &err);
    eo.max_seqs = 2;
    test_ok(ebro_model_estimate(f->model, f->device, &eo, &two, &err), &err);
    uint64_t of_one = two.state_bytes + two.window_bytes + two.cache_bytes -
                      (one.state_bytes + one.window_bytes + one.cache_bytes);
    for (uint32_t i = 0; i < N; i++) {
        random_prompt(f, ids[i], 60);
        spec[i] = long_reply(ids[i], 60, 400);
        spec[i].sampling.seed = i;
        want[i] = alone(f, &spec[i]);
        got[i] = heard_create();
    }
    /* All four prompts find room, but not all that is written after them. */
    open_house(f, &h, N, N, of_one * 5 / 2);
    for (uint32_t i = 0; i < N; i++) submit(&h, &spec[i], got[i]);
    for (uint32_t i = 0; i < N; i++) {
        await(got[i]);
        if (got[i]->how == EB_FINISH_ERROR) fail_msg("%s", got[i]->err.text);
        same_text(want[i], got[i]);
        heard_free(want[i]);
        heard_free(got[i]);
    }
    print_message("%llu put back\n", (unsigned long long)stats_of(&h).preempted);
    assert_true(stats_of(&h).preempted > 0);
    close_house(&h);
}

/* Choices of one request share its prompt and draw with seeds of their own. */
static void choices(void **state) {
    enum { N = 3, PROMPT = 150 };
    struct fixture *f = *state;
    struct house h = {0};
    ebro_error err;
    int32_t ids[PROMPT];
    struct heard *got[N];
    struct eb_listener l[N];
    random_prompt(f, ids, PROMPT);
    struct eb_job_spec spec = long_reply(ids, PROMPT, 20);
    spec.sampling.seed = 70;
    for (uint32_t i = 0; i < N; i++) got[i] = heard_create(), l[i] = listener(got[i]);
    open_house(f, &h, N_SEQS, N, 0);
    test_ok(eb_sched_submit(h.sched, &spec, l, N, &err), &err);
    for (uint32_t i = 0; i < N; i++) {
        await(got[i]);
        struct eb_job_spec one = spec;
        one.sampling.seed += i;
        struct heard *want = alone(f, &one);
        same_text(want, got[i]);
        heard_free(want);
        assert_int_equal(got[i]->usage.cached_tokens, i == 0 ? 0 : PROMPT - 1);
    }
    assert_true(got[0]->n_text != got[1]->n_text ||
                memcmp(got[0]->text, got[1]->text, got[0]->n_text) != 0);
    for (uint32_t i = 0; i < N; i++) heard_free(got[i]);
    close_house(&h);
}

/* What is refused is refused at once and with the reason; what runs goes on. */
static void refused(void **state) {
    struct fixture *f = *state;
    struct house h = {0};
    ebro_error err;
    static int32_t ids[N_CTX + 1];
    struct heard *first = heard_create(), *second = heard_create(), *third = heard_create();
    random_prompt(f, ids, N_CTX + 1);
    open_house(f, &h, 1, 1, 0);
    const struct eb_listener l = listener(third), three[3] = {l, l, l};
    struct eb_job_spec spec = long_reply(ids, 50, 60);
    submit(&h, &spec, first);
    submit(&h, &spec, second);
    test_fails(eb_sched_submit(h.sched, &spec, &l, 1, &err), EBRO_TIMEOUT, &err, "full");
    test_fails(eb_sched_submit(h.sched, &spec, three, 3, &err), EBRO_INVALID, &err, "3 replies");
    spec.n_ids = N_CTX;
    test_fails(eb_sched_submit(h.sched, &spec, &l, 1, &err), EBRO_INVALID, &err, "512 tokens");
    spec.n_ids = 0;
    test_fails(eb_sched_submit(h.sched, &spec, &l, 1, &err), EBRO_INVALID, &err, "empty");
    await(first);
    await(second);
    same_text(first, second);
    ids[0] = VOCAB;
    spec.n_ids = 1;
    submit(&h, &spec, third);
    await(third);
    assert_int_equal(third->how, EB_FINISH_ERROR);
    assert_non_null(strstr(third->err.text, "4351"));
    assert_int_equal(third->n_starts, 0);
    while (!eb_sched_drain(h.sched)) continue;
    test_fails(eb_sched_submit(h.sched, &spec, &l, 1, &err), EBRO_CANCELLED, &err, "end");
    assert_int_equal(third->n_ends, 1);
    close_house(&h);
    heard_free(first);
    heard_free(second);
    heard_free(third);
}

/* Prompt and reply together fill the context and go no further. */
static void full_context(void **state) {
    struct fixture *f = *state;
    static int32_t ids[N_CTX];
    random_prompt(f, ids, N_CTX);
    for (uint32_t n = N_CTX - 3; n < N_CTX; n++) {
        struct eb_job_spec spec = long_reply(ids, n, 0);
        struct heard *h = alone(f, &spec);
        assert_int_equal(h->how, EB_FINISH_LENGTH);
        assert_int_equal(h->usage.completion_tokens, N_CTX - n);
        heard_free(h);
    }
}

/* Tokens, probabilities and text end together, wherever a stop string cuts them, and the
 * probabilities are those of the logits, in float64. */
static void probabilities(void **state) {
    enum { N = 40, TOP = 5 };
    struct fixture *f = *state;
    int32_t ids[30];
    struct eb_job_spec spec = long_reply(ids, 30, N);
    spec.logprobs = true;
    spec.n_top = TOP;
    spec.sampling.temperature = 0.0f;
    spec.sampling.n_biases = 0;
    struct heard *all = NULL;
    /* One in which every token has a text, and is the likeliest of all. */
    for (int tries = 0; all == NULL && tries < 100; tries++) {
        random_prompt(f, ids, 30);
        all = alone(f, &spec);
        assert_true(all->n_tokens <= N);
        if (all->n_tokens == N) break;
        heard_free(all);
        all = NULL;
    }
    assert_non_null(all);
    size_t n_bytes = 0;
    for (uint32_t i = 0; i < N; i++) {
        size_t n = 0;
        const char *bytes = ebro_token_bytes(f->model, all->ids[i], &n, NULL);
        assert_memory_equal(bytes, all->text + n_bytes, n);
        n_bytes += n;
        assert_true(all->logprobs[i] <= 0.0f);
        assert_true(all->logprobs[i] == all->best[i]); /* greedy: the likeliest */
    }
    assert_int_equal(n_bytes, all->n_text);
    /* Stop texts from every place of it, three bytes long. */
    for (size_t at = 0; at + 3 <= all->n_text; at += STOP_STRIDE) {
        char stop[4] = {all->text[at], all->text[at + 1], all->text[at + 2], 0};
        const char *stops[1] = {stop};
        if (memchr(stop, 0, 3) != NULL) continue;
        spec.stops = stops;
        spec.n_stops = 1;
        struct heard *cut = alone(f, &spec);
        size_t first = 0;
        while (memcmp(all->text + first, stop, 3) != 0) first++;
        assert_int_equal(cut->how, EB_FINISH_STOP);
        assert_int_equal(cut->n_text, first);
        assert_memory_equal(cut->text, all->text, first);
        size_t told = 0, before = 0;
        for (uint32_t i = 0; i < cut->n_tokens; i++) {
            size_t n = 0;
            assert_int_equal(cut->ids[i], all->ids[i]);
            ebro_token_bytes(f->model, cut->ids[i], &n, NULL);
            before = told;
            told += n;
        }
        assert_true(told >= first && (first == 0 ? cut->n_tokens == 0 : before < first));
        heard_free(cut);
    }
    heard_free(all);
}

/* Control tokens are counted, but their names are no text. */
static void control_tokens(void **state) {
    struct fixture *f = *state;
    int32_t ids[4] = {1, 2, 3, 4};
    const ebro_logit_bias only = {ebro_token_bos(f->model), 1e9f};
    struct eb_job_spec spec = long_reply(ids, 4, 6);
    spec.sampling.biases = &only;
    spec.sampling.n_biases = 1;
    struct heard *h = alone(f, &spec);
    assert_int_equal(h->usage.completion_tokens, 6);
    assert_int_equal(h->n_text, 0);
    heard_free(h);
}

/* A long prompt beside a reply: the reply goes on with every step. */
static void nobody_starves(void **state) {
    struct fixture *f = *state;
    struct house h = {0};
    static int32_t ids[N_CTX];
    random_prompt(f, ids, N_CTX);
    struct eb_job_spec quick = long_reply(ids, 5, 400), slow = long_reply(ids, 450, 2);
    struct heard *a = heard_create(), *b = heard_create();
    open_house(f, &h, 2, 2, 0);
    slow.ids = ids + 10;
    submit(&h, &quick, a);
    for (uint32_t n = 0; n < 20;) {
        pthread_mutex_lock(&a->lock);
        n = a->n_pieces;
        pthread_mutex_unlock(&a->lock);
    }
    pthread_mutex_lock(&a->lock);
    uint32_t pieces = a->n_pieces;
    pthread_mutex_unlock(&a->lock);
    submit(&h, &slow, b);
    await(b);
    pthread_mutex_lock(&a->lock);
    uint32_t went_on = a->n_pieces - pieces;
    bool over = a->n_ends > 0;
    pthread_mutex_unlock(&a->lock);
    /* 450 tokens took at least 450 / 64 steps, each with one token of the other. */
    assert_true(over || went_on >= 5);
    await(a);
    close_house(&h);
    heard_free(a);
    heard_free(b);
}

/* Closing cancels what runs and waits, and every listener hears it once. */
static void closes_at_any_time(void **state) {
    struct fixture *f = *state;
    int32_t ids[100];
    random_prompt(f, ids, 100);
    struct eb_job_spec spec = long_reply(ids, 100, 300);
    for (int round = 0; round < 8; round++) {
        struct house h = {0};
        struct heard *got[6];
        open_house(f, &h, 2, 6, 0);
        for (int i = 0; i < 6; i++) submit(&h, &spec, got[i] = heard_create());
        struct timespec t = {0, (long)(test_u64(&f->rng) % 60000000)};
        nanosleep(&t, NULL);
        close_house(&h);
        for (int i = 0; i < 6; i++) {
            assert_int_equal(got[i]->n_ends, 1);
            heard_free(got[i]);
        }
    }
}

enum { MOST_IDS = 256 };

static size_t render(struct fixture *f, const char *const *texts, size_t n_texts, bool think,
                     int32_t *ids) {
    const ebro_chat_options o = {.size = sizeof o, .thinking = think};
    ebro_chat_message m[4];
    ebro_error err;
    size_t n = 0;
    for (size_t i = 0; i < n_texts; i++)
        m[i] = (ebro_chat_message){i % 2 == 0 ? "user" : "assistant", texts[i], NULL};
    test_ok(ebro_chat_tokenize(f->model, m, n_texts, &o, ids, MOST_IDS, &n, &err), &err);
    return n;
}

/* Two turns: the reply is the content alone, without marks, and the second prompt, which holds the
 * first one and its reply, is read from where that ended. */
static void conversation(void **state) {
    struct fixture *f = *state;
    struct house h = {0};
    int32_t ids[MOST_IDS];
    const char *texts[3] = {"Remember: the code for Mira is 4821. What is the code for Mira?", NULL,
                            "Thank you. What is the code for Mira?"};
    open_house(f, &h, 2, 2, 0);
    struct heard *first = heard_create(), *second = heard_create(), *thought = heard_create();
    struct eb_job_spec spec = {.ids = ids,
                               .n_ids = render(f, texts, 1, false, ids),
                               .sampling = {.size = sizeof spec.sampling},
                               .chat = true};
    submit(&h, &spec, first);
    await(first);
    assert_int_equal(first->how, EB_FINISH_STOP);
    assert_int_equal(first->n_text, 4);
    assert_memory_equal(first->text, "4821", 4);
    assert_int_equal(first->usage.reasoning_tokens, 0);
    texts[1] = "4821";
    spec.n_ids = render(f, texts, 3, false, ids);
    submit(&h, &spec, second);
    await(second);
    assert_int_equal(second->how, EB_FINISH_STOP);
    assert_true(second->usage.cached_tokens + 1 >=
                first->usage.prompt_tokens + first->usage.completion_tokens - 1);
    spec.n_ids = render(f, texts, 1, true, ids);
    spec.thinking = true;
    submit(&h, &spec, thought);
    await(thought);
    assert_int_equal(thought->how, EB_FINISH_STOP);
    assert_true(thought->n_reasoning > 0 && thought->usage.reasoning_tokens > 0);
    assert_true(thought->usage.reasoning_tokens < thought->usage.completion_tokens);
    print_message("thought %zu bytes, then said %.*s\n", thought->n_reasoning, (int)thought->n_text,
                  thought->text);
    close_house(&h);
    heard_free(first);
    heard_free(second);
    heard_free(thought);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beside_others),
        cmocka_unit_test(beside_some_that_leave),
        cmocka_unit_test(with_little_memory),
        cmocka_unit_test(choices),
        cmocka_unit_test(refused),
        cmocka_unit_test(full_context),
        cmocka_unit_test(probabilities),
        cmocka_unit_test(nobody_starves),
        cmocka_unit_test(control_tokens),
        cmocka_unit_test(closes_at_any_time),
        cmocka_unit_test(conversation),
    };
    return cmocka_run_group_tests_name("server/sched", tests, set_up, tear_down);
}
