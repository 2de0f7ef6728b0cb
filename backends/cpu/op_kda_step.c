/* op_kda_step.c: the whole KDA chain token by token: convolution, gates, recurrence, gated output
 * norm. The state is read and written once per token, straight from the slot that holds it to the
 * slot it goes to.
 *
 * What a token leaves behind is what the next one starts from: a BF16 state is rounded after every
 * token, so the bytes do not depend on how rows are split into calls. */
#include "kda.h"

enum { STEP_COLS = 32, STEP_ROWS = 4 };

/* One token of one head. */
struct token {
    float k[KDA_MAX_DIM], q[KDA_MAX_DIM], v[KDA_MAX_DIM];
    float decay[KDA_MAX_DIM];
    float out[KDA_MAX_DIM];
    float beta;
    float kq; /* <k, q> */
};

/* With S' = diag(decay) S and d = beta (v - S'^T k), the new state is S' + k d^T, and its product
 * with q is S'^T q + <k, q> d: one pass reads, one writes. */

/* t->out = S'^T q + <k, q> d for n columns from col on; d takes the place of e = S'^T k. */
static inline void step_delta(struct token *t, uint32_t col, uint32_t n, float *restrict e,
                              const float *restrict o) {
    for (uint32_t l = 0; l < n; l++) {
        e[l] = t->beta * (t->v[col + l] - e[l]);
        t->out[col + l] = o[l] + t->kq * e[l];
    }
}

#if CPU_VEC

/* Up to STEP_ROWS rows of the state, from row k on, into the sums. dtype is a constant. */
VEC_FN void step_read(const struct token *t, uint32_t dim, int32_t dtype, uint32_t k,
                      uint32_t n_rows, const uint8_t *src, float *e, float *o) {
    uint64_t size = cpu_dtype_size(dtype);
    vec decay[STEP_ROWS], kk[STEP_ROWS], qk[STEP_ROWS];
    for (uint32_t r = 0; r < n_rows; r++) {
        decay[r] = vec_all(t->decay[k + r]);
        kk[r] = vec_all(t->k[k + r]);
        qk[r] = vec_all(t->q[k + r]);
    }
    for (uint32_t c = 0; c < dim; c += VEC) {
        vec ec = vec_load(e + c), oc = vec_load(o + c);
        for (uint32_t r = 0; r < n_rows; r++) {
            const uint8_t *p = src + ((uint64_t)(k + r) * dim + c) * size;
            vec s = vec_mul(vec_load_as(dtype, p, dim - c), decay[r]);
            ec = vec_fma(s, kk[r], ec);
            oc = vec_fma(s, qk[r], oc);
        }
        vec_store(e + c, ec);
        vec_store(o + c, oc);
    }
}

VEC_FN void step_write(const struct token *t, uint32_t dim, int32_t dtype, const uint8_t *src,
                       uint8_t *dst, const float *d) {
    uint64_t size = cpu_dtype_size(dtype);
    for (uint32_t k = 0; k < dim; k++) {
        vec decay = vec_all(t->decay[k]), kk = vec_all(t->k[k]);
        for (uint32_t c = 0; c < dim; c += VEC) {
            uint64_t at = ((uint64_t)k * dim + c) * size;
            vec s = vec_mul(vec_load_as(dtype, src + at, dim - c), decay);
            vec_store_as(dtype, dst + at, vec_fma(kk, vec_load(d + c), s), dim - c);
        }
    }
}

/* Rows follow each other in memory and four of them share the sums that pass by. */
VEC_FN void step_rows(struct token *t, uint32_t dim, int32_t dtype, const void *src, void *dst) {
    float e[KDA_MAX_DIM] = {0}, o[KDA_MAX_DIM] = {0};
    uint32_t k = 0;
    for (; k + STEP_ROWS <= dim; k += STEP_ROWS) step_read(t, dim, dtype, k, STEP_ROWS, src, e, o);
    for (; k < dim; k++) step_read(t, dim, dtype, k, 1, src, e, o);
    step_delta(t, 0, dim, e, o);
    step_write(t, dim, dtype, src, dst, e);
}

