/* mixer.c: the token mixers of a layer: KDA and MLA, from the normalised input to the output
 * projection. */
#include <math.h>

#include "engine/engine.h"

/* f = f_b(f_a x) and, for a low-rank output gate, gate = g_b(g_a x): the second products. */
static int32_t project_low_rank(struct ebro_engine *e, uint32_t n, const struct eb_layer *y,
                                ebro_error *err) {
    struct eb_workspace *w = &e->work;
    int32_t st =
        eb_forward_linear(e, n, w->f_a, eb_weight(e->weights, &y->f_b), w->g_raw, false, err);
    if (st != EBRO_OK || y->g_b.w == NULL) return st;
    return eb_forward_linear(e, n, w->gate_a, eb_weight(e->weights, &y->g_b), w->gate, false, err);
}

/* Every product of a KDA layer that reads the layer's input, in one call. */
static int32_t project_kda(struct ebro_engine *e, uint32_t n, const struct eb_layer *y,
                           ebro_error *err) {
    struct eb_workspace *w = &e->work;
    ebro_linear_args a = {
        .size = sizeof a, .x = w->normed, .n_rows = n, .n_batch = 1, .scratch = w->linear_scratch};
    bool full_rank = y->g_proj.w != NULL;
    const struct {
        const struct eb_matrix *m;
        ebro_mat out;
    } parts[] = {{&y->q_proj, w->qkv[0]},
                 {&y->k_proj, w->qkv[1]},
                 {&y->v_proj, w->qkv[2]},
                 {&y->f_a, w->f_a},
                 {&y->b_proj, w->beta_raw},
                 {full_rank ? &y->g_proj : &y->g_a, full_rank ? w->gate : w->gate_a}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        ebro_mat out = parts[i].out;
        out.stride = parts[i].m->rows;
        a.items[a.n_items++] =
            (ebro_linear_item){.w = eb_weight(e->weights, parts[i].m), .out = out};
    }
    int32_t st = eb_op_linear(&e->stream, &a, err);
    return st == EBRO_OK ? project_low_rank(e, n, y, err) : st;
}

static ebro_state_io state_io(const struct ebro_engine *e, ebro_region region) {
    return (ebro_state_io){
        .region = region, .state_in = e->step.state_in, .state_out = e->step.state_out};
}

static ebro_kda_gate kda_gate(const struct ebro_engine *e, const struct eb_layer *y) {
    const struct eb_config *c = &e->model->config;
    return (ebro_kda_gate){.n_heads = c->kda_heads,
                           .head_dim = c->kda_head_dim,
                           .g_raw = e->work.g_raw,
                           .beta_raw = e->work.beta_raw,
                           .a_log = eb_vec(e->weights, y->a_log),
                           .dt_bias = eb_vec(e->weights, y->dt_bias),
                           .form = c->kda_gate_bounded ? EBRO_GATE_BOUNDED : EBRO_GATE_SOFTPLUS,
                           .lower_bound = c->gate_lower_bound,
                           /* inside the root, as published */
                           .l2_eps = 1e-6f};
}

