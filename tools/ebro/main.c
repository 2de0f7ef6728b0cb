/* main.c: finds the command. Each command is a file of its own. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "common.h"
#include "nearest.h"

static const char help_text[] =
    "usage: ebro COMMAND [options]\n"
    "       ebro --version | --help | --list-devices\n"
    "\n"
    "Runs language models that mix Kimi Delta Attention with Multi-head Latent\n"
    "Attention: Kimi Linear and Kimi K3 (text).\n"
    "\n"
    "Commands\n"
    "  run        continue a text or answer a chat message\n"
    "  chat       hold a conversation\n"
    "  serve      answer programs over HTTP, in OpenAI's form\n"
    "  inspect    show what a model is made of and the memory it takes\n"
    "  tokenize   show the tokens of a text, or the text of tokens\n"
    "  logits     write the logits of a prompt to a file\n"
    "  devices    list the devices that can be used\n"
    "  bench      measure speed\n"
    "  check      show that the devices compute right answers\n"
    "  cache-sim  what a memory budget would do for a trace of prompts\n"
    "\n"
    "`ebro COMMAND --help`, or -h, lists a command's options. Each has an environment\n"
    "variable that sets the same; the option wins.\n"
    "\n"
    "Results go to stdout, everything else to stderr.\n"
    "\n"
    "Exit codes\n"
    "  0    success\n"
    "  1    usage error, or a file (stdout included) that cannot be read or written\n"
    "  2    the model is invalid or not supported, or not the one that a session file is\n"
    "       of\n"
    "  3    no such device or backend, or it lacks what was asked for\n"
    "  4    out of memory\n"
    "  5    the device was lost\n"
    "  6    numerical failure: a value that is not finite, or a check that failed\n"
    "  70   a fault of Ebro itself: please report it\n"
    "  130  interrupted (ctrl-C)\n";

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {{"run", eb_cmd_run},           {"chat", eb_cmd_chat},
                {"serve", eb_cmd_serve},       {"inspect", eb_cmd_inspect},
                {"tokenize", eb_cmd_tokenize}, {"logits", eb_cmd_logits},
                {"devices", eb_cmd_devices},   {"bench", eb_cmd_bench},
                {"check", eb_cmd_check},       {"cache-sim", eb_cmd_cache_sim}};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

/* "run, logits or devices" */
static void list_commands(char *out, size_t bytes) {
    size_t n = 0;
    for (size_t i = 0; i < N_COMMANDS && n < bytes; i++)
        n += (size_t)snprintf(out + n, bytes - n, "%s%s",
                              i == 0               ? ""
                              : i + 1 < N_COMMANDS ? ", "
                                                   : " or ",
                              commands[i].name);
}

static int complain_unknown(const char *word) {
    const char *names[N_COMMANDS];
    char list[256];
    for (size_t i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    list_commands(list, sizeof list);
    const char *meant = eb_nearest(word, names, N_COMMANDS);
    if (meant)
        eb_complain("unknown command \"%s\": did you mean %s? (`ebro --help` says more)", word,
                    meant);
    else
        eb_complain("unknown command \"%s\": %s (`ebro --help` says more)", word, list);
    return EB_EXIT_USAGE;
}

/* glibc learns from the first large block that is freed to keep such blocks: caches and workspaces
 * would stay with the process after their engine is closed. Large ones are to be the system's. */
static void return_large_blocks(void) {
#if defined(__GLIBC__)
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
}

int main(int argc, char **argv) {
    return_large_blocks();
    /* a closed pipe is an error of the write that met it, not the end of the process */
    signal(SIGPIPE, SIG_IGN);
    /* so is a file that would pass its size limit */
    signal(SIGXFSZ, SIG_IGN);
    /* and a model file that shrinks; where that cannot be had, all else works */
    (void)ebro_guard_install(NULL);
    if (argc < 2) {
        char list[256];
        list_commands(list, sizeof list);
        eb_complain("no command: %s (`ebro --help` says more)", list);
        return EB_EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0) {
        printf("ebro %s\n", ebro_version());
        return eb_flush_stdout() ? EB_EXIT_OK : EB_EXIT_USAGE;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        fputs(help_text, stdout);
        return eb_flush_stdout() ? EB_EXIT_OK : EB_EXIT_USAGE;
    }
    /* as other programs of this kind call it */
    if (strcmp(word, "--list-devices") == 0) return eb_cmd_devices(argc - 2, argv + 2);
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(word, commands[i].name) == 0) return commands[i].run(argc - 2, argv + 2);
    return complain_unknown(word);
}
