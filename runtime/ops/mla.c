/* mla.c: mla_append, mla_prefill and mla_decode. */
#include <inttypes.h>
#include <math.h>

#include "ops/check.h"

/* The heads' channels that turn with the keys, in place. */
static int32_t check_rotary(const struct eb_check *c, const ebro_mla_append_args *a) {
    if (a->rotary_dim == 0) return EBRO_OK;
    EB_REQUIRE(c, a->rotary_dim <= a->rope_dim, "rotary_dim = %" PRIu32 ", rope_dim = %" PRIu32,
               a->rotary_dim, a->rope_dim);
    EB_REQUIRE(c, a->rotary_dim % 2 == 0, "rotary_dim = %" PRIu32, a->rotary_dim);
    EB_REQUIRE(c, isfinite(a->rotary_theta) && a->rotary_theta > 0, "rotary_theta = %g",
               (double)a->rotary_theta);
    if (a->q.mem == NULL) return EBRO_OK;
    uint64_t last = (uint64_t)a->q_rope_offset + a->rotary_dim;
    EB_REQUIRE(c, a->n_heads > 0, "n_heads = 0");
    EB_REQUIRE(c, last <= a->q_head_stride,
               "last = q_rope_offset + rotary_dim = %" PRIu64 ", q_head_stride = %" PRIu32, last,
               a->q_head_stride);
    return eb_check_mat(c, "q", &a->q, a->rows.n_rows, (uint64_t)a->n_heads * a->q_head_stride,
                        EB_ONLY_F32);
}

int32_t eb_op_mla_append(struct eb_stream *s, const ebro_mla_append_args *a, ebro_error *err) {
    struct eb_check c;
    EB_TRY(eb_check_begin(&c, s, EBRO_OP_MLA_APPEND, a, sizeof *a, err));
    uint64_t row_elements = (uint64_t)a->kv_lora + a->rope_dim;
    EB_TRY(eb_check_rows(&c, &a->rows));
    EB_REQUIRE(&c, a->kv_lora > 0, "kv_lora = 0");
    EB_REQUIRE(&c, isfinite(a->norm_eps) && a->norm_eps >= 0, "norm_eps = %g", (double)a->norm_eps);
    EB_TRY(eb_check_mat(&c, "kv", &a->kv, a->rows.n_rows, row_elements, EB_ONLY_F32));
    EB_TRY(eb_check_vec(&c, "norm_weight", &a->norm_weight, a->kv_lora));
    EB_TRY(eb_check_pages(&c, &a->pages, &a->rows, row_elements));
    EB_TRY(check_rotary(&c, a));
    if (a->rows.n_rows == 0) return EBRO_OK;
    return EB_DISPATCH(&c, mla_append, a);
}

/* What both forms of attention share: sizes, the seen range, lse. Struct members have the same
 * names in both, so the texts fit either. */
struct attention {
    const ebro_rows *rows;
    const ebro_pages *pages;
    const ebro_mat *q, *out, *lse;
    uint32_t n_heads, kv_lora, rope_dim, token_begin, token_end;
    uint64_t q_dim, out_dim; /* of one head */
    float scale;
};

static int32_t check_attention(const struct eb_check *c, const struct attention *t) {
    EB_TRY(eb_check_rows(c, t->rows));
    EB_REQUIRE(c, t->n_heads > 0, "n_heads = 0");
    EB_REQUIRE(c, t->kv_lora > 0, "kv_lora = 0");
    EB_REQUIRE(c, isfinite(t->scale), "scale = %g", (double)t->scale);
    EB_REQUIRE(c, t->token_begin <= t->token_end, "token_begin = %" PRIu32 ", token_end = %" PRIu32,
               t->token_begin, t->token_end);
    EB_TRY(eb_check_pages(c, t->pages, t->rows, (uint64_t)t->kv_lora + t->rope_dim));
    uint64_t q_cols = 0, out_cols = 0;
    bool fits =
        eb_mul_u64(t->n_heads, t->q_dim, &q_cols) && eb_mul_u64(t->n_heads, t->out_dim, &out_cols);
    EB_REQUIRE(c, fits, "n_heads = %" PRIu32 ", columns overflow 64 bits", t->n_heads);
    EB_TRY(eb_check_mat(c, "q", t->q, t->rows->n_rows, q_cols, EB_ONLY_F32));
    EB_TRY(eb_check_mat(c, "out", t->out, t->rows->n_rows, out_cols, EB_ONLY_F32));
    if (t->lse->mem == NULL) return EBRO_OK;
    return eb_check_mat(c, "lse", t->lse, t->rows->n_rows, t->n_heads, EB_ONLY_F32);
}

