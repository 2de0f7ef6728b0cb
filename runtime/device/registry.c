/* registry.c: opens a runtime: finds the backend modules in one folder and admits those of this
 * ABI. Which devices they offer is find.c's job, opening one is device.c's. */
#include "device/registry.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"

/* The modules there can be, the most capable first: the order of device lists, and of the choice
 * when no device is named. A fixed list, so that a stray file is never loaded. CUDA stands behind
 * the CPU, taken where it is named, until its kernels have run on a GPU. */
static const char *const module_names[] = {"hip", "vulkan", "opencl", "cpu", "cuda", "null"};
enum { N_NAMES = sizeof module_names / sizeof module_names[0] };
_Static_assert((int)N_NAMES <= (int)EB_MAX_MODULES, "a runtime has room for every module");

/* ---- host services ---------------------------------------------------------------------- */

static void *host_realloc(void *user, void *p, size_t n) {
    const ebro_runtime *rt = user;
    if (n == 0) {
        eb_free(&rt->alloc, p);
        return NULL;
    }
    return eb_realloc(&rt->alloc, &p, n, 1, NULL) == EBRO_OK ? p : NULL;
}

static void host_log(void *user, int32_t level, const char *fmt, ...) {
    const ebro_runtime *rt = user;
    if (rt->log.sink == NULL || level > rt->log.level) return;
    char text[2048];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n >= 0) eb_log(&rt->log, level, "%s", text);
}

/* ---- admission -------------------------------------------------------------------------- */

