/* limits.c: devices with less than others: small allocations, buffers and grids, a card whose
 * memory the host sees through a small window, heaps that run full. What fits is right, what does
 * not is refused with what was wanted and what is allowed, and nothing is left behind. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/load.h"
#include "ops/ops.h"
#include "tests/vulkan/rig.h"

enum { MIB = 1 << 20 };

static ebro_mem *rig_alloc(struct ebro_device *d, uint64_t bytes, uint32_t kind) {
    ebro_mem *mem = NULL;
    ebro_error err = {0};
    test_ok(eb_mem_alloc(d, bytes, kind, &mem, &err), &err);
    return mem;
}

/* Each of the two bounds an allocation by itself; what may be bound to a descriptor bounds none. */
static void an_allocation_has_the_smallest_of_its_limits(void **state) {
    (void)state;
    static const struct {
        uint64_t allocation, buffer;
        uint32_t binding;
        uint64_t want;
    } cases[] = {{8 * MIB, 0, 0, 8 * MIB},
                 {0, 6 * MIB, 0, 6 * MIB},
                 {8 * MIB, 6 * MIB, 0, 6 * MIB},
                 {5 * MIB, 6 * MIB, 1 * MIB, 5 * MIB}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        shim_get()->limits = (struct shim_limits){.allocation_bytes = cases[i].allocation,
                                                  .buffer_bytes = cases[i].buffer,
                                                  .binding_bytes = cases[i].binding};
        struct ebro_device *d = rig_device();
        ebro_mem *mem = NULL;
        ebro_error err = {0};
        char need[32], limit[32];
        assert_int_equal(d->caps.max_alloc_bytes, cases[i].want);
        snprintf(need, sizeof need, "%" PRIu64, cases[i].want + 1);
        snprintf(limit, sizeof limit, "%" PRIu64, cases[i].want);
        test_fails(eb_mem_alloc(d, cases[i].want + 1, EBRO_MEM_DEVICE, &mem, &err),
                   EBRO_NOMEM_DEVICE, &err, need);
        test_fails(err.status, EBRO_NOMEM_DEVICE, &err, limit);
        assert_null(mem);
        mem = rig_alloc(d, cases[i].want, EBRO_MEM_DEVICE);
        eb_mem_free(d, &mem);
        assert_true(shim_get()->seen.largest_buffer <= cases[i].want);
        ebro_device_close(&d);
        shim_get()->seen.largest_buffer = 0;
    }
}

/* out[r] = x[r] / rms(x[r]) of rows that are all c + 1: ones. */
static void norm_rows(struct ebro_device *d, uint32_t rows, uint32_t cols) {
    const uint64_t n = (uint64_t)rows * cols, bytes = n * sizeof(float);
    float *x = malloc((size_t)bytes), *y = malloc((size_t)bytes);
    struct eb_stream s;
    ebro_error err = {0};
    assert_non_null(x);
    assert_non_null(y);
    for (uint64_t i = 0; i < n; i++) x[i] = (float)(i / cols % 97 + 1);
    memset(y, 0x5a, (size_t)bytes);
    ebro_mem *in = rig_alloc(d, bytes, EBRO_MEM_DEVICE);
    ebro_mem *out = rig_alloc(d, bytes, EBRO_MEM_DEVICE);
    const ebro_rms_norm_args norm = {.size = sizeof norm,
                                     .x = {.mem = in, .stride = cols, .dtype = EBRO_F32},
                                     .out = {.mem = out, .stride = cols, .dtype = EBRO_F32},
                                     .n_rows = rows,
                                     .n_cols = cols};
    test_ok(eb_stream_open(d, &s, &err), &err);
    test_ok(eb_upload(&s, at(in, 0), x, bytes, &err), &err);
    test_ok(eb_op_rms_norm(&s, &norm, &err), &err);
    test_ok(eb_download(&s, y, at(out, 0), bytes, &err), &err);
    test_ok(eb_stream_sync(&s, &err), &err);
    for (uint64_t i = 0; i < n; i++) {
        if (!(y[i] > 0.9999f && y[i] < 1.0001f))
            fail_msg("row %" PRIu64 ": %g, not 1", i / cols, (double)y[i]);
    }
    eb_stream_close(&s);
    eb_mem_free(d, &in);
    eb_mem_free(d, &out);
    free(x);
    free(y);
}

/* More workgroups than a dimension takes become several rows of them, and the last is not full. */
static void grids_are_folded(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 63, 64, 65, 1000, 3001};
    shim_get()->limits.groups = 64;
    /* A clock that no load of this machine slows: else a launch may run in pieces. */
    shim_get()->clock = (struct shim_clock){.launch_ns = 1000, .group_ns = 10};
    struct ebro_device *d = rig_device();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) norm_rows(d, rows[i], 512);
    assert_int_equal(shim_get()->seen.largest_group_count, 64);
    assert_true(shim_get()->seen.largest_grid >= 1000);
    ebro_device_close(&d);
}

