/* op_linear.c: linear, over its items and batches. The arithmetic is product.c's. */
#include "cpu.h"

uint64_t cpu_scratch_linear(ebro_dev *dev, const ebro_linear_args *a) {
    (void)dev;
    (void)a;
    return 0;
}

int32_t cpu_linear(ebro_stream *s, const ebro_linear_args *a, ebro_error *err) {
    struct cpu_product products[EBRO_MAX_LINEAR];
    struct cpu_batch steps[EBRO_MAX_LINEAR];
    (void)err;
    for (uint32_t i = 0; i < a->n_items; i++) {
        const ebro_linear_item *item = &a->items[i];
        products[i] = (struct cpu_product){.w = cpu_matrix_of(&item->w, 0, 0),
                                           .x = eb_mat_row(&a->x, 0),
                                           .x_stride = a->x.stride,
                                           .n_rows = a->n_rows,
                                           .y = eb_mat_row(&item->out, 0),
                                           .y_stride = item->out.stride,
                                           .accumulate = item->accumulate};
        steps[i] =
            (struct cpu_batch){item->w_batch_bytes, a->x_batch_elements, item->out_batch_elements};
    }
    if (a->n_items > 0) cpu_products(s->dev, products, steps, a->n_items, a->n_batch);
    return EBRO_OK;
}
