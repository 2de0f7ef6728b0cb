/* estimate.c: what an engine would take of a device's memory, from the same plans that it is opened
 * with. Allocates nothing on the device. */
#include <string.h>

#include "engine/engine.h"

static int32_t add_up(ebro_estimate *x, ebro_error *err) {
    const uint64_t parts[] = {x->weights_in_place, x->weights_copied, x->memory_bytes,
                              x->workspace_bytes, x->other_bytes};
    x->total_bytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!eb_add_u64(x->total_bytes, parts[i], &x->total_bytes))
            return eb_fail(err, EBRO_INVALID, "the sum of all memory overflows");
    }
    return EBRO_OK;
}

/* Live sequences as they were all full; what they leave of the budget is for what is kept. */
static int32_t fill_memory(const struct ebro_engine *e, ebro_estimate *x, ebro_error *err) {
    const struct eb_layout *l = &e->layout;
    const struct eb_shape *s = &l->shape;
    uint64_t heads = (uint64_t)s->n_kda_layers * s->kda_heads * l->head_bytes;
    uint64_t live = eb_manager_estimate(l, e->max_seqs, e->n_ctx), rows = 0;
    x->n_states = 2 * e->max_seqs;
    x->state_bytes = x->n_states * heads;
    x->window_bytes = x->n_states * (l->state_bytes - heads);
    x->cache_token_bytes = l->row_bytes;
    if (!eb_mul_u64(l->row_bytes * e->max_seqs, e->n_ctx, &rows) || rows > live)
        return eb_fail(err, EBRO_INVALID, "a latent cache of %u tokens overflows", e->n_ctx);
    x->cache_bytes = rows;
    x->rounding_bytes = live - rows - x->state_bytes - x->window_bytes;
    int32_t st = eb_manager_check_budget(l, e->retention.budget_bytes, err);
    if (st != EBRO_OK) return st;
    x->memory_bytes = e->retention.budget_bytes / l->block_bytes * l->block_bytes;
    x->kept_bytes = x->memory_bytes > live ? x->memory_bytes - live : 0;
    x->block_bytes = l->block_bytes;
    return EBRO_OK;
}

static int32_t fill(struct ebro_engine *e, ebro_estimate *x, ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    x->n_ctx = e->n_ctx;
    x->n_chunk = e->n_chunk;
    x->cache_dtype = e->cache_dtype;
    int32_t st = fill_memory(e, x, err);
    if (st != EBRO_OK) return st;
    if ((st = eb_workspace_plan(e, &x->workspace_bytes, err)) != EBRO_OK) return st;
    uint64_t rows = (eb_engine_batches_logits(e) ? 2 : 1) * (uint64_t)e->max_seqs;
    x->other_bytes =
        eb_step_block_bytes(e) + rows * c->vocab_size * sizeof(float) + sizeof(int32_t);
    eb_weights_bytes(e->model, e->device, &x->weights_in_place, &x->weights_copied);
    return add_up(x, err);
}

int32_t ebro_model_estimate(ebro_model *model, ebro_device *device,
                            const ebro_engine_options *options, ebro_estimate *out,
                            ebro_error *err) {
    if (model == NULL || device == NULL || out == NULL) {
        return eb_fail(err, EBRO_INVALID,
                       "ebro_model_estimate: model, device and out must not be NULL");
    }
    if (out->size < sizeof out->size) {
        return eb_fail(err, EBRO_INVALID, "ebro_estimate.size is %zu: set it to sizeof the struct",
                       out->size);
    }
    ebro_estimate x = {.size = out->size};
    struct ebro_engine *e = eb_calloc(&device->rt->alloc, 1, sizeof *e, err);
    if (e == NULL) return EBRO_NOMEM_HOST;
    int32_t st = eb_engine_plan(model, device, options, e, err);
    if (st == EBRO_OK) st = fill(e, &x, err);
    eb_free(&device->rt->alloc, e);
    if (st != EBRO_OK) return eb_while(err, st, "estimating an engine on %s", device->info.name);
    memcpy(out, &x, out->size < sizeof x ? out->size : sizeof x);
    return EBRO_OK;
}
