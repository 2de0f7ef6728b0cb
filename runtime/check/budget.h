/* budget.h: how far a result may be from float64, and why. One place for `ebro check` and for
 * tests/opcheck. u = 2^-24 is half a unit in the last place of f32. */
#ifndef EB_CHECK_BUDGET_H
#define EB_CHECK_BUDGET_H

#include <math.h>
#include <stdbool.h>

#include "ebro/backend.h"

#define EB_HALF_ULP 0x1p-24

struct eb_budget {
    double value;
    const char *measure; /* what value is a part of */
    const char *reason;
};

/* Copies, conversions, states carried on, choices: nothing is rounded. */
static inline struct eb_budget eb_budget_exact(void) {
    return (struct eb_budget){0, "bytes that differ", "nothing is rounded here"};
}

/* Identical bytes whatever the split and the company, where EBRO_CAP_STRICT is claimed. */
static inline struct eb_budget eb_budget_strict(void) {
    return (struct eb_budget){0, "bytes that differ",
                              "the device claims the same bytes for any split and batch"};
}

/* A sum of n products, as part of the sum of their magnitudes. The rounding of one addition
 * deviates by 0.58 u times the sum so far, which is nearly all where one product outweighs the
 * rest; n of random sign by the root of n times that, and four deviations are allowed. 8 covers
 * products and the joining of partial sums. */
static inline struct eb_budget eb_budget_sum(uint64_t n) {
    return (struct eb_budget){(2.5 * sqrt((double)n) + 8) * EB_HALF_ULP, "of the magnitudes",
                              "four deviations of n roundings of f32: (2.5 sqrt(n) + 8) 2^-24"};
}

/* What matrix units for bf16 lose of a product of f32 with such a weight, as part of the root of
 * the products' squares: a factor is split into two bf16. Its errors have random signs, four of
 * their standard deviations are allowed. (Two f16 lose no more than a rounding.) */
static inline double eb_budget_split(uint64_t caps, const ebro_weight *w) {
    const uint64_t units = EBRO_CAP_MATRIX | EBRO_CAP_BF16;
    bool narrow = !w->transposed && (w->dtype == EBRO_BF16 || w->dtype == EBRO_MXFP4);
    return narrow && (caps & units) == units ? 4 * 0x1p-17 : 0;
}

/* A product held to both of the above. size: sum of the magnitudes, squares: of their squares. */
static inline struct eb_budget eb_budget_product(uint64_t n, uint64_t caps, const ebro_weight *w,
                                                 double size, double squares) {
    struct eb_budget b = eb_budget_sum(n);
    double split = eb_budget_split(caps, w);
    if (split > 0 && size > 0) {
        b.value += split * sqrt(squares) / size;
        b.reason =
            "n roundings of f32, and factors split into two bf16: 2^-15 of the products' root";
    }
    return b;
}

/* rms_norm, of the value: root, two or three products, and a sigmoid of five roundings. */
static inline struct eb_budget eb_budget_norm(uint64_t n_cols) {
    return (struct eb_budget){(sqrt((double)n_cols) + 16) * EB_HALF_ULP, "of the value",
                              "a root of n squares, products and a sigmoid: (sqrt(n) + 16) 2^-24"};
}

/* Functions of one element, of the value: a few u for each operation of the formula; f32 exp and
 * tanh are good to about one unit. */
static inline struct eb_budget eb_budget_act(void) {
    return (struct eb_budget){24 * EB_HALF_ULP, "of the value",
                              "about ten operations and exp or tanh in f32: 24 * 2^-24"};
}

/* attn_res_mix: a source's share. slack: the largest sum of a score's magnitudes; an error of a
 * score is a relative error of its share. */
