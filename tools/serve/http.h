/* http.h: the server's connections: requests come in, answers go out, within limits of size, number
 * and time. Knows no route and no JSON. Built on libmicrohttpd, which no other file sees. */
#ifndef EB_HTTP_H
#define EB_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "exchange.h"

struct eb_http_options {
    const char *host; /* a name or a numeric address */
    uint16_t port;    /* 0: any that is free */
    size_t max_body;  /* bytes */
    uint32_t max_connections;
    uint32_t read_seconds; /* for a request to arrive; for a client to take an answer */
    /* By the request's line and headers: false, with the fault, where it is not to be answered.
     * Then its body is read and thrown away, so that the client reads the fault; one that is much
     * too large is not even read. */
    bool (*admit)(void *user, const struct eb_exchange *x, struct eb_fault *fault);
    /* The body is there: answers x, now or later. Where it is later it must hold x. */
    void (*handle)(void *user, struct eb_exchange *x);
    /* After the last byte, or when the client has gone; status 0: it was never answered. */
    void (*done)(void *user, const struct eb_exchange *x, int status, double seconds);
    /* Something is wrong with a connection, or is said by the library: at EBRO_LOG_DEBUG. */
    void (*log)(void *user, int32_t level, const char *text);
    void *user; /* all of these come from the server's own threads */
};

struct eb_http;

/* Takes the address; nobody can connect yet. INVALID: no such host; IO: the address is taken or is
 * not this machine's; UNSUPPORTED: libmicrohttpd is not installed. Not from two threads at once. */
int32_t eb_http_open(const struct eb_http_options *options, struct eb_http **out, ebro_error *err);
uint16_t eb_http_port(const struct eb_http *http);
/* It listens on all addresses of the machine. */
bool eb_http_is_everywhere(const struct eb_http *http);
/* Answers from now on. */
int32_t eb_http_start(struct eb_http *http, ebro_error *err);
/* From now on requests are refused (503), and no handler runs any more when this returns. */
void eb_http_stop(struct eb_http *http);
/* Every exchange must have been answered: waits a few seconds for clients to take what is on its
 * way, then closes all connections. NULL-safe. */
void eb_http_close(struct eb_http **http);

#endif
