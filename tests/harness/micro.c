/* micro.c: the writer of micro.h. */
#include "tests/harness/micro.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/quant/format.h"
#include "tests/harness/test.h"

enum { MAX_SHARDS = 8 };

/* A growing text or blob. */
struct buffer {
    uint8_t *data;
    size_t n, capacity;
};

static void *append(struct buffer *b, const void *data, size_t n) {
    if (b->n + n + 1 > b->capacity) {
        b->capacity = (b->n + n + 1) * 2;
        b->data = realloc(b->data, b->capacity);
        assert_non_null(b->data);
    }
    void *at = b->data + b->n;
    if (data != NULL) memcpy(at, data, n);
    b->n += n;
    b->data[b->n] = 0;
    return at;
}

static void print(struct buffer *b, const char *fmt, ...) EB_PRINTF(2, 3);
static void print(struct buffer *b, const char *fmt, ...) {
    char text[2048];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < sizeof text);
    append(b, text, (size_t)n);
}

struct writer {
    const struct micro_spec *spec;
    struct test_rng rng;
    const char *prefix;
    uint32_t n_shards, n_tensors;
    struct buffer header[MAX_SHARDS], data[MAX_SHARDS], index;
};

/* ---- tensors ---------------------------------------------------------------------------- */

/* Room for one tensor's bytes; its entry is written. NULL: it is to be left out. */
static uint8_t *add_tensor(struct writer *w, const char *name, const char *dtype, const char *shape,
                           size_t bytes) {
    if (w->spec->drop != NULL && strcmp(w->spec->drop, name) == 0) return NULL;
    uint32_t shard = w->n_tensors++ % w->n_shards;
    struct buffer *h = &w->header[shard], *d = &w->data[shard];
    print(h, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
          h->n > 0 ? "," : "", name, dtype, shape, d->n, d->n + bytes);
    print(&w->index, "%s\"%s\":\"model-%05u-of-%05u.safetensors\"", w->index.n > 0 ? "," : "", name,
          shard + 1, w->n_shards);
    return append(d, NULL, bytes);
}

static void add_floats(struct writer *w, const char *name, const char *shape, int32_t dtype,
                       const float *v, size_t n) {
    static const char *const names[] = {
        [EBRO_F32] = "F32", [EBRO_F16] = "F16", [EBRO_BF16] = "BF16"};
    size_t size = dtype == EBRO_F32 ? 4 : 2;
    uint8_t *out = add_tensor(w, name, names[dtype], shape, n * size);
    for (size_t i = 0; i < n && out != NULL; i++) {
        uint16_t half = dtype == EBRO_F16 ? eb_f32_to_f16(v[i]) : eb_f32_to_bf16(v[i]);
        memcpy(out + i * size, dtype == EBRO_F32 ? (const void *)&v[i] : (const void *)&half, size);
    }
}

static uint32_t vocab_of(const struct micro_spec *s) {
    return s->vocab > 0 ? s->vocab : MICRO_VOCAB;
}

/* The special tokens follow them. */
static uint32_t ranks_of(const struct micro_spec *s) {
    return vocab_of(s) - (MICRO_VOCAB - MICRO_RANKS);
}

static uint32_t experts_of(const struct micro_spec *s) {
    return s->experts > 0 ? s->experts : MICRO_EXPERTS;
}

/* mean + deviation * normal, as one vector of the given shape text. */
static void random_tensor(struct writer *w, const char *name, const char *shape, int32_t dtype,
                          size_t n, float mean, float deviation) {
    float *v = malloc(n * sizeof *v);
    assert_non_null(v);
    for (size_t i = 0; i < n; i++) v[i] = mean + deviation * test_normal(&w->rng);
    add_floats(w, name, shape, dtype, v, n);
    free(v);
}

#define NAME(out, ...) snprintf((out), sizeof(out), __VA_ARGS__)

static void vector(struct writer *w, const char *name, int32_t dtype, size_t n, float mean,
                   float deviation) {
    char full[160], shape[32];
    NAME(full, "%s%s", w->prefix, name);
    NAME(shape, "[%zu]", n);
    random_tensor(w, full, shape, dtype, n, mean, deviation);
}

static void norm(struct writer *w, const char *name, size_t n) {
    vector(w, name, w->spec->dtype, n, 1.0f, 0.1f);
}

