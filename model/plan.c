/* plan.c: the parts of a model and of a layer as tables, so that nothing is forgotten in a walk.
 * Not its job: what the parts mean (model.h) or how they are found (arch_*.c). */
#include "model/plan.h"

/* A part whose name depends on what the layer is, until resolve() has looked at it. */
enum { MIXER = -1, FFN = -2 };

struct slot {
    size_t offset; /* in struct eb_layer */
    int32_t part;  /* ebro_part, or one of the above */
    bool whole;    /* an op wants all of it in one memory; always so for vectors */
};

#define SLOT(field, part) \
    { offsetof(struct eb_layer, field), part, false }
#define WHOLE(field, part) \
    { offsetof(struct eb_layer, field), part, true }
static const struct slot layer_vectors[] = {
    SLOT(input_norm, EBRO_PART_NORMS),
    SLOT(post_norm, EBRO_PART_NORMS),
    SLOT(attn_res.norm, EBRO_PART_NORMS),
    SLOT(attn_res.proj, EBRO_PART_NORMS),
    SLOT(ffn_res.norm, EBRO_PART_NORMS),
    SLOT(ffn_res.proj, EBRO_PART_NORMS),
    SLOT(conv[0], MIXER),
    SLOT(conv[1], MIXER),
    SLOT(conv[2], MIXER),
    SLOT(a_log, MIXER),
    SLOT(dt_bias, MIXER),
    SLOT(o_norm, MIXER),
    SLOT(q_a_norm, MIXER),
    SLOT(kv_a_norm, MIXER),
    SLOT(score_bias, EBRO_PART_ROUTER),
    SLOT(latent_norm, EBRO_PART_LATENT),
};

static const struct slot layer_matrices[] = {
    SLOT(o_proj, MIXER),
    SLOT(q_proj, MIXER),
    SLOT(k_proj, MIXER),
    SLOT(v_proj, MIXER),
    SLOT(f_a, MIXER),
    SLOT(f_b, MIXER),
    SLOT(b_proj, MIXER),
    SLOT(g_a, MIXER),
    SLOT(g_b, MIXER),
    SLOT(g_proj, MIXER),
    SLOT(q_a, MIXER),
    SLOT(q_b, MIXER),
    SLOT(kv_a, MIXER),
    WHOLE(kv_b, MIXER),
    SLOT(gate_proj, FFN),
    SLOT(up_proj, FFN),
    SLOT(down_proj, FFN),
    WHOLE(router, EBRO_PART_ROUTER),
    SLOT(latent_down, EBRO_PART_LATENT),
    SLOT(latent_up, EBRO_PART_LATENT),
};
#undef SLOT
#undef WHOLE

struct walk {
    int32_t (*each)(void *user, const struct eb_plan_entry *entry, ebro_error *err);
    void *user;
    int32_t layer;
};

static int32_t resolve(int32_t part, const struct eb_layer *y) {
    if (part == MIXER) return y->is_kda ? EBRO_PART_KDA : EBRO_PART_MLA;
    if (part == FFN) return y->is_moe ? EBRO_PART_SHARED_EXPERTS : EBRO_PART_DENSE_FFN;
    return part;
}

static int32_t visit(const struct walk *w, const struct eb_tensor *t, uint64_t params, int32_t part,
                     bool by_rows, ebro_error *err) {
    const struct eb_plan_entry entry = {t, params, part, w->layer, by_rows};
    return t == NULL ? EBRO_OK : w->each(w->user, &entry, err);
}

static int32_t visit_vector(const struct walk *w, const struct eb_tensor *t, int32_t part,
                            ebro_error *err) {
    uint64_t n = 1;
    for (uint32_t d = 0; t != NULL && d < t->n_dims; d++) n *= t->shape[d];
    return visit(w, t, n, part, false, err);
}

static int32_t visit_matrix(const struct walk *w, const struct eb_matrix *m, int32_t part,
                            bool by_rows, ebro_error *err) {
    int32_t st = visit(w, m->w, (uint64_t)m->rows * m->cols, part, by_rows, err);
    return st == EBRO_OK ? visit(w, m->scale, 0, part, by_rows, err) : st;
}

static int32_t visit_layer(const struct walk *w, const struct ebro_model *m,
                           const struct eb_layer *y, ebro_error *err) {
    const char *base = (const char *)y;
    int32_t st = EBRO_OK;
    for (size_t i = 0; i < sizeof layer_vectors / sizeof *layer_vectors && st == EBRO_OK; i++) {
        const struct slot *s = &layer_vectors[i];
        st = visit_vector(w, *(const struct eb_tensor *const *)(const void *)(base + s->offset),
                          resolve(s->part, y), err);
    }
    for (size_t i = 0; i < sizeof layer_matrices / sizeof *layer_matrices && st == EBRO_OK; i++) {
        const struct slot *s = &layer_matrices[i];
        st = visit_matrix(w, (const struct eb_matrix *)(const void *)(base + s->offset),
                          resolve(s->part, y), !s->whole, err);
    }
    for (int i = 0; i < 3 && y->is_moe; i++)
        for (uint32_t e = 0; e < m->config.n_experts && st == EBRO_OK; e++)
            st = visit_matrix(w, &y->experts[i][e], EBRO_PART_EXPERTS, false, err);
    return st;
}

int32_t eb_plan_each_part(const struct ebro_model *m,
                          int32_t (*each)(void *user, const struct eb_plan_entry *entry,
                                          ebro_error *err),
                          void *user, ebro_error *err) {
    struct walk w = {each, user, -1};
    int32_t st = visit_matrix(&w, &m->embed, EBRO_PART_EMBEDDING, true, err);
    for (uint32_t l = 0; l < m->config.n_layers && st == EBRO_OK; l++) {
        w.layer = (int32_t)l;
        st = visit_layer(&w, m, &m->layers[l], err);
    }
    w.layer = -1;
    if (st == EBRO_OK) st = visit_vector(&w, m->output_res.norm, EBRO_PART_NORMS, err);
    if (st == EBRO_OK) st = visit_vector(&w, m->output_res.proj, EBRO_PART_NORMS, err);
    if (st == EBRO_OK) st = visit_vector(&w, m->final_norm, EBRO_PART_NORMS, err);
    return st == EBRO_OK ? visit_matrix(&w, &m->lm_head, EBRO_PART_HEAD, true, err) : st;
}

struct plain {
    int32_t (*each)(void *user, const struct eb_tensor *t, ebro_error *err);
    void *user;
};

static int32_t tensor_alone(void *user, const struct eb_plan_entry *entry, ebro_error *err) {
    const struct plain *p = user;
    return p->each(p->user, entry->tensor, err);
}

int32_t eb_plan_each(const struct ebro_model *m,
                     int32_t (*each)(void *user, const struct eb_tensor *t, ebro_error *err),
                     void *user, ebro_error *err) {
    struct plain p = {each, user};
    return eb_plan_each_part(m, tensor_alone, &p, err);
}
