/* check_read.c: see check_read.h. */
#include "check_read.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_in.h"

/* Where something is wrong, and room to say it. */
struct reader {
    char where[48]; /* "results[3]: ", or "" */
    char *text;
    size_t text_bytes;
};

static bool wrong(const struct reader *in, const char *fmt, ...) {
    char what[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    snprintf(in->text, in->text_bytes, "%s%s", in->where, what);
    return false;
}

static bool wrong_member(const struct reader *in, const json_t *object, const char *name,
                         const char *right) {
    char value[64];
    const json_t *member = json_object_get(object, name);
    if (!member) return wrong(in, "\"%s\" is missing", name);
    eb_json_shorten(member, value, sizeof value);
    return wrong(in, "\"%s\" is %s, not %s", name, value, right);
}

/* ---- members ---------------------------------------------------------------------------- */

static bool get_text(const struct reader *in, const json_t *object, const char *name,
                     const char **out) {
    const json_t *member = json_object_get(object, name);
    if (!json_is_string(member)) return wrong_member(in, object, name, "a text");
    *out = json_string_value(member);
    return true;
}

/* One that is the name of something. */
static bool get_name(const struct reader *in, const json_t *object, const char *name,
                     const char **out) {
    if (!get_text(in, object, name, out)) return false;
    return **out != '\0' || wrong_member(in, object, name, "a name");
}

static bool get_bool(const struct reader *in, const json_t *object, const char *name, bool *out) {
    const json_t *member = json_object_get(object, name);
    if (!json_is_boolean(member)) return wrong_member(in, object, name, "true or false");
    *out = json_is_true(member);
    return true;
}

/* Not negative. */
static bool get_count(const struct reader *in, const json_t *object, const char *name,
                      json_int_t *out) {
    const json_t *member = json_object_get(object, name);
    if (!json_is_integer(member) || json_integer_value(member) < 0)
        return wrong_member(in, object, name, "a whole number from 0");
    *out = json_integer_value(member);
    return true;
}

static bool get_number(const struct reader *in, const json_t *object, const char *name,
                       double *out) {
    const json_t *member = json_object_get(object, name);
    if (!json_is_number(member) || json_number_value(member) < 0)
        return wrong_member(in, object, name, "a number from 0");
    *out = json_number_value(member);
    return true;
}

static bool get_array(const struct reader *in, const json_t *object, const char *name, size_t most,
                      const json_t **out) {
    const json_t *member = json_object_get(object, name);
    if (!json_is_array(member)) return wrong_member(in, object, name, "an array");
    if (json_array_size(member) > most)
        return wrong(in, "\"%s\" has %zu elements; at most %zu can be read", name,
                     json_array_size(member), most);
    *out = member;
    return true;
}

/* ---- parts ------------------------------------------------------------------------------ */

static bool read_device(struct reader *in, struct eb_saved_report *out, const json_t *json) {
    struct eb_saved_device *d = &out->devices[out->n_devices];
    if (!json_is_object(json)) return wrong(in, "not an object");
    if (!get_name(in, json, "name", &d->name) ||
        !get_text(in, json, "description", &d->description) ||
        !get_text(in, json, "backend", &d->backend) || !get_text(in, json, "trouble", &d->trouble))
        return false;
    for (uint32_t i = 0; i < out->n_devices; i++)
        if (strcmp(out->devices[i].name, d->name) == 0)
            return wrong(in, "\"name\" is that of devices[%u]", i);
    out->n_devices++;
    return true;
}

static bool read_verdict(const struct reader *in, const json_t *json, enum eb_saved_verdict *out) {
    static const char *const words[] = {"ok", "failed", "refused"};
    const char *word = NULL;
    if (!get_text(in, json, "verdict", &word)) return false;
    for (int i = 0; i < 3; i++) {
        if (strcmp(word, words[i]) != 0) continue;
        *out = (enum eb_saved_verdict)i;
        return true;
    }
    return wrong_member(in, json, "verdict", "one of ok, failed, refused");
}

static bool read_error(const struct reader *in, const json_t *json, struct eb_saved_row *row) {
    if (!json_is_null(json_object_get(json, "error")))
        return get_number(in, json, "error", &row->error);
    row->error = (double)INFINITY;
    return row->verdict != EB_SAVED_OK ||
           wrong_member(in, json, "error", "a number, as \"verdict\" is \"ok\"");
}

static bool read_row(struct reader *in, struct eb_saved_report *out, const json_t *json) {
    struct eb_saved_row *row = &out->rows[out->n_rows];
    const char *device = NULL, *unused = NULL;
    bool repeatable = false;
    json_int_t runs = 0;
    double seconds = 0;
    if (!json_is_object(json)) return wrong(in, "not an object");
    if (!get_name(in, json, "device", &device) || !get_name(in, json, "rung", &row->rung) ||
        !get_text(in, json, "variant", &unused) || !get_name(in, json, "op", &row->op) ||
        !get_name(in, json, "case", &row->name) || !get_text(in, json, "shape", &row->shape) ||
        !read_verdict(in, json, &row->verdict) || !read_error(in, json, row) ||
        !get_number(in, json, "budget", &row->budget) || !get_text(in, json, "measure", &unused) ||
        !get_text(in, json, "reason", &unused) || !get_count(in, json, "runs", &runs) ||
        !get_bool(in, json, "repeatable", &repeatable) ||
        !get_number(in, json, "seconds", &seconds) || !get_text(in, json, "text", &row->text))
        return false;
    if (row->verdict == EB_SAVED_OK && row->error > row->budget)
        return wrong(in, "\"verdict\" is \"ok\", but \"error\" is above \"budget\"");
    for (uint32_t i = 0; i < out->n_devices; i++) {
        if (strcmp(out->devices[i].name, device) != 0) continue;
        row->device = i;
        out->devices[i].n[row->verdict]++;
        out->n_rows++;
        return true;
    }
    return wrong_member(in, json, "device", "the name of one of \"devices\"");
}

/* n: of each verdict. */
static bool read_summary(struct reader *in, const uint32_t n[3], const json_t *json) {
    static const char *const names[] = {"ok", "failed", "refused"};
    const json_t *summary = json_object_get(json, "summary");
    if (!json_is_object(summary)) return wrong_member(in, json, "summary", "an object");
    size_t at = strlen(in->where);
    snprintf(in->where + at, sizeof in->where - at, "summary: ");
    for (int v = 0; v < 3; v++) {
        json_int_t said = 0;
        if (!get_count(in, summary, names[v], &said)) return false;
        if (said != (json_int_t)n[v])
            return wrong(in, "\"%s\" is %lld, but \"results\" has %u of them", names[v],
                         (long long)said, n[v]);
    }
    return true;
}

/* ---- the model -------------------------------------------------------------------------- */

static bool is_device(const struct eb_saved_report *r, const char *name) {
    for (uint32_t i = 0; i < r->n_devices; i++)
        if (strcmp(r->devices[i].name, name) == 0) return true;
    return false;
}

static bool read_model_row(struct reader *in, struct eb_saved_report *out, const json_t *json) {
    static const char *const texts[] = {"shape", "measure", "reason", "text"};
    static const char *const names[] = {"device", "rung", "check", "prompt", "cache"};
    struct eb_saved_row row = {.op = NULL};
    const char *word = NULL, *device = NULL, *from = NULL;
    double seconds = 0;
    if (!json_is_object(json)) return wrong(in, "not an object");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!get_name(in, json, names[i], i == 0 ? &device : &word)) return false;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!get_text(in, json, texts[i], &word)) return false;
    if (!read_verdict(in, json, &row.verdict) || !read_error(in, json, &row) ||
        !get_number(in, json, "budget", &row.budget) || !get_number(in, json, "seconds", &seconds))
        return false;
    if (row.verdict == EB_SAVED_OK && row.error > row.budget)
        return wrong(in, "\"verdict\" is \"ok\", but \"error\" is above \"budget\"");
    if (!is_device(out, device))
        return wrong_member(in, json, "device", "the name of one of \"devices\"");
    if (!json_is_null(json_object_get(json, "from")) &&
        (!get_text(in, json, "from", &from) || !is_device(out, from)))
        return wrong_member(in, json, "from", "null or the name of one of \"devices\"");
    out->n_model[row.verdict]++;
    return true;
}

