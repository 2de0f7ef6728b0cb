/* sched.c: see sched.h: the queue, and the thread that owns the engine. Each turn of it drops jobs
 * that nobody waits for, lets waiting ones in, evaluates one step, and has every job whose tokens
 * are evaluated choose its next one. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"

/* While others generate, the prompts' share of a step may take this much longer than their own part
 * does, so that the gaps between their tokens stay alike; but not less than so many seconds and
 * tokens, or prompts would crawl beside a single fast sequence. */
#define PROMPT_SHARE 4.0
#define LEAST_PROMPT_SECONDS 0.010
enum { LEAST_PROMPT_TOKENS = 16 };

struct list {
    struct eb_job *first, **end;
    uint32_t n;
};

struct eb_sched {
    struct eb_sched_options o;
    struct eb_vocab *vocab; /* made for the first grammar */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;

    /* under the lock */
    struct eb_job *incoming, **incoming_end;
    uint64_t next_number;
    bool closing;
    struct eb_sched_stats stats;
    struct eb_slot_info *slots; /* [n_seqs] */

    /* the thread's own */
    struct list waiting, running;
    bool
        crowded; /* a job was put back for want of memory: none comes in before another has ended */
    double decode_seconds;       /* of a step of single tokens alone, lately */
    double prompt_token_seconds; /* what a prompt's token adds, lately */
    struct eb_slot_info *now;    /* [n_seqs] */
    struct eb_sched_stats mine;  /* what the thread has counted since it last told */
};

/* ---- lists -------------------------------------------------------------------------------- */

static void list_clear(struct list *l) {
    *l = (struct list){.first = NULL};
    l->end = &l->first;
}

static void list_add(struct list *l, struct eb_job *job) {
    job->next = NULL;
    *l->end = job;
    l->end = &job->next;
    l->n++;
}

static void list_add_first(struct list *l, struct eb_job *job) {
    job->next = l->first;
    if (l->first == NULL) l->end = &job->next;
    l->first = job;
    l->n++;
}

static void list_remove(struct list *l, struct eb_job *job) {
    struct eb_job **at = &l->first;
    while (*at != job) at = &(*at)->next;
    *at = job->next;
    if (*at == NULL) l->end = at;
    job->next = NULL;
    l->n--;
}

static struct eb_job *list_find(const struct list *l, uint64_t number) {
    struct eb_job *job = l->first;
    while (job != NULL && job->number != number) job = job->next;
    return job;
}

/* ---- counting ----------------------------------------------------------------------------- */

static void count_seconds(struct eb_histogram *h, double seconds) {
    int bucket = 0;
    for (double most = 0.001; bucket < EB_HISTOGRAM_BUCKETS - 1 && seconds > most; most *= 2)
        bucket++;
    h->counts[bucket]++;
    h->n++;
    h->sum += seconds;
}

static void smooth(double *mean, double value) {
    *mean = *mean == 0.0 ? value : 0.8 * *mean + 0.2 * value;
}

static void add_counts(uint64_t *to, uint64_t *from) {
    *to += *from;
    *from = 0;
}

static void add_histogram(struct eb_histogram *to, struct eb_histogram *from) {
    for (int i = 0; i < EB_HISTOGRAM_BUCKETS; i++) to->counts[i] += from->counts[i];
    to->n += from->n;
    to->sum += from->sum;
    *from = (struct eb_histogram){0};
}

static enum eb_slot_state slot_state(const struct eb_job *job) {
    return ebro_seq_pending(job->seq) > 1 || !job->started ? EB_SLOT_PROMPT : EB_SLOT_DECODE;
}

static void look_at_slots(struct eb_sched *s) {
    uint32_t n = 0;
    memset(s->now, 0, s->o.n_seqs * sizeof *s->now);
    for (const struct eb_job *job = s->running.first; job != NULL; job = job->next) {
        ebro_reuse r = {.size = sizeof r};
        ebro_seq_get_reuse(job->seq, &r);
        s->now[n++] = (struct eb_slot_info){.state = slot_state(job),
                                            .job = job->number,
                                            .prompt_tokens = job->usage.prompt_tokens,
                                            .cached_tokens = r.n_reused,
                                            .tokens = (uint32_t)job->n_ids,
                                            .pending = ebro_seq_pending(job->seq),
                                            .miss = r.reason};
    }
}

