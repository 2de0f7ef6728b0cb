/* quote.h: any bytes as one line that can be read, and read back. Also tells text from bytes. */
#ifndef EB_QUOTE_H
#define EB_QUOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Bytes of the UTF-8 character at `s`, of which n are there; 0: none starts here. */
size_t eb_utf8_length(const char *s, size_t n);
/* All of it is UTF-8. */
bool eb_utf8_is(const char *s, size_t n);
/* A new text (free it) with U+FFFD in place of every byte that is not UTF-8, and of NUL bytes; NULL
 * when out of memory. */
char *eb_utf8_clean(const char *s, size_t n);

/* "text" with \" \\ \n \r \t, and \xNN for every other byte that is no printable character. */
void eb_quote(FILE *f, const char *s, size_t n);

#endif
