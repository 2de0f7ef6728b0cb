/* device.c: opens a device and answers what it can do; the backend's table. */
#include "backends/cuda_hip/cuda_hip.h"

/* ---- errors and host memory ------------------------------------------------------------- */

int32_t gpu_fail(ebro_dev *dev, int answer, const char *what, ebro_error *err) {
    if (answer == GPU_ECC || (answer >= GPU_LOST_FIRST && answer <= GPU_LOST_LAST)) {
        return dev->host->fail(err, EBRO_DEVICE_LOST,
                               GPU_BACKEND ": %s was lost (the driver answered %d); while %s",
                               dev->name, answer, what);
    }
    if (answer == GPU_OUT_OF_MEMORY) {
        return dev->host->fail(err, EBRO_NOMEM_DEVICE,
                               GPU_BACKEND ": the driver has no memory left on %s; while %s",
                               dev->name, what);
    }
    return dev->host->fail(err, EBRO_INTERNAL, GPU_BACKEND ": the driver answered %d; while %s",
                           answer, what);
}

void *gpu_calloc(const ebro_host *host, size_t n, size_t size, ebro_error *err) {
    void *p = size == 0 || n <= SIZE_MAX / size ? host->realloc(host->user, NULL, n * size) : NULL;
    if (p == NULL) {
        (void)host->fail(err, EBRO_NOMEM_HOST, GPU_BACKEND ": no %zu times %zu bytes", n, size);
    } else {
        memset(p, 0, n * size);
    }
    return p;
}

void gpu_free(const ebro_host *host, void *p) {
    if (p != NULL) (void)host->realloc(host->user, p, 0);
}

int32_t gpu_enter(ebro_dev *dev, ebro_error *err) {
    int r = dev->api.CtxSetCurrent(dev->context);
    return r == GPU_OK ? EBRO_OK : gpu_fail(dev, r, "entering the device's context", err);
}

/* ---- what the device has ---------------------------------------------------------------- */

static int attribute(const ebro_dev *dev, int which) {
    int value = 0;
    return dev->api.DeviceGetAttribute(&value, which, dev->device) == GPU_OK ? value : 0;
}

/* What generations have; kernels.def says what each variant needs of it. Matrix units are those of
 * mma.cuh, which work in waves of 32. */
static uint64_t bits_of(const ebro_dev *dev, uint32_t wave) {
    uint64_t bits = EBRO_CAP_GRAPHS | EBRO_CAP_SUBGROUP;
    if (dev->major * 10 + dev->minor < 80) return bits;
    return bits | EBRO_CAP_BF16 | EBRO_CAP_F16 | (wave == 32 ? EBRO_CAP_MATRIX : 0);
}

static void fill_caps(ebro_dev *dev, uint64_t caps_mask) {
    size_t total = 0;
    uint32_t wave = (uint32_t)attribute(dev, GPU_ATTR_WAVE);
    (void)dev->api.DeviceTotalMem(&total, dev->device);
    dev->major = attribute(dev, GPU_ATTR_MAJOR);
    dev->minor = attribute(dev, GPU_ATTR_MINOR);
    dev->n_processors = (uint32_t)attribute(dev, GPU_ATTR_N_PROCESSORS);
    dev->shared_bytes_most = (uint32_t)attribute(dev, GPU_ATTR_SHARED_BYTES_MOST);
    dev->caps = (ebro_caps){.size = sizeof dev->caps,
                            .bits = bits_of(dev, wave) & ~caps_mask,
                            .wave_min = wave,
                            .wave_max = wave,
                            .shared_bytes = (uint64_t)attribute(dev, GPU_ATTR_SHARED_BYTES),
                            .max_binding_bytes = total,
                            .max_alloc_bytes = total,
                            .mem_alignment = 256,
                            .weight_alignment = 16,
                            .total_bytes = total,
                            .default_cache_dtype = EBRO_BF16,
                            .n_threads = 1};
}

/* ---- opening ---------------------------------------------------------------------------- */

