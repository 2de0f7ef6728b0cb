#include "tests/load/requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"
#include "tests/load/client.h"

/* ---- the requests ----------------------------------------------------------------------- */

#define CHAT "/v1/chat/completions"
#define TEXT "/v1/completions"
#define USER(text) "\"messages\":[{\"role\":\"user\",\"content\":\"" text "\"}]"
#define CODES "Remember: the code for Mira is 4821. The code for Tom is 1938. "
#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"look_up\",\"parameters\":"         \
    "{\"type\":\"object\",\"properties\":{\"name\":{\"enum\":[\"Mira\",\"Tom\"]},\"exact\":"       \
    "{\"type\":\"boolean\"}},\"required\":[\"name\",\"exact\"],\"additionalProperties\":false}}}," \
    "{\"type\":\"function\",\"function\":{\"name\":\"clock\",\"parameters\":{\"type\":\"object\"," \
    "\"properties\":{},\"additionalProperties\":false}}}]"
#define SCHEMA                                                                                  \
    "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":" \
    "{\"type\":\"object\",\"properties\":{\"code\":{\"type\":\"integer\",\"minimum\":0,"        \
    "\"maximum\":9999},\"who\":{\"enum\":[\"Mira\",\"Tom\"]}},\"required\":[\"code\",\"who\"]," \
    "\"additionalProperties\":false}}}"

/* Asked whole, and streamed too. */
static const struct {
    const char *path, *body;
} generating[] = {
    {CHAT, USER(CODES "What is the code for Tom?")},
    {CHAT, USER(CODES "What is the code for Mira?") ",\"logprobs\":true,\"top_logprobs\":2"},
    {CHAT, USER("Hello") ",\"max_tokens\":12,\"temperature\":1,\"seed\":1"},
    {CHAT, USER("Hello") ",\"max_tokens\":12,\"temperature\":1,\"seed\":2,\"n\":2"},
    {CHAT, USER("Why?") ",\"max_tokens\":20,\"reasoning_effort\":\"low\""},
    {CHAT, USER("Tell me a story.") ",\"max_tokens\":24,\"stop\":[\" the\",\" a\"]"},
    {CHAT, USER(CODES "Which codes?") "," SCHEMA},
    {CHAT, USER(CODES "Which codes?") "," SCHEMA ",\"temperature\":1.5,\"seed\":3"},
    {CHAT,
     USER(
         "Give me an object.") ",\"response_format\":{\"type\":\"json_object\"},\"max_tokens\":24"},
    {CHAT, USER(CODES "Look up Tom.") "," TOOLS ",\"tool_choice\":\"required\",\"seed\":4"},
    {CHAT, USER(CODES "Look up Tom.") "," TOOLS ",\"tool_choice\":{\"type\":\"function\","
                                      "\"function\":{\"name\":\"clock\"}}"},
    {CHAT, USER(CODES "Look up Tom.") "," TOOLS ",\"max_tokens\":16"},
    {CHAT, "\"messages\":[{\"role\":\"system\",\"content\":\"" CODES CODES CODES CODES
           "\"},{\"role\":\"user\",\"content\":\"What is the code for Tom?\"},"
           "{\"role\":\"assistant\",\"content\":\"1938\"},"
           "{\"role\":\"user\",\"content\":\"And for Mira?\"}],\"max_tokens\":16"},
    {TEXT, "\"prompt\":\"The whale is\",\"max_tokens\":16"},
    {TEXT, "\"prompt\":\"The whale is\",\"max_tokens\":16,\"temperature\":1,\"seed\":5"},
    {TEXT,
     "\"prompt\":\"The whale is a large animal\",\"max_tokens\":8,\"n\":3,"
     "\"temperature\":0.8,\"seed\":6"},
    {TEXT, "\"prompt\":\"" CODES CODES CODES CODES CODES CODES CODES CODES "\",\"max_tokens\":6"},
    {TEXT, "\"prompt\":[5,6,7,8,9],\"max_tokens\":10,\"ignore_eos\":true"},
    {TEXT,
     "\"prompt\":\"Once upon a time\",\"max_tokens\":20,\"repeat_penalty\":1.3,"
     "\"logit_bias\":{\"10\":-100}"},
};
enum { N_GENERATING = sizeof generating / sizeof generating[0] };

/* `{` nested deeper than is allowed; a prompt longer than the context. */
#define NEST "[[[[[[[[[[[[[[[["
#define LONG CODES CODES CODES CODES CODES CODES CODES CODES

/* body NULL: GET */
static const struct {
    const char *path, *body;
    bool changes;
} others[] = {
    {"/v1/models", NULL, false},
    {"/v1/models/nobody", NULL, false},
    {"/health", NULL, true},
    {"/slots", NULL, true},
    {"/metrics", NULL, true},
    {"/", NULL, true},
    {"/nothing", NULL, false},
    {"/tokenize", "{\"content\":\"The whale is " CODES "\"}", false},
    {"/detokenize", "{\"tokens\":[100,200,300]}", false},
    {"/detokenize", "{\"tokens\":[100,-1]}", false},
    {"/health", "{}", false},
    {CHAT, "{}", false},
    {CHAT, "", false},
    {CHAT, "[]", false},
    {CHAT, "{\"messages\":", false},
    {CHAT, "{\"messages\":[{\"role\":\"user\"}]}", false},
    {CHAT, "{" USER("x") ",\"max_tokens\":-1}", false},
    {CHAT, "{" USER("x") ",\"temperature\":\"hot\"}", false},
    {CHAT, "{" USER("x") ",\"n\":1000000}", false},
    {CHAT, "{" USER("x") ",\"model\":\"nobody\"}", false},
    {CHAT, "{" USER("x") ",\"response_format\":{\"type\":\"json_schema\"}}", false},
    {CHAT, "{" USER("x") ",\"x\":" NEST NEST NEST NEST NEST "]}", false},
    {TEXT, "{\"prompt\":\"" LONG LONG LONG LONG LONG LONG "\"}", false},
    {TEXT, "{\"prompt\":[1,2,99999999]}", false},
    {TEXT, "{\"prompt\":\"\\ud800\"}", false},
};
enum { N_OTHERS = sizeof others / sizeof others[0] };

static void make(struct load_request *r, const char *path, const char *body) {
    r->bytes = load_request(path, body, &r->n);
    r->what = strchr(r->bytes, ' ') + 1;
}

struct load_request *load_requests_make(uint32_t *n) {
    struct load_request *all = calloc(2 * N_GENERATING + N_OTHERS, sizeof *all);
    uint32_t at = 0;
    char body[4096];
    assert_non_null(all);
    for (uint32_t i = 0; i < 2 * N_GENERATING; i++, at++) {
        int length = snprintf(body, sizeof body, "{%s%s}", generating[i / 2].body,
                              i % 2 ? ",\"stream\":true" : "");
        assert_true(length > 0 && length < (int)sizeof body);
        make(&all[at], generating[i / 2].path, body);
        all[at].same = i / 2 * 2;
        all[at].generates = true;
    }
    for (uint32_t i = 0; i < N_OTHERS; i++, at++) {
        make(&all[at], others[i].path, others[i].body);
        all[at].same = at;
        all[at].changes = others[i].changes;
    }
    *n = at;
    return all;
}

void load_requests_free(struct load_request **requests, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) free((*requests)[i].bytes);
    free(*requests);
    *requests = NULL;
}

