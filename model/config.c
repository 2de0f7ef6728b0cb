/* config.c: the keys of config.json: presence, type, range, and that they fit together. Names are
 * those of the published files. Not its job: tensors (bind.c, arch_*.c). */
#include "model/config.h"

#include <string.h>

enum {
    MAX_LAYERS = 4096,
    MAX_WIDTH = 1 << 20, /* of any activation */
    MAX_HEADS = 4096,
    MAX_HEAD_DIM = 1024,
    MAX_VOCAB = 1 << 24,
    MAX_EXPERTS = 1 << 16
};

static int32_t unsupported(const struct eb_json_node *n, const char *key, const char *found,
                           const char *known, ebro_error *err) {
    return eb_fail(err, EBRO_UNSUPPORTED, "%s: key \"%s%s\": %s is not supported (known: %s)",
                   n->file, n->path, key, found, known);
}

/* A product of two sizes that is the width of an activation. */
static int32_t check_width(const struct eb_json_node *n, const char *what, uint32_t a, uint32_t b,
                           ebro_error *err) {
    if ((uint64_t)a * b <= MAX_WIDTH) return EBRO_OK;
    return eb_fail(err, EBRO_FORMAT, "%s: %s: %u * %u is more than %d", n->file, what, a, b,
                   MAX_WIDTH);
}

static int32_t read_sizes(const struct eb_json_node *t, struct eb_config *c, ebro_error *err) {
    int32_t st;
    if ((st = eb_json_u32(t, "vocab_size", 1, MAX_VOCAB, &c->vocab_size, err)) ||
        (st = eb_json_u32(t, "hidden_size", 1, MAX_WIDTH, &c->hidden_size, err)) ||
        (st = eb_json_u32(t, "num_hidden_layers", 1, MAX_LAYERS, &c->n_layers, err)) ||
        (st = eb_json_u32(t, "intermediate_size", 1, MAX_WIDTH, &c->intermediate_size, err)) ||
        (st = eb_json_f32(t, "rms_norm_eps", 0.0f, 1.0f, &c->rms_norm_eps, err)) ||
        (st = eb_json_u32_or(t, "model_max_length", 1, INT32_MAX, 0, &c->max_context, err)))
        return st;
    /* Two names for one thing; the first is Kimi Linear's, the second K3's. */
    if (c->max_context == 0)
        return eb_json_u32_or(t, "max_position_embeddings", 1, INT32_MAX, 0, &c->max_context, err);
    return EBRO_OK;
}

static int32_t read_activation(const struct eb_json_node *t, struct eb_config *c, ebro_error *err) {
    const char *act;
    int32_t st = eb_json_string(t, "hidden_act", &act, err);
    if (st != EBRO_OK) return st;
    if (strcmp(act, "silu") == 0) {
        c->act = EBRO_ACT_SILU;
        return EBRO_OK;
    }
    if (strcmp(act, "situ") != 0) {
        char found[64];
        size_t n = strlen(act) < sizeof found - 3 ? strlen(act) : sizeof found - 3;
        memcpy(found + 1, act, n);
        found[0] = found[n + 1] = '"';
        found[n + 2] = 0;
        return unsupported(t, "hidden_act", found, "\"silu\", \"situ\"", err);
    }
    c->act = EBRO_ACT_SITU;
    if ((st = eb_json_f32(t, "activation_situ_beta", 1e-3f, 1e6f, &c->situ_beta, err))) return st;
    return eb_json_f32(t, "activation_situ_linear_beta", 1e-3f, 1e6f, &c->situ_linear_beta, err);
}

