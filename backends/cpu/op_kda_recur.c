/* op_kda_recur.c: the KDA recurrence over prepared chunks (op_kda_prep.c). Per chunk, with S the
 * state before it: U = T diag(beta) (V - K+ S); O = Q+ S + M U; S <- diag(decay) S + K*^T U. */
#include "kda.h"

static void state_load(float *tile, size_t stride, const void *src, int32_t dtype, uint32_t dim) {
    const uint8_t *p = src;
    for (uint32_t k = 0; k < dim; k++) {
        if (p) {
            cpu_load(tile + k * stride, dtype, p + k * dim * cpu_dtype_size(dtype), dim);
        } else {
            memset(tile + k * stride, 0, dim * sizeof *tile);
        }
    }
}

static void state_store(void *dst, const float *tile, size_t stride, int32_t dtype, uint32_t dim) {
    uint8_t *p = dst;
    for (uint32_t k = 0; p && k < dim; k++) {
        cpu_store(p + k * dim * cpu_dtype_size(dtype), dtype, tile + k * stride, dim);
    }
}

/* c[n][dim] (+)= a b for a lower triangular [n][KDA_CHUNK]: each row block stops at its diagonal.
 */
static void triangle(uint32_t n, uint32_t dim, const float *a, const float *b, float *c, size_t ldc,
                     enum micro_mode mode) {
    for (uint32_t i = 0; i < n; i += MICRO_ROWS) {
        uint32_t rows = n - i < MICRO_ROWS ? n - i : MICRO_ROWS;
        struct micro_a ai = {a + (size_t)i * KDA_CHUNK, KDA_CHUNK, 1};
        micro_panel(rows, dim, i + rows, ai, b, dim, c + i * ldc, ldc, mode, NULL);
    }
}

struct recur {
    const ebro_kda_recur_args *a;
    float *state; /* [dim][stride] */
    float *x;     /* [KDA_CHUNK][dim]: V - K+ S */
    float *u;     /* the same size */
    size_t stride;
    uint32_t dim;
};

static void chunk_step(const struct recur *w, const struct kda_chunk *c, uint32_t row, uint32_t n,
                       uint32_t h) {
    uint32_t dim = w->dim;
    uint64_t first = (uint64_t)h * dim;
    size_t ldo = w->a->out.stride;
    float *out = eb_mat_row(&w->a->out, row) + first;
    micro_gemm(n, dim, dim, (struct micro_a){c->k_plus, dim, 1}, w->state, w->stride, w->x, dim);
    for (uint32_t i = 0; i < n; i++) {
        const float *v = eb_mat_row(&w->a->v, row + i) + first;
        float *x = w->x + (size_t)i * dim;
        for (uint32_t l = 0; l < dim; l++) x[l] = v[l] - x[l];
    }
    triangle(n, dim, c->t, w->x, w->u, dim, MICRO_SET);
    micro_gemm(n, dim, dim, (struct micro_a){c->q_plus, dim, 1}, w->state, w->stride, out, ldo);
    triangle(n, dim, c->m, w->u, out, ldo, MICRO_ADD);
    micro_panel(dim, dim, n, (struct micro_a){c->k_star, 1, dim}, w->u, dim, w->state, w->stride,
                MICRO_SCALE, c->decay);
}

/* All chunks of one sequence and head; `chunk` is the number of its first one. */
static void run_head(const struct recur *w, const struct kda_work *work, const struct kda_seq *seq,
                     uint64_t chunk, uint32_t h) {
    const ebro_state_io *io = &w->a->state;
    const int32_t *slots = io->n_emit ? eb_at(io->emit_slots) : NULL;
    int32_t dtype = io->region.dtype;
    state_load(w->state, w->stride, kda_unit(&io->region, seq->in, h), dtype, w->dim);
    for (uint32_t row = seq->begin; row < seq->end; chunk++) {
        struct kda_chunk c = kda_chunk_at(work, chunk, h);
        uint32_t end = kda_chunk_end(work, row, seq->end);
        chunk_step(w, &c, row, end - row, h);
        int32_t emit = work->emit[end - 1];
        if (emit >= 0) {
            state_store(kda_unit(&io->region, slots[emit], h), w->state, w->stride, dtype, w->dim);
        }
        row = end;
    }
    state_store(kda_unit(&io->region, seq->out, h), w->state, w->stride, dtype, w->dim);
}

/* Heads of one sequence. */
struct recur_loop {
    const ebro_kda_recur_args *a;
    struct kda_work work;
    struct kda_seq seq;
    uint64_t chunk; /* the sequence's first */
};

static void recur_item(void *user, uint64_t item, uint32_t thread) {
    const struct recur_loop *l = user;
    const ebro_kda_recur_args *a = l->a;
    uint32_t h = (uint32_t)item, dim = a->head_dim;
    const ebro_region *region = &a->state.region;
    if (l->seq.begin == l->seq.end) {
        kda_unit_copy(kda_unit(region, l->seq.out, h), kda_unit(region, l->seq.in, h),
                      (uint64_t)dim * dim * cpu_dtype_size(region->dtype));
        return;
    }
    struct recur w = {.a = a, .stride = kda_tile_stride(dim), .dim = dim};
    w.state = l->work.scratch + thread * kda_scratch_floats(dim);
    w.x = w.state + dim * w.stride;
    w.u = w.x + KDA_CHUNK * (size_t)dim;
    run_head(&w, &l->work, &l->seq, l->chunk, h);
}

int32_t cpu_kda_recur(ebro_stream *s, const ebro_kda_recur_args *a, ebro_error *err) {
    uint32_t dim = a->head_dim;
    int32_t st = kda_check_dim(s, "kda_recur", dim, err);
    if (st != EBRO_OK) return st;
    struct recur_loop l = {
        .a = a, .work = kda_work_at(s->dev, a->work, &a->rows, a->state.n_emit, a->n_heads, dim)};
    for (uint32_t q = 0; q < a->rows.n_seqs; q++) {
        l.seq = kda_seq_at(&a->rows, &a->state, q);
        cpu_parallel(s->dev->pool, a->n_heads, recur_item, &l);
        for (uint32_t row = l.seq.begin; row < l.seq.end; l.chunk++) {
            row = kda_chunk_end(&l.work, row, l.seq.end);
        }
    }
    return EBRO_OK;
}
