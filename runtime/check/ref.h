/* ref.h: every operator in float64, written from the formulas of ebro/backend.h alone. Shares no
 * code with any backend; the reference of `ebro check` and of tests/opcheck. Pure functions over
 * dense host arrays; they allocate nothing. */
#ifndef EB_CHECK_REF_H
#define EB_CHECK_REF_H

#include <stdbool.h>

#include "ebro/backend.h"

/* ---- numbers (ref_numbers.c) ------------------------------------------------------------ */

double eb_ref_element(int32_t dtype, const uint8_t *p); /* F32, F16, BF16 */
double eb_ref_mx(uint32_t code, uint32_t scale);        /* of MXFP4 */
float eb_ref_bf16(double x); /* the nearest BF16, ties to even; x finite and small enough */
double eb_ref_sigmoid(double x);
double eb_ref_act(int32_t kind, double beta, double beta2, double gate, double up);

/* ---- rows (ref_rows.c) ------------------------------------------------------------------ */

/* start + sum of x[i] w[i * w_step]; the sum of the magnitudes; of the products' squares. */
struct eb_ref_sum {
    double sum, size, squares;
};
struct eb_ref_sum eb_ref_product(const float *x, const double *w, uint64_t w_step, uint64_t n,
                                 double start);

/* 1 / sqrt(mean of squares + eps). */
double eb_ref_inverse_rms(const float *x, uint64_t n, double eps);

/* attn_res_mix of one row: sources[s] points at its n_cols values. probs [n_sources]; slack: the
 * largest sum of the magnitudes of a score. */
void eb_ref_mix_probs(const float *const *sources, uint32_t n_sources, uint64_t n_cols,
                      const double *norm_weight, const double *proj, double eps, double *probs,
                      double *slack);

#endif
