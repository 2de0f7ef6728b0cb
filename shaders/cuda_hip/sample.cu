/* sample.cu: sample: the parts of all rows (their largest logits), the probabilities of the parts,
 * the tokens. What a row wants is known on the device alone, so all three run for every row; a
 * greedy one soon leaves. */
#include "sample.cuh"

/* ---- sample_parts: a block takes a part of a row ---------------------------------------- */

/* Four neighbours belong to one thread, which reads what it wrote. */
static EB_DEVICE void adjust(const eb_sample_args &a, unsigned row, unsigned first, unsigned n) {
    const int *offsets = at<const int>(a.adjust_offsets);
    float *to = changed_row(a, row);
    eb_addr from = (eb_addr)row_of(a.logits, row);
    for (unsigned i = thread_id() * 4; i < n; i += n_threads() * 4)
        store4(to, first + i, a.vocab, load4(from, first + i, a.vocab, EB_F32, a.wide != 0), true);
    for (int j = offsets[row]; j < offsets[row + 1]; j++) {
        logit_adjust e = at<const logit_adjust>(a.adjusts)[j];
        unsigned id = (unsigned)e.id, i = id - first;
        if (id >= a.vocab || id < first || i >= n || i / 4 % n_threads() != thread_id()) continue;
        float x = to[id];
        to[id] = (x > 0.0f ? x / e.repeat : x * e.repeat) + e.add;
    }
}

EB_KERNEL(eb_sample_parts_plain, eb_sample_args, EB_SAMPLE_THREADS) {
    EB_SHARED(eb_u64, parts, [32]);
    unsigned row = block_id() / A.n_parts, first = block_id() % A.n_parts * A.part_size;
    unsigned n = A.part_size < A.vocab - first ? A.part_size : A.vocab - first;
    if (is_adjusted(A, row)) adjust(A, row, first, n);
    sample_row r = row_at(A, row);
    eb_u64 best = 0, lowest = 0; /* of the complements of keys */
    for (unsigned i = thread_id() * 4; i < n; i += n_threads() * 4) {
        eb_vec4 x = logits4(A, r, first + i);
        for (unsigned j = 0; j < 4 && i + j < n; j++) {
            bool finite = (bits_of(x.v[j]) & 0x7f800000u) != 0x7f800000u;
            unsigned key = order_key(x.v[j]);
            best = larger(best, candidate_of(key, first + i + j));
            lowest = larger(lowest, ~(finite ? key : 0u));
        }
    }
    best = block_largest(best, parts);
    lowest = block_largest(lowest, parts);
    if (thread_id() == 0) at<sample_part>(A.parts)[block_id()] = {best, ~(unsigned)lowest, 0};
}

/* ---- sample_weigh: a block takes a part of a row ---------------------------------------- */

EB_KERNEL(eb_sample_weigh_plain, eb_sample_args, EB_SAMPLE_THREADS) {
    EB_SHARED(eb_u64, parts, [32]);
    EB_SHARED(sample_bins, bins, );
    sample_row r = row_at(A, block_id() / A.n_parts);
    if (!(r.params.temperature > 0.0f)) return;
    sample_range g = range_of(A, r, parts);
    if (g.low_key == 0) return;
    unsigned first = block_id() % A.n_parts * A.part_size;
    unsigned n = A.part_size < A.vocab - first ? A.part_size : A.vocab - first;
    bool cut = has_nucleus(r) || top_k_of(A, r) > 0;
    clear_bins(bins);
    eb_u64 sum = 0;
    for (unsigned i = thread_id() * 4; i < n; i += n_threads() * 4) {
        eb_vec4 x = logits4(A, r, first + i);
        for (unsigned j = 0; j < 4 && i + j < n; j++) {
            float p = probability(r, g, x.v[j]);
            eb_u64 mass = fixed_point(A, p);
            if (p >= least_of(r)) sum += mass;
            if (cut) add_to_bin(bins, bin_of(g, x.v[j]), 1, mass);
        }
    }
    sum = block_sum64(sum, parts);
    if (thread_id() == 0) at<eb_u64>(A.masses)[block_id()] = sum;
    if (!cut) return;
    sync_block();
    unsigned *to = at<unsigned>(A.bins) + (size_t)block_id() * 3 * EB_SAMPLE_BINS;
    for (unsigned b = thread_id(); b < EB_SAMPLE_BINS; b += n_threads()) {
        to[b] = bins.n[b];
        to[EB_SAMPLE_BINS + b] = (unsigned)bins.mass[b];
        to[2 * EB_SAMPLE_BINS + b] = (unsigned)(bins.mass[b] >> 32);
    }
}
