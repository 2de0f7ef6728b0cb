/* request.c: requests for replies (HD-24): what is right becomes the job that it asks for, and what
 * is wrong is refused with the field named, whatever it is. */
#include "tools/serve/request.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/harness/test.h"
#include "tools/serve/fields.h"

static ebro_runtime *rt;
static ebro_model *model;
static struct eb_offer offer;
static const char *const names[] = {"demo", "another-name"};

static uint64_t seed(void *user) {
    (void)user;
    return 77;
}

static int set_up(void **state) {
    ebro_error err;
    ebro_model_info info;
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&ro, &rt, &err), &err);
    ebro_model_options mo = {.size = sizeof mo, .path = test_demo_dir()};
    test_ok(ebro_model_open(rt, &mo, &model, &err), &err);
    ebro_model_get_info(model, &info);
    offer = (struct eb_offer){.model = model,
                              .names = names,
                              .n_names = 2,
                              .n_ctx = 512,
                              .n_vocab = info.vocab,
                              .thinks = true,
                              .temperature = 0.25,
                              .max_tokens = 99,
                              .seed = seed};
    (void)state;
    return 0;
}

static int tear_down(void **state) {
    ebro_model_close(&model);
    ebro_runtime_close(&rt);
    (void)state;
    return 0;
}

/* ---- asking ------------------------------------------------------------------------------- */

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]"

/* Must be right. */
static struct eb_request *take(bool chat, const char *body) {
    static struct eb_request r;
    struct eb_fault fault = {0};
    if (!eb_request_read(&offer, chat, body, strlen(body), &r, &fault) ||
        !eb_request_prepare(&offer, &r, &fault))
        fail_msg("%s\nwas refused: %d %s", body, fault.status, fault.text);
    return &r;
}

/* Must be refused with that status, naming the field and saying `part`. */
static void refuse_bytes(bool chat, const char *body, size_t bytes, int status, const char *param,
                         const char *part) {
    struct eb_request r;
    struct eb_fault fault = {0};
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (eb_request_read(&offer, chat, body, bytes, &r, &fault) &&
        eb_request_prepare(&offer, &r, &fault))
        fail_msg("%.200s\nwas taken", body);
    clock_gettime(CLOCK_MONOTONIC, &end);
    eb_request_free(&r);
    if (fault.status != status || strcmp(fault.param, param) != 0 || !strstr(fault.text, part))
        fail_msg("%.200s\nwas refused as %d, \"%s\": %s\nand not as %d, \"%s\": ...%s...", body,
                 fault.status, fault.param, fault.text, status, param, part);
    /* HD-24's 100 ms, ten times over: a sanitizer on a busy machine takes its time too */
    test_le(difftime(end.tv_sec, begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec), 1.0,
            "seconds until a request is refused");
}

static void refuse(bool chat, const char *body, int status, const char *param, const char *part) {
    refuse_bytes(chat, body, strlen(body), status, param, part);
}

/* A chat with one more field. */
static void refuse_field(const char *field, const char *param, const char *part) {
    char body[2048];
    snprintf(body, sizeof body, "{" HELLO ",%s}", field);
    refuse(true, body, 400, param, part);
}

static struct eb_request *take_field(const char *field) {
    char body[2048];
    snprintf(body, sizeof body, "{" HELLO ",%s}", field);
    return take(true, body);
}

/* ---- what is right ------------------------------------------------------------------------ */

static void test_defaults(void **state) {
    (void)state;
    struct eb_request *r = take(true, "{" HELLO "}");
    assert_true(r->job.n_ids > 3 && r->job.ids == r->ids);
    assert_int_equal(r->n_choices, 1);
    assert_false(r->stream || r->include_usage || r->job.logprobs || r->job.thinking);
    assert_true(r->job.chat && !r->job.grammar && !r->job.ignore_stop_tokens);
    assert_int_equal(r->job.max_tokens, 99);
    assert_int_equal(r->job.n_stops, 0);
    assert_true(r->job.sampling.temperature == 0.25F && r->job.sampling.top_p == 1.0F);
    assert_true(r->job.sampling.seed == 77 && r->job.sampling.repeat_penalty == 1.0F);
    assert_int_equal(r->job.sampling.penalty_last_n, 64);
    eb_request_free(r);
}

