/* session.h: what export and import of sequences share. */
#ifndef EB_SESSION_H
#define EB_SESSION_H

#include "engine/engine.h"
#include "mem/store.h"

/* Whose the engine's sequences are; n_tokens and position are left 0. */
int32_t eb_session_describe(const struct ebro_engine *e, struct eb_store_identity *out,
                            ebro_error *err);
/* Fills in *out, as far as its caller knows the struct; NULL: nothing. */
void eb_session_account(const struct ebro_engine *e, const struct eb_store_identity *id,
                        const struct eb_store_sizes *sizes, const struct eb_store *s,
                        ebro_transfer *out);

/* Called for one run of bytes after another. */
typedef int32_t (*eb_run_fn)(void *user, ebro_span where, uint64_t bytes, ebro_error *err);
/* Where the states, windows or rows of a sequence lie in the cache, in the order of the stream. Of
 * a sequence without evaluated tokens: nowhere. Ends at the first error. */
int32_t eb_session_each_run(const struct ebro_engine *e, const struct eb_seq *m, uint32_t part,
                            eb_run_fn run, void *user, ebro_error *err);

/* Parts go through host memory in pieces. Small enough to stay in a processor's cache between the
 * copy, the checksum and the system call. */
enum { EB_PIECE_BYTES = 1 << 20 };
/* Memory for one; eb_free. */
void *eb_piece_open(const struct eb_alloc *a, ebro_error *err);
/* Where in it the bytes go that stand at `offset` of the stream: EB_PIECE_BYTES fit. */
uint8_t *eb_piece_at(void *piece, uint64_t offset);

/* Bytes of an element. */
uint32_t eb_session_width(int32_t dtype);

#endif
