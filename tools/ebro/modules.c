/* modules.c: see modules.h. The runtime is linked into the program and would look for modules in
 * the program's folder alone: right in a build folder, but installed they lie beside the library.
 */
#include "modules.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* From the program's folder; set where things are installed. */
#ifndef EBRO_BIN_TO_LIB
#define EBRO_BIN_TO_LIB "../lib"
#endif

static bool has_modules(const char *path) {
    const char prefix[] = "ebro_", suffix[] = ".so";
    bool found = false;
    DIR *dir = opendir(path);
    for (const struct dirent *e; dir && !found && (e = readdir(dir)) != NULL;) {
        size_t n = strlen(e->d_name), tail = sizeof suffix - 1;
        found = n > sizeof prefix - 1 + tail &&
                strncmp(e->d_name, prefix, sizeof prefix - 1) == 0 &&
                strcmp(e->d_name + n - tail, suffix) == 0;
    }
    if (dir) closedir(dir);
    return found;
}

bool eb_modules_folder(char *path, size_t capacity) {
    char own[4096];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    if (n <= 0) return false;
    own[n] = '\0';
    char *slash = strrchr(own, '/');
    if (!slash) return false;
    *slash = '\0';
    if (has_modules(own)) return false;
    n = snprintf(path, capacity, "%s/%s", own, EBRO_BIN_TO_LIB);
    return n > 0 && (size_t)n < capacity && has_modules(path);
}

/* Makes the folders of an absolute path that are missing; false: it is no folder in the end. */
static bool make_folders(const char *path) {
    char part[4096];
    struct stat st;
    for (const char *p = strchr(path + 1, '/');; p = strchr(p + 1, '/')) {
        size_t n = p ? (size_t)(p - path) : strlen(path);
        if (n >= sizeof part) return false;
        memcpy(part, path, n);
        part[n] = '\0';
        (void)mkdir(part, 0700);
        if (!p) break;
    }
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool eb_cache_folder(const char *given, char *path, size_t capacity) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char own[4096];
    int n = -1;
    if (given && strcmp(given, "none") == 0) return false;
    if (given && given[0] == '/') {
        n = snprintf(path, capacity, "%s", given);
    } else if (given) {
        if (getcwd(own, sizeof own)) n = snprintf(path, capacity, "%s/%s", own, given);
    } else if (xdg && xdg[0] == '/') {
        n = snprintf(path, capacity, "%s/ebro", xdg);
    } else if (home && home[0] == '/') {
        n = snprintf(path, capacity, "%s/.cache/ebro", home);
    }
    return n > 0 && (size_t)n < capacity && make_folders(path);
}
