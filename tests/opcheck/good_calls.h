/* good_calls.h: one good call of every op, as small as can be, each memory exactly as large as the
 * call needs. Variants show the arguments that only matter together (MXFP4, batches, rotary). */
#ifndef EB_GOOD_CALLS_H
#define EB_GOOD_CALLS_H

#include "tests/opcheck/fake_device.h"

enum { SEQS = 2, ROWS = 3, HEADS = 2, DIM = 8, CHANNELS = HEADS * DIM, SLOT_BLOCKS = 6 };
enum { LORA = 16, ROPE = 4, NOPE = 8, VDIM = 8, PAGES = 3, PAGE_TOKENS = 4 };

static inline void want_scratch(ebro_op op, uint64_t bytes, ebro_span *span) {
    fake.scratch[op] = bytes;
    *span = fake_span(bytes, 1);
}

static inline ebro_rows good_rows(void) {
    return (ebro_rows){
        .row_offsets = fake_span(SEQS + 1, 4), .n_seqs = SEQS, .n_rows = ROWS, .max_rows = 2};
}

/* Units spread over blocks of two, from the second block and its second unit on. */
static inline ebro_state_io good_state(uint32_t units, uint64_t unit_elements, int32_t dtype) {
    return (ebro_state_io){.region = {.table = fake_span(1 + (1 + units + 1) / 2, 8),
                                      .table_stride = 1 + (1 + units + 1) / 2,
                                      .first_block = 1,
                                      .first_unit = 1,
                                      .units_per_block = 2,
                                      .block_offset = 64,
                                      .unit_bytes = unit_elements * eb_dtype_size(dtype),
                                      .dtype = dtype},
                           .state_in = fake_span(SEQS, 4),
                           .state_out = fake_span(SEQS, 4),
                           .emit_rows = fake_span(2, 4),
                           .emit_slots = fake_span(2, 4),
                           .n_emit = 2};
}

static inline ebro_pages good_pages(void) {
    return (ebro_pages){.table = fake_span(SEQS * PAGES, 8),
                        .table_stride = PAGES,
                        .page_tokens = PAGE_TOKENS,
                        .layer_offset = 128,
                        .row_stride = LORA + ROPE,
                        .dtype = EBRO_BF16,
                        .context = fake_span(SEQS, 4),
                        .max_context = PAGES * PAGE_TOKENS};
}

static inline ebro_kda_gate good_gate(void) {
    return (ebro_kda_gate){.n_heads = HEADS,
                           .head_dim = DIM,
                           .g_raw = fake_mat(ROWS, CHANNELS, CHANNELS, EBRO_F32),
                           .beta_raw = fake_mat(ROWS, HEADS, HEADS + 1, EBRO_F32),
                           .a_log = fake_vec(HEADS, EBRO_F32),
                           .dt_bias = fake_vec(CHANNELS, EBRO_BF16),
                           .form = EBRO_GATE_BOUNDED,
                           .lower_bound = -5.0f,
                           .l2_eps = 1e-6f};
}

static inline void good_embed(union any_args *u) {
    ebro_embed_args *a = &u->embed;
    *a = (ebro_embed_args){.size = sizeof *a, .ids = fake_span(ROWS, 4), .n_rows = ROWS};
    a->table = fake_weight(11, 12, EBRO_BF16);
    a->out = fake_mat(ROWS, 12, 16, EBRO_F32);
}

static inline void good_sample(union any_args *u) {
    ebro_sample_args *a = &u->sample;
    *a = (ebro_sample_args){.size = sizeof *a, .n_rows = ROWS, .vocab = 11};
    a->logits = fake_mat(ROWS, 11, 12, EBRO_F32);
    a->params = fake_span(ROWS, sizeof(ebro_sample_params));
    a->ids = fake_span(ROWS, 4);
    a->n_adjusts = 5;
    a->adjusts = fake_span(5, sizeof(ebro_logit_adjust));
    a->adjust_offsets = fake_span(ROWS + 1, 4);
    want_scratch(EBRO_OP_SAMPLE, 72, &a->scratch);
}

static inline void good_rms_norm(union any_args *u) {
    ebro_rms_norm_args *a = &u->rms_norm;
    *a = (ebro_rms_norm_args){.size = sizeof *a, .n_rows = ROWS, .n_cols = 12, .eps = 1e-5f};
    a->x = fake_mat(ROWS, 12, 16, EBRO_F32);
    a->out = fake_mat(ROWS, 12, 12, EBRO_F32);
    a->gate = fake_mat(ROWS, 12, 13, EBRO_F32);
    a->weight = fake_vec(12, EBRO_F16);
}

