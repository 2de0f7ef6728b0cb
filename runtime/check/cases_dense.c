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

/* Sums that half precision loses: rows of x from 2^-70 to 2^70, each with one value far above the
 * others. */
static void scales(struct eb_trial *t, uint32_t which) {
    static const int32_t dtypes[] = {EBRO_BF16, EBRO_F16, EBRO_MXFP4, EBRO_F32};
    const struct linear l = {.rows = 45, .in = 160, .out = 20, .dtype = dtypes[which]};
    eb_trial_shape(t, "%u rows of %u to %u, %s, magnitudes from 2^-70 to 2^70", l.rows, l.in, l.out,
                   eb_dtype_name(l.dtype));
    float *x = eb_trial_normal(t, (uint64_t)l.rows * l.in, 1);
    struct eb_trial_weight w = eb_trial_weight(t, l.dtype, l.out, l.in, 0);
    if (eb_trial_over(t)) return;
    for (uint32_t r = 0; r < l.rows; r++) {
        x[r * l.in + r * 7 % l.in] *= 4096;
        for (uint32_t c = 0; c < l.in; c++)
            x[r * l.in + c] = ldexpf(x[r * l.in + c], (int)(r * 53 % 141) - 70);
    }
    multiply(t, &l, x, w);
}

/* All of one sign and as large as a half can be: a sum in half precision is infinite at the second
 * product, and one that drops small terms is off by all of them. */
static void all_large(struct eb_trial *t, uint32_t which) {
    const struct linear l = {.rows = which == 0 ? 1 : 40, .in = 512, .out = 33, .dtype = EBRO_F16};
    eb_trial_shape(t, "%u rows of %u to %u, f16, all 65504 or 0.001", l.rows, l.in, l.out);
    float *x = eb_trial_host(t, (uint64_t)l.rows * l.in, sizeof *x);
    struct eb_trial_weight w = eb_trial_weight(t, l.dtype, l.out, l.in, 0);
    if (eb_trial_over(t)) return;
    for (uint32_t i = 0; i < l.rows * l.in; i++) x[i] = i % 64 == 7 ? 65504.0f : 0.001f;
    multiply(t, &l, x, w);
}

/* Several weights of one type and one x, as a layer's projections: backends may take them as one.
 */
static void several(struct eb_trial *t, uint32_t which) {
    enum { N = 3, IN = 96 };
    static const uint32_t rows[] = {3, 40, 4}, out[N] = {40, 17, 72};
    const uint32_t n_rows = rows[which];
    const bool transposed = which == 2;
    struct eb_trial_mat y[N];
    struct eb_trial_weight w[N];
    eb_trial_shape(t, "%u rows of %d to 40, 17 and 72, bf16%s", n_rows, IN,
                   transposed ? ", transposed" : "");
    float *x = eb_trial_normal(t, (uint64_t)n_rows * IN, 1);
    ebro_linear_args a = {.size = sizeof a, .n_rows = n_rows, .n_items = N, .n_batch = 1};
    a.x = eb_trial_mat(t, x, n_rows, IN, 0).m;
    for (int i = 0; i < N; i++) {
        w[i] = eb_trial_weight(t, EBRO_BF16, transposed ? IN : out[i], transposed ? out[i] : IN,
                               transposed ? 8 - out[i] % 8 : 0);
        w[i].w.transposed = transposed;
        y[i] = eb_trial_out(t, NULL, n_rows, out[i], 3);
        a.items[i] = (ebro_linear_item){.w = w[i].w, .out = y[i].m};
    }
    a.scratch = eb_trial_scratch(t, EBRO_OP_LINEAR, &a);
    if (!eb_trial_call(t, EBRO_OP_LINEAR, &a)) return;
    for (int i = 0; i < N; i++) {
        const float *got = eb_trial_get(t, &y[i]);
        if (got != NULL) compare_product(t, got, x, n_rows, w[i].v, &w[i].w, NULL);
    }
}

