/* simt.cc: runs the blocks of a launch, one after the other, thread by thread. See simt.h.
 *
 * EBRO_SIMT_ORDER: the order in which the threads of a block run between two operations that they
 * have in common: "forward" (0, 1, 2 ...), "backward", or "mixed", another one each time; or
 * "alone": a wave runs from one sync_block() to the next before another one does, in each block
 * another one first. A kernel that lacks a barrier gives something else in one of them. */
#include "tests/simt/simt.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/simt/fiber.h"

namespace simt {

position here;

/* ---- kernels ---------------------------------------------------------------------------- */

static kernel *kernels;

kernel::kernel(const char *name_, size_t args_bytes_, void (*run_)(const void *))
    : name(name_), args_bytes(args_bytes_), run(run_), next(kernels) {
    kernels = this;
}

const kernel *find_kernel(const char *name) {
    for (const kernel *k = kernels; k != nullptr; k = k->next)
        if (strcmp(k->name, name) == 0) return k;
    return nullptr;
}

/* ---- a block ---------------------------------------------------------------------------- */

enum { MAX_THREADS = 1024, STACK_BYTES = 256 << 10, SHARED_BYTES = 228 << 10 };

enum state { READY, IN_WAVE, IN_BLOCK, DONE };

struct thread {
    fiber self;
    enum state state;
    const char *kind; /* of the wave operation it waits in */
    unsigned n_shown; /* wave operations so far */
};

static struct {
    const kernel *k;
    const void *args;
    fiber scheduler;
    thread threads[MAX_THREADS];
    /* Two sets: a thread that went on shows to the next one while others still read. */
    slot slots[2][MAX_THREADS];
    unsigned n_threads;
    std::vector<void *> declared; /* shared memory that was begun in this block */
    alignas(16) unsigned char dynamic_bytes[SHARED_BYTES];
    unsigned char *stacks;
} run;

static void yield(enum state state) {
    thread *t = &run.threads[here.thread];
    t->state = state;
    fiber_switch(&t->self, &run.scheduler);
}

static void thread_entry() {
    run.k->run(run.args);
    yield(DONE);
    abort(); /* nobody goes on with it */
}

void block_sync() {
    yield(IN_BLOCK);
}

const slot *wave_show(const char *kind, const void *value, size_t bytes) {
    thread *t = &run.threads[here.thread];
    slot *set = run.slots[t->n_shown++ % 2];
    if (bytes > 0) memcpy(set[here.thread], value, bytes);
    t->kind = kind;
    yield(IN_WAVE);
    return set + here.thread / EB_WAVE * EB_WAVE;
}

void shared_begin(void *memory, size_t bytes) {
    for (void *p : run.declared)
        if (p == memory) return;
    run.declared.push_back(memory);
    memset(memory, 0xff, bytes);
}

void *dynamic_shared() {
    return run.dynamic_bytes;
}

/* ---- order ------------------------------------------------------------------------------ */

static enum { FORWARD, BACKWARD, MIXED, ALONE } order;

static void read_order() {
    const char *text = getenv("EBRO_SIMT_ORDER");
    order = FORWARD;
    if (text != nullptr && strcmp(text, "backward") == 0) order = BACKWARD;
    if (text != nullptr && strcmp(text, "mixed") == 0) order = MIXED;
    if (text != nullptr && strcmp(text, "alone") == 0) order = ALONE;
}

/* The i-th of n threads to run, n a multiple of the wave's width; `key` is odd or even at random.
 */
static unsigned in_order(unsigned i, unsigned n, unsigned key) {
    if (order == FORWARD) return i;
    if (order == BACKWARD) return n - 1 - i;
    unsigned first = i / EB_WAVE * EB_WAVE, lane = i % EB_WAVE;
    if (order == ALONE) return (i + here.block * EB_WAVE) % n;
    /* Waves rotated, lanes reversed or not and crossed. */
    unsigned wave = (first / EB_WAVE + key) % (n / EB_WAVE);
    return wave * EB_WAVE + (lane ^ (key >> 8) % EB_WAVE);
}

/* ---- scheduling ------------------------------------------------------------------------- */

/* Lets every thread that can go on do so, or, where waves run alone, every thread of the first wave
 * that can. */
static void run_ready(unsigned key) {
    bool any = false;
    for (unsigned i = 0; i < run.n_threads; i++) {
        if (order == ALONE && any && i % EB_WAVE == 0) break;
        unsigned n = in_order(i, run.n_threads, key);
        thread *t = &run.threads[n];
        if (t->state != READY) continue;
        any = true;
        here.thread = n;
        fiber_switch(&run.scheduler, &t->self);
    }
}

/* Waves that all came to one operation go on. False: one did, but not whole. */
static bool release_waves(char *text, size_t bytes) {
    for (unsigned first = 0; first < run.n_threads; first += EB_WAVE) {
        const thread *all = &run.threads[first], *waiting = nullptr;
        for (unsigned i = 0; i < EB_WAVE && waiting == nullptr; i++)
            if (all[i].state == IN_WAVE) waiting = &all[i];
        if (waiting == nullptr) continue;
        for (unsigned i = 0; i < EB_WAVE; i++) {
            if (all[i].state == IN_WAVE && strcmp(all[i].kind, waiting->kind) == 0) continue;
            snprintf(text, bytes,
                     "%s, block %u: thread %u waits for its wave in %s, but thread %u %s%s",
                     run.k->name, here.block, (unsigned)(waiting - run.threads), waiting->kind,
                     first + i,
                     all[i].state == DONE       ? "has ended"
                     : all[i].state == IN_BLOCK ? "is in sync_block()"
                                                : "is in ",
                     all[i].state == IN_WAVE ? all[i].kind : "");
            return false;
        }
        for (unsigned i = 0; i < EB_WAVE; i++) run.threads[first + i].state = READY;
    }
    return true;
}

/* Nobody is ready, so whoever is left is in sync_block(): all of the block must be. */
static bool release_block(char *text, size_t bytes) {
    const thread *waiting = nullptr, *done = nullptr;
    for (unsigned i = 0; i < run.n_threads; i++) {
        if (run.threads[i].state == IN_BLOCK) waiting = &run.threads[i];
        if (run.threads[i].state == DONE) done = &run.threads[i];
    }
    if (waiting != nullptr && done != nullptr) {
        snprintf(text, bytes,
                 "%s, block %u: thread %u waits in sync_block(), but thread %u has ended",
                 run.k->name, here.block, (unsigned)(waiting - run.threads),
                 (unsigned)(done - run.threads));
        return false;
    }
    for (unsigned i = 0; waiting != nullptr && i < run.n_threads; i++) run.threads[i].state = READY;
    return true;
}

static bool all_done() {
    for (unsigned i = 0; i < run.n_threads; i++)
        if (run.threads[i].state != DONE) return false;
    return true;
}

static bool any_ready() {
    for (unsigned i = 0; i < run.n_threads; i++)
        if (run.threads[i].state == READY) return true;
    return false;
}

static bool run_block(unsigned block, size_t shared_bytes, unsigned *key, char *text,
                      size_t bytes) {
    run.declared.clear();
    memset(run.dynamic_bytes, 0xff, shared_bytes);
    here.block = block;
    for (unsigned i = 0; i < run.n_threads; i++) {
        thread *t = &run.threads[i];
        t->state = READY;
        t->n_shown = 0;
        fiber_make(&t->self, run.stacks + (size_t)i * STACK_BYTES, STACK_BYTES, thread_entry);
    }
    while (!all_done()) {
        *key = *key * 1664525u + 1013904223u;
        run_ready(*key >> 8);
        if (!release_waves(text, bytes)) return false;
        if (!any_ready() && !release_block(text, bytes)) return false;
    }
    return true;
}

bool launch(const kernel *k, const void *args, unsigned n_blocks, unsigned n_threads,
            size_t shared_bytes, char *text, size_t text_bytes) {
    static unsigned key = 1;
    if (n_threads == 0 || n_threads > MAX_THREADS || n_threads % EB_WAVE != 0 ||
        shared_bytes > SHARED_BYTES) {
        snprintf(text, text_bytes, "%s: %u threads of a block in waves of %u, %zu bytes of memory",
                 k->name, n_threads, (unsigned)EB_WAVE, shared_bytes);
        return false;
    }
    if (run.stacks == nullptr) {
        void *p = mmap(nullptr, (size_t)MAX_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) {
            snprintf(text, text_bytes, "%s: no stacks for the threads of a block", k->name);
            return false;
        }
        run.stacks = (unsigned char *)p;
    }
    read_order();
    run.k = k;
    run.args = args;
    run.n_threads = n_threads;
    here.n_threads = n_threads;
    here.n_blocks = n_blocks;
    for (unsigned b = 0; b < n_blocks; b++)
        if (!run_block(b, shared_bytes, &key, text, text_bytes)) return false;
    return true;
}

}  // namespace simt
