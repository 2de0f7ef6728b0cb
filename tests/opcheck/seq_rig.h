/* seq_rig.h: what the tests of KDA and MLA add to rig.h: rows of sequences, and states scattered
 * over blocks in random order, where every byte that an op has no business with is compared with
 * what it was. */
#ifndef EB_TEST_SEQ_RIG_H
#define EB_TEST_SEQ_RIG_H

#include "tests/opcheck/rig.h"

/* What was made since a mark is given back before the test ends: loops over many shapes. */
struct seq_mark {
    size_t n_mems, n_hosts;
};

static inline struct seq_mark seq_mark(void) {
    return (struct seq_mark){rig.n_mems, rig.n_hosts};
}

static inline void seq_release(struct seq_mark m) {
    while (rig.n_mems > m.n_mems) eb_mem_free(rig.device, &rig.mems[--rig.n_mems]);
    while (rig.n_hosts > m.n_hosts) free(rig.hosts[--rig.n_hosts]);
}

static inline ebro_span seq_i32(const int32_t *v, uint64_t n) {
    return rig_data(v, n * sizeof *v).span;
}

/* n different numbers below n in random order. */
static inline uint32_t *seq_shuffled(uint32_t n) {
    uint32_t *order = rig_host(n, sizeof *order);
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = rig_below(i), t = order[i - 1];
        order[i - 1] = order[j];
        order[j] = t;
    }
    return order;
}

static inline uint64_t seq_to_bytes(int32_t dtype, float x, uint8_t *out) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (dtype == EBRO_F32) {
        memcpy(out, &bits, 4);
        return 4;
    }
    uint16_t h = (uint16_t)(bits >> 16); /* BF16: x fits */
    memcpy(out, &h, 2);
    return 2;
}

static inline float seq_from_bytes(int32_t dtype, const uint8_t *p) {
    return (float)eb_ref_element(dtype, p);
}

/* ---- rows and slots of a call ----------------------------------------------------------- */

enum { SEQ_SLOTS = 24 };

/* One sequence of n rows from slot in to slot out. */
static inline struct eb_ref_plan seq_one(uint32_t n, int32_t in, int32_t out) {
    return (struct eb_ref_plan){.n_seqs = 1, .offsets = {0, (int32_t)n}, .in = {in}, .out = {out}};
}

static inline ebro_rows seq_rows(const struct eb_ref_plan *p) {
    ebro_rows r = {.row_offsets = seq_i32(p->offsets, p->n_seqs + 1), .n_seqs = p->n_seqs};
    r.n_rows = eb_ref_rows(p) + p->slack;
    for (uint32_t s = 0; s < p->n_seqs; s++) {
        uint32_t n = (uint32_t)(p->offsets[s + 1] - p->offsets[s]);
        if (n > r.max_rows) r.max_rows = n;
    }
    r.max_rows += p->slack;
    return r;
}

/* Slots that the call writes. */
static inline bool seq_writes(const struct eb_ref_plan *p, uint32_t slot) {
    for (uint32_t s = 0; s < p->n_seqs; s++) {
        if (p->out[s] == (int32_t)slot) return true;
    }
    for (uint32_t i = 0; i < p->n_emit; i++) {
        if (p->emit_slots[i] == (int32_t)slot) return true;
    }
    return false;
}

/* Sequences of awkward lengths, some empty; start states absent, shared, or written in place; end
 * states kept or not; emitted states anywhere, now and then at a sequence's last row. Slots
 * [0, SEQ_SHARED) are only read. */
enum { SEQ_SHARED = 3 };

