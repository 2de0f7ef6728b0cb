/* arch_kimi_k3.c: what Kimi K3 added to Kimi Linear: its wrapper, Attention Residuals and
 * LatentMoE. Not its job: the modules that both share (arch_kimi_linear.c). */
#include "model/arch.h"

static const char *const skip_prefixes[] = {"vision_tower.", "mm_projector.", NULL};

const struct eb_arch eb_arch_kimi_k3 = {
    .class_name = "KimiK3ForConditionalGeneration",
    .name = "kimi-k3",
    .chat = EB_CHAT_KIMI_K3,
    .config_key = "text_config",
    .prefix = "language_model.",
    .skip_prefixes = skip_prefixes,
};

void eb_kimi_k3_bind_residuals(struct eb_binder *b, uint32_t l) {
    const uint32_t n = b->m->config.hidden_size;
    struct eb_layer *y = &b->m->layers[l];
    /* Before the first layer nothing is banked and the mix is the sum itself: published files have
     * this pair for layer 0 too, but nothing reads it. */
    static const char norm[] = "model.layers.%u.self_attention_res_norm.weight";
    static const char proj[] = "model.layers.%u.self_attention_res_proj.weight";
    if (l > 0 || eb_bind_peek_rows(b, norm, l) > 0) y->attn_res.norm = eb_bind_vec(b, n, norm, l);
    if (l > 0 || eb_bind_peek_rows(b, proj, l) > 0) y->attn_res.proj = eb_bind_vec(b, n, proj, l);
    y->ffn_res.norm = eb_bind_vec(b, n, "model.layers.%u.mlp_res_norm.weight", l);
    y->ffn_res.proj = eb_bind_vec(b, n, "model.layers.%u.mlp_res_proj.weight", l);
}

void eb_kimi_k3_bind_output_residual(struct eb_binder *b) {
    const uint32_t n = b->m->config.hidden_size;
    b->m->output_res.norm = eb_bind_vec(b, n, "model.output_attn_res_norm.weight");
    b->m->output_res.proj = eb_bind_vec(b, n, "model.output_attn_res_proj.weight");
}

void eb_kimi_k3_bind_latent(struct eb_binder *b, uint32_t l) {
    const struct eb_config *c = &b->m->config;
    struct eb_layer *y = &b->m->layers[l];
    eb_bind_matrix(b, &y->latent_down, c->latent_size, c->hidden_size, EB_BIND_PACKED,
                   "model.layers.%u.block_sparse_moe.routed_expert_down_proj", l);
    if (c->latent_norm)
        y->latent_norm = eb_bind_vec(
            b, c->latent_size, "model.layers.%u.block_sparse_moe.routed_expert_norm.weight", l);
    eb_bind_matrix(b, &y->latent_up, c->hidden_size, c->latent_size, EB_BIND_PACKED,
                   "model.layers.%u.block_sparse_moe.routed_expert_up_proj", l);
}
