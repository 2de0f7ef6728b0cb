/* log.c: formats one line for the runtime's log sink. Keeps nothing. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void eb_log(const struct eb_log *log, int32_t level, const char *fmt, ...) {
    if (log == NULL || log->sink == NULL || level > log->level) return;
    char text[2048];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n >= 0) log->sink(log->user, level, text);
}
