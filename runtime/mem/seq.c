/* seq.c: one sequence's tokens, pages and state, and its steps. */
#include <assert.h>
#include <string.h>

#include "mem/manager_inside.h"

int32_t eb_seq_open(struct eb_manager *m, struct eb_seq **out, ebro_error *err) {
    struct eb_seq *s = eb_calloc(&m->alloc, 1, sizeof *s, err);
    *out = s;
    if (s == NULL) return EBRO_NOMEM_HOST;
    s->manager = m;
    s->next = m->seqs;
    if (s->next != NULL) s->next->prev = s;
    m->seqs = s;
    m->n_seqs++;
    return EBRO_OK;
}

static void drop_pages_from(struct eb_seq *s, uint32_t first) {
    while (s->n_pages > first) eb_block_drop(&s->manager->blocks, s->pages[--s->n_pages], EB_LIVE);
}

/* Closes it without a trace. */
static void discard(struct eb_seq *s) {
    struct eb_manager *m = s->manager;
    drop_pages_from(s, 0);
    eb_slot_drop(&m->slots, &s->state, EB_LIVE);
    m->owed -= s->owed;
    if (s->prev != NULL)
        s->prev->next = s->next;
    else
        m->seqs = s->next;
    if (s->next != NULL) s->next->prev = s->prev;
    m->n_seqs--;
    eb_free(&m->alloc, s->tokens);
    eb_free(&m->alloc, s->pages);
    eb_free(&m->alloc, s->wishes);
    eb_free(&m->alloc, s);
}

void eb_seq_close(struct eb_seq **seq) {
    struct eb_seq *s = *seq;
    if (s == NULL) return;
    *seq = NULL;
    assert(!s->stepping);
    if ((s->manager->options.keep & EB_KEEP_TURN_END) != 0 && s->state != NULL && s->state->written)
        eb_manager_keep(s->manager, s, s->state, EB_KEEP_TURN_END);
    discard(s);
}

static int32_t grow_pages(struct eb_seq *s, uint32_t n, ebro_error *err) {
    void *p = s->pages;
    int32_t st = eb_grow(&s->manager->alloc, &p, &s->pages_capacity, n, sizeof *s->pages, err);
    s->pages = p;
    return st;
}

static int32_t grow_tokens(struct eb_seq *s, size_t n, ebro_error *err) {
    void *p = s->tokens;
    int32_t st = eb_grow(&s->manager->alloc, &p, &s->tokens_capacity, n, sizeof *s->tokens, err);
    s->tokens = p;
    return st;
}

/* ---- wishes for snapshots ---------------------------------------------------------------- */

/* Adds a wish in order; the position lies above n_done. */
static int32_t add_wish(struct eb_seq *s, uint32_t position, uint32_t why, ebro_error *err) {
    void *p = s->wishes;
    int32_t st = eb_grow(&s->manager->alloc, &p, &s->wishes_capacity, s->n_wishes + 1u,
                         sizeof *s->wishes, err);
    s->wishes = p;
    if (st != EBRO_OK) return st;
    uint32_t i = s->n_wishes;
    while (i > 0 && s->wishes[i - 1].position > position) i--;
    if (i > 0 && s->wishes[i - 1].position == position) {
        s->wishes[i - 1].why |= why;
        return EBRO_OK;
    }
    memmove(s->wishes + i + 1, s->wishes + i, (s->n_wishes - i) * sizeof *s->wishes);
    s->wishes[i] = (struct eb_wish){position, why};
    s->n_wishes++;
    return EBRO_OK;
}

/* Of the list: the first wish after `position`, n_wishes where there is none. */
static uint32_t find_wish(const struct eb_seq *s, uint32_t position) {
    uint32_t low = 0, high = s->n_wishes;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->wishes[middle].position > position)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The first wish after `position`, of the list or of the interval; position 0: none. */
static struct eb_wish next_wish(const struct eb_seq *s, uint32_t position) {
    uint32_t i = find_wish(s, position);
    struct eb_wish w = i < s->n_wishes ? s->wishes[i] : (struct eb_wish){0};
    const struct eb_manager_options *o = &s->manager->options;
    if ((o->keep & EB_KEEP_INTERVAL) == 0 || o->interval == 0) return w;
    uint64_t at = ((uint64_t)position / o->interval + 1) * o->interval;
    if (w.position == 0 ? at <= UINT32_MAX : at < w.position)
        w = (struct eb_wish){(uint32_t)at, EB_KEEP_INTERVAL};
    else if (at == w.position)
        w.why |= EB_KEEP_INTERVAL;
    return w;
}

