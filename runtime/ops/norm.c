/* norm.c: rms_norm and attn_res_mix. */
#include <inttypes.h>
#include <math.h>

#include "ops/check.h"

int32_t eb_op_rms_norm(struct eb_stream *s, const ebro_rms_norm_args *a, ebro_error *err) {
    struct eb_check c;
    EB_TRY(eb_check_begin(&c, s, EBRO_OP_RMS_NORM, a, sizeof *a, err));
    EB_REQUIRE(&c, a->n_cols > 0, "n_cols = 0");
    EB_REQUIRE(&c, isfinite(a->eps) && a->eps >= 0, "eps = %g", (double)a->eps);
    EB_TRY(eb_check_mat(&c, "x", &a->x, a->n_rows, a->n_cols, EB_ONLY_F32));
    EB_TRY(eb_check_mat(&c, "out", &a->out, a->n_rows, a->n_cols, EB_ONLY_F32));
    if (a->gate.mem != NULL)
        EB_TRY(eb_check_mat(&c, "gate", &a->gate, a->n_rows, a->n_cols, EB_ONLY_F32));
    if (a->weight.mem != NULL) EB_TRY(eb_check_vec(&c, "weight", &a->weight, a->n_cols));
    struct eb_strided out = eb_mat_bytes(&a->out, a->n_rows, a->n_cols);
    struct eb_strided x = eb_mat_bytes(&a->x, a->n_rows, a->n_cols);
    EB_TRY(eb_check_in_place(&c, "out", &out, "x", &x));
    if (a->n_rows == 0) return EBRO_OK;
    return EB_DISPATCH(&c, rms_norm, a);
}

int32_t eb_op_attn_res_mix(struct eb_stream *s, const ebro_attn_res_mix_args *a, ebro_error *err) {
    struct eb_check c;
    EB_TRY(eb_check_begin(&c, s, EBRO_OP_ATTN_RES_MIX, a, sizeof *a, err));
    EB_REQUIRE(&c, a->n_sources >= 1 && a->n_sources <= EBRO_MAX_SOURCES,
               "n_sources = %" PRIu32 ", at most %d", a->n_sources, (int)EBRO_MAX_SOURCES);
    EB_REQUIRE(&c, a->n_cols > 0, "n_cols = 0");
    EB_REQUIRE(&c, isfinite(a->eps) && a->eps >= 0, "eps = %g", (double)a->eps);
    EB_TRY(eb_check_vec(&c, "norm_weight", &a->norm_weight, a->n_cols));
    EB_TRY(eb_check_vec(&c, "proj", &a->proj, a->n_cols));
    EB_TRY(eb_check_mat(&c, "out", &a->out, a->n_rows, a->n_cols, EB_ONLY_F32));
    if (a->probs.mem != NULL)
        EB_TRY(eb_check_mat(&c, "probs", &a->probs, a->n_rows, a->n_sources, EB_ONLY_F32));
    struct eb_strided out = eb_mat_bytes(&a->out, a->n_rows, a->n_cols);
    for (uint32_t i = 0; i < a->n_sources; i++) {
        struct eb_check in = eb_check_in(&c, "sources", (int32_t)i);
        EB_TRY(eb_check_mat(&in, "", &a->sources[i], a->n_rows, a->n_cols, EB_ONLY_F32));
        struct eb_strided source = eb_mat_bytes(&a->sources[i], a->n_rows, a->n_cols);
        EB_TRY(eb_check_in_place(&c, "out", &out, "every source that it is not", &source));
    }
    if (a->n_rows == 0) return EBRO_OK;
    return EB_DISPATCH(&c, attn_res_mix, a);
}
