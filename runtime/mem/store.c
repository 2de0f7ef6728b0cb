/* store.c: the bytes of FORMAT.md. Not its job: where they come from and go to (engine/session.c).
 */
#include "mem/store.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "ebro/backend.h"

static const char begin_magic[8] = {'E', 'B', 'R', 'O', '-', 'S', 'E', 'Q'};
static const char end_magic[8] = {'E', 'B', 'R', 'O', '-', 'E', 'N', 'D'};

const char *eb_store_part_name(uint32_t part) {
    static const char *const names[] = {"header",           "identity",     "tokens",
                                        "KDA states",       "conv windows", "latent rows",
                                        "application bytes"};
    return part < sizeof names / sizeof *names ? names[part] : "unknown part";
}

/* ---- numbers ----------------------------------------------------------------------------- */

static void put32(uint8_t **p, uint32_t v) {
    for (int i = 0; i < 4; i++) *(*p)++ = (uint8_t)(v >> (8 * i));
}

static void put64(uint8_t **p, uint64_t v) {
    for (int i = 0; i < 8; i++) *(*p)++ = (uint8_t)(v >> (8 * i));
}

static uint32_t get32(const uint8_t **p) {
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) v |= (uint32_t) * (*p)++ << (8 * i);
    return v;
}

static uint64_t get64(const uint8_t **p) {
    uint64_t low = get32(p);
    return low | (uint64_t)get32(p) << 32;
}

static bool is_little(void) {
    const uint16_t one = 1;
    uint8_t first;
    memcpy(&first, &one, 1);
    return first == 1;
}

void eb_store_order(void *data, uint64_t n, uint32_t width) {
    if (is_little()) return;
    uint8_t *p = data;
    for (uint64_t i = 0; i < n; i++, p += width) {
        for (uint32_t k = 0; k < width / 2; k++) {
            uint8_t t = p[k];
            p[k] = p[width - 1 - k];
            p[width - 1 - k] = t;
        }
    }
}

static uint64_t element(int32_t dtype) {
    return dtype == EBRO_F32 ? 4 : 2;
}

/* ---- sizes ------------------------------------------------------------------------------- */

static bool product(const uint64_t *factors, size_t n, uint64_t *out) {
    *out = 1;
    for (size_t i = 0; i < n; i++) {
        if (!eb_mul_u64(*out, factors[i], out)) return false;
    }
    return *out <= PTRDIFF_MAX;
}

int32_t eb_store_sizes(const struct eb_store_identity *id, uint64_t application_bytes,
                       struct eb_store_sizes *out, ebro_error *err) {
    /* Before the first token there is no state, not one of zeros. */
    uint64_t any = id->position > 0;
    const uint64_t states[] = {any,
                               id->n_kda_layers,
                               id->kda_heads,
                               id->kda_head_dim,
                               id->kda_head_dim,
                               element(id->state_dtype)};
    const uint64_t windows[] = {any,           id->n_kda_layers, 3, id->conv_taps,
                                id->kda_heads, id->kda_head_dim, 4};
    const uint64_t rows[] = {id->position, id->n_mla_layers, (uint64_t)id->latent + id->key,
                             element(id->row_dtype)};
    *out = (struct eb_store_sizes){0};
    uint64_t *b = out->bytes;
    b[EB_STORE_IDENTITY] = EB_STORE_IDENTITY_BYTES;
    b[EB_STORE_TOKENS] = (uint64_t)id->n_tokens * 4;
    b[EB_STORE_APPLICATION] = application_bytes;
    if (!product(states, 6, &b[EB_STORE_STATES]) || !product(windows, 7, &b[EB_STORE_WINDOWS]) ||
        !product(rows, 4, &b[EB_STORE_ROWS]))
        return eb_fail(err, EBRO_INVALID, "the sizes of a stored sequence overflow");
    if (application_bytes > EB_STORE_MOST_APPLICATION) {
        return eb_fail(err, EBRO_INVALID, "%llu application bytes: at most %d can be stored",
                       (unsigned long long)application_bytes, EB_STORE_MOST_APPLICATION);
    }
    return EBRO_OK;
}

uint64_t eb_store_total(const struct eb_store_sizes *sizes) {
    uint64_t n = EB_STORE_HEADER_BYTES + EB_STORE_END_BYTES;
    for (uint32_t i = 1; i <= EB_STORE_N_PARTS; i++) n += sizes->bytes[i] + EB_STORE_SUM_BYTES;
    return n;
}

