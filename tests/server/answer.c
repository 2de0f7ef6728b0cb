/* answer.c: from what a listener is told to what a client reads (HD-23): whole and streamed answers
 * say the same for every cut of a reply, text is UTF-8 whatever a model writes, numbers stand
 * beside their tokens, and errors are told before and after an answer has begun. No scheduler: the
 * test plays its part. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"
#include "tools/serve/answer.h"
#include "tools/serve/buf.h"
#include "tools/serve/complete.h"

static ebro_runtime *rt;
static struct eb_service service;
static const char *const names[] = {"demo"};

static uint64_t seed(void *user) {
    (void)user;
    return 0xabcdef0123456789u;
}

static int set_up(void **state) {
    ebro_error err;
    ebro_model *model = NULL;
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&ro, &rt, &err), &err);
    ebro_model_options mo = {.size = sizeof mo, .path = test_demo_dir()};
    test_ok(ebro_model_open(rt, &mo, &model, &err), &err);
    ebro_model_get_info(model, &service.model);
    service.offer = (struct eb_offer){.model = model,
                                      .names = names,
                                      .n_names = 1,
                                      .n_ctx = 512,
                                      .n_vocab = service.model.vocab,
                                      .thinks = true,
                                      .seed = seed};
    (void)state;
    return 0;
}

static int tear_down(void **state) {
    ebro_model *model = (ebro_model *)(uintptr_t)service.offer.model;
    ebro_model_close(&model);
    ebro_runtime_close(&rt);
    (void)state;
    return 0;
}

/* ---- allocations that fail ---------------------------------------------------------------- */

void *__real_realloc(void *p, size_t n);
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);

static long allocations_left = -1; /* below 0: none fails */
static bool ran_out;

static bool runs_out(void) {
    if (allocations_left == 0) return ran_out = true;
    if (allocations_left > 0) allocations_left--;
    return false;
}

void *__wrap_realloc(void *p, size_t n) {
    return runs_out() ? NULL : __real_realloc(p, n);
}

void *__wrap_malloc(size_t n) {
    return runs_out() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size) {
    return runs_out() ? NULL : __real_calloc(n, size);
}

static void limit_allocations(long n) {
    ran_out = false;
    json_set_alloc_funcs(malloc, free); /* here: the ones above */
    allocations_left = n;
}

/* True where one failed. */
static bool lift_limit(void) {
    allocations_left = -1;
    return ran_out;
}

/* What the test itself keeps does not count. */
static bool keep(struct eb_buf *buf, const void *data, size_t n) {
    long left = allocations_left;
    allocations_left = -1;
    bool good = eb_buf_add(buf, data, n);
    allocations_left = left;
    return good;
}

/* ---- an exchange that writes down what it is answered ------------------------------------- */

struct fake {
    struct eb_exchange base;
    struct eb_buf out;
    int status, holders;
    bool begun, ended, left;
    size_t most; /* bytes that can be written */
};

static void fake_answer(struct eb_exchange *x, const struct eb_answer *a, char *body, size_t n) {
    struct fake *f = (struct fake *)(void *)x;
    assert_true(f->status == 0 && !f->begun);
    f->status = a->status;
    assert_true(keep(&f->out, body ? body : "", n));
    free(body);
}

static bool fake_begin(struct eb_exchange *x, const struct eb_answer *a) {
    struct fake *f = (struct fake *)(void *)x;
    assert_true(f->status == 0 && !f->begun);
    assert_string_equal(a->type, "text/event-stream");
    f->status = a->status;
    f->begun = true;
    return !f->left;
}

static bool fake_write(struct eb_exchange *x, const void *data, size_t n) {
    struct fake *f = (struct fake *)(void *)x;
    assert_true(f->begun && !f->ended);
    if (f->left || f->out.n + n > f->most) return false;
    return keep(&f->out, data, n);
}

static void fake_end(struct eb_exchange *x) {
    struct fake *f = (struct fake *)(void *)x;
    assert_true(f->begun && !f->ended);
    f->ended = true;
}

