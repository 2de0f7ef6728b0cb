/* server.h: `ebro serve` as a process of its own, on a free port of loopback. The program is what
 * the environment variable EBRO names. Fails the running test where it cannot be started. */
#ifndef EB_LOAD_SERVER_H
#define EB_LOAD_SERVER_H

#include <stdint.h>
#include <sys/types.h>

struct load_server {
    pid_t pid;
    uint16_t port;
    int out; /* its stdout */
};

/* `options`: further ones, at most 24, NULL at their end. */
void load_server_start(struct load_server *s, const char *const *options);
/* Asks it to end, as SIGTERM does, and gives its exit code; -1: it crashed, or had to be killed
 * after so many seconds. */
int load_server_stop(struct load_server *s, double seconds);

#endif