static inline struct eb_budget eb_budget_share(uint64_t n_cols, double slack) {
    return (struct eb_budget){
        2 * (sqrt((double)n_cols) + 16) * EB_HALF_ULP * slack + 16 * EB_HALF_ULP, "absolute",
        "scores of n products, each an error of its share: 2 (sqrt(n) + 16) 2^-24 of the "
        "score's magnitudes"};
}
/* And the mix, whose sum rounds too. */
static inline struct eb_budget eb_budget_mix(uint64_t n_cols, double slack) {
    struct eb_budget b = eb_budget_share(n_cols, slack);
    b.value += 16 * EB_HALF_ULP;
    b.measure = "of the weighted magnitudes";
    return b;
}

/* moe_route: an error of a score, absolute. size: sum of the magnitudes of its products; the slope
 * of the sigmoid is at most 1/4. best: score and bias. */
static inline double eb_budget_score(uint64_t hidden, double size, double best) {
    return (sqrt((double)hidden) + 8) * EB_HALF_ULP * size / 4 + 8 * EB_HALF_ULP * (1 + fabs(best));
}
static inline struct eb_budget eb_budget_route(double score) {
    return (struct eb_budget){2 * score, "absolute",
                              "a score is a sigmoid of a sum of n products in f32; two that are "
                              "nearer than rounding may change places"};
}

/* moe_experts, over all outputs, of the root of their magnitudes' squares: three sums whose
 * roundings pass through the activation, whose inputs may cancel to a tenth of their magnitudes. */
static inline struct eb_budget eb_budget_experts(uint64_t in, uint64_t inner) {
    return (struct eb_budget){16 * (sqrt((double)in) + sqrt((double)inner)) * EB_HALF_ULP,
                              "of the magnitudes",
                              "three sums in f32 through an activation whose inputs cancel: 16 "
                              "(sqrt(in) + sqrt(inner)) 2^-24"};
}

/* KDA, relative to the norm and to the largest element: f32 arithmetic alone costs about 1e-6. */
static inline struct eb_budget eb_budget_kda(void) {
    return (struct eb_budget){1e-5, "of the largest",
                              "f32 arithmetic costs about 1e-6; the rest is room for chunks"};
}
/* States of the chunked ops in this type. */
static inline struct eb_budget eb_budget_kda_state(int32_t dtype) {
    if (dtype != EBRO_BF16) return eb_budget_kda();
    return (struct eb_budget){1.0 / 256 + 1e-5, "of the largest",
                              "a BF16 state is rounded by half a unit in its last place, 2^-8"};
}
/* kda_step rounds a BF16 state after every token, as the reference does; where the two differ by
 * one rounding of one element, that element is off by at most 2^-7, and an output, a sum over many,
 * by a fraction of that: up to 1.1e-3 was seen in 200 runs. */
static inline struct eb_budget eb_budget_step_state(int32_t dtype) {
    if (dtype != EBRO_BF16) return eb_budget_kda();
    return (struct eb_budget){1.0 / 128 + 1e-5, "of the largest",
                              "one rounding of a BF16 element more or less: 2^-7"};
}
static inline struct eb_budget eb_budget_step(int32_t dtype) {
    if (dtype != EBRO_BF16) return eb_budget_kda();
    return (struct eb_budget){1.0 / 256, "of the largest",
                              "few elements of a BF16 state are a rounding off"};
}

/* Attention, relative to the norm and to the largest element; lse: absolute. 1e-5 where scores are
 * of the order of one. A score is a sum in f32, off by about 16 u times its size (16 for the sum's
 * length and its terms), and exp carries that into the result as a relative error. Matrix units may
 * take each factor as two bf16: a product is off by 3 times 2^-18 of its size, a score by 8 times
 * as much as in f32. largest: of the scores, in magnitude. */
static inline struct eb_budget eb_budget_attention(uint64_t caps, double largest) {
    bool units = (caps & EBRO_CAP_MATRIX) != 0;
    return (struct eb_budget){
        1e-5 + (units ? 128 : 16) * EB_HALF_ULP * largest, "of the largest",
        units ? "1e-5, and 128 * 2^-24 of the largest score: factors of two bf16"
              : "1e-5, and 16 * 2^-24 of the largest score"};
}

