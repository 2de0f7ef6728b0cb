#version 450
/* kda_step: the whole KDA chain token by token: convolution, gates, recurrence, gated output norm,
 * and the windows. A workgroup takes one head of one sequence. The state stays in registers over
 * the rows; what a row leaves behind is what it would leave in memory (a BF16 state is rounded
 * after every row), so that the bytes do not depend on how rows are split into calls.
 *
 * Loops inside a row are unrolled: some drivers bound the iterations of a whole kernel.
 *
 * With S' = diag(decay) S and d = beta (v - S'^T k), the new state is S' + k d^T, and its product
 * with q is S'^T q + <k, q> d: one pass reads, one writes. A thread holds K_ROWS rows of four
 * columns; where a head has more columns than the threads hold, blocks of them follow each other,
 * and the norm comes last. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_kda_step_args
#include "common/args_kda.h"
#include "common.glsl"
#include "math.glsl"
#include "kda.glsl"
#include "kda_gate.glsl"

layout(constant_id = 2) const bool ALIGNED = false; /* all matrices but beta's */
layout(constant_id = 3) const uint STATE = F32;     /* type of the state */
layout(constant_id = 4) const uint COLS4 = 1;       /* threads along the columns, a power of two */
layout(constant_id = 5) const uint K_ROWS = 1;      /* THREADS / COLS4 * K_ROWS >= DIM */
layout(constant_id = 6) const uint DIM = 8;
layout(constant_id = 7) const bool MANY = true; /* false: no sequence has more than one row */

#define K_LANES (THREADS / COLS4)
#define MAX_DIM 256

/* The row's q, k and v after the convolution, and its decays. */
shared float row_q[MAX_DIM], row_k[MAX_DIM], row_v[MAX_DIM], row_decay[MAX_DIM];
shared vec4 parts_e[256], parts_o[256];
shared float squares[64];

/* Copies of arguments: for all a compiler knows, what a kernel stores could change them. */
eb_mat_arg dst, out_gate;
uint seq, head, begin, end, n_channels;
vec4 s[K_ROWS]; /* rows k_lane * K_ROWS + i of columns col .. col + 3 */
uint k_lane, lane4, col;

/* ---- state ------------------------------------------------------------------------------ */

/* Whether this thread has row i. */
bool has_row(uint i) {
    return K_LANES * K_ROWS == DIM || k_lane * K_ROWS + i < DIM;
}

/* This thread's part of a state, from its first element on. */
uvec2 part_of(uvec2 state) {
    return plus(state, (k_lane * K_ROWS * DIM + col) * size_of(STATE));
}

void load_state(uvec2 from) {
    [[unroll]] for (uint i = 0u; i < K_ROWS; i++) s[i] = vec4(0.0);
    bool there = !absent(from) && col < DIM;
    from = part_of(from);
    if (there && aligned4(from, size_of(STATE))) {
        [[unroll]] for (uint i = 0u; i < K_ROWS; i++)
            if (has_row(i)) s[i] = state_load(from, i * DIM, STATE, true);
    } else if (there) {
        [[unroll]] for (uint i = 0u; i < K_ROWS; i++)
            if (has_row(i)) s[i] = state_load(from, i * DIM, STATE, false);
    }
}

void store_state(uvec2 to) {
    bool there = !absent(to) && col < DIM;
    to = part_of(to);
    if (there && aligned4(to, size_of(STATE))) {
        [[unroll]] for (uint i = 0u; i < K_ROWS; i++)
            if (has_row(i)) state_store(to, i * DIM, STATE, true, s[i]);
    } else if (there) {
        [[unroll]] for (uint i = 0u; i < K_ROWS; i++)
            if (has_row(i)) state_store(to, i * DIM, STATE, false, s[i]);
    }
}

void emit_state(uint row) {
    for (uint e = 0u; e < A.state.n_emit; e++) {
        if (uint(PI32(A.state.emit_rows).v[e]) == row)
            store_state(slot_unit(A.state.region, PI32(A.state.emit_slots).v[e], head));
    }
}

/* ---- rows ------------------------------------------------------------------------------- */