/* Convolution, chunk prep, chunk recurrence, gated norm: several rows per sequence. */
static int32_t kda_chunked(struct ebro_engine *e, const struct eb_step *step,
                           const struct eb_layer *y, ebro_state_io windows, ebro_state_io state,
                           ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    struct eb_workspace *w = &e->work;
    ebro_kda_conv_args conv = {.size = sizeof conv,
                               .rows = step->rows,
                               .n_channels = c->kda_heads * c->kda_head_dim,
                               .state = windows};
    for (int i = 0; i < 3; i++) {
        conv.x[i] = w->qkv[i];
        conv.out[i] = w->conv[i];
        conv.weight[i] = eb_vec(e->weights, y->conv[i]);
    }
    int32_t st = eb_op_kda_conv(&e->stream, &conv, err);
    if (st != EBRO_OK) return st;
    ebro_kda_prep_args prep = {.size = sizeof prep,
                               .rows = step->rows,
                               .q = w->conv[0],
                               .k = w->conv[1],
                               .v = w->conv[2],
                               .gate = kda_gate(e, y),
                               .work = w->kda_work};
    if ((st = eb_op_kda_prep(&e->stream, &prep, err)) != EBRO_OK) return st;
    ebro_kda_recur_args recur = {.size = sizeof recur,
                                 .rows = step->rows,
                                 .v = w->conv[2],
                                 .out = w->kda_out,
                                 .n_heads = c->kda_heads,
                                 .head_dim = c->kda_head_dim,
                                 .state = state,
                                 .work = w->kda_work};
    if ((st = eb_op_kda_recur(&e->stream, &recur, err)) != EBRO_OK) return st;
    /* One weight vector for all heads: the norm's rows are tokens x heads. */
    ebro_mat o = w->kda_out, gate = w->gate;
    o.stride = gate.stride = c->kda_head_dim;
    ebro_rms_norm_args norm = {.size = sizeof norm,
                               .x = o,
                               .out = o,
                               .gate = gate,
                               .weight = eb_vec(e->weights, y->o_norm),
                               .n_rows = step->rows.n_rows * c->kda_heads,
                               .n_cols = c->kda_head_dim,
                               .eps = c->rms_norm_eps};
    return eb_op_rms_norm(&e->stream, &norm, err);
}

static int32_t kda_step(struct ebro_engine *e, const struct eb_step *step, const struct eb_layer *y,
                        ebro_state_io windows, ebro_state_io state, ebro_error *err) {
    struct eb_workspace *w = &e->work;
    ebro_kda_step_args a = {.size = sizeof a,
                            .rows = step->rows,
                            .gate = kda_gate(e, y),
                            .windows = windows,
                            .state = state,
                            .out_gate = w->gate,
                            .norm_weight = eb_vec(e->weights, y->o_norm),
                            .norm_eps = e->model->config.rms_norm_eps,
                            .out = w->kda_out,
                            .scratch = w->step_scratch};
    for (int i = 0; i < 3; i++) {
        a.x[i] = w->qkv[i];
        a.conv_weight[i] = eb_vec(e->weights, y->conv[i]);
    }
    return eb_op_kda_step(&e->stream, &a, err);
}

int32_t eb_forward_kda(struct ebro_engine *e, const struct eb_step *step, uint32_t layer,
                       uint32_t kda_layer, ebro_mat out, bool accumulate, ebro_error *err) {
    const struct eb_layer *y = &e->model->layers[layer];
    uint32_t n = step->rows.n_rows;
    int32_t st = project_kda(e, n, y, err);
    if (st != EBRO_OK) return st;
    ebro_span slots = e->step.slot_table;
    ebro_state_io windows = state_io(e, eb_cache_window_region(&e->cache, kda_layer, slots));
    ebro_state_io state = state_io(e, eb_cache_state_region(&e->cache, kda_layer, slots));
    st = step->rows.max_rows == 1 || e->strict ? kda_step(e, step, y, windows, state, err)
                                               : kda_chunked(e, step, y, windows, state, err);
    if (st != EBRO_OK) return st;
    return eb_forward_linear(e, n, e->work.kda_out, eb_weight(e->weights, &y->o_proj), out,
                             accumulate, err);
}

/* q (full or through its latent), the new cache rows, and the output gate's input. */
static int32_t project_mla(struct ebro_engine *e, uint32_t n, const struct eb_layer *y,
                           ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    struct eb_workspace *w = &e->work;
    bool q_latent = y->q_a.w != NULL;
    ebro_linear_args a = {.size = sizeof a,
                          .x = w->normed,
                          .n_rows = n,
                          .n_items = 2,
                          .n_batch = 1,
                          .scratch = w->linear_scratch};
    a.items[0] = (ebro_linear_item){.w = eb_weight(e->weights, q_latent ? &y->q_a : &y->q_proj),
                                    .out = q_latent ? w->q_a : w->q};
    a.items[1] = (ebro_linear_item){.w = eb_weight(e->weights, &y->kv_a), .out = w->kv};
    if (y->g_proj.w != NULL) {
        a.items[a.n_items++] =
            (ebro_linear_item){.w = eb_weight(e->weights, &y->g_proj), .out = w->mla_gate};
    }
    int32_t st = eb_op_linear(&e->stream, &a, err);
    if (st != EBRO_OK || !q_latent) return st;
    st =
        eb_forward_norm(e, n, c->q_lora_rank, w->q_a, y->q_a_norm, c->latent_norm_eps, w->q_a, err);
    if (st != EBRO_OK) return st;
    return eb_forward_linear(e, n, w->q_a, eb_weight(e->weights, &y->q_b), w->q, false, err);
}

