/* http.c: the server through real sockets (HD-24): every route, what is refused and why, bodies
 * that are broken, too large or too slow, clients that go away in the queue and while their reply
 * is written, and the next request answered after all of it. */
#include "tools/serve/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/test.h"
#include "tools/serve/buf.h"
#include "tools/serve/routes.h"

enum { N_CTX = 2048, N_SLOTS = 2, N_QUEUE = 3, MAX_BODY = 1 << 17, READ_SECONDS = 2, PEERS = 32 };

struct fixture {
    ebro_runtime *rt;
    ebro_device *device;
    ebro_model *model;
    ebro_engine *engine;
    struct eb_traffic traffic;
    struct eb_service service;
    struct eb_http *http;
    _Atomic uint64_t seeds;
};
static struct fixture f;

static const char *const names[] = {"demo", "also"};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_ms(long ms) {
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* ---- the server --------------------------------------------------------------------------- */

static uint64_t seed(void *user) {
    return atomic_fetch_add(&((struct fixture *)user)->seeds, 1);
}

static bool on_admit(void *user, const struct eb_exchange *x, struct eb_fault *fault) {
    return eb_routes_admit(&((struct fixture *)user)->service, x, fault);
}

static void on_handle(void *user, struct eb_exchange *x) {
    eb_routes_handle(&((struct fixture *)user)->service, x);
}

static void on_done(void *user, const struct eb_exchange *x, int status, double seconds) {
    (void)x;
    (void)seconds;
    atomic_fetch_add(&((struct fixture *)user)->traffic.answers[status / 100 % 6], 1);
}

static void open_scheduler(void) {
    ebro_error err;
    const struct eb_sched_options options = {.runtime = f.rt,
                                             .model = f.model,
                                             .engine = f.engine,
                                             .n_seqs = N_SLOTS,
                                             .n_ctx = N_CTX,
                                             .n_chunk = 128,
                                             .n_queue = N_QUEUE};
    test_ok(eb_sched_open(&options, &f.service.sched, &err), &err);
}

static void open_server(void) {
    ebro_error err;
    const struct eb_http_options options = {.host = "127.0.0.1",
                                            .max_body = MAX_BODY,
                                            .max_connections = PEERS,
                                            .read_seconds = READ_SECONDS,
                                            .admit = on_admit,
                                            .handle = on_handle,
                                            .done = on_done,
                                            .user = &f};
    test_ok(eb_http_open(&options, &f.http, &err), &err);
    test_ok(eb_http_start(f.http, &err), &err);
}

static int set_up(void **state) {
    ebro_error err;
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&ro, &f.rt, &err), &err);
    test_ok(ebro_device_open(f.rt, "cpu", &f.device, &err), &err);
    ebro_model_options mo = {.size = sizeof mo, .path = test_demo_dir()};
    test_ok(ebro_model_open(f.rt, &mo, &f.model, &err), &err);
    ebro_engine_options eo = {
        .size = sizeof eo, .n_ctx = N_CTX, .n_chunk = 128, .max_seqs = N_SLOTS};
    test_ok(ebro_engine_open(f.model, f.device, &eo, &f.engine, &err), &err);
    ebro_model_get_info(f.model, &f.service.model);
    ebro_device_get_info(f.device, &f.service.device);
    f.service.offer = (struct eb_offer){.model = f.model,
                                        .names = names,
                                        .n_names = 2,
                                        .n_ctx = N_CTX,
                                        .n_vocab = f.service.model.vocab,
                                        .thinks = true,
                                        .seed = seed,
                                        .user = &f};
    f.service.guard = (struct eb_guard){.bound = "127.0.0.1"};
    f.service.cache_type = "f32";
    f.service.n_slots = N_SLOTS;
    f.service.traffic = &f.traffic;
    open_scheduler();
    open_server();
    (void)state;
    return 0;
}

