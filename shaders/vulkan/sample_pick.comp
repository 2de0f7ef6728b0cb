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

/* Keys above .x are kept, and those equal to it whose id is at most .y (but see find_cut). */
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

#define TIES 0u /* counts those whose key is cut.x */
#define KEPT 1u /* counts the probability of what is kept */

uvec2 weight(uint what, float logit, uint id) {
    if (what == TIES) return uvec2(order_key(logit) == cut.x ? 1u : 0u, 0u);
    if (!is_kept(logit, id)) return uvec2(0u);
    float p = probability(row, range, logit);
    return p >= least(row) ? fixed_point(p) : uvec2(0u);
}

/* A pass over the row takes four loads of a thread at a time, for they take long; what is done with
 * their sixteen logits stands in the code once, for compilers take long too. All threads go round
 * together. */
#define LOADS 4u
#define ROUND (THREADS * 4u) /* what the workgroup loads at once; a part is a multiple of it */

vec4 loaded[LOADS];

void load_round(uint first) {
    [[unroll]] for (uint l = 0u; l < LOADS; l++) loaded[l] = logits4(row, first + l * ROUND);
}

/* Logit i of them. */
float loaded_logit(uint i) {
    vec4 x = i < 8u ? (i < 4u ? loaded[0] : loaded[1]) : (i < 12u ? loaded[2] : loaded[3]);
    vec2 y = (i & 2u) == 0u ? x.xy : x.zw;
    return (i & 1u) == 0u ? y.x : y.y;
}

/* Its id, where `first` is the id of the first. */
uint loaded_id(uint first, uint i) {
    return first + i / 4u * ROUND + i % 4u;
}

shared uint part_sums[2][EB_SAMPLE_MOST_PARTS];

void add_to_part(uint p, uvec2 x) {
    x = subgroup_sum64(x);
    if (!speaks() || (x.x | x.y) == 0u) return;
    uint old = atomicAdd(part_sums[0][p], x.x);
    uint high = x.y + (old + x.x < old ? 1u : 0u);
    if (high != 0u) atomicAdd(part_sums[1][p], high);
}