static void test_every_field(void **state) {
    (void)state;
    struct eb_request *r = take_field(
        "\"model\":\"another-name\",\"stream\":true,\"stream_options\":{\"include_usage\":true},"
        "\"max_tokens\":5,\"max_completion_tokens\":6,\"temperature\":1.5,\"top_p\":0.5,\"top_k\":"
        "7,"
        "\"min_p\":0.125,\"seed\":-3,\"n\":4.0,\"stop\":[\"a\",\"bc\"],\"presence_penalty\":-2,"
        "\"frequency_penalty\":0.5,\"repeat_penalty\":1.25,\"repeat_last_n\":9,"
        "\"logit_bias\":{\"17\":-100,\"4\":2.5},\"logprobs\":true,\"top_logprobs\":20,"
        "\"reasoning_effort\":\"low\",\"ignore_eos\":true,\"user\":\"u\",\"metadata\":{},"
        "\"modalities\":[\"text\"],\"something_new\":[1,{}]");
    const ebro_sampling *s = &r->job.sampling;
    assert_true(r->stream && r->include_usage && r->job.logprobs && r->job.ignore_stop_tokens);
    assert_int_equal(r->job.max_tokens, 6);
    assert_true(s->temperature == 1.5F && s->top_p == 0.5F && s->top_k == 7 && s->min_p == 0.125F);
    assert_true(s->seed == (uint64_t)-3 && s->presence_penalty == -2.0F);
    assert_true(s->frequency_penalty == 0.5F && s->repeat_penalty == 1.25F);
    assert_int_equal(s->penalty_last_n, 9);
    assert_int_equal(r->n_choices, 4);
    assert_int_equal(r->job.n_stops, 2);
    assert_string_equal(r->job.stops[0], "a");
    assert_string_equal(r->job.stops[1], "bc");
    assert_int_equal(s->n_biases, 2);
    for (size_t i = 0; i < 2; i++)
        assert_true(s->biases[i].id == 17 ? s->biases[i].bias == -100.0F
                                          : s->biases[i].id == 4 && s->biases[i].bias == 2.5F);
    assert_int_equal(r->job.n_top, 20);
    assert_true(r->job.thinking);
    assert_string_equal(r->effort, "low");
    eb_request_free(r);
}

static void test_nulls(void **state) {
    (void)state;
    struct eb_request *r = take_field(
        "\"model\":null,\"stream\":null,\"stream_options\":null,\"max_tokens\":null,"
        "\"temperature\":null,\"top_p\":null,\"seed\":null,\"n\":null,\"stop\":null,\"tools\":null,"
        "\"tool_choice\":null,\"response_format\":null,\"logit_bias\":null,\"logprobs\":null,"
        "\"functions\":null,\"audio\":null,\"reasoning_effort\":null");
    assert_int_equal(r->n_choices, 1);
    assert_true(r->job.sampling.temperature == 0.25F && r->job.sampling.seed == 77);
    eb_request_free(r);
}

static void test_thinking(void **state) {
    (void)state;
    struct eb_request *r = take_field("\"chat_template_kwargs\":{\"thinking\":true}");
    assert_true(r->job.thinking && !r->effort);
    eb_request_free(r);
    r = take_field("\"chat_template_kwargs\":{\"thinking\":true},\"reasoning_effort\":\"none\"");
    assert_false(r->job.thinking);
    eb_request_free(r);
    offer.think = true;
    r = take_field("\"chat_template_kwargs\":{\"enable_thinking\":false}");
    assert_false(r->job.thinking);
    eb_request_free(r);
    r = take(true, "{" HELLO "}");
    assert_true(r->job.thinking);
    eb_request_free(r);
    offer.think = offer.thinks = false;
    refuse_field("\"reasoning_effort\":\"high\"", "reasoning_effort", "no channel");
    offer.thinks = true;
}

