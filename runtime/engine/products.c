/* products.c: linear calls over a model's weights, wherever their rows lie. Not its job: batched
 * products, whose weights are never cut (mixer.c). */
#include "engine/engine.h"

struct eb_products eb_products_begin(struct ebro_engine *e, uint32_t n_rows, ebro_mat x) {
    return (struct eb_products){.engine = e,
                                .args = {.size = sizeof(ebro_linear_args),
                                         .x = x,
                                         .n_rows = n_rows,
                                         .n_batch = 1,
                                         .scratch = e->work.linear_scratch}};
}

int32_t eb_products_end(struct eb_products *p, ebro_error *err) {
    if (p->args.n_items == 0) return EBRO_OK;
    int32_t st = eb_op_linear(&p->engine->stream, &p->args, err);
    p->args.n_items = 0;
    return st;
}

int32_t eb_products_add(struct eb_products *p, const struct eb_matrix *m, ebro_mat out,
                        bool accumulate, ebro_error *err) {
    ebro_linear_args *a = &p->args;
    for (uint32_t first = 0, next; first < m->rows; first = next) {
        ebro_weight w = eb_weight_part(p->engine->weights, m, first, &next);
        if (a->n_items == EBRO_MAX_LINEAR) {
            int32_t st = eb_products_end(p, err);
            if (st != EBRO_OK) return st;
        }
        /* The rows of a weight are columns of the result. */
        ebro_mat part = out;
        part.offset += (uint64_t)first * sizeof(float);
        a->items[a->n_items++] = (ebro_linear_item){.w = w, .out = part, .accumulate = accumulate};
    }
    return EBRO_OK;
}

int32_t eb_forward_linear(struct ebro_engine *e, uint32_t n_rows, ebro_mat x,
                          const struct eb_matrix *m, ebro_mat out, bool accumulate,
                          ebro_error *err) {
    struct eb_products p = eb_products_begin(e, n_rows, x);
    int32_t st = eb_products_add(&p, m, out, accumulate, err);
    return st == EBRO_OK ? eb_products_end(&p, err) : st;
}
