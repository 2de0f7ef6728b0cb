/* base.c: runtime/base: error texts, memory that runs out, sizes that overflow, files that are not
 * there, libraries that are none. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/dynlib.h"
#include "base/file.h"
#include "base/log.h"
#include "tests/harness/test.h"

/* ---- status ----------------------------------------------------------------------------- */

static void fail_writes_status_and_text(void **state) {
    (void)state;
    ebro_error err = {0};
    assert_int_equal(eb_fail(&err, EBRO_FORMAT, "%s: no key \"%s\"", "a.json", "hidden"),
                     EBRO_FORMAT);
    assert_int_equal(err.status, EBRO_FORMAT);
    assert_string_equal(err.text, "a.json: no key \"hidden\"");
    assert_int_equal(eb_while(&err, EBRO_IO, "loading %s", "m"), EBRO_FORMAT);
    assert_int_equal(eb_while(&err, EBRO_IO, "opening the model"), EBRO_FORMAT);
    assert_string_equal(err.text,
                        "a.json: no key \"hidden\"; while loading m; while opening the model");
    /* A later failure replaces all of an earlier one. */
    assert_int_equal(eb_fail(&err, EBRO_IO, "gone"), EBRO_IO);
    assert_string_equal(err.text, "gone");
}

static void errors_accept_null(void **state) {
    (void)state;
    assert_int_equal(eb_fail(NULL, EBRO_IO, "%s", "x"), EBRO_IO);
    assert_int_equal(eb_while(NULL, EBRO_TIMEOUT, "%s", "x"), EBRO_TIMEOUT);
}

static void while_without_a_failure_keeps_the_status(void **state) {
    (void)state;
    ebro_error err = {0};
    assert_int_equal(eb_while(&err, EBRO_IO, "reading"), EBRO_IO);
    assert_int_equal(err.status, EBRO_IO);
}

static void long_texts_are_cut_and_terminated(void **state) {
    (void)state;
    struct {
        ebro_error err;
        unsigned char guard[64];
    } box;
    memset(&box, 0x5a, sizeof box);
    char longer[4096];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    eb_fail(&box.err, EBRO_IO, "%s", longer);
    assert_int_equal(strlen(box.err.text), sizeof box.err.text - 1);
    for (int i = 0; i < 3; i++) eb_while(&box.err, EBRO_IO, "%s", longer);
    assert_int_equal(strlen(box.err.text), sizeof box.err.text - 1);
    eb_fail(&box.err, EBRO_IO, "short");
    for (int i = 0; i < 300; i++) eb_while(&box.err, EBRO_IO, "again");
    assert_true(strlen(box.err.text) < sizeof box.err.text);
    for (size_t i = 0; i < sizeof box.guard; i++) assert_int_equal(box.guard[i], 0x5a);
}

/* Wherever a text is cut, it stays UTF-8. */
static void cut_texts_stay_utf8(void **state) {
    (void)state;
    static const char *const characters[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t c = 0; c < 3; c++) {
        size_t width = strlen(characters[c]);
        for (size_t shift = 0; shift < 4; shift++) {
            char text[2048] = "abcd";
            size_t n = shift;
            while (n + width < sizeof text) {
                memcpy(text + n, characters[c], width);
                n += width;
            }
            text[n] = '\0';
            ebro_error err;
            eb_fail(&err, EBRO_IO, "%s", text);
            size_t kept = strlen(err.text);
            assert_int_equal((kept - shift) % width, 0);
            assert_true(kept + width > sizeof err.text - 1);
            assert_memory_equal(err.text, text, kept);
        }
    }
}

static void an_error_can_quote_itself(void **state) {
    (void)state;
    ebro_error err;
    eb_fail(&err, EBRO_IO, "cause");
    eb_fail(&err, EBRO_FORMAT, "outer: %s", err.text);
    assert_string_equal(err.text, "outer: cause");
    eb_while(&err, EBRO_FORMAT, "quoting \"%s\"", err.text);
    assert_string_equal(err.text, "outer: cause; while quoting \"outer: cause\"");
}