/* What the thread has counted becomes visible to others. */
static void publish(struct eb_sched *s) {
    struct eb_sched_stats *m = &s->mine, *t = &s->stats;
    look_at_slots(s);
    m->memory = (ebro_memory){.size = sizeof m->memory};
    ebro_engine_get_memory(s->o.engine, &m->memory);
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i <= EB_FINISH_ERROR; i++) add_counts(&t->finished[i], &m->finished[i]);
    add_counts(&t->preempted, &m->preempted);
    add_counts(&t->prompt_tokens, &m->prompt_tokens);
    add_counts(&t->cached_tokens, &m->cached_tokens);
    add_counts(&t->completion_tokens, &m->completion_tokens);
    add_counts(&t->steps, &m->steps);
    add_counts(&t->step_rows, &m->step_rows);
    add_counts(&t->step_sequences, &m->step_sequences);
    add_histogram(&t->queue, &m->queue);
    add_histogram(&t->first, &m->first);
    add_histogram(&t->gap, &m->gap);
    add_histogram(&t->step, &m->step);
    t->status = m->status;
    t->last = m->last;
    t->last_cache_bytes = m->last_cache_bytes;
    t->memory = m->memory;
    t->n_running = s->running.n;
    t->n_waiting = s->waiting.n;
    for (const struct eb_job *job = s->incoming; job != NULL; job = job->next) t->n_waiting++;
    memcpy(s->slots, s->now, s->o.n_seqs * sizeof *s->now);
    pthread_mutex_unlock(&s->lock);
}

/* ---- ends --------------------------------------------------------------------------------- */

/* The job is in no list any more. What was held back of its text is told, the sequence goes (and
 * leaves a snapshot for whoever goes on from it), and at last the listener hears the end. */
static void end(struct eb_sched *s, struct eb_job *job, enum eb_finish how, const ebro_error *err) {
    if (job->started) {
        if (how == EB_FINISH_ERROR) eb_job_flush(job);
        job->usage.decode_seconds = eb_serve_clock() - job->prompted;
    }
    ebro_seq_destroy(&job->seq);
    s->crowded = false;
    s->mine.finished[how]++;
    s->mine.completion_tokens += job->usage.completion_tokens;
    job->listener.finish(job->listener.user, how, &job->usage, how == EB_FINISH_ERROR ? err : NULL);
    eb_job_free(job);
}

static void end_in(struct eb_sched *s, struct list *l, struct eb_job *job, enum eb_finish how,
                   const ebro_error *err) {
    list_remove(l, job);
    end(s, job, how, err);
}

static void end_all(struct eb_sched *s, enum eb_finish how, const ebro_error *err) {
    while (s->running.first != NULL) end_in(s, &s->running, s->running.first, how, err);
    while (s->waiting.first != NULL) end_in(s, &s->waiting, s->waiting.first, how, err);
}

/* Nothing works any more: what runs and waits ends with the reason, and so will what comes. */
static void give_up(struct eb_sched *s, const ebro_error *err) {
    s->mine.status = err->status;
    end_all(s, EB_FINISH_ERROR, err);
}

/* The youngest job gives its memory to the others and starts again once one of them has ended. Its
 * tokens stay, so that nothing is written twice; what it evaluated may still be found. */
static void put_back_youngest(struct eb_sched *s) {
    struct eb_job *youngest = s->running.first;
    for (struct eb_job *job = youngest; job != NULL; job = job->next)
        if (job->number > youngest->number) youngest = job;
    list_remove(&s->running, youngest);
    ebro_seq_destroy(&youngest->seq);
    list_add_first(&s->waiting, youngest);
    s->crowded = true;
    s->mine.preempted++;
}