static void drop_wishes_to(struct eb_seq *s, uint32_t position) {
    uint32_t n = find_wish(s, position);
    if (n == 0) return;
    s->n_wishes -= n;
    memmove(s->wishes, s->wishes + n, s->n_wishes * sizeof *s->wishes);
}

static void drop_wishes_after(struct eb_seq *s, uint32_t position) {
    s->n_wishes = find_wish(s, position);
}

int32_t eb_seq_wish(struct eb_seq *s, uint32_t position, ebro_error *err) {
    if (position == 0 || position < s->n_done || position > s->n_tokens) {
        return eb_fail(err, EBRO_INVALID,
                       "a snapshot after %u tokens: the sequence stands at %u and holds %u",
                       position, s->n_done, s->n_tokens);
    }
    if (position > s->n_done) return add_wish(s, position, EB_KEEP_NAMED, err);
    if (!s->state->written) return eb_fail(err, EBRO_INVALID, "the sequence failed in a step");
    eb_manager_keep(s->manager, s, s->state, EB_KEEP_NAMED);
    return EBRO_OK;
}

/* ---- looking a prompt up ------------------------------------------------------------------ */

/* Takes over pages and state of a node. */
static int32_t resume(struct eb_seq *s, struct eb_node *node, ebro_error *err) {
    struct eb_manager *m = s->manager;
    uint32_t end = eb_node_end(node), n = eb_layout_pages(&m->layout, end);
    int32_t st = grow_pages(s, n, err);
    if (st != EBRO_OK) return st;
    eb_prefix_pages(&m->prefix, node, s->pages);
    for (uint32_t i = 0; i < n; i++) eb_block_hold(&m->blocks, s->pages[i], EB_LIVE);
    s->n_pages = n;
    s->state = node->snapshot;
    eb_slot_hold(&m->slots, s->state, EB_LIVE);
    s->n_done = end;
    return EBRO_OK;
}

static void back_to_start(struct eb_seq *s) {
    drop_pages_from(s, 0);
    eb_slot_drop(&s->manager->slots, &s->state, EB_LIVE);
    s->n_done = 0;
}

static enum eb_miss why_not_more(const struct eb_manager *m, const struct eb_match *match,
                                 uint32_t cap, uint32_t reused) {
    uint32_t most = match->matched < cap ? match->matched : cap;
    if (m->options.keep == 0) return EB_MISS_OFF;
    if (match->matched == 0) return EB_MISS_NEW;
    if (reused == most) return EB_MISS_NONE;
    if (match->lost) return EB_MISS_EVICTED;
    return reused == 0 ? EB_MISS_NO_SNAPSHOT : EB_MISS_EARLIER;
}

/* Wishes of the retention options for a prompt of n tokens that ends the sequence's list. */
static int32_t wish_for_prompt(struct eb_seq *s, uint32_t n_tokens, uint32_t junction,
                               ebro_error *err) {
    uint32_t keep = s->manager->options.keep;
    int32_t st = EBRO_OK;
    /* One before the end: the last token must be evaluated again for its logits anyway. */
    if ((keep & EB_KEEP_PROMPT_END) != 0 && n_tokens - 1 > s->n_done)
        st = add_wish(s, n_tokens - 1, EB_KEEP_PROMPT_END, err);
    if (st == EBRO_OK && (keep & EB_KEEP_JUNCTION) != 0 && junction > s->n_done &&
        junction < n_tokens)
        st = add_wish(s, junction, EB_KEEP_JUNCTION, err);
    return st;
}

static void count_prompt(struct eb_manager *m, const struct eb_reuse *r) {
    m->stats.prompts++;
    m->stats.prompt_tokens += r->prompt;
    m->stats.matched_tokens += r->matched;
    m->stats.reused_tokens += r->reused;
    m->stats.misses[r->miss]++;
}

/* The deepest snapshot that a new sequence of n tokens can go on from, brought back from the host
 * where it lies there. Room is made for that only where the sequence is sure to find room then. */
