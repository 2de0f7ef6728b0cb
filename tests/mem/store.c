/* store.c: the bytes of a stored sequence, against an encoder that is written from FORMAT.md and
 * shares no code with the product: each part at its place, each mistake named. */
#include "mem/store.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "tests/harness/test.h"

/* ---- an encoder of its own ------------------------------------------------------------------ */

enum { MOST = 8192, MOST_PARTS = 8 };

struct out {
    uint8_t at[MOST];
    size_t n;
};

static void put(struct out *o, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) {
        o->at[o->n++] = (uint8_t)(v & 255);
        v >>= 8;
    }
}

/* A part as the test wants it in the stream. `announced` and `seed` are its bytes and number unless
 * the test lies. */
struct part {
    uint32_t number;
    const uint8_t *data;
    uint64_t bytes, announced, seed;
};

struct stream {
    uint32_t version, n_parts;
    struct part part[MOST_PARTS];
    struct out out;
    size_t read; /* by the product */
};

static void encode(struct stream *s) {
    struct out *o = &s->out;
    uint64_t sums[MOST_PARTS + 1];
    o->n = 0;
    memcpy(o->at, "EBRO-SEQ", 8);
    o->n = 8;
    uint64_t header = 24 + 24 * (uint64_t)s->n_parts + 8, offset = header;
    put(o, s->version, 4);
    put(o, header, 4);
    put(o, s->n_parts, 4);
    put(o, 0, 4);
    for (uint32_t i = 0; i < s->n_parts; i++) {
        put(o, s->part[i].number, 4);
        put(o, 0, 4);
        put(o, offset, 8);
        put(o, s->part[i].announced, 8);
        offset += s->part[i].announced + 8;
    }
    sums[0] = XXH3_64bits(o->at, o->n);
    put(o, sums[0], 8);
    for (uint32_t i = 0; i < s->n_parts; i++) {
        const struct part *p = &s->part[i];
        if (p->bytes > 0) memcpy(o->at + o->n, p->data, p->bytes);
        o->n += p->bytes;
        sums[i + 1] = XXH3_64bits_withSeed(p->data, p->bytes, p->seed);
        put(o, sums[i + 1], 8);
    }
    struct out all = {.n = 0};
    for (uint32_t i = 0; i <= s->n_parts; i++) put(&all, sums[i], 8);
    memcpy(o->at + o->n, "EBRO-END", 8);
    o->n += 8;
    put(o, XXH3_64bits(all.at, all.n), 8);
}

/* 2 layers of each kind, 2 heads of 4 channels, rows of 5 + 3: 9 tokens, 7 of them evaluated. */
enum {
    N_TOKENS = 9,
    POSITION = 7,
    STATE_BYTES = 2 * 2 * 4 * 4 * 4,
    WINDOW_BYTES = 2 * 3 * 3 * 8 * 4,
    ROW_BYTES = 2 * POSITION * 8 * 2
};

static const struct eb_store_identity usual = {.architecture = "kimi-linear",
                                               .model = 0x1122334455667788u,
                                               .tokenizer = 0x99aabbccddeeff00u,
                                               .n_layers = 4,
                                               .n_kda_layers = 2,
                                               .n_mla_layers = 2,
                                               .vocab = 300,
                                               .kda_heads = 2,
                                               .kda_head_dim = 4,
                                               .conv_taps = 3,
                                               .latent = 5,
                                               .key = 3,
                                               .state_dtype = EBRO_F32,
                                               .row_dtype = EBRO_BF16,
                                               .state_layout = 1,
                                               .row_layout = 1,
                                               .n_tokens = N_TOKENS,
                                               .position = POSITION};

static void encode_identity(const struct eb_store_identity *id, uint32_t window_dtype,
                            struct out *o) {
    o->n = 0;
    memset(o->at, 0, 32);
    memcpy(o->at, id->architecture, strlen(id->architecture));
    o->n = 32;
    put(o, id->model, 8);
    put(o, id->tokenizer, 8);
    put(o, id->n_layers, 4);
    put(o, id->n_kda_layers, 4);
    put(o, id->n_mla_layers, 4);
    put(o, id->vocab, 4);
    put(o, id->kda_heads, 4);
    put(o, id->kda_head_dim, 4);
    put(o, id->conv_taps, 4);
    put(o, id->latent, 4);
    put(o, id->key, 4);
    put(o, id->state_layout, 4);
    put(o, (uint32_t)id->state_dtype, 4);
    put(o, window_dtype, 4);
    put(o, id->row_layout, 4);
    put(o, (uint32_t)id->row_dtype, 4);
    put(o, id->n_tokens, 4);
    put(o, id->position, 4);
    put(o, 0, 8);
}

