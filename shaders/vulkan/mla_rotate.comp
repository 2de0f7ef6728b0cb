#version 450
/* mla_rotate: turns pairs of channels by their row's position: of the new keys, on their way into
 * the cache, and of every head's query, in place. One workgroup per row.
 *
 * An angle grows with the position, far beyond what f32 holds: it is made in 64-bit fixed point, as
 * a fraction of a turn, where whole turns fall away. Sine and cosine are series over an eighth of a
 * turn, good to f32: the built-in ones may be off by 2^-11. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_mla_rotate_args
#include "common/args_mla.h"
#include "common.glsl"
#include "mla.glsl"

shared vec2 turns[EB_MLA_TURNS]; /* cosine, sine */

/* Of a fraction of a turn in units of 2^-32. */
vec2 cos_sin(uint turn) {
    uint quarter = (turn + 0x20000000u) >> 30u;
    /* From -1/8 to 1/8 of a turn. */
    float x = float(int(turn - (quarter << 30u))) * 1.4629180792671596e-9;
    float y = x * x;
    float s = x + x * y * (-1.0 / 6.0 + y * (1.0 / 120.0 + y * (-1.0 / 5040.0 + y / 362880.0)));
    float c = 1.0 - y * (0.5 - y * (1.0 / 24.0 - y * (1.0 / 720.0 - y / 40320.0)));
    vec2 r = (quarter & 1u) == 0u ? vec2(c, s) : vec2(-s, c);
    return (quarter & 2u) == 0u ? r : -r;
}

void main() {
    if (GROUP >= push.n_groups) return;
    uint row = GROUP;
    if (row >= uint(PI32(A.row_offsets).v[A.n_seqs])) return;
    uint seq = mla_seq_of(A.row_offsets, A.n_seqs, row);
    uint position = mla_position(A.row_offsets, A.pages.context, seq, row);
    for (uint p = THREAD; p < A.n_pairs; p += THREADS) {
        uint high, low;
        umulExtended(A.turns[p].low, position, high, low);
        turns[p] = cos_sin(A.turns[p].high * position + high);
    }
    barrier();
    uvec2 kv = row_of(A.kv, row), q = row_of(A.q, row);
    uvec2 to = token_of(A.pages, seq, position);
    uint n_heads = absent(A.q.at) ? 0u : A.n_heads;
    for (uint i = THREAD; i < (n_heads + 1u) * A.n_pairs; i += THREADS) {
        uint head = i / A.n_pairs, p = i % A.n_pairs, c = 2u * (A.first_pair + p);
        bool is_key = head == n_heads;
        uvec2 from = is_key ? kv : q;
        c += is_key ? A.kv_lora : head * A.q_head_stride + A.q_rope_offset;
        vec2 x = vec2(PF32(from).v[c], PF32(from).v[c + 1u]);
        vec2 t = turns[p];
        vec2 y = vec2(x.x * t.x - x.y * t.y, x.x * t.y + x.y * t.x);
        if (is_key) {
            store(to, c, A.pages.dtype, y.x);
            store(to, c + 1u, A.pages.dtype, y.y);
        } else {
            PF32(q).v[c] = y.x;
            PF32(q).v[c + 1u] = y.y;
        }
    }
}
