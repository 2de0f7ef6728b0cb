/* general.c: the row-wise ops against float64: embed, linear, rms_norm, act_mul, attn_res_mix.
 * Copies, sample and the MoE ops have files of their own.
 *
 * Bounds: check/budget.h.
 */
#include <float.h>

#include "tests/opcheck/rig.h"

static const double u = 1.0 / 16777216.0;
static const int32_t dtypes[4] = {EBRO_F32, EBRO_F16, EBRO_BF16, EBRO_MXFP4};

/* ---- linear ----------------------------------------------------------------------------- */

/* Fails unless got is within the bound of start + x w: w [rows][cols] in float64. */
static void check_product(const float *got, const float *x, uint64_t n_rows, const double *w,
                          const ebro_weight *shape, const float *start, const char *what) {
    uint64_t in = shape->transposed ? shape->rows : shape->cols;
    uint64_t out = shape->transposed ? shape->cols : shape->rows;
    for (uint64_t r = 0; r < n_rows; r++) {
        for (uint64_t o = 0; o < out; o++) {
            bool t = shape->transposed;
            struct eb_ref_sum sum = eb_ref_product(x + r * in, t ? w + o : w + o * in, t ? out : 1,
                                                   in, start ? (double)start[r * out + o] : 0.0);
            struct eb_budget b =
                eb_budget_product(in, rig.device->caps.bits, shape, sum.size, sum.squares);
            test_le(fabs((double)got[r * out + o] - sum.sum), b.value * sum.size,
                    "%s, row %" PRIu64 " output %" PRIu64, what, r, o);
        }
    }
}

static void linear_case(uint32_t n_rows, uint32_t in, uint32_t out, int32_t dtype, bool transposed,
                        bool accumulate, uint32_t padding) {
    char what[160];
    snprintf(what, sizeof what, "linear %s rows %u in %u out %u%s%s pad %u", eb_dtype_name(dtype),
             n_rows, in, out, transposed ? " transposed" : "", accumulate ? " +=" : "", padding);
    struct rig_weight w =
        transposed ? rig_weight(dtype, in, out, padding) : rig_weight(dtype, out, in, padding);
    float *x = rig_normal((uint64_t)n_rows * in, 1), *start = rig_normal((uint64_t)n_rows * out, 1);
    struct rig_mat xm = rig_mat_from(x, n_rows, in, padding), ym = rig_mat(n_rows, out, padding);
    if (accumulate) rig_mat_put(&ym, start);
    w.w.transposed = transposed;
    ebro_linear_args a = {
        .size = sizeof a, .x = xm.m, .n_rows = n_rows, .n_items = 1, .n_batch = 1};
    a.items[0] = (ebro_linear_item){.w = w.w, .out = ym.m, .accumulate = accumulate};
    a.scratch = rig_scratch(EBRO_OP_LINEAR, &a);
    test_ok(eb_op_linear(&rig.s, &a, &rig.err), &rig.err);
    rig_sync();
    check_product(rig_mat_get(&ym), x, n_rows, w.v, &w.w, accumulate ? start : NULL, what);
}

static void linear_shapes(void **state) {
    static const uint32_t shapes[][3] = {
        /* rows, inputs, outputs */
        {0, 32, 5},  {1, 1, 1},    {1, 2304, 33}, {2, 7, 3},     {4, 61, 5},  {3, 544, 67},
        {5, 96, 64}, {33, 160, 9}, {6, 2591, 4},  {70, 1056, 6}, {1, 3, 130}, {150, 224, 140}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (uint32_t v = 0; v < 16; v++) {
            int32_t dtype = dtypes[v / 4];
            bool transposed = v & 1, accumulate = v & 2;
            bool mx = dtype == EBRO_MXFP4;
            if (mx && (transposed || shapes[i][1] % 32 != 0)) continue;
            linear_case(shapes[i][0], shapes[i][1], shapes[i][2], dtype, transposed, accumulate,
                        mx ? 0 : (uint32_t)(i % 3) * 5);
            rig_reset(state);
        }
    }
}

/* A weight in bf16 whose rows differ by powers of two, from 2^-45 to 2^45. */
static struct rig_weight wide_weight(uint32_t rows, uint32_t cols) {
    struct rig_weight r = {.v = rig_host((uint64_t)rows * cols, sizeof *r.v)};
    uint16_t *data = rig_host((uint64_t)rows * cols, sizeof *data);
    for (uint64_t i = 0; i < (uint64_t)rows * cols; i++) {
        int power = (int)(i / cols * 37 % 91) - 45;
        uint32_t mantissa = 128 + rig_below(128), negative = rig_below(2);
        data[i] = (uint16_t)(negative << 15 | (uint32_t)(127 + power) << 7 | (mantissa - 128));
        r.v[i] = ldexp((negative ? -1.0 : 1.0) * mantissa, power - 7);
    }
    struct rig_buf b = rig_data(data, (uint64_t)rows * cols * sizeof *data);
    r.w = (ebro_weight){.mem = b.span.mem,
                        .offset = b.span.offset,
                        .rows = rows,
                        .cols = cols,
                        .stride = cols,
                        .dtype = EBRO_BF16};
    return r;
}

