/* api.c: see api.h. */
#include "backends/cuda_hip/api.h"

#include <dlfcn.h>
#include <string.h>

/* dlsym returns data pointers; these are what the name says. */
static int load(void *library, const char *name, void *function, size_t bytes) {
    void *p = dlsym(library, name);
    memcpy(function, &p, bytes);
    return p != NULL;
}

static int32_t load_all(const ebro_host *host, struct gpu_api *api, ebro_error *err) {
#define GPU_CALL(name, cuda, hip, parameters)                                     \
    if (!load(api->library, GPU_SYMBOL(cuda, hip), &api->name, sizeof api->name)) \
        return host->fail(err, EBRO_NO_DEVICE,                                    \
                          GPU_BACKEND ": the driver is too old: " GPU_LIBRARY     \
                                      " has no function %s",                      \
                          GPU_SYMBOL(cuda, hip));
#include "backends/cuda_hip/api.def"
#undef GPU_CALL
    return EBRO_OK;
}

static int32_t check_version(const ebro_host *host, const struct gpu_api *api, ebro_error *err) {
    int version = 0;
    if (api->DriverGetVersion(&version) == GPU_OK && version >= GPU_MIN_DRIVER) return EBRO_OK;
    return host->fail(err, EBRO_NO_DEVICE,
                      GPU_BACKEND ": the driver serves " GPU_FAMILY
                                  " %d.%d, and Ebro's kernels need %d.%d: install a newer driver",
                      version / 1000, version % 1000 / 10, GPU_MIN_DRIVER / 1000,
                      GPU_MIN_DRIVER % 1000 / 10);
}

int32_t gpu_api_open(const ebro_host *host, struct gpu_api *api, ebro_error *err) {
    /* Never closed: drivers do not bear being unloaded. */
    api->library = dlopen(GPU_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (api->library == NULL) {
        return host->fail(err, EBRO_NO_DEVICE,
                          GPU_BACKEND ": there is no " GPU_MAKER " driver here (%s)", dlerror());
    }
    int32_t st = load_all(host, api, err);
    if (st == EBRO_OK) {
        int r = api->Init(0);
        if (r == GPU_NO_DEVICE) {
            st = host->fail(err, EBRO_NO_DEVICE,
                            GPU_BACKEND ": the driver finds no " GPU_MAKER " GPU");
        } else if (r != GPU_OK) {
            st = host->fail(err, EBRO_NO_DEVICE,
                            GPU_BACKEND ": the driver could not be started (it answered %d)", r);
        }
    }
    if (st == EBRO_OK) st = check_version(host, api, err);
    (void)dlclose(api->library);
    return st;
}
