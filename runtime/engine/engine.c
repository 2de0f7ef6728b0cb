/* engine.c: opening and closing an engine, and the memory that its sequences share. */
#include "engine/engine.h"

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
    enum { MOST_CONTEXT = INT32_MAX - 1024 };
    if (e->n_ctx > MOST_CONTEXT) {
        return eb_fail(err, EBRO_INVALID, "a context of %u tokens: at most %d can be addressed",
                       e->n_ctx, MOST_CONTEXT);
    }
    e->n_chunk = o->n_chunk != 0 ? o->n_chunk : EB_DEFAULT_CHUNK;
    if (e->n_chunk > e->n_ctx) e->n_chunk = e->n_ctx;
    e->prompt_limit = UINT32_MAX;
    e->max_seqs = o->max_seqs != 0 ? o->max_seqs : 1;
    if (e->max_seqs > EB_MAX_SEQS) {
        return eb_fail(err, EBRO_INVALID, "max_seqs %u: at most %d", e->max_seqs, EB_MAX_SEQS);
    }
    /* A sequence takes part in a step with up to EB_MAX_EMITS snapshots inside it. */
    e->max_emits = (e->max_seqs < 4 ? e->max_seqs : 4) * EB_MAX_EMITS;
    e->strict = o->strict != 0;
    e->prefill_form = e->strict ? EBRO_MLA_ABSORBED : o->prefill_form;
    if (e->strict && (e->device->caps.bits & EBRO_CAP_STRICT) == 0) {
        return eb_fail(err, EBRO_UNSUPPORTED,
                       "strict: %s cannot give identical bytes for every split of a prompt",
                       e->device->info.name);
    }
    return EBRO_OK;
}

struct eb_shape eb_engine_shape(const struct ebro_model *m, int32_t cache_dtype) {
    const struct eb_config *c = &m->config;
    uint32_t n_kda = eb_model_count_kda(m);
    return (struct eb_shape){.n_mla_layers = c->n_layers - n_kda,
                             .n_kda_layers = n_kda,
                             .row_elements = c->kv_lora_rank + c->qk_rope_head_dim,
                             .row_dtype = cache_dtype,
                             .kda_heads = c->kda_heads,
                             .kda_head_dim = c->kda_head_dim,
                             .state_dtype = EBRO_F32};
}

_Static_assert((int)EBRO_KEEP_PROMPT_END == EB_KEEP_PROMPT_END &&
                   (int)EBRO_KEEP_TURN_END == EB_KEEP_TURN_END &&
                   (int)EBRO_KEEP_INTERVAL == EB_KEEP_INTERVAL &&
                   (int)EBRO_KEEP_JUNCTION == EB_KEEP_JUNCTION,
               "public and inner names of the same bits");
_Static_assert((int)EBRO_N_MISSES == (int)EB_N_MISSES, "public and inner reasons are the same");

enum {
    KEEP_ALL = EBRO_KEEP_PROMPT_END | EBRO_KEEP_TURN_END | EBRO_KEEP_INTERVAL | EBRO_KEEP_JUNCTION,
    USUAL_INTERVAL = 4096,
    USUAL_KEPT_STATES = 8
};

/* In a range in which sums over any context are finite. */
static int32_t check_costs(const ebro_engine_options *o, ebro_error *err) {
    const double least = 1e-12, most = 1e12;
    bool measured = o->token_cost == 0.0 && o->depth_cost == 0.0;
    bool given = o->token_cost >= least && o->token_cost <= most && o->depth_cost >= 0.0 &&
                 o->depth_cost <= most;
    if (measured || given) return EBRO_OK;
    return eb_fail(err, EBRO_INVALID,
                   "token_cost %g and depth_cost %g: the first from %g to %g, the second from 0 to "
                   "%g; or both 0, to be measured",
                   o->token_cost, o->depth_cost, least, most, most);
}

