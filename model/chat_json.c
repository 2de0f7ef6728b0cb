/* chat_json.c: a conversation in OpenAI's form, as JSON, taken apart. Every error names the place:
 * "messages[3].content is an integer; a string or an array of parts is right". Not its job: how it
 * is rendered. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/chat_form.h"

/* What a parser builds of the values is bounded by them: about 32 MiB. */
static const struct eb_json_limits limits = {.bytes = 64 << 20, .depth = 64, .values = 200000};

enum {
    MAX_CALLS = 1024, /* in one message: a result is looked for among them one by one */
    MAX_NAME_BYTES = 256
};

struct place {
    char text[96];
};

struct chat_reader {
    const struct eb_alloc *a;
    ebro_error *err;
};

/* ---- values ----------------------------------------------------------------------------- */

/* A place ends with a dot, for a key to follow. */
static int32_t wrong(const struct chat_reader *r, const char *place, const char *key,
                     const json_t *found, const char *want) {
    const size_t whole = strlen(place), n = key[0] == '\0' && whole > 0 ? whole - 1 : whole;
    if (found == NULL)
        return eb_fail(r->err, EBRO_INVALID, "%.*s%s is missing; %s is right", (int)n, place, key,
                       want);
    return eb_fail(r->err, EBRO_INVALID, "%.*s%s is %s; %s is right", (int)n, place, key,
                   eb_json_type_name(found), want);
}

static struct eb_span span_of(const json_t *v) {
    return (struct eb_span){json_string_value(v), json_string_length(v)};
}

/* NULL: missing, or null. */
static const json_t *get(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    return json_is_null(v) ? NULL : v;
}

static int32_t read_string(const struct chat_reader *r, const char *place, const json_t *object,
                           const char *key, struct eb_span *out) {
    const json_t *v = json_object_get(object, key);
    if (!json_is_string(v)) return wrong(r, place, key, v, "a string");
    *out = span_of(v);
    return EBRO_OK;
}

/* Missing or null: *out stays. */
static int32_t read_optional(const struct chat_reader *r, const char *place, const json_t *object,
                             const char *key, struct eb_span *out) {
    return get(object, key) == NULL ? EBRO_OK : read_string(r, place, object, key, out);
}

/* A name of a message or tool, an id of a call: not empty, and short. */
static int32_t read_name(const struct chat_reader *r, const char *place, const json_t *object,
                         const char *key, struct eb_span *out) {
    int32_t st = read_string(r, place, object, key, out);
    if (st != EBRO_OK || (out->n > 0 && out->n <= MAX_NAME_BYTES)) return st;
    return eb_fail(r->err, EBRO_INVALID, "%s%s has %zu bytes; 1 to %d are right", place, key,
                   out->n, MAX_NAME_BYTES);
}

static struct place place_in(const char *fmt, ...) EB_PRINTF(1, 2);
static struct place place_in(const char *fmt, ...) {
    struct place p;
    va_list args;
    va_start(args, fmt);
    vsnprintf(p.text, sizeof p.text, fmt, args); /* the longest one has 60 bytes */
    va_end(args);
    return p;
}

/* ---- messages --------------------------------------------------------------------------- */

static int32_t read_role(const struct chat_reader *r, const char *place, const json_t *m,
                         enum eb_chat_role *out) {
    static const struct {
        const char *name;
        enum eb_chat_role role;
    } roles[] = {{"system", EB_CHAT_SYSTEM},
                 {"developer", EB_CHAT_SYSTEM},
                 {"user", EB_CHAT_USER},
                 {"assistant", EB_CHAT_ASSISTANT},
                 {"tool", EB_CHAT_TOOL}};
    struct eb_span role = {0};
    int32_t st = read_string(r, place, m, "role", &role);
    if (st != EBRO_OK) return st;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (!eb_span_equal(role, (struct eb_span){roles[i].name, strlen(roles[i].name)})) continue;
        *out = roles[i].role;
        return EBRO_OK;
    }
    return eb_fail(r->err, EBRO_INVALID,
                   "%srole is \"%.40s\"; system, developer, user, assistant and tool are known",
                   place, role.p);
}

static int32_t read_part(const struct chat_reader *r, const char *place, const json_t *v,
                         struct eb_span *out) {
    struct eb_span type = {0};
    if (!json_is_object(v)) return wrong(r, place, "", v, "an object");
    int32_t st = read_string(r, place, v, "type", &type);
    if (st == EBRO_OK && !eb_span_equal(type, (struct eb_span){"text", 4}))
        st = eb_fail(r->err, EBRO_UNSUPPORTED, "%stype is \"%.40s\"; only \"text\" can be read",
                     place, type.p);
    return st == EBRO_OK ? read_string(r, place, v, "text", out) : st;
}

