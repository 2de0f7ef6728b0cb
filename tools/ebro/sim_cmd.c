/* sim_cmd.c: `ebro cache-sim`: what a budget, a policy and retention points would have made of a
 * trace of prompts, for any model, without running one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "file_out.h"
#include "sim.h"

extern const unsigned char ebro_demo_config[];
extern const uint64_t ebro_demo_config_bytes;

static const char usage[] =
    "usage: ebro cache-sim TRACE [--geometry NAME | -m MODEL] [--budget LIST] [options]\n"
    "       ebro cache-sim --generate LOAD [--print-trace] [options]\n"
    "\n"
    "Replays a trace of prompts through the memory manager of the engine, without a\n"
    "model: how many prompt tokens would be reused, how many evaluated again, and why,\n"
    "for each budget and policy. Requests come one at a time: the prompt, the generated\n"
    "tokens one by one, the end. The counters are those an engine would show.\n"
    "\n"
    "TRACE (- for stdin) has one JSON object a line, each a request:\n"
    "  {\"parts\": [[\"system\", 1500], [\"user-17\", 700]], \"generate\": 200}\n"
    "  {\"tokens\": [17, 4, 901], \"generate\": [8, 8, 2]}\n"
    "  {\"session\": \"a\", \"parts\": [[\"question-1\", 300]], \"generate\": 120}\n"
    "  {\"session\": \"a\", \"cut\": 300, \"parts\": [[\"question-2\", 40]]}\n"
    "  parts     what the prompt is made of. [NAME, N] is the first N tokens of an\n"
    "            endless chain that the name always stands for, [NAME, N, FIRST] N\n"
    "            tokens from its token FIRST on, [ID, ...] the ids themselves\n"
    "  tokens    the prompt as ids, instead of parts\n"
    "  generate  what is generated: N tokens that occur nowhere else, or one part\n"
    "  session   the prompt begins with all that this session held so far, prompts and\n"
    "            generated tokens, and all of this request is added to it\n"
    "  cut       of which only the first N tokens stay\n"
    "  keep      positions in the prompt where the application keeps a snapshot\n"
    "  id        anything; not looked at\n"
    "\n"
    "The result is three tables with a row for each budget and policy.\n"
    "  prompt tokens\n"
    "    refused     of requests that were refused: their prompt is too long for -c, or the\n"
    "                budget does not hold them to their end\n"
    "    read        of prompts that were begun, some of them refused later: what the next\n"
    "                three count\n"
    "    matched     the same as in an earlier prompt up to there\n"
    "    reused      not evaluated again: up to the deepest snapshot in what matched\n"
    "    recomputed  read and not reused\n"
    "    saved       reused tokens of requests that were not refused, of all tokens of the\n"
    "                trace's prompts. Rows with refusals are marked with !: they read less,\n"
    "                so that saved alone can be compared\n"
    "  requests\n"
    "    refused     as above. The others, of requests that were begun, say why no more of\n"
    "                the prompt was reused:\n"
    "    none        all that had been seen before was\n"
    "    new         no prompt before began like it\n"
    "    off         nothing is kept (--keep none)\n"
    "    no_snapshot seen before, but no snapshot was taken on the way\n"
    "    evicted     a nearer snapshot had been given up for memory\n"
    "    earlier     the nearest snapshot lies before the end of what matched\n"
    "  memory\n"
    "    held most   the most bytes of pages and states that were held at once\n"
    "    kept        snapshots taken; not kept: those that memory had no room for;\n"
    "                given up: those that made room for others, or for requests\n"
    "--svg plots what was not saved, recomputed or refused, against the budget; a cross\n"
    "marks points with refusals.\n"
    "\n"
    "With --json an object: schema (\"ebro-cache-sim-1\"), version, geometry, keep,\n"
    "interval, token_cost, depth_cost, requests, asked_tokens (of all prompts),\n"
    "block_bytes, page_tokens, token_bytes, state_bytes, and rows, an array of objects:\n"
    "budget_bytes, policy, refused (requests), refused_tokens, prompt_tokens (read),\n"
    "matched_tokens, reused_tokens, recomputed_tokens, saved_tokens, hit_share\n"
    "(saved_tokens / asked_tokens), evaluated_tokens (of prompts and answers),\n"
    "peak_bytes, snapshots_kept, snapshots_refused, evictions (snapshots given up),\n"
    "copied_pages, and misses, requests by reason: none, new, off, no_snapshot, evicted,\n"
    "earlier.\n";

struct sim_options {
    struct eb_options o;
    const char *trace, *geometry, *budgets, *policies, *keep, *csv, *svg;
    int32_t state_dtype, load;
    uint64_t mla_layers, kda_layers, kda_heads, head_dim, row, vocab; /* 0: the geometry's */
    uint64_t interval;
    double token_cost, depth_cost;
    enum eb_arg_from model_from, geometry_from, budgets_from, policies_from, keep_from;
    enum eb_arg_from token_cost_from;
    bool cancellable, print_trace;
    struct eb_sim_load g;
};