/* Rows of x from 2^-70 to 2^70, each with one value far above the others: what multiplies in a
 * narrower type must not lose the small ones, nor the large ones. */
static void linear_scales(void **state) {
    const uint32_t rows = 45, in = 160, out = 20;
    for (int i = 0; i < 5; i++) {
        struct rig_weight w = i < 4 ? rig_weight(dtypes[i], out, in, 0) : wide_weight(out, in);
        float *x = rig_normal(rows * in, 1);
        for (uint32_t r = 0; r < rows; r++) {
            x[r * in + r * 7 % in] *= 4096;
            for (uint32_t c = 0; c < in; c++)
                x[r * in + c] = ldexpf(x[r * in + c], (int)(r * 53 % 141) - 70);
        }
        struct rig_mat xm = rig_mat_from(x, rows, in, 0), ym = rig_mat(rows, out, 0);
        ebro_linear_args a = {.size = sizeof a, .x = xm.m, .n_rows = rows, .n_items = 1};
        a.n_batch = 1;
        a.items[0] = (ebro_linear_item){.w = w.w, .out = ym.m};
        a.scratch = rig_scratch(EBRO_OP_LINEAR, &a);
        test_ok(eb_op_linear(&rig.s, &a, &rig.err), &rig.err);
        rig_sync();
        check_product(rig_mat_get(&ym), x, rows, w.v, &w.w, NULL, i < 4 ? "scales" : "wide");
        rig_reset(state);
    }
}

/* Several weights, several batches: per-head products as MLA makes them. */
static void linear_batches(void **state) {
    (void)state;
    const uint32_t rows = 3, batch = 4, in = 48, out[2] = {40, 17};
    for (int transposed = 0; transposed < 2; transposed++) {
        float *x = rig_normal(rows * batch * in, 1);
        struct rig_mat xm = rig_mat_from(x, rows, batch * in, 7), y[2];
        struct rig_weight w[2];
        ebro_linear_args a = {.size = sizeof a, .x = xm.m, .n_rows = rows, .n_items = 2};
        a.n_batch = batch;
        a.x_batch_elements = in;
        for (int i = 0; i < 2; i++) {
            w[i] = transposed ? rig_weights(batch, dtypes[i + 1], in, out[i], 3)
                              : rig_weights(batch, dtypes[i + 1], out[i], in, 3);
            w[i].w.transposed = transposed;
            y[i] = rig_mat(rows, batch * out[i], 2);
            a.items[i] = (ebro_linear_item){.w = w[i].w,
                                            .out = y[i].m,
                                            .w_batch_bytes = w[i].bytes,
                                            .out_batch_elements = out[i]};
        }
        a.scratch = rig_scratch(EBRO_OP_LINEAR, &a);
        test_ok(eb_op_linear(&rig.s, &a, &rig.err), &rig.err);
        rig_sync();
        for (int i = 0; i < 2; i++) {
            const float *got = rig_mat_get(&y[i]);
            for (uint32_t b = 0; b < batch; b++) {
                for (uint32_t r = 0; r < rows; r++) {
                    check_product(got + (r * batch + b) * out[i], x + (r * batch + b) * in, 1,
                                  w[i].v + (uint64_t)b * in * out[i], &w[i].w, NULL, "batch");
                }
            }
        }
    }
}

/* A row gives the same bytes alone and in company. */
static void linear_splits(void **state) {
    (void)state;
    const uint32_t rows = 37, in = 1056, out = 21;
    test_device_needs(EBRO_CAP_STRICT);
    for (int i = 0; i < 4; i++) {
        struct rig_weight w = rig_weight(dtypes[i], out, in, 0);
        float *x = rig_normal(rows * in, 1);
        struct rig_mat xm = rig_mat_from(x, rows, in, 0), together = rig_mat(rows, out, 0),
                       alone = rig_mat(rows, out, 0);
        ebro_linear_args a = {.size = sizeof a, .x = xm.m, .n_rows = rows, .n_items = 1};
        a.n_batch = 1;
        a.items[0] = (ebro_linear_item){.w = w.w, .out = together.m};
        a.scratch = rig_scratch(EBRO_OP_LINEAR, &a);
        test_ok(eb_op_linear(&rig.s, &a, &rig.err), &rig.err);
        a.n_rows = 1;
        a.items[0].out = alone.m;
        for (uint32_t r = 0; r < rows; r++) {
            test_ok(eb_op_linear(&rig.s, &a, &rig.err), &rig.err);
            a.x.offset += in * sizeof(float);
            a.items[0].out.offset += out * sizeof(float);
        }
        rig_sync();
        assert_memory_equal(rig_mat_get(&together), rig_mat_get(&alone), rows * out * 4);
    }
}

