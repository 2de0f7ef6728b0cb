/* refused.c: models that are not opened: every key, tensor and file that is missing, extra or
 * wrong, by its name. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/model/opening.h"

/* Opens, expects an error that holds `part`, and that nothing came out. */
static void refuse(const struct micro_files *f, int32_t status, const char *part) {
    ebro_model *m = NULL;
    ebro_error err = {0};
    int32_t st = open_files(f, &m, &err);
    test_fails(st, status, &err, part);
    test_fails(st, status, &err, "while opening the model in memory");
    assert_null(m);
}

static void accept_files(const struct micro_files *f) {
    ebro_model *m = NULL;
    ebro_error err = {0};
    test_ok(open_files(f, &m, &err), &err);
    ebro_model_close(&m);
    assert_null(m);
}

/* Puts a text in the place of a file's bytes. */
static void replace(struct micro_files *f, const char *name, char *text) {
    ebro_file *file = micro_file(f, name);
    assert_true(file != NULL && text != NULL);
    free((void *)(uintptr_t)file->data);
    file->data = text;
    file->bytes = strlen(text);
}

static json_t *load_config(const struct micro_files *f) {
    const ebro_file *file = micro_file(f, "config.json");
    json_t *root = json_loadb(file->data, file->bytes, 0, NULL);
    assert_non_null(root);
    return root;
}

/* The object that holds a key named "a.b.c" and, in *last, "c". */
static json_t *holder(json_t *root, const char *key, char last[64]) {
    const char *dot;
    while ((dot = strchr(key, '.')) != NULL) {
        char part[64] = {0};
        memcpy(part, key, (size_t)(dot - key));
        root = json_object_get(root, part);
        assert_non_null(root);
        key = dot + 1;
    }
    snprintf(last, 64, "%s", key);
    return root;
}

/* value: JSON text; NULL: the key is taken out. */
static void edit(struct micro_files *f, const char *key, const char *value) {
    char last[64];
    json_t *root = load_config(f), *in = holder(root, key, last);
    if (value == NULL) {
        assert_int_equal(json_object_del(in, last), 0);
    } else {
        json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
        assert_non_null(v);
        assert_int_equal(json_object_set_new(in, last, v), 0);
    }
    replace(f, "config.json", json_dumps(root, JSON_COMPACT));
    json_decref(root);
}
/* ---- configuration ---------------------------------------------------------------------- */

static const struct micro_spec full_spec = {.seed = 3, .ffn = MICRO_MOE, .situ = true};

static void test_missing_keys(void **state) {
    (void)state;
    static const char *const keys[] = {"architectures",
                                       "vocab_size",
                                       "hidden_size",
                                       "intermediate_size",
                                       "num_hidden_layers",
                                       "rms_norm_eps",
                                       "num_attention_heads",
                                       "kv_lora_rank",
                                       "qk_nope_head_dim",
                                       "qk_rope_head_dim",
                                       "v_head_dim",
                                       "mla_use_nope",
                                       "hidden_act",
                                       "activation_situ_beta",
                                       "activation_situ_linear_beta",
                                       "linear_attn_config",
                                       "linear_attn_config.full_attn_layers",
                                       "linear_attn_config.kda_layers",
                                       "linear_attn_config.num_heads",
                                       "linear_attn_config.head_dim",
                                       "linear_attn_config.short_conv_kernel_size",
                                       "num_experts",
                                       "num_experts_per_token",
                                       "moe_intermediate_size",
                                       "routed_scaling_factor",
                                       "moe_renormalize",
                                       "moe_router_activation_func",
                                       "first_k_dense_replace"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char part[96];
        struct micro_files f = micro_make(&full_spec);
        edit(&f, keys[i], NULL);
        snprintf(part, sizeof part, "config.json: no key \"%s\"", keys[i]);
        refuse(&f, EBRO_FORMAT, part);
        micro_files_free(&f);
    }
    struct micro_spec k3 = {.family = MICRO_K3};
    struct micro_files f = micro_make(&k3);
    edit(&f, "text_config.hidden_size", NULL);
    refuse(&f, EBRO_FORMAT, "no key \"text_config.hidden_size\"");
    edit(&f, "text_config", NULL);
    refuse(&f, EBRO_FORMAT, "no key \"text_config\"");
    micro_files_free(&f);
}

