/* cost.c: a straight line through what steps took. A machine pauses, and some steps take ten times
 * as long as they should: the line must not follow them. */
#include "mem/cost.h"

#include <math.h>

/* Until steps have shown better: a token after 10,000 others costs twice as much as the first. */
static const double usual_token = 1e-3, usual_depth = 1e-7;

enum {
    LEAST_ROWS = 32,       /* what a step costs besides its rows hides what they cost */
    HALF_LIFE = 1 << 16,   /* rows after which a step counts half */
    DOUBT_ROWS = 1 << 10,  /* the usual slope counts as much as so many rows ... */
    DOUBT_DEPTH = 1 << 10, /* ... so far from the mean */
    MOST_TIMES = 2,        /* a step counts as so many times what was expected, at most */
    PAUSE_TIMES = 8        /* what was expected so many times too long is forgotten */
};

void eb_cost_open(struct eb_cost *c, double token, double depth) {
    *c = (struct eb_cost){.token = token, .depth = depth, .given = token > 0.0};
    if (c->given) return;
    c->token = usual_token;
    c->depth = usual_depth;
}

/* The slope starts from the usual one in proportion, and depths that differ take it from there. */
static void fit(struct eb_cost *c) {
    const double doubt = (double)DOUBT_ROWS * DOUBT_DEPTH * DOUBT_DEPTH;
    /* of a line through the mean that rises in the usual proportion */
    double usual = c->mean_seconds / (usual_token / usual_depth + c->mean_t);
    double depth = (c->products + doubt * usual) / (c->squares + doubt);
    /* Neither part of the cost can be negative. */
    if (depth < 0.0) depth = 0.0;
    double token = c->mean_seconds - depth * c->mean_t, least = c->mean_seconds / 16.0;
    if (token < least) {
        token = least;
        depth = (c->mean_seconds - least) / c->mean_t;
    }
    c->token = token;
    c->depth = depth;
}

static void forget(struct eb_cost *c) {
    c->rows = c->mean_t = c->mean_seconds = c->squares = c->products = 0.0;
}

void eb_cost_note(struct eb_cost *c, uint32_t rows, double t, double seconds) {
    if (c->given || rows < LEAST_ROWS || !(seconds > 0.0)) return;
    /* The first step also reads weights from the disk. */
    if (!c->warm) {
        c->warm = true;
        return;
    }
    double n = rows, y = seconds / n, expected = c->token + c->depth * t;
    /* Pauses make steps long, nothing makes them short: the line came from a pause. */
    if (y < expected / PAUSE_TIMES) forget(c);
    if (c->rows > 0.0 && y > MOST_TIMES * expected) y = MOST_TIMES * expected;
    double fade = exp2(-n / HALF_LIFE);
    c->rows = c->rows * fade + n;
    c->squares *= fade;
    c->products *= fade;
    double dt = t - c->mean_t;
    c->mean_t += dt * n / c->rows;
    c->squares += n * dt * (t - c->mean_t);
    c->products += n * (t - c->mean_t) * (y - c->mean_seconds);
    c->mean_seconds += (y - c->mean_seconds) * n / c->rows;
    fit(c);
}

double eb_cost_between(const struct eb_cost *c, double from, double to) {
    return (to - from) * (1.0 + c->depth / c->token * (from + to) / 2.0);
}
