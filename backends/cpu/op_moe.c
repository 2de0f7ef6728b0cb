/* op_moe.c: moe_route and moe_experts. */
#include <stdbool.h>

#include "cpu.h"

enum {
    N_PAIRS = 1024,        /* (row, expert) pairs that moe_experts works on at a time */
    N_COLUMNS = 128,       /* columns of `out` that an item adds to */
    MIN_PARALLEL = 1 << 13 /* floats or products below which a loop stays on its thread */
};

/* ---- route ------------------------------------------------------------------------------ */

/* Bias widened [n_experts], then scores [n_rows][n_experts]. */
uint64_t cpu_scratch_moe_route(ebro_dev *dev, const ebro_moe_route_args *a) {
    (void)dev;
    return ((uint64_t)a->n_rows + 1) * a->n_experts * sizeof(float);
}

/* The top_k best of s + bias, best first; ties to the lower index. NaN is worse than any number, so
 * that ids stay in range and distinct whatever comes. */
static void select_experts(const float *s, const float *bias, uint32_t n, uint32_t top_k,
                           int32_t *ids) {
    uint32_t held = 0;
    for (uint32_t e = 0; e < n; e++) {
        float v = s[e] + bias[e];
        uint32_t at = held;
        while (at > 0) {
            uint32_t other = (uint32_t)ids[at - 1];
            float w = s[other] + bias[other];
            if (!(v > w || (isnan(w) && !isnan(v)))) break;
            at--;
        }
        if (at == top_k) continue;
        if (held < top_k) held++;
        memmove(ids + at + 1, ids + at, (held - 1 - at) * sizeof *ids);
        ids[at] = (int32_t)e;
    }
}

static void weigh_experts(const ebro_moe_route_args *a, const float *s, const float *bias,
                          const int32_t *ids, float *weights) {
    float sum = 0.0f;
    for (uint32_t k = 0; k < a->top_k; k++) {
        int32_t e = ids[k];
        weights[k] = 0.0f;
        if (e < 0 || (uint32_t)e >= a->n_experts) continue; /* forced ids may be anything */
        weights[k] = a->biased_weights ? s[e] + bias[e] : s[e];
        sum += weights[k];
    }
    float factor = a->renormalise ? a->scaling / (sum + 1e-20f) : a->scaling;
    for (uint32_t k = 0; k < a->top_k; k++) weights[k] *= factor;
}

/* Counting sort of all pairs by expert. */
static void group_pairs(const ebro_moe_route_args *a) {
    int32_t *offsets = eb_at(a->offsets), *pairs = eb_at(a->pairs);
    uint32_t n = a->n_experts;
    memset(offsets, 0, ((uint64_t)n + 1) * sizeof *offsets);
    for (int32_t pass = 0; pass < 2; pass++) {
        for (uint32_t r = 0; r < a->n_rows; r++) {
            const int32_t *ids = eb_mat_row_i32(&a->ids, r);
            for (uint32_t k = 0; k < a->top_k; k++) {
                if (ids[k] < 0 || (uint32_t)ids[k] >= n) continue;
                /* First counts, then ends: after the second pass offsets[e] is e's end. */
                int32_t *slot = &offsets[ids[k]];
                if (pass == 1) pairs[*slot] = (int32_t)(r * a->top_k + k);
                ++*slot;
            }
        }
        int32_t before = 0;
        for (uint32_t e = 0; pass == 0 && e < n; e++) {
            int32_t count = offsets[e];
            offsets[e] = before;
            before += count;
        }
    }
    memmove(offsets + 1, offsets, n * sizeof *offsets);
    offsets[0] = 0;
}

int32_t cpu_moe_route(ebro_stream *s, const ebro_moe_route_args *a, ebro_error *err) {
    (void)err;
    float *bias = eb_at(a->scratch), *scores = bias + a->n_experts;
    memset(bias, 0, a->n_experts * sizeof *bias);
    if (a->bias.mem) cpu_load_vec(bias, &a->bias, 0, a->n_experts);
    struct cpu_product gate = {.w = cpu_matrix_of(&a->gate, 0, 0),
                               .x = eb_mat_row(&a->x, 0),
                               .x_stride = a->x.stride,
                               .n_rows = a->n_rows,
                               .y = scores,
                               .y_stride = a->n_experts};
    cpu_products(s->dev, &gate, &(struct cpu_batch){0}, 1, 1);
    for (uint32_t r = 0; r < a->n_rows; r++) {
        float *row = scores + (uint64_t)r * a->n_experts;
        int32_t *ids = eb_mat_row_i32(&a->ids, r);
        for (uint32_t e = 0; e < a->n_experts; e++) row[e] = cpu_sigmoid(row[e]);
        if (!a->forced) select_experts(row, bias, a->n_experts, a->top_k, ids);
        weigh_experts(a, row, bias, ids, eb_mat_row(&a->weights, r));
    }
    group_pairs(a);
    return EBRO_OK;
}

