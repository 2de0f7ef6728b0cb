/* bar.h: a bar on stderr that says how far something is, once it has taken a second; gone when it
 * ends. Where stderr is no terminal nothing is written. */
#ifndef EB_BAR_H
#define EB_BAR_H

#include <stdbool.h>

struct eb_bar {
    bool on, shown;
    double begin;
    int permille; /* that is shown */
};

void eb_bar_start(struct eb_bar *b);
/* `fraction` from 0 to 1. Does nothing between eb_bar_end and eb_bar_start. */
void eb_bar_show(struct eb_bar *b, const char *label, double fraction);
void eb_bar_end(struct eb_bar *b);

#endif
