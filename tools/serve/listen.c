/* listen.c: see listen.h. */
#include "listen.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 128 };

static int32_t fail(ebro_error *err, int32_t status, const char *host, uint16_t port,
                    const char *why, const char *advice) {
    err->status = status;
    snprintf(err->text, sizeof err->text, "cannot listen on %s, port %u: %s%s", host,
             (unsigned)port, why, advice);
    return status;
}

/* What the socket became. */
static bool describe(int fd, struct eb_listening *out) {
    struct sockaddr_storage name;
    socklen_t bytes = sizeof name;
    memset(&name, 0, sizeof name);
    if (getsockname(fd, (struct sockaddr *)(void *)&name, &bytes) != 0) return false;
    out->fd = fd;
    out->v6 = name.ss_family == AF_INET6;
    if (out->v6) {
        const struct sockaddr_in6 *in6 = (const void *)&name;
        out->port = ntohs(in6->sin6_port);
        out->everywhere = memcmp(&in6->sin6_addr, &in6addr_any, sizeof in6addr_any) == 0;
    } else {
        const struct sockaddr_in *in = (const void *)&name;
        out->port = ntohs(in->sin_port);
        out->everywhere = in->sin_addr.s_addr == htonl(INADDR_ANY);
    }
    return true;
}

/* errno says why not. */
static bool try_address(const struct addrinfo *a, struct eb_listening *out) {
    int on = 1, fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
    if (fd < 0) return false;
    /* a server that was just ended may start again at once */
    bool good = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0 &&
                describe(fd, out);
    if (good) return true;
    int cause = errno;
    close(fd);
    errno = cause;
    return false;
}

int32_t eb_listen_bind(const char *host, uint16_t port, struct eb_listening *out, ebro_error *err) {
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                                   .ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    char service[8];
    snprintf(service, sizeof service, "%u", (unsigned)port);
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0) return fail(err, EBRO_INVALID, host, port, gai_strerror(rc), "");
    bool good = false;
    int cause = 0;
    for (const struct addrinfo *a = list; a && !good; a = a->ai_next) {
        good = try_address(a, out);
        cause = errno;
    }
    freeaddrinfo(list);
    if (good) return EBRO_OK;
    return fail(err, EBRO_IO, host, port, strerror(cause),
                cause == EADDRINUSE ? " (port 0 takes any that is free)" : "");
}

int32_t eb_listen_start(const struct eb_listening *listening, ebro_error *err) {
    if (listen(listening->fd, BACKLOG) == 0) return EBRO_OK;
    err->status = EBRO_IO;
    snprintf(err->text, sizeof err->text, "cannot listen on port %u: %s", (unsigned)listening->port,
             strerror(errno));
    return EBRO_IO;
}
