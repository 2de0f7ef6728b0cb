/* mla_prefill.cu: attention in the expanded form, over a tile of the context at a time.
 *
 *   mla_expand  a block makes keys or values of 64 tokens: latents times 64 rows of kv_b, all of
 * one head, to the scratch in f32 mla_attend  a block takes 64 rows of one head over the tokens
 * that were expanded, 128 columns of values at a time
 *
 * Both are made of products [64][columns] x [columns][64], whose sides pass through shared memory
 * in chunks of 32 columns, the next one loaded while one is worked on; a thread has a piece of 4
 * x 4. mla_attend takes tokens in tiles of 64: scores, softmax by teams of four lanes for each row,
 * then the sums, of which a thread keeps 8 rows x 4 columns in registers. Between launches the
 * result of the tokens so far stands in dst, and maximum and total of each row in `runs`. */
#include "mla.cuh"
#include "shapes.h"

enum {
    THREADS = EB_MLA_PREFILL_THREADS,
    EDGE = EB_MLA_EXPAND_TILE, /* tokens, rows of kv_b, rows of queries: of a product */
    CHUNK = 8,                 /* quads of columns */
    ROW = CHUNK + 1,           /* in shared memory, against bank conflicts */
    TEAM = THREADS / EDGE,
    BLOCK_QUADS = EB_MLA_VALUE_QUADS,      /* of values, of a block */
    HELD = EDGE / (THREADS / BLOCK_QUADS), /* rows of a thread's sums */
    P_ROW = EDGE / 4 + 1
};
static_assert(EDGE == 64 && EDGE == EB_MLA_ROW_BLOCK && THREADS == 256 && HELD % 4 == 0,
              "pieces of 4 x 4");

/* ---- products --------------------------------------------------------------------------- */

struct sides {
    eb_vec4 left[EDGE * ROW], right[EDGE * ROW];
};

/* sum[i][j] = <left row r0 + 16 i, right row c0 + 16 j>, r0 = thread / 16, c0 = thread % 16.
 * left(row, quad) and right(row, quad) give quads of columns, zeros where there are none. All of it
 * begins and ends with the sides free. */
template <class Left, class Right>
static EB_DEVICE void product(sides &s, unsigned n_quads, Left left, Right right,
                              float (&sum)[4][4]) {
    unsigned r = thread_id() / CHUNK, quad = thread_id() % CHUNK, to = r * ROW + quad;
    unsigned r0 = thread_id() / 16, c0 = thread_id() % 16;
    eb_vec4 next[2][2];
    EB_UNROLL
    for (unsigned i = 0; i < 4; i++) {
        EB_UNROLL
        for (unsigned j = 0; j < 4; j++) sum[i][j] = 0.0f;
    }
    EB_UNROLL
    for (unsigned i = 0; i < 2; i++) {
        next[0][i] = left(r + EDGE / 2 * i, quad);
        next[1][i] = right(r + EDGE / 2 * i, quad);
    }
    for (unsigned first = 0; first < n_quads; first += CHUNK) {
        EB_UNROLL
        for (unsigned i = 0; i < 2; i++) {
            s.left[to + EDGE / 2 * ROW * i] = next[0][i];
            s.right[to + EDGE / 2 * ROW * i] = next[1][i];
        }
        sync_block();
        if (first + CHUNK < n_quads) {
            EB_UNROLL
            for (unsigned i = 0; i < 2; i++) {
                next[0][i] = left(r + EDGE / 2 * i, first + CHUNK + quad);
                next[1][i] = right(r + EDGE / 2 * i, first + CHUNK + quad);
            }
        }
        EB_UNROLL
        for (unsigned k = 0; k < CHUNK; k++) {
            eb_vec4 a[4];
            EB_UNROLL
            for (unsigned i = 0; i < 4; i++) a[i] = s.left[(r0 + 16 * i) * ROW + k];
            EB_UNROLL
            for (unsigned j = 0; j < 4; j++) {
                eb_vec4 b = s.right[(c0 + 16 * j) * ROW + k];
                EB_UNROLL
                for (unsigned i = 0; i < 4; i++) {
                    sum[i][j] = plus_dot(sum[i][j], a[i], b);
                }
            }
        }
        sync_block();
    }
}

