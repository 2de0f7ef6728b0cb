/* memory.c: allocations. What the host reads or writes is its own memory, mapped into the device.
 */
#include <inttypes.h>

#include "backends/cuda_hip/cuda_hip.h"

static int32_t no_memory(ebro_dev *dev, uint64_t bytes, ebro_error *err) {
    size_t left = 0, total = 0;
    (void)dev->api.MemGetInfo(&left, &total);
    return dev->host->fail(err, EBRO_NOMEM_DEVICE,
                           GPU_BACKEND ": %s has no %" PRIu64 " bytes: %zu of %zu are free",
                           dev->name, bytes, left, total);
}

static int32_t alloc_host(ebro_dev *dev, ebro_mem *m, uint64_t bytes, ebro_error *err) {
    int r = dev->api.MemHostAlloc(&m->host, bytes, GPU_HOST_PORTABLE | GPU_HOST_MAPPED);
    if (r == GPU_OUT_OF_MEMORY) {
        return dev->host->fail(err, EBRO_NOMEM_HOST,
                               GPU_BACKEND ": the system has no %" PRIu64
                                           " bytes of memory that the device can reach",
                               bytes);
    }
    if (r != GPU_OK) return gpu_fail(dev, r, "allocating host memory", err);
    r = dev->api.MemHostGetDevicePointer(&m->address, m->host, 0);
    if (r == GPU_OK) return EBRO_OK;
    (void)dev->api.MemFreeHost(m->host);
    return gpu_fail(dev, r, "mapping host memory", err);
}

int32_t gpu_mem_alloc(ebro_dev *dev, uint64_t bytes, uint32_t kind, ebro_mem **out,
                      ebro_error *err) {
    *out = NULL;
    int32_t st = gpu_enter(dev, err);
    if (st != EBRO_OK) return st;
    ebro_mem *m = gpu_calloc(dev->host, 1, sizeof *m, err);
    if (m == NULL) return EBRO_NOMEM_HOST;
    m->bytes = bytes;
    /* An address also for nothing. */
    uint64_t least = bytes > 0 ? bytes : 1;
    if (kind == EBRO_MEM_DEVICE) {
        int r = dev->api.MemAlloc(&m->address, least);
        if (r == GPU_OUT_OF_MEMORY)
            st = no_memory(dev, bytes, err);
        else if (r != GPU_OK)
            st = gpu_fail(dev, r, "allocating device memory", err);
    } else {
        st = alloc_host(dev, m, least, err);
    }
    if (st != EBRO_OK) {
        gpu_free(dev->host, m);
        return st;
    }
    *out = m;
    return EBRO_OK;
}

void gpu_mem_free(ebro_dev *dev, ebro_mem *mem) {
    if (gpu_enter(dev, NULL) == EBRO_OK) {
        if (mem->host != NULL)
            (void)dev->api.MemFreeHost(mem->host);
        else
            (void)dev->api.MemFree(mem->address);
    }
    gpu_free(dev->host, mem);
}
