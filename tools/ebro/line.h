/* line.h: what a person types, line by line: with editing and history on a terminal where the build
 * has libedit, as plain lines otherwise. The only file that knows libedit. */
#ifndef EB_LINE_H
#define EB_LINE_H

#include <stddef.h>

enum eb_line_result {
    EB_LINE_OK,
    EB_LINE_END,         /* the end of the input (ctrl-D) */
    EB_LINE_INTERRUPTED, /* ctrl-C; what was typed is gone */
    EB_LINE_FAILED       /* out of memory, or stdin cannot be read: errno */
};

struct eb_lines; /* one at a time: it holds the terminal's settings */

/* NULL: out of memory. */
struct eb_lines *eb_lines_open(void);
void eb_lines_close(struct eb_lines **l); /* NULL-safe */

/* The next line without its newline: new memory (free it) of *n bytes and a NUL. Lines that end
 * with a backslash are joined with the ones behind them. "> " is shown where stdin is a terminal.
 */
enum eb_line_result eb_lines_read(struct eb_lines *l, char **out, size_t *n);

#endif