static ebro_weight golden_mx(const struct test_golden *g, const char *name) {
    const struct eb_tensor *p = test_tensor(g, "%s.packed", name);
    const struct eb_tensor *s = test_tensor(g, "%s.scale", name);
    struct rig_buf data = rig_data(p->data, p->bytes), scale = rig_data(s->data, s->bytes);
    return (ebro_weight){.mem = data.span.mem,
                         .offset = data.span.offset,
                         .stride = p->shape[1] * 2,
                         .rows = (uint32_t)p->shape[0],
                         .cols = (uint32_t)p->shape[1] * 2,
                         .dtype = EBRO_MXFP4,
                         .scale_mem = scale.span.mem,
                         .scale_offset = scale.span.offset};
}

static const float *multiply(const ebro_weight *w, const float *x, uint32_t n_rows) {
    struct rig_mat xm = rig_mat_from(x, n_rows, w->cols, 0), ym = rig_mat(n_rows, w->rows, 0);
    ebro_linear_args a = {
        .size = sizeof a, .x = xm.m, .n_rows = n_rows, .n_items = 1, .n_batch = 1};
    a.items[0] = (ebro_linear_item){.w = *w, .out = ym.m};
    a.scratch = rig_scratch(EBRO_OP_LINEAR, &a);
    test_ok(eb_op_linear(&rig.s, &a, &rig.err), &rig.err);
    rig_sync();
    return rig_mat_get(&ym);
}

/* Columns one by one, each times `by`: what is left is the decoding alone, and that is exact. */
static void check_decode(const struct test_golden *g, const char *name, int exponent) {
    ebro_weight w = golden_mx(g, name);
    double *ref = rig_keep(test_f64(test_tensor(g, "%s.dequant_f64", name)));
    float *x = rig_host((uint64_t)w.cols * w.cols, sizeof *x);
    for (uint32_t c = 0; c < w.cols; c++) x[c * w.cols + c] = ldexpf(1, exponent);
    const float *got = multiply(&w, x, w.cols);
    for (uint32_t c = 0; c < w.cols; c++) {
        for (uint32_t r = 0; r < w.rows; r++) {
            float want = (float)ldexp(ref[r * w.cols + c], exponent), is = got[c * w.rows + r];
            /* Graphics devices may take 0 for a subnormal result. */
            bool may_flush = (rig.device->caps.bits & EBRO_CAP_STRICT) == 0;
            if (may_flush && fabsf(want) < FLT_MIN && is == 0.0f) continue;
            if (is != want) {
                fail_msg("%s: (%u, %u) times 2^%d is %a, not %a", name, r, c, exponent, (double)is,
                         (double)want);
            }
        }
    }
}

static void linear_mxfp4_golden(void **state) {
    (void)state;
    struct test_golden *g = test_golden_open("op_mxfp4.safetensors");
    check_decode(g, "all_codes", 0);
    check_decode(g, "random", 0);
    check_decode(g, "extreme", 0);    /* 2^127 * 2 is infinite, 2^-127 is not lost */
    check_decode(g, "extreme", -100); /* x brings the large ones back into range */
    check_decode(g, "extreme", 100);  /* ... and the small ones */
    ebro_weight w = golden_mx(g, "random");
    float *x = rig_keep(test_f32(test_tensor(g, "random.x")));
    double *v = rig_keep(test_f64(test_tensor(g, "random.dequant_f64")));
    double *ref = rig_keep(test_f64(test_tensor(g, "random.gemv_f64")));
    const float *got = multiply(&w, x, 1);
    check_product(got, x, 1, v, &w, NULL, "random.gemv");
    test_le(test_rel_fro(got, ref, w.rows), 1e-6, "random.gemv"); /* sqrt(128) u, no cancellation */
}

/* ---- embed ------------------------------------------------------------------------------ */

