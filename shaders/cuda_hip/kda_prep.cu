/* kda_prep.cu: everything of a chunk of one head that does not need the state (args_kda.h).
 *
 * With K+ and Q+ the keys and queries decayed from the chunk's start, A (below the diagonal) and M
 * (up to it) the products of keys with keys and queries with keys, each pair decayed over the rows
 * between, and B = diag(beta):
 *   T = (I + B A)^-1 B, W = T K+:  U = T V - W S
 *   O = Q+ S + M U = (Q+ - M T K+) S + (M T) V
 * so that one product gives U and O at once.
 *
 * The decay of a pair (i, j) is exp(g_{j+1} + .. + g_i), and nothing bounds it from below: exp(G_i)
 * exp(-G_j) would overflow, and differences of running sums would cancel. The chunk is halved
 * instead, again and again: for a block cut in two, pairs across the cut are weighed by the product
 * of two factors, the decay from the cut to i and the decay from j to the cut. Both are at most 1
 * and grow from level to level by one multiplication, and the products are plain dot products.
 *
 * A block takes one chunk of one head, CHANNELS channels at a time. A thread owns one channel of
 * eight rows, the upper or the lower half of the chunk, in registers. It leaves its keys and
 * queries, times their factors, in shared memory for all four levels at once; then eight threads
 * take two rows by two of A and M. A wave inverts the triangle; then a thread has one channel of W,
 * or of what is multiplied with S in O, for all sixteen rows: dot products of a row of T or M T
 * with a column of K+.
 *
 * kda_plan, a single block, comes before: where a sequence's tiles start and which of their rows
 * are emitted. */
#include "kda.cuh"

enum {
    C = EB_KDA_CHUNK,
    HALF = C / 2,
    THREADS = EB_KDA_PREP_THREADS,
    CHANNELS = THREADS / 2, /* at once */
    LEVELS = 4,             /* of halving: spans of 1, 2, 4, 8 rows */
    TEAM = 8                /* threads of a tile of pairs */
};

static_assert(C == 16 && THREADS == 256,
              "32 teams for the 28 tiles of 2 x 2 pairs and 4 of span 1");

/* ---- plan ------------------------------------------------------------------------------- */

static EB_DEVICE unsigned tiles_of(const eb_rows_arg &rows, unsigned s) {
    return (seq_begin(rows, s + 1) - seq_begin(rows, s) + C - 1) / C;
}

/* A thread takes neighbouring sequences. */
static EB_DEVICE void count_tiles(const eb_kda_plan_args &a, unsigned *sums) {
    unsigned n_seqs = a.rows.n_seqs, per = (n_seqs + n_threads() - 1) / n_threads();
    unsigned first = thread_id() * per, upto = first + per < n_seqs ? first + per : n_seqs, n = 0;
    for (unsigned s = first; s < upto; s++) n += tiles_of(a.rows, s);
    sums[thread_id()] = n;
    sync_block();
    n = 0;
    for (unsigned i = 0; i < thread_id(); i++) n += sums[i];
    unsigned *tiles = at<unsigned>(a.work.tiles);
    for (unsigned s = first; s < upto; s++) {
        tiles[s] = n;
        n += tiles_of(a.rows, s);
    }
    if (thread_id() == n_threads() - 1) tiles[n_seqs] = n;
}

EB_KERNEL(eb_kda_plan_plain, eb_kda_plan_args, EB_KDA_PLAN_THREADS) {
    EB_SHARED(unsigned, sums, [EB_KDA_PLAN_THREADS]);
    count_tiles(A, sums);
    if (A.n_emit == 0) return;
    unsigned *masks = at<unsigned>(A.work.masks), *marks = at<unsigned>(A.work.marks);
    for (unsigned t = thread_id(); t < A.work.n_tiles; t += n_threads()) masks[t] = 0;
    sync_block();
    for (unsigned e = thread_id(); e < A.n_emit; e += n_threads()) {
        unsigned row = uint_at(A.emit_rows, e);
        if (row >= seq_begin(A.rows, A.rows.n_seqs)) continue;
        unsigned s = seq_at(A.rows.row_offsets, A.rows.n_seqs, row);
        unsigned i = row - seq_begin(A.rows, s);
        /* No two emitted rows are alike: a sum of bits is their union. */
        atomic_add(&masks[uint_at(A.work.tiles, s) + i / C], 1u << i % C);
        marks[row] = e;
    }
}

