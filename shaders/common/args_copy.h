/* args_copy.h: arguments of the kernels that move and fill bytes. Addresses and counts have any
 * alignment; work is cut on the grid of aligned 16-byte units of the destination. */
#ifndef EB_ARGS_COPY_H
#define EB_ARGS_COPY_H

#include "common/args.h"

/* Bytes that a thread of a full workgroup writes in one chunk. */
#define EB_COPY_THREAD_BYTES 64

/* dst[dst_rows[i]] <- src[src_rows[i]], row_bytes each. An absent list: row i. A negative source
 * row, or a source that lies at 0, gives zeros; a negative destination row is skipped. With
 * `tables` src and dst are lists of n_rows addresses instead.
 *
 * A row is cut into n_chunks of lanes * EB_COPY_THREAD_BYTES, enough for row_bytes + 15. A
 * workgroup works on THREADS / lanes chunks at a time; lanes is a power of two, at most THREADS. */
struct eb_copy_args {
    eb_addr src, dst;
    eb_addr src_rows, dst_rows;
    eb_addr src_stride, dst_stride; /* bytes */
    eb_addr row_bytes;
    eb_u32 n_rows, n_chunks;
    eb_u32 lanes;
    eb_u32 tables;
};

/* dst[0 .. bytes) <- value; a workgroup writes THREADS * EB_COPY_THREAD_BYTES of bytes + 15. */
struct eb_fill_args {
    eb_addr dst;
    eb_addr bytes;
    eb_u32 value; /* 0 .. 255 */
    eb_u32 reserved;
};

#endif
