/* tokenizer.c: splitting, byte-pair encoding and special tokens against the golden ids, against a
 * quadratic encoder and an unoptimised pattern written here, and against broken files. */
#include "model/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tests/model/tiny.h"

enum { TINY_RANKS = 4096, MEGABYTE = 1 << 20 };

/* ---- golden ids ------------------------------------------------------------------------- */

static void check_vectors(const struct eb_tokenizer *t, const json_t *cases, bool special) {
    ebro_error err = {0};
    assert_true(json_array_size(cases) >= 3);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        const json_t *text = json_object_get(c, "text"), *want = json_object_get(c, "ids");
        struct eb_ids ids = {0};
        test_ok(eb_tokenizer_encode(t, json_string_value(text), json_string_length(text), special,
                                    &ids, &err),
                &err);
        assert_int_equal(ids.n, json_array_size(want));
        for (size_t k = 0; k < ids.n; k++)
            assert_int_equal(ids.v[k], json_integer_value(json_array_get(want, k)));
        eb_ids_free(eb_tokenizer_alloc(t), &ids);
    }
}

static void golden_file(const char *name, const struct eb_tokenizer *t) {
    struct eb_bytes file;
    tiny_map(test_golden_dir(), name, &file);
    json_t *root = json_loadb((const char *)file.data, file.bytes, 0, NULL);
    assert_non_null(root);
    check_vectors(t, json_object_get(root, "ordinary"), false);
    check_vectors(t, json_object_get(root, "with_special"), true);
    json_decref(root);
    eb_bytes_close(&file);
}

static void golden_ids(void **state) {
    (void)state;
    golden_file("tokenizer_k3.json", k3);
    golden_file("tokenizer_linear.json", linear);
}

/* ---- splitting -------------------------------------------------------------------------- */

struct pieces {
    const char *base;
    size_t ends[4096];
    size_t n, at;
};

static int32_t take_piece(void *user, const char *p, size_t n, ebro_error *err) {
    struct pieces *s = user;
    if (p != s->base + s->at || n == 0 || s->n == sizeof s->ends / sizeof *s->ends) {
        if (err != NULL) *err = (ebro_error){EBRO_INTERNAL, "piece out of order"};
        return EBRO_INTERNAL;
    }
    s->at += n;
    s->ends[s->n++] = s->at;
    return EBRO_OK;
}

static void split_text(const char *text, size_t bytes, struct pieces *out) {
    ebro_error err = {0};
    *out = (struct pieces){.base = text};
    test_ok(eb_tokenizer_split(k3, text, bytes, take_piece, out, &err), &err);
    assert_int_equal(out->at, bytes);
}

/* `want` holds the pieces with '|' between them. */
static void check_split(const char *want) {
    char text[512] = {0};
    size_t n = 0, n_pieces = 0, ends[128];
    for (const char *p = want; *p != '\0'; p++) {
        if (*p == '|')
            ends[n_pieces++] = n;
        else
            text[n++] = *p;
    }
    ends[n_pieces++] = n;
    struct pieces got;
    split_text(text, n, &got);
    if (got.n != n_pieces) print_error("%zu pieces in %s\n", got.n, want);
    assert_int_equal(got.n, n_pieces);
    for (size_t i = 0; i < n_pieces; i++) assert_int_equal(got.ends[i], ends[i]);
}

static void known_pieces(void **state) {
    (void)state;
    check_split(
        "“Hello|,”| |世界世世世界世界|——|I'm| Chat|GPT|.| CAN'T| wait| '|til| |202|6|.|"
        "世界世界");
    check_split("}\n|///");
    /* Punctuation that Han shares with other scripts is not Han. */
    check_split("世界|。|世界|、「|々〇|」");
    /* U+180E was white space once. */
    check_split(" \xe1\xa0\x8e|a");
    check_split("a|\xc2\x85|\xe3\x80\x80|\xe4\xb8\xad");
    check_split("it'ſ| '|ſ");
    check_split("a| | b|  \n\n|  |\tc| \xe2\x80\xa8\r\n\r\n|d|  ");
}

