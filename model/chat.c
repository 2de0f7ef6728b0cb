/* chat.c: conversations, from the caller's structs or from JSON, to ids; and the writer that the
 * formats share. Control tokens are pushed by id; everything else goes through the ordinary
 * encoder, span by span, so that no text of a message can turn into a control token or merge with
 * one. Not its job: the formats (chat_linear.c, chat_k3.c), JSON (chat_json.c). */
#include "model/chat.h"

#include <stddef.h>
#include <string.h>

#include "model/chat_form.h"

/* ---- the writer ------------------------------------------------------------------------- */

void eb_chat_put_id(struct eb_chat_writer *w, int32_t id) {
    if (w->st == EBRO_OK) w->st = eb_tokenizer_push(w->t, id, w->out, w->err);
}

void eb_chat_put_span(struct eb_chat_writer *w, struct eb_span s) {
    if (w->st == EBRO_OK) w->st = eb_tokenizer_encode(w->t, s.p, s.n, false, w->out, w->err);
}

void eb_chat_put_text(struct eb_chat_writer *w, const char *text) {
    eb_chat_put_span(w, (struct eb_span){text, strlen(text)});
}

void eb_chat_add_span(struct eb_chat_writer *w, struct eb_span s) {
    if (w->st == EBRO_OK)
        w->st = eb_chars_add(eb_tokenizer_alloc(w->t), &w->text, s.p, s.n, w->err);
}

void eb_chat_add_text(struct eb_chat_writer *w, const char *text) {
    eb_chat_add_span(w, (struct eb_span){text, strlen(text)});
}

void eb_chat_put_added(struct eb_chat_writer *w) {
    eb_chat_put_span(w, (struct eb_span){w->text.v, w->text.n});
    w->text.n = 0;
}

void eb_chat_find_control(struct eb_chat_writer *w, const char *const *names, size_t n,
                          const char *need, int32_t *ids) {
    for (size_t i = 0; i < n && w->st == EBRO_OK; i++) {
        ids[i] = eb_token_special(w->t, names[i]);
        if (ids[i] < 0)
            w->st = eb_fail(w->err, EBRO_FORMAT,
                            "the vocabulary has no special token \"%s\", which %s needs", names[i],
                            need);
    }
}

bool eb_span_equal(struct eb_span a, struct eb_span b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool eb_span_is_blank(struct eb_span s) {
    for (size_t i = 0; i < s.n; i++)
        if (!eb_is_white(s.p[i])) return false;
    return true;
}

bool eb_is_white(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* ---- options ---------------------------------------------------------------------------- */

/* A caller compiled against an older header has a shorter struct: what it lacks has its default. */
#define HAS(options, field) \
    ((options)->size >= offsetof(ebro_chat_options, field) + sizeof(options)->field)

static int32_t read_options(struct eb_chat_writer *w, const ebro_chat_options *o) {
    if (o == NULL) return EBRO_OK;
    if (o->size < sizeof o->size)
        return eb_fail(w->err, EBRO_INVALID, "ebro_chat_options: size is %zu, not sizeof it",
                       o->size);
    if (HAS(o, thinking)) w->thinking = o->thinking != 0;
    if (HAS(o, thinking_effort) && o->thinking_effort != NULL && o->thinking_effort[0] != '\0')
        w->effort = o->thinking_effort;
    if (HAS(o, no_generation_prompt)) w->prompt = o->no_generation_prompt == 0;
    return EBRO_OK;
}

static int32_t render(const struct eb_tokenizer *t, enum eb_chat_family family,
                      const struct eb_chat *chat, const ebro_chat_options *options,
                      struct eb_ids *out, ebro_error *err) {
    struct eb_chat_writer w = {.t = t, .out = out, .err = err, .prompt = true};
    const size_t n_before = out->n;
    w.st = read_options(&w, options);
    if (w.st != EBRO_OK) return w.st;
    if (family == EB_CHAT_KIMI_LINEAR)
        eb_chat_linear(&w, chat);
    else
        eb_chat_k3(&w, chat);
    eb_free(eb_tokenizer_alloc(t), w.text.v);
    if (w.st != EBRO_OK) out->n = n_before;
    return w.st;
}

/* ---- the caller's structs --------------------------------------------------------------- */

static int32_t read_message(const ebro_chat_message *m, size_t i, struct eb_chat_entry *e,
                            ebro_error *err) {
    const char *role = m->role;
    if (role == NULL) return eb_fail(err, EBRO_INVALID, "message %zu: role is NULL", i);
    if (strcmp(role, "system") == 0)
        e->role = EB_CHAT_SYSTEM;
    else if (strcmp(role, "user") == 0)
        e->role = EB_CHAT_USER;
    else if (strcmp(role, "assistant") == 0)
        e->role = EB_CHAT_ASSISTANT;
    else
        return eb_fail(err, EBRO_INVALID,
                       "message %zu: role \"%.40s\"; system, user and assistant are known", i,
                       role);
    if (m->content == NULL)
        return eb_fail(err, EBRO_INVALID, "message %zu (%s): content is NULL", i, role);
    e->whole = (struct eb_span){m->content, strlen(m->content)};
    if (m->reasoning != NULL) e->reasoning = (struct eb_span){m->reasoning, strlen(m->reasoning)};
    return EBRO_OK;
}

int32_t eb_chat_render(const struct eb_tokenizer *t, enum eb_chat_family family,
                       const ebro_chat_message *messages, size_t n_messages,
                       const ebro_chat_options *options, struct eb_ids *out, ebro_error *err) {
    const struct eb_alloc *a = eb_tokenizer_alloc(t);
    if (messages == NULL && n_messages > 0)
        return eb_fail(err, EBRO_INVALID, "messages is NULL but there are %zu", n_messages);
    struct eb_chat_entry *entries = eb_calloc(a, n_messages, sizeof *entries, err);
    if (entries == NULL) return EBRO_NOMEM_HOST;
    int32_t st = EBRO_OK;
    for (size_t i = 0; i < n_messages && st == EBRO_OK; i++)
        st = read_message(&messages[i], i, &entries[i], err);
    const struct eb_chat chat = {.entries = entries, .n = n_messages};
    if (st == EBRO_OK) st = render(t, family, &chat, options, out, err);
    eb_free(a, entries);
    return st;
}

/* ---- JSON ------------------------------------------------------------------------------- */

int32_t eb_chat_render_json(const struct eb_tokenizer *t, enum eb_chat_family family,
                            const char *json, size_t bytes, const ebro_chat_options *options,
                            struct eb_ids *out, ebro_error *err) {
    const struct eb_alloc *a = eb_tokenizer_alloc(t);
    struct eb_chat_request request;
    int32_t st = eb_chat_request_open(a, json, bytes, &request, err);
    if (st == EBRO_OK) st = render(t, family, &request.chat, options, out, err);
    eb_chat_request_close(a, &request);
    return st;
}