static bool fake_gone(struct eb_exchange *x) {
    return ((struct fake *)(void *)x)->left;
}

static void fake_hold(struct eb_exchange *x) {
    ((struct fake *)(void *)x)->holders++;
}

static void fake_release(struct eb_exchange *x) {
    ((struct fake *)(void *)x)->holders--;
}

static const struct eb_exchange_ops fake_ops = {fake_answer, fake_begin, fake_write,  fake_end,
                                                fake_gone,   fake_hold,  fake_release};

/* A request that is waiting for what the test has to say. */
struct talk {
    struct fake x;
    struct eb_listener to[EB_REQUEST_CHOICES];
    uint32_t n;
    struct eb_usage usage;
};

static void prepare_talk(struct talk *t, bool chat, const char *fields) {
    static char body[4096];
    snprintf(body, sizeof body, "{%s%s}",
             chat ? "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]" : "\"prompt\":\"Hi\"",
             fields);
    *t = (struct talk){.x = {.base = {.ops = &fake_ops, .body = body, .bytes = strlen(body)},
                             .most = SIZE_MAX / 2},
                       .usage = {.prompt_tokens = 10,
                                 .matched_tokens = 8,
                                 .cached_tokens = 7,
                                 .miss = "why not",
                                 .completion_tokens = 5,
                                 .reasoning_tokens = 2,
                                 .queue_seconds = 1,
                                 .prompt_seconds = 0.5,
                                 .decode_seconds = 0.25}};
}

static void open_talk(struct talk *t, bool chat, const char *fields) {
    struct eb_fault fault = {0};
    prepare_talk(t, chat, fields);
    struct eb_completion *c = eb_completion_open(&service, &t->x.base, chat, &fault);
    if (!c) fail_msg("%s: %s", t->x.base.body, fault.text);
    t->n = eb_completion_listeners(c, t->to);
}

static void say(struct talk *t, uint32_t to, enum eb_piece_kind kind, const char *text, size_t n,
                uint32_t call) {
    const struct eb_piece p = {.kind = kind, .text = text, .bytes = n, .call = call};
    t->to[to].piece(t->to[to].user, &p);
}

static void start(struct talk *t, uint32_t to) {
    t->to[to].start(t->to[to].user, &t->usage);
}

static void finish(struct talk *t, uint32_t to, enum eb_finish how, const ebro_error *err) {
    t->to[to].finish(t->to[to].user, how, &t->usage, err);
}

static void close_talk(struct talk *t) {
    assert_int_equal(t->x.holders, 0);
    eb_buf_free(&t->x.out);
}

static json_t *parse(const char *text, size_t n) {
    json_error_t why;
    json_t *value = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!value) fail_msg("no JSON: %s in %.*s", why.text, (int)n, text);
    return value;
}

/* "choices.0.message.content" */
static json_t *at(json_t *value, const char *path) {
    char part[64];
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, p);
        value = json_is_array(value) ? json_array_get(value, strtoul(part, NULL, 10))
                                     : json_object_get(value, part);
        if (!value) fail_msg("there is no %s", path);
        p += n + (p[n] == '.');
    }
    return value;
}

static void text_is(json_t *value, const char *path, const char *want) {
    assert_string_equal(json_string_value(at(value, path)), want);
}

static void number_is(json_t *value, const char *path, double want) {
    double is = json_number_value(at(value, path));
    if (fabs(is - want) > 1e-6 * fabs(want)) fail_msg("%s is %g and not %g", path, is, want);
}

/* ---- streams ------------------------------------------------------------------------------ */

/* The events of a stream, joined as a client joins them. */
struct joined {
    struct eb_buf content, reasoning, ids, names, arguments, finish;
    json_t *logprobs, *usage, *extras, *error;
    bool done;
    size_t n_events;
};

