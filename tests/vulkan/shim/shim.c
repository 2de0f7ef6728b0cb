/* shim.c: see shim.h. */
#include "tests/vulkan/shim/clock.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT struct shim *shim_get(void);
EXPORT PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name);

static struct shim shim;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct shim *shim_get(void) {
    return &shim;
}

/* ---- what is behind --------------------------------------------------------------------- */

/* The functions that stand before those of the driver. */
#define HOOKS(X)                          \
    X(CreateInstance)                     \
    X(DestroyInstance)                    \
    X(GetPhysicalDeviceProperties)        \
    X(GetPhysicalDeviceProperties2)       \
    X(GetPhysicalDeviceMemoryProperties2) \
    X(CreateDevice)                       \
    X(GetDeviceProcAddr)                  \
    X(DestroyDevice)                      \
    X(DeviceWaitIdle)                     \
    X(GetDeviceQueue)                     \
    X(QueueSubmit)                        \
    X(WaitSemaphores)                     \
    X(GetSemaphoreCounterValue)           \
    X(AllocateMemory)                     \
    X(FreeMemory)                         \
    X(CreateBuffer)                       \
    X(DestroyBuffer)                      \
    X(GetBufferMemoryRequirements)        \
    X(CreateShaderModule)                 \
    X(CreateComputePipelines)             \
    X(DestroyPipeline)                    \
    X(GetMemoryHostPointerPropertiesEXT)  \
    X(BeginCommandBuffer)                 \
    X(GetQueryPoolResults)                \
    X(CmdWriteTimestamp)                  \
    X(CmdBindPipeline)                    \
    X(CmdCopyBuffer)                      \
    X(CmdExecuteCommands)                 \
    X(CmdDispatch)

static struct {
#define MEMBER(name) PFN_vk##name name;
    HOOKS(MEMBER)
#undef MEMBER
} real;

static PFN_vkGetInstanceProcAddr real_instance_function;

static PFN_vkVoidFunction symbol_of(void *library, const char *name) {
    PFN_vkVoidFunction f = NULL;
    void *p = library != NULL ? dlsym(library, name) : NULL;
    memcpy(&f, &p, sizeof f);
    return f;
}

/* By its path: by its name it would be this file. */
static void open_loader(void) {
    if (real_instance_function != NULL) return;
    if (getenv("EBRO_TEST_SMALL_DEVICE") != NULL)
        shim.limits = (struct shim_limits){.groups = 5, .shared_bytes = 16384};
    void *library = dlopen(SHIM_LOADER, RTLD_NOW | RTLD_LOCAL);
    real_instance_function = (PFN_vkGetInstanceProcAddr)symbol_of(library, "vkGetInstanceProcAddr");
}

/* Counts a call; whether it is the one to fail. */
static bool is_due(uint32_t *n) {
    return *n > 0 && --*n == 0;
}

static void lower64(uint64_t *value, uint64_t limit) {
    if (limit != 0 && limit < *value) *value = limit;
}
static void lower32(uint32_t *value, uint32_t limit) {
    if (limit != 0 && limit < *value) *value = limit;
}

/* ---- instances and limits --------------------------------------------------------------- */

static VkResult VKAPI_CALL hook_CreateInstance(const VkInstanceCreateInfo *info,
                                               const VkAllocationCallbacks *a, VkInstance *out) {
    VkResult r = real.CreateInstance(info, a, out);
    if (r == VK_SUCCESS) shim.seen.live_instances++;
    return r;
}

static void VKAPI_CALL hook_DestroyInstance(VkInstance instance, const VkAllocationCallbacks *a) {
    shim.seen.live_instances--;
    real.DestroyInstance(instance, a);
}

static bool has_heaps(void) {
    return shim.heaps.local_bytes != 0;
}

static bool has_clock(void) {
    return shim.clock.launch_ns + shim.clock.group_ns + shim.clock.copy_kib_ns != 0;
}

