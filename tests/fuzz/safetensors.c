/* safetensors.c: any bytes are read or refused; what is read lies inside the file, in order. */
#include "model/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void must(int condition) {
    if (!condition) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct eb_bytes file;
    struct eb_safetensors st = {0};
    ebro_error err = {0};
    eb_bytes_borrow(data, bytes, &file);
    int32_t status = eb_safetensors_read(NULL, "fuzz", &file, 3, &st, &err);
    if (status != EBRO_OK) {
        must(status == err.status && err.text[0] != '\0');
        return 0;
    }
    for (size_t i = 0; i < st.n_tensors; i++) {
        const struct eb_tensor *t = &st.tensors[i];
        must(t->file == 3 && t->n_dims <= EB_MAX_DIMS);
        must(t->data >= data && t->bytes <= (uint64_t)(data + bytes - t->data));
        must(eb_safetensors_dtype_name(t->dtype) != NULL);
        must(eb_safetensors_find(&st, t->name) == t);
        if (i > 0) must(strcmp(st.tensors[i - 1].name, t->name) < 0);
    }
    eb_safetensors_close(NULL, &st);
    return 0;
}
