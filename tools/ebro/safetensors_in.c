/* safetensors_in.c: see safetensors_in.h. */
#include "safetensors_in.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 1 << 20 };
static const uint64_t most_bytes = (uint64_t)4 << 30;

/* All of a file of unknown size: it may be a pipe. */
static bool read_all(struct eb_in_file *f, FILE *in, char *text, size_t text_bytes) {
    size_t capacity = 1 << 16;
    for (;;) {
        unsigned char *grown = realloc(f->bytes, capacity);
        if (!grown) {
            snprintf(text, text_bytes, "out of memory while reading %s", f->path);
            return false;
        }
        f->bytes = grown;
        f->n += fread(f->bytes + f->n, 1, capacity - f->n, in);
        if (f->n < capacity) break;
        if (capacity >= most_bytes) {
            snprintf(text, text_bytes, "%s is larger than 4 GiB", f->path);
            return false;
        }
        capacity *= 2;
    }
    if (!ferror(in)) return true;
    snprintf(text, text_bytes, "cannot read %s: %s", f->path, strerror(errno));
    return false;
}

static bool read_header(struct eb_in_file *f, char *text, size_t text_bytes) {
    json_error_t why;
    uint64_t length = 0;
    if (f->n < 8) {
        snprintf(text, text_bytes, "%s is no safetensors file: it has %zu bytes", f->path, f->n);
        return false;
    }
    for (int i = 7; i >= 0; i--) length = length << 8 | f->bytes[i];
    if (length > f->n - 8 || length > MAX_HEADER) {
        snprintf(text, text_bytes,
                 "%s is no safetensors file, or is cut off: a header of %llu bytes", f->path,
                 (unsigned long long)length);
        return false;
    }
    f->data_at = 8 + (size_t)length;
    f->header =
        json_loadb((const char *)f->bytes + 8, (size_t)length, JSON_REJECT_DUPLICATES, &why);
    if (!f->header || !json_is_object((json_t *)f->header)) {
        snprintf(text, text_bytes, "%s is no safetensors file: its header is no JSON object",
                 f->path);
        return false;
    }
    return true;
}

bool eb_safetensors_in_open(struct eb_in_file *f, const char *path, char *text, size_t text_bytes) {
    *f = (struct eb_in_file){.path = path};
    FILE *in = fopen(path, "rb");
    if (!in) {
        snprintf(text, text_bytes, "cannot read %s: %s", path, strerror(errno));
        return false;
    }
    bool ok = read_all(f, in, text, text_bytes);
    fclose(in);
    return ok && read_header(f, text, text_bytes);
}

void eb_safetensors_in_close(struct eb_in_file *f) {
    free(f->bytes);
    json_decref(f->header);
    *f = (struct eb_in_file){0};
}

/* A whole number from 0 up. */
static bool get_size(const json_t *list, size_t i, uint64_t *out) {
    const json_t *v = json_array_get(list, i);
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

/* Where the tensor's elements lie; NULL with a reason. */
static const char *find_elements(const struct eb_in_file *f, const json_t *t, uint32_t n_dims,
                                 uint64_t *shape, const unsigned char **data, uint64_t *elements) {
    const json_t *dims = json_object_get(t, "shape"), *at = json_object_get(t, "data_offsets");
    const char *dtype = json_string_value(json_object_get(t, "dtype"));
    uint64_t begin = 0, end = 0, n = 1, room = f->n - f->data_at;
    if (!dtype || strcmp(dtype, "I32") != 0) return "its dtype is not I32";
    if (json_array_size(dims) != n_dims) return "it has another number of dimensions";
    for (uint32_t d = 0; d < n_dims; d++) {
        if (!get_size(dims, d, &shape[d])) return "its shape is no list of sizes";
        if (shape[d] > 0 && n > room / shape[d]) return "its shape is larger than the file";
        n *= shape[d];
    }
    if (json_array_size(at) != 2 || !get_size(at, 0, &begin) || !get_size(at, 1, &end))
        return "its data_offsets are no two numbers";
    if (begin > end || end > room) return "its data lies outside the file: is that cut off?";
    if ((end - begin) / 4 != n || (end - begin) % 4 != 0) return "its bytes do not fit its shape";
    *data = f->bytes + f->data_at + begin;
    *elements = n;
    return NULL;
}

bool eb_safetensors_in_i32(const struct eb_in_file *f, const char *name, uint32_t n_dims,
                           uint64_t *shape, int32_t **out, char *text, size_t text_bytes) {
    const unsigned char *p = NULL;
    uint64_t n = 0;
    const json_t *t = json_object_get(f->header, name);
    if (!t) {
        snprintf(text, text_bytes, "%s: there is no tensor \"%s\"", f->path, name);
        return false;
    }
    const char *wrong = find_elements(f, t, n_dims, shape, &p, &n);
    if (wrong) {
        snprintf(text, text_bytes, "%s: tensor \"%s\": %s", f->path, name, wrong);
        return false;
    }
    if (!(*out = calloc((size_t)n + 1, sizeof **out))) {
        snprintf(text, text_bytes, "out of memory for tensor \"%s\" of %s", name, f->path);
        return false;
    }
    /* little-endian, whatever the machine is */
    for (uint64_t i = 0; i < n; i++, p += 4) {
        uint32_t v = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        memcpy(&(*out)[i], &v, sizeof v);
    }
    return true;
}
