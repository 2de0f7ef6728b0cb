/* compare.c: `ebro check --compare`: what is taken for a report and what is not, and what is found
 * to differ. The program's own part is a test of tests/cli. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check_compare.h"
#include "tests/harness/test.h"

enum { TEXT = 512 };

/* ---- reports -------------------------------------------------------------------------------- */

#define ROW(device, rung, op, name, verdict, error, budget, text)                                \
    "{\"device\":\"" device "\",\"rung\":\"" rung "\",\"variant\":\"v\",\"op\":\"" op            \
    "\",\"case\":\"" name "\",\"shape\":\"3 rows\",\"verdict\":\"" verdict "\",\"error\":" error \
    ",\"budget\":" budget                                                                        \
    ",\"measure\":\"of it\",\"reason\":\"so\",\"runs\":10,"                                      \
    "\"repeatable\":true,\"seconds\":0.5,\"text\":\"" text "\"}"
#define DEVICE(name, trouble)                                                                     \
    "{\"name\":\"" name "\",\"description\":\"A thing\",\"backend\":\"b\",\"trouble\":\"" trouble \
    "\"}"
#define REPORT(seed, ok, failed, refused, devices, results)                               \
    "{\"schema\":\"ebro-check-1\",\"version\":\"0.1\",\"date\":\"2026-12-01T00:00:00Z\"," \
    "\"seed\":\"" seed "\",\"full\":false,\"summary\":{\"ok\":" ok ",\"failed\":" failed  \
    ",\"refused\":" refused "},\"devices\":[" devices "],\"results\":[" results "]}"

/* Further ones of a list. */
#define AND_ROW "," ROW
#define AND_DEVICE "," DEVICE

static const char good[] =
    REPORT("7", "3", "1", "1", DEVICE("X0", "") AND_DEVICE("Y0", "lost"),
           ROW("X0", "best", "walk", "slow", "ok", "1e-6", "1e-5", "")
               AND_ROW("X0", "without legs", "walk", "slow", "ok", "4e-6", "1e-5", "")
                   AND_ROW("X0", "best", "run", "fast", "ok", "0", "0", "")
                       AND_ROW("Y0", "best", "walk", "slow", "failed", "null", "1e-5", "fell")
                           AND_ROW("Y0", "best", "run", "fast", "refused", "0", "0", "no shoes"));

/* The rows by themselves, for reports of which several are compared. */
static const char other[] =
    REPORT("8", "3", "0", "0", DEVICE("Z0", ""),
           ROW("Z0", "best", "walk", "slow", "ok", "2e-6", "1e-5", "")
               AND_ROW("Z0", "best", "walk", "odd", "ok", "0", "1e-5", "")
                   AND_ROW("Z0", "best", "run", "fast", "ok", "0", "0", ""));

