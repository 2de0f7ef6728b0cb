/* probe.c: which devices there are. No context is made: that takes memory and time. */
#include <stdio.h>

#include "backends/cuda_hip/cuda_hip.h"

/* As in "GPU-1c4c2c9b-...", which nvidia-smi prints. */
static void write_uuid(const unsigned char u[16], char *text, size_t bytes) {
    snprintf(text, bytes,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
             u[15]);
}

static void describe(const struct gpu_api *api, int index, ebro_probe_result *out) {
    char name[96] = "", pci[24] = "";
    unsigned char uuid[16];
    size_t total = 0;
    int device = 0, major = 0, minor = 0;
    snprintf(out->name, sizeof out->name, GPU_FAMILY "%d", index);
    if (api->DeviceGet(&device, index) != GPU_OK) return;
    (void)api->DeviceGetName(name, sizeof name, device);
    (void)api->DeviceGetPciBusId(pci, sizeof pci, device);
    (void)api->DeviceGetAttribute(&major, GPU_ATTR_MAJOR, device);
    (void)api->DeviceGetAttribute(&minor, GPU_ATTR_MINOR, device);
    name[sizeof name - 1] = '\0';
    /* So does the one of the tests call itself. */
    if (strncmp(name, "emulated", 8) == 0) out->flags |= EBRO_PROBE_EMULATED;
    pci[sizeof pci - 1] = '\0';
    snprintf(out->description, sizeof out->description, "%.80s (%d.%d, %s)", name, major, minor,
             pci);
    if (api->DeviceGetUuid(uuid, device) == GPU_OK) write_uuid(uuid, out->id, sizeof out->id);
    if (api->DeviceTotalMem(&total, device) == GPU_OK) out->total_bytes = out->free_bytes = total;
}

int32_t gpu_probe(const ebro_host *host, ebro_probe_result *out, uint32_t capacity, uint32_t *count,
                  ebro_error *err) {
    struct gpu_api api;
    int n = 0;
    *count = 0;
    int32_t st = gpu_api_open(host, &api, err);
    /* No driver is no fault. */
    if (st == EBRO_NO_DEVICE) return EBRO_OK;
    if (st != EBRO_OK) return st;
    if (api.DeviceGetCount(&n) != GPU_OK || n <= 0) {
        (void)host->fail(err, EBRO_NO_DEVICE,
                         GPU_BACKEND ": the driver finds no " GPU_MAKER " GPU");
        return EBRO_OK;
    }
    for (int i = 0; i < n && *count < capacity; i++) {
        memset(&out[*count], 0, sizeof out[*count]);
        describe(&api, i, &out[(*count)++]);
    }
    return EBRO_OK;
}
