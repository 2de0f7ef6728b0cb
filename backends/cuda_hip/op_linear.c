/* op_linear.c: linear. Few rows go to a kernel bound by the bytes of the weights, many to one bound
 * by arithmetic. Items of one dtype and direction share a launch. */
#include "backends/cuda_hip/product.h"
#include "shaders/cuda_hip/args_product.h"

enum {
    FEW_ROWS = 32,  /* up to which weights are read once more for every so many rows */
    FULL_WAVES = 16 /* of a processor, that keep it loading */
};

/* What the items of a launch have in common. */
struct class {
    int32_t dtype;
    bool transposed;
};

static struct class class_of(const ebro_linear_item *it) {
    return (struct class){it->w.dtype, it->w.transposed != 0};
}

static bool same(struct class a, struct class b) {
    return a.dtype == b.dtype && a.transposed == b.transposed;
}

static uint32_t n_outputs(const ebro_weight *w) {
    return w->transposed ? w->cols : w->rows;
}

/* Outputs of all items of a class, over all batches. */
static uint64_t n_all_outputs(const ebro_linear_args *a, struct class c) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < a->n_items; i++)
        if (same(class_of(&a->items[i]), c)) n += n_outputs(&a->items[i].w);
    return n * a->n_batch;
}

/* How a class is computed. */
struct plan {
    enum gpu_kernel kernel;
    uint32_t threads;
    uint32_t shared_bytes;
    uint32_t rows, outs; /* of a block */
    bool joint;          /* of a kernel for few rows: its waves share the inputs */
};

/* For 1, 2, 4 and 8 rows. */
#define ROW_KERNELS(dtype)                                                                  \
    {                                                                                       \
        GPU_linear_row_##dtype##_1, GPU_linear_row_##dtype##_2, GPU_linear_row_##dtype##_4, \
            GPU_linear_row_##dtype##_8                                                      \
    }

static struct plan row_plan(const ebro_dev *dev, const ebro_linear_args *a, struct class c) {
    static const enum gpu_kernel kernels[][4] = {[EBRO_F32] = ROW_KERNELS(f32),
                                                 [EBRO_F16] = ROW_KERNELS(f16),
                                                 [EBRO_BF16] = ROW_KERNELS(bf16),
                                                 [EBRO_MXFP4] = ROW_KERNELS(mxfp4)};
    uint32_t n_rows = a->n_rows, i = n_rows > 4 ? 3 : n_rows > 2 ? 2 : n_rows > 1 ? 1 : 0;
    uint32_t outs = i == 0 && c.dtype != EBRO_MXFP4 ? EB_ROW_OUTS_FEW : EB_ROW_OUTS;
    bool joint = n_all_outputs(a, c) / outs < (uint64_t)FULL_WAVES * dev->n_processors;
    return (struct plan){.kernel = kernels[c.dtype][i],
                         .threads = EB_PRODUCT_ROW_THREADS,
                         .rows = 1u << i,
                         .outs = joint ? outs : outs * gpu_row_waves(dev),
                         .joint = joint};
}

static struct plan row_t_plan(uint32_t n_rows, struct class c) {
    static const enum gpu_kernel kernels[][2] = {
        [EBRO_F32] = {GPU_linear_row_t_f32_1, GPU_linear_row_t_f32_4},
        [EBRO_F16] = {GPU_linear_row_t_f16_1, GPU_linear_row_t_f16_4},
        [EBRO_BF16] = {GPU_linear_row_t_bf16_1, GPU_linear_row_t_bf16_4}};
    uint32_t unit = (uint32_t)(16 / eb_dtype_bytes(c.dtype));
    return (struct plan){.kernel = kernels[c.dtype][n_rows > 1],
                         .threads = EB_LINEAR_ROW_T_THREADS,
                         .rows = n_rows > 1 ? 4 : 1,
                         .outs = EB_ROW_T_LANES * unit};
}

static struct plan tile_plan(struct class c) {
    static const enum gpu_kernel kernels[] = {[EBRO_F32] = GPU_linear_tile_f32,
                                              [EBRO_F16] = GPU_linear_tile_f16,
                                              [EBRO_BF16] = GPU_linear_tile_bf16,
                                              [EBRO_MXFP4] = GPU_linear_tile_mxfp4};
    static const enum gpu_kernel transposed[] = {[EBRO_F32] = GPU_linear_tile_t_f32,
                                                 [EBRO_F16] = GPU_linear_tile_t_f16,
                                                 [EBRO_BF16] = GPU_linear_tile_t_bf16};
    return (struct plan){.kernel = (c.transposed ? transposed : kernels)[c.dtype],
                         .threads = EB_TILE_THREADS,
                         .rows = EB_PRODUCT_TILE_ROWS,
                         .outs = EB_TILE_OUTS};
}

