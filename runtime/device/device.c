/* device.c: an open device and its memory. Every call into the backend passes the lost flag. Not
 * its job: streams, and finding devices. */
#include "device/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "device/registry.h"

/* ---- the lost flag ---------------------------------------------------------------------- */

int32_t eb_device_note(struct ebro_device *d, int32_t st) {
    if (st == EBRO_DEVICE_LOST) atomic_store(&d->lost, 1);
    return st;
}

int32_t eb_device_check(struct ebro_device *d, ebro_error *err) {
    if (atomic_load(&d->lost) == 0) return EBRO_OK;
    return eb_fail(err, EBRO_DEVICE_LOST, "%s was lost: close it and open it again", d->info.name);
}

/* ---- opening and closing ---------------------------------------------------------------- */

static void describe(struct ebro_device *d, const struct eb_found *f) {
    memcpy(d->info.name, f->probe.name, sizeof d->info.name);
    memcpy(d->info.description, f->probe.description, sizeof d->info.description);
    memcpy(d->info.id, f->probe.id, sizeof d->info.id);
    snprintf(d->info.backend, sizeof d->info.backend, "%s", d->be->name);
    d->info.total_bytes = f->probe.total_bytes;
    d->info.free_bytes = f->probe.free_bytes;
}

static void read_caps(const struct ebro_device *d, ebro_caps *out) {
    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    d->be->device_caps(d->dev, out);
}

/* What the rest of the runtime relies on without asking again. */
static int32_t check_caps(const ebro_caps *caps, ebro_error *err) {
    uint64_t a = caps->mem_alignment;
    if (a == 0 || (a & (a - 1)) != 0) {
        return eb_fail(
            err, EBRO_INTERNAL,
            "the backend states a memory alignment of %" PRIu64 ", it must be a power of two", a);
    }
    int32_t t = caps->default_cache_dtype;
    if (t != EBRO_F32 && t != EBRO_F16 && t != EBRO_BF16) {
        return eb_fail(err, EBRO_INTERNAL,
                       "the backend states the cache dtype %d, it must be F32, F16 or BF16",
                       (int)t);
    }
    return EBRO_OK;
}

int32_t eb_device_open(ebro_runtime *rt, const char *name, const ebro_device_options *options,
                       ebro_device **out, ebro_error *err) {
    if (out != NULL) *out = NULL;
    if (rt == NULL || out == NULL) {
        return eb_fail(err, EBRO_INVALID, "opening a device: %s is NULL",
                       rt == NULL ? "runtime" : "out");
    }
    struct eb_found found;
    int32_t st = eb_registry_find(rt, name, &found, err);
    if (st != EBRO_OK) return st;
    const ebro_device_options defaults = {.size = sizeof defaults};
    struct ebro_device *d = eb_calloc(&rt->alloc, 1, sizeof *d, err);
    if (d == NULL) return eb_while(err, EBRO_NOMEM_HOST, "opening %s", found.probe.name);
    d->rt = rt;
    d->be = found.module->backend;
    atomic_init(&d->lost, 0);
    describe(d, &found);
    st = d->be->device_open(&rt->host, found.index, options != NULL ? options : &defaults, &d->dev,
                            err);
    if (st == EBRO_OK) {
        read_caps(d, &d->caps);
        st = check_caps(&d->caps, err);
    } else {
        d->dev = NULL;
    }
    if (st != EBRO_OK) {
        /* No other device is tried: the work would move without anybody's knowing. */
        eb_while(err, st, "opening %s", found.probe.name);
        ebro_device_close(&d);
        return st;
    }
    *out = d;
    return EBRO_OK;
}

int32_t ebro_device_open(ebro_runtime *runtime, const char *name, ebro_device **out,
                         ebro_error *err) {
    return eb_device_open(runtime, name, NULL, out, err);
}

int32_t eb_device_options_of(const ebro_device_settings *settings, ebro_device_options *out,
                             ebro_error *err) {
    ebro_device_settings s = {0};
    *out = (ebro_device_options){.size = sizeof *out};
    if (settings == NULL) return EBRO_OK;
    if (settings->size < sizeof settings->size) {
        return eb_fail(err, EBRO_INVALID, "device settings of %zu bytes, there must be %zu",
                       settings->size, sizeof *settings);
    }
    memcpy(&s, settings, settings->size < sizeof s ? settings->size : sizeof s);
    out->n_threads = s.n_threads;
    out->caps_mask = s.caps_mask;
    out->avoid = s.avoid;
    return EBRO_OK;
}