static void invalid_bytes(void **state) {
    (void)state;
    check_split("ab|\xff|cd");
    check_split("a|\xe4\xb8|b|\xed\xa0\x80|c|\xc0\x80|d|\xf4\x90\x80\x80|e|\xf8\x88\x80\x80\x80");
    check_split("\x80\x80\x80| x|\xf0\x9f\x98");
    /* White space before an invalid byte is white space at an end: it keeps its last blank. */
    check_split("a|   |\xff|   ");
    struct pieces got;
    split_text("a\0b", 3, &got);
    assert_int_equal(got.n, 2);
    split_text(NULL, 0, &got);
    assert_int_equal(got.n, 0);
}

static int32_t refuse_second(void *user, const char *p, size_t n, ebro_error *err) {
    int *calls = user;
    (void)p;
    (void)n;
    if (++*calls < 2) return EBRO_OK;
    *err = (ebro_error){EBRO_CANCELLED, "enough"};
    return EBRO_CANCELLED;
}

static void callback_status(void **state) {
    (void)state;
    ebro_error err = {0};
    int calls = 0;
    test_fails(eb_tokenizer_split(k3, "a b c d", 7, refuse_second, &calls, &err), EBRO_CANCELLED,
               &err, "enough");
    assert_int_equal(calls, 2);
}

/* ---- an encoder that shares nothing with the library ------------------------------------ */

struct plain_token {
    unsigned char bytes[64];
    size_t n;
    int32_t rank;
};
static struct plain_token plain[TINY_RANKS];

static int compare_plain(const void *a, const void *b) {
    const struct plain_token *x = a, *y = b;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return memcmp(x->bytes, y->bytes, x->n);
}

static void load_plain(void) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *p = (const char *)tiny_vocab.data, *end = p + tiny_vocab.bytes;
    for (size_t i = 0; i < TINY_RANKS; i++) {
        unsigned acc = 0, bits = 0;
        struct plain_token *t = &plain[i];
        for (t->n = 0; p < end && *p != ' '; p++) {
            if (*p == '=') continue;
            acc = (acc << 6 | (unsigned)(strchr(digits, *p) - digits)) & 0xfff;
            bits += 6;
            if (bits < 8) continue;
            assert_true(t->n < sizeof t->bytes);
            t->bytes[t->n++] = (unsigned char)(acc >> (bits -= 8));
        }
        t->rank = atoi(p);
        p = (const char *)memchr(p, '\n', (size_t)(end - p)) + 1;
    }
    qsort(plain, TINY_RANKS, sizeof *plain, compare_plain);
}

static int32_t plain_rank(const unsigned char *p, size_t n) {
    struct plain_token key = {.n = n};
    if (n > sizeof key.bytes) return -1;
    memcpy(key.bytes, p, n);
    const struct plain_token *t = bsearch(&key, plain, TINY_RANKS, sizeof *plain, compare_plain);
    return t != NULL ? t->rank : -1;
}

/* Merges the pair of lowest rank, leftmost first, until none is left. */
static size_t plain_encode(const unsigned char *p, size_t n, int32_t *ids) {
    size_t start[2049], n_parts = n;
    assert_true(n <= 2048);
    if (plain_rank(p, n) >= 0) {
        ids[0] = plain_rank(p, n);
        return 1;
    }
    for (size_t i = 0; i <= n; i++) start[i] = i;
    for (;;) {
        int32_t best = -1;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n_parts; i++) {
            int32_t rank = plain_rank(p + start[i], start[i + 2] - start[i]);
            if (rank >= 0 && (best < 0 || rank < best)) {
                best = rank;
                at = i;
            }
        }
        if (best < 0) break;
        memmove(start + at + 1, start + at + 2, (n_parts - at - 1) * sizeof *start);
        n_parts--;
    }
    for (size_t i = 0; i < n_parts; i++) ids[i] = plain_rank(p + start[i], start[i + 1] - start[i]);
    return n_parts;
}

/* The published rules word for word, each class intersection as a lookahead; interpreted, and with
 * PCRE2's own handling of invalid UTF-8. */
