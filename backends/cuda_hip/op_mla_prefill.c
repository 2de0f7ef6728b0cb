/* op_mla_prefill.c: mla_prefill. Contexts are taken in tiles: of each tile keys and values are
 * expanded into the scratch for all heads, then all rows pass over them. Between tiles results
 * stand in `out` and the running sums in the scratch. */
#include "backends/cuda_hip/cuda_hip.h"
#include "shaders/common/args_mla.h"
#include "shaders/cuda_hip/shapes.h"

/* Of one call, bounding its scratch. */
static const uint64_t MAX_EXPANDED = UINT64_C(128) << 20; /* bytes */

/* Sequences share a launch while a tile has this many tokens of each. */
enum { GOOD_TILE = 512 };

struct plan {
    uint32_t n_seqs;                             /* of a launch */
    uint32_t n_tokens;                           /* of a tile, of each of them */
    uint32_t n_blocks;                           /* of columns of values */
    uint64_t key_bytes, value_bytes, rope_bytes; /* of a token */
    uint64_t expanded_bytes, run_bytes;          /* of the scratch */
};

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static uint64_t whole_tiles(uint64_t tokens) {
    return gpu_div_up(tokens, EB_MLA_EXPAND_TILE) * EB_MLA_EXPAND_TILE;
}

static struct plan plan_of(const ebro_mla_prefill_args *a) {
    uint64_t v_quads = gpu_div_up(a->v_dim, 4);
    struct plan p = {.n_blocks = (uint32_t)gpu_div_up(v_quads, EB_MLA_VALUE_QUADS),
                     .key_bytes = a->n_heads * gpu_div_up(a->nope_dim, 4) * 16,
                     .value_bytes = a->n_heads * v_quads * 16,
                     .rope_bytes = gpu_div_up(a->rope_dim, 4) * 16};
    p.run_bytes = (uint64_t)a->rows.n_rows * a->n_heads * p.n_blocks * 8;

    /* Tokens that fit, whatever range is seen: more work never asks for less. */
    uint64_t each = most(p.key_bytes + p.value_bytes + p.rope_bytes, 1);
    uint64_t n_seqs = most(a->rows.n_seqs, 1), context = whole_tiles(a->pages.max_context);
    uint64_t room =
        most(MAX_EXPANDED / each / EB_MLA_EXPAND_TILE * EB_MLA_EXPAND_TILE, EB_MLA_EXPAND_TILE);
    p.expanded_bytes = least(room, n_seqs * context) * each;

    uint64_t tokens = least(context, most(room / n_seqs, least(room, GOOD_TILE)));
    p.n_tokens =
        (uint32_t)most(tokens / EB_MLA_EXPAND_TILE * EB_MLA_EXPAND_TILE, EB_MLA_EXPAND_TILE);
    p.n_seqs = (uint32_t)least(n_seqs, most(room / p.n_tokens, 1));
    return p;
}

/* With room to align it. */
uint64_t gpu_scratch_mla_prefill(const ebro_dev *dev, const ebro_mla_prefill_args *a) {
    const struct plan p = plan_of(a);
    (void)dev;
    return p.expanded_bytes + p.run_bytes + 16;
}

/* Where the parts of the scratch lie. */
struct places {
    eb_addr keys, values, ropes, runs;
};

static struct places places_of(const ebro_mla_prefill_args *a, const struct plan *p) {
    uint64_t tokens = (uint64_t)p->n_seqs * p->n_tokens;
    struct places at = {.keys = (eb_arg_span(a->scratch) + 15) / 16 * 16};
    at.values = at.keys + tokens * p->key_bytes;
    at.ropes = at.values + tokens * p->value_bytes;
    at.runs = at.ropes + tokens * p->rope_bytes;
    return at;
}

/* One launch's share of the call. */
struct part {
    uint32_t first_seq, n_seqs, first_token;
    bool is_first; /* of these sequences */
};

