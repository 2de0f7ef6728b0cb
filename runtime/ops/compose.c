/* compose.c: kda_step from kda_conv, kda_prep, kda_recur and rms_norm; scratch sizes of all ops.
 *
 * Scratch: q, k and v after convolution, dense [n_rows][H * head_dim] each, then the chunk work
 * that prep and recur share. Once prep is done q is free, so recur writes into it: the output
 * itself stays untouched until the norm, which reads out_gate. */
#include "ops/compose.h"

#include <string.h>

/* Regions keep whatever alignment the caller gave scratch, up to this. */
enum { REGION_ALIGN = 256 };

struct layout {
    uint64_t y_bytes; /* of each of q, k, v */
    uint64_t work;    /* offset inside scratch */
};

static bool round_up(uint64_t *v) {
    if (!eb_add_u64(*v, REGION_ALIGN - 1, v)) return false;
    *v -= *v % REGION_ALIGN;
    return true;
}

static bool lay_out(const ebro_kda_step_args *a, struct layout *l) {
    /* Without rows nothing is written, but the ops still want memory to be named. */
    uint64_t n_rows = a->rows.n_rows > 0 ? a->rows.n_rows : 1;
    uint64_t row_bytes = (uint64_t)a->gate.n_heads * a->gate.head_dim;
    return eb_mul_u64(row_bytes, sizeof(float), &row_bytes) &&
           eb_mul_u64(n_rows, row_bytes, &l->y_bytes) && round_up(&l->y_bytes) &&
           eb_mul_u64(l->y_bytes, 3, &l->work);
}

static ebro_mat y_mat(const ebro_kda_step_args *a, const struct layout *l, uint32_t i) {
    return (ebro_mat){.mem = a->scratch.mem,
                      .offset = a->scratch.offset + i * l->y_bytes,
                      .stride = (uint64_t)a->gate.n_heads * a->gate.head_dim,
                      .dtype = EBRO_F32};
}

static ebro_kda_conv_args conv_args(const ebro_kda_step_args *a, const struct layout *l) {
    ebro_kda_conv_args v = {.size = sizeof v,
                            .rows = a->rows,
                            .n_channels = a->gate.n_heads * a->gate.head_dim,
                            .state = a->windows};
    for (uint32_t i = 0; i < 3; i++) {
        v.x[i] = a->x[i];
        v.out[i] = y_mat(a, l, i);
        v.weight[i] = a->conv_weight[i];
    }
    return v;
}

static ebro_kda_prep_args prep_args(const ebro_kda_step_args *a, const struct layout *l) {
    return (ebro_kda_prep_args){.size = sizeof(ebro_kda_prep_args),
                                .rows = a->rows,
                                .q = y_mat(a, l, 0),
                                .k = y_mat(a, l, 1),
                                .v = y_mat(a, l, 2),
                                .gate = a->gate,
                                .emit_rows = a->state.emit_rows,
                                .n_emit = a->state.n_emit,
                                .work = {a->scratch.mem, a->scratch.offset + l->work}};
}

static ebro_kda_recur_args recur_args(const ebro_kda_step_args *a, const struct layout *l) {
    return (ebro_kda_recur_args){.size = sizeof(ebro_kda_recur_args),
                                 .rows = a->rows,
                                 .v = y_mat(a, l, 2),
                                 .out = y_mat(a, l, 0),
                                 .n_heads = a->gate.n_heads,
                                 .head_dim = a->gate.head_dim,
                                 .state = a->state,
                                 .work = {a->scratch.mem, a->scratch.offset + l->work}};
}

