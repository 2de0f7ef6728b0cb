/* check_html.c: the report of `ebro check` as one page for people: what failed, how near everything
 * came to what is allowed, every case, and why that much is allowed. It needs no network, no script
 * and no other file. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check_page.h"
#include "quote.h"

/* ---- texts ------------------------------------------------------------------------------ */

void eb_check_put_text(FILE *f, const char *text) {
    static const char marked[] = "&<>\"'";
    static const char *const escapes[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    for (size_t n = strlen(text); n > 0;) {
        size_t length = eb_utf8_length(text, n);
        const char *at = strchr(marked, *text);
        if (at)
            fputs(escapes[at - marked], f);
        else if (length == 0 || (unsigned char)*text < 0x20 || *text == 0x7f ||
                 (length == 2 && *text == '\xc2' && (unsigned char)text[1] < 0xa0))
            fputs("\xef\xbf\xbd", f);
        else
            fwrite(text, 1, length, f);
        if (length == 0) length = 1;
        text += length;
        n -= length;
    }
}

void eb_check_share_text(double error, double budget, char *out, size_t bytes) {
    double share = eb_check_share_of(error, budget);
    if (share == 0)
        snprintf(out, bytes, "0 %%");
    else if (share < 0.001)
        snprintf(out, bytes, "below 0.1 %%");
    else if (share < 0.0995)
        snprintf(out, bytes, "%.1f %%", 100 * share);
    else if (share <= 10)
        snprintf(out, bytes, "%.0f %%", 100 * share);
    else if (share < 1e6)
        snprintf(out, bytes, "%.0f times", share);
    else if (isfinite(share))
        snprintf(out, bytes, "%.0e times", share);
    else
        snprintf(out, bytes, isfinite(error) ? "none allowed" : "no number");
}

static void put_number(FILE *f, double x) {
    if (x == 0)
        fputc('0', f);
    else if (isfinite(x))
        fprintf(f, "%.1e", x);
    else
        fputs("no number", f);
}

static const char *verdict_class(enum eb_opcheck_verdict v) {
    static const char *const classes[] = {"ok", "failed", "refused"};
    return classes[v];
}

/* For people "right", as in the summary. */
static const char *verdict_word(enum eb_opcheck_verdict v) {
    static const char *const words[] = {"right", "failed", "refused"};
    return words[v];
}

static void put_device(FILE *f, const struct eb_check_report *r, const struct eb_check_lane *lane) {
    eb_check_put_text(f, r->devices[lane->device].name);
    fputs(", ", f);
    eb_check_put_text(f, eb_check_rung_words(lane->rung));
}

/* ---- the head --------------------------------------------------------------------------- */

static void put_sum(FILE *f, const struct eb_check_report *r) {
    const struct eb_opcheck_tally *t = &r->tally;
    uint32_t n = t->n_ok + t->n_failed + t->n_refused, n_broken = 0;
    for (uint32_t i = 0; i < r->n_devices; i++) n_broken += r->troubles[i][0] != '\0';
    const struct eb_opcheck_tally *m = &r->model_tally;
    bool bad = t->n_failed > 0 || m->n_failed > 0 || n_broken > 0;
    fprintf(f, "<p class=\"sum %s\">", bad ? "failed" : t->n_ok > 0 ? "right" : "refused");
    if (t->n_failed > 0)
        fprintf(f, "%u of %u cases failed", t->n_failed, n);
    else if (t->n_ok == 1)
        fputs("The one case that was computed is right", f);
    else if (t->n_ok > 0)
        fprintf(f, "%s %u cases that were computed are right", n_broken ? "The" : "All", t->n_ok);
    else
        fputs("Nothing was computed", f);
    if (n_broken > 0)
        fprintf(f, "; %u device%s not checked to the end", n_broken, n_broken == 1 ? "" : "s");
    if (t->n_refused > 0) fprintf(f, "; %u refused", t->n_refused);
    fputs(".", f);
    if (r->n_models > 0)
        fprintf(f, " Demo model: %u checks right, %u failed, %u refused.", m->n_ok, m->n_failed,
                m->n_refused);
    fputs("</p>\n", f);
    if (bad) fputs("<p>Do not trust what failed.</p>\n", f);
}

static void put_fact(FILE *f, const char *name, const char *text) {
    fprintf(f, "<dt>%s</dt><dd>", name);
    eb_check_put_text(f, text);
    fputs("</dd>\n", f);
}

static void put_head(FILE *f, const struct eb_check_report *r) {
    char seed[96];
    snprintf(seed, sizeof seed, "%llu (--seed with it gives the same inputs again)",
             (unsigned long long)r->seed);
    fputs(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
        "style-src 'unsafe-inline'\"/>\n<title>Ebro check, ",
        f);
    eb_check_put_text(f, r->date);
    fputs("</title>\n<style>\n", f);
    eb_check_put_style(f);
    fputs("</style>\n</head>\n<body>\n<header>\n<h1>Ebro check</h1>\n", f);
    put_sum(f, r);
    fputs("<dl>\n", f);
    put_fact(f, "Date", r->date);
    put_fact(f, "Version", ebro_version());
    put_fact(f, "Extent", r->full ? "full: all cases" : "quick: a part of the cases");
    put_fact(f, "Seed", seed);
    fputs("</dl>\n</header>\n<main>\n", f);
}

/* ---- sections --------------------------------------------------------------------------- */

/* A table that can be scrolled with the keyboard, too, where it does not fit. */
static void open_table(FILE *f, const char *heading, const char *table_class) {
    fprintf(f,
            "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-labelledby=\"%s\">\n"
            "<table class=\"%s\">\n",
            heading, table_class);
}

static void open_section(FILE *f, const char *id, const char *title, const char *text) {
    fprintf(f, "<section aria-labelledby=\"%s\">\n<h2 id=\"%s\">%s</h2>\n", id, id, title);
    if (text) fprintf(f, "<p>%s</p>\n", text);
}

static void close_section(FILE *f) {
    fputs("</tbody></table>\n</div>\n</section>\n", f);
}

static void put_devices(FILE *f, const struct eb_check_report *r) {
    open_section(f, "devices", "Devices", NULL);
    open_table(f, "devices", "devices");
    fputs(
        "<thead><tr><th scope=\"col\">Device</th><th scope=\"col\" class=\"number\">Right</th>"
        "<th scope=\"col\" class=\"number\">Failed</th>"
        "<th scope=\"col\" class=\"number\">Refused</th></tr></thead>\n<tbody>\n",
        f);
    for (uint32_t d = 0; d < r->n_devices; d++) {
        uint32_t n[3] = {0, 0, 0};
        for (size_t i = 0; i < r->n_rows; i++)
            if (r->rows[i].device == d) n[r->rows[i].verdict]++;
        fputs("<tr><th scope=\"row\">", f);
        eb_check_put_text(f, r->devices[d].name);
        fputs("<br/><small>", f);
        eb_check_put_text(f, r->devices[d].description);
        fputs("; backend ", f);
        eb_check_put_text(f, r->devices[d].backend);
        fputs("</small>", f);
        if (r->troubles[d][0]) {
            fputs("<p class=\"failed\">", f);
            eb_check_put_text(f, r->troubles[d]);
            fputs("</p>", f);
        }
        fprintf(f, "</th><td class=\"number\">%u</td><td class=\"number%s\">%u</td>", n[0],
                n[1] > 0 ? " failed" : "", n[1]);
        fprintf(f, "<td class=\"number\">%u</td></tr>\n", n[2]);
    }
    close_section(f);
}

/* Operators down, rungs across. A cell leads to its nearest case. */
static void put_matrix(FILE *f, const struct eb_check_report *r, const struct eb_check_lanes *l) {
    open_section(f, "matrix", "Operators and devices",
                 "How much of its budget the nearest case took. &#8211;: not there: the same code "
                 "was checked in a column before, or the check was for other operators. Partly: "
                 "some cases are refused.");
    open_table(f, "matrix", "matrix");
    fputs("<thead><tr><th scope=\"col\">Operator</th>", f);
    for (size_t i = 0; i < l->n; i++) {
        fprintf(f, "<th scope=\"col\">%zu. ", i + 1);
        put_device(f, r, &l->items[i]);
        fputs("</th>", f);
    }
    fputs("</tr></thead>\n<tbody>\n", f);
    for (int op = 0; op < EBRO_N_OPS; op++) {
        if (eb_check_sum_up(r, 0, r->n_rows, (ebro_op)op).n == 0) continue;
        fprintf(f, "<tr><th scope=\"row\" class=\"op\">%s</th>", eb_op_name((ebro_op)op));
        for (size_t i = 0; i < l->n; i++) {
            const struct eb_check_lane *lane = &l->items[i];
            struct eb_check_sum s = eb_check_sum_up(r, lane->first, lane->end, (ebro_op)op);
            char share[32] = "";
            if (s.n == 0) {
                fputs("<td>&#8211;</td>", f);
                continue;
            }
            const char *word = eb_check_sum_word(&s);
            if (s.worst) eb_check_share_text(s.worst->error, s.worst->budget, share, sizeof share);
            fprintf(f, "<td class=\"%s\">", word);
            if (s.worst) fprintf(f, "<a href=\"#r%zu\">", (size_t)(s.worst - r->rows));
            if (s.n_failed > 0)
                fprintf(f, "<b class=\"failed\">failed</b>");
            else
                fprintf(f, "%s%s%s", strcmp(word, "ok") == 0 ? "" : word,
                        s.worst && s.n_refused > 0 ? ", " : "", share);
            fprintf(f, "%s</td>", s.worst ? "</a>" : "");
        }
        fputs("</tr>\n", f);
    }
    close_section(f);
}

static bool is_repeated(const struct eb_check_report *r, size_t first, size_t i) {
    const struct eb_check_row *row = &r->rows[i];
    for (size_t k = first; k < i; k++) {
        const struct eb_check_row *other = &r->rows[k];
        if (other->verdict == row->verdict && other->op == row->op &&
            strcmp(other->text, row->text) == 0)
            return true;
    }
    return false;
}

static uint32_t count_like(const struct eb_check_report *r, size_t first, size_t end, size_t i) {
    const struct eb_check_row *row = &r->rows[i];
    uint32_t n = 0;
    for (size_t k = first; k < end; k++)
        n += r->rows[k].verdict == row->verdict && r->rows[k].op == row->op &&
             strcmp(r->rows[k].text, row->text) == 0;
    return n;
}

/* What is not right: every failure, and each reason of a refusal once for an operator. */
static void put_troubles(FILE *f, const struct eb_check_report *r, const struct eb_check_lanes *l,
                         enum eb_opcheck_verdict verdict) {
    bool failed = verdict == EB_OPCHECK_FAILED;
    if ((failed ? r->tally.n_failed : r->tally.n_refused) == 0) return;
    const char *id = failed ? "failures" : "refusals";
    open_section(f, id, failed ? "What failed" : "What was refused",
                 failed ? NULL
                        : "What a device says that it does not support, before it computes "
                          "anything, is no failure.");
    open_table(f, id, "troubles");
    fprintf(f,
            "<thead><tr><th scope=\"col\">Operator</th><th scope=\"col\">%s</th>"
            "<th scope=\"col\">Device</th></tr></thead>\n<tbody>\n",
            failed ? "What is wrong" : "Reason");
    for (size_t i = 0; i < l->n; i++) {
        const struct eb_check_lane *lane = &l->items[i];
        for (size_t k = lane->first; k < lane->end; k++) {
            const struct eb_check_row *row = &r->rows[k];
            if (row->verdict != verdict) continue;
            if (!failed && is_repeated(r, lane->first, k)) continue;
            fprintf(f, "<tr><th scope=\"row\"><a class=\"op\" href=\"#r%zu\">%s</a><br/><small>", k,
                    eb_op_name(row->op));
            uint32_t n = failed ? 1 : count_like(r, lane->first, lane->end, k);
            eb_check_put_text(f, row->name);
            if (n > 1) fprintf(f, " and %u more", n - 1);
            fprintf(f, "</small></th><td class=\"%s\">", verdict_class(verdict));
            eb_check_put_text(f, row->text);
            fputs("</td><td>", f);
            put_device(f, r, lane);
            fputs("</td></tr>\n", f);
        }
    }
    close_section(f);
}

/* ---- budgets ---------------------------------------------------------------------------- */

static bool same_budget(const struct eb_check_row *a, const struct eb_check_row *b) {
    return a->op == b->op && strcmp(a->reason, b->reason) == 0 &&
           strcmp(a->measure, b->measure) == 0;
}

static void put_budget(FILE *f, const struct eb_check_report *r, size_t i) {
    const struct eb_check_row *row = &r->rows[i];
    double low = row->budget, high = row->budget;
    for (size_t k = 0; k < i; k++)
        if (r->rows[k].verdict != EB_OPCHECK_REFUSED && same_budget(&r->rows[k], row)) return;
    for (size_t k = i; k < r->n_rows; k++) {
        const struct eb_check_row *other = &r->rows[k];
        if (other->verdict == EB_OPCHECK_REFUSED || !same_budget(other, row)) continue;
        low = fmin(low, other->budget);
        high = fmax(high, other->budget);
    }
    fprintf(f, "<tr><th scope=\"row\" class=\"op\">%s</th><td>", eb_op_name(row->op));
    put_number(f, low);
    if (high > low) {
        fputs(" to ", f);
        put_number(f, high);
    }
    fputs("<br/><small>", f);
    eb_check_put_text(f, row->measure);
    fputs("</small></td><td>", f);
    eb_check_put_text(f, row->reason);
    fputs("</td></tr>\n", f);
}

/* Each reason once for an operator. */
static void put_budgets(FILE *f, const struct eb_check_report *r) {
    open_section(f, "budgets", "Budgets and their reasons",
                 "The largest errors that are right, against float64.");
    open_table(f, "budgets", "budgets");
    fputs(
        "<thead><tr><th scope=\"col\">Operator</th><th scope=\"col\">Budget</th>"
        "<th scope=\"col\">Reason</th></tr></thead>\n<tbody>\n",
        f);
    for (int op = 0; op < EBRO_N_OPS; op++)
        for (size_t i = 0; i < r->n_rows; i++)
            if (r->rows[i].op == (ebro_op)op && r->rows[i].verdict != EB_OPCHECK_REFUSED)
                put_budget(f, r, i);
    close_section(f);
}

/* ---- all results ------------------------------------------------------------------------ */

static void put_row(FILE *f, const struct eb_check_report *r, size_t i) {
    const struct eb_check_row *row = &r->rows[i];
    fprintf(f, "<tr class=\"row is-%s\" id=\"r%zu\"><th scope=\"row\">%s: ",
            verdict_class(row->verdict), i, eb_op_name(row->op));
    eb_check_put_text(f, row->name);
    fputs("<br/><small>", f);
    eb_check_put_text(f, row->shape);
    if (row->variant[0]) {
        fputs("; ", f);
        eb_check_put_text(f, row->variant);
    }
    fputs("</small>", f);
    if (row->text[0]) {
        fprintf(f, "<p class=\"%s\">", verdict_class(row->verdict));
        eb_check_put_text(f, row->text);
        fputs("</p>", f);
    }
    fprintf(f, "</th><td class=\"%s\">%s</td>",
            row->verdict == EB_OPCHECK_OK ? "right" : verdict_class(row->verdict),
            verdict_word(row->verdict));
    if (row->verdict == EB_OPCHECK_REFUSED) {
        fputs("<td></td><td></td><td></td></tr>\n", f);
        return;
    }
    char share[32];
    eb_check_share_text(row->error, row->budget, share, sizeof share);
    fputs("<td>", f);
    put_number(f, row->error);
    fputs(" of ", f);
    put_number(f, row->budget);
    fputs("<br/><small>", f);
    eb_check_put_text(f, row->measure);
    fprintf(f, "</small></td><td>%s</td><td>%u<br/>", share, row->n_runs);
    if (row->n_runs > 1 && row->repeatable)
        fputs("<small>the same</small>", f);
    else if (!row->repeatable)
        fputs("<b class=\"failed\">differ</b>", f);
    fputs("</td></tr>\n", f);
}

static void put_filter(FILE *f, const struct eb_check_report *r) {
    const struct {
        const char *id, *label;
        size_t n;
    } choices[] = {{"all", "all", r->n_rows},
                   {"ok", "right", r->tally.n_ok},
                   {"failed", "failed", r->tally.n_failed},
                   {"refused", "refused", r->tally.n_refused}};
    fputs("<fieldset><legend>Show</legend>\n", f);
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        fprintf(
            f, "<label><input type=\"radio\" name=\"show\" id=\"show-%s\"%s/> %s (%zu)</label>\n",
            choices[i].id, i == 0 ? " checked=\"checked\"" : "", choices[i].label, choices[i].n);
    fputs("</fieldset>\n", f);
}

static void put_results(FILE *f, const struct eb_check_report *r, const struct eb_check_lanes *l) {
    fputs("<div id=\"results\">\n", f);
    open_section(f, "all", "All results", NULL);
    put_filter(f, r);
    open_table(f, "all", "results");
    fputs(
        "<thead><tr><th scope=\"col\">Case</th><th scope=\"col\">State</th>"
        "<th scope=\"col\">Error of budget</th><th scope=\"col\">Used</th>"
        "<th scope=\"col\">Runs</th></tr></thead>\n",
        f);
    for (size_t i = 0; i < l->n; i++) {
        const struct eb_check_lane *lane = &l->items[i];
        bool some[3] = {false, false, false};
        for (size_t k = lane->first; k < lane->end; k++) some[r->rows[k].verdict] = true;
        fprintf(f, "%s<tbody class=\"rung%s%s%s\"><tr><th colspan=\"5\" scope=\"rowgroup\">",
                i > 0 ? "</tbody>\n" : "", some[0] ? " some-ok" : "", some[1] ? " some-failed" : "",
                some[2] ? " some-refused" : "");
        put_device(f, r, lane);
        fputs("</th></tr>\n", f);
        for (size_t k = lane->first; k < lane->end; k++) put_row(f, r, k);
    }
    if (l->n == 0) fputs("<tbody>", f);
    close_section(f);
    fputs("</div>\n", f);
}

/* ---- the model -------------------------------------------------------------------------- */

static void put_model_row(FILE *f, const struct eb_check_report *r, size_t i) {
    const struct eb_check_model_row *row = &r->models[i];
    char share[32];
    fprintf(f, "<tr id=\"m%zu\"><th scope=\"row\"><span class=\"op\">%s</span>: ", i,
            eb_modelcheck_name(row->kind));
    eb_check_put_text(f, row->prompt);
    fputs("<br/><small>", f);
    eb_check_put_text(f, row->shape);
    fputs("</small>", f);
    if (row->text[0]) {
        fprintf(f, "<p class=\"%s\">", verdict_class(row->verdict));
        eb_check_put_text(f, row->text);
        fputs("</p>", f);
    }
    fputs("</th><td>", f);
    eb_check_put_text(f, r->devices[row->device].name);
    fputs(", ", f);
    eb_check_put_text(f, eb_check_rung_words(row->rung));
    fprintf(f, "<br/><small>cache %s", row->cache);
    if (row->from >= 0) {
        fputs(", saved on ", f);
        eb_check_put_text(f, r->devices[row->from].name);
    }
    fprintf(f, "</small></td><td class=\"%s\">%s</td>",
            row->verdict == EB_OPCHECK_OK ? "right" : verdict_class(row->verdict),
            verdict_word(row->verdict));
    if (row->verdict == EB_OPCHECK_REFUSED) {
        fputs("<td></td><td></td></tr>\n", f);
        return;
    }
    eb_check_share_text(row->error, row->budget, share, sizeof share);
    fputs("<td>", f);
    put_number(f, row->error);
    fputs(" of ", f);
    put_number(f, row->budget);
    fprintf(f, "<br/><small>%s; %s</small></td><td>%s</td></tr>\n", row->measure, row->reason,
            share);
}

static void put_models(FILE *f, const struct eb_check_report *r) {
    if (r->n_models == 0) return;
    open_section(f, "model", "The demo model",
                 "A small model on prompts whose logits and continuations are known in float64.");
    open_table(f, "model", "model");
    fputs(
        "<thead><tr><th scope=\"col\">Check</th><th scope=\"col\">Device</th>"
        "<th scope=\"col\">State</th><th scope=\"col\">Error of budget</th>"
        "<th scope=\"col\">Used</th></tr></thead>\n<tbody>\n",
        f);
    for (size_t i = 0; i < r->n_models; i++) put_model_row(f, r, i);
    close_section(f);
}

static void put_resumed_cell(FILE *f, const struct eb_check_report *r, uint32_t from, uint32_t to) {
    const struct eb_check_model_row *row = eb_check_resumed(r, from, to);
    char share[32];
    if (!row) {
        fputs("<td>&#8211;</td>", f);
        return;
    }
    eb_check_share_text(row->error, row->budget, share, sizeof share);
    if (row->verdict == EB_OPCHECK_FAILED) snprintf(share, sizeof share, "failed");
    if (row->verdict == EB_OPCHECK_REFUSED) snprintf(share, sizeof share, "refused");
    fprintf(f, "<td class=\"%s\"><a href=\"#m%zu\">%s</a></td>", verdict_class(row->verdict),
            (size_t)(row - r->models), share);
}

/* Devices down that saved a sequence, devices across that went on with it. */
static void put_resumed(FILE *f, const struct eb_check_report *r) {
    bool any = false;
    for (uint32_t d = 0; d < r->n_devices; d++) any = any || eb_check_resumed(r, d, d);
    if (!any) return;
    open_section(f, "resumed", "Saved on one device, gone on with on another",
                 "How much of its budget the worst took. &#8211;: it was not tried.");
    open_table(f, "resumed", "matrix resumed");
    fputs("<thead><tr><th scope=\"col\">Saved on</th>", f);
    for (uint32_t to = 0; to < r->n_devices; to++) {
        fputs("<th scope=\"col\">on ", f);
        eb_check_put_text(f, r->devices[to].name);
        fputs("</th>", f);
    }
    fputs("</tr></thead>\n<tbody>\n", f);
    for (uint32_t from = 0; from < r->n_devices; from++) {
        fputs("<tr><th scope=\"row\">", f);
        eb_check_put_text(f, r->devices[from].name);
        fputs("</th>", f);
        for (uint32_t to = 0; to < r->n_devices; to++) put_resumed_cell(f, r, from, to);
        fputs("</tr>\n", f);
    }
    close_section(f);
}

/* ---- the page --------------------------------------------------------------------------- */

static bool find_lanes(const struct eb_check_report *r, struct eb_check_lanes *l) {
    l->n = 0;
    if (!(l->items = calloc(r->n_rows + 1, sizeof *l->items))) return false;
    for (size_t i = 0; i < r->n_rows; i++) {
        const struct eb_check_row *row = &r->rows[i];
        struct eb_check_lane *lane = l->n > 0 ? &l->items[l->n - 1] : NULL;
        if (!lane || lane->device != row->device || strcmp(lane->rung, row->rung) != 0) {
            lane = &l->items[l->n++];
            *lane = (struct eb_check_lane){.device = row->device, .rung = row->rung, .first = i};
        }
        lane->end = i + 1;
    }
    return true;
}

bool eb_check_html(FILE *f, const void *report) {
    const struct eb_check_report *r = report;
    struct eb_check_lanes lanes;
    if (!find_lanes(r, &lanes)) {
        errno = ENOMEM;
        return false;
    }
    put_head(f, r);
    put_troubles(f, r, &lanes, EB_OPCHECK_FAILED);
    put_devices(f, r);
    eb_check_put_plot(f, r, &lanes);
    put_matrix(f, r, &lanes);
    put_models(f, r);
    put_resumed(f, r);
    put_troubles(f, r, &lanes, EB_OPCHECK_REFUSED);
    put_budgets(f, r);
    put_results(f, r, &lanes);
    fputs("</main>\n</body>\n</html>\n", f);
    free(lanes.items);
    return !ferror(f);
}
