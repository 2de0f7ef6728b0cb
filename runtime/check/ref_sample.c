/* ref_sample.c: the choice of a token in float64, by sorting the whole vocabulary. */
#include <math.h>
#include <stdlib.h>

#include "check/ref.h"

static int by_probability(const void *a, const void *b) {
    const struct eb_ref_choice *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b) {
    const struct eb_ref_choice *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-5 * fmax(fabs(a), fabs(b));
}

/* c sorted by probability: how many stay after top_k and top_p; fills in p. */
static uint32_t cut(struct eb_ref_choice *c, uint32_t n, const ebro_sample_params *p,
                    bool *unsure) {
    uint32_t kept = p->top_k > 0 && p->top_k < n ? p->top_k : n;
    double mass = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        c[i].p = exp((c[i].logit - c[0].logit) / (double)p->temperature);
        if (i < kept) mass += c[i].p;
    }
    if (!(p->top_p > 0.0f && p->top_p < 1.0f)) return kept;
    for (uint32_t i = 0; i < kept; i++) {
        sum += c[i].p;
        if (near(sum, (double)p->top_p * mass)) *unsure = true;
        if (sum >= (double)p->top_p * mass) kept = i + 1;
    }
    return kept;
}

int32_t eb_ref_sample(const double *logits, uint32_t n, const ebro_sample_params *p,
                      struct eb_ref_choice *c, bool *unsure) {
    *unsure = false;
    for (uint32_t i = 0; i < n; i++) {
        c[i] = (struct eb_ref_choice){.logit = logits[i], .id = (int32_t)i};
        if (!isfinite(logits[i])) return -1;
    }
    qsort(c, n, sizeof *c, by_probability);
    if (p->temperature == 0.0f) return c[0].id;
    uint32_t kept = cut(c, n, p, unsure);
    double mass = 0, sum = 0;
    for (uint32_t i = 0; i < kept; i++) {
        /* The largest probability is 1 exactly, whatever computes it. */
        if (c[i].p < 1 && p->min_p > 0.0f && near(c[i].p, (double)p->min_p)) *unsure = true;
        c[i].kept = !(p->min_p > 0.0f) || c[i].p >= (double)p->min_p;
        if (c[i].kept) mass += c[i].p;
    }
    qsort(c, n, sizeof *c, by_id);
    double draw = (double)ebro_uniform(p->seed, p->position) * mass;
    int32_t id = -1;
    for (uint32_t i = 0; i < n; i++) {
        if (!c[i].kept) continue;
        sum += c[i].p;
        if (fabs(sum - draw) <= 1e-5 * mass) *unsure = true;
        if (id < 0 && sum > draw) id = c[i].id;
    }
    return id;
}

void eb_ref_adjust(double *logits, uint32_t n, const ebro_logit_adjust *list, uint32_t n_list) {
    for (uint32_t i = 0; i < n_list; i++) {
        if (list[i].id < 0 || (uint32_t)list[i].id >= n) continue;
        double *l = &logits[list[i].id], repeat = (double)list[i].repeat;
        *l = (*l > 0 ? *l / repeat : *l * repeat) + (double)list[i].add;
    }
}
