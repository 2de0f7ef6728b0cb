/* check_side.c: reports of checks side by side, as a table and as JSON. What differs is found in
 * check_compare.c. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_compare.h"
#include "check_report.h"
#include "quote.h"

enum { COLUMNS = 6, NAME_WIDTH = 27, TEXT_BYTES = 2048 };

/* ---- texts ------------------------------------------------------------------------------ */

/* A paragraph that grows; what does not fit is left out, and "..." says so. */
struct text {
    char s[TEXT_BYTES];
    size_t n;
};

/* Reports come from others: what a terminal would obey, or could not show, becomes "?". */
static void tame(char *s) {
    for (char *p = s; *p != '\0';) {
        size_t n = eb_utf8_length(p, strlen(p));
        unsigned char c = (unsigned char)*p, next = (unsigned char)p[1];
        bool control = c < 0x20 || c == 0x7f || (n == 2 && c == 0xc2 && next < 0xa0);
        if (n == 0 || control) *p = '?';
        p += n == 0 || control ? 1 : n;
    }
}

EB_CLI_PRINTF(2, 3) static void say(struct text *t, const char *fmt, ...) {
    static const char more[] = "...";
    size_t room = sizeof t->s - t->n;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(t->s + t->n, room, fmt, args);
    va_end(args);
    if (n >= 0 && (size_t)n < room) {
        t->n += (size_t)n;
        return;
    }
    snprintf(t->s + sizeof t->s - sizeof more, sizeof more, "%s", more);
    t->n = sizeof t->s - 1;
}

static void print_text(struct text *t, size_t indent) {
    tame(t->s);
    eb_check_print_wrapped(t->s, indent);
    *t = (struct text){.n = 0};
}

static const struct eb_saved_device *device_of(const struct eb_machine *m) {
    return &m->report->devices[m->device];
}

/* ---- the machines ----------------------------------------------------------------------- */

static void print_machines(const struct eb_comparison *c) {
    struct text t = {.n = 0};
    for (size_t i = 0; i < c->n_machines; i++) {
        const struct eb_machine *m = &c->machines[i];
        const struct eb_saved_device *d = device_of(m);
        say(&t, "%s: %.200s, %.60s (%.200s): %u right, %u failed, %u refused; %s check of %.60s, ",
            m->label, d->name, m->report->file, d->description, d->n[EB_SAVED_OK],
            d->n[EB_SAVED_FAILED], d->n[EB_SAVED_REFUSED], m->report->full ? "full" : "quick",
            m->report->date);
        say(&t, "version %.60s, seed %.40s", m->report->version, m->report->seed);
        if (d->trouble[0]) say(&t, ". %.900s", d->trouble);
        print_text(&t, 0);
    }
}

/* Why figures may differ though no device does anything wrong. */
static void print_caveats(const struct eb_comparison *c) {
    const struct eb_saved_report *first = c->machines[0].report;
    bool seeds = false, versions = false, extents = false;
    for (size_t i = 1; i < c->n_machines; i++) {
        const struct eb_saved_report *r = c->machines[i].report;
        seeds = seeds || strcmp(r->seed, first->seed) != 0;
        versions = versions || strcmp(r->version, first->version) != 0;
        extents = extents || r->full != first->full;
    }
    if (seeds)
        eb_check_print_wrapped(
            "The seeds differ: inputs were not the same, so that errors differ by chance, too "
            "(--seed with one number on each machine).",
            0);
    if (versions)
        eb_check_print_wrapped(
            "The versions differ: what one case tries may not be the same, nor its budget.", 0);
    if (extents) eb_check_print_wrapped("A full check has cases that a quick one leaves out.", 0);
}

/* What the reports say of the demo model: only what failed. */
static void print_models(const struct eb_comparison *c) {
    bool any = false;
    for (size_t i = 0; i < c->n_machines; i++) {
        const struct eb_saved_report *r = c->machines[i].report;
        char text[512];
        any = any || r->has_model;
        if (r->n_model[EB_SAVED_FAILED] == 0 || (i > 0 && c->machines[i - 1].report == r)) continue;
        snprintf(text, sizeof text, "FAILED in %.300s: %u checks of the demo model", r->file,
                 r->n_model[EB_SAVED_FAILED]);
        eb_check_print_wrapped(text, 2);
    }
    if (any) eb_check_print_wrapped("Checks of the demo model are not compared.", 0);
}

/* ---- the table -------------------------------------------------------------------------- */

