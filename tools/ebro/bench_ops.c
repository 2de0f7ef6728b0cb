/* bench_ops.c: `ebro bench ops`: each operator alone, against what its bytes and its arithmetic
 * would take on this device at best. The sizes stand in bench_ops_*.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_ops.h"

static const char usage[] =
    "usage: ebro bench ops [-dev DEV] [-t N] [--op NAME] [-r RUNS] [options]\n"
    "\n"
    "Measures each operator of the device alone, at sizes of Kimi-Linear-48B (\"48B\")\n"
    "and of a tiny model (\"tiny\"), on copies of its data that together exceed the\n"
    "cache three times. Columns:\n"
    "  us, cpu us  median time of a call, wall and processor time of all threads\n"
    "  MB, GB/s    bytes that must move once, and how fast they did\n"
    "  % read      that, of the bandwidth that reading memory has in this run (on\n"
    "              other devices than the CPU: copying)\n"
    "  Gma/s       multiply-adds that the definition asks for, 10^9 a second\n"
    "  % peak      those, of what the rung's registers do in this run\n"
    "  error       relative error against float64, where a reference is cheap\n"
    "Rates and ceilings are of wall time; of one CPU thread, of processor time, which\n"
    "a busy machine disturbs little.\n"
    "The ceilings are measured once, at the start. If a busy machine spoils that of\n"
    "reading, every \"% read\" is too high: far above 100, run it again.\n"
    "\n"
    "With --json an object: schema (\"ebro-bench-ops-1\"), version, date, processor,\n"
    "cores, load, device, description, backend, rung, threads,\n"
    "read_bytes_per_second, multiply_adds_per_second (0: not known), and rows, an\n"
    "array of objects: op, shape, runs, copies, seconds and cpu_seconds (each with\n"
    "median, min, max), bytes, multiply_adds (0: not counted), error (null: none);\n"
    "not_computed, an array of what the device lacks: op, shape, reason.\n";

struct eb_ops_bench {
    const struct eb_bench_options *b;
    struct eb_rig rig;
    struct eb_bench_host host;
    struct eb_ceilings ceilings;
    union eb_op_args sets[EB_RIG_MAX_SETS];
    json_t *rows, *refusals; /* with --json */
    ebro_op refused;         /* the last one that the device does not compute */
    char reason[1056];       /* and what it said; empty: none yet */
    bool stopped;            /* a failure was reported */
    int code;
};

struct calls {
    struct eb_rig *r;
    ebro_op op;
    const union eb_op_args *sets;
};

static int32_t call(void *user, uint32_t set) {
    const struct calls *c = user;
    return eb_rig_call(c->r, c->op, &c->sets[set]);
}

double eb_error_relative(const struct eb_error_sum *s) {
    return s->reference > 0.0 ? sqrt(s->difference / s->reference) : -1.0;
}

bool eb_ops_on_cpu(const struct eb_ops_bench *b) {
    return strcmp(b->host.device.backend, "cpu") == 0;
}

/* As many copies of the data as keep all of them out of the caches. */
static uint32_t build_sets(struct eb_ops_bench *b, const struct eb_op_case *c,
                           struct eb_op_floor *f) {
    struct eb_rig *r = &b->rig;
    uint32_t n = 0;
    do c->build(r, c->size, &b->sets[n++], f);
    while (!eb_rig_failed(r) && n < EB_RIG_MAX_SETS && r->bytes < r->rotate_bytes);
    return n;
}

struct row {
    const struct eb_op_case *c;
    uint32_t n_sets;
    struct eb_op_floor floor;
    struct eb_samples wall, cpu;
    double error; /* < 0: none */
};

static void print_row(const struct eb_ops_bench *b, const struct row *w) {
    char error[16] = "", rate[16] = "", share[16] = "", peak[16] = "", adds[16] = "";
    double wall = eb_samples_median(&w->wall), cpu = eb_samples_median(&w->cpu);
    double seconds = eb_ops_on_cpu(b) && b->host.n_threads == 1 && cpu > 0.0 ? cpu : wall;
    double bytes = w->floor.bytes / seconds, multiply_adds = w->floor.multiply_adds / seconds;
    if (w->error >= 0.0) snprintf(error, sizeof error, "%.1e", w->error);
    snprintf(rate, sizeof rate, "%.2f", 1e-9 * bytes);
    if (b->ceilings.read_bytes > 0.0)
        snprintf(share, sizeof share, "%.0f", 100.0 * bytes / b->ceilings.read_bytes);
    if (multiply_adds > 0.0) snprintf(adds, sizeof adds, "%.2f", 1e-9 * multiply_adds);
    if (multiply_adds > 0.0 && b->ceilings.multiply_adds > 0.0)
        snprintf(peak, sizeof peak, "%.0f", 100.0 * multiply_adds / b->ceilings.multiply_adds);
    printf("%-13s %-32s %10.1f %10.1f %9.3f %7s %6s %8s %6s %8s\n", eb_op_name(w->c->op),
           w->c->shape, 1e6 * wall, 1e6 * cpu, 1e-6 * w->floor.bytes, rate, share, adds, peak,
           error);
}

