/* cache.c: one allocation of pages and one of slots, and the arithmetic of their layout. */
#include "mem/cache.h"

#include "ops/ops.h"

/* Heads and windows of one slot, so that every call agrees on their sizes. */
static uint64_t head_bytes(const struct eb_cache_geometry *g) {
    return (uint64_t)g->kda_head_dim * g->kda_head_dim * eb_dtype_size(g->state_dtype);
}

static uint64_t window_bytes(const struct eb_cache_geometry *g) {
    return (uint64_t)(EBRO_CONV_WIDTH - 1) * g->kda_heads * g->kda_head_dim * sizeof(float);
}

int32_t eb_cache_sizes(const struct eb_cache_geometry *g, uint64_t *page_bytes,
                       uint64_t *slot_bytes, ebro_error *err) {
    uint64_t rows = 0, page = 0, heads = 0, state = 0, windows = 0, slot = 0;
    bool fits = eb_mul_u64(g->n_mla_layers, g->page_tokens, &rows) &&
                eb_mul_u64(rows, (uint64_t)g->row_elements * eb_dtype_size(g->row_dtype), &page) &&
                eb_mul_u64(g->n_kda_layers, g->kda_heads, &heads) &&
                eb_mul_u64(heads, head_bytes(g), &state) &&
                eb_mul_u64((uint64_t)g->n_kda_layers * 3, window_bytes(g), &windows) &&
                eb_add_u64(state, windows, &slot);
    if (!fits)
        return eb_fail(err, EBRO_INVALID, "the sizes of a cache page or state slot overflow");
    *page_bytes = page;
    *slot_bytes = slot;
    return EBRO_OK;
}

int32_t eb_cache_open(struct ebro_device *d, const struct eb_cache_geometry *g, uint32_t n_pages,
                      uint32_t n_slots, struct eb_cache *out, ebro_error *err) {
    *out = (struct eb_cache){.device = d, .alloc = d->rt->alloc, .g = *g};
    struct eb_cache *c = out;
    uint64_t pages = 0, slots = 0;
    int32_t st = eb_cache_sizes(g, &c->page_bytes, &c->slot_bytes, err);
    if (st != EBRO_OK) goto out;
    c->slot_state_bytes = (uint64_t)g->n_kda_layers * g->kda_heads * head_bytes(g);
    if (!eb_mul_u64(c->page_bytes, n_pages, &pages) ||
        !eb_mul_u64(c->slot_bytes, n_slots, &slots)) {
        st = eb_fail(err, EBRO_INVALID, "%u cache pages of %llu bytes overflow", n_pages,
                     (unsigned long long)c->page_bytes);
        goto out;
    }
    c->free_pages = eb_calloc(&c->alloc, n_pages, sizeof *c->free_pages, err);
    if (c->free_pages == NULL) {
        st = EBRO_NOMEM_HOST;
        goto out;
    }
    if ((st = eb_mem_alloc(d, pages, EBRO_MEM_DEVICE, &c->pages, err)) != EBRO_OK) {
        st = eb_while(err, st, "allocating %u latent cache pages", n_pages);
        goto out;
    }
    if ((st = eb_mem_alloc(d, slots, EBRO_MEM_DEVICE, &c->slots, err)) != EBRO_OK) {
        st = eb_while(err, st, "allocating %u state slots", n_slots);
        goto out;
    }
    c->n_pages = n_pages;
    c->n_slots = n_slots;
    /* Popped from the end: page 0 goes first. */
    for (uint32_t i = 0; i < n_pages; i++) c->free_pages[i] = n_pages - 1 - i;
    c->n_free_pages = n_pages;
out:
    if (st != EBRO_OK) eb_cache_close(c);
    return st;
}

void eb_cache_close(struct eb_cache *c) {
    if (c->device == NULL) return;
    eb_mem_free(c->device, &c->pages);
    eb_mem_free(c->device, &c->slots);
    eb_free(&c->alloc, c->free_pages);
    *c = (struct eb_cache){0};
}

int32_t eb_cache_page_take(struct eb_cache *c, uint32_t *page, ebro_error *err) {
    if (c->n_free_pages == 0) {
        return eb_fail(err, EBRO_INVALID, "all %u latent cache pages are in use", c->n_pages);
    }
    *page = c->free_pages[--c->n_free_pages];
    return EBRO_OK;
}

void eb_cache_page_give(struct eb_cache *c, uint32_t page) {
    c->free_pages[c->n_free_pages++] = page;
}

uint64_t eb_cache_page_address(const struct eb_cache *c, uint32_t page) {
    return c->pages->address + page * c->page_bytes;
}

uint64_t eb_cache_slot_address(const struct eb_cache *c, uint32_t slot) {
    return c->slots->address + slot * c->slot_bytes;
}

ebro_region eb_cache_state_region(const struct eb_cache *c, uint32_t kda_layer, ebro_span table) {
    return (ebro_region){.table = table,
                         .table_stride = 1,
                         .first_unit = kda_layer * c->g.kda_heads,
                         .units_per_block = c->g.n_kda_layers * c->g.kda_heads,
                         .unit_bytes = head_bytes(&c->g),
                         .dtype = c->g.state_dtype};
}

ebro_region eb_cache_window_region(const struct eb_cache *c, uint32_t kda_layer, ebro_span table) {
    return (ebro_region){.table = table,
                         .table_stride = 1,
                         .first_unit = kda_layer * 3,
                         .units_per_block = c->g.n_kda_layers * 3,
                         .block_offset = c->slot_state_bytes,
                         .unit_bytes = window_bytes(&c->g),
                         .dtype = EBRO_F32};
}

ebro_pages eb_cache_layer_pages(const struct eb_cache *c, uint32_t mla_layer, ebro_span table,
                                uint32_t table_stride) {
    uint64_t layer_bytes =
        (uint64_t)c->g.page_tokens * c->g.row_elements * eb_dtype_size(c->g.row_dtype);
    return (ebro_pages){.table = table,
                        .table_stride = table_stride,
                        .page_tokens = c->g.page_tokens,
                        .layer_offset = mla_layer * layer_bytes,
                        .row_stride = c->g.row_elements,
                        .dtype = c->g.row_dtype};
}
