/* null.c: the backend that computes nothing, and the skeleton that a new backend starts from.
 *
 * It has one device with real memory, real copies and real tickets, so that everything around the
 * arithmetic can be tried without any; the ops that would compute return UNSUPPORTED by name. To
 * make a backend of it: copy the folder, rename the device, then replace the sections from top to
 * bottom. The comments say what each must do.
 *
 * Only this module's entry is exported. It links nothing but the C library, and reaches the runtime
 * through `ebro_host` alone. */
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "ebro/backend.h"
#include "runtime/base/names.h"

enum { ALIGNMENT = 64 };

/* What the device pretends to own, so that running out of it can be tried. */
#define TOTAL_BYTES (UINT64_C(4) << 30)

/* The opaque types of backend.h are the backend's own to define. */
struct ebro_dev {
    const ebro_host *host;       /* valid until device_close */
    uint64_t caps;               /* EBRO_CAP_*, less the mask of device_open */
    _Atomic uint64_t used_bytes; /* a device may be used from several threads */
};

struct ebro_stream {
    ebro_dev *dev;
    uint64_t ticket; /* of the last submit */
};

/* The runtime sees the head; the rest is ours. */
struct null_mem {
    ebro_mem head;
    void *block; /* what the host's allocator gave; the bytes start at the next aligned address */
};

/* ---- probe ------------------------------------------------------------------------------ */

/* Cheap and without side effects: it runs for every listing of devices. A backend whose driver
 * library is absent returns OK with no device, and says so in *err by host->fail. */
static int32_t null_probe(const ebro_host *host, ebro_probe_result *out, uint32_t capacity,
                          uint32_t *count, ebro_error *err) {
    (void)host;
    (void)err;
    static const ebro_probe_result device = {
        .name = "Null0",
        .description = "Null device: moves bytes, computes nothing",
        .id = "null",
        .total_bytes = TOTAL_BYTES,
        .free_bytes = TOTAL_BYTES};
    if (capacity > 0) out[0] = device;
    *count = 1;
    return EBRO_OK;
}

/* ---- device ----------------------------------------------------------------------------- */

/* A real backend chooses here, once and for all, the variant of every op that dev->caps allow, logs
 * the choice, and fails when a required op has none. This one has nothing to choose. */
static int32_t null_device_open(const ebro_host *host, uint32_t index,
                                const ebro_device_options *options, ebro_dev **out,
                                ebro_error *err) {
    if (index != 0) {
        return host->fail(err, EBRO_NO_DEVICE, "there is no null device number %u", index);
    }
    /* Each name in the list must be one that the backend knows. */
    const char *avoid = options != NULL ? options->avoid : NULL;
    size_t bytes;
    const char *name = eb_next_name(&avoid, &bytes);
    if (name != NULL) {
        return host->fail(err, EBRO_INVALID,
                          "there is no variant \"%.*s\" to avoid: there are none", (int)bytes,
                          name);
    }
    ebro_dev *dev = host->realloc(host->user, NULL, sizeof *dev);
    if (dev == NULL) {
        return host->fail(err, EBRO_NOMEM_HOST, "out of host memory: %zu bytes wanted",
                          sizeof *dev);
    }
    dev->host = host;
    dev->caps = EBRO_CAP_UNIFIED & ~(options != NULL ? options->caps_mask : 0);
    atomic_init(&dev->used_bytes, 0);
    *out = dev;
    return EBRO_OK;
}

static void null_device_close(ebro_dev *dev) {
    dev->host->realloc(dev->host->user, dev, 0);
}

/* May be called at any time and from any thread; free_bytes is that of the moment. */
static void null_device_caps(ebro_dev *dev, ebro_caps *out) {
    *out = (ebro_caps){.size = sizeof *out,
                       .bits = dev->caps,
                       .wave_min = 1,
                       .wave_max = 1,
                       .max_binding_bytes = TOTAL_BYTES,
                       .max_alloc_bytes = TOTAL_BYTES,
                       .mem_alignment = ALIGNMENT,
                       .total_bytes = TOTAL_BYTES,
                       .free_bytes = TOTAL_BYTES - atomic_load(&dev->used_bytes),
                       .default_cache_dtype = EBRO_F32,
                       .n_threads = 1};
}

/* ---- memory ----------------------------------------------------------------------------- */

static bool reserve(ebro_dev *dev, uint64_t bytes) {
    uint64_t used = atomic_load(&dev->used_bytes);
    do {
        if (bytes > TOTAL_BYTES - used) return false;
    } while (!atomic_compare_exchange_weak(&dev->used_bytes, &used, used + bytes));
    return true;
}

/* All memory is host memory, so every kind of it is mapped, and an address is a pointer. A backend
 * without raw addresses numbers its allocations instead, far enough apart that address + offset
 * stays inside one. */
