/* split.h: cuts text into the pieces that byte-pair encoding works on, by Kimi's rules. The one
 * place that knows PCRE2. Knows no vocabulary and no special tokens. Immutable once open; safe from
 * several threads. */
#ifndef EB_SPLIT_H
#define EB_SPLIT_H

#include "base/alloc.h"

struct eb_splitter;

/* UNSUPPORTED when the PCRE2 at hand has no Unicode or is older than 10.40. */
int32_t eb_splitter_open(const struct eb_alloc *a, struct eb_splitter **out, ebro_error *err);
void eb_splitter_close(struct eb_splitter **s);

/* Called for each piece, in order; the pieces joined are the text. A status other than OK ends the
 * splitting and is handed up. */
typedef int32_t (*eb_piece_fn)(void *user, const char *p, size_t n, ebro_error *err);

/* Any bytes. The published tokenizer sees only valid UTF-8; here a longest run of bytes that are
 * not part of a valid sequence is a piece of its own, and the text before and after it is split as
 * if it stood alone. Time is linear in `bytes`. */
int32_t eb_splitter_run(const struct eb_splitter *s, const char *text, size_t bytes,
                        eb_piece_fn piece, void *user, ebro_error *err);

#endif
