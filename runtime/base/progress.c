/* progress.c: see progress.h. */
#include "base/progress.h"

int32_t eb_progress_tell(const struct eb_progress *p, const char *label, double fraction,
                         ebro_error *err) {
    if (p == NULL || p->call == NULL || p->call(p->user, label, (float)fraction) == 0)
        return EBRO_OK;
    return eb_fail(err, EBRO_CANCELLED, "cancelled by the caller while %s", label);
}