static int tear_down(void **state) {
    eb_http_stop(f.http);
    eb_sched_close(&f.service.sched);
    eb_http_close(&f.http);
    ebro_engine_close(&f.engine);
    ebro_model_close(&f.model);
    ebro_device_close(&f.device);
    ebro_runtime_close(&f.rt);
    (void)state;
    return 0;
}

/* ---- a client ----------------------------------------------------------------------------- */

static int dial_port(uint16_t port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)(void *)&to, sizeof to), 0);
    return fd;
}

static int dial(void) {
    return dial_port(eb_http_port(f.http));
}

/* False: the server has closed the connection. */
static bool send_bytes(int fd, const char *data, size_t n) {
    while (n > 0) {
        ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        data += sent;
        n -= (size_t)sent;
    }
    return true;
}

static bool send_text(int fd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool send_text(int fd, const char *fmt, ...) {
    char text[8192];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    assert_true(n >= 0 && (size_t)n < sizeof text);
    return send_bytes(fd, text, (size_t)n);
}

/* Adds what comes until the connection ends, or `until` is there; false: it takes too long. */
static bool receive(int fd, struct eb_buf *all, const char *until) {
    double end = now() + 60;
    char piece[4096];
    while (now() < end) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (until && all->data && strstr(all->data, until)) return true;
        if (poll(&p, 1, 1000) == 0) continue;
        ssize_t n = recv(fd, piece, sizeof piece, 0);
        if (n <= 0) return true;
        assert_true(eb_buf_add(all, piece, (size_t)n));
    }
    return false;
}

struct answer {
    int status; /* 0: the connection was closed without one */
    struct eb_buf text;
    const char *body;
};

static void read_answer(int fd, struct answer *a) {
    *a = (struct answer){0};
    assert_true(receive(fd, &a->text, NULL));
    close(fd);
    if (!a->text.data || sscanf(a->text.data, "HTTP/1.1 %d", &a->status) != 1) return;
    const char *end = strstr(a->text.data, "\r\n\r\n");
    assert_non_null(end);
    a->body = end + 4;
}

/* One request on a connection of its own. */
static struct answer ask(const char *method, const char *path, const char *headers,
                         const char *body, size_t bytes) {
    struct answer a;
    int fd = dial();
    send_text(fd, "%s %s HTTP/1.1\r\nConnection: close\r\n%s", method, path, headers);
    if (body) send_text(fd, "Content-Length: %zu\r\n", bytes);
    send_text(fd, "\r\n");
    if (body) send_bytes(fd, body, bytes);
    read_answer(fd, &a);
    return a;
}

#define HOST "Host: localhost\r\n"
#define JSON HOST "Content-Type: application/json\r\n"
#define CHAT "/v1/chat/completions"
#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]"

static void expect(const char *method, const char *path, const char *headers, const char *body,
                   int status, const char *part) {
    struct answer a = ask(method, path, headers, body, body ? strlen(body) : 0);
    if (a.status != status || (part && !strstr(a.text.data, part)))
        fail_msg("%s %s %s\n%.300s\nwas answered %d and not %d ...%s...:\n%s", method, path,
                 headers, body ? body : "", a.status, status, part ? part : "",
                 a.text.data ? a.text.data : "");
    eb_buf_free(&a.text);
}

/* It still answers. */
static void expect_alive(void) {
    expect("GET", "/health", HOST, NULL, 200, "{\"status\":\"ok\"}");
}

/* The number under that name in /slots. */
static long slots_number(const char *name) {
    struct answer a = ask("GET", "/slots", HOST, NULL, 0);
    json_t *v = json_loads(a.body ? a.body : "", 0, NULL);
    assert_non_null(v);
    long n = (long)json_integer_value(json_object_get(v, name));
    json_decref(v);
    eb_buf_free(&a.text);
    return n;
}

static void wait_until(const char *name, long want) {
    double end = now() + 30;
    long is = -1;
    while (now() < end && (is = slots_number(name)) != want) sleep_ms(5);
    if (is != want) fail_msg("%s stays %ld and does not become %ld", name, is, want);
}

/* ---- routes ------------------------------------------------------------------------------- */

