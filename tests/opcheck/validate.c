/* validate.c: what runtime/ops refuses. Every op has a good call; every mutation of it breaks one
 * condition, must be refused with a text that names it, and must not reach the backend. */
#include "tests/opcheck/good_calls.h"

/* One member of an argument struct set to one bad value. */
struct mutation {
    const char *what;
    size_t offset, bytes;
    uint64_t value; /* integers, bits of a float, 0 for NULL */
    const char *part;
};

#define SET(op, member, v, text)                                         \
    {                                                                    \
#member " = " #v, offsetof(ebro_##op##_args, member),            \
            sizeof(((ebro_##op##_args *)0)->member), (uint64_t)(v), text \
    }

/* Floats by their bits. */
#define F_NAN 0x7fc00000u
#define F_INF 0x7f800000u
#define F_MINUS_1 0xbf800000u
#define F_ZERO 0u
#define U64_HUGE (UINT64_MAX / 2)

static const struct mutation embed[] = {
    SET(embed, ids.mem, 0, "ids.mem != NULL"),
    SET(embed, ids.offset, 18, "ids.offset % element size == 0"),
    SET(embed, ids.offset, 20, "ids inside its memory"),
    SET(embed, n_rows, 4, "ids inside its memory"),
    SET(embed, table.mem, 0, "table.mem != NULL"),
    SET(embed, table.offset, 25, "table.offset % element size == 0"),
    SET(embed, table.offset, 26, "table inside its memory"),
    SET(embed, table.stride, 11, "table.stride >= cols"),
    SET(embed, table.stride, U64_HUGE, "table inside its memory does not hold (its size overflows"),
    SET(embed, table.rows, 12, "table inside its memory"),
    SET(embed, table.rows, 0, "table.rows > 0 && .cols > 0"),
    SET(embed, table.cols, 0, "table.rows > 0 && .cols > 0"),
    SET(embed, table.dtype, EBRO_MXFP4, "table.dtype in {f32, f16, bf16}"),
    SET(embed, table.transposed, 1, "table.transposed == 0"),
    SET(embed, first_id, 0x80000000u - 10, "table.rows <= 0x80000000u - first_id"),
    SET(embed, first_id, 0x80000001u, "first_id <= INT32_MAX"),
    SET(embed, out.mem, 0, "out.mem != NULL"),
    SET(embed, out.offset, 34, "out.offset % element size == 0"),
    SET(embed, out.offset, 36, "out inside its memory"),
    SET(embed, out.stride, 11, "out.stride >= columns"),
    SET(embed, out.stride, 17, "out inside its memory"),
    SET(embed, out.dtype, EBRO_BF16, "out.dtype in {f32}"),
};
static const struct mutation sample[] = {
    SET(sample, vocab, 0, "vocab >= 1"),
    SET(sample, vocab, 0x80000000u, "vocab <= INT32_MAX"),
    SET(sample, logits.mem, 0, "logits.mem != NULL"),
    SET(sample, logits.dtype, EBRO_F16, "logits.dtype in {f32}"),
    SET(sample, logits.stride, 10, "logits.stride >= columns"),
    SET(sample, n_rows, 4, "logits inside its memory"),
    SET(sample, params.mem, 0, "params.mem != NULL"),
    SET(sample, params.offset, 20, "params.offset % element size == 0"),
    SET(sample, params.offset, 24, "params inside its memory"),
    SET(sample, ids.mem, 0, "ids.mem != NULL"),
    SET(sample, ids.offset, 17, "ids.offset % element size == 0"),
    SET(sample, ids.offset, 20, "ids inside its memory"),
    SET(sample, adjusts.mem, 0, "adjusts.mem != NULL"),
    SET(sample, adjusts.offset, 18, "adjusts.offset % element size == 0"),
    SET(sample, adjusts.offset, 20, "adjusts inside its memory"),
    SET(sample, n_adjusts, 6, "adjusts inside its memory"),
    SET(sample, n_adjusts, UINT32_MAX, "adjusts inside its memory"),
    SET(sample, adjust_offsets.mem, 0, "adjust_offsets.mem != NULL"),
    SET(sample, adjust_offsets.offset, 17, "adjust_offsets.offset % element size == 0"),
    SET(sample, adjust_offsets.offset, 20, "adjust_offsets inside its memory"),
    SET(sample, scratch.mem, 0, "scratch.mem != NULL"),
    SET(sample, scratch.offset, 24, "scratch as large as eb_op_scratch says"),
};
static const struct mutation rms_norm[] = {
    SET(rms_norm, n_cols, 0, "n_cols > 0"),
    SET(rms_norm, eps, F_NAN, "isfinite(eps) && eps >= 0"),
    SET(rms_norm, eps, F_MINUS_1, "isfinite(eps) && eps >= 0"),
    SET(rms_norm, x.mem, 0, "x.mem != NULL"),
    SET(rms_norm, x.dtype, EBRO_F16, "x.dtype in {f32}"),
    SET(rms_norm, x.dtype, -1, "x.dtype in {f32}"),
    SET(rms_norm, x.dtype, 77, "x.dtype in {f32}"),
    SET(rms_norm, x.stride, 11, "x.stride >= columns"),
    SET(rms_norm, x.stride, U64_HUGE, "x inside its memory does not hold (its size overflows"),
    SET(rms_norm, x.offset, UINT64_MAX - 3,
        "x inside its memory does not hold (its size overflows"),
    SET(rms_norm, out.mem, 0, "out.mem != NULL"),
    SET(rms_norm, out.offset, 33, "out.offset % element size == 0"),
    SET(rms_norm, gate.stride, 11, "gate.stride >= columns"),
    SET(rms_norm, gate.dtype, EBRO_BF16, "gate.dtype in {f32}"),
    SET(rms_norm, weight.dtype, EBRO_I32, "weight.dtype in {f32, f16, bf16}"),
    SET(rms_norm, weight.offset, 9, "weight.offset % element size == 0"),
    SET(rms_norm, weight.offset, 10, "weight inside its memory"),
    SET(rms_norm, n_rows, 4, "x inside its memory"),
};
static const struct mutation linear[] = {
    SET(linear, n_items, 0, "n_items >= 1"),
    SET(linear, n_items, EBRO_MAX_LINEAR + 1, "n_items <= EBRO_MAX_LINEAR"),
    SET(linear, n_batch, 0, "n_batch >= 1"),
    SET(linear, x.mem, 0, "x.mem != NULL"),
    SET(linear, x.dtype, EBRO_BF16, "x.dtype in {f32}"),
    SET(linear, x.stride, 11, "x.stride >= columns"),
    SET(linear, items[0].reserved, 1, "items[0].reserved == 0"),
    SET(linear, items[0].w.mem, 0, "items[0].w.mem != NULL"),
    SET(linear, items[0].w.dtype, EBRO_I32, "items[0].w.dtype in {f32, f16, bf16, mxfp4}"),
    SET(linear, items[0].w.cols, 11, "inputs == shared_inputs"),
    SET(linear, items[0].w.stride, 11, "items[0].w.stride >= cols"),
    SET(linear, items[0].w.offset, 27, "items[0].w.offset % element size == 0"),
    SET(linear, items[1].w.transposed, 0, "inputs == shared_inputs"),
    SET(linear, items[1].w.rows, 11, "inputs == shared_inputs"),
    SET(linear, items[1].w.dtype, EBRO_F64, "items[1].w.dtype in {f32, f16, bf16, mxfp4}"),
    SET(linear, items[1].out.mem, 0, "items[1].out.mem != NULL"),
    SET(linear, items[1].out.stride, 6, "items[1].out.stride >= columns"),
    SET(linear, items[1].out.dtype, EBRO_F16, "items[1].out.dtype in {f32}"),
    SET(linear, scratch.mem, 0, "scratch.mem != NULL"),
    SET(linear, scratch.offset, 12, "scratch.offset % element size == 0"),
    SET(linear, scratch.offset, 24, "scratch as large as eb_op_scratch says"),
    SET(linear, scratch.offset, UINT64_MAX - 7, "scratch as large as eb_op_scratch says"),
};
static const struct mutation linear_mxfp4[] = {
    SET(linear, items[0].w.cols, 48, "items[0].w.cols % 32 == 0"),
    SET(linear, items[0].w.transposed, 1, "items[0].w.transposed == 0"),
    SET(linear, items[0].w.stride, 96, "items[0].w.stride == cols"),
    SET(linear, items[0].w.offset, 25, "items[0].w inside its memory"),
    SET(linear, items[0].w.scale_mem, 0, "items[0].w.scale_mem != NULL"),
    SET(linear, items[0].w.scale_offset, 6, "items[0].w scales inside scale_mem"),
    SET(linear, items[0].w.scale_offset, UINT64_MAX, "items[0].w scales inside scale_mem"),
    SET(linear, n_batch, 2, "items[0].w not batched"),
};
static const struct mutation linear_batch[] = {
    SET(linear, x_batch_elements, 13, "x inside its memory"),
    SET(linear, items[0].w_batch_bytes, 241, "items[0].w batch bytes % element size == 0"),
    SET(linear, items[0].w_batch_bytes, 242, "items[0].w inside its memory"),
    SET(linear, items[0].w_batch_bytes, UINT64_MAX - 1, "its size overflows"),
    SET(linear, items[0].out_batch_elements, 11, "items[0].out inside its memory"),
    SET(linear, n_batch, 3, "items[0].w inside its memory"),
};
static const struct mutation act_mul[] = {
    SET(act_mul, kind, 3, "kind <= EBRO_ACT_SIGMOID"),
    SET(act_mul, kind, -1, "kind >= EBRO_ACT_SILU"),
    SET(act_mul, beta, F_ZERO, "isfinite(beta) && beta > 0"),
    SET(act_mul, beta2, F_INF, "isfinite(beta2) && beta2 > 0"),
    SET(act_mul, n_cols, 0, "n_cols > 0"),
    SET(act_mul, gate_group, 0, "gate_group > 0"),
    SET(act_mul, gate_group, 5, "n_cols % gate_group == 0"),
    SET(act_mul, gate_group, 3, "gate.stride >= columns"),
    SET(act_mul, gate.mem, 0, "gate.mem != NULL"),
    SET(act_mul, up.mem, 0, "up.mem != NULL"),
    SET(act_mul, up.stride, 11, "up.stride >= columns"),
    SET(act_mul, out.mem, 0, "out.mem != NULL"),
    SET(act_mul, out.dtype, EBRO_I64, "out.dtype in {f32}"),
    SET(act_mul, n_rows, 4, "gate inside its memory"),
};

/* Conditions on ebro_rows, which all sequence ops share. */
#define SET_ROWS(op)                                                       \
    SET(op, rows.row_offsets.mem, 0, "rows.row_offsets.mem != NULL"),      \
        SET(op, rows.row_offsets.offset, 20, "rows.row_offsets inside"),   \
        SET(op, rows.row_offsets.offset, 13, "rows.row_offsets.offset %"), \
        SET(op, rows.n_seqs, 0, "rows.n_seqs > 0"),                        \
        SET(op, rows.n_seqs, 3, "rows.row_offsets inside"),                \
        SET(op, rows.max_rows, 0, "rows.max_rows > 0"),                    \
        SET(op, rows.max_rows, 4, "rows.max_rows <= rows.n_rows"),         \
        SET(op, rows.n_rows, 0x80000000u, "rows.n_rows <= INT32_MAX")

/* Conditions on an ebro_state_io called `io` with `units` units of unit_bytes in blocks of 2. */
#define SET_STATE(op, io, unit_size, stride)                                                  \
    SET(op, io.state_in.mem, 0, #io ".state_in.mem != NULL"),                                 \
        SET(op, io.state_in.offset, 20, #io ".state_in inside its memory"),                   \
        SET(op, io.state_out.mem, 0, #io ".state_out.mem != NULL"),                           \
        SET(op, io.state_out.offset, 18, #io ".state_out.offset % element size == 0"),        \
        SET(op, io.emit_rows.mem, 0, #io ".emit_rows.mem != NULL"),                           \
        SET(op, io.emit_slots.mem, 0, #io ".emit_slots.mem != NULL"),                         \
        SET(op, io.emit_slots.offset, 20, #io ".emit_slots inside its memory"),               \
        SET(op, io.n_emit, 3, #io ".emit_rows inside its memory"),                            \
        SET(op, io.n_emit, 4, #io ".n_emit <= rows.n_rows"),                                  \
        SET(op, io.region.table.mem, 0, #io ".region.table.mem != NULL"),                     \
        SET(op, io.region.table.offset, 20, #io ".region.table.offset % element size == 0"),  \
        SET(op, io.region.table.offset, 24, #io ".region.table inside its memory"),           \
        SET(op, io.region.dtype, EBRO_F16, #io ".region.dtype in {f32"),                      \
        SET(op, io.region.units_per_block, 0, #io ".region.units_per_block > 0"),             \
        SET(op, io.region.units_per_block, 1, #io ".region.table_stride >= "),                \
        SET(op, io.region.first_block, 2, #io ".region.table_stride >= "),                    \
        SET(op, io.region.first_block, UINT32_MAX, #io ".region.table_stride >= "),           \
        SET(op, io.region.first_unit, 3, #io ".region.table_stride >= "),                     \
        SET(op, io.region.table_stride, (stride)-1, #io ".region.table_stride >= "),          \
        SET(op, io.region.unit_bytes, (unit_size)-4, #io ".region.unit_bytes >= unit_needs"), \
        SET(op, io.region.unit_bytes, (unit_size) + 1, #io ".region.unit_bytes % size == 0"), \
        SET(op, io.region.block_offset, 65, #io ".region.block_offset % size == 0")

#define SET_GATE(op)                                                                              \
    SET(op, gate.n_heads, 0, "gate.n_heads > 0"), SET(op, gate.head_dim, 0, "gate.head_dim > 0"), \
        SET(op, gate.head_dim, 12, "gate.head_dim % 8 == 0 does not hold (head_dim = 12)"),       \
        SET(op, gate.head_dim, 0x80000000u, "gate.head_dim <= UINT32_MAX / gate.n_heads"),        \
        SET(op, gate.g_raw.mem, 0, "gate.g_raw.mem != NULL"),                                     \
        SET(op, gate.g_raw.stride, CHANNELS - 1, "gate.g_raw.stride >= columns"),                 \
        SET(op, gate.beta_raw.mem, 0, "gate.beta_raw.mem != NULL"),                               \
        SET(op, gate.beta_raw.dtype, EBRO_BF16, "gate.beta_raw.dtype in {f32}"),                  \
        SET(op, gate.a_log.mem, 0, "gate.a_log.mem != NULL"),                                     \
        SET(op, gate.a_log.offset, 12, "gate.a_log inside its memory"),                           \
        SET(op, gate.dt_bias.mem, 0, "gate.dt_bias.mem != NULL"),                                 \
        SET(op, gate.dt_bias.dtype, EBRO_MXFP4, "gate.dt_bias.dtype in {f32, f16, bf16}"),        \
        SET(op, gate.form, 2, "gate.form == EBRO_GATE_BOUNDED"),                                  \
        SET(op, gate.lower_bound, F_ZERO, "gate.lower_bound < 0"),                                \
        SET(op, gate.lower_bound, F_NAN, "isfinite(gate.lower_bound)"),                           \
        SET(op, gate.l2_eps, F_MINUS_1, "gate.l2_eps >= 0")

static const struct mutation kda_conv[] = {
    SET_ROWS(kda_conv),
    SET_STATE(kda_conv, state, 3 * CHANNELS * 4, 3),
    SET(kda_conv, state.region.dtype, EBRO_BF16, "state.region.dtype in {f32}"),
    SET(kda_conv, n_channels, 0, "n_channels > 0"),
    SET(kda_conv, n_channels, CHANNELS + 1, "x[0] inside its memory"),
    SET(kda_conv, x[1].mem, 0, "x[1].mem != NULL"),
    SET(kda_conv, x[2].dtype, EBRO_F16, "x[2].dtype in {f32}"),
    SET(kda_conv, out[0].mem, 0, "out[0].mem != NULL"),
    SET(kda_conv, out[2].stride, CHANNELS - 1, "out[2].stride >= columns"),
    SET(kda_conv, weight[1].mem, 0, "weight[1].mem != NULL"),
    SET(kda_conv, weight[2].offset, 10, "weight[2] inside its memory"),
    SET(kda_conv, rows.n_rows, 4, "x[0] inside its memory"),
};
static const struct mutation kda_prep[] = {
    SET_ROWS(kda_prep),
    SET_GATE(kda_prep),
    SET(kda_prep, q.mem, 0, "q.mem != NULL"),
    SET(kda_prep, k.stride, CHANNELS - 1, "k.stride >= columns"),
    SET(kda_prep, v.dtype, EBRO_BF16, "v.dtype in {f32}"),
    SET(kda_prep, emit_rows.mem, 0, "emit_rows.mem != NULL"),
    SET(kda_prep, n_emit, 3, "emit_rows inside its memory"),
    SET(kda_prep, n_emit, 4, "n_emit <= rows.n_rows"),
    SET(kda_prep, work.mem, 0, "work.mem != NULL"),
    SET(kda_prep, work.offset, 24, "work as large as eb_op_scratch says"),
    SET(kda_prep, work.offset, 4, "work.offset % element size == 0"),
};
static const struct mutation kda_recur[] = {
    SET_ROWS(kda_recur),
    SET_STATE(kda_recur, state, DIM *DIM * 2, 3),
    SET(kda_recur, n_heads, 0, "n_heads > 0"),
    SET(kda_recur, head_dim, 0, "head_dim > 0"),
    SET(kda_recur, head_dim, 4, "head_dim % 8 == 0 does not hold (head_dim = 4)"),
    SET(kda_recur, n_heads, UINT32_MAX, "head_dim <= UINT32_MAX / n_heads"),
    SET(kda_recur, state.region.dtype, EBRO_F32, "state.region.unit_bytes >= unit_needs"),
    SET(kda_recur, v.mem, 0, "v.mem != NULL"),
    SET(kda_recur, v.dtype, EBRO_F16, "v.dtype in {f32}"),
    SET(kda_recur, out.mem, 0, "out.mem != NULL"),
    SET(kda_recur, out.stride, CHANNELS - 1, "out.stride >= columns"),
    SET(kda_recur, work.mem, 0, "work.mem != NULL"),
    SET(kda_recur, work.offset, 24, "work as large as eb_op_scratch says"),
};
static const struct mutation kda_step[] = {
    SET_ROWS(kda_step),
    SET_GATE(kda_step),
    SET_STATE(kda_step, windows, 3 * CHANNELS * 4, 3),
    SET_STATE(kda_step, state, DIM *DIM * 4, 3),
    SET(kda_step, windows.region.dtype, EBRO_BF16, "windows.region.dtype in {f32}"),
    SET(kda_step, x[0].mem, 0, "x[0].mem != NULL"),
    SET(kda_step, x[2].stride, CHANNELS - 1, "x[2].stride >= columns"),
    SET(kda_step, conv_weight[1].mem, 0, "conv_weight[1].mem != NULL"),
    SET(kda_step, conv_weight[2].dtype, EBRO_U8, "conv_weight[2].dtype in {f32, f16, bf16}"),
    SET(kda_step, out_gate.mem, 0, "out_gate.mem != NULL"),
    SET(kda_step, norm_weight.mem, 0, "norm_weight.mem != NULL"),
    SET(kda_step, norm_eps, F_INF, "isfinite(norm_eps)"),
    SET(kda_step, out.mem, 0, "out.mem != NULL"),
    SET(kda_step, out.dtype, EBRO_F64, "out.dtype in {f32}"),
    SET(kda_step, scratch.mem, 0, "scratch.mem != NULL"),
    SET(kda_step, scratch.offset, 24, "scratch as large as eb_op_scratch says"),
};

#define SET_PAGES(op)                                                                   \
    SET(op, pages.table.mem, 0, "pages.table.mem != NULL"),                             \
        SET(op, pages.table.offset, 12, "pages.table.offset % element size == 0"),      \
        SET(op, pages.table.offset, 24, "pages.table inside its memory"),               \
        SET(op, pages.table_stride, 2, "pages.max_context <= n_tokens"),                \
        SET(op, pages.table_stride, 4, "pages.table inside its memory"),                \
        SET(op, pages.page_tokens, 0, "pages.page_tokens > 0"),                         \
        SET(op, pages.page_tokens, 3, "pages.max_context <= n_tokens"),                 \
        SET(op, pages.max_context, 13, "pages.max_context <= n_tokens"),                \
        SET(op, pages.max_context, 0, "pages.max_context > 0"),                         \
        SET(op, pages.layer_offset, 1, "pages.layer_offset % size == 0"),               \
        SET(op, pages.row_stride, LORA + ROPE - 1, "pages.row_stride >= row_elements"), \
        SET(op, pages.dtype, EBRO_MXFP4, "pages.dtype in {f32, f16, bf16}"),            \
        SET(op, pages.context.mem, 0, "pages.context.mem != NULL"),                     \
        SET(op, pages.context.offset, 20, "pages.context inside its memory")

static const struct mutation mla_append[] = {
    SET_ROWS(mla_append),
    SET_PAGES(mla_append),
    SET(mla_append, kv_lora, 0, "kv_lora > 0"),
    SET(mla_append, kv_lora, LORA + 1, "kv.stride >= columns"),
    SET(mla_append, norm_eps, F_NAN, "isfinite(norm_eps)"),
    SET(mla_append, kv.mem, 0, "kv.mem != NULL"),
    SET(mla_append, kv.dtype, EBRO_BF16, "kv.dtype in {f32}"),
    SET(mla_append, norm_weight.mem, 0, "norm_weight.mem != NULL"),
    SET(mla_append, rotary_dim, 6, "rotary_dim <= rope_dim"),
    SET(mla_append, rotary_dim, 3, "rotary_dim % 2 == 0"),
    SET(mla_append, rotary_theta, F_ZERO, "rotary_theta > 0"),
    SET(mla_append, n_heads, 0, "n_heads > 0"),
    SET(mla_append, n_heads, HEADS + 1, "q.stride >= columns"),
    SET(mla_append, q_rope_offset, NOPE + ROPE - 1, "last <= q_head_stride"),
    SET(mla_append, q_rope_offset, UINT32_MAX, "last <= q_head_stride"),
    SET(mla_append, q.dtype, EBRO_F16, "q.dtype in {f32}"),
};
static const struct mutation mla_prefill[] = {
    SET_ROWS(mla_prefill),
    SET_PAGES(mla_prefill),
    SET(mla_prefill, n_heads, 0, "n_heads > 0"),
    SET(mla_prefill, nope_dim, 0, "nope_dim > 0"),
    SET(mla_prefill, v_dim, 0, "v_dim > 0"),
    SET(mla_prefill, kv_lora, 0, "kv_lora > 0"),
    SET(mla_prefill, scale, F_NAN, "isfinite(scale)"),
    SET(mla_prefill, token_begin, 8, "token_begin <= token_end"),
    SET(mla_prefill, q.mem, 0, "q.mem != NULL"),
    SET(mla_prefill, q.stride, HEADS *(NOPE + ROPE) - 1, "q.stride >= columns"),
    SET(mla_prefill, kv_b.mem, 0, "kv_b.mem != NULL"),
    SET(mla_prefill, kv_b.cols, LORA - 1, "kv_b.cols == kv_lora"),
    SET(mla_prefill, kv_b.rows, HEADS *(NOPE + VDIM) - 1, "kv_b.rows % n_heads == 0"),
    SET(mla_prefill, kv_b.rows, HEADS *(NOPE + VDIM - 1), "kv_b.rows / n_heads == head_rows"),
    SET(mla_prefill, kv_b.transposed, 1, "kv_b.transposed == 0"),
    SET(mla_prefill, kv_b.dtype, EBRO_U8, "kv_b.dtype in {f32, f16, bf16, mxfp4}"),
    SET(mla_prefill, out.mem, 0, "out.mem != NULL"),
    SET(mla_prefill, out.offset, 36, "out inside its memory"),
    SET(mla_prefill, lse.stride, 1, "lse.stride >= columns"),
    SET(mla_prefill, lse.dtype, EBRO_F64, "lse.dtype in {f32}"),
    SET(mla_prefill, scratch.mem, 0, "scratch.mem != NULL"),
    SET(mla_prefill, scratch.offset, 24, "scratch as large as eb_op_scratch says"),
};
static const struct mutation mla_decode[] = {
    SET_ROWS(mla_decode),
    SET_PAGES(mla_decode),
    SET(mla_decode, n_heads, 0, "n_heads > 0"),
    SET(mla_decode, kv_lora, 0, "kv_lora > 0"),
    SET(mla_decode, scale, F_INF, "isfinite(scale)"),
    SET(mla_decode, token_begin, 3, "token_begin <= token_end"),
    SET(mla_decode, token_end, 1, "token_begin <= token_end"),
    SET(mla_decode, q.mem, 0, "q.mem != NULL"),
    SET(mla_decode, q.dtype, EBRO_BF16, "q.dtype in {f32}"),
    SET(mla_decode, out.mem, 0, "out.mem != NULL"),
    SET(mla_decode, out.stride, HEADS *LORA - 1, "out.stride >= columns"),
    SET(mla_decode, lse.offset, 33, "lse.offset % element size == 0"),
    SET(mla_decode, scratch.mem, 0, "scratch.mem != NULL"),
    SET(mla_decode, scratch.offset, 24, "scratch as large as eb_op_scratch says"),
};
static const struct mutation moe_route[] = {
    SET(moe_route, n_experts, 0, "n_experts > 0"),
    SET(moe_route, n_experts, 4, "gate.rows == n_experts"),
    SET(moe_route, n_experts, 6, "offsets inside its memory"),
    SET(moe_route, top_k, 0, "top_k >= 1"),
    SET(moe_route, top_k, 6, "top_k <= n_experts"),
    SET(moe_route, n_rows, 0x40000000u, "n_pairs <= INT32_MAX"),
    SET(moe_route, scaling, F_NAN, "isfinite(scaling)"),
    SET(moe_route, x.mem, 0, "x.mem != NULL"),
    SET(moe_route, x.stride, 11, "x.stride >= columns"),
    SET(moe_route, gate.mem, 0, "gate.mem != NULL"),
    SET(moe_route, gate.rows, 4, "gate.rows == n_experts"),
    SET(moe_route, gate.transposed, 1, "gate.transposed == 0"),
    SET(moe_route, bias.dtype, EBRO_I32, "bias.dtype in {f32, f16, bf16}"),
    SET(moe_route, bias.offset, 12, "bias inside its memory"),
    SET(moe_route, ids.mem, 0, "ids.mem != NULL"),
    SET(moe_route, ids.dtype, EBRO_F32, "ids.dtype in {i32}"),
    SET(moe_route, ids.stride, 1, "ids.stride >= columns"),
    SET(moe_route, weights.mem, 0, "weights.mem != NULL"),
    SET(moe_route, weights.dtype, EBRO_I32, "weights.dtype in {f32}"),
    SET(moe_route, offsets.mem, 0, "offsets.mem != NULL"),
    SET(moe_route, pairs.mem, 0, "pairs.mem != NULL"),
    SET(moe_route, pairs.offset, 20, "pairs inside its memory"),
    SET(moe_route, scratch.mem, 0, "scratch.mem != NULL"),
    SET(moe_route, scratch.offset, 24, "scratch as large as eb_op_scratch says"),
};
static const struct mutation moe_experts[] = {
    SET(moe_experts, n_experts, 0, "n_experts > 0"),
    SET(moe_experts, n_experts, 6, "offsets inside its memory"),
    SET(moe_experts, top_k, 0, "top_k >= 1"),
    SET(moe_experts, top_k, 6, "top_k <= n_experts"),
    SET(moe_experts, in_dim, 0, "in_dim > 0"),
    SET(moe_experts, in_dim, 48, "in_dim % 32 == 0"),
    SET(moe_experts, inner_dim, 0, "inner_dim > 0"),
    SET(moe_experts, inner_dim, 16, "inner_dim % 32 == 0"),
    SET(moe_experts, dtype, EBRO_U8, "dtype <= EBRO_MXFP4"),
    SET(moe_experts, dtype, -1, "dtype >= EBRO_F32"),
    SET(moe_experts, act, EBRO_ACT_SIGMOID, "act == EBRO_ACT_SITU"),
    SET(moe_experts, beta, F_NAN, "isfinite(beta)"),
    SET(moe_experts, beta2, F_MINUS_1, "beta2 > 0"),
    SET(moe_experts, tables.mem, 0, "tables.mem != NULL"),
    SET(moe_experts, tables.offset, 20, "tables.offset % element size == 0"),
    SET(moe_experts, tables.offset, 24, "tables inside its memory"),
    SET(moe_experts, scale_tables.mem, 0, "scale_tables.mem != NULL"),
    SET(moe_experts, scale_tables.offset, 24, "scale_tables inside its memory"),
    SET(moe_experts, x.mem, 0, "x.mem != NULL"),
    SET(moe_experts, out.mem, 0, "out.mem != NULL"),
    SET(moe_experts, out.stride, 63, "out.stride >= columns"),
    SET(moe_experts, weights.mem, 0, "weights.mem != NULL"),
    SET(moe_experts, offsets.mem, 0, "offsets.mem != NULL"),
    SET(moe_experts, pairs.mem, 0, "pairs.mem != NULL"),
    SET(moe_experts, scratch.mem, 0, "scratch.mem != NULL"),
    SET(moe_experts, scratch.offset, 24, "scratch as large as eb_op_scratch says"),
};
static const struct mutation attn_res_mix[] = {
    SET(attn_res_mix, n_sources, 0, "n_sources >= 1"),
    SET(attn_res_mix, n_sources, EBRO_MAX_SOURCES + 1, "n_sources <= EBRO_MAX_SOURCES"),
    SET(attn_res_mix, n_sources, 4, "probs.stride >= columns"),
    SET(attn_res_mix, n_cols, 0, "n_cols > 0"),
    SET(attn_res_mix, eps, F_MINUS_1, "eps >= 0"),
    SET(attn_res_mix, sources[0].mem, 0, "sources[0].mem != NULL"),
    SET(attn_res_mix, sources[1].stride, 11, "sources[1].stride >= columns"),
    SET(attn_res_mix, sources[2].dtype, EBRO_BF16, "sources[2].dtype in {f32}"),
    SET(attn_res_mix, norm_weight.mem, 0, "norm_weight.mem != NULL"),
    SET(attn_res_mix, proj.mem, 0, "proj.mem != NULL"),
    SET(attn_res_mix, proj.offset, 10, "proj inside its memory"),
    SET(attn_res_mix, out.mem, 0, "out.mem != NULL"),
    SET(attn_res_mix, probs.dtype, EBRO_F16, "probs.dtype in {f32}"),
};
static const struct mutation state_copy[] = {
    SET(state_copy, src.mem, 0, "src.mem != NULL"),
    SET(state_copy, src.offset, 20, "src.offset % element size == 0"),
    SET(state_copy, src.offset, 24, "src inside its memory"),
    SET(state_copy, dst.mem, 0, "dst.mem != NULL"),
    SET(state_copy, dst.offset, 24, "dst inside its memory"),
    SET(state_copy, n, 5, "src inside its memory"),
};
static const struct mutation rows_copy[] = {
    SET(rows_copy, src.mem, 0, "src.mem != NULL"),
    SET(rows_copy, src.offset, 8, "src inside its memory"),
    SET(rows_copy, src_stride_bytes, 19, "stride >= row_bytes does not hold (src_stride_bytes"),
    SET(rows_copy, src_stride_bytes, U64_HUGE, "4 rows overflow 64 bits"),
    SET(rows_copy, dst.mem, 0, "dst.mem != NULL"),
    SET(rows_copy, dst.offset, 1, "dst inside its memory"),
    SET(rows_copy, dst_stride_bytes, 19, "stride >= row_bytes does not hold (dst_stride_bytes"),
    SET(rows_copy, row_bytes, 21, "src inside its memory"),
    SET(rows_copy, n, 5, "src inside its memory"),
};
static const struct mutation rows_copy_listed[] = {
    SET(rows_copy, src.offset, 8, "src inside its memory"),
    SET(rows_copy, dst.offset, 1, "dst inside its memory"),
    SET(rows_copy, src_rows.offset, 18, "src_rows.offset % element size == 0"),
    SET(rows_copy, src_rows.offset, 20, "src_rows inside its memory"),
    SET(rows_copy, src_rows.mem, 0, "src inside its memory"),
    SET(rows_copy, dst_rows.offset, 20, "dst_rows inside its memory"),
    SET(rows_copy, dst_rows.mem, 0, "dst inside its memory"),
};

static const struct test_case {
    const char *name;
    ebro_op op;
    void (*make)(union any_args *u);
    size_t args_bytes;
    const struct mutation *mutations;
    size_t n_mutations;
} cases[] = {
/* Each op has mutations of its name above: one without does not compile, whatever the compiler says
 * of that name, which may be an argument's elsewhere. */
#define CASE(N, member) CASE_OF(N, member, member)
#define CASE_OF(N, variant, member)                \
    {#variant,       EBRO_OP_##N,                  \
     good_##variant, sizeof(ebro_##member##_args), \
     variant,        sizeof variant / sizeof variant[0]},
    EBRO_OPS(CASE) CASE_OF(LINEAR, linear_mxfp4, linear) CASE_OF(LINEAR, linear_batch, linear)
        CASE_OF(ROWS_COPY, rows_copy_listed, rows_copy)};
enum { N_CASES = sizeof cases / sizeof cases[0] };

/* A device, a stream and a good call. */
struct bench {
    ebro_backend be;
    struct ebro_device device;
    struct eb_stream stream;
    union any_args args;
};

static void prepare(struct bench *b, const struct test_case *tc) {
    b->be = fake_table();
    b->stream = fake_open(&b->device, &b->be);
    memset(&b->args, 0, sizeof b->args);
    tc->make(&b->args);
}

/* True when the call is refused with `part` in its text and the backend was left alone. */
static bool is_refused(struct bench *b, const struct test_case *tc, const char *what,
                       const void *args, const char *part) {
    ebro_error err = {0};
    int32_t st = fake_call(tc->op, &b->stream, args, &err);
    size_t n = strlen(eb_op_name(tc->op));
    bool named = strncmp(err.text, eb_op_name(tc->op), n) == 0 && err.text[n] == ':';
    if (st == EBRO_INVALID && err.status == st && named && strstr(err.text, part) != NULL &&
        fake.n_calls == 0)
        return true;
    print_error("%s, %s: wanted INVALID with \"%s\" and no call, got %s \"%s\" and %u calls\n",
                tc->name, what, part, ebro_status_name(st), err.text, (unsigned)fake.n_calls);
    return false;
}

static void expect_refused(struct bench *b, const struct test_case *tc, const char *what,
                           const void *args, const char *part) {
    assert_true(is_refused(b, tc, what, args, part));
}

static void test_good_call_is_dispatched_once(void **state) {
    (void)state;
    bool seen[EBRO_N_OPS] = {false};
    for (size_t i = 0; i < N_CASES; i++) {
        struct bench b;
        prepare(&b, &cases[i]);
        ebro_error err = {0};
        test_ok(fake_call(cases[i].op, &b.stream, &b.args, &err), &err);
        assert_int_equal(fake.n_calls, 1);
        assert_int_equal(fake.ops[0], cases[i].op);
        assert_ptr_equal(fake.given[0], &b.args);
        assert_ptr_equal(fake.streams[0], b.stream.impl);
        seen[cases[i].op] = true;
    }
    for (int op = 0; op < EBRO_N_OPS; op++) assert_true(seen[op]);
}

static void mutate(union any_args *u, const struct mutation *m) {
    char *at = (char *)u + m->offset;
    if (m->bytes == 4) {
        uint32_t v = (uint32_t)m->value;
        memcpy(at, &v, sizeof v);
    } else {
        assert_int_equal(m->bytes, 8);
        memcpy(at, &m->value, sizeof m->value);
    }
}

static void test_every_broken_condition_is_refused(void **state) {
    (void)state;
    size_t n = 0, n_wrong = 0;
    for (size_t i = 0; i < N_CASES; i++) {
        for (size_t j = 0; j < cases[i].n_mutations; j++, n++) {
            struct bench b;
            prepare(&b, &cases[i]);
            const struct mutation *m = &cases[i].mutations[j];
            mutate(&b.args, m);
            if (!is_refused(&b, &cases[i], m->what, &b.args, m->part)) n_wrong++;
        }
    }
    print_message("%zu mutations over %d ops\n", n, (int)EBRO_N_OPS);
    assert_int_equal(n_wrong, 0);
}

/* Good calls use exactly what they are given, so every memory is needed to its last byte. */
static void test_every_memory_one_byte_short_is_refused(void **state) {
    (void)state;
    size_t n = 0;
    for (size_t i = 0; i < N_CASES; i++) {
        struct bench b;
        prepare(&b, &cases[i]);
        uint32_t n_mems = fake.n_mems;
        for (uint32_t m = 0; m < n_mems; m++, n++) {
            char what[64];
            snprintf(what, sizeof what, "memory %u one byte short", (unsigned)m);
            fake.mems[m].bytes--;
            expect_refused(&b, &cases[i], what, &b.args, " does not hold");
            fake.mems[m].bytes++;
        }
        ebro_error err = {0};
        test_ok(fake_call(cases[i].op, &b.stream, &b.args, &err), &err);
    }
    print_message("%zu memories\n", n);
}

static void test_absent_and_small_structs_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        struct bench b;
        prepare(&b, &cases[i]);
        expect_refused(&b, &cases[i], "no args", NULL, "args != NULL");
        b.args.size = cases[i].args_bytes - 1;
        expect_refused(&b, &cases[i], "small size", &b.args, "size >= args_bytes");
        b.args.size = 0;
        expect_refused(&b, &cases[i], "no size", &b.args, "size >= args_bytes");
        b.args.size = cases[i].args_bytes + 8; /* a caller that knows more members */
        ebro_error err = {0};
        test_ok(fake_call(cases[i].op, &b.stream, &b.args, &err), &err);
        struct eb_stream closed = {0};
        struct bench c = b;
        c.stream = closed;
        fake.n_calls = 0;
        expect_refused(&c, &cases[i], "closed stream", &c.args, "device != NULL");
        test_fails(fake_call(cases[i].op, NULL, &b.args, &err), EBRO_INVALID, &err, "s != NULL");
        /* An error that nobody wants to read is still refused. */
        assert_int_equal(fake_call(cases[i].op, &b.stream, NULL, NULL), EBRO_INVALID);
        assert_int_equal(fake.n_calls, 0);
    }
}

static const struct test_case *find_case(const char *name) {
    for (size_t i = 0; i < N_CASES; i++)
        if (strcmp(cases[i].name, name) == 0) return &cases[i];
    fail_msg("no case %s", name);
    return NULL;
}

static void expect_accepted(struct bench *b, const struct test_case *tc) {
    ebro_error err = {0};
    fake.n_calls = 0;
    test_ok(fake_call(tc->op, &b->stream, &b->args, &err), &err);
    assert_int_equal(fake.n_calls, 1);
    fake.n_calls = 0;
}

/* Conditions that no single member breaks. */
static void test_members_that_break_a_condition_together(void **state) {
    (void)state;
    const struct test_case *recur = find_case("kda_recur"), *prefill = find_case("mla_prefill");
    struct bench b;
    prepare(&b, recur); /* a backend may want more work for kda_recur than for kda_prep */
    fake.scratch[EBRO_OP_KDA_RECUR] = 136;
    expect_refused(&b, recur, "more work", &b.args, "work as large as eb_op_scratch says");
    fake.scratch[EBRO_OP_KDA_RECUR] = 128;
    expect_accepted(&b, recur);

    prepare(&b, prefill);
    b.args.mla_prefill.n_heads = b.args.mla_prefill.nope_dim = UINT32_MAX;
    expect_refused(&b, prefill, "columns beyond 64 bits", &b.args, "columns overflow 64 bits");
}

/* ---- overlap ---------------------------------------------------------------------------- */

static void test_conv_output_must_leave_its_input_alone(void **state) {
    (void)state;
    const struct test_case *tc = find_case("kda_conv");
    struct bench b;
    prepare(&b, tc);
    ebro_kda_conv_args *a = &b.args.kda_conv;
    a->out[1] = a->x[1];
    expect_refused(&b, tc, "in place", &b.args, "out[1] apart from x[1]");
    /* Columns of one wide matrix: side by side is fine, one element over is not. */
    ebro_mat wide = fake_mat(ROWS, 2 * CHANNELS + 1, 2 * CHANNELS + 1, EBRO_F32);
    a->x[1] = a->out[1] = wide;
    a->out[1].offset += CHANNELS * sizeof(float);
    expect_accepted(&b, tc);
    a->out[1].offset -= sizeof(float);
    expect_refused(&b, tc, "last column over first", &b.args, "out[1] apart from x[1]");
    a->out[1].offset = wide.offset;
    a->x[1].offset = wide.offset + CHANNELS * sizeof(float);
    expect_accepted(&b, tc);
    /* Rows of one matrix, one block after the other. */
    ebro_mat tall = fake_mat(2 * ROWS, CHANNELS, CHANNELS, EBRO_F32);
    a->x[1] = a->out[1] = tall;
    a->out[1].offset += ROWS * CHANNELS * sizeof(float);
    expect_accepted(&b, tc);
    a->out[1].offset -= sizeof(float);
    expect_refused(&b, tc, "first row over last", &b.args, "out[1] apart from x[1]");
}

static void test_in_place_is_accepted_where_it_is_promised(void **state) {
    (void)state;
    struct bench b;
    const struct test_case *tc = find_case("rms_norm");
    prepare(&b, tc);
    b.args.rms_norm.out = b.args.rms_norm.x;
    expect_accepted(&b, tc);
    b.args.rms_norm.n_rows--; /* room to shift by one column */
    b.args.rms_norm.out.offset += sizeof(float);
    expect_refused(&b, tc, "shifted", &b.args, "out apart from x");

    tc = find_case("act_mul");
    prepare(&b, tc);
    ebro_act_mul_args *act = &b.args.act_mul;
    ebro_mat out = act->out;
    act->out = act->up;
    expect_accepted(&b, tc);
    act->out = out;
    act->gate = out;
    expect_refused(&b, tc, "out is a grouped gate", &b.args, "out apart from gate");
    act->gate_group = 1;
    expect_accepted(&b, tc);
    act->n_rows--;
    act->gate.offset += sizeof(float);
    expect_refused(&b, tc, "shifted gate", &b.args, "out apart from gate");
    act->gate = act->up;
    act->out = act->up;
    act->out.offset += sizeof(float);
    expect_refused(&b, tc, "shifted up", &b.args, "out apart from up");

    tc = find_case("attn_res_mix");
    prepare(&b, tc);
    ebro_attn_res_mix_args *mix = &b.args.attn_res_mix;
    mix->out = mix->sources[1];
    expect_accepted(&b, tc);
    mix->n_rows--;
    mix->out.offset += sizeof(float);
    expect_refused(&b, tc, "shifted", &b.args, "out apart from");

    tc = find_case("rows_copy");
    prepare(&b, tc);
    ebro_rows_copy_args *copy = &b.args.rows_copy;
    copy->src_stride_bytes = copy->dst_stride_bytes = 40;
    copy->src = (ebro_span){fake_mem(160), 0};
    copy->dst = (ebro_span){copy->src.mem, 20};
    expect_accepted(&b, tc);
    copy->dst.offset = 19;
    expect_refused(&b, tc, "one byte over", &b.args, "dst apart from src");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_call_is_dispatched_once),
        cmocka_unit_test(test_every_broken_condition_is_refused),
        cmocka_unit_test(test_every_memory_one_byte_short_is_refused),
        cmocka_unit_test(test_absent_and_small_structs_are_refused),
        cmocka_unit_test(test_members_that_break_a_condition_together),
        cmocka_unit_test(test_conv_output_must_leave_its_input_alone),
        cmocka_unit_test(test_in_place_is_accepted_where_it_is_promised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
