/* op_mla.c: multi-head latent attention over a paged cache of latent rows: writing the rows, and
 * attention in the expanded form (keys and values of a tile of tokens are rebuilt once and shared
 * by all rows of a sequence) and in the absorbed form (the latents are keys and values).
 *
 * Softmax is online: per tile the running maximum, sum and weighted values are brought to the new
 * maximum. Tiles are summed before they join the running sums, which keeps long contexts accurate.
 */
#include "micro.h"

enum {
    EXPAND_TOKENS = 64, /* a tile of the expanded form */
    EXPAND_ROWS = 32,   /* query rows that pass over it at once */
    DECODE_TOKENS = 32, /* a tile of the absorbed form */
    DECODE_SPLIT = 256, /* its splits begin at multiples of this, whatever the range asked for */
    APPEND_COLS = 256
};

/* ---- the cache -------------------------------------------------------------------------- */

static uint8_t *cache_row(const ebro_pages *p, uint32_t seq, uint32_t token) {
    const uint64_t *table = eb_at(p->table);
    uint64_t page = table[(uint64_t)seq * p->table_stride + token / p->page_tokens];
    uint64_t row_bytes = p->row_stride * cpu_dtype_size(p->dtype);
    return (uint8_t *)eb_address(page + p->layer_offset) + token % p->page_tokens * row_bytes;
}

static uint32_t context_of(const ebro_pages *p, uint32_t seq) {
    return (uint32_t)((const int32_t *)eb_at(p->context))[seq];
}

static uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* ---- append ----------------------------------------------------------------------------- */

static void rotate(float *pair, float cosine, float sine) {
    float x = pair[0], y = pair[1];
    pair[0] = x * cosine - y * sine;
    pair[1] = x * sine + y * cosine;
}

/* Turns the first rotary_dim of `row_q`'s channels in every head, and of key[0 .. n) of which the
 * first is rope channel `first`. The angle is taken in double: it reaches the position itself. */
static void rotate_row(const ebro_mla_append_args *a, uint32_t position, float *row_q, float *key,
                       uint32_t first, uint32_t n) {
    for (uint32_t c = first; c < first + n && c < a->rotary_dim; c += 2) {
        double rate = pow((double)a->rotary_theta, -(double)c / (double)a->rotary_dim);
        float cosine = (float)cos(position * rate), sine = (float)sin(position * rate);
        rotate(key + (c - first), cosine, sine);
        for (uint32_t h = 0; row_q && h < a->n_heads; h++) {
            rotate(row_q + (uint64_t)h * a->q_head_stride + a->q_rope_offset + c, cosine, sine);
        }
    }
}

static void append_row(const ebro_mla_append_args *a, uint32_t seq, uint32_t row,
                       uint32_t position) {
    float y[APPEND_COLS], w[APPEND_COLS];
    const float *kv = eb_mat_row(&a->kv, row);
    uint8_t *dst = cache_row(&a->pages, seq, position);
    uint64_t size = cpu_dtype_size(a->pages.dtype);
    float mean = micro_sum_squares(kv, a->kv_lora) / (float)a->kv_lora;
    float inv = 1.0f / sqrtf(mean + a->norm_eps);
    for (uint32_t c = 0; c < a->kv_lora; c += APPEND_COLS) {
        uint32_t n = min_u32(a->kv_lora - c, APPEND_COLS);
        cpu_load_vec(w, &a->norm_weight, c, n);
        for (uint32_t i = 0; i < n; i++) y[i] = kv[c + i] * inv * w[i];
        cpu_store(dst + c * size, a->pages.dtype, y, n);
    }
    float *row_q = a->q.mem && a->rotary_dim > 0 ? eb_mat_row(&a->q, row) : NULL;
    for (uint32_t c = 0; c < a->rope_dim; c += APPEND_COLS) {
        uint32_t n = min_u32(a->rope_dim - c, APPEND_COLS);
        memcpy(y, kv + a->kv_lora + c, n * sizeof *y);
        rotate_row(a, position, row_q, y, c, n);
        cpu_store(dst + (a->kv_lora + c) * size, a->pages.dtype, y, n);
    }
}

int32_t cpu_mla_append(ebro_stream *s, const ebro_mla_append_args *a, ebro_error *err) {
    (void)s;
    (void)err;
    const int32_t *offsets = eb_at(a->rows.row_offsets);
    for (uint32_t q = 0; q < a->rows.n_seqs; q++) {
        uint32_t begin = (uint32_t)offsets[q], end = (uint32_t)offsets[q + 1];
        for (uint32_t row = begin; row < end; row++) {
            append_row(a, q, row, context_of(&a->pages, q) + row - begin);
        }
    }
    return EBRO_OK;
}

