/* ops.h: one validated call per op. This is the only place that checks op arguments: always on,
 * O(1) (O(items) for linear and attn_res_mix), with the failing condition in the error text. A
 * call that fails validation has done nothing. Argument structs: ebro/backend.h. */
#ifndef EB_OPS_H
#define EB_OPS_H

#include "device/device.h"

int32_t eb_op_embed(struct eb_stream *s, const ebro_embed_args *a, ebro_error *err);
int32_t eb_op_sample(struct eb_stream *s, const ebro_sample_args *a, ebro_error *err);
int32_t eb_op_rms_norm(struct eb_stream *s, const ebro_rms_norm_args *a, ebro_error *err);
int32_t eb_op_linear(struct eb_stream *s, const ebro_linear_args *a, ebro_error *err);
int32_t eb_op_act_mul(struct eb_stream *s, const ebro_act_mul_args *a, ebro_error *err);
int32_t eb_op_kda_conv(struct eb_stream *s, const ebro_kda_conv_args *a, ebro_error *err);
int32_t eb_op_kda_prep(struct eb_stream *s, const ebro_kda_prep_args *a, ebro_error *err);
int32_t eb_op_kda_recur(struct eb_stream *s, const ebro_kda_recur_args *a, ebro_error *err);
/* Composed from conv, prep, recur and rms_norm in `scratch` where the backend has no fused step. */
int32_t eb_op_kda_step(struct eb_stream *s, const ebro_kda_step_args *a, ebro_error *err);
int32_t eb_op_mla_append(struct eb_stream *s, const ebro_mla_append_args *a, ebro_error *err);
int32_t eb_op_mla_prefill(struct eb_stream *s, const ebro_mla_prefill_args *a, ebro_error *err);
int32_t eb_op_mla_decode(struct eb_stream *s, const ebro_mla_decode_args *a, ebro_error *err);
int32_t eb_op_moe_route(struct eb_stream *s, const ebro_moe_route_args *a, ebro_error *err);
int32_t eb_op_moe_experts(struct eb_stream *s, const ebro_moe_experts_args *a, ebro_error *err);
int32_t eb_op_attn_res_mix(struct eb_stream *s, const ebro_attn_res_mix_args *a, ebro_error *err);
int32_t eb_op_state_copy(struct eb_stream *s, const ebro_state_copy_args *a, ebro_error *err);
int32_t eb_op_rows_copy(struct eb_stream *s, const ebro_rows_copy_args *a, ebro_error *err);

/* Scratch that the op wants for these host numbers (memory may be absent), composition included. */
uint64_t eb_op_scratch(struct ebro_device *d, ebro_op op, const void *args);

/* "kda_prep", ... */
const char *eb_op_name(ebro_op op);
/* Bytes of one element; 0 for MXFP4 (use eb_weight_bytes) and unknown numbers. */
uint32_t eb_dtype_size(int32_t dtype);
const char *eb_dtype_name(int32_t dtype);

#endif
