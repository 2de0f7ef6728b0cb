/* bench_rig.c: see bench_rig.h; the ceilings are bench_ceiling.c. */
#include "bench_rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- opening ---------------------------------------------------------------------------- */

/* Not a power of two: copies of the pool must not fall on the same cache lines. */
enum { POOL = (1 << 20) + 7 };

/* Normal numbers by the polar method, the same ones in every run. */
static void fill_pool(float *pool) {
    for (uint64_t i = 0; i < POOL; i++) {
        float x, y, s;
        uint64_t k = 0;
        do {
            x = 2.0f * ebro_uniform(i, k++) - 1.0f;
            y = 2.0f * ebro_uniform(i, k++) - 1.0f;
            s = x * x + y * y;
        } while (s >= 1.0f || s <= 0.0f);
        pool[i] = x * sqrtf(-2.0f * logf(s) / s);
    }
}

static uint64_t rotate_bytes(const struct eb_rig *r) {
    enum { UNKNOWN = 64 << 20, LEAST = 16 << 20 };
    long cache = 0;
#if defined(_SC_LEVEL3_CACHE_SIZE)
    if (strcmp(r->device->info.backend, "cpu") == 0) cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    uint64_t bytes = cache > 0 ? (uint64_t)cache : UNKNOWN;
    if (r->quick) return 0;
    return 3 * (bytes > LEAST ? bytes : LEAST);
}

int eb_rig_open(struct eb_rig *r, const struct eb_options *o, const struct eb_bench_options *b) {
    *r = (struct eb_rig){.n_runs = b->n_runs, .quick = b->quick};
    if (eb_runtime_open(o, &r->runtime, &r->err) != EBRO_OK ||
        eb_device_open_for(o, r->runtime, &r->device, &r->err) != EBRO_OK ||
        eb_stream_open(r->device, &r->stream, &r->err) != EBRO_OK)
        return eb_complain_device(&r->err);
    if (!(r->pool = malloc(POOL * sizeof *r->pool))) {
        eb_complain("out of memory for %d random numbers", (int)POOL);
        return EB_EXIT_MEMORY;
    }
    fill_pool(r->pool);
    r->rotate_bytes = rotate_bytes(r);
    return EB_EXIT_OK;
}

void eb_rig_reset(struct eb_rig *r) {
    while (r->n_mems > 0) eb_mem_free(r->device, &r->mems[--r->n_mems]);
    r->bytes = 0;
}

void eb_rig_close(struct eb_rig *r) {
    eb_rig_reset(r);
    free(r->pool);
    eb_stream_close(&r->stream);
    ebro_device_close(&r->device);
    ebro_runtime_close(&r->runtime);
}

bool eb_rig_failed(const struct eb_rig *r) {
    return r->err.status != EBRO_OK;
}

void eb_rig_note(struct eb_rig *r, int32_t status) {
    if (status != EBRO_OK) r->err.status = status;
}

/* ---- buffers ---------------------------------------------------------------------------- */

static ebro_span allocate(struct eb_rig *r, uint64_t bytes) {
    ebro_span span = {0};
    if (eb_rig_failed(r)) return span;
    if (r->n_mems == EB_RIG_MAX_MEMS) {
        r->err = (ebro_error){EBRO_INTERNAL, "a benchmark with too many buffers"};
        return span;
    }
    eb_rig_note(r, eb_mem_alloc(r->device, bytes, EBRO_MEM_DEVICE, &span.mem, &r->err));
    if (span.mem) r->mems[r->n_mems++] = span.mem;
    r->bytes += bytes;
    return span;
}

static void put(struct eb_rig *r, ebro_span to, const void *data, uint64_t bytes) {
    if (eb_rig_failed(r)) return;
    eb_rig_note(r, eb_upload(&r->stream, to, data, bytes, &r->err));
    if (!eb_rig_failed(r)) eb_rig_note(r, eb_stream_sync(&r->stream, &r->err));
}

