/* metrics.c: /metrics: counters as Prometheus reads them, in its text format. */
#include <inttypes.h>
#include <string.h>

#include "answer.h"
#include "buf.h"
#include "routes.h"

/* A text that grows, and whether it could. */
struct page {
    struct eb_buf buf;
    bool failed;
};

static void head(struct page *p, const char *name, const char *type, const char *help) {
    if (!eb_buf_print(&p->buf, "# HELP ebro_%s %s\n# TYPE ebro_%s %s\n", name, help, name, type))
        p->failed = true;
}

static void value(struct page *p, const char *name, const char *labels, uint64_t n) {
    if (!eb_buf_print(&p->buf, "ebro_%s%s %" PRIu64 "\n", name, labels, n)) p->failed = true;
}

static void counter(struct page *p, const char *name, const char *help, uint64_t n) {
    head(p, name, "counter", help);
    value(p, name, "", n);
}

static void gauge(struct page *p, const char *name, const char *help, uint64_t n) {
    head(p, name, "gauge", help);
    value(p, name, "", n);
}

/* Buckets end at 1 ms, 2 ms, ... 2^14 ms; Prometheus wants them summed up. */
static void histogram(struct page *p, const char *name, const char *help,
                      const struct eb_histogram *h) {
    uint64_t sum = 0;
    head(p, name, "histogram", help);
    for (int i = 0; i + 1 < EB_HISTOGRAM_BUCKETS; i++) {
        sum += h->counts[i];
        if (!eb_buf_print(&p->buf, "ebro_%s_bucket{le=\"%.3f\"} %" PRIu64 "\n", name,
                          0.001 * (double)(1 << i), sum))
            p->failed = true;
    }
    if (!eb_buf_print(&p->buf,
                      "ebro_%s_bucket{le=\"+Inf\"} %" PRIu64 "\nebro_%s_sum %.6f\nebro_%s_count "
                      "%" PRIu64 "\n",
                      name, h->n, name, h->sum, name, h->n))
        p->failed = true;
}

/* ---- what is counted ---------------------------------------------------------------------- */

static void jobs(struct page *p, const struct eb_sched_stats *s) {
    static const char *const ends[] = {"{end=\"stop\"}", "{end=\"length\"}", "{end=\"tool_calls\"}",
                                       "{end=\"cancelled\"}", "{end=\"error\"}"};
    gauge(p, "up", "1 while the engine runs, 0 once its device is lost", s->status == EBRO_OK);
    gauge(p, "draining", "1 where no new requests are taken", s->draining);
    gauge(p, "jobs_waiting", "Replies that wait", s->n_waiting);
    gauge(p, "jobs_running", "Replies that are being read for or written", s->n_running);
    counter(p, "jobs_submitted_total", "Replies that were queued", s->submitted);
    counter(p, "jobs_refused_total", "Requests that found the queue full", s->refused);
    counter(p, "jobs_preempted_total", "Replies that had to wait again for memory", s->preempted);
    head(p, "jobs_finished_total", "counter", "Replies that ended, by how");
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        value(p, "jobs_finished_total", ends[i], s->finished[i]);
}

static void tokens(struct page *p, const struct eb_service *service,
                   const struct eb_sched_stats *s) {
    counter(p, "prompt_tokens_total", "Tokens of prompts, reused ones included", s->prompt_tokens);
    counter(p, "cached_tokens_total", "Tokens of prompts that were reused", s->cached_tokens);
    counter(p, "completion_tokens_total", "Tokens that were written", s->completion_tokens);
    counter(p, "steps_total", "Steps of the engine", s->steps);
    counter(p, "step_rows_total", "Tokens that steps evaluated", s->step_rows);
    counter(p, "step_sequences_total", "Sequences in steps; by steps_total the mean batch",
            s->step_sequences);
    counter(p, "cache_written_bytes_total", "Rows written to the latent cache",
            s->memory.evaluated_tokens * service->token_bytes);
    histogram(p, "queue_seconds", "Time that replies waited", &s->queue);
    histogram(p, "first_token_seconds", "Time from a request to its first token", &s->first);
    histogram(p, "token_gap_seconds", "Time between two tokens of a reply", &s->gap);
    histogram(p, "step_seconds", "Time of a step", &s->step);
}

