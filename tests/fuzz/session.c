/* session.c: a stored sequence with bytes changed, cut or added anywhere, its checksums put right
 * again so that what lies behind them is reached: it is refused with a text and nothing has
 * changed, or imported, and then it goes out as the very same bytes and can be gone on from.
 *
 * An input is a recipe: the stream to begin with, which checksums to put right, and edits. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "engine/engine.h"
#include "tests/harness/micro.h"
#include "tests/harness/test.h"

enum { MAX_BYTES = 1 << 18, N_BASES = 4, N_ENGINES = 4, FULL = 3, HEADER = 176, HEAD_BYTES = 700 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define must(condition) ((condition) ? (void)0 : abort())

/* ---- streams ------------------------------------------------------------------------------- */

struct stream {
    uint8_t data[MAX_BYTES];
    size_t n, at;
};

static struct stream bases[N_BASES], in, again;

static int32_t write_stream(void *user, const void *data, size_t n) {
    struct stream *s = user;
    if (n > MAX_BYTES - s->n) return 1;
    memcpy(s->data + s->n, data, n);
    s->n += n;
    return 0;
}

static int64_t read_stream(void *user, void *data, size_t n) {
    struct stream *s = user;
    if (n > s->n - s->at) n = s->n - s->at;
    memcpy(data, s->data + s->at, n);
    s->at += n;
    return (int64_t)n;
}

static uint64_t get(const uint8_t *p, int n) {
    uint64_t v = 0;
    for (int i = n; i > 0; i--) v = v << 8 | p[i - 1];
    return v;
}

static void put64(uint8_t *p, uint64_t v) {
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(v >> 8 * i);
}

/* As the format says, as far as the stream's own table leads. */
static void put_right(struct stream *s, unsigned which) {
    if (s->n < HEADER) return;
    uint64_t n_parts = get(s->data + 16, 4), at = HEADER;
    if (n_parts > 6) return;
    at = 24 + 24 * n_parts + 8;
    uint8_t sums[7 * 8] = {0};
    if ((which & 1) != 0) put64(s->data + at - 8, XXH3_64bits(s->data, (size_t)at - 8));
    memcpy(sums, s->data + at - 8, 8);
    for (uint64_t i = 0; i < n_parts; i++) {
        uint64_t bytes = get(s->data + 24 + 24 * i + 16, 8), number = get(s->data + 24 + 24 * i, 4);
        if (s->n < at + 8 || bytes > s->n - at - 8) return;
        if ((which >> (i + 1) & 1) != 0)
            put64(s->data + at + bytes, XXH3_64bits_withSeed(s->data + at, (size_t)bytes, number));
        at += bytes + 8;
        memcpy(sums + 8 * (i + 1), s->data + at - 8, 8);
    }
    if ((which >> 7 & 1) != 0 && s->n >= at + 16)
        put64(s->data + at + 8, XXH3_64bits(sums, sizeof sums));
}

/* Five bytes an edit: what, where, a value. Most go where the small parts are. */
static void edit(struct stream *s, const uint8_t *e) {
    size_t where = (size_t)e[1] | (size_t)e[2] << 8, value = (size_t)e[3] | (size_t)e[4] << 8;
    size_t at = s->n == 0 ? 0 : (e[0] & 0x80) != 0 ? where * 7 % s->n : where % HEAD_BYTES % s->n;
    switch (e[0] & 7) {
        case 0:
        case 1:
            if (s->n > 0) s->data[at] = (uint8_t)value;
            break;
        case 2:
            if (s->n >= 4 && at <= s->n - 4) memcpy(s->data + at, e + 1, 4);
            break;
        case 3: /* a number a little larger or smaller */
            if (s->n >= 8 && at <= s->n - 8)
                put64(s->data + at, get(s->data + at, 8) + value - 0x8000u);
            break;
        case 4:
            s->n = at;
            break;
        case 5: /* bytes in the middle */
            value %= 512;
            if (value > MAX_BYTES - s->n) break;
            memmove(s->data + at + value, s->data + at, s->n - at);
            s->n += value;
            break;
        case 6: /* bytes out of it */
            value %= 512;
            if (value > s->n - at) value = s->n - at;
            memmove(s->data + at, s->data + at + value, s->n - at - value);
            s->n -= value;
            break;
        default:
            if (s->n > 0) s->data[at] ^= (uint8_t)(1u << value % 8);
            break;
    }
}

/* ---- engines ------------------------------------------------------------------------------- */

static ebro_engine *engines[N_ENGINES];

static void open_engines(void) {
    static const struct micro_spec spec = {.seed = 1, .pattern = "KM"};
    static const int32_t dtypes[N_ENGINES] = {EBRO_F32, EBRO_F16, EBRO_F32, EBRO_F32};
    static struct micro_files files;
    ebro_runtime *rt = NULL;
    ebro_device *device = NULL;
    ebro_model *model = NULL;
    const ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    const ebro_device_settings one = {.size = sizeof one, .n_threads = 1};
    files = micro_make(&spec);
    const ebro_model_options mo = {.size = sizeof mo, .files = files.files, .n_files = files.n};
    must(ebro_runtime_open(&ro, &rt, NULL) == EBRO_OK);
    must(ebro_device_open_with(rt, "cpu", &one, &device, NULL) == EBRO_OK);
    must(ebro_model_open(rt, &mo, &model, NULL) == EBRO_OK);
    for (int i = 0; i < N_ENGINES; i++) {
        ebro_engine_options o = {.size = sizeof o,
                                 .n_ctx = i == 2 ? 8 : 64,
                                 .n_chunk = 16,
                                 .cache_dtype = dtypes[i],
                                 .max_seqs = 2};
        if (i == FULL) o.memory_bytes = eb_manager_estimate(&engines[0]->layout, 1, 64);
        must(ebro_engine_open(model, device, &o, &engines[i], NULL) == EBRO_OK);
    }
}