/* ---- the product's side --------------------------------------------------------------------- */

static int32_t write_out(void *user, const void *data, size_t bytes) {
    struct out *o = user;
    assert_true(bytes <= MOST - o->n);
    memcpy(o->at + o->n, data, bytes);
    o->n += bytes;
    return 0;
}

/* At most 13 bytes at once. */
static int64_t read_in(void *user, void *data, size_t bytes) {
    struct stream *s = user;
    size_t left = s->out.n - s->read;
    if (bytes > left) bytes = left;
    if (bytes > 13) bytes = 13;
    memcpy(data, s->out.at + s->read, bytes);
    s->read += bytes;
    return (int64_t)bytes;
}

/* Reads a stream as an engine does and drops what is in it. */
static int32_t read_stream(struct stream *s, ebro_error *err) {
    struct eb_store in;
    struct eb_store_sizes sizes;
    struct eb_store_identity id = {0};
    uint8_t data[MOST];
    s->read = 0;
    int32_t st = eb_store_open_read(&in, read_in, s, err);
    if (st == EBRO_OK) st = eb_store_get_header(&in, &sizes, err);
    for (uint32_t i = 1; i <= EB_STORE_N_PARTS && st == EBRO_OK; i++) {
        eb_store_begin(&in, i, sizes.bytes[i]);
        st = sizes.bytes[i] > MOST ? EBRO_INTERNAL : eb_store_get(&in, data, sizes.bytes[i], err);
        if (st == EBRO_OK) st = eb_store_end_read(&in, err);
        if (st == EBRO_OK && i == EB_STORE_IDENTITY) st = eb_store_get_identity(data, &id, err);
        if (st == EBRO_OK && i == EB_STORE_IDENTITY) st = eb_store_match(&id, &usual, err);
        if (st == EBRO_OK && i == EB_STORE_IDENTITY) st = eb_store_check_sizes(&id, &sizes, err);
    }
    if (st == EBRO_OK) st = eb_store_get_end(&in, err);
    eb_store_close(&in);
    return st;
}

/* ---- the tests ------------------------------------------------------------------------------ */

static uint8_t bytes[MOST];
static struct out identity;

/* The usual stream, of the encoder above; its data is random. */
static void usual_stream(struct stream *s) {
    static const uint64_t sizes[] = {120, 4 * N_TOKENS, STATE_BYTES, WINDOW_BYTES, ROW_BYTES, 11};
    struct test_rng rng = {test_seed()};
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)test_u64(&rng);
    encode_identity(&usual, 0, &identity);
    *s = (struct stream){.version = 1, .n_parts = 6};
    for (uint32_t i = 0; i < 6; i++) {
        s->part[i] = (struct part){i + 1, i == 0 ? identity.at : bytes + 1000 * i, sizes[i],
                                   sizes[i], i + 1};
    }
}

static void as_the_format_says(void **state) {
    (void)state;
    static struct stream s;
    struct out mine = {.n = 0};
    struct eb_store o;
    struct eb_store_sizes sizes;
    ebro_error err;
    usual_stream(&s);
    encode(&s);
    test_ok(eb_store_sizes(&usual, 11, &sizes, &err), &err);
    assert_int_equal(eb_store_total(&sizes), s.out.n);
    test_ok(eb_store_open_write(&o, write_out, &mine, &err), &err);
    test_ok(eb_store_put_header(&o, &sizes, &err), &err);
    for (uint32_t i = 0; i < 6; i++) {
        uint8_t id[EB_STORE_IDENTITY_BYTES];
        eb_store_put_identity(id, &usual);
        eb_store_begin(&o, i + 1, s.part[i].bytes);
        /* in two pieces */
        const uint8_t *data = i == 0 ? id : s.part[i].data;
        test_ok(eb_store_put(&o, data, 5, &err), &err);
        test_ok(eb_store_put(&o, data + 5, s.part[i].bytes - 5, &err), &err);
        test_ok(eb_store_end_write(&o, &err), &err);
    }
    test_ok(eb_store_put_end(&o, &err), &err);
    assert_int_equal(o.header_bytes, 176 + 6 * 8 + 16);
    eb_store_close(&o);
    assert_int_equal(mine.n, s.out.n);
    assert_memory_equal(mine.at, s.out.at, mine.n);
    test_ok(read_stream(&s, &err), &err);
    assert_int_equal(s.read, s.out.n);
}

