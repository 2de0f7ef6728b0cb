/* table.h: what compilers said of pipelines, in one row each, and the verdict. */
#ifndef EB_VKCHECK_TABLE_H
#define EB_VKCHECK_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A figure that the driver does not tell is EB_UNTOLD. */
enum { EB_UNTOLD = -1, EB_MAX_PIPELINES = 2048 };

struct eb_pipeline_row {
    char kernel[32], variant[24], specs[96];
    char what[128]; /* the call that it was made for first */
    uint32_t threads;
    int64_t subgroup;
    int64_t registers;        /* of a thread: VGPRs, or what the driver calls registers */
    int64_t scalar_registers; /* SGPRs of a subgroup */
    int64_t spills;           /* registers that were put into memory */
    int64_t scalar_spills;    /* SGPRs that were put into VGPRs */
    int64_t scratch_bytes;    /* of a thread */
    int64_t shared_bytes;     /* of a workgroup */
    int64_t occupancy;        /* subgroups that a SIMD unit, or a multiprocessor, can hold */
    int64_t instructions;
    int64_t matrix; /* matrix instructions */
};

struct eb_table {
    struct eb_pipeline_row rows[EB_MAX_PIPELINES];
    uint32_t n_rows;
    uint32_t n_lost; /* that found no room, or whose line was not understood */
};

/* Takes a line of the log; one that does not tell of a pipeline is passed over. A pipeline that is
 * there already is kept once. */
void eb_table_add(struct eb_table *t, const char *line, const char *what);

/* All rows, by kernel, in columns. */
void eb_table_print(struct eb_table *t, FILE *to);

/* One line: how many, how many spill, which use most registers and hold fewest subgroups. */
void eb_table_sum_up(const struct eb_table *t, const char *device, uint32_t n_failed, FILE *to);

/* Kernels of kernels.def that no pipeline is of, each said on `to`; returns how many. A kernel
 * whose plain variant is the absent one, which devices may do without, is passed over. */
uint32_t eb_table_unseen(const struct eb_table *t, FILE *to);

/* Pipelines that put registers into memory. */
uint32_t eb_table_spilling(const struct eb_table *t);

#endif
