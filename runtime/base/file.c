/* file.c: read-only files as memory, and questions about paths. Not its job: writing files. A file
 * that another program shortens while it is mapped cannot be defended against here: reading past
 * its new end raises SIGBUS. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What an empty file's data points at: such a file cannot be mapped. */
static const uint8_t nothing[1];

int32_t eb_file_map(const char *path, struct eb_bytes *out, ebro_error *err) {
    int32_t st = EBRO_OK;
    memset(out, 0, sizeof *out);
    /* O_NONBLOCK: opening a pipe must not wait for its writer. It means nothing to a file. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return eb_fail(err, EBRO_IO, "%s: %s", path, strerror(errno));
    struct stat info;
    if (fstat(fd, &info) != 0) {
        st = eb_fail(err, EBRO_IO, "%s: %s", path, strerror(errno));
        goto out;
    }
    if (S_ISDIR(info.st_mode)) {
        st = eb_fail(err, EBRO_INVALID, "%s: is a folder, not a file", path);
        goto out;
    }
    if (!S_ISREG(info.st_mode)) {
        st = eb_fail(err, EBRO_INVALID, "%s: is not a regular file", path);
        goto out;
    }
    if (info.st_size == 0) {
        eb_bytes_borrow(nothing, 0, out);
        goto out;
    }
    if ((uint64_t)info.st_size > PTRDIFF_MAX) {
        st = eb_fail(err, EBRO_IO, "%s: %llu bytes are more than can be mapped", path,
                     (unsigned long long)info.st_size);
        goto out;
    }
    size_t bytes = (size_t)info.st_size;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        /* No room in the address space says nothing about the file. */
        int32_t why = errno == ENOMEM ? EBRO_NOMEM_HOST : EBRO_IO;
        st = eb_fail(err, why, "%s: mapping %zu bytes: %s", path, bytes, strerror(errno));
        goto out;
    }
    out->data = map;
    out->bytes = bytes;
    out->map = map;
out:
    close(fd);
    return st;
}

void eb_bytes_borrow(const void *data, size_t bytes, struct eb_bytes *out) {
    out->data = data != NULL ? data : nothing;
    out->bytes = bytes;
    out->map = NULL;
}

void eb_bytes_close(struct eb_bytes *b) {
    if (b == NULL) return;
    if (b->map != NULL) munmap(b->map, b->bytes);
    memset(b, 0, sizeof *b);
}

char *eb_path_join(const struct eb_alloc *a, const char *dir, const char *name, ebro_error *err) {
    size_t n_dir = strlen(dir), n_name = strlen(name);
    bool slash = n_dir > 0 && dir[n_dir - 1] != '/';
    char *path = eb_calloc(a, n_dir + (slash ? 1 : 0) + n_name + 1, 1, err);
    if (path == NULL) return NULL;
    memcpy(path, dir, n_dir);
    if (slash) path[n_dir++] = '/';
    memcpy(path + n_dir, name, n_name);
    return path;
}

bool eb_path_is_dir(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool eb_path_exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}
