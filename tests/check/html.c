/* html.c: the page of `ebro check`, of a report in which everything happens: what is in it, that
 * every text in it stays text, and that it is well-formed. With a file's name it only writes the
 * page there, for tests/check/page, which looks at it in a browser. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_report.h"
#include "tests/harness/test.h"

#define NASTY "<script>alert(1)</script> & \"it's\" \x1b[31m \xff \xc2\x9b \xc3\xa9"
#define TAMED                                                                            \
    "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;it&#39;s&quot; \xef\xbf\xbd[31m " \
    "\xef\xbf\xbd \xef\xbf\xbd \xc3\xa9"

/* ---- a report ------------------------------------------------------------------------------- */

static void add(struct eb_check_report *r, const char *rung, ebro_op op, const char *name,
                enum eb_opcheck_verdict verdict, double error, const char *text) {
    const struct eb_opcheck_result result = {
        .device = &r->devices[r->n_devices - 1],
        .rung = rung,
        .variant = strcmp(rung, "best") == 0 ? "wide" : "plain",
        .op = op,
        .name = name,
        .shape = "3 rows of 65, padded to 80",
        .verdict = verdict,
        .error = error,
        .budget = 1e-5,
        .measure = "of the largest",
        .reason = "sums of 65 in fp32: 65 roundings of half a unit, and four times that",
        .n_runs = 10,
        .repeatable = strcmp(name, "restless") != 0,
        .seconds = 0.01,
        .text = text};
    if (!eb_check_add(r, &result)) abort();
    r->tally.n_ok += verdict == EB_OPCHECK_OK;
    r->tally.n_failed += verdict == EB_OPCHECK_FAILED;
    r->tally.n_refused += verdict == EB_OPCHECK_REFUSED;
}

static void add_model(struct eb_check_report *r, uint32_t device, int32_t from,
                      enum eb_modelcheck_kind kind, enum eb_opcheck_verdict verdict, double error,
                      const char *text) {
    const struct eb_modelcheck_result result = {.device = device,
                                                .from = from,
                                                .rung = "best",
                                                .kind = kind,
                                                .prompt = "chat",
                                                .cache = "bf16",
                                                .shape = "183 tokens",
                                                .verdict = verdict,
                                                .error = error,
                                                .budget = 2e-2,
                                                .measure = "of the logits",
                                                .reason = "bf16 rounds by 2^-8",
                                                .seconds = 0.5,
                                                .text = text};
    if (!eb_check_add_model(r, &result)) abort();
}

/* All pairs, one of which fails and one of which is refused. */
static void add_models(struct eb_check_report *r) {
    for (uint32_t d = 0; d < 2; d++) {
        add_model(r, d, -1, EB_MODELCHECK_LOGITS, EB_OPCHECK_OK, 1e-4, "");
        add_model(r, d, -1, EB_MODELCHECK_GREEDY, EB_OPCHECK_OK, 0, "");
        add_model(r, d, (int32_t)d, EB_MODELCHECK_RESUME, EB_OPCHECK_OK, 1e-3, "");
    }
    add_model(r, 0, 1, EB_MODELCHECK_RESUME, EB_OPCHECK_FAILED, INFINITY, NASTY);
    add_model(r, 1, 0, EB_MODELCHECK_RESUME, EB_OPCHECK_REFUSED, 0, "not supported here");
    /* with another type of cache: the worse one counts */
    add_model(r, 1, 1, EB_MODELCHECK_RESUME, EB_OPCHECK_OK, 4e-3, "");
}

static void add_device(struct eb_check_report *r, const char *name, const char *description) {
    ebro_device_info *d = &r->devices[r->n_devices++];
    snprintf(d->name, sizeof d->name, "%s", name);
    snprintf(d->description, sizeof d->description, "%s", description);
    snprintf(d->backend, sizeof d->backend, "invented");
}

