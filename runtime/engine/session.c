/* session.c: sequences as streams and files: moves bytes between the blocks of the cache and the
 * parts of mem/store.h, through host memory. Not its job: the format itself. */
#include <string.h>

#include "base/file.h"
#include "base/file_out.h"
#include "engine/engine.h"
#include "mem/store.h"
#include "model/fingerprint.h"
#include "model/quant/format.h"

enum { PIECE_BYTES = 4 << 20 };

static int32_t describe(const struct ebro_engine *e, struct eb_store_identity *out,
                        ebro_error *err) {
    const struct eb_config *c = &e->model->config;
    const struct eb_shape *s = &e->layout.shape;
    *out = (struct eb_store_identity){.n_layers = c->n_layers,
                                      .n_kda_layers = s->n_kda_layers,
                                      .n_mla_layers = s->n_mla_layers,
                                      .vocab = c->vocab_size,
                                      .kda_heads = s->kda_heads,
                                      .kda_head_dim = s->kda_head_dim,
                                      .conv_taps = EBRO_CONV_WIDTH - 1,
                                      .latent = c->kv_lora_rank,
                                      .key = c->qk_rope_head_dim,
                                      .state_dtype = s->state_dtype,
                                      .row_dtype = s->row_dtype,
                                      .state_layout = EB_STORE_STATE_LAYOUT,
                                      .row_layout = EB_STORE_ROW_LAYOUT};
    memcpy(out->architecture, e->model->architecture, sizeof out->architecture);
    int32_t st = eb_model_fingerprint(e->model, &out->model, err);
    return st == EBRO_OK ? eb_tokenizer_fingerprint(e->model, &out->tokenizer, err) : st;
}

static void account(const struct ebro_engine *e, const struct eb_store_identity *id,
                    const struct eb_store_sizes *sizes, const struct eb_store *s,
                    ebro_transfer *out) {
    if (out == NULL || out->size < sizeof out->size) return;
    const uint64_t *b = sizes->bytes;
    const ebro_transfer x = {.size = out->size,
                             .header_bytes = s->header_bytes,
                             .identity_bytes = b[EB_STORE_IDENTITY],
                             .token_bytes = b[EB_STORE_TOKENS],
                             .state_bytes = b[EB_STORE_STATES],
                             .window_bytes = b[EB_STORE_WINDOWS],
                             .row_bytes = b[EB_STORE_ROWS],
                             .application_bytes = b[EB_STORE_APPLICATION],
                             .total_bytes = eb_store_total(sizes),
                             .n_tokens = id->n_tokens,
                             .n_evaluated = id->position,
                             .cache_dtype = id->row_dtype,
                             .engine_dtype = e->cache_dtype,
                             .converted = id->row_dtype != e->cache_dtype ||
                                          id->state_dtype != e->layout.shape.state_dtype};
    memcpy(out, &x, out->size < sizeof x ? out->size : sizeof x);
}

/* ---- where the parts lie in the cache ----------------------------------------------------- */

/* Called for one run of bytes after another, in the order of the stream. */
typedef int32_t (*run_fn)(void *user, ebro_span where, uint64_t bytes, ebro_error *err);

/* Units of a slot lie packed in its blocks, in the stream's own order. */
static int32_t each_unit(const struct ebro_engine *e, const uint32_t *blocks, uint64_t n_units,
                         uint64_t per_block, uint64_t unit_bytes, run_fn run, void *user,
                         ebro_error *err) {
    int32_t st = EBRO_OK;
    for (uint64_t first = 0; first < n_units && st == EBRO_OK; first += per_block, blocks++) {
        uint64_t n = n_units - first < per_block ? n_units - first : per_block;
        st = run(user, eb_block_span(e, *blocks), n * unit_bytes, err);
    }
    return st;
}

static int32_t each_state(const struct ebro_engine *e, const struct eb_slot *slot, run_fn run,
                          void *user, ebro_error *err) {
    const struct eb_layout *l = &e->layout;
    uint64_t n = (uint64_t)l->shape.n_kda_layers * l->shape.kda_heads;
    return each_unit(e, slot->blocks, n, l->heads_per_block, l->head_bytes, run, user, err);
}

