/* model.c: the model level of `ebro check`, as the library gives it. That it finds faults of
 * operators is tested in planted.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "modelcheck/bench.h"
#include "tests/harness/demo.h"
#include "tests/harness/devices.h"
#include "tests/harness/failing.h"

enum { MAX_RESULTS = 200 };

/* What a run handed out. */
static struct findings {
    uint32_t n[EB_N_MODELCHECKS][3]; /* by kind and verdict */
    uint32_t n_results, stop_after;  /* 0: never */
    char text[400];                  /* of the last that is not right */
} found;

static bool note(void *user, const struct eb_modelcheck_result *r) {
    (void)user;
    assert_true(r->prompt[0] != '\0' && r->shape[0] != '\0' && r->rung[0] != '\0');
    assert_true(r->reason[0] != '\0' && r->measure[0] != '\0');
    assert_true(r->seconds >= 0);
    assert_int_equal(r->from >= 0, r->kind == EB_MODELCHECK_RESUME);
    if (r->verdict == EB_OPCHECK_OK) {
        assert_true(r->text[0] == '\0' && r->error <= r->budget);
    } else {
        assert_true(r->text[0] != '\0');
        snprintf(found.text, sizeof found.text, "%.399s", r->text);
        print_message("%s %s: %s\n", eb_modelcheck_name(r->kind), r->prompt, r->text);
    }
    found.n[r->kind][r->verdict]++;
    found.n_results++;
    return found.stop_after == 0 || found.n_results < found.stop_after;
}

struct fixture {
    struct test_demo demo;
    struct failing host;
    ebro_runtime *rt;
};

static int set_up(void **state) {
    static struct fixture f;
    ebro_error err;
    f = (struct fixture){.host = {.fail_at = SIZE_MAX}};
    test_demo_open(&f.demo);
    const ebro_runtime_options o = {.size = sizeof o,
                                    .module_dir = test_module_dir(),
                                    .realloc = failing_realloc,
                                    .realloc_user = &f.host};
    test_ok(ebro_runtime_open(&o, &f.rt, &err), &err);
    memset(&found, 0, sizeof found);
    *state = &f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    ebro_runtime_close(&f->rt);
    test_demo_close(&f->demo);
    assert_int_equal(f->host.n_held, 0);
    return 0;
}

static struct eb_modelcheck *open_check(struct fixture *f, bool full) {
    const struct eb_modelcheck_options o = {.files = f->demo.files,
                                            .n_files = TEST_DEMO_FILES,
                                            .golden = f->demo.golden,
                                            .golden_bytes = f->demo.golden_bytes,
                                            .full = full,
                                            .result = note};
    struct eb_modelcheck *c = NULL;
    ebro_error err;
    test_ok(eb_modelcheck_open(f->rt, &o, &c, &err), &err);
    return c;
}

static void check_device(struct eb_modelcheck *c, uint32_t number, const char *name) {
    const struct eb_modelcheck_rung rung = {.device = name, .name = "best"};
    ebro_error err;
    test_ok(eb_modelcheck_device(c, number, &rung, &err), &err);
}

static void assert_right(uint32_t least) {
    uint32_t n_right = 0;
    for (int k = 0; k < EB_N_MODELCHECKS; k++) {
        assert_int_equal(found.n[k][EB_OPCHECK_FAILED], 0);
        assert_int_equal(found.n[k][EB_OPCHECK_REFUSED], 0);
        n_right += found.n[k][EB_OPCHECK_OK];
        assert_true(found.n[k][EB_OPCHECK_OK] > 0 || k == EB_MODELCHECK_STRICT);
    }
    assert_true(n_right >= least);
}

/* The device of the group and the CPU, to and from each other; the CPU on its plain rung too. */
static void right_devices(void **state) {
    struct fixture *f = *state;
    bool two = strcmp(test_device(), "CPU") != 0;
    const struct eb_modelcheck_rung plain = {
        .device = "CPU", .name = "plain", .caps_mask = 0xffff0000};
    struct eb_modelcheck *c = open_check(f, !two);
    ebro_error err;
    check_device(c, 3, "CPU");
    if (two) check_device(c, 0, test_device());
    test_ok(eb_modelcheck_rung(c, 3, &plain, &err), &err);
    test_ok(eb_modelcheck_resume(c, 0, &err), &err);
    test_ok(eb_modelcheck_resume(c, 3, &err), &err);
    eb_modelcheck_close(&c);
    assert_null(c);
    assert_right(two ? 20 : 22);
    /* All pairs; or the CPU's cache, and the two other types. */
    assert_int_equal(found.n[EB_MODELCHECK_RESUME][EB_OPCHECK_OK], two ? 4 : 3);
    assert_true(found.n[EB_MODELCHECK_STRICT][EB_OPCHECK_OK] >= 2);
}

/* A wrong bit on the way from one device to the other. */
static void damage_on_the_way(void **state) {
    struct eb_modelcheck *c = open_check(*state, false);
    ebro_error err;
    check_device(c, 0, "CPU");
    c->benches[0].saved.data[c->benches[0].saved.n / 3] ^= 4;
    test_ok(eb_modelcheck_resume(c, 0, &err), &err);
    eb_modelcheck_close(&c);
    assert_int_equal(found.n[EB_MODELCHECK_RESUME][EB_OPCHECK_FAILED], 1);
    assert_non_null(strstr(found.text, "checksum"));
}

