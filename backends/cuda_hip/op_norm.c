/* op_norm.c: rms_norm. */
#include "backends/cuda_hip/cuda_hip.h"
#include "shaders/common/args_norm.h"
#include "shaders/cuda_hip/shapes.h"

int32_t gpu_rms_norm(ebro_stream *s, const ebro_rms_norm_args *a, ebro_error *err) {
    const struct eb_norm_args args = {.x = eb_arg_mat(&a->x),
                                      .gate = eb_arg_mat(&a->gate),
                                      .dst = eb_arg_mat(&a->out),
                                      .weight = eb_arg_vec(&a->weight),
                                      .n_rows = a->n_rows,
                                      .n_cols = a->n_cols,
                                      .eps = a->eps};
    /* Short rows: a wave each. */
    bool is_short = a->n_cols <= EB_NORM_WAVE_COLS;
    const struct gpu_launch l = {
        .kernel = is_short ? GPU_norm_wave : GPU_norm,
        .threads = EB_NORM_THREADS,
        .groups = is_short
                      ? gpu_div_up(a->n_rows, EB_NORM_THREADS / gpu_stream_device(s)->caps.wave_min)
                      : a->n_rows,
        .args = &args};
    return gpu_launch(s, &l, err);
}
