/* planted.c: `ebro check` must find each known fault of backends/cpu/plant.h and name the operator
 * it lies in; and the demo model must go wrong by each. Each is in a module of its own, with the
 * plain rung alone, in a folder of its name.
 */
#include <stdio.h>
#include <string.h>

#include "check/check.h"
#include "modelcheck/modelcheck.h"
#include "tests/harness/demo.h"

struct plant {
    const char *name;
    ebro_op op;
};

#define PLANT(name, op) \
    { #name, EBRO_OP_##op }
static const struct plant plants[] = {
    PLANT(wrong_wave_width, LINEAR),     PLANT(f16_accumulation, LINEAR),
    PLANT(off_by_one_mask, MLA_PREFILL), PLANT(late_mask, MLA_DECODE),
    PLANT(stale_window, KDA_CONV),       PLANT(unnormalised_q, KDA_PREP),
    PLANT(dropped_carry, KDA_RECUR),     PLANT(swapped_layout, KDA_RECUR),
    PLANT(stray_write, RMS_NORM),
};

/* Failed cases of each op. */
struct findings {
    uint32_t failed[EBRO_N_OPS];
    char first[EBRO_N_OPS][400];
};

static bool note(void *user, const struct eb_opcheck_result *r) {
    struct findings *f = user;
    if (r->verdict != EB_OPCHECK_FAILED) return true;
    if (f->failed[r->op]++ == 0)
        snprintf(f->first[r->op], sizeof f->first[r->op], "%.60s: %.320s", r->name, r->text);
    return true;
}

static void check(const char *folder, uint64_t seed, struct findings *f) {
    ebro_runtime_options options = {.size = sizeof options, .module_dir = folder};
    const struct eb_opcheck_options o = {.seed = seed, .op = -1, .result = note, .user = f};
    struct eb_opcheck_tally tally = {0, 0, 0};
    ebro_runtime *rt = NULL;
    ebro_error err = {0};
    memset(f, 0, sizeof *f);
    test_ok(ebro_runtime_open(&options, &rt, &err), &err);
    test_ok(eb_opcheck_rungs(rt, "CPU", NULL, &o, &tally, &err), &err);
    ebro_runtime_close(&rt);
    assert_true(tally.n_ok + tally.n_failed > 50);
}

/* Of the ops whose code shares the faulty lines others may fail too: moe_experts multiplies as
 * linear does, kda_step writes windows as kda_conv does, and kda_recur gives what kda_prep spoilt.
 */
static bool may_fail(ebro_op planted, ebro_op op) {
    if (op == planted) return true;
    if (planted == EBRO_OP_LINEAR) return op == EBRO_OP_MOE_ROUTE || op == EBRO_OP_MOE_EXPERTS;
    if (planted == EBRO_OP_KDA_CONV) return op == EBRO_OP_KDA_STEP;
    return planted == EBRO_OP_KDA_PREP && op == EBRO_OP_KDA_RECUR;
}

static void each_is_found(void **state) {
    (void)state;
    static struct findings f;
    uint64_t seed = test_seed();
    for (size_t i = 0; i < sizeof plants / sizeof plants[0]; i++) {
        char folder[4096];
        snprintf(folder, sizeof folder, "%s/%s", TEST_PLANTED_DIR, plants[i].name);
        check(folder, seed, &f);
        print_message("%s: %s fails %u times: %s\n", plants[i].name, eb_op_name(plants[i].op),
                      f.failed[plants[i].op], f.first[plants[i].op]);
        if (f.failed[plants[i].op] == 0) fail_msg("%s was not found", plants[i].name);
        for (int op = 0; op < EBRO_N_OPS; op++) {
            if (f.failed[op] > 0 && !may_fail(plants[i].op, (ebro_op)op))
                fail_msg("%s: %s was blamed: %s", plants[i].name, eb_op_name((ebro_op)op),
                         f.first[op]);
        }
    }
}

/* The same module without a fault, with fresh inputs each time. */
static void none_is_invented(void **state) {
    (void)state;
    enum { ROUNDS = 20 };
    static struct findings f;
    uint64_t seed = test_seed();
    for (uint64_t i = 0; i < ROUNDS; i++) {
        check(TEST_PLANTED_DIR "/none", seed + i, &f);
        for (int op = 0; op < EBRO_N_OPS; op++)
            if (f.failed[op] > 0)
                fail_msg("seed %llu: %s: %s", (unsigned long long)(seed + i),
                         eb_op_name((ebro_op)op), f.first[op]);
    }
}

/* ---- the model -------------------------------------------------------------------------- */

struct model_findings {
    uint32_t n_failed;
    char first[400];
};

static bool note_model(void *user, const struct eb_modelcheck_result *r) {
    struct model_findings *f = user;
    if (r->verdict == EB_OPCHECK_FAILED && f->n_failed++ == 0)
        snprintf(f->first, sizeof f->first, "%s, %s: %.300s", eb_modelcheck_name(r->kind),
                 r->prompt, r->text);
    return true;
}

/* A quick one. */
static struct model_findings check_model(const char *fault, const struct test_demo *demo) {
    char folder[4096];
    struct model_findings f = {0, ""};
    const ebro_runtime_options options = {.size = sizeof options, .module_dir = folder};
    const struct eb_modelcheck_options o = {.files = demo->files,
                                            .n_files = TEST_DEMO_FILES,
                                            .golden = demo->golden,
                                            .golden_bytes = demo->golden_bytes,
                                            .result = note_model,
                                            .user = &f};
    const struct eb_modelcheck_rung rung = {.device = "CPU", .name = "best"};
    struct eb_modelcheck *c = NULL;
    ebro_runtime *rt = NULL;
    ebro_error err = {0};
    snprintf(folder, sizeof folder, "%s/%s", TEST_PLANTED_DIR, fault);
    test_ok(ebro_runtime_open(&options, &rt, &err), &err);
    test_ok(eb_modelcheck_open(rt, &o, &c, &err), &err);
    test_ok(eb_modelcheck_device(c, 0, &rung, &err), &err);
    test_ok(eb_modelcheck_resume(c, 0, &err), &err);
    eb_modelcheck_close(&c);
    ebro_runtime_close(&rt);
    return f;
}

/* Each of those operators is one that the demo model is made of. */
static void the_model_notices_each(void **state) {
    (void)state;
    struct test_demo demo;
    test_demo_open(&demo);
    for (size_t i = 0; i < sizeof plants / sizeof plants[0]; i++) {
        struct model_findings f = check_model(plants[i].name, &demo);
        print_message("%s: %u checks of the model fail: %s\n", plants[i].name, f.n_failed, f.first);
        if (f.n_failed == 0) fail_msg("the model did not notice %s", plants[i].name);
    }
    struct model_findings f = check_model("none", &demo);
    if (f.n_failed > 0) fail_msg("without a fault: %s", f.first);
    test_demo_close(&demo);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_found),
        cmocka_unit_test(the_model_notices_each),
        cmocka_unit_test(none_is_invented),
    };
    return cmocka_run_group_tests_name("check/planted", tests, NULL, NULL);
}
