/* load.c: placing weights on a device: every byte where the views say, in place or copied, and
 * nothing left behind when memory runs out. */
#include "model/load.h"

#include <stdlib.h>
#include <string.h>

#include "model/plan.h"
#include "tests/harness/failing.h"
#include "tests/model/opening.h"

struct placed {
    const struct eb_weights *w;
    struct eb_stream *s;
    size_t n_in_place, n;
};

/* Downloads what lies there and compares it. */
static void check_bytes(struct placed *p, const ebro_mem *mem, ebro_span src, const uint8_t *want,
                        uint64_t bytes) {
    ebro_error err = {0};
    uint8_t *back = malloc(bytes > 0 ? bytes : 1);
    assert_true(mem != NULL && back != NULL);
    memset(back, 0xa5, bytes);
    test_ok(eb_download(p->s, back, src, bytes, &err), &err);
    test_ok(eb_stream_sync(p->s, &err), &err);
    assert_memory_equal(back, want, bytes);
    free(back);
}

static int32_t compare(void *user, const struct eb_tensor *t, ebro_error *err) {
    struct placed *p = user;
    ebro_vec v = eb_vec(p->w, t);
    (void)err;
    check_bytes(p, v.mem, (ebro_span){v.mem, v.offset}, t->data, t->bytes);
    p->n_in_place += (uintptr_t)(v.mem->address + v.offset) == (uintptr_t)t->data;
    p->n++;
    return EBRO_OK;
}

static void check_table(struct placed *p, ebro_span table, const struct eb_layer *y, bool scales) {
    uint64_t got[3][MICRO_EXPERTS];
    ebro_error err = {0};
    assert_non_null(table.mem);
    test_ok(eb_download(p->s, got, table, sizeof got, &err), &err);
    test_ok(eb_stream_sync(p->s, &err), &err);
    for (int i = 0; i < 3; i++)
        for (int e = 0; e < MICRO_EXPERTS; e++) {
            ebro_weight w = eb_weight(p->w, &y->experts[i][e]);
            uint64_t want =
                scales ? w.scale_mem->address + w.scale_offset : w.mem->address + w.offset;
            assert_true(got[i][e] == want && want != 0);
        }
}

/* max_alloc: what the device says it can allocate at once; 0: as it is. */
static void check_load(const struct micro_spec *spec, uint64_t caps_mask, uint64_t max_alloc,
                       bool in_place) {
    char *dir = test_tmp_dir();
    ebro_model *m = NULL;
    ebro_device *d = NULL;
    ebro_error err = {0};
    struct eb_stream s = {0};
    struct eb_weights *w = NULL;
    const ebro_device_options o = {.size = sizeof o, .caps_mask = caps_mask, .n_threads = 1};
    micro_write(dir, spec);
    test_ok(open_path(dir, &m, &err), &err);
    test_ok(eb_device_open(rt, "CPU", &o, &d, &err), &err);
    if (max_alloc > 0) d->caps.max_alloc_bytes = max_alloc;
    test_ok(eb_stream_open(d, &s, &err), &err);
    test_ok(eb_weights_load(m, &s, NULL, &w, &err), &err);
    if (max_alloc > 0) /* more than one allocation was needed, and none was larger */
        assert_true(eb_weight(w, &m->embed).mem != eb_vec(w, m->final_norm).mem &&
                    eb_weight(w, &m->embed).mem->bytes <= max_alloc);
    struct placed p = {.w = w, .s = &s};
    test_ok(eb_plan_each(m, compare, &p, &err), &err);
    if (in_place) {
        assert_int_equal(p.n_in_place, p.n);
    } else {
        assert_true(p.n_in_place < p.n);
    }
    for (uint32_t l = 0; l < m->config.n_layers; l++) {
        const struct eb_layer *y = &m->layers[l];
        if (!y->is_moe) {
            assert_null(eb_expert_table(w, l).mem);
            assert_null(eb_expert_scale_table(w, l).mem);
            continue;
        }
        check_table(&p, eb_expert_table(w, l), y, false);
        if (y->experts[0][0].scale != NULL) check_table(&p, eb_expert_scale_table(w, l), y, true);
    }
    ebro_weight all = eb_weight(w, &m->embed), rows = eb_weight_rows(w, &m->embed, 5, 7);
    assert_int_equal(all.rows, MICRO_VOCAB);
    assert_int_equal(all.stride, MICRO_HIDDEN);
    assert_int_equal(rows.rows, 7);
    assert_int_equal(rows.offset - all.offset,
                     5 * MICRO_HIDDEN * (spec->dtype == EBRO_F32 ? 4 : 2));
    assert_null(eb_weight(w, &m->layers[0].kv_b).mem);
    assert_null(eb_vec(w, NULL).mem);
    eb_weights_free(&w);
    assert_null(w);
    eb_stream_close(&s);
    ebro_device_close(&d);
    ebro_model_close(&m);
    test_tmp_remove(&dir);
}