#define X(c) "(?:(?!\\p{sc:Han})[" c "])"
#define UP X("\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}")
#define LOW X("\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}")
#define TAIL "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define S "(?:(?!\\x{180e})\\s)"
static const char plain_pattern[] =
    "[\\p{sc:Han}]+|[^\\r\\n\\p{L}\\p{N}]?" UP "*" LOW "+" TAIL "|[^\\r\\n\\p{L}\\p{N}]?" UP "+" LOW
    "*" TAIL "|\\p{N}{1,3}| ?(?:(?!" S ")[^\\p{L}\\p{N}])+[\\r\\n]*|" S "*[\\r\\n]+|" S
    "+(?!\\S|\\x{180e})|" S "+";

struct plain_splitter {
    pcre2_code *code;
    pcre2_match_data *data;
};

static struct plain_splitter plain_open(void) {
    int code = 0;
    PCRE2_SIZE at = 0;
    struct plain_splitter s;
    s.code = pcre2_compile((PCRE2_SPTR)plain_pattern, sizeof plain_pattern - 1,
                           PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &code, &at, NULL);
    assert_non_null(s.code);
    s.data = pcre2_match_data_create(1, NULL);
    assert_non_null(s.data);
    return s;
}

static void plain_close(struct plain_splitter *s) {
    pcre2_match_data_free(s->data);
    pcre2_code_free(s->code);
}

/* Bytes that no match covers lie between pieces and form one themselves. */
static size_t plain_split(const struct plain_splitter *s, const char *text, size_t n,
                          size_t *ends) {
    size_t at = 0, n_pieces = 0;
    while (at < n) {
        int rc = pcre2_match(s->code, (PCRE2_SPTR)text, n, at, 0, s->data, NULL);
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(s->data);
        assert_true(rc > 0 || rc == PCRE2_ERROR_NOMATCH);
        if (rc < 0 || found[0] > at) ends[n_pieces++] = at = rc < 0 ? n : found[0];
        if (rc > 0) ends[n_pieces++] = at = found[1];
    }
    return n_pieces;
}

/* ---- random text ------------------------------------------------------------------------ */

static size_t put_utf8(char *out, uint32_t c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
    return n;
}

/* A mixture that reaches every rule: short runs of one kind, with invalid bytes among them. */
static size_t random_text(struct test_rng *r, char *out, size_t room) {
    static const char *const bits[] = {
        "'s",       "'LL",    " ",   "\n",  "\r\n", "\t",     "中文",   "。",       "々",
        "the",      "The",    "THE", "ǅ",   "ʰ",    "\u0301", "é",      "É",        "ſ",
        "123",      "٣",      "½",   "!",   "——",   "😀",      "\u00a0", "\u2028",   "\u180e",
        "<|open|>", "\u3000", "ª",   "สวัส", "한글", "かな",   "_",      "\xc2\x85", "ⅷ"};
    size_t n = 0, want = test_u64(r) % (room - 64);
    while (n < want) {
        uint64_t kind = test_u64(r) % 12, times = 1 + test_u64(r) % 4;
        const char *bit = bits[test_u64(r) % (sizeof bits / sizeof *bits)];
        uint32_t c = (uint32_t)(test_u64(r) % 0x110000);
        if (c >= 0xd800 && c < 0xe000) c = 'x';
        for (; times > 0 && n < want; times--) {
            if (kind == 0) {
                out[n++] = (char)test_u64(r);
            } else if (kind == 1) {
                n += put_utf8(out + n, c);
            } else {
                memcpy(out + n, bit, strlen(bit));
                n += strlen(bit);
            }
        }
    }
    return n;
}

static void check_decodes(const struct eb_tokenizer *t, const struct eb_ids *ids, const char *text,
                          size_t n) {
    size_t at = 0;
    for (size_t i = 0; i < ids->n; i++) {
        size_t bytes = 0;
        const char *p = eb_token_bytes(t, ids->v[i], &bytes, NULL);
        assert_non_null(p);
        assert_true(bytes > 0 && bytes <= n - at);
        assert_memory_equal(p, text + at, bytes);
        at += bytes;
    }
    assert_int_equal(at, n);
}

