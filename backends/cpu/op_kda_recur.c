/* op_kda_recur.c: the KDA recurrence over prepared chunks (op_kda_prep.c). Per chunk, with S the
 * state before it: U = T diag(beta) (V - K+ S); O = Q+ S + M U; S <- diag(decay) S + K*^T U. */
#include "kda.h"
#include "plant.h"

/* Value columns of an item: the columns of a state never meet, and this many stay in the nearest
 * cache with all their rows. */
enum { RECUR_COLS = 32 };

struct recur {
    const ebro_kda_recur_args *a;
    float *state;        /* [dim][RECUR_COLS] */
    float *x;            /* [KDA_CHUNK][RECUR_COLS]: V - K+ S */
    float *u;            /* the same size */
    uint32_t dim, h;     /* h: the head */
    uint32_t col, width; /* the item's columns [col, col + width) */
};

static uint8_t *state_row(const struct recur *w, void *unit, uint32_t k) {
    return (uint8_t *)unit +
           ((uint64_t)k * w->dim + w->col) * cpu_dtype_size(w->a->state.region.dtype);
}

/* Element (k, l) of the item's columns, of a state that lies [value][key]. */
static uint8_t *swapped(const struct recur *w, void *unit, uint32_t k, uint32_t l) {
    return (uint8_t *)unit +
           ((uint64_t)(w->col + l) * w->dim + k) * cpu_dtype_size(w->a->state.region.dtype);
}

static void state_load(const struct recur *w, int32_t slot) {
    void *unit = kda_unit(&w->a->state.region, PLANTED(dropped_carry) ? -1 : slot, w->h);
    for (uint32_t k = 0; k < w->dim; k++) {
        float *row = w->state + (size_t)k * RECUR_COLS;
        if (unit && PLANTED(swapped_layout)) {
            for (uint32_t l = 0; l < w->width; l++)
                cpu_load(row + l, w->a->state.region.dtype, swapped(w, unit, k, l), 1);
        } else if (unit) {
            cpu_load(row, w->a->state.region.dtype, state_row(w, unit, k), w->width);
        } else {
            memset(row, 0, w->width * sizeof *row);
        }
    }
}

static void state_store(const struct recur *w, int32_t slot) {
    void *unit = kda_unit(&w->a->state.region, slot, w->h);
    for (uint32_t k = 0; unit && PLANTED(swapped_layout) && k < w->dim; k++) {
        for (uint32_t l = 0; l < w->width; l++)
            cpu_store(swapped(w, unit, k, l), w->a->state.region.dtype,
                      w->state + (size_t)k * RECUR_COLS + l, 1);
    }
    for (uint32_t k = 0; unit && !PLANTED(swapped_layout) && k < w->dim; k++) {
        cpu_store(state_row(w, unit, k), w->a->state.region.dtype,
                  w->state + (size_t)k * RECUR_COLS, w->width);
    }
}

static struct micro_b columns(const float *p) {
    return (struct micro_b){p, RECUR_COLS, MICRO_COLS};
}

/* c[n][width] (+)= a b for a lower triangular [n][KDA_CHUNK]: each row block stops at its diagonal.
 */
static void triangle(uint32_t n, uint32_t width, const float *a, const float *b, float *c,
                     size_t ldc, enum micro_mode mode) {
    for (uint32_t i = 0; i < n; i += MICRO_ROWS) {
        uint32_t rows = n - i < MICRO_ROWS ? n - i : MICRO_ROWS;
        struct micro_a ai = {a + (size_t)i * KDA_CHUNK, KDA_CHUNK, 1};
        micro_panel(rows, width, i + rows, ai, columns(b), c + i * ldc, ldc, mode, NULL);
    }
}

