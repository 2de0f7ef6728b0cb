/* common.c: see common.h. The demo model that is used without -m is linked into the program by
 * model/demo/demo.S. */
#include "common.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "modules.h"

extern const unsigned char ebro_demo_config[], ebro_demo_generation_config[],
    ebro_demo_tokenizer_config[], ebro_demo_tiktoken[], ebro_demo_weights[], ebro_demo_golden[];
extern const uint64_t ebro_demo_config_bytes, ebro_demo_generation_config_bytes,
    ebro_demo_tokenizer_config_bytes, ebro_demo_tiktoken_bytes, ebro_demo_weights_bytes,
    ebro_demo_golden_bytes;

/* ---- options ---------------------------------------------------------------------------- */

static const struct eb_choice cache_dtypes[] = {
    {"f32", EBRO_F32}, {"f16", EBRO_F16}, {"bf16", EBRO_BF16}, {NULL, 0}};
static const struct eb_choice mla_forms[] = {{"auto", EBRO_MLA_AUTO},
                                             {"expanded", EBRO_MLA_EXPANDED},
                                             {"absorbed", EBRO_MLA_ABSORBED},
                                             {NULL, 0}};

static const struct eb_arg model_args[] = {
    {.name = "-m",
     .alias = "--model",
     .env = "EBRO_MODEL",
     .meta = "MODEL",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct eb_options, model),
     .help = "folder in the Hugging Face layout (config.json,\n"
             "*.safetensors, tiktoken.model, ...); without it the\n"
             "small demo model inside the program is used"},
    {.name = "-dev",
     .alias = "--device",
     .env = "EBRO_DEVICE",
     .meta = "DEV",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct eb_options, device),
     .help = "name or id of a device, see `ebro devices`; default:\nthe best one present"},
    {.name = "-t",
     .alias = "--threads",
     .env = "EBRO_THREADS",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .offset = offsetof(struct eb_options, n_threads),
     .min = 0,
     .max = 256,
     .help = "threads that the CPU computes with; 0: one for each\ncore (default)"},
    {.name = "-c",
     .alias = "--ctx-size",
     .env = "EBRO_CTX",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 1u << 30,
     .offset = offsetof(struct eb_options, n_ctx),
     .help = "tokens that prompt and answer can hold together;\n"
             "default: the model's maximum, at most 8192"},
    {.name = "-ub",
     .alias = "--ubatch-size",
     .env = "EBRO_UBATCH",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 1u << 20,
     .offset = offsetof(struct eb_options, n_chunk),
     .help = "tokens of the prompt per step; default: 512"},
    {.name = "-ctk",
     .alias = "--cache-type-k",
     .env = "EBRO_CTK",
     .meta = "TYPE",
     .kind = EB_ARG_CHOICE,
     .choices = cache_dtypes,
     .offset = offsetof(struct eb_options, cache_dtype),
     .help = "latent cache: f32, f16 or bf16; default: f32 on the\nCPU, bf16 elsewhere"},
    {.name = "--mla",
     .env = "EBRO_MLA",
     .meta = "FORM",
     .kind = EB_ARG_CHOICE,
     .choices = mla_forms,
     .offset = offsetof(struct eb_options, mla_form),
     .help = "attention over the latent cache while the prompt is\n"
             "read: auto, expanded or absorbed; default: auto"},
    {.name = "--strict",
     .env = "EBRO_STRICT",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct eb_options, strict),
     .help = "the same bytes however a prompt is cut into steps;\nslower for prompts"},
};
const struct eb_arg_group eb_model_args = {"Model and device", model_args,
                                           sizeof model_args / sizeof *model_args};

static const struct eb_choice keeps[] = {{"all", 0},
                                         {"ends", EBRO_KEEP_PROMPT_END | EBRO_KEEP_TURN_END},
                                         {"none", EBRO_KEEP_NONE},
                                         {NULL, 0}};
static const struct eb_choice evictions[] = {
    {"lru", EBRO_EVICT_LRU}, {"cost", EBRO_EVICT_COST}, {NULL, 0}};