/* ---- chunks ----------------------------------------------------------------------------- */

struct prep_shared {
    /* Keys times their factor [level][C][CHANNELS], and queries of the lower sides of the cuts
     * [level][HALF][CHANNELS]. Then K+ and Q+, [C][CHANNELS] each, at `keys`. */
    alignas(16) float keys[LEVELS * C * CHANNELS];
    alignas(16) float queries[LEVELS * HALF * CHANNELS];
    alignas(16) float pairs[2 * C * C]; /* A and M; then T and M T */
    alignas(16) float t[C * C];
    float half_decay[THREADS]; /* of each half */
    float inverse_k[C], inverse_q[C], diagonal[C], beta[C];
};

static_assert(sizeof(prep_shared) <= EB_KDA_PREP_SHARED, "the host asks for this much");

/* The rows of this chunk. */
struct prep_chunk {
    unsigned first, n_rows, head;
};

/* False: there is no such chunk. */
static EB_DEVICE bool find_chunk(const eb_kda_prep_args &a, unsigned chunk, prep_chunk *out) {
    unsigned s, tile, end, mask = 0, n_seqs = a.rows.n_seqs;
    if (chunk < a.work.n_tiles) {
        if (chunk >= uint_at(a.work.tiles, n_seqs)) return false;
        s = seq_at(a.work.tiles, n_seqs, chunk);
        tile = chunk - uint_at(a.work.tiles, s);
        end = seq_begin(a.rows, s) + (tile + 1) * C;
        if (end > seq_begin(a.rows, s + 1)) end = seq_begin(a.rows, s + 1);
        if (a.n_emit > 0) mask = uint_at(a.work.masks, chunk);
    } else {
        unsigned row = uint_at(a.emit_rows, chunk - a.work.n_tiles);
        if (row >= seq_begin(a.rows, n_seqs)) return false;
        s = seq_at(a.rows.row_offsets, n_seqs, row);
        unsigned i = row - seq_begin(a.rows, s);
        tile = i / C;
        end = row + 1;
        mask = uint_at(a.work.masks, uint_at(a.work.tiles, s) + tile) & ((1u << i % C) - 1);
    }
    /* Behind the last emitted row before it. */
    unsigned skipped = 0;
    while (mask >> skipped != 0) skipped++;
    out->first = seq_begin(a.rows, s) + tile * C + skipped;
    out->n_rows = end - out->first;
    return end > out->first;
}

/* Inverse lengths of q and k, <q, k>, beta; a row is taken by neighbouring threads of one wave.
 * Absent rows get zeros. */
