/* complete.c: see complete.h. All that a listener is told comes from one thread, the engine's, so
 * the replies of a request need no lock among them. */
#include "complete.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "buf.h"

/* A tool call that is being written. */
struct call {
    struct eb_buf id, name, arguments;
};

/* One reply. What is written is kept where the answer is whole, or is to be logged. */
struct choice {
    struct eb_completion *all;
    uint32_t index;
    struct eb_buf content, reasoning;
    struct call *calls;
    uint32_t n_calls;
    json_t *tokens;     /* of a whole answer with logprobs */
    size_t text_offset; /* of a text: characters so far */
    enum eb_finish how;
    struct eb_usage usage;
};

struct eb_completion {
    const struct eb_service *service;
    struct eb_exchange *x;
    struct eb_request request;
    char id[48];
    json_int_t created;
    bool keeps;  /* what is written */
    bool begun;  /* a stream: its first event is out */
    bool failed; /* see fault; nothing more is sent */
    struct eb_fault fault;
    uint32_t n_open; /* replies that have not finished */
    struct choice choices[EB_REQUEST_CHOICES];
};

/* ---- sending ------------------------------------------------------------------------------ */

static void fail(struct eb_completion *c, const struct eb_fault *fault) {
    if (c->failed) return; /* the first one is the one to tell */
    c->failed = true;
    c->fault = *fault;
}

static void fail_memory(struct eb_completion *c) {
    struct eb_fault fault;
    eb_fault_no_memory(&fault);
    fail(c, &fault);
}

/* One event; takes over the value. */
static bool write_event(struct eb_completion *c, json_t *value) {
    static const char head[] = "data: ", tail[] = "\n\n";
    struct eb_buf buf = {0};
    char *text = value ? json_dumps(value, EB_JSON_FORM) : NULL;
    json_decref(value);
    bool good = text && eb_buf_add(&buf, head, sizeof head - 1) &&
                eb_buf_add(&buf, text, strlen(text)) && eb_buf_add(&buf, tail, sizeof tail - 1) &&
                c->x->ops->write(c->x, buf.data, buf.n);
    free(text);
    eb_buf_free(&buf);
    return good;
}

static void send_event(struct eb_completion *c, json_t *value) {
    if (c->failed) {
        json_decref(value);
    } else if (!write_event(c, value)) {
        fail_memory(c);
    }
}

static const char *object_name(const struct eb_completion *c) {
    if (!c->request.chat) return "text_completion";
    return c->request.stream ? "chat.completion.chunk" : "chat.completion";
}

/* The frame of every answer; takes over the choices. */
static json_t *frame(const struct eb_completion *c, json_t *choices) {
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", c->id, "object", object_name(c), "created",
                     c->created, "model", c->service->offer.names[0], "choices", choices);
}

/* A chunk of one reply: takes over what is new in it (`key` is "delta" or "text") and the logprobs,
 * NULL: none. finish: NULL: it goes on. */
static json_t *chunk(const struct choice *r, json_t *news, json_t *logprobs, const char *finish) {
    const struct eb_completion *c = r->all;
    json_t *choice = json_pack("{s:I, s:o, s:o, s:s?}", "index", (json_int_t)r->index,
                               c->request.chat ? "delta" : "text", news, "logprobs",
                               logprobs ? logprobs : json_null(), "finish_reason", finish);
    return frame(c, json_pack("[o]", choice));
}

static void send_chunk(const struct choice *r, json_t *news, json_t *logprobs) {
    send_event(r->all, chunk(r, news, logprobs, NULL));
}

static void begin_stream(struct eb_completion *c) {
    const struct eb_answer a = {.status = 200,
                                .type = "text/event-stream",
                                /* proxies that know it pass events on as they come */
                                .name = "X-Accel-Buffering",
                                .value = "no"};
    if (c->begun || c->failed) return;
    c->begun = true;
    if (!c->x->ops->begin(c->x, &a)) fail_memory(c);
}

