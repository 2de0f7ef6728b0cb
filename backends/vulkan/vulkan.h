/* vulkan.h: what the files of the Vulkan backend share.
 *
 *   api.c      the driver's functions, from libvulkan by name
 *   probe.c    which devices there are, and whether they reach the floor
 *   device.c   opening one: features, queue, caps, the table of backend.h
 *   memory.c   allocations: each one buffer with an address
 *   import.c   host memory used where it lies
 *   cache.c    compiled kernels, kept in a file
 *   kernels.c  kernels.def: the ladder, pipelines on first use
 *   spirv.c    what kernels say of themselves
 *   statistics.c  what the driver's compiler says of them
 *   hazard.c   which launches must wait for which
 *   pace.c     how long work takes
 *   launch.c   what ops call: accesses, launches
 *   stream.c   recording, submitting, waiting
 *   graph.c    what is recorded once and launched often
 *   copy.c     copies, and the staging behind them
 *   op_*.c     one file per family: arguments to launches
 *
 * An op fills its kernel's argument struct (shaders/common/args_*.h), says what the kernel reads
 * and writes, and launches it. Everything reaches memory by address, so that no binding limits it.
 *
 * Threads: a device may be used from several; a stream belongs to one at a time. What a device's
 * threads share (pipelines, the queue, memory counts, paces) is behind its lock. */
#ifndef EB_VULKAN_H
#define EB_VULKAN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "backends/arguments.h"
#include "backends/vulkan/api.h"
#include "ebro/backend.h"

enum {
    /* Push constants that every device has, less the words that every kernel gets. */
    VK_PUSH_BYTES = 128 - 8,
    VK_MAX_ACCESSES = 48, /* of one launch */
    VK_MAX_SPECS = 10     /* constants of a kernel's own */
};

/* ---- kernels ---------------------------------------------------------------------------- */

enum vk_kernel {
#define KERNEL(name, args, place) VK_##name,
#define VARIANT(kernel, variant, source, needs, defines)
#include "shaders/vulkan/kernels.def"
#undef KERNEL
#undef VARIANT
    VK_N_KERNELS
};

/* A row of kernels.def. */
struct vk_variant {
    enum vk_kernel kernel;
    const char *name; /* "plain", "subgroup", ... */
    uint64_t needs;   /* EBRO_CAP_* */
    const uint32_t *code;
    const uint32_t *code_end;
};

/* Kinds of work, which each have a pace: the kernels, and these. */
enum {
    VK_KIND_COPY = VK_N_KERNELS, /* bytes read and written */
    VK_KIND_LAUNCH,              /* launches and copies, as such */
    VK_N_KINDS
};

/* Amounts of work of every kind: bytes moved or multiply-adds. */
struct vk_mix {
    double work[VK_N_KINDS];
};

/* ---- device ----------------------------------------------------------------------------- */

struct vk_pipeline; /* kernels.c */

/* Matrices that a subgroup multiplies, [m][k] times [k][n]; how many sums of a group lie side by
 * side. */
struct vk_matrix_shape {
    uint32_t m, n, k, outs;
};

struct ebro_dev {
    const ebro_host *host;
    struct vk_api api;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    uint32_t family;
    VkPhysicalDeviceLimits limits;
    VkPhysicalDeviceMemoryProperties heaps;
    bool is_shared;          /* host and device share their memory */
    uint32_t timestamp_bits; /* of the queue; 0: it has no clock */
    uint32_t subgroup;       /* the size that pipelines get */
    bool demands_size;       /* of subgroups, in each pipeline; else there is only that one */
    uint32_t max_subgroups;  /* of a workgroup whose subgroups have that size; 0: any number */
    struct vk_matrix_shape f16_shape; /* where caps has MATRIX and F16 */
    uint64_t max_alloc_bytes;
    bool imports; /* host memory can be used where it lies */
    PFN_vkGetMemoryHostPointerPropertiesEXT GetMemoryHostPointerProperties; /* where it does */
    ebro_caps caps;
    pthread_mutex_t lock;     /* the queue, pipelines, memory counts, paces */
    double paces[VK_N_KINDS]; /* pace.c: ns of a unit of work; 0: never measured */
    bool with_statistics;     /* of each pipeline, to the log */
    uint64_t used_bytes;
    const struct vk_variant *variants[VK_N_KERNELS]; /* what the ladder chose */
    uint32_t vendor_id, device_id, driver_version;
    uint8_t pipeline_cache_uuid[VK_UUID_SIZE];
    uint32_t n_compiled;  /* pipelines made */
    bool cache_was_empty; /* when the device was opened */
    VkPipelineLayout layout;
    VkPipelineCache cache;
    struct vk_pipeline *pipelines[256]; /* hash of kernel and constants */
};

/* Says what a VkResult means and returns the status for it; `what` is "verb + object". */
int32_t vk_fail(ebro_dev *dev, VkResult result, const char *what, ebro_error *err);

/* Memory of the host's allocator; NULL with the error set. Zeroed. */
void *vk_calloc(const ebro_host *host, size_t n, size_t size, ebro_error *err);
void vk_free(const ebro_host *host, void *p); /* NULL-safe */

/* ---- memory ----------------------------------------------------------------------------- */

