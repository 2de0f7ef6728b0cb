/* kda_recur.cu: the recurrence over prepared chunks (args_kda.h). A block carries COLS value
 * columns of one head of one sequence through all of its chunks.
 *
 * A chunk is two products, (U; O) = X (S; V) and S <- diag(decay) S + K*^T U, both cut into tiles
 * of 4 x 4 results in a thread's registers:
 *
 *   - multiply: 32 x COLS results are 64 tiles, so the inner dimension is split among PARTS groups
 *     of 64 threads, which leave their parts in shared memory
 *   - sum: a thread adds up four neighbouring results; U stays in shared memory, O is written
 *   - update: a thread keeps its tiles of S in registers and shows them to the next multiply
 *
 * with a barrier behind each. S and V are rows of one matrix in shared memory. Where the head is
 * 128 wide, the chunk is staged there too: it is read into registers while the one before it is
 * worked on, the first product's factor put down behind multiply, the second's at the chunk's
 * start. */
#include "kda.cuh"

enum {
    C = EB_KDA_CHUNK,
    THREADS = EB_KDA_RECUR_THREADS,
    COLS = EB_KDA_RECUR_COLS,
    COLS4 = COLS / 4,
    PARTS = EB_KDA_RECUR_PARTS,
    PART_THREADS = THREADS / PARTS,
    KEYS4 = THREADS / COLS4 /* tiles of S below each other */
};

static_assert(PART_THREADS == 2 * C / 4 * COLS4, "a part's threads cover U and O");
static_assert(THREADS == 2 * C * COLS4, "all threads cover U and O by four columns");

/* PADDED: the padded width of the head, 0: any, which is not staged. */
template <unsigned PADDED>
struct recur_shape {
    static const bool STAGED = PADDED > 0;
    static const unsigned TILES = PADDED > 0 ? PADDED / (4 * KEYS4) : EB_KDA_MAX_DIM / (4 * KEYS4);
    static const unsigned LINE4 = (PADDED + C) / 4; /* of the first factor, in memory */
    static const unsigned N_FIRST = 2 * C * LINE4, N_SECOND = (C + 1) * PADDED / 4;
    static const unsigned PER_FIRST = (N_FIRST + THREADS - 1) / THREADS; /* of a thread */
    static const unsigned PER_SECOND = STAGED ? (N_SECOND + THREADS - 1) / THREADS : 1;
};

/* ---- the walk --------------------------------------------------------------------------- */

/* The chunks of a sequence in their order. */
struct chunk_walk {
    unsigned seq, head, begin, stop; /* the sequence's rows */
    unsigned tile, first_tile;       /* the next one of the sequence; the sequence's first of all */
    unsigned row, end, tile_end;     /* of the chunk, of its tile */
    unsigned mask;                   /* what is emitted in the rest of the tile */
    unsigned chunk;
    int emitted; /* the chunk ends with this emitted row; -1 */
};

static EB_DEVICE chunk_walk walk_start(const eb_kda_recur_all_args &a) {
    chunk_walk w;
    unsigned seq_head = block_id() / a.n_blocks;
    w.seq = seq_head / a.work.n_heads;
    w.head = seq_head % a.work.n_heads;
    w.begin = seq_begin(a.rows, w.seq);
    w.stop = seq_begin(a.rows, w.seq + 1);
    w.first_tile = uint_at(a.work.tiles, w.seq);
    w.row = w.end = w.tile_end = w.begin;
    w.tile = w.mask = w.chunk = 0;
    w.emitted = -1;
    return w;
}

/* To the next chunk; false: there is none. */
static EB_DEVICE bool walk_next(const eb_kda_recur_all_args &a, chunk_walk &w) {
    if (w.end == w.stop) return false;
    w.row = w.end;
    if (w.row == w.tile_end) {
        w.tile_end = w.stop - w.row < C ? w.stop : w.row + C;
        if (a.state.n_emit > 0) w.mask = uint_at(a.work.masks, w.first_tile + w.tile);
        w.tile++;
    }
    w.end = w.tile_end;
    w.chunk = w.first_tile + w.tile - 1;
    w.emitted = -1;
    if (w.mask != 0) {
        unsigned i = 0;
        while ((w.mask >> i & 1) == 0) i++;
        w.mask &= w.mask - 1;
        w.end = w.begin + (w.tile - 1) * C + i + 1;
        w.emitted = int_at(a.work.marks, w.end - 1);
        w.chunk = a.work.n_tiles + (unsigned)w.emitted;
    }
    return true;
}

