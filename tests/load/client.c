#include "tests/load/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/test.h"
#include "tests/load/answer.h"

enum { READ_BYTES = 16384, TICK_MS = 5 };

struct lane {
    int fd;     /* -1: no connection */
    bool used;  /* the connection has answered before */
    bool tried; /* this exchange was already begun once on a connection that turned out closed */
    struct load_call *call;
    struct load_answer answer;
    size_t sent, scanned; /* of the request; of the body, for events */
    double next;          /* a slow client: not before */
};

struct load_client {
    uint16_t port;
    int epoll;
    uint32_t n_lanes, n_calls;
    struct lane *lanes;
};

double load_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

char *load_request(const char *path, const char *body, size_t *n) {
    static const char head[] =
        "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
        "application/json\r\nContent-Length: %zu\r\n\r\n";
    size_t n_body = body != NULL ? strlen(body) : 0, room = sizeof head + strlen(path) + 32;
    char *out = malloc(room + n_body);
    assert_non_null(out);
    int n_head = body != NULL
                     ? snprintf(out, room, head, path, n_body)
                     : snprintf(out, room, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", path);
    if (n_body > 0) memcpy(out + n_head, body, n_body);
    *n = (size_t)n_head + n_body;
    return out;
}

struct load_client *load_client_open(uint16_t port, uint32_t n_lanes) {
    struct load_client *c = calloc(1, sizeof *c);
    assert_non_null(c);
    *c = (struct load_client){.port = port, .n_lanes = n_lanes, .epoll = epoll_create1(0)};
    c->lanes = calloc(n_lanes, sizeof *c->lanes);
    assert_true(c->epoll >= 0 && c->lanes != NULL);
    for (uint32_t i = 0; i < n_lanes; i++) c->lanes[i].fd = -1;
    return c;
}

/* ---- connections ------------------------------------------------------------------------ */

static void disconnect(struct lane *l) {
    if (l->fd >= 0) close(l->fd); /* and epoll forgets it */
    l->fd = -1;
    l->used = false;
}

/* Loopback connects at once, or waits for room in the server's backlog. */
static void connect_lane(struct load_client *c, struct lane *l) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(c->port)};
    const int on = 1;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    l->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(l->fd >= 0);
    if (connect(l->fd, (struct sockaddr *)&to, sizeof to) != 0) {
        disconnect(l);
        return;
    }
    setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(l->fd, F_SETFL, fcntl(l->fd, F_GETFL) | O_NONBLOCK);
    struct epoll_event e = {.events = 0, .data.u32 = (uint32_t)(l - c->lanes)};
    assert_int_equal(epoll_ctl(c->epoll, EPOLL_CTL_ADD, l->fd, &e), 0);
}

/* A slow client is woken by the clock alone. */
static void wait_for(struct load_client *c, struct lane *l) {
    struct epoll_event e = {.data.u32 = (uint32_t)(l - c->lanes)};
    if (l->fd < 0) return;
    if (l->call != NULL && l->call->drip == 0)
        e.events = EPOLLIN | (l->sent < l->call->n_request ? (uint32_t)EPOLLOUT : 0);
    epoll_ctl(c->epoll, EPOLL_CTL_MOD, l->fd, &e);
}

/* ---- an exchange ------------------------------------------------------------------------ */

static void begin(struct load_client *c, struct lane *l) {
    load_answer_reset(&l->answer);
    l->sent = l->scanned = 0;
    l->next = 0;
    if (l->fd < 0) connect_lane(c, l);
    wait_for(c, l);
}

void load_start(struct load_client *c, uint32_t lane, struct load_call *call) {
    struct lane *l = &c->lanes[lane];
    assert_true(lane < c->n_lanes && l->call == NULL);
    l->call = call;
    l->tried = false;
    c->n_calls++;
    call->started = load_now();
    call->status = 0;
    call->n_events = 0;
    begin(c, l);
}

static void end(struct load_client *c, struct lane *l, enum load_end how) {
    struct load_call *call = l->call;
    call->ended = load_now();
    call->status = l->answer.status;
    call->body = l->answer.body != NULL ? l->answer.body : "";
    call->n_body = l->answer.n_body;
    call->is_stream = l->answer.is_stream;
    if (how != LOAD_DONE || l->answer.closes || call->last) disconnect(l);
    l->used = l->fd >= 0;
    l->call = NULL;
    c->n_calls--;
    wait_for(c, l);
    call->on_end(call, how);
}

/* An event is "data: ...\n\n". */
static void tell_events(struct lane *l) {
    struct load_call *call = l->call;
    const char *body = l->answer.body;
    if (!l->answer.is_stream) return;
    for (char *stop; body != NULL && (stop = strstr(body + l->scanned, "\n\n")) != NULL;) {
        const char *data = body + l->scanned;
        l->scanned = (size_t)(stop - body) + 2;
        if (strncmp(data, "data: ", 6) != 0) continue;
        call->n_events++;
        if (call->on_event != NULL) call->on_event(call, data + 6, (size_t)(stop - data) - 6);
    }
}

