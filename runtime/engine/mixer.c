/* mixer.c: the token mixers of a layer: KDA and MLA, from the normalised input to the output
 * projection. */
#include <math.h>

#include "engine/engine.h"

/* f = f_b(f_a x) and, for a low-rank output gate, gate = g_b(g_a x): the second products. */
static int32_t project_low_rank(struct ebro_engine *e, uint32_t n, const struct eb_layer *y,
                                ebro_error *err) {
    struct eb_workspace *w = &e->work;
    int32_t st = eb_forward_linear(e, n, w->f_a, &y->f_b, w->g_raw, false, err);
    if (st != EBRO_OK || y->g_b.w == NULL) return st;
    return eb_forward_linear(e, n, w->gate_a, &y->g_b, w->gate, false, err);
}

/* Every product of a KDA layer that reads the layer's input, in one call. */
static int32_t project_kda(struct ebro_engine *e, uint32_t n, const struct eb_layer *y,
                           ebro_error *err) {
    struct eb_workspace *w = &e->work;
    struct eb_products p = eb_products_begin(e, n, w->normed);
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
    int32_t st = EBRO_OK;
    for (size_t i = 0; st == EBRO_OK && i < sizeof parts / sizeof parts[0]; i++) {
        ebro_mat out = parts[i].out;
        out.stride = parts[i].m->rows;
        st = eb_products_add(&p, parts[i].m, out, false, err);
    }
    if (st == EBRO_OK) st = eb_products_end(&p, err);
    return st == EBRO_OK ? project_low_rank(e, n, y, err) : st;
}

/* The numbers of a range's sequences in a list of the step block. */
static ebro_span of_range(ebro_span list, const struct eb_range *r, uint64_t size) {
    list.offset += r->first_seq * size;
    return list;
}

/* The rows of a range. */
static ebro_mat rows_of(ebro_mat m, const struct eb_range *r) {
    return m.mem == NULL ? m : eb_mat_from(m, r->first_row);
}

static ebro_state_io state_io(const struct ebro_engine *e, const struct eb_range *r,
                              ebro_region region) {
    ebro_state_io io = {.region = region,
                        .state_in = of_range(e->step.state_in, r, sizeof(int32_t)),
                        .state_out = of_range(e->step.state_out, r, sizeof(int32_t))};
    if (r->n_emit == 0) return io;
    io.emit_rows = e->step.emit_rows;
    io.emit_slots = e->step.emit_slots;
    io.n_emit = r->n_emit;
    return io;
}

static ebro_kda_gate kda_gate(const struct ebro_engine *e, const struct eb_range *r,
                              const struct eb_layer *y) {
    const struct eb_config *c = &e->model->config;
    return (ebro_kda_gate){.n_heads = c->kda_heads,
                           .head_dim = c->kda_head_dim,
                           .g_raw = rows_of(e->work.g_raw, r),
                           .beta_raw = rows_of(e->work.beta_raw, r),
                           .a_log = eb_vec(e->weights, y->a_log),
                           .dt_bias = eb_vec(e->weights, y->dt_bias),
                           .form = c->kda_gate_bounded ? EBRO_GATE_BOUNDED : EBRO_GATE_SOFTPLUS,
                           .lower_bound = c->gate_lower_bound,
                           /* inside the root, as published */
                           .l2_eps = 1e-6f};
}

