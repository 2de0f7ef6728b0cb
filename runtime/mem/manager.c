/* manager.c: opening, keeping snapshots, host copies, what is counted. Sequences are in seq.c, the
 * budget in room.c. */
#include "mem/manager.h"

#include <assert.h>
#include <math.h>

#include "mem/manager_inside.h"

enum { USUAL_EXTENT_MIB = 256, USUAL_NOTED = 16 << 20 };

static uint32_t blocks_of(const struct eb_layout *l, uint32_t n_tokens, uint32_t n_slots) {
    return eb_layout_pages(l, n_tokens) + n_slots * l->slot_blocks;
}

uint64_t eb_manager_estimate(const struct eb_layout *layout, uint32_t n_seqs, uint32_t n_tokens) {
    return (uint64_t)n_seqs * blocks_of(layout, n_tokens, 2) * layout->block_bytes;
}

double eb_manager_mib(uint64_t bytes) {
    return ceil((double)bytes / (1 << 20) * 10.0) / 10.0;
}

int32_t eb_manager_check_budget(const struct eb_layout *layout, uint64_t budget_bytes,
                                ebro_error *err) {
    uint64_t least = blocks_of(layout, 1, 1);
    if (budget_bytes / layout->block_bytes >= least) return EBRO_OK;
    return eb_fail(err, EBRO_NOMEM_DEVICE,
                   "a cache of %llu bytes holds no sequence: one of a single token needs %llu "
                   "(%.1f MiB)",
                   (unsigned long long)budget_bytes,
                   (unsigned long long)(least * layout->block_bytes),
                   eb_manager_mib(least * layout->block_bytes));
}

int32_t eb_manager_open(struct eb_manager *m, const struct eb_layout *layout,
                        const struct eb_alloc *alloc, const struct eb_manager_options *options,
                        ebro_error *err) {
    *m = (struct eb_manager){.layout = *layout, .alloc = *alloc, .options = *options};
    int32_t st = eb_manager_check_budget(layout, options->budget_bytes, err);
    if (st != EBRO_OK) return st;
    uint64_t limit = options->budget_bytes / layout->block_bytes;
    if (limit > INT32_MAX) limit = INT32_MAX;
    uint64_t extent =
        options->extent_bytes != 0 ? options->extent_bytes : (uint64_t)USUAL_EXTENT_MIB << 20;
    uint64_t extent_blocks = extent / layout->block_bytes;
    if (extent_blocks == 0) extent_blocks = 1;
    if (extent_blocks > limit) extent_blocks = limit;
    eb_blocks_open(&m->blocks, alloc, layout->block_bytes, (uint32_t)limit, (uint32_t)extent_blocks,
                   options->make, options->user);
    m->slots = (struct eb_slots){.blocks = &m->blocks, .slot_blocks = layout->slot_blocks};
    eb_prefix_open(&m->prefix, alloc, &m->blocks, &m->slots,
                   layout->row_bytes == 0 ? 0 : layout->page_tokens,
                   options->max_noted != 0 ? options->max_noted : USUAL_NOTED);
    eb_policy_open(&m->policy, options->policy, alloc, layout->slot_blocks, layout->page_tokens,
                   options->token_cost, options->depth_cost);
    m->host = (struct eb_host){
        .alloc = *alloc, .prefix = &m->prefix, .call = options->host, .limit = options->host_bytes};
    return EBRO_OK;
}

void eb_manager_close(struct eb_manager *m) {
    if (m->policy.call == NULL) return;
    assert(m->seqs == NULL);
    eb_host_clear(&m->host);
    m->policy.call->destroy(&m->policy);
    eb_prefix_close(&m->prefix);
    eb_blocks_close(&m->blocks);
    *m = (struct eb_manager){0};
}

void eb_manager_clear(struct eb_manager *m) {
    struct eb_node *node;
    while ((node = m->policy.call->victim(&m->policy, NULL, NULL)) != NULL) {
        m->policy.call->forget(&m->policy, node);
        eb_prefix_forget(&m->prefix, node);
    }
    eb_host_clear(&m->host);
    uint64_t max = m->prefix.max_tokens;
    m->prefix.max_tokens = 0;
    eb_prefix_trim(&m->prefix);
    m->prefix.max_tokens = max;
}