static EB_DEVICE const float *walk_chunk(const eb_kda_recur_all_args &a, const chunk_walk &w) {
    unsigned long long number = (unsigned long long)w.chunk * a.work.n_heads + w.head;
    return at<const float>(a.work.chunks) + number * a.work.chunk_floats;
}

/* ---- a block ---------------------------------------------------------------------------- */

/* Dynamic shared memory, floats. */
struct recur_shared {
    float *sv;     /* [padded + C][COLS]: S, then V */
    float *u;      /* [C][COLS] */
    float *parts;  /* [PARTS][2 * C][COLS], see part_at */
    float *first;  /* [2 * C][padded + C + EB_KDA_RECUR_PAD] */
    float *second; /* K* [C][padded], decay [padded] */
};

template <unsigned PADDED>
struct recur_thread {
    unsigned padded, dim, first_col;
    unsigned col, key; /* this thread's tiles of S: columns, first row of the first tile */
    eb_vec4 s[4 * recur_shape<PADDED>::TILES]; /* row key + i / 4 * 4 * KEYS4 + i % 4 */
    /* The chunk that comes. */
    eb_vec4 first[recur_shape<PADDED>::PER_FIRST], second[recur_shape<PADDED>::PER_SECOND];
    eb_vec4 v;
};

template <unsigned PADDED>
EB_DEVICE unsigned key_of(const recur_thread<PADDED> &t, unsigned i) {
    return t.key + i / 4 * (4 * KEYS4) + i % 4;
}

template <unsigned PADDED>
EB_DEVICE void load_state(const eb_kda_recur_all_args &a, recur_thread<PADDED> &t, eb_addr from) {
    unsigned dtype = a.state.region.dtype;
    bool wide = state_is_wide(from, dtype);
    EB_UNROLL
    for (unsigned i = 0; i < 4 * recur_shape<PADDED>::TILES; i++) {
        unsigned k = key_of(t, i);
        t.s[i] = zeros4();
        if (from != 0 && k < t.dim && t.col < t.dim)
            t.s[i] = state_load(from, k * t.dim + t.col, dtype, wide);
    }
}

template <unsigned PADDED>
EB_DEVICE void store_state(const eb_kda_recur_all_args &a, const recur_thread<PADDED> &t,
                           eb_addr to) {
    unsigned dtype = a.state.region.dtype;
    bool wide = state_is_wide(to, dtype);
    EB_UNROLL
    for (unsigned i = 0; i < 4 * recur_shape<PADDED>::TILES; i++) {
        unsigned k = key_of(t, i);
        if (to != 0 && k < t.dim && t.col < t.dim)
            state_store(to, k * t.dim + t.col, dtype, wide, t.s[i]);
    }
}

template <unsigned PADDED>
EB_DEVICE void show_state(const recur_thread<PADDED> &t, const recur_shared &sh) {
    EB_UNROLL
    for (unsigned i = 0; i < 4 * recur_shape<PADDED>::TILES; i++) {
        unsigned k = key_of(t, i);
        if (k < t.padded) *(eb_vec4 *)&sh.sv[k * COLS + t.col - t.first_col] = t.s[i];
    }
}

/* ---- what a chunk needs ----------------------------------------------------------------- */

/* Reads the chunk that the walk is at; V is a thread's four columns of one row. */
template <unsigned PADDED>
EB_DEVICE void fetch(const eb_kda_recur_all_args &a, const chunk_walk &w, recur_thread<PADDED> &t) {
    typedef recur_shape<PADDED> shape;
    unsigned row = w.row + thread_id() / COLS4, col = t.first_col + thread_id() % COLS4 * 4;
    t.v = zeros4();
    if (row < w.end && col < t.dim)
        t.v = load_four<eb_vec4>(row_of(a.v, row) + w.head * t.dim + col, is_wide(a.v));
    if constexpr (shape::STAGED) {
        const eb_vec4 *from = (const eb_vec4 *)walk_chunk(a, w);
        EB_UNROLL
        for (unsigned i = 0; i < shape::PER_FIRST; i++) {
            unsigned x = thread_id() + i * THREADS;
            if (x < shape::N_FIRST) t.first[i] = from[x];
        }
        EB_UNROLL
        for (unsigned i = 0; i < shape::PER_SECOND; i++) {
            unsigned x = thread_id() + i * THREADS;
            if (x < shape::N_SECOND) t.second[i] = from[shape::N_FIRST + x];
        }
    }
}