static int32_t read_parts(const struct chat_reader *r, const char *place, const json_t *list,
                          struct eb_chat_entry *e) {
    const size_t n = json_array_size(list);
    struct eb_span *parts = eb_calloc(r->a, n, sizeof *parts, r->err);
    int32_t st = parts != NULL ? EBRO_OK : EBRO_NOMEM_HOST;
    e->parts = parts;
    for (size_t i = 0; i < n && st == EBRO_OK; i++) {
        const struct place p = place_in("%scontent[%zu].", place, i);
        st = read_part(r, p.text, json_array_get(list, i), &parts[i]);
        e->n_parts = i + 1;
    }
    return st;
}

static int32_t read_content(const struct chat_reader *r, const char *place, const json_t *m,
                            struct eb_chat_entry *e) {
    const json_t *v = json_object_get(m, "content");
    if (json_is_array(v)) return read_parts(r, place, v, e);
    if (json_is_string(v)) {
        e->whole = span_of(v);
        return EBRO_OK;
    }
    if ((v == NULL || json_is_null(v)) && e->n_calls > 0) return EBRO_OK;
    return wrong(r, place, "content", v, "a string or an array of parts");
}

static int32_t read_call(const struct chat_reader *r, const char *place, const json_t *v,
                         struct eb_chat_call *out) {
    struct eb_span type = {"function", 8};
    if (!json_is_object(v)) return wrong(r, place, "", v, "an object");
    int32_t st = read_optional(r, place, v, "type", &type);
    if (st == EBRO_OK && !eb_span_equal(type, (struct eb_span){"function", 8}))
        st = eb_fail(r->err, EBRO_UNSUPPORTED, "%stype is \"%.40s\"; only \"function\" is known",
                     place, type.p);
    if (st == EBRO_OK) st = read_name(r, place, v, "id", &out->id);
    const json_t *function = json_object_get(v, "function");
    if (st == EBRO_OK && !json_is_object(function))
        st = wrong(r, place, "function", function, "an object");
    const struct place in = place_in("%sfunction.", place);
    if (st == EBRO_OK) st = read_name(r, in.text, function, "name", &out->name);
    return st == EBRO_OK ? read_string(r, in.text, function, "arguments", &out->arguments) : st;
}

static int32_t read_calls(const struct chat_reader *r, const char *place, const json_t *m,
                          struct eb_chat_entry *e) {
    const json_t *list = get(m, "tool_calls");
    if (list == NULL) return EBRO_OK;
    if (!json_is_array(list)) return wrong(r, place, "tool_calls", list, "an array");
    const size_t n = json_array_size(list);
    if (n > MAX_CALLS)
        return eb_fail(r->err, EBRO_INVALID, "%stool_calls has %zu calls; %d at most", place, n,
                       MAX_CALLS);
    struct eb_chat_call *calls = eb_calloc(r->a, n, sizeof *calls, r->err);
    int32_t st = calls != NULL ? EBRO_OK : EBRO_NOMEM_HOST;
    e->calls = calls;
    for (size_t i = 0; i < n && st == EBRO_OK; i++) {
        const struct place p = place_in("%stool_calls[%zu].", place, i);
        st = read_call(r, p.text, json_array_get(list, i), &calls[i]);
        e->n_calls = i + 1;
    }
    return st;
}

static int32_t read_message(const struct chat_reader *r, size_t i, const json_t *m,
                            struct eb_chat_entry *e) {
    const struct place p = place_in("messages[%zu].", i);
    if (!json_is_object(m)) return wrong(r, p.text, "", m, "an object");
    int32_t st = read_role(r, p.text, m, &e->role);
    if (st == EBRO_OK && get(m, "name") != NULL) st = read_name(r, p.text, m, "name", &e->name);
    if (st == EBRO_OK && e->role == EB_CHAT_ASSISTANT) {
        st = read_calls(r, p.text, m, e);
        if (st == EBRO_OK) st = read_optional(r, p.text, m, "reasoning_content", &e->reasoning);
    }
    if (st == EBRO_OK && e->role == EB_CHAT_TOOL)
        st = read_name(r, p.text, m, "tool_call_id", &e->call_id);
    return st == EBRO_OK ? read_content(r, p.text, m, e) : st;
}

