/* file.h: read-only files as memory. */
#ifndef EB_FILE_H
#define EB_FILE_H

#include <stdbool.h>

#include "base/alloc.h"

/* Bytes of a file: mapped, or borrowed from the caller (eb_bytes_borrow). */
struct eb_bytes {
    const uint8_t *data; /* never NULL once open, also for an empty file */
    size_t bytes;
    void *map; /* NULL: borrowed */
};

/* Maps a regular file read-only. IO (with the system's reason) or INVALID for a folder. */
int32_t eb_file_map(const char *path, struct eb_bytes *out, ebro_error *err);
void eb_bytes_borrow(const void *data, size_t bytes, struct eb_bytes *out);
void eb_bytes_close(struct eb_bytes *b); /* zeroes *b; fine on a zeroed one */

/* "dir/name" in new memory. */
char *eb_path_join(const struct eb_alloc *a, const char *dir, const char *name, ebro_error *err);
bool eb_path_is_dir(const char *path);
/* False only where there is nothing of that name. A link that leads nowhere, or a path that may not
 * be looked at, is there: opening it tells the reason. */
bool eb_path_exists(const char *path);

#endif
