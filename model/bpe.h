/* bpe.h: the ranked byte strings of tiktoken.model and byte-pair encoding by them. Knows nothing of
 * splitting or special tokens. Immutable once open; safe from several threads. */
#ifndef EB_BPE_H
#define EB_BPE_H

#include "model/tokenizer.h"

struct eb_bpe_slot {
    uint32_t hash;
    int32_t id; /* -1: empty */
};

struct eb_bpe {
    struct eb_alloc alloc;
    uint8_t *text;   /* the tokens' bytes, in the order of the file */
    uint32_t *start; /* token id is text[start[id]], length[id] bytes */
    uint32_t *length;
    uint32_t n_ranks, max_length;
    struct eb_bpe_slot *slots; /* open addressing, n_slots is a power of two */
    uint32_t n_slots;
};

/* Reads lines "BASE64 RANK". FORMAT, with the line, unless the ranks are 0 to n - 1, each once,
 * with n <= max_ranks, no token twice, and every single byte a token. vocab may be closed
 * afterwards. */
int32_t eb_bpe_open(const struct eb_alloc *a, const struct eb_bytes *vocab, uint32_t max_ranks,
                    struct eb_bpe *out, ebro_error *err);
void eb_bpe_close(struct eb_bpe *b); /* zeroes *b; fine on a zeroed one */

/* Id of exactly these bytes; -1: none. */
int32_t eb_bpe_find(const struct eb_bpe *b, const uint8_t *p, size_t n);

/* Room that encoding works in; zero it before first use, reuse it from piece to piece. One thread.
 */
struct eb_bpe_node {
    uint32_t prev, next; /* first bytes of the neighbours; next 0: merged away */
    int32_t id;
};
struct eb_bpe_pair {
    uint64_t key;   /* rank << 32 | first byte */
    uint32_t bytes; /* of both parts */
};
struct eb_bpe_room {
    struct eb_bpe_node *nodes;
    struct eb_bpe_pair *heap;
    size_t n_heap, node_capacity, heap_capacity;
};
void eb_bpe_room_free(const struct eb_bpe *b, struct eb_bpe_room *room);

/* Appends the ids of a piece of 1 to INT32_MAX bytes: itself where it is a token, else its bytes
 * merged by the lowest rank, leftmost first. Time is O(n log n) in the bytes of the piece. */
int32_t eb_bpe_encode(const struct eb_bpe *b, struct eb_bpe_room *room, const uint8_t *piece,
                      size_t n, struct eb_ids *out, ebro_error *err);

int32_t eb_ids_push(const struct eb_alloc *a, struct eb_ids *ids, int32_t id, ebro_error *err);

#endif
