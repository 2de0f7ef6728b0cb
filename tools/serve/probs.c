/* probs.c: the probabilities that go with a reply's text: noted when a token is chosen, handed out
 * with the piece in which its text ends. Of the model's own distribution, without temperature,
 * penalties or grammar. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"

static int32_t reserve(struct eb_probs *p, ebro_error *err) {
    if (p->n < p->capacity) return EBRO_OK;
    size_t capacity = 2 * p->capacity + 8;
    struct eb_prob *list = realloc(p->list, capacity * sizeof *list);
    if (list != NULL) p->list = list;
    struct eb_token_info *infos = realloc(p->infos, capacity * sizeof *infos);
    if (infos != NULL) p->infos = infos;
    if (list == NULL || infos == NULL)
        return eb_serve_fail(err, EBRO_NOMEM_HOST, "out of memory for %zu logprobs", capacity);
    p->capacity = capacity;
    return EBRO_OK;
}

/* log(sum(exp(logits))), in float64: some hundred thousand terms of very different sizes. */
static double log_sum(const float *logits, uint32_t n) {
    double most = -INFINITY, sum = 0.0;
    for (uint32_t i = 0; i < n; i++) most = fmax(most, (double)logits[i]);
    for (uint32_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    return most + log(sum);
}

/* The n likeliest, in order; ties: lower id first. */
static void find_top(const float *logits, uint32_t vocab, struct eb_token_prob *top, uint32_t n) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < vocab && n > 0; i++) {
        if (found == n && !(logits[i] > top[n - 1].logprob)) continue;
        uint32_t at = found < n ? found++ : n - 1;
        for (; at > 0 && logits[i] > top[at - 1].logprob; at--) top[at] = top[at - 1];
        top[at] = (struct eb_token_prob){(int32_t)i, logits[i]};
    }
}

/* What the last call handed out is not needed any more. */
static void drop_taken(struct eb_probs *p) {
    if (p->n_taken == 0) return;
    p->n -= p->n_taken;
    memmove(p->list, p->list + p->n_taken, p->n * sizeof *p->list);
    p->n_taken = 0;
}

int32_t eb_probs_add(struct eb_probs *p, const float *logits, uint32_t vocab, int32_t id,
                     uint32_t n_top, size_t begin, size_t end, ebro_error *err) {
    drop_taken(p);
    int32_t st = reserve(p, err);
    if (st != EBRO_OK) return st;
    struct eb_prob *one = &p->list[p->n++];
    double all = log_sum(logits, vocab);
    *one = (struct eb_prob){.begin = begin, .end = end};
    one->chosen = (struct eb_token_prob){id, (float)((double)logits[id] - all)};
    find_top(logits, vocab, one->top, n_top);
    for (uint32_t i = 0; i < n_top; i++)
        one->top[i].logprob = (float)((double)one->top[i].logprob - all);
    return EBRO_OK;
}

void eb_probs_extend(struct eb_probs *p, size_t end) {
    drop_taken(p);
    if (p->n > 0) p->list[p->n - 1].end = end;
}

uint32_t eb_probs_take(struct eb_probs *p, size_t out, uint32_t n_top, bool last,
                       const struct eb_token_info **infos) {
    size_t n = 0;
    drop_taken(p);
    while (n < p->n && (p->list[n].end <= out || (last && p->list[n].begin < out))) n++;
    for (size_t i = 0; i < n; i++) {
        const struct eb_prob *one = &p->list[i];
        p->infos[i] = (struct eb_token_info){one->chosen, n_top, one->top};
    }
    *infos = p->infos;
    p->n_taken = n;
    return (uint32_t)n;
}

void eb_probs_free(struct eb_probs *p) {
    free(p->list);
    free(p->infos);
    *p = (struct eb_probs){0};
}