static void add_text(struct eb_buf *to, json_t *value) {
    if (value && !json_is_null(value))
        assert_true(eb_buf_add(to, json_string_value(value), json_string_length(value)));
}

static void join_calls(struct joined *j, json_t *calls) {
    json_t *call = NULL;
    size_t i = 0;
    json_array_foreach(calls, i, call) {
        json_t *function = json_object_get(call, "function");
        if (json_object_get(call, "id")) {
            text_is(call, "type", "function");
            assert_true(eb_buf_print(&j->arguments, "|"));
        }
        add_text(&j->ids, json_object_get(call, "id"));
        add_text(&j->names, json_object_get(function, "name"));
        add_text(&j->arguments, json_object_get(function, "arguments"));
    }
}

static void join_choice(struct joined *j, json_t *choice, bool chat) {
    json_t *delta = json_object_get(choice, chat ? "delta" : "text");
    json_t *logprobs = json_object_get(choice, "logprobs");
    assert_non_null(delta);
    if (!chat) add_text(&j->content, delta);
    add_text(&j->content, json_object_get(delta, "content"));
    add_text(&j->reasoning, json_object_get(delta, "reasoning_content"));
    join_calls(j, json_object_get(delta, "tool_calls"));
    add_text(&j->finish, json_object_get(choice, "finish_reason"));
    if (chat && json_is_object(logprobs))
        assert_int_equal(json_array_extend(j->logprobs, json_object_get(logprobs, "content")), 0);
}

static void join_event(struct joined *j, const char *text, size_t n, uint32_t index, bool chat) {
    if (n == 6 && memcmp(text, "[DONE]", 6) == 0) {
        j->done = true;
        return;
    }
    assert_false(j->done);
    json_t *event = parse(text, n), *choice = NULL;
    size_t i = 0;
    j->n_events++;
    if (json_object_get(event, "error")) {
        j->error = json_incref(json_object_get(event, "error"));
    } else {
        text_is(event, "object", chat ? "chat.completion.chunk" : "text_completion");
        text_is(event, "model", "demo");
        json_array_foreach(at(event, "choices"), i, choice) {
            if (json_integer_value(at(choice, "index")) == index) join_choice(j, choice, chat);
        }
        if (json_object_get(event, "usage")) j->usage = json_incref(at(event, "usage"));
        if (json_object_get(event, "ebro")) {
            json_decref(j->extras);
            j->extras = json_incref(at(event, "ebro"));
        }
    }
    json_decref(event);
}

static struct joined join(const struct fake *x, uint32_t index, bool chat) {
    struct joined j = {.logprobs = json_array()};
    assert_true(x->ended);
    for (const char *p = x->out.data; p && *p;) {
        const char *end = strstr(p, "\n\n");
        assert_true(end && strncmp(p, "data: ", 6) == 0);
        join_event(&j, p + 6, (size_t)(end - p) - 6, index, chat);
        p = end + 2;
    }
    return j;
}

static void free_joined(struct joined *j) {
    struct eb_buf *const all[] = {&j->content, &j->reasoning, &j->ids,
                                  &j->names,   &j->arguments, &j->finish};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) eb_buf_free(all[i]);
    json_decref(j->logprobs);
    json_decref(j->usage);
    json_decref(j->extras);
    json_decref(j->error);
}

static void same_text(const struct eb_buf *a, json_t *b) {
    size_t n = json_is_string(b) ? json_string_length(b) : 0;
    assert_int_equal(a->n, n);
    if (n > 0) assert_memory_equal(a->data, json_string_value(b), n);
}

/* ---- whole answers ------------------------------------------------------------------------ */

