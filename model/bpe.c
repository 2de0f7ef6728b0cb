/* bpe.c: reading the ranked tokens, finding them by their bytes, merging by rank. */
#include "model/bpe.h"

#include <string.h>

static const char file_name[] = "tiktoken.model";

enum {
    MAX_TOKEN_BYTES = 4096, /* bounds the cost of one look-up; published ones reach about 130 */
    MAX_PROBES = 512,       /* a table half full of honest tokens needs well under 100 */
    N_BYTES = 256
};

/* ---- lines ------------------------------------------------------------------------------ */

struct line {
    const char *p;
    size_t n, number; /* number counts from 1 */
};

struct cursor {
    const char *at, *end;
    size_t number;
};

/* The next line that is not empty, without its end ("\n" or "\r\n"). */
static bool next_line(struct cursor *c, struct line *out) {
    while (c->at < c->end) {
        const char *stop = memchr(c->at, '\n', (size_t)(c->end - c->at));
        const char *line = c->at;
        if (stop == NULL) stop = c->end;
        c->at = stop < c->end ? stop + 1 : stop;
        c->number++;
        if (stop > line && stop[-1] == '\r') stop--;
        if (stop == line) continue;
        *out = (struct line){line, (size_t)(stop - line), c->number};
        return true;
    }
    return false;
}

static int32_t base64_value(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Strict: whole groups of four, padding at the end alone, unused bits zero. Writes n / 4 * 3 bytes
 * at most; returns how many, 0 when it is not base64 (or nothing). */
static size_t base64_decode(const char *p, size_t n, uint8_t *out) {
    if (n == 0 || n % 4 != 0) return 0;
    size_t n_pad = p[n - 1] != '=' ? 0 : p[n - 2] != '=' ? 1 : 2, n_out = 0;
    uint32_t bits = 0, n_bits = 0;
    for (size_t i = 0; i < n - n_pad; i++) {
        int32_t value = base64_value(p[i]);
        if (value < 0) return 0;
        bits = (bits << 6 | (uint32_t)value) & 0xffff;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            out[n_out++] = (uint8_t)(bits >> n_bits);
        }
    }
    return (bits & ((1u << n_bits) - 1)) == 0 ? n_out : 0;
}

static bool parse_rank(const char *p, size_t n, uint32_t *out) {
    uint64_t value = 0;
    if (n == 0 || n > 10) return false;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') return false;
        value = value * 10 + (uint64_t)(p[i] - '0');
    }
    *out = value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
    return true;
}

static int32_t read_line(struct eb_bpe *b, const struct line *line, uint32_t *at, ebro_error *err) {
    const char *space = memchr(line->p, ' ', line->n);
    size_t n_code = space != NULL ? (size_t)(space - line->p) : line->n;
    uint32_t rank = 0;
    if (space == NULL || !parse_rank(space + 1, line->n - n_code - 1, &rank))
        return eb_fail(err, EBRO_FORMAT, "%s line %zu: not \"BASE64 RANK\"", file_name,
                       line->number);
    if (n_code > MAX_TOKEN_BYTES / 3 * 4)
        return eb_fail(err, EBRO_FORMAT,
                       "%s line %zu: a token of %zu base64 characters; %d at most", file_name,
                       line->number, n_code, MAX_TOKEN_BYTES / 3 * 4);
    size_t n = base64_decode(line->p, n_code, b->text + *at);
    if (n == 0)
        return eb_fail(err, EBRO_FORMAT, "%s line %zu: not the base64 of one byte or more",
                       file_name, line->number);
    if (rank >= b->n_ranks)
        return eb_fail(err, EBRO_FORMAT, "%s line %zu: rank %u, but %u tokens have ranks 0 to %u",
                       file_name, line->number, rank, b->n_ranks, b->n_ranks - 1);
    if (b->length[rank] != 0)
        return eb_fail(err, EBRO_FORMAT, "%s line %zu: rank %u a second time", file_name,
                       line->number, rank);
    b->start[rank] = *at;
    b->length[rank] = (uint32_t)n;
    *at += (uint32_t)n;
    if (n > b->max_length) b->max_length = (uint32_t)n;
    return EBRO_OK;
}