/* mla_append. A norm of n values in f32 is good to about (sqrt(n) + 8) u; 64 u holds for all
 * widths. A rotated pair is off by a few u of its length; the angle must be taken in more than f32,
 * since it grows with the position. Storing rounds by at most half a unit in the last place: 2^-11
 * of the value for F16 (2^-25 where it is subnormal), 2^-8 for BF16. length: of the value, or of
 * its pair; absolute. */
enum eb_append_part { EB_APPEND_LATENT, EB_APPEND_KEY, EB_APPEND_ROTATED };
static inline struct eb_budget eb_budget_append(int32_t dtype, enum eb_append_part part,
                                                double value, double length) {
    double half_unit = dtype == EBRO_F32 ? 0 : dtype == EBRO_F16 ? 1.0 / 2048 : 1.0 / 256;
    double f32 = part == EB_APPEND_LATENT    ? 64 * EB_HALF_ULP * length
                 : part == EB_APPEND_ROTATED ? 8 * EB_HALF_ULP * length
                                             : 0;
    double bound = f32 + half_unit * (fabs(value) + f32);
    if (dtype == EBRO_F16) bound += 0x1p-25;
    return (struct eb_budget){
        bound, "absolute", "a norm 64, a turned pair 8 * 2^-24; storing half a unit of the type"};
}

/* A token: the right one, unless two answers are within 1e-5 of each other. */
static inline struct eb_budget eb_budget_choice(void) {
    return (struct eb_budget){
        0, "tokens that differ",
        "a choice is exact but within 1e-5 of an edge, where it is not judged"};
}

/* ---- whole models (modelcheck/) ---------------------------------------------------------- */

/* Where the coarsest rounding on the way to the logits is. */
enum eb_model_rounding {
    EB_ROUNDS_F32,
    EB_ROUNDS_F16, /* the latent cache is F16 */
    EB_ROUNDS_BF16 /* it is BF16, or matrix units take factors as BF16 */
};

/* Logits of the demo model, relative to their norm and to the largest. In f32 they land near 1e-6,
 * those that are kept are rounded by 3e-5 (tools/golden.py), and a wrong mask costs 5e-3, sums in
 * f16 4e-4. With a cache in BF16 1e-4 was seen where the router's experts are given; two that are
 * nearly even may change places where they are not. */
static inline struct eb_budget eb_budget_logits(enum eb_model_rounding r) {
    static const double values[] = {1e-4, 5e-3, 2e-2};
    static const char *const reasons[] = {
        "f32 costs about 1e-6, and what is kept of float64 is rounded by 3e-5",
        "the cache is rounded by 2^-11, and experts that are nearly even may change places",
        "bf16 rounds by 2^-8, and experts that are nearly even may change places"};
    return (struct eb_budget){values[r], "of the logits", reasons[r]};
}
/* Two logits, each off by 2e-2 of the usual size of one, 5, may change places. */
static inline double eb_budget_margin(void) {
    return 2 * 2e-2 * 5;
}
static inline struct eb_budget eb_budget_greedy(enum eb_model_rounding r) {
    return (struct eb_budget){0, "tokens that differ",
                              r == EB_ROUNDS_F32
                                  ? "the two best are 0.005 apart or more, far more than f32 is off"
                                  : "the two best may change places within 0.2 of each other"};
}
static inline struct eb_budget eb_budget_answer(void) {
    return (struct eb_budget){0, "answers that differ", "float64 answers right"};
}
static inline struct eb_budget eb_budget_strict_logits(void) {
    return (struct eb_budget){0, "logits that differ",
                              "the device claims the same bytes for any split"};
}
static inline struct eb_budget eb_budget_damage(void) {
    return (struct eb_budget){0, "sequences taken", "checksums find every wrong bit"};
}

#endif
