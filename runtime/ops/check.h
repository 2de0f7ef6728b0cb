/* check.h: the require idiom of runtime/ops, and the checks that ops share. Host numbers alone are
 * checked, with overflow-safe 64-bit arithmetic; what lies in device memory is never read. An error
 * names the op, the condition that does not hold and the figures:
 *     "kda_prep: gate.head_dim % 8 == 0 does not hold (head_dim = 12)"
 * Every function returns EBRO_OK or EBRO_INVALID with that text, unless it says otherwise. */
#ifndef EB_CHECK_H
#define EB_CHECK_H

#include <stdbool.h>

#include "ops/ops.h"

/* One call under validation; lives on the caller's stack. */
struct eb_check {
    struct eb_stream *s;
    ebro_op op;
    ebro_error *err;
    const char *group; /* the member in question: "gate", "x"; NULL: the args themselves */
    int32_t index;     /* its element where it is an array, else -1 */
};

/* Returns from the calling function unless cond holds. In the text "p->" reads as the group that c
 * stands in, so conditions are written as code and read as the argument's name. */
#define EB_REQUIRE(c, cond, ...)                                    \
    do {                                                            \
        if (!(cond)) return eb_check_fail((c), #cond, __VA_ARGS__); \
    } while (0)

/* Hands an error up. */
#define EB_TRY(call)                            \
    do {                                        \
        int32_t try_st_ = (call);               \
        if (try_st_ != EBRO_OK) return try_st_; \
    } while (0)

/* Runs entry `op` of the backend's table for `a`, or returns EBRO_UNSUPPORTED where it has none. */
#define EB_DISPATCH(c, op, a)       \
    ((c)->s->device->be->op == NULL \
         ? eb_check_unsupported(c)  \
         : eb_check_done((c), (c)->s->device->be->op((c)->s->impl, (a), (c)->err)))

/* Device loss first (EBRO_DEVICE_LOST), then args present and as large as this build knows. */
int32_t eb_check_begin(struct eb_check *c, struct eb_stream *s, ebro_op op, const void *args,
                       size_t args_bytes, ebro_error *err);
/* c, seen from one of its members. */
struct eb_check eb_check_in(const struct eb_check *c, const char *group, int32_t index);
int32_t eb_check_fail(const struct eb_check *c, const char *cond, const char *fmt, ...)
    EB_PRINTF(3, 4);
/* EBRO_UNSUPPORTED, naming op and device. */
int32_t eb_check_unsupported(const struct eb_check *c);
/* Notes device loss, adds the op's name to a failure, returns st. */
int32_t eb_check_done(const struct eb_check *c, int32_t st);

/* ---- memory. `name` is the member inside c's group; "" where the group itself is meant. - */

/* Sets of dtypes. */
#define EB_DTYPE(t) (1u << (t))
enum {
    EB_ONLY_F32 = EB_DTYPE(EBRO_F32),
    EB_ONLY_I32 = EB_DTYPE(EBRO_I32),
    EB_FLOATS = EB_DTYPE(EBRO_F32) | EB_DTYPE(EBRO_F16) | EB_DTYPE(EBRO_BF16),
    EB_WEIGHTS = EB_FLOATS | EB_DTYPE(EBRO_MXFP4)
};

/* Present, of an allowed dtype, aligned, rows not overlapping, inside its memory. */
int32_t eb_check_mat(const struct eb_check *c, const char *name, const ebro_mat *m, uint64_t rows,
                     uint64_t cols, uint32_t dtypes);
/* The same for n_batch matrices that start batch_elements apart. */
int32_t eb_check_mat_batch(const struct eb_check *c, const char *name, const ebro_mat *m,
                           uint64_t rows, uint64_t cols, uint32_t dtypes, uint64_t n_batch,
                           uint64_t batch_elements);
int32_t eb_check_vec(const struct eb_check *c, const char *name, const ebro_vec *v, uint64_t n);
/* n elements of `element` bytes, aligned to their size (at most 8). */
int32_t eb_check_array(const struct eb_check *c, const char *name, ebro_span span, uint64_t n,
                       uint64_t element);
/* n_batch weights that start batch_bytes apart; MXFP4 with its scales, not transposed. */
int32_t eb_check_weight(const struct eb_check *c, const char *name, const ebro_weight *w,
                        uint32_t dtypes, uint64_t n_batch, uint64_t batch_bytes);
/* At least `need` bytes for a backend's own use; may be absent where that is 0. */
int32_t eb_check_room(const struct eb_check *c, const char *name, ebro_span span, uint64_t need);
/* The same with what eb_op_scratch says for `args`. */
int32_t eb_check_scratch(const struct eb_check *c, const char *name, ebro_span span,
                         const void *args);

/* ---- overlap. Both sides must have passed their own check. ------------------------------ */

/* Rows of bytes in a memory. */
struct eb_strided {
    const ebro_mem *mem;
    uint64_t offset, stride, row_bytes, n;
};
struct eb_strided eb_mat_bytes(const ebro_mat *m, uint64_t rows, uint64_t cols);
/* True where a byte belongs to both. Exact for equal strides (columns of one matrix may lie side by
 * side); for others the ranges from first to last byte are compared. */
bool eb_strided_overlap(const struct eb_strided *a, const struct eb_strided *b);
/* `out` shares no byte with `in`. The names may be groups of their own: "out[1]". */
int32_t eb_check_apart(const struct eb_check *c, const char *out_name, const struct eb_strided *out,
                       const char *in_name, const struct eb_strided *in);
/* `out` is `in`, or apart from it. */
int32_t eb_check_in_place(const struct eb_check *c, const char *out_name,
                          const struct eb_strided *out, const char *in_name,
                          const struct eb_strided *in);

/* ---- sequences -------------------------------------------------------------------------- */

int32_t eb_check_rows(const struct eb_check *c, const ebro_rows *rows);
/* A list of emitted rows or their slots; absent where n_emit is 0. */
int32_t eb_check_emit(const struct eb_check *c, const char *name, ebro_span span, uint32_t n_emit,
                      const ebro_rows *rows);
/* `units` states per slot, unit_elements each, whose dtype is one of dtypes. */
int32_t eb_check_state(const struct eb_check *c, const char *group, const ebro_state_io *io,
                       const ebro_rows *rows, uint64_t units, uint64_t unit_elements,
                       uint32_t dtypes);
/* A cache whose rows hold row_elements. */
int32_t eb_check_pages(const struct eb_check *c, const ebro_pages *pages, const ebro_rows *rows,
                       uint64_t row_elements);

#endif
