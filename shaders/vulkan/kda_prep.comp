#version 450
/* kda_prep: everything of a chunk of one head that does not need the state (args_kda.h).
 *
 * With k+ and q+ the keys and queries decayed from the chunk's start, A (below the diagonal) and M
 * (up to it) the products of keys with keys and queries with keys, each pair decayed over the rows
 * between, and B = diag(beta):
 *   W = (I + B A)^-1 B K+, T = (I + B A)^-1 B:  U = T V - W S
 *   O = Q+ S + M U = (Q+ - M W) S + (M T) V
 * so that one product gives U and O at once. T is W with the identity in place of K+.
 *
 * The decay of a pair (i, j) is exp(g_{j+1} + .. + g_i), and nothing bounds it from below: exp(G_i)
 * exp(-G_j) would overflow, and differences of running sums would cancel. The chunk is halved
 * instead, again and again: for a block cut in two, pairs across the cut are weighed by the product
 * of two factors, the decay P from the cut to i and the decay Q from j to the cut. Both are at most
 * 1 and grow from level to level by one multiplication, and the products are plain dot products.
 *
 * A thread owns one channel of eight rows: rows 0 .. 7 for the first half of the threads, rows 8 ..
 * 15 for the second. Channels come in blocks of THREADS / 2. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_kda_prep_args
#include "common/args_kda.h"
#include "common.glsl"
#include "math.glsl"
#include "kda.glsl"
#include "kda_gate.glsl"
#include "plant.glsl"

layout(constant_id = 2) const bool ALIGNED = false; /* q and k */
layout(constant_id = 3) const uint DIM = 8;
layout(constant_id = 4) const uint PADDED = 32;

#define BLOCK (THREADS / 2u) /* channels */
#define LINE (THREADS / 8u + 1u) /* of a row in `room`, padded against bank conflicts */
#define C EB_KDA_CHUNK

/* While A and M are formed: keys times their factor [16][LINE], queries of the upper halves
 * [8][LINE]. Then A and M [16][4] each, W of the first eight rows [8][BLOCK / 4], and the decays of
 * each half [2][BLOCK / 4]. */
shared vec4 room[24 * 33];
shared float parts[512];
shared float inverse_k[C], inverse_q[C], diagonal[C], beta[C];

#define ROOM_M 64u
#define ROOM_W 128u
#define ROOM_DECAYS (ROOM_W + 8u * (BLOCK / 4u))

/* The rows of this chunk. */
uint first, n_rows, head;
float a_scale;

/* This thread's rows of one channel: keys, queries, and P and Q of the level. */
float k[8], q[8], from_cut[8], to_cut[8];

/* False: there is no such chunk. */
bool find_chunk(uint chunk) {
    uint s, begin, at, mask = 0u, n_all = seq_begin(A.rows, A.rows.n_seqs);
    if (chunk < A.work.n_tiles) {
        if (chunk >= PU32(A.work.tiles).v[A.rows.n_seqs]) return false;
        uint low = 0u, high = A.rows.n_seqs;
        while (high - low > 1u) {
            uint middle = (low + high) / 2u;
            if (PU32(A.work.tiles).v[middle] <= chunk) {
                low = middle;
            } else {
                high = middle;
            }
        }
        begin = seq_begin(A.rows, low) + (chunk - PU32(A.work.tiles).v[low]) * C;
        if (A.n_emit > 0u) mask = PU32(A.work.masks).v[chunk];
        n_rows = min(begin + C, seq_begin(A.rows, low + 1u));
    } else {
        uint row = uint(PI32(A.emit_rows).v[chunk - A.work.n_tiles]);
        if (row >= n_all) return false;
        s = seq_of_row(A.rows, row);
        begin = seq_begin(A.rows, s);
        at = row - begin;
        mask = PU32(A.work.masks).v[PU32(A.work.tiles).v[s] + at / C] & ((1u << at % C) - 1u);
        begin += at / C * C;
        n_rows = row + 1u;
    }
    first = mask != 0u ? begin + uint(findMSB(mask)) + 1u : begin;
    n_rows -= first;
    return n_rows > 0u;
}