static void test_load(void **state) {
    (void)state;
    struct micro_spec s = {.seed = 8, .ffn = MICRO_LATENT, .mxfp4 = true, .dtype = EBRO_BF16};
    check_load(&s, 0, 0, true);
    check_load(&s, EBRO_CAP_UNIFIED, 0, false);
    check_load(&s, EBRO_CAP_UNIFIED, 50000, false);
    s.shift = 1; /* only single bytes lie well */
    check_load(&s, 0, 0, false);
    s.mxfp4 = false;
    s.n_shards = 3;
    s.dtype = EBRO_F32;
    s.shift = 0;
    check_load(&s, 0, 0, true);
}

/* Every part of a matrix, and of its scales. Returns how many there are. */
static uint32_t check_parts(struct placed *p, const struct eb_matrix *m, uint64_t max_alloc) {
    uint32_t n = 0;
    const uint64_t row = m->w->bytes / m->rows;
    for (uint32_t first = 0, next; first < m->rows; first = next, n++) {
        ebro_weight w = eb_weight_part(p->w, m, first, &next);
        assert_true(next > first && next <= m->rows && w.rows == next - first);
        assert_int_equal(w.cols, m->cols);
        assert_true(w.mem->bytes <= max_alloc);
        check_bytes(p, w.mem, (ebro_span){w.mem, w.offset}, m->w->data + first * row, w.rows * row);
        if (m->scale == NULL) continue;
        const uint64_t scale_row = m->scale->bytes / m->rows;
        check_bytes(p, w.scale_mem, (ebro_span){w.scale_mem, w.scale_offset},
                    m->scale->data + first * scale_row, w.rows * scale_row);
    }
    return n;
}

/* Allocations smaller than a matrix: its rows lie in several; what must be whole is refused by its
 * name, with what it needs and what there may be. */
