/* store.h: a sequence as bytes: the format that FORMAT.md describes. Encodes and checks, streams
 * parts through a checksum, and says by name what is wrong with one. Knows no device, no file and
 * no engine. Numbers are little-endian in the stream, whatever the machine. */
#ifndef EB_STORE_H
#define EB_STORE_H

#include <stdbool.h>

#include "base/alloc.h"

/* In the order of the stream; all of them are always there, some with 0 bytes. */
enum eb_store_part {
    EB_STORE_IDENTITY = 1,
    EB_STORE_TOKENS,
    EB_STORE_STATES,
    EB_STORE_WINDOWS,
    EB_STORE_ROWS,
    EB_STORE_APPLICATION,
    EB_STORE_N_PARTS = EB_STORE_APPLICATION
};

enum {
    EB_STORE_VERSION = 1,
    EB_STORE_PREFIX_BYTES = 24, /* magic, version, header bytes, number of parts */
    EB_STORE_ENTRY_BYTES = 24,
    EB_STORE_SUM_BYTES = 8,
    EB_STORE_HEADER_BYTES =
        EB_STORE_PREFIX_BYTES + EB_STORE_N_PARTS * EB_STORE_ENTRY_BYTES + EB_STORE_SUM_BYTES,
    EB_STORE_END_BYTES = 16, /* magic, checksum of all checksums */
    EB_STORE_IDENTITY_BYTES = 120,
    EB_STORE_MOST_APPLICATION = 256 << 20,
    EB_STORE_STATE_LAYOUT = 1, /* [layer][head][key][value] */
    EB_STORE_ROW_LAYOUT = 1    /* [layer][token][latent, then key] */
};

/* Whose sequence it is, and where it stands. */
struct eb_store_identity {
    char architecture[32]; /* NUL-terminated */
    uint64_t model, tokenizer;
    uint32_t n_layers, n_kda_layers, n_mla_layers, vocab;
    uint32_t kda_heads, kda_head_dim, conv_taps; /* taps: inputs that a window holds */
    uint32_t latent, key;                        /* elements of a row */
    int32_t state_dtype, row_dtype;              /* ebro_dtype; windows are F32 */
    uint32_t state_layout, row_layout;
    uint32_t n_tokens, position; /* held; evaluated, which state and rows stand for */
};

/* Bytes of each part, by its number; [0] is not used. */
struct eb_store_sizes {
    uint64_t bytes[EB_STORE_N_PARTS + 1];
};

/* "KDA states", ...: constant. */
const char *eb_store_part_name(uint32_t part);
/* What the parts of such a sequence must have. INVALID when they overflow. */
int32_t eb_store_sizes(const struct eb_store_identity *id, uint64_t application_bytes,
                       struct eb_store_sizes *out, ebro_error *err);
/* All of a stream, header and checksums included. */
uint64_t eb_store_total(const struct eb_store_sizes *sizes);

/* out[EB_STORE_IDENTITY_BYTES]. */
void eb_store_put_identity(uint8_t *out, const struct eb_store_identity *id);
/* FORMAT for dtypes, layouts and positions that this version does not know. */
int32_t eb_store_get_identity(const uint8_t *in, struct eb_store_identity *out, ebro_error *err);
/* UNSUPPORTED, naming what differs, where a sequence of `id` is not one of `here`'s model. Dtypes
 * may differ; n_tokens and position are not looked at. */
int32_t eb_store_match(const struct eb_store_identity *id, const struct eb_store_identity *here,
                       ebro_error *err);

/* n elements of `width` bytes: from this machine's order to the stream's, or back. */
void eb_store_order(void *data, uint64_t n, uint32_t width);

/* One direction of a stream. Calls go prefix and header, then begin, put or get, end for each part
 * in order, then the end mark. Zeroed before use; eb_store_close may follow any time. */
struct eb_store {
    ebro_write_fn write;
    ebro_read_fn read;
    void *user;
    void *sum; /* of the part at hand */
    uint32_t part;
    uint64_t left; /* of the part at hand */
    uint64_t at;   /* bytes of the stream that went by */
    uint64_t sums[EB_STORE_N_PARTS + 1];
    uint64_t header_bytes; /* header, checksums, end mark: so far */
};

int32_t eb_store_open_write(struct eb_store *s, ebro_write_fn write, void *user, ebro_error *err);
int32_t eb_store_open_read(struct eb_store *s, ebro_read_fn read, void *user, ebro_error *err);
void eb_store_close(struct eb_store *s);

int32_t eb_store_put_header(struct eb_store *s, const struct eb_store_sizes *sizes,
                            ebro_error *err);
/* FORMAT: no such stream, damaged, or a part is missing, doubled or out of place; UNSUPPORTED:
 * another version. */
int32_t eb_store_get_header(struct eb_store *s, struct eb_store_sizes *out, ebro_error *err);
/* FORMAT, naming the part, where the table's sizes are not those that the identity asks for. */
int32_t eb_store_check_sizes(const struct eb_store_identity *id, const struct eb_store_sizes *table,
                             ebro_error *err);

void eb_store_begin(struct eb_store *s, uint32_t part, uint64_t bytes);
int32_t eb_store_put(struct eb_store *s, const void *data, uint64_t bytes, ebro_error *err);
int32_t eb_store_get(struct eb_store *s, void *data, uint64_t bytes, ebro_error *err);
/* Writes the part's checksum, or reads and compares it. All its bytes have gone by. */
int32_t eb_store_end_write(struct eb_store *s, ebro_error *err);
int32_t eb_store_end_read(struct eb_store *s, ebro_error *err);

int32_t eb_store_put_end(struct eb_store *s, ebro_error *err);
int32_t eb_store_get_end(struct eb_store *s, ebro_error *err);

#endif
