/* bind.h: finds tensors by name for a plan, checks shape and dtype, and keeps account of what was
 * missing and what nobody asked for. Problems are collected, not returned: eb_bind_finish names the
 * first and says how many more there are. Private to the model room. */
#ifndef EB_BIND_H
#define EB_BIND_H

#include "model/config.h"

struct eb_binder {
    struct ebro_model *m;
    const struct eb_config_file *file;
    const char *prefix;               /* before every name that is asked for */
    const char *const *skip_prefixes; /* NULL-ended: whole names of parts that are not used */
    const struct eb_tensor **by_name; /* over all files, rising; [m->n_tensors] */
    uint8_t *used;                    /* by tensor index */
    ebro_error first;
    uint32_t n_problems;
};

/* Which forms a matrix may have besides F32, F16, BF16. */
enum eb_bind_form { EB_BIND_PLAIN, EB_BIND_PACKED /* MXFP4 too, where the config says so */ };

/* m->files are open and numbered. A name in two files is FORMAT. b is zeroed but for m, file,
 * prefix and skip_prefixes. */
int32_t eb_binder_init(struct eb_binder *b, ebro_error *err);
void eb_binder_free(struct eb_binder *b); /* fine after a failed init */

/* Names are printf texts after the prefix; matrices without their ".weight". Each call below gives
 * an absent part and notes the problem when the tensor is missing or wrong. */
void eb_bind_matrix(struct eb_binder *b, struct eb_matrix *out, uint32_t rows, uint32_t cols,
                    enum eb_bind_form form, const char *fmt, ...) EB_PRINTF(6, 7);
/* [n], or [1, n]; F32, F16 or BF16. */
const struct eb_tensor *eb_bind_vec(struct eb_binder *b, uint32_t n, const char *fmt, ...)
    EB_PRINTF(3, 4);
/* [channels, 4] or [channels, 1, 4]. */
const struct eb_tensor *eb_bind_conv(struct eb_binder *b, uint32_t channels, const char *fmt, ...)
    EB_PRINTF(3, 4);
/* One value per head: [heads], [1, 1, heads, 1], or [more] with zeros behind the heads. */
const struct eb_tensor *eb_bind_a_log(struct eb_binder *b, uint32_t heads, const char *fmt, ...)
    EB_PRINTF(3, 4);
/* Rows of a tensor, without asking for it; 0: not there or a scalar. */
uint64_t eb_bind_peek_rows(const struct eb_binder *b, const char *fmt, ...) EB_PRINTF(2, 3);
/* Notes a problem of the caller's own. */
void eb_bind_problem(struct eb_binder *b, int32_t status, const char *fmt, ...) EB_PRINTF(3, 4);

/* Collected problems, then tensors that nobody asked for. */
int32_t eb_bind_finish(struct eb_binder *b, ebro_error *err);

#endif
