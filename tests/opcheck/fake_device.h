/* fake_device.h: a device made by hand whose ops do nothing but write down that they were called.
 * For tests of runtime/ops alone. */
#ifndef EB_FAKE_DEVICE_H
#define EB_FAKE_DEVICE_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ops/ops.h"
#include "tests/harness/test.h"

union any_args {
    size_t size;
#define ANY_MEMBER(N, name) ebro_##name##_args name;
    EBRO_OPS(ANY_MEMBER)
#undef ANY_MEMBER
};

enum { FAKE_CALLS = 16, FAKE_MEMS = 128 };

/* What happened, and what shall happen. */
static struct fake {
    uint32_t n_calls;
    ebro_op ops[FAKE_CALLS];
    const void *given[FAKE_CALLS];   /* the pointer that arrived */
    union any_args args[FAKE_CALLS]; /* a copy of what it pointed at */
    ebro_stream *streams[FAKE_CALLS];
    int32_t result; /* of every op from call `fail_at` on */
    uint32_t fail_at;
    uint64_t scratch[EBRO_N_OPS];
    ebro_mem mems[FAKE_MEMS];
    uint32_t n_mems;
} fake;

static inline int32_t fake_record(ebro_stream *s, ebro_op op, const void *a, size_t bytes,
                                  ebro_error *err) {
    uint32_t i = fake.n_calls++;
    if (i < FAKE_CALLS) {
        fake.ops[i] = op;
        fake.given[i] = a;
        fake.streams[i] = s;
        memcpy(&fake.args[i], a, bytes);
    }
    if (fake.result == EBRO_OK || i < fake.fail_at) return EBRO_OK;
    return eb_fail(err, fake.result, "the fake device was told to fail");
}

static inline uint64_t fake_scratch_bytes(ebro_dev *dev, ebro_op op, const void *args) {
    (void)dev;
    (void)args;
    return fake.scratch[op];
}

#define FAKE_FUNCTIONS(N, name)                                                              \
    static inline int32_t fake_##name(ebro_stream *s, const ebro_##name##_args *a,           \
                                      ebro_error *err) {                                     \
        return fake_record(s, EBRO_OP_##N, a, sizeof *a, err);                               \
    }                                                                                        \
    static inline int32_t call_##name(struct eb_stream *s, const void *a, ebro_error *err) { \
        return eb_op_##name(s, a, err);                                                      \
    }                                                                                        \
    static inline void drop_##name(ebro_backend *be) {                                       \
        be->name = NULL;                                                                     \
    }
#define FAKE_MEMBER(N, name) .name = fake_##name,
#define FAKE_CALL(N, name) [EBRO_OP_##N] = call_##name,
#define FAKE_DROP(N, name) [EBRO_OP_##N] = drop_##name,

EBRO_OPS(FAKE_FUNCTIONS)

static inline ebro_backend fake_table(void) {
    return (ebro_backend){.size = sizeof(ebro_backend),
                          .abi = EBRO_BACKEND_ABI,
                          .name = "fake",
                          .scratch_bytes = fake_scratch_bytes,
                          EBRO_OPS(FAKE_MEMBER)};
}

/* The validated call of an op. */
static inline int32_t fake_call(ebro_op op, struct eb_stream *s, const void *a, ebro_error *err) {
    static int32_t (*const calls[EBRO_N_OPS])(struct eb_stream *, const void *,
                                              ebro_error *) = {EBRO_OPS(FAKE_CALL)};
    return calls[op](s, a, err);
}

/* Takes the op out of a table. */
static inline void fake_drop(ebro_op op, ebro_backend *be) {
    static void (*const drops[EBRO_N_OPS])(ebro_backend *) = {EBRO_OPS(FAKE_DROP)};
    drops[op](be);
}

/* A fresh device and stream over `be`; forgets all calls and memories. */
static inline struct eb_stream fake_open(struct ebro_device *d, const ebro_backend *be) {
    memset(&fake, 0, sizeof fake);
    memset(d, 0, sizeof *d);
    atomic_init(&d->lost, 0);
    d->be = be;
    d->dev = (ebro_dev *)(void *)d; /* opaque to ops: any address tells whether it is handed on */
    snprintf(d->info.name, sizeof d->info.name, "FAKE7");
    return (struct eb_stream){.device = d, .impl = (ebro_stream *)(void *)&fake};
}

/* A memory of exactly so many bytes, so that one byte less is one too few. */
static inline ebro_mem *fake_mem(uint64_t bytes) {
    assert_true(fake.n_mems < FAKE_MEMS);
    ebro_mem *m = &fake.mems[fake.n_mems++];
    *m = (ebro_mem){.bytes = bytes, .address = 4096u * (uint64_t)fake.n_mems};
    return m;
}

static inline ebro_span fake_span(uint64_t n, uint64_t element) {
    return (ebro_span){.mem = fake_mem(16 + n * element), .offset = 16};
}

static inline ebro_mat fake_mat(uint64_t rows, uint64_t cols, uint64_t stride, int32_t dtype) {
    uint64_t elements = rows == 0 ? 0 : (rows - 1) * stride + cols;
    return (ebro_mat){.mem = fake_mem(32 + elements * eb_dtype_size(dtype)),
                      .offset = 32,
                      .stride = stride,
                      .dtype = dtype};
}

static inline ebro_vec fake_vec(uint64_t n, int32_t dtype) {
    return (ebro_vec){.mem = fake_mem(8 + n * eb_dtype_size(dtype)), .offset = 8, .dtype = dtype};
}

static inline ebro_weight fake_weight(uint32_t rows, uint32_t cols, int32_t dtype) {
    ebro_weight w = {.offset = 24, .stride = cols, .rows = rows, .cols = cols, .dtype = dtype};
    if (dtype == EBRO_MXFP4) {
        w.mem = fake_mem(24 + (uint64_t)rows * cols / 2);
        w.scale_mem = fake_mem(5 + (uint64_t)rows * cols / 32);
        w.scale_offset = 5;
        return w;
    }
    w.stride = cols + 4u;
    uint64_t elements = (rows - 1u) * w.stride + cols;
    w.mem = fake_mem(24 + elements * eb_dtype_size(dtype));
    return w;
}

#endif
