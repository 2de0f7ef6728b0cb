/* prefix.c: the radix tree: walking, splitting, keeping, forgetting. */
#include "mem/prefix.h"

#include <assert.h>
#include <string.h>

void eb_prefix_open(struct eb_prefix *t, const struct eb_alloc *alloc, struct eb_blocks *blocks,
                    struct eb_slots *slots, uint32_t page_tokens, uint64_t max_tokens) {
    *t = (struct eb_prefix){.alloc = *alloc,
                            .blocks = blocks,
                            .slots = slots,
                            .page_tokens = page_tokens,
                            .next_serial = 1,
                            .max_tokens = max_tokens};
}

/* ---- the index of children: (parent, first token) -> node ------------------------------- */

static uint64_t mix(uint64_t serial, int32_t token) {
    uint64_t z = serial * 0x9e3779b97f4a7c15u + (uint32_t)token;
    z = (z ^ (z >> 31)) * 0xbf58476d1ce4e5b9u;
    return z ^ (z >> 29);
}

static struct eb_node **bucket_of(const struct eb_prefix *t, const struct eb_node *parent,
                                  int32_t token) {
    return &t->buckets[mix(parent->serial, token) & (t->n_buckets - 1)];
}

static struct eb_node *find_child(const struct eb_prefix *t, const struct eb_node *parent,
                                  int32_t token) {
    if (t->n_buckets == 0) return NULL;
    struct eb_node *n = *bucket_of(t, parent, token);
    while (n != NULL && (n->parent != parent || n->tokens[0] != token)) n = n->bucket_next;
    return n;
}

static int32_t grow_index(struct eb_prefix *t, ebro_error *err) {
    if (t->n_nodes < t->n_buckets) return EBRO_OK;
    size_t n = t->n_buckets == 0 ? 64 : t->n_buckets * 2;
    struct eb_node **old = t->buckets, **fresh = eb_calloc(&t->alloc, n, sizeof(void *), err);
    if (fresh == NULL) return EBRO_NOMEM_HOST;
    size_t n_old = t->n_buckets;
    t->buckets = fresh;
    t->n_buckets = n;
    for (size_t i = 0; i < n_old; i++) {
        for (struct eb_node *node = old[i], *next; node != NULL; node = next) {
            next = node->bucket_next;
            struct eb_node **b = bucket_of(t, node->parent, node->tokens[0]);
            node->bucket_next = *b;
            *b = node;
        }
    }
    eb_free(&t->alloc, old);
    return EBRO_OK;
}

static void unlink_ghost(struct eb_prefix *t, struct eb_node *n);
static void list_if_ghost_leaf(struct eb_prefix *t, struct eb_node *n);

static void link_child(struct eb_prefix *t, struct eb_node *parent, struct eb_node *n) {
    n->parent = parent;
    n->prev = NULL;
    n->next = parent->first_child;
    if (n->next != NULL) n->next->prev = n;
    parent->first_child = n;
    if (n->pages != NULL) parent->n_resident_children++;
    struct eb_node **b = bucket_of(t, parent, n->tokens[0]);
    n->bucket_next = *b;
    *b = n;
    unlink_ghost(t, parent);
}

static void unlink_child(struct eb_prefix *t, struct eb_node *n) {
    struct eb_node *parent = n->parent;
    if (n->prev != NULL)
        n->prev->next = n->next;
    else
        parent->first_child = n->next;
    if (n->next != NULL) n->next->prev = n->prev;
    if (n->pages != NULL) parent->n_resident_children--;
    struct eb_node **b = bucket_of(t, parent, n->tokens[0]);
    while (*b != n) b = &(*b)->bucket_next;
    *b = n->bucket_next;
}

/* ---- ghosts: nodes that hold tokens alone ----------------------------------------------- */

static void unlink_ghost(struct eb_prefix *t, struct eb_node *n) {
    if (!n->listed) return;
    if (n->older != NULL)
        n->older->newer = n->newer;
    else
        t->oldest = n->newer;
    if (n->newer != NULL)
        n->newer->older = n->older;
    else
        t->newest = n->older;
    n->listed = false;
}

static void list_if_ghost_leaf(struct eb_prefix *t, struct eb_node *n) {
    if (n == &t->root || n->pages != NULL || n->first_child != NULL || n->host != NULL) return;
    unlink_ghost(t, n);
    n->older = t->newest;
    n->newer = NULL;
    if (t->newest != NULL)
        t->newest->newer = n;
    else
        t->oldest = n;
    t->newest = n;
    n->listed = true;
}