static struct eb_match look_up(struct eb_seq *s, uint32_t cap) {
    struct eb_manager *m = s->manager;
    struct eb_match match = eb_prefix_match(&m->prefix, s->tokens, s->n_tokens, cap);
    if (match.hosted == NULL) return match;
    bool here = eb_manager_committed(m) <= m->blocks.limit;
    if (here) {
        here = eb_manager_fetch(m, match.hosted, s->tokens);
        /* Room was made for it, perhaps at the cost of what was found. */
        match = eb_prefix_match(&m->prefix, s->tokens, s->n_tokens, cap);
    }
    match.lost = match.lost || !here;
    return match;
}

static int32_t push_first(struct eb_seq *s, uint32_t n_fresh, ebro_error *err) {
    struct eb_manager *m = s->manager;
    struct eb_match match = {0};
    uint32_t n = s->n_tokens;
    int32_t st = EBRO_OK;
    if (m->options.keep != 0) match = look_up(s, n - n_fresh);
    if (match.snapshot != NULL) st = resume(s, match.snapshot, err);
    if (st == EBRO_OK) st = eb_seq_admit(s, err);
    if (st == EBRO_OK) st = wish_for_prompt(s, n, match.matched, err);
    if (st != EBRO_OK) {
        s->n_wishes = 0;
        back_to_start(s);
        return st;
    }
    s->reuse = (struct eb_reuse){n, match.matched, s->n_done,
                                 why_not_more(m, &match, n - n_fresh, s->n_done)};
    count_prompt(m, &s->reuse);
    /* Cannot fail for a node that is in the policy's care already. */
    if (match.snapshot != NULL) m->policy.call->touch(&m->policy, match.snapshot, true, NULL);
    return EBRO_OK;
}

/* To the `held` tokens from before. */
static int32_t push_more(struct eb_seq *s, uint32_t held, ebro_error *err) {
    int32_t st = eb_seq_admit(s, err);
    if (st != EBRO_OK || s->n_tokens - held == 1) return st;
    uint32_t n_wishes = s->n_wishes;
    if ((st = wish_for_prompt(s, s->n_tokens, 0, err)) != EBRO_OK) {
        s->n_wishes = n_wishes;
        return st;
    }
    bool at_turn = s->n_done > 0 && s->n_done == held && s->state->written;
    if (at_turn && (s->manager->options.keep & EB_KEEP_TURN_END) != 0)
        eb_manager_keep(s->manager, s, s->state, EB_KEEP_TURN_END);
    return EBRO_OK;
}

int32_t eb_seq_push(struct eb_seq *s, const int32_t *ids, uint32_t n, uint32_t n_fresh,
                    ebro_error *err) {
    struct eb_manager *m = s->manager;
    uint32_t held = s->n_tokens;
    if (n == 0) return EBRO_OK;
    if (n > INT32_MAX - held)
        return eb_fail(err, EBRO_INVALID, "a sequence of %u + %u tokens", held, n);
    int32_t st = grow_tokens(s, (size_t)held + n, err);
    if (st != EBRO_OK) return st;
    memcpy(s->tokens + held, ids, n * sizeof *ids);
    s->n_tokens += n;
    st = held == 0 ? push_first(s, n_fresh, err) : push_more(s, held, err);
    if (st != EBRO_OK) s->n_tokens = held;
    eb_seq_account(s);
    if (st != EBRO_OK || m->options.keep == 0 || n == 1) return st;
    /* Only for the sake of later prompts: without memory for it this one goes on. */
    if (eb_prefix_note(&m->prefix, s->tokens, s->n_tokens, NULL) != EBRO_OK)
        eb_log(m->options.log, EBRO_LOG_WARN, "no host memory to remember a prompt");
    return EBRO_OK;
}

/* ---- steps -------------------------------------------------------------------------------- */

static void add_emits(struct eb_seq *s, struct eb_seq_step *step) {
    struct eb_manager *m = s->manager;
    uint32_t end = step->first + step->n;
    for (struct eb_wish w = next_wish(s, step->first); w.position != 0 && w.position < end;
         w = next_wish(s, w.position)) {
        struct eb_slot *slot = NULL;
        if (step->n_emits == EB_MAX_EMITS) break;
        if (!eb_manager_make_slot(m, w.position, &slot)) {
            m->stats.snapshots_refused++;
            continue;
        }
        slot->position = w.position;
        step->emits[step->n_emits] = slot;
        step->emit_rows[step->n_emits] = w.position - step->first - 1;
        step->emit_why[step->n_emits++] = w.why;
    }
}

