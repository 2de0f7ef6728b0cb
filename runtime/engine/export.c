/* export.c: sequences to streams and files. Not its job: the format (mem/store.c), and how a file
 * is written whole or not at all (base/file_out.c). */
#include <string.h>

#include "base/file_out.h"
#include "engine/session.h"

/* Runs are collected into pieces, so that the receiver gets large ones. */
struct outflow {
    struct ebro_engine *e;
    struct eb_store store;
    void *piece;
    uint64_t used;  /* bytes collected */
    uint32_t width; /* of the part's elements */
};

static int32_t flush(struct outflow *o, ebro_error *err) {
    uint8_t *p = eb_piece_at(o->piece, o->store.at);
    int32_t st = eb_stream_sync(&o->e->stream, err);
    if (st != EBRO_OK) return st;
    eb_store_order(p, o->used / o->width, o->width);
    st = eb_store_put(&o->store, p, o->used, err);
    o->used = 0;
    return st;
}

/* Where the next of `bytes` bytes are to go, and how many of them fit there. */
static uint8_t *room(const struct outflow *o, uint64_t bytes, uint64_t *n) {
    *n = EB_PIECE_BYTES - o->used < bytes ? EB_PIECE_BYTES - o->used : bytes;
    return eb_piece_at(o->piece, o->store.at) + o->used;
}

static int32_t collected(struct outflow *o, uint64_t n, ebro_error *err) {
    o->used += n;
    return o->used == EB_PIECE_BYTES ? flush(o, err) : EBRO_OK;
}

static int32_t put_run(void *user, ebro_span where, uint64_t bytes, ebro_error *err) {
    struct outflow *o = user;
    int32_t st = EBRO_OK;
    for (uint64_t n; bytes > 0 && st == EBRO_OK; where.offset += n, bytes -= n) {
        uint8_t *to = room(o, bytes, &n);
        st = eb_download(&o->e->stream, to, where, n, err);
        if (st == EBRO_OK) st = collected(o, n, err);
    }
    return st;
}

static int32_t put_host(struct outflow *o, const void *data, uint64_t bytes, ebro_error *err) {
    const uint8_t *from = data;
    int32_t st = EBRO_OK;
    for (uint64_t n; bytes > 0 && st == EBRO_OK; from += n, bytes -= n) {
        uint8_t *to = room(o, bytes, &n);
        memcpy(to, from, (size_t)n);
        st = collected(o, n, err);
    }
    return st;
}

/* m: where the part comes from; NULL: it is `data`. */
static int32_t put_part(struct outflow *o, uint32_t part, const struct eb_store_sizes *sizes,
                        uint32_t width, const struct eb_seq *m, const void *data, ebro_error *err) {
    uint64_t bytes = sizes->bytes[part];
    o->width = width;
    eb_store_begin(&o->store, part, bytes);
    int32_t st = m != NULL ? eb_session_each_run(o->e, m, part, put_run, o, err)
                           : put_host(o, data, bytes, err);
    if (st == EBRO_OK) st = flush(o, err);
    return st == EBRO_OK ? eb_store_end_write(&o->store, err) : st;
}

static int32_t put_all(struct outflow *o, const struct eb_seq *m,
                       const struct eb_store_identity *id, const struct eb_store_sizes *sizes,
                       const void *application, ebro_error *err) {
    uint8_t identity[EB_STORE_IDENTITY_BYTES];
    const struct {
        uint32_t part, width;
        const struct eb_seq *m;
        const void *data;
    } parts[] = {{EB_STORE_IDENTITY, 1, NULL, identity},
                 {EB_STORE_TOKENS, 4, NULL, m->tokens},
                 {EB_STORE_STATES, eb_session_width(id->state_dtype), m, NULL},
                 {EB_STORE_WINDOWS, 4, m, NULL},
                 {EB_STORE_ROWS, eb_session_width(id->row_dtype), m, NULL},
                 {EB_STORE_APPLICATION, 1, NULL, application}};
    eb_store_put_identity(identity, id);
    int32_t st = eb_store_put_header(&o->store, sizes, err);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && st == EBRO_OK; i++) {
        st = put_part(o, parts[i].part, sizes, parts[i].width, parts[i].m, parts[i].data, err);
    }
    return st == EBRO_OK ? eb_store_put_end(&o->store, err) : st;
}