/* Weights of all parts; returns their sum. known: those of KEPT, where nothing is cut. */
uvec2 sum_parts(uint what, bool known) {
    barrier();
    for (uint p = THREAD; p < A.n_parts; p += THREADS) {
        uvec2 m = uvec2(0u);
        if (known) m = PUvec2(plus_mul(A.masses, row.row * A.n_parts + p, 8u)).v[0];
        part_sums[0][p] = m.x;
        part_sums[1][p] = m.y;
    }
    barrier();
    for (uint at = 0u; !known && at < A.vocab; at += LOADS * ROUND) {
        uint first = at + THREAD * 4u;
        load_round(first);
        for (uint l = 0u; l < LOADS; l++) {
            uvec2 sum = uvec2(0u);
            for (uint i = 4u * l; i < 4u * l + 4u; i++) {
                uint id = loaded_id(first, i);
                if (id < A.vocab) sum = plus(sum, weight(what, loaded_logit(i), id));
            }
            add_to_part(min((at + l * ROUND) / A.part_size, A.n_parts - 1u), sum);
        }
    }
    barrier();
    uvec2 sum = uvec2(0u);
    for (uint p = THREAD; p < A.n_parts; p += THREADS) {
        sum = plus(sum, uvec2(part_sums[0][p], part_sums[1][p]));
    }
    return group_sum64(sum);
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
    for (uint id = first; id < min(first + span, end); id++) {
        sum = plus(sum, weight(what, PF32(row.at).v[id], id));
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

/* The row's bins over all parts: where there are more threads than bins, they share the parts. */
void load_bins() {
    barrier();
    clear_bins();
    uint step = max(THREADS / EB_SAMPLE_BINS, 1u);
    for (uint b = THREAD % EB_SAMPLE_BINS; b < EB_SAMPLE_BINS; b += THREADS) {
        uint n = 0u;
        uvec2 mass = uvec2(0u);
        for (uint p = THREAD / EB_SAMPLE_BINS; p < A.n_parts; p += step) {
            PU32 from = PU32(plus_mul(A.bins, row.row * A.n_parts + p, 12u * EB_SAMPLE_BINS));
            n += from.v[b];
            mass = plus(mass, uvec2(from.v[EB_SAMPLE_BINS + b], from.v[2u * EB_SAMPLE_BINS + b]));
        }
        add_to_bin(b, n, mass);
    }
    barrier();
}

uvec2 bin_value(bool by_count, uint b) {
    return by_count ? uvec2(bins[0][b], 0u) : uvec2(bins[1][b], bins[2][b]);
}

/* The probability of bins [0, n). */
uvec2 sum_bins(uint n) {
    uvec2 sum = uvec2(0u);
    for (uint b = THREAD; b < n; b += THREADS) sum = plus(sum, bin_value(false, b));
    return group_sum64(sum);
}

/* The bin in which the running sum reaches goal; goal becomes what it has to give. */
uint find_bin(bool by_count, inout uvec2 goal) {
    uint each = (EB_SAMPLE_BINS + THREADS - 1u) / THREADS;
    uint b = THREAD * each, end = min(b + each, EB_SAMPLE_BINS);
    uvec2 sum = uvec2(0u);
    for (uint i = b; i < end; i++) sum = plus(sum, bin_value(by_count, i));
    uvec4 at = reach(sum, goal);
    goal = minus64(goal, at.zw);
    b = min(at.x * each, EB_SAMPLE_BINS - 1u);
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
        if (bin_of(range, order_value(middle)) <= b) {
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
    for (uint first = THREAD * 4u; first < A.vocab; first += LOADS * ROUND) {
        load_round(first);
        for (uint i = 0u; i < LOADS * 4u; i++) {
            float logit = loaded_logit(i);
            uint key = order_key(logit);
            if (loaded_id(first, i) >= A.vocab || key < low || key > high) continue;
            add_to_bin((high - key) / width, 1u, fixed_point(probability(row, range, logit)));
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
 * goal, from the best on; cut.y becomes how many ids of that key are kept, in rising order. Returns
 * the probability that is kept. To be called after load_bins. */
uvec2 find_cut(bool by_count, uvec2 goal) {
    uint low = range.low_key, high = range.best.x, width = 0u, b;
    uvec2 kept = uvec2(0u);
    for (;;) {
        if (width > 0u) bin_keys(low, high, width);
        b = find_bin(by_count, goal);
        kept = plus(kept, sum_bins(b));
        if (width > 0u) {
            high -= b * width;
            low = max(low, high - min(high, width - 1u));
        } else {
            if (b > 0u) high = bin_floor(b - 1u) - 1u;
            low = bin_floor(b);
        }
        bool whole = bins[0][b] == (by_count ? goal.x : 1u);
        if (whole || low == high) break;
        width = (high - low) / EB_SAMPLE_BINS + 1u;
    }
    uint n = bins[0][b];
    uvec2 mass = uvec2(bins[1][b], bins[2][b]), one = uvec2(0u);
    cut = uvec2(low, 0xffffffffu);
    if (n == (by_count ? goal.x : 1u)) return plus(kept, mass);
    one = fixed_point(probability(row, range, order_value(low)));
    uint taken = by_count ? goal.x : times(one, goal);
    if (taken < n) cut.y = taken;
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
    uint k = top_k(row), id = 0u;
    bool nucleus = has_nucleus(row);
    uvec2 mass = uvec2(0u);
    for (uint step = 0u; step < 2u; step++) {
        bool by_count = step == 0u;
        if (by_count ? k == 0u : !nucleus) continue;
        load_bins();
        uvec2 goal = uvec2(k, 0u);
        if (!by_count) {
            if (k == 0u) mass = sum_bins(EB_SAMPLE_BINS);
            uint bits = floatBitsToUint(top_p(row)), exponent = bits >> 23u;
            goal = scaled(mass, (bits & 0x7fffffu) | 0x800000u, 150u - exponent, true);
            if ((goal.x | goal.y) == 0u) goal.x = 1u;
        }
        mass = find_cut(by_count, goal);
    }
    /* First the last id of the cut's key, where not all are kept, then the token. */
    for (uint what = cut.y < 0xffffffffu ? TIES : KEPT; what <= KEPT; what++) {
        uvec2 goal = uvec2(cut.y, 0u);
        mass = sum_parts(what, k == 0u && !nucleus);
        /* The sum that exceeds u * mass is the one that reaches the next integer. */
        if (what == KEPT) goal = plus(scaled(mass, uniform_bits(), 24u, false), 1u);
        id = id_at(what, goal);
        cut.y = what == TIES ? id : cut.y;
    }
    return id;
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
