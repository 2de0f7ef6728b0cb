/* engine.c: the public calls of an engine and its sequence, but for sampling (sampler.c). */
#include "engine/engine.h"

#include <math.h>
#include <string.h>

/* The caller's struct may be older and shorter than ours: what it lacks stays zero. */
static int32_t read_options(const ebro_engine_options *in, ebro_engine_options *out,
                            ebro_error *err) {
    *out = (ebro_engine_options){.cache_dtype = -1};
    if (in == NULL) return EBRO_OK;
    if (in->size < sizeof in->size) {
        return eb_fail(err, EBRO_INVALID,
                       "ebro_engine_options.size is %zu: set it to sizeof the struct", in->size);
    }
    memcpy(out, in, in->size < sizeof *out ? in->size : sizeof *out);
    bool cache_ok = out->cache_dtype == -1 || out->cache_dtype == EBRO_F32 ||
                    out->cache_dtype == EBRO_F16 || out->cache_dtype == EBRO_BF16;
    if (!cache_ok) {
        return eb_fail(err, EBRO_INVALID, "cache dtype %d: f32, f16 or bf16 can be used",
                       out->cache_dtype);
    }
    if (out->prefill_form < EBRO_MLA_AUTO || out->prefill_form > EBRO_MLA_ABSORBED) {
        return eb_fail(err, EBRO_INVALID, "MLA form %d: auto, expanded or absorbed can be used",
                       out->prefill_form);
    }
    if (out->strict != 0 && out->prefill_form == EBRO_MLA_EXPANDED) {
        return eb_fail(err, EBRO_INVALID, "strict with the expanded MLA form: strict is absorbed");
    }
    return EBRO_OK;
}

static int32_t choose_sizes(struct ebro_engine *e, const ebro_engine_options *o, ebro_error *err) {
    uint32_t max = e->model->config.max_context;
    e->n_ctx = o->n_ctx;
    if (e->n_ctx == 0) e->n_ctx = max != 0 && max < EB_DEFAULT_CONTEXT ? max : EB_DEFAULT_CONTEXT;
    if (max != 0 && e->n_ctx > max) {
        return eb_fail(err, EBRO_INVALID, "a context of %u tokens: the model was made for %u",
                       e->n_ctx, max);
    }
    if (e->n_ctx > INT32_MAX - EB_PAGE_TOKENS) {
        return eb_fail(err, EBRO_INVALID, "a context of %u tokens: at most %d can be addressed",
                       e->n_ctx, INT32_MAX - EB_PAGE_TOKENS);
    }
    e->n_chunk = o->n_chunk != 0 ? o->n_chunk : EB_DEFAULT_CHUNK;
    if (e->n_chunk > e->n_ctx) e->n_chunk = e->n_ctx;
    e->max_pages = (e->n_ctx + EB_PAGE_TOKENS - 1) / EB_PAGE_TOKENS;
    e->strict = o->strict != 0;
    e->prefill_form = e->strict ? EBRO_MLA_ABSORBED : o->prefill_form;
    if (e->strict && (e->device->caps.bits & EBRO_CAP_STRICT) == 0) {
        return eb_fail(err, EBRO_UNSUPPORTED,
                       "strict: %s cannot give identical bytes for every split of a prompt",
                       e->device->info.name);
    }
    return EBRO_OK;
}

struct eb_cache_geometry eb_engine_geometry(const struct ebro_model *m, int32_t cache_dtype) {
    const struct eb_config *c = &m->config;
    uint32_t n_kda = eb_model_count_kda(m);
    return (struct eb_cache_geometry){.n_mla_layers = c->n_layers - n_kda,
                                      .n_kda_layers = n_kda,
                                      .row_elements = c->kv_lora_rank + c->qk_rope_head_dim,
                                      .row_dtype = cache_dtype,
                                      .page_tokens = EB_PAGE_TOKENS,
                                      .kda_heads = c->kda_heads,
                                      .kda_head_dim = c->kda_head_dim,
                                      .state_dtype = EBRO_F32};
}

int32_t eb_engine_plan(struct ebro_model *model, struct ebro_device *device,
                       const ebro_engine_options *options, struct ebro_engine *e, ebro_error *err) {
    ebro_engine_options o;
    int32_t st = read_options(options, &o, err);
    if (st != EBRO_OK) return st;
    e->model = model;
    e->device = device;
    e->alloc = device->rt->alloc;
    e->progress = (struct eb_progress){o.progress, o.progress_user};
    e->cache_dtype = o.cache_dtype == -1 ? device->caps.default_cache_dtype : o.cache_dtype;
    e->expert_choices = o.expert_choices != 0;
    e->n_slots = o.progress != NULL ? 2 : 1;
    return choose_sizes(e, &o, err);
}

static int32_t open_cache(struct ebro_engine *e, ebro_error *err) {
    struct eb_cache_geometry g = eb_engine_geometry(e->model, e->cache_dtype);
    return eb_cache_open(e->device, &g, e->max_pages, e->n_slots, &e->cache, err);
}