static void chunk_step(const struct recur *w, const struct kda_chunk *c, uint32_t row, uint32_t n) {
    uint32_t dim = w->dim, width = w->width;
    uint64_t first = (uint64_t)w->h * dim + w->col;
    size_t ldo = w->a->out.stride;
    float *out = eb_mat_row(&w->a->out, row) + first;
    micro_gemm(n, width, dim, (struct micro_a){c->k_plus, dim, 1}, columns(w->state), w->x,
               RECUR_COLS);
    for (uint32_t i = 0; i < n; i++) {
        const float *v = eb_mat_row(&w->a->v, row + i) + first;
        float *x = w->x + (size_t)i * RECUR_COLS;
        for (uint32_t l = 0; l < width; l++) x[l] = v[l] - x[l];
    }
    triangle(n, width, c->t, w->x, w->u, RECUR_COLS, MICRO_SET);
    micro_gemm(n, width, dim, (struct micro_a){c->q_plus, dim, 1}, columns(w->state), out, ldo);
    triangle(n, width, c->m, w->u, out, ldo, MICRO_ADD);
    micro_panel(dim, width, n, (struct micro_a){c->k_star, 1, dim}, columns(w->u), w->state,
                RECUR_COLS, MICRO_SCALE, c->decay);
}

/* All chunks of one sequence and head; `chunk` is the number of its first one. */
static void run_columns(const struct recur *w, const struct kda_work *work,
                        const struct kda_seq *seq, uint64_t chunk) {
    const ebro_state_io *io = &w->a->state;
    const int32_t *slots = io->n_emit ? eb_at(io->emit_slots) : NULL;
    state_load(w, seq->in);
    for (uint32_t row = seq->begin; row < seq->end; chunk++) {
        struct kda_chunk c = kda_chunk_at(work, chunk, w->h);
        uint32_t end = kda_chunk_end(work, row, seq->end);
        chunk_step(w, &c, row, end - row);
        int32_t emit = work->emit[end - 1];
        if (emit >= 0) state_store(w, slots[emit]);
        row = end;
    }
    state_store(w, seq->out);
}

/* One sequence: its heads by blocks of columns. */
struct recur_loop {
    const ebro_kda_recur_args *a;
    struct kda_work work;
    struct kda_seq seq;
    uint64_t chunk; /* the sequence's first */
    uint32_t n_blocks;
};

static void recur_item(void *user, uint64_t item, uint32_t thread) {
    const struct recur_loop *l = user;
    const ebro_kda_recur_args *a = l->a;
    uint32_t dim = a->head_dim, h = (uint32_t)(item / l->n_blocks);
    uint32_t col = (uint32_t)(item % l->n_blocks) * RECUR_COLS;
    const ebro_region *region = &a->state.region;
    if (l->seq.begin == l->seq.end) {
        if (col > 0) return;
        kda_unit_copy(kda_unit(region, l->seq.out, h), kda_unit(region, l->seq.in, h),
                      (uint64_t)dim * dim * cpu_dtype_size(region->dtype));
        return;
    }
    struct recur w = {.a = a, .dim = dim, .h = h, .col = col};
    w.width = dim - col < RECUR_COLS ? dim - col : RECUR_COLS;
    w.state = l->work.scratch + thread * kda_scratch_floats(dim);
    w.x = w.state + (size_t)dim * RECUR_COLS;
    w.u = w.x + KDA_CHUNK * RECUR_COLS;
    run_columns(&w, &l->work, &l->seq, l->chunk);
}

int32_t cpu_kda_recur(ebro_stream *s, const ebro_kda_recur_args *a, ebro_error *err) {
    uint32_t dim = a->head_dim;
    int32_t st = kda_check_dim(s, "kda_recur", dim, err);
    if (st != EBRO_OK) return st;
    struct recur_loop l = {
        .a = a,
        .work = kda_work_at(s->dev, a->work, &a->rows, a->state.n_emit, a->n_heads, dim),
        .n_blocks = (dim + RECUR_COLS - 1) / RECUR_COLS};
    for (uint32_t q = 0; q < a->rows.n_seqs; q++) {
        l.seq = kda_seq_at(&a->rows, &a->state, q);
        cpu_parallel(s->dev->pool, (uint64_t)a->n_heads * l.n_blocks, recur_item, &l);
        for (uint32_t row = l.seq.begin; row < l.seq.end; l.chunk++) {
            row = kda_chunk_end(&l.work, row, l.seq.end);
        }
    }
    return EBRO_OK;
}
