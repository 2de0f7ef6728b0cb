/* request.c: any bytes as the body of a request for a reply: refused with a status and a reason, in
 * bounded time and memory, or taken; then whatever is written, here the same bytes, becomes an
 * answer that is JSON. The first byte says how the request is meant. */
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/micro.h"
#include "tools/serve/buf.h"
#include "tools/serve/complete.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define must(condition) ((condition) ? (void)0 : abort())

enum { MAX_PIECE = 7 };

static struct eb_service service;
static const char *const names[] = {"m"};

static uint64_t seed(void *user) {
    (void)user;
    return 1;
}

static void open_model(void) {
    static ebro_runtime *rt;
    static struct micro_files files; /* the model reads them in place */
    const struct micro_spec spec = {.family = MICRO_K3};
    ebro_model *model = NULL;
    files = micro_make(&spec);
    const ebro_runtime_options ro = {.size = sizeof ro, .module_dir = "/"};
    const ebro_model_options mo = {.size = sizeof mo, .files = files.files, .n_files = files.n};
    must(ebro_runtime_open(&ro, &rt, NULL) == EBRO_OK);
    must(ebro_model_open(rt, &mo, &model, NULL) == EBRO_OK);
    service.offer = (struct eb_offer){.model = model,
                                      .names = names,
                                      .n_names = 1,
                                      .n_ctx = 4096,
                                      .n_vocab = MICRO_VOCAB,
                                      .thinks = true,
                                      .seed = seed};
}

/* ---- an exchange that keeps what it is answered ------------------------------------------- */

static struct eb_buf out;
static int status, holders;
static bool streamed;

static void give(struct eb_exchange *x, const struct eb_answer *a, char *body, size_t n) {
    (void)x;
    must(status == 0 && body && eb_buf_add(&out, body, n));
    status = a->status;
    free(body);
}

static bool begin(struct eb_exchange *x, const struct eb_answer *a) {
    (void)x;
    must(status == 0);
    status = a->status;
    return streamed = true;
}

static bool add(struct eb_exchange *x, const void *data, size_t n) {
    (void)x;
    must(streamed && eb_buf_add(&out, data, n));
    return true;
}

static void end(struct eb_exchange *x) {
    (void)x;
}

static bool is_gone(struct eb_exchange *x) {
    (void)x;
    return false;
}

static void hold(struct eb_exchange *x) {
    (void)x;
    holders++;
}

static void release(struct eb_exchange *x) {
    (void)x;
    holders--;
}

static const struct eb_exchange_ops ops = {give, begin, add, end, is_gone, hold, release};

/* ---- what is written ---------------------------------------------------------------------- */

/* The bytes as pieces of every kind in turn. */
static void write_reply(const struct eb_listener *to, const uint8_t *data, size_t bytes) {
    const struct eb_usage usage = {.prompt_tokens = 1, .completion_tokens = 1, .miss = "none"};
    uint32_t calls = 0;
    to->start(to->user, &usage);
    for (size_t i = 0; i < bytes; i += MAX_PIECE) {
        enum eb_piece_kind kind = (enum eb_piece_kind)(data[i] & 3);
        if (kind == EB_PIECE_TOOL_BEGIN) calls++;
        if (kind == EB_PIECE_TOOL_ARGUMENTS && calls == 0) kind = EB_PIECE_CONTENT;
        const struct eb_piece piece = {.kind = kind,
                                       .text = (const char *)data + i,
                                       .bytes = bytes - i < MAX_PIECE ? bytes - i : MAX_PIECE,
                                       .call = calls > 0 ? calls - 1 : 0,
                                       .id = (const char *)data,
                                       .id_bytes = data[i] >> 2 & 1};
        to->piece(to->user, &piece);
    }
    to->finish(to->user, EB_FINISH_STOP, &usage, NULL);
}

static void check_json(const char *text, size_t n) {
    json_t *value = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    must(json_is_object(value));
    json_decref(value);
}

/* Every event is JSON, but the last one. */
static void check_stream(void) {
    const char *at = out.data, *stop = out.data + out.n, *tail = "\n\n";
    static const char done[] = "data: [DONE]\n\n";
    must(out.n >= sizeof done - 1);
    stop -= sizeof done - 1;
    must(memcmp(stop, done, sizeof done - 1) == 0);
    while (at < stop) {
        const char *next = strstr(at, tail);
        must(next && memcmp(at, "data: ", 6) == 0);
        check_json(at + 6, (size_t)(next - at) - 6);
        at = next + 2;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct eb_listener listeners[EB_REQUEST_CHOICES];
    struct eb_fault fault = {0};
    if (!service.offer.model) open_model();
    if (bytes < 1) return 0;
    struct eb_exchange x = {.ops = &ops, .body = (const char *)data + 1, .bytes = bytes - 1};
    out.n = 0;
    status = 0;
    streamed = false;
    struct eb_completion *c = eb_completion_open(&service, &x, data[0] & 1, &fault);
    must(c || (fault.status >= 400 && fault.status < 500 && fault.text[0] != '\0'));
    if (c) {
        must(eb_completion_job(c)->n_ids > 0 && eb_completion_job(c)->n_ids < 4096);
        uint32_t n = eb_completion_listeners(c, listeners);
        for (uint32_t i = 0; i < n; i++) write_reply(&listeners[i], data + 1, bytes - 1);
        must(status == 200);
        if (streamed)
            check_stream();
        else
            check_json(out.data, out.n);
    }
    must(holders == 0);
    return 0;
}
