/* safetensors_out.c: see safetensors_out.h. */
#include "safetensors_out.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "file_out.h"

enum { ALIGNMENT = 64, MAX_HEADER = 4096 };

static uint64_t elements(const struct eb_out_tensor *t) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->n_dims; d++) n *= t->shape[d];
    return n;
}

/* Length prefix and JSON, padded with blanks. Returns its bytes; 0: it does not fit. */
static size_t make_header(const struct eb_out_tensor *tensors, size_t n, char *out, size_t bytes) {
    size_t at = 8;
    uint64_t offset = 0;
    out[at++] = '{';
    for (size_t i = 0; i < n; i++) {
        const struct eb_out_tensor *t = &tensors[i];
        char shape[72] = "";
        for (uint32_t d = 0, w = 0; d < t->n_dims; d++)
            w += (uint32_t)snprintf(shape + w, sizeof shape - w, "%s%" PRIu64, d ? "," : "",
                                    t->shape[d]);
        uint64_t end = offset + 4 * elements(t);
        int w = snprintf(out + at, bytes - at,
                         "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%" PRIu64
                         ",%" PRIu64 "]}",
                         i ? "," : "", t->name, t->dtype, shape, offset, end);
        if (w < 0 || (size_t)w >= bytes - at) return 0;
        at += (size_t)w;
        offset = end;
    }
    if (bytes - at < 1 + ALIGNMENT) return 0;
    out[at++] = '}';
    while (at % ALIGNMENT != 0) out[at++] = ' ';
    uint64_t json = at - 8;
    for (int i = 0; i < 8; i++) out[i] = (char)(unsigned char)(json >> (8 * i));
    return at;
}

/* The container is little-endian whatever the machine is. */
static bool write_elements(FILE *f, const struct eb_out_tensor *t) {
    unsigned char buffer[4 * 4096];
    const unsigned char *p = t->data;
    size_t used = 0;
    for (uint64_t left = elements(t); left > 0; left--, p += 4) {
        uint32_t v;
        memcpy(&v, p, 4);
        for (int b = 0; b < 4; b++) buffer[used++] = (unsigned char)(v >> (8 * b));
        if (used == sizeof buffer || left == 1) {
            if (fwrite(buffer, 1, used, f) != used) return false;
            used = 0;
        }
    }
    return true;
}

struct content {
    const struct eb_out_tensor *tensors;
    size_t n;
};

static bool write_all(FILE *f, const void *user) {
    const struct content *c = user;
    char header[MAX_HEADER];
    size_t bytes = make_header(c->tensors, c->n, header, sizeof header);
    if (bytes == 0) {
        errno = EOVERFLOW;
        return false;
    }
    if (fwrite(header, 1, bytes, f) != bytes) return false;
    for (size_t i = 0; i < c->n; i++)
        if (!write_elements(f, &c->tensors[i])) return false;
    return true;
}

bool eb_safetensors_write(const char *path, const struct eb_out_tensor *tensors, size_t n,
                          char *text, size_t text_bytes) {
    const struct content content = {tensors, n};
    return eb_file_write(path, write_all, &content, text, text_bytes);
}
