/* reply_linear.c: replies of Kimi K2 and Kimi Linear: content, maybe after <think>...</think>, then
 * maybe <|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:INDEX
 * <|tool_call_argument_begin|>JSON<|tool_call_end|>...<|tool_calls_section_end|>. */
#include <string.h>

#include "model/reply.h"

enum control {
    SECTION_BEGIN,
    CALL_BEGIN,
    ARGUMENT_BEGIN,
    CALL_END,
    SECTION_END,
    THINK_BEGIN,
    THINK_END,
    N_CONTROLS
};
static const char *const names[N_CONTROLS] = {
    [SECTION_BEGIN] = "<|tool_calls_section_begin|>",
    [CALL_BEGIN] = "<|tool_call_begin|>",
    [ARGUMENT_BEGIN] = "<|tool_call_argument_begin|>",
    [CALL_END] = "<|tool_call_end|>",
    [SECTION_END] = "<|tool_calls_section_end|>",
    [THINK_BEGIN] = "<think>",
    [THINK_END] = "</think>",
};

enum place { CONTENT, THINK, SECTION, HEAD, ARGUMENTS };

/* No channel is opened by the prompt. */
static void start(ebro_reply *r, bool thinking) {
    (void)thinking;
    r->place = CONTENT;
}

static void enter(ebro_reply *r, enum place place) {
    r->place = (int32_t)place;
    r->stray = false;
    r->n_held = 0;
}

/* Whatever call is open ends here. */
static void leave_call(ebro_reply *r, enum place place) {
    if (r->in_call) eb_reply_end_call(r);
    enter(r, place);
}

/* "functions.NAME:INDEX", all of which is the id. What is written otherwise is the name. */
static struct eb_span name_in(struct eb_span id) {
    static const char before[] = "functions.";
    const size_t n = sizeof before - 1;
    struct eb_span name = id;
    size_t digits = 0;
    if (name.n >= n && memcmp(name.p, before, n) == 0) {
        name.p += n;
        name.n -= n;
    }
    while (digits < name.n && name.p[name.n - 1 - digits] >= '0' &&
           name.p[name.n - 1 - digits] <= '9')
        digits++;
    if (digits > 0 && digits < name.n && name.p[name.n - 1 - digits] == ':') name.n -= digits + 1;
    return name;
}

static void begin_call(ebro_reply *r) {
    const struct eb_span id = eb_span_trim((struct eb_span){r->held, r->n_held});
    eb_reply_begin_call(r, name_in(id), id);
    enter(r, ARGUMENTS);
}

static void control(ebro_reply *r, int32_t which) {
    switch ((enum control)which) {
        case SECTION_BEGIN:
            leave_call(r, SECTION);
            return;
        case CALL_BEGIN:
            leave_call(r, HEAD);
            return;
        case ARGUMENT_BEGIN:
            if (r->place == HEAD) begin_call(r);
            return;
        case CALL_END:
            if (r->place == HEAD) begin_call(r);
            if (r->place == ARGUMENTS) leave_call(r, SECTION);
            return;
        case SECTION_END:
            leave_call(r, CONTENT);
            return;
        case THINK_BEGIN:
            if (r->place == CONTENT) enter(r, THINK);
            return;
        case THINK_END:
            if (r->place == THINK) enter(r, CONTENT);
            return;
        case N_CONTROLS:
            return;
    }
}

/* What is too long for the head of a call is none. */
static void take_head(ebro_reply *r, const char *p, size_t n) {
    if (eb_reply_hold(r, p, n)) return;
    r->place = SECTION;
    r->stray = true;
    eb_reply_stray(r, r->held, r->n_held);
    eb_reply_stray(r, p, n);
    r->n_held = 0;
}

static void text(ebro_reply *r, const char *p, size_t n) {
    switch ((enum place)r->place) {
        case CONTENT:
            eb_reply_give(r, EBRO_REPLY_CONTENT, p, n);
            return;
        case THINK:
            eb_reply_give(r, EBRO_REPLY_REASONING, p, n);
            return;
        case SECTION:
            eb_reply_stray(r, p, n);
            return;
        case HEAD:
            take_head(r, p, n);
            return;
        case ARGUMENTS:
            eb_reply_give(r, EBRO_REPLY_TOOL_ARGUMENTS, p, n);
            return;
    }
}

const struct eb_reply_format eb_reply_linear = {names, N_CONTROLS, start, control, text};