/* ---- expansion -------------------------------------------------------------------------- */

/* Columns c .. c + 3 of a row of kv_b; c is a multiple of four. */
static EB_DEVICE eb_vec4 weight_quad(const eb_mla_expand_args &a, unsigned row, unsigned c,
                                     bool wide) {
    if (a.kv_b.dtype != EB_MXFP4) {
        eb_addr from = a.kv_b.at + (eb_addr)row * a.kv_b.stride * (a.kv_b.dtype == EB_F32 ? 4 : 2);
        return load4(from, c, a.kv_lora, a.kv_b.dtype, wide);
    }
    eb_vec4 v = {};
    if (c >= a.kv_lora) return v;
    const unsigned char *codes =
        at<const unsigned char>(a.kv_b.at) + ((eb_addr)row * a.kv_lora + c) / 2;
    unsigned scale =
        at<const unsigned char>(a.kv_b.scales)[(eb_addr)row * (a.kv_lora / 32) + c / 32];
    for (unsigned x = 0; x < 4; x++) v.v[x] = mx_scaled(e2m1(codes[x / 2] >> x % 2 * 4), scale);
    return v;
}

/* The key channels that all heads share, of n tokens. */
static EB_DEVICE void share_ropes(const eb_mla_expand_args &a, const eb_addr *token_at, unsigned n,
                                  eb_vec4 *to, bool wide) {
    unsigned n_quads = (a.rope_dim + 3) / 4, bytes = a.pages.dtype == EB_F32 ? 4 : 2;
    bool both_wide = wide && a.kv_lora % 4 == 0;
    for (unsigned i = thread_id(); i < n * n_quads; i += n_threads()) {
        eb_addr from = token_at[i / n_quads] + (eb_addr)a.kv_lora * bytes;
        to[i] = load4(from, i % n_quads * 4, a.rope_dim, a.pages.dtype, both_wide);
    }
}

EB_KERNEL(eb_mla_expand_plain, eb_mla_expand_args, THREADS) {
    EB_SHARED(sides, s, );
    EB_SHARED(eb_addr, token_at, [EDGE]);
    EB_SHARED(unsigned, is_odd, );
    unsigned n_key_tiles = (A.nope_dim + EDGE - 1) / EDGE;
    unsigned n_tiles = n_key_tiles + (A.v_dim + EDGE - 1) / EDGE;
    unsigned n_token_tiles = (A.n_tokens + EDGE - 1) / EDGE;
    unsigned g = block_id(), tile = g % n_tiles;
    g /= n_tiles;
    unsigned head = g % A.n_heads;
    g /= A.n_heads;
    unsigned t0 = g % n_token_tiles * EDGE, slot = g / n_token_tiles, seq = A.first_seq + slot;
    const int *offsets = at<const int>(A.row_offsets);
    unsigned n_rows = (unsigned)(offsets[seq + 1] - offsets[seq]);
    unsigned end = least((unsigned)at<const int>(A.pages.context)[seq] + n_rows, A.token_end);
    if (n_rows == 0 || A.first_token + t0 >= end) return;
    unsigned n = least(least(end - A.first_token, A.n_tokens) - t0, EDGE);

    if (thread_id() == 0) is_odd = 0;
    sync_block();
    if (thread_id() < n) {
        eb_addr token = mla_token_of(A.pages, seq, A.first_token + t0 + thread_id());
        token_at[thread_id()] = token;
        if (!mla_is_wide(token, A.pages.dtype)) is_odd = 1;
    }
    sync_block();
    bool c_wide = is_odd == 0;
    bool w_wide = mla_is_wide(A.kv_b.at, A.kv_b.dtype) && A.kv_b.stride % 4 == 0;
    bool is_key = tile < n_key_tiles;
    unsigned first = (is_key ? tile : tile - n_key_tiles) * EDGE;
    unsigned dim = is_key ? A.nope_dim : A.v_dim, n_w = least(dim - first, EDGE);
    unsigned w_first = head * (A.nope_dim + A.v_dim) + (is_key ? 0 : A.nope_dim) + first;

    /* Tokens and rows of kv_b that are not there repeat the last ones. */
    float y[4][4];
    product(
        s, (A.kv_lora + 3) / 4,
        [&](unsigned t, unsigned quad) {
            return load4(token_at[least(t, n - 1)], quad * 4, A.kv_lora, A.pages.dtype, c_wide);
        },
        [&](unsigned w, unsigned quad) {
            return weight_quad(A, w_first + least(w, n_w - 1), quad * 4, w_wide);
        },
        y);

    /* Columns up to a whole quad are zeros. */
    unsigned n_cols = (dim + 3) / 4 * 4, row = thread_id() / 16, col = first + thread_id() % 16;
    float *to = at<float>(is_key ? A.keys : A.values) +
                (((size_t)slot * A.n_heads + head) * A.n_tokens + t0) * n_cols;
    EB_UNROLL
    for (unsigned i = 0; i < 4; i++) {
        EB_UNROLL
        for (unsigned j = 0; j < 4; j++) {
            unsigned t = row + 16 * i, c = col + 16 * j;
            if (t < n && c < n_cols) to[(size_t)t * n_cols + c] = c < dim ? y[i][j] : 0.0f;
        }
    }
    if (head == 0 && tile == 0) {
        size_t at_rope = ((size_t)slot * A.n_tokens + t0) * ((A.rope_dim + 3) / 4);
        share_ropes(A, token_at, n, at<eb_vec4>(A.ropes) + at_rope, c_wide);
    }
}