static void test_routes(void **state) {
    (void)state;
    expect("GET", "/health", HOST, NULL, 200, "{\"status\":\"ok\"}");
    expect("GET", "/health?x=1", HOST, NULL, 200, "ok");
    expect("GET", "/v1/models", HOST, NULL, 200, "\"id\":\"demo\"");
    expect("GET", "/v1/models/demo", HOST, NULL, 200, "\"object\":\"model\"");
    expect("GET", "/v1/models/also", HOST, NULL, 200, "\"id\":\"demo\"");
    expect("GET", "/v1/models/gpt", HOST, NULL, 404, "model_not_found");
    expect("GET", "/metrics", HOST, NULL, 200, "\nebro_up 1\n");
    expect("GET", "/slots", HOST, NULL, 200, "\"budget_bytes\"");
    expect("GET", "/", HOST, NULL, 200, "Content-Security-Policy: default-src 'none'");
    expect("GET", "/page.js", HOST, NULL, 200, "text/javascript");
    expect("POST", "/tokenize", JSON, "{\"content\":\"Hello, w\"}", 200,
           "{\"tokens\":[3821,11,270]}");
    expect("POST", "/tokenize", JSON, "{\"content\":\"\",\"add_special\":true}", 200,
           "{\"tokens\":[4096]}");
    expect("POST", "/detokenize", JSON, "{\"tokens\":[3821,11,270]}", 200,
           "{\"content\":\"Hello, w\"}");
    expect("POST", "/detokenize", JSON, "{\"tokens\":[187]}", 200, "\xef\xbf\xbd");
    expect("POST", "/detokenize", JSON, "{\"tokens\":[4352]}", 400, "tokens[0]");
    expect("POST", "/detokenize", JSON, "{}", 400, "missing");
    expect("POST", "/tokenize", JSON, "{\"content\":7}", 400, "a string");
    expect("GET", "/nothing", HOST, NULL, 404, "/nothing");
    expect("POST", "/chat/completions", JSON, "{}", 404, "is it /v1/chat/completions?");
    expect("POST", CHAT "/", JSON, "{}", 404, "is it /v1/chat/completions?");
    expect("POST", "/v1/responses", JSON, "{}", 404, "not offered");
    expect("GET", "/../etc/passwd", HOST, NULL, 404, NULL);
    expect("GET", "/v1/models/../../x", HOST, NULL, 404, NULL);
    expect("GET", "http://evil.example/health", HOST, NULL, 404, NULL);
    expect("GET", CHAT, HOST, NULL, 405, "Allow: POST\r\n");
    expect("OPTIONS", CHAT, HOST, NULL, 405, "Allow: POST\r\n");
    expect("DELETE", "/slots", HOST, NULL, 405, "Allow: GET, HEAD\r\n");
    expect("POST", "/health", JSON, "{}", 405, "Allow: GET, HEAD\r\n");
}

static void test_head(void **state) {
    (void)state;
    const char *const paths[] = {"/", "/health", "/v1/models", "/slots", "/metrics"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct answer a = ask("HEAD", paths[i], HOST, NULL, 0);
        assert_int_equal(a.status, 200);
        assert_int_equal(strlen(a.body), 0);
        assert_non_null(strstr(a.text.data, "X-Content-Type-Options: nosniff"));
        assert_null(strstr(a.text.data, "Access-Control"));
        eb_buf_free(&a.text);
    }
}