/* ---- softmax ---------------------------------------------------------------------------- */

/* Running maximum and sum of one row of one head. */
struct softmax {
    float max;
    float sum;
};

/* Scores [0, n) become exp(score scale - new maximum), the rest up to `room` zeros. Returns the
 * factor that brings what was summed before to the new maximum. */
static float softmax_tile(struct softmax *m, float *restrict score, uint32_t n, uint32_t room,
                          float scale) {
    float lanes[MICRO_LANES] = {0}, max = m->max;
    for (uint32_t t = 0; t < n; t++) {
        score[t] *= scale;
        if (score[t] > max) max = score[t];
    }
    for (uint32_t t = n; t < room; t++) score[t] = 0.0f;
    if (n == 0) return 1.0f;
    for (uint32_t t = 0; t < n; t++) score[t] = micro_exp_neg(score[t] - max);
    uint32_t whole = n - n % MICRO_LANES;
    for (uint32_t t = 0; t < whole; t += MICRO_LANES) {
        for (uint32_t l = 0; l < MICRO_LANES; l++) lanes[l] += score[t + l];
    }
    for (uint32_t t = whole; t < n; t++) lanes[t - whole] += score[t];
    float factor = m->max == max ? 1.0f : micro_exp_neg(m->max - max);
    m->sum = m->sum * factor + micro_join(lanes);
    m->max = max;
    return factor;
}

/* Divides by the sum; a row that saw nothing (sum 0) stays zeros with lse -inf. */
static void softmax_end(const struct softmax *m, float *restrict out, uint32_t n, float *lse) {
    float inv = m->sum == 0.0f ? 0.0f : 1.0f / m->sum;
    for (uint32_t c = 0; c < n; c++) out[c] *= inv;
    if (lse) *lse = m->sum == 0.0f ? -INFINITY : m->max + logf(m->sum);
}

/* ---- expanded form ---------------------------------------------------------------------- */

/* Scratch of one thread, which works on one head of one sequence at a time. T = EXPAND_TOKENS; a
 * tile is held channel by channel, so that the inner loops run over tokens. */
struct expand {
    float *latent;       /* [kv_lora][T] */
    float *key;          /* [nope_dim + rope_dim][T] */
    float *value_t;      /* [v_dim][T] */
    float *value;        /* [T][v_dim] */
    float *score;        /* [EXPAND_ROWS][T] */
    float *rows;         /* max(kv_lora + rope_dim floats of a token, 4 rows of kv_b) */
    struct softmax *run; /* [max_rows] */
};

/* Lays the parts out behind each other from `base` (0: only the size counts). */
static uint64_t expand_layout(const ebro_mla_prefill_args *a, struct expand *e, float *base) {
    uint64_t n_row = (uint64_t)a->kv_lora * MICRO_ROWS + a->rope_dim;
    uint64_t sizes[6] = {
        (uint64_t)a->kv_lora * EXPAND_TOKENS, ((uint64_t)a->nope_dim + a->rope_dim) * EXPAND_TOKENS,
        (uint64_t)a->v_dim * EXPAND_TOKENS,   (uint64_t)a->v_dim * EXPAND_TOKENS,
        EXPAND_ROWS * EXPAND_TOKENS,          n_row};
    float **parts[6] = {&e->latent, &e->key, &e->value_t, &e->value, &e->score, &e->rows};
    uint64_t used = 0;
    for (int i = 0; i < 6; i++) {
        if (base) *parts[i] = base + used;
        used += sizes[i];
    }
    if (base) e->run = (struct softmax *)(void *)(base + used);
    return used * sizeof(float) + (uint64_t)a->rows.max_rows * sizeof *e->run;
}

uint64_t cpu_scratch_mla_prefill(ebro_dev *dev, const ebro_mla_prefill_args *a) {
    struct expand e = {0};
    return dev->n_threads * expand_layout(a, &e, NULL);
}

