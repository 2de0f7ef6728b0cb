/* log.h: one log sink per runtime. Safe from any thread if the sink is. */
#ifndef EB_LOG_H
#define EB_LOG_H

#include "base/status.h"

struct eb_log {
    void (*sink)(void *user, int32_t level, const char *text); /* NULL: nothing is written */
    void *user;
    int32_t level;
};

/* One line, no newline at its end. NULL-safe. */
void eb_log(const struct eb_log *log, int32_t level, const char *fmt, ...) EB_PRINTF(3, 4);

#endif
