/* chat_json.c: conversations with tools as JSON against texts written out by hand. How Kimi K2 puts
 * tools follows the chat template of moonshotai/Kimi-K2-Thinking and its tokenizer's sorting of
 * tools; how Kimi K3 does follows moonshotai/Kimi-K3's encoding_k3.py. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat.h"
#include "tests/harness/failing.h"
#include "tests/model/tiny.h"

static const struct eb_tokenizer *tokenizer_of(enum eb_chat_family family) {
    return family == EB_CHAT_KIMI_K3 ? k3 : linear;
}

/* ---- goldens ---------------------------------------------------------------------------- */

static void check_golden(const json_t *c, enum eb_chat_family family) {
    ebro_error err = {0};
    struct eb_ids ids = {0};
    const json_t *want = json_object_get(c, "ids");
    ebro_chat_options o = {.size = sizeof o};
    o.thinking = json_is_true(json_object_get(c, "thinking"));
    o.thinking_effort = json_string_value(json_object_get(c, "thinking_effort"));
    o.no_generation_prompt = !json_is_true(json_object_get(c, "add_generation_prompt"));
    char *json = json_dumps(c, 0); /* its other keys are ignored */
    assert_non_null(json);
    test_ok(eb_chat_render_json(tokenizer_of(family), family, json, strlen(json), &o, &ids, &err),
            &err);
    assert_int_equal(ids.n, json_array_size(want));
    for (size_t i = 0; i < ids.n; i++)
        assert_int_equal(ids.v[i], json_integer_value(json_array_get(want, i)));
    free(json);
    eb_ids_free(NULL, &ids);
}

static void golden_file(const char *name, enum eb_chat_family family, size_t n_cases) {
    struct eb_bytes file;
    tiny_map(test_golden_dir(), name, &file);
    json_t *root = json_loadb((const char *)file.data, file.bytes, 0, NULL);
    const json_t *cases = json_object_get(root, "chat");
    assert_int_equal(json_array_size(cases), n_cases);
    for (size_t i = 0; i < n_cases; i++) check_golden(json_array_get(cases, i), family);
    json_decref(root);
    eb_bytes_close(&file);
}

static void golden_ids(void **state) {
    (void)state;
    golden_file("tokenizer_k3.json", EB_CHAT_KIMI_K3, 8);
    golden_file("tokenizer_linear.json", EB_CHAT_KIMI_LINEAR, 4);
}

/* ---- written out ------------------------------------------------------------------------ */

/* `want` is read with special names as control tokens, each span between two vertical tabs by
 * itself. */
static void encode_spans(const struct eb_tokenizer *t, const char *want, struct eb_ids *out) {
    ebro_error err = {0};
    for (size_t n; *want != '\0'; want += n + (want[n] == '\v')) {
        n = strcspn(want, "\v");
        test_ok(eb_tokenizer_encode(t, want, n, true, out, &err), &err);
    }
}

static void check(enum eb_chat_family family, const char *json, const ebro_chat_options *o,
                  const char *want) {
    const struct eb_tokenizer *t = tokenizer_of(family);
    ebro_error err = {0};
    struct eb_ids got = {0}, ids = {0};
    test_ok(eb_chat_render_json(t, family, json, strlen(json), o, &got, &err), &err);
    encode_spans(t, want, &ids);
    for (size_t i = 0; i < got.n && i < ids.n; i++)
        if (got.v[i] != ids.v[i]) fail_msg("id %zu is %d, not %d", i, got.v[i], ids.v[i]);
    assert_int_equal(got.n, ids.n);
    eb_ids_free(NULL, &got);
    eb_ids_free(NULL, &ids);
}

static const ebro_chat_options done = {.size = sizeof done, .no_generation_prompt = 1};

#define TOOL                                                                                     \
    "{\"type\": \"function\", \"function\": {\"parameters\": {\"type\": \"object\"}, \"name\": " \
    "\"look\", \"description\": \"Look \\\"up\\\"\"}}"
#define TOOL_SORTED                                                                        \
    "{\"function\":{\"description\":\"Look \\\"up\\\"\",\"name\":\"look\",\"parameters\":" \
    "{\"type\":\"object\"}},\"type\":\"function\"}"
#define CALL(id, name, arguments)                                                   \
    "{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\": \"" name \
    "\", \"arguments\": \"" arguments "\"}}"