/* Convolution, chunk prep, chunk recurrence, gated norm: several rows per sequence. */
static int32_t kda_chunked(struct ebro_engine *e, const struct eb_range *r,
                           const struct eb_layer *y, ebro_state_io windows, ebro_state_io state,
                           ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    struct eb_workspace *w = &e->work;
    ebro_kda_conv_args conv = {.size = sizeof conv,
                               .rows = r->rows,
                               .n_channels = c->kda_heads * c->kda_head_dim,
                               .state = windows};
    for (int i = 0; i < 3; i++) {
        conv.x[i] = rows_of(w->qkv[i], r);
        conv.out[i] = rows_of(w->conv[i], r);
        conv.weight[i] = eb_vec(e->weights, y->conv[i]);
    }
    int32_t st = eb_op_kda_conv(&e->stream, &conv, err);
    if (st != EBRO_OK) return st;
    ebro_kda_prep_args prep = {.size = sizeof prep,
                               .rows = r->rows,
                               .q = rows_of(w->conv[0], r),
                               .k = rows_of(w->conv[1], r),
                               .v = rows_of(w->conv[2], r),
                               .gate = kda_gate(e, r, y),
                               .emit_rows = state.emit_rows,
                               .n_emit = state.n_emit,
                               .work = w->kda_work};
    if ((st = eb_op_kda_prep(&e->stream, &prep, err)) != EBRO_OK) return st;
    ebro_kda_recur_args recur = {.size = sizeof recur,
                                 .rows = r->rows,
                                 .v = rows_of(w->conv[2], r),
                                 .out = rows_of(w->kda_out, r),
                                 .n_heads = c->kda_heads,
                                 .head_dim = c->kda_head_dim,
                                 .state = state,
                                 .work = w->kda_work};
    if ((st = eb_op_kda_recur(&e->stream, &recur, err)) != EBRO_OK) return st;
    /* One weight vector for all heads: the norm's rows are tokens x heads. */
    ebro_mat o = rows_of(w->kda_out, r), gate = rows_of(w->gate, r);
    o.stride = gate.stride = c->kda_head_dim;
    ebro_rms_norm_args norm = {.size = sizeof norm,
                               .x = o,
                               .out = o,
                               .gate = gate,
                               .weight = eb_vec(e->weights, y->o_norm),
                               .n_rows = r->rows.n_rows * c->kda_heads,
                               .n_cols = c->kda_head_dim,
                               .eps = c->rms_norm_eps};
    return eb_op_rms_norm(&e->stream, &norm, err);
}

static int32_t kda_step(struct ebro_engine *e, const struct eb_range *r, const struct eb_layer *y,
                        ebro_state_io windows, ebro_state_io state, ebro_error *err) {
    struct eb_workspace *w = &e->work;
    ebro_kda_step_args a = {.size = sizeof a,
                            .rows = r->rows,
                            .gate = kda_gate(e, r, y),
                            .windows = windows,
                            .state = state,
                            .out_gate = rows_of(w->gate, r),
                            .norm_weight = eb_vec(e->weights, y->o_norm),
                            .norm_eps = e->model->config.rms_norm_eps,
                            .out = rows_of(w->kda_out, r),
                            .scratch = w->step_scratch};
    for (int i = 0; i < 3; i++) {
        a.x[i] = rows_of(w->qkv[i], r);
        a.conv_weight[i] = eb_vec(e->weights, y->conv[i]);
    }
    return eb_op_kda_step(&e->stream, &a, err);
}

int32_t eb_forward_kda(struct ebro_engine *e, const struct eb_step *step, uint32_t layer,
                       uint32_t kda_layer, ebro_mat out, bool accumulate, ebro_error *err) {
    const struct eb_layer *y = &e->model->layers[layer];
    uint32_t n = step->n_rows;
    int32_t st = project_kda(e, n, y, err);
    ebro_region windows = eb_layout_windows(&e->layout, kda_layer, e->step.slot_table);
    ebro_region states = eb_layout_states(&e->layout, kda_layer, e->step.slot_table);
    for (uint32_t i = 0; st == EBRO_OK && i < step->n_ranges; i++) {
        const struct eb_range *r = &step->ranges[i];
        ebro_state_io window = state_io(e, r, windows), state = state_io(e, r, states);
        st = r->rows.max_rows == 1 || e->strict ? kda_step(e, r, y, window, state, err)
                                                : kda_chunked(e, r, y, window, state, err);
    }
    if (st != EBRO_OK) return st;
    return eb_forward_linear(e, n, e->work.kda_out, &y->o_proj, out, accumulate, err);
}

