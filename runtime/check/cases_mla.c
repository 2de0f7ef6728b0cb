/* cases_mla.c: mla_append, mla_prefill, mla_decode. What breaks them elsewhere: a mask that is one
 * token off, rows that see nothing, scores that leave f32, pages in any order and of any size,
 * angles in f32 at far positions, strides of the cache, the last page. */
#include <stdio.h>
#include <string.h>

#include "check/cases.h"
#include "check/seq.h"

static const int32_t dtypes[] = {EBRO_F32, EBRO_BF16, EBRO_F16};

/* ---- attention -------------------------------------------------------------------------- */

/* Shape, sequences, cache and queries of one call. */
struct problem {
    struct eb_ref_mla s;
    struct eb_ref_plan p;
    int32_t context[EB_REF_MAX_SEQS];
    struct eb_seq_cache c;
    struct eb_trial_weight kv_b;
    float *q;
    double *exact;   /* absorbed in float64 */
    float *absorbed; /* the same as floats hold it */
    double *wide;    /* and in float64 again */
    uint32_t begin, end;
    int32_t dtype, w_dtype;
    uint32_t page_tokens;
    float q_scale; /* how large the queries are */
};

static void describe(struct eb_trial *t, const struct problem *b) {
    char words[80];
    eb_seq_plan_words(&b->p, words, sizeof words);
    eb_trial_shape(t, "%s, %u heads, latent %u, keys %u, pages of %u, cache %s, kv_b %s", words,
                   b->s.n_heads, b->s.kv_lora, b->s.rope, b->page_tokens, eb_dtype_name(b->dtype),
                   eb_dtype_name(b->w_dtype));
}

/* Everything but shape, plan and context, which are given. False: the trial is over. */
static bool fill(struct eb_trial *t, struct problem *b) {
    const struct eb_ref_mla *s = &b->s;
    uint32_t n_rows = eb_ref_rows(&b->p), most = 1, width = eb_ref_mla_width(s);
    uint64_t n = (uint64_t)n_rows * s->n_heads;
    describe(t, b);
    for (uint32_t k = 0; k < b->p.n_seqs; k++) {
        uint32_t all = (uint32_t)(b->context[k] + b->p.offsets[k + 1] - b->p.offsets[k]);
        if (all > most) most = all;
    }
    b->c = eb_seq_cache(t, b->p.n_seqs, 0, most, width, b->page_tokens, b->dtype, EB_TRIAL_IN);
    for (uint32_t k = 0; k < b->p.n_seqs; k++)
        eb_seq_cache_fill(t, &b->c, k,
                          (uint32_t)(b->context[k] + b->p.offsets[k + 1] - b->p.offsets[k]));
    eb_seq_cache_context(t, &b->c, b->context);
    b->kv_b = eb_trial_weight(t, b->w_dtype, s->n_heads * (s->nope + s->v_dim), s->kv_lora,
                              b->w_dtype == EBRO_MXFP4 ? 0 : 8);
    /* Weights and cache are of the order of one: queries that bring scores there. */
    float size = b->q_scale / sqrtf((float)s->kv_lora) / (b->w_dtype == EBRO_MXFP4 ? 16 : 1);
    b->q = eb_trial_normal(t, n * (s->nope + s->rope), size);
    b->exact = eb_trial_host(t, n * width, sizeof *b->exact);
    if (eb_trial_over(t)) return false;
    eb_ref_absorb(s, b->q, n_rows, b->kv_b.v, b->exact);
    b->absorbed = eb_trial_narrow(t, b->exact, n * width);
    b->wide = b->absorbed != NULL ? eb_trial_widen(t, b->absorbed, n * width) : NULL;
    return !eb_trial_over(t);
}

/* Reference of absorbed queries q. */
struct seen {
    double *latent, *lse, largest;
};