static EB_DEVICE void row_norms(const eb_kda_prep_args &a, const prep_chunk &chunk,
                                prep_shared &sh) {
    const unsigned lanes = THREADS / C;
    unsigned r = thread_id() / lanes, lane = thread_id() % lanes, dim = a.work.dim;
    bool wide = is_wide(a.q) && is_wide(a.k), there = r < chunk.n_rows;
    float qq = 0.0f, kk = 0.0f, qk = 0.0f;
    if (there) {
        const float *q = row_of(a.q, chunk.first + r) + chunk.head * dim;
        const float *k = row_of(a.k, chunk.first + r) + chunk.head * dim;
        for (unsigned c = 4 * lane; c < dim; c += 4 * lanes) {
            eb_vec4 x = load_four<eb_vec4>(q + c, wide), y = load_four<eb_vec4>(k + c, wide);
            EB_UNROLL
            for (unsigned j = 0; j < 4; j++) {
                qq += x.v[j] * x.v[j];
                kk += y.v[j] * y.v[j];
                qk += x.v[j] * y.v[j];
            }
        }
    }
    EB_UNROLL
    for (unsigned m = lanes / 2; m > 0; m /= 2) {
        qq += shuffle_xor(qq, m);
        kk += shuffle_xor(kk, m);
        qk += shuffle_xor(qk, m);
    }
    if (lane != 0) return;
    float inverse_k = 1.0f / sqrtf(kk + a.gate.l2_eps);
    float inverse_q = a.gate.q_scale / sqrtf(qq + a.gate.l2_eps);
    sh.inverse_k[r] = there ? inverse_k : 0.0f;
    sh.inverse_q[r] = there ? inverse_q : 0.0f;
    sh.diagonal[r] = there ? qk * inverse_k * inverse_q : 0.0f;
    sh.beta[r] = there ? gate_beta(a.gate, chunk.first + r, chunk.head) : 0.0f;
}

/* ---- a thread's rows -------------------------------------------------------------------- */

/* Eight rows of one channel: keys and queries as they are given, and the factors of the level: the
 * decay from the cut to the row, and from the row to the cut. */
struct prep_rows {
    unsigned own, first; /* channel of CHANNELS, row of the chunk */
    float k[HALF], q[HALF], from_cut[HALF], to_cut[HALF];
};

static EB_DEVICE void load_rows(const eb_kda_prep_args &a, const prep_chunk &chunk, unsigned c,
                                float a_scale, prep_rows &x) {
    unsigned channel = chunk.head * a.work.dim + c;
    bool there = c < a.work.dim;
    float bias = there ? gate_bias(a.gate, channel) : 0.0f, raw[HALF];
    EB_UNROLL
    for (unsigned i = 0; i < HALF; i++) {
        bool has = there && x.first + i < chunk.n_rows;
        unsigned row = chunk.first + x.first + i;
        x.k[i] = has ? row_of(a.k, row)[channel] : 0.0f;
        x.q[i] = has ? row_of(a.q, row)[channel] : 0.0f;
        raw[i] = has ? row_of(a.gate.g_raw, row)[channel] : 0.0f;
    }
    EB_UNROLL
    for (unsigned i = 0; i < HALF; i++) {
        bool has = x.first + i < chunk.n_rows;
        x.from_cut[i] = has ? gate_decay(a.gate, a_scale, raw[i] + bias) : 1.0f;
        x.to_cut[i] = 1.0f;
    }
}

/* What lies on both sides of the cuts of blocks of 2 * span rows, times its factor. */
static EB_DEVICE void put_sides(const prep_rows &x, unsigned level, prep_shared &sh) {
    const unsigned span = 1u << level;
    float *keys = sh.keys + level * C * CHANNELS + x.own;
    float *queries = sh.queries + level * HALF * CHANNELS + x.own;
    EB_UNROLL
    for (unsigned i = 0; i < HALF; i++) {
        /* At the last level a thread's rows lie on one side. */
        bool behind = span == HALF ? x.first != 0 : (i & span) != 0;
        keys[(x.first + i) * CHANNELS] = x.k[i] * (behind ? x.from_cut[i] : x.to_cut[i]);
        unsigned u = span == HALF ? i : x.first / 2 + i / (2 * span) * span + i % span;
        if (behind) queries[u * CHANNELS] = x.q[i] * x.from_cut[i];
    }
}

/* The factors of blocks of 2 * span rows grow to those of the halves of larger blocks. */
static EB_DEVICE void join_sides(prep_rows &x, unsigned span) {
    EB_UNROLL
    for (unsigned b = 0; b < HALF; b += 2 * span) {
        float lower = x.from_cut[b + 2 * span - 1], upper = x.from_cut[b + span - 1];
        EB_UNROLL
        for (unsigned i = 0; i < span; i++) {
            x.to_cut[b + i] *= lower;
            x.from_cut[b + span + i] *= upper;
        }
    }
}