/* q (full or through its latent), the new cache rows, and the output gate's input. */
static int32_t project_mla(struct ebro_engine *e, uint32_t n, const struct eb_layer *y,
                           ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    struct eb_workspace *w = &e->work;
    bool q_latent = y->q_a.w != NULL;
    struct eb_products p = eb_products_begin(e, n, w->normed);
    int32_t st =
        eb_products_add(&p, q_latent ? &y->q_a : &y->q_proj, q_latent ? w->q_a : w->q, false, err);
    if (st == EBRO_OK) st = eb_products_add(&p, &y->kv_a, w->kv, false, err);
    if (st == EBRO_OK && y->g_proj.w != NULL)
        st = eb_products_add(&p, &y->g_proj, w->mla_gate, false, err);
    if (st == EBRO_OK) st = eb_products_end(&p, err);
    if (st != EBRO_OK || !q_latent) return st;
    st =
        eb_forward_norm(e, n, c->q_lora_rank, w->q_a, y->q_a_norm, c->latent_norm_eps, w->q_a, err);
    if (st != EBRO_OK) return st;
    return eb_forward_linear(e, n, w->q_a, &y->q_b, w->q, false, err);
}

static int32_t append_rows(struct ebro_engine *e, const struct eb_range *r,
                           const struct eb_layer *y, ebro_pages pages, ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    struct eb_workspace *w = &e->work;
    ebro_mla_append_args a = {.size = sizeof a,
                              .rows = r->rows,
                              .kv = rows_of(w->kv, r),
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
    if (c->rotary_dim > 0) a.q = rows_of(w->q, r);
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
static int32_t attend_absorbed(struct ebro_engine *e, const struct eb_range *r,
                               const struct eb_layer *y, ebro_pages pages, ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    struct eb_workspace *w = &e->work;
    uint32_t n = r->rows.n_rows, nope = c->qk_nope_head_dim, rope = c->qk_rope_head_dim;
    uint32_t lora = c->kv_lora_rank;
    ebro_mat q = rows_of(w->q, r), q_absorbed = rows_of(w->q_absorbed, r);
    ebro_mat latent_out = rows_of(w->latent_out, r);
    ebro_weight uk = eb_weight_rows(e->weights, &y->kv_b, 0, nope);
    uk.transposed = 1;
    int32_t st = per_head(e, n, q, nope + rope, uk, q_absorbed, lora + rope, err);
    if (st != EBRO_OK) return st;
    if (rope > 0) {
        ebro_rows_copy_args pe = {.size = sizeof pe,
                                  .src = {q.mem, q.offset + nope * sizeof(float)},
                                  .dst = {q_absorbed.mem, q_absorbed.offset + lora * sizeof(float)},
                                  .src_stride_bytes = (nope + rope) * sizeof(float),
                                  .dst_stride_bytes = (lora + rope) * sizeof(float),
                                  .row_bytes = rope * sizeof(float),
                                  .n = n * c->n_heads};
        if ((st = eb_op_rows_copy(&e->stream, &pe, err)) != EBRO_OK) return st;
    }
    ebro_mla_decode_args a = {.size = sizeof a,
                              .rows = r->rows,
                              .q = q_absorbed,
                              .n_heads = c->n_heads,
                              .kv_lora = lora,
                              .rope_dim = rope,
                              .scale = mla_scale(c),
                              .pages = pages,
                              .token_end = UINT32_MAX,
                              .out = latent_out,
                              .scratch = w->mla_scratch};
    if ((st = eb_op_mla_decode(&e->stream, &a, err)) != EBRO_OK) return st;
    ebro_weight uv = eb_weight_rows(e->weights, &y->kv_b, nope, c->v_head_dim);
    return per_head(e, n, latent_out, lora, uv, rows_of(w->mla_out, r), c->v_head_dim, err);
}

static int32_t attend_expanded(struct ebro_engine *e, const struct eb_range *r,
                               const struct eb_layer *y, ebro_pages pages, ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    ebro_mla_prefill_args a = {.size = sizeof a,
                               .rows = r->rows,
                               .q = rows_of(e->work.q, r),
                               .kv_b = eb_weight(e->weights, &y->kv_b),
                               .n_heads = c->n_heads,
                               .nope_dim = c->qk_nope_head_dim,
                               .rope_dim = c->qk_rope_head_dim,
                               .v_dim = c->v_head_dim,
                               .kv_lora = c->kv_lora_rank,
                               .scale = mla_scale(c),
                               .pages = pages,
                               .token_end = UINT32_MAX,
                               .out = rows_of(e->work.mla_out, r),
                               .scratch = e->work.mla_scratch};
    return eb_op_mla_prefill(&e->stream, &a, err);
}

bool eb_mla_expanded_pays(const struct eb_config *c, const ebro_caps *caps, uint32_t rows,
                          uint32_t context) {
    bool known = caps->mla_expanded_ps > 0 && caps->mla_absorbed_ps > 0;
    uint64_t block = caps->mla_expanded_tokens > 0 ? caps->mla_expanded_tokens : 1;
    uint64_t n_blocks = ((uint64_t)context + rows + block - 1) / block;
    double r = rows, seen = context + (r + 1) / 2; /* tokens that a row sees, on average */
    double t = (double)(n_blocks * block), lora = c->kv_lora_rank;
    double nope = c->qk_nope_head_dim, rope = c->qk_rope_head_dim, v = c->v_head_dim;
    double expanded = t * (nope + v) * lora + r * seen * (nope + rope + v);
    double absorbed = r * (nope + v) * lora + r * seen * (2 * lora + rope);
    if (!known) return expanded < absorbed;
    return expanded * caps->mla_expanded_ps < absorbed * caps->mla_absorbed_ps;
}

/* Cache rows and attention of one range. */
static int32_t attend(struct ebro_engine *e, const struct eb_range *r, const struct eb_layer *y,
                      uint32_t mla_layer, ebro_error *err) {
    ebro_span table = of_range(e->step.page_table, r, e->max_pages * sizeof(uint64_t));
    ebro_pages pages = eb_layout_rows(&e->layout, mla_layer, table, e->max_pages);
    pages.context = of_range(e->step.context, r, sizeof(int32_t));
    pages.max_context = e->n_ctx;
    int32_t st = append_rows(e, r, y, pages, err);
    if (st != EBRO_OK) return st;
    bool expanded =
        r->rows.max_rows > 1 && (e->prefill_form == EBRO_MLA_AUTO
                                     ? eb_mla_expanded_pays(&e->model->config, &e->device->caps,
                                                            r->rows.max_rows, r->max_context)
                                     : e->prefill_form == EBRO_MLA_EXPANDED);
    return expanded ? attend_expanded(e, r, y, pages, err) : attend_absorbed(e, r, y, pages, err);
}

int32_t eb_forward_mla(struct ebro_engine *e, const struct eb_step *step, uint32_t layer,
                       uint32_t mla_layer, ebro_mat out, bool accumulate, ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    const struct eb_layer *y = &e->model->layers[layer];
    struct eb_workspace *w = &e->work;
    uint32_t n = step->n_rows;
    int32_t st = project_mla(e, n, y, err);
    if (st != EBRO_OK) return st;
    for (uint32_t i = 0; i < step->n_ranges; i++) {
        if ((st = attend(e, &step->ranges[i], y, mla_layer, err)) != EBRO_OK) return st;
    }
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
    return eb_forward_linear(e, n, w->mla_out, &y->o_proj, out, accumulate, err);
}