/* Four channels of the row's q, k, v (which: 0, 1, 2) or decays (3). */
void load_channels(uint row, uint which, uint c, float a_scale) {
    uint at = head * DIM + c;
    vec4 y;
    if (which < 3u) {
        eb_mat_arg x = A.x[which];
        uvec2 window = uvec2(0u);
        if (row - begin < 3u) window = unit_in(A.windows, seq, which);
        vec4 x0 = conv_input(x, window, begin, row, 3u, at, n_channels, ALIGNED);
        vec4 x1 = conv_input(x, window, begin, row, 2u, at, n_channels, ALIGNED);
        vec4 x2 = conv_input(x, window, begin, row, 1u, at, n_channels, ALIGNED);
        vec4 x3 = conv_input(x, window, begin, row, 0u, at, n_channels, ALIGNED);
        y = conv_line(conv_weights(A.weight[which], at, n_channels), x0, x1, x2, x3);
    } else {
        vec4 raw = load4(row_of(A.gate.g_raw, row), at, n_channels, ALIGNED);
        [[unroll]] for (uint j = 0u; j < 4u; j++) {
            float bias = load(A.gate.dt_bias.at, at + j, A.gate.dt_bias.dtype);
            y[j] = gate_decay(A.gate, a_scale, bias, raw[j]);
        }
    }
    [[unroll]] for (uint j = 0u; j < 4u; j++) {
        if (which == 0u) row_q[c + j] = y[j];
        if (which == 1u) row_k[c + j] = y[j];
        if (which == 2u) row_v[c + j] = y[j];
        if (which == 3u) row_decay[c + j] = y[j];
    }
}

void load_row(uint row, float a_scale) {
    uint per = 2u << findMSB(DIM / 4u - 1u); /* threads to one of the four */
    for (uint item = THREAD; item < 4u * per; item += THREADS) {
        uint which = item / per, c = item % per * 4u;
        if (c < DIM) load_channels(row, which, c, a_scale);
    }
    barrier();
}

/* <q, q>, <k, k> and <q, k> of the row. */
vec3 products() {
    vec3 sum = vec3(0.0);
#ifdef EB_SUBGROUP
    [[unroll]] for (uint c = gl_SubgroupInvocationID; c < DIM; c += SUBGROUP)
        sum += vec3(row_q[c] * row_q[c], row_k[c] * row_k[c], row_q[c] * row_k[c]);
    return subgroupAdd(sum);
#else
    [[unroll]] for (uint c = THREAD; c < DIM; c += THREADS)
        sum += vec3(row_q[c] * row_q[c], row_k[c] * row_k[c], row_q[c] * row_k[c]);
    parts_e[THREAD].xyz = sum;
    barrier();
    if (THREAD < 8u) {
        const uint n = THREADS / 8u;
        sum = vec3(0.0);
        [[unroll]] for (uint i = 0u; i < n; i++) sum += parts_e[THREAD * n + i].xyz;
        parts_o[THREAD].xyz = sum;
    }
    barrier();
    sum = vec3(0.0);
    [[unroll]] for (uint i = 0u; i < 8u; i++) sum += parts_o[i].xyz;
    barrier();
    return sum;
#endif
}

/* One row's recurrence; its output in the threads whose k_lane is 0. */
vec4 step_row(uint row) {
    vec3 product = products();
    float inverse_k = 1.0 / sqrt(product.y + A.gate.l2_eps);
    float inverse_q = A.gate.q_scale / sqrt(product.x + A.gate.l2_eps);
    float beta = gate_beta(A.gate, row, head);
    vec4 e = vec4(0.0), o = vec4(0.0);
    [[unroll]] for (uint i = 0u; i < K_ROWS; i++) {
        uint k = k_lane * K_ROWS + i;
        if (has_row(i)) {
            s[i] *= row_decay[k];
            e += s[i] * row_k[k];
            o += s[i] * row_q[k];
        }
    }
    parts_e[THREAD] = e;
    parts_o[THREAD] = o;
    barrier();
    e = o = vec4(0.0);
    [[unroll]] for (uint i = 0u; i < K_LANES; i++) e += parts_e[i * COLS4 + lane4];
    vec4 d = vec4(0.0);
    if (col < DIM) d = vec4(row_v[col], row_v[col + 1u], row_v[col + 2u], row_v[col + 3u]);
    d = beta * (d - e * inverse_k);
    [[unroll]] for (uint i = 0u; i < K_ROWS; i++) {
        uint k = k_lane * K_ROWS + i;
        if (has_row(i)) s[i] += row_k[k] * inverse_k * d;
        if (STATE == BF16) s[i] = uintBitsToFloat(to_bf16(s[i]) << 16);
    }
    if (k_lane == 0u)
        [[unroll]] for (uint i = 0u; i < K_LANES; i++) o += parts_o[i * COLS4 + lane4];
    return o * inverse_q + product.z * inverse_k * inverse_q * d;
}