/* Inverse lengths of q and k, <q, k>, beta. Absent rows get zeros. */
void load_norms() {
    uint lanes = THREADS / C, r = THREAD / lanes, lane = THREAD % lanes;
    vec3 sum = vec3(0.0); /* qq, kk, qk */
    if (r < n_rows) {
        uvec2 q_row = plus(row_of(A.q, first + r), head * DIM * 4u);
        uvec2 k_row = plus(row_of(A.k, first + r), head * DIM * 4u);
        for (uint c = lane * 4u; c < DIM; c += lanes * 4u) {
            vec4 x = load4(q_row, c, DIM, ALIGNED), y = load4(k_row, c, DIM, ALIGNED);
            sum += vec3(dot(x, x), dot(y, y), dot(x, y));
        }
    }
    room[THREAD].xyz = sum;
    barrier();
    if (THREAD < C) {
        sum = vec3(0.0);
        for (uint i = 0u; i < lanes; i++) sum += room[THREAD * lanes + i].xyz;
        bool there = THREAD < n_rows;
        float inverse = 1.0 / sqrt(sum.y + A.gate.l2_eps);
        float scaled = A.gate.q_scale / sqrt(sum.x + A.gate.l2_eps);
        if (PLANTED(UNNORMALISED_Q)) scaled = A.gate.q_scale;
        inverse_k[THREAD] = there ? inverse : 0.0;
        inverse_q[THREAD] = there ? scaled : 0.0;
        diagonal[THREAD] = there ? sum.z * inverse * scaled : 0.0;
        beta[THREAD] = there ? gate_beta(A.gate, first + THREAD, head) : 0.0;
    }
    barrier();
}

/* Bytes between two rows. */
uvec2 row_step(eb_mat_arg m) {
    uint high, low;
    umulExtended(m.stride, 4u, high, low);
    return uvec2(low, high);
}

/* One channel: keys, queries, and for blocks of two rows P = decay and Q = 1. */
void load_rows(uint c) {
    uint half_row = THREAD / BLOCK * 8u, at = head * DIM + c;
    bool there = c < DIM;
    eb_kda_gate_arg gate = A.gate;
    float bias = there ? load(gate.dt_bias.at, at, gate.dt_bias.dtype) : 0.0;
    uvec2 k_row = row_of(A.k, first + half_row), k_step = row_step(A.k);
    uvec2 q_row = row_of(A.q, first + half_row), q_step = row_step(A.q);
    uvec2 g_row = row_of(gate.g_raw, first + half_row), g_step = row_step(gate.g_raw);
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        uint r = half_row + i;
        k[i] = q[i] = 0.0;
        from_cut[i] = to_cut[i] = 1.0;
        if (there && r < n_rows) {
            k[i] = PF32(k_row).v[at];
            q[i] = PF32(q_row).v[at];
            from_cut[i] = PF32(g_row).v[at];
        }
        k_row = plus(k_row, k_step);
        q_row = plus(q_row, q_step);
        g_row = plus(g_row, g_step);
    }
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        uint r = half_row + i;
        k[i] *= inverse_k[r];
        q[i] *= inverse_q[r];
        if (there && r < n_rows) from_cut[i] = gate_decay(gate, a_scale, bias, from_cut[i]);
    }
}

/* Row r of the keys, and row u of the queries, times the factor. */
void put_key(uint r, uint c, float x) {
    room[r * LINE + c / 4u][c % 4u] = x;
}

void put_query(uint u, uint c, float x) {
    room[(16u + u) * LINE + c / 4u][c % 4u] = x;
}

/* For blocks of 2 * span rows, span at most 4: what lies on both sides of the cuts, times its
 * factor. */
void put_sides(uint span, uint c) {
    uint half_row = THREAD / BLOCK * 8u;
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        if ((i & span) == 0u) {
            put_key(half_row + i, c, k[i] * to_cut[i]);
        } else {
            uint u = half_row / 2u + i / (2u * span) * span + i % span;
            put_key(half_row + i, c, k[i] * from_cut[i]);
            put_query(u, c, q[i] * from_cut[i]);
        }
    }
}

/* P and Q of blocks of 2 * span rows grow to those of the halves of larger blocks. */
void join_sides(uint span) {
    [[unroll]] for (uint b = 0u; b < 8u; b += 2u * span) {
        float upper = from_cut[b + 2u * span - 1u], lower = from_cut[b + span - 1u];
        [[unroll]] for (uint i = 0u; i < span; i++) {
            to_cut[b + i] *= upper;
            from_cut[b + span + i] *= lower;
        }
    }
}