static EB_DEVICE void put_levels(prep_rows &x, prep_shared &sh) {
    put_sides(x, 0, sh);
    join_sides(x, 1);
    put_sides(x, 1, sh);
    join_sides(x, 2);
    put_sides(x, 2, sh);
    join_sides(x, 4);
    put_sides(x, 3, sh);
    sh.half_decay[thread_id()] = x.from_cut[HALF - 1];
}

/* ---- pairs ------------------------------------------------------------------------------ */

/* Two rows behind a cut by two before it, at their level. */
struct pair_tile {
    unsigned level, i[2], j[2];
    unsigned query[2]; /* where the queries of rows i lie */
};

/* Teams 0 .. 15: the cut of 16 rows; 16 .. 23: of 8; 24 .. 27: of 4; 28 .. 31: two cuts each of 2,
 * of which only the pairs (i[0], j[0]) and (i[1], j[1]) are pairs of one block. */
static EB_DEVICE pair_tile tile_of(unsigned team) {
    pair_tile p;
    p.level = team < 16 ? 3 : team < 24 ? 2 : team < 28 ? 1 : 0;
    unsigned span = 1u << p.level;
    unsigned x = team < 16 ? team : team < 24 ? team - 16 : team < 28 ? team - 24 : team - 28;
    unsigned across = span > 2 ? span / 2 : 1; /* tiles side by side */
    unsigned block = x / (across * across) * (span > 1 ? 2 * span : 4);
    unsigned a = x / across % across, b = x % across, apart = span > 1 ? 1 : 2;
    EB_UNROLL
    for (unsigned n = 0; n < 2; n++) {
        p.i[n] = block + span + 2 * a + n * apart;
        p.j[n] = block + 2 * b + n * apart;
        p.query[n] = p.i[n] / (2 * span) * span + p.i[n] % span;
    }
    return p;
}

/* Adds this thread's part of the channels: sums[4 * product + 2 * i + j], product 0: A, 1: M. */
static EB_DEVICE void add_pairs(const pair_tile &p, const prep_shared &sh, float sums[8]) {
    const float *keys = sh.keys + p.level * C * CHANNELS;
    const float *queries = sh.queries + p.level * HALF * CHANNELS;
    EB_UNROLL
    for (unsigned step = 0; step < CHANNELS; step += 4 * TEAM) {
        unsigned c = step + 4 * (thread_id() % TEAM);
        eb_vec4 before[2], behind[2], query[2];
        EB_UNROLL
        for (unsigned n = 0; n < 2; n++) {
            before[n] = *(const eb_vec4 *)&keys[p.j[n] * CHANNELS + c];
            behind[n] = *(const eb_vec4 *)&keys[p.i[n] * CHANNELS + c];
            query[n] = *(const eb_vec4 *)&queries[p.query[n] * CHANNELS + c];
        }
        EB_UNROLL
        for (unsigned n = 0; n < 16; n++) {
            unsigned x = n / 4, e = n % 4;
            sums[x] += behind[x / 2].v[e] * before[x % 2].v[e];
            sums[4 + x] += query[x / 2].v[e] * before[x % 2].v[e];
        }
    }
}

/* Sums up over the team, thread x of which gets sums[x]: each step halves what a thread holds. */
static EB_DEVICE float share_pairs(float sums[8]) {
    unsigned x = thread_id() % TEAM;
    EB_UNROLL
    for (unsigned m = TEAM / 2; m > 0; m /= 2) {
        bool high = (x & m) != 0;
        EB_UNROLL
        for (unsigned n = 0; n < m; n++) {
            float kept = high ? sums[m + n] : sums[n], given = high ? sums[n] : sums[m + n];
            sums[n] = kept + shuffle_xor(given, m);
        }
    }
    return sums[0];
}