/* Random codes; their root mean square is 2.9, so the scale is about 1 / (2.9 sqrt(cols)). */
static void packed(struct writer *w, const char *name, size_t rows, size_t cols) {
    char full[192], shape[48];
    NAME(full, "%s%s.weight_packed", w->prefix, name);
    NAME(shape, "[%zu,%zu]", rows, cols / 2);
    uint8_t *codes = add_tensor(w, full, "U8", shape, rows * cols / 2);
    for (size_t i = 0; i < rows * cols / 2 && codes != NULL; i++)
        codes[i] = (uint8_t)test_u64(&w->rng);
    NAME(full, "%s%s.weight_scale", w->prefix, name);
    NAME(shape, "[%zu,%zu]", rows, cols / 32);
    uint8_t *scales = add_tensor(w, full, "U8", shape, rows * cols / 32);
    int exponent = (int)lround(-log2(2.9 * sqrt((double)cols)));
    for (size_t i = 0; i < rows * cols / 32 && scales != NULL; i++)
        scales[i] = (uint8_t)(127 + exponent - (int)(test_u64(&w->rng) % 2));
}

/* One row a token: MICRO_VOCAB of them random, zeros behind. */
static void token_rows(struct writer *w, const char *name, float deviation) {
    const size_t n = (size_t)vocab_of(w->spec) * MICRO_HIDDEN;
    char full[160], shape[48];
    NAME(full, "%s%s.weight", w->prefix, name);
    NAME(shape, "[%" PRIu32 ",%d]", vocab_of(w->spec), MICRO_HIDDEN);
    float *v = calloc(n, sizeof *v);
    assert_non_null(v);
    for (size_t i = 0; i < (size_t)MICRO_VOCAB * MICRO_HIDDEN && i < n; i++)
        v[i] = deviation * test_normal(&w->rng);
    add_floats(w, full, shape, w->spec->dtype, v, n);
    free(v);
}

/* [rows][cols] with deviation 1 / sqrt(cols). */
static void plain(struct writer *w, const char *name, size_t rows, size_t cols) {
    char full[192], shape[48];
    NAME(full, "%s%s.weight", w->prefix, name);
    NAME(shape, "[%zu,%zu]", rows, cols);
    random_tensor(w, full, shape, w->spec->dtype, rows * cols, 0.0f, 1.0f / sqrtf((float)cols));
}

static void matrix(struct writer *w, const char *name, size_t rows, size_t cols) {
    bool attention = strstr(name, "self_attn") != NULL && strstr(name, "g_proj") == NULL;
    if (w->spec->mxfp4_all || (w->spec->mxfp4_attention && attention)) {
        packed(w, name, rows, cols);
    } else {
        plain(w, name, rows, cols);
    }
}

/* ---- layers ----------------------------------------------------------------------------- */

static void kda_a_log(struct writer *w, uint32_t l) {
    char name[160], shape[48];
    float v[128] = {0};
    size_t n = w->spec->a_log >= MICRO_A_LOG_PADDED ? 128 : MICRO_KDA_HEADS;
    for (size_t h = 0; h < MICRO_KDA_HEADS; h++) v[h] = test_uniform(&w->rng, 0.0f, 1.4f);
    if (w->spec->a_log == MICRO_A_LOG_DIRTY) v[100] = 0.5f;
    NAME(name, "%smodel.layers.%u.self_attn.A_log", w->prefix, l);
    if (w->spec->a_log == MICRO_A_LOG_4D) {
        NAME(shape, "[1,1,%zu,1]", n);
    } else {
        NAME(shape, "[%zu]", n);
    }
    add_floats(w, name, shape, w->spec->small_dtype, v, n);
}

