/* memory.c: how much memory the machine has, and how much of it this process may still take: the
 * system's own answer, a container's limit, the process's address space. Nothing is allocated here.
 */
#include "memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The first number of the first line that starts with `key`, times `unit`; 0: not there. */
static uint64_t number_in(const char *path, const char *key, uint64_t unit) {
    char line[256];
    uint64_t value = 0;
    bool found = false;
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    while (!found && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        found = true;
        value = strtoull(line + strlen(key), NULL, 10) * unit; /* "max" gives 0 */
    }
    fclose(f);
    return value;
}

uint64_t cpu_memory_total(void) {
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    if (pages > 0 && size > 0) return (uint64_t)pages * (uint64_t)size;
    return number_in("/proc/meminfo", "MemTotal:", 1024);
}

static uint64_t left_of(uint64_t limit, uint64_t used) {
    return limit > used ? limit - used : 0;
}

struct cpu_memory cpu_memory_free(void) {
    struct cpu_memory m = {.free_bytes = number_in("/proc/meminfo", "MemAvailable:", 1024),
                           .limit = "the machine's free memory"};
    /* Control groups, version 2, as a process in a container sees its own. What only holds file
     * pages is counted as used there, though it would give way. */
    uint64_t group = number_in("/sys/fs/cgroup/memory.max", "", 1);
    if (group > 0) {
        uint64_t used = number_in("/sys/fs/cgroup/memory.current", "", 1);
        uint64_t files = number_in("/sys/fs/cgroup/memory.stat", "inactive_file ", 1);
        uint64_t left = left_of(group, left_of(used, files));
        if (m.free_bytes == 0 || left < m.free_bytes) {
            m.free_bytes = left;
            m.limit = "the memory limit of the control group (memory.max)";
        }
    }
    struct rlimit space;
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
        uint64_t pages = number_in("/proc/self/statm", "", 1);
        uint64_t left = left_of(space.rlim_cur, pages * (uint64_t)sysconf(_SC_PAGESIZE));
        if (m.free_bytes == 0 || left < m.free_bytes) {
            m.free_bytes = left;
            m.limit = "the limit of the process's address space (RLIMIT_AS)";
        }
    }
    return m;
}
