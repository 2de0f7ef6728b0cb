/* device.c: what every backend owes the runtime about devices and memory; run on every device that
 * is listed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/contract/rig.h"

static unsigned char *random_bytes(size_t n) {
    unsigned char *p = malloc(n > 0 ? n : 1);
    assert_non_null(p);
    fill_random(&rng, p, n);
    return p;
}

/* ---- capabilities ----------------------------------------------------------------------- */

static void caps_are_sensible(struct ebro_device *d, struct eb_stream *s) {
    (void)s;
    const ebro_caps *c = &d->caps;
    ebro_device_info info;
    ebro_device_get_info(d, &info);
    assert_string_equal(info.name, d->info.name);
    assert_int_equal(c->size, sizeof *c);
    /* An allocation can begin with a table of addresses. */
    assert_true(c->mem_alignment >= sizeof(uint64_t));
    assert_int_equal(c->mem_alignment & (c->mem_alignment - 1), 0);
    assert_true(c->wave_min >= 1 && c->wave_min <= c->wave_max);
    assert_true(c->max_alloc_bytes > 0);
    assert_true(c->max_binding_bytes > 0);
    assert_true(c->n_threads >= 1 || strcmp(d->be->name, "cpu") != 0);
    if (info.total_bytes != 0) assert_true(info.free_bytes <= info.total_bytes);
    /* Memory that is the host's is imported without a copy. */
    if ((c->bits & EBRO_CAP_UNIFIED) != 0) assert_non_null(d->be->mem_import);
    assert_int_equal(eb_device_check(d, NULL), EBRO_OK);
}

static void caps_of_every_device(void **state) {
    (void)state;
    on_every_device(caps_are_sensible);
}

/* What is left of a device's capabilities. It may refuse to open without one that an op needs. */
static uint64_t bits_less(const char *device, uint64_t mask) {
    ebro_device *d = NULL;
    ebro_error err = {0};
    const ebro_device_options o = {.size = sizeof o, .caps_mask = mask, .n_threads = 1};
    int32_t st = eb_device_open(rt, device, &o, &d, &err);
    if (mask != 0 && st == EBRO_UNSUPPORTED) return 0;
    test_ok(st, &err);
    uint64_t bits = d->caps.bits;
    ebro_device_close(&d);
    return bits;
}

/* Each alone, then all. */
static void a_masked_cap_is_gone(void **state) {
    (void)state;
    for (uint32_t i = 0; i < n_devices; i++) {
        const char *name = devices[i].name;
        uint64_t bits = bits_less(name, 0);
        for (uint64_t bit = 1; bit != 0; bit <<= 1) {
            if ((bits & bit) != 0 && (bits_less(name, bit) & bit) != 0)
                fail_msg("%s: capability 0x%" PRIx64 " is masked and still there", name, bit);
        }
        assert_int_equal(bits_less(name, UINT64_MAX), 0);
    }
}

/* ---- variants to avoid ------------------------------------------------------------------ */

static int32_t open_without(const char *device, const char *avoid, ebro_device **d,
                            ebro_error *err) {
    const ebro_device_options o = {.size = sizeof o, .n_threads = 1, .avoid = avoid};
    memset(err, 0, sizeof *err);
    return eb_device_open(rt, device, &o, d, err);
}

static void unknown_variants_and_none_are_refused(void **state) {
    (void)state;
    for (uint32_t i = 0; i < n_devices; i++) {
        ebro_device *d = NULL;
        ebro_error err;
        int32_t st = open_without(devices[i].name, "  ", &d, &err);
        test_ok(st, &err);
        ebro_device_close(&d);
        st = open_without(devices[i].name, "none_such", &d, &err);
        test_fails(st, EBRO_INVALID, &err, "\"none_such\"");
        test_fails(st, EBRO_INVALID, &err, "there are");
        if (strcmp(devices[i].name, "CPU") != 0) continue;
#if defined(__x86_64__)
        st = open_without("CPU", "avx2 plain avx512", &d, &err);
#else
        st = open_without("CPU", "plain", &d, &err);
#endif
        test_fails(st, EBRO_UNSUPPORTED, &err, "no variant of any op is left");
    }
}

