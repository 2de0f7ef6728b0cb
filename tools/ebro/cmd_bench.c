/* cmd_bench.c: `ebro bench`: finds the benchmark, and holds the options that they share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static const char help_text[] =
    "usage: ebro bench WHAT [options]\n"
    "\n"
    "Measures speed on this machine.\n"
    "\n"
    "  model   prompts and generation of a whole model, start, memory\n"
    "  ops     each operator alone, against the ceilings of the device\n"
    "  mla     the two forms of attention over the latent cache, and which one pays\n"
    "  mem     the memory manager, copies of pages, saving and loading a sequence\n"
    "  kv      bytes of cache that prompts leave, and how fast they are made\n"
    "\n"
    "`ebro bench WHAT --help` says what is measured and lists the options.\n";

static const struct eb_arg bench_args[] = {
    {.name = "-r",
     .alias = "--runs",
     .env = "EBRO_BENCH_RUNS",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 100,
     .offset = offsetof(struct eb_bench_options, n_runs),
     .help = "how often each thing is measured; default: 5"},
    {.name = "--quick",
     .env = "EBRO_BENCH_QUICK",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct eb_bench_options, quick),
     .help = "tiny sizes, measured once: shows the form of the\n"
             "result, its figures mean nothing"},
};
const struct eb_arg_group eb_bench_args = {"Measuring", bench_args,
                                           sizeof bench_args / sizeof *bench_args};

static const struct eb_arg output_args[] = {
    {.name = "--json",
     .env = "EBRO_JSON",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct eb_bench_options, o) + offsetof(struct eb_options, json),
     .help = "the result as one JSON object, described above"},
};
const struct eb_arg_group eb_bench_output_args = {"Output", output_args,
                                                  sizeof output_args / sizeof *output_args};

enum { MAX_ARGS = 32 };

struct eb_arg_group eb_bench_model_args(void) {
    static struct eb_arg args[MAX_ARGS];
    size_t n = eb_model_args.n < MAX_ARGS ? eb_model_args.n : MAX_ARGS;
    for (size_t i = 0; i < n; i++) {
        args[i] = eb_model_args.args[i];
        if (strcmp(args[i].name, "-t") != 0) continue;
        args[i].meta = "N,N,...";
        args[i].kind = EB_ARG_TEXT;
        args[i].offset = offsetof(struct eb_bench_options, threads);
        args[i].from = offsetof(struct eb_bench_options, threads_from);
        args[i].help =
            "threads that the CPU computes with, one set of rows\n"
            "for each number; 0: one for each core (default)";
    }
    return (struct eb_arg_group){"Model and device", args, n};
}

/* Those of eb_model_args that are named. */
static size_t named_args(struct eb_arg *args, const char *const *names) {
    size_t n = 0;
    for (size_t i = 0; i < eb_model_args.n && n < MAX_ARGS; i++) {
        const char *const *name = names;
        while (*name && strcmp(*name, eb_model_args.args[i].name) != 0) name++;
        if (*name) args[n++] = eb_model_args.args[i];
    }
    return n;
}

struct eb_arg_group eb_bench_device_args(void) {
    static const char *const names[] = {"-dev", "-t", NULL};
    static struct eb_arg args[MAX_ARGS];
    return (struct eb_arg_group){"Device", args, named_args(args, names)};
}

struct eb_arg_group eb_bench_mla_args(void) {
    static const char *const names[] = {"-m", "-dev", "-t", "-ctk", NULL};
    static struct eb_arg args[MAX_ARGS];
    return (struct eb_arg_group){"Model and device", args, named_args(args, names)};
}

int eb_bench_options_read(const char *command, const char *usage, const struct eb_arg_group *groups,
                          size_t n_groups, int argc, char **argv, struct eb_bench_options *b) {
    *b = (struct eb_bench_options){.n_runs = 5, .depth = 4096, .batch = 32};
    /* sets the defaults of b->o alone */
    int code = eb_command_options(command, usage, groups, n_groups, argc, argv, &b->o);
    if (b->quick) b->n_runs = 1;
    return code;
}

bool eb_bench_threads(const struct eb_bench_options *b, uint32_t *list, size_t *n) {
    enum { MOST = 256 };
    const char *p = b->threads ? b->threads : "0";
    for (*n = 0; *n < EB_BENCH_MAX_THREADS; p++) {
        char *end;
        unsigned long value = *p >= '0' && *p <= '9' ? strtoul(p, &end, 10) : MOST + 1;
        if (value > MOST) break;
        list[(*n)++] = (uint32_t)value;
        if (*end == '\0') return true;
        if (*end != ',') break;
        p = end;
    }
    const struct eb_arg_group group = eb_bench_model_args();
    eb_complain(
        "%s: \"%s\" is not a list such as 1,2 of up to %d numbers from 0 to %d "
        "(`ebro bench model --help` says more)",
        eb_args_label(&group, "-t", b), b->threads, EB_BENCH_MAX_THREADS, MOST);
    return false;
}

int eb_cmd_bench(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } parts[] = {{"model", eb_bench_model},
                 {"ops", eb_bench_ops},
                 {"mla", eb_bench_mla},
                 {"mem", eb_bench_mem},
                 {"kv", eb_bench_kv}};
    static const char names[] = "model, ops, mla, mem, kv";

    if (argc < 1) {
        eb_complain("bench: nothing to measure is named: %s (`ebro bench --help` says more)",
                    names);
        return EB_EXIT_USAGE;
    }
    if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
        fputs(help_text, stdout);
        return eb_flush_stdout() ? EB_EXIT_OK : EB_EXIT_USAGE;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(argv[0], parts[i].name) == 0) return parts[i].run(argc - 1, argv + 1);
    eb_complain("bench: \"%s\" is none of: %s (`ebro bench --help` says more)", argv[0], names);
    return EB_EXIT_USAGE;
}
