/* file_out.h: writes a file whole or not at all, and tells whether two names are of one file. */
#ifndef EB_FILE_OUT_H
#define EB_FILE_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* `write` fills the file and returns false, with errno set, when it cannot. The file appears under
 * `path` when it is complete and on disk; until then it has another name in the same folder, and
 * after a failure it is gone. A link stays a link, and its target is replaced; one that leads
 * nowhere is refused. What is no regular file (a pipe, /dev/stdout) is written directly. False:
 * `text` says what went wrong. */
bool eb_file_write(const char *path, bool (*write)(FILE *f, const void *user), const void *user,
                   char *text, size_t text_bytes);

/* Both names lead to one regular file, or would: writing to the one would replace the other. False
 * where one is NULL. */
bool eb_file_same(const char *a, const char *b);

#endif