#define ASK "{\"role\": \"user\", \"content\": \"Go\"}"

#define IM_USER "<|im_user|>user<|im_middle|>"
#define IM_ASSISTANT "<|im_assistant|>assistant<|im_middle|>"

static void linear_tools(void **state) {
    (void)state;
    check(EB_CHAT_KIMI_LINEAR, "{\"messages\": [" ASK "], \"tools\": [" TOOL "]}", NULL,
          "<|im_system|>tool_declare<|im_middle|>[" TOOL_SORTED "]<|im_end|>" IM_USER
          "Go<|im_end|>" IM_ASSISTANT);
    check(EB_CHAT_KIMI_LINEAR,
          "{\"messages\": [" ASK ", {\"role\": \"assistant\", \"content\": null, \"tool_calls\": ["
          CALL("functions.look:0", "look", "{\\\"a\\\":  1}") ", "
          CALL("x", "other", "") "]}, {\"role\": \"tool\", \"tool_call_id\": \"functions.look:0\", "
          "\"content\": \"found\"}, {\"role\": \"tool\", \"name\": \"look\", \"tool_call_id\": "
          "\"x\", \"content\": [{\"type\": \"text\", \"text\": \"no\"}, {\"type\": \"text\", "
          "\"text\": \"thing\"}]}]}",
          &done,
          IM_USER "Go<|im_end|>" IM_ASSISTANT
                  "<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0<|tool_call_"
                  "argument_begin|>{\"a\":  1}<|tool_call_end|><|tool_call_begin|>x<|tool_call_"
                  "argument_begin|><|tool_call_end|><|tool_calls_section_end|><|im_end|>"
                  "<|im_system|>tool<|im_middle|>## Return of functions.look:0\nfound<|im_end|>"
                  "<|im_system|>look<|im_middle|>## Return of x\nnothing<|im_end|>");
}

static void linear_plain(void **state) {
    (void)state;
    check(EB_CHAT_KIMI_LINEAR,
          "{\"messages\": [{\"role\": \"developer\", \"content\": \"Be\"}, {\"role\": \"user\", "
          "\"content\": [], \"name\": \"Ann\"}, {\"role\": \"assistant\", \"content\": \"Hi\", "
          "\"tool_calls\": null, \"refusal\": null}], \"tools\": [], \"stream\": true}",
          NULL,
          "<|im_system|>system<|im_middle|>Be<|im_end|><|im_user|>Ann<|im_middle|><|im_end|"
          ">" IM_ASSISTANT "Hi<|im_end|>" IM_ASSISTANT);
}

#define OPEN_ROLE(role) "<|open|>message role=\"" role "\""
#define CLOSE_MESSAGE "<|close|>message<|sep|><|end_of_msg|>"
#define GO OPEN_ROLE("user") "<|sep|>Go" CLOSE_MESSAGE
#define RESPONSE(text) "<|open|>response<|sep|>" text "<|close|>response<|sep|>"
#define ATTRIBUTE(key, value) "\v " key "\v=\"\v" value "\v\"\v"
#define ARGUMENT(key, type, value)                                                   \
    "<|open|>argument" ATTRIBUTE("key", key) ATTRIBUTE("type", type) "<|sep|>" value \
                                                                     "<|close|>argument<|sep|>"
#define OPEN_CALL(name, index) \
    "<|open|>call" ATTRIBUTE("tool", name) ATTRIBUTE("index", index) "<|sep|>"
#define CLOSE_CALL "<|close|>call<|sep|>"
#define RESULT(name, index, text)                                       \
    "<|open|>message" ATTRIBUTE("role", "tool") ATTRIBUTE("tool", name) \
        ATTRIBUTE("index", index) "<|sep|>" text CLOSE_MESSAGE
#define TOOLS(calls) "<|open|>tools<|sep|>" calls "<|close|>tools<|sep|>"

