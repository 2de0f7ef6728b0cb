/* stream.c: see stream.h. Not its job: what is recorded (launch.c, copy.c). */
#include "backends/vulkan/stream.h"

#include <inttypes.h>
#include <math.h>

ebro_dev *vk_stream_device(ebro_stream *s) {
    return s->dev;
}

/* ---- arenas ----------------------------------------------------------------------------- */

int32_t vk_arena_take(ebro_dev *dev, struct vk_arena *arena, uint64_t capacity, uint32_t kind,
                      uint64_t bytes, uint64_t *offset, ebro_error *err) {
    if (arena->mem == NULL) {
        int32_t st = vk_mem_alloc(dev, capacity, kind, &arena->mem, err);
        if (st != EBRO_OK) return st;
    }
    uint64_t at = (arena->used + 63) / 64 * 64;
    if (at > capacity || bytes > capacity - at) return EBRO_TIMEOUT;
    arena->used = at + bytes;
    *offset = at;
    return EBRO_OK;
}

void vk_arena_free(ebro_dev *dev, struct vk_arena *arena) {
    if (arena->mem != NULL) vk_mem_free(dev, arena->mem);
    arena->mem = NULL;
}

/* ---- barriers --------------------------------------------------------------------------- */

static void barrier(const ebro_dev *dev, VkCommandBuffer commands, VkPipelineStageFlags to_stages,
                    VkAccessFlags to) {
    const VkMemoryBarrier all = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = to};
    dev->api.CmdPipelineBarrier(
        commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT, to_stages,
        0, 1, &all, 0, NULL, 0, NULL);
}

void vk_full_barrier(const ebro_dev *dev, VkCommandBuffer commands) {
    barrier(dev, commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
            VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_READ_BIT |
                VK_ACCESS_TRANSFER_WRITE_BIT);
}

void vk_order(const ebro_dev *dev, struct vk_recorder *r, const struct vk_access *accesses,
              uint32_t n, bool reads_any, bool writes_any) {
    if (vk_hazard_waits(&r->hazards, accesses, n, reads_any, writes_any)) {
        vk_full_barrier(dev, r->commands);
        vk_hazard_clear(&r->hazards);
    }
    vk_hazard_note(&r->hazards, accesses, n, reads_any, writes_any);
}

/* ---- batches ---------------------------------------------------------------------------- */

static int32_t open_batch(ebro_stream *s, struct vk_batch *b, ebro_error *err) {
    ebro_dev *dev = s->dev;
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
                                          .queueFamilyIndex = dev->family};
    VkResult r = dev->api.CreateCommandPool(dev->device, &pool, NULL, &b->pool);
    if (r != VK_SUCCESS) return vk_fail(dev, r, "creating a command pool", err);
    const VkCommandBufferAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = b->pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = 1};
    r = dev->api.AllocateCommandBuffers(dev->device, &info, &b->recorder.commands);
    if (r != VK_SUCCESS) return vk_fail(dev, r, "allocating a command buffer", err);
    /* Now, so that no launch fails for want of it. */
    return vk_mem_alloc(dev, VK_ARGS_BYTES, EBRO_MEM_UPLOAD, &b->recorder.args.mem, err);
}

static void close_batch(ebro_stream *s, struct vk_batch *b) {
    if (b->pool != VK_NULL_HANDLE) s->dev->api.DestroyCommandPool(s->dev->device, b->pool, NULL);
    vk_arena_free(s->dev, &b->recorder.args);
    vk_arena_free(s->dev, &b->upload);
    vk_arena_free(s->dev, &b->readback);
}

/* From what the batch took, by the device's clock. */
static void learn(ebro_stream *s, const struct vk_batch *b, uint32_t index) {
    uint64_t t[2];
    ebro_dev *dev = s->dev;
    if (s->times == VK_NULL_HANDLE) return;
    VkResult r = dev->api.GetQueryPoolResults(dev->device, s->times, index * 2, 2, sizeof t, t,
                                              sizeof t[0], VK_QUERY_RESULT_64_BIT);
    if (r != VK_SUCCESS) return;
    uint64_t mask =
        dev->timestamp_bits >= 64 ? UINT64_MAX : (UINT64_C(1) << dev->timestamp_bits) - 1;
    double ns = (double)((t[1] - t[0]) & mask) * (double)dev->limits.timestampPeriod;
    if (isfinite(ns)) vk_pace_learn(dev, &b->recorder.mix, ns);
}

