/* op_moe.c: moe_experts: w1, w3 and the activation of every pair into scratch, w2 into scratch,
 * then the sum over a row's choices. Few pairs per expert go to a kernel bound by the bytes of the
 * weights, many, in blocks that a plan on the device lists, to one bound by arithmetic. */
#include "backends/cuda_hip/product.h"
#include "shaders/cuda_hip/args_product.h"

enum {
    FEW_PAIRS = 8,   /* per expert, on average, up to which weights bound the time */
    FULL_PAIRS = 64, /* ... above which they fill blocks of 128 */
    LEAST_BLOCK = 64 /* slots of a block of the plan */
};

static uint64_t align16(uint64_t bytes) {
    return (bytes + 15) / 16 * 16;
}

/* Where things lie in the scratch. */
struct layout {
    uint64_t pairs;
    uint64_t inner, y, plan; /* offsets: f32 [pairs][inner_dim], f32 [pairs][in_dim], the plan */
    uint64_t bytes;
};

/* Blocks that hold at most `rows` slots each of one expert. */
static uint64_t most_blocks(const ebro_moe_experts_args *a, uint64_t pairs, uint64_t rows) {
    uint64_t most = pairs / rows + a->n_experts;
    return pairs < most ? pairs : most;
}

static struct layout layout_of(const ebro_moe_experts_args *a) {
    struct layout s = {.pairs = (uint64_t)a->n_rows * a->top_k};
    s.y = align16(s.pairs * a->inner_dim * 4);
    s.plan = s.y + align16(s.pairs * a->in_dim * 4);
    s.bytes = s.plan + most_blocks(a, s.pairs, EB_PRODUCT_TILE_ROWS) * sizeof(struct eb_moe_block);
    return s;
}

uint64_t gpu_scratch_moe_experts(const ebro_dev *dev, const ebro_moe_experts_args *a) {
    (void)dev;
    return layout_of(a).bytes;
}

/* The whole call. */
struct call {
    ebro_stream *s;
    const ebro_moe_experts_args *a;
    struct layout at;
    bool few;
    struct gpu_matrix matrix;
    uint32_t block; /* slots of a block of the plan */
};

/* One of the two rounds of products. */
struct round {
    uint32_t first_part, n_parts; /* of the tables */
    ebro_mat x;
    uint32_t row_pairs; /* pairs that share a row of x */
    uint32_t n_in, n_outs;
    uint64_t dst; /* offset in the scratch */
    uint32_t act; /* of eb_moe_round_args */
};

static ebro_span scratch_at(const struct call *c, uint64_t offset) {
    return (ebro_span){c->a->scratch.mem, c->a->scratch.offset + offset};
}

static int32_t launch_plan(const struct call *c, ebro_error *err) {
    const ebro_moe_experts_args *a = c->a;
    const struct eb_moe_plan_args args = {
        .offsets = eb_arg_span(a->offsets),
        .plan = eb_arg_span(scratch_at(c, c->at.plan)),
        .n_experts = a->n_experts,
        .n_blocks = (uint32_t)most_blocks(a, c->at.pairs, c->block),
        .rows = c->block};
    const struct gpu_launch l = {
        .kernel = GPU_moe_plan, .threads = EB_MOE_PLAN_THREADS, .groups = 1, .args = &args};
    return gpu_launch(c->s, &l, err);
}

/* Sets the kernel; returns products of a block, and in *units the slots or blocks of slots. */
static uint32_t shape_round(const struct call *c, struct gpu_launch *l, uint64_t *units) {
    static const enum gpu_kernel rows[][2] = {
        [EBRO_F32] = {GPU_moe_row_f32_1, GPU_moe_row_f32_4},
        [EBRO_F16] = {GPU_moe_row_f16_1, GPU_moe_row_f16_4},
        [EBRO_BF16] = {GPU_moe_row_bf16_1, GPU_moe_row_bf16_4},
        [EBRO_MXFP4] = {GPU_moe_row_mxfp4_1, GPU_moe_row_mxfp4_4}};
    static const enum gpu_kernel tiles[] = {[EBRO_F32] = GPU_moe_tile_f32,
                                            [EBRO_F16] = GPU_moe_tile_f16,
                                            [EBRO_BF16] = GPU_moe_tile_bf16,
                                            [EBRO_MXFP4] = GPU_moe_tile_mxfp4};
    const ebro_moe_experts_args *a = c->a;
    if (c->few) {
        l->kernel = rows[a->dtype][c->at.pairs > a->n_experts];
        l->threads = EB_PRODUCT_ROW_THREADS;
        *units = c->at.pairs;
        return gpu_row_waves(gpu_stream_device(c->s)) * EB_ROW_OUTS;
    }
    *units = most_blocks(a, c->at.pairs, c->block);
    if (c->matrix.kernel != GPU_N_KERNELS) {
        l->kernel = c->matrix.kernel;
        l->threads = EB_PRODUCT_MATRIX_THREADS(c->block);
        l->shared_bytes = EB_PRODUCT_MATRIX_BYTES(c->block);
        return EB_PRODUCT_MATRIX_OUTS;
    }
    l->kernel = tiles[a->dtype];
    l->threads = EB_TILE_THREADS;
    return EB_TILE_OUTS;
}