/* Pairs across the cuts of blocks of 2 * span rows. Pair p lies in block p / span^2. */
uvec2 pair_rows(uint p, uint span) {
    uint block = p / (span * span) * 2u * span;
    return uvec2(block + span + p / span % span, block + p % span);
}

/* Adds what this block of channels gives: the first 8 * span threads get A of their pair, the next
 * 8 * span M. All threads call it. */
void add_pairs(uint span, inout float total) {
    uint n_pairs = 8u * span, n_parts = min(THREADS / n_pairs, 8u);
    uint pair = THREAD / n_parts, part = THREAD % n_parts;
    barrier();
    if (pair < n_pairs) {
        uvec2 ij = pair_rows(pair, span);
        uint u = ij.x / (2u * span) * span + ij.x % span;
        vec4 a = vec4(0.0), m = vec4(0.0);
        for (uint x = part; x < BLOCK / 4u; x += n_parts) {
            vec4 kj = room[ij.y * LINE + x];
            a += room[ij.x * LINE + x] * kj;
            m += room[(16u + u) * LINE + x] * kj;
        }
        parts[THREAD] = (a.x + a.y) + (a.z + a.w);
        parts[256u + THREAD] = (m.x + m.y) + (m.z + m.w);
    }
    barrier();
    if (THREAD < 2u * n_pairs) {
        uint from = THREAD < n_pairs ? THREAD * n_parts : 256u + (THREAD - n_pairs) * n_parts;
        for (uint i = 0u; i < n_parts; i++) total += parts[from + i];
    }
}

void put_pair(uint span, float total) {
    uint n_pairs = 8u * span;
    if (THREAD >= 2u * n_pairs) return;
    uvec2 ij = pair_rows(THREAD % n_pairs, span);
    uint at = ij.x * 4u + ij.y / 4u;
    room[THREAD < n_pairs ? at : ROOM_M + at][ij.y % 4u] = total;
}

/* Within eight rows, `own` the first one: from becomes (I + B A)^-1 B from. */
void substitute(inout float from[8], uint own) {
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        uint at = (own + i) * 4u + own / 4u;
        vec4 low = room[at], high = room[at + 1u];
        [[unroll]] for (uint j = 0u; j < i; j++)
            from[i] -= (j < 4u ? low[j % 4u] : high[j % 4u]) * from[j];
        from[i] *= beta[own + i];
    }
}

/* Within eight rows: query -= M w. */
void subtract_queries(inout float query[8], float w[8], uint own) {
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        uint at = ROOM_M + (own + i) * 4u + own / 4u;
        vec4 low = room[at], high = room[at + 1u];
        [[unroll]] for (uint j = 0u; j <= i; j++)
            query[i] -= (j < 4u ? low[j % 4u] : high[j % 4u]) * w[j];
    }
}

/* The upper eight rows' W in the lower eight: from -= A w, query -= M w. */
void subtract_upper(inout float from[8], inout float query[8], uint c) {
    float w[8];
    [[unroll]] for (uint j = 0u; j < 8u; j++)
        w[j] = room[ROOM_W + j * (BLOCK / 4u) + c / 4u][c % 4u];
    vec4 w_low = vec4(w[0], w[1], w[2], w[3]), w_high = vec4(w[4], w[5], w[6], w[7]);
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        uint at = (8u + i) * 4u;
        from[i] -= dot(room[at], w_low) + dot(room[at + 1u], w_high);
        query[i] -= dot(room[ROOM_M + at], w_low) + dot(room[ROOM_M + at + 1u], w_high);
    }
}

/* Solves for one column: from[8] are this thread's rows of K+ (or of the identity), and becomes W;
 * query[8] are those of Q+, and becomes Q+ - M W. The lower rows wait for the upper ones. */
void solve(inout float from[8], inout float query[8], uint c) {
    bool lower = THREAD >= BLOCK;
    if (!lower) {
        substitute(from, 0u);
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            room[ROOM_W + i * (BLOCK / 4u) + c / 4u][c % 4u] = from[i];
        subtract_queries(query, from, 0u);
    }
    barrier();
    if (lower) {
        subtract_upper(from, query, c);
        substitute(from, 8u);
        subtract_queries(query, from, 8u);
    }
    barrier();
}

