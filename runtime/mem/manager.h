/* manager.h: the memory of all sequences of one engine: live ones, and what is kept of earlier ones
 * for reuse, under one budget. Knows tokens, pages, slots and positions; knows no device: its
 * caller makes the extents, runs the ops and tells the manager what was done. So the same code
 * serves the engine and the simulator.
 *
 * A step of a sequence is begin (everything it needs is reserved, or nothing changes), the ops, and
 * then commit or abort. A KDA state cannot be taken back to an earlier token: a sequence therefore
 * resumes at the deepest snapshot at or below what it shares with the tree and evaluates the rest
 * again. Snapshots are never copied: a sequence that goes on from a shared state reads it and
 * writes another slot.
 *
 * What there is room for. Every block is held live (by a sequence or a step under way), only kept,
 * or free. All that is only kept can be given up, so live sequences can have all but what they hold
 * live themselves: admission and eviction both count so. Admission promises: after every call that
 * makes, lengthens, copies or cuts a sequence the blocks held live, and those that all sequences
 * are yet to take for their pending tokens, are within the limit, and exist; else the call is
 * NOMEM_DEVICE and changes nothing. What is yet to be taken, if everything kept were given up:
 *   - the pages of a sequence's tokens that it has none for;
 *   - a copy of the page that its next row falls into, where other sequences hold it too: for all
 *     that write to the page but one, where nobody wrote behind that one or all holders write;
 *   - a slot for a sequence without a state, and for all that go on from one shared state but the
 *     last, where every holder goes on;
 *   - `cancellable`: one slot more while any sequence has several tokens pending, for the second
 *     state of the step. Sequences use it one after the other.
 * No step adds to that sum, nor does an aborted one, nor closing a sequence. So eb_seq_begin never
 * fails for device memory while no other step is under way, unless the device then refuses an
 * extent that it had room for. Snapshots inside a step take only what is free or given up.
 *
 * Belongs to one thread at a time. */
#ifndef EB_MANAGER_H
#define EB_MANAGER_H

#include "base/log.h"
#include "mem/host.h"
#include "mem/layout.h"
#include "mem/policy.h"

struct eb_manager_options {
    uint64_t budget_bytes; /* for everything here; rounded down to blocks */
    uint64_t extent_bytes; /* most of one extent; 0: 256 MiB */
    uint32_t keep;         /* EB_KEEP_*: which snapshots are taken; 0: only named ones, no reuse */
    uint32_t interval;     /* tokens, for EB_KEEP_INTERVAL */
    enum eb_policy_kind policy;
    uint64_t host_bytes; /* for copies of what the budget gives up, besides it; 0: none are made */
    struct eb_host_calls host;
    /* Of evaluating a prompt token after t others: token_cost + depth_cost * t, in any unit.
     * token_cost 0: learned from what eb_manager_note_time tells. */
    double token_cost, depth_cost;
    uint64_t max_noted; /* tokens remembered in the tree; 0: 16 Mi (64 MiB) */
    bool cancellable;   /* steps are not in place while any sequence has several tokens pending */
    eb_extent_fn make;  /* NULL: counts alone */
    void *user;
    const struct eb_log *log; /* NULL: none */
};

/* Why a prompt was not reused further. */
enum eb_miss {
    EB_MISS_NONE,        /* all that could be reused was */
    EB_MISS_NEW,         /* no prompt began like this one */
    EB_MISS_OFF,         /* nothing is kept, by option */
    EB_MISS_NO_SNAPSHOT, /* seen before, but no snapshot was taken on the way */
    EB_MISS_EVICTED,     /* a snapshot nearer to the end was given up for memory */
    EB_MISS_EARLIER,     /* the nearest snapshot lies before the end of what is shared */
    EB_N_MISSES
};

struct eb_reuse {
    uint32_t prompt;  /* tokens of the first append */
    uint32_t matched; /* of them seen before */
    uint32_t reused;  /* not evaluated again */
    enum eb_miss miss;
};

