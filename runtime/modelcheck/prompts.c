/* prompts.c: the prompts on one device: against float64, and against themselves however they are
 * cut. */
#include <stdio.h>
#include <string.h>

#include "device/device.h"
#include "modelcheck/bench.h"

enum { QUICK_STEPS = 6, QUICK_SPLIT = 4, TEXT = 512 };

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* ---- against float64 -------------------------------------------------------------------- */

static int32_t keep(void *user, const void *data, size_t bytes) {
    struct eb_saved_bytes *to = user;
    void *p = to->data;
    int32_t st = eb_grow(to->alloc, &p, &to->capacity, to->n + bytes, 1, NULL);
    to->data = p;
    if (st != EBRO_OK) return 1;
    memcpy(to->data + to->n, data, bytes);
    to->n += bytes;
    return 0;
}

static int32_t save(struct eb_model_bench *b, const ebro_seq *s, ebro_error *err) {
    b->saved = (struct eb_saved_bytes){.alloc = &b->check->rt->alloc};
    return ebro_seq_export(s, keep, &b->saved, NULL, NULL, err);
}

/* All of the prompt; saves it on the way where it is the one to be gone on with. */
static int32_t read_prompt(struct eb_model_bench *b, ebro_seq *s, const struct eb_golden_prompt *p,
                           bool saved, ebro_error *err) {
    uint32_t first = saved && p == eb_model_resumed(b->check) ? p->n_ids - EB_SAVED_LEFT : 0;
    int32_t st = eb_model_force(b, s, p, p->n_ids, err);
    if (st == EBRO_OK && first > 0) st = eb_model_evaluate(b->engine, s, p->ids, first, 0, err);
    if (st == EBRO_OK && first > 0) st = save(b, s, err);
    if (st != EBRO_OK) return st;
    return eb_model_evaluate(b->engine, s, p->ids + first, p->n_ids - first, p->n_rows, err);
}

/* A model that thinks answers in its response channel, after the think channel. */
static bool has_answer(const char *text, const char *answer) {
    static const char opened[] = "<|open|>response<|sep|>";
    const char *response = strstr(text, opened);
    const char *at = response != NULL && memchr(text, '<', (size_t)(response - text)) != NULL
                         ? response + sizeof opened - 1
                         : text;
    return strncmp(at, answer, strlen(answer)) == 0;
}

static int32_t check_recall(const struct eb_model_bench *b, const struct eb_golden_prompt *p,
                            const char *text, ebro_error *err) {
    struct eb_model_finding f = eb_model_begin(b, EB_MODELCHECK_RECALL, p, eb_budget_answer());
    snprintf(f.shape, sizeof f.shape, "a fact among %u tokens", p->n_ids);
    if (!has_answer(text, p->answer)) {
        f.error = 1;
        eb_model_fail(&f, "answers \"%.200s\" where \"%s\" is right", text, p->answer);
    }
    return eb_model_end(&f, EBRO_OK, err);
}

static int32_t check_prompt(struct eb_model_bench *b, const struct eb_golden_prompt *p, bool saved,
                            ebro_error *err) {
    char text[TEXT] = "";
    uint32_t n = b->full ? p->n_next : smaller(QUICK_STEPS, p->n_next);
    ebro_seq *s = NULL;
    struct eb_model_finding f =
        eb_model_begin(b, EB_MODELCHECK_LOGITS, p, eb_budget_logits(b->rounding));
    snprintf(f.shape, sizeof f.shape, "%u tokens, logits of the last %u", p->n_ids, p->n_rows);
    int32_t st = ebro_seq_create(b->engine, &s, err);
    if (st == EBRO_OK) st = read_prompt(b, s, p, saved, err);
    if (st == EBRO_OK && p->logits != NULL) st = eb_model_judge_logits(&f, p, s, err);
    bool evaluated = st == EBRO_OK;
    if (!evaluated || p->logits != NULL) st = eb_model_end(&f, st, err);
    if (evaluated && st == EBRO_OK) {
        f = eb_model_begin(b, EB_MODELCHECK_GREEDY, p, eb_budget_greedy(b->rounding));
        snprintf(f.shape, sizeof f.shape, "%u tokens after %u", n, p->n_ids);
        st = eb_model_judge_greedy(&f, p, b->engine, s, n, text, sizeof text, err);
        st = eb_model_end(&f, st, err);
    }
    if (evaluated && st == EBRO_OK && p->answer[0] != '\0') st = check_recall(b, p, text, err);
    ebro_seq_destroy(&s);
    return st;
}

