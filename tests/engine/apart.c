/* apart.c: the whole forward with weights that lie in several memories, since none may be larger
 * than what the model has that must be whole: the logits are those of the float64 forward. */
#include <stdlib.h>

#include "engine/engine.h"
#include "model/load.h"
#include "model/plan.h"
#include "tests/harness/devices.h"
#include "tests/harness/micro.h"
#include "tests/harness/reference.h"
#include "tests/harness/test.h"

enum { N_TOKENS = 40, N_LAST = 4 };

/* As of micro.c: float32 through random layers lands near 3e-7, a wrong row moves logits by 1e-2.
 */
static const double bound = 2e-5;

/* The least that an allocation must take: what is never cut, and a row of what is. */
static int32_t least(void *user, const struct eb_plan_entry *entry, ebro_error *err) {
    const struct eb_tensor *t = entry->tensor;
    uint64_t bytes = entry->by_rows ? t->bytes / t->shape[0] : t->bytes, *most = user;
    (void)err;
    bytes = (bytes + 255) / 256 * 256;
    if (bytes > *most) *most = bytes;
    return EBRO_OK;
}

struct cuts {
    const struct eb_weights *w;
    uint32_t matrices, parts;
};

static void count_parts(struct cuts *c, const struct eb_matrix *m) {
    uint32_t n = 0, first = 0, next;
    for (; m->w != NULL && first < m->rows; first = next, n++) {
        ebro_weight w = eb_weight_part(c->w, m, first, &next);
        assert_true(next > first && next <= m->rows && w.rows == next - first);
    }
    c->matrices += n > 1;
    c->parts += n;
}

/* The engine's weights once more, in small memories. */
static struct cuts reload(ebro_engine *engine) {
    ebro_error err = {0};
    ebro_device *d = engine->device;
    const uint64_t most = d->caps.max_alloc_bytes;
    uint64_t small = 0;
    test_ok(eb_plan_each_part(engine->model, least, &small, &err), &err);
    eb_weights_free(&engine->weights);
    d->caps.max_alloc_bytes = small;
    test_ok(eb_weights_load(engine->model, &engine->stream, NULL, &engine->weights, &err), &err);
    d->caps.max_alloc_bytes = most;
    struct cuts c = {.w = engine->weights};
    count_parts(&c, &engine->model->embed);
    assert_int_equal(c.matrices, 1);
    count_parts(&c, &engine->model->lm_head);
    for (uint32_t l = 0; l < engine->model->config.n_layers; l++) {
        count_parts(&c, &engine->model->layers[l].q_proj);
        count_parts(&c, &engine->model->layers[l].o_proj);
        count_parts(&c, &engine->model->layers[l].down_proj);
    }
    return c;
}

static double forward_error(ebro_model *model, ebro_device *device, uint32_t chunk,
                            const int32_t *ids, const double *ref, struct cuts *cuts) {
    ebro_error err = {0};
    ebro_engine *engine = NULL;
    ebro_seq *seq = NULL;
    const float *logits = NULL;
    uint32_t rows = 0;
    ebro_engine_options o = {.size = sizeof o,
                             .keep = EBRO_KEEP_NONE,
                             .n_ctx = 64,
                             .n_chunk = chunk,
                             .cache_dtype = EBRO_F32};
    test_ok(ebro_engine_open(model, device, &o, &engine, &err), &err);
    *cuts = reload(engine);
    test_ok(ebro_seq_create(engine, &seq, &err), &err);
    test_ok(ebro_seq_append(seq, ids, N_TOKENS, N_LAST, &err), &err);
    while (ebro_seq_pending(seq) > 0) test_ok(ebro_engine_step(engine, &err), &err);
    test_ok(ebro_seq_logits(seq, &logits, &rows, &err), &err);
    assert_int_equal(rows, N_LAST);
    double error = test_rel_fro(logits, ref, (uint64_t)N_LAST * MICRO_VOCAB);
    ebro_engine_close(&engine);
    return error;
}

static void check_case(ebro_runtime *rt, ebro_device *device, const struct micro_case *c,
                       const int32_t *ids) {
    ebro_error err = {0};
    ebro_model *model = NULL;
    struct cuts cuts = {0};
    size_t vocab = 0;
    char *dir = test_tmp_dir();
    micro_write(dir, &c->spec);
    double *ref = test_reference_logits(dir, ids, N_TOKENS, N_LAST, &vocab);
    assert_int_equal(vocab, MICRO_VOCAB);
    ebro_model_options mo = {.size = sizeof mo, .path = dir};
    test_ok(ebro_model_open(rt, &mo, &model, &err), &err);
    for (uint32_t chunk = 1; chunk <= 17; chunk += 16) {
        double error = forward_error(model, device, chunk, ids, ref, &cuts);
        test_le(error, bound, "%s, chunk %u", c->name, chunk);
    }
    print_message("%s: %u of its matrices are cut, %u parts\n", c->name, cuts.matrices, cuts.parts);
    free(ref);
    ebro_model_close(&model);
    test_tmp_remove(&dir);
}

static void every_switch(void **state) {
    (void)state;
    ebro_error err = {0};
    ebro_runtime *rt = NULL;
    ebro_device *device = NULL;
    struct test_rng rng = {test_seed()};
    int32_t ids[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) ids[i] = (int32_t)(test_u64(&rng) % MICRO_VOCAB);
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    const ebro_device_options copied = {.size = sizeof copied, .caps_mask = EBRO_CAP_UNIFIED};
    test_ok(ebro_runtime_open(&ro, &rt, &err), &err);
    test_ok(eb_device_open(rt, test_device(), &copied, &device, &err), &err);
    for (size_t i = 0; i < n_micro_cases; i++) {
        /* The reference reads one file, and packed experts only. */
        if (micro_cases[i].spec.n_shards > 0 || micro_cases[i].spec.mxfp4_all) continue;
        check_case(rt, device, &micro_cases[i], ids);
    }
    ebro_device_close(&device);
    ebro_runtime_close(&rt);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_switch)};
    return test_on_fast_devices("engine/apart", tests, NULL, NULL);
}
