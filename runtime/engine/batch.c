/* batch.c: ebro_engine_step: chooses which tokens of which sequences are evaluated next, runs them,
 * and hands the outcome to the memory manager. The layer walk itself is forward.c's. */
#include <math.h>

#include "base/clock.h"
#include "engine/engine.h"

/* ---- choosing ------------------------------------------------------------------------------ */

static uint32_t pending(const struct ebro_seq *s) {
    return s->failed != EBRO_OK ? 0 : s->mem->n_tokens - s->mem->n_done;
}

/* Of the sequence's next n rows, the last so many have their logits kept. */
static uint32_t wanted_logits(const struct ebro_seq *s, uint32_t n) {
    uint32_t end = s->mem->n_done + n;
    if (s->logits_from >= end) return 0;
    return s->logits_from > s->mem->n_done ? end - s->logits_from : n;
}

/* What a step is put together with. */
struct batch {
    struct ebro_engine *e;
    struct eb_step step;
    uint32_t n_emits;
    bool in_place; /* a step that is cut short cannot leave states half written */
    bool prompt_waits;
    int32_t short_of_memory;
    ebro_error why;
};

/* Adds n rows of a sequence; a sequence for which memory is short is left out. */
static int32_t add(struct batch *b, struct ebro_seq *s, uint32_t n, ebro_error *err) {
    struct eb_part *p = &b->step.parts[b->step.n_parts];
    ebro_error mine;
    int32_t st = eb_seq_begin(s->mem, n, b->in_place, &p->mem, &mine);
    if (st == EBRO_NOMEM_DEVICE) {
        b->short_of_memory = st;
        b->why = mine;
        return EBRO_OK;
    }
    if (st != EBRO_OK) {
        if (err != NULL) *err = mine;
        return st;
    }
    p->seq = s;
    p->first_row = b->step.n_rows;
    p->n_logits = wanted_logits(s, n);
    b->step.n_rows += n;
    b->step.n_parts++;
    b->n_emits += p->mem.n_emits;
    return EBRO_OK;
}

static int32_t add_decoding(struct batch *b, ebro_error *err) {
    int32_t st = EBRO_OK;
    for (struct ebro_seq *s = b->e->seqs; s != NULL && st == EBRO_OK; s = s->next) {
        if (b->step.n_rows == b->e->n_chunk) break;
        if (pending(s) == 1) st = add(b, s, 1, err);
    }
    b->step.n_decoding = b->step.n_parts;
    return st;
}

static int32_t add_prompts(struct batch *b, ebro_error *err) {
    int32_t st = EBRO_OK;
    uint32_t end = b->e->n_chunk, first = b->step.n_rows;
    if (b->e->prompt_limit < end - first) end = first + b->e->prompt_limit;
    for (struct ebro_seq *s = b->e->seqs; s != NULL && st == EBRO_OK; s = s->next) {
        uint32_t room = end - b->step.n_rows, n = pending(s);
        if (n < 2) continue;
        if (room == 0 || b->e->max_emits - b->n_emits < EB_MAX_EMITS) break;
        n = eb_experts_limit(s, n < room ? n : room);
        uint32_t n_parts = b->step.n_parts;
        st = add(b, s, eb_seq_fit(s->mem, n), err);
        b->prompt_waits = b->prompt_waits || b->step.n_parts == n_parts;
    }
    return st;
}

/* Single tokens first; but where they took the memory of the second state from a prompt, the prompt
 * has its turn alone, or it would wait for as long as others generate. */
static int32_t choose(struct batch *b, ebro_error *err) {
    bool prompts_first = b->e->prompt_waits;
    int32_t st = prompts_first ? EBRO_OK : add_decoding(b, err);
    if (st == EBRO_OK) st = add_prompts(b, err);
    if (st == EBRO_OK && prompts_first && b->step.n_parts == 0) st = add_decoding(b, err);
    b->e->prompt_waits = b->prompt_waits && !prompts_first;
    return st;
}

/* Is there a prompt to read? Then the step is long enough to be cancelled half-way. */
static bool has_prompt(const struct ebro_engine *e) {
    for (const struct ebro_seq *s = e->seqs; s != NULL; s = s->next) {
        if (pending(s) > 1) return true;
    }
    return false;
}

/* ---- running ------------------------------------------------------------------------------- */

/* Decoding sequences whose logits are computed in one product, into the batch's rows: theirs lie
 * side by side in the step. A single one beside prompts writes its own row at once. */
static uint32_t batched_logits(const struct batch *b) {
    const struct eb_step *step = &b->step;
    bool alone = step->n_decoding == step->n_parts && eb_graphs_used(b->e);
    return step->n_decoding > 1 || alone ? step->n_decoding : 0;
}

