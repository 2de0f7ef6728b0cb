/* estimate.c: what an engine would take of a device's memory, from the same plans that it is opened
 * with. Allocates nothing on the device. */
#include <string.h>

#include "engine/engine.h"

static int32_t add_up(ebro_estimate *x, ebro_error *err) {
    const uint64_t parts[] = {x->weights_in_place, x->weights_copied, x->state_bytes,
                              x->window_bytes,     x->cache_bytes,    x->workspace_bytes,
                              x->other_bytes};
    x->total_bytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!eb_add_u64(x->total_bytes, parts[i], &x->total_bytes))
            return eb_fail(err, EBRO_INVALID, "the sum of all memory overflows");
    }
    return EBRO_OK;
}

static int32_t fill(struct ebro_engine *e, ebro_estimate *x, ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    struct eb_cache_geometry g = eb_engine_geometry(e->model, e->cache_dtype);
    uint64_t page = 0, slot = 0;
    int32_t st = eb_cache_sizes(&g, &page, &slot, err);
    if (st != EBRO_OK) return st;
    uint64_t state = (uint64_t)g.n_kda_layers * g.kda_heads * g.kda_head_dim * g.kda_head_dim *
                     eb_dtype_size(g.state_dtype);
    x->n_ctx = e->n_ctx;
    x->n_chunk = e->n_chunk;
    x->cache_dtype = e->cache_dtype;
    x->n_states = e->n_slots;
    x->state_bytes = e->n_slots * state;
    x->window_bytes = e->n_slots * (slot - state);
    x->cache_token_bytes = page / g.page_tokens;
    if (!eb_mul_u64(page, e->max_pages, &x->cache_bytes))
        return eb_fail(err, EBRO_INVALID, "a latent cache of %u tokens overflows", e->n_ctx);
    if ((st = eb_workspace_plan(e, &x->workspace_bytes, err)) != EBRO_OK) return st;
    x->other_bytes =
        eb_step_block_bytes(e) + (uint64_t)c->vocab_size * sizeof(float) + sizeof(int32_t);
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