/* ---- however it is cut ------------------------------------------------------------------ */

enum cut { WHOLE, ODD, SINGLE, N_CUTS };

/* Logits of the last of n tokens, copied to `out`. */
static int32_t evaluate_cut(const struct eb_model_bench *b, ebro_engine *e,
                            const struct eb_golden_prompt *p, uint32_t n, enum cut cut, float *out,
                            ebro_error *err) {
    const float *logits = NULL;
    uint32_t rows = 0, piece = cut == WHOLE ? n : 1;
    ebro_seq *s = NULL;
    int32_t st = ebro_seq_create(e, &s, err);
    if (st == EBRO_OK) st = eb_model_force(b, s, p, n, err);
    for (uint32_t at = 0; at < n && st == EBRO_OK; at += piece, piece += cut == ODD ? 2 : 0)
        st = eb_model_evaluate(e, s, p->ids + at, smaller(piece, n - at), 0, err);
    if (st == EBRO_OK) st = ebro_seq_logits(s, &logits, &rows, err);
    if (st == EBRO_OK) memcpy(out, logits, b->check->info.vocab * sizeof *out);
    ebro_seq_destroy(&s);
    return st;
}

static void judge_cut(struct eb_model_finding *f, const float *got, const float *whole,
                      enum cut cut) {
    uint32_t n = f->bench->check->info.vocab, differ = 0;
    const char *what = cut == ODD ? "in pieces of 1, 3, 5 .. tokens" : "token by token";
    if (f->kind == EB_MODELCHECK_SPLIT) {
        eb_model_judge_near(f, got, whole, n, what);
        return;
    }
    for (uint32_t i = 0; i < n; i++) differ += memcmp(&got[i], &whole[i], sizeof got[i]) != 0;
    if (differ == 0) return;
    if ((double)differ > f->error) f->error = differ;
    eb_model_fail(f, "%s: %u of %u logits have other bytes than in one piece", what, differ, n);
}

static int32_t check_cuts(struct eb_model_bench *b, enum eb_modelcheck_kind kind, ebro_error *err) {
    const struct eb_golden_prompt *p = eb_model_resumed(b->check);
    const struct eb_alloc *alloc = &b->check->rt->alloc;
    const uint32_t vocab = b->check->info.vocab;
    bool strict = kind == EB_MODELCHECK_STRICT;
    ebro_engine *own = NULL;
    if (p == NULL) return EBRO_OK;
    uint32_t n = b->full ? p->n_ids : smaller(QUICK_SPLIT, p->n_ids);
    float *logits = eb_calloc(alloc, 2 * (size_t)vocab, sizeof *logits, err);
    if (logits == NULL) return EBRO_NOMEM_HOST;
    struct eb_model_finding f = eb_model_begin(
        b, kind, p, strict ? eb_budget_strict_logits() : eb_budget_logits(b->rounding));
    snprintf(f.shape, sizeof f.shape, "%u tokens: at once, by 1, 3, 5 .., one by one", n);
    int32_t st = strict
                     ? eb_model_engine(b, b->cache, b->rounding != EB_ROUNDS_F32, true, &own, err)
                     : EBRO_OK;
    for (enum cut cut = WHOLE; cut < N_CUTS && st == EBRO_OK; cut++) {
        float *to = cut == WHOLE ? logits : logits + vocab;
        st = evaluate_cut(b, own != NULL ? own : b->engine, p, n, cut, to, err);
        if (st == EBRO_OK && cut != WHOLE) judge_cut(&f, to, logits, cut);
    }
    ebro_engine_close(&own);
    eb_free(alloc, logits);
    return eb_model_end(&f, st, err);
}

/* ---- all of it -------------------------------------------------------------------------- */

int32_t eb_model_check_prompts(struct eb_model_bench *b, bool saved, ebro_error *err) {
    const struct eb_golden *g = &b->check->golden;
    const struct eb_golden_prompt *last = b->full ? NULL : eb_model_resumed(b->check);
    int32_t st = EBRO_OK;
    for (uint32_t i = 0; i < g->n_prompts && st == EBRO_OK; i++) {
        st = check_prompt(b, &g->prompts[i], saved, err);
        if (&g->prompts[i] == last) break;
    }
    if (st == EBRO_OK) st = check_cuts(b, EB_MODELCHECK_SPLIT, err);
    if (st == EBRO_OK && (b->device->caps.bits & EBRO_CAP_STRICT) != 0)
        st = check_cuts(b, EB_MODELCHECK_STRICT, err);
    return st;
}