/* A part of a budget in at most 7 characters. */
static void format_share(double share, char *out, size_t bytes) {
    if (share < 0)
        snprintf(out, bytes, "-");
    else if (share == 0)
        snprintf(out, bytes, "0%%");
    else if (share < 0.0995)
        snprintf(out, bytes, "%.2f%%", 100 * share);
    else if (share < 100)
        snprintf(out, bytes, "%.0f%%", 100 * share);
    else if (isfinite(share))
        snprintf(out, bytes, "x%.0e", share);
    else
        snprintf(out, bytes, "beyond");
}

static void format_cell(const struct eb_compared_cell *cell, char *out, size_t bytes) {
    switch (cell->state) {
        case EB_COMPARED_ABSENT:
            snprintf(out, bytes, "-");
            break;
        case EB_COMPARED_REFUSED:
            snprintf(out, bytes, "refused");
            break;
        case EB_COMPARED_RIGHT:
            format_share(cell->share, out, bytes);
            break;
        case EB_COMPARED_FAILED:
            snprintf(out, bytes, "FAILED");
            break;
    }
}

/* What does not fit ends in "..". */
static void format_name(const char *name, size_t width, char *out, size_t bytes) {
    snprintf(out, bytes, "%s", name);
    tame(out);
    if (strlen(out) <= width) return;
    size_t n = width - 2;
    while (n > 0 && ((unsigned char)out[n] & 0xc0) == 0x80) n--;
    snprintf(out + n, bytes - n, "..");
}

static void print_columns(const struct eb_comparison *c, size_t first, size_t end) {
    printf("\n%-13s", "op");
    for (size_t m = first; m < end; m++) printf(" %7s", c->machines[m].label);
    printf(" %7s %s\n", "differ", "case that differs most");
    for (size_t i = 0; i < c->n_ops; i++) {
        const struct eb_compared *op = &c->ops[i];
        char text[128];
        format_name(op->op, 13, text, sizeof text);
        printf("%-13s", text);
        for (size_t m = first; m < end; m++) {
            format_cell(&op->cells[m], text, sizeof text);
            printf(" %7s", text);
        }
        format_share(op->difference, text, sizeof text);
        printf(" %7s", text);
        format_name(op->name ? op->name : "", NAME_WIDTH, text, sizeof text);
        printf("%s%s\n", text[0] ? " " : "", text);
    }
}

/* ---- what is not the same --------------------------------------------------------------- */

/* The machines of which a case says this, "; right on B, C". */
static void say_where(struct text *t, const struct eb_comparison *c, const struct eb_compared *one,
                      enum eb_compared_state state) {
    const char *before = "";
    for (size_t m = 0; m < c->n_machines; m++) {
        if (one->cells[m].state != state) continue;
        if (before[0] == '\0')
            say(t, "; %s on %s", eb_compared_word(state), c->machines[m].label);
        else
            say(t, ", %s", c->machines[m].label);
        before = ",";
    }
}

static void print_failures(const struct eb_comparison *c) {
    struct text t = {.n = 0};
    for (size_t m = 0; m < c->n_machines; m++) {
        const struct eb_machine *machine = &c->machines[m];
        for (size_t i = 0; i < machine->report->n_rows; i++) {
            const struct eb_saved_row *row = &machine->report->rows[i];
            const struct eb_compared *one = NULL;
            if (row->device != machine->device || row->verdict != EB_SAVED_FAILED) continue;
            if (!(one = eb_comparison_find(c, row->op, row->name))) continue;
            say(&t, "FAILED on %s: %.60s, \"%.100s\" (%.160s), %.60s: %.480s", machine->label,
                row->op, row->name, row->shape, eb_check_rung_words(row->rung), row->text);
            say_where(&t, c, one, EB_COMPARED_RIGHT);
            say_where(&t, c, one, EB_COMPARED_REFUSED);
            print_text(&t, 2);
        }
    }
}

/* Of one machine, the operators with such cases, each with their number. */
static void print_cases(const struct eb_comparison *c, size_t machine, const char *what,
                        bool (*is_such)(const struct eb_comparison *c,
                                        const struct eb_compared *one, size_t machine)) {
    struct text t = {.n = 0};
    size_t n = 0;
    for (size_t i = 0; i < c->n_cases; i++) {
        n += is_such(c, &c->cases[i], machine);
        if (i + 1 < c->n_cases && strcmp(c->cases[i].op, c->cases[i + 1].op) == 0) continue;
        if (n > 0 && t.n == 0) say(&t, "%s %s:", what, c->machines[machine].label);
        if (n > 0) say(&t, " %.60s (%zu)", c->cases[i].op, n);
        n = 0;
    }
    if (t.n > 0) print_text(&t, 2);
}