static void refused(struct stream *s, int32_t status, const char *text) {
    ebro_error err;
    encode(s);
    test_fails(read_stream(s, &err), status, &err, text);
}

static void take_out(struct stream *s, uint32_t i) {
    memmove(s->part + i, s->part + i + 1, (s->n_parts - i - 1) * sizeof *s->part);
    s->n_parts--;
}

/* HD-15 b to d, and a part twice, in another's place, and of another stream. */
static void parts(void **state) {
    (void)state;
    static const char *const names[] = {"identity",     "tokens",      "KDA states",
                                        "conv windows", "latent rows", "application bytes"};
    static struct stream good, s;
    char text[100];
    usual_stream(&good);
    for (uint32_t i = 0; i < 6; i++) {
        s = good;
        take_out(&s, i);
        snprintf(text, sizeof text, "%s: the part is missing", names[i]);
        refused(&s, EBRO_FORMAT, text);

        s = good;
        memmove(s.part + i + 1, s.part + i, (s.n_parts - i) * sizeof *s.part);
        s.n_parts++;
        snprintf(text, sizeof text, "%s: the part comes twice", names[i]);
        refused(&s, EBRO_FORMAT, text);

        /* Announced, but its bytes are not there: the next ones are taken for them. */
        s = good;
        s.part[i].bytes = 0;
        refused(&s, EBRO_FORMAT, names[i]);

        /* Its checksum is that of another number. */
        s = good;
        s.part[i].seed++;
        snprintf(text, sizeof text, "%s: damaged", names[i]);
        refused(&s, EBRO_FORMAT, text);

        if (i == 0 || i == 5) continue;
        s = good;
        s.part[i].bytes -= 4;
        s.part[i].announced -= 4;
        snprintf(text, sizeof text, "%s: %llu bytes are announced", names[i],
                 (unsigned long long)s.part[i].announced);
        refused(&s, EBRO_FORMAT, text);
        s = good;
        s.part[i].bytes += 16;
        s.part[i].announced += 16;
        snprintf(text, sizeof text, "%s: %llu bytes are announced", names[i],
                 (unsigned long long)s.part[i].announced);
        refused(&s, EBRO_FORMAT, text);
    }
    /* Rows of a whole block more than the state stands for. */
    s = good;
    s.part[4].bytes = s.part[4].announced = ROW_BYTES + 64 * 8 * 2 * 2;
    refused(&s, EBRO_FORMAT, "latent rows: ");
    s = good;
    struct part swap = s.part[2];
    s.part[2] = s.part[3];
    s.part[3] = swap;
    refused(&s, EBRO_FORMAT, "KDA states: the part is missing");
    s = good;
    s.part[5].number = 7;
    refused(&s, EBRO_FORMAT, "part number 7");
    s = good;
    s.part[3].announced = UINT64_MAX - 100;
    refused(&s, EBRO_FORMAT, "conv windows: ");

    /* The tokens of one stream in another of the same sizes. */
    ebro_error err;
    static struct stream other;
    other = good;
    other.part[1].data += 40;
    encode(&other);
    encode(&good);
    size_t at = 176 + 128;
    memcpy(good.out.at + at, other.out.at + at, 4 * N_TOKENS + 8);
    test_fails(read_stream(&good, &err), EBRO_FORMAT, &err, "the parts are not of one stream");
}