/* Two weights, the second transposed. */
static inline void good_linear(union any_args *u) {
    ebro_linear_args *a = &u->linear;
    *a = (ebro_linear_args){.size = sizeof *a, .n_rows = ROWS, .n_items = 2, .n_batch = 1};
    a->x = fake_mat(ROWS, 12, 16, EBRO_F32);
    a->items[0].w = fake_weight(10, 12, EBRO_BF16);
    a->items[0].out = fake_mat(ROWS, 10, 10, EBRO_F32);
    a->items[1].w = fake_weight(12, 7, EBRO_F32);
    a->items[1].w.transposed = 1;
    a->items[1].out = fake_mat(ROWS, 7, 8, EBRO_F32);
    a->items[1].accumulate = 1;
    want_scratch(EBRO_OP_LINEAR, 96, &a->scratch);
}

static inline void good_linear_mxfp4(union any_args *u) {
    good_linear(u);
    ebro_linear_args *a = &u->linear;
    fake.n_mems = 0;
    a->n_items = 1;
    a->x = fake_mat(ROWS, 64, 64, EBRO_F32);
    a->items[0].w = fake_weight(10, 64, EBRO_MXFP4);
    a->items[0].out = fake_mat(ROWS, 10, 10, EBRO_F32);
    fake.scratch[EBRO_OP_LINEAR] = 0; /* wants none, gets none */
    a->scratch = (ebro_span){.mem = NULL};
}

/* One product per head: columns of x and out are the heads', weights lie one after the other. */
static inline void good_linear_batch(union any_args *u) {
    good_linear_mxfp4(u);
    ebro_linear_args *a = &u->linear;
    fake.n_mems = 0;
    a->n_batch = HEADS;
    a->x = fake_mat(ROWS, 12 * HEADS, 12 * HEADS, EBRO_F32);
    a->x_batch_elements = 12;
    a->items[0].w = (ebro_weight){.stride = 12, .rows = 10, .cols = 12, .dtype = EBRO_F16};
    a->items[0].w.mem = fake_mem(10 * 12 * 2 * HEADS);
    a->items[0].w_batch_bytes = 10 * 12 * 2;
    a->items[0].out = fake_mat(ROWS, 10 * HEADS, 10 * HEADS, EBRO_F32);
    a->items[0].out_batch_elements = 10;
}

static inline void good_act_mul(union any_args *u) {
    ebro_act_mul_args *a = &u->act_mul;
    *a = (ebro_act_mul_args){.size = sizeof *a,
                             .n_rows = ROWS,
                             .n_cols = 12,
                             .gate_group = 4,
                             .kind = EBRO_ACT_SITU,
                             .beta = 4.0f,
                             .beta2 = 25.0f};
    a->gate = fake_mat(ROWS, 3, 3, EBRO_F32);
    a->up = fake_mat(ROWS, 12, 16, EBRO_F32);
    a->out = fake_mat(ROWS, 12, 12, EBRO_F32);
}

static inline void good_kda_conv(union any_args *u) {
    ebro_kda_conv_args *a = &u->kda_conv;
    *a = (ebro_kda_conv_args){.size = sizeof *a, .rows = good_rows(), .n_channels = CHANNELS};
    for (int i = 0; i < 3; i++) {
        a->x[i] = fake_mat(ROWS, CHANNELS, CHANNELS + 4, EBRO_F32);
        a->out[i] = fake_mat(ROWS, CHANNELS, CHANNELS, EBRO_F32);
        a->weight[i] = fake_vec(CHANNELS * 4, EBRO_BF16);
    }
    a->state = good_state(3, 3 * CHANNELS, EBRO_F32);
}

static inline void good_kda_prep(union any_args *u) {
    ebro_kda_prep_args *a = &u->kda_prep;
    *a = (ebro_kda_prep_args){.size = sizeof *a, .rows = good_rows(), .gate = good_gate()};
    a->q = fake_mat(ROWS, CHANNELS, CHANNELS, EBRO_F32);
    a->k = fake_mat(ROWS, CHANNELS, CHANNELS, EBRO_F32);
    a->v = fake_mat(ROWS, CHANNELS, CHANNELS, EBRO_F32);
    a->emit_rows = fake_span(2, 4);
    a->n_emit = 2;
    want_scratch(EBRO_OP_KDA_PREP, 128, &a->work);
}

