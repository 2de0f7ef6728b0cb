/* bytes.c: bytes that are almost HTTP, on thousands of connections to one `ebro serve`: requests
 * with bytes changed, missing, doubled or put between, lengths that are wrong, chunks, two requests
 * at once. None brings it down, none gets a 500 or stays for ever, and a right request among them
 * is answered as ever. libFuzzer does the same to the parsers alone (tests/fuzz).
 *
 * EBRO_TEST_FULL: ten times as many. EBRO_TEST_SEED repeats what is sent, not when. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/process.h"
#include "tests/harness/test.h"
#include "tests/load/client.h"
#include "tests/load/requests.h"
#include "tests/load/server.h"

enum { CASES = 5000, CASES_SANITIZED = 500, LANES = 16, ROOM = 1 << 17, RIGHT_EVERY = 50 };

struct sender {
    struct fuzz *f;
    struct load_call call;
    uint32_t lane;
    bool right;
    char bytes[ROOM];
    size_t n;
};

struct fuzz {
    struct load_request *requests;
    uint32_t n_requests, n_cases, n_started, n_right;
    uint32_t statuses[600]; /* how often each; 0: none came */
    struct load_client *client;
    struct test_rng rng;
};

static uint32_t below(struct fuzz *f, size_t n) {
    return (uint32_t)(test_u64(&f->rng) % n);
}

/* ---- bytes ------------------------------------------------------------------------------ */

static const char *const parts[] = {
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\r",
    ":",
    " ",
    "%00",
    "%2e%2e%2f",
    "?a=b&c",
    "HTTP/1.0",
    "HTTP/9.9",
    "http://127.0.0.1/",
    "OPTIONS * HTTP/1.1\r\n",
    "\r\nTransfer-Encoding: chunked",
    "\r\nTransfer-Encoding: gzip, chunked",
    "\r\nContent-Length: 0",
    "\r\nContent-Length: 7",
    "\r\nContent-Length: -1",
    "\r\nContent-Length: 99999999999999999999999",
    "\r\nExpect: 100-continue",
    "\r\nConnection: close",
    "\r\nConnection: upgrade\r\nUpgrade: websocket",
    "\r\nHost: example.org",
    "\r\nOrigin: null",
    "\r\nAuthorization: Bearer",
    "\r\nCookie: a=b",
    "\r\n folded",
    "5\r\nhello\r\n",
    "0\r\n\r\n",
    "ffffffffffffffffffff\r\n",
    "{\"a\":[[[[",
    "\\u0000",
    "\xff\xfe",
};
enum { N_PARTS = sizeof parts / sizeof parts[0] };

/* Puts n bytes between those that are there; too many are left out. */
static void insert(struct sender *s, size_t at, const char *bytes, size_t n) {
    if (s->n + n > ROOM) return;
    memmove(s->bytes + at + n, s->bytes + at, s->n - at);
    memmove(s->bytes + at, bytes, n);
    s->n += n;
}

static void change_bytes(struct sender *s) {
    for (uint32_t k = 1 + below(s->f, 8); k > 0; k--)
        s->bytes[below(s->f, s->n)] = (char)test_u64(&s->f->rng);
}

static void cut(struct sender *s) {
    s->n = 1 + below(s->f, s->n);
}

static void drop(struct sender *s) {
    size_t at = below(s->f, s->n), n = below(s->f, s->n - at);
    memmove(s->bytes + at, s->bytes + at + n, s->n - at - n);
    s->n -= n;
    if (s->n == 0) s->bytes[s->n++] = '\n';
}

static void repeat(struct sender *s) {
    char slice[256];
    size_t at = below(s->f, s->n), n = below(s->f, s->n - at);
    if (n > sizeof slice) n = sizeof slice;
    memcpy(slice, s->bytes + at, n);
    for (uint32_t k = 1 + below(s->f, 200); k > 0; k--) insert(s, at, slice, n);
}

static void put_between(struct sender *s) {
    for (uint32_t k = 1 + below(s->f, 3); k > 0; k--) {
        const char *part = parts[below(s->f, N_PARTS)];
        insert(s, below(s->f, s->n + 1), part, strlen(part));
    }
}