static void test_guard(void **state) {
    static const char *const keys[] = {"sk-right"};
    (void)state;
    expect("GET", "/health", "Host: evil.example\r\n", NULL, 403, "\"forbidden\"");
    expect("GET", "/", "Host: evil.example\r\n", NULL, 403, "\"forbidden\"");
    expect("GET", "/health", HOST "Origin: http://evil.example\r\n", NULL, 403, "Origin");
    expect("GET", "/health", HOST "Origin: http://localhost\r\n", NULL, 200, "ok");
    expect("GET", "/health", HOST HOST, NULL, 400, "twice");
    expect("POST", CHAT, JSON "Content-Type: text/plain\r\n", "{" HELLO "}", 400, "twice");
    expect("POST", CHAT, HOST "Content-Type: text/plain\r\n", "{" HELLO "}", 415, "text/plain");
    expect("POST", CHAT, HOST, "{" HELLO "}", 415, "missing");
    f.service.guard.keys = keys;
    f.service.guard.n_keys = 1;
    expect("GET", "/health", HOST, NULL, 200, "ok");
    expect("GET", "/", HOST, NULL, 200, "<html");
    expect("GET", "/v1/models", HOST, NULL, 401, "WWW-Authenticate: Bearer\r\n");
    expect("GET", "/slots", HOST, NULL, 401, "invalid_api_key");
    expect("GET", "/metrics", HOST, NULL, 401, "invalid_api_key");
    expect("POST", CHAT, JSON, "{" HELLO "}", 401, "invalid_api_key");
    expect("POST", CHAT, JSON "Authorization: Bearer sk-wrong\r\n", "{" HELLO "}", 401, "none of");
    expect("GET", "/v1/models", HOST "Authorization: Bearer sk-right\r\n", NULL, 200, "demo");
    f.service.guard.n_keys = 0;
}

/* ---- replies ------------------------------------------------------------------------------ */

static void test_replies(void **state) {
    static const char question[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Remember: the code for Mira is 4821. What "
        "is "
        "the code for Mira?\"}]";
    char body[512];
    (void)state;
    snprintf(body, sizeof body, "%s}", question);
    expect("POST", CHAT, JSON, body, 200, "\"content\":\"4821\"");
    snprintf(body, sizeof body, "%s,\"stream\":true}", question);
    expect("POST", CHAT, JSON, body, 200, "data: [DONE]\n\n");
    snprintf(body, sizeof body, "%s,\"n\":3}", question);
    expect("POST", CHAT, JSON, body, 200, "\"index\":2");
    expect("POST", "/v1/completions", JSON, "{\"prompt\":\"The whale is\",\"max_tokens\":3}", 200,
           "\"finish_reason\":\"length\"");
    /* more than the queue will ever hold */
    snprintf(body, sizeof body, "%s,\"n\":8}", question);
    expect("POST", CHAT, JSON, body, 400, "8 replies at once");
    wait_until("running", 0);
}

/* One connection, one request after the other. */
static void test_keep_alive(void **state) {
    struct eb_buf all = {0};
    int fd = dial();
    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_true(send_text(fd, "GET /health HTTP/1.1\r\n" HOST "\r\n"));
        all.n = 0;
        assert_true(receive(fd, &all, "{\"status\":\"ok\"}"));
        assert_non_null(strstr(all.data, "200 OK"));
        eb_buf_free(&all);
    }
    close(fd);
}

/* ---- broken requests ---------------------------------------------------------------------- */

static void test_broken_bodies(void **state) {
    const char *const bodies[] = {"",
                                  "{",
                                  "{}",
                                  "[]",
                                  "null",
                                  "\"",
                                  "{" HELLO,
                                  "{\"messages\":7}",
                                  "{" HELLO ",\"n\":-1}",
                                  "{" HELLO ",\"n\":1e999}",
                                  "{" HELLO ",\"max_tokens\":99999999999999999999}",
                                  "{" HELLO ",\"logit_bias\":{\"-5\":1}}",
                                  "{" HELLO
                                  ",\"response_format\":{\"type\":\"json_schema\","
                                  "\"json_schema\":{\"schema\":{\"$ref\":\"#\"}}}}",
                                  "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}"};
    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        double begin = now();
        expect("POST", CHAT, JSON, bodies[i], 400, "invalid_request_error");
        expect("POST", "/v1/completions", JSON, bodies[i], 400, "invalid_request_error");
        expect("POST", "/tokenize", JSON, bodies[i], 400, "invalid_request_error");
        /* HD-24's 100 ms for each, ten times over for slow machines */
        test_le(now() - begin, 3.0, "seconds for three refusals of %.40s", bodies[i]);
    }
    expect_alive();
}