static void free_node(struct eb_prefix *t, struct eb_node *n) {
    t->n_tokens -= n->n;
    t->n_nodes--;
    eb_free(&t->alloc, n->tokens);
    eb_free(&t->alloc, n->pages);
    eb_free(&t->alloc, n);
}

void eb_prefix_trim(struct eb_prefix *t) {
    while (t->n_tokens > t->max_tokens && t->oldest != NULL) {
        struct eb_node *n = t->oldest, *parent = n->parent;
        unlink_ghost(t, n);
        unlink_child(t, n);
        free_node(t, n);
        list_if_ghost_leaf(t, parent);
    }
}

/* ---- pages ------------------------------------------------------------------------------- */

static uint32_t first_page(const struct eb_prefix *t, uint32_t position) {
    return t->page_tokens == 0 ? 0 : position / t->page_tokens;
}

static uint32_t end_page(const struct eb_prefix *t, uint32_t position) {
    if (t->page_tokens == 0) return 0;
    return position / t->page_tokens + (position % t->page_tokens != 0);
}

/* Takes the pages of a node from a list that starts at position 0. */
static int32_t make_resident(struct eb_prefix *t, struct eb_node *n, const uint32_t *pages,
                             ebro_error *err) {
    uint32_t from = first_page(t, n->start), n_pages = end_page(t, eb_node_end(n)) - from;
    n->pages = eb_calloc(&t->alloc, n_pages, sizeof *n->pages, err);
    if (n->pages == NULL) return EBRO_NOMEM_HOST;
    for (uint32_t i = 0; i < n_pages; i++) {
        n->pages[i] = pages[from + i];
        eb_block_hold(t->blocks, n->pages[i], EB_KEPT);
    }
    return EBRO_OK;
}

static void drop_pages(struct eb_prefix *t, struct eb_node *n) {
    uint32_t n_pages = end_page(t, eb_node_end(n)) - first_page(t, n->start);
    for (uint32_t i = 0; i < n_pages; i++) eb_block_drop(t->blocks, n->pages[i], EB_KEPT);
    eb_free(&t->alloc, n->pages);
    n->pages = NULL;
}

void eb_prefix_pages(const struct eb_prefix *t, const struct eb_node *node, uint32_t *out) {
    /* A page on a border belongs to the deepest node, whose copy holds the rows of the others. */
    uint32_t low = UINT32_MAX;
    for (const struct eb_node *n = node; n->parent != NULL; n = n->parent) {
        uint32_t from = first_page(t, n->start), end = end_page(t, eb_node_end(n));
        for (uint32_t i = from; i < end && i < low; i++) out[i] = n->pages[i - from];
        if (from < low) low = from;
    }
}

/* ---- walking ----------------------------------------------------------------------------- */