static const struct eb_arg reuse_args[] = {
    {.name = "--memory",
     .env = "EBRO_MEMORY",
     .meta = "MIB",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 1u << 30,
     .offset = offsetof(struct eb_options, memory_mib),
     .help = "budget of latent cache, states and snapshots together;\n"
             "default: full contexts, once more for what is kept,\n"
             "and eight states more"},
    {.name = "--host-memory",
     .env = "EBRO_HOST_MEMORY",
     .meta = "MIB",
     .kind = EB_ARG_UINT,
     .max = 1u << 30,
     .offset = offsetof(struct eb_options, host_mib),
     .help = "memory of the host for copies of snapshots that the\n"
             "budget has no room for; default: 0, none"},
    {.name = "--keep",
     .env = "EBRO_KEEP",
     .meta = "WHAT",
     .kind = EB_ARG_CHOICE,
     .choices = keeps,
     .offset = offsetof(struct eb_options, keep),
     .from = offsetof(struct eb_options, keep_from),
     .help = "snapshots for later prompts: ends (of prompts and\n"
             "turns), all (also every N tokens, and where a prompt\n"
             "leaves an earlier one), none; default: all"},
    {.name = "--keep-interval",
     .env = "EBRO_KEEP_INTERVAL",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 1u << 30,
     .offset = offsetof(struct eb_options, keep_interval),
     .help = "tokens between them with --keep all; default: 4096"},
    {.name = "--evict",
     .env = "EBRO_EVICT",
     .meta = "POLICY",
     .kind = EB_ARG_CHOICE,
     .choices = evictions,
     .offset = offsetof(struct eb_options, evict),
     .help = "what goes first when memory is short: lru, what was\n"
             "not used for longest, or cost, what is cheapest to\n"
             "compute again for its size, going by what steps took\n"
             "so far; default: lru"},
};
const struct eb_arg_group eb_reuse_args = {"Memory and reuse", reuse_args,
                                           sizeof reuse_args / sizeof *reuse_args};

static const struct eb_arg trust_args[] = {
    {.name = "--avoid",
     .env = "EBRO_AVOID",
     .meta = "NAMES",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct eb_options, avoid),
     .help = "variants that the device must do without, by the names\n"
             "in `ebro check --json`, with blanks between them"},
    {.name = "--no-selftest",
     .env = "EBRO_NO_SELFTEST",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct eb_options, no_selftest),
     .help = "do not try the device before it is used; else a part\n"
             "of `ebro check` runs at the first start, and variants\n"
             "that are wrong are avoided from then on"},
};
const struct eb_arg_group eb_trust_args = {"Right answers", trust_args,
                                           sizeof trust_args / sizeof *trust_args};

static const struct eb_arg log_args[] = {
    {.name = "--log",
     .env = "EBRO_LOG",
     .meta = "LEVEL",
     .kind = EB_ARG_UINT,
     .max = 5,
     .offset = offsetof(struct eb_options, log),
     .help = "messages on stderr: 0 none, 1 errors, 2 warnings,\n"
             "3 information, 4 debug, 5 trace; default: 2"},
    {.name = "--cache-dir",
     .env = "EBRO_CACHE_DIR",
     .meta = "DIR",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct eb_options, cache_dir),
     .help = "folder for compiled kernels of graphics devices and\n"
             "results of self-tests; none: nothing is kept; default:\n"
             "ebro in $XDG_CACHE_HOME or ~/.cache"},
};
const struct eb_arg_group eb_log_args = {"Messages and caches", log_args,
                                         sizeof log_args / sizeof *log_args};

void eb_options_init(struct eb_options *o) {
    *o = (struct eb_options){.cache_dtype = -1,
                             .mla_form = EBRO_MLA_AUTO,
                             .keep = EBRO_KEEP_NONE,
                             .log = EBRO_LOG_WARN,
                             .n_predict = 256,
                             .top_p = 1.0,
                             .repeat_penalty = 1.0,
                             .repeat_last_n = 64,
                             .n_last = 1};
}

int eb_command_options(const char *command, const char *usage, const struct eb_arg_group *groups,
                       size_t n_groups, int argc, char **argv, struct eb_options *o) {
    char text[512];
    eb_options_init(o);
    switch (eb_args_parse(groups, n_groups, argc, argv, o, text, sizeof text)) {
        case EB_ARGS_OK:
            return -1;
        case EB_ARGS_HELP:
            fputs(usage, stdout);
            eb_args_print(stdout, groups, n_groups);
            puts(
                "\nIn brackets: the environment variable that sets the same; the option wins.\n"
                "Exit codes: `ebro --help` lists them.");
            return eb_flush_stdout() ? EB_EXIT_OK : EB_EXIT_USAGE;
        case EB_ARGS_WRONG:
            break;
    }
    eb_complain("%s (`ebro %s --help` lists the options)", text, command);
    return EB_EXIT_USAGE;
}

