/* alloc.c: host memory through the runtime's hook. Not its job: device memory, and pooling. */
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

bool eb_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    if (a != 0 && b > UINT64_MAX / a) return false;
    *out = a * b;
    return true;
}

bool eb_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    if (b > UINT64_MAX - a) return false;
    *out = a + b;
    return true;
}

/* n * size, at least 1. More than PTRDIFF_MAX is refused here: no allocator gives it, and pointer
 * differences could not span it. */
static bool total_bytes(size_t n, size_t size, size_t *out) {
    uint64_t bytes;
    if (!eb_mul_u64(n, size, &bytes) || bytes > PTRDIFF_MAX) return false;
    *out = bytes > 0 ? (size_t)bytes : 1;
    return true;
}

static int32_t fail_overflow(size_t n, size_t size, ebro_error *err) {
    return eb_fail(err, EBRO_NOMEM_HOST,
                   "%zu elements of %zu bytes are more host memory than can be addressed", n, size);
}

static int32_t fail_memory(size_t bytes, ebro_error *err) {
    return eb_fail(err, EBRO_NOMEM_HOST, "out of host memory: %zu bytes wanted", bytes);
}

static bool is_default(const struct eb_alloc *a) {
    return a == NULL || a->realloc == NULL;
}

void *eb_calloc(const struct eb_alloc *a, size_t n, size_t size, ebro_error *err) {
    size_t bytes;
    if (!total_bytes(n, size, &bytes)) {
        fail_overflow(n, size, err);
        return NULL;
    }
    void *p;
    if (is_default(a)) {
        p = calloc(1, bytes);
    } else {
        p = a->realloc(a->user, NULL, bytes);
        if (p != NULL) memset(p, 0, bytes);
    }
    if (p == NULL) fail_memory(bytes, err);
    return p;
}

int32_t eb_realloc(const struct eb_alloc *a, void **p, size_t n, size_t size, ebro_error *err) {
    size_t bytes;
    if (!total_bytes(n, size, &bytes)) return fail_overflow(n, size, err);
    void *moved = is_default(a) ? realloc(*p, bytes) : a->realloc(a->user, *p, bytes);
    if (moved == NULL) return fail_memory(bytes, err);
    *p = moved;
    return EBRO_OK;
}

int32_t eb_grow(const struct eb_alloc *a, void **p, size_t *capacity, size_t need, size_t size,
                ebro_error *err) {
    if (need <= *capacity) return EBRO_OK;
    size_t larger = *capacity <= SIZE_MAX / 2 ? *capacity * 2 : need;
    if (larger < 8) larger = 8;
    if (larger < need) larger = need;
    int32_t st = eb_realloc(a, p, larger, size, err);
    if (st == EBRO_OK) *capacity = larger;
    return st;
}

char *eb_strndup(const struct eb_alloc *a, const char *s, size_t n, ebro_error *err) {
    if (n == SIZE_MAX) {
        fail_overflow(n, 1, err);
        return NULL;
    }
    char *copy = eb_calloc(a, n + 1, 1, err);
    if (copy != NULL && n > 0) memcpy(copy, s, n);
    return copy;
}

void eb_free(const struct eb_alloc *a, void *p) {
    if (p == NULL) return;
    if (is_default(a)) {
        free(p);
    } else {
        a->realloc(a->user, p, 0);
    }
}
