/* generate.c: see generate.h. */
#include "generate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interrupt.h"

static const struct eb_arg generation_args[] = {
    {.name = "-n",
     .alias = "--predict",
     .env = "EBRO_N",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .max = 1u << 30,
     .offset = offsetof(struct eb_options, n_predict),
     .from = offsetof(struct eb_options, n_predict_from),
     .help = "tokens to generate at most; default: 256 (chat: until\nthe context is full)"},
    {.name = "--temp",
     .env = "EBRO_TEMP",
     .meta = "T",
     .kind = EB_ARG_REAL,
     .max = 100,
     .offset = offsetof(struct eb_options, temperature),
     .help = "temperature; default: 0, always the likeliest token"},
    {.name = "--top-k",
     .env = "EBRO_TOP_K",
     .meta = "K",
     .kind = EB_ARG_UINT,
     .max = 1u << 30,
     .offset = offsetof(struct eb_options, top_k),
     .help = "choose among the K likeliest; default: 0, off"},
    {.name = "--top-p",
     .env = "EBRO_TOP_P",
     .meta = "P",
     .kind = EB_ARG_REAL,
     .max = 1,
     .offset = offsetof(struct eb_options, top_p),
     .help = "choose among the likeliest that sum up to P; default:\n1, off (0 means off too)"},
    {.name = "--min-p",
     .env = "EBRO_MIN_P",
     .meta = "P",
     .kind = EB_ARG_REAL,
     .max = 1,
     .offset = offsetof(struct eb_options, min_p),
     .help = "drop those below P times the likeliest; default: 0,\noff"},
    {.name = "-s",
     .alias = "--seed",
     .env = "EBRO_SEED",
     .meta = "S",
     .kind = EB_ARG_UINT,
     .max = UINT64_MAX,
     .offset = offsetof(struct eb_options, seed),
     .help = "seed of the draws; default: 0"},
    {.name = "--stop",
     .env = "EBRO_STOP",
     .meta = "TEXT",
     .kind = EB_ARG_LIST,
     .offset = offsetof(struct eb_options, stop),
     .help = "end before this text; may be given several times"},
    {.name = "--repeat-penalty",
     .env = "EBRO_REPEAT_PENALTY",
     .meta = "R",
     .kind = EB_ARG_REAL,
     .max = 100,
     .offset = offsetof(struct eb_options, repeat_penalty),
     .help =
         "positive logits of recent tokens are divided by R,\nothers multiplied; default: 1, off"},
    {.name = "--presence-penalty",
     .env = "EBRO_PRESENCE_PENALTY",
     .meta = "P",
     .kind = EB_ARG_SIGNED,
     .max = 100,
     .offset = offsetof(struct eb_options, presence_penalty),
     .help = "subtracted from logits of recent tokens; default: 0"},
    {.name = "--frequency-penalty",
     .env = "EBRO_FREQUENCY_PENALTY",
     .meta = "F",
     .kind = EB_ARG_SIGNED,
     .max = 100,
     .offset = offsetof(struct eb_options, frequency_penalty),
     .help = "the same for each time they occurred; default: 0"},
    {.name = "--repeat-last-n",
     .env = "EBRO_REPEAT_LAST_N",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 1u << 30,
     .offset = offsetof(struct eb_options, repeat_last_n),
     .help = "tokens that count as recent, prompt included; more\nthan there are means all; "
             "default: 64"},
    {.name = "--logit-bias",
     .env = "EBRO_LOGIT_BIAS",
     .meta = "ID=V",
     .kind = EB_ARG_LIST,
     .offset = offsetof(struct eb_options, logit_bias),
     .help = "adds V to the logit of token ID; several times, or a\nlist ID=V,ID=V; -1e9 forbids a "
             "token"},
};

const struct eb_arg_group eb_generation_args = {"Generation", generation_args,
                                                sizeof generation_args / sizeof *generation_args};

/* ---- logit biases ----------------------------------------------------------------------- */

