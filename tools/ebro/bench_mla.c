/* bench_mla.c: `ebro bench mla`: the two forms of attention over the latent cache, expanded and
 * absorbed, timed over rows and context; what the engine's cost model chooses, and what that costs.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_rig.h"
#include "engine/engine.h"

static const char usage[] =
    "usage: ebro bench mla [-m MODEL] [-dev DEV] [-t N] [-r RUNS] [options]\n"
    "\n"
    "Times one layer's attention over the latent cache (MLA) at the model's sizes in\n"
    "its two forms: expanded (keys and values of every token are made again) and\n"
    "absorbed (attention over the latents themselves). One sequence; `rows` new tokens\n"
    "after `context` earlier ones. `engine` is what the engine's cost model takes,\n"
    "`loss` how much slower that is than the faster form.\n"
    "Below: the least rows at which expanded is the faster form, and two mixes of\n"
    "steps, in seconds for one layer:\n"
    "  reasoning  a prompt of 512 tokens, then 3,584 generated ones\n"
    "  agentic    7 turns, each 512 tokens read and 16 generated\n"
    "Times are wall time; of one CPU thread, processor time.\n"
    "\n"
    "With --json an object: schema (\"ebro-bench-mla-1\"), version, date, processor,\n"
    "cores, load, device, description, backend, rung, threads, model, cache, heads;\n"
    "rows, an array of objects: rows, context, expanded_seconds and absorbed_seconds\n"
    "(each with median, min, max), engine, loss; and mixes, an array of objects: name,\n"
    "expanded_seconds, absorbed_seconds, engine_seconds, best_seconds, loss. There loss\n"
    "is a fraction: 0.05 where the table has 5.0%.\n";

enum form { EXPANDED, ABSORBED, N_FORMS };
static const char *const form_names[N_FORMS] = {"expanded", "absorbed"};

static const uint32_t row_counts[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
static const uint32_t contexts[] = {0, 256, 1024, 2048, 4096};
enum {
    N_COUNTS = sizeof row_counts / sizeof *row_counts,
    N_CONTEXTS = sizeof contexts / sizeof *contexts,
    MAX_ROWS = 512,
    MAX_CONTEXT = 4096,
    MAX_SETS = 16
};

/* One layer's buffers, for the largest step; smaller ones use the head of them. */
struct layer {
    ebro_mat q, q_absorbed, latent, out;
    ebro_weight kv_b;
    ebro_pages pages;
    ebro_span linear_scratch, prefill_scratch, decode_scratch;
};

struct mla_bench {
    const struct eb_bench_options *b;
    struct eb_rig rig;
    struct eb_bench_host host;
    struct eb_config c;
    const char *model;
    int32_t weight_dtype, cache_dtype;
    struct layer layers[MAX_SETS];
    uint32_t n_layers, n_counts, n_contexts;
    ebro_rows rows;    /* of the step that is measured now */
    ebro_span context; /* i32 [1] */
    uint32_t n_context;
    enum form form;
    struct eb_samples wall[N_FORMS][N_COUNTS][N_CONTEXTS], cpu[N_FORMS][N_COUNTS][N_CONTEXTS];
};

/* ---- the two forms ---------------------------------------------------------------------- */

static ebro_pages pages_now(const struct mla_bench *t, const struct layer *y) {
    ebro_pages p = y->pages;
    p.context = t->context;
    p.max_context = t->n_context + t->rows.n_rows;
    return p;
}

static float scale(const struct eb_config *c) {
    return 1.0f / sqrtf((float)(c->qk_nope_head_dim + c->qk_rope_head_dim));
}

static ebro_mla_prefill_args expanded_args(const struct mla_bench *t, const struct layer *y) {
    const struct eb_config *c = &t->c;
    return (ebro_mla_prefill_args){.size = sizeof(ebro_mla_prefill_args),
                                   .rows = t->rows,
                                   .q = y->q,
                                   .kv_b = y->kv_b,
                                   .n_heads = c->n_heads,
                                   .nope_dim = c->qk_nope_head_dim,
                                   .rope_dim = c->qk_rope_head_dim,
                                   .v_dim = c->v_head_dim,
                                   .kv_lora = c->kv_lora_rank,
                                   .scale = scale(c),
                                   .pages = pages_now(t, y),
                                   .token_end = UINT32_MAX,
                                   .out = y->out,
                                   .scratch = y->prefill_scratch};
}