static void closing_and_describing_nothing_is_fine(void **state) {
    (void)state;
    ebro_device *none = NULL;
    ebro_device_close(&none);
    ebro_device_close(NULL);
    ebro_device_info info;
    memset(&info, 0x5a, sizeof info);
    ebro_device_get_info(NULL, &info);
    assert_int_equal(info.name[0], 0);
    ebro_error err = {0};
    test_fails(ebro_device_open(NULL, NULL, &none, &err), EBRO_INVALID, &err, "runtime");
    test_fails(ebro_device_open(rt, NULL, NULL, &err), EBRO_INVALID, &err, "out");
}

/* ---- allocation ------------------------------------------------------------------------- */

static void allocations_are_usable(struct ebro_device *d, struct eb_stream *s) {
    static const uint64_t sizes[] = {1, 2, 63, 64, 65, 4095, 4096, 4097, 1000003};
    enum { N = sizeof sizes / sizeof sizes[0] };
    for (uint32_t kind = EBRO_MEM_DEVICE; kind <= EBRO_MEM_READBACK; kind++) {
        ebro_mem *mem[N];
        unsigned char *data[N];
        ebro_error err = {0};
        /* All at once, so that any that share bytes spoil each other. */
        for (size_t i = 0; i < N; i++) {
            test_ok(eb_mem_alloc(d, sizes[i], kind, &mem[i], &err), &err);
            assert_true(mem[i]->bytes >= sizes[i]);
            assert_true(mem[i]->address != 0);
            assert_int_equal(mem[i]->address % d->caps.mem_alignment, 0);
            if (kind != EBRO_MEM_DEVICE) assert_non_null(mem[i]->host);
            data[i] = random_bytes((size_t)sizes[i]);
            test_ok(eb_upload(s, at(mem[i], 0), data[i], sizes[i], &err), &err);
        }
        test_ok(eb_stream_sync(s, &err), &err);
        for (size_t i = 0; i < N; i++) {
            for (size_t k = 0; k < i; k++) {
                assert_true(mem[k]->address + sizes[k] <= mem[i]->address ||
                            mem[i]->address + sizes[i] <= mem[k]->address);
            }
            unsigned char *back = malloc((size_t)sizes[i]);
            memset(back, 0x5a, (size_t)sizes[i]);
            test_ok(eb_download(s, back, at(mem[i], 0), sizes[i], &err), &err);
            test_ok(eb_stream_sync(s, &err), &err);
            assert_memory_equal(back, data[i], (size_t)sizes[i]);
            if (mem[i]->host != NULL) {
                assert_memory_equal(mem[i]->host, data[i], (size_t)sizes[i]);
            }
            free(back);
            free(data[i]);
        }
        for (size_t i = 0; i < N; i++) {
            eb_mem_free(d, &mem[i]);
            assert_null(mem[i]);
            eb_mem_free(d, &mem[i]);
        }
    }
    eb_mem_free(d, NULL);
}

static void allocations_of_every_kind(void **state) {
    (void)state;
    on_every_device(allocations_are_usable);
}

static void zero_is_a_size(struct ebro_device *d, struct eb_stream *s) {
    ebro_error err = {0};
    ebro_mem *a = NULL, *b = NULL;
    test_ok(eb_mem_alloc(d, 0, EBRO_MEM_DEVICE, &a, &err), &err);
    test_ok(eb_mem_alloc(d, 0, EBRO_MEM_DEVICE, &b, &err), &err);
    assert_non_null(a);
    assert_true(a->address != 0 && b->address != 0 && a->address != b->address);
    test_ok(eb_upload(s, at(a, 0), NULL, 0, &err), &err);
    test_ok(eb_stream_sync(s, &err), &err);
    eb_mem_free(d, &a);
    eb_mem_free(d, &b);
}

static void zero_bytes_on_every_device(void **state) {
    (void)state;
    on_every_device(zero_is_a_size);
}

