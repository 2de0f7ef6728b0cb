/* statistics.c: see statistics.h. */
#include "backends/vulkan/statistics.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "backends/vulkan/kernels.h"
#include "backends/vulkan/probe.h"

enum { MAX_EXECUTABLES = 4, MAX_STATISTICS = 64, MAX_TEXTS = 16 };

struct functions {
    PFN_vkGetPipelineExecutablePropertiesKHR executables;
    PFN_vkGetPipelineExecutableStatisticsKHR statistics;
    PFN_vkGetPipelineExecutableInternalRepresentationsKHR texts;
};

/* A line that is cut, never overrun. */
struct line {
    char v[1536];
    size_t n;
};

static void put(struct line *l, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(l->v + l->n, sizeof l->v - l->n, fmt, args);
    va_end(args);
    if (n > 0) l->n += (size_t)n;
    if (l->n >= sizeof l->v) l->n = sizeof l->v - 1;
}

bool vk_statistics_wanted(const ebro_dev *dev) {
    const ebro_host *host = dev->host;
    if (host->size < offsetof(ebro_host, log_level) + sizeof host->log_level ||
        host->log_level < EBRO_LOG_TRACE)
        return false;
    if (!vk_has_extension(&dev->api, dev->physical,
                          VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME))
        return false;
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR f = vk_statistics_feature(NULL);
    VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = &f};
    f.pipelineExecutableInfo = VK_FALSE;
    dev->api.GetPhysicalDeviceFeatures2(dev->physical, &all);
    return f.pipelineExecutableInfo;
}

VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR vk_statistics_feature(void *next) {
    return (VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
        .pNext = next,
        .pipelineExecutableInfo = VK_TRUE};
}

VkPipelineCreateFlags vk_statistics_flags(const ebro_dev *dev) {
    return dev->with_statistics ? VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR |
                                      VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR
                                : 0u;
}

static bool find_functions(const ebro_dev *dev, struct functions *f) {
    PFN_vkGetDeviceProcAddr get = dev->api.GetDeviceProcAddr;
    f->executables = (PFN_vkGetPipelineExecutablePropertiesKHR)get(
        dev->device, "vkGetPipelineExecutablePropertiesKHR");
    f->statistics = (PFN_vkGetPipelineExecutableStatisticsKHR)get(
        dev->device, "vkGetPipelineExecutableStatisticsKHR");
    f->texts = (PFN_vkGetPipelineExecutableInternalRepresentationsKHR)get(
        dev->device, "vkGetPipelineExecutableInternalRepresentationsKHR");
    return f->executables != NULL && f->statistics != NULL && f->texts != NULL;
}

static void put_statistic(struct line *l, const VkPipelineExecutableStatisticKHR *s) {
    put(l, " %.80s=", s->name);
    switch (s->format) {
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR:
            put(l, "%d;", s->value.b32 != 0);
            break;
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR:
            put(l, "%" PRId64 ";", s->value.i64);
            break;
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR:
            put(l, "%" PRIu64 ";", s->value.u64);
            break;
        default:
            put(l, "%g;", s->value.f64);
    }
}

static void put_statistics(ebro_dev *dev, const struct functions *f,
                           const VkPipelineExecutableInfoKHR *which, struct line *l) {
    VkPipelineExecutableStatisticKHR all[MAX_STATISTICS];
    uint32_t n = MAX_STATISTICS;
    for (uint32_t i = 0; i < n; i++) {
        all[i] = (VkPipelineExecutableStatisticKHR){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR};
    }
    VkResult r = f->statistics(dev->device, which, &n, all);
    if (r != VK_SUCCESS && r != VK_INCOMPLETE) return;
    for (uint32_t i = 0; i < n; i++) put_statistic(l, &all[i]);
}

/* ---- matrix instructions ---------------------------------------------------------------- */

/* Instructions of AMD's and NVIDIA's matrix units, in the machine code and in the compiler's own
 * form of it. */
static uint64_t count_in(const char *text) {
    static const char *const words[] = {"v_wmma_", "v_swmmac_", "v_mfma_", "hmma", "HMMA"};
    uint64_t n = 0;
    for (size_t w = 0; w < sizeof words / sizeof words[0]; w++) {
        for (const char *p = text; (p = strstr(p, words[w])) != NULL; p += strlen(words[w])) n++;
    }
    return n;
}

/* Several texts show one program at several stages: the last one that is a text counts. */
static bool count_matrix(ebro_dev *dev, const struct functions *f,
                         const VkPipelineExecutableInfoKHR *which, uint64_t *count) {
    VkPipelineExecutableInternalRepresentationKHR all[MAX_TEXTS];
    uint32_t n = MAX_TEXTS;
    bool counted = false;
    for (uint32_t i = 0; i < n; i++) {
        all[i] = (VkPipelineExecutableInternalRepresentationKHR){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR};
    }
    VkResult r = f->texts(dev->device, which, &n, all);
    if (r != VK_SUCCESS && r != VK_INCOMPLETE) return false;
    for (uint32_t i = 0; i < n; i++) {
        all[i].pData = vk_calloc(dev->host, 1, all[i].dataSize + 1, NULL);
        if (all[i].pData == NULL) all[i].dataSize = 0;
    }
    r = f->texts(dev->device, which, &n, all);
    for (uint32_t i = 0; i < n; i++) {
        if ((r == VK_SUCCESS || r == VK_INCOMPLETE) && all[i].isText && all[i].pData != NULL) {
            *count = count_in(all[i].pData);
            counted = true;
        }
        vk_free(dev->host, all[i].pData);
    }
    return counted;
}

/* ---- the line --------------------------------------------------------------------------- */

static void put_head(const ebro_dev *dev, const struct vk_launch *l, struct line *line) {
    put(line, "vulkan: pipeline %s %s threads=%u specs=", vk_kernel_name(l->kernel),
        dev->variants[l->kernel]->name, l->threads);
    for (uint32_t i = 0; i < l->n_specs; i++) put(line, i > 0 ? ",%u" : "%u", l->specs[i]);
    put(line, l->n_specs > 0 ? ":" : "-:");
}

void vk_statistics_log(ebro_dev *dev, const struct vk_launch *l, VkPipeline pipeline) {
    struct functions f;
    struct line line = {.n = 0};
    VkPipelineExecutablePropertiesKHR parts[MAX_EXECUTABLES];
    const VkPipelineInfoKHR whole = {.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR,
                                     .pipeline = pipeline};
    uint32_t n = MAX_EXECUTABLES;
    if (!dev->with_statistics || !find_functions(dev, &f)) return;
    for (uint32_t i = 0; i < n; i++) {
        parts[i] = (VkPipelineExecutablePropertiesKHR){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR};
    }
    VkResult r = f.executables(dev->device, &whole, &n, parts);
    if (r != VK_SUCCESS && r != VK_INCOMPLETE) return;
    put_head(dev, l, &line);
    for (uint32_t i = 0; i < n; i++) {
        const VkPipelineExecutableInfoKHR which = {
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
            .pipeline = pipeline,
            .executableIndex = i};
        uint64_t matrix = 0;
        put(&line, " Subgroup size=%u;", parts[i].subgroupSize);
        put_statistics(dev, &f, &which, &line);
        if (count_matrix(dev, &f, &which, &matrix))
            put(&line, " Matrix instructions=%" PRIu64 ";", matrix);
    }
    dev->host->log(dev->host->user, EBRO_LOG_TRACE, "%s", line.v);
}
