/* sample.h: how backends whose kernels are those of args_sample.h lay out the scratch of sample,
 * and their arguments. Included by one file of such a backend. */
#ifndef EB_BACKENDS_SAMPLE_H
#define EB_BACKENDS_SAMPLE_H

#include "backends/arguments.h"
#include "shaders/common/args_sample.h"

struct eb_sample_layout {
    uint32_t n_parts, part_size, changed_stride;
    uint64_t parts, masses, bins, changed, bytes; /* offsets, and the end */
};

/* Grows with n_rows and with vocab: room is for as many parts as any smaller vocab has. */
static struct eb_sample_layout eb_sample_layout_of(const ebro_sample_args *a) {
    enum { PART = 4096 };
    struct eb_sample_layout l = {.part_size = PART, .changed_stride = (a->vocab + 3) / 4 * 4};
    uint64_t room = ((uint64_t)a->vocab + PART - 1) / PART;
    if (room > EB_SAMPLE_MOST_PARTS) room = EB_SAMPLE_MOST_PARTS;
    while (((uint64_t)a->vocab + l.part_size - 1) / l.part_size > EB_SAMPLE_MOST_PARTS)
        l.part_size *= 2;
    l.n_parts = (uint32_t)(((uint64_t)a->vocab + l.part_size - 1) / l.part_size);
    room *= a->n_rows;
    l.masses = l.parts + room * 16;
    l.bins = l.masses + (room * 8 + 15) / 16 * 16;
    l.changed = l.bins + room * 12 * EB_SAMPLE_BINS;
    l.bytes = l.changed + (a->n_adjusts > 0 ? (uint64_t)a->n_rows * l.changed_stride * 4 : 0);
    return l;
}

static struct eb_sample_args eb_sample_args_of(const ebro_sample_args *a,
                                               const struct eb_sample_layout *l) {
    const eb_addr scratch = eb_arg_span(a->scratch);
    bool adjusts = a->n_adjusts > 0;
    return (struct eb_sample_args){.logits = eb_arg_mat(&a->logits),
                                   .params = eb_arg_span(a->params),
                                   .ids = eb_arg_span(a->ids),
                                   .adjusts = adjusts ? eb_arg_span(a->adjusts) : 0,
                                   .adjust_offsets = adjusts ? eb_arg_span(a->adjust_offsets) : 0,
                                   .changed = adjusts ? scratch + l->changed : 0,
                                   .parts = scratch + l->parts,
                                   .masses = scratch + l->masses,
                                   .bins = scratch + l->bins,
                                   .vocab = a->vocab,
                                   .n_parts = l->n_parts,
                                   .part_size = l->part_size,
                                   .changed_stride = l->changed_stride,
                                   .wide = eb_mat_is_wide(&a->logits),
                                   .one_high = a->vocab < 1u << 24 ? 256.0f : 1.0f};
}

#endif
