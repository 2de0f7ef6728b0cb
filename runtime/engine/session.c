/* session.c: what a sequence as bytes and the cache of an engine have to do with each other: whose
 * the bytes are, and in which blocks the parts of mem/store.h lie. Not its job: the format itself,
 * and moving the bytes (export.c, import.c). */
#include "engine/session.h"

#include <string.h>

#include "model/fingerprint.h"

int32_t eb_session_describe(const struct ebro_engine *e, struct eb_store_identity *out,
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

void eb_session_account(const struct ebro_engine *e, const struct eb_store_identity *id,
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

/* Units of a slot lie packed in its blocks, in the stream's own order. */
static int32_t each_unit(const struct ebro_engine *e, const uint32_t *blocks, uint64_t n_units,
                         uint64_t per_block, uint64_t unit_bytes, eb_run_fn run, void *user,
                         ebro_error *err) {
    int32_t st = EBRO_OK;
    for (uint64_t first = 0; first < n_units && st == EBRO_OK; first += per_block, blocks++) {
        uint64_t n = n_units - first < per_block ? n_units - first : per_block;
        st = run(user, eb_block_span(e, *blocks), n * unit_bytes, err);
    }
    return st;
}

static int32_t each_state(const struct ebro_engine *e, const struct eb_slot *slot, eb_run_fn run,
                          void *user, ebro_error *err) {
    const struct eb_layout *l = &e->layout;
    uint64_t n = (uint64_t)l->shape.n_kda_layers * l->shape.kda_heads;
    return each_unit(e, slot->blocks, n, l->heads_per_block, l->head_bytes, run, user, err);
}

static int32_t each_window(const struct ebro_engine *e, const struct eb_slot *slot, eb_run_fn run,
                           void *user, ebro_error *err) {
    const struct eb_layout *l = &e->layout;
    return each_unit(e, slot->blocks + l->head_blocks, 3ull * l->shape.n_kda_layers,
                     l->windows_per_block, l->window_bytes, run, user, err);
}

static int32_t each_row(const struct ebro_engine *e, const struct eb_seq *m, eb_run_fn run,
                        void *user, ebro_error *err) {
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

int32_t eb_session_each_run(const struct ebro_engine *e, const struct eb_seq *m, uint32_t part,
                            eb_run_fn run, void *user, ebro_error *err) {
    if (m->n_done == 0) return EBRO_OK;
    if (part == EB_STORE_STATES) return each_state(e, m->state, run, user, err);
    if (part == EB_STORE_WINDOWS) return each_window(e, m->state, run, user, err);
    return each_row(e, m, run, user, err);
}

uint32_t eb_session_width(int32_t dtype) {
    return dtype == EBRO_F32 ? 4 : 2;
}

/* ---- pieces -------------------------------------------------------------------------------- */

/* Of a cache line. Where source and target of a copy are at the same place of one, or of none, no
 * processor is slow; between addresses that differ by a few bytes modulo a page, copies of a system
 * call run at a fifth of the speed on some. */
enum { LINE = 64 };

void *eb_piece_open(const struct eb_alloc *a, ebro_error *err) {
    return eb_calloc(a, EB_PIECE_BYTES + 2 * LINE, 1, err);
}

uint8_t *eb_piece_at(void *piece, uint64_t offset) {
    uint8_t *p = piece;
    return p + (LINE - (uintptr_t)p % LINE) % LINE + offset % LINE;
}
