/* layout.c: the search for the block size, and the addresses that follow from it. */
#include "mem/layout.h"

#include "base/alloc.h"
#include "ops/ops.h"

enum { ALIGN = 256, USUAL_PAGE = 64, MOST_PAGE = 128, PAGE_STEP = 16 };

static uint64_t align_up(uint64_t n) {
    return (n + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
}

/* Bytes of one unit of each kind. False where they overflow 2^48, which no device holds. */
static bool unit_sizes(struct eb_layout *l) {
    const struct eb_shape *s = &l->shape;
    const uint64_t most = (uint64_t)1 << 48;
    uint64_t row = 0, head = 0, channels = 0, heads = 0, state = 0, windows = 0;
    bool fits =
        eb_mul_u64((uint64_t)s->n_mla_layers * eb_dtype_size(s->row_dtype), s->row_elements,
                   &row) &&
        eb_mul_u64((uint64_t)s->kda_head_dim * s->kda_head_dim, eb_dtype_size(s->state_dtype),
                   &head) &&
        eb_mul_u64(s->kda_heads, s->kda_head_dim, &channels) && channels < most && row < most &&
        eb_mul_u64(s->n_kda_layers, s->kda_heads, &heads) && eb_mul_u64(heads, head, &state) &&
        eb_mul_u64((uint64_t)s->n_kda_layers * 3, (EBRO_CONV_WIDTH - 1) * channels * sizeof(float),
                   &windows) &&
        eb_add_u64(state, windows, &l->state_bytes) && l->state_bytes < most && heads < UINT32_MAX;
    l->row_bytes = row;
    l->head_bytes = head;
    l->window_bytes = (EBRO_CONV_WIDTH - 1) * channels * sizeof(float);
    return fits;
}

/* Cuts a slot into blocks of l->block_bytes; false where a unit does not fit one. */
static bool cut_slot(struct eb_layout *l) {
    const struct eb_shape *s = &l->shape;
    l->heads_per_block = l->windows_per_block = 1;
    l->head_blocks = l->slot_blocks = 0;
    if (s->n_kda_layers == 0) return true;
    uint64_t heads = (uint64_t)s->n_kda_layers * s->kda_heads, windows = 3ull * s->n_kda_layers;
    uint64_t per_block = l->block_bytes / l->head_bytes;
    uint64_t windows_per_block = l->block_bytes / l->window_bytes;
    if (per_block == 0 || windows_per_block == 0) return false;
    if (per_block > heads) per_block = heads;
    if (windows_per_block > windows) windows_per_block = windows;
    l->heads_per_block = (uint32_t)per_block;
    l->windows_per_block = (uint32_t)windows_per_block;
    l->head_blocks = (uint32_t)((heads + per_block - 1) / per_block);
    l->slot_blocks =
        l->head_blocks + (uint32_t)((windows + windows_per_block - 1) / windows_per_block);
    return true;
}

double eb_layout_page_waste(const struct eb_layout *l) {
    if (l->row_bytes == 0) return 0.0;
    return 1.0 - (double)(l->page_tokens * l->row_bytes) / (double)l->block_bytes;
}

double eb_layout_slot_waste(const struct eb_layout *l) {
    if (l->slot_blocks == 0) return 0.0;
    return 1.0 - (double)l->state_bytes / ((double)l->slot_blocks * (double)l->block_bytes);
}

/* Lower is better. A page other than the usual one must save more than a percent: its half-filled
 * last page costs every sequence. */
static double cost(const struct eb_layout *l) {
    double far = l->page_tokens == USUAL_PAGE ? 0.0 : 0.01;
    if (l->page_tokens > USUAL_PAGE) far *= (double)l->page_tokens / USUAL_PAGE;
    return eb_layout_page_waste(l) + eb_layout_slot_waste(l) + far;
}

static void consider(struct eb_layout l, uint64_t block_bytes, double *best,
                     struct eb_layout *out) {
    l.block_bytes = align_up(block_bytes > 0 ? block_bytes : 1);
    if (l.block_bytes < l.page_tokens * l.row_bytes || !cut_slot(&l)) return;
    double c = cost(&l);
    if (c < *best) {
        *best = c;
        *out = l;
    }
}

int32_t eb_layout_plan(const struct eb_shape *shape, struct eb_layout *out, ebro_error *err) {
    struct eb_layout l = {.shape = *shape};
    *out = l;
    if (!unit_sizes(&l))
        return eb_fail(err, EBRO_INVALID, "the sizes of a cache page or state slot overflow");
    double best = 1e30;
    for (uint32_t tokens = PAGE_STEP; tokens <= MOST_PAGE; tokens += PAGE_STEP) {
        l.page_tokens = tokens;
        uint64_t page = tokens * l.row_bytes;
        consider(l, page, &best, out);
        if (shape->n_kda_layers == 0) continue;
        /* Blocks that heads, or windows, fill exactly and that hold the page. */
        for (uint64_t unit = l.head_bytes;; unit = l.window_bytes) {
            uint64_t n = page == 0 ? 1 : (page + unit - 1) / unit;
            consider(l, n * unit, &best, out);
            consider(l, n * unit > l.window_bytes ? n * unit : l.window_bytes, &best, out);
            if (unit == l.window_bytes) break;
        }
        if (l.row_bytes == 0) break; /* no pages: their size does not matter */
    }
    return EBRO_OK;
}

uint32_t eb_layout_pages(const struct eb_layout *l, uint32_t n_tokens) {
    if (l->row_bytes == 0) return 0;
    return n_tokens / l->page_tokens + (n_tokens % l->page_tokens != 0);
}

ebro_region eb_layout_states(const struct eb_layout *l, uint32_t kda_layer, ebro_span slot_table) {
    return (ebro_region){.table = slot_table,
                         .table_stride = l->slot_blocks,
                         .first_block = 0,
                         .first_unit = kda_layer * l->shape.kda_heads,
                         .units_per_block = l->heads_per_block,
                         .unit_bytes = l->head_bytes,
                         .dtype = l->shape.state_dtype};
}

ebro_region eb_layout_windows(const struct eb_layout *l, uint32_t kda_layer, ebro_span slot_table) {
    return (ebro_region){.table = slot_table,
                         .table_stride = l->slot_blocks,
                         .first_block = l->head_blocks,
                         .first_unit = kda_layer * 3,
                         .units_per_block = l->windows_per_block,
                         .unit_bytes = l->window_bytes,
                         .dtype = EBRO_F32};
}

ebro_pages eb_layout_rows(const struct eb_layout *l, uint32_t mla_layer, ebro_span page_table,
                          uint32_t stride) {
    const struct eb_shape *s = &l->shape;
    uint64_t layer_bytes =
        (uint64_t)l->page_tokens * s->row_elements * (uint64_t)eb_dtype_size(s->row_dtype);
    return (ebro_pages){.table = page_table,
                        .table_stride = stride,
                        .page_tokens = l->page_tokens,
                        .layer_offset = mla_layer * layer_bytes,
                        .row_stride = s->row_elements,
                        .dtype = s->row_dtype};
}