static const struct eb_choice loads[] = {{"multi-turn", EB_SIM_MULTI_TURN},
                                         {"agentic", EB_SIM_AGENTIC},
                                         {"shared-system", EB_SIM_SHARED_SYSTEM},
                                         {"one-off", EB_SIM_ONE_OFF},
                                         {NULL, 0}};
static const struct eb_choice cache_dtypes[] = {
    {"f32", EBRO_F32}, {"f16", EBRO_F16}, {"bf16", EBRO_BF16}, {NULL, 0}};
static const struct eb_choice state_dtypes[] = {{"f32", EBRO_F32}, {"bf16", EBRO_BF16}, {NULL, 0}};

#define AT(field) .offset = offsetof(struct sim_options, field)

static const struct eb_arg memory_args[] = {
    {.name = "TRACE", .kind = EB_ARG_TEXT, AT(trace), .help = "the trace; - for stdin"},
    {.name = "--budget",
     .env = "EBRO_SIM_BUDGET",
     .meta = "LIST",
     .kind = EB_ARG_TEXT,
     AT(budgets),
     .from = offsetof(struct sim_options, budgets_from),
     .help = "bytes for pages and states, such as 512M,2G,8G;\ndefault: 1G,2G,4G,8G,16G"},
    {.name = "--policy",
     .env = "EBRO_SIM_POLICY",
     .meta = "LIST",
     .kind = EB_ARG_TEXT,
     AT(policies),
     .from = offsetof(struct sim_options, policies_from),
     .help = "lru, cost; default: both"},
    {.name = "--token-cost",
     .env = "EBRO_SIM_TOKEN_COST",
     .meta = "A",
     .kind = EB_ARG_REAL,
     .max = 1000000000,
     AT(token_cost),
     .from = offsetof(struct sim_options, token_cost_from),
     .help = "for the policy cost: evaluating a prompt token after t\n"
             "others costs A + B t. The proportion alone counts;\n"
             "token_cost and depth_cost of ebro_memory are what an\n"
             "engine has measured. Default: 1000"},
    {.name = "--depth-cost",
     .env = "EBRO_SIM_DEPTH_COST",
     .meta = "B",
     .kind = EB_ARG_REAL,
     .max = 1000000000,
     AT(depth_cost),
     .help = "default: 0.1"},
    {.name = "--keep",
     .env = "EBRO_SIM_KEEP",
     .meta = "LIST",
     .kind = EB_ARG_TEXT,
     AT(keep),
     .from = offsetof(struct sim_options, keep_from),
     .help = "which snapshots are kept: prompt (its end), turn\n"
             "(end), interval, junction (where a prompt leaves an\n"
             "earlier one); none; default: all four"},
    {.name = "--interval",
     .env = "EBRO_SIM_INTERVAL",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 1u << 28,
     AT(interval),
     .help = "tokens between two snapshots of `interval`;\ndefault: 4096"},
    {.name = "--cancellable",
     .env = "EBRO_SIM_CANCELLABLE",
     .kind = EB_ARG_FLAG,
     AT(cancellable),
     .help = "as an engine with a progress callback: a step of a\nprompt holds two states"},
    {.name = "-ub",
     .alias = "--ubatch-size",
     .env = "EBRO_UBATCH",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 1u << 20,
     AT(o.n_chunk),
     .help = "tokens of the prompt per step; default: 512"},
    {.name = "-c",
     .alias = "--ctx-size",
     .env = "EBRO_CTX",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 1u << 30,
     AT(o.n_ctx),
     .help = "longer prompts are refused; default: the budget\nalone decides"},
};

