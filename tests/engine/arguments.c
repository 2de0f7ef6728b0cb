/* arguments.c: every public call with NULL for what it needs: an error with a text, or zeros, and
 * never a crash. Arguments that are there but wrong stand with the calls' own tests. */
#include <string.h>

#include "tests/harness/test.h"

/* INVALID, and the text says something. */
#define REFUSES(call)                                             \
    do {                                                          \
        ebro_error err = {.status = -1, .text = ""};              \
        int32_t st = (call);                                      \
        if (st != EBRO_INVALID) fail_msg(#call " gives %d", st);  \
        assert_int_equal(err.status, EBRO_INVALID);               \
        if (err.text[0] == '\0') fail_msg(#call " says nothing"); \
    } while (0)

static int32_t no_piece(void *user, const ebro_reply_piece *piece) {
    (void)user;
    (void)piece;
    return 0;
}

static void null_objects(void **state) {
    (void)state;
    ebro_engine *engine = NULL;
    ebro_seq *seq = NULL;
    ebro_text_stream *stream = NULL;
    ebro_reply *reply = NULL;
    ebro_device *device = NULL;
    ebro_model *model = NULL;
    ebro_layer_info layer = {.size = sizeof layer};
    ebro_estimate estimate = {.size = sizeof estimate};
    const float *floats;
    const int32_t *ints;
    const char *text;
    size_t n;
    uint32_t count;
    int32_t id;

    REFUSES(ebro_device_list(NULL, NULL, 0, &count, &err));
    REFUSES(ebro_device_open(NULL, NULL, &device, &err));
    REFUSES(ebro_device_open_with(NULL, NULL, NULL, &device, &err));
    REFUSES(ebro_device_open_tested(NULL, NULL, NULL, &device, &err));
    REFUSES(ebro_model_open(NULL, NULL, &model, &err));
    REFUSES(ebro_model_get_layer(NULL, 0, &layer, &err));
    REFUSES(ebro_tokenize(NULL, "a", 1, 0, NULL, 0, &n, &err));
    REFUSES(ebro_chat_tokenize(NULL, NULL, 0, NULL, NULL, 0, &n, &err));
    REFUSES(ebro_chat_tokenize_json(NULL, "{}", 2, NULL, NULL, 0, &n, &err));
    REFUSES(ebro_reply_create(NULL, NULL, &reply, &err));
    REFUSES(ebro_reply_push(NULL, 0, no_piece, NULL, &err));
    REFUSES(ebro_reply_finish(NULL, no_piece, NULL, &err));
    REFUSES(ebro_model_estimate(NULL, NULL, NULL, &estimate, &err));
    REFUSES(ebro_engine_open(NULL, NULL, NULL, &engine, &err));
    REFUSES(ebro_engine_step(NULL, &err));
    REFUSES(ebro_seq_create(NULL, &seq, &err));
    REFUSES(ebro_seq_append(NULL, NULL, 0, 0, &err));
    REFUSES(ebro_seq_logits(NULL, &floats, &count, &err));
    REFUSES(ebro_seq_sample(NULL, NULL, &id, &err));
    REFUSES(ebro_seq_experts(NULL, 0, &ints, &floats, &count, &err));
    REFUSES(ebro_seq_force_experts(NULL, 0, NULL, 0, &err));
    REFUSES(ebro_text_stream_create(NULL, NULL, 0, &stream, &err));
    REFUSES(ebro_text_stream_push(NULL, "a", 1, &text, &n, &id, &err));
    REFUSES(ebro_text_stream_finish(NULL, &text, &n, &err));
    assert_int_equal(ebro_model_each_tensor(NULL, NULL, NULL), EBRO_INVALID);
}

static void null_results(void **state) {
    (void)state;
    REFUSES(ebro_runtime_open(NULL, NULL, &err));
    ebro_runtime *runtime = NULL;
    ebro_error e = {0};
    const ebro_runtime_options options = {.size = sizeof options, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&options, &runtime, &e), &e);
    REFUSES(ebro_device_list(runtime, NULL, 0, NULL, &err));
    REFUSES(ebro_device_list(runtime, NULL, 1, &(uint32_t){0}, &err));
    REFUSES(ebro_device_open(runtime, NULL, NULL, &err));
    REFUSES(ebro_model_open(runtime, NULL, NULL, &err));
    REFUSES(ebro_text_stream_create(runtime, NULL, 0, NULL, &err));
    /* and without a place for the error */
    assert_int_equal(ebro_device_open(runtime, NULL, NULL, NULL), EBRO_INVALID);
    ebro_runtime_close(&runtime);
    assert_null(runtime);
}

/* Calls that cannot fail. Results are poisoned first. */
static void null_getters(void **state) {
    (void)state;
    ebro_device_info device;
    ebro_model_info model;
    const ebro_device_info no_device = {.total_bytes = 0};
    const ebro_model_info no_model = {.vocab = 0};
    size_t n = 77;
    int32_t special = 77;
    memset(&device, 0xa5, sizeof device);
    memset(&model, 0xa5, sizeof model);
    ebro_device_get_info(NULL, &device);
    ebro_model_get_info(NULL, &model);
    assert_memory_equal(&device, &no_device, sizeof device);
    assert_memory_equal(&model, &no_model, sizeof model);
    ebro_device_get_info(NULL, NULL);
    ebro_model_get_info(NULL, NULL);
    assert_null(ebro_token_bytes(NULL, 0, &n, &special));
    assert_int_equal(n, 0);
    assert_int_equal(special, 0);
    assert_null(ebro_token_bytes(NULL, 0, NULL, NULL));
    assert_int_equal(ebro_token_bos(NULL), -1);
    assert_int_equal(ebro_token_is_stop(NULL, 0), 0);
    assert_int_equal(ebro_seq_length(NULL), 0);
    assert_int_equal(ebro_seq_pending(NULL), 0);
    assert_non_null(ebro_status_name(-1));
    assert_non_null(ebro_status_name(1000));
}

/* NULL, and the address of a pointer that is NULL. */
static void nothing_to_close(void **state) {
    (void)state;
#define CLOSES(type, call) \
    do {                   \
        type *p = NULL;    \
        call(NULL);        \
        call(&p);          \
        assert_null(p);    \
    } while (0)
    CLOSES(ebro_runtime, ebro_runtime_close);
    CLOSES(ebro_device, ebro_device_close);
    CLOSES(ebro_model, ebro_model_close);
    CLOSES(ebro_engine, ebro_engine_close);
    CLOSES(ebro_seq, ebro_seq_destroy);
    CLOSES(ebro_text_stream, ebro_text_stream_destroy);
    CLOSES(ebro_reply, ebro_reply_destroy);
#undef CLOSES
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_objects),
        cmocka_unit_test(null_results),
        cmocka_unit_test(null_getters),
        cmocka_unit_test(nothing_to_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
