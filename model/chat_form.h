/* chat_form.h: what the chat formats share: a conversation taken apart, and the writer that turns
 * pieces of it into ids. Between model/chat*.c alone. */
#ifndef EB_CHAT_FORM_H
#define EB_CHAT_FORM_H

#include "model/json.h"
#include "model/tokenizer.h"

/* ---- a conversation ----------------------------------------------------------------------- */

/* Nothing is NUL-terminated; n == 0 where there is none. */
struct eb_span {
    const char *p;
    size_t n;
};

enum eb_chat_role { EB_CHAT_SYSTEM, EB_CHAT_USER, EB_CHAT_ASSISTANT, EB_CHAT_TOOL };

struct eb_chat_call {
    struct eb_span id, name, arguments;
};

struct eb_chat_entry {
    enum eb_chat_role role;
    struct eb_span name;
    struct eb_span whole;        /* content in one piece ... */
    const struct eb_span *parts; /* ... or in several; NULL: in one */
    size_t n_parts;
    struct eb_span reasoning;         /* assistants alone, as calls */
    const struct eb_chat_call *calls; /* [n_calls] */
    size_t n_calls;
    struct eb_span call_id; /* tools: the call that this is the result of */
};

struct eb_chat {
    const struct eb_chat_entry *entries; /* [n] */
    size_t n;
    struct eb_span tools; /* the array of tools: compact JSON with sorted keys */
};

/* ---- writing ids -------------------------------------------------------------------------- */

struct eb_chat_writer {
    const struct eb_tokenizer *t;
    struct eb_ids *out;
    struct eb_chars text; /* a span that is being put together */
    ebro_error *err;
    bool thinking, prompt;
    const char *effort; /* NULL: not stated */
    int32_t st;         /* the first failure; later calls do nothing */
};

void eb_chat_put_id(struct eb_chat_writer *w, int32_t id);
/* Each is encoded by itself. */
void eb_chat_put_text(struct eb_chat_writer *w, const char *text);
void eb_chat_put_span(struct eb_chat_writer *w, struct eb_span s);
/* One span from several pieces: add them, then put what was added. */
void eb_chat_add_text(struct eb_chat_writer *w, const char *text);
void eb_chat_add_span(struct eb_chat_writer *w, struct eb_span s);
void eb_chat_put_added(struct eb_chat_writer *w);
/* ids[i] of the control tokens names[i]; one that the vocabulary lacks is FORMAT. `need` says what
 * needs it. */
void eb_chat_find_control(struct eb_chat_writer *w, const char *const *names, size_t n,
                          const char *need, int32_t *ids);

bool eb_span_equal(struct eb_span a, struct eb_span b);
bool eb_span_is_blank(struct eb_span s);
bool eb_is_white(char c); /* what JSON calls white space */

void eb_chat_linear(struct eb_chat_writer *w, const struct eb_chat *c);
void eb_chat_k3(struct eb_chat_writer *w, const struct eb_chat *c);

/* ---- conversations as JSON ---------------------------------------------------------------- */

/* Owns what the conversation points into. */
struct eb_chat_request {
    void *root; /* the JSON tree */
    struct eb_chat_entry *entries;
    struct eb_chars tools;
    struct eb_chat chat;
};

/* INVALID or UNSUPPORTED with the place of what is wrong. Close it in any case. */
int32_t eb_chat_request_open(const struct eb_alloc *a, const char *json, size_t bytes,
                             struct eb_chat_request *out, ebro_error *err);
void eb_chat_request_close(const struct eb_alloc *a, struct eb_chat_request *r);

#endif
