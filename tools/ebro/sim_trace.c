/* sim_trace.c: reads a trace of prompts, JSON lines, strictly. What stands in it is documented in
 * the help of `ebro cache-sim`. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "sim.h"

uint64_t eb_sim_name(const char *name) {
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

/* splitmix64's finaliser. */
int32_t eb_sim_token(uint64_t name, uint64_t index, uint32_t vocab) {
    uint64_t z = name + (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (int32_t)(((z >> 32) * vocab) >> 32);
}

struct reader {
    struct eb_sim_trace *t;
    const char *label;
    uint64_t line;
    json_t *sessions; /* name -> number */
    ebro_error *err;
};

static int32_t wrong(const struct reader *r, const char *what) {
    return eb_fail(r->err, EBRO_FORMAT, "%s, line %llu: %s", r->label, (unsigned long long)r->line,
                   what);
}

static int32_t grow(void **p, size_t *capacity, size_t need, size_t size, ebro_error *err) {
    return eb_grow(NULL, p, capacity, need, size, err);
}

/* One more element of a list of the trace. */
#define MORE(r, list)                                                                    \
    grow((void **)(void *)&(r)->t->list, &(r)->t->list##_capacity, (r)->t->n_##list + 1, \
         sizeof *(r)->t->list, (r)->err)

static bool is_count(const json_t *v, json_int_t least, json_int_t most) {
    return json_is_integer(v) && json_integer_value(v) >= least && json_integer_value(v) <= most;
}

static int32_t add_ids(struct reader *r, const json_t *ids) {
    struct eb_sim_trace *t = r->t;
    struct eb_sim_part p = {.from = t->n_ids, .n = (uint32_t)json_array_size(ids), .given = true};
    if (json_array_size(ids) > EB_SIM_MAX_PROMPT) return wrong(r, "too many token ids");
    for (uint32_t i = 0; i < p.n; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!is_count(id, 0, INT32_MAX)) return wrong(r, "a token id is a whole number from 0");
        int32_t st = MORE(r, ids);
        if (st != EBRO_OK) return st;
        t->ids[t->n_ids++] = (int32_t)json_integer_value(id);
    }
    int32_t st = MORE(r, parts);
    if (st == EBRO_OK) t->parts[t->n_parts++] = p;
    return st;
}

/* ["name", n], ["name", n, from], or ids. */
static int32_t add_part(struct reader *r, const json_t *v) {
    static const char form[] =
        "a part is [\"name\", tokens], [\"name\", tokens, first] or an array of token ids";
    size_t n = json_array_size(v);
    if (!json_is_array(v) || n == 0) return wrong(r, form);
    if (!json_is_string(json_array_get(v, 0))) return add_ids(r, v);
    if (n < 2 || n > 3 || !is_count(json_array_get(v, 1), 1, EB_SIM_MAX_PROMPT))
        return wrong(r, form);
    if (n == 3 && !is_count(json_array_get(v, 2), 0, INT32_MAX)) return wrong(r, form);
    int32_t st = MORE(r, parts);
    if (st != EBRO_OK) return st;
    r->t->parts[r->t->n_parts++] = (struct eb_sim_part){
        .name = eb_sim_name(json_string_value(json_array_get(v, 0))),
        .from = n == 3 ? (uint64_t)json_integer_value(json_array_get(v, 2)) : 0,
        .n = (uint32_t)json_integer_value(json_array_get(v, 1))};
    return EBRO_OK;
}

static int32_t add_parts(struct reader *r, const json_t *v) {
    size_t i;
    const json_t *one;
    if (!json_is_array(v)) return wrong(r, "\"parts\" is an array of parts");
    json_array_foreach(v, i, one) {
        int32_t st = add_part(r, one);
        if (st != EBRO_OK) return st;
    }
    return EBRO_OK;
}

/* A number of tokens that stand nowhere else, or a part. */
static int32_t add_reply(struct reader *r, const json_t *v, struct eb_sim_request *q) {
    if (json_is_integer(v)) {
        if (!is_count(v, 0, EB_SIM_MAX_PROMPT))
            return wrong(r, "\"generate\" is a number from 0, or a part");
        if (json_integer_value(v) == 0) return EBRO_OK;
        char name[48];
        snprintf(name, sizeof name, "\x01reply %llu", (unsigned long long)r->line);
        int32_t st = MORE(r, parts);
        if (st != EBRO_OK) return st;
        r->t->parts[r->t->n_parts++] =
            (struct eb_sim_part){.name = eb_sim_name(name), .n = (uint32_t)json_integer_value(v)};
    } else {
        int32_t st = add_part(r, v);
        if (st != EBRO_OK) return st;
    }
    q->n_reply = 1;
    return EBRO_OK;
}

static int32_t find_session(struct reader *r, const json_t *v, uint32_t *out) {
    if (!json_is_string(v)) return wrong(r, "\"session\" is a name");
    const json_t *known = json_object_get(r->sessions, json_string_value(v));
    *out = known ? (uint32_t)json_integer_value(known) : r->t->n_sessions;
    if (known) return EBRO_OK;
    if (json_object_set_new(r->sessions, json_string_value(v), json_integer(*out)) != 0)
        return eb_fail(r->err, EBRO_NOMEM_HOST, "out of memory for a session");
    r->t->n_sessions++;
    return EBRO_OK;
}

