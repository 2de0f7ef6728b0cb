/* buf.h: bytes that grow; and JSON values of bytes that need not be text. */
#ifndef EB_BUF_H
#define EB_BUF_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* {0} is empty. data is NULL while nothing was added; else data[n] is 0. */
struct eb_buf {
    char *data;
    size_t n, capacity;
};

/* False: no memory, and nothing was added. */
bool eb_buf_add(struct eb_buf *buf, const void *data, size_t n);
bool eb_buf_print(struct eb_buf *buf, const char *fmt, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
void eb_buf_free(struct eb_buf *buf);

/* A new JSON string of n bytes (s may be NULL where n is 0), with U+FFFD in place of every byte
 * that is no part of a UTF-8 character: so a text that is cut between characters gives the same for
 * every cut. NULL: no memory. */
json_t *eb_json_text(const char *s, size_t n);
/* Characters of such a string. */
size_t eb_json_text_length(const json_t *text);

#endif
