/* policy.h: which snapshot goes first when memory is short. A policy sees nodes of the prefix tree
 * and gives back a victim; it frees nothing itself.
 *
 * Both built-in policies keep two segments. A snapshot starts on probation and moves to the
 * protected segment once it is known to be shared: at its second use, at its first where it lies at
 * a junction, at once where the application asked for it. One use is no sign of that: a chat goes
 * on from each of its turns once, and what was gone on from is the least likely to be used again.
 * It becomes the next to go. Victims come from probation first: ten thousand prompts that nobody
 * repeats cannot push out the one that everybody shares. When memory is short the protected segment
 * is held to three quarters of all snapshots: what it loses goes on probation again, so that new
 * conversations find room. Within a segment the lowest score goes first: the time of the last use
 * (LRU), or the aging value of GreedyDual-Size (Cao and Irani, 1997): cost of recomputation saved
 * per block held, in units of a prompt's first token, so that what was scored before the costs
 * were measured anew can still be compared. */
#ifndef EB_POLICY_H
#define EB_POLICY_H

#include "mem/cost.h"
#include "mem/prefix.h"

enum { EB_PROBATION = 0, EB_PROTECTED = 1, EB_N_SEGMENTS };

/* Node pointers in a binary heap, the lowest score first. */
struct eb_heap {
    struct eb_node **at;
    size_t n, capacity;
};

struct eb_policy;

struct eb_policy_vtable {
    const char *name;
    /* A snapshot was just kept (hit false) or resumed from (hit true). NOMEM_HOST: the node is not
     * under the policy's care and must be forgotten. */
    int32_t (*touch)(struct eb_policy *p, struct eb_node *node, bool hit, ebro_error *err);
    /* Is a new snapshot after `position` tokens worth the room of `victim`, the node that would
     * have to go? When not, it counts as one that came and went: what is kept has aged by it. */
    bool (*admit_snapshot)(struct eb_policy *p, const struct eb_node *victim, uint32_t position);
    /* The node to give up next, still in the policy's care; NULL: none of those that `frees` says
     * would free anything (NULL: all). */
    struct eb_node *(*victim)(struct eb_policy *p,
                              bool (*frees)(const void *user, const struct eb_node *node),
                              const void *user);
    /* The node's snapshot is about to go. */
    void (*forget)(struct eb_policy *p, struct eb_node *node);
    void (*destroy)(struct eb_policy *p);
};

struct eb_policy {
    const struct eb_policy_vtable *call;
    struct eb_alloc alloc;
    struct eb_heap segments[EB_N_SEGMENTS];
    uint32_t slot_blocks, page_tokens;
    uint64_t clock;
    double age; /* score of the last victim */
    struct eb_cost cost;
};

enum eb_policy_kind { EB_POLICY_LRU = 0, EB_POLICY_COST = 1 };

/* The costs: as eb_cost_open. */
void eb_policy_open(struct eb_policy *p, enum eb_policy_kind kind, const struct eb_alloc *alloc,
                    uint32_t slot_blocks, uint32_t page_tokens, double token_cost,
                    double depth_cost);

#endif
