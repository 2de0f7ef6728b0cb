/* json_in.c: see json_in.h. */
#include "json_in.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static json_t *cannot_read(json_error_t *why) {
    int cause = errno;
    *why = (json_error_t){.line = -1};
    /* the last byte is jansson's own */
    snprintf(why->text, sizeof why->text - 1, "%s", strerror(cause));
    return NULL;
}

json_t *eb_json_read_file(const char *path, size_t flags, json_error_t *why) {
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (!f) return cannot_read(why);
    errno = 0;
    json_t *all = json_loadf(f, flags, why);
    if (!all && ferror(f)) all = cannot_read(why);
    if (f != stdin) fclose(f);
    return all;
}

struct head {
    char *out;
    size_t n, most;
};

/* Stops the dump where the head is full: what follows may be long. */
static int add_head(const char *piece, size_t n, void *user) {
    struct head *h = user;
    size_t room = h->most - h->n, taken = n < room ? n : room;
    memcpy(h->out + h->n, piece, taken);
    h->n += taken;
    return taken == n ? 0 : -1;
}

void eb_json_shorten(const json_t *value, char *out, size_t bytes) {
    static const char more[] = "...";
    struct head h = {.out = out, .most = bytes - sizeof more};
    bool whole = json_dump_callback(value, add_head, &h,
                                    JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII |
                                        JSON_REAL_PRECISION(12)) == 0;
    snprintf(out + h.n, bytes - h.n, "%s", whole ? "" : more);
}
