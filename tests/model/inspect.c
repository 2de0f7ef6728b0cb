/* inspect.c: layers and tensors as a model tells them, against what its files hold. */
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "tests/harness/micro.h"
#include "tests/harness/test.h"

struct seen {
    const struct ebro_model *m;
    uint8_t *counts; /* by tensor index */
    uint64_t bytes, params;
    uint32_t calls, stop_at;
};

static int32_t count(void *user, const ebro_tensor_info *t) {
    struct seen *s = user;
    const struct eb_tensor *found = NULL;
    if (++s->calls == s->stop_at) return 7;
    for (uint32_t f = 0; f < s->m->n_files && found == NULL; f++)
        if (strcmp(s->m->files[f].name, t->file) == 0)
            found = eb_safetensors_find(&s->m->files[f].st, t->name);
    assert_non_null(found);
    assert_int_equal(t->size, sizeof *t);
    assert_int_equal(t->bytes, found->bytes);
    assert_int_equal(t->dtype, found->dtype);
    assert_int_equal(t->n_dims, found->n_dims);
    uint64_t elements = 1;
    for (uint32_t d = 0; d < t->n_dims; d++) {
        assert_int_equal(t->shape[d], found->shape[d]);
        elements *= t->shape[d];
    }
    const char *name = strstr(t->name, "layers.");
    assert_int_equal(t->layer, name == NULL ? -1 : atoi(name + strlen("layers.")));
    /* the name says the part too */
    bool routed = strstr(t->name, ".experts.") != NULL;
    assert_int_equal(t->part == EBRO_PART_EXPERTS, routed);
    bool shared = strstr(t->name, "shared_experts") != NULL;
    assert_int_equal(t->part == EBRO_PART_SHARED_EXPERTS, shared);
    bool mixer = strstr(t->name, "self_attn.") != NULL;
    assert_int_equal(t->part == EBRO_PART_KDA || t->part == EBRO_PART_MLA, mixer);
    assert_int_equal(t->part == EBRO_PART_DENSE_FFN, strstr(t->name, ".mlp.") != NULL);
    assert_int_equal(t->part == EBRO_PART_EMBEDDING, strstr(t->name, "embed_tokens") != NULL);
    assert_int_equal(t->part == EBRO_PART_HEAD, strstr(t->name, "lm_head") != NULL);
    if (strstr(t->name, "weight_scale") != NULL)
        assert_int_equal(t->n_params, 0);
    else if (strstr(t->name, "weight_packed") != NULL)
        assert_int_equal(t->n_params, 2 * elements);
    else
        assert_int_equal(t->n_params, elements);
    s->counts[found->index]++;
    s->bytes += t->bytes;
    s->params += t->n_params;
    return 0;
}

static void tensors(void **state) {
    (void)state;
    ebro_error err;
    ebro_runtime *rt = NULL;
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&ro, &rt, &err), &err);
    for (size_t i = 0; i < n_micro_cases; i++) {
        ebro_model *m = NULL;
        struct micro_files f = micro_make(&micro_cases[i].spec);
        ebro_model_options mo = {.size = sizeof mo, .files = f.files, .n_files = f.n};
        test_ok(ebro_model_open(rt, &mo, &m, &err), &err);
        struct seen s = {.m = m, .counts = calloc(m->n_tensors, 1)};
        assert_non_null(s.counts);
        assert_int_equal(ebro_model_each_tensor(m, count, &s), 0);
        for (uint32_t t = 0; t < m->n_tensors; t++) assert_true(s.counts[t] <= 1);
        ebro_model_info info;
        ebro_model_get_info(m, &info);
        assert_int_equal(s.bytes, info.weight_bytes);
        s.stop_at = s.calls + 3;
        assert_int_equal(ebro_model_each_tensor(m, count, &s), 7);
        assert_int_equal(s.calls, s.stop_at);
        free(s.counts);

        for (uint32_t l = 0; l < info.n_layers; l++) {
            ebro_layer_info y = {.size = sizeof y};
            test_ok(ebro_model_get_layer(m, l, &y, &err), &err);
            assert_int_equal(y.is_kda, m->layers[l].is_kda);
            assert_int_equal(y.is_moe, micro_cases[i].spec.ffn != MICRO_DENSE && l > 0);
            assert_int_equal(y.n_experts, y.is_moe ? MICRO_EXPERTS : 0);
            assert_int_equal(y.top_k, y.is_moe ? MICRO_TOP_K : 0);
        }
        ebro_layer_info y = {.size = sizeof y};
        test_fails(ebro_model_get_layer(m, info.n_layers, &y, &err), EBRO_INVALID, &err, "0 to");
        y.size = 0;
        test_fails(ebro_model_get_layer(m, 0, &y, &err), EBRO_INVALID, &err, "size is 0");
        ebro_model_close(&m);
        micro_files_free(&f);
    }
    ebro_runtime_close(&rt);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tensors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
