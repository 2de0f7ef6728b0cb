/* check.c: texts, bounds and overlap for check.h. Not here: what a single op demands. */
#include "ops/check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- texts ------------------------------------------------------------------------------ */

/* A small text that is cut, never overrun. */
struct text {
    char v[320];
    size_t n;
};

static void put(struct text *t, const char *s, size_t n) {
    size_t room = sizeof t->v - 1 - t->n;
    if (n > room) n = room;
    memcpy(t->v + t->n, s, n);
    t->n += n;
    t->v[t->n] = '\0';
}

static void put_str(struct text *t, const char *s) {
    put(t, s, strlen(s));
}

static void put_group(struct text *t, const struct eb_check *c) {
    if (c->group == NULL) return;
    put_str(t, c->group);
    if (c->index >= 0) {
        char number[16];
        snprintf(number, sizeof number, "[%" PRId32 "]", c->index);
        put_str(t, number);
    }
}

static void put_member(struct text *t, const struct eb_check *c, const char *name) {
    put_group(t, c);
    if (c->group != NULL && name[0] != '\0') put_str(t, ".");
    put_str(t, name);
}

static bool is_word(char ch) {
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
           ch == '_';
}

/* The source text of a condition with every "p->" replaced by the group's name. */
static void put_condition(struct text *t, const struct eb_check *c, const char *cond) {
    while (*cond != '\0') {
        size_t n = 0;
        while (is_word(cond[n])) n++;
        if (n == 0) {
            put(t, cond, 1);
            cond++;
        } else if (cond[n] == '-' && cond[n + 1] == '>') {
            put_group(t, c);
            if (c->group != NULL) put_str(t, ".");
            cond += n + 2;
        } else {
            put(t, cond, n);
            cond += n;
        }
    }
}

static int32_t fail_with(const struct eb_check *c, const struct text *cond, const char *figures) {
    return eb_fail(c->err, EBRO_INVALID, "%s: %s does not hold (%s)", eb_op_name(c->op), cond->v,
                   figures);
}

