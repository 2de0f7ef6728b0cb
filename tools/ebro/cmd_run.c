/* cmd_run.c: `ebro run`: continues a text or answers one chat message. What the tokens look like to
 * a reader is reply.h's business. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"
#include "reply.h"

static const char usage[] =
    "usage: ebro run [-m MODEL] [-p PROMPT] [--chat] [options]\n"
    "\n"
    "Continues a text, or with --chat answers one message, and writes what the model\n"
    "says to stdout as it is made, with a newline at its end. One line on stderr sums\n"
    "up: tokens and tokens per second of prompt and answer, device, cache type.\n"
    "\n"
    "Generation ends at the model's stop tokens (without --chat at [EOS] too), before\n"
    "a --stop text, after -n tokens, when the context is full, or at ctrl-C (it still sums up "
    "then).\n"
    "Control tokens are never shown. Of a Kimi K3 chat, the response goes to stdout\n"
    "and the thinking (--think) to stderr; names of channels are not shown.\n";

static const struct eb_arg prompt_args[] = {
    {.name = "-p",
     .alias = "--prompt",
     .env = "EBRO_PROMPT",
     .meta = "PROMPT",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct eb_options, prompt),
     .from = offsetof(struct eb_options, prompt_from),
     .help = "the text to continue, after [BOS], or the message to\n"
             "answer; names of control tokens in it are ordinary\n"
             "text. Without it the prompt is read from stdin, less\n"
             "one newline at its end, unless that is a terminal"},
    {.name = "--chat",
     .env = "EBRO_CHAT",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct eb_options, chat),
     .help = "the prompt is a user's message: use the model's chat\nformat"},
    {.name = "--system",
     .env = "EBRO_SYSTEM",
     .meta = "TEXT",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct eb_options, system),
     .from = offsetof(struct eb_options, system_from),
     .help = "a system message before it (with --chat)"},
    {.name = "--think",
     .env = "EBRO_THINK",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct eb_options, think),
     .from = offsetof(struct eb_options, think_from),
     .help = "let the model think first (with --chat, Kimi K3)"},
};
static const struct eb_arg generation_args[] = {
    {.name = "-n",
     .alias = "--predict",
     .env = "EBRO_N",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .max = 1u << 30,
     .offset = offsetof(struct eb_options, n_predict),
     .help = "tokens to generate at most; default: 256"},
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

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

/* The first ctrl-C ends generation after the token at hand, a second one ends the program. */
static void catch_interrupt(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    action.sa_flags = (int)SA_RESETHAND;
    sigaction(SIGINT, &action, NULL);
}

/* ---- prompt ----------------------------------------------------------------------------- */

struct text {
    char *s; /* NUL-terminated */
    size_t n;
};

static int read_stdin(struct text *out) {
    enum { LIMIT = 256 << 20 };
    size_t capacity = 1 << 16;
    out->n = 0;
    for (;;) {
        char *grown = realloc(out->s, capacity);
        if (!grown) {
            eb_complain("out of memory while reading the prompt from stdin");
            return EB_EXIT_MEMORY;
        }
        out->s = grown;
        out->n += fread(out->s + out->n, 1, capacity - 1 - out->n, stdin);
        if (out->n < capacity - 1) break;
        if (capacity >= LIMIT) {
            eb_complain("the prompt on stdin is longer than %d MiB", LIMIT >> 20);
            return EB_EXIT_USAGE;
        }
        capacity *= 2;
    }
    if (ferror(stdin)) {
        eb_complain("cannot read the prompt from stdin: %s", strerror(errno));
        return EB_EXIT_USAGE;
    }
    if (out->n > 0 && out->s[out->n - 1] == '\n') out->n--;
    out->s[out->n] = '\0';
    return EB_EXIT_OK;
}

static int find_prompt(const struct eb_options *o, struct text *out) {
    const char *wrong = NULL;
    if (!o->chat && o->system_from == EB_FROM_COMMAND_LINE)
        wrong = "--system needs --chat";
    else if (!o->chat && o->think && o->think_from == EB_FROM_COMMAND_LINE)
        wrong = "--think needs --chat";
    else if (!o->prompt && isatty(STDIN_FILENO))
        wrong = "no prompt: give -p PROMPT or pipe one to stdin";
    if (wrong) goto wrong;
    if (o->prompt) {
        out->n = strlen(o->prompt);
        if (!(out->s = malloc(out->n + 1))) {
            eb_complain("out of memory for the prompt");
            return EB_EXIT_MEMORY;
        }
        memcpy(out->s, o->prompt, out->n + 1);
    } else {
        int code = read_stdin(out);
        if (code != EB_EXIT_OK) return code;
    }
    if (out->n == 0)
        wrong = "the prompt is empty";
    else if (o->chat && strlen(out->s) != out->n)
        wrong = "the message on stdin holds a NUL byte";
    if (!wrong) return EB_EXIT_OK;
wrong:
    eb_complain("%s (`ebro run --help` says more)", wrong);
    return EB_EXIT_USAGE;
}

