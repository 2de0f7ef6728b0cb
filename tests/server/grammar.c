/* grammar.c: replies as a whole: the frames of the chat formats, tool calls, free text that is
 * UTF-8, masks, mistakes, and memory that runs out. Schemas are schema.c's. */
#include "tests/server/walker.h"

/* ---- replies written out ------------------------------------------------------------------ */

enum { MAX_TEXTS = 14 };

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":"
    "\"object\","
    "\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\",\"minimum\":1,"
    "\"maximum\":9},\"unit\":{\"enum\":[\"C\",\"F\"]},\"where\":{\"anyOf\":[{\"type\":\"null\"},"
    "{\"type\":\"array\",\"items\":{\"type\":\"number\"}}]}},\"required\":[\"city\"],"
    "\"additionalProperties\":false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"a\\\"&b\",\"parameters\":{\"$ref\":"
    "\"#/$defs/p\",\"$defs\":{\"p\":{\"type\":\"object\",\"properties\":{\"x\\\"\":"
    "{\"$ref\":\"#/$defs/q\"}},\"required\":[\"x\\\"\"],\"additionalProperties\":false},\"q\":"
    "{\"type\":\"string\",\"maxLength\":2}}}}}]";

struct reply_case {
    const char *architecture;
    bool plain, thinking, parallel;
    enum eb_content content;
    const char *schema;
    bool tools;
    const char *tool;
    const char *good[MAX_TEXTS], *bad[MAX_TEXTS];
};

#define SEP "<|sep|>"
#define OPEN(name) "<|open|>" name SEP
#define CLOSE(name) "<|close|>" name SEP
#define END CLOSE("message")
#define CALLS CLOSE("response") OPEN("tools")
#define CALL(name, index) OPEN("call tool=\"" name "\" index=\"" index "\"")
#define ARG(key, type, value) \
    OPEN("argument key=\"" key "\" type=\"" type "\"") value CLOSE("argument")
#define L_CALL(name, arguments)                                                   \
    "<|tool_call_begin|>functions." name "<|tool_call_argument_begin|>" arguments \
    "<|tool_call_end|>"
#define L_CALLS(calls) "<|tool_calls_section_begin|>" calls "<|tool_calls_section_end|>"

