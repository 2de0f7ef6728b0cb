#version 450
/* sample_pick: the token of a row, from what sample_parts and sample_weigh left. One workgroup per
 * row.
 *
 * The cut of top_k and top_p is a place in the order (logit, falling; id, rising). It is looked for
 * bin by bin: which bin holds it follows from the sums; that bin's keys are cut into bins again,
 * until one is kept whole or holds a single key; then the ids decide. The draw is a running sum
 * over ids: over parts, then inside of one. */
#extension GL_GOOGLE_include_directive : require
#define EB_ORDER_REDUCE
#define EB_ARGS eb_sample_args
#include "common/args_sample.h"
#include "common.glsl"
#include "math.glsl"
#include "order.glsl"
#include "rows.glsl"
#include "sample.glsl"

Row row;
Range range;

/* Keys above .x are kept, and those equal to it whose id is at most .y. */
uvec2 cut;

bool is_kept(float logit, uint id) {
    uint key = order_key(logit);
    return key > cut.x || (key == cut.x && id <= cut.y);
}

/* ---- running sums ----------------------------------------------------------------------- */

#define BLOCK 32u /* a workgroup has as many threads or more, and at most 32 blocks */

shared uvec2 sums[1024 + 1024 / BLOCK], block_sums[1024 / BLOCK];

/* One place in BLOCK stays free, so that the blocks' first ones lie in different banks. */
uint place_of(uint thread) {
    return thread + thread / BLOCK;
}

/* Where the running sum over threads reaches `goal`, which is not 0: the thread, the last one where
 * none does; and the sum before it. Called by all threads; all get the result. */
uvec4 reach(uvec2 x, uvec2 goal) {
    barrier();
    sums[place_of(THREAD)] = x;
    barrier();
    if (THREAD < THREADS / BLOCK) {
        uvec2 sum = uvec2(0u);
        for (uint i = 0u; i < BLOCK; i++) sum = plus(sum, sums[place_of(THREAD * BLOCK + i)]);
        block_sums[THREAD] = sum;
    }
    barrier();
    uvec2 before = uvec2(0u);
    uint block = 0u;
    for (; block + 1u < THREADS / BLOCK; block++) {
        uvec2 next = plus(before, block_sums[block]);
        if (!less64(next, goal)) break;
        before = next;
    }
    uint thread = block * BLOCK;
    for (; thread + 1u < (block + 1u) * BLOCK; thread++) {
        uvec2 next = plus(before, sums[place_of(thread)]);
        if (!less64(next, goal)) break;
        before = next;
    }
    return uvec4(thread, 0u, before);
}

/* ---- a choice by id --------------------------------------------------------------------- */

#define KEPT 0u /* counts the probability of what is kept */
#define TIES 1u /* counts those whose key is cut.x */

uvec2 weight(uint what, float logit, uint id) {
    if (what == TIES) return uvec2(order_key(logit) == cut.x ? 1u : 0u, 0u);
    if (!is_kept(logit, id)) return uvec2(0u);
    float p = probability(row, range, logit);
    return p >= least(row) ? fixed_point(p) : uvec2(0u);
}

/* Of ids first .. first + 3 below end. */
uvec2 weight4(uint what, uint first, uint end) {
    uvec2 sum = uvec2(0u);
    if (first >= end) return sum;
    vec4 x = logits4(row, first);
    [[unroll]] for (uint j = 0u; j < 4u; j++) {
        if (first + j < end) sum = plus(sum, weight(what, x[j], first + j));
    }
    return sum;
}

shared uint part_sums[2][EB_SAMPLE_MOST_PARTS];

/* Weights of all parts; returns their sum. */
uvec2 sum_parts(uint what, bool known) {
    for (uint p = THREAD; p < A.n_parts; p += THREADS) {
        uvec2 m = uvec2(0u);
        if (known) m = PUvec2(plus_mul(A.masses, row.row * A.n_parts + p, 8u)).v[0];
        part_sums[0][p] = m.x;
        part_sums[1][p] = m.y;
    }
    barrier();
    if (!known) {
        for (uint p = 0u; p < A.n_parts; p++) {
            uint first = p * A.part_size, end = min(first + A.part_size, A.vocab);
            uvec2 sum = uvec2(0u);
            for (uint i = first + THREAD * 4u; i < end; i += THREADS * 4u) {
                sum = plus(sum, weight4(what, i, end));
            }
            if ((sum.x | sum.y) == 0u) continue;
            uint old = atomicAdd(part_sums[0][p], sum.x);
            uint high = sum.y + (old + sum.x < old ? 1u : 0u);
            if (high != 0u) atomicAdd(part_sums[1][p], high);
        }
    }
    barrier();
    uvec2 all = uvec2(0u);
    for (uint p = 0u; p < A.n_parts; p++) all = plus(all, uvec2(part_sums[0][p], part_sums[1][p]));
    return all;
}