const char *eb_miss_text(enum eb_miss miss) {
    switch (miss) {
        case EB_MISS_NONE:
            return "all that was seen before was reused";
        case EB_MISS_NEW:
            return "no earlier prompt began like this one";
        case EB_MISS_OFF:
            return "nothing is kept: retention is off";
        case EB_MISS_NO_SNAPSHOT:
            return "seen before, but no snapshot was taken on the way";
        case EB_MISS_EVICTED:
            return "a nearer snapshot was given up for memory";
        case EB_MISS_EARLIER:
            return "the nearest snapshot lies before the end of what is shared";
        case EB_N_MISSES:
            break;
    }
    return "unknown";
}

void eb_manager_get_stats(const struct eb_manager *m, struct eb_manager_stats *out) {
    const struct eb_blocks *b = &m->blocks;
    *out = m->stats;
    uint64_t live_states = (uint64_t)m->slots.n_live * m->slots.slot_blocks;
    uint64_t kept_states = (uint64_t)m->slots.n_kept * m->slots.slot_blocks;
    out->budget_bytes = m->options.budget_bytes;
    out->made_bytes = b->n_made * b->block_bytes;
    out->live_state_bytes = live_states * b->block_bytes;
    out->kept_state_bytes = kept_states * b->block_bytes;
    out->live_page_bytes = (b->n_live - live_states) * b->block_bytes;
    out->kept_page_bytes = (b->n_kept - kept_states) * b->block_bytes;
    out->peak_bytes = b->peak * b->block_bytes;
    out->n_seqs = m->n_seqs;
    out->n_snapshots = m->prefix.n_snapshots;
    out->n_nodes = m->prefix.n_nodes;
    out->noted_tokens = m->prefix.n_tokens;
    out->host_bytes = m->host.used;
    out->host_budget_bytes = m->host.limit;
    out->token_cost = m->policy.cost.token;
    out->depth_cost = m->policy.cost.depth;
}

void eb_manager_note_time(struct eb_manager *m, uint32_t rows, double depth, double seconds) {
    eb_cost_note(&m->policy.cost, rows, depth, seconds);
}

/* ---- back from the host -------------------------------------------------------------------- */

/* Takes blocks for a copy and fills them; the slot is the caller's, held live, as the pages are. */
static bool bring(struct eb_manager *m, struct eb_node *node, uint32_t *pages,
                  struct eb_slot **slot) {
    uint32_t n_pages = node->host->n_pages, slot_blocks = m->layout.slot_blocks;
    if (eb_slot_take(&m->slots, EB_LIVE, slot, NULL) != EBRO_OK) return false;
    for (uint32_t i = 0; i < n_pages; i++) {
        pages[i] = eb_block_take(&m->blocks, EB_LIVE);
        uint32_t left = eb_node_end(node) - i * m->layout.page_tokens;
        eb_block_claim(&m->blocks, pages[i], 0,
                       left < m->layout.page_tokens ? left : m->layout.page_tokens);
    }
    for (uint32_t i = 0; i < slot_blocks; i++) pages[n_pages + i] = (*slot)->blocks[i];
    (*slot)->position = eb_node_end(node);
    (*slot)->written = eb_host_load(&m->host, node, pages, NULL) == EBRO_OK;
    return (*slot)->written;
}

bool eb_manager_fetch(struct eb_manager *m, struct eb_node *node, const int32_t *tokens) {
    uint32_t end = eb_node_end(node), n_pages = node->host->n_pages;
    uint32_t *pages =
        eb_calloc(&m->alloc, (size_t)n_pages + m->layout.slot_blocks, sizeof *pages, NULL);
    if (pages == NULL) return false;
    /* Making room gives up others, which are copied too: this copy must outlive that. */
    eb_host_pin(&m->host, node, true);
    struct eb_slot *slot = NULL;
    struct eb_node *kept = NULL;
    bool here = eb_manager_make_room(m, n_pages + m->layout.slot_blocks);
    if (here) here = bring(m, node, pages, &slot);
    if (here)
        here =
            eb_prefix_keep(&m->prefix, tokens, end, pages, slot, node->why, &kept, NULL) == EBRO_OK;
    if (here && m->policy.call->touch(&m->policy, node, false, NULL) != EBRO_OK) {
        eb_prefix_forget(&m->prefix, node);
        here = false;
    }
    if (slot != NULL) {
        for (uint32_t i = 0; i < n_pages; i++) eb_block_drop(&m->blocks, pages[i], EB_LIVE);
        eb_slot_drop(&m->slots, &slot, EB_LIVE);
    }
    eb_host_pin(&m->host, node, false);
    eb_free(&m->alloc, pages);
    if (here) m->stats.host_loads++;
    return here;
}

