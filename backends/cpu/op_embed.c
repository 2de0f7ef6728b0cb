/* op_embed.c: rows of the embedding table. */
#include "cpu.h"

int32_t cpu_embed(ebro_stream *s, const ebro_embed_args *a, ebro_error *err) {
    (void)s;
    (void)err;
    const int32_t *ids = eb_at(a->ids);
    for (uint32_t r = 0; r < a->n_rows; r++) {
        float *out = eb_mat_row(&a->out, r);
        if (ids[r] >= 0 && (uint32_t)ids[r] < a->table.rows) {
            cpu_load_row(out, &a->table, (uint32_t)ids[r], 0, a->table.cols);
        } else {
            memset(out, 0, a->table.cols * sizeof *out);
        }
    }
    return EBRO_OK;
}
