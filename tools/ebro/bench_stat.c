/* bench_stat.c: samples of a measurement, their median and extremes. Measures nothing itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static int rising(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void eb_samples_add(struct eb_samples *s, double value) {
    if (s->n < EB_BENCH_MAX_SAMPLES) s->v[s->n++] = value;
}

static struct eb_samples sorted(const struct eb_samples *s) {
    struct eb_samples t = *s;
    qsort(t.v, t.n, sizeof *t.v, rising);
    return t;
}

double eb_samples_median(const struct eb_samples *s) {
    if (s->n == 0) return 0.0;
    struct eb_samples t = sorted(s);
    return 0.5 * (t.v[(t.n - 1) / 2] + t.v[t.n / 2]);
}

double eb_samples_min(const struct eb_samples *s) {
    return s->n ? sorted(s).v[0] : 0.0;
}

double eb_samples_max(const struct eb_samples *s) {
    return s->n ? sorted(s).v[s->n - 1] : 0.0;
}

json_t *eb_samples_json(const struct eb_samples *s, double scale) {
    double median = eb_samples_median(s), min = eb_samples_min(s), max = eb_samples_max(s);
    if (scale > 0.0) {
        double slowest = max;
        max = min > 0.0 ? scale / min : 0.0;
        min = slowest > 0.0 ? scale / slowest : 0.0;
        median = median > 0.0 ? scale / median : 0.0;
    }
    return json_pack("{s:f, s:f, s:f}", "median", median, "min", min, "max", max);
}

int eb_bench_print_json(json_t *document) {
    char *text = document ? json_dumps(document, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(document);
    if (!text) {
        eb_complain("out of memory, or a name that is not UTF-8, while writing the results");
        return EB_EXIT_MEMORY;
    }
    puts(text);
    free(text);
    return eb_flush_stdout() ? EB_EXIT_OK : EB_EXIT_USAGE;
}
