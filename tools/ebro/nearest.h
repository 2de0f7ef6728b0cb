/* nearest.h: which known word somebody may have meant. */
#ifndef EB_NEAREST_H
#define EB_NEAREST_H

#include <stddef.h>

/* The one of `names` that takes the fewest letters left out, put in, changed or swapped with their
 * neighbour to make of `word`, if that is at most a third of its letters and one more; else NULL.
 */
const char *eb_nearest(const char *word, const char *const *names, size_t n);

#endif