static void change_properties(VkPhysicalDeviceProperties *p) {
    if (has_clock()) p->limits.timestampPeriod = 1.0f;
    lower32(&p->limits.maxStorageBufferRange, shim.limits.binding_bytes);
    lower32(&p->limits.maxComputeWorkGroupCount[0], shim.limits.groups);
    lower32(&p->limits.maxComputeSharedMemorySize, shim.limits.shared_bytes);
    if (shim.limits.integrated) p->deviceType = VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
    if (has_heaps()) p->deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
}

static void VKAPI_CALL hook_GetPhysicalDeviceProperties(VkPhysicalDevice d,
                                                        VkPhysicalDeviceProperties *out) {
    real.GetPhysicalDeviceProperties(d, out);
    change_properties(out);
}

static void VKAPI_CALL hook_GetPhysicalDeviceProperties2(VkPhysicalDevice d,
                                                         VkPhysicalDeviceProperties2 *out) {
    real.GetPhysicalDeviceProperties2(d, out);
    change_properties(&out->properties);
    for (VkBaseOutStructure *s = out->pNext; s != NULL; s = s->pNext) {
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES) {
            lower64(&((VkPhysicalDeviceVulkan11Properties *)(void *)s)->maxMemoryAllocationSize,
                    shim.limits.allocation_bytes);
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES) {
            lower64(&((VkPhysicalDeviceMaintenance4Properties *)(void *)s)->maxBufferSize,
                    shim.limits.buffer_bytes);
        }
    }
}

/* ---- devices and their loss ------------------------------------------------------------- */

enum { MAX_DEVICES = 16 };

/* Queues belong to devices; what is lost is a device. */
static struct {
    VkDevice device;
    VkQueue queue;
    bool lost;
} opened[MAX_DEVICES];

static int find_device(VkDevice device) {
    for (int i = 0; i < MAX_DEVICES; i++)
        if (opened[i].device == device) return i;
    return -1;
}

static int find_queue(VkQueue queue) {
    for (int i = 0; i < MAX_DEVICES; i++)
        if (opened[i].device != VK_NULL_HANDLE && opened[i].queue == queue) return i;
    return -1;
}

/* What it was doing must have an end, for its memory is the caller's to free now. */
static void lose(int i) {
    if (opened[i].lost) return;
    opened[i].lost = true;
    (void)real.DeviceWaitIdle(opened[i].device);
}

static VkResult VKAPI_CALL hook_CreateDevice(VkPhysicalDevice d, const VkDeviceCreateInfo *info,
                                             const VkAllocationCallbacks *a, VkDevice *out) {
    VkResult r = real.CreateDevice(d, info, a, out);
    if (r != VK_SUCCESS) return r;
    pthread_mutex_lock(&lock);
    shim.seen.live_devices++;
    int i = find_device(VK_NULL_HANDLE);
    if (i >= 0) {
        opened[i].device = *out;
        opened[i].lost = false;
    }
    pthread_mutex_unlock(&lock);
    return r;
}

static void VKAPI_CALL hook_DestroyDevice(VkDevice device, const VkAllocationCallbacks *a) {
    pthread_mutex_lock(&lock);
    shim.seen.live_devices--;
    int i = find_device(device);
    if (i >= 0) opened[i].device = VK_NULL_HANDLE;
    pthread_mutex_unlock(&lock);
    real.DestroyDevice(device, a);
}

static void VKAPI_CALL hook_GetDeviceQueue(VkDevice device, uint32_t family, uint32_t index,
                                           VkQueue *out) {
    real.GetDeviceQueue(device, family, index, out);
    int i = find_device(device);
    if (i >= 0) opened[i].queue = *out;
}

static VkResult VKAPI_CALL hook_DeviceWaitIdle(VkDevice device) {
    int i = find_device(device);
    VkResult r = real.DeviceWaitIdle(device);
    return i >= 0 && opened[i].lost ? VK_ERROR_DEVICE_LOST : r;
}

