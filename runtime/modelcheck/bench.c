/* bench.c: a device with the model on it: engines, and sequences that are evaluated. */
#include "modelcheck/bench.h"

#include "device/device.h"

/* Tokens of the longest prompt and of what it goes on with. */
static uint32_t context(const struct eb_modelcheck *c) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->golden.n_prompts; i++) {
        const struct eb_golden_prompt *p = &c->golden.prompts[i];
        if (p->n_ids + p->n_next > n) n = p->n_ids + p->n_next;
    }
    return n;
}

static ebro_engine_options engine_options(const struct eb_model_bench *b, int32_t cache) {
    return (ebro_engine_options){.size = sizeof(ebro_engine_options),
                                 .n_ctx = context(b->check),
                                 .cache_dtype = cache,
                                 .keep = EBRO_KEEP_NONE};
}

int32_t eb_model_engine(const struct eb_model_bench *b, int32_t cache, bool choices, bool strict,
                        ebro_engine **out, ebro_error *err) {
    ebro_engine_options o = engine_options(b, cache);
    o.expert_choices = choices;
    o.strict = strict;
    return ebro_engine_open(b->check->model, b->device, &o, out, err);
}

enum eb_model_rounding eb_model_rounding(const struct eb_model_bench *b, int32_t cache) {
    const uint64_t units = EBRO_CAP_MATRIX | EBRO_CAP_BF16;
    if (cache == EBRO_BF16 || (b->device->caps.bits & units) == units) return EB_ROUNDS_BF16;
    return cache == EBRO_F16 ? EB_ROUNDS_F16 : EB_ROUNDS_F32;
}

int32_t eb_model_bench_open(struct eb_model_bench *b, const struct eb_modelcheck_rung *rung,
                            ebro_error *err) {
    const ebro_device_settings settings = {
        .size = sizeof settings, .n_threads = rung->n_threads, .caps_mask = rung->caps_mask};
    ebro_estimate estimate = {.size = sizeof estimate};
    int32_t st = ebro_device_open_with(b->check->rt, rung->device, &settings, &b->device, err);
    if (st != EBRO_OK) return st;
    ebro_engine_options o = engine_options(b, -1);
    st = ebro_model_estimate(b->check->model, b->device, &o, &estimate, err);
    if (st != EBRO_OK) return st;
    b->cache = estimate.cache_dtype;
    b->rounding = eb_model_rounding(b, b->cache);
    return eb_model_engine(b, b->cache, b->rounding != EB_ROUNDS_F32, false, &b->engine, err);
}

void eb_model_bench_close(struct eb_modelcheck *c, struct eb_model_bench *b) {
    ebro_engine_close(&b->engine);
    ebro_engine_close(&b->plain);
    ebro_device_close(&b->device);
    eb_free(&c->rt->alloc, b->saved.data);
    b->saved = (struct eb_saved_bytes){.data = NULL};
}

int32_t eb_model_force(const struct eb_model_bench *b, ebro_seq *s,
                       const struct eb_golden_prompt *p, uint32_t n, ebro_error *err) {
    const struct eb_golden *g = &b->check->golden;
    int32_t st = EBRO_OK;
    if (b->rounding == EB_ROUNDS_F32 || p->experts == NULL) return EBRO_OK;
    for (uint32_t i = 0; i < g->n_layers && st == EBRO_OK; i++) {
        const int32_t *ids = p->experts + (size_t)i * p->n_ids * g->top_k;
        st = ebro_seq_force_experts(s, b->check->layers[i], ids, n, err);
    }
    return st;
}

int32_t eb_model_evaluate(ebro_engine *e, ebro_seq *s, const int32_t *ids, uint32_t n,
                          uint32_t n_logits, ebro_error *err) {
    int32_t st = ebro_seq_append(s, ids, n, n_logits, err);
    while (st == EBRO_OK && ebro_seq_pending(s) > 0) st = ebro_engine_step(e, err);
    return st;
}

const struct eb_golden_prompt *eb_model_resumed(const struct eb_modelcheck *c) {
    for (uint32_t i = 0; i < c->golden.n_prompts; i++) {
        const struct eb_golden_prompt *p = &c->golden.prompts[i];
        if (p->answer[0] != '\0' && p->logits != NULL && p->n_ids > EB_SAVED_LEFT) return p;
    }
    return NULL;
}
