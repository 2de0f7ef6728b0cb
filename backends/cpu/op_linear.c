/* op_linear.c: linear, over its items and batches. The arithmetic is product.c's. */
#include "cpu.h"

uint64_t cpu_scratch_linear(ebro_dev *dev, const ebro_linear_args *a) {
    (void)dev;
    (void)a;
    return 0;
}

int32_t cpu_linear(ebro_stream *s, const ebro_linear_args *a, ebro_error *err) {
    (void)s;
    (void)err;
    for (uint64_t b = 0; b < a->n_batch; b++) {
        const float *x = eb_mat_row(&a->x, 0) + b * a->x_batch_elements;
        for (uint32_t i = 0; i < a->n_items; i++) {
            const ebro_linear_item *item = &a->items[i];
            struct cpu_matrix w = cpu_matrix_of(&item->w, b, item->w_batch_bytes);
            float *y = eb_mat_row(&item->out, 0) + b * item->out_batch_elements;
            cpu_product(&w, x, a->x.stride, a->n_rows, y, item->out.stride, item->accumulate);
        }
    }
    return EBRO_OK;
}