/* ---- what an answer means --------------------------------------------------------------- */

enum { CHOICES = 8, CALLS = 16 };

/* Text that grows. */
struct text {
    char *v;
    size_t n;
};

/* A NUL, which a random model may write, becomes a 1: what is compared is a string. */
static void add(struct text *t, const char *v, size_t n) {
    t->v = realloc(t->v, t->n + n + 1);
    assert_non_null(t->v);
    for (size_t i = 0; i < n; i++) t->v[t->n + i] = v[i] != '\0' ? v[i] : '\1';
    t->n += n;
    t->v[t->n] = '\0';
}

static void add_string(struct text *t, const json_t *string) {
    if (json_is_string(string)) add(t, json_string_value(string), json_string_length(string));
}

struct choice {
    struct text content, reasoning, finish, logprobs;
    struct text names[CALLS], arguments[CALLS];
};

struct meaning {
    struct choice choices[CHOICES];
};

static void add_calls(struct choice *c, const json_t *calls) {
    size_t i;
    json_t *call;
    json_array_foreach(calls, i, call) {
        json_t *index = json_object_get(call, "index"), *f = json_object_get(call, "function");
        size_t k = index != NULL ? (size_t)json_integer_value(index) : i;
        if (k >= CALLS) continue;
        add_string(&c->names[k], json_object_get(f, "name"));
        add_string(&c->arguments[k], json_object_get(f, "arguments"));
    }
}