static int32_t launch_round(const struct call *c, const struct round *r, ebro_error *err) {
    const ebro_moe_experts_args *a = c->a;
    uint64_t table = (uint64_t)a->n_experts * 8, units;
    struct gpu_launch l = {.threads = 0};
    uint32_t outs = shape_round(c, &l, &units);
    const struct eb_moe_round_args args = {
        .of = {.x_at = eb_arg_at(r->x.mem, r->x.offset),
               .dst = eb_arg_span(scratch_at(c, r->dst)),
               .tables = eb_arg_at(a->tables.mem, a->tables.offset + r->first_part * table),
               .scale_tables =
                   eb_arg_at(a->scale_tables.mem, a->scale_tables.offset + r->first_part * table),
               .offsets = eb_arg_span(a->offsets),
               .pairs = eb_arg_span(a->pairs),
               .plan = eb_arg_span(scratch_at(c, c->at.plan)),
               .x_stride = (uint32_t)r->x.stride,
               .row_pairs = r->row_pairs,
               .n_in = r->n_in,
               .n_outs = r->n_outs,
               .n_experts = a->n_experts,
               .blocks = (uint32_t)gpu_div_up((uint64_t)r->n_outs * r->n_parts, outs),
               .n_pairs = (uint32_t)c->at.pairs,
               .beta = a->beta,
               .beta2 = a->beta2},
        .act = r->act};
    l.groups = units * args.of.blocks;
    l.args = &args;
    return gpu_launch(c->s, &l, err);
}

static int32_t launch_sum(const struct call *c, ebro_error *err) {
    const ebro_moe_experts_args *a = c->a;
    const struct eb_moe_sum_args args = {
        .weights = eb_arg_mat(&a->weights),
        .dst = eb_arg_mat(&a->out),
        .y = eb_arg_span(scratch_at(c, c->at.y)),
        .n_cols = a->in_dim,
        .n_chunks = (uint32_t)gpu_div_up(a->in_dim, EB_MOE_SUM_THREADS),
        .top_k = a->top_k};
    const struct gpu_launch l = {.kernel = GPU_moe_sum,
                                 .threads = EB_MOE_SUM_THREADS,
                                 .groups = (uint64_t)a->n_rows * args.n_chunks,
                                 .args = &args};
    return gpu_launch(c->s, &l, err);
}

/* How the products are computed. */
static struct call plan_call(ebro_stream *s, const ebro_moe_experts_args *a) {
    static const enum gpu_kernel kernels[][2] = {
        {GPU_moe_matrix_bf16_64, GPU_moe_matrix_bf16_128},
        {GPU_moe_matrix_mxfp4_64, GPU_moe_matrix_mxfp4_128}};
    struct call c = {.s = s, .a = a, .at = layout_of(a)};
    uint32_t least = a->in_dim < a->inner_dim ? a->in_dim : a->inner_dim;
    bool full = c.at.pairs > (uint64_t)FULL_PAIRS * a->n_experts;
    c.few = c.at.pairs <= (uint64_t)FEW_PAIRS * a->n_experts;
    c.matrix = gpu_matrix(gpu_stream_device(s), kernels, a->dtype, least, full);
    c.block = c.matrix.kernel != GPU_N_KERNELS ? c.matrix.rows : EB_PRODUCT_TILE_ROWS;
    return c;
}

int32_t gpu_moe_experts(ebro_stream *s, const ebro_moe_experts_args *a, ebro_error *err) {
    const struct call c = plan_call(s, a);
    const ebro_span inner = scratch_at(&c, c.at.inner);
    const struct round up = {.n_parts = 2,
                             .x = a->x,
                             .row_pairs = a->top_k,
                             .n_in = a->in_dim,
                             .n_outs = a->inner_dim,
                             .dst = c.at.inner,
                             .act = (uint32_t)a->act + 1};
    const struct round down = {.first_part = 2,
                               .n_parts = 1,
                               .x = {inner.mem, inner.offset, a->inner_dim, EBRO_F32},
                               .row_pairs = 1,
                               .n_in = a->inner_dim,
                               .n_outs = a->in_dim,
                               .dst = c.at.y};
    int32_t st = c.few ? EBRO_OK : launch_plan(&c, err);
    if (st == EBRO_OK) st = launch_round(&c, &up, err);
    if (st == EBRO_OK) st = launch_round(&c, &down, err);
    return st == EBRO_OK ? launch_sum(&c, err) : st;
}