/* Copies larger than the staging memory and than an allocation of it pass piece by piece. */
static void copies_pass(struct ebro_device *d, uint64_t bytes) {
    unsigned char *data = malloc((size_t)bytes), *back = malloc((size_t)bytes);
    struct test_rng rng = {test_seed()};
    struct eb_stream s;
    ebro_error err = {0};
    assert_non_null(data);
    assert_non_null(back);
    for (uint64_t i = 0; i < bytes; i++) data[i] = (unsigned char)(test_u64(&rng) >> 56);
    memset(back, 0x5a, (size_t)bytes);
    ebro_mem *a = rig_alloc(d, bytes, EBRO_MEM_DEVICE), *b = rig_alloc(d, bytes, EBRO_MEM_DEVICE);
    test_ok(eb_stream_open(d, &s, &err), &err);
    test_ok(eb_upload(&s, at(a, 0), data, bytes, &err), &err);
    test_ok(eb_copy(&s, at(b, 0), at(a, 0), bytes, &err), &err);
    test_ok(eb_download(&s, back, at(b, 0), bytes, &err), &err);
    test_ok(eb_stream_sync(&s, &err), &err);
    assert_memory_equal(back, data, (size_t)bytes);
    eb_stream_close(&s);
    eb_mem_free(d, &a);
    eb_mem_free(d, &b);
    free(data);
    free(back);
}

/* Weights and caches stay out of the window, and what the host writes need not fit it. */
static void a_card_with_a_small_window_works(void **state) {
    (void)state;
    struct shim *shim = shim_get();
    shim->heaps = (struct shim_heaps){256 * MIB, 512 * MIB, 4 * MIB};
    struct ebro_device *d = rig_device();
    assert_int_equal(d->caps.bits & EBRO_CAP_UNIFIED, 0);
    ebro_mem *mem = rig_alloc(d, MIB, EBRO_MEM_DEVICE);
    assert_int_equal(shim->seen.heap_bytes[2], 0);
    assert_in_range(shim->seen.heap_bytes[0], MIB, MIB + 65536);
    assert_null(mem->host);
    eb_mem_free(d, &mem);
    copies_pass(d, 37 * MIB + 12345);
    norm_rows(d, 100, 1000);
    ebro_device_close(&d);
}

/* A heap that is full makes way for the next that serves; when all are, the error has the figures.
 */
static void full_heaps_are_said(void **state) {
    (void)state;
    struct shim *shim = shim_get();
    shim->heaps = (struct shim_heaps){16 * MIB, 64 * MIB, 8 * MIB};
    struct ebro_device *d = rig_device();
    ebro_mem *mems[16] = {0};
    ebro_error err = {0};
    int n = 0;
    while (n < 16 && eb_mem_alloc(d, 6 * MIB, EBRO_MEM_DEVICE, &mems[n], &err) == EBRO_OK) n++;
    assert_in_range(n, 3, 15);
    assert_true(shim->seen.heap_bytes[0] >= 12 * MIB);
    test_fails(err.status, EBRO_NOMEM_DEVICE, &err, "6291456");
    test_fails(err.status, EBRO_NOMEM_DEVICE, &err, "free");
    assert_null(mems[n]);
    for (int i = 0; i < n; i++) eb_mem_free(d, &mems[i]);
    ebro_mem *again = rig_alloc(d, 6 * MIB, EBRO_MEM_DEVICE);
    eb_mem_free(d, &again);
    ebro_device_close(&d);
}

/* A floor of the backend: said by name when the device is opened. */
static void too_little_shared_memory_is_refused(void **state) {
    (void)state;
    struct ebro_device *d = rig_device(), *none = NULL;
    ebro_error err = {0};
    ebro_device_close(&d);
    shim_get()->limits.shared_bytes = 8192;
    test_fails(ebro_device_open(rt, "Vulkan0", &none, &err), EBRO_UNSUPPORTED, &err,
               "16 KiB of shared memory");
    assert_null(none);
    shim_get()->limits.shared_bytes = 16384;
    d = rig_device();
    assert_int_equal(d->caps.shared_bytes, 16384);
    norm_rows(d, 10, 4096);
    ebro_device_close(&d);
}

/* ---- weights ---------------------------------------------------------------------------- */

/* Loads the demo model; compares a large tensor and a small one. Says how much of it is the host's
 * memory, and how much the device's. */
