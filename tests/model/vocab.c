/* vocab.c: special tokens, the shape of the published vocabulary, broken and hostile tokenizer
 * files, memory that runs out. */
#include "model/tokenizer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/failing.h"
#include "tests/harness/test.h"

enum { N_BYTES = 256, ROOM = 1 << 23 };

/* ---- files made here -------------------------------------------------------------------- */

struct text {
    char *p;
    size_t n;
};

static struct text new_text(void) {
    struct text t = {malloc(ROOM), 0};
    assert_non_null(t.p);
    t.p[0] = '\0';
    return t;
}

static void add(struct text *t, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(t->p + t->n, ROOM - t->n, fmt, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < ROOM - t->n);
    t->n += (size_t)n;
}

static void add_token(struct text *t, const unsigned char *p, size_t n, uint32_t rank) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        unsigned bits = (unsigned)p[i] << 16 | (i + 1 < n ? (unsigned)p[i + 1] << 8 : 0) |
                        (i + 2 < n ? p[i + 2] : 0);
        add(t, "%c%c%c%c", digits[bits >> 18], digits[bits >> 12 & 63],
            i + 1 < n ? digits[bits >> 6 & 63] : '=', i + 2 < n ? digits[bits & 63] : '=');
    }
    add(t, " %u\n", rank);
}

static void add_bytes(struct text *t) {
    for (uint32_t i = 0; i < N_BYTES; i++) {
        unsigned char c = (unsigned char)i;
        add_token(t, &c, 1, i);
    }
}

static int32_t open_texts(const struct eb_alloc *a, const struct text *vocab, const char *config,
                          size_t config_bytes, uint32_t size, struct eb_tokenizer **out,
                          ebro_error *err) {
    struct eb_bytes v, c;
    eb_bytes_borrow(vocab->p, vocab->n, &v);
    eb_bytes_borrow(config, config_bytes, &c);
    return eb_tokenizer_open(a, &v, &c, size, out, err);
}

static struct eb_tokenizer *open_bytes(const char *config, uint32_t size) {
    struct text v = new_text();
    struct eb_tokenizer *t = NULL;
    ebro_error err = {0};
    add_bytes(&v);
    test_ok(open_texts(NULL, &v, config, strlen(config), size, &t, &err), &err);
    free(v.p);
    return t;
}