static void test_values(void **state) {
    (void)state;
    static const struct {
        const char *key, *value;
        int32_t status;
        const char *part;
    } cases[] = {
        {"architectures", "[\"LlamaForCausalLM\"]", EBRO_UNSUPPORTED,
         "\"LlamaForCausalLM\" (known: KimiLinearForCausalLM, KimiK3ForConditionalGeneration)"},
        {"architectures", "[]", EBRO_FORMAT, "architectures[0]"},
        {"hidden_size", "\"64\"", EBRO_FORMAT,
         "wanted an integer from 1 to 1048576, found a string"},
        {"hidden_size", "64.0", EBRO_FORMAT, "found a real number"},
        {"hidden_size", "-64", EBRO_FORMAT, "found -64"},
        {"hidden_size", "0", EBRO_FORMAT, "found 0"},
        {"hidden_size", "9223372036854775807", EBRO_FORMAT, "found 9223372036854775807"},
        {"hidden_size", "null", EBRO_FORMAT, "no key \"hidden_size\""},
        {"num_hidden_layers", "4294967295", EBRO_FORMAT, "wanted an integer from 1 to 4096"},
        {"num_hidden_layers", "5", EBRO_FORMAT, "layer 5 stands neither in"},
        {"num_hidden_layers", "3", EBRO_FORMAT, "full_attn_layers[0]\": wanted an integer from 1"},
        {"linear_attn_config.kda_layers", "[1,2,3,3]", EBRO_FORMAT, "layer 3 stands twice"},
        {"linear_attn_config.kda_layers", "[1,2,3,4]", EBRO_FORMAT, "layer 4 stands twice"},
        {"linear_attn_config.kda_layers", "[0,1,2]", EBRO_FORMAT, "kda_layers[0]"},
        {"linear_attn_config.kda_layers", "[1,3]", EBRO_FORMAT, "layer 2 stands neither in"},
        {"linear_attn_config.kda_layers", "{}", EBRO_FORMAT, "wanted an array, found an object"},
        {"linear_attn_config.short_conv_kernel_size", "3", EBRO_UNSUPPORTED,
         "short_conv_kernel_size"},
        {"linear_attn_config.gate_lower_bound", "5.0", EBRO_FORMAT, "gate_lower_bound"},
        {"linear_attn_config.head_dim", "60", EBRO_UNSUPPORTED, "multiples of 8"},
        {"linear_attn_config", "[]", EBRO_FORMAT, "wanted an object, found an array"},
        {"rms_norm_eps", "\"x\"", EBRO_FORMAT, "wanted a number from 0 to 1, found a string"},
        {"rms_norm_eps", "-1", EBRO_FORMAT, "found -1"},
        {"hidden_act", "\"gelu\"", EBRO_UNSUPPORTED, "\"gelu\" is not supported"},
        {"moe_router_activation_func", "\"softmax\"", EBRO_UNSUPPORTED, "\"sigmoid\""},
        {"num_expert_group", "8", EBRO_UNSUPPORTED, "num_expert_group"},
        {"topk_group", "4", EBRO_UNSUPPORTED, "topk_group"},
        {"num_experts_per_token", "9", EBRO_FORMAT, "wanted an integer from 1 to 8, found 9"},
        {"moe_renormalize", "1", EBRO_FORMAT, "wanted true or false, found an integer"},
        {"mla_use_nope", "0", EBRO_FORMAT, "wanted true or false"},
        {"tie_word_embeddings", "\"no\"", EBRO_FORMAT, "tie_word_embeddings"},
        {"bos_token_id", "272", EBRO_FORMAT, "wanted an integer from 0 to 271"},
        {"eos_token_id", "[1,-2]", EBRO_FORMAT, "eos_token_id[1]"},
        {"eos_token_id", "[1,2,3,4,5,6,7,8,9]", EBRO_UNSUPPORTED, "more than 8"},
        {"quantization_config", "{\"quant_method\":\"fp8\"}", EBRO_UNSUPPORTED, "\"fp8\""},
        {"quantization_config", "{\"format\":\"pack-quantized\"}", EBRO_UNSUPPORTED,
         "\"pack-quantized\""},
        {"quantization_config",
         "{\"format\":\"mxfp4-pack-quantized\",\"config_groups\":{\"g\":{\"weights\":"
         "{\"group_size\":128}}}}",
         EBRO_UNSUPPORTED, "group_size\": 128"},
        {"attn_res_block_size", "-1", EBRO_FORMAT, "attn_res_block_size"},
        {"intermediate_size", "97", EBRO_FORMAT,
         "tensor \"model.layers.0.mlp.gate_proj.weight\" has shape [96, 64], wanted [97, 64]; 2 "
         "more tensors"},
        {"vocab_size", "273", EBRO_FORMAT, "\"model.embed_tokens.weight\" has shape [272, 64]"},
        {"num_experts", "9", EBRO_FORMAT, "gate.weight\" has shape [8, 64], wanted [9, 64]"},
        {"num_experts", "7", EBRO_FORMAT, "gate.weight\" has shape [8, 64], wanted [7, 64]"},
        {"moe_layer_freq", "2", EBRO_FORMAT, "no tensor \"model.layers.1.mlp.gate_proj.weight\""},
        {"first_k_dense_replace", "4", EBRO_FORMAT, "no tensor \"model.layers.1.mlp.gate_proj"},
        {"mla_use_output_gate", "true", EBRO_FORMAT, "no tensor \"model.layers.3.self_attn.g_proj"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct micro_files f = micro_make(&full_spec);
        edit(&f, cases[i].key, cases[i].value);
        refuse(&f, cases[i].status, cases[i].part);
        micro_files_free(&f);
    }
}

static void test_more_config(void **state) {
    (void)state;
    struct micro_spec s = full_spec;
    s.rotary = true;
    struct micro_files f = micro_make(&s);
    edit(&f, "rope_scaling", "{\"type\":\"yarn\"}");
    refuse(&f, EBRO_UNSUPPORTED, "rope_scaling");
    edit(&f, "rope_scaling", "null");
    edit(&f, "rope_theta", NULL);
    refuse(&f, EBRO_FORMAT, "no key \"rope_theta\"");
    edit(&f, "mla_use_nope", "true"); /* then nothing reads them */
    edit(&f, "rope_scaling", "{\"type\":\"yarn\"}");
    accept_files(&f);

    /* A packed matrix needs quantization_config; without it its names have no place. */
    micro_files_free(&f);
    s = full_spec;
    s.mxfp4 = true;
    f = micro_make(&s);
    edit(&f, "quantization_config", NULL);
    refuse(&f, EBRO_FORMAT, "no tensor \"model.layers.1.block_sparse_moe.experts.0.w1.weight\"");
    micro_files_free(&f);

    /* Too many residual sources for one op. */
    s = (struct micro_spec){.attn_res_block = 1, .pattern = "KKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKK"};
    f = micro_make(&s);
    refuse(&f, EBRO_UNSUPPORTED, "give 33 residual sources");
    micro_files_free(&f);
}

static char *copy_text(const char *text) {
    char *copy = malloc(strlen(text) + 1);
    assert_non_null(copy);
    return memcpy(copy, text, strlen(text) + 1);
}

static void test_bad_json(void **state) {
    (void)state;
    struct micro_files f = micro_make(&full_spec);
    replace(&f, "config.json", copy_text("{\"architectures\":[\"a\"],\"architectures\":[]}"));
    refuse(&f, EBRO_FORMAT, "config.json: line 1");
    replace(&f, "config.json", copy_text("[]"));
    refuse(&f, EBRO_FORMAT, "wanted an object, found an array");
    replace(&f, "config.json", copy_text(""));
    refuse(&f, EBRO_FORMAT, "config.json: line 1");
    replace(&f, "config.json", copy_text("{\"a\":\"\\ud800\"}"));
    refuse(&f, EBRO_FORMAT, "config.json: line 1");
    char *deep = malloc(4000001);
    assert_non_null(deep);
    memset(deep, '[', 4000000);
    deep[4000000] = 0;
    replace(&f, "config.json", deep);
    refuse(&f, EBRO_FORMAT, "nested deeper than 32");
    char *wide = malloc(4000001);
    assert_non_null(wide);
    memset(wide, ',', 4000000);
    wide[4000000] = 0;
    replace(&f, "config.json", wide);
    refuse(&f, EBRO_FORMAT, "more than 100000 values");
    micro_files_free(&f);

    f = micro_make(&full_spec);
    replace(&f, "generation_config.json", copy_text("{\"eos_token_id\":\"x\"}"));
    refuse(&f, EBRO_FORMAT, "generation_config.json: key \"eos_token_id\"");
    replace(&f, "generation_config.json", copy_text("{}"));
    accept_files(&f);
    micro_files_free(&f);
}

/* ---- tensors ---------------------------------------------------------------------------- */

/* Drops every tensor of a model in turn: each must be missed by name. */
static void drop_each(const struct micro_spec *spec) {
    struct micro_files whole = micro_make(spec);
    ebro_model *m = NULL;
    ebro_error err = {0};
    test_ok(open_files(&whole, &m, &err), &err);
    for (size_t i = 0; i < m->files[0].st.n_tensors; i++) {
        struct micro_spec s = *spec;
        char part[256];
        s.drop = m->files[0].st.tensors[i].name;
        /* Part of the format, never read: the residual mix of layer 0. */
        bool optional = strstr(s.drop, "layers.0.self_attention_res") != NULL;
        const bool is_packed = strstr(s.drop, ".weight_packed") != NULL;
        snprintf(part, sizeof part, "no tensor \"%.*s\"",
                 (int)(strlen(s.drop) - (is_packed ? strlen("_packed") : 0)), s.drop);
        struct micro_files f = micro_make(&s);
        if (optional) {
            accept_files(&f);
        } else {
            refuse(&f, EBRO_FORMAT, part);
        }
        micro_files_free(&f);
    }
    ebro_model_close(&m);
    micro_files_free(&whole);
}

static void test_missing_tensors(void **state) {
    (void)state;
    struct micro_spec linear = {.seed = 5, .pattern = "KM", .ffn = MICRO_MOE};
    struct micro_spec k3 = {.seed = 6,
                            .family = MICRO_K3,
                            .pattern = "KM",
                            .ffn = MICRO_LATENT,
                            .full_rank_gate = true,
                            .q_lora = true,
                            .mla_gate = MICRO_GATE_HEAD,
                            .attn_res_block = 1,
                            .mxfp4 = true};
    drop_each(&linear);
    drop_each(&k3);

    struct micro_files f = micro_make(&linear); /* many at once: the first and how many more */
    edit(&f, "num_hidden_layers", "3");
    edit(&f, "linear_attn_config.kda_layers", "[1,3]");
    refuse(&f, EBRO_FORMAT, "no tensor \"model.layers.2.input_layernorm.weight\"");
    refuse(&f, EBRO_FORMAT, " more tensors are missing or wrong");
    micro_files_free(&f);
}

static void try_extra(const struct micro_spec *base, const char *name, const char *part) {
    struct micro_spec s = *base;
    s.extra = name;
    struct micro_files f = micro_make(&s);
    if (part != NULL) {
        refuse(&f, EBRO_FORMAT, part);
    } else {
        accept_files(&f);
    }
    micro_files_free(&f);
}

static void test_extra_tensors(void **state) {
    (void)state;
    struct micro_spec linear = {.seed = 5}, k3 = {.seed = 5, .family = MICRO_K3};
    try_extra(&linear, "model.layers.0.self_attn.extra",
              "tensor \"model.layers.0.self_attn.extra\" has no place");
    try_extra(&linear, "model.layers.3.self_attn.g_proj.weight", "has no place");
    try_extra(&linear, "vision_tower.x", "tensor \"vision_tower.x\" has no place");
    try_extra(&k3, "model.layers.0.extra", "\"model.layers.0.extra\" has no place");
    try_extra(&k3, "vision_tower.x", NULL);
    try_extra(&k3, "mm_projector.y", NULL);
    try_extra(&linear, "model.layers.3.self_attn.rotary_emb.inv_freq", NULL);
    last_log[0] = 0;
    try_extra(&linear, "model.layers.4.eh_proj.weight", NULL);
    assert_non_null(strstr(last_log, "1 tensors of layers behind the last of 4"));
    try_extra(&linear, "model.layers.x.weight", "has no place");
}

static void test_a_log(void **state) {
    (void)state;
    for (int form = MICRO_A_LOG_4D; form <= MICRO_A_LOG_DIRTY; form++)
        for (int dtype = EBRO_F32; dtype <= EBRO_BF16; dtype++) {
            struct micro_spec s = {.a_log = (enum micro_a_log)form, .small_dtype = dtype};
            struct micro_files f = micro_make(&s);
            if (form == MICRO_A_LOG_DIRTY) {
                refuse(&f, EBRO_FORMAT, "tensor \"model.layers.0.self_attn.A_log\" has 128 values");
            } else {
                accept_files(&f);
            }
            micro_files_free(&f);
        }
}

/* Writes `to` over the first place of `from` in a weight file's header; equal lengths. */
static void patch(struct micro_files *f, const char *name, const char *from, const char *to) {
    ebro_file *file = micro_file(f, name);
    assert_int_equal(strlen(from), strlen(to));
    uint8_t *p = (uint8_t *)(uintptr_t)file->data, *end = p + file->bytes - strlen(from);
    while (p <= end && memcmp(p, from, strlen(from)) != 0) p++;
    assert_true(p <= end);
    memcpy(p, to, strlen(to));
}

static void test_wrong_tensors(void **state) {
    (void)state;
    static const char file[] = "model.safetensors";
    struct micro_spec s = {.seed = 9, .ffn = MICRO_MOE, .mxfp4 = true};
    struct micro_files f = micro_make(&s);
    patch(&f, file, "e_score_correction_bias\":{\"dtype\":\"F32\"",
          "e_score_correction_bias\":{\"dtype\":\"I32\"");
    refuse(&f, EBRO_FORMAT, "bias\" has dtype I32, wanted F32, F16 or BF16");
    micro_files_free(&f);
    f = micro_make(&s);
    patch(&f, file, "\"shape\":[128,1,4]", "\"shape\":[128,4,1]");
    refuse(&f, EBRO_FORMAT,
           "conv1d.weight\" has shape [128, 4, 1], wanted [128, 1, 4] or [128, 4]");
    micro_files_free(&f);
    f = micro_make(&s);
    patch(&f, file, "experts.3.w2.weight_scale\":{\"dtype\":\"U8\",\"shape\":[64,1]",
          "experts.3.w2.weight_scale\":{\"dtype\":\"U8\",\"shape\":[1,64]");
    refuse(&f, EBRO_FORMAT, "experts.3.w2.weight_scale\" has shape [1, 64], wanted [64, 1]");
    micro_files_free(&f);
    f = micro_make(&s);
    patch(&f, file, "A_log\":{\"dtype\":\"F32\",\"shape\":[1,1,2,1]",
          "A_log\":{\"dtype\":\"F32\",\"shape\":[1,2,1,1]");
    refuse(&f, EBRO_FORMAT, "A_log\" has shape [1, 2, 1, 1]");
    micro_files_free(&f);

    /* One expert of a layer in another dtype: F16 bits of the same length as BF16. */
    s.mxfp4 = false;
    s.dtype = EBRO_BF16;
    f = micro_make(&s);
    patch(&f, file, "experts.5.w1.weight\":{\"dtype\":\"BF16\"",
          "experts.5.w1.weight\":{\"dtype\":\"F16\" ");
    refuse(&f, EBRO_UNSUPPORTED, "experts.5.w1.weight\" have different dtypes");
    micro_files_free(&f);
}

/* ---- files ------------------------------------------------------------------------------ */

static void test_places(void **state) {
    (void)state;
    ebro_model *m = NULL;
    ebro_error err = {0};
    char path[1024], *dir = test_tmp_dir();
    snprintf(path, sizeof path, "%s/nothing-here", dir);
    test_fails(open_path(path, &m, &err), EBRO_IO, &err, "no such folder");
    test_fails(open_path(dir, &m, &err), EBRO_INVALID, &err, "no config.json");
    test_write_file(dir, "a-file", "x", 1);
    snprintf(path, sizeof path, "%s/a-file", dir);
    test_fails(open_path(path, &m, &err), EBRO_INVALID, &err, "not a folder");
    test_write_file(dir, "config.json", "{}", 2);
    test_fails(open_path(dir, &m, &err), EBRO_FORMAT, &err, "no key \"architectures\"");
    test_tmp_remove(&dir);

    const ebro_model_options none = {.size = sizeof none}, small = {.size = 8, .path = "x"};
    test_fails(ebro_model_open(rt, &none, &m, &err), EBRO_INVALID, &err, "neither a path");
    test_fails(ebro_model_open(rt, &small, &m, &err), EBRO_INVALID, &err, "options.size is 8");
    test_fails(ebro_model_open(rt, NULL, &m, &err), EBRO_INVALID, &err, "options is NULL");
    test_fails(ebro_model_open(NULL, &none, &m, &err), EBRO_INVALID, &err, "runtime is NULL");
    test_fails(ebro_model_open(rt, &none, NULL, &err), EBRO_INVALID, &err, "out is NULL");
    assert_int_equal(ebro_model_open(rt, &none, &m, NULL), EBRO_INVALID);
}

static void test_missing_files(void **state) {
    (void)state;
    static const struct {
        const char *name, *part;
    } cases[] = {{"config.json", "no config.json"},
                 {"model.safetensors", "no weights: neither model.safetensors nor"},
                 {"tiktoken.model", "no file \"tiktoken.model\" among"},
                 {"generation_config.json", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct micro_files f = micro_make(&full_spec);
        const char *name = micro_file(&f, cases[i].name)->name;
        micro_file(&f, cases[i].name)->name = "unrelated.txt";
        if (cases[i].part != NULL) {
            refuse(&f, EBRO_INVALID, cases[i].part);
        } else {
            accept_files(&f);
        }
        micro_file(&f, "unrelated.txt")->name = name;
        micro_files_free(&f);
    }
    struct micro_files f = micro_make(&full_spec);
    ebro_model *m = NULL;
    ebro_error err = {0};
    const char *name = f.files[1].name;
    f.files[1].name = f.files[0].name;
    test_fails(open_files(&f, &m, &err), EBRO_INVALID, &err, "are both \"config.json\"");
    f.files[1].name = name;
    micro_files_free(&f);
}

static const char index_file[] = "model.safetensors.index.json";

static void test_hostile_shard_names(void **state) {
    (void)state;
    static const char *const names[] = {
        "",  "..",   "../x.safetensors", "/etc/passwd", "a/b", "a\\\\b", "C:x",
        ".", "x..y", "\\u002fetc",       "a\\nb"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct micro_spec s = {.n_shards = 2};
        struct micro_files f = micro_make(&s);
        char *text = malloc(256);
        assert_non_null(text);
        snprintf(text, 256, "{\"weight_map\":{\"a\":\"%s\"}}", names[i]);
        replace(&f, index_file, text);
        refuse(&f, EBRO_FORMAT, "is not the name of a file inside the model folder");
        micro_files_free(&f);
    }
}

static void test_index(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int32_t status;
        const char *part;
    } cases[] = {
        {"{}", EBRO_FORMAT, "no key \"weight_map\""},
        {"{\"weight_map\":{},\"weight_map\":{}}", EBRO_FORMAT, "\"weight_map\" stands twice"},
        {"{\"weight_map\":[]}", EBRO_FORMAT, "index.json: byte 14"},
        {"{\"weight_map\":{\"a\":1}}", EBRO_FORMAT, "a string"},
        {"{\"weight_map\":{\"a\":\"gone.safetensors\"}}", EBRO_INVALID,
         "no file \"gone.safetensors\""},
        {"{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\"}}", EBRO_FORMAT,
         "tensor \"a\" is not in model-00001-of-00002.safetensors"},
        {"{\"weight_map\":{\"model.embed_tokens.weight\":\"model-00001-of-00002.safetensors\","
         "\"model.embed_tokens.weight\":\"model-00001-of-00002.safetensors\"}}",
         EBRO_FORMAT, "is listed twice"},
        {"{\"metadata\":[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]],\"weight_map\":{}}", EBRO_FORMAT,
         "no deeper nesting"},
        {"{\"weight_map\":{}}x", EBRO_FORMAT, "wanted the end"},
        /* Half of the tensors are in the shard that is not listed. */
        {"{\"metadata\":{\"n\":-1.5e3,\"s\":\"\\\"}\",\"l\":[true,null]},\"weight_map\":"
         "{\"model.embed_tokens.weight\":\"model-00001-of-00002.safetensors\"}}",
         EBRO_FORMAT, " more tensors are missing or wrong"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct micro_spec s = {.n_shards = 2};
        struct micro_files f = micro_make(&s);
        replace(&f, index_file, copy_text(cases[i].text));
        refuse(&f, cases[i].status, cases[i].part);
        micro_files_free(&f);
    }
}

static void test_shards(void **state) {
    (void)state;
    struct micro_spec s = {.seed = 11, .n_shards = 3, .ffn = MICRO_MOE};
    struct micro_files f = micro_make(&s);
    accept_files(&f);
    ebro_file *shard = micro_file(&f, "model-00002-of-00003.safetensors");
    size_t bytes = shard->bytes;
    shard->bytes = bytes - 1;
    refuse(&f, EBRO_FORMAT, "model-00002-of-00003.safetensors: truncated: tensor");
    shard->bytes = 100;
    refuse(&f, EBRO_FORMAT, "model-00002-of-00003.safetensors: truncated: the header");
    shard->bytes = 0;
    refuse(&f, EBRO_FORMAT, "model-00002-of-00003.safetensors: 0 bytes");
    shard->bytes = bytes;
    /* The same bytes under a second shard's name: its tensors stand twice. */
    ebro_file *other = micro_file(&f, "model-00003-of-00003.safetensors");
    const ebro_file kept = *other;
    other->data = shard->data;
    other->bytes = shard->bytes;
    refuse(&f, EBRO_FORMAT, "is not in model-00003-of-00003.safetensors");
    replace(&f, index_file,
            copy_text("{\"weight_map\":{\"model.layers.0.input_layernorm.weight\":"
                      "\"model-00002-of-00003.safetensors\",\"model.layers.0.self_attn.q_conv1d."
                      "weight\":\"model-00003-of-00003.safetensors\"}}"));
    refuse(&f, EBRO_FORMAT,
           "stands in model-00002-of-00003.safetensors and in model-00003-of-00003.safetensors");
    *other = kept;
    micro_files_free(&f);
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_keys),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_more_config),
        cmocka_unit_test(test_bad_json),
        cmocka_unit_test(test_missing_tensors),
        cmocka_unit_test(test_extra_tensors),
        cmocka_unit_test(test_a_log),
        cmocka_unit_test(test_wrong_tensors),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_missing_files),
        cmocka_unit_test(test_hostile_shard_names),
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_shards),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
