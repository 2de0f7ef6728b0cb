/* bench.h: what the parts of `ebro bench` share: their options, what they say of the machine, and
 * samples of a measurement. */
#ifndef EB_BENCH_H
#define EB_BENCH_H

#include <jansson.h>

#include "common.h"

struct eb_bench_options {
    struct eb_options o;
    const char *threads; /* bench model: "1,2"; NULL: one for each core. Others: o.n_threads */
    const char *op;      /* bench ops: this one alone; NULL: all */
    enum eb_arg_from threads_from, op_from;
    uint64_t n_runs, depth, batch;
    bool quick;
};

enum { EB_BENCH_MAX_THREADS = 8 }; /* entries of a list of thread numbers */

/* "Model and device" of eb_model_args with a list of numbers for -t. In static memory. */
struct eb_arg_group eb_bench_model_args(void);
/* -dev and -t, with one number, alone; the same with -m and -ctk. In static memory. */
struct eb_arg_group eb_bench_device_args(void);
struct eb_arg_group eb_bench_mla_args(void);
/* "Measuring": runs, quick. */
extern const struct eb_arg_group eb_bench_args;
/* "Output": --json. */
extern const struct eb_arg_group eb_bench_output_args;

/* Reads options as eb_command_options does, into defaults of bench's own. */
int eb_bench_options_read(const char *command, const char *usage, const struct eb_arg_group *groups,
                          size_t n_groups, int argc, char **argv, struct eb_bench_options *b);
/* The numbers of -t, 0 standing for one thread for each core. False: complained. */
bool eb_bench_threads(const struct eb_bench_options *b, uint32_t *list, size_t *n);

/* ---- the machine (bench_host.c) --------------------------------------------------------- */

struct eb_bench_host {
    char processor[128];
    char date[24];    /* UTC, ISO 8601 */
    double load;      /* running processes, mean of the last minute; < 0: not known */
    long n_cores;     /* online */
    char opened[128]; /* what the device said of itself as it opened: "cpu: rung avx2, 2 threads" */
    char rung[32];    /* of that, the rung; empty: the device has none */
    uint32_t n_threads; /* of that, the threads; 0: not said */
    ebro_device_info device;
};

/* Opens the device of `o` once and describes it and the machine. An exit code. */
int eb_bench_describe(const struct eb_options *o, struct eb_bench_host *out);
/* Two lines of text, or members "version", "date", "processor", ... added to `to`. */
void eb_bench_print_host(const struct eb_bench_host *h);
bool eb_bench_json_host(const struct eb_bench_host *h, json_t *to);

double eb_bench_cpu_seconds(void);  /* of all threads of this process */
uint64_t eb_bench_peak_bytes(void); /* most memory that was resident; 0: not known */

/* Runs this program with other arguments (argv[0] is set here; NULL ends the list) and without
 * EBRO_ variables. Seconds from before its start to the first byte on its stdout, or to its end
 * where it writes none; the rest of what it writes is dropped. False: `text` says why. */
bool eb_bench_first_byte(char **argv, double *seconds, double *cpu_seconds, char *text,
                         size_t text_bytes);

/* ---- samples (bench_stat.c) ------------------------------------------------------------- */

enum { EB_BENCH_MAX_SAMPLES = 256 };
struct eb_samples {
    double v[EB_BENCH_MAX_SAMPLES];
    size_t n;
};
void eb_samples_add(struct eb_samples *s, double value); /* what does not fit is dropped */
double eb_samples_median(const struct eb_samples *s);
double eb_samples_min(const struct eb_samples *s);
double eb_samples_max(const struct eb_samples *s);
/* {"median": , "min": , "max": }; with `scale` > 0 of scale / value instead. NULL: no memory. */
json_t *eb_samples_json(const struct eb_samples *s, double scale);

/* Prints a JSON document to stdout and releases it; NULL: out of memory. An exit code. */
int eb_bench_print_json(json_t *document);

/* ---- the benchmarks --------------------------------------------------------------------- */

int eb_bench_model(int argc, char **argv);
/* Of it: n_seqs sequences generate n tokens each, together. `ids` are n_seqs + n tokens. An exit
 * code. */
int eb_bench_batch(struct eb_session *s, const struct eb_options *o, const int32_t *ids,
                   uint32_t n_seqs, uint32_t n, double *seconds, double *cpu_seconds);
int eb_bench_ops(int argc, char **argv);
int eb_bench_mla(int argc, char **argv);
int eb_bench_mem(int argc, char **argv);
int eb_bench_kv(int argc, char **argv);

#endif
