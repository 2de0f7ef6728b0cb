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

static double recompute_seconds(const struct eb_policy *p, double from, double to) {
    return (to - from) * (p->per_token + p->per_row * (from + to) / 2);
}

/* Seconds saved per block: the snapshot's own blocks and the pages since the one above it. */
static double density(const struct eb_policy *p, uint32_t tokens, uint32_t position) {
    double blocks = (double)p->slot_blocks + (double)tokens / p->page_tokens + 1.0;
    return recompute_seconds(p, (double)(position - tokens), position) / blocks;
}

static double lru_score(struct eb_policy *p, const struct eb_node *node) {
    (void)node;
    return (double)++p->clock;
}

static double cost_score(struct eb_policy *p, const struct eb_node *node) {
    uint32_t end = eb_node_end(node);
    return p->age + density(p, end - eb_node_base(node), end) * (1.0 + node->hits);
}

/* ---- the vtable --------------------------------------------------------------------------- */

static void enter(struct eb_policy *p, struct eb_node *n, int segment) {
    n->segment = (uint8_t)segment;
    heap_add(&p->segments[segment], n);
}

static int32_t touch(struct eb_policy *p, struct eb_node *node, bool hit,
                     double (*score)(struct eb_policy *, const struct eb_node *), ebro_error *err) {
    struct eb_heap *probation = &p->segments[EB_PROBATION], *safe = &p->segments[EB_PROTECTED];
    bool known = node->heap_at < p->segments[node->segment].n &&
                 p->segments[node->segment].at[node->heap_at] == node;
    if (!known) {
        int32_t st = reserve(p, probation->n + safe->n + 1, err);
        if (st != EBRO_OK) return st;
    } else {
        heap_remove(&p->segments[node->segment], node);
    }
    if (hit) node->hits++;
    node->score = score(p, node);
    enter(p, node, node->hits > 0 ? EB_PROTECTED : EB_PROBATION);
    if (safe->n > p->protected_max) {
        struct eb_node *out = safe->at[0];
        heap_remove(safe, out);
        out->score = score(p, out);
        out->hits = 0;
        enter(p, out, EB_PROBATION);
    }
    return EBRO_OK;
}

static int32_t lru_touch(struct eb_policy *p, struct eb_node *n, bool hit, ebro_error *err) {
    return touch(p, n, hit, lru_score, err);
}

static int32_t cost_touch(struct eb_policy *p, struct eb_node *n, bool hit, ebro_error *err) {
    return touch(p, n, hit, cost_score, err);
}

/* The newest is always worth the oldest. */
static bool lru_admit(const struct eb_policy *p, const struct eb_node *victim, uint32_t tokens,
                      uint32_t position, uint32_t blocks) {
    (void)p, (void)tokens, (void)position, (void)blocks;
    return victim->segment == EB_PROBATION;
}

static bool cost_admit(const struct eb_policy *p, const struct eb_node *victim, uint32_t tokens,
                       uint32_t position, uint32_t blocks) {
    (void)blocks;
    return victim->segment == EB_PROBATION &&
           p->age + density(p, tokens, position) >= victim->score;
}

/* The head of the heap nearly always frees something; where it does not, all are looked at. */
static struct eb_node *lowest(const struct eb_heap *h,
                              bool (*frees)(const void *, const struct eb_node *),
                              const void *user) {
    if (h->n == 0) return NULL;
    if (frees == NULL || frees(user, h->at[0])) return h->at[0];
    struct eb_node *best = NULL;
    for (size_t i = 1; i < h->n; i++) {
        if ((best == NULL || h->at[i]->score < best->score) && frees(user, h->at[i]))
            best = h->at[i];
    }
    return best;
}

static struct eb_node *victim(struct eb_policy *p,
                              bool (*frees)(const void *, const struct eb_node *),
                              const void *user) {
    struct eb_node *n = lowest(&p->segments[EB_PROBATION], frees, user);
    return n != NULL ? n : lowest(&p->segments[EB_PROTECTED], frees, user);
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
                    uint32_t slot_blocks, uint32_t page_tokens, uint32_t protected_max) {
    *p = (struct eb_policy){.call = kind == EB_POLICY_COST ? &cost : &lru,
                            .alloc = *alloc,
                            .slot_blocks = slot_blocks,
                            .page_tokens = page_tokens,
                            .protected_max = protected_max > 0 ? protected_max : 1,
                            /* until the engine has measured: rows cost a little more with depth */
                            .per_token = 1e-3,
                            .per_row = 1e-7};
}
