/* cmd_serve.c: `ebro serve`: opens the model, starts the scheduler and the server around it, and
 * ends them in order. What is answered is tools/serve's business. */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common.h"
#include "tools/serve/http.h"
#include "tools/serve/routes.h"

static const char usage[] =
    "usage: ebro serve [-m MODEL] [--port N] [options]\n"
    "\n"
    "Answers requests in OpenAI's form, and shows a page to chat with, at\n"
    "http://127.0.0.1:8080: for programs on this machine, unless --host says\n"
    "otherwise. tools/serve/API.md (installed beside README.md) describes every\n"
    "request.\n"
    "\n"
    "One line on stdout says where it listens, once it does. It ends at ctrl-C or\n"
    "SIGTERM: new requests are refused then, and those that run have --drain-seconds\n"
    "to end, unless a second signal comes. --log 3 writes a line for each request,\n"
    "without what was asked and answered.\n"
    "\n"
    "--memory is by default what --parallel full contexts take, once more for what is\n"
    "kept, and eight states.\n";

struct serve_options {
    struct eb_options o;
    const char *host;
    uint64_t port, parallel, queue, max_body, connections, read_seconds, drain_seconds;
    struct eb_arg_list keys, hosts, aliases;
    bool log_prompts;
    uint64_t max_tokens;
};

#define AT(member) offsetof(struct serve_options, member)
#define COMMON(member) (offsetof(struct serve_options, o) + offsetof(struct eb_options, member))

static const struct eb_arg server_args[] = {
    {.name = "--host",
     .env = "EBRO_HOST",
     .meta = "ADDRESS",
     .kind = EB_ARG_TEXT,
     .offset = AT(host),
     .help = "address or name to listen on; 0.0.0.0 and :: are all\nof this machine; default: "
             "127.0.0.1"},
    {.name = "--port",
     .env = "EBRO_PORT",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .max = 65535,
     .offset = AT(port),
     .help = "port; 0: any that is free; default: 8080"},
    {.name = "--api-key",
     .env = "EBRO_API_KEY",
     .meta = "KEY",
     .kind = EB_ARG_LIST,
     .offset = AT(keys),
     .help = "a key that clients must send; several times for\nseveral keys. Other users of the "
             "machine may see the\noptions of a program, but not its environment"},
    {.name = "--allow-host",
     .env = "EBRO_ALLOW_HOST",
     .meta = "NAME",
     .kind = EB_ARG_LIST,
     .offset = AT(hosts),
     .help = "a further name that clients may call this server by;\nmay be given several times"},
    {.name = "--alias",
     .env = "EBRO_ALIAS",
     .meta = "NAME",
     .kind = EB_ARG_LIST,
     .offset = AT(aliases),
     .help = "the model's id for clients; several times for\nfurther names; default: its folder's "
             "name"},
    {.name = "--parallel",
     .env = "EBRO_PARALLEL",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 1024,
     .offset = AT(parallel),
     .help = "replies that are written at once; default: 8"},
    {.name = "--queue",
     .env = "EBRO_QUEUE",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 65536,
     .offset = AT(queue),
     .help = "replies that may wait; more are refused (429);\ndefault: 64"},
    {.name = "--connections",
     .env = "EBRO_CONNECTIONS",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 8,
     .max = 65536,
     .offset = AT(connections),
     .help = "connections at once; default: 256"},
    {.name = "--max-body",
     .env = "EBRO_MAX_BODY",
     .meta = "MIB",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 64,
     .offset = AT(max_body),
     .help = "of a request; default: 8"},
    {.name = "--read-seconds",
     .env = "EBRO_READ_SECONDS",
     .meta = "S",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 3600,
     .offset = AT(read_seconds),
     .help =
         "for a request to arrive, and for a client that does\nnot take its answer; default: 30"},
    {.name = "--drain-seconds",
     .env = "EBRO_DRAIN_SECONDS",
     .meta = "S",
     .kind = EB_ARG_UINT,
     .max = 86400,
     .offset = AT(drain_seconds),
     .help = "for what runs when it is asked to end; default: 30"},
    {.name = "--log-prompts",
     .env = "EBRO_LOG_PROMPTS",
     .kind = EB_ARG_FLAG,
     .offset = AT(log_prompts),
     .help = "write what is asked and answered to stderr"},
};

