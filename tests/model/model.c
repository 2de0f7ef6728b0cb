/* model.c: models that are opened: as they are published, with every switch, and what is left when
 * memory runs out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/failing.h"
#include "tests/model/opening.h"

/* ---- models as they are ----------------------------------------------------------------- */

static void round_trip(const ebro_model *m, const char *text) {
    int32_t ids[256];
    size_t n = 0, at = 0;
    char back[512];
    ebro_error err = {0};
    test_ok(ebro_tokenize(m, text, strlen(text), 0, ids, 256, &n, &err), &err);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = 0;
        int32_t special = 1;
        const char *p = ebro_token_bytes(m, ids[i], &bytes, &special);
        assert_non_null(p);
        assert_int_equal(special, 0);
        assert_true(at + bytes <= sizeof back);
        memcpy(back + at, p, bytes);
        at += bytes;
    }
    assert_int_equal(at, strlen(text));
    assert_memory_equal(back, text, at);
    size_t want = n;
    if (n > 1)
        test_fails(ebro_tokenize(m, text, strlen(text), 0, ids, n - 1, &n, &err), EBRO_INVALID,
                   &err, "do not fit");
    assert_int_equal(n, want);
}

static void check_chat(const ebro_model *m) {
    const ebro_chat_message messages[] = {{"user", "Hello", NULL}};
    int32_t ids[256];
    size_t n = 0;
    ebro_error err = {0};
    test_ok(ebro_chat_tokenize(m, messages, 1, NULL, ids, 256, &n, &err), &err);
    assert_true(n > 3);
    int32_t special = 0;
    assert_non_null(ebro_token_bytes(m, ids[0], NULL, &special));
    assert_int_equal(special, 1);
}

static void test_demo(void **state) {
    (void)state;
    ebro_model *m = NULL;
    ebro_error err = {0};
    ebro_model_info info;
    test_ok(open_path(test_demo_dir(), &m, &err), &err);
    ebro_model_get_info(m, &info);
    assert_string_equal(info.architecture, "kimi-k3");
    assert_int_equal(info.n_layers, 9);
    assert_int_equal(info.n_kda_layers, 6);
    assert_int_equal(info.n_mla_layers, 3);
    assert_int_equal(info.hidden, 256);
    assert_int_equal(info.vocab, 4352);
    assert_int_equal(info.max_context, 8192);
    /* The whole file but its header: every tensor in it is used. */
    assert_int_equal(info.weight_bytes, 25492496 - 8 - 139528);
    assert_int_equal(info.state_bytes, 6 * (3 * 128 * 128 * 4 + 3 * 3 * 384 * 4));
    assert_int_equal(info.cache_row_elements, 3 * 576);
    assert_int_equal(m->config.mla_gate, EB_MLA_GATE_ELEMENT);
    assert_true(m->config.kda_gate_bounded && m->config.kda_full_rank_gate);
    assert_true(m->config.gate_lower_bound == -5.0f);
    assert_int_equal(m->config.act, EBRO_ACT_SITU);
    assert_int_equal(m->config.latent_size, 128);
    assert_int_equal(m->config.attn_res_block, 4);
    assert_int_equal(m->config.rotary_dim, 0);
    assert_true(m->config.latent_norm_eps == 1e-6f && m->config.rms_norm_eps == 1e-5f);
    assert_false(m->layers[0].is_moe);
    assert_true(m->layers[1].is_moe && m->layers[1].is_kda && !m->layers[3].is_kda);
    assert_int_equal(m->layers[1].experts[2][15].dtype, EBRO_MXFP4);
    assert_int_equal(m->layers[1].experts[2][15].rows, 128);
    assert_string_equal(
        m->layers[1].experts[1][7].w->name,
        "language_model.model.layers.1.block_sparse_moe.experts.7.w3.weight_packed");
    assert_int_equal(ebro_token_bos(m), 4096);
    assert_int_equal(ebro_token_is_stop(m, 4098), 1);
    assert_int_equal(ebro_token_is_stop(m, 4097), 0);
    round_trip(m, "The quick brown fox, 12345 times.\n");
    check_chat(m);
    assert_null(ebro_token_bytes(m, 4352, NULL, NULL));
    ebro_model_close(&m);
    assert_null(m);
    ebro_model_close(&m);
    ebro_model_close(NULL);
}

