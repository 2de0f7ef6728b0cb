/* bench_ops_dense.c: the sizes at which `ebro bench ops` measures products, norms, element-wise
 * operators, the table of embeddings, sampling and copies. */
#include <math.h>
#include <stdlib.h>

#include "bench_ops.h"

/* ---- linear ----------------------------------------------------------------------------- */

struct linear_size {
    const char *name;
    uint32_t n_rows, outputs, inputs;
    int32_t dtype;
};

static void build_linear(struct eb_rig *r, const void *size, union eb_op_args *u,
                         struct eb_op_floor *f) {
    const struct linear_size *z = size;
    ebro_linear_args *a = &u->linear;
    *a = (ebro_linear_args){.size = sizeof *a, .n_rows = z->n_rows, .n_items = 1, .n_batch = 1};
    a->x = eb_rig_mat(r, z->n_rows, z->inputs);
    a->items[0].w = eb_rig_weight(r, z->dtype, z->outputs, z->inputs);
    a->items[0].out = eb_rig_out(r, z->n_rows, z->outputs);
    a->scratch = eb_rig_scratch(r, EBRO_OP_LINEAR, a);
    double n = z->n_rows, out = z->outputs, in = z->inputs;
    *f = (struct eb_op_floor){.bytes = out * in * eb_dtype_size(z->dtype) + 4.0 * n * (in + out),
                              .multiply_adds = n * out * in};
}

/* Outputs 0 .. 63 of the first and of the last row. */
static double error_linear(struct eb_rig *r, const void *size, const union eb_op_args *u) {
    const struct linear_size *z = size;
    const ebro_linear_args *a = &u->linear;
    const ebro_mat *out = &a->items[0].out;
    uint32_t n_out = z->outputs < 64 ? z->outputs : 64;
    struct eb_error_sum sum = {0};
    eb_rig_note(r, eb_rig_call(r, EBRO_OP_LINEAR, a));
    double *w = eb_rig_get_weight(r, &a->items[0].w, 0, n_out);
    for (int i = 0; i < 2; i++) {
        uint64_t row = i ? z->n_rows - 1 : 0;
        float *x =
            eb_rig_get(r, (ebro_span){a->x.mem, a->x.offset + row * z->inputs * 4}, z->inputs);
        float *y = eb_rig_get(r, (ebro_span){out->mem, out->offset + row * z->outputs * 4}, n_out);
        for (uint32_t o = 0; w && x && y && o < n_out; o++) {
            double ref = 0.0;
            for (uint32_t k = 0; k < z->inputs; k++)
                ref += (double)x[k] * w[(uint64_t)o * z->inputs + k];
            eb_error_add(&sum, (double)y[o], ref);
        }
        free(x);
        free(y);
    }
    free(w);
    return eb_error_relative(&sum);
}

static const struct linear_size linears[] = {
    {"48B head part 1x40960x2304 bf16", 1, 40960, 2304, EBRO_BF16},
    {"48B head part 1x40960x2304 f32", 1, 40960, 2304, EBRO_F32},
    {"48B q 1x4096x2304 bf16", 1, 4096, 2304, EBRO_BF16},
    {"48B ffn down 1x2304x9216 bf16", 1, 2304, 9216, EBRO_BF16},
    {"48B q 16x4096x2304 bf16", 16, 4096, 2304, EBRO_BF16},
    {"48B q 512x4096x2304 bf16", 512, 4096, 2304, EBRO_BF16},
    {"tiny q 1x512x192 bf16", 1, 512, 192, EBRO_BF16},
    {"tiny head 1x4352x192 bf16", 1, 4352, 192, EBRO_BF16},
    {"tiny q 512x512x192 bf16", 512, 512, 192, EBRO_BF16},
};

/* ---- norms and element-wise ------------------------------------------------------------- */

struct mat_size {
    const char *name;
    uint32_t n_rows, n_cols;
};

static void build_norm(struct eb_rig *r, const void *size, union eb_op_args *u,
                       struct eb_op_floor *f) {
    const struct mat_size *z = size;
    ebro_rms_norm_args *a = &u->rms_norm;
    *a = (ebro_rms_norm_args){
        .size = sizeof *a, .n_rows = z->n_rows, .n_cols = z->n_cols, .eps = 1e-5f};
    a->x = eb_rig_mat(r, z->n_rows, z->n_cols);
    a->out = eb_rig_out(r, z->n_rows, z->n_cols);
    a->weight = eb_rig_vec(r, z->n_cols);
    *f = (struct eb_op_floor){.bytes = 4.0 * z->n_cols * (2.0 * z->n_rows + 1.0)};
}

