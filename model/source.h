/* source.h: where a model's files come from: a folder, or a list of files in memory. */
#ifndef EB_SOURCE_H
#define EB_SOURCE_H

#include <stdbool.h>

#include "base/file.h"

/* Borrows everything it points to. */
struct eb_source {
    const struct eb_alloc *alloc;
    const char *path; /* NULL: files */
    const ebro_file *files;
    uint32_t n_files;
};

/* Exactly one of path and files. A path that is missing is IO, one that is no folder INVALID; a
 * file list with a NULL or doubled name or with NULL data INVALID. */
int32_t eb_source_init(const struct eb_alloc *a, const ebro_model_options *options,
                       struct eb_source *out, ebro_error *err);
/* The folder, or "memory": for errors. */
const char *eb_source_name(const struct eb_source *s);
/* Sets *there; fails when memory runs out alone. */
int32_t eb_source_has(const struct eb_source *s, const char *name, bool *there, ebro_error *err);
/* Bytes of a file by its name, to be closed with eb_source_close or, where eb_bytes_check is called
 * on them, with eb_bytes_close. Names that could lead out of the
 * folder are FORMAT before any path is built; a missing file is IO (folder) or INVALID (memory). */
int32_t eb_source_open(const struct eb_source *s, const char *name, struct eb_bytes *out,
                       ebro_error *err);
/* Closes them and returns st, what reading them gave; but IO where the file shrank meanwhile: then
 * st and the text of *err speak of zeros that were never in it. Fine on zeroed bytes. */
int32_t eb_source_close(const char *name, struct eb_bytes *bytes, int32_t st, ebro_error *err);

#endif
