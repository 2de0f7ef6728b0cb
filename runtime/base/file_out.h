/* file_out.h: writes a file whole or not at all. */
#ifndef EB_FILE_OUT_H
#define EB_FILE_OUT_H

#include "base/alloc.h"

/* A file on its way: until eb_file_out_commit it has another name in the same folder. Zeroed before
 * use. */
struct eb_file_out {
    struct eb_alloc alloc;
    char *target, *name; /* where it goes; where it is */
    int fd;
    uint64_t at;      /* bytes written */
    uint64_t flushed; /* of them on their way to the disk */
};

/* A link at `path` stays a link, and what it leads to is replaced; one that leads nowhere is
 * refused, and so is what is there and no regular file. IO with the system's reason. Removes from
 * the folder what processes that were killed have left there under such other names. */
int32_t eb_file_out_open(const struct eb_alloc *a, const char *path, struct eb_file_out *out,
                         ebro_error *err);
int32_t eb_file_out_write(struct eb_file_out *f, const void *data, size_t bytes, ebro_error *err);
/* Brings it to disk and gives it its name. Closes it, also on failure: then nothing is left but
 * what was there before. */
int32_t eb_file_out_commit(struct eb_file_out *f, ebro_error *err);
/* Closes and removes it. Fine on a zeroed one, and after commit. */
void eb_file_out_abandon(struct eb_file_out *f);

#endif
