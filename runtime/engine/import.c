/* import.c: sequences from streams and files. Every byte is checked as it comes by. While blocks
 * are free, states and rows go straight into them, and are dropped again where the stream turns out
 * bad; else into host memory, for what is kept is given up for a sequence that is whole alone. Not
 * its job: the format (mem/store.c). */
#include <string.h>

#include "base/file.h"
#include "engine/session.h"
#include "model/quant/format.h"

struct inflow {
    struct ebro_engine *e;
    struct eb_store store;
    struct eb_store_identity id;
    struct eb_store_sizes sizes;
    void *tokens, *application;
    /* Where states, windows and rows go, in the engine's dtypes. */
    struct eb_seq *mem;                 /* NULL: into host memory */
    void *staged[EB_STORE_N_PARTS + 1]; /* by part */
    /* The part at hand, piece by piece. */
    void *piece, *converted;
    int32_t from, to;  /* dtypes, in the stream and in the engine */
    const uint8_t *at; /* what was read and not put anywhere yet, in the engine's dtype */
    uint64_t ready;    /* bytes there */
    bool finite, fits; /* so far */
};

static void release(struct inflow *in) {
    const struct eb_alloc *a = &in->e->alloc;
    for (uint32_t i = 0; i <= EB_STORE_N_PARTS; i++) eb_free(a, in->staged[i]);
    eb_free(a, in->tokens);
    eb_free(a, in->application);
    eb_free(a, in->piece);
    eb_free(a, in->converted);
    eb_store_close(&in->store);
}

/* ---- the small parts ----------------------------------------------------------------------- */

/* All that can be said before the large parts come. */
static int32_t get_identity(struct inflow *in, ebro_error *err) {
    struct ebro_engine *e = in->e;
    struct eb_store_identity here;
    uint8_t bytes[EB_STORE_IDENTITY_BYTES];
    int32_t st = eb_store_get_header(&in->store, &in->sizes, err);
    if (st != EBRO_OK) return st;
    if (in->sizes.bytes[EB_STORE_IDENTITY] != sizeof bytes) {
        return eb_fail(err, EBRO_FORMAT, "identity: %llu bytes are announced, it has %zu",
                       (unsigned long long)in->sizes.bytes[EB_STORE_IDENTITY], sizeof bytes);
    }
    eb_store_begin(&in->store, EB_STORE_IDENTITY, sizeof bytes);
    if ((st = eb_store_get(&in->store, bytes, sizeof bytes, err)) != EBRO_OK) return st;
    if ((st = eb_store_end_read(&in->store, err)) != EBRO_OK) return st;
    if ((st = eb_store_get_identity(bytes, &in->id, err)) != EBRO_OK) return st;
    if ((st = eb_session_describe(e, &here, err)) != EBRO_OK) return st;
    if ((st = eb_store_match(&in->id, &here, err)) != EBRO_OK) return st;
    if (in->id.n_tokens > e->n_ctx) {
        return eb_fail(err, EBRO_INVALID, "it holds %u tokens, the context has %u", in->id.n_tokens,
                       e->n_ctx);
    }
    if ((st = eb_store_check_sizes(&in->id, &in->sizes, err)) != EBRO_OK) return st;
    return eb_manager_check_room(&e->mem, in->id.n_tokens, in->id.position, err);
}

static int32_t get_tokens(struct inflow *in, ebro_error *err) {
    uint64_t bytes = in->sizes.bytes[EB_STORE_TOKENS];
    int32_t st = eb_realloc(&in->e->alloc, &in->tokens, (size_t)bytes, 1, err);
    if (st != EBRO_OK) return eb_while(err, st, "reading the tokens");
    eb_store_begin(&in->store, EB_STORE_TOKENS, bytes);
    st = eb_store_get(&in->store, in->tokens, bytes, err);
    if (st == EBRO_OK) st = eb_store_end_read(&in->store, err);
    if (st != EBRO_OK) return st;
    eb_store_order(in->tokens, in->id.n_tokens, 4);
    const int32_t *ids = in->tokens;
    for (uint32_t i = 0; i < in->id.n_tokens; i++) {
        if (ids[i] >= 0 && (uint32_t)ids[i] < in->id.vocab) continue;
        return eb_fail(err, EBRO_FORMAT, "tokens: number %u has id %d: the vocabulary has 0 to %u",
                       i, ids[i], in->id.vocab - 1);
    }
    return EBRO_OK;
}

