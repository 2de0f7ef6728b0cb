/* cost.h: what evaluating a prompt token costs, by the number t of tokens before it: token + depth
 * * t. Either given, or learned from the steps that were timed. Knows no clock. */
#ifndef EB_COST_H
#define EB_COST_H

#include <stdbool.h>
#include <stdint.h>

struct eb_cost {
    double token, depth; /* so far; seconds where they are learned */
    bool given;
    /* Weighted by rows, old ones less: mean of t and of seconds a row, and sums of squares and of
     * products about these means. */
    double rows, mean_t, mean_seconds, squares, products;
    bool warm; /* the first step is behind */
};

/* token 0: to be learned; until then the usual ones. */
void eb_cost_open(struct eb_cost *c, double token, double depth);
/* A step of `rows` prompt tokens, at t on average, took so long. Does nothing where the costs are
 * given. */
void eb_cost_note(struct eb_cost *c, uint32_t rows, double t, double seconds);
/* Cost of the tokens from `from` up to `to`, in units of the first one's. */
double eb_cost_between(const struct eb_cost *c, double from, double to);

#endif
