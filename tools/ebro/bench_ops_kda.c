/* bench_ops_kda.c: the sizes at which `ebro bench ops` measures the operators of KDA. */
#include <math.h>
#include <stdlib.h>

#include "bench_ops.h"

struct kda_size {
    const char *name;
    uint32_t n_seqs, n, heads, dim; /* n rows a sequence */
    bool large;                     /* not on a CPU */
};

static double rows_of(const struct kda_size *z) {
    return (double)z->n_seqs * z->n;
}

/* Decay, what the key reads, the update and what the query reads: one of them folds into another,
 * three passes over S remain. */
static double recurrence_multiply_adds(const struct kda_size *z) {
    return 3.0 * rows_of(z) * z->heads * z->dim * z->dim;
}

static double state_bytes(const struct kda_size *z) {
    return 8.0 * z->n_seqs * z->heads * z->dim * z->dim; /* read and written */
}

static double window_bytes(const struct kda_size *z) {
    return 8.0 * z->n_seqs * 9.0 * z->heads * z->dim;
}

static ebro_kda_gate gate(struct eb_rig *r, const struct kda_size *z) {
    uint64_t rows = (uint64_t)z->n_seqs * z->n, channels = (uint64_t)z->heads * z->dim;
    return (ebro_kda_gate){.n_heads = z->heads,
                           .head_dim = z->dim,
                           .g_raw = eb_rig_mat(r, rows, channels),
                           .beta_raw = eb_rig_mat(r, rows, z->heads),
                           .a_log = eb_rig_vec(r, z->heads),
                           .dt_bias = eb_rig_vec(r, (uint32_t)channels),
                           .form = EBRO_GATE_SOFTPLUS,
                           .l2_eps = 1e-6f};
}

static void build_conv(struct eb_rig *r, const void *size, union eb_op_args *u,
                       struct eb_op_floor *f) {
    const struct kda_size *z = size;
    uint32_t channels = z->heads * z->dim;
    ebro_kda_conv_args *a = &u->kda_conv;
    *a = (ebro_kda_conv_args){
        .size = sizeof *a, .rows = eb_rig_rows(r, z->n_seqs, z->n), .n_channels = channels};
    for (int i = 0; i < 3; i++) {
        a->x[i] = eb_rig_mat(r, a->rows.n_rows, channels);
        a->out[i] = eb_rig_out(r, a->rows.n_rows, channels);
        a->weight[i] = eb_rig_vec(r, channels * EBRO_CONV_WIDTH);
    }
    a->state = eb_rig_state(r, z->n_seqs, 3, 3 * (uint64_t)channels);
    *f = (struct eb_op_floor){
        .bytes = rows_of(z) * channels * 24.0 + window_bytes(z) + 48.0 * channels,
        .multiply_adds = 12.0 * rows_of(z) * channels};
}

static void build_prep_args(struct eb_rig *r, const struct kda_size *z, ebro_kda_prep_args *a) {
    uint64_t rows = (uint64_t)z->n_seqs * z->n, channels = (uint64_t)z->heads * z->dim;
    *a = (ebro_kda_prep_args){.size = sizeof *a, .rows = eb_rig_rows(r, z->n_seqs, z->n)};
    a->q = eb_rig_mat(r, rows, channels);
    a->k = eb_rig_mat(r, rows, channels);
    a->v = eb_rig_mat(r, rows, channels);
    a->gate = gate(r, z);
    a->work = eb_rig_scratch(r, EBRO_OP_KDA_PREP, a);
}

static void build_prep(struct eb_rig *r, const void *size, union eb_op_args *u,
                       struct eb_op_floor *f) {
    const struct kda_size *z = size;
    build_prep_args(r, z, &u->kda_prep);
    *f = (struct eb_op_floor){.bytes = rows_of(z) * z->heads * (16.0 * z->dim + 4.0)};
}

/* The work that recur reads is made by one prep. */
static void build_recur(struct eb_rig *r, const void *size, union eb_op_args *u,
                        struct eb_op_floor *f) {
    const struct kda_size *z = size;
    ebro_kda_prep_args prep;
    ebro_kda_recur_args *a = &u->kda_recur;
    build_prep_args(r, z, &prep);
    if (!eb_rig_failed(r)) eb_rig_note(r, eb_rig_call(r, EBRO_OP_KDA_PREP, &prep));
    *a = (ebro_kda_recur_args){.size = sizeof *a,
                               .rows = prep.rows,
                               .v = prep.v,
                               .n_heads = z->heads,
                               .head_dim = z->dim,
                               .work = prep.work};
    a->out = eb_rig_out(r, prep.rows.n_rows, (uint64_t)z->heads * z->dim);
    a->state = eb_rig_state(r, z->n_seqs, z->heads, (uint64_t)z->dim * z->dim);
    *f = (struct eb_op_floor){.bytes = rows_of(z) * z->heads * 8.0 * z->dim + state_bytes(z),
                              .multiply_adds = recurrence_multiply_adds(z)};
}

