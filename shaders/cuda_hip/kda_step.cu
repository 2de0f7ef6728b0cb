/* kda_step.cu: the whole KDA chain token by token: convolution, gates, recurrence, gated output
 * norm, and the windows. A block takes one head of one sequence.
 *
 * With S' = diag(decay) S and d = beta (v - S'^T k), the new state is S' + k d^T, and its product
 * with q is S'^T q + <k, q> d: the state is read once and written once. It stays in registers over
 * the rows: a thread holds ROWS rows of four columns, so that 32 threads side by side move 512
 * bytes of a head of 128. Where a head has more columns than COLS, blocks of them follow each
 * other, and the norm comes last. A thread also has channels of q, k, v or the decays to itself,
 * and of those of q, k and v the last three inputs: no other thread reads or writes these of a
 * window, which may thus be replaced in place.
 *
 * A row takes three barriers: behind the convolution, behind the parts of S'^T k and S'^T q, behind
 * d. What a row leaves behind is what it would leave in memory (a BF16 state is rounded after every
 * row), so that the bytes do not depend on how rows are split into calls. */
#include "kda.cuh"

enum { THREADS = EB_KDA_STEP_THREADS, MAX_DIM = EB_KDA_MAX_DIM };

/* What a kernel is made for. DIM: the head's columns, 0: any number up to MAX_DIM. ELEMENT and
 * FOUR: of the state, float and eb_vec4, or of BF16 unsigned short and eb_halves4. */
template <unsigned DIM_, class ELEMENT_, class FOUR_>
struct step_shape {
    typedef ELEMENT_ ELEMENT;
    typedef FOUR_ FOUR;
    static const unsigned DIM = DIM_;
    static const unsigned MOST = DIM > 0 ? DIM : (unsigned)MAX_DIM;
    static const unsigned LANES = DIM == 128 ? 32 : 16; /* threads along the columns */
    static const unsigned COLS = 4 * LANES;             /* of the state, at once */
    static const unsigned K_LANES = THREADS / LANES;    /* threads along the rows */
    static const unsigned ROWS = MOST / K_LANES;        /* of the state, in a thread */
    static const unsigned ITEMS = 4 * MOST / THREADS; /* channels of q, k, v, decays of a thread */
    static_assert(COLS <= THREADS && COLS % 64 == 0, "whole waves take a column a thread");
};

struct step_shared {
    /* The row's q, k and v behind the convolution, its decays, the norm's weight times the gate. */
    alignas(16) float q[MAX_DIM], k[MAX_DIM], v[MAX_DIM], decay[MAX_DIM], scale[MAX_DIM];
    alignas(16) float parts_k[4 * THREADS], parts_q[4 * THREADS]; /* of S'^T k and S'^T q */
    alignas(16) float d[128];                                     /* over k's length */
    alignas(16) float out[128];
    float beta;
    /* Inputs of the convolution, the oldest first, [item][3][thread]: a thread's own. */
    float last[4 * MAX_DIM / THREADS][3][THREADS];
};

template <class S>
struct step_thread {
    unsigned dim, seq, head;
    unsigned lane, k_lane, first_row, n_rows;
    unsigned first_col, col;     /* of the block of columns, and of this thread */
    typename S::FOUR s[S::ROWS]; /* rows first_row + i of columns col .. col + 3 */
};

/* ---- state ------------------------------------------------------------------------------ */

template <class S>
EB_DEVICE bool has_row(const step_thread<S> &t, unsigned i) {
    if (S::DIM > 0) return true;
    return i < t.n_rows && t.first_row + i < t.dim;
}

/* Where this thread's row i lies in a state. */
template <class S>
EB_DEVICE typename S::ELEMENT *row_in(const step_thread<S> &t, eb_addr state, unsigned i) {
    return at<typename S::ELEMENT>(state) + (t.first_row + i) * t.dim + t.col;
}

template <class S>
EB_DEVICE void load_state(step_thread<S> &t, eb_addr from) {
    bool wide = from % sizeof t.s[0] == 0, there = from != 0 && (S::DIM > 0 || t.col < t.dim);
    EB_UNROLL
    for (unsigned i = 0; i < S::ROWS; i++) {
        t.s[i] = typename S::FOUR{};
        if (there && has_row(t, i)) t.s[i] = load_four<typename S::FOUR>(row_in(t, from, i), wide);
    }
}