static void device_close(ebro_dev *dev) {
    if (dev->context != NULL) {
        if (gpu_enter(dev, NULL) == EBRO_OK) gpu_kernels_close(dev);
        (void)dev->api.CtxSetCurrent(NULL);
        (void)dev->api.PrimaryCtxRelease(dev->device);
    }
    gpu_free(dev->host, dev);
}

static int32_t set_up(ebro_dev *dev, uint32_t index, const ebro_device_options *o,
                      ebro_error *err) {
    int n = 0;
    int32_t st = gpu_api_open(dev->host, &dev->api, err);
    if (st != EBRO_OK) return st;
    if (dev->api.DeviceGetCount(&n) != GPU_OK || index >= (uint32_t)n ||
        dev->api.DeviceGet(&dev->device, (int)index) != GPU_OK) {
        return dev->host->fail(err, EBRO_NO_DEVICE, GPU_BACKEND ": no device %u, there are %d",
                               index, n);
    }
    (void)dev->api.DeviceGetName(dev->name, sizeof dev->name, dev->device);
    dev->name[sizeof dev->name - 1] = '\0';
    int r = dev->api.PrimaryCtxRetain(&dev->context, dev->device);
    if (r != GPU_OK) {
        dev->context = NULL;
        return gpu_fail(dev, r, "opening the device", err);
    }
    fill_caps(dev, o != NULL ? o->caps_mask : 0);
    st = gpu_enter(dev, err);
    return st == EBRO_OK ? gpu_kernels_open(dev, o != NULL ? o->avoid : NULL, err) : st;
}

static int32_t device_open(const ebro_host *host, uint32_t index,
                           const ebro_device_options *options, ebro_dev **out, ebro_error *err) {
    *out = NULL;
    ebro_dev *dev = gpu_calloc(host, 1, sizeof *dev, err);
    if (dev == NULL) return EBRO_NOMEM_HOST;
    dev->host = host;
    int32_t st = set_up(dev, index, options, err);
    if (st != EBRO_OK) {
        device_close(dev);
        return st;
    }
    *out = dev;
    return EBRO_OK;
}

static void device_caps(ebro_dev *dev, ebro_caps *out) {
    size_t left = 0, total = 0;
    *out = dev->caps;
    if (gpu_enter(dev, NULL) == EBRO_OK) (void)dev->api.MemGetInfo(&left, &total);
    out->free_bytes = left;
}

/* ---- the table -------------------------------------------------------------------------- */

static uint64_t scratch_bytes(ebro_dev *dev, ebro_op op, const void *args) {
    switch (op) {
#define GPU_CASE(N, name) \
    case EBRO_OP_##N:     \
        return gpu_scratch_##name(dev, args);
        GPU_SCRATCH(GPU_CASE)
#undef GPU_CASE
        default:
            return 0;
    }
}

static const ebro_backend table = {.size = sizeof table,
                                   .abi = EBRO_BACKEND_ABI,
                                   .name = GPU_BACKEND,
                                   .probe = gpu_probe,
                                   .device_open = device_open,
                                   .device_close = device_close,
                                   .device_caps = device_caps,
                                   .mem_alloc = gpu_mem_alloc,
                                   .mem_free = gpu_mem_free,
                                   .stream_open = gpu_stream_open,
                                   .stream_close = gpu_stream_close,
                                   .copy = gpu_copy,
                                   .fill = gpu_fill,
                                   .submit = gpu_submit,
                                   .wait = gpu_wait,
                                   .graph_begin = gpu_graph_begin,
                                   .graph_end = gpu_graph_end,
                                   .graph_launch = gpu_graph_launch,
                                   .graph_free = gpu_graph_free,
                                   .scratch_bytes = scratch_bytes,
#define GPU_ENTRY(N, name) .name = gpu_##name,
                                   EBRO_OPS(GPU_ENTRY)
#undef GPU_ENTRY
                                       .op_variant = gpu_op_variant};

EBRO_API int32_t ebro_backend_entry(uint32_t abi, const ebro_host *host, const ebro_backend **out);

int32_t ebro_backend_entry(uint32_t abi, const ebro_host *host, const ebro_backend **out) {
    (void)host;
    if (abi != EBRO_BACKEND_ABI) return EBRO_UNSUPPORTED;
    *out = &table;
    return EBRO_OK;
}
