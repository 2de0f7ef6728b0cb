/* mla_append.c: the rows that mla_append writes into a paged cache, and the rotation of keys and
 * queries, against float64. Every byte of the cache that is not a row of the step must stay.
 *
 * Bounds: eb_budget_append (check/budget.h).
 */
#include "tests/opcheck/mla_ref.h"

static const double u = 1.0 / 16777216.0;

struct call {
    uint32_t kv_lora, rope, rotary, n_heads, q_stride, q_offset;
    double theta;
    struct eb_ref_plan p;
    int32_t context[EB_REF_MAX_SEQS];
    uint32_t first; /* token that the caches begin with */
    uint32_t page_tokens;
    int32_t dtype;
};

/* Compares one stored row; the length of each pair sets the bound of both its halves. */
static void row_check(const struct call *k, const uint8_t *now, const double *want,
                      const char *what) {
    uint64_t size = eb_dtype_size(k->dtype), width = k->kv_lora + k->rope;
    for (uint64_t i = 0; i < width; i++) {
        enum eb_append_part part = i < k->kv_lora               ? EB_APPEND_LATENT
                                   : i < k->kv_lora + k->rotary ? EB_APPEND_ROTATED
                                                                : EB_APPEND_KEY;
        uint64_t pair = k->kv_lora + (i - k->kv_lora) / 2 * 2;
        double length =
            part == EB_APPEND_ROTATED ? hypot(want[pair], want[pair + 1]) : fabs(want[i]);
        test_le(fabs(eb_ref_element(k->dtype, now + i * size) - want[i]),
                eb_budget_append(k->dtype, part, want[i], length).value, "%s: element %" PRIu64,
                what, i);
    }
}

static void q_check(const struct call *k, const float *before, const float *now, uint32_t position,
                    const char *what) {
    for (uint32_t i = 0; i < k->n_heads * k->q_stride; i++) {
        uint32_t c = i % k->q_stride - k->q_offset; /* wraps before the offset */
        if (c >= k->rotary) {
            assert_true(memcmp(now + i, before + i, sizeof *now) == 0);
            continue;
        }
        double y[2];
        uint32_t odd = c % 2;
        eb_ref_turn(k->theta, k->rotary, c - odd, position, before + i - odd, y);
        struct eb_budget b =
            eb_budget_append(EBRO_F32, EB_APPEND_ROTATED, y[odd], hypot(y[0], y[1]));
        test_le(fabs((double)now[i] - y[odd]), b.value, "%s: q, channel %u", what, i);
    }
}

static void check_call(const struct call *k, const char *what) {
    const struct eb_ref_plan *p = &k->p;
    uint32_t n_rows = eb_ref_rows(p), width = k->kv_lora + k->rope, room = 1;
    uint64_t q_cols = (uint64_t)k->n_heads * k->q_stride, size = eb_dtype_size(k->dtype);
    for (uint32_t s = 0; s < p->n_seqs; s++) {
        uint32_t end = (uint32_t)(k->context[s] + p->offsets[s + 1] - p->offsets[s]);
        if (end - k->first > room) room = end - k->first;
    }
    struct mla_cache c = mla_cache(p->n_seqs, k->first, room, width, k->page_tokens, k->dtype);
    mla_cache_upload(&c, k->context);
    double *norm, *want = rig_host(width, sizeof *want);
    float *kv = rig_normal((uint64_t)n_rows * width, 1.5f), *q = rig_normal(n_rows * q_cols, 1);
    struct rig_mat qm = seq_mat(p, q, q_cols);
    ebro_mla_append_args a = {.size = sizeof a,
                              .rows = seq_rows(p),
                              .kv = seq_mat(p, kv, width).m,
                              .norm_weight = rig_vec(EBRO_BF16, k->kv_lora, &norm),
                              .norm_eps = 1e-6f,
                              .kv_lora = k->kv_lora,
                              .rope_dim = k->rope,
                              .pages = c.pages,
                              .rotary_dim = k->rotary,
                              .rotary_theta = (float)k->theta,
                              .n_heads = k->n_heads,
                              .q_head_stride = k->q_stride,
                              .q_rope_offset = k->q_offset};
    if (k->n_heads > 0) a.q = qm.m;
    test_ok(eb_op_mla_append(&rig.s, &a, &rig.err), &rig.err);
    rig_sync();
    const struct eb_ref_append r = {k->kv_lora, k->rope, k->rotary, k->theta, 1e-6, norm};
    uint8_t *now = rig_get(&c.buf);
    const float *turned = seq_mat_get(p, &qm);
    for (uint32_t s = 0; s < p->n_seqs; s++) {
        for (int32_t row = p->offsets[s]; row < p->offsets[s + 1]; row++) {
            uint32_t position = (uint32_t)(k->context[s] + row - p->offsets[s]);
            uint64_t at = c.at[(uint64_t)s * room + position - k->first];
            eb_ref_append_row(&r, kv + (uint64_t)row * width, position, want);
            row_check(k, now + at, want, what);
            memcpy(now + at, c.before + at, width * size);
            q_check(k, q + (uint64_t)row * q_cols, turned + (uint64_t)row * q_cols, position, what);
        }
    }
    for (uint64_t i = 0; i < c.buf.bytes; i++) {
        if (now[i] != c.before[i]) fail_msg("%s: byte %" PRIu64 " of the cache", what, i);
    }
}

