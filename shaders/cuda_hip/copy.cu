/* copy.cu: rows of bytes, by number (rows_copy) or by address (state_copy). A thread moves units of
 * 16 bytes on the grid of aligned ones of the destination, at once where the source is aligned
 * alike, else byte by byte. */
#include "common/args_copy.h"
#include "memory.cuh"
#include "shapes.h"

/* Where row i of a side lies; 0 for none. */
static EB_DEVICE eb_addr place(const eb_copy_args &a, eb_addr side, eb_addr rows, eb_addr stride,
                               unsigned i) {
    if (a.tables != 0) return at<const eb_addr>(side)[i];
    long long row = i;
    if (rows != 0) row = at<const int>(rows)[i];
    return row < 0 ? 0 : side + (eb_addr)row * stride;
}

/* Bytes [first, end) of the unit at `to`; src: the byte that goes to `to`, or 0 for zeros. */
static EB_DEVICE void copy_unit(eb_addr to, eb_addr src, unsigned first, unsigned end, bool zeros) {
    if (first == 0 && end == 16 && (zeros || src % 16 == 0)) {
        eb_words4 v = {{0, 0, 0, 0}};
        if (!zeros) v = *at<const eb_words4>(src);
        *at<eb_words4>(to) = v;
        return;
    }
    for (unsigned b = first; b < end; b++)
        at<unsigned char>(to)[b] = zeros ? 0 : at<const unsigned char>(src)[b];
}

EB_KERNEL(eb_copy_plain, eb_copy_args, EB_ROW_THREADS) {
    unsigned lanes = A.lanes, lane = thread_id() & (lanes - 1);
    eb_addr item = (eb_addr)block_id() * (n_threads() / lanes) + thread_id() / lanes;
    if (item / A.n_chunks >= A.n_rows) return;
    unsigned row = (unsigned)(item / A.n_chunks);
    eb_addr src = place(A, A.src, A.src_rows, A.src_stride, row);
    eb_addr dst = place(A, A.dst, A.dst_rows, A.dst_stride, row);
    if (dst == 0) return;
    /* Counted from the aligned unit that the row begins in. */
    eb_addr skip = dst % 16, chunk_bytes = (eb_addr)lanes * EB_COPY_THREAD_BYTES;
    eb_addr first = item % A.n_chunks * chunk_bytes, last = skip + A.row_bytes;
    for (unsigned i = 0; i < EB_COPY_THREAD_BYTES / 16; i++) {
        eb_addr u = first + ((eb_addr)i * lanes + lane) * 16;
        if (u >= last) return;
        unsigned begin = u < skip ? (unsigned)(skip - u) : 0;
        unsigned end = last - u < 16 ? (unsigned)(last - u) : 16;
        copy_unit(dst - skip + u, src - skip + u, begin, end, src == 0);
    }
}
