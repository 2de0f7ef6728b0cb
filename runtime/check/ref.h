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

/* Scores of moe_route for one row: s [n_experts] = sigmoid(x w^T), best = s + bias (NULL: 0), size:
 * the sum of the magnitudes of each score's products. */
void eb_ref_scores(const float *x, const double *w, uint64_t hidden, uint32_t n_experts,
                   const float *bias, double *s, double *best, double *size);

/* One expert of moe_experts for one row: adds weight * w2 act(w1 x, w3 x) to out [in], and the same
 * with magnitudes to size. w1, w3 [inner][in], w2 [in][inner]; h [inner] is room. */
struct eb_ref_expert {
    const double *w1, *w3, *w2;
    uint64_t in, inner;
    int32_t act;
    double beta, beta2;
};
void eb_ref_expert(const struct eb_ref_expert *e, const float *x, double weight, double *h,
                   double *out, double *size);

/* ---- sequences -------------------------------------------------------------------------- */

enum { EB_REF_MAX_SEQS = 12 };

/* Whose rows are whose, and where their states come from and go to: ebro_rows and ebro_state_io in
 * host memory. */
struct eb_ref_plan {
    uint32_t n_seqs, n_emit;
    int32_t offsets[EB_REF_MAX_SEQS + 1], in[EB_REF_MAX_SEQS], out[EB_REF_MAX_SEQS];
    int32_t emit_rows[EB_REF_MAX_SEQS], emit_slots[EB_REF_MAX_SEQS];
    uint32_t padding; /* columns behind each matrix row */
    uint32_t slack;   /* rows that n_rows promises beyond the last one */
};

static inline uint32_t eb_ref_rows(const struct eb_ref_plan *p) {
    return (uint32_t)p->offsets[p->n_seqs];
}

/* ---- KDA (ref_kda.c): S <- diag(exp g) S; e = v - S^T k; S <- S + beta k e^T; o = S^T q ----- */

struct eb_ref_kda {
    uint32_t n_rows, n_heads, dim;
    float *q, *k, *v, *g_raw; /* [n_rows][n_heads * dim] */
    float *beta_raw;          /* [n_rows][n_heads] */
    float *a_log, *dt_bias;   /* [n_heads], [n_heads * dim] */
    int32_t form;
    float lower_bound, l2_eps;
};

static inline uint64_t eb_ref_kda_size(const struct eb_ref_kda *c) {
    return (uint64_t)c->n_heads * c->dim * c->dim;
}

/* One token of one head; q, k and v as they leave the convolution. s [dim][dim], o and e [dim]; e
 * is room. */
void eb_ref_kda_token(const struct eb_ref_kda *c, uint64_t row, uint32_t h, const double *q,
                      const double *k, const double *v, double *s, double *o, double *e);

/* All sequences of a plan. states [n_slots][n_heads][dim][dim] holds the start states and receives
 * what the plan writes; o [n_rows][n_heads * dim]. `rounded`: the state is BF16 after every token.
 * room: [eb_ref_kda_size + dim]. */
void eb_ref_kda_run(const struct eb_ref_kda *c, double *const qkv[3], const struct eb_ref_plan *p,
                    bool rounded, double *states, double *o, double *room);

/* kda_conv: windows [n_slots][3][3][channels] holds what the slots hold and receives what the plan
 * writes; w[i] [channels][4]; y[i] [n_rows][channels]. room: [9 * channels]. */
void eb_ref_conv(float *const x[3], double *const w[3], uint64_t channels,
                 const struct eb_ref_plan *p, double *windows, double *const y[3], double *room);

/* o [n] = o / rms(o) * weight * sigmoid(gate), in place. */
void eb_ref_gated_norm(double *o, uint64_t n, double eps, const double *weight, const float *gate);

/* ---- MLA (ref_mla.c) -------------------------------------------------------------------- */

struct eb_ref_mla {
    uint32_t n_heads, nope, rope, v_dim, kv_lora;
    float scale;
};

static inline uint32_t eb_ref_mla_width(const struct eb_ref_mla *s) {
    return s->kv_lora + s->rope;
}

/* A cache in float64, [n_seqs][capacity][kv_lora + rope], tokens from the first one on. */
struct eb_ref_cache {
    const double *v;
    uint32_t capacity;
    const int32_t *context; /* [n_seqs] */
};

/* Absorbed attention: q [n_rows][n_heads][kv_lora + rope]; latent [n_rows][n_heads][kv_lora], lse
 * [n_rows][n_heads]; tokens [begin, end) alone are seen. room: [capacity]. Returns the largest
 * score in magnitude. */
double eb_ref_attend(const struct eb_ref_mla *s, const struct eb_ref_plan *p,
                     const struct eb_ref_cache *c, uint32_t begin, uint32_t end, const double *q,
                     double *latent, double *lse, double *room);
/* q [n_rows][n_heads][nope + rope] to W_uk^T q_nope and q_pe, y [n_rows][n_heads][kv_lora + rope];
 * kv_b [n_heads][nope + v_dim][kv_lora]. */
void eb_ref_absorb(const struct eb_ref_mla *s, const float *q, uint64_t n_rows, const double *kv_b,
                   double *y);
/* W_uv times latents: y [n_rows][n_heads][v_dim]. */
void eb_ref_values(const struct eb_ref_mla *s, const double *latent, uint64_t n_rows,
                   const double *kv_b, double *y);

/* mla_append. Pair (c, c + 1) of the first `rotary` channels, at a position: x[0..2) to y[0..2). */
void eb_ref_turn(double theta, uint32_t rotary, uint32_t c, uint32_t position, const float *x,
                 double *y);
struct eb_ref_append {
    uint32_t kv_lora, rope, rotary;
    double theta, eps;
    const double *norm; /* [kv_lora] */
};
/* The cache row of one token: y [kv_lora + rope]. */
void eb_ref_append_row(const struct eb_ref_append *a, const float *kv, uint32_t position,
                       double *y);

/* ---- sampling (ref_sample.c) ------------------------------------------------------------ */

struct eb_ref_choice {
    double p, logit;
    int32_t id;
    bool kept;
};

/* The documented choice among n logits; c [n] is room, and holds of each id (in rising order) its
 * probability, before normalising, and whether it was kept. -1: one is not finite. *unsure: two
 * answers are right, since a cut or the draw lies within 1e-5 of an edge, more than f32 exp is off.
 */
int32_t eb_ref_sample(const double *logits, uint32_t n, const ebro_sample_params *p,
                      struct eb_ref_choice *c, bool *unsure);
/* Applies entries to the n logits of a row. */
void eb_ref_adjust(double *logits, uint32_t n, const ebro_logit_adjust *list, uint32_t n_list);

#endif
