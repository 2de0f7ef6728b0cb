/* bundle.c: what `ebro check --bundle` writes: commands that repeat what failed, and nothing that
 * says whose machine it is, whatever texts a driver hands in. */
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check_report.h"
#include "tests/harness/test.h"

/* Names of this machine, as a driver might say them. */
static char host[256], user[256], text[480];

static int name_machine(void **state) {
    (void)state;
    const struct passwd *who = getpwuid(geteuid());
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    /* The administrator's name is not hidden: it says nothing. */
    if (who && who->pw_uid != 0) snprintf(user, sizeof user, "%s", who->pw_name);
    snprintf(text, sizeof text,
             "cannot open /home/mira/a.spv on %.60s, asked by %.60s@%.60s: '/opt/x y' and "
             "(/var/lib/kept) at 1/2.",
             host, user, host);
    return 0;
}

/* Free with eb_check_free. */
static struct eb_check_report *invent(void) {
    static struct eb_check_report r;
    struct eb_opcheck_result row = {.rung = "without matrix",
                                    .variant = "plain",
                                    .op = EBRO_OP_LINEAR,
                                    .name = "few rows, bf16",
                                    .shape = "3 rows",
                                    .verdict = EB_OPCHECK_FAILED,
                                    .error = 1,
                                    .budget = 1e-5,
                                    .measure = "of it",
                                    .reason = "the products' root",
                                    .n_runs = 10,
                                    .text = text};
    struct eb_modelcheck_result model = {.from = 1,
                                         .rung = "best",
                                         .kind = EB_MODELCHECK_RESUME,
                                         .prompt = "chat",
                                         .cache = "f32",
                                         .shape = "9 tokens",
                                         .verdict = EB_OPCHECK_FAILED,
                                         .measure = "of it",
                                         .reason = "so",
                                         .text = text};
    memset(&r, 0, sizeof r);
    r.seed = UINT64_MAX;
    r.full = true;
    for (int i = 0; i < 2; i++) {
        ebro_device_info *d = &r.devices[r.n_devices++];
        snprintf(d->name, sizeof d->name, "GPU%d", i);
        snprintf(d->description, sizeof d->description, "Thing, driver /usr/lib/thing.so");
        snprintf(d->id, sizeof d->id, "0000:0%d:00.0", i);
        if (!eb_check_add(&r, &row)) abort();
    }
    row.verdict = EB_OPCHECK_OK; /* which is not repeated */
    if (!eb_check_add(&r, &row) || !eb_check_add_model(&r, &model)) abort();
    r.caps[1] = (ebro_caps){.bits = EBRO_CAP_MATRIX | EBRO_CAP_F16, .wave_min = 32};
    snprintf(r.troubles[1], sizeof r.troubles[1], "%s", text);
    return &r;
}

static void nobody_is_named(void **state) {
    (void)state;
    struct eb_check_report *r = invent();
    json_t *bundle = eb_check_bundle(r);
    assert_non_null(bundle);
    char *all = json_dumps(bundle, 0);
    assert_non_null(all);
    char want[480];
    snprintf(want, sizeof want,
             "cannot open (path) on (host), asked by %s@(host): '(path) y' and ((path)) at 1/2.",
             user[0] ? "(user)" : "");
    assert_non_null(strstr(all, want));
    assert_null(strstr(all, "/home"));
    assert_non_null(strstr(all, "the products' root"));
    assert_non_null(strstr(all, "Thing, driver (path)"));
    free(all);
    json_decref(bundle);
    eb_check_free(r);
}

static void failures_can_be_repeated(void **state) {
    (void)state;
    struct eb_check_report *r = invent();
    json_t *bundle = eb_check_bundle(r), *failures = json_object_get(bundle, "failures");
    static const char *const commands[] = {
        "ebro check -dev GPU0 --full --op linear --case \"few rows, bf16\" --seed "
        "18446744073709551615 -r 10",
        "ebro check -dev GPU1 --full --op linear --case \"few rows, bf16\" --seed "
        "18446744073709551615 -r 10",
        "ebro check -dev GPU0 -dev GPU1 --full"};
    assert_int_equal(json_array_size(failures), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *command = json_object_get(json_array_get(failures, i), "command");
        assert_string_equal(json_string_value(command), commands[i]);
    }
    const json_t *gpu = json_array_get(json_object_get(bundle, "devices"), 1);
    assert_string_equal(json_string_value(json_object_get(gpu, "caps")), "0x11");
    assert_int_equal(json_integer_value(json_object_get(gpu, "wave_min")), 32);
    json_decref(bundle);
    eb_check_free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nobody_is_named),
                                       cmocka_unit_test(failures_can_be_repeated)};
    return cmocka_run_group_tests(tests, name_machine, NULL);
}