/* Its ticket has passed. */
static void retire(ebro_stream *s, uint32_t index) {
    struct vk_batch *b = &s->batches[index];
    for (uint32_t i = 0; i < b->n_downloads; i++) {
        const struct vk_download *d = &b->downloads[i];
        memcpy(d->to, (const uint8_t *)b->readback.mem->host + d->offset, (size_t)d->bytes);
    }
    learn(s, b, index);
    b->n_downloads = 0;
    b->ticket = 0;
}

/* After a failure nobody knows what arrived, and who was told of it may free what it was for. */
static void drop_downloads(ebro_stream *s) {
    for (uint32_t i = 0; i < VK_N_BATCHES; i++) s->batches[i].n_downloads = 0;
}

/* Retires all batches that are done, oldest first. */
static int32_t retire_done(ebro_stream *s, ebro_error *err) {
    uint64_t done = 0;
    VkResult r = s->dev->api.GetSemaphoreCounterValue(s->dev->device, s->timeline, &done);
    if (r != VK_SUCCESS) return vk_fail(s->dev, r, "asking how far the work is", err);
    for (uint32_t i = 1; i <= VK_N_BATCHES; i++) {
        uint32_t index = (s->current + i) % VK_N_BATCHES;
        uint64_t ticket = s->batches[index].ticket;
        if (ticket != 0 && ticket <= done) retire(s, index);
    }
    return EBRO_OK;
}

static int32_t wait_for(ebro_stream *s, uint64_t ticket, uint64_t timeout_ns, ebro_error *err) {
    const VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &s->timeline,
                                      .pValues = &ticket};
    VkResult r =
        s->dev->api.WaitSemaphores(s->dev->device, &info, timeout_ns ? timeout_ns : UINT64_MAX);
    if (r == VK_TIMEOUT) {
        return s->dev->host->fail(err, EBRO_TIMEOUT,
                                  "vulkan: ticket %" PRIu64 " has not passed after %" PRIu64 " ns",
                                  ticket, timeout_ns);
    }
    int32_t st =
        r == VK_SUCCESS ? retire_done(s, err) : vk_fail(s->dev, r, "waiting for the device", err);
    if (st != EBRO_OK) drop_downloads(s);
    return st;
}

static int32_t begin_batch(ebro_stream *s, struct vk_batch *b, ebro_error *err) {
    ebro_dev *dev = s->dev;
    if (b->ticket != 0) {
        int32_t st = wait_for(s, b->ticket, 0, err);
        if (st != EBRO_OK) return st;
    }
    VkResult r = dev->api.ResetCommandPool(dev->device, b->pool, 0);
    if (r != VK_SUCCESS) return vk_fail(dev, r, "resetting a command pool", err);
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                           .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    r = dev->api.BeginCommandBuffer(b->recorder.commands, &info);
    if (r != VK_SUCCESS) return vk_fail(dev, r, "beginning a command buffer", err);
    vk_hazard_clear(&b->recorder.hazards);
    b->recorder.bound = VK_NULL_HANDLE;
    b->recorder.args.used = b->upload.used = b->readback.used = 0;
    b->recorder.mix = (struct vk_mix){0};
    b->recorder.ns = 0;
    b->recorder.is_trial = false;
    b->n_downloads = 0;
    if (s->times != VK_NULL_HANDLE) {
        dev->api.CmdResetQueryPool(b->recorder.commands, s->times, s->current * 2, 2);
        /* At the bottom: when the batches before it are done, whose time is not this one's. */
        dev->api.CmdWriteTimestamp(b->recorder.commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT,
                                   s->times, s->current * 2);
    }
    /* What earlier batches wrote. */
    vk_full_barrier(dev, b->recorder.commands);
    s->recording = true;
    return EBRO_OK;
}

int32_t vk_stream_batch(ebro_stream *s, struct vk_batch **out, ebro_error *err) {
    struct vk_batch *b = &s->batches[s->current];
    *out = b;
    return s->recording ? EBRO_OK : begin_batch(s, b, err);
}