/* Older reports, and those of single operators, have none. */
static bool read_model(struct reader *in, struct eb_saved_report *out, const json_t *json) {
    const json_t *model = json_object_get(json, "model"), *results = NULL;
    in->where[0] = '\0';
    if (!model) return true;
    if (!json_is_object(model)) return wrong_member(in, json, "model", "an object");
    out->has_model = true;
    snprintf(in->where, sizeof in->where, "model: ");
    if (!get_array(in, model, "results", EB_SAVED_MAX_ROWS, &results)) return false;
    for (size_t i = 0; i < json_array_size(results); i++) {
        snprintf(in->where, sizeof in->where, "model: results[%zu]: ", i);
        if (!read_model_row(in, out, json_array_get(results, i))) return false;
    }
    snprintf(in->where, sizeof in->where, "model: ");
    return read_summary(in, out->n_model, model);
}

static int compare_rows(const void *a, const void *b) {
    const struct eb_saved_row *x = a, *y = b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    int order = strcmp(x->op, y->op);
    if (order == 0) order = strcmp(x->name, y->name);
    return order != 0 ? order : strcmp(x->rung, y->rung);
}

/* Sorts the rows; none may be there twice. */
static bool sort_rows(struct reader *in, struct eb_saved_report *r) {
    in->where[0] = '\0';
    if (r->n_rows > 1) qsort(r->rows, r->n_rows, sizeof *r->rows, compare_rows);
    for (size_t i = 1; i < r->n_rows; i++) {
        const struct eb_saved_row *row = &r->rows[i];
        if (compare_rows(row - 1, row) == 0)
            return wrong(in, "\"results\" has \"%.60s\" of %.40s on %.40s, %.60s, twice", row->name,
                         row->op, r->devices[row->device].name, row->rung);
    }
    return true;
}

