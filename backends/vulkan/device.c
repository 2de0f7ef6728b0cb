/* device.c: opens a device and answers what it can do; the backend's table. */
#include <stdio.h>

#include "backends/vulkan/kernels.h"
#include "backends/vulkan/matrix.h"
#include "backends/vulkan/probe.h"
#include "backends/vulkan/statistics.h"
#include "backends/vulkan/stream.h"

/* ---- errors and host memory ------------------------------------------------------------- */

int32_t vk_fail(ebro_dev *dev, VkResult result, const char *what, ebro_error *err) {
    switch (result) {
        case VK_ERROR_DEVICE_LOST:
            return dev->host->fail(err, EBRO_DEVICE_LOST, "vulkan: the device was lost; while %s",
                                   what);
        case VK_ERROR_OUT_OF_HOST_MEMORY:
        case VK_ERROR_MEMORY_MAP_FAILED:
            return dev->host->fail(err, EBRO_NOMEM_HOST,
                                   "vulkan: the driver has no host memory; while %s", what);
        case VK_ERROR_OUT_OF_DEVICE_MEMORY:
            return dev->host->fail(err, EBRO_NOMEM_DEVICE,
                                   "vulkan: the driver has no device memory; while %s", what);
        default:
            return dev->host->fail(err, EBRO_INTERNAL, "vulkan: the driver answered %d; while %s",
                                   (int)result, what);
    }
}

void *vk_calloc(const ebro_host *host, size_t n, size_t size, ebro_error *err) {
    void *p = size == 0 || n <= SIZE_MAX / size ? host->realloc(host->user, NULL, n * size) : NULL;
    if (p == NULL) {
        (void)host->fail(err, EBRO_NOMEM_HOST, "vulkan: no %zu times %zu bytes", n, size);
    } else {
        memset(p, 0, n * size);
    }
    return p;
}

void vk_free(const ebro_host *host, void *p) {
    if (p != NULL) (void)host->realloc(host->user, p, 0);
}

/* ---- what the device has ---------------------------------------------------------------- */

struct features {
    VkPhysicalDeviceFeatures2 all;
    VkPhysicalDeviceVulkan11Features v11;
    VkPhysicalDeviceVulkan12Features v12;
    VkPhysicalDeviceSubgroupSizeControlFeatures subgroup_size;
};

static void chain(struct features *f, bool with_subgroup_size) {
    f->all = (VkPhysicalDeviceFeatures2){.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                         .pNext = &f->v11};
    f->v11 = (VkPhysicalDeviceVulkan11Features){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &f->v12};
    f->v12 = (VkPhysicalDeviceVulkan12Features){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .pNext = with_subgroup_size ? &f->subgroup_size : NULL};
    f->subgroup_size = (VkPhysicalDeviceSubgroupSizeControlFeatures){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES};
}

/* The floor, by name. */
static int32_t check_floor(const ebro_dev *dev, const VkPhysicalDeviceProperties *p,
                           const struct features *f, ebro_error *err) {
    const char *lacks =
        p->apiVersion < VK_API_VERSION_1_2               ? "Vulkan 1.2"
        : !f->v12.bufferDeviceAddress                    ? "bufferDeviceAddress"
        : !f->v11.storageBuffer16BitAccess               ? "storageBuffer16BitAccess"
        : !f->v12.timelineSemaphore                      ? "timelineSemaphore"
        : p->limits.maxComputeWorkGroupInvocations < 128 ? "workgroups of 128 threads"
        : p->limits.maxComputeSharedMemorySize < 16384   ? "16 KiB of shared memory in a workgroup"
                                                         : NULL;
    if (lacks == NULL) return EBRO_OK;
    return dev->host->fail(err, EBRO_UNSUPPORTED, "vulkan: %s lacks %s, which Ebro needs",
                           p->deviceName, lacks);
}

struct properties {
    VkPhysicalDeviceProperties2 all;
    VkPhysicalDeviceVulkan11Properties v11;
    VkPhysicalDeviceSubgroupSizeControlProperties subgroup_size;
    VkPhysicalDeviceMaintenance4Properties buffers; /* zero where the driver does not say */
};

