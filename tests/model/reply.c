/* reply.c: the parser of replies: what a model of either format may write, cut into tokens in every
 * way; what it should not write; and replies that were rendered from a conversation. Calls of Kimi
 * K2 are written as in moonshotai/Kimi-K2-Instruct's docs/tool_call_guidance.md, those of Kimi K3
 * as moonshotai/Kimi-K3's encoding_k3.py writes them. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "tests/model/tiny.h"

static struct eb_tokenizer *thinker; /* Kimi Linear's, with tokens for thinking */
static ebro_model models[3];
enum { LINEAR, K3, THINKER };

/* ---- what was heard --------------------------------------------------------------------- */

/* "[C]content[R]reasoning[B]name/id[A]arguments[E]", neighbours of a kind joined. */
struct heard {
    char text[1 << 16];
    size_t n;
    int32_t kind;
    uint32_t call;
    size_t n_pieces, fail_at;
};

static void add(struct heard *h, const char *p, size_t n) {
    assert_true(n < sizeof h->text - h->n);
    memcpy(h->text + h->n, p, n);
    h->n += n;
    h->text[h->n] = '\0';
}

static int32_t hear(void *user, const ebro_reply_piece *p) {
    static const char *const marks[] = {[EBRO_REPLY_CONTENT] = "[C]",
                                        [EBRO_REPLY_REASONING] = "[R]",
                                        [EBRO_REPLY_TOOL_BEGIN] = "[B]",
                                        [EBRO_REPLY_TOOL_ARGUMENTS] = "[A]",
                                        [EBRO_REPLY_TOOL_END] = "[E]"};
    struct heard *h = user;
    assert_int_equal(p->size, sizeof *p);
    assert_in_range(p->kind, EBRO_REPLY_CONTENT, EBRO_REPLY_TOOL_END);
    assert_non_null(p->text);
    if (h->n_pieces++ == h->fail_at) return 77;
    bool whole = p->kind == EBRO_REPLY_TOOL_BEGIN || p->kind == EBRO_REPLY_TOOL_END;
    assert_true(whole || p->bytes > 0);
    if (p->kind == EBRO_REPLY_TOOL_BEGIN) {
        assert_int_equal(p->call, h->call);
        h->call++;
    } else if (whole || p->kind == EBRO_REPLY_TOOL_ARGUMENTS) {
        assert_int_equal(p->call + 1, h->call);
    }
    if (whole || h->kind != p->kind) add(h, marks[p->kind], 3);
    h->kind = p->kind;
    add(h, p->text, p->bytes);
    if (p->kind == EBRO_REPLY_TOOL_BEGIN) {
        add(h, "/", 1);
        add(h, p->id, p->id_bytes);
    }
    return 0;
}

static void reset(struct heard *h) {
    h->n = h->n_pieces = 0;
    h->text[0] = '\0';
    h->kind = -1;
    h->call = 0;
    h->fail_at = SIZE_MAX;
}

/* ---- what is written -------------------------------------------------------------------- */

/* One byte of text, or a control token. */
struct unit {
    bool special;
    int32_t id;
    char byte;
};

struct written {
    struct unit units[1 << 14];
    size_t n;
};

static void add_ids(const struct eb_tokenizer *t, const int32_t *ids, size_t n,
                    struct written *out) {
    out->n = 0;
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        bool special;
        const char *p = eb_token_bytes(t, ids[i], &bytes, &special);
        for (size_t k = 0; k < (special ? 1 : bytes); k++) {
            assert_true(out->n < sizeof out->units / sizeof *out->units);
            out->units[out->n++] = (struct unit){special, ids[i], p[k]};
        }
    }
}

static void write_units(int which, const char *text, struct written *out) {
    struct eb_ids ids = {0};
    ebro_error err = {0};
    const struct eb_tokenizer *t = models[which].tokenizer;
    test_ok(eb_tokenizer_encode(t, text, strlen(text), true, &ids, &err), &err);
    add_ids(t, ids.v, ids.n, out);
    eb_ids_free(NULL, &ids);
}

static void push_text(ebro_reply *r, const struct eb_tokenizer *t, const char *p, size_t n,
                      struct heard *h) {
    struct eb_ids ids = {0};
    ebro_error err = {0};
    test_ok(eb_tokenizer_encode(t, p, n, false, &ids, &err), &err);
    for (size_t i = 0; i < ids.n; i++) test_ok(ebro_reply_push(r, ids.v[i], hear, h, &err), &err);
    eb_ids_free(NULL, &ids);
}

