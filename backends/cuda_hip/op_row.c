/* op_row.c: elementwise work over rows: embed, act_mul. */
#include "backends/cuda_hip/cuda_hip.h"
#include "shaders/common/args_act.h"
#include "shaders/common/args_token.h"
#include "shaders/cuda_hip/shapes.h"

int32_t gpu_embed(ebro_stream *s, const ebro_embed_args *a, ebro_error *err) {
    const struct eb_split split = eb_split_rows(EB_ROW_THREADS, a->n_rows, a->table.cols, 4);
    const ebro_mat table = {a->table.mem, a->table.offset, a->table.stride, a->table.dtype};
    const struct eb_embed_args args = {.ids = eb_arg_span(a->ids),
                                       .table = eb_arg_weight(&a->table),
                                       .dst = eb_arg_mat(&a->out),
                                       .n_rows = a->n_rows,
                                       .lanes = split.lanes,
                                       .n_chunks = split.n_chunks,
                                       .wide = eb_mat_is_wide(&table) && eb_mat_is_wide(&a->out),
                                       .first_id = a->first_id,
                                       .keep = a->keep != 0};
    const struct gpu_launch l = {
        .kernel = GPU_embed, .threads = split.threads, .groups = split.groups, .args = &args};
    return gpu_launch(s, &l, err);
}

int32_t gpu_act_mul(ebro_stream *s, const ebro_act_mul_args *a, ebro_error *err) {
    const struct eb_split split = eb_split_rows(EB_ROW_THREADS, a->n_rows, a->n_cols, 4);
    const struct eb_act_args args = {
        .gate = eb_arg_mat(&a->gate),
        .up = eb_arg_mat(&a->up),
        .dst = eb_arg_mat(&a->out),
        .n_rows = a->n_rows,
        .n_cols = a->n_cols,
        .gate_group = a->gate_group,
        .beta = a->beta,
        .beta2 = a->beta2,
        .lanes = split.lanes,
        .n_chunks = split.n_chunks,
        .wide = eb_mat_is_wide(&a->gate) && eb_mat_is_wide(&a->up) && eb_mat_is_wide(&a->out)};
    const struct gpu_launch l = {.kernel = a->kind == EBRO_ACT_SILU   ? GPU_act_silu
                                           : a->kind == EBRO_ACT_SITU ? GPU_act_situ
                                                                      : GPU_act_sigmoid,
                                 .threads = split.threads,
                                 .groups = split.groups,
                                 .args = &args};
    return gpu_launch(s, &l, err);
}
