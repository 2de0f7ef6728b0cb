/* mla.c: mla_prefill and mla_decode against golden vectors and a float64 attention. mla_append is
 * tested in mla_append.c.
 *
 * Bounds: eb_budget_attention (check/budget.h).
 */
#include "tests/opcheck/mla_ref.h"

static const uint32_t page_sizes[] = {1, 16, 64};
static const int32_t dtypes[] = {EBRO_F32, EBRO_BF16, EBRO_F16};

enum { MIN_CASES = 4 }; /* of the golden file: what the tree holds at least */

/* largest: of the scores' sizes. */
static double bound_for(double largest) {
    return eb_budget_attention(rig.device->caps.bits, largest).value;
}

static void near(const float *got, const double *ref, uint64_t n, double bound, const char *what) {
    test_le(test_rel_fro(got, ref, n), bound, "%s", what);
    test_le(test_rel_max(got, ref, n), bound, "%s", what);
}

static void lse_near(const float *got, const double *ref, uint64_t n, double largest,
                     const char *what) {
    for (uint64_t i = 0; i < n; i++) {
        if (isinf(ref[i])) {
            if (!(isinf(got[i]) && got[i] < 0)) fail_msg("%s: lse %g", what, (double)got[i]);
            continue;
        }
        test_le(fabs((double)got[i] - ref[i]), bound_for(largest), "%s: lse", what);
    }
}

/* ---- golden vectors --------------------------------------------------------------------- */

struct golden {
    struct eb_ref_mla s;
    double *kv_b;
    ebro_weight w;
};

/* One set of queries, the last of which sees all n_tokens, in both forms. Scores are of the order
 * of one. */
static void golden_rows(const struct golden *g, struct mla_cache *c, uint32_t n_tokens,
                        const float *q, const double *o, uint32_t n_rows, const char *what) {
    const struct eb_ref_mla *s = &g->s;
    struct eb_ref_plan p = seq_one(n_rows, 0, 0);
    int32_t context = (int32_t)(n_tokens - n_rows);
    uint64_t n = (uint64_t)n_rows * s->n_heads;
    mla_cache_upload(c, &context);
    near(mla_prefill(s, &p, c, mla_all, q, &g->w, NULL), o, n * s->v_dim, bound_for(1), what);

    float *absorbed = mla_narrow(mla_absorb(s, q, n_rows, g->kv_b), n * eb_ref_mla_width(s));
    const float *latent = mla_decode(s, &p, c, mla_all, absorbed, NULL);
    double *wide = rig_host(n * s->kv_lora, sizeof *wide);
    for (uint64_t i = 0; i < n * s->kv_lora; i++) wide[i] = (double)latent[i];
    near(mla_narrow(mla_values(s, wide, n_rows, g->kv_b), n * s->v_dim), o, n * s->v_dim,
         bound_for(1), what);
}

static void golden_case(const struct test_golden *file, const struct golden *g, const char *name) {
    const struct eb_tensor *t = test_tensor(file, "%s.latent", name);
    uint32_t n_tokens = (uint32_t)t->shape[0], n_rows = n_tokens < 8 ? n_tokens : 8;
    double *latent = rig_keep(test_f64(t));
    double *key = rig_keep(test_f64(test_tensor(file, "%s.k_pe", name)));
    float *pq = rig_keep(test_f32(test_tensor(file, "%s.prefill.q", name)));
    double *po = rig_keep(test_f64(test_tensor(file, "%s.prefill.o", name)));
    float *dq = rig_keep(test_f32(test_tensor(file, "%s.decode.q", name)));
    double *d = rig_keep(test_f64(test_tensor(file, "%s.decode.o", name)));
    for (int i = 0; i < 6; i++) {
        char what[96];
        uint32_t page = page_sizes[i % 3];
        struct mla_cache c =
            mla_cache(1, 0, n_tokens, eb_ref_mla_width(&g->s), page, dtypes[i / 3]);
        for (uint32_t k = 0; k < n_tokens; k++) {
            mla_cache_put(&c, 0, k, latent + (uint64_t)k * g->s.kv_lora, g->s.kv_lora,
                          key + (uint64_t)k * g->s.rope);
        }
        snprintf(what, sizeof what, "%s prefill, pages of %u, %s", name, page,
                 eb_dtype_name(dtypes[i / 3]));
        golden_rows(g, &c, n_tokens, pq, po, n_rows, what);
        snprintf(what, sizeof what, "%s decode, pages of %u, %s", name, page,
                 eb_dtype_name(dtypes[i / 3]));
        golden_rows(g, &c, n_tokens, dq, d, 1, what);
    }
}

