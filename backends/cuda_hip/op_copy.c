/* op_copy.c: state_copy and rows_copy. Fills are the driver's (stream.c). */
#include "backends/cuda_hip/cuda_hip.h"
#include "shaders/common/args_copy.h"
#include "shaders/cuda_hip/shapes.h"

/* Lays out rows of args->row_bytes, and launches. */
static int32_t copy(ebro_stream *s, struct eb_copy_args *args, ebro_error *err) {
    /* A row may start anywhere in a unit of 16. */
    const struct eb_split split =
        eb_split_rows(EB_ROW_THREADS, args->n_rows, args->row_bytes + 15, EB_COPY_THREAD_BYTES);
    args->lanes = split.lanes;
    args->n_chunks = split.n_chunks;
    const struct gpu_launch l = {
        .kernel = GPU_copy, .threads = split.threads, .groups = split.groups, .args = args};
    return gpu_launch(s, &l, err);
}

int32_t gpu_state_copy(ebro_stream *s, const ebro_state_copy_args *a, ebro_error *err) {
    struct eb_copy_args args = {.src = eb_arg_span(a->src),
                                .dst = eb_arg_span(a->dst),
                                .row_bytes = a->bytes,
                                .n_rows = a->n,
                                .tables = 1};
    return copy(s, &args, err);
}

int32_t gpu_rows_copy(ebro_stream *s, const ebro_rows_copy_args *a, ebro_error *err) {
    struct eb_copy_args args = {.src = eb_arg_span(a->src),
                                .dst = eb_arg_span(a->dst),
                                .src_rows = eb_arg_span(a->src_rows),
                                .dst_rows = eb_arg_span(a->dst_rows),
                                .src_stride = a->src_stride_bytes,
                                .dst_stride = a->dst_stride_bytes,
                                .row_bytes = a->row_bytes,
                                .n_rows = a->n};
    return copy(s, &args, err);
}