/* Several weights, several batches: per-head products as MLA makes them. */
static void batches(struct eb_trial *t, uint32_t which) {
    enum { ROWS = 3, BATCH = 4, IN = 48 };
    static const uint32_t out[2] = {40, 17};
    static const int32_t dtypes[2] = {EBRO_F16, EBRO_BF16};
    struct eb_trial_mat y[2];
    struct eb_trial_weight w[2];
    eb_trial_shape(t, "%d rows, 2 weights, %d batches%s", ROWS, BATCH, which ? ", transposed" : "");
    float *x = eb_trial_normal(t, ROWS * BATCH * IN, 1);
    ebro_linear_args a = {.size = sizeof a, .n_rows = ROWS, .n_items = 2, .n_batch = BATCH};
    a.x = eb_trial_mat(t, x, ROWS, BATCH * IN, 7).m;
    a.x_batch_elements = IN;
    for (int i = 0; i < 2; i++) {
        w[i] = eb_trial_weights(t, BATCH, dtypes[i], which ? IN : out[i], which ? out[i] : IN, 3);
        w[i].w.transposed = (int32_t)which;
        y[i] = eb_trial_out(t, NULL, ROWS, BATCH * out[i], 2);
        a.items[i] = (ebro_linear_item){
            .w = w[i].w, .out = y[i].m, .w_batch_bytes = w[i].bytes, .out_batch_elements = out[i]};
    }
    a.scratch = eb_trial_scratch(t, EBRO_OP_LINEAR, &a);
    if (!eb_trial_call(t, EBRO_OP_LINEAR, &a)) return;
    for (int i = 0; i < 2; i++) {
        const float *got = eb_trial_get(t, &y[i]);
        for (uint32_t k = 0; got != NULL && k < BATCH * ROWS; k++) {
            uint32_t b = k % BATCH;
            compare_product(t, got + k * out[i], x + k * IN, 1, w[i].v + (uint64_t)b * IN * out[i],
                            &w[i].w, NULL);
        }
    }
}

/* A row gives the same bytes alone and in company. */
static void alone(struct eb_trial *t, uint32_t which) {
    enum { ROWS = 37, IN = 1056, OUT = 21 };
    static const int32_t dtypes[] = {EBRO_BF16, EBRO_F32, EBRO_F16, EBRO_MXFP4};
    eb_trial_shape(t, "%d rows of %d to %d, %s, each row again alone", ROWS, IN, OUT,
                   eb_dtype_name(dtypes[which]));
    float *x = eb_trial_normal(t, ROWS * IN, 1);
    struct eb_trial_weight w = eb_trial_weight(t, dtypes[which], OUT, IN, 0);
    struct eb_trial_mat together = eb_trial_out(t, NULL, ROWS, OUT, 0);
    struct eb_trial_mat apart = eb_trial_out(t, NULL, ROWS, OUT, 0);
    ebro_linear_args all = {.size = sizeof all, .n_rows = ROWS, .n_items = 1, .n_batch = 1};
    all.x = eb_trial_mat(t, x, ROWS, IN, 0).m;
    all.items[0] = (ebro_linear_item){.w = w.w, .out = together.m};
    all.scratch = eb_trial_scratch(t, EBRO_OP_LINEAR, &all);
    ebro_linear_args *ones = eb_trial_host(t, ROWS, sizeof *ones);
    struct eb_trial_op ops[1 + ROWS] = {{EBRO_OP_LINEAR, &all}};
    if (eb_trial_over(t)) return;
    for (uint32_t r = 0; r < ROWS; r++) {
        ones[r] = all;
        ones[r].n_rows = 1;
        ones[r].x.offset += r * IN * sizeof(float);
        ones[r].items[0].out = apart.m;
        ones[r].items[0].out.offset += r * OUT * sizeof(float);
        ops[1 + r] = (struct eb_trial_op){EBRO_OP_LINEAR, &ones[r]};
    }
    if (!eb_trial_calls(t, ops, 1 + ROWS)) return;
    const float *a = eb_trial_get(t, &together), *b = eb_trial_get(t, &apart);
    if (a != NULL && b != NULL)
        eb_trial_same(t, b, a, ROWS * OUT * sizeof *a, eb_budget_strict(), "rows alone");
}

/* MXFP4 cannot be transposed: it must be said, not computed. */
static void no_transposed_mx(struct eb_trial *t, uint32_t which) {
    (void)which;
    eb_trial_shape(t, "mxfp4, transposed");
    struct eb_trial_weight w = eb_trial_weight(t, EBRO_MXFP4, 32, 64, 0);
    struct eb_trial_mat y = eb_trial_out(t, NULL, 2, 64, 0);
    float *x = eb_trial_normal(t, 64, 1);
    ebro_linear_args a = {.size = sizeof a, .n_rows = 2, .n_items = 1, .n_batch = 1};
    a.x = eb_trial_mat(t, x, 2, 32, 0).m;
    w.w.transposed = 1;
    a.items[0] = (ebro_linear_item){.w = w.w, .out = y.m};
    eb_trial_must_refuse(t, EBRO_OP_LINEAR, &a, "a transposed mxfp4 weight");
}