static EB_DEVICE void put_pair(const pair_tile &p, float sum, prep_shared &sh) {
    unsigned x = thread_id() % TEAM;
    unsigned i = x / 2 % 2 == 0 ? p.i[0] : p.i[1], j = x % 2 == 0 ? p.j[0] : p.j[1];
    if (p.level == 0 && x / 2 % 2 != x % 2) return;
    const float *inverse = x < 4 ? sh.inverse_k : sh.inverse_q;
    sh.pairs[x / 4 * C * C + i * C + j] = sum * inverse[i] * sh.inverse_k[j];
}

/* ---- the triangle ----------------------------------------------------------------------- */

/* A column of T by substitution, by each of a wave's first C lanes; others do it again. */
static EB_DEVICE void invert(prep_shared &sh) {
    unsigned col = lane_id() % C;
    float t[C];
    EB_UNROLL
    for (unsigned i = 0; i < C; i++) t[i] = i == col ? 1.0f : 0.0f;
    EB_UNROLL
    for (unsigned i = 0; i < C; i++) {
        EB_UNROLL
        for (unsigned j = 0; j < i; j++) t[i] -= sh.pairs[i * C + j] * t[j];
        t[i] *= sh.beta[i];
    }
    if (lane_id() >= C) return;
    EB_UNROLL
    for (unsigned i = 0; i < C; i++) sh.t[i * C + col] = t[i];
}

/* T and M T go to the chunk, and to where A and M were. */
static EB_DEVICE void put_triangles(float *to, unsigned line, prep_shared &sh) {
    unsigned i = thread_id() / C, j = thread_id() % C;
    float t = sh.t[thread_id()], sum = 0.0f;
    EB_UNROLL
    for (unsigned l = 0; l < C; l++)
        if (l <= i) sum += sh.pairs[C * C + i * C + l] * sh.t[l * C + j];
    sync_block();
    sh.pairs[i * C + j] = t;
    sh.pairs[C * C + i * C + j] = sum;
    to[i * line + line - C + j] = t;
    to[(C + i) * line + line - C + j] = sum;
}

/* ---- channels --------------------------------------------------------------------------- */

/* Keys and queries become K+ and Q+; K* and the chunk's decay go to the chunk. The factors must be
 * those of the last level, with half_decay behind a barrier. */
static EB_DEVICE void decay_rows(const eb_kda_prep_args &a, prep_rows &x, unsigned c, float *star,
                                 const prep_shared &sh) {
    bool is_upper = x.first == 0, there = c < a.work.padded;
    float other = sh.half_decay[thread_id() ^ CHANNELS];
    float before = is_upper ? 1.0f : other, behind = is_upper ? other : 1.0f;
    if (is_upper && there) star[C * a.work.padded + c] = sh.half_decay[thread_id()] * other;
    EB_UNROLL
    for (unsigned i = 0; i < HALF; i++) {
        unsigned r = x.first + i;
        float k = x.k[i] * sh.inverse_k[r], from_start = x.from_cut[i] * before;
        if (there) star[r * a.work.padded + c] = k * (x.to_cut[i] * behind);
        x.k[i] = k * from_start;
        x.q[i] = x.q[i] * sh.inverse_q[r] * from_start;
    }
}

static EB_DEVICE void put_decayed(const prep_rows &x, prep_shared &sh) {
    EB_UNROLL
    for (unsigned i = 0; i < HALF; i++) {
        sh.keys[(x.first + i) * CHANNELS + x.own] = x.k[i];
        sh.keys[(C + x.first + i) * CHANNELS + x.own] = x.q[i];
    }
}