static const struct reply_case cases[] = {
    {.architecture = "kimi-k3",
     .plain = true,
     .good = {"", "text", "\xc3\xa9\n{\"", "\xf0\x9f\x98\x80"},
     .bad = {"\xc3", "\xff", "a<|close|>", "<|sep|>", "[EOS]x", "\xed\xa0\x80", "\xe4\xb8"}},
    {.architecture = "kimi-k3",
     .good = {CLOSE("response") END, "Hi. <|" CLOSE("response") END},
     .bad = {"", "Hi.", "Hi." CLOSE("response"), CLOSE("think") END, CLOSE("response") "x" END,
             "Hi." CLOSE(" response") END, "\xc3" CLOSE("response") END, OPEN("response") "x"}},
    {.architecture = "kimi-k3",
     .thinking = true,
     .good = {CLOSE("think") OPEN("response") CLOSE("response") END,
              "hm\n\xc3\xa9" CLOSE("think") OPEN("response") "Hi" CLOSE("response") END},
     .bad = {"Hi." CLOSE("response") END, "hm" CLOSE("think") CLOSE("response") END}},
    {.architecture = "kimi-k3",
     .content = EB_CONTENT_JSON_OBJECT,
     .good = {"{}" CLOSE("response") END, "{\"a\": [1]}" CLOSE("response") END},
     .bad = {CLOSE("response") END, "1" CLOSE("response") END, "{}"}},
    {.architecture = "kimi-k3",
     .plain = true,
     .content = EB_CONTENT_JSON_SCHEMA,
     .schema = "{\"type\":\"integer\"}",
     .good = {"12"},
     .bad = {"12" CLOSE("response") END, "{}"}},
    {.architecture = "kimi-k3",
     .tools = true,
     .good = {CALLS CALL("now", "1") CLOSE("call") CLOSE("tools") END,
              CALLS CALL("weather", "1") ARG("city", "string", "Bonn \"<\n") CLOSE("call")
                  CLOSE("tools") END,
              CALLS CALL("weather", "1") ARG("city", "string", "") ARG("days", "number", "3")
                  ARG("unit", "string", "F") ARG("where", "null", "null") CLOSE("call")
                      CLOSE("tools") END,
              CALLS CALL("weather", "1") ARG("city", "string", "") ARG("where", "array", "[1, 2]")
                  CLOSE("call") CLOSE("tools") END,
              CALLS CALL("a&quot;&amp;b", "1") ARG("x&quot;", "string", "ab") CLOSE("call")
                  CLOSE("tools") END},
     .bad = {CLOSE("response") END, "Hi" CALLS CALL("now", "1") CLOSE("call") CLOSE("tools") END,
             CALLS CLOSE("tools") END, CALLS CALL("now", "0") CLOSE("call") CLOSE("tools") END,
             CALLS CALL("now", "2") CLOSE("call") CLOSE("tools") END,
             CALLS CALL("later", "1") CLOSE("call") CLOSE("tools") END,
             CALLS CALL("weather", "1") CLOSE("call") CLOSE("tools") END,
             CALLS CALL("weather", "1") ARG("city", "number", "1") CLOSE("call") CLOSE("tools") END,
             CALLS CALL("weather", "1") ARG("city", "string", "x") ARG("unit", "string", "K")
                 CLOSE("call") CLOSE("tools") END,
             CALLS CALL("weather", "1") ARG("days", "number", "3") ARG("city", "string", "x")
                 CLOSE("call") CLOSE("tools") END,
             CALLS CALL("a&quot;&amp;b", "1") ARG("x&quot;", "string", "abc") CLOSE("call")
                 CLOSE("tools") END,
             CALLS CALL("now", "1") CLOSE("call") CALL("now", "2") CLOSE("call") CLOSE("tools")
                 END}},
    {.architecture = "kimi-k3",
     .tools = true,
     .tool = "now",
     .parallel = true,
     .thinking = true,
     .good = {"hm" CLOSE("think") OPEN("response") CALLS CALL("now", "1") CLOSE("call")
                  CALL("now", "2") CLOSE("call") CLOSE("tools") END},
     .bad = {CLOSE("think") OPEN("response") CALLS CALL("now", "1") CLOSE("call") CALL("now", "1")
                 CLOSE("call") CLOSE("tools") END,
             CLOSE("think") OPEN("response") CALLS CALL("weather", "1") ARG("city", "string", "x")
                 CLOSE("call") CLOSE("tools") END}},
    {.architecture = "kimi-linear",
     .good = {"", "Hi. \xc3\xa9<|"},
     .bad = {"\xc3", "<|im_user|>", "a<|im_middle|>", "<|tool_calls_section_begin|>"}},
    {.architecture = "kimi-linear",
     .content = EB_CONTENT_JSON_SCHEMA,
     .schema = "{\"enum\":[\"a\",1]}",
     .good = {"\"a\"", "1"},
     .bad = {"", "a", "11"}},
    {.architecture = "kimi-linear",
     .tools = true,
     .good = {L_CALLS(L_CALL("now:0", "{}")), L_CALLS(L_CALL("weather:0", "{\"city\": \"Bonn\"}")),
              L_CALLS(L_CALL("weather:0", "{\"city\":\"\",\"days\":9,\"where\":[1.5]}")),
              L_CALLS(L_CALL("a\"&b:0", "{\"x\\\"\":\"ab\"}"))},
     .bad = {"", "{}", L_CALLS(""), L_CALLS(L_CALL("now:1", "{}")), L_CALLS(L_CALL("now:0", "")),
             L_CALLS(L_CALL("now:0", "{\"a\":1}")), L_CALLS(L_CALL("weather:0", "{}")),
             L_CALLS(L_CALL("later:0", "{}")), "Hi" L_CALLS(L_CALL("now:0", "{}")),
             L_CALLS(L_CALL("now:0", "{}") L_CALL("now:1", "{}"))}},
    {.architecture = "kimi-linear",
     .tools = true,
     .parallel = true,
     .good = {L_CALLS(L_CALL("now:0", "{}") L_CALL("weather:1", "{\"city\":\"\"}"))},
     .bad = {L_CALLS(L_CALL("now:0", "{}") L_CALL("now:0", "{}"))}},
};

struct made {
    json_t *schema, *tools;
    struct eb_grammar *grammar;
};

static struct made make(const struct world *w, const struct reply_case *c) {
    struct made m = {.schema = c->schema != NULL ? parse(c->schema) : NULL,
                     .tools = c->tools ? parse(tools_json) : NULL};
    const struct eb_grammar_spec spec = {.model = w->model,
                                         .chat = !c->plain,
                                         .thinking = c->thinking,
                                         .content = c->content,
                                         .schema = m.schema,
                                         .tools = m.tools,
                                         .tool = c->tool,
                                         .parallel_calls = c->parallel};
    m.grammar = make_grammar(&spec);
    return m;
}

