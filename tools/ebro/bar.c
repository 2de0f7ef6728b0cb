/* bar.c: see bar.h. */
#include "bar.h"

#include <stdio.h>
#include <unistd.h>

#include "common.h"

enum { LABEL = 28, CELLS = 30 };
static const double patience = 1.0; /* seconds */

void eb_bar_start(struct eb_bar *b) {
    *b = (struct eb_bar){.on = isatty(STDERR_FILENO) != 0, .begin = eb_seconds(), .permille = -1};
}

void eb_bar_show(struct eb_bar *b, const char *label, double fraction) {
    if (!b->on || eb_seconds() - b->begin < patience) return;
    int permille = (int)(fraction * 1000.0);
    if (permille == b->permille) return;
    char cells[CELLS + 1];
    for (int i = 0; i < CELLS; i++) cells[i] = i * 1000 < permille * CELLS ? '#' : '.';
    cells[CELLS] = '\0';
    fprintf(stderr, "\r%-*.*s [%s] %3d%%", LABEL, LABEL, label, cells, permille / 10);
    b->permille = permille;
    b->shown = true;
}

void eb_bar_end(struct eb_bar *b) {
    if (b->shown) fprintf(stderr, "\r%*s\r", LABEL + CELLS + 8, "");
    *b = (struct eb_bar){0};
}
