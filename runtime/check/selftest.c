/* selftest.c: ebro_device_open_tested: a device is tried before it is used, and does without the
 * variants that are wrong. Not its job: the cases (cases_*.c, those of EB_CASE_START), and keeping
 * results (selftest_kept.c).
 *
 * Which of an operator's kernels is at fault its answers do not say. The device is opened again
 * without any of their variants, and those that the operator is right with are taken back one after
 * the other; where it is wrong without them too, so on down the ladder. The backend is only asked
 * for names. */
#include "check/selftest.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/names.h"
#include "check/check.h"
#include "check/run.h"

enum { N_RUNS = 2 };            /* of each call: do they give the same bytes? */
static const uint64_t seed = 1; /* the same test each time: a result says something of the device */

/* A wrong answer, or a call that failed where it must not. */
struct finding {
    bool any;
    ebro_op op;
    int32_t status;
    char text[600];
};

struct selftest {
    ebro_runtime *rt;
    char name[32];
    ebro_device_options options; /* as given, but for `avoid`, which is the list below */
    ebro_device *device;
    char avoid[EB_AVOID_BYTES]; /* what was given, then what was found */
    size_t n_given, n_told;     /* bytes of it that were given, and that the log knows */
};

/* ---- lists of names --------------------------------------------------------------------- */

static bool add_name(char list[EB_AVOID_BYTES], const char *name, size_t bytes) {
    size_t n = strlen(list);
    int added =
        snprintf(list + n, EB_AVOID_BYTES - n, "%s%.*s", n > 0 ? " " : "", (int)bytes, name);
    if (added > 0 && n + (size_t)added < EB_AVOID_BYTES) return true;
    list[n] = '\0';
    return false;
}

/* The names of `from` that `to` has not. */
static void names_less(const char *from, const char *to, char out[EB_AVOID_BYTES]) {
    size_t bytes;
    out[0] = '\0';
    for (const char *p; (p = eb_next_name(&from, &bytes)) != NULL;)
        if (!eb_has_name(to, p, bytes)) (void)add_name(out, p, bytes);
}

/* ---- the device ------------------------------------------------------------------------- */

static int32_t reopen(struct selftest *t, const char *avoid, ebro_error *err) {
    ebro_device_options o = t->options;
    o.avoid = avoid;
    ebro_device_close(&t->device);
    return eb_device_open(t->rt, t->name, &o, &t->device, err);
}

static void variant_of(const struct selftest *t, ebro_op op, char text[EB_VARIANT_BYTES]) {
    text[0] = '\0';
    if (t->device->be->op_variant != NULL)
        t->device->be->op_variant(t->device->dev, op, text, EB_VARIANT_BYTES);
    text[EB_VARIANT_BYTES - 1] = '\0';
}

/* ---- looking for what is wrong ---------------------------------------------------------- */

static bool note(void *user, const struct eb_opcheck_result *r) {
    struct finding *f = user;
    if (r->verdict != EB_OPCHECK_FAILED) return true;
    *f = (struct finding){.any = true, .op = r->op, .status = EBRO_NUMERIC};
    snprintf(f->text, sizeof f->text,
             "%s, case \"%.60s\": %.320s (error %.3g %.40s, allowed are %.3g)", eb_op_name(r->op),
             r->name, r->text, r->error, r->measure, r->budget);
    return false;
}

/* One operator as the device is open now. An error is what says nothing of the operator. */
static int32_t try_op(struct selftest *t, ebro_op op, struct finding *f, ebro_error *err) {
    const struct eb_opcheck_options o = {.seed = seed,
                                         .start = true,
                                         .op = (int32_t)op,
                                         .n_runs = N_RUNS,
                                         .result = note,
                                         .user = f};
    struct eb_opcheck_tally tally = {0, 0, 0};
    ebro_error why = {0};
    *f = (struct finding){.any = false};
    int32_t st = eb_opcheck_device(t->device, &o, &tally, &why);
    if (st == EBRO_OK || f->any) return EBRO_OK;
    if (st == EBRO_NOMEM_HOST || st == EBRO_NOMEM_DEVICE) return eb_fail(err, st, "%s", why.text);
    /* A driver that cannot compile a kernel, or is lost in it, may run another one. */
    *f = (struct finding){.any = true, .op = op, .status = st};
    snprintf(f->text, sizeof f->text, "%.590s", why.text);
    return EBRO_OK;
}