/* The first id at which the running sum of the weights behind sum_parts reaches `goal`. */
uint id_at(uint what, uvec2 goal) {
    /* Which part: a thread has some neighbouring ones. */
    uint each = (A.n_parts + THREADS - 1u) / THREADS;
    uvec2 sum = uvec2(0u);
    for (uint p = THREAD * each; p < min((THREAD + 1u) * each, A.n_parts); p++) {
        sum = plus(sum, uvec2(part_sums[0][p], part_sums[1][p]));
    }
    uvec4 at = reach(sum, goal);
    uint part = at.x * each;
    uvec2 before = at.zw;
    for (uint p = part; p + 1u < min(part + each, A.n_parts); p++) {
        uvec2 next = plus(before, uvec2(part_sums[0][p], part_sums[1][p]));
        if (!less64(next, goal)) break;
        before = next;
        part = p + 1u;
    }
    /* Which thread of it. */
    goal = minus64(goal, before);
    uint span = max(A.part_size / THREADS, 4u);
    uint end = min((part + 1u) * A.part_size, A.vocab), first = part * A.part_size + THREAD * span;
    sum = uvec2(0u);
    for (uint i = 0u; i < span && THREAD * span < A.part_size; i += 4u) {
        sum = plus(sum, weight4(what, first + i, end));
    }
    at = reach(sum, goal);
    first = part * A.part_size + at.x * span;
    sum = at.zw;
    for (uint id = first; id < min(first + span, end); id++) {
        sum = plus(sum, weight(what, PF32(row.at).v[id], id));
        if (!less64(sum, goal)) return id;
    }
    return ~range.best.y; /* not reached: the goal is at most the sum of all */
}

/* ---- the cut ---------------------------------------------------------------------------- */

/* The row's bins over all parts. */
void load_bins() {
    barrier();
    clear_bins();
    for (uint b = THREAD; b < EB_SAMPLE_BINS; b += THREADS) {
        uint n = 0u;
        uvec2 mass = uvec2(0u);
        for (uint p = 0u; p < A.n_parts; p++) {
            PU32 from = PU32(plus_mul(A.bins, row.row * A.n_parts + p, 12u * EB_SAMPLE_BINS));
            n += from.v[b];
            mass = plus(mass, uvec2(from.v[EB_SAMPLE_BINS + b], from.v[2u * EB_SAMPLE_BINS + b]));
        }
        bins[0][b] = n;
        bins[1][b] = mass.x;
        bins[2][b] = mass.y;
    }
    barrier();
}

uvec2 bin_value(bool by_count, uint b) {
    return by_count ? uvec2(bins[0][b], 0u) : uvec2(bins[1][b], bins[2][b]);
}

/* Sum of bins [0, n). */
uvec2 sum_bins(bool by_count, uint n) {
    uvec2 sum = uvec2(0u);
    for (uint b = 0u; b < n; b++) sum = plus(sum, bin_value(by_count, b));
    return sum;
}

/* The bin in which the running sum reaches goal; goal becomes what it has to give. */
uint find_bin(bool by_count, inout uvec2 goal) {
    uint each = (EB_SAMPLE_BINS + THREADS - 1u) / THREADS;
    uint b = THREAD * each, end = min(b + each, EB_SAMPLE_BINS);
    uvec2 sum = uvec2(0u);
    for (uint i = b; i < end; i++) sum = plus(sum, bin_value(by_count, i));
    uvec4 at = reach(sum, goal);
    goal = minus64(goal, at.zw);
    b = at.x * each;
    while (b + 1u < EB_SAMPLE_BINS && less64(bin_value(by_count, b), goal)) {
        goal = minus64(goal, bin_value(by_count, b));
        b++;
    }
    return b;
}

/* The smallest key of bins 0 .. b of the row. */
uint bin_floor(uint b) {
    uint low = range.low_key, high = range.best.x;
    while (low < high) {
        uint middle = low + (high - low) / 2u;
        if (bin_of(row, range, order_value(middle)) <= b) {
            high = middle;
        } else {
            low = middle + 1u;
        }
    }
    return low;
}

/* Bins of `width` keys each, from `high` down to `low`. */
void bin_keys(uint low, uint high, uint width) {
    barrier();
    clear_bins();
    for (uint i = THREAD * 4u; i < A.vocab; i += THREADS * 4u) {
        vec4 x = logits4(row, i);
        [[unroll]] for (uint j = 0u; j < 4u; j++) {
            uint key = order_key(x[j]);
            if (i + j >= A.vocab || key < low || key > high) continue;
            add_to_bin((high - key) / width, fixed_point(probability(row, range, x[j])));
        }
    }
    barrier();
}

/* How many of a single key's probability make up `goal`: at most vocab, of which 64 bits hold the
 * sum. */
uint times(uvec2 one, uvec2 goal) {
    uint n = 0u;
    for (uint bit = 1u << findMSB(A.vocab); bit != 0u; bit >>= 1u) {
        if (less64(times64(one, uvec2(n | bit, 0u)), goal)) n |= bit;
    }
    return n + 1u;
}

