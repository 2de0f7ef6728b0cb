/* workspace.c: lays out the activations of a step in one allocation. */
#include "engine/engine.h"

/* A bump pointer over bytes that do not exist yet; `peak` is what must be allocated. */
struct layout {
    uint64_t at, peak;
    bool overflow;
};

static uint64_t take(struct layout *l, uint64_t bytes) {
    uint64_t offset = l->at, end = 0;
    if (!eb_add_u64(offset, bytes, &end) || end > UINT64_MAX - 64) {
        l->overflow = true;
        return 0;
    }
    l->at = (end + 63u) & ~(uint64_t)63u;
    if (l->at > l->peak) l->peak = l->at;
    return offset;
}

static ebro_mat take_mat(struct layout *l, uint64_t rows, uint64_t cols) {
    uint64_t bytes = 0;
    if (!eb_mul_u64(rows, cols, &bytes) || !eb_mul_u64(bytes, sizeof(float), &bytes)) {
        l->overflow = true;
    }
    return (ebro_mat){.offset = take(l, bytes), .stride = cols, .dtype = EBRO_F32};
}

static ebro_span take_span(struct layout *l, uint64_t bytes) {
    return (ebro_span){.offset = take(l, bytes)};
}

/* Bounds of every step for sizing scratch: all sequences, a full chunk, a full context. */
static ebro_rows bound_rows(const struct ebro_engine *e) {
    return (ebro_rows){.n_seqs = e->max_seqs, .n_rows = e->n_chunk, .max_rows = e->n_chunk};
}

static void lay_out_kda(struct ebro_engine *e, struct layout *l) {
    const struct eb_config *c = &e->model->config;
    struct eb_workspace *w = &e->work;
    uint64_t rows = e->n_chunk, width = (uint64_t)c->kda_heads * c->kda_head_dim;
    uint32_t f_rank = 0, g_rank = 0;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        const struct eb_layer *y = &e->model->layers[i];
        if (!y->is_kda) continue;
        if (y->f_a.rows > f_rank) f_rank = y->f_a.rows;
        if (y->g_a.rows > g_rank) g_rank = y->g_a.rows;
    }
    for (int i = 0; i < 3; i++) w->qkv[i] = take_mat(l, rows, width);
    for (int i = 0; i < 3; i++) w->conv[i] = take_mat(l, rows, width);
    w->f_a = take_mat(l, rows, f_rank);
    w->g_raw = take_mat(l, rows, width);
    w->beta_raw = take_mat(l, rows, c->kda_heads);
    w->gate_a = take_mat(l, rows, g_rank);
    w->gate = take_mat(l, rows, width);
    w->kda_out = take_mat(l, rows, width);
    ebro_kda_gate gate = {.n_heads = c->kda_heads, .head_dim = c->kda_head_dim};
    ebro_kda_prep_args prep = {
        .size = sizeof prep, .rows = bound_rows(e), .gate = gate, .n_emit = e->max_emits};
    ebro_kda_step_args step = {.size = sizeof step, .rows = bound_rows(e), .gate = gate};
    w->kda_work = take_span(l, eb_op_scratch(e->device, EBRO_OP_KDA_PREP, &prep));
    w->step_scratch = take_span(l, eb_op_scratch(e->device, EBRO_OP_KDA_STEP, &step));
}

