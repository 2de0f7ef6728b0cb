/* check_bundle.c: the report of `ebro check` with all that somebody who looks for the fault on
 * another machine would ask for next: versions, the processor, capabilities of the devices, and the
 * commands that repeat what failed. CHECK.md describes it. Nothing in it says whose machine it is:
 * texts that come from drivers and the system are searched for names and paths. */
#include <ctype.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

#include "check_report.h"

enum { NAME = 256 };

/* ---- the machine ------------------------------------------------------------------------ */

/* What follows `key` and `mark` on its line of the file, without quotes; "unknown". */
static void file_value(const char *path, const char *key, char mark, char *out, size_t bytes) {
    char line[512];
    FILE *f = fopen(path, "r");
    snprintf(out, bytes, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        char *value = strchr(line, mark);
        if (strncmp(line, key, strlen(key)) != 0 || !value) continue;
        value += 1 + strspn(value + 1, " \t\"");
        value[strcspn(value, "\"\n")] = '\0';
        snprintf(out, bytes, "%s", value);
        break;
    }
    if (f) fclose(f);
}

static const char *compiler(void) {
#if defined(__clang__)
    return "Clang " __clang_version__;
#elif defined(__GNUC__)
    return "GCC " __VERSION__;
#else
    return "unknown";
#endif
}

static const char *libc(char *out, size_t bytes) {
#if defined(__GLIBC__)
    snprintf(out, bytes, "glibc %s", gnu_get_libc_version());
#else
    snprintf(out, bytes, "unknown");
#endif
    return out;
}

static json_t *machine_json(void) {
    char os[NAME], cpu[NAME], c[64], kernel[NAME] = "unknown";
    struct utsname name;
    if (uname(&name) == 0)
        snprintf(kernel, sizeof kernel, "%.60s %.60s %.60s", name.sysname, name.release,
                 name.machine);
    file_value("/etc/os-release", "PRETTY_NAME", '=', os, sizeof os);
    file_value("/proc/cpuinfo", "model name", ':', cpu, sizeof cpu);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I}", "ebro", ebro_version(), "compiler",
                     compiler(), "os", os, "kernel", kernel, "libc", libc(c, sizeof c), "processor",
                     cpu, "cores", (json_int_t)sysconf(_SC_NPROCESSORS_ONLN));
}

static json_t *device_json(const ebro_device_info *d, const ebro_caps *c) {
    char bits[24];
    snprintf(bits, sizeof bits, "0x%llx", (unsigned long long)c->bits);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
                     "name", d->name, "description", d->description, "id", d->id, "backend",
                     d->backend, "caps", bits, "wave_min", (json_int_t)c->wave_min, "wave_max",
                     (json_int_t)c->wave_max, "shared_bytes", (json_int_t)c->shared_bytes,
                     "max_binding_bytes", (json_int_t)c->max_binding_bytes, "max_alloc_bytes",
                     (json_int_t)c->max_alloc_bytes, "mem_alignment", (json_int_t)c->mem_alignment,
                     "weight_alignment", (json_int_t)c->weight_alignment, "total_bytes",
                     (json_int_t)c->total_bytes, "threads", (json_int_t)c->n_threads);
}

/* ---- what repeats a failure ------------------------------------------------------------- */

static json_t *op_json(const struct eb_check_report *r, const struct eb_check_row *row) {
    const char *device = r->devices[row->device].name;
    return json_pack("{s:s, s:s, s:s, s:o}", "device", device, "rung", row->rung, "shape",
                     row->shape, "command",
                     json_sprintf("ebro check -dev %s%s --op %s --case \"%s\" --seed %llu -r %u",
                                  device, r->full ? " --full" : "", eb_op_name(row->op), row->name,
                                  (unsigned long long)r->seed, row->n_runs));
}

static json_t *model_json(const struct eb_check_report *r, const struct eb_check_model_row *row) {
    const char *device = r->devices[row->device].name;
    bool other = row->from >= 0 && row->from != (int32_t)row->device;
    return json_pack(
        "{s:s, s:s, s:s, s:o}", "device", device, "rung", row->rung, "shape", row->shape, "command",
        json_sprintf("ebro check -dev %s%s%s%s", device, other ? " -dev " : "",
                     other ? r->devices[row->from].name : "", r->full ? " --full" : ""));
}

static bool append(json_t *all, json_t *one) {
    return all && one && json_array_append_new(all, one) == 0;
}

