/* api.h: the driver's functions, found by name at run time, so that one build runs on machines with
 * no Vulkan at all. */
#ifndef EB_VULKAN_API_H
#define EB_VULKAN_API_H

#ifndef VK_NO_PROTOTYPES
#define VK_NO_PROTOTYPES
#endif
#include <vulkan/vulkan.h>

#include "ebro/backend.h"

/* The loader library, one instance of Vulkan 1.2, and the functions of both; `DestroyDevice` and
 * what follows it in api.def after vk_api_load_device. */
struct vk_api {
    void *library;
    VkInstance instance;
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
#define VK_GLOBAL(name) PFN_vk##name name;
#define VK_INSTANCE(name) PFN_vk##name name;
#define VK_DEVICE(name) PFN_vk##name name;
#include "backends/vulkan/api.def"
#undef VK_GLOBAL
#undef VK_INSTANCE
#undef VK_DEVICE
};

/* Opens libvulkan and an instance. Where there is none, or an old one, EBRO_NO_DEVICE with the
 * reason; *api is zero then. */
int32_t vk_api_open(const ebro_host *host, struct vk_api *api, ebro_error *err);
/* The functions of a device of that instance. */
int32_t vk_api_load_device(const ebro_host *host, struct vk_api *api, VkDevice device,
                           ebro_error *err);
void vk_api_close(struct vk_api *api); /* safe on a zeroed one */
/* The same for an instance that had a device open, but that the first one of a process stays, and
 * with it the driver: some drivers cannot be loaded again after they were unloaded a few times
 * (NVIDIA's 580 fails from then on, until the process ends). */
void vk_api_retire(struct vk_api *api);

#endif