static void step_state(struct token *t, uint32_t dim, int32_t dtype, const void *src, void *dst) {
    if (dtype == EBRO_F32) {
        step_rows(t, dim, EBRO_F32, src, dst);
    } else {
        step_rows(t, dim, EBRO_BF16, src, dst);
    }
}

#else

/* Columns [col, col + w), in a tile that stays in the nearest cache. */
static inline void step_columns(struct token *t, uint32_t dim, int32_t dtype, uint32_t col,
                                const uint32_t w, const uint8_t *src, uint8_t *dst) {
    float tile[KDA_MAX_DIM][STEP_COLS];
    float e[STEP_COLS] = {0}, o[STEP_COLS] = {0};
    uint64_t size = cpu_dtype_size(dtype), stride = dim * size;
    for (uint32_t k = 0; k < dim; k++) {
        float *s = tile[k], decay = t->decay[k], kk = t->k[k], qk = t->q[k];
        cpu_load(s, dtype, src + k * stride + col * size, w);
        for (uint32_t l = 0; l < w; l++) {
            s[l] *= decay;
            e[l] += s[l] * kk;
            o[l] += s[l] * qk;
        }
    }
    step_delta(t, col, w, e, o);
    for (uint32_t k = 0; k < dim; k++) {
        float *s = tile[k], kk = t->k[k];
        for (uint32_t l = 0; l < w; l++) s[l] += kk * e[l];
        cpu_store(dst + k * stride + col * size, dtype, s, w);
    }
}

static void step_state(struct token *t, uint32_t dim, int32_t dtype, const void *src, void *dst) {
    for (uint32_t col = 0; col < dim; col += STEP_COLS) {
        if (dim - col < STEP_COLS) {
            step_columns(t, dim, dtype, col, dim - col, src, dst);
        } else if (dtype == EBRO_F32) {
            step_columns(t, dim, EBRO_F32, col, STEP_COLS, src, dst);
        } else {
            step_columns(t, dim, EBRO_BF16, col, STEP_COLS, src, dst);
        }
    }
}

#endif

/* One head's weights, widened once for all rows. */
struct head {
    float conv[3][KDA_TAPS][KDA_MAX_DIM];
    float norm[KDA_MAX_DIM];
    struct kda_gate_head gate;
    uint32_t h;
};

static void load_token(struct token *t, const ebro_kda_step_args *a, struct head *head,
                       const float *const windows[3], uint32_t begin, uint32_t row) {
    uint32_t dim = a->gate.head_dim, n_channels = a->gate.n_heads * dim;
    uint64_t first = (uint64_t)head->h * dim;
    float *to[3] = {t->q, t->k, t->v};
    for (uint32_t i = 0; i < 3; i++) {
        kda_conv_line(to[i], &a->x[i], windows[i], n_channels, begin, row, first, head->conv[i],
                      dim);
    }
    kda_normalise(t->q, t->q, dim, a->gate.l2_eps, 1.0f / sqrtf((float)dim));
    kda_normalise(t->k, t->k, dim, a->gate.l2_eps, 1.0f);
    kda_gate_row(t->decay, &a->gate, &head->gate, head->h, row);
    for (uint32_t c = 0; c < dim; c++) t->decay[c] = micro_exp_neg(t->decay[c]);
    t->beta = kda_beta(&a->gate, head->h, row);
    t->kq = micro_dot(t->k, t->q, dim);
}

