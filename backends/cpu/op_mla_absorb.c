/* op_mla_absorb.c: mla_decode, attention in the absorbed form: the latents are keys and values of
 * all heads, so a tile of the cache is read once and all heads pass over it while it is near. One
 * row costs H (2 kv_lora + rope_dim) multiply-adds and kv_lora + rope_dim elements a token: for few
 * heads both take about as long, so a tile is small enough to stay in the nearest cache between
 * scores and sums.
 *
 * The context is cut at multiples of DECODE_SPLIT, whatever range was asked for. Splits are worked
 * on in any order by any thread and joined in rising order: the bytes are those of one thread. */
#include "mla.h"
#include "plant.h"

enum {
    DECODE_TOKENS = 16, /* a tile; a multiple of VEC */
    DECODE_SPLIT = 256,
    SPLITS_EACH = 4 /* of one row in work at once, for each thread */
};

/* Where a split's result waits to be joined. */
struct part {
    float *sum;              /* [n_heads][kv_lora] */
    struct mla_softmax *run; /* [n_heads] */
};

/* Scratch of one thread. */
struct room {
    float *tile;             /* [DECODE_TOKENS][kv_lora + rope_dim] */
    float *score;            /* [n_heads][DECODE_TOKENS] */
    float *factor;           /* [n_heads] */
    struct mla_softmax *run; /* [n_heads]: all splits so far of the row that the thread joins */
};

struct absorb {
    const ebro_mla_decode_args *a;
    float *rooms, *parts; /* room_floats for each thread, part_floats for each split in work */
    uint64_t room_floats, part_floats;
    /* The row whose splits are dealt out, and the first of them. */
    uint32_t seq, row, end;
    uint64_t split;
};

static uint32_t n_parts(uint32_t n_threads) {
    return n_threads == 1 ? 1 : n_threads * SPLITS_EACH;
}

/* Lays rooms and parts out from `base` (NULL: only the size counts). Returns bytes. */
static uint64_t layout(const ebro_mla_decode_args *a, struct absorb *b, uint32_t n_threads,
                       float *base) {
    uint64_t h = a->n_heads, width = (uint64_t)a->kv_lora + a->rope_dim;
    b->room_floats = DECODE_TOKENS * (width + h) + h + (h & 1u) + 2 * h;
    b->part_floats = h * a->kv_lora + 2 * h;
    b->room_floats += -b->room_floats % VEC;
    b->part_floats += -b->part_floats % VEC;
    b->rooms = base;
    if (base) b->parts = base + n_threads * b->room_floats;
    return (n_threads * b->room_floats + n_parts(n_threads) * b->part_floats) * sizeof(float);
}

static struct room room_at(const struct absorb *b, uint32_t thread) {
    const ebro_mla_decode_args *a = b->a;
    struct room r = {.tile = b->rooms + thread * b->room_floats};
    r.score = r.tile + DECODE_TOKENS * ((uint64_t)a->kv_lora + a->rope_dim);
    r.factor = r.score + (uint64_t)a->n_heads * DECODE_TOKENS;
    r.run = (struct mla_softmax *)(void *)(r.factor + a->n_heads + (a->n_heads & 1u));
    return r;
}

static struct part part_at(const struct absorb *b, uint64_t index) {
    float *sum = b->parts + index * b->part_floats;
    return (struct part){
        sum, (struct mla_softmax *)(void *)(sum + (uint64_t)b->a->n_heads * b->a->kv_lora)};
}

uint64_t cpu_scratch_mla_decode(ebro_dev *dev, const ebro_mla_decode_args *a) {
    struct absorb b = {0};
    return layout(a, &b, dev->n_threads, NULL);
}

/* ---- one split -------------------------------------------------------------------------- */