static char *many(const char *part, size_t n) {
    size_t length = strlen(part);
    char *text = malloc(n * length + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) memcpy(text + i * length, part, length);
    text[n * length] = '\0';
    return text;
}

static void test_deep_bodies(void **state) {
    (void)state;
    char *body = many("[", 100000);
    expect("POST", CHAT, JSON, body, 400, "nested 100000 levels deep");
    free(body);
    body = many("{\"a\":", 20000);
    expect("POST", CHAT, JSON, body, 400, "nested 20000 levels deep");
    free(body);
    expect_alive();
}

static void test_long_prompt(void **state) {
    (void)state;
    char *words = many("whale ", 4000), *body = malloc(32000);
    assert_non_null(body);
    snprintf(body, 32000, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", words);
    expect("POST", CHAT, JSON, body, 400, "context_length_exceeded");
    expect("POST", CHAT, JSON, body, 400, "context of 2048");
    free(words);
    free(body);
    expect_alive();
}

static void test_large_bodies(void **state) {
    (void)state;
    char *body = many(" ", MAX_BODY + 1);
    /* refused, and read all the same so that the client hears of it */
    expect("POST", CHAT, JSON, body, 413, "--max-body");
    expect("POST", CHAT, HOST "Content-Type: text/plain\r\n", body, 415, NULL);
    free(body);
    /* far too large: nothing of it is waited for */
    struct answer a;
    int fd = dial();
    assert_true(
        send_text(fd, "POST " CHAT " HTTP/1.1\r\n" JSON "Content-Length: 999999999999\r\n\r\n"));
    read_answer(fd, &a);
    assert_int_equal(a.status, 413);
    eb_buf_free(&a.text);
    /* a client that asks before it sends */
    fd = dial();
    assert_true(send_text(
        fd, "POST " CHAT " HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"));
    read_answer(fd, &a);
    assert_int_equal(a.status, 415);
    eb_buf_free(&a.text);
    expect_alive();
}

static void test_chunked(void **state) {
    static const char body[] = "{\"content\":\"Hello, w\"}";
    struct answer a;
    (void)state;
    int fd = dial();
    assert_true(send_text(fd, "POST /tokenize HTTP/1.1\r\nConnection: close\r\n" JSON
                              "Transfer-Encoding: chunked\r\n\r\n"));
    for (size_t i = 0; i < sizeof body - 1; i++) assert_true(send_text(fd, "1\r\n%c\r\n", body[i]));
    assert_true(send_text(fd, "0\r\n\r\n"));
    read_answer(fd, &a);
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.text.data, "[3821,11,270]"));
    eb_buf_free(&a.text);
    /* of no stated length, and without end: cut off, with or without an answer */
    fd = dial();
    send_text(fd, "POST /tokenize HTTP/1.1\r\n" JSON "Transfer-Encoding: chunked\r\n\r\n");
    char *part = many(" ", 4096);
    bool open = true;
    for (int i = 0; open && i < 100000; i++) open = send_text(fd, "1000\r\n%s\r\n", part);
    assert_false(open);
    free(part);
    close(fd);
    expect_alive();
}

static void test_large_headers(void **state) {
    (void)state;
    char *value = many("x", 200000);
    int fd = dial();
    struct answer a;
    send_text(fd, "GET /health HTTP/1.1\r\n" HOST "X-Long: ");
    send_bytes(fd, value, strlen(value));
    send_text(fd, "\r\n\r\n");
    read_answer(fd, &a);
    assert_true(a.status == 0 || a.status == 431 || a.status == 413 || a.status == 400);
    eb_buf_free(&a.text);
    free(value);
    expect_alive();
}

