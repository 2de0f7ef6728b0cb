/* safetensors.c: the container's reader: valid files in every form, and files made to hurt. Every
 * refusal must come within 100 ms and 16 MiB, with a text that says what is wrong. */
#include "model/safetensors.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/harness/test.h"

enum { MAX_BYTES = 16 << 20 };
/* Sanitizers slow the walk over the largest header several times over; the plain build is held to
 * the real bound. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const double max_seconds = 1.0;
#else
static const double max_seconds = 0.1;
#endif

/* An allocator that remembers the most that was held. */
struct meter {
    size_t held, peak;
};

static void *metered(void *user, void *p, size_t n) {
    struct meter *m = user;
    size_t *block = p == NULL ? NULL : (size_t *)p - 2, old = block == NULL ? 0 : *block;
    m->held -= old;
    if (n == 0) {
        free(block);
        return NULL;
    }
    block = realloc(block, n + 2 * sizeof *block);
    assert_non_null(block);
    *block = n;
    m->held += n;
    if (m->held > m->peak) m->peak = m->held;
    return block + 2;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A file with an exact copy of its bytes on the heap, so that reading past the end is caught. */
static struct eb_bytes make_file(uint64_t length, const char *header, size_t header_bytes,
                                 size_t data_bytes) {
    struct eb_bytes b;
    size_t n = 8 + header_bytes + data_bytes;
    uint8_t *p = calloc(n, 1);
    assert_non_null(p);
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(length >> (8 * i));
    memcpy(p + 8, header, header_bytes);
    eb_bytes_borrow(p, n, &b);
    return b;
}

static void free_file(struct eb_bytes *b) {
    free((void *)(uintptr_t)b->data);
}

static void refuse(const struct eb_bytes *file, int32_t status, const char *part) {
    struct meter m = {0};
    const struct eb_alloc a = {&m, metered};
    struct eb_safetensors st;
    ebro_error err = {0};
    double start = seconds();
    int32_t got = eb_safetensors_read(&a, "attack.safetensors", file, 0, &st, &err);
    double took = seconds() - start;
    test_fails(got, status, &err, part);
    test_fails(got, status, &err, "attack.safetensors");
    assert_null(st.tensors);
    assert_int_equal(m.held, 0);
    test_le(took, max_seconds, "seconds to refuse: %s", part);
    test_le((double)m.peak, MAX_BYTES, "bytes to refuse: %s", part);
}

#define ENTRY(dtype, shape, offsets) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define ONE(dtype, shape, offsets) "{\"a\":" ENTRY(dtype, shape, offsets) "}"

/* Headers with 8 bytes of data behind them. */
static const struct {
    const char *header;
    int32_t status;
    const char *part;
} attacks[] = {
    {"", EBRO_FORMAT, "JSON ends"},
    {"[]", EBRO_FORMAT, "'{'"},
    {"{", EBRO_FORMAT, "JSON ends"},
    {"{}x", EBRO_FORMAT, "wanted the end"},
    {"{\"a\"}", EBRO_FORMAT, "':'"},
    {"{\"a\":3}", EBRO_FORMAT, "'{'"},
    {"{\"a\":{}}", EBRO_FORMAT, "\"a\": no \"dtype\""},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", EBRO_FORMAT, "no \"shape\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", EBRO_FORMAT, "no \"data_offsets\""},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", EBRO_FORMAT,
     "\"dtype\" is unknown or stands"},
    {"{\"a\":{\"color\":1}}", EBRO_FORMAT, "\"color\" is unknown"},
    {"{\"a\":{\"dtype\":7}}", EBRO_FORMAT, "a string"},
    {ONE("F8_E4M3", "[8]", "[0,8]"), EBRO_UNSUPPORTED, "\"a\": dtype \"F8_E4M3\""},
    {ONE("F32", "[3]", "[0,8]"), EBRO_FORMAT, "need 12 bytes, data_offsets give 8"},
    {ONE("F32", "[2]", "[0,4]"), EBRO_FORMAT, "need 8 bytes, data_offsets give 4"},
    {ONE("F32", "[2]", "[8,0]"), EBRO_FORMAT, "end before they begin"},
    {ONE("F32", "[2]", "[4,12]"), EBRO_FORMAT, "truncated: tensor \"a\" ends at byte 12"},
    {ONE("F32", "[2]", "[0,18446744073709551615]"), EBRO_FORMAT, "truncated"},
    {ONE("F32", "[2]", "[0,18446744073709551616]"), EBRO_FORMAT, "below 2^64"},
    {ONE("F32", "[2]", "[18446744073709551608,0]"), EBRO_FORMAT, "end before they begin"},
    {ONE("F32", "[2]", "[0]"), EBRO_FORMAT, "','"},
    {ONE("F32", "[2]", "[0,8,9]"), EBRO_FORMAT, "']'"},
    {ONE("F32", "[-2]", "[0,8]"), EBRO_FORMAT, "a non-negative integer"},
    {ONE("F32", "[2.0]", "[0,8]"), EBRO_FORMAT, "an integer"},
    {ONE("F32", "[02]", "[0,8]"), EBRO_FORMAT, "leading zeros"},
    {ONE("F32", "[2,]", "[0,8]"), EBRO_FORMAT, "a non-negative integer"},
    {ONE("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), EBRO_FORMAT, "more than 8 dimensions"},
    /* 2^32 * 2^32 * 2 wraps to 0; 2^62 * 4 * 4 bytes wraps as well. */
    {ONE("U8", "[4294967296,4294967296,2]", "[0,0]"), EBRO_FORMAT, "exceeds 2^64"},
    {ONE("F32", "[4611686018427387904,4]", "[0,0]"), EBRO_FORMAT, "exceeds 2^64"},
    {ONE("F32", "[1]", "[4,8]"), EBRO_FORMAT, "4 bytes before tensor \"a\" belong to no tensor"},
    {ONE("F32", "[1]", "[0,4]"), EBRO_FORMAT, "the last 4 bytes belong to no tensor"},
    {"{\"a\":" ENTRY("F32", "[2]", "[0,8]") ",\"b\":" ENTRY("F32", "[1]", "[4,8]") "}", EBRO_FORMAT,
     "overlaps"},
    {"{\"a\":" ENTRY("F32", "[1]", "[0,4]") ",\"b\":" ENTRY("F32", "[1]", "[0,4]") "}", EBRO_FORMAT,
     "overlaps"},
    {"{\"a\":" ENTRY("F32", "[1]", "[0,4]") ",\"a\":" ENTRY("F32", "[1]", "[4,8]") "}", EBRO_FORMAT,
     "\"a\": the name stands twice"},
    {"{\"a\":" ENTRY("F32", "[1]", "[0,4]") ",\"\\u0061\":" ENTRY("F32", "[1]", "[4,8]") "}",
     EBRO_FORMAT, "\"a\": the name stands twice"},
    {"{\"a\":" ENTRY("F32", "[2]", "[0,8]") ",}", EBRO_FORMAT, "a string"},
    {"{\"a\":" ENTRY("F32", "[2]", "[0,8]") " \"b\"}", EBRO_FORMAT, "',' or '}'"},
    {"{\"\":" ENTRY("F32", "[2]", "[0,8]") "}", EBRO_FORMAT, "without a name"},
    {"{\"a\\n\":" ENTRY("F32", "[2]", "[0,8]") "}", EBRO_FORMAT, "control character 0x0a"},
    {"{\"a\\u0000\":" ENTRY("F32", "[2]", "[0,8]") "}", EBRO_FORMAT, "a valid escape"},
    {"{\"a\\ud800\":" ENTRY("F32", "[2]", "[0,8]") "}", EBRO_FORMAT, "a valid escape"},
    {"{\"a\\x\":" ENTRY("F32", "[2]", "[0,8]") "}", EBRO_FORMAT, "a valid escape"},
    {"{\"\xc0\xaf\":" ENTRY("F32", "[2]", "[0,8]") "}", EBRO_FORMAT, "UTF-8"},
    {"{\"\xed\xa0\x80\":" ENTRY("F32", "[2]", "[0,8]") "}", EBRO_FORMAT, "UTF-8"},
    {"{\"\xf4\x90\x80\x80\":" ENTRY("F32", "[2]", "[0,8]") "}", EBRO_FORMAT, "UTF-8"},
    {"{\"abc", EBRO_FORMAT, "the end of a string"},
    {"{\"\xe2\x82", EBRO_FORMAT, "UTF-8"},
    {"{\"__metadata__\":{\"format\":1}}", EBRO_FORMAT, "a string in __metadata__"},
    {"{\"__metadata__\":[]}", EBRO_FORMAT, "'{'"},
    {"{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", EBRO_FORMAT, "a string in __metadata__"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", EBRO_FORMAT, "__metadata__ stands twice"},
};

static void test_attacks(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
        size_t n = strlen(attacks[i].header);
        struct eb_bytes file = make_file(n, attacks[i].header, n, 8);
        refuse(&file, attacks[i].status, attacks[i].part);
        free_file(&file);
    }
}

static void test_lengths(void **state) {
    (void)state;
    static const char header[] = ONE("F32", "[2]", "[0,8]");
    const size_t n = sizeof header - 1;
    const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 7, UINT64_MAX / 2, 100000001};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct eb_bytes file = make_file(lengths[i], header, n, 8);
        refuse(&file, EBRO_FORMAT, "is above 100000000");
        free_file(&file);
    }
    struct eb_bytes file = make_file(n + 9, header, n, 8);
    refuse(&file, EBRO_FORMAT, "truncated: the header has");
    for (size_t cut = 0; cut < file.bytes; cut++) { /* every prefix, from a block of its own */
        uint8_t *copy = malloc(cut > 0 ? cut : 1);
        assert_non_null(copy);
        struct eb_bytes shorter;
        memcpy(copy, file.data, cut);
        if (cut > 0) copy[0] = (uint8_t)n; /* the right length */
        eb_bytes_borrow(copy, cut, &shorter);
        refuse(&shorter, EBRO_FORMAT, cut < 8 ? "too short" : "truncated");
        free(copy);
    }
    free_file(&file);
}