static const struct eb_arg_group memory_group = {"Memory", memory_args,
                                                 sizeof memory_args / sizeof *memory_args};

static const struct eb_arg shape_args[] = {
    {.name = "--geometry",
     .env = "EBRO_SIM_GEOMETRY",
     .meta = "NAME",
     .kind = EB_ARG_TEXT,
     AT(geometry),
     .from = offsetof(struct sim_options, geometry_from),
     .help = "kimi-linear-48b (default), kimi-k3 or demo"},
    {.name = "-m",
     .alias = "--model",
     .env = "EBRO_MODEL",
     .meta = "MODEL",
     .kind = EB_ARG_TEXT,
     AT(o.model),
     .from = offsetof(struct sim_options, model_from),
     .help = "instead: a folder, of which config.json alone is\nread"},
    {.name = "-ctk",
     .alias = "--cache-type-k",
     .env = "EBRO_CTK",
     .meta = "TYPE",
     .kind = EB_ARG_CHOICE,
     .choices = cache_dtypes,
     AT(o.cache_dtype),
     .help = "latent cache: f32, f16 or bf16; default: bf16"},
    {.name = "--state-type",
     .env = "EBRO_SIM_STATE_TYPE",
     .meta = "TYPE",
     .kind = EB_ARG_CHOICE,
     .choices = state_dtypes,
     AT(state_dtype),
     .help = "recurrent states: f32 (default) or bf16"},
    {.name = "--mla-layers",
     .env = "EBRO_SIM_MLA_LAYERS",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 4096,
     AT(mla_layers),
     .help = "MLA layers, instead of the geometry's"},
    {.name = "--kda-layers",
     .env = "EBRO_SIM_KDA_LAYERS",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 4096,
     AT(kda_layers),
     .help = "KDA layers, likewise"},
    {.name = "--kda-heads",
     .env = "EBRO_SIM_KDA_HEADS",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 4096,
     AT(kda_heads),
     .help = "heads of a KDA layer"},
    {.name = "--head-dim",
     .env = "EBRO_SIM_HEAD_DIM",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 4096,
     AT(head_dim),
     .help = "rows and columns of a KDA head's state"},
    {.name = "--latent",
     .env = "EBRO_SIM_LATENT",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 1u << 20,
     AT(row),
     .help = "values that an MLA layer caches for a token"},
    {.name = "--vocab",
     .env = "EBRO_SIM_VOCAB",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 2,
     .max = INT32_MAX,
     AT(vocab),
     .help = "token ids that named parts are made of"},
};

static const struct eb_arg_group shape_group = {"Geometry", shape_args,
                                                sizeof shape_args / sizeof *shape_args};

static const struct eb_arg load_args[] = {
    {.name = "--generate",
     .env = "EBRO_SIM_GENERATE",
     .meta = "LOAD",
     .kind = EB_ARG_CHOICE,
     .choices = loads,
     AT(load),
     .help = "a load instead of a trace: multi-turn (chats),\n"
             "agentic (tool results of very different lengths,\n"
             "steps taken back), shared-system (groups with one\n"
             "long system prompt each), one-off"},
    {.name = "--requests",
     .env = "EBRO_SIM_REQUESTS",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 100000000,
     AT(g.n_requests),
     .help = "requests of the load; default: 1000"},
    {.name = "--sessions",
     .env = "EBRO_SIM_SESSIONS",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 1000000,
     AT(g.n_sessions),
     .help = "conversations, or groups, at once; default: 8"},
    {.name = "--turns",
     .env = "EBRO_SIM_TURNS",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 1000000,
     AT(g.n_turns),
     .help = "requests of a conversation; default: 10"},
    {.name = "--system",
     .env = "EBRO_SIM_SYSTEM",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .max = 1u << 26,
     AT(g.system),
     .help = "tokens of the system prompts; default: 1500"},
    {.name = "--user",
     .env = "EBRO_SIM_USER",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 1u << 26,
     AT(g.user),
     .help = "tokens of a message, on average; default: 700"},
    {.name = "--reply",
     .env = "EBRO_SIM_REPLY",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 1u << 26,
     AT(g.reply),
     .help = "generated tokens, on average; default: 200"},
    {.name = "-s",
     .alias = "--seed",
     .env = "EBRO_SEED",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .max = UINT64_MAX,
     AT(g.seed),
     .help = "another one gives another load; default: 1"},
    {.name = "--print-trace",
     .env = "EBRO_SIM_PRINT_TRACE",
     .kind = EB_ARG_FLAG,
     AT(print_trace),
     .help = "only write the trace to stdout"},
};