ebro_span eb_rig_bytes(struct eb_rig *r, uint64_t bytes) {
    ebro_span span = allocate(r, bytes);
    if (eb_rig_failed(r)) return span;
    eb_rig_note(r, eb_fill(&r->stream, span, 0, bytes, &r->err));
    if (!eb_rig_failed(r)) eb_rig_note(r, eb_stream_sync(&r->stream, &r->err));
    return span;
}

ebro_span eb_rig_data(struct eb_rig *r, const void *data, uint64_t bytes) {
    ebro_span span = allocate(r, bytes);
    put(r, span, data, bytes);
    return span;
}

ebro_span eb_rig_scratch(struct eb_rig *r, ebro_op op, const void *args) {
    if (eb_rig_failed(r)) return (ebro_span){0};
    return eb_rig_bytes(r, eb_op_scratch(r->device, op, args));
}

/* n random numbers times `scale`, as F32 or as BF16 (cut off, not rounded: random all the same). */
static ebro_span random_data(struct eb_rig *r, uint64_t n, int32_t dtype, float scale) {
    enum { PIECE = 1 << 16 };
    uint64_t size = eb_dtype_size(dtype);
    ebro_span span = allocate(r, n * size);
    uint8_t *piece = eb_rig_failed(r) ? NULL : malloc(PIECE * sizeof(float));
    if (!piece && !eb_rig_failed(r))
        r->err = (ebro_error){EBRO_NOMEM_HOST, "no memory to fill a buffer"};
    for (uint64_t done = 0; done < n && !eb_rig_failed(r);) {
        uint64_t k = n - done < PIECE ? n - done : PIECE;
        for (uint64_t i = 0; i < k; i++) {
            float x = scale * r->pool[r->cursor];
            r->cursor = (r->cursor + 1) % POOL;
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            uint16_t high = (uint16_t)(bits >> 16);
            if (dtype == EBRO_F32)
                memcpy(piece + i * size, &bits, size);
            else
                memcpy(piece + i * size, &high, size);
        }
        put(r, (ebro_span){span.mem, done * size}, piece, k * size);
        done += k;
    }
    free(piece);
    return span;
}

ebro_mat eb_rig_mat(struct eb_rig *r, uint64_t rows, uint64_t cols) {
    ebro_span s = random_data(r, rows * cols, EBRO_F32, 1.0f);
    return (ebro_mat){s.mem, s.offset, cols, EBRO_F32};
}

ebro_mat eb_rig_out(struct eb_rig *r, uint64_t rows, uint64_t cols) {
    ebro_span s = eb_rig_bytes(r, rows * cols * sizeof(float));
    return (ebro_mat){s.mem, s.offset, cols, EBRO_F32};
}

ebro_weight eb_rig_weight(struct eb_rig *r, int32_t dtype, uint32_t rows, uint32_t cols) {
    ebro_span s = random_data(r, (uint64_t)rows * cols, dtype, 1.0f / sqrtf((float)cols));
    return (ebro_weight){.mem = s.mem,
                         .offset = s.offset,
                         .stride = cols,
                         .rows = rows,
                         .cols = cols,
                         .dtype = dtype};
}

ebro_vec eb_rig_vec(struct eb_rig *r, uint32_t n) {
    ebro_span s = random_data(r, n, EBRO_F32, 1.0f);
    return (ebro_vec){s.mem, s.offset, EBRO_F32};
}

uint64_t eb_rig_address(ebro_span span) {
    return span.mem ? span.mem->address + span.offset : 0;
}

/* ---- sequences -------------------------------------------------------------------------- */

/* first, first + step, ...: n of them. */
static ebro_span counting(struct eb_rig *r, uint32_t n, int32_t first, int32_t step) {
    int32_t *v = malloc((n ? n : 1) * sizeof *v);
    if (!v) {
        if (!eb_rig_failed(r)) r->err = (ebro_error){EBRO_NOMEM_HOST, "no memory for a table"};
        return (ebro_span){0};
    }
    for (uint32_t i = 0; i < n; i++) v[i] = first + step * (int32_t)i;
    ebro_span s = eb_rig_data(r, v, n * sizeof *v);
    free(v);
    return s;
}