static void store_out(const struct token *t, const ebro_kda_step_args *a, const struct head *head,
                      uint32_t row) {
    uint32_t dim = a->gate.head_dim;
    const float *gate = eb_mat_row(&a->out_gate, row) + (uint64_t)head->h * dim;
    float *out = eb_mat_row(&a->out, row) + (uint64_t)head->h * dim;
    float inv = 1.0f / sqrtf(micro_sum_squares(t->out, dim) / (float)dim + a->norm_eps);
    for (uint32_t c = 0; c < dim; c++) {
        out[c] = t->out[c] * inv * head->norm[c] * micro_sigmoid(gate[c]);
    }
}

/* All rows of one sequence for one head. */
static void run_head(const ebro_kda_step_args *a, struct head *head, const struct kda_seq *seq,
                     const float *const windows[3], void *spare) {
    struct token t;
    uint32_t dim = a->gate.head_dim;
    const ebro_region *region = &a->state.region;
    uint64_t bytes = (uint64_t)dim * dim * cpu_dtype_size(region->dtype);
    const void *src = kda_unit(region, seq->in, head->h);
    void *dst = kda_unit(region, seq->out, head->h);
    if (!dst) dst = spare;
    if (!src) {
        memset(dst, 0, bytes);
        src = dst;
    }
    for (uint32_t row = seq->begin; row < seq->end; row++) {
        load_token(&t, a, head, windows, seq->begin, row);
        step_state(&t, dim, region->dtype, src, dst);
        store_out(&t, a, head, row);
        src = dst;
        int32_t emit = kda_emit_slot(&a->state, row);
        if (emit >= 0) kda_unit_copy(kda_unit(region, emit, head->h), dst, bytes);
    }
}

uint64_t cpu_scratch_kda_step(ebro_dev *dev, const ebro_kda_step_args *a) {
    /* One head's state for each thread, where a sequence has no slot to write to. */
    return dev->n_threads * (uint64_t)a->gate.head_dim * a->gate.head_dim * sizeof(float);
}

static void step_head(void *user, uint64_t item, uint32_t thread) {
    const ebro_kda_step_args *a = user;
    uint32_t dim = a->gate.head_dim, h = (uint32_t)item;
    const ebro_region *region = &a->state.region;
    float *spare = (float *)eb_at(a->scratch) + (uint64_t)thread * dim * dim;
    struct head head = {.h = h};
    cpu_load_vec(head.norm, &a->norm_weight, 0, dim);
    kda_gate_load(&head.gate, &a->gate, h);
    for (uint32_t i = 0; i < 3; i++) {
        kda_conv_weights(head.conv[i], &a->conv_weight[i], (uint64_t)h * dim, dim);
    }
    for (uint32_t q = 0; q < a->rows.n_seqs; q++) {
        struct kda_seq seq = kda_seq_at(&a->rows, &a->state, q);
        int32_t slot = kda_seq_at(&a->rows, &a->windows, q).in;
        const float *windows[3];
        for (uint32_t i = 0; i < 3; i++) windows[i] = kda_unit(&a->windows.region, slot, i);
        if (seq.begin < seq.end) {
            run_head(a, &head, &seq, windows, spare);
        } else {
            kda_unit_copy(kda_unit(region, seq.out, h), kda_unit(region, seq.in, h),
                          (uint64_t)dim * dim * cpu_dtype_size(region->dtype));
        }
    }
}

int32_t cpu_kda_step(ebro_stream *s, const ebro_kda_step_args *a, ebro_error *err) {
    uint32_t dim = a->gate.head_dim, n_heads = a->gate.n_heads;
    int32_t st = kda_check_dim(s, "kda_step", dim, err);
    if (st != EBRO_OK) return st;
    ebro_kda_step_args args = *a;
    cpu_parallel(s->dev->pool, n_heads, step_head, &args);
    /* Last, since all heads read the windows and they may be written in place. */
    for (uint32_t q = 0; q < a->rows.n_seqs; q++) {
        struct kda_seq seq = kda_seq_at(&a->rows, &a->windows, q);
        kda_windows_write(&a->windows, a->x, n_heads * dim, &seq);
    }
    return EBRO_OK;
}
