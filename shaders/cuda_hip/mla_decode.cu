/* mla_decode.cu: attention in the absorbed form: the latents are keys and values.
 *
 *   mla_decode, mla_decode_few  a block takes up to 32 heads (8) of one row over one split of its
 *                               context, and leaves a part: sums, maximum, total
 *   mla_merge                   a block joins the parts of 32 quads of columns of one head
 *
 * All heads of a split are in one block, so that the cache comes from memory once. It is taken in
 * tiles of 64 tokens. Scores are a product [HEADS][width] x [width][64] that passes through shared
 * memory in chunks of 32 columns, the next one loaded while one is worked on: a thread has a piece
 * of 4 heads x 4 tokens over a slice of the chunk, and slices, in neighbouring lanes, are joined by
 * shuffles. Then softmax, a team of lanes for each head; then the sums: a thread keeps some heads x
 * some quads of columns in registers and walks over the tile again, which the nearest cache holds.
 * Chunks make any width fit. */
#include "mla.cuh"
#include "shapes.h"

enum {
    THREADS = EB_MLA_DECODE_THREADS,
    TOKENS = EB_MLA_TOKENS,
    CHUNK = 8,       /* quads of columns */
    ROW = CHUNK + 1, /* in shared memory, against bank conflicts */
    BLOCK_QUADS = EB_MLA_DECODE_QUADS
};

template <unsigned HEADS>
struct shared {
    eb_vec4 tokens[TOKENS * ROW], queries[HEADS * ROW]; /* a chunk */
    eb_vec4 scores[TOKENS * (HEADS / 4 + 1)];           /* [token][head], then probabilities */
    float factors[HEADS];                               /* for older sums */
    eb_addr token_at[TOKENS];
    unsigned is_odd; /* a row of the tile is not aligned */
};

/* What a block works on. */
struct split {
    unsigned seq, begin, end;     /* tokens */
    unsigned first_head, n_heads; /* n_heads: that are there */
    const float *q;               /* of the first head */
    unsigned width;               /* of a query and of a cache row */
    bool wide;                    /* quads of queries are aligned */
};

/* ---- scores ----------------------------------------------------------------------------- */

/* This thread's quads of a chunk. */
struct held {
    eb_vec4 tokens[2], query;
};

/* Heads and tokens that are not there repeat the last ones; columns are zeros. */
template <unsigned HEADS, unsigned DTYPE>
static EB_DEVICE held load_chunk(const shared<HEADS> &s, const split &w, unsigned chunk, unsigned n,
                                 bool wide) {
    held h;
    unsigned c = (chunk * CHUNK + thread_id() % CHUNK) * 4, r = thread_id() / CHUNK;
    EB_UNROLL
    for (unsigned i = 0; i < 2; i++) {
        unsigned t = least(r + THREADS / CHUNK * i, n - 1);
        h.tokens[i] = load4(s.token_at[t], c, w.width, DTYPE, wide);
    }
    const float *q = w.q + (size_t)least(r, w.n_heads - 1) * w.width;
    h.query = load4((eb_addr)q, c, w.width, EB_F32, w.wide);
    return h;
}

template <unsigned HEADS>
static EB_DEVICE void share_chunk(shared<HEADS> &s, const held &h) {
    unsigned at = thread_id() / CHUNK * ROW + thread_id() % CHUNK;
    EB_UNROLL
    for (unsigned i = 0; i < 2; i++) {
        s.tokens[at + THREADS / CHUNK * i * ROW] = h.tokens[i];
    }
    if (thread_id() / CHUNK < HEADS) s.queries[at] = h.query;
}

