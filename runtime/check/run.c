/* run.c: the cases on one open device, one after the other. */
#include "check/run.h"

#include <string.h>

#include "base/clock.h"

static const struct eb_opcheck_list *const lists[] = {
    &eb_opcheck_dense, &eb_opcheck_moe,    &eb_opcheck_kda,
    &eb_opcheck_mla,   &eb_opcheck_sample, &eb_opcheck_copy,
};
enum { N_LISTS = sizeof lists / sizeof lists[0], DEFAULT_RUNS = 10 };

/* Its own random numbers for each case, whatever else is run: one case alone sees what it saw among
 * others. FNV-1a over the names. */
static uint64_t seed_of(const struct eb_opcheck_case *c, uint64_t seed) {
    uint64_t h = 0xcbf29ce484222325u ^ seed;
    const char *parts[2] = {eb_op_name(c->op), c->name};
    for (int i = 0; i < 2; i++)
        for (const char *p = parts[i]; *p != '\0'; p++) h = (h ^ (uint8_t)*p) * 0x100000001b3u;
    return h;
}

static bool is_wanted(const struct eb_opcheck_case *c, const struct eb_opcheck_options *o) {
    if (c->part < (o->start ? EB_CASE_START : o->full ? EB_CASE_FULL : EB_CASE_QUICK)) return false;
    if (o->op >= 0 && (ebro_op)o->op != c->op) return false;
    return o->name == NULL || strcmp(o->name, c->name) == 0;
}

uint32_t eb_opcheck_count(const struct eb_opcheck_options *o) {
    uint32_t n = 0;
    for (size_t l = 0; l < N_LISTS; l++)
        for (size_t i = 0; i < lists[l]->n; i++) n += is_wanted(&lists[l]->cases[i], o);
    return n;
}

static void judge(const struct eb_trial *t, struct eb_opcheck_result *r,
                  struct eb_opcheck_tally *tally) {
    r->shape = t->shape;
    r->text = t->text;
    r->error = t->error;
    r->budget = t->budget.value;
    r->measure = t->budget.measure != NULL ? t->budget.measure : "";
    r->reason = t->budget.reason != NULL ? t->budget.reason : "";
    r->n_runs = t->n_runs;
    r->repeatable = !t->unrepeatable;
    r->verdict = EB_OPCHECK_OK;
    if (t->failed) {
        r->verdict = EB_OPCHECK_FAILED;
        tally->n_failed++;
    } else if (t->refused) {
        r->verdict = EB_OPCHECK_REFUSED;
        r->text = t->err.text;
        tally->n_refused++;
    } else {
        tally->n_ok++;
    }
}

/* One case; EBRO_CANCELLED where the caller wants no more. */
static int32_t run_case(const struct eb_opcheck_run *run, const struct eb_opcheck_case *c,
                        struct eb_trial *t, struct eb_stream *s) {
    struct ebro_device *d = s->device;
    const struct eb_opcheck_options *o = run->options;
    *t = (struct eb_trial){.device = d,
                           .stream = s,
                           .alloc = &d->rt->alloc,
                           .rng = seed_of(c, o->seed),
                           .n_runs = o->n_runs > 0 ? o->n_runs : DEFAULT_RUNS};
    struct eb_opcheck_result r = {.device = &d->info,
                                  .rung = run->rung,
                                  .variant = run->variants[c->op],
                                  .op = c->op,
                                  .name = c->name,
                                  .seed = o->seed};
    double begin = eb_clock_seconds();
    c->run(t, c->which);
    r.seconds = eb_clock_seconds() - begin;
    int32_t st = t->status;
    if (st == EBRO_OK) {
        judge(t, &r, run->tally);
        if (o->result != NULL && !o->result(o->user, &r))
            st = eb_fail(&t->err, EBRO_CANCELLED, "the check was stopped");
    } else {
        (void)eb_while(&t->err, st, "checking %s on %s: %s", eb_op_name(c->op), d->info.name,
                       c->name);
    }
    eb_trial_free(t);
    return st;
}

int32_t eb_opcheck_cases(const struct eb_opcheck_run *run, struct ebro_device *d, ebro_error *err) {
    struct eb_stream s = {0};
    struct eb_trial *t = eb_calloc(&d->rt->alloc, 1, sizeof *t, err);
    if (t == NULL) return EBRO_NOMEM_HOST;
    int32_t st = eb_stream_open(d, &s, err);
    for (size_t l = 0; l < N_LISTS && st == EBRO_OK; l++) {
        for (size_t i = 0; i < lists[l]->n && st == EBRO_OK; i++) {
            const struct eb_opcheck_case *c = &lists[l]->cases[i];
            if (!is_wanted(c, run->options) || run->skip[c->op]) continue;
            if ((d->caps.bits & c->needs) != c->needs) continue;
            st = run_case(run, c, t, &s);
            if (st != EBRO_OK && err != NULL) *err = t->err;
        }
    }
    eb_stream_close(&s);
    eb_free(&d->rt->alloc, t);
    return st;
}

int32_t eb_opcheck_device(struct ebro_device *d, const struct eb_opcheck_options *o,
                          struct eb_opcheck_tally *tally, ebro_error *err) {
    struct eb_opcheck_run run = {.options = o, .tally = tally, .rung = "best"};
    eb_opcheck_variants(d, run.variants);
    return eb_opcheck_cases(&run, d, err);
}