static bool reference(struct eb_trial *t, const struct problem *b, const double *q,
                      struct seen *r) {
    uint64_t n = (uint64_t)eb_ref_rows(&b->p) * b->s.n_heads;
    double *room = eb_trial_host(t, b->c.capacity, sizeof *room);
    r->latent = eb_trial_host(t, n * b->s.kv_lora, sizeof *r->latent);
    r->lse = eb_trial_host(t, n, sizeof *r->lse);
    if (eb_trial_over(t)) return false;
    const struct eb_ref_cache cache = {b->c.v, b->c.capacity, b->context};
    r->largest = eb_ref_attend(&b->s, &b->p, &cache, b->begin, b->end, q, r->latent, r->lse, room);
    return true;
}

static void compare_lse(struct eb_trial *t, const float *got, const struct seen *r, uint64_t n) {
    struct eb_budget b = eb_budget_attention(t->device->caps.bits, r->largest);
    b.measure = "absolute";
    for (uint64_t i = 0; i < n; i++) eb_trial_within(t, (double)got[i], r->lse[i], 1, b, "lse", i);
}

static void decode(struct eb_trial *t, const struct problem *b) {
    const struct eb_ref_mla *s = &b->s;
    uint64_t n = (uint64_t)eb_ref_rows(&b->p) * s->n_heads, lora = s->kv_lora;
    struct eb_trial_mat out = eb_seq_out(t, &b->p, s->n_heads * lora);
    struct eb_trial_mat lse = eb_seq_out(t, &b->p, s->n_heads);
    ebro_mla_decode_args a = {
        .size = sizeof a,
        .rows = eb_seq_rows(t, &b->p),
        .q = eb_seq_in(t, &b->p, b->absorbed, (uint64_t)s->n_heads * eb_ref_mla_width(s)).m,
        .n_heads = s->n_heads,
        .kv_lora = s->kv_lora,
        .rope_dim = s->rope,
        .scale = s->scale,
        .pages = b->c.pages,
        .token_begin = b->begin,
        .token_end = b->end,
        .out = out.m,
        .lse = lse.m};
    struct seen r;
    a.scratch = eb_trial_scratch(t, EBRO_OP_MLA_DECODE, &a);
    if (!eb_trial_call(t, EBRO_OP_MLA_DECODE, &a) || !reference(t, b, b->wide, &r)) return;
    const float *got = eb_seq_get(t, &b->p, &out), *got_lse = eb_seq_get(t, &b->p, &lse);
    if (got == NULL || got_lse == NULL) return;
    eb_trial_near(t, got, r.latent, n * lora, eb_budget_attention(t->device->caps.bits, r.largest),
                  "output");
    compare_lse(t, got_lse, &r, n);
}

static void prefill(struct eb_trial *t, const struct problem *b) {
    const struct eb_ref_mla *s = &b->s;
    uint64_t n = (uint64_t)eb_ref_rows(&b->p) * s->n_heads;
    struct eb_trial_mat out = eb_seq_out(t, &b->p, (uint64_t)s->n_heads * s->v_dim);
    struct eb_trial_mat lse = eb_seq_out(t, &b->p, s->n_heads);
    double *want = eb_trial_host(t, n * s->v_dim, sizeof *want);
    ebro_mla_prefill_args a = {
        .size = sizeof a,
        .rows = eb_seq_rows(t, &b->p),
        .q = eb_seq_in(t, &b->p, b->q, (uint64_t)s->n_heads * (s->nope + s->rope)).m,
        .kv_b = b->kv_b.w,
        .n_heads = s->n_heads,
        .nope_dim = s->nope,
        .rope_dim = s->rope,
        .v_dim = s->v_dim,
        .kv_lora = s->kv_lora,
        .scale = s->scale,
        .pages = b->c.pages,
        .token_begin = b->begin,
        .token_end = b->end,
        .out = out.m,
        .lse = lse.m};
    struct seen r;
    a.scratch = eb_trial_scratch(t, EBRO_OP_MLA_PREFILL, &a);
    if (!eb_trial_call(t, EBRO_OP_MLA_PREFILL, &a) || !reference(t, b, b->exact, &r)) return;
    const float *got = eb_seq_get(t, &b->p, &out), *got_lse = eb_seq_get(t, &b->p, &lse);
    if (got == NULL || got_lse == NULL) return;
    eb_ref_values(s, r.latent, eb_ref_rows(&b->p), b->kv_b.v, want);
    eb_trial_near(t, got, want, n * s->v_dim, eb_budget_attention(t->device->caps.bits, r.largest),
                  "output");
    compare_lse(t, got_lse, &r, n);
}

