/* op_embed.c: embed. */
#include "backends/vulkan/vulkan.h"
#include "shaders/common/args_token.h"

int32_t vk_embed(ebro_stream *s, const ebro_embed_args *a, ebro_error *err) {
    struct eb_split split =
        eb_split_rows(vk_threads(vk_stream_device(s), 256), a->n_rows, a->table.cols, 4);
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
    struct vk_launch l = {.kernel = VK_embed,
                          .threads = split.threads,
                          .args = &args,
                          .groups = split.groups,
                          .work = (uint64_t)a->n_rows * a->table.cols * 8};
    vk_reads_span(&l, a->ids, (uint64_t)a->n_rows * 4);
    vk_reads_weight(&l, &a->table);
    vk_writes_mat(&l, &a->out, a->n_rows, a->table.cols);
    return vk_launch(s, &l, err);
}
