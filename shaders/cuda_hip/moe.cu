/* moe.cu: moe_experts around its products: the plan before, the sum after. */
#include "common/args_moe.h"
#include "memory.cuh"
#include "shapes.h"

/* What the threads before this one have, and in `all` what all have. `parts` is a number of shared
 * memory for each thread. */
static EB_DEVICE unsigned sum_before(unsigned n, unsigned *parts, unsigned &all) {
    sync_block();
    parts[thread_id()] = n;
    for (unsigned by = 1; by < n_threads(); by *= 2) {
        sync_block();
        unsigned before = thread_id() >= by ? parts[thread_id() - by] : 0;
        sync_block();
        parts[thread_id()] += before;
    }
    sync_block();
    all = parts[n_threads() - 1];
    return parts[thread_id()] - n;
}

/* Cuts the slots of every expert into blocks of at most A.rows. One block: experts are taken as
 * many at a time as it has threads. */
EB_KERNEL(eb_moe_plan_plain, eb_moe_plan_args, EB_MOE_PLAN_THREADS) {
    EB_SHARED(unsigned, parts, [EB_MOE_PLAN_THREADS]);
    const unsigned *offsets = at<const unsigned>(A.offsets);
    eb_moe_block *plan = at<eb_moe_block>(A.plan);
    unsigned done = 0; /* blocks */
    for (unsigned e0 = 0; e0 < A.n_experts; e0 += n_threads()) {
        unsigned e = e0 + thread_id(), begin = 0, end = 0, all;
        if (e < A.n_experts) {
            begin = offsets[e];
            end = offsets[e + 1];
        }
        unsigned n = (end - begin + A.rows - 1) / A.rows;
        unsigned first = done + sum_before(n, parts, all);
        for (unsigned i = 0; i < n && first + i < A.n_blocks; i++) {
            unsigned slot = begin + i * A.rows;
            plan[first + i] = {e, slot, end - slot < A.rows ? end - slot : A.rows, 0};
        }
        done += all;
    }
    for (unsigned i = done + thread_id(); i < A.n_blocks; i += n_threads()) plan[i] = {0, 0, 0, 0};
}

/* Adds up what the experts of a row gave, in the order of its choices. A weight of 0 leaves its
 * product out: a choice that is no expert has none. */
EB_KERNEL(eb_moe_sum_plain, eb_moe_sum_args, EB_MOE_SUM_THREADS) {
    constexpr unsigned DEPTH = 8; /* loads under way */
    unsigned row = block_id() / A.n_chunks;
    unsigned c = block_id() % A.n_chunks * n_threads() + thread_id();
    if (c >= A.n_cols) return;
    const float *weights = row_of(A.weights, row);
    const float *y = at<const float>(A.y) + (unsigned long long)row * A.top_k * A.n_cols + c;
    float *out = row_of(A.dst, row) + c, sum = *out;
    for (unsigned k0 = 0; k0 < A.top_k; k0 += DEPTH) {
        float held[DEPTH];
        EB_UNROLL
        for (unsigned j = 0; j < DEPTH; j++) {
            unsigned k = k0 + j < A.top_k ? k0 + j : A.top_k - 1;
            held[j] = y[(unsigned long long)k * A.n_cols];
        }
        EB_UNROLL
        for (unsigned j = 0; j < DEPTH; j++) {
            float w = k0 + j < A.top_k ? weights[k0 + j] : 0.0f;
            if (w != 0.0f) sum += w * held[j];
        }
    }
    *out = sum;
}
