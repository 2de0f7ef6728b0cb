/* How memory is cut into blocks: the public models' figures, and the addresses of every unit and
 * row of random shapes against what backend.h says about them. */
#include <stdlib.h>
#include <string.h>

#include "mem/layout.h"
#include "tests/harness/test.h"

static struct eb_layout plan(const struct eb_shape *s) {
    ebro_error err;
    struct eb_layout l;
    test_ok(eb_layout_plan(s, &l, &err), &err);
    return l;
}

static const int32_t row_dtypes[] = {EBRO_F32, EBRO_F16, EBRO_BF16};

/* Rounding loses less than 3% of a page and of a state. */
static void public_models(void **state) {
    (void)state;
    static const struct {
        struct eb_shape shape;
        uint64_t heads_mib, row_f16;
    } models[] = {{{.n_mla_layers = 7,
                    .n_kda_layers = 20,
                    .row_elements = 576,
                    .kda_heads = 32,
                    .kda_head_dim = 128},
                   40,
                   8064},
                  {{.n_mla_layers = 24,
                    .n_kda_layers = 69,
                    .row_elements = 576,
                    .kda_heads = 96,
                    .kda_head_dim = 128},
                   414,
                   27648}};
    for (size_t m = 0; m < 2; m++) {
        for (size_t d = 0; d < 3; d++) {
            for (int s = 0; s < 2; s++) {
                struct eb_shape shape = models[m].shape;
                shape.row_dtype = row_dtypes[d];
                shape.state_dtype = s == 0 ? EBRO_F32 : EBRO_BF16;
                struct eb_layout l = plan(&shape);
                test_le(eb_layout_page_waste(&l), 0.03, "page of model %zu, dtypes %zu %d", m, d,
                        s);
                test_le(eb_layout_slot_waste(&l), 0.03, "state of model %zu, dtypes %zu %d", m, d,
                        s);
                uint64_t heads = (uint64_t)shape.n_kda_layers * shape.kda_heads * l.head_bytes;
                assert_int_equal(heads, (models[m].heads_mib << 20) / (s == 0 ? 1 : 2));
                assert_int_equal(l.row_bytes, models[m].row_f16 * (d == 0 ? 2 : 1));
                /* three inputs of q, k and v each, f32 */
                uint64_t channels = (uint64_t)shape.kda_heads * shape.kda_head_dim;
                assert_int_equal(l.state_bytes - heads,
                                 (uint64_t)shape.n_kda_layers * 3 * 3 * channels * 4);
            }
        }
    }
}

/* ---- addresses ----------------------------------------------------------------------------- */

/* Marks bytes [at, at + n) of block `b`, which must lie within it and be free. In units of 16
 * bytes, where all sizes are multiples of that. */
struct map {
    uint8_t *taken;
    uint64_t block_bytes;
    uint32_t n_blocks, grain;
};

static void mark(struct map *m, uint64_t b, uint64_t at, uint64_t n) {
    assert_true(b < m->n_blocks);
    assert_true(at + n <= m->block_bytes);
    assert_true(at % m->grain == 0 && n % m->grain == 0);
    uint8_t *p = m->taken + (b * m->block_bytes + at) / m->grain;
    for (uint64_t i = 0; i < n / m->grain; i++) {
        assert_int_equal(p[i], 0);
        p[i] = 1;
    }
}

/* Block and offset of unit u, as backend.h says it. */
static void mark_unit(struct map *m, const ebro_region *r, uint32_t u) {
    uint64_t k = (uint64_t)r->first_unit + u;
    mark(m, r->first_block + k / r->units_per_block,
         r->block_offset + k % r->units_per_block * r->unit_bytes, r->unit_bytes);
}

static uint64_t size_of(int32_t dtype) {
    return dtype == EBRO_F32 ? 4 : 2;
}

/* Every head and window of a slot in a place of its own, none split, the sum of them what is said.
 */
static void check_slot(const struct eb_layout *l) {
    const struct eb_shape *s = &l->shape;
    struct map m = {.block_bytes = l->block_bytes, .n_blocks = l->slot_blocks, .grain = 8};
    m.taken = calloc(l->slot_blocks * l->block_bytes / m.grain + 1, 1);
    assert_non_null(m.taken);
    uint64_t sum = 0;
    for (uint32_t y = 0; y < s->n_kda_layers; y++) {
        ebro_region heads = eb_layout_states(l, y, (ebro_span){0});
        ebro_region windows = eb_layout_windows(l, y, (ebro_span){0});
        assert_int_equal(heads.table_stride, l->slot_blocks);
        assert_int_equal(heads.unit_bytes,
                         (uint64_t)s->kda_head_dim * s->kda_head_dim * size_of(s->state_dtype));
        assert_int_equal(windows.unit_bytes,
                         (uint64_t)3 * s->kda_heads * s->kda_head_dim * sizeof(float));
        assert_int_equal(heads.dtype, s->state_dtype);
        assert_int_equal(windows.dtype, EBRO_F32);
        for (uint32_t h = 0; h < s->kda_heads; h++) mark_unit(&m, &heads, h);
        for (uint32_t w = 0; w < 3; w++) mark_unit(&m, &windows, w);
        sum += s->kda_heads * heads.unit_bytes + 3 * windows.unit_bytes;
    }
    assert_int_equal(sum, l->state_bytes);
    /* no block of a slot without anything in it */
    for (uint32_t b = 0; b < l->slot_blocks; b++) {
        const uint8_t *p = m.taken + b * l->block_bytes / m.grain;
        assert_non_null(memchr(p, 1, l->block_bytes / m.grain));
    }
    free(m.taken);
}