/* Sets the cut behind the place where the running sum, of numbers or of probabilities, reaches
 * goal, from the best on. Returns the probability that is kept. */
uvec2 find_cut(bool by_count, uvec2 goal) {
    load_bins();
    uint b = find_bin(by_count, goal);
    uvec2 kept = sum_bins(false, b);
    uint high = b == 0u ? range.best.x : bin_floor(b - 1u) - 1u, low = bin_floor(b);
    for (;;) {
        bool whole = bins[0][b] == (by_count ? goal.x : 1u);
        if (whole || low == high) break;
        uint width = (high - low) / EB_SAMPLE_BINS + 1u;
        bin_keys(low, high, width);
        b = find_bin(by_count, goal);
        kept = plus(kept, sum_bins(false, b));
        high -= b * width;
        low = max(low, high - min(high, width - 1u));
    }
    uint n = bins[0][b];
    uvec2 mass = uvec2(bins[1][b], bins[2][b]);
    cut = uvec2(low, 0xffffffffu);
    if (n == (by_count ? goal.x : 1u)) return plus(kept, mass);
    uvec2 one = fixed_point(probability(row, range, order_value(low)));
    uint taken = by_count ? goal.x : times(one, goal);
    if (taken < n) {
        barrier();
        sum_parts(TIES, false);
        cut.y = id_at(TIES, uvec2(taken, 0u));
    }
    return plus(kept, times64(one, uvec2(min(taken, n), 0u)));
}

/* ---- the draw --------------------------------------------------------------------------- */

/* floor(mass * m / 2^shift), or the next integer where `up` and something is cut off. */
uvec2 scaled(uvec2 mass, uint m, uint shift, bool up) {
    uvec3 w;
    uint high, low, carry;
    umulExtended(mass.x, m, w.y, w.x);
    umulExtended(mass.y, m, high, low);
    w.y = uaddCarry(w.y, low, carry);
    w.z = high + carry;
    uint lost = 0u;
    for (; shift >= 32u; shift -= 32u) {
        lost |= w.x;
        w = uvec3(w.y, w.z, 0u);
    }
    if (shift > 0u) {
        lost |= w.x << (32u - shift);
        w = uvec3((w.x >> shift) | (w.y << (32u - shift)), (w.y >> shift) | (w.z << (32u - shift)),
                  0u);
    }
    return up && lost != 0u ? plus(w.xy, 1u) : w.xy;
}

uvec2 xor_shifted(uvec2 z, uint n) {
    return z ^ uvec2((z.x >> n) | (z.y << (32u - n)), z.y >> n);
}

/* The 24 bits of ebro_uniform(seed, position). */
uint uniform_bits() {
    PU32 p = PU32(row.params);
    const uvec2 golden = uvec2(0x7f4a7c15u, 0x9e3779b9u);
    uvec2 position = plus(uvec2(p.v[6], p.v[7]), 1u);
    uvec2 z = plus(uvec2(p.v[4], p.v[5]), times64(golden, position));
    for (uint i = 0u; i < 2u; i++) {
        z = times64(xor_shifted(z, 30u), uvec2(0x1ce4e5b9u, 0xbf58476du));
        z = times64(xor_shifted(z, 27u), uvec2(0x133111ebu, 0x94d049bbu));
        z = plus(xor_shifted(z, 31u), golden);
    }
    return z.y >> 8u;
}

uint draw() {
    cut = uvec2(0u, 0xffffffffu);
    uint k = top_k(row);
    bool nucleus = has_nucleus(row);
    uvec2 mass = uvec2(0u);
    if (k > 0u) {
        mass = find_cut(true, uvec2(k, 0u));
    } else if (nucleus) {
        load_bins();
        mass = sum_bins(false, EB_SAMPLE_BINS);
    }
    if (nucleus) {
        uint bits = floatBitsToUint(top_p(row)), exponent = bits >> 23u;
        uvec2 goal = scaled(mass, (bits & 0x7fffffu) | 0x800000u, 150u - exponent, true);
        find_cut(false, (goal.x | goal.y) == 0u ? uvec2(1u, 0u) : goal);
    }
    barrier();
    mass = sum_parts(KEPT, k == 0u && !nucleus);
    /* The sum that exceeds u * mass is the one that reaches the next integer. */
    return id_at(KEPT, plus(scaled(mass, uniform_bits(), 24u, false), 1u));
}

void main() {
    if (GROUP >= push.n_groups) return;
    row = row_at(GROUP);
    range = range_of(row);
    uint id = ~range.best.y;
    if (range.low_key == 0u) {
        id = 0xffffffffu;
    } else if (temperature(row) > 0.0) {
        id = draw();
    }
    if (THREAD == 0u) PI32(A.ids).v[GROUP] = int(id);
}