static bool must_leave(const struct lane *l, double now) {
    const struct load_call *k = l->call;
    return (k->leave_after > 0 && now >= k->started + k->leave_after) ||
           (k->leave_event > 0 && k->n_events >= k->leave_event) ||
           (k->leave_sent > 0 && l->sent >= k->leave_sent);
}

static void send_some(struct load_client *c, struct lane *l) {
    size_t n = l->call->n_request - l->sent;
    if (n > 0 && l->call->leave_sent > l->sent && n > l->call->leave_sent - l->sent)
        n = l->call->leave_sent - l->sent;
    if (l->call->drip > 0 && n > l->call->drip) n = l->call->drip;
    if (n == 0) return;
    ssize_t done = send(l->fd, l->call->request + l->sent, n, MSG_NOSIGNAL);
    /* A server may answer and close before all is sent: its answer is read all the same. */
    if (done < 0) done = errno == EAGAIN ? 0 : (ssize_t)(l->call->n_request - l->sent);
    l->sent += (size_t)done;
    if (l->sent == l->call->n_request) wait_for(c, l);
}

/* A connection that was kept may have been closed by the server just as it was used again: once
 * more, on a new one. */
static void closed(struct load_client *c, struct lane *l) {
    if (l->used && !l->tried && l->answer.n_in == 0) {
        disconnect(l);
        l->tried = true;
        begin(c, l);
        return;
    }
    end(c, l, load_answer_end(&l->answer) == LOAD_ANSWER_WHOLE ? LOAD_DONE : LOAD_CLOSED);
}

static void receive_some(struct load_client *c, struct lane *l) {
    char buffer[READ_BYTES];
    size_t room = l->call->drip > 0 && l->call->drip < sizeof buffer ? l->call->drip : READ_BYTES;
    ssize_t n = recv(l->fd, buffer, room, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        closed(c, l);
        return;
    }
    enum load_answer_state state = load_answer_push(&l->answer, buffer, (size_t)n);
    tell_events(l);
    if (state != LOAD_ANSWER_MORE && must_leave(l, load_now())) {
        end(c, l, LOAD_LEFT);
    } else if (state == LOAD_ANSWER_WHOLE) {
        end(c, l, LOAD_DONE);
    } else if (state == LOAD_ANSWER_BROKEN) {
        end(c, l, LOAD_GARBAGE);
    }
}

static void visit(struct load_client *c, struct lane *l, uint32_t events) {
    const struct load_call *call = l->call;
    if (l->fd < 0) {
        end(c, l, LOAD_CLOSED);
        return;
    }
    if (events & EPOLLOUT) send_some(c, l);
    if (must_leave(l, load_now())) {
        end(c, l, LOAD_LEFT);
        return;
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive_some(c, l);
    if (l->call == call && l->call != NULL && must_leave(l, load_now())) end(c, l, LOAD_LEFT);
}

/* What the clock does: slow clients, those that leave, those that wait too long. */
static void tick(struct load_client *c) {
    const double now = load_now();
    for (uint32_t i = 0; i < c->n_lanes; i++) {
        struct lane *l = &c->lanes[i];
        if (l->call == NULL) continue;
        if (l->fd < 0 || must_leave(l, now)) {
            visit(c, l, 0);
        } else if (now > l->call->started + (l->call->seconds > 0 ? l->call->seconds : 60)) {
            end(c, l, LOAD_LATE);
        } else if (l->call->drip > 0 && now >= l->next) {
            l->next = now + l->call->pause;
            visit(c, l, EPOLLIN | EPOLLOUT);
        }
    }
}

bool load_run(struct load_client *c, double seconds) {
    struct epoll_event events[64];
    const double until = load_now() + seconds;
    double ticked = 0;
    while (c->n_calls > 0 && load_now() < until) {
        int n = epoll_wait(c->epoll, events, 64, TICK_MS);
        for (int i = 0; i < n; i++) {
            struct lane *l = &c->lanes[events[i].data.u32];
            if (l->call != NULL) {
                visit(c, l, events[i].events);
            } else {
                disconnect(l); /* the server has closed what it had kept */
            }
        }
        if (load_now() < ticked + 1e-3 * TICK_MS) continue;
        ticked = load_now();
        tick(c);
    }
    return c->n_calls == 0;
}

void load_client_close(struct load_client **client) {
    struct load_client *c = *client;
    if (c == NULL) return;
    for (uint32_t i = 0; i < c->n_lanes; i++) {
        struct lane *l = &c->lanes[i];
        if (l->call != NULL) end(c, l, LOAD_LEFT);
        disconnect(l);
        load_answer_free(&l->answer);
    }
    close(c->epoll);
    free(c->lanes);
    free(c);
    *client = NULL;
}
