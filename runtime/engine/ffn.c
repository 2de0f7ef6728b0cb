/* ffn.c: the feed-forward half of a layer: dense, mixture of experts, or LatentMoE with shared
 * experts. */
#include "engine/engine.h"

/* out += down(act(gate x) * up x): the dense FFN, or the shared experts fused into one. */
static int32_t forward_dense(struct ebro_engine *e, uint32_t n, const struct eb_layer *y,
                             ebro_mat out, ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    struct eb_workspace *w = &e->work;
    /* Widths differ between dense and shared FFNs: rows are packed to this one's. */
    ebro_mat gate = w->ffn_gate, up = w->ffn_up;
    gate.stride = up.stride = y->gate_proj.rows;
    struct eb_products p = eb_products_begin(e, n, w->normed);
    int32_t st = eb_products_add(&p, &y->gate_proj, gate, false, err);
    if (st == EBRO_OK) st = eb_products_add(&p, &y->up_proj, up, false, err);
    if (st == EBRO_OK) st = eb_products_end(&p, err);
    if (st != EBRO_OK) return st;
    ebro_act_mul_args act = {.size = sizeof act,
                             .gate = gate,
                             .up = up,
                             .out = up,
                             .n_rows = n,
                             .n_cols = y->gate_proj.rows,
                             .gate_group = 1,
                             .kind = c->act,
                             .beta = c->situ_beta,
                             .beta2 = c->situ_linear_beta};
    if ((st = eb_op_act_mul(&e->stream, &act, err)) != EBRO_OK) return st;
    return eb_forward_linear(e, n, up, &y->down_proj, out, true, err);
}

static int32_t route(struct ebro_engine *e, const struct eb_step *step, uint32_t layer,
                     ebro_error *err) {
    const struct eb_layer *y = &e->model->layers[layer];
    const struct eb_config *c = &e->model->config;
    struct eb_workspace *w = &e->work;
    ebro_moe_route_args a = {.size = sizeof a,
                             .x = w->normed,
                             .gate = eb_weight(e->weights, &y->router),
                             .bias = eb_vec(e->weights, y->score_bias),
                             .n_rows = step->n_rows,
                             .n_experts = c->n_experts,
                             .top_k = c->experts_per_token,
                             .scaling = c->routed_scaling_factor,
                             .renormalise = c->renormalise,
                             .biased_weights = c->biased_expert_weights,
                             .ids = w->expert_ids,
                             .weights = w->expert_weights,
                             .offsets = w->expert_offsets,
                             .pairs = w->expert_pairs,
                             .scratch = w->route_scratch};
    bool forced = false;
    int32_t st = eb_experts_force(e, step, layer, &forced, err);
    if (st != EBRO_OK) return st;
    a.forced = forced;
    st = eb_op_moe_route(&e->stream, &a, err);
    return st == EBRO_OK ? eb_experts_keep(e, step, layer, err) : st;
}

static int32_t experts(struct ebro_engine *e, uint32_t n, uint32_t layer, ebro_mat x, ebro_mat out,
                       ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    const struct eb_layer *y = &e->model->layers[layer];
    struct eb_workspace *w = &e->work;
    ebro_moe_experts_args a = {.size = sizeof a,
                               .x = x,
                               .out = out,
                               .n_rows = n,
                               .n_experts = c->n_experts,
                               .top_k = c->experts_per_token,
                               .in_dim = y->experts[0][0].cols,
                               .inner_dim = y->experts[0][0].rows,
                               .tables = eb_expert_table(e->weights, layer),
                               .scale_tables = eb_expert_scale_table(e->weights, layer),
                               .dtype = y->experts[0][0].dtype,
                               .act = c->act,
                               .beta = c->situ_beta,
                               .beta2 = c->situ_linear_beta,
                               .weights = w->expert_weights,
                               .offsets = w->expert_offsets,
                               .pairs = w->expert_pairs,
                               .scratch = w->expert_scratch};
    return eb_op_moe_experts(&e->stream, &a, err);
}

/* z = down(x); out += up(norm(sum of experts on z)). */
static int32_t forward_latent(struct ebro_engine *e, uint32_t n, uint32_t layer, ebro_mat out,
                              ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    const struct eb_layer *y = &e->model->layers[layer];
    struct eb_workspace *w = &e->work;
    int32_t st = eb_forward_linear(e, n, w->normed, &y->latent_down, w->latent_in, false, err);
    if (st != EBRO_OK) return st;
    ebro_span sum = {w->latent_sum.mem, w->latent_sum.offset};
    st = eb_fill(&e->stream, sum, 0, (uint64_t)n * c->latent_size * sizeof(float), err);
    if (st != EBRO_OK) return st;
    if ((st = experts(e, n, layer, w->latent_in, w->latent_sum, err)) != EBRO_OK) return st;
    if (y->latent_norm != NULL) {
        st = eb_forward_norm(e, n, c->latent_size, w->latent_sum, y->latent_norm, c->rms_norm_eps,
                             w->latent_sum, err);
        if (st != EBRO_OK) return st;
    }
    return eb_forward_linear(e, n, w->latent_sum, &y->latent_up, out, true, err);
}

int32_t eb_forward_ffn(struct ebro_engine *e, const struct eb_step *step, uint32_t layer,
                       ebro_mat out, ebro_error *err) {
    uint32_t n_rows = step->n_rows;
    const struct eb_layer *y = &e->model->layers[layer];
    int32_t st = EBRO_OK;
    if (y->is_moe) {
        if ((st = route(e, step, layer, err)) != EBRO_OK) return st;
        st = y->latent_down.w != NULL ? forward_latent(e, n_rows, layer, out, err)
                                      : experts(e, n_rows, layer, e->work.normed, out, err);
        if (st != EBRO_OK) return st;
    }
    if (y->gate_proj.w != NULL) st = forward_dense(e, n_rows, y, out, err);
    return st;
}