/* A thread's piece of the scores: heads h0 + HEADS / 4 * i, tokens t0 + 16 j. */
template <unsigned HEADS, unsigned DTYPE>
static EB_DEVICE void make_scores(const eb_mla_decode_args &a, shared<HEADS> &s, const split &w,
                                  unsigned n, bool wide) {
    constexpr unsigned SLICES = 64 / HEADS, PER_SLICE = CHUNK / SLICES;
    unsigned slice = thread_id() % SLICES, t0 = thread_id() / SLICES % 16;
    unsigned h0 = thread_id() / (SLICES * 16), n_chunks = (w.width + CHUNK * 4 - 1) / (CHUNK * 4);
    float score[4][4] = {};
    held next = load_chunk<HEADS, DTYPE>(s, w, 0, n, wide);
    for (unsigned chunk = 0; chunk < n_chunks; chunk++) {
        sync_block();
        share_chunk(s, next);
        sync_block();
        if (chunk + 1 < n_chunks) next = load_chunk<HEADS, DTYPE>(s, w, chunk + 1, n, wide);
        EB_UNROLL
        for (unsigned k = slice * PER_SLICE, e = 0; e < PER_SLICE; k++, e++) {
            eb_vec4 q[4];
            EB_UNROLL
            for (unsigned i = 0; i < 4; i++) {
                q[i] = s.queries[(h0 + HEADS / 4 * i) * ROW + k];
            }
            EB_UNROLL
            for (unsigned j = 0; j < 4; j++) {
                eb_vec4 c = s.tokens[(t0 + 16 * j) * ROW + k];
                EB_UNROLL
                for (unsigned i = 0; i < 4; i++) {
                    score[i][j] = plus_dot(score[i][j], q[i], c);
                }
            }
        }
    }
    float *scores = (float *)s.scores;
    EB_UNROLL
    for (unsigned i = 0; i < 4; i++) {
        EB_UNROLL
        for (unsigned j = 0; j < 4; j++) {
            EB_UNROLL
            for (unsigned m = 1; m < SLICES; m *= 2) {
                score[i][j] += shuffle_xor(score[i][j], m);
            }
            if ((i * 4 + j) % SLICES == slice)
                scores[(t0 + 16 * j) * (HEADS + 4) + h0 + HEADS / 4 * i] = score[i][j] * a.scale;
        }
    }
}

/* ---- softmax ---------------------------------------------------------------------------- */

/* Scores become exp(score - largest so far). `top` and `total` are those of the team's head. */
template <unsigned HEADS>
static EB_DEVICE void softmax(shared<HEADS> &s, unsigned n, float &top, float &total) {
    constexpr unsigned TEAM = THREADS / HEADS;
    unsigned head = thread_id() / TEAM, part = thread_id() % TEAM;
    float *scores = (float *)s.scores, largest = top, sum = 0.0f;
    for (unsigned t = part; t < n; t += TEAM)
        largest = fmaxf(largest, scores[t * (HEADS + 4) + head]);
    for (unsigned m = 1; m < TEAM; m *= 2) largest = fmaxf(largest, shuffle_xor(largest, m));
    for (unsigned t = part; t < n; t += TEAM) {
        float e = expf(scores[t * (HEADS + 4) + head] - largest);
        scores[t * (HEADS + 4) + head] = e;
        sum += e;
    }
    for (unsigned m = 1; m < TEAM; m *= 2) sum += shuffle_xor(sum, m);
    float factor = total > 0.0f ? expf(top - largest) : 0.0f;
    if (part == 0) s.factors[head] = factor;
    top = largest;
    total = total * factor + sum;
}

/* ---- sums of values --------------------------------------------------------------------- */

/* A thread's sums: heads HELD * group + i, quads quad + APART * j. */
template <unsigned HEADS>
struct sums {
    static constexpr unsigned HELD = HEADS == 32 ? 8 : 4, QUADS = HEADS == 32 ? 2 : 1;
    static constexpr unsigned APART = BLOCK_QUADS / QUADS;
    eb_vec4 v[HELD][QUADS];
};

template <unsigned HEADS>
static EB_DEVICE void add_token(const shared<HEADS> &s, sums<HEADS> &y, unsigned group, unsigned t,
                                const eb_vec4 *c) {
    EB_UNROLL
    for (unsigned i = 0; i < y.HELD / 4; i++) {
        eb_vec4 p = s.scores[t * (HEADS / 4 + 1) + group * (y.HELD / 4) + i];
        EB_UNROLL
        for (unsigned k = 0; k < 4; k++) {
            EB_UNROLL
            for (unsigned j = 0; j < y.QUADS; j++) {
                mla_add(y.v[4 * i + k][j], p.v[k], c[j]);
            }
        }
    }
}

template <unsigned HEADS, unsigned DTYPE>
static EB_DEVICE void load_token(eb_vec4 *c, eb_addr token, unsigned quad, unsigned kv_lora,
                                 bool wide) {
    EB_UNROLL
    for (unsigned j = 0; j < sums<HEADS>::QUADS; j++) {
        c[j] = load4(token, (quad + sums<HEADS>::APART * j) * 4, kv_lora, DTYPE, wide);
    }
}

