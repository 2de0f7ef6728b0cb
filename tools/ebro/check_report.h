/* check_report.h: what `ebro check` found, kept for every form that it is shown in. */
#ifndef EB_CHECK_REPORT_H
#define EB_CHECK_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "check/check.h"
#include "common.h"

/* One case on one rung of one device: eb_opcheck_result, in memory of its own. */
struct eb_check_row {
    uint32_t device; /* of the report */
    char rung[64], variant[256], shape[160], text[480];
    ebro_op op;
    const char *name, *measure, *reason; /* constants of the library */
    enum eb_opcheck_verdict verdict;
    double error, budget, seconds;
    uint32_t n_runs;
    bool repeatable;
};

enum { EB_CHECK_MAX_DEVICES = 32 };

struct eb_check_report {
    uint64_t seed;
    bool full;
    char date[24]; /* UTC, ISO 8601 */
    ebro_device_info devices[EB_CHECK_MAX_DEVICES];
    /* A device that could not be checked to the end: why; empty for the others. */
    char troubles[EB_CHECK_MAX_DEVICES][1024];
    uint32_t n_devices;
    struct eb_check_row *rows;
    size_t n_rows, capacity;
    struct eb_opcheck_tally tally;
};

/* Adds a row for the last device. False: out of memory. */
bool eb_check_add(struct eb_check_report *r, const struct eb_opcheck_result *result);
void eb_check_free(struct eb_check_report *r);

/* How much of its budget an error took; infinite where nothing was allowed. */
double eb_check_share(const struct eb_check_row *row);

/* What the rows of one op come to. */
struct eb_check_sum {
    uint32_t n, n_failed, n_refused;
    bool repeatable;
    const struct eb_check_row *worst; /* nearest to its budget; NULL: none was computed */
};
struct eb_check_sum eb_check_sum_up(const struct eb_check_report *r, size_t first, size_t end,
                                    ebro_op op);
/* "ok", "failed", "refused", or "partly": some are refused, the others right. */
const char *eb_check_sum_word(const struct eb_check_sum *s);

/* A rung in words: "all capabilities", "without matrix". */
const char *eb_check_rung_words(const char *rung);

/* `text` behind `indent` blanks on stdout, broken between words so that no line has more than 100
 * bytes; a word that is longer is broken too. */
void eb_check_print_wrapped(const char *text, size_t indent);

/* Rows [first, end), of one rung, as a table of at most 100 columns with what failed and what was
 * refused below it. */
void eb_check_print_group(const struct eb_check_report *r, size_t first, size_t end);
void eb_check_print_summary(const struct eb_check_report *r);

/* The report as JSON, as CHECK.md describes it; NULL: out of memory. */
json_t *eb_check_json(const struct eb_check_report *r);

/* Writes the report as one page of HTML that needs nothing else, and no script (check_html.c). As
 * eb_file_write calls it: report is a struct eb_check_report; false, with errno set: it cannot. */
bool eb_check_html(FILE *f, const void *report);

#endif
