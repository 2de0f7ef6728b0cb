/* judge.c: the calls of a trial, each several times on the same bytes, and what is found of them.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check/trial.h"

/* ---- calls ------------------------------------------------------------------------------ */

static int32_t dispatch(struct eb_trial *t, ebro_op op, const void *args) {
    switch (op) {
#define CALL(N, name) \
    case EBRO_OP_##N: \
        return eb_op_##name(t->stream, args, &t->err);
        EBRO_OPS(CALL)
#undef CALL
        default:
            return eb_fail(&t->err, EBRO_INTERNAL, "the check calls an op %d", (int)op);
    }
}

static uint64_t with_guards(const struct eb_trial_image *m) {
    return m->bytes + 2 * EB_TRIAL_GUARD;
}

static int32_t put_all(struct eb_trial *t) {
    for (uint32_t i = 0; i < t->n_images; i++) {
        struct eb_trial_image *m = &t->images[i];
        int32_t st =
            eb_upload(t->stream, (ebro_span){m->mem, 0}, m->before, with_guards(m), &t->err);
        if (st != EBRO_OK) return st;
    }
    return EBRO_OK;
}

/* Into `after`, or, for all runs but the first, into `to[i]`. */
static int32_t get_all(struct eb_trial *t, uint8_t *const *to) {
    for (uint32_t i = 0; i < t->n_images; i++) {
        struct eb_trial_image *m = &t->images[i];
        uint8_t *at = to != NULL ? to[i] : m->after;
        if (at == NULL) continue;
        int32_t st = eb_download(t->stream, at, (ebro_span){m->mem, 0}, with_guards(m), &t->err);
        if (st != EBRO_OK) return st;
    }
    return eb_stream_sync(t->stream, &t->err);
}

/* Guards stay, and inputs do. */
static void look_at_edges(struct eb_trial *t) {
    for (uint32_t i = 0; i < t->n_images; i++) {
        const struct eb_trial_image *m = &t->images[i];
        const uint8_t *a = m->after, *end = a + EB_TRIAL_GUARD + m->bytes;
        for (uint64_t k = 0; k < EB_TRIAL_GUARD; k++) {
            if (a[k] == 0xff && end[k] == 0xff) continue;
            eb_trial_fail(t, "wrote outside of a buffer of %" PRIu64 " bytes%s", m->bytes,
                          m->role == EB_TRIAL_SCRATCH ? " of scratch" : "");
            break;
        }
        if (m->role != EB_TRIAL_IN || memcmp(m->before, a, (size_t)with_guards(m)) == 0) continue;
        eb_trial_fail(t, "changed an input of %" PRIu64 " bytes", m->bytes);
    }
}

static int32_t run_once(struct eb_trial *t, const struct eb_trial_op *ops, size_t n) {
    int32_t st = put_all(t);
    for (size_t i = 0; i < n && st == EBRO_OK; i++) st = dispatch(t, ops[i].op, ops[i].args);
    return st;
}

/* The other runs: what they write is compared with the first. */
static int32_t run_again(struct eb_trial *t, const struct eb_trial_op *ops, size_t n,
                         uint8_t *const *again) {
    for (uint32_t run = 1; run < t->n_runs && !t->unrepeatable; run++) {
        int32_t st = run_once(t, ops, n);
        if (st == EBRO_OK) st = get_all(t, again);
        if (st != EBRO_OK) return st;
        for (uint32_t i = 0; i < t->n_images; i++) {
            const struct eb_trial_image *m = &t->images[i];
            if (again[i] == NULL || memcmp(again[i], m->after, (size_t)with_guards(m)) == 0)
                continue;
            t->unrepeatable = true;
            eb_trial_fail(t, "run %" PRIu32 " with the same input gave other bytes", run + 1);
        }
    }
    return EBRO_OK;
}

/* What is refused must leave all memory as it was. */
static int32_t look_for_changes(struct eb_trial *t) {
    struct eb_budget exact = eb_budget_exact();
    exact.reason = "what is refused must leave all memory as it was";
    uint64_t changed = 0;
    int32_t st = get_all(t, NULL);
    if (st != EBRO_OK) return st;
    for (uint32_t i = 0; i < t->n_images; i++) {
        const struct eb_trial_image *m = &t->images[i];
        for (uint64_t k = 0; k < with_guards(m); k++) changed += m->before[k] != m->after[k];
    }
    eb_trial_note(t, (double)changed, exact, "wrote %" PRIu64 " bytes and then refused", changed);
    return EBRO_OK;
}

/* The device said no. Of several ops the first may have been computed, of one nothing. */
static void take_refusal(struct eb_trial *t, int32_t st, size_t n) {
    const ebro_error reason = t->err;
    t->status = n == 1 ? look_for_changes(t) : eb_stream_sync(t->stream, &t->err);
    if (t->status != EBRO_OK) return;
    t->err = reason;
    t->refused = true;
    /* Valid input: see the contracts in ebro/backend.h. */
    if (st == EBRO_INVALID) eb_trial_fail(t, "refused as invalid: %s", reason.text);
}