static ebro_mla_decode_args absorbed_args(const struct mla_bench *t, const struct layer *y) {
    const struct eb_config *c = &t->c;
    return (ebro_mla_decode_args){.size = sizeof(ebro_mla_decode_args),
                                  .rows = t->rows,
                                  .q = y->q_absorbed,
                                  .n_heads = c->n_heads,
                                  .kv_lora = c->kv_lora_rank,
                                  .rope_dim = c->qk_rope_head_dim,
                                  .scale = scale(c),
                                  .pages = pages_now(t, y),
                                  .token_end = UINT32_MAX,
                                  .out = y->latent,
                                  .scratch = y->decode_scratch};
}

/* Per head a product with rows [first, first + n) of that head's part of kv_b. */
static ebro_linear_args per_head(const struct mla_bench *t, const struct layer *y, uint32_t first,
                                 uint32_t n, bool transposed, ebro_mat x, uint32_t x_head,
                                 ebro_mat out, uint32_t out_head) {
    uint64_t head_rows = (uint64_t)t->c.qk_nope_head_dim + t->c.v_head_dim;
    ebro_weight w = y->kv_b;
    uint64_t row_bytes = w.stride * eb_dtype_size(w.dtype);
    w.offset += first * row_bytes;
    w.rows = n;
    w.transposed = transposed;
    return (ebro_linear_args){.size = sizeof(ebro_linear_args),
                              .x = x,
                              .n_rows = t->rows.n_rows,
                              .n_items = 1,
                              .n_batch = t->c.n_heads,
                              .x_batch_elements = x_head,
                              .items = {{.w = w,
                                         .out = out,
                                         .w_batch_bytes = head_rows * row_bytes,
                                         .out_batch_elements = out_head}},
                              .scratch = y->linear_scratch};
}

static ebro_linear_args absorb_query(const struct mla_bench *t, const struct layer *y) {
    const struct eb_config *c = &t->c;
    return per_head(t, y, 0, c->qk_nope_head_dim, true, y->q,
                    c->qk_nope_head_dim + c->qk_rope_head_dim, y->q_absorbed,
                    c->kv_lora_rank + c->qk_rope_head_dim);
}

static ebro_linear_args expand_result(const struct mla_bench *t, const struct layer *y) {
    const struct eb_config *c = &t->c;
    return per_head(t, y, c->qk_nope_head_dim, c->v_head_dim, false, y->latent, c->kv_lora_rank,
                    y->out, c->v_head_dim);
}

/* As the engine does it: queries into the latent space, attention, results out of it. */
static int32_t run_absorbed(struct mla_bench *t, const struct layer *y) {
    const struct eb_config *c = &t->c;
    uint32_t nope = c->qk_nope_head_dim, rope = c->qk_rope_head_dim, lora = c->kv_lora_rank;
    ebro_linear_args in = absorb_query(t, y), out = expand_result(t, y);
    ebro_mla_decode_args a = absorbed_args(t, y);
    int32_t st = eb_rig_call(&t->rig, EBRO_OP_LINEAR, &in);
    if (st == EBRO_OK && rope > 0) {
        ebro_rows_copy_args pe = {
            .size = sizeof pe,
            .src = {y->q.mem, y->q.offset + nope * sizeof(float)},
            .dst = {y->q_absorbed.mem, y->q_absorbed.offset + lora * sizeof(float)},
            .src_stride_bytes = (nope + rope) * sizeof(float),
            .dst_stride_bytes = (lora + rope) * sizeof(float),
            .row_bytes = rope * sizeof(float),
            .n = t->rows.n_rows * c->n_heads};
        st = eb_rig_call(&t->rig, EBRO_OP_ROWS_COPY, &pe);
    }
    if (st == EBRO_OK) st = eb_rig_call(&t->rig, EBRO_OP_MLA_DECODE, &a);
    return st == EBRO_OK ? eb_rig_call(&t->rig, EBRO_OP_LINEAR, &out) : st;
}

static int32_t run_form(void *user, uint32_t set) {
    struct mla_bench *t = user;
    const struct layer *y = &t->layers[set];
    if (t->form == ABSORBED) return run_absorbed(t, y);
    ebro_mla_prefill_args a = expanded_args(t, y);
    return eb_rig_call(&t->rig, EBRO_OP_MLA_PREFILL, &a);
}

/* ---- measuring -------------------------------------------------------------------------- */

static void set_step(struct mla_bench *t, uint32_t n_rows, uint32_t context) {
    const int32_t tokens = (int32_t)context;
    t->rows = eb_rig_rows(&t->rig, 1, n_rows);
    t->context = eb_rig_data(&t->rig, &tokens, sizeof tokens);
    t->n_context = context;
}