static void reuse(struct page *p, const ebro_memory *m) {
    static const char *const misses[EBRO_N_MISSES] = {
        "{miss=\"none\"}",        "{miss=\"new\"}",     "{miss=\"off\"}",
        "{miss=\"no_snapshot\"}", "{miss=\"evicted\"}", "{miss=\"earlier\"}",
    };
    head(p, "prompts_total", "counter", "Prompts, by why no more of them was reused");
    for (size_t i = 0; i < EBRO_N_MISSES; i++) value(p, "prompts_total", misses[i], m->misses[i]);
    counter(p, "matched_tokens_total", "Tokens of prompts that were seen before",
            m->matched_tokens);
    counter(p, "evaluated_tokens_total", "Tokens that were evaluated", m->evaluated_tokens);
    counter(p, "snapshots_kept_total", "Snapshots that were kept", m->snapshots_kept);
    counter(p, "snapshots_refused_total", "Snapshots that memory had no room for",
            m->snapshots_refused);
    counter(p, "evictions_total", "Snapshots that were given up", m->evictions);
    counter(p, "copied_pages_total", "Pages that were copied since two sequences shared them",
            m->copied_pages);
    counter(p, "host_saves_total", "Snapshots that were copied to the host", m->host_saves);
    counter(p, "host_loads_total", "Snapshots that came back from the host", m->host_loads);
}

static void memory(struct page *p, const ebro_memory *m) {
    gauge(p, "memory_budget_bytes", "Memory that caches and states may take", m->budget_bytes);
    gauge(p, "memory_taken_bytes", "Memory taken from the device so far", m->taken_bytes);
    gauge(p, "memory_peak_bytes", "Most that was held at once", m->peak_bytes);
    head(p, "memory_bytes", "gauge", "Memory that is held, by use");
    value(p, "memory_bytes", "{use=\"live_pages\"}", m->live_page_bytes);
    value(p, "memory_bytes", "{use=\"live_states\"}", m->live_state_bytes);
    value(p, "memory_bytes", "{use=\"kept_pages\"}", m->kept_page_bytes);
    value(p, "memory_bytes", "{use=\"kept_states\"}", m->kept_state_bytes);
    value(p, "memory_bytes", "{use=\"host_copies\"}", m->host_bytes);
    gauge(p, "snapshots", "Snapshots that are held", m->n_snapshots);
}

static void answers(struct page *p, struct eb_traffic *t) {
    static const char *const classes[] = {"{status=\"2xx\"}", "{status=\"3xx\"}",
                                          "{status=\"4xx\"}", "{status=\"5xx\"}"};
    head(p, "http_answers_total", "counter", "Answers, by status");
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        value(p, "http_answers_total", classes[i], atomic_load(&t->answers[i + 2]));
}

void eb_answer_metrics(const struct eb_service *s, struct eb_exchange *x) {
    const struct eb_answer a = {.status = 200, .type = "text/plain; version=0.0.4; charset=utf-8"};
    struct eb_sched_stats stats;
    struct page p = {0};
    struct eb_fault fault;
    eb_sched_get_stats(s->sched, &stats, NULL, 0);
    jobs(&p, &stats);
    tokens(&p, s, &stats);
    reuse(&p, &stats.memory);
    memory(&p, &stats.memory);
    answers(&p, s->traffic);
    if (!p.failed) {
        x->ops->answer(x, &a, p.buf.data, p.buf.n);
        return;
    }
    eb_buf_free(&p.buf);
    eb_fault_no_memory(&fault);
    eb_exchange_refuse(x, &fault);
}