static void test_text(void **state) {
    (void)state;
    struct eb_request *r = take(false, "{\"prompt\":\"The whale is\"}");
    size_t n = r->job.n_ids;
    assert_true(n > 1 && !r->job.chat && r->ids[0] == ebro_token_bos(model));
    assert_int_equal(r->job.max_tokens, 16);
    eb_request_free(r);
    r = take(false,
             "{\"prompt\":[\"The whale is\"],\"best_of\":2,\"n\":2,\"echo\":false,"
             "\"suffix\":null,\"logprobs\":5}");
    assert_true(r->job.n_ids == n && r->n_choices == 2 && r->job.logprobs && r->job.n_top == 5);
    eb_request_free(r);
    r = take(false, "{\"prompt\":[5,6,7],\"logprobs\":0}");
    assert_true(r->job.n_ids == 3 && r->ids[0] == 5 && r->ids[2] == 7);
    assert_true(r->job.logprobs && r->job.n_top == 0);
    eb_request_free(r);
}

#define TOOLS                                                                                 \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"description\":\"d\"," \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},"    \
    "\"required\":[\"city\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"put\"}}]"

static void test_tools(void **state) {
    (void)state;
    struct eb_request *r = take_field("\"user\":\"\"");
    size_t bare = r->job.n_ids;
    eb_request_free(r);
    r = take_field(TOOLS);
    size_t shown = r->job.n_ids;
    assert_true(shown > bare && !r->grammar && json_array_size(r->tools) == 2);
    eb_request_free(r);
    r = take_field(TOOLS ",\"tool_choice\":\"none\"");
    assert_true(r->job.n_ids == bare && !r->grammar);
    eb_request_free(r);
    r = take_field(TOOLS ",\"tool_choice\":\"required\"");
    assert_true(r->grammar && r->job.grammar == r->grammar && !r->shape.tool);
    assert_true(r->shape.parallel_calls && r->job.n_ids == shown);
    eb_request_free(r);
    r = take_field(TOOLS ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false");
    assert_false(r->shape.parallel_calls);
    eb_request_free(r);
    r = take_field(TOOLS
                   ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"get\"}}");
    assert_true(r->grammar != NULL);
    assert_string_equal(r->shape.tool, "get");
    assert_false(r->shape.parallel_calls);
    eb_request_free(r);
}

static void test_formats(void **state) {
    (void)state;
    struct eb_request *r = take_field("\"response_format\":{\"type\":\"text\"}");
    assert_true(!r->grammar && !r->job.grammar);
    eb_request_free(r);
    r = take_field("\"response_format\":{\"type\":\"json_object\"}");
    assert_true(r->grammar && r->shape.content == EB_CONTENT_JSON_OBJECT);
    eb_request_free(r);
    r = take_field(
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\","
        "\"schema\":{\"type\":\"integer\"}}}," TOOLS ",\"tool_choice\":\"none\"");
    assert_true(r->grammar && r->shape.content == EB_CONTENT_JSON_SCHEMA && !r->tools);
    eb_request_free(r);
}

/* ---- what is wrong ------------------------------------------------------------------------ */

static void test_no_json(void **state) {
    (void)state;
    refuse(true, "", 400, "", "empty");
    refuse(true, "{", 400, "", "no JSON");
    refuse(true, "{" HELLO, 400, "", "no JSON");
    refuse(true, "{" HELLO "}x", 400, "", "no JSON");
    refuse(true, "[]", 400, "", "is an array");
    refuse(true, "7", 400, "", "is a number");
    refuse(true, "null", 400, "", "is null");
    refuse(true, "{\"a\":\"\xff\"}", 400, "", "no JSON");
    refuse(true, "{\"a\":\"\\ud800\"}", 400, "", "no JSON");
    refuse(true, "{\"a\":\"\\u0000\"}", 400, "", "no JSON");
    refuse(true, "{\"seed\":1e999}", 400, "", "no JSON");
    refuse(true, "{\"seed\":99999999999999999999}", 400, "", "no JSON");
    refuse(true, "{\"n\":1,\"n\":2}", 400, "", "no JSON");
    refuse_bytes(true, "{\"a\":1}\0", 8, 400, "", "no JSON");
}

/* Every way of cutting a good body short. */
static void test_truncated(void **state) {
    static const char body[] =
        "{" HELLO ",\"stop\":[\"a\\u00e9\"],\"logit_bias\":{\"5\":1.5e1},\"stream\":true}";
    (void)state;
    eb_request_free(take(true, body));
    for (size_t n = 0; n + 1 < sizeof body - 1; n++)
        refuse_bytes(true, body, n, 400, "", n == 0 ? "empty" : "no JSON");
}

static char *repeat(const char *head, const char *part, size_t n, const char *tail) {
    size_t length = strlen(part), at = strlen(head);
    char *text = malloc(at + n * length + strlen(tail) + 1);
    assert_non_null(text);
    memcpy(text, head, at);
    for (size_t i = 0; i < n; i++, at += length) memcpy(text + at, part, length);
    memcpy(text + at, tail, strlen(tail) + 1);
    return text;
}

static void test_deep(void **state) {
    enum { DEEP = 100000 };
    const char *const kinds[] = {"[", "{\"a\":"};
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        size_t length = strlen(kinds[k]);
        char *body = malloc(DEEP * length + 1);
        assert_non_null(body);
        for (size_t i = 0; i < DEEP; i++) memcpy(body + i * length, kinds[k], length);
        body[DEEP * length] = '\0';
        refuse(true, body, 400, "", "nested 100000 levels deep");
        free(body);
    }
    /* what stands in a string is no nesting */
    char *quoted =
        repeat("{\"messages\":[{\"role\":\"user\",\"content\":\"", "[", 200, "\\\"[\"}]}");
    eb_request_free(take(true, quoted));
    free(quoted);
}