/* Memory is short: true where another job could make room. */
static bool make_room(struct eb_sched *s) {
    if (s->running.n < 2) return false;
    put_back_youngest(s);
    return true;
}

/* ---- a turn ------------------------------------------------------------------------------- */

static void drop_gone(struct eb_sched *s, struct list *l) {
    for (struct eb_job *job = l->first, *next; job != NULL; job = next) {
        next = job->next;
        if (job->listener.gone(job->listener.user)) end_in(s, l, job, EB_FINISH_CANCELLED, NULL);
    }
}

static int32_t begin(struct eb_sched *s, struct eb_job *job, ebro_error *err) {
    if (job->grammar != NULL && s->vocab == NULL) {
        int32_t st = eb_vocab_create(s->o.model, &s->vocab, err);
        if (st != EBRO_OK) return st;
    }
    return eb_job_begin(job, s->vocab, err);
}

static int32_t open_sequence(struct eb_sched *s, struct eb_job *job, ebro_error *err) {
    int32_t st = job->text.content == NULL ? begin(s, job, err) : EBRO_OK;
    if (st == EBRO_OK) st = ebro_seq_create(s->o.engine, &job->seq, err);
    if (st == EBRO_OK) st = ebro_seq_append(job->seq, job->ids, job->n_ids, 0, err);
    if (st != EBRO_OK) ebro_seq_destroy(&job->seq);
    return st;
}

/* Another choice of the same request still reads the prompt that both have. */
static bool follows(const struct eb_sched *s, const struct eb_job *job) {
    if (job->leader == 0) return false;
    const struct eb_job *leader = list_find(&s->running, job->leader);
    if (leader == NULL) leader = list_find(&s->waiting, job->leader);
    return leader != NULL && !leader->started;
}

static void admit(struct eb_sched *s) {
    ebro_error err;
    for (struct eb_job *job = s->waiting.first, *next; job != NULL; job = next) {
        next = job->next;
        if (s->crowded || s->running.n == s->o.n_seqs) return;
        if (follows(s, job)) continue;
        int32_t st = open_sequence(s, job, &err);
        if (st == EBRO_NOMEM_DEVICE && s->running.n > 0) return;
        if (st != EBRO_OK) {
            end_in(s, &s->waiting, job, EB_FINISH_ERROR, &err);
            continue;
        }
        list_remove(&s->waiting, job);
        list_add(&s->running, job);
        if (job->admitted != 0.0) continue;
        job->admitted = eb_serve_clock();
        job->usage.queue_seconds = job->admitted - job->submitted;
        count_seconds(&s->mine.queue, job->usage.queue_seconds);
    }
}

/* How many prompt tokens the next step may take. */
static uint32_t prompt_limit(const struct eb_sched *s, uint32_t n_decoding) {
    if (n_decoding == 0 || s->prompt_token_seconds <= 0.0) return 0;
    double seconds = PROMPT_SHARE * s->decode_seconds;
    if (seconds < LEAST_PROMPT_SECONDS) seconds = LEAST_PROMPT_SECONDS;
    double n = seconds / s->prompt_token_seconds;
    return n < LEAST_PROMPT_TOKENS ? LEAST_PROMPT_TOKENS : n < 1e9 ? (uint32_t)n : 0;
}

static void note_step(struct eb_sched *s, uint32_t n_rows, uint32_t n_decoding, double seconds) {
    uint32_t n_prompt = n_rows - n_decoding;
    s->mine.steps++;
    s->mine.step_rows += n_rows;
    s->mine.step_sequences += s->running.n;
    count_seconds(&s->mine.step, seconds);
    if (n_prompt == 0) {
        smooth(&s->decode_seconds, seconds);
        return;
    }
    double own = n_decoding > 0 ? s->decode_seconds : 0.0;
    if (seconds > own) smooth(&s->prompt_token_seconds, (seconds - own) / n_prompt);
}

