/* nomem.c: every public call that takes host memory, with its n-th allocation failing, for every n:
 * a clear error, nothing kept, and the next try works. Weights and models: tests/model. */
#include <stdlib.h>
#include <string.h>

#include "tests/harness/failing.h"
#include "tests/harness/micro.h"
#include "tests/harness/test.h"

enum { N_PROMPT = 20, N_CTX = 64 };

struct bench {
    struct failing host;
    ebro_runtime *rt;
    ebro_device *device;
    ebro_model *model;
    ebro_engine *engine;
    ebro_seq *seq;
    ebro_text_stream *stream;
    ebro_reply *reply;
    struct micro_files files;
    size_t n_devices;
};

/* One call, and what takes back all that it gave. */
struct call {
    const char *name;
    int32_t (*run)(struct bench *b, ebro_error *err);
    void (*undo)(struct bench *b);
};

/* ---- the calls ---------------------------------------------------------------------------- */

static int32_t runtime_open(struct bench *b, ebro_error *err) {
    ebro_runtime_options o = {.size = sizeof o,
                              .module_dir = test_module_dir(),
                              .realloc = failing_realloc,
                              .realloc_user = &b->host};
    return ebro_runtime_open(&o, &b->rt, err);
}

static void runtime_close(struct bench *b) {
    ebro_runtime_close(&b->rt);
}

/* A runtime that opened without one of its modules would have moved work in silence. */
static int32_t runtime_with_devices(struct bench *b, ebro_error *err) {
    int32_t st = runtime_open(b, err);
    if (st != EBRO_OK) return st;
    uint32_t n = 0;
    size_t fail_at = b->host.fail_at;
    b->host.fail_at = SIZE_MAX;
    test_ok(ebro_device_list(b->rt, NULL, 0, &n, err), err);
    b->host.fail_at = fail_at;
    if (b->n_devices == 0) b->n_devices = n;
    assert_int_equal(n, b->n_devices);
    return st;
}

static int32_t device_list(struct bench *b, ebro_error *err) {
    ebro_device_info info[4];
    uint32_t n = 0;
    return ebro_device_list(b->rt, info, 4, &n, err);
}

static int32_t device_open(struct bench *b, ebro_error *err) {
    ebro_device_settings s = {.size = sizeof s, .n_threads = 2};
    return ebro_device_open_with(b->rt, "cpu", &s, &b->device, err);
}

static void device_close(struct bench *b) {
    ebro_device_close(&b->device);
}

static int32_t model_open(struct bench *b, ebro_error *err) {
    ebro_model_options o = {.size = sizeof o, .files = b->files.files, .n_files = b->files.n};
    return ebro_model_open(b->rt, &o, &b->model, err);
}

static int32_t tokenize(struct bench *b, ebro_error *err) {
    static const char text[] = "Some text, 12345 and <|im_end|>, of more than one piece.";
    int32_t ids[128];
    size_t n = 0;
    return ebro_tokenize(b->model, text, sizeof text - 1, 1, ids, 128, &n, err);
}

static int32_t chat_tokenize(struct bench *b, ebro_error *err) {
    const ebro_chat_message messages[] = {
        {"system", "Answer briefly.", NULL}, {"user", "Hello", NULL}, {"assistant", "Hi", "hm"}};
    const ebro_chat_options o = {.size = sizeof o, .thinking = 1, .thinking_effort = "low"};
    int32_t ids[512];
    size_t n = 0;
    return ebro_chat_tokenize(b->model, messages, 3, &o, ids, 512, &n, err);
}

static int32_t chat_tokenize_json(struct bench *b, ebro_error *err) {
    static const char json[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
        "\"Hello\"}]}, {\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"a\", \"function\": "
        "{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": [1]}\"}}]}], \"tools\": [{\"type\": "
        "\"function\", \"function\": {\"name\": \"f\"}}]}";
    int32_t ids[512];
    size_t n = 0;
    return ebro_chat_tokenize_json(b->model, json, sizeof json - 1, NULL, ids, 512, &n, err);
}

static int32_t reply_create(struct bench *b, ebro_error *err) {
    return ebro_reply_create(b->model, NULL, &b->reply, err);
}

static void reply_destroy(struct bench *b) {
    ebro_reply_destroy(&b->reply);
}

static int32_t engine_open(struct bench *b, ebro_error *err) {
    ebro_engine_options o = {
        .size = sizeof o, .n_ctx = N_CTX, .cache_dtype = -1, .keep = EBRO_KEEP_NONE};
    return ebro_engine_open(b->model, b->device, &o, &b->engine, err);
}

static void engine_close(struct bench *b) {
    ebro_engine_close(&b->engine);
}

