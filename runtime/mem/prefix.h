/* prefix.h: which token chains were seen, and what of them is kept: a radix tree whose nodes are
 * runs of tokens. A node may be resident (it holds the pages of its tokens) and carry a snapshot of
 * the recurrent state after its last token. What was given up leaves its tokens behind for a while,
 * so that a chain that is seen again is known. One tree per model: token ids are the whole key.
 * Belongs to one thread at a time.
 *
 * Invariants: a resident node's parent is resident; a snapshot sits on a resident node; a page that
 * a node holds for its first, shared page holds the rows of the whole path up to there. */
#ifndef EB_PREFIX_H
#define EB_PREFIX_H

#include "mem/slots.h"

/* Why a snapshot was kept; bits, so that they can be chosen together. */
enum eb_keep {
    EB_KEEP_PROMPT_END = 1u << 0, /* before the last token of a prompt */
    EB_KEEP_TURN_END = 1u << 1,   /* where a sequence ended, or a new turn was appended */
    EB_KEEP_INTERVAL = 1u << 2,   /* every N tokens */
    EB_KEEP_JUNCTION = 1u << 3,   /* where a prompt left a chain that had been seen before */
    EB_KEEP_NAMED = 1u << 4,      /* asked for by the application */
    EB_KEEP_LOADED = 1u << 5      /* read from a file */
};

struct eb_node {
    struct eb_node *parent;
    struct eb_node *bucket_next;               /* in the child index */
    struct eb_node *first_child, *next, *prev; /* siblings */
    uint64_t serial;                           /* names this node in the child index */
    int32_t *tokens;                           /* [n] */
    uint32_t start, n;                         /* positions [start, start + n) */
    uint32_t *pages;                           /* of those positions; NULL: not resident */
    uint32_t n_resident_children;
    struct eb_slot *snapshot;  /* after the last token; NULL: none */
    uint32_t why;              /* EB_KEEP_*, of the snapshot */
    bool lost;                 /* had a snapshot that was given up */
    struct eb_host_copy *host; /* of a snapshot after the last token; NULL: none. See host.h */
    /* The policy's. */
    double score;
    uint32_t hits, heap_at;
    uint8_t segment;
    /* Ghosts without children, oldest first. */
    struct eb_node *older, *newer;
    bool listed;
};

struct eb_prefix {
    struct eb_alloc alloc;
    struct eb_blocks *blocks;
    struct eb_slots *slots;
    uint32_t page_tokens; /* 0: the model has no pages */
    struct eb_node root;
    struct eb_node **buckets;
    size_t n_buckets; /* a power of two, or 0 */
    uint64_t n_nodes, next_serial;
    uint64_t n_tokens, max_tokens; /* held in nodes; beyond the limit the oldest ghosts go */
    uint32_t n_snapshots;
    struct eb_node *oldest, *newest;
};

struct eb_match {
    uint32_t matched;         /* leading tokens that are in the tree */
    struct eb_node *snapshot; /* deepest on the path at or before the cap; NULL: none */
    struct eb_node *hosted;   /* below that one, with a copy in host memory; NULL: none */
    bool lost;                /* past both, a snapshot was once kept and given up */
};

void eb_prefix_open(struct eb_prefix *t, const struct eb_alloc *alloc, struct eb_blocks *blocks,
                    struct eb_slots *slots, uint32_t page_tokens, uint64_t max_tokens);
void eb_prefix_close(struct eb_prefix *t); /* drops all that it holds; fine on a zeroed one */

/* Looks n tokens up. `cap`: a snapshot after more than this many tokens is of no use. */
struct eb_match eb_prefix_match(struct eb_prefix *t, const int32_t *tokens, uint32_t n,
                                uint32_t cap);
static inline uint32_t eb_node_end(const struct eb_node *n) {
    return n->start + n->n;
}
/* Pages of positions [0, end of node): out[ceil(end / page_tokens)], not held for the caller. */
void eb_prefix_pages(const struct eb_prefix *t, const struct eb_node *node, uint32_t *out);

/* Notes a chain as seen, without keeping anything of it but tokens. */
int32_t eb_prefix_note(struct eb_prefix *t, const int32_t *tokens, uint32_t n, ebro_error *err);
/* Keeps `slot`, the state after n > 0 tokens, and the pages of those tokens (the sequence's list,
 * from position 0). Pages that the path holds already are not replaced. Holds what it takes. When a
 * snapshot is there already, *out is its node and nothing else happens. NOMEM_HOST leaves a valid
 * tree without the snapshot. */
int32_t eb_prefix_keep(struct eb_prefix *t, const int32_t *tokens, uint32_t n,
                       const uint32_t *pages, struct eb_slot *slot, uint32_t why,
                       struct eb_node **out, ebro_error *err);
/* Drops a node's snapshot, and the pages of the path that no other snapshot needs. */
void eb_prefix_forget(struct eb_prefix *t, struct eb_node *node);
/* Pages that hold n tokens; 0 where the model has none. */
uint32_t eb_prefix_page_count(const struct eb_prefix *t, uint32_t n_tokens);
/* The node's host copy is gone: without anything else it may be forgotten in its turn. */
void eb_prefix_let_go(struct eb_prefix *t, struct eb_node *node);
/* Brings the noted tokens down to max_tokens: drops ghosts, the oldest first. Runs by itself where
 * tokens are added. */
void eb_prefix_trim(struct eb_prefix *t);

/* For tests: checks every invariant and the counts; a text that says which is broken, or NULL. */
const char *eb_prefix_audit(const struct eb_prefix *t);

#endif
