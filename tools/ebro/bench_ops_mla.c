/* bench_ops_mla.c: the sizes at which `ebro bench ops` measures the operators of MLA. */
#include <math.h>
#include <stdlib.h>

#include "bench_ops.h"

struct mla_size {
    const char *name;
    uint32_t n_seqs, n, context, heads; /* n rows a sequence, after `context` tokens */
    int32_t dtype;                      /* of the cache */
    bool large;                         /* not on a CPU */
};

/* All models of the family have these. */
enum { LORA = 512, ROPE = 64, NOPE = 128, V_DIM = 128, ROW = LORA + ROPE };

static double scale(void) {
    return 1.0 / sqrt((double)(NOPE + ROPE));
}

/* Cache rows that the rows of the call see, each sequence's own. */
static double pairs(const struct mla_size *z) {
    return z->n_seqs * (double)z->n * (z->context + (z->n + 1.0) / 2.0);
}

static double cache_bytes(const struct mla_size *z) {
    return z->n_seqs * ((double)z->context + z->n) * ROW * eb_dtype_size(z->dtype);
}

static double n_rows(const struct mla_size *z) {
    return (double)z->n_seqs * z->n;
}

static void build_append(struct eb_rig *r, const void *size, union eb_op_args *u,
                         struct eb_op_floor *f) {
    const struct mla_size *z = size;
    ebro_mla_append_args *a = &u->mla_append;
    *a = (ebro_mla_append_args){.size = sizeof *a,
                                .rows = eb_rig_rows(r, z->n_seqs, z->n),
                                .norm_eps = 1e-6f,
                                .kv_lora = LORA,
                                .rope_dim = ROPE};
    a->kv = eb_rig_mat(r, a->rows.n_rows, ROW);
    a->norm_weight = eb_rig_vec(r, LORA);
    a->pages = eb_rig_pages(r, z->n_seqs, z->context, z->n, ROW, z->dtype);
    *f = (struct eb_op_floor){.bytes =
                                  n_rows(z) * ROW * (4.0 + eb_dtype_size(z->dtype)) + 4.0 * LORA};
}

static void build_prefill(struct eb_rig *r, const void *size, union eb_op_args *u,
                          struct eb_op_floor *f) {
    const struct mla_size *z = size;
    ebro_mla_prefill_args *a = &u->mla_prefill;
    *a = (ebro_mla_prefill_args){.size = sizeof *a,
                                 .rows = eb_rig_rows(r, z->n_seqs, z->n),
                                 .n_heads = z->heads,
                                 .nope_dim = NOPE,
                                 .rope_dim = ROPE,
                                 .v_dim = V_DIM,
                                 .kv_lora = LORA,
                                 .scale = (float)scale(),
                                 .token_end = UINT32_MAX};
    a->q = eb_rig_mat(r, a->rows.n_rows, (uint64_t)z->heads * (NOPE + ROPE));
    a->kv_b = eb_rig_weight(r, EBRO_BF16, z->heads * (NOPE + V_DIM), LORA);
    a->pages = eb_rig_pages(r, z->n_seqs, z->context, z->n, ROW, z->dtype);
    a->out = eb_rig_out(r, a->rows.n_rows, (uint64_t)z->heads * V_DIM);
    a->scratch = eb_rig_scratch(r, EBRO_OP_MLA_PREFILL, a);
    double heads = z->heads, tokens = z->n_seqs * ((double)z->context + z->n);
    *f = (struct eb_op_floor){.bytes = cache_bytes(z) + 2.0 * heads * (NOPE + V_DIM) * LORA +
                                       4.0 * n_rows(z) * heads * (NOPE + ROPE + V_DIM),
                              .multiply_adds = heads * (tokens * (NOPE + V_DIM) * LORA +
                                                        pairs(z) * (NOPE + ROPE + V_DIM))};
}

