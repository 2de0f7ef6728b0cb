/* op_kda_conv.c: the short causal convolution of q, k and v, and the windows it leaves behind.
 * kda_step uses the same lines, so both give the same bytes. */
#include "kda.h"
#include "plant.h"

enum {
    CONV_CHANNELS = 128, /* of an item; at most KDA_MAX_DIM */
    CONV_ROWS = 64
};

/* Row i of the window as it stands after `upto` rows of the packed batch: an input of this step, or
 * a row that the old window (NULL: zeros) already held. dst may be old: rows only move up. */
static void window_write(float *dst, const float *old, const ebro_mat *x, uint32_t n_channels,
                         uint32_t begin, uint32_t upto) {
    uint64_t bytes = (uint64_t)n_channels * sizeof *dst;
    if (!dst) return;
    for (uint32_t i = 0; i < KDA_WINDOW; i++, dst += n_channels) {
        uint32_t seen = upto - begin + i; /* position, counted from the old window's first row */
        if (seen >= KDA_WINDOW) {
            memcpy(dst, eb_mat_row(x, begin + seen - KDA_WINDOW), bytes);
        } else if (old) {
            memmove(dst, old + (uint64_t)seen * n_channels, bytes);
        } else {
            memset(dst, 0, bytes);
        }
    }
}

void kda_windows_write(const ebro_state_io *io, const ebro_mat x[3], uint32_t n_channels,
                       const struct kda_seq *seq) {
    for (uint32_t i = 0; i < 3; i++) {
        const float *old = kda_unit(&io->region, seq->in, i);
        for (uint32_t row = seq->begin; io->n_emit > 0 && row < seq->end; row++) {
            float *dst = kda_unit(&io->region, kda_emit_slot(io, row), i);
            window_write(dst, old, &x[i], n_channels, seq->begin, row + 1);
        }
        float *dst = kda_unit(&io->region, seq->out, i);
        uint32_t stale = PLANTED(stale_window) && seq->end > seq->begin;
        window_write(dst, old, &x[i], n_channels, seq->begin, seq->end - stale);
    }
}

/* One sequence, by blocks of channels and rows. */
struct conv_loop {
    const ebro_kda_conv_args *a;
    struct kda_seq seq;
    uint32_t n_channel_blocks, n_row_blocks;
};

/* Items: q, k and v, by blocks of channels, by blocks of rows. */
static void conv_item(void *user, uint64_t item, uint32_t thread) {
    const struct conv_loop *l = user;
    const ebro_kda_conv_args *a = l->a;
    uint32_t per = l->n_channel_blocks * l->n_row_blocks, i = (uint32_t)(item / per);
    uint32_t c = (uint32_t)(item % per) / l->n_row_blocks * CONV_CHANNELS;
    uint32_t row = l->seq.begin + (uint32_t)(item % l->n_row_blocks) * CONV_ROWS;
    uint32_t end = l->seq.end - row < CONV_ROWS ? l->seq.end : row + CONV_ROWS;
    uint32_t n = a->n_channels - c < CONV_CHANNELS ? a->n_channels - c : CONV_CHANNELS;
    const float *window = kda_unit(&a->state.region, l->seq.in, i);
    float w[KDA_TAPS][KDA_MAX_DIM];
    (void)thread;
    kda_conv_weights(w, &a->weight[i], c, n);
    for (; row < end; row++) {
        kda_conv_line(eb_mat_row(&a->out[i], row) + c, &a->x[i], window, a->n_channels,
                      l->seq.begin, row, c, w, n);
    }
}

int32_t cpu_kda_conv(ebro_stream *s, const ebro_kda_conv_args *a, ebro_error *err) {
    struct conv_loop l = {.a = a,
                          .n_channel_blocks = (a->n_channels + CONV_CHANNELS - 1) / CONV_CHANNELS};
    (void)err;
    for (uint32_t q = 0; q < a->rows.n_seqs; q++) {
        l.seq = kda_seq_at(&a->rows, &a->state, q);
        l.n_row_blocks = (l.seq.end - l.seq.begin + CONV_ROWS - 1) / CONV_ROWS;
        cpu_parallel(s->dev->pool, 3ull * l.n_channel_blocks * l.n_row_blocks, conv_item, &l);
        /* Last: the windows are read by all, and may be written in place. */
        kda_windows_write(&a->state, a->x, a->n_channels, &l.seq);
    }
    return EBRO_OK;
}