static void random_texts(void **state) {
    (void)state;
    struct test_rng r = {0x70cb2301u};
    struct plain_splitter splitter = plain_open();
    ebro_error err = {0};
    static char text[1024];
    static size_t ends[1024];
    static int32_t want[1024];
    load_plain();
    print_message("seed %llu\n", (unsigned long long)r.s);
    for (int round = 0; round < 3000; round++) {
        size_t n = random_text(&r, text, sizeof text), n_want = 0, from = 0;
        struct pieces got;
        split_text(text, n, &got);
        size_t n_pieces = plain_split(&splitter, text, n, ends);
        assert_int_equal(got.n, n_pieces);
        for (size_t i = 0; i < n_pieces; i++) {
            assert_int_equal(got.ends[i], ends[i]);
            n_want += plain_encode((unsigned char *)text + from, ends[i] - from, want + n_want);
            from = ends[i];
        }
        struct eb_ids ids = {0};
        test_ok(eb_tokenizer_encode(k3, text, n, false, &ids, &err), &err);
        assert_int_equal(ids.n, n_want);
        if (n_want > 0) assert_memory_equal(ids.v, want, n_want * sizeof *want);
        check_decodes(k3, &ids, text, n);
        ids.n = 0;
        test_ok(eb_tokenizer_encode(k3, text, n, true, &ids, &err), &err);
        check_decodes(k3, &ids, text, n);
        eb_ids_free(NULL, &ids);
    }
    plain_close(&splitter);
}

/* Random letters, so that merges compete; long enough for the order of the heap to matter. */
static void random_merges(void **state) {
    (void)state;
    struct test_rng r = {0x5eed4u};
    ebro_error err = {0};
    unsigned char piece[2048];
    int32_t want[2048];
    load_plain();
    print_message("seed %llu\n", (unsigned long long)r.s);
    for (int round = 0; round < 60; round++) {
        static const char letters[] = "etaoinshr";
        size_t n = 2 + test_u64(&r) % 500, n_letters = 1 + test_u64(&r) % 9;
        for (size_t i = 0; i < n; i++) piece[i] = (unsigned char)letters[test_u64(&r) % n_letters];
        size_t n_want = plain_encode(piece, n, want);
        struct eb_ids ids = {0};
        test_ok(eb_tokenizer_encode(k3, (const char *)piece, n, false, &ids, &err), &err);
        assert_int_equal(ids.n, n_want);
        assert_memory_equal(ids.v, want, n_want * sizeof *want);
        eb_ids_free(NULL, &ids);
    }
}

/* Anything quadratic in a run or in the number of pieces takes hours here. */
static void megabyte_runs(void **state) {
    (void)state;
    static const char *const units[] = {"a",
                                        "A",
                                        " ",
                                        "\n",
                                        " \n",
                                        "好",
                                        "!",
                                        "1",
                                        "\x80",
                                        " a",
                                        "ab\xff",
                                        "\u0301",
                                        "ส",
                                        "Aª",
                                        "<",
                                        "<|reserved_token_",
                                        "é'S the end.\r\n"};
    ebro_error err = {0};
    char *text = malloc(MEGABYTE);
    assert_non_null(text);
    for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
        size_t n = 0, unit = strlen(units[k]);
        for (; n + unit <= MEGABYTE; n += unit) memcpy(text + n, units[k], unit);
        struct eb_ids ids = {0};
        test_ok(eb_tokenizer_encode(k3, text, n, true, &ids, &err), &err);
        check_decodes(k3, &ids, text, n);
        eb_ids_free(NULL, &ids);
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_ids),    cmocka_unit_test(known_pieces),
        cmocka_unit_test(invalid_bytes), cmocka_unit_test(callback_status),
        cmocka_unit_test(random_texts),  cmocka_unit_test(random_merges),
        cmocka_unit_test(megabyte_runs),
    };
    return cmocka_run_group_tests(tests, tiny_open, tiny_close);
}
