/* import.c: host memory that a device which shares it uses where it lies: the weights in their
 * mapped files. Not its job: memory of the device's own (memory.c), and what happens where a range
 * cannot be shared: the runtime copies it. */
#include <inttypes.h>
#include <unistd.h>

#include "backends/vulkan/probe.h"
#include "backends/vulkan/vulkan.h"

static const VkExternalMemoryHandleTypeFlagBits host_allocation =
    VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;

static const VkBufferUsageFlags usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                        VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;

/* ---- whether it can --------------------------------------------------------------------- */

/* The driver takes whole pages. Those that hold the first and the last byte are there as a whole;
 * where it wants larger units the rest of one may be anybody's. */
bool vk_import_usable(const ebro_dev *dev) {
    if (!dev->is_shared) return false;
    if (!vk_has_extension(&dev->api, dev->physical, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME))
        return false;
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                     .pNext = &host};
    dev->api.GetPhysicalDeviceProperties2(dev->physical, &p);
    long page = sysconf(_SC_PAGESIZE);
    return page > 0 && host.minImportedHostPointerAlignment <= (uint64_t)page;
}

int32_t vk_import_open(ebro_dev *dev, ebro_error *err) {
    dev->GetMemoryHostPointerProperties =
        (PFN_vkGetMemoryHostPointerPropertiesEXT)dev->api.GetDeviceProcAddr(
            dev->device, "vkGetMemoryHostPointerPropertiesEXT");
    if (dev->GetMemoryHostPointerProperties != NULL) return EBRO_OK;
    return dev->host->fail(
        err, EBRO_NO_DEVICE,
        "vulkan: the driver has no function vkGetMemoryHostPointerPropertiesEXT");
}

/* ---- importing -------------------------------------------------------------------------- */

/* Memory of the driver over whole pages, and the first of its types that this host memory and the
 * buffer have in common. */
static VkResult import_pages(ebro_dev *dev, struct vk_mem *m, void *pages, uint64_t bytes) {
    const VkExternalMemoryBufferCreateInfo external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
        .handleTypes = host_allocation};
    const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                     .pNext = &external,
                                     .size = bytes,
                                     .usage = usage,
                                     .sharingMode = VK_SHARING_MODE_EXCLUSIVE};
    VkMemoryHostPointerPropertiesEXT pointer = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    VkMemoryRequirements needs;
    VkResult r = dev->GetMemoryHostPointerProperties(dev->device, host_allocation, pages, &pointer);
    if (r == VK_SUCCESS) r = dev->api.CreateBuffer(dev->device, &info, NULL, &m->buffer);
    if (r != VK_SUCCESS) return r;
    dev->api.GetBufferMemoryRequirements(dev->device, m->buffer, &needs);
    uint32_t types = needs.memoryTypeBits & pointer.memoryTypeBits, type = 0;
    if (types == 0 || needs.size > bytes) return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    while ((types >> type & 1) == 0) type++;
    const VkImportMemoryHostPointerInfoEXT import = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        .handleType = host_allocation,
        .pHostPointer = pages};
    const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .pNext = &import,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                         .pNext = &flags,
                                         .allocationSize = bytes,
                                         .memoryTypeIndex = type};
    r = dev->api.AllocateMemory(dev->device, &memory, NULL, &m->memory);
    if (r == VK_SUCCESS) r = dev->api.BindBufferMemory(dev->device, m->buffer, m->memory, 0);
    return r;
}

/* What is no matter of this range alone is an error; the rest can be copied instead. */
static int32_t refuse(ebro_dev *dev, VkResult r, uint64_t bytes, ebro_error *err) {
    if (r == VK_ERROR_DEVICE_LOST) return vk_fail(dev, r, "importing host memory", err);
    return dev->host->fail(err, EBRO_UNSUPPORTED,
                           "vulkan: the driver does not share these %" PRIu64
                           " bytes of host memory (it answered %d)",
                           bytes, (int)r);
}

int32_t vk_mem_import(ebro_dev *dev, const void *host, uint64_t bytes, ebro_mem **out,
                      ebro_error *err) {
    *out = NULL;
    if (dev->GetMemoryHostPointerProperties == NULL) {
        return dev->host->fail(err, EBRO_UNSUPPORTED,
                               "vulkan: the device does not share the host's memory");
    }
    /* By address: ops only read what was imported, and Vulkan has no const twin. */
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), address = (uintptr_t)host;
    const uint64_t begin = address / page * page;
    if (bytes == 0 || address % 16 != 0 || bytes > UINT64_MAX - address - page) {
        return dev->host->fail(err, EBRO_UNSUPPORTED,
                               "vulkan: an import of %" PRIu64
                               " bytes at %p; it must have some, and begin at a multiple of 16",
                               bytes, host);
    }
    const uint64_t size = vk_div_up(address + bytes, page) * page - begin;
    if (size > dev->max_alloc_bytes) {
        return dev->host->fail(err, EBRO_UNSUPPORTED,
                               "vulkan: an import of %" PRIu64 " bytes, the device takes %" PRIu64
                               " at most",
                               size, dev->max_alloc_bytes);
    }
    struct vk_mem *m = vk_calloc(dev->host, 1, sizeof *m, err);
    if (m == NULL) return EBRO_NOMEM_HOST;
    VkResult r = import_pages(dev, m, (void *)(uintptr_t)begin, size);
    if (r != VK_SUCCESS) {
        vk_mem_free(dev, &m->head);
        return refuse(dev, r, bytes, err);
    }
    const VkBufferDeviceAddressInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                            .buffer = m->buffer};
    m->begin = address - begin;
    m->head = (ebro_mem){.bytes = bytes,
                         .address = dev->api.GetBufferDeviceAddress(dev->device, &info) + m->begin,
                         .host = (void *)(uintptr_t)address};
    *out = &m->head;
    return EBRO_OK;
}