/* ---- attention -------------------------------------------------------------------------- */

struct attend_shared {
    sides s;
    eb_vec4 scores[EDGE * P_ROW]; /* [token][row], then probabilities */
    float factors[EDGE];          /* for older sums */
};

/* What a block works on. */
struct place {
    unsigned head, first_row, m;     /* packed rows [first_row, first_row + m) */
    unsigned seen;                   /* tokens that the first of them sees */
    unsigned nope_quads, rope_quads; /* of keys */
    unsigned v_quads;                /* of values */
    const float *q;                  /* of the first row and the head */
    bool q_wide;
    const eb_vec4 *keys, *values, *ropes; /* of the head, or of the sequence */
};

/* Of row r, whose two parts need not be whole quads. */
static EB_DEVICE eb_vec4 query_quad(const eb_mla_attend_args &a, const place &w, unsigned r,
                                    unsigned quad) {
    const float *row = w.q + (size_t)least(r, w.m - 1) * a.q.stride;
    if (quad < w.nope_quads) return load4((eb_addr)row, quad * 4, a.nope_dim, EB_F32, w.q_wide);
    return load4((eb_addr)(row + a.nope_dim), (quad - w.nope_quads) * 4, a.rope_dim, EB_F32,
                 w.q_wide);
}

static EB_DEVICE eb_vec4 key_quad(const place &w, unsigned slot, unsigned quad) {
    if (quad < w.nope_quads) return w.keys[(size_t)slot * w.nope_quads + quad];
    quad -= w.nope_quads;
    return quad < w.rope_quads ? w.ropes[(size_t)slot * w.rope_quads + quad] : eb_vec4{};
}

/* Of n tokens from `slot` of the launch on, to [token][row]. */
static EB_DEVICE void make_scores(const eb_mla_attend_args &a, attend_shared &sh, const place &w,
                                  unsigned slot, unsigned n) {
    float score[4][4], *scores = (float *)sh.scores;
    product(
        sh.s, w.nope_quads + w.rope_quads,
        [&](unsigned r, unsigned quad) { return query_quad(a, w, r, quad); },
        [&](unsigned t, unsigned quad) { return key_quad(w, slot + least(t, n - 1), quad); },
        score);
    unsigned r0 = thread_id() / 16, t0 = thread_id() % 16;
    EB_UNROLL
    for (unsigned i = 0; i < 4; i++) {
        EB_UNROLL
        for (unsigned j = 0; j < 4; j++)
            scores[(t0 + 16 * j) * (P_ROW * 4) + r0 + 16 * i] = score[i][j] * a.scale;
    }
}

