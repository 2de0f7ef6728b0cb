/* strict.c: the strict mode: logits, states and cache rows are the same bytes however a prompt is
 * cut, into appends as into steps. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "tests/harness/devices.h"
#include "tests/harness/micro.h"
#include "tests/harness/test.h"

enum { N_TOKENS = 300 };

static const uint32_t chunks[] = {512, 1, 16, 17};
/* How many tokens each append queues before the steps that evaluate them; 0 ends a list. Ones: one
 * at a time to the end. */
static const uint32_t splits[][5] = {{300}, {128, 172}, {7, 64, 1, 228}, {1}};

/* What a sequence has become. */
struct result {
    float *logits;
    uint8_t *state, *rows;
    size_t n_logits, state_bytes, row_bytes;
};

static void result_free(struct result *r) {
    free(r->logits);
    free(r->state);
    free(r->rows);
}

/* Bytes of a block, which may lie where the host cannot see them. */
static void read_block(struct ebro_engine *e, uint32_t number, size_t offset, uint8_t *to,
                       size_t n) {
    ebro_error err;
    ebro_span s = eb_block_span(e, number);
    s.offset += offset;
    test_ok(eb_download(&e->stream, to, s, n, &err), &err);
}

/* The latent rows of all layers and tokens, in order. */
static void copy_rows(struct ebro_engine *e, const struct ebro_seq *s, struct result *r) {
    const struct eb_layout *l = &e->layout;
    size_t row = (size_t)l->shape.row_elements * sizeof(float);
    r->row_bytes = row * l->shape.n_mla_layers * N_TOKENS;
    r->rows = malloc(r->row_bytes);
    uint8_t *to = r->rows;
    for (uint32_t i = 0; i < l->shape.n_mla_layers; i++) {
        for (uint32_t t = 0; t < N_TOKENS; t++, to += row) {
            size_t in_page = t % l->page_tokens;
            read_block(e, s->mem->pages[t / l->page_tokens], (i * l->page_tokens + in_page) * row,
                       to, row);
        }
    }
}

/* The units of a slot, without the room between them. */
static void copy_state(struct ebro_engine *e, const struct ebro_seq *s, struct result *r) {
    const struct eb_layout *l = &e->layout;
    r->state_bytes = l->state_bytes;
    r->state = malloc(r->state_bytes);
    uint8_t *to = r->state;
    for (uint32_t i = 0; i < l->shape.n_kda_layers * l->shape.kda_heads; i++, to += l->head_bytes)
        read_block(e, s->mem->state->blocks[i / l->heads_per_block],
                   i % l->heads_per_block * l->head_bytes, to, l->head_bytes);
    for (uint32_t i = 0; i < 3 * l->shape.n_kda_layers; i++, to += l->window_bytes)
        read_block(e, s->mem->state->blocks[l->head_blocks + i / l->windows_per_block],
                   i % l->windows_per_block * l->window_bytes, to, l->window_bytes);
}

static struct result run(ebro_model *model, ebro_device *device, uint32_t chunk,
                         const uint32_t *split, const int32_t *ids) {
    ebro_error err;
    ebro_engine *e = NULL;
    ebro_seq *s = NULL;
    const float *logits = NULL;
    uint32_t rows = 0, at = 0;
    struct result r = {0};
    ebro_engine_options o = {.size = sizeof o,
                             .n_ctx = N_TOKENS + 20,
                             .n_chunk = chunk,
                             .cache_dtype = EBRO_F32,
                             .strict = 1,
                             .keep = EBRO_KEEP_NONE};
    test_ok(ebro_engine_open(model, device, &o, &e, &err), &err);
    test_ok(ebro_seq_create(e, &s, &err), &err);
    for (uint32_t n = 0; at < N_TOKENS; at += n) {
        if (split[0] != 1) {
            n = *split++;
        } else {
            n = 1;
        }
        test_ok(ebro_seq_append(s, ids + at, n, 0, &err), &err);
        while (ebro_seq_pending(s) > 0) test_ok(ebro_engine_step(e, &err), &err);
    }
    assert_int_equal(at, N_TOKENS);
    test_ok(ebro_seq_logits(s, &logits, &rows, &err), &err);
    r.n_logits = model->config.vocab_size;
    r.logits = malloc(r.n_logits * sizeof *r.logits);
    memcpy(r.logits, logits + (rows - 1) * r.n_logits, r.n_logits * sizeof *r.logits);
    copy_state(e, s, &r);
    copy_rows(e, s, &r);
    ebro_engine_close(&e);
    return r;
}

