/* golden.c: the two tiny models against float64 logits, greedy continuations and recall answers,
 * for every way of cutting the prompt into chunks and both forms of attention. */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/devices.h"
#include "tests/harness/test.h"

/* A float32 forward lands near 1e-6. The bound leaves room for other orders of summation, and is
 * far below what a wrong formula, position or expert would cause (1e-3 and more). */
static const double logit_bound = 1e-4;

struct setup {
    ebro_runtime *rt;
    ebro_device *device;
    ebro_model *model;
    struct test_golden *golden;
    json_t *prompts;
    char name[64];
};

static void open_setup(struct setup *s, const char *name, const char *folder) {
    ebro_error err;
    char path[512];
    *s = (struct setup){0};
    snprintf(s->name, sizeof s->name, "%s", name);
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&ro, &s->rt, &err), &err);
    test_ok(ebro_device_open(s->rt, test_device(), &s->device, &err), &err);
    ebro_model_options mo = {.size = sizeof mo, .path = folder};
    test_ok(ebro_model_open(s->rt, &mo, &s->model, &err), &err);
    snprintf(path, sizeof path, "%s.safetensors", name);
    s->golden = test_golden_open(path);
    snprintf(path, sizeof path, "%s/%s.prompts.json", test_golden_dir(), name);
    json_error_t je;
    s->prompts = json_load_file(path, 0, &je);
    if (s->prompts == NULL) fail_msg("%s: %s", path, je.text);
}

static void close_setup(struct setup *s) {
    json_decref(s->prompts);
    ebro_model_close(&s->model);
    ebro_device_close(&s->device);
    ebro_runtime_close(&s->rt);
    assert_null(s->model);
}

static ebro_engine *open_engine(struct setup *s, uint32_t chunk, int32_t form) {
    ebro_error err;
    ebro_engine *e = NULL;
    ebro_engine_options o = {.size = sizeof o,
                             .keep = EBRO_KEEP_NONE,
                             .n_chunk = chunk,
                             .cache_dtype = EBRO_F32,
                             .prefill_form = form};
    test_ok(ebro_engine_open(s->model, s->device, &o, &e, &err), &err);
    return e;
}

static void drain(ebro_engine *e, ebro_seq *seq) {
    ebro_error err;
    while (ebro_seq_pending(seq) > 0) test_ok(ebro_engine_step(e, &err), &err);
}

/* Relative error of the kept logits of a prompt, evaluated in chunks. */
static double prompt_error(struct setup *s, int p, ebro_engine *e, ebro_seq *seq) {
    ebro_error err;
    const struct eb_tensor *ids_t = test_tensor(s->golden, "p%d.input_ids", p);
    const struct eb_tensor *ref_t = test_tensor(s->golden, "p%d.logits_last8", p);
    int32_t *ids = test_i32(ids_t);
    double *ref = test_f64(ref_t);
    uint32_t rows = 0, want = (uint32_t)ref_t->shape[0];
    const float *logits = NULL;
    test_ok(ebro_seq_append(seq, ids, (size_t)test_count(ids_t), want, &err), &err);
    drain(e, seq);
    test_ok(ebro_seq_logits(seq, &logits, &rows, &err), &err);
    assert_int_equal(rows, want);
    double error = test_rel_fro(logits, ref, test_count(ref_t));
    free(ids);
    free(ref);
    return error;
}

static int count_prompts(const struct setup *s) {
    int n = 0;
    while (test_tensor_opt(s->golden, "p%d.input_ids", n) != NULL) n++;
    assert_true(n >= 4);
    return n;
}

/* Under the address sanitizer the long prompt in tiny chunks would take most of an hour's budget
 * and reach no code that the short ones do not. Ordinary builds run everything. */
static bool too_slow(const struct setup *s, int p, uint32_t chunk) {
#ifdef __SANITIZE_ADDRESS__
    return chunk < 64 && test_count(test_tensor(s->golden, "p%d.input_ids", p)) > 400;
#else
    (void)s;
    (void)p;
    (void)chunk;
    return false;
#endif
}

static void check_chunks(struct setup *s) {
    static const struct {
        uint32_t chunk;
        int32_t form;
    } ways[] = {{1, EBRO_MLA_AUTO},      {16, EBRO_MLA_AUTO},      {17, EBRO_MLA_EXPANDED},
                {64, EBRO_MLA_ABSORBED}, {512, EBRO_MLA_EXPANDED}, {8192, EBRO_MLA_AUTO}};
    int n = count_prompts(s);
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        ebro_engine *e = open_engine(s, ways[w].chunk, ways[w].form);
        for (int p = 0; p < n; p++) {
            ebro_error err;
            ebro_seq *seq = NULL;
            if (too_slow(s, p, ways[w].chunk)) continue;
            test_ok(ebro_seq_create(e, &seq, &err), &err);
            double error = prompt_error(s, p, e, seq);
            print_message("%s p%d chunk %u form %d: relative error %.2e\n", s->name, p,
                          ways[w].chunk, ways[w].form, error);
            test_le(error, logit_bound, "p%d chunk %u form %d", p, ways[w].chunk, ways[w].form);
            ebro_seq_destroy(&seq);
        }
        ebro_engine_close(&e);
    }
}