static inline struct eb_ref_plan seq_random_plan(uint32_t max_length) {
    static const uint32_t lengths[] = {0,  0,  1,  1,  2,  3,  4,  5,  15, 16,
                                       17, 31, 32, 33, 47, 63, 64, 65, 66, 100};
    struct eb_ref_plan p = {.n_seqs = 1 + rig_below(6)};
    int32_t next = SEQ_SHARED;
    for (uint32_t s = 0; s < p.n_seqs; s++) {
        uint32_t n = lengths[rig_below(sizeof lengths / sizeof lengths[0])];
        p.offsets[s + 1] = p.offsets[s] + (int32_t)(n % (max_length + 1));
        p.in[s] = (int32_t)rig_below(SEQ_SHARED + 1) - 1;
        p.out[s] = rig_below(5) == 0 ? -1 : next++;
        if (p.out[s] >= 0 && rig_below(3) == 0) p.in[s] = p.out[s];
    }
    uint32_t n_rows = (uint32_t)p.offsets[p.n_seqs], wanted = rig_below(7);
    for (uint32_t i = 0; i < wanted && n_rows > 0; i++) {
        int32_t row = (int32_t)rig_below(n_rows);
        if (i % 2 == 0) row = p.offsets[1 + rig_below(p.n_seqs)] - 1;
        bool again = row < 0;
        for (uint32_t k = 0; k < p.n_emit; k++) again = again || p.emit_rows[k] == row;
        if (again) continue;
        p.emit_rows[p.n_emit] = row;
        p.emit_slots[p.n_emit++] = next++;
    }
    p.padding = rig_below(3) * 5;
    p.slack = rig_below(2) * 3;
    return p;
}

/* ---- states ----------------------------------------------------------------------------- */

struct seq_pool {
    struct rig_buf buf;
    uint8_t *before; /* what the buffer holds before the op */
    uint64_t *at;    /* [n_slots][units]: bytes into the buffer */
    ebro_region region;
    uint32_t n_slots, units;
    uint64_t elements; /* of a unit */
};

struct seq_layout {
    uint32_t units_per_block, first_unit, first_block;
    uint32_t gap; /* elements before the first unit of a block and after each unit */
};

static inline struct seq_layout seq_random_layout(uint32_t units) {
    return (struct seq_layout){.units_per_block = 1 + rig_below(units + 1),
                               .first_unit = rig_below(4),
                               .first_block = rig_below(3),
                               .gap = rig_below(2) * 6};
}

static inline struct seq_pool seq_pool(uint32_t n_slots, uint32_t units, uint64_t elements,
                                       int32_t dtype, struct seq_layout l) {
    struct seq_pool p = {.n_slots = n_slots, .units = units, .elements = elements};
    uint64_t size = eb_dtype_size(dtype), unit_bytes = (elements + l.gap) * size;
    uint64_t lead = l.gap * size, block_bytes = lead + l.units_per_block * unit_bytes;
    uint32_t n_blocks = (l.first_unit + units - 1) / l.units_per_block + 1;
    uint32_t stride = l.first_block + n_blocks + 1;
    uint32_t *order = seq_shuffled(n_slots * n_blocks);
    uint64_t *table = rig_host((uint64_t)n_slots * stride, sizeof *table);
    p.buf = rig_buf(n_slots * n_blocks * block_bytes);
    p.before = rig_host(p.buf.bytes, 1);
    memset(p.before, 0xff, p.buf.bytes);
    p.at = rig_host((uint64_t)n_slots * units, sizeof *p.at);
    memset(table, 0xff, (size_t)n_slots * stride * sizeof *table);
    for (uint32_t s = 0; s < n_slots; s++) {
        for (uint32_t u = 0; u < units; u++) {
            uint32_t at = l.first_unit + u, b = at / l.units_per_block;
            uint64_t block = order[s * n_blocks + b] * block_bytes;
            table[s * stride + l.first_block + b] =
                p.buf.span.mem->address + p.buf.span.offset + block;
            p.at[s * units + u] = block + lead + at % l.units_per_block * unit_bytes;
        }
    }
    p.region = (ebro_region){.table = rig_data(table, (uint64_t)n_slots * stride * 8).span,
                             .table_stride = stride,
                             .first_block = l.first_block,
                             .first_unit = l.first_unit,
                             .units_per_block = l.units_per_block,
                             .block_offset = lead,
                             .unit_bytes = unit_bytes,
                             .dtype = dtype};
    return p;
}

