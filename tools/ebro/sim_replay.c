/* sim_replay.c: a trace through the memory manager alone. It must do to the manager exactly what an
 * engine with one sequence does (runtime/engine/batch.c). */
#include "sim.h"

/* As many tokens as one step of the engine takes. */
static uint32_t step_rows(const struct eb_seq *s, uint32_t n_chunk) {
    uint32_t n = s->n_tokens - s->n_done;
    return eb_seq_fit(s, n < n_chunk ? n : n_chunk);
}

static int32_t evaluate(struct eb_seq *s, const struct eb_sim_setting *set, ebro_error *err) {
    while (s->n_done < s->n_tokens) {
        bool in_place = !set->cancellable || s->n_tokens - s->n_done == 1;
        struct eb_seq_step step;
        int32_t st = eb_seq_begin(s, step_rows(s, set->n_chunk), in_place, &step, err);
        if (st != EBRO_OK) return st;
        eb_seq_commit(s, &step);
    }
    return EBRO_OK;
}

static int32_t answer(struct eb_seq *s, const struct eb_sim_walk *w,
                      const struct eb_sim_setting *set, ebro_error *err) {
    uint32_t n_ctx = set->n_ctx != 0 ? set->n_ctx : UINT32_MAX;
    if (w->n_prompt > n_ctx)
        return eb_fail(err, EBRO_NOMEM_DEVICE, "a prompt of %u tokens: the context has %u",
                       w->n_prompt, n_ctx);
    int32_t st = eb_seq_push(s, w->ids, w->n_prompt, 1, err);
    for (uint32_t i = 0; st == EBRO_OK && i < w->request->n_keep; i++) {
        uint32_t position = w->trace->keeps[w->request->first_keep + i];
        /* a snapshot before what was resumed from is there or past */
        if (position > s->n_done && position <= s->n_tokens) st = eb_seq_wish(s, position, err);
    }
    if (st == EBRO_OK) st = evaluate(s, set, err);
    for (uint32_t i = 0; st == EBRO_OK && i < w->n_reply && w->n_prompt + i < n_ctx; i++) {
        st = eb_seq_push(s, w->ids + w->n_prompt + i, 1, 1, err);
        if (st == EBRO_OK) st = evaluate(s, set, err);
    }
    return st;
}

static int32_t replay_one(struct eb_manager *m, const struct eb_sim_walk *w,
                          const struct eb_sim_setting *set, struct eb_sim_result *out,
                          ebro_error *err) {
    struct eb_seq *s = NULL;
    int32_t st = eb_seq_open(m, &s, err);
    if (st == EBRO_OK) st = answer(s, w, set, err);
    out->asked_tokens += w->n_prompt;
    if (st == EBRO_OK) out->saved_tokens += s->reuse.reused;
    eb_seq_close(&s);
    if (st != EBRO_NOMEM_DEVICE) return st;
    out->n_refused++;
    out->refused_tokens += w->n_prompt;
    return EBRO_OK;
}

int32_t eb_sim_replay(const struct eb_sim_trace *t, const struct eb_sim_setting *set,
                      struct eb_sim_result *out, ebro_error *err) {
    const struct eb_alloc alloc = {0};
    struct eb_manager m = {0};
    struct eb_manager_options options = set->options;
    struct eb_sim_walk w = {.trace = t, .vocab = set->vocab};
    options.make = NULL;
    options.cancellable = set->cancellable;
    *out = (struct eb_sim_result){0};
    int32_t st = eb_manager_open(&m, &set->layout, &alloc, &options, err);
    if (st != EBRO_OK) {
        eb_manager_close(&m);
        return st;
    }
    while (st == EBRO_OK && eb_sim_step(&w, &st, err)) st = replay_one(&m, &w, set, out, err);
    eb_manager_get_stats(&m, &out->stats);
    eb_manager_close(&m);
    eb_sim_walk_free(&w);
    return st;
}
