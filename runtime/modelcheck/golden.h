/* golden.h: reads golden.bin, what is known in float64 of a model's prompts. tools/golden.py writes
 * it and describes it. */
#ifndef EB_MODELCHECK_GOLDEN_H
#define EB_MODELCHECK_GOLDEN_H

#include <stdbool.h>

#include "base/alloc.h"

enum { EB_GOLDEN_MAX_PROMPTS = 16, EB_GOLDEN_NAME = 16 };

struct eb_golden_prompt {
    char name[EB_GOLDEN_NAME + 1], answer[EB_GOLDEN_NAME + 1];
    uint32_t n_ids, n_rows, n_next, shift;
    int32_t *ids;           /* [n_ids] */
    int32_t *best, *second; /* [n_next]: how it goes on, and what comes next to that */
    float *margin;          /* [n_next]: by how much */
    double *logits;         /* [n_rows][n_columns], rows of the last tokens; NULL: none are known */
    int32_t *experts;       /* [n_layers][n_ids][top_k], MoE layers alone; NULL: not known */
};

struct eb_golden {
    const struct eb_alloc *alloc;
    uint32_t n_prompts, vocab, stride, n_layers, top_k;
    struct eb_golden_prompt prompts[EB_GOLDEN_MAX_PROMPTS];
};

/* Of a row of a prompt those columns are known: (row + shift) % stride and every stride-th on. */
static inline uint32_t eb_golden_columns(const struct eb_golden *g) {
    return g->vocab / g->stride;
}

/* FORMAT where the bytes are no such file. Free it either way. */
int32_t eb_golden_read(struct eb_golden *g, const struct eb_alloc *alloc, const void *data,
                       size_t bytes, ebro_error *err);
void eb_golden_free(struct eb_golden *g);

#endif