static void check_ids(const struct eb_tokenizer *t, const char *text, bool special,
                      const int32_t *want, size_t n) {
    struct eb_ids ids = {0};
    ebro_error err = {0};
    test_ok(eb_tokenizer_encode(t, text, strlen(text), special, &ids, &err), &err);
    assert_int_equal(ids.n, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(ids.v[i], want[i]);
    eb_ids_free(eb_tokenizer_alloc(t), &ids);
}
#define IDS(...) (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

/* ---- special tokens --------------------------------------------------------------------- */

static const char nested[] =
    "{\"added_tokens_decoder\": {\"257\": {\"content\": \"<a>\"}, \"258\": {\"content\": \"<a>b\"},"
    "\"260\": {\"content\": \"<a>bcd\"}, \"256\": {\"content\": \"é\"}, \"262\": {\"content\": "
    "\"a>\", \"special\": false}}, \"other\": [1, null]}";

static void special_names(void **state) {
    (void)state;
    struct eb_tokenizer *t = open_bytes(nested, 264);
    check_ids(t, "<a>", true, IDS(257));
    check_ids(t, "<a>b", true, IDS(258));
    check_ids(t, "<a>bc", true, IDS(258, 'c'));
    check_ids(t, "<a>bcd", true, IDS(260));
    check_ids(t, "<a", true, IDS('<', 'a'));
    check_ids(t, "<<a>a>", true, IDS('<', 257, 262));
    check_ids(t, "<a><a>bb", true, IDS(257, 258, 'b'));
    check_ids(t, "xéx", true, IDS('x', 256, 'x'));
    check_ids(t, "<|reserved_token_259|>", true, IDS(259));
    check_ids(t, "<|reserved_token_263|><|reserved_token_26", true,
              IDS(263, '<', '|', 'r', 'e', 's', 'e', 'r', 'v', 'e', 'd', '_', 't', 'o', 'k', 'e',
                  'n', '_', '2', '6'));
    check_ids(t, "<a>b", false, IDS('<', 'a', '>', 'b'));
    assert_int_equal(eb_token_special(t, "<a>bcd"), 260);
    assert_int_equal(eb_token_special(t, "<a>bc"), -1);
    assert_int_equal(eb_token_special(t, "<|reserved_token_261|>"), 261);
    assert_int_equal(eb_token_special(t, "<|reserved_token_262|>"), -1);
    assert_int_equal(eb_token_special(t, "<|reserved_token_264|>"), -1);
    assert_int_equal(eb_token_special(t, ""), -1);
    eb_tokenizer_close(&t);
    eb_tokenizer_close(&t);
    eb_tokenizer_close(NULL);
}

static void lookups(void **state) {
    (void)state;
    struct eb_tokenizer *t = open_bytes("", 258);
    ebro_error err = {0};
    struct eb_ids ids = {0};
    size_t n = 0;
    bool special = false;
    assert_int_equal(eb_tokenizer_n_ranks(t), 256);
    assert_int_equal(eb_tokenizer_vocab(t), 258);
    assert_memory_equal(eb_token_bytes(t, 257, &n, &special), "<|reserved_token_257|>", 23);
    assert_true(special && n == 22);
    assert_int_equal(*eb_token_bytes(t, 'x', &n, &special), 'x');
    assert_true(!special && n == 1);
    assert_null(eb_token_bytes(t, 258, &n, NULL));
    assert_null(eb_token_bytes(t, -1, &n, NULL));
    test_ok(eb_tokenizer_push(t, 257, &ids, &err), &err);
    test_fails(eb_tokenizer_push(t, 258, &ids, &err), EBRO_INVALID, &err, "0 to 257");
    test_fails(eb_tokenizer_push(t, -1, &ids, &err), EBRO_INVALID, &err, "-1");
    test_fails(eb_tokenizer_encode(t, NULL, 3, false, &ids, &err), EBRO_INVALID, &err, "NULL");
    test_fails(eb_tokenizer_encode(t, "x", (size_t)1 << 31, false, &ids, &err), EBRO_INVALID, &err,
               "2147483647");
    test_ok(eb_tokenizer_encode(t, "", 0, true, &ids, &err), &err);
    assert_int_equal(ids.n, 1);
    eb_ids_free(NULL, &ids);
    eb_tokenizer_close(&t);
    /* A vocabulary without special tokens. */
    t = open_bytes("{}", 256);
    check_ids(t, "<|x", true, IDS('<', '|', 'x'));
    assert_int_equal(eb_token_special(t, "x"), -1);
    eb_tokenizer_close(&t);
}

/* 163,840 ids, special ones from 163,584, ranks in falling order of lines. */
static void published_shape(void **state) {
    (void)state;
    struct text v = new_text();
    struct eb_tokenizer *t = NULL;
    ebro_error err = {0};
    for (uint32_t i = 163583; i >= N_BYTES; i--) {
        const unsigned char p[3] = {(unsigned char)(i >> 16), (unsigned char)(i >> 8),
                                    (unsigned char)i};
        add_token(&v, p, 3, i);
    }
    add_bytes(&v);
    const char *config = "{\"added_tokens_decoder\": {\"163586\": {\"content\": \"<|im_end|>\"}}}";
    test_ok(open_texts(NULL, &v, config, strlen(config), 163840, &t, &err), &err);
    assert_int_equal(eb_tokenizer_n_ranks(t), 163584);
    assert_int_equal(eb_token_special(t, "<|im_end|>"), 163586);
    assert_int_equal(eb_token_special(t, "<|reserved_token_163585|>"), 163585);
    assert_int_equal(eb_token_special(t, "<|reserved_token_163839|>"), 163839);
    check_ids(t, "\x01\x02\x7f", false, IDS(0x1027f));
    size_t n = 0;
    assert_memory_equal(eb_token_bytes(t, 0x1027f, &n, NULL), "\x01\x02\x7f", 3);
    eb_tokenizer_close(&t);
    free(v.p);
}

/* ---- broken files ----------------------------------------------------------------------- */

static void refuse_vocab(const struct text *v, uint32_t size, const char *part) {
    struct eb_tokenizer *t = NULL;
    ebro_error err = {0};
    test_fails(open_texts(NULL, v, "", 0, size, &t, &err), EBRO_FORMAT, &err, part);
    assert_null(t);
}

static void broken_lines(void **state) {
    (void)state;
    static const struct {
        const char *line, *part;
    } cases[] = {
        {"<0x-1> 256", "line 257: not the base64"},
        {"QUI= 257", "line 257: rank 257"},
        {"QUI= 4294967296", "rank 4294967295"},
        {"QUI= 99999999999", "line 257: not \"BASE64 RANK\""},
        {"QUI= -1", "line 257: not \"BASE64 RANK\""},
        {"QUI= +256", "line 257: not \"BASE64 RANK\""},
        {"QUI= 255", "line 257: rank 255 a second time"},
        {"QQ== 256", "ranks 65 and 256 are the same bytes"},
        {"QUI=256", "line 257: not \"BASE64 RANK\""},
        {"QUI=  256", "line 257: not \"BASE64 RANK\""},
        {"QUI= 256 ", "line 257: not \"BASE64 RANK\""},
        {" 256", "line 257: not the base64"},
        {"==== 256", "line 257: not the base64"},
        {"Q=== 256", "line 257: not the base64"},
        {"Q=I= 256", "line 257: not the base64"},
        {"QUI 256", "line 257: not the base64"},
        {"QUJ= 256", "line 257: not the base64"}, /* unused bits set */
        {"QR== 256", "line 257: not the base64"},
        {"QU\xff= 256", "line 257: not the base64"},
        {"QUI= 256\nQUI= 257", "ranks 256 and 257 are the same bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text v = new_text();
        add_bytes(&v);
        add(&v, "%s", cases[i].line);
        refuse_vocab(&v, 300, cases[i].part);
        free(v.p);
    }
}

static void broken_vocabularies(void **state) {
    (void)state;
    struct text v = new_text();
    refuse_vocab(&v, 300, "0 tokens");
    add(&v, "\n\n\r\n");
    refuse_vocab(&v, 300, "0 tokens");
    v.n = 0;
    add_bytes(&v);
    refuse_vocab(&v, 255, "a model of 255 ids");
    refuse_vocab(&v, 0, "a vocabulary of 0 ids");
    refuse_vocab(&v, UINT32_MAX, "4294967295 ids");
    refuse_vocab(&v, 256 + 65537, "65537 special");
    v.n = 0;
    for (uint32_t i = 0; i < 255; i++) {
        unsigned char c = (unsigned char)(i < 0x41 ? i : i + 1);
        add_token(&v, &c, 1, i);
    }
    refuse_vocab(&v, 300, "single byte 0x41");
    v.n = 0;
    add_bytes(&v);
    for (int i = 0; i < 6000; i++) add(&v, "QUFB");
    add(&v, " 256\n");
    refuse_vocab(&v, 300, "24000 base64 characters");
    /* A file cut anywhere is refused, except where a line ends. */
    v.n = 0;
    add_bytes(&v);
    size_t whole = v.n;
    for (v.n = whole - 20; v.n < whole - 1; v.n++) {
        struct eb_tokenizer *t = NULL;
        ebro_error err = {0};
        test_fails(open_texts(NULL, &v, "", 0, 300, &t, &err), EBRO_FORMAT, &err, "tiktoken.model");
    }
    v.n = whole - 1; /* without its last line feed it is whole */
    struct eb_tokenizer *t = NULL;
    ebro_error err = {0};
    test_ok(open_texts(NULL, &v, "", 0, 300, &t, &err), &err);
    eb_tokenizer_close(&t);
    free(v.p);
}

/* Tokens made to fall on one slot of the table: opening stays quick because it gives up. */
static void colliding_tokens(void **state) {
    (void)state;
    struct text v = new_text();
    uint32_t rank = N_BYTES;
    add_bytes(&v);
    for (uint32_t i = 0; rank < 1000; i++) {
        const unsigned char p[4] = {(unsigned char)(i >> 24), (unsigned char)(i >> 16),
                                    (unsigned char)(i >> 8), (unsigned char)i};
        uint64_t h = 0xcbf29ce484222325u;
        for (int k = 0; k < 4; k++) h = (h ^ p[k]) * 0x100000001b3u;
        h = (h ^ h >> 32) * 0x9e3779b97f4a7c15u;
        if ((h >> 32 & 2047) == 7) add_token(&v, p, 4, rank++);
    }
    refuse_vocab(&v, 2000, "collide");
    free(v.p);
}

static void broken_configs(void **state) {
    (void)state;
    static const struct {
        const char *config, *part;
    } cases[] = {
        {"{", "tokenizer_config.json line 1"},
        {"[]", "not a JSON object"},
        {"{\"added_tokens_decoder\": []}", "not an object"},
        {"{\"added_tokens_decoder\": {\"256\": \"x\"}}", "\"256\" has no string \"content\""},
        {"{\"added_tokens_decoder\": {\"256\": {\"content\": 7}}}", "no string \"content\""},
        {"{\"added_tokens_decoder\": {\"256\": {\"content\": \"\"}}}", "0 bytes"},
        {"{\"added_tokens_decoder\": {\"256\": {\"content\": \"a\\u0000b\"}}}", "line 1"},
        {"{\"added_tokens_decoder\": {\"256\": {\"content\": \"\xff\"}}}", "line 1"},
        {"{\"added_tokens_decoder\": {\"255\": {\"content\": \"<x>\"}}}",
         "\"<x>\" has id \"255\"; special ids are 256 to 259"},
        {"{\"added_tokens_decoder\": {\"260\": {\"content\": \"<x>\"}}}", "id \"260\""},
        {"{\"added_tokens_decoder\": {\"-1\": {\"content\": \"<x>\"}}}", "id \"-1\""},
        {"{\"added_tokens_decoder\": {\"0256\": {\"content\": \"<x>\"}}}", "id \"0256\""},
        {"{\"added_tokens_decoder\": {\"256 \": {\"content\": \"<x>\"}}}", "id \"256 \""},
        {"{\"added_tokens_decoder\": {\"\": {\"content\": \"<x>\"}}}", "id \"\""},
        {"{\"added_tokens_decoder\": {\"18446744073709551872\": {\"content\": \"<x>\"}}}",
         "id \"18446744073709551872\""},
        {"{\"added_tokens_decoder\": {\"256\": {\"content\": \"<x>\"}, \"258\": {\"content\": "
         "\"<x>\"}}}",
         "share the name \"<x>\""},
        {"{\"added_tokens_decoder\": {\"256\": {\"content\": \"<|reserved_token_257|>\"}}}",
         "share the name \"<|reserved_token_257|>\""},
        {"{\"added_tokens_decoder\": {\"256\": {\"content\": \"a\"}, \"256\": {\"content\": "
         "\"b\"}}}",
         "duplicate"},
    };
    struct text v = new_text();
    struct eb_tokenizer *t = NULL;
    ebro_error err = {0};
    add_bytes(&v);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_fails(open_texts(NULL, &v, cases[i].config, strlen(cases[i].config), 260, &t, &err),
                   EBRO_FORMAT, &err, cases[i].part);
        assert_null(t);
    }
    struct text c = new_text();
    for (int i = 0; i < 100000; i++) add(&c, "[");
    test_fails(open_texts(NULL, &v, c.p, c.n, 260, &t, &err), EBRO_FORMAT, &err, "line 1");
    c.n = 0;
    add(&c, "{\"added_tokens_decoder\": {\"256\": {\"content\": \"%02000d\"}}}", 1);
    test_fails(open_texts(NULL, &v, c.p, c.n, 260, &t, &err), EBRO_FORMAT, &err, "2000 bytes");
    free(c.p);
    free(v.p);
}

/* ---- memory that runs out --------------------------------------------------------------- */

static int32_t open_and_encode(const struct eb_alloc *a, const struct text *v, ebro_error *err) {
    static const char text[] = "Hello <a> 世界 aaaa \xff <a>b";
    struct eb_tokenizer *t = NULL;
    struct eb_ids ids = {0};
    int32_t st = open_texts(a, v, nested, strlen(nested), 264, &t, err);
    if (st == EBRO_OK) st = eb_tokenizer_encode(t, text, sizeof text, true, &ids, err);
    if (st != EBRO_OK)
        assert_int_equal(ids.n, 0);
    else
        assert_true(ids.n > 10);
    eb_ids_free(a, &ids);
    eb_tokenizer_close(&t);
    return st;
}

static void no_memory(void **state) {
    (void)state;
    struct text v = new_text();
    add_bytes(&v);
    size_t n = 0;
    for (;; n++) {
        struct failing memory = {.fail_at = n};
        struct eb_alloc a = {&memory, failing_realloc};
        ebro_error err = {0};
        int32_t st = open_and_encode(&a, &v, &err);
        assert_int_equal(memory.n_held, 0);
        /* The JIT alone may be refused memory without an error. */
        if (st == EBRO_OK && memory.n_calls < n) break;
        if (st != EBRO_OK) test_fails(st, EBRO_NOMEM_HOST, &err, NULL);
    }
    assert_true(n > 20);
    free(v.p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(special_names),       cmocka_unit_test(lookups),
        cmocka_unit_test(published_shape),     cmocka_unit_test(broken_lines),
        cmocka_unit_test(broken_vocabularies), cmocka_unit_test(colliding_tokens),
        cmocka_unit_test(broken_configs),      cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