static int32_t seq_create(struct bench *b, ebro_error *err) {
    return ebro_seq_create(b->engine, &b->seq, err);
}

static void seq_destroy(struct bench *b) {
    ebro_seq_destroy(&b->seq);
}

static int32_t append(struct bench *b, ebro_error *err) {
    int32_t ids[N_PROMPT];
    const uint32_t pending = ebro_seq_pending(b->seq);
    for (int i = 0; i < N_PROMPT; i++) ids[i] = 7 * i;
    int32_t st = ebro_seq_append(b->seq, ids, N_PROMPT, N_PROMPT, err);
    assert_int_equal(ebro_seq_pending(b->seq), pending + (st == EBRO_OK ? N_PROMPT : 0));
    return st;
}

/* A step that fails leaves its sequence as it was. */
static int32_t fresh_step(struct bench *b, ebro_error *err) {
    const size_t fail_at = b->host.fail_at;
    b->host.fail_at = SIZE_MAX;
    test_ok(seq_create(b, err), err);
    test_ok(append(b, err), err);
    b->host.n_calls = 0;
    b->host.fail_at = fail_at;
    int32_t st = ebro_engine_step(b->engine, err);
    if (st != EBRO_OK) {
        assert_int_equal(ebro_seq_status(b->seq), EBRO_OK);
        assert_int_equal(ebro_seq_length(b->seq), 0);
        assert_int_equal(ebro_seq_pending(b->seq), N_PROMPT);
        seq_destroy(b);
    }
    return st;
}

static int32_t sample(struct bench *b, ebro_error *err) {
    static const ebro_logit_bias biases[] = {{3, 1.0f}, {5, -1.0f}};
    const ebro_sampling s = {.size = sizeof s,
                             .temperature = 0.7f,
                             .top_k = 20,
                             .top_p = 0.9f,
                             .repeat_penalty = 1.2f,
                             .biases = biases,
                             .n_biases = 2};
    int32_t id = -1;
    int32_t st = ebro_seq_sample(b->seq, &s, &id, err);
    assert_true(st != EBRO_OK || (id >= 0 && id < MICRO_VOCAB));
    return st;
}

static int32_t stream_create(struct bench *b, ebro_error *err) {
    static const char *const stops[] = {"abab", "stop"};
    return ebro_text_stream_create(b->rt, stops, 2, &b->stream, err);
}

static void stream_destroy(struct bench *b) {
    ebro_text_stream_destroy(&b->stream);
}

/* What was held back before a push that fails is still there after it. */
static int32_t stream_push(struct bench *b, ebro_error *err) {
    static const char bytes[] = "x and a text that is too long for what the stream held";
    const char *text = NULL;
    size_t n = 0;
    int32_t stopped = 0;
    const size_t fail_at = b->host.fail_at;
    b->host.fail_at = SIZE_MAX;
    test_ok(stream_create(b, err), err);
    test_ok(ebro_text_stream_push(b->stream, "ab", 2, &text, &n, &stopped, err), err);
    assert_int_equal(n, 0);
    b->host.n_calls = 0;
    b->host.fail_at = fail_at;
    int32_t st =
        ebro_text_stream_push(b->stream, bytes, sizeof bytes - 1, &text, &n, &stopped, err);
    assert_int_equal(n, st == EBRO_OK ? sizeof bytes + 1 : 0);
    if (st != EBRO_OK) {
        test_ok(ebro_text_stream_finish(b->stream, &text, &n, NULL), err);
        assert_int_equal(n, 2);
        assert_memory_equal(text, "ab", 2);
        stream_destroy(b);
    }
    return st;
}

/* ---- failing them ------------------------------------------------------------------------- */

static void nothing(struct bench *b) {
    (void)b;
}

/* Returns how many allocations the call makes. After each failure the same call is made again with
 * all the memory it wants. */
static size_t sweep(struct bench *b, const struct call *c) {
    const size_t held = b->host.n_held;
    for (size_t n = 0;; n++) {
        ebro_error err;
        memset(&err, 0x55, sizeof err);
        b->host.n_calls = 0;
        b->host.fail_at = n;
        int32_t st = c->run(b, &err);
        b->host.fail_at = SIZE_MAX;
        if (st == EBRO_OK) {
            c->undo(b);
            print_message("%s: %zu allocations failed in turn\n", c->name, n);
            return n;
        }
        if (st != EBRO_NOMEM_HOST && st != EBRO_NOMEM_DEVICE)
            fail_msg("%s, allocation %zu: %s", c->name, n, ebro_status_name(st));
        assert_int_equal(err.status, st);
        assert_non_null(memchr(err.text, '\0', sizeof err.text));
        if (strstr(err.text, "memory") == NULL && strstr(err.text, "bytes") == NULL)
            fail_msg("%s: \"%s\"", c->name, err.text);
        if (b->host.n_held != held)
            fail_msg("%s, allocation %zu: %zu blocks are kept", c->name, n, b->host.n_held - held);
        test_ok(c->run(b, &err), &err);
        c->undo(b);
    }
}

