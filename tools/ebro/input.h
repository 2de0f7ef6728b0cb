/* input.h: all of stdin as one text. */
#ifndef EB_INPUT_H
#define EB_INPUT_H

#include <stddef.h>

struct eb_text {
    char *s; /* NUL-terminated, and may hold NUL bytes before; free with free() */
    size_t n;
};

/* Up to 256 MiB; `what` names it in complaints ("the prompt"). Returns an exit code. */
int eb_input_read(const char *what, struct eb_text *out);

#endif
