/* cuda_hip.h: what the files of the CUDA and HIP backends share. One source for both drivers, built
 * twice (api.h); kernels in shaders/cuda_hip.
 *
 *   api.c      the driver's functions, from its library by name
 *   probe.c    which devices there are
 *   device.c   opening one: context, caps, the table of backend.h
 *   memory.c   allocations
 *   kernels.c  kernels.def: images, the ladder of variants, launches
 *   stream.c   tickets, waiting, copies, fills
 *   graph.c    what is recorded once and launched often
 *   op_*.c     one file per family: arguments to launches
 *
 * An op fills its kernel's argument struct (shaders/common/args_*.h) and launches it; a stream runs
 * what it is given in order, so that launches need no barriers between them.
 *
 * Threads: a device may be used from several; a stream belongs to one at a time. The driver locks
 * what its calls share; gpu_enter makes the device's context the calling thread's. */
#ifndef EB_CUDA_HIP_H
#define EB_CUDA_HIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "backends/arguments.h"
#include "backends/cuda_hip/api.h"

/* ---- kernels ---------------------------------------------------------------------------- */

enum gpu_image {
#define IMAGE(name) GPU_IMAGE_##name,
#define KERNEL(name, image, args)
#define VARIANT(kernel, variant, needs)
#include "shaders/cuda_hip/kernels.def"
#undef IMAGE
    GPU_N_IMAGES
};

enum gpu_kernel {
#define IMAGE(name)
#undef KERNEL
#define KERNEL(name, image, args) GPU_##name,
#include "shaders/cuda_hip/kernels.def"
#undef IMAGE
#undef KERNEL
#undef VARIANT
    GPU_N_KERNELS
};

/* What the ladder chose for a kernel. */
struct gpu_choice {
    int rung;       /* the VARIANT line of kernels.def */
    uint64_t needs; /* of the variant, EBRO_CAP_* */
    void *function;
    uint32_t shared_bytes; /* that it may be given */
};

/* ---- device ----------------------------------------------------------------------------- */

struct ebro_dev {
    const ebro_host *host;
    struct gpu_api api;
    int device; /* the driver's number */
    void *context;
    char name[128]; /* "NVIDIA H200", for errors */
    int major, minor;
    uint32_t n_processors;      /* that run blocks side by side */
    uint32_t shared_bytes_most; /* of a block, where the launch asks for it */
    ebro_caps caps;
    void *modules[GPU_N_IMAGES];
    struct gpu_choice kernels[GPU_N_KERNELS];
};

/* Makes the device the calling thread's. */
int32_t gpu_enter(ebro_dev *dev, ebro_error *err);

/* Says what an answer of the driver means and returns the status for it; `what` is "verb + object".
 */
int32_t gpu_fail(ebro_dev *dev, int answer, const char *what, ebro_error *err);

/* Memory of the host's allocator; NULL with the error set. Zeroed. */
void *gpu_calloc(const ebro_host *host, size_t n, size_t size, ebro_error *err);
void gpu_free(const ebro_host *host, void *p); /* NULL-safe */

/* probe.c */
int32_t gpu_probe(const ebro_host *host, ebro_probe_result *out, uint32_t capacity, uint32_t *count,
                  ebro_error *err);

/* memory.c */
int32_t gpu_mem_alloc(ebro_dev *dev, uint64_t bytes, uint32_t kind, ebro_mem **out,
                      ebro_error *err);
void gpu_mem_free(ebro_dev *dev, ebro_mem *mem);

/* kernels.c: loads the images and walks the ladder: of each kernel the last variant whose needs
 * dev->caps.bits meet and that `avoid` (ebro_device_options) does not list. Says once in the log
 * what was chosen. */
int32_t gpu_kernels_open(ebro_dev *dev, const char *avoid, ebro_error *err);
void gpu_kernels_close(ebro_dev *dev); /* safe after a failed open */
/* As ebro_backend.op_variant. */
void gpu_op_variant(ebro_dev *dev, ebro_op op, char *text, size_t bytes);

/* ---- launches --------------------------------------------------------------------------- */

/* One kernel over `groups` blocks. Zeroed, then filled by an op; nothing in it outlives the call of
 * gpu_launch. */
struct gpu_launch {
    enum gpu_kernel kernel;
    uint32_t threads;      /* of a block: whole waves, as the kernel is written for */
    uint64_t groups;       /* below 2^31; 0: nothing is launched */
    const void *args;      /* the kernel's argument struct */
    uint32_t shared_bytes; /* beyond what the kernel declares */
};

int32_t gpu_launch(ebro_stream *s, const struct gpu_launch *l, ebro_error *err);

static inline uint64_t gpu_div_up(uint64_t a, uint64_t b) {
    return (a + b - 1) / b;
}

/* ---- streams ---------------------------------------------------------------------------- */

ebro_dev *gpu_stream_device(ebro_stream *s);
void *gpu_stream_handle(ebro_stream *s); /* the driver's */

int32_t gpu_stream_open(ebro_dev *dev, ebro_stream **out, ebro_error *err);
void gpu_stream_close(ebro_stream *s);
int32_t gpu_copy(ebro_stream *s, const ebro_copy_args *a, ebro_error *err);
int32_t gpu_fill(ebro_stream *s, ebro_span dst, uint8_t value, uint64_t bytes, ebro_error *err);
int32_t gpu_submit(ebro_stream *s, uint64_t *ticket, ebro_error *err);
int32_t gpu_wait(ebro_stream *s, uint64_t ticket, uint64_t timeout_ns, ebro_error *err);

/* graph.c */
int32_t gpu_graph_begin(ebro_stream *s, ebro_error *err);
int32_t gpu_graph_end(ebro_stream *s, ebro_graph **out, ebro_error *err);
int32_t gpu_graph_launch(ebro_stream *s, ebro_graph *g, ebro_error *err);
void gpu_graph_free(ebro_dev *dev, ebro_graph *g);
/* Whether the stream records; what was recorded is dropped. */
bool gpu_stream_records(const ebro_stream *s);
void gpu_stream_record(ebro_stream *s, bool records);
void gpu_graph_drop(ebro_stream *s);

/* ---- ops: op_*.c ------------------------------------------------------------------------ */

#define GPU_OP(N, name) \
    int32_t gpu_##name(ebro_stream *s, const ebro_##name##_args *a, ebro_error *err);
EBRO_OPS(GPU_OP)
#undef GPU_OP

/* The ops that want scratch; the others want none. */
#define GPU_SCRATCH(X)          \
    X(SAMPLE, sample)           \
    X(KDA_PREP, kda_prep)       \
    X(MLA_PREFILL, mla_prefill) \
    X(MLA_DECODE, mla_decode)   \
    X(MOE_ROUTE, moe_route)     \
    X(MOE_EXPERTS, moe_experts)
#define GPU_SCRATCH_OP(N, name) \
    uint64_t gpu_scratch_##name(const ebro_dev *dev, const ebro_##name##_args *a);
GPU_SCRATCH(GPU_SCRATCH_OP)
#undef GPU_SCRATCH_OP

#endif
