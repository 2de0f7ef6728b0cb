/* sequence.c: the public calls of a sequence, but for sampling (sampler.c). Its tokens, pages and
 * state are the memory manager's. */
#include <string.h>

#include "engine/engine.h"

/* ---- creating and destroying --------------------------------------------------------------- */

static void link_last(struct ebro_engine *e, struct ebro_seq *s) {
    s->prev = e->last_seq;
    s->next = NULL;
    if (s->prev != NULL)
        s->prev->next = s;
    else
        e->seqs = s;
    e->last_seq = s;
}

static void unlink_seq(struct ebro_engine *e, struct ebro_seq *s) {
    if (s->prev != NULL)
        s->prev->next = s->next;
    else
        e->seqs = s->next;
    if (s->next != NULL)
        s->next->prev = s->prev;
    else
        e->last_seq = s->prev;
}

void eb_seq_to_back(struct ebro_seq *s) {
    unlink_seq(s->engine, s);
    link_last(s->engine, s);
}

/* An empty one. */
static int32_t make(struct ebro_engine *e, ebro_seq **out, ebro_error *err) {
    struct ebro_seq *s = eb_calloc(&e->alloc, 1, sizeof *s, err);
    if (s == NULL) return EBRO_NOMEM_HOST;
    s->engine = e;
    link_last(e, s);
    e->n_seqs++;
    int32_t st = eb_seq_open(&e->mem, &s->mem, err);
    if (st == EBRO_OK && e->expert_choices) st = eb_experts_open(e, s, err);
    if (st != EBRO_OK) {
        ebro_seq_destroy(&s);
        return st;
    }
    *out = s;
    return EBRO_OK;
}

int32_t eb_engine_check_count(const struct ebro_engine *e, ebro_error *err) {
    if (e->n_seqs < e->max_seqs) return EBRO_OK;
    return eb_fail(
        err, EBRO_INVALID,
        "the engine holds %u of %u sequences: destroy one, or open it with more max_seqs",
        e->n_seqs, e->max_seqs);
}

int32_t ebro_seq_create(ebro_engine *engine, ebro_seq **out, ebro_error *err) {
    if (engine == NULL || out == NULL) {
        return eb_fail(err, EBRO_INVALID, "ebro_seq_create: engine and out must not be NULL");
    }
    *out = NULL;
    int32_t st = eb_engine_check_count(engine, err);
    return st == EBRO_OK ? make(engine, out, err) : st;
}

void ebro_seq_destroy(ebro_seq **seq) {
    if (seq == NULL || *seq == NULL) return;
    struct ebro_seq *s = *seq;
    struct ebro_engine *e = s->engine;
    *seq = NULL;
    unlink_seq(e, s);
    e->n_seqs--;
    eb_seq_close(&s->mem);
    eb_mem_free(e->device, &s->logits);
    eb_experts_close(s);
    eb_free(&e->alloc, s->application);
    eb_free(&e->alloc, s);
}

/* ---- what it is ---------------------------------------------------------------------------- */

uint32_t ebro_seq_length(const ebro_seq *seq) {
    return seq == NULL ? 0 : seq->mem->n_done;
}

uint32_t ebro_seq_pending(const ebro_seq *seq) {
    return seq == NULL ? 0 : seq->mem->n_tokens - seq->mem->n_done;
}

const int32_t *ebro_seq_tokens(const ebro_seq *seq, uint32_t *n) {
    uint32_t held = seq == NULL ? 0 : seq->mem->n_tokens;
    if (n != NULL) *n = held;
    return held == 0 ? NULL : seq->mem->tokens;
}

int32_t ebro_seq_status(const ebro_seq *seq) {
    return seq == NULL ? EBRO_INVALID : seq->failed;
}