static void test_load_in_parts(void **state) {
    (void)state;
    static const struct {
        struct micro_spec spec;
        uint64_t max_alloc;
        uint32_t head_parts, q_parts;
    } cases[] = {{{.seed = 31, .dtype = EBRO_BF16}, 16384, 3, 1},
                 {{.seed = 32, .pattern = "KK", .small_dtype = EBRO_BF16}, 1024, 68, 32},
                 {{.seed = 33, .pattern = "KK", .small_dtype = EBRO_F16, .mxfp4_attention = true},
                  1024,
                  68,
                  4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct micro_files files = micro_make(&cases[i].spec);
        const ebro_device_options o = {
            .size = sizeof o, .caps_mask = EBRO_CAP_UNIFIED, .n_threads = 1};
        ebro_model *m = NULL;
        ebro_device *d = NULL;
        struct eb_weights *w = NULL;
        struct eb_stream s = {0};
        ebro_error err = {0};
        test_ok(open_files(&files, &m, &err), &err);
        test_ok(eb_device_open(rt, "CPU", &o, &d, &err), &err);
        test_ok(eb_stream_open(d, &s, &err), &err);
        d->caps.max_alloc_bytes = cases[i].max_alloc;
        test_ok(eb_weights_load(m, &s, NULL, &w, &err), &err);
        struct placed p = {.w = w, .s = &s};
        assert_int_equal(check_parts(&p, &m->lm_head, cases[i].max_alloc), cases[i].head_parts);
        assert_int_equal(check_parts(&p, &m->embed, cases[i].max_alloc), cases[i].head_parts);
        for (uint32_t l = 0; l < m->config.n_layers; l++)
            assert_int_equal(check_parts(&p, &m->layers[l].q_proj, cases[i].max_alloc),
                             cases[i].q_parts);
        eb_weights_free(&w);
        if (i == 0) {
            d->caps.max_alloc_bytes = 16383;
            test_fails(eb_weights_load(m, &s, NULL, &w, &err), EBRO_NOMEM_DEVICE, &err,
                       m->layers[3].kv_b.w->name);
            test_fails(err.status, EBRO_NOMEM_DEVICE, &err, "can have 16383 bytes");
            test_fails(err.status, EBRO_NOMEM_DEVICE, &err, "allocating 16384 bytes");
            assert_null(w);
        }
        eb_stream_close(&s);
        ebro_device_close(&d);
        ebro_model_close(&m);
        micro_files_free(&files);
    }
}

/* A device that shares memory takes a file that is larger than one import in several; what is
 * larger than that alone is copied. The estimate says the same. */
static void test_import_in_parts(void **state) {
    (void)state;
    enum { MOST = 40000 };
    const struct micro_spec spec = {.seed = 34, .ffn = MICRO_MOE};
    struct micro_files files = micro_make(&spec);
    ebro_model *m = NULL;
    ebro_device *d = NULL;
    struct eb_weights *w = NULL;
    struct eb_stream s = {0};
    ebro_error err = {0};
    uint64_t in_place = 0, copied = 0;
    test_ok(open_files(&files, &m, &err), &err);
    test_ok(ebro_device_open(rt, "CPU", &d, &err), &err);
    test_ok(eb_stream_open(d, &s, &err), &err);
    d->caps.max_alloc_bytes = MOST;
    test_ok(eb_weights_load(m, &s, NULL, &w, &err), &err);
    struct placed p = {.w = w, .s = &s};
    assert_int_equal(check_parts(&p, &m->embed, MOST), 3);
    ebro_vec norm = eb_vec(w, m->final_norm), first = eb_vec(w, m->layers[0].input_norm);
    assert_true(norm.mem != first.mem && norm.mem->bytes <= MOST && first.mem->bytes <= MOST);
    for (uint32_t l = 0; l < m->config.n_layers; l++) {
        const struct eb_tensor *t = m->layers[l].o_proj.w;
        ebro_weight o = eb_weight(w, &m->layers[l].o_proj);
        assert_true(o.mem->address + o.offset == (uintptr_t)t->data);
        assert_int_equal(check_parts(&p, &m->layers[l].o_proj, MOST), 1);
    }
    eb_weights_bytes(m, d, &in_place, &copied);
    assert_true(copied >= m->embed.w->bytes + m->lm_head.w->bytes);
    assert_true(in_place > 0 && in_place < m->files[0].bytes.bytes - copied / 2);
    eb_weights_free(&w);
    eb_stream_close(&s);
    ebro_device_close(&d);
    ebro_model_close(&m);
    micro_files_free(&files);
}

/* Both ways of placing weights, with every allocation failing in turn. */
static void test_load_out_of_memory(void **state) {
    (void)state;
    struct failing f = {.fail_at = SIZE_MAX};
    const ebro_runtime_options ro = {.size = sizeof ro,
                                     .realloc = failing_realloc,
                                     .realloc_user = &f,
                                     .module_dir = test_module_dir()};
    struct micro_spec spec = {.ffn = MICRO_MOE, .n_shards = 2};
    struct micro_files files = micro_make(&spec);
    const ebro_model_options mo = {.size = sizeof mo, .files = files.files, .n_files = files.n};
    ebro_runtime *r = NULL;
    ebro_model *m = NULL;
    ebro_error err = {0};
    test_ok(ebro_runtime_open(&ro, &r, &err), &err);
    test_ok(ebro_model_open(r, &mo, &m, &err), &err);
    for (int unified = 0; unified < 2; unified++) {
        const ebro_device_options o = {
            .size = sizeof o, .caps_mask = unified ? 0 : EBRO_CAP_UNIFIED, .n_threads = 1};
        ebro_device *d = NULL;
        struct eb_stream s = {0};
        test_ok(eb_device_open(r, "CPU", &o, &d, &err), &err);
        test_ok(eb_stream_open(d, &s, &err), &err);
        const size_t held = f.n_held;
        int32_t st = EBRO_NOMEM_HOST;
        for (size_t n = 0; st != EBRO_OK; n++) {
            struct eb_weights *w = NULL;
            f.n_calls = 0;
            f.fail_at = n;
            st = eb_weights_load(m, &s, NULL, &w, &err);
            f.fail_at = SIZE_MAX;
            assert_true(st == EBRO_OK || st == EBRO_NOMEM_HOST || st == EBRO_NOMEM_DEVICE);
            assert_int_equal(st == EBRO_OK, w != NULL);
            eb_weights_free(&w);
            assert_int_equal(f.n_held, held);
        }
        eb_stream_close(&s);
        ebro_device_close(&d);
    }
    ebro_model_close(&m);
    ebro_runtime_close(&r);
    assert_int_equal(f.n_held, 0);
    micro_files_free(&files);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_load_in_parts),
        cmocka_unit_test(test_import_in_parts),
        cmocka_unit_test(test_load_out_of_memory),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
