/* safetensors_out.c: see safetensors_out.h. */
#define _XOPEN_SOURCE 700 /* realpath */

#include "safetensors_out.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALIGNMENT = 64, MAX_HEADER = 4096 };

static uint64_t elements(const struct eb_out_tensor *t) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->n_dims; d++) n *= t->shape[d];
    return n;
}

/* Length prefix and JSON, padded with blanks. Returns its bytes; 0: it does not fit. */
static size_t make_header(const struct eb_out_tensor *tensors, size_t n, char *out, size_t bytes) {
    size_t at = 8;
    uint64_t offset = 0;
    out[at++] = '{';
    for (size_t i = 0; i < n; i++) {
        const struct eb_out_tensor *t = &tensors[i];
        char shape[48] = "";
        for (uint32_t d = 0, w = 0; d < t->n_dims; d++)
            w += (uint32_t)snprintf(shape + w, sizeof shape - w, "%s%" PRIu64, d ? "," : "",
                                    t->shape[d]);
        uint64_t end = offset + 4 * elements(t);
        int w = snprintf(out + at, bytes - at,
                         "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%" PRIu64
                         ",%" PRIu64 "]}",
                         i ? "," : "", t->name, t->dtype, shape, offset, end);
        if (w < 0 || (size_t)w >= bytes - at) return 0;
        at += (size_t)w;
        offset = end;
    }
    if (bytes - at < 1 + ALIGNMENT) return 0;
    out[at++] = '}';
    while (at % ALIGNMENT != 0) out[at++] = ' ';
    uint64_t json = at - 8;
    for (int i = 0; i < 8; i++) out[i] = (char)(unsigned char)(json >> (8 * i));
    return at;
}

/* The container is little-endian whatever the machine is. */
static bool write_elements(FILE *f, const struct eb_out_tensor *t) {
    unsigned char buffer[4 * 4096];
    const unsigned char *p = t->data;
    size_t used = 0;
    for (uint64_t left = elements(t); left > 0; left--, p += 4) {
        uint32_t v;
        memcpy(&v, p, 4);
        for (int b = 0; b < 4; b++) buffer[used++] = (unsigned char)(v >> (8 * b));
        if (used == sizeof buffer || left == 1) {
            if (fwrite(buffer, 1, used, f) != used) return false;
            used = 0;
        }
    }
    return true;
}

static bool write_all(FILE *f, const struct eb_out_tensor *tensors, size_t n) {
    char header[MAX_HEADER];
    size_t bytes = make_header(tensors, n, header, sizeof header);
    if (bytes == 0) {
        errno = EOVERFLOW;
        return false;
    }
    if (fwrite(header, 1, bytes, f) != bytes) return false;
    for (size_t i = 0; i < n; i++)
        if (!write_elements(f, &tensors[i])) return false;
    return fflush(f) == 0;
}

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

bool eb_safetensors_write(const char *path, const struct eb_out_tensor *tensors, size_t n,
                          char *text, size_t text_bytes) {
    bool ok = false;
    FILE *f = NULL;
    size_t name_bytes = 0;
    char *name = NULL;
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
    ok = write_all(f, tensors, n) && (direct || fsync(fileno(f)) == 0);
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
