/* bench_batch.c: the row of `ebro bench model` in which several sequences generate together, as a
 * server's do: an engine of its own beside the one of the other rows. */
#include <stdlib.h>

#include "bench.h"

/* Each sequence starts from a token of its own. */
static int32_t start(ebro_engine *e, const int32_t *ids, ebro_seq **seqs, uint32_t n_seqs,
                     ebro_error *err) {
    int32_t st = EBRO_OK;
    for (uint32_t i = 0; i < n_seqs && st == EBRO_OK; i++) {
        st = ebro_seq_create(e, &seqs[i], err);
        if (st == EBRO_OK) st = ebro_seq_append(seqs[i], ids + i, 1, 0, err);
    }
    return st == EBRO_OK ? ebro_engine_step(e, err) : st;
}

/* As in the row of a single sequence, what is fed is not what was sampled. */
static int32_t decode(ebro_engine *e, const int32_t *ids, ebro_seq **seqs, uint32_t n_seqs,
                      uint32_t n, ebro_error *err) {
    const ebro_sampling greedy = {.size = sizeof greedy};
    int32_t st = EBRO_OK, sampled;
    for (uint32_t i = 1; i <= n && st == EBRO_OK; i++) {
        for (uint32_t k = 0; k < n_seqs && st == EBRO_OK; k++) {
            st = ebro_seq_sample(seqs[k], &greedy, &sampled, err);
            if (st == EBRO_OK) st = ebro_seq_append(seqs[k], ids + k + i, 1, 0, err);
        }
        if (st == EBRO_OK) st = ebro_engine_step(e, err);
    }
    return st;
}

int eb_bench_batch(struct eb_session *s, const struct eb_options *o, const int32_t *ids,
                   uint32_t n_seqs, uint32_t n, double *seconds, double *cpu_seconds) {
    /* a step takes no more tokens than the context holds, and must take one of each sequence */
    const ebro_engine_options options = {.size = sizeof options,
                                         .n_ctx = n + 1 > n_seqs ? n + 1 : n_seqs,
                                         .cache_dtype = s->cache_dtype,
                                         .strict = o->strict,
                                         .max_seqs = n_seqs,
                                         .keep = EBRO_KEEP_NONE};
    ebro_engine *engine = NULL;
    ebro_error err = {0};
    int code = EB_EXIT_OK;
    ebro_seq **seqs = calloc(n_seqs, sizeof *seqs);
    if (!seqs) {
        eb_complain("out of memory for %u sequences", n_seqs);
        return EB_EXIT_MEMORY;
    }
    int32_t st = ebro_engine_open(s->model, s->device, &options, &engine, &err);
    if (st == EBRO_OK) st = start(engine, ids, seqs, n_seqs, &err);
    if (st == EBRO_OK) {
        double wall = eb_seconds(), cpu = eb_bench_cpu_seconds();
        st = decode(engine, ids, seqs, n_seqs, n, &err);
        *seconds = eb_seconds() - wall;
        *cpu_seconds = eb_bench_cpu_seconds() - cpu;
    }
    if (st != EBRO_OK) code = eb_session_complain(s, &err);
    ebro_engine_close(&engine);
    free(seqs);
    return code;
}
