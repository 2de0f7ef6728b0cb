/* op_moe.c: moe_experts: w1, w3 and the activation of every pair into scratch, w2 into scratch,
 * then the sum over a row's choices. Few pairs per expert go to a kernel bound by the bytes of the
 * weights, many, in blocks that a plan on the device lists, to one bound by arithmetic. */
#include "backends/vulkan/product.h"
#include "shaders/common/args_moe.h"

enum {
    FEW_PAIRS = 8,   /* per expert, on average, up to which weights bound the time */
    LEAST_BLOCK = 16 /* slots of a block of the plan */
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
    s.bytes = s.plan + most_blocks(a, s.pairs, LEAST_BLOCK) * sizeof(struct eb_moe_block);
    return s;
}

uint64_t vk_scratch_moe_experts(const ebro_dev *dev, const ebro_moe_experts_args *a) {
    (void)dev;
    return layout_of(a).bytes;
}

static uint64_t weight_bytes(int32_t dtype, uint64_t n) {
    return dtype == EBRO_MXFP4 ? n / 2 : n * eb_dtype_bytes(dtype);
}

/* One of the two rounds of products. */
struct round {
    uint32_t first_part, n_parts; /* of the tables */
    ebro_mat x;
    uint32_t row_pairs; /* pairs that share a row of x */
    uint32_t n_in, n_outs;
    uint64_t dst; /* offset in the scratch */
    uint32_t act; /* of moe.glsl */
};

/* The whole call. */
struct call {
    ebro_stream *s;
    const ebro_moe_experts_args *a;
    struct layout at;
    bool few;
    enum vk_kernel matrix; /* VK_N_KERNELS: not on matrix units */
    struct vk_matrix_group group;
    uint32_t block; /* slots of a block of the plan */
};

static ebro_span scratch_at(const struct call *c, uint64_t offset) {
    return (ebro_span){c->a->scratch.mem, c->a->scratch.offset + offset};
}

static int32_t launch_plan(const struct call *c, ebro_error *err) {
    const ebro_moe_experts_args *a = c->a;
    uint64_t n = most_blocks(a, c->at.pairs, c->block);
    const struct eb_moe_plan_args args = {.offsets = eb_arg_span(a->offsets),
                                          .plan = eb_arg_span(scratch_at(c, c->at.plan)),
                                          .n_experts = a->n_experts,
                                          .n_blocks = (uint32_t)n,
                                          .rows = c->block};
    struct vk_launch l = {.kernel = VK_moe_plan,
                          .threads = vk_threads(vk_stream_device(c->s), 256),
                          .args = &args,
                          .groups = 1,
                          .work = n * sizeof(struct eb_moe_block)};
    vk_reads_span(&l, a->offsets, ((uint64_t)a->n_experts + 1) * 4);
    vk_writes_span(&l, scratch_at(c, c->at.plan), n * sizeof(struct eb_moe_block));
    return vk_launch(c->s, &l, err);
}

/* Sets the kernel and the shape of its groups; returns products of a group, and in *units the slots
 * or blocks of slots. */
static uint64_t shape_round(const struct call *c, const struct round *r, struct vk_launch *l,
                            struct eb_moe_args *args, uint64_t *units) {
    const ebro_dev *dev = vk_stream_device(c->s);
    const ebro_moe_experts_args *a = c->a;
    uint64_t bits = args->x_at | r->x.stride * 4 | weight_bytes(a->dtype, r->n_in);
    uint32_t rows, outs;
    l->specs[0] = (uint32_t)a->dtype;
    l->specs[1] = bits % 16 == 0;
    if (c->few) {
        l->kernel = VK_moe_row;
        l->threads = vk_threads(dev, VK_ROW_THREADS);
        rows = vk_row_rows(vk_div_up(c->at.pairs, a->n_experts));
        const uint32_t held = 4; /* of a team */
        outs = held * vk_row_teams(dev, VK_moe_row, l->threads);
        l->specs[3] = held;
        l->specs[4] = r->act;
        l->n_specs = 5;
        *units = c->at.pairs;
    } else {
        bool on_matrix = c->matrix != VK_N_KERNELS;
        l->kernel = on_matrix ? c->matrix : VK_moe_tile;
        l->threads = on_matrix ? c->group.threads : EB_TILE_THREADS;
        rows = c->block;
        outs = on_matrix ? c->group.outs : EB_TILE_OUTS;
        l->specs[3] = r->act;
        l->n_specs = c->matrix == VK_moe_matrix_f16 ? vk_matrix_specs(dev, l->specs) : 4;
        *units = most_blocks(a, c->at.pairs, c->block);
    }
    l->specs[2] = rows;
    args->blocks = (uint32_t)vk_div_up((uint64_t)r->n_outs * r->n_parts, outs);
    return (uint64_t)r->n_in * rows * outs;
}