static void drop(struct made *m) {
    eb_grammar_destroy(&m->grammar);
    json_decref(m->schema);
    json_decref(m->tools);
}

/* Calls `each` for every case of every model that is there. */
static void each_case(void (*each)(const struct world *, const struct reply_case *,
                                   const struct eb_grammar *, struct test_rng *)) {
    struct test_rng rng = {test_seed()};
    for (size_t k = 0; k < n_worlds; k++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            if (strcmp(worlds[k].name, cases[i].architecture) != 0) continue;
            struct made m = make(&worlds[k], &cases[i]);
            each(&worlds[k], &cases[i], m.grammar, &rng);
            drop(&m);
        }
}

static void check_texts(const struct world *w, const struct reply_case *c,
                        const struct eb_grammar *g, struct test_rng *rng) {
    (void)rng;
    for (size_t i = 0; i < MAX_TEXTS && c->good[i] != NULL; i++)
        if (!accepts(w, g, c->good[i], false))
            fail_msg("%s: %s does not pass", w->name, c->good[i]);
    for (size_t i = 0; i < MAX_TEXTS && c->bad[i] != NULL; i++)
        if (accepts(w, g, c->bad[i], false)) fail_msg("%s: %s passes", w->name, c->bad[i]);
}

static void written_out(void **state) {
    (void)state;
    each_case(check_texts);
}

/* ---- at random ---------------------------------------------------------------------------- */

static bool is_utf8(const char *p, size_t n) {
    json_t *s = json_stringn(p, n); /* NULL for anything else */
    json_decref(s);
    return s != NULL;
}

/* What the masks let pass is UTF-8 and, said again, passes however it is cut into tokens. */
static void check_random(const struct world *w, const struct reply_case *c,
                         const struct eb_grammar *g, struct test_rng *rng) {
    (void)c;
    for (int i = 0; i < 8; i++) {
        struct reply r = random_reply(w, g, rng, test_u64(rng) % 50, 1500, 8);
        if (!is_utf8(r.text, r.n)) fail_msg("%s: not UTF-8: %s", w->name, r.text);
        /* NUL may stand in free text, and ends a C string. */
        if (strlen(r.text) == r.n && !accepts(w, g, r.text, false))
            fail_msg("%s: passed before: %s", w->name, r.text);
        free(r.text);
    }
}

static void random_replies(void **state) {
    (void)state;
    each_case(check_random);
}

/* ---- the walk's contract ------------------------------------------------------------------ */

static void over_and_on(void **state) {
    (void)state;
    const struct world *w = &worlds[0];
    const struct reply_case c = {
        .plain = true, .content = EB_CONTENT_JSON_SCHEMA, .schema = "{\"enum\":[1,12]}"};
    struct made m = make(w, &c);
    struct eb_walk *walk = make_walk(w, m.grammar);
    ebro_error err = {0};
    int32_t id = -1, stop = 0;
    size_t n = 0;
    while (!ebro_token_is_stop(w->model, stop)) stop++;
    test_ok(ebro_tokenize(w->model, "1", 1, 0, &id, 1, &n, &err), &err);
    assert_false(eb_walk_allows(walk, stop));
    assert_false(eb_walk_is_over(walk));
    test_fails(eb_walk_accept(walk, stop, &err), EBRO_INVALID, &err, "may not come next");
    test_ok(eb_walk_accept(walk, id, &err), &err);
    assert_true(eb_walk_allows(walk, stop));
    assert_false(eb_walk_is_over(walk)); /* 12 may come of it */
    test_fails(eb_walk_accept(walk, id, &err), EBRO_INVALID, &err, "may not come next");
    test_ok(ebro_tokenize(w->model, "2", 1, 0, &id, 1, &n, &err), &err);
    test_ok(eb_walk_accept(walk, id, &err), &err);
    assert_true(eb_walk_is_over(walk));
    test_ok(eb_walk_accept(walk, stop, &err), &err);
    assert_true(eb_walk_is_over(walk));
    static const int32_t unknown[] = {-1, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        assert_false(eb_walk_allows(walk, unknown[i]));
        test_fails(eb_walk_accept(walk, unknown[i], &err), EBRO_INVALID, &err, NULL);
    }
    eb_walk_destroy(&walk);
    assert_null(walk);
    eb_walk_destroy(&walk);
    eb_walk_destroy(NULL);
    drop(&m);
}

