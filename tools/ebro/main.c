/* main.c: finds the command. Each command is a file of its own. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common.h"

static const char help_text[] =
    "usage: ebro COMMAND [options]\n"
    "       ebro --version | --help\n"
    "\n"
    "Runs language models that mix Kimi Delta Attention with Multi-head Latent\n"
    "Attention: Kimi Linear and Kimi K3 (text).\n"
    "\n"
    "Commands\n"
    "  run       continue a text or answer a chat message\n"
    "  logits    write the logits of a prompt to a file\n"
    "  devices   list the devices that can be used\n"
    "  bench     measure speed\n"
    "\n"
    "`ebro COMMAND --help` lists a command's options. Each option has an environment\n"
    "variable that sets the same; the option wins.\n"
    "\n"
    "Results go to stdout, everything else to stderr.\n"
    "\n"
    "Exit codes\n"
    "  0    success\n"
    "  1    usage error, or a file (stdout included) that cannot be read or written\n"
    "  2    the model is invalid or not supported\n"
    "  3    no such device or backend\n"
    "  4    out of memory\n"
    "  5    the device was lost\n"
    "  6    numerical failure: a value that is not finite\n"
    "  70   a fault of Ebro itself: please report it\n"
    "  130  interrupted (ctrl-C)\n";

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {{"run", eb_cmd_run},
                    {"logits", eb_cmd_logits},
                    {"devices", eb_cmd_devices},
                    {"bench", eb_cmd_bench}};

    /* a closed pipe is an error of the write that met it, not the end of the process */
    signal(SIGPIPE, SIG_IGN);
    /* so is a file that would pass its size limit */
    signal(SIGXFSZ, SIG_IGN);
    /* and a model file that shrinks; where that cannot be had, all else works */
    (void)ebro_guard_install(NULL);
    if (argc < 2) {
        eb_complain("no command: run, logits, devices or bench (`ebro --help` says more)");
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
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(word, commands[i].name) == 0) return commands[i].run(argc - 2, argv + 2);
    eb_complain("unknown command \"%s\": run, logits, devices or bench (`ebro --help` says more)",
                word);
    return EB_EXIT_USAGE;
}
