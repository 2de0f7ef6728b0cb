/* memory.c: allocations. Each is one buffer over one piece of device memory, with an address: no
 * pooling, for the runtime asks for few and large ones. */
#include <inttypes.h>

#include "backends/vulkan/probe.h"
#include "backends/vulkan/vulkan.h"

/* ---- where -------------------------------------------------------------------------------
 *
 * Memory types in order of preference. `must` are flags that a type needs, `avoid` flags that it
 * should better not have. */
struct wish {
    VkMemoryPropertyFlags must, avoid;
};

enum {
    LOCAL = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
    VISIBLE = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
    CACHED = VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
    N_WISHES = 3
};

/* A window through which the host sees a card's memory may be as small as 256 MiB: nothing large
 * and nothing that only the device uses goes there while there is another place. Memory that host
 * and device share is mapped. */
static const struct wish *wishes_for(const ebro_dev *dev, uint32_t kind, uint64_t bytes) {
    static const struct wish shared[N_WISHES] = {
        {LOCAL | VISIBLE | CACHED, 0}, {LOCAL | VISIBLE, 0}, {LOCAL, 0}};
    static const struct wish local[N_WISHES] = {{LOCAL, VISIBLE}, {LOCAL, 0}, {0, VISIBLE}};
    static const struct wish small_upload[N_WISHES] = {
        {LOCAL | VISIBLE, 0}, {VISIBLE, CACHED}, {VISIBLE, 0}};
    static const struct wish upload[N_WISHES] = {
        {VISIBLE, LOCAL | CACHED}, {VISIBLE, LOCAL}, {VISIBLE, 0}};
    static const struct wish readback[N_WISHES] = {
        {VISIBLE | CACHED, LOCAL}, {VISIBLE | CACHED, 0}, {VISIBLE, 0}};
    enum { SMALL = 4 << 20 };
    if (kind == EBRO_MEM_READBACK) return readback;
    if (kind == EBRO_MEM_UPLOAD) return bytes <= SMALL ? small_upload : upload;
    return dev->is_shared ? shared : local;
}

static bool fits(const VkMemoryType *type, const struct wish *w) {
    return (type->propertyFlags & w->must) == w->must && (type->propertyFlags & w->avoid) == 0;
}

/* ---- allocation ------------------------------------------------------------------------- */

static VkResult create_buffer(ebro_dev *dev, struct vk_mem *m, VkMemoryRequirements *needs) {
    const VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        /* Kernels read and write whole words: the last one must exist. */
        .size = (m->head.bytes + 15) / 16 * 16,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT,
        .sharingMode = VK_SHARING_MODE_EXCLUSIVE};
    VkResult r = dev->api.CreateBuffer(dev->device, &info, NULL, &m->buffer);
    if (r == VK_SUCCESS) dev->api.GetBufferMemoryRequirements(dev->device, m->buffer, needs);
    return r;
}

static VkResult allocate_from(ebro_dev *dev, struct vk_mem *m, uint64_t bytes, uint32_t type) {
    const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = &flags,
                                       .allocationSize = bytes,
                                       .memoryTypeIndex = type};
    return dev->api.AllocateMemory(dev->device, &info, NULL, &m->memory);
}

/* Every type that serves, best first; a full heap is no reason not to try the next. */
static VkResult allocate(ebro_dev *dev, struct vk_mem *m, const VkMemoryRequirements *needs,
                         uint32_t kind, VkMemoryPropertyFlags *flags) {
    const struct wish *wishes = wishes_for(dev, kind, needs->size);
    uint32_t tried = 0;
    VkResult r = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    for (int w = 0; w < N_WISHES; w++) {
        for (uint32_t t = 0; t < dev->heaps.memoryTypeCount; t++) {
            const VkMemoryType *type = &dev->heaps.memoryTypes[t];
            if ((needs->memoryTypeBits >> t & 1) == 0 || (tried >> t & 1) != 0) continue;
            if (!fits(type, &wishes[w])) continue;
            if (needs->size > dev->heaps.memoryHeaps[type->heapIndex].size) continue;
            tried |= 1u << t;
            r = allocate_from(dev, m, needs->size, t);
            *flags = type->propertyFlags;
            if (r == VK_SUCCESS || r == VK_ERROR_DEVICE_LOST) return r;
        }
    }
    return r;
}