/* One "ID=V" at *text; steps over it and a comma behind it. */
static bool read_bias(const char **text, ebro_logit_bias *out) {
    char *end = NULL;
    const char *s = *text;
    if (*s < '0' || *s > '9') return false;
    errno = 0;
    long id = strtol(s, &end, 10);
    if (errno != 0 || *end != '=' || id > INT32_MAX) return false;
    s = end + 1;
    /* strtof also takes blanks, hexadecimal, "inf" and "nan" */
    size_t n = strspn(s, "0123456789.eE+-");
    out->id = (int32_t)id;
    out->bias = strtof(s, &end);
    if (n == 0 || end != s + n || (*end != ',' && *end != '\0')) return false;
    if (*end == ',' && end[1] == '\0') return false;
    *text = *end == ',' ? end + 1 : end;
    return true;
}

static int read_biases(const struct eb_options *o, struct eb_generator *out) {
    const struct eb_arg_list *list = &o->logit_bias;
    size_t capacity = list->n;
    for (size_t i = 0; i < list->n; i++)
        for (const char *p = list->items[i]; *p; p++) capacity += *p == ',';
    if (capacity == 0) return EB_EXIT_OK;
    if (!(out->biases = calloc(capacity, sizeof *out->biases))) {
        eb_complain("out of memory for %zu logit biases", capacity);
        return EB_EXIT_MEMORY;
    }
    for (size_t i = 0; i < list->n; i++) {
        const char *text = list->items[i];
        do {
            if (!read_bias(&text, &out->biases[out->n_biases++])) {
                /* from the mistake on: the list may be long */
                eb_complain("%s: \"%.60s\" is not ID=V or a list ID=V,ID=V",
                            eb_args_label(&eb_generation_args, "--logit-bias", o), text);
                return EB_EXIT_USAGE;
            }
        } while (*text);
    }
    return EB_EXIT_OK;
}

int eb_generator_init(struct eb_generator *g, const struct eb_options *o) {
    *g = (struct eb_generator){.chat = o->chat, .n_predict = o->n_predict};
    for (size_t i = 0; i < o->stop.n; i++) {
        if (*o->stop.items[i]) continue;
        eb_complain("--stop: a text is needed, one is empty");
        return EB_EXIT_USAGE;
    }
    int code = read_biases(o, g);
    g->sampling = (ebro_sampling){.size = sizeof g->sampling,
                                  .temperature = (float)o->temperature,
                                  .top_k = (uint32_t)o->top_k,
                                  .top_p = (float)o->top_p,
                                  .min_p = (float)o->min_p,
                                  .seed = o->seed,
                                  .repeat_penalty = (float)o->repeat_penalty,
                                  .presence_penalty = (float)o->presence_penalty,
                                  .frequency_penalty = (float)o->frequency_penalty,
                                  .penalty_last_n = (uint32_t)o->repeat_last_n,
                                  .biases = g->biases,
                                  .n_biases = (uint32_t)g->n_biases};
    return code;
}

void eb_generator_free(struct eb_generator *g) {
    free(g->biases);
    *g = (struct eb_generator){0};
}

/* ---- generation ------------------------------------------------------------------------- */

void eb_summary_print(const struct eb_session *s, const struct eb_tally *t) {
    fprintf(stderr, "prompt %zu %s", t->n_prompt, eb_tokens_word(t->n_prompt));
    if (t->prompt_seconds > 0)
        fprintf(stderr, " at %.1f tok/s", (double)t->n_prompt / t->prompt_seconds);
    fprintf(stderr, ", generated %zu %s", t->n_generated, eb_tokens_word(t->n_generated));
    if (t->n_steps > 0 && t->step_seconds > 0)
        fprintf(stderr, " at %.1f tok/s", (double)t->n_steps / t->step_seconds);
    fprintf(stderr, ", %s, cache %s%s%s\n", s->device_info.name,
            eb_cache_dtype_name(s->cache_dtype), t->remark ? ", " : "", t->remark ? t->remark : "");
}

static bool is_end(const struct eb_session *s, bool chat, int32_t id, const char *bytes, size_t n,
                   bool special) {
    static const char eos[] = "[EOS]";
    if (ebro_token_is_stop(s->model, id)) return true;
    /* models whose stop token ends a turn still end a plain text with [EOS] */
    return !chat && special && n == sizeof eos - 1 && memcmp(bytes, eos, n) == 0;
}

