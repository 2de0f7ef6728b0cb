/* token.c: embed and sample, where token ids enter and leave. */
#include <inttypes.h>

#include "ops/check.h"

int32_t eb_op_embed(struct eb_stream *s, const ebro_embed_args *a, ebro_error *err) {
    struct eb_check c;
    EB_TRY(eb_check_begin(&c, s, EBRO_OP_EMBED, a, sizeof *a, err));
    EB_TRY(eb_check_array(&c, "ids", a->ids, a->n_rows, 4));
    EB_TRY(eb_check_weight(&c, "table", &a->table, EB_FLOATS, 1, 0));
    EB_REQUIRE(&c, a->table.transposed == 0, "transposed = %" PRId32, a->table.transposed);
    /* Ids are i32. */
    EB_REQUIRE(&c, a->first_id <= INT32_MAX, "first_id = %" PRIu32, a->first_id);
    EB_REQUIRE(&c, a->table.rows <= 0x80000000u - a->first_id,
               "first_id = %" PRIu32 ", table.rows = %" PRIu32, a->first_id, a->table.rows);
    EB_TRY(eb_check_mat(&c, "out", &a->out, a->n_rows, a->table.cols, EB_ONLY_F32));
    if (a->n_rows == 0) return EBRO_OK;
    return EB_DISPATCH(&c, embed, a);
}

int32_t eb_op_sample(struct eb_stream *s, const ebro_sample_args *a, ebro_error *err) {
    struct eb_check c;
    EB_TRY(eb_check_begin(&c, s, EBRO_OP_SAMPLE, a, sizeof *a, err));
    /* Ids are i32. */
    EB_REQUIRE(&c, a->vocab >= 1 && a->vocab <= INT32_MAX, "vocab = %" PRIu32, a->vocab);
    EB_TRY(eb_check_mat(&c, "logits", &a->logits, a->n_rows, a->vocab, EB_ONLY_F32));
    EB_TRY(eb_check_array(&c, "params", a->params, a->n_rows, sizeof(ebro_sample_params)));
    EB_TRY(eb_check_array(&c, "ids", a->ids, a->n_rows, 4));
    if (a->n_adjusts > 0) {
        EB_TRY(eb_check_array(&c, "adjusts", a->adjusts, (uint64_t)a->n_adjusts * 3, 4));
        EB_TRY(eb_check_array(&c, "adjust_offsets", a->adjust_offsets, (uint64_t)a->n_rows + 1, 4));
    }
    EB_TRY(eb_check_scratch(&c, "scratch", a->scratch, a));
    if (a->n_rows == 0) return EBRO_OK;
    return EB_DISPATCH(&c, sample, a);
}
