/* names.c: names of ops and dtypes, sizes of dtypes. */
#include "ops/ops.h"

#define OP_NAME(N, name) [EBRO_OP_##N] = #name,
static const char *const op_names[EBRO_N_OPS] = {EBRO_OPS(OP_NAME)};

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