/* Text before units[i] is cut there where cuts[i] is not 0; `cuts` NULL: nowhere. */
static void feed(ebro_reply *r, int which, const struct written *w, size_t n,
                 const unsigned char *cuts, struct heard *h) {
    static char text[1 << 14];
    const struct eb_tokenizer *t = models[which].tokenizer;
    ebro_error err = {0};
    size_t held = 0;
    for (size_t i = 0; i < n; i++) {
        if (w->units[i].special || (cuts != NULL && cuts[i] != 0)) {
            push_text(r, t, text, held, h);
            held = 0;
        }
        if (w->units[i].special)
            test_ok(ebro_reply_push(r, w->units[i].id, hear, h, &err), &err);
        else
            text[held++] = w->units[i].byte;
    }
    push_text(r, t, text, held, h);
}

static ebro_reply *create(int which, int32_t thinking) {
    const ebro_reply_options o = {.size = sizeof o, .thinking = thinking};
    ebro_reply *r = NULL;
    ebro_error err = {0};
    test_ok(ebro_reply_create(&models[which], &o, &r, &err), &err);
    return r;
}

static void finish(ebro_reply **r, struct heard *h) {
    ebro_error err = {0};
    test_ok(ebro_reply_finish(*r, hear, h, &err), &err);
    const size_t n = h->n_pieces;
    test_ok(ebro_reply_finish(*r, hear, h, &err), &err);
    assert_int_equal(h->n_pieces, n);
    ebro_reply_destroy(r);
    assert_null(*r);
}

static void check_cuts(int which, int32_t thinking, const struct written *w,
                       const unsigned char *cuts, const char *want) {
    static struct heard h;
    ebro_reply *r = create(which, thinking);
    reset(&h);
    feed(r, which, w, w->n, cuts, &h);
    finish(&r, &h);
    assert_string_equal(h.text, want);
}

/* What is heard of a reply that is cut off is the beginning of what is heard of all of it; an open
 * call is ended, no more. */
static void check_prefixes(int which, int32_t thinking, const struct written *w, const char *want) {
    static struct heard h;
    for (size_t n = 0; n < w->n; n++) {
        ebro_reply *r = create(which, thinking);
        reset(&h);
        feed(r, which, w, n, NULL, &h);
        const size_t before = h.n;
        assert_int_equal(strncmp(h.text, want, before), 0);
        finish(&r, &h);
        assert_true(h.n == before || strcmp(h.text + before, "[E]") == 0);
    }
}

static void check_units(int which, int32_t thinking, const struct written *w, const char *want) {
    static unsigned char cuts[1 << 14];
    struct test_rng rng = {test_seed()};
    check_cuts(which, thinking, w, NULL, want);
    memset(cuts, 1, sizeof cuts);
    check_cuts(which, thinking, w, cuts, want);
    memset(cuts, 0, sizeof cuts);
    for (size_t i = 0; i < w->n; i++) {
        cuts[i] = 1;
        check_cuts(which, thinking, w, cuts, want);
        cuts[i] = 0;
    }
    for (int i = 0; i < 20; i++) {
        for (size_t k = 0; k < w->n; k++) cuts[k] = test_u64(&rng) % 4 == 0;
        check_cuts(which, thinking, w, cuts, want);
    }
    check_prefixes(which, thinking, w, want);
}

/* `text` is read with names of control tokens as those tokens. */
static void check(int which, int32_t thinking, const char *text, const char *want) {
    static struct written w;
    write_units(which, text, &w);
    check_units(which, thinking, &w, want);
}

/* ---- Kimi K2 and Kimi Linear ------------------------------------------------------------ */

#define SECTION(calls) "<|tool_calls_section_begin|>" calls "<|tool_calls_section_end|>"
#define CALL(id, arguments) \
    "<|tool_call_begin|>" id "<|tool_call_argument_begin|>" arguments "<|tool_call_end|>"

