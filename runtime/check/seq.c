/* seq.c: see seq.h. */
#include "check/seq.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- plans ------------------------------------------------------------------------------ */

struct eb_ref_plan eb_seq_plan_one(uint32_t n, int32_t in, int32_t out) {
    return (struct eb_ref_plan){.n_seqs = 1, .offsets = {0, (int32_t)n}, .in = {in}, .out = {out}};
}

static void add_emits(struct eb_trial *t, struct eb_ref_plan *p, int32_t next) {
    uint32_t n_rows = eb_ref_rows(p), wanted = eb_trial_below(t, 7);
    for (uint32_t i = 0; i < wanted && n_rows > 0; i++) {
        int32_t row = (int32_t)eb_trial_below(t, n_rows);
        if (i % 2 == 0) row = p->offsets[1 + eb_trial_below(t, p->n_seqs)] - 1;
        bool again = row < 0;
        for (uint32_t k = 0; k < p->n_emit; k++) again = again || p->emit_rows[k] == row;
        if (again) continue;
        p->emit_rows[p->n_emit] = row;
        p->emit_slots[p->n_emit++] = next++;
    }
}

struct eb_ref_plan eb_seq_plan_random(struct eb_trial *t, uint32_t max_length) {
    static const uint32_t lengths[] = {0,  0,  1,  1,  2,  3,  4,  5,  15, 16,
                                       17, 31, 32, 33, 47, 63, 64, 65, 66, 100};
    struct eb_ref_plan p = {.n_seqs = 2 + eb_trial_below(t, 5)};
    int32_t next = EB_SEQ_SHARED;
    for (uint32_t s = 0; s < p.n_seqs; s++) {
        uint32_t n = lengths[eb_trial_below(t, sizeof lengths / sizeof lengths[0])];
        /* Never all of them empty: there would be nothing to look at. */
        if (s == 0) n = 1 + eb_trial_below(t, max_length);
        p.offsets[s + 1] = p.offsets[s] + (int32_t)(n % (max_length + 1));
        p.in[s] = (int32_t)eb_trial_below(t, EB_SEQ_SHARED + 1) - 1;
        p.out[s] = s > 0 && eb_trial_below(t, 5) == 0 ? -1 : next++;
        if (p.out[s] >= 0 && eb_trial_below(t, 3) == 0) p.in[s] = p.out[s];
    }
    add_emits(t, &p, next);
    p.padding = eb_trial_below(t, 3) * 5;
    p.slack = eb_trial_below(t, 2) * 3;
    return p;
}

void eb_seq_plan_words(const struct eb_ref_plan *p, char *out, size_t bytes) {
    snprintf(out, bytes, "%u sequence%s, %u rows, %u emitted", p->n_seqs, p->n_seqs == 1 ? "" : "s",
             eb_ref_rows(p), p->n_emit);
}

ebro_rows eb_seq_rows(struct eb_trial *t, const struct eb_ref_plan *p) {
    ebro_rows r = {.row_offsets = eb_trial_i32(t, p->offsets, p->n_seqs + 1), .n_seqs = p->n_seqs};
    r.n_rows = eb_ref_rows(p) + p->slack;
    for (uint32_t s = 0; s < p->n_seqs; s++) {
        uint32_t n = (uint32_t)(p->offsets[s + 1] - p->offsets[s]);
        if (n > r.max_rows) r.max_rows = n;
    }
    r.max_rows += p->slack;
    return r;
}

/* Fills the plan's rows of a matrix that has slack rows too. */
static void put_rows(struct eb_trial *t, const struct eb_trial_mat *m, const float *dense,
                     uint32_t rows) {
    uint8_t *to = eb_trial_before(t, &m->buf);
    for (uint64_t i = 0; to != NULL && dense != NULL && i < rows; i++)
        memcpy(to + i * m->m.stride * 4, dense + i * m->cols, (size_t)m->cols * 4);
}

struct eb_trial_mat eb_seq_in(struct eb_trial *t, const struct eb_ref_plan *p, const float *dense,
                              uint64_t cols) {
    uint32_t n = eb_ref_rows(p);
    struct eb_trial_mat m = eb_trial_mat(t, NULL, n + p->slack, cols, p->padding);
    put_rows(t, &m, dense, n);
    return m;
}

struct eb_trial_mat eb_seq_out(struct eb_trial *t, const struct eb_ref_plan *p, uint64_t cols) {
    return eb_trial_out(t, NULL, eb_ref_rows(p) + p->slack, cols, p->padding);
}

float *eb_seq_get(struct eb_trial *t, const struct eb_ref_plan *p, const struct eb_trial_mat *m) {
    float *dense = eb_trial_get(t, m);
    if (dense == NULL) return NULL;
    const uint8_t *behind = (const uint8_t *)(dense + eb_ref_rows(p) * m->cols);
    for (uint64_t i = 0; i < p->slack * m->cols * 4; i++) {
        if (behind[i] == 0xff) continue;
        eb_trial_fail(t, "wrote a row behind the last one");
        break;
    }
    return dense;
}

/* ---- states ----------------------------------------------------------------------------- */