/* Of the clock. Counts what these take; whether one takes too long. */
static bool exceeds(uint32_t n, const VkSubmitInfo *info) {
    bool any = false;
    for (uint32_t k = 0; k < n; k++) {
        uint64_t ns = 0;
        for (uint32_t c = 0; c < info[k].commandBufferCount; c++)
            ns += clock_of(info[k].pCommandBuffers[c]);
        if (ns > shim.seen.longest_ns) shim.seen.longest_ns = ns;
        shim.seen.all_ns += ns;
        any |= shim.clock.limit_ns != 0 && ns > shim.clock.limit_ns;
    }
    return any;
}

static VkResult VKAPI_CALL hook_QueueSubmit(VkQueue queue, uint32_t n, const VkSubmitInfo *info,
                                            VkFence fence) {
    pthread_mutex_lock(&lock);
    int i = find_queue(queue);
    shim.seen.submits++;
    if (i >= 0 && opened[i].lost) shim.seen.calls_after_loss++;
    if (i >= 0 && is_due(&shim.faults.submit)) lose(i);
    if (i >= 0 && has_clock() && exceeds(n, info)) lose(i);
    bool lost = i >= 0 && opened[i].lost;
    pthread_mutex_unlock(&lock);
    return lost ? VK_ERROR_DEVICE_LOST : real.QueueSubmit(queue, n, info, fence);
}

static VkResult VKAPI_CALL hook_WaitSemaphores(VkDevice device, const VkSemaphoreWaitInfo *info,
                                               uint64_t timeout) {
    pthread_mutex_lock(&lock);
    int i = find_device(device);
    if (i >= 0 && is_due(&shim.faults.wait)) lose(i);
    bool lost = i >= 0 && opened[i].lost;
    pthread_mutex_unlock(&lock);
    return lost ? VK_ERROR_DEVICE_LOST : real.WaitSemaphores(device, info, timeout);
}

static VkResult VKAPI_CALL hook_GetSemaphoreCounterValue(VkDevice device, VkSemaphore semaphore,
                                                         uint64_t *value) {
    int i = find_device(device);
    if (i >= 0 && opened[i].lost) return VK_ERROR_DEVICE_LOST;
    return real.GetSemaphoreCounterValue(device, semaphore, value);
}

/* ---- heaps ------------------------------------------------------------------------------ */

enum heap { LOCAL, HOST, WINDOW, N_HEAPS };

static const VkMemoryPropertyFlags heap_flags[N_HEAPS] = {
    VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT |
        VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
    VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
        VK_MEMORY_PROPERTY_HOST_COHERENT_BIT};

static uint64_t capacity_of(uint32_t heap) {
    const uint64_t bytes[N_HEAPS] = {shim.heaps.local_bytes, shim.heaps.host_bytes,
                                     shim.heaps.window_bytes};
    return bytes[heap];
}

/* The driver's own type that takes what lies in any of these heaps. */
static uint32_t true_type;