static void test_whole_chat(void **state) {
    struct talk t;
    (void)state;
    open_talk(&t, true, "");
    start(&t, 0);
    say(&t, 0, EB_PIECE_REASONING, "hm", 2, 0);
    say(&t, 0, EB_PIECE_CONTENT, "48", 2, 0);
    say(&t, 0, EB_PIECE_CONTENT, "21", 2, 0);
    assert_int_equal(t.x.status, 0);
    finish(&t, 0, EB_FINISH_STOP, NULL);
    assert_int_equal(t.x.status, 200);
    json_t *v = parse(t.x.out.data, t.x.out.n);
    text_is(v, "object", "chat.completion");
    text_is(v, "model", "demo");
    text_is(v, "choices.0.message.role", "assistant");
    text_is(v, "choices.0.message.content", "4821");
    text_is(v, "choices.0.message.reasoning_content", "hm");
    text_is(v, "choices.0.finish_reason", "stop");
    assert_true(json_is_null(at(v, "choices.0.logprobs")));
    assert_null(json_object_get(at(v, "choices.0.message"), "tool_calls"));
    number_is(v, "usage.prompt_tokens", 10);
    number_is(v, "usage.completion_tokens", 5);
    number_is(v, "usage.total_tokens", 15);
    number_is(v, "usage.prompt_tokens_details.cached_tokens", 7);
    number_is(v, "usage.completion_tokens_details.reasoning_tokens", 2);
    number_is(v, "ebro.queue_seconds", 1);
    number_is(v, "ebro.decode_tokens_per_second", 20);
    number_is(v, "ebro.prompt_tokens_per_second", 6);
    number_is(v, "ebro.matched_tokens", 8);
    text_is(v, "ebro.miss", "why not");
    json_decref(v);
    close_talk(&t);
}

static void test_several(void **state) {
    struct talk t;
    (void)state;
    open_talk(&t, true, ",\"n\":3");
    assert_int_equal(t.n, 3);
    for (uint32_t i = 0; i < 3; i++) start(&t, i);
    for (uint32_t i = 0; i < 3; i++) say(&t, i, EB_PIECE_CONTENT, &"abc"[i], 1, 0);
    finish(&t, 2, EB_FINISH_LENGTH, NULL);
    finish(&t, 0, EB_FINISH_STOP, NULL);
    assert_int_equal(t.x.status, 0);
    t.usage.decode_seconds = 2;
    finish(&t, 1, EB_FINISH_STOP, NULL);
    json_t *v = parse(t.x.out.data, t.x.out.n);
    text_is(v, "choices.0.message.content", "a");
    text_is(v, "choices.1.message.content", "b");
    text_is(v, "choices.2.message.content", "c");
    text_is(v, "choices.2.finish_reason", "length");
    number_is(v, "usage.prompt_tokens", 10);
    number_is(v, "usage.completion_tokens", 15);
    number_is(v, "ebro.decode_seconds", 2);
    json_decref(v);
    close_talk(&t);
}

/* ---- the same reply, cut in every way ----------------------------------------------------- */

struct part {
    enum eb_piece_kind kind;
    const char *text;
    uint32_t call;
    const char *id;
};
static const struct part parts[] = {
    {EB_PIECE_REASONING, "Grüße \xf0\x9f\x90\x8b thought", 0, NULL},
    {EB_PIECE_CONTENT, "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\xb3 \"\\\n\xff\xc3 z", 0, NULL},
    {EB_PIECE_TOOL_BEGIN, "get_weather", 0, "functions.get_weather:0"},
    {EB_PIECE_TOOL_ARGUMENTS, "{\"city\": \"K\xc3\xb6ln\", \"n\": [1, 2]}", 0, NULL},
    {EB_PIECE_TOOL_BEGIN, "put", 1, ""},
    {EB_PIECE_TOOL_ARGUMENTS, "{}", 1, NULL},
};
enum { N_PARTS = sizeof parts / sizeof *parts };

/* Where text may be cut: not within a character. Bytes that are none are whole by themselves. */
static bool may_cut(const char *text, size_t at) {
    return ((unsigned char)text[at] & 0xc0) != 0x80;
}