struct eb_seq_layout eb_seq_layout_random(struct eb_trial *t, uint32_t units) {
    return (struct eb_seq_layout){.units_per_block = 1 + eb_trial_below(t, units + 1),
                                  .first_unit = eb_trial_below(t, 4),
                                  .first_block = eb_trial_below(t, 3),
                                  .gap = eb_trial_below(t, 2) * 6};
}

static uint64_t put_element(int32_t dtype, double v, uint8_t *out) {
    float x = (float)v;
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

void eb_seq_pool_put(struct eb_trial *t, struct eb_seq_pool *p, uint32_t slot, const double *v) {
    uint8_t *all = eb_trial_before(t, &p->buf);
    for (uint64_t u = 0; all != NULL && u < p->units; u++) {
        uint8_t *to = all + p->at[slot * p->units + u];
        for (uint64_t e = 0; e < p->elements; e++)
            to += put_element(p->region.dtype, v[u * p->elements + e], to);
    }
}

/* Where each unit of each slot lies; the table of block addresses. */
static void lay_out(struct eb_seq_pool *p, struct eb_seq_layout l, const uint32_t *order,
                    uint32_t n_blocks, uint64_t block_bytes, uint64_t *table) {
    uint32_t stride = p->region.table_stride;
    for (uint32_t s = 0; s < p->n_slots; s++) {
        for (uint32_t u = 0; u < p->units; u++) {
            uint32_t at = l.first_unit + u, b = at / l.units_per_block;
            uint64_t block = order[s * n_blocks + b] * block_bytes;
            table[s * stride + l.first_block + b] = eb_trial_address(&p->buf) + block;
            p->at[s * p->units + u] =
                block + p->region.block_offset + at % l.units_per_block * p->region.unit_bytes;
        }
    }
}

struct eb_seq_pool eb_seq_pool(struct eb_trial *t, uint32_t n_slots, uint32_t units,
                               uint64_t elements, int32_t dtype, struct eb_seq_layout l,
                               double **values) {
    struct eb_seq_pool p = {.n_slots = n_slots, .units = units, .elements = elements};
    uint64_t size = eb_dtype_size(dtype), unit_bytes = (elements + l.gap) * size;
    uint64_t lead = l.gap * size, block_bytes = lead + l.units_per_block * unit_bytes;
    uint32_t n_blocks = (l.first_unit + units - 1) / l.units_per_block + 1;
    uint32_t stride = l.first_block + n_blocks + 1;
    uint64_t n = units * elements;
    uint32_t *order = eb_trial_shuffled(t, n_slots * n_blocks);
    uint64_t *table = eb_trial_host(t, (uint64_t)n_slots * stride, sizeof *table);
    double *v = eb_trial_host(t, n_slots * n, sizeof *v);
    p.buf = eb_trial_room(t, n_slots * n_blocks * block_bytes, EB_TRIAL_OUT);
    p.at = eb_trial_host(t, (uint64_t)n_slots * units, sizeof *p.at);
    p.region = (ebro_region){.table_stride = stride,
                             .first_block = l.first_block,
                             .first_unit = l.first_unit,
                             .units_per_block = l.units_per_block,
                             .block_offset = lead,
                             .unit_bytes = unit_bytes,
                             .dtype = dtype};
    *values = v;
    if (eb_trial_over(t)) return p;
    memset(table, 0xff, (size_t)n_slots * stride * sizeof *table);
    lay_out(&p, l, order, n_blocks, block_bytes, table);
    p.region.table = eb_trial_data(t, table, (uint64_t)n_slots * stride * sizeof *table).span;
    for (uint64_t i = 0; i < n_slots * n; i++)
        v[i] = (double)eb_ref_bf16((double)eb_trial_gauss(t));
    for (uint32_t s = 0; s < n_slots; s++) eb_seq_pool_put(t, &p, s, v + s * n);
    return p;
}

float *eb_seq_pool_get(struct eb_trial *t, const struct eb_seq_pool *p, uint32_t slot) {
    uint64_t n = p->units * p->elements, size = eb_dtype_size(p->region.dtype);
    float *v = eb_trial_host(t, n, sizeof *v);
    const uint8_t *all = eb_trial_after(t, &p->buf);
    for (uint64_t i = 0; v != NULL && all != NULL && i < n; i++) {
        const uint8_t *from = all + p->at[slot * p->units + i / p->elements];
        v[i] = (float)eb_ref_element(p->region.dtype, from + i % p->elements * size);
    }
    return v;
}

ebro_state_io eb_seq_io(struct eb_trial *t, const struct eb_ref_plan *p,
                        const struct eb_seq_pool *pool) {
    ebro_state_io io = {.region = pool->region, .n_emit = p->n_emit};
    io.state_in = eb_trial_i32(t, p->in, p->n_seqs);
    io.state_out = eb_trial_i32(t, p->out, p->n_seqs);
    if (p->n_emit == 0) return io;
    io.emit_rows = eb_trial_i32(t, p->emit_rows, p->n_emit);
    io.emit_slots = eb_trial_i32(t, p->emit_slots, p->n_emit);
    return io;
}

static bool writes(const struct eb_ref_plan *p, uint32_t slot) {
    bool any = false;
    for (uint32_t s = 0; s < p->n_seqs; s++) any = any || p->out[s] == (int32_t)slot;
    for (uint32_t i = 0; i < p->n_emit; i++) any = any || p->emit_slots[i] == (int32_t)slot;
    return any;
}

void eb_seq_pool_check(struct eb_trial *t, const struct eb_seq_pool *p,
                       const struct eb_ref_plan *plan, const double *ref, struct eb_budget b) {
    uint64_t n = p->units * p->elements, size = eb_dtype_size(p->region.dtype), changed = 0;
    uint8_t *rest = eb_trial_host(t, p->buf.bytes, 1);
    const uint8_t *before = eb_trial_before(t, &p->buf), *after = eb_trial_after(t, &p->buf);
    if (rest == NULL || before == NULL || after == NULL) return;
    memcpy(rest, after, (size_t)p->buf.bytes);
    for (uint32_t s = 0; s < p->n_slots; s++) {
        if (!writes(plan, s)) continue;
        char what[48];
        const float *got = eb_seq_pool_get(t, p, s);
        if (got == NULL) return;
        snprintf(what, sizeof what, "state in slot %" PRIu32, s);
        eb_trial_near(t, got, ref + s * n, n, b, what);
        for (uint32_t u = 0; u < p->units; u++) {
            uint64_t at = p->at[s * p->units + u];
            memcpy(rest + at, before + at, (size_t)(p->elements * size));
        }
    }
    for (uint64_t i = 0; i < p->buf.bytes; i++) changed += rest[i] != before[i];
    if (changed > 0)
        eb_trial_fail(t, "changed %" PRIu64 " bytes of states that are not its own", changed);
}

/* ---- the cache -------------------------------------------------------------------------- */

struct eb_seq_cache eb_seq_cache(struct eb_trial *t, uint32_t n_seqs, uint32_t first,
                                 uint32_t capacity, uint32_t width, uint32_t page_tokens,
                                 int32_t dtype, enum eb_trial_role role) {
    struct eb_seq_cache c = {.n_seqs = n_seqs, .capacity = capacity, .width = width};
    uint64_t size = eb_dtype_size(dtype), row_bytes = (width + eb_trial_below(t, 2) * 8) * size;
    uint64_t lead = eb_trial_below(t, 3) * 24 * size; /* other layers */
    uint64_t page_bytes = lead + page_tokens * row_bytes + eb_trial_below(t, 2) * 16 * size;
    uint32_t begin = first / page_tokens, end = (first + capacity - 1) / page_tokens + 1;
    uint32_t n_pages = end - begin, stride = end + eb_trial_below(t, 3);
    uint32_t *order = eb_trial_shuffled(t, n_seqs * n_pages);
    uint64_t *table = eb_trial_host(t, (uint64_t)n_seqs * stride, sizeof *table);
    c.buf = eb_trial_room(t, n_seqs * n_pages * page_bytes, role);
    c.at = eb_trial_host(t, (uint64_t)n_seqs * capacity, sizeof *c.at);
    c.v = eb_trial_host(t, (uint64_t)n_seqs * capacity * width, sizeof *c.v);
    if (eb_trial_over(t)) return c;
    memset(table, 0xff, (size_t)n_seqs * stride * sizeof *table);
    for (uint32_t s = 0; s < n_seqs; s++) {
        for (uint32_t i = 0; i < n_pages; i++)
            table[s * stride + begin + i] =
                eb_trial_address(&c.buf) + order[s * n_pages + i] * page_bytes;
        for (uint32_t k = 0; k < capacity; k++) {
            uint64_t page = order[s * n_pages + (first + k) / page_tokens - begin] * page_bytes;
            c.at[s * capacity + k] = page + lead + (first + k) % page_tokens * row_bytes;
        }
    }
    c.pages = (ebro_pages){
        .table = eb_trial_data(t, table, (uint64_t)n_seqs * stride * sizeof *table).span,
        .table_stride = stride,
        .page_tokens = page_tokens,
        .layer_offset = lead,
        .row_stride = (uint32_t)(row_bytes / size),
        .dtype = dtype,
        .max_context = first + capacity};
    return c;
}

void eb_seq_cache_fill(struct eb_trial *t, struct eb_seq_cache *c, uint32_t seq, uint32_t n) {
    uint8_t *all = eb_trial_before(t, &c->buf);
    uint64_t size = eb_dtype_size(c->pages.dtype);
    for (uint64_t k = 0; all != NULL && k < n; k++) {
        uint64_t row = (uint64_t)seq * c->capacity + k;
        for (uint64_t i = 0; i < c->width; i++)
            c->v[row * c->width + i] =
                eb_trial_element(t, c->pages.dtype, all + c->at[row] + i * size);
    }
}

void eb_seq_cache_context(struct eb_trial *t, struct eb_seq_cache *c, const int32_t *context) {
    c->pages.context = eb_trial_i32(t, context, c->n_seqs);
}
