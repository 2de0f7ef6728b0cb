/* graph.c: what every backend that records graphs owes the runtime: the same results as the ops
 * themselves, in their place among other work, however often; and clear refusals. */
#include <string.h>

#include "ops/ops.h"
#include "tests/contract/rig.h"

enum { ROWS = 3, COLS = 40, N = ROWS * COLS, BYTES = N * sizeof(float) };

/* Says why where the device records none. */
static bool records(const struct ebro_device *d) {
    if (eb_can_record(d)) return true;
    print_message("%s records no graphs\n", d->info.name);
    return false;
}

static ebro_mat mat(ebro_mem *mem) {
    return (ebro_mat){.mem = mem, .stride = COLS, .dtype = EBRO_F32};
}

/* b = norm(a); c = b; b = norm(b) * weight: each depends on the one before. */
static int32_t encode(struct eb_stream *s, ebro_mem *mem[3], ebro_error *err) {
    ebro_rms_norm_args norm = {.size = sizeof norm,
                               .x = mat(mem[0]),
                               .out = mat(mem[1]),
                               .n_rows = ROWS,
                               .n_cols = COLS,
                               .eps = 1e-5f};
    int32_t st = eb_op_rms_norm(s, &norm, err);
    if (st != EBRO_OK) return st;
    if ((st = eb_copy(s, at(mem[2], 0), at(mem[1], 0), BYTES, err)) != EBRO_OK) return st;
    norm.x = norm.out;
    norm.weight = (ebro_vec){.mem = mem[0], .dtype = EBRO_F32};
    return eb_op_rms_norm(s, &norm, err);
}

static void open_mems(struct ebro_device *d, ebro_mem *mem[3]) {
    ebro_error err = {0};
    for (int i = 0; i < 3; i++)
        test_ok(eb_mem_alloc(d, BYTES, EBRO_MEM_DEVICE, &mem[i], &err), &err);
}

static void close_mems(struct ebro_device *d, ebro_mem *mem[3]) {
    for (int i = 0; i < 3; i++) eb_mem_free(d, &mem[i]);
}

/* Several launches between other work, all in one submission; each against the ops themselves. */
static void launches_equal_ops(struct ebro_device *d, struct eb_stream *s) {
    enum { LAUNCHES = 20 };
    static float in[LAUNCHES][N], got[LAUNCHES][2][N], want[2][N];
    ebro_mem *mem[3];
    ebro_graph *graph = NULL;
    ebro_error err = {0};
    if (!records(d)) return;
    open_mems(d, mem);
    test_ok(eb_graph_begin(s, &err), &err);
    test_ok(encode(s, mem, &err), &err);
    test_ok(eb_graph_end(s, &graph, &err), &err);
    assert_non_null(graph);
    memset(got, 0x5a, sizeof got);
    for (int i = 0; i < LAUNCHES; i++) {
        for (int k = 0; k < N; k++) in[i][k] = (float)test_u64(&rng) * 0x1p-63f - 1.0f;
        test_ok(eb_upload(s, at(mem[0], 0), in[i], BYTES, &err), &err);
        test_ok(eb_graph_launch(s, graph, &err), &err);
        for (int k = 0; k < 2; k++)
            test_ok(eb_download(s, got[i][k], at(mem[1 + k], 0), BYTES, &err), &err);
    }
    test_ok(eb_stream_sync(s, &err), &err);
    eb_graph_free(d, &graph);
    assert_null(graph);
    for (int i = 0; i < LAUNCHES; i++) {
        test_ok(eb_upload(s, at(mem[0], 0), in[i], BYTES, &err), &err);
        test_ok(encode(s, mem, &err), &err);
        for (int k = 0; k < 2; k++)
            test_ok(eb_download(s, want[k], at(mem[1 + k], 0), BYTES, &err), &err);
        test_ok(eb_stream_sync(s, &err), &err);
        assert_memory_equal(got[i], want, sizeof want);
    }
    close_mems(d, mem);
}

static void graphs_on_every_device(void **state) {
    (void)state;
    on_every_device(launches_equal_ops);
}

