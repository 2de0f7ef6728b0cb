/* sample_pick.cu: the token of a row, from what sample.cu's kernels left. A block takes a row.
 *
 * The cut of top_k and top_p is a place in the order (logit, falling; id, rising). It is looked for
 * bin by bin: which bin holds it follows from the sums; that bin's keys are cut into bins again,
 * until one is kept whole or holds a single key; then the ids decide. The draw is a running sum
 * over ids: over parts, then inside of one. */
#include "sample.cuh"

enum { TIES, KEPT };

/* What the block shares. */
struct pick {
    sample_bins bins;
    eb_u64 part_sums[EB_SAMPLE_MOST_PARTS];
    eb_u64 parts[32], before;
    unsigned thread;
};

/* A row on its way; the same for every thread. */
struct drawing {
    const eb_sample_args &a;
    pick &s;
    sample_row row;
    sample_range range;
    /* Keys above cut_key are kept, and those equal to it whose id is at most cut_id (but see
     * find_cut). */
    unsigned cut_key, cut_id;
};

static const unsigned all_ids = 0xffffffffu;

/* ---- running sums ----------------------------------------------------------------------- */

struct reached {
    unsigned thread;
    eb_u64 before; /* the sum of the threads before it */
};

/* Where the running sum over threads reaches `goal`, which is not 0: the thread, the last one where
 * none does. */
static EB_DEVICE reached reach(pick &s, eb_u64 x, eb_u64 goal) {
    eb_u64 upto = x;
    for (unsigned step = 1; step < EB_WAVE; step *= 2) {
        eb_u64 y = shuffle_up(upto, step);
        if (lane_id() >= step) upto += y;
    }
    sync_block();
    if (lane_id() == EB_WAVE - 1) s.parts[wave_id()] = upto;
    sync_block();
    for (unsigned w = 0; w < wave_id(); w++) upto += s.parts[w];
    eb_u64 before = upto - x;
    if (before < goal && (upto >= goal || thread_id() + 1 == n_threads())) {
        s.thread = thread_id();
        s.before = before;
    }
    sync_block();
    return {s.thread, s.before};
}

/* ---- a choice by id --------------------------------------------------------------------- */

/* TIES counts those whose key is the cut's, KEPT the probability of what is kept. */
static EB_DEVICE eb_u64 weight(const drawing &d, int what, float logit, unsigned id) {
    unsigned key = order_key(logit);
    if (what == TIES) return key == d.cut_key;
    if (key < d.cut_key || (key == d.cut_key && id > d.cut_id)) return 0;
    float p = probability(d.row, d.range, logit);
    return p >= least_of(d.row) ? fixed_point(d.a, p) : 0;
}

/* Weights of all parts, to part_sums; returns their sum. known: those of KEPT, where nothing is
 * cut. */
static EB_DEVICE eb_u64 sum_parts(drawing &d, int what, bool known) {
    const eb_u64 *masses = at<const eb_u64>(d.a.masses) + (size_t)d.row.row * d.a.n_parts;
    sync_block();
    for (unsigned p = thread_id(); p < d.a.n_parts; p += n_threads())
        d.s.part_sums[p] = known ? masses[p] : 0;
    sync_block();
    /* A wave's four times EB_WAVE logits lie in one part. All threads go round together. */
    for (unsigned begin = 0; !known && begin < d.a.vocab; begin += n_threads() * 4) {
        unsigned first = begin + thread_id() * 4;
        eb_u64 sum = 0;
        if (first < d.a.vocab) {
            eb_vec4 x = logits4(d.a, d.row, first);
            for (unsigned j = 0; j < 4 && first + j < d.a.vocab; j++)
                sum += weight(d, what, x.v[j], first + j);
        }
        for (unsigned m = EB_WAVE / 2; m > 0; m /= 2) sum += shuffle_xor(sum, m);
        if (lane_id() == 0 && sum != 0) atomic_add(&d.s.part_sums[first / d.a.part_size], sum);
    }
    sync_block();
    eb_u64 sum = 0;
    for (unsigned p = thread_id(); p < d.a.n_parts; p += n_threads()) sum += d.s.part_sums[p];
    return block_sum64(sum, d.s.parts);
}

