/* bench_model.c: `ebro bench model`: how fast a whole model reads prompts and generates, how long
 * it takes to start, and how much memory it needs. Uses the public API alone, as any user would. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static const char usage[] =
    "usage: ebro bench model [-m MODEL] [-t N,N,...] [-r RUNS] [options]\n"
    "\n"
    "Measures, for each number of threads:\n"
    "  load              from nothing to an empty sequence, the files cached\n"
    "  first token       from the start of `ebro run` to the first byte of its answer\n"
    "  prefill N         a prompt of N tokens, read from an empty sequence\n"
    "  prefill N @ D     the same when D tokens have been read before\n"
    "  decode N          N tokens, one a step, each sampled (greedy)\n"
    "  decode N @ D      the same when D tokens have been read before\n"
    "  decode N x B      B sequences together, N tokens each (tok/s: of all of them)\n"
    "Tokens are drawn from the vocabulary, the same ones in every run. Figures are\n"
    "medians with the slowest and the fastest run. cpu ms is processor time of all\n"
    "threads, tok/cpu-s tokens per second of it: on a busy machine the steadier one.\n"
    "At last the most memory that was resident in this process before sequences ran\n"
    "together, also as what it had beyond the model's weights.\n"
    "\n"
    "With --json an object: schema (\"ebro-bench-model-1\"), version, date, processor,\n"
    "cores, load (processes, last minute), device, description, backend, rung, model,\n"
    "architecture, weight_bytes, cache, context, chunk, strict, peak_resident_bytes\n"
    "(0: not known), and rows, an array of objects: name, threads, tokens (of all\n"
    "sequences), sequences, depth, runs, seconds and cpu_seconds (each with median,\n"
    "min, max), and, where tokens is not 0, tokens_per_second.\n";

/* What is measured of one number of threads. */
enum row {
    LOAD,
    FIRST_TOKEN,
    PREFILL_A,
    PREFILL_B,
    PREFILL_LONG,
    PREFILL_DEEP,
    DECODE,
    DECODE_DEEP,
    DECODE_BATCH,
    N_ROWS
};

struct sizes {
    uint32_t prefill_a, prefill_b, prefill_long, deep, decode;
};

struct measure {
    const char *kind;       /* "prefill" */
    uint32_t tokens, depth; /* tokens of each sequence */
    uint32_t batch;         /* sequences; 0: a single one */
    struct eb_samples wall, cpu;
};

struct bench {
    const struct eb_bench_options *b;
    struct eb_options o; /* with the threads of now */
    struct eb_session s;
    struct sizes size;
    int32_t *ids; /* as many as the context holds */
    struct measure rows[N_ROWS];
    uint64_t peak; /* memory, before the first row of several sequences */
};

/* ---- one measurement -------------------------------------------------------------------- */

struct clock {
    double wall, cpu;
};
static struct clock clock_start(void) {
    return (struct clock){eb_seconds(), eb_bench_cpu_seconds()};
}
static void clock_stop(struct clock c, struct measure *m) {
    eb_samples_add(&m->wall, eb_seconds() - c.wall);
    eb_samples_add(&m->cpu, eb_bench_cpu_seconds() - c.cpu);
}

static int empty_sequence(struct bench *t) {
    ebro_error err = {0};
    ebro_seq_destroy(&t->s.seq);
    if (ebro_seq_create(t->s.engine, &t->s.seq, &err) != EBRO_OK)
        return eb_session_complain(&t->s, &err);
    return EB_EXIT_OK;
}

/* Reads n more tokens. m NULL: not measured. */
static int prefill(struct bench *t, uint32_t n, struct measure *m) {
    ebro_error err = {0};
    const int32_t *ids = t->ids + ebro_seq_length(t->s.seq);
    struct clock c = clock_start();
    if (ebro_seq_append(t->s.seq, ids, n, 0, &err) != EBRO_OK)
        return eb_session_complain(&t->s, &err);
    int code = eb_session_evaluate(&t->s, NULL);
    if (code == EB_EXIT_OK && m) clock_stop(c, m);
    return code;
}

/* Samples n times and reads one token after each. It is not the sampled one: what is fed must not
 * depend on rounding, and a model that repeats itself would keep few experts busy. */
