/* kda.c: kda_conv, kda_prep, kda_recur and kda_step. These run without rows too: an empty sequence
 * still copies its state from one slot to another. */
#include <inttypes.h>
#include <math.h>

#include "ops/check.h"
#include "ops/compose.h"

enum { S_DTYPES = EB_DTYPE(EBRO_F32) | EB_DTYPE(EBRO_BF16) };

/* H and head_dim, with H * head_dim a channel count. */
struct heads {
    uint32_t n_heads, head_dim;
};

static int32_t check_heads(const struct eb_check *c, const struct heads *h) {
    EB_REQUIRE(c, h->n_heads > 0, "n_heads = 0");
    EB_REQUIRE(c, h->head_dim > 0, "head_dim = 0");
    EB_REQUIRE(c, h->head_dim % 8 == 0, "head_dim = %" PRIu32, h->head_dim);
    EB_REQUIRE(c, h->head_dim <= UINT32_MAX / h->n_heads,
               "n_heads = %" PRIu32 ", head_dim = %" PRIu32, h->n_heads, h->head_dim);
    return EBRO_OK;
}

static int32_t check_gate(const struct eb_check *call, const ebro_kda_gate *g, uint32_t n_rows) {
    struct eb_check in = eb_check_in(call, "gate", -1), *c = &in;
    struct heads heads = {g->n_heads, g->head_dim};
    EB_TRY(check_heads(c, &heads));
    uint64_t channels = (uint64_t)g->n_heads * g->head_dim;
    EB_TRY(eb_check_mat(c, "g_raw", &g->g_raw, n_rows, channels, EB_ONLY_F32));
    EB_TRY(eb_check_mat(c, "beta_raw", &g->beta_raw, n_rows, g->n_heads, EB_ONLY_F32));
    EB_TRY(eb_check_vec(c, "a_log", &g->a_log, g->n_heads));
    EB_TRY(eb_check_vec(c, "dt_bias", &g->dt_bias, channels));
    EB_REQUIRE(c, g->form == EBRO_GATE_SOFTPLUS || g->form == EBRO_GATE_BOUNDED, "form = %" PRId32,
               g->form);
    /* A decay above 0 would make the state grow. */
    if (g->form == EBRO_GATE_BOUNDED)
        EB_REQUIRE(c, isfinite(g->lower_bound) && g->lower_bound < 0, "lower_bound = %g",
                   (double)g->lower_bound);
    EB_REQUIRE(c, isfinite(g->l2_eps) && g->l2_eps >= 0, "l2_eps = %g", (double)g->l2_eps);
    return EBRO_OK;
}

/* q, k and v, or their weights. */
static int32_t check_three_mats(const struct eb_check *c, const char *name, const ebro_mat m[3],
                                uint64_t n_rows, uint64_t n_cols) {
    for (int32_t i = 0; i < 3; i++) {
        struct eb_check in = eb_check_in(c, name, i);
        EB_TRY(eb_check_mat(&in, "", &m[i], n_rows, n_cols, EB_ONLY_F32));
    }
    return EBRO_OK;
}

static int32_t check_three_vecs(const struct eb_check *c, const char *name, const ebro_vec v[3],
                                uint64_t n) {
    for (int32_t i = 0; i < 3; i++) {
        struct eb_check in = eb_check_in(c, name, i);
        EB_TRY(eb_check_vec(&in, "", &v[i], n));
    }
    return EBRO_OK;
}

int32_t eb_op_kda_conv(struct eb_stream *s, const ebro_kda_conv_args *a, ebro_error *err) {
    static const char *const x_names[3] = {"x[0]", "x[1]", "x[2]"};
    static const char *const out_names[3] = {"out[0]", "out[1]", "out[2]"};
    struct eb_check c;
    EB_TRY(eb_check_begin(&c, s, EBRO_OP_KDA_CONV, a, sizeof *a, err));
    uint64_t n_rows = a->rows.n_rows, n_channels = a->n_channels;
    EB_TRY(eb_check_rows(&c, &a->rows));
    EB_REQUIRE(&c, a->n_channels > 0, "n_channels = 0");
    EB_TRY(check_three_mats(&c, "x", a->x, n_rows, n_channels));
    EB_TRY(check_three_mats(&c, "out", a->out, n_rows, n_channels));
    EB_TRY(check_three_vecs(&c, "weight", a->weight, n_channels * EBRO_CONV_WIDTH));
    EB_TRY(eb_check_state(&c, "state", &a->state, &a->rows, 3, n_channels * (EBRO_CONV_WIDTH - 1),
                          EB_ONLY_F32));
    for (uint32_t i = 0; i < 3; i++) {
        struct eb_strided out = eb_mat_bytes(&a->out[i], n_rows, n_channels);
        struct eb_strided x = eb_mat_bytes(&a->x[i], n_rows, n_channels);
        EB_TRY(eb_check_apart(&c, out_names[i], &out, x_names[i], &x));
    }
    if (a->rows.n_seqs == 0) return EBRO_OK;
    return EB_DISPATCH(&c, kda_conv, a);
}

