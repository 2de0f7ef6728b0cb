/* check_table.c: the rows of `ebro check`: kept, and printed for people. */
#include "check_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 100, VARIANT_WIDTH = 20, NAME_WIDTH = 27 };

bool eb_check_add(struct eb_check_report *r, const struct eb_opcheck_result *result) {
    if (r->n_rows == r->capacity) {
        size_t more = r->capacity > 0 ? 2 * r->capacity : 64;
        struct eb_check_row *rows = realloc(r->rows, more * sizeof *rows);
        if (!rows) return false;
        r->rows = rows;
        r->capacity = more;
    }
    struct eb_check_row *row = &r->rows[r->n_rows++];
    *row = (struct eb_check_row){.device = r->n_devices - 1,
                                 .op = result->op,
                                 .name = result->name,
                                 .measure = result->measure,
                                 .reason = result->reason,
                                 .verdict = result->verdict,
                                 .error = result->error,
                                 .budget = result->budget,
                                 .seconds = result->seconds,
                                 .n_runs = result->n_runs,
                                 .repeatable = result->repeatable};
    snprintf(row->rung, sizeof row->rung, "%s", result->rung);
    snprintf(row->variant, sizeof row->variant, "%s", result->variant);
    snprintf(row->shape, sizeof row->shape, "%s", result->shape);
    snprintf(row->text, sizeof row->text, "%s", result->text);
    return true;
}

void eb_check_free(struct eb_check_report *r) {
    free(r->rows);
    free(r->models);
    r->rows = NULL;
    r->models = NULL;
    r->n_rows = r->capacity = r->n_models = r->models_capacity = 0;
}

double eb_check_share_of(double error, double budget) {
    if (error == 0) return 0;
    return budget > 0 ? error / budget : (double)INFINITY;
}

double eb_check_share(const struct eb_check_row *row) {
    return eb_check_share_of(row->error, row->budget);
}

/* ---- printing --------------------------------------------------------------------------- */

void eb_check_cut(char *out, size_t width, const char *text) {
    if (strlen(text) <= width)
        snprintf(out, width + 1, "%s", text);
    else
        snprintf(out, width + 1, "%.*s..", (int)(width - 2), text);
}

/* A word of the text that fits: all of it, or what does, up to the end of a character. */
static size_t fitting(const char *word, size_t indent) {
    size_t n = strcspn(word, " "), most = WIDTH - indent;
    if (n <= most) return n;
    while (most > 1 && ((unsigned char)word[most] & 0xc0) == 0x80) most--;
    return most;
}

void eb_check_print_wrapped(const char *text, size_t indent) {
    size_t column = 0;
    for (const char *p = text; *p != '\0';) {
        size_t n = fitting(p, indent);
        if (column > indent && column + 1 + n > WIDTH) {
            putchar('\n');
            column = 0;
        }
        if (column == 0)
            column = (size_t)printf("%*s", (int)indent, "");
        else if (column > indent)
            column += (size_t)printf(" ");
        column += (size_t)printf("%.*s", (int)n, p);
        p += n;
        p += strspn(p, " ");
    }
    putchar('\n');
}

struct eb_check_sum eb_check_sum_up(const struct eb_check_report *r, size_t first, size_t end,
                                    ebro_op op) {
    struct eb_check_sum l = {.repeatable = true};
    for (size_t i = first; i < end; i++) {
        const struct eb_check_row *row = &r->rows[i];
        if (row->op != op) continue;
        l.n++;
        l.n_failed += row->verdict == EB_OPCHECK_FAILED;
        l.n_refused += row->verdict == EB_OPCHECK_REFUSED;
        l.repeatable = l.repeatable && row->repeatable;
        if (row->verdict == EB_OPCHECK_REFUSED) continue;
        if (!l.worst || eb_check_share(row) > eb_check_share(l.worst)) l.worst = row;
    }
    return l;
}

const char *eb_check_sum_word(const struct eb_check_sum *s) {
    if (s->n_failed > 0) return "failed";
    if (s->n_refused == 0) return "ok";
    return s->n_refused == s->n ? "refused" : "partly";
}

const char *eb_check_rung_words(const char *rung) {
    return strcmp(rung, "best") == 0 ? "all capabilities" : rung;
}

