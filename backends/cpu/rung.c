/* rung.c: the table of one rung. Compiled once for each. */
#include "mla.h"

extern const struct cpu_rung CPU_FN(cpu_rung);

#define CPU_TEXT_OF(name) #name
#define CPU_TEXT(name) CPU_TEXT_OF(name)
#define CPU_ENTRY(N, op) .op = cpu_##op,
#define CPU_SCRATCH_ENTRY(N, op) .scratch_##op = cpu_scratch_##op,

const struct cpu_rung CPU_FN(cpu_rung) = {.name = CPU_TEXT(CPU_RUNG),
                                          .mla_expanded_ps = MLA_EXPANDED_PS,
                                          .mla_absorbed_ps = MLA_ABSORBED_PS,
                                          .mla_expanded_tokens = MLA_EXPANDED_TOKENS,
                                          EBRO_OPS(CPU_ENTRY) CPU_SCRATCH(CPU_SCRATCH_ENTRY)};
