/* step.c: the device-side step block and the pages that a step writes to. */
#include <string.h>

#include "engine/engine.h"

/* Fields start on 64 bytes so that none shares a cache line that the device reads. */
static uint64_t place(uint64_t *at, uint64_t bytes) {
    uint64_t offset = *at;
    *at = (offset + bytes + 63u) & ~(uint64_t)63u;
    return offset;
}

/* Offsets of the fields in a block without memory; returns its bytes. */
static uint64_t lay_out(const struct ebro_engine *e, struct eb_step_block *b) {
    uint64_t at = 0;
    b->ids.offset = place(&at, (uint64_t)e->n_chunk * sizeof(int32_t));
    b->row_offsets.offset = place(&at, 2 * sizeof(int32_t));
    b->context.offset = place(&at, sizeof(int32_t));
    b->state_in.offset = place(&at, sizeof(int32_t));
    b->state_out.offset = place(&at, sizeof(int32_t));
    b->page_table.offset = place(&at, (uint64_t)e->max_pages * sizeof(uint64_t));
    b->slot_table.offset = place(&at, (uint64_t)e->n_slots * sizeof(uint64_t));
    b->sampling.offset = place(&at, sizeof(ebro_sample_params));
    return at;
}

uint64_t eb_step_block_bytes(const struct ebro_engine *e) {
    struct eb_step_block b = {0};
    return lay_out(e, &b);
}

int32_t eb_step_block_open(struct ebro_engine *e, ebro_error *err) {
    struct eb_step_block *b = &e->step;
    uint64_t at = lay_out(e, b);
    int32_t st = eb_mem_alloc(e->device, at, EBRO_MEM_UPLOAD, &b->mem, err);
    if (st != EBRO_OK) return eb_while(err, st, "allocating the step block");
    memset(b->mem->host, 0, at);
    ebro_span *fields[] = {&b->ids,       &b->row_offsets, &b->context,    &b->state_in,
                           &b->state_out, &b->page_table,  &b->slot_table, &b->sampling};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) fields[i]->mem = b->mem;
    uint64_t *slots = (uint64_t *)(void *)((char *)b->mem->host + b->slot_table.offset);
    for (uint32_t i = 0; i < e->cache.n_slots; i++) slots[i] = eb_cache_slot_address(&e->cache, i);
    return EBRO_OK;
}

static int32_t *ints(ebro_span s) {
    return (int32_t *)(void *)((char *)s.mem->host + s.offset);
}

/* Pages for positions below n_tokens. What was taken stays with the sequence on failure. */
static int32_t reserve_pages(struct ebro_engine *e, struct ebro_seq *s, uint32_t n_tokens,
                             ebro_error *err) {
    uint32_t need = (n_tokens + EB_PAGE_TOKENS - 1) / EB_PAGE_TOKENS;
    uint64_t *table = (uint64_t *)(void *)((char *)e->step.mem->host + e->step.page_table.offset);
    while (s->n_pages < need) {
        uint32_t page = 0;
        int32_t st = eb_cache_page_take(&e->cache, &page, err);
        if (st != EBRO_OK) return st;
        s->pages[s->n_pages] = page;
        table[s->n_pages++] = eb_cache_page_address(&e->cache, page);
    }
    return EBRO_OK;
}

int32_t eb_step_prepare(struct ebro_engine *e, struct ebro_seq *s, uint32_t n, struct eb_step *out,
                        ebro_error *err) {
    int32_t st = reserve_pages(e, s, s->n_done + n, err);
    if (st != EBRO_OK) return st;
    memcpy(ints(e->step.ids), s->tokens + s->n_done, n * sizeof(int32_t));
    ints(e->step.row_offsets)[0] = 0;
    ints(e->step.row_offsets)[1] = (int32_t)n;
    ints(e->step.context)[0] = (int32_t)s->n_done;
    /* A sequence starts from zeros, not from what the slot's last owner left. */
    ints(e->step.state_in)[0] = s->n_done == 0 ? -1 : (int32_t)s->slot;
    /* Several rows can be cancelled between layers: the state before them must survive. One row is
     * soon done, and works in place. */
    uint32_t slot_out = n > 1 ? (s->slot + 1) % e->cache.n_slots : s->slot;
    ints(e->step.state_out)[0] = (int32_t)slot_out;

    uint32_t end = s->n_done + n, vocab = e->model->config.vocab_size;
    uint32_t first = s->logits_from > s->n_done ? s->logits_from - s->n_done : 0;
    *out = (struct eb_step){
        .rows = {.row_offsets = e->step.row_offsets, .n_seqs = 1, .n_rows = n, .max_rows = n},
        .context = s->n_done,
        .slot_out = slot_out,
        .first_logits = s->logits_from < end ? first : n,
        .logits = {.mem = s->logits,
                   .offset = (uint64_t)s->logits_rows * vocab * sizeof(float),
                   .stride = vocab,
                   .dtype = EBRO_F32}};
    return EBRO_OK;
}