static int32_t each_window(const struct ebro_engine *e, const struct eb_slot *slot, run_fn run,
                           void *user, ebro_error *err) {
    const struct eb_layout *l = &e->layout;
    return each_unit(e, slot->blocks + l->head_blocks, 3ull * l->shape.n_kda_layers,
                     l->windows_per_block, l->window_bytes, run, user, err);
}

static int32_t each_row(const struct ebro_engine *e, const struct eb_seq *m, run_fn run, void *user,
                        ebro_error *err) {
    const struct eb_layout *l = &e->layout;
    if (l->row_bytes == 0) return EBRO_OK;
    uint64_t row = l->row_bytes / l->shape.n_mla_layers;
    int32_t st = EBRO_OK;
    for (uint32_t layer = 0; layer < l->shape.n_mla_layers; layer++) {
        for (uint32_t at = 0; at < m->n_done && st == EBRO_OK; at += l->page_tokens) {
            uint32_t n = m->n_done - at < l->page_tokens ? m->n_done - at : l->page_tokens;
            ebro_span where = eb_block_span(e, m->pages[at / l->page_tokens]);
            where.offset += (uint64_t)layer * l->page_tokens * row;
            st = run(user, where, n * row, err);
        }
    }
    return st;
}

static uint32_t width_of(int32_t dtype) {
    return dtype == EBRO_F32 ? 4 : 2;
}

/* ---- export -------------------------------------------------------------------------------- */

/* Runs are collected into pieces, so that the receiver gets large ones. */
struct outflow {
    struct ebro_engine *e;
    struct eb_store store;
    uint8_t *piece; /* [PIECE_BYTES] */
    uint64_t used;
    uint32_t width; /* of the part's elements */
};

static int32_t flush(struct outflow *o, ebro_error *err) {
    int32_t st = eb_stream_sync(&o->e->stream, err);
    if (st != EBRO_OK) return st;
    eb_store_order(o->piece, o->used / o->width, o->width);
    st = eb_store_put(&o->store, o->piece, o->used, err);
    o->used = 0;
    return st;
}

static int32_t put_run(void *user, ebro_span where, uint64_t bytes, ebro_error *err) {
    struct outflow *o = user;
    while (bytes > 0) {
        uint64_t n = PIECE_BYTES - o->used < bytes ? PIECE_BYTES - o->used : bytes;
        int32_t st = eb_download(&o->e->stream, o->piece + o->used, where, n, err);
        if (st != EBRO_OK) return st;
        o->used += n;
        where.offset += n;
        bytes -= n;
        if (o->used == PIECE_BYTES && (st = flush(o, err)) != EBRO_OK) return st;
    }
    return EBRO_OK;
}

static int32_t put_host(struct outflow *o, uint32_t part, const void *data, uint64_t bytes,
                        uint32_t width, ebro_error *err) {
    const uint8_t *p = data;
    int32_t st = EBRO_OK;
    o->width = width;
    eb_store_begin(&o->store, part, bytes);
    while (bytes > 0 && st == EBRO_OK) {
        o->used = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
        memcpy(o->piece, p, o->used);
        p += o->used;
        bytes -= o->used;
        st = flush(o, err);
    }
    return st == EBRO_OK ? eb_store_end_write(&o->store, err) : st;
}

static int32_t put_device(struct outflow *o, uint32_t part, const struct eb_store_sizes *sizes,
                          const struct eb_seq *m, ebro_error *err) {
    const struct eb_shape *shape = &o->e->layout.shape;
    int32_t st = EBRO_OK;
    eb_store_begin(&o->store, part, sizes->bytes[part]);
    o->width = width_of(part == EB_STORE_STATES ? shape->state_dtype
                        : part == EB_STORE_ROWS ? shape->row_dtype
                                                : EBRO_F32);
    if (m->n_done > 0 && part == EB_STORE_STATES) st = each_state(o->e, m->state, put_run, o, err);
    if (m->n_done > 0 && part == EB_STORE_WINDOWS)
        st = each_window(o->e, m->state, put_run, o, err);
    if (m->n_done > 0 && part == EB_STORE_ROWS) st = each_row(o->e, m, put_run, o, err);
    if (st == EBRO_OK) st = flush(o, err);
    return st == EBRO_OK ? eb_store_end_write(&o->store, err) : st;
}