static void test_linear_tiny(void **state) {
    (void)state;
    char path[1024];
    if (test_models_dir() == NULL) {
        print_message("skipped: EBRO_TEST_MODELS is not set\n");
        skip();
    }
    snprintf(path, sizeof path, "%s/kimi-linear-tiny", test_models_dir());
    ebro_model *m = NULL;
    ebro_error err = {0};
    ebro_model_info info;
    test_ok(open_path(path, &m, &err), &err);
    ebro_model_get_info(m, &info);
    assert_string_equal(info.architecture, "kimi-linear");
    assert_int_equal(info.n_kda_layers, 6);
    assert_int_equal(info.n_mla_layers, 2);
    assert_int_equal(info.max_context, 8192);
    assert_int_equal(m->config.mla_gate, EB_MLA_GATE_NONE);
    assert_false(m->config.kda_gate_bounded || m->config.kda_full_rank_gate);
    round_trip(m, "Hello, world");
    check_chat(m);
    ebro_model_close(&m);
}

static void check_micro(const ebro_model *m, const struct micro_spec *s) {
    const struct eb_config *c = &m->config;
    ebro_model_info info;
    ebro_model_get_info(m, &info);
    assert_string_equal(info.architecture, s->family == MICRO_K3 ? "kimi-k3" : "kimi-linear");
    const char *pattern = s->pattern != NULL ? s->pattern : "KKKM";
    assert_int_equal(info.n_layers, strlen(pattern));
    bool has_mla = false;
    for (uint32_t l = 0; l < info.n_layers; l++) {
        assert_int_equal(m->layers[l].is_kda, pattern[l] == 'K');
        assert_int_equal(m->layers[l].is_moe, s->ffn != MICRO_DENSE && l > 0);
        has_mla |= pattern[l] == 'M';
    }
    assert_int_equal(c->kda_gate_bounded, s->bounded_gate);
    assert_int_equal(c->kda_full_rank_gate, s->full_rank_gate);
    assert_int_equal(c->rotary_dim, s->rotary ? MICRO_ROPE : 0);
    assert_int_equal(c->q_lora_rank, s->q_lora ? MICRO_Q_LORA : 0);
    if (has_mla) assert_int_equal((int)c->mla_gate, (int)s->mla_gate);
    assert_int_equal(c->latent_size, s->ffn == MICRO_LATENT ? MICRO_LATENT_WIDTH : 0);
    assert_int_equal(c->attn_res_block, s->attn_res_block);
    assert_int_equal(c->act, s->situ ? EBRO_ACT_SITU : EBRO_ACT_SILU);
    assert_ptr_equal(m->lm_head.w == m->embed.w, s->tied);
    assert_int_equal(m->embed.dtype, s->dtype);
    if (s->ffn != MICRO_DENSE) {
        assert_int_equal(c->renormalise, !s->no_renormalise);
        assert_int_equal(m->layers[1].experts[0][0].dtype,
                         s->mxfp4 || s->mxfp4_all ? EBRO_MXFP4 : s->dtype);
        assert_int_equal(m->layers[1].experts[2][3].cols, MICRO_MOE_INNER);
    }
    assert_int_equal(ebro_token_bos(m), 256);
    assert_int_equal(ebro_token_is_stop(m, 257), 1);
    assert_int_equal(ebro_token_is_stop(m, s->family == MICRO_K3 ? 266 : 262), 1);
    round_trip(m, "any \xff bytes");
    check_chat(m);
}

static void try_micro(const char *name, const struct micro_spec *spec) {
    ebro_model *m = NULL;
    ebro_error err = {0};
    struct micro_files f = micro_make(spec);
    int32_t st = open_files(&f, &m, &err);
    if (st != EBRO_OK) print_error("%s\n", name);
    test_ok(st, &err);
    check_micro(m, spec);
    ebro_model_close(&m);
    micro_files_free(&f);
}

