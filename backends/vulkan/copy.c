/* copy.c: copies; fills are a kernel (op_copy.c). What the host gives or wants passes through the
 * batch's staging memory, piece by piece, however large it is; memory that the host can see is
 * touched at once where nothing is pending. */
#include "backends/vulkan/kernels.h"
#include "backends/vulkan/stream.h"

/* ---- one copy on the device ------------------------------------------------------------- */

static int32_t record_copy(ebro_stream *s, ebro_span dst, ebro_span src, uint64_t bytes,
                           ebro_error *err) {
    ebro_dev *dev = s->dev;
    struct vk_recorder *r;
    int32_t st = vk_stream_recorder(s, &r, err);
    if (st != EBRO_OK) return st;
    const struct vk_access accesses[2] = {vk_access_of(src.mem, src.offset, bytes, false),
                                          vk_access_of(dst.mem, dst.offset, bytes, true)};
    vk_order(dev, r, accesses, 2, false, false);
    const struct vk_mem *from = (struct vk_mem *)src.mem, *to = (struct vk_mem *)dst.mem;
    const VkBufferCopy region = {
        .srcOffset = from->begin + src.offset, .dstOffset = to->begin + dst.offset, .size = bytes};
    dev->api.CmdCopyBuffer(r->commands, from->buffer, to->buffer, 1, &region);
    vk_stream_worked(s, r, VK_KIND_COPY, 2 * (double)bytes);
    return EBRO_OK;
}

/* In as many pieces as batches have time for. */
static int32_t copy_on_device(ebro_stream *s, const ebro_copy_args *a, ebro_error *err) {
    enum { UNIT = 1 << 16 };
    int32_t st = EBRO_OK;
    for (uint64_t done = 0, n; st == EBRO_OK && done < a->bytes; done += n) {
        uint64_t left = a->bytes - done;
        st = vk_stream_room(s, VK_KIND_COPY, vk_div_up(left, UNIT), 2.0 * UNIT, &n, err);
        if (st != EBRO_OK) return st;
        n = n < vk_div_up(left, UNIT) ? n * UNIT : left;
        st = record_copy(s, (ebro_span){a->dst.mem, a->dst.offset + done},
                         (ebro_span){a->src.mem, a->src.offset + done}, n, err);
    }
    return st;
}

/* A piece of the current batch's staging memory, to be copied from or to in that batch; one
 * without room or time is submitted first. */
static int32_t stage(ebro_stream *s, uint32_t kind, uint64_t bytes, struct vk_batch **batch,
                     ebro_span *out, ebro_error *err) {
    uint64_t all;
    int32_t room = vk_stream_room(s, VK_KIND_COPY, 1, 2 * (double)bytes, &all, err);
    if (room != EBRO_OK) return room;
    for (int attempt = 0;; attempt++) {
        int32_t st = vk_stream_batch(s, batch, err);
        if (st != EBRO_OK) return st;
        bool up = kind == EBRO_MEM_UPLOAD;
        struct vk_arena *arena = up ? &(*batch)->upload : &(*batch)->readback;
        uint64_t capacity = up ? VK_UPLOAD_BYTES : VK_READBACK_BYTES;
        st = up || (*batch)->n_downloads < VK_MAX_DOWNLOADS
                 ? vk_arena_take(s->dev, arena, capacity, kind, bytes, &out->offset, err)
                 : EBRO_TIMEOUT;
        out->mem = arena->mem;
        if (st != EBRO_TIMEOUT || attempt > 0) return st;
        if ((st = vk_stream_flush(s, err)) != EBRO_OK) return st;
    }
}

static int32_t upload(ebro_stream *s, ebro_span dst, const uint8_t *from, uint64_t bytes,
                      ebro_error *err) {
    if (dst.mem->host != NULL && vk_stream_idle(s)) {
        memcpy((uint8_t *)dst.mem->host + dst.offset, from, (size_t)bytes);
        return EBRO_OK;
    }
    int32_t st = EBRO_OK;
    for (uint64_t done = 0, n; st == EBRO_OK && done < bytes; done += n) {
        struct vk_batch *b;
        ebro_span staged = {0};
        n = bytes - done < VK_UPLOAD_BYTES / 2 ? bytes - done : VK_UPLOAD_BYTES / 2;
        st = stage(s, EBRO_MEM_UPLOAD, n, &b, &staged, err);
        if (st != EBRO_OK) break;
        memcpy((uint8_t *)staged.mem->host + staged.offset, from + done, (size_t)n);
        st = record_copy(s, (ebro_span){dst.mem, dst.offset + done}, staged, n, err);
    }
    return st;
}

static int32_t download(ebro_stream *s, uint8_t *to, ebro_span src, uint64_t bytes,
                        ebro_error *err) {
    if (src.mem->host != NULL && vk_stream_idle(s)) {
        memcpy(to, (const uint8_t *)src.mem->host + src.offset, (size_t)bytes);
        return EBRO_OK;
    }
    int32_t st = EBRO_OK;
    for (uint64_t done = 0, n; st == EBRO_OK && done < bytes; done += n) {
        struct vk_batch *b;
        ebro_span staged = {0};
        n = bytes - done < VK_READBACK_BYTES / 2 ? bytes - done : VK_READBACK_BYTES / 2;
        st = stage(s, EBRO_MEM_READBACK, n, &b, &staged, err);
        if (st != EBRO_OK) break;
        st = record_copy(s, staged, (ebro_span){src.mem, src.offset + done}, n, err);
        if (st == EBRO_OK) {
            b->downloads[b->n_downloads++] =
                (struct vk_download){.to = to + done, .offset = staged.offset, .bytes = n};
        }
    }
    return st;
}

/* ---- entries ---------------------------------------------------------------------------- */

/* Host to host is nobody's business here, but the contract allows it. */
static int32_t copy_on_host(ebro_stream *s, const ebro_copy_args *a, ebro_error *err) {
    (void)s;
    (void)err;
    memcpy(a->dst_host, a->src_host, (size_t)a->bytes);
    return EBRO_OK;
}

int32_t vk_copy(ebro_stream *s, const ebro_copy_args *a, ebro_error *err) {
    if (a->bytes == 0) return EBRO_OK;
    if (a->src.mem == NULL && a->dst.mem == NULL) return copy_on_host(s, a, err);
    if (s->graph != NULL && (a->src.mem == NULL || a->dst.mem == NULL)) {
        return s->dev->host->fail(err, EBRO_INVALID,
                                  "vulkan: a copy from or to the host in a graph, which has no "
                                  "moment to wait for it");
    }
    if (a->src.mem == NULL) return upload(s, a->dst, a->src_host, a->bytes, err);
    if (a->dst.mem == NULL) return download(s, a->dst_host, a->src, a->bytes, err);
    return copy_on_device(s, a, err);
}