struct eb_check_figures eb_check_figures(double error, double budget) {
    struct eb_check_figures f;
    double share = eb_check_share_of(error, budget);
    if (isfinite(error))
        snprintf(f.error, sizeof f.error, "%.1e", error);
    else
        snprintf(f.error, sizeof f.error, "no number");
    if (error == 0) snprintf(f.error, sizeof f.error, "0");
    snprintf(f.budget, sizeof f.budget, budget > 0 ? "%.1e" : "0", budget);
    if (share < 100)
        snprintf(f.used, sizeof f.used, "%.0f%%", 100 * share);
    else
        snprintf(f.used, sizeof f.used, "-");
    return f;
}

static void print_line(const struct eb_check_sum *l, ebro_op op, const char *variant) {
    char short_variant[VARIANT_WIDTH + 1], name[NAME_WIDTH + 1] = "";
    struct eb_check_figures f = {"", "", ""};
    eb_check_cut(short_variant, VARIANT_WIDTH, variant);
    if (l->worst) {
        f = eb_check_figures(l->worst->error, l->worst->budget);
        eb_check_cut(name, NAME_WIDTH, l->worst->name);
    }
    const char *verdict = l->n_failed > 0 ? "FAILED" : eb_check_sum_word(l);
    printf("%-13s %-*s %5u %9s %8s %5s %-7s %s\n", eb_op_name(op), VARIANT_WIDTH, short_variant,
           l->n, f.error, f.budget, f.used, verdict, name);
}

/* A refusal for a reason that was given before says nothing new. */
static bool is_repeated(const struct eb_check_report *r, size_t first, size_t i) {
    const struct eb_check_row *row = &r->rows[i];
    for (size_t k = first; k < i && row->verdict == EB_OPCHECK_REFUSED; k++)
        if (r->rows[k].op == row->op && strcmp(r->rows[k].text, row->text) == 0) return true;
    return false;
}

static void print_trouble(const struct eb_check_row *row) {
    char text[1024];
    bool failed = row->verdict == EB_OPCHECK_FAILED;
    snprintf(text, sizeof text, "%s %s, \"%s\"%s%s%s: %s",
             failed ? "FAILED" : "refused:", eb_op_name(row->op), row->name,
             row->shape[0] ? " (" : "", row->shape, row->shape[0] ? ")" : "", row->text);
    eb_check_print_wrapped(text, 2);
}

void eb_check_print_group(const struct eb_check_report *r, size_t first, size_t end) {
    if (first == end) return;
    const struct eb_check_row *head = &r->rows[first];
    printf("\n%s, %s: %s\n", r->devices[head->device].name, eb_check_rung_words(head->rung),
           r->devices[head->device].description);
    printf("%-13s %-*s %5s %9s %8s %5s %-7s %s\n", "op", VARIANT_WIDTH, "variant", "cases", "error",
           "budget", "used", "", "nearest case");
    for (int op = 0; op < EBRO_N_OPS; op++) {
        struct eb_check_sum l = eb_check_sum_up(r, first, end, (ebro_op)op);
        for (size_t i = first; i < end && l.n > 0; i++) {
            if (r->rows[i].op != (ebro_op)op) continue;
            print_line(&l, (ebro_op)op, r->rows[i].variant);
            break;
        }
    }
    for (size_t i = first; i < end; i++)
        if (r->rows[i].verdict != EB_OPCHECK_OK && !is_repeated(r, first, i))
            print_trouble(&r->rows[i]);
}

void eb_check_print_summary(const struct eb_check_report *r) {
    uint32_t n = r->tally.n_ok + r->tally.n_failed + r->tally.n_refused, n_broken = 0;
    for (uint32_t i = 0; i < r->n_devices; i++) {
        if (!r->troubles[i][0]) continue;
        n_broken++;
        putchar('\n');
        eb_check_print_wrapped(r->troubles[i], 0);
    }
    printf("\n%u cases on %u device%s: %u right, %u failed, %u refused; seed %llu\n", n,
           r->n_devices, r->n_devices == 1 ? "" : "s", r->tally.n_ok, r->tally.n_failed,
           r->tally.n_refused, (unsigned long long)r->seed);
    const struct eb_opcheck_tally *m = &r->model_tally;
    if (r->n_models > 0)
        printf("%zu checks of the demo model: %u right, %u failed, %u refused\n", r->n_models,
               m->n_ok, m->n_failed, m->n_refused);
    if (r->tally.n_failed > 0 || m->n_failed > 0 || n_broken > 0)
        puts("Do not trust what failed. The same inputs again: --seed with the number above.");
}
