/* probe.c: see probe.h. Nothing of a device is opened here. */
#include "backends/vulkan/probe.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

uint32_t vk_compute_family(const struct vk_api *api, VkPhysicalDevice device) {
    VkQueueFamilyProperties families[16];
    uint32_t n = 16;
    api->GetPhysicalDeviceQueueFamilyProperties(device, &n, families);
    for (uint32_t i = 0; i < n; i++)
        if ((families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) != 0) return i;
    return UINT32_MAX;
}

bool vk_has_extension(const struct vk_api *api, VkPhysicalDevice device, const char *name) {
    VkExtensionProperties extensions[512];
    uint32_t n = 512;
    VkResult r = api->EnumerateDeviceExtensionProperties(device, NULL, &n, extensions);
    if (r != VK_SUCCESS && r != VK_INCOMPLETE) return false;
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(extensions[i].extensionName, name) == 0) return true;
    return false;
}

/* ---- order ------------------------------------------------------------------------------ */

static int rank_of(const struct vk_api *api, VkPhysicalDevice device) {
    VkPhysicalDeviceProperties p;
    api->GetPhysicalDeviceProperties(device, &p);
    switch (p.deviceType) {
        case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
            return 0;
        case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
            return 1;
        case VK_PHYSICAL_DEVICE_TYPE_CPU:
            return 3;
        default:
            return 2;
    }
}

int32_t vk_list(const ebro_host *host, const struct vk_api *api,
                VkPhysicalDevice out[VK_MAX_DEVICES], uint32_t *count, ebro_error *err) {
    VkPhysicalDevice all[VK_MAX_DEVICES];
    uint32_t n = VK_MAX_DEVICES;
    *count = 0;
    VkResult r = api->EnumeratePhysicalDevices(api->instance, &n, all);
    if (r != VK_SUCCESS && r != VK_INCOMPLETE) {
        return host->fail(err, EBRO_NO_DEVICE,
                          "vulkan: the devices cannot be listed (vkEnumeratePhysicalDevices gave "
                          "%d)",
                          (int)r);
    }
    for (int rank = 0; rank <= 3; rank++) {
        for (uint32_t i = 0; i < n; i++) {
            if (rank_of(api, all[i]) != rank) continue;
            if (vk_compute_family(api, all[i]) != UINT32_MAX) out[(*count)++] = all[i];
        }
    }
    return EBRO_OK;
}

/* ---- memory ----------------------------------------------------------------------------- */

static uint64_t physical_bytes(void) {
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : UINT64_MAX;
}

void vk_memory_of(const struct vk_api *api, VkPhysicalDevice device, uint64_t *total,
                  uint64_t *free_bytes) {
    VkPhysicalDeviceProperties p;
    api->GetPhysicalDeviceProperties(device, &p);
    bool shared = p.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU ||
                  p.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    bool has_budget = vk_has_extension(api, device, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 m = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
        .pNext = has_budget ? &budget : NULL};
    api->GetPhysicalDeviceMemoryProperties2(device, &m);
    *total = *free_bytes = 0;
    for (uint32_t i = 0; i < m.memoryProperties.memoryHeapCount; i++) {
        const VkMemoryHeap *h = &m.memoryProperties.memoryHeaps[i];
        /* What a shared device calls local is often a small carve-out: all its heaps count. */
        if (!shared && (h->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) == 0) continue;
        uint64_t left = h->size;
        if (has_budget) {
            uint64_t in_use = budget.heapUsage[i];
            left = budget.heapBudget[i] > in_use ? budget.heapBudget[i] - in_use : 0;
        }
        *total += h->size;
        *free_bytes += left < h->size ? left : h->size;
    }
    if (!shared) return;
    /* Heaps of one shared memory overlap. */
    uint64_t all = physical_bytes();
    if (*total > all) *total = all;
    if (*free_bytes > *total) *free_bytes = *total;
}

/* ---- probe ------------------------------------------------------------------------------ */

static void describe(const struct vk_api *api, VkPhysicalDevice device, uint32_t index,
                     ebro_probe_result *out) {
    VkPhysicalDeviceIDProperties id = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
    VkPhysicalDeviceDriverProperties driver = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES, .pNext = &id};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                     .pNext = &driver};
    api->GetPhysicalDeviceProperties2(device, &p);
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "Vulkan%u", index);
    if (p.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU) out->flags = EBRO_PROBE_EMULATED;
    snprintf(out->description, sizeof out->description, "%.56s, driver %.40s%s",
             p.properties.deviceName, driver.driverInfo,
             p.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU ? ", in software" : "");
    /* As other interfaces to the same device write it. */
    const uint8_t *u = id.deviceUUID;
    snprintf(out->id, sizeof out->id,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
             u[15]);
    vk_memory_of(api, device, &out->total_bytes, &out->free_bytes);
}

int32_t vk_probe(const ebro_host *host, ebro_probe_result *out, uint32_t capacity, uint32_t *count,
                 ebro_error *err) {
    struct vk_api api;
    VkPhysicalDevice devices[VK_MAX_DEVICES];
    *count = 0;
    /* A machine without a driver is no failure: *err says why nothing is listed. */
    if (vk_api_open(host, &api, err) != EBRO_OK) return EBRO_OK;
    if (vk_list(host, &api, devices, count, err) == EBRO_OK) {
        if (*count == 0) {
            (void)host->fail(err, EBRO_NO_DEVICE, "vulkan: the drivers here have no device");
        }
        for (uint32_t i = 0; i < *count && i < capacity; i++)
            describe(&api, devices[i], i, &out[i]);
    }
    vk_api_close(&api);
    return EBRO_OK;
}