static void golden(void **state) {
    (void)state;
    struct test_golden *file = test_golden_open("op_mla.safetensors");
    const struct eb_tensor *t = test_tensor(file, "kv_b_proj");
    struct golden g = {.s = {4, 128, 64, 128, 512, (float)(1.0 / sqrt(192.0))}};
    int n_cases = 0;
    assert_int_equal(test_count(t), 4 * 256 * 512);
    assert_int_equal(t->dtype, EBRO_BF16);
    g.kv_b = rig_keep(test_f64(t));
    struct rig_buf w = rig_data(t->data, t->bytes);
    g.w = (ebro_weight){.mem = w.span.mem,
                        .offset = w.span.offset,
                        .stride = 512,
                        .rows = 4 * 256,
                        .cols = 512,
                        .dtype = EBRO_BF16};
    for (size_t i = 0; i < file->st.n_tensors; i++) {
        char name[64];
        const char *dot = strchr(file->st.tensors[i].name, '.');
        if (!dot || strcmp(dot, ".latent") != 0) continue;
        size_t n = (size_t)(dot - file->st.tensors[i].name);
        assert_true(n < sizeof name);
        memcpy(name, file->st.tensors[i].name, n);
        name[n] = '\0';
        struct seq_mark mark = seq_mark();
        golden_case(file, &g, name);
        seq_release(mark);
        n_cases++;
    }
    printf("op_mla: %d cases\n", n_cases);
    assert_true(n_cases >= MIN_CASES);
}

/* ---- random cases ----------------------------------------------------------------------- */

/* Shape, sequences, cache, queries and reference of one random call. */
struct problem {
    struct eb_ref_mla s;
    struct eb_ref_plan p;
    int32_t context[EB_REF_MAX_SEQS];
    struct mla_cache c;
    struct rig_weight kv_b;
    float *q, *absorbed;
    double *wide; /* absorbed, as floats hold it */
};

static struct eb_ref_mla random_shape(void) {
    static const struct eb_ref_mla shapes[] = {
        {4, 128, 64, 128, 512, 0}, {3, 32, 16, 32, 64, 0}, {1, 24, 8, 40, 96, 0},
        {5, 64, 0, 16, 160, 0},    {2, 48, 12, 20, 32, 0},
    };
    struct eb_ref_mla s = shapes[rig_below(5)];
    s.scale = (float)(1.0 / sqrt((double)(s.nope + s.rope)));
    return s;
}

/* q_scale: how large the queries are. */
static void fill_problem(struct problem *b, uint32_t page_tokens, int32_t dtype, int32_t w_dtype,
                         float q_scale) {
    uint32_t n_rows = eb_ref_rows(&b->p), most = 1, width = eb_ref_mla_width(&b->s);
    uint32_t n_w = b->s.n_heads * (b->s.nope + b->s.v_dim);
    for (uint32_t k = 0; k < b->p.n_seqs; k++) {
        uint32_t n = (uint32_t)(b->context[k] + b->p.offsets[k + 1] - b->p.offsets[k]);
        if (n > most) most = n;
    }
    b->c = mla_cache(b->p.n_seqs, 0, most, width, page_tokens, dtype);
    for (uint32_t k = 0; k < b->p.n_seqs; k++) {
        uint32_t n = (uint32_t)(b->context[k] + b->p.offsets[k + 1] - b->p.offsets[k]);
        mla_cache_random(&b->c, k, n);
    }
    mla_cache_upload(&b->c, b->context);
    uint32_t padding = w_dtype == EBRO_MXFP4 ? 0 : rig_below(2) * 8;
    b->kv_b = rig_weight(w_dtype, n_w, b->s.kv_lora, padding);
    /* Weights and cache are of the order of one: queries that bring scores there. */
    float size = q_scale / sqrtf((float)b->s.kv_lora);
    if (w_dtype == EBRO_MXFP4) size /= 16;
    b->q = rig_normal((uint64_t)n_rows * b->s.n_heads * (b->s.nope + b->s.rope), size);
    uint64_t n = (uint64_t)n_rows * b->s.n_heads * width;
    b->absorbed = mla_narrow(mla_absorb(&b->s, b->q, n_rows, b->kv_b.v), n);
    b->wide = rig_host(n, sizeof *b->wide);
    for (uint64_t i = 0; i < n; i++) b->wide[i] = (double)b->absorbed[i];
}