static void test_garbage(void **state) {
    struct test_rng rng = {test_seed()};
    static const char *const heads[] = {"",
                                        "GET ",
                                        "POST " CHAT " HTTP/1.1\r\n",
                                        "POST " CHAT " HTTP/1.1\r\n" JSON
                                        "Content-Length: 40\r\n\r\n",
                                        "GET / HTTP/9.9\r\n" HOST "\r\n",
                                        "\r\n\r\n\r\n"};
    (void)state;
    for (int round = 0; round < 150; round++) {
        char bytes[200];
        size_t n = test_u64(&rng) % sizeof bytes;
        int fd = dial();
        for (size_t i = 0; i < n; i++) bytes[i] = (char)test_u64(&rng);
        send_text(fd, "%s", heads[test_u64(&rng) % (sizeof heads / sizeof *heads)]);
        send_bytes(fd, bytes, n);
        if (test_u64(&rng) % 2) shutdown(fd, SHUT_WR);
        if (test_u64(&rng) % 2) {
            struct pollfd p = {.fd = fd, .events = POLLIN};
            poll(&p, 1, 20);
        }
        close(fd);
    }
    expect_alive();
}

/* Two requests and nonsense behind them: two answers. */
static void test_pipelined(void **state) {
    struct answer a;
    int fd = dial();
    (void)state;
    assert_true(
        send_text(fd, "GET /health HTTP/1.1\r\n" HOST "\r\nPOST /tokenize HTTP/1.1\r\n" JSON
                      "Content-Length: 18\r\n\r\n{\"content\":\"Hello\"}\r\n\x01\x02\x03 garbage "
                      "\r\n\r\n"));
    read_answer(fd, &a);
    assert_int_equal(a.status, 200);
    const char *second = strstr(a.body, "HTTP/1.1 ");
    assert_non_null(second);
    /* its body is one byte too short */
    assert_int_equal(strncmp(second, "HTTP/1.1 400", 12), 0);
    eb_buf_free(&a.text);
    expect_alive();
}

/* Where two headers tell of the body's end, nothing is read behind the first of them. */
static void test_two_ends(void **state) {
    static const char *const heads[] = {
        "Content-Length: 5\r\nContent-Length: 90\r\n",
        "Content-Length: 90\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"};
    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        struct answer a;
        char text[512];
        int fd = dial();
        snprintf(text, sizeof text,
                 "POST /tokenize HTTP/1.1\r\n" JSON "%s\r\n0\r\n\r\nGET /health HTTP/1.1\r\n" HOST
                 "\r\n",
                 heads[i]);
        assert_true(send_text(fd, "%s", text));
        read_answer(fd, &a);
        assert_int_equal(a.status, 400);
        assert_null(strstr(a.body, "HTTP/1.1 200"));
        eb_buf_free(&a.text);
    }
    expect_alive();
}

/* ---- slow clients ------------------------------------------------------------------------- */

/* Cut off within the time that a request may take, and a little for the sweep; never before. */
static void expect_cut(int fd, double begin) {
    struct eb_buf all = {0};
    assert_true(receive(fd, &all, NULL));
    double took = now() - begin;
    test_le(READ_SECONDS - 0.5, took, "seconds until a slow client is cut off, at least");
    test_le(took, READ_SECONDS + 8, "seconds until a slow client is cut off");
    eb_buf_free(&all);
    close(fd);
}

static void test_slow(void **state) {
    (void)state;
    double begin = now();
    int silent = dial(), head = dial(), body = dial();
    send_text(head, "GET /health HTTP/1.1\r\nHost: loc");
    send_text(body, "POST " CHAT " HTTP/1.1\r\n" JSON "Content-Length: 100\r\n\r\n{");
    /* a byte now and then is no progress */
    for (int i = 0; i < 6; i++) {
        sleep_ms(200);
        send_text(head, "a");
        send_text(body, " ");
    }
    expect_cut(silent, begin);
    expect_cut(head, begin);
    expect_cut(body, begin);
    expect_alive();
}

/* More connections than there may be: those beyond are closed or wait, the others answer. */
static void test_many_connections(void **state) {
    int fds[PEERS * 2];
    (void)state;
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) fds[i] = dial();
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) close(fds[i]);
    double end = now() + 10;
    bool alive = false;
    while (!alive && now() < end) {
        struct answer a = ask("GET", "/health", HOST, NULL, 0);
        alive = a.status == 200;
        eb_buf_free(&a.text);
        if (!alive) sleep_ms(20);
    }
    assert_true(alive);
}