static void build_decode(struct eb_rig *r, const void *size, union eb_op_args *u,
                         struct eb_op_floor *f) {
    const struct mla_size *z = size;
    ebro_mla_decode_args *a = &u->mla_decode;
    *a = (ebro_mla_decode_args){.size = sizeof *a,
                                .rows = eb_rig_rows(r, z->n_seqs, z->n),
                                .n_heads = z->heads,
                                .kv_lora = LORA,
                                .rope_dim = ROPE,
                                .scale = (float)scale(),
                                .token_end = UINT32_MAX};
    a->q = eb_rig_mat(r, a->rows.n_rows, (uint64_t)z->heads * ROW);
    a->pages = eb_rig_pages(r, z->n_seqs, z->context, z->n, ROW, z->dtype);
    a->out = eb_rig_out(r, a->rows.n_rows, (uint64_t)z->heads * LORA);
    a->scratch = eb_rig_scratch(r, EBRO_OP_MLA_DECODE, a);
    *f = (struct eb_op_floor){.bytes = cache_bytes(z) + 4.0 * n_rows(z) * z->heads * (ROW + LORA),
                              .multiply_adds = pairs(z) * z->heads * (2.0 * LORA + ROPE)};
}

/* ---- the reference: row 0 of sequence 0, head 0 ----------------------------------------- */

/* The cache rows of sequence 0 that its row 0 sees, in order: F32 [context + 1][ROW]. Benchmarks
 * with an error have F32 caches. */
static float *cache_rows(struct eb_rig *r, const ebro_pages *p, uint32_t n) {
    uint32_t n_pages = (n + p->page_tokens - 1) / p->page_tokens;
    uint64_t page = (uint64_t)p->page_tokens * ROW;
    uint64_t *table = (uint64_t *)(void *)eb_rig_get(r, p->table, 2 * (uint64_t)n_pages);
    float *rows = malloc(n_pages * page * sizeof *rows);
    for (uint32_t i = 0; table && rows && i < n_pages; i++) {
        ebro_span at = {0};
        for (uint32_t k = 0; k < r->n_mems; k++) {
            ebro_mem *m = r->mems[k];
            if (table[i] >= m->address && table[i] < m->address + m->bytes)
                at = (ebro_span){m, table[i] - m->address};
        }
        float *one = eb_rig_get(r, at, page);
        for (uint64_t e = 0; one && e < page; e++) rows[i * page + e] = one[e];
        free(one);
    }
    free(table);
    return rows;
}

/* softmax(scale * <q, row>) over the rows; then the latents weighed by it. */
static bool attend(const float *rows, uint32_t n, const double *q, double *latent) {
    double *p = malloc(n * sizeof *p), most = -INFINITY, total = 0.0;
    if (!p) return false;
    for (uint32_t t = 0; t < n; t++) {
        p[t] = 0.0;
        for (int i = 0; i < ROW; i++) p[t] += q[i] * (double)rows[(uint64_t)t * ROW + (uint64_t)i];
        p[t] *= scale();
        if (p[t] > most) most = p[t];
    }
    for (int i = 0; i < LORA; i++) latent[i] = 0.0;
    for (uint32_t t = 0; t < n; t++) {
        double w = exp(p[t] - most);
        total += w;
        for (int i = 0; i < LORA; i++)
            latent[i] += w * (double)rows[(uint64_t)t * ROW + (uint64_t)i];
    }
    for (int i = 0; i < LORA; i++) latent[i] /= total;
    free(p);
    return true;
}

static double error_decode(struct eb_rig *r, const void *size, const union eb_op_args *u) {
    const struct mla_size *z = size;
    const ebro_mla_decode_args *a = &u->mla_decode;
    struct eb_error_sum sum = {0};
    double q[ROW], latent[LORA];
    if (z->dtype != EBRO_F32) return -1.0;
    if (!eb_rig_failed(r)) eb_rig_note(r, eb_rig_call(r, EBRO_OP_MLA_DECODE, a));
    float *rows = cache_rows(r, &a->pages, z->context + 1);
    float *x = eb_rig_get(r, (ebro_span){a->q.mem, a->q.offset}, ROW);
    float *y = eb_rig_get(r, (ebro_span){a->out.mem, a->out.offset}, LORA);
    if (rows && x && y) {
        for (int i = 0; i < ROW; i++) q[i] = (double)x[i];
        if (attend(rows, z->context + 1, q, latent))
            for (int i = 0; i < LORA; i++) eb_error_add(&sum, (double)y[i], latent[i]);
    }
    free(rows);
    free(x);
    free(y);
    return eb_error_relative(&sum);
}

