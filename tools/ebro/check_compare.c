/* check_compare.c: what differs between reports; nothing is printed here. See check_compare.h. */
#include "check_compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- machines --------------------------------------------------------------------------- */

/* A to Z, then A1 to Z1, A2 ... */
static void make_label(size_t i, char *out, size_t bytes) {
    if (i < 26)
        snprintf(out, bytes, "%c", 'A' + (char)i);
    else
        snprintf(out, bytes, "%c%u", 'A' + (char)(i % 26), (unsigned)(i / 26) % 10000);
}

static bool make_machines(struct eb_comparison *c, const struct eb_saved_report *reports,
                          size_t n_reports) {
    size_t n = 0;
    for (size_t i = 0; i < n_reports; i++) n += reports[i].n_devices;
    if (!(c->machines = calloc(n + 1, sizeof *c->machines))) return false;
    for (size_t i = 0; i < n_reports; i++) {
        for (uint32_t d = 0; d < reports[i].n_devices; d++) {
            struct eb_machine *m = &c->machines[c->n_machines];
            m->report = &reports[i];
            m->device = d;
            make_label(c->n_machines++, m->label, sizeof m->label);
        }
    }
    return true;
}

/* ---- cases ------------------------------------------------------------------------------ */

static int order_of(const struct eb_compared *a, const struct eb_compared *b) {
    int order = strcmp(a->op, b->op);
    return order != 0 ? order : strcmp(a->name, b->name);
}

static int compare_cases(const void *a, const void *b) {
    return order_of(a, b);
}

/* Every case once, without cells yet. */
static bool list_cases(struct eb_comparison *c, const struct eb_saved_report *reports,
                       size_t n_reports) {
    size_t n = 0;
    for (size_t i = 0; i < n_reports; i++) n += reports[i].n_rows;
    if (!(c->cases = calloc(n + 1, sizeof *c->cases))) return false;
    n = 0;
    for (size_t i = 0; i < n_reports; i++)
        for (size_t k = 0; k < reports[i].n_rows; k++, n++)
            c->cases[n] = (struct eb_compared){
                .op = reports[i].rows[k].op, .name = reports[i].rows[k].name, .n_cases = 1};
    if (n > 1) qsort(c->cases, n, sizeof *c->cases, compare_cases);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || order_of(&c->cases[c->n_cases - 1], &c->cases[i]) != 0)
            c->cases[c->n_cases++] = c->cases[i];
    return true;
}

const struct eb_compared *eb_comparison_find(const struct eb_comparison *c, const char *op,
                                             const char *name) {
    const struct eb_compared key = {.op = op, .name = name};
    return bsearch(&key, c->cases, c->n_cases, sizeof key, compare_cases);
}

static void outweigh(struct eb_compared_cell *cell, enum eb_compared_state state, double share) {
    if (state > cell->state) cell->state = state;
    cell->share = fmax(cell->share, share);
}

static void fill_cases(struct eb_comparison *c) {
    static const enum eb_compared_state states[] = {EB_COMPARED_RIGHT, EB_COMPARED_FAILED,
                                                    EB_COMPARED_REFUSED};
    for (size_t m = 0; m < c->n_machines; m++) {
        const struct eb_saved_report *r = c->machines[m].report;
        for (size_t k = 0; k < r->n_rows; k++) {
            const struct eb_saved_row *row = &r->rows[k];
            if (row->device != c->machines[m].device) continue;
            const struct eb_compared *one = eb_comparison_find(c, row->op, row->name);
            if (one)
                outweigh(&one->cells[m], states[row->verdict],
                         row->verdict == EB_SAVED_REFUSED ? 0 : eb_saved_share(row));
        }
    }
}

static double difference_of(const struct eb_compared *one, size_t n_machines) {
    double low = (double)INFINITY, high = 0;
    size_t n = 0;
    for (size_t m = 0; m < n_machines; m++) {
        if (one->cells[m].state < EB_COMPARED_RIGHT) continue;
        low = fmin(low, one->cells[m].share);
        high = fmax(high, one->cells[m].share);
        n++;
    }
    if (n < 2) return -1;
    return low == high ? 0 : high - low; /* infinite ones may be the same */
}

