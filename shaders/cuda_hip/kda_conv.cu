/* kda_conv.cu: the short causal convolution of q, k and v with SiLU, and the windows that a call
 * leaves.
 *
 * kda_conv: a block takes four channels a thread of q, k or v and some rows; a thread walks down
 * the rows with the last three inputs in registers and reads BATCH rows ahead. kda_windows comes
 * after it, since windows may be written in place: a thread takes four channels of one sequence and
 * has read all of its window before it writes. */
#include "kda.cuh"

enum { BATCH = 8 };

static_assert(EB_KDA_CONV_BLOCK_ROWS % BATCH == 0, "a block's rows are whole batches");

/* Four channels of a row, of which n are there. WIDE: all four, at a multiple of 16 bytes. */
template <bool WIDE>
EB_DEVICE eb_vec4 load_some(const float *from, unsigned n) {
    eb_vec4 x = zeros4();
    if (WIDE)
        x = load_four<eb_vec4>(from, true);
    else
        for (unsigned j = 0; j < 4; j++)
            if (j < n) x.v[j] = from[j];
    return x;
}

template <bool WIDE>
EB_DEVICE void store_some(float *to, unsigned n, const eb_vec4 &x) {
    if (WIDE)
        store_four(to, true, x);
    else
        for (unsigned j = 0; j < 4; j++)
            if (j < n) to[j] = x.v[j];
}

/* Row i of a window, which need not lie as the matrices do. */
static EB_DEVICE eb_vec4 load_window(eb_addr window, unsigned i, unsigned n_channels, unsigned c) {
    const float *from = at<const float>(window) + (unsigned long long)i * n_channels + c;
    if (window % 16 == 0 && n_channels % 4 == 0) return load_some<true>(from, 4);
    return load_some<false>(from, n_channels - c);
}

static EB_DEVICE void store_window(eb_addr window, unsigned i, unsigned n_channels, unsigned c,
                                   const eb_vec4 &x) {
    float *to = at<float>(window) + (unsigned long long)i * n_channels + c;
    if (window % 16 == 0 && n_channels % 4 == 0) return store_some<true>(to, 4, x);
    store_some<false>(to, n_channels - c, x);
}

/* ---- convolution ------------------------------------------------------------------------ */

struct conv_thread {
    unsigned which, c; /* q, k or v; the first channel */
    eb_vec4 taps[4];   /* of a channel each */
    eb_vec4 last[3];   /* inputs, the oldest first */
};

template <bool WIDE>
EB_DEVICE eb_vec4 conv_input(const eb_kda_conv_args &a, const conv_thread &t, unsigned row) {
    return load_some<WIDE>(row_of(a.x[t.which], row) + t.c, a.n_channels - t.c);
}

/* The inputs before `row` of sequence s: of its rows or, before those, of its window. */
template <bool WIDE>
EB_DEVICE void conv_history(const eb_kda_conv_args &a, conv_thread &t, unsigned s, unsigned row) {
    unsigned seen = row - seq_begin(a.rows, s);
    eb_addr window = seen < 3 ? unit_in(a.state, s, t.which) : 0;
    EB_UNROLL
    for (unsigned i = 0; i < 3; i++) {
        if (seen + i >= 3)
            t.last[i] = conv_input<WIDE>(a, t, row + i - 3);
        else
            t.last[i] = window == 0 ? zeros4() : load_window(window, seen + i, a.n_channels, t.c);
    }
}

template <bool WIDE>
EB_DEVICE void conv_row(const eb_kda_conv_args &a, conv_thread &t, unsigned row, const eb_vec4 &x) {
    eb_vec4 y;
    EB_UNROLL
    for (unsigned j = 0; j < 4; j++)
        y.v[j] = conv_sum(t.taps[j], t.last[0].v[j], t.last[1].v[j], t.last[2].v[j], x.v[j]);
    store_some<WIDE>(row_of(a.dst[t.which], row) + t.c, a.n_channels - t.c, y);
    t.last[0] = t.last[1];
    t.last[1] = t.last[2];
    t.last[2] = x;
}

