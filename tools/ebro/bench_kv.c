/* bench_kv.c: `ebro bench kv`: how many bytes of cache a prompt leaves, in which parts, and how
 * many of them a second its prefill makes: what a link must carry that takes prompts from one
 * machine to another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "engine/engine.h"

static const char usage[] =
    "usage: ebro bench kv [-m MODEL] [-t N] [-r RUNS] [options]\n"
    "\n"
    "For prompts of several lengths: the time that reading one takes, the bytes of cache\n"
    "that it leaves (recurrent state with convolution windows, which does not grow, and\n"
    "latent rows), and both in one, the KV throughput: bytes / prefill time. Beside it\n"
    "the bytes of the same prompt where all layers were\n"
    "  MLA   layers * latent row\n"
    "  GQA   layers * 2 * KV heads * head size, with a quarter of the model's MLA heads\n"
    "        as KV heads, and its value heads' size\n"
    "in the cache's dtype, and the throughput that they would need at the same time.\n"
    "Prompts that the context does not hold are left out.\n"
    "\n"
    "With --json an object: schema (\"ebro-bench-kv-1\"), version, date, processor, cores,\n"
    "load, device, description, backend, rung, threads, model, cache, state_bytes,\n"
    "token_bytes, mla_token_bytes, gqa_token_bytes, and rows, an array of objects: tokens,\n"
    "seconds (median, min, max), bytes, mla_bytes, gqa_bytes, bytes_per_second.\n";

static const uint32_t lengths[] = {128, 512, 1024, 2048, 4096, 8192};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

struct kv_bench {
    const struct eb_bench_options *b;
    struct eb_options o;
    struct eb_session s;
    struct eb_bench_host host;
    uint64_t state_bytes, token_bytes, mla_token_bytes, gqa_token_bytes;
    uint32_t n_lengths;
    int32_t *ids;
    struct eb_samples seconds[N_LENGTHS];
};

static uint64_t cache_bytes(const struct kv_bench *t, uint32_t n) {
    return t->state_bytes + n * t->token_bytes;
}

static void count_bytes(struct kv_bench *t) {
    const struct eb_layout *l = &t->s.engine->layout;
    const struct eb_config *c = &t->s.model->config;
    uint64_t size = eb_dtype_size(t->s.cache_dtype);
    uint32_t kv_heads = c->n_heads / 4 > 0 ? c->n_heads / 4 : 1;
    t->state_bytes = l->state_bytes;
    t->token_bytes = l->row_bytes;
    t->mla_token_bytes = c->n_layers * (uint64_t)l->shape.row_elements * size;
    t->gqa_token_bytes = 2 * (uint64_t)c->n_layers * kv_heads * c->v_head_dim * size;
}

/* The same order of ordinary tokens in every run. */
static int make_ids(struct kv_bench *t) {
    uint32_t n = lengths[t->n_lengths - 1];
    uint64_t x = 1;
    if (!(t->ids = calloc(n, sizeof *t->ids))) {
        eb_complain("out of memory for %u token ids", n);
        return EB_EXIT_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++) {
        int32_t special = 1;
        for (int tries = 0; tries < 1000 && special; tries++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            t->ids[i] = (int32_t)((x >> 33) % t->s.model_info.vocab);
            if (!ebro_token_bytes(t->s.model, t->ids[i], NULL, &special)) special = 1;
        }
    }
    return EB_EXIT_OK;
}

static int prefill(struct kv_bench *t, uint32_t n, struct eb_samples *seconds) {
    int code = eb_session_restart(&t->s);
    double begin = eb_seconds();
    if (code == EB_EXIT_OK) code = eb_session_append(&t->s, t->ids, n, 0);
    if (code == EB_EXIT_OK) code = eb_session_evaluate(&t->s, NULL);
    if (code == EB_EXIT_OK && seconds) eb_samples_add(seconds, eb_seconds() - begin);
    return code;
}

static int open_session(struct kv_bench *t) {
    t->o = t->b->o;
    t->o.keep = EBRO_KEEP_NONE; /* each prompt is read whole */
    int code = eb_bench_describe(&t->o, &t->host);
    if (code == EB_EXIT_OK) code = eb_session_open_model(&t->s, &t->o);
    if (code != EB_EXIT_OK) return code;
    uint32_t max = t->s.model_info.max_context, most = t->b->quick ? 512 : 8192;
    if (t->o.n_ctx == 0) t->o.n_ctx = max != 0 && max < most ? max : most;
    if ((code = eb_session_open_engine(&t->s, &t->o)) != EB_EXIT_OK) return code;
    while (t->n_lengths < N_LENGTHS && lengths[t->n_lengths] <= t->s.n_ctx) t->n_lengths++;
    if (t->n_lengths > 0) return EB_EXIT_OK;
    eb_complain("bench kv: a context of %u %s: at least %u are needed", t->s.n_ctx,
                eb_tokens_word(t->s.n_ctx), lengths[0]);
    return EB_EXIT_USAGE;
}