static void linear_replies(void **state) {
    (void)state;
    check(LINEAR, 0, "", "");
    check(LINEAR, 0, "Hi \xf0\x9f\x98\x80.<|im_end|>", "[C]Hi \xf0\x9f\x98\x80.");
    check(LINEAR, 1, "Hi", "[C]Hi"); /* no channel for it */
    check(LINEAR, 0,
          "I look." SECTION(CALL("functions.get_weather:0", "{\"city\": \"S\xc3\xa3o\"}")),
          "[C]I look.[B]get_weather/functions.get_weather:0[A]{\"city\": \"S\xc3\xa3o\"}[E]");
    check(
        LINEAR, 0,
        SECTION(CALL("functions.a:0", "{\"x\": {\"y\": [1, {\"z\": null}]}}")
                    CALL("functions.b:c:1", "{}") CALL("functions.a:2", "")) "<|im_end|>",
        "[B]a/functions.a:0[A]{\"x\": {\"y\": [1, {\"z\": null}]}}[E][B]b:c/functions.b:c:1[A]{}[E]"
        "[B]a/functions.a:2[E]");
    /* white space between marks, as some write */
    check(LINEAR, 0,
          "<|tool_calls_section_begin|>\n<|tool_call_begin|>\nfunctions.f:0\n<|tool_call_argument_"
          "begin|>\n{}\n<|tool_call_end|>\n<|tool_calls_section_end|>",
          "[B]f/functions.f:0[A]\n{}\n[E]");
    check(LINEAR, 0,
          SECTION(CALL("f", "{}") CALL("call_12", "{}") CALL("functions.:3", "{}") CALL("f:", "{}")
                      CALL(":7", "{}")),
          "[B]f/f[A]{}[E][B]call_12/call_12[A]{}[E][B]/functions.:3[A]{}[E][B]f:/f:[A]{}[E]"
          "[B]/:7[A]{}[E]");
    check(LINEAR, 0, SECTION(CALL("f:0", "{}")) "And more", "[B]f/f:0[A]{}[E][C]And more");
}

static void linear_thinking(void **state) {
    (void)state;
    check(THINKER, 0, "<think>Hm.</think>Yes.", "[R]Hm.[C]Yes.");
    check(THINKER, 0, "<think></think>Yes.</think>", "[C]Yes.");
    check(THINKER, 0, "<think>Hm." SECTION(CALL("f:0", "{}")) "<think>So</think>.",
          "[R]Hm.[B]f/f:0[A]{}[E][R]So[C].");
    check(THINKER, 0, SECTION("<think>" CALL("f:<think>0", "{</think>}")), "[B]f/f:0[A]{}[E]");
    /* not in this vocabulary: text */
    check(LINEAR, 0, "<think>Hm.</think>Yes.", "[C]<think>Hm.</think>Yes.");
}

static void linear_broken(void **state) {
    (void)state;
    check(LINEAR, 0, "a<|tool_call_end|>b<|tool_call_argument_begin|>c<|tool_calls_section_end|>d",
          "[C]abcd");
    check(LINEAR, 0, "<|tool_calls_section_begin|> \n word \n<|tool_calls_section_end|>x",
          "[C]word \nx");
    check(LINEAR, 0, SECTION(" a ") SECTION(" \n") "b" SECTION(CALL("12", "")),
          "[C]a b[B]12/12[E]");
    check(LINEAR, 0, "<|tool_call_begin|>f:0<|tool_call_argument_begin|>{}<|tool_call_end|> a",
          "[B]f/f:0[A]{}[E][C]a"); /* without a section */
    check(LINEAR, 0, SECTION("<|tool_call_begin|>f:0<|tool_call_begin|>g:1<|tool_call_end|>"),
          "[B]g/g:1[E]");
    check(LINEAR, 0,
          SECTION("<|tool_call_begin|>f:0<|tool_call_argument_begin|>{<|tool_call_begin|>g:1"
                  "<|tool_call_argument_begin|>}"),
          "[B]f/f:0[A]{[E][B]g/g:1[A]}[E]");
    check(LINEAR, 0, SECTION(SECTION(CALL("f:0", "1<|tool_call_argument_begin|>2"))),
          "[B]f/f:0[A]12[E]");
    check(LINEAR, 0, "x<|im_user|>y<|reserved_token_4200|>[EOS]z", "[C]xyz");
}

/* ---- Kimi K3 ---------------------------------------------------------------------------- */

#define OPEN(tag) "<|open|>" tag "<|sep|>"
#define CLOSE(tag) "<|close|>" tag "<|sep|>"
#define ARGUMENT(key, type, value) \
    OPEN("argument key=\"" key "\" type=\"" type "\"") value CLOSE("argument")
