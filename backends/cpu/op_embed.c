/* op_embed.c: rows of the embedding table. */
#include "cpu.h"

int32_t cpu_embed(ebro_stream *s, const ebro_embed_args *a, ebro_error *err) {
    (void)s;
    (void)err;
    const int32_t *ids = eb_at(a->ids);
    for (uint32_t r = 0; r < a->n_rows; r++) {
        float *out = eb_mat_row(&a->out, r);
        /* Ids before the table and negative ones wrap to beyond its end: first_id + rows is at
         * most 2^31. */
        uint32_t row = (uint32_t)ids[r] - a->first_id;
        if (row < a->table.rows) {
            cpu_load_row(out, &a->table, row, 0, a->table.cols);
        } else if (a->keep == 0) {
            memset(out, 0, a->table.cols * sizeof *out);
        }
    }
    return EBRO_OK;
}
