/* driver.h: the driver that the check stands in front of. driver.c is a library of its own, loaded
 * by name, so this is found by dlsym. */
#ifndef EB_VKCHECK_DRIVER_H
#define EB_VKCHECK_DRIVER_H

/* Opens a driver's library (libvulkan_radeon.so, ...). NULL, or why it cannot be. */
typedef const char *(*eb_driver_open_fn)(const char *path);

#endif
