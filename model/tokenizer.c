/* tokenizer.c: ties splitting and byte-pair encoding together and adds the special tokens. Not
 * here: the rules (split.c), the ranks (bpe.c), conversations (chat.c). */
#include "model/tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/bpe.h"
#include "model/split.h"

static const char config_name[] = "tokenizer_config.json";

enum {
    MAX_SPECIAL = 65536,   /* published vocabularies have 256 */
    MAX_NAME_BYTES = 1024, /* bounds the cost of a look-up at one position */
    NAME_ROOM = 40         /* "<|reserved_token_4294967295|>" */
};

struct special {
    char *name;
    size_t bytes;
    int32_t id;
};

struct eb_tokenizer {
    struct eb_alloc alloc;
    struct eb_bpe bpe;
    struct eb_splitter *splitter;
    uint32_t vocab_size, n_special;
    struct special *special; /* by id, from n_ranks up */
    struct special *sorted;  /* by name; names belong to `special` */
    uint32_t first[257];     /* names that start with byte c: sorted[first[c]] to first[c + 1] */
};

/* ---- special tokens --------------------------------------------------------------------- */

static int32_t set_name(struct eb_tokenizer *t, uint32_t i, const char *name, size_t bytes,
                        ebro_error *err) {
    struct special *s = &t->special[i];
    s->name = eb_strndup(&t->alloc, name, bytes, err);
    if (s->name == NULL) return EBRO_NOMEM_HOST;
    s->bytes = bytes;
    s->id = (int32_t)(t->bpe.n_ranks + i);
    return EBRO_OK;
}

/* A whole decimal number of at most ten digits, without sign or leading zero. */
static bool parse_id(const char *text, uint64_t *out) {
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 10 || text[n] != '\0' || (n > 1 && text[0] == '0')) return false;
    *out = strtoull(text, NULL, 10);
    return true;
}

static int32_t add_named(struct eb_tokenizer *t, const char *key, const json_t *entry,
                         ebro_error *err) {
    uint64_t id = 0;
    const json_t *content = json_object_get(entry, "content");
    if (!json_is_string(content))
        return eb_fail(err, EBRO_FORMAT, "%s: added token \"%.40s\" has no string \"content\"",
                       config_name, key);
    const char *name = json_string_value(content);
    size_t bytes = json_string_length(content);
    if (!parse_id(key, &id) || id < t->bpe.n_ranks || id >= t->vocab_size)
        return eb_fail(err, EBRO_FORMAT,
                       "%s: added token \"%.80s\" has id \"%.40s\"; special ids are %u to %u",
                       config_name, name, key, t->bpe.n_ranks, t->vocab_size - 1);
    if (bytes == 0 || bytes > MAX_NAME_BYTES)
        return eb_fail(err, EBRO_FORMAT,
                       "%s: the name of added token %s has %zu bytes; 1 to %d are right",
                       config_name, key, bytes, MAX_NAME_BYTES);
    return set_name(t, (uint32_t)id - t->bpe.n_ranks, name, bytes, err);
}

/* The one place that reads JSON here. */
static int32_t read_config(struct eb_tokenizer *t, const struct eb_bytes *config, ebro_error *err) {
    int32_t st = EBRO_OK;
    json_error_t e;
    if (config == NULL || config->bytes == 0) return EBRO_OK;
    json_t *root =
        json_loadb((const char *)config->data, config->bytes, JSON_REJECT_DUPLICATES, &e);
    if (root == NULL) {
        bool nomem = json_error_code(&e) == json_error_out_of_memory;
        return eb_fail(err, nomem ? EBRO_NOMEM_HOST : EBRO_FORMAT, "%s line %d column %d: %s",
                       config_name, e.line, e.column, e.text);
    }
    json_t *added = json_object_get(root, "added_tokens_decoder");
    if (!json_is_object(root)) {
        st = eb_fail(err, EBRO_FORMAT, "%s: not a JSON object", config_name);
    } else if (added != NULL && !json_is_object(added)) {
        st =
            eb_fail(err, EBRO_FORMAT, "%s: \"added_tokens_decoder\" is not an object", config_name);
    } else if (added != NULL) {
        for (void *at = json_object_iter(added); at != NULL && st == EBRO_OK;
             at = json_object_iter_next(added, at))
            st = add_named(t, json_object_iter_key(at), json_object_iter_value(at), err);
    }
    json_decref(root);
    return st;
}