int32_t eb_op_mla_prefill(struct eb_stream *s, const ebro_mla_prefill_args *a, ebro_error *err) {
    struct eb_check c;
    EB_TRY(eb_check_begin(&c, s, EBRO_OP_MLA_PREFILL, a, sizeof *a, err));
    EB_REQUIRE(&c, a->nope_dim > 0, "nope_dim = 0");
    EB_REQUIRE(&c, a->v_dim > 0, "v_dim = 0");
    struct attention t = {.rows = &a->rows,
                          .pages = &a->pages,
                          .q = &a->q,
                          .out = &a->out,
                          .lse = &a->lse,
                          .n_heads = a->n_heads,
                          .kv_lora = a->kv_lora,
                          .rope_dim = a->rope_dim,
                          .token_begin = a->token_begin,
                          .token_end = a->token_end,
                          .q_dim = (uint64_t)a->nope_dim + a->rope_dim,
                          .out_dim = a->v_dim,
                          .scale = a->scale};
    EB_TRY(check_attention(&c, &t));
    EB_TRY(eb_check_weight(&c, "kv_b", &a->kv_b, EB_WEIGHTS, 1, 0));
    EB_REQUIRE(&c, a->kv_b.transposed == 0, "transposed = %" PRId32, a->kv_b.transposed);
    EB_REQUIRE(&c, a->kv_b.cols == a->kv_lora, "kv_b.cols = %" PRIu32 ", kv_lora = %" PRIu32,
               a->kv_b.cols, a->kv_lora);
    uint64_t head_rows = (uint64_t)a->nope_dim + a->v_dim;
    EB_REQUIRE(&c, a->kv_b.rows % a->n_heads == 0 && a->kv_b.rows / a->n_heads == head_rows,
               "kv_b.rows = %" PRIu32 ", n_heads = %" PRIu32
               ", head_rows = nope_dim + v_dim = %" PRIu64,
               a->kv_b.rows, a->n_heads, head_rows);
    EB_TRY(eb_check_scratch(&c, "scratch", a->scratch, a));
    if (a->rows.n_rows == 0) return EBRO_OK;
    return EB_DISPATCH(&c, mla_prefill, a);
}

int32_t eb_op_mla_decode(struct eb_stream *s, const ebro_mla_decode_args *a, ebro_error *err) {
    struct eb_check c;
    EB_TRY(eb_check_begin(&c, s, EBRO_OP_MLA_DECODE, a, sizeof *a, err));
    struct attention t = {.rows = &a->rows,
                          .pages = &a->pages,
                          .q = &a->q,
                          .out = &a->out,
                          .lse = &a->lse,
                          .n_heads = a->n_heads,
                          .kv_lora = a->kv_lora,
                          .rope_dim = a->rope_dim,
                          .token_begin = a->token_begin,
                          .token_end = a->token_end,
                          .q_dim = (uint64_t)a->kv_lora + a->rope_dim,
                          .out_dim = a->kv_lora,
                          .scale = a->scale};
    EB_TRY(check_attention(&c, &t));
    EB_TRY(eb_check_scratch(&c, "scratch", a->scratch, a));
    if (a->rows.n_rows == 0) return EBRO_OK;
    return EB_DISPATCH(&c, mla_decode, a);
}