static void test_micro(void **state) {
    (void)state;
    for (size_t i = 0; i < n_micro_cases; i++) try_micro(micro_cases[i].name, &micro_cases[i].spec);
    const struct micro_spec packed = {.family = MICRO_K3,
                                      .ffn = MICRO_LATENT,
                                      .full_rank_gate = true,
                                      .q_lora = true,
                                      .mla_gate = MICRO_GATE_ELEMENT,
                                      .mxfp4_all = true};
    try_micro("all packed", &packed);
}

/* Every combination of the switches that change which tensors there are. */
static void test_combinations(void **state) {
    (void)state;
    static const int32_t dtypes[] = {EBRO_F32, EBRO_F16, EBRO_BF16};
    for (uint32_t i = 0; i < 2 * 2 * 2 * 2 * 3 * 3 * 2; i++) {
        uint32_t k = i;
        struct micro_spec s = {.seed = i, .pattern = "KM", .dtype = dtypes[i % 3]};
        s.family = k % 2 != 0 ? MICRO_K3 : MICRO_LINEAR;
        s.full_rank_gate = (k /= 2) % 2 != 0;
        s.q_lora = (k /= 2) % 2 != 0;
        s.attn_res_block = (k /= 2) % 2;
        s.mla_gate = (enum micro_gate)((k /= 2) % 3);
        s.ffn = (enum micro_ffn)((k /= 3) % 3);
        s.tied = k / 3 % 2 != 0;
        s.mxfp4 = i % 5 == 0;
        try_micro("combination", &s);
    }
}

static void test_folder(void **state) {
    (void)state;
    char *dir = test_tmp_dir();
    for (uint32_t shards = 0; shards <= 3; shards += 3) {
        struct micro_spec s = {.seed = 7, .ffn = MICRO_MOE, .n_shards = shards};
        char *sub = shards == 0 ? dir : test_tmp_dir();
        ebro_model *m = NULL;
        ebro_error err = {0};
        micro_write(sub, &s);
        test_ok(open_path(sub, &m, &err), &err);
        assert_int_equal(m->n_files, shards == 0 ? 1 : shards);
        check_micro(m, &s);
        ebro_model_close(&m);
        if (sub != dir) test_tmp_remove(&sub);
    }
    test_tmp_remove(&dir);
}
/* ---- out of memory ---------------------------------------------------------------------- */

static void sweep(const ebro_model_options *o) {
    struct failing f = {.fail_at = SIZE_MAX};
    const ebro_runtime_options ro = {.size = sizeof ro,
                                     .realloc = failing_realloc,
                                     .realloc_user = &f,
                                     .module_dir = test_module_dir()};
    ebro_runtime *r = NULL;
    ebro_error err = {0};
    test_ok(ebro_runtime_open(&ro, &r, &err), &err);
    const size_t held = f.n_held;
    int32_t st = EBRO_NOMEM_HOST;
    size_t n = 0;
    for (; st != EBRO_OK; n++) {
        ebro_model *m = NULL;
        memset(&err, 0, sizeof err);
        f.n_calls = 0;
        f.fail_at = n;
        st = ebro_model_open(r, o, &m, &err);
        if (st != EBRO_OK) {
            test_fails(st, EBRO_NOMEM_HOST, &err, NULL);
            assert_null(m);
        }
        ebro_model_close(&m);
        assert_int_equal(f.n_held, held);
    }
    print_message("%zu allocations failed in turn\n", n - 1);
    assert_true(n > 20);
    f.fail_at = SIZE_MAX;
    ebro_runtime_close(&r);
    assert_int_equal(f.n_held, 0);
}

static void test_out_of_memory(void **state) {
    (void)state;
    struct micro_spec s = {.ffn = MICRO_LATENT, .n_shards = 3, .attn_res_block = 2};
    struct micro_files f = micro_make(&s);
    const ebro_model_options memory = {.size = sizeof memory, .files = f.files, .n_files = f.n};
    sweep(&memory);
    char *dir = test_tmp_dir();
    micro_write(dir, &s);
    const ebro_model_options folder = {.size = sizeof folder, .path = dir};
    sweep(&folder);
    test_tmp_remove(&dir);
    micro_files_free(&f);
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_demo),   cmocka_unit_test(test_linear_tiny),
        cmocka_unit_test(test_micro),  cmocka_unit_test(test_combinations),
        cmocka_unit_test(test_folder), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