static struct plan plan_of(const ebro_dev *dev, const ebro_linear_args *a, struct class c) {
    static const enum gpu_kernel kernels[][2] = {
        {GPU_linear_matrix_bf16_64, GPU_linear_matrix_bf16_128},
        {GPU_linear_matrix_mxfp4_64, GPU_linear_matrix_mxfp4_128}};
    if (a->n_rows <= FEW_ROWS) return c.transposed ? row_t_plan(a->n_rows, c) : row_plan(dev, a, c);
    if (c.transposed) return tile_plan(c);
    uint64_t blocks =
        gpu_div_up(a->n_rows, 128) * gpu_div_up(n_all_outputs(a, c), EB_PRODUCT_MATRIX_OUTS);
    struct gpu_matrix m = gpu_matrix(dev, kernels, c.dtype, a->items[0].w.cols,
                                     a->n_rows > 64 && blocks >= dev->n_processors);
    if (m.kernel == GPU_N_KERNELS) return tile_plan(c);
    return (struct plan){.kernel = m.kernel,
                         .threads = EB_PRODUCT_MATRIX_THREADS(m.rows),
                         .shared_bytes = EB_PRODUCT_MATRIX_BYTES(m.rows),
                         .rows = m.rows,
                         .outs = EB_PRODUCT_MATRIX_OUTS};
}

/* An item as an argument. Returns its blocks of outputs, over all batches. */
static uint64_t add_item(struct eb_linear_item_arg *arg, const ebro_linear_args *a,
                         const ebro_linear_item *it, uint32_t outs) {
    uint64_t blocks = gpu_div_up(n_outputs(&it->w), outs);
    *arg = (struct eb_linear_item_arg){.w = eb_arg_weight(&it->w),
                                       .out_at = eb_arg_at(it->out.mem, it->out.offset),
                                       .w_batch = it->w_batch_bytes,
                                       .out_batch = it->out_batch_elements * 4,
                                       .out_stride = (uint32_t)it->out.stride,
                                       .accumulate = it->accumulate != 0,
                                       .blocks = (uint32_t)blocks};
    return blocks * a->n_batch;
}

/* All items of class c. */
static int32_t launch_class(ebro_stream *s, const ebro_linear_args *a, struct class c,
                            ebro_error *err) {
    struct plan p = plan_of(gpu_stream_device(s), a, c);
    /* The others read the beginning of the same arguments. */
    struct eb_linear_row_args args = {.of = {.x_at = eb_arg_at(a->x.mem, a->x.offset),
                                             .x_batch = a->x_batch_elements * 4,
                                             .x_stride = (uint32_t)a->x.stride,
                                             .n_rows = a->n_rows,
                                             .row_blocks = (uint32_t)gpu_div_up(a->n_rows, p.rows)},
                                      .joint = p.joint};
    uint64_t blocks = 0, n_items = 0;
    for (uint32_t i = 0; i < a->n_items; i++) {
        if (!same(class_of(&a->items[i]), c)) continue;
        blocks += add_item(&args.of.items[n_items], a, &a->items[i], p.outs);
        args.of.items[n_items++].end = (uint32_t)blocks;
    }
    const struct gpu_launch l = {.kernel = p.kernel,
                                 .threads = p.threads,
                                 .groups = blocks * args.of.row_blocks,
                                 .args = &args,
                                 .shared_bytes = p.shared_bytes};
    return gpu_launch(s, &l, err);
}

int32_t gpu_linear(ebro_stream *s, const ebro_linear_args *a, ebro_error *err) {
    int32_t st = EBRO_OK;
    for (uint32_t i = 0; i < a->n_items && st == EBRO_OK; i++) {
        struct class c = class_of(&a->items[i]);
        bool known = false;
        for (uint32_t j = 0; j < i; j++) known = known || same(class_of(&a->items[j]), c);
        if (!known) st = launch_class(s, a, c, err);
    }
    return st;
}