/* Where each part's logits go. */
static void plan_heads(struct batch *b) {
    struct eb_step *step = &b->step;
    uint32_t vocab = b->e->model->config.vocab_size, first = 0;
    if (batched_logits(b) > 0) {
        step->heads[step->n_heads++] = (struct eb_head){
            .n = step->n_decoding,
            .out = {.mem = b->e->batch_logits, .stride = vocab, .dtype = EBRO_F32}};
        first = step->n_decoding;
    }
    for (uint32_t i = first; i < step->n_parts; i++) {
        const struct eb_part *p = &step->parts[i];
        if (p->n_logits == 0) continue;
        uint64_t at = (uint64_t)p->seq->logits_rows * vocab * sizeof(float);
        step->heads[step->n_heads++] = (struct eb_head){
            .first_row = p->first_row + p->mem.n - p->n_logits,
            .n = p->n_logits,
            .out = {.mem = p->seq->logits, .offset = at, .stride = vocab, .dtype = EBRO_F32}};
    }
}

/* How far the longest sequence of the step is, for the progress callback. */
static void plan_progress(struct eb_step *step) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < step->n_parts; i++) {
        const struct eb_seq *m = step->parts[i].seq->mem;
        if (m->n_tokens <= most) continue;
        most = m->n_tokens;
        step->progress = (double)m->n_done / most;
        step->share = (double)step->parts[i].mem.n / most;
    }
}

/* Pages that a sequence goes on in and others hold too. */
static int32_t copy_pages(struct batch *b, ebro_error *err) {
    struct ebro_engine *e = b->e;
    for (uint32_t i = 0; i < b->step.n_parts; i++) {
        const struct eb_seq_step *m = &b->step.parts[i].mem;
        if (m->copy_from == m->copy_to) continue;
        int32_t st = eb_copy(&e->stream, eb_block_span(e, m->copy_to),
                             eb_block_span(e, m->copy_from), e->layout.block_bytes, err);
        if (st != EBRO_OK) return st;
    }
    return EBRO_OK;
}

static int32_t hand_out_logits(struct batch *b, ebro_error *err) {
    struct ebro_engine *e = b->e;
    uint64_t row = (uint64_t)e->model->config.vocab_size * sizeof(float);
    for (uint32_t i = 0; i < batched_logits(b); i++) {
        const struct ebro_seq *s = b->step.parts[i].seq;
        int32_t st = eb_copy(&e->stream, (ebro_span){s->logits, s->logits_rows * row},
                             (ebro_span){e->batch_logits, i * row}, row, err);
        if (st != EBRO_OK) return st;
    }
    return EBRO_OK;
}

/* Tells the manager what prompt tokens cost. Those of decoding sequences cost something else. */
static void note_time(const struct batch *b, double seconds) {
    double depths = 0.0;
    if (b->step.n_decoding > 0) return;
    for (uint32_t i = 0; i < b->step.n_parts; i++) {
        const struct eb_seq_step *m = &b->step.parts[i].mem;
        depths += m->n * (m->first + m->n / 2.0);
    }
    eb_manager_note_time(&b->e->mem, b->step.n_rows, depths / b->step.n_rows, seconds);
}

static int32_t run(struct batch *b, ebro_error *err) {
    struct ebro_engine *e = b->e;
    plan_heads(b);
    plan_progress(&b->step);
    eb_step_write(e, &b->step);
    int32_t st = copy_pages(b, err);
    if (st == EBRO_OK) st = eb_graphs_forward(e, &b->step, err);
    if (st == EBRO_OK) st = hand_out_logits(b, err);
    if (st == EBRO_OK) st = eb_stream_sync(&e->stream, err);
    if (st == EBRO_CANCELLED) return st;
    /* Whatever came of weights that became zeros is no result, an error neither. */
    int32_t intact = eb_weights_check(e->weights, e->model, err);
    return intact != EBRO_OK ? intact : st;
}

/* ---- the outcome --------------------------------------------------------------------------- */

/* A non-finite logit must not be handed on: it would poison everything that follows. */
static int32_t check_logits(const struct eb_part *p, ebro_error *err) {
    const struct ebro_seq *s = p->seq;
    uint32_t vocab = s->engine->model->config.vocab_size;
    for (uint32_t r = s->logits_rows; r < s->logits_rows + p->n_logits; r++) {
        const float *logits = (const float *)s->logits->host + (size_t)r * vocab;
        for (uint32_t i = 0; i < vocab; i++) {
            if (!isfinite(logits[i])) {
                return eb_fail(err, EBRO_NUMERIC, "the logit of token %u at position %u is %f", i,
                               s->logits_from + r, (double)logits[i]);
            }
        }
    }
    return EBRO_OK;
}

