/* manager_inside.h: what manager.c and seq.c share and nobody else needs. */
#ifndef EB_MANAGER_INSIDE_H
#define EB_MANAGER_INSIDE_H

#include "mem/manager.h"

/* As MiB, rounded up to a tenth: what a budget must have to hold so much. */
double eb_manager_mib(uint64_t bytes);

/* The snapshot to give up next, one that frees something or lets `s` write in place; NULL: none. */
struct eb_node *eb_manager_victim(struct eb_manager *m, const struct eb_seq *s);
void eb_manager_give_up(struct eb_manager *m, struct eb_node *node);
/* Readies n blocks, giving up snapshots for them; false where live sequences hold too much. With a
 * position other than 0 only those go that a new snapshot after so many tokens is worth. */
bool eb_manager_make_room(struct eb_manager *m, uint32_t n, uint32_t position);
/* Brings a host copy back into the device's memory: the node, whose path is `tokens`, has a
 * snapshot then. False where there is no room; other snapshots may be gone all the same. */
bool eb_manager_fetch(struct eb_manager *m, struct eb_node *node, const int32_t *tokens);
/* Keeps a written slot, a state of s, in the tree. Refusal is logged and counted, no error. */
void eb_manager_keep(struct eb_manager *m, const struct eb_seq *s, struct eb_slot *slot,
                     uint32_t why);

#endif