/* The name of the first required function that a table lacks, or NULL. */
static const char *missing_entry(const ebro_backend *b) {
#define NEEDS(entry) \
    if (b->entry == NULL) return #entry
    NEEDS(probe);
    NEEDS(device_open);
    NEEDS(device_close);
    NEEDS(device_caps);
    NEEDS(mem_alloc);
    NEEDS(mem_free);
    NEEDS(stream_open);
    NEEDS(stream_close);
    NEEDS(copy);
    NEEDS(fill);
    NEEDS(submit);
    NEEDS(wait);
    NEEDS(scratch_bytes);
#define NEEDS_OP(N, name) \
    if (EBRO_OP_##N != EBRO_OP_KDA_STEP) NEEDS(name);
    EBRO_OPS(NEEDS_OP)
#undef NEEDS_OP
    if (b->graph_begin != NULL || b->graph_end != NULL || b->graph_launch != NULL ||
        b->graph_free != NULL) {
        NEEDS(graph_begin);
        NEEDS(graph_end);
        NEEDS(graph_launch);
        NEEDS(graph_free);
    }
#undef NEEDS
    return NULL;
}

int32_t eb_registry_admit(ebro_backend_entry_fn entry, const ebro_host *host, const char *name,
                          const ebro_backend **out, ebro_error *err) {
    *out = NULL;
    const ebro_backend *table = NULL;
    int32_t st = entry(EBRO_BACKEND_ABI, host, &table);
    if (st == EBRO_UNSUPPORTED) {
        return eb_fail(err, st, "is built for another module ABI than this runtime's, %u",
                       EBRO_BACKEND_ABI);
    }
    if (st != EBRO_OK) return eb_fail(err, st, "its entry returned %s", ebro_status_name(st));
    if (table == NULL) return eb_fail(err, EBRO_FORMAT, "its entry gave no table");
    /* Nothing behind `abi` means anything until this number is known. */
    if (table->abi != EBRO_BACKEND_ABI) {
        return eb_fail(err, EBRO_UNSUPPORTED, "is built for module ABI %u, this runtime's is %u",
                       table->abi, EBRO_BACKEND_ABI);
    }
    if (table->size < sizeof *table) {
        return eb_fail(err, EBRO_FORMAT, "its table has %zu bytes, %zu are needed", table->size,
                       sizeof *table);
    }
    if (table->name == NULL || strcmp(table->name, name) != 0) {
        return eb_fail(err, EBRO_FORMAT, "calls itself \"%s\", by its file name it is \"%s\"",
                       table->name != NULL ? table->name : "", name);
    }
    const char *missing = missing_entry(table);
    if (missing != NULL) {
        return eb_fail(err, EBRO_FORMAT, "its table lacks the function %s", missing);
    }
    *out = table;
    return EBRO_OK;
}

/* ---- modules ---------------------------------------------------------------------------- */

static int32_t load_module(ebro_runtime *rt, const char *path, const char *name,
                           struct eb_module *m) {
    int32_t st = eb_dynlib_open(&rt->alloc, path, &m->lib, &m->error);
    if (st != EBRO_OK) return st;
    void *symbol = eb_dynlib_symbol(m->lib, EBRO_BACKEND_ENTRY);
    if (symbol == NULL) {
        return eb_fail(&m->error, EBRO_FORMAT, "has no symbol %s: it is not an Ebro module",
                       EBRO_BACKEND_ENTRY);
    }
    /* ISO C has no cast from an object pointer to a function pointer; POSIX says they agree. */
    ebro_backend_entry_fn entry;
    memcpy(&entry, &symbol, sizeof entry);
    return eb_registry_admit(entry, &rt->host, name, &m->backend, &m->error);
}

/* An absent file is passed over; an unusable one is kept with its reason. */
static int32_t find_module(ebro_runtime *rt, const char *name, ebro_error *err) {
    struct eb_module *m = &rt->modules[rt->n_modules];
    snprintf(m->file, sizeof m->file, "ebro_%s.so", name);
    char *path = eb_path_join(&rt->alloc, rt->module_dir, m->file, err);
    if (path == NULL) return EBRO_NOMEM_HOST;
    int32_t st = EBRO_OK;
    if (!eb_path_exists(path)) goto out;
    rt->n_modules++;
    st = load_module(rt, path, name, m);
    if (st == EBRO_OK) {
        eb_log(&rt->log, EBRO_LOG_DEBUG, "module %s loaded", path);
        goto out;
    }
    eb_log(&rt->log, EBRO_LOG_INFO, "module %s is unusable: %s", path, m->error.text);
    eb_dynlib_close(&rt->alloc, &m->lib);
    /* That says nothing about the module. */
    st = st == EBRO_NOMEM_HOST ? eb_fail(err, st, "%s", m->error.text) : EBRO_OK;
out:
    eb_free(&rt->alloc, path);
    return st;
}

static int32_t find_modules(ebro_runtime *rt, const char *module_dir, ebro_error *err) {
    if (module_dir != NULL && module_dir[0] != '/') {
        return eb_fail(err, EBRO_INVALID, "module_dir \"%s\" is not an absolute path", module_dir);
    }
    /* The function itself stands for "the library or program that we are part of". */
    int32_t (*here)(ebro_runtime *, const char *, ebro_error *) = find_modules;
    const void *address;
    memcpy(&address, &here, sizeof address);
    rt->module_dir = module_dir != NULL
                         ? eb_strndup(&rt->alloc, module_dir, strlen(module_dir), err)
                         : eb_dynlib_own_folder(&rt->alloc, address, err);
    if (rt->module_dir == NULL) {
        return eb_while(err, EBRO_IO, "finding the folder of the backend modules");
    }
    if (!eb_path_is_dir(rt->module_dir)) {
        return eb_fail(err, EBRO_IO, "%s: no such folder; while finding the backend modules",
                       rt->module_dir);
    }
    for (uint32_t i = 0; i < N_NAMES; i++) {
        int32_t st = find_module(rt, module_names[i], err);
        if (st != EBRO_OK) return eb_while(err, st, "looking for backend %s", module_names[i]);
    }
    return EBRO_OK;
}

static int32_t keep_cache_dir(ebro_runtime *rt, const char *cache_dir, ebro_error *err) {
    if (cache_dir == NULL) return EBRO_OK;
    if (cache_dir[0] != '/')
        return eb_fail(err, EBRO_INVALID, "cache_dir \"%s\" is not an absolute path", cache_dir);
    rt->cache_dir = eb_strndup(&rt->alloc, cache_dir, strlen(cache_dir), err);
    rt->host.cache_dir = rt->cache_dir;
    return rt->cache_dir != NULL ? EBRO_OK : EBRO_NOMEM_HOST;
}

/* ---- opening and closing ---------------------------------------------------------------- */

/* Reads a struct of an older or newer caller: what it does not have is zero, what only it knows
 * must be zero, for it could not be honoured. */
static int32_t read_options(const ebro_runtime_options *given, ebro_runtime_options *out,
                            ebro_error *err) {
    memset(out, 0, sizeof *out);
    if (given == NULL) return EBRO_OK;
    if (given->size < sizeof given->size) {
        return eb_fail(err, EBRO_INVALID, "options.size is %zu: set it to the struct's size, %zu",
                       given->size, sizeof *given);
    }
    size_t known = given->size < sizeof *out ? given->size : sizeof *out;
    memcpy(out, given, known);
    for (size_t i = sizeof *out; i < given->size; i++) {
        if (((const unsigned char *)given)[i] != 0) {
            return eb_fail(err, EBRO_UNSUPPORTED,
                           "options (%zu bytes) hold a field that this version, %s, does not know",
                           given->size, ebro_version());
        }
    }
    if (out->log_level < 0 || out->log_level > EBRO_LOG_TRACE) {
        return eb_fail(err, EBRO_INVALID, "log_level is %d, it must be 0 (default) to %d",
                       (int)out->log_level, (int)EBRO_LOG_TRACE);
    }
    return EBRO_OK;
}

int32_t ebro_runtime_open(const ebro_runtime_options *options, ebro_runtime **out,
                          ebro_error *err) {
    if (out == NULL) return eb_fail(err, EBRO_INVALID, "ebro_runtime_open: out is NULL");
    *out = NULL;
    ebro_runtime_options o;
    int32_t st = read_options(options, &o, err);
    if (st != EBRO_OK) return eb_while(err, st, "opening the runtime");
    struct eb_alloc alloc = {.user = o.realloc_user, .realloc = o.realloc};
    ebro_runtime *rt = eb_calloc(&alloc, 1, sizeof *rt, err);
    if (rt == NULL) return eb_while(err, EBRO_NOMEM_HOST, "opening the runtime");
    rt->alloc = alloc;
    rt->log = (struct eb_log){
        .sink = o.log, .user = o.log_user, .level = o.log_level != 0 ? o.log_level : EBRO_LOG_WARN};
    rt->host = (ebro_host){.size = sizeof rt->host,
                           .user = rt,
                           .realloc = host_realloc,
                           .log = host_log,
                           .fail = eb_fail,
                           .log_level = rt->log.level};
    st = keep_cache_dir(rt, o.cache_dir, err);
    if (st == EBRO_OK) st = find_modules(rt, o.module_dir, err);
    if (st != EBRO_OK) {
        ebro_runtime_close(&rt);
        return eb_while(err, st, "opening the runtime");
    }
    *out = rt;
    return EBRO_OK;
}

void ebro_runtime_close(ebro_runtime **runtime) {
    if (runtime == NULL || *runtime == NULL) return;
    ebro_runtime *rt = *runtime;
    struct eb_alloc alloc = rt->alloc;
    for (uint32_t i = 0; i < rt->n_modules; i++) eb_dynlib_close(&alloc, &rt->modules[i].lib);
    eb_free(&alloc, rt->module_dir);
    eb_free(&alloc, rt->cache_dir);
    eb_free(&alloc, rt);
    *runtime = NULL;
}
