/* mla_form.c: which form of MLA the engine takes, by the costs that a device states. */
#include <string.h>

#include "device/device.h"
#include "engine/engine.h"
#include "tests/harness/test.h"

/* Kimi Linear's attention. */
static struct eb_config config(void) {
    struct eb_config c;
    memset(&c, 0, sizeof c);
    c.kv_lora_rank = 512;
    c.qk_nope_head_dim = 128;
    c.qk_rope_head_dim = 64;
    c.v_head_dim = 128;
    return c;
}

/* Rows from which on the expanded form is taken; it must stay taken from there on. */
static uint32_t crossover(const struct eb_config *c, const ebro_caps *caps, uint32_t context) {
    uint32_t first = 0;
    for (uint32_t rows = 1; rows <= 1024; rows++) {
        bool expanded = eb_mla_expanded_pays(c, caps, rows, context);
        if (expanded && first == 0) first = rows;
        if (!expanded && first != 0) fail_msg("%u rows after %u: absorbed again", rows, context);
    }
    return first;
}

/* By counts alone: (128 + 128) 512 more for each token, 512 + 512 + 64 - 320 less for each pair:
 * 131,072 / 768 = 170.7 rows where the context is long. */
static void unknown_costs(void **state) {
    (void)state;
    struct eb_config c = config();
    ebro_caps caps = {.size = sizeof caps};
    assert_int_equal(crossover(&c, &caps, 1000000), 171);
    caps.mla_expanded_ps = 30; /* one alone says nothing */
    assert_int_equal(crossover(&c, &caps, 1000000), 171);
}

/* With the absorbed form twice as dear: 131,072 / (2 * 1,088 - 320) = 70.6 rows. */
static void stated_costs(void **state) {
    (void)state;
    struct eb_config c = config();
    ebro_caps caps = {.size = sizeof caps, .mla_expanded_ps = 20, .mla_absorbed_ps = 40};
    assert_int_equal(crossover(&c, &caps, 1000000), 71);
    caps.mla_expanded_ps = 40;
    assert_int_equal(crossover(&c, &caps, 1000000), 171);
}

/* A block of tokens is paid for as a whole: few rows without a context do not expand. */
static void blocks(void **state) {
    (void)state;
    struct eb_config c = config();
    ebro_caps caps = {.size = sizeof caps, .mla_expanded_ps = 20, .mla_absorbed_ps = 40};
    uint32_t before = crossover(&c, &caps, 0);
    caps.mla_expanded_tokens = 32;
    assert_true(crossover(&c, &caps, 0) > before);
    assert_true(crossover(&c, &caps, 0) <= 32);
}

/* What the CPU states: known costs, the absorbed form the dearer one; one row never expands, a full
 * chunk always does. */
static void cpu_states_costs(void **state) {
    (void)state;
    static const uint64_t masks[] = {0, EBRO_CAP_AVX512, EBRO_CAP_AVX512 | EBRO_CAP_AVX2};
    ebro_error err;
    ebro_runtime *rt = NULL;
    struct eb_config c = config();
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&ro, &rt, &err), &err);
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        ebro_device *d = NULL;
        ebro_device_options o = {.size = sizeof o, .caps_mask = masks[i], .n_threads = 1};
        test_ok(eb_device_open(rt, "cpu", &o, &d, &err), &err);
        assert_true(d->caps.mla_expanded_ps > 0);
        assert_true(d->caps.mla_absorbed_ps > d->caps.mla_expanded_ps);
        for (uint32_t context = 0; context < 100000; context = 2 * context + 100) {
            assert_false(eb_mla_expanded_pays(&c, &d->caps, 1, context));
            assert_true(eb_mla_expanded_pays(&c, &d->caps, 512, context));
        }
        ebro_device_close(&d);
    }
    ebro_runtime_close(&rt);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_costs),
        cmocka_unit_test(stated_costs),
        cmocka_unit_test(blocks),
        cmocka_unit_test(cpu_states_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
