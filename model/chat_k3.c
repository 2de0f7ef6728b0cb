/* chat_k3.c: the chat format of Kimi K3, as a program rather than a template:
 * <|open|>message role="user"<|sep|>TEXT<|close|>message<|sep|><|end_of_msg|>. Spans are cut where
 * Moonshot's encoding_k3.py cuts them. Not its job: the arguments of calls (chat_k3_args.c). */
#include "model/chat_k3.h"

#include <stdio.h>

enum k3_control { OPEN, CLOSE, SEP, END_OF_MSG, N_K3 };
static const char *const k3_names[N_K3] = {
    [OPEN] = "<|open|>", [CLOSE] = "<|close|>", [SEP] = "<|sep|>", [END_OF_MSG] = "<|end_of_msg|>"};

/* ---- tags ------------------------------------------------------------------------------- */

void eb_k3_begin(struct eb_k3 *k, const char *tag) {
    eb_chat_put_id(k->w, k->control[OPEN]);
    eb_chat_put_text(k->w, tag);
}

/* Quotes and ampersands alone are escaped. */
void eb_k3_attribute(struct eb_k3 *k, const char *key, struct eb_span value) {
    size_t from = 0;
    eb_chat_add_text(k->w, " ");
    eb_chat_add_text(k->w, key);
    eb_chat_put_added(k->w);
    eb_chat_put_text(k->w, "=\"");
    for (size_t i = 0; i < value.n; i++) {
        if (value.p[i] != '&' && value.p[i] != '"') continue;
        eb_chat_add_span(k->w, (struct eb_span){value.p + from, i - from});
        eb_chat_add_text(k->w, value.p[i] == '&' ? "&amp;" : "&quot;");
        from = i + 1;
    }
    if (value.n > from) eb_chat_add_span(k->w, (struct eb_span){value.p + from, value.n - from});
    eb_chat_put_added(k->w);
    eb_chat_put_text(k->w, "\"");
}

static void attribute(struct eb_k3 *k, const char *key, const char *value) {
    eb_k3_attribute(k, key, (struct eb_span){value, strlen(value)});
}

static void number_attribute(struct eb_k3 *k, const char *key, size_t value) {
    char text[24];
    snprintf(text, sizeof text, "%zu", value);
    attribute(k, key, text);
}

void eb_k3_end(struct eb_k3 *k) {
    eb_chat_put_id(k->w, k->control[SEP]);
}

static void open_tag(struct eb_k3 *k, const char *tag) {
    eb_k3_begin(k, tag);
    eb_k3_end(k);
}

void eb_k3_close(struct eb_k3 *k, const char *tag) {
    eb_chat_put_id(k->w, k->control[CLOSE]);
    eb_chat_put_text(k->w, tag);
    eb_k3_end(k);
}

/* ---- messages --------------------------------------------------------------------------- */

static void begin_message(struct eb_k3 *k, const char *role) {
    eb_k3_begin(k, "message");
    attribute(k, "role", role);
}

static void close_message(struct eb_k3 *k) {
    eb_k3_close(k, "message");
    eb_chat_put_id(k->w, k->control[END_OF_MSG]);
}

static void begin_system(struct eb_k3 *k, const char *type) {
    begin_message(k, "system");
    attribute(k, "type", type);
    eb_k3_end(k);
}

static void declare_tools(struct eb_k3 *k, struct eb_span tools) {
    begin_system(k, "tool-declare");
    eb_chat_add_text(
        k->w, "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n");
    eb_chat_add_span(k->w, tools);
    eb_chat_add_text(k->w, "\n```");
    eb_chat_put_added(k->w);
    close_message(k);
}

static void state_effort(struct eb_k3 *k) {
    begin_system(k, "thinking-effort");
    eb_chat_add_text(
        k->w,
        "`thinking_effort` guides on how much to think in your thinking channel (not including the "
        "response channel), supported values include `low`, `medium`, `high`, and `max`.\n"
        "Now the system is invoked with `thinking_effort=");
    eb_chat_add_text(k->w, k->w->effort);
    eb_chat_add_text(k->w, "`.");
    eb_chat_put_added(k->w);
    close_message(k);
}

static void put_content(struct eb_k3 *k, const struct eb_chat_entry *e) {
    if (e->parts == NULL) eb_chat_put_span(k->w, e->whole);
    for (size_t i = 0; i < e->n_parts; i++) eb_chat_put_span(k->w, e->parts[i]);
}

static void put_calls(struct eb_k3 *k, const struct eb_chat_entry *e, size_t message) {
    open_tag(k, "tools");
    for (size_t i = 0; i < e->n_calls; i++) {
        eb_k3_begin(k, "call");
        eb_k3_attribute(k, "tool", e->calls[i].name);
        number_attribute(k, "index", i + 1);
        eb_k3_end(k);
        eb_k3_arguments(k, e->calls[i].arguments, message, i);
        eb_k3_close(k, "call");
    }
    eb_k3_close(k, "tools");
}

