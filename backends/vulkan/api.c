/* api.c: see api.h. */
#include "backends/vulkan/api.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

/* dlsym and vkGet*ProcAddr return data pointers and typeless functions; both are what the name
 * says.
 */
static PFN_vkVoidFunction symbol(void *library, const char *name) {
    PFN_vkVoidFunction f = NULL;
    void *p = dlsym(library, name);
    memcpy(&f, &p, sizeof f);
    return f;
}

static int32_t missing(const ebro_host *host, const char *name, ebro_error *err) {
    return host->fail(err, EBRO_NO_DEVICE, "vulkan: the driver has no function %s", name);
}

static int32_t open_library(const ebro_host *host, struct vk_api *api, ebro_error *err) {
    api->library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (api->library == NULL) {
        return host->fail(err, EBRO_NO_DEVICE, "vulkan: there is no Vulkan driver here (%s)",
                          dlerror());
    }
    api->GetInstanceProcAddr =
        (PFN_vkGetInstanceProcAddr)symbol(api->library, "vkGetInstanceProcAddr");
    if (api->GetInstanceProcAddr == NULL) return missing(host, "vkGetInstanceProcAddr", err);
#define VK_GLOBAL(name)                                                             \
    api->name = (PFN_vk##name)api->GetInstanceProcAddr(VK_NULL_HANDLE, "vk" #name); \
    if (api->name == NULL) return missing(host, "vk" #name, err);
#define VK_INSTANCE(name)
#define VK_DEVICE(name)
#include "backends/vulkan/api.def"
#undef VK_GLOBAL
#undef VK_INSTANCE
#undef VK_DEVICE
    return EBRO_OK;
}

static int32_t open_instance(const ebro_host *host, struct vk_api *api, ebro_error *err) {
    uint32_t version = 0;
    if (api->EnumerateInstanceVersion(&version) != VK_SUCCESS || version < VK_API_VERSION_1_2) {
        return host->fail(err, EBRO_NO_DEVICE,
                          "vulkan: the loader is of version %u.%u, at least 1.2 is needed",
                          VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
    }
    const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                           .pApplicationName = "ebro",
                                           .pEngineName = "ebro",
                                           .apiVersion = VK_API_VERSION_1_2};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                       .pApplicationInfo = &application};
    VkResult r = api->CreateInstance(&info, NULL, &api->instance);
    if (r != VK_SUCCESS) {
        api->instance = VK_NULL_HANDLE;
        return host->fail(err, EBRO_NO_DEVICE,
                          "vulkan: no driver could be started (vkCreateInstance gave %d)", (int)r);
    }
    return EBRO_OK;
}

static int32_t load_instance(const ebro_host *host, struct vk_api *api, ebro_error *err) {
#define VK_GLOBAL(name)
#define VK_INSTANCE(name)                                                          \
    api->name = (PFN_vk##name)api->GetInstanceProcAddr(api->instance, "vk" #name); \
    if (api->name == NULL) return missing(host, "vk" #name, err);
#define VK_DEVICE(name)
#include "backends/vulkan/api.def"
#undef VK_GLOBAL
#undef VK_INSTANCE
#undef VK_DEVICE
    return EBRO_OK;
}

int32_t vk_api_open(const ebro_host *host, struct vk_api *api, ebro_error *err) {
    memset(api, 0, sizeof *api);
    int32_t st = open_library(host, api, err);
    if (st == EBRO_OK) st = open_instance(host, api, err);
    if (st == EBRO_OK) st = load_instance(host, api, err);
    if (st != EBRO_OK) vk_api_close(api);
    return st;
}

int32_t vk_api_load_device(const ebro_host *host, struct vk_api *api, VkDevice device,
                           ebro_error *err) {
#define VK_GLOBAL(name)
#define VK_INSTANCE(name)
#define VK_DEVICE(name)                                                   \
    api->name = (PFN_vk##name)api->GetDeviceProcAddr(device, "vk" #name); \
    if (api->name == NULL) return missing(host, "vk" #name, err);
#include "backends/vulkan/api.def"
#undef VK_GLOBAL
#undef VK_INSTANCE
#undef VK_DEVICE
    return EBRO_OK;
}

void vk_api_close(struct vk_api *api) {
    if (api->instance != VK_NULL_HANDLE && api->DestroyInstance != NULL)
        api->DestroyInstance(api->instance, NULL);
    if (api->library != NULL) dlclose(api->library);
    memset(api, 0, sizeof *api);
}

void vk_api_retire(struct vk_api *api) {
    static atomic_flag is_kept = ATOMIC_FLAG_INIT;
    if (api->instance == VK_NULL_HANDLE || atomic_flag_test_and_set(&is_kept)) {
        vk_api_close(api);
    } else {
        memset(api, 0, sizeof *api);
    }
}
