/* http.c: see http.h. The library's threads call in here for connections and requests; answers may
 * come from any thread. While an answer is not there the connection is suspended: no thread waits
 * for it and nothing watches it, so whoever makes the answer asks now and then whether the client
 * is still there.
 *
 * Locks: an exchange's before the library's own; the server's is taken alone. */
#define _GNU_SOURCE /* POLLRDHUP */
#include "http.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "answer.h"
#include "buf.h"
#include "listen.h"
#include "mhd.h"
#include "page.h"

enum {
    THREADS = 4,
    MAX_UNREAD = 8 << 20,    /* bytes of a stream */
    HEADER_BYTES = 32 << 10, /* and what else the library notes of a connection */
    BODIES = 16,             /* of the largest size, at once */
    CLOSE_SECONDS = 3,
    DISCARD = 4 /* times the largest body is still read to be thrown away */
};

/* A connection, for as long as it is open. */
struct peer {
    struct peer *next, *prev;
    int fd;
    bool busy;    /* with a request that has arrived */
    double since; /* it is not busy */
};

struct eb_http {
    struct eb_http_options options;
    const struct eb_mhd *mhd;
    struct MHD_Daemon *daemon;
    struct eb_listening socket;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    struct peer *peers;
    size_t body_bytes;   /* of all bodies that are held */
    unsigned n_inside;   /* handlers that run */
    unsigned n_requests; /* begun and not completed */
    bool stopping, closing;
    pthread_t sweeper;
    bool sweeps;
};

enum form { FORM_NONE, FORM_WHOLE, FORM_STREAM };