/* Tokens [t0, t0 + n) of the cache, transposed; absent tokens of the tile are zeros. */
static void expand_load(const ebro_mla_prefill_args *a, struct expand *e, uint32_t seq, uint32_t t0,
                        uint32_t n) {
    float *rope = e->key + (uint64_t)a->nope_dim * EXPAND_TOKENS;
    for (uint32_t t = 0; t < EXPAND_TOKENS; t++) {
        uint32_t width = a->kv_lora + a->rope_dim;
        if (t < n) {
            cpu_load(e->rows, a->pages.dtype, cache_row(&a->pages, seq, t0 + t), width);
        } else {
            memset(e->rows, 0, width * sizeof *e->rows);
        }
        for (uint32_t c = 0; c < a->kv_lora; c++) {
            e->latent[(uint64_t)c * EXPAND_TOKENS + t] = e->rows[c];
        }
        for (uint32_t c = 0; c < a->rope_dim; c++) {
            rope[(uint64_t)c * EXPAND_TOKENS + t] = e->rows[a->kv_lora + c];
        }
    }
}

/* out[n][T] = rows [first, first + n) of kv_b times the tile's latents. */
static void expand_rows(const ebro_mla_prefill_args *a, struct expand *e, uint64_t first,
                        uint32_t n, uint32_t n_tokens, float *out) {
    for (uint32_t r = 0; r < n; r += MICRO_ROWS) {
        uint32_t m = min_u32(n - r, MICRO_ROWS);
        for (uint32_t i = 0; i < m; i++) {
            cpu_load_row(e->rows + (uint64_t)i * a->kv_lora, &a->kv_b, first + r + i, 0,
                         a->kv_lora);
        }
        micro_gemm(m, n_tokens, a->kv_lora, (struct micro_a){e->rows, a->kv_lora, 1},
                   (struct micro_b){e->latent, EXPAND_TOKENS, MICRO_COLS},
                   out + (uint64_t)r * EXPAND_TOKENS, EXPAND_TOKENS);
    }
}

/* Keys and values of one head; n_tokens is the tile's length rounded up to whole vectors. */
static void expand_head(const ebro_mla_prefill_args *a, struct expand *e, uint32_t h,
                        uint32_t n_tokens) {
    uint64_t first = (uint64_t)h * (a->nope_dim + a->v_dim);
    expand_rows(a, e, first, a->nope_dim, n_tokens, e->key);
    expand_rows(a, e, first + a->nope_dim, a->v_dim, n_tokens, e->value_t);
    for (uint32_t t = 0; t < n_tokens; t++) {
        float *v = e->value + (uint64_t)t * a->v_dim;
        for (uint32_t c = 0; c < a->v_dim; c++) v[c] = e->value_t[(uint64_t)c * EXPAND_TOKENS + t];
    }
}

/* One sequence's part of the call; `seen` of its row i is end_of(i) tokens, counted from 0. */
struct span {
    uint32_t seq, begin, n_rows, context;
};

static uint32_t end_of(const ebro_mla_prefill_args *a, const struct span *s, uint32_t i) {
    return min_u32(s->context + i + 1, a->token_end);
}

/* Rows [i, i + m) of the sequence, one head, one tile of n tokens from t0. */
static void expand_attend(const ebro_mla_prefill_args *a, struct expand *e, const struct span *s,
                          uint32_t h, uint32_t i, uint32_t m, uint32_t t0, uint32_t n) {
    uint32_t qk = a->nope_dim + a->rope_dim;
    float factor[EXPAND_ROWS];
    const float *q = eb_mat_row(&a->q, s->begin + i) + (uint64_t)h * qk;
    float *out = eb_mat_row(&a->out, s->begin + i) + (uint64_t)h * a->v_dim;
    micro_gemm(m, n, qk, (struct micro_a){q, a->q.stride, 1},
               (struct micro_b){e->key, EXPAND_TOKENS, MICRO_COLS}, e->score, EXPAND_TOKENS);
    for (uint32_t r = 0; r < m; r++) {
        uint32_t end = end_of(a, s, i + r), seen = end > t0 ? min_u32(end - t0, n) : 0;
        factor[r] = softmax_tile(e->run + i + r, e->score + r * EXPAND_TOKENS, seen, n, a->scale);
    }
    micro_panel(m, a->v_dim, n, (struct micro_a){e->score, EXPAND_TOKENS, 1},
                (struct micro_b){e->value, a->v_dim, MICRO_COLS}, out, a->out.stride, MICRO_SCALE,
                factor);
}

static void expand_begin(const ebro_mla_prefill_args *a, struct expand *e, const struct span *s,
                         uint32_t h) {
    for (uint32_t i = 0; i < s->n_rows; i++) {
        float *out = eb_mat_row(&a->out, s->begin + i) + (uint64_t)h * a->v_dim;
        memset(out, 0, (size_t)a->v_dim * sizeof *out);
        e->run[i] = (struct softmax){-INFINITY, 0.0f};
    }
}

