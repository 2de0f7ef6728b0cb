/* room.c: whether there is room for what sequences are yet to evaluate, and making it. The rules
 * stand in manager.h; admission and eviction count by the same ones. Not its job: which snapshot
 * goes first (policy.c). */
#include "mem/manager_inside.h"

static unsigned long long bytes_of(const struct eb_manager *m, uint64_t n_blocks) {
    return (unsigned long long)(n_blocks * m->blocks.block_bytes);
}

/* Blocks that live sequences leave: free ones, and all that is only kept. */
static uint32_t left(const struct eb_manager *m) {
    return m->blocks.limit - m->blocks.n_live;
}

/* ---- what is promised ---------------------------------------------------------------------- */

static uint32_t pending(const struct eb_seq *s) {
    return s->n_tokens - s->n_done;
}

/* The page that the next row falls into, where rows are in it already; NULL: none. */
static const uint32_t *started_page(const struct eb_seq *s) {
    const struct eb_layout *l = &s->manager->layout;
    if (l->row_bytes == 0 || s->n_done % l->page_tokens == 0) return NULL;
    return &s->pages[s->n_done / l->page_tokens];
}

/* The page that evaluating s copies. Of all that write to a page one need not: who comes first,
 * where nobody wrote behind it, or who is left alone in the end. */
static uint32_t count_copy(struct eb_manager *m, const struct eb_seq *s) {
    const uint32_t *page = started_page(s);
    if (page == NULL) return 0;
    struct eb_block *k = &m->blocks.blocks[*page];
    k->writers++;
    bool spares = k->writers == k->refs[EB_LIVE] || s->n_done % m->layout.page_tokens >= k->fill;
    if (!spares || k->spared) return 1;
    k->spared = true;
    return 0;
}

/* The slot that evaluating s takes and keeps: who is left alone with a state can write in place. */
static uint32_t count_slot(struct eb_manager *m, const struct eb_seq *s) {
    if (s->state == NULL) return m->layout.slot_blocks;
    s->state->writers++;
    return s->state->writers < s->state->refs[EB_LIVE] ? m->layout.slot_blocks : 0;
}

static void start_count(struct eb_manager *m) {
    for (const struct eb_seq *s = m->seqs; s != NULL; s = s->next) {
        const uint32_t *page = started_page(s);
        if (s->state != NULL) s->state->writers = 0;
        if (page == NULL) continue;
        m->blocks.blocks[*page].writers = 0;
        m->blocks.blocks[*page].spared = false;
    }
}

/* With `more` blocks for a sequence that is not there yet, which may have several tokens to
 * evaluate. */
static uint64_t committed(struct eb_manager *m, uint64_t more, bool several) {
    uint64_t n = m->blocks.n_live + more;
    start_count(m);
    for (const struct eb_seq *s = m->seqs; s != NULL; s = s->next) {
        if (pending(s) == 0) continue;
        n += eb_layout_pages(&m->layout, s->n_tokens) - s->n_pages;
        n += count_copy(m, s) + count_slot(m, s);
        several = several || pending(s) > 1;
    }
    return n + (several && m->options.cancellable ? m->layout.slot_blocks : 0);
}

uint64_t eb_manager_committed(struct eb_manager *m) {
    return committed(m, 0, false);
}

/* ---- admission ----------------------------------------------------------------------------- */

/* s: the sequence of n_tokens tokens that is asked for; NULL: it is not there yet. */
static int32_t refuse(const struct eb_manager *m, const struct eb_seq *s, uint32_t n_tokens,
                      uint64_t blocks, ebro_error *err) {
    uint32_t others = 0;
    for (const struct eb_seq *o = m->seqs; o != NULL; o = o->next)
        others += o != s && o->n_tokens > 0;
    unsigned long long need = bytes_of(m, blocks), allowed = bytes_of(m, m->blocks.limit);
    if (others == 0) {
        return eb_fail(err, EBRO_NOMEM_DEVICE,
                       "a sequence of %u tokens needs %llu bytes of cache (%.1f MiB), %llu are "
                       "allowed",
                       n_tokens, need, eb_manager_mib(need), allowed);
    }
    return eb_fail(err, EBRO_NOMEM_DEVICE,
                   "a sequence of %u tokens beside %u other%s needs %llu bytes of cache in all "
                   "(%.1f MiB), %llu are allowed",
                   n_tokens, others, others == 1 ? "" : "s", need, eb_manager_mib(need), allowed);
}

static int32_t check(struct eb_manager *m, const struct eb_seq *s, uint32_t n_tokens,
                     uint64_t blocks, ebro_error *err) {
    if (blocks > m->blocks.limit) return refuse(m, s, n_tokens, blocks, err);
    return eb_blocks_make(&m->blocks, (uint32_t)blocks, err);
}

void eb_seq_account(struct eb_seq *s) {
    struct eb_manager *m = s->manager;
    uint32_t most = 0;
    if (pending(s) > 0) {
        most = eb_layout_pages(&m->layout, s->n_tokens) - s->n_pages + 1 + m->layout.slot_blocks;
    }
    m->owed = m->owed - s->owed + most;
    s->owed = most;
}

int32_t eb_seq_admit(struct eb_seq *s, ebro_error *err) {
    struct eb_manager *m = s->manager;
    eb_seq_account(s);
    if (m->blocks.n_live + m->owed + m->layout.slot_blocks <= m->blocks.n_made) return EBRO_OK;
    return check(m, s, s->n_tokens, eb_manager_committed(m), err);
}

int32_t eb_manager_check_room(struct eb_manager *m, uint32_t n_tokens, uint32_t n_done,
                              ebro_error *err) {
    if (n_tokens == 0) return EBRO_OK;
    uint32_t more = eb_layout_pages(&m->layout, n_tokens) + m->layout.slot_blocks;
    return check(m, NULL, n_tokens, committed(m, more, n_tokens - n_done > 1), err);
}

