/* json_in.c: see json_in.h. */
#include "json_in.h"

#include <errno.h>
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