int32_t eb_check_fail(const struct eb_check *c, const char *cond, const char *fmt, ...) {
    struct text t = {.n = 0};
    put_condition(&t, c, cond);
    char figures[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(figures, sizeof figures, fmt, ap);
    va_end(ap);
    return fail_with(c, &t, figures);
}

/* `rest` follows the member's name: ".stride >= cols". */
static int32_t member_fail(const struct eb_check *c, const char *name, const char *rest,
                           const char *fmt, ...) EB_PRINTF(4, 5);

static int32_t member_fail(const struct eb_check *c, const char *name, const char *rest,
                           const char *fmt, ...) {
    struct text t = {.n = 0};
    put_member(&t, c, name);
    put_str(&t, rest);
    char figures[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(figures, sizeof figures, fmt, ap);
    va_end(ap);
    return fail_with(c, &t, figures);
}

/* ---- calls ------------------------------------------------------------------------------ */

int32_t eb_check_begin(struct eb_check *c, struct eb_stream *s, ebro_op op, const void *args,
                       size_t args_bytes, ebro_error *err) {
    *c = (struct eb_check){.s = s, .op = op, .err = err, .index = -1};
    EB_REQUIRE(c, s != NULL && s->device != NULL, "the stream is not open");
    int32_t st = eb_device_check(s->device, err);
    if (st != EBRO_OK) {
        eb_while(err, st, "calling %s", eb_op_name(op));
        return st;
    }
    EB_REQUIRE(c, args != NULL, "no arguments");
    size_t size;
    memcpy(&size, args, sizeof size); /* every argument struct starts with its size */
    EB_REQUIRE(c, size >= args_bytes, "size = %zu, args_bytes = %zu", size, args_bytes);
    return EBRO_OK;
}

struct eb_check eb_check_in(const struct eb_check *c, const char *group, int32_t index) {
    struct eb_check in = *c;
    in.group = group;
    in.index = index;
    return in;
}

int32_t eb_check_unsupported(const struct eb_check *c) {
    const struct ebro_device *d = c->s->device;
    return eb_fail(c->err, EBRO_UNSUPPORTED, "%s: device %s (backend %s) does not have this op",
                   eb_op_name(c->op), d->info.name, d->be->name);
}

int32_t eb_check_done(const struct eb_check *c, int32_t st) {
    st = eb_device_note(c->s->device, st);
    if (st != EBRO_OK)
        eb_while(c->err, st, "running %s on %s", eb_op_name(c->op), c->s->device->info.name);
    return st; /* eb_while hands back the text's status, which a careless backend may not have set
                */
}

/* ---- memory ----------------------------------------------------------------------------- */

/* *out = ((rows - 1) * stride + cols) * size, the bytes from the first element to the end of the
 * last; 0 where there is none. */
static bool extent(uint64_t rows, uint64_t stride, uint64_t cols, uint64_t size, uint64_t *out) {
    if (rows == 0 || cols == 0) {
        *out = 0;
        return true;
    }
    uint64_t v;
    return eb_mul_u64(rows - 1, stride, &v) && eb_add_u64(v, cols, &v) && eb_mul_u64(v, size, out);
}

/* bytes 0: nothing is touched, so any offset will do. ok: bytes was computed without overflow. */
static int32_t check_inside(const struct eb_check *c, const char *name, const ebro_mem *mem,
                            uint64_t offset, bool ok, uint64_t bytes) {
    uint64_t end = 0;
    if (!ok || !eb_add_u64(offset, bytes, &end))
        return member_fail(c, name, " inside its memory", "its size overflows 64 bits");
    if (bytes > 0 && end > mem->bytes)
        return member_fail(c, name, " inside its memory",
                           "bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64, offset, end, mem->bytes);
    return EBRO_OK;
}

static int32_t check_present(const struct eb_check *c, const char *name, const ebro_mem *mem) {
    if (mem == NULL) return member_fail(c, name, ".mem != NULL", "required memory is absent");
    return EBRO_OK;
}

static int32_t check_aligned(const struct eb_check *c, const char *name, uint64_t offset,
                             uint64_t size) {
    if (offset % size != 0)
        return member_fail(c, name, ".offset % element size == 0",
                           "offset = %" PRIu64 ", element size = %" PRIu64, offset, size);
    return EBRO_OK;
}

static int32_t check_dtype(const struct eb_check *c, const char *name, int32_t dtype,
                           uint32_t dtypes) {
    if (dtype >= 0 && dtype < 32 && (dtypes & EB_DTYPE(dtype)) != 0) return EBRO_OK;
    struct text allowed = {.n = 0};
    put_str(&allowed, ".dtype in {");
    for (int32_t t = 0, n = 0; t < 32; t++) {
        if ((dtypes & EB_DTYPE(t)) == 0) continue;
        if (n++ > 0) put_str(&allowed, ", ");
        put_str(&allowed, eb_dtype_name(t));
    }
    put_str(&allowed, "}");
    return member_fail(c, name, allowed.v, "dtype = %" PRId32 ", %s", dtype, eb_dtype_name(dtype));
}

int32_t eb_check_mat_batch(const struct eb_check *c, const char *name, const ebro_mat *m,
                           uint64_t rows, uint64_t cols, uint32_t dtypes, uint64_t n_batch,
                           uint64_t batch_elements) {
    EB_TRY(check_present(c, name, m->mem));
    EB_TRY(check_dtype(c, name, m->dtype, dtypes));
    uint64_t size = eb_dtype_size(m->dtype);
    EB_TRY(check_aligned(c, name, m->offset, size));
    if (m->stride < cols)
        return member_fail(c, name, ".stride >= columns",
                           "stride = %" PRIu64 ", columns = %" PRIu64, m->stride, cols);
    uint64_t one, bytes;
    bool ok = extent(rows, m->stride, cols, 1, &one) &&
              extent(rows == 0 ? 0 : n_batch, batch_elements, one, size, &bytes);
    return check_inside(c, name, m->mem, m->offset, ok, ok ? bytes : 0);
}

int32_t eb_check_mat(const struct eb_check *c, const char *name, const ebro_mat *m, uint64_t rows,
                     uint64_t cols, uint32_t dtypes) {
    return eb_check_mat_batch(c, name, m, rows, cols, dtypes, 1, 0);
}

int32_t eb_check_vec(const struct eb_check *c, const char *name, const ebro_vec *v, uint64_t n) {
    EB_TRY(check_present(c, name, v->mem));
    EB_TRY(check_dtype(c, name, v->dtype, EB_FLOATS));
    uint64_t size = eb_dtype_size(v->dtype), bytes = 0;
    EB_TRY(check_aligned(c, name, v->offset, size));
    bool ok = eb_mul_u64(n, size, &bytes);
    return check_inside(c, name, v->mem, v->offset, ok, bytes);
}

int32_t eb_check_array(const struct eb_check *c, const char *name, ebro_span span, uint64_t n,
                       uint64_t element) {
    EB_TRY(check_present(c, name, span.mem));
    EB_TRY(check_aligned(c, name, span.offset, element < 8 ? element : 8));
    uint64_t bytes = 0;
    bool ok = eb_mul_u64(n, element, &bytes);
    return check_inside(c, name, span.mem, span.offset, ok, bytes);
}

static int32_t check_mxfp4(const struct eb_check *c, const char *name, const ebro_weight *w,
                           uint64_t n_batch) {
    if (w->cols % EBRO_MX_GROUP != 0)
        return member_fail(c, name, ".cols % 32 == 0 for mxfp4", "cols = %" PRIu32, w->cols);
    if (w->transposed)
        return member_fail(c, name, ".transposed == 0 for mxfp4", "transposed = %" PRId32,
                           w->transposed);
    if (n_batch != 1)
        return member_fail(c, name, " not batched for mxfp4", "n_batch = %" PRIu64, n_batch);
    if (w->stride != w->cols)
        return member_fail(c, name, ".stride == cols for mxfp4",
                           "stride = %" PRIu64 ", cols = %" PRIu32, w->stride, w->cols);
    uint64_t elements = (uint64_t)w->rows * w->cols;
    EB_TRY(check_inside(c, name, w->mem, w->offset, true, elements / 2));
    if (w->scale_mem == NULL)
        return member_fail(c, name, ".scale_mem != NULL for mxfp4", "required memory is absent");
    uint64_t bytes = elements / EBRO_MX_GROUP, end = 0;
    if (!eb_add_u64(w->scale_offset, bytes, &end) || end > w->scale_mem->bytes)
        return member_fail(c, name, " scales inside scale_mem",
                           "%" PRIu64 " bytes at %" PRIu64 " of %" PRIu64, bytes, w->scale_offset,
                           w->scale_mem->bytes);
    return EBRO_OK;
}

int32_t eb_check_weight(const struct eb_check *c, const char *name, const ebro_weight *w,
                        uint32_t dtypes, uint64_t n_batch, uint64_t batch_bytes) {
    EB_TRY(check_present(c, name, w->mem));
    EB_TRY(check_dtype(c, name, w->dtype, dtypes));
    if (w->rows == 0 || w->cols == 0)
        return member_fail(c, name, ".rows > 0 && .cols > 0", "rows = %" PRIu32 ", cols = %" PRIu32,
                           w->rows, w->cols);
    if (w->dtype == EBRO_MXFP4) return check_mxfp4(c, name, w, n_batch);

    uint64_t size = eb_dtype_size(w->dtype);
    EB_TRY(check_aligned(c, name, w->offset, size));
    if (w->stride < w->cols)
        return member_fail(c, name, ".stride >= cols", "stride = %" PRIu64 ", cols = %" PRIu32,
                           w->stride, w->cols);
    if (n_batch > 1 && batch_bytes % size != 0)
        return member_fail(c, name, " batch bytes % element size == 0",
                           "w_batch_bytes = %" PRIu64 ", element size = %" PRIu64, batch_bytes,
                           size);
    uint64_t one, bytes = 0;
    bool ok = extent(w->rows, w->stride, w->cols, size, &one) &&
              extent(n_batch, batch_bytes, one, 1, &bytes);
    return check_inside(c, name, w->mem, w->offset, ok, bytes);
}

int32_t eb_check_room(const struct eb_check *c, const char *name, ebro_span span, uint64_t need) {
    if (need == 0) return EBRO_OK;
    EB_TRY(check_present(c, name, span.mem));
    /* Backends lay numbers of up to 8 bytes out in it. */
    EB_TRY(check_aligned(c, name, span.offset, 8));
    uint64_t have = span.offset < span.mem->bytes ? span.mem->bytes - span.offset : 0;
    if (have < need)
        return member_fail(c, name, " as large as eb_op_scratch says",
                           "%" PRIu64 " bytes wanted, %" PRIu64 " there", need, have);
    return EBRO_OK;
}

int32_t eb_check_scratch(const struct eb_check *c, const char *name, ebro_span span,
                         const void *args) {
    return eb_check_room(c, name, span, eb_op_scratch(c->s->device, c->op, args));
}

/* ---- overlap ---------------------------------------------------------------------------- */

struct eb_strided eb_mat_bytes(const ebro_mat *m, uint64_t rows, uint64_t cols) {
    uint64_t size = eb_dtype_size(m->dtype);
    /* One row has no stride; giving it one that cannot overflow keeps the arithmetic below sound.
     */
    return (struct eb_strided){.mem = m->mem,
                               .offset = m->offset,
                               .stride = rows > 1 ? m->stride * size : cols * size,
                               .row_bytes = cols * size,
                               .n = rows};
}

static uint64_t strided_end(const struct eb_strided *a) {
    return a->n == 0 ? a->offset : a->offset + (a->n - 1) * a->stride + a->row_bytes;
}

bool eb_strided_overlap(const struct eb_strided *a, const struct eb_strided *b) {
    if (a->mem != b->mem || a->n == 0 || b->n == 0 || a->row_bytes == 0 || b->row_bytes == 0)
        return false;
    if (strided_end(a) <= b->offset || strided_end(b) <= a->offset) return false;
    if (a->stride != b->stride) return true;
    if (b->offset < a->offset) {
        const struct eb_strided *t = a;
        a = b;
        b = t;
    }
    /* b's first row starts `part` bytes into a's row `row`: it may meet that row and the next.
     * Later rows of b repeat the pattern further down, earlier ones do not exist. */
    uint64_t distance = b->offset - a->offset;
    uint64_t row = distance / a->stride, part = distance % a->stride;
    if (row < a->n && part < a->row_bytes) return true;
    return row + 1 < a->n && a->stride - part < b->row_bytes;
}

int32_t eb_check_apart(const struct eb_check *c, const char *out_name, const struct eb_strided *out,
                       const char *in_name, const struct eb_strided *in) {
    if (!eb_strided_overlap(out, in)) return EBRO_OK;
    struct text t = {.n = 0};
    put_str(&t, out_name);
    put_str(&t, " apart from ");
    put_str(&t, in_name);
    char figures[160];
    snprintf(figures, sizeof figures,
             "bytes %" PRIu64 " to %" PRIu64 " and %" PRIu64 " to %" PRIu64 " of one memory",
             out->offset, strided_end(out), in->offset, strided_end(in));
    return fail_with(c, &t, figures);
}

int32_t eb_check_in_place(const struct eb_check *c, const char *out_name,
                          const struct eb_strided *out, const char *in_name,
                          const struct eb_strided *in) {
    if (out->mem == in->mem && out->offset == in->offset && out->stride == in->stride &&
        out->row_bytes == in->row_bytes)
        return EBRO_OK;
    return eb_check_apart(c, out_name, out, in_name, in);
}

/* ---- sequences -------------------------------------------------------------------------- */

int32_t eb_check_rows(const struct eb_check *c, const ebro_rows *rows) {
    struct eb_check in = eb_check_in(c, "rows", -1);
    EB_REQUIRE(&in, rows->n_rows <= INT32_MAX, "n_rows = %" PRIu32, rows->n_rows);
    EB_REQUIRE(&in, rows->n_rows == 0 || rows->n_seqs > 0, "n_rows = %" PRIu32 ", n_seqs = 0",
               rows->n_rows);
    EB_REQUIRE(&in, rows->n_rows == 0 || rows->max_rows > 0, "n_rows = %" PRIu32 ", max_rows = 0",
               rows->n_rows);
    EB_REQUIRE(&in, rows->max_rows <= rows->n_rows, "max_rows = %" PRIu32 ", n_rows = %" PRIu32,
               rows->max_rows, rows->n_rows);
    return eb_check_array(&in, "row_offsets", rows->row_offsets, (uint64_t)rows->n_seqs + 1, 4);
}

int32_t eb_check_emit(const struct eb_check *c, const char *name, ebro_span span, uint32_t n_emit,
                      const ebro_rows *rows) {
    if (n_emit == 0) return EBRO_OK;
    if (n_emit > rows->n_rows) /* no two emitted rows are alike */
        return member_fail(c, "n_emit", " <= rows.n_rows",
                           "n_emit = %" PRIu32 ", rows.n_rows = %" PRIu32, n_emit, rows->n_rows);
    return eb_check_array(c, name, span, n_emit, 4);
}

static int32_t check_region(const struct eb_check *c, const ebro_region *r, const ebro_rows *rows,
                            uint64_t units, uint64_t unit_elements, uint32_t dtypes) {
    EB_TRY(check_dtype(c, "", r->dtype, dtypes));
    uint64_t size = eb_dtype_size(r->dtype), unit_needs = 0;
    EB_REQUIRE(c, eb_mul_u64(unit_elements, size, &unit_needs), "%" PRIu64 " elements a unit",
               unit_elements);
    EB_REQUIRE(c, r->units_per_block > 0, "units_per_block = 0");
    EB_REQUIRE(c, r->unit_bytes >= unit_needs, "unit_bytes = %" PRIu64 ", unit_needs = %" PRIu64,
               r->unit_bytes, unit_needs);
    EB_REQUIRE(c, r->unit_bytes % size == 0, "unit_bytes = %" PRIu64 ", size = %" PRIu64,
               r->unit_bytes, size);
    EB_REQUIRE(c, r->block_offset % size == 0, "block_offset = %" PRIu64 ", size = %" PRIu64,
               r->block_offset, size);
    uint64_t n_blocks = ((uint64_t)r->first_unit + units - 1) / r->units_per_block + 1;
    EB_REQUIRE(c, r->table_stride >= r->first_block + n_blocks,
               "table_stride = %" PRIu32 ", first_block = %" PRIu32 ", n_blocks = %" PRIu64
               ": %" PRIu64 " units from unit %" PRIu32 " on, %" PRIu32 " a block",
               r->table_stride, r->first_block, n_blocks, units, r->first_unit, r->units_per_block);
    /* How many slots there are is the caller's knowledge: one must be there. */
    return eb_check_array(c, "table", r->table, rows->n_seqs > 0 ? r->table_stride : 0, 8);
}

int32_t eb_check_state(const struct eb_check *c, const char *group, const ebro_state_io *io,
                       const ebro_rows *rows, uint64_t units, uint64_t unit_elements,
                       uint32_t dtypes) {
    struct eb_check in = eb_check_in(c, group, -1);
    EB_TRY(eb_check_array(&in, "state_in", io->state_in, rows->n_seqs, 4));
    EB_TRY(eb_check_array(&in, "state_out", io->state_out, rows->n_seqs, 4));
    EB_TRY(eb_check_emit(&in, "emit_rows", io->emit_rows, io->n_emit, rows));
    EB_TRY(eb_check_emit(&in, "emit_slots", io->emit_slots, io->n_emit, rows));
    struct text region = {.n = 0};
    put_member(&region, &in, "region");
    in = eb_check_in(c, region.v, -1);
    return check_region(&in, &io->region, rows, units, unit_elements, dtypes);
}

int32_t eb_check_pages(const struct eb_check *c, const ebro_pages *pages, const ebro_rows *rows,
                       uint64_t row_elements) {
    struct eb_check in = eb_check_in(c, "pages", -1);
    EB_TRY(check_dtype(&in, "", pages->dtype, EB_FLOATS));
    uint64_t size = eb_dtype_size(pages->dtype);
    EB_REQUIRE(&in, pages->page_tokens > 0, "page_tokens = 0");
    EB_REQUIRE(&in, pages->row_stride >= row_elements,
               "row_stride = %" PRIu32 ", row_elements = %" PRIu64, pages->row_stride,
               row_elements);
    EB_REQUIRE(&in, pages->layer_offset % size == 0, "layer_offset = %" PRIu64 ", size = %" PRIu64,
               pages->layer_offset, size);
    EB_REQUIRE(&in, rows->n_rows == 0 || pages->max_context > 0,
               "max_context = 0, rows.n_rows = %" PRIu32, rows->n_rows);
    uint64_t n_tokens = (uint64_t)pages->table_stride * pages->page_tokens;
    EB_REQUIRE(&in, pages->max_context <= n_tokens,
               "max_context = %" PRIu32 ", n_tokens = table_stride * page_tokens = %" PRIu64,
               pages->max_context, n_tokens);
    uint64_t n_pages = (uint64_t)rows->n_seqs * pages->table_stride;
    EB_TRY(eb_check_array(&in, "table", pages->table, n_pages, 8));
    return eb_check_array(&in, "context", pages->context, rows->n_seqs, 4);
}
