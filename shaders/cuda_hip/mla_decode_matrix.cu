/* mla_decode_matrix.cu: mla_decode (mla_decode.cu) on matrix units: up to 32 heads of one row over
 * one split of its context, for latents of 512 columns and 64 rotated ones in bf16. 8 warps of 32.
 *
 * The cache is taken in tiles of 32 tokens, of which shared memory holds two: while one is worked
 * on, the next one is on its way in registers, and every row is read once. Three barriers a tile:
 *
 *   scores   queries times tile: a warp has 16 heads and a quarter of the columns, its queries in
 *            registers for all of the split; quarters go to shared memory
 *   softmax  eight lanes for each head join the quarters, and leave probabilities and what older
 *            sums are to be multiplied by
 *   sums     probabilities times tile: a warp has 64 columns of all heads, in registers
 *
 * Queries and probabilities are split into two bf16, what the first one leaves goes to the second:
 * a product is off by 2^-17 at most. */
#include "mla.cuh"
#include "mma.cuh"
#include "shapes.h"

EB_KERNEL(eb_mla_decode_matrix_absent, eb_mla_decode_args, EB_MLA_DECODE_THREADS) {}

#if EB_HAS_MMA

enum {
    HEADS = EB_MLA_MATRIX_HEADS,
    TOKENS = EB_MLA_DECODE_MATRIX_TOKENS,
    LORA = EB_MLA_MATRIX_LORA,
    WIDTH = LORA + EB_MLA_MATRIX_ROPE,
    UNITS = WIDTH / 8,        /* of a row of the cache: 16 bytes, eight columns */
    PITCH = UNITS + 1,        /* in shared memory, against bank conflicts */
    QUARTER = WIDTH / 16 / 4, /* steps of 16 columns of a quarter */
    LOADS = UNITS / 8,        /* of a thread: eight threads take a row */
    COLUMNS = LORA / 8,       /* of a warp's sums */
    S_PITCH = TOKENS + 8,     /* floats; so too */
    P_PITCH = TOKENS / 8 + 1, /* units */
    HALVES = HEADS / 16
};
static_assert(EB_MLA_DECODE_THREADS == 256 && HEADS == 32 && TOKENS == 32,
              "eight lanes take a token, or four tokens of a head");

struct shared {
    eb_words4 tile[2][TOKENS * PITCH]; /* [token][unit]; first queries, [head][unit] */
    float scores[4][HEADS * S_PITCH];  /* of quarters, [head][token] */
    eb_words4 near[HEADS * P_PITCH], rest[HEADS * P_PITCH]; /* probabilities, [head][token] */
    float factors[HEADS];
};
static_assert(sizeof(shared) == EB_MLA_DECODE_MATRIX_SHARED, "what the launch asks for");

static EB_DEVICE unsigned warp_id() {
    return thread_id() / EB_WARP;
}

static EB_DEVICE unsigned warp_lane() {
    return thread_id() % EB_WARP;
}

/* Where unit u of row r lies, as the operands of mma.cuh are found. */
struct units {
    const eb_words4 *at;
    unsigned pitch;
    EB_DEVICE const eb_words4 *operator()(unsigned r, unsigned u) const {
        return at + r * pitch + u;
    }
};

/* Two neighbouring elements, moved at once. */
struct alignas(8) eb_pair {
    float v[2];
};

/* ---- queries ---------------------------------------------------------------------------- */

struct queries {
    mma_a near[QUARTER], rest[QUARTER];
};

static EB_DEVICE unsigned pair_of(unsigned short low, unsigned short high) {
    return low | (unsigned)high << 16;
}

/* Heads that are not there are zeros. */
static EB_DEVICE void load_queries(shared &s, queries &q, const float *row, unsigned n_heads) {
    unsigned h = thread_id() / 8, quarter = warp_id() % 4, half = warp_id() / 4;
    for (unsigned u = thread_id() % 8; u < UNITS; u += 8) {
        eb_words4 near, rest;
        EB_UNROLL
        for (unsigned i = 0; i < 4; i++) {
            float a = 0.0f, b = 0.0f;
            if (h < n_heads) {
                a = row[h * WIDTH + u * 8 + 2 * i];
                b = row[h * WIDTH + u * 8 + 2 * i + 1];
            }
            near.w[i] = pair_of(near_bf16(a), near_bf16(b));
            rest.w[i] = pair_of(rest_bf16(a), rest_bf16(b));
        }
        s.tile[0][h * PITCH + u] = near;
        s.tile[1][h * PITCH + u] = rest;
    }
    sync_block();
    const units near_rows = {s.tile[0], PITCH}, rest_rows = {s.tile[1], PITCH};
    EB_UNROLL
    for (unsigned k = 0; k < QUARTER; k++) {
        q.near[k] = load_a(near_rows, half * 16, (quarter * QUARTER + k) * 2);
        q.rest[k] = load_a(rest_rows, half * 16, (quarter * QUARTER + k) * 2);
    }
    sync_block();
}

/* ---- the tile ---------------------------------------------------------------------------- */