int32_t ebro_engine_open(ebro_model *model, ebro_device *device, const ebro_engine_options *options,
                         ebro_engine **out, ebro_error *err) {
    if (model == NULL || device == NULL || out == NULL) {
        return eb_fail(err, EBRO_INVALID,
                       "ebro_engine_open: model, device and out must not be NULL");
    }
    *out = NULL;
    struct ebro_engine *e = eb_calloc(&device->rt->alloc, 1, sizeof *e, err);
    if (e == NULL) return EBRO_NOMEM_HOST;
    e->device = device;
    e->alloc = device->rt->alloc;
    int32_t st = eb_engine_plan(model, device, options, e, err);
    if (st != EBRO_OK) goto out;
    if ((st = eb_stream_open(device, &e->stream, err)) != EBRO_OK) goto out;
    if ((st = eb_weights_load(model, &e->stream, &e->progress, &e->weights, err)) != EBRO_OK)
        goto out;
    if ((st = open_cache(e, err)) != EBRO_OK) goto out;
    if ((st = eb_step_block_open(e, err)) != EBRO_OK) goto out;
    if ((st = eb_workspace_open(e, err)) != EBRO_OK) goto out;
    st = eb_mem_alloc(device, sizeof(int32_t), EBRO_MEM_READBACK, &e->readback, err);
    if (st != EBRO_OK) goto out;
    st = eb_progress_tell(&e->progress, "opening the engine", 1.0, err);
out:
    if (st != EBRO_OK) {
        st = eb_while(err, st, "opening an engine on %s", device->info.name);
        ebro_engine_close(&e);
        return st;
    }
    *out = e;
    return EBRO_OK;
}

void ebro_engine_close(ebro_engine **engine) {
    if (engine == NULL || *engine == NULL) return;
    struct ebro_engine *e = *engine;
    *engine = NULL;
    ebro_seq *seq = e->seq;
    ebro_seq_destroy(&seq);
    eb_weights_free(&e->weights);
    eb_cache_close(&e->cache);
    eb_mem_free(e->device, &e->step.mem);
    eb_mem_free(e->device, &e->work.mem);
    eb_mem_free(e->device, &e->readback);
    eb_sampler_close(e);
    eb_stream_close(&e->stream);
    eb_free(&e->alloc, e);
}

int32_t ebro_seq_create(ebro_engine *engine, ebro_seq **out, ebro_error *err) {
    if (engine == NULL || out == NULL) {
        return eb_fail(err, EBRO_INVALID, "ebro_seq_create: engine and out must not be NULL");
    }
    *out = NULL;
    if (engine->seq != NULL) {
        return eb_fail(err, EBRO_UNSUPPORTED,
                       "an engine holds one sequence: destroy the other first");
    }
    struct ebro_seq *s = eb_calloc(&engine->alloc, 1, sizeof *s, err);
    if (s == NULL) return EBRO_NOMEM_HOST;
    s->engine = engine;
    engine->seq = s;
    s->tokens = eb_calloc(&engine->alloc, engine->n_ctx, sizeof *s->tokens, err);
    if (s->tokens != NULL)
        s->pages = eb_calloc(&engine->alloc, engine->max_pages, sizeof *s->pages, err);
    int32_t st = s->pages == NULL         ? EBRO_NOMEM_HOST
                 : engine->expert_choices ? eb_experts_open(engine, s, err)
                                          : EBRO_OK;
    if (st != EBRO_OK) {
        ebro_seq_destroy(&s);
        return st;
    }
    *out = s;
    return EBRO_OK;
}

void ebro_seq_destroy(ebro_seq **seq) {
    if (seq == NULL || *seq == NULL) return;
    struct ebro_seq *s = *seq;
    struct ebro_engine *e = s->engine;
    *seq = NULL;
    for (uint32_t i = 0; i < s->n_pages; i++) eb_cache_page_give(&e->cache, s->pages[i]);
    eb_mem_free(e->device, &s->logits);
    eb_experts_close(s);
    eb_free(&e->alloc, s->tokens);
    eb_free(&e->alloc, s->pages);
    e->seq = NULL;
    eb_free(&e->alloc, s);
}

uint32_t ebro_seq_length(const ebro_seq *seq) {
    return seq == NULL ? 0 : seq->n_done;
}

uint32_t ebro_seq_pending(const ebro_seq *seq) {
    return seq == NULL ? 0 : seq->n_tokens - seq->n_done;
}

static int32_t check_usable(const struct ebro_seq *s, ebro_error *err) {
    if (s == NULL) return eb_fail(err, EBRO_INVALID, "the sequence is NULL");
    if (s->broken) {
        return eb_fail(err, EBRO_INVALID, "the sequence failed in an earlier step: destroy it");
    }
    return EBRO_OK;
}

static int32_t check_ids(const struct ebro_seq *s, const int32_t *ids, size_t n, ebro_error *err) {
    uint32_t vocab = s->engine->model->config.vocab_size, n_ctx = s->engine->n_ctx;
    if (n > n_ctx - s->n_tokens) {
        return eb_fail(err, EBRO_INVALID,
                       "context full: %u tokens held + %zu more, the context has %u", s->n_tokens,
                       n, n_ctx);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= vocab) {
            return eb_fail(err, EBRO_INVALID, "token %zu has id %d: the vocabulary has 0 to %u", i,
                           ids[i], vocab - 1);
        }
    }
    return EBRO_OK;
}