int32_t vk_stream_recorder(ebro_stream *s, struct vk_recorder **out, ebro_error *err) {
    struct vk_batch *b;
    if (s->graph != NULL) {
        *out = vk_graph_recorder(s->graph);
        return EBRO_OK;
    }
    int32_t st = vk_stream_batch(s, &b, err);
    *out = &b->recorder;
    return st;
}

static int32_t end_batch(ebro_stream *s, struct vk_batch *b, ebro_error *err) {
    ebro_dev *dev = s->dev;
    VkCommandBuffer commands = b->recorder.commands;
    barrier(dev, commands, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
    if (s->times != VK_NULL_HANDLE) {
        dev->api.CmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, s->times,
                                   s->current * 2 + 1);
    }
    s->recording = false;
    VkResult r = dev->api.EndCommandBuffer(commands);
    return r == VK_SUCCESS ? EBRO_OK : vk_fail(dev, r, "ending a command buffer", err);
}

int32_t vk_stream_flush(ebro_stream *s, ebro_error *err) {
    if (!s->recording) return EBRO_OK;
    ebro_dev *dev = s->dev;
    struct vk_batch *b = &s->batches[s->current];
    int32_t st = end_batch(s, b, err);
    if (st != EBRO_OK) {
        drop_downloads(s);
        return st;
    }
    uint64_t ticket = s->submitted + 1;
    const VkTimelineSemaphoreSubmitInfo values = {
        .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .signalSemaphoreValueCount = 1,
        .pSignalSemaphoreValues = &ticket};
    const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .pNext = &values,
                               .commandBufferCount = 1,
                               .pCommandBuffers = &b->recorder.commands,
                               .signalSemaphoreCount = 1,
                               .pSignalSemaphores = &s->timeline};
    pthread_mutex_lock(&dev->lock);
    VkResult r = dev->api.QueueSubmit(dev->queue, 1, &info, VK_NULL_HANDLE);
    pthread_mutex_unlock(&dev->lock);
    if (r != VK_SUCCESS) {
        drop_downloads(s);
        return vk_fail(dev, r, "submitting work", err);
    }
    b->ticket = s->submitted = ticket;
    s->current = (s->current + 1) % VK_N_BATCHES;
    return EBRO_OK;
}

/* Of n units that take `each`, what fits into `left`. */
static uint64_t fitting(uint64_t n, double each, double left) {
    return each <= 0 || (double)n * each <= left ? n : left > each ? (uint64_t)(left / each) : 1;
}

/* A graph is cut where its parts get long; what they take is seen when it is launched. */
static int32_t graph_room(ebro_stream *s, uint32_t kind, uint64_t n, double unit_work,
                          uint64_t *now, ebro_error *err) {
    const double most = VK_TARGET_NS / 2;
    double each = vk_pace_ns_recorded(s->dev, kind, unit_work);
    struct vk_recorder *r = vk_graph_recorder(s->graph);
    int32_t st = EBRO_OK;
    if (r->ns > 0 && r->ns + each * (double)n > most) st = vk_graph_part(s, err);
    *now = fitting(n, each, most);
    return st;
}

int32_t vk_stream_room(ebro_stream *s, uint32_t kind, uint64_t n, double unit_work, uint64_t *now,
                       ebro_error *err) {
    struct vk_batch *b;
    if (s->graph != NULL) return graph_room(s, kind, n, unit_work, now, err);
    int32_t st = vk_stream_batch(s, &b, err);
    if (st != EBRO_OK) return st;
    double left = VK_TARGET_NS - b->recorder.ns;
    bool waits = b->recorder.is_trial || vk_pace_is_new(s->dev, kind) ||
                 vk_pace_ns(s->dev, kind, unit_work) * (double)n > left;
    if (b->recorder.ns > 0 && waits) {
        st = vk_stream_flush(s, err);
        if (st == EBRO_OK) st = vk_stream_batch(s, &b, err);
        if (st != EBRO_OK) return st;
    }
    /* Beginning a batch may have taught another pace. */
    *now = fitting(n, vk_pace_ns(s->dev, kind, unit_work), VK_TARGET_NS - b->recorder.ns);
    if (vk_pace_is_new(s->dev, kind)) {
        b->recorder.is_trial = true;
        if (*now > VK_FIRST_GROUPS) *now = VK_FIRST_GROUPS;
    }
    return EBRO_OK;
}