static int32_t put_all(struct outflow *o, const struct eb_seq *m,
                       const struct eb_store_identity *id, const struct eb_store_sizes *sizes,
                       const void *application, ebro_error *err) {
    uint8_t identity[EB_STORE_IDENTITY_BYTES];
    eb_store_put_identity(identity, id);
    int32_t st = eb_store_put_header(&o->store, sizes, err);
    if (st == EBRO_OK) st = put_host(o, EB_STORE_IDENTITY, identity, sizeof identity, 1, err);
    if (st == EBRO_OK)
        st = put_host(o, EB_STORE_TOKENS, m->tokens, sizes->bytes[EB_STORE_TOKENS], 4, err);
    if (st == EBRO_OK) st = put_device(o, EB_STORE_STATES, sizes, m, err);
    if (st == EBRO_OK) st = put_device(o, EB_STORE_WINDOWS, sizes, m, err);
    if (st == EBRO_OK) st = put_device(o, EB_STORE_ROWS, sizes, m, err);
    if (st == EBRO_OK)
        st = put_host(o, EB_STORE_APPLICATION, application, sizes->bytes[EB_STORE_APPLICATION], 1,
                      err);
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
    if ((st = describe(o.e, &id, err)) != EBRO_OK) return st;
    id.n_tokens = m->n_tokens;
    id.position = m->n_done;
    if ((st = eb_store_sizes(&id, opt.application_bytes, &sizes, err)) != EBRO_OK) return st;
    o.piece = eb_calloc(&o.e->alloc, PIECE_BYTES, 1, err);
    if (o.piece == NULL) return EBRO_NOMEM_HOST;
    st = eb_store_open_write(&o.store, write, user, err);
    if (st == EBRO_OK) st = put_all(&o, m, &id, &sizes, opt.application, err);
    if (st == EBRO_OK) account(o.e, &id, &sizes, &o.store, transfer);
    /* A download may still be on its way into the piece. */
    if (st != EBRO_OK) eb_stream_sync(&o.e->stream, NULL);
    eb_store_close(&o.store);
    eb_free(&o.e->alloc, o.piece);
    return st;
}

/* ---- import: reading and checking ---------------------------------------------------------- */

struct inflow {
    struct ebro_engine *e;
    struct eb_store store;
    struct eb_store_identity id;
    struct eb_store_sizes sizes;
    void *part[EB_STORE_N_PARTS + 1]; /* in host memory, as the engine wants them */
};

static void release(struct inflow *in) {
    for (uint32_t i = 0; i <= EB_STORE_N_PARTS; i++) eb_free(&in->e->alloc, in->part[i]);
    eb_store_close(&in->store);
}

/* The size follows from what was checked before. */
static int32_t get_part(struct inflow *in, uint32_t part, uint32_t width, ebro_error *err) {
    uint64_t bytes = in->sizes.bytes[part];
    int32_t st = eb_realloc(&in->e->alloc, &in->part[part], (size_t)bytes, 1, err);
    if (st != EBRO_OK) return eb_while(err, st, "reading the %s", eb_store_part_name(part));
    eb_store_begin(&in->store, part, bytes);
    st = eb_store_get(&in->store, in->part[part], bytes, err);
    if (st == EBRO_OK) st = eb_store_end_read(&in->store, err);
    if (st == EBRO_OK) eb_store_order(in->part[part], bytes / width, width);
    return st;
}

/* Nobody but the stream says how many they are: memory grows with what comes. */
static int32_t get_application(struct inflow *in, ebro_error *err) {
    uint64_t left = in->sizes.bytes[EB_STORE_APPLICATION];
    size_t capacity = 0, used = 0;
    int32_t st = EBRO_OK;
    eb_store_begin(&in->store, EB_STORE_APPLICATION, left);
    while (left > 0 && st == EBRO_OK) {
        size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        st = eb_grow(&in->e->alloc, &in->part[EB_STORE_APPLICATION], &capacity, used + n, 1, err);
        if (st == EBRO_OK)
            st = eb_store_get(&in->store, (uint8_t *)in->part[EB_STORE_APPLICATION] + used, n, err);
        used += n;
        left -= n;
    }
    return st == EBRO_OK ? eb_store_end_read(&in->store, err) : st;
}

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
    if ((st = describe(e, &here, err)) != EBRO_OK) return st;
    if ((st = eb_store_match(&in->id, &here, err)) != EBRO_OK) return st;
    if (in->id.n_tokens > e->n_ctx) {
        return eb_fail(err, EBRO_INVALID, "the sequence holds %u tokens, the context has %u",
                       in->id.n_tokens, e->n_ctx);
    }
    if ((st = eb_store_check_sizes(&in->id, &in->sizes, err)) != EBRO_OK) return st;
    return in->id.n_tokens == 0 ? EBRO_OK : eb_manager_check_room(&e->mem, in->id.n_tokens, err);
}