static struct problem random_problem(uint32_t max_rows, uint32_t max_context) {
    struct problem b = {.s = random_shape(), .p = seq_random_plan(max_rows)};
    for (uint32_t k = 0; k < b.p.n_seqs; k++) {
        b.context[k] = rig_below(4) == 0 ? 0 : (int32_t)rig_below(max_context);
    }
    return b;
}

static void check_decode(const struct problem *b, struct mla_range range, const char *what) {
    uint64_t n = (uint64_t)eb_ref_rows(&b->p) * b->s.n_heads;
    float *lse;
    struct mla_result r = mla_ref(&b->s, &b->p, &b->c, b->context, range, b->wide);
    const float *got = mla_decode(&b->s, &b->p, &b->c, range, b->absorbed, &lse);
    near(got, r.latent, n * b->s.kv_lora, bound_for(r.largest), what);
    lse_near(lse, r.lse, n, r.largest, what);
}

static void check_range(const struct problem *b, struct mla_range range, const char *what) {
    uint32_t n_rows = eb_ref_rows(&b->p);
    uint64_t n = (uint64_t)n_rows * b->s.n_heads;
    float *lse;
    check_decode(b, range, what);
    double *exact = mla_absorb(&b->s, b->q, n_rows, b->kv_b.v);
    struct mla_result r = mla_ref(&b->s, &b->p, &b->c, b->context, range, exact);
    const float *got = mla_prefill(&b->s, &b->p, &b->c, range, b->q, &b->kv_b.w, &lse);
    near(got, mla_values(&b->s, r.latent, n_rows, b->kv_b.v), n * b->s.v_dim, bound_for(r.largest),
         what);
    lse_near(lse, r.lse, n, r.largest, what);
}

static void random_calls(void **state) {
    static const int32_t w_dtypes[] = {EBRO_F32, EBRO_BF16, EBRO_F16, EBRO_MXFP4};
    for (uint32_t i = rig_first(); i < 36; i += rig.stride) {
        char what[96];
        struct problem b = random_problem(i % 4 ? 20 : 70, i % 5 ? 150 : 700);
        fill_problem(&b, page_sizes[i % 3], dtypes[i / 3 % 3], w_dtypes[i % 4], 1);
        snprintf(what, sizeof what, "call %d: %u rows, pages of %u, cache %s, kv_b %s", i,
                 eb_ref_rows(&b.p), page_sizes[i % 3], eb_dtype_name(dtypes[i / 3 % 3]),
                 eb_dtype_name(w_dtypes[i % 4]));
        check_range(&b, mla_all, what);
        uint32_t begin = rig_below(300), end = begin + rig_below(300);
        check_range(&b, (struct mla_range){begin, end}, what);
        rig_reset(state);
    }
}

/* Every context around tiles and pages, one row. */
static void every_context(void **state) {
    for (uint32_t n = 1 + rig_first(); n < 270; n += (n < 70 ? 1 : 9) * rig.stride) {
        char what[64];
        struct problem b = {.s = {2, 32, 16, 32, 64, 0.2f}, .p = seq_one(1, 0, 0)};
        b.context[0] = (int32_t)n - 1;
        fill_problem(&b, page_sizes[n % 3], EBRO_F32, EBRO_F32, 1);
        snprintf(what, sizeof what, "%u tokens", n);
        check_range(&b, mla_all, what);
        rig_reset(state);
    }
}

