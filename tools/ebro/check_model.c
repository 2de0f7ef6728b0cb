/* check_model.c: what `ebro check` found of the demo model: kept, printed for people, and as JSON.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check_report.h"

enum {
    SHAPE_WIDTH = 49,
    NAME_WIDTH = 14,
    CELL_WIDTH = 10,
    CELLS = (100 - NAME_WIDTH) / (CELL_WIDTH + 1)
};

bool eb_check_add_model(struct eb_check_report *r, const struct eb_modelcheck_result *result) {
    if (r->n_models == r->models_capacity) {
        size_t more = r->models_capacity > 0 ? 2 * r->models_capacity : 64;
        struct eb_check_model_row *rows = realloc(r->models, more * sizeof *rows);
        if (!rows) return false;
        r->models = rows;
        r->models_capacity = more;
    }
    struct eb_check_model_row *row = &r->models[r->n_models++];
    *row = (struct eb_check_model_row){.device = result->device,
                                       .from = result->from,
                                       .kind = result->kind,
                                       .cache = result->cache,
                                       .measure = result->measure,
                                       .reason = result->reason,
                                       .verdict = result->verdict,
                                       .error = result->error,
                                       .budget = result->budget,
                                       .seconds = result->seconds};
    snprintf(row->rung, sizeof row->rung, "%s", result->rung);
    snprintf(row->prompt, sizeof row->prompt, "%s", result->prompt);
    snprintf(row->shape, sizeof row->shape, "%s", result->shape);
    snprintf(row->text, sizeof row->text, "%s", result->text);
    r->model_tally.n_ok += row->verdict == EB_OPCHECK_OK;
    r->model_tally.n_failed += row->verdict == EB_OPCHECK_FAILED;
    r->model_tally.n_refused += row->verdict == EB_OPCHECK_REFUSED;
    return true;
}

const struct eb_check_model_row *eb_check_resumed(const struct eb_check_report *r, uint32_t from,
                                                  uint32_t to) {
    const struct eb_check_model_row *worst = NULL;
    for (size_t i = 0; i < r->n_models; i++) {
        const struct eb_check_model_row *row = &r->models[i];
        if (row->kind != EB_MODELCHECK_RESUME || row->device != to || row->from != (int32_t)from)
            continue;
        bool worse =
            !worst || (row->verdict == EB_OPCHECK_FAILED) > (worst->verdict == EB_OPCHECK_FAILED);
        if (worst && row->verdict == worst->verdict)
            worse = eb_check_share_of(row->error, row->budget) >
                    eb_check_share_of(worst->error, worst->budget);
        if (worse) worst = row;
    }
    return worst;
}

/* ---- printing --------------------------------------------------------------------------- */

static const char *verdict_word(enum eb_opcheck_verdict v) {
    static const char *const words[] = {"ok", "FAILED", "refused"};
    return words[v];
}

void eb_check_print_models(const struct eb_check_report *r, size_t first, size_t end) {
    if (first == end) return;
    const struct eb_check_model_row *head = &r->models[first];
    printf("\n%s, %s: demo model%s, cache %s\n", r->devices[head->device].name,
           eb_check_rung_words(head->rung),
           head->kind == EB_MODELCHECK_RESUME ? " from what was saved" : "", head->cache);
    printf("%-7s %-7s %9s %8s %5s %-7s %s\n", "check", "prompt", "error", "budget", "used", "",
           "what");
    for (size_t i = first; i < end; i++) {
        const struct eb_check_model_row *row = &r->models[i];
        struct eb_check_figures f = eb_check_figures(row->error, row->budget);
        char what[192], shape[SHAPE_WIDTH + 1], prompt[8];
        snprintf(what, sizeof what, "%s%s%s", row->from >= 0 ? r->devices[row->from].name : "",
                 row->from >= 0 ? ": " : "", row->shape);
        eb_check_cut(shape, SHAPE_WIDTH, what);
        eb_check_cut(prompt, sizeof prompt - 1, row->prompt);
        if (row->verdict == EB_OPCHECK_REFUSED) f = (struct eb_check_figures){"", "", ""};
        printf("%-7s %-7s %9s %8s %5s %-7s %s\n", eb_modelcheck_name(row->kind), prompt, f.error,
               f.budget, f.used, verdict_word(row->verdict), shape);
    }
    for (size_t i = first; i < end; i++) {
        const struct eb_check_model_row *row = &r->models[i];
        char text[640];
        if (row->verdict == EB_OPCHECK_OK) continue;
        snprintf(text, sizeof text, "%s %s, \"%s\"%s%s: %s",
                 row->verdict == EB_OPCHECK_FAILED ? "FAILED" : "refused:",
                 eb_modelcheck_name(row->kind), row->prompt, row->from >= 0 ? ", saved on " : "",
                 row->from >= 0 ? r->devices[row->from].name : "", row->text);
        eb_check_print_wrapped(text, 2);
    }
}

