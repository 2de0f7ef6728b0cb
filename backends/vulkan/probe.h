/* probe.h: which devices there are, in which order, and whether they reach the floor. */
#ifndef EB_VULKAN_PROBE_H
#define EB_VULKAN_PROBE_H

#include <stdbool.h>

#include "backends/vulkan/api.h"

enum { VK_MAX_DEVICES = 16 };

/* The devices with a compute queue, graphics cards first and processors that imitate one last;
 * otherwise in the driver's order. This order is what "Vulkan0" counts. */
int32_t vk_list(const ebro_host *host, const struct vk_api *api,
                VkPhysicalDevice out[VK_MAX_DEVICES], uint32_t *count, ebro_error *err);

/* The first family of queues that computes; graphics is not needed. UINT32_MAX: none. */
uint32_t vk_compute_family(const struct vk_api *api, VkPhysicalDevice device);

bool vk_has_extension(const struct vk_api *api, VkPhysicalDevice device, const char *name);

/* Bytes that the device owns, or shares with the host where it has none of its own, and how many of
 * them are free, as far as the driver tells. */
void vk_memory_of(const struct vk_api *api, VkPhysicalDevice device, uint64_t *total,
                  uint64_t *free_bytes);

int32_t vk_probe(const ebro_host *host, ebro_probe_result *out, uint32_t capacity, uint32_t *count,
                 ebro_error *err);

#endif
