/* route.cu: moe_route, from the logits on: the experts of each row and their weights, then the
 * pairs (row * top_k + choice) grouped by expert. */
#include "common/args_route.h"
#include "math.cuh"
#include "memory.cuh"
#include "order.cuh"
#include "shapes.h"

/* ---- the choice: a block takes a row ---------------------------------------------------- */

static EB_DEVICE const float *logits_of(const eb_route_args &a) {
    return at<const float>(a.logits) + (size_t)block_id() * a.n_experts;
}

static EB_DEVICE float score(const eb_route_args &a, unsigned e) {
    return sigmoid(logits_of(a)[e]);
}

static EB_DEVICE float biased_score(const eb_route_args &a, unsigned e) {
    return score(a, e) + (a.bias.at != 0 ? load(a.bias.at, e, a.bias.dtype) : 0.0f);
}

/* Before scaling. Ids that are an input may be anything. */
static EB_DEVICE float weight_of(const eb_route_args &a, unsigned e) {
    if (e >= a.n_experts) return 0.0f;
    return a.biased_weights != 0 ? biased_score(a, e) : score(a, e);
}

/* This thread's best expert that ranks below `last`, of those it holds (its first ones, a block's
 * threads apart) and of those that it computes anew. */
static EB_DEVICE eb_u64 best_below(const eb_route_args &a, const unsigned *held, eb_u64 last) {
    eb_u64 best = 0;
    EB_UNROLL
    for (unsigned i = 0; i < EB_ROUTE_HELD; i++) {
        unsigned e = thread_id() + i * n_threads();
        eb_u64 c = candidate_of(held[i], e);
        if (e < a.n_experts && c < last) best = larger(best, c);
    }
    for (unsigned e = thread_id() + EB_ROUTE_HELD * n_threads(); e < a.n_experts;
         e += n_threads()) {
        eb_u64 c = candidate_of(order_key(biased_score(a, e)), e);
        if (c < last) best = larger(best, c);
    }
    return best;
}

/* The best is taken top_k times, each the best of those below the last one, so that nothing is
 * marked. Choice k is written by thread k % n_threads(), which alone reads it again. */
static EB_DEVICE void select_experts(const eb_route_args &a, int *ids, eb_u64 *parts) {
    unsigned held[EB_ROUTE_HELD];
    EB_UNROLL
    for (unsigned i = 0; i < EB_ROUTE_HELD; i++) {
        unsigned e = thread_id() + i * n_threads();
        held[i] = e < a.n_experts ? order_key(biased_score(a, e)) : 0;
    }
    eb_u64 own = best_below(a, held, ~(eb_u64)0);
    for (unsigned k = 0; k < a.top_k; k++) {
        eb_u64 best = block_largest(own, parts);
        if (k % n_threads() == thread_id()) ids[k] = (int)index_of(best);
        if (best == own) own = best_below(a, held, best);
    }
}

/* offsets and pairs of a row that is alone. */
static EB_DEVICE void group_row(const eb_route_args &a, const int *ids, unsigned *chosen) {
    sync_block();
    for (unsigned k = thread_id(); k < a.top_k; k += n_threads()) chosen[k] = (unsigned)ids[k];
    sync_block();
    for (unsigned e = thread_id(); e <= a.n_experts; e += n_threads()) {
        unsigned before = 0;
        for (unsigned k = 0; k < a.top_k; k++) before += chosen[k] < e;
        at<unsigned>(a.offsets)[e] = before;
    }
    for (unsigned k = thread_id(); k < a.top_k; k += n_threads()) {
        unsigned place = 0, own = chosen[k];
        if (own >= a.n_experts) continue;
        for (unsigned j = 0; j < a.top_k; j++)
            place += chosen[j] < own || (chosen[j] == own && j < k);
        at<unsigned>(a.pairs)[place] = k;
    }
}

EB_KERNEL(eb_route_select_plain, eb_route_args, EB_ROUTE_THREADS) {
    EB_SHARED(eb_u64, parts, [32]);
    EB_SHARED(float, sums, [32]);
    EB_SHARED(unsigned, chosen, [EB_ROUTE_SHORT]);
    int *ids = at<int>(A.ids.at) + (size_t)block_id() * A.ids.stride;
    float *weights = row_of(A.weights, block_id()), sum = 0.0f;
    if (A.forced == 0) select_experts(A, ids, parts);
    for (unsigned k = thread_id(); k < A.top_k; k += n_threads())
        sum += weight_of(A, (unsigned)ids[k]);
    sum = block_sum(sum, sums);
    float factor = A.renormalise != 0 ? A.scaling / (sum + 1e-20f) : A.scaling;
    for (unsigned k = thread_id(); k < A.top_k; k += n_threads())
        weights[k] = weight_of(A, (unsigned)ids[k]) * factor;
    if (A.offsets != 0) group_row(A, ids, chosen);
}

/* ---- the groups: a block takes an expert, one more the end ------------------------------ */

/* The pairs of one expert, rising, behind those of the experts before it. A thread goes through
 * neighbouring rows, so that its pairs lie side by side; nothing depends on which thread is first.
 * Ids out of range stand in no group. */
EB_KERNEL(eb_route_group_plain, eb_route_group_args, EB_ROUTE_GROUP_THREADS) {
    EB_SHARED(unsigned, own_parts, [EB_ROUTE_GROUP_THREADS]);
    EB_SHARED(unsigned, before_parts, [EB_ROUTE_GROUP_THREADS]);
    unsigned expert = block_id(), each = (A.n_rows + n_threads() - 1) / n_threads();
    unsigned first = thread_id() * each, end = first + each;
    if (first > A.n_rows) first = A.n_rows;
    if (end > A.n_rows) end = A.n_rows;
    unsigned own = 0, before = 0;
    for (unsigned r = first; r < end; r++) {
        const unsigned *ids = at<const unsigned>(A.ids.at) + (size_t)r * A.ids.stride;
        for (unsigned k = 0; k < A.top_k; k++) {
            own += ids[k] == expert && expert < A.n_experts;
            before += ids[k] < expert;
        }
    }
    own_parts[thread_id()] = own;
    before_parts[thread_id()] = before;
    sync_block();
    unsigned place = 0;
    for (unsigned t = 0; t < n_threads(); t++) {
        place += before_parts[t];
        if (t < thread_id()) place += own_parts[t];
    }
    /* For thread 0: the pairs of all experts before this one. */
    if (thread_id() == 0) at<unsigned>(A.offsets)[expert] = place;
    if (own == 0) return;
    for (unsigned r = first; r < end; r++) {
        const unsigned *ids = at<const unsigned>(A.ids.at) + (size_t)r * A.ids.stride;
        for (unsigned k = 0; k < A.top_k; k++)
            if (ids[k] == expert) at<unsigned>(A.pairs)[place++] = r * A.top_k + k;
    }
}
