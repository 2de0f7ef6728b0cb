/* null.c: the null device moves rows and states as the contract says, and says of every other op
 * that it does not compute it. */
#include <stdio.h>
#include <string.h>

#include "device/device.h"
#include "tests/harness/test.h"

static ebro_runtime *rt;
static ebro_device *d;
static struct eb_stream s;

static int setup(void **state) {
    (void)state;
    const ebro_runtime_options o = {.size = sizeof o, .module_dir = test_module_dir()};
    ebro_error err = {0};
    test_ok(ebro_runtime_open(&o, &rt, &err), &err);
    test_ok(ebro_device_open(rt, "null0", &d, &err), &err);
    test_ok(eb_stream_open(d, &s, &err), &err);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    eb_stream_close(&s);
    ebro_device_close(&d);
    ebro_runtime_close(&rt);
    return 0;
}

static void ops_are_refused_by_name(void **state) {
    (void)state;
    ebro_error err = {0};
    const ebro_backend *be = d->be;
#define REFUSES(N, op)                                                                   \
    if (EBRO_OP_##N != EBRO_OP_STATE_COPY && EBRO_OP_##N != EBRO_OP_ROWS_COPY && be->op) \
        test_fails(be->op(s.impl, NULL, &err), EBRO_UNSUPPORTED, &err, "does not compute " #op);
    EBRO_OPS(REFUSES)
#undef REFUSES
    assert_int_equal(eb_device_check(d, &err), EBRO_OK);
}

static ebro_mem *mem_of(uint64_t bytes, const void *data) {
    ebro_mem *mem = NULL;
    ebro_error err = {0};
    test_ok(eb_mem_alloc(d, bytes, EBRO_MEM_DEVICE, &mem, &err), &err);
    test_ok(eb_upload(&s, (ebro_span){.mem = mem}, data, bytes, &err), &err);
    return mem;
}

static void expect(ebro_mem *mem, const unsigned char *want, size_t bytes) {
    unsigned char back[512];
    ebro_error err = {0};
    assert_true(bytes <= sizeof back);
    test_ok(eb_download(&s, back, (ebro_span){.mem = mem}, bytes, &err), &err);
    test_ok(eb_stream_sync(&s, &err), &err);
    assert_memory_equal(back, want, bytes);
}

static void rows_go_where_the_lists_say(void **state) {
    (void)state;
    enum { ROWS = 8, SRC_STRIDE = 24, DST_STRIDE = 32, ROW = 20, N = 4 };
    unsigned char src[ROWS * SRC_STRIDE], dst[ROWS * DST_STRIDE], want[sizeof dst];
    struct test_rng r = {test_seed()};
    for (size_t i = 0; i < sizeof src; i++) src[i] = (unsigned char)test_u64(&r);
    memset(dst, 0xa5, sizeof dst);
    const int32_t from[N] = {5, -1, 3, 0}, to[N] = {2, 7, 0, -1};
    ebro_mem *m_src = mem_of(sizeof src, src), *m_dst = mem_of(sizeof dst, dst);
    ebro_mem *m_from = mem_of(sizeof from, from), *m_to = mem_of(sizeof to, to);
    ebro_error err = {0};
    ebro_rows_copy_args a = {.size = sizeof a,
                             .src = {.mem = m_src},
                             .dst = {.mem = m_dst},
                             .src_stride_bytes = SRC_STRIDE,
                             .dst_stride_bytes = DST_STRIDE,
                             .row_bytes = ROW,
                             .n = N,
                             .src_rows = {.mem = m_from},
                             .dst_rows = {.mem = m_to}};
    test_ok(d->be->rows_copy(s.impl, &a, &err), &err);
    memset(want, 0xa5, sizeof want);
    memcpy(want + 2 * DST_STRIDE, src + 5 * SRC_STRIDE, ROW);
    memset(want + 7 * DST_STRIDE, 0, ROW);
    memcpy(want, src + 3 * SRC_STRIDE, ROW);
    expect(m_dst, want, sizeof want);
    /* Without lists: row i to row i. */
    a.src_rows.mem = NULL;
    a.dst_rows.mem = NULL;
    test_ok(d->be->rows_copy(s.impl, &a, &err), &err);
    for (size_t i = 0; i < N; i++) memcpy(want + i * DST_STRIDE, src + i * SRC_STRIDE, ROW);
    expect(m_dst, want, sizeof want);
    eb_mem_free(d, &m_src);
    eb_mem_free(d, &m_dst);
    eb_mem_free(d, &m_from);
    eb_mem_free(d, &m_to);
}

static void states_go_by_address(void **state) {
    (void)state;
    enum { N = 3, PIECE = 40 };
    unsigned char src[200], dst[200], want[200];
    for (size_t i = 0; i < sizeof src; i++) src[i] = (unsigned char)(i + 1);
    memset(dst, 0xa5, sizeof dst);
    ebro_mem *m_src = mem_of(sizeof src, src), *m_dst = mem_of(sizeof dst, dst);
    const uint64_t from[N] = {m_src->address + 100, 0, m_src->address};
    const uint64_t to[N] = {m_dst->address + 3, m_dst->address + 60, m_dst->address + 160};
    ebro_mem *m_from = mem_of(sizeof from, from), *m_to = mem_of(sizeof to, to);
    ebro_error err = {0};
    const ebro_state_copy_args a = {
        .size = sizeof a, .src = {.mem = m_from}, .dst = {.mem = m_to}, .n = N, .bytes = PIECE};
    test_ok(d->be->state_copy(s.impl, &a, &err), &err);
    memset(want, 0xa5, sizeof want);
    memcpy(want + 3, src + 100, PIECE);
    memset(want + 60, 0, PIECE);
    memcpy(want + 160, src, PIECE);
    expect(m_dst, want, sizeof want);
    eb_mem_free(d, &m_src);
    eb_mem_free(d, &m_dst);
    eb_mem_free(d, &m_from);
    eb_mem_free(d, &m_to);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_are_refused_by_name),
        cmocka_unit_test(rows_go_where_the_lists_say),
        cmocka_unit_test(states_go_by_address),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