static void VKAPI_CALL hook_GetPhysicalDeviceMemoryProperties2(
    VkPhysicalDevice d, VkPhysicalDeviceMemoryProperties2 *out) {
    real.GetPhysicalDeviceMemoryProperties2(d, out);
    if (!has_heaps()) return;
    VkPhysicalDeviceMemoryProperties *m = &out->memoryProperties;
    for (uint32_t t = 0; t < m->memoryTypeCount; t++)
        if ((m->memoryTypes[t].propertyFlags & heap_flags[HOST]) == heap_flags[HOST]) true_type = t;
    memset(m, 0, sizeof *m);
    m->memoryTypeCount = m->memoryHeapCount = shim.heaps.window_bytes != 0 ? N_HEAPS : WINDOW;
    for (uint32_t i = 0; i < m->memoryHeapCount; i++) {
        m->memoryTypes[i] = (VkMemoryType){.propertyFlags = heap_flags[i], .heapIndex = i};
        m->memoryHeaps[i] = (VkMemoryHeap){
            .size = capacity_of(i), .flags = i == HOST ? 0 : VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
    }
    for (VkBaseOutStructure *s = out->pNext; s != NULL; s = s->pNext) {
        if (s->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT) continue;
        VkPhysicalDeviceMemoryBudgetPropertiesEXT *b = (void *)s;
        for (uint32_t i = 0; i < N_HEAPS; i++) {
            b->heapBudget[i] = capacity_of(i);
            b->heapUsage[i] = shim.seen.heap_bytes[i];
        }
    }
}

static void VKAPI_CALL hook_GetBufferMemoryRequirements(VkDevice device, VkBuffer buffer,
                                                        VkMemoryRequirements *out) {
    real.GetBufferMemoryRequirements(device, buffer, out);
    if (has_heaps()) out->memoryTypeBits = shim.heaps.window_bytes != 0 ? 7 : 3;
}

/* ---- memory ----------------------------------------------------------------------------- */

enum { MAX_ALLOCATIONS = 4096 };

static struct {
    VkDeviceMemory memory;
    uint64_t bytes;
    uint32_t heap;
    bool imported;
} allocations[MAX_ALLOCATIONS];

/* Locked. */
static bool note_allocation(VkDeviceMemory memory, uint64_t bytes, uint32_t heap, bool imported) {
    for (int i = 0; i < MAX_ALLOCATIONS; i++) {
        if (allocations[i].memory != VK_NULL_HANDLE) continue;
        allocations[i].memory = memory;
        allocations[i].bytes = bytes;
        allocations[i].heap = heap;
        allocations[i].imported = imported;
        if (imported) shim.seen.imported_bytes += bytes;
        shim.seen.live_allocations++;
        shim.seen.live_bytes += bytes;
        if (heap < N_HEAPS) shim.seen.heap_bytes[heap] += bytes;
        if (bytes > shim.seen.largest_allocation) shim.seen.largest_allocation = bytes;
        return true;
    }
    return false;
}

static bool is_import(const VkMemoryAllocateInfo *info) {
    for (const VkBaseInStructure *s = info->pNext; s != NULL; s = s->pNext)
        if (s->sType == VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT) return true;
    return false;
}

static VkResult VKAPI_CALL
hook_GetMemoryHostPointerPropertiesEXT(VkDevice device, VkExternalMemoryHandleTypeFlagBits type,
                                       const void *pointer, VkMemoryHostPointerPropertiesEXT *out) {
    if (shim.faults.imports) return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    return real.GetMemoryHostPointerPropertiesEXT(device, type, pointer, out);
}

/* Of a device that computes nothing, so that what nobody wrote is no NaN; of what the host sees. */
static void clear(VkDevice device, VkDeviceMemory memory, uint64_t bytes) {
    PFN_vkMapMemory map = (PFN_vkMapMemory)real.GetDeviceProcAddr(device, "vkMapMemory");
    PFN_vkUnmapMemory unmap = (PFN_vkUnmapMemory)real.GetDeviceProcAddr(device, "vkUnmapMemory");
    void *at = NULL;
    if (map(device, memory, 0, VK_WHOLE_SIZE, 0, &at) != VK_SUCCESS) return;
    memset(at, 0, (size_t)bytes);
    unmap(device, memory);
}

static VkResult VKAPI_CALL hook_AllocateMemory(VkDevice device, const VkMemoryAllocateInfo *info,
                                               const VkAllocationCallbacks *a,
                                               VkDeviceMemory *out) {
    VkMemoryAllocateInfo changed = *info;
    uint32_t heap = has_heaps() ? info->memoryTypeIndex : N_HEAPS;
    VkResult r = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    pthread_mutex_lock(&lock);
    shim.seen.allocations++;
    bool fails = is_due(&shim.faults.allocation);
    if (heap < N_HEAPS) {
        changed.memoryTypeIndex = true_type;
        uint64_t left = capacity_of(heap) - shim.seen.heap_bytes[heap];
        fails |= info->allocationSize > left;
    }
    if (!fails) r = real.AllocateMemory(device, &changed, a, out);
    if (r == VK_SUCCESS && shim.clock.dry) clear(device, *out, info->allocationSize);
    if (r == VK_SUCCESS && !note_allocation(*out, info->allocationSize, heap, is_import(info))) {
        real.FreeMemory(device, *out, a);
        r = VK_ERROR_TOO_MANY_OBJECTS;
    }
    pthread_mutex_unlock(&lock);
    return r;
}

static void VKAPI_CALL hook_FreeMemory(VkDevice device, VkDeviceMemory memory,
                                       const VkAllocationCallbacks *a) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_ALLOCATIONS && memory != VK_NULL_HANDLE; i++) {
        if (allocations[i].memory != memory) continue;
        shim.seen.live_allocations--;
        shim.seen.live_bytes -= allocations[i].bytes;
        if (allocations[i].imported) shim.seen.imported_bytes -= allocations[i].bytes;
        if (allocations[i].heap < N_HEAPS)
            shim.seen.heap_bytes[allocations[i].heap] -= allocations[i].bytes;
        allocations[i].memory = VK_NULL_HANDLE;
        break;
    }
    pthread_mutex_unlock(&lock);
    real.FreeMemory(device, memory, a);
}