/* ---- messages --------------------------------------------------------------------------- */

void eb_complain(const char *fmt, ...) {
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = ' ';
    fprintf(stderr, "ebro: %s\n", text);
}

int eb_exit_code(int32_t status) {
    switch (status) {
        case EBRO_OK:
            return EB_EXIT_OK;
        case EBRO_INVALID:
        case EBRO_IO:
            return EB_EXIT_USAGE;
        case EBRO_UNSUPPORTED:
        case EBRO_FORMAT:
            return EB_EXIT_MODEL;
        case EBRO_NO_DEVICE:
            return EB_EXIT_DEVICE;
        case EBRO_NOMEM_HOST:
        case EBRO_NOMEM_DEVICE:
            return EB_EXIT_MEMORY;
        case EBRO_DEVICE_LOST:
        case EBRO_TIMEOUT:
            return EB_EXIT_LOST;
        case EBRO_NUMERIC:
            return EB_EXIT_NUMERIC;
        case EBRO_CANCELLED:
            return EB_EXIT_INTERRUPTED;
        default:
            return EB_EXIT_INTERNAL;
    }
}

int eb_complain_error(const ebro_error *err) {
    eb_complain("%s", err->text[0] ? err->text : ebro_status_name(err->status));
    return eb_exit_code(err->status);
}

int eb_complain_device(const ebro_error *err) {
    int code = eb_complain_error(err);
    return err->status == EBRO_UNSUPPORTED ? EB_EXIT_DEVICE : code;
}

bool eb_flush_stdout(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return true;
    if (errno != EPIPE) eb_complain("cannot write to standard output: %s", strerror(errno));
    return false;
}

void eb_log_to_stderr(void *user, int32_t level, const char *text) {
    static const char *const names[] = {"", "error", "warning", "info", "debug", "trace"};
    (void)user;
    fprintf(stderr, "ebro: [%s] %s\n", level >= 1 && level <= 5 ? names[level] : "log", text);
}

/* ---- session ---------------------------------------------------------------------------- */

int32_t eb_runtime_open(const struct eb_options *o, ebro_runtime **out, ebro_error *err) {
    char modules[4096], cache[4096];
    ebro_runtime_options options = {.size = sizeof options};
    if (eb_modules_folder(modules, sizeof modules)) options.module_dir = modules;
    if (eb_cache_folder(o->cache_dir, cache, sizeof cache)) options.cache_dir = cache;
    if (o->log > 0) {
        options.log = eb_log_to_stderr;
        options.log_level = (int32_t)o->log;
    }
    return ebro_runtime_open(&options, out, err);
}

int32_t eb_device_open_for(const struct eb_options *o, ebro_runtime *runtime, ebro_device **out,
                           ebro_error *err) {
    const ebro_device_settings settings = {
        .size = sizeof settings, .n_threads = (uint32_t)o->n_threads, .avoid = o->avoid};
    return o->no_selftest ? ebro_device_open_with(runtime, o->device, &settings, out, err)
                          : ebro_device_open_tested(runtime, o->device, &settings, out, err);
}

/* The library's progress. Its bar is on only where a command waits for something long. */
static int32_t tell(void *user, const char *label, float fraction) {
    struct eb_session *s = user;
    if (s->interrupt && *s->interrupt) return 1;
    eb_bar_show(&s->bar, label, (double)fraction);
    return 0;
}

uint32_t eb_demo_files(ebro_file out[EB_DEMO_FILES]) {
    const ebro_file demo[EB_DEMO_FILES] = {
        {"config.json", ebro_demo_config, (size_t)ebro_demo_config_bytes},
        {"generation_config.json", ebro_demo_generation_config,
         (size_t)ebro_demo_generation_config_bytes},
        {"tokenizer_config.json", ebro_demo_tokenizer_config,
         (size_t)ebro_demo_tokenizer_config_bytes},
        {"tiktoken.model", ebro_demo_tiktoken, (size_t)ebro_demo_tiktoken_bytes},
        {"model.safetensors", ebro_demo_weights, (size_t)ebro_demo_weights_bytes},
    };
    memcpy(out, demo, sizeof demo);
    return EB_DEMO_FILES;
}