static void lay_out_mla(struct ebro_engine *e, struct layout *l) {
    const struct eb_config *c = &e->model->config;
    struct eb_workspace *w = &e->work;
    uint64_t rows = e->n_chunk, heads = c->n_heads;
    uint64_t row = (uint64_t)c->kv_lora_rank + c->qk_rope_head_dim;
    w->q_a = take_mat(l, rows, c->q_lora_rank);
    w->q = take_mat(l, rows, heads * (c->qk_nope_head_dim + c->qk_rope_head_dim));
    w->kv = take_mat(l, rows, row);
    w->q_absorbed = take_mat(l, rows, heads * row);
    w->latent_out = take_mat(l, rows, heads * c->kv_lora_rank);
    w->mla_out = take_mat(l, rows, heads * c->v_head_dim);
    w->mla_gate = take_mat(l, rows,
                           c->mla_gate == EB_MLA_GATE_NONE   ? 0
                           : c->mla_gate == EB_MLA_GATE_HEAD ? heads
                                                             : heads * c->v_head_dim);
    ebro_pages pages = {.max_context = e->n_ctx, .page_tokens = e->layout.page_tokens};
    ebro_mla_prefill_args prefill = {.size = sizeof prefill,
                                     .rows = bound_rows(e),
                                     .n_heads = c->n_heads,
                                     .nope_dim = c->qk_nope_head_dim,
                                     .rope_dim = c->qk_rope_head_dim,
                                     .v_dim = c->v_head_dim,
                                     .kv_lora = c->kv_lora_rank,
                                     .token_end = UINT32_MAX,
                                     .pages = pages};
    ebro_mla_decode_args decode = {.size = sizeof decode,
                                   .rows = bound_rows(e),
                                   .n_heads = c->n_heads,
                                   .kv_lora = c->kv_lora_rank,
                                   .rope_dim = c->qk_rope_head_dim,
                                   .token_end = UINT32_MAX,
                                   .pages = pages};
    uint64_t a = eb_op_scratch(e->device, EBRO_OP_MLA_PREFILL, &prefill);
    uint64_t b = eb_op_scratch(e->device, EBRO_OP_MLA_DECODE, &decode);
    w->mla_scratch = take_span(l, a > b ? a : b);
}

static void lay_out_ffn(struct ebro_engine *e, struct layout *l) {
    const struct eb_config *c = &e->model->config;
    struct eb_workspace *w = &e->work;
    uint64_t rows = e->n_chunk, width = 0;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        if (e->model->layers[i].gate_proj.rows > width) width = e->model->layers[i].gate_proj.rows;
    }
    w->ffn_gate = take_mat(l, rows, width);
    w->ffn_up = take_mat(l, rows, width);
    if (c->n_experts == 0) return;
    uint32_t in_dim = c->latent_size ? c->latent_size : c->hidden_size;
    w->latent_in = take_mat(l, rows, c->latent_size);
    w->latent_sum = take_mat(l, rows, c->latent_size);
    w->expert_ids = take_mat(l, rows, c->experts_per_token);
    w->expert_ids.dtype = EBRO_I32;
    w->expert_weights = take_mat(l, rows, c->experts_per_token);
    w->expert_offsets = take_span(l, ((uint64_t)c->n_experts + 1) * sizeof(int32_t));
    w->expert_pairs = take_span(l, rows * c->experts_per_token * sizeof(int32_t));
    ebro_moe_route_args route = {.size = sizeof route,
                                 .n_rows = e->n_chunk,
                                 .n_experts = c->n_experts,
                                 .top_k = c->experts_per_token,
                                 .gate = {.rows = c->n_experts, .cols = c->hidden_size}};
    w->route_scratch = take_span(l, eb_op_scratch(e->device, EBRO_OP_MOE_ROUTE, &route));
    uint64_t most = 0;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        const struct eb_layer *y = &e->model->layers[i];
        if (!y->is_moe) continue;
        ebro_moe_experts_args experts = {.size = sizeof experts,
                                         .n_rows = e->n_chunk,
                                         .n_experts = c->n_experts,
                                         .top_k = c->experts_per_token,
                                         .in_dim = in_dim,
                                         .inner_dim = c->moe_inner,
                                         .dtype = y->experts[0][0].dtype};
        uint64_t n = eb_op_scratch(e->device, EBRO_OP_MOE_EXPERTS, &experts);
        if (n > most) most = n;
    }
    w->expert_scratch = take_span(l, most);
}

/* The largest wish over every matrix of the model, alone; a call with several items is bounded by
 * EBRO_MAX_LINEAR of the largest. */