/* Rows are tokens x heads where everything is dense and their number fits; else one call a head. */
static int32_t run_norm(struct eb_stream *s, const ebro_kda_step_args *a, const struct layout *l,
                        ebro_error *err) {
    uint32_t n_heads = a->gate.n_heads, head_dim = a->gate.head_dim;
    uint64_t channels = (uint64_t)n_heads * head_dim;
    uint64_t n_rows = (uint64_t)a->rows.n_rows * n_heads;
    ebro_rms_norm_args v = {.size = sizeof v,
                            .x = y_mat(a, l, 0),
                            .out = a->out,
                            .gate = a->out_gate,
                            .weight = a->norm_weight,
                            .n_rows = a->rows.n_rows,
                            .n_cols = head_dim,
                            .eps = a->norm_eps};
    bool dense = a->out.stride == channels && a->out_gate.stride == channels;
    if ((dense || a->rows.n_rows == 1) && n_rows <= UINT32_MAX) {
        v.x.stride = v.out.stride = v.gate.stride = head_dim;
        v.n_rows = (uint32_t)n_rows;
        return eb_op_rms_norm(s, &v, err);
    }
    for (uint32_t h = 0; h < n_heads; h++) {
        EB_TRY(eb_op_rms_norm(s, &v, err));
        uint64_t head_bytes = (uint64_t)head_dim * sizeof(float);
        v.x.offset += head_bytes;
        v.out.offset += head_bytes;
        v.gate.offset += head_bytes;
    }
    return EBRO_OK;
}

bool eb_compose_has_kda_step(const struct ebro_device *d) {
    return d->be->kda_conv != NULL && d->be->kda_prep != NULL && d->be->kda_recur != NULL &&
           d->be->rms_norm != NULL;
}

uint64_t eb_compose_kda_step_bytes(struct ebro_device *d, const ebro_kda_step_args *a) {
    struct layout l;
    uint64_t bytes;
    if (!lay_out(a, &l)) return UINT64_MAX;
    ebro_kda_prep_args prep = prep_args(a, &l);
    ebro_kda_recur_args recur = recur_args(a, &l);
    uint64_t work = eb_op_scratch(d, EBRO_OP_KDA_PREP, &prep);
    uint64_t recur_work = eb_op_scratch(d, EBRO_OP_KDA_RECUR, &recur);
    if (recur_work > work) work = recur_work;
    return eb_add_u64(l.work, work, &bytes) ? bytes : UINT64_MAX;
}

int32_t eb_compose_check_kda_step(const struct eb_check *c, const ebro_kda_step_args *a) {
    uint64_t n_rows = a->rows.n_rows, channels = (uint64_t)a->gate.n_heads * a->gate.head_dim;
    uint64_t bytes = eb_compose_kda_step_bytes(c->s->device, a);
    const struct eb_strided scratch = {a->scratch.mem, a->scratch.offset, bytes, bytes, 1};
    const struct {
        const char *name;
        const ebro_mat *m;
        uint64_t cols;
    } mats[] = {{"x[0]", &a->x[0], channels},
                {"x[1]", &a->x[1], channels},
                {"x[2]", &a->x[2], channels},
                {"gate.g_raw", &a->gate.g_raw, channels},
                {"gate.beta_raw", &a->gate.beta_raw, a->gate.n_heads},
                {"out_gate", &a->out_gate, channels},
                {"out", &a->out, channels}};
    for (size_t i = 0; i < sizeof mats / sizeof mats[0]; i++) {
        struct eb_strided m = eb_mat_bytes(mats[i].m, n_rows, mats[i].cols);
        EB_TRY(eb_check_apart(c, "scratch", &scratch, mats[i].name, &m));
    }
    return EBRO_OK;
}

int32_t eb_compose_kda_step(struct eb_stream *s, const ebro_kda_step_args *a, ebro_error *err) {
    struct layout l;
    if (!lay_out(a, &l)) return eb_fail(err, EBRO_INTERNAL, "kda_step: scratch layout overflows");
    ebro_kda_conv_args conv = conv_args(a, &l);
    ebro_kda_prep_args prep = prep_args(a, &l);
    ebro_kda_recur_args recur = recur_args(a, &l);
    int32_t st = eb_op_kda_conv(s, &conv, err);
    if (st == EBRO_OK) st = eb_op_kda_prep(s, &prep, err);
    if (st == EBRO_OK) st = eb_op_kda_recur(s, &recur, err);
    if (st == EBRO_OK) st = run_norm(s, a, &l, err);
    if (st != EBRO_OK) eb_while(err, st, "composing kda_step");
    return st;
}

uint64_t eb_op_scratch(struct ebro_device *d, ebro_op op, const void *args) {
    if (op == EBRO_OP_KDA_STEP && d->be->kda_step == NULL)
        return eb_compose_kda_step_bytes(d, args);
    return d->be->scratch_bytes(d->dev, op, args);
}