/* After a step that failed: those whose sequences it has spoilt end; of no memory the youngest
 * makes room; where that helps nobody, all end. */
static void settle_failure(struct eb_sched *s, int32_t st, const ebro_error *err) {
    uint32_t n_before = s->running.n;
    for (struct eb_job *job = s->running.first, *next; job != NULL; job = next) {
        next = job->next;
        if (ebro_seq_status(job->seq) != EBRO_OK) end_in(s, &s->running, job, EB_FINISH_ERROR, err);
    }
    if (st == EBRO_DEVICE_LOST) {
        give_up(s, err);
    } else if (st == EBRO_NOMEM_DEVICE || st == EBRO_NOMEM_HOST) {
        if (s->running.n == n_before && !make_room(s)) end_all(s, EB_FINISH_ERROR, err);
    } else if (s->running.n == n_before) {
        end_all(s, EB_FINISH_ERROR, err);
    }
}

static void step(struct eb_sched *s) {
    uint32_t n_decoding = 0;
    uint64_t before = 0, after = 0;
    ebro_error err;
    for (const struct eb_job *job = s->running.first; job != NULL; job = job->next) {
        n_decoding += ebro_seq_pending(job->seq) == 1;
        before += ebro_seq_length(job->seq);
    }
    ebro_engine_limit_prompts(s->o.engine, prompt_limit(s, n_decoding));
    double begin = eb_serve_clock();
    int32_t st = ebro_engine_step(s->o.engine, &err);
    if (st != EBRO_OK) {
        settle_failure(s, st, &err);
        return;
    }
    for (const struct eb_job *job = s->running.first; job != NULL; job = job->next)
        after += ebro_seq_length(job->seq);
    note_step(s, (uint32_t)(after - before), n_decoding, eb_serve_clock() - begin);
}

/* The prompt is evaluated for the first time. */
static void start(struct eb_sched *s, struct eb_job *job, double now) {
    ebro_reuse r = {.size = sizeof r};
    ebro_seq_get_reuse(job->seq, &r);
    job->started = true;
    job->prompted = now;
    job->usage.matched_tokens = r.n_matched;
    job->usage.cached_tokens = r.n_reused;
    job->usage.miss = r.reason;
    job->usage.prompt_seconds = now - job->admitted;
    s->mine.prompt_tokens += job->usage.prompt_tokens;
    s->mine.cached_tokens += r.n_reused;
    s->mine.last = job->usage;
    s->mine.last_cache_bytes = s->o.state_bytes + r.n_prompt * s->o.token_bytes;
    count_seconds(&s->mine.first, now - job->submitted);
    job->listener.start(job->listener.user, &job->usage);
}

/* The token that the job has chosen goes to its sequence. Where memory is short for it, and the
 * youngest job, which makes room, is this one, its turn is over. */
static void append(struct eb_sched *s, struct eb_job *job) {
    ebro_error err;
    for (;;) {
        int32_t st = ebro_seq_append(job->seq, &job->ids[job->n_ids - 1], 1, 0, &err);
        if (st == EBRO_OK) return;
        if (st != EBRO_NOMEM_DEVICE || !make_room(s)) {
            end_in(s, &s->running, job, EB_FINISH_ERROR, &err);
            return;
        }
        if (job->seq == NULL) return;
    }
}

static void advance(struct eb_sched *s, struct eb_job *job) {
    enum eb_job_next next = EB_JOB_ENDS;
    enum eb_finish how = EB_FINISH_ERROR;
    ebro_error err;
    double now = eb_serve_clock();
    if (job->started)
        count_seconds(&s->mine.gap, now - job->last_token);
    else
        start(s, job, now);
    job->last_token = now;
    int32_t st = eb_job_advance(job, s->o.n_ctx, &next, &how, &err);
    if (st != EBRO_OK)
        end_in(s, &s->running, job, EB_FINISH_ERROR, &err);
    else if (next == EB_JOB_ENDS)
        end_in(s, &s->running, job, how, NULL);
    else
        append(s, job);
}

