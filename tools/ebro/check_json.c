/* check_json.c: the report of `ebro check` as JSON. CHECK.md describes it. */
#include <math.h>

#include "check_report.h"

/* JSON has no infinity: what is no number is null. */
static json_t *number(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *row_json(const struct eb_check_report *r, const struct eb_check_row *row) {
    static const char *const verdicts[] = {"ok", "failed", "refused"};
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:f, s:s, s:s, s:I, s:b, s:f, s:s}",
                     "device", r->devices[row->device].name, "rung", row->rung, "variant",
                     row->variant, "op", eb_op_name(row->op), "case", row->name, "shape",
                     row->shape, "verdict", verdicts[row->verdict], "error", number(row->error),
                     "budget", row->budget, "measure", row->measure, "reason", row->reason, "runs",
                     (json_int_t)row->n_runs, "repeatable", row->repeatable, "seconds",
                     row->seconds, "text", row->text);
}

/* Moves *one into the array; false, with nothing lost but *one: out of memory. */
static bool append(json_t *all, json_t *one) {
    return all && one && json_array_append_new(all, one) == 0;
}

json_t *eb_check_json(const struct eb_check_report *r) {
    json_t *devices = json_array(), *rows = json_array(), *report = NULL;
    bool ok = devices && rows;
    for (uint32_t i = 0; ok && i < r->n_devices; i++) {
        const ebro_device_info *d = &r->devices[i];
        ok = append(devices,
                    json_pack("{s:s, s:s, s:s, s:s}", "name", d->name, "description",
                              d->description, "backend", d->backend, "trouble", r->troubles[i]));
    }
    for (size_t i = 0; ok && i < r->n_rows; i++) ok = append(rows, row_json(r, &r->rows[i]));
    /* The seed as text: readers that take numbers for doubles would lose its last digits. */
    char seed[32];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)r->seed);
    if (ok)
        report = json_pack("{s:s, s:s, s:s, s:s, s:b, s:{s:I, s:I, s:I}, s:O, s:O}", "schema",
                           "ebro-check-1", "version", ebro_version(), "date", r->date, "seed", seed,
                           "full", r->full, "summary", "ok", (json_int_t)r->tally.n_ok, "failed",
                           (json_int_t)r->tally.n_failed, "refused", (json_int_t)r->tally.n_refused,
                           "devices", devices, "results", rows);
    json_decref(devices);
    json_decref(rows);
    if (!report || r->n_models == 0) return report;
    if (json_object_set_new(report, "model", eb_check_model_json(r)) == 0) return report;
    json_decref(report);
    return NULL;
}