/* The channels of a block: W and the rest go to the chunk at `to`. */
void finish_block(uvec2 to, uint block, uint own) {
    const uint line = PADDED + C;
    uint c = block * BLOCK + own, half_row = THREAD / BLOCK * 8u;
    float from[8], query[8], mine = from_cut[7];
    room[ROOM_DECAYS + THREAD / 4u][THREAD % 4u] = mine;
    barrier();
    uint other = THREAD ^ BLOCK;
    float others = room[ROOM_DECAYS + other / 4u][other % 4u];
    float before = half_row == 0u ? 1.0 : others, behind = half_row == 0u ? others : 1.0;
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        from[i] = k[i] * (from_cut[i] * before);
        query[i] = q[i] * (from_cut[i] * before);
    }
    solve(from, query, own);
    if (c >= PADDED) return;
    uvec2 star = plus(to, 2u * C * line * 4u);
    if (half_row == 0u) PF32(plus(star, C * PADDED * 4u)).v[c] = mine * others;
    uvec2 w_at = plus(to, (half_row * line + c) * 4u), q_at = plus(w_at, C * line * 4u);
    star = plus(star, (half_row * PADDED + c) * 4u);
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        PF32(w_at).v[i * line] = -from[i];
        PF32(q_at).v[i * line] = query[i];
        PF32(star).v[i * PADDED] = k[i] * (to_cut[i] * behind);
    }
}

/* T and M T, as if the identity were another 16 channels. */
void finish_identity(uvec2 to, uint own) {
    const uint line = PADDED + C;
    uint half_row = THREAD / BLOCK * 8u;
    float from[8], query[8];
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        from[i] = half_row + i == own ? 1.0 : 0.0;
        query[i] = 0.0;
    }
    solve(from, query, own);
    if (own >= C) return;
    uvec2 t_at = plus(to, (half_row * line + PADDED + own) * 4u);
    uvec2 mt_at = plus(t_at, C * line * 4u);
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        PF32(t_at).v[i * line] = from[i];
        PF32(mt_at).v[i * line] = -query[i];
    }
}

/* The pairs that this thread sums up for A or M, by the distance of the cut's sides. */
struct Pairs {
    float of8, of4, of2, of1;
};

/* Adds what the block of channels in k, q, from_cut and to_cut gives. */
void add_block(inout Pairs pairs, uint own) {
    uint half_row = THREAD / BLOCK * 8u;
    put_sides(1u, own);
    add_pairs(1u, pairs.of1);
    join_sides(1u);
    put_sides(2u, own);
    add_pairs(2u, pairs.of2);
    join_sides(2u);
    put_sides(4u, own);
    add_pairs(4u, pairs.of4);
    join_sides(4u);
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        put_key(half_row + i, own, k[i] * (half_row == 0u ? to_cut[i] : from_cut[i]));
        if (half_row > 0u) put_query(i, own, q[i] * from_cut[i]);
    }
    add_pairs(8u, pairs.of8);
}

void main() {
    if (GROUP >= push.n_groups) return;
    uint group = A.first_group + GROUP, chunk = group / A.work.n_heads;
    head = group % A.work.n_heads;
    if (!find_chunk(chunk)) return;
    a_scale = gate_scale(A.gate, head);
    load_norms();
    const uint n_blocks = (PADDED + BLOCK - 1u) / BLOCK;
    uint own = THREAD % BLOCK;
    Pairs pairs = Pairs(0.0, 0.0, 0.0, 0.0);
    for (uint b = 0u; b < n_blocks; b++) {
        load_rows(b * BLOCK + own);
        add_block(pairs, own);
    }
    barrier();
    put_pair(8u, pairs.of8);
    put_pair(4u, pairs.of4);
    put_pair(2u, pairs.of2);
    put_pair(1u, pairs.of1);
    if (THREAD < C) room[ROOM_M + THREAD * 4u + THREAD / 4u][THREAD % 4u] = diagonal[THREAD];
    barrier();
    uvec2 to =
        plus_mul(A.work.chunks, chunk * A.work.n_heads + head, A.work.chunk_floats * 4u);
    for (uint b = 0u; b < n_blocks; b++) {
        if (n_blocks > 1u) {
            load_rows(b * BLOCK + own);
            join_sides(1u);
            join_sides(2u);
            join_sides(4u);
        }
        finish_block(to, b, own);
    }
    finish_identity(to, own);
}
