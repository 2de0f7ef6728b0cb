/* policy.c: the segmented LRU and the segmented GreedyDual-Size, which share all but the score. */
#include "mem/policy.h"

/* ---- heap ------------------------------------------------------------------------------- */

static void put(struct eb_heap *h, size_t i, struct eb_node *n) {
    h->at[i] = n;
    n->heap_at = (uint32_t)i;
}

static void sift_up(struct eb_heap *h, size_t i) {
    struct eb_node *n = h->at[i];
    while (i > 0 && h->at[(i - 1) / 2]->score > n->score) {
        put(h, i, h->at[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    put(h, i, n);
}

static void sift_down(struct eb_heap *h, size_t i) {
    struct eb_node *n = h->at[i];
    for (size_t c; (c = 2 * i + 1) < h->n; i = c) {
        if (c + 1 < h->n && h->at[c + 1]->score < h->at[c]->score) c++;
        if (h->at[c]->score >= n->score) break;
        put(h, i, h->at[c]);
    }
    put(h, i, n);
}

/* The arrays have room for every node in care (see reserve), so that moves cannot fail. */
static void heap_add(struct eb_heap *h, struct eb_node *n) {
    put(h, h->n++, n);
    sift_up(h, h->n - 1);
}

static void heap_remove(struct eb_heap *h, struct eb_node *n) {
    size_t i = n->heap_at;
    struct eb_node *last = h->at[--h->n];
    if (last == n) return;
    put(h, i, last);
    sift_down(h, i);
    sift_up(h, last->heap_at);
}

static int32_t reserve(struct eb_policy *p, size_t n, ebro_error *err) {
    for (int s = 0; s < EB_N_SEGMENTS; s++) {
        void *at = p->segments[s].at;
        int32_t st =
            eb_grow(&p->alloc, &at, &p->segments[s].capacity, n, sizeof(struct eb_node *), err);
        p->segments[s].at = at;
        if (st != EBRO_OK) return st;
    }
    return EBRO_OK;
}

/* ---- scores ------------------------------------------------------------------------------ */

/* Cost saved per block, of a snapshot and the pages of the `tokens` tokens before it. */
static double density(const struct eb_policy *p, uint32_t tokens, uint32_t position) {
    double blocks = (double)p->slot_blocks + (double)tokens / p->page_tokens + 1.0;
    return eb_cost_between(&p->cost, (double)(position - tokens), position) / blocks;
}

static double lru_score(struct eb_policy *p, const struct eb_node *node) {
    (void)node;
    return (double)++p->clock;
}

/* Of the snapshots above, those known to be shared will still be there when this one is missed. */
static double cost_score(struct eb_policy *p, const struct eb_node *node) {
    uint32_t end = eb_node_end(node), base = 0;
    for (const struct eb_node *n = node->parent; base == 0 && n != NULL; n = n->parent) {
        if (n->snapshot != NULL && n->segment == EB_PROTECTED) base = eb_node_end(n);
    }
    return p->age + density(p, end - base, end) * (1.0 + node->hits);
}

/* ---- the vtable --------------------------------------------------------------------------- */

static void enter(struct eb_policy *p, struct eb_node *n, int segment) {
    n->segment = (uint8_t)segment;
    heap_add(&p->segments[segment], n);
}

/* Known to be of use to more than the sequence that it is from. */
static bool is_shared(const struct eb_node *n) {
    return (n->why & EB_KEEP_NAMED) != 0 || n->hits + ((n->why & EB_KEEP_JUNCTION) != 0) > 1;
}

static int32_t touch(struct eb_policy *p, struct eb_node *node, bool hit,
                     double (*score)(struct eb_policy *, const struct eb_node *), ebro_error *err) {
    struct eb_heap *h = &p->segments[node->segment];
    bool known = node->heap_at < h->n && h->at[node->heap_at] == node;
    if (!known) {
        size_t n = p->segments[EB_PROBATION].n + p->segments[EB_PROTECTED].n;
        int32_t st = reserve(p, n + 1, err);
        if (st != EBRO_OK) return st;
    }
    if (hit) node->hits++;
    bool shared = is_shared(node);
    if (known) heap_remove(h, node);
    node->score = hit && !shared ? p->age : score(p, node);
    enter(p, node, shared ? EB_PROTECTED : EB_PROBATION);
    return EBRO_OK;
}

/* What leaves the protected segment must be used again to come back. Its score stays: an old one
 * is the next to go. */
static void demote(struct eb_policy *p) {
    struct eb_heap *safe = &p->segments[EB_PROTECTED];
    while (safe->n > 3 * (safe->n + p->segments[EB_PROBATION].n) / 4) {
        struct eb_node *out = safe->at[0];
        heap_remove(safe, out);
        out->hits = 0;
        enter(p, out, EB_PROBATION);
    }
}

static int32_t lru_touch(struct eb_policy *p, struct eb_node *n, bool hit, ebro_error *err) {
    return touch(p, n, hit, lru_score, err);
}

static int32_t cost_touch(struct eb_policy *p, struct eb_node *n, bool hit, ebro_error *err) {
    return touch(p, n, hit, cost_score, err);
}

/* The newest is always worth the oldest. */
static bool lru_admit(struct eb_policy *p, const struct eb_node *victim, uint32_t position) {
    (void)p, (void)position;
    return victim->segment == EB_PROBATION;
}

static bool cost_admit(struct eb_policy *p, const struct eb_node *victim, uint32_t position) {
    double score = p->age + density(p, position, position);
    if (victim->segment == EB_PROBATION && score >= victim->score) return true;
    p->age = score;
    return false;
}

/* Looks below a node of the heap only where that one frees nothing: few do not. */
static void search(const struct eb_heap *h, size_t i,
                   bool (*frees)(const void *, const struct eb_node *), const void *user,
                   struct eb_node **best) {
    if (i >= h->n || (*best != NULL && h->at[i]->score >= (*best)->score)) return;
    if (frees == NULL || frees(user, h->at[i])) {
        *best = h->at[i];
        return;
    }
    search(h, 2 * i + 1, frees, user, best);
    search(h, 2 * i + 2, frees, user, best);
}

static struct eb_node *victim(struct eb_policy *p,
                              bool (*frees)(const void *, const struct eb_node *),
                              const void *user) {
    struct eb_node *best = NULL;
    demote(p);
    search(&p->segments[EB_PROBATION], 0, frees, user, &best);
    if (best == NULL) search(&p->segments[EB_PROTECTED], 0, frees, user, &best);
    return best;
}

static void forget(struct eb_policy *p, struct eb_node *node) {
    struct eb_heap *h = &p->segments[node->segment];
    if (node->heap_at >= h->n || h->at[node->heap_at] != node) return;
    heap_remove(h, node);
    if (node->score > p->age) p->age = node->score;
}

static void destroy(struct eb_policy *p) {
    for (int s = 0; s < EB_N_SEGMENTS; s++) eb_free(&p->alloc, p->segments[s].at);
    *p = (struct eb_policy){0};
}

static const struct eb_policy_vtable lru = {.name = "lru",
                                            .touch = lru_touch,
                                            .admit_snapshot = lru_admit,
                                            .victim = victim,
                                            .forget = forget,
                                            .destroy = destroy};
static const struct eb_policy_vtable cost = {.name = "cost",
                                             .touch = cost_touch,
                                             .admit_snapshot = cost_admit,
                                             .victim = victim,
                                             .forget = forget,
                                             .destroy = destroy};

void eb_policy_open(struct eb_policy *p, enum eb_policy_kind kind, const struct eb_alloc *alloc,
                    uint32_t slot_blocks, uint32_t page_tokens, double token_cost,
                    double depth_cost) {
    *p = (struct eb_policy){.call = kind == EB_POLICY_COST ? &cost : &lru,
                            .alloc = *alloc,
                            .slot_blocks = slot_blocks,
                            .page_tokens = page_tokens};
    eb_cost_open(&p->cost, token_cost, depth_cost);
}
