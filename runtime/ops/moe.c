/* moe.c: moe_route and moe_experts. */
#include <inttypes.h>
#include <math.h>

#include "ops/check.h"

/* What route writes and experts reads. Pair numbers, row * top_k + choice, are i32. */
static int32_t check_pairs(const struct eb_check *c, uint32_t n_rows, uint32_t n_experts,
                           uint32_t top_k, const ebro_mat *weights, ebro_span offsets,
                           ebro_span pairs) {
    uint64_t n_pairs = (uint64_t)n_rows * top_k;
    EB_REQUIRE(c, n_experts > 0, "n_experts = 0");
    EB_REQUIRE(c, top_k >= 1 && top_k <= n_experts, "top_k = %" PRIu32 ", n_experts = %" PRIu32,
               top_k, n_experts);
    EB_REQUIRE(c, n_pairs <= INT32_MAX, "n_rows = %" PRIu32 ", top_k = %" PRIu32, n_rows, top_k);
    EB_TRY(eb_check_mat(c, "weights", weights, n_rows, top_k, EB_ONLY_F32));
    EB_TRY(eb_check_array(c, "offsets", offsets, (uint64_t)n_experts + 1, 4));
    return eb_check_array(c, "pairs", pairs, n_pairs, 4);
}

int32_t eb_op_moe_route(struct eb_stream *s, const ebro_moe_route_args *a, ebro_error *err) {
    struct eb_check c;
    EB_TRY(eb_check_begin(&c, s, EBRO_OP_MOE_ROUTE, a, sizeof *a, err));
    EB_TRY(check_pairs(&c, a->n_rows, a->n_experts, a->top_k, &a->weights, a->offsets, a->pairs));
    EB_REQUIRE(&c, isfinite(a->scaling), "scaling = %g", (double)a->scaling);
    EB_TRY(eb_check_weight(&c, "gate", &a->gate, EB_WEIGHTS, 1, 0));
    EB_REQUIRE(&c, a->gate.transposed == 0, "transposed = %" PRId32, a->gate.transposed);
    EB_REQUIRE(&c, a->gate.rows == a->n_experts, "gate.rows = %" PRIu32 ", n_experts = %" PRIu32,
               a->gate.rows, a->n_experts);
    EB_TRY(eb_check_mat(&c, "x", &a->x, a->n_rows, a->gate.cols, EB_ONLY_F32));
    if (a->bias.mem != NULL) EB_TRY(eb_check_vec(&c, "bias", &a->bias, a->n_experts));
    EB_TRY(eb_check_mat(&c, "ids", &a->ids, a->n_rows, a->top_k, EB_ONLY_I32));
    EB_TRY(eb_check_scratch(&c, "scratch", a->scratch, a));
    if (a->n_rows == 0) return EBRO_OK;
    return EB_DISPATCH(&c, moe_route, a);
}

static int32_t check_tables(const struct eb_check *c, const ebro_moe_experts_args *a) {
    uint64_t n = 3 * (uint64_t)a->n_experts;
    EB_REQUIRE(c, a->dtype >= EBRO_F32 && a->dtype <= EBRO_MXFP4, "dtype = %" PRId32 ", %s",
               a->dtype, eb_dtype_name(a->dtype));
    EB_TRY(eb_check_array(c, "tables", a->tables, n, 8));
    if (a->dtype != EBRO_MXFP4) return EBRO_OK;
    /* w1 and w3 group their scales along in_dim, w2 along inner_dim. */
    EB_REQUIRE(c, a->in_dim % 32 == 0, "in_dim = %" PRIu32 ", mxfp4", a->in_dim);
    EB_REQUIRE(c, a->inner_dim % 32 == 0, "inner_dim = %" PRIu32 ", mxfp4", a->inner_dim);
    return eb_check_array(c, "scale_tables", a->scale_tables, n, 8);
}

int32_t eb_op_moe_experts(struct eb_stream *s, const ebro_moe_experts_args *a, ebro_error *err) {
    struct eb_check c;
    EB_TRY(eb_check_begin(&c, s, EBRO_OP_MOE_EXPERTS, a, sizeof *a, err));
    EB_TRY(check_pairs(&c, a->n_rows, a->n_experts, a->top_k, &a->weights, a->offsets, a->pairs));
    EB_REQUIRE(&c, a->in_dim > 0, "in_dim = 0");
    EB_REQUIRE(&c, a->inner_dim > 0, "inner_dim = 0");
    EB_REQUIRE(&c, a->act == EBRO_ACT_SILU || a->act == EBRO_ACT_SITU, "act = %" PRId32, a->act);
    if (a->act == EBRO_ACT_SITU) {
        EB_REQUIRE(&c, isfinite(a->beta) && a->beta > 0, "beta = %g", (double)a->beta);
        EB_REQUIRE(&c, isfinite(a->beta2) && a->beta2 > 0, "beta2 = %g", (double)a->beta2);
    }
    EB_TRY(check_tables(&c, a));
    EB_TRY(eb_check_mat(&c, "x", &a->x, a->n_rows, a->in_dim, EB_ONLY_F32));
    EB_TRY(eb_check_mat(&c, "out", &a->out, a->n_rows, a->in_dim, EB_ONLY_F32));
    EB_TRY(eb_check_scratch(&c, "scratch", a->scratch, a));
    if (a->n_rows == 0) return EBRO_OK;
    return EB_DISPATCH(&c, moe_experts, a);
}