const void *eb_demo_golden(size_t *bytes) {
    *bytes = (size_t)ebro_demo_golden_bytes;
    return ebro_demo_golden;
}

static int32_t open_model(struct eb_session *s, const char *path, ebro_error *err) {
    ebro_file demo[EB_DEMO_FILES];
    ebro_model_options options = {
        .size = sizeof options, .path = path, .progress = tell, .progress_user = s};
    if (!path) {
        options.files = demo;
        options.n_files = eb_demo_files(demo);
    }
    eb_bar_start(&s->bar);
    int32_t st = ebro_model_open(s->runtime, &options, &s->model, err);
    eb_bar_end(&s->bar);
    return st;
}

static int find_model(struct eb_session *s, const struct eb_options *o) {
    ebro_error err = {0};
    if (open_model(s, o->model, &err) != EBRO_OK) {
        /* whatever is wrong with a path that was given as a model makes it no model */
        int code = eb_complain_error(&err);
        return code == EB_EXIT_USAGE ? EB_EXIT_MODEL : code;
    }
    ebro_model_get_info(s->model, &s->model_info);
    return EB_EXIT_OK;
}

bool eb_device_computes(const ebro_device_info *info) {
    return strcmp(info->backend, "null") != 0;
}

int eb_session_open_model_alone(struct eb_session *s, const struct eb_options *o) {
    ebro_error err = {0};
    if (eb_runtime_open(o, &s->runtime, &err) != EBRO_OK) return eb_complain_error(&err);
    return find_model(s, o);
}

int eb_session_open_model(struct eb_session *s, const struct eb_options *o) {
    ebro_error err = {0};
    if (eb_runtime_open(o, &s->runtime, &err) != EBRO_OK) return eb_complain_error(&err);
    if (eb_device_open_for(o, s->runtime, &s->device, &err) != EBRO_OK)
        return eb_complain_device(&err);
    ebro_device_get_info(s->device, &s->device_info);
    if (!eb_device_computes(&s->device_info)) {
        eb_complain(
            "device %s computes nothing, it is there for those who write backends "
            "(`ebro devices` lists the others)",
            s->device_info.name);
        return EB_EXIT_DEVICE;
    }
    return find_model(s, o);
}

int eb_session_complain(const struct eb_session *s, const ebro_error *err) {
    if (err->status != EBRO_NOMEM_DEVICE || s->memory_mib == 0) return eb_complain_device(err);
    eb_complain("--memory %llu (MiB) is too little: %s", (unsigned long long)s->memory_mib,
                err->text);
    return EB_EXIT_MEMORY;
}

int eb_session_open_engine(struct eb_session *s, const struct eb_options *o) {
    enum { DEFAULT_CTX = 8192 };
    ebro_error err = {0};
    s->memory_mib = o->memory_mib;
    /* The engine's own defaults, spelled out: the summary names what is used. */
    s->cache_dtype = o->cache_dtype;
    if (s->cache_dtype < 0)
        s->cache_dtype = strcmp(s->device_info.backend, "cpu") == 0 ? EBRO_F32 : EBRO_BF16;
    uint32_t max = s->model_info.max_context;
    s->n_ctx = o->n_ctx ? (uint32_t)o->n_ctx : max && max < DEFAULT_CTX ? max : DEFAULT_CTX;
    ebro_engine_options options = {.size = sizeof options,
                                   .n_ctx = s->n_ctx,
                                   .n_chunk = (uint32_t)o->n_chunk,
                                   .cache_dtype = s->cache_dtype,
                                   .prefill_form = o->mla_form,
                                   .progress = tell,
                                   .progress_user = s,
                                   .strict = o->strict,
                                   .expert_choices = o->save_experts || o->experts,
                                   .keep = o->keep,
                                   .memory_bytes = o->memory_mib << 20,
                                   .host_bytes = o->host_mib << 20,
                                   .keep_interval = (uint32_t)o->keep_interval,
                                   .evict = o->evict};
    eb_bar_start(&s->bar);
    int32_t st = ebro_engine_open(s->model, s->device, &options, &s->engine, &err);
    eb_bar_end(&s->bar);
    if (st != EBRO_OK) return eb_session_complain(s, &err);
    if (ebro_seq_create(s->engine, &s->seq, &err) != EBRO_OK) return eb_session_complain(s, &err);
    return EB_EXIT_OK;
}

