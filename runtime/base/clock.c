/* clock.c: see clock.h. */
#include "base/clock.h"

#include <time.h>

double eb_clock_seconds(void) {
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