/* The same answers after many states came and went as in the beginning. */
static void long_walk(void **state) {
    (void)state;
    struct test_rng rng = {test_seed()};
    const struct world *w = &worlds[0];
    const struct reply_case c = {.plain = true,
                                 .content = EB_CONTENT_JSON_SCHEMA,
                                 .schema = "{\"type\":\"string\",\"minLength\":9000}"};
    struct made m = make(w, &c);
    struct reply r = random_reply(w, m.grammar, &rng, 6000, 10000, 500);
    assert_true(accepts(w, m.grammar, r.text, false));
    json_t *v = parse(r.text);
    size_t n = 0;
    for (const char *p = json_string_value(v); *p != '\0'; p++)
        n += ((unsigned char)*p & 0xc0u) != 0x80u;
    assert_true(n >= 9000);
    json_decref(v);
    free(r.text);
    drop(&m);
}

/* Ways that part at once and never meet again: refused, in bounded time. */
static void too_ambiguous(void **state) {
    (void)state;
    json_t *defs = json_object();
    for (int i = 0; i < 30; i++) {
        char name[32], next[32];
        snprintf(name, sizeof name, "d%d", i);
        snprintf(next, sizeof next, "#/$defs/d%d", i + 1);
        json_object_set_new(defs, name,
                            json_pack("{s:[{s:s,s:{s:s},s:i},{s:s,s:{s:s},s:i}]}", "anyOf", "type",
                                      "array", "items", "$ref", next, "minItems", 1, "type",
                                      "array", "items", "$ref", next, "minItems", 1));
    }
    json_object_set_new(defs, "d30", json_pack("{s:s}", "type", "null"));
    json_t *schema = json_pack("{s:s,s:o}", "$ref", "#/$defs/d0", "$defs", defs);
    const struct world *w = &worlds[0];
    const struct eb_grammar_spec spec = {
        .model = w->model, .content = EB_CONTENT_JSON_SCHEMA, .schema = schema};
    struct eb_grammar *g = make_grammar(&spec);
    struct eb_walk *walk = make_walk(w, g);
    ebro_error err = {0};
    int32_t open = -1, st = EBRO_OK;
    size_t n = 0;
    test_ok(ebro_tokenize(w->model, "[", 1, 0, &open, 1, &n, &err), &err);
    for (int i = 0; i < 30 && st == EBRO_OK; i++) st = eb_walk_accept(walk, open, &err);
    test_fails(st, EBRO_UNSUPPORTED, &err, "more ambiguous");
    eb_walk_destroy(&walk);
    eb_grammar_destroy(&g);
    json_decref(schema);
}

/* As many tools as a request may have, with long names, in parallel. */
static void many_tools(void **state) {
    (void)state;
    struct test_rng rng = {test_seed()};
    json_t *tools = json_array();
    for (int i = 0; i < 128; i++) {
        char name[80];
        snprintf(name, sizeof name, "a_name_that_is_as_long_as_names_of_tools_may_be_at_most_%09d",
                 i);
        json_array_append_new(tools, json_pack("{s:{s:s,s:{s:{s:{s:s},s:{s:s}}}}}", "function",
                                               "name", name, "parameters", "properties", "a",
                                               "type", "string", "b", "type", "integer"));
    }
    for (size_t k = 0; k < n_worlds; k++) {
        const struct eb_grammar_spec spec = {
            .model = worlds[k].model, .chat = true, .tools = tools, .parallel_calls = true};
        struct eb_grammar *g = make_grammar(&spec);
        struct reply r = random_reply(&worlds[k], g, &rng, 80, 1500, 16);
        assert_true(accepts(&worlds[k], g, r.text, false));
        free(r.text);
        eb_grammar_destroy(&g);
    }
    json_decref(tools);
}

/* ---- mistakes ----------------------------------------------------------------------------- */

static void refuses(const struct eb_grammar_spec *spec, const char *tools, int32_t status,
                    const char *part) {
    ebro_error err = {0};
    struct eb_grammar *g = NULL;
    struct eb_grammar_spec s = *spec;
    json_t *list = tools != NULL ? parse(tools) : NULL;
    s.tools = list;
    test_fails(eb_grammar_create(&s, &g, &err), status, &err, part);
    assert_null(g);
    json_decref(list);
}