#define OPEN_CALL(name, index) OPEN("call tool=\"" name "\" index=\"" index "\"")
#define TOOLS(calls) OPEN("tools") calls CLOSE("tools")
#define END CLOSE("message") "<|end_of_msg|>"

static void k3_replies(void **state) {
    (void)state;
    check(K3, 0, "Hi \xf0\x9f\x98\x80." CLOSE("response") END, "[C]Hi \xf0\x9f\x98\x80.");
    check(K3, 1, "Hm" CLOSE("think") OPEN("response") "Yes" CLOSE("response") END, "[R]Hm[C]Yes");
    check(K3, 1, CLOSE("think") OPEN("response") CLOSE("response") END, "");
    check(K3, 0, CLOSE(" response ") "\n" TOOLS("\n" OPEN_CALL("f", "1") " " CLOSE("call")) END,
          "[B]f/[A]{}[E]");
    /* text that looks like marks is text; see to it that none is a control token here */
    check(K3, 0, "a response close sep" CLOSE("response"), "[C]a response close sep");
}

static void k3_arguments(void **state) {
    (void)state;
    check(
        K3, 0,
        "I look" CLOSE("response")
            TOOLS(OPEN_CALL("get&amp;&quot;weather&lt;", "1")
                      ARGUMENT("ci\\ty&quot;", "string", "S\xc3\xa3o \"P\"\\\n\t\x01 x")
                          ARGUMENT("n", "number", "-1.50") ARGUMENT("b", "boolean", "true")
                              ARGUMENT("z", "null", "null")
                                  ARGUMENT("o", "object", "{\"a\": [1, {\"b\": \"}\"}]}")
                                      ARGUMENT("a", "array", "[]") ARGUMENT("e", "string", "")
                                          ARGUMENT("m", "number", " ") CLOSE("call")
                                              OPEN_CALL("g", "2") CLOSE("call")) END,
        "[C]I look[B]get&\"weather&lt;/[A]{\"ci\\\\ty\\\"\": \"S\xc3\xa3o "
        "\\\"P\\\"\\\\\\n\\t\\u0001 "
        "x\", \"n\": -1.50, \"b\": true, \"z\": null, \"o\": {\"a\": [1, {\"b\": \"}\"}]}, \"a\": "
        "[], \"e\": \"\", \"m\": null}[E][B]g/[A]{}[E]");
    check(K3, 0,
          CLOSE("response") TOOLS(OPEN_CALL(
              "f", "1") OPEN("json type=\"object\"") "{\"a\": " CLOSE("json") CLOSE("call")) END,
          "[B]f/[A]{\"a\": [E]");
    /* no type, a type that is not known, attributes in another order and of other spacing */
    check(K3, 0,
          OPEN("call  index=\"1\" x tool=\"f\"") OPEN("argument key=\"a\"") "1" CLOSE("argument")
              OPEN("argument type=\"text\" key=\"b\"") "2" CLOSE("argument")
                  OPEN("argument\ntype=\"integer\"\tkey=\"c\" ") "3" CLOSE("argument")
                      CLOSE("call"),
          "[B]f/[A]{\"a\": \"1\", \"b\": \"2\", \"c\": 3}[E]");
}

/* What is no number, or too long for one, is a string; what is blank is null. */
static void k3_scalars(void **state) {
    (void)state;
    static const struct {
        const char *type, *text, *want;
    } cases[] = {
        {"number", "0", "0"},
        {"number", " -12.5e+3\n", "-12.5e+3"},
        {"integer", "1E9", "1E9"},
        {"boolean", "false", "false"},
        {"boolean", "True", "\"True\""},
        {"null", "", "null"},
        {"null", "nul", "\"nul\""},
        {"number", "01", "\"01\""},
        {"number", "1.", "\"1.\""},
        {"number", ".5", "\".5\""},
        {"number", "-", "\"-\""},
        {"number", "1e", "\"1e\""},
        {"number", "1,5 \"km\"", "\"1,5 \\\"km\\\"\""},
        {"number", "NaN", "\"NaN\""},
        {"number", "1234567890123456789012345678901234567890123456789012345678901234",
         "1234567890123456789012345678901234567890123456789012345678901234"},
        {"number", "12345678901234567890123456789012345678901234567890123456789012345",
         "\"12345678901234567890123456789012345678901234567890123456789012345\""},
        {"array", " \n", " \nnull"},
        {"object", "{\"a\": tru", "{\"a\": tru"},
    };
    char text[512], want[512];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text,
                 OPEN_CALL("f", "1") OPEN("argument key=\"a\" type=\"%s\"") "%s" CLOSE("argument")
                     CLOSE("call"),
                 cases[i].type, cases[i].text);
        snprintf(want, sizeof want, "[B]f/[A]{\"a\": %s}[E]", cases[i].want);
        check(K3, 0, text, want);
    }
}