/* A thread's units of its token's row. */
struct held {
    eb_words4 units[LOADS];
};

/* The row lies at any multiple of 2 bytes. */
static EB_DEVICE void fetch(held &h, eb_addr row) {
    unsigned first = thread_id() % 8;
    if (row % 16 == 0) {
        EB_UNROLL
        for (unsigned i = 0; i < LOADS; i++) {
            h.units[i] = at<const eb_words4>(row)[first + 8 * i];
        }
    } else {
        EB_UNROLL
        for (unsigned i = 0; i < LOADS; i++) {
            const unsigned short *from = at<const unsigned short>(row) + (first + 8 * i) * 8;
            EB_UNROLL
            for (unsigned j = 0; j < 4; j++) {
                h.units[i].w[j] = pair_of(from[2 * j], from[2 * j + 1]);
            }
        }
    }
}

static EB_DEVICE void stow(eb_words4 *tile, const held &h) {
    EB_UNROLL
    for (unsigned i = 0; i < LOADS; i++) {
        tile[thread_id() / 8 * PITCH + thread_id() % 8 + 8 * i] = h.units[i];
    }
}

/* ---- scores ------------------------------------------------------------------------------ */

static EB_DEVICE void make_scores(shared &s, const queries &q, const eb_words4 *tile) {
    unsigned quarter = warp_id() % 4, half = warp_id() / 4;
    mma_sum sum[TOKENS / 8] = {};
    EB_UNROLL
    for (unsigned k = 0; k < QUARTER; k++) {
        EB_UNROLL
        for (unsigned t = 0; t < TOKENS / 16; t++) {
            mma_b c[2];
            load_b(c, units{tile, PITCH}, t * 16, (quarter * QUARTER + k) * 2);
            multiply_add(sum[2 * t], q.rest[k], c[0]);
            multiply_add(sum[2 * t + 1], q.rest[k], c[1]);
            multiply_add(sum[2 * t], q.near[k], c[0]);
            multiply_add(sum[2 * t + 1], q.near[k], c[1]);
        }
    }
    float *to = s.scores[quarter] + (half * 16 + warp_lane() / 4) * S_PITCH + warp_lane() % 4 * 2;
    EB_UNROLL
    for (unsigned t = 0; t < TOKENS / 8; t++) {
        *(eb_pair *)(to + t * 8) = {{sum[t].v[0], sum[t].v[1]}};
        *(eb_pair *)(to + 8 * S_PITCH + t * 8) = {{sum[t].v[2], sum[t].v[3]}};
    }
}

/* ---- softmax ----------------------------------------------------------------------------- */

/* Eight neighbouring lanes have a head, four tokens each, of which the tile has n. Scores become
 * probabilities relative to the largest score so far. */
static EB_DEVICE void softmax(shared &s, unsigned n, float scale, float &top, float &total) {
    unsigned h = thread_id() / 8, part = thread_id() % 8;
    eb_vec4 e = {};
    EB_UNROLL
    for (unsigned i = 0; i < 4; i++) {
        mla_add(e, scale, *(const eb_vec4 *)(s.scores[i] + h * S_PITCH + part * 4));
    }
    float largest = top, sum = 0.0f;
    EB_UNROLL
    for (unsigned x = 0; x < 4; x++) {
        if (part * 4 + x < n) largest = fmaxf(largest, e.v[x]);
    }
    for (unsigned m = 1; m < 8; m *= 2) largest = fmaxf(largest, shuffle_xor(largest, m));
    EB_UNROLL
    for (unsigned x = 0; x < 4; x++) {
        e.v[x] = part * 4 + x < n ? expf(e.v[x] - largest) : 0.0f;
        sum += e.v[x];
    }
    for (unsigned m = 1; m < 8; m *= 2) sum += shuffle_xor(sum, m);
    eb_halves4 near, rest;
    EB_UNROLL
    for (unsigned x = 0; x < 4; x++) {
        near.h[x] = near_bf16(e.v[x]);
        rest.h[x] = rest_bf16(e.v[x]);
    }
    ((eb_halves4 *)(s.near + h * P_PITCH))[part] = near;
    ((eb_halves4 *)(s.rest + h * P_PITCH))[part] = rest;
    float factor = total > 0.0f ? expf(top - largest) : 0.0f;
    if (part == 0) s.factors[h] = factor;
    top = largest;
    total = total * factor + sum;
}

/* ---- sums of values ---------------------------------------------------------------------- */

/* Of 16 heads each, eight columns each. */
struct sums {
    mma_sum v[HALVES][COLUMNS / 8];
};

static EB_DEVICE void scale_sums(const shared &s, sums &y) {
    EB_UNROLL
    for (unsigned i = 0; i < HALVES; i++) {
        const float *factors = s.factors + i * 16 + warp_lane() / 4;
        float a = factors[0], b = factors[8];
        EB_UNROLL
        for (unsigned j = 0; j < COLUMNS / 8; j++) {
            y.v[i][j].v[0] *= a;
            y.v[i][j].v[1] *= a;
            y.v[i][j].v[2] *= b;
            y.v[i][j].v[3] *= b;
        }
    }
}