static int32_t launch_round(const struct call *c, const struct round *r, ebro_error *err) {
    const ebro_moe_experts_args *a = c->a;
    uint64_t table = (uint64_t)a->n_experts * 8, units;
    ebro_span tables = {a->tables.mem, a->tables.offset + r->first_part * table};
    ebro_span scales = {a->scale_tables.mem, a->scale_tables.offset + r->first_part * table};
    struct eb_moe_args args = {.x_at = eb_arg_at(r->x.mem, r->x.offset),
                               .dst = eb_arg_span(scratch_at(c, r->dst)),
                               .tables = eb_arg_span(tables),
                               .scale_tables = eb_arg_span(scales),
                               .offsets = eb_arg_span(a->offsets),
                               .pairs = eb_arg_span(a->pairs),
                               .plan = eb_arg_span(scratch_at(c, c->at.plan)),
                               .x_stride = (uint32_t)r->x.stride,
                               .row_pairs = r->row_pairs,
                               .n_in = r->n_in,
                               .n_outs = r->n_outs,
                               .n_experts = a->n_experts,
                               .n_pairs = (uint32_t)c->at.pairs,
                               .beta = a->beta,
                               .beta2 = a->beta2};
    struct vk_launch l = {.args = &args, .reads_any = true};
    uint64_t group_products = shape_round(c, r, &l, &args, &units);
    vk_reads_mat(&l, &r->x, c->at.pairs / r->row_pairs, r->n_in);
    vk_reads_span(&l, tables, r->n_parts * table);
    vk_reads_span(&l, scales, r->n_parts * table);
    vk_reads_span(&l, a->offsets, ((uint64_t)a->n_experts + 1) * 4);
    vk_reads_span(&l, a->pairs, c->at.pairs * 4);
    if (!c->few) vk_reads_span(&l, scratch_at(c, c->at.plan), units * sizeof(struct eb_moe_block));
    vk_writes_span(&l, scratch_at(c, r->dst), c->at.pairs * r->n_outs * 4);
    l.groups = units * args.blocks;
    l.work = l.groups * group_products;
    return vk_launch(c->s, &l, err);
}

static int32_t launch_sum(const struct call *c, ebro_error *err) {
    const ebro_moe_experts_args *a = c->a;
    uint32_t threads = vk_threads(vk_stream_device(c->s), 128);
    const struct eb_moe_sum_args args = {.weights = eb_arg_mat(&a->weights),
                                         .dst = eb_arg_mat(&a->out),
                                         .y = eb_arg_span(scratch_at(c, c->at.y)),
                                         .n_cols = a->in_dim,
                                         .n_chunks = (uint32_t)vk_div_up(a->in_dim, threads),
                                         .top_k = a->top_k};
    struct vk_launch l = {.kernel = VK_moe_sum,
                          .threads = threads,
                          .args = &args,
                          .groups = (uint64_t)a->n_rows * args.n_chunks,
                          .work = c->at.pairs * a->in_dim * 4};
    vk_reads_mat(&l, &a->weights, a->n_rows, a->top_k);
    vk_reads_span(&l, scratch_at(c, c->at.y), c->at.pairs * a->in_dim * 4);
    vk_writes_mat(&l, &a->out, a->n_rows, a->in_dim);
    return vk_launch(c->s, &l, err);
}

int32_t vk_moe_experts(ebro_stream *s, const ebro_moe_experts_args *a, ebro_error *err) {
    struct call c = {.s = s, .a = a, .at = layout_of(a)};
    c.few = c.at.pairs <= (uint64_t)FEW_PAIRS * a->n_experts;
    uint32_t least = a->in_dim < a->inner_dim ? a->in_dim : a->inner_dim;
    uint64_t average = c.at.pairs / a->n_experts;
    c.matrix =
        vk_matrix_kernel(vk_stream_device(s), VK_moe_matrix, VK_moe_matrix_f16, a->dtype, least);
    c.group = vk_matrix_group(vk_stream_device(s), c.matrix == VK_moe_matrix_f16);
    c.block = c.matrix != VK_N_KERNELS ? c.group.rows : vk_tile_rows(average);
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