/* Scores become exp(score - largest so far) of the first `visible` tokens and zeros of the others,
 * up to n. `top` and `total` are those of the team's row. */
static EB_DEVICE void softmax(attend_shared &sh, unsigned visible, unsigned n, float &top,
                              float &total) {
    unsigned row = thread_id() / TEAM, part = thread_id() % TEAM;
    float *scores = (float *)sh.scores + row, largest = top, sum = 0.0f;
    for (unsigned t = part; t < visible; t += TEAM)
        largest = fmaxf(largest, scores[t * (P_ROW * 4)]);
    for (unsigned m = 1; m < TEAM; m *= 2) largest = fmaxf(largest, shuffle_xor(largest, m));
    for (unsigned t = part; t < n; t += TEAM) {
        float e = t < visible ? expf(scores[t * (P_ROW * 4)] - largest) : 0.0f;
        scores[t * (P_ROW * 4)] = e;
        sum += e;
    }
    for (unsigned m = 1; m < TEAM; m *= 2) sum += shuffle_xor(sum, m);
    float factor = total > 0.0f ? expf(top - largest) : 0.0f;
    if (part == 0) sh.factors[row] = factor;
    top = largest;
    total = total * factor + sum;
}

/* A thread's sums: HELD rows from first_row on, quad `quad`. */
struct sums {
    eb_vec4 v[HELD];
};

static EB_DEVICE void scale_sums(sums &y, const float *factors) {
    EB_UNROLL
    for (unsigned i = 0; i < HELD; i++) {
        mla_scale(y.v[i], factors[i]);
    }
}

/* p: the probabilities of a token for the thread's rows. */
static EB_DEVICE void add_token(sums &y, const eb_vec4 *p, const eb_vec4 &value) {
    EB_UNROLL
    for (unsigned i = 0; i < HELD / 4; i++) {
        eb_vec4 e = p[i];
        EB_UNROLL
        for (unsigned k = 0; k < 4; k++) {
            mla_add(y.v[4 * i + k], e.v[k], value);
        }
    }
}

/* Of n tokens; values: of the first one, the thread's quad. */
static EB_DEVICE void add_values(sums &y, const eb_vec4 *p, const eb_vec4 *values, unsigned n_quads,
                                 unsigned n) {
    enum { AHEAD = 4 }; /* tokens whose loads are under way together */
    unsigned t = 0;
    for (; t + AHEAD <= n; t += AHEAD) {
        eb_vec4 v[AHEAD];
        EB_UNROLL
        for (unsigned u = 0; u < AHEAD; u++) v[u] = values[(size_t)(t + u) * n_quads];
        EB_UNROLL
        for (unsigned u = 0; u < AHEAD; u++) add_token(y, p + (t + u) * P_ROW, v[u]);
    }
    for (; t < n; t++) add_token(y, p + t * P_ROW, values[(size_t)t * n_quads]);
}