static EB_DEVICE void add_values(const shared &s, sums &y, const eb_words4 *tile) {
    scale_sums(s, y);
    EB_UNROLL
    for (unsigned t = 0; t < TOKENS / 16; t++) {
        mma_a near[HALVES], rest[HALVES];
        EB_UNROLL
        for (unsigned i = 0; i < HALVES; i++) {
            near[i] = load_a(units{s.near, P_PITCH}, i * 16, t * 2);
            rest[i] = load_a(units{s.rest, P_PITCH}, i * 16, t * 2);
        }
        EB_UNROLL
        for (unsigned j = 0; j < COLUMNS / 8; j += 2) {
            mma_b c[2];
            load_b_turned(c, units{tile, PITCH}, t * 16, warp_id() * COLUMNS / 8 + j);
            EB_UNROLL
            for (unsigned i = 0; i < HALVES; i++) {
                multiply_add(y.v[i][j], rest[i], c[0]);
                multiply_add(y.v[i][j + 1], rest[i], c[1]);
                multiply_add(y.v[i][j], near[i], c[0]);
                multiply_add(y.v[i][j + 1], near[i], c[1]);
            }
        }
    }
}

/* ---- parts ------------------------------------------------------------------------------- */

static EB_DEVICE void store_sums(const sums &y, float *parts, unsigned n_heads) {
    EB_UNROLL
    for (unsigned i = 0; i < HALVES; i++) {
        EB_UNROLL
        for (unsigned r = 0; r < 2; r++) {
            unsigned h = i * 16 + r * 8 + warp_lane() / 4;
            if (h >= n_heads) continue;
            float *to = parts + (size_t)h * (LORA + 4) + warp_id() * COLUMNS + warp_lane() % 4 * 2;
            EB_UNROLL
            for (unsigned j = 0; j < COLUMNS / 8; j++) {
                *(eb_pair *)(to + j * 8) = {{y.v[i][j].v[2 * r], y.v[i][j].v[2 * r + 1]}};
            }
        }
    }
}

EB_KERNEL(eb_mla_decode_matrix_bf16, eb_mla_decode_args, EB_MLA_DECODE_THREADS) {
    EB_DYNAMIC_SHARED(shared, s);
    unsigned n_head_groups = (A.n_heads + HEADS - 1) / HEADS, g = block_id() / n_head_groups;
    unsigned first_head = block_id() % n_head_groups * HEADS;
    unsigned number = g % A.n_splits, index = g / A.n_splits, row = A.first_row + index;
    if (row >= mla_n_rows(A.row_offsets, A.n_seqs)) return;
    unsigned seq = mla_seq_of(A.row_offsets, A.n_seqs, row);
    unsigned end = mla_position(A.row_offsets, A.pages.context, seq, row) + 1;
    end = least(end, A.token_end);
    unsigned tokens = mla_split_tokens(end, A.n_splits);
    unsigned begin = most(number * tokens, A.token_begin);
    end = least(number * tokens + tokens, end);
    if (begin >= end) return;

    unsigned n_heads = least(HEADS, A.n_heads - first_head),
             n_tiles = (end - begin - 1) / TOKENS + 1;
    unsigned token = begin + thread_id() / 8; /* behind the last one: the last one */
    held next;
    queries q;
    sums y = {};
    float top = MLA_UNSEEN, total = 0.0f;
    fetch(next, mla_token_of(A.pages, seq, least(token, end - 1)));
    eb_addr at_next = mla_token_of(A.pages, seq, least(token + TOKENS, end - 1));
    load_queries(*s, q, row_of(A.q, row) + (size_t)first_head * WIDTH, n_heads);
    for (unsigned tile = 0; tile < n_tiles; tile++) {
        unsigned first = begin + tile * TOKENS;
        eb_words4 *here = s->tile[tile % 2];
        stow(here, next);
        sync_block();
        if (tile + 1 < n_tiles) fetch(next, at_next);
        token += TOKENS;
        at_next = mla_token_of(A.pages, seq, least(token + TOKENS, end - 1));
        make_scores(*s, q, here);
        sync_block();
        softmax(*s, least(end - first, TOKENS), A.scale, top, total);
        sync_block();
        add_values(*s, y, here);
    }

    size_t first_part = ((size_t)index * A.n_splits + number) * A.n_heads + first_head;
    float *parts = at<float>(A.parts) + first_part * (LORA + 4);
    store_sums(y, parts, n_heads);
    unsigned h = thread_id() / 8;
    if (thread_id() % 8 == 0 && h < n_heads) {
        parts[(size_t)h * (LORA + 4) + LORA] = top;
        parts[(size_t)h * (LORA + 4) + LORA + 1] = total;
    }
}

#else

/* Never launched: devices of this generation have no such units. */
EB_KERNEL(eb_mla_decode_matrix_bf16, eb_mla_decode_args, EB_MLA_DECODE_THREADS) {}

#endif