static int32_t read_messages(const struct chat_reader *r, const json_t *root,
                             struct eb_chat_request *out) {
    const json_t *list = json_object_get(root, "messages");
    if (!json_is_array(list)) return wrong(r, "", "messages", list, "an array");
    const size_t n = json_array_size(list);
    out->entries = eb_calloc(r->a, n, sizeof *out->entries, r->err);
    int32_t st = out->entries != NULL ? EBRO_OK : EBRO_NOMEM_HOST;
    out->chat.entries = out->entries;
    for (size_t i = 0; i < n && st == EBRO_OK; i++) {
        out->chat.n = i + 1;
        st = read_message(r, i, json_array_get(list, i), &out->entries[i]);
    }
    return st;
}

/* ---- tools ------------------------------------------------------------------------------ */

static int32_t check_tool(const struct chat_reader *r, size_t i, const json_t *tool) {
    const struct place p = place_in("tools[%zu].", i);
    struct eb_span type = {0}, name = {0};
    if (!json_is_object(tool)) return wrong(r, p.text, "", tool, "an object");
    int32_t st = read_string(r, p.text, tool, "type", &type);
    if (st == EBRO_OK && !eb_span_equal(type, (struct eb_span){"function", 8}))
        st = eb_fail(r->err, EBRO_UNSUPPORTED, "%stype is \"%.40s\"; only \"function\" is known",
                     p.text, type.p);
    const json_t *function = json_object_get(tool, "function");
    if (st == EBRO_OK && !json_is_object(function))
        st = wrong(r, p.text, "function", function, "an object");
    const struct place in = place_in("%sfunction.", p.text);
    return st == EBRO_OK ? read_name(r, in.text, function, "name", &name) : st;
}

/* All of a tool is for the model to read, so it is kept as it is. */
static int32_t read_tools(const struct chat_reader *r, const json_t *root,
                          struct eb_chat_request *out) {
    const json_t *list = get(root, "tools");
    int32_t st = EBRO_OK;
    if (list == NULL) return EBRO_OK;
    if (!json_is_array(list)) return wrong(r, "", "tools", list, "an array");
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n && st == EBRO_OK; i++) st = check_tool(r, i, json_array_get(list, i));
    if (st != EBRO_OK || n == 0) return st;
    st = eb_json_write(r->a, list, EB_JSON_COMPACT_SORTED, &out->tools, r->err);
    out->chat.tools = (struct eb_span){out->tools.v, out->tools.n};
    return st;
}

/* ---- all -------------------------------------------------------------------------------- */

static int32_t parse(const char *json, size_t bytes, json_t **out, ebro_error *err) {
    const struct eb_bytes text = {.data = (const uint8_t *)json, .bytes = bytes};
    json_error_t e;
    int32_t st = eb_json_bound("the conversation", &text, &limits, EBRO_INVALID, err);
    if (st != EBRO_OK) return st;
    json_t *root = json_loadb(json, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
    if (root == NULL && json_error_code(&e) == json_error_out_of_memory)
        return eb_fail(err, EBRO_NOMEM_HOST, "out of memory for the conversation");
    if (root == NULL)
        return eb_fail(err, EBRO_INVALID, "the conversation: line %d, column %d: %s", e.line,
                       e.column, e.text);
    *out = root;
    if (json_is_object(root)) return EBRO_OK;
    return eb_fail(err, EBRO_INVALID,
                   "the conversation is %s; an object with \"messages\" is right",
                   eb_json_type_name(root));
}

int32_t eb_chat_request_open(const struct eb_alloc *a, const char *json, size_t bytes,
                             struct eb_chat_request *out, ebro_error *err) {
    const struct chat_reader r = {.a = a, .err = err};
    json_t *root = NULL;
    *out = (struct eb_chat_request){0};
    int32_t st = parse(json, bytes, &root, err);
    out->root = root;
    if (st == EBRO_OK) st = read_messages(&r, root, out);
    if (st == EBRO_OK) st = read_tools(&r, root, out);
    return st;
}

void eb_chat_request_close(const struct eb_alloc *a, struct eb_chat_request *r) {
    for (size_t i = 0; i < r->chat.n; i++) {
        /* borrowed as const by those who read them */
        eb_free(a, (void *)(uintptr_t)r->entries[i].parts);
        eb_free(a, (void *)(uintptr_t)r->entries[i].calls);
    }
    eb_free(a, r->entries);
    eb_free(a, r->tools.v);
    json_decref(r->root);
    *r = (struct eb_chat_request){0};
}