static void say_parts(struct talk *t, struct test_rng *rng) {
    for (size_t i = 0; i < N_PARTS; i++) {
        const struct part *p = &parts[i];
        size_t n = strlen(p->text), begin = 0;
        struct eb_piece piece = {.kind = p->kind, .call = p->call};
        if (p->id) {
            piece.id = p->id;
            piece.id_bytes = strlen(p->id);
        }
        for (size_t end = 1; end <= n; end++) {
            bool cut = p->kind != EB_PIECE_TOOL_BEGIN && rng && test_u64(rng) % 3 == 0;
            if (end < n && (!cut || !may_cut(p->text, end))) continue;
            piece.text = p->text + begin;
            piece.bytes = end - begin;
            t->to[0].piece(t->to[0].user, &piece);
            begin = end;
        }
    }
}

static void test_every_cut(void **state) {
    struct test_rng rng = {test_seed()};
    struct talk whole, streamed;
    (void)state;
    open_talk(&whole, true, "");
    start(&whole, 0);
    say_parts(&whole, NULL);
    finish(&whole, 0, EB_FINISH_TOOL_CALLS, NULL);
    json_t *v = parse(whole.x.out.data, whole.x.out.n), *m = at(v, "choices.0.message");
    text_is(m, "content", "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\xb3 \"\\\n\xef\xbf\xbd\xef\xbf\xbd z");
    text_is(m, "tool_calls.0.id", "functions.get_weather:0");
    text_is(m, "tool_calls.0.function.name", "get_weather");
    text_is(m, "tool_calls.0.function.arguments", parts[3].text);
    text_is(m, "tool_calls.1.function.name", "put");
    assert_memory_equal(json_string_value(at(m, "tool_calls.1.id")), "call_", 5);
    for (int round = 0; round < 300; round++) {
        open_talk(&streamed, true, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
        start(&streamed, 0);
        say_parts(&streamed, &rng);
        finish(&streamed, 0, EB_FINISH_TOOL_CALLS, NULL);
        struct joined j = join(&streamed.x, 0, true);
        assert_true(j.done && !j.error);
        same_text(&j.content, at(m, "content"));
        same_text(&j.reasoning, at(m, "reasoning_content"));
        assert_string_equal(j.names.data, "get_weatherput");
        assert_string_equal(j.arguments.data, "|{\"city\": \"K\xc3\xb6ln\", \"n\": [1, 2]}|{}");
        assert_string_equal(j.finish.data, "tool_calls");
        assert_true(json_equal(j.usage, at(v, "usage")) && json_equal(j.extras, at(v, "ebro")));
        free_joined(&j);
        close_talk(&streamed);
    }
    json_decref(v);
    close_talk(&whole);
}

/* Any bytes give a string, and the same one however they are cut between characters. */
static void test_any_bytes(void **state) {
    struct test_rng rng = {test_seed()};
    (void)state;
    for (int round = 0; round < 2000; round++) {
        char bytes[64];
        size_t n = test_u64(&rng) % sizeof bytes, cut = n > 0 ? test_u64(&rng) % n : 0;
        for (size_t i = 0; i < n; i++) {
            static const unsigned char often[] = {0xf0, 0x9f, 0xe2, 0x82, 0xac,
                                                  0xed, 0xc3, 0xa9, 0x80};
            uint64_t r = test_u64(&rng);
            bytes[i] = (char)(r % 3 ? often[(r >> 8) % sizeof often] : (unsigned char)(r >> 16));
        }
        while (cut < n && !may_cut(bytes, cut)) cut++;
        json_t *all = eb_json_text(bytes, n), *a = eb_json_text(bytes, cut);
        json_t *b = eb_json_text(bytes + cut, n - cut);
        /* jansson has a check of its own */
        json_t *checked = json_stringn(json_string_value(all), json_string_length(all));
        assert_non_null(checked);
        struct eb_buf joined = {0};
        add_text(&joined, a);
        add_text(&joined, b);
        same_text(&joined, all);
        eb_buf_free(&joined);
        json_decref(checked);
        json_decref(all);
        json_decref(a);
        json_decref(b);
    }
}

/* ---- tokens ------------------------------------------------------------------------------- */

static void say_tokens(struct talk *t, const int32_t *ids, uint32_t n) {
    struct eb_token_prob top[2] = {{.id = 11, .logprob = -0.5F}, {.id = 64, .logprob = -INFINITY}};
    struct eb_token_info infos[8];
    struct eb_buf text = {0};
    for (uint32_t i = 0; i < n; i++) {
        size_t bytes = 0;
        const char *piece = ebro_token_bytes(service.offer.model, ids[i], &bytes, NULL);
        assert_true(keep(&text, piece, bytes));
        infos[i] = (struct eb_token_info){
            .chosen = {.id = ids[i], .logprob = -(float)i}, .n_top = 2, .top = top};
    }
    const struct eb_piece p = {.kind = EB_PIECE_CONTENT,
                               .text = text.data,
                               .bytes = text.n,
                               .tokens = infos,
                               .n_tokens = n};
    t->to[0].piece(t->to[0].user, &p);
    eb_buf_free(&text);
}

static void check_tokens(json_t *list, const int32_t *ids, size_t n) {
    assert_int_equal(json_array_size(list), n);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = 0;
        const char *text = ebro_token_bytes(service.offer.model, ids[i], &bytes, NULL);
        json_t *one = json_array_get(list, i);
        assert_int_equal(json_array_size(at(one, "bytes")), bytes);
        for (size_t k = 0; k < bytes; k++)
            assert_int_equal(json_integer_value(json_array_get(at(one, "bytes"), k)),
                             (unsigned char)text[k]);
        assert_int_equal(json_array_size(at(one, "top_logprobs")), 2);
        number_is(one, "top_logprobs.0.logprob", -0.5);
        /* nothing else can be said of what cannot be */
        number_is(one, "top_logprobs.1.logprob", -9999);
    }
}

