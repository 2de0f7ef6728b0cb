/* driver.cc: the driver that backends/cuda_hip loads, on a processor: one device whose kernels are
 * those of shaders/cuda_hip, run by the emulation (simt.h). It takes the place of libcuda.so.1, or
 * with EBRO_HIP of libamdhip64.so, in a folder where nothing else finds it. Images are not looked
 * into.
 *
 * What a stream is given runs when somebody waits for it, not before, as it may on a GPU. New
 * memory is filled with NaN.
 *
 * Settings, for tests: EBRO_SIMT_BYTES, the device's memory (default 4 GiB); EBRO_SIMT_GENERATION,
 * "8.0": what it pretends to be (default 9.0); EBRO_SIMT_NO_IMAGE: no image fits it;
 * EBRO_SIMT_FAIL, "N": the N-th launch breaks the device. */
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#ifdef EBRO_HIP
#include "backends/cuda_hip/names_hip.h"
#else
#include "backends/cuda_hip/names_cuda.h"
#endif
#include "tests/simt/simt.h"

#define DRIVER_API extern "C" __attribute__((visibility("default"))) int

namespace {

enum {
    OK = 0,
    INVALID = 1,
    OUT_OF_MEMORY = 2,
    NO_BINARY = 209,
    NOT_FOUND = 500,
    NOT_READY = 600,
    LAUNCH_FAILED = 719,
    CAPTURE_INVALID = 901
};

typedef std::function<int()> work;

struct stream {
    std::deque<work> queue;
    bool captures = false;
    std::vector<work> captured;
};

struct graph {
    std::vector<work> nodes;
};

struct event {
    bool recorded = false, passed = true;
    stream *on = nullptr;
};

std::recursive_mutex lock;
std::map<uint64_t, size_t> allocations;
std::vector<stream *> streams;
size_t used_bytes;
unsigned n_contexts; /* holders of the one context */
int broken;          /* its error, which stays until nobody holds it */
unsigned n_launches; /* since EBRO_SIMT_FAIL was set */

typedef std::lock_guard<std::recursive_mutex> guard;

size_t total_bytes() {
    const char *text = getenv("EBRO_SIMT_BYTES");
    return text != nullptr ? strtoull(text, nullptr, 10) : (size_t)4 << 30;
}

int generation(bool minor) {
    const char *text = getenv("EBRO_SIMT_GENERATION");
    int a = 9, b = 0;
    if (text != nullptr && sscanf(text, "%d.%d", &a, &b) != 2) a = 9;
    return minor ? b : a;
}

int drain(stream *s) {
    while (broken == OK && !s->queue.empty()) {
        work w = std::move(s->queue.front());
        s->queue.pop_front();
        int r = w();
        if (r != OK) broken = r;
    }
    if (broken != OK) s->queue.clear();
    return broken;
}

int give(void *handle, work w) {
    guard g(lock);
    stream *s = (stream *)handle;
    if (broken != OK) return broken;
    if (s->captures)
        s->captured.push_back(std::move(w));
    else
        s->queue.push_back(std::move(w));
    return OK;
}

int run_kernel(const simt::kernel *k, const std::string &args, unsigned blocks, unsigned threads,
               unsigned shared_bytes) {
    const char *fail = getenv("EBRO_SIMT_FAIL");
    char text[256] = "";
    n_launches = fail != nullptr ? n_launches + 1 : 0;
    if (fail != nullptr && n_launches == strtoul(fail, nullptr, 10)) return LAUNCH_FAILED;
    if (simt::launch(k, args.data(), blocks, threads, shared_bytes, text, sizeof text)) return OK;
    fprintf(stderr, "simt: %s\n", text);
    return LAUNCH_FAILED;
}

int take(uint64_t *address, size_t bytes, bool of_device) {
    guard g(lock);
    if (broken != OK) return broken;
    if (of_device && (used_bytes > total_bytes() || bytes > total_bytes() - used_bytes))
        return OUT_OF_MEMORY;
    /* No more than was asked for, so that a sanitizer sees the end. */
    void *p = nullptr;
    if (posix_memalign(&p, 256, bytes) != 0) return OUT_OF_MEMORY;
    memset(p, 0xff, bytes);
    allocations[(uint64_t)p] = of_device ? bytes : 0;
    if (of_device) used_bytes += bytes;
    *address = (uint64_t)p;
    return OK;
}

int give_back(uint64_t address) {
    guard g(lock);
    auto found = allocations.find(address);
    if (found == allocations.end()) return INVALID;
    for (stream *s : streams) (void)drain(s); /* as the drivers do */
    used_bytes -= found->second;
    allocations.erase(found);
    free((void *)address);
    return OK;
}

}  // namespace

