/* listen.h: the socket of a server: an address first, connections when it is ready for them. */
#ifndef EB_LISTEN_H
#define EB_LISTEN_H

#include <stdbool.h>
#include <stdint.h>

#include "ebro/ebro.h"

struct eb_listening {
    int fd;
    uint16_t port;
    bool everywhere; /* on all addresses of the machine */
    bool v6;
};

/* Takes the first address of the host that can be had. INVALID: no such host; IO: none can be had.
 */
int32_t eb_listen_bind(const char *host, uint16_t port, struct eb_listening *out, ebro_error *err);
/* Lets connections come. IO: another program was faster. */
int32_t eb_listen_start(const struct eb_listening *listening, ebro_error *err);

#endif