static int32_t append_rows(struct ebro_engine *e, const struct eb_step *step,
                           const struct eb_layer *y, ebro_pages pages, ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    struct eb_workspace *w = &e->work;
    ebro_mla_append_args a = {.size = sizeof a,
                              .rows = step->rows,
                              .kv = w->kv,
                              .norm_weight = eb_vec(e->weights, y->kv_a_norm),
                              .norm_eps = c->latent_norm_eps,
                              .kv_lora = c->kv_lora_rank,
                              .rope_dim = c->qk_rope_head_dim,
                              .pages = pages,
                              .rotary_dim = c->rotary_dim,
                              .rotary_theta = c->rope_theta,
                              .n_heads = c->n_heads,
                              .q_head_stride = c->qk_nope_head_dim + c->qk_rope_head_dim,
                              .q_rope_offset = c->qk_nope_head_dim};
    if (c->rotary_dim > 0) a.q = w->q;
    return eb_op_mla_append(&e->stream, &a, err);
}

static float mla_scale(const struct eb_config *c) {
    return 1.0f / sqrtf((float)(c->qk_nope_head_dim + c->qk_rope_head_dim));
}

/* Per head: a product with that head's rows of kv_b, all heads in one batched call. */
static int32_t per_head(struct ebro_engine *e, uint32_t n, ebro_mat x, uint32_t x_head,
                        ebro_weight w, ebro_mat out, uint32_t out_head, ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    uint64_t head_rows = (uint64_t)c->qk_nope_head_dim + c->v_head_dim;
    ebro_linear_args a = {.size = sizeof a,
                          .x = x,
                          .n_rows = n,
                          .n_items = 1,
                          .n_batch = c->n_heads,
                          .x_batch_elements = x_head,
                          .scratch = e->work.linear_scratch};
    a.items[0] = (ebro_linear_item){.w = w,
                                    .out = out,
                                    .w_batch_bytes = head_rows * w.stride * eb_dtype_size(w.dtype),
                                    .out_batch_elements = out_head};
    return eb_op_linear(&e->stream, &a, err);
}

/* q~ = [W_uk^T q_nope, q_pe]; attention over latents; W_uv on the result. */
static int32_t attend_absorbed(struct ebro_engine *e, const struct eb_step *step,
                               const struct eb_layer *y, ebro_pages pages, ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    struct eb_workspace *w = &e->work;
    uint32_t n = step->rows.n_rows, nope = c->qk_nope_head_dim, rope = c->qk_rope_head_dim;
    uint32_t lora = c->kv_lora_rank;
    ebro_weight uk = eb_weight_rows(e->weights, &y->kv_b, 0, nope);
    uk.transposed = 1;
    int32_t st = per_head(e, n, w->q, nope + rope, uk, w->q_absorbed, lora + rope, err);
    if (st != EBRO_OK) return st;
    if (rope > 0) {
        ebro_rows_copy_args pe = {
            .size = sizeof pe,
            .src = {w->q.mem, w->q.offset + nope * sizeof(float)},
            .dst = {w->q_absorbed.mem, w->q_absorbed.offset + lora * sizeof(float)},
            .src_stride_bytes = (nope + rope) * sizeof(float),
            .dst_stride_bytes = (lora + rope) * sizeof(float),
            .row_bytes = rope * sizeof(float),
            .n = n * c->n_heads};
        if ((st = eb_op_rows_copy(&e->stream, &pe, err)) != EBRO_OK) return st;
    }
    ebro_mla_decode_args a = {.size = sizeof a,
                              .rows = step->rows,
                              .q = w->q_absorbed,
                              .n_heads = c->n_heads,
                              .kv_lora = lora,
                              .rope_dim = rope,
                              .scale = mla_scale(c),
                              .pages = pages,
                              .token_end = UINT32_MAX,
                              .out = w->latent_out,
                              .scratch = w->mla_scratch};
    if ((st = eb_op_mla_decode(&e->stream, &a, err)) != EBRO_OK) return st;
    ebro_weight uv = eb_weight_rows(e->weights, &y->kv_b, nope, c->v_head_dim);
    return per_head(e, n, w->latent_out, lora, uv, w->mla_out, c->v_head_dim, err);
}