static void embed(void **state) {
    (void)state;
    const uint32_t vocab = 50, hidden = 77;
    const int32_t ids[] = {0, 49, 50, -1, 7, 7, INT32_MAX, INT32_MIN, 31};
    const uint32_t n = sizeof ids / sizeof ids[0];
    for (int i = 0; i < 3; i++) {
        struct rig_weight w = rig_weight(dtypes[i], vocab, hidden, 3);
        struct rig_mat out = rig_mat(n, hidden, 5);
        ebro_embed_args a = {.size = sizeof a,
                             .ids = rig_data(ids, sizeof ids).span,
                             .n_rows = n,
                             .table = w.w,
                             .out = out.m};
        test_ok(eb_op_embed(&rig.s, &a, &rig.err), &rig.err);
        rig_sync();
        const float *got = rig_mat_get(&out);
        for (uint32_t r = 0; r < n; r++) {
            bool known = ids[r] >= 0 && ids[r] < (int32_t)vocab;
            for (uint32_t c = 0; c < hidden; c++) {
                double want = known ? w.v[(uint32_t)ids[r] * hidden + c] : 0.0;
                assert_true((double)got[r * hidden + c] == want);
            }
        }
    }
}

/* A table in parts, each in a memory of its own; an id that none of them holds is zeros by the
 * first, and no other part touches a row that is not its own. */
static void embed_in_parts(void **state) {
    (void)state;
    const uint32_t hidden = 76, ends[] = {17, 49, 50};
    const int32_t ids[] = {16, 17, 49, 50, -1, 0, 48, INT32_MAX, INT32_MIN, 17};
    const uint32_t n = sizeof ids / sizeof ids[0];
    for (int i = 0; i < 3; i++) {
        struct rig_mat out = rig_mat(n, hidden, 4);
        double *want = rig_host((uint64_t)n * hidden, sizeof *want);
        for (uint32_t p = 0, first = 0; p < 3; first = ends[p++]) {
            struct rig_weight w = rig_weight(dtypes[i], ends[p] - first, hidden, 4);
            ebro_embed_args a = {.size = sizeof a,
                                 .ids = rig_data(ids, sizeof ids).span,
                                 .n_rows = n,
                                 .table = w.w,
                                 .out = out.m,
                                 .first_id = first,
                                 .keep = p > 0};
            test_ok(eb_op_embed(&rig.s, &a, &rig.err), &rig.err);
            rig_sync();
            for (uint32_t r = 0; r < n; r++) {
                if (ids[r] < (int32_t)first || ids[r] >= (int32_t)ends[p]) continue;
                memcpy(&want[r * hidden], &w.v[((uint32_t)ids[r] - first) * hidden],
                       hidden * sizeof *want);
            }
        }
        const float *got = rig_mat_get(&out);
        for (uint32_t c = 0; c < n * hidden; c++) assert_true((double)got[c] == want[c]);
    }
}

/* Rows that start at multiples of 16 bytes, and are longer than a few thousand threads take at
 * once. */
static void embed_long(void **state) {
    const uint32_t vocab = 5, hidden = 2310;
    const int32_t ids[] = {4, 0, 5, 2};
    for (int i = 0; i < 3; i++) {
        struct rig_weight w = rig_weight(dtypes[i], vocab, hidden, 2);
        struct rig_mat out = rig_mat(4, hidden, 2);
        ebro_embed_args a = {.size = sizeof a,
                             .ids = rig_data(ids, sizeof ids).span,
                             .n_rows = 4,
                             .table = w.w,
                             .out = out.m};
        test_ok(eb_op_embed(&rig.s, &a, &rig.err), &rig.err);
        rig_sync();
        const float *got = rig_mat_get(&out);
        for (uint32_t r = 0; r < 4; r++) {
            for (uint32_t c = 0; c < hidden; c++) {
                double want = r != 2 ? w.v[(uint32_t)ids[r] * hidden + c] : 0.0;
                assert_true((double)got[r * hidden + c] == want);
            }
        }
        rig_reset(state);
    }
}

/* Every bit pattern of the two narrow types. */
static void embed_patterns(void **state) {
    (void)state;
    int32_t ids[256];
    uint16_t *bits = rig_host(65536, 2);
    for (uint32_t i = 0; i < 65536; i++) bits[i] = (uint16_t)i;
    for (int32_t i = 0; i < 256; i++) ids[i] = i;
    struct rig_buf data = rig_data(bits, 65536 * 2), idb = rig_data(ids, sizeof ids);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        struct rig_mat out = rig_mat(256, 256, 1);
        ebro_embed_args a = {.size = sizeof a, .ids = idb.span, .n_rows = 256, .out = out.m};
        a.table = (ebro_weight){.mem = data.span.mem, .offset = data.span.offset, .stride = 256};
        a.table.rows = a.table.cols = 256;
        a.table.dtype = bf16 ? EBRO_BF16 : EBRO_F16;
        test_ok(eb_op_embed(&rig.s, &a, &rig.err), &rig.err);
        rig_sync();
        const float *got = rig_mat_get(&out);
        int width = bf16 ? 7 : 10, bias = bf16 ? 127 : 15, last = bf16 ? 255 : 31;
        for (int32_t i = 0; i < 65536; i++) {
            int exponent = (i >> width) & last, mantissa = i & ((1 << width) - 1);
            double sign = i & 0x8000 ? -1.0 : 1.0, want = sign * HUGE_VAL;
            if (exponent == last && mantissa != 0) {
                assert_true(isnan(got[i]));
                continue;
            }
            if (exponent == 0) want = sign * ldexp(mantissa, 1 - bias - width);
            if (exponent > 0 && exponent < last) {
                want = sign * ldexp(mantissa + (1 << width), exponent - bias - width);
            }
            if ((double)got[i] != want || !signbit(got[i]) != !signbit(want)) {
                fail_msg("%s %#x: %a, not %a", bf16 ? "bf16" : "f16", (unsigned)i, (double)got[i],
                         want);
            }
        }
    }
}