#define cuda_or_hip(cuda, hip) cuda
#ifdef EBRO_HIP
#undef cuda_or_hip
#define cuda_or_hip(cuda, hip) hip
#endif
/* One definition under the driver's own name. */
#define ENTRY(cuda, hip) DRIVER_API cuda_or_hip(cuda, hip)

/* ---- devices ---------------------------------------------------------------------------- */

ENTRY(cuInit, hipInit)(unsigned) {
    return OK;
}

ENTRY(cuDriverGetVersion, hipDriverGetVersion)(int *version) {
    const char *text = getenv("EBRO_SIMT_DRIVER");
    *version = text != nullptr ? atoi(text) : GPU_MIN_DRIVER;
    return OK;
}

ENTRY(cuDeviceGetCount, hipGetDeviceCount)(int *n) {
    *n = 1;
    return OK;
}

ENTRY(cuDeviceGet, hipDeviceGet)(int *device, int index) {
    *device = index;
    return index == 0 ? OK : INVALID;
}

ENTRY(cuDeviceGetName, hipDeviceGetName)(char *text, int bytes, int) {
    snprintf(text, (size_t)bytes, "emulated GPU, waves of %d", EB_WAVE);
    return OK;
}

ENTRY(cuDeviceGetUuid_v2, hipDeviceGetUuid)(unsigned char uuid[16], int) {
    memset(uuid, EB_WAVE, 16);
    return OK;
}

ENTRY(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId)(char *text, int bytes, int) {
    snprintf(text, (size_t)bytes, "0000:00:00.0");
    return OK;
}

ENTRY(cuDeviceTotalMem_v2, hipDeviceTotalMem)(size_t *bytes, int) {
    *bytes = total_bytes();
    return OK;
}

ENTRY(cuDeviceGetAttribute, hipDeviceGetAttribute)(int *value, int which, int) {
    switch (which) {
        case GPU_ATTR_MAX_THREADS:
            *value = 1024;
            return OK;
        case GPU_ATTR_SHARED_BYTES:
            *value = 48 << 10;
            return OK;
        case GPU_ATTR_SHARED_BYTES_MOST:
            *value = 227 << 10;
            return OK;
        case GPU_ATTR_WAVE:
            *value = EB_WAVE;
            return OK;
        case GPU_ATTR_N_PROCESSORS:
            *value = 2;
            return OK;
        case GPU_ATTR_MAJOR:
            *value = generation(false);
            return OK;
        case GPU_ATTR_MINOR:
            *value = generation(true);
            return OK;
        default:
            *value = 0;
            return OK;
    }
}

ENTRY(cuDevicePrimaryCtxRetain, hipDevicePrimaryCtxRetain)(void **context, int) {
    guard g(lock);
    n_contexts++;
    *context = &allocations;
    return OK;
}

ENTRY(cuDevicePrimaryCtxRelease_v2, hipDevicePrimaryCtxRelease)(int) {
    guard g(lock);
    if (n_contexts == 0) return INVALID;
    if (--n_contexts == 0) broken = OK;
    return OK;
}

ENTRY(cuCtxSetCurrent, hipCtxSetCurrent)(void *) {
    return OK;
}

/* ---- memory ----------------------------------------------------------------------------- */

ENTRY(cuMemGetInfo_v2, hipMemGetInfo)(size_t *left, size_t *total) {
    guard g(lock);
    *total = total_bytes();
    *left = *total - used_bytes;
    return OK;
}

ENTRY(cuMemAlloc_v2, hipMalloc)(uint64_t *address, size_t bytes) {
    return take(address, bytes, true);
}

ENTRY(cuMemFree_v2, hipFree)(uint64_t address) {
    return give_back(address);
}

ENTRY(cuMemHostAlloc, hipHostMalloc)(void **host, size_t bytes, unsigned) {
    uint64_t address = 0;
    int r = take(&address, bytes, false);
    *host = (void *)address;
    return r;
}

ENTRY(cuMemFreeHost, hipHostFree)(void *host) {
    return give_back((uint64_t)host);
}

ENTRY(cuMemHostGetDevicePointer_v2, hipHostGetDevicePointer)
(uint64_t *address, void *host, unsigned) {
    *address = (uint64_t)host;
    return OK;
}

static int copy(void *to, const void *from, size_t bytes, void *on) {
    return give(on, [=] {
        memcpy(to, from, bytes);
        return OK;
    });
}

ENTRY(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync)
(uint64_t to, const void *from, size_t bytes, void *on) {
    return copy((void *)to, from, bytes, on);
}

ENTRY(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync)(void *to, uint64_t from, size_t bytes, void *on) {
    return copy(to, (const void *)from, bytes, on);
}

ENTRY(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync)
(uint64_t to, uint64_t from, size_t bytes, void *on) {
    return copy((void *)to, (const void *)from, bytes, on);
}