static void build_step(struct eb_rig *r, const void *size, union eb_op_args *u,
                       struct eb_op_floor *f) {
    const struct kda_size *z = size;
    uint32_t channels = z->heads * z->dim;
    ebro_kda_step_args *a = &u->kda_step;
    *a = (ebro_kda_step_args){
        .size = sizeof *a, .rows = eb_rig_rows(r, z->n_seqs, z->n), .norm_eps = 1e-5f};
    for (int i = 0; i < 3; i++) {
        a->x[i] = eb_rig_mat(r, a->rows.n_rows, channels);
        a->conv_weight[i] = eb_rig_vec(r, channels * EBRO_CONV_WIDTH);
    }
    a->gate = gate(r, z);
    a->windows = eb_rig_state(r, z->n_seqs, 3, 3 * (uint64_t)channels);
    a->state = eb_rig_state(r, z->n_seqs, z->heads, (uint64_t)z->dim * z->dim);
    a->out_gate = eb_rig_mat(r, a->rows.n_rows, channels);
    a->norm_weight = eb_rig_vec(r, z->dim);
    a->out = eb_rig_out(r, a->rows.n_rows, channels);
    a->scratch = eb_rig_scratch(r, EBRO_OP_KDA_STEP, a);
    *f = (struct eb_op_floor){
        .bytes = state_bytes(z) + window_bytes(z) + rows_of(z) * channels * 24.0 + 48.0 * channels,
        .multiply_adds = recurrence_multiply_adds(z)};
}

/* ---- the reference of one step ---------------------------------------------------------- */

static double sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}

/* Host copies of what head 0 of the first sequence reads. */
struct head {
    float *x[3], *w[3], *window[3];
    float *g, *beta, *a_log, *bias, *gate, *norm, *state, *out;
};

/* Address of a region's unit as a span: the table's first entry, resolved to its memory. */
static ebro_span unit(struct eb_rig *r, const ebro_state_io *io, uint64_t u) {
    uint64_t *table = (uint64_t *)(void *)eb_rig_get(r, io->region.table, 2);
    uint64_t address = table ? table[0] : 0;
    free(table);
    for (uint32_t i = 0; i < r->n_mems && address; i++) {
        ebro_mem *m = r->mems[i];
        if (address >= m->address && address < m->address + m->bytes)
            return (ebro_span){m, address - m->address + u * io->region.unit_bytes};
    }
    return (ebro_span){0};
}

static float *row(struct eb_rig *r, const ebro_mat *m, uint64_t n) {
    return eb_rig_get(r, (ebro_span){m->mem, m->offset}, n);
}
static float *vec(struct eb_rig *r, const ebro_vec *v, uint64_t n) {
    return eb_rig_get(r, (ebro_span){v->mem, v->offset}, n);
}

static struct head get_head(struct eb_rig *r, const ebro_kda_step_args *a) {
    uint32_t dim = a->gate.head_dim;
    uint64_t channels = (uint64_t)a->gate.n_heads * dim;
    struct head h = {.g = row(r, &a->gate.g_raw, dim),
                     .beta = row(r, &a->gate.beta_raw, 1),
                     .a_log = vec(r, &a->gate.a_log, 1),
                     .bias = vec(r, &a->gate.dt_bias, dim),
                     .gate = row(r, &a->out_gate, dim),
                     .norm = vec(r, &a->norm_weight, dim),
                     .state = eb_rig_get(r, unit(r, &a->state, 0), (uint64_t)dim * dim)};
    for (uint64_t i = 0; i < 3; i++) {
        h.x[i] = row(r, &a->x[i], dim);
        h.w[i] = vec(r, &a->conv_weight[i], (uint64_t)dim * 4);
        h.window[i] = eb_rig_get(r, unit(r, &a->windows, i), 3 * channels);
    }
    return h;
}