template <unsigned PADDED>
EB_DEVICE void put_first(const recur_thread<PADDED> &t, const recur_shared &sh) {
    typedef recur_shape<PADDED> shape;
    unsigned r = thread_id() / COLS4, c = thread_id() % COLS4 * 4;
    if (r < C) *(eb_vec4 *)&sh.sv[(t.padded + r) * COLS + c] = t.v;
    if constexpr (shape::STAGED) {
        EB_UNROLL
        for (unsigned i = 0; i < shape::PER_FIRST; i++) {
            unsigned x = thread_id() + i * THREADS, row = x / shape::LINE4, at = x % shape::LINE4;
            unsigned line = 4 * shape::LINE4 + EB_KDA_RECUR_PAD;
            if (x < shape::N_FIRST) *(eb_vec4 *)&sh.first[row * line + 4 * at] = t.first[i];
        }
    }
}

template <unsigned PADDED>
EB_DEVICE void put_second(const recur_thread<PADDED> &t, const recur_shared &sh) {
    typedef recur_shape<PADDED> shape;
    if constexpr (shape::STAGED) {
        EB_UNROLL
        for (unsigned i = 0; i < shape::PER_SECOND; i++) {
            unsigned x = thread_id() + i * THREADS;
            if (x < shape::N_SECOND) *(eb_vec4 *)&sh.second[4 * x] = t.second[i];
        }
    }
}

/* ---- a chunk ---------------------------------------------------------------------------- */

static EB_DEVICE void add_scaled(eb_vec4 &sum, float a, const eb_vec4 &x) {
    EB_UNROLL
    for (unsigned j = 0; j < 4; j++) sum.v[j] += a * x.v[j];
}

/* Where a part keeps four columns of a row: turned by the row, so that those of eight rows lie in
 * different banks. */
static EB_DEVICE eb_vec4 &part_at(const recur_shared &sh, unsigned part, unsigned row, unsigned c) {
    return *(eb_vec4 *)&sh.parts[(part * 2 * C + row) * COLS + (c ^ row % COLS4 * 4)];
}

/* A part of rows r, r + 8, r + 16, r + 24 of X (S; V): so the threads of a wave read different
 * banks. */
static EB_DEVICE void multiply(const float *first, unsigned line, unsigned inner,
                               const recur_shared &sh) {
    unsigned part = thread_id() / PART_THREADS, r = thread_id() % (2 * C / 4);
    unsigned c = thread_id() % PART_THREADS / (2 * C / 4) * 4;
    eb_vec4 sums[4] = {zeros4(), zeros4(), zeros4(), zeros4()};
    unsigned first_k = part * (inner / PARTS);
    EB_UNROLL
    for (unsigned step = 0; step < inner / PARTS; step += 4) {
        unsigned k = first_k + step;
        eb_vec4 x[4];
        EB_UNROLL
        for (unsigned i = 0; i < 4; i++)
            x[i] = *(const eb_vec4 *)&first[(r + 2 * C / 4 * i) * line + k];
        EB_UNROLL
        for (unsigned j = 0; j < 4; j++) {
            eb_vec4 sv = *(const eb_vec4 *)&sh.sv[(k + j) * COLS + c];
            EB_UNROLL
            for (unsigned i = 0; i < 4; i++) add_scaled(sums[i], x[i].v[j], sv);
        }
    }
    EB_UNROLL
    for (unsigned i = 0; i < 4; i++) part_at(sh, part, r + 2 * C / 4 * i, c) = sums[i];
}