/* Appends the text of a token, special ones by their names, as the prompt file writes them. */
static void append_text(const struct setup *s, char *text, size_t capacity, int32_t id) {
    size_t bytes = 0, at = strlen(text);
    const char *p = ebro_token_bytes(s->model, id, &bytes, NULL);
    assert_non_null(p);
    assert_true(at + bytes < capacity);
    memcpy(text + at, p, bytes);
    text[at + bytes] = '\0';
}

static void check_greedy(struct setup *s) {
    ebro_error err;
    ebro_engine *e = open_engine(s, 128, EBRO_MLA_AUTO);
    int n = count_prompts(s), recalled = 0;
    for (int p = 0; p < n; p++) {
        char text[4096] = "";
        ebro_seq *seq = NULL;
        test_ok(ebro_seq_create(e, &seq, &err), &err);
        prompt_error(s, p, e, seq);
        int32_t *want = test_i32(test_tensor(s->golden, "p%d.greedy_ids", p));
        for (int i = 0; i < 32; i++) {
            ebro_sampling greedy = {.size = sizeof greedy};
            int32_t id = -1;
            test_ok(ebro_seq_sample(seq, &greedy, &id, &err), &err);
            if (id != want[i]) fail_msg("%s p%d step %d: %d, want %d", s->name, p, i, id, want[i]);
            append_text(s, text, sizeof text, id);
            test_ok(ebro_seq_append(seq, &id, 1, 0, &err), &err);
            drain(e, seq);
        }
        const json_t *entry = json_array_get(s->prompts, (size_t)p);
        assert_string_equal(text, json_string_value(json_object_get(entry, "greedy_text")));
        const char *answer = json_string_value(json_object_get(entry, "expected_answer"));
        if (answer != NULL) {
            /* A thinking model answers in its response channel, after the think channel. */
            const char *open = strstr(text, "<|open|>response<|sep|>");
            const char *got = open != NULL && strstr(text, "think<|sep|>") != NULL &&
                                      strstr(text, "think<|sep|>") < open
                                  ? open + strlen("<|open|>response<|sep|>")
                                  : text;
            if (strncmp(got, answer, strlen(answer)) != 0) {
                fail_msg("%s p%d answers \"%s\", want \"%s\"", s->name, p, text, answer);
            }
            recalled++;
        }
        free(want);
        ebro_seq_destroy(&seq);
    }
    assert_true(recalled >= 2);
    ebro_engine_close(&e);
}

/* Reduced caches: the error is that of rounding latents once (2^-11, 2^-8 relative), not more. */
static void check_cache_dtypes(struct setup *s) {
    static const struct {
        int32_t dtype;
        double bound;
    } ways[] = {{EBRO_F16, 5e-3}, {EBRO_BF16, 5e-2}};
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        ebro_error err;
        ebro_engine *e = NULL;
        ebro_seq *seq = NULL;
        ebro_engine_options o = {
            .size = sizeof o, .keep = EBRO_KEEP_NONE, .n_chunk = 64, .cache_dtype = ways[w].dtype};
        test_ok(ebro_engine_open(s->model, s->device, &o, &e, &err), &err);
        test_ok(ebro_seq_create(e, &seq, &err), &err);
        double error = prompt_error(s, 0, e, seq);
        print_message("%s p0 cache dtype %d: relative error %.2e\n", s->name, ways[w].dtype, error);
        test_le(error, ways[w].bound, "cache dtype %d", ways[w].dtype);
        /* A cache that was never narrowed would land at 1e-7. */
        assert_true(error > 2e-6);
        ebro_engine_close(&e);
    }
}

static void with_k3(void (*check)(struct setup *)) {
    struct setup s;
    open_setup(&s, "kimi-k3-tiny", test_demo_dir());
    check(&s);
    close_setup(&s);
}

static void with_linear(void (*check)(struct setup *)) {
    struct setup s;
    char folder[512];
    if (test_models_dir() == NULL) {
        print_message("skipped: EBRO_TEST_MODELS names no folder with kimi-linear-tiny\n");
        skip();
    }
    snprintf(folder, sizeof folder, "%s/kimi-linear-tiny", test_models_dir());
    open_setup(&s, "kimi-linear-tiny", folder);
    check(&s);
    close_setup(&s);
}

static void k3_chunks(void **state) {
    (void)state;
    with_k3(check_chunks);
}
static void k3_greedy(void **state) {
    (void)state;
    with_k3(check_greedy);
}
static void k3_cache_dtypes(void **state) {
    (void)state;
    with_k3(check_cache_dtypes);
}
static void linear_chunks(void **state) {
    (void)state;
    with_linear(check_chunks);
}
static void linear_greedy(void **state) {
    (void)state;
    with_linear(check_greedy);
}
static void linear_cache_dtypes(void **state) {
    (void)state;
    with_linear(check_cache_dtypes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(k3_greedy),       cmocka_unit_test(k3_chunks),
        cmocka_unit_test(k3_cache_dtypes), cmocka_unit_test(linear_greedy),
        cmocka_unit_test(linear_chunks),   cmocka_unit_test(linear_cache_dtypes),
    };
    return test_on_fast_devices("engine/golden", tests, NULL, NULL);
}
