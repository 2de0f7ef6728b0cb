/* step.c: the device-side step block: what changes from step to step. */
#include <string.h>

#include "engine/engine.h"

/* Fields start on 64 bytes so that none shares a cache line that the device reads. */
static ebro_span place(uint64_t *at, uint64_t n, uint64_t size) {
    ebro_span s = {.offset = *at};
    *at = (*at + n * size + 63u) & ~(uint64_t)63u;
    return s;
}

/* Offsets of the fields in a block without memory; returns its bytes. */
static uint64_t lay_out(const struct ebro_engine *e, struct eb_step_block *b) {
    uint64_t at = 0, seqs = e->max_seqs, emits = e->max_emits;
    b->ids = place(&at, e->n_chunk, sizeof(int32_t));
    for (int i = 0; i < 2; i++) b->row_offsets[i] = place(&at, seqs + 1, sizeof(int32_t));
    b->context = place(&at, seqs, sizeof(int32_t));
    b->state_in = place(&at, seqs, sizeof(int32_t));
    b->state_out = place(&at, seqs, sizeof(int32_t));
    b->emit_rows = place(&at, emits, sizeof(int32_t));
    b->emit_slots = place(&at, emits, sizeof(int32_t));
    b->page_table = place(&at, seqs * e->max_pages, sizeof(uint64_t));
    b->slot_table = place(&at, (2 * seqs + emits) * e->layout.slot_blocks, sizeof(uint64_t));
    b->sampling = place(&at, 1, sizeof(ebro_sample_params));
    return at;
}

uint64_t eb_step_block_bytes(const struct ebro_engine *e) {
    struct eb_step_block b = {0};
    return lay_out(e, &b);
}

int32_t eb_step_block_open(struct ebro_engine *e, ebro_error *err) {
    struct eb_step_block *b = &e->step;
    uint64_t bytes = lay_out(e, b);
    int32_t st = eb_mem_alloc(e->device, bytes, EBRO_MEM_UPLOAD, &b->mem, err);
    if (st != EBRO_OK) return eb_while(err, st, "allocating the step block");
    memset(b->mem->host, 0, bytes);
    ebro_span *fields[] = {&b->ids,        &b->row_offsets[0], &b->row_offsets[1], &b->context,
                           &b->state_in,   &b->state_out,      &b->emit_rows,      &b->emit_slots,
                           &b->page_table, &b->slot_table,     &b->sampling};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) fields[i]->mem = b->mem;
    return EBRO_OK;
}

static int32_t *ints(ebro_span s) {
    return (int32_t *)(void *)((char *)s.mem->host + s.offset);
}

static uint64_t *addresses(ebro_span s) {
    return (uint64_t *)(void *)((char *)s.mem->host + s.offset);
}

/* Slot numbers are those of this step's table: its blocks' addresses in row `number`. */
static int32_t write_slot(const struct ebro_engine *e, uint32_t number,
                          const struct eb_slot *slot) {
    uint64_t *row = addresses(e->step.slot_table) + (size_t)number * e->layout.slot_blocks;
    for (uint32_t i = 0; i < slot->n_blocks; i++) row[i] = eb_block_address(e, slot->blocks[i]);
    return (int32_t)number;
}

/* Sequence number i of the step. */
static void write_part(const struct ebro_engine *e, const struct eb_part *p, uint32_t i) {
    const struct eb_seq *m = p->seq->mem;
    const struct eb_seq_step *s = &p->mem;
    memcpy(ints(e->step.ids) + p->first_row, m->tokens + s->first, s->n * sizeof(int32_t));
    ints(e->step.context)[i] = (int32_t)s->first;
    /* A sequence starts from zeros, not from what a slot's last owner left. */
    ints(e->step.state_in)[i] = s->in == NULL ? -1 : write_slot(e, 2 * i, s->in);
    ints(e->step.state_out)[i] =
        s->out == s->in ? (int32_t)(2 * i) : write_slot(e, 2 * i + 1, s->out);
    uint64_t *pages = addresses(e->step.page_table) + (size_t)i * e->max_pages;
    for (uint32_t k = 0; k < m->n_pages; k++) pages[k] = eb_block_address(e, m->pages[k]);
}

/* Snapshots that are taken inside the step; only prompts have them. */
static uint32_t write_emits(const struct ebro_engine *e, const struct eb_step *step,
                            uint32_t first_row) {
    uint32_t n = 0;
    for (uint32_t i = step->n_decoding; i < step->n_parts; i++) {
        const struct eb_part *p = &step->parts[i];
        for (uint32_t k = 0; k < p->mem.n_emits; k++, n++) {
            ints(e->step.emit_rows)[n] = (int32_t)(p->first_row - first_row + p->mem.emit_rows[k]);
            ints(e->step.emit_slots)[n] = write_slot(e, 2 * e->max_seqs + n, p->mem.emits[k]);
        }
    }
    return n;
}

static struct eb_range write_range(const struct eb_step *step, ebro_span offsets, uint32_t first,
                                   uint32_t end) {
    struct eb_range r = {.rows = {.row_offsets = offsets, .n_seqs = end - first},
                         .first_row = step->parts[first].first_row,
                         .first_seq = first};
    for (uint32_t i = first; i < end; i++) {
        const struct eb_seq_step *s = &step->parts[i].mem;
        ints(offsets)[i - first] = (int32_t)r.rows.n_rows;
        r.rows.n_rows += s->n;
        if (s->n > r.rows.max_rows) r.rows.max_rows = s->n;
        if (s->first > r.max_context) r.max_context = s->first;
    }
    ints(offsets)[end - first] = (int32_t)r.rows.n_rows;
    return r;
}

void eb_step_write(struct ebro_engine *e, struct eb_step *step) {
    for (uint32_t i = 0; i < step->n_parts; i++) write_part(e, &step->parts[i], i);
    uint32_t n_decoding = step->n_decoding;
    if (n_decoding > 0)
        step->ranges[step->n_ranges++] = write_range(step, e->step.row_offsets[0], 0, n_decoding);
    if (n_decoding == step->n_parts) return;
    struct eb_range *r = &step->ranges[step->n_ranges++];
    *r = write_range(step, e->step.row_offsets[1], n_decoding, step->n_parts);
    r->n_emit = write_emits(e, step, r->first_row);
}
