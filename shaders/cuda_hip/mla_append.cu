/* mla_append.cu: new rows of the latent cache. A block takes a row.
 *
 *   mla_append  rms_norm of the latent (as norm.cu: the row is divided by its largest magnitude
 *               before it is squared), and the key channels that do not turn
 *   mla_rotate  turns pairs of channels by the row's position: of the new key, on its way into the
 *               cache, and of every head's query, in place
 *
 * An angle grows with the position, far beyond what f32 holds: it is made in 64-bit fixed point, as
 * a fraction of a turn, where whole turns fall away. Sine and cosine are series over an eighth of a
 * turn, good to f32. */
#include "mla.cuh"
#include "shapes.h"

EB_KERNEL(eb_mla_append_plain, eb_mla_append_args, EB_MLA_APPEND_THREADS) {
    EB_SHARED(float, parts, [32]);
    unsigned row = block_id();
    if (row >= mla_n_rows(A.row_offsets, A.n_seqs)) return;
    unsigned seq = mla_seq_of(A.row_offsets, A.n_seqs, row);
    unsigned position = mla_position(A.row_offsets, A.pages.context, seq, row);
    eb_addr to = mla_token_of(A.pages, seq, position);
    const float *kv = row_of(A.kv, row);
    float largest = 0.0f, sum = 0.0f;
    for (unsigned c = thread_id(); c < A.kv_lora; c += n_threads())
        largest = fmaxf(largest, fabsf(kv[c]));
    largest = block_max(largest, parts);
    /* One over a power of two, so that the product rounds nothing. */
    unsigned power = bits_of(fminf(fmaxf(largest, 1e-15f), 1e30f)) & 0x7f800000u;
    float scale = float_of((254u << 23) - power);
    for (unsigned c = thread_id(); c < A.kv_lora; c += n_threads()) {
        float v = kv[c] * scale;
        sum += v * v;
    }
    sum = block_sum(sum, parts);
    float root = sqrtf(sum / (float)A.kv_lora + A.eps * scale * scale);
    for (unsigned c = thread_id(); c < A.kv_lora; c += n_threads()) {
        float v = kv[c] * scale / root;
        store(to, c, A.pages.dtype, v * load(A.norm_weight.at, c, A.norm_weight.dtype));
    }
    for (unsigned c = A.kv_lora + A.rotary_dim + thread_id(); c < A.kv_lora + A.rope_dim;
         c += n_threads())
        store(to, c, A.pages.dtype, kv[c]);
}

struct turn {
    float cosine, sine;
};

/* Of a fraction of a turn in units of 2^-32. */
static EB_DEVICE turn turn_of(unsigned fraction) {
    unsigned quarter = (fraction + 0x20000000u) >> 30;
    /* From -1/8 to 1/8 of a turn. */
    float x = (float)(int)(fraction - (quarter << 30)) * 1.4629180792671596e-9f;
    float y = x * x;
    float s = x + x * y * (-1.0f / 6 + y * (1.0f / 120 + y * (-1.0f / 5040 + y / 362880)));
    float c = 1.0f - y * (0.5f - y * (1.0f / 24 - y * (1.0f / 720 - y / 40320)));
    turn t = quarter & 1 ? turn{-s, c} : turn{c, s};
    return quarter & 2 ? turn{-t.cosine, -t.sine} : t;
}

EB_KERNEL(eb_mla_rotate_plain, eb_mla_rotate_args, EB_MLA_ROTATE_THREADS) {
    EB_SHARED(turn, turns, [EB_MLA_TURNS]);
    unsigned row = block_id();
    if (row >= mla_n_rows(A.row_offsets, A.n_seqs)) return;
    unsigned seq = mla_seq_of(A.row_offsets, A.n_seqs, row);
    unsigned position = mla_position(A.row_offsets, A.pages.context, seq, row);
    for (unsigned p = thread_id(); p < A.n_pairs; p += n_threads()) {
        unsigned long long step = (unsigned long long)A.turns[p].high << 32 | A.turns[p].low;
        turns[p] = turn_of((unsigned)(step * position >> 32));
    }
    sync_block();
    const float *kv = row_of(A.kv, row);
    eb_addr to = mla_token_of(A.pages, seq, position);
    unsigned n_heads = A.q.at != 0 ? A.n_heads : 0;
    for (unsigned i = thread_id(); i < (n_heads + 1) * A.n_pairs; i += n_threads()) {
        unsigned head = i / A.n_pairs, p = i % A.n_pairs, c = 2 * (A.first_pair + p);
        bool is_key = head == n_heads;
        c += is_key ? A.kv_lora : head * A.q_head_stride + A.q_rope_offset;
        float *q = row_of(A.q, row);
        const float *from = is_key ? kv : q;
        float a = from[c], b = from[c + 1];
        float x = a * turns[p].cosine - b * turns[p].sine;
        float y = a * turns[p].sine + b * turns[p].cosine;
        if (is_key) {
            store(to, c, A.pages.dtype, x);
            store(to, c + 1, A.pages.dtype, y);
        } else {
            q[c] = x;
            q[c + 1] = y;
        }
    }
}