int32_t eb_store_check_sizes(const struct eb_store_identity *id, const struct eb_store_sizes *table,
                             ebro_error *err) {
    struct eb_store_sizes want;
    int32_t st = eb_store_sizes(id, table->bytes[EB_STORE_APPLICATION], &want, err);
    if (st != EBRO_OK) return eb_while(err, st, "reading the header");
    for (uint32_t i = 1; i <= EB_STORE_N_PARTS; i++) {
        if (table->bytes[i] == want.bytes[i]) continue;
        return eb_fail(err, EBRO_FORMAT,
                       "%s: %llu bytes are announced, but %u tokens, of which %u are evaluated, "
                       "have %llu",
                       eb_store_part_name(i), (unsigned long long)table->bytes[i], id->n_tokens,
                       id->position, (unsigned long long)want.bytes[i]);
    }
    return EBRO_OK;
}

/* ---- identity ---------------------------------------------------------------------------- */

void eb_store_put_identity(uint8_t *out, const struct eb_store_identity *id) {
    uint8_t *p = out;
    memset(p, 0, sizeof id->architecture);
    memcpy(p, id->architecture, strlen(id->architecture));
    p += sizeof id->architecture;
    put64(&p, id->model);
    put64(&p, id->tokenizer);
    const uint32_t numbers[] = {id->n_layers,
                                id->n_kda_layers,
                                id->n_mla_layers,
                                id->vocab,
                                id->kda_heads,
                                id->kda_head_dim,
                                id->conv_taps,
                                id->latent,
                                id->key,
                                id->state_layout,
                                (uint32_t)id->state_dtype,
                                EBRO_F32,
                                id->row_layout,
                                (uint32_t)id->row_dtype,
                                id->n_tokens,
                                id->position};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) put32(&p, numbers[i]);
    put64(&p, 0);
    assert(p - out == EB_STORE_IDENTITY_BYTES);
}

static int32_t check_known(const struct eb_store_identity *id, uint32_t window_dtype,
                           ebro_error *err) {
    if (id->state_layout != EB_STORE_STATE_LAYOUT) {
        return eb_fail(err, EBRO_UNSUPPORTED,
                       "KDA states: layout %u; only %d, [layer][head][key][value], is known",
                       id->state_layout, EB_STORE_STATE_LAYOUT);
    }
    if (id->row_layout != EB_STORE_ROW_LAYOUT) {
        return eb_fail(err, EBRO_UNSUPPORTED,
                       "latent rows: layout %u; only %d, [layer][token][latent, key], is known",
                       id->row_layout, EB_STORE_ROW_LAYOUT);
    }
    if (id->state_dtype != EBRO_F32 && id->state_dtype != EBRO_BF16) {
        return eb_fail(err, EBRO_UNSUPPORTED, "KDA states: dtype %d; only f32 and bf16 are known",
                       id->state_dtype);
    }
    if (window_dtype != EBRO_F32) {
        return eb_fail(err, EBRO_UNSUPPORTED, "conv windows: dtype %u; only f32 is known",
                       window_dtype);
    }
    if (id->row_dtype != EBRO_F32 && id->row_dtype != EBRO_F16 && id->row_dtype != EBRO_BF16) {
        return eb_fail(err, EBRO_UNSUPPORTED,
                       "latent rows: dtype %d; only f32, f16 and bf16 are known", id->row_dtype);
    }
    return EBRO_OK;
}

/* A text, then zeros: one at least. */
static bool is_padded(const char *s, size_t n) {
    const char *end = memchr(s, 0, n);
    if (end == NULL) return false;
    for (; end < s + n; end++) {
        if (*end != 0) return false;
    }
    return true;
}

