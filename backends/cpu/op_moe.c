/* op_moe.c: moe_route and moe_experts. */
#include "cpu.h"

enum { N_PAIRS = 64 }; /* (row, expert) pairs that moe_experts works on at a time */

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

/* One expert over up to N_PAIRS of its pairs. */
static void expert_pairs(const ebro_moe_experts_args *a, uint32_t e, const int32_t *pairs,
                         uint64_t n) {
    struct cpu_matrix w1 = expert_matrix(a, 0, e), w3 = expert_matrix(a, 1, e),
                      w2 = expert_matrix(a, 2, e);
    float *x = eb_at(a->scratch), *y = x + n * a->in_dim, *gate = y + n * a->in_dim,
          *up = gate + n * a->inner_dim;
    for (uint64_t i = 0; i < n; i++) {
        memcpy(x + i * a->in_dim, eb_mat_row(&a->x, (uint32_t)pairs[i] / a->top_k),
               a->in_dim * sizeof *x);
    }
    cpu_product(&w1, x, a->in_dim, n, gate, a->inner_dim, 0);
    cpu_product(&w3, x, a->in_dim, n, up, a->inner_dim, 0);
    for (uint64_t i = 0; i < n * a->inner_dim; i++) {
        gate[i] = cpu_act(a->act, a->beta, a->beta2, gate[i], up[i]);
    }
    cpu_product(&w2, gate, a->inner_dim, n, y, a->in_dim, 0);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t row = (uint32_t)pairs[i] / a->top_k, choice = (uint32_t)pairs[i] % a->top_k;
        cpu_axpy(eb_mat_row(&a->out, row), eb_mat_row(&a->weights, row)[choice], y + i * a->in_dim,
                 a->in_dim);
    }
}

int32_t cpu_moe_experts(ebro_stream *s, const ebro_moe_experts_args *a, ebro_error *err) {
    (void)s;
    (void)err;
    const int32_t *offsets = eb_at(a->offsets), *pairs = eb_at(a->pairs);
    /* Experts rise, so a row sums its experts in the same order whatever rows are beside it. */
    for (uint32_t e = 0; e < a->n_experts; e++) {
        for (int32_t p = offsets[e]; p < offsets[e + 1]; p += N_PAIRS) {
            int32_t n = offsets[e + 1] - p < N_PAIRS ? offsets[e + 1] - p : N_PAIRS;
            expert_pairs(a, e, pairs + p, (uint64_t)n);
        }
    }
    return EBRO_OK;
}
