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

#endif
