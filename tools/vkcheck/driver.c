/* driver.c: stands where Vulkan's loader would (its soname is libvulkan.so.1, and whoever has it
 * loaded gets it from dlopen by that name), in front of one driver. What opens a device and makes
 * pipelines goes to the driver; memory is the host's, and what records and runs commands goes
 * nowhere: a driver that only pretends to have a device has no memory, and crashes there. A
 * submission is refused, so that nothing can be taken for a result. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include "driver.h"
#include "ebro/ebro.h"

static PFN_vkGetInstanceProcAddr driver_function;
static PFN_vkGetDeviceProcAddr driver_device_function;

EBRO_API const char *eb_driver_open(const char *path);
EBRO_API PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name);

const char *eb_driver_open(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return dlerror();
    void *symbol = dlsym(library, "vk_icdGetInstanceProcAddr");
    memcpy(&driver_function, &symbol, sizeof driver_function);
    return driver_function != NULL ? NULL : "it is no Vulkan driver";
}

/* ---- what goes nowhere ------------------------------------------------------------------ */

/* Handles must not be null; nobody looks behind them. */
static uint64_t nothing[2];

#define HANDLE(type) ((type)(void *)nothing)

static VkResult create_pool(VkDevice d, const VkCommandPoolCreateInfo *i,
                            const VkAllocationCallbacks *a, VkCommandPool *out) {
    (void)d, (void)i, (void)a;
    *out = HANDLE(VkCommandPool);
    return VK_SUCCESS;
}
static void destroy_pool(VkDevice d, VkCommandPool p, const VkAllocationCallbacks *a) {
    (void)d, (void)p, (void)a;
}
static VkResult reset_pool(VkDevice d, VkCommandPool p, VkCommandPoolResetFlags f) {
    (void)d, (void)p, (void)f;
    return VK_SUCCESS;
}
static VkResult allocate_commands(VkDevice d, const VkCommandBufferAllocateInfo *i,
                                  VkCommandBuffer *out) {
    (void)d;
    for (uint32_t n = 0; n < i->commandBufferCount; n++) out[n] = HANDLE(VkCommandBuffer);
    return VK_SUCCESS;
}
static VkResult begin_commands(VkCommandBuffer c, const VkCommandBufferBeginInfo *i) {
    (void)c, (void)i;
    return VK_SUCCESS;
}
static VkResult end_commands(VkCommandBuffer c) {
    (void)c;
    return VK_SUCCESS;
}
static VkResult create_semaphore(VkDevice d, const VkSemaphoreCreateInfo *i,
                                 const VkAllocationCallbacks *a, VkSemaphore *out) {
    (void)d, (void)i, (void)a;
    *out = HANDLE(VkSemaphore);
    return VK_SUCCESS;
}
static void destroy_semaphore(VkDevice d, VkSemaphore s, const VkAllocationCallbacks *a) {
    (void)d, (void)s, (void)a;
}
static VkResult counter_value(VkDevice d, VkSemaphore s, uint64_t *value) {
    (void)d, (void)s;
    *value = 0;
    return VK_SUCCESS;
}
static VkResult wait_semaphores(VkDevice d, const VkSemaphoreWaitInfo *i, uint64_t timeout) {
    (void)d, (void)i, (void)timeout;
    return VK_ERROR_DEVICE_LOST;
}
static VkResult create_queries(VkDevice d, const VkQueryPoolCreateInfo *i,
                               const VkAllocationCallbacks *a, VkQueryPool *out) {
    (void)d, (void)i, (void)a;
    *out = HANDLE(VkQueryPool);
    return VK_SUCCESS;
}
static void destroy_queries(VkDevice d, VkQueryPool q, const VkAllocationCallbacks *a) {
    (void)d, (void)q, (void)a;
}
static VkResult submit(VkQueue q, uint32_t n, const VkSubmitInfo *i, VkFence f) {
    (void)q, (void)n, (void)i, (void)f;
    return VK_ERROR_DEVICE_LOST;
}
static VkResult wait_idle(VkDevice d) {
    (void)d;
    return VK_SUCCESS;
}
static void barrier(VkCommandBuffer c, VkPipelineStageFlags from, VkPipelineStageFlags to,
                    VkDependencyFlags f, uint32_t n, const VkMemoryBarrier *m, uint32_t n_buffers,
                    const VkBufferMemoryBarrier *b, uint32_t n_images,
                    const VkImageMemoryBarrier *i) {
    (void)c, (void)from, (void)to, (void)f, (void)n, (void)m, (void)n_buffers, (void)b;
    (void)n_images, (void)i;
}
static void bind(VkCommandBuffer c, VkPipelineBindPoint at, VkPipeline p) {
    (void)c, (void)at, (void)p;
}
static void push(VkCommandBuffer c, VkPipelineLayout l, VkShaderStageFlags s, uint32_t offset,
                 uint32_t bytes, const void *v) {
    (void)c, (void)l, (void)s, (void)offset, (void)bytes, (void)v;
}
static void dispatch(VkCommandBuffer c, uint32_t x, uint32_t y, uint32_t z) {
    (void)c, (void)x, (void)y, (void)z;
}
static void execute(VkCommandBuffer c, uint32_t n, const VkCommandBuffer *v) {
    (void)c, (void)n, (void)v;
}
static void copy(VkCommandBuffer c, VkBuffer from, VkBuffer to, uint32_t n,
                 const VkBufferCopy *regions) {
    (void)c, (void)from, (void)to, (void)n, (void)regions;
}
static void reset_queries(VkCommandBuffer c, VkQueryPool q, uint32_t first, uint32_t n) {
    (void)c, (void)q, (void)first, (void)n;
}
static void write_time(VkCommandBuffer c, VkPipelineStageFlagBits s, VkQueryPool q, uint32_t n) {
    (void)c, (void)s, (void)q, (void)n;
}

