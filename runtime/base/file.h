/* file.h: files that are read, as memory or piece by piece. */
#ifndef EB_FILE_H
#define EB_FILE_H

#include <stdbool.h>

#include "base/alloc.h"

/* Bytes of a file: mapped, or borrowed from the caller (eb_bytes_borrow). */
struct eb_bytes {
    const uint8_t *data; /* never NULL once open, also for an empty file */
    size_t bytes;
    void *map; /* NULL: borrowed */
    /* Of a map: its number for guard.h, and the last byte that is not 0, if one stands in the last
     * page. */
    uint32_t watch;
    size_t probe;
    uint8_t probe_byte;
};

/* Maps a regular file read-only. IO (with the system's reason) or INVALID for a folder. */
int32_t eb_file_map(const char *path, struct eb_bytes *out, ebro_error *err);
void eb_bytes_borrow(const void *data, size_t bytes, struct eb_bytes *out);
/* With the guard of ebro_guard_install: IO, naming `label`, once the file was found shorter than it
 * was when it was mapped, or unreadable; what was read since may be zeros. Sticky. Cheap enough for
 * every step. Without the guard, and of borrowed bytes: always OK. */
int32_t eb_bytes_check(const struct eb_bytes *b, const char *label, ebro_error *err);
void eb_bytes_close(struct eb_bytes *b); /* zeroes *b; fine on a zeroed one */

/* Opens a regular file to be read piece by piece. IO, or INVALID for what is no file. */
int32_t eb_file_open(const char *path, int *fd, ebro_error *err);
/* As read(2), without EINTR. Below 0: *err is IO, its text the system's reason. */
int64_t eb_file_read(int fd, void *data, size_t bytes, ebro_error *err);
void eb_file_close(int *fd); /* sets -1; fine on -1 */

/* "dir/name" in new memory. */
char *eb_path_join(const struct eb_alloc *a, const char *dir, const char *name, ebro_error *err);
bool eb_path_is_dir(const char *path);
/* False only where there is nothing of that name. A link that leads nowhere, or a path that may not
 * be looked at, is there: opening it tells the reason. */
bool eb_path_exists(const char *path);

#endif
