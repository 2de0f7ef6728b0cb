/* arguments.h: what a backend is given (ebro/backend.h) in the form that kernels take
 * (shaders/common/args.h), for those backends whose kernels reach memory by address. An absent
 * reference has the address 0. */
#ifndef EB_BACKENDS_ARGUMENTS_H
#define EB_BACKENDS_ARGUMENTS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "ebro/backend.h"
#include "shaders/common/args.h"
#include "shaders/common/args_kda.h"

/* Bytes of an element of F32, F16, BF16, I32; 0 for the rest. */
static inline uint64_t eb_dtype_bytes(int32_t dtype) {
    switch (dtype) {
        case EBRO_F32:
        case EBRO_I32:
            return 4;
        case EBRO_F16:
        case EBRO_BF16:
            return 2;
        default:
            return 0;
    }
}

static inline eb_addr eb_arg_at(const ebro_mem *mem, uint64_t offset) {
    return mem != NULL ? mem->address + offset : 0;
}

static inline eb_addr eb_arg_span(ebro_span span) {
    return eb_arg_at(span.mem, span.offset);
}

static inline struct eb_mat_arg eb_arg_mat(const ebro_mat *m) {
    return (struct eb_mat_arg){.at = eb_arg_at(m->mem, m->offset),
                               .stride = (uint32_t)m->stride,
                               .dtype = (uint32_t)m->dtype};
}

static inline struct eb_vec_arg eb_arg_vec(const ebro_vec *v) {
    return (struct eb_vec_arg){.at = eb_arg_at(v->mem, v->offset), .dtype = (uint32_t)v->dtype};
}

static inline struct eb_weight_arg eb_arg_weight(const ebro_weight *w) {
    return (struct eb_weight_arg){.at = eb_arg_at(w->mem, w->offset),
                                  .scales = eb_arg_at(w->scale_mem, w->scale_offset),
                                  .stride = (uint32_t)w->stride,
                                  .rows = w->rows,
                                  .cols = w->cols,
                                  .dtype = (uint32_t)w->dtype};
}

static inline struct eb_rows_arg eb_arg_rows(const ebro_rows *rows) {
    return (struct eb_rows_arg){.row_offsets = eb_arg_span(rows->row_offsets),
                                .n_seqs = rows->n_seqs,
                                .n_rows = rows->n_rows,
                                .max_rows = rows->max_rows};
}

static inline struct eb_state_arg eb_arg_states(const ebro_state_io *io) {
    const ebro_region *g = &io->region;
    return (struct eb_state_arg){.region = {.table = eb_arg_span(g->table),
                                            .table_stride = g->table_stride,
                                            .first_block = g->first_block,
                                            .first_unit = g->first_unit,
                                            .units_per_block = g->units_per_block,
                                            .unit_bytes = (uint32_t)g->unit_bytes,
                                            .dtype = (uint32_t)g->dtype,
                                            .block_offset = g->block_offset},
                                 .state_in = eb_arg_span(io->state_in),
                                 .state_out = eb_arg_span(io->state_out),
                                 .emit_rows = eb_arg_span(io->emit_rows),
                                 .emit_slots = eb_arg_span(io->emit_slots),
                                 .n_emit = io->n_emit};
}

static inline struct eb_pages_arg eb_arg_pages(const ebro_pages *p) {
    return (struct eb_pages_arg){.table = eb_arg_span(p->table),
                                 .layer_offset = p->layer_offset,
                                 .context = eb_arg_span(p->context),
                                 .table_stride = p->table_stride,
                                 .page_tokens = p->page_tokens,
                                 .row_stride = p->row_stride,
                                 .dtype = (uint32_t)p->dtype,
                                 .max_context = p->max_context};
}

static inline struct eb_kda_gate_arg eb_arg_gate(const ebro_kda_gate *g) {
    return (struct eb_kda_gate_arg){.g_raw = eb_arg_mat(&g->g_raw),
                                    .beta_raw = eb_arg_mat(&g->beta_raw),
                                    .a_log = eb_arg_vec(&g->a_log),
                                    .dt_bias = eb_arg_vec(&g->dt_bias),
                                    .form = g->form == EBRO_GATE_BOUNDED,
                                    .lower_bound = g->lower_bound,
                                    .l2_eps = g->l2_eps,
                                    .q_scale = 1.0f / sqrtf((float)g->head_dim)};
}

/* True where every row starts at a multiple of four elements. */
static inline bool eb_mat_is_wide(const ebro_mat *m) {
    uint64_t size = eb_dtype_bytes(m->dtype);
    return size > 0 && (eb_arg_at(m->mem, m->offset) | m->stride * size) % (4 * size) == 0;
}

static inline bool eb_vec_is_wide(const ebro_vec *v) {
    uint64_t size = eb_dtype_bytes(v->dtype);
    return size > 0 && eb_arg_at(v->mem, v->offset) % (4 * size) == 0;
}

/* How elementwise work over rows is laid out: a row is cut into n_chunks of lanes * lane_elements,
 * and a group of `threads`, a power of two, takes threads / lanes chunks. lanes is a power of two.
 */
struct eb_split {
    uint32_t threads, lanes, n_chunks;
    uint64_t groups;
};

static inline struct eb_split eb_split_rows(uint32_t threads, uint64_t n_rows,
                                            uint64_t row_elements, uint32_t lane_elements) {
    struct eb_split split = {.threads = threads, .lanes = 1};
    while (split.lanes < threads && (uint64_t)split.lanes * lane_elements < row_elements)
        split.lanes *= 2;
    uint64_t chunk = (uint64_t)split.lanes * lane_elements, per_group = threads / split.lanes;
    split.n_chunks = (uint32_t)((row_elements + chunk - 1) / chunk);
    split.groups = (n_rows * split.n_chunks + per_group - 1) / per_group;
    return split;
}

#endif