ENTRY(cuMemsetD8Async, hipMemsetD8Async)(uint64_t to, unsigned char value, size_t bytes, void *on) {
    return give(on, [=] {
        memset((void *)to, value, bytes);
        return OK;
    });
}

/* ---- streams and events ----------------------------------------------------------------- */

ENTRY(cuStreamCreate, hipStreamCreateWithFlags)(void **made, unsigned) {
    guard g(lock);
    if (broken != OK) return broken;
    streams.push_back(new stream);
    *made = streams.back();
    return OK;
}

ENTRY(cuStreamSynchronize, hipStreamSynchronize)(void *on) {
    guard g(lock);
    return drain((stream *)on);
}

ENTRY(cuStreamDestroy_v2, hipStreamDestroy)(void *on) {
    guard g(lock);
    (void)drain((stream *)on);
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == on) streams.erase(streams.begin() + (long)i--);
    delete (stream *)on;
    return OK;
}

ENTRY(cuEventCreate, hipEventCreateWithFlags)(void **made, unsigned) {
    *made = new event;
    return OK;
}

ENTRY(cuEventDestroy_v2, hipEventDestroy)(void *e) {
    guard g(lock);
    if (((event *)e)->on != nullptr) (void)drain(((event *)e)->on);
    delete (event *)e;
    return OK;
}

ENTRY(cuEventRecord, hipEventRecord)(void *made, void *on) {
    event *e = (event *)made;
    guard g(lock);
    e->on = (stream *)on;
    e->passed = false;
    return give(on, [=] {
        e->passed = true;
        e->on = nullptr;
        return OK;
    });
}

ENTRY(cuEventSynchronize, hipEventSynchronize)(void *made) {
    guard g(lock);
    event *e = (event *)made;
    return e->passed || e->on == nullptr ? broken : drain(e->on);
}

/* The first question finds the work begun, the second one done: never before somebody asks. */
ENTRY(cuEventQuery, hipEventQuery)(void *made) {
    guard g(lock);
    event *e = (event *)made;
    if (e->passed || e->on == nullptr) return broken;
    int r = drain(e->on);
    return r != OK ? r : NOT_READY;
}

/* ---- graphs ----------------------------------------------------------------------------- */

ENTRY(cuStreamBeginCapture_v2, hipStreamBeginCapture)(void *on, int) {
    guard g(lock);
    stream *s = (stream *)on;
    if (s->captures) return CAPTURE_INVALID;
    s->captures = true;
    s->captured.clear();
    return OK;
}

ENTRY(cuStreamEndCapture, hipStreamEndCapture)(void *on, void **made) {
    guard g(lock);
    stream *s = (stream *)on;
    *made = nullptr;
    if (!s->captures) return CAPTURE_INVALID;
    s->captures = false;
    *made = new graph{std::move(s->captured)};
    s->captured.clear();
    return OK;
}

ENTRY(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)
(void **made, void *from, unsigned long long) {
    *made = new graph(*(graph *)from);
    return OK;
}

ENTRY(cuGraphLaunch, hipGraphLaunch)(void *made, void *on) {
    for (const work &w : ((graph *)made)->nodes) {
        int r = give(on, w);
        if (r != OK) return r;
    }
    return OK;
}

ENTRY(cuGraphExecDestroy, hipGraphExecDestroy)(void *made) {
    delete (graph *)made;
    return OK;
}

ENTRY(cuGraphDestroy, hipGraphDestroy)(void *made) {
    delete (graph *)made;
    return OK;
}

/* ---- kernels ---------------------------------------------------------------------------- */

ENTRY(cuModuleLoadData, hipModuleLoadData)(void **made, const void *) {
    *made = &allocations;
    return getenv("EBRO_SIMT_NO_IMAGE") != nullptr ? NO_BINARY : broken;
}

ENTRY(cuModuleUnload, hipModuleUnload)(void *) {
    return OK;
}

ENTRY(cuModuleGetFunction, hipModuleGetFunction)(void **made, void *, const char *name) {
    const simt::kernel *k = simt::find_kernel(name);
    *made = (void *)k;
    return k != nullptr ? OK : NOT_FOUND;
}

ENTRY(cuFuncSetAttribute, hipFuncSetAttribute)(void *, int, int) {
    return OK;
}

ENTRY(cuLaunchKernel, hipModuleLaunchKernel)
(void *made, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
 unsigned shared_bytes, void *on, void **parameters, void **) {
    const simt::kernel *k = (const simt::kernel *)made;
    if (gx == 0 || gy != 1 || gz != 1 || by != 1 || bz != 1) return INVALID;
    std::string args((const char *)parameters[0], k->args_bytes);
    return give(on, [=] { return run_kernel(k, args, gx, bx, shared_bytes); });
}
