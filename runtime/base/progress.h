/* progress.h: the caller's progress callback, carried to where the work is done. */
#ifndef EB_PROGRESS_H
#define EB_PROGRESS_H

#include "base/status.h"

/* Copied by value; call NULL: nobody listens. */
struct eb_progress {
    ebro_progress_fn call;
    void *user;
};

/* Tells how far it is, 0 to 1. EBRO_CANCELLED with a text when the caller wants to stop. p may be
 * NULL. */
int32_t eb_progress_tell(const struct eb_progress *p, const char *label, double fraction,
                         ebro_error *err);

#endif