enum { DECODE = 0x100 }; /* of `which`: the absorbed form */

static void attend(struct eb_trial *t, uint32_t which, struct problem *b) {
    if (!fill(t, b)) return;
    if (which & DECODE)
        decode(t, b);
    else
        prefill(t, b);
}

/* Sequences of random lengths; in the shapes of models and in odd ones. */
static void random_call(struct eb_trial *t, uint32_t which) {
    static const struct eb_ref_mla shapes[] = {{3, 32, 16, 32, 64, 0},
                                               {4, 128, 64, 128, 512, 0},
                                               {5, 64, 0, 16, 160, 0},
                                               {1, 24, 8, 40, 96, 0},
                                               {2, 48, 12, 20, 32, 0}};
    static const int32_t w_dtypes[] = {EBRO_BF16, EBRO_BF16, EBRO_F32, EBRO_F16, EBRO_MXFP4};
    static const uint32_t pages[] = {16, 64, 1, 5, 64};
    uint32_t i = which & 0xff;
    struct problem b = {.s = shapes[i], .p = eb_seq_plan_random(t, i == 1 ? 9 : 20)};
    b.s.scale = (float)(1.0 / sqrt((double)(b.s.nope + b.s.rope)));
    for (uint32_t k = 0; k < b.p.n_seqs; k++)
        b.context[k] = k == 1 ? 0 : (int32_t)eb_trial_below(t, i == 0 ? 90 : 200);
    b.end = UINT32_MAX;
    b.dtype = dtypes[(i + 1) % 3];
    b.w_dtype = w_dtypes[i];
    b.page_tokens = pages[i];
    b.q_scale = 1;
    attend(t, which, &b);
}

static struct problem small(void) {
    return (struct problem){.s = {2, 32, 16, 32, 64, 0.2f},
                            .p = {.n_seqs = 3, .offsets = {0, 3, 3, 15}},
                            .context = {60, 4, 0},
                            .end = UINT32_MAX,
                            .dtype = EBRO_F32,
                            .w_dtype = EBRO_F32,
                            .page_tokens = 16,
                            .q_scale = 1};
}

/* Rows that may see nothing of the range give zeros and a lse of -inf, beside others that see some
 * of it. */
static void masked(struct eb_trial *t, uint32_t which) {
    struct problem b = small();
    bool some = which & 1;
    b.begin = some ? 30 : 200;
    b.end = some ? 61 : 300;
    attend(t, which, &b);
}

/* One row and every context about a page and a tile: the last token must be seen, none behind it.
 */
static void edges(struct eb_trial *t, uint32_t which) {
    struct problem b = small();
    b.p = (struct eb_ref_plan){.n_seqs = 6, .offsets = {0, 1, 2, 3, 4, 5, 6}};
    const int32_t contexts[6] = {0, 15, 16, 63, 64, 32};
    memcpy(b.context, contexts, sizeof contexts);
    attend(t, which, &b);
}

/* Scores of 1e4 and more: nothing overflows, and the budget grows with them. */
static void large_scores(struct eb_trial *t, uint32_t which) {
    struct problem b = small();
    b.q_scale = which & 1 ? 1e5f : 1e3f;
    attend(t, which, &b);
}

/* More heads and columns than anything takes at once, and several tiles of tokens. */
static void wide(struct eb_trial *t, uint32_t which) {
    struct problem b = small();
    b.s = (struct eb_ref_mla){9, 36, 8, 136, 520, 0.1f};
    b.p = (struct eb_ref_plan){.n_seqs = 2, .offsets = {0, 10, 15}};
    b.context[0] = 540;
    b.context[1] = 30;
    b.page_tokens = 64;
    attend(t, which, &b);
}

/* Heads and widths of a model in bf16 throughout: what kernels for matrix units want. */
static void model_heads(struct eb_trial *t, uint32_t which) {
    struct problem b = small();
    b.s = (struct eb_ref_mla){16, 128, 64, 128, 512, (float)(1.0 / sqrt(192.0))};
    b.p = (struct eb_ref_plan){.n_seqs = 2, .offsets = {0, 3, 8}};
    b.context[0] = 70;
    b.context[1] = 0;
    b.dtype = b.w_dtype = EBRO_BF16;
    b.page_tokens = 64;
    attend(t, which, &b);
}

