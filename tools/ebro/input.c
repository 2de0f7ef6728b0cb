/* input.c: see input.h. */
#include "input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

int eb_input_read(const char *what, struct eb_text *out) {
    enum { LIMIT = 256 << 20 };
    size_t capacity = 1 << 16;
    out->n = 0;
    for (;;) {
        char *grown = realloc(out->s, capacity);
        if (!grown) {
            eb_complain("out of memory while reading %s from stdin", what);
            return EB_EXIT_MEMORY;
        }
        out->s = grown;
        out->n += fread(out->s + out->n, 1, capacity - 1 - out->n, stdin);
        if (out->n < capacity - 1) break;
        if (capacity >= LIMIT) {
            eb_complain("%s on stdin is longer than %d MiB", what, LIMIT >> 20);
            return EB_EXIT_USAGE;
        }
        capacity *= 2;
    }
    if (ferror(stdin)) {
        eb_complain("cannot read %s from stdin: %s", what, strerror(errno));
        return EB_EXIT_USAGE;
    }
    out->s[out->n] = '\0';
    return EB_EXIT_OK;
}