static void sweep_at_least(struct bench *b, const struct call *c, size_t least) {
    assert_true(sweep(b, c) >= least);
}

static void every_call(void **state) {
    (void)state;
    struct bench b = {.host = {.fail_at = SIZE_MAX}};
    ebro_error err;
    const struct micro_spec spec = {.seed = 9,
                                    .family = MICRO_K3,
                                    .ffn = MICRO_LATENT,
                                    .pattern = "KMK",
                                    .attn_res_block = 2,
                                    .shift = 1};
    b.files = micro_make(&spec);
    sweep_at_least(&b, &(struct call){"runtime_open", runtime_with_devices, runtime_close}, 3);
    assert_int_equal(b.host.n_held, 0);
    test_ok(runtime_open(&b, &err), &err);
    sweep_at_least(&b, &(struct call){"device_list", device_list, nothing}, 0);
    sweep_at_least(&b, &(struct call){"device_open", device_open, device_close}, 2);
    test_ok(device_open(&b, &err), &err);
    sweep_at_least(&b, &(struct call){"text_stream_create", stream_create, stream_destroy}, 4);
    sweep_at_least(&b, &(struct call){"text_stream_push", stream_push, stream_destroy}, 1);
    test_ok(model_open(&b, &err), &err);
    sweep_at_least(&b, &(struct call){"tokenize", tokenize, nothing}, 1);
    sweep_at_least(&b, &(struct call){"chat_tokenize", chat_tokenize, nothing}, 1);
    sweep_at_least(&b, &(struct call){"chat_tokenize_json", chat_tokenize_json, nothing}, 5);
    sweep_at_least(&b, &(struct call){"reply_create", reply_create, reply_destroy}, 1);
    sweep_at_least(&b, &(struct call){"engine_open", engine_open, engine_close}, 10);
    test_ok(engine_open(&b, &err), &err);
    sweep_at_least(&b, &(struct call){"seq_create", seq_create, seq_destroy}, 2);
    /* the first step makes the arena, which stays with the engine */
    test_ok(fresh_step(&b, &err), &err);
    seq_destroy(&b);
    sweep_at_least(&b, &(struct call){"step", fresh_step, seq_destroy}, 0);
    ebro_engine_close(&b.engine);
    ebro_model_close(&b.model);
    ebro_device_close(&b.device);
    runtime_close(&b);
    assert_int_equal(b.host.n_held, 0);
    micro_files_free(&b.files);
}

/* Calls that keep what they took for the next one: nothing is taken back, but an error changes
 * nothing, and more and more of the call succeeds. */
static void calls_that_keep(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int32_t (*run)(struct bench *b, ebro_error *err);
    } calls[] = {{"append", append}, {"step", NULL}, {"sample", sample}};
    struct bench b = {.host = {.fail_at = SIZE_MAX}};
    ebro_error err;
    const struct micro_spec spec = {.seed = 10, .ffn = MICRO_MOE, .pattern = "KM"};
    b.files = micro_make(&spec);
    test_ok(runtime_open(&b, &err), &err);
    test_ok(device_open(&b, &err), &err);
    test_ok(model_open(&b, &err), &err);
    test_ok(engine_open(&b, &err), &err);
    test_ok(seq_create(&b, &err), &err);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        if (calls[i].run == NULL) {
            test_ok(ebro_engine_step(b.engine, &err), &err);
            continue;
        }
        int32_t st = EBRO_NOMEM_HOST;
        size_t n = 0;
        for (; st != EBRO_OK; n++) {
            b.host.n_calls = 0;
            b.host.fail_at = n;
            st = calls[i].run(&b, &err);
            b.host.fail_at = SIZE_MAX;
            if (st != EBRO_OK && st != EBRO_NOMEM_DEVICE) test_fails(st, EBRO_NOMEM_HOST, &err, "");
            assert_true(n < 100);
        }
        print_message("%s: %zu allocations failed in turn\n", calls[i].name, n - 1);
        assert_true(n > 1);
    }
    ebro_engine_close(&b.engine);
    ebro_model_close(&b.model);
    ebro_device_close(&b.device);
    runtime_close(&b);
    assert_int_equal(b.host.n_held, 0);
    micro_files_free(&b.files);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call),
        cmocka_unit_test(calls_that_keep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