static int tokens_of_chat(const ebro_model *model, const struct eb_options *o, const char *message,
                          struct eb_tokens *out) {
    ebro_error err = {0};
    ebro_chat_message messages[2];
    size_t n = 0, needed = 0, capacity = strlen(message) + 256;
    if (o->system) {
        messages[n++] = (ebro_chat_message){.role = "system", .content = o->system};
        capacity += strlen(o->system);
    }
    messages[n++] = (ebro_chat_message){.role = "user", .content = message};
    const ebro_chat_options options = {.size = sizeof options, .thinking = o->think};
    /* a second round only where a format needs more than the room left above */
    for (;;) {
        int32_t *grown = realloc(out->ids, capacity * sizeof *grown);
        if (!grown) {
            eb_complain("out of memory for the tokens of the chat");
            return EB_EXIT_MEMORY;
        }
        out->ids = grown;
        int32_t status =
            ebro_chat_tokenize(model, messages, n, &options, out->ids, capacity, &needed, &err);
        if (status == EBRO_OK) break;
        if (status != EBRO_INVALID || needed <= capacity) return eb_complain_error(&err);
        capacity = needed;
    }
    out->n = needed;
    return EB_EXIT_OK;
}

/* ---- logit biases ----------------------------------------------------------------------- */

struct bias_list {
    ebro_logit_bias *v; /* free with free() */
    size_t n;
};

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

static int read_biases(const struct eb_arg_list *list, struct bias_list *out) {
    size_t capacity = list->n;
    for (size_t i = 0; i < list->n; i++)
        for (const char *p = list->items[i]; *p; p++) capacity += *p == ',';
    if (capacity == 0) return EB_EXIT_OK;
    if (!(out->v = calloc(capacity, sizeof *out->v))) {
        eb_complain("out of memory for %zu logit biases", capacity);
        return EB_EXIT_MEMORY;
    }
    for (size_t i = 0; i < list->n; i++) {
        const char *text = list->items[i];
        do {
            if (!read_bias(&text, &out->v[out->n++])) {
                eb_complain("--logit-bias: \"%s\" is not ID=V or a list ID=V,ID=V", list->items[i]);
                return EB_EXIT_USAGE;
            }
        } while (*text);
    }
    return EB_EXIT_OK;
}

/* ---- generation ------------------------------------------------------------------------- */

struct tally {
    size_t n_prompt, n_generated, n_steps; /* n_steps: evaluated one at a time */
    double prompt_seconds, step_seconds;
    const char *remark; /* why it ended, where that is worth a word */
};