/* Nobody but the stream says how many they are: memory grows with what comes. */
static int32_t get_application(struct inflow *in, ebro_error *err) {
    uint64_t left = in->sizes.bytes[EB_STORE_APPLICATION];
    size_t capacity = 0, used = 0;
    int32_t st = EBRO_OK;
    eb_store_begin(&in->store, EB_STORE_APPLICATION, left);
    while (left > 0 && st == EBRO_OK) {
        size_t n = left < EB_PIECE_BYTES ? (size_t)left : EB_PIECE_BYTES;
        st = eb_grow(&in->e->alloc, &in->application, &capacity, used + n, 1, err);
        if (st == EBRO_OK) st = eb_store_get(&in->store, (uint8_t *)in->application + used, n, err);
        used += n;
        left -= n;
    }
    return st == EBRO_OK ? eb_store_end_read(&in->store, err) : st;
}

/* ---- numbers ------------------------------------------------------------------------------- */

/* The largest exponent says whether all are finite; runs of fixed length become vector code. */
enum { RUN = 1024 };

static bool finite_f32(const uint32_t *p, uint64_t n) {
    const uint32_t mask = 0x7f800000u;
    uint32_t bad = 0;
    for (; n >= RUN; n -= RUN, p += RUN) {
        for (int i = 0; i < RUN; i++) bad |= (uint32_t)((p[i] & mask) == mask);
    }
    for (uint64_t i = 0; i < n; i++) bad |= (uint32_t)((p[i] & mask) == mask);
    return bad == 0;
}

static bool finite_16(const uint16_t *p, uint64_t n, uint16_t mask) {
    uint16_t bad = 0;
    for (; n >= RUN; n -= RUN, p += RUN) {
        for (int i = 0; i < RUN; i++) bad |= (uint16_t)((p[i] & mask) == mask);
    }
    for (uint64_t i = 0; i < n; i++) bad |= (uint16_t)((p[i] & mask) == mask);
    return bad == 0;
}

static bool finite(const void *p, uint64_t n, int32_t dtype) {
    if (dtype == EBRO_F32) return finite_f32(p, n);
    return finite_16(p, n, dtype == EBRO_F16 ? 0x7c00 : 0x7f80);
}

static float widen(const void *p, uint64_t i, int32_t dtype) {
    if (dtype == EBRO_F32) return ((const float *)p)[i];
    uint16_t h = ((const uint16_t *)p)[i];
    return dtype == EBRO_F16 ? eb_f16_to_f32(h) : eb_bf16_to_f32(h);
}

static void narrow(void *p, uint64_t i, int32_t dtype, float v) {
    if (dtype == EBRO_F32)
        ((float *)p)[i] = v;
    else
        ((uint16_t *)p)[i] = dtype == EBRO_F16 ? eb_f32_to_f16(v) : eb_f32_to_bf16(v);
}

static const char *dtype_name(int32_t dtype) {
    return dtype == EBRO_F32 ? "f32" : dtype == EBRO_F16 ? "f16" : "bf16";
}

/* Rounds to nearest. */
static int32_t convert(struct inflow *in, uint64_t n, ebro_error *err) {
    enum { MOST = EB_PIECE_BYTES / 2 * 4 }; /* all of a piece widened */
    if (in->converted == NULL) in->converted = eb_calloc(&in->e->alloc, MOST, 1, err);
    if (in->converted == NULL) return EBRO_NOMEM_HOST;
    for (uint64_t i = 0; i < n; i++) narrow(in->converted, i, in->to, widen(in->at, i, in->from));
    /* A value that is too large for the other dtype must not become infinite. */
    in->fits = in->fits && finite(in->converted, n, in->to);
    in->at = in->converted;
    in->ready = n * eb_session_width(in->to);
    return EBRO_OK;
}

static int32_t next_piece(struct inflow *in, ebro_error *err) {
    uint32_t width = eb_session_width(in->from);
    uint64_t bytes = in->store.left < EB_PIECE_BYTES ? in->store.left : EB_PIECE_BYTES;
    uint8_t *p = eb_piece_at(in->piece, in->store.at);
    /* What was read before may still be on its way to the device. */
    int32_t st = eb_stream_sync(&in->e->stream, err);
    if (st == EBRO_OK) st = eb_store_get(&in->store, p, bytes, err);
    if (st != EBRO_OK) return st;
    eb_store_order(p, bytes / width, width);
    in->finite = in->finite && finite(p, bytes / width, in->from);
    in->at = p;
    in->ready = bytes;
    return in->from == in->to ? EBRO_OK : convert(in, bytes / width, err);
}

/* The next bytes, at most `most`. */
static int32_t take(struct inflow *in, uint64_t most, const uint8_t **at, uint64_t *n,
                    ebro_error *err) {
    int32_t st = in->ready == 0 ? next_piece(in, err) : EBRO_OK;
    *n = 0;
    if (st != EBRO_OK) return st;
    *n = in->ready < most ? in->ready : most;
    *at = in->at;
    in->at += *n;
    in->ready -= *n;
    return EBRO_OK;
}