/* ---- keeping ---------------------------------------------------------------------------- */

void eb_manager_keep(struct eb_manager *m, const struct eb_seq *s, struct eb_slot *slot,
                     uint32_t why) {
    struct eb_node *node = NULL;
    ebro_error err;
    int32_t st =
        eb_prefix_keep(&m->prefix, s->tokens, slot->position, s->pages, slot, why, &node, &err);
    if (st == EBRO_OK) {
        bool fresh = node->snapshot == slot;
        st = m->policy.call->touch(&m->policy, node, false, &err);
        if (st != EBRO_OK)
            eb_prefix_forget(&m->prefix, node);
        else if (fresh)
            m->stats.snapshots_kept++;
    }
    /* A snapshot is a convenience: without host memory for it the sequence goes on. */
    if (st != EBRO_OK) {
        m->stats.snapshots_refused++;
        eb_log(m->options.log, EBRO_LOG_WARN, "no snapshot at %u tokens: %s", slot->position,
               err.text);
    }
}

/* ---- the auditor ------------------------------------------------------------------------ */

/* Counts every holder anew. */
static const char *audit_blocks(const struct eb_manager *m, uint32_t *live) {
    const struct eb_blocks *b = &m->blocks;
    uint64_t owed = 0;
    for (const struct eb_seq *s = m->seqs; s != NULL; s = s->next) {
        owed += s->owed;
        if ((s->owed > 0) != (s->n_tokens > s->n_done)) return "a sequence with a wrong account";
        for (uint32_t i = 0; i < s->n_pages; i++) live[s->pages[i]]++;
        for (uint32_t i = 0; s->state != NULL && i < s->state->n_blocks; i++)
            live[s->state->blocks[i]]++;
        if (s->n_pages < eb_layout_pages(&m->layout, s->n_done)) return "a sequence without pages";
        if ((s->state != NULL) != (s->n_done > 0)) return "a sequence without its state";
        /* An unwritten one is a step in place that was given up: the sequence can only be closed.
         */
        if (s->state != NULL && s->state->written && s->state->position != s->n_done)
            return "a state at the wrong position";
    }
    if (owed != m->owed) return "accounts that do not add up";
    uint32_t n_live = 0, n_kept = 0, n_free = 0;
    for (uint32_t i = 0; i < b->n_made; i++) {
        const struct eb_block *k = &b->blocks[i];
        if (k->refs[EB_LIVE] != live[i]) return "a wrong count of live holders";
        n_live += k->refs[EB_LIVE] > 0;
        n_kept += k->refs[EB_LIVE] == 0 && k->refs[EB_KEPT] > 0;
        n_free += k->refs[EB_LIVE] == 0 && k->refs[EB_KEPT] == 0;
    }
    if (n_live != b->n_live || n_kept != b->n_kept || n_free != b->n_free)
        return "counts of blocks that do not add up";
    return b->n_made <= b->limit ? NULL : "more blocks than the budget allows";
}

const char *eb_manager_audit(const struct eb_manager *m) {
    const char *wrong = eb_prefix_audit(&m->prefix);
    if (wrong != NULL) return wrong;
    uint32_t *live = eb_calloc(&m->alloc, m->blocks.n_made, sizeof *live, NULL);
    if (live == NULL) return "no memory for the audit";
    wrong = audit_blocks(m, live);
    eb_free(&m->alloc, live);
    if (wrong != NULL) return wrong;
    size_t in_care = m->policy.segments[0].n + m->policy.segments[1].n;
    return in_care == m->prefix.n_snapshots ? NULL : "snapshots that no policy looks after";
}
