/* guard.c: the handler of SIGBUS that the application may ask for. A fault inside a watched mapping
 * gets pages of zeros, and the mapping is marked; any other fault goes to whoever had the signal
 * before. Whether a mark is an error is for file.c and its callers to say.
 *
 * The table is read by a signal handler while any thread may change it, so it takes no lock: each
 * watch has a version, odd while the watch is in force, and what was read between two different
 * versions counts for nothing. The entry that a fault belongs to does not change meanwhile, for
 * whoever reads a mapping keeps it open. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "base/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"

struct watch {
    atomic_uint version; /* odd: in force */
    atomic_uint taken;
    atomic_uint hit;
    _Atomic uintptr_t begin, end;
};

static struct watch watches[EB_GUARD_MAX];
static atomic_uint n_used; /* no watch at or above this one was ever taken */
static atomic_uint likely; /* where a free one is looked for first */
static atomic_bool installed;
static struct sigaction former;
static uintptr_t page_bytes;

uint32_t eb_guard_watch(const void *map, size_t bytes) {
    const uint32_t first = atomic_load(&likely);
    for (uint32_t k = 0; k < EB_GUARD_MAX; k++) {
        const uint32_t i = (first + k) % EB_GUARD_MAX;
        struct watch *w = &watches[i];
        unsigned is_free = 0;
        if (!atomic_compare_exchange_strong(&w->taken, &is_free, 1)) continue;
        atomic_store(&w->hit, 0);
        atomic_store(&w->begin, (uintptr_t)map);
        atomic_store(&w->end, (uintptr_t)map + bytes);
        unsigned used = atomic_load(&n_used);
        while (used <= i && !atomic_compare_exchange_weak(&n_used, &used, i + 1)) continue;
        atomic_fetch_add(&w->version, 1);
        atomic_store(&likely, i + 1);
        return i + 1;
    }
    return 0;
}

void eb_guard_release(uint32_t watch) {
    if (watch == 0) return;
    struct watch *w = &watches[watch - 1];
    atomic_fetch_add(&w->version, 1);
    atomic_store(&w->taken, 0);
    atomic_store(&likely, watch - 1);
}

bool eb_guard_was_hit(uint32_t watch) {
    return watch != 0 && atomic_load(&watches[watch - 1].hit) != 0;
}

bool eb_guard_is_installed(void) {
    return atomic_load(&installed);
}

/* ---- the handler: what follows may run at any instruction of any thread ------------------- */

static struct watch *find(uintptr_t address, uintptr_t *end) {
    const unsigned n = atomic_load(&n_used);
    for (unsigned i = 0; i < n; i++) {
        struct watch *w = &watches[i];
        const unsigned version = atomic_load(&w->version);
        const uintptr_t begin = atomic_load(&w->begin);
        *end = atomic_load(&w->end);
        if ((version & 1u) == 0 || atomic_load(&w->version) != version) continue;
        if (address >= begin && address < *end) return w;
    }
    return NULL;
}

/* Zeros from the page at `address` to the end of its mapping: where a file ends before a page, it
 * ends before all that follow. mmap is not on POSIX's list of what a handler may call, but it is a
 * bare system call wherever this is built. */
static bool mend(uintptr_t address) {
    uintptr_t end = 0;
    struct watch *w = find(address, &end);
    if (w == NULL) return false;
    atomic_store(&w->hit, 1);
    const uintptr_t page = address - address % page_bytes;
    return mmap((void *)page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                0) != MAP_FAILED;
}

static void pass_on(int number, siginfo_t *info, void *context) {
    if ((former.sa_flags & SA_SIGINFO) != 0) {
        former.sa_sigaction(number, info, context);
        return;
    }
    const bool is_sent = info->si_code <= 0; /* by a process, not by a fault */
    if (former.sa_handler == SIG_IGN && is_sent) return;
    if (former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN) {
        former.sa_handler(number);
        return;
    }
    /* A fault happens again on return, and ends the process where it happened. */
    signal(number, SIG_DFL);
    if (is_sent) raise(number);
}

static void on_fault(int number, siginfo_t *info, void *context) {
    const int error = errno;
    const bool is_mended = info->si_code == BUS_ADRERR && mend((uintptr_t)info->si_addr);
    if (!is_mended) pass_on(number, info, context);
    errno = error;
}

/* ---- public calls ------------------------------------------------------------------------- */

int32_t ebro_guard_install(ebro_error *err) {
    if (atomic_load(&installed)) return EBRO_OK;
    const long bytes = sysconf(_SC_PAGESIZE);
    struct sigaction action;
    if (bytes <= 0 || sigaction(SIGBUS, NULL, &former) != 0)
        return eb_fail(err, EBRO_UNSUPPORTED, "the system has no SIGBUS that can be caught");
    page_bytes = (uintptr_t)bytes;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    action.sa_mask = former.sa_mask;
    if (sigaction(SIGBUS, &action, NULL) != 0)
        return eb_fail(err, EBRO_UNSUPPORTED, "installing a handler of SIGBUS: %s",
                       strerror(errno));
    atomic_store(&installed, true);
    return EBRO_OK;
}

int32_t ebro_guard_remove(ebro_error *err) {
    struct sigaction now;
    if (!atomic_load(&installed)) return EBRO_OK;
    if (sigaction(SIGBUS, NULL, &now) != 0 || (now.sa_flags & SA_SIGINFO) == 0 ||
        now.sa_sigaction != on_fault)
        return eb_fail(err, EBRO_INVALID,
                       "another handler of SIGBUS was installed since: remove that first");
    sigaction(SIGBUS, &former, NULL);
    atomic_store(&installed, false);
    return EBRO_OK;
}