/* What an ebro_mem of this backend is. */
struct vk_mem {
    ebro_mem head;
    VkBuffer buffer;
    VkDeviceMemory memory;
    uint64_t begin;         /* of `head` in the buffer */
    uint64_t counted_bytes; /* of the device's; 0 for the host's */
};

int32_t vk_mem_alloc(ebro_dev *dev, uint64_t bytes, uint32_t kind, ebro_mem **out, ebro_error *err);
void vk_mem_free(ebro_dev *dev, ebro_mem *mem);

/* import.c: whether the device can use host memory as it is; the extension for that, once it is
 * on; a range of it (UNSUPPORTED: copy it instead). */
bool vk_import_usable(const ebro_dev *dev);
int32_t vk_import_open(ebro_dev *dev, ebro_error *err);
int32_t vk_mem_import(ebro_dev *dev, const void *host, uint64_t bytes, ebro_mem **out,
                      ebro_error *err);

/* ---- launches --------------------------------------------------------------------------- */

/* What a launch does to a range of addresses. */
struct vk_access {
    uint64_t begin, end;
    bool writes;
};

/* One kernel over `groups` workgroups. Zeroed, then filled by an op; nothing in it outlives the
 * call of vk_launch. */
struct vk_launch {
    enum vk_kernel kernel;
    uint32_t threads;             /* of a workgroup, a power of two; vk_threads */
    uint32_t specs[VK_MAX_SPECS]; /* the kernel's own constants, from id 2 on */
    uint32_t n_specs;
    const void *args; /* the kernel's argument struct */
    uint64_t groups;  /* 0: nothing is launched */
    /* About how much it does: bytes moved or multiply-adds, whichever is more, all groups alike.
     * What bounds the time of a submission, so it must grow as the time does. */
    uint64_t work;
    struct vk_access accesses[VK_MAX_ACCESSES];
    uint32_t n_accesses;
    /* Set where addresses from tables in memory are followed: states, pages, experts. Such a launch
     * is ordered against every write (and, when it writes, every read) before it. */
    bool reads_any, writes_any;
};

/* At most `want` threads, a power of two, at most what the device takes in a workgroup. */
uint32_t vk_threads(const ebro_dev *dev, uint32_t want);

/* Records the launch, after a barrier where one is needed: in several pieces, some of the groups
 * each, where all at once would take too long. */
int32_t vk_launch(ebro_stream *s, const struct vk_launch *l, ebro_error *err);

/* In whole units of 16 bytes, for kernels read and write whole words: what shares a unit must not
 * run side by side. */
struct vk_access vk_access_of(const ebro_mem *mem, uint64_t offset, uint64_t bytes, bool writes);

/* Say what a launch touches. Absent memory is skipped. */
void vk_reads(struct vk_launch *l, const ebro_mem *mem, uint64_t offset, uint64_t bytes);
void vk_writes(struct vk_launch *l, const ebro_mem *mem, uint64_t offset, uint64_t bytes);
void vk_reads_span(struct vk_launch *l, ebro_span span, uint64_t bytes);
void vk_writes_span(struct vk_launch *l, ebro_span span, uint64_t bytes);
void vk_reads_mat(struct vk_launch *l, const ebro_mat *m, uint64_t rows, uint64_t cols);
void vk_writes_mat(struct vk_launch *l, const ebro_mat *m, uint64_t rows, uint64_t cols);
void vk_reads_vec(struct vk_launch *l, const ebro_vec *v, uint64_t n);
void vk_reads_weight(struct vk_launch *l, const ebro_weight *w); /* and its scales */
void vk_reads_rows(struct vk_launch *l, const ebro_rows *rows);
/* The lists of states; the slots themselves by reads_any and writes_any, which these set. */
void vk_uses_states(struct vk_launch *l, const ebro_state_io *io, uint32_t n_seqs);
/* The lists of pages; sets reads_any, and writes_any where `writes`. */
void vk_uses_pages(struct vk_launch *l, const ebro_pages *p, uint32_t n_seqs, bool writes);

static inline uint64_t vk_div_up(uint64_t a, uint64_t b) {
    return (a + b - 1) / b;
}

/* ---- streams ---------------------------------------------------------------------------- */

ebro_dev *vk_stream_device(ebro_stream *s);

/* ---- ops: op_*.c ------------------------------------------------------------------------ */

#define VK_OP(N, name) \
    int32_t vk_##name(ebro_stream *s, const ebro_##name##_args *a, ebro_error *err);
EBRO_OPS(VK_OP)
#undef VK_OP

/* The ops that want scratch; the others want none. */
#define VK_SCRATCH(X)           \
    X(SAMPLE, sample)           \
    X(LINEAR, linear)           \
    X(KDA_PREP, kda_prep)       \
    X(MLA_PREFILL, mla_prefill) \
    X(MLA_DECODE, mla_decode)   \
    X(MOE_ROUTE, moe_route)     \
    X(MOE_EXPERTS, moe_experts)
#define VK_SCRATCH_OP(N, name) \
    uint64_t vk_scratch_##name(const ebro_dev *dev, const ebro_##name##_args *a);
VK_SCRATCH(VK_SCRATCH_OP)
#undef VK_SCRATCH_OP

#endif
