/* adjust.c: the sample op's adjustments: the choice must be that of logits changed beforehand in
 * float64, and the logits themselves must stay as they were. */
#include "tests/opcheck/rig.h"

enum { ROWS = 4, VOCAB = 301, PADDING = 5 };

struct call {
    struct rig_mat logits;
    struct rig_buf params, ids, adjusts, offsets;
    ebro_sample_args a;
};

static struct call make(const float *logits, const ebro_sample_params *params, uint32_t rows) {
    struct call c = {.logits = rig_mat_from(logits, rows, VOCAB, PADDING),
                     .params = rig_data(params, rows * sizeof *params),
                     .ids = rig_buf(rows * 4)};
    c.a = (ebro_sample_args){.size = sizeof c.a,
                             .logits = c.logits.m,
                             .n_rows = rows,
                             .vocab = VOCAB,
                             .params = c.params.span,
                             .ids = c.ids.span};
    return c;
}

static void add(struct call *c, const ebro_logit_adjust *list, const int32_t *offsets,
                uint32_t capacity) {
    c->adjusts = rig_data(list, capacity * sizeof *list);
    c->offsets = rig_data(offsets, (c->a.n_rows + 1) * sizeof *offsets);
    c->a.adjusts = c->adjusts.span;
    c->a.adjust_offsets = c->offsets.span;
    c->a.n_adjusts = capacity;
}

static const int32_t *sample(struct call *c) {
    c->a.scratch = rig_scratch(EBRO_OP_SAMPLE, &c->a);
    test_ok(eb_op_sample(&rig.s, &c->a, &rig.err), &rig.err);
    rig_sync();
    return rig_get(&c->ids);
}

/* `n` entries with distinct ids, every fifth of them with an id that must do nothing. */
static void random_list(ebro_logit_adjust *out, uint32_t n) {
    uint32_t start = rig_below(VOCAB);
    for (uint32_t i = 0; i < n; i++) {
        out[i].id = (int32_t)((start + i * 7) % VOCAB);
        out[i].repeat = i % 3 == 0 ? 1.0f : test_uniform(&rig.rng, 0.5f, 2.0f);
        out[i].add = i % 4 == 0 ? 0.0f : test_uniform(&rig.rng, -8.0f, 8.0f);
        if (i % 5 == 4) out[i].id = i % 2 == 0 ? -1 - (int32_t)i : VOCAB + (int32_t)i;
    }
}

/* Greedy over many rows: the float64 argmax, unless two logits are nearer than rounding (1e-5). */
static void greedy_matches_float64(void **state) {
    (void)state;
    enum { N = 40 };
    int moved = 0;
    for (int round = 0; round < 200; round++) {
        float *logits = rig_normal(ROWS * VOCAB, 2.0f);
        ebro_sample_params params[ROWS] = {{.temperature = 0}};
        ebro_logit_adjust list[N + 3];
        int32_t offsets[ROWS + 1] = {0, 17, 17, 18, N};
        for (int r = 0; r < ROWS; r++)
            random_list(list + offsets[r], (uint32_t)(offsets[r + 1] - offsets[r]));
        /* Room that the offsets do not use must not be read. */
        for (int i = N; i < N + 3; i++) list[i] = (ebro_logit_adjust){0, NAN, NAN};
        struct call c = make(logits, params, ROWS);
        add(&c, list, offsets, N + 3);
        const int32_t *ids = sample(&c);
        for (int r = 0; r < ROWS; r++) {
            double x[VOCAB];
            int best = 0, plain = 0;
            for (int i = 0; i < VOCAB; i++) x[i] = (double)logits[r * VOCAB + i];
            for (int i = 1; i < VOCAB; i++) plain = x[i] > x[plain] ? i : plain;
            eb_ref_adjust(x, VOCAB, list + offsets[r], (uint32_t)(offsets[r + 1] - offsets[r]));
            for (int i = 1; i < VOCAB; i++) best = x[i] > x[best] ? i : best;
            assert_in_range(ids[r], 0, VOCAB - 1);
            if (x[best] - x[ids[r]] > 1e-5) {
                fail_msg("row %d: token %d (%g) instead of %d (%g)", r, ids[r], x[ids[r]], best,
                         x[best]);
            }
            moved += best != plain;
        }
        assert_memory_equal(rig_mat_get(&c.logits), logits, sizeof(float) * ROWS * VOCAB);
        rig_reset(NULL);
    }
    assert_true(moved > 100); /* the adjustments decide often enough to matter */
}

