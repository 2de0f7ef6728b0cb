/* modules.h: where the program's backend modules lie, and where backends keep compiled kernels. */
#ifndef EB_MODULES_H
#define EB_MODULES_H

#include <stdbool.h>
#include <stddef.h>

/* The folder beside the program where modules were installed, when there are none in the program's
 * own folder. False: look in that one, as the runtime does by itself. */
bool eb_modules_folder(char *path, size_t capacity);

/* The folder for compiled kernels, absolute: `given`, or ebro in $XDG_CACHE_HOME or ~/.cache; made
 * where it is missing. False: there is none, and "none" was perhaps asked for. */
bool eb_cache_folder(const char *given, char *path, size_t capacity);

#endif
