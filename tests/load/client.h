/* client.h: many HTTP exchanges with one server on loopback at once, in one thread that waits for
 * none of them. A lane is a connection, kept from one exchange to the next where the server keeps
 * it. Reads what a server may answer: a length, or chunks, and events in them. Light, so that
 * what is measured is the server. Fails the running test where the system has no socket or memory
 * for it; whatever the server does is told, not judged. */
#ifndef EB_LOAD_CLIENT_H
#define EB_LOAD_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct load_client;

enum load_end {
    LOAD_DONE,    /* answered, all of it */
    LOAD_LEFT,    /* the client has closed the connection, as it was told to */
    LOAD_CLOSED,  /* the server has, before the answer was whole */
    LOAD_GARBAGE, /* what came is no answer */
    LOAD_LATE     /* not within `seconds` */
};

struct load_call {
    /* What is sent: a whole request, or any bytes. Must stay until on_end. */
    const char *request;
    size_t n_request;
    double seconds; /* for all of it; 0: 60 */
    /* A client that goes away: at the first of these that is not 0. */
    double leave_after;   /* seconds since the start */
    uint32_t leave_event; /* once so many events came */
    size_t leave_sent;    /* once so many bytes are sent */
    /* A slow client: so many bytes each way every `pause` seconds. 0: as fast as it can. */
    size_t drip;
    double pause;
    /* The connection is closed after it: what was sent may not have been one whole request. */
    bool last;
    /* An event of a stream: what follows "data: ", not NUL-terminated. May be NULL. */
    void (*on_event)(struct load_call *call, const char *data, size_t n);
    /* The last call. The lane is free from here on: another exchange may start on it. */
    void (*on_end)(struct load_call *call, enum load_end how);
    void *user;

    /* What has come. */
    int status; /* 0: no answer yet */
    const char
        *body; /* NUL-terminated; of chunks joined; valid in on_end, until the lane is used again */
    size_t n_body;
    uint32_t n_events;
    bool is_stream;
    double started, ended; /* load_now */
};

/* Seconds of a clock that only goes on. */
double load_now(void);

struct load_client *load_client_open(uint16_t port, uint32_t n_lanes);
/* NULL-safe. Calls that run end as LOAD_LEFT. */
void load_client_close(struct load_client **client);

/* Starts an exchange on a lane that has none. */
void load_start(struct load_client *client, uint32_t lane, struct load_call *call);
/* Goes on until no lane has an exchange, at most so many seconds; false: some still have. */
bool load_run(struct load_client *client, double seconds);

/* "POST path" (body NULL: GET) with `body` as JSON, in new memory. */
char *load_request(const char *path, const char *body, size_t *n);

#endif