static void every_status_has_a_name(void **state) {
    (void)state;
    for (int32_t a = EBRO_OK; a <= EBRO_INTERNAL; a++) {
        assert_string_not_equal(ebro_status_name(a), "UNKNOWN");
        for (int32_t b = EBRO_OK; b < a; b++) {
            assert_string_not_equal(ebro_status_name(a), ebro_status_name(b));
        }
    }
    assert_string_equal(ebro_status_name(EBRO_FORMAT), "FORMAT");
    assert_string_equal(ebro_status_name(-1), "UNKNOWN");
    assert_string_equal(ebro_status_name(EBRO_INTERNAL + 1), "UNKNOWN");
    assert_int_equal(strncmp(ebro_version(), "0.", 2), 0);
    assert_non_null(strchr(ebro_version(), '('));
}

/* ---- alloc ------------------------------------------------------------------------------ */

/* Counts what it lends and refuses from a given call on. */
struct counter {
    long live, calls, fail_at; /* fail_at -1: never */
};

static void *counting_realloc(void *user, void *p, size_t n) {
    struct counter *c = user;
    if (n == 0) {
        c->live--;
        free(p);
        return NULL;
    }
    if (c->calls++ == c->fail_at) return NULL;
    void *q = realloc(p, n);
    if (q != NULL && p == NULL) {
        c->live++;
        /* Fresh memory of a hook is not zero. */
        memset(q, 0xdb, n);
    }
    return q;
}

