/* selftest_kept.c: see selftest.h. One file of text in the runtime's cache_dir for each device and
 * each set of things taken from it:
 *
 *   ebro-selftest-1
 *   device BACKEND ID, DESCRIPTION         the description names the driver and its version
 *   library VERSION, module ABI NUMBER
 *   module HASH                            XXH3, 64 bit, of the module's file
 *   without MASK NAMES                     what the caller takes away
 *   avoid NAMES                            what the test found wrong
 *   sum HASH                               XXH3, 64 bit, of all lines before
 *
 * A file that is not exactly what would be written today is no result. */
#include "check/selftest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/file_out.h"

enum { TEXT_BYTES = 8192 };

/* ---- what a result holds for ------------------------------------------------------------ */

static bool hash_module(const struct ebro_device *d, uint64_t *hash) {
    const ebro_runtime *rt = d->rt;
    struct eb_bytes module = {0};
    const char *file = NULL;
    for (uint32_t i = 0; i < rt->n_modules; i++)
        if (rt->modules[i].backend == d->be) file = rt->modules[i].file;
    char *path = file != NULL ? eb_path_join(&rt->alloc, rt->module_dir, file, NULL) : NULL;
    bool there = path != NULL && eb_file_map(path, &module, NULL) == EBRO_OK;
    if (there) *hash = XXH3_64bits(module.data, module.bytes);
    there = there && eb_bytes_check(&module, path, NULL) == EBRO_OK;
    eb_bytes_close(&module);
    eb_free(&rt->alloc, path);
    return there;
}

/* The whole file for that result. Returns its bytes; 0: it cannot be said, or not in so many. */
static size_t write_text(const struct ebro_device *d, const ebro_device_options *o,
                         const char *found, char text[TEXT_BYTES]) {
    uint64_t module = 0;
    if (!hash_module(d, &module)) return 0;
    int n =
        snprintf(text, TEXT_BYTES,
                 "ebro-selftest-1\ndevice %s %s, %s\nlibrary %s, module ABI %u\n"
                 "module %016" PRIx64 "\nwithout %016" PRIx64 " %s\navoid %s\n",
                 d->info.backend, d->info.id, d->info.description, ebro_version(), EBRO_BACKEND_ABI,
                 module, o->caps_mask, o->avoid != NULL ? o->avoid : "", found);
    if (n < 0 || n >= TEXT_BYTES) return 0;
    int sum = snprintf(text + n, TEXT_BYTES - (size_t)n, "sum %016" PRIx64 "\n",
                       (uint64_t)XXH3_64bits(text, (size_t)n));
    return sum > 0 && n + sum < TEXT_BYTES ? (size_t)(n + sum) : 0;
}

/* The file's path in new memory; NULL: there is no folder for it, or no memory. */
static char *path_of(const struct ebro_device *d, const ebro_device_options *o) {
    char key[TEXT_BYTES], name[64];
    if (d->rt->cache_dir == NULL) return NULL;
    int n = snprintf(key, sizeof key, "%s %s %016" PRIx64 " %s", d->info.backend, d->info.id,
                     o->caps_mask, o->avoid != NULL ? o->avoid : "");
    if (n < 0 || (size_t)n >= sizeof key) return NULL;
    snprintf(name, sizeof name, "selftest-%016" PRIx64 ".txt",
             (uint64_t)XXH3_64bits(key, (size_t)n));
    return eb_path_join(&d->rt->alloc, d->rt->cache_dir, name, NULL);
}

/* ---- reading and writing ---------------------------------------------------------------- */

/* Returns its bytes; 0: it cannot be read, or is longer than a result can be. */
static size_t read_text(const char *path, char text[TEXT_BYTES]) {
    struct eb_bytes file = {0};
    size_t n = eb_file_map(path, &file, NULL) == EBRO_OK ? file.bytes : 0;
    if (n >= TEXT_BYTES) n = 0;
    if (n > 0) memcpy(text, file.data, n);
    text[n] = '\0';
    eb_bytes_close(&file);
    return n;
}

static bool take_found(const char *text, char found[EB_AVOID_BYTES]) {
    const char *line = strstr(text, "\navoid ");
    if (line == NULL) return false;
    line += strlen("\navoid ");
    size_t n = strcspn(line, "\n");
    if (n >= EB_AVOID_BYTES) return false;
    memcpy(found, line, n);
    found[n] = '\0';
    return true;
}

bool eb_selftest_recall(const struct ebro_device *d, const ebro_device_options *o,
                        char found[EB_AVOID_BYTES]) {
    char there[TEXT_BYTES], right[TEXT_BYTES];
    bool holds = false;
    char *path = path_of(d, o);
    size_t n = path != NULL ? read_text(path, there) : 0;
    if (n > 0) {
        holds = take_found(there, found) && write_text(d, o, found, right) == n &&
                memcmp(there, right, n) == 0;
        if (!holds) {
            eb_log(&d->rt->log, EBRO_LOG_INFO,
                   "%s is damaged or of another driver or build: %s is tested anew", path,
                   d->info.name);
        }
    }
    eb_free(&d->rt->alloc, path);
    return holds;
}

void eb_selftest_keep(const struct ebro_device *d, const ebro_device_options *o,
                      const char *found) {
    char text[TEXT_BYTES];
    struct eb_file_out f = {0};
    ebro_error err = {0};
    char *path = path_of(d, o);
    size_t n = path != NULL ? write_text(d, o, found, text) : 0;
    if (n > 0) {
        int32_t st = eb_file_out_open(&d->rt->alloc, path, &f, &err);
        if (st == EBRO_OK) st = eb_file_out_write(&f, text, n, &err);
        if (st == EBRO_OK) st = eb_file_out_commit(&f, &err);
        eb_file_out_abandon(&f);
        if (st != EBRO_OK) {
            eb_log(&d->rt->log, EBRO_LOG_WARN, "the self-test of %s could not be kept: %s",
                   d->info.name, err.text);
        }
    }
    eb_free(&d->rt->alloc, path);
}