/* Tokens [t0, t0 + n) as f32 rows: where they lie if they can be used there, else a copy. */
static const float *load_tile(const ebro_mla_decode_args *a, float *tile, uint32_t seq, uint32_t t0,
                              uint32_t n, size_t *stride) {
    const ebro_pages *p = &a->pages;
    uint32_t width = a->kv_lora + a->rope_dim;
    if (p->dtype == EBRO_F32 && t0 / p->page_tokens == (t0 + n - 1) / p->page_tokens) {
        *stride = p->row_stride;
        return (const float *)(void *)mla_cache_row(p, seq, t0);
    }
    *stride = width;
    for (uint32_t t = 0; t < n; t++) {
        cpu_load(tile + (uint64_t)t * width, p->dtype, mla_cache_row(p, seq, t0 + t), width);
    }
    return tile;
}

/* Tokens [begin, end), for all heads. */
static void absorb_split(const ebro_mla_decode_args *a, struct room *r, struct part *p,
                         const float *q, uint32_t seq, uint32_t begin, uint32_t end) {
    uint32_t width = a->kv_lora + a->rope_dim;
    memset(p->sum, 0, (size_t)a->n_heads * a->kv_lora * sizeof *p->sum);
    for (uint32_t h = 0; h < a->n_heads; h++) p->run[h] = mla_softmax_start;
    while (begin < end) {
        uint32_t n = mla_min(end - begin, DECODE_TOKENS - begin % DECODE_TOKENS);
        size_t stride;
        const float *tile = load_tile(a, r->tile, seq, begin, n, &stride);
        micro_dots(a->n_heads, n, width, q, width, tile, stride, r->score, DECODE_TOKENS);
        for (uint32_t h = 0; h < a->n_heads; h++) {
            r->factor[h] = mla_softmax_tile(p->run + h, r->score + (uint64_t)h * DECODE_TOKENS, n,
                                            DECODE_TOKENS, a->scale);
        }
        micro_panel(a->n_heads, a->kv_lora, n, (struct micro_a){r->score, DECODE_TOKENS, 1},
                    (struct micro_b){tile, stride, MICRO_COLS}, p->sum, a->kv_lora, MICRO_SCALE,
                    r->factor);
        begin += n;
    }
}

/* Split i of the tokens [begin, end) starts here; split 0 is what lies before the first cut. */
static uint32_t split_start(uint32_t begin, uint32_t end, uint64_t i) {
    uint64_t t = i == 0 ? begin : (begin / DECODE_SPLIT + i) * DECODE_SPLIT;
    return t < end ? (uint32_t)t : end;
}

static uint64_t n_splits(uint32_t begin, uint32_t end) {
    return begin < end ? (end - 1) / DECODE_SPLIT - begin / DECODE_SPLIT + 1 : 0;
}

/* ---- rows ------------------------------------------------------------------------------- */

static void begin_row(const ebro_mla_decode_args *a, struct mla_softmax *runs, float *out) {
    memset(out, 0, (size_t)a->n_heads * a->kv_lora * sizeof *out);
    for (uint32_t h = 0; h < a->n_heads; h++) runs[h] = mla_softmax_start;
}

/* Joins a split with what came before it. */
static void join(const ebro_mla_decode_args *a, struct mla_softmax *runs, float *out,
                 const struct part *p) {
    for (uint32_t h = 0; h < a->n_heads; h++) {
        struct mla_softmax *run = runs + h, *here = p->run + h;
        float max = run->max > here->max ? run->max : here->max;
        float old = mla_rescale(run->max, max), new = mla_rescale(here->max, max);
        float *restrict o = out + (uint64_t)h * a->kv_lora;
        const float *restrict s = p->sum + (uint64_t)h * a->kv_lora;
        for (uint32_t c = 0; c < a->kv_lora; c++) o[c] = o[c] * old + s[c] * new;
        *run = (struct mla_softmax){max, run->sum * old + here->sum * new};
    }
}