/* A choice of a whole answer, or of an event. */
static void add_choice(struct meaning *m, const json_t *choice) {
    size_t index = (size_t)json_integer_value(json_object_get(choice, "index")), i;
    json_t *said = json_object_get(choice, "message"), *entry;
    if (said == NULL) said = json_object_get(choice, "delta");
    if (index >= CHOICES) return;
    struct choice *c = &m->choices[index];
    add_string(&c->content, json_object_get(choice, "text"));
    add_string(&c->content, json_object_get(said, "content"));
    add_string(&c->reasoning, json_object_get(said, "reasoning_content"));
    add_string(&c->finish, json_object_get(choice, "finish_reason"));
    add_calls(c, json_object_get(said, "tool_calls"));
    json_array_foreach(json_object_get(json_object_get(choice, "logprobs"), "content"), i, entry) {
        char *line = json_dumps(entry, JSON_COMPACT | JSON_SORT_KEYS);
        assert_non_null(line);
        add(&c->logprobs, line, strlen(line));
        free(line);
    }
}

static void add_choices(struct meaning *m, const json_t *answer) {
    size_t i;
    json_t *choice;
    json_array_foreach(json_object_get(answer, "choices"), i, choice) add_choice(m, choice);
}

static void write_part(struct text *out, const char *name, struct text *part) {
    if (part->n > 0) {
        add(out, name, strlen(name));
        add(out, part->v, part->n);
    }
    free(part->v);
}

static void write_meaning(struct text *out, struct meaning *m) {
    char head[32];
    for (int i = 0; i < CHOICES; i++) {
        struct choice *c = &m->choices[i];
        snprintf(head, sizeof head, "\nreply %d ended by ", i);
        write_part(out, head, &c->finish);
        write_part(out, "\nreasoning: ", &c->reasoning);
        write_part(out, "\ncontent: ", &c->content);
        for (int k = 0; k < CALLS; k++) {
            write_part(out, "\ncall: ", &c->names[k]);
            write_part(out, "\nwith: ", &c->arguments[k]);
        }
        write_part(out, "\nlogprobs: ", &c->logprobs);
    }
}

/* Events up to [DONE], which must be the last. */
static bool read_stream(struct meaning *m, const char *body, struct text *out) {
    const char *at = body, *stop;
    for (; (stop = strstr(at, "\n\n")) != NULL; at = stop + 2) {
        const size_t n = (size_t)(stop - at);
        json_error_t e;
        if (n == 12 && memcmp(at, "data: [DONE]", 12) == 0) return stop[2] == '\0';
        json_t *event = n > 6 && memcmp(at, "data: ", 6) == 0
                            ? json_loadb(at + 6, n - 6, JSON_ALLOW_NUL, &e)
                            : NULL;
        if (event == NULL) return false;
        json_t *error = json_object_get(event, "error");
        if (error != NULL) add_string(out, json_object_get(error, "message"));
        add_choices(m, event);
        json_decref(event);
        if (error != NULL) return true;
    }
    return false;
}

/* What is the same each time, of an answer that holds no replies. */
static bool write_rest(struct text *out, json_t *answer) {
    size_t i;
    json_t *entry;
    json_object_del(answer, "created");
    json_array_foreach(json_object_get(answer, "data"), i, entry) {
        json_object_del(entry, "created");
        json_object_del(entry, "ebro");
    }
    char *line = json_dumps(answer, JSON_COMPACT | JSON_SORT_KEYS);
    if (line == NULL) return false;
    add(out, line, strlen(line));
    free(line);
    return true;
}

char *load_answer_meaning(int status, const char *body, bool is_stream) {
    struct meaning m = {0};
    struct text out = {0};
    char head[16];
    json_error_t e = {0};
    bool ok = true;
    snprintf(head, sizeof head, "%d ", status);
    add(&out, head, strlen(head));
    json_t *answer = is_stream ? NULL : json_loads(body, JSON_ALLOW_NUL, &e);
    if (is_stream) {
        ok = read_stream(&m, body, &out);
    } else if (answer == NULL) {
        ok = false;
    } else if (json_object_get(answer, "choices") != NULL) {
        add_choices(&m, answer);
    } else {
        ok = write_rest(&out, answer);
    }
    write_meaning(&out, &m);
    json_decref(answer);
    if (ok) return out.v;
    print_message("no answer of this server (%s): %d %.2000s\n", e.text, status, body);
    free(out.v);
    return NULL;
}