static void print_summary(const struct eb_session *s, const struct tally *t) {
    fprintf(stderr, "prompt %zu tokens", t->n_prompt);
    if (t->prompt_seconds > 0)
        fprintf(stderr, " at %.1f tok/s", (double)t->n_prompt / t->prompt_seconds);
    fprintf(stderr, ", generated %zu tokens", t->n_generated);
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

static int generate(struct eb_session *s, const struct eb_options *o, const struct bias_list *b,
                    enum eb_reply_form form, struct tally *t) {
    const ebro_sampling sampling = {.size = sizeof sampling,
                                    .temperature = (float)o->temperature,
                                    .top_k = (uint32_t)o->top_k,
                                    .top_p = (float)o->top_p,
                                    .min_p = (float)o->min_p,
                                    .seed = o->seed,
                                    .repeat_penalty = (float)o->repeat_penalty,
                                    .presence_penalty = (float)o->presence_penalty,
                                    .frequency_penalty = (float)o->frequency_penalty,
                                    .penalty_last_n = (uint32_t)o->repeat_last_n,
                                    .biases = b->v,
                                    .n_biases = (uint32_t)b->n};
    ebro_error err = {0};
    struct eb_reply reply;
    bool over = false;
    int code = EB_EXIT_OK;
    double begin = eb_seconds();
    if (eb_reply_start(&reply, s->runtime, form, o->stop.items, o->stop.n, &err) != EBRO_OK) {
        eb_reply_free(&reply);
        return eb_complain_error(&err);
    }
    while (t->n_generated < o->n_predict && !interrupted) {
        int32_t id = -1, special = 0;
        size_t n = 0;
        if (ebro_seq_sample(s->seq, &sampling, &id, &err) != EBRO_OK) {
            code = eb_complain_error(&err);
            break;
        }
        const char *bytes = ebro_token_bytes(s->model, id, &n, &special);
        t->n_generated++;
        if (is_end(s, o->chat, id, bytes, n, special)) break;
        /* an id that is a hole of the vocabulary has no bytes */
        if (bytes && eb_reply_token(&reply, bytes, n, special, &over, &err) != EBRO_OK) {
            code = eb_complain_error(&err);
            break;
        }
        if (over) break;
        if (!eb_flush_stdout()) {
            code = EB_EXIT_USAGE;
            break;
        }
        if (t->n_generated == o->n_predict) break;
        if (ebro_seq_length(s->seq) >= s->n_ctx) {
            t->remark = "context full";
            break;
        }
        if (ebro_seq_append(s->seq, &id, 1, 0, &err) != EBRO_OK) {
            code = eb_complain_error(&err);
            break;
        }
        if ((code = eb_session_evaluate(s, NULL)) != EB_EXIT_OK) break;
        t->n_steps++;
    }
    t->step_seconds = eb_seconds() - begin;
    /* a wish that is refused before the first token leaves no output */
    if (code == EB_EXIT_OK || t->n_generated > 0) eb_reply_finish(&reply);
    eb_reply_free(&reply);
    if (code != EB_EXIT_OK)
        fflush(stdout); /* the first failure is the one to report */
    else if (!eb_flush_stdout())
        code = EB_EXIT_USAGE;
    return code;
}

static enum eb_reply_form reply_form(const struct eb_session *s, const struct eb_options *o) {
    if (!o->chat || strcmp(s->model_info.architecture, "kimi-k3") != 0) return EB_REPLY_PLAIN;
    return o->think ? EB_REPLY_K3_THINKING : EB_REPLY_K3;
}

static int answer(struct eb_session *s, const struct eb_options *o, const struct text *prompt) {
    struct eb_tokens tokens = {0};
    struct tally t = {0};
    struct bias_list biases = {0};
    ebro_error err = {0};
    int code = read_biases(&o->logit_bias, &biases);
    if (code != EB_EXIT_OK) goto out;
    code = o->chat ? tokens_of_chat(s->model, o, prompt->s, &tokens)
                   : eb_tokens_of_text(s->model, prompt->s, prompt->n, &tokens);
    if (code != EB_EXIT_OK) goto out;
    if ((code = eb_session_open_engine(s, o)) != EB_EXIT_OK) goto out;
    if (ebro_seq_append(s->seq, tokens.ids, tokens.n, 0, &err) != EBRO_OK) {
        code = eb_complain_error(&err);
        goto out;
    }
    catch_interrupt();
    double begin = eb_seconds();
    if ((code = eb_session_evaluate(s, &interrupted)) != EB_EXIT_OK) goto out;
    t.prompt_seconds = eb_seconds() - begin;
    t.n_prompt = ebro_seq_length(s->seq);
    if (!interrupted) code = generate(s, o, &biases, reply_form(s, o), &t);
    if (interrupted) {
        t.remark = "interrupted";
        if (code == EB_EXIT_OK) code = EB_EXIT_INTERRUPTED;
    }
    if (code == EB_EXIT_OK || code == EB_EXIT_INTERRUPTED) print_summary(s, &t);
out:
    free(biases.v);
    free(tokens.ids);
    return code;
}

int eb_cmd_run(int argc, char **argv) {
    const struct eb_arg_group groups[] = {
        {"Prompt", prompt_args, sizeof prompt_args / sizeof *prompt_args},
        {"Generation", generation_args, sizeof generation_args / sizeof *generation_args},
        eb_model_args,
        eb_log_args};
    struct eb_options o;
    int code =
        eb_command_options("run", usage, groups, sizeof groups / sizeof *groups, argc, argv, &o);
    if (code >= 0) return code;

    struct text prompt = {0};
    struct eb_session s = {0};
    if ((code = find_prompt(&o, &prompt)) != EB_EXIT_OK) goto out;
    if ((code = eb_session_open_model(&s, &o)) != EB_EXIT_OK) goto out;
    if (o.think && o.chat && strcmp(s.model_info.architecture, "kimi-k3") != 0) {
        eb_complain("--think: a %s model has no channel for thinking", s.model_info.architecture);
        code = EB_EXIT_USAGE;
        goto out;
    }
    code = answer(&s, &o, &prompt);
out:
    free(prompt.s);
    eb_session_close(&s);
    return code;
}