template <class S>
EB_DEVICE void store_state(const step_thread<S> &t, eb_addr to) {
    bool wide = to % sizeof t.s[0] == 0;
    if (to == 0 || (S::DIM == 0 && t.col >= t.dim)) return;
    EB_UNROLL
    for (unsigned i = 0; i < S::ROWS; i++)
        if (has_row(t, i)) store_four(row_in(t, to, i), wide, t.s[i]);
}

/* ---- a row's vectors -------------------------------------------------------------------- */

/* Item i of this thread is channel item % dim of q, k, v (which: 0, 1, 2) or the decays (3). */
struct step_item {
    unsigned which, c;
};

template <class S>
EB_DEVICE step_item item_of(const step_thread<S> &t, unsigned i) {
    unsigned item = thread_id() + i * THREADS;
    return step_item{item / t.dim, item % t.dim};
}

/* Where row i of a window holds channel c of the head. */
template <class S>
EB_DEVICE float *window_at(const eb_kda_step_args &a, const step_thread<S> &t, eb_addr window,
                           unsigned i, unsigned c) {
    return at<float>(window) + (unsigned long long)i * a.n_heads * t.dim + t.head * t.dim + c;
}

template <class S>
EB_DEVICE void load_windows(const eb_kda_step_args &a, const step_thread<S> &t, step_shared &sh) {
    EB_UNROLL
    for (unsigned n = 0; n < S::ITEMS; n++) {
        step_item item = item_of(t, n);
        eb_addr from = item.which < 3 ? unit_in(a.windows, t.seq, item.which) : 0;
        EB_UNROLL
        for (unsigned i = 0; i < 3; i++)
            sh.last[n][i][thread_id()] = from != 0 ? *window_at(a, t, from, i, item.c) : 0.0f;
    }
}

template <class S>
EB_DEVICE void store_windows(const eb_kda_step_args &a, const step_thread<S> &t,
                             const step_shared &sh, int slot) {
    EB_UNROLL
    for (unsigned n = 0; n < S::ITEMS; n++) {
        step_item item = item_of(t, n);
        eb_addr to = item.which < 3 ? slot_unit(a.windows.region, slot, item.which) : 0;
        if (to == 0) continue;
        EB_UNROLL
        for (unsigned i = 0; i < 3; i++)
            *window_at(a, t, to, i, item.c) = sh.last[n][i][thread_id()];
    }
}

/* What the output of a channel is multiplied by behind the norm. */
template <class S>
EB_DEVICE float out_scale(const eb_kda_step_args &a, const step_thread<S> &t, unsigned row,
                          unsigned c) {
    float gate = row_of(a.out_gate, row)[t.head * t.dim + c];
    return load(a.norm_weight.at, c, a.norm_weight.dtype) * sigmoid(gate);
}

template <class S>
EB_DEVICE void load_row(const eb_kda_step_args &a, const step_thread<S> &t, step_shared &sh,
                        unsigned row) {
    EB_UNROLL
    for (unsigned n = 0; n < S::ITEMS; n++) {
        step_item item = item_of(t, n);
        unsigned channel = t.head * t.dim + item.c;
        if (item.which < 3) {
            float x = row_of(a.x[item.which], row)[channel];
            float *last = &sh.last[n][0][thread_id()];
            eb_vec4 taps = conv_taps(a.weight[item.which], channel);
            float y = conv_sum(taps, last[0], last[THREADS], last[2 * THREADS], x);
            last[0] = last[THREADS];
            last[THREADS] = last[2 * THREADS];
            last[2 * THREADS] = x;
            float *to = item.which == 0 ? sh.q : item.which == 1 ? sh.k : sh.v;
            to[item.c] = y;
        } else if (item.which == 3) {
            float raw = row_of(a.gate.g_raw, row)[channel];
            float scale = gate_scale(a.gate, t.head), bias = gate_bias(a.gate, channel);
            sh.decay[item.c] = gate_decay(a.gate, scale, raw + bias);
            if (item.c == 0) sh.beta = gate_beta(a.gate, row, t.head);
            sh.scale[item.c] = out_scale(a, t, row, item.c);
        }
    }
}

/* ---- a row's recurrence ----------------------------------------------------------------- */

