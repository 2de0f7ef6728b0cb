/* op_linear.c: linear. Few rows go to a kernel bound by the bytes of the weights, many to one bound
 * by arithmetic. Items of one dtype, direction and alignment share a launch. */
#include "backends/vulkan/product.h"
#include "shaders/common/args_linear.h"

enum { FEW_ROWS = 32 /* up to which weights are read once more for every VK_ROW_MOST rows */ };

uint64_t vk_scratch_linear(const ebro_dev *dev, const ebro_linear_args *a) {
    (void)dev;
    (void)a;
    return 0;
}

/* What the items of a launch have in common. */
struct class {
    int32_t dtype;
    bool transposed, aligned;
};

static uint32_t n_outputs(const ebro_weight *w) {
    return w->transposed ? w->cols : w->rows;
}

static uint32_t n_inputs(const ebro_weight *w) {
    return w->transposed ? w->rows : w->cols;
}

/* Bytes of n weights in a row. */
static uint64_t weight_bytes(int32_t dtype, uint64_t n) {
    return dtype == EBRO_MXFP4 ? n / 2 : n * eb_dtype_bytes(dtype);
}

/* Whether all rows of x and of the item's weights start at multiples of 16 bytes. */
static bool is_aligned(const ebro_linear_args *a, const ebro_linear_item *it) {
    uint64_t bits = eb_arg_at(a->x.mem, a->x.offset) | eb_arg_at(it->w.mem, it->w.offset);
    bits |= a->x.stride * 4 | weight_bytes(it->w.dtype, it->w.stride);
    if (a->n_batch > 1) bits |= a->x_batch_elements * 4 | it->w_batch_bytes;
    return bits % 16 == 0;
}

static struct class class_of(const ebro_linear_args *a, const ebro_linear_item *it) {
    return (struct class){it->w.dtype, it->w.transposed, is_aligned(a, it)};
}

static bool same(struct class a, struct class b) {
    return a.dtype == b.dtype && a.transposed == b.transposed && a.aligned == b.aligned;
}

/* How a class is computed. */
struct plan {
    enum vk_kernel kernel; /* there is one for one item, and one for several */
    uint32_t threads, specs[VK_MATRIX_SPECS], n_specs;
    uint32_t rows, outs; /* of a group */
};

static struct plan tile_plan(const ebro_linear_args *a, struct class c, bool one) {
    uint32_t rows = vk_tile_rows(a->n_rows);
    return (struct plan){.kernel = one ? VK_linear_tile_one : VK_linear_tile,
                         .threads = EB_TILE_THREADS,
                         .specs = {(uint32_t)c.dtype, c.aligned, rows, c.transposed},
                         .n_specs = 4,
                         .rows = rows,
                         .outs = EB_TILE_OUTS};
}

static struct plan matrix_plan(const ebro_dev *dev, enum vk_kernel kernel, struct class c) {
    bool f16 = kernel == VK_linear_matrix_f16;
    struct vk_matrix_group group = vk_matrix_group(dev, f16);
    struct plan p = {.kernel = kernel,
                     .threads = group.threads,
                     .specs = {(uint32_t)c.dtype, c.aligned, 0, c.transposed},
                     .n_specs = 4,
                     .rows = group.rows,
                     .outs = group.outs};
    if (f16) p.n_specs = vk_matrix_specs(dev, p.specs);
    return p;
}

static struct plan row_plan(const ebro_dev *dev, const ebro_linear_args *a, struct class c,
                            bool one) {
    enum vk_kernel kernel = one ? VK_linear_row_one : VK_linear_row;
    uint32_t rows = vk_row_rows(a->n_rows);
    /* More rows want more outputs to a load of x, and codes of 4 bits more than wider weights. */
    uint32_t outs = rows == 1 && c.dtype != EBRO_MXFP4 ? 2 : 4;
    uint32_t threads = vk_threads(dev, VK_ROW_THREADS);
    if (c.transposed) {
        uint32_t unit = (uint32_t)(16 / eb_dtype_bytes(c.dtype));
        return (struct plan){.kernel = one ? VK_linear_row_t_one : VK_linear_row_t,
                             .threads = threads,
                             .specs = {(uint32_t)c.dtype, c.aligned, rows},
                             .n_specs = 3,
                             .rows = rows,
                             .outs = EB_ROW_T_LANES * unit};
    }
    return (struct plan){.kernel = kernel,
                         .threads = threads,
                         .specs = {(uint32_t)c.dtype, c.aligned, rows, outs},
                         .n_specs = 4,
                         .rows = rows,
                         .outs = outs * vk_row_teams(dev, kernel, threads)};
}