static int32_t choose_retention(struct ebro_engine *e, const ebro_engine_options *o,
                                ebro_error *err) {
    struct eb_manager_options *r = &e->retention;
    int32_t st, keep = o->keep == 0 ? KEEP_ALL : o->keep;
    if (e->expert_choices && o->keep == 0) keep = EBRO_KEEP_NONE;
    if ((keep & ~(KEEP_ALL | EBRO_KEEP_NONE)) != 0 ||
        ((keep & EBRO_KEEP_NONE) != 0 && keep != EBRO_KEEP_NONE)) {
        return eb_fail(err, EBRO_INVALID,
                       "keep is 0x%x: EBRO_KEEP_NONE alone, or a sum of the others",
                       (unsigned)keep);
    }
    if (e->expert_choices && (keep != EBRO_KEEP_NONE || e->max_seqs > 1)) {
        return eb_fail(err, EBRO_INVALID,
                       "expert_choices with %u sequences and keep 0x%x: one sequence and "
                       "EBRO_KEEP_NONE, so that every token is evaluated",
                       e->max_seqs, (unsigned)keep);
    }
    if (o->evict != EBRO_EVICT_LRU && o->evict != EBRO_EVICT_COST)
        return eb_fail(err, EBRO_INVALID, "evict %d: EBRO_EVICT_LRU or EBRO_EVICT_COST", o->evict);
    if ((st = check_costs(o, err)) != EBRO_OK) return st;
    r->keep = keep == EBRO_KEEP_NONE ? 0 : (uint32_t)keep;
    r->interval = o->keep_interval != 0 ? o->keep_interval : USUAL_INTERVAL;
    r->policy = o->evict == EBRO_EVICT_COST ? EB_POLICY_COST : EB_POLICY_LRU;
    r->host_bytes = o->host_bytes;
    r->cancellable = o->progress != NULL;
    r->token_cost = o->token_cost;
    r->depth_cost = o->depth_cost;
    r->log = &e->device->rt->log;
    return EBRO_OK;
}

/* The layout of the cache and, where it is not given, the budget. */
static int32_t choose_memory(struct ebro_engine *e, const ebro_engine_options *o, ebro_error *err) {
    struct eb_shape shape = eb_engine_shape(e->model, e->cache_dtype);
    int32_t st = eb_layout_plan(&shape, &e->layout, err);
    if (st != EBRO_OK) return st;
    e->max_pages = eb_layout_pages(&e->layout, e->n_ctx);
    uint64_t live = eb_manager_estimate(&e->layout, e->max_seqs, e->n_ctx);
    uint64_t slots = (uint64_t)USUAL_KEPT_STATES * e->layout.slot_blocks;
    uint64_t kept = e->retention.keep == 0 ? 0 : (e->max_pages + slots) * e->layout.block_bytes;
    e->retention.budget_bytes = o->memory_bytes != 0 ? o->memory_bytes : live + kept;
    /* Small enough that little is taken in vain, large enough that there are few of them. */
    enum { LEAST_EXTENT = 16 << 20, MOST_EXTENT = 256 << 20 };
    uint64_t extent = e->retention.budget_bytes / 8, most = e->device->caps.max_alloc_bytes;
    if (extent < LEAST_EXTENT) extent = LEAST_EXTENT;
    if (extent > MOST_EXTENT) extent = MOST_EXTENT;
    e->retention.extent_bytes = most != 0 && extent > most ? most : extent;
    return EBRO_OK;
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
    if ((st = choose_sizes(e, &o, err)) != EBRO_OK) return st;
    if ((st = choose_retention(e, &o, err)) != EBRO_OK) return st;
    return choose_memory(e, &o, err);
}

/* ---- the arena --------------------------------------------------------------------------- */

static int32_t make_extent(void *user, uint32_t extent, uint64_t bytes, ebro_error *err) {
    struct ebro_engine *e = user;
    void *list = e->extents;
    int32_t st =
        eb_grow(&e->alloc, &list, &e->extents_capacity, extent + 1u, sizeof *e->extents, err);
    e->extents = list;
    if (st != EBRO_OK) return st;
    st = eb_mem_alloc(e->device, bytes, EBRO_MEM_DEVICE, &e->extents[extent], err);
    if (st == EBRO_OK) e->n_extents = extent + 1u;
    return st;
}

static void free_extents(struct ebro_engine *e) {
    for (size_t i = 0; i < e->n_extents; i++) eb_mem_free(e->device, &e->extents[i]);
    eb_free(&e->alloc, e->extents);
}

ebro_span eb_block_span(const struct ebro_engine *e, uint32_t block) {
    uint32_t per_extent = e->mem.blocks.extent_blocks;
    return (ebro_span){e->extents[block / per_extent],
                       block % per_extent * e->mem.blocks.block_bytes};
}

uint64_t eb_block_address(const struct ebro_engine *e, uint32_t block) {
    ebro_span s = eb_block_span(e, block);
    return s.mem->address + s.offset;
}

/* Whole blocks between device and host. */
static int32_t save_blocks(void *user, const uint32_t *blocks, uint32_t n, void *host,
                           ebro_error *err) {
    struct ebro_engine *e = user;
    uint64_t bytes = e->layout.block_bytes;
    for (uint32_t i = 0; i < n; i++) {
        int32_t st = eb_download(&e->stream, (char *)host + i * bytes, eb_block_span(e, blocks[i]),
                                 bytes, err);
        if (st != EBRO_OK) return st;
    }
    return eb_stream_sync(&e->stream, err);
}