static bool remember(struct eb_tally *t, int32_t id) {
    if (t->made.n == t->made_capacity) {
        size_t capacity = t->made_capacity ? 2 * t->made_capacity : 256;
        int32_t *grown = realloc(t->made.ids, capacity * sizeof *grown);
        if (!grown) {
            eb_complain("out of memory for %zu generated tokens", capacity);
            return false;
        }
        t->made.ids = grown;
        t->made_capacity = capacity;
    }
    t->made.ids[t->made.n++] = id;
    return true;
}

static const char full[] = "context full (-c sets its size)";

static bool is_full(const struct eb_session *s) {
    return ebro_seq_length(s->seq) + ebro_seq_pending(s->seq) >= s->n_ctx;
}

/* Queues a token that was shown. */
static int take(struct eb_session *s, struct eb_tally *t, int32_t id) {
    ebro_error err = {0};
    if (!remember(t, id)) return EB_EXIT_MEMORY;
    if (ebro_seq_append(s->seq, &id, 1, 0, &err) != EBRO_OK) {
        t->made.n--;
        return eb_session_complain(s, &err);
    }
    t->last = -1;
    return EB_EXIT_OK;
}

/* Samples a token and shows it. *over: the reply ends before it, or with it. */
static int show(struct eb_session *s, const struct eb_generator *g, struct eb_reply *reply,
                struct eb_tally *t, bool *over) {
    ebro_error err = {0};
    int32_t special = 0;
    size_t n = 0;
    if (ebro_seq_sample(s->seq, &g->sampling, &t->last, &err) != EBRO_OK)
        return eb_session_complain(s, &err);
    const char *bytes = ebro_token_bytes(s->model, t->last, &n, &special);
    t->n_generated++;
    *over = is_end(s, g->chat, t->last, bytes, n, special);
    /* an id that is a hole of the vocabulary has no bytes */
    if (!*over && bytes && eb_reply_token(reply, bytes, n, special, over, &err) != EBRO_OK)
        return eb_complain_error(&err);
    return *over || eb_flush_stdout() ? EB_EXIT_OK : EB_EXIT_USAGE;
}

/* Every few tokens, before one of which all is shown: the reply may have to be cut behind it, not
 * before. A snapshot that is refused costs reading more again, and nothing else. */
static void mark(struct eb_session *s, const struct eb_reply *reply, uint32_t *marked) {
    enum { MARK_EVERY = 16 };
    uint32_t at = ebro_seq_length(s->seq);
    if (at < *marked + MARK_EVERY || !eb_reply_shows_all(reply)) return;
    if (ebro_seq_keep(s->seq, at, NULL) == EBRO_OK) *marked = at;
}

/* Until the reply is over. A token that no other one can follow is not evaluated. */
static int generate(struct eb_session *s, const struct eb_generator *g, struct eb_reply *reply,
                    struct eb_tally *t) {
    uint32_t marked = ebro_seq_length(s->seq);
    while (t->n_generated < g->n_predict) {
        bool over = false;
        int code = show(s, g, reply, t, &over);
        if (code != EB_EXIT_OK || over) return code;
        if (g->marks) mark(s, reply, &marked);
        if ((code = take(s, t, t->last)) != EB_EXIT_OK) return code;
        if (t->n_generated == g->n_predict || eb_interrupted) break;
        if (is_full(s)) {
            t->remark = full;
            break;
        }
        code = eb_session_evaluate(s, &eb_interrupted);
        if (code != EB_EXIT_OK || ebro_seq_pending(s->seq) > 0) return code;
        t->n_steps++;
    }
    return EB_EXIT_OK;
}

int eb_generate(struct eb_session *s, const struct eb_generator *g, struct eb_reply *reply,
                struct eb_tally *t) {
    int code = EB_EXIT_OK;
    double begin = eb_seconds();
    t->last = -1;
    if (is_full(s))
        t->remark = full;
    else
        code = generate(s, g, reply, t);
    t->step_seconds = eb_seconds() - begin;
    if (eb_interrupted) t->remark = "interrupted";
    return code;
}