static int compare_special(const void *a, const void *b) {
    const struct special *x = a, *y = b;
    int order = memcmp(x->name, y->name, x->bytes < y->bytes ? x->bytes : y->bytes);
    if (order != 0) return order;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int32_t sort_special(struct eb_tokenizer *t, ebro_error *err) {
    t->sorted = eb_calloc(&t->alloc, t->n_special, sizeof *t->sorted, err);
    if (t->sorted == NULL) return EBRO_NOMEM_HOST;
    if (t->n_special == 0) return EBRO_OK;
    memcpy(t->sorted, t->special, t->n_special * sizeof *t->sorted);
    qsort(t->sorted, t->n_special, sizeof *t->sorted, compare_special);
    for (uint32_t i = 0; i < t->n_special; i++) {
        const struct special *s = &t->sorted[i];
        if (i > 0 && compare_special(s - 1, s) == 0)
            return eb_fail(err, EBRO_FORMAT,
                           "%s: special tokens %d and %d share the name \"%.80s\"", config_name,
                           s[-1].id, s->id, s->name);
        t->first[(unsigned char)s->name[0] + 1]++;
    }
    for (uint32_t c = 0; c < 256; c++) t->first[c + 1] += t->first[c];
    return EBRO_OK;
}

static int32_t open_special(struct eb_tokenizer *t, const struct eb_bytes *config,
                            ebro_error *err) {
    t->n_special = t->vocab_size - t->bpe.n_ranks;
    if (t->n_special > MAX_SPECIAL) {
        uint32_t n = t->n_special;
        t->n_special = 0;
        return eb_fail(err, EBRO_FORMAT,
                       "tiktoken.model has %u tokens and the model %u ids: %u special ones, %d at "
                       "most are supported",
                       t->bpe.n_ranks, t->vocab_size, n, MAX_SPECIAL);
    }
    t->special = eb_calloc(&t->alloc, t->n_special, sizeof *t->special, err);
    if (t->special == NULL) return EBRO_NOMEM_HOST;
    int32_t st = read_config(t, config, err);
    for (uint32_t i = 0; i < t->n_special && st == EBRO_OK; i++) {
        char name[NAME_ROOM];
        if (t->special[i].name != NULL) continue;
        int n = snprintf(name, sizeof name, "<|reserved_token_%u|>", t->bpe.n_ranks + i);
        st = set_name(t, i, name, (size_t)n, err);
    }
    return st == EBRO_OK ? sort_special(t, err) : st;
}

/* Of the names in sorted[*lo, *hi), which agree in their first `depth` bytes, keeps those with byte
 * c next. */
static void narrow(const struct eb_tokenizer *t, size_t depth, unsigned char c, uint32_t *lo,
                   uint32_t *hi) {
    uint32_t bounds[2];
    for (unsigned k = 0; k < 2; k++) {
        uint32_t a = *lo, b = *hi;
        while (a < b) {
            uint32_t mid = a + (b - a) / 2;
            const struct special *s = &t->sorted[mid];
            bool below = s->bytes <= depth || (unsigned)(unsigned char)s->name[depth] < c + k;
            if (below)
                a = mid + 1;
            else
                b = mid;
        }
        bounds[k] = a;
    }
    *lo = bounds[0];
    *hi = bounds[1];
}

/* The longest name that p starts with; NULL: none. */
static const struct special *longest_special(const struct eb_tokenizer *t, const char *p,
                                             size_t n) {
    const struct special *found = NULL;
    unsigned char c = (unsigned char)p[0];
    uint32_t lo = t->first[c], hi = t->first[c + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        if (t->sorted[lo].bytes == depth) found = &t->sorted[lo];
        if (depth == n) break;
        narrow(t, depth, (unsigned char)p[depth], &lo, &hi);
    }
    return found;
}

int32_t eb_token_special(const struct eb_tokenizer *t, const char *name) {
    size_t n = name != NULL ? strlen(name) : 0;
    const struct special *s = n > 0 ? longest_special(t, name, n) : NULL;
    return s != NULL && s->bytes == n ? s->id : -1;
}

/* ---- opening ---------------------------------------------------------------------------- */

int32_t eb_tokenizer_open(const struct eb_alloc *a, const struct eb_bytes *vocab,
                          const struct eb_bytes *config, uint32_t vocab_size,
                          struct eb_tokenizer **out, ebro_error *err) {
    *out = NULL;
    if (vocab_size == 0 || vocab_size > INT32_MAX)
        return eb_fail(err, EBRO_FORMAT, "a vocabulary of %u ids; 1 to %d are right", vocab_size,
                       INT32_MAX);
    struct eb_tokenizer *t = eb_calloc(a, 1, sizeof *t, err);
    if (t == NULL) return EBRO_NOMEM_HOST;
    if (a != NULL) t->alloc = *a;
    t->vocab_size = vocab_size;
    int32_t st = eb_bpe_open(a, vocab, vocab_size, &t->bpe, err);
    if (st == EBRO_OK) st = open_special(t, config, err);
    if (st == EBRO_OK) st = eb_splitter_open(a, &t->splitter, err);
    if (st == EBRO_OK)
        *out = t;
    else
        eb_tokenizer_close(&t);
    return st;
}

void eb_tokenizer_close(struct eb_tokenizer **t) {
    if (t == NULL || *t == NULL) return;
    struct eb_alloc alloc = (*t)->alloc;
    if ((*t)->special != NULL)
        for (uint32_t i = 0; i < (*t)->n_special; i++) eb_free(&alloc, (*t)->special[i].name);
    eb_free(&alloc, (*t)->special);
    eb_free(&alloc, (*t)->sorted);
    eb_splitter_close(&(*t)->splitter);
    eb_bpe_close(&(*t)->bpe);
    eb_free(&alloc, *t);
    *t = NULL;
}

/* ---- encoding --------------------------------------------------------------------------- */

void eb_ids_free(const struct eb_alloc *a, struct eb_ids *ids) {
    eb_free(a, ids->v);
    *ids = (struct eb_ids){0};
}

struct encoder {
    const struct eb_tokenizer *t;
    struct eb_bpe_room room;
    struct eb_ids *out;
};

static int32_t encode_piece(void *user, const char *p, size_t n, ebro_error *err) {
    struct encoder *e = user;
    return eb_bpe_encode(&e->t->bpe, &e->room, (const uint8_t *)p, n, e->out, err);
}

static int32_t encode_ordinary(struct encoder *e, const char *text, size_t bytes, ebro_error *err) {
    return eb_splitter_run(e->t->splitter, text, bytes, encode_piece, e, err);
}

/* Text between two special names is split as if it stood alone. */
static int32_t encode_special(struct encoder *e, const char *text, size_t bytes, ebro_error *err) {
    size_t from = 0, at = 0;
    while (at < bytes) {
        const struct special *s = longest_special(e->t, text + at, bytes - at);
        if (s == NULL) {
            at++;
            continue;
        }
        int32_t st = encode_ordinary(e, text + from, at - from, err);
        if (st == EBRO_OK) st = eb_ids_push(&e->t->alloc, e->out, s->id, err);
        if (st != EBRO_OK) return st;
        at += s->bytes;
        from = at;
    }
    return encode_ordinary(e, text + from, bytes - from, err);
}

static int32_t check_text(const char *text, size_t bytes, ebro_error *err) {
    if (text == NULL && bytes > 0)
        return eb_fail(err, EBRO_INVALID, "text is NULL but has %zu bytes", bytes);
    if (bytes > INT32_MAX)
        return eb_fail(err, EBRO_INVALID, "a text of %zu bytes; %d at most", bytes, INT32_MAX);
    return EBRO_OK;
}

int32_t eb_tokenizer_encode(const struct eb_tokenizer *t, const char *text, size_t bytes,
                            bool special, struct eb_ids *out, ebro_error *err) {
    int32_t st = check_text(text, bytes, err);
    if (st != EBRO_OK || bytes == 0) return st;
    struct encoder e = {.t = t, .out = out};
    size_t n_before = out->n;
    st = special ? encode_special(&e, text, bytes, err) : encode_ordinary(&e, text, bytes, err);
    if (st != EBRO_OK) out->n = n_before;
    eb_bpe_room_free(&t->bpe, &e.room);
    return st;
}

int32_t eb_tokenizer_push(const struct eb_tokenizer *t, int32_t id, struct eb_ids *out,
                          ebro_error *err) {
    if (id < 0 || (uint32_t)id >= t->vocab_size)
        return eb_fail(err, EBRO_INVALID, "token id %d; the vocabulary has 0 to %u", id,
                       t->vocab_size - 1);
    return eb_ids_push(&t->alloc, out, id, err);
}

int32_t eb_tokenizer_split(const struct eb_tokenizer *t, const char *text, size_t bytes,
                           int32_t (*piece)(void *user, const char *p, size_t n, ebro_error *err),
                           void *user, ebro_error *err) {
    int32_t st = check_text(text, bytes, err);
    return st == EBRO_OK ? eb_splitter_run(t->splitter, text, bytes, piece, user, err) : st;
}

/* ---- looking ---------------------------------------------------------------------------- */

const char *eb_token_bytes(const struct eb_tokenizer *t, int32_t id, size_t *bytes,
                           bool *is_special) {
    if (id < 0 || (uint32_t)id >= t->vocab_size) return NULL;
    uint32_t i = (uint32_t)id;
    bool special = i >= t->bpe.n_ranks;
    if (is_special != NULL) *is_special = special;
    if (special) {
        *bytes = t->special[i - t->bpe.n_ranks].bytes;
        return t->special[i - t->bpe.n_ranks].name;
    }
    *bytes = t->bpe.length[i];
    return (const char *)t->bpe.text + t->bpe.start[i];
}

uint32_t eb_tokenizer_n_ranks(const struct eb_tokenizer *t) {
    return t->bpe.n_ranks;
}

uint32_t eb_tokenizer_vocab(const struct eb_tokenizer *t) {
    return t->vocab_size;
}

const struct eb_alloc *eb_tokenizer_alloc(const struct eb_tokenizer *t) {
    return &t->alloc;
}
