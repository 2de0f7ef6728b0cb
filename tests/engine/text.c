/* text.c: ebro_text_stream against a reading of the whole text at once, for every way to cut it. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

static ebro_runtime *rt;

static int set_up(void **state) {
    ebro_error err;
    (void)state;
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&ro, &rt, &err), &err);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    ebro_runtime_close(&rt);
    return 0;
}

/* Length of the text before the stop string that is complete first (the longest of several),
 * found by comparing at every place; n when there is none. */
static size_t whole_answer(const char *text, size_t n, const char *const *stops, size_t n_stops,
                           bool *stopped) {
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < n_stops; i++) {
            size_t k = strlen(stops[i]);
            bool here = k <= end && memcmp(text + end - k, stops[i], k) == 0;
            if (here && k > longest) longest = k;
        }
        if (longest > 0) {
            *stopped = true;
            return end - longest;
        }
    }
    *stopped = false;
    return n;
}

/* True where [text, text + n) ends inside a well-formed character. */
static bool ends_inside(const char *text, size_t n) {
    const unsigned char *p = (const unsigned char *)text + n;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char b = p[-(ptrdiff_t)back];
        if ((b & 0xc0) == 0x80) continue;
        size_t need = b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : b >= 0xc0 ? 2 : 1;
        return need > back;
    }
    return false;
}

struct answer {
    char *text;
    size_t n;
    bool stopped;
};

/* Pushes the bytes in pieces that end where bit i of cuts[i / 64] says; `valid`: the text is valid
 * UTF-8, so that every piece must be. */
static struct answer stream(const char *text, size_t n, const char *const *stops, size_t n_stops,
                            const uint64_t *cuts, bool valid) {
    ebro_error err;
    ebro_text_stream *s = NULL;
    const char *out = NULL;
    size_t out_bytes = 0, begin = 0;
    int32_t stopped = 0;
    bool was_stopped = false;
    struct answer a = {.text = malloc(n + 1)};
    test_ok(ebro_text_stream_create(rt, stops, n_stops, &s, &err), &err);
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && (cuts[i / 64] >> (i % 64) & 1) == 0) continue;
        test_ok(
            ebro_text_stream_push(s, text + begin, i + 1 - begin, &out, &out_bytes, &stopped, &err),
            &err);
        begin = i + 1;
        if (was_stopped) assert_true(stopped && out_bytes == 0);
        was_stopped = stopped != 0;
        assert_true(a.n + out_bytes <= n);
        memcpy(a.text + a.n, out, out_bytes);
        a.n += out_bytes;
        if (valid) assert_false(ends_inside(a.text, a.n));
        /* Nothing that is shown may have to be taken back. */
        assert_memory_equal(a.text, text, a.n);
    }
    test_ok(ebro_text_stream_finish(s, &out, &out_bytes, &err), &err);
    assert_true(a.n + out_bytes <= n);
    memcpy(a.text + a.n, out, out_bytes);
    a.n += out_bytes;
    a.stopped = was_stopped;
    test_ok(ebro_text_stream_finish(s, &out, &out_bytes, &err), &err);
    assert_int_equal(out_bytes, 0);
    ebro_text_stream_destroy(&s);
    assert_null(s);
    return a;
}

static void expect_whole(const char *text, size_t n, const char *const *stops, size_t n_stops,
                         const uint64_t *cuts, bool valid) {
    bool stopped;
    size_t want = whole_answer(text, n, stops, n_stops, &stopped);
    struct answer a = stream(text, n, stops, n_stops, cuts, valid);
    assert_int_equal(a.stopped, stopped);
    assert_int_equal(a.n, want);
    assert_memory_equal(a.text, text, want);
    free(a.text);
}

static void every_cut(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *stops[3];
        size_t n_stops;
    } cases[] = {
        {"alpha beta gamma", {"beta gamma"}, 1},
        {"a beta beta gamma", {"beta gamma"}, 1},
        {"aaaaab aab", {"aab"}, 1},
        {"ababac", {"abac"}, 1},
        {"abcabcabd", {"abcabd"}, 1},
        {"xx</s", {"</s>"}, 1},
        {"one\n\ntwo", {"\n\n"}, 1},
        {"\xf0\x9f\x98\x80 ok \xf0\x9f\x98\x81", {"\xf0\x9f\x98\x81"}, 1},
        {"\xc3\xa9t\xc3\xa9 END \xe2\x82\xac", {"END"}, 1},
        {"\xe2\x82\xac\xe2\x82\xad.", {"\xe2\x82\xad"}, 1},
        {"say abcd now", {"bc", "abcd", "cd"}, 3},
        {"say abcd now", {"d now", "abcd"}, 2},
        {"stop", {"stop"}, 1},
        {"\xf0\x9f\x98\x80\xc3\xa9", {NULL}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t n = strlen(cases[i].text);
        for (uint64_t cuts = 0; cuts < (uint64_t)1 << (n - 1); cuts++) {
            expect_whole(cases[i].text, n, cases[i].stops, cases[i].n_stops, &cuts, true);
        }
    }
}

