/* rig.h: what the op tests share: a device of the group's (rig_run), open, guarded and poisoned
 * buffers, and random weights with their float64 values. One rig per program.
 *
 * Every buffer is filled with 0xff bytes (NaN as f32) before use and has a guard band on each side:
 * a read outside gives NaN, a write outside is found by rig_get. */
#ifndef EB_TEST_RIG_H
#define EB_TEST_RIG_H

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/budget.h"
#include "check/ref.h"
#include "ops/ops.h"
#include "tests/harness/devices.h"
#include "tests/harness/test.h"

enum { RIG_GUARD = 256, RIG_MAX_MEMS = 4096 };

static struct rig {
    ebro_runtime *rt;
    ebro_device *device;
    struct eb_stream s;
    struct test_rng rng;
    ebro_mem *mems[RIG_MAX_MEMS];
    void *hosts[RIG_MAX_MEMS];
    size_t n_mems, n_hosts;
    uint32_t stride;
    ebro_error err;
} rig;

/* Long loops over rounds or sizes start at rig_first() and go on by rig.stride: all of them, on an
 * imitated device every fifth, from another one each time. EBRO_TEST_FULL takes all there too. */
static inline uint32_t rig_first(void) {
    return (uint32_t)(test_u64(&rig.rng) % rig.stride);
}

static inline int rig_setup(void **state) {
    (void)state;
    ebro_runtime_options options = {.size = sizeof options, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&options, &rig.rt, &rig.err), &rig.err);
    const char *mask = getenv("EBRO_TEST_CAPS_MASK"); /* to see a slower rung */
    ebro_device_settings settings = {.size = sizeof settings,
                                     .caps_mask = mask ? strtoull(mask, NULL, 0) : 0};
    test_ok(ebro_device_open_with(rig.rt, test_device(), &settings, &rig.device, &rig.err),
            &rig.err);
    const char *needed = getenv("EBRO_TEST_CAPS"); /* lest another rung is tested unseen */
    uint64_t caps = needed ? strtoull(needed, NULL, 0) : 0;
    assert_int_equal(rig.device->caps.bits & caps, caps);
    test_ok(eb_stream_open(rig.device, &rig.s, &rig.err), &rig.err);
    rig.rng.s = test_seed();
    rig.stride = test_device_is_emulated() && getenv("EBRO_TEST_FULL") == NULL ? 5 : 1;
    return 0;
}

/* After each test: gives back everything that it made. */
static inline int rig_reset(void **state) {
    (void)state;
    for (size_t i = 0; i < rig.n_mems; i++) eb_mem_free(rig.device, &rig.mems[i]);
    for (size_t i = 0; i < rig.n_hosts; i++) free(rig.hosts[i]);
    rig.n_mems = rig.n_hosts = 0;
    return 0;
}

static inline int rig_teardown(void **state) {
    rig_reset(state);
    eb_stream_close(&rig.s);
    ebro_device_close(&rig.device);
    ebro_runtime_close(&rig.rt);
    return 0;
}

/* What main() returns: runs the tests, an array, on every device that computes. A test gives back
 * what it made by rig_reset as its teardown. */
#define rig_run(name, tests) test_on_devices((name), (tests), rig_setup, rig_teardown)

/* Host memory until the end of the test. */
static inline void *rig_host(uint64_t n, uint64_t size) {
    assert_true(rig.n_hosts < RIG_MAX_MEMS);
    void *p = calloc((size_t)n + 1, (size_t)size);
    assert_non_null(p);
    rig.hosts[rig.n_hosts++] = p;
    return p;
}

/* Tells the rig to free what the harness allocated. */
static inline void *rig_keep(void *p) {
    assert_true(p != NULL && rig.n_hosts < RIG_MAX_MEMS);
    rig.hosts[rig.n_hosts++] = p;
    return p;
}

struct rig_buf {
    ebro_span span; /* after the first guard band */
    uint64_t bytes;
};