/* ---- ranges ----------------------------------------------------------------------------- */

/* Parts of the context, merged by lse in float64, give the whole. */
static void merged(void **state) {
    for (int i = 0; i < 8; i++) {
        struct problem b = random_problem(20, 500);
        uint32_t cut[4] = {0, rig_below(200), 200 + rig_below(200), UINT32_MAX};
        uint64_t n = (uint64_t)eb_ref_rows(&b.p) * b.s.n_heads, lora = b.s.kv_lora;
        fill_problem(&b, page_sizes[i % 3], dtypes[i % 3], EBRO_F32, 1);
        for (int form = 0; form < 2; form++) {
            uint64_t dim = form ? b.s.v_dim : lora;
            double *sum = rig_host(n * dim, 8), *weight = rig_host(n, 8);
            for (int part = 0; part < 3; part++) {
                struct mla_range range = {cut[part], cut[part + 1]};
                float *lse, *o = form ? mla_prefill(&b.s, &b.p, &b.c, range, b.q, &b.kv_b.w, &lse)
                                      : mla_decode(&b.s, &b.p, &b.c, range, b.absorbed, &lse);
                for (uint64_t k = 0; k < n; k++) {
                    double e = exp((double)lse[k]); /* scores are small here */
                    weight[k] += e;
                    for (uint64_t c = 0; c < dim; c++)
                        sum[k * dim + c] += e * (double)o[k * dim + c];
                }
            }
            for (uint64_t k = 0; k < n * dim; k++) sum[k] /= weight[k / dim];
            float *whole = form ? mla_prefill(&b.s, &b.p, &b.c, mla_all, b.q, &b.kv_b.w, NULL)
                                : mla_decode(&b.s, &b.p, &b.c, mla_all, b.absorbed, NULL);
            near(whole, sum, n * dim, 2e-5, "merged"); /* the error of both sides */
        }
        rig_reset(state);
    }
}

static void nothing_seen(void **state) {
    const struct mla_range ranges[] = {{0, 0}, {7, 7}, {100, 200}, {UINT32_MAX, UINT32_MAX}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        struct problem b = {.s = {3, 32, 16, 32, 64, 0.2f}};
        b.p = (struct eb_ref_plan){.n_seqs = 3, .offsets = {0, 5, 5, 9}};
        b.context[0] = 60;
        b.context[2] = 0;
        fill_problem(&b, 16, dtypes[i % 3], EBRO_F32, 1);
        for (int form = 0; form < 2; form++) {
            float *lse, *o = form ? mla_prefill(&b.s, &b.p, &b.c, ranges[i], b.q, &b.kv_b.w, &lse)
                                  : mla_decode(&b.s, &b.p, &b.c, ranges[i], b.absorbed, &lse);
            uint64_t n = 9 * 3 * (form ? b.s.v_dim : b.s.kv_lora);
            for (uint64_t k = 0; k < n; k++) assert_true(o[k] == 0.0f);
            for (uint64_t k = 0; k < 27; k++) assert_true(isinf(lse[k]) && lse[k] < 0);
        }
        /* The second sequence sees nothing while the first one sees something. */
        check_range(&b, (struct mla_range){3, 30}, "some see nothing");
        rig_reset(state);
    }
}

/* Scores of 1e4 and more: no overflow, and the bound grows with them. */
static void large_scores(void **state) {
    static const float scales[] = {100, 1e4f, 1e5f};
    for (size_t i = 0; i < 3; i++) {
        for (int round = 0; round < 4; round++) {
            char what[64];
            struct problem b = {.s = {2, 32, 16, 32, 64, 0.2f}};
            b.p = (struct eb_ref_plan){.n_seqs = 2, .offsets = {0, 3, 40}};
            b.context[0] = 200;
            b.context[1] = 31 + round;
            snprintf(what, sizeof what, "queries times %g", (double)scales[i]);
            fill_problem(&b, 16, dtypes[round % 3], EBRO_F32, scales[i]);
            check_range(&b, mla_all, what);
            rig_reset(state);
        }
    }
}