/* Addresses of n pieces of `bytes` each in one buffer, in an order that only looks random. */
static ebro_span addresses(struct eb_rig *r, ebro_span base, uint32_t n, uint64_t bytes) {
    uint64_t *v = malloc((n ? n : 1) * sizeof *v);
    if (!v) {
        if (!eb_rig_failed(r)) r->err = (ebro_error){EBRO_NOMEM_HOST, "no memory for a table"};
        return (ebro_span){0};
    }
    for (uint32_t i = 0; i < n; i++) v[i] = eb_rig_address(base) + i * bytes;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)(ebro_uniform(n, i) * (float)i) % i;
        uint64_t t = v[i - 1];
        v[i - 1] = v[j];
        v[j] = t;
    }
    ebro_span s = eb_rig_data(r, v, n * sizeof *v);
    free(v);
    return s;
}

ebro_rows eb_rig_rows(struct eb_rig *r, uint32_t n_seqs, uint32_t n) {
    return (ebro_rows){.row_offsets = counting(r, n_seqs + 1, 0, (int32_t)n),
                       .n_seqs = n_seqs,
                       .n_rows = n_seqs * n,
                       .max_rows = n};
}

ebro_state_io eb_rig_state(struct eb_rig *r, uint32_t n_seqs, uint32_t units, uint64_t elements) {
    uint64_t unit_bytes = elements * sizeof(float);
    ebro_span blocks = random_data(r, (uint64_t)n_seqs * units * elements, EBRO_F32, 1.0f);
    return (ebro_state_io){.region = {.table = addresses(r, blocks, n_seqs, units * unit_bytes),
                                      .table_stride = 1,
                                      .units_per_block = units,
                                      .unit_bytes = unit_bytes,
                                      .dtype = EBRO_F32},
                           .state_in = counting(r, n_seqs, 0, 1),
                           .state_out = counting(r, n_seqs, 0, 1)};
}

ebro_pages eb_rig_pages(struct eb_rig *r, uint32_t n_seqs, uint32_t context, uint32_t n,
                        uint32_t row_elements, int32_t dtype) {
    enum { PAGE = 64 };
    uint32_t stride = (context + n + PAGE - 1) / PAGE;
    uint64_t page_elements = (uint64_t)PAGE * row_elements;
    ebro_span rows = random_data(r, (uint64_t)n_seqs * stride * page_elements, dtype, 1.0f);
    return (ebro_pages){
        .table = addresses(r, rows, n_seqs * stride, page_elements * eb_dtype_size(dtype)),
        .table_stride = stride,
        .page_tokens = PAGE,
        .row_stride = row_elements,
        .dtype = dtype,
        .context = counting(r, n_seqs, (int32_t)context, 0),
        .max_context = context + n};
}

/* ---- host copies ------------------------------------------------------------------------ */

static void *get(struct eb_rig *r, ebro_span from, uint64_t bytes) {
    if (eb_rig_failed(r)) return NULL;
    void *p = malloc(bytes ? bytes : 1);
    if (!p) {
        r->err = (ebro_error){EBRO_NOMEM_HOST, "no memory for a copy of a result"};
        return NULL;
    }
    eb_rig_note(r, eb_download(&r->stream, p, from, bytes, &r->err));
    if (!eb_rig_failed(r)) eb_rig_note(r, eb_stream_sync(&r->stream, &r->err));
    if (!eb_rig_failed(r)) return p;
    free(p);
    return NULL;
}

float *eb_rig_get(struct eb_rig *r, ebro_span from, uint64_t n) {
    return get(r, from, n * sizeof(float));
}