/* ---- pieces ------------------------------------------------------------------------------- */

static void on_start(void *user, const struct eb_usage *usage) {
    struct choice *r = user;
    (void)usage;
    if (!r->all->request.stream) return;
    begin_stream(r->all);
    if (r->all->request.chat)
        send_chunk(r, json_pack("{s:s, s:s}", "role", "assistant", "content", ""), NULL);
}

/* The tool call of that number, which may be a new one; NULL: no memory. */
static struct call *find_call(struct choice *r, uint32_t number) {
    if (number < r->n_calls) return &r->calls[number];
    struct call *grown = realloc(r->calls, ((size_t)number + 1) * sizeof *grown);
    if (!grown) return NULL;
    memset(grown + r->n_calls, 0, (number + 1 - r->n_calls) * sizeof *grown);
    r->calls = grown;
    r->n_calls = number + 1;
    return &grown[number];
}

/* Clients send it back with the tool's result. Some formats have one of their own, which the model
 * knows; where it has none, one that no other call has. */
static bool name_call(const struct choice *r, const struct eb_piece *p, struct eb_buf *out) {
    if (p->id_bytes > 0) return eb_buf_add(out, p->id, p->id_bytes);
    return eb_buf_print(out, "call_%s_%u_%u", strrchr(r->all->id, '-') + 1, (unsigned)r->index,
                        (unsigned)p->call);
}

static bool keep_call(struct choice *r, const struct eb_piece *p) {
    struct call *call = find_call(r, p->call);
    if (!call) return false;
    if (p->kind == EB_PIECE_TOOL_ARGUMENTS) return eb_buf_add(&call->arguments, p->text, p->bytes);
    return eb_buf_add(&call->name, p->text, p->bytes) && name_call(r, p, &call->id);
}

/* An array or an object of arrays at the end of another one like it. */
static bool extend(json_t **all, json_t *more) {
    bool good = more != NULL;
    if (!*all) {
        *all = more;
        return good;
    }
    if (json_is_array(more)) {
        good = json_array_extend(*all, more) == 0;
    } else {
        const char *key = NULL;
        json_t *value = NULL;
        json_object_foreach(more, key, value) good =
            good && json_array_extend(json_object_get(*all, key), value) == 0;
    }
    json_decref(more);
    return good;
}

static json_t *piece_logprobs(struct choice *r, const struct eb_piece *p) {
    const ebro_model *model = r->all->service->offer.model;
    return r->all->request.chat
               ? eb_answer_tokens(model, p->tokens, p->n_tokens)
               : eb_answer_text_tokens(model, p->tokens, p->n_tokens, &r->text_offset);
}

static bool keep_piece(struct choice *r, const struct eb_piece *p) {
    switch (p->kind) {
        case EB_PIECE_CONTENT:
            return eb_buf_add(&r->content, p->text, p->bytes);
        case EB_PIECE_REASONING:
            return eb_buf_add(&r->reasoning, p->text, p->bytes);
        default:
            return keep_call(r, p);
    }
}

/* "tool_calls" of a chunk. */
static json_t *call_delta(const struct choice *r, const struct eb_piece *p) {
    json_t *text = eb_json_text(p->text, p->bytes), *call = NULL;
    struct eb_buf id = {0};
    if (p->kind == EB_PIECE_TOOL_ARGUMENTS) {
        call = json_pack("{s:I, s:{s:o}}", "index", (json_int_t)p->call, "function", "arguments",
                         text);
    } else if (name_call(r, p, &id)) {
        call = json_pack("{s:I, s:o, s:s, s:{s:o, s:s}}", "index", (json_int_t)p->call, "id",
                         eb_json_text(id.data, id.n), "type", "function", "function", "name", text,
                         "arguments", "");
    } else {
        json_decref(text);
    }
    eb_buf_free(&id);
    return json_pack("{s:[o]}", "tool_calls", call);
}