static void kda_layer(struct writer *w, uint32_t l) {
    enum { WIDTH = MICRO_KDA_HEADS * MICRO_KDA_DIM };
    const int32_t small = w->spec->small_dtype;
    char name[160], shape[48];
    for (int i = 0; i < 3; i++) {
        NAME(name, "model.layers.%u.self_attn.%c_proj", l, "qkv"[i]);
        matrix(w, name, WIDTH, MICRO_HIDDEN);
        NAME(name, "%smodel.layers.%u.self_attn.%c_conv1d.weight", w->prefix, l, "qkv"[i]);
        NAME(shape, w->spec->conv_rank2 ? "[%d,4]" : "[%d,1,4]", WIDTH);
        random_tensor(w, name, shape, small, WIDTH * 4, 0.0f, 0.6f);
    }
    NAME(name, "model.layers.%u.self_attn.f_a_proj", l);
    matrix(w, name, MICRO_KDA_DIM, MICRO_HIDDEN);
    NAME(name, "model.layers.%u.self_attn.f_b_proj", l);
    matrix(w, name, WIDTH, MICRO_KDA_DIM);
    NAME(name, "model.layers.%u.self_attn.b_proj", l);
    matrix(w, name, MICRO_KDA_HEADS, MICRO_HIDDEN);
    if (w->spec->full_rank_gate) {
        NAME(name, "model.layers.%u.self_attn.g_proj", l);
        matrix(w, name, WIDTH, MICRO_HIDDEN);
    } else {
        NAME(name, "model.layers.%u.self_attn.g_a_proj", l);
        matrix(w, name, MICRO_KDA_DIM, MICRO_HIDDEN);
        NAME(name, "model.layers.%u.self_attn.g_b_proj", l);
        matrix(w, name, WIDTH, MICRO_KDA_DIM);
    }
    kda_a_log(w, l);
    NAME(name, "model.layers.%u.self_attn.dt_bias", l);
    vector(w, name, small, WIDTH, -1.5f, 0.7f);
    NAME(name, "model.layers.%u.self_attn.o_norm.weight", l);
    vector(w, name, small, MICRO_KDA_DIM, 1.0f, 0.1f);
    NAME(name, "model.layers.%u.self_attn.o_proj", l);
    matrix(w, name, MICRO_HIDDEN, WIDTH);
}

static void mla_layer(struct writer *w, uint32_t l) {
    enum { QUERIES = MICRO_MLA_HEADS * (MICRO_NOPE + MICRO_ROPE) };
    char name[160];
    if (w->spec->q_lora) {
        NAME(name, "model.layers.%u.self_attn.q_a_proj", l);
        matrix(w, name, MICRO_Q_LORA, MICRO_HIDDEN);
        NAME(name, "model.layers.%u.self_attn.q_a_layernorm.weight", l);
        norm(w, name, MICRO_Q_LORA);
        NAME(name, "model.layers.%u.self_attn.q_b_proj", l);
        matrix(w, name, QUERIES, MICRO_Q_LORA);
    } else {
        NAME(name, "model.layers.%u.self_attn.q_proj", l);
        matrix(w, name, QUERIES, MICRO_HIDDEN);
    }
    NAME(name, "model.layers.%u.self_attn.kv_a_proj_with_mqa", l);
    matrix(w, name, MICRO_KV_LORA + MICRO_ROPE, MICRO_HIDDEN);
    NAME(name, "model.layers.%u.self_attn.kv_a_layernorm.weight", l);
    norm(w, name, MICRO_KV_LORA);
    NAME(name, "model.layers.%u.self_attn.kv_b_proj", l);
    plain(w, name, MICRO_MLA_HEADS * (MICRO_NOPE + MICRO_V_DIM), MICRO_KV_LORA);
    NAME(name, "model.layers.%u.self_attn.g_proj", l);
    if (w->spec->mla_gate == MICRO_GATE_HEAD) matrix(w, name, MICRO_MLA_HEADS, MICRO_HIDDEN);
    if (w->spec->mla_gate == MICRO_GATE_ELEMENT)
        matrix(w, name, MICRO_MLA_HEADS * MICRO_V_DIM, MICRO_HIDDEN);
    NAME(name, "model.layers.%u.self_attn.o_proj", l);
    matrix(w, name, MICRO_HIDDEN, MICRO_MLA_HEADS * MICRO_V_DIM);
}

static void ffn(struct writer *w, uint32_t l, const char *part, size_t inner) {
    char name[160];
    NAME(name, "model.layers.%u.%s.gate_proj", l, part);
    matrix(w, name, inner, MICRO_HIDDEN);
    NAME(name, "model.layers.%u.%s.up_proj", l, part);
    matrix(w, name, inner, MICRO_HIDDEN);
    NAME(name, "model.layers.%u.%s.down_proj", l, part);
    matrix(w, name, MICRO_HIDDEN, inner);
}