/* ---- memory ----------------------------------------------------------------------------- */

/* One heap, larger than any model; memory and buffer are the host's, of what the backend asks. */
static void memory_properties(VkPhysicalDevice d, VkPhysicalDeviceMemoryProperties2 *out) {
    VkPhysicalDeviceMemoryProperties *m = &out->memoryProperties;
    (void)d;
    *m = (VkPhysicalDeviceMemoryProperties){.memoryTypeCount = 1, .memoryHeapCount = 1};
    m->memoryTypes[0].propertyFlags =
        VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
        VK_MEMORY_PROPERTY_HOST_COHERENT_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    m->memoryHeaps[0].size = UINT64_C(1) << 40;
    m->memoryHeaps[0].flags = VK_MEMORY_HEAP_DEVICE_LOCAL_BIT;
}
static VkResult allocate_memory(VkDevice d, const VkMemoryAllocateInfo *i,
                                const VkAllocationCallbacks *a, VkDeviceMemory *out) {
    void *p = i->allocationSize < SIZE_MAX / 2 ? calloc(1, (size_t)i->allocationSize) : NULL;
    (void)d, (void)a;
    memcpy(out, &p, sizeof p);
    return p != NULL ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;
}
static void free_memory(VkDevice d, VkDeviceMemory m, const VkAllocationCallbacks *a) {
    void *p;
    (void)d, (void)a;
    memcpy(&p, &m, sizeof p);
    free(p);
}
static VkResult map_memory(VkDevice d, VkDeviceMemory m, VkDeviceSize offset, VkDeviceSize bytes,
                           VkMemoryMapFlags f, void **out) {
    (void)d, (void)offset, (void)bytes, (void)f;
    memcpy(out, &m, sizeof *out);
    return VK_SUCCESS;
}

struct buffer {
    VkDeviceSize bytes;
};

static VkResult create_buffer(VkDevice d, const VkBufferCreateInfo *i,
                              const VkAllocationCallbacks *a, VkBuffer *out) {
    struct buffer *b = malloc(sizeof *b);
    (void)d, (void)a;
    if (b == NULL) return VK_ERROR_OUT_OF_HOST_MEMORY;
    b->bytes = i->size;
    memcpy(out, &b, sizeof b);
    return VK_SUCCESS;
}
static void destroy_buffer(VkDevice d, VkBuffer buffer, const VkAllocationCallbacks *a) {
    struct buffer *b;
    (void)d, (void)a;
    memcpy(&b, &buffer, sizeof b);
    free(b);
}
static void requirements(VkDevice d, VkBuffer buffer, VkMemoryRequirements *out) {
    struct buffer *b;
    (void)d;
    memcpy(&b, &buffer, sizeof b);
    *out = (VkMemoryRequirements){.size = b->bytes, .alignment = 16, .memoryTypeBits = 1};
}
static VkResult bind_memory(VkDevice d, VkBuffer b, VkDeviceMemory m, VkDeviceSize offset) {
    (void)d, (void)b, (void)m, (void)offset;
    return VK_SUCCESS;
}
/* Never followed. */
static VkDeviceAddress address(VkDevice d, const VkBufferDeviceAddressInfo *i) {
    (void)d, (void)i;
    return UINT64_C(1) << 32;
}