void vk_stream_worked(ebro_stream *s, struct vk_recorder *r, uint32_t kind, double work) {
    vk_mix_add(&r->mix, kind, work);
    vk_mix_add(&r->mix, VK_KIND_LAUNCH, 1);
    r->ns +=
        s->graph != NULL ? vk_pace_ns_recorded(s->dev, kind, work) : vk_pace_ns(s->dev, kind, work);
    r->ns += vk_pace_ns(s->dev, VK_KIND_LAUNCH, 1);
}

bool vk_stream_idle(ebro_stream *s) {
    if (s->recording || retire_done(s, NULL) != EBRO_OK) return false;
    for (uint32_t i = 0; i < VK_N_BATCHES; i++)
        if (s->batches[i].ticket != 0) return false;
    return true;
}

/* ---- streams ---------------------------------------------------------------------------- */

static int32_t open_timeline(ebro_stream *s, ebro_error *err) {
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                        .pNext = &type};
    VkResult r = s->dev->api.CreateSemaphore(s->dev->device, &info, NULL, &s->timeline);
    if (r != VK_SUCCESS) return vk_fail(s->dev, r, "creating a timeline semaphore", err);
    if (s->dev->timestamp_bits == 0) return EBRO_OK;
    const VkQueryPoolCreateInfo times = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                         .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                         .queryCount = 2 * VK_N_BATCHES};
    r = s->dev->api.CreateQueryPool(s->dev->device, &times, NULL, &s->times);
    return r == VK_SUCCESS ? EBRO_OK : vk_fail(s->dev, r, "creating a query pool", err);
}

int32_t vk_stream_open(ebro_dev *dev, ebro_stream **out, ebro_error *err) {
    *out = NULL;
    ebro_stream *s = vk_calloc(dev->host, 1, sizeof *s, err);
    if (s == NULL) return EBRO_NOMEM_HOST;
    s->dev = dev;
    int32_t st = open_timeline(s, err);
    for (uint32_t i = 0; st == EBRO_OK && i < VK_N_BATCHES; i++)
        st = open_batch(s, &s->batches[i], err);
    if (st != EBRO_OK) {
        vk_stream_close(s);
        return st;
    }
    *out = s;
    return EBRO_OK;
}

/* What is recorded and not submitted is dropped; what was submitted is waited for. */
void vk_stream_close(ebro_stream *s) {
    ebro_dev *dev = s->dev;
    if (s->graph != NULL) vk_graph_free(dev, s->graph);
    if (s->submitted > 0) (void)wait_for(s, s->submitted, 0, NULL);
    for (uint32_t i = 0; i < VK_N_BATCHES; i++) close_batch(s, &s->batches[i]);
    if (s->times != VK_NULL_HANDLE) dev->api.DestroyQueryPool(dev->device, s->times, NULL);
    if (s->timeline != VK_NULL_HANDLE) dev->api.DestroySemaphore(dev->device, s->timeline, NULL);
    vk_free(dev->host, s);
}

int32_t vk_submit(ebro_stream *s, uint64_t *ticket, ebro_error *err) {
    struct vk_batch *b;
    if (s->graph != NULL) {
        return s->dev->host->fail(err, EBRO_INVALID, "vulkan: submit while a graph is recorded");
    }
    int32_t st = vk_stream_batch(s, &b, err); /* a ticket of its own, even for nothing */
    if (st == EBRO_OK) st = vk_stream_flush(s, err);
    if (st == EBRO_OK) *ticket = s->submitted;
    return st;
}

int32_t vk_wait(ebro_stream *s, uint64_t ticket, uint64_t timeout_ns, ebro_error *err) {
    if (ticket > s->submitted) {
        return s->dev->host->fail(err, EBRO_INVALID,
                                  "vulkan: wait for ticket %" PRIu64 ", the last one is %" PRIu64,
                                  ticket, s->submitted);
    }
    return wait_for(s, ticket, timeout_ns, err);
}