static void moe_ffn(struct writer *w, uint32_t l) {
    char name[160];
    const bool latent = w->spec->ffn == MICRO_LATENT;
    const size_t width = latent ? MICRO_LATENT_WIDTH : MICRO_HIDDEN;
    NAME(name, "model.layers.%u.block_sparse_moe.gate", l);
    plain(w, name, experts_of(w->spec), MICRO_HIDDEN);
    NAME(name, "model.layers.%u.block_sparse_moe.gate.e_score_correction_bias", l);
    vector(w, name, w->spec->small_dtype, experts_of(w->spec), 0.0f, 0.05f);
    if (latent) {
        NAME(name, "model.layers.%u.block_sparse_moe.routed_expert_down_proj", l);
        matrix(w, name, width, MICRO_HIDDEN);
        NAME(name, "model.layers.%u.block_sparse_moe.routed_expert_norm.weight", l);
        if (!w->spec->no_latent_norm) norm(w, name, width);
        NAME(name, "model.layers.%u.block_sparse_moe.routed_expert_up_proj", l);
        matrix(w, name, MICRO_HIDDEN, width);
    }
    for (uint32_t e = 0; e < experts_of(w->spec); e++)
        for (int i = 1; i <= 3; i++) {
            size_t rows = i == 2 ? width : MICRO_MOE_INNER, cols = i == 2 ? MICRO_MOE_INNER : width;
            NAME(name, "model.layers.%u.block_sparse_moe.experts.%u.w%d", l, e, i);
            if (w->spec->mxfp4) {
                packed(w, name, rows, cols);
            } else {
                matrix(w, name, rows, cols);
            }
        }
    if (!w->spec->no_shared) ffn(w, l, "block_sparse_moe.shared_experts", MICRO_MOE_INNER);
}

static void residual_pair(struct writer *w, const char *name) {
    char full[160];
    NAME(full, "%s_norm.weight", name);
    norm(w, full, MICRO_HIDDEN);
    NAME(full, "%s%s_proj.weight", w->prefix, name);
    random_tensor(w, full, "[1,64]", w->spec->dtype, MICRO_HIDDEN, 0.0f, 0.125f);
}

static const char *pattern_of(const struct micro_spec *s) {
    return s->pattern != NULL ? s->pattern : "KKKM";
}

static void layer(struct writer *w, uint32_t l) {
    char name[160];
    NAME(name, "model.layers.%u.input_layernorm.weight", l);
    norm(w, name, MICRO_HIDDEN);
    NAME(name, "model.layers.%u.post_attention_layernorm.weight", l);
    norm(w, name, MICRO_HIDDEN);
    if (w->spec->attn_res_block > 0) {
        NAME(name, "model.layers.%u.self_attention_res", l);
        residual_pair(w, name);
        NAME(name, "model.layers.%u.mlp_res", l);
        residual_pair(w, name);
    }
    if (pattern_of(w->spec)[l] == 'K') {
        kda_layer(w, l);
    } else {
        mla_layer(w, l);
    }
    if (w->spec->ffn != MICRO_DENSE && l > 0) {
        moe_ffn(w, l);
    } else {
        ffn(w, l, "mlp", MICRO_INNER);
    }
}

static void all_tensors(struct writer *w) {
    token_rows(w, "model.embed_tokens", w->spec->tied ? 0.125f : 1.0f);
    for (uint32_t l = 0; l < strlen(pattern_of(w->spec)); l++) layer(w, l);
    if (w->spec->attn_res_block > 0) residual_pair(w, "model.output_attn_res");
    norm(w, "model.norm.weight", MICRO_HIDDEN);
    if (!w->spec->tied) token_rows(w, "lm_head", 1.0f / sqrtf(MICRO_HIDDEN));
    if (w->spec->extra != NULL) {
        const float v[2] = {1.0f, 2.0f};
        add_floats(w, w->spec->extra, "[2]", EBRO_F32, v, 2);
    }
}

/* ---- configuration and vocabulary ------------------------------------------------------- */

static const char *boolean(bool b) {
    return b ? "true" : "false";
}

static void print_layers(struct buffer *b, const char *key, const char *pattern, char kind) {
    const char *comma = "";
    print(b, "\"%s\":[", key);
    for (uint32_t l = 0; pattern[l] != 0; l++)
        if (pattern[l] == kind) {
            print(b, "%s%u", comma, l + 1);
            comma = ",";
        }
    print(b, "],");
}