static void put_channels(struct eb_k3 *k, const struct eb_chat_entry *e, size_t message) {
    if (k->w->thinking) {
        open_tag(k, "think");
        if (!eb_span_is_blank(e->reasoning)) eb_chat_put_span(k->w, e->reasoning);
        eb_k3_close(k, "think");
    }
    open_tag(k, "response");
    put_content(k, e);
    eb_k3_close(k, "response");
    if (e->n_calls > 0) put_calls(k, e, message);
}

static void put_message(struct eb_k3 *k, const struct eb_chat_entry *e, size_t message) {
    static const char *const roles[] = {
        [EB_CHAT_SYSTEM] = "system", [EB_CHAT_USER] = "user", [EB_CHAT_ASSISTANT] = "assistant"};
    begin_message(k, roles[e->role]);
    if (e->name.n > 0) eb_k3_attribute(k, "name", e->name);
    eb_k3_end(k);
    if (e->role == EB_CHAT_ASSISTANT)
        put_channels(k, e, message);
    else
        put_content(k, e);
    close_message(k);
}

/* ---- results of tools ------------------------------------------------------------------- */

/* The messages of tools that follow one another, and the assistant's message before them. */
struct results {
    const struct eb_chat_entry *caller; /* NULL: none */
    const struct eb_chat_entry *run;    /* [n] */
    size_t n, first;                    /* first: number of run[0] in the conversation */
    size_t *index;                      /* results since the caller's message */
};

/* Number of the first call of this id; SIZE_MAX: none. */
static size_t find_call(const struct eb_chat_entry *caller, struct eb_span id) {
    for (size_t i = 0; caller != NULL && i < caller->n_calls; i++)
        if (eb_span_equal(caller->calls[i].id, id)) return i;
    return SIZE_MAX;
}

static void put_result(struct eb_k3 *k, const struct results *r, const struct eb_chat_entry *e,
                       struct eb_span tool) {
    begin_message(k, "tool");
    eb_k3_attribute(k, "tool", tool);
    number_attribute(k, "index", ++*r->index);
    eb_k3_end(k);
    put_content(k, e);
    close_message(k);
}

/* In the order of the calls. */
static void put_matched(struct eb_k3 *k, const struct results *r) {
    for (size_t i = 0; i < r->caller->n_calls; i++) {
        const struct eb_chat_call *call = &r->caller->calls[i];
        if (find_call(r->caller, call->id) != i) continue;
        for (size_t m = 0; m < r->n; m++)
            if (eb_span_equal(r->run[m].call_id, call->id))
                put_result(k, r, &r->run[m], call->name);
    }
}

/* As they come: each has the name that it brings, or that of the call at its place. */
static void put_unmatched(struct eb_k3 *k, const struct results *r) {
    for (size_t m = 0; m < r->n && k->w->st == EBRO_OK; m++) {
        struct eb_span tool = r->run[m].name;
        if (tool.n == 0 && r->caller != NULL && *r->index < r->caller->n_calls)
            tool = r->caller->calls[*r->index].name;
        if (tool.n == 0) {
            k->w->st =
                eb_fail(k->w->err, EBRO_INVALID,
                        "messages[%zu]: no tool call of the assistant's last message has its "
                        "tool_call_id, and it has no name",
                        r->first + m);
            return;
        }
        put_result(k, r, &r->run[m], tool);
    }
}

static void put_results(struct eb_k3 *k, const struct results *r) {
    for (size_t m = 0; m < r->n; m++) {
        if (find_call(r->caller, r->run[m].call_id) != SIZE_MAX) continue;
        put_unmatched(k, r);
        return;
    }
    put_matched(k, r);
}

/* ---- all -------------------------------------------------------------------------------- */

static void put_messages(struct eb_k3 *k, const struct eb_chat *c) {
    const struct eb_chat_entry *caller = NULL;
    size_t index = 0, next;
    for (size_t i = 0; i < c->n && k->w->st == EBRO_OK; i = next) {
        const struct eb_chat_entry *e = &c->entries[i];
        next = i + 1;
        if (e->role == EB_CHAT_TOOL) {
            while (next < c->n && c->entries[next].role == EB_CHAT_TOOL) next++;
            put_results(k, &(struct results){caller, e, next - i, i, &index});
            continue;
        }
        if (e->role == EB_CHAT_ASSISTANT) {
            caller = e;
            index = 0;
        }
        put_message(k, e, i);
    }
}

void eb_chat_k3(struct eb_chat_writer *w, const struct eb_chat *c) {
    int32_t control[N_K3];
    struct eb_k3 k = {.w = w, .control = control};
    eb_chat_find_control(w, k3_names, N_K3, "the chat format", control);
    if (w->st != EBRO_OK) return;
    if (c->tools.n > 0) declare_tools(&k, c->tools);
    if (w->thinking && w->effort != NULL) state_effort(&k);
    put_messages(&k, c);
    if (!w->prompt) return;
    begin_message(&k, "assistant");
    eb_k3_end(&k);
    open_tag(&k, w->thinking ? "think" : "response");
}