static void sums_and_products_see_overflow(void **state) {
    (void)state;
    uint64_t out = 7;
    assert_true(eb_mul_u64(0, UINT64_MAX, &out));
    assert_int_equal(out, 0);
    assert_true(eb_mul_u64(UINT64_MAX, 1, &out));
    assert_true(out == UINT64_MAX);
    assert_true(eb_mul_u64(UINT32_MAX, UINT32_MAX, &out));
    assert_true(out == UINT64_C(0xfffffffe00000001));
    out = 7;
    assert_false(eb_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
    assert_false(eb_mul_u64(UINT64_MAX, 2, &out));
    assert_false(eb_mul_u64(3, UINT64_MAX / 3 + 1, &out));
    assert_false(eb_add_u64(UINT64_MAX, 1, &out));
    assert_false(eb_add_u64(1, UINT64_MAX, &out));
    assert_int_equal(out, 7);
    assert_true(eb_add_u64(UINT64_MAX, 0, &out));
    assert_true(out == UINT64_MAX);
}

/* Once with the C library's allocator and once with a hook. */
static void memory_is_zeroed_grown_and_freed(void **state) {
    (void)state;
    struct counter c = {.fail_at = -1};
    struct eb_alloc hook = {.user = &c, .realloc = counting_realloc};
    struct eb_alloc plain = {0};
    const struct eb_alloc *const all[] = {NULL, &plain, &hook};
    for (size_t k = 0; k < 3; k++) {
        const struct eb_alloc *a = all[k];
        ebro_error err = {0};
        unsigned char *p = eb_calloc(a, 3, 100, &err);
        assert_non_null(p);
        for (int i = 0; i < 300; i++) assert_int_equal(p[i], 0);
        void *q = p;
        p[299] = 9;
        test_ok(eb_realloc(a, &q, 1000, 1, &err), &err);
        assert_int_equal(((unsigned char *)q)[299], 9);
        test_ok(eb_realloc(a, &q, 0, 1, &err), &err);
        assert_non_null(q);
        eb_free(a, q);
        void *none = eb_calloc(a, 0, 8, &err);
        assert_non_null(none);
        eb_free(a, none);
        eb_free(a, NULL);
        char *s = eb_strndup(a, "abcdef", 3, &err);
        assert_string_equal(s, "abc");
        eb_free(a, s);
        s = eb_strndup(a, "", 0, &err);
        assert_string_equal(s, "");
        eb_free(a, s);
    }
    assert_int_equal(c.live, 0);
}

static void arrays_grow_by_doubling(void **state) {
    (void)state;
    struct counter c = {.fail_at = -1};
    struct eb_alloc a = {.user = &c, .realloc = counting_realloc};
    int *items = NULL;
    size_t capacity = 0;
    ebro_error err = {0};
    for (int i = 0; i < 100000; i++) {
        test_ok(eb_grow(&a, (void **)&items, &capacity, (size_t)i + 1, sizeof *items, &err), &err);
        items[i] = i;
    }
    for (int i = 0; i < 100000; i++) assert_int_equal(items[i], i);
    assert_true(c.calls <= 20);
    test_fails(eb_grow(&a, (void **)&items, &capacity, SIZE_MAX, sizeof *items, &err),
               EBRO_NOMEM_HOST, &err, "18446744073709551615");
    assert_true(capacity >= 100000 && capacity < SIZE_MAX);
    assert_int_equal(items[99999], 99999);
    eb_free(&a, items);
    assert_int_equal(c.live, 0);
}

static void running_out_loses_nothing(void **state) {
    (void)state;
    struct counter c = {.fail_at = 0};
    struct eb_alloc a = {.user = &c, .realloc = counting_realloc};
    ebro_error err = {0};
    assert_null(eb_calloc(&a, 12345, 1, &err));
    test_fails(err.status, EBRO_NOMEM_HOST, &err, "12345");
    c.fail_at = -1;
    size_t capacity = 16;
    void *p = eb_calloc(&a, 16, 1, &err);
    memcpy(p, "still here", 11);
    void *before = p;
    c.fail_at = c.calls;
    test_fails(eb_realloc(&a, &p, 54321, 1, &err), EBRO_NOMEM_HOST, &err, "54321");
    c.fail_at = c.calls;
    test_fails(eb_grow(&a, &p, &capacity, 17, 1, &err), EBRO_NOMEM_HOST, &err, "memory");
    assert_ptr_equal(p, before);
    assert_int_equal(capacity, 16);
    assert_string_equal(p, "still here");
    c.fail_at = c.calls;
    assert_null(eb_strndup(&a, "abc", 3, &err));
    c.fail_at = c.calls;
    assert_null(eb_path_join(&a, "a", "b", &err));
    eb_free(&a, p);
    assert_int_equal(c.live, 0);
}

static void impossible_sizes_are_refused_unasked(void **state) {
    (void)state;
    struct counter c = {.fail_at = -1};
    struct eb_alloc a = {.user = &c, .realloc = counting_realloc};
    ebro_error err = {0};
    assert_null(eb_calloc(&a, SIZE_MAX / 2, 3, &err));
    test_fails(err.status, EBRO_NOMEM_HOST, &err, "of 3 bytes");
    assert_null(eb_calloc(&a, (size_t)1 << 63, 1, &err));
    assert_null(eb_strndup(&a, "x", SIZE_MAX, &err));
    void *p = NULL;
    test_fails(eb_realloc(&a, &p, SIZE_MAX, SIZE_MAX, &err), EBRO_NOMEM_HOST, &err, "memory");
    assert_null(p);
    assert_int_equal(c.calls, 0);
}

/* ---- log -------------------------------------------------------------------------------- */

struct heard {
    int lines;
    int32_t level;
    char text[4096];
};

static void hear(void *user, int32_t level, const char *text) {
    struct heard *h = user;
    h->lines++;
    h->level = level;
    snprintf(h->text, sizeof h->text, "%s", text);
}

static void log_keeps_to_its_level(void **state) {
    (void)state;
    struct heard h = {0};
    struct eb_log log = {.sink = hear, .user = &h, .level = EBRO_LOG_WARN};
    eb_log(&log, EBRO_LOG_INFO, "no");
    assert_int_equal(h.lines, 0);
    eb_log(&log, EBRO_LOG_WARN, "%d rows", 7);
    eb_log(&log, EBRO_LOG_ERROR, "%s", "last");
    assert_int_equal(h.lines, 2);
    assert_int_equal(h.level, EBRO_LOG_ERROR);
    assert_string_equal(h.text, "last");
    char longer[5000];
    memset(longer, 'y', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    eb_log(&log, EBRO_LOG_ERROR, "%s", longer);
    assert_in_range(strlen(h.text), 1000, sizeof longer - 1);
    eb_log(NULL, EBRO_LOG_ERROR, "nobody hears");
    log.sink = NULL;
    eb_log(&log, EBRO_LOG_ERROR, "nobody hears");
    assert_int_equal(h.lines, 3);
}

/* ---- files ------------------------------------------------------------------------------ */

static void path_of(char *out, size_t n, const char *dir, const char *name) {
    snprintf(out, n, "%s/%s", dir, name);
}

static void files_map_whole(void **state) {
    (void)state;
    char *dir = test_tmp_dir();
    char path[512];
    /* Around a page, where a mapping's end is easily got wrong. */
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 100000};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        unsigned char *data = malloc(sizes[k] + 1);
        for (size_t i = 0; i < sizes[k]; i++) data[i] = (unsigned char)(i * 31 + k);
        test_write_file(dir, "f", data, sizes[k]);
        path_of(path, sizeof path, dir, "f");
        struct eb_bytes b;
        ebro_error err = {0};
        test_ok(eb_file_map(path, &b, &err), &err);
        assert_non_null(b.data);
        assert_int_equal(b.bytes, sizes[k]);
        assert_memory_equal(b.data, data, sizes[k]);
        eb_bytes_close(&b);
        assert_null(b.data);
        assert_null(b.map);
        eb_bytes_close(&b);
        free(data);
    }
    test_tmp_remove(&dir);
}