static bool is_alone(const struct eb_comparison *c, const struct eb_compared *one, size_t machine) {
    return eb_compared_alone(c, one) == machine;
}

void eb_comparison_print(const struct eb_comparison *c) {
    size_t n_shared = 0;
    if (c->n_machines == 0) return;
    print_machines(c);
    print_caveats(c);
    for (size_t m = 0; m < c->n_machines; m += COLUMNS)
        print_columns(c, m, m + COLUMNS < c->n_machines ? m + COLUMNS : c->n_machines);
    putchar('\n');
    print_failures(c);
    for (size_t m = 0; m < c->n_machines; m++)
        print_cases(c, m, "Cases refused and computed elsewhere, on", eb_compared_refused);
    for (size_t m = 0; m < c->n_machines; m++)
        print_cases(c, m, "Cases that are there alone on", is_alone);
    for (size_t i = 0; i < c->n_cases; i++) n_shared += c->cases[i].difference >= 0;
    print_models(c);
    printf("%zu cases on %zu machines, %zu of them computed on more than one\n", c->n_cases,
           c->n_machines, n_shared);
}

/* ---- JSON ------------------------------------------------------------------------------- */

static json_t *number(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}

/* Moves *one into the array; false, with nothing lost but *one: out of memory. */
static bool append(json_t *all, json_t *one) {
    return all && one && json_array_append_new(all, one) == 0;
}

/* A file's name need not be UTF-8. */
static json_t *file_json(const char *file) {
    char *clean = eb_utf8_clean(file, strlen(file));
    json_t *out = clean ? json_string(clean) : NULL;
    free(clean);
    return out;
}

static json_t *machine_json(const struct eb_machine *m) {
    const struct eb_saved_device *d = device_of(m);
    const struct eb_saved_report *r = m->report;
    json_t *file = file_json(r->file);
    return json_pack("{s:s, s:o, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:I, s:I, s:I}", "label",
                     m->label, "file", file, "device", d->name, "description", d->description,
                     "backend", d->backend, "trouble", d->trouble, "version", r->version, "date",
                     r->date, "seed", r->seed, "full", r->full, "ok", (json_int_t)d->n[EB_SAVED_OK],
                     "failed", (json_int_t)d->n[EB_SAVED_FAILED], "refused",
                     (json_int_t)d->n[EB_SAVED_REFUSED]);
}

/* What each machine says, in their order. */
static json_t *cells_json(const struct eb_comparison *c, const struct eb_compared *one) {
    json_t *all = json_array();
    bool ok = all != NULL;
    for (size_t m = 0; ok && m < c->n_machines; m++) {
        const struct eb_compared_cell *cell = &one->cells[m];
        json_t *used = cell->state < EB_COMPARED_RIGHT ? json_null() : number(cell->share);
        ok = append(all,
                    json_pack("{s:s, s:o}", "state", eb_compared_word(cell->state), "used", used));
    }
    if (ok) return all;
    json_decref(all);
    return NULL;
}

static json_t *compared_json(const struct eb_comparison *c, const struct eb_compared *one,
                             bool is_op) {
    json_t *cells = cells_json(c, one);
    json_t *by = one->difference >= 0 ? number(one->difference) : json_null();
    json_t *name = one->name ? json_string(one->name) : json_null();
    json_t *out = json_pack("{s:s, s:o, s:b, s:o, s:o}", "op", one->op, "case", name, "compared",
                            one->difference >= 0, "difference", by, "machines", cells);
    if (out && is_op && json_object_set_new(out, "cases", json_integer(one->n_cases)) != 0) {
        json_decref(out);
        return NULL;
    }
    return out;
}

json_t *eb_comparison_json(const struct eb_comparison *c) {
    json_t *machines = json_array(), *ops = json_array(), *cases = json_array(), *out = NULL;
    bool ok = machines && ops && cases;
    for (size_t m = 0; ok && m < c->n_machines; m++)
        ok = append(machines, machine_json(&c->machines[m]));
    for (size_t i = 0; ok && i < c->n_ops; i++)
        ok = append(ops, compared_json(c, &c->ops[i], true));
    for (size_t i = 0; ok && i < c->n_cases; i++)
        ok = append(cases, compared_json(c, &c->cases[i], false));
    if (ok)
        out = json_pack("{s:s, s:s, s:O, s:O, s:O}", "schema", "ebro-check-compare-1", "version",
                        ebro_version(), "machines", machines, "ops", ops, "cases", cases);
    json_decref(machines);
    json_decref(ops);
    json_decref(cases);
    return out;
}
