/* op_norm.c: rms_norm. */
#include "backends/vulkan/vulkan.h"
#include "shaders/common/args_norm.h"

int32_t vk_rms_norm(ebro_stream *s, const ebro_rms_norm_args *a, ebro_error *err) {
    const struct eb_norm_args args = {.x = eb_arg_mat(&a->x),
                                      .gate = eb_arg_mat(&a->gate),
                                      .dst = eb_arg_mat(&a->out),
                                      .weight = eb_arg_vec(&a->weight),
                                      .n_rows = a->n_rows,
                                      .n_cols = a->n_cols,
                                      .eps = a->eps};
    struct vk_launch l = {.kernel = VK_norm,
                          .threads = vk_threads(vk_stream_device(s), a->n_cols > 128 ? 256 : 64),
                          .args = &args,
                          .groups = a->n_rows,
                          .work = (uint64_t)a->n_rows * a->n_cols * 8};
    vk_reads_mat(&l, &a->x, a->n_rows, a->n_cols);
    vk_reads_mat(&l, &a->gate, a->n_rows, a->n_cols);
    vk_reads_vec(&l, &a->weight, a->n_cols);
    vk_writes_mat(&l, &a->out, a->n_rows, a->n_cols);
    return vk_launch(s, &l, err);
}
