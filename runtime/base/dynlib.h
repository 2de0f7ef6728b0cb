/* dynlib.h: shared libraries at run time. Full paths only: nothing is searched for. */
#ifndef EB_DYNLIB_H
#define EB_DYNLIB_H

#include "base/alloc.h"

struct eb_dynlib;

/* `path` must be absolute (INVALID otherwise). Missing file: IO; present but not loadable:
 * UNSUPPORTED with the loader's reason. */
int32_t eb_dynlib_open(const struct eb_alloc *a, const char *path, struct eb_dynlib **out,
                       ebro_error *err);
void *eb_dynlib_symbol(struct eb_dynlib *lib, const char *name); /* NULL: not there */
void eb_dynlib_close(const struct eb_alloc *a, struct eb_dynlib **lib);

/* Absolute folder of the library or program that holds `address`, in new memory. */
char *eb_dynlib_own_folder(const struct eb_alloc *a, const void *address, ebro_error *err);

#endif
