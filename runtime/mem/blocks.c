/* blocks.c: free stack, counts of holders, extents on demand. */
#include "mem/blocks.h"

#include <assert.h>
#include <string.h>

void eb_blocks_open(struct eb_blocks *b, const struct eb_alloc *alloc, uint64_t block_bytes,
                    uint32_t limit, uint32_t extent_blocks, eb_extent_fn make, void *user) {
    *b = (struct eb_blocks){.alloc = *alloc,
                            .block_bytes = block_bytes,
                            .limit = limit,
                            .extent_blocks = extent_blocks,
                            .make = make,
                            .user = user};
}

void eb_blocks_close(struct eb_blocks *b) {
    eb_free(&b->alloc, b->blocks);
    eb_free(&b->alloc, b->free);
    *b = (struct eb_blocks){0};
}

uint32_t eb_blocks_available(const struct eb_blocks *b) {
    return b->n_free + (b->limit - b->n_made);
}

/* One more extent. Host arrays grow first: they can fail without a trace. */
static int32_t make_extent(struct eb_blocks *b, ebro_error *err) {
    uint32_t n = b->limit - b->n_made;
    if (n > b->extent_blocks) n = b->extent_blocks;
    size_t total = (size_t)b->n_made + n;
    void *blocks = b->blocks, *stack = b->free;
    int32_t st = eb_grow(&b->alloc, &blocks, &b->blocks_capacity, total, sizeof *b->blocks, err);
    b->blocks = blocks;
    if (st != EBRO_OK) return st;
    st = eb_grow(&b->alloc, &stack, &b->free_capacity, total, sizeof *b->free, err);
    b->free = stack;
    if (st != EBRO_OK) return st;
    if (b->make != NULL) {
        st = b->make(b->user, b->n_made / b->extent_blocks, n * b->block_bytes, err);
        if (st != EBRO_OK) return st;
    }
    memset(b->blocks + b->n_made, 0, n * sizeof *b->blocks);
    /* Popped from the end: the lowest number goes first. */
    for (uint32_t i = 0; i < n; i++) b->free[b->n_free + i] = b->n_made + n - 1 - i;
    b->n_free += n;
    b->n_made += n;
    return EBRO_OK;
}

int32_t eb_blocks_make(struct eb_blocks *b, uint32_t n, ebro_error *err) {
    while (b->n_made < n) {
        if (b->n_made == b->limit) {
            return eb_fail(err, EBRO_NOMEM_DEVICE, "%llu bytes of cache are needed, %llu allowed",
                           (unsigned long long)n * b->block_bytes,
                           (unsigned long long)b->limit * b->block_bytes);
        }
        int32_t st = make_extent(b, err);
        if (st == EBRO_OK) continue;
        /* The device has less than the budget promised: go on within what there is. */
        if (st == EBRO_NOMEM_DEVICE && b->n_made > 0) b->limit = b->n_made;
        return eb_while(err, st, "making %llu bytes of cache, of %llu allowed",
                        (unsigned long long)n * b->block_bytes,
                        (unsigned long long)b->limit * b->block_bytes);
    }
    return EBRO_OK;
}

int32_t eb_blocks_reserve(struct eb_blocks *b, uint32_t n, ebro_error *err) {
    return n <= b->n_free ? EBRO_OK : eb_blocks_make(b, b->n_made + (n - b->n_free), err);
}

uint32_t eb_block_take(struct eb_blocks *b, enum eb_holder h) {
    assert(b->n_free > 0);
    uint32_t block = b->free[--b->n_free];
    b->blocks[block] = (struct eb_block){0};
    b->blocks[block].refs[h] = 1;
    if (h == EB_LIVE)
        b->n_live++;
    else
        b->n_kept++;
    uint32_t held = b->n_live + b->n_kept;
    if (held > b->peak) b->peak = held;
    return block;
}

void eb_block_hold(struct eb_blocks *b, uint32_t block, enum eb_holder h) {
    struct eb_block *k = &b->blocks[block];
    assert(block < b->n_made && k->refs[EB_LIVE] + k->refs[EB_KEPT] > 0);
    if (h == EB_LIVE && k->refs[EB_LIVE] == 0) {
        b->n_live++;
        b->n_kept--;
    }
    k->refs[h]++;
}

void eb_block_drop(struct eb_blocks *b, uint32_t block, enum eb_holder h) {
    struct eb_block *k = &b->blocks[block];
    assert(block < b->n_made && k->refs[h] > 0);
    k->refs[h]--;
    bool live = k->refs[EB_LIVE] > 0, kept = k->refs[EB_KEPT] > 0;
    if (h == EB_LIVE && !live) {
        b->n_live--;
        if (kept) b->n_kept++;
    }
    if (h == EB_KEPT && !kept && !live) b->n_kept--;
    if (!live && !kept) b->free[b->n_free++] = block;
}

uint32_t eb_block_holders(const struct eb_blocks *b, uint32_t block) {
    return b->blocks[block].refs[EB_LIVE] + b->blocks[block].refs[EB_KEPT];
}

bool eb_block_claimable(const struct eb_blocks *b, uint32_t block, uint32_t first) {
    return eb_block_holders(b, block) == 1 || first >= b->blocks[block].fill;
}

void eb_block_unclaim(struct eb_blocks *b, uint32_t block, uint32_t fill) {
    b->blocks[block].fill = fill;
}

bool eb_block_claim(struct eb_blocks *b, uint32_t block, uint32_t first, uint32_t n) {
    if (!eb_block_claimable(b, block, first)) return false;
    struct eb_block *k = &b->blocks[block];
    /* A sole holder that went back overwrites its own later rows: they are no longer anybody's. */
    k->fill = first + n;
    return true;
}