/* With a temperature the whole distribution must be the adjusted one: the same draws as from
 * logits that were adjusted beforehand. The draws fall 2^-24 apart, rounding near 1e-7: of 400 at
 * most one may land on the other side of an edge. */
static void draws_match_adjusted_logits(void **state) {
    (void)state;
    enum { N = 60 };
    int differ = 0, same_as_plain = 0;
    for (int round = 0; round < 100; round++) {
        float *logits = rig_normal(ROWS * VOCAB, 1.5f), *changed = rig_host(ROWS * VOCAB, 4);
        ebro_sample_params params[ROWS];
        ebro_logit_adjust list[N];
        int32_t offsets[ROWS + 1] = {0, 20, 40, 50, N};
        for (int r = 0; r < ROWS; r++) {
            double x[VOCAB];
            params[r] = (ebro_sample_params){.temperature = 1.1f,
                                             .top_k = r == 1 ? 50 : 0,
                                             .top_p = r == 2 ? 0.9f : 0.0f,
                                             .min_p = r == 3 ? 0.05f : 0.0f,
                                             .seed = test_u64(&rig.rng),
                                             .position = (uint64_t)round};
            random_list(list + offsets[r], (uint32_t)(offsets[r + 1] - offsets[r]));
            for (int i = 0; i < VOCAB; i++) x[i] = (double)logits[r * VOCAB + i];
            eb_ref_adjust(x, VOCAB, list + offsets[r], (uint32_t)(offsets[r + 1] - offsets[r]));
            for (int i = 0; i < VOCAB; i++) changed[r * VOCAB + i] = (float)x[i];
        }
        struct call with = make(logits, params, ROWS), before = make(changed, params, ROWS);
        struct call plain = make(logits, params, ROWS);
        add(&with, list, offsets, N);
        const int32_t *a = sample(&with), *b = sample(&before), *p = sample(&plain);
        for (int r = 0; r < ROWS; r++) {
            assert_in_range(a[r], 0, VOCAB - 1);
            differ += a[r] != b[r];
            same_as_plain += a[r] == p[r];
        }
        rig_reset(NULL);
    }
    test_le(differ, 1, "draws that differ from adjusted logits");
    assert_true(same_as_plain < 395);
}

static void extremes(void **state) {
    (void)state;
    float logits[2 * VOCAB];
    for (int i = 0; i < 2 * VOCAB; i++) logits[i] = (float)(i % VOCAB) * 0.01f;
    ebro_sample_params params[2] = {{.temperature = 0.8f, .seed = 3}, {.temperature = 0}};
    ebro_logit_adjust list[VOCAB + 1];
    /* All but one forbidden: only that one can be drawn. */
    for (int i = 0; i < VOCAB; i++) list[i] = (ebro_logit_adjust){i, 1.0f, i == 77 ? 0.0f : -1e9f};
    /* A logit that overflows is reported as no choice, never as the choice. */
    list[VOCAB] = (ebro_logit_adjust){VOCAB - 1, 1e-38f, 0.0f};
    int32_t offsets[3] = {0, VOCAB, VOCAB + 1};
    logits[2 * VOCAB - 1] = 10.0f;
    struct call c = make(logits, params, 2);
    add(&c, list, offsets, VOCAB + 1);
    const int32_t *ids = sample(&c);
    assert_int_equal(ids[0], 77);
    assert_int_equal(ids[1], -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(greedy_matches_float64, rig_reset),
        cmocka_unit_test_teardown(draws_match_adjusted_logits, rig_reset),
        cmocka_unit_test_teardown(extremes, rig_reset),
    };
    return rig_run("opcheck/adjust", tests);
}
