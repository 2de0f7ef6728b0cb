/* check_read.h: reads the report that `ebro check --json` wrote, of this version or another, and
 * takes nothing that CHECK.md does not allow. Knows no operator: they are names. */
#ifndef EB_CHECK_READ_H
#define EB_CHECK_READ_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum eb_saved_verdict { EB_SAVED_OK = 0, EB_SAVED_FAILED = 1, EB_SAVED_REFUSED = 2 };

/* A case on a rung. Texts belong to the JSON. */
struct eb_saved_row {
    const char *op, *name, *rung, *shape, *text;
    uint32_t device; /* of the report */
    enum eb_saved_verdict verdict;
    double error; /* infinite: null in the file */
    double budget;
};

struct eb_saved_device {
    const char *name, *description, *backend;
    const char *trouble; /* why it was not checked to the end, or "" */
    uint32_t n[3];       /* rows of each verdict */
};

enum { EB_SAVED_MAX_DEVICES = 32, EB_SAVED_MAX_ROWS = 100000 };

struct eb_saved_report {
    json_t *json;
    const char *file, *version, *date, *seed;
    bool full;
    struct eb_saved_device devices[EB_SAVED_MAX_DEVICES];
    uint32_t n_devices;
    struct eb_saved_row *rows;
    size_t n_rows;
    bool has_model;      /* results of the demo model, which are counted and not compared */
    uint32_t n_model[3]; /* of each verdict */
};

/* Takes `json`; `file` is kept as it is given, for others to name. False: `text` says what is wrong
 * and where, *out_of_memory whether it is that. eb_saved_free follows either way. */
bool eb_saved_read(struct eb_saved_report *out, const char *file, json_t *json, char *text,
                   size_t text_bytes, bool *out_of_memory);
void eb_saved_free(struct eb_saved_report *r);

/* error / budget; infinite where nothing was allowed. */
double eb_saved_share(const struct eb_saved_row *row);

#endif