/* ---- rms_norm --------------------------------------------------------------------------- */

static const float *norm(const float *x, uint32_t rows, uint32_t cols, float eps,
                         const ebro_vec *weight, const float *gate, bool in_place) {
    struct rig_mat xm = rig_mat_from(x, rows, cols, 3),
                   out = in_place ? xm : rig_mat(rows, cols, 1);
    ebro_rms_norm_args a = {.size = sizeof a, .x = xm.m, .out = out.m, .n_rows = rows};
    a.n_cols = cols;
    a.eps = eps;
    if (weight) a.weight = *weight;
    if (gate) a.gate = rig_mat_from(gate, rows, cols, 2).m;
    test_ok(eb_op_rms_norm(&rig.s, &a, &rig.err), &rig.err);
    rig_sync();
    return rig_mat_get(&out);
}

static void norm_random(void **state) {
    static const uint32_t shapes[][2] = {{0, 8}, {1, 1}, {3, 128}, {5, 257}, {2, 2304}, {9, 13}};
    for (uint32_t v = 0; v < 8 * 6; v++) {
        uint32_t rows = shapes[v / 8][0], cols = shapes[v / 8][1];
        float *x = rig_normal(rows * cols, 3), *gate = v & 2 ? rig_normal(rows * cols, 4) : NULL;
        double *w = NULL;
        ebro_vec weight = rig_vec(dtypes[v % 3], cols, &w);
        const float *got = norm(x, rows, cols, 1e-5f, v & 1 ? &weight : NULL, gate, v & 4);
        for (uint32_t i = 0; i < rows * cols; i++) {
            double inv = eb_ref_inverse_rms(x + i / cols * cols, cols, (double)1e-5f);
            double want = (double)x[i] * inv;
            if (v & 1) want *= w[i % cols];
            if (gate) want *= eb_ref_sigmoid((double)gate[i]);
            test_le(fabs((double)got[i] - want), eb_budget_norm(cols).value * fabs(want),
                    "rms_norm variant %u %ux%u element %u", v, rows, cols, i);
        }
        rig_reset(state);
    }
}

static void norm_golden(void **state) {
    (void)state;
    struct test_golden *g = test_golden_open("op_misc.safetensors");
    float *x = rig_keep(test_f32(test_tensor(g, "rmsnorm.x")));
    float *w = rig_keep(test_f32(test_tensor(g, "rmsnorm.weight")));
    ebro_vec weight = rig_vec_from(w, 256);
    double *ref = rig_keep(test_f64(test_tensor(g, "rmsnorm.out_eps1e5")));
    test_le(test_rel_max(norm(x, 6, 256, 1e-5f, &weight, NULL, false), ref, 6 * 256), 1e-6, "1e-5");
    ref = rig_keep(test_f64(test_tensor(g, "rmsnorm.out_eps1e6")));
    test_le(test_rel_max(norm(x, 6, 256, 1e-6f, &weight, NULL, true), ref, 6 * 256), 1e-6, "1e-6");

    x = rig_keep(test_f32(test_tensor(g, "gated_norm.o")));
    float *gate = rig_keep(test_f32(test_tensor(g, "gated_norm.gate")));
    w = rig_keep(test_f32(test_tensor(g, "gated_norm.weight")));
    weight = rig_vec_from(w, 128);
    ref = rig_keep(test_f64(test_tensor(g, "gated_norm.out")));
    test_le(test_rel_max(norm(x, 27, 128, 1e-5f, &weight, gate, false), ref, 27 * 128), 1e-6,
            "gated_norm");
}