static int32_t attend_expanded(struct ebro_engine *e, const struct eb_step *step,
                               const struct eb_layer *y, ebro_pages pages, ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    ebro_mla_prefill_args a = {.size = sizeof a,
                               .rows = step->rows,
                               .q = e->work.q,
                               .kv_b = eb_weight(e->weights, &y->kv_b),
                               .n_heads = c->n_heads,
                               .nope_dim = c->qk_nope_head_dim,
                               .rope_dim = c->qk_rope_head_dim,
                               .v_dim = c->v_head_dim,
                               .kv_lora = c->kv_lora_rank,
                               .scale = mla_scale(c),
                               .pages = pages,
                               .token_end = UINT32_MAX,
                               .out = e->work.mla_out,
                               .scratch = e->work.mla_scratch};
    return eb_op_mla_prefill(&e->stream, &a, err);
}

bool eb_mla_expanded_pays(const struct eb_config *c, uint32_t rows, uint32_t context) {
    double r = rows, t = (double)context + rows, lora = c->kv_lora_rank;
    double nope = c->qk_nope_head_dim, rope = c->qk_rope_head_dim, v = c->v_head_dim;
    double expanded = t * (nope + v) * lora + r * t * (nope + rope + v);
    double absorbed = r * (nope + v) * lora + r * t * (2 * lora + rope);
    return expanded < absorbed;
}

int32_t eb_forward_mla(struct ebro_engine *e, const struct eb_step *step, uint32_t layer,
                       uint32_t mla_layer, ebro_mat out, bool accumulate, ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    const struct eb_layer *y = &e->model->layers[layer];
    struct eb_workspace *w = &e->work;
    uint32_t n = step->rows.n_rows;
    int32_t st = project_mla(e, n, y, err);
    if (st != EBRO_OK) return st;
    ebro_pages pages = eb_cache_layer_pages(&e->cache, mla_layer, e->step.page_table, e->max_pages);
    pages.context = e->step.context;
    pages.max_context = e->n_ctx;
    if ((st = append_rows(e, step, y, pages, err)) != EBRO_OK) return st;
    bool expanded = step->rows.max_rows > 1 &&
                    (e->prefill_form == EBRO_MLA_AUTO ? eb_mla_expanded_pays(c, n, step->context)
                                                      : e->prefill_form == EBRO_MLA_EXPANDED);
    st = expanded ? attend_expanded(e, step, y, pages, err)
                  : attend_absorbed(e, step, y, pages, err);
    if (st != EBRO_OK) return st;
    if (c->mla_gate != EB_MLA_GATE_NONE) {
        ebro_act_mul_args gate = {.size = sizeof gate,
                                  .gate = w->mla_gate,
                                  .up = w->mla_out,
                                  .out = w->mla_out,
                                  .n_rows = n,
                                  .n_cols = c->n_heads * c->v_head_dim,
                                  .gate_group = c->mla_gate == EB_MLA_GATE_HEAD ? c->v_head_dim : 1,
                                  .kind = EBRO_ACT_SIGMOID};
        if ((st = eb_op_act_mul(&e->stream, &gate, err)) != EBRO_OK) return st;
    }
    return eb_forward_linear(e, n, w->mla_out, eb_weight(e->weights, &y->o_proj), out, accumulate,
                             err);
}
