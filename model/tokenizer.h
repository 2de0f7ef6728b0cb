/* tokenizer.h: byte-level BPE by rank (tiktoken) with Kimi's splitting rules, and special tokens.
 * Immutable once open; safe from several threads. */
#ifndef EB_TOKENIZER_H
#define EB_TOKENIZER_H

#include <stdbool.h>

#include "base/file.h"

struct eb_tokenizer;

/* `vocab` is tiktoken.model (base64 bytes, space, rank a line), `config` tokenizer_config.json (the
 * names of special tokens; may have bytes == 0). `vocab_size` is the model's; ids from the number
 * of ranks up to it are special: named by the config, else "<|reserved_token_ID|>". */
int32_t eb_tokenizer_open(const struct eb_alloc *a, const struct eb_bytes *vocab,
                          const struct eb_bytes *config, uint32_t vocab_size,
                          struct eb_tokenizer **out, ebro_error *err);
void eb_tokenizer_close(struct eb_tokenizer **t);

/* A growing list of ids; zero it before first use, free with eb_ids_free. */
struct eb_ids {
    int32_t *v;
    size_t n, capacity;
};
void eb_ids_free(const struct eb_alloc *a, struct eb_ids *ids);

/* Appends the ids of any bytes, valid UTF-8 or not; decoding gives the bytes back. special: names
 * of special tokens in the text become their ids, else they are plain text. */
int32_t eb_tokenizer_encode(const struct eb_tokenizer *t, const char *text, size_t bytes,
                            bool special, struct eb_ids *out, ebro_error *err);
int32_t eb_tokenizer_push(const struct eb_tokenizer *t, int32_t id, struct eb_ids *out,
                          ebro_error *err);
/* The pieces that the splitting rules give, without BPE: calls `piece` for each in order. */
int32_t eb_tokenizer_split(const struct eb_tokenizer *t, const char *text, size_t bytes,
                           int32_t (*piece)(void *user, const char *p, size_t n, ebro_error *err),
                           void *user, ebro_error *err);

const char *eb_token_bytes(const struct eb_tokenizer *t, int32_t id, size_t *bytes,
                           bool *is_special); /* NULL: no such id */
/* Id of a special token by name; -1: none. */
int32_t eb_token_special(const struct eb_tokenizer *t, const char *name);
uint32_t eb_tokenizer_n_ranks(const struct eb_tokenizer *t);
uint32_t eb_tokenizer_vocab(const struct eb_tokenizer *t);
const struct eb_alloc *eb_tokenizer_alloc(const struct eb_tokenizer *t);

#endif