/* Pages for the step's rows; the blocks lie ready, the list has room. */
static void take_pages(struct eb_seq *s, struct eb_seq_step *step) {
    struct eb_manager *m = s->manager;
    const struct eb_layout *l = &m->layout;
    if (l->row_bytes == 0) return;
    uint32_t row = step->first % l->page_tokens, end = step->first + step->n;
    if (row != 0) {
        uint32_t *page = &s->pages[step->first / l->page_tokens];
        uint32_t rows = step->n < l->page_tokens - row ? step->n : l->page_tokens - row;
        step->old_fill = m->blocks.blocks[*page].fill;
        if (!eb_block_claim(&m->blocks, *page, row, rows)) {
            step->copy_from = *page;
            *page = step->copy_to = eb_block_take(&m->blocks, EB_LIVE);
            eb_block_claim(&m->blocks, *page, row, rows);
            m->stats.copied_pages++;
        }
    }
    while (s->n_pages < eb_layout_pages(l, end)) {
        uint32_t left = end - s->n_pages * l->page_tokens;
        uint32_t page = eb_block_take(&m->blocks, EB_LIVE);
        eb_block_claim(&m->blocks, page, 0, left < l->page_tokens ? left : l->page_tokens);
        s->pages[s->n_pages++] = page;
    }
}

int32_t eb_seq_begin(struct eb_seq *s, uint32_t n, bool in_place, struct eb_seq_step *step,
                     ebro_error *err) {
    struct eb_manager *m = s->manager;
    assert(!s->stepping && n > 0 && n <= s->n_tokens - s->n_done);
    *step = (struct eb_seq_step){.first = s->n_done, .n = n, .in = s->state};
    struct eb_slot *slot = NULL;
    int32_t st = grow_pages(s, eb_layout_pages(&m->layout, s->n_done + n), err);
    /* Whatever else may fail does so before anything is given up. */
    if (st == EBRO_OK && !eb_seq_in_place(s, in_place)) st = eb_slot_make(&m->slots, &slot, err);
    if (st == EBRO_OK) st = eb_seq_make_room(s, n, in_place, err);
    if (st != EBRO_OK) {
        eb_free(&m->alloc, slot);
        return st;
    }
    if (eb_seq_in_place(s, in_place)) {
        eb_free(&m->alloc, slot);
        step->out = s->state;
    } else {
        eb_slot_fill(&m->slots, slot, EB_LIVE);
        slot->position = s->n_done + n;
        step->out = slot;
    }
    step->old_pages = s->n_pages;
    take_pages(s, step);
    add_emits(s, step);
    s->stepping = true;
    return EBRO_OK;
}

static void drop_copied(struct eb_manager *m, struct eb_seq_step *step, uint32_t block) {
    if (step->copy_from != step->copy_to) eb_block_drop(&m->blocks, block, EB_LIVE);
}

void eb_seq_commit(struct eb_seq *s, struct eb_seq_step *step) {
    struct eb_manager *m = s->manager;
    assert(s->stepping);
    s->stepping = false;
    drop_copied(m, step, step->copy_from);
    if (step->out != s->state) {
        eb_slot_drop(&m->slots, &s->state, EB_LIVE);
        s->state = step->out;
    }
    s->n_done += step->n;
    s->state->position = s->n_done;
    s->state->written = true;
    m->stats.evaluated_tokens += step->n;
    for (uint32_t i = 0; i < step->n_emits; i++) {
        step->emits[i]->written = true;
        eb_manager_keep(m, s, step->emits[i], step->emit_why[i]);
        eb_slot_drop(&m->slots, &step->emits[i], EB_LIVE);
    }
    struct eb_wish w = next_wish(s, s->n_done - 1);
    if (w.position == s->n_done) eb_manager_keep(m, s, s->state, w.why);
    drop_wishes_to(s, s->n_done);
    eb_seq_account(s);
}

