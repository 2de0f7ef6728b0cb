/* chat.c: the two chat formats, as programs rather than templates. Control tokens are pushed by id;
 * everything else goes through the ordinary encoder, span by span, so that no text of a message can
 * turn into a control token or merge with one. */
#include "model/chat.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CONTROL = 5 };

struct writer {
    const struct eb_tokenizer *t;
    struct eb_ids *out;
    ebro_error *err;
    int32_t control[MAX_CONTROL];
    bool thinking;
    const char *effort; /* NULL: not stated */
    int32_t st;         /* the first failure; later calls do nothing */
};

static void put_id(struct writer *w, int32_t id) {
    if (w->st == EBRO_OK) w->st = eb_tokenizer_push(w->t, id, w->out, w->err);
}

static void put_text(struct writer *w, const char *text) {
    if (w->st == EBRO_OK)
        w->st = eb_tokenizer_encode(w->t, text, strlen(text), false, w->out, w->err);
}

static int32_t find_control(struct writer *w, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++) {
        w->control[i] = eb_token_special(w->t, names[i]);
        if (w->control[i] < 0)
            return eb_fail(
                w->err, EBRO_FORMAT,
                "the vocabulary has no special token \"%s\", which the chat format needs",
                names[i]);
    }
    return EBRO_OK;
}

/* ---- Kimi Linear ------------------------------------------------------------------------ */

enum linear_control { IM_SYSTEM, IM_USER, IM_ASSISTANT, IM_MIDDLE, IM_END, N_LINEAR };
static const char *const linear_names[N_LINEAR] = {
    [IM_SYSTEM] = "<|im_system|>", [IM_USER] = "<|im_user|>", [IM_ASSISTANT] = "<|im_assistant|>",
    [IM_MIDDLE] = "<|im_middle|>", [IM_END] = "<|im_end|>",
};

static void linear_open(struct writer *w, enum linear_control who, const char *role) {
    put_id(w, w->control[who]);
    put_text(w, role);
    put_id(w, w->control[IM_MIDDLE]);
}

static void linear_message(struct writer *w, const ebro_chat_message *m) {
    bool system = strcmp(m->role, "system") == 0, user = strcmp(m->role, "user") == 0;
    linear_open(w, system ? IM_SYSTEM : user ? IM_USER : IM_ASSISTANT, m->role);
    put_text(w, m->content);
    put_id(w, w->control[IM_END]);
}

static void linear_render(struct writer *w, const ebro_chat_message *m, size_t n, bool prompt) {
    for (size_t i = 0; i < n; i++) linear_message(w, &m[i]);
    if (prompt) linear_open(w, IM_ASSISTANT, "assistant");
}

/* ---- Kimi K3 ---------------------------------------------------------------------------- */

enum k3_control { OPEN, CLOSE, SEP, END_OF_MSG, N_K3 };
static const char *const k3_names[N_K3] = {
    [OPEN] = "<|open|>", [CLOSE] = "<|close|>", [SEP] = "<|sep|>", [END_OF_MSG] = "<|end_of_msg|>"};

static void k3_open_channel(struct writer *w, const char *name) {
    put_id(w, w->control[OPEN]);
    put_text(w, name);
    put_id(w, w->control[SEP]);
}

static void k3_close(struct writer *w, const char *name) {
    put_id(w, w->control[CLOSE]);
    put_text(w, name);
    put_id(w, w->control[SEP]);
}

/* Each attribute, with the space before it, is a span of its own. type: NULL for none. */
static void k3_open_message(struct writer *w, const char *role, const char *type) {
    put_id(w, w->control[OPEN]);
    put_text(w, "message");
    put_text(w, role);
    if (type != NULL) put_text(w, type);
    put_id(w, w->control[SEP]);
}

static void k3_close_message(struct writer *w) {
    k3_close(w, "message");
    put_id(w, w->control[END_OF_MSG]);
}

/* One span, so the text is put together first. */
static void k3_effort(struct writer *w) {
    static const char format[] =
        "`thinking_effort` guides on how much to think in your thinking channel (not including the "
        "response channel), supported values include `low`, `medium`, `high`, and `max`.\n"
        "Now the system is invoked with `thinking_effort=%s`.";
    const struct eb_alloc *a = eb_tokenizer_alloc(w->t);
    size_t room = sizeof format + strlen(w->effort);
    if (w->st != EBRO_OK) return;
    char *text = eb_calloc(a, room, 1, w->err);
    if (text == NULL) {
        w->st = EBRO_NOMEM_HOST;
        return;
    }
    snprintf(text, room, format, w->effort);
    k3_open_message(w, " role=\"system\"", " type=\"thinking-effort\"");
    put_text(w, text);
    k3_close_message(w);
    eb_free(a, text);
}