/* Every job that is evaluated chooses its next token. Jobs may leave the list on the way, also
 * others than the one whose turn it is: each is looked for by its number. */
static void advance_all(struct eb_sched *s) {
    uint64_t last = 0;
    for (;;) {
        struct eb_job *next = NULL;
        for (struct eb_job *job = s->running.first; job != NULL; job = job->next)
            if (job->number > last && (next == NULL || job->number < next->number)) next = job;
        if (next == NULL) return;
        last = next->number;
        if (ebro_seq_pending(next->seq) == 0) advance(s, next);
    }
}

/* ---- the thread --------------------------------------------------------------------------- */

/* Takes what has come; waits where there is nothing to do. False: it is time to end. */
static bool fetch(struct eb_sched *s) {
    pthread_mutex_lock(&s->lock);
    while (!s->closing && s->incoming == NULL && s->running.n == 0 && s->waiting.n == 0)
        pthread_cond_wait(&s->wake, &s->lock);
    bool on = !s->closing;
    struct eb_job *job = s->incoming;
    s->incoming = NULL;
    s->incoming_end = &s->incoming;
    pthread_mutex_unlock(&s->lock);
    while (job != NULL) {
        struct eb_job *next = job->next;
        list_add(&s->waiting, job);
        job = next;
    }
    return on;
}

static void *run(void *arg) {
    struct eb_sched *s = arg;
    while (fetch(s)) {
        drop_gone(s, &s->waiting);
        drop_gone(s, &s->running);
        if (s->mine.status != EBRO_OK) {
            ebro_error err;
            eb_serve_fail(&err, s->mine.status,
                          "the device was lost; the server must be restarted");
            give_up(s, &err);
        }
        admit(s);
        if (s->running.n > 0) step(s);
        advance_all(s);
        publish(s);
    }
    end_all(s, EB_FINISH_CANCELLED, NULL);
    publish(s);
    return NULL;
}

/* ---- calls from other threads ------------------------------------------------------------- */

int32_t eb_sched_open(const struct eb_sched_options *options, struct eb_sched **out,
                      ebro_error *err) {
    *out = NULL;
    struct eb_sched *s = calloc(1, sizeof *s);
    if (s != NULL) {
        s->o = *options;
        s->slots = calloc(options->n_seqs, sizeof *s->slots);
        s->now = calloc(options->n_seqs, sizeof *s->now);
    }
    if (s == NULL || s->slots == NULL || s->now == NULL) {
        if (s != NULL) free(s->slots), free(s->now);
        free(s);
        return eb_serve_fail(err, EBRO_NOMEM_HOST, "out of memory for the scheduler");
    }
    list_clear(&s->waiting);
    list_clear(&s->running);
    s->incoming_end = &s->incoming;
    s->stats.memory.size = sizeof s->stats.memory;
    ebro_engine_get_memory(options->engine, &s->stats.memory);
    s->stats.last.miss = "";
    s->mine.last.miss = "";
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    if (pthread_create(&s->thread, NULL, run, s) != 0) {
        pthread_cond_destroy(&s->wake);
        pthread_mutex_destroy(&s->lock);
        free(s->slots);
        free(s->now);
        free(s);
        return eb_serve_fail(err, EBRO_INTERNAL, "the system gives no thread for the scheduler");
    }
    *out = s;
    return EBRO_OK;
}

void eb_sched_close(struct eb_sched **sched) {
    if (sched == NULL || *sched == NULL) return;
    struct eb_sched *s = *sched;
    *sched = NULL;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    eb_vocab_destroy(&s->vocab);
    free(s->slots);
    free(s->now);
    free(s);
}

