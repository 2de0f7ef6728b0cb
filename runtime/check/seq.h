/* seq.h: what cases of KDA and MLA add to a trial: rows of sequences, states scattered over blocks
 * in random order and padded, and a cache whose pages lie in random order. Every byte of them that
 * an op has no business with must stay what it was. */
#ifndef EB_CHECK_SEQ_H
#define EB_CHECK_SEQ_H

#include "check/trial.h"

enum { EB_SEQ_SLOTS = 24, EB_SEQ_SHARED = 3 };

/* One sequence of n rows from slot in to slot out. */
struct eb_ref_plan eb_seq_plan_one(uint32_t n, int32_t in, int32_t out);
/* Sequences of awkward lengths up to max_length, some empty; start states absent, shared, or
 * written in place; end states kept or not; emitted states anywhere. Slots [0, EB_SEQ_SHARED) are
 * only read, all are below EB_SEQ_SLOTS. */
struct eb_ref_plan eb_seq_plan_random(struct eb_trial *t, uint32_t max_length);
/* "3 sequences, 40 rows, 2 emitted" */
void eb_seq_plan_words(const struct eb_ref_plan *p, char *out, size_t bytes);

ebro_rows eb_seq_rows(struct eb_trial *t, const struct eb_ref_plan *p);
/* Matrices of the plan's rows, with its padding and slack rows of poison. */
struct eb_trial_mat eb_seq_in(struct eb_trial *t, const struct eb_ref_plan *p, const float *dense,
                              uint64_t cols);
struct eb_trial_mat eb_seq_out(struct eb_trial *t, const struct eb_ref_plan *p, uint64_t cols);
float *eb_seq_get(struct eb_trial *t, const struct eb_ref_plan *p, const struct eb_trial_mat *m);

/* ---- states ----------------------------------------------------------------------------- */

struct eb_seq_layout {
    uint32_t units_per_block, first_unit, first_block;
    uint32_t gap; /* elements before the first unit of a block and after each unit */
};
struct eb_seq_layout eb_seq_layout_random(struct eb_trial *t, uint32_t units);

struct eb_seq_pool {
    struct eb_trial_buf buf;
    uint64_t *at; /* [n_slots][units]: bytes into the buffer */
    ebro_region region;
    uint32_t n_slots, units;
    uint64_t elements; /* of a unit */
};
/* Slots of random values that fit BF16; *values [n_slots][units][elements]. */
struct eb_seq_pool eb_seq_pool(struct eb_trial *t, uint32_t n_slots, uint32_t units,
                               uint64_t elements, int32_t dtype, struct eb_seq_layout l,
                               double **values);
void eb_seq_pool_put(struct eb_trial *t, struct eb_seq_pool *p, uint32_t slot, const double *v);
/* A slot after the call, [units][elements]. */
float *eb_seq_pool_get(struct eb_trial *t, const struct eb_seq_pool *p, uint32_t slot);
ebro_state_io eb_seq_io(struct eb_trial *t, const struct eb_ref_plan *p,
                        const struct eb_seq_pool *pool);
/* Slots that the plan writes against ref [n_slots][units][elements]; all other bytes as they were.
 */
void eb_seq_pool_check(struct eb_trial *t, const struct eb_seq_pool *p,
                       const struct eb_ref_plan *plan, const double *ref, struct eb_budget b);

/* ---- the cache -------------------------------------------------------------------------- */

struct eb_seq_cache {
    struct eb_trial_buf buf;
    uint64_t *at; /* [n_seqs][capacity]: bytes into the buffer */
    double *v;    /* [n_seqs][capacity][width] */
    ebro_pages pages;
    uint32_t n_seqs, capacity, width;
};
/* Room for `capacity` tokens of each sequence from token `first` on; all is poison. role: IN where
 * it is read, OUT where it is written. */
struct eb_seq_cache eb_seq_cache(struct eb_trial *t, uint32_t n_seqs, uint32_t first,
                                 uint32_t capacity, uint32_t width, uint32_t page_tokens,
                                 int32_t dtype, enum eb_trial_role role);
/* n random tokens of a sequence. */
void eb_seq_cache_fill(struct eb_trial *t, struct eb_seq_cache *c, uint32_t seq, uint32_t n);
void eb_seq_cache_context(struct eb_trial *t, struct eb_seq_cache *c, const int32_t *context);

#endif
