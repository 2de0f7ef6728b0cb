/* rows.c: state_copy and rows_copy, the memory manager's hands. */
#include <inttypes.h>

#include "ops/check.h"

int32_t eb_op_state_copy(struct eb_stream *s, const ebro_state_copy_args *a, ebro_error *err) {
    struct eb_check c;
    EB_TRY(eb_check_begin(&c, s, EBRO_OP_STATE_COPY, a, sizeof *a, err));
    EB_TRY(eb_check_array(&c, "src", a->src, a->n, 8));
    EB_TRY(eb_check_array(&c, "dst", a->dst, a->n, 8));
    if (a->n == 0 || a->bytes == 0) return EBRO_OK;
    return EB_DISPATCH(&c, state_copy, a);
}

/* Rows of one side. With a list the row numbers are the device's: one row must fit. */
static int32_t check_side(const struct eb_check *call, const char *side, ebro_span span,
                          uint64_t stride, uint64_t row_bytes, uint64_t n_rows) {
    struct eb_check in = eb_check_in(call, side, -1), *c = &in;
    EB_REQUIRE(call, stride >= row_bytes, "%s_stride_bytes = %" PRIu64 ", row_bytes = %" PRIu64,
               side, stride, row_bytes);
    uint64_t bytes = 0;
    bool fits = n_rows == 0 ||
                (eb_mul_u64(n_rows - 1, stride, &bytes) && eb_add_u64(bytes, row_bytes, &bytes));
    EB_REQUIRE(c, fits, "%" PRIu64 " rows overflow 64 bits", n_rows);
    return eb_check_array(c, "", span, bytes, 1);
}

int32_t eb_op_rows_copy(struct eb_stream *s, const ebro_rows_copy_args *a, ebro_error *err) {
    struct eb_check c;
    EB_TRY(eb_check_begin(&c, s, EBRO_OP_ROWS_COPY, a, sizeof *a, err));
    bool src_listed = a->src_rows.mem != NULL, dst_listed = a->dst_rows.mem != NULL;
    uint64_t one = a->n > 0 ? 1 : 0;
    EB_TRY(
        check_side(&c, "src", a->src, a->src_stride_bytes, a->row_bytes, src_listed ? one : a->n));
    EB_TRY(
        check_side(&c, "dst", a->dst, a->dst_stride_bytes, a->row_bytes, dst_listed ? one : a->n));
    if (src_listed) EB_TRY(eb_check_array(&c, "src_rows", a->src_rows, a->n, 4));
    if (dst_listed) EB_TRY(eb_check_array(&c, "dst_rows", a->dst_rows, a->n, 4));
    if (!src_listed && !dst_listed) {
        struct eb_strided src = {a->src.mem, a->src.offset, a->src_stride_bytes, a->row_bytes,
                                 a->n};
        struct eb_strided dst = {a->dst.mem, a->dst.offset, a->dst_stride_bytes, a->row_bytes,
                                 a->n};
        EB_TRY(eb_check_apart(&c, "dst", &dst, "src", &src));
    }
    if (a->n == 0 || a->row_bytes == 0) return EBRO_OK;
    return EB_DISPATCH(&c, rows_copy, a);
}
