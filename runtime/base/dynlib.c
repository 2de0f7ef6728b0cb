/* dynlib.c: shared libraries at run time, by absolute path only. Not its job: choosing which. */
#define _GNU_SOURCE /* dladdr */
#include "base/dynlib.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct eb_dynlib {
    void *handle;
};

int32_t eb_dynlib_open(const struct eb_alloc *a, const char *path, struct eb_dynlib **out,
                       ebro_error *err) {
    *out = NULL;
    if (path == NULL || path[0] != '/') {
        return eb_fail(err, EBRO_INVALID,
                       "\"%s\" is not an absolute path: a shared library is not searched for",
                       path != NULL ? path : "");
    }
    struct stat info;
    if (stat(path, &info) != 0) return eb_fail(err, EBRO_IO, "%s: %s", path, strerror(errno));
    struct eb_dynlib *lib = eb_calloc(a, 1, sizeof *lib, err);
    if (lib == NULL) return EBRO_NOMEM_HOST;
    /* RTLD_NOW: a missing symbol shows here, not in the middle of a request. */
    lib->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (lib->handle == NULL) {
        const char *reason = dlerror();
        eb_free(a, lib);
        return eb_fail(err, EBRO_UNSUPPORTED, "%s", reason != NULL ? reason : path);
    }
    *out = lib;
    return EBRO_OK;
}

void *eb_dynlib_symbol(struct eb_dynlib *lib, const char *name) {
    return dlsym(lib->handle, name);
}

void eb_dynlib_close(const struct eb_alloc *a, struct eb_dynlib **lib) {
    if (lib == NULL || *lib == NULL) return;
    dlclose((*lib)->handle);
    eb_free(a, *lib);
    *lib = NULL;
}

/* The file that the kernel says is mapped at `address`, into a buffer of getline's; NULL: unknown.
 * Right where dladdr is not: for a program dladdr gives argv[0], for a library whatever it was
 * opened by, and both may be relative to a working directory of the past. */
static char *mapped_file(uintptr_t address, char **line) {
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == NULL) return NULL;
    size_t capacity = 0;
    char *found = NULL;
    while (found == NULL && getline(line, &capacity, maps) > 0) {
        char *end;
        unsigned long long first = strtoull(*line, &end, 16);
        if (*end != '-') continue;
        unsigned long long last = strtoull(end + 1, &end, 16);
        if (address < first || address >= last) continue;
        found = strchr(end, '/');
        break;
    }
    fclose(maps);
    return found;
}

char *eb_dynlib_own_folder(const struct eb_alloc *a, const void *address, ebro_error *err) {
    char *line = NULL, *folder = NULL;
    const char *file = mapped_file((uintptr_t)address, &line);
    Dl_info info;
    if (file == NULL && dladdr(address, &info) != 0) file = info.dli_fname;
    if (file == NULL || file[0] != '/') {
        eb_fail(err, EBRO_IO, "the folder of the running library cannot be found");
    } else {
        size_t n = (size_t)(strrchr(file, '/') - file);
        folder = eb_strndup(a, file, n > 0 ? n : 1, err);
    }
    free(line);
    return folder;
}