/* By the absorbed form, which is equal in exact arithmetic. */
static double error_prefill(struct eb_rig *r, const void *size, const union eb_op_args *u) {
    const struct mla_size *z = size;
    const ebro_mla_prefill_args *a = &u->mla_prefill;
    struct eb_error_sum sum = {0};
    double q[ROW], latent[LORA];
    if (z->dtype != EBRO_F32) return -1.0;
    if (!eb_rig_failed(r)) eb_rig_note(r, eb_rig_call(r, EBRO_OP_MLA_PREFILL, a));
    float *rows = cache_rows(r, &a->pages, z->context + 1);
    float *x = eb_rig_get(r, (ebro_span){a->q.mem, a->q.offset}, NOPE + ROPE);
    float *y = eb_rig_get(r, (ebro_span){a->out.mem, a->out.offset}, V_DIM);
    double *w = eb_rig_get_weight(r, &a->kv_b, 0, NOPE + V_DIM);
    if (rows && x && y && w) {
        for (int c = 0; c < LORA; c++) {
            q[c] = 0.0;
            for (int i = 0; i < NOPE; i++) q[c] += (double)x[i] * w[i * LORA + c];
        }
        for (int i = 0; i < ROPE; i++) q[LORA + i] = (double)x[NOPE + i];
        bool ok = attend(rows, z->context + 1, q, latent);
        for (int o = 0; ok && o < V_DIM; o++) {
            double ref = 0.0;
            for (int c = 0; c < LORA; c++) ref += w[(NOPE + o) * LORA + c] * latent[c];
            eb_error_add(&sum, (double)y[o], ref);
        }
    }
    free(rows);
    free(x);
    free(y);
    free(w);
    return eb_error_relative(&sum);
}

/* ---- the list --------------------------------------------------------------------------- */

static const struct mla_size appends[] = {
    {"48B 512 rows, f32", 1, 512, 0, 32, EBRO_F32, false},
    {"48B 512 rows, bf16", 1, 512, 0, 32, EBRO_BF16, false},
    {"tiny 1 row, f32", 1, 1, 0, 4, EBRO_F32, false},
};
static const struct mla_size prefills[] = {
    {"48B 512 rows, f32", 1, 512, 0, 32, EBRO_F32, false},
    {"48B 128 rows after 2048, f32", 1, 128, 2048, 32, EBRO_F32, false},
    {"48B 8192 rows, bf16", 1, 8192, 0, 32, EBRO_BF16, true},
    {"tiny 512 rows, f32", 1, 512, 0, 4, EBRO_F32, false},
    {"tiny, 512 rows after 4096, f32", 1, 512, 4096, 4, EBRO_F32, false},
};
static const struct mla_size decodes[] = {
    {"48B batch 1, 8k, f32", 1, 1, 8191, 32, EBRO_F32, false},
    {"48B batch 1, 8k, bf16", 1, 1, 8191, 32, EBRO_BF16, false},
    {"48B batch 1, 64k, bf16", 1, 1, 65535, 32, EBRO_BF16, false},
    {"48B batch 1, 256k, bf16", 1, 1, 262143, 32, EBRO_BF16, true},
    {"48B batch 32, 8k, bf16", 32, 1, 8191, 32, EBRO_BF16, true},
    {"48B batch 32, 64k, bf16", 32, 1, 65535, 32, EBRO_BF16, true},
    {"tiny batch 1, 4k, f32", 1, 1, 4095, 4, EBRO_F32, false},
    {"tiny batch 1, 4k, bf16", 1, 1, 4095, 4, EBRO_BF16, false},
};

static void run(struct eb_ops_bench *b, const struct mla_size *list, size_t n,
                struct eb_op_case c) {
    for (size_t i = 0; i < n; i++) {
        if (list[i].large && eb_ops_on_cpu(b)) continue;
        c.shape = list[i].name;
        c.size = &list[i];
        eb_ops_run(b, &c);
    }
}

void eb_ops_mla(struct eb_ops_bench *b) {
    run(b, appends, sizeof appends / sizeof *appends,
        (struct eb_op_case){.op = EBRO_OP_MLA_APPEND, .build = build_append});
    run(b, prefills, sizeof prefills / sizeof *prefills,
        (struct eb_op_case){
            .op = EBRO_OP_MLA_PREFILL, .build = build_prefill, .error = error_prefill});
    run(b, decodes, sizeof decodes / sizeof *decodes,
        (struct eb_op_case){
            .op = EBRO_OP_MLA_DECODE, .build = build_decode, .error = error_decode});
}
