/* bench_rig.h: what benchmarks of single operators stand on: an open device, buffers with random
 * contents, calls timed over several copies of their data, and the ceilings of the device. These
 * parts of the program reach into the runtime, below the public API: operators are called through
 * runtime/ops, as the engine calls them. */
#ifndef EB_BENCH_RIG_H
#define EB_BENCH_RIG_H

#include "bench.h"
#include "ops/ops.h"

enum { EB_RIG_MAX_MEMS = 4096, EB_RIG_MAX_SETS = 64 };

/* The first failure stays in `err`; whatever is asked of the rig after it does nothing. */
struct eb_rig {
    ebro_runtime *runtime;
    ebro_device *device;
    struct eb_stream stream;
    ebro_error err;
    uint64_t n_runs;
    bool quick;
    /* Copies of a call's data take at least this together, so that no cache holds them. */
    uint64_t rotate_bytes;
    uint64_t bytes; /* of the memory that is there now */
    ebro_mem *mems[EB_RIG_MAX_MEMS];
    uint32_t n_mems;
    float *pool; /* random numbers that buffers are filled from */
    uint64_t cursor;
};

/* An exit code; eb_rig_close may follow any failure. */
int eb_rig_open(struct eb_rig *r, const struct eb_options *o, const struct eb_bench_options *b);
void eb_rig_close(struct eb_rig *r);
/* Frees all buffers. */
void eb_rig_reset(struct eb_rig *r);
bool eb_rig_failed(const struct eb_rig *r);
void eb_rig_note(struct eb_rig *r, int32_t status); /* of a call that wrote to r->err */

/* Buffers, owned by the rig until eb_rig_reset. */
ebro_span eb_rig_bytes(struct eb_rig *r, uint64_t bytes); /* of zeros */
ebro_span eb_rig_data(struct eb_rig *r, const void *data, uint64_t bytes);
ebro_span eb_rig_scratch(struct eb_rig *r, ebro_op op, const void *args);
/* F32, dense. Normal numbers, or zeros. */
ebro_mat eb_rig_mat(struct eb_rig *r, uint64_t rows, uint64_t cols);
ebro_mat eb_rig_out(struct eb_rig *r, uint64_t rows, uint64_t cols);
/* Normal numbers / sqrt(cols), so that products keep the size of what they are given. F32, BF16. */
ebro_weight eb_rig_weight(struct eb_rig *r, int32_t dtype, uint32_t rows, uint32_t cols);
ebro_vec eb_rig_vec(struct eb_rig *r, uint32_t n); /* F32, normal numbers */
uint64_t eb_rig_address(ebro_span span);

/* n_seqs sequences of n rows each. */
ebro_rows eb_rig_rows(struct eb_rig *r, uint32_t n_seqs, uint32_t n);
/* One slot for each of n_seqs sequences, in place, every unit of F32 elements in one block. */
ebro_state_io eb_rig_state(struct eb_rig *r, uint32_t n_seqs, uint32_t units, uint64_t elements);
/* A cache that holds `context` tokens of each of n_seqs sequences and has room for n more; pages
 * of 64 tokens, in an order that only looks random. */
ebro_pages eb_rig_pages(struct eb_rig *r, uint32_t n_seqs, uint32_t context, uint32_t n,
                        uint32_t row_elements, int32_t dtype);

/* Host copies for references, free them; NULL after a failure. */
float *eb_rig_get(struct eb_rig *r, ebro_span from, uint64_t n);
double *eb_rig_get_weight(struct eb_rig *r, const ebro_weight *w, uint32_t row, uint32_t n_rows);

/* The op of an argument struct, through runtime/ops. */
int32_t eb_rig_call(struct eb_rig *r, ebro_op op, const void *args);

/* Calls fn(user, set) for the sets in turn and adds n_runs samples of seconds per call. Every set
 * is called once before. */
void eb_rig_time(struct eb_rig *r, uint32_t n_sets, int32_t (*fn)(void *user, uint32_t set),
                 void *user, struct eb_samples *wall, struct eb_samples *cpu);

/* What the device could do at best, measured now. 0: not known. */
struct eb_ceilings {
    double read_bytes; /* per second; on the CPU reads alone, elsewhere copies, both ways counted */
    double multiply_adds; /* f32, per second, of the rung's instructions */
};
struct eb_ceilings eb_rig_ceilings(struct eb_rig *r, const struct eb_bench_host *h);

#endif
