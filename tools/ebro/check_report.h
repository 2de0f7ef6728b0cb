/* check_report.h: what `ebro check` found, kept for every form that it is shown in. */
#ifndef EB_CHECK_REPORT_H
#define EB_CHECK_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "check/check.h"
#include "common.h"
#include "modelcheck/modelcheck.h"

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

/* One check of the demo model: eb_modelcheck_result, in memory of its own. */
struct eb_check_model_row {
    uint32_t device; /* of the report */
    int32_t from;    /* the same; -1: of no other device */
    enum eb_modelcheck_kind kind;
    char rung[64], prompt[32], shape[128], text[480];
    const char *cache, *measure, *reason; /* constants of the library */
    enum eb_opcheck_verdict verdict;
    double error, budget, seconds;
};

enum { EB_CHECK_MAX_DEVICES = 32 };

struct eb_check_report {
    uint64_t seed;
    bool full;
    char date[24]; /* UTC, ISO 8601 */
    ebro_device_info devices[EB_CHECK_MAX_DEVICES];
    ebro_caps caps[EB_CHECK_MAX_DEVICES]; /* of the best rung */
    /* A device that could not be checked to the end: why; empty for the others. */
    char troubles[EB_CHECK_MAX_DEVICES][1024];
    uint32_t n_devices;
    struct eb_check_row *rows;
    size_t n_rows, capacity;
    struct eb_opcheck_tally tally;
    /* Of the demo model, after the operators; none where single operators were asked for. */
    struct eb_check_model_row *models;
    size_t n_models, models_capacity;
    struct eb_opcheck_tally model_tally;
};

/* Adds a row for the last device. False: out of memory. */
bool eb_check_add(struct eb_check_report *r, const struct eb_opcheck_result *result);
/* Adds a row of the model, whose devices are numbered as the report's. The same. (check_model.c) */
bool eb_check_add_model(struct eb_check_report *r, const struct eb_modelcheck_result *result);
void eb_check_free(struct eb_check_report *r);

/* How much of its budget an error took; infinite where nothing was allowed. */
double eb_check_share_of(double error, double budget);
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
/* Error, budget and used as the table has them, each up to 9 bytes; what fits not ends in "..". */
struct eb_check_figures {
    char error[16], budget[16], used[16];
};
struct eb_check_figures eb_check_figures(double error, double budget);
void eb_check_cut(char *out, size_t width, const char *text);

/* Rows of the model from `first` on, of one rung, as eb_check_print_group. (check_model.c) */
void eb_check_print_models(const struct eb_check_report *r, size_t first, size_t end);
/* What each device saved and each other one went on with, in blocks of at most 100 columns. */
void eb_check_print_resumed(const struct eb_check_report *r);
/* Worst of the rows in which `to` went on with what `from` had saved; NULL: there are none. */
const struct eb_check_model_row *eb_check_resumed(const struct eb_check_report *r, uint32_t from,
                                                  uint32_t to);
/* The model's part of the JSON; NULL: out of memory. */
json_t *eb_check_model_json(const struct eb_check_report *r);

/* The report as JSON, as CHECK.md describes it; NULL: out of memory. */
json_t *eb_check_json(const struct eb_check_report *r);

/* The same with the machine and what repeats failures (check_bundle.c); NULL: out of memory. */
json_t *eb_check_bundle(const struct eb_check_report *r);

/* Writes the report as one page of HTML that needs nothing else, and no script (check_html.c). As
 * eb_file_write calls it: report is a struct eb_check_report; false, with errno set: it cannot. */
bool eb_check_html(FILE *f, const void *report);

#endif
