/* slots.h: recurrent states as objects: a list of blocks, the exact position they stand for, and
 * who holds them. A state is immutable for everyone but its only holder: who wants to go on from a
 * shared one reads it and writes another. */
#ifndef EB_SLOTS_H
#define EB_SLOTS_H

#include "mem/blocks.h"

struct eb_slot {
    uint32_t refs[EB_N_HOLDERS];
    uint32_t position; /* tokens evaluated into it */
    bool written;      /* false: must never be read */
    uint32_t writers;  /* of one count by eb_manager_committed: sequences yet to go on from here */
    uint32_t n_blocks;
    uint32_t blocks[];
};

struct eb_slots {
    struct eb_blocks *blocks;
    uint32_t slot_blocks;    /* 0 for models without a recurrent state */
    uint32_t n_live, n_kept; /* slots held by a live sequence; held only as kept */
};

/* A slot without blocks that nobody holds yet: to be filled, or freed with eb_free. */
int32_t eb_slot_make(struct eb_slots *s, struct eb_slot **out, ebro_error *err);
/* Gives such a slot its blocks, slot_blocks reserved ones: held once by h, not written yet. */
void eb_slot_fill(struct eb_slots *s, struct eb_slot *slot, enum eb_holder h);
/* Both at once; NOMEM_HOST changes nothing. */
int32_t eb_slot_take(struct eb_slots *s, enum eb_holder h, struct eb_slot **out, ebro_error *err);
void eb_slot_hold(struct eb_slots *s, struct eb_slot *slot, enum eb_holder h);
/* NULL-safe; sets NULL. The last drop frees slot and blocks. */
void eb_slot_drop(struct eb_slots *s, struct eb_slot **slot, enum eb_holder h);
uint32_t eb_slot_holders(const struct eb_slot *slot);

#endif