static int32_t check_tokens(const struct inflow *in, ebro_error *err) {
    const int32_t *ids = in->part[EB_STORE_TOKENS];
    for (uint32_t i = 0; i < in->id.n_tokens; i++) {
        if (ids[i] >= 0 && (uint32_t)ids[i] < in->id.vocab) continue;
        return eb_fail(err, EBRO_FORMAT, "tokens: number %u has id %d: the vocabulary has 0 to %u",
                       i, ids[i], in->id.vocab - 1);
    }
    return EBRO_OK;
}

/* The largest exponent says whether all are finite; runs of fixed length become vector code. */
static bool finite_f32(const uint32_t *p, uint64_t n) {
    enum { RUN = 1024 };
    const uint32_t mask = 0x7f800000u;
    uint32_t bad = 0;
    for (; n >= RUN; n -= RUN, p += RUN) {
        for (int i = 0; i < RUN; i++) bad |= (uint32_t)((p[i] & mask) == mask);
    }
    for (uint64_t i = 0; i < n; i++) bad |= (uint32_t)((p[i] & mask) == mask);
    return bad == 0;
}

static bool finite_16(const uint16_t *p, uint64_t n, uint16_t mask) {
    bool good = true;
    for (uint64_t i = 0; i < n; i++) good = good && (p[i] & mask) != mask;
    return good;
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

/* Rounds to nearest. A value that is too large for the other dtype must not become infinite. */
static int32_t convert(struct inflow *in, uint32_t part, int32_t from, int32_t to,
                       ebro_error *err) {
    uint64_t n = in->sizes.bytes[part] / width_of(from);
    void *out = NULL;
    int32_t st = eb_realloc(&in->e->alloc, &out, (size_t)n, width_of(to), err);
    if (st != EBRO_OK) return eb_while(err, st, "converting the %s", eb_store_part_name(part));
    for (uint64_t i = 0; i < n; i++) narrow(out, i, to, widen(in->part[part], i, from));
    eb_free(&in->e->alloc, in->part[part]);
    in->part[part] = out;
    if (finite(out, n, to)) return EBRO_OK;
    return eb_fail(err, EBRO_INVALID, "%s: a value is too large for %s", eb_store_part_name(part),
                   dtype_name(to));
}

static int32_t get_numbers(struct inflow *in, uint32_t part, int32_t from, int32_t to,
                           ebro_error *err) {
    int32_t st = get_part(in, part, width_of(from), err);
    if (st != EBRO_OK) return st;
    if (!finite(in->part[part], in->sizes.bytes[part] / width_of(from), from)) {
        return eb_fail(err, EBRO_FORMAT, "%s: a value is not finite", eb_store_part_name(part));
    }
    return from == to ? EBRO_OK : convert(in, part, from, to, err);
}

static int32_t get_all(struct inflow *in, ebro_error *err) {
    const struct eb_shape *shape = &in->e->layout.shape;
    int32_t st = get_identity(in, err);
    if (st == EBRO_OK) st = get_part(in, EB_STORE_TOKENS, 4, err);
    if (st == EBRO_OK) st = check_tokens(in, err);
    if (st == EBRO_OK)
        st = get_numbers(in, EB_STORE_STATES, in->id.state_dtype, shape->state_dtype, err);
    if (st == EBRO_OK) st = get_numbers(in, EB_STORE_WINDOWS, EBRO_F32, EBRO_F32, err);
    if (st == EBRO_OK) st = get_numbers(in, EB_STORE_ROWS, in->id.row_dtype, shape->row_dtype, err);
    if (st == EBRO_OK) st = get_application(in, err);
    return st == EBRO_OK ? eb_store_get_end(&in->store, err) : st;
}

/* ---- import: into the engine --------------------------------------------------------------- */

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

static int32_t upload_all(struct inflow *in, const struct eb_seq *m, ebro_error *err) {
    struct ebro_engine *e = in->e;
    if (m->n_done == 0) return EBRO_OK;
    struct upload u = {e, in->part[EB_STORE_STATES]};
    int32_t st = each_state(e, m->state, upload_run, &u, err);
    u.at = in->part[EB_STORE_WINDOWS];
    if (st == EBRO_OK) st = each_window(e, m->state, upload_run, &u, err);
    u.at = in->part[EB_STORE_ROWS];
    if (st == EBRO_OK) st = each_row(e, m, upload_run, &u, err);
    int32_t synced = eb_stream_sync(&e->stream, st == EBRO_OK ? err : NULL);
    return st == EBRO_OK ? synced : st;
}

static void tell_converted(const struct inflow *in) {
    const struct eb_log *log = &in->e->device->rt->log;
    int32_t ours = in->e->layout.shape.state_dtype;
    if (in->id.row_dtype != in->e->cache_dtype) {
        eb_log(log, EBRO_LOG_WARN, "imported sequence: latent rows converted from %s to %s",
               dtype_name(in->id.row_dtype), dtype_name(in->e->cache_dtype));
    }
    if (in->id.state_dtype != ours) {
        eb_log(log, EBRO_LOG_WARN, "imported sequence: KDA states converted from %s to %s",
               dtype_name(in->id.state_dtype), dtype_name(ours));
    }
}

/* All is checked: what can still fail is memory and the device. */
static int32_t adopt(struct inflow *in, ebro_seq **out, ebro_error *err) {
    struct ebro_engine *e = in->e;
    struct eb_seq *mem = NULL;
    int32_t st = eb_seq_restore(&e->mem, in->part[EB_STORE_TOKENS], in->id.n_tokens,
                                in->id.position, &mem, err);
    if (st == EBRO_OK) st = eb_seq_wrap(e, mem, out, err);
    if (st != EBRO_OK) return st;
    if ((st = upload_all(in, mem, err)) != EBRO_OK) {
        ebro_seq_destroy(out);
        return st;
    }
    eb_seq_restored(mem);
    (*out)->application = in->part[EB_STORE_APPLICATION];
    (*out)->application_bytes = (size_t)in->sizes.bytes[EB_STORE_APPLICATION];
    in->part[EB_STORE_APPLICATION] = NULL;
    tell_converted(in);
    return EBRO_OK;
}

/* to_end: nothing may follow. */
static int32_t import(struct ebro_engine *e, ebro_read_fn read, void *user, bool to_end,
                      ebro_seq **out, ebro_transfer *transfer, ebro_error *err) {
    struct inflow in = {.e = e};
    uint8_t more;
    int32_t st = eb_engine_check_count(e, err);
    if (st == EBRO_OK && e->expert_choices) {
        st = eb_fail(err, EBRO_INVALID,
                     "the engine keeps expert choices (expert_choices), and a stored sequence has "
                     "none");
    }
    if (st != EBRO_OK) return st;
    st = eb_store_open_read(&in.store, read, user, err);
    if (st == EBRO_OK) st = get_all(&in, err);
    if (st == EBRO_OK && to_end && read(user, &more, 1) != 0)
        st = eb_fail(err, EBRO_FORMAT, "end mark: there are bytes behind it");
    if (st == EBRO_OK) st = adopt(&in, out, err);
    if (st == EBRO_OK) account(e, &in.id, &in.sizes, &in.store, transfer);
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

static int64_t read_file(void *user, void *data, size_t bytes) {
    return eb_file_read(*(const int *)user, data, bytes);
}

int32_t ebro_seq_load(ebro_engine *engine, const char *path, ebro_seq **out,
                      ebro_transfer *transfer, ebro_error *err) {
    int fd = -1;
    if (engine == NULL || path == NULL || out == NULL) {
        return eb_fail(err, EBRO_INVALID, "ebro_seq_load: engine, path and out must not be NULL");
    }
    *out = NULL;
    int32_t st = eb_file_open(path, &fd, err);
    if (st == EBRO_OK) {
        st = import(engine, read_file, &fd, true, out, transfer, err);
        eb_file_close(&fd);
    }
    return st == EBRO_OK ? st : eb_while(err, st, "loading a sequence from %s", path);
}
