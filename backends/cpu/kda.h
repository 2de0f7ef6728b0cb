/* kda.h: what the KDA ops share: where states live, gates and norms of one head's row, one line of
 * the short convolution, and the layout of the chunked form's work memory. Private to backends/cpu.
 * The recurrence itself is in op_kda_recur.c (chunks) and op_kda_step.c (tokens). */
#ifndef EB_CPU_KDA_H
#define EB_CPU_KDA_H

#include "micro.h"

enum {
    KDA_CHUNK = 32,    /* rows of a chunk: the products below fill the registers */
    KDA_MAX_DIM = 256, /* of a head; also the channels that the convolution takes at once */
    KDA_TAPS = EBRO_CONV_WIDTH,
    KDA_WINDOW = EBRO_CONV_WIDTH - 1
};

/* ---- sequences and states --------------------------------------------------------------- */

/* Rows [begin, end) of one sequence and its slots. */
struct kda_seq {
    uint32_t begin, end;
    int32_t in, out;
};

static inline struct kda_seq kda_seq_at(const ebro_rows *rows, const ebro_state_io *io,
                                        uint32_t s) {
    const int32_t *offsets = eb_at(rows->row_offsets);
    const int32_t *in = eb_at(io->state_in), *out = eb_at(io->state_out);
    return (struct kda_seq){(uint32_t)offsets[s], (uint32_t)offsets[s + 1], in[s], out[s]};
}

/* Address of one unit of a slot; NULL for slot -1. */
static inline void *kda_unit(const ebro_region *g, int32_t slot, uint32_t unit) {
    if (slot < 0) return NULL;
    const uint64_t *table = eb_at(g->table);
    uint32_t u = g->first_unit + unit;
    uint64_t block =
        table[(uint64_t)slot * g->table_stride + g->first_block + u / g->units_per_block];
    return eb_address(block + g->block_offset + (u % g->units_per_block) * g->unit_bytes);
}

/* Slot that the state after `row` is emitted to; -1: none. */
static inline int32_t kda_emit_slot(const ebro_state_io *io, uint32_t row) {
    if (io->n_emit == 0) return -1;
    const int32_t *rows = eb_at(io->emit_rows), *slots = eb_at(io->emit_slots);
    for (uint32_t i = 0; i < io->n_emit; i++) {
        if ((uint32_t)rows[i] == row) return slots[i];
    }
    return -1;
}

/* dst <- src; src NULL: zeros; dst NULL or src itself: nothing. */
static inline void kda_unit_copy(void *dst, const void *src, uint64_t bytes) {
    if (!dst || dst == src) return;
    if (src) {
        memcpy(dst, src, bytes);
    } else {
        memset(dst, 0, bytes);
    }
}

/* ---- short convolution ------------------------------------------------------------------ */

/* Taps of channels [first, first + n), one line per tap. */
static inline void kda_conv_weights(float w[KDA_TAPS][KDA_MAX_DIM], const ebro_vec *weight,
                                    uint64_t first, uint32_t n) {
    float packed[KDA_MAX_DIM * KDA_TAPS];
    cpu_load_vec(packed, weight, first * KDA_TAPS, (uint64_t)n * KDA_TAPS);
    for (uint32_t c = 0; c < n; c++) {
        for (uint32_t t = 0; t < KDA_TAPS; t++) w[t][c] = packed[c * KDA_TAPS + t];
    }
}

/* Channels [first, ...) of the input `back` rows before `row`, which lies in x or, before the
 * sequence's first row, in its window (NULL: zeros). */
static inline const float *kda_conv_input(const ebro_mat *x, const float *window,
                                          uint32_t n_channels, uint32_t begin, uint32_t row,
                                          uint32_t back, uint64_t first) {
    static const float zeros[KDA_MAX_DIM];
    if (row - begin >= back) return eb_mat_row(x, row - back) + first;
    if (!window) return zeros;
    return window + (uint64_t)(KDA_WINDOW + (row - begin) - back) * n_channels + first;
}

/* One output line of n channels, SiLU included. */
static inline void kda_conv_line(float *restrict out, const ebro_mat *x, const float *window,
                                 uint32_t n_channels, uint32_t begin, uint32_t row, uint64_t first,
                                 float w[KDA_TAPS][KDA_MAX_DIM], uint32_t n) {
    const float *x0 = kda_conv_input(x, window, n_channels, begin, row, 3, first);
    const float *x1 = kda_conv_input(x, window, n_channels, begin, row, 2, first);
    const float *x2 = kda_conv_input(x, window, n_channels, begin, row, 1, first);
    const float *x3 = kda_conv_input(x, window, n_channels, begin, row, 0, first);
    for (uint32_t c = 0; c < n; c++) {
        float y = ((w[0][c] * x0[c] + w[1][c] * x1[c]) + w[2][c] * x2[c]) + w[3][c] * x3[c];
        out[c] = micro_silu(y);
    }
}

/* Writes the windows of one sequence: emitted ones first, since `out` may be `in`. */
void kda_windows_write(const ebro_state_io *io, const ebro_mat x[3], uint32_t n_channels,
                       const struct kda_seq *seq);