static void every_split_of(ebro_runtime *rt, const char *name, const ebro_model_options *o,
                           const int32_t *ids) {
    ebro_error err;
    ebro_device *device = NULL;
    ebro_model *model = NULL;
    struct result first = {0};
    print_message("%s\n", name);
    test_ok(ebro_device_open(rt, test_device(), &device, &err), &err);
    test_ok(ebro_model_open(rt, o, &model, &err), &err);
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        for (size_t j = 0; j < sizeof splits / sizeof splits[0]; j++) {
            /* One token at a time is the same with every chunk size. */
            if (chunks[i] == 1 ? j != 0 : splits[j][0] == 1) continue;
            struct result r = run(model, device, chunks[i], splits[j], ids);
            if (first.logits == NULL) {
                first = r;
                continue;
            }
            if (memcmp(r.logits, first.logits, r.n_logits * sizeof *r.logits) != 0 ||
                memcmp(r.state, first.state, r.state_bytes) != 0 ||
                memcmp(r.rows, first.rows, r.row_bytes) != 0) {
                fail_msg("%s: other bytes with steps of %u tokens and split %zu", name, chunks[i],
                         j);
            }
            result_free(&r);
        }
    }
    result_free(&first);
    ebro_model_close(&model);
    ebro_device_close(&device);
}

static ebro_runtime *open_runtime(void) {
    ebro_error err;
    ebro_runtime *rt = NULL;
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&ro, &rt, &err), &err);
    return rt;
}

static void random_ids(int32_t *ids, uint32_t n) {
    struct test_rng rng = {test_seed()};
    for (int i = 0; i < N_TOKENS; i++) ids[i] = (int32_t)(test_u64(&rng) % n);
}

static void micro_models(void **state) {
    (void)state;
    test_device_needs(EBRO_CAP_STRICT);
    int32_t ids[N_TOKENS];
    ebro_runtime *rt = open_runtime();
    random_ids(ids, MICRO_RANKS);
    for (size_t i = 0; i < n_micro_cases; i++) {
        struct micro_files files = micro_make(&micro_cases[i].spec);
        ebro_model_options o = {.size = sizeof o, .files = files.files, .n_files = files.n};
        every_split_of(rt, micro_cases[i].name, &o, ids);
        micro_files_free(&files);
    }
    ebro_runtime_close(&rt);
}

static void demo_model(void **state) {
    (void)state;
    test_device_needs(EBRO_CAP_STRICT);
    int32_t ids[N_TOKENS];
    ebro_runtime *rt = open_runtime();
    random_ids(ids, 4096);
    ebro_model_options o = {.size = sizeof o, .path = test_demo_dir()};
    every_split_of(rt, "demo", &o, ids);
    ebro_runtime_close(&rt);
}

static void refusals(void **state) {
    (void)state;
    ebro_error err;
    ebro_device *device = NULL;
    ebro_model *model = NULL;
    ebro_engine *e = NULL;
    ebro_runtime *rt = open_runtime();
    ebro_model_options mo = {.size = sizeof mo, .path = test_demo_dir()};
    ebro_device_options plain = {.size = sizeof plain, .caps_mask = EBRO_CAP_STRICT};
    test_ok(ebro_model_open(rt, &mo, &model, &err), &err);
    test_ok(eb_device_open(rt, test_device(), &plain, &device, &err), &err);
    ebro_engine_options o = {.size = sizeof o, .cache_dtype = -1, .strict = 1};
    test_fails(ebro_engine_open(model, device, &o, &e, &err), EBRO_UNSUPPORTED, &err, "strict: ");
    assert_null(e);
    o.prefill_form = EBRO_MLA_EXPANDED;
    test_fails(ebro_engine_open(model, device, &o, &e, &err), EBRO_INVALID, &err, "expanded");
    assert_null(e);
    ebro_device_close(&device);
    ebro_model_close(&model);
    ebro_runtime_close(&rt);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_models),
        cmocka_unit_test(demo_model),
        cmocka_unit_test(refusals),
    };
    return test_on_devices("engine/strict", tests, NULL, NULL);
}
