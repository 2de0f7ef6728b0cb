/* op_sample.c: sample: the parts of all rows, their probabilities, the tokens. What a row wants is
 * known on the device alone, so all three run for every row; a greedy one soon leaves. */
#include "backends/vulkan/vulkan.h"
#include "shaders/common/args_sample.h"

enum { PART = 4096 };

/* Enough for `each` elements a thread, and `most` at most. */
static uint32_t threads_for(const ebro_dev *dev, uint64_t n, uint32_t each, uint32_t most) {
    uint32_t threads = 32;
    while (threads < most && (uint64_t)threads * each < n) threads *= 2;
    return vk_threads(dev, threads);
}

struct layout {
    uint32_t n_parts, part_size, changed_stride;
    uint64_t parts, masses, bins, changed, bytes; /* offsets, and the end */
};

/* Grows with n_rows and with vocab: room is for as many parts as any smaller vocab has. */
static struct layout layout_of(const ebro_sample_args *a) {
    struct layout l = {.part_size = PART, .changed_stride = (a->vocab + 3) / 4 * 4};
    uint64_t room = vk_div_up(a->vocab, PART);
    if (room > EB_SAMPLE_MOST_PARTS) room = EB_SAMPLE_MOST_PARTS;
    while (vk_div_up(a->vocab, l.part_size) > EB_SAMPLE_MOST_PARTS) l.part_size *= 2;
    l.n_parts = (uint32_t)vk_div_up(a->vocab, l.part_size);
    room *= a->n_rows;
    l.masses = l.parts + room * 16;
    l.bins = l.masses + vk_div_up(room * 8, 16) * 16;
    l.changed = l.bins + room * 12 * EB_SAMPLE_BINS;
    l.bytes = l.changed + (a->n_adjusts > 0 ? (uint64_t)a->n_rows * l.changed_stride * 4 : 0);
    return l;
}

uint64_t vk_scratch_sample(const ebro_dev *dev, const ebro_sample_args *a) {
    (void)dev;
    return layout_of(a).bytes;
}

/* What all three kernels read: rows, and what becomes of them. */
static struct vk_launch launch(const ebro_sample_args *a, enum vk_kernel kernel,
                               const struct eb_sample_args *args) {
    struct vk_launch l = {
        .kernel = kernel, .args = args, .work = (uint64_t)a->n_rows * a->vocab * 8};
    vk_reads_mat(&l, &a->logits, a->n_rows, a->vocab);
    vk_reads_span(&l, a->params, (uint64_t)a->n_rows * sizeof(ebro_sample_params));
    if (a->n_adjusts > 0) {
        vk_reads_span(&l, a->adjusts, (uint64_t)a->n_adjusts * sizeof(ebro_logit_adjust));
        vk_reads_span(&l, a->adjust_offsets, ((uint64_t)a->n_rows + 1) * sizeof(int32_t));
    }
    return l;
}

int32_t vk_sample(ebro_stream *s, const ebro_sample_args *a, ebro_error *err) {
    const ebro_dev *dev = vk_stream_device(s);
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

    struct vk_launch l = launch(a, VK_sample_parts, &args);
    l.threads = threads_for(dev, a->vocab, 4, 256);
    l.groups = (uint64_t)a->n_rows * lay.n_parts;
    vk_writes_span(&l, a->scratch, lay.bytes);
    int32_t st = vk_launch(s, &l, err);
    if (st != EBRO_OK) return st;

    l = launch(a, VK_sample_weigh, &args);
    l.threads = threads_for(dev, a->vocab, 4, 256);
    l.groups = (uint64_t)a->n_rows * lay.n_parts;
    vk_writes_span(&l, a->scratch, lay.bytes);
    if ((st = vk_launch(s, &l, err)) != EBRO_OK) return st;

    l = launch(a, VK_sample_pick, &args);
    /* One workgroup to a row: as many threads as its shared arrays allow. */
    bool subgroups = dev->variants[VK_sample_pick]->needs & EBRO_CAP_SUBGROUP;
    l.threads = threads_for(dev, a->vocab, 16, subgroups ? 1024 : 256);
    l.groups = a->n_rows;
    vk_reads_span(&l, a->scratch, lay.bytes);
    vk_writes_span(&l, a->ids, (uint64_t)a->n_rows * sizeof(int32_t));
    return vk_launch(s, &l, err);
}