static bool read_text(struct eb_saved_report *out, const char *report, char *text) {
    bool no_memory = true;
    json_t *json = json_loads(report, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(json);
    bool ok = eb_saved_read(out, "file", json, text, TEXT, &no_memory);
    assert_false(no_memory);
    return ok;
}

/* `report` with the first `old` in it replaced. Free it. */
static char *edited(const char *report, const char *old, const char *new) {
    const char *at = strstr(report, old);
    size_t bytes = strlen(report) + strlen(new) + 1;
    char *out = malloc(bytes);
    assert_non_null(out);
    if (!at) fail_msg("no %s in the report", old);
    snprintf(out, bytes, "%.*s%s%s", (int)(at - report), report, new, at + strlen(old));
    return out;
}

/* ---- reading -------------------------------------------------------------------------------- */

static void a_report_is_read(void **state) {
    (void)state;
    struct eb_saved_report r;
    char text[TEXT] = "";
    if (!read_text(&r, good, text)) fail_msg("%s", text);
    assert_int_equal(r.n_devices, 2);
    assert_int_equal(r.n_rows, 5);
    assert_int_equal(r.devices[0].n[EB_SAVED_OK], 3);
    assert_int_equal(r.devices[1].n[EB_SAVED_FAILED], 1);
    assert_int_equal(r.devices[1].n[EB_SAVED_REFUSED], 1);
    assert_string_equal(r.devices[1].trouble, "lost");
    assert_string_equal(r.seed, "7");
    eb_saved_free(&r);
    /* What is not known is left alone. */
    char *more = edited(good, "\"full\"", "\"new\":[1],\"full\"");
    if (!read_text(&r, more, text)) fail_msg("%s", text);
    eb_saved_free(&r);
    free(more);
}

/* ---- the demo model ------------------------------------------------------------------------- */

#define MODEL_ROW(device, from, verdict, error)                                      \
    "{\"device\":\"" device "\",\"from\":" from                                      \
    ",\"rung\":\"best\",\"check\":\"resume\",\"prompt\":\"chat\",\"cache\":\"f32\"," \
    "\"shape\":\"9 tokens\",\"verdict\":\"" verdict "\",\"error\":" error            \
    ",\"budget\":1e-4,\"measure\":\"of it\",\"reason\":\"so\",\"seconds\":1,\"text\":\"\"}"

/* `good`, with what was found of the model. Free it. */
static char *with_model(void) {
    return edited(good, "\"full\"",
                  "\"model\":{\"summary\":{\"ok\":1,\"failed\":1,\"refused\":0},"
                  "\"results\":[" MODEL_ROW("X0", "null", "ok", "1e-5") "," MODEL_ROW(
                      "Y0", "\"X0\"", "failed", "null") "]},\"full\"");
}

static void the_model_is_read(void **state) {
    (void)state;
    static const struct {
        const char *old, *new, *part;
    } edits[] = {
        {"\"model\":{", "\"model\":[],\"x\":{", "\"model\" is [], not an object"},
        {"\"ok\":1,", "\"ok\":2,", "model: summary: \"ok\" is 2, but \"results\" has 1 of them"},
        {"\"check\":\"resume\"", "\"check\":\"\"",
         "model: results[0]: \"check\" is \"\", not a name"},
        {"\"from\":null", "\"from\":\"Q0\"", "model: results[0]: \"from\" is \"Q0\", not null or"},
        {"\"device\":\"X0\",\"from\"", "\"device\":\"Q0\",\"from\"",
         "model: results[0]: \"device\" is \"Q0\", not the name"},
        {"\"error\":1e-5", "\"error\":1e-3", "model: results[0]: \"verdict\" is \"ok\", but"},
        {"\"shape\":\"9 tokens\"", "\"shape\":9", "model: results[0]: \"shape\" is 9, not a text"},
    };
    struct eb_saved_report r;
    char text[TEXT] = "", *all = with_model();
    if (!read_text(&r, all, text)) fail_msg("%s", text);
    assert_true(r.has_model);
    assert_int_equal(r.n_model[EB_SAVED_OK], 1);
    assert_int_equal(r.n_model[EB_SAVED_FAILED], 1);
    assert_int_equal(r.n_rows, 5);
    eb_saved_free(&r);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char *report = edited(all, edits[i].old, edits[i].new);
        if (read_text(&r, report, text)) fail_msg("taken: %s", edits[i].new);
        if (!strstr(text, edits[i].part)) fail_msg("\"%s\" lacks \"%s\"", text, edits[i].part);
        eb_saved_free(&r);
        free(report);
    }
    free(all);
}