EB_KERNEL(eb_mla_attend_plain, eb_mla_attend_args, THREADS) {
    EB_SHARED(attend_shared, sh, );
    place w;
    w.v_quads = (A.v_dim + 3) / 4;
    unsigned n_blocks = (w.v_quads + BLOCK_QUADS - 1) / BLOCK_QUADS;
    unsigned g = block_id(),
             row_block = A.n_row_blocks - 1 - g % A.n_row_blocks; /* longest first */
    g /= A.n_row_blocks;
    unsigned block = g % n_blocks;
    g /= n_blocks;
    w.head = g % A.n_heads;
    unsigned slot = g / A.n_heads, seq = A.first_seq + slot;
    unsigned begin = (unsigned)at<const int>(A.row_offsets)[seq];
    unsigned end = (unsigned)at<const int>(A.row_offsets)[seq + 1];
    w.first_row = begin + row_block * EDGE;
    if (w.first_row >= end) return;
    w.m = least(end - w.first_row, EDGE);
    w.seen = (unsigned)at<const int>(A.context)[seq] + row_block * EDGE + 1;
    /* One past the last token of this launch that any of the rows sees. */
    unsigned stop = least(least(w.seen + w.m - 1, A.token_end), A.first_token + A.n_tokens);
    if (stop <= A.first_token && A.is_first == 0) return;

    w.nope_quads = (A.nope_dim + 3) / 4;
    w.rope_quads = (A.rope_dim + 3) / 4;
    w.q = row_of(A.q, w.first_row) + (size_t)w.head * (A.nope_dim + A.rope_dim);
    w.q_wide = A.q.at % 16 == 0 && (A.q.stride | A.nope_dim | A.rope_dim) % 4 == 0;
    size_t first = ((size_t)slot * A.n_heads + w.head) * A.n_tokens;
    w.keys = at<const eb_vec4>(A.keys) + first * w.nope_quads;
    w.values = at<const eb_vec4>(A.values) + first * w.v_quads;
    w.ropes = at<const eb_vec4>(A.ropes) + (size_t)slot * A.n_tokens * w.rope_quads;

    /* The team's row, for softmax; the thread's rows and columns, for the sums. */
    unsigned own = thread_id() / TEAM, r1 = thread_id() / BLOCK_QUADS * HELD;
    unsigned quad = block * BLOCK_QUADS + thread_id() % BLOCK_QUADS;
    float *run = at<float>(A.runs) +
                 (((size_t)w.first_row + own) * A.n_heads + w.head) * n_blocks * 2 + block * 2;
    float top = MLA_UNSEEN, total = 0.0f;
    if (A.is_first == 0 && own < w.m) {
        top = run[0];
        total = run[1];
    }
    if (thread_id() % TEAM == 0) sh.factors[own] = total;
    bool wide = A.dst.at % 16 == 0 && (A.dst.stride | A.v_dim) % 4 == 0;
    sums y = {};
    float *out = row_of(A.dst, w.first_row) + (size_t)w.head * A.v_dim;
    if (A.is_first == 0) {
        EB_UNROLL
        for (unsigned i = 0; i < HELD; i++) {
            eb_addr row = (eb_addr)(out + (size_t)(r1 + i) * A.dst.stride);
            if (r1 + i < w.m) y.v[i] = load4(row, quad * 4, A.v_dim, EB_F32, wide);
        }
    }
    sync_block();
    scale_sums(y, sh.factors + r1);
    for (unsigned tile = A.first_token; tile < stop; tile += EDGE) {
        unsigned n = least(stop - tile, EDGE), limit = w.seen + own;
        make_scores(A, sh, w, tile - A.first_token, n);
        sync_block();
        softmax(sh, limit > tile ? least(limit - tile, n) : 0, n, top, total);
        sync_block();
        scale_sums(y, sh.factors + r1);
        add_values(
            y, sh.scores + r1 / 4,
            w.values + (size_t)(tile - A.first_token) * w.v_quads + least(quad, w.v_quads - 1),
            w.v_quads, n);
    }
    sync_block();
    if (thread_id() % TEAM == 0) {
        sh.factors[own] = total > 0.0f ? 1.0f / total : 0.0f;
        if (own < w.m) {
            run[0] = top;
            run[1] = total;
            if (block == 0 && A.lse.at != 0)
                row_of(A.lse, w.first_row + own)[w.head] =
                    total > 0.0f ? top + logf(total) : -INFINITY;
        }
    }
    sync_block();
    scale_sums(y, sh.factors + r1);
    EB_UNROLL
    for (unsigned i = 0; i < HELD; i++) {
        float *row = out + (size_t)(r1 + i) * A.dst.stride;
        if (r1 + i < w.m) store4(row, quad * 4, A.v_dim, y.v[i], wide);
    }
}