/* ---- results ---------------------------------------------------------------------------- */

static double rate(const struct kv_bench *t, uint32_t i, uint64_t bytes) {
    double s = eb_samples_median(&t->seconds[i]);
    return s > 0.0 ? (double)bytes / s : 0.0;
}

static const char *model_name(const struct kv_bench *t) {
    return t->o.model ? t->o.model : "built-in demo";
}

static void print_table(const struct kv_bench *t) {
    eb_bench_print_host(&t->host);
    printf(
        "%s, cache %s: a state of %.2f MiB and %llu bytes a token; all MLA %llu, all GQA %llu\n\n",
        model_name(t), eb_cache_dtype_name(t->s.cache_dtype), (double)t->state_bytes / 1048576.0,
        (unsigned long long)t->token_bytes, (unsigned long long)t->mla_token_bytes,
        (unsigned long long)t->gqa_token_bytes);
    printf("%8s %10s %11s %11s %11s %10s %10s %10s\n", "tokens", "seconds", "MiB", "all MLA",
           "all GQA", "MiB/s", "all MLA", "all GQA");
    for (uint32_t i = 0; i < t->n_lengths; i++) {
        const uint64_t bytes[3] = {cache_bytes(t, lengths[i]), lengths[i] * t->mla_token_bytes,
                                   lengths[i] * t->gqa_token_bytes};
        printf("%8u %10.3f", lengths[i], eb_samples_median(&t->seconds[i]));
        for (int k = 0; k < 3; k++) printf(" %11.2f", (double)bytes[k] / 1048576.0);
        for (int k = 0; k < 3; k++) printf(" %10.2f", rate(t, i, bytes[k]) / 1048576.0);
        putchar('\n');
    }
}

static int print_json(const struct kv_bench *t) {
    json_t *rows = json_array();
    json_t *o =
        json_pack("{s:s, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:O?}", "schema", "ebro-bench-kv-1",
                  "threads", (json_int_t)t->host.n_threads, "model", model_name(t), "cache",
                  eb_cache_dtype_name(t->s.cache_dtype), "state_bytes", (json_int_t)t->state_bytes,
                  "token_bytes", (json_int_t)t->token_bytes, "mla_token_bytes",
                  (json_int_t)t->mla_token_bytes, "gqa_token_bytes", (json_int_t)t->gqa_token_bytes,
                  "rows", rows);
    bool ok = o && rows && eb_bench_json_host(&t->host, o);
    for (uint32_t i = 0; i < t->n_lengths && ok; i++) {
        uint32_t n = lengths[i];
        json_t *row =
            json_pack("{s:I, s:o, s:I, s:I, s:I, s:f}", "tokens", (json_int_t)n, "seconds",
                      eb_samples_json(&t->seconds[i], 0.0), "bytes", (json_int_t)cache_bytes(t, n),
                      "mla_bytes", (json_int_t)(n * t->mla_token_bytes), "gqa_bytes",
                      (json_int_t)(n * t->gqa_token_bytes), "bytes_per_second",
                      rate(t, i, cache_bytes(t, n)));
        ok = row && json_array_append_new(rows, row) == 0;
    }
    json_decref(rows);
    if (ok) return eb_bench_print_json(o);
    json_decref(o);
    return eb_bench_print_json(NULL);
}

static int measure(struct kv_bench *t) {
    int code = open_session(t);
    if (code == EB_EXIT_OK) code = make_ids(t);
    if (code == EB_EXIT_OK) code = prefill(t, lengths[0], NULL); /* pages and caches warm up */
    if (code != EB_EXIT_OK) return code;
    count_bytes(t);
    for (uint64_t r = 0; r < t->b->n_runs && code == EB_EXIT_OK; r++)
        for (uint32_t i = 0; i < t->n_lengths && code == EB_EXIT_OK; i++)
            code = prefill(t, lengths[i], &t->seconds[i]);
    if (code != EB_EXIT_OK) return code;
    if (t->o.json) return print_json(t);
    print_table(t);
    return eb_flush_stdout() ? EB_EXIT_OK : EB_EXIT_USAGE;
}

int eb_bench_kv(int argc, char **argv) {
    const struct eb_arg_group groups[] = {eb_bench_args, eb_bench_output_args, eb_model_args,
                                          eb_trust_args, eb_log_args};
    struct eb_bench_options b;
    int code = eb_bench_options_read("bench kv", usage, groups, sizeof groups / sizeof *groups,
                                     argc, argv, &b);
    if (code >= 0) return code;
    struct kv_bench *t = calloc(1, sizeof *t);
    if (!t) {
        eb_complain("out of memory");
        return EB_EXIT_MEMORY;
    }
    t->b = &b;
    code = measure(t);
    eb_session_close(&t->s);
    free(t->ids);
    free(t);
    return code;
}