static void build_layer(struct mla_bench *t, struct layer *y, uint32_t rows, uint32_t context) {
    const struct eb_config *c = &t->c;
    struct eb_rig *r = &t->rig;
    uint64_t heads = c->n_heads, row = (uint64_t)c->kv_lora_rank + c->qk_rope_head_dim;
    y->q = eb_rig_mat(r, rows, heads * (c->qk_nope_head_dim + c->qk_rope_head_dim));
    y->q_absorbed = eb_rig_out(r, rows, heads * row);
    y->latent = eb_rig_out(r, rows, heads * c->kv_lora_rank);
    y->out = eb_rig_out(r, rows, heads * c->v_head_dim);
    y->kv_b = eb_rig_weight(r, t->weight_dtype, c->n_heads * (c->qk_nope_head_dim + c->v_head_dim),
                            c->kv_lora_rank);
    y->pages = eb_rig_pages(r, 1, context, rows, (uint32_t)row, t->cache_dtype);
    ebro_mla_prefill_args expanded = expanded_args(t, y);
    ebro_mla_decode_args absorbed = absorbed_args(t, y);
    ebro_linear_args in = absorb_query(t, y), out = expand_result(t, y);
    uint64_t a = 0, b = 0;
    if (!eb_rig_failed(r)) {
        a = eb_op_scratch(r->device, EBRO_OP_LINEAR, &in);
        b = eb_op_scratch(r->device, EBRO_OP_LINEAR, &out);
    }
    y->linear_scratch = eb_rig_bytes(r, a > b ? a : b);
    y->prefill_scratch = eb_rig_scratch(r, EBRO_OP_MLA_PREFILL, &expanded);
    y->decode_scratch = eb_rig_scratch(r, EBRO_OP_MLA_DECODE, &absorbed);
}

/* ---- the cost model and mixes ----------------------------------------------------------- */

/* As eb_forward_mla decides. */
static enum form engine_chooses(const struct mla_bench *t, uint32_t rows, uint32_t context) {
    return rows > 1 && eb_mla_expanded_pays(&t->c, &t->rig.device->caps, rows, context) ? EXPANDED
                                                                                        : ABSORBED;
}

static const struct eb_samples *samples(const struct mla_bench *t, enum form f, uint32_t i,
                                        uint32_t k) {
    bool one = strcmp(t->host.device.backend, "cpu") == 0 && t->host.n_threads == 1;
    return one ? &t->cpu[f][i][k] : &t->wall[f][i][k];
}

/* Seconds of a step, between measured contexts by a straight line. */
static double step_seconds(const struct mla_bench *t, enum form f, uint32_t i, double context) {
    uint32_t k = 0;
    if (t->n_contexts < 2) return eb_samples_median(samples(t, f, i, 0));
    while (k + 2 < t->n_contexts && context > contexts[k + 1]) k++;
    double a = eb_samples_median(samples(t, f, i, k));
    double b = eb_samples_median(samples(t, f, i, k + 1));
    return a + (b - a) * (context - contexts[k]) / (contexts[k + 1] - contexts[k]);
}

struct mix {
    const char *name;
    double form[N_FORMS], engine, best;
};

/* Adds `n` steps of rows row_counts[i], the first one after *context tokens. */
static void add_steps(const struct mla_bench *t, struct mix *m, uint32_t i, uint32_t n,
                      uint32_t *context) {
    for (uint32_t s = 0; s < n; s++) {
        double seconds[N_FORMS];
        for (int f = 0; f < N_FORMS; f++) {
            seconds[f] = step_seconds(t, (enum form)f, i, *context);
            m->form[f] += seconds[f];
        }
        m->engine += seconds[engine_chooses(t, row_counts[i], *context)];
        m->best += seconds[EXPANDED] < seconds[ABSORBED] ? seconds[EXPANDED] : seconds[ABSORBED];
        *context += row_counts[i];
    }
}

enum { N_MIXES = 2 };

static void make_mixes(const struct mla_bench *t, struct mix *mixes) {
    uint32_t prompt = t->n_counts - 1, context = 0, quick = t->rig.quick;
    mixes[0] = (struct mix){.name = "reasoning"};
    add_steps(t, &mixes[0], prompt, 1, &context);
    add_steps(t, &mixes[0], 0, quick ? 4 : 3584, &context);
    mixes[1] = (struct mix){.name = "agentic"};
    context = 0;
    for (int turn = 0; turn < (quick ? 1 : 7); turn++) {
        add_steps(t, &mixes[1], prompt, 1, &context);
        add_steps(t, &mixes[1], 0, quick ? 2 : 16, &context);
    }
}

/* ---- results ---------------------------------------------------------------------------- */

static double loss(double chosen, double best) {
    return best > 0.0 ? chosen / best - 1.0 : 0.0;
}

