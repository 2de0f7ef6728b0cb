/* file.c: files that are read, as memory or piece by piece, and questions about paths. Not its job:
 * writing files (file_out.c), and the SIGBUS that reading a file which another program has
 * shortened raises (guard.c). */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/guard.h"

/* What an empty file's data points at: such a file cannot be mapped. */
static const uint8_t nothing[1];

/* A file that loses its end either loses whole pages, and reading them tells, or the bytes at the
 * end of a page become zeros, among them the last one that was not. */
static void choose_probe(struct eb_bytes *b) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t first = (b->bytes - 1) / page * page;
    b->probe = b->bytes - 1;
    while (b->probe > first && b->data[b->probe] == 0) b->probe--;
    b->probe_byte = b->data[b->probe];
}

/* Nothing is open after an error. */
static int32_t open_regular(const char *path, int *fd, struct stat *info, ebro_error *err) {
    int32_t st = EBRO_OK;
    /* O_NONBLOCK: opening a pipe must not wait for its writer. It means nothing to a file. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return eb_fail(err, EBRO_IO, "%s: %s", path, strerror(errno));
    if (fstat(*fd, info) != 0)
        st = eb_fail(err, EBRO_IO, "%s: %s", path, strerror(errno));
    else if (S_ISDIR(info->st_mode))
        st = eb_fail(err, EBRO_INVALID, "%s: is a folder, not a file", path);
    else if (!S_ISREG(info->st_mode))
        st = eb_fail(err, EBRO_INVALID, "%s: is not a regular file", path);
    if (st != EBRO_OK) eb_file_close(fd);
    return st;
}

int32_t eb_file_open(const char *path, int *fd, ebro_error *err) {
    struct stat info;
    return open_regular(path, fd, &info, err);
}

int64_t eb_file_read(int fd, void *data, size_t bytes, ebro_error *err) {
    for (;;) {
        ssize_t n = read(fd, data, bytes);
        if (n >= 0) return n;
        if (errno == EINTR) continue;
        eb_fail(err, EBRO_IO, "%s", strerror(errno));
        return -1;
    }
}

void eb_file_close(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

int32_t eb_file_map(const char *path, struct eb_bytes *out, ebro_error *err) {
    struct stat info;
    int fd;
    memset(out, 0, sizeof *out);
    int32_t st = open_regular(path, &fd, &info, err);
    if (st != EBRO_OK) return st;
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
    out->watch = eb_guard_watch(map, bytes);
    if (out->watch == 0) {
        eb_bytes_close(out);
        st = eb_fail(err, EBRO_UNSUPPORTED, "%s: %d files are mapped already, no more can be", path,
                     EB_GUARD_MAX);
        goto out;
    }
    choose_probe(out);
out:
    close(fd);
    return st;
}

void eb_bytes_borrow(const void *data, size_t bytes, struct eb_bytes *out) {
    *out = (struct eb_bytes){0};
    out->data = data != NULL ? data : nothing;
    out->bytes = bytes;
}

int32_t eb_bytes_check(const struct eb_bytes *b, const char *label, ebro_error *err) {
    if (b->map == NULL || !eb_guard_is_installed()) return EBRO_OK;
    const volatile uint8_t *probe = b->data + b->probe;
    if (*probe == b->probe_byte && !eb_guard_was_hit(b->watch)) return EBRO_OK;
    return eb_fail(err, EBRO_IO,
                   "%s shrank while it was in use, or can no longer be read: it had %zu bytes; "
                   "open the model again when the file is whole",
                   label, b->bytes);
}

void eb_bytes_close(struct eb_bytes *b) {
    if (b == NULL) return;
    /* In this order: the addresses may be another mapping's as soon as they are free. */
    eb_guard_release(b->watch);
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