/* One of the two lists of 1-based layer numbers; `kind` is what its layers are. */
static int32_t read_layer_list(const struct eb_json_node *linear, const char *key, uint8_t kind,
                               uint32_t n_layers, uint8_t *layers, uint8_t *seen, ebro_error *err) {
    size_t n;
    int32_t st = eb_json_array(linear, key, &n, err);
    for (size_t i = 0; i < n && st == EBRO_OK; i++) {
        uint32_t l;
        if ((st = eb_json_u32_at(linear, key, i, 1, n_layers, &l, err)) != EBRO_OK) break;
        if (seen[l - 1])
            return eb_fail(err, EBRO_FORMAT,
                           "%s: layer %u stands twice in full_attn_layers and kda_layers",
                           linear->file, l);
        seen[l - 1] = 1;
        layers[l - 1] = (uint8_t)(layers[l - 1] | kind);
    }
    return st;
}

/* The two lists must cover the layers 1 .. n exactly once. */
static int32_t read_layer_kinds(const struct eb_alloc *a, const struct eb_json_node *linear,
                                uint32_t n_layers, uint8_t *layers, ebro_error *err) {
    uint8_t *seen = eb_calloc(a, n_layers, 1, err);
    if (seen == NULL) return EBRO_NOMEM_HOST;
    int32_t st;
    if ((st = read_layer_list(linear, "full_attn_layers", 0, n_layers, layers, seen, err)) ||
        (st = read_layer_list(linear, "kda_layers", EB_LAYER_KDA, n_layers, layers, seen, err)))
        goto out;
    for (uint32_t l = 0; l < n_layers; l++)
        if (!seen[l]) {
            st = eb_fail(err, EBRO_FORMAT,
                         "%s: layer %u stands neither in full_attn_layers nor in kda_layers",
                         linear->file, l + 1);
            break;
        }
out:
    eb_free(a, seen);
    return st;
}

static int32_t read_kda(const struct eb_alloc *a, const struct eb_json_node *t,
                        struct eb_config_file *out, ebro_error *err) {
    struct eb_config *c = &out->c;
    struct eb_json_node linear;
    uint32_t width;
    int32_t st;
    if ((st = eb_json_object(t, "linear_attn_config", &linear, err)) ||
        (st = eb_json_u32(&linear, "num_heads", 1, MAX_HEADS, &c->kda_heads, err)) ||
        (st = eb_json_u32(&linear, "head_dim", 1, MAX_HEAD_DIM, &c->kda_head_dim, err)) ||
        (st = eb_json_u32(&linear, "short_conv_kernel_size", 1, 1024, &width, err)) ||
        (st = eb_json_bool_or(&linear, "use_full_rank_gate", false, &c->kda_full_rank_gate, err)))
        return st;
    if (width != EBRO_CONV_WIDTH)
        return unsupported(&linear, "short_conv_kernel_size", "a width other than 4", "4", err);
    if (c->kda_head_dim % 8 != 0)
        return eb_fail(err, EBRO_UNSUPPORTED,
                       "%s: key \"%shead_dim\": %u is not supported (known: multiples of 8)",
                       linear.file, linear.path, c->kda_head_dim);
    c->kda_gate_bounded = eb_json_has(&linear, "gate_lower_bound");
    if (c->kda_gate_bounded &&
        (st = eb_json_f32(&linear, "gate_lower_bound", -1e4f, -1e-6f, &c->gate_lower_bound, err)))
        return st;
    if ((st = check_width(&linear, "num_heads * head_dim", c->kda_heads, c->kda_head_dim, err)))
        return st;
    return read_layer_kinds(a, &linear, c->n_layers, out->layers, err);
}

static int32_t read_rotary(const struct eb_json_node *t, struct eb_config *c, ebro_error *err) {
    bool nope;
    int32_t st = eb_json_bool(t, "mla_use_nope", &nope, err);
    if (st != EBRO_OK || nope) return st;
    if (eb_json_has(t, "rope_scaling"))
        return unsupported(t, "rope_scaling", "a value other than null", "null", err);
    if (c->qk_rope_head_dim % 2 != 0)
        return eb_fail(err, EBRO_FORMAT,
                       "%s: key \"%sqk_rope_head_dim\": rotary turns pairs, found the odd %u",
                       t->file, t->path, c->qk_rope_head_dim);
    c->rotary_dim = c->qk_rope_head_dim;
    return eb_json_f32(t, "rope_theta", 1.0f, 1e12f, &c->rope_theta, err);
}