static int32_t fill_run(void *user, ebro_span where, uint64_t bytes, ebro_error *err) {
    struct inflow *in = user;
    int32_t st = EBRO_OK;
    for (uint64_t n; bytes > 0 && st == EBRO_OK; where.offset += n, bytes -= n) {
        const uint8_t *from;
        st = take(in, bytes, &from, &n, err);
        if (st == EBRO_OK) st = eb_upload(&in->e->stream, where, from, n, err);
    }
    return st;
}

static int32_t stage(struct inflow *in, uint32_t part, ebro_error *err) {
    uint64_t count = in->sizes.bytes[part] / eb_session_width(in->from);
    uint64_t left = count * eb_session_width(in->to);
    int32_t st =
        eb_realloc(&in->e->alloc, &in->staged[part], (size_t)count, eb_session_width(in->to), err);
    if (st != EBRO_OK) return eb_while(err, st, "reading the %s", eb_store_part_name(part));
    uint8_t *to = in->staged[part];
    for (uint64_t n; left > 0 && st == EBRO_OK; to += n, left -= n) {
        const uint8_t *from;
        st = take(in, left, &from, &n, err);
        if (st == EBRO_OK) memcpy(to, from, (size_t)n);
    }
    return st;
}

static int32_t get_numbers(struct inflow *in, uint32_t part, int32_t from, int32_t to,
                           ebro_error *err) {
    in->from = from;
    in->to = to;
    in->finite = in->fits = true;
    in->ready = 0;
    eb_store_begin(&in->store, part, in->sizes.bytes[part]);
    int32_t st = in->mem != NULL ? eb_session_each_run(in->e, in->mem, part, fill_run, in, err)
                                 : stage(in, part, err);
    if (st == EBRO_OK) st = eb_store_end_read(&in->store, err);
    if (st != EBRO_OK) return st;
    if (!in->finite)
        return eb_fail(err, EBRO_FORMAT, "%s: a value is not finite", eb_store_part_name(part));
    if (in->fits) return EBRO_OK;
    return eb_fail(err, EBRO_INVALID, "%s: a value is too large for %s", eb_store_part_name(part),
                   dtype_name(to));
}

/* ---- all of it ----------------------------------------------------------------------------- */

/* The sequence with its blocks, which hold nothing yet. */
static int32_t restore(struct inflow *in, ebro_error *err) {
    return eb_seq_restore(&in->e->mem, in->tokens, in->id.n_tokens, in->id.position, &in->mem, err);
}

static int32_t get_all(struct inflow *in, ebro_error *err) {
    struct ebro_engine *e = in->e;
    const struct eb_shape *shape = &e->layout.shape;
    int32_t st = get_identity(in, err);
    if (st == EBRO_OK) st = get_tokens(in, err);
    if (st == EBRO_OK && eb_manager_has_free(&e->mem, in->id.position)) st = restore(in, err);
    if (st == EBRO_OK && (in->piece = eb_piece_open(&e->alloc, err)) == NULL) st = EBRO_NOMEM_HOST;
    if (st == EBRO_OK)
        st = get_numbers(in, EB_STORE_STATES, in->id.state_dtype, shape->state_dtype, err);
    if (st == EBRO_OK) st = get_numbers(in, EB_STORE_WINDOWS, EBRO_F32, EBRO_F32, err);
    if (st == EBRO_OK) st = get_numbers(in, EB_STORE_ROWS, in->id.row_dtype, shape->row_dtype, err);
    if (st == EBRO_OK) st = get_application(in, err);
    return st == EBRO_OK ? eb_store_get_end(&in->store, err) : st;
}

struct upload {
    struct ebro_engine *e;
    const uint8_t *at;
};

static int32_t upload_run(void *user, ebro_span where, uint64_t bytes, ebro_error *err) {
    struct upload *u = user;
    int32_t st = eb_upload(&u->e->stream, where, u->at, bytes, err);
    u->at += bytes;
    return st;
}

/* From host memory into blocks that others may have to give up. */
static int32_t move_in(struct inflow *in, ebro_error *err) {
    int32_t st = restore(in, err);
    for (uint32_t part = EB_STORE_STATES; part <= EB_STORE_ROWS && st == EBRO_OK; part++) {
        struct upload u = {in->e, in->staged[part]};
        st = eb_session_each_run(in->e, in->mem, part, upload_run, &u, err);
    }
    return st;
}

static void tell_one(const struct inflow *in, const char *what, int32_t theirs, int32_t ours) {
    if (theirs == ours) return;
    eb_log(&in->e->device->rt->log, EBRO_LOG_WARN,
           "the sequence was stored with %s in %s, this engine has %s: converted%s", what,
           dtype_name(theirs), dtype_name(ours),
           ours == EBRO_F32 ? "" : " and rounded, so that results may differ a little");
}

