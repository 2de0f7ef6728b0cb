/* check_plot.c: how near the errors of a check come to what is allowed, as strips of SVG in a table
 * of HTML. Places are percentages, so that a strip is as wide as the window lets it be and its text
 * stays as large as all other text. */
#include <math.h>
#include <string.h>

#include "check_page.h"

enum { PITCH = 13, MARGIN = 3, N_COLOURS = 6, DECADES = 4 };

/* Percent of the width. The scale goes from 10^-DECADES of the budget to all of it; to the left of
 * it lies what is less, or nothing, and to the right what is more. */
static const double at_least = 8, at_budget = 88, at_more = 96;

static double place(double share) {
    if (!(share <= 1)) return at_more;
    double part = share > 0 ? 1 + log10(share) / DECADES : -1;
    return part < 0 ? at_least / 2 : at_least + part * (at_budget - at_least);
}

static void put_rules(FILE *f) {
    for (int i = 0; i <= DECADES; i++) {
        double x = at_least + (at_budget - at_least) * i / DECADES;
        fprintf(f, "<line class=\"%s\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"0\" y2=\"100%%\"/>",
                i == DECADES ? "budget" : "rule", x, x);
    }
}

static void put_axis(FILE *f) {
    static const char *const ticks[DECADES + 1] = {".01 %", ".1 %", "1 %", "10 %", "100 %"};
    fputs("<svg class=\"strip\" height=\"16\" aria-hidden=\"true\">", f);
    for (int i = 0; i <= DECADES; i++)
        fprintf(f, "<text class=\"middle\" x=\"%.2f%%\" y=\"12\">%s</text>",
                at_least + (at_budget - at_least) * i / DECADES, ticks[i]);
    fputs("</svg>", f);
}

static void put_mark(FILE *f, const struct eb_check_row *row, int y, bool worst) {
    double x = place(eb_check_share(row));
    if (row->verdict == EB_OPCHECK_FAILED)
        fprintf(f,
                "<svg x=\"%.2f%%\" y=\"%d\" class=\"cross\"><path d=\"M-4-4L4 4M-4 4L4-4\"/></svg>",
                x, y);
    else
        fprintf(f, "<circle cx=\"%.2f%%\" cy=\"%d\" r=\"%s\"/>", x, y, worst ? "4" : "2");
}

/* What a strip shows, for those who do not see it. */
static void put_label(FILE *f, const struct eb_check_report *r, const struct eb_check_lanes *l,
                      ebro_op op) {
    fputs(" role=\"img\" aria-label=\"nearest to the budget:", f);
    for (size_t i = 0; i < l->n; i++) {
        const struct eb_check_lane *lane = &l->items[i];
        struct eb_check_sum s = eb_check_sum_up(r, lane->first, lane->end, op);
        char share[32];
        if (!s.worst) continue;
        eb_check_share_text(s.worst->error, s.worst->budget, share, sizeof share);
        fprintf(f, " %zu: %s", i + 1, share);
        if (s.n_failed > 0) fprintf(f, ", %u failed", s.n_failed);
        fputc(';', f);
    }
    fputc('"', f);
}

static void put_strip(FILE *f, const struct eb_check_report *r, const struct eb_check_lanes *l,
                      ebro_op op) {
    int n = 0;
    for (size_t i = 0; i < l->n; i++)
        n += eb_check_sum_up(r, l->items[i].first, l->items[i].end, op).worst != NULL;
    if (n == 0) return;
    fprintf(f, "<tr><th scope=\"row\">%s</th><td><svg class=\"strip\" height=\"%d\"",
            eb_op_name(op), n * PITCH + 2 * MARGIN);
    put_label(f, r, l, op);
    fputc('>', f);
    put_rules(f);
    int y = MARGIN + PITCH / 2;
    for (size_t i = 0; i < l->n; i++) {
        const struct eb_check_lane *lane = &l->items[i];
        struct eb_check_sum s = eb_check_sum_up(r, lane->first, lane->end, op);
        if (!s.worst) continue;
        fprintf(f, "<g class=\"k%zu\"><text class=\"end\" x=\"-4\" y=\"%d\">%zu</text>",
                i % N_COLOURS, y + 4, i + 1);
        for (size_t k = lane->first; k < lane->end; k++) {
            const struct eb_check_row *row = &r->rows[k];
            if (row->op == op && row->verdict != EB_OPCHECK_REFUSED)
                put_mark(f, row, y, row == s.worst);
        }
        fputs("</g>", f);
        y += PITCH;
    }
    fputs("</svg></td></tr>\n", f);
}

static void put_legend(FILE *f, const struct eb_check_report *r, const struct eb_check_lanes *l) {
    fputs("<ol class=\"legend\">\n", f);
    for (size_t i = 0; i < l->n; i++) {
        fprintf(f,
                "<li><svg width=\"12\" height=\"12\" aria-hidden=\"true\" class=\"k%zu\">"
                "<circle cx=\"6\" cy=\"6\" r=\"4\"/></svg> ",
                i % N_COLOURS);
        eb_check_put_text(f, r->devices[l->items[i].device].name);
        fputs(", ", f);
        eb_check_put_text(f, eb_check_rung_words(l->items[i].rung));
        fputs("</li>\n", f);
    }
    fputs("</ol>\n", f);
}

void eb_check_put_plot(FILE *f, const struct eb_check_report *r, const struct eb_check_lanes *l) {
    fputs(
        "<section aria-labelledby=\"near\">\n<h2 id=\"near\">Error against budget</h2>\n"
        "<p>Each mark is a case: its error as a part of the largest error that is right, on a log "
        "scale. Large: the nearest one. At the left end: smaller, or no error at all. A cross: "
        "failed; at the right end beyond the budget. The numbers are those of the list.</p>\n",
        f);
    put_legend(f, r, l);
    fputs(
        "<table class=\"plot\">\n<thead><tr><th scope=\"col\">Operator</th><th scope=\"col\">"
        "<span class=\"unseen\">Error as a part of its budget</span>",
        f);
    put_axis(f);
    fputs("</th></tr></thead>\n<tbody>\n", f);
    for (int op = 0; op < EBRO_N_OPS; op++) put_strip(f, r, l, (ebro_op)op);
    fputs("</tbody></table>\n</section>\n", f);
}