struct eb_manager_stats {
    uint64_t budget_bytes;
    uint64_t made_bytes; /* extents: what is really taken, at most the budget */
    uint64_t live_page_bytes, live_state_bytes; /* held by live sequences */
    uint64_t kept_page_bytes, kept_state_bytes; /* held only for later ones: can be given up */
    uint64_t peak_bytes;                        /* most that was ever held at once */
    uint32_t n_seqs, n_snapshots;
    uint64_t n_nodes, noted_tokens;
    /* Since the manager was opened. */
    uint64_t prompts, prompt_tokens, matched_tokens, reused_tokens;
    uint64_t evaluated_tokens; /* rows of committed steps */
    uint64_t misses[EB_N_MISSES];
    uint64_t snapshots_kept, snapshots_refused, evictions, copied_pages;
    uint64_t host_bytes, host_budget_bytes; /* held in host copies; allowed */
    uint64_t host_saves, host_loads;
    double token_cost, depth_cost; /* that the policy goes by */
};

struct eb_wish {
    uint32_t position, why;
};

struct eb_seq {
    struct eb_manager *manager;
    struct eb_seq *next, *prev;
    int32_t *tokens; /* [n_tokens] */
    size_t tokens_capacity;
    uint32_t n_tokens, n_done; /* held; evaluated */
    uint32_t *pages;           /* for positions below n_done, perhaps a few more */
    size_t pages_capacity;
    uint32_t n_pages;
    struct eb_slot *state;  /* after n_done tokens; NULL: n_done is 0 */
    struct eb_wish *wishes; /* snapshots to take, positions rising and above n_done */
    size_t wishes_capacity;
    uint32_t n_wishes;
    struct eb_reuse reuse;
    uint32_t owed; /* blocks that it is yet to take, at most */
    bool stepping; /* between begin and commit or abort */
};

struct eb_manager {
    struct eb_layout layout;
    struct eb_alloc alloc;
    struct eb_manager_options options;
    struct eb_blocks blocks;
    struct eb_slots slots;
    struct eb_prefix prefix;
    struct eb_policy policy;
    struct eb_host host;
    struct eb_seq *seqs;
    uint32_t n_seqs;
    uint64_t owed;                 /* of all sequences */
    struct eb_manager_stats stats; /* counters; the rest is filled in when asked */
    bool warned_useless;
};

enum { EB_MAX_EMITS = 16 /* snapshots inside one step of one sequence */ };

/* What a step needs of the device, from begin to commit. */
struct eb_seq_step {
    uint32_t first, n;                   /* positions [first, first + n) */
    const struct eb_slot *in;            /* NULL: start from zeros */
    struct eb_slot *out;                 /* where the state after the step goes; may be `in` */
    uint32_t copy_from, copy_to;         /* copy this block before all else; equal: none */
    struct eb_slot *emits[EB_MAX_EMITS]; /* also write the state after row emit_rows[i] there */
    uint32_t emit_rows[EB_MAX_EMITS];    /* of this sequence's rows, rising */
    uint32_t emit_why[EB_MAX_EMITS];
    uint32_t n_emits;
    uint32_t old_pages, old_fill; /* for abort; rows of the first page before the step */
};

/* NOMEM_DEVICE when the budget does not hold one token of one sequence: names needed and allowed
 * bytes. */
int32_t eb_manager_check_budget(const struct eb_layout *layout, uint64_t budget_bytes,
                                ebro_error *err);
/* Fails as eb_manager_check_budget. The options' log must outlive the manager. */
int32_t eb_manager_open(struct eb_manager *m, const struct eb_layout *layout,
                        const struct eb_alloc *alloc, const struct eb_manager_options *options,
                        ebro_error *err);
void eb_manager_close(struct eb_manager *m); /* all sequences must be gone; fine on a zeroed one */
void eb_manager_get_stats(const struct eb_manager *m, struct eb_manager_stats *out);
/* Gives up everything that is kept and forgets what was seen. */
void eb_manager_clear(struct eb_manager *m);
/* Bytes that sequences of n_tokens each need, two states for each included: the same arithmetic
 * that steps go by. */