/* More heads and columns than anything takes at once; in the last call keys and values of so many
 * heads that a backend which bounds its scratch takes the context in several goes. */
static void wide(void **state) {
    static const struct eb_ref_mla shapes[] = {
        {9, 36, 8, 136, 520, 0.1f}, {17, 20, 4, 8, 36, 0.2f}, {256, 16, 8, 240, 32, 0.2f}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        char what[64];
        struct problem b = {.s = shapes[i]};
        b.p = (struct eb_ref_plan){.n_seqs = 2, .offsets = {0, 20, 30}};
        b.context[0] = 540;
        b.context[1] = 30;
        snprintf(what, sizeof what, "%u heads, %u columns of values", b.s.n_heads, b.s.v_dim);
        fill_problem(&b, 64, dtypes[i % 3], EBRO_F32, 1);
        check_range(&b, mla_all, what);
        rig_reset(state);
    }
}

/* ---- splits ----------------------------------------------------------------------------- */

/* Splits of several tiles, in the widths of large models' latents, with more heads than are taken
 * at once: one row sees more tokens than splits of a tile each could hold. */
static void long_context(void **state) {
    for (size_t i = 0; i < 3; i++) {
        char what[64];
        struct problem b = {.s = {34, 8, 64, 8, 512, 0.1f}};
        b.p = (struct eb_ref_plan){.n_seqs = 2, .offsets = {0, 1, 3}};
        b.context[0] = 8400;
        b.context[1] = 70;
        snprintf(what, sizeof what, "long context, cache %s", eb_dtype_name(dtypes[i]));
        fill_problem(&b, page_sizes[i], dtypes[i], EBRO_F32, 1);
        check_decode(&b, mla_all, what);
        check_decode(&b, (struct mla_range){41, 8390}, what);
        rig_reset(state);
    }
}

/* mla_decode gives a row the same bytes alone and among others. */
static void decode_alone(void **state) {
    for (int i = 0; i < 8; i++) {
        struct problem b = random_problem(12, 600);
        fill_problem(&b, page_sizes[i % 3], dtypes[i % 3], EBRO_F32, 1);
        float *lse, *one_lse;
        const float *want = mla_decode(&b.s, &b.p, &b.c, mla_all, b.absorbed, &lse);
        uint64_t out = (uint64_t)b.s.n_heads * b.s.kv_lora;
        uint64_t in = (uint64_t)b.s.n_heads * eb_ref_mla_width(&b.s);
        for (uint32_t k = 0; k < b.p.n_seqs; k++) {
            for (int32_t row = b.p.offsets[k]; row < b.p.offsets[k + 1]; row++) {
                struct seq_mark mark = seq_mark();
                struct mla_cache c = b.c;
                struct eb_ref_plan p = seq_one(1, 0, 0);
                int32_t context = b.context[k] + row - b.p.offsets[k];
                uint64_t at = (uint64_t)row;
                c.n_seqs = 1;
                c.pages.table.offset += (uint64_t)k * c.pages.table_stride * 8;
                c.pages.context = seq_i32(&context, 1);
                const float *got =
                    mla_decode(&b.s, &p, &c, mla_all, b.absorbed + at * in, &one_lse);
                assert_memory_equal(got, want + at * out, out * sizeof *got);
                assert_memory_equal(one_lse, lse + at * b.s.n_heads, b.s.n_heads * sizeof *lse);
                seq_release(mark);
            }
        }
        rig_reset(state);
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_teardown(f, rig_reset)
    const struct CMUnitTest tests[] = {
        CASE(golden), CASE(random_calls), CASE(every_context),
        CASE(merged), CASE(nothing_seen), CASE(large_scores),
        CASE(wide),   CASE(long_context), CASE(decode_alone),
    };
    return rig_run("opcheck/mla", tests);
}