/* ---- names ------------------------------------------------------------------------------ */

static PFN_vkVoidFunction device_function(VkDevice device, const char *name);

static PFN_vkVoidFunction own_function(const char *name) {
    static const struct {
        const char *name;
        PFN_vkVoidFunction function;
    } all[] = {
        {"vkGetInstanceProcAddr", (PFN_vkVoidFunction)vkGetInstanceProcAddr},
        {"vkGetDeviceProcAddr", (PFN_vkVoidFunction)device_function},
        {"vkGetPhysicalDeviceMemoryProperties2", (PFN_vkVoidFunction)memory_properties},
        {"vkAllocateMemory", (PFN_vkVoidFunction)allocate_memory},
        {"vkFreeMemory", (PFN_vkVoidFunction)free_memory},
        {"vkMapMemory", (PFN_vkVoidFunction)map_memory},
        {"vkCreateBuffer", (PFN_vkVoidFunction)create_buffer},
        {"vkDestroyBuffer", (PFN_vkVoidFunction)destroy_buffer},
        {"vkGetBufferMemoryRequirements", (PFN_vkVoidFunction)requirements},
        {"vkBindBufferMemory", (PFN_vkVoidFunction)bind_memory},
        {"vkGetBufferDeviceAddress", (PFN_vkVoidFunction)address},
        {"vkCreateCommandPool", (PFN_vkVoidFunction)create_pool},
        {"vkDestroyCommandPool", (PFN_vkVoidFunction)destroy_pool},
        {"vkResetCommandPool", (PFN_vkVoidFunction)reset_pool},
        {"vkAllocateCommandBuffers", (PFN_vkVoidFunction)allocate_commands},
        {"vkBeginCommandBuffer", (PFN_vkVoidFunction)begin_commands},
        {"vkEndCommandBuffer", (PFN_vkVoidFunction)end_commands},
        {"vkCreateSemaphore", (PFN_vkVoidFunction)create_semaphore},
        {"vkDestroySemaphore", (PFN_vkVoidFunction)destroy_semaphore},
        {"vkGetSemaphoreCounterValue", (PFN_vkVoidFunction)counter_value},
        {"vkWaitSemaphores", (PFN_vkVoidFunction)wait_semaphores},
        {"vkCreateQueryPool", (PFN_vkVoidFunction)create_queries},
        {"vkDestroyQueryPool", (PFN_vkVoidFunction)destroy_queries},
        {"vkQueueSubmit", (PFN_vkVoidFunction)submit},
        {"vkDeviceWaitIdle", (PFN_vkVoidFunction)wait_idle},
        {"vkCmdPipelineBarrier", (PFN_vkVoidFunction)barrier},
        {"vkCmdBindPipeline", (PFN_vkVoidFunction)bind},
        {"vkCmdPushConstants", (PFN_vkVoidFunction)push},
        {"vkCmdDispatch", (PFN_vkVoidFunction)dispatch},
        {"vkCmdExecuteCommands", (PFN_vkVoidFunction)execute},
        {"vkCmdCopyBuffer", (PFN_vkVoidFunction)copy},
        {"vkCmdResetQueryPool", (PFN_vkVoidFunction)reset_queries},
        {"vkCmdWriteTimestamp", (PFN_vkVoidFunction)write_time},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0) return all[i].function;
    return NULL;
}

static PFN_vkVoidFunction device_function(VkDevice device, const char *name) {
    PFN_vkVoidFunction own = own_function(name);
    return own != NULL ? own : driver_device_function(device, name);
}

PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name) {
    PFN_vkVoidFunction own = own_function(name);
    if (driver_function == NULL) return NULL;
    if (instance != VK_NULL_HANDLE) {
        driver_device_function =
            (PFN_vkGetDeviceProcAddr)driver_function(instance, "vkGetDeviceProcAddr");
    }
    return own != NULL ? own : driver_function(instance, name);
}