/* Every row of every layer of a page in a place of its own. */
static void check_page(const struct eb_layout *l) {
    const struct eb_shape *s = &l->shape;
    struct map m = {.block_bytes = l->block_bytes, .n_blocks = 1, .grain = 2};
    m.taken = calloc(l->block_bytes / m.grain + 1, 1);
    assert_non_null(m.taken);
    for (uint32_t y = 0; y < s->n_mla_layers; y++) {
        ebro_pages p = eb_layout_rows(l, y, (ebro_span){0}, 7);
        assert_int_equal(p.table_stride, 7);
        assert_int_equal(p.page_tokens, l->page_tokens);
        assert_int_equal(p.dtype, s->row_dtype);
        uint64_t bytes = p.row_stride * size_of(p.dtype);
        assert_int_equal(bytes, s->row_elements * size_of(s->row_dtype));
        for (uint32_t t = 0; t < l->page_tokens; t++)
            mark(&m, 0, p.layer_offset + t * bytes, bytes);
    }
    assert_int_equal(l->row_bytes, s->n_mla_layers * s->row_elements * size_of(s->row_dtype));
    free(m.taken);
}

static void random_shapes(void **state) {
    (void)state;
    struct test_rng r = {test_seed()};
    for (int i = 0; i < 400; i++) {
        struct eb_shape s = {.n_mla_layers = (uint32_t)(test_u64(&r) % 9),
                             .n_kda_layers = (uint32_t)(test_u64(&r) % 12),
                             .row_elements = (uint32_t)(1 + test_u64(&r) % 700),
                             .row_dtype = row_dtypes[test_u64(&r) % 3],
                             .kda_heads = (uint32_t)(1 + test_u64(&r) % 12),
                             .kda_head_dim = 4 * (uint32_t)(1 + test_u64(&r) % 24),
                             .state_dtype = test_u64(&r) % 2 ? EBRO_F32 : EBRO_BF16};
        if (s.n_mla_layers + s.n_kda_layers == 0) s.n_mla_layers = 1;
        struct eb_layout l = plan(&s);
        assert_int_equal(l.block_bytes % 256, 0);
        assert_int_equal(l.page_tokens % 16, 0);
        assert_true((l.slot_blocks == 0) == (s.n_kda_layers == 0));
        assert_true(l.page_tokens * l.row_bytes <= l.block_bytes);
        check_slot(&l);
        check_page(&l);
        uint32_t n = (uint32_t)(test_u64(&r) % 100000), pages = 0;
        for (uint64_t t = 0; s.n_mla_layers > 0 && t < n; t += l.page_tokens) pages++;
        assert_int_equal(eb_layout_pages(&l, n), pages);
    }
}

/* The largest counts of tokens do not wrap. */
static void limits(void **state) {
    (void)state;
    ebro_error err;
    struct eb_layout l;
    struct eb_shape s = {.n_mla_layers = 24,
                         .n_kda_layers = 69,
                         .row_elements = 576,
                         .row_dtype = EBRO_F32,
                         .kda_heads = 96,
                         .kda_head_dim = 128,
                         .state_dtype = EBRO_F32};
    l = plan(&s);
    assert_int_equal(eb_layout_pages(&l, 0), 0);
    assert_int_equal(eb_layout_pages(&l, 1), 1);
    assert_int_equal(eb_layout_pages(&l, l.page_tokens), 1);
    assert_int_equal(eb_layout_pages(&l, l.page_tokens + 1), 2);
    assert_int_equal(eb_layout_pages(&l, UINT32_MAX),
                     ((uint64_t)UINT32_MAX + l.page_tokens - 1) / l.page_tokens);
    s.row_elements = UINT32_MAX;
    s.n_mla_layers = UINT32_MAX;
    test_fails(eb_layout_plan(&s, &l, &err), EBRO_INVALID, &err, "overflow");
    s.row_elements = s.n_mla_layers = 1;
    s.kda_head_dim = UINT32_MAX;
    test_fails(eb_layout_plan(&s, &l, &err), EBRO_INVALID, &err, "overflow");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(public_models),
                                       cmocka_unit_test(random_shapes), cmocka_unit_test(limits)};
    return cmocka_run_group_tests_name("mem/layout", tests, NULL, NULL);
}
