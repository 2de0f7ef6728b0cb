/* estimate.c: what an engine is said to take, against what it does take, and against the published
 * sizes of Kimi Linear 48B and Kimi K3, from their configurations alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "model/config.h"
#include "tests/harness/micro.h"
#include "tests/harness/test.h"

enum { PUBLISHED_MAX_LAYERS = 128 };

/* Exactly what the engine's own allocations hold once its sequences have filled the budget. */
static void compare(ebro_model *model, ebro_device *device, const ebro_engine_options *o) {
    ebro_error err;
    ebro_engine *engine = NULL;
    ebro_seq *seq = NULL;
    ebro_estimate x;
    memset(&x, 0xa5, sizeof x);
    x.size = sizeof x;
    test_ok(ebro_model_estimate(model, device, o, &x, &err), &err);
    test_ok(ebro_engine_open(model, device, o, &engine, &err), &err);
    assert_int_equal(x.n_ctx, engine->n_ctx);
    assert_int_equal(x.n_chunk, engine->n_chunk);
    assert_int_equal(x.cache_dtype, engine->layout.shape.row_dtype);
    assert_int_equal(x.workspace_bytes, engine->work.mem->bytes);
    assert_int_equal(x.cache_token_bytes, engine->layout.row_bytes);
    int32_t id = 0;
    test_ok(ebro_seq_create(engine, &seq, &err), &err);
    test_ok(ebro_seq_append(seq, &id, 1, 0, &err), &err);
    uint64_t logits = engine->batch_logits == NULL ? 0 : engine->batch_logits->bytes;
    assert_int_equal(x.other_bytes, engine->step.mem->bytes + engine->readback->bytes + logits +
                                        engine->max_seqs * seq->logits->bytes);
    /* every block that the budget allows */
    test_ok(eb_blocks_reserve(&engine->mem.blocks, engine->mem.blocks.limit, &err), &err);
    uint64_t extents = 0;
    for (size_t i = 0; i < engine->n_extents; i++) extents += engine->extents[i]->bytes;
    assert_int_equal(x.memory_bytes, extents);
    uint64_t live = x.state_bytes + x.window_bytes + x.cache_bytes + x.rounding_bytes;
    assert_int_equal(x.memory_bytes, live + x.kept_bytes);
    assert_int_equal(live, eb_manager_estimate(&engine->layout, engine->max_seqs, engine->n_ctx));
    assert_int_equal(x.total_bytes, x.weights_in_place + x.weights_copied + x.memory_bytes +
                                        x.workspace_bytes + x.other_bytes);
    ebro_engine_close(&engine);
}

static int32_t ignore(void *user, const char *label, float fraction) {
    (void)user, (void)label, (void)fraction;
    return 0;
}

static void agrees(void **state) {
    (void)state;
    ebro_error err;
    ebro_runtime *rt = NULL;
    ebro_device *device = NULL;
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&ro, &rt, &err), &err);
    test_ok(ebro_device_open(rt, "cpu", &device, &err), &err);
    for (size_t i = 0; i < n_micro_cases; i++) {
        ebro_model *model = NULL;
        struct micro_files f = micro_make(&micro_cases[i].spec);
        ebro_model_options mo = {.size = sizeof mo, .files = f.files, .n_files = f.n};
        test_ok(ebro_model_open(rt, &mo, &model, &err), &err);
        ebro_model_info info;
        ebro_model_get_info(model, &info);

        const ebro_engine_options ways[] = {
            {.size = sizeof ways[0], .n_ctx = 200, .n_chunk = 7, .cache_dtype = EBRO_F16},
            {.size = sizeof ways[0],
             .n_ctx = 64,
             .cache_dtype = EBRO_F32,
             .progress = ignore,
             .max_seqs = 3},
            {.size = sizeof ways[0],
             .n_ctx = 65,
             .cache_dtype = -1,
             .strict = 1,
             .keep = EBRO_KEEP_NONE}};
        for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) compare(model, device, &ways[k]);
        compare(model, device, NULL);

        ebro_estimate x = {.size = sizeof x};
        test_ok(ebro_model_estimate(model, device, &ways[0], &x, &err), &err);
        assert_int_equal(x.state_bytes + x.window_bytes, 2 * info.state_bytes);
        assert_int_equal(x.cache_token_bytes, 2 * info.cache_row_elements);
        /* copies are rounded up, and the tables of experts come on top */
        assert_true(x.weights_in_place + x.weights_copied >= info.weight_bytes);
        ebro_model_close(&model);
        micro_files_free(&f);
    }
    ebro_device_close(&device);
    ebro_runtime_close(&rt);
}