/* Rows whose squares do not fit f32, zeros, and numbers that eps outweighs. */
static void norm_extremes(void **state) {
    (void)state;
    float x[4 * 8];
    for (int i = 0; i < 8; i++) {
        x[i] = 1e30f;
        x[8 + i] = 0.0f;
        x[16 + i] = 1e-30f;
        x[24 + i] = i == 3 ? 3e38f : 1.0f;
    }
    const float *got = norm(x, 4, 8, 1e-5f, NULL, NULL, false);
    /* A graphics device may miss a quotient by 2.5 and a root by 3 units in the last place. */
    const double slack = (rig.device->caps.bits & EBRO_CAP_STRICT) != 0 ? 1 : 4;
    for (int i = 0; i < 8; i++) {
        test_le(fabs((double)got[i] - 1.0), 4 * u * slack, "large");
        assert_true(got[8 + i] == 0.0f);
        test_le(fabs((double)got[16 + i] / (1e-30 / sqrt(1e-5)) - 1.0), 1e-6, "small");
    }
    test_le(fabs((double)got[27] - sqrt(8.0)), 8 * u * slack, "one large");
}

/* ---- act_mul ---------------------------------------------------------------------------- */

/* padding: of the gate's rows; up and out have 1 and 2 less. */
static const float *act_padded(int32_t kind, const float *gate, const float *up, uint32_t rows,
                               uint32_t cols, uint32_t group, int place, uint32_t padding) {
    uint32_t less = padding % 4 != 0;
    struct rig_mat gm = rig_mat_from(gate, rows, cols / group, padding),
                   um = rig_mat_from(up, rows, cols, padding - less),
                   out = place == 1   ? um
                         : place == 2 ? gm
                                      : rig_mat(rows, cols, padding - 2 * less);
    ebro_act_mul_args a = {.size = sizeof a, .gate = gm.m, .up = um.m, .out = out.m};
    a.n_rows = rows;
    a.n_cols = cols;
    a.gate_group = group;
    a.kind = kind;
    a.beta = 4;
    a.beta2 = 25;
    test_ok(eb_op_act_mul(&rig.s, &a, &rig.err), &rig.err);
    rig_sync();
    return rig_mat_get(&out);
}

static const float *act(int32_t kind, const float *gate, const float *up, uint32_t rows,
                        uint32_t cols, uint32_t group, int place) {
    return act_padded(kind, gate, up, rows, cols, group, place, 3);
}

static void act_random(void **state) {
    const uint32_t rows = 3, cols = 60;
    for (int32_t kind = EBRO_ACT_SILU; kind <= EBRO_ACT_SIGMOID; kind++) {
        for (int place = 0; place < 3; place++) {
            for (uint32_t group = 1; group <= (place == 2 ? 1u : 12u); group += 11) {
                float *gate = rig_normal(rows * cols / group, 8), *up = rig_normal(rows * cols, 20);
                const float *got = act(kind, gate, up, rows, cols, group, place);
                for (uint32_t i = 0; i < rows * cols; i++) {
                    double want = eb_ref_act(kind, 4, 25, (double)gate[i / group], (double)up[i]);
                    test_le(fabs((double)got[i] - want), eb_budget_act().value * fabs(want) + 1e-38,
                            "act %d place %d group %u", kind, place, group);
                }
                rig_reset(state);
            }
        }
    }
}

/* Rows that start at multiples of 16 bytes, long ones and many short ones. */
static void act_long(void **state) {
    static const uint32_t shapes[][3] = {{2, 4100, 1}, {300, 12, 1}, {70, 96, 24}};
    for (uint32_t v = 0; v < 9; v++) {
        uint32_t rows = shapes[v / 3][0], cols = shapes[v / 3][1], group = shapes[v / 3][2];
        int32_t kind = (int32_t)(v % 3);
        float *gate = rig_normal(rows * cols / group, 8), *up = rig_normal(rows * cols, 20);
        const float *got = act_padded(kind, gate, up, rows, cols, group, (int)(v % 2), 4);
        for (uint32_t i = 0; i < rows * cols; i++) {
            double want = eb_ref_act(kind, 4, 25, (double)gate[i / group], (double)up[i]);
            test_le(fabs((double)got[i] - want), eb_budget_act().value * fabs(want) + 1e-38,
                    "act %d %ux%u", kind, rows, cols);
        }
        rig_reset(state);
    }
}

static void act_golden(void **state) {
    (void)state;
    struct test_golden *g = test_golden_open("op_misc.safetensors");
    float *gate = rig_keep(test_f32(test_tensor(g, "situ.gate")));
    float *up = rig_keep(test_f32(test_tensor(g, "situ.up")));
    double *ref = rig_keep(test_f64(test_tensor(g, "situ.out")));
    const float *got = act(EBRO_ACT_SITU, gate, up, 1, 2014, 1, 0);
    for (uint32_t i = 0; i < 2014; i++) {
        test_le(fabs((double)got[i] - ref[i]), eb_budget_act().value * fabs(ref[i]) + 1e-38,
                "situ %u", i);
    }
}