/* One channel of -W, or of Q+ - M T K+. */
static EB_DEVICE void put_products(unsigned own, bool is_query, float *to, unsigned line,
                                   const prep_shared &sh) {
    const float *triangle = sh.pairs + (is_query ? C * C : 0);
    float k[C];
    EB_UNROLL
    for (unsigned j = 0; j < C; j++) k[j] = sh.keys[j * CHANNELS + own];
    if (is_query) to += C * line;
    EB_UNROLL
    for (unsigned i = 0; i < C; i++) {
        float sum = is_query ? sh.keys[(C + i) * CHANNELS + own] : 0.0f;
        EB_UNROLL
        for (unsigned j4 = 0; j4 <= i / 4; j4++) {
            eb_vec4 t = *(const eb_vec4 *)&triangle[i * C + 4 * j4];
            EB_UNROLL
            for (unsigned e = 0; e < 4; e++)
                if (4 * j4 + e <= i) sum -= t.v[e] * k[4 * j4 + e];
        }
        to[i * line] = sum;
    }
}

/* ONE: the head has no more than CHANNELS channels, so that its rows stay in registers. */
template <bool ONE>
EB_DEVICE void prepare(const eb_kda_prep_args &a, prep_shared &sh) {
    unsigned group = a.first_group + block_id(), number = group / a.work.n_heads;
    prep_chunk chunk;
    chunk.head = group % a.work.n_heads;
    if (!find_chunk(a, number, &chunk)) return;
    const unsigned padded = a.work.padded, line = padded + C;
    const unsigned n_blocks = ONE ? 1 : (padded + CHANNELS - 1) / CHANNELS; /* of channels */
    float *to = at<float>(a.work.chunks) +
                (unsigned long long)(number * a.work.n_heads + chunk.head) * a.work.chunk_floats;
    float a_scale = gate_scale(a.gate, chunk.head);
    prep_rows x;
    x.own = thread_id() % CHANNELS;
    x.first = thread_id() / CHANNELS * HALF;
    float sums[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    for (unsigned b = 0; b < n_blocks; b++) {
        load_rows(a, chunk, b * CHANNELS + x.own, a_scale, x);
        if (b == 0) row_norms(a, chunk, sh);
        put_levels(x, sh);
        sync_block();
        if (n_blocks == 1) decay_rows(a, x, x.own, to + 2 * C * line, sh);
        add_pairs(tile_of(thread_id() / TEAM), sh, sums);
        if (b + 1 < n_blocks) sync_block();
    }
    put_pair(tile_of(thread_id() / TEAM), share_pairs(sums), sh);
    if (thread_id() < C) sh.pairs[C * C + thread_id() * (C + 1)] = sh.diagonal[thread_id()];
    sync_block();
    if (wave_id() == 0) invert(sh);
    sync_block();
    put_triangles(to, line, sh);
    for (unsigned b = 0; b < n_blocks; b++) {
        unsigned c = b * CHANNELS + x.own;
        if (n_blocks > 1) {
            load_rows(a, chunk, c, a_scale, x);
            join_sides(x, 1);
            join_sides(x, 2);
            join_sides(x, 4);
            sh.half_decay[thread_id()] = x.from_cut[HALF - 1];
            sync_block();
            decay_rows(a, x, c, to + 2 * C * line, sh);
        }
        put_decayed(x, sh);
        sync_block();
        if (c < padded) put_products(x.own, x.first != 0, to + c, line, sh);
        if (b + 1 < n_blocks) sync_block();
    }
}

EB_KERNEL(eb_kda_prep_plain, eb_kda_prep_args, EB_KDA_PREP_THREADS) {
    EB_DYNAMIC_SHARED(prep_shared, shared);
    prepare<false>(A, *shared);
}

EB_KERNEL_BLOCKS(eb_kda_prep_128_plain, eb_kda_prep_args, EB_KDA_PREP_THREADS, 3) {
    EB_DYNAMIC_SHARED(prep_shared, shared);
    prepare<true>(A, *shared);
}