/* ---- experts ---------------------------------------------------------------------------- */

/* Gathered x and y [pairs][in_dim], w1 and w3 products [pairs][inner_dim]. */
uint64_t cpu_scratch_moe_experts(ebro_dev *dev, const ebro_moe_experts_args *a) {
    (void)dev;
    uint64_t pairs = (uint64_t)a->n_rows * a->top_k;
    if (pairs > N_PAIRS) pairs = N_PAIRS;
    return pairs * 2 * ((uint64_t)a->in_dim + a->inner_dim) * sizeof(float);
}

static struct cpu_matrix expert_matrix(const ebro_moe_experts_args *a, uint32_t part, uint32_t e) {
    uint64_t at = (uint64_t)part * a->n_experts + e;
    struct cpu_matrix m = {
        .data = eb_address(((const uint64_t *)eb_at(a->tables))[at]),
        .rows = part == 2 ? a->in_dim : a->inner_dim,
        .cols = part == 2 ? a->inner_dim : a->in_dim,
        .dtype = a->dtype,
    };
    m.stride = m.cols;
    if (a->dtype == EBRO_MXFP4) {
        m.scale = eb_address(((const uint64_t *)eb_at(a->scale_tables))[at]);
    }
    return m;
}

/* A window of up to N_PAIRS pairs, in order of their experts. Per expert with pairs in it: gather
 * x; w1, w3 and the activation; w2. Items of the middle loops are (expert, part of the outputs). */
struct window {
    const ebro_moe_experts_args *a;
    const int32_t *pairs; /* of the window */
    uint64_t n;
    float *x, *y, *gate, *up;
    uint32_t first; /* expert of the first pair */
    int32_t begin;  /* place of the first pair among all */
    uint64_t n_parts;
};

/* The window's pairs of one expert: [*begin, *begin + result). */
static uint64_t pairs_of(const struct window *w, uint64_t expert, uint64_t *begin) {
    const int32_t *offsets = eb_at(w->a->offsets);
    int32_t from = offsets[expert] - w->begin, to = offsets[expert + 1] - w->begin;
    if (from < 0) from = 0;
    if (to > (int32_t)w->n) to = (int32_t)w->n;
    *begin = (uint64_t)from;
    return to > from ? (uint64_t)(to - from) : 0;
}

static void gather_item(void *user, uint64_t item, uint32_t thread) {
    const struct window *w = user;
    const ebro_moe_experts_args *a = w->a;
    (void)thread;
    memcpy(w->x + item * a->in_dim, eb_mat_row(&a->x, (uint32_t)w->pairs[item] / a->top_k),
           a->in_dim * sizeof *w->x);
}

/* Where part `part` of `outputs` begins, and its length. */
static uint64_t part_of(uint64_t part, uint64_t outputs, uint64_t *n) {
    uint64_t out0 = part * CPU_PART_OUT;
    *n = outputs - out0 < CPU_PART_OUT ? outputs - out0 : CPU_PART_OUT;
    return out0;
}

static void inner_item(void *user, uint64_t item, uint32_t thread) {
    const struct window *w = user;
    const ebro_moe_experts_args *a = w->a;
    uint32_t e = w->first + (uint32_t)(item / w->n_parts);
    uint64_t at, n_out, n = pairs_of(w, e, &at);
    uint64_t out0 = part_of(item % w->n_parts, a->inner_dim, &n_out);
    (void)thread;
    if (n == 0) return;
    float *gate = w->gate + at * a->inner_dim, *up = w->up + at * a->inner_dim;
    struct cpu_product p = {.w = expert_matrix(a, 0, e),
                            .x = w->x + at * a->in_dim,
                            .x_stride = a->in_dim,
                            .n_rows = n,
                            .y = gate,
                            .y_stride = a->inner_dim};
    cpu_product_part(&p, out0, n_out);
    p.w = expert_matrix(a, 1, e);
    p.y = up;
    cpu_product_part(&p, out0, n_out);
    for (uint64_t i = 0; i < n; i++) {
        float *g = gate + i * a->inner_dim + out0;
        cpu_act_row(a->act, a->beta, a->beta2, g, up + i * a->inner_dim + out0, g, n_out);
    }
}