static void test_logprobs(void **state) {
    /* one of them is half a character */
    const int32_t ids[] = {3821, 187, 11}, more[] = {270};
    const int32_t all[] = {3821, 187, 11, 270};
    struct talk t;
    (void)state;
    open_talk(&t, true, ",\"logprobs\":true,\"top_logprobs\":2");
    start(&t, 0);
    say_tokens(&t, ids, 3);
    say_tokens(&t, more, 1);
    finish(&t, 0, EB_FINISH_STOP, NULL);
    json_t *v = parse(t.x.out.data, t.x.out.n);
    check_tokens(at(v, "choices.0.logprobs.content"), all, 4);
    number_is(v, "choices.0.logprobs.content.2.logprob", -2);
    json_decref(v);
    close_talk(&t);

    open_talk(&t, true, ",\"logprobs\":true,\"top_logprobs\":2,\"stream\":true");
    start(&t, 0);
    say_tokens(&t, ids, 3);
    say_tokens(&t, more, 1);
    finish(&t, 0, EB_FINISH_STOP, NULL);
    struct joined j = join(&t.x, 0, true);
    check_tokens(j.logprobs, all, 4);
    assert_true(j.done && !j.usage && j.extras);
    free_joined(&j);
    close_talk(&t);
}

/* A reply without a token has lists without one. */
static void test_no_tokens(void **state) {
    struct talk t;
    (void)state;
    for (int chat = 0; chat < 2; chat++) {
        open_talk(&t, chat, chat ? ",\"logprobs\":true" : ",\"logprobs\":1");
        start(&t, 0);
        finish(&t, 0, EB_FINISH_STOP, NULL);
        json_t *v = parse(t.x.out.data, t.x.out.n);
        assert_int_equal(json_array_size(at(
                             v, chat ? "choices.0.logprobs.content" : "choices.0.logprobs.tokens")),
                         0);
        json_decref(v);
        close_talk(&t);
    }
}

