/* source.c: model files by name, from a folder or from memory. Not its job: what is in them. */
#include "model/source.h"

#include <string.h>

static int32_t check_files(const struct eb_source *s, ebro_error *err) {
    for (uint32_t i = 0; i < s->n_files; i++) {
        const ebro_file *f = &s->files[i];
        if (f->name == NULL || f->name[0] == 0)
            return eb_fail(err, EBRO_INVALID, "files[%u] has no name", i);
        if (f->data == NULL && f->bytes > 0)
            return eb_fail(err, EBRO_INVALID, "files[%u] (\"%s\"): data is NULL", i, f->name);
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(f->name, s->files[j].name) == 0)
                return eb_fail(err, EBRO_INVALID, "files[%u] and files[%u] are both \"%s\"", j, i,
                               f->name);
    }
    return EBRO_OK;
}

int32_t eb_source_init(const struct eb_alloc *a, const ebro_model_options *options,
                       struct eb_source *out, ebro_error *err) {
    struct eb_source s = {a, options->path, options->files, options->n_files};
    if (s.path != NULL && s.n_files > 0)
        return eb_fail(err, EBRO_INVALID, "both a path and files in memory were given: wanted one");
    *out = s;
    if (s.path == NULL) {
        if (s.files == NULL || s.n_files == 0)
            return eb_fail(err, EBRO_INVALID, "neither a path nor files in memory were given");
        return check_files(&s, err);
    }
    if (!eb_path_exists(s.path)) return eb_fail(err, EBRO_IO, "%s: no such folder", s.path);
    if (!eb_path_is_dir(s.path))
        return eb_fail(err, EBRO_INVALID,
                       "%s: not a folder (wanted a model folder with config.json)", s.path);
    return EBRO_OK;
}

const char *eb_source_name(const struct eb_source *s) {
    return s->path != NULL ? s->path : "memory";
}

static const ebro_file *find(const struct eb_source *s, const char *name) {
    for (uint32_t i = 0; i < s->n_files; i++)
        if (strcmp(s->files[i].name, name) == 0) return &s->files[i];
    return NULL;
}

/* No separators, no ':' (drives and streams elsewhere), no "." or "..", nothing unprintable. */
static bool is_plain_name(const char *name) {
    if (name[0] == 0 || strcmp(name, ".") == 0 || strstr(name, "..") != NULL) return false;
    for (const char *c = name; *c != 0; c++)
        if (*c == '/' || *c == '\\' || *c == ':' || (uint8_t)*c < 0x20) return false;
    return true;
}

int32_t eb_source_has(const struct eb_source *s, const char *name, bool *there, ebro_error *err) {
    *there = s->path == NULL && find(s, name) != NULL;
    if (s->path == NULL) return EBRO_OK;
    char *path = eb_path_join(s->alloc, s->path, name, err);
    if (path == NULL) return EBRO_NOMEM_HOST;
    *there = eb_path_exists(path);
    eb_free(s->alloc, path);
    return EBRO_OK;
}

int32_t eb_source_open(const struct eb_source *s, const char *name, struct eb_bytes *out,
                       ebro_error *err) {
    if (!is_plain_name(name))
        return eb_fail(err, EBRO_FORMAT, "\"%s\" is not the name of a file inside the model folder",
                       name);
    if (s->path == NULL) {
        const ebro_file *f = find(s, name);
        if (f == NULL)
            return eb_fail(err, EBRO_INVALID, "no file \"%s\" among the %u in memory", name,
                           s->n_files);
        eb_bytes_borrow(f->data != NULL ? f->data : "", f->bytes, out);
        return EBRO_OK;
    }
    char *path = eb_path_join(s->alloc, s->path, name, err);
    if (path == NULL) return EBRO_NOMEM_HOST;
    int32_t st = eb_file_map(path, out, err);
    eb_free(s->alloc, path);
    return st;
}

int32_t eb_source_close(const char *name, struct eb_bytes *bytes, int32_t st, ebro_error *err) {
    int32_t intact = eb_bytes_check(bytes, name, err);
    eb_bytes_close(bytes);
    return intact != EBRO_OK ? intact : st;
}