static void outer_item(void *user, uint64_t item, uint32_t thread) {
    const struct window *w = user;
    const ebro_moe_experts_args *a = w->a;
    uint32_t e = w->first + (uint32_t)(item / w->n_parts);
    uint64_t at, n_out, n = pairs_of(w, e, &at);
    uint64_t out0 = part_of(item % w->n_parts, a->in_dim, &n_out);
    (void)thread;
    if (n == 0) return;
    struct cpu_product p = {.w = expert_matrix(a, 2, e),
                            .x = w->gate + at * a->inner_dim,
                            .x_stride = a->inner_dim,
                            .n_rows = n,
                            .y = w->y + at * a->in_dim,
                            .y_stride = a->in_dim};
    cpu_product_part(&p, out0, n_out);
}

/* Some columns of all pairs. Experts rise, so a row sums its experts in the same order whatever
 * rows are beside it. */
static void add_item(void *user, uint64_t item, uint32_t thread) {
    const struct window *w = user;
    const ebro_moe_experts_args *a = w->a;
    uint64_t col = item * N_COLUMNS;
    uint64_t n = a->in_dim - col < N_COLUMNS ? a->in_dim - col : N_COLUMNS;
    (void)thread;
    for (uint64_t i = 0; i < w->n; i++) {
        uint32_t row = (uint32_t)w->pairs[i] / a->top_k, choice = (uint32_t)w->pairs[i] % a->top_k;
        cpu_axpy(eb_mat_row(&a->out, row) + col, eb_mat_row(&a->weights, row)[choice],
                 w->y + i * a->in_dim + col, n);
    }
}

static void loop(ebro_dev *dev, bool wide, uint64_t n, cpu_item_fn fn, struct window *w) {
    if (wide) {
        cpu_parallel(dev->pool, n, fn, w);
    } else {
        for (uint64_t i = 0; i < n; i++) fn(w, i, 0);
    }
}

static void run_window(ebro_dev *dev, struct window *w, uint64_t n_experts) {
    const ebro_moe_experts_args *a = w->a;
    uint64_t moved = w->n * a->in_dim, work = moved * a->inner_dim;
    w->x = eb_at(a->scratch);
    w->y = w->x + moved;
    w->gate = w->y + moved;
    w->up = w->gate + w->n * a->inner_dim;
    loop(dev, moved >= MIN_PARALLEL, w->n, gather_item, w);
    w->n_parts = ((uint64_t)a->inner_dim + CPU_PART_OUT - 1) / CPU_PART_OUT;
    loop(dev, work >= MIN_PARALLEL, n_experts * w->n_parts, inner_item, w);
    w->n_parts = ((uint64_t)a->in_dim + CPU_PART_OUT - 1) / CPU_PART_OUT;
    loop(dev, work >= MIN_PARALLEL, n_experts * w->n_parts, outer_item, w);
    loop(dev, moved >= MIN_PARALLEL, ((uint64_t)a->in_dim + N_COLUMNS - 1) / N_COLUMNS, add_item,
         w);
}

int32_t cpu_moe_experts(ebro_stream *s, const ebro_moe_experts_args *a, ebro_error *err) {
    (void)err;
    const int32_t *offsets = eb_at(a->offsets), *pairs = eb_at(a->pairs);
    int32_t end = offsets[a->n_experts];
    uint32_t e = 0;
    for (int32_t p = offsets[0]; p < end; p += N_PAIRS) {
        struct window w = {.a = a, .pairs = pairs + p, .begin = p};
        w.n = (uint64_t)(end - p < N_PAIRS ? end - p : N_PAIRS);
        while (offsets[e + 1] <= p) e++;
        uint32_t last = e;
        while (offsets[last + 1] < p + (int32_t)w.n) last++;
        w.first = e;
        run_window(s->dev, &w, (uint64_t)last - e + 1);
    }
    return EBRO_OK;
}
