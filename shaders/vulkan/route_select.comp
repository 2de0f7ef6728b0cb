#version 450
/* route_select: a row's experts and their weights. One workgroup per row; the best expert is taken
 * top_k times, each the best of those that rank below the last one, so that nothing is marked. A
 * row that is alone is grouped by expert at once. */
#extension GL_GOOGLE_include_directive : require
#define EB_REDUCE
#define EB_ORDER_REDUCE
#define EB_ARGS eb_route_args
#include "common/args_route.h"
#include "common.glsl"
#include "math.glsl"
#include "order.glsl"

#define MOST_HELD 8u
layout(constant_id = 2) const uint HELD = 1; /* keys in a thread's registers */

uvec2 logits;

float score(uint e) {
    return sigmoid(PF32(logits).v[e]);
}

float biased_score(uint e) {
    return score(e) + (absent(A.bias.at) ? 0.0 : load(A.bias.at, e, A.bias.dtype));
}

/* Keys of the first of this thread's experts, THREAD + i * THREADS; more are computed anew. */
uint keys[MOST_HELD];

void hold_keys() {
    [[unroll]] for (uint i = 0u; i < MOST_HELD; i++) {
        uint e = THREAD + i * THREADS;
        if (i < HELD && e < A.n_experts) keys[i] = order_key(biased_score(e));
    }
}

void consider(inout uvec2 best, uvec2 last, uint key, uint e) {
    uvec2 c = uvec2(key, ~e);
    if (ranks_above(last, c) && ranks_above(c, best)) best = c;
}

/* This thread's best expert that ranks below `last`. */
uvec2 candidate(uvec2 last) {
    uvec2 best = uvec2(0u);
    [[unroll]] for (uint i = 0u; i < MOST_HELD; i++) {
        uint e = THREAD + i * THREADS;
        if (i < HELD && e < A.n_experts) consider(best, last, keys[i], e);
    }
    for (uint e = THREAD + HELD * THREADS; e < A.n_experts; e += THREADS) {
        consider(best, last, order_key(biased_score(e)), e);
    }
    return best;
}

/* Choice k is written by thread k % THREADS, which alone reads it again. */
void select_experts(uvec2 ids) {
    hold_keys();
    uvec2 own = candidate(uvec2(0xffffffffu));
    for (uint k = 0u; k < A.top_k; k++) {
        uvec2 best = group_best(own);
        if (k % THREADS == THREAD) PI32(ids).v[k] = int(~best.y);
        if (best == own) own = candidate(best);
    }
}

/* Before scaling. Ids that are an input may be anything. */
float weight(uint e) {
    if (e >= A.n_experts) return 0.0;
    return A.biased_weights != 0u ? biased_score(e) : score(e);
}

shared uint chosen[EB_ROUTE_SHORT];

/* offsets and pairs of one row. */
void group_row(uvec2 ids) {
    barrier();
    for (uint k = THREAD; k < A.top_k; k += THREADS) chosen[k] = PU32(ids).v[k];
    barrier();
    for (uint e = THREAD; e <= A.n_experts; e += THREADS) {
        uint before = 0u;
        for (uint k = 0u; k < A.top_k; k++) before += uint(chosen[k] < e);
        PU32(A.offsets).v[e] = before;
    }
    for (uint k = THREAD; k < A.top_k; k += THREADS) {
        uint place = 0u, own = chosen[k];
        if (own >= A.n_experts) continue;
        for (uint j = 0u; j < A.top_k; j++) {
            place += uint(chosen[j] < own || (chosen[j] == own && j < k));
        }
        PU32(A.pairs).v[place] = k;
    }
}

void main() {
    if (GROUP >= push.n_groups) return;
    logits = row_of(eb_mat_arg(A.logits, A.n_experts, F32), GROUP);
    uvec2 ids = row_of(A.ids, GROUP), weights = row_of(A.weights, GROUP);
    if (A.forced == 0u) select_experts(ids);
    float sum = 0.0;
    for (uint k = THREAD; k < A.top_k; k += THREADS) sum += weight(PU32(ids).v[k]);
    sum = group_sum(sum);
    float factor = A.renormalise != 0u ? A.scaling / (sum + 1e-20) : A.scaling;
    for (uint k = THREAD; k < A.top_k; k += THREADS) {
        PF32(weights).v[k] = weight(PU32(ids).v[k]) * factor;
    }
    if (!absent(A.offsets)) group_row(ids);
}
