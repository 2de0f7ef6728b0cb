/* slots.c: counts of holders of states. */
#include "mem/slots.h"

#include <assert.h>

int32_t eb_slot_make(struct eb_slots *s, struct eb_slot **out, ebro_error *err) {
    *out = eb_calloc(&s->blocks->alloc, 1, sizeof **out + s->slot_blocks * sizeof(uint32_t), err);
    return *out == NULL ? EBRO_NOMEM_HOST : EBRO_OK;
}

void eb_slot_fill(struct eb_slots *s, struct eb_slot *slot, enum eb_holder h) {
    slot->n_blocks = s->slot_blocks;
    for (uint32_t i = 0; i < slot->n_blocks; i++) slot->blocks[i] = eb_block_take(s->blocks, h);
    slot->refs[h] = 1;
    if (h == EB_LIVE)
        s->n_live++;
    else
        s->n_kept++;
}

int32_t eb_slot_take(struct eb_slots *s, enum eb_holder h, struct eb_slot **out, ebro_error *err) {
    int32_t st = eb_slot_make(s, out, err);
    if (st == EBRO_OK) eb_slot_fill(s, *out, h);
    return st;
}

void eb_slot_hold(struct eb_slots *s, struct eb_slot *slot, enum eb_holder h) {
    if (h == EB_LIVE && slot->refs[EB_LIVE] == 0) {
        s->n_live++;
        s->n_kept--;
    }
    slot->refs[h]++;
    for (uint32_t i = 0; i < slot->n_blocks; i++) eb_block_hold(s->blocks, slot->blocks[i], h);
}

void eb_slot_drop(struct eb_slots *s, struct eb_slot **slot, enum eb_holder h) {
    struct eb_slot *p = *slot;
    if (p == NULL) return;
    *slot = NULL;
    assert(p->refs[h] > 0);
    p->refs[h]--;
    bool live = p->refs[EB_LIVE] > 0, kept = p->refs[EB_KEPT] > 0;
    if (h == EB_LIVE && !live) {
        s->n_live--;
        if (kept) s->n_kept++;
    }
    if (h == EB_KEPT && !kept && !live) s->n_kept--;
    for (uint32_t i = 0; i < p->n_blocks; i++) eb_block_drop(s->blocks, p->blocks[i], h);
    if (!live && !kept) eb_free(&s->blocks->alloc, p);
}

uint32_t eb_slot_holders(const struct eb_slot *slot) {
    return slot->refs[EB_LIVE] + slot->refs[EB_KEPT];
}