/* At the end of the first line, where a header may stand. */
static void add_header(struct sender *s) {
    const char *part = parts[below(s->f, N_PARTS)];
    for (size_t i = 0; i + 1 < s->n; i++) {
        if (memcmp(s->bytes + i, "\r\n", 2) != 0) continue;
        insert(s, i, part, strlen(part));
        return;
    }
}

static void put_another_behind(struct sender *s) {
    const struct load_request *r = &s->f->requests[below(s->f, s->f->n_requests)];
    insert(s, s->n, r->bytes, r->n);
}

static void make_noise(struct sender *s) {
    s->n = 1 + below(s->f, 4096);
    for (size_t i = 0; i < s->n; i++) s->bytes[i] = (char)test_u64(&s->f->rng);
}

static void (*const ways[])(struct sender *) = {
    change_bytes, cut, drop, repeat, put_between, add_header, put_another_behind, make_noise,
};
enum { N_WAYS = sizeof ways / sizeof ways[0] };

/* ---- cases ------------------------------------------------------------------------------ */

static void start(struct sender *s);

static void on_end(struct load_call *call, enum load_end how) {
    struct sender *s = call->user;
    struct fuzz *f = s->f;
    f->statuses[call->status]++;
    if (how == LOAD_LATE) fail_msg("neither answered nor closed: %.*s", (int)s->n, s->bytes);
    if (call->status == 500) fail_msg("500: %s\nfor: %.*s", call->body, (int)s->n, s->bytes);
    if (s->right && (how != LOAD_DONE || (call->status != 200 && call->status != 429)))
        fail_msg("a right request ended as %d with %d: %s", (int)how, call->status, call->body);
    f->n_right += s->right && call->status == 200;
    if (f->n_started < f->n_cases) start(s);
}

static void start(struct sender *s) {
    struct fuzz *f = s->f;
    s->right = f->n_started % RIGHT_EVERY == 0;
    const struct load_request *r = &f->requests[s->right ? 0 : below(f, f->n_requests)];
    assert_true(r->n < ROOM);
    memcpy(s->bytes, r->bytes, r->n);
    s->n = r->n;
    for (uint32_t k = s->right ? 0 : 1 + below(f, 3); k > 0; k--) ways[below(f, N_WAYS)](s);
    s->call = (struct load_call){.request = s->bytes,
                                 .n_request = s->n,
                                 .seconds = 120,
                                 .leave_after = s->right ? 0 : 0.02 + 0.001 * below(f, 80),
                                 .last = true,
                                 .on_end = on_end,
                                 .user = s};
    f->n_started++;
    load_start(f->client, s->lane, &s->call);
}

static void nothing_brings_it_down(void **state) {
    (void)state;
    /* whatever is asked is answered in 8 tokens */
    static const char *const options[] = {"-n", "8", "-c", "512", "--read-seconds", "5", NULL};
    static struct sender senders[LANES];
    struct fuzz f = {.rng = {test_seed()}};
    struct load_server server;
    f.n_cases = test_is_sanitized() ? CASES_SANITIZED : CASES;
    if (getenv("EBRO_TEST_FULL") != NULL) f.n_cases *= 10;
    f.requests = load_requests_make(&f.n_requests);
    load_server_start(&server, options);
    f.client = load_client_open(server.port, LANES);
    for (uint32_t i = 0; i < LANES; i++) {
        senders[i].f = &f;
        senders[i].lane = i;
        start(&senders[i]);
    }
    assert_true(load_run(f.client, 2000));
    load_client_close(&f.client);
    for (int i = 0; i < 600; i++)
        if (f.statuses[i] > 0) print_message("%d: %u times\n", i, f.statuses[i]);
    assert_true(f.n_right > 0 && f.statuses[400] > 0);
    assert_int_equal(load_server_stop(&server, 60), 0);
    load_requests_free(&f.requests, f.n_requests);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_brings_it_down)};
    return cmocka_run_group_tests_name("load/bytes", tests, NULL, NULL);
}