static int decode(struct bench *t, uint32_t n, struct measure *m) {
    const ebro_sampling greedy = {.size = sizeof greedy};
    ebro_error err = {0};
    struct clock c = clock_start();
    for (uint32_t i = 0; i < n; i++) {
        int32_t sampled;
        if (ebro_seq_sample(t->s.seq, &greedy, &sampled, &err) != EBRO_OK ||
            ebro_seq_append(t->s.seq, t->ids + ebro_seq_length(t->s.seq), 1, 0, &err) != EBRO_OK ||
            ebro_engine_step(t->s.engine, &err) != EBRO_OK)
            return eb_session_complain(&t->s, &err);
    }
    clock_stop(c, m);
    return EB_EXIT_OK;
}

static int prefill_from_empty(struct bench *t, uint32_t n, struct measure *m) {
    int code = empty_sequence(t);
    return code == EB_EXIT_OK ? prefill(t, n, m) : code;
}

static int first_token(struct bench *t) {
    char threads[16], context[16], why[256];
    char *argv[24] = {NULL,    "run", "-p",   "The story begins", "-n", "1", "-t",
                      threads, "-c",  context};
    size_t n = 10;
    double wall, cpu;
    snprintf(threads, sizeof threads, "%u", (unsigned)t->o.n_threads);
    snprintf(context, sizeof context, "%u", t->s.n_ctx);
    argv[n++] = "-ctk";
    argv[n++] = (char *)(uintptr_t)eb_cache_dtype_name(t->s.cache_dtype);
    if (t->o.strict) argv[n++] = "--strict";
    if (t->o.device) {
        argv[n++] = "-dev";
        argv[n++] = (char *)(uintptr_t)t->o.device;
    }
    if (t->o.model) {
        argv[n++] = "-m";
        argv[n++] = (char *)(uintptr_t)t->o.model;
    }
    if (!eb_bench_first_byte(argv, &wall, &cpu, why, sizeof why)) {
        eb_complain("start to first token: %s", why);
        return EB_EXIT_INTERNAL;
    }
    eb_samples_add(&t->rows[FIRST_TOKEN].wall, wall);
    eb_samples_add(&t->rows[FIRST_TOKEN].cpu, cpu);
    return EB_EXIT_OK;
}

/* ---- one table -------------------------------------------------------------------------- */

static void choose_sizes(struct bench *t) {
    const struct sizes full = {512, 1000, 4096, (uint32_t)t->b->depth, 64};
    const struct sizes quick = {8, 12, 32, 16, 4};
    t->size = t->b->quick ? quick : full;
    const struct measure rows[N_ROWS] = {
        [LOAD] = {.kind = "load"},
        [FIRST_TOKEN] = {.kind = "first token"},
        [PREFILL_A] = {.kind = "prefill", .tokens = t->size.prefill_a},
        [PREFILL_B] = {.kind = "prefill", .tokens = t->size.prefill_b},
        [PREFILL_LONG] = {.kind = "prefill", .tokens = t->size.prefill_long},
        [PREFILL_DEEP] = {.kind = "prefill", .tokens = t->size.prefill_a, .depth = t->size.deep},
        [DECODE] = {.kind = "decode", .tokens = t->size.decode},
        [DECODE_DEEP] = {.kind = "decode", .tokens = t->size.decode, .depth = t->size.deep},
        [DECODE_BATCH] = {
            .kind = "decode", .tokens = t->size.decode, .batch = (uint32_t)t->b->batch}};
    memcpy(t->rows, rows, sizeof rows);
}

/* Tokens that the largest measurement needs. */
static uint32_t wanted_context(const struct sizes *z) {
    uint32_t deep = z->deep + (z->prefill_a > z->decode ? z->prefill_a : z->decode);
    return deep > z->prefill_long ? deep : z->prefill_long;
}

/* Ordinary tokens in an order that only looks random. */
static int make_ids(struct bench *t) {
    uint32_t vocab = t->s.model_info.vocab, n = t->s.n_ctx;
    uint64_t x = 1;
    free(t->ids);
    if (!(t->ids = calloc(n, sizeof *t->ids))) {
        eb_complain("out of memory for %u token ids", n);
        return EB_EXIT_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++) {
        int32_t special = 1;
        /* a vocabulary of nothing but holes must not hang us */
        for (int tries = 0; tries < 1000 && special; tries++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            t->ids[i] = (int32_t)((x >> 33) % vocab);
            if (!ebro_token_bytes(t->s.model, t->ids[i], NULL, &special)) special = 1;
        }
    }
    int32_t bos = ebro_token_bos(t->s.model);
    if (bos >= 0) t->ids[0] = bos;
    return EB_EXIT_OK;
}

