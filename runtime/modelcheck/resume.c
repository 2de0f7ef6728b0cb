/* resume.c: sequences that one device has saved go on on another, and damaged ones on none. */
#include <stdio.h>
#include <string.h>

#include "modelcheck/bench.h"

enum { QUICK_STEPS = 3 };

struct source {
    const uint8_t *data;
    size_t n, at;
};

static int64_t give(void *user, void *data, size_t bytes) {
    struct source *from = user;
    size_t n = from->n - from->at < bytes ? from->n - from->at : bytes;
    memcpy(data, from->data + from->at, n);
    from->at += n;
    return (int64_t)n;
}

static int32_t import(ebro_engine *e, const uint8_t *data, size_t n, ebro_seq **out,
                      ebro_error *err) {
    struct source from = {data, n, 0};
    return ebro_seq_import(e, give, &from, out, NULL, err);
}

/* What `from` has saved goes on in an engine of b whose cache has that type. */
static int32_t resume(struct eb_model_bench *b, ebro_engine *e, int32_t cache,
                      const struct eb_model_bench *from, ebro_error *err) {
    const struct eb_golden_prompt *p = eb_model_resumed(b->check);
    enum eb_model_rounding here = eb_model_rounding(b, cache);
    enum eb_model_rounding rounding = from->rounding > here ? from->rounding : here;
    uint32_t n = b->full ? p->n_next : QUICK_STEPS, done = p->n_ids - EB_SAVED_LEFT;
    ebro_seq *s = NULL;
    struct eb_model_finding f =
        eb_model_begin(b, EB_MODELCHECK_RESUME, p, eb_budget_logits(rounding));
    f.rounding = rounding;
    f.from = (int32_t)from->number;
    f.cache = eb_dtype_name(cache);
    snprintf(f.shape, sizeof f.shape, "%u tokens, %s to %s; %d more, then %u", done,
             eb_dtype_name(from->cache), eb_dtype_name(cache), EB_SAVED_LEFT, n);
    int32_t st = import(e, from->saved.data, from->saved.n, &s, err);
    if (st == EBRO_FORMAT) {
        eb_model_fail(&f, "%.390s", err->text);
        st = EBRO_OK;
    } else if (st == EBRO_OK) {
        st = eb_model_evaluate(e, s, p->ids + done, EB_SAVED_LEFT, p->n_rows, err);
        if (st == EBRO_OK) st = eb_model_judge_logits(&f, p, s, err);
        if (st == EBRO_OK) st = eb_model_judge_greedy(&f, p, e, s, n, NULL, 0, err);
    }
    ebro_seq_destroy(&s);
    return eb_model_end(&f, st, err);
}

/* With the other types of cache, too. */
static int32_t resume_converted(struct eb_model_bench *b, ebro_error *err) {
    static const int32_t types[] = {EBRO_F32, EBRO_F16, EBRO_BF16};
    int32_t st = EBRO_OK;
    for (size_t i = 0; i < sizeof types / sizeof types[0] && st == EBRO_OK; i++) {
        ebro_engine *e = NULL;
        if (types[i] == b->cache) continue;
        st = eb_model_engine(b, types[i], false, false, &e, err);
        if (st == EBRO_OK) st = resume(b, e, types[i], b, err);
        ebro_engine_close(&e);
    }
    return st;
}

/* One bit of what the device itself has saved, in the middle of its states. */
static int32_t refuse_damage(struct eb_model_bench *b, ebro_error *err) {
    uint8_t *byte = b->saved.data + b->saved.n / 2;
    ebro_seq *s = NULL;
    struct eb_model_finding f =
        eb_model_begin(b, EB_MODELCHECK_DAMAGE, eb_model_resumed(b->check), eb_budget_damage());
    snprintf(f.shape, sizeof f.shape, "%zu bytes, one bit of them wrong", b->saved.n);
    *byte ^= 1;
    int32_t st = import(b->plain, b->saved.data, b->saved.n, &s, err);
    *byte ^= 1;
    ebro_seq_destroy(&s);
    if (st == EBRO_OK) {
        f.error = 1;
        eb_model_fail(&f, "a damaged sequence was taken for a whole one");
    }
    return eb_model_end(&f, st == EBRO_FORMAT ? EBRO_OK : st, err);
}

int32_t eb_modelcheck_resume(struct eb_modelcheck *c, uint32_t device, ebro_error *err) {
    struct eb_model_bench *b = &c->benches[device];
    int32_t st = EBRO_OK;
    if (b->saved.data == NULL) return EBRO_OK;
    if (b->plain == NULL) st = eb_model_engine(b, b->cache, false, false, &b->plain, err);
    for (uint32_t i = 0; i < EB_MODELCHECK_MAX_DEVICES && st == EBRO_OK; i++)
        if (c->benches[i].saved.data != NULL)
            st = resume(b, b->plain, b->cache, &c->benches[i], err);
    if (st == EBRO_OK && b->full) st = resume_converted(b, err);
    return st == EBRO_OK ? refuse_damage(b, err) : st;
}