/* Few letters, so that stop strings overlap themselves and one another all the time. */
static void random_texts(void **state) {
    (void)state;
    struct test_rng r = {test_seed()};
    static const char letters[] = {'a', 'b', '\xc3', '\xa9', '\xf0', '\xe2', '\0'};
    for (int round = 0; round < 20000; round++) {
        char text[100], stop_text[3][6];
        const char *stops[3];
        uint64_t cuts[2] = {test_u64(&r) & test_u64(&r), test_u64(&r) | test_u64(&r)};
        size_t n = 1 + test_u64(&r) % sizeof text, n_stops = test_u64(&r) % 4;
        size_t kinds = 2 + test_u64(&r) % (sizeof letters - 1);
        for (size_t i = 0; i < n; i++) text[i] = letters[test_u64(&r) % kinds];
        for (size_t i = 0; i < n_stops; i++) {
            size_t k = 1 + test_u64(&r) % 5;
            for (size_t j = 0; j < k; j++) {
                stop_text[i][j] = letters[test_u64(&r) % (kinds < 6 ? kinds : 6)];
            }
            stop_text[i][k] = '\0';
            stops[i] = stop_text[i];
        }
        expect_whole(text, n, stops, n_stops, cuts, false);
    }
}

static struct answer push_pieces(const char *const *pieces, const char *stop) {
    ebro_error err;
    ebro_text_stream *s = NULL;
    const char *out = NULL;
    size_t n = 0;
    int32_t stopped = 0;
    struct answer a = {.text = calloc(1, 100)};
    test_ok(ebro_text_stream_create(rt, &stop, stop != NULL, &s, &err), &err);
    for (; *pieces != NULL; pieces++) {
        test_ok(ebro_text_stream_push(s, *pieces, strlen(*pieces), &out, &n, &stopped, &err), &err);
        memcpy(a.text + a.n, out, n);
        a.n += n;
        a.text[a.n++] = '|';
    }
    test_ok(ebro_text_stream_finish(s, &out, &n, &err), &err);
    memcpy(a.text + a.n, out, n);
    a.stopped = stopped != 0;
    ebro_text_stream_destroy(&s);
    return a;
}

/* What is shown is shown as early as it can be. */
static void shows_early(void **state) {
    (void)state;
    static const struct {
        const char *pieces[6], *stop, *want;
        bool stopped;
    } cases[] = {
        {{"\xf0", "\x9f", "\x98\x80", "x"}, NULL, "||\xf0\x9f\x98\x80|x|", false},
        {{"ab\xf0", "\x9f"}, NULL, "ab||\xf0\x9f", false},
        {{"\xf0\x9f", "a"},
         NULL,
         "|\xf0\x9f"
         "a|",
         false},
        {{"x be", "ta g", "amma", "y"},
         "beta gamma",
         "x |||"
         "|",
         true},
        {{"x be", "ta g", "x", "y"}, "beta gamma", "x ||beta gx|y|", false},
        {{"beta", " gam"}, "beta gamma", "||beta gam", false},
        {{"aa", "a", "ab"}, "aab", "|a|a|", true},
        {{"\xe2\x82", "\xac<", "/s>"}, "</s>", "|\xe2\x82\xac||", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct answer a = push_pieces(cases[i].pieces, cases[i].stop);
        assert_string_equal(a.text, cases[i].want);
        assert_int_equal(a.stopped, cases[i].stopped);
        free(a.text);
    }
}

static void bad_calls(void **state) {
    (void)state;
    ebro_error err;
    ebro_text_stream *s = NULL;
    const char *stops[2] = {"a", ""}, *text = NULL;
    size_t n = 0;
    int32_t stopped = 0;
    test_fails(ebro_text_stream_create(rt, stops, 2, &s, &err), EBRO_INVALID, &err,
               "stops[1] is empty");
    stops[1] = NULL;
    test_fails(ebro_text_stream_create(rt, stops, 2, &s, &err), EBRO_INVALID, &err,
               "stops[1] is NULL");
    test_fails(ebro_text_stream_create(rt, NULL, 2, &s, &err), EBRO_INVALID, &err, "stops");
    test_fails(ebro_text_stream_create(NULL, stops, 1, &s, &err), EBRO_INVALID, &err, "runtime");
    assert_null(s);
    test_fails(ebro_text_stream_push(NULL, "x", 1, &text, &n, &stopped, &err), EBRO_INVALID, &err,
               "stream");
    test_ok(ebro_text_stream_create(rt, stops, 1, &s, &err), &err);
    test_fails(ebro_text_stream_push(s, NULL, 1, &text, &n, &stopped, &err), EBRO_INVALID, &err,
               "bytes");
    test_ok(ebro_text_stream_push(s, NULL, 0, &text, &n, &stopped, &err), &err);
    test_ok(ebro_text_stream_push(s, "xa", 2, &text, &n, &stopped, &err), &err);
    assert_true(stopped == 1 && n == 1 && text[0] == 'x');
    ebro_text_stream_destroy(&s);
    ebro_text_stream_destroy(&s);
    ebro_text_stream_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut),
        cmocka_unit_test(random_texts),
        cmocka_unit_test(shows_early),
        cmocka_unit_test(bad_calls),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