/* Recording runs nothing. */
static void recording_changes_nothing(struct ebro_device *d, struct eb_stream *s) {
    static float before[N], after[N];
    ebro_mem *mem[3];
    ebro_graph *graph = NULL;
    ebro_error err = {0};
    if (!records(d)) return;
    open_mems(d, mem);
    fill_random(&rng, (unsigned char *)before, BYTES);
    for (int i = 0; i < 3; i++) test_ok(eb_upload(s, at(mem[i], 0), before, BYTES, &err), &err);
    test_ok(eb_graph_begin(s, &err), &err);
    test_ok(encode(s, mem, &err), &err);
    test_ok(eb_graph_end(s, &graph, &err), &err);
    for (int i = 0; i < 3; i++) {
        test_ok(eb_download(s, after, at(mem[i], 0), BYTES, &err), &err);
        test_ok(eb_stream_sync(s, &err), &err);
        assert_memory_equal(after, before, BYTES);
    }
    eb_graph_free(d, &graph);
    close_mems(d, mem);
}

static void recording_on_every_device(void **state) {
    (void)state;
    on_every_device(recording_changes_nothing);
}

static void refuses(struct ebro_device *d, struct eb_stream *s) {
    float host[N] = {0};
    uint64_t ticket;
    ebro_mem *mem[3];
    ebro_graph *graph = NULL, *other = NULL;
    ebro_error err = {0};
    if (!eb_can_record(d)) {
        test_fails(eb_graph_begin(s, &err), EBRO_UNSUPPORTED, &err, "does not record graphs");
        test_fails(eb_graph_end(s, &graph, &err), EBRO_UNSUPPORTED, &err, "does not record");
        return;
    }
    open_mems(d, mem);
    test_fails(eb_graph_end(s, &graph, &err), EBRO_INVALID, &err, "no graph");
    assert_null(graph);
    test_ok(eb_graph_begin(s, &err), &err);
    test_ok(encode(s, mem, &err), &err);
    test_ok(eb_graph_end(s, &other, &err), &err);
    test_ok(eb_graph_begin(s, &err), &err);
    test_fails(eb_graph_begin(s, &err), EBRO_INVALID, &err, "already");
    test_fails(eb_submit(s, &ticket, &err), EBRO_INVALID, &err, "graph");
    test_fails(eb_graph_launch(s, other, &err), EBRO_INVALID, &err, "while one is recorded");
    test_fails(eb_upload(s, at(mem[0], 0), host, BYTES, &err), EBRO_INVALID, &err, "host");
    test_fails(eb_download(s, host, at(mem[0], 0), BYTES, &err), EBRO_INVALID, &err, "host");
    /* What was refused is not in it, and an empty graph can be launched. */
    test_ok(eb_graph_end(s, &graph, &err), &err);
    test_ok(eb_graph_launch(s, graph, &err), &err);
    test_ok(eb_stream_sync(s, &err), &err);
    eb_graph_free(d, &graph);
    eb_graph_free(d, &graph);
    eb_graph_free(d, &other);
    close_mems(d, mem);
}

static void refusals_on_every_device(void **state) {
    (void)state;
    on_every_device(refuses);
}

/* A stream that is closed while it records loses the graph and nothing else. */
static void closes_while_recording(struct ebro_device *d, struct eb_stream *s) {
    (void)s;
    struct eb_stream other;
    ebro_mem *mem[3];
    ebro_error err = {0};
    if (!records(d)) return;
    open_mems(d, mem);
    test_ok(eb_stream_open(d, &other, &err), &err);
    test_ok(eb_graph_begin(&other, &err), &err);
    test_ok(encode(&other, mem, &err), &err);
    eb_stream_close(&other);
    close_mems(d, mem);
}

static void closing_on_every_device(void **state) {
    (void)state;
    on_every_device(closes_while_recording);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_on_every_device),
        cmocka_unit_test(recording_on_every_device),
        cmocka_unit_test(refusals_on_every_device),
        cmocka_unit_test(closing_on_every_device),
    };
    return cmocka_run_group_tests(tests, rig_open, rig_close);
}
