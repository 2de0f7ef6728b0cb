/* op_sample.c: sample: the parts of all rows, their probabilities, the tokens (shaders/cuda_hip/
 * sample.cu). */
#include "backends/cuda_hip/cuda_hip.h"
#include "backends/sample.h"
#include "shaders/cuda_hip/shapes.h"

uint64_t gpu_scratch_sample(const ebro_dev *dev, const ebro_sample_args *a) {
    (void)dev;
    return eb_sample_layout_of(a).bytes;
}

int32_t gpu_sample(ebro_stream *s, const ebro_sample_args *a, ebro_error *err) {
    const struct eb_sample_layout lay = eb_sample_layout_of(a);
    const struct eb_sample_args args = eb_sample_args_of(a, &lay);
    const struct gpu_launch parts = {.kernel = GPU_sample_parts,
                                     .threads = EB_SAMPLE_THREADS,
                                     .groups = (uint64_t)a->n_rows * lay.n_parts,
                                     .args = &args};
    struct gpu_launch weigh = parts;
    weigh.kernel = GPU_sample_weigh;
    struct gpu_launch pick = {.kernel = GPU_sample_pick,
                              .threads = EB_SAMPLE_PICK_FEWEST,
                              .groups = a->n_rows,
                              .args = &args};
    while (pick.threads < EB_SAMPLE_PICK_THREADS && pick.threads * 16 < a->vocab) pick.threads *= 2;
    int32_t st = gpu_launch(s, &parts, err);
    if (st == EBRO_OK) st = gpu_launch(s, &weigh, err);
    return st == EBRO_OK ? gpu_launch(s, &pick, err) : st;
}