static bool json_row(const struct eb_ops_bench *b, const struct row *w) {
    json_t *error = w->error >= 0.0 ? json_real(w->error) : json_null();
    json_t *o = json_pack(
        "{s:s, s:s, s:I, s:I, s:o, s:o, s:f, s:f, s:o}", "op", eb_op_name(w->c->op), "shape",
        w->c->shape, "runs", (json_int_t)w->wall.n, "copies", (json_int_t)w->n_sets, "seconds",
        eb_samples_json(&w->wall, 0.0), "cpu_seconds", eb_samples_json(&w->cpu, 0.0), "bytes",
        w->floor.bytes, "multiply_adds", w->floor.multiply_adds, "error", error);
    return o && json_array_append_new(b->rows, o) == 0;
}

/* In place of a row; what is refused for the same reason as the one before it is not repeated.
 * on_the_way: the op was not called, another one that makes what it reads was refused. */
static bool refusal_row(struct eb_ops_bench *b, const struct eb_op_case *c, bool on_the_way) {
    const char *op = eb_op_name(c->op);
    char reason[sizeof b->reason];
    snprintf(reason, sizeof reason, "%s%s", on_the_way ? "what it reads cannot be made: " : "",
             b->rig.err.text);
    if (c->op == b->refused && strcmp(reason, b->reason) == 0) return true;
    b->refused = c->op;
    snprintf(b->reason, sizeof b->reason, "%s", reason);
    if (b->rows) {
        json_t *o = json_pack("{s:s, s:s, s:s}", "op", op, "shape", c->shape, "reason", reason);
        return o && json_array_append_new(b->refusals, o) == 0;
    }
    printf("%-13s not %s: %s\n", op, on_the_way ? "measured" : "computed", reason);
    return eb_flush_stdout();
}

void eb_ops_run(struct eb_ops_bench *b, const struct eb_op_case *c) {
    struct eb_rig *r = &b->rig;
    struct row w = {.c = c, .error = -1.0};
    bool written = true;
    if (b->stopped || (b->b->op && strcmp(b->b->op, eb_op_name(c->op)) != 0)) return;
    if (b->b->quick && strncmp(c->shape, "tiny ", 5) != 0) return;
    w.n_sets = build_sets(b, c, &w.floor);
    bool built = !eb_rig_failed(r);
    struct calls calls = {r, c->op, b->sets};
    if (c->error && !eb_rig_failed(r)) w.error = c->error(r, c->size, &b->sets[0]);
    eb_rig_time(r, w.n_sets, call, &calls, &w.wall, &w.cpu);
    if (r->err.status == EBRO_UNSUPPORTED) {
        written = refusal_row(b, c, !built);
        r->err = (ebro_error){0};
    } else if (eb_rig_failed(r)) {
        b->stopped = true;
        b->code = eb_complain_device(&r->err);
    } else if (b->rows) {
        written = json_row(b, &w);
    } else {
        print_row(b, &w);
        written = eb_flush_stdout();
    }
    if (!written) {
        if (b->rows) eb_complain("out of memory while writing the results");
        b->stopped = true;
        b->code = b->rows ? EB_EXIT_MEMORY : EB_EXIT_USAGE;
    }
    eb_rig_reset(r);
}

static void print_head(const struct eb_ops_bench *b) {
    eb_bench_print_host(&b->host);
    if (b->host.n_threads > 0) printf("threads %u; ", b->host.n_threads);
    printf("read %.2f GB/s", 1e-9 * b->ceilings.read_bytes);
    if (b->ceilings.multiply_adds > 0.0)
        printf(", %.2f G multiply-adds/s", 1e-9 * b->ceilings.multiply_adds);
    printf("\n\n%-13s %-32s %10s %10s %9s %7s %6s %8s %6s %8s\n", "op", "shape", "us", "cpu us",
           "MB", "GB/s", "% read", "Gma/s", "% peak", "error");
}