static double point_loss(const struct mla_bench *t, uint32_t i, uint32_t k) {
    double s[N_FORMS];
    for (int f = 0; f < N_FORMS; f++) s[f] = eb_samples_median(samples(t, (enum form)f, i, k));
    return loss(s[engine_chooses(t, row_counts[i], contexts[k])],
                s[EXPANDED] < s[ABSORBED] ? s[EXPANDED] : s[ABSORBED]);
}

static void print_head(const struct mla_bench *t) {
    eb_bench_print_host(&t->host);
    if (t->host.n_threads > 0) printf("threads %u; ", t->host.n_threads);
    printf("%s: %u heads, %u + %u cached, %s weights, %s cache\n\n", t->model, t->c.n_heads,
           t->c.kv_lora_rank, t->c.qk_rope_head_dim, eb_dtype_name(t->weight_dtype),
           eb_dtype_name(t->cache_dtype));
    printf("%8s %6s %13s %13s %10s %10s %7s\n", "context", "rows", "expanded us", "absorbed us",
           "faster", "engine", "loss");
}

static void print_point(const struct mla_bench *t, uint32_t i, uint32_t k) {
    double e = eb_samples_median(samples(t, EXPANDED, i, k));
    double a = eb_samples_median(samples(t, ABSORBED, i, k));
    printf("%8u %6u %13.1f %13.1f %10s %10s %6.1f%%\n", contexts[k], row_counts[i], 1e6 * e,
           1e6 * a, form_names[e < a ? EXPANDED : ABSORBED],
           form_names[engine_chooses(t, row_counts[i], contexts[k])], 100.0 * point_loss(t, i, k));
}

static void print_crossover(const struct mla_bench *t) {
    printf("\nexpanded is faster from\n");
    for (uint32_t k = 0; k < t->n_contexts; k++) {
        uint32_t i = t->n_counts, j = 0;
        /* the last row count at which it is not */
        while (i > 0 && eb_samples_median(samples(t, EXPANDED, i - 1, k)) <
                            eb_samples_median(samples(t, ABSORBED, i - 1, k)))
            i--;
        while (j < t->n_counts && engine_chooses(t, row_counts[j], contexts[k]) == ABSORBED) j++;
        printf("  context %5u: ", contexts[k]);
        if (i < t->n_counts)
            printf("%u rows", row_counts[i]);
        else
            printf("no rows");
        if (j < t->n_counts)
            printf("; the engine takes it from %u rows\n", row_counts[j]);
        else
            printf("; the engine never takes it\n");
    }
}

static void print_mixes(const struct mla_bench *t) {
    struct mix mixes[N_MIXES];
    make_mixes(t, mixes);
    printf("\n%-10s %12s %12s %12s %12s %7s\n", "mix, s", "expanded", "absorbed", "engine", "best",
           "loss");
    for (int i = 0; i < N_MIXES; i++)
        printf("%-10s %12.4f %12.4f %12.4f %12.4f %6.1f%%\n", mixes[i].name,
               mixes[i].form[EXPANDED], mixes[i].form[ABSORBED], mixes[i].engine, mixes[i].best,
               100.0 * loss(mixes[i].engine, mixes[i].best));
}

static bool json_grid(const struct mla_bench *t, json_t *rows) {
    for (uint32_t k = 0; k < t->n_contexts; k++) {
        for (uint32_t i = 0; i < t->n_counts; i++) {
            json_t *o =
                json_pack("{s:I, s:I, s:o, s:o, s:s, s:f}", "rows", (json_int_t)row_counts[i],
                          "context", (json_int_t)contexts[k], "expanded_seconds",
                          eb_samples_json(samples(t, EXPANDED, i, k), 0.0), "absorbed_seconds",
                          eb_samples_json(samples(t, ABSORBED, i, k), 0.0), "engine",
                          form_names[engine_chooses(t, row_counts[i], contexts[k])], "loss",
                          point_loss(t, i, k));
            if (!o || json_array_append_new(rows, o) != 0) return false;
        }
    }
    return true;
}

static bool json_mixes(const struct mla_bench *t, json_t *to) {
    struct mix mixes[N_MIXES];
    make_mixes(t, mixes);
    for (int i = 0; i < N_MIXES; i++) {
        const struct mix *m = &mixes[i];
        json_t *o =
            json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "name", m->name, "expanded_seconds",
                      m->form[EXPANDED], "absorbed_seconds", m->form[ABSORBED], "engine_seconds",
                      m->engine, "best_seconds", m->best, "loss", loss(m->engine, m->best));
        if (!o || json_array_append_new(to, o) != 0) return false;
    }
    return true;
}