static void stream_piece(struct choice *r, const struct eb_piece *p) {
    json_t *news = NULL, *logprobs = NULL;
    bool chat = r->all->request.chat;
    if (p->kind == EB_PIECE_TOOL_BEGIN || p->kind == EB_PIECE_TOOL_ARGUMENTS)
        news = call_delta(r, p);
    else
        news = eb_json_text(p->text, p->bytes);
    if (chat && (p->kind == EB_PIECE_CONTENT || p->kind == EB_PIECE_REASONING))
        news =
            json_pack("{s:o}", p->kind == EB_PIECE_CONTENT ? "content" : "reasoning_content", news);
    if (p->n_tokens > 0) {
        logprobs = piece_logprobs(r, p);
        if (chat) logprobs = json_pack("{s:o, s:n}", "content", logprobs, "refusal");
        if (!logprobs) fail_memory(r->all);
    }
    send_chunk(r, news, logprobs);
}

static void on_piece(void *user, const struct eb_piece *p) {
    struct choice *r = user;
    struct eb_completion *c = r->all;
    if (c->failed) return;
    if (c->keeps && !keep_piece(r, p)) fail_memory(c);
    if (c->request.stream)
        stream_piece(r, p);
    else if (p->n_tokens > 0 && !extend(&r->tokens, piece_logprobs(r, p)))
        fail_memory(c);
}

/* ---- whole answers ------------------------------------------------------------------------ */

