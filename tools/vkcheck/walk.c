/* walk.c: see walk.h. What a step calls, and with which shapes, follows runtime/engine (forward.c,
 * mixer.c, ffn.c); figures of models are those of their public configurations. */
#include "walk.h"

#include <stdio.h>
#include <string.h>

#include "ops/ops.h"

struct model {
    const char *name;
    uint32_t hidden, ffn, vocab;
    uint32_t kda_heads, kda_dim, gate_rank; /* 0: a gate of full rank */
    int32_t gate_form;
    uint32_t mla_heads, q_lora, kv_lora, nope, rope, v_dim;
    bool mla_gate;
    uint32_t n_experts, top_k, expert_in, expert_inner, shared;
    int32_t act;
    uint32_t n_sources; /* of attn_res_mix, at most; 0: an ordinary residual */
};

static const struct model models[] = {
    {.name = "Kimi-Linear-48B",
     .hidden = 2304,
     .ffn = 9216,
     .vocab = 163840,
     .kda_heads = 32,
     .kda_dim = 128,
     .gate_rank = 128,
     .gate_form = EBRO_GATE_SOFTPLUS,
     .mla_heads = 32,
     .kv_lora = 512,
     .nope = 128,
     .rope = 64,
     .v_dim = 128,
     .n_experts = 256,
     .top_k = 8,
     .expert_in = 2304,
     .expert_inner = 1024,
     .shared = 1024,
     .act = EBRO_ACT_SILU},
    {.name = "Kimi K3",
     .hidden = 7168,
     .ffn = 18432,
     .vocab = 163840,
     .kda_heads = 96,
     .kda_dim = 128,
     .gate_form = EBRO_GATE_BOUNDED,
     .mla_heads = 96,
     .q_lora = 1536,
     .kv_lora = 512,
     .nope = 128,
     .rope = 64,
     .v_dim = 128,
     .mla_gate = true,
     .n_experts = 896,
     .top_k = 16,
     .expert_in = 3584,
     .expert_inner = 3072,
     .shared = 6144,
     .act = EBRO_ACT_SITU,
     .n_sources = 9},
    /* The demo model. */
    {.name = "demo",
     .hidden = 256,
     .ffn = 768,
     .vocab = 4352,
     .kda_heads = 3,
     .kda_dim = 128,
     .gate_form = EBRO_GATE_BOUNDED,
     .mla_heads = 3,
     .q_lora = 128,
     .kv_lora = 512,
     .nope = 128,
     .rope = 64,
     .v_dim = 128,
     .mla_gate = true,
     .n_experts = 16,
     .top_k = 4,
     .expert_in = 128,
     .expert_inner = 128,
     .shared = 256,
     .act = EBRO_ACT_SITU,
     .n_sources = 4},
};

/* n rows of each of n_seqs sequences, behind `context` tokens. */
struct step {
    uint32_t n_seqs, n, context;
};

static const struct step steps[] = {{1, 1, 100},  {1, 1, 65536}, {2, 1, 5000}, {4, 1, 5000},
                                    {8, 1, 5000}, {32, 1, 5000}, {64, 1, 100}, {1, 2, 0},
                                    {1, 24, 0},   {1, 40, 100},  {1, 512, 0},  {4, 256, 4096},
                                    {1, 4096, 0}};

/* ---- pretended memory ------------------------------------------------------------------- */

static ebro_span take(ebro_mem *mem, uint64_t *used, uint64_t bytes) {
    ebro_span span = {mem, *used};
    *used += (bytes + 255) / 256 * 256;
    return span;
}

static ebro_span list(struct eb_walk *w, uint64_t bytes) {
    return take(&w->lists, &w->lists_used, bytes);
}

static ebro_mat mat(struct eb_walk *w, uint64_t rows, uint64_t cols) {
    ebro_span s = take(&w->data, &w->data_used, rows * cols * 4);
    return (ebro_mat){s.mem, s.offset, cols, EBRO_F32};
}

static ebro_weight weight(struct eb_walk *w, int32_t dtype, uint32_t rows, uint32_t cols) {
    ebro_span s = take(&w->data, &w->data_used, (uint64_t)rows * cols * 4);
    ebro_weight m = {s.mem, s.offset, cols, rows, cols, dtype, 0, NULL, 0};
    if (dtype != EBRO_MXFP4) return m;
    ebro_span scales = list(w, (uint64_t)rows * cols / EBRO_MX_GROUP);
    m.scale_mem = scales.mem;
    m.scale_offset = scales.offset;
    return m;
}