static inline void good_kda_recur(union any_args *u) {
    ebro_kda_recur_args *a = &u->kda_recur;
    *a = (ebro_kda_recur_args){
        .size = sizeof *a, .rows = good_rows(), .n_heads = HEADS, .head_dim = DIM};
    a->v = fake_mat(ROWS, CHANNELS, CHANNELS, EBRO_F32);
    a->out = fake_mat(ROWS, CHANNELS, CHANNELS, EBRO_F32);
    a->state = good_state(HEADS, DIM * DIM, EBRO_BF16);
    /* This backend says how much work there is for kda_prep alone. */
    want_scratch(EBRO_OP_KDA_PREP, 128, &a->work);
}

static inline void good_kda_step(union any_args *u) {
    ebro_kda_step_args *a = &u->kda_step;
    *a = (ebro_kda_step_args){
        .size = sizeof *a, .rows = good_rows(), .gate = good_gate(), .norm_eps = 1e-5f};
    for (int i = 0; i < 3; i++) {
        a->x[i] = fake_mat(ROWS, CHANNELS, CHANNELS + 4, EBRO_F32);
        a->conv_weight[i] = fake_vec(CHANNELS * 4, EBRO_F32);
    }
    a->windows = good_state(3, 3 * CHANNELS, EBRO_F32);
    a->state = good_state(HEADS, DIM * DIM, EBRO_F32);
    a->out_gate = fake_mat(ROWS, CHANNELS, CHANNELS, EBRO_F32);
    a->norm_weight = fake_vec(DIM, EBRO_F32);
    a->out = fake_mat(ROWS, CHANNELS, CHANNELS, EBRO_F32);
    want_scratch(EBRO_OP_KDA_STEP, 80, &a->scratch);
}

static inline void good_mla_append(union any_args *u) {
    ebro_mla_append_args *a = &u->mla_append;
    *a = (ebro_mla_append_args){.size = sizeof *a,
                                .rows = good_rows(),
                                .norm_eps = 1e-6f,
                                .kv_lora = LORA,
                                .rope_dim = ROPE,
                                .pages = good_pages(),
                                .rotary_dim = 2,
                                .rotary_theta = 1e4f,
                                .n_heads = HEADS,
                                .q_head_stride = NOPE + ROPE,
                                .q_rope_offset = NOPE};
    a->kv = fake_mat(ROWS, LORA + ROPE, LORA + ROPE, EBRO_F32);
    a->norm_weight = fake_vec(LORA, EBRO_F32);
    a->q = fake_mat(ROWS, HEADS * (NOPE + ROPE), HEADS * (NOPE + ROPE), EBRO_F32);
}

static inline void good_mla_prefill(union any_args *u) {
    ebro_mla_prefill_args *a = &u->mla_prefill;
    *a = (ebro_mla_prefill_args){.size = sizeof *a,
                                 .rows = good_rows(),
                                 .n_heads = HEADS,
                                 .nope_dim = NOPE,
                                 .rope_dim = ROPE,
                                 .v_dim = VDIM,
                                 .kv_lora = LORA,
                                 .scale = 0.3f,
                                 .pages = good_pages(),
                                 .token_begin = 3,
                                 .token_end = 7};
    a->q = fake_mat(ROWS, HEADS * (NOPE + ROPE), HEADS * (NOPE + ROPE), EBRO_F32);
    a->kv_b = fake_weight(HEADS * (NOPE + VDIM), LORA, EBRO_BF16);
    a->out = fake_mat(ROWS, HEADS * VDIM, HEADS * VDIM, EBRO_F32);
    a->lse = fake_mat(ROWS, HEADS, HEADS, EBRO_F32);
    want_scratch(EBRO_OP_MLA_PREFILL, 48, &a->scratch);
}

