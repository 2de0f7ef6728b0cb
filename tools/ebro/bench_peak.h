/* bench_peak.h: the rate of multiply-adds in registers. bench_peak.c is compiled once for each
 * instruction set, with its name in EB_PEAK. */
#ifndef EB_BENCH_PEAK_H
#define EB_BENCH_PEAK_H

#include <stdint.h>

/* Does n rounds of multiply-adds and returns how many f32 ones that were; *sink depends on them. */
uint64_t eb_bench_peak_plain(uint64_t n, float *sink);
#if defined(EB_BENCH_X86)
uint64_t eb_bench_peak_avx2(uint64_t n, float *sink);
uint64_t eb_bench_peak_avx512(uint64_t n, float *sink);
#endif

#endif
