/* safetensors.h: reads and writes the safetensors container. Reading validates the whole header
 * before anything is used: lengths inside the file, offsets in order, inside, not overlapping,
 * bytes equal to shape times type, no duplicate name. Tensor data is never copied. */
#ifndef EB_SAFETENSORS_H
#define EB_SAFETENSORS_H

#include "base/file.h"

enum { EB_MAX_DIMS = 8 };

/* One tensor. Immutable; lives as long as the file it is part of. */
struct eb_tensor {
    const char *name;
    const uint8_t *data; /* may be misaligned for its dtype */
    uint64_t bytes;
    uint64_t shape[EB_MAX_DIMS];
    uint32_t n_dims;
    int32_t dtype;  /* ebro_dtype */
    uint32_t file;  /* which file of the model (the number given to eb_safetensors_read) */
    uint32_t index; /* over all files of the model; set by its owner */
};

struct eb_safetensors {
    struct eb_tensor *tensors; /* in rising order of name */
    size_t n_tensors;
};

/* Parses a file that is in memory. `label` names it in errors. dtypes other than F32 F16 BF16 U8
 * I32 I64 F64 are refused by name. bytes must outlive *out. */
int32_t eb_safetensors_read(const struct eb_alloc *a, const char *label,
                            const struct eb_bytes *bytes, uint32_t file, struct eb_safetensors *out,
                            ebro_error *err);
void eb_safetensors_close(const struct eb_alloc *a, struct eb_safetensors *st);
/* NULL: not there. */
const struct eb_tensor *eb_safetensors_find(const struct eb_safetensors *st, const char *name);

/* "F32", "BF16", ...; NULL for a dtype the container has no name for. */
const char *eb_safetensors_dtype_name(int32_t dtype);

#endif