void eb_seq_abort(struct eb_seq *s, struct eb_seq_step *step, bool touched) {
    struct eb_manager *m = s->manager;
    assert(s->stepping);
    s->stepping = false;
    uint32_t *page = s->pages + step->first / m->layout.page_tokens;
    if (step->copy_from != step->copy_to)
        *page = step->copy_from;
    else if (m->layout.row_bytes != 0 && step->first % m->layout.page_tokens != 0)
        eb_block_unclaim(&m->blocks, *page, step->old_fill);
    drop_copied(m, step, step->copy_to);
    drop_pages_from(s, step->old_pages);
    if (step->out != s->state)
        eb_slot_drop(&m->slots, &step->out, EB_LIVE);
    else if (touched)
        s->state->written = false; /* half-way between two tokens */
    for (uint32_t i = 0; i < step->n_emits; i++) eb_slot_drop(&m->slots, &step->emits[i], EB_LIVE);
}

uint32_t eb_seq_fit(const struct eb_seq *s, uint32_t n) {
    uint32_t n_wishes = 0, end = s->n_done + n;
    for (struct eb_wish w = next_wish(s, s->n_done); w.position != 0 && w.position < end;
         w = next_wish(s, w.position)) {
        if (++n_wishes > EB_MAX_EMITS) return w.position - s->n_done;
    }
    return n;
}

/* ---- branching and going back ------------------------------------------------------------- */

int32_t eb_seq_copy(struct eb_seq *s, struct eb_seq **out, ebro_error *err) {
    struct eb_manager *m = s->manager;
    assert(!s->stepping);
    *out = NULL;
    if (s->state != NULL && !s->state->written)
        return eb_fail(err, EBRO_INVALID, "the sequence failed in a step");
    struct eb_seq *c = NULL;
    int32_t st = eb_seq_open(m, &c, err);
    if (st != EBRO_OK) return st;
    if ((st = grow_tokens(c, s->n_tokens, err)) == EBRO_OK) st = grow_pages(c, s->n_pages, err);
    for (uint32_t i = 0; st == EBRO_OK && i < s->n_wishes; i++)
        st = add_wish(c, s->wishes[i].position, s->wishes[i].why, err);
    if (st != EBRO_OK) {
        discard(c);
        return st;
    }
    if (s->n_tokens > 0) memcpy(c->tokens, s->tokens, s->n_tokens * sizeof *s->tokens);
    c->n_tokens = s->n_tokens;
    c->n_done = s->n_done;
    c->reuse = s->reuse;
    for (; c->n_pages < s->n_pages; c->n_pages++) {
        c->pages[c->n_pages] = s->pages[c->n_pages];
        eb_block_hold(&m->blocks, c->pages[c->n_pages], EB_LIVE);
    }
    c->state = s->state;
    if (c->state != NULL) eb_slot_hold(&m->slots, c->state, EB_LIVE);
    if ((st = eb_seq_admit(c, err)) == EBRO_OK)
        *out = c;
    else
        discard(c);
    return st;
}

/* Where a sequence stands, or stood before a cut. */
struct place {
    struct eb_slot *state;
    uint32_t n_done, n_pages, n_tokens;
};

/* Moves the sequence back to a state, NULL: to the start, and leaves it `position` tokens. What it
 * gives up for that is kept for the moment, so that it can return. */
static struct place move_to(struct eb_seq *s, struct eb_slot *state, uint32_t position) {
    struct eb_manager *m = s->manager;
    struct place from = {s->state, s->n_done, s->n_pages, s->n_tokens};
    s->n_done = state == NULL ? 0 : state->position;
    s->n_tokens = position;
    for (uint32_t i = eb_layout_pages(&m->layout, s->n_done); i < s->n_pages; i++)
        eb_block_hold(&m->blocks, s->pages[i], EB_KEPT);
    if (from.state != NULL) eb_slot_hold(&m->slots, from.state, EB_KEPT);
    if (state != NULL) eb_slot_hold(&m->slots, state, EB_LIVE);
    /* Its own pages hold the rows before that as well as the tree's. */
    drop_pages_from(s, eb_layout_pages(&m->layout, s->n_done));
    eb_slot_drop(&m->slots, &s->state, EB_LIVE);
    s->state = state;
    return from;
}

