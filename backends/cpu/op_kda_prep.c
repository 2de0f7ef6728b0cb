/* op_kda_prep.c: everything of a KDA chunk that does not need the state: gates, norms, the decayed
 * keys and queries, M, and T = (I + A)^-1. The state's part is op_kda_recur.c.
 *
 * With G the running sum of the log decays inside the chunk, A and M weigh the pair (i, j) by
 * exp(G_i - G_j), and nothing bounds that from below: the gate may forget everything in one token.
 * exp(G_i) exp(-G_j) would overflow and differences of G would cancel, so neither is formed. The
 * chunk is halved recursively instead: for a block cut after its row r, the pairs (i > r, j <= r)
 * are weighed by P_i Q_j, P_i the product of the decays r + 1 .. i and Q_j that of j + 1 .. r. Both
 * are at most 1 and grow from level to level by one multiplication. */
#include "kda.h"
#include "plant.h"

uint64_t kda_work_bytes(const ebro_dev *dev, const ebro_rows *rows, uint32_t n_emit,
                        uint32_t n_heads, uint32_t dim) {
    uint64_t n_chunks = (uint64_t)rows->n_rows / KDA_CHUNK + rows->n_seqs + n_emit;
    if (n_chunks > rows->n_rows) n_chunks = rows->n_rows;
    uint64_t emit = ((uint64_t)rows->n_rows * sizeof(int32_t) + CPU_ALIGN - 1) / CPU_ALIGN;
    return emit * CPU_ALIGN +
           (n_chunks * n_heads * kda_chunk_floats(dim) + dev->n_threads * kda_scratch_floats(dim)) *
               sizeof(float);
}

struct kda_work kda_work_at(const ebro_dev *dev, ebro_span work, const ebro_rows *rows,
                            uint32_t n_emit, uint32_t n_heads, uint32_t dim) {
    uint64_t bytes = kda_work_bytes(dev, rows, n_emit, n_heads, dim);
    uint64_t emit = ((uint64_t)rows->n_rows * sizeof(int32_t) + CPU_ALIGN - 1) / CPU_ALIGN;
    uint8_t *p = eb_at(work);
    return (struct kda_work){
        .emit = (int32_t *)(void *)p,
        .chunks = (float *)(void *)(p + emit * CPU_ALIGN),
        .scratch = (float *)(void *)(p + bytes) - dev->n_threads * kda_scratch_floats(dim),
        .chunk_floats = kda_chunk_floats(dim),
        .n_heads = n_heads,
        .dim = dim,
    };
}

int32_t kda_check_dim(ebro_stream *s, const char *op, uint32_t dim, ebro_error *err) {
    if (dim >= 1 && dim <= KDA_MAX_DIM) return EBRO_OK;
    return s->dev->host->fail(err, EBRO_UNSUPPORTED, "%s: head_dim is %u, the CPU takes 1 to %d",
                              op, dim, KDA_MAX_DIM);
}

uint64_t cpu_scratch_kda_prep(ebro_dev *dev, const ebro_kda_prep_args *a) {
    return kda_work_bytes(dev, &a->rows, a->n_emit, a->gate.n_heads, a->gate.head_dim);
}

/* The rows of one chunk and head while they are prepared, [KDA_CHUNK][dim] each. */
struct prep {
    float *k, *q;         /* normalised */
    float *p, *r;         /* P and Q of the level */
    float *k_low, *q_low; /* k P and q P of a block's second half */
    float *k_up;          /* k Q of its first half: the upper part of k_low's room */
    float *a;             /* A without beta, then T; [KDA_CHUNK][KDA_CHUNK] */
    float beta[KDA_CHUNK];
    uint32_t n, dim;
};

/* y *= x. Below 1e-37 the product counts as 0: subnormal numbers are slow and carry nothing. */
static void multiply_decay(float *restrict y, const float *restrict x, uint32_t n) {
    for (uint32_t c = 0; c < n; c++) {
        uint32_t u = cpu_to_bits(y[c] * x[c]);
        y[c] = cpu_from_bits(u < 0x02081cebu ? 0u : u);
    }
}

static void multiply(float *restrict y, const float *restrict a, const float *restrict b,
                     uint32_t n) {
    for (uint32_t c = 0; c < n; c++) y[c] = a[c] * b[c];
}

