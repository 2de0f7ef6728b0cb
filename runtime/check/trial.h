/* trial.h: one case on one device: its buffers, its random numbers, its calls, and what was found.
 *
 * Every buffer is filled with 0xff bytes (NaN as f32) before each call and has a guard band on
 * either side: what reads outside or reads padding gets a NaN, what writes outside is found. Inputs
 * must come out as they went in. Each call is made several times on the same bytes, and what it
 * writes must be the same bytes each time.
 *
 * The first failure (no memory, a lost device) or refusal stays; everything that is asked of the
 * trial after it does nothing and gives NULL or zeros, so a case looks at eb_trial_over before it
 * touches what it was given. */
#ifndef EB_CHECK_TRIAL_H
#define EB_CHECK_TRIAL_H

#include "check/budget.h"
#include "check/ref.h"
#include "ops/ops.h"

enum { EB_TRIAL_GUARD = 256, EB_TRIAL_MAX_BUFS = 128, EB_TRIAL_MAX_HOSTS = 256 };

enum eb_trial_role {
    EB_TRIAL_IN,     /* must not change */
    EB_TRIAL_OUT,    /* the same bytes in every run */
    EB_TRIAL_SCRATCH /* anything, but for its guards */
};

struct eb_trial_image {
    ebro_mem *mem;
    uint64_t bytes;          /* without the guards */
    uint8_t *before, *after; /* with them; after: of the first run */
    enum eb_trial_role role;
};

struct eb_trial {
    struct ebro_device *device;
    struct eb_stream *stream;
    const struct eb_alloc *alloc;
    uint64_t rng;
    uint32_t n_runs;
    struct eb_trial_image images[EB_TRIAL_MAX_BUFS];
    void *hosts[EB_TRIAL_MAX_HOSTS];
    uint32_t n_images, n_hosts;
    /* What was found. */
    int32_t status; /* not EBRO_OK: what kept the trial from going on, in err */
    bool refused;   /* the device said EBRO_UNSUPPORTED; err has its reason */
    bool failed;    /* wrong; text says how */
    bool unrepeatable;
    double error;
    struct eb_budget budget;
    ebro_error err;
    char text[320], shape[160];
};

bool eb_trial_over(const struct eb_trial *t);
void eb_trial_free(struct eb_trial *t); /* all its memory */

/* The input in words. */
void eb_trial_shape(struct eb_trial *t, const char *fmt, ...) EB_PRINTF(2, 3);

/* ---- numbers ---------------------------------------------------------------------------- */

uint64_t eb_trial_u64(struct eb_trial *t);
uint32_t eb_trial_below(struct eb_trial *t, uint32_t n); /* n > 0 */
float eb_trial_uniform(struct eb_trial *t, float lo, float hi);
float eb_trial_gauss(struct eb_trial *t);

/* Zeroed host memory of the trial's. NULL when it is over. */
void *eb_trial_host(struct eb_trial *t, uint64_t n, uint64_t size);
/* Normal numbers times scale. */
float *eb_trial_normal(struct eb_trial *t, uint64_t n, float scale);
double *eb_trial_widen(struct eb_trial *t, const float *x, uint64_t n);
float *eb_trial_narrow(struct eb_trial *t, const double *x, uint64_t n);
/* 0 .. n - 1 in random order. */
uint32_t *eb_trial_shuffled(struct eb_trial *t, uint32_t n);

/* ---- buffers ---------------------------------------------------------------------------- */

struct eb_trial_buf {
    ebro_span span;
    uint32_t image;
    uint64_t bytes;
};

struct eb_trial_buf eb_trial_room(struct eb_trial *t, uint64_t bytes, enum eb_trial_role role);
struct eb_trial_buf eb_trial_data(struct eb_trial *t, const void *data, uint64_t bytes);
ebro_span eb_trial_i32(struct eb_trial *t, const int32_t *v, uint64_t n);
ebro_span eb_trial_scratch(struct eb_trial *t, ebro_op op, const void *args);
uint64_t eb_trial_address(const struct eb_trial_buf *b);
/* What the buffer holds before the call: may be written until then. */
uint8_t *eb_trial_before(struct eb_trial *t, const struct eb_trial_buf *b);
/* What it held after the first run. */
const uint8_t *eb_trial_after(struct eb_trial *t, const struct eb_trial_buf *b);

/* A strided matrix of 4-byte elements. */
struct eb_trial_mat {
    struct eb_trial_buf buf;
    ebro_mat m;
    uint64_t rows, cols;
};

struct eb_trial_mat eb_trial_mat(struct eb_trial *t, const void *dense, uint64_t rows,
                                 uint64_t cols, uint64_t padding); /* an input */
/* An output; dense (NULL: poison) is what it holds before. */
struct eb_trial_mat eb_trial_out(struct eb_trial *t, const void *dense, uint64_t rows,
                                 uint64_t cols, uint64_t padding);
/* Dense copy of what was written, after the padding was looked at. */
void *eb_trial_get(struct eb_trial *t, const struct eb_trial_mat *m);

/* A weight of random elements; its values in float64, [n][rows][cols] dense. */
struct eb_trial_weight {
    double *v;
    ebro_weight w;
    uint64_t bytes; /* of one matrix, padding included */
};

/* n matrices one after the other (MXFP4: 1). */
struct eb_trial_weight eb_trial_weights(struct eb_trial *t, uint32_t n, int32_t dtype,
                                        uint32_t rows, uint32_t cols, uint32_t padding);
struct eb_trial_weight eb_trial_weight(struct eb_trial *t, int32_t dtype, uint32_t rows,
                                       uint32_t cols, uint32_t padding);
ebro_vec eb_trial_vec(struct eb_trial *t, int32_t dtype, uint32_t n, double **values);
ebro_vec eb_trial_vec_from(struct eb_trial *t, const float *v, uint64_t n);
/* One random element of F32, F16 or BF16 and its value: magnitudes about 1/32 to 2, now and then a
 * subnormal half. */
double eb_trial_element(struct eb_trial *t, int32_t dtype, uint8_t *out);

/* ---- calls ------------------------------------------------------------------------------ */

struct eb_trial_op {
    ebro_op op;
    const void *args;
};

/* The ops in this order, on what the buffers held before: n_runs times. False: the trial is over.
 */
bool eb_trial_calls(struct eb_trial *t, const struct eb_trial_op *ops, size_t n);
bool eb_trial_call(struct eb_trial *t, ebro_op op, const void *args);
/* The op must be refused before it does anything: a status that is not OK, with a text, and all
 * buffers as they were. */
void eb_trial_must_refuse(struct eb_trial *t, ebro_op op, const void *args, const char *what);

/* ---- findings --------------------------------------------------------------------------- */

/* An error against its budget, both in the budget's measure. False, and the trial has failed,
 * unless error <= budget; only the first text is kept. */
bool eb_trial_note(struct eb_trial *t, double error, struct eb_budget b, const char *fmt, ...)
    EB_PRINTF(4, 5);
/* |got - want|, of `size`. */
void eb_trial_within(struct eb_trial *t, double got, double want, double size, struct eb_budget b,
                     const char *what, uint64_t index);
/* Relative to the norm and to the largest of ref. */
void eb_trial_near(struct eb_trial *t, const float *got, const double *ref, uint64_t n,
                   struct eb_budget b, const char *what);
/* The same bytes. */
void eb_trial_same(struct eb_trial *t, const void *got, const void *want, uint64_t bytes,
                   struct eb_budget b, const char *what);
void eb_trial_fail(struct eb_trial *t, const char *fmt, ...) EB_PRINTF(2, 3);

#endif
