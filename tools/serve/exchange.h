/* exchange.h: one request, and the way back to who asked. What stands behind it (a connection, a
 * test) is its maker's business. */
#ifndef EB_EXCHANGE_H
#define EB_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>

#include "fault.h"
#include "guard.h"

struct eb_exchange;

/* How an answer begins. */
struct eb_answer {
    int status;
    const char *type;         /* of the content; constant */
    const char *name, *value; /* one further header; constant; NULL: none */
};

/* Each may be called from any thread; a request is answered once, whole or as a stream. */
struct eb_exchange_ops {
    /* Takes over `body`, from malloc, whatever comes of it. */
    void (*answer)(struct eb_exchange *x, const struct eb_answer *answer, char *body, size_t bytes);
    /* A stream: begin, then write any number of times, then end. False: it cannot be sent. */
    bool (*begin)(struct eb_exchange *x, const struct eb_answer *answer);
    bool (*write)(struct eb_exchange *x, const void *data, size_t bytes);
    void (*end)(struct eb_exchange *x);
    /* Nobody waits for the answer any more. */
    bool (*gone)(struct eb_exchange *x);
    /* Whoever keeps the exchange beyond the call that it was handed to holds it. */
    void (*hold)(struct eb_exchange *x);
    void (*release)(struct eb_exchange *x);
};

struct eb_exchange {
    const struct eb_exchange_ops *ops;
    /* The request; valid until the handler returns. */
    const char *method, *path; /* without what follows "?" */
    struct eb_credentials credentials;
    const char *body;
    size_t bytes;
};

#endif
