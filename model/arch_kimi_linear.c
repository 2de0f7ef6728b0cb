/* arch_kimi_linear.c: names and shapes of Kimi Linear's modules: KDA, MLA, dense FFN and MoE. Not
 * its job: what K3 added (arch_kimi_k3.c), and how to find a tensor (bind.c). */
#include "model/arch.h"

static const char *const skip_prefixes[] = {NULL};

const struct eb_arch eb_arch_kimi_linear = {
    .class_name = "KimiLinearForCausalLM",
    .name = "kimi-linear",
    .chat = EB_CHAT_KIMI_LINEAR,
    .config_key = NULL,
    .prefix = "",
    .skip_prefixes = skip_prefixes,
};

static void bind_kda(struct eb_binder *b, uint32_t l) {
    const struct eb_config *c = &b->m->config;
    struct eb_layer *y = &b->m->layers[l];
    const uint32_t hidden = c->hidden_size, dim = c->kda_head_dim, width = c->kda_heads * dim;
    const enum eb_bind_form form = EB_BIND_PACKED;
    eb_bind_matrix(b, &y->q_proj, width, hidden, form, "model.layers.%u.self_attn.q_proj", l);
    eb_bind_matrix(b, &y->k_proj, width, hidden, form, "model.layers.%u.self_attn.k_proj", l);
    eb_bind_matrix(b, &y->v_proj, width, hidden, form, "model.layers.%u.self_attn.v_proj", l);
    static const char names[3] = {'q', 'k', 'v'};
    for (int i = 0; i < 3; i++)
        y->conv[i] =
            eb_bind_conv(b, width, "model.layers.%u.self_attn.%c_conv1d.weight", l, names[i]);
    eb_bind_matrix(b, &y->f_a, dim, hidden, form, "model.layers.%u.self_attn.f_a_proj", l);
    eb_bind_matrix(b, &y->f_b, width, dim, form, "model.layers.%u.self_attn.f_b_proj", l);
    eb_bind_matrix(b, &y->b_proj, c->kda_heads, hidden, form, "model.layers.%u.self_attn.b_proj",
                   l);
    if (c->kda_full_rank_gate) {
        eb_bind_matrix(b, &y->g_proj, width, hidden, form, "model.layers.%u.self_attn.g_proj", l);
    } else {
        eb_bind_matrix(b, &y->g_a, dim, hidden, form, "model.layers.%u.self_attn.g_a_proj", l);
        eb_bind_matrix(b, &y->g_b, width, dim, form, "model.layers.%u.self_attn.g_b_proj", l);
    }
    y->a_log = eb_bind_a_log(b, c->kda_heads, "model.layers.%u.self_attn.A_log", l);
    y->dt_bias = eb_bind_vec(b, width, "model.layers.%u.self_attn.dt_bias", l);
    y->o_norm = eb_bind_vec(b, dim, "model.layers.%u.self_attn.o_norm.weight", l);
    eb_bind_matrix(b, &y->o_proj, hidden, width, form, "model.layers.%u.self_attn.o_proj", l);
}

/* The configuration says that there is a gate; the rows of the first one say of which kind. */
static uint32_t gate_rows(struct eb_binder *b, uint32_t l) {
    struct eb_config *c = &b->m->config;
    const uint64_t rows = eb_bind_peek_rows(b, "model.layers.%u.self_attn.g_proj.weight", l);
    bool first = true;
    for (uint32_t i = 0; i < l; i++)
        if (!b->m->layers[i].is_kda) first = false;
    if (first && rows == c->n_heads && c->v_head_dim != 1) c->mla_gate = EB_MLA_GATE_HEAD;
    return c->mla_gate == EB_MLA_GATE_HEAD ? c->n_heads : c->n_heads * c->v_head_dim;
}

static void bind_mla(struct eb_binder *b, uint32_t l) {
    const struct eb_config *c = &b->m->config;
    struct eb_layer *y = &b->m->layers[l];
    const uint32_t hidden = c->hidden_size, values = c->n_heads * c->v_head_dim;
    const uint32_t queries = c->n_heads * (c->qk_nope_head_dim + c->qk_rope_head_dim);
    const enum eb_bind_form form = EB_BIND_PACKED;
    if (c->q_lora_rank == 0) {
        eb_bind_matrix(b, &y->q_proj, queries, hidden, form, "model.layers.%u.self_attn.q_proj", l);
    } else {
        eb_bind_matrix(b, &y->q_a, c->q_lora_rank, hidden, form,
                       "model.layers.%u.self_attn.q_a_proj", l);
        y->q_a_norm =
            eb_bind_vec(b, c->q_lora_rank, "model.layers.%u.self_attn.q_a_layernorm.weight", l);
        eb_bind_matrix(b, &y->q_b, queries, c->q_lora_rank, form,
                       "model.layers.%u.self_attn.q_b_proj", l);
    }
    eb_bind_matrix(b, &y->kv_a, c->kv_lora_rank + c->qk_rope_head_dim, hidden, form,
                   "model.layers.%u.self_attn.kv_a_proj_with_mqa", l);
    y->kv_a_norm =
        eb_bind_vec(b, c->kv_lora_rank, "model.layers.%u.self_attn.kv_a_layernorm.weight", l);
    /* Plain: its heads are used one by one, and transposed. */
    eb_bind_matrix(b, &y->kv_b, c->n_heads * (c->qk_nope_head_dim + c->v_head_dim), c->kv_lora_rank,
                   EB_BIND_PLAIN, "model.layers.%u.self_attn.kv_b_proj", l);
    if (c->mla_gate != EB_MLA_GATE_NONE)
        eb_bind_matrix(b, &y->g_proj, gate_rows(b, l), hidden, form,
                       "model.layers.%u.self_attn.g_proj", l);
    eb_bind_matrix(b, &y->o_proj, hidden, values, form, "model.layers.%u.self_attn.o_proj", l);
}