static int32_t expand(ebro_stream *s, const ebro_mla_prefill_args *a, const struct plan *p,
                      const struct part *part, ebro_error *err) {
    const struct places at = places_of(a, p);
    const struct eb_mla_expand_args args = {.pages = eb_arg_pages(&a->pages),
                                            .kv_b = eb_arg_weight(&a->kv_b),
                                            .keys = at.keys,
                                            .values = at.values,
                                            .ropes = at.ropes,
                                            .row_offsets = eb_arg_span(a->rows.row_offsets),
                                            .first_seq = part->first_seq,
                                            .n_heads = a->n_heads,
                                            .nope_dim = a->nope_dim,
                                            .rope_dim = a->rope_dim,
                                            .v_dim = a->v_dim,
                                            .kv_lora = a->kv_lora,
                                            .first_token = part->first_token,
                                            .n_tokens = p->n_tokens,
                                            .token_end = a->token_end};
    uint64_t token_tiles = (uint64_t)part->n_seqs * p->n_tokens / EB_MLA_EXPAND_TILE;
    uint64_t tiles =
        gpu_div_up(a->nope_dim, EB_MLA_EXPAND_TILE) + gpu_div_up(a->v_dim, EB_MLA_EXPAND_TILE);
    const struct gpu_launch l = {.kernel = GPU_mla_expand,
                                 .threads = EB_MLA_PREFILL_THREADS,
                                 .groups = token_tiles * a->n_heads * tiles,
                                 .args = &args};
    return gpu_launch(s, &l, err);
}

static int32_t attend(ebro_stream *s, const ebro_mla_prefill_args *a, const struct plan *p,
                      const struct part *part, ebro_error *err) {
    const struct places at = places_of(a, p);
    const struct eb_mla_attend_args args = {
        .q = eb_arg_mat(&a->q),
        .dst = eb_arg_mat(&a->out),
        .lse = eb_arg_mat(&a->lse),
        .keys = at.keys,
        .values = at.values,
        .ropes = at.ropes,
        .runs = at.runs,
        .row_offsets = eb_arg_span(a->rows.row_offsets),
        .context = eb_arg_span(a->pages.context),
        .first_seq = part->first_seq,
        .n_heads = a->n_heads,
        .nope_dim = a->nope_dim,
        .rope_dim = a->rope_dim,
        .v_dim = a->v_dim,
        .scale = a->scale,
        .first_token = part->first_token,
        .n_tokens = p->n_tokens,
        .token_end = a->token_end,
        .n_row_blocks = (uint32_t)gpu_div_up(a->rows.max_rows, EB_MLA_ROW_BLOCK),
        .is_first = part->is_first};
    const struct gpu_launch l = {
        .kernel = GPU_mla_attend,
        .threads = EB_MLA_PREFILL_THREADS,
        .groups = (uint64_t)part->n_seqs * a->n_heads * p->n_blocks * args.n_row_blocks,
        .args = &args};
    return gpu_launch(s, &l, err);
}

/* All tiles of some sequences. At least one, for rows that see nothing are written too. */
static int32_t attend_all(ebro_stream *s, const ebro_mla_prefill_args *a, const struct plan *p,
                          struct part part, ebro_error *err) {
    uint32_t end = (uint32_t)least(a->pages.max_context, a->token_end);
    uint64_t token = a->token_begin;
    int32_t st = EBRO_OK;
    part.is_first = true;
    do {
        part.first_token = (uint32_t)token;
        if (token < end) st = expand(s, a, p, &part, err);
        if (st == EBRO_OK) st = attend(s, a, p, &part, err);
        part.is_first = false;
        token += p->n_tokens;
    } while (st == EBRO_OK && token < end);
    return st;
}

int32_t gpu_mla_prefill(ebro_stream *s, const ebro_mla_prefill_args *a, ebro_error *err) {
    const struct plan p = plan_of(a);
    int32_t st = EBRO_OK;
    for (uint32_t i = 0; st == EBRO_OK && i < a->rows.n_seqs; i += p.n_seqs) {
        uint32_t n = (uint32_t)least(a->rows.n_seqs - i, p.n_seqs);
        st = attend_all(s, a, &p, (struct part){.first_seq = i, .n_seqs = n}, err);
    }
    return st;
}
