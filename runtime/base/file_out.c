/* file_out.c: see file_out.h. Not its job: what is written.
 *
 * Whoever writes a file holds its lock, and a lock goes with its process: a file of such a name
 * that can be locked was left by one that was killed. */
#define _GNU_SOURCE /* flock, realpath, sync_file_range */

#include "base/file_out.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Then "PID-TRY". Of its own length whatever the target is called: that may be as long as a name
 * can be. */
#define BESIDE ".ebro-save-"

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
    else if (real == NULL && errno == ENAMETOOLONG)
        st = eb_fail(err, EBRO_IO, "%s: %s", path, strerror(errno));
    else if (stat(target, &info) == 0 && !S_ISREG(info.st_mode))
        st = eb_fail(err, EBRO_INVALID, "%s: is not a regular file", path);
    else if ((f->target = eb_strndup(&f->alloc, target, strlen(target), err)) == NULL)
        st = EBRO_NOMEM_HOST;
    free(real);
    return st;
}

/* The target's folder, with its slash: bytes of the path; 0: the working directory. */
static size_t folder_bytes(const struct eb_file_out *f) {
    const char *slash = strrchr(f->target, '/');
    return slash != NULL ? (size_t)(slash - f->target) + 1 : 0;
}

/* ---- a file beside the target --------------------------------------------------------------- */

/* Is the open file the one of that name, no link to it? */
static bool is_named(int fd, int folder, const char *name) {
    struct stat here, there;
    return fstat(fd, &here) == 0 && fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

static bool is_number(const char *s, size_t n) {
    return n > 0 && strspn(s, "0123456789") >= n;
}

static bool is_beside_name(const char *name) {
    const size_t n = sizeof BESIDE - 1;
    if (strncmp(name, BESIDE, n) != 0) return false;
    const char *pid = name + n, *dash = strchr(pid, '-');
    return dash != NULL && is_number(pid, (size_t)(dash - pid)) &&
           is_number(dash + 1, strlen(dash + 1));
}

static void remove_if_left(int folder, const char *name) {
    int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat info;
    if (fd < 0) return;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        is_named(fd, folder, name))
        unlinkat(folder, name, 0);
    close(fd);
}

/* What processes that were killed have left in the folder. A folder that cannot be listed is no
 * error. */
static void remove_left(char *folder) {
    DIR *d = opendir(*folder != '\0' ? folder : ".");
    if (d == NULL) return;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (is_beside_name(e->d_name)) remove_if_left(dirfd(d), e->d_name);
    }
    closedir(d);
}

/* -1 with EEXIST: another name must be tried. */
static int open_locked(const char *name) {
    /* what somebody said is theirs alone to read */
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    /* Before it had its lock, another process may have taken it for one that was left. Where
     * nothing can be locked, nothing is removed either. */
    bool lost = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!lost && is_named(fd, AT_FDCWD, name)) return fd;
    close(fd);
    errno = EEXIST;
    return -1;
}

static int32_t open_beside(struct eb_file_out *f, ebro_error *err) {
    enum { ATTEMPTS = 1000, MORE_BYTES = 64 };
    size_t folder = folder_bytes(f), bytes = folder + MORE_BYTES;
    f->name = eb_calloc(&f->alloc, bytes, 1, err);
    if (f->name == NULL) return EBRO_NOMEM_HOST;
    memcpy(f->name, f->target, folder);
    remove_left(f->name);
    errno = EEXIST;
    for (int i = 0; i < ATTEMPTS && errno == EEXIST; i++) {
        snprintf(f->name + folder, bytes - folder, BESIDE "%ld-%d", (long)getpid(), i);
        f->fd = open_locked(f->name);
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
static void sync_folder(struct eb_file_out *f) {
    size_t n = folder_bytes(f);
    f->target[n] = '\0';
    int fd = open(n > 0 ? f->target : ".", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

int32_t eb_file_out_commit(struct eb_file_out *f, ebro_error *err) {
    int32_t st = EBRO_OK;
    if (fsync(f->fd) != 0) st = fail(f, "writing", err);
    /* Open until then: without its lock it would look like one that was left. */
    if (st == EBRO_OK && rename(f->name, f->target) != 0) st = fail(f, "renaming", err);
    if (st == EBRO_OK)
        sync_folder(f);
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
