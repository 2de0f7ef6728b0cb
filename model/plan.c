/* plan.c: the parts of a model and of a layer as tables, so that nothing is forgotten in a walk.
 * Not its job: what the parts mean (model.h) or how they are found (arch_*.c). */
#include "model/plan.h"

static const size_t layer_vectors[] = {
    offsetof(struct eb_layer, input_norm),    offsetof(struct eb_layer, post_norm),
    offsetof(struct eb_layer, attn_res.norm), offsetof(struct eb_layer, attn_res.proj),
    offsetof(struct eb_layer, ffn_res.norm),  offsetof(struct eb_layer, ffn_res.proj),
    offsetof(struct eb_layer, conv[0]),       offsetof(struct eb_layer, conv[1]),
    offsetof(struct eb_layer, conv[2]),       offsetof(struct eb_layer, a_log),
    offsetof(struct eb_layer, dt_bias),       offsetof(struct eb_layer, o_norm),
    offsetof(struct eb_layer, q_a_norm),      offsetof(struct eb_layer, kv_a_norm),
    offsetof(struct eb_layer, score_bias),    offsetof(struct eb_layer, latent_norm),
};

static const size_t layer_matrices[] = {
    offsetof(struct eb_layer, o_proj),      offsetof(struct eb_layer, q_proj),
    offsetof(struct eb_layer, k_proj),      offsetof(struct eb_layer, v_proj),
    offsetof(struct eb_layer, f_a),         offsetof(struct eb_layer, f_b),
    offsetof(struct eb_layer, b_proj),      offsetof(struct eb_layer, g_a),
    offsetof(struct eb_layer, g_b),         offsetof(struct eb_layer, g_proj),
    offsetof(struct eb_layer, q_a),         offsetof(struct eb_layer, q_b),
    offsetof(struct eb_layer, kv_a),        offsetof(struct eb_layer, kv_b),
    offsetof(struct eb_layer, gate_proj),   offsetof(struct eb_layer, up_proj),
    offsetof(struct eb_layer, down_proj),   offsetof(struct eb_layer, router),
    offsetof(struct eb_layer, latent_down), offsetof(struct eb_layer, latent_up),
};

struct walk {
    int32_t (*each)(void *user, const struct eb_tensor *t, ebro_error *err);
    void *user;
};

static int32_t visit(const struct walk *w, const struct eb_tensor *t, ebro_error *err) {
    return t == NULL ? EBRO_OK : w->each(w->user, t, err);
}

static int32_t visit_matrix(const struct walk *w, const struct eb_matrix *m, ebro_error *err) {
    int32_t st = visit(w, m->w, err);
    return st == EBRO_OK ? visit(w, m->scale, err) : st;
}

static int32_t visit_layer(const struct walk *w, const struct ebro_model *m,
                           const struct eb_layer *y, ebro_error *err) {
    const char *base = (const char *)y;
    int32_t st = EBRO_OK;
    for (size_t i = 0; i < sizeof layer_vectors / sizeof *layer_vectors && st == EBRO_OK; i++)
        st = visit(w, *(const struct eb_tensor *const *)(const void *)(base + layer_vectors[i]),
                   err);
    for (size_t i = 0; i < sizeof layer_matrices / sizeof *layer_matrices && st == EBRO_OK; i++)
        st = visit_matrix(w, (const struct eb_matrix *)(const void *)(base + layer_matrices[i]),
                          err);
    for (int i = 0; i < 3 && y->is_moe; i++)
        for (uint32_t e = 0; e < m->config.n_experts && st == EBRO_OK; e++)
            st = visit_matrix(w, &y->experts[i][e], err);
    return st;
}

int32_t eb_plan_each(const struct ebro_model *m,
                     int32_t (*each)(void *user, const struct eb_tensor *t, ebro_error *err),
                     void *user, ebro_error *err) {
    const struct walk w = {each, user};
    int32_t st = visit_matrix(&w, &m->embed, err);
    for (uint32_t l = 0; l < m->config.n_layers && st == EBRO_OK; l++)
        st = visit_layer(&w, m, &m->layers[l], err);
    if (st == EBRO_OK) st = visit(&w, m->output_res.norm, err);
    if (st == EBRO_OK) st = visit(&w, m->output_res.proj, err);
    if (st == EBRO_OK) st = visit(&w, m->final_norm, err);
    return st == EBRO_OK ? visit_matrix(&w, &m->lm_head, err) : st;
}
