/* alloc.h: host memory through the runtime's hook, with checked sizes. */
#ifndef EB_ALLOC_H
#define EB_ALLOC_H

#include <stdbool.h>

#include "base/status.h"

/* Copied by value into whatever allocates. NULL in the calls below means the C library. */
struct eb_alloc {
    void *user;
    void *(*realloc)(void *user, void *p, size_t n); /* NULL: the C library's */
};

/* n * size zeroed bytes; NULL and an error naming the bytes when out of memory or on overflow. n or
 * size 0 still gives a pointer that must be freed. */
void *eb_calloc(const struct eb_alloc *a, size_t n, size_t size, ebro_error *err);
/* Grows or shrinks to n * size bytes, new bytes undefined; on failure *p is unchanged. */
int32_t eb_realloc(const struct eb_alloc *a, void **p, size_t n, size_t size, ebro_error *err);
/* Ensures room for `need` elements in a growing array; doubles. */
int32_t eb_grow(const struct eb_alloc *a, void **p, size_t *capacity, size_t need, size_t size,
                ebro_error *err);
char *eb_strndup(const struct eb_alloc *a, const char *s, size_t n, ebro_error *err);
void eb_free(const struct eb_alloc *a, void *p); /* NULL-safe */

/* False on overflow; *out is then untouched. */
bool eb_mul_u64(uint64_t a, uint64_t b, uint64_t *out);
bool eb_add_u64(uint64_t a, uint64_t b, uint64_t *out);

#endif