/* mla_decode gives a row the same bytes alone and among others. */
static void decode_alone(struct eb_trial *t, uint32_t which) {
    struct problem b = small();
    (void)which;
    if (!fill(t, &b)) return;
    const struct eb_ref_mla *s = &b.s;
    struct eb_ref_plan one = eb_seq_plan_one(1, 0, 0);
    uint64_t out_cols = (uint64_t)s->n_heads * s->kv_lora;
    uint64_t in_cols = (uint64_t)s->n_heads * eb_ref_mla_width(s);
    struct eb_trial_mat all = eb_seq_out(t, &b.p, out_cols), alone = eb_seq_out(t, &one, out_cols);
    const int32_t row = 9; /* of all; of the third sequence */
    int32_t context = row - b.p.offsets[2];
    ebro_mla_decode_args a = {.size = sizeof a,
                              .rows = eb_seq_rows(t, &b.p),
                              .q = eb_seq_in(t, &b.p, b.absorbed, in_cols).m,
                              .n_heads = s->n_heads,
                              .kv_lora = s->kv_lora,
                              .rope_dim = s->rope,
                              .scale = s->scale,
                              .pages = b.c.pages,
                              .token_end = UINT32_MAX,
                              .out = all.m};
    a.scratch = eb_trial_scratch(t, EBRO_OP_MLA_DECODE, &a);
    ebro_mla_decode_args c = a;
    c.rows = eb_seq_rows(t, &one);
    c.q.offset += (uint64_t)row * in_cols * sizeof(float);
    c.pages.table.offset += 2 * (uint64_t)b.c.pages.table_stride * sizeof(uint64_t);
    c.pages.context = eb_trial_i32(t, &context, 1);
    c.out = alone.m;
    const struct eb_trial_op ops[] = {{EBRO_OP_MLA_DECODE, &a}, {EBRO_OP_MLA_DECODE, &c}};
    if (!eb_trial_calls(t, ops, 2)) return;
    const float *x = eb_seq_get(t, &b.p, &all), *y = eb_seq_get(t, &one, &alone);
    struct eb_budget same = eb_budget_strict();
    same.reason = "splits are fixed by the context alone";
    if (x != NULL && y != NULL)
        eb_trial_same(t, y, x + (uint64_t)row * out_cols, out_cols * sizeof *x, same,
                      "a row alone");
}

/* ---- append ----------------------------------------------------------------------------- */

struct append {
    struct eb_ref_append r;
    uint32_t n_heads, q_stride, q_offset;
    struct eb_ref_plan p;
    int32_t context[EB_REF_MAX_SEQS];
    uint32_t first; /* token that the caches begin with */
    uint32_t page_tokens;
    int32_t dtype;
};

static void compare_row(struct eb_trial *t, const struct append *k, const uint8_t *now,
                        const double *want) {
    uint64_t size = eb_dtype_size(k->dtype), lora = k->r.kv_lora;
    for (uint64_t i = 0; i < lora + k->r.rope; i++) {
        enum eb_append_part part = i < lora                 ? EB_APPEND_LATENT
                                   : i < lora + k->r.rotary ? EB_APPEND_ROTATED
                                                            : EB_APPEND_KEY;
        uint64_t pair = lora + (i - lora) / 2 * 2;
        double length =
            part == EB_APPEND_ROTATED ? hypot(want[pair], want[pair + 1]) : fabs(want[i]);
        eb_trial_within(t, eb_ref_element(k->dtype, now + i * size), want[i], 1,
                        eb_budget_append(k->dtype, part, want[i], length), "cache row", i);
    }
}

