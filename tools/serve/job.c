/* job.c: see job.h: a job's life, and the choice of its next token. */
#include "job.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double eb_serve_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int32_t eb_serve_fail(ebro_error *err, int32_t st, const char *fmt, ...) {
    va_list args;
    if (err == NULL) return st;
    err->status = st;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return st;
}

/* ---- life --------------------------------------------------------------------------------- */

static bool copy_stops(struct eb_job *job, const struct eb_job_spec *spec) {
    size_t bytes = spec->n_stops * sizeof *job->stops;
    for (size_t i = 0; i < spec->n_stops; i++) bytes += strlen(spec->stops[i]) + 1;
    if (spec->n_stops == 0) return true;
    job->stops = malloc(bytes);
    if (job->stops == NULL) return false;
    char *at = (char *)(job->stops + spec->n_stops);
    for (size_t i = 0; i < spec->n_stops; i++) {
        size_t n = strlen(spec->stops[i]) + 1;
        memcpy(at, spec->stops[i], n);
        job->stops[i] = at;
        at += n;
    }
    job->n_stops = spec->n_stops;
    return true;
}

static bool copy_biases(struct eb_job *job, const ebro_sampling *s) {
    if (s->n_biases == 0) return true;
    size_t bytes = s->n_biases * sizeof *job->biases;
    job->biases = malloc(bytes);
    if (job->biases == NULL) return false;
    memcpy(job->biases, s->biases, bytes);
    job->sampling.biases = job->biases;
    return true;
}

/* Room for the whole context, so that nothing has to grow while others wait for the thread. */
static bool copy_ids(struct eb_job *job, const struct eb_job_spec *spec, uint32_t n_ctx) {
    job->ids = malloc((size_t)n_ctx * sizeof *job->ids);
    if (job->ids == NULL) return false;
    memcpy(job->ids, spec->ids, spec->n_ids * sizeof *job->ids);
    job->n_prompt = job->n_ids = spec->n_ids;
    return true;
}

struct eb_job *eb_job_create(const struct eb_sched_options *o, const struct eb_job_spec *spec,
                             const struct eb_listener *listener, uint32_t choice, ebro_error *err) {
    struct eb_job *job = calloc(1, sizeof *job);
    ebro_model_info info;
    if (job != NULL) {
        ebro_model_get_info(o->model, &info);
        job->listener = *listener;
        job->runtime = o->runtime;
        job->model = o->model;
        job->vocab = info.vocab;
        job->sampling = spec->sampling;
        job->sampling.size = sizeof job->sampling;
        job->sampling.seed += choice;
        job->sampling.allowed = NULL;
        job->max_tokens = spec->max_tokens == 0 ? UINT32_MAX : spec->max_tokens;
        job->chat = spec->chat;
        job->thinking = spec->thinking;
        job->ignore_stop_tokens = spec->ignore_stop_tokens;
        job->logprobs = spec->logprobs;
        job->n_top = spec->n_top;
        job->grammar = spec->grammar;
        job->usage.prompt_tokens = (uint32_t)spec->n_ids;
        job->usage.miss = "";
    }
    if (job == NULL || !copy_ids(job, spec, o->n_ctx) || !copy_stops(job, spec) ||
        !copy_biases(job, &spec->sampling)) {
        eb_job_free(job);
        eb_serve_fail(err, EBRO_NOMEM_HOST, "out of memory for a request of %zu tokens",
                      spec->n_ids);
        return NULL;
    }
    return job;
}

void eb_job_free(struct eb_job *job) {
    if (job == NULL) return;
    ebro_seq_destroy(&job->seq);
    eb_text_close(&job->text);
    eb_walk_destroy(&job->walk);
    free(job->mask);
    free(job->ids);
    free(job->stops);
    free(job->biases);
    free(job);
}

int32_t eb_job_begin(struct eb_job *job, const struct eb_vocab *vocab, ebro_error *err) {
    int32_t st = eb_text_open(job, err);
    if (st != EBRO_OK || job->grammar == NULL) return st;
    job->mask = calloc(job->vocab / 32 + 1, sizeof *job->mask);
    if (job->mask == NULL)
        return eb_serve_fail(err, EBRO_NOMEM_HOST, "out of memory for a grammar's mask");
    return eb_walk_create(job->grammar, vocab, &job->walk, err);
}

/* ---- the next token ----------------------------------------------------------------------- */

/* Draws freely first: mostly the model writes what the grammar wants, and a mask of the whole
 * vocabulary is not needed. Where it does not, it draws once more among what is allowed, with
 * another seed, for the first draw has told something about the number drawn. */
static int32_t choose(struct eb_job *job, int32_t *id, ebro_error *err) {
    int32_t st = ebro_seq_sample(job->seq, &job->sampling, id, err);
    if (st != EBRO_OK || job->walk == NULL) return st;
    if (!eb_walk_allows(job->walk, *id)) {
        ebro_sampling again = job->sampling;
        again.seed ^= 0x9e3779b97f4a7c15u;
        again.allowed = job->mask;
        st = eb_walk_mask(job->walk, job->mask, err);
        if (st == EBRO_OK) st = ebro_seq_sample(job->seq, &again, id, err);
        if (st != EBRO_OK) return st;
    }
    return eb_walk_accept(job->walk, *id, err);
}

static int32_t last_logits(const struct eb_job *job, const float **logits, ebro_error *err) {
    uint32_t rows = 0;
    int32_t st = ebro_seq_logits(job->seq, logits, &rows, err);
    if (st == EBRO_OK) *logits += (size_t)(rows - 1) * job->vocab;
    return st;
}

static enum eb_finish stopped_by_itself(const struct eb_job *job) {
    return job->text.n_calls > 0 ? EB_FINISH_TOOL_CALLS : EB_FINISH_STOP;
}

int32_t eb_job_advance(struct eb_job *job, uint32_t n_ctx, enum eb_job_next *next,
                       enum eb_finish *how, ebro_error *err) {
    int32_t id = -1;
    const float *logits = NULL;
    int32_t st = job->logprobs ? last_logits(job, &logits, err) : EBRO_OK;
    if (st == EBRO_OK) st = choose(job, &id, err);
    if (st != EBRO_OK) return st;
    job->usage.completion_tokens++;
    *next = EB_JOB_ENDS;
    if (!job->ignore_stop_tokens && ebro_token_is_stop(job->model, id)) {
        st = eb_text_finish(job, err);
        *how = stopped_by_itself(job);
        return st;
    }
    st = eb_text_push(job, id, logits, err);
    if (st != EBRO_OK) return st;
    job->usage.reasoning_tokens += job->text.thought;
    if (job->text.stopped) {
        *how = EB_FINISH_STOP;
        return EBRO_OK;
    }
    if (job->usage.completion_tokens >= job->max_tokens || job->n_ids + 1 >= n_ctx) {
        *how = EB_FINISH_LENGTH;
        return eb_text_finish(job, err);
    }
    job->ids[job->n_ids++] = id;
    *next = EB_JOB_GOES_ON;
    return EBRO_OK;
}

void eb_job_flush(struct eb_job *job) {
    if (job->text.content != NULL && !job->text.stopped) (void)eb_text_finish(job, NULL);
}