/* Short texts that would take much memory. */
static void test_many(void **state) {
    (void)state;
    char *body = repeat("{\"a\":[[]", ",[]", EB_JSON_CONTAINERS, "]}");
    refuse(true, body, 400, "", "arrays and objects");
    free(body);
    body = repeat("{\"a\":[0", ",0", EB_JSON_VALUES, "]}");
    refuse(true, body, 400, "", "values");
    free(body);
    body = repeat("{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"stop\":[\"a\"",
                  ",\"a\"", 4, "]}");
    refuse(true, body, 400, "stop", "5 texts");
    free(body);
    body = repeat("{" HELLO ",\"stop\":\"", "a", 257, "\"}");
    refuse(true, body, 400, "stop", "257 bytes");
    free(body);
}

/* Every numeric field with numbers that cannot be, and with what is no number. */
static void test_numbers(void **state) {
    static const char *const wholes[] = {"max_tokens", "max_completion_tokens", "n",
                                         "top_k",      "repeat_last_n",         "top_logprobs"};
    static const char *const reals[] = {
        "temperature", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty"};
    static const char *const wrong[] = {"-101",
                                        "-9223372036854775808",
                                        "9223372036854775807",
                                        "1e300",
                                        "-1e300",
                                        "\"1\"",
                                        "[]",
                                        "{}",
                                        "true",
                                        "\"\""};
    char field[128];
    (void)state;
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
            snprintf(field, sizeof field, "\"%s\":%s", wholes[i], wrong[k]);
            refuse_field(field, wholes[i], "it must be a whole number from");
        }
        for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
            snprintf(field, sizeof field, "\"%s\":%s", reals[i], wrong[k]);
            refuse_field(field, reals[i], "it must be a number from");
        }
    }
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        snprintf(field, sizeof field, "\"%s\":1.5", wholes[i]);
        refuse_field(field, wholes[i], "whole number");
    }
    refuse_field("\"seed\":0.5", "seed", "whole number");
    refuse_field("\"n\":0", "n", "from 1 to 8");
    refuse_field("\"n\":9", "n", "from 1 to 8");
    refuse_field("\"max_tokens\":0", "max_tokens", "is 0");
    refuse_field("\"temperature\":2.01", "temperature", "from 0 to 2");
    refuse_field("\"top_logprobs\":21,\"logprobs\":true", "top_logprobs", "from 0 to 20");
    refuse(false, "{\"prompt\":\"a\",\"logprobs\":6}", 400, "logprobs", "from 0 to 5");
    refuse(false, "{\"prompt\":\"a\",\"best_of\":3}", 400, "best_of", "from 1 to 1");
}

