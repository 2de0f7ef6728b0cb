/* status.h: errors as values. Writes the text of an ebro_error; owns nothing. */
#ifndef EB_STATUS_H
#define EB_STATUS_H

#include "ebro/ebro.h"

#if defined(__GNUC__)
#define EB_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define EB_PRINTF(fmt, args)
#endif

/* Writes status and text to *err (NULL-safe) and returns status:
 *     return eb_fail(err, EBRO_FORMAT, "%s: no key \"hidden_size\"", path); */
int32_t eb_fail(ebro_error *err, int32_t status, const char *fmt, ...) EB_PRINTF(3, 4);

/* Appends "; while <text>" to an error that is being handed up, and returns err's status (or
 * `status` when err is NULL):
 *     if ((st = load(...)) != EBRO_OK) return eb_while(err, st, "loading %s", path); */
int32_t eb_while(ebro_error *err, int32_t status, const char *fmt, ...) EB_PRINTF(3, 4);

#endif