static void bind_ffn(struct eb_binder *b, uint32_t l, const char *part, uint32_t inner) {
    struct eb_layer *y = &b->m->layers[l];
    const uint32_t hidden = b->m->config.hidden_size;
    eb_bind_matrix(b, &y->gate_proj, inner, hidden, EB_BIND_PACKED, "model.layers.%u.%s.gate_proj",
                   l, part);
    eb_bind_matrix(b, &y->up_proj, inner, hidden, EB_BIND_PACKED, "model.layers.%u.%s.up_proj", l,
                   part);
    eb_bind_matrix(b, &y->down_proj, hidden, inner, EB_BIND_PACKED, "model.layers.%u.%s.down_proj",
                   l, part);
}

/* One op call works on all experts of a layer, so they share a dtype. */
static void bind_experts(struct eb_binder *b, uint32_t l) {
    const struct eb_config *c = &b->m->config;
    struct eb_layer *y = &b->m->layers[l];
    const uint32_t inner = c->moe_inner;
    const uint32_t width = c->latent_size > 0 ? c->latent_size : c->hidden_size;
    static const int numbers[3] = {1, 3, 2}; /* gate, up, down */
    for (uint32_t e = 0; e < c->n_experts; e++)
        for (int i = 0; i < 3; i++) {
            struct eb_matrix *w = &y->experts[i][e];
            eb_bind_matrix(b, w, i < 2 ? inner : width, i < 2 ? width : inner, EB_BIND_PACKED,
                           "model.layers.%u.block_sparse_moe.experts.%u.w%d", l, e, numbers[i]);
            const struct eb_matrix *like = &y->experts[0][0];
            if (w->w != NULL && like->w != NULL && w->dtype != like->dtype)
                eb_bind_problem(b, EBRO_UNSUPPORTED,
                                "tensors \"%s\" and \"%s\" have different dtypes: all experts of a "
                                "layer must share one",
                                like->w->name, w->w->name);
        }
}

static int32_t bind_moe(struct eb_binder *b, uint32_t l, ebro_error *err) {
    const struct eb_config *c = &b->m->config;
    struct eb_layer *y = &b->m->layers[l];
    struct eb_matrix *experts =
        eb_calloc(&b->m->alloc, (size_t)c->n_experts * 3, sizeof *experts, err);
    if (experts == NULL) return EBRO_NOMEM_HOST;
    for (size_t i = 0; i < 3; i++) y->experts[i] = experts + i * c->n_experts;
    eb_bind_matrix(b, &y->router, c->n_experts, c->hidden_size, EB_BIND_PLAIN,
                   "model.layers.%u.block_sparse_moe.gate", l);
    y->score_bias = eb_bind_vec(b, c->n_experts,
                                "model.layers.%u.block_sparse_moe.gate.e_score_correction_bias", l);
    if (c->latent_size > 0) eb_kimi_k3_bind_latent(b, l);
    bind_experts(b, l);
    if (c->n_shared_experts > 0)
        bind_ffn(b, l, "block_sparse_moe.shared_experts", c->n_shared_experts * c->moe_inner);
    return EBRO_OK;
}

static int32_t bind_layer(struct eb_binder *b, uint32_t l, ebro_error *err) {
    const struct eb_config *c = &b->m->config;
    struct eb_layer *y = &b->m->layers[l];
    y->input_norm = eb_bind_vec(b, c->hidden_size, "model.layers.%u.input_layernorm.weight", l);
    y->post_norm =
        eb_bind_vec(b, c->hidden_size, "model.layers.%u.post_attention_layernorm.weight", l);
    if (c->attn_res_block > 0) eb_kimi_k3_bind_residuals(b, l);
    if (y->is_kda) {
        bind_kda(b, l);
    } else {
        bind_mla(b, l);
    }
    if (y->is_moe) return bind_moe(b, l, err);
    bind_ffn(b, l, "mlp", c->intermediate_size);
    return EBRO_OK;
}

int32_t eb_kimi_bind(struct eb_binder *b, ebro_error *err) {
    struct ebro_model *m = b->m;
    const struct eb_config *c = &m->config;
    eb_bind_matrix(b, &m->embed, c->vocab_size, c->hidden_size, EB_BIND_PLAIN,
                   "model.embed_tokens");
    m->final_norm = eb_bind_vec(b, c->hidden_size, "model.norm.weight");
    for (uint32_t l = 0; l < c->n_layers; l++) {
        int32_t st = bind_layer(b, l, err);
        if (st != EBRO_OK) return st;
    }
    if (c->attn_res_block > 0) eb_kimi_k3_bind_output_residual(b);
    /* Tied models may still ship an lm_head, which then equals embed_tokens and is left alone. */
    m->lm_head = m->embed;
    if (!b->file->tied || eb_bind_peek_rows(b, "lm_head.weight") > 0)
        eb_bind_matrix(b, &m->lm_head, c->vocab_size, c->hidden_size, EB_BIND_PLAIN, "lm_head");
    if (b->file->tied) m->lm_head = m->embed;
    return eb_bind_finish(b, err);
}