void ebro_seq_get_reuse(const ebro_seq *seq, ebro_reuse *out) {
    if (out == NULL || out->size < sizeof out->size) return;
    ebro_reuse x = {.size = out->size, .reason = ""};
    if (seq != NULL && seq->mem->reuse.prompt > 0) {
        const struct eb_reuse *r = &seq->mem->reuse;
        x.n_prompt = r->prompt;
        x.n_matched = r->matched;
        x.n_reused = r->reused;
        x.miss = (int32_t)r->miss;
        x.reason = eb_miss_text(r->miss);
    }
    memcpy(out, &x, out->size < sizeof x ? out->size : sizeof x);
}

int32_t eb_seq_check(const struct ebro_seq *s, ebro_error *err) {
    if (s == NULL) return eb_fail(err, EBRO_INVALID, "the sequence is NULL");
    if (s->failed != EBRO_OK) {
        return eb_fail(err, EBRO_INVALID, "the sequence failed in an earlier step (%s): destroy it",
                       ebro_status_name(s->failed));
    }
    return EBRO_OK;
}

/* ---- tokens --------------------------------------------------------------------------------- */

static int32_t check_ids(const struct ebro_seq *s, const int32_t *ids, size_t n, ebro_error *err) {
    uint32_t vocab = s->engine->model->config.vocab_size, n_ctx = s->engine->n_ctx;
    if (n > n_ctx - s->mem->n_tokens) {
        return eb_fail(err, EBRO_INVALID,
                       "context full: %u tokens held + %zu more, the context has %u",
                       s->mem->n_tokens, n, n_ctx);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= vocab) {
            return eb_fail(err, EBRO_INVALID, "token %zu has id %d: the vocabulary has 0 to %u", i,
                           ids[i], vocab - 1);
        }
    }
    return EBRO_OK;
}

/* Memory for `rows` rows of logits, not the sequence's yet; NULL where it has room for them. */
static int32_t make_logits(const struct ebro_seq *s, uint32_t rows, ebro_mem **out,
                           ebro_error *err) {
    *out = NULL;
    if (rows <= s->logits_capacity) return EBRO_OK;
    uint64_t bytes = (uint64_t)rows * s->engine->model->config.vocab_size * sizeof(float);
    int32_t st = eb_mem_alloc(s->engine->device, bytes, EBRO_MEM_READBACK, out, err);
    return st == EBRO_OK ? st : eb_while(err, st, "allocating %u rows of logits", rows);
}

static void take_logits(struct ebro_seq *s, ebro_mem *mem, uint32_t rows) {
    if (mem == NULL) return;
    eb_mem_free(s->engine->device, &s->logits);
    s->logits = mem;
    s->logits_capacity = rows;
}

/* Room for the row of the last token; nothing changes on failure. */
static int32_t reserve_last_logits(struct ebro_seq *s, ebro_error *err) {
    ebro_mem *mem = NULL;
    int32_t st = make_logits(s, 1, &mem, err);
    if (st == EBRO_OK) take_logits(s, mem, 1);
    return st;
}

static void log_reuse(const struct ebro_seq *s) {
    const struct eb_reuse *r = &s->mem->reuse;
    eb_log(&s->engine->device->rt->log, EBRO_LOG_INFO,
           "prompt of %u tokens: %u seen before, %u reused (%s)", r->prompt, r->matched, r->reused,
           eb_miss_text(r->miss));
}

int32_t eb_seq_prepare(struct ebro_engine *e, ebro_seq **out, ebro_error *err) {
    int32_t st = make(e, out, err);
    if (st != EBRO_OK) return st;
    /* Tokens may be pending: the logits of the last one will be wanted. */
    if ((st = reserve_last_logits(*out, err)) != EBRO_OK) ebro_seq_destroy(out);
    return st;
}

void eb_seq_adopt(struct ebro_seq *s, struct eb_seq *mem) {
    eb_seq_close(&s->mem);
    s->mem = mem;
    s->logits_from = mem->n_tokens > 0 ? mem->n_tokens - 1 : 0;
}

