/* forward.c: the walk over the layers: embedding, residual stream, final norm and head. What
 * happens inside a layer stands in mixer.c and ffn.c. */
#include "engine/engine.h"

ebro_mat eb_mat_from(ebro_mat m, uint32_t first) {
    uint32_t size = eb_dtype_size(m.dtype);
    m.offset += (uint64_t)first * m.stride * size;
    return m;
}

int32_t eb_forward_norm(struct ebro_engine *e, uint32_t n_rows, uint32_t n_cols, ebro_mat x,
                        const struct eb_tensor *weight, float eps, ebro_mat out, ebro_error *err) {
    ebro_rms_norm_args a = {.size = sizeof a,
                            .x = x,
                            .out = out,
                            .weight = eb_vec(e->weights, weight),
                            .n_rows = n_rows,
                            .n_cols = n_cols,
                            .eps = eps};
    return eb_op_rms_norm(&e->stream, &a, err);
}

/* The residual stream of one step. With Attention Residuals, residual[0 .. n_banked) are the banked
 * sums and residual[n_banked] the running one; banking just moves on to the next buffer. */
struct residual {
    uint32_t n_banked;
    bool fresh; /* the running sum holds nothing yet: the next addend replaces it */
};

static int32_t mix(struct ebro_engine *e, const struct residual *r, struct eb_res_pair pair,
                   uint32_t first, uint32_t n_rows, ebro_mat *out, ebro_error *err) {
    struct eb_workspace *w = &e->work;
    *out = eb_mat_from(w->residual[r->n_banked], first);
    /* With nothing banked the mix is the running sum itself. */
    if (r->n_banked == 0 || pair.proj == NULL) return EBRO_OK;
    ebro_attn_res_mix_args a = {.size = sizeof a,
                                .n_sources = r->n_banked + 1,
                                .n_rows = n_rows,
                                .n_cols = e->model->config.hidden_size,
                                .norm_weight = eb_vec(e->weights, pair.norm),
                                .proj = eb_vec(e->weights, pair.proj),
                                .eps = e->model->config.rms_norm_eps,
                                .out = w->mixed};
    for (uint32_t i = 0; i <= r->n_banked; i++) {
        a.sources[i] = eb_mat_from(w->residual[i], first);
    }
    *out = w->mixed;
    return eb_op_attn_res_mix(&e->stream, &a, err);
}

static int32_t forward_layer(struct ebro_engine *e, const struct eb_step *step, uint32_t i,
                             uint32_t *n_kda, uint32_t *n_mla, struct residual *r,
                             ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    const struct eb_layer *y = &e->model->layers[i];
    struct eb_workspace *w = &e->work;
    uint32_t n = step->n_rows;
    ebro_mat read = {0};

    int32_t st = mix(e, r, y->attn_res, 0, n, &read, err);
    if (st != EBRO_OK) return st;
    st =
        eb_forward_norm(e, n, c->hidden_size, read, y->input_norm, c->rms_norm_eps, w->normed, err);
    if (st != EBRO_OK) return st;
    if (c->attn_res_block != 0 && i % c->attn_res_block == 0) {
        r->n_banked++;
        r->fresh = true;
    }
    ebro_mat sum = w->residual[r->n_banked];
    st = y->is_kda ? eb_forward_kda(e, step, i, (*n_kda)++, sum, !r->fresh, err)
                   : eb_forward_mla(e, step, i, (*n_mla)++, sum, !r->fresh, err);
    if (st != EBRO_OK) return st;
    r->fresh = false;

    if ((st = mix(e, r, y->ffn_res, 0, n, &read, err)) != EBRO_OK) return st;
    st = eb_forward_norm(e, n, c->hidden_size, read, y->post_norm, c->rms_norm_eps, w->normed, err);
    if (st != EBRO_OK) return st;
    return eb_forward_ffn(e, step, i, sum, err);
}

/* Final mix, norm and head for rows whose logits are wanted. */
static int32_t forward_head(struct ebro_engine *e, const struct eb_head *head,
                            const struct residual *r, ebro_error *err) {
    const struct ebro_model *m = e->model;
    ebro_mat read = {0};
    int32_t st = mix(e, r, m->output_res, head->first_row, head->n, &read, err);
    if (st != EBRO_OK) return st;
    st = eb_forward_norm(e, head->n, m->config.hidden_size, read, m->final_norm,
                         m->config.rms_norm_eps, e->work.normed, err);
    if (st != EBRO_OK) return st;
    return eb_forward_linear(e, head->n, e->work.normed, &m->lm_head, head->out, false, err);
}

/* Before layer i. A step of decoding rows changes states in place, so only its start can be
 * cancelled. */
static int32_t tell_progress(const struct ebro_engine *e, const struct eb_step *step, uint32_t i,
                             ebro_error *err) {
    if (i > 0 && step->n_decoding == step->n_parts) return EBRO_OK;
    double share = (double)i / e->model->config.n_layers;
    return eb_progress_tell(&e->progress, "evaluating tokens", step->progress + step->share * share,
                            err);
}

int32_t eb_forward_begin(const struct ebro_engine *e, const struct eb_step *step, ebro_error *err) {
    return tell_progress(e, step, 0, err);
}

/* A table that lies in several memories is looked up in each: the first gives zeros for the ids
 * that it does not hold, the others leave those rows as they are. */
static int32_t embed(struct ebro_engine *e, uint32_t n_rows, ebro_error *err) {
    const struct eb_matrix *table = &e->model->embed;
    int32_t st = EBRO_OK;
    for (uint32_t first = 0, next; st == EBRO_OK && first < table->rows; first = next) {
        ebro_embed_args a = {.size = sizeof a,
                             .ids = e->step.ids,
                             .n_rows = n_rows,
                             .table = eb_weight_part(e->weights, table, first, &next),
                             .out = e->work.residual[0],
                             .first_id = first,
                             .keep = first > 0};
        st = eb_op_embed(&e->stream, &a, err);
    }
    return st;
}

int32_t eb_forward(struct ebro_engine *e, const struct eb_step *step, ebro_error *err) {
    const struct ebro_model *m = e->model;
    struct residual r = {0};
    int32_t st = embed(e, step->n_rows, err);
    if (st != EBRO_OK) return st;
    uint32_t n_kda = 0, n_mla = 0;
    for (uint32_t i = 0; i < m->config.n_layers; i++) {
        if ((st = tell_progress(e, step, i, err)) != EBRO_OK) return st;
        st = forward_layer(e, step, i, &n_kda, &n_mla, &r, err);
        if (st != EBRO_OK) return eb_while(err, st, "evaluating layer %u", i);
    }
    for (uint32_t i = 0; i < step->n_heads; i++) {
        st = forward_head(e, &step->heads[i], &r, err);
        if (st != EBRO_OK) return eb_while(err, st, "computing logits");
    }
    return EBRO_OK;
}
