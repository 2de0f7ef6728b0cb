/* mhd.c: see mhd.h. */
#include "mhd.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define CHECK(name, result, parameters)                                          \
    _Static_assert(_Generic(&MHD_##name, result(*) parameters : 1, default : 0), \
                   #name " is not what microhttpd.h says");
EB_MHD_CALLS(CHECK)

static const struct eb_mhd *fail(ebro_error *err, const char *what, const char *why) {
    err->status = EBRO_UNSUPPORTED;
    snprintf(
        err->text, sizeof err->text,
        "%s: %s; the package libmicrohttpd12 of Debian and Ubuntu has it (libmicrohttpd12t64 in "
        "newer ones)",
        what, why ? why : "no reason given");
    return NULL;
}

const struct eb_mhd *eb_mhd_load(ebro_error *err) {
    static const char library[] = "libmicrohttpd.so.12";
    static struct eb_mhd found;
    static bool loaded;
    if (loaded) return &found;
    /* never closed: GnuTLS, which comes with it, is not made for that */
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return fail(err, "libmicrohttpd cannot be loaded", dlerror());
    void *symbol = NULL;
#define FIND(name, result, parameters)                                  \
    symbol = dlsym(handle, "MHD_" #name);                               \
    if (!symbol) return fail(err, library, "MHD_" #name " is missing"); \
    memcpy(&found.name, &symbol, sizeof symbol);
    EB_MHD_CALLS(FIND)
    loaded = true;
    return &found;
}
