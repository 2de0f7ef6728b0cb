/* threads.c: workers that wait for a loop, first spinning, then asleep.
 *
 * A loop is open while its caller hands out items. A worker enters an open loop by counting itself
 * into `gate` and leaves by counting itself out; the caller closes the gate when no item is left
 * and waits for those inside only. So a worker that is late to wake up costs nothing. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

enum {
    N_SPIN = 3000,        /* pauses before a worker sleeps, some tens of microseconds */
    N_SPIN_CALLER = 1000, /* pauses before a caller that waits for items lets others run */
    N_LATE = 50000,       /* nanoseconds: a caller that lost more was kept waiting by the system */
    N_GAIN = 8,           /* of so many nanoseconds of all threads one is saved */
    N_ALONE = 8,          /* a caller then works alone for as many times what it lost, */
    N_ALONE_MOST = 128,   /* twice as long each time that joining again does not pay */
    GATE_OPEN = 1,        /* gate: this bit, and GATE_WORKER for each worker inside */
    GATE_WORKER = 2
};

struct worker {
    struct cpu_pool *pool;
    pthread_t thread;
    uint32_t index;
    clockid_t clock; /* its time on a core */
    uint64_t used;   /* on that clock, when the caller began to wait */
};

struct cpu_pool {
    const ebro_host *host;
    uint32_t n_workers;
    pthread_mutex_t loop;  /* held by the caller whose loop has the workers */
    pthread_mutex_t sleep; /* of the condition */
    pthread_cond_t wake;
    atomic_uint n_asleep, stop;
    atomic_uint epoch; /* loops so far */
    atomic_uint gate;
    _Atomic uint64_t next; /* item to hand out */
    /* Of the open loop. */
    uint64_t n_items;
    cpu_item_fn fn;
    void *user;
    /* Of the holder of `loop`. */
    uint64_t used;        /* nanoseconds of all cores, when the workers last began to take part */
    uint64_t alone_until; /* nanoseconds; 0: loops are open to workers */
    uint64_t alone;       /* times what is lost next */
    struct worker workers[];
};

uint32_t cpu_usable_cores(void) {
    cpu_set_t set;
    int n = 1;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
    if (n < 1) n = 1;
    return n > CPU_MAX_THREADS ? CPU_MAX_THREADS : (uint32_t)n;
}

static inline void pause_a_little(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t = {0};
    (void)clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void take_items(struct cpu_pool *p, uint32_t thread) {
    for (;;) {
        uint64_t item = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (item >= p->n_items) return;
        p->fn(p->user, item, thread);
    }
}

/* Takes part in the open loop, if there is one. */
static void visit(struct cpu_pool *p, uint32_t thread) {
    unsigned gate = atomic_load_explicit(&p->gate, memory_order_relaxed);
    do {
        if (!(gate & GATE_OPEN)) return;
    } while (!atomic_compare_exchange_weak_explicit(&p->gate, &gate, gate + GATE_WORKER,
                                                    memory_order_acquire, memory_order_relaxed));
    take_items(p, thread);
    atomic_fetch_sub_explicit(&p->gate, GATE_WORKER, memory_order_release);
}

/* Until the epoch is no longer `seen`. Returns the new one. */
static unsigned await_epoch(struct cpu_pool *p, unsigned seen) {
    for (int i = 0; i < N_SPIN; i++) {
        unsigned epoch = atomic_load_explicit(&p->epoch, memory_order_acquire);
        if (epoch != seen) return epoch;
        pause_a_little();
    }
    pthread_mutex_lock(&p->sleep);
    /* Sequentially consistent on both sides: either the caller sees the sleeper or this sees the
     * epoch. */
    atomic_fetch_add(&p->n_asleep, 1);
    while (atomic_load(&p->epoch) == seen) pthread_cond_wait(&p->wake, &p->sleep);
    atomic_fetch_sub(&p->n_asleep, 1);
    pthread_mutex_unlock(&p->sleep);
    return atomic_load(&p->epoch);
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    unsigned epoch = 0;
    for (;;) {
        epoch = await_epoch(w->pool, epoch);
        if (atomic_load(&w->pool->stop)) return NULL;
        visit(w->pool, w->index);
    }
}

/* On a busy machine a worker is taken off its core in the middle of an item, and the caller waits
 * until its turn comes again; or a worker that is woken takes the caller's own core. Either costs
 * milliseconds for items of microseconds. Threads must not make anything slower than one thread is:
 * unless they have gained as much since the last time as is lost now, the caller goes on alone for
 * a while. */
static void pay_back(struct cpu_pool *p, uint64_t lost) {
    uint64_t used = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t gained = (used - p->used) / N_GAIN;
    p->used = used;
    if (gained >= lost) {
        p->alone = N_ALONE;
        return;
    }
    p->alone_until = clock_ns(CLOCK_MONOTONIC) + p->alone * lost;
    if (p->alone < N_ALONE_MOST) p->alone *= 2;
}

/* Tells the workers of an open loop, or of the end. */
static void next_epoch(struct cpu_pool *p) {
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->n_asleep) == 0) return;
    uint64_t start = clock_ns(CLOCK_MONOTONIC);
    pthread_mutex_lock(&p->sleep);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->sleep);
    uint64_t lost = clock_ns(CLOCK_MONOTONIC) - start;
    if (lost > N_LATE) pay_back(p, lost);
}

