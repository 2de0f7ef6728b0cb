/* op_copy.c: state_copy and rows_copy, and fills: transfer commands fill whole words alone. */
#include "backends/vulkan/stream.h"
#include "shaders/common/args_copy.h"

enum { THREADS = 256 };

/* What one launch moves at most, so that it is over soon. */
static const uint64_t piece_bytes = (uint64_t)1 << 30;

/* Lays out rows of args->row_bytes, and launches. */
static int32_t copy(ebro_stream *s, struct vk_launch *l, struct eb_copy_args *args,
                    ebro_error *err) {
    /* A row may start anywhere in a unit of 16. */
    struct eb_split split = eb_split_rows(vk_threads(vk_stream_device(s), 256), args->n_rows,
                                          args->row_bytes + 15, EB_COPY_THREAD_BYTES);
    args->lanes = split.lanes;
    args->n_chunks = split.n_chunks;
    l->kernel = VK_copy;
    l->threads = split.threads;
    l->args = args;
    l->groups = split.groups;
    l->work = 2 * args->n_rows * args->row_bytes;
    return vk_launch(s, l, err);
}

int32_t vk_fill(ebro_stream *s, ebro_span dst, uint8_t value, uint64_t bytes, ebro_error *err) {
    uint32_t threads = vk_threads(vk_stream_device(s), THREADS);
    int32_t st = EBRO_OK;
    for (uint64_t done = 0; done < bytes && st == EBRO_OK; done += piece_bytes) {
        uint64_t n = bytes - done < piece_bytes ? bytes - done : piece_bytes;
        const struct eb_fill_args args = {
            .dst = eb_arg_span(dst) + done, .bytes = n, .value = value};
        struct vk_launch l = {.kernel = VK_fill,
                              .threads = threads,
                              .args = &args,
                              .groups = vk_div_up(n + 15, (uint64_t)threads * EB_COPY_THREAD_BYTES),
                              .work = n};
        vk_writes(&l, dst.mem, dst.offset + done, n);
        st = vk_launch(s, &l, err);
    }
    return st;
}

int32_t vk_state_copy(ebro_stream *s, const ebro_state_copy_args *a, ebro_error *err) {
    struct eb_copy_args args = {.src = eb_arg_span(a->src),
                                .dst = eb_arg_span(a->dst),
                                .row_bytes = a->bytes,
                                .n_rows = a->n,
                                .tables = 1};
    struct vk_launch l = {.reads_any = true, .writes_any = true};
    vk_reads_span(&l, a->src, (uint64_t)a->n * 8);
    vk_reads_span(&l, a->dst, (uint64_t)a->n * 8);
    return copy(s, &l, &args, err);
}

/* Bytes from the first row to the end of the last one. With a list, rows may lie anywhere in the
 * memory behind the first. */
static uint64_t extent(ebro_span span, ebro_span list, uint32_t n, uint64_t stride,
                       uint64_t row_bytes) {
    if (list.mem) return span.mem->bytes - span.offset;
    return (uint64_t)(n - 1) * stride + row_bytes;
}

int32_t vk_rows_copy(ebro_stream *s, const ebro_rows_copy_args *a, ebro_error *err) {
    struct eb_copy_args args = {.src = eb_arg_span(a->src),
                                .dst = eb_arg_span(a->dst),
                                .src_rows = eb_arg_span(a->src_rows),
                                .dst_rows = eb_arg_span(a->dst_rows),
                                .src_stride = a->src_stride_bytes,
                                .dst_stride = a->dst_stride_bytes,
                                .row_bytes = a->row_bytes,
                                .n_rows = a->n};
    struct vk_launch l = {0};
    if (a->n == 0) return EBRO_OK;
    vk_reads_span(&l, a->src_rows, (uint64_t)a->n * 4);
    vk_reads_span(&l, a->dst_rows, (uint64_t)a->n * 4);
    vk_reads_span(&l, a->src, extent(a->src, a->src_rows, a->n, a->src_stride_bytes, a->row_bytes));
    vk_writes_span(&l, a->dst,
                   extent(a->dst, a->dst_rows, a->n, a->dst_stride_bytes, a->row_bytes));
    return copy(s, &l, &args, err);
}
