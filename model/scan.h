/* scan.h: reads JSON from front to back without building a tree, for tables with very many entries:
 * safetensors headers and shard indices. Uses no memory of its own; nesting is bounded. Errors are
 * FORMAT and name the label and the byte. */
#ifndef EB_SCAN_H
#define EB_SCAN_H

#include <stdbool.h>

#include "base/file.h"

enum { EB_SCAN_MAX_DEPTH = 16 };

/* A position in a text. `begin` .. `end` must stay valid; labels are borrowed. */
struct eb_scan {
    const char *label; /* the file, in errors */
    const uint8_t *begin, *p, *end;
};

int32_t eb_scan_fail(const struct eb_scan *s, const char *wanted, ebro_error *err);
/* White space, then exactly `c`. */
int32_t eb_scan_expect(struct eb_scan *s, char c, ebro_error *err);
/* White space, then `c` if it is there: true when it was. */
bool eb_scan_accept(struct eb_scan *s, char c);
/* Steps through the members of an object or array whose opening bracket was read: *more is set
 * where another member follows. `n`: members seen so far. */
int32_t eb_scan_next(struct eb_scan *s, size_t n, char close, bool *more, ebro_error *err);
/* A string with its escapes decoded, valid UTF-8 without NUL, into buf[capacity], NUL-terminated.
 * One that does not fit is an error. */
int32_t eb_scan_string(struct eb_scan *s, char *buf, size_t capacity, ebro_error *err);
/* As eb_scan_string, then ':'. */
int32_t eb_scan_key(struct eb_scan *s, char *buf, size_t capacity, ebro_error *err);
/* A non-negative integer below 2^64. */
int32_t eb_scan_u64(struct eb_scan *s, uint64_t *out, ebro_error *err);
/* Any value, checked only as far as needed to find its end. */
int32_t eb_scan_skip(struct eb_scan *s, ebro_error *err);
/* Nothing but white space may follow. */
int32_t eb_scan_end(struct eb_scan *s, ebro_error *err);

#endif
