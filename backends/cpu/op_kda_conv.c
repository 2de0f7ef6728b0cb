/* op_kda_conv.c: the short causal convolution of q, k and v, and the windows it leaves behind.
 * kda_step uses the same lines, so both give the same bytes. */
#include "kda.h"

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
        window_write(dst, old, &x[i], n_channels, seq->begin, seq->end);
    }
}

int32_t cpu_kda_conv(ebro_stream *s, const ebro_kda_conv_args *a, ebro_error *err) {
    (void)s;
    (void)err;
    float w[KDA_TAPS][KDA_MAX_DIM];
    for (uint32_t q = 0; q < a->rows.n_seqs; q++) {
        struct kda_seq seq = kda_seq_at(&a->rows, &a->state, q);
        for (uint32_t i = 0; i < 3 && seq.begin < seq.end; i++) {
            const float *window = kda_unit(&a->state.region, seq.in, i);
            for (uint32_t c = 0; c < a->n_channels; c += KDA_MAX_DIM) {
                uint32_t n = a->n_channels - c < KDA_MAX_DIM ? a->n_channels - c : KDA_MAX_DIM;
                kda_conv_weights(w, &a->weight[i], c, n);
                for (uint32_t row = seq.begin; row < seq.end; row++) {
                    kda_conv_line(eb_mat_row(&a->out[i], row) + c, &a->x[i], window, a->n_channels,
                                  seq.begin, row, c, w, n);
                }
            }
        }
        kda_windows_write(&a->state, a->x, a->n_channels, &seq);
    }
    return EBRO_OK;
}
