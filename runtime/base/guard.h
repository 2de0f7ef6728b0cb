/* guard.h: files that shrink while they are mapped. Knows ranges of addresses, not files. */
#ifndef EB_GUARD_H
#define EB_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Watches a mapping until eb_guard_release, which must come before it is unmapped. Returns a number
 * above 0; 0: more than EB_GUARD_MAX mappings are watched. Any thread. */
enum { EB_GUARD_MAX = 16384 };
uint32_t eb_guard_watch(const void *map, size_t bytes);
void eb_guard_release(uint32_t watch);

/* True once a page of the mapping could not be read and was replaced by zeros. */
bool eb_guard_was_hit(uint32_t watch);
/* True between ebro_guard_install and ebro_guard_remove. */
bool eb_guard_is_installed(void);

#endif