static bool takes_part(const struct eb_check_report *r, uint32_t device) {
    return eb_check_resumed(r, device, device) != NULL;
}

static void print_cell(const struct eb_check_model_row *row) {
    char text[CELL_WIDTH + 1];
    if (!row)
        snprintf(text, sizeof text, "-");
    else if (row->verdict != EB_OPCHECK_OK)
        snprintf(text, sizeof text, "%s", verdict_word(row->verdict));
    else
        snprintf(text, sizeof text, "ok %.0f%%", 100 * eb_check_share_of(row->error, row->budget));
    printf(" %*s", CELL_WIDTH, text);
}

void eb_check_print_resumed(const struct eb_check_report *r) {
    uint32_t list[EB_CHECK_MAX_DEVICES], n = 0;
    for (uint32_t i = 0; i < r->n_devices; i++)
        if (takes_part(r, i)) list[n++] = i;
    if (n == 0) return;
    puts("\nSaved on (lines) and gone on with on (columns): the budget's part that was used");
    for (uint32_t first = 0; first < n; first += CELLS) {
        uint32_t end = n - first > CELLS ? first + CELLS : n;
        char name[NAME_WIDTH + 1];
        printf("%-*s", NAME_WIDTH, "");
        for (uint32_t i = first; i < end; i++) {
            eb_check_cut(name, CELL_WIDTH, r->devices[list[i]].name);
            printf(" %*s", CELL_WIDTH, name);
        }
        for (uint32_t from = 0; from < n; from++) {
            eb_check_cut(name, NAME_WIDTH, r->devices[list[from]].name);
            printf("\n%-*s", NAME_WIDTH, name);
            for (uint32_t i = first; i < end; i++)
                print_cell(eb_check_resumed(r, list[from], list[i]));
        }
        putchar('\n');
    }
}

/* ---- JSON ------------------------------------------------------------------------------- */

static json_t *row_json(const struct eb_check_report *r, const struct eb_check_model_row *row) {
    static const char *const verdicts[] = {"ok", "failed", "refused"};
    json_t *from = row->from >= 0 ? json_string(r->devices[row->from].name) : json_null();
    json_t *error = isfinite(row->error) ? json_real(row->error) : json_null();
    return json_pack("{s:s, s:o, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:f, s:s, s:s, s:f, s:s}",
                     "device", r->devices[row->device].name, "from", from, "rung", row->rung,
                     "check", eb_modelcheck_name(row->kind), "prompt", row->prompt, "cache",
                     row->cache, "shape", row->shape, "verdict", verdicts[row->verdict], "error",
                     error, "budget", row->budget, "measure", row->measure, "reason", row->reason,
                     "seconds", row->seconds, "text", row->text);
}

json_t *eb_check_model_json(const struct eb_check_report *r) {
    json_t *rows = json_array();
    bool ok = rows != NULL;
    for (size_t i = 0; ok && i < r->n_models; i++) {
        json_t *row = row_json(r, &r->models[i]);
        ok = row && json_array_append_new(rows, row) == 0;
    }
    const struct eb_opcheck_tally *t = &r->model_tally;
    if (ok)
        return json_pack("{s:{s:I, s:I, s:I}, s:o}", "summary", "ok", (json_int_t)t->n_ok, "failed",
                         (json_int_t)t->n_failed, "refused", (json_int_t)t->n_refused, "results",
                         rows);
    json_decref(rows);
    return NULL;
}
