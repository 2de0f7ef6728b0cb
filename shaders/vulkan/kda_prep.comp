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
 * of two factors, the decay from the cut to i and that from j to the cut. Both are at most 1, and
 * the products are plain dot products.
 *
 * A thread owns one channel of eight rows: rows 0 .. 7 for the first half of the threads, rows 8 ..
 * 15 for the second. Channels come in blocks of THREADS / 2. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_kda_prep_args
#include "common/args_kda.h"
#include "common.glsl"
#include "kda.glsl"
#include "kda_gate.glsl"

layout(constant_id = 2) const bool ALIGNED = false; /* q and k */

#define BLOCK (THREADS / 2u) /* channels */
#define LINE (THREADS / 8u + 1u) /* of a row in `room`, padded against bank conflicts */
#define C EB_KDA_CHUNK

/* While A and M are formed: keys times their factor [16][LINE], queries of the upper halves
 * [8][LINE]. Then A and M [16][4] each, W of the first eight rows [8][BLOCK / 4], and the sums of g
 * over each half [2][BLOCK / 4]. */
shared vec4 room[24 * 33];
shared float parts[512];
shared float inverse_k[C], inverse_q[C], diagonal[C], beta[C];

#define ROOM_M 64u
#define ROOM_W 128u
#define ROOM_SUMS (ROOM_W + 8u * (BLOCK / 4u))

/* The rows of this chunk. */
uint first, n_rows, head;
float a_scale;

/* This thread's. */
float g[8], k[8], q[8];

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
    uint lanes = THREADS / C, r = THREAD / lanes, lane = THREAD % lanes, dim = A.work.dim;
    vec3 sum = vec3(0.0); /* qq, kk, qk */
    if (r < n_rows) {
        uvec2 q_row = plus(row_of(A.q, first + r), head * dim * 4u);
        uvec2 k_row = plus(row_of(A.k, first + r), head * dim * 4u);
        for (uint c = lane * 4u; c < dim; c += lanes * 4u) {
            vec4 x = load4(q_row, c, dim, ALIGNED), y = load4(k_row, c, dim, ALIGNED);
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
        inverse_k[THREAD] = there ? inverse : 0.0;
        inverse_q[THREAD] = there ? scaled : 0.0;
        diagonal[THREAD] = there ? sum.z * inverse * scaled : 0.0;
        beta[THREAD] = there ? gate_beta(A.gate, first + THREAD, head) : 0.0;
    }
    barrier();
}

/* g, k and q of one channel. */
void load_rows(uint c) {
    uint half_row = THREAD / BLOCK * 8u, at = head * A.work.dim + c;
    bool there = c < A.work.dim;
    float bias = there ? load(A.gate.dt_bias.at, at, A.gate.dt_bias.dtype) : 0.0;
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        uint r = half_row + i, row = first + r;
        g[i] = k[i] = q[i] = 0.0;
        if (!there || r >= n_rows) continue;
        k[i] = PF32(row_of(A.k, row)).v[at] * inverse_k[r];
        q[i] = PF32(row_of(A.q, row)).v[at] * inverse_q[r];
        g[i] = gate_log(A.gate, a_scale, bias, PF32(row_of(A.gate.g_raw, row)).v[at]);
    }
}

/* Row r of the keys, and row u of the queries, times the factor. */
void put_key(uint r, uint c, float x) {
    room[r * LINE + c / 4u][c % 4u] = x;
}

void put_query(uint u, uint c, float x) {
    room[(16u + u) * LINE + c / 4u][c % 4u] = x;
}

/* Rows of one side of a cut, from i0 on in this thread's eight: the upper side is weighed from the
 * cut on, the lower one up to the cut. */
#define LOWER_SIDE(i0, SPAN, c)                                          \
    {                                                                    \
        float sum = 0.0;                                                 \
        [[unroll]] for (uint m = SPAN; m-- > 0u;) {                      \
            put_key(half_row + (i0) + m, c, k[(i0) + m] * exp(sum));     \
            sum += g[(i0) + m];                                          \
        }                                                                \
    }