static uint64_t linear_scratch(struct ebro_engine *e) {
    const struct eb_config *c = &e->model->config;
    uint32_t rows = c->vocab_size, cols = c->hidden_size;
    uint32_t widths[] = {c->kda_heads * c->kda_head_dim,
                         c->n_heads * c->v_head_dim,
                         c->intermediate_size,
                         c->moe_inner * c->n_shared_experts,
                         c->latent_size,
                         c->kv_lora_rank + c->qk_rope_head_dim,
                         c->q_lora_rank,
                         c->n_heads * (c->qk_nope_head_dim + c->qk_rope_head_dim)};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        if (widths[i] > rows) rows = widths[i];
        if (widths[i] > cols) cols = widths[i];
    }
    ebro_linear_args a = {.size = sizeof a,
                          .n_rows = e->n_chunk,
                          .n_items = EBRO_MAX_LINEAR,
                          .n_batch = c->n_heads > 0 ? c->n_heads : 1};
    for (int i = 0; i < EBRO_MAX_LINEAR; i++) {
        a.items[i].w = (ebro_weight){.rows = rows, .cols = cols, .stride = cols};
    }
    return eb_op_scratch(e->device, EBRO_OP_LINEAR, &a);
}

/* The layout was computed before the memory existed: point every part at it. */
static void attach(struct eb_workspace *w, ebro_mem *mem) {
    ebro_mat *mats[] = {&w->mixed,      &w->normed,     &w->qkv[0],        &w->qkv[1],
                        &w->qkv[2],     &w->conv[0],    &w->conv[1],       &w->conv[2],
                        &w->f_a,        &w->g_raw,      &w->beta_raw,      &w->gate_a,
                        &w->gate,       &w->kda_out,    &w->q_a,           &w->q,
                        &w->kv,         &w->q_absorbed, &w->latent_out,    &w->mla_out,
                        &w->mla_gate,   &w->ffn_gate,   &w->ffn_up,        &w->latent_in,
                        &w->latent_sum, &w->expert_ids, &w->expert_weights};
    ebro_span *spans[] = {&w->kda_work,       &w->step_scratch,  &w->mla_scratch,
                          &w->expert_offsets, &w->expert_pairs,  &w->route_scratch,
                          &w->expert_scratch, &w->linear_scratch};
    for (size_t i = 0; i < sizeof mats / sizeof mats[0]; i++) mats[i]->mem = mem;
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++) spans[i]->mem = mem;
    for (uint32_t i = 0; i < w->n_residual; i++) w->residual[i].mem = mem;
    w->mem = mem;
}

int32_t eb_workspace_plan(struct ebro_engine *e, uint64_t *bytes, ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    struct eb_workspace *w = &e->work;
    struct layout l = {0};
    uint32_t banks =
        c->attn_res_block == 0 ? 0 : (c->n_layers + c->attn_res_block - 1) / c->attn_res_block;
    if (banks + 1 > EBRO_MAX_SOURCES) {
        return eb_fail(
            err, EBRO_UNSUPPORTED,
            "%u layers in Attention Residual blocks of %u bank %u sources, at most %d fit",
            c->n_layers, c->attn_res_block, banks, EBRO_MAX_SOURCES - 1);
    }
    w->n_residual = banks + 1;
    for (uint32_t i = 0; i < w->n_residual; i++) {
        w->residual[i] = take_mat(&l, e->n_chunk, c->hidden_size);
    }
    w->mixed = take_mat(&l, e->n_chunk, c->hidden_size);
    w->normed = take_mat(&l, e->n_chunk, c->hidden_size);
    w->linear_scratch = take_span(&l, linear_scratch(e));
    uint64_t shared = l.at;
    lay_out_kda(e, &l);
    l.at = shared;
    lay_out_mla(e, &l);
    l.at = shared;
    lay_out_ffn(e, &l);
    if (l.overflow) {
        return eb_fail(err, EBRO_INVALID, "a step of %u tokens: activation sizes overflow",
                       e->n_chunk);
    }
    *bytes = l.peak;
    return EBRO_OK;
}

int32_t eb_workspace_open(struct ebro_engine *e, ebro_error *err) {
    uint64_t bytes = 0;
    ebro_mem *mem = NULL;
    int32_t st = eb_workspace_plan(e, &bytes, err);
    if (st != EBRO_OK) return st;
    st = eb_mem_alloc(e->device, bytes, EBRO_MEM_DEVICE, &mem, err);
    if (st != EBRO_OK) {
        return eb_while(err, st, "allocating the activations of a step of %u tokens", e->n_chunk);
    }
    attach(&e->work, mem);
    return EBRO_OK;
}
