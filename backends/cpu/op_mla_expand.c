/* op_mla_expand.c: mla_prefill, attention in the expanded form.
 *
 * For L tokens of context, R rows and H heads of dk = nope + rope keys and dv values over latents
 * of width c, in multiply-adds: expanded   H (nope + dv) c L      keys and values, once per call
 *              + H (dk + dv) R L        scores and sums
 *     absorbed   H (nope + dv) c R  +  H (2 c + rope) R L
 * so from some R on it pays to expand, whatever L is (171 rows for c = 512, 128 + 64 and 128).
 *
 * The context is taken in tiles of EXPAND_TOKENS. Of a tile, first the latents are transposed, then
 * the keys and values of a group of heads are made, then all rows pass over them: each of the three
 * is a loop over all threads, and a tile is expanded once, whoever uses it. Everything that is a
 * right operand lies in blocks of 16 columns behind each other, which the nearest cache holds. */
#include "mla.h"
#include "plant.h"

enum {
    EXPAND_TOKENS = 128,
    EXPAND_HEADS = 8,  /* a group: bounds the scratch */
    EXPAND_SLICE = 48, /* rows of kv_b of one item */
    EXPAND_ROWS = 48,  /* rows of the step of one item */
    BLOCK = MICRO_COLS
};

/* One group of heads of one sequence, and the tile [t0, t0 + n) in work. */
struct expand {
    const ebro_mla_prefill_args *a;
    float *latent;           /* [T / BLOCK][kv_lora][BLOCK] */
    float *key;              /* [EXPAND_HEADS][T / BLOCK][nope_dim + rope_dim][BLOCK] */
    float *value;            /* [EXPAND_HEADS][v_dim / BLOCK, rounded up][T][BLOCK] */
    struct mla_softmax *run; /* [max_rows][EXPAND_HEADS] */
    float *rooms;            /* one for each thread, room_floats each */
    uint64_t key_floats, value_floats, room_floats;
    uint32_t seq, begin, n_rows, context;
    uint32_t first_head, n_heads;
    uint32_t t0, n;
};

static uint32_t blocks_of(uint32_t n) {
    return (n + BLOCK - 1) / BLOCK;
}