static bool add_failures(const struct eb_check_report *r, json_t *all) {
    bool ok = true;
    for (size_t i = 0; i < r->n_rows && ok; i++)
        if (r->rows[i].verdict == EB_OPCHECK_FAILED) ok = append(all, op_json(r, &r->rows[i]));
    for (size_t i = 0; i < r->n_models && ok; i++)
        if (r->models[i].verdict == EB_OPCHECK_FAILED)
            ok = append(all, model_json(r, &r->models[i]));
    return ok;
}

/* ---- names and paths -------------------------------------------------------------------- */

struct hidden {
    char host[NAME], user[NAME];
};

static bool in_word(char c) {
    return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.';
}

static bool is_name(const char *word, size_t n, const char *name) {
    return n >= 2 && strlen(name) == n && strncasecmp(word, name, n) == 0;
}

/* Where a path ends: its folders and file may have any name but one with these in it. */
static size_t path_length(const char *at) {
    return at[0] == '/' && (in_word(at[1]) || at[1] == '/') ? strcspn(at, " \t\n\"',;:()[]<>") : 0;
}

/* A copy, free it, with the words replaced; NULL: out of memory. */
static char *hide(const char *text, const struct hidden *h) {
    /* The shortest that is replaced has two characters, and none becomes longer than this. */
    static const char longest[] = "(host)";
    char *out = malloc(strlen(text) / 2 * (sizeof longest - 1) + 2);
    size_t at = 0;
    for (const char *p = text; out && *p;) {
        bool begins = p == text || !in_word(p[-1]);
        size_t word = 0, path = begins ? path_length(p) : 0;
        while (in_word(p[word])) word++;
        while (word > 1 && p[word - 1] == '.') word--; /* of the sentence */
        const char *new = path > 0                             ? "(path)"
                          : begins &&is_name(p, word, h->host) ? "(host)"
                          : begins &&is_name(p, word, h->user) ? "(user)"
                                                               : NULL;
        size_t n = path > 0 ? path : word > 0 ? word : 1;
        size_t length = new ? strlen(new) : n;
        memcpy(out + at, new ? new : p, length);
        at += length;
        p += n;
    }
    if (out) out[at] = '\0';
    return out;
}

/* In all texts that drivers or the system had a part in. False: out of memory. */
static bool hide_all(json_t *json, const struct hidden *h) {
    static const char *const keys[] = {"text", "trouble", "description", "processor", "kernel"};
    const char *key;
    json_t *value;
    size_t i;
    bool ok = true;
    if (json_is_array(json)) {
        json_array_foreach(json, i, value) ok = ok && hide_all(value, h);
    } else if (json_is_object(json)) {
        json_object_foreach(json, key, value) {
            ok = ok && hide_all(value, h);
            for (size_t k = 0; ok && k < sizeof keys / sizeof *keys; k++) {
                if (!json_is_string(value) || strcmp(key, keys[k]) != 0) continue;
                char *text = hide(json_string_value(value), h);
                ok = text && json_string_set(value, text) == 0;
                free(text);
            }
        }
    }
    return ok;
}

static struct hidden who(void) {
    struct hidden h = {"", ""};
    const struct passwd *user = getpwuid(geteuid());
    if (gethostname(h.host, sizeof h.host - 1) != 0) h.host[0] = '\0';
    /* The administrator is no one; and a sum has a root. */
    if (user && user->pw_uid != 0) snprintf(h.user, sizeof h.user, "%s", user->pw_name);
    return h;
}

json_t *eb_check_bundle(const struct eb_check_report *r) {
    const struct hidden h = who();
    json_t *devices = json_array(), *failures = json_array(), *report = eb_check_json(r);
    json_t *machine = machine_json(), *all = NULL;
    bool ok = devices && failures && report && machine && add_failures(r, failures);
    for (uint32_t i = 0; i < r->n_devices && ok; i++)
        ok = append(devices, device_json(&r->devices[i], &r->caps[i]));
    if (ok)
        all = json_pack("{s:s, s:O, s:O, s:O, s:O}", "schema", "ebro-bundle-1", "machine", machine,
                        "devices", devices, "failures", failures, "report", report);
    json_decref(devices);
    json_decref(failures);
    json_decref(report);
    json_decref(machine);
    if (all && hide_all(all, &h)) return all;
    json_decref(all);
    return NULL;
}