static void too_much_is_refused(struct ebro_device *d, struct eb_stream *s) {
    (void)s;
    const uint64_t sizes[] = {UINT64_C(1) << 50, UINT64_C(1) << 60, UINT64_MAX - 4096, UINT64_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (uint32_t kind = EBRO_MEM_DEVICE; kind <= EBRO_MEM_READBACK; kind++) {
            ebro_mem *mem = (ebro_mem *)(uintptr_t)1;
            ebro_error err = {0};
            char wanted[32];
            snprintf(wanted, sizeof wanted, "%" PRIu64, sizes[i]);
            test_fails(eb_mem_alloc(d, sizes[i], kind, &mem, &err), EBRO_NOMEM_DEVICE, &err,
                       wanted);
            test_fails(err.status, EBRO_NOMEM_DEVICE, &err, "bytes free");
            test_fails(err.status, EBRO_NOMEM_DEVICE, &err, d->info.name);
            assert_null(mem);
        }
    }
    /* Refusal costs nothing: the next request is served. */
    ebro_mem *mem = NULL;
    ebro_error err = {0};
    test_ok(eb_mem_alloc(d, 4096, EBRO_MEM_DEVICE, &mem, &err), &err);
    eb_mem_free(d, &mem);
    test_fails(eb_mem_alloc(d, 16, 77, &mem, &err), EBRO_INVALID, &err, "77");
}

static void huge_allocations_on_every_device(void **state) {
    (void)state;
    on_every_device(too_much_is_refused);
}

/* The null device owns a known amount, so running out of it can be seen to the byte. */
static void memory_is_counted_down_and_up(void **state) {
    (void)state;
    ebro_device *d = NULL;
    ebro_error err = {0};
    test_ok(ebro_device_open(rt, "Null0", &d, &err), &err);
    ebro_device_info before, info;
    ebro_device_get_info(d, &before);
    ebro_mem *a = NULL, *b = NULL;
    test_ok(eb_mem_alloc(d, 1000, EBRO_MEM_DEVICE, &a, &err), &err);
    ebro_device_get_info(d, &info);
    assert_int_equal(before.free_bytes - info.free_bytes, 1000);
    char free_text[64];
    snprintf(free_text, sizeof free_text, "%" PRIu64 " bytes free", info.free_bytes);
    test_fails(eb_mem_alloc(d, before.free_bytes, EBRO_MEM_DEVICE, &b, &err), EBRO_NOMEM_DEVICE,
               &err, free_text);
    assert_null(b);
    eb_mem_free(d, &a);
    ebro_device_get_info(d, &info);
    assert_int_equal(info.free_bytes, before.free_bytes);
    ebro_device_close(&d);
}

/* ---- import ----------------------------------------------------------------------------- */

static void imports_read_back(struct ebro_device *d, struct eb_stream *s) {
    enum { N = 20000 };
    unsigned char *data = random_bytes(N + 8192), *back = malloc(N);
    const uintptr_t a = (uintptr_t)d->caps.mem_alignment;
    unsigned char *aligned = data + (a - (uintptr_t)data % a) % a;
    /* Where the pointer fits the alignment, and where it does not. */
    static const size_t shifts[] = {0, 1, 7};
    for (size_t i = 0; i < sizeof shifts / sizeof shifts[0]; i++) {
        const unsigned char *from = aligned + shifts[i];
        ebro_mem *mem = NULL;
        ebro_error err = {0};
        test_ok(eb_mem_import(s, from, N, &mem, &err), &err);
        assert_true(mem->bytes >= N && mem->address != 0);
        memset(back, 0x5a, N);
        test_ok(eb_download(s, back, at(mem, 0), N, &err), &err);
        test_ok(eb_stream_sync(s, &err), &err);
        assert_memory_equal(back, from, N);
        test_ok(eb_download(s, back, at(mem, 4321), 100, &err), &err);
        test_ok(eb_stream_sync(s, &err), &err);
        assert_memory_equal(back, from + 4321, 100);
        if (shifts[i] == 0 && (d->caps.bits & EBRO_CAP_UNIFIED) != 0) {
            assert_ptr_equal(mem->host, from);
        }
        eb_mem_free(d, &mem);
        assert_null(mem);
    }
    ebro_mem *mem = NULL;
    ebro_error err = {0};
    test_ok(eb_mem_import(s, NULL, 0, &mem, &err), &err);
    assert_non_null(mem);
    eb_mem_free(d, &mem);
    test_fails(eb_mem_import(s, NULL, 5, &mem, &err), EBRO_INVALID, &err, "5 bytes");
    assert_null(mem);
    free(data);
    free(back);
}