/* Whole, but with the states of another text: what a device that saves or restores wrong bytes
 * would give. */
static void another_state(void **state) {
    struct eb_modelcheck *c = open_check(*state, false);
    struct eb_model_bench *b = &c->benches[0];
    const struct eb_golden_prompt *p = eb_model_resumed(c);
    ebro_error err;
    check_device(c, 0, "CPU");
    eb_free(b->saved.alloc, b->saved.data);
    b->saved.data = NULL;
    /* One of its tokens is another one. */
    int32_t *token = &p->ids[p->n_ids / 4], kept = *token;
    *token = 7;
    test_ok(eb_model_check_prompts(b, true, &err), &err);
    *token = kept;
    memset(&found, 0, sizeof found);
    test_ok(eb_modelcheck_resume(c, 0, &err), &err);
    eb_modelcheck_close(&c);
    assert_int_equal(found.n[EB_MODELCHECK_RESUME][EB_OPCHECK_FAILED], 1);
    assert_non_null(strstr(found.text, "the logits"));
}

static void a_device_that_computes_nothing(void **state) {
    struct eb_modelcheck *c = open_check(*state, false);
    ebro_error err;
    check_device(c, 0, "Null0");
    test_ok(eb_modelcheck_resume(c, 0, &err), &err);
    eb_modelcheck_close(&c);
    assert_true(found.n[EB_MODELCHECK_LOGITS][EB_OPCHECK_REFUSED] > 0);
    for (int k = 0; k < EB_N_MODELCHECKS; k++) {
        assert_int_equal(found.n[k][EB_OPCHECK_OK], 0);
        assert_int_equal(found.n[k][EB_OPCHECK_FAILED], 0);
    }
}

static void it_can_be_stopped(void **state) {
    struct eb_modelcheck *c = open_check(*state, false);
    const struct eb_modelcheck_rung rung = {.device = "CPU", .name = "best"};
    ebro_error err;
    found.stop_after = 3;
    test_fails(eb_modelcheck_device(c, 0, &rung, &err), EBRO_CANCELLED, &err, "stopped");
    assert_int_equal(found.n_results, 3);
    /* and the device is out of it */
    test_ok(eb_modelcheck_resume(c, 0, &err), &err);
    assert_int_equal(found.n_results, 3);
    eb_modelcheck_close(&c);
}

/* Golden results are bytes like others: cut anywhere, or with a wrong number, they are refused. */
static void golden_results_are_read_with_care(void **state) {
    struct fixture *f = *state;
    struct eb_golden g;
    ebro_error err;
    uint8_t *bytes = f->demo.golden;
    size_t n = f->demo.golden_bytes;
    test_ok(eb_golden_read(&g, &f->rt->alloc, bytes, n, &err), &err);
    assert_int_equal(g.n_prompts, 4);
    eb_golden_free(&g);
    for (size_t cut = 0; cut < n; cut += 1 + cut / 9) {
        test_fails(eb_golden_read(&g, &f->rt->alloc, bytes, cut, &err), EBRO_FORMAT, &err,
                   "damaged");
        eb_golden_free(&g);
    }
    /* number of prompts, vocabulary, stride, layers, experts of a token; tokens, rows, next */
    static const size_t counts[] = {8, 12, 16, 20, 24, 60, 64, 68};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        uint8_t kept = bytes[counts[i] + 3];
        bytes[counts[i] + 3] = 0x7f;
        test_fails(eb_golden_read(&g, &f->rt->alloc, bytes, n, &err), EBRO_FORMAT, &err, "damaged");
        eb_golden_free(&g);
        bytes[counts[i] + 3] = kept;
    }
    /* of another model */
    struct eb_modelcheck_options o = {
        .files = f->demo.files, .n_files = TEST_DEMO_FILES, .golden = bytes, .golden_bytes = 28};
    struct eb_modelcheck *c = NULL;
    bytes[8] = 0; /* no prompts */
    bytes[20]--;  /* one layer less */
    test_fails(eb_modelcheck_open(f->rt, &o, &c, &err), EBRO_FORMAT, &err, "another model");
    assert_null(c);
}

static void no_memory(void **state) {
    struct fixture *f = *state;
    ebro_error err;
    struct eb_golden g;
    for (size_t at = 0;; at++) {
        f->host.n_calls = 0;
        f->host.fail_at = at;
        int32_t st = eb_golden_read(&g, &f->rt->alloc, f->demo.golden, f->demo.golden_bytes, &err);
        eb_golden_free(&g);
        if (st == EBRO_OK) break;
        assert_int_equal(st, EBRO_NOMEM_HOST);
        assert_true(at < 1000);
    }
    assert_true(f->host.n_calls > 15);
    f->host.fail_at = SIZE_MAX;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(right_devices),     TEST(damage_on_the_way),
        TEST(another_state),     TEST(a_device_that_computes_nothing),
        TEST(it_can_be_stopped), TEST(golden_results_are_read_with_care),
        TEST(no_memory),
    };
    return test_on_devices("check/model", tests, NULL, NULL);
}