/* This thread's parts of S'^T k and S'^T q. */
template <class S>
EB_DEVICE void multiply(const step_thread<S> &t, step_shared &sh) {
    eb_vec4 e = zeros4(), o = zeros4();
    EB_UNROLL
    for (unsigned i = 0; i < S::ROWS; i++) {
        if (!has_row(t, i)) continue;
        unsigned row = t.first_row + i;
        float decay = sh.decay[row], k = sh.k[row], q = sh.q[row];
        eb_vec4 s = widen(t.s[i]);
        EB_UNROLL
        for (unsigned j = 0; j < 4; j++) {
            e.v[j] += s.v[j] * decay * k;
            o.v[j] += s.v[j] * decay * q;
        }
    }
    *(eb_vec4 *)&sh.parts_k[t.k_lane * S::COLS + 4 * t.lane] = e;
    *(eb_vec4 *)&sh.parts_q[t.k_lane * S::COLS + 4 * t.lane] = o;
}

template <class S>
EB_DEVICE float sum_parts(const float *parts, unsigned c) {
    float sum = 0.0f;
    EB_UNROLL
    for (unsigned i = 0; i < S::K_LANES; i++) sum += parts[i * S::COLS + c];
    return sum;
}

/* d and the row's output before the norm, a column a thread. By whole waves. */
template <class S>
EB_DEVICE void solve_column(const eb_kda_step_args &a, const step_thread<S> &t, step_shared &sh) {
    float qq = 0.0f, kk = 0.0f, kq = 0.0f;
    for (unsigned c = lane_id(); c < t.dim; c += EB_WAVE) {
        float q = sh.q[c], k = sh.k[c];
        qq += q * q;
        kk += k * k;
        kq += k * q;
    }
    float inverse_k = 1.0f / sqrtf(wave_sum(kk) + a.gate.l2_eps);
    float inverse_q = a.gate.q_scale / sqrtf(wave_sum(qq) + a.gate.l2_eps);
    kq = wave_sum(kq) * inverse_k * inverse_q;
    unsigned c = thread_id();
    bool there = t.first_col + c < t.dim;
    float v = there ? sh.v[t.first_col + c] : 0.0f;
    float d = there ? sh.beta * (v - sum_parts<S>(sh.parts_k, c) * inverse_k) : 0.0f;
    sh.d[c] = d * inverse_k;
    sh.out[c] = sum_parts<S>(sh.parts_q, c) * inverse_q + kq * d;
}

/* S becomes S' + k d^T: S' is formed anew, so that a BF16 state takes half the registers. */
template <class S>
EB_DEVICE void add_key(step_thread<S> &t, const step_shared &sh) {
    const eb_vec4 d = *(const eb_vec4 *)&sh.d[4 * t.lane];
    EB_UNROLL
    for (unsigned i = 0; i < S::ROWS; i++) {
        if (!has_row(t, i)) continue;
        float decay = sh.decay[t.first_row + i], k = sh.k[t.first_row + i];
        eb_vec4 s = widen(t.s[i]);
        EB_UNROLL
        for (unsigned j = 0; j < 4; j++) s.v[j] = s.v[j] * decay + k * d.v[j];
        narrow(s, t.s[i]);
    }
}

template <class S>
EB_DEVICE void emit_row(const eb_kda_step_args &a, const step_thread<S> &t, const step_shared &sh,
                        unsigned row, bool is_last_block) {
    for (unsigned e = 0; e < a.state.n_emit; e++) {
        if (uint_at(a.state.emit_rows, e) != row) continue;
        store_state(t, slot_unit(a.state.region, int_at(a.state.emit_slots, e), t.head));
    }
    for (unsigned e = 0; is_last_block && e < a.windows.n_emit; e++)
        if (uint_at(a.windows.emit_rows, e) == row)
            store_windows(a, t, sh, int_at(a.windows.emit_slots, e));
}

/* ---- output ----------------------------------------------------------------------------- */

/* By one wave: a row whose head fits one block of columns. */
template <class S>
EB_DEVICE void write_out(const eb_kda_step_args &a, const step_thread<S> &t, const step_shared &sh,
                         unsigned row) {
    float *out = row_of(a.dst, row) + t.head * t.dim, sum = 0.0f;
    for (unsigned c = lane_id(); c < t.dim; c += EB_WAVE) sum += sh.out[c] * sh.out[c];
    float inverse = 1.0f / sqrtf(wave_sum(sum) / (float)t.dim + a.norm_eps);
    for (unsigned c = lane_id(); c < t.dim; c += EB_WAVE)
        out[c] = sh.out[c] * inverse * sh.scale[c];
}

