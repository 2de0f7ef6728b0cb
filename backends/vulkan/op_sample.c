/* op_sample.c: sample: the parts of all rows, their probabilities, the tokens. What a row wants is
 * known on the device alone, so all three run for every row; a greedy one soon leaves. */
#include "backends/sample.h"
#include "backends/vulkan/vulkan.h"

/* Enough for `each` elements a thread, and `most` at most. */
static uint32_t threads_for(const ebro_dev *dev, uint64_t n, uint32_t each, uint32_t most) {
    uint32_t threads = 32;
    while (threads < most && (uint64_t)threads * each < n) threads *= 2;
    return vk_threads(dev, threads);
}

uint64_t vk_scratch_sample(const ebro_dev *dev, const ebro_sample_args *a) {
    (void)dev;
    return eb_sample_layout_of(a).bytes;
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
    const struct eb_sample_layout lay = eb_sample_layout_of(a);
    const struct eb_sample_args args = eb_sample_args_of(a, &lay);

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