static int32_t load_blocks(void *user, const uint32_t *blocks, uint32_t n, const void *host,
                           ebro_error *err) {
    struct ebro_engine *e = user;
    uint64_t bytes = e->layout.block_bytes;
    for (uint32_t i = 0; i < n; i++) {
        int32_t st = eb_upload(&e->stream, eb_block_span(e, blocks[i]),
                               (const char *)host + i * bytes, bytes, err);
        if (st != EBRO_OK) return st;
    }
    return eb_stream_sync(&e->stream, err);
}

static int32_t open_memory(struct ebro_engine *e, ebro_error *err) {
    e->retention.make = make_extent;
    e->retention.user = e;
    e->retention.host = (struct eb_host_calls){save_blocks, load_blocks, e};
    return eb_manager_open(&e->mem, &e->layout, &e->alloc, &e->retention, err);
}

bool eb_engine_batches_logits(const struct ebro_engine *e) {
    return e->max_seqs > 1 || eb_graphs_used(e);
}

static int32_t open_logits(struct ebro_engine *e, ebro_error *err) {
    if (!eb_engine_batches_logits(e)) return EBRO_OK;
    uint64_t bytes = (uint64_t)e->max_seqs * e->model->config.vocab_size * sizeof(float);
    int32_t st = eb_mem_alloc(e->device, bytes, EBRO_MEM_DEVICE, &e->batch_logits, err);
    return st == EBRO_OK ? st : eb_while(err, st, "allocating logits of %u sequences", e->max_seqs);
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
    if ((st = open_memory(e, err)) != EBRO_OK) goto out;
    e->parts = eb_calloc(&e->alloc, e->max_seqs, sizeof *e->parts, err);
    if (e->parts != NULL) e->heads = eb_calloc(&e->alloc, e->max_seqs + 1u, sizeof *e->heads, err);
    if (e->heads == NULL) {
        st = EBRO_NOMEM_HOST;
        goto out;
    }
    if ((st = open_logits(e, err)) != EBRO_OK) goto out;
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
    while (e->seqs != NULL) {
        ebro_seq *seq = e->seqs;
        ebro_seq_destroy(&seq);
    }
    eb_graphs_close(e);
    eb_manager_close(&e->mem);
    free_extents(e);
    eb_weights_free(&e->weights);
    eb_mem_free(e->device, &e->batch_logits);
    eb_mem_free(e->device, &e->step.mem);
    eb_mem_free(e->device, &e->work.mem);
    eb_mem_free(e->device, &e->readback);
    eb_sampler_close(e);
    eb_free(&e->alloc, e->parts);
    eb_free(&e->alloc, e->heads);
    eb_stream_close(&e->stream);
    eb_free(&e->alloc, e);
}

void ebro_engine_forget(ebro_engine *engine) {
    if (engine != NULL) eb_manager_clear(&engine->mem);
}

void ebro_engine_get_memory(const ebro_engine *engine, ebro_memory *out) {
    if (out == NULL || out->size < sizeof out->size) return;
    ebro_memory x = {.size = out->size};
    if (engine != NULL) {
        struct eb_manager_stats s;
        eb_manager_get_stats(&engine->mem, &s);
        x.budget_bytes = s.budget_bytes;
        x.taken_bytes = s.made_bytes;
        x.live_page_bytes = s.live_page_bytes;
        x.live_state_bytes = s.live_state_bytes;
        x.kept_page_bytes = s.kept_page_bytes;
        x.kept_state_bytes = s.kept_state_bytes;
        x.peak_bytes = s.peak_bytes;
        x.n_seqs = s.n_seqs;
        x.n_snapshots = s.n_snapshots;
        x.prompts = s.prompts;
        x.prompt_tokens = s.prompt_tokens;
        x.matched_tokens = s.matched_tokens;
        x.reused_tokens = s.reused_tokens;
        x.evaluated_tokens = s.evaluated_tokens;
        memcpy(x.misses, s.misses, sizeof x.misses);
        x.snapshots_kept = s.snapshots_kept;
        x.snapshots_refused = s.snapshots_refused;
        x.evictions = s.evictions;
        x.copied_pages = s.copied_pages;
        x.host_bytes = s.host_bytes;
        x.host_budget_bytes = s.host_budget_bytes;
        x.host_saves = s.host_saves;
        x.host_loads = s.host_loads;
        x.token_cost = s.token_cost;
        x.depth_cost = s.depth_cost;
    }
    memcpy(out, &x, out->size < sizeof x ? out->size : sizeof x);
}