static inline struct rig_buf rig_buf(uint64_t bytes) {
    struct rig_buf b = {.bytes = bytes};
    assert_true(rig.n_mems < RIG_MAX_MEMS);
    test_ok(eb_mem_alloc(rig.device, bytes + 2 * RIG_GUARD, EBRO_MEM_DEVICE, &b.span.mem, &rig.err),
            &rig.err);
    rig.mems[rig.n_mems++] = b.span.mem;
    b.span.offset = RIG_GUARD;
    ebro_span all = {b.span.mem, 0};
    test_ok(eb_fill(&rig.s, all, 0xff, bytes + 2 * RIG_GUARD, &rig.err), &rig.err);
    test_ok(eb_stream_sync(&rig.s, &rig.err), &rig.err);
    return b;
}

static inline void rig_put(const struct rig_buf *b, uint64_t offset, const void *data,
                           uint64_t bytes) {
    ebro_span at = {b->span.mem, b->span.offset + offset};
    assert_true(offset + bytes <= b->bytes);
    test_ok(eb_upload(&rig.s, at, data, bytes, &rig.err), &rig.err);
    test_ok(eb_stream_sync(&rig.s, &rig.err), &rig.err);
}

static inline struct rig_buf rig_data(const void *data, uint64_t bytes) {
    struct rig_buf b = rig_buf(bytes);
    if (bytes > 0) rig_put(&b, 0, data, bytes);
    return b;
}

/* The bytes, in host memory of the rig, after the guard bands were looked at. */
static inline void *rig_get(const struct rig_buf *b) {
    uint8_t *all = rig_host(b->bytes + 2 * RIG_GUARD, 1);
    ebro_span start = {b->span.mem, 0};
    test_ok(eb_download(&rig.s, all, start, b->bytes + 2 * RIG_GUARD, &rig.err), &rig.err);
    test_ok(eb_stream_sync(&rig.s, &rig.err), &rig.err);
    for (uint64_t i = 0; i < RIG_GUARD; i++) {
        if (all[i] != 0xff || all[RIG_GUARD + b->bytes + i] != 0xff) {
            fail_msg("a guard byte was overwritten, %" PRIu64 " from the edge", i);
        }
    }
    return all + RIG_GUARD;
}

/* A strided matrix of 4-byte elements. */
struct rig_mat {
    struct rig_buf buf;
    ebro_mat m;
    uint64_t rows, cols;
};

/* Padding columns and all elements are 0xff. */
static inline struct rig_mat rig_mat(uint64_t rows, uint64_t cols, uint64_t padding) {
    struct rig_mat r = {.rows = rows, .cols = cols};
    r.buf = rig_buf(rows * (cols + padding) * 4);
    r.m = (ebro_mat){r.buf.span.mem, r.buf.span.offset, cols + padding, EBRO_F32};
    return r;
}

static inline void rig_mat_put(const struct rig_mat *r, const void *dense) {
    for (uint64_t i = 0; i < r->rows && r->cols > 0; i++) {
        rig_put(&r->buf, i * r->m.stride * 4, (const uint8_t *)dense + i * r->cols * 4,
                r->cols * 4);
    }
}

static inline struct rig_mat rig_mat_from(const void *dense, uint64_t rows, uint64_t cols,
                                          uint64_t padding) {
    struct rig_mat r = rig_mat(rows, cols, padding);
    rig_mat_put(&r, dense);
    return r;
}

/* Dense copy, after the padding was looked at. */
static inline void *rig_mat_get(const struct rig_mat *r) {
    const uint8_t *all = rig_get(&r->buf);
    uint8_t *dense = rig_host(r->rows * r->cols, 4);
    for (uint64_t i = 0; i < r->rows; i++) {
        const uint8_t *row = all + i * r->m.stride * 4;
        memcpy(dense + i * r->cols * 4, row, r->cols * 4);
        for (uint64_t k = r->cols * 4; k < r->m.stride * 4; k++) {
            if (row[k] != 0xff) fail_msg("padding of row %" PRIu64 " was overwritten", i);
        }
    }
    return dense;
}

/* Random normal numbers times scale. */
static inline float *rig_normal(uint64_t n, float scale) {
    float *x = rig_host(n, sizeof *x);
    for (uint64_t i = 0; i < n; i++) x[i] = scale * test_normal(&rig.rng);
    return x;
}

static inline uint32_t rig_below(uint32_t n) {
    return (uint32_t)(test_u64(&rig.rng) % n);
}

/* One random element of F32, F16 or BF16 (magnitudes about 1/32 to 2, now and then a subnormal
 * half) with its value. */