static void test_text(void **state) {
    const int32_t ids[] = {3821, 187, 11}, more[] = {270};
    struct talk t;
    (void)state;
    open_talk(&t, false, ",\"logprobs\":2");
    start(&t, 0);
    say_tokens(&t, ids, 3);
    say_tokens(&t, more, 1);
    finish(&t, 0, EB_FINISH_LENGTH, NULL);
    json_t *v = parse(t.x.out.data, t.x.out.n);
    text_is(v, "object", "text_completion");
    text_is(v, "choices.0.text", "Hello\xef\xbf\xbd, w");
    text_is(v, "choices.0.finish_reason", "length");
    text_is(v, "choices.0.logprobs.tokens.0", "Hello");
    number_is(v, "choices.0.logprobs.token_logprobs.1", -1);
    number_is(v, "choices.0.logprobs.text_offset.0", 0);
    number_is(v, "choices.0.logprobs.text_offset.1", 5);
    number_is(v, "choices.0.logprobs.text_offset.2", 6);
    number_is(v, "choices.0.logprobs.text_offset.3", 7);
    number_is(v, "choices.0.logprobs.top_logprobs.3.,", -0.5);
    assert_int_equal(json_array_size(at(v, "choices.0.logprobs.tokens")), 4);
    json_decref(v);
    close_talk(&t);

    open_talk(&t, false, ",\"stream\":true,\"n\":2");
    start(&t, 0);
    start(&t, 1);
    say(&t, 0, EB_PIECE_CONTENT, "one", 3, 0);
    say(&t, 1, EB_PIECE_CONTENT, "two", 3, 0);
    finish(&t, 0, EB_FINISH_STOP, NULL);
    finish(&t, 1, EB_FINISH_LENGTH, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        struct joined j = join(&t.x, i, false);
        assert_string_equal(j.content.data, i == 0 ? "one" : "two");
        assert_string_equal(j.finish.data, i == 0 ? "stop" : "length");
        assert_true(j.done);
        free_joined(&j);
    }
    close_talk(&t);
}

/* ---- errors ------------------------------------------------------------------------------- */

static void test_error_before(void **state) {
    const struct {
        int32_t status;
        int http;
    } cases[] = {{EBRO_NOMEM_DEVICE, 503}, {EBRO_DEVICE_LOST, 503}, {EBRO_NUMERIC, 500},
                 {EBRO_INTERNAL, 500},     {EBRO_NOMEM_HOST, 500},  {EBRO_INVALID, 500}};
    struct talk t;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int stream = 0; stream < 2; stream++) {
            const ebro_error err = {cases[i].status, "what went wrong"};
            open_talk(&t, true, stream ? ",\"stream\":true" : "");
            finish(&t, 0, EB_FINISH_ERROR, &err);
            assert_int_equal(t.x.status, cases[i].http);
            assert_false(t.x.begun);
            json_t *v = parse(t.x.out.data, t.x.out.n);
            text_is(v, "error.message", "what went wrong");
            text_is(v, "error.type", "server_error");
            json_decref(v);
            close_talk(&t);
        }
    }
}

static void test_error_after(void **state) {
    const ebro_error err = {EBRO_DEVICE_LOST, "it is gone"};
    struct talk t;
    (void)state;
    open_talk(&t, true, ",\"stream\":true,\"n\":2,\"stream_options\":{\"include_usage\":true}");
    start(&t, 0);
    start(&t, 1);
    say(&t, 0, EB_PIECE_CONTENT, "so far", 6, 0);
    assert_false(t.to[1].gone(t.to[1].user));
    finish(&t, 0, EB_FINISH_ERROR, &err);
    /* what nobody can use any more ends too */
    assert_true(t.to[1].gone(t.to[1].user));
    say(&t, 1, EB_PIECE_CONTENT, "more", 4, 0);
    finish(&t, 1, EB_FINISH_CANCELLED, NULL);
    struct joined j = join(&t.x, 0, true);
    assert_string_equal(j.content.data, "so far");
    assert_true(j.error && !j.done && !j.usage);
    text_is(j.error, "message", "it is gone");
    free_joined(&j);
    close_talk(&t);
}