/* The first id at which the running sum of the weights behind sum_parts reaches `goal`. */
static EB_DEVICE unsigned id_at(drawing &d, int what, eb_u64 goal) {
    const float *logits = at<const float>(d.row.at);
    unsigned n_parts = d.a.n_parts, own = thread_id();
    /* A block has more threads than a row has parts. */
    reached r = reach(d.s, own < n_parts ? d.s.part_sums[own] : 0, goal);
    unsigned part = r.thread < n_parts ? r.thread : n_parts - 1;
    /* Which thread of it. */
    goal -= r.before;
    unsigned span = d.a.part_size / n_threads() > 4 ? d.a.part_size / n_threads() : 4;
    unsigned begin = part * d.a.part_size, end = begin + d.a.part_size;
    if (end > d.a.vocab) end = d.a.vocab;
    eb_u64 sum = 0;
    unsigned first = begin + own * span;
    for (unsigned id = first; id < first + span && id < end; id++)
        sum += weight(d, what, logits[id], id);
    r = reach(d.s, sum, goal);
    first = begin + r.thread * span;
    sum = r.before;
    for (unsigned id = first; id < first + span && id < end; id++) {
        sum += weight(d, what, logits[id], id);
        if (sum >= goal) return id;
    }
    return index_of(d.range.best); /* not reached: the goal is at most the sum of all */
}

/* ---- the cut ---------------------------------------------------------------------------- */

/* The row's bins over all parts: threads that have the same bin share the parts. */
static EB_DEVICE void load_bins(drawing &d) {
    sync_block();
    clear_bins(d.s.bins);
    unsigned b = thread_id() % EB_SAMPLE_BINS, n = 0;
    eb_u64 mass = 0;
    for (unsigned p = thread_id() / EB_SAMPLE_BINS; p < d.a.n_parts;
         p += n_threads() / EB_SAMPLE_BINS) {
        const unsigned *from = at<const unsigned>(d.a.bins) +
                               ((size_t)d.row.row * d.a.n_parts + p) * 3 * EB_SAMPLE_BINS;
        n += from[b];
        mass += from[EB_SAMPLE_BINS + b] | (eb_u64)from[2 * EB_SAMPLE_BINS + b] << 32;
    }
    add_to_bin(d.s.bins, b, n, mass);
    sync_block();
}

static EB_DEVICE eb_u64 bin_value(const drawing &d, bool by_count, unsigned b) {
    return b >= EB_SAMPLE_BINS ? 0 : by_count ? d.s.bins.n[b] : d.s.bins.mass[b];
}

/* The probability of bins [0, n). */
static EB_DEVICE eb_u64 sum_bins(drawing &d, unsigned n) {
    return block_sum64(thread_id() < n ? bin_value(d, false, thread_id()) : 0, d.s.parts);
}

/* The bin in which the running sum reaches goal; goal becomes what it has to give. */
static EB_DEVICE unsigned find_bin(drawing &d, bool by_count, eb_u64 &goal) {
    reached r = reach(d.s, bin_value(d, by_count, thread_id()), goal);
    unsigned b = r.thread < EB_SAMPLE_BINS ? r.thread : EB_SAMPLE_BINS - 1;
    goal -= r.thread < EB_SAMPLE_BINS ? r.before : r.before - bin_value(d, by_count, b);
    return b;
}