static void k3_tools(void **state) {
    (void)state;
    const ebro_chat_options o = {.size = sizeof o, .thinking = 1, .thinking_effort = "low"};
    check(EB_CHAT_KIMI_K3, "{\"tools\": [" TOOL "], \"messages\": [" ASK "]}", &done,
          OPEN_ROLE("system") " type=\"tool-declare\"<|sep|># Tools\nHere are the available tools, "
                              "described in JSONSchema.\n\n```json\n[" TOOL_SORTED
                              "]\n```" CLOSE_MESSAGE GO);
    /* the effort comes after the tools */
    check(EB_CHAT_KIMI_K3, "{\"tools\": [" TOOL "], \"messages\": []}", &o,
          OPEN_ROLE("system") " type=\"tool-declare\"<|sep|># Tools\nHere are the available tools, "
                              "described in JSONSchema.\n\n```json\n[" TOOL_SORTED
                              "]\n```" CLOSE_MESSAGE OPEN_ROLE("system")
          " type=\"thinking-effort\"<|sep|>`thinking_effort` guides on how much to think in your "
          "thinking channel (not including the response channel), supported values include `low`, "
          "`medium`, `high`, and `max`.\nNow the system is invoked with `thinking_effort=low`."
          CLOSE_MESSAGE OPEN_ROLE("assistant") "<|sep|><|open|>think<|sep|>");
}

static void k3_calls(void **state) {
    (void)state;
    const ebro_chat_options o = {.size = sizeof o, .thinking = 1, .no_generation_prompt = 1};
    check(EB_CHAT_KIMI_K3,
          "{\"messages\": [" ASK ", {\"role\": \"assistant\", \"reasoning_content\": \"Hm\", "
          "\"content\": \"I look\", \"tool_calls\": ["
          CALL("a", "lo&ok\\\"_", "{\\\"s\\\": \\\" <|sep|> x\\\\n\\\", \\\"b\\\": 12, \\\"c\\\": "
               "-0.5, \\\"_t\\\": true, \\\"n\\\": null, \\\"o\\\": {\\\"z\\\":1,\\\"a\\\":[1,"
               "\\\"\\u00e9\\\"]}, \\\"e\\\": []}") ", "
          CALL("b", "nothing", "{}") ", " CALL("c", "broken", "{\\\"a\\\": ") ", "
          CALL("d", "blank", " ") "]}]}",
          &o,
          GO OPEN_ROLE("assistant") "<|sep|><|open|>think<|sep|>Hm<|close|>think<|sep|>"
          RESPONSE("I look") TOOLS(
              OPEN_CALL("lo&amp;ok&quot;_", "1") ARGUMENT("s", "string", " <\v|\vsep\v|\v> x\n")
              ARGUMENT("b", "number", "12") ARGUMENT("c", "number", "-0.5")
              ARGUMENT("_t", "boolean", "true") ARGUMENT("n", "null", "null")
              ARGUMENT("o", "object", "{\"z\": 1, \"a\": [1, \"\xc3\xa9\"]}")
              ARGUMENT("e", "array", "[]") CLOSE_CALL
              OPEN_CALL("nothing", "2") CLOSE_CALL
              OPEN_CALL("broken", "3") "<|open|>json" ATTRIBUTE("type", "object")
              "<|sep|>{\"a\": <|close|>json<|sep|>" CLOSE_CALL
              OPEN_CALL("blank", "4") CLOSE_CALL) CLOSE_MESSAGE);
}

#define CALLS                                                           \
    "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [" CALL( \
        "a", "one", "{}") ", " CALL("b", "two", "{}") ", " CALL("a", "three", "{}") "]}, "
#define CALLS_RENDERED                                                                  \
    OPEN_ROLE("assistant")                                                              \
    "<|sep|>" RESPONSE("") TOOLS(OPEN_CALL("one", "1") CLOSE_CALL OPEN_CALL("two", "2") \
                                     CLOSE_CALL OPEN_CALL("three", "3") CLOSE_CALL) CLOSE_MESSAGE
#define TOOL_RESULT(id, text) \
    "{\"role\": \"tool\", \"tool_call_id\": \"" id "\", \"content\": \"" text "\"}"