static void whose(void **state) {
    (void)state;
    static struct stream s;
    usual_stream(&s);
    s.version = 2;
    refused(&s, EBRO_UNSUPPORTED, "version 2");
    s.version = 1;
    struct eb_store_identity id;
#define OTHER(field, value, status, text) \
    id = usual;                           \
    id.field = (value);                   \
    encode_identity(&id, 0, &identity);   \
    refused(&s, (status), (text))
    /* HD-05: another layout of the states is never taken as it is. */
    OTHER(state_layout, 2, EBRO_UNSUPPORTED, "KDA states: layout 2");
    OTHER(row_layout, 0, EBRO_UNSUPPORTED, "latent rows: layout 0");
    OTHER(state_dtype, EBRO_F16, EBRO_UNSUPPORTED, "KDA states: dtype 1");
    OTHER(row_dtype, EBRO_U8, EBRO_UNSUPPORTED, "latent rows: dtype 4");
    OTHER(position, N_TOKENS + 1, EBRO_FORMAT, "10 of 9 tokens are evaluated");
    OTHER(position, POSITION + 1, EBRO_FORMAT, "latent rows: ");
    OTHER(n_tokens, N_TOKENS + 1, EBRO_FORMAT, "tokens: ");
    OTHER(n_tokens, 0x80000000u, EBRO_FORMAT, "tokens are evaluated");
    OTHER(model, 7, EBRO_UNSUPPORTED, "fingerprint is 0000000000000007");
    OTHER(tokenizer, 7, EBRO_UNSUPPORTED, "another tokenizer");
    OTHER(n_layers, 5, EBRO_UNSUPPORTED, "5 layers");
    OTHER(n_kda_layers, 5, EBRO_UNSUPPORTED, "5 KDA layers");
    OTHER(n_mla_layers, 5, EBRO_UNSUPPORTED, "5 MLA layers");
    OTHER(vocab, 5, EBRO_UNSUPPORTED, "5 tokens in the vocabulary");
    OTHER(kda_heads, 1, EBRO_UNSUPPORTED, "1 KDA heads");
    OTHER(kda_head_dim, 8, EBRO_UNSUPPORTED, "8 channels a KDA head");
    OTHER(conv_taps, 4, EBRO_UNSUPPORTED, "4 inputs in a conv window");
    OTHER(latent, 6, EBRO_UNSUPPORTED, "6 latent elements");
    OTHER(key, 6, EBRO_UNSUPPORTED, "6 key elements");
#undef OTHER
    id = usual;
    strcpy(id.architecture, "kimi-k3");
    encode_identity(&id, 0, &identity);
    refused(&s, EBRO_UNSUPPORTED, "made by a kimi-k3 model");
    encode_identity(&usual, 2, &identity);
    refused(&s, EBRO_UNSUPPORTED, "conv windows: dtype 2");
    encode_identity(&usual, 0, &identity);
    identity.at[20] = 'x';
    refused(&s, EBRO_FORMAT, "not filled up with zeros");
    memset(identity.at, 'x', 32);
    refused(&s, EBRO_FORMAT, "not filled up with zeros");
    encode_identity(&usual, 0, &identity);
    identity.at[119] = 1;
    refused(&s, EBRO_FORMAT, "the reserved bytes");
}

static void sizes_overflow(void **state) {
    (void)state;
    ebro_error err;
    struct eb_store_sizes sizes;
    struct eb_store_identity id = usual;
    id.kda_heads = id.kda_head_dim = id.n_kda_layers = UINT32_MAX;
    test_fails(eb_store_sizes(&id, 0, &sizes, &err), EBRO_INVALID, &err, "overflow");
    id = usual;
    id.latent = id.key = id.position = id.n_mla_layers = UINT32_MAX;
    test_fails(eb_store_sizes(&id, 0, &sizes, &err), EBRO_INVALID, &err, "overflow");
    test_fails(eb_store_sizes(&usual, 1ull << 40, &sizes, &err), EBRO_INVALID, &err, "at most");
    /* Nothing evaluated: nothing remembered. */
    id = usual;
    id.position = 0;
    test_ok(eb_store_sizes(&id, 0, &sizes, &err), &err);
    assert_int_equal(
        sizes.bytes[EB_STORE_STATES] + sizes.bytes[EB_STORE_WINDOWS] + sizes.bytes[EB_STORE_ROWS],
        0);
    assert_int_equal(sizes.bytes[EB_STORE_TOKENS], 4 * N_TOKENS);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_the_format_says),
                                       cmocka_unit_test(parts), cmocka_unit_test(whose),
                                       cmocka_unit_test(sizes_overflow)};
    return cmocka_run_group_tests_name("mem/store", tests, NULL, NULL);
}
