/* linear.c: linear and act_mul. */
#include <inttypes.h>
#include <math.h>

#include "ops/check.h"

static uint32_t n_inputs(const ebro_weight *w) {
    return w->transposed ? w->rows : w->cols;
}

static uint32_t n_outputs(const ebro_weight *w) {
    return w->transposed ? w->cols : w->rows;
}

static int32_t check_item(const struct eb_check *call, const ebro_linear_args *a, uint32_t i) {
    struct eb_check in = eb_check_in(call, "items", (int32_t)i), *c = &in;
    const ebro_linear_item *it = &a->items[i];
    EB_REQUIRE(c, it->reserved == 0, "reserved = %" PRId32, it->reserved);
    EB_TRY(eb_check_weight(c, "w", &it->w, EB_WEIGHTS, a->n_batch, it->w_batch_bytes));
    uint32_t inputs = n_inputs(&it->w), shared_inputs = n_inputs(&a->items[0].w);
    EB_REQUIRE(call, inputs == shared_inputs,
               "items[%" PRIu32 "].w has %" PRIu32 " inputs, items[0].w %" PRIu32, i, inputs,
               shared_inputs);
    return eb_check_mat_batch(c, "out", &it->out, a->n_rows, n_outputs(&it->w), EB_ONLY_F32,
                              a->n_batch, it->out_batch_elements);
}

int32_t eb_op_linear(struct eb_stream *s, const ebro_linear_args *a, ebro_error *err) {
    struct eb_check c;
    EB_TRY(eb_check_begin(&c, s, EBRO_OP_LINEAR, a, sizeof *a, err));
    EB_REQUIRE(&c, a->n_items >= 1 && a->n_items <= EBRO_MAX_LINEAR,
               "n_items = %" PRIu32 ", at most %d", a->n_items, (int)EBRO_MAX_LINEAR);
    EB_REQUIRE(&c, a->n_batch >= 1, "n_batch = 0");
    for (uint32_t i = 0; i < a->n_items; i++) EB_TRY(check_item(&c, a, i));
    EB_TRY(eb_check_mat_batch(&c, "x", &a->x, a->n_rows, n_inputs(&a->items[0].w), EB_ONLY_F32,
                              a->n_batch, a->x_batch_elements));
    EB_TRY(eb_check_scratch(&c, "scratch", a->scratch, a));
    if (a->n_rows == 0) return EBRO_OK;
    return EB_DISPATCH(&c, linear, a);
}

int32_t eb_op_act_mul(struct eb_stream *s, const ebro_act_mul_args *a, ebro_error *err) {
    struct eb_check c;
    EB_TRY(eb_check_begin(&c, s, EBRO_OP_ACT_MUL, a, sizeof *a, err));
    EB_REQUIRE(&c, a->kind >= EBRO_ACT_SILU && a->kind <= EBRO_ACT_SIGMOID, "kind = %" PRId32,
               a->kind);
    if (a->kind == EBRO_ACT_SITU) {
        EB_REQUIRE(&c, isfinite(a->beta) && a->beta > 0, "beta = %g", (double)a->beta);
        EB_REQUIRE(&c, isfinite(a->beta2) && a->beta2 > 0, "beta2 = %g", (double)a->beta2);
    }
    EB_REQUIRE(&c, a->n_cols > 0, "n_cols = 0");
    EB_REQUIRE(&c, a->gate_group > 0, "gate_group = 0");
    EB_REQUIRE(&c, a->n_cols % a->gate_group == 0, "n_cols = %" PRIu32 ", gate_group = %" PRIu32,
               a->n_cols, a->gate_group);
    uint32_t gate_cols = a->n_cols / a->gate_group;
    EB_TRY(eb_check_mat(&c, "gate", &a->gate, a->n_rows, gate_cols, EB_ONLY_F32));
    EB_TRY(eb_check_mat(&c, "up", &a->up, a->n_rows, a->n_cols, EB_ONLY_F32));
    EB_TRY(eb_check_mat(&c, "out", &a->out, a->n_rows, a->n_cols, EB_ONLY_F32));
    struct eb_strided out = eb_mat_bytes(&a->out, a->n_rows, a->n_cols);
    struct eb_strided up = eb_mat_bytes(&a->up, a->n_rows, a->n_cols);
    struct eb_strided gate = eb_mat_bytes(&a->gate, a->n_rows, gate_cols);
    EB_TRY(eb_check_in_place(&c, "out", &out, "up", &up));
    if (a->gate_group == 1)
        EB_TRY(eb_check_in_place(&c, "out", &out, "gate", &gate));
    else
        EB_TRY(eb_check_apart(&c, "out", &out, "gate", &gate));
    if (a->n_rows == 0) return EBRO_OK;
    return EB_DISPATCH(&c, act_mul, a);
}