static void compare_q(struct eb_trial *t, const struct append *k, const float *before,
                      const float *now, uint32_t position) {
    for (uint32_t i = 0; i < k->n_heads * k->q_stride; i++) {
        uint32_t c = i % k->q_stride - k->q_offset, odd = c % 2; /* wraps before the offset */
        if (c >= k->r.rotary) {
            if (memcmp(now + i, before + i, sizeof *now) != 0)
                eb_trial_fail(t, "changed q where nothing turns, channel %u", i);
            continue;
        }
        double y[2];
        eb_ref_turn(k->r.theta, k->r.rotary, c - odd, position, before + i - odd, y);
        eb_trial_within(t, (double)now[i], y[odd], 1,
                        eb_budget_append(EBRO_F32, EB_APPEND_ROTATED, y[odd], hypot(y[0], y[1])),
                        "q", i);
    }
}

/* Rows of the step against the reference; all other bytes of the cache as they were. */
static void compare_append(struct eb_trial *t, const struct append *k, const struct eb_seq_cache *c,
                           const float *kv, const float *q, const float *turned, double *want,
                           uint8_t *rest) {
    uint64_t width = k->r.kv_lora + k->r.rope, q_cols = (uint64_t)k->n_heads * k->q_stride;
    const uint8_t *before = eb_trial_before(t, &c->buf), *now = eb_trial_after(t, &c->buf);
    if (before == NULL || now == NULL) return;
    memcpy(rest, now, (size_t)c->buf.bytes);
    for (uint32_t s = 0; s < k->p.n_seqs; s++) {
        for (int32_t row = k->p.offsets[s]; row < k->p.offsets[s + 1]; row++) {
            uint32_t position = (uint32_t)(k->context[s] + row - k->p.offsets[s]);
            uint64_t at = c->at[(uint64_t)s * c->capacity + position - k->first];
            eb_ref_append_row(&k->r, kv + (uint64_t)row * width, position, want);
            compare_row(t, k, now + at, want);
            memcpy(rest + at, before + at, (size_t)(width * eb_dtype_size(k->dtype)));
            compare_q(t, k, q + (uint64_t)row * q_cols, turned + (uint64_t)row * q_cols, position);
        }
    }
    if (memcmp(rest, before, (size_t)c->buf.bytes) != 0)
        eb_trial_fail(t, "changed bytes of the cache that are no rows of the step");
}

static void append(struct eb_trial *t, struct append *k) {
    uint32_t n_rows = eb_ref_rows(&k->p), width = k->r.kv_lora + k->r.rope, room = 1;
    uint64_t q_cols = (uint64_t)k->n_heads * k->q_stride;
    for (uint32_t s = 0; s < k->p.n_seqs; s++) {
        uint32_t end = (uint32_t)(k->context[s] + k->p.offsets[s + 1] - k->p.offsets[s]);
        if (end - k->first > room) room = end - k->first;
    }
    eb_trial_shape(t, "%u rows, latent %u, keys %u of which %u turn, pages of %u, cache %s", n_rows,
                   k->r.kv_lora, k->r.rope, k->r.rotary, k->page_tokens, eb_dtype_name(k->dtype));
    struct eb_seq_cache c =
        eb_seq_cache(t, k->p.n_seqs, k->first, room, width, k->page_tokens, k->dtype, EB_TRIAL_OUT);
    eb_seq_cache_context(t, &c, k->context);
    double *norm, *want = eb_trial_host(t, width, sizeof *want);
    uint8_t *rest = eb_trial_host(t, c.buf.bytes, 1);
    float *kv = eb_trial_normal(t, (uint64_t)n_rows * width, 1.5f);
    float *q = eb_trial_normal(t, n_rows * q_cols, 1);
    struct eb_trial_mat qm = eb_trial_out(t, q, n_rows, q_cols, k->p.padding);
    ebro_mla_append_args a = {.size = sizeof a,
                              .rows = eb_seq_rows(t, &k->p),
                              .kv = eb_seq_in(t, &k->p, kv, width).m,
                              .norm_weight = eb_trial_vec(t, EBRO_BF16, k->r.kv_lora, &norm),
                              .norm_eps = (float)k->r.eps,
                              .kv_lora = k->r.kv_lora,
                              .rope_dim = k->r.rope,
                              .pages = c.pages,
                              .rotary_dim = k->r.rotary,
                              .rotary_theta = (float)k->r.theta,
                              .n_heads = k->n_heads,
                              .q_head_stride = k->q_stride,
                              .q_rope_offset = k->q_offset,
                              .q = qm.m};
    k->r.norm = norm;
    if (!eb_trial_call(t, EBRO_OP_MLA_APPEND, &a)) return;
    const float *turned = eb_trial_get(t, &qm);
    if (turned != NULL) compare_append(t, k, &c, kv, q, turned, want, rest);
}