int32_t ebro_seq_append(ebro_seq *seq, const int32_t *ids, size_t n, uint32_t n_logits,
                        ebro_error *err) {
    int32_t st = eb_seq_check(seq, err);
    if (st != EBRO_OK || n == 0) return st;
    if (ids == NULL) return eb_fail(err, EBRO_INVALID, "ebro_seq_append: ids is NULL, n is %zu", n);
    if ((st = check_ids(seq, ids, n, err)) != EBRO_OK) return st;
    uint32_t keep = n_logits == 0 ? 1 : n_logits > n ? (uint32_t)n : n_logits;
    /* The logits that are there stay until nothing can fail any more. */
    ebro_mem *logits = NULL;
    if ((st = make_logits(seq, keep, &logits, err)) != EBRO_OK) return st;
    bool first = seq->mem->n_tokens == 0;
    if ((st = eb_seq_push(seq->mem, ids, (uint32_t)n, keep, err)) != EBRO_OK) {
        eb_mem_free(seq->engine->device, &logits);
        return st;
    }
    take_logits(seq, logits, keep);
    if (first) log_reuse(seq);
    seq->logits_from = seq->mem->n_tokens - keep;
    seq->logits_rows = 0;
    return EBRO_OK;
}

int32_t ebro_seq_fork(ebro_seq *seq, ebro_seq **out, ebro_error *err) {
    if (out == NULL) return eb_fail(err, EBRO_INVALID, "ebro_seq_fork: out must not be NULL");
    *out = NULL;
    int32_t st = eb_seq_check(seq, err);
    if (st == EBRO_OK) st = eb_engine_check_count(seq->engine, err);
    if (st == EBRO_OK) st = eb_seq_prepare(seq->engine, out, err);
    if (st != EBRO_OK) return st;
    struct eb_seq *mem = NULL;
    if ((st = eb_seq_copy(seq->mem, &mem, err)) == EBRO_OK)
        eb_seq_adopt(*out, mem);
    else
        ebro_seq_destroy(out);
    return st;
}

int32_t ebro_seq_rewind(ebro_seq *seq, uint32_t n_tokens, ebro_error *err) {
    int32_t st = eb_seq_check(seq, err);
    if (st == EBRO_OK && n_tokens > 0) st = reserve_last_logits(seq, err);
    if (st == EBRO_OK) st = eb_seq_cut(seq->mem, n_tokens, err);
    if (st != EBRO_OK) return st;
    seq->logits_rows = 0;
    seq->logits_from = n_tokens > 0 ? n_tokens - 1 : 0;
    return EBRO_OK;
}

int32_t ebro_seq_keep(ebro_seq *seq, uint32_t n_tokens, ebro_error *err) {
    int32_t st = eb_seq_check(seq, err);
    return st == EBRO_OK ? eb_seq_wish(seq->mem, n_tokens, err) : st;
}

/* ---- logits --------------------------------------------------------------------------------- */

int32_t eb_seq_check_logits(const struct ebro_seq *s, ebro_error *err) {
    int32_t st = eb_seq_check(s, err);
    if (st != EBRO_OK) return st;
    if (s->mem->n_done < s->mem->n_tokens) {
        return eb_fail(err, EBRO_INVALID, "%u tokens are not evaluated yet: call ebro_engine_step",
                       s->mem->n_tokens - s->mem->n_done);
    }
    if (s->mem->n_tokens == 0) return eb_fail(err, EBRO_INVALID, "the sequence is empty");
    if (s->logits_rows == 0) {
        return eb_fail(err, EBRO_INVALID,
                       "a forked or rewound sequence has no logits: append to it first");
    }
    return EBRO_OK;
}

int32_t ebro_seq_logits(const ebro_seq *seq, const float **logits, uint32_t *rows,
                        ebro_error *err) {
    int32_t st = eb_seq_check_logits(seq, err);
    if (st != EBRO_OK) return st;
    if (logits == NULL || rows == NULL) {
        return eb_fail(err, EBRO_INVALID, "ebro_seq_logits: logits and rows must not be NULL");
    }
    *logits = seq->logits->host;
    *rows = seq->logits_rows;
    return EBRO_OK;
}