template <unsigned HEADS, unsigned DTYPE>
static EB_DEVICE void add_values(const shared<HEADS> &s, sums<HEADS> &y, unsigned group,
                                 unsigned quad, unsigned kv_lora, unsigned n, bool wide) {
    enum { AHEAD = 4 }; /* tokens whose loads are under way together */
    EB_UNROLL
    for (unsigned i = 0; i < y.HELD; i++) {
        EB_UNROLL
        for (unsigned j = 0; j < y.QUADS; j++) {
            mla_scale(y.v[i][j], s.factors[group * y.HELD + i]);
        }
    }
    unsigned t = 0;
    for (; t + AHEAD <= n; t += AHEAD) {
        eb_vec4 c[AHEAD][y.QUADS];
        EB_UNROLL
        for (unsigned u = 0; u < AHEAD; u++) {
            load_token<HEADS, DTYPE>(c[u], s.token_at[t + u], quad, kv_lora, wide);
        }
        EB_UNROLL
        for (unsigned u = 0; u < AHEAD; u++) {
            add_token(s, y, group, t + u, c[u]);
        }
    }
    for (; t < n; t++) {
        eb_vec4 c[y.QUADS];
        load_token<HEADS, DTYPE>(c, s.token_at[t], quad, kv_lora, wide);
        add_token(s, y, group, t, c);
    }
}

/* ---- a split ---------------------------------------------------------------------------- */

template <unsigned HEADS, unsigned DTYPE>
static EB_DEVICE void attend(const eb_mla_decode_args &a, shared<HEADS> &s, const split &w,
                             unsigned first_quad, eb_vec4 *parts) {
    unsigned n_quads = (a.kv_lora + 3) / 4, part_quads = n_quads + 1;
    unsigned group = thread_id() / sums<HEADS>::APART;
    unsigned quad = first_quad + thread_id() % sums<HEADS>::APART;
    sums<HEADS> y = {};
    float top = MLA_UNSEEN, total = 0.0f;
    if (thread_id() == 0) s.is_odd = 0;
    for (unsigned tile = w.begin; tile < w.end; tile += TOKENS) {
        unsigned n = least(w.end - tile, TOKENS);
        sync_block();
        if (thread_id() < n) {
            eb_addr token = mla_token_of(a.pages, w.seq, tile + thread_id());
            s.token_at[thread_id()] = token;
            if (!mla_is_wide(token, DTYPE)) s.is_odd = 1;
        }
        sync_block();
        bool wide = s.is_odd == 0;
        make_scores<HEADS, DTYPE>(a, s, w, n, wide);
        sync_block();
        softmax(s, n, top, total);
        sync_block();
        add_values<HEADS, DTYPE>(s, y, group, quad, a.kv_lora, n, wide);
    }
    EB_UNROLL
    for (unsigned i = 0; i < y.HELD; i++) {
        EB_UNROLL
        for (unsigned j = 0; j < y.QUADS; j++) {
            unsigned head = group * y.HELD + i, q = quad + y.APART * j;
            if (head < w.n_heads && q < n_quads) parts[(size_t)head * part_quads + q] = y.v[i][j];
        }
    }
    unsigned head = thread_id() / (THREADS / HEADS);
    if (first_quad == 0 && thread_id() % (THREADS / HEADS) == 0 && head < w.n_heads)
        parts[(size_t)head * part_quads + n_quads] = {{top, total, 0.0f, 0.0f}};
}

template <unsigned HEADS>
static EB_DEVICE void decode(const eb_mla_decode_args &a, shared<HEADS> &s) {
    unsigned n_quads = (a.kv_lora + 3) / 4, n_blocks = (n_quads + BLOCK_QUADS - 1) / BLOCK_QUADS;
    unsigned n_head_groups = (a.n_heads + HEADS - 1) / HEADS;
    unsigned g = block_id(), head_group = g % n_head_groups;
    g /= n_head_groups;
    unsigned block = g % n_blocks;
    g /= n_blocks;
    unsigned number = g % a.n_splits, index = g / a.n_splits, row = a.first_row + index;
    if (row >= mla_n_rows(a.row_offsets, a.n_seqs)) return;
    split w;
    w.seq = mla_seq_of(a.row_offsets, a.n_seqs, row);
    w.end = least(mla_position(a.row_offsets, a.pages.context, w.seq, row) + 1, a.token_end);
    unsigned tokens = mla_split_tokens(w.end, a.n_splits);
    w.begin = most(number * tokens, a.token_begin);
    w.end = least(number * tokens + tokens, w.end);
    if (w.begin >= w.end) return;
    w.first_head = head_group * HEADS;
    w.n_heads = least(HEADS, a.n_heads - w.first_head);
    w.width = a.kv_lora + a.rope_dim;
    w.q = row_of(a.q, row) + (size_t)w.first_head * w.width;
    w.wide = (eb_addr)w.q % 16 == 0 && w.width % 4 == 0;
    size_t first_part = ((size_t)index * a.n_splits + number) * a.n_heads + w.first_head;
    eb_vec4 *parts = at<eb_vec4>(a.parts) + first_part * (n_quads + 1);
    if (a.pages.dtype == EB_BF16)
        attend<HEADS, EB_BF16>(a, s, w, block * BLOCK_QUADS, parts);
    else if (a.pages.dtype == EB_F16)
        attend<HEADS, EB_F16>(a, s, w, block * BLOCK_QUADS, parts);
    else
        attend<HEADS, EB_F32>(a, s, w, block * BLOCK_QUADS, parts);
}

