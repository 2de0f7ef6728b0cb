/* no_http.c: http.h where libmicrohttpd was not there to build with: no server can be opened, so
 * that nothing else of it is ever called with one. */
#include <stdio.h>

#include "http.h"

int32_t eb_http_open(const struct eb_http_options *options, struct eb_http **out, ebro_error *err) {
    (void)options;
    *out = NULL;
    err->status = EBRO_UNSUPPORTED;
    snprintf(
        err->text, sizeof err->text,
        "this program was built without libmicrohttpd (libmicrohttpd-dev), which a server needs");
    return err->status;
}

int32_t eb_http_start(struct eb_http *http, ebro_error *err) {
    (void)http;
    return err->status = EBRO_INVALID;
}

uint16_t eb_http_port(const struct eb_http *http) {
    (void)http;
    return 0;
}

bool eb_http_is_everywhere(const struct eb_http *http) {
    (void)http;
    return false;
}

void eb_http_stop(struct eb_http *http) {
    (void)http;
}

void eb_http_close(struct eb_http **http) {
    (void)http;
}
