/* launch.c: what ops call: what a launch touches, launches. */
#include <inttypes.h>

#include "backends/vulkan/kernels.h"
#include "backends/vulkan/stream.h"

uint32_t vk_threads(const ebro_dev *dev, uint32_t want) {
    uint32_t most = dev->limits.maxComputeWorkGroupInvocations, n = 1;
    if (most > dev->limits.maxComputeWorkGroupSize[0])
        most = dev->limits.maxComputeWorkGroupSize[0];
    if (dev->max_subgroups > 0 && most / dev->subgroup > dev->max_subgroups)
        most = dev->max_subgroups * dev->subgroup;
    if (want > most) want = most;
    if (want < dev->subgroup) want = dev->subgroup; /* full subgroups */
    while (n * 2 <= want) n *= 2;
    return n;
}

/* ---- accesses --------------------------------------------------------------------------- */

struct vk_access vk_access_of(const ebro_mem *mem, uint64_t offset, uint64_t bytes, bool writes) {
    uint64_t begin = mem->address + offset, end = begin + bytes;
    return (struct vk_access){
        .begin = begin / 16 * 16, .end = (end + 15) / 16 * 16, .writes = writes};
}

static void touches(struct vk_launch *l, const ebro_mem *mem, uint64_t offset, uint64_t bytes,
                    bool writes) {
    if (mem == NULL || bytes == 0) return;
    struct vk_access a = vk_access_of(mem, offset, bytes, writes);
    if (l->n_accesses < VK_MAX_ACCESSES) {
        l->accesses[l->n_accesses++] = a;
        return;
    }
    /* More than fit count as anything. */
    l->reads_any = true;
    l->writes_any |= writes;
}

void vk_reads(struct vk_launch *l, const ebro_mem *mem, uint64_t offset, uint64_t bytes) {
    touches(l, mem, offset, bytes, false);
}

void vk_writes(struct vk_launch *l, const ebro_mem *mem, uint64_t offset, uint64_t bytes) {
    touches(l, mem, offset, bytes, true);
}

void vk_reads_span(struct vk_launch *l, ebro_span span, uint64_t bytes) {
    touches(l, span.mem, span.offset, bytes, false);
}

void vk_writes_span(struct vk_launch *l, ebro_span span, uint64_t bytes) {
    touches(l, span.mem, span.offset, bytes, true);
}

static void touches_mat(struct vk_launch *l, const ebro_mat *m, uint64_t rows, uint64_t cols,
                        bool writes) {
    if (m->mem == NULL || rows == 0) return;
    uint64_t n = (rows - 1) * m->stride + cols;
    touches(l, m->mem, m->offset, n * eb_dtype_bytes(m->dtype), writes);
}

void vk_reads_mat(struct vk_launch *l, const ebro_mat *m, uint64_t rows, uint64_t cols) {
    touches_mat(l, m, rows, cols, false);
}

void vk_writes_mat(struct vk_launch *l, const ebro_mat *m, uint64_t rows, uint64_t cols) {
    touches_mat(l, m, rows, cols, true);
}

void vk_reads_vec(struct vk_launch *l, const ebro_vec *v, uint64_t n) {
    touches(l, v->mem, v->offset, n * eb_dtype_bytes(v->dtype), false);
}

void vk_reads_weight(struct vk_launch *l, const ebro_weight *w) {
    if (w->mem == NULL || w->rows == 0) return;
    uint64_t n = (uint64_t)(w->rows - 1) * w->stride + w->cols;
    touches(l, w->mem, w->offset, w->dtype == EBRO_MXFP4 ? n / 2 : n * eb_dtype_bytes(w->dtype),
            false);
    touches(l, w->scale_mem, w->scale_offset, (uint64_t)w->rows * (w->cols / EBRO_MX_GROUP), false);
}

void vk_reads_rows(struct vk_launch *l, const ebro_rows *rows) {
    vk_reads_span(l, rows->row_offsets, ((uint64_t)rows->n_seqs + 1) * sizeof(int32_t));
}

void vk_uses_states(struct vk_launch *l, const ebro_state_io *io, uint32_t n_seqs) {
    vk_reads_span(l, io->state_in, (uint64_t)n_seqs * sizeof(int32_t));
    vk_reads_span(l, io->state_out, (uint64_t)n_seqs * sizeof(int32_t));
    vk_reads_span(l, io->emit_rows, (uint64_t)io->n_emit * sizeof(int32_t));
    vk_reads_span(l, io->emit_slots, (uint64_t)io->n_emit * sizeof(int32_t));
    l->reads_any = l->writes_any = true;
}

