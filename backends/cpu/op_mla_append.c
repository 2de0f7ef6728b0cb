/* op_mla_append.c: mla_append, the new rows of the latent cache: norm, rotation, and writing them.
 */
#include "mla.h"

enum {
    APPEND_COLS = 256,
    APPEND_ROWS = 16 /* of an item */
};

static void rotate(float *pair, float cosine, float sine) {
    float x = pair[0], y = pair[1];
    pair[0] = x * cosine - y * sine;
    pair[1] = x * sine + y * cosine;
}

/* Turns the first rotary_dim of `row_q`'s channels in every head, and of key[0 .. n) of which the
 * first is rope channel `first`. The angle is taken in double: it reaches the position itself. */
static void rotate_row(const ebro_mla_append_args *a, uint32_t position, float *row_q, float *key,
                       uint32_t first, uint32_t n) {
    for (uint32_t c = first; c < first + n && c < a->rotary_dim; c += 2) {
        double rate = pow((double)a->rotary_theta, -(double)c / (double)a->rotary_dim);
        float cosine = (float)cos(position * rate), sine = (float)sin(position * rate);
        rotate(key + (c - first), cosine, sine);
        for (uint32_t h = 0; row_q && h < a->n_heads; h++) {
            rotate(row_q + (uint64_t)h * a->q_head_stride + a->q_rope_offset + c, cosine, sine);
        }
    }
}

static void append_row(const ebro_mla_append_args *a, uint32_t seq, uint32_t row,
                       uint32_t position) {
    float y[APPEND_COLS], w[APPEND_COLS];
    const float *kv = eb_mat_row(&a->kv, row);
    uint8_t *dst = mla_cache_row(&a->pages, seq, position);
    uint64_t size = cpu_dtype_size(a->pages.dtype);
    float mean = micro_sum_squares(kv, a->kv_lora) / (float)a->kv_lora;
    float inv = 1.0f / sqrtf(mean + a->norm_eps);
    for (uint32_t c = 0; c < a->kv_lora; c += APPEND_COLS) {
        uint32_t n = mla_min(a->kv_lora - c, APPEND_COLS);
        cpu_load_vec(w, &a->norm_weight, c, n);
        for (uint32_t i = 0; i < n; i++) y[i] = kv[c + i] * inv * w[i];
        cpu_store(dst + c * size, a->pages.dtype, y, n);
    }
    float *row_q = a->q.mem && a->rotary_dim > 0 ? eb_mat_row(&a->q, row) : NULL;
    for (uint32_t c = 0; c < a->rope_dim; c += APPEND_COLS) {
        uint32_t n = mla_min(a->rope_dim - c, APPEND_COLS);
        memcpy(y, kv + a->kv_lora + c, n * sizeof *y);
        rotate_row(a, position, row_q, y, c, n);
        cpu_store(dst + (a->kv_lora + c) * size, a->pages.dtype, y, n);
    }
}

/* Item: APPEND_ROWS rows of the step, whichever sequences they are of. */
static void append_item(void *user, uint64_t item, uint32_t thread) {
    const ebro_mla_append_args *a = user;
    const int32_t *offsets = eb_at(a->rows.row_offsets);
    uint32_t row = (uint32_t)item * APPEND_ROWS, seq = 0;
    uint32_t end = mla_min((uint32_t)offsets[a->rows.n_seqs], row + APPEND_ROWS);
    (void)thread;
    for (; row < end; row++) {
        while (row >= (uint32_t)offsets[seq + 1]) seq++;
        append_row(a, seq, row, mla_context(&a->pages, seq) + row - (uint32_t)offsets[seq]);
    }
}

int32_t cpu_mla_append(ebro_stream *s, const ebro_mla_append_args *a, ebro_error *err) {
    ebro_mla_append_args args = *a;
    uint32_t n_rows = (uint32_t)((const int32_t *)eb_at(a->rows.row_offsets))[a->rows.n_seqs];
    (void)err;
    cpu_parallel(s->dev->pool, ((uint64_t)n_rows + APPEND_ROWS - 1) / APPEND_ROWS, append_item,
                 &args);
    return EBRO_OK;
}
