/* planted.c: `ebro check` must find each known fault of backends/cpu/plant.h and of
 * shaders/vulkan/plant.glsl and name the operator it lies in; so must the self-test before a device
 * is used, and the demo model must go wrong by those of the CPU. Each is in a module of its own, in
 * a folder of its name: the CPU's with the plain rung alone, Vulkan's with all others of its
 * kernels as they are. */
#include <stdio.h>
#include <string.h>

#include "check/check.h"
#include "check/run.h"
#include "modelcheck/modelcheck.h"
#include "tests/harness/demo.h"

struct plant {
    const char *folder;
    const char *device;
    ebro_op op;
    const char *instead; /* what the self-test falls back to; NULL: there is nothing */
};

#define CPU(name, op) \
    { #name, "CPU", EBRO_OP_##op, NULL }
#define VULKAN(name, op, instead) \
    { "vulkan_" #name, "Vulkan0", EBRO_OP_##op, instead }
static const struct plant plants[] = {
    CPU(wrong_wave_width, LINEAR),
    CPU(f16_accumulation, LINEAR),
    CPU(off_by_one_mask, MLA_PREFILL),
    CPU(late_mask, MLA_DECODE),
    CPU(stale_window, KDA_CONV),
    CPU(unnormalised_q, KDA_PREP),
    CPU(dropped_carry, KDA_RECUR),
    CPU(swapped_layout, KDA_RECUR),
    CPU(stray_write, RMS_NORM),
    VULKAN(wrong_wave_width, LINEAR, "linear_row:plain linear_row_one:plain"),
    VULKAN(f16_accumulation, LINEAR, "linear_row:plain linear_row_one:plain"),
    VULKAN(off_by_one_mask, MLA_PREFILL, NULL),
    VULKAN(early_mask, MLA_DECODE, NULL),
    VULKAN(stale_window, KDA_CONV, NULL),
    VULKAN(unnormalised_q, KDA_PREP, NULL),
    VULKAN(dropped_carry, KDA_RECUR, "kda_recur_wide:plain"),
    VULKAN(swapped_layout, KDA_RECUR, "kda_recur_wide:plain"),
};
enum { N_PLANTS = sizeof plants / sizeof plants[0] };

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

static ebro_runtime *open_runtime(const char *folder) {
    char path[4096];
    const ebro_runtime_options o = {.size = sizeof o, .module_dir = path};
    ebro_runtime *rt = NULL;
    ebro_error err = {0};
    snprintf(path, sizeof path, "%s/%s", TEST_PLANTED_DIR, folder);
    test_ok(ebro_runtime_open(&o, &rt, &err), &err);
    return rt;
}

/* Where there is no Vulkan device to compute wrong, its faults are left out, and it is said. */
static bool is_there(const struct plant *p) {
    static bool told;
    if (strcmp(p->device, "CPU") == 0) return true;
    ebro_runtime *rt = open_runtime(p->folder);
    ebro_device_info info;
    ebro_error err = {0};
    uint32_t n = 0;
    test_ok(ebro_device_list(rt, &info, 1, &n, &err), &err);
    ebro_runtime_close(&rt);
    if (n == 0 && !told) print_message("there is no Vulkan device: its faults are left out\n");
    told = told || n == 0;
    return n > 0;
}

/* A quick check of all operators, in the variants that the device chooses. */
static void check(const char *folder, const char *device, uint64_t seed, uint32_t n_runs,
                  struct findings *f) {
    const struct eb_opcheck_options o = {
        .seed = seed, .op = -1, .n_runs = n_runs, .result = note, .user = f};
    struct eb_opcheck_tally tally = {0, 0, 0};
    ebro_runtime *rt = open_runtime(folder);
    ebro_device *d = NULL;
    ebro_error err = {0};
    memset(f, 0, sizeof *f);
    test_ok(ebro_device_open(rt, device, &d, &err), &err);
    test_ok(eb_opcheck_device(d, &o, &tally, &err), &err);
    ebro_device_close(&d);
    ebro_runtime_close(&rt);
    assert_true(tally.n_ok + tally.n_failed > 50);
}

/* Of the ops whose code shares the faulty lines others may fail too: moe_route multiplies as linear
 * does, on the CPU moe_experts too, kda_step writes windows as kda_conv does, and kda_recur gives
 * what kda_prep spoilt. */
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
    for (size_t i = 0; i < N_PLANTS; i++) {
        const struct plant *p = &plants[i];
        if (!is_there(p)) continue;
        check(p->folder, p->device, seed, 2, &f);
        print_message("%s: %s fails %u times: %s\n", p->folder, eb_op_name(p->op), f.failed[p->op],
                      f.first[p->op]);
        if (f.failed[p->op] == 0) fail_msg("%s was not found", p->folder);
        for (int op = 0; op < EBRO_N_OPS; op++) {
            if (f.failed[op] > 0 && !may_fail(p->op, (ebro_op)op))
                fail_msg("%s: %s was blamed: %s", p->folder, eb_op_name((ebro_op)op), f.first[op]);
        }
    }
}

/* In far fewer cases: the device falls back to what is right, or, where there is nothing, is not
 * opened. */
static void each_is_found_at_the_start(void **state) {
    (void)state;
    for (size_t i = 0; i < N_PLANTS; i++) {
        const struct plant *p = &plants[i];
        char part[64], variant[EB_VARIANT_BYTES];
        ebro_device *d = NULL;
        ebro_error err = {0};
        if (!is_there(p)) continue;
        snprintf(part, sizeof part, ": %s, case \"", eb_op_name(p->op));
        ebro_runtime *rt = open_runtime(p->folder);
        int32_t st = ebro_device_open_tested(rt, p->device, NULL, &d, &err);
        if (p->instead == NULL) {
            test_fails(st, EBRO_NUMERIC, &err, part);
            assert_null(d);
        } else {
            test_ok(st, &err);
            d->be->op_variant(d->dev, p->op, variant, sizeof variant);
            if (strstr(variant, p->instead) != variant)
                fail_msg("%s: %s in \"%s\"", p->folder, eb_op_name(p->op), variant);
        }
        ebro_device_close(&d);
        ebro_runtime_close(&rt);
    }
}

/* The CPU's module without a fault, with fresh inputs each time. */
static void none_is_invented(void **state) {
    (void)state;
    enum { ROUNDS = 20 };
    static struct findings f;
    uint64_t seed = test_seed();
    for (uint64_t i = 0; i < ROUNDS; i++) {
        check("none", "CPU", seed + i, 10, &f);
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
    struct model_findings f = {0, ""};
    const struct eb_modelcheck_options o = {.files = demo->files,
                                            .n_files = TEST_DEMO_FILES,
                                            .golden = demo->golden,
                                            .golden_bytes = demo->golden_bytes,
                                            .result = note_model,
                                            .user = &f};
    const struct eb_modelcheck_rung rung = {.device = "CPU", .name = "best"};
    struct eb_modelcheck *c = NULL;
    ebro_runtime *rt = open_runtime(fault);
    ebro_error err = {0};
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
    for (size_t i = 0; i < N_PLANTS; i++) {
        if (strcmp(plants[i].device, "CPU") != 0) continue;
        struct model_findings f = check_model(plants[i].folder, &demo);
        print_message("%s: %u checks of the model fail: %s\n", plants[i].folder, f.n_failed,
                      f.first);
        if (f.n_failed == 0) fail_msg("the model did not notice %s", plants[i].folder);
    }
    struct model_findings f = check_model("none", &demo);
    if (f.n_failed > 0) fail_msg("without a fault: %s", f.first);
    test_demo_close(&demo);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_found),
        cmocka_unit_test(each_is_found_at_the_start),
        cmocka_unit_test(the_model_notices_each),
        cmocka_unit_test(none_is_invented),
    };
    return cmocka_run_group_tests_name("check/planted", tests, NULL, NULL);
}