static void expand_end(const ebro_mla_prefill_args *a, struct expand *e, const struct span *s,
                       uint32_t h) {
    for (uint32_t i = 0; i < s->n_rows; i++) {
        float *out = eb_mat_row(&a->out, s->begin + i) + (uint64_t)h * a->v_dim;
        float *lse = a->lse.mem ? eb_mat_row(&a->lse, s->begin + i) + h : NULL;
        softmax_end(e->run + i, out, a->v_dim, lse);
    }
}

/* One head of a sequence. */
static void expand_seq(const ebro_mla_prefill_args *a, struct expand *e, const struct span *s,
                       uint32_t h) {
    expand_begin(a, e, s, h);
    uint32_t end = s->n_rows > 0 ? end_of(a, s, s->n_rows - 1) : 0;
    for (uint32_t t0 = a->token_begin; t0 < end; t0 += EXPAND_TOKENS) {
        uint32_t n = min_u32(end - t0, EXPAND_TOKENS);
        uint32_t whole = (n + MICRO_COLS - 1) / MICRO_COLS * MICRO_COLS;
        expand_load(a, e, s->seq, t0, n);
        expand_head(a, e, h, whole);
        for (uint32_t i = 0; i < s->n_rows; i += EXPAND_ROWS) {
            uint32_t m = min_u32(s->n_rows - i, EXPAND_ROWS);
            if (end_of(a, s, i + m - 1) <= t0) continue;
            expand_attend(a, e, s, h, i, m, t0, whole);
        }
        if (end - t0 <= EXPAND_TOKENS) break; /* t0 must not wrap */
    }
    expand_end(a, e, s, h);
}

/* Items: sequences by heads. */
static void expand_item(void *user, uint64_t item, uint32_t thread) {
    const ebro_mla_prefill_args *a = user;
    struct expand e = {0};
    const int32_t *offsets = eb_at(a->rows.row_offsets);
    uint32_t q = (uint32_t)(item / a->n_heads), h = (uint32_t)(item % a->n_heads);
    struct span span = {q, (uint32_t)offsets[q], (uint32_t)(offsets[q + 1] - offsets[q]),
                        context_of(&a->pages, q)};
    uint64_t floats = expand_layout(a, &e, NULL) / sizeof(float);
    (void)expand_layout(a, &e, (float *)eb_at(a->scratch) + thread * floats);
    expand_seq(a, &e, &span, h);
}

int32_t cpu_mla_prefill(ebro_stream *s, const ebro_mla_prefill_args *a, ebro_error *err) {
    ebro_mla_prefill_args args = *a;
    (void)err;
    cpu_parallel(s->dev->pool, (uint64_t)a->rows.n_seqs * a->n_heads, expand_item, &args);
    return EBRO_OK;
}

/* ---- absorbed form ---------------------------------------------------------------------- */

/* Scratch of one row, or of one split of a row, at a time; one for each thread. */
struct absorb {
    float *tile;          /* [DECODE_TOKENS][kv_lora + rope_dim] */
    float *score;         /* [n_heads][DECODE_TOKENS] */
    float *part;          /* [n_heads][kv_lora]: values of one split */
    float *factor;        /* [n_heads] */
    struct softmax *run;  /* [n_heads]: all splits so far */
    struct softmax *here; /* [n_heads]: this split */
};

static uint64_t absorb_layout(const ebro_mla_decode_args *a, struct absorb *b, float *base) {
    uint64_t h = a->n_heads, width = (uint64_t)a->kv_lora + a->rope_dim;
    uint64_t score = width * DECODE_TOKENS, part = score + h * DECODE_TOKENS;
    uint64_t factor = part + h * a->kv_lora, run = factor + h + (h & 1u);
    if (base) {
        b->tile = base;
        b->score = base + score;
        b->part = base + part;
        b->factor = base + factor;
        b->run = (struct softmax *)(void *)(base + run);
        b->here = b->run + h;
    }
    return run * sizeof(float) + 2 * h * sizeof *b->run;
}

uint64_t cpu_scratch_mla_decode(ebro_dev *dev, const ebro_mla_decode_args *a) {
    struct absorb b = {0};
    return dev->n_threads * absorb_layout(a, &b, NULL);
}