static void append(void **state) {
    static const uint32_t pages[] = {1, 16, 64, 5};
    static const int32_t dtypes[] = {EBRO_F32, EBRO_F16, EBRO_BF16};
    for (int i = 0; i < 48; i++) {
        char what[96];
        struct call k = {.p = seq_random_plan(30), .theta = i % 2 ? 10000.0 : 50000.0};
        k.page_tokens = pages[i % 4];
        k.dtype = dtypes[i % 3];
        k.kv_lora = i % 5 ? 40 + 8 * rig_below(10) : 512;
        k.rope = 2 * rig_below(40);
        k.rotary = i % 3 == 0 ? 0 : i % 3 == 1 ? k.rope : 2 * rig_below(k.rope / 2 + 1);
        k.n_heads = rig_below(4);
        k.q_offset = rig_below(9);
        k.q_stride = k.q_offset + k.rope + rig_below(5) + 1;
        for (uint32_t s = 0; s < k.p.n_seqs; s++) k.context[s] = (int32_t)rig_below(120);
        snprintf(what, sizeof what, "append %d: lora %u, rope %u, rotary %u, pages of %u, %s", i,
                 k.kv_lora, k.rope, k.rotary, k.page_tokens, eb_dtype_name(k.dtype));
        check_call(&k, what);
        rig_reset(state);
    }
}

/* Positions where an angle in f32 would be off by whole channels. */
static void far_away(void **state) {
    static const uint32_t positions[] = {4095, 100000, 1000003};
    for (size_t i = 0; i < 3; i++) {
        char what[64];
        struct call k = {.kv_lora = 64, .rope = 64, .rotary = 64, .theta = 10000.0, .n_heads = 2};
        k.p = seq_one(3, 0, 0);
        k.q_stride = 96;
        k.q_offset = 32;
        k.context[0] = (int32_t)positions[i];
        k.first = positions[i];
        k.page_tokens = 16;
        k.dtype = EBRO_F32;
        snprintf(what, sizeof what, "position %u", positions[i]);
        check_call(&k, what);
        rig_reset(state);
    }
}

/* What is appended is what attention reads: one row, one head, sees its own latent. */
static void read_back(void **state) {
    (void)state;
    enum { LORA = 32 };
    double *norm;
    int32_t context = 0;
    struct eb_ref_plan p = seq_one(1, 0, 0);
    struct eb_ref_mla s = {1, 8, 8, 8, LORA, 1};
    struct mla_cache c = mla_cache(1, 0, 1, LORA + 8, 16, EBRO_F32);
    float *kv = rig_normal(LORA + 8, 1), *q = rig_normal(LORA + 8, 1);
    mla_cache_upload(&c, &context);
    ebro_mla_append_args a = {.size = sizeof a,
                              .rows = seq_rows(&p),
                              .kv = seq_mat(&p, kv, LORA + 8).m,
                              .norm_weight = rig_vec(EBRO_F32, LORA, &norm),
                              .norm_eps = 1e-6f,
                              .kv_lora = LORA,
                              .rope_dim = 8,
                              .pages = c.pages};
    test_ok(eb_op_mla_append(&rig.s, &a, &rig.err), &rig.err);
    const float *got = mla_decode(&s, &p, &c, mla_all, q, NULL);
    const uint8_t *cache = rig_get(&c.buf);
    for (uint32_t i = 0; i < LORA; i++) {
        double want = (double)seq_from_bytes(EBRO_F32, cache + c.at[0] + 4 * i);
        test_le(fabs((double)got[i] - want), 2 * u * fabs(want), "latent %u", i);
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_teardown(f, rig_reset)
    const struct CMUnitTest tests[] = {CASE(append), CASE(far_away), CASE(read_back)};
    return rig_run("opcheck/mla_append", tests);
}