bool eb_trial_calls(struct eb_trial *t, const struct eb_trial_op *ops, size_t n) {
    uint8_t *again[EB_TRIAL_MAX_BUFS] = {NULL};
    uint32_t n_hosts = t->n_hosts;
    for (uint32_t i = 0; i < t->n_images && t->n_runs > 1; i++) {
        if (t->images[i].role == EB_TRIAL_OUT)
            again[i] = eb_trial_host(t, with_guards(&t->images[i]), 1);
    }
    if (eb_trial_over(t)) return false;
    int32_t st = run_once(t, ops, n);
    if (st == EBRO_OK) st = get_all(t, NULL);
    if (st == EBRO_OK) look_at_edges(t);
    if (st == EBRO_OK) st = run_again(t, ops, n, again);
    while (t->n_hosts > n_hosts) eb_free(t->alloc, t->hosts[--t->n_hosts]);
    if (st == EBRO_UNSUPPORTED || st == EBRO_INVALID)
        take_refusal(t, st, n);
    else
        t->status = st;
    return !eb_trial_over(t);
}

bool eb_trial_call(struct eb_trial *t, ebro_op op, const void *args) {
    const struct eb_trial_op one = {op, args};
    return eb_trial_calls(t, &one, 1);
}

void eb_trial_must_refuse(struct eb_trial *t, ebro_op op, const void *args, const char *what) {
    if (eb_trial_over(t)) return;
    int32_t st = put_all(t);
    t->err = (ebro_error){0};
    int32_t refusal = st == EBRO_OK ? dispatch(t, op, args) : st;
    bool told = t->err.text[0] != '\0';
    if (st != EBRO_OK || refusal == EBRO_DEVICE_LOST) {
        t->status = refusal;
        return;
    }
    if (refusal == EBRO_OK) eb_trial_fail(t, "took %s, which it must refuse", what);
    if (refusal != EBRO_OK && !told) eb_trial_fail(t, "refused %s without a reason", what);
    t->err = (ebro_error){0};
    t->status = look_for_changes(t);
}

/* ---- findings --------------------------------------------------------------------------- */

/* How much of its budget an error takes; nothing is allowed: 0 or infinite. */
static double share(double error, double budget) {
    if (error == 0) return 0;
    return budget > 0 ? error / budget : (double)INFINITY;
}

static void say(struct eb_trial *t, const char *fmt, va_list args) {
    if (t->failed) return;
    t->failed = true;
    vsnprintf(t->text, sizeof t->text, fmt, args);
}

void eb_trial_fail(struct eb_trial *t, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    say(t, fmt, args);
    va_end(args);
}

bool eb_trial_note(struct eb_trial *t, double error, struct eb_budget b, const char *fmt, ...) {
    if (isnan(error)) error = (double)INFINITY;
    if (t->budget.reason == NULL || share(error, b.value) > share(t->error, t->budget.value)) {
        t->error = error;
        t->budget = b;
    }
    if (error <= b.value) return true;
    va_list args;
    va_start(args, fmt);
    say(t, fmt, args);
    va_end(args);
    return false;
}

void eb_trial_within(struct eb_trial *t, double got, double want, double size, struct eb_budget b,
                     const char *what, uint64_t index) {
    double d = fabs(got - want);
    /* Both infinite is agreement; otherwise what is not finite is no number to compare. */
    double error = got == want ? 0 : !isfinite(d) ? (double)INFINITY : share(d, size);
    (void)eb_trial_note(t, error, b, "%s, element %" PRIu64 ": %.9g where %.9g is right", what,
                        index, got, want);
}

void eb_trial_near(struct eb_trial *t, const float *got, const double *ref, uint64_t n,
                   struct eb_budget b, const char *what) {
    double difference = 0, size = 0, worst = 0, largest = 0;
    uint64_t at = 0;
    for (uint64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - ref[i]);
        if (!isfinite(d)) {
            (void)eb_trial_note(t, d, b, "%s, element %" PRIu64 ": %g where %.9g is right", what, i,
                                (double)got[i], ref[i]);
            return;
        }
        difference += d * d;
        size += ref[i] * ref[i];
        if (d > worst) {
            worst = d;
            at = i;
        }
        largest = fmax(largest, fabs(ref[i]));
    }
    double error = fmax(sqrt(share(difference, size)), share(worst, largest));
    if (n == 0) return;
    (void)eb_trial_note(t, error, b,
                        "%s: %.3g off where %.3g is allowed; element %" PRIu64
                        " is %.9g where %.9g is right",
                        what, error, b.value, at, (double)got[at], ref[at]);
}

void eb_trial_same(struct eb_trial *t, const void *got, const void *want, uint64_t bytes,
                   struct eb_budget b, const char *what) {
    const uint8_t *x = got, *y = want;
    uint64_t n = 0, first = 0;
    for (uint64_t i = 0; i < bytes; i++) {
        if (x[i] == y[i]) continue;
        if (n++ == 0) first = i;
    }
    (void)eb_trial_note(t, (double)n, b,
                        "%s: %" PRIu64 " bytes differ, the first of them byte %" PRIu64, what, n,
                        first);
}