/* The smallest key of bins 0 .. b of the row. */
static EB_DEVICE unsigned bin_floor(const drawing &d, unsigned b) {
    unsigned low = d.range.low_key, high = key_of(d.range.best);
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (bin_of(d.range, order_value(middle)) <= b)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Bins of `width` keys each, from `high` down to `low`. */
static EB_DEVICE void bin_keys(drawing &d, unsigned low, unsigned high, unsigned width) {
    sync_block();
    clear_bins(d.s.bins);
    for (unsigned first = thread_id() * 4; first < d.a.vocab; first += n_threads() * 4) {
        eb_vec4 x = logits4(d.a, d.row, first);
        for (unsigned j = 0; j < 4 && first + j < d.a.vocab; j++) {
            unsigned key = order_key(x.v[j]);
            if (key < low || key > high) continue;
            add_to_bin(d.s.bins, (high - key) / width, 1,
                       fixed_point(d.a, probability(d.row, d.range, x.v[j])));
        }
    }
    sync_block();
}

/* Sets the cut behind the place where the running sum, of numbers or of probabilities, reaches
 * goal, from the best on; cut_id becomes how many ids of that key are kept, in rising order.
 * Returns the probability that is kept. To be called after load_bins. */
static EB_DEVICE eb_u64 find_cut(drawing &d, bool by_count, eb_u64 goal) {
    unsigned low = d.range.low_key, high = key_of(d.range.best), width = 0, b;
    eb_u64 kept = 0, whole;
    for (;;) {
        if (width > 0) bin_keys(d, low, high, width);
        b = find_bin(d, by_count, goal);
        kept += sum_bins(d, b);
        if (width > 0) {
            high -= b * width;
            unsigned down = high < width - 1 ? high : width - 1;
            if (high - down > low) low = high - down;
        } else {
            if (b > 0) high = bin_floor(d, b - 1) - 1;
            low = bin_floor(d, b);
        }
        whole = by_count ? goal : 1;
        if (d.s.bins.n[b] == whole || low == high) break;
        width = (high - low) / EB_SAMPLE_BINS + 1;
    }
    unsigned n = d.s.bins.n[b];
    d.cut_key = low;
    d.cut_id = all_ids;
    if (n == whole) return kept + d.s.bins.mass[b];
    /* A single key: how many of its probability make up the goal. */
    eb_u64 one = fixed_point(d.a, probability(d.row, d.range, order_value(low)));
    eb_u64 taken = by_count ? goal : one == 0 ? n : (goal + one - 1) / one;
    if (taken < n) d.cut_id = (unsigned)taken;
    return kept + one * (taken < n ? taken : n);
}

/* ---- the draw --------------------------------------------------------------------------- */

/* floor(mass * m / 2^shift), or the next integer where `up` and something is cut off; the result
 * fits 64 bits. */
static EB_DEVICE eb_u64 scaled(eb_u64 mass, unsigned m, unsigned shift, bool up) {
    eb_u64 low = (mass & 0xffffffffu) * m, high = (mass >> 32) * m + (low >> 32);
    low &= 0xffffffffu; /* the product is high * 2^32 + low */
    eb_u64 result, lost;
    if (shift >= 96) {
        result = 0;
        lost = high | low;
    } else if (shift >= 32) {
        result = high >> (shift - 32);
        lost = low | (high & (((eb_u64)1 << (shift - 32)) - 1));
    } else {
        result = high << (32 - shift) | low >> shift;
        lost = low & (((eb_u64)1 << shift) - 1);
    }
    return result + (up && lost != 0);
}

/* The 24 bits of ebro_uniform(seed, position). */
static EB_DEVICE unsigned uniform_bits(const sample_params &p) {
    eb_u64 z = p.seed + 0x9e3779b97f4a7c15u * (p.position + 1);
    for (int i = 0; i < 2; i++) {
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        z = (z ^ z >> 31) + 0x9e3779b97f4a7c15u;
    }
    return (unsigned)(z >> 40);
}

/* The mass that top_p keeps at least. */
static EB_DEVICE eb_u64 nucleus_goal(const drawing &d, eb_u64 mass) {
    unsigned bits = bits_of(d.row.params.top_p);
    eb_u64 goal = scaled(mass, (bits & 0x7fffffu) | 0x800000u, 150 - (bits >> 23), true);
    return goal > 0 ? goal : 1;
}

static EB_DEVICE unsigned draw(drawing &d) {
    unsigned k = top_k_of(d.a, d.row);
    bool nucleus = has_nucleus(d.row);
    eb_u64 mass = 0;
    if (k > 0) {
        load_bins(d);
        mass = find_cut(d, true, k);
    }
    if (nucleus) {
        load_bins(d);
        if (k == 0) mass = sum_bins(d, EB_SAMPLE_BINS);
        (void)find_cut(d, false, nucleus_goal(d, mass));
    }
    /* The last id of the cut's key, where not all are kept. */
    if (d.cut_id < all_ids) {
        (void)sum_parts(d, TIES, false);
        d.cut_id = id_at(d, TIES, d.cut_id);
    }
    /* The sum that exceeds u * mass is the one that reaches the next integer. */
    mass = sum_parts(d, KEPT, k == 0 && !nucleus);
    return id_at(d, KEPT, scaled(mass, uniform_bits(d.row.params), 24, false) + 1);
}

EB_KERNEL(eb_sample_pick_plain, eb_sample_args, EB_SAMPLE_PICK_THREADS) {
    EB_SHARED(pick, shared, );
    sample_row row = row_at(A, block_id());
    drawing d = {A, shared, row, range_of(A, row, shared.parts), 0, all_ids};
    unsigned id = index_of(d.range.best);
    if (d.range.low_key == 0)
        id = 0xffffffffu;
    else if (row.params.temperature > 0.0f)
        id = draw(d);
    if (thread_id() == 0) at<unsigned>(A.ids)[block_id()] = id;
}
