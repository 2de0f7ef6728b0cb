/* op_res.c: attn_res_mix. */
#include "backends/cuda_hip/cuda_hip.h"
#include "shaders/common/args_res.h"
#include "shaders/cuda_hip/shapes.h"

_Static_assert(EB_MAX_SOURCES == EBRO_MAX_SOURCES, "one number of sources");

int32_t gpu_attn_res_mix(ebro_stream *s, const ebro_attn_res_mix_args *a, ebro_error *err) {
    struct eb_res_args args = {.dst = eb_arg_mat(&a->out),
                               .probs = eb_arg_mat(&a->probs),
                               .norm_weight = eb_arg_vec(&a->norm_weight),
                               .proj = eb_arg_vec(&a->proj),
                               .n_sources = a->n_sources,
                               .n_cols = a->n_cols,
                               .eps = a->eps};
    struct gpu_launch l = {
        .kernel = GPU_res_mix, .threads = 64, .groups = a->n_rows, .args = &args};
    while (l.threads < EB_RES_THREADS && l.threads * 4 < a->n_cols) l.threads *= 2;
    bool wide =
        eb_mat_is_wide(&a->out) && eb_vec_is_wide(&a->norm_weight) && eb_vec_is_wide(&a->proj);
    for (uint32_t i = 0; i < a->n_sources; i++) {
        args.sources[i] = eb_arg_mat(&a->sources[i]);
        wide = wide && eb_mat_is_wide(&a->sources[i]);
    }
    args.wide = wide;
    return gpu_launch(s, &l, err);
}
