/* device.c: the CPU backend's table: probe, memory, streams, copies. Ops: op_*.c. */
#include "cpu.h"
#include "memory.h"
#include "runtime/base/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(CPU_WITH_X86)
#include <cpuid.h>
#endif

/* ---- the machine ------------------------------------------------------------------------ */

static void describe(char *out, size_t capacity) {
    char line[256];
    struct utsname u;
    FILE *f = fopen("/proc/cpuinfo", "r");
    out[0] = '\0';
    while (f && out[0] == '\0' && fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !value) continue;
        value += 1 + strspn(value + 1, " \t");
        value[strcspn(value, "\n")] = '\0';
        snprintf(out, capacity, "%s", value);
    }
    if (f) fclose(f);
    if (out[0] == '\0') snprintf(out, capacity, "%s", uname(&u) >= 0 ? u.machine : "CPU");
}

static int32_t probe(const ebro_host *host, ebro_probe_result *out, uint32_t capacity,
                     uint32_t *count, ebro_error *err) {
    (void)host;
    (void)err;
    *count = 1;
    if (capacity == 0) return EBRO_OK;
    memset(&out[0], 0, sizeof out[0]);
    snprintf(out[0].name, sizeof out[0].name, "CPU");
    snprintf(out[0].id, sizeof out[0].id, "cpu");
    describe(out[0].description, sizeof out[0].description);
    out[0].total_bytes = cpu_memory_total();
    out[0].free_bytes = cpu_memory_free().free_bytes;
    return EBRO_OK;
}

/* ---- device ----------------------------------------------------------------------------- */

/* ---- rungs ------------------------------------------------------------------------------ */

#define CPU_RUNG_ROW(name, needs) extern const struct cpu_rung cpu_rung_##name;
#include "rungs.def"
#undef CPU_RUNG_ROW

/* What the processor has, where the system saves the registers that it needs: the compiler's check
 * reads cpuid and xgetbv. It knows no F16C. */
static uint64_t processor_caps(void) {
    uint64_t caps = 0;
#if defined(CPU_WITH_X86)
    unsigned a, b, c, d;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C)) {
        caps |= EBRO_CAP_AVX2;
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        caps |= EBRO_CAP_AVX512;
    }
#endif
    return caps;
}

#define CPU_RUNG_ROW(name, needs) #name " "
static const char rung_names[] =
#include "rungs.def"
    ;
#undef CPU_RUNG_ROW

/* INVALID for a name that is no rung's. */
static int32_t check_avoided(const ebro_host *host, const char *avoid, ebro_error *err) {
    size_t bytes;
    for (const char *name; (name = eb_next_name(&avoid, &bytes)) != NULL;) {
        if (eb_has_name(rung_names, name, bytes)) continue;
        return host->fail(err, EBRO_INVALID,
                          "cpu: there is no variant \"%.*s\" to avoid; there are: %s", (int)bytes,
                          name, rung_names);
    }
    return EBRO_OK;
}