/* ---- embed ------------------------------------------------------------------------------ */

/* Ids outside of the table give rows of zeros. */
static void embed(struct eb_trial *t, uint32_t which) {
    static const int32_t dtypes[] = {EBRO_BF16, EBRO_F16, EBRO_F32};
    static const int32_t ids[] = {0, 49, 50, -1, 7, 7, INT32_MAX, INT32_MIN, 31};
    enum { VOCAB = 50, N = sizeof ids / sizeof ids[0] };
    uint32_t hidden = which == 2 ? 2310 : 77;
    eb_trial_shape(t, "%d ids of %d, some outside, rows of %u, %s", N, VOCAB, hidden,
                   eb_dtype_name(dtypes[which]));
    struct eb_trial_weight w = eb_trial_weight(t, dtypes[which], VOCAB, hidden, 3);
    struct eb_trial_mat out = eb_trial_out(t, NULL, N, hidden, 5);
    float *want = eb_trial_host(t, (uint64_t)N * hidden, sizeof *want);
    ebro_embed_args a = {.size = sizeof a, .n_rows = N, .table = w.w, .out = out.m};
    a.ids = eb_trial_i32(t, ids, N);
    if (!eb_trial_call(t, EBRO_OP_EMBED, &a)) return;
    for (uint64_t i = 0; i < (uint64_t)N * hidden; i++) {
        int32_t id = ids[i / hidden];
        if (id >= 0 && id < VOCAB) want[i] = (float)w.v[(uint64_t)id * hidden + i % hidden];
    }
    const float *got = eb_trial_get(t, &out);
    if (got != NULL)
        eb_trial_same(t, got, want, (uint64_t)N * hidden * 4, eb_budget_exact(), "rows");
}

/* A table in two parts, the second of which keeps what the first gave. */
static void embed_parts(struct eb_trial *t, uint32_t which) {
    enum { VOCAB = 50, CUT = 20, N = 6, HIDDEN = 40 };
    static const int32_t ids[N] = {0, CUT - 1, CUT, VOCAB - 1, -1, VOCAB};
    (void)which;
    eb_trial_shape(t, "%d ids of %d, of a table in two parts", N, VOCAB);
    struct eb_trial_weight w = eb_trial_weight(t, EBRO_BF16, VOCAB, HIDDEN, 0);
    struct eb_trial_mat out = eb_trial_out(t, NULL, N, HIDDEN, 1);
    float *want = eb_trial_host(t, N * HIDDEN, sizeof *want);
    ebro_embed_args a = {.size = sizeof a, .n_rows = N, .table = w.w, .out = out.m}, b;
    a.ids = eb_trial_i32(t, ids, N);
    b = a;
    a.table.rows = CUT;
    b.table.rows = VOCAB - CUT;
    b.table.offset += CUT * HIDDEN * sizeof(uint16_t);
    b.first_id = CUT;
    b.keep = 1;
    const struct eb_trial_op ops[] = {{EBRO_OP_EMBED, &a}, {EBRO_OP_EMBED, &b}};
    if (!eb_trial_calls(t, ops, 2)) return;
    for (uint32_t i = 0; i < 4 * HIDDEN; i++)
        want[i] = (float)w.v[(uint32_t)ids[i / HIDDEN] * HIDDEN + i % HIDDEN];
    const float *got = eb_trial_get(t, &out);
    if (got != NULL) eb_trial_same(t, got, want, N * HIDDEN * 4, eb_budget_exact(), "rows");
}

/* ---- rms_norm --------------------------------------------------------------------------- */