template <bool WIDE>
EB_DEVICE void conv_rows(const eb_kda_conv_args &a, conv_thread &t, unsigned row, unsigned end) {
    unsigned s = seq_at(a.rows.row_offsets, a.rows.n_seqs, row), next = seq_begin(a.rows, s + 1);
    conv_history<WIDE>(a, t, s, row);
    while (row < end) {
        if (row == next) {
            while (row == next) next = seq_begin(a.rows, ++s + 1);
            conv_history<WIDE>(a, t, s, row);
        }
        unsigned upto = next < end ? next : end;
        for (; row + BATCH <= upto; row += BATCH) {
            eb_vec4 x[BATCH];
            EB_UNROLL
            for (unsigned i = 0; i < BATCH; i++) x[i] = conv_input<WIDE>(a, t, row + i);
            EB_UNROLL
            for (unsigned i = 0; i < BATCH; i++) conv_row<WIDE>(a, t, row + i, x[i]);
        }
        for (; row < upto; row++) conv_row<WIDE>(a, t, row, conv_input<WIDE>(a, t, row));
    }
}

EB_KERNEL(eb_kda_conv_plain, eb_kda_conv_args, EB_KDA_CONV_THREADS) {
    unsigned per = A.channel_groups * A.row_groups, rest = block_id() % per;
    conv_thread t;
    t.which = block_id() / per;
    /* Neighbouring blocks read neighbouring channels of the same rows. */
    t.c = (rest % A.channel_groups * EB_KDA_CONV_THREADS + thread_id()) * 4;
    unsigned row = rest / A.channel_groups * EB_KDA_CONV_BLOCK_ROWS;
    unsigned end = seq_begin(A.rows, A.rows.n_seqs);
    if (row + EB_KDA_CONV_BLOCK_ROWS < end) end = row + EB_KDA_CONV_BLOCK_ROWS;
    if (row >= end || t.c >= A.n_channels) return;
    EB_UNROLL
    for (unsigned j = 0; j < 4; j++)
        t.taps[j] = t.c + j < A.n_channels ? conv_taps(A.weight[t.which], t.c + j) : zeros4();
    if (A.n_channels % 4 == 0 && is_wide(A.x[t.which]) && is_wide(A.dst[t.which]))
        conv_rows<true>(A, t, row, end);
    else
        conv_rows<false>(A, t, row, end);
}

/* ---- windows ---------------------------------------------------------------------------- */

/* Channels c .. c + 3 of the window as it stands after the rows [begin, upto); old: as it was. */
static EB_DEVICE void write_window(const eb_kda_windows_args &a, const eb_mat_arg &x, unsigned c,
                                   const eb_vec4 old[3], unsigned begin, unsigned upto,
                                   eb_addr to) {
    if (to == 0) return;
    bool wide = is_wide(x) && a.n_channels % 4 == 0;
    EB_UNROLL
    for (unsigned i = 0; i < 3; i++) {
        unsigned seen = upto - begin + i; /* counted from the old window's first row */
        eb_vec4 v = seen == 0 ? old[0] : seen == 1 ? old[1] : old[2];
        if (seen >= 3) {
            const float *from = row_of(x, begin + seen - 3) + c;
            v = wide ? load_some<true>(from, 4) : load_some<false>(from, a.n_channels - c);
        }
        store_window(to, i, a.n_channels, c, v);
    }
}

EB_KERNEL(eb_kda_windows_plain, eb_kda_windows_args, EB_KDA_CONV_THREADS) {
    unsigned s = block_id() / (3 * A.channel_groups), rest = block_id() % (3 * A.channel_groups);
    unsigned which = rest / A.channel_groups;
    unsigned c = (rest % A.channel_groups * EB_KDA_CONV_THREADS + thread_id()) * 4;
    if (c >= A.n_channels) return;
    unsigned begin = seq_begin(A.rows, s), end = seq_begin(A.rows, s + 1);
    eb_addr from = unit_in(A.state, s, which);
    eb_vec4 old[3];
    EB_UNROLL
    for (unsigned i = 0; i < 3; i++)
        old[i] = from == 0 ? zeros4() : load_window(from, i, A.n_channels, c);
    /* The emitted ones first: the last may replace the one that was read. */
    for (unsigned e = 0; e < A.state.n_emit; e++) {
        unsigned row = uint_at(A.state.emit_rows, e);
        if (row < begin || row >= end) continue;
        eb_addr to = slot_unit(A.state.region, int_at(A.state.emit_slots, e), which);
        write_window(A, A.x[which], c, old, begin, row + 1, to);
    }
    write_window(A, A.x[which], c, old, begin, end, unit_out(A.state, s, which));
}
