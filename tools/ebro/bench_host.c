/* bench_host.c: what a benchmark says of the machine that it ran on, and what it asks the operating
 * system: processor time, resident memory, another run of this program. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "modules.h"

extern char **environ;

/* ---- the machine ------------------------------------------------------------------------ */

/* The text after "key:" in a file of such lines. */
static bool file_value(const char *path, const char *key, char *out, size_t capacity) {
    char line[256];
    bool found = false;
    FILE *f = fopen(path, "r");
    while (f && !found && fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || !value) continue;
        value += 1 + strspn(value + 1, " \t");
        value[strcspn(value, "\n")] = '\0';
        snprintf(out, capacity, "%s", value);
        found = true;
    }
    if (f) fclose(f);
    return found;
}

static double load_average(void) {
    double load = -1.0;
    FILE *f = fopen("/proc/loadavg", "r");
    char text[64], *end = text;
    if (f && fgets(text, sizeof text, f)) {
        double first = strtod(text, &end);
        if (end != text) load = first;
    }
    if (f) fclose(f);
    return load;
}

struct listener {
    struct eb_bench_host *host;
    int32_t level; /* of --log */
};

/* A device tells its rung in the log, as "NAME: rung RUNG, N threads": the last one that it says is
 * the one that stays. What is to be told now will not be told again. */
static void note_rung(void *user, int32_t level, const char *text) {
    const struct listener *l = user;
    struct eb_bench_host *h = l->host;
    const char *rung = strstr(text, ": rung ");
    if (level <= EBRO_LOG_WARN && level <= l->level) eb_log_to_stderr(NULL, level, text);
    if (!rung) return;
    snprintf(h->opened, sizeof h->opened, "%s", text);
    rung += strlen(": rung ");
    size_t n = strcspn(rung, ",");
    snprintf(h->rung, sizeof h->rung, "%.*s", (int)n, rung);
    if (rung[n] == ',') h->n_threads = (uint32_t)strtoul(rung + n + 1, NULL, 10);
}

int eb_bench_describe(const struct eb_options *o, struct eb_bench_host *out) {
    *out = (struct eb_bench_host){.load = load_average(), .n_cores = sysconf(_SC_NPROCESSORS_ONLN)};
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc)) strftime(out->date, sizeof out->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    if (!file_value("/proc/cpuinfo", "model name", out->processor, sizeof out->processor))
        snprintf(out->processor, sizeof out->processor, "unknown");

    ebro_runtime *runtime = NULL;
    ebro_device *device = NULL;
    ebro_error err = {0};
    int code = EB_EXIT_OK;
    char modules[4096], cache[4096];
    struct listener listener = {out, (int32_t)o->log};
    ebro_runtime_options options = {.size = sizeof options,
                                    .log = note_rung,
                                    .log_user = &listener,
                                    .log_level = EBRO_LOG_INFO};
    if (eb_modules_folder(modules, sizeof modules)) options.module_dir = modules;
    if (eb_cache_folder(o->cache_dir, cache, sizeof cache)) options.cache_dir = cache;
    if (ebro_runtime_open(&options, &runtime, &err) != EBRO_OK ||
        eb_device_open_for(o, runtime, &device, &err) != EBRO_OK)
        code = eb_complain_device(&err);
    else
        ebro_device_get_info(device, &out->device);
    ebro_device_close(&device);
    ebro_runtime_close(&runtime);
    return code;
}

void eb_bench_print_host(const struct eb_bench_host *h) {
    printf("ebro %s, %s, %s, %ld core%s", ebro_version(), h->date, h->processor, h->n_cores,
           h->n_cores == 1 ? "" : "s");
    if (h->load >= 0.0) printf(", load %.2f", h->load);
    printf("\n%s: %s%s%s\n", h->device.name, h->device.description, h->rung[0] ? ", rung " : "",
           h->rung);
}

bool eb_bench_json_host(const struct eb_bench_host *h, json_t *to) {
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:I, s:f, s:s, s:s, s:s, s:s}", "version", ebro_version(),
                  "date", h->date, "processor", h->processor, "cores", (json_int_t)h->n_cores,
                  "load", h->load, "device", h->device.name, "description", h->device.description,
                  "backend", h->device.backend, "rung", h->rung);
    bool ok = o && json_object_update(to, o) == 0;
    json_decref(o);
    return ok;
}

/* ---- the operating system --------------------------------------------------------------- */

double eb_bench_cpu_seconds(void) {
    struct timespec t;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) != 0) return 0.0;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Not getrusage: its figure includes what ran in this process before exec. */
uint64_t eb_bench_peak_bytes(void) {
    char text[64];
    if (!file_value("/proc/self/status", "VmHWM", text, sizeof text)) return 0;
    return strtoull(text, NULL, 10) * 1024u;
}

static double children_seconds(void) {
    struct rusage u;
    if (getrusage(RUSAGE_CHILDREN, &u) != 0) return 0.0;
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* The environment without our own variables; free the array. */
static char **plain_environment(void) {
    size_t n = 0, kept = 0;
    while (environ[n]) n++;
    char **e = calloc(n + 1, sizeof *e);
    for (size_t i = 0; e && i < n; i++)
        if (strncmp(environ[i], "EBRO_", 5) != 0) e[kept++] = environ[i];
    return e;
}

/* Starts `path` with its stdout in `out`; its stderr goes nowhere. Returns an errno. */
static int start(const char *path, char **argv, int out, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    char **environment = plain_environment();
    if (!environment) return ENOMEM;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0) goto out;
    rc = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (rc == 0)
        rc = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (rc == 0) rc = posix_spawn(pid, path, &actions, NULL, argv, environment);
    posix_spawn_file_actions_destroy(&actions);
out:
    free(environment);
    return rc;
}

bool eb_bench_first_byte(char **argv, double *seconds, double *cpu_seconds, char *text,
                         size_t text_bytes) {
    char path[4096], buffer[4096];
    int ends[2], status = 0;
    pid_t pid;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n < 0) {
        snprintf(text, text_bytes, "this program's own file cannot be found: %s", strerror(errno));
        return false;
    }
    path[n] = '\0';
    argv[0] = path;
    if (pipe(ends) != 0) {
        snprintf(text, text_bytes, "no pipe: %s", strerror(errno));
        return false;
    }
    /* the child must hold no second end of its own pipe */
    (void)fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    (void)fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    double cpu = children_seconds(), begin = eb_seconds();
    int rc = start(path, argv, ends[1], &pid);
    close(ends[1]);
    if (rc != 0) {
        close(ends[0]);
        snprintf(text, text_bytes, "cannot start %s: %s", path, strerror(rc));
        return false;
    }
    do n = read(ends[0], buffer, sizeof buffer);
    while (n < 0 && errno == EINTR);
    *seconds = eb_seconds() - begin;
    while (n > 0 || (n < 0 && errno == EINTR)) n = read(ends[0], buffer, sizeof buffer);
    close(ends[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    *cpu_seconds = children_seconds() - cpu;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    snprintf(text, text_bytes, "the run that was started for it ended with %d",
             WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return false;
}