/* Free with eb_check_free. */
static struct eb_check_report *invent(void) {
    static struct eb_check_report r;
    static const char *const rungs[] = {"best", "without matrix", "without f16", "without all"};
    memset(&r, 0, sizeof r);
    r.seed = UINT64_MAX;
    snprintf(r.date, sizeof r.date, "2026-12-01T00:00:00Z");
    for (int d = 0; d < 2; d++) {
        add_device(&r, d == 0 ? "GPU0" : "GPU1", d == 0 ? "A device that fails" : NASTY);
        for (size_t g = 0; g < sizeof rungs / sizeof *rungs; g++) {
            for (int op = 0; op < EBRO_N_OPS; op++) {
                if (g > 0 && op % 3 == 0) continue;
                double error = 1e-5 * pow(10, -(op % 6) - 0.3 * (double)g - d);
                add(&r, rungs[g], (ebro_op)op, "ordinary", EB_OPCHECK_OK, error, "");
                add(&r, rungs[g], (ebro_op)op, "exact", EB_OPCHECK_OK, 0, "");
            }
        }
        const char *last = rungs[3];
        if (d == 0) {
            add(&r, last, EBRO_OP_LINEAR, "far off", EB_OPCHECK_FAILED, 1e30, "element 7 is off");
            add(&r, last, EBRO_OP_EMBED, "not finite", EB_OPCHECK_FAILED, INFINITY, NASTY);
            add(&r, last, EBRO_OP_LINEAR, "restless", EB_OPCHECK_FAILED, 1e-7,
                "run 3 gave other bytes than run 1");
        } else {
            add(&r, last, EBRO_OP_EMBED, "bf16", EB_OPCHECK_REFUSED, 0, "no bf16 here");
            add(&r, last, EBRO_OP_EMBED, "bf16, odd", EB_OPCHECK_REFUSED, 0, "no bf16 here");
            add(&r, last, EBRO_OP_LINEAR, NASTY, EB_OPCHECK_REFUSED, 0, NASTY);
        }
    }
    snprintf(r.troubles[1], sizeof r.troubles[1], "%s was lost: %s", "GPU1", NASTY);
    add_models(&r);
    return &r;
}

/* ---- the page ------------------------------------------------------------------------------- */

/* Free it. */
static char *page_of(const struct eb_check_report *r) {
    char *page = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&page, &bytes);
    assert_non_null(f);
    assert_true(eb_check_html(f, r));
    assert_int_equal(fclose(f), 0);
    assert_int_equal(strlen(page), bytes);
    return page;
}

static size_t count(const char *page, const char *part) {
    size_t n = 0;
    for (const char *p = page; (p = strstr(p, part)) != NULL; p += strlen(part)) n++;
    return n;
}

/* Every element that is opened is closed, in order; attributes are quoted. */
static void assert_balanced(const char *page) {
    char open[64][16];
    size_t depth = 0;
    for (const char *p = page; (p = strchr(p, '<')) != NULL; p++) {
        if (p[1] == '!') continue;
        bool closes = p[1] == '/';
        const char *name = p + 1 + closes, *end = strchr(p, '>');
        size_t n = strcspn(name, " />");
        assert_non_null(end);
        assert_true(n > 0 && n < sizeof open[0]);
        assert_null(memchr(p + 1, '<', (size_t)(end - p - 1)));
        if (closes) {
            assert_true(depth > 0);
            depth--;
            if (strlen(open[depth]) != n || strncmp(open[depth], name, n) != 0)
                fail_msg("</%.*s> where %s is open", (int)n, name, open[depth]);
        } else if (end[-1] != '/') {
            assert_true(depth < sizeof open / sizeof *open);
            snprintf(open[depth++], sizeof open[0], "%.*s", (int)n, name);
        }
    }
    assert_int_equal(depth, 0);
}