static uint64_t most(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Lays the parts out behind each other from `base` (NULL: only the size counts). Returns bytes. */
static uint64_t layout(const ebro_mla_prefill_args *a, struct expand *e, uint32_t n_threads,
                       float *base) {
    uint64_t qk = (uint64_t)a->nope_dim + a->rope_dim, width = (uint64_t)a->kv_lora + a->rope_dim;
    uint64_t heads = mla_min(a->n_heads, EXPAND_HEADS);
    uint64_t latent = (uint64_t)a->kv_lora * EXPAND_TOKENS;
    e->key_floats = qk * EXPAND_TOKENS;
    e->value_floats = (uint64_t)blocks_of(a->v_dim) * BLOCK * EXPAND_TOKENS;
    /* A block of tokens as they lie in the cache; rows of kv_b and what comes of them; scores. */
    e->room_floats = most(BLOCK * width, EXPAND_SLICE * ((uint64_t)a->kv_lora + BLOCK));
    e->room_floats = most(e->room_floats, EXPAND_ROWS * EXPAND_TOKENS);
    uint64_t key = latent, value = key + heads * e->key_floats;
    uint64_t rooms = value + heads * e->value_floats, run = rooms + n_threads * e->room_floats;
    if (base) {
        e->latent = base;
        e->key = base + key;
        e->value = base + value;
        e->rooms = base + rooms;
        e->run = (struct mla_softmax *)(void *)(base + run);
    }
    return run * sizeof(float) + a->rows.max_rows * EXPAND_HEADS * sizeof *e->run;
}

uint64_t cpu_scratch_mla_prefill(ebro_dev *dev, const ebro_mla_prefill_args *a) {
    struct expand e = {0};
    return layout(a, &e, dev->n_threads, NULL);
}

/* ---- a tile ----------------------------------------------------------------------------- */

/* Item: BLOCK tokens of the tile, transposed; absent tokens are zeros. */
static void load_item(void *user, uint64_t item, uint32_t thread) {
    const struct expand *e = user;
    const ebro_mla_prefill_args *a = e->a;
    uint32_t first = (uint32_t)item * BLOCK, n = mla_min(e->n - first, BLOCK);
    uint32_t qk = a->nope_dim + a->rope_dim;
    uint64_t width = (uint64_t)a->kv_lora + a->rope_dim;
    float *rows = e->rooms + thread * e->room_floats;
    float *latent = e->latent + item * a->kv_lora * BLOCK;
    float *rope = e->key + (item * qk + a->nope_dim) * BLOCK;
    for (uint32_t t = 0; t < n; t++) {
        cpu_load(rows + t * width, a->pages.dtype,
                 mla_cache_row(&a->pages, e->seq, e->t0 + first + t), width);
    }
    memset(rows + n * width, 0, (BLOCK - n) * width * sizeof *rows);
    for (uint64_t c = 0; c < a->kv_lora; c++) {
        for (uint32_t t = 0; t < BLOCK; t++) latent[c * BLOCK + t] = rows[t * width + c];
    }
    for (uint64_t c = 0; c < a->rope_dim; c++) {
        const float *from = rows + a->kv_lora + c;
        for (uint32_t t = 0; t < BLOCK; t++) rope[c * BLOCK + t] = from[t * width];
    }
    /* All heads have the same rotary channels. */
    for (uint32_t h = 1; h < e->n_heads; h++) {
        memcpy(rope + h * e->key_floats, rope, (uint64_t)a->rope_dim * BLOCK * sizeof *rope);
    }
}

/* to[t][c] = from[c][t] for n channels of one block of tokens. */
static void turn(float *to, const float *from, uint32_t n) {
    for (uint32_t t = 0; t < BLOCK; t++) {
        for (uint32_t c = 0; c < n; c++) to[t * BLOCK + c] = from[c * BLOCK + t];
    }
}

/* Item: up to EXPAND_SLICE rows of one head's keys, or of its values, for the whole tile. */
static void expand_item(void *user, uint64_t item, uint32_t thread) {
    const struct expand *e = user;
    const ebro_mla_prefill_args *a = e->a;
    uint32_t n_keys = (a->nope_dim + EXPAND_SLICE - 1) / EXPAND_SLICE;
    uint32_t n_slices = n_keys + (a->v_dim + EXPAND_SLICE - 1) / EXPAND_SLICE;
    uint32_t h = (uint32_t)(item / n_slices), slice = (uint32_t)(item % n_slices);
    bool keys = slice < n_keys;
    uint32_t c0 = (keys ? slice : slice - n_keys) * EXPAND_SLICE;
    uint32_t n = mla_min((keys ? a->nope_dim : a->v_dim) - c0, EXPAND_SLICE);
    uint64_t row = (uint64_t)(e->first_head + h) * (a->nope_dim + a->v_dim) + c0;
    float *w = e->rooms + thread * e->room_floats, *turned = w + EXPAND_SLICE * a->kv_lora;
    for (uint32_t r = 0; r < n; r++) {
        cpu_load_row(w + (uint64_t)r * a->kv_lora, &a->kv_b, row + (keys ? 0 : a->nope_dim) + r, 0,
                     a->kv_lora);
    }
    for (uint64_t b = 0; b < blocks_of(e->n); b++) {
        struct micro_b latent = {e->latent + b * a->kv_lora * BLOCK, BLOCK, 0};
        float *key = e->key + h * e->key_floats + (b * (a->nope_dim + a->rope_dim) + c0) * BLOCK;
        micro_gemm(n, BLOCK, a->kv_lora, (struct micro_a){w, a->kv_lora, 1}, latent,
                   keys ? key : turned, BLOCK);
        for (uint32_t c = 0; !keys && c < n; c += BLOCK) {
            float *value = e->value + h * e->value_floats;
            value += ((uint64_t)(c0 + c) / BLOCK * EXPAND_TOKENS + b * BLOCK) * BLOCK;
            turn(value, turned + c * BLOCK, mla_min(n - c, BLOCK));
        }
    }
}

/* ---- rows ------------------------------------------------------------------------------- */

/* Rows [first, first + m) of the sequence and one head, which an item of the row loops is. */
struct part {
    uint32_t h, first, m;
    float *out; /* of its first row */
    struct mla_softmax *run;
};

static struct part part_of(const struct expand *e, uint64_t item) {
    uint32_t n_parts = (e->n_rows + EXPAND_ROWS - 1) / EXPAND_ROWS;
    struct part p = {.h = (uint32_t)(item / n_parts),
                     .first = (uint32_t)(item % n_parts) * EXPAND_ROWS};
    p.m = mla_min(e->n_rows - p.first, EXPAND_ROWS);
    p.out = eb_mat_row(&e->a->out, e->begin + p.first);
    p.out += (uint64_t)(e->first_head + p.h) * e->a->v_dim;
    p.run = e->run + (uint64_t)p.h * e->n_rows + p.first;
    return p;
}

/* One past the last token that row i sees. */
static uint32_t end_of(const struct expand *e, uint32_t i) {
    return mla_min(e->context + i + 1 - PLANTED(off_by_one_mask), e->a->token_end);
}

static void begin_item(void *user, uint64_t item, uint32_t thread) {
    const struct expand *e = user;
    struct part p = part_of(e, item);
    (void)thread;
    for (uint32_t r = 0; r < p.m; r++) {
        memset(p.out + r * e->a->out.stride, 0, e->a->v_dim * sizeof *p.out);
        p.run[r] = mla_softmax_start;
    }
}

static void attend_item(void *user, uint64_t item, uint32_t thread) {
    const struct expand *e = user;
    const ebro_mla_prefill_args *a = e->a;
    struct part p = part_of(e, item);
    uint32_t qk = a->nope_dim + a->rope_dim, end = end_of(e, p.first + p.m - 1);
    if (end <= e->t0) return;
    uint32_t n = blocks_of(mla_min(end - e->t0, e->n)) * BLOCK;
    float *score = e->rooms + thread * e->room_floats, factor[EXPAND_ROWS];
    const float *q = eb_mat_row(&a->q, e->begin + p.first) + (uint64_t)(e->first_head + p.h) * qk;
    micro_gemm(p.m, n, qk, (struct micro_a){q, a->q.stride, 1},
               (struct micro_b){e->key + p.h * e->key_floats, BLOCK, (size_t)qk * BLOCK}, score,
               EXPAND_TOKENS);
    for (uint32_t r = 0; r < p.m; r++) {
        uint32_t stop = end_of(e, p.first + r), seen = stop > e->t0 ? stop - e->t0 : 0;
        factor[r] =
            mla_softmax_tile(p.run + r, score + r * EXPAND_TOKENS, mla_min(seen, n), n, a->scale);
    }
    micro_panel(p.m, a->v_dim, n, (struct micro_a){score, EXPAND_TOKENS, 1},
                (struct micro_b){e->value + p.h * e->value_floats, BLOCK, EXPAND_TOKENS * BLOCK},
                p.out, a->out.stride, MICRO_SCALE, factor);
}

static void end_item(void *user, uint64_t item, uint32_t thread) {
    const struct expand *e = user;
    const ebro_mla_prefill_args *a = e->a;
    struct part p = part_of(e, item);
    (void)thread;
    for (uint32_t r = 0; r < p.m; r++) {
        float *lse = a->lse.mem ? eb_mat_row(&a->lse, e->begin + p.first + r) : NULL;
        mla_softmax_end(p.run + r, p.out + r * a->out.stride, a->v_dim,
                        lse ? lse + e->first_head + p.h : NULL);
    }
}

/* ---- the op ----------------------------------------------------------------------------- */

/* One group of heads of one sequence. */
static void attend(struct cpu_pool *pool, struct expand *e) {
    const ebro_mla_prefill_args *a = e->a;
    uint64_t n_parts = (e->n_rows + EXPAND_ROWS - 1) / EXPAND_ROWS * (uint64_t)e->n_heads;
    uint64_t n_slices = (a->nope_dim + EXPAND_SLICE - 1) / EXPAND_SLICE;
    n_slices += (a->v_dim + EXPAND_SLICE - 1) / EXPAND_SLICE;
    uint32_t end = end_of(e, e->n_rows - 1);
    cpu_parallel(pool, n_parts, begin_item, e);
    for (e->t0 = a->token_begin; e->t0 < end; e->t0 += e->n) {
        e->n = mla_min(end - e->t0, EXPAND_TOKENS);
        cpu_parallel(pool, blocks_of(e->n), load_item, e);
        cpu_parallel(pool, e->n_heads * n_slices, expand_item, e);
        cpu_parallel(pool, n_parts, attend_item, e);
    }
    cpu_parallel(pool, n_parts, end_item, e);
}

int32_t cpu_mla_prefill(ebro_stream *s, const ebro_mla_prefill_args *a, ebro_error *err) {
    struct expand e = {.a = a};
    const int32_t *offsets = eb_at(a->rows.row_offsets);
    (void)err;
    (void)layout(a, &e, s->dev->n_threads, eb_at(a->scratch));
    for (uint32_t q = 0; q < a->rows.n_seqs; q++) {
        e.seq = q;
        e.begin = (uint32_t)offsets[q];
        e.n_rows = (uint32_t)(offsets[q + 1] - offsets[q]);
        e.context = mla_context(&a->pages, q);
        for (uint32_t h = 0; e.n_rows > 0 && h < a->n_heads; h += EXPAND_HEADS) {
            e.first_head = h;
            e.n_heads = mla_min(a->n_heads - h, EXPAND_HEADS);
            attend(s->dev->pool, &e);
        }
    }
    return EBRO_OK;
}