/* No input overflows on the way to a result that is small. */
static void act_extremes(void **state) {
    (void)state;
    const float x[] = {-3e38f, -1e4f, -200,  -100, -88,   88,    100,
                       200,    1e4f,  3e38f, 0.0f, -0.0f, 1e-40f};
    const uint32_t n = sizeof x / sizeof x[0];
    float *one = rig_host(n, sizeof *one);
    for (uint32_t i = 0; i < n; i++) one[i] = 1.0f;
    for (int32_t kind = EBRO_ACT_SILU; kind <= EBRO_ACT_SIGMOID; kind++) {
        const float *got = act(kind, x, one, 1, n, 1, 0);
        for (uint32_t i = 0; i < n; i++) {
            double want = eb_ref_act(kind, 4, 25, (double)x[i], 1.0);
            /* Below the smallest normal number relative precision ends. */
            test_le(fabs((double)got[i] - want), eb_budget_act().value * fabs(want) + 1e-37,
                    "act %d of %g", kind, (double)x[i]);
        }
    }
}

/* ---- attn_res_mix ----------------------------------------------------------------------- */

/* values [n][rows][cols]. in_place: out is source number in_place. step: of paddings. */
static void check_mix(const float *values, uint32_t n, uint32_t rows, uint32_t cols,
                      const ebro_vec *norm_weight, const ebro_vec *proj, const double *w,
                      const double *p, const double *ref, const double *ref_probs, int in_place,
                      uint32_t step) {
    ebro_attn_res_mix_args a = {.size = sizeof a, .n_sources = n, .n_rows = rows, .n_cols = cols};
    struct rig_mat out = rig_mat(rows, cols, 3 * step), probs = rig_mat(rows, n, 2);
    for (uint32_t s = 0; s < n; s++) {
        struct rig_mat m = rig_mat_from(values + (uint64_t)s * rows * cols, rows, cols, s * step);
        a.sources[s] = m.m;
        if (in_place == (int)s) out = m;
    }
    a.norm_weight = *norm_weight;
    a.proj = *proj;
    a.eps = 1e-5f;
    a.out = out.m;
    a.probs = probs.m;
    test_ok(eb_op_attn_res_mix(&rig.s, &a, &rig.err), &rig.err);
    rig_sync();
    const float *got = rig_mat_get(&out), *got_probs = rig_mat_get(&probs);
    for (uint32_t r = 0; r < rows; r++) {
        const float *sources[EBRO_MAX_SOURCES];
        double share[EBRO_MAX_SOURCES], slack;
        for (uint32_t s = 0; s < n; s++) sources[s] = values + ((uint64_t)s * rows + r) * cols;
        eb_ref_mix_probs(sources, n, cols, w, p, (double)1e-5f, share, &slack);
        const double bound = eb_budget_mix(cols, slack).value;
        for (uint32_t s = 0; s < n; s++) {
            if (ref_probs) test_le(fabs(share[s] - ref_probs[r * n + s]), 2 * u, "reference");
            test_le(fabs((double)got_probs[r * n + s] - share[s]),
                    eb_budget_share(cols, slack).value, "probs of %u", n);
        }
        for (uint32_t c = 0; c < cols; c++) {
            double want = 0, size = 0;
            for (uint32_t s = 0; s < n; s++) {
                double x = (double)values[((uint64_t)s * rows + r) * cols + c];
                want += share[s] * x;
                size += share[s] * fabs(x);
            }
            if (ref) test_le(fabs(want - ref[r * cols + c]), 4 * u * (size + 1e-3), "reference");
            test_le(fabs((double)got[r * cols + c] - want), bound * size,
                    "mix of %u, row %u column %u", n, r, c);
        }
    }
}

static void mix_golden(void **state) {
    struct test_golden *g = test_golden_open("op_misc.safetensors");
    static const uint32_t n[] = {1, 2, 4, 9};
    for (size_t i = 0; i < 4; i++) {
        float *values = rig_keep(test_f32(test_tensor(g, "attn_res%u.values", n[i])));
        float *wf = rig_keep(test_f32(test_tensor(g, "attn_res%u.norm", n[i])));
        float *pf = rig_keep(test_f32(test_tensor(g, "attn_res%u.proj", n[i])));
        double *w = rig_keep(test_f64(test_tensor(g, "attn_res%u.norm", n[i])));
        double *p = rig_keep(test_f64(test_tensor(g, "attn_res%u.proj", n[i])));
        double *out = rig_keep(test_f64(test_tensor(g, "attn_res%u.out", n[i])));
        double *probs = rig_keep(test_f64(test_tensor(g, "attn_res%u.probs", n[i])));
        ebro_vec norm_weight = rig_vec_from(wf, 256), proj = rig_vec_from(pf, 256);
        check_mix(values, n[i], 5, 256, &norm_weight, &proj, w, p, out, probs, -1, i % 2 ? 4 : 1);
        check_mix(values, n[i], 5, 256, &norm_weight, &proj, w, p, out, probs, (int)n[i] - 1, 1);
        rig_reset(state);
    }
}