static void what_is_wrong_is_named(void **state) {
    (void)state;
    static const struct {
        const char *old, *new, *part;
    } edits[] = {
        {"ebro-check-1", "ebro-check-2", "\"schema\" is \"ebro-check-2\", not \"ebro-check-1\""},
        {"\"schema\":\"ebro-check-1\",", "", "\"schema\" is missing"},
        {"\"seed\":\"7\"", "\"seed\":7", "\"seed\" is 7, not a text"},
        {"\"full\":false", "\"full\":0", "\"full\" is 0, not true or false"},
        {"\"version\"", "\"Version\"", "\"version\" is missing"},
        {"\"summary\":{", "\"summary\":3,\"x\":{", "\"summary\" is 3, not an object"},
        {"\"ok\":3", "\"ok\":4", "summary: \"ok\" is 4, but \"results\" has 3 of them"},
        {"\"failed\":1", "\"failed\":-1", "summary: \"failed\" is -1, not a whole number from 0"},
        {"\"refused\":1", "\"refused\":1.0", "summary: \"refused\" is 1.0, not a whole number"},
        {"\"devices\":[", "\"devices\":{},\"x\":[", "\"devices\" is {}, not an array"},
        {"\"devices\":[", "\"devices\":[[],", "devices[0]: not an object"},
        {"\"name\":\"X0\"", "\"name\":\"\"", "devices[0]: \"name\" is \"\", not a name"},
        {"\"name\":\"Y0\"", "\"name\":\"X0\"", "devices[1]: \"name\" is that of devices[0]"},
        {"\"trouble\":\"lost\"", "\"trouble\":null", "devices[1]: \"trouble\" is null, not a text"},
        {"\"results\":[", "\"results\":[null,", "results[0]: not an object"},
        {"\"device\":\"X0\"", "\"device\":\"Q0\"",
         "results[0]: \"device\" is \"Q0\", not the name"},
        {"\"verdict\":\"ok\"", "\"verdict\":\"fine\"",
         "results[0]: \"verdict\" is \"fine\", not one"},
        {"\"error\":1e-6", "\"error\":\"1e-6\"", "results[0]: \"error\" is \"1e-6\", not a number"},
        {"\"error\":1e-6", "\"error\":-0.5", "results[0]: \"error\" is -0.5, not a number from"},
        {"\"error\":1e-6", "\"error\":1e-4", "results[0]: \"verdict\" is \"ok\", but \"error\" is"},
        {"\"error\":1e-6", "\"error\":null", "results[0]: \"error\" is null, not a number, as"},
        {"\"error\":1e-6,", "", "results[0]: \"error\" is missing"},
        {"\"budget\":1e-5", "\"budget\":null", "results[0]: \"budget\" is null, not a number"},
        {"\"runs\":10", "\"runs\":true", "results[0]: \"runs\" is true, not a whole number"},
        {"\"repeatable\":true", "\"repeatable\":1", "results[0]: \"repeatable\" is 1, not true"},
        {"\"case\":\"slow\"", "\"case\":[]", "results[0]: \"case\" is [], not a text"},
        {"\"op\":\"walk\"", "\"op\":\"\"", "results[0]: \"op\" is \"\", not a name"},
        {"without legs", "best", "\"results\" has \"slow\" of walk on X0, best, twice"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        struct eb_saved_report r;
        char text[TEXT] = "", *report = edited(good, edits[i].old, edits[i].new);
        if (read_text(&r, report, text)) fail_msg("taken: %s", edits[i].new);
        if (!strstr(text, edits[i].part)) fail_msg("\"%s\" lacks \"%s\"", text, edits[i].part);
        eb_saved_free(&r);
        free(report);
    }
    static const char *const none[] = {"[]", "3", "\"x\"", "null"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        struct eb_saved_report r;
        char text[TEXT] = "";
        assert_false(read_text(&r, none[i], text));
        assert_non_null(strstr(text, "not a JSON object"));
        eb_saved_free(&r);
    }
}

/* ---- comparing ------------------------------------------------------------------------------ */

static void compare(struct eb_saved_report r[2], struct eb_comparison *c) {
    char text[TEXT] = "";
    assert_true(read_text(&r[0], good, text) && read_text(&r[1], other, text));
    assert_true(eb_comparison_make(c, r, 2));
}

static void done(struct eb_saved_report r[2], struct eb_comparison *c) {
    eb_comparison_free(c);
    eb_saved_free(&r[0]);
    eb_saved_free(&r[1]);
}

static void differences_are_found(void **state) {
    (void)state;
    struct eb_saved_report r[2];
    struct eb_comparison c;
    compare(r, &c);
    assert_int_equal(c.n_machines, 3);
    assert_string_equal(c.machines[2].label, "C");
    assert_int_equal(c.n_cases, 3);
    assert_int_equal(c.n_ops, 2);

    const struct eb_compared *slow = eb_comparison_find(&c, "walk", "slow");
    assert_non_null(slow);
    /* of two rungs the worse one counts */
    assert_true(slow->cells[0].state == EB_COMPARED_RIGHT);
    assert_true(fabs(slow->cells[0].share - 0.4) < 1e-12);
    assert_true(slow->cells[1].state == EB_COMPARED_FAILED && isinf(slow->cells[1].share));
    assert_true(isinf(slow->difference));
    assert_int_equal(eb_compared_alone(&c, slow), 3);

    const struct eb_compared *odd = eb_comparison_find(&c, "walk", "odd");
    assert_non_null(odd);
    assert_true(odd->difference == -1);
    assert_int_equal(eb_compared_alone(&c, odd), 2);

    const struct eb_compared *fast = eb_comparison_find(&c, "run", "fast");
    assert_non_null(fast);
    assert_true(fast->difference == 0);
    assert_true(eb_compared_refused(&c, fast, 1));
    assert_false(eb_compared_refused(&c, fast, 0));
    assert_null(eb_comparison_find(&c, "run", "slow"));

    assert_string_equal(c.ops[0].op, "walk");
    assert_string_equal(c.ops[0].name, "slow");
    assert_int_equal(c.ops[0].n_cases, 2);
    assert_true(c.ops[0].cells[1].state == EB_COMPARED_FAILED);
    assert_true(c.ops[1].cells[1].state == EB_COMPARED_REFUSED);
    done(r, &c);
}

/* One machine that says the same twice differs by nothing, and a finite difference has its size. */
static void differences_have_a_size(void **state) {
    (void)state;
    struct eb_saved_report r[2];
    struct eb_comparison c;
    char text[TEXT] = "", *worse = edited(other, "2e-6", "7e-6");
    assert_true(read_text(&r[0], other, text) && read_text(&r[1], other, text));
    assert_true(eb_comparison_make(&c, r, 2));
    for (size_t i = 0; i < c.n_ops; i++) assert_true(c.ops[i].difference == 0);
    done(r, &c);
    assert_true(read_text(&r[0], other, text) && read_text(&r[1], worse, text));
    assert_true(eb_comparison_make(&c, r, 2));
    assert_string_equal(c.ops[0].op, "walk");
    assert_true(fabs(c.ops[0].difference - 0.5) < 1e-12);
    assert_string_equal(c.ops[0].name, "slow");
    done(r, &c);
    free(worse);
}

static void json_says_it_too(void **state) {
    (void)state;
    struct eb_saved_report r[2];
    struct eb_comparison c;
    compare(r, &c);
    json_t *all = eb_comparison_json(&c);
    assert_non_null(all);
    assert_string_equal(json_string_value(json_object_get(all, "schema")), "ebro-check-compare-1");
    assert_int_equal(json_array_size(json_object_get(all, "machines")), 3);
    assert_int_equal(json_array_size(json_object_get(all, "cases")), 3);
    const json_t *op = json_array_get(json_object_get(all, "ops"), 0);
    assert_string_equal(json_string_value(json_object_get(op, "op")), "walk");
    assert_true(json_is_null(json_object_get(op, "difference")));
    assert_true(json_is_true(json_object_get(op, "compared")));
    const json_t *cells = json_object_get(op, "machines"), *failed = json_array_get(cells, 1);
    assert_int_equal(json_array_size(cells), 3);
    assert_string_equal(json_string_value(json_object_get(failed, "state")), "failed");
    assert_true(json_is_null(json_object_get(failed, "used")));
    assert_true(fabs(json_real_value(json_object_get(json_array_get(cells, 2), "used")) - 0.2) <
                1e-12);
    json_decref(all);
    done(r, &c);
}

/* What is printed to a file of its own. Free it. */
static char *printed(const struct eb_comparison *c) {
    char *text = calloc(1, 1 << 16);
    FILE *f = tmpfile();
    assert_true(text && f);
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    assert_true(kept >= 0 && dup2(fileno(f), STDOUT_FILENO) >= 0);
    eb_comparison_print(c);
    fflush(stdout);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    close(kept);
    rewind(f);
    size_t n = fread(text, 1, (1 << 16) - 1, f);
    text[n] = '\0';
    fclose(f);
    return text;
}

static void assert_narrow(const char *text) {
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strcspn(line, "\n") > 100) fail_msg("%.*s", (int)strcspn(line, "\n"), line);
}