static int print_json(const struct eb_ops_bench *b) {
    json_t *o = json_pack("{s:s, s:I, s:f, s:f, s:O, s:O}", "schema", "ebro-bench-ops-1", "threads",
                          (json_int_t)b->host.n_threads, "read_bytes_per_second",
                          b->ceilings.read_bytes, "multiply_adds_per_second",
                          b->ceilings.multiply_adds, "rows", b->rows, "not_computed", b->refusals);
    if (o && !eb_bench_json_host(&b->host, o)) {
        json_decref(o);
        o = NULL;
    }
    return eb_bench_print_json(o);
}

static bool is_op(const char *name) {
    for (int op = 0; op < EBRO_N_OPS; op++)
        if (strcmp(name, eb_op_name((ebro_op)op)) == 0) return true;
    return false;
}

/* The names of all operators, in lines of at most `width`. */
static void list_ops(char *out, size_t bytes, size_t width) {
    size_t n = 0, line = 0;
    out[0] = '\0';
    for (int op = 0; op < EBRO_N_OPS; op++) {
        const char *name = eb_op_name((ebro_op)op), *comma = op + 1 < EBRO_N_OPS ? "," : "";
        size_t need = strlen(name) + strlen(comma) + 1; /* the blank or newline before it */
        if (n + need >= bytes) return;
        bool breaks = n > 0 && line + need > width;
        snprintf(out + n, bytes - n, "%s%s%s", n == 0 ? "" : breaks ? "\n" : " ", name, comma);
        line = n == 0 || breaks ? need - 1 : line + need;
        n += strlen(out + n);
    }
}

static char op_help[512]; /* set before it is shown */
static const struct eb_arg op_args[] = {{.name = "--op",
                                         .env = "EBRO_BENCH_OP",
                                         .meta = "NAME",
                                         .kind = EB_ARG_TEXT,
                                         .offset = offsetof(struct eb_bench_options, op),
                                         .from = offsetof(struct eb_bench_options, op_from),
                                         .help = op_help}};
static const struct eb_arg_group op_group = {"Choice", op_args, 1};

static int measure(struct eb_ops_bench *b) {
    const struct eb_options *o = &b->b->o;
    if (b->b->op && !is_op(b->b->op)) {
        char names[512];
        list_ops(names, sizeof names, sizeof names);
        eb_complain("%s: \"%s\" is no operator: %s", eb_args_label(&op_group, "--op", b->b),
                    b->b->op, names);
        return EB_EXIT_USAGE;
    }
    int code = eb_bench_describe(o, &b->host);
    if (code == EB_EXIT_OK) code = eb_rig_open(&b->rig, o, b->b);
    if (code != EB_EXIT_OK) return code;
    b->ceilings = eb_rig_ceilings(&b->rig, &b->host);
    if (eb_rig_failed(&b->rig)) return eb_complain_device(&b->rig.err);
    if (!b->rows) print_head(b);
    eb_ops_dense(b);
    eb_ops_kda(b);
    eb_ops_mla(b);
    eb_ops_moe(b);
    if (b->stopped) return b->code;
    return b->rows ? print_json(b) : EB_EXIT_OK;
}

int eb_bench_ops(int argc, char **argv) {
    const struct eb_arg_group groups[] = {eb_bench_args,        op_group,
                                          eb_bench_output_args, eb_bench_device_args(),
                                          eb_trust_args,        eb_log_args};
    static const char head[] = "this operator alone:\n";
    memcpy(op_help, head, sizeof head);
    list_ops(op_help + sizeof head - 1, sizeof op_help - sizeof head + 1, 52);
    struct eb_bench_options options;
    int code = eb_bench_options_read("bench ops", usage, groups, sizeof groups / sizeof *groups,
                                     argc, argv, &options);
    if (code >= 0) return code;
    struct eb_ops_bench *b = calloc(1, sizeof *b);
    if (!b || (options.o.json && !((b->rows = json_array()) && (b->refusals = json_array())))) {
        eb_complain("out of memory");
        if (b) json_decref(b->rows);
        free(b);
        return EB_EXIT_MEMORY;
    }
    b->b = &options;
    code = measure(b);
    eb_rig_close(&b->rig);
    json_decref(b->rows);
    json_decref(b->refusals);
    free(b);
    return code;
}
