/* find.c: which devices there are, and which one a name means. Opens nothing. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "device/registry.h"

/* Every device of every usable module, in the order of the modules. */
struct census {
    struct eb_found *items;
    size_t n_items, capacity;
};

/* ---- taking the census ------------------------------------------------------------------ */

static void end_strings(ebro_probe_result *r) {
    r->name[sizeof r->name - 1] = '\0';
    r->description[sizeof r->description - 1] = '\0';
    r->id[sizeof r->id - 1] = '\0';
}

/* Adds a module's devices to the census. That it has none is logged and is no error. */
static int32_t probe_module(ebro_runtime *rt, const struct eb_module *m, struct census *c,
                            ebro_error *err) {
    ebro_probe_result *results = NULL;
    size_t capacity = 0;
    uint32_t count = 4;
    int32_t st = EBRO_OK, probed = EBRO_OK;
    ebro_error reason = {0};
    /* A second time where the first answer did not fit. A device may appear between the two, so
     * there is no asking until it fits: what is still left over is not listed. */
    for (int i = 0; i < 2 && count > capacity; i++) {
        st = eb_grow(&rt->alloc, (void **)&results, &capacity, count, sizeof *results, err);
        if (st != EBRO_OK) goto out;
        memset(results, 0, capacity * sizeof *results);
        count = 0;
        probed = m->backend->probe(&rt->host, results, (uint32_t)capacity, &count, &reason);
        if (probed == EBRO_NOMEM_HOST) {
            st = eb_fail(err, probed, "%s", reason.text);
            goto out;
        }
        if (probed != EBRO_OK) count = 0;
    }
    if (count > capacity) count = (uint32_t)capacity;
    if (count == 0) {
        eb_log(&rt->log, EBRO_LOG_INFO, "%s finds no device: %s", m->file,
               reason.text[0] != '\0' ? reason.text : ebro_status_name(probed));
    }
    st = eb_grow(&rt->alloc, (void **)&c->items, &c->capacity, c->n_items + count, sizeof *c->items,
                 err);
    if (st != EBRO_OK) goto out;
    for (uint32_t i = 0; i < count; i++) {
        end_strings(&results[i]);
        c->items[c->n_items++] = (struct eb_found){.module = m, .index = i, .probe = results[i]};
    }
out:
    eb_free(&rt->alloc, results);
    return st;
}

/* Of every module, or of those of one backend. */
static int32_t take_census(ebro_runtime *rt, const char *backend, struct census *c,
                           ebro_error *err) {
    memset(c, 0, sizeof *c);
    for (uint32_t i = 0; i < rt->n_modules; i++) {
        const struct eb_module *m = &rt->modules[i];
        if (m->backend != NULL && backend != NULL && strcmp(m->backend->name, backend) != 0)
            continue;
        if (m->backend == NULL) {
            eb_log(&rt->log, EBRO_LOG_INFO, "%s is unusable: %s", m->file, m->error.text);
            continue;
        }
        int32_t st = probe_module(rt, m, c, err);
        if (st != EBRO_OK) {
            eb_free(&rt->alloc, c->items);
            memset(c, 0, sizeof *c);
            return eb_while(err, st, "listing the devices of %s", m->file);
        }
    }
    return EBRO_OK;
}

int32_t ebro_device_list(ebro_runtime *runtime, ebro_device_info *out, uint32_t capacity,
                         uint32_t *count, ebro_error *err) {
    if (runtime == NULL || count == NULL || (out == NULL && capacity > 0)) {
        return eb_fail(err, EBRO_INVALID, "ebro_device_list: %s is NULL",
                       runtime == NULL ? "runtime"
                       : count == NULL ? "count"
                                       : "out, with a capacity above 0,");
    }
    *count = 0;
    struct census c;
    int32_t st = take_census(runtime, NULL, &c, err);
    if (st != EBRO_OK) return st;
    for (size_t i = 0; i < c.n_items && i < capacity; i++) {
        const struct eb_found *f = &c.items[i];
        ebro_device_info *info = &out[i];
        memset(info, 0, sizeof *info);
        memcpy(info->name, f->probe.name, sizeof info->name);
        memcpy(info->description, f->probe.description, sizeof info->description);
        memcpy(info->id, f->probe.id, sizeof info->id);
        snprintf(info->backend, sizeof info->backend, "%s", f->module->backend->name);
        info->total_bytes = f->probe.total_bytes;
        info->free_bytes = f->probe.free_bytes;
    }
    *count = (uint32_t)c.n_items;
    eb_free(&runtime->alloc, c.items);
    return EBRO_OK;
}

/* ---- names ------------------------------------------------------------------------------ */

static int lower(char c) {
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

/* ASCII only: the C library's own comparison depends on the program's locale. */
static bool same_name(const char *a, const char *b) {
    while (*a != '\0' && lower(*a) == lower(*b)) {
        a++;
        b++;
    }
    return *a == '\0' && *b == '\0';
}

/* How each backend names its devices. */
static const struct {
    const char *prefix, *backend;
} families[] = {{"CUDA", "cuda"},     {"ROCm", "hip"}, {"HIP", "hip"},  {"Vulkan", "vulkan"},
                {"OpenCL", "opencl"}, {"CPU", "cpu"},  {"Null", "null"}};

/* The backend that a name such as "cuda1" or "Vulkan" belongs to; NULL: none that we know. */
static const char *family_of(const char *name) {
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        const char *p = families[i].prefix, *n = name;
        while (*p != '\0' && lower(*p) == lower(*n)) {
            p++;
            n++;
        }
        if (*p == '\0' && n[strspn(n, "0123456789")] == '\0') return families[i].backend;
    }
    return NULL;
}

/* ---- explaining ------------------------------------------------------------------------- */