/* The last row. */
static double error_norm(struct eb_rig *r, const void *size, const union eb_op_args *u) {
    const struct mat_size *z = size;
    const ebro_rms_norm_args *a = &u->rms_norm;
    uint64_t at = (uint64_t)(z->n_rows - 1) * z->n_cols * 4;
    struct eb_error_sum sum = {0};
    eb_rig_note(r, eb_rig_call(r, EBRO_OP_RMS_NORM, a));
    float *x = eb_rig_get(r, (ebro_span){a->x.mem, a->x.offset + at}, z->n_cols);
    float *y = eb_rig_get(r, (ebro_span){a->out.mem, a->out.offset + at}, z->n_cols);
    float *w = eb_rig_get(r, (ebro_span){a->weight.mem, a->weight.offset}, z->n_cols);
    double squares = 0.0;
    for (uint32_t i = 0; x && i < z->n_cols; i++) squares += (double)x[i] * (double)x[i];
    double scale = 1.0 / sqrt(squares / z->n_cols + (double)a->eps);
    for (uint32_t i = 0; x && y && w && i < z->n_cols; i++)
        eb_error_add(&sum, (double)y[i], (double)x[i] * scale * (double)w[i]);
    free(x);
    free(y);
    free(w);
    return eb_error_relative(&sum);
}

static void build_act(struct eb_rig *r, const void *size, union eb_op_args *u,
                      struct eb_op_floor *f) {
    const struct mat_size *z = size;
    ebro_act_mul_args *a = &u->act_mul;
    *a = (ebro_act_mul_args){.size = sizeof *a,
                             .n_rows = z->n_rows,
                             .n_cols = z->n_cols,
                             .gate_group = 1,
                             .kind = EBRO_ACT_SILU};
    a->gate = eb_rig_mat(r, z->n_rows, z->n_cols);
    a->up = eb_rig_mat(r, z->n_rows, z->n_cols);
    a->out = eb_rig_out(r, z->n_rows, z->n_cols);
    *f = (struct eb_op_floor){.bytes = 12.0 * z->n_rows * z->n_cols};
}

/* The last row. */
static double error_act(struct eb_rig *r, const void *size, const union eb_op_args *u) {
    const struct mat_size *z = size;
    const ebro_act_mul_args *a = &u->act_mul;
    uint64_t at = (uint64_t)(z->n_rows - 1) * z->n_cols * 4;
    struct eb_error_sum sum = {0};
    eb_rig_note(r, eb_rig_call(r, EBRO_OP_ACT_MUL, a));
    float *g = eb_rig_get(r, (ebro_span){a->gate.mem, a->gate.offset + at}, z->n_cols);
    float *v = eb_rig_get(r, (ebro_span){a->up.mem, a->up.offset + at}, z->n_cols);
    float *y = eb_rig_get(r, (ebro_span){a->out.mem, a->out.offset + at}, z->n_cols);
    for (uint32_t i = 0; g && v && y && i < z->n_cols; i++)
        eb_error_add(&sum, (double)y[i], (double)g[i] / (1.0 + exp(-(double)g[i])) * (double)v[i]);
    free(g);
    free(v);
    free(y);
    return eb_error_relative(&sum);
}

enum { N_SOURCES = 9 };

static void build_res(struct eb_rig *r, const void *size, union eb_op_args *u,
                      struct eb_op_floor *f) {
    const struct mat_size *z = size;
    ebro_attn_res_mix_args *a = &u->attn_res_mix;
    *a = (ebro_attn_res_mix_args){.size = sizeof *a,
                                  .n_sources = N_SOURCES,
                                  .n_rows = z->n_rows,
                                  .n_cols = z->n_cols,
                                  .eps = 1e-5f};
    for (int i = 0; i < N_SOURCES; i++) a->sources[i] = eb_rig_mat(r, z->n_rows, z->n_cols);
    a->norm_weight = eb_rig_vec(r, z->n_cols);
    a->proj = eb_rig_vec(r, z->n_cols);
    a->out = eb_rig_out(r, z->n_rows, z->n_cols);
    *f = (struct eb_op_floor){.bytes = 4.0 * z->n_cols * ((N_SOURCES + 1.0) * z->n_rows + 2.0)};
}

static const struct mat_size norms[] = {{"48B 1x2304", 1, 2304},
                                        {"48B 512x2304", 512, 2304},
                                        {"48B heads 16384x128", 16384, 128},
                                        {"tiny 1x192", 1, 192}};
static const struct mat_size acts[] = {
    {"48B silu 1x9216", 1, 9216}, {"48B silu 512x9216", 512, 9216}, {"tiny silu 1x576", 1, 576}};
static const struct mat_size mixes[] = {{"K3 9 sources 1x7168", 1, 7168},
                                        {"K3 9 sources 256x7168", 256, 7168},
                                        {"tiny 9 sources 1x192", 1, 192}};

/* ---- tokens ----------------------------------------------------------------------------- */

