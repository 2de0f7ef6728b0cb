/* memory.h: what memory there is. Private to backends/cpu. */
#ifndef EB_CPU_MEMORY_H
#define EB_CPU_MEMORY_H

#include <stdint.h>

struct cpu_memory {
    uint64_t free_bytes; /* what can still be had without swapping; 0: nothing, or not known */
    const char *limit;   /* what sets that bound; constant */
};

uint64_t cpu_memory_total(void); /* of the machine; 0: not known */
struct cpu_memory cpu_memory_free(void);

#endif