static VkResult bind(ebro_dev *dev, struct vk_mem *m, VkMemoryPropertyFlags flags) {
    VkResult r = dev->api.BindBufferMemory(dev->device, m->buffer, m->memory, 0);
    if (r != VK_SUCCESS) return r;
    if ((flags & VISIBLE) == VISIBLE) {
        r = dev->api.MapMemory(dev->device, m->memory, 0, VK_WHOLE_SIZE, 0, &m->head.host);
        if (r != VK_SUCCESS) return r;
    }
    const VkBufferDeviceAddressInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                            .buffer = m->buffer};
    m->head.address = dev->api.GetBufferDeviceAddress(dev->device, &info);
    return VK_SUCCESS;
}

static void release(ebro_dev *dev, struct vk_mem *m) {
    if (m->buffer != VK_NULL_HANDLE) dev->api.DestroyBuffer(dev->device, m->buffer, NULL);
    if (m->memory != VK_NULL_HANDLE) dev->api.FreeMemory(dev->device, m->memory, NULL);
    vk_free(dev->host, m);
}

static int32_t out_of_memory(ebro_dev *dev, uint64_t bytes, ebro_error *err) {
    uint64_t total, left;
    vk_memory_of(&dev->api, dev->physical, &total, &left);
    pthread_mutex_lock(&dev->lock);
    uint64_t used = dev->used_bytes;
    pthread_mutex_unlock(&dev->lock);
    return dev->host->fail(err, EBRO_NOMEM_DEVICE,
                           "vulkan: %" PRIu64 " bytes wanted, %" PRIu64 " of %" PRIu64
                           " are free, this program holds %" PRIu64,
                           bytes, left, total, used);
}

int32_t vk_mem_alloc(ebro_dev *dev, uint64_t bytes, uint32_t kind, ebro_mem **out,
                     ebro_error *err) {
    *out = NULL;
    if (bytes > dev->max_alloc_bytes) {
        return dev->host->fail(err, EBRO_NOMEM_DEVICE,
                               "vulkan: one allocation of %" PRIu64
                               " bytes wanted, the device takes %" PRIu64 " at most",
                               bytes, dev->max_alloc_bytes);
    }
    struct vk_mem *m = vk_calloc(dev->host, 1, sizeof *m, err);
    if (m == NULL) return EBRO_NOMEM_HOST;
    m->head.bytes = bytes;
    VkMemoryRequirements needs = {0};
    VkMemoryPropertyFlags flags = 0;
    VkResult r = create_buffer(dev, m, &needs);
    if (r == VK_SUCCESS) r = allocate(dev, m, &needs, kind, &flags);
    if (r == VK_SUCCESS) r = bind(dev, m, flags);
    if (r != VK_SUCCESS) {
        release(dev, m);
        if (r == VK_ERROR_OUT_OF_DEVICE_MEMORY || r == VK_ERROR_TOO_MANY_OBJECTS)
            return out_of_memory(dev, bytes, err);
        return vk_fail(dev, r, "allocating device memory", err);
    }
    pthread_mutex_lock(&dev->lock);
    dev->used_bytes += m->counted_bytes = bytes;
    pthread_mutex_unlock(&dev->lock);
    *out = &m->head;
    return EBRO_OK;
}

void vk_mem_free(ebro_dev *dev, ebro_mem *mem) {
    struct vk_mem *m = (struct vk_mem *)mem;
    pthread_mutex_lock(&dev->lock);
    dev->used_bytes -= m->counted_bytes;
    pthread_mutex_unlock(&dev->lock);
    release(dev, m);
}