static void the_table_says_it(void **state) {
    (void)state;
    struct eb_saved_report r[2];
    struct eb_comparison c;
    compare(r, &c);
    char *text = printed(&c);
    assert_narrow(text);
    static const char *const parts[] = {
        "A: X0, file (A thing): 3 right, 0 failed, 0 refused;",
        "The seeds differ",
        "\nwalk              40%  FAILED     20%  beyond slow\n",
        "\nrun                0% refused      0%      0% fast\n",
        "FAILED on B: walk, \"slow\" (3 rows), all capabilities: fell; right on A, C",
        "Cases refused and computed elsewhere, on B: run (1)",
        "Cases that are there alone on C: walk (1)",
        "\n3 cases on 3 machines, 2 of them computed on more than one\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(text, parts[i])) fail_msg("no \"%s\" in\n%s", parts[i], text);
    free(text);
    done(r, &c);
}

/* Reports of others cannot make a terminal do things, nor widen the table. */
static void texts_are_tamed(void **state) {
    (void)state;
    struct eb_saved_report r[2];
    struct eb_comparison c;
    char text[TEXT] = "", name[400], *first = NULL, *second = NULL;
    static const char escape[] = "\\u001b[31m\\u009b\\u000a\xe2\x82\xac";
    snprintf(name, sizeof name, "\"op\":\"%s%0300d\"", escape, 7);
    first = edited(good, "\"op\":\"walk\"", name);
    second = edited(first, "A thing", escape);
    assert_true(read_text(&r[0], second, text) && read_text(&r[1], other, text));
    assert_true(eb_comparison_make(&c, r, 2));
    char *shown = printed(&c);
    assert_narrow(shown);
    assert_null(strchr(shown, '\x1b'));
    assert_null(strstr(shown, "\xc2\x9b"));
    assert_non_null(strstr(shown, "\xe2\x82\xac"));
    free(shown);
    done(r, &c);
    free(first);
    free(second);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_is_read),        cmocka_unit_test(the_model_is_read),
        cmocka_unit_test(what_is_wrong_is_named),  cmocka_unit_test(differences_are_found),
        cmocka_unit_test(differences_have_a_size), cmocka_unit_test(json_says_it_too),
        cmocka_unit_test(the_table_says_it),       cmocka_unit_test(texts_are_tamed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