/* Fills one slot from [units][elements]; seq_pool_upload makes it real. */
static inline void seq_pool_put(struct seq_pool *p, uint32_t slot, const double *v) {
    for (uint64_t u = 0; u < p->units; u++) {
        uint8_t *to = p->before + p->at[slot * p->units + u];
        for (uint64_t e = 0; e < p->elements; e++) {
            to += seq_to_bytes(p->region.dtype, (float)v[u * p->elements + e], to);
        }
    }
}

static inline void seq_pool_upload(struct seq_pool *p) {
    rig_put(&p->buf, 0, p->before, p->buf.bytes);
}

static inline float *seq_pool_get(const struct seq_pool *p, const uint8_t *bytes, uint32_t slot) {
    float *v = rig_host(p->units * p->elements, sizeof *v);
    uint64_t size = eb_dtype_size(p->region.dtype);
    for (uint64_t u = 0; u < p->units; u++) {
        const uint8_t *from = bytes + p->at[slot * p->units + u];
        for (uint64_t e = 0; e < p->elements; e++) {
            v[u * p->elements + e] = seq_from_bytes(p->region.dtype, from + e * size);
        }
    }
    return v;
}

/* Slots that the plan writes against `ref` [n_slots][units][elements]; all else is as it was. */
static inline void seq_pool_check(const struct seq_pool *p, const struct eb_ref_plan *plan,
                                  const double *ref, double bound, const char *what) {
    uint64_t n = p->units * p->elements, size = eb_dtype_size(p->region.dtype);
    uint8_t *now = rig_get(&p->buf);
    for (uint32_t s = 0; s < p->n_slots; s++) {
        if (!seq_writes(plan, s)) continue;
        const float *got = seq_pool_get(p, now, s);
        test_le(test_rel_fro(got, ref + s * n, n), bound, "%s: state in slot %u", what, s);
        test_le(test_rel_max(got, ref + s * n, n), bound, "%s: state in slot %u", what, s);
        for (uint32_t u = 0; u < p->units; u++) {
            uint64_t at = p->at[s * p->units + u];
            memcpy(now + at, p->before + at, p->elements * size);
        }
    }
    for (uint64_t i = 0; i < p->buf.bytes; i++) {
        if (now[i] != p->before[i]) fail_msg("%s: byte %" PRIu64 " of the states", what, i);
    }
}

static inline ebro_state_io seq_io(const struct eb_ref_plan *p, const struct seq_pool *pool) {
    ebro_state_io io = {.region = pool->region, .n_emit = p->n_emit};
    io.state_in = seq_i32(p->in, p->n_seqs);
    io.state_out = seq_i32(p->out, p->n_seqs);
    if (p->n_emit == 0) return io;
    io.emit_rows = seq_i32(p->emit_rows, p->n_emit);
    io.emit_slots = seq_i32(p->emit_slots, p->n_emit);
    return io;
}

/* A matrix of the plan's rows; those of the slack stay poisoned. */
static inline struct rig_mat seq_mat(const struct eb_ref_plan *p, const float *dense,
                                     uint64_t cols) {
    struct rig_mat m = rig_mat(eb_ref_rows(p) + p->slack, cols, p->padding), head = m;
    head.rows = eb_ref_rows(p);
    if (dense) rig_mat_put(&head, dense);
    return m;
}

/* The plan's rows, after slack and padding were looked at. */
static inline float *seq_mat_get(const struct eb_ref_plan *p, const struct rig_mat *m) {
    float *dense = rig_mat_get(m);
    const uint8_t *behind = (const uint8_t *)(dense + eb_ref_rows(p) * m->cols);
    for (uint64_t i = 0; i < p->slack * m->cols * 4; i++) {
        if (behind[i] != 0xff) fail_msg("a row behind the last one was written");
    }
    return dense;
}

#endif