static int print_json(const struct mla_bench *t) {
    json_t *rows = json_array(), *mixes = json_array();
    json_t *o = json_pack("{s:s, s:I, s:s, s:s, s:I, s:O?, s:O?}", "schema", "ebro-bench-mla-1",
                          "threads", (json_int_t)t->host.n_threads, "model", t->model, "cache",
                          eb_dtype_name(t->cache_dtype), "heads", (json_int_t)t->c.n_heads, "rows",
                          rows, "mixes", mixes);
    bool ok = o && rows && mixes && eb_bench_json_host(&t->host, o) && json_grid(t, rows) &&
              json_mixes(t, mixes);
    json_decref(rows);
    json_decref(mixes);
    if (ok) return eb_bench_print_json(o);
    json_decref(o);
    return eb_bench_print_json(NULL);
}

/* ---- the command ------------------------------------------------------------------------ */

/* The sizes of the model's first MLA layer; the model is closed again. */
static int read_model(struct mla_bench *t) {
    struct eb_session s = {0};
    int code = eb_session_open_model(&s, &t->b->o);
    t->weight_dtype = EBRO_BF16;
    t->model = t->b->o.model ? t->b->o.model : "built-in demo";
    if (code == EB_EXIT_OK) {
        t->c = s.model->config;
        uint32_t i = 0;
        while (i < t->c.n_layers && s.model->layers[i].is_kda) i++;
        if (i == t->c.n_layers) {
            eb_complain("%s has no MLA layer", t->model);
            code = EB_EXIT_MODEL;
        } else if (s.model->layers[i].kv_b.w->dtype == EBRO_F32) {
            t->weight_dtype = EBRO_F32;
        }
    }
    t->cache_dtype = t->b->o.cache_dtype;
    if (t->cache_dtype < 0)
        t->cache_dtype = strcmp(s.device_info.backend, "cpu") == 0 ? EBRO_F32 : EBRO_BF16;
    eb_session_close(&s);
    return code;
}

/* With text each row is printed as soon as it is known: the whole takes a while. */
static void measure_grid(struct mla_bench *t, bool text) {
    struct eb_rig *r = &t->rig;
    uint32_t rows = row_counts[t->n_counts - 1], context = contexts[t->n_contexts - 1];
    set_step(t, rows, context);
    do build_layer(t, &t->layers[t->n_layers++], rows, context);
    while (!eb_rig_failed(r) && t->n_layers < MAX_SETS && r->bytes < r->rotate_bytes);
    for (uint32_t k = 0; k < t->n_contexts; k++) {
        for (uint32_t i = 0; i < t->n_counts; i++) {
            set_step(t, row_counts[i], contexts[k]);
            for (int f = 0; f < N_FORMS; f++) {
                t->form = (enum form)f;
                eb_rig_time(r, t->n_layers, run_form, t, &t->wall[f][i][k], &t->cpu[f][i][k]);
            }
            if (!text || eb_rig_failed(r)) continue;
            print_point(t, i, k);
            fflush(stdout); /* a failure shows at the end */
        }
    }
}

static int measure(struct mla_bench *t) {
    const struct eb_options *o = &t->b->o;
    t->n_counts = t->b->quick ? 2 : N_COUNTS;
    t->n_contexts = t->b->quick ? 2 : N_CONTEXTS;
    int code = read_model(t);
    if (code == EB_EXIT_OK) code = eb_bench_describe(o, &t->host);
    if (code == EB_EXIT_OK) code = eb_rig_open(&t->rig, o, t->b);
    if (code != EB_EXIT_OK) return code;
    if (!o->json) print_head(t);
    measure_grid(t, !o->json);
    if (eb_rig_failed(&t->rig)) return eb_complain_device(&t->rig.err);
    if (o->json) return print_json(t);
    print_crossover(t);
    print_mixes(t);
    return eb_flush_stdout() ? EB_EXIT_OK : EB_EXIT_USAGE;
}

int eb_bench_mla(int argc, char **argv) {
    const struct eb_arg_group groups[] = {eb_bench_args, eb_bench_output_args, eb_bench_mla_args(),
                                          eb_trust_args, eb_log_args};
    struct eb_bench_options options;
    int code = eb_bench_options_read("bench mla", usage, groups, sizeof groups / sizeof *groups,
                                     argc, argv, &options);
    if (code >= 0) return code;
    struct mla_bench *t = calloc(1, sizeof *t);
    if (!t) {
        eb_complain("out of memory");
        return EB_EXIT_MEMORY;
    }
    t->b = &options;
    code = measure(t);
    eb_rig_close(&t->rig);
    free(t);
    return code;
}
