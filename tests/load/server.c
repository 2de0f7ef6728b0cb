#include "tests/load/server.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/test.h"
#include "tests/load/client.h"

enum { MAX_OPTIONS = 24, START_SECONDS = 120 };

/* The line that says where it listens. */
static void read_address(struct load_server *s) {
    char line[512];
    size_t n = 0;
    unsigned port = 0;
    const double until = load_now() + START_SECONDS;
    while (n + 1 < sizeof line && load_now() < until) {
        struct pollfd p = {.fd = s->out, .events = POLLIN};
        if (poll(&p, 1, 100) <= 0) continue;
        if (read(s->out, line + n, 1) != 1 || line[n] == '\n') break;
        n++;
    }
    line[n] = '\0';
    if (sscanf(line, "listening on http://127.0.0.1:%u ", &port) != 1 || port > 65535)
        fail_msg("the server said \"%s\"", line);
    s->port = (uint16_t)port;
}

/* In the child. Whatever becomes of the test, the server ends with it. */
static void become(const char *const *argv, const int *ends) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execv(argv[0], (char *const *)argv);
    _exit(127);
}

void load_server_start(struct load_server *s, const char *const *options) {
    const char *argv[MAX_OPTIONS + 5] = {getenv("EBRO"), "serve", "--port", "0"};
    int ends[2];
    size_t n = 4;
    if (argv[0] == NULL) fail_msg("the environment variable EBRO does not name the program");
    for (; *options != NULL; options++) {
        assert_true(n < MAX_OPTIONS + 4);
        argv[n++] = *options;
    }
    assert_int_equal(pipe(ends), 0);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) become(argv, ends);
    close(ends[1]);
    s->out = ends[0];
    read_address(s);
}

int load_server_stop(struct load_server *s, double seconds) {
    const double until = load_now() + seconds;
    const struct timespec moment = {.tv_nsec = 10000000};
    int status = 0;
    pid_t ended = 0;
    kill(s->pid, SIGTERM);
    while ((ended = waitpid(s->pid, &status, WNOHANG)) == 0 && load_now() < until)
        nanosleep(&moment, NULL);
    if (ended == 0) {
        kill(s->pid, SIGKILL);
        waitpid(s->pid, &status, 0);
    }
    close(s->out);
    return ended == s->pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