static void tell_converted(const struct inflow *in) {
    tell_one(in, "its latent cache", in->id.row_dtype, in->e->cache_dtype);
    tell_one(in, "its recurrent states", in->id.state_dtype, in->e->layout.shape.state_dtype);
}

/* All is there and good. */
static void adopt(struct inflow *in, ebro_seq *s) {
    eb_seq_adopt(s, in->mem);
    eb_seq_restored(in->mem);
    in->mem = NULL;
    s->application = in->application;
    s->application_bytes = (size_t)in->sizes.bytes[EB_STORE_APPLICATION];
    in->application = NULL;
    tell_converted(in);
}

/* Nothing may follow. */
static int32_t check_end(ebro_read_fn read, void *user, ebro_error *err) {
    uint8_t more;
    int64_t n = read(user, &more, 1);
    if (n == 0) return EBRO_OK;
    return n < 0 ? eb_fail(err, EBRO_IO, "end mark: the sender failed behind it")
                 : eb_fail(err, EBRO_FORMAT, "end mark: there are bytes behind it");
}

/* to_end: nothing may follow. */
static int32_t import(struct ebro_engine *e, ebro_read_fn read, void *user, bool to_end,
                      ebro_seq **out, ebro_transfer *transfer, ebro_error *err) {
    struct inflow in = {.e = e};
    ebro_seq *seq = NULL;
    int32_t st = eb_engine_check_count(e, err);
    if (st == EBRO_OK && e->expert_choices) {
        st = eb_fail(err, EBRO_INVALID,
                     "the engine keeps expert choices (expert_choices), and a stored sequence has "
                     "none");
    }
    /* Nothing that can fail is left for when others have given up their memory. */
    if (st == EBRO_OK) st = eb_seq_prepare(e, &seq, err);
    if (st != EBRO_OK) return st;
    st = eb_store_open_read(&in.store, read, user, err);
    if (st == EBRO_OK) st = get_all(&in, err);
    if (st == EBRO_OK && to_end) st = check_end(read, user, err);
    if (st == EBRO_OK && in.mem == NULL) st = move_in(&in, err);
    int32_t synced = eb_stream_sync(&e->stream, st == EBRO_OK ? err : NULL);
    if (st == EBRO_OK) st = synced;
    if (st == EBRO_OK) {
        adopt(&in, seq);
        eb_session_account(e, &in.id, &in.sizes, &in.store, transfer);
        *out = seq;
    } else {
        eb_seq_close(&in.mem);
        ebro_seq_destroy(&seq);
    }
    release(&in);
    return st;
}

int32_t ebro_seq_import(ebro_engine *engine, ebro_read_fn read, void *user, ebro_seq **out,
                        ebro_transfer *transfer, ebro_error *err) {
    if (engine == NULL || read == NULL || out == NULL) {
        return eb_fail(err, EBRO_INVALID, "ebro_seq_import: engine, read and out must not be NULL");
    }
    *out = NULL;
    int32_t st = import(engine, read, user, false, out, transfer, err);
    return st == EBRO_OK ? st : eb_while(err, st, "importing a sequence");
}

const void *ebro_seq_application(const ebro_seq *seq, size_t *bytes) {
    if (bytes != NULL) *bytes = seq == NULL ? 0 : seq->application_bytes;
    return seq == NULL || seq->application_bytes == 0 ? NULL : seq->application;
}

/* ---- files --------------------------------------------------------------------------------- */

struct file_source {
    int fd;
    ebro_error why;
};

static int64_t read_file(void *user, void *data, size_t bytes) {
    struct file_source *s = user;
    return eb_file_read(s->fd, data, bytes, &s->why);
}

int32_t ebro_seq_load(ebro_engine *engine, const char *path, ebro_seq **out,
                      ebro_transfer *transfer, ebro_error *err) {
    struct file_source source = {.fd = -1};
    if (engine == NULL || path == NULL || out == NULL) {
        return eb_fail(err, EBRO_INVALID, "ebro_seq_load: engine, path and out must not be NULL");
    }
    *out = NULL;
    int32_t st = eb_file_open(path, &source.fd, err);
    if (st == EBRO_OK) {
        st = import(engine, read_file, &source, true, out, transfer, err);
        /* The system's reason says more than that the stream ended. */
        if (source.why.status != EBRO_OK)
            st = eb_fail(err, EBRO_IO, "%s: reading: %s", path, source.why.text);
        eb_file_close(&source.fd);
    }
    return st == EBRO_OK ? st : eb_while(err, st, "loading a sequence from %s", path);
}