static const struct eb_arg output_args[] = {
    {.name = "--csv",
     .env = "EBRO_SIM_CSV",
     .meta = "FILE",
     .kind = EB_ARG_TEXT,
     AT(csv),
     .help = "the table as CSV too"},
    {.name = "--svg",
     .env = "EBRO_SIM_SVG",
     .meta = "FILE",
     .kind = EB_ARG_TEXT,
     AT(svg),
     .help = "a plot of the budgets, as said above"},
    {.name = "--json",
     .env = "EBRO_JSON",
     .kind = EB_ARG_FLAG,
     AT(o.json),
     .help = "one JSON object, described above, not the table"},
};

/* ---- lists ------------------------------------------------------------------------------ */

enum { MAX_BUDGETS = 64, MAX_POLICIES = 2, USUAL_INTERVAL = 4096, USUAL_CHUNK = 512 };

struct run {
    struct sim_options x;
    uint64_t budgets[MAX_BUDGETS];
    int32_t policies[MAX_POLICIES];
    uint32_t keep;
    char keep_text[64];
    struct eb_sim_setting set;
    struct eb_sim_trace trace;
    struct eb_sim_table table;
};

static int rising(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static bool read_size(const char *p, const char **end, uint64_t *out) {
    static const char units[] = "KMGT";
    char *rest;
    errno = 0;
    unsigned long long v = *p >= '0' && *p <= '9' ? strtoull(p, &rest, 10) : 0;
    if (v == 0 || errno != 0) return false;
    const char *unit = *rest != '\0' ? strchr(units, *rest) : NULL;
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    if (v > (UINT64_MAX >> 1) >> shift) return false;
    *out = (uint64_t)v << shift;
    *end = rest + (unit != NULL);
    return true;
}

static int read_budgets(struct run *r) {
    const char *p = r->x.budgets ? r->x.budgets : "1G,2G,4G,8G,16G";
    size_t n = 0;
    for (;; p++) {
        if (n == MAX_BUDGETS || !read_size(p, &p, &r->budgets[n]) || (*p != ',' && *p != '\0')) {
            eb_complain("%s: \"%s\" is not a list such as 512M,2G of up to %d sizes",
                        eb_args_label(&memory_group, "--budget", &r->x), r->x.budgets, MAX_BUDGETS);
            return EB_EXIT_USAGE;
        }
        n++;
        if (*p == '\0') break;
    }
    qsort(r->budgets, n, sizeof *r->budgets, rising);
    r->table.n_budgets = n;
    return EB_EXIT_OK;
}

/* The next word of a list; false at its end. */
static bool next_word(const char **p, const char **word, size_t *n) {
    if (**p == '\0') return false;
    *word = *p;
    *n = strcspn(*p, ",");
    *p += *n;
    if (**p == ',') (*p)++;
    return true;
}

static bool is_word(const char *word, size_t n, const char *name) {
    return strlen(name) == n && strncmp(word, name, n) == 0;
}

static int read_policies(struct run *r) {
    const char *p = r->x.policies ? r->x.policies : "lru,cost", *word;
    size_t n, *count = &r->table.n_policies;
    bool ok = *p != '\0';
    while (ok && next_word(&p, &word, &n)) {
        bool lru = is_word(word, n, "lru"), cost = is_word(word, n, "cost");
        ok = (lru || cost) && *count < MAX_POLICIES;
        if (!ok) break;
        r->policies[*count] = lru ? EB_POLICY_LRU : EB_POLICY_COST;
        ok = *count == 0 || r->policies[0] != r->policies[1];
        (*count)++;
    }
    if (ok) return EB_EXIT_OK;
    eb_complain("%s: \"%s\" is not lru, cost or lru,cost",
                eb_args_label(&memory_group, "--policy", &r->x), r->x.policies);
    return EB_EXIT_USAGE;
}

static int read_keep(struct run *r) {
    static const struct {
        const char *name;
        uint32_t bit;
    } all[] = {{"prompt", EB_KEEP_PROMPT_END},
               {"turn", EB_KEEP_TURN_END},
               {"interval", EB_KEEP_INTERVAL},
               {"junction", EB_KEEP_JUNCTION}};
    const char *text = r->x.keep ? r->x.keep : "prompt,turn,interval,junction", *p = text, *word;
    size_t n, i;
    bool none = strcmp(text, "none") == 0, ok = *p != '\0';
    while (ok && !none && next_word(&p, &word, &n)) {
        for (i = 0; i < 4 && !is_word(word, n, all[i].name); i++) continue;
        ok = i < 4;
        if (ok) r->keep |= all[i].bit;
    }
    if (!ok) {
        eb_complain("%s: \"%s\" is neither none nor a list of prompt, turn, interval, junction",
                    eb_args_label(&memory_group, "--keep", &r->x), text);
        return EB_EXIT_USAGE;
    }
    size_t used = 0;
    for (i = 0; i < 4; i++)
        if (r->keep & all[i].bit)
            used += (size_t)snprintf(r->keep_text + used, sizeof r->keep_text - used, "%s%s",
                                     used ? ", " : "", all[i].name);
    if (none) snprintf(r->keep_text, sizeof r->keep_text, "nothing");
    return EB_EXIT_OK;
}

/* ---- the parts of a run ----------------------------------------------------------------- */

static void replace(uint32_t *number, uint64_t by) {
    if (by != 0) *number = (uint32_t)by;
}

static int choose_shape(struct run *r) {
    const struct sim_options *x = &r->x;
    struct eb_sim_shape s = {0};
    ebro_error err = {0};
    const char *name = x->geometry ? x->geometry : "kimi-linear-48b";
    if (x->model_from != EB_FROM_DEFAULT && x->model_from == x->geometry_from) {
        eb_complain("%s or %s, not both", eb_args_label(&shape_group, "--geometry", x),
                    eb_args_label(&shape_group, "-m", x));
        return EB_EXIT_USAGE;
    }
    int32_t st = EBRO_OK;
    if (x->model_from > x->geometry_from) { /* the command line wins over the environment */
        st = eb_sim_shape_read(x->o.model, &s, &err);
        name = x->o.model;
    } else if (strcmp(name, "demo") == 0) {
        st = eb_sim_shape_of(ebro_demo_config, (size_t)ebro_demo_config_bytes, &s, &err);
    } else if (!eb_sim_shape_named(name, &s)) {
        eb_complain("%s: \"%s\" is none of kimi-linear-48b, kimi-k3, demo",
                    eb_args_label(&shape_group, "--geometry", x), name);
        return EB_EXIT_USAGE;
    }
    if (st != EBRO_OK) {
        int code = eb_complain_error(&err);
        return code == EB_EXIT_USAGE ? EB_EXIT_MODEL : code;
    }
    s.shape.row_dtype = x->o.cache_dtype < 0 ? EBRO_BF16 : x->o.cache_dtype;
    s.shape.state_dtype = x->state_dtype;
    replace(&s.shape.n_mla_layers, x->mla_layers);
    replace(&s.shape.n_kda_layers, x->kda_layers);
    replace(&s.shape.kda_heads, x->kda_heads);
    replace(&s.shape.kda_head_dim, x->head_dim);
    replace(&s.shape.row_elements, x->row);
    replace(&s.vocab, x->vocab);
    if (eb_layout_plan(&s.shape, &r->set.layout, &err) != EBRO_OK) return eb_complain_error(&err);
    r->set.vocab = s.vocab;
    r->table.geometry = name;
    r->table.layout = r->set.layout;
    return EB_EXIT_OK;
}

static bool is_stdin(const char *path) {
    return strcmp(path, "-") == 0;
}

static int read_trace_file(struct run *r) {
    const char *path = r->x.trace;
    bool from_stdin = is_stdin(path);
    ebro_error err = {0};
    FILE *f = from_stdin ? stdin : fopen(path, "rb");
    if (!f) {
        eb_complain("cannot read %s: %s", path, strerror(errno));
        return EB_EXIT_USAGE;
    }
    int32_t st = eb_sim_read(f, from_stdin ? "standard input" : path, &r->trace, &err);
    if (!from_stdin) fclose(f);
    if (st == EBRO_OK) return EB_EXIT_OK;
    int code = eb_complain_error(&err);
    return code == EB_EXIT_MODEL ? EB_EXIT_USAGE : code; /* it is no model that is wrong */
}

/* Through the text that --print-trace would have shown: one way in. */
static int generate_trace(struct run *r) {
    char *text = NULL;
    size_t n = 0;
    ebro_error err = {0};
    int32_t st = EBRO_NOMEM_HOST;
    FILE *f = open_memstream(&text, &n);
    bool ok = f && eb_sim_generate(&r->x.g, f);
    if (f && fclose(f) != 0) ok = false;
    f = ok ? fmemopen(text, n, "rb") : NULL;
    if (f) {
        st = eb_sim_read(f, "the generated trace", &r->trace, &err);
        fclose(f);
    } else {
        err.status = EBRO_NOMEM_HOST;
        snprintf(err.text, sizeof err.text, "out of memory for the trace");
    }
    free(text);
    return st == EBRO_OK ? EB_EXIT_OK : eb_complain_error(&err);
}

static int read_trace(struct run *r) {
    int code = r->x.trace ? read_trace_file(r) : generate_trace(r);
    if (code == EB_EXIT_OK && r->trace.n_requests == 0) {
        eb_complain("%s holds no request", is_stdin(r->x.trace) ? "standard input" : r->x.trace);
        return EB_EXIT_USAGE;
    }
    return code;
}

static int simulate(struct run *r) {
    struct eb_sim_table *t = &r->table;
    t->rows = calloc(t->n_budgets * t->n_policies, sizeof *t->rows);
    if (!t->rows) {
        eb_complain("out of memory");
        return EB_EXIT_MEMORY;
    }
    t->n_requests = r->trace.n_requests;
    for (size_t i = 0; i < t->n_budgets * t->n_policies; i++) {
        struct eb_sim_row *row = &t->rows[i];
        ebro_error err = {0};
        row->budget = r->budgets[i / t->n_policies];
        r->set.options.budget_bytes = row->budget;
        r->set.options.policy = (enum eb_policy_kind)r->policies[i % t->n_policies];
        row->policy = r->set.options.policy == EB_POLICY_COST ? "cost" : "lru";
        if (eb_sim_replay(&r->trace, &r->set, &row->result, &err) != EBRO_OK)
            return eb_complain_error(&err);
    }
    return EB_EXIT_OK;
}

static int write_file(const char *path, bool (*write)(FILE *, const void *), const void *table) {
    char text[512];
    if (!path || eb_file_write(path, write, table, text, sizeof text)) return EB_EXIT_OK;
    eb_complain("%s", text);
    return EB_EXIT_USAGE;
}

static int show(struct run *r) {
    int code = write_file(r->x.csv, eb_sim_write_csv, &r->table);
    if (code == EB_EXIT_OK) code = write_file(r->x.svg, eb_sim_write_svg, &r->table);
    if (code != EB_EXIT_OK) return code;
    if (r->x.o.json) return eb_sim_print_json(&r->table);
    eb_sim_print(&r->table, stdout);
    return eb_flush_stdout() ? EB_EXIT_OK : EB_EXIT_USAGE;
}

static int print_trace(struct run *r) {
    bool ok = eb_sim_generate(&r->x.g, stdout);
    if (!ok && errno == ENOMEM) {
        eb_complain("out of memory for %llu sessions", (unsigned long long)r->x.g.n_sessions);
        return EB_EXIT_MEMORY;
    }
    return eb_flush_stdout() ? EB_EXIT_OK : EB_EXIT_USAGE;
}

/* Nothing that is written may replace the trace, or what else is written. */
static int check_files(const struct sim_options *x) {
    const char *trace = x->trace && !is_stdin(x->trace) ? x->trace : NULL;
    const struct {
        const char *names, *path, *other;
    } pairs[] = {{"--csv and the trace", x->csv, trace},
                 {"--svg and the trace", x->svg, trace},
                 {"--csv and --svg", x->csv, x->svg}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!eb_file_same(pairs[i].path, pairs[i].other)) continue;
        eb_complain("%s are the same file: %s", pairs[i].names, pairs[i].path);
        return EB_EXIT_USAGE;
    }
    return EB_EXIT_OK;
}