/* U to shared memory, the rows of O to the output. */
template <unsigned PADDED>
EB_DEVICE void sum_parts(const eb_kda_recur_all_args &a, const recur_thread<PADDED> &t,
                         const recur_shared &sh, unsigned head, unsigned row, unsigned end) {
    unsigned r = thread_id() / COLS4, c = thread_id() % COLS4 * 4, col = t.first_col + c;
    eb_vec4 sum = zeros4();
    EB_UNROLL
    for (unsigned p = 0; p < PARTS; p++) add_scaled(sum, 1.0f, part_at(sh, p, r, c));
    if (r < C)
        *(eb_vec4 *)&sh.u[r * COLS + c] = sum;
    else if (row + r - C < end && col < t.dim)
        store_four(row_of(a.dst, row + r - C) + head * t.dim + col, is_wide(a.dst), sum);
}

template <unsigned PADDED>
EB_DEVICE void update(recur_thread<PADDED> &t, const float *second, const recur_shared &sh) {
    EB_UNROLL
    for (unsigned n = 0; n < recur_shape<PADDED>::TILES; n++) {
        unsigned k = key_of(t, 4 * n);
        if (k >= t.padded) continue;
        eb_vec4 decay = *(const eb_vec4 *)&second[C * t.padded + k];
        EB_UNROLL
        for (unsigned i = 0; i < 16; i++) t.s[4 * n + i / 4].v[i % 4] *= decay.v[i / 4];
        EB_UNROLL
        for (unsigned r = 0; r < C; r++) {
            eb_vec4 key = *(const eb_vec4 *)&second[r * t.padded + k];
            eb_vec4 u = *(const eb_vec4 *)&sh.u[r * COLS + t.col - t.first_col];
            EB_UNROLL
            for (unsigned i = 0; i < 4; i++) add_scaled(t.s[4 * n + i], key.v[i], u);
        }
    }
}

template <unsigned PADDED>
EB_DEVICE void recur(const eb_kda_recur_all_args &a, const recur_shared &sh) {
    typedef recur_shape<PADDED> shape;
    recur_thread<PADDED> t;
    t.padded = PADDED > 0 ? PADDED : a.work.padded;
    t.dim = PADDED > 0 ? PADDED : a.work.dim;
    t.first_col = block_id() % a.n_blocks * COLS;
    t.col = t.first_col + thread_id() % COLS4 * 4;
    t.key = thread_id() / COLS4 * 4;
    unsigned line = t.padded + C + (shape::STAGED ? EB_KDA_RECUR_PAD : 0);
    chunk_walk w = walk_start(a);
    load_state(a, t, unit_in(a.state, w.seq, w.head));
    show_state(t, sh);
    bool more = walk_next(a, w);
    if (more) {
        fetch(a, w, t);
        put_first(t, sh);
    }
    sync_block();
    while (more) {
        unsigned row = w.row, end = w.end;
        int emitted = w.emitted;
        const float *first = sh.first, *second = sh.second;
        if (!shape::STAGED) {
            first = walk_chunk(a, w);
            second = first + 2 * C * line;
        }
        put_second(t, sh);
        more = walk_next(a, w);
        if (more) fetch(a, w, t);
        multiply(first, line, t.padded + C, sh);
        sync_block();
        if (more) put_first(t, sh);
        sum_parts(a, t, sh, w.head, row, end);
        sync_block();
        update(t, second, sh);
        show_state(t, sh);
        if (emitted >= 0)
            store_state(
                a, t,
                slot_unit(a.state.region, int_at(a.state.emit_slots, (unsigned)emitted), w.head));
        sync_block();
    }
    store_state(a, t, unit_out(a.state, w.seq, w.head));
}

static EB_DEVICE recur_shared lay_out(float *memory, unsigned padded) {
    recur_shared sh;
    sh.sv = memory;
    sh.u = sh.sv + (padded + C) * COLS;
    sh.parts = sh.u + C * COLS;
    sh.first = sh.parts + PARTS * 2 * C * COLS;
    sh.second = sh.first + 2 * C * (padded + C + EB_KDA_RECUR_PAD);
    return sh;
}

EB_KERNEL(eb_kda_recur_plain, eb_kda_recur_all_args, EB_KDA_RECUR_THREADS) {
    EB_DYNAMIC_SHARED(float, memory);
    recur<0>(A, lay_out(memory, A.work.padded));
}

EB_KERNEL(eb_kda_recur_128_plain, eb_kda_recur_all_args, EB_KDA_RECUR_THREADS) {
    EB_DYNAMIC_SHARED(float, memory);
    recur<128>(A, lay_out(memory, 128));
}