static void everything_is_there(void **state) {
    (void)state;
    struct eb_check_report *r = invent();
    char *page = page_of(r);
    assert_balanced(page);
    assert_int_equal(count(page, "<tr class=\"row is-ok\""), r->tally.n_ok);
    assert_int_equal(count(page, "<tr class=\"row is-failed\""), 3);
    assert_int_equal(count(page, "<tr class=\"row is-refused\""), 3);
    assert_non_null(strstr(page, "failed; 1 device not checked to the end; 3 refused."));
    assert_non_null(strstr(page, "Demo model: 7 checks right, 1 failed, 1 refused."));
    assert_int_equal(count(page, "<tr id=\"m"), r->n_models);
    /* the pairs: 5 %, 20 % of the worse, a failure, a refusal */
    assert_non_null(strstr(page, "<td class=\"ok\"><a href=\"#m2\">5.0 %</a></td>"));
    assert_non_null(strstr(page, "<td class=\"ok\"><a href=\"#m8\">20 %</a></td>"));
    assert_non_null(strstr(page, "<td class=\"failed\"><a href=\"#m6\">failed</a></td>"));
    assert_non_null(strstr(page, "<td class=\"refused\"><a href=\"#m7\">refused</a></td>"));
    assert_non_null(strstr(page, "18446744073709551615"));
    assert_non_null(strstr(page, "run 3 gave other bytes"));
    assert_non_null(strstr(page, "bf16 and 1 more"));
    assert_non_null(strstr(page, "no number of 1.0e-05"));
    /* the reason of a budget once for each operator */
    assert_int_equal(count(page, "65 roundings"), EBRO_N_OPS);
    assert_int_equal(count(page, "class=\"cross\""), 3);
    /* marks: two for each pair of op and rung, and one in the list for each of the rungs */
    assert_int_equal(count(page, "<circle"), r->tally.n_ok + 8);
    /* every link leads somewhere */
    for (const char *p = page; (p = strstr(p, "href=\"")) != NULL; p++) {
        char id[64];
        assert_int_equal(p[6], '#');
        snprintf(id, sizeof id, "id=\"%.*s\"", (int)strcspn(p + 7, "\""), p + 7);
        assert_int_equal(count(page, id), 1);
    }
    free(page);
    eb_check_free(r);
}

static void texts_stay_texts(void **state) {
    (void)state;
    struct eb_check_report *r = invent();
    char *page = page_of(r);
    assert_null(strstr(page, "<script"));
    assert_int_equal(count(page, "alert(1)"), count(page, TAMED));
    assert_true(count(page, TAMED) >= 5);
    assert_null(strchr(page, '\x1b'));
    assert_null(strchr(page, '\xff'));
    /* nothing is asked of a network */
    assert_null(strstr(page, "http:"));
    assert_null(strstr(page, "https:"));
    assert_null(strstr(page, "src="));
    assert_null(strstr(page, "url("));
    free(page);
    eb_check_free(r);
}

static void verdicts(void **state) {
    (void)state;
    static struct eb_check_report r;
    memset(&r, 0, sizeof r);
    char *page = page_of(&r);
    assert_balanced(page);
    assert_non_null(strstr(page, "Nothing was computed."));
    free(page);
    add_device(&r, "GPU0", "");
    add(&r, "best", EBRO_OP_EMBED, "one", EB_OPCHECK_OK, 1e-6, "");
    page = page_of(&r);
    assert_balanced(page);
    assert_non_null(strstr(page, "class=\"sum right\">The one case that was computed is right."));
    assert_null(strstr(page, "What failed"));
    assert_null(strstr(page, "emo model"));
    assert_null(strstr(page, "What was refused"));
    assert_non_null(strstr(page, ">10 %</a>"));
    free(page);
    /* Right figures of a device that broke down are no right device. */
    add(&r, "best", EBRO_OP_EMBED, "two", EB_OPCHECK_OK, 1e-6, "");
    snprintf(r.troubles[0], sizeof r.troubles[0], "lost");
    page = page_of(&r);
    assert_non_null(strstr(page, "class=\"sum failed\">The 2 cases"));
    free(page);
    eb_check_free(&r);
}

static void a_full_disk_is_seen(void **state) {
    (void)state;
    struct eb_check_report *r = invent();
    FILE *f = fopen("/dev/full", "wb");
    if (f) {
        errno = 0;
        assert_false(eb_check_html(f, r));
        assert_int_equal(errno, ENOSPC);
        fclose(f);
    }
    eb_check_free(r);
    if (!f) skip();
}

static int write_page(const char *path) {
    struct eb_check_report *r = invent();
    FILE *f = fopen(path, "wb");
    bool ok = f && eb_check_html(f, r);
    if (f && fclose(f) != 0) ok = false;
    eb_check_free(r);
    return ok ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc == 2) return write_page(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_there), cmocka_unit_test(texts_stay_texts),
        cmocka_unit_test(verdicts), cmocka_unit_test(a_full_disk_is_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