/* ---- operators -------------------------------------------------------------------------- */

static int compare_ops(const void *a, const void *b) {
    const struct eb_compared *x = a, *y = b;
    if (x->difference > y->difference) return -1;
    if (x->difference < y->difference) return 1;
    return strcmp(x->op, y->op);
}

static size_t count_ops(const struct eb_comparison *c) {
    size_t n = 0;
    for (size_t i = 0; i < c->n_cases; i++)
        n += i == 0 || strcmp(c->cases[i].op, c->cases[i - 1].op) != 0;
    return n;
}

static void sum_up_ops(struct eb_comparison *c, struct eb_compared_cell *cells) {
    struct eb_compared *op = NULL;
    for (size_t i = 0; i < c->n_cases; i++) {
        const struct eb_compared *one = &c->cases[i];
        if (!op || strcmp(op->op, one->op) != 0) {
            op = &c->ops[c->n_ops];
            *op = (struct eb_compared){
                .op = one->op, .difference = -1, .cells = cells + c->n_machines * c->n_ops++};
        }
        op->n_cases++;
        for (size_t m = 0; m < c->n_machines; m++)
            outweigh(&op->cells[m], one->cells[m].state, one->cells[m].share);
        if (one->difference > op->difference) {
            op->difference = one->difference;
            op->name = one->name;
        }
    }
    if (c->n_ops > 1) qsort(c->ops, c->n_ops, sizeof *c->ops, compare_ops);
}

bool eb_comparison_make(struct eb_comparison *out, const struct eb_saved_report *reports,
                        size_t n_reports) {
    *out = (struct eb_comparison){.machines = NULL};
    if (!make_machines(out, reports, n_reports)) return false;
    if (!list_cases(out, reports, n_reports)) return false;
    size_t n_ops = count_ops(out), n_lines = out->n_cases + n_ops;
    if (!(out->ops = calloc(n_ops + 1, sizeof *out->ops))) return false;
    if (out->n_machines > 0 && n_lines >= SIZE_MAX / out->n_machines) return false;
    out->cells = calloc(n_lines * out->n_machines + 1, sizeof *out->cells);
    if (!out->cells) return false;
    for (size_t i = 0; i < out->n_cases; i++)
        out->cases[i].cells = out->cells + i * out->n_machines;
    fill_cases(out);
    for (size_t i = 0; i < out->n_cases; i++)
        out->cases[i].difference = difference_of(&out->cases[i], out->n_machines);
    sum_up_ops(out, out->cells + out->n_cases * out->n_machines);
    return true;
}

void eb_comparison_free(struct eb_comparison *c) {
    free(c->machines);
    free(c->cases);
    free(c->ops);
    free(c->cells);
    *c = (struct eb_comparison){.machines = NULL};
}

/* ---- questions -------------------------------------------------------------------------- */

const char *eb_compared_word(enum eb_compared_state state) {
    static const char *const words[] = {"absent", "refused", "right", "failed"};
    return words[state];
}

size_t eb_compared_alone(const struct eb_comparison *c, const struct eb_compared *one) {
    size_t alone = c->n_machines;
    for (size_t m = 0; m < c->n_machines; m++) {
        if (one->cells[m].state == EB_COMPARED_ABSENT) continue;
        if (alone < c->n_machines) return c->n_machines;
        alone = m;
    }
    return alone;
}

bool eb_compared_refused(const struct eb_comparison *c, const struct eb_compared *one,
                         size_t machine) {
    if (one->cells[machine].state != EB_COMPARED_REFUSED) return false;
    for (size_t m = 0; m < c->n_machines; m++)
        if (one->cells[m].state >= EB_COMPARED_RIGHT) return true;
    return false;
}