static int32_t read_options(const ebro_export_options *in, ebro_export_options *out,
                            ebro_error *err) {
    *out = (ebro_export_options){0};
    if (in == NULL) return EBRO_OK;
    if (in->size < sizeof in->size) {
        return eb_fail(err, EBRO_INVALID,
                       "ebro_export_options.size is %zu: set it to sizeof the struct", in->size);
    }
    memcpy(out, in, in->size < sizeof *out ? in->size : sizeof *out);
    if (out->application == NULL && out->application_bytes > 0) {
        return eb_fail(err, EBRO_INVALID, "application is NULL with application_bytes %zu",
                       out->application_bytes);
    }
    return EBRO_OK;
}

int32_t ebro_seq_export(const ebro_seq *seq, ebro_write_fn write, void *user,
                        const ebro_export_options *options, ebro_transfer *transfer,
                        ebro_error *err) {
    ebro_export_options opt;
    struct eb_store_identity id;
    struct eb_store_sizes sizes;
    int32_t st = eb_seq_check(seq, err);
    if (st != EBRO_OK) return st;
    if (write == NULL) return eb_fail(err, EBRO_INVALID, "ebro_seq_export: write is NULL");
    if ((st = read_options(options, &opt, err)) != EBRO_OK) return st;
    struct outflow o = {.e = seq->engine};
    const struct eb_seq *m = seq->mem;
    if ((st = eb_session_describe(o.e, &id, err)) != EBRO_OK) return st;
    id.n_tokens = m->n_tokens;
    id.position = m->n_done;
    if ((st = eb_store_sizes(&id, opt.application_bytes, &sizes, err)) != EBRO_OK) return st;
    o.piece = eb_piece_open(&o.e->alloc, err);
    if (o.piece == NULL) return EBRO_NOMEM_HOST;
    st = eb_store_open_write(&o.store, write, user, err);
    if (st == EBRO_OK) st = put_all(&o, m, &id, &sizes, opt.application, err);
    if (st == EBRO_OK) eb_session_account(o.e, &id, &sizes, &o.store, transfer);
    /* A download may still be on its way into the piece. */
    if (st != EBRO_OK) eb_stream_sync(&o.e->stream, NULL);
    eb_store_close(&o.store);
    eb_free(&o.e->alloc, o.piece);
    return st;
}

/* ---- files --------------------------------------------------------------------------------- */

struct file_sink {
    struct eb_file_out file;
    ebro_error why;
};

static int32_t write_file(void *user, const void *data, size_t bytes) {
    struct file_sink *s = user;
    return eb_file_out_write(&s->file, data, bytes, &s->why);
}

int32_t ebro_seq_save(const ebro_seq *seq, const char *path, const ebro_export_options *options,
                      ebro_transfer *transfer, ebro_error *err) {
    int32_t st = eb_seq_check(seq, err);
    if (st != EBRO_OK) return st;
    if (path == NULL) return eb_fail(err, EBRO_INVALID, "ebro_seq_save: path is NULL");
    struct file_sink sink = {.why = {0}};
    st = eb_file_out_open(&seq->engine->alloc, path, &sink.file, err);
    if (st == EBRO_OK) {
        st = ebro_seq_export(seq, write_file, &sink, options, transfer, err);
        /* The system's reason says more than that the stream ended. */
        if (sink.why.status != EBRO_OK && err != NULL) *err = sink.why;
        if (st == EBRO_OK) st = eb_file_out_commit(&sink.file, err);
        eb_file_out_abandon(&sink.file);
    }
    return st == EBRO_OK ? st : eb_while(err, st, "saving a sequence to %s", path);
}