static void test_cancelled(void **state) {
    struct talk t;
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        open_talk(&t, true, stream ? ",\"stream\":true" : "");
        start(&t, 0);
        t.x.left = true;
        assert_true(t.to[0].gone(t.to[0].user));
        finish(&t, 0, EB_FINISH_CANCELLED, NULL);
        assert_int_equal(t.x.status, stream ? 200 : 503);
        assert_int_equal(t.x.ended, stream);
        close_talk(&t);
    }
}

/* What cannot be written ends the reply. */
static void test_unwritable(void **state) {
    struct talk t;
    (void)state;
    open_talk(&t, true, ",\"stream\":true");
    start(&t, 0);
    assert_false(t.to[0].gone(t.to[0].user));
    t.x.most = t.x.out.n;
    say(&t, 0, EB_PIECE_CONTENT, "x", 1, 0);
    assert_true(t.to[0].gone(t.to[0].user));
    finish(&t, 0, EB_FINISH_CANCELLED, NULL);
    assert_true(t.x.ended);
    close_talk(&t);
}

/* ---- memory ------------------------------------------------------------------------------- */

/* A request, and all that is written, with allocation n and those behind it failing: 0: one failed
 * and that was told, 1: none did. */
static int answer_short_of_memory(long n, const char *fields, bool stream) {
    const int32_t ids[] = {3821};
    struct talk t;
    struct eb_fault fault = {0};
    prepare_talk(&t, true, fields);
    limit_allocations(n);
    struct eb_completion *c = eb_completion_open(&service, &t.x.base, true, &fault);
    if (c) {
        t.n = eb_completion_listeners(c, t.to);
        start(&t, 0);
        say_parts(&t, NULL);
        say_tokens(&t, ids, 1);
        finish(&t, 0, EB_FINISH_TOOL_CALLS, NULL);
    }
    bool good = !lift_limit();
    if (!c) {
        /* the JSON parser takes a token that it had no memory for for a wrong one */
        bool parsing = fault.status == 400 && (strstr(fault.text, "the body is no JSON") ||
                                               strstr(fault.text, "the conversation: line"));
        if (good || (fault.status != 500 && !parsing))
            fail_msg("allocation %ld: %d %s", n, fault.status, fault.text);
    } else if (stream && t.x.begun) {
        /* an event is whole or not there */
        struct joined j = join(&t.x, 0, true);
        assert_int_equal(j.done, good);
        free_joined(&j);
    } else {
        assert_int_equal(t.x.status, good ? 200 : 500);
    }
    close_talk(&t);
    return good;
}

static void test_no_memory(void **state) {
    struct test_rng rng = {test_seed()};
    static const struct {
        const char *fields;
        bool stream;
        uint64_t step; /* at most: a grammar takes many allocations */
    } cases[] = {
        {",\"logprobs\":true,\"top_logprobs\":2,\"stop\":[\"x\"],\"logit_bias\":{\"5\":1}", false,
         1},
        {",\"logprobs\":true,\"top_logprobs\":2,\"stream\":true,"
         "\"stream_options\":{\"include_usage\":true}",
         true, 1},
        {",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":"
         "\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}}}",
         false, 4},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        long n = 0, failed = 0;
        while (!answer_short_of_memory(n, cases[i].fields, cases[i].stream)) {
            n += 1 + (long)(test_u64(&rng) % cases[i].step);
            failed++;
            assert_true(n < 200000);
        }
        /* it did meet what it was after */
        assert_true(failed > 100);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_chat),  cmocka_unit_test(test_several),
        cmocka_unit_test(test_every_cut),   cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_logprobs),    cmocka_unit_test(test_no_tokens),
        cmocka_unit_test(test_text),        cmocka_unit_test(test_error_before),
        cmocka_unit_test(test_error_after), cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_unwritable),  cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("answer", tests, set_up, tear_down);
}