/* Loads, norms and gates; K+, Q+, K* and the chunk's decay; P = exp(g), Q = 1 for the first level.
 * The sums of g are taken from both ends, so that neither holds what the other cancels. */
static void load_rows(struct prep *w, const ebro_kda_prep_args *a, const struct kda_gate_head *gate,
                      uint32_t row, uint32_t h, const struct kda_chunk *out) {
    uint32_t dim = w->dim;
    uint64_t first = (uint64_t)h * dim;
    float scale = 1.0f / sqrtf((float)dim), sum[KDA_MAX_DIM] = {0};
    float *g = w->p; /* [n][dim] until the last loop */
    for (uint32_t i = 0; i < w->n; i++) {
        size_t at = (size_t)i * dim;
        kda_normalise(w->k + at, eb_mat_row(&a->k, row + i) + first, dim, a->gate.l2_eps, 1.0f);
        kda_normalise(w->q + at, eb_mat_row(&a->q, row + i) + first, dim, a->gate.l2_eps, scale);
        for (uint32_t c = 0; PLANTED(unnormalised_q) && c < dim; c++)
            w->q[at + c] = eb_mat_row(&a->q, row + i)[first + c] * scale;
        kda_gate_row(g + at, &a->gate, gate, h, row + i);
        w->beta[i] = kda_beta(&a->gate, h, row + i);
        for (uint32_t c = 0; c < dim; c++) sum[c] += g[at + c];
        for (uint32_t c = 0; c < dim; c++) out->decay[c] = micro_exp_neg(sum[c]);
        multiply(out->k_plus + at, w->k + at, out->decay, dim);
        multiply(out->q_plus + at, w->q + at, out->decay, dim);
    }
    for (uint32_t c = 0; c < dim; c++) sum[c] = 0.0f;
    for (uint32_t i = w->n; i-- > 0;) {
        size_t at = (size_t)i * dim;
        float *gi = g + at, *ki = w->k + at, *star = out->k_star + at;
        for (uint32_t c = 0; c < dim; c++) {
            star[c] = ki[c] * micro_exp_neg(sum[c]);
            sum[c] += gi[c];
            gi[c] = micro_exp_neg(gi[c]);
            w->r[at + c] = 1.0f;
        }
    }
}

/* Pairs of one block: rows [mid, end) against rows [begin, mid). */
static void block_pairs(struct prep *w, float *m, uint32_t begin, uint32_t mid, uint32_t end) {
    uint32_t dim = w->dim, n_low = end - mid;
    for (uint32_t i = 0; i < n_low; i++) {
        size_t at = (size_t)(mid + i) * dim, to = (size_t)i * dim;
        multiply(w->k_low + to, w->k + at, w->p + at, dim);
        multiply(w->q_low + to, w->q + at, w->p + at, dim);
    }
    for (uint32_t j = begin; j < mid; j++) {
        multiply(w->k_up + (size_t)(j - begin) * dim, w->k + (size_t)j * dim,
                 w->r + (size_t)j * dim, dim);
    }
    size_t at = (size_t)mid * KDA_CHUNK + begin;
    micro_dots(n_low, mid - begin, dim, w->k_low, dim, w->k_up, dim, w->a + at, KDA_CHUNK);
    micro_dots(n_low, mid - begin, dim, w->q_low, dim, w->k_up, dim, m + at, KDA_CHUNK);
}

/* P of the second half and Q of the first one grow to the span of the whole block. */
static void block_join(struct prep *w, uint32_t begin, uint32_t mid, uint32_t end) {
    uint32_t dim = w->dim;
    const float *first = w->p + (size_t)(mid - 1) * dim, *second = w->p + (size_t)(end - 1) * dim;
    for (uint32_t j = begin; j < mid; j++) multiply_decay(w->r + (size_t)j * dim, second, dim);
    for (uint32_t i = mid; i < end; i++) multiply_decay(w->p + (size_t)i * dim, first, dim);
}

/* A (without beta) below the diagonal and M up to it. */
static void pairs(struct prep *w, float *m) {
    uint32_t dim = w->dim, n = w->n;
    memset(m, 0, sizeof *m * KDA_CHUNK * KDA_CHUNK);
    for (uint32_t i = 0; i < n; i++) {
        size_t at = (size_t)i * dim;
        m[i * KDA_CHUNK + i] = micro_dot(w->q + at, w->k + at, dim);
    }
    for (uint32_t half = 1; half < n; half *= 2) {
        for (uint32_t begin = 0; begin + half < n; begin += 2 * half) {
            uint32_t end = n - begin < 2 * half ? n : begin + 2 * half;
            block_pairs(w, m, begin, begin + half, end);
            block_join(w, begin, begin + half, end);
        }
    }
}