static void end_row(const ebro_mla_decode_args *a, const struct mla_softmax *runs, uint32_t row,
                    float *out) {
    for (uint32_t h = 0; h < a->n_heads; h++) {
        mla_softmax_end(runs + h, out + (uint64_t)h * a->kv_lora, a->kv_lora,
                        a->lse.mem ? eb_mat_row(&a->lse, row) + h : NULL);
    }
}

/* One past the last token that a row sees. */
static uint32_t end_of(const ebro_mla_decode_args *a, uint32_t seq, uint32_t row) {
    uint32_t begin = (uint32_t)((const int32_t *)eb_at(a->rows.row_offsets))[seq];
    return mla_min(mla_context(&a->pages, seq) + row - begin + 1 + PLANTED(late_mask),
                   a->token_end);
}

/* Item: split b->split + item of the row, into the part of that number. */
static void split_item(void *user, uint64_t item, uint32_t thread) {
    const struct absorb *b = user;
    struct room r = room_at(b, thread);
    struct part p = part_at(b, item);
    uint32_t begin = b->a->token_begin;
    absorb_split(b->a, &r, &p, eb_mat_row(&b->a->q, b->row), b->seq,
                 split_start(begin, b->end, b->split + item),
                 split_start(begin, b->end, b->split + item + 1));
}

/* One row on all threads. */
static void row_on_all(ebro_dev *dev, struct absorb *b) {
    const ebro_mla_decode_args *a = b->a;
    float *out = eb_mat_row(&a->out, b->row);
    struct mla_softmax *runs = room_at(b, 0).run;
    uint64_t total = n_splits(a->token_begin, b->end), n = n_parts(dev->n_threads);
    begin_row(a, runs, out);
    for (b->split = 0; b->split < total; b->split += n) {
        if (n > total - b->split) n = total - b->split;
        cpu_parallel(dev->pool, n, split_item, b);
        for (uint64_t i = 0; i < n; i++) {
            struct part p = part_at(b, i);
            join(a, runs, out, &p);
        }
    }
    end_row(a, runs, b->row, out);
}

/* Item: one row on one thread, by the same splits in the same order. */
static void row_item(void *user, uint64_t item, uint32_t thread) {
    const struct absorb *b = user;
    const ebro_mla_decode_args *a = b->a;
    struct room r = room_at(b, thread);
    struct part p = part_at(b, thread);
    const int32_t *offsets = eb_at(a->rows.row_offsets);
    uint32_t row = (uint32_t)item, q = 0;
    while (row >= (uint32_t)offsets[q + 1]) q++;
    uint32_t end = end_of(a, q, row);
    float *out = eb_mat_row(&a->out, row);
    begin_row(a, r.run, out);
    for (uint64_t i = 0; i < n_splits(a->token_begin, end); i++) {
        absorb_split(a, &r, &p, eb_mat_row(&a->q, row), q, split_start(a->token_begin, end, i),
                     split_start(a->token_begin, end, i + 1));
        join(a, r.run, out, &p);
    }
    end_row(a, r.run, row, out);
}

int32_t cpu_mla_decode(ebro_stream *s, const ebro_mla_decode_args *a, ebro_error *err) {
    struct absorb b = {.a = a};
    const int32_t *offsets = eb_at(a->rows.row_offsets);
    uint32_t n_rows = (uint32_t)offsets[a->rows.n_seqs], n_threads = s->dev->n_threads;
    (void)err;
    (void)layout(a, &b, n_threads, eb_at(a->scratch));
    if (n_threads == 1 || n_rows >= 2 * n_threads) {
        cpu_parallel(s->dev->pool, n_rows, row_item, &b);
        return EBRO_OK;
    }
    for (uint32_t q = 0; q < a->rows.n_seqs; q++) {
        for (int32_t row = offsets[q]; row < offsets[q + 1]; row++) {
            b.seq = q;
            b.row = (uint32_t)row;
            b.end = end_of(a, q, b.row);
            row_on_all(s->dev, &b);
        }
    }
    return EBRO_OK;
}