/* ---- clients that leave ------------------------------------------------------------------- */

/* A reply that lasts until the context is full. */
static int begin_long(bool stream, const char *text) {
    char body[512];
    int n = snprintf(body, sizeof body,
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"ignore_eos\":true,"
                     "\"stream\":%s}",
                     text, stream ? "true" : "false");
    int fd = dial();
    assert_true(
        send_text(fd, "POST " CHAT " HTTP/1.1\r\n" JSON "Content-Length: %d\r\n\r\n%s", n, body));
    return fd;
}

static void test_leave_while_written(void **state) {
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        int a = begin_long(stream, "one"), b = begin_long(stream, "two");
        wait_until("running", 2);
        close(a);
        wait_until("running", 1);
        /* its sending side alone counts too */
        shutdown(b, SHUT_WR);
        wait_until("running", 0);
        close(b);
    }
    expect_alive();
}

static void test_leave_the_queue(void **state) {
    int fds[N_SLOTS + N_QUEUE];
    (void)state;
    for (int i = 0; i < N_SLOTS; i++) fds[i] = begin_long(true, "x");
    wait_until("running", N_SLOTS);
    for (int i = N_SLOTS; i < N_SLOTS + N_QUEUE; i++) fds[i] = begin_long(i % 2, "y");
    wait_until("waiting", N_QUEUE);
    /* there is no place for another one */
    expect("POST", CHAT, JSON, "{" HELLO "}", 429, "queue_full");
    for (int i = N_SLOTS; i < N_SLOTS + N_QUEUE; i++) close(fds[i]);
    wait_until("waiting", 0);
    assert_int_equal(slots_number("running"), N_SLOTS);
    for (int i = 0; i < N_SLOTS; i++) close(fds[i]);
    wait_until("running", 0);
    expect("POST", CHAT, JSON, "{" HELLO ",\"max_tokens\":1}", 200, "\"finish_reason\":\"length\"");
}

/* A request that needs no engine is answered whatever the client closes behind it. */
static void test_half_closed(void **state) {
    struct answer a;
    int fd = dial();
    (void)state;
    assert_true(send_text(fd, "GET /health HTTP/1.1\r\nConnection: close\r\n" HOST "\r\n"));
    shutdown(fd, SHUT_WR);
    read_answer(fd, &a);
    assert_int_equal(a.status, 200);
    eb_buf_free(&a.text);
}

/* ---- the end ------------------------------------------------------------------------------ */

static void test_drain(void **state) {
    struct answer a;
    (void)state;
    int fd = begin_long(true, "until the end");
    wait_until("running", 1);
    assert_false(eb_sched_drain(f.service.sched));
    expect("GET", "/health", HOST, NULL, 503, "\"draining\"");
    expect("POST", CHAT, JSON, "{" HELLO "}", 503, "server_error");
    /* what runs is told that it ends */
    eb_http_stop(f.http);
    expect("GET", "/health", HOST, NULL, 503, "the server ends");
    eb_sched_close(&f.service.sched);
    double begin = now();
    eb_http_close(&f.http);
    test_le(now() - begin, 8, "seconds until the server is closed");
    read_answer(fd, &a);
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.text.data, "\"error\""));
    assert_null(strstr(a.text.data, "[DONE]"));
    eb_buf_free(&a.text);
    open_scheduler();
    open_server();
    expect_alive();
}

/* Opened and closed with requests on their way, again and again. */
static void test_reopen(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) {
        int a = begin_long(i % 2, "x"), b = dial();
        send_text(b, "POST " CHAT " HTTP/1.1\r\n");
        if (i % 3 == 0) close(a);
        eb_http_stop(f.http);
        eb_sched_close(&f.service.sched);
        eb_http_close(&f.http);
        if (i % 3 != 0) close(a);
        close(b);
        open_scheduler();
        open_server();
    }
    expect_alive();
}