int32_t eb_store_get_identity(const uint8_t *in, struct eb_store_identity *out, ebro_error *err) {
    const uint8_t *p = in + sizeof out->architecture;
    *out = (struct eb_store_identity){0};
    memcpy(out->architecture, in, sizeof out->architecture);
    if (!is_padded(out->architecture, sizeof out->architecture)) {
        return eb_fail(err, EBRO_FORMAT,
                       "identity: the name of the architecture is not filled up with zeros");
    }
    out->model = get64(&p);
    out->tokenizer = get64(&p);
    uint32_t *const geometry[] = {&out->n_layers,    &out->n_kda_layers, &out->n_mla_layers,
                                  &out->vocab,       &out->kda_heads,    &out->kda_head_dim,
                                  &out->conv_taps,   &out->latent,       &out->key,
                                  &out->state_layout};
    for (size_t i = 0; i < sizeof geometry / sizeof *geometry; i++) *geometry[i] = get32(&p);
    out->state_dtype = (int32_t)get32(&p);
    uint32_t window_dtype = get32(&p);
    out->row_layout = get32(&p);
    out->row_dtype = (int32_t)get32(&p);
    out->n_tokens = get32(&p);
    out->position = get32(&p);
    if (get64(&p) != 0) return eb_fail(err, EBRO_FORMAT, "identity: the reserved bytes are not 0");
    int32_t st = check_known(out, window_dtype, err);
    if (st != EBRO_OK) return st;
    if (out->position > out->n_tokens || out->n_tokens > INT32_MAX) {
        return eb_fail(err, EBRO_FORMAT, "identity: %u of %u tokens are evaluated", out->position,
                       out->n_tokens);
    }
    return EBRO_OK;
}

int32_t eb_store_match(const struct eb_store_identity *id, const struct eb_store_identity *here,
                       ebro_error *err) {
    if (strcmp(id->architecture, here->architecture) != 0) {
        return eb_fail(err, EBRO_UNSUPPORTED, "made by a %.31s model: this one is %s",
                       id->architecture, here->architecture);
    }
    const struct {
        const char *name;
        uint32_t theirs, ours;
    } sizes[] = {{"layers", id->n_layers, here->n_layers},
                 {"KDA layers", id->n_kda_layers, here->n_kda_layers},
                 {"MLA layers", id->n_mla_layers, here->n_mla_layers},
                 {"tokens in the vocabulary", id->vocab, here->vocab},
                 {"KDA heads", id->kda_heads, here->kda_heads},
                 {"channels a KDA head", id->kda_head_dim, here->kda_head_dim},
                 {"inputs in a conv window", id->conv_taps, here->conv_taps},
                 {"latent elements a row", id->latent, here->latent},
                 {"key elements a row", id->key, here->key}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].theirs == sizes[i].ours) continue;
        return eb_fail(err, EBRO_UNSUPPORTED,
                       "made by another model: it has %u %s, this one has %u", sizes[i].theirs,
                       sizes[i].name, sizes[i].ours);
    }
    if (id->model != here->model) {
        return eb_fail(err, EBRO_UNSUPPORTED,
                       "made by another model of the same sizes: its fingerprint is %016llx, this "
                       "one's is %016llx",
                       (unsigned long long)id->model, (unsigned long long)here->model);
    }
    if (id->tokenizer != here->tokenizer) {
        return eb_fail(err, EBRO_UNSUPPORTED,
                       "made with another tokenizer: its fingerprint is %016llx, this one's is "
                       "%016llx",
                       (unsigned long long)id->tokenizer, (unsigned long long)here->tokenizer);
    }
    return EBRO_OK;
}

/* ---- the stream -------------------------------------------------------------------------- */

static int32_t open_store(struct eb_store *s, ebro_error *err) {
    s->sum = XXH3_createState();
    if (s->sum != NULL) return EBRO_OK;
    return eb_fail(err, EBRO_NOMEM_HOST, "out of host memory for a checksum");
}

int32_t eb_store_open_write(struct eb_store *s, ebro_write_fn write, void *user, ebro_error *err) {
    *s = (struct eb_store){.write = write, .user = user};
    return open_store(s, err);
}

int32_t eb_store_open_read(struct eb_store *s, ebro_read_fn read, void *user, ebro_error *err) {
    *s = (struct eb_store){.read = read, .user = user};
    return open_store(s, err);
}

void eb_store_close(struct eb_store *s) {
    XXH3_freeState(s->sum);
    *s = (struct eb_store){0};
}

static int32_t write_all(struct eb_store *s, const void *data, size_t bytes, ebro_error *err) {
    if (bytes == 0 || s->write(s->user, data, bytes) == 0) {
        s->at += bytes;
        return EBRO_OK;
    }
    return eb_fail(err, EBRO_IO, "%s: the receiver did not take %zu bytes",
                   eb_store_part_name(s->part), bytes);
}

static int32_t read_all(struct eb_store *s, void *data, size_t bytes, ebro_error *err) {
    uint8_t *p = data;
    for (size_t done = 0; done < bytes;) {
        int64_t n = s->read(s->user, p + done, bytes - done);
        if (n < 0 || (uint64_t)n > bytes - done) {
            return eb_fail(err, EBRO_IO, "%s: the sender failed after %zu of %zu bytes",
                           eb_store_part_name(s->part), done, bytes);
        }
        if (n == 0) {
            return eb_fail(err, EBRO_FORMAT, "%s: the stream ends %zu bytes too early",
                           eb_store_part_name(s->part), bytes - done);
        }
        done += (size_t)n;
    }
    s->at += bytes;
    return EBRO_OK;
}

