/* op_rest.c: the operators that are not computed yet. */
#include "backends/cuda_hip/cuda_hip.h"

#define REST(name)                                                                              \
    int32_t gpu_##name(ebro_stream *s, const ebro_##name##_args *a, ebro_error *err) {          \
        (void)a;                                                                                \
        return gpu_stream_device(s)->host->fail(err, EBRO_UNSUPPORTED,                          \
                                                GPU_BACKEND ": " #name " is not computed yet"); \
    }
#define REST_SCRATCH(name)                                                          \
    uint64_t gpu_scratch_##name(const ebro_dev *dev, const ebro_##name##_args *a) { \
        (void)dev;                                                                  \
        (void)a;                                                                    \
        return 0;                                                                   \
    }

REST(mla_append)
REST(mla_prefill)
REST_SCRATCH(mla_prefill)
REST(mla_decode)
REST_SCRATCH(mla_decode)