/* Room for `rows` rows of logits; nothing changes on failure. */
static int32_t reserve_logits(struct ebro_seq *s, uint32_t rows, ebro_error *err) {
    if (rows <= s->logits_capacity) return EBRO_OK;
    ebro_mem *mem = NULL;
    uint64_t bytes = (uint64_t)rows * s->engine->model->config.vocab_size * sizeof(float);
    int32_t st = eb_mem_alloc(s->engine->device, bytes, EBRO_MEM_READBACK, &mem, err);
    if (st != EBRO_OK) return eb_while(err, st, "allocating %u rows of logits", rows);
    eb_mem_free(s->engine->device, &s->logits);
    s->logits = mem;
    s->logits_capacity = rows;
    return EBRO_OK;
}

int32_t ebro_seq_append(ebro_seq *seq, const int32_t *ids, size_t n, uint32_t n_logits,
                        ebro_error *err) {
    int32_t st = check_usable(seq, err);
    if (st != EBRO_OK || n == 0) return st;
    if (ids == NULL) return eb_fail(err, EBRO_INVALID, "ebro_seq_append: ids is NULL, n is %zu", n);
    if ((st = check_ids(seq, ids, n, err)) != EBRO_OK) return st;
    uint32_t keep = n_logits == 0 ? 1 : n_logits > n ? (uint32_t)n : n_logits;
    if ((st = reserve_logits(seq, keep, err)) != EBRO_OK) return st;
    memcpy(seq->tokens + seq->n_tokens, ids, n * sizeof *ids);
    seq->n_tokens += (uint32_t)n;
    seq->logits_from = seq->n_tokens - keep;
    seq->logits_rows = 0;
    return EBRO_OK;
}

/* A non-finite logit must not be handed on: it would poison everything that follows. */
static int32_t check_logits(const struct ebro_seq *s, uint32_t first_row, uint32_t n,
                            ebro_error *err) {
    uint32_t vocab = s->engine->model->config.vocab_size;
    const float *logits = s->logits->host;
    for (uint32_t r = first_row; r < first_row + n; r++) {
        for (uint32_t i = 0; i < vocab; i++) {
            float x = logits[(size_t)r * vocab + i];
            if (!isfinite(x)) {
                return eb_fail(err, EBRO_NUMERIC, "the logit of token %u at position %u is %f", i,
                               s->logits_from + r, (double)x);
            }
        }
    }
    return EBRO_OK;
}

static int32_t run_step(struct ebro_engine *e, struct ebro_seq *s, uint32_t n, ebro_error *err) {
    struct eb_step step;
    int32_t st = eb_step_prepare(e, s, n, &step, err);
    if (st == EBRO_OK) st = eb_forward(e, &step, err);
    if (st == EBRO_OK) st = eb_stream_sync(&e->stream, err);
    if (st == EBRO_CANCELLED) return st;
    /* Whatever came of weights that became zeros is no result, an error neither. */
    int32_t intact = eb_weights_check(e->weights, e->model, err);
    if (intact != EBRO_OK) return intact;
    if (st != EBRO_OK) return st;
    uint32_t rows = n - step.first_logits;
    if ((st = check_logits(s, s->logits_rows, rows, err)) != EBRO_OK) return st;
    s->logits_rows += rows;
    s->n_done += n;
    s->slot = step.slot_out;
    return EBRO_OK;
}

int32_t ebro_engine_step(ebro_engine *engine, ebro_error *err) {
    if (engine == NULL) return eb_fail(err, EBRO_INVALID, "the engine is NULL");
    struct ebro_seq *s = engine->seq;
    if (s == NULL) return EBRO_OK;
    int32_t st = check_usable(s, err);
    uint32_t pending = s->n_tokens - s->n_done;
    if (st != EBRO_OK || pending == 0) return st;
    uint32_t n = pending < engine->n_chunk ? pending : engine->n_chunk;
    n = eb_experts_limit(s, n);
    st = run_step(engine, s, n, err);
    if (st == EBRO_OK) return st;
    /* A cancelled step has written a spare state, and cache rows that the next one writes again. */
    if (st == EBRO_CANCELLED && eb_stream_sync(&engine->stream, NULL) == EBRO_OK)
        return eb_while(err, st, "evaluating tokens %u to %u", s->n_done, s->n_done + n - 1);
    s->broken = true;
    return eb_while(err, st, "evaluating tokens %u to %u", s->n_done, s->n_done + n - 1);
}

int32_t eb_seq_check_logits(const struct ebro_seq *s, ebro_error *err) {
    int32_t st = check_usable(s, err);
    if (st != EBRO_OK) return st;
    if (s->n_done < s->n_tokens) {
        return eb_fail(err, EBRO_INVALID, "%u tokens are not evaluated yet: call ebro_engine_step",
                       s->n_tokens - s->n_done);
    }
    if (s->logits_rows == 0) return eb_fail(err, EBRO_INVALID, "the sequence is empty");
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
