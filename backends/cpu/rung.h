/* rung.h: names of one rung. Files that are compiled once for each rung (op_*.c, product.c, ...)
 * see their functions under the rung's name; device.c calls them through the rung's table. Private
 * to backends/cpu; included by cpu.h. */
#ifndef EB_CPU_RUNG_H
#define EB_CPU_RUNG_H

#include "ebro/backend.h"

#ifndef CPU_RUNG
#define CPU_RUNG plain
#endif
#define CPU_PASTE_NAMES(a, b) a##_##b
#define CPU_PASTE(a, b) CPU_PASTE_NAMES(a, b)
#define CPU_FN(name) CPU_PASTE(name, CPU_RUNG)

/* The ops that want scratch, as EBRO_OPS. */
#define CPU_SCRATCH(X)          \
    X(SAMPLE, sample)           \
    X(LINEAR, linear)           \
    X(KDA_PREP, kda_prep)       \
    X(KDA_STEP, kda_step)       \
    X(MLA_PREFILL, mla_prefill) \
    X(MLA_DECODE, mla_decode)   \
    X(MOE_ROUTE, moe_route)     \
    X(MOE_EXPERTS, moe_experts)

struct cpu_rung {
    const char *name;
    uint32_t mla_expanded_ps, mla_absorbed_ps, mla_expanded_tokens; /* as in ebro_caps */
#define CPU_FIELD(N, op) int32_t (*op)(ebro_stream * s, const ebro_##op##_args *a, ebro_error *err);
    EBRO_OPS(CPU_FIELD)
#undef CPU_FIELD
#define CPU_FIELD(N, op) uint64_t (*scratch_##op)(ebro_dev * dev, const ebro_##op##_args *a);
    CPU_SCRATCH(CPU_FIELD)
#undef CPU_FIELD
};

#define cpu_embed CPU_FN(cpu_embed)
#define cpu_sample CPU_FN(cpu_sample)
#define cpu_rms_norm CPU_FN(cpu_rms_norm)
#define cpu_linear CPU_FN(cpu_linear)
#define cpu_act_mul CPU_FN(cpu_act_mul)
#define cpu_kda_conv CPU_FN(cpu_kda_conv)
#define cpu_kda_prep CPU_FN(cpu_kda_prep)
#define cpu_kda_recur CPU_FN(cpu_kda_recur)
#define cpu_kda_step CPU_FN(cpu_kda_step)
#define cpu_mla_append CPU_FN(cpu_mla_append)
#define cpu_mla_prefill CPU_FN(cpu_mla_prefill)
#define cpu_mla_decode CPU_FN(cpu_mla_decode)
#define cpu_moe_route CPU_FN(cpu_moe_route)
#define cpu_moe_experts CPU_FN(cpu_moe_experts)
#define cpu_attn_res_mix CPU_FN(cpu_attn_res_mix)
#define cpu_state_copy CPU_FN(cpu_state_copy)
#define cpu_rows_copy CPU_FN(cpu_rows_copy)

#define cpu_scratch_sample CPU_FN(cpu_scratch_sample)
#define cpu_scratch_linear CPU_FN(cpu_scratch_linear)
#define cpu_scratch_kda_prep CPU_FN(cpu_scratch_kda_prep)
#define cpu_scratch_kda_step CPU_FN(cpu_scratch_kda_step)
#define cpu_scratch_mla_prefill CPU_FN(cpu_scratch_mla_prefill)
#define cpu_scratch_mla_decode CPU_FN(cpu_scratch_mla_decode)
#define cpu_scratch_moe_route CPU_FN(cpu_scratch_moe_route)
#define cpu_scratch_moe_experts CPU_FN(cpu_scratch_moe_experts)

#define cpu_load_e2m1 CPU_FN(cpu_load_e2m1)
#define cpu_load_row CPU_FN(cpu_load_row)
#define cpu_matrix_of CPU_FN(cpu_matrix_of)
#define cpu_product CPU_FN(cpu_product)
#define cpu_product_part CPU_FN(cpu_product_part)
#define cpu_products CPU_FN(cpu_products)
#define cpu_act CPU_FN(cpu_act)
#define cpu_act_row CPU_FN(cpu_act_row)
#define kda_windows_write CPU_FN(kda_windows_write)
#define kda_work_bytes CPU_FN(kda_work_bytes)
#define kda_work_at CPU_FN(kda_work_at)
#define kda_check_dim CPU_FN(kda_check_dim)

#endif