/* Length of the common head. memcmp runs by words; the last block is looked at token by token. */
static uint32_t common(const int32_t *a, const int32_t *b, uint32_t n) {
    enum { STRIDE = 64 };
    uint32_t i = 0;
    while (n - i >= STRIDE && memcmp(a + i, b + i, STRIDE * sizeof *a) == 0) i += STRIDE;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

struct eb_match eb_prefix_match(struct eb_prefix *t, const int32_t *tokens, uint32_t n,
                                uint32_t cap) {
    struct eb_match m = {0};
    struct eb_node *at = &t->root;
    while (m.matched < n) {
        struct eb_node *child = find_child(t, at, tokens[m.matched]);
        if (child == NULL) break;
        uint32_t most = n - m.matched < child->n ? n - m.matched : child->n;
        uint32_t k = common(child->tokens, tokens + m.matched, most);
        m.matched += k;
        list_if_ghost_leaf(t, child); /* seen again: not the oldest any more */
        if (k < child->n) break;
        at = child;
        if (m.matched > cap) continue;
        if (at->snapshot != NULL) {
            m.snapshot = at;
            m.hosted = NULL;
            m.lost = false;
        } else if (at->host != NULL) {
            m.hosted = at;
            m.lost = false;
        } else if (at->lost) {
            m.lost = true;
        }
    }
    return m;
}

/* ---- growing ----------------------------------------------------------------------------- */

static struct eb_node *make_node(struct eb_prefix *t, const int32_t *tokens, uint32_t start,
                                 uint32_t n, ebro_error *err) {
    if (grow_index(t, err) != EBRO_OK) return NULL;
    struct eb_node *node = eb_calloc(&t->alloc, 1, sizeof *node, err);
    if (node == NULL) return NULL;
    node->tokens = eb_calloc(&t->alloc, n, sizeof *tokens, err);
    if (node->tokens == NULL) {
        eb_free(&t->alloc, node);
        return NULL;
    }
    memcpy(node->tokens, tokens, n * sizeof *tokens);
    node->start = start;
    node->n = n;
    node->serial = t->next_serial++;
    t->n_nodes++;
    t->n_tokens += n;
    return node;
}

/* Cuts a node after its first k tokens. The new upper part takes its place under the parent; the
 * node itself goes on below it with its children and its snapshot. */
static struct eb_node *split(struct eb_prefix *t, struct eb_node *n, uint32_t k, ebro_error *err) {
    struct eb_node *upper = make_node(t, n->tokens, n->start, k, err);
    if (upper == NULL) return NULL;
    if (n->pages != NULL) {
        uint32_t from = first_page(t, n->start), middle = n->start + k;
        uint32_t n_upper = end_page(t, middle) - from, skip = first_page(t, middle) - from;
        uint32_t n_lower = end_page(t, eb_node_end(n)) - first_page(t, middle);
        upper->pages = eb_calloc(&t->alloc, n_upper, sizeof *upper->pages, err);
        if (upper->pages == NULL) {
            free_node(t, upper);
            return NULL;
        }
        memcpy(upper->pages, n->pages, n_upper * sizeof *n->pages);
        if (skip < n_upper) eb_block_hold(t->blocks, n->pages[skip], EB_KEPT); /* on the border */
        memmove(n->pages, n->pages + skip, n_lower * sizeof *n->pages);
    }
    struct eb_node *parent = n->parent;
    unlink_child(t, n);
    memmove(n->tokens, n->tokens + k, (n->n - k) * sizeof *n->tokens);
    n->start += k;
    n->n -= k;
    t->n_tokens -= k; /* make_node counted the upper part's once more */
    link_child(t, parent, upper);
    link_child(t, upper, n);
    return upper;
}

/* The node that ends exactly after n tokens, made where it is missing; the path becomes resident
 * with `pages`. Not resident: a chain that ends inside a longer one is left as it is, *out then
 * NULL. */
static int32_t extend(struct eb_prefix *t, const int32_t *tokens, uint32_t n, bool resident,
                      const uint32_t *pages, struct eb_node **out, ebro_error *err) {
    struct eb_node *at = &t->root;
    *out = NULL;
    for (uint32_t pos = 0; pos < n;) {
        struct eb_node *child = find_child(t, at, tokens[pos]);
        if (child == NULL) {
            child = make_node(t, tokens + pos, pos, n - pos, err);
            if (child == NULL) return EBRO_NOMEM_HOST;
            link_child(t, at, child);
            list_if_ghost_leaf(t, child);
        } else {
            uint32_t most = n - pos < child->n ? n - pos : child->n;
            uint32_t k = common(child->tokens, tokens + pos, most);
            if (k < child->n) {
                if (!resident && pos + k == n) return EBRO_OK;
                child = split(t, child, k, err);
                if (child == NULL) return EBRO_NOMEM_HOST;
            }
        }
        if (resident && child->pages == NULL) {
            int32_t st = make_resident(t, child, pages, err);
            if (st != EBRO_OK) return st;
            at->n_resident_children++;
            unlink_ghost(t, child);
        }
        at = child;
        pos = eb_node_end(child);
    }
    *out = at;
    return EBRO_OK;
}

int32_t eb_prefix_note(struct eb_prefix *t, const int32_t *tokens, uint32_t n, ebro_error *err) {
    struct eb_node *node = NULL;
    int32_t st = extend(t, tokens, n, false, NULL, &node, err);
    eb_prefix_trim(t);
    return st;
}

/* Pages of the path that no snapshot below, or on it, needs. */
static void prune(struct eb_prefix *t, struct eb_node *n) {
    while (n->parent != NULL && n->pages != NULL && n->snapshot == NULL &&
           n->n_resident_children == 0) {
        drop_pages(t, n);
        n->parent->n_resident_children--;
        list_if_ghost_leaf(t, n);
        n = n->parent;
    }
}

int32_t eb_prefix_keep(struct eb_prefix *t, const int32_t *tokens, uint32_t n,
                       const uint32_t *pages, struct eb_slot *slot, uint32_t why,
                       struct eb_node **out, ebro_error *err) {
    assert(n > 0 && slot->written && slot->position == n);
    struct eb_node *node = NULL;
    int32_t st = extend(t, tokens, n, true, pages, &node, err);
    *out = node;
    if (st != EBRO_OK) {
        /* What became resident on the way holds pages for nothing. */
        struct eb_match m = eb_prefix_match(t, tokens, n, n);
        struct eb_node *at = &t->root;
        for (uint32_t pos = 0; pos < m.matched;) {
            struct eb_node *child = find_child(t, at, tokens[pos]);
            if (child == NULL || child->pages == NULL) break;
            at = child;
            pos = eb_node_end(child);
        }
        prune(t, at);
        *out = NULL;
        return st;
    }
    node->why |= why;
    if (node->snapshot == NULL) {
        node->snapshot = slot;
        node->why = why;
        node->lost = false;
        eb_slot_hold(t->slots, slot, EB_KEPT);
        t->n_snapshots++;
    }
    eb_prefix_trim(t);
    return EBRO_OK;
}

uint32_t eb_prefix_page_count(const struct eb_prefix *t, uint32_t n_tokens) {
    return end_page(t, n_tokens);
}

void eb_prefix_let_go(struct eb_prefix *t, struct eb_node *node) {
    list_if_ghost_leaf(t, node);
}

void eb_prefix_forget(struct eb_prefix *t, struct eb_node *node) {
    assert(node->snapshot != NULL);
    eb_slot_drop(t->slots, &node->snapshot, EB_KEPT);
    node->lost = true;
    node->hits = 0;
    t->n_snapshots--;
    prune(t, node);
    eb_prefix_trim(t);
}

/* ---- the end, and the auditor ------------------------------------------------------------ */

/* Next node of a walk that visits children before their parents. */
static struct eb_node *deepest(struct eb_node *n) {
    while (n->first_child != NULL) n = n->first_child;
    return n;
}

void eb_prefix_close(struct eb_prefix *t) {
    while (t->root.first_child != NULL) {
        struct eb_node *n = deepest(t->root.first_child);
        if (n->snapshot != NULL) {
            eb_slot_drop(t->slots, &n->snapshot, EB_KEPT);
        }
        if (n->pages != NULL) {
            drop_pages(t, n);
            n->parent->n_resident_children--;
        }
        unlink_ghost(t, n);
        unlink_child(t, n);
        free_node(t, n);
    }
    eb_free(&t->alloc, t->buckets);
    *t = (struct eb_prefix){0};
}

static const char *audit_node(const struct eb_prefix *t, const struct eb_node *n) {
    if (n->n == 0) return "an empty node";
    if (n->start != (n->parent == &t->root ? 0 : eb_node_end(n->parent)))
        return "a node that does not start where its parent ends";
    if (find_child(t, n->parent, n->tokens[0]) != n) return "a node that cannot be found";
    if (n->pages != NULL && n->parent != &t->root && n->parent->pages == NULL)
        return "a resident node under a parent that is not";
    if (n->snapshot != NULL) {
        if (n->pages == NULL) return "a snapshot without its pages";
        if (n->snapshot->position != eb_node_end(n) || !n->snapshot->written)
            return "a snapshot at the wrong position";
    }
    if (n->pages != NULL && n->snapshot == NULL && n->n_resident_children == 0)
        return "pages that no snapshot needs";
    uint32_t resident = 0;
    for (const struct eb_node *c = n->first_child; c != NULL; c = c->next) {
        resident += c->pages != NULL;
    }
    if (resident != n->n_resident_children) return "a wrong count of resident children";
    bool ghost_leaf = n->pages == NULL && n->first_child == NULL && n->host == NULL;
    return ghost_leaf == n->listed ? NULL : "a ghost that is not listed, or listed wrongly";
}

const char *eb_prefix_audit(const struct eb_prefix *t) {
    uint64_t n_nodes = 0, n_tokens = 0, n_snapshots = 0;
    const struct eb_node *n = t->root.first_child;
    while (n != NULL) {
        const char *wrong = audit_node(t, n);
        if (wrong != NULL) return wrong;
        n_nodes++;
        n_tokens += n->n;
        n_snapshots += n->snapshot != NULL;
        if (n->first_child != NULL) {
            n = n->first_child;
            continue;
        }
        while (n->next == NULL && n->parent != &t->root) n = n->parent;
        n = n->next;
    }
    if (n_nodes != t->n_nodes || n_tokens != t->n_tokens || n_snapshots != t->n_snapshots)
        return "counts that do not add up";
    return NULL;
}