static void norm_of(struct eb_trial *t, const float *x, uint32_t rows, uint32_t cols,
                    const float *gate, bool weighted, bool in_place) {
    static const float eps = 1e-5f;
    double *w = NULL;
    struct eb_trial_mat out = eb_trial_out(t, in_place ? x : NULL, rows, cols, 3);
    ebro_rms_norm_args a = {.size = sizeof a, .n_rows = rows, .n_cols = cols, .eps = eps};
    a.x = in_place ? out.m : eb_trial_mat(t, x, rows, cols, 1).m;
    a.out = out.m;
    if (weighted) a.weight = eb_trial_vec(t, EBRO_BF16, cols, &w);
    if (gate != NULL) a.gate = eb_trial_mat(t, gate, rows, cols, 2).m;
    if (!eb_trial_call(t, EBRO_OP_RMS_NORM, &a)) return;
    const float *got = eb_trial_get(t, &out);
    /* A graphics device may miss a quotient by 2.5 and a root by 3 units in the last place, which
     * the budget's 16 holds. */
    for (uint64_t i = 0; got != NULL && i < (uint64_t)rows * cols; i++) {
        double inv = eb_ref_inverse_rms(x + i / cols * cols, cols, (double)eps);
        double want = (double)x[i] * inv * (w != NULL ? w[i % cols] : 1);
        if (gate != NULL) want *= eb_ref_sigmoid((double)gate[i]);
        /* Below the smallest normal number relative precision ends. */
        eb_trial_within(t, (double)got[i], want, fabs(want) + 1e-31, eb_budget_norm(cols), "output",
                        i);
    }
}

static void norm(struct eb_trial *t, uint32_t which) {
    static const uint32_t sizes[][2] = {{5, 257}, {3, 128}, {2, 2304}, {9, 13}};
    uint32_t rows = sizes[which][0], cols = sizes[which][1];
    eb_trial_shape(t, "%u rows of %u%s%s", rows, cols, which % 2 ? ", gated" : "",
                   which % 2 ? ", in place" : "");
    float *x = eb_trial_normal(t, (uint64_t)rows * cols, 3);
    float *gate = eb_trial_normal(t, (uint64_t)rows * cols, 4);
    if (!eb_trial_over(t)) norm_of(t, x, rows, cols, which % 2 ? gate : NULL, true, which % 2);
}

/* Rows whose squares do not fit f32, zeros, and numbers that eps outweighs. */
static void norm_extremes(struct eb_trial *t, uint32_t which) {
    enum { ROWS = 4, COLS = 24 };
    (void)which;
    eb_trial_shape(t, "%d rows of %d: 1e30, zeros, 1e-30, one 3e38", ROWS, COLS);
    float *x = eb_trial_host(t, ROWS * COLS, sizeof *x);
    if (eb_trial_over(t)) return;
    for (int i = 0; i < COLS; i++) {
        x[i] = i % 2 ? 1e30f : -1e30f;
        x[2 * COLS + i] = 1e-30f;
        x[3 * COLS + i] = i == 3 ? 3e38f : 1.0f;
    }
    norm_of(t, x, ROWS, COLS, NULL, false, false);
}

/* ---- act_mul ---------------------------------------------------------------------------- */

static void act_of(struct eb_trial *t, int32_t kind, const float *gate, const float *up,
                   uint32_t rows, uint32_t cols, uint32_t group) {
    struct eb_trial_mat out = eb_trial_out(t, NULL, rows, cols, 1);
    ebro_act_mul_args a = {.size = sizeof a, .out = out.m, .n_rows = rows, .n_cols = cols};
    a.gate = eb_trial_mat(t, gate, rows, cols / group, 3).m;
    a.up = eb_trial_mat(t, up, rows, cols, 2).m;
    a.gate_group = group;
    a.kind = kind;
    a.beta = 4;
    a.beta2 = 25;
    if (!eb_trial_call(t, EBRO_OP_ACT_MUL, &a)) return;
    const float *got = eb_trial_get(t, &out);
    /* Below the smallest normal number relative precision ends. */
    const struct eb_budget b = eb_budget_act();
    for (uint64_t i = 0; got != NULL && i < (uint64_t)rows * cols; i++) {
        double want = eb_ref_act(kind, 4, 25, (double)gate[i / group], (double)up[i]);
        eb_trial_within(t, (double)got[i], want, fabs(want) + 1e-37 / b.value, b, "output", i);
    }
}

static void act(struct eb_trial *t, uint32_t which) {
    static const char *const kinds[] = {"silu", "SiTU", "sigmoid"};
    uint32_t rows = which == 0 ? 70 : 3, cols = which == 1 ? 61 : 96, group = which == 2 ? 12 : 1;
    eb_trial_shape(t, "%u rows of %u, %s, %u to a gate", rows, cols, kinds[which], group);
    float *gate = eb_trial_normal(t, (uint64_t)rows * cols / group, 8);
    float *up = eb_trial_normal(t, (uint64_t)rows * cols, 20);
    if (!eb_trial_over(t)) act_of(t, (int32_t)which, gate, up, rows, cols, group);
}