/* Ten megabytes that all name the same bytes, or nest, or are one string. */
static void test_large(void **state) {
    (void)state;
    enum { N = 10000000 };
    char *header = malloc(N);
    assert_non_null(header);
    size_t n = 0;
    header[n++] = '{';
    for (unsigned i = 0; n < N - 100; i++)
        n += (size_t)snprintf(header + n, 100, "%s\"%x\":" ENTRY("U8", "[1]", "[0,1]"),
                              i > 0 ? "," : "", i);
    header[n++] = '}';
    struct eb_bytes file = make_file(n, header, n, 8);
    refuse(&file, EBRO_FORMAT, "overlaps");
    free_file(&file);

    static const char open[] = "{\"__metadata__\":";
    memset(header, '[', N);
    memcpy(header, open, sizeof open - 1);
    file = make_file(N, header, N, 0);
    refuse(&file, EBRO_FORMAT, "'{'");
    free_file(&file);

    memset(header, 'x', N);
    memcpy(header, "{\"", 2);
    file = make_file(N, header, N, 0);
    refuse(&file, EBRO_FORMAT, "longer than 512 bytes");
    free_file(&file);

    memset(header, ' ', N);
    file = make_file(N, header, N, 0);
    refuse(&file, EBRO_FORMAT, "JSON ends");
    free_file(&file);
    free(header);
}

