/* copy.c: state_copy, rows_copy and fills, byte for byte, at any alignment. */
#include "tests/opcheck/rig.h"

static uint8_t *random_bytes(uint64_t n) {
    uint8_t *p = rig_host(n, 1);
    for (uint64_t i = 0; i < n; i++) p[i] = (uint8_t)test_u64(&rig.rng);
    return p;
}

/* A length: mostly short, now and then longer than a workgroup takes. */
static uint32_t some_length(void) {
    return rig_below(8) == 0 ? 1 + rig_below(70000) : 1 + rig_below(150);
}

static void state_copy(void **state) {
    (void)state;
    const uint32_t n = 5, bytes = 1234;
    uint8_t *data = rig_host(n, bytes);
    uint64_t src[5], dst[5];
    struct rig_buf to[5];
    for (uint32_t i = 0; i < n * bytes; i++) data[i] = (uint8_t)test_u64(&rig.rng);
    struct rig_buf from = rig_data(data, n * bytes);
    for (uint32_t i = 0; i < n; i++) {
        to[i] = rig_buf(bytes);
        uint32_t which = n - 1 - i; /* 3: a zero fill */
        src[i] = which == 3 ? 0 : from.span.mem->address + from.span.offset + which * bytes;
        dst[i] = to[i].span.mem->address + to[i].span.offset;
    }
    ebro_state_copy_args a = {.size = sizeof a,
                              .src = rig_data(src, sizeof src).span,
                              .dst = rig_data(dst, sizeof dst).span,
                              .n = n,
                              .bytes = bytes};
    test_ok(eb_op_state_copy(&rig.s, &a, &rig.err), &rig.err);
    rig_sync();
    memset(data + 3 * bytes, 0, bytes);
    for (uint32_t i = 0; i < n; i++) {
        assert_memory_equal(rig_get(&to[i]), data + (n - 1 - i) * bytes, bytes);
    }
}

static void rows_copy(void **state) {
    (void)state;
    const uint32_t n = 6, src_stride = 40, dst_stride = 64, width = 33;
    uint8_t *data = rig_host(n, src_stride), want[6 * 64];
    for (uint32_t i = 0; i < n * src_stride; i++) data[i] = (uint8_t)test_u64(&rig.rng);
    const int32_t from[6] = {5, -1, 0, 3, 3, 2}, to[6] = {1, 0, -7, 5, 4, 2};
    struct rig_buf src = rig_data(data, n * src_stride);
    for (uint32_t v = 0; v < 4; v++) {
        struct rig_buf dst = rig_buf(n * dst_stride);
        ebro_rows_copy_args a = {.size = sizeof a, .src = src.span, .dst = dst.span, .n = n};
        a.src_stride_bytes = src_stride;
        a.dst_stride_bytes = dst_stride;
        a.row_bytes = width;
        if (v & 1) a.src_rows = rig_data(from, sizeof from).span;
        if (v & 2) a.dst_rows = rig_data(to, sizeof to).span;
        test_ok(eb_op_rows_copy(&rig.s, &a, &rig.err), &rig.err);
        rig_sync();
        memset(want, 0xff, sizeof want);
        for (uint32_t i = 0; i < n; i++) {
            int32_t f = v & 1 ? from[i] : (int32_t)i, t = v & 2 ? to[i] : (int32_t)i;
            for (uint32_t k = 0; t >= 0 && k < width; k++) {
                want[(uint32_t)t * dst_stride + k] = f < 0 ? 0 : data[(uint32_t)f * src_stride + k];
            }
        }
        assert_memory_equal(rig_get(&dst), want, sizeof want);
    }
}

