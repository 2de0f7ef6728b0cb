/* chat_linear.c: the chat format of Kimi K2 and Kimi Linear, as a program rather than a template:
 * <|im_user|>user<|im_middle|>TEXT<|im_end|>. Between two control tokens all text is one span, as
 * it is where a rendered template is encoded. */
#include "model/chat_form.h"

enum linear_control { IM_SYSTEM, IM_USER, IM_ASSISTANT, IM_MIDDLE, IM_END, N_LINEAR };
static const char *const linear_names[N_LINEAR] = {
    [IM_SYSTEM] = "<|im_system|>", [IM_USER] = "<|im_user|>", [IM_ASSISTANT] = "<|im_assistant|>",
    [IM_MIDDLE] = "<|im_middle|>", [IM_END] = "<|im_end|>",
};

enum call_control { SECTION_BEGIN, CALL_BEGIN, ARGUMENT_BEGIN, CALL_END, SECTION_END, N_CALL };
static const char *const call_names[N_CALL] = {
    [SECTION_BEGIN] = "<|tool_calls_section_begin|>",  [CALL_BEGIN] = "<|tool_call_begin|>",
    [ARGUMENT_BEGIN] = "<|tool_call_argument_begin|>", [CALL_END] = "<|tool_call_end|>",
    [SECTION_END] = "<|tool_calls_section_end|>",
};

static bool has_calls(const struct eb_chat *c) {
    for (size_t i = 0; i < c->n; i++)
        if (c->entries[i].n_calls > 0) return true;
    return false;
}

/* A message's name stands in the place of its role's. */
static struct eb_span role_of(const struct eb_chat_entry *e) {
    static const struct eb_span roles[] = {[EB_CHAT_SYSTEM] = {"system", 6},
                                           [EB_CHAT_USER] = {"user", 4},
                                           [EB_CHAT_ASSISTANT] = {"assistant", 9},
                                           [EB_CHAT_TOOL] = {"tool", 4}};
    return e->name.n > 0 ? e->name : roles[e->role];
}

static void put_calls(struct eb_chat_writer *w, const struct eb_chat_entry *e,
                      const int32_t *control) {
    eb_chat_put_id(w, control[SECTION_BEGIN]);
    for (size_t i = 0; i < e->n_calls; i++) {
        eb_chat_put_id(w, control[CALL_BEGIN]);
        eb_chat_put_span(w, e->calls[i].id);
        eb_chat_put_id(w, control[ARGUMENT_BEGIN]);
        eb_chat_put_span(w, e->calls[i].arguments);
        eb_chat_put_id(w, control[CALL_END]);
    }
    eb_chat_put_id(w, control[SECTION_END]);
}

static void put_content(struct eb_chat_writer *w, const struct eb_chat_entry *e) {
    if (e->role == EB_CHAT_TOOL) {
        eb_chat_add_text(w, "## Return of ");
        eb_chat_add_span(w, e->call_id);
        eb_chat_add_text(w, "\n");
    }
    if (e->parts == NULL) eb_chat_add_span(w, e->whole);
    for (size_t i = 0; i < e->n_parts; i++) eb_chat_add_span(w, e->parts[i]);
    eb_chat_put_added(w);
}

static void put_message(struct eb_chat_writer *w, const struct eb_chat_entry *e,
                        const int32_t *control, const int32_t *call_control) {
    static const enum linear_control openers[] = {[EB_CHAT_SYSTEM] = IM_SYSTEM,
                                                  [EB_CHAT_USER] = IM_USER,
                                                  [EB_CHAT_ASSISTANT] = IM_ASSISTANT,
                                                  [EB_CHAT_TOOL] = IM_SYSTEM};
    eb_chat_put_id(w, control[openers[e->role]]);
    eb_chat_put_span(w, role_of(e));
    eb_chat_put_id(w, control[IM_MIDDLE]);
    put_content(w, e);
    if (e->n_calls > 0) put_calls(w, e, call_control);
    eb_chat_put_id(w, control[IM_END]);
}

void eb_chat_linear(struct eb_chat_writer *w, const struct eb_chat *c) {
    int32_t control[N_LINEAR], call_control[N_CALL] = {0};
    eb_chat_find_control(w, linear_names, N_LINEAR, "the chat format", control);
    if (has_calls(c))
        eb_chat_find_control(w, call_names, N_CALL, "the chat format of tool calls", call_control);
    if (w->st != EBRO_OK) return;
    if (c->tools.n > 0) {
        eb_chat_put_id(w, control[IM_SYSTEM]);
        eb_chat_put_text(w, "tool_declare");
        eb_chat_put_id(w, control[IM_MIDDLE]);
        eb_chat_put_span(w, c->tools);
        eb_chat_put_id(w, control[IM_END]);
    }
    for (size_t i = 0; i < c->n; i++) put_message(w, &c->entries[i], control, call_control);
    if (!w->prompt) return;
    eb_chat_put_id(w, control[IM_ASSISTANT]);
    eb_chat_put_text(w, "assistant");
    eb_chat_put_id(w, control[IM_MIDDLE]);
}
