/* op_sample.c: sample: the parts of all rows, their probabilities, the tokens (shaders/cuda_hip/
 * sample.cu). */
#include "backends/cuda_hip/cuda_hip.h"
#include "shaders/common/args_sample.h"
#include "shaders/cuda_hip/shapes.h"

enum { PART = 4096 };

struct layout {
    uint32_t n_parts, part_size, changed_stride;
    uint64_t parts, masses, bins, changed, bytes; /* offsets, and the end */
};

/* Grows with n_rows and with vocab: room is for as many parts as any smaller vocab has. */
static struct layout layout_of(const ebro_sample_args *a) {
    struct layout l = {.part_size = PART, .changed_stride = (a->vocab + 3) / 4 * 4};
    uint64_t room = gpu_div_up(a->vocab, PART);
    if (room > EB_SAMPLE_MOST_PARTS) room = EB_SAMPLE_MOST_PARTS;
    while (gpu_div_up(a->vocab, l.part_size) > EB_SAMPLE_MOST_PARTS) l.part_size *= 2;
    l.n_parts = (uint32_t)gpu_div_up(a->vocab, l.part_size);
    room *= a->n_rows;
    l.masses = l.parts + room * 16;
    l.bins = l.masses + gpu_div_up(room * 8, 16) * 16;
    l.changed = l.bins + room * 12 * EB_SAMPLE_BINS;
    l.bytes = l.changed + (a->n_adjusts > 0 ? (uint64_t)a->n_rows * l.changed_stride * 4 : 0);
    return l;
}

uint64_t gpu_scratch_sample(const ebro_dev *dev, const ebro_sample_args *a) {
    (void)dev;
    return layout_of(a).bytes;
}

int32_t gpu_sample(ebro_stream *s, const ebro_sample_args *a, ebro_error *err) {
    const struct layout lay = layout_of(a);
    const eb_addr scratch = eb_arg_span(a->scratch);
    bool adjusts = a->n_adjusts > 0;
    const struct eb_sample_args args = {
        .logits = eb_arg_mat(&a->logits),
        .params = eb_arg_span(a->params),
        .ids = eb_arg_span(a->ids),
        .adjusts = adjusts ? eb_arg_span(a->adjusts) : 0,
        .adjust_offsets = adjusts ? eb_arg_span(a->adjust_offsets) : 0,
        .changed = adjusts ? scratch + lay.changed : 0,
        .parts = scratch + lay.parts,
        .masses = scratch + lay.masses,
        .bins = scratch + lay.bins,
        .vocab = a->vocab,
        .n_parts = lay.n_parts,
        .part_size = lay.part_size,
        .changed_stride = lay.changed_stride,
        .wide = eb_mat_is_wide(&a->logits),
        .one_high = a->vocab < 1u << 24 ? 256.0f : 1.0f};
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
