/* op_res.c: attn_res_mix. */
#include "backends/vulkan/vulkan.h"
#include "shaders/common/args_res.h"

_Static_assert(EB_MAX_SOURCES == EBRO_MAX_SOURCES, "one number of sources");

int32_t vk_attn_res_mix(ebro_stream *s, const ebro_attn_res_mix_args *a, ebro_error *err) {
    struct eb_res_args args = {.dst = eb_arg_mat(&a->out),
                               .probs = eb_arg_mat(&a->probs),
                               .norm_weight = eb_arg_vec(&a->norm_weight),
                               .proj = eb_arg_vec(&a->proj),
                               .n_sources = a->n_sources,
                               .n_cols = a->n_cols,
                               .eps = a->eps};
    struct vk_launch l = {.kernel = VK_res_mix,
                          .args = &args,
                          .groups = a->n_rows,
                          .work = (uint64_t)a->n_rows * a->n_cols * (8 * a->n_sources + 4)};
    const ebro_dev *dev = vk_stream_device(s);
    uint32_t most = dev->variants[VK_res_mix]->needs & EBRO_CAP_SUBGROUP ? 512 : 256;
    bool wide =
        eb_mat_is_wide(&a->out) && eb_vec_is_wide(&a->norm_weight) && eb_vec_is_wide(&a->proj);
    l.threads = 64;
    while (l.threads < most && l.threads * 4 < a->n_cols) l.threads *= 2;
    l.threads = vk_threads(dev, l.threads);
    for (uint32_t i = 0; i < a->n_sources; i++) {
        args.sources[i] = eb_arg_mat(&a->sources[i]);
        wide = wide && eb_mat_is_wide(&a->sources[i]);
        vk_reads_mat(&l, &a->sources[i], a->n_rows, a->n_cols);
    }
    args.wide = wide;
    vk_reads_vec(&l, &a->norm_weight, a->n_cols);
    vk_reads_vec(&l, &a->proj, a->n_cols);
    vk_writes_mat(&l, &a->out, a->n_rows, a->n_cols);
    vk_writes_mat(&l, &a->probs, a->n_rows, a->n_sources);
    return vk_launch(s, &l, err);
}