static void test_wrong_types(void **state) {
    (void)state;
    refuse_field("\"stream\":1", "stream", "true or false");
    refuse_field("\"stream_options\":{\"include_usage\":true}", "stream_options", "needs");
    refuse_field("\"stream\":true,\"stream_options\":[]", "stream_options", "an object");
    refuse_field("\"stop\":5", "stop", "a string");
    refuse_field("\"stop\":[null]", "stop[0]", "is null");
    refuse_field("\"stop\":\"\"", "stop", "0 bytes");
    refuse_field("\"model\":5", "model", "a string");
    refuse_field("\"logprobs\":5", "logprobs", "true or false");
    refuse_field("\"top_logprobs\":2", "top_logprobs", "needs");
    refuse_field("\"logit_bias\":[1]", "logit_bias", "an object");
    refuse_field("\"logit_bias\":{\"x\":1}", "logit_bias", "no token id");
    refuse_field("\"logit_bias\":{\"-1\":1}", "logit_bias", "no token id");
    refuse_field("\"logit_bias\":{\"4352\":1}", "logit_bias", "from 0 to 4351");
    refuse_field("\"logit_bias\":{\"99999999999999999999\":1}", "logit_bias", "no token id");
    refuse_field("\"logit_bias\":{\"05\":1}", "logit_bias", "no token id");
    refuse_field("\"logit_bias\":{\"5\":\"1\"}", "logit_bias", "from -100 to 100");
    refuse_field("\"logit_bias\":{\"5\":1e9}", "logit_bias", "from -100 to 100");
    refuse_field("\"reasoning_effort\":\"much\"", "reasoning_effort", "\"much\"");
    refuse_field("\"chat_template_kwargs\":{\"thinking\":1}", "chat_template_kwargs.thinking",
                 "true or false");
    refuse(true, "{\"model\":\"gpt-9\"," HELLO "}", 404, "model", "gpt-9");
}

static void test_not_supported(void **state) {
    (void)state;
    refuse_field("\"functions\":[]", "functions", "not supported");
    refuse_field("\"function_call\":\"auto\"", "function_call", "not supported");
    refuse_field("\"audio\":{}", "audio", "not supported");
    refuse_field("\"prediction\":{}", "prediction", "not supported");
    refuse_field("\"web_search_options\":{}", "web_search_options", "not supported");
    refuse_field("\"modalities\":[\"text\",\"audio\"]", "modalities", "modalities[1]");
    refuse(false, "{\"prompt\":\"a\",\"echo\":true}", 400, "echo", "not supported");
    refuse(false, "{\"prompt\":\"a\",\"suffix\":\"b\"}", 400, "suffix", "not supported");
    refuse(false, "{\"prompt\":\"a\",\"response_format\":{\"type\":\"json_object\"}}", 400,
           "response_format", "not supported");
}

static void test_messages(void **state) {
    (void)state;
    refuse(true, "{}", 400, "messages", "missing");
    refuse(true, "{\"messages\":[]}", 400, "messages", "empty");
    refuse(true, "{\"messages\":{}}", 400, "messages", "an array");
    refuse(true, "{\"messages\":[7]}", 400, "messages", "messages[0]");
    refuse(true, "{\"messages\":[{}]}", 400, "messages", "messages[0]");
    refuse(true, "{\"messages\":[{\"role\":\"king\",\"content\":\"a\"}]}", 400, "messages", "king");
    refuse(true, "{\"messages\":[{\"role\":\"user\",\"content\":5}]}", 400, "messages",
           "messages[0].content");
    refuse(true, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", 400,
           "messages", "messages[0].content[0]");
}