int32_t cpu_pool_open(const ebro_host *host, uint32_t n_threads, struct cpu_pool **out,
                      ebro_error *err) {
    struct cpu_pool *p;
    size_t bytes = sizeof *p + n_threads * sizeof p->workers[0];
    *out = NULL;
    p = host->realloc(host->user, NULL, bytes);
    if (!p) return host->fail(err, EBRO_NOMEM_HOST, "cpu: no %zu bytes for threads", bytes);
    p->host = host;
    p->n_workers = 0;
    p->alone_until = 0;
    p->alone = N_ALONE;
    p->used = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    pthread_mutex_init(&p->loop, NULL);
    pthread_mutex_init(&p->sleep, NULL);
    pthread_cond_init(&p->wake, NULL);
    atomic_init(&p->n_asleep, 0);
    atomic_init(&p->stop, 0);
    atomic_init(&p->epoch, 0);
    atomic_init(&p->gate, 0);
    atomic_init(&p->next, 0);
    /* Signals are for the program's own threads, but for those that tell of a fault: blocked, they
     * would end the process before a handler could mend what is wrong. */
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (p->n_workers + 1 < n_threads) {
        struct worker *w = &p->workers[p->n_workers];
        *w = (struct worker){.pool = p, .index = p->n_workers + 1};
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) break;
        /* Without that clock a wait counts as work, and the caller never goes on alone. */
        if (pthread_getcpuclockid(w->thread, &w->clock) != 0) w->clock = CLOCK_MONOTONIC;
        p->n_workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (p->n_workers + 1 < n_threads) {
        host->log(host->user, EBRO_LOG_WARN, "cpu: %u threads wanted, the system gives %u",
                  n_threads, p->n_workers + 1);
    }
    *out = p;
    return EBRO_OK;
}

void cpu_pool_close(struct cpu_pool *p) {
    atomic_store(&p->stop, 1);
    next_epoch(p);
    for (uint32_t i = 0; i < p->n_workers; i++) pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->sleep);
    pthread_mutex_destroy(&p->loop);
    (void)p->host->realloc(p->host->user, p, 0);
}

uint32_t cpu_pool_threads(const struct cpu_pool *p) {
    return p->n_workers + 1;
}

/* Waits for the workers that are still at their last item. */
static void close_gate(struct cpu_pool *p) {
    atomic_fetch_sub_explicit(&p->gate, GATE_OPEN, memory_order_acq_rel);
    for (int i = 0; i < N_SPIN_CALLER; i++) {
        if (atomic_load_explicit(&p->gate, memory_order_acquire) == 0) return;
        pause_a_little();
    }
    uint64_t start = clock_ns(CLOCK_MONOTONIC), worked = 0;
    for (uint32_t i = 0; i < p->n_workers; i++) {
        p->workers[i].used = clock_ns(p->workers[i].clock);
    }
    while (atomic_load_explicit(&p->gate, memory_order_acquire) != 0) sched_yield();
    /* A long item is no loss: somebody was at it. */
    for (uint32_t i = 0; i < p->n_workers; i++) {
        uint64_t used = clock_ns(p->workers[i].clock) - p->workers[i].used;
        if (used > worked) worked = used;
    }
    uint64_t waited = clock_ns(CLOCK_MONOTONIC) - start;
    if (waited > worked + N_LATE) pay_back(p, waited - worked);
}

static bool works_alone(struct cpu_pool *p) {
    if (p->alone_until == 0) return false;
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    if (now < p->alone_until) return true;
    p->alone_until = 0;
    p->used = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    return false;
}

void cpu_parallel(struct cpu_pool *p, uint64_t n_items, cpu_item_fn fn, void *user) {
    bool shared = n_items > 1 && p->n_workers > 0 && pthread_mutex_trylock(&p->loop) == 0;
    if (shared && works_alone(p)) {
        pthread_mutex_unlock(&p->loop);
        shared = false;
    }
    if (!shared) {
        for (uint64_t i = 0; i < n_items; i++) fn(user, i, 0);
        return;
    }
    p->fn = fn;
    p->user = user;
    p->n_items = n_items;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->gate, GATE_OPEN, memory_order_release);
    next_epoch(p);
    take_items(p, 0);
    close_gate(p);
    pthread_mutex_unlock(&p->loop);
}
