/* check_page.h: what the files that write the page of `ebro check` share. */
#ifndef EB_CHECK_PAGE_H
#define EB_CHECK_PAGE_H

#include "check_report.h"

/* The rows [first, end) of one rung of one device, which lie side by side in a report. */
struct eb_check_lane {
    uint32_t device;
    const char *rung;
    size_t first, end;
};
struct eb_check_lanes {
    struct eb_check_lane *items;
    size_t n;
};

/* Text in HTML and in its attributes: what has a meaning there is escaped; bytes that are not UTF-8
 * and control characters become U+FFFD. */
void eb_check_put_text(FILE *f, const char *text);

/* "4 %", "12 times", or why there is no such number. */
void eb_check_share_text(double error, double budget, char *out, size_t bytes);

/* The style sheet, for a style element. */
void eb_check_put_style(FILE *f);

/* A table with a strip for each operator: each case a mark at error / budget, on a log scale, the
 * lanes below each other. */
void eb_check_put_plot(FILE *f, const struct eb_check_report *r, const struct eb_check_lanes *l);

#endif