static void read_properties(ebro_dev *dev, struct properties *p, bool with_subgroup_size) {
    p->buffers = (VkPhysicalDeviceMaintenance4Properties){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
    p->subgroup_size = (VkPhysicalDeviceSubgroupSizeControlProperties){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
    p->v11 = (VkPhysicalDeviceVulkan11Properties){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES,
        .pNext = with_subgroup_size ? &p->subgroup_size : NULL};
    p->all = (VkPhysicalDeviceProperties2){.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                           .pNext = &p->v11};
    if (vk_has_extension(&dev->api, dev->physical, VK_KHR_MAINTENANCE_4_EXTENSION_NAME)) {
        p->buffers.pNext = p->all.pNext;
        p->all.pNext = &p->buffers;
    }
    dev->api.GetPhysicalDeviceProperties2(dev->physical, &p->all);
}

/* Subgroup operations are used where they are all there and where their size can be demanded or is
 * the only one: a size that is only assumed has given silently wrong results elsewhere. */
static bool usable_subgroups(ebro_dev *dev, const struct properties *p, const struct features *f) {
    const VkSubgroupFeatureFlags needs = VK_SUBGROUP_FEATURE_BASIC_BIT |
                                         VK_SUBGROUP_FEATURE_ARITHMETIC_BIT |
                                         VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
    uint32_t size = p->v11.subgroupSize;
    dev->subgroup = 1;
    if (!f->subgroup_size.subgroupSizeControl || !f->subgroup_size.computeFullSubgroups)
        return false;
    if ((p->v11.subgroupSupportedOperations & needs) != needs) return false;
    if ((p->v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) == 0) return false;
    bool only = p->subgroup_size.minSubgroupSize == p->subgroup_size.maxSubgroupSize;
    dev->demands_size =
        (p->subgroup_size.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
    if (!dev->demands_size && !only) return false;
    if (size < p->subgroup_size.minSubgroupSize || size > p->subgroup_size.maxSubgroupSize)
        return false;
    if (size < 4 || size > 128 || (size & (size - 1)) != 0) return false;
    dev->subgroup = size;
    dev->max_subgroups = p->subgroup_size.maxComputeWorkgroupSubgroups;
    return true;
}

/* An allocation is a piece of memory and a buffer over all of it, in whole units of 16 bytes. */
static uint64_t max_allocation(ebro_dev *dev, const struct properties *p) {
    uint64_t most = p->v11.maxMemoryAllocationSize, buffer = p->buffers.maxBufferSize, heap = 0;
    if (buffer != 0 && buffer < most) most = buffer;
    for (uint32_t i = 0; i < dev->heaps.memoryHeapCount; i++)
        if (dev->heaps.memoryHeaps[i].size > heap) heap = dev->heaps.memoryHeaps[i].size;
    return (most < heap ? most : heap) / 16 * 16;
}

static void fill_caps(ebro_dev *dev, const struct properties *p, uint64_t bits) {
    uint64_t total, left;
    vk_memory_of(&dev->api, dev->physical, &total, &left);
    dev->max_alloc_bytes = max_allocation(dev, p);
    dev->caps = (ebro_caps){.size = sizeof dev->caps,
                            .bits = bits,
                            .wave_min = p->subgroup_size.minSubgroupSize,
                            .wave_max = p->subgroup_size.maxSubgroupSize,
                            .shared_bytes = dev->limits.maxComputeSharedMemorySize,
                            /* everything is reached by address */
                            .max_binding_bytes = dev->max_alloc_bytes,
                            .max_alloc_bytes = dev->max_alloc_bytes,
                            .mem_alignment = 16,
                            .weight_alignment = 16,
                            .total_bytes = total,
                            .default_cache_dtype = EBRO_BF16,
                            .n_threads = 1};
    if (dev->caps.wave_min == 0) dev->caps.wave_min = dev->caps.wave_max = p->v11.subgroupSize;
}

/* ---- opening ---------------------------------------------------------------------------- */

/* What dev->caps says is used is turned on. */
static int32_t create_device(ebro_dev *dev, bool with_subgroup_size, ebro_error *err) {
    const float priority = 1.0f;
    const char *extensions[8];
    uint32_t n_extensions = 0;
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                           .queueFamilyIndex = dev->family,
                                           .queueCount = 1,
                                           .pQueuePriorities = &priority};
    struct features wanted;
    chain(&wanted, with_subgroup_size);
    wanted.v11.storageBuffer16BitAccess = VK_TRUE;
    wanted.v12.bufferDeviceAddress = VK_TRUE;
    wanted.v12.timelineSemaphore = VK_TRUE;
    wanted.subgroup_size.subgroupSizeControl = with_subgroup_size;
    wanted.subgroup_size.computeFullSubgroups = with_subgroup_size;
    if (with_subgroup_size)
        extensions[n_extensions++] = VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME;
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR statistics =
        vk_statistics_feature(wanted.all.pNext);
    dev->with_statistics = vk_statistics_wanted(dev);
    if (dev->with_statistics) {
        wanted.all.pNext = &statistics;
        extensions[n_extensions++] = VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME;
    }
    struct vk_matrix_features matrix;
    vk_matrix_chain(&matrix, &wanted.all);
    const void *first = &wanted.all;
    if (vk_has_caps(dev, EBRO_CAP_MATRIX)) {
        wanted.v12.vulkanMemoryModel = VK_TRUE;
        wanted.v12.shaderFloat16 = vk_has_caps(dev, EBRO_CAP_F16);
        matrix.matrix.cooperativeMatrix = VK_TRUE;
        first = &matrix.matrix;
        extensions[n_extensions++] = VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME;
    }
    if (vk_has_caps(dev, EBRO_CAP_MATRIX | EBRO_CAP_BF16)) {
        matrix.bf16.shaderBFloat16Type = VK_TRUE;
        matrix.bf16.shaderBFloat16CooperativeMatrix = VK_TRUE;
        first = &matrix.bf16;
        extensions[n_extensions++] = VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME;
    }
    if (dev->imports) extensions[n_extensions++] = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME;
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = first,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue,
                                     .enabledExtensionCount = n_extensions,
                                     .ppEnabledExtensionNames = extensions};
    VkResult r = dev->api.CreateDevice(dev->physical, &info, NULL, &dev->device);
    if (r != VK_SUCCESS) {
        dev->device = VK_NULL_HANDLE;
        if (r == VK_ERROR_OUT_OF_HOST_MEMORY || r == VK_ERROR_OUT_OF_DEVICE_MEMORY ||
            r == VK_ERROR_DEVICE_LOST)
            return vk_fail(dev, r, "opening the device", err);
        return dev->host->fail(err, EBRO_NO_DEVICE,
                               "vulkan: the driver refuses to open the device (it answered %d)",
                               (int)r);
    }
    int32_t st = vk_api_load_device(dev->host, &dev->api, dev->device, err);
    if (st != EBRO_OK) return st;
    dev->api.GetDeviceQueue(dev->device, dev->family, 0, &dev->queue);
    return dev->imports ? vk_import_open(dev, err) : EBRO_OK;
}

static int32_t find_device(ebro_dev *dev, uint32_t index, ebro_error *err) {
    VkPhysicalDevice devices[VK_MAX_DEVICES];
    VkQueueFamilyProperties families[16];
    uint32_t n = 0, n_families = 16;
    int32_t st = vk_list(dev->host, &dev->api, devices, &n, err);
    if (st != EBRO_OK) return st;
    if (index >= n) {
        return dev->host->fail(err, EBRO_NO_DEVICE, "vulkan: no device %u, there are %u", index, n);
    }
    dev->physical = devices[index];
    dev->family = vk_compute_family(&dev->api, dev->physical);
    dev->api.GetPhysicalDeviceQueueFamilyProperties(dev->physical, &n_families, families);
    dev->timestamp_bits = families[dev->family].timestampValidBits;
    return EBRO_OK;
}

/* Everything of the device but the instance, which is there. */
static int32_t set_up(ebro_dev *dev, uint32_t index, const ebro_device_options *o,
                      ebro_error *err) {
    const uint64_t caps_mask = o != NULL ? o->caps_mask : 0;
    int32_t st = find_device(dev, index, err);
    if (st != EBRO_OK) return st;
    bool sizes =
        vk_has_extension(&dev->api, dev->physical, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
    struct properties p;
    struct features f;
    read_properties(dev, &p, sizes);
    chain(&f, sizes);
    dev->api.GetPhysicalDeviceFeatures2(dev->physical, &f.all);
    st = check_floor(dev, &p.all.properties, &f, err);
    if (st != EBRO_OK) return st;
    VkPhysicalDeviceMemoryProperties2 m = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    dev->api.GetPhysicalDeviceMemoryProperties2(dev->physical, &m);
    dev->heaps = m.memoryProperties;
    dev->limits = p.all.properties.limits;
    dev->vendor_id = p.all.properties.vendorID;
    dev->device_id = p.all.properties.deviceID;
    dev->driver_version = p.all.properties.driverVersion;
    memcpy(dev->pipeline_cache_uuid, p.all.properties.pipelineCacheUUID, VK_UUID_SIZE);
    dev->is_shared = p.all.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU ||
                     p.all.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    bool subgroups = usable_subgroups(dev, &p, &f);
    uint64_t bits = EBRO_CAP_GRAPHS;
    if (subgroups) bits |= EBRO_CAP_SUBGROUP;
    if (subgroups) bits |= vk_matrix_caps(dev);
    /* A processor that imitates a device reads weights with threads that block SIGBUS: a file that
     * another program cuts would end the process, and not as an error. They are copied. */
    dev->imports = vk_import_usable(dev) && (caps_mask & EBRO_CAP_UNIFIED) == 0;
    if (dev->imports && p.all.properties.deviceType != VK_PHYSICAL_DEVICE_TYPE_CPU)
        bits |= EBRO_CAP_UNIFIED;
    fill_caps(dev, &p, bits & ~caps_mask);
    st = create_device(dev, subgroups, err);
    if (st == EBRO_OK) st = vk_choose_variants(dev, o != NULL ? o->avoid : NULL, err);
    if (st == EBRO_OK) st = vk_kernels_open(dev, err);
    return st;
}

static void device_close(ebro_dev *dev) {
    if (dev->device != VK_NULL_HANDLE && dev->api.DestroyDevice != NULL) {
        if (dev->api.DeviceWaitIdle != NULL) (void)dev->api.DeviceWaitIdle(dev->device);
        vk_kernels_close(dev);
        dev->api.DestroyDevice(dev->device, NULL);
        vk_api_retire(&dev->api);
    } else {
        vk_api_close(&dev->api);
    }
    pthread_mutex_destroy(&dev->lock);
    vk_free(dev->host, dev);
}

static int32_t device_open(const ebro_host *host, uint32_t index,
                           const ebro_device_options *options, ebro_dev **out, ebro_error *err) {
    *out = NULL;
    ebro_dev *dev = vk_calloc(host, 1, sizeof *dev, err);
    if (dev == NULL) return EBRO_NOMEM_HOST;
    dev->host = host;
    if (pthread_mutex_init(&dev->lock, NULL) != 0) {
        vk_free(host, dev);
        return host->fail(err, EBRO_NOMEM_HOST, "vulkan: no lock for the device");
    }
    int32_t st = vk_api_open(host, &dev->api, err);
    if (st == EBRO_OK) st = set_up(dev, index, options, err);
    if (st != EBRO_OK) {
        device_close(dev);
        return st;
    }
    *out = dev;
    return EBRO_OK;
}

static void device_caps(ebro_dev *dev, ebro_caps *out) {
    uint64_t total;
    *out = dev->caps;
    vk_memory_of(&dev->api, dev->physical, &total, &out->free_bytes);
    /* A driver that does not say what is in use counts at least what is ours. */
    pthread_mutex_lock(&dev->lock);
    uint64_t left = total > dev->used_bytes ? total - dev->used_bytes : 0;
    pthread_mutex_unlock(&dev->lock);
    if (left < out->free_bytes) out->free_bytes = left;
}

/* ---- the table -------------------------------------------------------------------------- */

static uint64_t scratch_bytes(ebro_dev *dev, ebro_op op, const void *args) {
    switch (op) {
#define VK_CASE(N, name) \
    case EBRO_OP_##N:    \
        return vk_scratch_##name(dev, args);
        VK_SCRATCH(VK_CASE)
#undef VK_CASE
        default:
            return 0;
    }
}

static const ebro_backend table = {.size = sizeof table,
                                   .abi = EBRO_BACKEND_ABI,
                                   .name = "vulkan",
                                   .probe = vk_probe,
                                   .device_open = device_open,
                                   .device_close = device_close,
                                   .device_caps = device_caps,
                                   .mem_alloc = vk_mem_alloc,
                                   .mem_free = vk_mem_free,
                                   .mem_import = vk_mem_import,
                                   .stream_open = vk_stream_open,
                                   .stream_close = vk_stream_close,
                                   .copy = vk_copy,
                                   .fill = vk_fill,
                                   .submit = vk_submit,
                                   .wait = vk_wait,
                                   .graph_begin = vk_graph_begin,
                                   .graph_end = vk_graph_end,
                                   .graph_launch = vk_graph_launch,
                                   .graph_free = vk_graph_free,
                                   .scratch_bytes = scratch_bytes,
#define VK_ENTRY(N, name) .name = vk_##name,
                                   EBRO_OPS(VK_ENTRY)
#undef VK_ENTRY
                                       .op_variant = vk_op_variant};

EBRO_API int32_t ebro_backend_entry(uint32_t abi, const ebro_host *host, const ebro_backend **out);

int32_t ebro_backend_entry(uint32_t abi, const ebro_host *host, const ebro_backend **out) {
    (void)host;
    if (abi != EBRO_BACKEND_ABI) return EBRO_UNSUPPORTED;
    *out = &table;
    return EBRO_OK;
}