static void append_random(struct eb_trial *t, uint32_t which) {
    static const uint32_t pages[] = {16, 1, 64, 5};
    struct append k = {.p = eb_seq_plan_random(t, 30),
                       .page_tokens = pages[which],
                       .dtype = dtypes[which % 3],
                       .n_heads = 2,
                       .q_offset = 8};
    k.p.slack = 0;
    k.r = (struct eb_ref_append){.kv_lora = which == 1 ? 512 : 72, .rope = 64, .theta = 10000};
    k.r.eps = (double)1e-6f;
    k.r.rotary = which == 2 ? 0 : which == 3 ? 20 : 64;
    k.q_stride = k.q_offset + k.r.rope + 3;
    for (uint32_t s = 0; s < k.p.n_seqs; s++) k.context[s] = (int32_t)eb_trial_below(t, 120);
    append(t, &k);
}

/* Where an angle in f32 would be off by whole channels. */
static void append_far(struct eb_trial *t, uint32_t which) {
    struct append k = {.p = eb_seq_plan_one(3, 0, 0),
                       .first = which == 0 ? 1000003 : 100000,
                       .page_tokens = 16,
                       .n_heads = 2,
                       .q_stride = 96,
                       .q_offset = 32,
                       .dtype = EBRO_F32};
    k.r = (struct eb_ref_append){
        .kv_lora = 64, .rope = 64, .rotary = 64, .theta = 10000, .eps = (double)1e-6f};
    k.context[0] = (int32_t)k.first;
    append(t, &k);
}

/* ---- the list --------------------------------------------------------------------------- */

#define CASE(op, name, part, f, which) \
    { EBRO_OP_##op, name, EB_CASE_##part, 0, f, which }
#define UNITS(op, name, part, f, which) \
    { EBRO_OP_##op, name, EB_CASE_##part, EBRO_CAP_MATRIX, f, which }
#define BOTH(name, part, f, which) \
    CASE(MLA_PREFILL, name, part, f, which), CASE(MLA_DECODE, name, part, f, (which) | DECODE)

/* clang-format off */
static const struct eb_opcheck_case cases[] = {
    CASE(MLA_APPEND, "all keys turn", START, append_random, 0),
    CASE(MLA_APPEND, "pages of 1, bf16", START, append_random, 1),
    CASE(MLA_APPEND, "no key turns, f16", FULL, append_random, 2),
    CASE(MLA_APPEND, "some keys turn, pages of 5", FULL, append_random, 3),
    CASE(MLA_APPEND, "position 1,000,003", QUICK, append_far, 0),
    CASE(MLA_APPEND, "position 100,000", FULL, append_far, 1),
    BOTH("many sequences", START, random_call, 0),
    BOTH("a model's shape", FULL, random_call, 1),
    BOTH("no position keys, pages of 1", FULL, random_call, 2),
    BOTH("one head, pages of 5", FULL, random_call, 3),
    BOTH("odd sizes, mxfp4", FULL, random_call, 4),
    BOTH("nothing seen", QUICK, masked, 0),
    BOTH("some see nothing", START, masked, 1),
    BOTH("contexts about a page", START, edges, 0),
    BOTH("large scores", START, large_scores, 0),
    BOTH("very large scores", FULL, large_scores, 1),
    BOTH("wide", FULL, wide, 0),
    BOTH("a model's heads, bf16", FULL, model_heads, 0),
    UNITS(MLA_PREFILL, "on matrix units", START, model_heads, 0),
    UNITS(MLA_DECODE, "on matrix units", START, model_heads, DECODE),
    CASE(MLA_DECODE, "a row alone", QUICK, decode_alone, 0),
};
/* clang-format on */

const struct eb_opcheck_list eb_opcheck_mla = {cases, sizeof cases / sizeof cases[0]};