static void k3_broken(void **state) {
    (void)state;
    /* unknown channels are shown */
    check(K3, 0,
          "a" CLOSE("response")
              OPEN("note x=\"1\"") " b " CLOSE("note") " \n" OPEN("response") "c" CLOSE("response"),
          "[C]a b c");
    check(K3, 0, "a" CLOSE("response") " \nb \n" CLOSE("message") " ", "[C]ab \n");
    /* what closes nothing means nothing */
    check(K3, 0,
          "a" CLOSE("think") "b" CLOSE("argument") "c" CLOSE("") "d" CLOSE("call") "e" CLOSE(
              "tools") "f<|sep|>g",
          "[C]abcdefg");
    /* tags that are not complete */
    check(K3, 0, "a<|open|>tools<|open|>response<|sep|>b<|close|>resp<|close|>response<|sep|>c",
          "[C]abc");
    check(K3, 0, "a<|close|>respo<|end_of_msg|>b", "[C]ab");
    /* calls in calls, arguments in arguments, and outside */
    check(K3, 0,
          OPEN_CALL("f", "1") OPEN("argument key=\"a\" type=\"string\"") "x" OPEN(
              "argument key=\"b\" type=\"number\"") "1" OPEN_CALL("g", "2")
              OPEN("argument key=\"c\" type=\"object\"") "{}" CLOSE("call") "d",
          "[B]f/[A]{\"a\": \"x\", \"b\": 1}[E][B]g/[A]{\"c\": {}}[E][C]d");
    check(K3, 0, CLOSE("response") OPEN("argument key=\"a\"") "x" CLOSE("argument") "y", "[C]xy");
    check(K3, 0, OPEN_CALL("f", "1") OPEN("response") "x", "[B]f/[A]{}[E][C]x");
    check(K3, 0,
          OPEN("call index=\"1\"") CLOSE("call") OPEN("call tool=\"") CLOSE("call")
              OPEN("call tool=\"g") CLOSE("call") OPEN("call tool") CLOSE("call"),
          "[B]/[A]{}[E][B]/[A]{}[E][B]g/[A]{}[E][B]/[A]{}[E]");
    /* typed and raw arguments do not mix */
    check(K3, 0,
          OPEN_CALL("f", "1") ARGUMENT("a", "number", "1") OPEN("json") "{}" CLOSE("json")
              OPEN("part") "p" CLOSE("part") CLOSE("call"),
          "[B]f/[A]{\"a\": 1[C]{}p[A]}[E]");
    check(K3, 0,
          OPEN_CALL("f", "1") OPEN("json") "{}" CLOSE("json") ARGUMENT("a", "number", "1")
              CLOSE("call"),
          "[B]f/[A]{}[C]1[E]");
    check(K3, 0, OPEN_CALL("f", "1") " stray" CLOSE("call"), "[B]f/[C]stray[A]{}[E]");
    check(K3, 0,
          OPEN_CALL("f", "1") OPEN("json") "1" CLOSE("json") CLOSE("call") OPEN_CALL("g", "2")
              ARGUMENT("a", "string", "\x1f") CLOSE("tools") " x",
          "[B]f/[A]1[E][B]g/[A]{\"a\": \"\\u001f\"}[E][C]x");
    check(K3, 1, "a" CLOSE("response") "b" CLOSE("think") OPEN("response") "c" CLOSE("think") "d",
          "[R]ab[C]cd");
    check(K3, 0, "x<|reserved_token_4200|>[EOS]y", "[C]xy");
}

/* ---- bounds ----------------------------------------------------------------------------- */

static void put_repeated(char **at, char c, size_t n) {
    memset(*at, c, n);
    *at += n;
    **at = '\0';
}