/* t = (I + diag(beta) A)^-1 diag(beta) by forward substitution, row by row. */
static void invert(struct prep *w, float *t) {
    memset(t, 0, sizeof *t * KDA_CHUNK * KDA_CHUNK);
    for (uint32_t i = 0; i < w->n; i++) {
        float line[KDA_CHUNK] = {0};
        for (uint32_t j = 0; j < i; j++) {
            float x = w->beta[i] * w->a[i * KDA_CHUNK + j];
            for (uint32_t c = 0; c < KDA_CHUNK; c++) line[c] -= x * t[j * KDA_CHUNK + c];
        }
        line[i] = 1.0f;
        memcpy(t + i * KDA_CHUNK, line, sizeof line);
    }
    for (uint32_t i = 0; i < w->n; i++) {
        for (uint32_t c = 0; c < w->n; c++) t[i * KDA_CHUNK + c] *= w->beta[c];
    }
}

/* Marks the rows where chunks must end with their place in the emit list. */
static void mark_emits(const struct kda_work *w, const ebro_kda_prep_args *a) {
    for (uint32_t i = 0; i < a->rows.n_rows; i++) w->emit[i] = -1;
    if (a->n_emit == 0) return;
    const int32_t *rows = eb_at(a->emit_rows);
    for (uint32_t i = 0; i < a->n_emit; i++) w->emit[rows[i]] = (int32_t)i;
}

/* A head's chunks are dealt to n_stripes items in turn, so that few heads can use many threads. */
struct prep_loop {
    const ebro_kda_prep_args *a;
    struct kda_work work;
    uint32_t n_stripes;
};

static void prep_item(void *user, uint64_t item, uint32_t thread) {
    const struct prep_loop *l = user;
    const ebro_kda_prep_args *a = l->a;
    uint32_t dim = a->gate.head_dim, h = (uint32_t)(item / l->n_stripes);
    size_t size = KDA_CHUNK * (size_t)dim;
    float *room = l->work.scratch + thread * kda_scratch_floats(dim);
    struct prep w = {.k = room,
                     .q = room + size,
                     .p = room + 2 * size,
                     .r = room + 3 * size,
                     .k_low = room + 4 * size,
                     .k_up = room + 4 * size + size / 2,
                     .q_low = room + 5 * size,
                     .a = room + 6 * size,
                     .dim = dim};
    const int32_t *offsets = eb_at(a->rows.row_offsets);
    struct kda_gate_head gate;
    uint64_t chunk = 0;
    kda_gate_load(&gate, &a->gate, h);
    for (uint32_t q = 0; q < a->rows.n_seqs; q++) {
        uint32_t row = (uint32_t)offsets[q], end = (uint32_t)offsets[q + 1];
        for (; row < end; row += w.n, chunk++) {
            w.n = kda_chunk_end(&l->work, row, end) - row;
            if (chunk % l->n_stripes != item % l->n_stripes) continue;
            struct kda_chunk out = kda_chunk_at(&l->work, chunk, h);
            load_rows(&w, a, &gate, row, h, &out);
            pairs(&w, out.m);
            invert(&w, out.t);
        }
    }
}

int32_t cpu_kda_prep(ebro_stream *s, const ebro_kda_prep_args *a, ebro_error *err) {
    uint32_t dim = a->gate.head_dim, n_heads = a->gate.n_heads, n_threads = s->dev->n_threads;
    int32_t st = kda_check_dim(s, "kda_prep", dim, err);
    if (st != EBRO_OK) return st;
    struct prep_loop l = {.a = a,
                          .work = kda_work_at(s->dev, a->work, &a->rows, a->n_emit, n_heads, dim)};
    mark_emits(&l.work, a);
    l.n_stripes = n_threads == 1 ? 1 : 1 + 4 * n_threads / n_heads;
    cpu_parallel(s->dev->pool, (uint64_t)n_heads * l.n_stripes, prep_item, &l);
    return EBRO_OK;
}
