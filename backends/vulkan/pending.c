/* pending.c: ops that are not written yet refuse by name. Goes when the last one is there. */
#include "backends/vulkan/vulkan.h"

#define PENDING(N, name)                                                              \
    __attribute__((weak))                                                             \
    int32_t vk_##name(ebro_stream *s, const ebro_##name##_args *a, ebro_error *err) { \
        (void)a;                                                                      \
        return vk_stream_device(s)->host->fail(err, EBRO_UNSUPPORTED,                 \
                                               "vulkan: %s is not there yet", #name); \
    }
EBRO_OPS(PENDING)
#define PENDING_SCRATCH(N, name)                                                   \
    __attribute__((weak))                                                          \
    uint64_t vk_scratch_##name(const ebro_dev *dev, const ebro_##name##_args *a) { \
        (void)dev;                                                                 \
        (void)a;                                                                   \
        return 0;                                                                  \
    }
VK_SCRATCH(PENDING_SCRATCH)