static int32_t read_mla(const struct eb_json_node *t, struct eb_config *c, ebro_error *err) {
    bool gate;
    int32_t st;
    if ((st = eb_json_u32(t, "num_attention_heads", 1, MAX_HEADS, &c->n_heads, err)) ||
        (st = eb_json_u32_or(t, "q_lora_rank", 1, MAX_WIDTH, 0, &c->q_lora_rank, err)) ||
        (st = eb_json_u32(t, "kv_lora_rank", 1, MAX_WIDTH, &c->kv_lora_rank, err)) ||
        (st = eb_json_u32(t, "qk_nope_head_dim", 1, MAX_HEAD_DIM, &c->qk_nope_head_dim, err)) ||
        (st = eb_json_u32(t, "qk_rope_head_dim", 0, MAX_HEAD_DIM, &c->qk_rope_head_dim, err)) ||
        (st = eb_json_u32(t, "v_head_dim", 1, MAX_HEAD_DIM, &c->v_head_dim, err)) ||
        (st = eb_json_bool_or(t, "mla_use_output_gate", false, &gate, err)))
        return st;
    c->mla_gate = gate ? EB_MLA_GATE_ELEMENT : EB_MLA_GATE_NONE;
    if ((st = check_width(t, "num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)",
                          c->n_heads, c->qk_nope_head_dim + c->qk_rope_head_dim, err)) ||
        (st = check_width(t, "num_attention_heads * (qk_nope_head_dim + v_head_dim)", c->n_heads,
                          c->qk_nope_head_dim + c->v_head_dim, err)))
        return st;
    return read_rotary(t, c, err);
}

static int32_t read_router(const struct eb_json_node *t, struct eb_config *c, ebro_error *err) {
    const char *function;
    uint32_t n_group, top_group;
    int32_t st;
    if ((st = eb_json_string(t, "moe_router_activation_func", &function, err)) ||
        (st = eb_json_u32_or(t, "num_expert_group", 0, MAX_EXPERTS, 1, &n_group, err)) ||
        (st = eb_json_u32_or(t, "topk_group", 0, MAX_EXPERTS, 1, &top_group, err)) ||
        (st = eb_json_f32(t, "routed_scaling_factor", 1e-6f, 1e6f, &c->routed_scaling_factor,
                          err)) ||
        (st = eb_json_bool(t, "moe_renormalize", &c->renormalise, err)))
        return st;
    if (strcmp(function, "sigmoid") != 0)
        return unsupported(t, "moe_router_activation_func", "a function other than \"sigmoid\"",
                           "\"sigmoid\"", err);
    if (n_group > 1) return unsupported(t, "num_expert_group", "more than one group", "1", err);
    if (top_group > 1) return unsupported(t, "topk_group", "more than one group", "1", err);
    return EBRO_OK;
}