int32_t eb_store_put_header(struct eb_store *s, const struct eb_store_sizes *sizes,
                            ebro_error *err) {
    uint8_t header[EB_STORE_HEADER_BYTES], *p = header;
    memcpy(p, begin_magic, sizeof begin_magic);
    p += sizeof begin_magic;
    put32(&p, EB_STORE_VERSION);
    put32(&p, EB_STORE_HEADER_BYTES);
    put32(&p, EB_STORE_N_PARTS);
    put32(&p, 0);
    uint64_t offset = EB_STORE_HEADER_BYTES;
    for (uint32_t i = 1; i <= EB_STORE_N_PARTS; i++) {
        put32(&p, i);
        put32(&p, 0);
        put64(&p, offset);
        put64(&p, sizes->bytes[i]);
        offset += sizes->bytes[i] + EB_STORE_SUM_BYTES;
    }
    s->sums[0] = XXH3_64bits(header, (size_t)(p - header));
    put64(&p, s->sums[0]);
    s->header_bytes = sizeof header;
    return write_all(s, header, sizeof header, err);
}

/* Numbers rise from 1 without a gap, and each part starts where the one before it ends. */
static int32_t read_table(const uint8_t *p, uint32_t n, struct eb_store_sizes *out,
                          ebro_error *err) {
    uint64_t offset = EB_STORE_PREFIX_BYTES + (uint64_t)n * EB_STORE_ENTRY_BYTES;
    offset += EB_STORE_SUM_BYTES;
    uint32_t next = 1;
    for (uint32_t i = 0; i < n; i++, next++) {
        uint32_t part = get32(&p), reserved = get32(&p);
        uint64_t at = get64(&p), bytes = get64(&p);
        if (part == 0 || part > EB_STORE_N_PARTS || reserved != 0)
            return eb_fail(err, EBRO_FORMAT, "header: part number %u is not known", part);
        if (part < next) {
            return eb_fail(err, EBRO_FORMAT, "%s: the part comes twice, or out of its place",
                           eb_store_part_name(part));
        }
        if (part > next)
            return eb_fail(err, EBRO_FORMAT, "%s: the part is missing", eb_store_part_name(next));
        if (at != offset || bytes > PTRDIFF_MAX ||
            !eb_add_u64(offset, bytes + EB_STORE_SUM_BYTES, &offset)) {
            return eb_fail(err, EBRO_FORMAT, "%s: %llu bytes at %llu do not follow the part before",
                           eb_store_part_name(part), (unsigned long long)bytes,
                           (unsigned long long)at);
        }
        out->bytes[part] = bytes;
    }
    if (next <= EB_STORE_N_PARTS)
        return eb_fail(err, EBRO_FORMAT, "%s: the part is missing", eb_store_part_name(next));
    return EBRO_OK;
}

int32_t eb_store_get_header(struct eb_store *s, struct eb_store_sizes *out, ebro_error *err) {
    enum { MOST_PARTS = 16 };
    uint8_t header[EB_STORE_PREFIX_BYTES + MOST_PARTS * EB_STORE_ENTRY_BYTES + EB_STORE_SUM_BYTES];
    *out = (struct eb_store_sizes){0};
    /* The first bytes alone: a short file of another kind is of another kind before it is short. */
    int32_t st = read_all(s, header, sizeof begin_magic, err);
    if (st != EBRO_OK && st != EBRO_FORMAT) return st;
    if (st != EBRO_OK || memcmp(header, begin_magic, sizeof begin_magic) != 0)
        return eb_fail(err, EBRO_FORMAT, "header: this is no stored sequence of Ebro");
    st = read_all(s, header + sizeof begin_magic, EB_STORE_PREFIX_BYTES - sizeof begin_magic, err);
    if (st != EBRO_OK) return st;
    const uint8_t *p = header + sizeof begin_magic;
    uint32_t version = get32(&p), bytes = get32(&p), n = get32(&p), reserved = get32(&p);
    if (version != EB_STORE_VERSION) {
        return eb_fail(err, EBRO_UNSUPPORTED, "header: version %u of the format; %d is known",
                       version, EB_STORE_VERSION);
    }
    size_t want = EB_STORE_PREFIX_BYTES + (size_t)n * EB_STORE_ENTRY_BYTES + EB_STORE_SUM_BYTES;
    if (n > MOST_PARTS || bytes != want || reserved != 0)
        return eb_fail(err, EBRO_FORMAT, "header: damaged: %u parts in %u bytes", n, bytes);
    st = read_all(s, header + EB_STORE_PREFIX_BYTES, want - EB_STORE_PREFIX_BYTES, err);
    if (st != EBRO_OK) return st;
    p = header + want - EB_STORE_SUM_BYTES;
    s->sums[0] = XXH3_64bits(header, want - EB_STORE_SUM_BYTES);
    if (get64(&p) != s->sums[0])
        return eb_fail(err, EBRO_FORMAT, "header: damaged: its checksum is another");
    s->header_bytes = want;
    return read_table(header + EB_STORE_PREFIX_BYTES, n, out, err);
}