static void file_errors_say_which_and_why(void **state) {
    (void)state;
    char *dir = test_tmp_dir();
    char path[512];
    struct eb_bytes b;
    ebro_error err = {0};
    path_of(path, sizeof path, dir, "absent");
    test_fails(eb_file_map(path, &b, &err), EBRO_IO, &err, path);
    test_fails(err.status, EBRO_IO, &err, strerror(ENOENT));
    assert_null(b.data);
    test_fails(eb_file_map(dir, &b, &err), EBRO_INVALID, &err, "folder");
    /* A pipe without a writer must not hang. */
    path_of(path, sizeof path, dir, "pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    test_fails(eb_file_map(path, &b, &err), EBRO_INVALID, &err, "regular");
    path_of(path, sizeof path, dir, "locked");
    test_write_file(dir, "locked", "x", 1);
    assert_int_equal(chmod(path, 0), 0);
    if (geteuid() != 0) { /* root may read everything */
        test_fails(eb_file_map(path, &b, &err), EBRO_IO, &err, strerror(EACCES));
    }
    path_of(path, sizeof path, dir, "locked/inside");
    test_fails(eb_file_map(path, &b, &err), EBRO_IO, &err, strerror(ENOTDIR));
    test_tmp_remove(&dir);
}

static void bytes_can_be_borrowed(void **state) {
    (void)state;
    struct eb_bytes b;
    eb_bytes_borrow("abc", 3, &b);
    assert_int_equal(b.bytes, 3);
    assert_memory_equal(b.data, "abc", 3);
    eb_bytes_close(&b);
    assert_int_equal(b.bytes, 0);
    eb_bytes_borrow(NULL, 0, &b);
    assert_non_null(b.data);
}

static void paths_join_with_one_slash(void **state) {
    (void)state;
    static const char *const cases[][3] = {{"/a", "b", "/a/b"},
                                           {"/a/", "b", "/a/b"},
                                           {"/", "b", "/b"},
                                           {"", "b", "b"},
                                           {".", "b", "./b"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ebro_error err = {0};
        char *path = eb_path_join(NULL, cases[i][0], cases[i][1], &err);
        assert_string_equal(path, cases[i][2]);
        eb_free(NULL, path);
    }
}

static void paths_are_told_apart(void **state) {
    (void)state;
    char *dir = test_tmp_dir();
    char path[512];
    test_write_file(dir, "f", "x", 1);
    path_of(path, sizeof path, dir, "f");
    assert_true(eb_path_exists(path));
    assert_false(eb_path_is_dir(path));
    assert_true(eb_path_exists(dir));
    assert_true(eb_path_is_dir(dir));
    path_of(path, sizeof path, dir, "g");
    assert_false(eb_path_exists(path));
    assert_false(eb_path_is_dir(path));
    test_tmp_remove(&dir);
}

/* ---- libraries -------------------------------------------------------------------------- */

static void libraries_open_by_absolute_path_only(void **state) {
    (void)state;
    char *dir = test_tmp_dir();
    char path[512];
    struct eb_dynlib *lib;
    ebro_error err = {0};
    /* This one is on every search path, which is the point. */
    test_fails(eb_dynlib_open(NULL, "libc.so.6", &lib, &err), EBRO_INVALID, &err, "absolute");
    test_fails(eb_dynlib_open(NULL, "./libc.so.6", &lib, &err), EBRO_INVALID, &err, "absolute");
    test_fails(eb_dynlib_open(NULL, "", &lib, &err), EBRO_INVALID, &err, "absolute");
    assert_null(lib);
    path_of(path, sizeof path, dir, "absent.so");
    test_fails(eb_dynlib_open(NULL, path, &lib, &err), EBRO_IO, &err, "absent.so");
    test_write_file(dir, "text.so", "not a library\n", 14);
    path_of(path, sizeof path, dir, "text.so");
    test_fails(eb_dynlib_open(NULL, path, &lib, &err), EBRO_UNSUPPORTED, &err, "text.so");
    assert_null(lib);
    eb_dynlib_close(NULL, &lib);
    eb_dynlib_close(NULL, NULL);
    test_tmp_remove(&dir);
}

static void libraries_give_their_symbols(void **state) {
    (void)state;
    char path[4096];
    struct eb_dynlib *lib;
    ebro_error err = {0};
    path_of(path, sizeof path, test_module_dir(), "ebro_null.so");
    test_ok(eb_dynlib_open(NULL, path, &lib, &err), &err);
    assert_non_null(eb_dynlib_symbol(lib, "ebro_backend_entry"));
    assert_null(eb_dynlib_symbol(lib, "ebro_no_such_thing"));
    /* A symbol of a library leads back to the library's folder. */
    char *folder = eb_dynlib_own_folder(NULL, eb_dynlib_symbol(lib, "ebro_backend_entry"), &err);
    struct stat got, want;
    assert_int_equal(stat(folder, &got), 0);
    assert_int_equal(stat(test_module_dir(), &want), 0);
    assert_true(got.st_dev == want.st_dev && got.st_ino == want.st_ino);
    eb_free(NULL, folder);
    eb_dynlib_close(NULL, &lib);
    assert_null(lib);
}

/* The program's own folder does not depend on where it was started from. */
static void own_folder_ignores_the_working_directory(void **state) {
    (void)state;
    static const char here[] = "in this program";
    char program[4096], old[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(n > 0);
    program[n] = '\0';
    *strrchr(program, '/') = '\0';
    assert_non_null(getcwd(old, sizeof old));
    char *dir = test_tmp_dir();
    assert_int_equal(chdir(dir), 0);
    ebro_error err = {0};
    char *folder = eb_dynlib_own_folder(NULL, here, &err);
    assert_int_equal(chdir(old), 0);
    assert_non_null(folder);
    assert_string_equal(folder, program);
    eb_free(NULL, folder);
    int on_stack = 0;
    assert_null(eb_dynlib_own_folder(NULL, &on_stack, &err));
    test_fails(err.status, EBRO_IO, &err, "folder");
    test_tmp_remove(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_writes_status_and_text),
        cmocka_unit_test(errors_accept_null),
        cmocka_unit_test(while_without_a_failure_keeps_the_status),
        cmocka_unit_test(long_texts_are_cut_and_terminated),
        cmocka_unit_test(cut_texts_stay_utf8),
        cmocka_unit_test(an_error_can_quote_itself),
        cmocka_unit_test(every_status_has_a_name),
        cmocka_unit_test(sums_and_products_see_overflow),
        cmocka_unit_test(memory_is_zeroed_grown_and_freed),
        cmocka_unit_test(arrays_grow_by_doubling),
        cmocka_unit_test(running_out_loses_nothing),
        cmocka_unit_test(impossible_sizes_are_refused_unasked),
        cmocka_unit_test(log_keeps_to_its_level),
        cmocka_unit_test(files_map_whole),
        cmocka_unit_test(file_errors_say_which_and_why),
        cmocka_unit_test(bytes_can_be_borrowed),
        cmocka_unit_test(paths_join_with_one_slash),
        cmocka_unit_test(paths_are_told_apart),
        cmocka_unit_test(libraries_open_by_absolute_path_only),
        cmocka_unit_test(libraries_give_their_symbols),
        cmocka_unit_test(own_folder_ignores_the_working_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