/* ---- gates and norms of one head -------------------------------------------------------- */

struct kda_gate_head {
    float bias[KDA_MAX_DIM];
    float a; /* exp(A_log) */
};

static inline void kda_gate_load(struct kda_gate_head *out, const ebro_kda_gate *gate, uint32_t h) {
    float a_log;
    cpu_load_vec(out->bias, &gate->dt_bias, (uint64_t)h * gate->head_dim, gate->head_dim);
    cpu_load_vec(&a_log, &gate->a_log, h, 1);
    out->a = expf(a_log);
}

/* Log decays of one row, all <= 0. */
static inline void kda_gate_row(float *restrict g, const ebro_kda_gate *gate,
                                const struct kda_gate_head *head, uint32_t h, uint32_t row) {
    uint32_t n = gate->head_dim;
    const float *raw = eb_mat_row(&gate->g_raw, row) + (uint64_t)h * n;
    const float *bias = head->bias;
    float a = head->a, bound = gate->lower_bound;
    if (gate->form == EBRO_GATE_SOFTPLUS) {
        for (uint32_t c = 0; c < n; c++) g[c] = -a * micro_softplus(raw[c] + bias[c]);
    } else {
        for (uint32_t c = 0; c < n; c++) g[c] = bound * micro_sigmoid(a * (raw[c] + bias[c]));
    }
}

static inline float kda_beta(const ebro_kda_gate *gate, uint32_t h, uint32_t row) {
    return micro_sigmoid(eb_mat_row(&gate->beta_raw, row)[h]);
}

/* out = x scale / sqrt(sum x^2 + eps); out may be x. */
static inline void kda_normalise(float *out, const float *x, uint32_t n, float eps, float scale) {
    float inv = scale / sqrtf(micro_sum_squares(x, n) + eps);
    for (uint32_t c = 0; c < n; c++) out[c] = x[c] * inv;
}

/* ---- work memory of the chunked form ---------------------------------------------------- */

/* For each chunk, head-minor, what kda_recur reads: K+ and Q+ (decayed from the chunk's start), K*
 * (decayed to its end), T diag(beta), M, and the decay of the whole chunk. Before them one i32 per
 * row: the slot number's index in the emit list, or -1; behind them room for one head at a time. */
struct kda_work {
    int32_t *emit;  /* [n_rows] */
    float *chunks;  /* [n_chunks][n_heads][chunk_floats] */
    float *scratch; /* kda_scratch_floats for each thread */
    uint64_t chunk_floats;
    uint32_t n_heads, dim;
};

struct kda_chunk {
    float *k_plus, *q_plus, *k_star; /* [KDA_CHUNK][dim] */
    float *t, *m;                    /* [KDA_CHUNK][KDA_CHUNK], zero above the diagonal */
    float *decay;                    /* [dim] */
};

static inline uint64_t kda_scratch_floats(uint32_t dim) {
    /* kda_prep: 6 chunks of rows, 2 small squares. kda_recur, which needs 32 columns of a state and
     * 2 squares, fits into that. */
    return 6u * KDA_CHUNK * (uint64_t)dim + 2u * KDA_CHUNK * KDA_CHUNK;
}

static inline uint64_t kda_chunk_floats(uint32_t dim) {
    return 3u * KDA_CHUNK * (uint64_t)dim + 2u * KDA_CHUNK * KDA_CHUNK + dim;
}

/* Bytes of work for at most these numbers. */
uint64_t kda_work_bytes(const ebro_dev *dev, const ebro_rows *rows, uint32_t n_emit,
                        uint32_t n_heads, uint32_t dim);
struct kda_work kda_work_at(const ebro_dev *dev, ebro_span work, const ebro_rows *rows,
                            uint32_t n_emit, uint32_t n_heads, uint32_t dim);

static inline struct kda_chunk kda_chunk_at(const struct kda_work *w, uint64_t chunk, uint32_t h) {
    float *p = w->chunks + (chunk * w->n_heads + h) * w->chunk_floats;
    uint64_t rows = KDA_CHUNK * (uint64_t)w->dim, square = KDA_CHUNK * KDA_CHUNK;
    return (struct kda_chunk){.k_plus = p,
                              .q_plus = p + rows,
                              .k_star = p + 2 * rows,
                              .t = p + 3 * rows,
                              .m = p + 3 * rows + square,
                              .decay = p + 3 * rows + 2 * square};
}

/* Where the chunk that starts at `row` ends: full, after an emitted row, or with the sequence. */
static inline uint32_t kda_chunk_end(const struct kda_work *w, uint32_t row, uint32_t end) {
    uint32_t limit = end - row < KDA_CHUNK ? end : row + KDA_CHUNK;
    while (row < limit) {
        if (w->emit[row++] >= 0) break;
    }
    return row;
}

/* Refuses head sizes beyond KDA_MAX_DIM. */
int32_t kda_check_dim(ebro_stream *s, const char *op, uint32_t dim, ebro_error *err);

#endif