static int load(struct bench *t) {
    eb_session_close(&t->s);
    t->s = (struct eb_session){0};
    struct clock c = clock_start();
    int code = eb_session_open_model(&t->s, &t->o);
    if (code == EB_EXIT_OK) code = eb_session_open_engine(&t->s, &t->o);
    if (code == EB_EXIT_OK) clock_stop(c, &t->rows[LOAD]);
    return code;
}

static bool fits(const struct bench *t, enum row r) {
    return (uint64_t)t->rows[r].tokens + t->rows[r].depth <= t->s.n_ctx;
}

/* Two times through the depth: what follows it must start from the same place. */
static int run_deep(struct bench *t) {
    int code = EB_EXIT_OK;
    struct measure *way = t->size.deep == t->size.prefill_long ? &t->rows[PREFILL_LONG] : NULL;
    if (way == NULL && fits(t, PREFILL_LONG))
        code = prefill_from_empty(t, t->size.prefill_long, &t->rows[PREFILL_LONG]);
    for (int i = 0; i < 2 && code == EB_EXIT_OK; i++) {
        enum row r = i == 0 ? PREFILL_DEEP : DECODE_DEEP;
        if (!fits(t, r)) continue;
        code = prefill_from_empty(t, t->size.deep, way);
        if (code != EB_EXIT_OK) break;
        code = i == 0 ? prefill(t, t->rows[r].tokens, &t->rows[r])
                      : decode(t, t->rows[r].tokens, &t->rows[r]);
    }
    return code;
}

static int run_batch(struct bench *t) {
    struct measure *m = &t->rows[DECODE_BATCH];
    double wall = 0.0, cpu = 0.0;
    if (m->tokens + m->batch > t->s.n_ctx) return EB_EXIT_OK; /* so many ids there are */
    int code = eb_bench_batch(&t->s, &t->o, t->ids, m->batch, m->tokens, &wall, &cpu);
    if (code != EB_EXIT_OK) return code;
    eb_samples_add(&m->wall, wall);
    eb_samples_add(&m->cpu, cpu);
    return EB_EXIT_OK;
}

static int run_once(struct bench *t) {
    int code = first_token(t);
    if (code == EB_EXIT_OK && fits(t, PREFILL_A))
        code = prefill_from_empty(t, t->size.prefill_a, &t->rows[PREFILL_A]);
    if (code == EB_EXIT_OK && fits(t, PREFILL_B))
        code = prefill_from_empty(t, t->size.prefill_b, &t->rows[PREFILL_B]);
    if (code == EB_EXIT_OK && t->size.decode + 1 <= t->s.n_ctx) {
        code = prefill_from_empty(t, 1, NULL);
        if (code == EB_EXIT_OK) code = decode(t, t->size.decode, &t->rows[DECODE]);
    }
    return code == EB_EXIT_OK ? run_deep(t) : code;
}

static int run_all(struct bench *t) {
    choose_sizes(t);
    if (t->o.n_ctx == 0) t->o.n_ctx = wanted_context(&t->size);
    int code = load(t); /* reads the files into the cache: not counted */
    t->rows[LOAD].wall.n = t->rows[LOAD].cpu.n = 0;
    uint32_t max = t->s.model_info.max_context;
    if (code == EB_EXIT_OK && max && t->o.n_ctx > max && t->b->o.n_ctx == 0) t->o.n_ctx = max;
    for (uint64_t i = 0; i < t->b->n_runs && code == EB_EXIT_OK; i++) code = load(t);
    if (code == EB_EXIT_OK) code = make_ids(t);
    /* pages, caches and clocks warm up */
    if (code == EB_EXIT_OK) {
        uint32_t n = t->size.prefill_a < t->s.n_ctx ? t->size.prefill_a : t->s.n_ctx;
        code = prefill_from_empty(t, n, NULL);
    }
    for (uint64_t i = 0; i < t->b->n_runs && code == EB_EXIT_OK; i++) code = run_once(t);
    /* what one user needs; the sequences together come after it, with an engine more */
    if (t->peak == 0) t->peak = eb_bench_peak_bytes();
    for (uint64_t i = 0; i < t->b->n_runs && t->b->batch > 0 && code == EB_EXIT_OK; i++)
        code = run_batch(t);
    return code;
}

