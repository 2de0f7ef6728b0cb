/* calls.c: tool calls that must be made, as Kimi Linear (like K2) and Kimi K3 write them. */
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tool {
    const char *name;
    const json_t *parameters; /* NULL: none */
    size_t number;            /* in the list that was given */
    uint32_t call, arguments; /* rules: what names it, and what follows */
};

struct tools {
    struct tool *list; /* free() it */
    size_t n;
};

/* ---- reading ------------------------------------------------------------------------------ */

static bool read_tool(struct eb_draft *r, size_t number, struct tool *out) {
    const json_t *function = json_object_get(json_array_get(r->spec->tools, number), "function");
    *out = (struct tool){.name = json_string_value(json_object_get(function, "name")),
                         .parameters = json_object_get(function, "parameters"),
                         .number = number};
    if (out->name == NULL || out->name[0] == '\0') {
        eb_build_fail(&r->b, EBRO_INVALID, "tools[%zu].function.name must be a text", number);
        return false;
    }
    if (json_is_null(out->parameters)) out->parameters = NULL;
    return r->spec->tool == NULL || strcmp(r->spec->tool, out->name) == 0;
}

static struct tools read_tools(struct eb_draft *r) {
    size_t n = json_array_size(r->spec->tools);
    struct tools t = {.list = calloc(n + 1, sizeof *t.list)};
    if (t.list == NULL) eb_build_fail(&r->b, EBRO_NOMEM_HOST, "no memory for %zu tools", n);
    for (size_t i = 0; i < n && r->b.st == EBRO_OK; i++) t.n += read_tool(r, i, &t.list[t.n]);
    if (t.n == 0 && r->spec->tool != NULL)
        eb_build_fail(&r->b, EBRO_INVALID, "there is no tool \"%.80s\" to call", r->spec->tool);
    if (t.n == 0) eb_build_fail(&r->b, EBRO_INVALID, "there is no tool to call");
    return t;
}

/* ---- calls -------------------------------------------------------------------------------- */

/* How a family writes a call: what stands before its number, and what behind. */
struct family {
    void (*name)(struct eb_draft *r, const struct tool *tool);
    void (*arguments)(struct eb_draft *r, struct eb_schema *s, const json_t *parameters,
                      const struct eb_where *where);
    void (*call)(struct eb_draft *r, const struct tool *tool, unsigned n);
};

static void build_arguments(struct eb_draft *r, struct tool *tool, const struct family *f) {
    struct eb_schema s;
    char place[64];
    snprintf(place, sizeof place, "tools[%zu].function.parameters", tool->number);
    struct eb_where where = {.name = place};
    tool->arguments = eb_rule_declare(&r->b);
    uint32_t begun = eb_rule_begin(&r->b, tool->arguments);
    eb_schema_begin(&s, &r->b, &r->rules, tool->parameters);
    f->arguments(r, &s, tool->parameters, &where);
    eb_rule_end(&r->b, begun);
    eb_schema_end(&s);
}

/* Rules, so that names and arguments stand once however many calls there may be. */
static void build_tools(struct eb_draft *r, struct tools *t, const struct family *f) {
    for (size_t i = 0; i < t->n && r->b.st == EBRO_OK; i++) {
        struct tool *tool = &t->list[i];
        tool->call = eb_rule_declare(&r->b);
        uint32_t begun = eb_rule_begin(&r->b, tool->call);
        f->name(r, tool);
        eb_rule_end(&r->b, begun);
        build_arguments(r, tool, f);
    }
}

static void build_calls(struct eb_draft *r, const struct tools *t, const struct family *f) {
    unsigned most = r->spec->parallel_calls ? EB_MAX_CALLS : 1;
    struct eb_alt all, one;
    eb_alt_begin(&r->b, &all);
    eb_alt_option(&r->b, &all);
    for (unsigned n = 0; n < most && r->b.st == EBRO_OK; n++) {
        if (n > 0) eb_fork_to(&r->b, eb_build_fork(&r->b), all.exit);
        eb_alt_begin(&r->b, &one);
        for (size_t i = 0; i < t->n; i++) {
            eb_alt_option(&r->b, &one);
            f->call(r, &t->list[i], n);
        }
        eb_alt_end(&r->b, &one);
    }
    eb_alt_end(&r->b, &all);
}

/* ---- Kimi Linear -------------------------------------------------------------------------- */

static void linear_arguments(struct eb_draft *r, struct eb_schema *s, const json_t *parameters,
                             const struct eb_where *where) {
    struct eb_form object = {.types = EB_TYPE_OBJECT};
    if (parameters == NULL)
        eb_build_text(&r->b, "{}");
    else
        eb_schema_value(s, parameters, object, where);
}

static void linear_name(struct eb_draft *r, const struct tool *tool) {
    eb_draft_control(r, "<|tool_call_begin|>");
    eb_build_text(&r->b, "functions.");
    eb_build_text(&r->b, tool->name);
}

/* <|tool_call_begin|>functions.NAME:N<|tool_call_argument_begin|>{...}<|tool_call_end|>, calls
 * counted from 0 */
