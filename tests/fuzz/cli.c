/* cli.c: everything that a user can type: the whole program in this process, with a tiny model, in
 * a temporary folder. It must come back with one of its exit codes.
 *
 * The input is lines: arguments up to an empty line, then the file "ids" up to another, then
 * stdin. In an argument 0x1f is a line break and 0x1e nothing, so that both can be had; a '/' is
 * '_', so that no path leaves the folder. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/micro.h"
#include "tests/harness/test.h"

enum { MAX_BYTES = 4096, MAX_ARGS = 64 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
/* tools/ebro/main.c, renamed. */
int ebro_main(int argc, char **argv);

static char *folder;
static int home; /* where the fuzzer was started: its files may be named relative to that */
static FILE *sink, *real_stdout, *real_stderr;

static void must(int condition) {
    if (!condition) abort();
}

static void write_file(const char *name, const void *data, size_t bytes) {
    FILE *f = fopen(name, "wb");
    must(f != NULL && fwrite(data, 1, bytes, f) == bytes);
    must(fclose(f) == 0);
}

/* A model whose context is small, so that no answer takes long. */
static void write_model(void) {
    const struct micro_spec spec = {.family = MICRO_K3, .pattern = "KM", .ffn = MICRO_LATENT};
    static const char had[] = "\"model_max_length\":8192", has[] = "\"model_max_length\":  40";
    struct micro_files files = micro_make(&spec);
    ebro_file *config = micro_file(&files, "config.json");
    char *text = malloc(config->bytes + 1);
    memcpy(text, config->data, config->bytes);
    text[config->bytes] = '\0';
    char *at = strstr(text, had);
    must(at != NULL && sizeof had == sizeof has);
    memcpy(at, has, sizeof has - 1);
    must(mkdir("model", 0700) == 0 && chdir("model") == 0);
    for (uint32_t i = 0; i < files.n; i++) {
        bool is_config = strcmp(files.files[i].name, "config.json") == 0;
        write_file(files.files[i].name, is_config ? text : files.files[i].data,
                   files.files[i].bytes);
    }
    must(chdir("..") == 0);
    free(text);
    micro_files_free(&files);
}

static void remove_folder(void) {
    test_tmp_remove(&folder);
}

static void prepare_folder(void) {
    folder = test_tmp_dir();
    must(chdir(folder) == 0);
    atexit(remove_folder);
    write_model();
    must(fchdir(home) == 0);
    must(setenv("EBRO_MODEL", "model", 1) == 0);
    must(setenv("EBRO_THREADS", "1", 1) == 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    /* A module must not be unloaded: the fuzzer has taken note of its code. The program looks for
     * it beside the fuzzer. */
    char module[1024], *slash;
    ssize_t n = readlink("/proc/self/exe", module, sizeof module - 32);
    must(n > 0);
    module[n] = '\0';
    slash = strrchr(module, '/');
    strcpy(slash, "/ebro_cpu.so");
    must(dlopen(module, RTLD_NOW | RTLD_LOCAL) != NULL);
    sink = fopen("/dev/null", "w");
    must(sink != NULL && freopen("/dev/null", "r", stdin) != NULL);
    real_stdout = stdout;
    real_stderr = stderr;
    home = open(".", O_RDONLY | O_CLOEXEC);
    must(home >= 0);
    prepare_folder();
    return 0;
}

/* The text up to an empty line or the end; *at then stands behind it. */
static char *section(char *text, size_t n, size_t *at, size_t *length) {
    char *begin = text + *at;
    for (*length = 0; *at + *length < n; (*length)++) {
        bool empty = begin[*length] == '\n' && (*length == 0 || begin[*length - 1] == '\n');
        if (empty) break;
    }
    *at += *length < n - *at ? *length + 1 : *length;
    return begin;
}

static int split_args(char *text, size_t n, char **args) {
    int n_args = 0;
    args[n_args++] = (char *)"ebro";
    for (size_t i = 0; i < n && n_args < MAX_ARGS;) {
        char *arg = text + i, *out = arg;
        for (; i < n && text[i] != '\n' && text[i] != '\0'; i++) {
            char c = text[i];
            if (c != '\x1e') *out++ = (char)(c == '\x1f' ? '\n' : c == '/' ? '_' : c);
        }
        i++;
        *out = '\0';
        args[n_args++] = arg;
    }
    args[n_args] = NULL;
    return n_args;
}

/* What would take long, waits for a signal, or takes more threads than are good here, is not typed.
 */
static bool is_too_much(int n, char **args) {
    static const char *const commands[] = {"bench", "cache-sim", "serve"};
    for (size_t i = 0; n > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(args[1], commands[i]) == 0) return true;
    for (int i = 1; i < n; i++)
        if (strncmp(args[i], "-t", 2) == 0 || strncmp(args[i], "--threads", 9) == 0) return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const int codes[] = {0, 1, 2, 3, 4, 5, 6, 70, 130};
    char text[MAX_BYTES + 2], *args[MAX_ARGS + 1];
    size_t at = 0, n_args_text, n_ids, n_stdin;
    if (bytes > MAX_BYTES) return 0;
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    char *args_text = section(text, bytes, &at, &n_args_text);
    char *ids = section(text, bytes, &at, &n_ids);
    char *typed = text + at;
    n_stdin = bytes - at;
    int n = split_args(args_text, n_args_text, args);
    if (is_too_much(n, args)) return 0;
    must(chdir(folder) == 0);
    write_file("ids", ids, n_ids);
    /* A path in what is typed is a word at the beginning of a line: a command. */
    for (size_t i = 1; i < n_stdin; i++)
        if (typed[i] == '/' && typed[i - 1] != '\n') typed[i] = '_';
    FILE *from = n_stdin > 0 ? fmemopen(typed, n_stdin, "r") : fopen("/dev/null", "r");
    FILE *former = stdin;
    must(from != NULL);
    stdin = from;
    stdout = stderr = sink;
    int code = ebro_main(n, args);
    stdout = real_stdout;
    stderr = real_stderr;
    stdin = former;
    fclose(from);
    must(fchdir(home) == 0);
    bool known = false;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) known = known || code == codes[i];
    /* 70 is a fault of the program's own. */
    must(known && code != 70);
    return 0;
}