/* By the same wave, where there are several: a block's columns as they are before the norm ... */
template <class S>
EB_DEVICE void write_part(const eb_kda_step_args &a, const step_thread<S> &t, const step_shared &sh,
                          unsigned row) {
    float *out = row_of(a.dst, row) + t.head * t.dim + t.first_col;
    for (unsigned c = lane_id(); c < S::COLS && t.first_col + c < t.dim; c += EB_WAVE)
        out[c] = sh.out[c];
}

/* ... and the norm of all rows: a lane reads what it wrote. */
template <class S>
EB_DEVICE void norm_rows(const eb_kda_step_args &a, const step_thread<S> &t, unsigned begin,
                         unsigned end) {
    for (unsigned row = begin; row < end; row++) {
        float *out = row_of(a.dst, row) + t.head * t.dim, sum = 0.0f;
        for (unsigned c = lane_id(); c < t.dim; c += EB_WAVE) sum += out[c] * out[c];
        float inverse = 1.0f / sqrtf(wave_sum(sum) / (float)t.dim + a.norm_eps);
        for (unsigned c = lane_id(); c < t.dim; c += EB_WAVE)
            out[c] *= inverse * out_scale(a, t, row, c);
    }
}

/* ---- a head ----------------------------------------------------------------------------- */

template <class S>
EB_DEVICE void step(const eb_kda_step_args &a, unsigned dim, step_shared &sh) {
    step_thread<S> t;
    t.dim = S::DIM > 0 ? S::DIM : dim;
    t.seq = block_id() / a.n_heads;
    t.head = block_id() % a.n_heads;
    t.lane = thread_id() % S::LANES;
    t.k_lane = thread_id() / S::LANES;
    t.n_rows = (t.dim + S::K_LANES - 1) / S::K_LANES;
    t.first_row = t.k_lane * t.n_rows;
    unsigned begin = seq_begin(a.rows, t.seq), end = seq_begin(a.rows, t.seq + 1);
    eb_addr from = unit_in(a.state, t.seq, t.head);
    bool in_parts = S::DIM == 0 && t.dim > S::COLS;
    for (t.first_col = 0; t.first_col < t.dim; t.first_col += S::COLS) {
        bool is_last_block = t.first_col + S::COLS >= t.dim;
        t.col = t.first_col + 4 * t.lane;
        if (t.first_col > 0) sync_block();
        load_state(t, from);
        load_windows(a, t, sh);
        for (unsigned row = begin; row < end; row++) {
            if (row > begin) sync_block();
            load_row(a, t, sh, row);
            sync_block();
            multiply(t, sh);
            sync_block();
            if (thread_id() < S::COLS) solve_column(a, t, sh);
            sync_block();
            add_key(t, sh);
            emit_row(a, t, sh, row, is_last_block);
            if (wave_id() == 0 && !in_parts) write_out(a, t, sh, row);
            if (wave_id() == 0 && in_parts) write_part(a, t, sh, row);
        }
        store_state(t, unit_out(a.state, t.seq, t.head));
        if (is_last_block) store_windows(a, t, sh, int_at(a.windows.state_out, t.seq));
    }
    if (in_parts && wave_id() == 0) norm_rows(a, t, begin, end);
}

EB_KERNEL(eb_kda_step_plain, eb_kda_step_any_args, EB_KDA_STEP_THREADS) {
    EB_SHARED(step_shared, shared, );
    step<step_shape<0, float, eb_vec4>>(A.step, A.dim, shared);
}

EB_KERNEL(eb_kda_step_bf16_plain, eb_kda_step_any_args, EB_KDA_STEP_THREADS) {
    EB_SHARED(step_shared, shared, );
    step<step_shape<0, unsigned short, eb_halves4>>(A.step, A.dim, shared);
}

EB_KERNEL_BLOCKS(eb_kda_step_128_plain, eb_kda_step_args, EB_KDA_STEP_THREADS, 2) {
    EB_SHARED(step_shared, shared, );
    step<step_shape<128, float, eb_vec4>>(A, 128, shared);
}

EB_KERNEL_BLOCKS(eb_kda_step_128_bf16_plain, eb_kda_step_args, EB_KDA_STEP_THREADS, 2) {
    EB_SHARED(step_shared, shared, );
    step<step_shape<128, unsigned short, eb_halves4>>(A, 128, shared);
}
