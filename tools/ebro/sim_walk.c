/* sim_walk.c: spells the requests of a trace out, token by token, and keeps what sessions hold. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "sim.h"

static int32_t add_to_chain(struct eb_sim_chain *c, struct eb_sim_part p, ebro_error *err) {
    void *parts = c->parts;
    int32_t st = eb_grow(NULL, &parts, &c->capacity, c->n + 1, sizeof p, err);
    c->parts = parts;
    if (st != EBRO_OK) return st;
    c->parts[c->n++] = p;
    c->n_tokens += p.n;
    return EBRO_OK;
}

static void cut_chain(struct eb_sim_chain *c, uint64_t n_tokens) {
    while (c->n_tokens > n_tokens) {
        struct eb_sim_part *last = &c->parts[c->n - 1];
        uint64_t over = c->n_tokens - n_tokens;
        if (over < last->n) {
            last->n -= (uint32_t)over;
            c->n_tokens = n_tokens;
        } else {
            c->n_tokens -= last->n;
            c->n--;
        }
    }
}

/* The request that the walk stands at cannot be spelled out. */
static int32_t wrong(const struct eb_sim_walk *w, ebro_error *err, const char *fmt, ...)
    EB_PRINTF(3, 4);
static int32_t wrong(const struct eb_sim_walk *w, ebro_error *err, const char *fmt, ...) {
    char what[128];
    va_list ap;
    va_start(ap, fmt);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started the line before */
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return eb_fail(err, EBRO_INVALID, "%s, line %llu: %s", w->trace->label,
                   (unsigned long long)w->request->line, what);
}

static int32_t spell(struct eb_sim_walk *w, const struct eb_sim_part *p, size_t *n,
                     ebro_error *err) {
    void *ids = w->ids;
    int32_t st = eb_grow(NULL, &ids, &w->capacity, *n + p->n, sizeof *w->ids, err);
    w->ids = ids;
    if (st != EBRO_OK) return st;
    for (uint32_t i = 0; i < p->n; i++) {
        int32_t id =
            p->given ? w->trace->ids[p->from + i] : eb_sim_token(p->name, p->from + i, w->vocab);
        if ((uint32_t)id >= w->vocab)
            return wrong(w, err, "token id %d, the vocabulary has 0 to %u", id, w->vocab - 1);
        w->ids[(*n)++] = id;
    }
    return EBRO_OK;
}

static int32_t check_length(const struct eb_sim_walk *w, const struct eb_sim_chain *c) {
    const struct eb_sim_request *q = w->request;
    uint64_t n = c != NULL ? c->n_tokens : 0;
    for (uint32_t i = 0; i < q->n_parts + q->n_reply; i++)
        n += w->trace->parts[q->first_part + i].n;
    return n <= EB_SIM_MAX_PROMPT ? EBRO_OK : EBRO_INVALID;
}

static int32_t spell_request(struct eb_sim_walk *w, struct eb_sim_chain *c, ebro_error *err) {
    const struct eb_sim_request *q = w->request;
    size_t n = 0;
    int32_t st = EBRO_OK;
    if (check_length(w, c) != EBRO_OK)
        return wrong(w, err, "more than %d tokens", EB_SIM_MAX_PROMPT);
    for (size_t i = 0; st == EBRO_OK && c != NULL && i < c->n; i++)
        st = spell(w, &c->parts[i], &n, err);
    for (uint32_t i = 0; st == EBRO_OK && i < q->n_parts; i++)
        st = spell(w, &w->trace->parts[q->first_part + i], &n, err);
    if (st == EBRO_OK && n == 0) return wrong(w, err, "an empty prompt");
    w->n_prompt = (uint32_t)n;
    if (st == EBRO_OK && q->n_reply > 0)
        st = spell(w, &w->trace->parts[q->first_part + q->n_parts], &n, err);
    w->n_reply = (uint32_t)n - w->n_prompt;
    return st;
}

static int32_t next(struct eb_sim_walk *w, ebro_error *err) {
    const struct eb_sim_request *q = w->request = &w->trace->requests[w->next++];
    if (w->sessions == NULL && w->trace->n_sessions > 0) {
        w->sessions = eb_calloc(NULL, w->trace->n_sessions, sizeof *w->sessions, err);
        if (w->sessions == NULL) return EBRO_NOMEM_HOST;
    }
    struct eb_sim_chain *c = q->session != EB_SIM_NONE ? &w->sessions[q->session] : NULL;
    if (q->cut != EB_SIM_NONE) {
        if (q->cut > c->n_tokens)
            return wrong(w, err, "cut after token %u, the session has %llu", q->cut,
                         (unsigned long long)c->n_tokens);
        cut_chain(c, q->cut);
    }
    int32_t st = spell_request(w, c, err);
    for (uint32_t i = 0; st == EBRO_OK && c != NULL && i < q->n_parts + q->n_reply; i++)
        st = add_to_chain(c, w->trace->parts[q->first_part + i], err);
    return st;
}

bool eb_sim_step(struct eb_sim_walk *w, int32_t *st, ebro_error *err) {
    *st = EBRO_OK;
    if (w->next == w->trace->n_requests) return false;
    *st = next(w, err);
    return *st == EBRO_OK;
}

void eb_sim_walk_free(struct eb_sim_walk *w) {
    for (uint32_t i = 0; w->sessions != NULL && i < w->trace->n_sessions; i++)
        eb_free(NULL, w->sessions[i].parts);
    eb_free(NULL, w->sessions);
    eb_free(NULL, w->ids);
    *w = (struct eb_sim_walk){0};
}