void vk_uses_pages(struct vk_launch *l, const ebro_pages *p, uint32_t n_seqs, bool writes) {
    vk_reads_span(l, p->table, (uint64_t)n_seqs * p->table_stride * sizeof(uint64_t));
    vk_reads_span(l, p->context, (uint64_t)n_seqs * sizeof(int32_t));
    l->reads_any = true;
    l->writes_any |= writes;
}

/* ---- launches --------------------------------------------------------------------------- */

/* Puts the arguments in the batch's memory, which is submitted first where it is full, or in the
 * graph's. */
static int32_t put_args(ebro_stream *s, const struct vk_launch *l, eb_addr *at, ebro_error *err) {
    uint32_t bytes = vk_args_bytes(l->kernel);
    uint64_t offset = 0;
    const ebro_mem *mem = NULL;
    struct vk_batch *b;
    int32_t st = EBRO_TIMEOUT;
    if (s->graph != NULL) st = vk_graph_args(s, bytes, &mem, &offset, err);
    for (int attempt = 0; s->graph == NULL && st == EBRO_TIMEOUT && attempt < 2; attempt++) {
        if (attempt > 0 && (st = vk_stream_flush(s, err)) != EBRO_OK) return st;
        if ((st = vk_stream_batch(s, &b, err)) != EBRO_OK) return st;
        st = vk_arena_take(s->dev, &b->recorder.args, VK_ARGS_BYTES, EBRO_MEM_UPLOAD, bytes,
                           &offset, err);
        mem = b->recorder.args.mem;
    }
    if (st != EBRO_OK) return st;
    memcpy((uint8_t *)mem->host + offset, l->args, bytes);
    *at = mem->address + offset;
    return EBRO_OK;
}

/* Groups [first, end) of the launch. */
static int32_t record(ebro_stream *s, const struct vk_launch *l, VkPipeline pipeline,
                      uint64_t first, uint64_t end, ebro_error *err) {
    ebro_dev *dev = s->dev;
    struct vk_recorder *r;
    struct {
        uint32_t n_groups, first_group;
        uint8_t args[VK_PUSH_BYTES];
    } push = {.n_groups = (uint32_t)end, .first_group = (uint32_t)first};
    int32_t st = EBRO_OK;
    uint32_t bytes = vk_args_bytes(l->kernel);
    if (vk_args_far(l->kernel)) {
        eb_addr at = 0;
        if ((st = put_args(s, l, &at, err)) != EBRO_OK) return st;
        memcpy(push.args, &at, bytes = sizeof at);
    } else {
        memcpy(push.args, l->args, bytes);
    }
    if ((st = vk_stream_recorder(s, &r, err)) != EBRO_OK) return st;
    vk_order(dev, r, l->accesses, l->n_accesses, l->reads_any, l->writes_any);
    if (r->bound != pipeline) {
        dev->api.CmdBindPipeline(r->commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
        r->bound = pipeline;
    }
    dev->api.CmdPushConstants(r->commands, dev->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, 8 + bytes,
                              &push);
    uint64_t most = dev->limits.maxComputeWorkGroupCount[0], n = end - first;
    uint64_t x = n < most ? n : most;
    dev->api.CmdDispatch(r->commands, (uint32_t)x, (uint32_t)vk_div_up(n, x), 1);
    vk_stream_worked(s, r, l->kernel, (double)l->work * ((double)n / (double)l->groups));
    return EBRO_OK;
}

int32_t vk_launch(ebro_stream *s, const struct vk_launch *l, ebro_error *err) {
    VkPipeline pipeline;
    if (l->groups == 0) return EBRO_OK;
    if (l->groups > UINT32_MAX / 2) {
        return s->dev->host->fail(err, EBRO_UNSUPPORTED,
                                  "vulkan: kernel %s over %" PRIu64 " workgroups, the most is %u",
                                  vk_kernel_name(l->kernel), l->groups, UINT32_MAX / 2);
    }
    int32_t st = vk_pipeline_for(s->dev, l, &pipeline, err);
    const double group_work = (double)l->work / (double)l->groups;
    for (uint64_t first = 0, n; st == EBRO_OK && first < l->groups; first += n) {
        st = vk_stream_room(s, l->kernel, l->groups - first, group_work, &n, err);
        if (st == EBRO_OK) st = record(s, l, pipeline, first, first + n, err);
    }
    return st;
}