static void mistakes(void **state) {
    (void)state;
    struct eb_grammar_spec spec = {.model = worlds[0].model, .chat = true};
    refuses(&spec, "[]", EBRO_INVALID, "no tool");
    refuses(&spec, "[{}]", EBRO_INVALID, "tools[0].function.name");
    refuses(&spec, "[{\"function\":{\"name\":\"\"}}]", EBRO_INVALID, "tools[0].function.name");
    refuses(&spec, "[{\"function\":{\"name\":\"f\",\"parameters\":1}}]", EBRO_INVALID,
            "must be an object (at tools[0].function.parameters)");
    refuses(&spec, "[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"string\"}}}]",
            EBRO_INVALID, "must be an object");
    refuses(&spec, "[{\"function\":{\"name\":\"f\",\"parameters\":{\"$ref\":\"#\"}}}]",
            EBRO_INVALID, "leads on and on");
    refuses(&spec, "[{\"function\":{\"name\":\"f\",\"parameters\":{\"anyOf\":[]}}}]",
            EBRO_UNSUPPORTED, "\"anyOf\"");
    refuses(&spec,
            "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"pattern\":"
            "\"x\"}}}}}]",
            EBRO_UNSUPPORTED, "(at tools[0].function.parameters/properties/a/pattern)");
    spec.tool = "g";
    refuses(&spec, "[{\"function\":{\"name\":\"f\"}}]", EBRO_INVALID, "no tool \"g\"");
    spec = (struct eb_grammar_spec){.model = worlds[0].model};
    refuses(&spec, "[{\"function\":{\"name\":\"f\"}}]", EBRO_INVALID, "in a chat only");
}

/* ---- memory ------------------------------------------------------------------------------- */

/* Allocations left before they fail; the linker puts these in the way of the C library's. Only
 * while `armed`: cmocka and jansson's parser run outside. */
static size_t n_left;
static bool armed;

void *__real_realloc(void *p, size_t n);
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);

static bool runs_out(void) {
    return armed && (n_left == 0 || --n_left == 0);
}

void *__wrap_realloc(void *p, size_t n) {
    return runs_out() ? NULL : __real_realloc(p, n);
}

void *__wrap_malloc(size_t n) {
    return runs_out() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size) {
    return runs_out() ? NULL : __real_calloc(n, size);
}

/* Grammar, vocabulary, walk and mask; the first status that is not OK. */
static int32_t use_all(const struct world *w, const struct eb_grammar_spec *spec, uint32_t *mask,
                       ebro_error *err) {
    struct eb_grammar *g = NULL;
    struct eb_vocab *v = NULL;
    struct eb_walk *walk = NULL;
    int32_t st = eb_grammar_create(spec, &g, err);
    if (st == EBRO_OK) st = eb_vocab_create(w->model, &v, err);
    if (st == EBRO_OK) st = eb_walk_create(g, v, &walk, err);
    for (int i = 0; i < 40 && st == EBRO_OK; i++) {
        st = eb_walk_mask(walk, mask, err);
        if (st != EBRO_OK) break;
        int32_t id = closing(w, mask);
        for (int32_t k = 0; id < 0; k++)
            if (in_mask(mask, k)) id = k;
        st = eb_walk_accept(walk, id, err);
    }
    eb_walk_destroy(&walk);
    eb_vocab_destroy(&v);
    eb_grammar_destroy(&g);
    return st;
}

static void out_of_memory(void **state) {
    (void)state;
    const struct world *w = &worlds[0];
    json_t *schema = parse(
        "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/d\"},"
        "\"b\":{\"enum\":[\"x\",1.5,null]},\"c\":{\"type\":\"string\","
        "\"maxLength\":3}},\"required\":[\"a\",\"q\"],\"$defs\":{\"d\":"
        "{\"type\":\"array\",\"minItems\":2}}}");
    const struct eb_grammar_spec spec = {
        .model = w->model, .chat = true, .content = EB_CONTENT_JSON_SCHEMA, .schema = schema};
    uint32_t *mask = calloc(w->n_words, sizeof *mask);
    ebro_error err = {0};
    int32_t st = EBRO_NOMEM_HOST;
    size_t n = 1;
    assert_non_null(mask);
    for (; st != EBRO_OK && n < 100000; n += 1 + n / 40) {
        n_left = n;
        armed = true;
        st = use_all(w, &spec, mask, &err);
        armed = false;
        if (st != EBRO_OK) test_fails(st, EBRO_NOMEM_HOST, &err, "no memory");
    }
    assert_int_equal(st, EBRO_OK);
    assert_true(n > 60); /* it did fail in many places */
    free(mask);
    json_decref(schema);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_out),   cmocka_unit_test(random_replies),
        cmocka_unit_test(over_and_on),   cmocka_unit_test(long_walk),
        cmocka_unit_test(too_ambiguous), cmocka_unit_test(many_tools),
        cmocka_unit_test(mistakes),      cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests_name("server/grammar", tests, open_worlds, close_worlds);
}