static void refuses(void **state) {
    (void)state;
    ebro_error err;
    ebro_runtime *rt = NULL;
    ebro_device *device = NULL;
    ebro_model *model = NULL;
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&ro, &rt, &err), &err);
    test_ok(ebro_device_open(rt, "cpu", &device, &err), &err);
    struct micro_files f = micro_make(&micro_cases[0].spec);
    ebro_model_options mo = {.size = sizeof mo, .files = f.files, .n_files = f.n};
    test_ok(ebro_model_open(rt, &mo, &model, &err), &err);
    ebro_estimate x = {.size = sizeof x};
    ebro_engine_options o = {.size = sizeof o, .cache_dtype = EBRO_I32};
    test_fails(ebro_model_estimate(model, device, &o, &x, &err), EBRO_INVALID, &err, "cache dtype");
    o = (ebro_engine_options){.size = sizeof o, .n_ctx = UINT32_MAX};
    test_fails(ebro_model_estimate(model, device, &o, &x, &err), EBRO_INVALID, &err, "context of");
    o = (ebro_engine_options){.size = sizeof o, .memory_bytes = 1};
    test_fails(ebro_model_estimate(model, device, &o, &x, &err), EBRO_NOMEM_DEVICE, &err,
               "a cache of 1 bytes holds no sequence");
    test_fails(ebro_model_estimate(NULL, device, NULL, &x, &err), EBRO_INVALID, &err, "NULL");
    x.size = 1;
    test_fails(ebro_model_estimate(model, device, NULL, &x, &err), EBRO_INVALID, &err, "size is 1");
    assert_int_equal(x.total_bytes, 0);
    /* a caller that knows the first fields alone gets no more */
    unsigned char small[offsetof(ebro_estimate, state_bytes) + 8];
    memset(small, 0xa5, sizeof small);
    size_t size = offsetof(ebro_estimate, state_bytes);
    memcpy(small, &size, sizeof size);
    test_ok(ebro_model_estimate(model, device, NULL, (ebro_estimate *)(void *)small, &err), &err);
    for (size_t i = size; i < sizeof small; i++) assert_int_equal(small[i], 0xa5);
    ebro_model_close(&model);
    ebro_device_close(&device);
    ebro_runtime_close(&rt);
    micro_files_free(&f);
}

struct published {
    const char *config;
    uint32_t n_layers, n_kda;
    uint64_t state_bytes, f16_bytes_per_token;
};

/* The numbers of the models' own config.json; the sizes follow from the papers' formulas:
 * layers x heads x 128 x 128 x 4 bytes, and layers x (512 + 64) x 2 bytes. */
static const struct published published[] = {
    {"{\"vocab_size\": 163840, \"hidden_size\": 2304, \"intermediate_size\": 9216,"
     "\"num_hidden_layers\": 27, \"num_attention_heads\": 32, \"num_key_value_heads\": 32,"
     "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, \"kv_lora_rank\": 512,"
     "\"q_lora_rank\": null, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64,"
     "\"v_head_dim\": 128, \"mla_use_nope\": true, \"num_experts\": 256,"
     "\"num_experts_per_token\": 8, \"num_shared_experts\": 1, \"moe_intermediate_size\": 1024,"
     "\"routed_scaling_factor\": 2.446, \"moe_renormalize\": true,"
     "\"moe_router_activation_func\": \"sigmoid\", \"first_k_dense_replace\": 1,"
     "\"moe_layer_freq\": 1, \"linear_attn_config\": {\"full_attn_layers\": [4, 8, 12, 16, 20,"
     "24, 27], \"head_dim\": 128, \"kda_layers\": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17,"
     "18, 19, 21, 22, 23, 25, 26], \"num_heads\": 32, \"short_conv_kernel_size\": 4},"
     "\"bos_token_id\": 163584, \"eos_token_id\": 163586, \"tie_word_embeddings\": false,"
     "\"num_expert_group\": 1, \"topk_group\": 1, \"model_max_length\": 1048576}",
     27, 20, 40ull << 20, 8064},
    {NULL, 93, 69, 414ull << 20, 27648},
};