EB_KERNEL(eb_mla_decode_plain, eb_mla_decode_args, THREADS) {
    EB_SHARED(shared<EB_MLA_DECODE_HEADS>, s, );
    decode<EB_MLA_DECODE_HEADS>(A, s);
}

EB_KERNEL(eb_mla_decode_few_plain, eb_mla_decode_args, THREADS) {
    EB_SHARED(shared<EB_MLA_DECODE_FEW_HEADS>, s, );
    decode<EB_MLA_DECODE_FEW_HEADS>(A, s);
}

/* ---- merge ------------------------------------------------------------------------------ */

/* Teams of 32 threads take every so many-th part; all is added in one order. */
EB_KERNEL(eb_mla_merge_plain, eb_mla_merge_args, EB_MLA_MERGE_THREADS) {
    enum { QUADS = EB_MLA_MERGE_QUADS, TEAMS = EB_MLA_MERGE_THREADS / QUADS };
    EB_SHARED(float, reduced, [32]);
    EB_SHARED(float, weights, [EB_MLA_SPLITS]);
    EB_SHARED(eb_vec4, team_sums, [EB_MLA_MERGE_THREADS]);
    unsigned n_quads = (A.kv_lora + 3) / 4, n_blocks = (n_quads + QUADS - 1) / QUADS;
    unsigned block = block_id() % n_blocks, head = block_id() / n_blocks % A.n_heads;
    unsigned index = block_id() / n_blocks / A.n_heads, row = A.first_row + index;
    if (row >= mla_n_rows(A.row_offsets, A.n_seqs)) return;
    unsigned seq = mla_seq_of(A.row_offsets, A.n_seqs, row);
    unsigned end = least(mla_position(A.row_offsets, A.context, seq, row) + 1, A.token_end);
    unsigned tokens = mla_split_tokens(end, A.n_splits), first = A.token_begin / tokens;
    unsigned n = A.token_begin < end ? (end - 1) / tokens + 1 - first : 0;

    /* Part i of this head lies i * stride quads behind the first one that there is. */
    size_t stride = (size_t)A.n_heads * (n_quads + 1);
    const eb_vec4 *parts = at<const eb_vec4>(A.parts) +
                           ((size_t)index * A.n_splits + first) * stride +
                           (size_t)head * (n_quads + 1);
    float top = MLA_UNSEEN, total = 0.0f;
    for (unsigned i = thread_id(); i < n; i += n_threads())
        top = fmaxf(top, parts[i * stride + n_quads].v[0]);
    top = block_max(top, reduced);
    for (unsigned i = thread_id(); i < n; i += n_threads()) {
        eb_vec4 run = parts[i * stride + n_quads];
        weights[i] = expf(run.v[0] - top);
        total += run.v[1] * weights[i];
    }
    total = block_sum(total, reduced);

    unsigned quad = block * QUADS + thread_id() % QUADS, team = thread_id() / QUADS;
    eb_vec4 sum = {};
    for (unsigned i = team; quad < n_quads && i < n; i += TEAMS) {
        mla_add(sum, weights[i], parts[i * stride + quad]);
    }
    team_sums[thread_id()] = sum;
    sync_block();
    if (team == 0 && quad < n_quads) {
        for (unsigned t = 1; t < TEAMS; t++) mla_add(sum, 1.0f, team_sums[t * QUADS + thread_id()]);
        for (unsigned x = 0; x < 4; x++) sum.v[x] = n > 0 ? sum.v[x] / total : 0.0f;
        float *out = row_of(A.dst, row) + (size_t)head * A.kv_lora;
        store4(out, quad * 4, A.kv_lora, sum, (eb_addr)out % 16 == 0);
    }
    if (block == 0 && thread_id() == 0 && A.lse.at != 0)
        row_of(A.lse, row)[head] = n > 0 ? top + logf(total) : -INFINITY;
}