/* The first operator that is wrong. Those that others use come before them. */
static int32_t try_all(struct selftest *t, struct finding *f, ebro_error *err) {
    int32_t st = EBRO_OK;
    f->any = false;
    for (int op = 0; op < EBRO_N_OPS && st == EBRO_OK && !f->any; op++)
        st = try_op(t, (ebro_op)op, f, err);
    return st;
}

/* ---- taking it out ---------------------------------------------------------------------- */

/* The backend knows no such name, or has nothing to fall back to. */
static bool cannot_do_without(int32_t st) {
    return st == EBRO_INVALID || st == EBRO_UNSUPPORTED;
}

/* The device without all variants of the text that it can do without, into `avoid`; how many. */
static int32_t leave_out(struct selftest *t, const char *chosen, char avoid[EB_AVOID_BYTES],
                         uint32_t *n, ebro_error *err) {
    char longer[EB_AVOID_BYTES];
    size_t bytes;
    memcpy(avoid, t->avoid, EB_AVOID_BYTES);
    *n = 0;
    for (const char *name; (name = eb_next_name(&chosen, &bytes)) != NULL;) {
        memcpy(longer, avoid, sizeof longer);
        int32_t st = add_name(longer, name, bytes) ? reopen(t, longer, err) : EBRO_UNSUPPORTED;
        if (cannot_do_without(st)) continue;
        if (st != EBRO_OK) return st;
        memcpy(avoid, longer, sizeof longer);
        ++*n;
    }
    return EBRO_OK;
}

/* Takes back into use, one by one, those without which the operator is right, as long as it is. */
static int32_t take_back(struct selftest *t, ebro_op op, const char *chosen,
                         char avoid[EB_AVOID_BYTES], ebro_error *err) {
    char one[EB_AVOID_BYTES], shorter[EB_AVOID_BYTES];
    size_t bytes;
    for (const char *name; (name = eb_next_name(&chosen, &bytes)) != NULL;) {
        struct finding left;
        one[0] = '\0';
        if (!eb_has_name(avoid, name, bytes) || !add_name(one, name, bytes)) continue;
        names_less(avoid, one, shorter);
        int32_t st = reopen(t, shorter, err);
        if (st == EBRO_OK) st = try_op(t, op, &left, err);
        if (st != EBRO_OK) return st;
        if (!left.any) memcpy(avoid, shorter, sizeof shorter);
    }
    return EBRO_OK;
}

/* Avoids what makes the operator wrong and no more, or, where others take its place that are wrong
 * too, all of it; leaves the device open like that. */
static int32_t replace(struct selftest *t, const struct finding *f, ebro_error *err) {
    char chosen[EB_VARIANT_BYTES], now[EB_VARIANT_BYTES];
    char avoid[EB_AVOID_BYTES], instead[EB_AVOID_BYTES];
    struct finding left;
    uint32_t n = 0;
    variant_of(t, f->op, chosen);
    int32_t st = leave_out(t, chosen, avoid, &n, err);
    if (st == EBRO_OK && n == 0) {
        return eb_fail(err, f->status,
                       "%s fails its self-test, and has nothing else to compute this with than %s: "
                       "%s",
                       t->name, chosen[0] != '\0' ? chosen : "what it has", f->text);
    }
    if (st == EBRO_OK) st = reopen(t, avoid, err);
    if (st == EBRO_OK) st = try_op(t, f->op, &left, err);
    if (st == EBRO_OK && !left.any) st = take_back(t, f->op, chosen, avoid, err);
    if (st != EBRO_OK) return st;
    memcpy(t->avoid, avoid, sizeof avoid);
    st = reopen(t, t->avoid, err);
    if (st != EBRO_OK || left.any) return st;
    variant_of(t, f->op, now);
    names_less(now, chosen, instead);
    eb_log(&t->rt->log, EBRO_LOG_WARN,
           "%s fails its self-test in %s, and uses %s instead from now on: %s", t->name,
           t->avoid + t->n_told + strspn(t->avoid + t->n_told, " "), instead, f->text);
    t->n_told = strlen(t->avoid);
    return EBRO_OK;
}