void eb_session_close(struct eb_session *s) {
    ebro_seq_destroy(&s->seq);
    ebro_engine_close(&s->engine);
    ebro_model_close(&s->model);
    ebro_device_close(&s->device);
    ebro_runtime_close(&s->runtime);
}

int eb_tokens_of_text(const ebro_model *model, const char *text, size_t bytes,
                      struct eb_tokens *out) {
    ebro_error err = {0};
    /* a token holds one byte at least */
    size_t capacity = bytes + 1;
    if (capacity > SIZE_MAX / sizeof *out->ids ||
        !(out->ids = malloc(capacity * sizeof *out->ids))) {
        eb_complain("out of memory for the tokens of a prompt of %zu bytes", bytes);
        return EB_EXIT_MEMORY;
    }
    out->n = 0;
    int32_t bos = ebro_token_bos(model);
    if (bos >= 0) out->ids[out->n++] = bos;
    size_t n = 0;
    if (ebro_tokenize(model, text, bytes, 0, out->ids + out->n, capacity - out->n, &n, &err) !=
        EBRO_OK)
        return eb_complain_error(&err);
    out->n += n;
    return EB_EXIT_OK;
}

int eb_tokens_of_chat(const ebro_model *model, const ebro_chat_message *messages, size_t n,
                      bool think, bool to_reply, struct eb_tokens *out) {
    const ebro_chat_options options = {
        .size = sizeof options, .thinking = think, .no_generation_prompt = !to_reply};
    ebro_error err = {0};
    size_t needed = 0, capacity = 256;
    for (size_t i = 0; i < n; i++) capacity += 16 + strlen(messages[i].content);
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

int eb_session_restart(struct eb_session *s) {
    ebro_error err = {0};
    ebro_seq_destroy(&s->seq);
    return ebro_seq_create(s->engine, &s->seq, &err) == EBRO_OK ? EB_EXIT_OK
                                                                : eb_session_complain(s, &err);
}

int eb_session_append(struct eb_session *s, const int32_t *ids, size_t n, uint32_t n_logits) {
    ebro_error err = {0};
    size_t held = (size_t)ebro_seq_length(s->seq) + ebro_seq_pending(s->seq);
    if (n > s->n_ctx - held) {
        uint32_t max = s->model_info.max_context;
        if (max > 0 && held + n > max)
            eb_complain("context full: %zu tokens do not fit into %u; the model was made for %u",
                        held + n, s->n_ctx, max);
        else
            eb_complain("context full: %zu tokens do not fit into %u; -c N gives room for N",
                        held + n, s->n_ctx);
        return EB_EXIT_USAGE;
    }
    return ebro_seq_append(s->seq, ids, n, n_logits, &err) == EBRO_OK
               ? EB_EXIT_OK
               : eb_session_complain(s, &err);
}

int eb_session_check_think(const struct eb_session *s, const struct eb_options *o) {
    if (!o->think || strcmp(s->model_info.architecture, "kimi-k3") == 0) return EB_EXIT_OK;
    eb_complain("--think: a %s model has no channel for thinking", s->model_info.architecture);
    return EB_EXIT_USAGE;
}

int eb_session_evaluate(struct eb_session *s, const volatile sig_atomic_t *interrupt) {
    int code = EB_EXIT_OK;
    /* a single token is no reason to look at the clock */
    if (ebro_seq_pending(s->seq) > 1) eb_bar_start(&s->bar);
    s->interrupt = interrupt;
    while (ebro_seq_pending(s->seq) > 0 && !(interrupt && *interrupt)) {
        ebro_error err = {0};
        int32_t st = ebro_engine_step(s->engine, &err);
        if (st == EBRO_OK || st == EBRO_CANCELLED) continue;
        eb_bar_end(&s->bar);
        code = eb_session_complain(s, &err);
        break;
    }
    s->interrupt = NULL;
    eb_bar_end(&s->bar);
    return code;
}

const char *eb_tokens_word(size_t n) {
    return n == 1 ? "token" : "tokens";
}

const char *eb_cache_dtype_name(int32_t dtype) {
    for (const struct eb_choice *c = cache_dtypes; c->name; c++)
        if (c->value == dtype) return c->name;
    return "?";
}

double eb_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
