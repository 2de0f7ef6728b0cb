/* api.h: the driver's functions (api.def), from its library by name. CUDA and HIP have the same
 * shape, so that one source serves both: it is built twice, with EBRO_HIP for the second. */
#ifndef EB_CUDA_HIP_API_H
#define EB_CUDA_HIP_API_H

#include <stddef.h>
#include <stdint.h>

#include "ebro/backend.h"

#ifdef EBRO_HIP
#include "backends/cuda_hip/names_hip.h"
#else
#include "backends/cuda_hip/names_cuda.h"
#endif

/* The answers that are told apart. */
enum {
    GPU_OK = 0,
    GPU_OUT_OF_MEMORY = 2,
    GPU_NO_DEVICE = 100,
    GPU_NO_BINARY = 209,
    GPU_ECC = 214,
    GPU_INVALID_CODE = 218,
    GPU_UNSUPPORTED_CODE = 222,
    GPU_NOT_READY = 600,
    GPU_LOST_FIRST = 700, /* illegal address ... */
    GPU_LOST_LAST = 719   /* ... launch failed: the context is of no use any more */
};

struct gpu_api {
    void *library;
#define GPU_CALL(name, cuda, hip, parameters) int(*name) parameters;
#include "backends/cuda_hip/api.def"
#undef GPU_CALL
};

/* Loads the driver and starts it. Without one: EBRO_NO_DEVICE with the reason. Loading it again is
 * cheap, and the driver stays in the process. */
int32_t gpu_api_open(const ebro_host *host, struct gpu_api *api, ebro_error *err);

#endif
