/* op_copy.c: state_copy and rows_copy: the memory manager's hands. */
#include "cpu.h"

int32_t cpu_state_copy(ebro_stream *s, const ebro_state_copy_args *a, ebro_error *err) {
    (void)s;
    (void)err;
    const uint64_t *src = eb_at(a->src), *dst = eb_at(a->dst);
    for (uint32_t i = 0; i < a->n; i++) {
        if (src[i] != 0) {
            memcpy(eb_address(dst[i]), eb_address(src[i]), a->bytes);
        } else {
            memset(eb_address(dst[i]), 0, a->bytes);
        }
    }
    return EBRO_OK;
}

int32_t cpu_rows_copy(ebro_stream *s, const ebro_rows_copy_args *a, ebro_error *err) {
    (void)s;
    (void)err;
    const int32_t *src_rows = a->src_rows.mem ? eb_at(a->src_rows) : NULL;
    const int32_t *dst_rows = a->dst_rows.mem ? eb_at(a->dst_rows) : NULL;
    const uint8_t *src = eb_at(a->src);
    uint8_t *dst = eb_at(a->dst);
    for (uint32_t i = 0; i < a->n; i++) {
        int64_t from = src_rows ? src_rows[i] : (int64_t)i;
        int64_t to = dst_rows ? dst_rows[i] : (int64_t)i;
        if (to < 0) continue;
        uint8_t *row = dst + (uint64_t)to * a->dst_stride_bytes;
        if (from >= 0) {
            memcpy(row, src + (uint64_t)from * a->src_stride_bytes, a->row_bytes);
        } else {
            memset(row, 0, a->row_bytes);
        }
    }
    return EBRO_OK;
}
