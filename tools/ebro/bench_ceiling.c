/* bench_ceiling.c: what a device could do at best: how fast it reads memory, and how many
 * multiply-adds its registers do. On the CPU plain loops in as many threads as the device has;
 * elsewhere copies within the device's memory. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bench_peak.h"
#include "bench_rig.h"

enum { MAX_THREADS = 256, TRIES = 5 };

struct job {
    const uint64_t *words;
    uint64_t n; /* words, or rounds */
    uint64_t (*peak)(uint64_t n, float *sink);
    uint64_t done; /* multiply-adds; or the sum, so that no compiler can leave the reading out */
    pthread_t thread;
};

static void *read_words(void *user) {
    struct job *j = user;
    uint64_t sums[8] = {0};
    for (uint64_t i = 0; i + 8 <= j->n; i += 8)
        for (int k = 0; k < 8; k++) sums[k] += j->words[i + (uint64_t)k];
    for (int k = 0; k < 8; k++) j->done += sums[k];
    return NULL;
}

static void *multiply_add(void *user) {
    struct job *j = user;
    float sink = 0.0f;
    j->done = j->peak(j->n, &sink);
    if (sink != sink) j->done = 0; /* never: the sums are finite */
    return NULL;
}

/* Seconds that all jobs took together, of one job in processor time: a busy machine must not lower
 * a ceiling. 0: no thread could be had. */
static double run_jobs(struct job *jobs, uint32_t n, void *(*work)(void *)) {
    uint32_t started = 1;
    double begin = n == 1 ? eb_bench_cpu_seconds() : eb_seconds();
    for (; started < n; started++)
        if (pthread_create(&jobs[started].thread, NULL, work, &jobs[started]) != 0) break;
    if (started == n) work(&jobs[0]);
    for (uint32_t i = 1; i < started; i++) pthread_join(jobs[i].thread, NULL);
    if (started < n) return 0.0;
    return (n == 1 ? eb_bench_cpu_seconds() : eb_seconds()) - begin;
}

static double cpu_read(struct eb_rig *r, struct job *jobs, uint32_t n) {
    uint64_t bytes = r->quick ? 1u << 20 : 2 * r->rotate_bytes, share = bytes / 8 / n;
    uint64_t *words = malloc((size_t)bytes);
    double best = 0.0;
    if (!words) return 0.0;
    memset(words, 1, (size_t)bytes);
    for (int t = 0; t < TRIES; t++) {
        for (uint32_t i = 0; i < n; i++)
            jobs[i] = (struct job){words + i * share, share, NULL, 0, 0};
        double seconds = run_jobs(jobs, n, read_words);
        /* equal words: the sum is known */
        bool right = jobs[0].done == share / 8 * 8 * 0x0101010101010101u;
        if (right && seconds > 0.0 && (double)(share * n * 8) / seconds > best)
            best = (double)(share * n * 8) / seconds;
    }
    free(words);
    return best;
}

static double cpu_multiply_adds(struct eb_rig *r, struct job *jobs, uint32_t n, const char *rung) {
    uint64_t (*peak)(uint64_t, float *) = NULL;
    const uint64_t rounds = r->quick ? 1000 : 1000000;
    double best = 0.0;
    if (strcmp(rung, "plain") == 0) peak = eb_bench_peak_plain;
#if defined(EB_BENCH_X86)
    if (strcmp(rung, "avx2") == 0) peak = eb_bench_peak_avx2;
    if (strcmp(rung, "avx512") == 0) peak = eb_bench_peak_avx512;
#endif
    for (int t = 0; t < TRIES && peak; t++) {
        uint64_t done = 0;
        for (uint32_t i = 0; i < n; i++) jobs[i] = (struct job){NULL, rounds, peak, 0, 0};
        double seconds = run_jobs(jobs, n, multiply_add);
        for (uint32_t i = 0; i < n; i++) done += jobs[i].done;
        if (seconds > 0.0 && (double)done / seconds > best) best = (double)done / seconds;
    }
    return best;
}

static struct eb_ceilings cpu_ceilings(struct eb_rig *r, const struct eb_bench_host *h) {
    struct eb_ceilings c = {0};
    uint32_t n = h->n_threads < 1 ? 1 : h->n_threads > MAX_THREADS ? MAX_THREADS : h->n_threads;
    struct job *jobs = calloc(n, sizeof *jobs);
    if (!jobs) return c;
    c.read_bytes = cpu_read(r, jobs, n);
    c.multiply_adds = cpu_multiply_adds(r, jobs, n, h->rung);
    free(jobs);
    return c;
}

struct copy {
    struct eb_rig *r;
    ebro_span from, to;
    uint64_t bytes;
};

static int32_t copy_once(void *user, uint32_t set) {
    struct copy *c = user;
    (void)set;
    return eb_copy(&c->r->stream, c->to, c->from, c->bytes, &c->r->err);
}

static struct eb_ceilings copy_ceiling(struct eb_rig *r) {
    struct eb_ceilings ceilings = {0};
    struct eb_samples wall = {.n = 0}, cpu = {.n = 0};
    struct copy c = {.r = r, .bytes = r->quick ? 1u << 20 : 2 * r->rotate_bytes};
    c.from = eb_rig_bytes(r, c.bytes);
    c.to = eb_rig_bytes(r, c.bytes);
    eb_rig_time(r, 1, copy_once, &c, &wall, &cpu);
    if (!eb_rig_failed(r) && eb_samples_min(&wall) > 0.0)
        ceilings.read_bytes = 2.0 * (double)c.bytes / eb_samples_min(&wall);
    eb_rig_reset(r);
    return ceilings;
}

struct eb_ceilings eb_rig_ceilings(struct eb_rig *r, const struct eb_bench_host *h) {
    return strcmp(h->device.backend, "cpu") == 0 ? cpu_ceilings(r, h) : copy_ceiling(r);
}