static inline double rig_element(int32_t dtype, uint8_t *out) {
    uint64_t u = test_u64(&rig.rng);
    double sign = u & 1 ? -1.0 : 1.0;
    if (dtype == EBRO_F32) {
        float f = test_normal(&rig.rng);
        memcpy(out, &f, sizeof f);
        return (double)f;
    }
    int exponent = (int)(u >> 1 & 7) - 5;
    bool half = dtype == EBRO_F16, tiny = half && (u >> 4 & 63) == 0;
    uint32_t bits = half ? 10 : 7, bias = half ? 15 : 127, mantissa = (uint32_t)(u >> 16);
    mantissa &= (1u << bits) - 1u;
    uint32_t field = tiny ? 0u : (uint32_t)(exponent + (int)bias);
    uint16_t h = (uint16_t)((u & 1 ? 0x8000u : 0u) | field << bits | mantissa);
    memcpy(out, &h, sizeof h);
    if (tiny) return sign * ldexp(mantissa, -24);
    return sign * ldexp((double)(mantissa + (1u << bits)), exponent - (int)bits);
}

/* A random weight: values in float64, [rows][cols] dense. MXFP4: scales from 2^-3 to 2^4. */
struct rig_weight {
    double *v;
    ebro_weight w;
    uint64_t bytes; /* of the data of one matrix, padding included */
};

/* n matrices one after the other (MXFP4: 1). */
static inline struct rig_weight rig_weights(uint32_t n, int32_t dtype, uint32_t rows, uint32_t cols,
                                            uint32_t padding) {
    struct rig_weight r = {.v = rig_host((uint64_t)n * rows * cols, sizeof *r.v)};
    r.w = (ebro_weight){.rows = rows, .cols = cols, .stride = cols, .dtype = dtype};
    if (dtype == EBRO_MXFP4) {
        uint64_t groups = (uint64_t)rows * cols / 32;
        uint8_t *codes = rig_host(groups, 16), *scales = rig_host(groups, 1);
        for (uint64_t i = 0; i < groups; i++) scales[i] = (uint8_t)(124 + rig_below(8));
        for (uint64_t i = 0; i < groups * 32; i++) {
            uint32_t code = rig_below(16);
            codes[i / 2] = (uint8_t)(codes[i / 2] | code << (i % 2 * 4));
            r.v[i] = eb_ref_mx(code, scales[i / 32]);
        }
        struct rig_buf b = rig_data(codes, groups * 16), sb = rig_data(scales, groups);
        r.w.mem = b.span.mem;
        r.w.offset = b.span.offset;
        r.w.scale_mem = sb.span.mem;
        r.w.scale_offset = sb.span.offset;
        return r;
    }
    uint64_t size = eb_dtype_size(dtype), stride = cols + padding;
    r.bytes = rows * stride * size;
    uint8_t *data = rig_host(n * r.bytes, 1);
    memset(data, 0xff, n * r.bytes);
    for (uint64_t i = 0; i < (uint64_t)n * rows; i++) {
        for (uint64_t c = 0; c < cols; c++) {
            r.v[i * cols + c] = rig_element(dtype, data + (i * stride + c) * size);
        }
    }
    struct rig_buf b = rig_data(data, n * r.bytes);
    r.w.mem = b.span.mem;
    r.w.offset = b.span.offset;
    r.w.stride = stride;
    return r;
}

static inline struct rig_weight rig_weight(int32_t dtype, uint32_t rows, uint32_t cols,
                                           uint32_t padding) {
    return rig_weights(1, dtype, rows, cols, padding);
}

/* A random vector with its values. */
static inline ebro_vec rig_vec(int32_t dtype, uint32_t n, double **values) {
    struct rig_weight w = rig_weight(dtype, 1, n, 0);
    *values = w.v;
    return (ebro_vec){w.w.mem, w.w.offset, dtype};
}

static inline ebro_vec rig_vec_from(const float *v, uint64_t n) {
    struct rig_buf b = rig_data(v, n * sizeof *v);
    return (ebro_vec){b.span.mem, b.span.offset, EBRO_F32};
}

static inline ebro_span rig_scratch(ebro_op op, const void *args) {
    return rig_buf(eb_op_scratch(rig.device, op, args)).span;
}

static inline void rig_sync(void) {
    test_ok(eb_stream_sync(&rig.s, &rig.err), &rig.err);
}

#endif
