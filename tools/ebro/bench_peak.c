/* bench_peak.c: see bench_peak.h. Plain C that a compiler turns into the widest multiply-adds it is
 * allowed; enough independent sums that none waits for another. */
#include "bench_peak.h"

#ifndef EB_PEAK
#define EB_PEAK eb_bench_peak_plain
#define EB_PEAK_WIDTH 4
#endif

enum { SUMS = 12, WIDTH = EB_PEAK_WIDTH };

uint64_t EB_PEAK(uint64_t n, float *sink) {
    float sums[SUMS][WIDTH], x[WIDTH], y[WIDTH];
    for (int i = 0; i < WIDTH; i++) {
        /* sums settle near y / (1 - x): never subnormal, never large */
        x[i] = 0.5f + *sink * 1e-9f;
        y[i] = 1.0f + (float)i;
    }
    for (int s = 0; s < SUMS; s++)
        for (int i = 0; i < WIDTH; i++) sums[s][i] = (float)(s + i);
    for (uint64_t k = 0; k < n; k++) {
        for (int s = 0; s < SUMS; s++)
            for (int i = 0; i < WIDTH; i++) sums[s][i] = sums[s][i] * x[i] + y[i];
    }
    float total = 0.0f;
    for (int s = 0; s < SUMS; s++)
        for (int i = 0; i < WIDTH; i++) total += sums[s][i];
    *sink = total;
    return n * SUMS * WIDTH;
}
