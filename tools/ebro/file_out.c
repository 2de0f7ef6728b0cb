/* file_out.c: see file_out.h. */
#define _XOPEN_SOURCE 700 /* realpath */

#include "file_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file of a new name beside `path`, "PATH.tmp-PID-TRY". */
static FILE *open_beside(const char *path, char *name, size_t name_bytes) {
    for (int attempt = 0; attempt < 100; attempt++) {
        int w = snprintf(name, name_bytes, "%s.tmp-%ld-%d", path, (long)getpid(), attempt);
        if (w < 0 || (size_t)w >= name_bytes) {
            errno = ENAMETOOLONG;
            return NULL;
        }
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
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
    int error = errno;
    if (fclose(f) != 0 && ok) {
        ok = false;
        error = errno;
    }
    errno = error;
    if (ok && !direct) {
        ok = rename(name, target) == 0;
        if (ok) sync_folder(target);
    }
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