static void imports_on_every_device(void **state) {
    (void)state;
    on_every_device(imports_read_back);
}

/* A backend that can import but not this range: the copy serves as well, and shows as one. */
static int32_t refuse_import(ebro_dev *dev, const void *host, uint64_t bytes, ebro_mem **out,
                             ebro_error *err) {
    (void)dev;
    (void)host;
    (void)bytes;
    *out = NULL;
    return eb_fail(err, EBRO_UNSUPPORTED, "not this range");
}

static void a_refused_import_becomes_a_copy(struct ebro_device *d, struct eb_stream *s) {
    ebro_backend be = *d->be;
    be.mem_import = refuse_import;
    const ebro_backend *real = d->be;
    d->be = &be;
    _Alignas(4096) static unsigned char data[4096];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 7);
    unsigned char back[sizeof data] = {0};
    ebro_mem *mem = NULL;
    ebro_error err = {0};
    test_ok(eb_mem_import(s, data, sizeof data, &mem, &err), &err);
    assert_ptr_not_equal(mem->host, data);
    test_ok(eb_download(s, back, at(mem, 0), sizeof back, &err), &err);
    test_ok(eb_stream_sync(s, &err), &err);
    assert_memory_equal(back, data, sizeof back);
    eb_mem_free(d, &mem);
    d->be = real;
}

static void refused_imports_on_every_device(void **state) {
    (void)state;
    on_every_device(a_refused_import_becomes_a_copy);
}

/* ---- several at once -------------------------------------------------------------------- */

static void a_device_opens_twice(void **state) {
    (void)state;
    for (uint32_t i = 0; i < n_devices; i++) {
        ebro_device *a = NULL, *b = NULL;
        ebro_mem *ma = NULL, *mb = NULL;
        ebro_error err = {0};
        test_ok(ebro_device_open(rt, devices[i].name, &a, &err), &err);
        test_ok(ebro_device_open(rt, devices[i].name, &b, &err), &err);
        test_ok(eb_mem_alloc(a, 100, EBRO_MEM_DEVICE, &ma, &err), &err);
        test_ok(eb_mem_alloc(b, 100, EBRO_MEM_DEVICE, &mb, &err), &err);
        eb_mem_free(a, &ma);
        ebro_device_close(&a);
        struct eb_stream s;
        test_ok(eb_stream_open(b, &s, &err), &err);
        test_ok(eb_fill(&s, at(mb, 0), 3, 100, &err), &err);
        test_ok(eb_stream_sync(&s, &err), &err);
        eb_stream_close(&s);
        eb_mem_free(b, &mb);
        ebro_device_close(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(caps_of_every_device),
        cmocka_unit_test(a_masked_cap_is_gone),
        cmocka_unit_test(unknown_variants_and_none_are_refused),
        cmocka_unit_test(closing_and_describing_nothing_is_fine),
        cmocka_unit_test(allocations_of_every_kind),
        cmocka_unit_test(zero_bytes_on_every_device),
        cmocka_unit_test(huge_allocations_on_every_device),
        cmocka_unit_test(memory_is_counted_down_and_up),
        cmocka_unit_test(imports_on_every_device),
        cmocka_unit_test(refused_imports_on_every_device),
        cmocka_unit_test(a_device_opens_twice),
    };
    return cmocka_run_group_tests(tests, rig_open, rig_close);
}
