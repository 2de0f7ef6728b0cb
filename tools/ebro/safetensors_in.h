/* safetensors_in.h: reads i32 tensors of a small safetensors file that this program wrote, or
 * somebody else in its place: nothing in it is trusted. Weights of models are the library's
 * business. */
#ifndef EB_SAFETENSORS_IN_H
#define EB_SAFETENSORS_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct eb_in_file {
    const char *path; /* borrowed */
    unsigned char *bytes;
    size_t n, data_at;
    void *header;
};

/* The whole file, at most 4 GiB. False: `text` says what is wrong. eb_safetensors_in_close may
 * follow either way. */
bool eb_safetensors_in_open(struct eb_in_file *f, const char *path, char *text, size_t text_bytes);
void eb_safetensors_in_close(struct eb_in_file *f);

/* An I32 tensor of n_dims dimensions: its shape, and its elements in new memory (free *out). False:
 * it is not there, or something about it is wrong; `text` names it. */
bool eb_safetensors_in_i32(const struct eb_in_file *f, const char *name, uint32_t n_dims,
                           uint64_t *shape, int32_t **out, char *text, size_t text_bytes);

#endif
