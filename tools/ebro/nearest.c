/* nearest.c: see nearest.h. */
#include "nearest.h"

#include <string.h>

enum { LONGEST = 32 };

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Optimal string alignment of words of at most LONGEST letters, in three rows of its table. */
static size_t distance(const char *a, size_t n, const char *b, size_t m) {
    size_t before[LONGEST + 1], last[LONGEST + 1], row[LONGEST + 1];
    for (size_t j = 0; j <= m; j++) last[j] = before[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t change = last[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = least(change, least(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        memcpy(before, last, sizeof last);
        memcpy(last, row, sizeof row);
    }
    return last[m];
}

const char *eb_nearest(const char *word, const char *const *names, size_t n) {
    const char *found = NULL;
    size_t length = strlen(word), letters = length - strspn(word, "-");
    size_t best = (letters + 1) / 3 + 1;
    if (length > LONGEST) return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t m = strlen(names[i]);
        size_t d = m <= LONGEST ? distance(word, length, names[i], m) : best;
        if (d >= best) continue;
        best = d;
        found = names[i];
    }
    return found;
}