uint64_t eb_manager_estimate(const struct eb_layout *layout, uint32_t n_seqs, uint32_t n_tokens);
/* A step of `rows` prompt tokens, with `depth` tokens before them on average, took so long. */
void eb_manager_note_time(struct eb_manager *m, uint32_t rows, double depth, double seconds);
/* A constant text for a miss. */
const char *eb_miss_text(enum eb_miss miss);

int32_t eb_seq_open(struct eb_manager *m, struct eb_seq **out, ebro_error *err);
/* NULL-safe, sets NULL. Its state becomes a turn-end snapshot where that is wanted. */
void eb_seq_close(struct eb_seq **s);
/* Queues tokens. The first push of a sequence looks the prompt up and resumes at a snapshot: some
 * of its first n - n_fresh tokens then count as evaluated at once; n_fresh is 1 at least.
 * NOMEM_DEVICE, naming needed and allowed bytes, where there is no room; nothing has changed then.
 */
int32_t eb_seq_push(struct eb_seq *s, const int32_t *ids, uint32_t n, uint32_t n_fresh,
                    ebro_error *err);
/* Asks for a snapshot after `position` tokens: the current position, or a pending one up to
 * n_tokens. INVALID for others. */
int32_t eb_seq_wish(struct eb_seq *s, uint32_t position, ebro_error *err);

/* Reserves what the next n > 0 pending tokens need. in_place: the step may write the state it
 * reads where nobody else holds it (the caller will not abort it after the device began).
 * NOMEM_DEVICE, with nothing changed, where the steps under way hold too much. */
int32_t eb_seq_begin(struct eb_seq *s, uint32_t n, bool in_place, struct eb_seq_step *step,
                     ebro_error *err);
void eb_seq_commit(struct eb_seq *s, struct eb_seq_step *step);
/* As before begin. touched: the device may have begun. A step in place then leaves a sequence that
 * can only be closed or cut. */
void eb_seq_abort(struct eb_seq *s, struct eb_seq_step *step, bool touched);

/* n, or fewer: as many rows as one step can take with all the snapshots asked for within them. */
uint32_t eb_seq_fit(const struct eb_seq *s, uint32_t n);

/* A second sequence with the same tokens, pages and state. NOMEM_DEVICE where there is no room for
 * what both have pending. */
int32_t eb_seq_copy(struct eb_seq *s, struct eb_seq **out, ebro_error *err);
/* Cuts the sequence down to `position` tokens. Those after the deepest snapshot at or below it are
 * pending again: NOMEM_DEVICE where there is no room for them; nothing has changed then. One that
 * was aborted half-way is whole again, cut to any length, its own n_tokens too. */
int32_t eb_seq_cut(struct eb_seq *s, uint32_t position, ebro_error *err);

/* A sequence that was evaluated elsewhere: n_tokens tokens, the first n_done of which need pages
 * and a state. Those are its own, to be written by the caller, who then calls eb_seq_restored;
 * closed before that, it leaves nothing. Gives up snapshots for room; NOMEM_DEVICE, naming needed
 * and allowed bytes, where there is none; nothing has changed then. */
int32_t eb_seq_restore(struct eb_manager *m, const int32_t *tokens, uint32_t n_tokens,
                       uint32_t n_done, struct eb_seq **out, ebro_error *err);
/* True where eb_seq_restore of n_done evaluated tokens gives up nothing: the blocks lie ready. */
bool eb_manager_has_free(struct eb_manager *m, uint32_t n_done);
/* NOMEM_DEVICE where eb_seq_restore would end so. */
int32_t eb_manager_check_room(struct eb_manager *m, uint32_t n_tokens, uint32_t n_done,
                              ebro_error *err);
/* Blocks held live, and those that all sequences are yet to take: what admission keeps within the
 * limit. No step may be under way. */
uint64_t eb_manager_committed(struct eb_manager *m);
/* Pages and state are written: keeps a snapshot too, where anything is kept. */
void eb_seq_restored(struct eb_seq *s);

/* For tests: NULL, or which invariant is broken. */
const char *eb_manager_audit(const struct eb_manager *m);

#endif
