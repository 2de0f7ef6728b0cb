/* guard.h: who may ask: names of this server, pages of this server, and keys. Decides on what a
 * request says of itself; reads no sockets. */
#ifndef EB_GUARD_H
#define EB_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "fault.h"

enum { EB_KEY_BYTES = 256 }; /* of a key at most */

struct eb_guard {
    const char *bound;        /* the address or name that the server was asked to listen on */
    bool everywhere;          /* it listens on all addresses: every numeric one is its own */
    const char *const *names; /* further names of this server */
    size_t n_names;
    const char *const *keys; /* 1 to EB_KEY_BYTES bytes each; none: no key is asked for */
    size_t n_keys;
};

/* What a request says of itself; NULL: nothing. */
struct eb_credentials {
    const char *host, *origin, *type, *authorization;
};

/* A web page of somebody else's can have a browser ask this server: under another name that it has
 * pointed here (Host), or from its own address (Origin). 403 for both. */
bool eb_guard_check_source(const struct eb_guard *guard, const struct eb_credentials *c,
                           struct eb_fault *fault);
/* A browser sends JSON to another's server only after asking that server, which never agrees. 415
 * for other types. */
bool eb_guard_check_type(const struct eb_credentials *c, struct eb_fault *fault);
/* 401 unless "Authorization: Bearer KEY" has a key of the server's, or none is asked for. The time
 * it takes does not depend on how much of a key is right. */
bool eb_guard_check_key(const struct eb_guard *guard, const struct eb_credentials *c,
                        struct eb_fault *fault);

#endif
