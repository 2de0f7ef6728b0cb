/* cases_dense.c: embed, linear, rms_norm, act_mul and attn_res_mix. What breaks them elsewhere:
 * sums in half precision that overflow, tails of rows that fill no vector, strides taken as dense,
 * squares that leave f32, exp of what is too large, ids out of range. */

#include "check/cases.h"

/* ---- linear ----------------------------------------------------------------------------- */

struct linear {
    uint32_t rows, in, out;
    int32_t dtype;
    bool transposed, accumulate;
    uint32_t padding;
};

/* got [n_rows][out] against start + x w. */
static void compare_product(struct eb_trial *t, const float *got, const float *x, uint64_t n_rows,
                            const double *w, const ebro_weight *shape, const float *start) {
    uint64_t in = shape->transposed ? shape->rows : shape->cols;
    uint64_t out = shape->transposed ? shape->cols : shape->rows;
    for (uint64_t r = 0; r < n_rows; r++) {
        for (uint64_t o = 0; o < out; o++) {
            struct eb_ref_sum s = eb_ref_product(x + r * in, shape->transposed ? w + o : w + o * in,
                                                 shape->transposed ? out : 1, in,
                                                 start != NULL ? (double)start[r * out + o] : 0.0);
            struct eb_budget b =
                eb_budget_product(in, t->device->caps.bits, shape, s.size, s.squares);
            eb_trial_within(t, (double)got[r * out + o], s.sum, s.size, b, "output", r * out + o);
        }
    }
}

static void multiply(struct eb_trial *t, const struct linear *l, const float *x,
                     struct eb_trial_weight w) {
    float *start = eb_trial_normal(t, (uint64_t)l->rows * l->out, 1);
    struct eb_trial_mat xm = eb_trial_mat(t, x, l->rows, l->in, l->padding);
    struct eb_trial_mat ym =
        eb_trial_out(t, l->accumulate ? start : NULL, l->rows, l->out, l->padding);
    w.w.transposed = l->transposed;
    ebro_linear_args a = {
        .size = sizeof a, .x = xm.m, .n_rows = l->rows, .n_items = 1, .n_batch = 1};
    a.items[0] = (ebro_linear_item){.w = w.w, .out = ym.m, .accumulate = l->accumulate};
    a.scratch = eb_trial_scratch(t, EBRO_OP_LINEAR, &a);
    if (!eb_trial_call(t, EBRO_OP_LINEAR, &a)) return;
    const float *got = eb_trial_get(t, &ym);
    if (got != NULL) compare_product(t, got, x, l->rows, w.v, &w.w, l->accumulate ? start : NULL);
}

static const struct linear shapes[] = {
    {1, 260, 33, EBRO_F32, false, false, 5},     {3, 96, 67, EBRO_BF16, false, false, 0},
    {33, 160, 70, EBRO_BF16, false, true, 3},    {2, 61, 5, EBRO_F16, false, false, 7},
    {5, 96, 64, EBRO_MXFP4, false, false, 0},    {4, 48, 21, EBRO_F32, true, true, 5},
    {70, 130, 40, EBRO_F16, true, false, 0},     {1, 1, 1, EBRO_F32, false, false, 0},
    {150, 224, 140, EBRO_BF16, false, false, 4}, {40, 544, 67, EBRO_MXFP4, false, true, 0},
    {1, 2304, 33, EBRO_F16, false, false, 0},    {6, 2591, 4, EBRO_F32, false, false, 3},
};

static void linear(struct eb_trial *t, uint32_t which) {
    struct linear l = shapes[which];
    eb_trial_shape(t, "%u rows of %u to %u, %s%s%s, padding %u", l.rows, l.in, l.out,
                   eb_dtype_name(l.dtype), l.transposed ? " transposed" : "",
                   l.accumulate ? ", added" : "", l.padding);
    float *x = eb_trial_normal(t, (uint64_t)l.rows * l.in, 1);
    struct eb_trial_weight w = l.transposed ? eb_trial_weight(t, l.dtype, l.in, l.out, l.padding)
                                            : eb_trial_weight(t, l.dtype, l.out, l.in, l.padding);
    if (!eb_trial_over(t)) multiply(t, &l, x, w);
}

/* ---- the list --------------------------------------------------------------------------- */

#define LINEAR(i, name, quick) \
    { EBRO_OP_LINEAR, name, quick, 0, linear, i }

static const struct eb_opcheck_case cases[] = {
    LINEAR(0, "one row, f32", true),
    LINEAR(1, "few rows, bf16", true),
    LINEAR(2, "many rows, bf16, added to", true),
    LINEAR(3, "odd sizes, f16", true),
    LINEAR(4, "mxfp4", true),
    LINEAR(5, "transposed, added to", true),
    LINEAR(6, "transposed, many rows, f16", false),
    LINEAR(7, "one by one", false),
    LINEAR(8, "many rows, wide", false),
    LINEAR(9, "mxfp4, many rows", false),
    LINEAR(10, "a model's width, f16", false),
    LINEAR(11, "a width that is prime, f32", false),
};

const struct eb_opcheck_list eb_opcheck_dense = {cases, sizeof cases / sizeof cases[0]};