static int32_t null_mem_alloc(ebro_dev *dev, uint64_t bytes, uint32_t kind, ebro_mem **out,
                              ebro_error *err) {
    (void)kind;
    const ebro_host *host = dev->host;
    if (bytes > SIZE_MAX - ALIGNMENT || !reserve(dev, bytes))
        return host->fail(err, EBRO_NOMEM_DEVICE, "out of memory");
    struct null_mem *m = host->realloc(host->user, NULL, sizeof *m);
    void *block = host->realloc(host->user, NULL, (size_t)bytes + ALIGNMENT);
    if (m == NULL || block == NULL) {
        if (m != NULL) host->realloc(host->user, m, 0);
        if (block != NULL) host->realloc(host->user, block, 0);
        atomic_fetch_sub(&dev->used_bytes, bytes);
        return host->fail(err, EBRO_NOMEM_DEVICE, "out of memory");
    }
    uintptr_t start = ((uintptr_t)block + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *m = (struct null_mem){.head = {.bytes = bytes, .address = start, .host = (void *)start},
                           .block = block};
    *out = &m->head;
    return EBRO_OK;
}

static void null_mem_free(ebro_dev *dev, ebro_mem *mem) {
    const ebro_host *host = dev->host;
    struct null_mem *m = (struct null_mem *)mem;
    if (m->block != NULL) { /* not an import */
        atomic_fetch_sub(&dev->used_bytes, mem->bytes);
        host->realloc(host->user, m->block, 0);
    }
    host->realloc(host->user, m, 0);
}

/* Optional. Nothing writes through an import. */
static int32_t null_mem_import(ebro_dev *dev, const void *data, uint64_t bytes, ebro_mem **out,
                               ebro_error *err) {
    const ebro_host *host = dev->host;
    struct null_mem *m = host->realloc(host->user, NULL, sizeof *m);
    if (m == NULL) {
        return host->fail(err, EBRO_NOMEM_HOST, "out of host memory: %zu bytes wanted", sizeof *m);
    }
    uintptr_t start = (uintptr_t)data;
    *m = (struct null_mem){.head = {.bytes = bytes, .address = start, .host = (void *)start}};
    *out = &m->head;
    return EBRO_OK;
}

/* ---- streams ---------------------------------------------------------------------------- */

static int32_t null_stream_open(ebro_dev *dev, ebro_stream **out, ebro_error *err) {
    const ebro_host *host = dev->host;
    ebro_stream *s = host->realloc(host->user, NULL, sizeof *s);
    if (s == NULL) {
        return host->fail(err, EBRO_NOMEM_HOST, "out of host memory: %zu bytes wanted", sizeof *s);
    }
    *s = (ebro_stream){.dev = dev};
    *out = s;
    return EBRO_OK;
}

/* A real backend waits here for what was submitted. */
static void null_stream_close(ebro_stream *s) {
    s->dev->host->realloc(s->dev->host->user, s, 0);
}

static unsigned char *at(ebro_span span) {
    return (unsigned char *)span.mem->host + span.offset;
}

/* Host memory is read or written any time up to the wait; here, at once. */
static int32_t null_copy(ebro_stream *s, const ebro_copy_args *a, ebro_error *err) {
    (void)s;
    (void)err;
    const void *src = a->src.mem != NULL ? at(a->src) : a->src_host;
    void *dst = a->dst.mem != NULL ? at(a->dst) : a->dst_host;
    memcpy(dst, src, (size_t)a->bytes);
    return EBRO_OK;
}

static int32_t null_fill(ebro_stream *s, ebro_span dst, uint8_t value, uint64_t bytes,
                         ebro_error *err) {
    (void)s;
    (void)err;
    memset(at(dst), value, (size_t)bytes);
    return EBRO_OK;
}

static int32_t null_submit(ebro_stream *s, uint64_t *ticket, ebro_error *err) {
    (void)err;
    *ticket = ++s->ticket;
    return EBRO_OK;
}

/* A ticket may be waited for any number of times. A real backend returns TIMEOUT when timeout_ns
 * (if not 0) passes first, and DEVICE_LOST for whatever the driver cannot recover from. */
static int32_t null_wait(ebro_stream *s, uint64_t ticket, uint64_t timeout_ns, ebro_error *err) {
    (void)timeout_ns;
    if (ticket <= s->ticket) return EBRO_OK;
    return s->dev->host->fail(err, EBRO_INVALID,
                              "ticket %llu was never given out, the last is %llu",
                              (unsigned long long)ticket, (unsigned long long)s->ticket);
}

/* ---- ops that move bytes ---------------------------------------------------------------- */

/* Ops that sum over long rows or split their work want scratch: say here how much, from the host
 * numbers of the arguments alone (memory may be absent), never less for more work. */
static uint64_t null_scratch_bytes(ebro_dev *dev, ebro_op op, const void *args) {
    (void)dev;
    (void)op;
    (void)args;
    return 0;
}

/* The element of a device-side table; memcpy, for nothing promises its alignment. */
static uint64_t table_u64(ebro_span table, uint32_t i) {
    uint64_t value;
    memcpy(&value, at(table) + (size_t)i * sizeof value, sizeof value);
    return value;
}

/* Absent lists mean the identity. */
static int64_t list_i32(ebro_span list, uint32_t i) {
    if (list.mem == NULL) return i;
    int32_t value;
    memcpy(&value, at(list) + (size_t)i * sizeof value, sizeof value);
    return value;
}

static int32_t null_state_copy(ebro_stream *s, const ebro_state_copy_args *a, ebro_error *err) {
    (void)s;
    (void)err;
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t src = table_u64(a->src, i), dst = table_u64(a->dst, i);
        if (src == 0) {
            memset((void *)(uintptr_t)dst, 0, (size_t)a->bytes);
        } else {
            memcpy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, (size_t)a->bytes);
        }
    }
    return EBRO_OK;
}