static int32_t check(const struct eb_sched *s, const struct eb_job_spec *spec, uint32_t n_choices,
                     ebro_error *err) {
    if (spec->n_ids == 0 || n_choices == 0)
        return eb_serve_fail(err, EBRO_INVALID,
                             "the prompt is empty: at least one token is needed");
    if (spec->n_ids >= s->o.n_ctx)
        return eb_serve_fail(err, EBRO_INVALID,
                             "the prompt has %zu tokens, and the context holds %u (-c sets it): "
                             "no room is left for a reply",
                             spec->n_ids, s->o.n_ctx);
    if (n_choices > s->o.n_queue + s->o.n_seqs)
        return eb_serve_fail(err, EBRO_INVALID,
                             "%u replies at once: this server runs %u and lets %u wait", n_choices,
                             s->o.n_seqs, s->o.n_queue);
    if (spec->n_top > 20)
        return eb_serve_fail(err, EBRO_INVALID, "top logprobs of %u tokens: at most 20",
                             spec->n_top);
    return EBRO_OK;
}

static void free_all(struct eb_job *job) {
    while (job != NULL) {
        struct eb_job *next = job->next;
        eb_job_free(job);
        job = next;
    }
}

/* Under the lock: whether so many more may come. */
static int32_t enter(struct eb_sched *s, uint32_t n, ebro_error *err) {
    const struct eb_sched_stats *t = &s->stats;
    uint32_t most = s->o.n_queue + s->o.n_seqs, there = t->n_waiting + t->n_running;
    if (t->status != EBRO_OK)
        return eb_serve_fail(err, t->status, "the device was lost; the server must be restarted");
    if (t->draining || s->closing)
        return eb_serve_fail(err, EBRO_CANCELLED, "the server is about to end");
    if (there <= most && n <= most - there) return EBRO_OK;
    s->stats.refused++;
    return eb_serve_fail(err, EBRO_TIMEOUT,
                         "the queue is full: %u replies run or wait, and at most %u may run and "
                         "%u wait; try again later",
                         there, s->o.n_seqs, s->o.n_queue);
}

int32_t eb_sched_submit(struct eb_sched *sched, const struct eb_job_spec *spec,
                        const struct eb_listener *listeners, uint32_t n_choices, ebro_error *err) {
    struct list jobs;
    list_clear(&jobs);
    int32_t st = check(sched, spec, n_choices, err);
    if (st != EBRO_OK) return st;
    for (uint32_t i = 0; i < n_choices; i++) {
        struct eb_job *job = eb_job_create(&sched->o, spec, &listeners[i], i, err);
        if (job == NULL) {
            free_all(jobs.first);
            return EBRO_NOMEM_HOST;
        }
        job->submitted = eb_serve_clock();
        list_add(&jobs, job);
    }
    pthread_mutex_lock(&sched->lock);
    st = enter(sched, n_choices, err);
    if (st == EBRO_OK) {
        uint64_t leader = sched->next_number + 1;
        for (struct eb_job *job = jobs.first; job != NULL; job = job->next) {
            job->number = ++sched->next_number;
            job->leader = job->number == leader ? 0 : leader;
        }
        *sched->incoming_end = jobs.first;
        sched->incoming_end = jobs.end;
        sched->stats.n_waiting += n_choices;
        sched->stats.submitted += n_choices;
        pthread_cond_signal(&sched->wake);
    }
    pthread_mutex_unlock(&sched->lock);
    if (st != EBRO_OK) free_all(jobs.first);
    return st;
}

bool eb_sched_drain(struct eb_sched *sched) {
    pthread_mutex_lock(&sched->lock);
    sched->stats.draining = true;
    bool idle = sched->stats.n_running == 0 && sched->stats.n_waiting == 0;
    pthread_mutex_unlock(&sched->lock);
    return idle;
}

void eb_sched_get_stats(struct eb_sched *sched, struct eb_sched_stats *out,
                        struct eb_slot_info *slots, uint32_t capacity) {
    pthread_mutex_lock(&sched->lock);
    *out = sched->stats;
    uint32_t n = capacity < sched->o.n_seqs ? capacity : sched->o.n_seqs;
    if (n > 0) memcpy(slots, sched->slots, n * sizeof *slots);
    pthread_mutex_unlock(&sched->lock);
}