static int32_t give_back(struct eb_part *p, bool touched, int32_t st, ebro_error *err) {
    uint32_t first = p->mem.first, last = first + p->mem.n - 1;
    eb_seq_abort(p->seq->mem, &p->mem, touched);
    return eb_while(err, st, "evaluating tokens %u to %u", first, last);
}

/* Commits each part that has good logits. The error is that of the first that has none. */
static int32_t settle(struct batch *b, ebro_error *err) {
    int32_t first = EBRO_OK;
    for (uint32_t i = 0; i < b->step.n_parts; i++) {
        struct eb_part *p = &b->step.parts[i];
        ebro_error mine;
        int32_t st = check_logits(p, &mine);
        if (st == EBRO_OK) {
            eb_seq_commit(p->seq->mem, &p->mem);
            p->seq->logits_rows += p->n_logits;
        } else {
            give_back(p, true, st, &mine);
            p->seq->failed = st;
            if (first == EBRO_OK && err != NULL) *err = mine;
            if (first == EBRO_OK) first = st;
        }
        eb_seq_to_back(p->seq);
    }
    return first;
}

/* A state that was perhaps written half-way: back to the nearest snapshot, to evaluate what follows
 * once more. False where there is no room for that. */
static bool mend(struct ebro_seq *s) {
    struct eb_seq *m = s->mem;
    if (m->state == NULL || m->state->written) return true;
    if (eb_seq_cut(m, m->n_tokens, NULL) != EBRO_OK) return false;
    s->logits_rows = m->n_done > s->logits_from ? m->n_done - s->logits_from : 0;
    return true;
}

/* The step came to nothing. One that was cancelled, or for which a device or the host had too
 * little memory, can be tried again: it has written spare states, and cache rows that the next one
 * writes again; one in place is cancelled before it begins or not at all. After any other end, or
 * where the device cannot be waited for, nobody knows what was written, or it would end so again.
 */
static int32_t undo(struct batch *b, int32_t st, ebro_error *err) {
    bool again = st == EBRO_CANCELLED || st == EBRO_NOMEM_DEVICE || st == EBRO_NOMEM_HOST;
    if (again) again = eb_stream_sync(&b->e->stream, NULL) == EBRO_OK;
    for (uint32_t i = 0; i < b->step.n_parts; i++)
        give_back(&b->step.parts[i], st != EBRO_CANCELLED, st, i == 0 ? err : NULL);
    for (uint32_t i = 0; i < b->step.n_parts; i++) {
        struct ebro_seq *s = b->step.parts[i].seq;
        if (!again || !mend(s)) s->failed = st;
    }
    return st;
}

/* Nothing could be evaluated: whoever waits for the tokens of a failed sequence would wait for
 * ever. */
static int32_t check_none_waits(const struct ebro_engine *e, ebro_error *err) {
    for (const struct ebro_seq *s = e->seqs; s != NULL; s = s->next) {
        if (s->failed != EBRO_OK && ebro_seq_pending(s) > 0) return eb_seq_check(s, err);
    }
    return EBRO_OK;
}

static int32_t run_batch(struct batch *b, ebro_error *err) {
    int32_t st = choose(b, err);
    if (st != EBRO_OK) {
        for (uint32_t i = 0; i < b->step.n_parts; i++)
            eb_seq_abort(b->step.parts[i].seq->mem, &b->step.parts[i].mem, false);
        return st;
    }
    if (b->step.n_parts == 0) {
        if (b->short_of_memory != EBRO_OK && err != NULL) *err = b->why;
        if (b->short_of_memory != EBRO_OK) return b->short_of_memory;
        return check_none_waits(b->e, err);
    }
    double begin = eb_clock_seconds();
    st = run(b, err);
    if (st != EBRO_OK) return undo(b, st, err);
    note_time(b, eb_clock_seconds() - begin);
    return settle(b, err);
}

void ebro_engine_limit_prompts(ebro_engine *engine, uint32_t n_tokens) {
    if (engine != NULL) engine->prompt_limit = n_tokens == 0 ? UINT32_MAX : n_tokens;
}

int32_t ebro_engine_step(ebro_engine *engine, ebro_error *err) {
    if (engine == NULL) return eb_fail(err, EBRO_INVALID, "the engine is NULL");
    struct batch b = {.e = engine};
    b.in_place = engine->progress.call == NULL || !has_prompt(engine);
    b.step.parts = engine->parts;
    b.step.heads = engine->heads;
    return run_batch(&b, err);
}