static void k3_results(void **state) {
    (void)state;
    check(EB_CHAT_KIMI_K3, CALLS TOOL_RESULT("b", "B") ", " TOOL_RESULT("a", "A") "]}", &done,
          CALLS_RENDERED RESULT("one", "1", "A") RESULT("two", "2", "B"));
    /* one that no call asked for: all as they come */
    check(EB_CHAT_KIMI_K3, CALLS TOOL_RESULT("x", "X") ", " TOOL_RESULT("a", "A") "]}", &done,
          CALLS_RENDERED RESULT("one", "1", "X") RESULT("two", "2", "A"));
    check(EB_CHAT_KIMI_K3,
          "{\"messages\": [{\"role\": \"tool\", \"tool_call_id\": \"x\", \"name\": \"by\", "
          "\"content\": \"X\"}, " ASK "]}",
          &done, RESULT("by", "1", "X") GO);
    /* numbers go on until the assistant speaks again */
    check(EB_CHAT_KIMI_K3, CALLS TOOL_RESULT("a", "A") ", " ASK ", " TOOL_RESULT("b", "B") "]}",
          &done, CALLS_RENDERED RESULT("one", "1", "A") GO RESULT("two", "2", "B"));
    check(EB_CHAT_KIMI_K3,
          CALLS TOOL_RESULT("a", "A") ", {\"role\": \"assistant\", \"content\": \"\", "
                                      "\"tool_calls\": [" CALL("b", "last", "") "]}, "
              TOOL_RESULT("b", "B") "]}",
          &done,
          CALLS_RENDERED RESULT("one", "1", "A") OPEN_ROLE("assistant") "<|sep|>" RESPONSE("")
              TOOLS(OPEN_CALL("last", "1") CLOSE_CALL) CLOSE_MESSAGE RESULT("last", "1", "B"));
}

static void k3_names_and_parts(void **state) {
    (void)state;
    check(EB_CHAT_KIMI_K3,
          "{\"messages\": [{\"role\": \"user\", \"name\": \"A\\\"nn\", \"content\": [{\"type\": "
          "\"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}]}]}",
          &done, OPEN_ROLE("user") ATTRIBUTE("name", "A&quot;nn") "<|sep|>a\vb\v" CLOSE_MESSAGE);
}

/* A byte like any other. */
static void zero_bytes(void **state) {
    (void)state;
    static const char json[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\\u0000b\"}]}";
    ebro_error err = {0};
    struct eb_ids ids = {0};
    size_t n_zeros = 0, bytes;
    test_ok(eb_chat_render_json(k3, EB_CHAT_KIMI_K3, json, sizeof json - 1, &done, &ids, &err),
            &err);
    for (size_t i = 0; i < ids.n; i++) {
        const char *p = eb_token_bytes(k3, ids.v[i], &bytes, NULL);
        n_zeros += memchr(p, '\0', bytes) != NULL;
    }
    assert_int_equal(n_zeros, 1);
    eb_ids_free(NULL, &ids);
}

/* ---- JSON in tools ---------------------------------------------------------------------- */

/* What Python's json.dumps(..., ensure_ascii=False) writes for these. */
static void numbers_and_escapes(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"0", "0"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"0.1", "0.1"},
        {"1.0", "1.0"},
        {"-0.0", "-0.0"},
        {"1e5", "100000.0"},
        {"1E15", "1000000000000000.0"},
        {"123456789012345.6", "123456789012345.6"},
        {"1e16", "1e+16"},
        {"1.5e300", "1.5e+300"},
        {"0.0001", "0.0001"},
        {"0.00001", "1e-05"},
        {"12.5e-8", "1.25e-07"},
        {"5e-324", "5e-324"},
        {"1.7976931348623157e308", "1.7976931348623157e+308"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"\"\\u001f\\u007f\\/\\b\\f\\t\\r\"", "\"\\u001f\x7f/\\b\\f\\t\\r\""},
        {"\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\""},
        {"[{\"b\": false, \"a\": null, \"aa\": true, \"\xc3\xa9\": 1, \"B\": {}}]",
         "[{\"B\":{},\"a\":null,\"aa\":true,\"b\":false,\"\xc3\xa9\":1}]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[512], want[512];
        snprintf(json, sizeof json,
                 "{\"messages\": [], \"tools\": [{\"type\": \"function\", \"function\": "
                 "{\"name\": \"f\", \"x\": %s}}]}",
                 cases[i][0]);
        snprintf(want, sizeof want,
                 "<|im_system|>tool_declare<|im_middle|>[{\"function\":{\"name\":\"f\",\"x\":%s},"
                 "\"type\":\"function\"}]<|im_end|>",
                 cases[i][1]);
        check(EB_CHAT_KIMI_LINEAR, json, &done, want);
    }
}

/* ---- refusals --------------------------------------------------------------------------- */