static void load_demo(struct ebro_device *d, uint64_t *imported, uint64_t *own) {
    ebro_model *model = NULL;
    struct eb_weights *w = NULL;
    struct eb_stream s;
    ebro_error err = {0};
    const ebro_model_options mo = {.size = sizeof mo, .path = test_demo_dir()};
    test_ok(ebro_model_open(rt, &mo, &model, &err), &err);
    test_ok(eb_stream_open(d, &s, &err), &err);
    const uint64_t before = shim_get()->seen.live_bytes;
    test_ok(eb_weights_load(model, &s, NULL, &w, &err), &err);
    *imported = shim_get()->seen.imported_bytes;
    *own = shim_get()->seen.live_bytes - before - *imported;
    const struct eb_tensor *t[2] = {model->embed.w, model->final_norm};
    const ebro_weight embed = eb_weight(w, &model->embed);
    const ebro_vec norm = eb_vec(w, model->final_norm);
    const ebro_span from[2] = {{embed.mem, embed.offset}, {norm.mem, norm.offset}};
    for (int i = 0; i < 2; i++) {
        void *back = malloc((size_t)t[i]->bytes);
        assert_non_null(back);
        memset(back, 0x5a, (size_t)t[i]->bytes);
        /* Through memory of the device's own: the device itself must see the bytes. */
        ebro_mem *copy = rig_alloc(d, t[i]->bytes, EBRO_MEM_DEVICE);
        test_ok(eb_copy(&s, at(copy, 0), from[i], t[i]->bytes, &err), &err);
        test_ok(eb_download(&s, back, at(copy, 0), t[i]->bytes, &err), &err);
        test_ok(eb_stream_sync(&s, &err), &err);
        assert_memory_equal(back, t[i]->data, (size_t)t[i]->bytes);
        eb_mem_free(d, &copy);
        free(back);
    }
    eb_weights_free(&w);
    eb_stream_close(&s);
    ebro_model_close(&model);
}

/* Where the device shares the host's memory, the weights lie in their file, but for tables; a
 * driver that refuses that gets them copied, as does a device that does not share it. */
static void weights_lie_where_they_can(void **state) {
    (void)state;
    enum { FEW = 4 * MIB, MOST = 20 * MIB }; /* of 24 MiB; staging memory of streams counts too */
    uint64_t imported = 0, own = 0;
    shim_get()->limits.integrated = true;
    struct ebro_device *d = rig_device();
    if ((d->caps.bits & EBRO_CAP_UNIFIED) != 0) {
        load_demo(d, &imported, &own);
        assert_true(imported > MOST && own < FEW);
        shim_get()->faults.imports = true;
    } else {
        print_message("%s does not import host memory\n", d->info.name);
    }
    load_demo(d, &imported, &own);
    assert_true(imported == 0 && own > MOST);
    ebro_device_close(&d);
    shim_get()->heaps = (struct shim_heaps){256 * MIB, 256 * MIB, 0};
    d = rig_device();
    load_demo(d, &imported, &own);
    assert_true(imported == 0 && own > MOST);
    ebro_device_close(&d);
}

/* Several allocations where one cannot hold the weights, and for a matrix that none can. */
static void weights_in_small_allocations(void **state) {
    (void)state;
    ebro_model *model = NULL;
    struct eb_weights *w = NULL;
    struct eb_stream s;
    ebro_error err = {0};
    uint64_t imported = 0, own = 0;
    uint32_t next = 0;
    const ebro_model_options mo = {.size = sizeof mo, .path = test_demo_dir()};
    test_ok(ebro_model_open(rt, &mo, &model, &err), &err);
    shim_get()->limits.allocation_bytes = 10 * MIB; /* staging memory takes 8 */
    struct ebro_device *d = rig_device();
    load_demo(d, &imported, &own);
    assert_true(imported == 0 && own > model->files[0].bytes.bytes / 2);
    assert_true(shim_get()->seen.largest_buffer <= 10 * MIB);
    ebro_device_close(&d);

    const uint64_t most = (model->embed.w->bytes - 1) / 16 * 16;
    shim_get()->limits.allocation_bytes = most;
    shim_get()->seen.largest_buffer = 0;
    d = rig_device();
    test_ok(eb_stream_open(d, &s, &err), &err);
    test_ok(eb_weights_load(model, &s, NULL, &w, &err), &err);
    assert_true(eb_weight_part(w, &model->embed, 0, &next).mem !=
                eb_weight_part(w, &model->embed, next, &next).mem);
    assert_true(shim_get()->seen.largest_buffer <= most);
    eb_weights_free(&w);
    eb_stream_close(&s);
    ebro_device_close(&d);
    ebro_model_close(&model);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, rig_open, rig_close)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_allocation_has_the_smallest_of_its_limits),
        TEST(grids_are_folded),
        TEST(a_card_with_a_small_window_works),
        TEST(full_heaps_are_said),
        TEST(too_little_shared_memory_is_refused),
        TEST(weights_lie_where_they_can),
        TEST(weights_in_small_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
