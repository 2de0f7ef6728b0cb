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
    ebro_embed_args embed;
    ebro_sample_args sample;
    ebro_rms_norm_args rms_norm;
    ebro_linear_args linear;
    ebro_act_mul_args act_mul;
    ebro_kda_conv_args kda_conv;
    ebro_kda_prep_args kda_prep;
    ebro_kda_recur_args kda_recur;
    ebro_kda_step_args kda_step;
    ebro_mla_append_args mla_append;
    ebro_mla_prefill_args mla_prefill;
    ebro_mla_decode_args mla_decode;
    ebro_moe_route_args moe_route;
    ebro_moe_experts_args moe_experts;
    ebro_attn_res_mix_args attn_res_mix;
    ebro_state_copy_args state_copy;
    ebro_rows_copy_args rows_copy;
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

/* X(member, number) for every op. */
#define FAKE_OPS(X)                       \
    X(embed, EBRO_OP_EMBED)               \
    X(sample, EBRO_OP_SAMPLE)             \
    X(rms_norm, EBRO_OP_RMS_NORM)         \
    X(linear, EBRO_OP_LINEAR)             \
    X(act_mul, EBRO_OP_ACT_MUL)           \
    X(kda_conv, EBRO_OP_KDA_CONV)         \
    X(kda_prep, EBRO_OP_KDA_PREP)         \
    X(kda_recur, EBRO_OP_KDA_RECUR)       \
    X(kda_step, EBRO_OP_KDA_STEP)         \
    X(mla_append, EBRO_OP_MLA_APPEND)     \
    X(mla_prefill, EBRO_OP_MLA_PREFILL)   \
    X(mla_decode, EBRO_OP_MLA_DECODE)     \
    X(moe_route, EBRO_OP_MOE_ROUTE)       \
    X(moe_experts, EBRO_OP_MOE_EXPERTS)   \
    X(attn_res_mix, EBRO_OP_ATTN_RES_MIX) \
    X(state_copy, EBRO_OP_STATE_COPY)     \
    X(rows_copy, EBRO_OP_ROWS_COPY)

#define FAKE_FUNCTIONS(name, number)                                                         \
    static inline int32_t fake_##name(ebro_stream *s, const ebro_##name##_args *a,           \
                                      ebro_error *err) {                                     \
        return fake_record(s, number, a, sizeof *a, err);                                    \
    }                                                                                        \
    static inline int32_t call_##name(struct eb_stream *s, const void *a, ebro_error *err) { \
        return eb_op_##name(s, a, err);                                                      \
    }                                                                                        \
    static inline void drop_##name(ebro_backend *be) {                                       \
        be->name = NULL;                                                                     \
    }
#define FAKE_MEMBER(name, number) .name = fake_##name,
#define FAKE_CALL(name, number) [number] = call_##name,
#define FAKE_DROP(name, number) [number] = drop_##name,

FAKE_OPS(FAKE_FUNCTIONS)

static inline ebro_backend fake_table(void) {
    return (ebro_backend){.size = sizeof(ebro_backend),
                          .abi = EBRO_BACKEND_ABI,
                          .name = "fake",
                          .scratch_bytes = fake_scratch_bytes,
                          FAKE_OPS(FAKE_MEMBER)};
}

/* The validated call of an op. */
static inline int32_t fake_call(ebro_op op, struct eb_stream *s, const void *a, ebro_error *err) {
    static int32_t (*const calls[EBRO_N_OPS])(struct eb_stream *, const void *,
                                              ebro_error *) = {FAKE_OPS(FAKE_CALL)};
    return calls[op](s, a, err);
}

/* Takes the op out of a table. */
static inline void fake_drop(ebro_op op, ebro_backend *be) {
    static void (*const drops[EBRO_N_OPS])(ebro_backend *) = {FAKE_OPS(FAKE_DROP)};
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
