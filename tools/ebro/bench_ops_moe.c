/* bench_ops_moe.c: the sizes at which `ebro bench ops` measures the operators of mixtures of
 * experts. */
#include <stdlib.h>
#include <string.h>

#include "bench_ops.h"

struct moe_size {
    const char *name;
    uint32_t n_rows, n_experts, top_k, in, inner;
    uint32_t n_real; /* experts that have weights of their own; the others share theirs in turn */
};

static void build_route(struct eb_rig *r, const void *size, union eb_op_args *u,
                        struct eb_op_floor *f) {
    const struct moe_size *z = size;
    ebro_moe_route_args *a = &u->moe_route;
    *a = (ebro_moe_route_args){.size = sizeof *a,
                               .n_rows = z->n_rows,
                               .n_experts = z->n_experts,
                               .top_k = z->top_k,
                               .scaling = 2.446f,
                               .renormalise = 1};
    a->x = eb_rig_mat(r, z->n_rows, z->in);
    a->gate = eb_rig_weight(r, EBRO_BF16, z->n_experts, z->in);
    a->ids = eb_rig_out(r, z->n_rows, z->top_k);
    a->ids.dtype = EBRO_I32;
    a->weights = eb_rig_out(r, z->n_rows, z->top_k);
    a->offsets = eb_rig_bytes(r, (z->n_experts + 1) * sizeof(int32_t));
    a->pairs = eb_rig_bytes(r, (uint64_t)z->n_rows * z->top_k * sizeof(int32_t));
    a->scratch = eb_rig_scratch(r, EBRO_OP_MOE_ROUTE, a);
    double n = z->n_rows, experts = z->n_experts, in = z->in;
    *f = (struct eb_op_floor){.bytes = 2.0 * experts * in + 4.0 * n * in + 12.0 * n * z->top_k,
                              .multiply_adds = n * experts * in};
}

/* w1, w3 and w2 of every expert. */
static ebro_span expert_tables(struct eb_rig *r, const struct moe_size *z) {
    uint64_t *table = calloc(3 * (size_t)z->n_experts, sizeof *table);
    ebro_span span = {0};
    for (uint32_t e = 0; table && e < z->n_experts; e++) {
        for (uint32_t i = 0; i < 3; i++) {
            uint64_t *at = table + (size_t)i * z->n_experts;
            if (e >= z->n_real) {
                at[e] = at[e - z->n_real];
                continue;
            }
            ebro_weight w = i < 2 ? eb_rig_weight(r, EBRO_BF16, z->inner, z->in)
                                  : eb_rig_weight(r, EBRO_BF16, z->in, z->inner);
            at[e] = eb_rig_address((ebro_span){w.mem, w.offset});
        }
    }
    if (table)
        span = eb_rig_data(r, table, 3 * (uint64_t)z->n_experts * sizeof *table);
    else
        eb_rig_note(r, EBRO_NOMEM_HOST);
    free(table);
    return span;
}

/* Experts that the rows of a call use, of those with weights of their own. */
static double n_used(struct eb_rig *r, const struct moe_size *z, ebro_span offsets) {
    int32_t *v = (int32_t *)(void *)eb_rig_get(r, offsets, (uint64_t)z->n_experts + 1);
    bool *used = calloc(z->n_real, sizeof *used);
    double n = 0.0;
    for (uint32_t e = 0; v && used && e < z->n_experts; e++) {
        if (v[e] == v[e + 1] || used[e % z->n_real]) continue;
        used[e % z->n_real] = true;
        n += 1.0;
    }
    free(v);
    free(used);
    return n;
}

static void build_experts(struct eb_rig *r, const void *size, union eb_op_args *u,
                          struct eb_op_floor *f) {
    const struct moe_size *z = size;
    union eb_op_args route;
    struct eb_op_floor unused;
    ebro_moe_experts_args *a = &u->moe_experts;
    build_route(r, z, &route, &unused);
    if (!eb_rig_failed(r)) eb_rig_note(r, eb_rig_call(r, EBRO_OP_MOE_ROUTE, &route));
    *a = (ebro_moe_experts_args){.size = sizeof *a,
                                 .x = route.moe_route.x,
                                 .n_rows = z->n_rows,
                                 .n_experts = z->n_experts,
                                 .top_k = z->top_k,
                                 .in_dim = z->in,
                                 .inner_dim = z->inner,
                                 .dtype = EBRO_BF16,
                                 .act = EBRO_ACT_SILU,
                                 .weights = route.moe_route.weights,
                                 .offsets = route.moe_route.offsets,
                                 .pairs = route.moe_route.pairs};
    a->out = eb_rig_out(r, z->n_rows, z->in);
    a->tables = expert_tables(r, z);
    a->scratch = eb_rig_scratch(r, EBRO_OP_MOE_EXPERTS, a);
    double n = z->n_rows, expert = 3.0 * z->in * z->inner;
    *f = (struct eb_op_floor){.bytes = 2.0 * expert * n_used(r, z, a->offsets) + 12.0 * n * z->in,
                              .multiply_adds = n * z->top_k * expert};
}

static const struct moe_size sizes[] = {
    {"48B 1 row, 8 of 256", 1, 256, 8, 2304, 1024, 24},
    {"48B 64 rows, 8 of 256", 64, 256, 8, 2304, 1024, 24},
    {"tiny 1 row, 4 of 16", 1, 16, 4, 192, 64, 16},
    {"tiny 512 rows, 4 of 16", 512, 16, 4, 192, 64, 16},
};

void eb_ops_moe(struct eb_ops_bench *b) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        eb_ops_run(b, &(const struct eb_op_case){EBRO_OP_MOE_ROUTE, sizes[i].name, &sizes[i],
                                                 build_route, NULL});
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        eb_ops_run(b, &(const struct eb_op_case){EBRO_OP_MOE_EXPERTS, sizes[i].name, &sizes[i],
                                                 build_experts, NULL});
}