/* The text model's keys, without the braces. */
static void print_text_config(struct buffer *b, const struct micro_spec *s) {
    const char *pattern = pattern_of(s);
    print(b, "\"vocab_size\":%" PRIu32 ",\"hidden_size\":%d,\"intermediate_size\":%d,", vocab_of(s),
          MICRO_HIDDEN, MICRO_INNER);
    print(b, "\"num_hidden_layers\":%zu,\"rms_norm_eps\":1e-05,\"model_max_length\":%" PRIu32 ",",
          strlen(pattern), s->context > 0 ? s->context : 8192);
    print(b, "\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"kv_lora_rank\":%d,",
          MICRO_MLA_HEADS, MICRO_MLA_HEADS, MICRO_KV_LORA);
    print(b, "\"qk_nope_head_dim\":%d,\"qk_rope_head_dim\":%d,\"v_head_dim\":%d,", MICRO_NOPE,
          MICRO_ROPE, MICRO_V_DIM);
    if (s->q_lora) {
        print(b, "\"q_lora_rank\":%d,", MICRO_Q_LORA);
    } else {
        print(b, "\"q_lora_rank\":null,");
    }
    print(b, "\"mla_use_nope\":%s,\"rope_theta\":10000.0,\"rope_scaling\":null,",
          boolean(!s->rotary));
    print(b, "\"mla_use_output_gate\":%s,", boolean(s->mla_gate != MICRO_GATE_NONE));
    if (s->situ) {
        print(b,
              "\"hidden_act\":\"situ\",\"activation_situ_beta\":4.0,"
              "\"activation_situ_linear_beta\":25.0,");
    } else {
        print(b, "\"hidden_act\":\"silu\",");
    }
    print(b, "\"linear_attn_config\":{");
    print_layers(b, "full_attn_layers", pattern, 'M');
    print_layers(b, "kda_layers", pattern, 'K');
    if (s->bounded_gate) print(b, "\"gate_lower_bound\":-5.0,");
    print(b, "\"use_full_rank_gate\":%s,\"num_heads\":%d,\"head_dim\":%d,",
          boolean(s->full_rank_gate), MICRO_KDA_HEADS, MICRO_KDA_DIM);
    print(b, "\"short_conv_kernel_size\":4},");
    if (s->ffn != MICRO_DENSE) {
        print(b,
              "\"num_experts\":%" PRIu32 ",\"num_experts_per_token\":%d,\"num_shared_experts\":%d,",
              experts_of(s), MICRO_TOP_K, s->no_shared ? 0 : 1);
        print(b, "\"moe_intermediate_size\":%d,\"routed_scaling_factor\":1.5,", MICRO_MOE_INNER);
        print(b, "\"moe_renormalize\":%s,\"moe_router_activation_func\":\"sigmoid\",",
              boolean(!s->no_renormalise));
        print(b,
              "\"first_k_dense_replace\":1,\"moe_layer_freq\":1,\"num_expert_group\":1,"
              "\"topk_group\":1,");
    }
    if (s->ffn == MICRO_LATENT)
        print(b, "\"routed_expert_hidden_size\":%d,\"latent_moe_use_norm\":%s,", MICRO_LATENT_WIDTH,
              boolean(!s->no_latent_norm));
    if (s->attn_res_block > 0) print(b, "\"attn_res_block_size\":%u,", s->attn_res_block);
    if (s->mxfp4 || s->mxfp4_attention || s->mxfp4_all)
        print(b,
              "\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":"
              "\"mxfp4-pack-quantized\",\"config_groups\":{\"group_0\":{\"format\":"
              "\"mxfp4-pack-quantized\",\"weights\":{\"group_size\":32,\"num_bits\":4}}}},");
    print(b, "\"bos_token_id\":%" PRIu32 ",\"eos_token_id\":%" PRIu32 ",\"tie_word_embeddings\":%s",
          ranks_of(s), ranks_of(s) + 1, boolean(s->tied));
}

static void print_config(struct buffer *b, const struct micro_spec *s) {
    print(b, "{\"architectures\":[\"%s\"],",
          s->family == MICRO_K3 ? "KimiK3ForConditionalGeneration" : "KimiLinearForCausalLM");
    if (s->family == MICRO_K3) print(b, "\"text_config\":{");
    print_text_config(b, s);
    print(b, s->family == MICRO_K3 ? "}}" : "}");
}