/* Tokens [t0, t0 + n) as f32 rows: where they lie if they can be used there, else a copy. */
static const float *absorb_load(const ebro_mla_decode_args *a, struct absorb *b, uint32_t seq,
                                uint32_t t0, uint32_t n, size_t *stride) {
    const ebro_pages *p = &a->pages;
    uint32_t width = a->kv_lora + a->rope_dim;
    if (p->dtype == EBRO_F32 && t0 / p->page_tokens == (t0 + n - 1) / p->page_tokens) {
        *stride = p->row_stride;
        return (const float *)(void *)cache_row(p, seq, t0);
    }
    *stride = width;
    for (uint32_t t = 0; t < n; t++) {
        cpu_load(b->tile + (uint64_t)t * width, p->dtype, cache_row(p, seq, t0 + t), width);
    }
    return b->tile;
}

static void absorb_scores(const ebro_mla_decode_args *a, struct absorb *b, const float *q,
                          const float *tile, size_t stride, uint32_t n) {
    uint32_t width = a->kv_lora + a->rope_dim, h = 0;
    for (; h + MICRO_ROWS <= a->n_heads; h += MICRO_ROWS) {
        float *score = b->score + (uint64_t)h * DECODE_TOKENS;
        for (uint32_t t = 0; t < n; t++) {
            float x[MICRO_ROWS];
            micro_dot4(q + (uint64_t)h * width, width, tile + t * stride, width, x);
            for (uint32_t r = 0; r < MICRO_ROWS; r++) score[r * DECODE_TOKENS + t] = x[r];
        }
    }
    for (; h < a->n_heads; h++) {
        float *score = b->score + (uint64_t)h * DECODE_TOKENS;
        for (uint32_t t = 0; t < n; t++) {
            score[t] = micro_dot(q + (uint64_t)h * width, tile + t * stride, width);
        }
    }
}

/* Tokens [begin, end) of one split, for all heads, into b->part and b->here. */
static void absorb_split(const ebro_mla_decode_args *a, struct absorb *b, const float *q,
                         uint32_t seq, uint32_t begin, uint32_t end) {
    memset(b->part, 0, (size_t)a->n_heads * a->kv_lora * sizeof *b->part);
    for (uint32_t h = 0; h < a->n_heads; h++) b->here[h] = (struct softmax){-INFINITY, 0.0f};
    while (begin < end) {
        uint32_t n = min_u32(end - begin, DECODE_TOKENS - begin % DECODE_TOKENS);
        size_t stride;
        const float *tile = absorb_load(a, b, seq, begin, n, &stride);
        absorb_scores(a, b, q, tile, stride, n);
        for (uint32_t h = 0; h < a->n_heads; h++) {
            b->factor[h] =
                softmax_tile(b->here + h, b->score + (uint64_t)h * DECODE_TOKENS, n, n, a->scale);
        }
        micro_panel(a->n_heads, a->kv_lora, n, (struct micro_a){b->score, DECODE_TOKENS, 1},
                    (struct micro_b){tile, stride, MICRO_COLS}, b->part, a->kv_lora, MICRO_SCALE,
                    b->factor);
        begin += n;
    }
}

/* Joins a split with what came before it. */
static void absorb_merge(const ebro_mla_decode_args *a, struct softmax *runs,
                         const struct absorb *b, float *out) {
    for (uint32_t h = 0; h < a->n_heads; h++) {
        struct softmax *run = runs + h, *here = b->here + h;
        float max = run->max > here->max ? run->max : here->max;
        float old = run->max == max ? 1.0f : micro_exp_neg(run->max - max);
        float new = here->max == max ? 1.0f : micro_exp_neg(here->max - max);
        float *restrict o = out + (uint64_t)h * a->kv_lora;
        const float *restrict p = b->part + (uint64_t)h * a->kv_lora;
        for (uint32_t c = 0; c < a->kv_lora; c++) o[c] = o[c] * old + p[c] * new;
        *run = (struct softmax){max, run->sum * old + here->sum * new};
    }
}

struct absorb_loop {
    const ebro_mla_decode_args *a;
    uint64_t floats; /* of one thread's scratch */
    /* Of a loop over splits: the row, its end, and the first split's tokens. */
    uint32_t seq, row, end, first;
};

static struct absorb absorb_room(const struct absorb_loop *l, uint64_t index) {
    struct absorb b = {0};
    (void)absorb_layout(l->a, &b, (float *)eb_at(l->a->scratch) + index * l->floats);
    return b;
}