static void make_bases(void) {
    static const uint32_t done[N_BASES] = {0, 1, 9, 40}, pending[N_BASES] = {3, 0, 2, 0};
    static const char words[] = "words";
    int32_t ids[64];
    for (int i = 0; i < 64; i++) ids[i] = 5 * i % MICRO_RANKS;
    for (int b = 0; b < N_BASES; b++) {
        ebro_seq *s = NULL;
        const ebro_export_options o = {sizeof o, words, b % 2 == 0 ? sizeof words : 0};
        ebro_engine *e = engines[b == 3 ? 1 : 0];
        must(ebro_seq_create(e, &s, NULL) == EBRO_OK);
        must(ebro_seq_append(s, ids, done[b], 0, NULL) == EBRO_OK);
        while (ebro_seq_pending(s) > 0) must(ebro_engine_step(e, NULL) == EBRO_OK);
        must(ebro_seq_append(s, ids, pending[b], 0, NULL) == EBRO_OK);
        must(ebro_seq_export(s, write_stream, &bases[b], &o, NULL, NULL) == EBRO_OK);
        ebro_seq_destroy(&s);
        ebro_engine_forget(e);
    }
}

/* Leaves snapshots, so that no import finds room without giving one up. */
static void fill(ebro_engine *e) {
    static const int32_t ids[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    ebro_seq *s = NULL;
    must(ebro_seq_create(e, &s, NULL) == EBRO_OK);
    must(ebro_seq_append(s, ids, 9, 0, NULL) == EBRO_OK);
    while (ebro_seq_pending(s) > 0) must(ebro_engine_step(e, NULL) == EBRO_OK);
    ebro_seq_destroy(&s);
    must(!eb_manager_has_free(&e->mem, 1));
}

static void use(ebro_engine *e, ebro_seq *s, const ebro_transfer *t) {
    ebro_error err = {0};
    const int32_t id = 7;
    must(ebro_seq_length(s) == t->n_evaluated);
    must(ebro_seq_pending(s) == t->n_tokens - t->n_evaluated);
    if (t->converted == 0) {
        const ebro_export_options o = {.size = sizeof o};
        ebro_export_options same = o;
        same.application = ebro_seq_application(s, &same.application_bytes);
        again.n = 0;
        must(ebro_seq_export(s, write_stream, &again, &same, NULL, NULL) == EBRO_OK);
        must(again.n == in.at && memcmp(again.data, in.data, again.n) == 0);
    }
    /* What is finite may still be too large for the model. */
    if (ebro_seq_append(s, &id, 1, 0, &err) != EBRO_OK) return;
    while (ebro_seq_pending(s) > 0) {
        int32_t st = ebro_engine_step(e, &err);
        if (st != EBRO_OK) {
            must(st == EBRO_NUMERIC);
            break;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (engines[0] == NULL) {
        open_engines();
        make_bases();
    }
    if (bytes < 2 || bytes > 512) return 0;
    memcpy(&in, &bases[data[0] % N_BASES], sizeof in);
    in.at = 0;
    ebro_engine *e = engines[data[0] / N_BASES % N_ENGINES];
    for (size_t i = 2; i + 5 <= bytes; i += 5) edit(&in, data + i);
    /* Mostly all of them: 0 stands for that. */
    put_right(&in, data[1] == 0 ? 0xff : data[1]);

    ebro_error err = {0};
    ebro_memory before = {.size = sizeof before}, after = {.size = sizeof after};
    ebro_transfer t = {.size = sizeof t};
    ebro_seq *s = NULL;
    if (e == engines[FULL]) fill(e);
    ebro_engine_get_memory(e, &before);
    int32_t st = ebro_seq_import(e, read_stream, &in, &s, &t, &err);
    must((st == EBRO_OK) == (s != NULL));
    if (s != NULL) {
        use(e, s, &t);
        ebro_seq_destroy(&s);
        ebro_engine_forget(e);
    } else {
        must(st == err.status && err.text[0] != '\0' && st != EBRO_INTERNAL);
        ebro_engine_get_memory(e, &after);
        /* Blocks may have been held for a while. */
        must(after.taken_bytes >= before.taken_bytes && after.peak_bytes >= before.peak_bytes);
        before.taken_bytes = after.taken_bytes;
        before.peak_bytes = after.peak_bytes;
        must(memcmp(&before, &after, sizeof before) == 0);
        if (e == engines[FULL]) ebro_engine_forget(e);
    }
    must(eb_manager_audit(&e->mem) == NULL);
    return 0;
}