/* A text that is cut off where the room ends. */
struct text {
    char s[480];
    size_t n;
};

static void add(struct text *t, const char *fmt, ...) EB_PRINTF(2, 3);
static void add(struct text *t, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(t->s + t->n, sizeof t->s - t->n, fmt, args);
    va_end(args);
    if (n > 0) t->n += (size_t)n;
    if (t->n > sizeof t->s - 1) t->n = sizeof t->s - 1;
}

/* The null device answers to its name, but is no choice to offer. */
static bool computes(const struct eb_found *f) {
    return strcmp(f->module->backend->name, "null") != 0;
}

static void add_devices(struct text *t, const struct census *c) {
    uint32_t n = 0;
    add(t, "devices: ");
    for (size_t i = 0; i < c->n_items; i++) {
        if (computes(&c->items[i])) add(t, "%s%s", n++ > 0 ? ", " : "", c->items[i].probe.name);
    }
    if (n == 0) add(t, "none");
}

/* Why a backend has not got the device: its file is missing, is unusable, finds none, or has
 * others. */
static void add_reason(struct text *t, ebro_runtime *rt, const struct census *c,
                       const char *backend) {
    char file[64];
    snprintf(file, sizeof file, "ebro_%s.so", backend);
    const struct eb_module *m = NULL;
    for (uint32_t i = 0; i < rt->n_modules && m == NULL; i++) {
        if (strcmp(rt->modules[i].file, file) == 0) m = &rt->modules[i];
    }
    if (m == NULL) {
        add(t, "the module file %s is missing from %s", file, rt->module_dir);
        return;
    }
    if (m->backend == NULL) {
        add(t, "the module file %s is unusable: %.400s", file, m->error.text);
        return;
    }
    uint32_t n = 0;
    for (size_t i = 0; i < c->n_items; i++) n += c->items[i].module == m ? 1 : 0;
    if (n > 0) {
        add(t, "%s has %u device%s, and none of that name", file, n, n > 1 ? "s" : "");
        return;
    }
    ebro_error reason = {0};
    ebro_probe_result unused;
    int32_t st = m->backend->probe(&rt->host, &unused, 1, &n, &reason);
    add(t, "%s finds no device: %.400s", file,
        reason.text[0] != '\0' ? reason.text : ebro_status_name(st));
}

static void add_no_modules(struct text *t, const ebro_runtime *rt) {
    if (rt->n_modules > 0) return;
    add(t, "no ebro_*.so lies in %.400s, where ebro_cpu.so at least should be; ", rt->module_dir);
}

static int32_t fail_named(ebro_runtime *rt, const struct census *c, const char *name,
                          ebro_error *err) {
    struct text why = {.n = 0}, there = {.n = 0};
    const char *backend = family_of(name);
    if (backend != NULL) {
        add_reason(&why, rt, c, backend);
        add(&why, "; ");
    }
    add_no_modules(&why, rt);
    add_devices(&there, c);
    return eb_fail(err, EBRO_NO_DEVICE, "there is no device \"%.64s\": %s%s", name, why.s, there.s);
}

static int32_t fail_best(ebro_runtime *rt, const struct census *c, ebro_error *err) {
    struct text why = {.n = 0}, there = {.n = 0};
    for (uint32_t i = 0; i < rt->n_modules; i++) {
        const struct eb_module *m = &rt->modules[i];
        if (m->backend == NULL) add(&why, "%s is unusable: %.400s; ", m->file, m->error.text);
    }
    add_no_modules(&why, rt);
    add_devices(&there, c);
    return eb_fail(err, EBRO_NO_DEVICE,
                   "there is no device that computes, by the modules in %s: %s%s", rt->module_dir,
                   why.s, there.s);
}

/* ---- choosing --------------------------------------------------------------------------- */

static const struct eb_found *match(const struct census *c, const char *name) {
    for (size_t i = 0; i < c->n_items; i++) {
        if (same_name(c->items[i].probe.name, name)) return &c->items[i];
    }
    /* Two backends may reach one piece of hardware under the same id: the first is the better. */
    for (size_t i = 0; i < c->n_items; i++) {
        const char *id = c->items[i].probe.id;
        if (id[0] != '\0' && same_name(id, name)) return &c->items[i];
    }
    return NULL;
}

static const struct eb_found *best(const struct census *c) {
    const struct eb_found *emulated = NULL;
    for (size_t i = 0; i < c->n_items; i++) {
        if (!computes(&c->items[i])) continue;
        if ((c->items[i].probe.flags & EBRO_PROBE_EMULATED) == 0) return &c->items[i];
        if (emulated == NULL) emulated = &c->items[i];
    }
    return emulated;
}

int32_t eb_registry_find(ebro_runtime *rt, const char *name, struct eb_found *out,
                         ebro_error *err) {
    struct census c = {0};
    const struct eb_found *f = NULL;
    int32_t st = EBRO_OK;
    /* A name that says its backend asks no other driver: starting one can take half a second. */
    const char *backend = name != NULL ? family_of(name) : NULL;
    if (backend != NULL) {
        st = take_census(rt, backend, &c, err);
        if (st == EBRO_OK) f = match(&c, name);
        if (st == EBRO_OK && f == NULL) eb_free(&rt->alloc, c.items);
    }
    if (st == EBRO_OK && f == NULL) {
        st = take_census(rt, NULL, &c, err);
        if (st == EBRO_OK) f = name != NULL ? match(&c, name) : best(&c);
    }
    if (st != EBRO_OK) return st;
    if (f != NULL) {
        *out = *f;
    } else {
        st = name != NULL ? fail_named(rt, &c, name, err) : fail_best(rt, &c, err);
    }
    eb_free(&rt->alloc, c.items);
    return st;
}
