/* finding.c: what a check of a model on a device comes to. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "modelcheck/bench.h"

const char *eb_modelcheck_name(enum eb_modelcheck_kind kind) {
    static const char *const names[EB_N_MODELCHECKS] = {"logits", "greedy", "recall", "split",
                                                        "strict", "resume", "damage"};
    return names[kind];
}

struct eb_model_finding eb_model_begin(const struct eb_model_bench *b, enum eb_modelcheck_kind kind,
                                       const struct eb_golden_prompt *p, struct eb_budget budget) {
    return (struct eb_model_finding){.bench = b,
                                     .kind = kind,
                                     .rounding = b->rounding,
                                     .prompt = p->name,
                                     .cache = eb_dtype_name(b->cache),
                                     .from = -1,
                                     .budget = budget,
                                     .begin = eb_clock_seconds()};
}

void eb_model_fail(struct eb_model_finding *f, const char *fmt, ...) {
    va_list args;
    if (f->failed) return;
    f->failed = true;
    va_start(args, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, args);
    va_end(args);
}

/* ---- numbers ---------------------------------------------------------------------------- */

/* Over all elements that were compared. */
struct distance {
    double difference, size; /* of squares */
    double worst, largest;
};

static void add(struct distance *d, double got, double want) {
    double off = fabs(got - want);
    d->difference += off * off;
    d->size += want * want;
    d->worst = fmax(d->worst, off);
    d->largest = fmax(d->largest, fabs(want));
}

static void note(struct eb_model_finding *f, const struct distance *d, const char *what) {
    if (d->difference == 0) return;
    /* A sum keeps what is not finite, a maximum may lose it. */
    double norm = sqrt(d->difference / d->size);
    double error = isfinite(norm) ? fmax(norm, d->worst / d->largest) : (double)INFINITY;
    f->error = fmax(f->error, error);
    if (error > f->budget.value)
        eb_model_fail(f, "%s: %.2g off where %.2g is allowed", what, error, f->budget.value);
}

int32_t eb_model_judge_logits(struct eb_model_finding *f, const struct eb_golden_prompt *p,
                              ebro_seq *s, ebro_error *err) {
    const struct eb_golden *g = &f->bench->check->golden;
    const float *logits = NULL;
    uint32_t rows = 0, columns = eb_golden_columns(g);
    struct distance d = {0, 0, 0, 0};
    int32_t st = ebro_seq_logits(s, &logits, &rows, err);
    if (st != EBRO_OK) return st;
    if (rows != p->n_rows)
        return eb_fail(err, EBRO_INTERNAL, "%u rows of logits, not %u", rows, p->n_rows);
    for (uint32_t r = 0; r < rows; r++) {
        const float *row = logits + (size_t)r * g->vocab + (r + p->shift) % g->stride;
        for (uint32_t i = 0; i < columns; i++)
            add(&d, (double)row[i * g->stride], p->logits[(size_t)r * columns + i]);
    }
    note(f, &d, "the logits");
    return EBRO_OK;
}

void eb_model_judge_near(struct eb_model_finding *f, const float *got, const float *want,
                         uint32_t n, const char *what) {
    struct distance d = {0, 0, 0, 0};
    for (uint32_t i = 0; i < n; i++) add(&d, (double)got[i], (double)want[i]);
    note(f, &d, what);
}

/* ---- tokens ----------------------------------------------------------------------------- */

static void append_text(ebro_model *m, int32_t id, char *text, size_t bytes) {
    size_t n = 0, at = strlen(text);
    const char *token = ebro_token_bytes(m, id, &n, NULL);
    if (token == NULL || at + n >= bytes) return;
    memcpy(text + at, token, n);
    text[at + n] = '\0';
}

/* Two best that lie nearer than what is off where bf16 rounds may change places. */
static bool is_right(const struct eb_model_finding *f, const struct eb_golden_prompt *p, uint32_t i,
                     int32_t id) {
    double even = f->rounding != EB_ROUNDS_F32 ? eb_budget_margin() : 0;
    return id == p->best[i] || (id == p->second[i] && (double)p->margin[i] < even);
}

int32_t eb_model_judge_greedy(struct eb_model_finding *f, const struct eb_golden_prompt *p,
                              ebro_engine *e, ebro_seq *s, uint32_t n, char *text, size_t bytes,
                              ebro_error *err) {
    const ebro_sampling greedy = {.size = sizeof greedy};
    int32_t st = EBRO_OK;
    for (uint32_t i = 0; i < n && st == EBRO_OK; i++) {
        int32_t id = -1;
        st = ebro_seq_sample(s, &greedy, &id, err);
        if (st == EBRO_OK && text != NULL) append_text(f->bench->check->model, id, text, bytes);
        if (st == EBRO_OK && !is_right(f, p, i, id)) {
            if (f->kind == EB_MODELCHECK_GREEDY) f->error++;
            eb_model_fail(f, "token %u of the continuation is %d where %d is right", i + 1, id,
                          p->best[i]);
        }
        /* The last one's successor is not asked for. */
        if (st == EBRO_OK && i + 1 < n) st = eb_model_evaluate(e, s, &p->best[i], 1, 0, err);
    }
    return st;
}

/* ---- handing out ------------------------------------------------------------------------ */

int32_t eb_model_end(struct eb_model_finding *f, int32_t st, ebro_error *err) {
    const struct eb_modelcheck_options *o = &f->bench->check->options;
    bool refused = st == EBRO_UNSUPPORTED;
    if (st == EBRO_NUMERIC) {
        f->error = (double)INFINITY;
        eb_model_fail(f, "%.390s", err->text);
    } else if (st != EBRO_OK && !refused) {
        return st;
    }
    const struct eb_modelcheck_result r = {.device = f->bench->number,
                                           .from = f->from,
                                           .rung = f->bench->rung,
                                           .kind = f->kind,
                                           .prompt = f->prompt,
                                           .cache = f->cache,
                                           .shape = f->shape,
                                           .verdict = f->failed ? EB_OPCHECK_FAILED
                                                      : refused ? EB_OPCHECK_REFUSED
                                                                : EB_OPCHECK_OK,
                                           .error = f->error,
                                           .budget = f->budget.value,
                                           .measure = f->budget.measure,
                                           .reason = f->budget.reason,
                                           .seconds = eb_clock_seconds() - f->begin,
                                           .text = refused && !f->failed ? err->text : f->text};
    if (o->result != NULL && !o->result(o->user, &r))
        return eb_fail(err, EBRO_CANCELLED, "the check was stopped");
    return EBRO_OK;
}