/* ---- results ---------------------------------------------------------------------------- */

static void row_name(const struct measure *m, char *out, size_t capacity) {
    if (m->tokens == 0)
        snprintf(out, capacity, "%s", m->kind);
    else if (m->batch > 0)
        snprintf(out, capacity, "%s %u x %u", m->kind, m->tokens, m->batch);
    else if (m->depth == 0)
        snprintf(out, capacity, "%s %u", m->kind, m->tokens);
    else
        snprintf(out, capacity, "%s %u @ %u", m->kind, m->tokens, m->depth);
}

static uint32_t all_tokens(const struct measure *m) {
    return m->batch > 0 ? m->batch * m->tokens : m->tokens;
}

static const char *model_name(const struct bench *t) {
    return t->o.model ? t->o.model : "built-in demo";
}

static void print_head(const struct bench *t, const struct eb_bench_host *h) {
    eb_bench_print_host(h);
    printf("%s: %s, weights %.1f MiB, cache %s, context %u, chunk %u%s\n\n", model_name(t),
           t->s.model_info.architecture, (double)t->s.model_info.weight_bytes / 1048576.0,
           eb_cache_dtype_name(t->s.cache_dtype), t->s.n_ctx,
           t->o.n_chunk ? (unsigned)t->o.n_chunk : 512, t->o.strict ? ", strict" : "");
    printf("%-20s %7s %10s %21s %10s %10s %10s\n", "", "threads", "tok/s", "slowest - fastest",
           "ms", "cpu ms", "tok/cpu-s");
}

static void print_rows(const struct bench *t, uint32_t threads) {
    for (int i = 0; i < N_ROWS; i++) {
        const struct measure *m = &t->rows[i];
        char name[64], range[48], rate[24] = "", cpu_rate[24] = "";
        uint32_t tokens = all_tokens(m);
        row_name(m, name, sizeof name);
        if (m->wall.n == 0) {
            if (i != DECODE_BATCH || m->batch > 0)
                printf("%-20s %7u   needs a context of %u tokens\n", name, threads,
                       m->tokens + m->depth + m->batch);
            continue;
        }
        double median = eb_samples_median(&m->wall), least = eb_samples_min(&m->wall);
        double most = eb_samples_max(&m->wall), cpu = eb_samples_median(&m->cpu);
        if (m->tokens) {
            snprintf(rate, sizeof rate, "%.1f", tokens / median);
            snprintf(range, sizeof range, "%.1f - %.1f", tokens / most, tokens / least);
            snprintf(cpu_rate, sizeof cpu_rate, "%.1f", cpu > 0.0 ? tokens / cpu : 0.0);
        } else {
            snprintf(range, sizeof range, "%.1f - %.1f ms", 1e3 * most, 1e3 * least);
        }
        printf("%-20s %7u %10s %21s %10.1f %10.1f %10s\n", name, threads, rate, range, 1e3 * median,
               1e3 * cpu, cpu_rate);
    }
}

static void print_memory(const struct bench *t) {
    double peak = (double)t->peak / 1048576.0;
    double weights = (double)t->s.model_info.weight_bytes / 1048576.0;
    if (peak > 0.0)
        printf("\npeak resident memory %.1f MiB: the weights and %.1f MiB\n", peak, peak - weights);
}

static bool json_head(const struct bench *t, const struct eb_bench_host *h, json_t *to) {
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:I, s:s, s:I, s:I, s:b}", "schema", "ebro-bench-model-1",
                  "model", model_name(t), "architecture", t->s.model_info.architecture,
                  "weight_bytes", (json_int_t)t->s.model_info.weight_bytes, "cache",
                  eb_cache_dtype_name(t->s.cache_dtype), "context", (json_int_t)t->s.n_ctx, "chunk",
                  (json_int_t)(t->o.n_chunk ? t->o.n_chunk : 512), "strict", t->o.strict);
    bool ok = o && json_object_update(to, o) == 0 && eb_bench_json_host(h, to);
    json_decref(o);
    return ok;
}