static void test_valid(void **state) {
    (void)state;
    /* Out of order in name and in data, an empty tensor, a scalar, an odd place, escapes, white
     * space behind the header. */
    static const char header[] =
        " { \"z\" : " ENTRY("BF16", "[2,3]", "[9,21]") ",\n\"__metadata__\":{\"format\":\"pt\"},"
        "\"caf\\u00e9\\ud83d\\ude00\":" ENTRY("U8", "[ 1 ]", "[8,9]") ","
        "\"empty\":" ENTRY("F16", "[4,0]", "[21,21]") ","
        "\"first\":" ENTRY("F64", "[]", "[0,8]") "}   ";
    const size_t n = sizeof header - 1;
    struct eb_bytes file = make_file(n, header, n, 21);
    struct eb_safetensors st;
    ebro_error err = {0};
    test_ok(eb_safetensors_read(NULL, "ok", &file, 3, &st, &err), &err);
    assert_int_equal(st.n_tensors, 4);
    for (size_t i = 1; i < st.n_tensors; i++)
        assert_true(strcmp(st.tensors[i - 1].name, st.tensors[i].name) < 0);

    const struct eb_tensor *t = eb_safetensors_find(&st, "z");
    assert_non_null(t);
    assert_int_equal(t->dtype, EBRO_BF16);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->bytes, 12);
    assert_int_equal(t->file, 3);
    assert_ptr_equal(t->data, file.data + 8 + n + 9);
    t = eb_safetensors_find(&st, "caf\xc3\xa9\xf0\x9f\x98\x80");
    assert_non_null(t);
    assert_int_equal(t->dtype, EBRO_U8);
    t = eb_safetensors_find(&st, "empty");
    assert_non_null(t);
    assert_int_equal(t->bytes, 0);
    t = eb_safetensors_find(&st, "first");
    assert_non_null(t);
    assert_int_equal(t->n_dims, 0);
    assert_int_equal(t->bytes, 8);
    assert_null(eb_safetensors_find(&st, "y"));
    assert_null(eb_safetensors_find(&st, ""));
    eb_safetensors_close(NULL, &st);
    assert_null(st.tensors);
    free_file(&file);

    file = make_file(2, "{}", 2, 0);
    test_ok(eb_safetensors_read(NULL, "nothing", &file, 0, &st, &err), &err);
    assert_int_equal(st.n_tensors, 0);
    assert_null(eb_safetensors_find(&st, "a"));
    eb_safetensors_close(NULL, &st);
    free_file(&file);
}

