/* modules.h: where the program's backend modules lie. */
#ifndef EB_MODULES_H
#define EB_MODULES_H

#include <stdbool.h>
#include <stddef.h>

/* The folder beside the program where modules were installed, when there are none in the program's
 * own folder. False: look in that one, as the runtime does by itself. */
bool eb_modules_folder(char *path, size_t capacity);

#endif