int32_t ebro_device_open_with(ebro_runtime *runtime, const char *name,
                              const ebro_device_settings *settings, ebro_device **out,
                              ebro_error *err) {
    ebro_device_options options;
    if (out != NULL) *out = NULL;
    int32_t st = eb_device_options_of(settings, &options, err);
    if (st != EBRO_OK) return st;
    return eb_device_open(runtime, name, &options, out, err);
}

void ebro_device_close(ebro_device **device) {
    if (device == NULL || *device == NULL) return;
    struct ebro_device *d = *device;
    if (d->dev != NULL) d->be->device_close(d->dev);
    eb_free(&d->rt->alloc, d);
    *device = NULL;
}

void ebro_device_get_info(const ebro_device *device, ebro_device_info *out) {
    if (out == NULL) return;
    memset(out, 0, sizeof *out);
    if (device == NULL) return;
    *out = device->info;
    ebro_caps now;
    read_caps(device, &now);
    if (now.total_bytes != 0) out->total_bytes = now.total_bytes;
    out->free_bytes = now.free_bytes;
}

/* ---- memory ----------------------------------------------------------------------------- */

/* Says what was wanted and, when that was too much, what there is. */
static int32_t explain_memory(struct ebro_device *d, int32_t st, uint64_t bytes, ebro_error *err) {
    if (st != EBRO_NOMEM_DEVICE) {
        return eb_while(err, st, "allocating %" PRIu64 " bytes on %s", bytes, d->info.name);
    }
    ebro_caps now;
    read_caps(d, &now);
    return eb_while(err, st, "allocating %" PRIu64 " bytes on %s, which has %" PRIu64 " bytes free",
                    bytes, d->info.name, now.free_bytes);
}

int32_t eb_mem_alloc(struct ebro_device *d, uint64_t bytes, uint32_t kind, ebro_mem **out,
                     ebro_error *err) {
    *out = NULL;
    int32_t st = eb_device_check(d, err);
    if (st != EBRO_OK) return st;
    if (kind > EBRO_MEM_READBACK) {
        return eb_fail(err, EBRO_INVALID, "there is no kind of memory %u", kind);
    }
    if (bytes == 0) bytes = 1;
    if (d->caps.max_alloc_bytes != 0 && bytes > d->caps.max_alloc_bytes) {
        st = eb_fail(err, EBRO_NOMEM_DEVICE, "one allocation can have %" PRIu64 " bytes at most",
                     d->caps.max_alloc_bytes);
    } else {
        st = eb_device_note(d, d->be->mem_alloc(d->dev, bytes, kind, out, err));
    }
    if (st == EBRO_OK) return EBRO_OK;
    *out = NULL;
    return explain_memory(d, st, bytes, err);
}

static bool can_import(const struct ebro_device *d, const void *host, uint64_t bytes) {
    return d->be->mem_import != NULL && bytes > 0 && (uintptr_t)host % d->caps.mem_alignment == 0;
}

int32_t eb_mem_share(struct ebro_device *d, const void *host, uint64_t bytes, ebro_mem **out,
                     ebro_error *err) {
    *out = NULL;
    int32_t st = eb_device_check(d, err);
    if (st != EBRO_OK) return st;
    if (!can_import(d, host, bytes)) {
        return eb_fail(err, EBRO_UNSUPPORTED, "%s cannot share %" PRIu64 " bytes at %p",
                       d->info.name, bytes, host);
    }
    st = eb_device_note(d, d->be->mem_import(d->dev, host, bytes, out, err));
    if (st == EBRO_OK) return EBRO_OK;
    *out = NULL;
    return eb_while(err, st, "importing %" PRIu64 " bytes to %s", bytes, d->info.name);
}

int32_t eb_mem_import(struct eb_stream *s, const void *host, uint64_t bytes, ebro_mem **out,
                      ebro_error *err) {
    struct ebro_device *d = s->device;
    *out = NULL;
    if (host == NULL && bytes > 0) {
        int32_t lost = eb_device_check(d, err);
        if (lost != EBRO_OK) return lost;
        return eb_fail(err, EBRO_INVALID, "importing %" PRIu64 " bytes at NULL", bytes);
    }
    int32_t st = eb_mem_share(d, host, bytes, out, err);
    if (st != EBRO_UNSUPPORTED && st != EBRO_NOMEM_DEVICE) return st;
    st = eb_mem_alloc(d, bytes, EBRO_MEM_DEVICE, out, err);
    if (st != EBRO_OK || bytes == 0) return st;
    st = eb_upload(s, (ebro_span){.mem = *out}, host, bytes, err);
    if (st != EBRO_OK) eb_mem_free(d, out);
    return st;
}

void eb_mem_free(struct ebro_device *d, ebro_mem **mem) {
    if (mem == NULL || *mem == NULL) return;
    d->be->mem_free(d->dev, *mem);
    *mem = NULL;
}
