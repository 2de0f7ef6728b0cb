/* blocks.h: one arena of equal blocks under one limit. Knows block numbers, who holds them and
 * nothing of what is in them. Belongs to one thread at a time.
 *
 * Memory comes in extents, made when they are first needed and never beyond the limit; a block lies
 * in one extent. Blocks are counted apart for two kinds of holder: live sequences, and what is kept
 * for later ones (snapshots and their pages), so that it is always known what could be given up. */
#ifndef EB_BLOCKS_H
#define EB_BLOCKS_H

#include "base/alloc.h"

enum eb_holder { EB_LIVE = 0, EB_KEPT = 1, EB_N_HOLDERS };

/* Makes extent number `extent` of `n_blocks` blocks, or says why not (NOMEM). `bytes` is what it
 * takes. An arena without this call (NULL) is a count alone, for simulations. */
typedef int32_t (*eb_extent_fn)(void *user, uint32_t extent, uint64_t bytes, ebro_error *err);

struct eb_block {
    uint32_t refs[EB_N_HOLDERS];
    uint32_t fill; /* rows ever written to a page, a bound; see eb_block_claim */
    /* Of one count by eb_manager_committed: sequences that are yet to write here; one need not
     * copy. */
    uint32_t writers;
    bool spared;
};

struct eb_blocks {
    struct eb_alloc alloc;
    uint64_t block_bytes;
    uint32_t limit;         /* blocks that may exist */
    uint32_t extent_blocks; /* of every extent but the last */
    uint32_t n_made;        /* blocks in extents */
    struct eb_block *blocks;
    size_t blocks_capacity;
    uint32_t *free; /* a stack */
    size_t free_capacity;
    uint32_t n_free;
    uint32_t n_live, n_kept; /* held by a live sequence; held only as kept */
    uint32_t peak;           /* most blocks held at once */
    eb_extent_fn make;
    void *user;
};

/* extent_blocks and limit must be above 0. Makes nothing yet. */
void eb_blocks_open(struct eb_blocks *b, const struct eb_alloc *alloc, uint64_t block_bytes,
                    uint32_t limit, uint32_t extent_blocks, eb_extent_fn make, void *user);
void eb_blocks_close(struct eb_blocks *b); /* fine on a zeroed one; extents are their maker's */

/* Blocks that could be taken without anybody giving one up. */
uint32_t eb_blocks_available(const struct eb_blocks *b);
/* Makes extents until n blocks exist, held or not. NOMEM_DEVICE beyond the limit; when an extent
 * cannot be made the limit sinks to what exists. */
int32_t eb_blocks_make(struct eb_blocks *b, uint32_t n, ebro_error *err);
/* Makes extents until n blocks lie ready, so that the next n takes cannot fail. The caller has seen
 * to it that n are available. Fails as eb_blocks_make. */
int32_t eb_blocks_reserve(struct eb_blocks *b, uint32_t n, ebro_error *err);
/* A ready block, held once by `h`, nothing written to it. Needs a reserve. O(1). */
uint32_t eb_block_take(struct eb_blocks *b, enum eb_holder h);
void eb_block_hold(struct eb_blocks *b, uint32_t block, enum eb_holder h);
/* The last holder's drop makes the block ready again. */
void eb_block_drop(struct eb_blocks *b, uint32_t block, enum eb_holder h);
/* 1: the caller is the only holder. */
uint32_t eb_block_holders(const struct eb_blocks *b, uint32_t block);

/* May the caller, one of the block's holders, write rows [first, first + n) of it? True, and notes
 * them as written, when it is the only holder, or when nobody wrote there before: rows behind all
 * that other holders can know are free for the first who comes. False: it must copy the block. */
bool eb_block_claim(struct eb_blocks *b, uint32_t block, uint32_t first, uint32_t n);
/* Takes the newest claim back, which found `fill` rows written: what it wrote is nobody's. */
void eb_block_unclaim(struct eb_blocks *b, uint32_t block, uint32_t fill);
/* The same question, without noting anything. */
bool eb_block_claimable(const struct eb_blocks *b, uint32_t block, uint32_t first);

#endif