static void free_head(struct head *h) {
    float *all[] = {h->g,     h->beta, h->a_log,     h->bias,      h->gate,     h->norm,
                    h->state, h->x[0], h->x[1],      h->x[2],      h->w[0],     h->w[1],
                    h->w[2],  h->out,  h->window[0], h->window[1], h->window[2]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Convolution, norms, decay, S <- diag(d) S, e = v - S^T k, S <- S + beta k e^T, o = S^T q, norm.
 */
static void reference_head(const struct head *h, uint32_t dim, uint64_t channels, double eps,
                           double *o) {
    enum { MAX = 256 };
    double y[3][MAX], norm[2] = {1e-6, 1e-6}, e[MAX], squares = 0.0;
    for (int i = 0; i < 3; i++) {
        for (uint32_t c = 0; c < dim; c++) {
            double sum = (double)h->w[i][4 * c + 3] * (double)h->x[i][c];
            for (uint64_t t = 0; t < 3; t++)
                sum += (double)h->w[i][4 * c + t] * (double)h->window[i][t * channels + c];
            y[i][c] = sum * sigmoid(sum);
            if (i < 2) norm[i] += y[i][c] * y[i][c];
        }
    }
    double nq = 1.0 / sqrt(norm[0] * dim), nk = 1.0 / sqrt(norm[1]),
           beta = sigmoid((double)*h->beta);
    for (uint32_t j = 0; j < dim; j++) {
        e[j] = y[2][j];
        o[j] = 0.0;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < dim; i++) {
            double a = (double)h->g[i] + (double)h->bias[i];
            double softplus = (a > 0.0 ? a : 0.0) + log1p(exp(-fabs(a)));
            double d = exp(-exp((double)*h->a_log) * softplus), k = y[1][i] * nk;
            for (uint32_t j = 0; j < dim; j++) {
                double s = d * (double)h->state[(uint64_t)i * dim + j];
                if (pass == 0)
                    e[j] -= s * k;
                else
                    o[j] += (s + beta * k * e[j]) * y[0][i] * nq;
            }
        }
    }
    for (uint32_t j = 0; j < dim; j++) squares += o[j] * o[j];
    double scale = 1.0 / sqrt(squares / dim + eps);
    for (uint32_t j = 0; j < dim; j++)
        o[j] *= scale * (double)h->norm[j] * sigmoid((double)h->gate[j]);
}

/* Head 0 of the first sequence. */
static double error_step(struct eb_rig *r, const void *size, const union eb_op_args *u) {
    const struct kda_size *z = size;
    const ebro_kda_step_args *a = &u->kda_step;
    double o[256];
    struct eb_error_sum sum = {0};
    struct head h = get_head(r, a);
    if (!eb_rig_failed(r)) eb_rig_note(r, eb_rig_call(r, EBRO_OP_KDA_STEP, a));
    h.out = row(r, &a->out, z->dim);
    if (!eb_rig_failed(r)) {
        reference_head(&h, z->dim, (uint64_t)z->heads * z->dim, (double)a->norm_eps, o);
        for (uint32_t j = 0; j < z->dim; j++) eb_error_add(&sum, (double)h.out[j], o[j]);
    }
    free_head(&h);
    return eb_error_relative(&sum);
}

/* ---- the list --------------------------------------------------------------------------- */

static const struct kda_size prompts[] = {
    {"48B 32 heads, 1 x 1024", 1, 1024, 32, 128, false},
    {"48B 32 heads, 8 x 128", 8, 128, 32, 128, false},
    {"48B 32 heads, 1 x 8192", 1, 8192, 32, 128, true},
    {"48B 32 heads, 8 x 1024", 8, 1024, 32, 128, true},
    {"K3 96 heads, 1 x 8192", 1, 8192, 96, 128, true},
    {"tiny 4 heads, 1 x 512", 1, 512, 4, 128, false},
};
static const struct kda_size steps[] = {
    {"48B 32 heads, batch 1", 1, 1, 32, 128, false},
    {"48B 32 heads, batch 8", 8, 1, 32, 128, false},
    {"48B 32 heads, batch 64", 64, 1, 32, 128, false},
    {"48B 32 heads, batch 256", 256, 1, 32, 128, true},
    {"K3 96 heads, batch 1", 1, 1, 96, 128, false},
    {"K3 96 heads, batch 64", 64, 1, 96, 128, true},
    {"tiny 4 heads, batch 1", 1, 1, 4, 128, false},
};

static void run(struct eb_ops_bench *b, const struct kda_size *list, size_t n,
                struct eb_op_case c) {
    for (size_t i = 0; i < n; i++) {
        if (list[i].large && eb_ops_on_cpu(b)) continue;
        c.shape = list[i].name;
        c.size = &list[i];
        eb_ops_run(b, &c);
    }
}

void eb_ops_kda(struct eb_ops_bench *b) {
    size_t n_prompts = sizeof prompts / sizeof *prompts, n_steps = sizeof steps / sizeof *steps;
    run(b, prompts, n_prompts, (struct eb_op_case){.op = EBRO_OP_KDA_CONV, .build = build_conv});
    run(b, prompts, n_prompts, (struct eb_op_case){.op = EBRO_OP_KDA_PREP, .build = build_prep});
    run(b, prompts, n_prompts, (struct eb_op_case){.op = EBRO_OP_KDA_RECUR, .build = build_recur});
    run(b, steps, n_steps,
        (struct eb_op_case){.op = EBRO_OP_KDA_STEP, .build = build_step, .error = error_step});
}