static const struct eb_arg reply_args[] = {
    {.name = "-n",
     .alias = "--predict",
     .env = "EBRO_N",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .max = INT32_MAX,
     .offset = AT(max_tokens),
     .help = "tokens of a reply at most; default: 0, until the\ncontext is full"},
    {.name = "--temp",
     .env = "EBRO_TEMP",
     .meta = "T",
     .kind = EB_ARG_REAL,
     .max = 2,
     .offset = COMMON(temperature),
     .help = "temperature; default: 0, always the likeliest token\n(OpenAI's own default is 1)"},
    {.name = "--think",
     .env = "EBRO_THINK",
     .kind = EB_ARG_FLAG,
     .offset = COMMON(think),
     .help = "let the model think first (Kimi K3)"},
};

/* ---- messages ----------------------------------------------------------------------------- */

struct sink {
    uint64_t level;
};

static void log_line(void *user, int32_t level, const char *text) {
    static const char *const names[] = {"text", "error", "warning", "info", "debug", "trace"};
    const struct sink *sink = user;
    if (level > 0 && (uint64_t)level > sink->level) return;
    const size_t size = strlen(text) + 1;
    char line[512], *copy = size <= sizeof line ? line : malloc(size);
    if (!copy) return;
    memcpy(copy, text, size);
    /* a path that a client made up must not write lines of its own */
    for (char *p = copy; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = ' ';
    fprintf(stderr, "ebro: [%s] %s\n", names[level >= 0 && level <= 5 ? level : 5], copy);
    if (copy != line) free(copy);
}

/* ---- signals ------------------------------------------------------------------------------ */

static int signal_pipe[2] = {-1, -1};

static void on_signal(int number) {
    int cause = errno;
    (void)number;
    /* full: somebody has signalled thousands of times, which is heard all the same */
    if (write(signal_pipe[1], "", 1) < 0) errno = cause;
    errno = cause;
}

static bool catch_signals(void) {
    struct sigaction action;
    if (pipe(signal_pipe) != 0) return false;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    return sigaction(SIGINT, &action, NULL) == 0 && sigaction(SIGTERM, &action, NULL) == 0;
}

/* A signal came within so many milliseconds (-1: however long it takes). */
static bool wait_signal(int milliseconds) {
    struct pollfd p = {.fd = signal_pipe[0], .events = POLLIN};
    char byte;
    int n = poll(&p, 1, milliseconds);
    if (n < 0 && errno == EINTR && milliseconds < 0) return wait_signal(milliseconds);
    return n > 0 && read(signal_pipe[0], &byte, 1) == 1;
}

/* ---- what is served ----------------------------------------------------------------------- */

struct server {
    const struct serve_options *options;
    struct eb_session session;
    struct sink sink;
    char name[256]; /* of the model, from its folder */
    const char *names[EB_ARG_LIST_MAX + 1];
    uint64_t seeds; /* a counter: what is made of it looks random */
    struct eb_traffic traffic;
    struct eb_service service;
    struct eb_http *http;
};

/* A number that no other call gives: the finalizer of splitmix64 over a counter. */
static uint64_t next_seed(void *user) {
    struct server *s = user;
    static _Atomic uint64_t n;
    uint64_t x = s->seeds + 0x9e3779b97f4a7c15u * (atomic_fetch_add(&n, 1) + 1);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static bool is_text(const char *name) {
    json_t *text = name[0] ? json_string(name) : NULL; /* which takes UTF-8 alone */
    json_decref(text);
    return text != NULL;
}

static void name_model(struct server *s, const char *path) {
    size_t end = path ? strlen(path) : 0, begin;
    while (end > 0 && path[end - 1] == '/') end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/'; begin--) continue;
    size_t n = end - begin;
    if (!path)
        snprintf(s->name, sizeof s->name, "ebro-demo");
    else if (n == 0 || n >= sizeof s->name || path[begin] == '.')
        snprintf(s->name, sizeof s->name, "model");
    else
        snprintf(s->name, sizeof s->name, "%.*s", (int)n, path + begin);
    if (!is_text(s->name)) snprintf(s->name, sizeof s->name, "model");
}

/* The id first, then other names; the folder's is one of them. */
static void list_names(struct server *s, struct eb_offer *offer) {
    const struct eb_arg_list *aliases = &s->options->aliases;
    size_t n = 0;
    name_model(s, s->options->o.model);
    for (size_t i = 0; i < aliases->n; i++) s->names[n++] = aliases->items[i];
    s->names[n++] = s->name;
    offer->names = s->names;
    offer->n_names = n;
}

static void fill_service(struct server *s) {
    const struct serve_options *o = s->options;
    struct eb_service *v = &s->service;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    s->seeds = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + ((uint64_t)getpid() << 40);
    list_names(s, &v->offer);
    v->offer.model = s->session.model;
    v->offer.n_ctx = s->session.n_ctx;
    v->offer.n_vocab = s->session.model_info.vocab;
    v->offer.thinks = strcmp(s->session.model_info.architecture, "kimi-k3") == 0;
    v->offer.temperature = o->o.temperature;
    v->offer.think = o->o.think;
    v->offer.max_tokens = (uint32_t)o->max_tokens;
    v->offer.seed = next_seed;
    v->offer.user = s;
    v->guard = (struct eb_guard){.bound = o->host,
                                 .everywhere = eb_http_is_everywhere(s->http),
                                 .names = o->hosts.items,
                                 .n_names = o->hosts.n,
                                 .keys = o->keys.items,
                                 .n_keys = o->keys.n};
    v->model = s->session.model_info;
    v->device = s->session.device_info;
    v->cache_type = eb_cache_dtype_name(s->session.cache_dtype);
    v->n_slots = (uint32_t)o->parallel;
    v->traffic = &s->traffic;
    v->started = t.tv_sec;
    v->log = log_line;
    v->log_user = &s->sink;
    v->log_prompts = o->log_prompts;
}

/* ---- engine ------------------------------------------------------------------------------- */

/* As the session would, but for many sequences. Fills in what the scheduler must know of it. */
static int open_engine(struct server *s, struct eb_sched_options *sched) {
    struct eb_session *e = &s->session;
    const struct serve_options *o = s->options;
    ebro_error err = {0};
    ebro_estimate estimate = {.size = sizeof estimate};
    e->memory_mib = o->o.memory_mib;
    ebro_engine_options options = {.size = sizeof options,
                                   .n_ctx = (uint32_t)o->o.n_ctx,
                                   .n_chunk = (uint32_t)o->o.n_chunk,
                                   .cache_dtype = o->o.cache_dtype,
                                   .prefill_form = o->o.mla_form,
                                   .strict = o->o.strict,
                                   .max_seqs = (uint32_t)o->parallel,
                                   .keep = o->o.keep,
                                   .memory_bytes = o->o.memory_mib << 20,
                                   .host_bytes = o->o.host_mib << 20,
                                   .keep_interval = (uint32_t)o->o.keep_interval,
                                   .evict = o->o.evict};
    if (ebro_model_estimate(e->model, e->device, &options, &estimate, &err) != EBRO_OK ||
        ebro_engine_open(e->model, e->device, &options, &e->engine, &err) != EBRO_OK)
        return eb_session_complain(e, &err);
    e->n_ctx = estimate.n_ctx;
    e->cache_dtype = estimate.cache_dtype;
    s->service.token_bytes = estimate.cache_token_bytes;
    *sched = (struct eb_sched_options){.runtime = e->runtime,
                                       .model = e->model,
                                       .engine = e->engine,
                                       .n_seqs = (uint32_t)o->parallel,
                                       .n_ctx = estimate.n_ctx,
                                       .n_chunk = estimate.n_chunk,
                                       .n_queue = (uint32_t)o->queue,
                                       .token_bytes = estimate.cache_token_bytes,
                                       .state_bytes = e->model_info.state_bytes};
    return EB_EXIT_OK;
}

static int open_all(struct server *s) {
    struct eb_sched_options options;
    ebro_error err = {0};
    int code = eb_session_open_model(&s->session, &s->options->o);
    if (code == EB_EXIT_OK) code = eb_session_check_think(&s->session, &s->options->o);
    if (code == EB_EXIT_OK) code = open_engine(s, &options);
    if (code != EB_EXIT_OK) return code;
    fill_service(s);
    return eb_sched_open(&options, &s->service.sched, &err) == EBRO_OK ? EB_EXIT_OK
                                                                       : eb_complain_error(&err);
}

/* ---- server ------------------------------------------------------------------------------- */

static bool on_admit(void *user, const struct eb_exchange *x, struct eb_fault *fault) {
    const struct server *s = user;
    return eb_routes_admit(&s->service, x, fault);
}

static void on_handle(void *user, struct eb_exchange *x) {
    const struct server *s = user;
    eb_routes_handle(&s->service, x);
}

static void on_done(void *user, const struct eb_exchange *x, int status, double seconds) {
    struct server *s = user;
    char line[400];
    int first = status / 100;
    if (first >= 1 && first <= 5) atomic_fetch_add(&s->traffic.answers[first], 1);
    snprintf(line, sizeof line, "%.16s %.200s %d %.3f s", x->method, x->path, status, seconds);
    log_line(&s->sink, EBRO_LOG_INFO, line);
}

static void on_log(void *user, int32_t level, const char *text) {
    struct server *s = user;
    log_line(&s->sink, level, text);
}

static int open_http(struct server *s) {
    const struct serve_options *o = s->options;
    const struct eb_http_options options = {.host = o->host,
                                            .port = (uint16_t)o->port,
                                            .max_body = (size_t)o->max_body << 20,
                                            .max_connections = (uint32_t)o->connections,
                                            .read_seconds = (uint32_t)o->read_seconds,
                                            .admit = on_admit,
                                            .handle = on_handle,
                                            .done = on_done,
                                            .log = on_log,
                                            .user = s};
    ebro_error err = {0};
    if (eb_http_open(&options, &s->http, &err) == EBRO_OK) return EB_EXIT_OK;
    int code = eb_complain_error(&err);
    /* what is missing then is a library of the machine */
    return err.status == EBRO_UNSUPPORTED ? EB_EXIT_USAGE : code;
}

/* As a client would write it. */
static void print_address(const struct server *s) {
    const char *host = s->options->host;
    bool everywhere = eb_http_is_everywhere(s->http), v6 = !everywhere && strchr(host, ':') != NULL;
    printf("listening on http://%s%s%s:%u (%s, %s, context %u, %llu at once)\n", v6 ? "[" : "",
           everywhere ? "127.0.0.1" : host, v6 ? "]" : "", (unsigned)eb_http_port(s->http),
           s->names[0], s->session.device_info.name, s->session.n_ctx,
           (unsigned long long)s->options->parallel);
    if (everywhere && s->options->keys.n == 0)
        eb_complain("whoever reaches this machine may use the server: there is no --api-key");
}

static void tell_who_runs(const struct server *s) {
    struct eb_sched_stats stats;
    eb_sched_get_stats(s->service.sched, &stats, NULL, 0);
    uint32_t n = stats.n_running + stats.n_waiting;
    if (n == 0) return;
    eb_complain("ending: %u %s up to %llu s; a second signal ends %s at once", n,
                n == 1 ? "reply has" : "replies have",
                (unsigned long long)s->options->drain_seconds, n == 1 ? "it" : "them");
}

/* False: what runs was cut off, by a second signal. What is over in a moment is not worth a word.
 */
static bool drain(struct server *s) {
    enum { MOMENT_MS = 300, TURN_MS = 20 };
    double end = eb_seconds() + (double)s->options->drain_seconds;
    log_line(&s->sink, EBRO_LOG_INFO, "ending: new requests are refused");
    for (int turn = 0; !eb_sched_drain(s->service.sched); turn++) {
        if (eb_seconds() >= end) return true;
        if (turn == MOMENT_MS / TURN_MS) tell_who_runs(s);
        if (wait_signal(TURN_MS)) return false;
    }
    return true;
}

static int run(struct server *s) {
    ebro_error err = {0};
    if (!catch_signals()) {
        eb_complain("cannot catch signals: %s", strerror(errno));
        return EB_EXIT_INTERNAL;
    }
    if (eb_http_start(s->http, &err) != EBRO_OK) return eb_complain_error(&err);
    print_address(s);
    if (!eb_flush_stdout()) return EB_EXIT_USAGE;
    while (!wait_signal(-1)) continue;
    return drain(s) ? EB_EXIT_OK : EB_EXIT_INTERRUPTED;
}

/* In this order: nothing is handed to a scheduler that is gone, and all that is asked is answered
 * before the connections close. */
static void close_all(struct server *s) {
    if (s->http) eb_http_stop(s->http);
    eb_sched_close(&s->service.sched);
    eb_http_close(&s->http);
    eb_session_close(&s->session);
}

/* A server that is open to all since a variable was left empty would be a bad surprise. */
static int check_keys(const struct serve_options *o) {
    const char *variable = getenv("EBRO_API_KEY");
    if (variable && !variable[0] && o->keys.n == 0) {
        eb_complain("EBRO_API_KEY is set and empty: unset it, or put a key into it");
        return EB_EXIT_USAGE;
    }
    for (size_t i = 0; i < o->keys.n; i++) {
        const char *key = o->keys.items[i];
        size_t n = strlen(key), plain = 0;
        while (key[plain] > ' ' && key[plain] < 0x7f) plain++;
        if (n > 0 && n <= EB_KEY_BYTES && plain == n) continue;
        eb_complain("--api-key: a key has 1 to %d visible characters of ASCII", EB_KEY_BYTES);
        return EB_EXIT_USAGE;
    }
    return EB_EXIT_OK;
}

static int check_aliases(const struct serve_options *o) {
    for (size_t i = 0; i < o->aliases.n; i++) {
        if (is_text(o->aliases.items[i])) continue;
        eb_complain("--alias: a name is a text in UTF-8, and not empty");
        return EB_EXIT_USAGE;
    }
    return EB_EXIT_OK;
}

int eb_cmd_serve(int argc, char **argv) {
    const struct eb_arg_group groups[] = {
        {"Server", server_args, sizeof server_args / sizeof *server_args},
        {"Replies, where a request does not say", reply_args,
         sizeof reply_args / sizeof *reply_args},
        eb_model_args,
        eb_reuse_args,
        eb_trust_args,
        eb_log_args};
    struct serve_options o = {.host = "127.0.0.1",
                              .port = 8080,
                              .parallel = 8,
                              .queue = 64,
                              .connections = 256,
                              .max_body = 8,
                              .read_seconds = 30,
                              .drain_seconds = 30};
    int code = eb_command_options("serve", usage, groups, sizeof groups / sizeof *groups, argc,
                                  argv, &o.o);
    if (code >= 0) return code;
    struct server *s = calloc(1, sizeof *s);
    if (!s) {
        eb_complain("out of memory");
        return EB_EXIT_MEMORY;
    }
    if (o.o.keep_from == EB_FROM_DEFAULT) o.o.keep = 0;
    s->options = &o;
    s->sink.level = o.o.log;
    if ((code = check_keys(&o)) == EB_EXIT_OK && (code = check_aliases(&o)) == EB_EXIT_OK &&
        (code = open_http(s)) == EB_EXIT_OK && (code = open_all(s)) == EB_EXIT_OK)
        code = run(s);
    close_all(s);
    free(s);
    return code;
}
