/* manager_inside.h: what manager.c, room.c and seq.c share and nobody else needs. */
#ifndef EB_MANAGER_INSIDE_H
#define EB_MANAGER_INSIDE_H

#include "mem/manager.h"

/* As MiB, rounded up to a tenth: what a budget must have to hold so much. */
double eb_manager_mib(uint64_t bytes);

/* Readies n blocks, giving up snapshots for them; false, with nothing given up, where live
 * sequences hold too much. */
bool eb_manager_make_room(struct eb_manager *m, uint32_t n);
/* A slot for a snapshot after `position` tokens, held live; only those go for it that it is worth.
 * False: there is none. */
bool eb_manager_make_slot(struct eb_manager *m, uint32_t position, struct eb_slot **out);
/* Brings a host copy back into the device's memory: the node, whose path is `tokens`, has a
 * snapshot then. False where there is no room; other snapshots may be gone all the same. */
bool eb_manager_fetch(struct eb_manager *m, struct eb_node *node, const int32_t *tokens);
/* Keeps a written slot, a state of s, in the tree. Refusal is logged and counted, no error. */
void eb_manager_keep(struct eb_manager *m, const struct eb_seq *s, struct eb_slot *slot,
                     uint32_t why);

/* Brings s->owed up to date: after each change of its tokens, pages or position. */
void eb_seq_account(struct eb_seq *s);
/* Admission (see manager.h) of s, whose fields are already as they are to be: NOMEM_DEVICE, naming
 * needed and allowed bytes, or the error of an extent that could not be made. The caller then puts
 * them back, and accounts for that. */
int32_t eb_seq_admit(struct eb_seq *s, ebro_error *err);
/* Whether a step may write the state of s, which nobody else holds then. */
bool eb_seq_in_place(const struct eb_seq *s, bool allowed);
/* Makes ready what the next n tokens cannot do without, giving up snapshots for it. On NOMEM_DEVICE
 * nothing is given up. */
int32_t eb_seq_make_room(struct eb_seq *s, uint32_t n, bool in_place, ebro_error *err);

#endif
