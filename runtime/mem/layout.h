/* layout.h: how the memory of sequences is cut into blocks of one size. A block is either a page of
 * latent rows or part of a state slot, so that memory moves between the two uses with no fixed
 * split. Arithmetic alone: owns nothing, touches no device. */
#ifndef EB_LAYOUT_H
#define EB_LAYOUT_H

#include <stdbool.h>

#include "ebro/backend.h"

/* What one sequence needs of a model. */
struct eb_shape {
    uint32_t n_mla_layers, n_kda_layers;
    uint32_t row_elements; /* latent row: kv_lora_rank + qk_rope_head_dim */
    int32_t row_dtype;     /* F32, F16, BF16 */
    uint32_t kda_heads, kda_head_dim;
    int32_t state_dtype; /* S: F32 or BF16; convolution windows are F32 */
};

/* A page holds page_tokens rows of every MLA layer, layer after layer, in one block. A slot is a
 * list of slot_blocks blocks: first head_blocks blocks of S, heads_per_block units each, layer
 * after layer; then blocks of convolution windows [layer][q, k, v], windows_per_block units each. A
 * unit is never split between blocks. */
struct eb_layout {
    struct eb_shape shape;
    uint32_t page_tokens;
    uint64_t block_bytes; /* a multiple of 256 */
    uint64_t row_bytes;   /* one token over all MLA layers */
    uint64_t head_bytes, window_bytes;
    uint32_t heads_per_block, windows_per_block;
    uint32_t head_blocks, slot_blocks; /* 0 without KDA layers */
    uint64_t state_bytes;              /* what a slot holds: S of all heads and windows */
};

/* Chooses page_tokens (a multiple of 16) and block_bytes so that
 * what rounding wastes in pages and slots together is least, 64 tokens a page where that costs
 * nothing. INVALID when sizes overflow. */
int32_t eb_layout_plan(const struct eb_shape *shape, struct eb_layout *out, ebro_error *err);

/* Share of a full page's blocks, or of a slot's, that holds nothing: 0 to 1. */
double eb_layout_page_waste(const struct eb_layout *l);
double eb_layout_slot_waste(const struct eb_layout *l);

/* Blocks of the pages that hold n tokens. */
uint32_t eb_layout_pages(const struct eb_layout *l, uint32_t n_tokens);

/* The views of one layer for the op arguments; layers count among their own kind. `slot_table` is
 * u64 [slots][slot_blocks] block addresses, `page_table` u64 [seqs][stride]. */
ebro_region eb_layout_states(const struct eb_layout *l, uint32_t kda_layer, ebro_span slot_table);
ebro_region eb_layout_windows(const struct eb_layout *l, uint32_t kda_layer, ebro_span slot_table);
ebro_pages eb_layout_rows(const struct eb_layout *l, uint32_t mla_layer, ebro_span page_table,
                          uint32_t stride);

#endif