static bool json_rows(const struct bench *t, uint32_t threads, json_t *rows) {
    for (int i = 0; i < N_ROWS; i++) {
        const struct measure *m = &t->rows[i];
        char name[64];
        if (m->wall.n == 0) continue;
        row_name(m, name, sizeof name);
        json_t *o =
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "name", name, "threads",
                      (json_int_t)threads, "tokens", (json_int_t)all_tokens(m), "sequences",
                      (json_int_t)(m->batch > 0 ? m->batch : 1), "depth", (json_int_t)m->depth,
                      "runs", (json_int_t)m->wall.n, "seconds", eb_samples_json(&m->wall, 0.0),
                      "cpu_seconds", eb_samples_json(&m->cpu, 0.0));
        if (!o || json_array_append_new(rows, o) != 0) return false;
        if (m->tokens && json_object_set_new(o, "tokens_per_second",
                                             eb_samples_json(&m->wall, all_tokens(m))) != 0)
            return false;
    }
    return true;
}

static int measure_threads(struct bench *t, uint32_t threads, bool first, json_t *head,
                           json_t *rows) {
    struct eb_bench_host host;
    t->o = t->b->o;
    t->o.n_threads = threads;
    int code = eb_bench_describe(&t->o, &host);
    if (code != EB_EXIT_OK || (code = run_all(t)) != EB_EXIT_OK) return code;
    if (host.n_threads) threads = host.n_threads;
    if (t->o.json) {
        if ((first && !json_head(t, &host, head)) || !json_rows(t, threads, rows)) {
            eb_complain("out of memory, or a name that is not UTF-8, while writing the results");
            return EB_EXIT_MEMORY;
        }
        return EB_EXIT_OK;
    }
    if (first) print_head(t, &host);
    print_rows(t, threads);
    return eb_flush_stdout() ? EB_EXIT_OK : EB_EXIT_USAGE;
}

int eb_bench_model(int argc, char **argv) {
    static const struct eb_arg depth_args[] = {
        {.name = "--depth",
         .env = "EBRO_BENCH_DEPTH",
         .meta = "D",
         .kind = EB_ARG_UINT,
         .min = 1,
         .max = 1u << 28,
         .offset = offsetof(struct eb_bench_options, depth),
         .help = "tokens before the deep measurements; default: 4096"},
        {.name = "--batch",
         .env = "EBRO_BENCH_BATCH",
         .meta = "B",
         .kind = EB_ARG_UINT,
         .max = 1024,
         .offset = offsetof(struct eb_bench_options, batch),
         .help = "sequences that generate together; default: 32; 0: leaves\nthem out"}};
    const struct eb_arg_group groups[] = {eb_bench_args,        {"Depth and batch", depth_args, 2},
                                          eb_bench_output_args, eb_bench_model_args(),
                                          eb_trust_args,        eb_log_args};
    struct eb_bench_options b;
    uint32_t threads[EB_BENCH_MAX_THREADS];
    size_t n = 0;
    int code = eb_bench_options_read("bench model", usage, groups, sizeof groups / sizeof *groups,
                                     argc, argv, &b);
    if (code >= 0) return code;
    if (!eb_bench_threads(&b, threads, &n)) return EB_EXIT_USAGE;

    struct bench *t = calloc(1, sizeof *t);
    json_t *head = json_object(), *rows = json_array();
    code = EB_EXIT_OK;
    if (!t || !head || !rows) {
        eb_complain("out of memory");
        code = EB_EXIT_MEMORY;
        goto out;
    }
    t->b = &b;
    for (size_t i = 0; i < n && code == EB_EXIT_OK; i++)
        code = measure_threads(t, threads[i], i == 0, head, rows);
    if (code != EB_EXIT_OK) goto out;
    if (!b.o.json) {
        print_memory(t);
        code = eb_flush_stdout() ? EB_EXIT_OK : EB_EXIT_USAGE;
    } else if (json_object_set_new(head, "peak_resident_bytes",
                                   json_integer((json_int_t)t->peak)) != 0 ||
               json_object_set(head, "rows", rows) != 0) {
        eb_complain("out of memory while writing the results");
        code = EB_EXIT_MEMORY;
    } else {
        code = eb_bench_print_json(json_incref(head));
    }
out:
    if (t) {
        free(t->ids);
        eb_session_close(&t->s);
    }
    free(t);
    json_decref(head);
    json_decref(rows);
    return code;
}