static VkResult VKAPI_CALL hook_CreateBuffer(VkDevice device, const VkBufferCreateInfo *info,
                                             const VkAllocationCallbacks *a, VkBuffer *out) {
    VkResult r = real.CreateBuffer(device, info, a, out);
    pthread_mutex_lock(&lock);
    if (r == VK_SUCCESS) shim.seen.live_buffers++;
    if (info->size > shim.seen.largest_buffer) shim.seen.largest_buffer = info->size;
    pthread_mutex_unlock(&lock);
    return r;
}

static void VKAPI_CALL hook_DestroyBuffer(VkDevice device, VkBuffer buffer,
                                          const VkAllocationCallbacks *a) {
    pthread_mutex_lock(&lock);
    if (buffer != VK_NULL_HANDLE) shim.seen.live_buffers--;
    pthread_mutex_unlock(&lock);
    real.DestroyBuffer(device, buffer, a);
}

/* ---- kernels ---------------------------------------------------------------------------- */

static VkResult VKAPI_CALL hook_CreateShaderModule(VkDevice device,
                                                   const VkShaderModuleCreateInfo *info,
                                                   const VkAllocationCallbacks *a,
                                                   VkShaderModule *out) {
    VkResult r = real.CreateShaderModule(device, info, a, out);
    pthread_mutex_lock(&lock);
    if (r == VK_SUCCESS) clock_module(*out, info->pCode, info->codeSize);
    pthread_mutex_unlock(&lock);
    return r;
}

static VkResult VKAPI_CALL hook_CreateComputePipelines(VkDevice device, VkPipelineCache cache,
                                                       uint32_t n,
                                                       const VkComputePipelineCreateInfo *infos,
                                                       const VkAllocationCallbacks *a,
                                                       VkPipeline *out) {
    VkResult r = real.CreateComputePipelines(device, cache, n, infos, a, out);
    pthread_mutex_lock(&lock);
    if (r == VK_SUCCESS) shim.seen.live_pipelines += n;
    for (uint32_t i = 0; r == VK_SUCCESS && i < n; i++)
        clock_pipeline(out[i], infos[i].stage.module);
    pthread_mutex_unlock(&lock);
    return r;
}

static void VKAPI_CALL hook_DestroyPipeline(VkDevice device, VkPipeline pipeline,
                                            const VkAllocationCallbacks *a) {
    pthread_mutex_lock(&lock);
    if (pipeline != VK_NULL_HANDLE) shim.seen.live_pipelines--;
    pthread_mutex_unlock(&lock);
    real.DestroyPipeline(device, pipeline, a);
}

static void VKAPI_CALL hook_CmdDispatch(VkCommandBuffer commands, uint32_t x, uint32_t y,
                                        uint32_t z) {
    pthread_mutex_lock(&lock);
    shim.seen.dispatches++;
    uint32_t most = x > y ? x : y;
    uint64_t grid = (uint64_t)x * y * z;
    if (most > shim.seen.largest_group_count) shim.seen.largest_group_count = most;
    if (grid > shim.seen.largest_grid) shim.seen.largest_grid = grid;
    clock_dispatch(&shim.clock, commands, grid);
    pthread_mutex_unlock(&lock);
    if (!shim.clock.dry) real.CmdDispatch(commands, x, y, z);
}

