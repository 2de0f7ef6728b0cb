/* file_out.c: see file_out.h. */
#define _XOPEN_SOURCE 700 /* realpath */

#include "file_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Locked, as what the library saves is, so that it does not take the file for one that a killed
 * process has left. -1 with EEXIST: it just did, or there is one of that name. */
static int open_locked(const char *name) {
    struct stat here, there;
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return -1;
    bool lost = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!lost && fstat(fd, &here) == 0 && stat(name, &there) == 0 && here.st_ino == there.st_ino)
        return fd;
    close(fd);
    errno = EEXIST;
    return -1;
}

/* A file of a new name beside `path`, as the library gives it, too: ".ebro-save-PID-TRY". It is no
 * longer for a long `path`. */
static FILE *open_beside(const char *path, char *name, size_t name_bytes) {
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0;
    for (int attempt = 0; attempt < 100; attempt++) {
        snprintf(name, name_bytes, "%.*s.ebro-save-%ld-%d", folder, path, (long)getpid(), attempt);
        int fd = open_locked(name);
        if (fd < 0 && errno == EEXIST) continue;
        if (fd < 0) return NULL;
        FILE *f = fdopen(fd, "wb");
        if (f) return f;
        int error = errno;
        close(fd);
        unlink(name);
        errno = error;
        return NULL;
    }
    return NULL;
}

/* The new name must survive a power cut too. A file system that cannot sync a folder is no error.
 */
static void sync_folder(const char *path) {
    char *folder = strdup(path);
    if (!folder) return;
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = '\0';
    int fd = open(slash ? folder : ".", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

static bool leads_nowhere(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && stat(path, &st) != 0;
}

bool eb_file_write(const char *path, bool (*write)(FILE *f, const void *user), const void *user,
                   char *text, size_t text_bytes) {
    bool ok = false;
    FILE *f = NULL;
    size_t name_bytes = 0;
    char *name = NULL;
    if (leads_nowhere(path)) {
        snprintf(text, text_bytes, "cannot write %s: it is a link to a file that is not there",
                 path);
        return false;
    }
    /* a link stays a link: its target is replaced */
    char *real = realpath(path, NULL);
    const char *target = real ? real : path;
    struct stat st;
    bool direct = stat(target, &st) == 0 && !S_ISREG(st.st_mode);

    if (direct) {
        f = fopen(target, "wb");
    } else {
        name_bytes = strlen(target) + 64;
        name = calloc(1, name_bytes);
        if (name) f = open_beside(target, name, name_bytes);
    }
    if (!f) goto out;
    ok = write(f, user) && fflush(f) == 0 && (direct || fsync(fileno(f)) == 0);
    /* before it is closed, which unlocks it; after the sync closing can find nothing more */
    if (ok && !direct) ok = rename(name, target) == 0;
    int error = errno;
    if (fclose(f) != 0 && ok && direct) {
        ok = false;
        error = errno;
    }
    errno = error;
    if (ok && !direct) sync_folder(target);
    if (!ok && !direct) {
        error = errno;
        unlink(name);
        errno = error;
    }
out:
    if (!ok) snprintf(text, text_bytes, "cannot write %s: %s", path, strerror(errno));
    free(name);
    free(real);
    return ok;
}

/* The folder that the name lies in. */
static bool stat_folder(const char *path, struct stat *out) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    bool ok = folder && stat(folder, out) == 0;
    free(folder);
    return ok;
}

static bool is_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool eb_file_same(const char *a, const char *b) {
    struct stat one, other;
    if (!a || !b) return false;
    bool there = stat(a, &one) == 0;
    if (there != (stat(b, &other) == 0)) return false;
    if (there) return S_ISREG(one.st_mode) && is_same(&one, &other);
    const char *slash_a = strrchr(a, '/'), *slash_b = strrchr(b, '/');
    if (strcmp(slash_a ? slash_a + 1 : a, slash_b ? slash_b + 1 : b) != 0) return false;
    return stat_folder(a, &one) && stat_folder(b, &other) && is_same(&one, &other);
}