static void refuse(const char *json, size_t bytes, int32_t status, const char *part) {
    ebro_error err = {0};
    struct eb_ids ids = {0};
    test_fails(eb_chat_render_json(k3, EB_CHAT_KIMI_K3, json, bytes, NULL, &ids, &err), status,
               &err, part);
    assert_int_equal(ids.n, 0);
    eb_ids_free(NULL, &ids);
}

static void wrong_json(void **state) {
    (void)state;
    static const struct {
        const char *json, *part;
    } cases[] = {
        {"", "line"},
        {"{\"messages\": [", "line"},
        {"[]", "the conversation is an array"},
        {"{}", "messages is missing"},
        {"{\"messages\": 1}", "messages is an integer; an array"},
        {"{\"messages\": [1.5]}", "messages[0] is a real number; an object"},
        {"{\"messages\": [" ASK ", {}]}", "messages[1].role is missing"},
        {"{\"messages\": [{\"role\": null}]}", "messages[0].role is null; a string"},
        {"{\"messages\": [{\"role\": \"User\"}]}", "messages[0].role is \"User\""},
        {"{\"messages\": [{\"role\": \"user\"}]}", "messages[0].content is missing"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": 3}]}",
         "messages[0].content is an integer; a string or an array of parts is right"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": null}]}",
         "messages[0].content is null"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": null}]}",
         "messages[0].content is null"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [\"a\"]}]}",
         "messages[0].content[0] is a string; an object"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]}",
         "messages[0].content[0].text is missing"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"\", \"name\": \"\"}]}",
         "messages[0].name has 0 bytes"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": {}}]}",
         "messages[0].tool_calls is an object"},
        {"{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"a\"}]}]}",
         "messages[0].tool_calls[0].function is missing"},
        {"{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"a\", \"function\": "
         "{\"name\": \"f\", \"arguments\": {}}}]}]}",
         "messages[0].tool_calls[0].function.arguments is an object; a string"},
        {"{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [" CALL("a", "f", "[]") "]}]}",
         "arguments are an array; an object is right; while reading "
         "messages[0].tool_calls[0].function.arguments"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": 1}]}",
         "messages[0].reasoning_content is an integer"},
        {"{\"messages\": [{\"role\": \"tool\", \"content\": \"\"}]}",
         "messages[0].tool_call_id is missing"},
        {"{\"messages\": [" ASK ", " TOOL_RESULT("a", "") "]}", "messages[1]: no tool call"},
        {"{\"messages\": [], \"tools\": {}}", "tools is an object; an array"},
        {"{\"messages\": [], \"tools\": [0]}", "tools[0] is an integer"},
        {"{\"messages\": [], \"tools\": [{\"type\": \"function\", \"function\": {}}]}",
         "tools[0].function.name is missing"},
        {"{\"messages\": [], \"messages\": []}", "duplicate"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i].json, strlen(cases[i].json), EBRO_INVALID, cases[i].part);
    static const char image[] = "{\"messages\": [" ASK
                                ", {\"role\": \"user\", \"content\": "
                                "[{\"type\": \"image_url\", \"image_url\": {}}]}]}";
    refuse(image, sizeof image - 1, EBRO_UNSUPPORTED,
           "messages[1].content[0].type is \"image_url\"");
    static const char web[] = "{\"messages\": [], \"tools\": [{\"type\": \"web_search\"}]}";
    refuse(web, sizeof web - 1, EBRO_UNSUPPORTED, "tools[0].type is \"web_search\"");
}

/* n times `unit` between two texts, in new memory. */
static char *repeat(const char *before, const char *unit, size_t n, const char *after) {
    const size_t length = strlen(unit);
    char *text = malloc(strlen(before) + n * length + strlen(after) + 1);
    assert_non_null(text);
    char *p = text + sprintf(text, "%s", before);
    for (size_t i = 0; i < n; i++, p += length) memcpy(p, unit, length);
    memcpy(p, after, strlen(after) + 1);
    return text;
}

static void refuse_repeated(const char *before, const char *unit, size_t n, const char *after,
                            const char *part) {
    char *json = repeat(before, unit, n, after);
    refuse(json, strlen(json), EBRO_INVALID, part);
    free(json);
}

