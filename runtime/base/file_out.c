/* file_out.c: see file_out.h. Not its job: what is written. */
#define _GNU_SOURCE /* realpath, sync_file_range */

#include "base/file_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int32_t fail(const struct eb_file_out *f, const char *what, ebro_error *err) {
    return eb_fail(err, EBRO_IO, "%s: %s: %s", f->target, what, strerror(errno));
}

/* The file that `path` names, through links; `path` itself where nothing is there yet. */
static int32_t find_target(const char *path, struct eb_file_out *f, ebro_error *err) {
    struct stat info;
    char *real = realpath(path, NULL);
    const char *target = real != NULL ? real : path;
    int32_t st = EBRO_OK;
    if (real == NULL && lstat(path, &info) == 0 && S_ISLNK(info.st_mode))
        st = eb_fail(err, EBRO_IO, "%s: is a link to a file that is not there", path);
    else if (stat(target, &info) == 0 && !S_ISREG(info.st_mode))
        st = eb_fail(err, EBRO_INVALID, "%s: is not a regular file", path);
    else if ((f->target = eb_strndup(&f->alloc, target, strlen(target), err)) == NULL)
        st = EBRO_NOMEM_HOST;
    free(real);
    return st;
}

/* A file of a new name beside the target. */
static int32_t open_beside(struct eb_file_out *f, ebro_error *err) {
    enum { ATTEMPTS = 1000, MORE_BYTES = 64 };
    size_t bytes = strlen(f->target) + MORE_BYTES;
    f->name = eb_calloc(&f->alloc, bytes, 1, err);
    if (f->name == NULL) return EBRO_NOMEM_HOST;
    errno = EEXIST;
    for (int i = 0; i < ATTEMPTS && errno == EEXIST; i++) {
        snprintf(f->name, bytes, "%s.tmp-%ld-%d", f->target, (long)getpid(), i);
        /* what somebody said is theirs alone to read */
        f->fd = open(f->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (f->fd >= 0) return EBRO_OK;
    }
    return fail(f, "making a file beside it", err);
}

static void release(struct eb_file_out *f) {
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
    eb_free(&f->alloc, f->name);
    eb_free(&f->alloc, f->target);
    f->name = f->target = NULL;
}

int32_t eb_file_out_open(const struct eb_alloc *a, const char *path, struct eb_file_out *out,
                         ebro_error *err) {
    *out = (struct eb_file_out){.alloc = *a, .fd = -1};
    int32_t st = find_target(path, out, err);
    if (st == EBRO_OK) st = open_beside(out, err);
    if (st != EBRO_OK) release(out);
    return st;
}

/* Large files: the disk writes while the rest is still being made. Whether it could, the sync of
 * all says at the end. */
static void flush_early(struct eb_file_out *f) {
#if defined(SYNC_FILE_RANGE_WRITE)
    enum { LEAST = 4 << 20 };
    if (f->at - f->flushed < LEAST) return;
    sync_file_range(f->fd, (off_t)f->flushed, (off_t)(f->at - f->flushed), SYNC_FILE_RANGE_WRITE);
    f->flushed = f->at;
#else
    (void)f;
#endif
}

int32_t eb_file_out_write(struct eb_file_out *f, const void *data, size_t bytes, ebro_error *err) {
    const char *p = data;
    while (bytes > 0) {
        /* pwrite: the library has no other use for write, which could also print */
        ssize_t n = pwrite(f->fd, p, bytes, (off_t)f->at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(f, "writing", err);
        p += n;
        f->at += (uint64_t)n;
        bytes -= (size_t)n;
    }
    flush_early(f);
    return EBRO_OK;
}

/* The new name must survive a power cut too. A file system that cannot sync a folder is no error.
 */
static void sync_folder(char *path) {
    char *slash = strrchr(path, '/');
    if (slash != NULL) slash[slash == path] = '\0';
    int fd = open(slash != NULL ? path : ".", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

int32_t eb_file_out_commit(struct eb_file_out *f, ebro_error *err) {
    int32_t st = EBRO_OK;
    if (fsync(f->fd) != 0) st = fail(f, "writing", err);
    int closed = close(f->fd);
    f->fd = -1;
    if (st == EBRO_OK && closed != 0) st = fail(f, "writing", err);
    if (st == EBRO_OK && rename(f->name, f->target) != 0) st = fail(f, "renaming", err);
    if (st == EBRO_OK)
        sync_folder(f->target);
    else
        unlink(f->name);
    release(f);
    return st;
}

void eb_file_out_abandon(struct eb_file_out *f) {
    if (f->name == NULL) return;
    unlink(f->name);
    release(f);
}