/* ---- the clock -------------------------------------------------------------------------- */

static VkResult VKAPI_CALL hook_BeginCommandBuffer(VkCommandBuffer commands,
                                                   const VkCommandBufferBeginInfo *info) {
    pthread_mutex_lock(&lock);
    clock_begin(commands);
    pthread_mutex_unlock(&lock);
    return real.BeginCommandBuffer(commands, info);
}

static void VKAPI_CALL hook_CmdBindPipeline(VkCommandBuffer commands, VkPipelineBindPoint point,
                                            VkPipeline pipeline) {
    pthread_mutex_lock(&lock);
    clock_bind(commands, pipeline);
    pthread_mutex_unlock(&lock);
    real.CmdBindPipeline(commands, point, pipeline);
}

static void VKAPI_CALL hook_CmdCopyBuffer(VkCommandBuffer commands, VkBuffer from, VkBuffer to,
                                          uint32_t n, const VkBufferCopy *regions) {
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < n; i++) clock_copy(&shim.clock, commands, regions[i].size);
    pthread_mutex_unlock(&lock);
    real.CmdCopyBuffer(commands, from, to, n, regions);
}

static void VKAPI_CALL hook_CmdExecuteCommands(VkCommandBuffer commands, uint32_t n,
                                               const VkCommandBuffer *others) {
    pthread_mutex_lock(&lock);
    clock_execute(commands, n, others);
    pthread_mutex_unlock(&lock);
    real.CmdExecuteCommands(commands, n, others);
}

static void VKAPI_CALL hook_CmdWriteTimestamp(VkCommandBuffer commands,
                                              VkPipelineStageFlagBits stage, VkQueryPool pool,
                                              uint32_t query) {
    pthread_mutex_lock(&lock);
    clock_stamp(commands, pool, query);
    pthread_mutex_unlock(&lock);
    real.CmdWriteTimestamp(commands, stage, pool, query);
}

/* Of 64 bits, one behind the other, as the backend asks for them. */
static VkResult VKAPI_CALL hook_GetQueryPoolResults(VkDevice device, VkQueryPool pool,
                                                    uint32_t first, uint32_t n, size_t bytes,
                                                    void *out, VkDeviceSize stride,
                                                    VkQueryResultFlags flags) {
    VkResult r = real.GetQueryPoolResults(device, pool, first, n, bytes, out, stride, flags);
    if (r != VK_SUCCESS || !has_clock()) return r;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t ns = clock_stamped(pool, first + i);
        memcpy((uint8_t *)out + i * stride, &ns, sizeof ns);
    }
    pthread_mutex_unlock(&lock);
    return r;
}

/* ---- names ------------------------------------------------------------------------------ */

static PFN_vkVoidFunction VKAPI_CALL hook_GetDeviceProcAddr(VkDevice device, const char *name);

/* The hook before `found`, which it hands on to; `found` itself where there is none. */
static PFN_vkVoidFunction hooked(const char *name, PFN_vkVoidFunction found) {
    if (found == NULL) return NULL;
#define HOOK(function)                              \
    if (strcmp(name, "vk" #function) == 0) {        \
        real.function = (PFN_vk##function)found;    \
        return (PFN_vkVoidFunction)hook_##function; \
    }
    HOOKS(HOOK)
#undef HOOK
    return found;
}

static PFN_vkVoidFunction VKAPI_CALL hook_GetDeviceProcAddr(VkDevice device, const char *name) {
    return hooked(name, real.GetDeviceProcAddr(device, name));
}

PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name) {
    pthread_mutex_lock(&lock);
    open_loader();
    pthread_mutex_unlock(&lock);
    if (real_instance_function == NULL) return NULL;
    return hooked(name, real_instance_function(instance, name));
}