static void put(char *at, const char *text) {
    memcpy(at, text, strlen(text) + 1);
}

/* A tag or head of 4,096 bytes is one, a longer one is text. */
static void long_tags(void **state) {
    (void)state;
    static char text[1 << 14], want[1 << 14];
    static struct written w;
    for (size_t n = 4095; n <= 4098; n++) {
        const bool fits = n <= 4096;
        char *p = text + sprintf(text, "a<|open|>"), *q = want + sprintf(want, "[C]a");
        put_repeated(&p, 'x', n);
        put(p, "<|sep|>b");
        if (!fits) put_repeated(&q, 'x', n);
        put(q, "b");
        write_units(K3, text, &w);
        check_cuts(K3, 0, &w, NULL, want);
        p = text + sprintf(text, "a<|tool_call_begin|>");
        q = want + sprintf(want, fits ? "[C]a[B]" : "[C]a");
        put_repeated(&p, 'x', n);
        put(p, "<|tool_call_argument_begin|>b");
        put_repeated(&q, 'x', n);
        if (fits) *q++ = '/';
        if (fits) put_repeated(&q, 'x', n);
        put(q, fits ? "[A]b[E]" : "b");
        write_units(LINEAR, text, &w);
        check_cuts(LINEAR, 0, &w, NULL, want);
    }
}

/* ---- rendered and read ------------------------------------------------------------------ */

/* Renders a conversation that ends with the assistant's message, and reads that message. */
static void round_trip(int which, int32_t thinking, const char *message, const char *want) {
    static struct written w;
    char json[4096];
    struct eb_ids prompt = {0}, all = {0};
    ebro_error err = {0};
    const ebro_model *m = &models[which];
    ebro_chat_options o = {.size = sizeof o, .thinking = thinking};
    snprintf(json, sizeof json, "{\"messages\": [{\"role\": \"user\", \"content\": \"Go\"}]}");
    test_ok(eb_chat_render_json(m->tokenizer, m->chat, json, strlen(json), &o, &prompt, &err),
            &err);
    o.no_generation_prompt = 1;
    snprintf(json, sizeof json, "{\"messages\": [{\"role\": \"user\", \"content\": \"Go\"}, %s]}",
             message);
    test_ok(eb_chat_render_json(m->tokenizer, m->chat, json, strlen(json), &o, &all, &err), &err);
    assert_true(all.n > prompt.n);
    assert_memory_equal(all.v, prompt.v, prompt.n * sizeof *prompt.v);
    add_ids(m->tokenizer, all.v + prompt.n, all.n - prompt.n, &w);
    check_units(which, thinking, &w, want);
    eb_ids_free(NULL, &prompt);
    eb_ids_free(NULL, &all);
}

static void round_trips(void **state) {
    (void)state;
    static const char message[] =
        "{\"role\": \"assistant\", \"content\": \"I <|close|>look<|im_end|>\", "
        "\"reasoning_content\": \"H<|sep|>m\", \"tool_calls\": [{\"id\": \"functions.f&:0\", "
        "\"type\": \"function\", \"function\": {\"name\": \"f&\", \"arguments\": "
        "\"{\\\"a<|sep|>\\\": "
        "\\\"x\\\\n\\\\\\\"<|close|>argument<|sep|>\\\", \\\"b\\\": {\\\"c\\\": [1, 2.5]}, "
        "\\\"d\\\": null}\"}}, {\"id\": \"functions.g:1\", \"type\": \"function\", \"function\": "
        "{\"name\": \"g\", \"arguments\": \"{}\"}}]}";
    static const char arguments[] =
        "{\"a<|sep|>\": \"x\\n\\\"<|close|>argument<|sep|>\", \"b\": {\"c\": [1, 2.5]}, \"d\": "
        "null}";
    char want[1024];
    for (int32_t thinking = 0; thinking < 2; thinking++) {
        snprintf(want, sizeof want, "%s[C]I <|close|>look<|im_end|>[B]f&/[A]%s[E][B]g/[A]{}[E]",
                 thinking ? "[R]H<|sep|>m" : "", arguments);
        round_trip(K3, thinking, message, want);
        snprintf(
            want, sizeof want,
            "[C]I <|close|>look<|im_end|>[B]f&/functions.f&:0[A]%s[E][B]g/functions.g:1[A]{}[E]",
            arguments);
        round_trip(LINEAR, thinking, message, want);
    }
}