static int32_t read_moe(const struct eb_json_node *t, struct eb_config_file *out, ebro_error *err) {
    struct eb_config *c = &out->c;
    uint32_t n_dense, freq;
    /* A dense model says nothing of experts, or null. */
    if (!eb_json_has(t, "num_experts") && !eb_json_has(t, "num_experts_per_token")) return EBRO_OK;
    int32_t st = eb_json_u32(t, "num_experts", 0, MAX_EXPERTS, &c->n_experts, err);
    if (st != EBRO_OK || c->n_experts == 0) return st;
    if ((st = eb_json_u32(t, "num_experts_per_token", 1, c->n_experts, &c->experts_per_token,
                          err)) ||
        (st = eb_json_u32_or(t, "num_shared_experts", 0, 1024, 0, &c->n_shared_experts, err)) ||
        (st = eb_json_u32(t, "moe_intermediate_size", 1, MAX_WIDTH, &c->moe_inner, err)) ||
        (st = eb_json_u32_or(t, "routed_expert_hidden_size", 1, MAX_WIDTH, 0, &c->latent_size,
                             err)) ||
        (st = eb_json_bool_or(t, "latent_moe_use_norm", false, &c->latent_norm, err)) ||
        (st = eb_json_u32(t, "first_k_dense_replace", 0, MAX_LAYERS, &n_dense, err)) ||
        (st = eb_json_u32_or(t, "moe_layer_freq", 1, MAX_LAYERS, 1, &freq, err)) ||
        (st = check_width(t, "num_shared_experts * moe_intermediate_size", c->n_shared_experts,
                          c->moe_inner, err)) ||
        (st = read_router(t, c, err)))
        return st;
    if (c->latent_size == 0) c->latent_norm = false;
    /* As published: the frequency counts from layer 0, not from the first that may be MoE. */
    for (uint32_t l = n_dense; l < c->n_layers; l++)
        if (l % freq == 0) out->layers[l] |= EB_LAYER_MOE;
    return EBRO_OK;
}

static int32_t read_residual(const struct eb_json_node *t, struct eb_config *c, ebro_error *err) {
    int32_t st =
        eb_json_u32_or(t, "attn_res_block_size", 0, MAX_LAYERS, 0, &c->attn_res_block, err);
    if (st != EBRO_OK || c->attn_res_block == 0) return st;
    uint32_t n_sources = (c->n_layers - 1) / c->attn_res_block + 2;
    if (n_sources > EBRO_MAX_SOURCES)
        return eb_fail(err, EBRO_UNSUPPORTED,
                       "%s: key \"%sattn_res_block_size\": %u layers in blocks of %u give %u "
                       "residual sources, at most %d are supported",
                       t->file, t->path, c->n_layers, c->attn_res_block, n_sources,
                       EBRO_MAX_SOURCES);
    return EBRO_OK;
}

static const char mx_format[] = "mxfp4-pack-quantized";

/* One entry of config_groups. */
static int32_t check_group(void *user, const struct eb_json_node *g, ebro_error *err) {
    (void)user;
    struct eb_json_node weights;
    const char *format;
    uint32_t group, bits;
    int32_t st;
    if ((st = eb_json_string_or(g, "format", mx_format, &format, err)) ||
        (st = eb_json_object_opt(g, "weights", &weights, err)) ||
        (st = eb_json_u32_or(&weights, "group_size", 0, 1 << 20, EBRO_MX_GROUP, &group, err)) ||
        (st = eb_json_u32_or(&weights, "num_bits", 1, 64, 4, &bits, err)))
        return st;
    if (strcmp(format, mx_format) != 0)
        return eb_fail(err, EBRO_UNSUPPORTED, "%s: key \"%sformat\": \"%.64s\" (known: \"%s\")",
                       g->file, g->path, format, mx_format);
    if (group != EBRO_MX_GROUP)
        return eb_fail(err, EBRO_UNSUPPORTED, "%s: key \"%sgroup_size\": %u (known: %d)", g->file,
                       weights.path, group, EBRO_MX_GROUP);
    if (bits != 4)
        return eb_fail(err, EBRO_UNSUPPORTED, "%s: key \"%snum_bits\": %u (known: 4)", g->file,
                       weights.path, bits);
    return EBRO_OK;
}

static int32_t read_quantization(const struct eb_json_node *n, struct eb_config_file *out,
                                 ebro_error *err) {
    struct eb_json_node q, groups;
    const char *format, *method;
    int32_t st = eb_json_object_opt(n, "quantization_config", &q, err);
    if (st != EBRO_OK || q.value == NULL) return st;
    if ((st = eb_json_string_or(&q, "quant_method", "unnamed", &method, err)) ||
        (st = eb_json_string_or(&q, "format", method, &format, err)))
        return st;
    if (strcmp(format, mx_format) != 0)
        return eb_fail(err, EBRO_UNSUPPORTED, "%s: key \"%sformat\": \"%.64s\" (known: \"%s\")",
                       q.file, q.path, format, mx_format);
    if ((st = eb_json_object_opt(&q, "config_groups", &groups, err))) return st;
    if (groups.value != NULL && (st = eb_json_each(&groups, check_group, NULL, err))) return st;
    out->mxfp4 = true;
    return EBRO_OK;
}