/* K3's list of 69 KDA layers is written out by the rule: every fourth, and the last, are MLA. */
static char *k3_config(void) {
    char *text = calloc(1, 8192);
    assert_non_null(text);
    size_t n = (size_t)snprintf(
        text, 8192,
        "{\"vocab_size\": 163840, \"hidden_size\": 7168, \"intermediate_size\": 33792,"
        "\"num_hidden_layers\": 93, \"num_attention_heads\": 96, \"num_key_value_heads\": 96,"
        "\"hidden_act\": \"situ\", \"activation_situ_beta\": 4.0,"
        "\"activation_situ_linear_beta\": 25.0, \"rms_norm_eps\": 1e-05, \"kv_lora_rank\": 512,"
        "\"q_lora_rank\": 1536, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64,"
        "\"v_head_dim\": 128, \"mla_use_nope\": true, \"mla_use_output_gate\": true,"
        "\"num_experts\": 896, \"num_experts_per_token\": 16, \"num_shared_experts\": 2,"
        "\"moe_intermediate_size\": 3072, \"routed_expert_hidden_size\": 3584,"
        "\"latent_moe_use_norm\": true, \"routed_scaling_factor\": 1.0, \"moe_renormalize\": true,"
        "\"moe_router_activation_func\": \"sigmoid\", \"first_k_dense_replace\": 1,"
        "\"moe_layer_freq\": 1, \"attn_res_block_size\": 12, \"bos_token_id\": 163584,"
        "\"eos_token_id\": 163586, \"tie_word_embeddings\": false, \"num_expert_group\": 1,"
        "\"topk_group\": 1, \"max_position_embeddings\": 1048576, \"linear_attn_config\":"
        "{\"gate_lower_bound\": -5.0, \"head_dim\": 128, \"num_heads\": 96,"
        "\"short_conv_kernel_size\": 4, \"use_full_rank_gate\": true, \"kda_layers\": [");
    for (int mla = 0; mla < 2; mla++) {
        const char *comma = "";
        for (int l = 1; l <= 93; l++) {
            if ((l % 4 == 0 || l == 93) != (mla == 1)) continue;
            n += (size_t)snprintf(text + n, 8192 - n, "%s%d", comma, l);
            comma = ", ";
        }
        n += (size_t)snprintf(text + n, 8192 - n, mla ? "]}}" : "], \"full_attn_layers\": [");
    }
    return text;
}

static void published_sizes(void **state) {
    (void)state;
    const struct eb_alloc alloc = {0};
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        const struct published *p = &published[i];
        ebro_error err;
        struct eb_bytes bytes;
        struct eb_json doc;
        struct eb_config_file file;
        struct ebro_model m = {0};
        struct eb_layer layers[PUBLISHED_MAX_LAYERS];
        char *made = p->config == NULL ? k3_config() : NULL;
        const char *text = made != NULL ? made : p->config;
        memset(layers, 0, sizeof layers);
        eb_bytes_borrow(text, strlen(text), &bytes);
        test_ok(eb_json_open("config.json", &bytes, &doc, &err), &err);
        struct eb_json_node root = eb_json_root(&doc);
        test_ok(eb_config_read(&alloc, &root, &root, &file, &err), &err);
        assert_int_equal(file.c.n_layers, p->n_layers);
        for (uint32_t l = 0; l < p->n_layers; l++)
            layers[l].is_kda = (file.layers[l] & EB_LAYER_KDA) != 0;
        m.config = file.c;
        m.layers = layers;
        assert_int_equal(eb_model_count_kda(&m), p->n_kda);

        struct eb_shape shape = eb_engine_shape(&m, EBRO_F16);
        struct eb_layout l;
        test_ok(eb_layout_plan(&shape, &l, &err), &err);
        uint64_t windows = (uint64_t)p->n_kda * 3 * 3 * shape.kda_heads * shape.kda_head_dim * 4;
        assert_int_equal(l.state_bytes - windows, p->state_bytes);
        assert_int_equal(l.row_bytes, p->f16_bytes_per_token);
        print_message(
            "block %llu bytes, page %u tokens, rounding %.2f%% of a page, %.2f%% of a "
            "slot\n",
            (unsigned long long)l.block_bytes, l.page_tokens, 100 * eb_layout_page_waste(&l),
            100 * eb_layout_slot_waste(&l));
        assert_true(eb_layout_page_waste(&l) < 0.03 && eb_layout_slot_waste(&l) < 0.03);
        eb_free(&alloc, file.layers);
        eb_json_close(&doc);
        eb_bytes_close(&bytes);
        free(made);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(agrees), cmocka_unit_test(refuses),
                                       cmocka_unit_test(published_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