static struct plan plan_of(const ebro_dev *dev, const ebro_linear_args *a, struct class c) {
    uint32_t inputs = n_inputs(&a->items[0].w), n_items = 0;
    for (uint32_t i = 0; i < a->n_items; i++) n_items += same(class_of(a, &a->items[i]), c);
    if (a->n_rows <= FEW_ROWS) return row_plan(dev, a, c, n_items == 1);
    enum vk_kernel on_matrix =
        vk_matrix_kernel(dev, VK_linear_matrix, VK_linear_matrix_f16, c.dtype, inputs);
    if (!c.transposed && on_matrix != VK_N_KERNELS) return matrix_plan(dev, on_matrix, c);
    return tile_plan(a, c, n_items == 1);
}

/* An item as an argument, and what it touches. Returns its blocks of outputs, over all batches. */
static uint64_t add_item(struct vk_launch *l, struct eb_linear_item_arg *arg,
                         const ebro_linear_args *a, const ebro_linear_item *it, uint32_t outs) {
    uint64_t blocks = vk_div_up(n_outputs(&it->w), outs), others = a->n_batch - 1;
    *arg = (struct eb_linear_item_arg){.w = eb_arg_weight(&it->w),
                                       .out_at = eb_arg_at(it->out.mem, it->out.offset),
                                       .w_batch = it->w_batch_bytes,
                                       .out_batch = it->out_batch_elements * 4,
                                       .out_stride = (uint32_t)it->out.stride,
                                       .accumulate = it->accumulate != 0,
                                       .blocks = (uint32_t)blocks};
    vk_reads_weight(l, &it->w);
    if (others > 0) {
        uint64_t one = (uint64_t)(it->w.rows - 1) * it->w.stride + it->w.cols;
        vk_reads(l, it->w.mem, it->w.offset,
                 others * it->w_batch_bytes + weight_bytes(it->w.dtype, one));
    }
    vk_writes_mat(l, &it->out, a->n_rows, others * it->out_batch_elements + n_outputs(&it->w));
    return blocks * a->n_batch;
}

/* The kernels for one item read the beginning of the same arguments. */
_Static_assert(offsetof(struct eb_linear_one_args, items) == offsetof(struct eb_linear_args, items),
               "the arguments for one item begin like those for several");

/* All items of class c. */
static int32_t launch_class(ebro_stream *s, const ebro_linear_args *a, struct class c,
                            ebro_error *err) {
    const ebro_dev *dev = vk_stream_device(s);
    struct plan p = plan_of(dev, a, c);
    struct eb_linear_args args = {.x_at = eb_arg_at(a->x.mem, a->x.offset),
                                  .x_batch = a->x_batch_elements * 4,
                                  .x_stride = (uint32_t)a->x.stride,
                                  .n_rows = a->n_rows,
                                  .row_blocks = (uint32_t)vk_div_up(a->n_rows, p.rows)};
    struct vk_launch l = {
        .kernel = p.kernel, .threads = p.threads, .n_specs = p.n_specs, .args = &args};
    uint64_t blocks = 0, inputs = n_inputs(&a->items[0].w), n_items = 0;
    memcpy(l.specs, p.specs, sizeof p.specs);
    vk_reads_mat(&l, &a->x, a->n_rows, (a->n_batch - 1) * a->x_batch_elements + inputs);
    for (uint32_t i = 0; i < a->n_items; i++) {
        if (!same(class_of(a, &a->items[i]), c)) continue;
        blocks += add_item(&l, &args.items[n_items], a, &a->items[i], p.outs);
        args.items[n_items++].end = (uint32_t)blocks;
    }
    l.groups = blocks * args.row_blocks;
    l.work = l.groups * inputs * p.rows * p.outs;
    return vk_launch(s, &l, err);
}

int32_t vk_linear(ebro_stream *s, const ebro_linear_args *a, ebro_error *err) {
    int32_t st = EBRO_OK;
    for (uint32_t i = 0; i < a->n_items && st == EBRO_OK; i++) {
        struct class c = class_of(a, &a->items[i]);
        bool known = false;
        for (uint32_t j = 0; j < i; j++) known = known || same(class_of(a, &a->items[j]), c);
        if (!known) st = launch_class(s, a, c, err);
    }
    return st;
}