static void build_embed(struct eb_rig *r, const void *size, union eb_op_args *u,
                        struct eb_op_floor *f) {
    const struct linear_size *z = size;
    ebro_embed_args *a = &u->embed;
    int32_t *ids = malloc(z->n_rows * sizeof *ids);
    for (uint32_t i = 0; ids && i < z->n_rows; i++)
        ids[i] = (int32_t)(ebro_uniform(7, i) * (float)z->outputs);
    *a = (ebro_embed_args){.size = sizeof *a, .n_rows = z->n_rows};
    a->table = eb_rig_weight(r, z->dtype, z->outputs, z->inputs);
    a->out = eb_rig_out(r, z->n_rows, z->inputs);
    if (ids)
        a->ids = eb_rig_data(r, ids, z->n_rows * sizeof *ids);
    else
        a->ids = eb_rig_bytes(r, z->n_rows * sizeof *ids);
    free(ids);
    *f = (struct eb_op_floor){.bytes = (double)z->n_rows *
                                       (4.0 + z->inputs * (4.0 + eb_dtype_size(z->dtype)))};
}

static void build_sample(struct eb_rig *r, const void *size, union eb_op_args *u,
                         struct eb_op_floor *f) {
    const struct mat_size *z = size;
    const ebro_sample_params params = {0};
    ebro_sample_args *a = &u->sample;
    *a = (ebro_sample_args){.size = sizeof *a, .n_rows = z->n_rows, .vocab = z->n_cols};
    a->logits = eb_rig_mat(r, z->n_rows, z->n_cols);
    a->params = eb_rig_data(r, &params, sizeof params);
    a->ids = eb_rig_bytes(r, z->n_rows * sizeof(int32_t));
    a->scratch = eb_rig_scratch(r, EBRO_OP_SAMPLE, a);
    *f = (struct eb_op_floor){.bytes = 4.0 * z->n_rows * z->n_cols};
}

static const struct linear_size embeds[] = {
    {"48B 512 of 40960x2304 bf16", 512, 40960, 2304, EBRO_BF16},
    {"tiny 512 of 4352x192 bf16", 512, 4352, 192, EBRO_BF16}};
static const struct mat_size samples[] = {{"48B greedy 163840", 1, 163840},
                                          {"tiny greedy 4352", 1, 4352}};

/* ---- copies ----------------------------------------------------------------------------- */

struct copy_size {
    const char *name;
    uint32_t n;
    uint64_t bytes;
};

static void build_state_copy(struct eb_rig *r, const void *size, union eb_op_args *u,
                             struct eb_op_floor *f) {
    const struct copy_size *z = size;
    ebro_state_copy_args *a = &u->state_copy;
    /* a table of one entry for each copy, as states of that many sequences have */
    ebro_state_io from = eb_rig_state(r, z->n, 1, z->bytes / 4);
    ebro_state_io to = eb_rig_state(r, z->n, 1, z->bytes / 4);
    *a = (ebro_state_copy_args){.size = sizeof *a,
                                .src = from.region.table,
                                .dst = to.region.table,
                                .n = z->n,
                                .bytes = z->bytes};
    *f = (struct eb_op_floor){.bytes = 2.0 * z->n * (double)z->bytes};
}

static void build_rows_copy(struct eb_rig *r, const void *size, union eb_op_args *u,
                            struct eb_op_floor *f) {
    const struct copy_size *z = size;
    ebro_rows_copy_args *a = &u->rows_copy;
    ebro_mat from = eb_rig_mat(r, z->n, z->bytes / 4), to = eb_rig_out(r, z->n, z->bytes / 4);
    *a = (ebro_rows_copy_args){.size = sizeof *a,
                               .src = {from.mem, from.offset},
                               .dst = {to.mem, to.offset},
                               .src_stride_bytes = z->bytes,
                               .dst_stride_bytes = z->bytes,
                               .row_bytes = z->bytes,
                               .n = z->n};
    *f = (struct eb_op_floor){.bytes = 2.0 * z->n * (double)z->bytes};
}

static const struct copy_size state_copies[] = {{"48B 32 heads of 64 KiB", 32, 65536},
                                                {"tiny 4 heads of 64 KiB", 4, 65536}};
static const struct copy_size rows_copies[] = {{"48B 512 rows of 9 KiB", 512, 9216},
                                               {"tiny 4 rows of 256 B", 4, 256}};

/* ---- the list --------------------------------------------------------------------------- */

#define RUN_ALL(b, list, op, build, error)                     \
    for (size_t i = 0; i < sizeof(list) / sizeof *(list); i++) \
    eb_ops_run(b, &(const struct eb_op_case){op, (list)[i].name, &(list)[i], build, error})

void eb_ops_dense(struct eb_ops_bench *b) {
    RUN_ALL(b, linears, EBRO_OP_LINEAR, build_linear, error_linear);
    RUN_ALL(b, norms, EBRO_OP_RMS_NORM, build_norm, error_norm);
    RUN_ALL(b, acts, EBRO_OP_ACT_MUL, build_act, error_act);
    RUN_ALL(b, mixes, EBRO_OP_ATTN_RES_MIX, build_res, NULL);
    RUN_ALL(b, embeds, EBRO_OP_EMBED, build_embed, NULL);
    RUN_ALL(b, samples, EBRO_OP_SAMPLE, build_sample, NULL);
    RUN_ALL(b, state_copies, EBRO_OP_STATE_COPY, build_state_copy, NULL);
    RUN_ALL(b, rows_copies, EBRO_OP_ROWS_COPY, build_rows_copy, NULL);
}
