/* cache.c: see cache.h. The file: a header of 40 bytes, little-endian, then what the driver gave.
 *
 *   0   8 bytes  "EBROVKPC"
 *   8   u32      1, the version of this header
 *   12  u32      the driver's version (VkPhysicalDeviceProperties.driverVersion)
 *   16  u64      bytes that follow the header
 *   24  u64      FNV-1a, 64 bits, of those bytes
 *   32  u64      0
 *
 * Drivers check their own part, but not all of them well: what is damaged must not reach them. */
#include "backends/vulkan/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_BYTES = 40, HEADER_VERSION = 1, MAX_PATH_BYTES = 4096 };

static const uint64_t most_bytes = UINT64_C(256) << 20;

static uint64_t fnv1a(const uint8_t *p, size_t n) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

static void put(uint8_t *p, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) p[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get(const uint8_t *p, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)p[i] << 8 * i;
    return value;
}

/* The device's file; the name says device and compiler, so that several may lie side by side. */
static bool path_of(const ebro_dev *dev, char *out, size_t capacity) {
    char key[2 * VK_UUID_SIZE + 1];
    if (dev->host->cache_dir == NULL) return false;
    for (unsigned i = 0; i < VK_UUID_SIZE; i++)
        snprintf(&key[2 * i], 3, "%02x", dev->pipeline_cache_uuid[i]);
    int n = snprintf(out, capacity, "%s/vulkan-%08x-%08x-%s.cache", dev->host->cache_dir,
                     dev->vendor_id, dev->device_id, key);
    return n > 0 && (size_t)n < capacity;
}

static void write_header(const ebro_dev *dev, uint8_t header[HEADER_BYTES], const uint8_t *data,
                         size_t bytes) {
    memset(header, 0, HEADER_BYTES);
    memcpy(header, "EBROVKPC", 8);
    put(header + 8, HEADER_VERSION, 4);
    put(header + 12, dev->driver_version, 4);
    put(header + 16, bytes, 8);
    put(header + 24, fnv1a(data, bytes), 8);
}

/* A pipe of that name would wait for a writer. */
static FILE *open_regular(const char *path) {
    struct stat st;
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    FILE *f = file >= 0 && fstat(file, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(file, "rb") : NULL;
    if (f == NULL && file >= 0) close(file);
    return f;
}

/* What the file holds, in memory of the host's; NULL: nothing that can be used. */
static uint8_t *read_file(const ebro_dev *dev, size_t *bytes) {
    char path[MAX_PATH_BYTES];
    uint8_t header[HEADER_BYTES], want[HEADER_BYTES], *data = NULL;
    FILE *f = path_of(dev, path, sizeof path) ? open_regular(path) : NULL;
    if (f == NULL) return NULL;
    bool good = fread(header, 1, sizeof header, f) == sizeof header;
    uint64_t n = good ? get(header + 16, 8) : 0;
    if (good && n > 0 && n <= most_bytes) data = vk_calloc(dev->host, 1, (size_t)n, NULL);
    good = data != NULL && fread(data, 1, (size_t)n, f) == n;
    fclose(f);
    if (good) write_header(dev, want, data, (size_t)n);
    if (good && memcmp(header, want, sizeof header) == 0) {
        *bytes = (size_t)n;
        return data;
    }
    vk_free(dev->host, data);
    dev->host->log(dev->host->user, EBRO_LOG_INFO,
                   "vulkan: %s is damaged or of another driver: kernels are compiled anew", path);
    return NULL;
}

int32_t vk_cache_open(ebro_dev *dev, ebro_error *err) {
    size_t bytes = 0;
    uint8_t *data = read_file(dev, &bytes);
    VkPipelineCacheCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                      .initialDataSize = bytes,
                                      .pInitialData = data};
    VkResult r = dev->api.CreatePipelineCache(dev->device, &info, NULL, &dev->cache);
    if (r != VK_SUCCESS && data != NULL) {
        info.initialDataSize = bytes = 0;
        info.pInitialData = NULL;
        r = dev->api.CreatePipelineCache(dev->device, &info, NULL, &dev->cache);
    }
    dev->cache_was_empty = bytes == 0;
    vk_free(dev->host, data);
    return r == VK_SUCCESS ? EBRO_OK : vk_fail(dev, r, "creating the pipeline cache", err);
}

/* ---- saving ----------------------------------------------------------------------------- */

/* By position: that reaches files alone. */
static bool write_at(int file, uint64_t at, const uint8_t *p, size_t n) {
    while (n > 0) {
        ssize_t done = pwrite(file, p, n, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        p += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return true;
}

static bool write_file(const ebro_dev *dev, const char *path, const uint8_t header[HEADER_BYTES],
                       const uint8_t *data, size_t bytes) {
    char temporary[MAX_PATH_BYTES + 64];
    /* another process, or another device of this one, may write too */
    snprintf(temporary, sizeof temporary, "%s.%ld-%p.new", path, (long)getpid(), (const void *)dev);
    int file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return false;
    bool good =
        write_at(file, 0, header, HEADER_BYTES) && write_at(file, HEADER_BYTES, data, bytes);
    good = close(file) == 0 && good;
    good = good && rename(temporary, path) == 0;
    if (!good) remove(temporary);
    return good;
}

static void save(ebro_dev *dev) {
    char path[MAX_PATH_BYTES];
    uint8_t header[HEADER_BYTES], *data = NULL;
    size_t bytes = 0;
    if (dev->n_compiled == 0 || !path_of(dev, path, sizeof path)) return;
    VkResult r = dev->api.GetPipelineCacheData(dev->device, dev->cache, &bytes, NULL);
    if (r == VK_SUCCESS && bytes > 0) data = vk_calloc(dev->host, 1, bytes, NULL);
    if (data != NULL) r = dev->api.GetPipelineCacheData(dev->device, dev->cache, &bytes, data);
    if (data != NULL && r == VK_SUCCESS && bytes > 0 && bytes <= most_bytes) {
        write_header(dev, header, data, bytes);
        if (!write_file(dev, path, header, data, bytes)) {
            dev->host->log(dev->host->user, EBRO_LOG_WARN,
                           "vulkan: compiled kernels could not be kept in %s", path);
        }
    }
    vk_free(dev->host, data);
}

void vk_cache_close(ebro_dev *dev) {
    if (dev->cache == VK_NULL_HANDLE) return;
    save(dev);
    dev->api.DestroyPipelineCache(dev->device, dev->cache, NULL);
    dev->cache = VK_NULL_HANDLE;
}