static int32_t read_lines(struct eb_bpe *b, const struct eb_bytes *vocab, uint32_t max_ranks,
                          ebro_error *err) {
    const char *data = (const char *)vocab->data;
    const struct cursor first = {data, data + vocab->bytes, 0};
    struct cursor c = first;
    struct line line;
    size_t n = 0;
    if (vocab->bytes > INT32_MAX)
        return eb_fail(err, EBRO_FORMAT, "%s: %zu bytes; %d at most", file_name, vocab->bytes,
                       INT32_MAX);
    while (next_line(&c, &line)) n++;
    if (n == 0 || n > max_ranks)
        return eb_fail(err, EBRO_FORMAT, "%s: %zu tokens, but a model of %u ids has 1 to %u",
                       file_name, n, max_ranks, max_ranks);
    b->n_ranks = (uint32_t)n;
    b->text = eb_calloc(&b->alloc, vocab->bytes / 4 * 3, 1, err);
    if (b->text != NULL) b->start = eb_calloc(&b->alloc, n, sizeof *b->start, err);
    if (b->start != NULL) b->length = eb_calloc(&b->alloc, n, sizeof *b->length, err);
    if (b->length == NULL) return EBRO_NOMEM_HOST;
    uint32_t at = 0;
    int32_t st = EBRO_OK;
    c = first;
    while (st == EBRO_OK && next_line(&c, &line)) st = read_line(b, &line, &at, err);
    return st;
}

/* ---- finding ---------------------------------------------------------------------------- */

/* FNV-1a, then mixed: the table takes the low bits, in which FNV alone is uneven. */
static uint32_t hash_bytes(const uint8_t *p, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
    h ^= h >> 32;
    h *= 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32);
}

static bool is_token(const struct eb_bpe *b, int32_t id, const uint8_t *p, size_t n) {
    return b->length[id] == n && memcmp(b->text + b->start[id], p, n) == 0;
}

int32_t eb_bpe_find(const struct eb_bpe *b, const uint8_t *p, size_t n) {
    if (n == 0 || n > b->max_length) return -1;
    uint32_t hash = hash_bytes(p, n), mask = b->n_slots - 1;
    for (uint32_t i = hash & mask;; i = (i + 1) & mask) {
        const struct eb_bpe_slot *slot = &b->slots[i];
        if (slot->id < 0) return -1;
        if (slot->hash == hash && is_token(b, slot->id, p, n)) return slot->id;
    }
}

static int32_t insert(struct eb_bpe *b, int32_t id, ebro_error *err) {
    const uint8_t *p = b->text + b->start[id];
    uint32_t n = b->length[id], hash = hash_bytes(p, n), mask = b->n_slots - 1;
    uint32_t i = hash & mask;
    for (uint32_t probes = 0; b->slots[i].id >= 0; i = (i + 1) & mask, probes++) {
        if (b->slots[i].hash == hash && is_token(b, b->slots[i].id, p, n))
            return eb_fail(err, EBRO_FORMAT, "%s: ranks %d and %d are the same bytes", file_name,
                           b->slots[i].id, id);
        /* Tokens chosen to collide would make every look-up slow. */
        if (probes == MAX_PROBES)
            return eb_fail(err, EBRO_FORMAT, "%s: rank %d: more than %d tokens collide", file_name,
                           id, MAX_PROBES);
    }
    b->slots[i] = (struct eb_bpe_slot){hash, id};
    return EBRO_OK;
}

static int32_t index_tokens(struct eb_bpe *b, ebro_error *err) {
    b->n_slots = 2 * N_BYTES;
    while (b->n_slots / 2 < b->n_ranks) b->n_slots *= 2;
    b->slots = eb_calloc(&b->alloc, b->n_slots, sizeof *b->slots, err);
    if (b->slots == NULL) return EBRO_NOMEM_HOST;
    for (uint32_t i = 0; i < b->n_slots; i++) b->slots[i].id = -1;
    for (uint32_t id = 0; id < b->n_ranks; id++) {
        int32_t st = insert(b, (int32_t)id, err);
        if (st != EBRO_OK) return st;
    }
    for (uint32_t i = 0; i < N_BYTES; i++) {
        uint8_t byte = (uint8_t)i;
        if (eb_bpe_find(b, &byte, 1) < 0)
            return eb_fail(err, EBRO_FORMAT, "%s: no token for the single byte 0x%02x", file_name,
                           byte);
    }
    return EBRO_OK;
}

int32_t eb_bpe_open(const struct eb_alloc *a, const struct eb_bytes *vocab, uint32_t max_ranks,
                    struct eb_bpe *out, ebro_error *err) {
    *out = (struct eb_bpe){0};
    if (a != NULL) out->alloc = *a;
    int32_t st = read_lines(out, vocab, max_ranks < INT32_MAX ? max_ranks : INT32_MAX, err);
    if (st == EBRO_OK) st = index_tokens(out, err);
    if (st != EBRO_OK) eb_bpe_close(out);
    return st;
}

void eb_bpe_close(struct eb_bpe *b) {
    struct eb_alloc alloc = b->alloc;
    eb_free(&alloc, b->text);
    eb_free(&alloc, b->start);
    eb_free(&alloc, b->length);
    eb_free(&alloc, b->slots);
    *b = (struct eb_bpe){0};
}

