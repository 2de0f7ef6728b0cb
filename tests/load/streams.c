/* streams.c: a benchmark, no test: how fast 32 streams at once come out of `ebro serve`, beside
 * what the engine alone does with as many sequences (`ebro bench model --batch`), in one run.
 * Prints figures; fails where a stream is not answered. EBRO: the program.
 *
 *   EBRO=build/ebro build/tests/load_streams [STREAMS [TOKENS]]
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/process.h"
#include "tests/harness/test.h"
#include "tests/load/server.h"
#include "tests/load/texts.h"

enum { ROUNDS = 3, SECONDS = 600 };

static struct load_text texts[TEXTS_MOST];
static uint32_t n_streams = 32, n_tokens = 128;

static int compare(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Tokens a second, by the clock and by the processor time of the program. */
struct rate {
    double wall, cpu;
};

static double median_of(const json_t *row, const char *name) {
    return json_number_value(json_object_get(json_object_get(row, name), "median"));
}

/* Of as many sequences, by the program's own benchmark. */
static struct rate engine_rate(void) {
    char command[512];
    json_error_t e;
    struct rate rate = {0, 0};
    snprintf(command, sizeof command, "'%s' bench model --batch %u -r %d --depth 1 -c 2048 --json",
             getenv("EBRO"), n_streams, ROUNDS);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    json_t *result = json_loadf(f, 0, &e), *row;
    if (pclose(f) != 0 || result == NULL) fail_msg("`%s` failed: %s", command, e.text);
    size_t i;
    json_array_foreach(json_object_get(result, "rows"), i, row) {
        if (json_integer_value(json_object_get(row, "sequences")) != (json_int_t)n_streams)
            continue;
        rate.wall = median_of(row, "tokens_per_second");
        rate.cpu = rate.wall * median_of(row, "seconds") / median_of(row, "cpu_seconds");
    }
    json_decref(result);
    if (rate.wall <= 0) fail_msg("`%s` has no row of %u sequences", command, n_streams);
    printf("engine alone, %u sequences: %.0f tokens/s, %.0f a processor second\n", n_streams,
           rate.wall, rate.cpu);
    return rate;
}

static void run_round(struct load_client *client) {
    for (uint32_t i = 0; i < n_streams; i++) load_text_start(&texts[i], client, i);
    assert_true(load_run(client, SECONDS));
    for (uint32_t i = 0; i < n_streams; i++) load_text_check(&texts[i]);
}

/* From the first piece of all to the last: prompts of streams that begin later are in it. */
static double round_rate(double *all) {
    double first = texts[0].first, last = texts[0].last, tokens = 0;
    for (uint32_t i = 0; i < n_streams; i++) {
        if (texts[i].first < first) first = texts[i].first;
        if (texts[i].last > last) last = texts[i].last;
        tokens += texts[i].n_tokens;
    }
    *all = tokens;
    return tokens / (last - first);
}

/* All gaps in order, and the worst of all streams: its 99th percentile by its median. */
static void print_gaps(void) {
    static float all[TEXTS_MOST * TEXTS_GAPS];
    size_t n = 0;
    double worst = 0;
    for (uint32_t i = 0; i < n_streams; i++) {
        struct load_text *t = &texts[i];
        memcpy(all + n, t->gaps, t->n_gaps * sizeof *all);
        n += t->n_gaps;
        qsort(t->gaps, t->n_gaps, sizeof *t->gaps, compare);
        double ratio = (double)t->gaps[t->n_gaps * 99 / 100] / (double)t->gaps[t->n_gaps / 2];
        if (ratio > worst) worst = ratio;
    }
    qsort(all, n, sizeof *all, compare);
    printf(
        "between pieces: median %.2f ms, 99th percentile %.2f ms (x %.2f), longest %.2f ms; "
        "worst stream x %.2f\n",
        1e3 * (double)all[n / 2], 1e3 * (double)all[n * 99 / 100],
        (double)all[n * 99 / 100] / (double)all[n / 2], 1e3 * (double)all[n - 1], worst);
}

static void print_rate(struct rate engine, double cpu_seconds) {
    double tokens, wall = round_rate(&tokens), cpu = tokens / cpu_seconds;
    printf(
        "server, %u streams of %u tokens: %.0f tokens/s, %.0f%% of that; %.0f a processor "
        "second, %.0f%% of that\n",
        n_streams, n_tokens, wall, 100 * wall / engine.wall, cpu, 100 * cpu / engine.cpu);
}

static void measure(void **state) {
    (void)state;
    char parallel[16];
    const char *const options[] = {"--parallel", parallel, "-c", "1024", NULL};
    snprintf(parallel, sizeof parallel, "%u", n_streams);
    const struct rate engine = engine_rate();
    struct load_server server;
    load_server_start(&server, options);
    struct load_client *client = load_client_open(server.port, n_streams);
    for (uint32_t i = 0; i < n_streams; i++) load_text_make(&texts[i], i, n_tokens, 0);
    for (int i = 0; i <= ROUNDS; i++) {
        const double cpu = test_cpu_seconds(server.pid);
        run_round(client);
        if (i == 0) continue; /* the first one warms up */
        print_rate(engine, test_cpu_seconds(server.pid) - cpu);
        print_gaps();
    }
    for (uint32_t i = 0; i < n_streams; i++) load_text_free(&texts[i]);
    load_client_close(&client);
    assert_int_equal(load_server_stop(&server, 60), 0);
    engine_rate(); /* on a machine that has other work, this tells */
}

int main(int argc, char **argv) {
    if (argc > 1) n_streams = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2) n_tokens = (uint32_t)strtoul(argv[2], NULL, 10);
    if (getenv("EBRO") == NULL || n_streams < 1 || n_streams > TEXTS_MOST || n_tokens < 4 ||
        n_tokens > 1000) {
        fprintf(stderr,
                "usage: EBRO=PROGRAM load_streams [STREAMS, up to %d [TOKENS, up to 1000]]\n",
                TEXTS_MOST);
        return 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(measure)};
    return cmocka_run_group_tests_name("load/streams", tests, NULL, NULL);
}