/* No input overflows on the way to a result that is small. */
static void act_extremes(struct eb_trial *t, uint32_t which) {
    static const float x[] = {-3e38f, -1e4f, -200,  -100, -88,   88,    100,
                              200,    1e4f,  3e38f, 0.0f, -0.0f, 1e-40f};
    enum { N = sizeof x / sizeof x[0] };
    eb_trial_shape(t, "gates from -3e38 to 3e38, kind %u", which);
    float *one = eb_trial_host(t, N, sizeof *one);
    if (eb_trial_over(t)) return;
    for (uint32_t i = 0; i < N; i++) one[i] = 1.0f;
    act_of(t, (int32_t)which, x, one, 1, N, 1);
}

/* ---- attn_res_mix ----------------------------------------------------------------------- */

/* values [n][rows][cols] */
static void mix_of(struct eb_trial *t, const float *values, uint32_t n, uint32_t rows,
                   uint32_t cols) {
    static const float eps = 1e-5f;
    double *w, *p;
    ebro_attn_res_mix_args a = {.size = sizeof a, .n_sources = n, .n_rows = rows, .n_cols = cols};
    struct eb_trial_mat out = eb_trial_out(t, NULL, rows, cols, 3);
    struct eb_trial_mat probs = eb_trial_out(t, NULL, rows, n, 2);
    for (uint32_t s = 0; s < n; s++)
        a.sources[s] = eb_trial_mat(t, values + (uint64_t)s * rows * cols, rows, cols, s % 5).m;
    a.norm_weight = eb_trial_vec(t, EBRO_BF16, cols, &w);
    a.proj = eb_trial_vec(t, EBRO_F32, cols, &p);
    a.eps = eps;
    a.out = out.m;
    a.probs = probs.m;
    if (!eb_trial_call(t, EBRO_OP_ATTN_RES_MIX, &a)) return;
    const float *got = eb_trial_get(t, &out), *got_probs = eb_trial_get(t, &probs);
    for (uint32_t r = 0; got != NULL && got_probs != NULL && r < rows; r++) {
        const float *sources[EBRO_MAX_SOURCES];
        double want[EBRO_MAX_SOURCES], slack;
        for (uint32_t s = 0; s < n; s++) sources[s] = values + ((uint64_t)s * rows + r) * cols;
        eb_ref_mix_probs(sources, n, cols, w, p, (double)eps, want, &slack);
        struct eb_budget b = eb_budget_mix(cols, slack);
        for (uint32_t s = 0; s < n; s++)
            eb_trial_within(t, (double)got_probs[r * n + s], want[s], 1,
                            eb_budget_share(cols, slack), "share", r * n + s);
        for (uint32_t c = 0; c < cols; c++) {
            double sum = 0, size = 0;
            for (uint32_t s = 0; s < n; s++) {
                sum += want[s] * (double)sources[s][c];
                size += want[s] * fabs((double)sources[s][c]);
            }
            eb_trial_within(t, (double)got[r * cols + c], sum, size, b, "output", r * cols + c);
        }
    }
}

static void mix(struct eb_trial *t, uint32_t which) {
    static const uint32_t sizes[][3] = {{7, 3, 301}, {1, 3, 64}, {32, 2, 130}, {9, 2, 2308}};
    uint32_t n = sizes[which][0], rows = sizes[which][1], cols = sizes[which][2];
    eb_trial_shape(t, "%u sources, %u rows of %u", n, rows, cols);
    float *values = eb_trial_normal(t, (uint64_t)n * rows * cols, 2);
    if (!eb_trial_over(t)) mix_of(t, values, n, rows, cols);
}

/* Sources whose squares do not fit f32, and zeros: a score does not depend on its source's size. */
static void mix_extremes(struct eb_trial *t, uint32_t which) {
    enum { COLS = 40 };
    static const float sizes[] = {1.0f, 1e28f, 0.0f};
    (void)which;
    eb_trial_shape(t, "3 sources of ordinary size, of 1e28 and of zeros");
    float *values = eb_trial_normal(t, 3 * COLS, 1);
    if (eb_trial_over(t)) return;
    for (uint32_t i = 0; i < 3 * COLS; i++) values[i] *= sizes[i / COLS];
    mix_of(t, values, 3, 1, COLS);
}

