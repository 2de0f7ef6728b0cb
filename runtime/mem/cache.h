/* cache.h: the memory of sequences on one device: latent pages and state slots, addressed as the op
 * arguments want them. Knows page and slot numbers, not tokens: who owns what is the caller's.
 * Belongs to one thread at a time. */
#ifndef EB_CACHE_H
#define EB_CACHE_H

#include "device/device.h"

/* What one sequence needs of a model. */
struct eb_cache_geometry {
    uint32_t n_mla_layers, n_kda_layers;
    uint32_t row_elements; /* latent row: kv_lora_rank + qk_rope_head_dim */
    int32_t row_dtype;     /* F32, F16, BF16 */
    uint32_t page_tokens;
    uint32_t kda_heads, kda_head_dim;
    int32_t state_dtype; /* F32 or BF16 */
};

/* A page holds page_tokens rows of every MLA layer, layer after layer. A slot holds S of every KDA
 * head, layer after layer, then the convolution windows [layer][q, k, v]. */
struct eb_cache {
    struct ebro_device *device;
    struct eb_alloc alloc;
    struct eb_cache_geometry g;
    uint32_t n_pages, n_slots;
    uint64_t page_bytes, slot_bytes, slot_state_bytes;
    ebro_mem *pages, *slots;
    uint32_t *free_pages; /* a stack */
    uint32_t n_free_pages;
};

/* Bytes of one page and of one slot. INVALID when they overflow. */
int32_t eb_cache_sizes(const struct eb_cache_geometry *g, uint64_t *page_bytes,
                       uint64_t *slot_bytes, ebro_error *err);

int32_t eb_cache_open(struct ebro_device *d, const struct eb_cache_geometry *g, uint32_t n_pages,
                      uint32_t n_slots, struct eb_cache *out, ebro_error *err);
void eb_cache_close(struct eb_cache *c); /* fine on a zeroed one */

/* Takes a free page; INVALID when there is none. */
int32_t eb_cache_page_take(struct eb_cache *c, uint32_t *page, ebro_error *err);
void eb_cache_page_give(struct eb_cache *c, uint32_t page);

/* Addresses for the device tables. */
uint64_t eb_cache_page_address(const struct eb_cache *c, uint32_t page);
uint64_t eb_cache_slot_address(const struct eb_cache *c, uint32_t slot);

/* The views of one layer; `table` is where the caller keeps the addresses on the device: one u64
 * per slot, or n_pages u64 per sequence. Layers count among their own kind. */
ebro_region eb_cache_state_region(const struct eb_cache *c, uint32_t kda_layer, ebro_span table);
ebro_region eb_cache_window_region(const struct eb_cache *c, uint32_t kda_layer, ebro_span table);
ebro_pages eb_cache_layer_pages(const struct eb_cache *c, uint32_t mla_layer, ebro_span table,
                                uint32_t table_stride);

#endif