/* Rows that touch each other, from anywhere to anywhere, forwards and backwards. */
static void rows_alignments(void **state) {
    for (int round = 0; round < 60; round++) {
        uint32_t width = some_length(), n = width > 1000 ? 3 : 1 + rig_below(40);
        uint32_t src_gap = rig_below(3), dst_gap = rig_below(3), skip = rig_below(33);
        uint64_t src_stride = width + src_gap, dst_stride = width + dst_gap;
        uint8_t *data = random_bytes(n * src_stride + 64);
        uint64_t dst_bytes = n * dst_stride + 64;
        uint8_t *want = rig_host(dst_bytes, 1);
        struct rig_buf src = rig_data(data, n * src_stride + 64), dst = rig_buf(dst_bytes);
        ebro_rows_copy_args a = {.size = sizeof a, .src = src.span, .dst = dst.span, .n = n};
        int32_t *list = rig_host(n, sizeof *list);
        for (uint32_t i = 0; i < n; i++) list[i] = (int32_t)(n - 1 - i);
        bool backwards = round % 2;
        uint32_t from = rig_below(33);
        a.src.offset += from;
        a.dst.offset += skip;
        a.src_stride_bytes = src_stride;
        a.dst_stride_bytes = dst_stride;
        a.row_bytes = width;
        if (backwards) a.dst_rows = rig_data(list, n * sizeof *list).span;
        test_ok(eb_op_rows_copy(&rig.s, &a, &rig.err), &rig.err);
        rig_sync();
        memset(want, 0xff, dst_bytes);
        for (uint32_t i = 0; i < n; i++) {
            uint64_t row = backwards ? n - 1 - i : i;
            memcpy(want + skip + row * dst_stride, data + from + i * src_stride, width);
        }
        assert_memory_equal(rig_get(&dst), want, dst_bytes);
        rig_reset(state);
    }
}

static void state_alignments(void **state) {
    for (int round = 0; round < 30; round++) {
        enum { N = 4 };
        uint64_t bytes = some_length(), src[N], dst[N];
        uint8_t *data = random_bytes(N * (bytes + 16));
        uint32_t from[N], to[N];
        struct rig_buf in = rig_data(data, N * (bytes + 16)), out = rig_buf(N * (bytes + 16));
        for (uint32_t i = 0; i < N; i++) {
            from[i] = rig_below(17);
            to[i] = rig_below(17);
            uint64_t at = i * (bytes + 16);
            src[i] = i == 1 ? 0 : in.span.mem->address + in.span.offset + at + from[i];
            dst[i] = out.span.mem->address + out.span.offset + at + to[i];
        }
        ebro_state_copy_args a = {.size = sizeof a,
                                  .src = rig_data(src, sizeof src).span,
                                  .dst = rig_data(dst, sizeof dst).span,
                                  .n = N,
                                  .bytes = bytes};
        test_ok(eb_op_state_copy(&rig.s, &a, &rig.err), &rig.err);
        rig_sync();
        const uint8_t *got = rig_get(&out);
        uint8_t *want = rig_host(N * (bytes + 16), 1);
        memset(want, 0xff, N * (bytes + 16));
        for (uint32_t i = 0; i < N; i++) {
            uint8_t *row = want + i * (bytes + 16) + to[i];
            memcpy(row, data + i * (bytes + 16) + from[i], bytes);
            if (i == 1) memset(row, 0, bytes);
        }
        assert_memory_equal(got, want, N * (bytes + 16));
        rig_reset(state);
    }
}

static void fills(void **state) {
    for (int round = 0; round < 40; round++) {
        uint64_t bytes = some_length(), skip = rig_below(33);
        uint8_t value = (uint8_t)test_u64(&rig.rng);
        struct rig_buf b = rig_buf(bytes + 64);
        ebro_span at = {b.span.mem, b.span.offset + skip};
        test_ok(eb_fill(&rig.s, at, value, bytes, &rig.err), &rig.err);
        rig_sync();
        uint8_t *want = rig_host(bytes + 64, 1);
        memset(want, 0xff, bytes + 64);
        memset(want + skip, value, bytes);
        assert_memory_equal(rig_get(&b), want, bytes + 64);
        rig_reset(state);
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_teardown(f, rig_reset)
    const struct CMUnitTest tests[] = {
        CASE(state_copy),       CASE(rows_copy), CASE(rows_alignments),
        CASE(state_alignments), CASE(fills),
    };
    return rig_run("opcheck/copy", tests);
}