static const struct cpu_rung *choose_rung(uint64_t caps, const char *avoid) {
    const struct cpu_rung *best = NULL;
#define CPU_RUNG_ROW(name, needs)                          \
    if ((caps & (uint64_t)(needs)) == (uint64_t)(needs) && \
        !eb_has_name(avoid, #name, sizeof #name - 1))      \
        best = &cpu_rung_##name;
#include "rungs.def"
#undef CPU_RUNG_ROW
    return best;
}

static int32_t device_open(const ebro_host *host, uint32_t index,
                           const ebro_device_options *options, ebro_dev **out, ebro_error *err) {
    *out = NULL;
    if (index != 0) {
        return host->fail(err, EBRO_NO_DEVICE, "cpu: no device %" PRIu32 ", there is only 0",
                          index);
    }
    uint64_t mask = options ? options->caps_mask : 0;
    uint64_t bits = ((uint64_t)EBRO_CAP_UNIFIED | EBRO_CAP_STRICT | processor_caps()) & ~mask;
    const char *avoid = options ? options->avoid : NULL;
    int32_t st = check_avoided(host, avoid, err);
    if (st != EBRO_OK) return st;
    const struct cpu_rung *rung = choose_rung(bits, avoid);
    if (!rung) {
        return host->fail(err, EBRO_UNSUPPORTED,
                          "cpu: no variant of any op is left: all that this processor can run of %s"
                          "are to be avoided",
                          rung_names);
    }
    ebro_dev *dev = host->realloc(host->user, NULL, sizeof *dev);
    if (!dev) return host->fail(err, EBRO_NOMEM_HOST, "cpu: no %zu bytes", sizeof *dev);
    uint64_t total = cpu_memory_total();
    uint32_t n_threads = options && options->n_threads ? options->n_threads : cpu_usable_cores();
    if (n_threads > CPU_MAX_THREADS) n_threads = CPU_MAX_THREADS;
    *dev = (ebro_dev){.host = host, .rung = rung};
    st = cpu_pool_open(host, n_threads, &dev->pool, err);
    if (st != EBRO_OK) {
        (void)host->realloc(host->user, dev, 0);
        return st;
    }
    dev->n_threads = cpu_pool_threads(dev->pool);
    host->log(host->user, EBRO_LOG_INFO, "cpu: rung %s, %u threads", dev->rung->name,
              dev->n_threads);
    dev->caps = (ebro_caps){
        .size = sizeof dev->caps,
        .bits = bits,
        .wave_min = 1,
        .wave_max = 1,
        .max_binding_bytes = total ? total : SIZE_MAX,
        .max_alloc_bytes = total ? total : SIZE_MAX,
        .mem_alignment = CPU_MIN_ALIGN,
        .total_bytes = total,
        .default_cache_dtype = EBRO_F32,
        .n_threads = dev->n_threads,
        .mla_expanded_ps = dev->rung->mla_expanded_ps,
        .mla_absorbed_ps = dev->rung->mla_absorbed_ps,
        .mla_expanded_tokens = dev->rung->mla_expanded_tokens,
    };
    *out = dev;
    return EBRO_OK;
}

static void device_close(ebro_dev *dev) {
    cpu_pool_close(dev->pool);
    (void)dev->host->realloc(dev->host->user, dev, 0);
}

static void device_caps(ebro_dev *dev, ebro_caps *out) {
    *out = dev->caps;
    out->free_bytes = cpu_memory_free().free_bytes;
}

/* ---- memory ----------------------------------------------------------------------------- */

static int32_t mem_alloc(ebro_dev *dev, uint64_t bytes, uint32_t kind, ebro_mem **out,
                         ebro_error *err) {
    const ebro_host *host = dev->host;
    const uint64_t extra = sizeof(ebro_mem) + CPU_ALIGN; /* the head, and room to align */
    const struct cpu_memory m = cpu_memory_free();
    (void)kind; /* all memory is mapped */
    *out = NULL;
    /* The system would promise more than it has and take it back by killing the process. */
    ebro_mem *mem = NULL;
    if (bytes <= SIZE_MAX - extra && (m.free_bytes == 0 || bytes <= m.free_bytes))
        mem = host->realloc(host->user, NULL, (size_t)(bytes + extra));
    if (!mem) {
        return host->fail(err, EBRO_NOMEM_DEVICE,
                          "cpu: %" PRIu64 " bytes wanted, %" PRIu64 " are free within %s", bytes,
                          m.free_bytes, m.limit);
    }
    uint8_t *data = (uint8_t *)(mem + 1);
    data += (CPU_ALIGN - (uintptr_t)data % CPU_ALIGN) % CPU_ALIGN;
    *mem = (ebro_mem){.bytes = bytes, .address = (uintptr_t)data, .host = data};
    *out = mem;
    return EBRO_OK;
}

static int32_t mem_import(ebro_dev *dev, const void *data, uint64_t bytes, ebro_mem **out,
                          ebro_error *err) {
    const ebro_host *host = dev->host;
    *out = NULL;
    if (data == NULL || (uintptr_t)data % CPU_MIN_ALIGN != 0) {
        return host->fail(err, EBRO_INVALID, "cpu: import of %p, which is not aligned to %d bytes",
                          data, (int)CPU_MIN_ALIGN);
    }
    ebro_mem *mem = host->realloc(host->user, NULL, sizeof *mem);
    if (!mem) return host->fail(err, EBRO_NOMEM_HOST, "cpu: no %zu bytes", sizeof *mem);
    /* Ops only read what was imported; ebro_mem has no const twin. */
    uintptr_t address = (uintptr_t)data;
    *mem = (ebro_mem){.bytes = bytes, .address = address, .host = (void *)address};
    *out = mem;
    return EBRO_OK;
}

static void mem_free(ebro_dev *dev, ebro_mem *mem) {
    (void)dev->host->realloc(dev->host->user, mem, 0);
}

/* ---- streams: work is done when the call returns ---------------------------------------- */

static int32_t stream_open(ebro_dev *dev, ebro_stream **out, ebro_error *err) {
    ebro_stream *s = dev->host->realloc(dev->host->user, NULL, sizeof *s);
    *out = s;
    if (!s) return dev->host->fail(err, EBRO_NOMEM_HOST, "cpu: no %zu bytes", sizeof *s);
    *s = (ebro_stream){.dev = dev};
    return EBRO_OK;
}

static void stream_close(ebro_stream *s) {
    (void)s->dev->host->realloc(s->dev->host->user, s, 0);
}

static int32_t copy(ebro_stream *s, const ebro_copy_args *a, ebro_error *err) {
    (void)s;
    (void)err;
    if (a->bytes == 0) return EBRO_OK;
    memmove(a->dst.mem ? eb_at(a->dst) : a->dst_host, a->src.mem ? eb_at(a->src) : a->src_host,
            (size_t)a->bytes);
    return EBRO_OK;
}

static int32_t fill(ebro_stream *s, ebro_span dst, uint8_t value, uint64_t bytes, ebro_error *err) {
    (void)s;
    (void)err;
    memset(eb_at(dst), value, (size_t)bytes);
    return EBRO_OK;
}

static int32_t submit(ebro_stream *s, uint64_t *ticket, ebro_error *err) {
    (void)err;
    *ticket = ++s->ticket;
    return EBRO_OK;
}

static int32_t wait_ticket(ebro_stream *s, uint64_t ticket, uint64_t timeout_ns, ebro_error *err) {
    (void)timeout_ns;
    if (ticket <= s->ticket) return EBRO_OK;
    return s->dev->host->fail(err, EBRO_INVALID,
                              "cpu: wait for ticket %" PRIu64 ", the last one is %" PRIu64, ticket,
                              s->ticket);
}

/* ---- the table -------------------------------------------------------------------------- */

static uint64_t scratch_bytes(ebro_dev *dev, ebro_op op, const void *args) {
    switch (op) {
#define CPU_CASE(N, name) \
    case EBRO_OP_##N:     \
        return dev->rung->scratch_##name(dev, args);
        CPU_SCRATCH(CPU_CASE)
#undef CPU_CASE
        default:
            return 0;
    }
}

static void op_variant(ebro_dev *dev, ebro_op op, char *text, size_t bytes) {
    (void)op; /* every op has every rung */
    snprintf(text, bytes, "%s", dev->rung->name);
}

#define CPU_THUNK(N, op)                                                                 \
    static int32_t op_##op(ebro_stream *s, const ebro_##op##_args *a, ebro_error *err) { \
        return s->dev->rung->op(s, a, err);                                              \
    }
EBRO_OPS(CPU_THUNK)
#define CPU_ENTRY(N, op) .op = op_##op,

/* clang-format off */
static const ebro_backend table = {
    .size = sizeof table,
    .abi = EBRO_BACKEND_ABI,
    .name = "cpu",
    .probe = probe,
    .device_open = device_open,
    .device_close = device_close,
    .device_caps = device_caps,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .mem_import = mem_import,
    .stream_open = stream_open,
    .stream_close = stream_close,
    .copy = copy,
    .fill = fill,
    .submit = submit,
    .wait = wait_ticket,
    .scratch_bytes = scratch_bytes,
    EBRO_OPS(CPU_ENTRY)
    .op_variant = op_variant,
};
/* clang-format on */

EBRO_API int32_t ebro_backend_entry(uint32_t abi, const ebro_host *host, const ebro_backend **out);

int32_t ebro_backend_entry(uint32_t abi, const ebro_host *host, const ebro_backend **out) {
    (void)host;
    if (abi != EBRO_BACKEND_ABI) return EBRO_UNSUPPORTED;
    *out = &table;
    return EBRO_OK;
}
