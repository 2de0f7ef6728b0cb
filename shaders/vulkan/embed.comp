#version 450
/* embed: rows of the table by id, widened. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_embed_args
#include "common/args_token.h"
#include "common.glsl"
#include "rows.glsl"

void main() {
    if (GROUP >= push.n_groups) return;
    uint row, col, n = A.table.cols;
    if (!row_place(A.lanes, A.n_chunks, A.n_rows, n, row, col)) return;
    /* Ids before the table wrap to beyond its end, and so do negative ones: first_id + rows is at
     * most 2^31. */
    uint id = PU32(A.ids).v[row] - A.first_id;
    vec4 v = vec4(0.0);
    if (id < A.table.rows) {
        eb_mat_arg table = eb_mat_arg(A.table.at, A.table.stride, A.table.dtype);
        v = load4(row_of(table, id), col, n, table.dtype, A.wide != 0u);
    } else if (A.keep != 0u) {
        return;
    }
    store4(row_of(A.dst, row), col, n, v, A.wide != 0u);
}
