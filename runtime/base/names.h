/* names.h: lists of names with blanks between them, as ebro_device_options.avoid. In a header
 * alone, so that backends, which link nothing of the runtime, read them as it does. */
#ifndef EB_NAMES_H
#define EB_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* The next name of *list, of *bytes, behind which *list stands then; NULL: there is none. A list of
 * NULL is empty. */
static inline const char *eb_next_name(const char **list, size_t *bytes) {
    const char *name = *list;
    if (name == NULL) return NULL;
    name += strspn(name, " ");
    *bytes = strcspn(name, " ");
    *list = name + *bytes;
    return *bytes > 0 ? name : NULL;
}

static inline bool eb_has_name(const char *list, const char *name, size_t bytes) {
    size_t n;
    for (const char *p; (p = eb_next_name(&list, &n)) != NULL;)
        if (n == bytes && memcmp(p, name, n) == 0) return true;
    return false;
}

#endif