/* ---- merging ---------------------------------------------------------------------------- */

int32_t eb_ids_push(const struct eb_alloc *a, struct eb_ids *ids, int32_t id, ebro_error *err) {
    if (ids->n == ids->capacity) {
        void *v = ids->v;
        int32_t st = eb_grow(a, &v, &ids->capacity, ids->n + 1, sizeof *ids->v, err);
        if (st != EBRO_OK) return st;
        ids->v = v;
    }
    ids->v[ids->n++] = id;
    return EBRO_OK;
}

void eb_bpe_room_free(const struct eb_bpe *b, struct eb_bpe_room *room) {
    eb_free(&b->alloc, room->nodes);
    eb_free(&b->alloc, room->heap);
    *room = (struct eb_bpe_room){0};
}

/* Heap of pairs, least key first: lowest rank, then leftmost. */
static void heap_push(struct eb_bpe_room *r, struct eb_bpe_pair pair) {
    size_t i = r->n_heap++;
    for (; i > 0 && r->heap[(i - 1) / 2].key > pair.key; i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = pair;
}

static struct eb_bpe_pair heap_pop(struct eb_bpe_room *r) {
    struct eb_bpe_pair top = r->heap[0], last = r->heap[--r->n_heap];
    size_t i = 0;
    for (size_t child = 1; child < r->n_heap; child = 2 * i + 1) {
        if (child + 1 < r->n_heap && r->heap[child + 1].key < r->heap[child].key) child++;
        if (r->heap[child].key >= last.key) break;
        r->heap[i] = r->heap[child];
        i = child;
    }
    r->heap[i] = last;
    return top;
}

static int32_t reserve(const struct eb_bpe *b, struct eb_bpe_room *r, size_t n, ebro_error *err) {
    void *nodes = r->nodes, *heap = r->heap;
    int32_t st = eb_grow(&b->alloc, &nodes, &r->node_capacity, n, sizeof *r->nodes, err);
    r->nodes = nodes;
    /* n - 1 pairs at first; each merge takes one out and puts in two at most, n - 1 times. */
    if (st == EBRO_OK)
        st = eb_grow(&b->alloc, &heap, &r->heap_capacity, 2 * n, sizeof *r->heap, err);
    r->heap = heap;
    return st;
}

/* Puts the pair whose left part starts at `at` on the heap, where it makes a token. */
static void consider(const struct eb_bpe *b, struct eb_bpe_room *r, const uint8_t *piece, size_t n,
                     uint32_t at) {
    uint32_t right = r->nodes[at].next;
    if (right >= n) return;
    uint32_t bytes = r->nodes[right].next - at;
    int32_t rank = eb_bpe_find(b, piece + at, bytes);
    if (rank >= 0) heap_push(r, (struct eb_bpe_pair){(uint64_t)rank << 32 | at, bytes});
}

static void merge_all(const struct eb_bpe *b, struct eb_bpe_room *r, const uint8_t *piece,
                      size_t n) {
    struct eb_bpe_node *nodes = r->nodes;
    while (r->n_heap > 0) {
        struct eb_bpe_pair pair = heap_pop(r);
        uint32_t at = (uint32_t)pair.key, right = nodes[at].next;
        /* Stale unless two parts that stand side by side still span just these bytes. */
        if (right == 0 || right >= n || nodes[right].next - at != pair.bytes) continue;
        uint32_t after = nodes[right].next;
        nodes[at].id = (int32_t)(pair.key >> 32);
        nodes[at].next = after;
        nodes[right].next = 0;
        if (after < n) nodes[after].prev = at;
        if (at > 0) consider(b, r, piece, n, nodes[at].prev);
        consider(b, r, piece, n, at);
    }
}

int32_t eb_bpe_encode(const struct eb_bpe *b, struct eb_bpe_room *room, const uint8_t *piece,
                      size_t n, struct eb_ids *out, ebro_error *err) {
    int32_t id = eb_bpe_find(b, piece, n);
    if (id >= 0) return eb_ids_push(&b->alloc, out, id, err);
    int32_t st = reserve(b, room, n, err);
    if (st != EBRO_OK) return st;
    room->n_heap = 0;
    for (uint32_t i = 0; i < n; i++)
        room->nodes[i] =
            (struct eb_bpe_node){i > 0 ? i - 1 : 0, i + 1, eb_bpe_find(b, piece + i, 1)};
    for (uint32_t i = 0; i < n; i++) consider(b, room, piece, n, i);
    merge_all(b, room, piece, n);
    for (uint32_t i = 0; i < n && st == EBRO_OK; i = room->nodes[i].next)
        st = eb_ids_push(&b->alloc, out, room->nodes[i].id, err);
    return st;
}