static void limits(void **state) {
    (void)state;
    refuse_repeated("{\"messages\": ", "[", 100000, "", "nested deeper than 64");
    refuse_repeated("{\"messages\": [", "0,", 250000, "0]}", "more than 200000 values");
    refuse_repeated("{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [", "0,", 1024,
                    "0]}]}", "tool_calls has 1025 calls");
    refuse_repeated("{\"messages\": [{\"role\": \"user\", \"content\": \"\", \"name\": \"", "x",
                    257, "\"}]}", "name has 257 bytes");
    refuse_repeated(
        "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"a\", "
        "\"function\": {\"name\": \"f\", \"arguments\": \"{",
        "[", 65, "\"}}]}]}", "nested deeper than 64");
    char *many = repeat("", " ", 64 << 20, "{}");
    refuse(many, strlen(many), EBRO_INVALID, "bytes, more than");
    free(many);
}

/* Tokens of calls are wanted where there are calls. */
static void missing_control(void **state) {
    (void)state;
    static const char config[] =
        "{\"added_tokens_decoder\": {\"4100\": {\"content\": \"<|im_system|>\"}, \"4101\": "
        "{\"content\": \"<|im_user|>\"}, \"4102\": {\"content\": \"<|im_assistant|>\"}, \"4103\": "
        "{\"content\": \"<|im_middle|>\"}, \"4104\": {\"content\": \"<|im_end|>\"}}}";
    static const char plain[] = "{\"messages\": [" ASK "], \"tools\": [" TOOL "]}";
    static const char calls[] = CALLS ASK "]}";
    struct eb_bytes text;
    struct eb_tokenizer *t = NULL;
    struct eb_ids ids = {0};
    ebro_error err = {0};
    eb_bytes_borrow(config, sizeof config - 1, &text);
    test_ok(eb_tokenizer_open(NULL, &tiny_vocab, &text, TINY_VOCAB, &t, &err), &err);
    test_ok(eb_chat_render_json(t, EB_CHAT_KIMI_LINEAR, plain, sizeof plain - 1, NULL, &ids, &err),
            &err);
    test_fails(
        eb_chat_render_json(t, EB_CHAT_KIMI_LINEAR, calls, sizeof calls - 1, NULL, &ids, &err),
        EBRO_FORMAT, &err, "<|tool_calls_section_begin|>");
    eb_ids_free(NULL, &ids);
    eb_tokenizer_close(&t);
}

/* ---- memory that runs out --------------------------------------------------------------- */

static void no_memory(void **state) {
    (void)state;
    static const char json[] =
        CALLS TOOL_RESULT("b", "B") ", {\"role\": \"user\", \"name\": \"A\", \"content\": "
        "[{\"type\": \"text\", \"text\": \"a\"}]}], \"tools\": [" TOOL "]}";
    const ebro_chat_options o = {.size = sizeof o, .thinking = 1, .thinking_effort = "max"};
    struct failing memory = {.fail_at = SIZE_MAX};
    struct eb_alloc a = {&memory, failing_realloc};
    struct eb_tokenizer *t = NULL;
    ebro_error err = {0};
    test_ok(eb_tokenizer_open(&a, &tiny_vocab, &tiny_k3_config, TINY_VOCAB, &t, &err), &err);
    const size_t held = memory.n_held;
    size_t n = 0;
    for (int32_t st = EBRO_NOMEM_HOST; st != EBRO_OK; n++) {
        struct eb_ids ids = {0};
        memory.n_calls = 0;
        memory.fail_at = n;
        st = eb_chat_render_json(t, EB_CHAT_KIMI_K3, json, sizeof json - 1, &o, &ids, &err);
        if (st != EBRO_OK) {
            test_fails(st, EBRO_NOMEM_HOST, &err, NULL);
            assert_int_equal(ids.n, 0);
        }
        eb_ids_free(&a, &ids);
        assert_int_equal(memory.n_held, held);
    }
    assert_true(n > 30);
    memory.fail_at = SIZE_MAX;
    eb_tokenizer_close(&t);
    assert_int_equal(memory.n_held, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_ids),
        cmocka_unit_test(linear_tools),
        cmocka_unit_test(linear_plain),
        cmocka_unit_test(k3_tools),
        cmocka_unit_test(k3_calls),
        cmocka_unit_test(k3_results),
        cmocka_unit_test(k3_names_and_parts),
        cmocka_unit_test(zero_bytes),
        cmocka_unit_test(numbers_and_escapes),
        cmocka_unit_test(wrong_json),
        cmocka_unit_test(limits),
        cmocka_unit_test(missing_control),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, tiny_open, tiny_close);
}
