/* host.h: the second tier: copies in host memory of snapshots that the device had no room for, each
 * with all pages before it, so that it needs nothing else to be resumed from. Under a byte limit of
 * its own; the least recently used copy goes first. Belongs to the manager's thread. */
#ifndef EB_HOST_H
#define EB_HOST_H

#include "mem/prefix.h"

/* Copy n whole blocks to or from host memory, one after the other; done when the call returns. */
struct eb_host_calls {
    int32_t (*save)(void *user, const uint32_t *blocks, uint32_t n, void *host, ebro_error *err);
    int32_t (*load)(void *user, const uint32_t *blocks, uint32_t n, const void *host,
                    ebro_error *err);
    void *user;
};

struct eb_host_copy {
    struct eb_node *node; /* whose snapshot it is */
    struct eb_host_copy *older, *newer;
    uint64_t bytes;
    uint32_t n_pages, n_blocks; /* pages of positions [0, end), then those of the slot */
    uint8_t *data;              /* NULL where nothing is copied (simulations) */
};

struct eb_host {
    struct eb_alloc alloc;
    struct eb_prefix *prefix;
    struct eb_host_calls call; /* NULL functions: counts alone */
    uint64_t limit, used;      /* bytes of block contents */
    struct eb_host_copy *oldest, *newest, *pinned;
    uint32_t n;
};

/* Copies the node's snapshot before it is given up. False where it does not fit, or cannot be read;
 * then nothing has changed but that older copies may be gone. A copy that is there is kept. */
bool eb_host_save(struct eb_host *h, struct eb_node *node);
/* Fills blocks, taken and in the order of the copy, and makes the copy the newest. */
int32_t eb_host_load(struct eb_host *h, struct eb_node *node, const uint32_t *blocks,
                     ebro_error *err);
/* A pinned copy is not dropped for room. One at a time. */
void eb_host_pin(struct eb_host *h, struct eb_node *node, bool on);
/* NULL-safe on a node without a copy. */
void eb_host_drop(struct eb_host *h, struct eb_node *node);
void eb_host_clear(struct eb_host *h); /* fine on a zeroed one */

#endif
