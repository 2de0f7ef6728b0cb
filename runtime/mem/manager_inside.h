/* manager_inside.h: what manager.c and seq.c share and nobody else needs. */
#ifndef EB_MANAGER_INSIDE_H
#define EB_MANAGER_INSIDE_H

#include "mem/manager.h"

/* The snapshot to give up next, one that frees something or lets `s` write in place; NULL: none. */
struct eb_node *eb_manager_victim(struct eb_manager *m, const struct eb_seq *s);
void eb_manager_give_up(struct eb_manager *m, struct eb_node *node);
/* Keeps a written slot, a state of s, in the tree. Refusal is logged and counted, no error. */
void eb_manager_keep(struct eb_manager *m, const struct eb_seq *s, struct eb_slot *slot,
                     uint32_t why);

#endif