/* ---- the list --------------------------------------------------------------------------- */

#define CASE(op, name, part, f, which) \
    { EBRO_OP_##op, name, EB_CASE_##part, 0, f, which }
#define STRICT(op, name, part, f, which) \
    { EBRO_OP_##op, name, EB_CASE_##part, EBRO_CAP_STRICT, f, which }
#define LINEAR(i, name, part) \
    { EBRO_OP_LINEAR, name, EB_CASE_##part, 0, linear, i }

static const struct eb_opcheck_case cases[] = {
    LINEAR(0, "one row, f32", START),
    LINEAR(1, "few rows, bf16", START),
    LINEAR(2, "many rows, bf16, added to", START),
    LINEAR(3, "odd sizes, f16", START),
    LINEAR(4, "mxfp4", START),
    LINEAR(5, "transposed, added to", START),
    LINEAR(6, "transposed, many rows, f16", FULL),
    LINEAR(7, "one by one", FULL),
    LINEAR(8, "many rows, wide", FULL),
    LINEAR(9, "mxfp4, many rows", FULL),
    LINEAR(10, "a model's width, f16", FULL),
    LINEAR(11, "a width that is prime, f32", FULL),
    CASE(LINEAR, "2^-70 to 2^70, bf16", QUICK, scales, 0),
    CASE(LINEAR, "2^-70 to 2^70, f16", FULL, scales, 1),
    CASE(LINEAR, "2^-70 to 2^70, mxfp4", FULL, scales, 2),
    CASE(LINEAR, "2^-70 to 2^70, f32", FULL, scales, 3),
    CASE(LINEAR, "largest halves", QUICK, all_large, 0),
    CASE(LINEAR, "largest halves, many rows", START, all_large, 1),
    CASE(LINEAR, "several weights", START, several, 0),
    CASE(LINEAR, "several weights, many rows", START, several, 1),
    CASE(LINEAR, "several weights, transposed", START, several, 2),
    CASE(LINEAR, "batches", QUICK, batches, 0),
    CASE(LINEAR, "batches, transposed", FULL, batches, 1),
    STRICT(LINEAR, "rows alone, bf16", QUICK, alone, 0),
    STRICT(LINEAR, "rows alone, f32", FULL, alone, 1),
    STRICT(LINEAR, "rows alone, f16", FULL, alone, 2),
    STRICT(LINEAR, "rows alone, mxfp4", FULL, alone, 3),
    CASE(LINEAR, "transposed mxfp4", QUICK, no_transposed_mx, 0),
    CASE(EMBED, "ids outside, bf16", START, embed, 0),
    CASE(EMBED, "ids outside, f16", FULL, embed, 1),
    CASE(EMBED, "long rows, f32", FULL, embed, 2),
    CASE(EMBED, "a table in two parts", QUICK, embed_parts, 0),
    CASE(RMS_NORM, "odd width", START, norm, 0),
    CASE(RMS_NORM, "gated, in place", START, norm, 1),
    CASE(RMS_NORM, "a model's width", FULL, norm, 2),
    CASE(RMS_NORM, "short rows, gated", FULL, norm, 3),
    CASE(RMS_NORM, "squares beyond f32", QUICK, norm_extremes, 0),
    CASE(ACT_MUL, "silu", START, act, 0),
    CASE(ACT_MUL, "SiTU, odd width", START, act, 1),
    CASE(ACT_MUL, "sigmoid, grouped", START, act, 2),
    CASE(ACT_MUL, "largest gates, silu", QUICK, act_extremes, 0),
    CASE(ACT_MUL, "largest gates, SiTU", QUICK, act_extremes, 1),
    CASE(ACT_MUL, "largest gates, sigmoid", QUICK, act_extremes, 2),
    CASE(ATTN_RES_MIX, "7 sources", START, mix, 0),
    CASE(ATTN_RES_MIX, "1 source", FULL, mix, 1),
    CASE(ATTN_RES_MIX, "32 sources", FULL, mix, 2),
    CASE(ATTN_RES_MIX, "a model's width", FULL, mix, 3),
    CASE(ATTN_RES_MIX, "squares beyond f32, zeros", QUICK, mix_extremes, 0),
};

const struct eb_opcheck_list eb_opcheck_dense = {cases, sizeof cases / sizeof cases[0]};
