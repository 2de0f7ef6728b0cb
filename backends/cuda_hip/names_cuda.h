/* names_cuda.h: what CUDA's driver calls things, as its documentation numbers them
 * (docs.nvidia.com/cuda/cuda-driver-api). Nothing of the toolkit is included: one package runs
 * where none is installed. */
#ifndef EB_CUDA_HIP_NAMES_CUDA_H
#define EB_CUDA_HIP_NAMES_CUDA_H

#define GPU_BACKEND "cuda"
#define GPU_FAMILY "CUDA" /* devices: CUDA0, CUDA1, ... */
#define GPU_LIBRARY "libcuda.so.1"
#define GPU_MAKER "NVIDIA"
#define GPU_SYMBOL(cuda, hip) cuda

/* The images hold code that drivers of this version and of later ones run: 1000 * major + 10 *
 * minor. */
#define GPU_MIN_DRIVER 13000

enum {
    GPU_ATTR_MAX_THREADS = 1,
    GPU_ATTR_SHARED_BYTES = 8,
    GPU_ATTR_WAVE = 10,
    GPU_ATTR_INTEGRATED = 18,
    GPU_ATTR_N_PROCESSORS = 16,
    GPU_ATTR_MAJOR = 75,
    GPU_ATTR_MINOR = 76,
    GPU_ATTR_SHARED_BYTES_MOST = 97, /* with GPU_FUNC_SHARED_BYTES */
    GPU_FUNC_SHARED_BYTES = 8,
    GPU_HOST_PORTABLE = 1,
    GPU_HOST_MAPPED = 2,
    GPU_STREAM_NON_BLOCKING = 1,
    GPU_EVENT_BLOCKING = 1,
    GPU_EVENT_NO_TIMING = 2,
    GPU_CAPTURE_RELAXED = 2
};

#endif