int32_t eb_op_kda_prep(struct eb_stream *s, const ebro_kda_prep_args *a, ebro_error *err) {
    struct eb_check c;
    EB_TRY(eb_check_begin(&c, s, EBRO_OP_KDA_PREP, a, sizeof *a, err));
    EB_TRY(eb_check_rows(&c, &a->rows));
    EB_TRY(check_gate(&c, &a->gate, a->rows.n_rows));
    uint64_t n_rows = a->rows.n_rows, channels = (uint64_t)a->gate.n_heads * a->gate.head_dim;
    EB_TRY(eb_check_mat(&c, "q", &a->q, n_rows, channels, EB_ONLY_F32));
    EB_TRY(eb_check_mat(&c, "k", &a->k, n_rows, channels, EB_ONLY_F32));
    EB_TRY(eb_check_mat(&c, "v", &a->v, n_rows, channels, EB_ONLY_F32));
    EB_TRY(eb_check_emit(&c, "emit_rows", a->emit_rows, a->n_emit, &a->rows));
    EB_TRY(eb_check_scratch(&c, "work", a->work, a));
    if (a->rows.n_seqs == 0) return EBRO_OK;
    return EB_DISPATCH(&c, kda_prep, a);
}

/* Work that kda_prep was given for these rows, at least: the gate's form is not known here, so the
 * lesser need of the two forms. */
static uint64_t least_work(struct ebro_device *d, const ebro_kda_recur_args *a) {
    ebro_kda_prep_args prep = {.size = sizeof prep,
                               .rows = a->rows,
                               .gate = {.n_heads = a->n_heads, .head_dim = a->head_dim},
                               .emit_rows = a->state.emit_rows,
                               .n_emit = a->state.n_emit};
    prep.gate.form = EBRO_GATE_SOFTPLUS;
    uint64_t softplus = eb_op_scratch(d, EBRO_OP_KDA_PREP, &prep);
    prep.gate.form = EBRO_GATE_BOUNDED;
    uint64_t bounded = eb_op_scratch(d, EBRO_OP_KDA_PREP, &prep);
    return softplus < bounded ? softplus : bounded;
}

int32_t eb_op_kda_recur(struct eb_stream *s, const ebro_kda_recur_args *a, ebro_error *err) {
    struct eb_check c;
    EB_TRY(eb_check_begin(&c, s, EBRO_OP_KDA_RECUR, a, sizeof *a, err));
    EB_TRY(eb_check_rows(&c, &a->rows));
    struct heads heads = {a->n_heads, a->head_dim};
    EB_TRY(check_heads(&c, &heads));
    uint64_t n_rows = a->rows.n_rows, channels = (uint64_t)a->n_heads * a->head_dim;
    EB_TRY(eb_check_mat(&c, "v", &a->v, n_rows, channels, EB_ONLY_F32));
    EB_TRY(eb_check_mat(&c, "out", &a->out, n_rows, channels, EB_ONLY_F32));
    EB_TRY(eb_check_state(&c, "state", &a->state, &a->rows, a->n_heads,
                          (uint64_t)a->head_dim * a->head_dim, S_DTYPES));
    EB_TRY(eb_check_room(&c, "work", a->work, least_work(s->device, a)));
    EB_TRY(eb_check_scratch(&c, "work", a->work, a));
    if (a->rows.n_seqs == 0) return EBRO_OK;
    return EB_DISPATCH(&c, kda_recur, a);
}

int32_t eb_op_kda_step(struct eb_stream *s, const ebro_kda_step_args *a, ebro_error *err) {
    struct eb_check c;
    EB_TRY(eb_check_begin(&c, s, EBRO_OP_KDA_STEP, a, sizeof *a, err));
    EB_TRY(eb_check_rows(&c, &a->rows));
    EB_TRY(check_gate(&c, &a->gate, a->rows.n_rows));
    uint64_t n_rows = a->rows.n_rows, head_dim = a->gate.head_dim;
    uint64_t channels = a->gate.n_heads * head_dim;
    EB_REQUIRE(&c, isfinite(a->norm_eps) && a->norm_eps >= 0, "norm_eps = %g", (double)a->norm_eps);
    EB_TRY(check_three_mats(&c, "x", a->x, n_rows, channels));
    EB_TRY(check_three_vecs(&c, "conv_weight", a->conv_weight, channels * EBRO_CONV_WIDTH));
    EB_TRY(eb_check_state(&c, "windows", &a->windows, &a->rows, 3, channels * (EBRO_CONV_WIDTH - 1),
                          EB_ONLY_F32));
    EB_TRY(eb_check_state(&c, "state", &a->state, &a->rows, a->gate.n_heads, head_dim * head_dim,
                          S_DTYPES));
    EB_TRY(eb_check_mat(&c, "out_gate", &a->out_gate, n_rows, channels, EB_ONLY_F32));
    EB_TRY(eb_check_vec(&c, "norm_weight", &a->norm_weight, head_dim));
    EB_TRY(eb_check_mat(&c, "out", &a->out, n_rows, channels, EB_ONLY_F32));
    EB_TRY(eb_check_scratch(&c, "scratch", a->scratch, a));
    if (s->device->be->kda_step != NULL) {
        if (a->rows.n_seqs == 0) return EBRO_OK;
        return EB_DISPATCH(&c, kda_step, a);
    }
    if (!eb_compose_has_kda_step(s->device)) return eb_check_unsupported(&c);
    EB_TRY(eb_compose_check_kda_step(&c, a));
    return eb_compose_kda_step(s, a, err);
}