static inline void good_mla_decode(union any_args *u) {
    ebro_mla_decode_args *a = &u->mla_decode;
    *a = (ebro_mla_decode_args){.size = sizeof *a,
                                .rows = good_rows(),
                                .n_heads = HEADS,
                                .kv_lora = LORA,
                                .rope_dim = ROPE,
                                .scale = 0.3f,
                                .pages = good_pages(),
                                .token_begin = 2,
                                .token_end = 2};
    a->q = fake_mat(ROWS, HEADS * (LORA + ROPE), HEADS * (LORA + ROPE), EBRO_F32);
    a->out = fake_mat(ROWS, HEADS * LORA, HEADS * LORA, EBRO_F32);
    a->lse = fake_mat(ROWS, HEADS, HEADS, EBRO_F32);
    want_scratch(EBRO_OP_MLA_DECODE, 56, &a->scratch);
}

static inline void good_moe_route(union any_args *u) {
    ebro_moe_route_args *a = &u->moe_route;
    *a = (ebro_moe_route_args){
        .size = sizeof *a, .n_rows = ROWS, .n_experts = 5, .top_k = 2, .scaling = 2.446f};
    a->x = fake_mat(ROWS, 12, 12, EBRO_F32);
    a->gate = fake_weight(5, 12, EBRO_F32);
    a->bias = fake_vec(5, EBRO_F32);
    a->ids = fake_mat(ROWS, 2, 2, EBRO_I32);
    a->weights = fake_mat(ROWS, 2, 3, EBRO_F32);
    a->offsets = fake_span(6, 4);
    a->pairs = fake_span(ROWS * 2, 4);
    want_scratch(EBRO_OP_MOE_ROUTE, 40, &a->scratch);
}

static inline void good_moe_experts(union any_args *u) {
    ebro_moe_experts_args *a = &u->moe_experts;
    *a = (ebro_moe_experts_args){.size = sizeof *a,
                                 .n_rows = ROWS,
                                 .n_experts = 5,
                                 .top_k = 2,
                                 .in_dim = 64,
                                 .inner_dim = 32,
                                 .dtype = EBRO_MXFP4,
                                 .act = EBRO_ACT_SITU,
                                 .beta = 4.0f,
                                 .beta2 = 25.0f};
    a->x = fake_mat(ROWS, 64, 64, EBRO_F32);
    a->out = fake_mat(ROWS, 64, 68, EBRO_F32);
    a->tables = fake_span(15, 8);
    a->scale_tables = fake_span(15, 8);
    a->weights = fake_mat(ROWS, 2, 2, EBRO_F32);
    a->offsets = fake_span(6, 4);
    a->pairs = fake_span(ROWS * 2, 4);
    want_scratch(EBRO_OP_MOE_EXPERTS, 72, &a->scratch);
}

static inline void good_attn_res_mix(union any_args *u) {
    ebro_attn_res_mix_args *a = &u->attn_res_mix;
    *a = (ebro_attn_res_mix_args){
        .size = sizeof *a, .n_sources = 3, .n_rows = ROWS, .n_cols = 12, .eps = 1e-5f};
    for (int i = 0; i < 3; i++) a->sources[i] = fake_mat(ROWS, 12, 16, EBRO_F32);
    a->norm_weight = fake_vec(12, EBRO_BF16);
    a->proj = fake_vec(12, EBRO_BF16);
    a->out = fake_mat(ROWS, 12, 12, EBRO_F32);
    a->probs = fake_mat(ROWS, 3, 3, EBRO_F32);
}

static inline void good_state_copy(union any_args *u) {
    ebro_state_copy_args *a = &u->state_copy;
    *a = (ebro_state_copy_args){.size = sizeof *a, .n = 4, .bytes = 256};
    a->src = fake_span(4, 8);
    a->dst = fake_span(4, 8);
}

static inline void good_rows_copy(union any_args *u) {
    ebro_rows_copy_args *a = &u->rows_copy;
    *a = (ebro_rows_copy_args){
        .size = sizeof *a, .src_stride_bytes = 24, .dst_stride_bytes = 32, .row_bytes = 20, .n = 4};
    a->src = (ebro_span){fake_mem(7 + 3 * 24 + 20), 7};
    a->dst = (ebro_span){fake_mem(3 * 32 + 20), 0};
}

/* Both lists: what the row numbers are is the device's knowledge, so one row must fit. */
static inline void good_rows_copy_listed(union any_args *u) {
    good_rows_copy(u);
    ebro_rows_copy_args *a = &u->rows_copy;
    fake.n_mems = 0;
    a->src = (ebro_span){fake_mem(27), 7};
    a->dst = (ebro_span){fake_mem(20), 0};
    a->src_rows = fake_span(4, 4);
    a->dst_rows = fake_span(4, 4);
}

#endif