static int32_t null_rows_copy(ebro_stream *s, const ebro_rows_copy_args *a, ebro_error *err) {
    (void)s;
    (void)err;
    for (uint32_t i = 0; i < a->n; i++) {
        int64_t src = list_i32(a->src_rows, i), dst = list_i32(a->dst_rows, i);
        if (dst < 0) continue;
        unsigned char *to = at(a->dst) + (uint64_t)dst * a->dst_stride_bytes;
        if (src < 0) {
            memset(to, 0, (size_t)a->row_bytes);
        } else {
            memcpy(to, at(a->src) + (uint64_t)src * a->src_stride_bytes, (size_t)a->row_bytes);
        }
    }
    return EBRO_OK;
}

/* ---- ops that compute ------------------------------------------------------------------- */

/* The formulas stand with the argument structs in backend.h; backends/cpu is the worked example.
 * Everything that an op reads on the host is read before it returns. */
static int32_t computes_nothing(ebro_stream *s, const char *op, ebro_error *err) {
    return s->dev->host->fail(err, EBRO_UNSUPPORTED, "the null device does not compute %s", op);
}

/* Replace these lines one by one by functions that compute. */
#define COMPUTES_NOTHING(op)                                                               \
    static int32_t null_##op(ebro_stream *s, const ebro_##op##_args *a, ebro_error *err) { \
        (void)a;                                                                           \
        return computes_nothing(s, #op, err);                                              \
    }
COMPUTES_NOTHING(embed)
COMPUTES_NOTHING(sample)
COMPUTES_NOTHING(rms_norm)
COMPUTES_NOTHING(linear)
COMPUTES_NOTHING(act_mul)
COMPUTES_NOTHING(kda_conv)
COMPUTES_NOTHING(kda_prep)
COMPUTES_NOTHING(kda_recur)
COMPUTES_NOTHING(mla_append)
COMPUTES_NOTHING(mla_prefill)
COMPUTES_NOTHING(mla_decode)
COMPUTES_NOTHING(moe_route)
COMPUTES_NOTHING(moe_experts)
COMPUTES_NOTHING(attn_res_mix)

/* ---- the table -------------------------------------------------------------------------- */

/* Left out, as a backend may: weights_prepare, the four graph functions, kda_step. All other ops
 * are required: without a function for each this does not compile. */
#define null_kda_step NULL
static const ebro_backend table = {.size = sizeof table,
                                   .abi = EBRO_BACKEND_ABI,
                                   .name = "null",
                                   .probe = null_probe,
                                   .device_open = null_device_open,
                                   .device_close = null_device_close,
                                   .device_caps = null_device_caps,
                                   .mem_alloc = null_mem_alloc,
                                   .mem_free = null_mem_free,
                                   .mem_import = null_mem_import,
                                   .stream_open = null_stream_open,
                                   .stream_close = null_stream_close,
                                   .copy = null_copy,
                                   .fill = null_fill,
                                   .submit = null_submit,
                                   .wait = null_wait,
                                   .scratch_bytes = null_scratch_bytes,
#define OP_ENTRY(N, name) .name = null_##name,
                                   EBRO_OPS(OP_ENTRY)
#undef OP_ENTRY
};

/* The number first, before anything of the host's is touched: another ABI's host table may have
 * another shape. */
EBRO_API int32_t ebro_backend_entry(uint32_t abi, const ebro_host *host, const ebro_backend **out);

int32_t ebro_backend_entry(uint32_t abi, const ebro_host *host, const ebro_backend **out) {
    (void)host;
    if (abi != EBRO_BACKEND_ABI) return EBRO_UNSUPPORTED;
    *out = &table;
    return EBRO_OK;
}
