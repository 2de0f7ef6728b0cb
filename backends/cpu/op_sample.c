/* op_sample.c: one token from one row of logits. Probabilities are relative to the largest one;
 * their sums are double, since a vocabulary has more entries than f32 has room to add up. */
#include <stdbool.h>

#include "cpu.h"

/* What is kept: everything better than or equal to (logit, id), with a probability of at least
 * `least` times the largest. */
struct cut {
    float logit;
    int32_t id;
    float least;
};

struct row {
    const float *logits;
    uint32_t n;
    float max, temperature;
};

/* More probable, ties to the lower id. */
static bool better(const float *logits, int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

static float probability(const struct row *w, float logit) {
    return expf((logit - w->max) / w->temperature);
}

/* -1 where a logit is not finite. */
static int32_t argmax(const float *logits, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(logits[i])) return -1;
        if (logits[i] > logits[best]) best = i;
    }
    return (int32_t)best;
}

/* Restores the heap (best at the top) below position `at`. */
static void sift_down(const float *logits, int32_t *heap, uint32_t n, uint32_t at) {
    int32_t id = heap[at];
    for (uint32_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && better(logits, heap[child + 1], heap[child])) child++;
        if (!better(logits, heap[child], id)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = id;
}

/* The last id that top_k and top_p keep. Ids leave a heap one by one, best first, so that only as
 * many are sorted as are kept. */
static int32_t last_kept(const struct row *w, const ebro_sample_params *p, int32_t *heap) {
    uint32_t n = w->n, k = p->top_k > 0 && p->top_k < n ? p->top_k : n;
    bool nucleus = p->top_p > 0.0f && p->top_p < 1.0f;
    for (uint32_t i = 0; i < n; i++) heap[i] = (int32_t)i;
    for (uint32_t i = n / 2; i-- > 0;) sift_down(w->logits, heap, n, i);

    double mass = 0.0;
    for (uint32_t i = 0; nucleus && k == n && i < n; i++) {
        mass += (double)probability(w, w->logits[i]);
    }
    /* What is popped goes behind the heap: heap[n - 1] is the best, heap[n - 2] the next, ... */
    double sum = 0.0;
    int32_t last = heap[0];
    for (uint32_t i = 0; i < k; i++) {
        last = heap[0];
        heap[0] = heap[n - 1 - i];
        heap[n - 1 - i] = last;
        sift_down(w->logits, heap, n - 1 - i, 0);
        sum += (double)probability(w, w->logits[last]);
        if (nucleus && k == n && sum >= (double)p->top_p * mass) return last;
    }
    if (!nucleus) return last;
    mass = sum;
    sum = 0.0;
    for (uint32_t i = 0; i < k; i++) {
        last = heap[n - 1 - i];
        sum += (double)probability(w, w->logits[last]);
        if (sum >= (double)p->top_p * mass) break;
    }
    return last;
}

/* Probability of id, 0 where the cut drops it. */
static double kept(const struct row *w, const struct cut *c, uint32_t id) {
    float logit = w->logits[id];
    if (logit < c->logit || (logit == c->logit && (int32_t)id > c->id)) return 0.0;
    float p = probability(w, logit);
    return p >= c->least ? (double)p : 0.0;
}

static int32_t draw(const struct row *w, const struct cut *c, float u) {
    double mass = 0.0, sum = 0.0;
    for (uint32_t i = 0; i < w->n; i++) mass += kept(w, c, i);
    int32_t last = -1;
    for (uint32_t i = 0; i < w->n; i++) {
        double p = kept(w, c, i);
        if (p == 0.0) continue;
        last = (int32_t)i;
        sum += p;
        if (sum > (double)u * mass) break;
    }
    return last;
}

static bool needs_heap(const ebro_sample_params *p, uint32_t vocab) {
    return p->temperature > 0.0f &&
           ((p->top_k > 0 && p->top_k < vocab) || (p->top_p > 0.0f && p->top_p < 1.0f));
}

static int32_t sample_row(const float *logits, uint32_t n, const ebro_sample_params *p,
                          int32_t *heap) {
    int32_t best = argmax(logits, n);
    if (best < 0 || !(p->temperature > 0.0f)) return best;
    struct row w = {logits, n, logits[best], p->temperature};
    struct cut c = {-INFINITY, 0, p->min_p > 1.0f ? 1.0f : p->min_p > 0.0f ? p->min_p : 0.0f};
    if (needs_heap(p, n)) {
        c.id = last_kept(&w, p, heap);
        c.logit = logits[c.id];
    }
    return draw(&w, &c, ebro_uniform(p->seed, p->position));
}

/* One row at a time is changed, in the scratch. */
uint64_t cpu_scratch_sample(ebro_dev *dev, const ebro_sample_args *a) {
    (void)dev;
    return a->n_adjusts > 0 ? (uint64_t)a->vocab * sizeof(float) : 0;
}

/* The row as it is to be sampled from. */
static const float *adjusted(const ebro_sample_args *a, uint32_t r) {
    const float *logits = eb_mat_row(&a->logits, r);
    if (a->n_adjusts == 0) return logits;
    const int32_t *offsets = eb_at(a->adjust_offsets);
    const ebro_logit_adjust *adjusts = eb_at(a->adjusts);
    if (offsets[r] == offsets[r + 1]) return logits;
    float *row = eb_at(a->scratch);
    memcpy(row, logits, a->vocab * sizeof *row);
    for (int32_t i = offsets[r]; i < offsets[r + 1]; i++) {
        const ebro_logit_adjust *j = &adjusts[i];
        if (j->id < 0 || (uint32_t)j->id >= a->vocab) continue;
        float x = row[j->id];
        row[j->id] = (x > 0.0f ? x / j->repeat : x * j->repeat) + j->add;
    }
    return row;
}

int32_t cpu_sample(ebro_stream *s, const ebro_sample_args *a, ebro_error *err) {
    const ebro_host *host = s->dev->host;
    const ebro_sample_params *params = eb_at(a->params);
    int32_t *ids = eb_at(a->ids), *heap = NULL;
    for (uint32_t r = 0; r < a->n_rows; r++) {
        if (!heap && needs_heap(&params[r], a->vocab)) {
            heap = host->realloc(host->user, NULL, a->vocab * sizeof *heap);
            if (!heap) {
                return host->fail(err, EBRO_NOMEM_HOST, "sample: no %zu bytes to sort %u logits",
                                  a->vocab * sizeof *heap, a->vocab);
            }
        }
        ids[r] = sample_row(adjusted(a, r), a->vocab, &params[r], heap);
    }
    if (heap) (void)host->realloc(host->user, heap, 0);
    return EBRO_OK;
}