static ebro_vec vec(struct eb_walk *w, int32_t dtype, uint64_t n) {
    ebro_span s = take(&w->data, &w->data_used, n * 4);
    return (ebro_vec){s.mem, s.offset, dtype};
}

static ebro_span scratch(struct eb_walk *w, ebro_op op, const void *args) {
    return list(w, eb_op_scratch(w->device, op, args));
}

static ebro_rows rows_of(struct eb_walk *w, const struct step *p) {
    return (ebro_rows){list(w, 4ull * (p->n_seqs + 1)), p->n_seqs, p->n_seqs * p->n, p->n};
}

static uint32_t count(const struct step *p) {
    return p->n_seqs * p->n;
}

static ebro_state_io states(struct eb_walk *w, const struct step *p, uint32_t units,
                            uint64_t elements, int32_t dtype) {
    return (ebro_state_io){.region = {.table = list(w, 8ull * p->n_seqs),
                                      .table_stride = 1,
                                      .units_per_block = units,
                                      .unit_bytes = elements * eb_dtype_size(dtype),
                                      .dtype = dtype},
                           .state_in = list(w, 4ull * p->n_seqs),
                           .state_out = list(w, 4ull * p->n_seqs)};
}

static ebro_pages pages(struct eb_walk *w, const struct model *m, const struct step *p,
                        int32_t dtype) {
    uint32_t tokens = 64, stride = (p->context + p->n + tokens - 1) / tokens;
    return (ebro_pages){.table = list(w, 8ull * p->n_seqs * stride),
                        .table_stride = stride,
                        .page_tokens = tokens,
                        .row_stride = m->kv_lora + m->rope,
                        .dtype = dtype,
                        .context = list(w, 4ull * p->n_seqs),
                        .max_context = p->context + p->n};
}

/* ---- calls ------------------------------------------------------------------------------ */

static void note(struct eb_walk *w, int32_t st, const ebro_error *err) {
    w->n_calls++;
    if (st == EBRO_OK) return;
    w->n_failed++;
    w->failed(w->user, w->what, err);
}

/* Names the call at hand, and opens its graph: each has its own, so that none grows large. */
static bool begin(struct eb_walk *w, const char *op, const struct step *p, int32_t dtype,
                  int32_t dtype2) {
    ebro_error err;
    if (w->only != NULL && strcmp(w->only, op) != 0) {
        w->data_used = w->lists_used = 0;
        return false;
    }
    snprintf(w->what, sizeof w->what, "%s, %s, %u x %u rows, %s%s%s", w->model, op, p->n_seqs, p->n,
             eb_dtype_name(dtype), dtype2 >= 0 ? " and " : "",
             dtype2 >= 0 ? eb_dtype_name(dtype2) : "");
    int32_t st = eb_graph_begin(&w->stream, &err);
    if (st != EBRO_OK) note(w, st, &err);
    return st == EBRO_OK;
}

static void end(struct eb_walk *w, int32_t st, const ebro_error *call_err) {
    ebro_graph *graph = NULL;
    ebro_error err;
    note(w, st, call_err);
    st = eb_graph_end(&w->stream, &graph, &err);
    if (st != EBRO_OK) note(w, st, &err);
    eb_graph_free(w->device, &graph);
    w->data_used = w->lists_used = 0;
}