double *eb_rig_get_weight(struct eb_rig *r, const ebro_weight *w, uint32_t row, uint32_t n_rows) {
    uint64_t n = (uint64_t)n_rows * w->cols, size = eb_dtype_size(w->dtype);
    uint8_t *raw = get(r, (ebro_span){w->mem, w->offset + row * w->stride * size}, n * size);
    double *v = raw ? malloc(n * sizeof *v) : NULL;
    for (uint64_t i = 0; v && i < n; i++) {
        uint32_t bits = 0;
        float x;
        if (w->dtype == EBRO_F32) {
            memcpy(&bits, raw + i * size, 4);
        } else {
            uint16_t high;
            memcpy(&high, raw + i * size, 2);
            bits = (uint32_t)high << 16;
        }
        memcpy(&x, &bits, sizeof x);
        v[i] = (double)x;
    }
    if (raw && !v) r->err = (ebro_error){EBRO_NOMEM_HOST, "no memory for a copy of a weight"};
    free(raw);
    return v;
}

/* ---- calls ------------------------------------------------------------------------------ */

int32_t eb_rig_call(struct eb_rig *r, ebro_op op, const void *args) {
    struct eb_stream *s = &r->stream;
    ebro_error *err = &r->err;
    switch (op) {
#define CALL(N, name) \
    case EBRO_OP_##N: \
        return eb_op_##name(s, args, err);
        EBRO_OPS(CALL)
#undef CALL
        default:
            r->err = (ebro_error){EBRO_INTERNAL, "a benchmark of no op"};
            return EBRO_INTERNAL;
    }
}

/* `n` calls from set *next on. */
static void run_calls(struct eb_rig *r, uint64_t n, uint32_t n_sets, uint32_t *next,
                      int32_t (*fn)(void *, uint32_t), void *user) {
    for (uint64_t i = 0; i < n && !eb_rig_failed(r); i++) {
        eb_rig_note(r, fn(user, *next));
        *next = (*next + 1) % n_sets;
    }
    if (!eb_rig_failed(r)) eb_rig_note(r, eb_stream_sync(&r->stream, &r->err));
}

/* A graphics device that was idle runs at a low clock and takes a moment to leave it. */
static void warm_up(struct eb_rig *r, uint32_t n_sets, uint32_t *next,
                    int32_t (*fn)(void *, uint32_t), void *user) {
    const double seconds = 0.2;
    if (r->quick || strcmp(r->device->info.backend, "cpu") == 0) return;
    for (double begin = eb_seconds(); eb_seconds() - begin < seconds && !eb_rig_failed(r);)
        run_calls(r, n_sets, n_sets, next, fn, user);
}

void eb_rig_time(struct eb_rig *r, uint32_t n_sets, int32_t (*fn)(void *user, uint32_t set),
                 void *user, struct eb_samples *wall, struct eb_samples *cpu) {
    /* Seconds that a clock and a wake-up disturb little: a thread that waits for a graphics device
     * may be woken milliseconds late. */
    const bool on_host = strcmp(r->device->info.backend, "cpu") == 0;
    const double least = r->quick ? 0.0 : on_host ? 0.01 : 0.1;
    uint32_t next = 0;
    uint64_t n = 1;
    double seconds = 0.0;
    run_calls(r, n_sets, n_sets, &next, fn, user);
    warm_up(r, n_sets, &next, fn, user);
    while (!eb_rig_failed(r)) {
        double begin = eb_seconds();
        run_calls(r, n, n_sets, &next, fn, user);
        seconds = eb_seconds() - begin;
        if (seconds >= least) break;
        n = seconds > 0.1 * least ? (uint64_t)((double)n * 1.2 * least / seconds) + 1 : 10 * n;
    }
    for (uint64_t i = 0; i < r->n_runs && !eb_rig_failed(r); i++) {
        double begin = eb_seconds(), cpu_begin = eb_bench_cpu_seconds();
        run_calls(r, n, n_sets, &next, fn, user);
        eb_samples_add(wall, (eb_seconds() - begin) / (double)n);
        eb_samples_add(cpu, (eb_bench_cpu_seconds() - cpu_begin) / (double)n);
    }
}
