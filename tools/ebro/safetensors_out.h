/* safetensors_out.h: writes a safetensors file, whole or not at all. Reading: safetensors_in.h. */
#ifndef EB_SAFETENSORS_OUT_H
#define EB_SAFETENSORS_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A tensor of 4-byte elements. */
struct eb_out_tensor {
    const char *name;  /* letters, digits, '.', '_' */
    const char *dtype; /* "F32" or "I32" */
    uint64_t shape[3];
    uint32_t n_dims;
    const void *data; /* float or int32_t, row-major */
};

/* The tensors' data follow each other in the order given, the first at a multiple of 64 bytes.
 * Otherwise as eb_file_write. False: `text` says what went wrong. */
bool eb_safetensors_write(const char *path, const struct eb_out_tensor *tensors, size_t n,
                          char *text, size_t text_bytes);

#endif
