/* op_act.c: act_mul. */
#include "backends/vulkan/vulkan.h"
#include "shaders/common/args_act.h"

int32_t vk_act_mul(ebro_stream *s, const ebro_act_mul_args *a, ebro_error *err) {
    struct eb_split split =
        eb_split_rows(vk_threads(vk_stream_device(s), 256), a->n_rows, a->n_cols, 4);
    uint32_t gate_cols = a->n_cols / a->gate_group;
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
    struct vk_launch l = {.kernel = VK_act,
                          .threads = split.threads,
                          .specs = {(uint32_t)a->kind},
                          .n_specs = 1,
                          .args = &args,
                          .groups = split.groups,
                          .work = (uint64_t)a->n_rows * a->n_cols * 12};
    vk_reads_mat(&l, &a->gate, a->n_rows, gate_cols);
    vk_reads_mat(&l, &a->up, a->n_rows, a->n_cols);
    vk_writes_mat(&l, &a->out, a->n_rows, a->n_cols);
    return vk_launch(s, &l, err);
}