static void test_wrong_tools(void **state) {
    (void)state;
    refuse_field("\"tools\":{}", "tools", "an array");
    refuse_field("\"tools\":[5]", "tools[0]", "an object");
    refuse_field("\"tools\":[{}]", "tools[0].type", "\"function\"");
    refuse_field("\"tools\":[{\"type\":\"function\"}]", "tools[0].function", "missing");
    refuse_field("\"tools\":[{\"type\":\"function\",\"function\":{}}]", "tools[0].function.name",
                 "letters");
    refuse_field("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]",
                 "tools[0].function.name", "letters");
    refuse_field(
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\"}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"a\"}}]",
        "tools", "two tools");
    refuse_field(
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\","
        "\"parameters\":5}}]",
        "tools[0].function.parameters", "an object");
    refuse_field("\"tool_choice\":\"required\"", "tool_choice", "no tools");
    refuse_field(TOOLS ",\"tool_choice\":\"must\"", "tool_choice", "\"must\"");
    refuse_field(TOOLS ",\"tool_choice\":7", "tool_choice", "is 7");
    refuse_field(TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"fly\"}}",
                 "tool_choice", "\"fly\"");
}

static void test_wrong_formats(void **state) {
    (void)state;
    refuse_field("\"response_format\":\"json\"", "response_format", "an object");
    refuse_field("\"response_format\":{}", "response_format.type", "must be");
    refuse_field("\"response_format\":{\"type\":\"xml\"}", "response_format.type", "must be");
    refuse_field("\"response_format\":{\"type\":\"json_schema\"}",
                 "response_format.json_schema.schema", "missing");
    refuse_field(
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":"
        "{\"type\":\"number\",\"multipleOf\":3}}}",
        "response_format", "multipleOf");
    refuse_field("\"response_format\":{\"type\":\"json_object\"}," TOOLS, "response_format",
                 "tool_choice");
}

static void test_prompts(void **state) {
    (void)state;
    refuse(false, "{}", 400, "prompt", "missing");
    refuse(false, "{\"prompt\":5}", 400, "prompt", "a string");
    refuse(false, "{\"prompt\":[]}", 400, "prompt", "no token");
    refuse(false, "{\"prompt\":[\"a\",\"b\"]}", 400, "prompt", "prompt[0]");
    refuse(false, "{\"prompt\":[1,-1]}", 400, "prompt", "prompt[1]");
    refuse(false, "{\"prompt\":[4352]}", 400, "prompt", "from 0 to 4351");
    refuse(false, "{\"prompt\":[1.5]}", 400, "prompt", "prompt[0]");
    /* both lengths are named */
    char *body = repeat("{\"prompt\":[1", ",1", 511, "]}");
    refuse(false, body, 400, "prompt", "512 tokens");
    refuse(false, body, 400, "prompt", "of 512");
    free(body);
    body = repeat("{\"prompt\":[1", ",1", 510, "]}");
    eb_request_free(take(false, body));
    free(body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),      cmocka_unit_test(test_every_field),
        cmocka_unit_test(test_nulls),         cmocka_unit_test(test_thinking),
        cmocka_unit_test(test_text),          cmocka_unit_test(test_tools),
        cmocka_unit_test(test_formats),       cmocka_unit_test(test_no_json),
        cmocka_unit_test(test_truncated),     cmocka_unit_test(test_deep),
        cmocka_unit_test(test_many),          cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_wrong_types),   cmocka_unit_test(test_not_supported),
        cmocka_unit_test(test_messages),      cmocka_unit_test(test_wrong_tools),
        cmocka_unit_test(test_wrong_formats), cmocka_unit_test(test_prompts),
    };
    return cmocka_run_group_tests_name("request", tests, set_up, tear_down);
}