/* The split behind token t ends here. */
static uint32_t split_end(uint32_t t, uint32_t end) {
    return t + min_u32(end - t, DECODE_SPLIT - t % DECODE_SPLIT);
}

/* Split number `item` from l->first on, into the room of that number. */
static void absorb_split_item(void *user, uint64_t item, uint32_t thread) {
    const struct absorb_loop *l = user;
    struct absorb b = absorb_room(l, item);
    uint32_t begin = l->first;
    (void)thread;
    for (uint64_t i = 0; i < item; i++) begin = split_end(begin, l->end);
    absorb_split(l->a, &b, eb_mat_row(&l->a->q, l->row), l->seq, begin, split_end(begin, l->end));
}

static void absorb_begin(const ebro_mla_decode_args *a, struct softmax *run, float *out) {
    memset(out, 0, (size_t)a->n_heads * a->kv_lora * sizeof *out);
    for (uint32_t h = 0; h < a->n_heads; h++) run[h] = (struct softmax){-INFINITY, 0.0f};
}

static void absorb_end(const ebro_mla_decode_args *a, const struct softmax *run, uint32_t row,
                       float *out) {
    for (uint32_t h = 0; h < a->n_heads; h++) {
        softmax_end(run + h, out + (uint64_t)h * a->kv_lora, a->kv_lora,
                    a->lse.mem ? eb_mat_row(&a->lse, row) + h : NULL);
    }
}

/* One row on all threads: as many splits at a time as there are threads, joined in order. */
static void absorb_row_wide(ebro_dev *dev, struct absorb_loop *l) {
    const ebro_mla_decode_args *a = l->a;
    float *out = eb_mat_row(&a->out, l->row);
    struct softmax *run = absorb_room(l, 0).run;
    absorb_begin(a, run, out);
    l->first = a->token_begin;
    while (l->first < l->end) {
        uint32_t n = 0, t = l->first;
        for (; n < dev->n_threads && t < l->end; n++) t = split_end(t, l->end);
        cpu_parallel(dev->pool, n, absorb_split_item, l);
        for (uint32_t i = 0; i < n; i++) {
            struct absorb b = absorb_room(l, i);
            absorb_merge(a, run, &b, out);
        }
        l->first = t;
    }
    absorb_end(a, run, l->row, out);
}

/* One row on one thread: the same splits in the same order. */
static void absorb_row_item(void *user, uint64_t item, uint32_t thread) {
    const struct absorb_loop *l = user;
    const ebro_mla_decode_args *a = l->a;
    struct absorb b = absorb_room(l, thread);
    const int32_t *offsets = eb_at(a->rows.row_offsets);
    uint32_t row = (uint32_t)item, q = 0;
    while (row >= (uint32_t)offsets[q + 1]) q++;
    uint32_t begin = (uint32_t)offsets[q];
    uint32_t end = min_u32(context_of(&a->pages, q) + row - begin + 1, a->token_end);
    float *out = eb_mat_row(&a->out, row);
    absorb_begin(a, b.run, out);
    for (uint32_t t = a->token_begin; t < end;) {
        uint32_t stop = split_end(t, end);
        absorb_split(a, &b, eb_mat_row(&a->q, row), q, t, stop);
        absorb_merge(a, b.run, &b, out);
        t = stop;
    }
    absorb_end(a, b.run, row, out);
}

int32_t cpu_mla_decode(ebro_stream *s, const ebro_mla_decode_args *a, ebro_error *err) {
    (void)err;
    struct absorb b = {0};
    const int32_t *offsets = eb_at(a->rows.row_offsets);
    struct absorb_loop l = {.a = a, .floats = absorb_layout(a, &b, NULL) / sizeof(float)};
    uint32_t n_rows = (uint32_t)offsets[a->rows.n_seqs];
    if (n_rows >= 2 * s->dev->n_threads || s->dev->n_threads == 1) {
        cpu_parallel(s->dev->pool, n_rows, absorb_row_item, &l);
        return EBRO_OK;
    }
    for (uint32_t q = 0; q < a->rows.n_seqs; q++) {
        uint32_t begin = (uint32_t)offsets[q], context = context_of(&a->pages, q);
        for (uint32_t row = begin; row < (uint32_t)offsets[q + 1]; row++) {
            l.seq = q;
            l.row = row;
            l.end = min_u32(context + row - begin + 1, a->token_end);
            absorb_row_wide(s->dev, &l);
        }
    }
    return EBRO_OK;
}
