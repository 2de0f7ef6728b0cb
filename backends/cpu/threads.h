/* threads.h: the device's threads and a parallel loop over them. What the loop does to memory is
 * its caller's business: items must not write the same bytes. Private to backends/cpu. */
#ifndef EB_CPU_THREADS_H
#define EB_CPU_THREADS_H

#include <stdint.h>

#include "ebro/backend.h"

enum { CPU_MAX_THREADS = 256 };

struct cpu_pool;

/* Cores that this process may run on, at least 1, at most CPU_MAX_THREADS. */
uint32_t cpu_usable_cores(void);

/* Starts n_threads - 1 workers; the caller of cpu_parallel is the other thread. Workers that the
 * system refuses are left out, see cpu_pool_threads. NOMEM_HOST. */
int32_t cpu_pool_open(const ebro_host *host, uint32_t n_threads, struct cpu_pool **out,
                      ebro_error *err);
/* Stops and joins the workers. */
void cpu_pool_close(struct cpu_pool *pool);
uint32_t cpu_pool_threads(const struct cpu_pool *pool);

/* One item of a loop; `thread` < cpu_pool_threads is the same for no two calls at one time. */
typedef void (*cpu_item_fn)(void *user, uint64_t item, uint32_t thread);

/* Calls fn once for every item in [0, n_items), in any order, on any thread, and returns when all
 * are done. May be called from several threads at once: one loop gets the workers, the others run
 * on the thread that called. Items must not call it again. */
void cpu_parallel(struct cpu_pool *pool, uint64_t n_items, cpu_item_fn fn, void *user);

#endif