void eb_store_begin(struct eb_store *s, uint32_t part, uint64_t bytes) {
    assert(s->left == 0);
    s->part = part;
    s->left = bytes;
    /* The number of the part goes into its checksum: one cannot stand in for another. */
    XXH3_64bits_reset_withSeed(s->sum, part);
}

int32_t eb_store_put(struct eb_store *s, const void *data, uint64_t bytes, ebro_error *err) {
    assert(bytes <= s->left);
    s->left -= bytes;
    if (bytes > 0) XXH3_64bits_update(s->sum, data, (size_t)bytes);
    return write_all(s, data, (size_t)bytes, err);
}

int32_t eb_store_get(struct eb_store *s, void *data, uint64_t bytes, ebro_error *err) {
    assert(bytes <= s->left);
    s->left -= bytes;
    int32_t st = read_all(s, data, (size_t)bytes, err);
    if (st == EBRO_OK && bytes > 0) XXH3_64bits_update(s->sum, data, (size_t)bytes);
    return st;
}

int32_t eb_store_end_write(struct eb_store *s, ebro_error *err) {
    uint8_t sum[EB_STORE_SUM_BYTES], *p = sum;
    assert(s->left == 0);
    s->sums[s->part] = XXH3_64bits_digest(s->sum);
    put64(&p, s->sums[s->part]);
    s->header_bytes += sizeof sum;
    return write_all(s, sum, sizeof sum, err);
}

int32_t eb_store_end_read(struct eb_store *s, ebro_error *err) {
    uint8_t sum[EB_STORE_SUM_BYTES];
    const uint8_t *p = sum;
    assert(s->left == 0);
    int32_t st = read_all(s, sum, sizeof sum, err);
    if (st != EBRO_OK) return st;
    s->sums[s->part] = XXH3_64bits_digest(s->sum);
    s->header_bytes += sizeof sum;
    if (get64(&p) == s->sums[s->part]) return EBRO_OK;
    return eb_fail(err, EBRO_FORMAT, "%s: damaged, or bytes are missing: the checksum is another",
                   eb_store_part_name(s->part));
}

/* Ties the parts together: none can be taken from another stream. */
static uint64_t sum_of_sums(const struct eb_store *s) {
    uint8_t all[sizeof s->sums], *p = all;
    for (uint32_t i = 0; i <= EB_STORE_N_PARTS; i++) put64(&p, s->sums[i]);
    return XXH3_64bits(all, sizeof all);
}

int32_t eb_store_put_end(struct eb_store *s, ebro_error *err) {
    uint8_t end[EB_STORE_END_BYTES], *p = end;
    memcpy(p, end_magic, sizeof end_magic);
    p += sizeof end_magic;
    put64(&p, sum_of_sums(s));
    s->header_bytes += sizeof end;
    s->part = 0;
    return write_all(s, end, sizeof end, err);
}

int32_t eb_store_get_end(struct eb_store *s, ebro_error *err) {
    uint8_t end[EB_STORE_END_BYTES];
    const uint8_t *p = end + sizeof end_magic;
    s->part = 0;
    int32_t st = read_all(s, end, sizeof end, err);
    if (st != EBRO_OK) return eb_while(err, st, "reading the end mark");
    s->header_bytes += sizeof end;
    if (memcmp(end, end_magic, sizeof end_magic) != 0)
        return eb_fail(err, EBRO_FORMAT, "end mark: it is not there");
    if (get64(&p) == sum_of_sums(s)) return EBRO_OK;
    return eb_fail(err, EBRO_FORMAT, "end mark: the parts are not of one stream");
}