/* ---- calls ------------------------------------------------------------------------------ */

static void wrong_calls(void **state) {
    (void)state;
    static struct heard h;
    ebro_reply *r = NULL;
    ebro_error err = {0};
    const ebro_reply_options none = {.size = 0};
    reset(&h);
    test_fails(ebro_reply_create(&models[K3], &none, &r, &err), EBRO_INVALID, &err, "size");
    assert_null(r);
    const ebro_reply_options old = {offsetof(ebro_reply_options, thinking), 1};
    test_ok(ebro_reply_create(&models[K3], &old, &r, &err), &err);
    push_text(r, k3, "x", 1, &h); /* not thinking */
    assert_string_equal(h.text, "[C]x");
    test_fails(ebro_reply_push(r, -1, hear, &h, &err), EBRO_INVALID, &err, "token id -1");
    test_fails(ebro_reply_push(r, TINY_VOCAB, hear, &h, &err), EBRO_INVALID, &err, "0 to 4351");
    finish(&r, &h);
    test_ok(ebro_reply_create(&models[K3], NULL, &r, &err), &err);
    test_ok(ebro_reply_finish(r, hear, &h, &err), &err);
    test_fails(ebro_reply_push(r, 5, hear, &h, &err), EBRO_INVALID, &err, "finished");
    ebro_reply_destroy(&r);
}

/* The result of `each` comes back, and nothing more is handed out for that token. */
static void result_of_each(void **state) {
    (void)state;
    static struct heard h;
    static struct written w;
    ebro_error err = {0};
    write_units(K3, OPEN_CALL("f", "1") OPEN("argument key=\"a\""), &w);
    assert_true(w.units[w.n - 1].special);
    ebro_reply *r = create(K3, 0);
    reset(&h);
    feed(r, K3, &w, w.n - 1, NULL, &h);
    h.fail_at = h.n_pieces; /* the next mark has several */
    assert_int_equal(ebro_reply_push(r, w.units[w.n - 1].id, hear, &h, &err), 77);
    assert_int_equal(h.n_pieces, h.fail_at + 1);
    h.fail_at = h.n_pieces;
    assert_int_equal(ebro_reply_finish(r, hear, &h, &err), 77);
    assert_int_equal(h.n_pieces, h.fail_at + 1);
    ebro_reply_destroy(&r);
}

static int open_models(void **state) {
    static char config[4096];
    struct eb_bytes text;
    ebro_error err = {0};
    size_t n = 0;
    static const char *const names[] = {"<think>",
                                        "</think>",
                                        "<|tool_calls_section_begin|>",
                                        "<|tool_calls_section_end|>",
                                        "<|tool_call_begin|>",
                                        "<|tool_call_argument_begin|>",
                                        "<|tool_call_end|>"};
    tiny_open(state);
    n += (size_t)sprintf(config + n, "{\"added_tokens_decoder\": {");
    for (int i = 0; i < 7; i++)
        n += (size_t)sprintf(config + n, "%s\"%d\": {\"content\": \"%s\"}", i > 0 ? ", " : "",
                             4100 + i, names[i]);
    n += (size_t)sprintf(config + n, "}}");
    eb_bytes_borrow(config, n, &text);
    test_ok(eb_tokenizer_open(NULL, &tiny_vocab, &text, TINY_VOCAB, &thinker, &err), &err);
    models[LINEAR] = (ebro_model){.tokenizer = linear, .chat = EB_CHAT_KIMI_LINEAR};
    models[K3] = (ebro_model){.tokenizer = k3, .chat = EB_CHAT_KIMI_K3};
    models[THINKER] = (ebro_model){.tokenizer = thinker, .chat = EB_CHAT_KIMI_LINEAR};
    return 0;
}

static int close_models(void **state) {
    eb_tokenizer_close(&thinker);
    return tiny_close(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_replies), cmocka_unit_test(linear_thinking),
        cmocka_unit_test(linear_broken),  cmocka_unit_test(k3_replies),
        cmocka_unit_test(k3_arguments),   cmocka_unit_test(k3_scalars),
        cmocka_unit_test(k3_broken),      cmocka_unit_test(long_tags),
        cmocka_unit_test(round_trips),    cmocka_unit_test(wrong_calls),
        cmocka_unit_test(result_of_each),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