static void move_back(struct eb_seq *s, const struct place *to) {
    struct eb_manager *m = s->manager;
    for (; s->n_pages < to->n_pages; s->n_pages++)
        eb_block_hold(&m->blocks, s->pages[s->n_pages], EB_LIVE);
    if (to->state != NULL) eb_slot_hold(&m->slots, to->state, EB_LIVE);
    eb_slot_drop(&m->slots, &s->state, EB_LIVE);
    s->state = to->state;
    s->n_done = to->n_done;
    s->n_tokens = to->n_tokens;
    eb_seq_account(s);
}

/* What was kept for the moment: the pages from the first one that it had left. */
static void let_go(struct eb_seq *s, struct place *left, uint32_t first) {
    struct eb_manager *m = s->manager;
    for (uint32_t i = first; i < left->n_pages; i++)
        eb_block_drop(&m->blocks, s->pages[i], EB_KEPT);
    eb_slot_drop(&m->slots, &left->state, EB_KEPT);
}

int32_t eb_seq_cut(struct eb_seq *s, uint32_t position, ebro_error *err) {
    struct eb_manager *m = s->manager;
    assert(!s->stepping);
    if (position > s->n_tokens) {
        return eb_fail(err, EBRO_INVALID, "going back to %u tokens: the sequence holds %u",
                       position, s->n_tokens);
    }
    bool whole = s->state == NULL || s->state->written;
    if (position >= s->n_done && whole) {
        s->n_tokens = position;
        drop_wishes_after(s, position);
        eb_seq_account(s);
        return EBRO_OK;
    }
    uint32_t most = position < s->n_done ? position : s->n_done;
    struct eb_match match = eb_prefix_match(&m->prefix, s->tokens, most, most);
    struct eb_node *node = match.snapshot;
    struct place from = move_to(s, node == NULL ? NULL : node->snapshot, position);
    uint32_t first = s->n_pages;
    int32_t st = eb_seq_admit(s, err);
    if (st != EBRO_OK) move_back(s, &from);
    let_go(s, &from, first);
    if (st != EBRO_OK) return st;
    if (node != NULL) m->policy.call->touch(&m->policy, node, true, NULL);
    drop_wishes_after(s, position);
    return EBRO_OK;
}

/* ---- from elsewhere ------------------------------------------------------------------------ */

/* Of a sequence that has none yet: pages for n_done tokens, and the slot, which are not written. */
static void take_all(struct eb_seq *s, uint32_t n_done, struct eb_slot *slot) {
    struct eb_seq_step step = {.n = n_done};
    eb_slot_fill(&s->manager->slots, slot, EB_LIVE);
    take_pages(s, &step);
    slot->position = n_done;
    s->state = slot;
    s->n_done = n_done;
}

int32_t eb_seq_restore(struct eb_manager *m, const int32_t *tokens, uint32_t n_tokens,
                       uint32_t n_done, struct eb_seq **out, ebro_error *err) {
    assert(n_done <= n_tokens);
    struct eb_seq *s = NULL;
    struct eb_slot *slot = NULL;
    *out = NULL;
    int32_t st = eb_manager_check_room(m, n_tokens, n_done, err);
    if (st == EBRO_OK) st = eb_seq_open(m, &s, err);
    if (st != EBRO_OK) return st;
    st = grow_tokens(s, n_tokens, err);
    if (st == EBRO_OK) st = grow_pages(s, eb_layout_pages(&m->layout, n_done), err);
    if (st == EBRO_OK && n_tokens - n_done > 1) st = wish_for_prompt(s, n_tokens, 0, err);
    if (st == EBRO_OK && n_done > 0) st = eb_slot_make(&m->slots, &slot, err);
    if (st == EBRO_OK && n_done > 0) st = eb_seq_make_room(s, n_done, false, err);
    if (st != EBRO_OK) {
        eb_free(&m->alloc, slot);
        discard(s);
        return st;
    }
    if (n_tokens > 0) memcpy(s->tokens, tokens, n_tokens * sizeof *tokens);
    s->n_tokens = n_tokens;
    if (n_done > 0) take_all(s, n_done, slot);
    s->reuse = (struct eb_reuse){n_tokens, n_done, n_done, EB_MISS_NONE};
    eb_seq_account(s);
    *out = s;
    return EBRO_OK;
}

void eb_seq_restored(struct eb_seq *s) {
    if (s->state == NULL) return;
    s->state->written = true;
    if (s->manager->options.keep != 0) eb_manager_keep(s->manager, s, s->state, EB_KEEP_LOADED);
}