static void test_cannot_open(void **state) {
    ebro_error err;
    struct eb_http *second = NULL;
    struct eb_http_options options = {.host = "127.0.0.1",
                                      .port = eb_http_port(f.http),
                                      .max_body = 1,
                                      .max_connections = 8,
                                      .read_seconds = 1};
    (void)state;
    test_fails(eb_http_open(&options, &second, &err), EBRO_IO, &err, "port 0 takes any");
    assert_null(second);
    options.host = "no such host";
    test_fails(eb_http_open(&options, &second, &err), EBRO_INVALID, &err, "no such host");
    /* an address for documentation: no machine's */
    options.host = "192.0.2.1";
    test_fails(eb_http_open(&options, &second, &err), EBRO_IO, &err, "192.0.2.1");
    options.host = "127.0.0.1";
    options.port = 0;
    test_ok(eb_http_open(&options, &second, &err), &err);
    eb_http_close(&second);
    eb_http_close(&second);
    eb_http_close(NULL);
}

/* ---- answers that nobody reads ------------------------------------------------------------ */

struct flood {
    struct eb_http *http;
    atomic_bool refused, gone;
    _Atomic size_t written;
};

static bool admit_all(void *user, const struct eb_exchange *x, struct eb_fault *fault) {
    (void)user;
    (void)x;
    (void)fault;
    return true;
}

static void flood(void *user, struct eb_exchange *x) {
    static const char block[1 << 16];
    const struct eb_answer a = {.status = 200, .type = "text/plain"};
    struct flood *fl = user;
    x->ops->begin(x, &a);
    for (int i = 0; i < 1024 && !fl->refused; i++) {
        if (!x->ops->write(x, block, sizeof block)) fl->refused = true;
        if (!fl->refused) fl->written += sizeof block;
    }
    fl->gone = x->ops->gone(x);
    x->ops->end(x);
}

static void note_done(void *user, const struct eb_exchange *x, int status, double seconds) {
    (void)user;
    (void)x;
    (void)status;
    (void)seconds;
}

static void test_unread(void **state) {
    struct flood fl = {0};
    ebro_error err;
    const struct eb_http_options options = {.host = "127.0.0.1",
                                            .max_body = 1,
                                            .max_connections = 8,
                                            .read_seconds = 1,
                                            .admit = admit_all,
                                            .handle = flood,
                                            .done = note_done,
                                            .user = &fl};
    (void)state;
    test_ok(eb_http_open(&options, &fl.http, &err), &err);
    test_ok(eb_http_start(fl.http, &err), &err);
    int fd = dial_port(eb_http_port(fl.http));
    assert_true(send_text(fd, "GET / HTTP/1.1\r\n" HOST "\r\n"));
    double end = now() + 20;
    while (!fl.refused && now() < end) sleep_ms(5);
    assert_true(fl.refused && fl.gone);
    /* 8 MiB, and the block that was too many */
    test_le((double)fl.written, 8.5 * 1048576, "bytes held for a client that does not read");
    /* the library's time-out lets go of it */
    eb_http_close(&fl.http);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_guard),
        cmocka_unit_test(test_replies),
        cmocka_unit_test(test_keep_alive),
        cmocka_unit_test(test_broken_bodies),
        cmocka_unit_test(test_deep_bodies),
        cmocka_unit_test(test_long_prompt),
        cmocka_unit_test(test_large_bodies),
        cmocka_unit_test(test_chunked),
        cmocka_unit_test(test_large_headers),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_two_ends),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_many_connections),
        cmocka_unit_test(test_leave_while_written),
        cmocka_unit_test(test_leave_the_queue),
        cmocka_unit_test(test_half_closed),
        cmocka_unit_test(test_cannot_open),
        cmocka_unit_test(test_unread),
        cmocka_unit_test(test_reopen),
        cmocka_unit_test(test_drain),
    };
    return cmocka_run_group_tests_name("http", tests, set_up, tear_down);
}
