/* runtime.h: the inside of an ebro_runtime: allocator, log, and the modules it found. */
#ifndef EB_RUNTIME_H
#define EB_RUNTIME_H

#include "base/alloc.h"
#include "base/dynlib.h"
#include "base/log.h"
#include "ebro/backend.h"

enum { EB_MAX_MODULES = 16 };

/* One module file that was found. Immutable after ebro_runtime_open. */
struct eb_module {
    struct eb_dynlib *lib;
    const ebro_backend *backend; /* NULL: unusable, see error */
    char file[64];
    ebro_error error;
};

struct ebro_runtime {
    struct eb_alloc alloc;
    struct eb_log log;
    ebro_host host; /* host.user is this runtime */
    char *module_dir;
    char *cache_dir; /* NULL: none */
    struct eb_module modules[EB_MAX_MODULES];
    uint32_t n_modules;
};

#endif