static int32_t add_stop(const struct eb_json_node *n, uint32_t id, struct eb_config_file *out,
                        ebro_error *err) {
    const uint32_t capacity = (uint32_t)(sizeof out->stop_ids / sizeof out->stop_ids[0]);
    for (uint32_t i = 0; i < out->n_stop; i++)
        if (out->stop_ids[i] == (int32_t)id) return EBRO_OK;
    if (out->n_stop == capacity)
        return eb_fail(err, EBRO_UNSUPPORTED, "%s: more than %u different stop tokens", n->file,
                       capacity);
    out->stop_ids[out->n_stop++] = (int32_t)id;
    return EBRO_OK;
}

int32_t eb_config_add_stops(const struct eb_json_node *n, struct eb_config_file *out,
                            ebro_error *err) {
    static const char key[] = "eos_token_id";
    const uint32_t last = out->c.vocab_size - 1;
    uint32_t id;
    size_t count = 0;
    int32_t st = EBRO_OK;
    if (!eb_json_has(n, key)) return EBRO_OK;
    if (!eb_json_is_array(n, key)) {
        if ((st = eb_json_u32(n, key, 0, last, &id, err))) return st;
        return add_stop(n, id, out, err);
    }
    if ((st = eb_json_array(n, key, &count, err))) return st;
    for (size_t i = 0; i < count && st == EBRO_OK; i++) {
        st = eb_json_u32_at(n, key, i, 0, last, &id, err);
        if (st == EBRO_OK) st = add_stop(n, id, out, err);
    }
    return st;
}

static int32_t read_tokens(const struct eb_json_node *root, const struct eb_json_node *text,
                           struct eb_config_file *out, ebro_error *err) {
    uint32_t bos;
    int32_t st;
    const struct eb_json_node *from = eb_json_has(text, "bos_token_id") ? text : root;
    if ((st = eb_json_u32_or(from, "bos_token_id", 0, out->c.vocab_size - 1, UINT32_MAX, &bos,
                             err)) ||
        (st = eb_config_add_stops(text, out, err)))
        return st;
    out->bos = bos == UINT32_MAX ? -1 : (int32_t)bos;
    return text->value == root->value ? EBRO_OK : eb_config_add_stops(root, out, err);
}

int32_t eb_config_read(const struct eb_alloc *a, const struct eb_json_node *root,
                       const struct eb_json_node *text, struct eb_config_file *out,
                       ebro_error *err) {
    struct eb_config_file f = {.bos = -1};
    int32_t st = read_sizes(text, &f.c, err);
    if (st != EBRO_OK) return st;
    f.layers = eb_calloc(a, f.c.n_layers, 1, err);
    if (f.layers == NULL) return EBRO_NOMEM_HOST;
    if ((st = read_activation(text, &f.c, err)) || (st = read_kda(a, text, &f, err)) ||
        (st = read_mla(text, &f.c, err)) || (st = read_moe(text, &f, err)) ||
        (st = read_residual(text, &f.c, err)) || (st = read_quantization(text, &f, err)) ||
        (st = eb_json_bool_or(text, "tie_word_embeddings", false, &f.tied, err)) ||
        (st = read_tokens(root, text, &f, err)))
        goto out;
    /* Some files keep it at the top, beside text_config. */
    if (text->value != root->value && (st = read_quantization(root, &f, err))) goto out;
    *out = f;
    f.layers = NULL;
out:
    eb_free(a, f.layers);
    return st;
}
