/* guard.c: who may ask the server: hosts, origins, types and keys, right and wrong. */
#include "tools/serve/guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

static const char *const keys[] = {"sk-one", "a-second-key"};
static const char *const names[] = {"box.example"};
static const struct eb_guard local = {.bound = "127.0.0.1"};
static const struct eb_guard named = {
    .bound = "192.168.7.5", .names = names, .n_names = 1, .keys = keys, .n_keys = 2};
static const struct eb_guard open_to_all = {.bound = "0.0.0.0", .everywhere = true};

static int source(const struct eb_guard *g, const char *host, const char *origin) {
    const struct eb_credentials c = {.host = host, .origin = origin};
    struct eb_fault fault = {0};
    bool good = eb_guard_check_source(g, &c, &fault);
    assert_int_equal(good, fault.status == 0);
    if (!good) assert_true(fault.text[0] != '\0');
    return fault.status;
}

static void test_hosts(void **state) {
    (void)state;
    const char *const good[] = {"localhost",       "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:1",
                                "127.0.0.1:65535", "[::1]",          "[::1]:80"};
    const char *const bad[] = {"",
                               ":80",
                               "evil.example",
                               "localhost.evil.example",
                               "127.0.0.1.evil.example",
                               "localhost:",
                               "localhost:80:80",
                               "localhost:8o",
                               "localhost:1234567",
                               "user@localhost",
                               "localhost/",
                               " localhost",
                               "::1",
                               "[::1",
                               "[::1]80",
                               "[127.0.0.1]x",
                               "127.0.0.2",
                               "0.0.0.0",
                               "box.example"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(source(&local, good[i], NULL), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (source(&local, bad[i], NULL) != 403) fail_msg("host \"%s\" was let in", bad[i]);
    assert_int_equal(source(&local, NULL, NULL), 403);
}

static void test_other_hosts(void **state) {
    (void)state;
    assert_int_equal(source(&named, "192.168.7.5:8080", NULL), 0);
    assert_int_equal(source(&named, "Box.Example", NULL), 0);
    assert_int_equal(source(&named, "192.168.7.6", NULL), 403);
    assert_int_equal(source(&open_to_all, "10.1.2.3:8080", NULL), 0);
    assert_int_equal(source(&open_to_all, "[fe80::1]:8080", NULL), 0);
    assert_int_equal(source(&open_to_all, "evil.example", NULL), 403);
    assert_int_equal(source(&open_to_all, "10.1.2.3.evil.example", NULL), 403);
    assert_int_equal(source(&open_to_all, "10.1.2", NULL), 403);
    char longest[600];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(source(&open_to_all, longest, NULL), 403);
}

static void test_origins(void **state) {
    (void)state;
    assert_int_equal(source(&local, "127.0.0.1:8080", "http://127.0.0.1:8080"), 0);
    assert_int_equal(source(&local, "localhost:8080", "http://LOCALHOST:8080"), 0);
    assert_int_equal(source(&local, "localhost", "https://localhost"), 0);
    const char *const bad[] = {"",
                               "null",
                               "http://evil.example",
                               "http://localhost:8081",
                               "http://localhost:80800",
                               "http://localhost:8080.evil.example",
                               "http://127.0.0.1:8080",
                               "ftp://localhost:8080",
                               "localhost:8080",
                               "http://localhost:8080/"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (source(&local, "localhost:8080", bad[i]) != 403)
            fail_msg("origin \"%s\" was let in", bad[i]);
}

static int type(const char *text) {
    const struct eb_credentials c = {.type = text};
    struct eb_fault fault = {0};
    bool good = eb_guard_check_type(&c, &fault);
    assert_int_equal(good, fault.status == 0);
    return fault.status;
}

static void test_types(void **state) {
    (void)state;
    const char *const good[] = {"application/json",
                                "Application/JSON",
                                "application/json;charset=utf-8",
                                "application/json ; charset=UTF-8",
                                "application/json; charset=\"utf-8\"",
                                "application/json;"};
    const char *const bad[] = {"",
                               "text/plain",
                               "application/jsonx",
                               "application/json, text/plain",
                               "application/json; charset=latin1",
                               "application/json; charset=utf-80",
                               "application/json; charset=\"utf-8",
                               "application/x-www-form-urlencoded",
                               "text/plain; application/json"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (type(good[i]) != 0) fail_msg("type \"%s\" was refused", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (type(bad[i]) != 415) fail_msg("type \"%s\" was let in", bad[i]);
    assert_int_equal(type(NULL), 415);
}

static int key(const struct eb_guard *g, const char *text) {
    const struct eb_credentials c = {.authorization = text};
    struct eb_fault fault = {0};
    bool good = eb_guard_check_key(g, &c, &fault);
    assert_int_equal(good, fault.status == 0);
    return fault.status;
}

static void test_keys(void **state) {
    (void)state;
    assert_int_equal(key(&local, NULL), 0);
    assert_int_equal(key(&local, "Bearer whatever"), 0);
    assert_int_equal(key(&named, "Bearer sk-one"), 0);
    assert_int_equal(key(&named, "bearer  a-second-key"), 0);
    const char *const bad[] = {"",
                               "Bearer",
                               "Bearer ",
                               "Bearer sk-on",
                               "sk-one",
                               "Bearer sk-onf",
                               "Bearer sk-one1",
                               "Basic sk-one",
                               "Bearersk-one",
                               "Bearer SK-ONE",
                               "Bearer sk-one a-second-key"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (key(&named, bad[i]) != 401) fail_msg("\"%s\" was let in", bad[i]);
    assert_int_equal(key(&named, NULL), 401);
}

/* Keys of the greatest length, and beyond: what differs behind it counts too. */
static void test_long_keys(void **state) {
    (void)state;
    char longest[EB_KEY_BYTES + 1], said[7 + EB_KEY_BYTES + 8];
    const char *const list[] = {longest};
    const struct eb_guard g = {.bound = "127.0.0.1", .keys = list, .n_keys = 1};
    memset(longest, 'k', EB_KEY_BYTES);
    longest[EB_KEY_BYTES] = '\0';
    snprintf(said, sizeof said, "Bearer %s", longest);
    assert_int_equal(key(&g, said), 0);
    said[7 + EB_KEY_BYTES - 1] = 'j';
    assert_int_equal(key(&g, said), 401);
    snprintf(said, sizeof said, "Bearer %sk", longest);
    assert_int_equal(key(&g, said), 401);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),   cmocka_unit_test(test_other_hosts),
        cmocka_unit_test(test_origins), cmocka_unit_test(test_types),
        cmocka_unit_test(test_keys),    cmocka_unit_test(test_long_keys),
    };
    return cmocka_run_group_tests_name("guard", tests, NULL, NULL);
}