static bool read_head(const struct reader *in, struct eb_saved_report *out, const json_t *json) {
    const char *schema = NULL;
    if (!json_is_object(json)) return wrong(in, "not a JSON object, so no report of a check");
    if (!get_text(in, json, "schema", &schema)) return false;
    if (strcmp(schema, "ebro-check-1") != 0)
        return wrong_member(in, json, "schema", "\"ebro-check-1\", the only one that is known");
    return get_text(in, json, "version", &out->version) && get_text(in, json, "date", &out->date) &&
           get_text(in, json, "seed", &out->seed) && get_bool(in, json, "full", &out->full);
}

bool eb_saved_read(struct eb_saved_report *out, const char *file, json_t *json, char *text,
                   size_t text_bytes, bool *out_of_memory) {
    struct reader in = {.text = text, .text_bytes = text_bytes};
    const json_t *devices = NULL, *results = NULL;
    *out = (struct eb_saved_report){.json = json, .file = file};
    *out_of_memory = false;
    if (!read_head(&in, out, json)) return false;
    if (!get_array(&in, json, "devices", EB_SAVED_MAX_DEVICES, &devices)) return false;
    if (!get_array(&in, json, "results", EB_SAVED_MAX_ROWS, &results)) return false;
    if (!(out->rows = calloc(json_array_size(results) + 1, sizeof *out->rows))) {
        *out_of_memory = true;
        return wrong(&in, "out of memory for %zu results", json_array_size(results));
    }
    for (size_t i = 0; i < json_array_size(devices); i++) {
        snprintf(in.where, sizeof in.where, "devices[%zu]: ", i);
        if (!read_device(&in, out, json_array_get(devices, i))) return false;
    }
    for (size_t i = 0; i < json_array_size(results); i++) {
        snprintf(in.where, sizeof in.where, "results[%zu]: ", i);
        if (!read_row(&in, out, json_array_get(results, i))) return false;
    }
    uint32_t n[3] = {0, 0, 0};
    for (uint32_t i = 0; i < out->n_devices; i++)
        for (int v = 0; v < 3; v++) n[v] += out->devices[i].n[v];
    in.where[0] = '\0';
    return read_summary(&in, n, json) && sort_rows(&in, out) && read_model(&in, out, json);
}

void eb_saved_free(struct eb_saved_report *r) {
    json_decref(r->json);
    free(r->rows);
    *r = (struct eb_saved_report){.json = NULL};
}

double eb_saved_share(const struct eb_saved_row *row) {
    if (row->error == 0) return 0;
    return row->budget > 0 ? row->error / row->budget : (double)INFINITY;
}