/* Records eb_op_NAME(args). */
#define CALL(w, p, NAME, args, dtype, dtype2)                           \
    do {                                                                \
        ebro_error err_;                                                \
        if (begin((w), #NAME, (p), (dtype), (dtype2)))                  \
            end((w), eb_op_##NAME(&(w)->stream, (args), &err_), &err_); \
    } while (0)

/* One product of each of n widths in one call. */
static void linear(struct eb_walk *w, const struct step *p, int32_t dtype, uint32_t inputs,
                   uint32_t n, const uint32_t *outputs) {
    ebro_linear_args a = {.size = sizeof a,
                          .x = mat(w, count(p), inputs),
                          .n_rows = count(p),
                          .n_items = n,
                          .n_batch = 1};
    for (uint32_t i = 0; i < n; i++) {
        a.items[i] = (ebro_linear_item){.w = weight(w, dtype, outputs[i], inputs),
                                        .out = mat(w, count(p), outputs[i])};
    }
    a.scratch = scratch(w, EBRO_OP_LINEAR, &a);
    CALL(w, p, linear, &a, dtype, -1);
}

/* A product for each head, with the transpose or not. */
static void per_head(struct eb_walk *w, const struct model *m, const struct step *p, int32_t dtype,
                     bool transposed) {
    uint32_t lora = m->kv_lora, q = m->nope + m->rope, heads = m->mla_heads;
    uint32_t in = transposed ? q : lora, out = transposed ? lora + m->rope : m->v_dim;
    ebro_linear_args a = {.size = sizeof a,
                          .x = mat(w, count(p), (uint64_t)heads * in),
                          .n_rows = count(p),
                          .n_items = 1,
                          .n_batch = heads,
                          .x_batch_elements = in};
    ebro_weight kv_b = weight(w, dtype, heads * (m->nope + m->v_dim), lora);
    kv_b.rows = transposed ? m->nope : m->v_dim;
    kv_b.transposed = transposed;
    if (!transposed) kv_b.offset += (uint64_t)m->nope * lora * eb_dtype_size(dtype);
    a.items[0] = (ebro_linear_item){
        .w = kv_b,
        .out = mat(w, count(p), (uint64_t)heads * out),
        .w_batch_bytes = (uint64_t)(m->nope + m->v_dim) * lora * eb_dtype_size(dtype),
        .out_batch_elements = out};
    a.scratch = scratch(w, EBRO_OP_LINEAR, &a);
    CALL(w, p, linear, &a, dtype, -1);
}

/* Two transposed products of one input, which operators may ask for and no model here does. */
static void transposed_pair(struct eb_walk *w, const struct model *m, const struct step *p,
                            int32_t dtype) {
    ebro_linear_args a = {.size = sizeof a,
                          .x = mat(w, count(p), m->nope),
                          .n_rows = count(p),
                          .n_items = 2,
                          .n_batch = 1};
    for (uint32_t i = 0; i < a.n_items; i++) {
        a.items[i] = (ebro_linear_item){.w = weight(w, dtype, m->nope, m->kv_lora),
                                        .out = mat(w, count(p), m->kv_lora)};
        a.items[i].w.transposed = true;
    }
    a.scratch = scratch(w, EBRO_OP_LINEAR, &a);
    CALL(w, p, linear, &a, dtype, -1);
}

static void norm(struct eb_walk *w, const struct step *p, uint32_t rows, uint32_t cols, bool gate,
                 int32_t dtype) {
    ebro_rms_norm_args a = {.size = sizeof a,
                            .x = mat(w, rows, cols),
                            .out = mat(w, rows, cols),
                            .weight = vec(w, dtype, cols),
                            .n_rows = rows,
                            .n_cols = cols,
                            .eps = 1e-5f};
    if (gate) a.gate = mat(w, rows, cols);
    CALL(w, p, rms_norm, &a, dtype, -1);
}

static void act_mul(struct eb_walk *w, const struct step *p, uint32_t cols, int32_t kind) {
    ebro_mat gate = mat(w, count(p), cols), up = mat(w, count(p), cols);
    const ebro_act_mul_args a = {.size = sizeof a,
                                 .gate = gate,
                                 .up = up,
                                 .out = up,
                                 .n_rows = count(p),
                                 .n_cols = cols,
                                 .gate_group = 1,
                                 .kind = kind,
                                 .beta = 4.0f,
                                 .beta2 = 25.0f};
    CALL(w, p, act_mul, &a, EBRO_F32, -1);
}

/* ---- KDA -------------------------------------------------------------------------------- */

static ebro_kda_gate kda_gate(struct eb_walk *w, const struct model *m, const struct step *p,
                              int32_t dtype) {
    uint32_t channels = m->kda_heads * m->kda_dim;
    return (ebro_kda_gate){.n_heads = m->kda_heads,
                           .head_dim = m->kda_dim,
                           .g_raw = mat(w, count(p), channels),
                           .beta_raw = mat(w, count(p), m->kda_heads),
                           .a_log = vec(w, dtype, m->kda_heads),
                           .dt_bias = vec(w, dtype, channels),
                           .form = m->gate_form,
                           .lower_bound = m->gate_form == EBRO_GATE_BOUNDED ? -5.0f : 0.0f,
                           .l2_eps = 1e-6f};
}

static void kda_products(struct eb_walk *w, const struct model *m, const struct step *p,
                         int32_t dtype) {
    uint32_t channels = m->kda_heads * m->kda_dim, rank = m->gate_rank;
    const uint32_t first[] = {channels,   channels,     channels,
                              m->kda_dim, m->kda_heads, rank ? rank : channels};
    linear(w, p, dtype, m->hidden, 6, first);
    linear(w, p, dtype, m->kda_dim, 1, &channels);
    linear(w, p, dtype, channels, 1, &m->hidden);
}

static void kda_conv(struct eb_walk *w, const struct model *m, const struct step *p,
                     int32_t dtype) {
    uint32_t channels = m->kda_heads * m->kda_dim;
    ebro_kda_conv_args a = {.size = sizeof a,
                            .rows = rows_of(w, p),
                            .n_channels = channels,
                            .state = states(w, p, 3, 3ull * channels, EBRO_F32)};
    for (int i = 0; i < 3; i++) {
        a.x[i] = mat(w, count(p), channels);
        a.out[i] = mat(w, count(p), channels);
        a.weight[i] = vec(w, dtype, (uint64_t)channels * EBRO_CONV_WIDTH);
    }
    CALL(w, p, kda_conv, &a, dtype, -1);
}

static void kda_prep(struct eb_walk *w, const struct model *m, const struct step *p,
                     int32_t dtype) {
    uint64_t channels = (uint64_t)m->kda_heads * m->kda_dim;
    ebro_kda_prep_args a = {.size = sizeof a,
                            .rows = rows_of(w, p),
                            .q = mat(w, count(p), channels),
                            .k = mat(w, count(p), channels),
                            .v = mat(w, count(p), channels),
                            .gate = kda_gate(w, m, p, dtype)};
    a.work = scratch(w, EBRO_OP_KDA_PREP, &a);
    CALL(w, p, kda_prep, &a, dtype, -1);
}

static void kda_recur(struct eb_walk *w, const struct model *m, const struct step *p,
                      int32_t state) {
    uint64_t channels = (uint64_t)m->kda_heads * m->kda_dim, dim = m->kda_dim;
    const ebro_kda_prep_args prep = {.size = sizeof prep,
                                     .rows = rows_of(w, p),
                                     .gate = {.n_heads = m->kda_heads, .head_dim = m->kda_dim}};
    const ebro_kda_recur_args a = {.size = sizeof a,
                                   .rows = prep.rows,
                                   .v = mat(w, count(p), channels),
                                   .out = mat(w, count(p), channels),
                                   .n_heads = m->kda_heads,
                                   .head_dim = m->kda_dim,
                                   .state = states(w, p, m->kda_heads, dim * dim, state),
                                   .work = scratch(w, EBRO_OP_KDA_PREP, &prep)};
    CALL(w, p, kda_recur, &a, EBRO_F32, state);
}

static void kda_step(struct eb_walk *w, const struct model *m, const struct step *p, int32_t dtype,
                     int32_t state) {
    uint32_t channels = m->kda_heads * m->kda_dim;
    uint64_t dim = m->kda_dim;
    ebro_kda_step_args a = {.size = sizeof a,
                            .rows = rows_of(w, p),
                            .gate = kda_gate(w, m, p, dtype),
                            .windows = states(w, p, 3, 3ull * channels, EBRO_F32),
                            .state = states(w, p, m->kda_heads, dim * dim, state),
                            .out_gate = mat(w, count(p), channels),
                            .norm_weight = vec(w, dtype, m->kda_dim),
                            .norm_eps = 1e-5f,
                            .out = mat(w, count(p), channels)};
    for (int i = 0; i < 3; i++) {
        a.x[i] = mat(w, count(p), channels);
        a.conv_weight[i] = vec(w, dtype, (uint64_t)channels * EBRO_CONV_WIDTH);
    }
    a.scratch = scratch(w, EBRO_OP_KDA_STEP, &a);
    CALL(w, p, kda_step, &a, dtype, state);
}

/* ---- MLA -------------------------------------------------------------------------------- */

static void mla_products(struct eb_walk *w, const struct model *m, const struct step *p,
                         int32_t dtype) {
    uint32_t q = m->mla_heads * (m->nope + m->rope), out = m->mla_heads * m->v_dim;
    const uint32_t first[] = {m->q_lora ? m->q_lora : q, m->kv_lora + m->rope, out};
    linear(w, p, dtype, m->hidden, m->mla_gate ? 3 : 2, first);
    if (m->q_lora) linear(w, p, dtype, m->q_lora, 1, &q);
    linear(w, p, dtype, out, 1, &m->hidden);
}

static void mla_append(struct eb_walk *w, const struct model *m, const struct step *p,
                       int32_t dtype, int32_t cache, uint32_t rotary) {
    uint32_t head = m->nope + m->rope;
    ebro_mla_append_args a = {.size = sizeof a,
                              .rows = rows_of(w, p),
                              .kv = mat(w, count(p), (uint64_t)m->kv_lora + m->rope),
                              .norm_weight = vec(w, dtype, m->kv_lora),
                              .norm_eps = 1e-6f,
                              .kv_lora = m->kv_lora,
                              .rope_dim = m->rope,
                              .pages = pages(w, m, p, cache),
                              .rotary_dim = rotary,
                              .rotary_theta = 10000.0f,
                              .n_heads = m->mla_heads,
                              .q_head_stride = head,
                              .q_rope_offset = m->nope};
    if (rotary > 0) a.q = mat(w, count(p), (uint64_t)m->mla_heads * head);
    CALL(w, p, mla_append, &a, dtype, cache);
}

static void mla_decode(struct eb_walk *w, const struct model *m, const struct step *p,
                       int32_t cache) {
    ebro_mla_decode_args a = {
        .size = sizeof a,
        .rows = rows_of(w, p),
        .q = mat(w, count(p), (uint64_t)m->mla_heads * (m->kv_lora + m->rope)),
        .n_heads = m->mla_heads,
        .kv_lora = m->kv_lora,
        .rope_dim = m->rope,
        .scale = 0.07f,
        .pages = pages(w, m, p, cache),
        .token_end = UINT32_MAX,
        .out = mat(w, count(p), (uint64_t)m->mla_heads * m->kv_lora)};
    a.scratch = scratch(w, EBRO_OP_MLA_DECODE, &a);
    CALL(w, p, mla_decode, &a, EBRO_F32, cache);
}

static void mla_prefill(struct eb_walk *w, const struct model *m, const struct step *p,
                        int32_t dtype, int32_t cache) {
    ebro_mla_prefill_args a = {
        .size = sizeof a,
        .rows = rows_of(w, p),
        .q = mat(w, count(p), (uint64_t)m->mla_heads * (m->nope + m->rope)),
        .kv_b = weight(w, dtype, m->mla_heads * (m->nope + m->v_dim), m->kv_lora),
        .n_heads = m->mla_heads,
        .nope_dim = m->nope,
        .rope_dim = m->rope,
        .v_dim = m->v_dim,
        .kv_lora = m->kv_lora,
        .scale = 0.07f,
        .pages = pages(w, m, p, cache),
        .token_end = UINT32_MAX,
        .out = mat(w, count(p), (uint64_t)m->mla_heads * m->v_dim)};
    a.scratch = scratch(w, EBRO_OP_MLA_PREFILL, &a);
    CALL(w, p, mla_prefill, &a, dtype, cache);
}

/* The key channels of q, behind the products with the latent ones. */
static void copy_rope(struct eb_walk *w, const struct model *m, const struct step *p) {
    uint64_t rows = (uint64_t)count(p) * m->mla_heads, q = m->nope + m->rope;
    uint64_t absorbed = m->kv_lora + m->rope;
    ebro_mat from = mat(w, rows, q), to = mat(w, rows, absorbed);
    const ebro_rows_copy_args a = {.size = sizeof a,
                                   .src = {from.mem, from.offset + m->nope * 4ull},
                                   .dst = {to.mem, to.offset + m->kv_lora * 4ull},
                                   .src_stride_bytes = q * 4,
                                   .dst_stride_bytes = absorbed * 4,
                                   .row_bytes = m->rope * 4ull,
                                   .n = (uint32_t)rows};
    CALL(w, p, rows_copy, &a, EBRO_F32, -1);
}

/* ---- experts ---------------------------------------------------------------------------- */

static void moe_route(struct eb_walk *w, const struct model *m, const struct step *p,
                      int32_t dtype) {
    uint64_t n_pairs = (uint64_t)count(p) * m->top_k;
    ebro_moe_route_args a = {.size = sizeof a,
                             .x = mat(w, count(p), m->hidden),
                             .gate = weight(w, dtype, m->n_experts, m->hidden),
                             .bias = vec(w, EBRO_F32, m->n_experts),
                             .n_rows = count(p),
                             .n_experts = m->n_experts,
                             .top_k = m->top_k,
                             .scaling = 1.0f,
                             .renormalise = 1,
                             .ids = mat(w, count(p), m->top_k),
                             .weights = mat(w, count(p), m->top_k),
                             .offsets = list(w, 4ull * (m->n_experts + 1)),
                             .pairs = list(w, 4 * n_pairs)};
    a.ids.dtype = EBRO_I32;
    a.scratch = scratch(w, EBRO_OP_MOE_ROUTE, &a);
    CALL(w, p, moe_route, &a, dtype, -1);
}

static void moe_experts(struct eb_walk *w, const struct model *m, const struct step *p,
                        int32_t dtype) {
    ebro_moe_experts_args a = {.size = sizeof a,
                               .x = mat(w, count(p), m->expert_in),
                               .out = mat(w, count(p), m->expert_in),
                               .n_rows = count(p),
                               .n_experts = m->n_experts,
                               .top_k = m->top_k,
                               .in_dim = m->expert_in,
                               .inner_dim = m->expert_inner,
                               .tables = list(w, 24ull * m->n_experts),
                               .scale_tables = list(w, 24ull * m->n_experts),
                               .dtype = dtype,
                               .act = m->act,
                               .beta = 4.0f,
                               .beta2 = 25.0f,
                               .weights = mat(w, count(p), m->top_k),
                               .offsets = list(w, 4ull * (m->n_experts + 1)),
                               .pairs = list(w, 4ull * count(p) * m->top_k)};
    a.scratch = scratch(w, EBRO_OP_MOE_EXPERTS, &a);
    CALL(w, p, moe_experts, &a, dtype, -1);
}

/* ---- ends of a step --------------------------------------------------------------------- */

static void embed(struct eb_walk *w, const struct model *m, const struct step *p, int32_t dtype) {
    const ebro_embed_args a = {.size = sizeof a,
                               .ids = list(w, 4ull * count(p)),
                               .n_rows = count(p),
                               .table = weight(w, dtype, m->vocab, m->hidden),
                               .out = mat(w, count(p), m->hidden)};
    CALL(w, p, embed, &a, dtype, -1);
}

static void sample(struct eb_walk *w, const struct model *m, const struct step *p,
                   uint32_t n_adjusts) {
    ebro_sample_args a = {.size = sizeof a,
                          .logits = mat(w, p->n_seqs, m->vocab),
                          .n_rows = p->n_seqs,
                          .vocab = m->vocab,
                          .params = list(w, p->n_seqs * sizeof(ebro_sample_params)),
                          .ids = list(w, 4ull * p->n_seqs),
                          .n_adjusts = n_adjusts};
    if (n_adjusts > 0) {
        a.adjusts = list(w, n_adjusts * sizeof(ebro_logit_adjust));
        a.adjust_offsets = list(w, 4ull * (p->n_seqs + 1));
    }
    a.scratch = scratch(w, EBRO_OP_SAMPLE, &a);
    CALL(w, p, sample, &a, EBRO_F32, -1);
}

static void residual_mix(struct eb_walk *w, const struct model *m, const struct step *p,
                         uint32_t n_sources, int32_t dtype) {
    ebro_attn_res_mix_args a = {.size = sizeof a,
                                .n_sources = n_sources,
                                .n_rows = count(p),
                                .n_cols = m->hidden,
                                .norm_weight = vec(w, dtype, m->hidden),
                                .proj = vec(w, dtype, m->hidden),
                                .eps = 1e-5f,
                                .out = mat(w, count(p), m->hidden)};
    for (uint32_t i = 0; i < n_sources; i++) a.sources[i] = mat(w, count(p), m->hidden);
    CALL(w, p, attn_res_mix, &a, dtype, -1);
}

/* What the memory manager does between steps. */
static void housekeeping(struct eb_walk *w, const struct step *p) {
    const ebro_state_copy_args copy = {.size = sizeof copy,
                                       .src = list(w, 8ull * p->n_seqs),
                                       .dst = list(w, 8ull * p->n_seqs),
                                       .n = p->n_seqs,
                                       .bytes = 1 << 20};
    ebro_error err;
    CALL(w, p, state_copy, &copy, EBRO_F32, -1);
    ebro_mat room = mat(w, 1, 1 << 20);
    if (begin(w, "fill", p, EBRO_F32, -1)) {
        ebro_span span = {room.mem, room.offset};
        end(w, eb_fill(&w->stream, span, 0, 4 << 20, &err), &err);
    }
}

/* ---- steps ------------------------------------------------------------------------------ */

/* What depends on the type of the weights alone. */
static void walk_weights(struct eb_walk *w, const struct model *m, const struct step *p,
                         int32_t dtype) {
    const uint32_t gate_up[] = {m->ffn, m->ffn}, shared[] = {m->shared, m->shared};
    kda_products(w, m, p, dtype);
    mla_products(w, m, p, dtype);
    linear(w, p, dtype, m->hidden, 2, gate_up);
    linear(w, p, dtype, m->ffn, 1, &m->hidden);
    linear(w, p, dtype, m->hidden, 2, shared);
    linear(w, p, dtype, m->shared, 1, &m->hidden);
    if (m->expert_in != m->hidden) {
        linear(w, p, dtype, m->hidden, 1, &m->expert_in);
        linear(w, p, dtype, m->expert_in, 1, &m->hidden);
    }
    linear(w, p, dtype, m->hidden, 1, &m->vocab);
    moe_experts(w, m, p, dtype);
    if (dtype == EBRO_MXFP4) return;
    per_head(w, m, p, dtype, true);
    per_head(w, m, p, dtype, false);
    transposed_pair(w, m, p, dtype);
    embed(w, m, p, dtype);
    norm(w, p, count(p), m->hidden, false, dtype);
    norm(w, p, count(p) * m->kda_heads, m->kda_dim, true, dtype);
    if (m->q_lora) norm(w, p, count(p), m->q_lora, false, dtype);
    moe_route(w, m, p, dtype);
    for (uint32_t i = 2; i <= m->n_sources; i++) residual_mix(w, m, p, i, dtype);
    kda_conv(w, m, p, dtype);
    kda_prep(w, m, p, dtype);
}

/* What depends on the type of the cache or of the states. */
static void walk_caches(struct eb_walk *w, const struct model *m, const struct step *p,
                        int32_t dtype, int32_t cache) {
    mla_append(w, m, p, dtype, cache, 0);
    mla_append(w, m, p, dtype, cache, m->rope);
    mla_decode(w, m, p, cache);
    if (p->n > 1) mla_prefill(w, m, p, dtype, cache);
    if (cache == EBRO_F16) return;
    kda_recur(w, m, p, cache);
    kda_step(w, m, p, dtype, cache);
}

static void walk_step(struct eb_walk *w, const struct model *m, const struct step *p) {
    static const int32_t dtypes[] = {EBRO_F32, EBRO_F16, EBRO_BF16};
    for (int i = 0; i < 3; i++) {
        walk_weights(w, m, p, dtypes[i]);
        for (int j = 0; j < 3; j++) walk_caches(w, m, p, dtypes[i], dtypes[j]);
    }
    walk_weights(w, m, p, EBRO_MXFP4);
    act_mul(w, p, m->ffn, m->act);
    act_mul(w, p, m->mla_heads * m->v_dim, EBRO_ACT_SIGMOID);
    copy_rope(w, m, p);
    sample(w, m, p, 0);
    sample(w, m, p, 10);
    housekeeping(w, p);
}

void eb_walk_all(struct eb_walk *w) {
    /* Larger than any model; addresses are never followed. */
    w->data = w->lists = (ebro_mem){.bytes = UINT64_C(1) << 46, .address = UINT64_C(1) << 46};
    w->lists.address *= 2;
    for (int aligned = 1; aligned >= 0; aligned--) {
        if (!aligned) w->data.address += 4;
        for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
            w->model = models[m].name;
            for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
                walk_step(w, &models[m], &steps[s]);
        }
    }
}