bool eb_manager_has_free(struct eb_manager *m, uint32_t n_done) {
    uint32_t need = eb_layout_pages(&m->layout, n_done) + (n_done > 0 ? m->layout.slot_blocks : 0);
    return eb_blocks_available(&m->blocks) >= need &&
           eb_blocks_reserve(&m->blocks, need, NULL) == EBRO_OK;
}

/* ---- giving up ----------------------------------------------------------------------------- */

/* A snapshot whose slot only the tree holds, or which keeps `user`, a sequence, from writing its
 * own state in place. */
static bool frees(const void *user, const struct eb_node *node) {
    const struct eb_seq *s = user;
    return node->snapshot->refs[EB_LIVE] == 0 || (s != NULL && node->snapshot == s->state);
}

/* The snapshot to give up next: one that surely frees something, else any, for there may be pages
 * that it alone holds. NULL: nothing is kept. */
static struct eb_node *next_victim(struct eb_manager *m, const struct eb_seq *in_place) {
    struct eb_node *node = m->policy.call->victim(&m->policy, frees, in_place);
    return node != NULL ? node : m->policy.call->victim(&m->policy, NULL, NULL);
}

static void give_up(struct eb_manager *m, struct eb_node *node) {
    m->stats.evictions++;
    if (eb_host_save(&m->host, node)) m->stats.host_saves++;
    m->policy.call->forget(&m->policy, node);
    eb_prefix_forget(&m->prefix, node);
}

bool eb_manager_make_room(struct eb_manager *m, uint32_t n) {
    while (n <= left(m)) {
        if (eb_blocks_available(&m->blocks) >= n) {
            int32_t st = eb_blocks_reserve(&m->blocks, n, NULL);
            /* On NOMEM_DEVICE the limit has sunk, and there may be something to give up. */
            if (st != EBRO_NOMEM_DEVICE || m->blocks.n_made == 0) return st == EBRO_OK;
            continue;
        }
        struct eb_node *node = next_victim(m, NULL);
        if (node == NULL) return false;
        give_up(m, node);
    }
    return false;
}

static void warn_once(struct eb_manager *m) {
    if (m->warned_useless) return;
    m->warned_useless = true;
    eb_log(m->options.log, EBRO_LOG_WARN,
           "no room for a snapshot of %llu bytes beside the live sequences (%llu bytes allowed in "
           "all): such prompts will be read again",
           (unsigned long long)(m->layout.slot_blocks * m->blocks.block_bytes),
           (unsigned long long)(m->blocks.limit * m->blocks.block_bytes));
}

bool eb_manager_make_slot(struct eb_manager *m, uint32_t position, struct eb_slot **out) {
    uint32_t n = m->layout.slot_blocks;
    while (eb_blocks_available(&m->blocks) < n) {
        struct eb_node *node = m->policy.call->victim(&m->policy, frees, NULL);
        if (node == NULL) {
            warn_once(m);
            return false;
        }
        /* No lack of memory: what is kept is worth more. */
        if (!m->policy.call->admit_snapshot(&m->policy, node, position)) return false;
        give_up(m, node);
    }
    return eb_blocks_reserve(&m->blocks, n, NULL) == EBRO_OK &&
           eb_slot_take(&m->slots, EB_LIVE, out, NULL) == EBRO_OK;
}

/* ---- room for a step ----------------------------------------------------------------------- */

bool eb_seq_in_place(const struct eb_seq *s, bool allowed) {
    return allowed && s->state != NULL && eb_slot_holders(s->state) == 1;
}

/* Blocks that the next n tokens take, as things are, or if nothing were kept. */
static uint32_t step_blocks(const struct eb_seq *s, uint32_t n, bool in_place, bool kept) {
    const struct eb_manager *m = s->manager;
    const uint32_t *page = started_page(s);
    uint32_t blocks = eb_layout_pages(&m->layout, s->n_done + n) - s->n_pages;
    if (page != NULL && !eb_block_claimable(&m->blocks, *page, s->n_done % m->layout.page_tokens))
        blocks += kept || m->blocks.blocks[*page].refs[EB_LIVE] > 1;
    bool alone =
        s->state != NULL && (kept ? eb_slot_holders(s->state) : s->state->refs[EB_LIVE]) == 1;
    return blocks + (in_place && alone ? 0 : m->layout.slot_blocks);
}

int32_t eb_seq_make_room(struct eb_seq *s, uint32_t n, bool in_place, ebro_error *err) {
    struct eb_manager *m = s->manager;
    struct eb_blocks *b = &m->blocks;
    uint32_t least = step_blocks(s, n, in_place, false);
    while (least <= left(m)) {
        uint32_t need = step_blocks(s, n, in_place, true);
        if (eb_blocks_available(b) >= need) {
            int32_t st = eb_blocks_reserve(b, need, err);
            /* On NOMEM_DEVICE the limit has sunk, and there may be something to give up. */
            if (st != EBRO_NOMEM_DEVICE || b->n_made == 0) return st;
            continue;
        }
        struct eb_node *node = next_victim(m, in_place ? s : NULL);
        /* With nothing kept `need` is `least`, and all that is left is available. */
        if (node == NULL) return eb_fail(err, EBRO_INTERNAL, "cache blocks are kept for nothing");
        give_up(m, node);
    }
    return eb_fail(err, EBRO_NOMEM_DEVICE,
                   "%llu bytes of cache are needed: of the %llu allowed, live sequences hold %llu",
                   bytes_of(m, least), bytes_of(m, b->limit), bytes_of(m, b->n_live));
}