/* As many tensors as a large published shard has: reading must stay near n log n. */
static void test_many(void **state) {
    (void)state;
    enum { N = 40000, ROOM = 160 };
    char *header = malloc((size_t)N * ROOM);
    assert_non_null(header);
    size_t n = 0;
    header[n++] = '{';
    for (unsigned i = 0; i < N; i++)
        n += (size_t)snprintf(header + n, ROOM,
                              "%s\"model.layers.%u.block_sparse_moe.experts.%u.w1.weight\":"
                              "{\"dtype\":\"U8\",\"shape\":[1,2],\"data_offsets\":[%u,%u]}",
                              i > 0 ? "," : "", i % 27, i, 2 * i, 2 * i + 2);
    header[n++] = '}';
    struct eb_bytes file = make_file(n, header, n, (size_t)2 * N);
    struct eb_safetensors st;
    ebro_error err = {0};
    double start = seconds();
    test_ok(eb_safetensors_read(NULL, "many", &file, 0, &st, &err), &err);
    double took = seconds() - start;
    print_message("read a header of %d tensors in %.1f ms\n", N, 1e3 * took);
    /* About 0.05 s, 2 s under a sanitizer on a busy machine; quadratic: minutes. */
    test_le(took, 20.0, "seconds to read %d tensors", N);
    for (unsigned i = 0; i < N; i += 997) {
        char name[ROOM];
        snprintf(name, sizeof name, "model.layers.%u.block_sparse_moe.experts.%u.w1.weight", i % 27,
                 i);
        const struct eb_tensor *t = eb_safetensors_find(&st, name);
        assert_non_null(t);
        assert_ptr_equal(t->data, file.data + 8 + n + 2 * (size_t)i);
    }
    eb_safetensors_close(NULL, &st);
    free_file(&file);
    free(header);
}

static void test_dtype_names(void **state) {
    (void)state;
    assert_string_equal(eb_safetensors_dtype_name(EBRO_F32), "F32");
    assert_string_equal(eb_safetensors_dtype_name(EBRO_BF16), "BF16");
    assert_string_equal(eb_safetensors_dtype_name(EBRO_F64), "F64");
    assert_null(eb_safetensors_dtype_name(EBRO_MXFP4));
    assert_null(eb_safetensors_dtype_name(-1));
}

/* Random damage to a valid header must give an error or a table that lies inside the file. */
static void test_random_damage(void **state) {
    (void)state;
    static const char header[] = "{\"a\":" ENTRY("F32", "[1]", "[0,4]") ",\"__metadata__\":{\"x\":"
                                 "\"y\"},\"bb\":" ENTRY("U8", "[2,2]", "[4,8]") "}";
    static const char alphabet[] = "{}[]\",:0123456789aFU\\u-. \x80\xff";
    struct test_rng rng = {test_seed()};
    const size_t n = sizeof header - 1;
    size_t n_good = 0;
    for (int round = 0; round < 20000; round++) {
        struct eb_bytes file = make_file(n, header, n, 8);
        uint8_t *p = (uint8_t *)(uintptr_t)file.data;
        for (uint64_t k = 1 + test_u64(&rng) % 3; k > 0; k--)
            p[8 + test_u64(&rng) % n] = (uint8_t)alphabet[test_u64(&rng) % (sizeof alphabet - 1)];
        struct eb_safetensors st;
        ebro_error err = {0};
        int32_t got = eb_safetensors_read(NULL, "damaged", &file, 0, &st, &err);
        if (got == EBRO_OK) {
            n_good++;
            for (size_t i = 0; i < st.n_tensors; i++)
                assert_true(st.tensors[i].data >= file.data &&
                            st.tensors[i].data + st.tensors[i].bytes <= file.data + file.bytes);
            eb_safetensors_close(NULL, &st);
        } else {
            assert_true(err.text[0] != 0);
            assert_int_equal(err.status, got);
        }
        free_file(&file);
    }
    print_message("%zu of 20000 damaged headers were still valid\n", n_good);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid),         cmocka_unit_test(test_attacks),
        cmocka_unit_test(test_lengths),       cmocka_unit_test(test_large),
        cmocka_unit_test(test_many),          cmocka_unit_test(test_dtype_names),
        cmocka_unit_test(test_random_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