static const char *const specials[] = {
    "[BOS]",      "[EOS]",    "<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>",
    "<|im_end|>", "<|open|>", "<|close|>",     "<|sep|>",     "<|end_of_msg|>"};

static void print_tokenizer_config(struct buffer *b, const struct micro_spec *s) {
    print(b, "{\"added_tokens_decoder\":{");
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        print(b, "%s\"%zu\":{\"content\":\"%s\",\"special\":true}", i > 0 ? "," : "",
              ranks_of(s) + i, specials[i]);
    print(b, "}}");
}

/* Every byte, then sequences of three. */
static void print_vocabulary(struct buffer *b, const struct micro_spec *s) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int c = 0; c < MICRO_RANKS; c++)
        print(b, "%c%c== %d\n", digits[c >> 2], digits[(c & 3) << 4], c);
    for (uint32_t r = MICRO_RANKS; r < ranks_of(s); r++)
        print(b, "%c%c%c%c %" PRIu32 "\n", digits[r >> 18 & 63], digits[r >> 12 & 63],
              digits[r >> 6 & 63], digits[r & 63], r);
}

/* ---- files ------------------------------------------------------------------------------ */

static void add_file(struct micro_files *f, const char *name, struct buffer *b) {
    char *copy = malloc(strlen(name) + 1);
    f->files = realloc(f->files, (f->n + 1) * sizeof *f->files);
    assert_true(copy != NULL && f->files != NULL);
    memcpy(copy, name, strlen(name) + 1);
    f->files[f->n++] = (ebro_file){copy, b->data, b->n};
    memset(b, 0, sizeof *b);
}

/* Length, header, data; the header is padded with spaces to a multiple of 8, then shifted. */
static void add_shard(struct micro_files *f, const char *name, struct writer *w, uint32_t shard) {
    struct buffer file = {0};
    const struct buffer *h = &w->header[shard], *d = &w->data[shard];
    append(&file, "\0\0\0\0\0\0\0\0{", 9);
    append(&file, h->data, h->n);
    append(&file, "}", 1);
    while (file.n % 8 != 0) append(&file, " ", 1);
    for (uint32_t i = 0; i < w->spec->shift; i++) append(&file, " ", 1);
    for (int i = 0; i < 8; i++) file.data[i] = (uint8_t)((uint64_t)(file.n - 8) >> (8 * i));
    append(&file, d->data, d->n);
    add_file(f, name, &file);
}

static void add_weights(struct micro_files *f, struct writer *w) {
    if (w->spec->n_shards == 0) {
        add_shard(f, "model.safetensors", w, 0);
        return;
    }
    struct buffer index = {0};
    print(&index, "{\"metadata\":{\"total_size\":1},\"weight_map\":{");
    append(&index, w->index.data, w->index.n);
    print(&index, "}}");
    add_file(f, "model.safetensors.index.json", &index);
    for (uint32_t i = 0; i < w->n_shards; i++) {
        char name[48];
        NAME(name, "model-%05u-of-%05u.safetensors", i + 1, w->n_shards);
        add_shard(f, name, w, i);
    }
}

struct micro_files micro_make(const struct micro_spec *spec) {
    struct micro_files f = {0};
    struct writer w = {.spec = spec,
                       .rng = {spec->seed},
                       .prefix = spec->family == MICRO_K3 ? "language_model." : "",
                       .n_shards = spec->n_shards > 0 ? spec->n_shards : 1};
    struct buffer b = {0};
    assert_true(w.n_shards <= MAX_SHARDS);
    print_config(&b, spec);
    add_file(&f, "config.json", &b);
    print(&b, "{\"eos_token_id\":[%" PRIu32 ",%" PRIu32 "]}", ranks_of(spec) + 1,
          ranks_of(spec) + (spec->family == MICRO_K3 ? 10 : 6));
    add_file(&f, "generation_config.json", &b);
    print_tokenizer_config(&b, spec);
    add_file(&f, "tokenizer_config.json", &b);
    print_vocabulary(&b, spec);
    add_file(&f, "tiktoken.model", &b);
    all_tensors(&w);
    add_weights(&f, &w);
    for (uint32_t i = 0; i < w.n_shards; i++) {
        free(w.header[i].data);
        free(w.data[i].data);
    }
    free(w.index.data);
    return f;
}