static json_t *call_list(const struct choice *r) {
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < r->n_calls; i++) {
        const struct call *call = &r->calls[i];
        json_t *one = json_pack("{s:o, s:s, s:{s:o, s:o}}", "id",
                                eb_json_text(call->id.data, call->id.n), "type", "function",
                                "function", "name", eb_json_text(call->name.data, call->name.n),
                                "arguments", eb_json_text(call->arguments.data, call->arguments.n));
        if (json_array_append_new(list, one) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static json_t *message(const struct choice *r) {
    bool calls_alone = r->n_calls > 0 && r->content.n == 0;
    json_t *m = json_pack("{s:s, s:o, s:n}", "role", "assistant", "content",
                          calls_alone ? json_null() : eb_json_text(r->content.data, r->content.n),
                          "refusal");
    int bad = m == NULL;
    if (r->reasoning.n > 0)
        bad |= json_object_set_new(m, "reasoning_content",
                                   eb_json_text(r->reasoning.data, r->reasoning.n));
    if (r->n_calls > 0) bad |= json_object_set_new(m, "tool_calls", call_list(r));
    if (!bad) return m;
    json_decref(m);
    return NULL;
}

/* What the request's form makes of the tokens' numbers, of which there may be none. */
static json_t *whole_logprobs(struct choice *r) {
    const struct eb_request *q = &r->all->request;
    const struct eb_piece nothing = {0};
    if (!q->job.logprobs) return json_null();
    if (!r->tokens) r->tokens = piece_logprobs(r, &nothing);
    if (q->chat) return json_pack("{s:O, s:n}", "content", r->tokens, "refusal");
    return json_incref(r->tokens);
}

static json_t *whole_choice(struct choice *r) {
    bool chat = r->all->request.chat;
    json_t *said = chat ? message(r) : eb_json_text(r->content.data, r->content.n);
    return json_pack("{s:I, s:o, s:o, s:s}", "index", (json_int_t)r->index,
                     chat ? "message" : "text", said, "logprobs", whole_logprobs(r),
                     "finish_reason", eb_answer_finish(r->how));
}

static json_t *with_usage(const struct eb_completion *c, json_t *value) {
    struct eb_usage usages[EB_REQUEST_CHOICES];
    for (uint32_t i = 0; i < c->request.n_choices; i++) usages[i] = c->choices[i].usage;
    struct eb_usage sum = eb_answer_sum(usages, c->request.n_choices);
    if (json_object_set_new(value, "usage", eb_answer_usage(&sum)) == 0 &&
        json_object_set_new(value, "ebro", eb_answer_extras(&sum)) == 0)
        return value;
    json_decref(value);
    return NULL;
}

static json_t *whole_answer(struct eb_completion *c) {
    json_t *choices = json_array();
    for (uint32_t i = 0; choices && i < c->request.n_choices; i++) {
        if (json_array_append_new(choices, whole_choice(&c->choices[i])) == 0) continue;
        json_decref(choices);
        choices = NULL;
    }
    return with_usage(c, frame(c, choices));
}

/* ---- ends --------------------------------------------------------------------------------- */

static void log_usage(const struct eb_completion *c) {
    char line[256];
    for (uint32_t i = 0; c->service->log && i < c->request.n_choices; i++) {
        const struct eb_usage *u = &c->choices[i].usage;
        static const char *const ends[] = {"stop", "length", "tool_calls", "cancelled", "error"};
        snprintf(line, sizeof line,
                 "%s: %u prompt tokens, %u of them cached, %u written; %.3f s queued, %.3f s "
                 "prompt, %.3f s reply; %s",
                 c->id, u->prompt_tokens, u->cached_tokens, u->completion_tokens, u->queue_seconds,
                 u->prompt_seconds, u->decode_seconds, ends[c->choices[i].how]);
        c->service->log(c->service->log_user, EBRO_LOG_INFO, line);
    }
}

/* Asked for by --log-prompts alone. */
static void log_texts(struct eb_completion *c) {
    const struct eb_service *s = c->service;
    for (uint32_t i = 0; s->log_prompts && s->log && i < c->request.n_choices; i++) {
        json_t *value = json_pack("{s:s, s:O, s:o}", "id", c->id, "request", c->request.root,
                                  "reply", message(&c->choices[i]));
        char *text = value ? json_dumps(value, EB_JSON_FORM) : NULL;
        if (text) s->log(s->log_user, 0, text);
        free(text);
        json_decref(value);
    }
}

static void finish_stream(struct eb_completion *c) {
    static const char done[] = "data: [DONE]\n\n";
    if (c->request.include_usage) send_event(c, with_usage(c, frame(c, json_array())));
    if (c->failed)
        write_event(c, eb_answer_fault(&c->fault));
    else
        c->x->ops->write(c->x, done, sizeof done - 1);
    c->x->ops->end(c->x);
}

static void destroy(struct eb_completion *c) {
    for (uint32_t i = 0; i < EB_REQUEST_CHOICES; i++) {
        struct choice *r = &c->choices[i];
        for (uint32_t k = 0; k < r->n_calls; k++) {
            eb_buf_free(&r->calls[k].id);
            eb_buf_free(&r->calls[k].name);
            eb_buf_free(&r->calls[k].arguments);
        }
        free(r->calls);
        eb_buf_free(&r->content);
        eb_buf_free(&r->reasoning);
        json_decref(r->tokens);
    }
    eb_request_free(&c->request);
    c->x->ops->release(c->x);
    free(c);
}

static void finish_all(struct eb_completion *c) {
    log_usage(c);
    log_texts(c);
    if (c->begun)
        finish_stream(c);
    else if (c->failed)
        eb_exchange_refuse(c->x, &c->fault);
    else
        eb_exchange_give(c->x, whole_answer(c));
    destroy(c);
}

/* The last chunk of one reply. Where no chunk with the usage follows, it has what is Ebro's own. */
static json_t *last_chunk(const struct choice *r) {
    const struct eb_completion *c = r->all;
    json_t *value =
        chunk(r, c->request.chat ? json_object() : json_string(""), NULL, eb_answer_finish(r->how));
    if (c->request.include_usage ||
        json_object_set_new(value, "ebro", eb_answer_extras(&r->usage)) == 0)
        return value;
    json_decref(value);
    return NULL;
}

/* Whoever runs the server hears of it too; nothing of what was asked is in it. */
static void log_failure(const struct eb_completion *c, const struct eb_fault *fault) {
    char line[sizeof fault->text + sizeof c->id + 8];
    snprintf(line, sizeof line, "%s: %s", c->id, fault->text);
    if (c->service->log) c->service->log(c->service->log_user, EBRO_LOG_ERROR, line);
}

static void note_failure(struct eb_completion *c, enum eb_finish how, const ebro_error *err) {
    struct eb_fault fault;
    if (how == EB_FINISH_CANCELLED)
        eb_fault_set(&fault, 503, NULL, "the server ends, or nobody waited for the reply");
    else
        eb_fault_of(&fault, NULL, err);
    /* what was asked for was found to be right before; a schema may prove too ambiguous only now */
    if (fault.status < 500 && (!err || err->status != EBRO_UNSUPPORTED)) fault.status = 500;
    if (how == EB_FINISH_ERROR) log_failure(c, &fault);
    fail(c, &fault);
}

static void on_finish(void *user, enum eb_finish how, const struct eb_usage *usage,
                      const ebro_error *err) {
    struct choice *r = user;
    struct eb_completion *c = r->all;
    r->how = how;
    r->usage = *usage;
    if (how == EB_FINISH_CANCELLED || how == EB_FINISH_ERROR)
        note_failure(c, how, err);
    else if (c->request.stream)
        send_event(c, last_chunk(r));
    if (--c->n_open == 0) finish_all(c);
}

/* The other replies of a request that has failed are of no use to anybody. */
static bool is_gone(void *user) {
    const struct eb_completion *c = ((struct choice *)user)->all;
    return c->failed || c->x->ops->gone(c->x);
}

/* ---- beginning ---------------------------------------------------------------------------- */

struct eb_completion *eb_completion_open(const struct eb_service *service, struct eb_exchange *x,
                                         bool chat, struct eb_fault *fault) {
    struct eb_completion *c = calloc(1, sizeof *c);
    if (!c) {
        eb_fault_no_memory(fault);
        return NULL;
    }
    c->service = service;
    c->x = x;
    c->created = (json_int_t)time(NULL);
    x->ops->hold(x);
    snprintf(c->id, sizeof c->id, "%s-%016llx", chat ? "chatcmpl" : "cmpl",
             (unsigned long long)service->offer.seed(service->offer.user));
    if (!eb_request_read(&service->offer, chat, x->body, x->bytes, &c->request, fault) ||
        !eb_request_prepare(&service->offer, &c->request, fault)) {
        destroy(c);
        return NULL;
    }
    c->keeps = !c->request.stream || service->log_prompts;
    return c;
}

const struct eb_job_spec *eb_completion_job(const struct eb_completion *c) {
    return &c->request.job;
}

uint32_t eb_completion_listeners(struct eb_completion *c,
                                 struct eb_listener listeners[EB_REQUEST_CHOICES]) {
    uint32_t n = c->request.n_choices;
    c->n_open = n;
    for (uint32_t i = 0; i < n; i++) {
        c->choices[i].all = c;
        c->choices[i].index = i;
        listeners[i] = (struct eb_listener){.user = &c->choices[i],
                                            .start = on_start,
                                            .piece = on_piece,
                                            .finish = on_finish,
                                            .gone = is_gone};
    }
    return n;
}

void eb_completion_drop(struct eb_completion *c) {
    destroy(c);
}

void eb_complete(const struct eb_service *service, struct eb_exchange *x, bool chat) {
    struct eb_listener listeners[EB_REQUEST_CHOICES];
    struct eb_fault fault = {0};
    ebro_error err = {0};
    struct eb_completion *c = eb_completion_open(service, x, chat, &fault);
    if (c) {
        uint32_t n = eb_completion_listeners(c, listeners);
        /* from here on the engine's thread may have answered, and c may be gone */
        if (eb_sched_submit(service->sched, &c->request.job, listeners, n, &err) == EBRO_OK) return;
        eb_completion_drop(c);
        eb_fault_of(&fault, NULL, &err);
    }
    eb_exchange_refuse(x, &fault);
}