#define UPPER_SIDE(i0, SPAN, u0, c)                                      \
    {                                                                    \
        float sum = 0.0;                                                 \
        [[unroll]] for (uint m = 0u; m < SPAN; m++) {                    \
            sum += g[(i0) + m];                                          \
            float f = exp(sum);                                          \
            put_key(half_row + (i0) + m, c, k[(i0) + m] * f);            \
            put_query((u0) + m, c, q[(i0) + m] * f);                     \
        }                                                                \
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

/* Row i of A, of M: element j. */
#define A_OF(i, j) room[(i) * 4u + (j) / 4u][(j) % 4u]
#define M_OF(i, j) room[ROOM_M + (i) * 4u + (j) / 4u][(j) % 4u]

/* Solves for one column: from[8] are this thread's rows of K+ (or of the identity), and becomes W;
 * query[8] are those of Q+, and becomes Q+ - M W. The lower rows wait for the upper ones. */
void solve(inout float from[8], inout float query[8], uint c) {
    bool second = THREAD >= BLOCK;
    if (!second) {
        [[unroll]] for (uint i = 0u; i < 8u; i++) {
            [[unroll]] for (uint j = 0u; j < i; j++) from[i] -= A_OF(i, j) * from[j];
            from[i] *= beta[i];
            room[ROOM_W + i * (BLOCK / 4u) + c / 4u][c % 4u] = from[i];
        }
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            [[unroll]] for (uint j = 0u; j <= i; j++) query[i] -= M_OF(i, j) * from[j];
    }
    barrier();
    if (second) {
        [[unroll]] for (uint j = 0u; j < 8u; j++) {
            float w = room[ROOM_W + j * (BLOCK / 4u) + c / 4u][c % 4u];
            [[unroll]] for (uint i = 0u; i < 8u; i++) {
                from[i] -= A_OF(8u + i, j) * w;
                query[i] -= M_OF(8u + i, j) * w;
            }
        }
        [[unroll]] for (uint i = 0u; i < 8u; i++) {
            [[unroll]] for (uint j = 0u; j < i; j++) from[i] -= A_OF(8u + i, 8u + j) * from[j];
            from[i] *= beta[8u + i];
        }
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            [[unroll]] for (uint j = 0u; j <= i; j++) query[i] -= M_OF(8u + i, 8u + j) * from[j];
    }
    barrier();
}

void main() {
    if (GROUP >= push.n_groups) return;
    uint group = A.first_group + GROUP, chunk = group / A.work.n_heads;
    head = group % A.work.n_heads;
    if (!find_chunk(chunk)) return;
    a_scale = gate_scale(A.gate, head);
    uint own = THREAD % BLOCK, half_row = THREAD / BLOCK * 8u;
    uint padded = A.work.padded, n_blocks = (padded + BLOCK - 1u) / BLOCK;
    load_norms();

    float pairs8 = 0.0, pairs4 = 0.0, pairs2 = 0.0, pairs1 = 0.0;
    for (uint b = 0u; b < n_blocks; b++) {
        load_rows(b * BLOCK + own);
        if (half_row == 0u) {
            LOWER_SIDE(0u, 8u, own)
        } else {
            UPPER_SIDE(0u, 8u, 0u, own)
        }
        add_pairs(8u, pairs8);
        LOWER_SIDE(0u, 4u, own)
        UPPER_SIDE(4u, 4u, half_row / 2u, own)
        add_pairs(4u, pairs4);
        [[unroll]] for (uint i = 0u; i < 8u; i += 4u) {
            LOWER_SIDE(i, 2u, own)
            UPPER_SIDE(i + 2u, 2u, (half_row + i) / 2u, own)
        }
        add_pairs(2u, pairs2);
        [[unroll]] for (uint i = 0u; i < 8u; i += 2u) {
            LOWER_SIDE(i, 1u, own)
            UPPER_SIDE(i + 1u, 1u, (half_row + i) / 2u, own)
        }
        add_pairs(1u, pairs1);
    }
    barrier();
    put_pair(8u, pairs8);
    put_pair(4u, pairs4);
    put_pair(2u, pairs2);
    put_pair(1u, pairs1);
    if (THREAD < C) room[ROOM_M + THREAD * 4u + THREAD / 4u][THREAD % 4u] = diagonal[THREAD];
    barrier();

    uint index = chunk * A.work.n_heads + head, line = padded + C;
    uvec2 to = plus_mul(A.work.chunks, index, A.work.chunk_floats * 4u);
    uvec2 star = plus(to, 2u * C * line * 4u), decay = plus(star, C * padded * 4u);
    float from[8], query[8];
    for (uint b = 0u; b < n_blocks; b++) {
        uint c = b * BLOCK + own;
        if (n_blocks > 1u) load_rows(c);
        float sum = 0.0;
        [[unroll]] for (uint i = 0u; i < 8u; i++) sum += g[i];
        room[ROOM_SUMS + THREAD / 4u][THREAD % 4u] = sum;
        barrier();
        uint other = THREAD ^ BLOCK;
        float others = room[ROOM_SUMS + other / 4u][other % 4u];
        float down = half_row == 0u ? 0.0 : others, up = half_row == 0u ? others : 0.0;
        [[unroll]] for (uint i = 0u; i < 8u; i++) {
            down += g[i];
            from[i] = k[i] * exp(down);
            query[i] = q[i] * exp(down);
        }
        solve(from, query, own);
        if (c >= padded) continue;
        if (half_row == 0u) PF32(decay).v[c] = exp(sum + others);
        [[unroll]] for (uint i = 8u; i-- > 0u;) {
            uint r = half_row + i;
            PF32(star).v[r * padded + c] = k[i] * exp(up);
            up += g[i];
            PF32(to).v[r * line + c] = -from[i];
            PF32(to).v[(C + r) * line + c] = query[i];
        }
    }
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        from[i] = half_row + i == own ? 1.0 : 0.0;
        query[i] = 0.0;
    }
    solve(from, query, own);
    if (own >= C) return;
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        PF32(to).v[(half_row + i) * line + padded + own] = from[i];
        PF32(to).v[(C + half_row + i) * line + padded + own] = -query[i];
    }
}
