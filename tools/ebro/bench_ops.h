/* bench_ops.h: one operator at one size, and where the sizes are listed. */
#ifndef EB_BENCH_OPS_H
#define EB_BENCH_OPS_H

#include "bench_rig.h"

union eb_op_args {
#define EB_OP_ARGS(N, name) ebro_##name##_args name;
    EBRO_OPS(EB_OP_ARGS)
#undef EB_OP_ARGS
};

/* What a call costs at least: each byte that must move once, each multiply-add of the op's
 * definition. What a backend moves between its own kernels is not in it. */
struct eb_op_floor {
    double bytes, multiply_adds; /* 0: not counted */
};

struct eb_op_case {
    ebro_op op;
    const char *shape; /* a few words; with --quick only those that begin with "tiny " */
    const void *size;  /* the list's own description of it */
    /* Makes one copy of the data and the call on it. */
    void (*build)(struct eb_rig *r, const void *size, union eb_op_args *a, struct eb_op_floor *f);
    /* Relative error (Frobenius) of the output of one call against float64, over the part that is
     * cheap to compute; NULL: none is. Calls the op itself. */
    double (*error)(struct eb_rig *r, const void *size, const union eb_op_args *a);
};

struct eb_ops_bench;
/* Measures one case and notes its row. The lists call it for each of theirs. */
void eb_ops_run(struct eb_ops_bench *b, const struct eb_op_case *c);
/* The device is a CPU: the largest sizes are left out. */
bool eb_ops_on_cpu(const struct eb_ops_bench *b);

/* The lists. */
void eb_ops_dense(struct eb_ops_bench *b);
void eb_ops_kda(struct eb_ops_bench *b);
void eb_ops_mla(struct eb_ops_bench *b);
void eb_ops_moe(struct eb_ops_bench *b);

/* Sums of squares for relative errors. */
struct eb_error_sum {
    double difference, reference;
};
static inline void eb_error_add(struct eb_error_sum *s, double got, double ref) {
    s->difference += (got - ref) * (got - ref);
    s->reference += ref * ref;
}
/* < 0: nothing was compared. */
double eb_error_relative(const struct eb_error_sum *s);

#endif