static int32_t add_keeps(struct reader *r, const json_t *v, struct eb_sim_request *q) {
    size_t i;
    const json_t *one;
    if (!json_is_array(v)) return wrong(r, "\"keep\" is an array of positions in the prompt");
    q->first_keep = r->t->n_keeps;
    json_array_foreach(v, i, one) {
        if (!is_count(one, 1, EB_SIM_MAX_PROMPT))
            return wrong(r, "\"keep\" is an array of positions in the prompt");
        int32_t st = MORE(r, keeps);
        if (st != EBRO_OK) return st;
        r->t->keeps[r->t->n_keeps++] = (uint32_t)json_integer_value(one);
        q->n_keep++;
    }
    return EBRO_OK;
}

static int32_t check_keys(struct reader *r, json_t *line) {
    static const char *const keys[] = {"id",     "session",  "cut", "parts",
                                       "tokens", "generate", "keep"};
    const char *key;
    json_t *value;
    json_object_foreach(line, key, value) {
        size_t i = 0;
        while (i < sizeof keys / sizeof *keys && strcmp(keys[i], key) != 0) i++;
        if (i == sizeof keys / sizeof *keys)
            return eb_fail(r->err, EBRO_FORMAT,
                           "%s, line %llu: \"%.40s\" is none of id, session, cut, parts, tokens, "
                           "generate, keep",
                           r->label, (unsigned long long)r->line, key);
    }
    return EBRO_OK;
}

static int32_t add_request(struct reader *r, json_t *line) {
    struct eb_sim_request q = {
        .line = r->line, .session = EB_SIM_NONE, .cut = EB_SIM_NONE, .first_part = r->t->n_parts};
    const json_t *session = json_object_get(line, "session"), *cut = json_object_get(line, "cut");
    const json_t *parts = json_object_get(line, "parts"), *ids = json_object_get(line, "tokens");
    const json_t *reply = json_object_get(line, "generate"), *keep = json_object_get(line, "keep");
    int32_t st = check_keys(r, line);
    if (st == EBRO_OK && session) st = find_session(r, session, &q.session);
    if (st == EBRO_OK && cut) {
        if (!session || !is_count(cut, 0, EB_SIM_MAX_PROMPT))
            return wrong(r, "\"cut\" is how many tokens of the session stay");
        q.cut = (uint32_t)json_integer_value(cut);
    }
    if (st == EBRO_OK && parts && ids) return wrong(r, "\"parts\" or \"tokens\", not both");
    if (st == EBRO_OK && parts) st = add_parts(r, parts);
    if (st == EBRO_OK && ids)
        st = json_is_array(ids) ? add_ids(r, ids) : wrong(r, "\"tokens\" is an array of token ids");
    q.n_parts = (uint32_t)(r->t->n_parts - q.first_part);
    if (st == EBRO_OK && reply) st = add_reply(r, reply, &q);
    if (st == EBRO_OK && keep) st = add_keeps(r, keep, &q);
    if (st == EBRO_OK) st = MORE(r, requests);
    if (st == EBRO_OK) r->t->requests[r->t->n_requests++] = q;
    return st;
}

static int32_t read_line(struct reader *r, const char *text, size_t n) {
    json_error_t why;
    if (strspn(text, " \t\r\n") == n) return EBRO_OK;
    json_t *line = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!line && json_error_code(&why) == json_error_out_of_memory)
        return eb_fail(r->err, EBRO_NOMEM_HOST, "out of memory while reading %s", r->label);
    if (!line) return wrong(r, why.text);
    int32_t st = json_is_object(line) ? add_request(r, line) : wrong(r, "not a JSON object");
    json_decref(line);
    return st;
}

int32_t eb_sim_read(FILE *f, const char *label, struct eb_sim_trace *out, ebro_error *err) {
    out->label = label;
    struct reader r = {.t = out, .label = label, .sessions = json_object(), .err = err};
    char *text = NULL;
    size_t capacity = 0;
    ssize_t n;
    int32_t st = EBRO_OK;
    if (!r.sessions) st = eb_fail(err, EBRO_NOMEM_HOST, "out of memory while reading %s", label);
    while (st == EBRO_OK && (n = getline(&text, &capacity, f)) >= 0) {
        r.line = ++out->n_lines;
        st = read_line(&r, text, (size_t)n);
    }
    if (st == EBRO_OK && !feof(f)) st = eb_fail(err, EBRO_IO, "%s cannot be read", label);
    free(text);
    json_decref(r.sessions);
    return st;
}

void eb_sim_trace_free(struct eb_sim_trace *t) {
    eb_free(NULL, t->requests);
    eb_free(NULL, t->parts);
    eb_free(NULL, t->ids);
    eb_free(NULL, t->keeps);
    *t = (struct eb_sim_trace){0};
}
