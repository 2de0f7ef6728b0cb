/* names.c: names of ops and dtypes, sizes of dtypes. */
#include "ops/ops.h"

static const char *const op_names[EBRO_N_OPS] = {
    [EBRO_OP_EMBED] = "embed",
    [EBRO_OP_SAMPLE] = "sample",
    [EBRO_OP_RMS_NORM] = "rms_norm",
    [EBRO_OP_LINEAR] = "linear",
    [EBRO_OP_ACT_MUL] = "act_mul",
    [EBRO_OP_KDA_CONV] = "kda_conv",
    [EBRO_OP_KDA_PREP] = "kda_prep",
    [EBRO_OP_KDA_RECUR] = "kda_recur",
    [EBRO_OP_KDA_STEP] = "kda_step",
    [EBRO_OP_MLA_APPEND] = "mla_append",
    [EBRO_OP_MLA_PREFILL] = "mla_prefill",
    [EBRO_OP_MLA_DECODE] = "mla_decode",
    [EBRO_OP_MOE_ROUTE] = "moe_route",
    [EBRO_OP_MOE_EXPERTS] = "moe_experts",
    [EBRO_OP_ATTN_RES_MIX] = "attn_res_mix",
    [EBRO_OP_STATE_COPY] = "state_copy",
    [EBRO_OP_ROWS_COPY] = "rows_copy",
};

static const struct {
    const char *name;
    uint32_t size;
} dtypes[] = {
    [EBRO_F32] = {"f32", 4},     [EBRO_F16] = {"f16", 2}, [EBRO_BF16] = {"bf16", 2},
    [EBRO_MXFP4] = {"mxfp4", 0}, [EBRO_U8] = {"u8", 1},   [EBRO_I32] = {"i32", 4},
    [EBRO_I64] = {"i64", 8},     [EBRO_F64] = {"f64", 8},
};

static int is_dtype(int32_t dtype) {
    return dtype >= 0 && (size_t)dtype < sizeof dtypes / sizeof dtypes[0];
}

const char *eb_op_name(ebro_op op) {
    uint32_t i = (uint32_t)op;
    return i < EBRO_N_OPS ? op_names[i] : "unknown op";
}

uint32_t eb_dtype_size(int32_t dtype) {
    return is_dtype(dtype) ? dtypes[dtype].size : 0;
}

const char *eb_dtype_name(int32_t dtype) {
    return is_dtype(dtype) ? dtypes[dtype].name : "unknown dtype";
}