static void k3_assistant(struct writer *w, const ebro_chat_message *m) {
    k3_open_message(w, " role=\"assistant\"", NULL);
    if (w->thinking) {
        k3_open_channel(w, "think");
        if (m->reasoning != NULL) put_text(w, m->reasoning);
        k3_close(w, "think");
    }
    k3_open_channel(w, "response");
    put_text(w, m->content);
    k3_close(w, "response");
    k3_close_message(w);
}

static void k3_message(struct writer *w, const ebro_chat_message *m) {
    if (strcmp(m->role, "assistant") == 0) {
        k3_assistant(w, m);
        return;
    }
    bool system = strcmp(m->role, "system") == 0;
    k3_open_message(w, system ? " role=\"system\"" : " role=\"user\"", NULL);
    put_text(w, m->content);
    k3_close_message(w);
}

static void k3_render(struct writer *w, const ebro_chat_message *m, size_t n, bool prompt) {
    if (w->thinking && w->effort != NULL) k3_effort(w);
    for (size_t i = 0; i < n; i++) k3_message(w, &m[i]);
    if (!prompt) return;
    k3_open_message(w, " role=\"assistant\"", NULL);
    k3_open_channel(w, w->thinking ? "think" : "response");
}

/* ---- both ------------------------------------------------------------------------------- */

static int32_t check_messages(const ebro_chat_message *m, size_t n, ebro_error *err) {
    if (m == NULL && n > 0)
        return eb_fail(err, EBRO_INVALID, "messages is NULL but there are %zu", n);
    for (size_t i = 0; i < n; i++) {
        const char *role = m[i].role;
        if (role == NULL) return eb_fail(err, EBRO_INVALID, "message %zu: role is NULL", i);
        if (strcmp(role, "system") != 0 && strcmp(role, "user") != 0 &&
            strcmp(role, "assistant") != 0)
            return eb_fail(err, EBRO_INVALID,
                           "message %zu: role \"%.40s\"; system, user and assistant are known", i,
                           role);
        if (m[i].content == NULL)
            return eb_fail(err, EBRO_INVALID, "message %zu (%s): content is NULL", i, role);
    }
    return EBRO_OK;
}

/* A caller compiled against an older header has a shorter struct: what it lacks has its default. */
#define HAS(options, field) \
    ((options)->size >= offsetof(ebro_chat_options, field) + sizeof(options)->field)

static int32_t read_options(struct writer *w, const ebro_chat_options *o, bool *prompt) {
    *prompt = true;
    if (o == NULL) return EBRO_OK;
    if (o->size < sizeof o->size)
        return eb_fail(w->err, EBRO_INVALID, "ebro_chat_options: size is %zu, not sizeof it",
                       o->size);
    if (HAS(o, thinking)) w->thinking = o->thinking != 0;
    if (HAS(o, thinking_effort) && o->thinking_effort != NULL && o->thinking_effort[0] != '\0')
        w->effort = o->thinking_effort;
    if (HAS(o, no_generation_prompt)) *prompt = o->no_generation_prompt == 0;
    return EBRO_OK;
}

int32_t eb_chat_render(const struct eb_tokenizer *t, enum eb_chat_family family,
                       const ebro_chat_message *messages, size_t n_messages,
                       const ebro_chat_options *options, struct eb_ids *out, ebro_error *err) {
    struct writer w = {.t = t, .out = out, .err = err, .st = EBRO_OK};
    bool prompt = true, linear = family == EB_CHAT_KIMI_LINEAR;
    size_t n_before = out->n;
    int32_t st = check_messages(messages, n_messages, err);
    if (st == EBRO_OK) st = read_options(&w, options, &prompt);
    if (st == EBRO_OK)
        st = linear ? find_control(&w, linear_names, N_LINEAR) : find_control(&w, k3_names, N_K3);
    if (st != EBRO_OK) return st;
    if (linear)
        linear_render(&w, messages, n_messages, prompt);
    else
        k3_render(&w, messages, n_messages, prompt);
    if (w.st != EBRO_OK) out->n = n_before;
    return w.st;
}