static int run(struct run *r) {
    const struct sim_options *x = &r->x;
    if ((x->trace != NULL) == (x->load >= 0)) {
        eb_complain("%s (`ebro cache-sim --help` says more)",
                    x->trace ? "a trace or --generate, not both"
                             : "no trace: name a file, - for stdin, or --generate one");
        return EB_EXIT_USAGE;
    }
    if (x->print_trace && x->load < 0) {
        eb_complain("--print-trace goes with --generate");
        return EB_EXIT_USAGE;
    }
    const double least = 1e-12;
    if (x->token_cost < least) {
        eb_complain("%s: %g is too small: %g or more",
                    eb_args_label(&memory_group, "--token-cost", x), x->token_cost, least);
        return EB_EXIT_USAGE;
    }
    r->x.g.kind = (enum eb_sim_kind)x->load;
    if (x->print_trace) return print_trace(r);
    int code = check_files(x);
    if (code == EB_EXIT_OK) code = read_budgets(r);
    if (code == EB_EXIT_OK) code = read_policies(r);
    if (code == EB_EXIT_OK) code = read_keep(r);
    if (code == EB_EXIT_OK) code = choose_shape(r);
    if (code == EB_EXIT_OK) code = read_trace(r);
    if (code != EB_EXIT_OK) return code;
    r->table.keep = r->keep_text;
    r->table.interval = r->keep & EB_KEEP_INTERVAL ? (uint32_t)x->interval : 0;
    r->set.options.keep = r->keep;
    r->set.options.interval = (uint32_t)x->interval;
    r->set.options.token_cost = r->table.token_cost = x->token_cost;
    r->set.options.depth_cost = r->table.depth_cost = x->depth_cost;
    r->set.n_chunk = x->o.n_chunk ? (uint32_t)x->o.n_chunk : USUAL_CHUNK;
    r->set.n_ctx = (uint32_t)x->o.n_ctx;
    r->set.cancellable = x->cancellable;
    code = simulate(r);
    return code == EB_EXIT_OK ? show(r) : code;
}

int eb_cmd_cache_sim(int argc, char **argv) {
    const struct eb_arg_group groups[] = {
        memory_group,
        shape_group,
        {"Loads", load_args, sizeof load_args / sizeof *load_args},
        {"Output", output_args, sizeof output_args / sizeof *output_args}};
    struct run r = {.x = {.state_dtype = EBRO_F32,
                          .load = -1,
                          .interval = USUAL_INTERVAL,
                          .token_cost = 1000.0,
                          .depth_cost = 0.1,
                          .g = {.n_requests = 1000,
                                .n_sessions = 8,
                                .n_turns = 10,
                                .system = 1500,
                                .user = 700,
                                .reply = 200,
                                .seed = 1}}};
    int code = eb_command_options("cache-sim", usage, groups, sizeof groups / sizeof *groups, argc,
                                  argv, &r.x.o);
    if (code >= 0) return code;
    code = run(&r);
    free(r.table.rows);
    eb_sim_trace_free(&r.trace);
    return code;
}