/* ---- opening ---------------------------------------------------------------------------- */

/* Until nothing is wrong. Each round avoids more of the variants, of which there are not many. */
static int32_t test(struct selftest *t, ebro_error *err) {
    double begin = eb_clock_seconds();
    struct finding f;
    int32_t st = try_all(t, &f, err);
    while (st == EBRO_OK && f.any) {
        st = replace(t, &f, err);
        if (st == EBRO_OK) st = try_all(t, &f, err);
    }
    if (st != EBRO_OK) return eb_while(err, st, "testing %s before it is used", t->name);
    eb_log(&t->rt->log, EBRO_LOG_INFO, "%s: self-test of %d operators in %.2f s", t->name,
           (int)EBRO_N_OPS, eb_clock_seconds() - begin);
    return EBRO_OK;
}

/* Opens the device as a test has found that it must be opened. False: it has to be tested. */
static bool recall(struct selftest *t) {
    char found[EB_AVOID_BYTES], avoid[EB_AVOID_BYTES];
    ebro_device_options given = t->options;
    if (!eb_selftest_recall(t->device, &given, found)) return false;
    if (found[0] == '\0') return true;
    memcpy(avoid, t->avoid, sizeof avoid);
    if (!add_name(avoid, found, strlen(found)) || reopen(t, avoid, NULL) != EBRO_OK) return false;
    eb_log(&t->rt->log, EBRO_LOG_INFO, "%s does without what a self-test found wrong: %s", t->name,
           found);
    return true;
}

int32_t ebro_device_open_tested(ebro_runtime *runtime, const char *name,
                                const ebro_device_settings *settings, ebro_device **out,
                                ebro_error *err) {
    ebro_device_options options;
    if (out != NULL) *out = NULL;
    int32_t st = eb_device_options_of(settings, &options, err);
    if (st == EBRO_OK) st = eb_device_open(runtime, name, &options, out, err);
    if (st != EBRO_OK) return st;
    struct selftest *t = eb_calloc(&runtime->alloc, 1, sizeof *t, err);
    if (t == NULL) {
        ebro_device_close(out);
        return EBRO_NOMEM_HOST;
    }
    *t = (struct selftest){.rt = runtime, .options = options, .device = *out};
    *out = NULL;
    memcpy(t->name, t->device->info.name, sizeof t->name);
    if (options.avoid != NULL && !add_name(t->avoid, options.avoid, strlen(options.avoid)))
        st = eb_fail(err, EBRO_INVALID, "a list of variants to avoid of more than %d bytes",
                     (int)EB_AVOID_BYTES);
    t->n_given = t->n_told = strlen(t->avoid);
    if (st == EBRO_OK && !recall(t)) {
        if (t->device == NULL) st = reopen(t, t->avoid, err);
        if (st == EBRO_OK) st = test(t, err);
        const char *found = t->avoid + t->n_given;
        if (st == EBRO_OK) eb_selftest_keep(t->device, &options, found + strspn(found, " "));
    }
    if (st == EBRO_OK)
        *out = t->device;
    else
        ebro_device_close(&t->device);
    eb_free(&runtime->alloc, t);
    return st;
}