static void mix_random(void **state) {
    for (uint32_t n = 1; n <= EBRO_MAX_SOURCES; n = n * 2 + n % 3) {
        const uint32_t rows = 3, cols = 301;
        double *w = NULL, *p = NULL;
        ebro_vec norm_weight = rig_vec(dtypes[n % 3], cols, &w);
        ebro_vec proj = rig_vec(dtypes[(n + 1) % 3], cols, &p);
        check_mix(rig_normal(n * rows * cols, 2), n, rows, cols, &norm_weight, &proj, w, p, NULL,
                  NULL, (int)rig_below(n), 1);
        rig_reset(state);
    }
}

/* Long rows that start at multiples of 16 bytes, of a model's width. */
static void mix_long(void **state) {
    (void)state;
    const uint32_t n = 7, rows = 2, cols = 2308;
    double *w = NULL, *p = NULL;
    ebro_vec norm_weight = rig_vec(EBRO_BF16, cols, &w), proj = rig_vec(EBRO_F32, cols, &p);
    check_mix(rig_normal(n * rows * cols, 2), n, rows, cols, &norm_weight, &proj, w, p, NULL, NULL,
              3, 4);
}

/* Sources whose squares do not fit f32, on either side: a score does not depend on its source's
 * size, but for eps. */
static void mix_extremes(void **state) {
    (void)state;
    enum { COLS = 40 };
    static const float sizes[3] = {1.0f, 1e30f, 1e-30f};
    float *values = rig_host(3 * COLS, sizeof *values);
    double score = 0;
    for (int c = 0; c < COLS; c++) {
        for (int s = 0; s < 3; s++) values[s * COLS + c] = (float)(c % 5 - 1) * sizes[s];
    }
    /* x = -1, 0, 1, 2, 3 again and again: mean 1, mean square 3. */
    score = COLS / sqrt(3.0) / 8;
    float *w = rig_host(COLS, sizeof *w), *p = rig_host(COLS, sizeof *p);
    for (int c = 0; c < COLS; c++) {
        w[c] = 0.5f;
        p[c] = 0.25f;
    }
    ebro_attn_res_mix_args a = {.size = sizeof a, .n_sources = 3, .n_rows = 1, .n_cols = COLS};
    struct rig_mat out = rig_mat(1, COLS, 0), probs = rig_mat(1, 3, 0);
    for (int s = 0; s < 3; s++) a.sources[s] = rig_mat_from(values + s * COLS, 1, COLS, 0).m;
    a.norm_weight = rig_vec_from(w, COLS);
    a.proj = rig_vec_from(p, COLS);
    a.out = out.m;
    a.probs = probs.m;
    for (int eps = 0; eps < 2; eps++) {
        a.eps = eps ? 1e-5f : 0.0f;
        test_ok(eb_op_attn_res_mix(&rig.s, &a, &rig.err), &rig.err);
        rig_sync();
        const float *got = rig_mat_get(&probs);
        /* With eps, the smallest source's score is about 0. */
        double last = eps ? 1.0 : exp(score), sum = 2 * exp(score) + last;
        test_le(fabs((double)got[0] - exp(score) / sum), 1e-5, "of ordinary size, eps %d", eps);
        test_le(fabs((double)got[1] - exp(score) / sum), 1e-5, "large, eps %d", eps);
        test_le(fabs((double)got[2] - last / sum), 1e-5, "small, eps %d", eps);
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_teardown(f, rig_reset)
    const struct CMUnitTest tests[] = {
        CASE(linear_shapes),       CASE(linear_scales), CASE(linear_batches), CASE(linear_splits),
        CASE(linear_mxfp4_golden), CASE(embed),         CASE(embed_patterns), CASE(embed_in_parts),
        CASE(embed_long),          CASE(norm_random),   CASE(norm_golden),    CASE(norm_extremes),
        CASE(act_random),          CASE(act_golden),    CASE(act_extremes),   CASE(act_long),
        CASE(mix_golden),          CASE(mix_random),    CASE(mix_long),       CASE(mix_extremes),
    };
    return rig_run("opcheck/general", tests);
}
