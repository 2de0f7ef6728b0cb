/* ops.h: one validated call per op. This is the only place that checks op arguments: always on,
 * O(1) (O(items) for linear and attn_res_mix), with the failing condition in the error text. A
 * call that fails validation has done nothing. Argument structs: ebro/backend.h. */
#ifndef EB_OPS_H
#define EB_OPS_H

#include "device/device.h"

/* eb_op_embed(stream, args, err) and so on, one for each of EBRO_OPS. eb_op_kda_step is composed
 * from conv, prep, recur and rms_norm in `scratch` where the backend has no fused step. */
#define EB_OP_CALL(N, name) \
    int32_t eb_op_##name(struct eb_stream *s, const ebro_##name##_args *a, ebro_error *err);
EBRO_OPS(EB_OP_CALL)
#undef EB_OP_CALL

/* Scratch that the op wants for these host numbers (memory may be absent), composition included. */
uint64_t eb_op_scratch(struct ebro_device *d, ebro_op op, const void *args);

/* "kda_prep", ... */
const char *eb_op_name(ebro_op op);
/* Bytes of one element; 0 for MXFP4 (use eb_weight_bytes) and unknown numbers. */
uint32_t eb_dtype_size(int32_t dtype);
const char *eb_dtype_name(int32_t dtype);

#endif