static void linear_call(struct eb_draft *r, const struct tool *tool, unsigned n) {
    char index[16];
    snprintf(index, sizeof index, ":%u", n);
    eb_build_call(&r->b, tool->call, EB_CALL_COST);
    eb_build_text(&r->b, index);
    eb_draft_control(r, "<|tool_call_argument_begin|>");
    eb_build_call(&r->b, tool->arguments, EB_CALL_COST);
    eb_draft_control(r, "<|tool_call_end|>");
}

void eb_calls_linear(struct eb_draft *r) {
    static const struct family linear = {linear_name, linear_arguments, linear_call};
    struct tools t = read_tools(r);
    build_tools(r, &t, &linear);
    eb_draft_control(r, "<|tool_calls_section_begin|>");
    build_calls(r, &t, &linear);
    eb_draft_control(r, "<|tool_calls_section_end|>");
    free(t.list);
}

/* ---- Kimi K3 ------------------------------------------------------------------------------ */

/* Within quotes '&' and '"' are written as in XML, and nothing else. */
static void build_attribute(struct eb_draft *r, const char *name, const char *value, size_t n) {
    eb_build_text(&r->b, " ");
    eb_build_text(&r->b, name);
    eb_build_text(&r->b, "=\"");
    for (size_t i = 0; i < n; i++) {
        if (value[i] == '&')
            eb_build_text(&r->b, "&amp;");
        else if (value[i] == '"')
            eb_build_text(&r->b, "&quot;");
        else
            eb_build_byte(&r->b, (unsigned char)value[i]);
    }
    eb_build_text(&r->b, "\"");
}

/* The type is said before the value: for each one there is, the values of that type. Those that the
 * schema has none of are never begun. */
static void k3_argument(struct eb_draft *r, struct eb_schema *s, const struct eb_member *m,
                        const struct eb_where *where) {
    static const struct {
        const char *name;
        struct eb_form form;
    } types[] = {{"string", {EB_TYPE_STRING, true}},    {"number", {EB_TYPE_NUMBER, false}},
                 {"boolean", {EB_TYPE_BOOLEAN, false}}, {"null", {EB_TYPE_NULL, false}},
                 {"object", {EB_TYPE_OBJECT, false}},   {"array", {EB_TYPE_ARRAY, false}}};
    struct eb_alt alt;
    eb_draft_control(r, "<|open|>");
    eb_build_text(&r->b, "argument");
    build_attribute(r, "key", m->name, m->n);
    eb_alt_begin(&r->b, &alt);
    for (size_t i = 0; i < sizeof types / sizeof *types && r->b.st == EBRO_OK; i++) {
        eb_alt_option(&r->b, &alt);
        build_attribute(r, "type", types[i].name, strlen(types[i].name));
        eb_draft_control(r, "<|sep|>");
        eb_schema_value(s, m->schema, types[i].form, where);
    }
    eb_alt_end(&r->b, &alt);
    eb_draft_tag(r, false, "argument");
}

/* Listed arguments, in order, and the end of the call. */
static void k3_arguments(struct eb_draft *r, struct eb_schema *s, const json_t *parameters,
                         const struct eb_where *where) {
    struct eb_where properties = eb_where_below(where, "properties");
    struct eb_members m = {0};
    if (parameters != NULL) parameters = eb_schema_arguments(s, parameters, where);
    if (parameters != NULL) eb_schema_members(s, parameters, &m, where);
    for (size_t i = 0; i < m.n && r->b.st == EBRO_OK; i++) {
        struct eb_where at = eb_where_below(&properties, m.list[i].name);
        uint32_t skip = m.list[i].required ? 0 : eb_build_fork(&r->b);
        k3_argument(r, s, &m.list[i], &at);
        if (!m.list[i].required) eb_fork_here(&r->b, skip);
    }
    free(m.list);
    eb_draft_tag(r, false, "call");
}

static void k3_name(struct eb_draft *r, const struct tool *tool) {
    eb_draft_control(r, "<|open|>");
    eb_build_text(&r->b, "call");
    build_attribute(r, "tool", tool->name, strlen(tool->name));
}

/* <|open|>call tool="NAME" index="N"<|sep|>...<|close|>call<|sep|>, calls counted from 1 */
static void k3_call(struct eb_draft *r, const struct tool *tool, unsigned n) {
    char index[16];
    int digits = snprintf(index, sizeof index, "%u", n + 1);
    eb_build_call(&r->b, tool->call, EB_CALL_COST);
    build_attribute(r, "index", index, (size_t)digits);
    eb_draft_control(r, "<|sep|>");
    eb_build_call(&r->b, tool->arguments, EB_CALL_COST);
}

void eb_calls_k3(struct eb_draft *r) {
    static const struct family k3 = {k3_name, k3_arguments, k3_call};
    struct tools t = read_tools(r);
    build_tools(r, &t, &k3);
    eb_draft_tag(r, true, "tools");
    build_calls(r, &t, &k3);
    eb_draft_tag(r, false, "tools");
    free(t.list);
}