struct exchange {
    struct eb_exchange base;
    struct eb_http *http;
    struct peer *peer;
    int fd;
    double begun;
    char *path;
    /* of the library's thread alone */
    struct eb_buf body;
    size_t body_seen;
    bool refused, handled, queued;
    bool closes; /* the connection ends with this answer */
    struct eb_fault fault;
    /* of any thread */
    pthread_mutex_t lock;
    struct MHD_Connection *connection; /* NULL: it is done with this exchange */
    unsigned holders;
    bool suspended, ended, taken;
    enum form form;
    struct eb_answer head;
    struct eb_buf out;
    size_t out_begin; /* what is before it was sent */
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- answers, from any thread ------------------------------------------------------------- */

static struct exchange *of(struct eb_exchange *x) {
    return (struct exchange *)(void *)x;
}

/* There is something to send. With the lock. */
static void wake(struct exchange *x) {
    if (!x->suspended || !x->connection) return;
    x->suspended = false;
    x->http->mhd->resume_connection(x->connection);
}

static void give_whole(struct eb_exchange *base, const struct eb_answer *answer, char *body,
                       size_t bytes) {
    struct exchange *x = of(base);
    pthread_mutex_lock(&x->lock);
    if (x->form == FORM_NONE) {
        x->form = FORM_WHOLE;
        x->head = *answer;
        x->out = (struct eb_buf){.data = body, .n = bytes};
        body = NULL;
        wake(x);
    }
    pthread_mutex_unlock(&x->lock);
    free(body);
}

static bool begin_stream(struct eb_exchange *base, const struct eb_answer *answer) {
    struct exchange *x = of(base);
    pthread_mutex_lock(&x->lock);
    bool good = x->form == FORM_NONE && x->connection;
    if (good) {
        x->form = FORM_STREAM;
        x->head = *answer;
        wake(x);
    }
    pthread_mutex_unlock(&x->lock);
    return good;
}

static bool write_stream(struct eb_exchange *base, const void *data, size_t bytes) {
    struct exchange *x = of(base);
    pthread_mutex_lock(&x->lock);
    bool good = x->form == FORM_STREAM && x->connection && !x->ended &&
                x->out.n - x->out_begin <= MAX_UNREAD && eb_buf_add(&x->out, data, bytes);
    if (good) wake(x);
    pthread_mutex_unlock(&x->lock);
    return good;
}

static void end_stream(struct eb_exchange *base) {
    struct exchange *x = of(base);
    pthread_mutex_lock(&x->lock);
    x->ended = true;
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

/* The client has closed the connection, or its own side of it: both look the same until something
 * is sent. */
static bool is_closed(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

static bool is_gone(struct eb_exchange *base) {
    struct exchange *x = of(base);
    pthread_mutex_lock(&x->lock);
    /* the descriptor is the connection's while there is one */
    bool gone = !x->connection || x->out.n - x->out_begin > MAX_UNREAD || is_closed(x->fd);
    pthread_mutex_unlock(&x->lock);
    return gone;
}

static void hold(struct eb_exchange *base) {
    struct exchange *x = of(base);
    pthread_mutex_lock(&x->lock);
    x->holders++;
    pthread_mutex_unlock(&x->lock);
}

static void release(struct eb_exchange *base) {
    struct exchange *x = of(base);
    pthread_mutex_lock(&x->lock);
    bool last = --x->holders == 0;
    pthread_mutex_unlock(&x->lock);
    if (!last) return;
    pthread_mutex_destroy(&x->lock);
    if (!x->taken) eb_buf_free(&x->out);
    free(x->path);
    free(x);
}

static const struct eb_exchange_ops ops = {.answer = give_whole,
                                           .begin = begin_stream,
                                           .write = write_stream,
                                           .end = end_stream,
                                           .gone = is_gone,
                                           .hold = hold,
                                           .release = release};

/* ---- sending, by the library's threads ---------------------------------------------------- */

/* What of a stream is there, up to `most` bytes. */
static ssize_t read_stream(void *user, uint64_t position, char *out, size_t most) {
    struct exchange *x = user;
    ssize_t result = 0;
    (void)position;
    pthread_mutex_lock(&x->lock);
    size_t n = x->out.n - x->out_begin;
    if (n > most) n = most;
    if (n > 0) {
        memcpy(out, x->out.data + x->out_begin, n);
        x->out_begin += n;
        if (x->out_begin == x->out.n) x->out.n = x->out_begin = 0;
        result = (ssize_t)n;
    } else if (x->ended) {
        result = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        x->http->mhd->suspend_connection(x->connection);
        x->suspended = true;
    }
    pthread_mutex_unlock(&x->lock);
    return result;
}

static void release_stream(void *user) {
    struct exchange *x = user;
    release(&x->base);
}

/* With the lock. NULL: no memory. */
static struct MHD_Response *make_response(struct exchange *x) {
    enum { BLOCK = 16 << 10 };
    static char no_memory[] =
        "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\",\"param\":null,"
        "\"code\":null}}";
    const struct eb_mhd *mhd = x->http->mhd;
    if (x->form == FORM_STREAM) {
        struct MHD_Response *r = mhd->create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK,
                                                                    read_stream, x, release_stream);
        if (r) x->holders++;
        return r;
    }
    if (!x->out.data) {
        x->head.status = 500;
        return mhd->create_response_from_buffer(sizeof no_memory - 1, no_memory,
                                                MHD_RESPMEM_PERSISTENT);
    }
    struct MHD_Response *r =
        mhd->create_response_from_buffer(x->out.n, x->out.data, MHD_RESPMEM_MUST_FREE);
    x->taken = r != NULL;
    return r;
}

static void add_headers(const struct eb_mhd *mhd, struct MHD_Response *r,
                        const struct eb_answer *head) {
    mhd->add_response_header(r, "Content-Type", head->type);
    if (head->name) mhd->add_response_header(r, head->name, head->value);
    /* what was answered to one is nobody else's; and no page may use what is no page as one */
    mhd->add_response_header(r, "Cache-Control", "no-store");
    mhd->add_response_header(r, "Content-Security-Policy", EB_PAGE_POLICY);
    mhd->add_response_header(r, "Cross-Origin-Resource-Policy", "same-origin");
    mhd->add_response_header(r, "Referrer-Policy", "no-referrer");
    mhd->add_response_header(r, "X-Content-Type-Options", "nosniff");
}

/* Without the lock: the library has one of its own for a response, which it holds while it reads a
 * stream, and letting go of a stream takes ours. */
static enum MHD_Result queue(struct exchange *x, struct MHD_Response *r) {
    const struct eb_mhd *mhd = x->http->mhd;
    add_headers(mhd, r, &x->head);
    if (x->closes) mhd->add_response_header(r, "Connection", "close");
    enum MHD_Result result = mhd->queue_response(x->connection, (unsigned)x->head.status, r);
    mhd->destroy_response(r);
    return result;
}

/* Queues the answer, or suspends the connection until there is one. */
static enum MHD_Result go_on(struct exchange *x) {
    struct MHD_Response *r = NULL;
    pthread_mutex_lock(&x->lock);
    const bool wait = x->form == FORM_NONE, done = x->queued;
    if (wait) {
        x->http->mhd->suspend_connection(x->connection);
        x->suspended = true;
    } else if (!done && (r = make_response(x)) != NULL) {
        x->queued = true;
    }
    pthread_mutex_unlock(&x->lock);
    if (wait || done) return MHD_YES;
    return r ? queue(x, r) : MHD_NO;
}

/* ---- receiving ---------------------------------------------------------------------------- */

/* The headers that matter, and whether one of them came twice: which one counts is then anybody's
 * guess. */
struct headers {
    struct eb_credentials *c;
    const char *twice;
    uint64_t length; /* of the body; 0: not said */
    unsigned n_lengths, n_codings;
    bool expects; /* to be told before it sends the body */
};

static enum MHD_Result note_header(void *user, enum MHD_ValueKind kind, const char *name,
                                   const char *value) {
    struct headers *h = user;
    const struct {
        const char *name;
        const char **value;
    } wanted[] = {{"host", &h->c->host},
                  {"origin", &h->c->origin},
                  {"content-type", &h->c->type},
                  {"authorization", &h->c->authorization}};
    (void)kind;
    if (!value) value = "";
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (strcasecmp(name, wanted[i].name) != 0) continue;
        if (*wanted[i].value) h->twice = wanted[i].name;
        *wanted[i].value = value;
    }
    if (strcasecmp(name, "content-length") == 0) {
        h->length = strtoull(value, NULL, 10);
        h->n_lengths++;
    }
    h->n_codings += strcasecmp(name, "transfer-encoding") == 0;
    if (strcasecmp(name, "expect") == 0) h->expects = true;
    return MHD_YES;
}

static void refuse(struct exchange *x, const struct eb_fault *fault) {
    if (x->refused) return;
    x->refused = true;
    x->fault = *fault;
    eb_buf_free(&x->body);
}

static void refuse_size(struct exchange *x) {
    struct eb_fault fault;
    eb_fault_set(&fault, 413, NULL, "the body has more than %zu bytes, which --max-body allows",
                 x->http->options.max_body);
    refuse(x, &fault);
}

/* So many bytes more of bodies, or fewer. False: there are too many. */
static bool count_bodies(struct eb_http *h, size_t more, size_t fewer) {
    pthread_mutex_lock(&h->lock);
    bool good = h->body_bytes + more <= BODIES * h->options.max_body;
    if (good) h->body_bytes += more;
    h->body_bytes -= fewer;
    pthread_mutex_unlock(&h->lock);
    return good;
}

static void drop_body(struct exchange *x) {
    count_bodies(x->http, 0, x->body.n);
    eb_buf_free(&x->body);
}

static enum MHD_Result take_body(struct exchange *x, const char *data, size_t n) {
    struct eb_fault fault;
    x->body_seen += n;
    if (x->refused) return x->body_seen <= DISCARD * x->http->options.max_body ? MHD_YES : MHD_NO;
    if (x->body.n + n > x->http->options.max_body) {
        count_bodies(x->http, 0, x->body.n);
        refuse_size(x);
        return MHD_YES;
    }
    bool room = count_bodies(x->http, n, 0);
    if (room && eb_buf_add(&x->body, data, n)) return MHD_YES;
    count_bodies(x->http, 0, x->body.n + (room ? n : 0));
    eb_fault_set(&fault, 503, NULL, "there is no room for the request's body now");
    refuse(x, &fault);
    return MHD_YES;
}

static void set_busy(struct exchange *x, bool busy) {
    struct eb_http *h = x->http;
    pthread_mutex_lock(&h->lock);
    if (x->peer) {
        x->peer->busy = busy;
        x->peer->since = now();
    }
    h->n_requests += busy ? 1 : 0;
    h->n_requests -= !busy && x->handled ? 1 : 0;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

/* False: the server ends. */
static bool enter(struct eb_http *h) {
    pthread_mutex_lock(&h->lock);
    bool good = !h->stopping;
    h->n_inside += good;
    pthread_mutex_unlock(&h->lock);
    return good;
}

static void leave(struct eb_http *h) {
    pthread_mutex_lock(&h->lock);
    h->n_inside--;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

static void handle(struct exchange *x) {
    struct eb_http *h = x->http;
    x->handled = true;
    set_busy(x, true);
    if (!x->refused && !enter(h)) {
        drop_body(x);
        eb_fault_set(&x->fault, 503, NULL, "the server ends");
        x->refused = true;
    }
    if (x->refused) {
        eb_exchange_refuse(&x->base, &x->fault);
        return;
    }
    x->base.body = x->body.data ? x->body.data : "";
    x->base.bytes = x->body.n;
    h->options.handle(h->options.user, &x->base);
    leave(h);
    x->base.body = NULL;
    drop_body(x);
}

static struct peer *peer_of(struct eb_http *h, struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        h->mhd->get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static int descriptor(struct eb_http *h, struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        h->mhd->get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

static struct exchange *create(struct eb_http *h, struct MHD_Connection *connection,
                               const char *path, const char *method) {
    struct exchange *x = calloc(1, sizeof *x);
    char *copy = strdup(path);
    if (!x || !copy || pthread_mutex_init(&x->lock, NULL) != 0) {
        free(copy);
        free(x);
        return NULL;
    }
    x->base.ops = &ops;
    x->base.method = method;
    x->base.path = x->path = copy;
    x->http = h;
    x->connection = connection;
    x->peer = peer_of(h, connection);
    x->fd = descriptor(h, connection);
    x->begun = now();
    x->holders = 1;
    return x;
}

/* Line and headers are there. */
static enum MHD_Result begin(struct exchange *x) {
    struct eb_http *h = x->http;
    struct headers headers = {.c = &x->base.credentials};
    struct eb_fault fault = {0};
    h->mhd->get_connection_values(x->connection, MHD_HEADER_KIND, note_header, &headers);
    /* A proxy before this server may have read another end of the body, and so another request
     * after it: nothing more is read (RFC 9112, 6.3). */
    x->closes = headers.n_lengths + headers.n_codings > 1;
    if (x->closes) {
        eb_fault_set(&fault, 400, NULL,
                     "more than one header says where the body ends (content-length, "
                     "transfer-encoding)");
        refuse(x, &fault);
    } else if (headers.twice) {
        eb_fault_set(&fault, 400, NULL, "the header %s is there twice", headers.twice);
        refuse(x, &fault);
    } else if (!h->options.admit(h->options.user, &x->base, &fault)) {
        refuse(x, &fault);
    } else if (headers.length > h->options.max_body) {
        refuse_size(x);
    }
    if (!x->refused ||
        (headers.length <= DISCARD * h->options.max_body && !headers.expects && !x->closes))
        return MHD_YES;
    handle(x);
    return go_on(x);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *bytes, void **context) {
    struct exchange *x = *context;
    (void)version;
    if (!x) {
        *context = x = create(user, connection, path, method);
        return x ? begin(x) : MHD_NO;
    }
    if (*bytes > 0) {
        size_t n = *bytes;
        *bytes = 0;
        return take_body(x, data, n);
    }
    if (!x->handled) handle(x);
    return go_on(x);
}

static void on_completed(void *user, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode how) {
    struct eb_http *h = user;
    struct exchange *x = *context;
    (void)connection;
    (void)how;
    if (!x) return;
    *context = NULL;
    drop_body(x);
    pthread_mutex_lock(&x->lock);
    x->connection = NULL;
    int status = x->queued ? x->head.status : 0;
    pthread_mutex_unlock(&x->lock);
    set_busy(x, false);
    h->options.done(h->options.user, &x->base, status, now() - x->begun);
    release(&x->base);
}

/* ---- connections -------------------------------------------------------------------------- */

static void open_peer(struct eb_http *h, struct MHD_Connection *connection, void **context) {
    struct peer *p = calloc(1, sizeof *p);
    *context = p;
    if (!p) return; /* then nobody hurries it but the library's own time-out */
    p->fd = descriptor(h, connection);
    p->since = now();
    pthread_mutex_lock(&h->lock);
    p->next = h->peers;
    if (p->next) p->next->prev = p;
    h->peers = p;
    pthread_mutex_unlock(&h->lock);
}

static void close_peer(struct eb_http *h, struct peer *p) {
    if (!p) return;
    pthread_mutex_lock(&h->lock);
    if (p->next) p->next->prev = p->prev;
    *(p->prev ? &p->prev->next : &h->peers) = p->next;
    pthread_mutex_unlock(&h->lock);
    free(p);
}

/* The descriptor is open from the first call to the second. */
static void on_connection(void *user, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode what) {
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        open_peer(user, connection, context);
        return;
    }
    close_peer(user, *context);
    *context = NULL;
}

/* The library's time-out begins anew with every byte, so a client could take as long as it likes to
 * send a request. */
static void sweep(struct eb_http *h) {
    double limit = now() - h->options.read_seconds;
    for (struct peer *p = h->peers; p; p = p->next)
        if (!p->busy && p->since < limit) shutdown(p->fd, SHUT_RDWR);
}

static void *run_sweeper(void *user) {
    struct eb_http *h = user;
    pthread_mutex_lock(&h->lock);
    while (!h->closing) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 1;
        pthread_cond_timedwait(&h->changed, &h->lock, &until);
        sweep(h);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* ---- server ------------------------------------------------------------------------------- */

static void on_log(void *user, const char *fmt, va_list ap) {
    struct eb_http *h = user;
    char text[512];
    vsnprintf(text, sizeof text, fmt, ap);
    text[strcspn(text, "\r\n")] = '\0';
    if (h->options.log) h->options.log(h->options.user, EBRO_LOG_DEBUG, text);
}

static bool start_daemon(struct eb_http *h) {
    unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    if (h->socket.v6) flags |= MHD_USE_IPv6;
    h->daemon = h->mhd->start_daemon(
        flags, h->socket.port, NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, h,
        MHD_OPTION_LISTEN_SOCKET, h->socket.fd, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)THREADS,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->options.max_connections,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)h->options.read_seconds, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_END);
    return h->daemon != NULL;
}

static int32_t fail(ebro_error *err, int32_t status, const char *text) {
    err->status = status;
    snprintf(err->text, sizeof err->text, "%s", text);
    return status;
}

int32_t eb_http_open(const struct eb_http_options *options, struct eb_http **out, ebro_error *err) {
    const struct eb_mhd *mhd = eb_mhd_load(err);
    *out = NULL;
    if (!mhd) return err->status;
    struct eb_http *h = calloc(1, sizeof *h);
    if (!h) return fail(err, EBRO_NOMEM_HOST, "out of memory for the server");
    h->options = *options;
    h->mhd = mhd;
    int32_t st = eb_listen_bind(options->host, options->port, &h->socket, err);
    if (st != EBRO_OK) {
        free(h);
        return st;
    }
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, NULL);
    *out = h;
    return EBRO_OK;
}

int32_t eb_http_start(struct eb_http *h, ebro_error *err) {
    int32_t st = eb_listen_start(&h->socket, err);
    if (st != EBRO_OK) return st;
    if (!start_daemon(h))
        return fail(err, EBRO_INTERNAL,
                    "libmicrohttpd cannot start: too few threads or descriptors, perhaps");
    h->sweeps = pthread_create(&h->sweeper, NULL, run_sweeper, h) == 0;
    if (!h->sweeps) return fail(err, EBRO_INTERNAL, "cannot start a thread for the server");
    return EBRO_OK;
}

uint16_t eb_http_port(const struct eb_http *h) {
    return h->socket.port;
}

bool eb_http_is_everywhere(const struct eb_http *h) {
    return h->socket.everywhere;
}

void eb_http_stop(struct eb_http *h) {
    pthread_mutex_lock(&h->lock);
    h->stopping = true;
    while (h->n_inside > 0) pthread_cond_wait(&h->changed, &h->lock);
    pthread_mutex_unlock(&h->lock);
}

/* Clients that take what they were answered get the time for it. */
static void wait_for_clients(struct eb_http *h) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CLOSE_SECONDS;
    pthread_mutex_lock(&h->lock);
    while (h->n_requests > 0)
        if (pthread_cond_timedwait(&h->changed, &h->lock, &until) == ETIMEDOUT) break;
    h->closing = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

void eb_http_close(struct eb_http **http) {
    if (!http || !*http) return;
    struct eb_http *h = *http;
    *http = NULL;
    if (h->daemon) {
        eb_http_stop(h);
        wait_for_clients(h);
        h->mhd->stop_daemon(h->daemon); /* closes the socket too */
    } else {
        close(h->socket.fd);
    }
    if (h->sweeps) pthread_join(h->sweeper, NULL);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