void micro_files_free(struct micro_files *f) {
    for (uint32_t i = 0; i < f->n; i++) {
        free((void *)(uintptr_t)f->files[i].name);
        free((void *)(uintptr_t)f->files[i].data);
    }
    free(f->files);
    memset(f, 0, sizeof *f);
}

ebro_file *micro_file(const struct micro_files *f, const char *name) {
    for (uint32_t i = 0; i < f->n; i++)
        if (strcmp(f->files[i].name, name) == 0) return &f->files[i];
    return NULL;
}

void micro_write(const char *dir, const struct micro_spec *spec) {
    struct micro_files f = micro_make(spec);
    for (uint32_t i = 0; i < f.n; i++)
        test_write_file(dir, f.files[i].name, f.files[i].data, f.files[i].bytes);
    micro_files_free(&f);
}

/* ---- the list of models ----------------------------------------------------------------- */

const struct micro_case micro_cases[] = {
    {"linear dense f32", {.seed = 1}},
    {"linear moe bf16", {.seed = 2, .ffn = MICRO_MOE, .dtype = EBRO_BF16, .conv_rank2 = true}},
    {"linear moe f16", {.seed = 3, .ffn = MICRO_MOE, .dtype = EBRO_F16, .no_renormalise = true}},
    {"linear small bf16",
     {.seed = 4, .dtype = EBRO_BF16, .small_dtype = EBRO_BF16, .a_log = MICRO_A_LOG_1D}},
    {"linear small f16", {.seed = 5, .small_dtype = EBRO_F16, .a_log = MICRO_A_LOG_PADDED}},
    {"linear tied no shared", {.seed = 6, .tied = true, .ffn = MICRO_MOE, .no_shared = true}},
    {"linear bounded full-rank", {.seed = 7, .bounded_gate = true, .full_rank_gate = true}},
    {"linear bounded low-rank", {.seed = 8, .bounded_gate = true}},
    {"linear softplus full-rank", {.seed = 9, .full_rank_gate = true}},
    {"linear rotary", {.seed = 10, .rotary = true}},
    {"linear rotary q_lora head gate",
     {.seed = 11, .rotary = true, .q_lora = true, .mla_gate = MICRO_GATE_HEAD}},
    {"linear element gate situ", {.seed = 12, .mla_gate = MICRO_GATE_ELEMENT, .situ = true}},
    {"linear all mla", {.seed = 13, .pattern = "MM"}},
    {"linear all kda", {.seed = 14, .pattern = "KK"}},
    {"linear mla first", {.seed = 15, .pattern = "MKMK", .ffn = MICRO_MOE}},
    {"linear residual blocks", {.seed = 16, .attn_res_block = 2}},
    {"linear latent", {.seed = 17, .ffn = MICRO_LATENT, .no_latent_norm = true}},
    {"linear moe mxfp4", {.seed = 18, .ffn = MICRO_MOE, .mxfp4 = true}},
    {"k3",
     {.seed = 19,
      .family = MICRO_K3,
      .bounded_gate = true,
      .full_rank_gate = true,
      .q_lora = true,
      .mla_gate = MICRO_GATE_ELEMENT,
      .ffn = MICRO_LATENT,
      .situ = true,
      .attn_res_block = 2,
      .dtype = EBRO_BF16,
      .mxfp4 = true,
      .a_log = MICRO_A_LOG_PADDED}},
    {"k3 long",
     {.seed = 20,
      .family = MICRO_K3,
      .pattern = "KKKMKKKMM",
      .bounded_gate = true,
      .full_rank_gate = true,
      .q_lora = true,
      .mla_gate = MICRO_GATE_ELEMENT,
      .ffn = MICRO_LATENT,
      .situ = true,
      .attn_res_block = 4,
      .mxfp4 = true}},
    {"k3 dense softplus", {.seed = 21, .family = MICRO_K3}},
    {"k3 attention mxfp4",
     {.seed = 22,
      .family = MICRO_K3,
      .ffn = MICRO_LATENT,
      .q_lora = true,
      .mxfp4 = true,
      .mxfp4_attention = true,
      .attn_res_block = 1}},
    {"k3 moe block 3", {.seed = 23, .family = MICRO_K3, .ffn = MICRO_MOE, .attn_res_block = 3}},
};
const size_t n_micro_cases = sizeof micro_cases / sizeof *micro_cases;