/* ---- output norm ------------------------------------------------------------------------ */

/* 1 / the root of the row's mean square; `sum` is this thread's part. All threads call it. */
float inverse_root(float sum) {
    if (k_lane == 0u) squares[lane4] = sum;
    barrier();
    sum = 0.0;
    if (k_lane == 0u)
        [[unroll]] for (uint i = 0u; i < COLS4; i++) sum += squares[i];
    return 1.0 / sqrt(sum / float(DIM) + A.norm_eps);
}

void store_out(uint row, uint c, vec4 o) {
    uint at = head * DIM + c;
    vec4 gate = load4(row_of(out_gate, row), at, n_channels, ALIGNED);
    [[unroll]] for (uint j = 0u; j < 4u; j++)
        o[j] *= load(A.norm_weight.at, c + j, A.norm_weight.dtype) * sigmoid(gate[j]);
    store4(row_of(dst, row), at, n_channels, ALIGNED, o);
}

/* The outputs before the norm lie in dst, written by the thread that reads them here. */
void norm_rows() {
    for (uint row = begin; row < end; row++) {
        float sum = 0.0;
        if (k_lane == 0u) {
            [[unroll]] for (uint c = lane4 * 4u; c < DIM; c += COLS4 * 4u) {
                vec4 o = load4(row_of(dst, row), head * DIM + c, n_channels, ALIGNED);
                sum += dot(o, o);
            }
        }
        float inverse = inverse_root(sum);
        if (k_lane == 0u) {
            [[unroll]] for (uint c = lane4 * 4u; c < DIM; c += COLS4 * 4u) {
                vec4 o = load4(row_of(dst, row), head * DIM + c, n_channels, ALIGNED);
                store_out(row, c, o * inverse);
            }
        }
        barrier();
    }
}

void main() {
    if (GROUP >= push.n_groups) return;
    n_channels = A.n_heads * DIM;
    seq = GROUP / A.n_heads;
    head = GROUP % A.n_heads;
    begin = seq_begin(A.rows, seq);
    end = seq_begin(A.rows, seq + 1u);
    dst = A.dst;
    out_gate = A.out_gate;
    k_lane = THREAD / COLS4;
    lane4 = THREAD % COLS4;
    uint n_blocks = (DIM + COLS4 * 4u - 1u) / (COLS4 * 4u);
    uvec2 from = unit_in(A.state, seq, head), to = unit_out(A.state, seq, head);
    float a_scale = gate_scale(A.gate, head);
    for (uint b = 0u; b < n_blocks; b++) {
        col = (b * COLS4 + lane4) * 4u;
        /* Before the state, which fills the registers. */
        if (begin < end) load_row(begin, a_scale);
        load_state(from);
        for (uint row = begin; row < end; row++) {
            if (MANY && row > begin) load_row(row, a_scale);
            vec4 o = step_row(row);
            if (n_blocks == 1u) {
                float inverse = inverse_root(dot(o, o));
                if (k_lane == 0u && col < DIM) store_out(row, col, o * inverse);
            } else {
                if (k_lane == 0u && col < DIM)
                    store4(row_of(dst, row), head * DIM + col, n_channels, ALIGNED, o);
                barrier();
            }
            emit_state(row);
        }
        store_state(to);
    }
    if (n_blocks > 1u) norm_rows();
    barrier();
    /* Last: the windows were read by all, and may be written in place. */
    for (uint item = THREAD; item < 3u * (DIM / 4u); item += THREADS) {
        uint which = item / (DIM / 4u), c = head * DIM + item % (DIM / 4u) * 4u;
        windows_write(A.windows, A.x[which], seq, begin, end, which, c, n_channels, ALIGNED);
    }
}
